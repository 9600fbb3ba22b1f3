//! What other crates may call, a trait per noun. Backends implement the traits and pass the conformance suites; nobody
//! outside this crate sees SQL or an object store.

use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use time::OffsetDateTime;

use crate::error::StoreError;
use crate::model::album::{Album, AlbumChange, AlbumConfig, AlbumPage, AlbumQuery, NewAlbum, Tenant};
use crate::model::cost::CostMeter;
use crate::model::ids::{AlbumId, KeyId, LeaseId, OrganizationId, PhotoId, ProbeId};
use crate::model::key::{Key, KeyDigest, NewKey};
use crate::model::photo::{
    BoundingBox, CameraCount, DetectedFace, DetectedText, Embedding, FailureReason, NewPhoto, Photo,
    PhotoPage, PhotoQuery, PhotoSize, StateCounts, TakenQuery,
};

pub use crate::account_traits::Accounts;
pub use crate::blob_traits::{ANY_IMAGE, Blobs, UploadConditions};
pub use crate::credit_traits::{
    ConfirmedUploads, Costs, CreditLedger, Decline, LedgerTask, RateWindows, Reprocessed,
};
pub use crate::download_traits::Downloads;
pub use crate::erasure_traits::Erasures;
pub use crate::event_traits::{EventPublisher, Events};
pub use crate::gallery_traits::Galleries;
pub use crate::model::hit::{FaceHit, HitReason, SelfieHit, SelfieQuery, SelfieScale};
pub use crate::model::object_key::UploadTarget;
pub use crate::model::probe::{ExpiredPosition, Probe, ProbeOutcome, ProbeRefusal};
pub use crate::outbox_traits::{NamedLease, OutboxQueue, UnpublishedPhoto, UnpublishedPhotos};
pub use crate::process_traits::{Processes, TaskLeases};
pub use crate::start_list_traits::{Judging, StartLists};
pub use crate::watermark_traits::Watermarks;
pub use crate::webhook_traits::{DeliveryQueue, DeliveryRoom, Webhooks};

/// The result of every call.
pub type Result<T> = std::result::Result<T, StoreError>;

/// Organizations and their API keys.
#[async_trait]
pub trait Keys: Send + Sync {
    /// Returns the organization of this name; creates it when there is none.
    async fn get_or_create_organization(&self, name: &str) -> Result<OrganizationId>;
    /// Returns the organization of this name.
    async fn find_organization(&self, name: &str) -> Result<Option<OrganizationId>>;
    /// Stores a key. `Conflict` when its digest is stored already.
    async fn create(&self, key: NewKey) -> Result<Key>;
    /// Returns the key of this digest, also when it is revoked or expired. The answer of a store may be a few seconds
    /// old: it knows at once what itself created and revoked, and other processes' revocations after that time.
    async fn find(&self, digest: &KeyDigest) -> Result<Option<Key>>;
    /// Records that a key was used, at most once a minute.
    async fn touch(&self, id: KeyId, at: OffsetDateTime) -> Result<()>;
    /// Returns all keys, oldest first.
    async fn list(&self) -> Result<Vec<Key>>;
    /// Revokes a key; idempotent. `NotFound` when there is none.
    async fn revoke(&self, id: KeyId) -> Result<()>;
}

/// Albums. Another tenant's album is `NotFound`.
#[async_trait]
pub trait Albums: Send + Sync {
    /// Creates an album.
    async fn create(&self, album: NewAlbum) -> Result<Album>;
    /// Returns an album.
    async fn get(&self, tenant: &Tenant, id: AlbumId) -> Result<Album>;
    /// Changes fields of an album. `Conflict` when it has changed since `change.unchanged_since`.
    async fn update(&self, tenant: &Tenant, id: AlbumId, change: AlbumChange) -> Result<Album>;
    /// Closes an album: from now on it is `NotFound` for every call but `close` and `delete`, none of its photos is
    /// leased or confirmed, and finishing a photo that a worker holds returns [`FinishOutcome::Gone`]. Its rows stay
    /// until [`Self::delete`]. Idempotent.
    async fn close(&self, tenant: &Tenant, id: AlbumId) -> Result<()>;
    /// Closes an album, then deletes its rows (photos, faces, texts, changes, probes) in steps. The caller deletes the
    /// objects before and after. An interrupted call is completed by calling again.
    async fn delete(&self, tenant: &Tenant, id: AlbumId) -> Result<()>;
    /// Returns some of the albums that were closed before `before`, still have rows, and that no running erasure deletes.
    async fn list_closed(&self, before: OffsetDateTime) -> Result<Vec<(Tenant, AlbumId)>>;
    /// Returns a page of albums, newest first.
    async fn list(&self, tenant: &Tenant, query: AlbumQuery) -> Result<AlbumPage>;
}

/// Photos of an album. The caller has checked with [`Albums::get`] that the album belongs to the tenant.
#[async_trait]
pub trait Photos: Send + Sync {
    /// Creates photos that wait for their upload, in one transaction; returns their ids in order.
    async fn create(&self, album: AlbumId, photos: Vec<NewPhoto>) -> Result<Vec<PhotoId>>;
    /// Returns a photo.
    async fn get(&self, album: AlbumId, id: PhotoId) -> Result<Photo>;
    /// Returns those of `ids` that are in the album, in any order.
    async fn get_many(&self, album: AlbumId, ids: &[PhotoId]) -> Result<Vec<Photo>>;
    /// Returns the faces and texts of a photo in the order of detection; empty until the photo is ready.
    async fn get_detections(
        &self,
        album: AlbumId,
        id: PhotoId,
    ) -> Result<(Vec<DetectedFace>, Vec<DetectedText>)>;
    /// Returns a page of photos, oldest first.
    async fn list(&self, album: AlbumId, query: PhotoQuery) -> Result<PhotoPage>;
    /// Returns a page of the photos that have pictures ([`Photo::has_pictures`]), oldest first, and where the next page begins, when
    /// there is one. Costs the same for an album of any size.
    async fn list_shown(
        &self,
        album: AlbumId,
        after: Option<PhotoId>,
        limit: u32,
    ) -> Result<(Vec<Photo>, Option<PhotoId>)>;
    /// Returns how many photos have pictures. Reads an index of those that are processed again.
    async fn count_shown(&self, album: AlbumId) -> Result<u64>;
    /// Returns a page of photos that were taken as asked, oldest first. Reads the album until the page is full.
    async fn list_taken(&self, album: AlbumId, query: TakenQuery) -> Result<PhotoPage>;
    /// Returns the cameras of an album, the one with most photos first, at most 1,000.
    async fn count_by_camera(&self, album: AlbumId) -> Result<Vec<CameraCount>>;
    /// Deletes the rows of a photo and records the change for face indexes. The caller deletes the objects.
    async fn delete(&self, album: AlbumId, id: PhotoId) -> Result<()>;
    /// Returns how many photos are in each state. Costs the same for an album of any size.
    async fn count_by_state(&self, album: AlbumId) -> Result<StateCounts>;
    /// Counts the photos of the album that became ready or failed within the last `window`, by the clock that wrote
    /// when they did: the rate of `albums/progress`.
    async fn count_settled_within(&self, album: AlbumId, window: Duration) -> Result<u64>;
}

/// A photo assigned to one worker for a limited time.
#[derive(Clone, Debug)]
pub struct Lease {
    /// Fences `finish` and `fail`: once another worker has leased the photo, this id is refused.
    pub id: LeaseId,
    /// The photo.
    pub photo: PhotoId,
    /// Its album.
    pub album: AlbumId,
    /// The owner of the album.
    pub organization: OrganizationId,
    /// How to process photos of the album.
    pub config: Arc<AlbumConfig>,
    /// The number of this lease among those that were not released, from 1.
    pub attempt: u32,
    /// Since when the photo has waited: when it was confirmed or last requeued.
    pub confirmed_at: OffsetDateTime,
    /// Where faces were erased: no vector is to be computed of a face there.
    pub erased_places: Vec<BoundingBox>,
    /// The version of the album's watermark; 0 without one.
    pub watermark_version: i64,
    /// What this attempt has cost so far. Its outcome writes it: shared by all copies of the lease.
    pub spent: Arc<CostMeter>,
}

/// What to lease.
#[derive(Clone, Copy, Debug)]
pub struct LeaseRequest {
    /// At most this many photos.
    pub limit: usize,
    /// For this long, unless renewed.
    pub ttl: Duration,
    /// Fresh photos, or a crash suspect.
    pub kind: LeaseKind,
}

/// Which photos to lease.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LeaseKind {
    /// Photos that have not been leased yet, up to the limit.
    Fresh,
    /// One photo of which an earlier lease expired: its worker may have crashed on it, so it is leased alone.
    CrashSuspect,
}

/// The sizes of the pictures that were made of a photo.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct PictureSizes {
    /// Of its preview and thumbnail together.
    pub picture_bytes: u64,
    /// Of the preview with the album's watermark, if it was written.
    pub marked_bytes: Option<u64>,
}

/// Everything that processing a photo found.
#[derive(Clone, Debug)]
pub struct PhotoResults {
    /// The lease under which it was processed.
    pub lease: Lease,
    /// The size of the upright photo.
    pub size: PhotoSize,
    /// When it was taken (EXIF).
    pub taken_at: Option<OffsetDateTime>,
    /// The camera (EXIF).
    pub camera: Option<String>,
    /// The version of the watermark in its marked picture; 0 if it has none.
    pub watermark_version: i64,
    /// The files of its pictures, which are written already.
    pub pictures: PictureSizes,
    /// Runners whose bibs were not read, because the photo has too many: the smallest.
    pub skipped_runners: u32,
    /// Its faces, largest first.
    pub faces: Vec<DetectedFace>,
    /// Its texts.
    pub texts: Vec<DetectedText>,
}

/// What `finish` or `fail` did with a photo.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FinishOutcome {
    /// The results were written.
    Done,
    /// Another worker has leased the photo, or it waits to be leased again: nothing was written.
    Superseded,
    /// The photo was deleted: nothing was written, and the objects that the caller stored for it are garbage.
    Gone,
}

/// An upload to confirm.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Upload {
    /// The photo.
    pub photo: PhotoId,
    /// The size of its object, if known: a large photo costs its owner a larger part of its share of the work.
    pub size_bytes: Option<u64>,
}

/// The work queue. The database is the source of truth; delivery is at least once, effects are exactly once.
#[async_trait]
pub trait Queue: Send + Sync {
    /// Queues photos that wait for their upload, and failed ones, which were uploaded again, with their attempts reset;
    /// idempotent, durable when it returns. Holds the price of each that was never ready; where credits are enforced, those
    /// that the balance does not cover are declined, the last ones first.
    async fn confirm_uploads(&self, album: AlbumId, uploads: &[Upload]) -> Result<ConfirmedUploads>;
    /// Does the same for uploads of unknown size; returns the ids that exist and are not declined.
    async fn confirm(&self, album: AlbumId, photos: &[PhotoId]) -> Result<Vec<PhotoId>> {
        let uploads: Vec<Upload> =
            photos.iter().map(|photo| Upload { photo: *photo, size_bytes: None }).collect();
        Ok(self.confirm_uploads(album, &uploads).await?.photos)
    }
    /// Requeues a failed photo with its attempts reset. `Conflict` when it has not failed, `InsufficientCredits` when its
    /// price must be held again and the balance does not cover it.
    async fn retry(&self, album: AlbumId, photo: PhotoId) -> Result<()>;
    /// Requeues every ready or failed photo of an album. Holds the price of those that were never ready, in the order of
    /// ids as far as the balance covers them. `InsufficientCredits` when it covers none and there is no other. One in process is
    /// requeued when its attempt ends, if the configuration is not that of its lease then: `finish` and `fail` say `Superseded`.
    async fn reprocess(&self, album: AlbumId) -> Result<Reprocessed>;
    /// Leases photos, in turn between organizations and between the albums of each, by what photos cost. The attempt is counted
    /// and committed before this returns. Photos that have reached their attempt limit become failed (`ProcessingCrashed`).
    async fn lease(&self, request: LeaseRequest) -> Result<Vec<Lease>>;
    /// Extends leases to `ttl` from now; returns those that are still running.
    async fn renew(&self, leases: &[LeaseId], ttl: Duration) -> Result<Vec<LeaseId>>;
    /// Writes faces, texts, state and a new change number for all photos in one transaction, fenced by lease. Replaces
    /// what an earlier attempt wrote, and charges what is held for photos that become ready for the first time. Returns one
    /// outcome per photo, in order.
    async fn finish(&self, photos: Vec<PhotoResults>) -> Result<Vec<FinishOutcome>>;
    /// Marks a photo as failed; final unless it is retried.
    async fn fail(&self, lease: &Lease, reason: FailureReason, detail: &str) -> Result<FinishOutcome>;
    /// Returns photos to the queue; the attempt is not counted. What it cost is written.
    async fn release(&self, leases: &[Lease]) -> Result<()>;
    /// Checks that photos can be leased now: that the database accepts writes, and that the message queue responds if
    /// one is configured.
    async fn check(&self) -> Result<()>;
    /// Counts the photos that wait, over all albums.
    async fn depth(&self) -> Result<u64>;
    /// Whether photos of other organizations than these wait, without crash suspects. Reads only, and little.
    async fn has_waiting_beside(&self, organizations: &[OrganizationId]) -> Result<bool>;
    /// Since when the oldest waiting photo has waited, without crash suspects; `None` when none waits.
    async fn waiting_since(&self) -> Result<Option<OffsetDateTime>>;
}

/// The full key of a photo.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct PhotoRef {
    /// Its album.
    pub album: AlbumId,
    /// Its id.
    pub photo: PhotoId,
}

/// Selfies.
#[async_trait]
pub trait Probes: Send + Sync {
    /// Creates a selfie that waits for its upload.
    async fn create(&self, album: AlbumId, ttl: Duration) -> Result<Probe>;
    /// Returns a selfie of the album; `NotFound` once it has expired.
    async fn get(&self, album: AlbumId, id: ProbeId) -> Result<Probe>;
    /// Stores the embedding of a selfie, or why it has none. `NotFound` once it has expired.
    async fn set_outcome(&self, id: ProbeId, outcome: ProbeOutcome) -> Result<()>;
    /// Returns some of the expired selfies after a position, longest expired first; none at the end. They are returned
    /// again until they are removed: the caller deletes their objects first, so that no object outlives the row that
    /// names it.
    async fn list_expired(&self, after: Option<ExpiredPosition>) -> Result<Vec<Probe>>;
    /// Deletes selfies; unknown ids are ignored.
    async fn remove(&self, probes: &[ProbeId]) -> Result<()>;
}

/// The embeddings of albums in memory: a cache that follows the database by change number.
#[async_trait]
pub trait FaceIndex: Send + Sync {
    /// Catches up with the database, then returns the photos whose most similar face has a cosine of at least
    /// `min_cosine` to the probe (same model only): most similar first, at most `k`, one hit per photo.
    async fn nearest(
        &self,
        album: AlbumId,
        probe: &Embedding,
        k: usize,
        min_cosine: f32,
    ) -> Result<Vec<FaceHit>>;
    /// Catches up with the database, then returns the photos of the person on a selfie, best first: see
    /// [`crate::search::selfie`]. The answer depends on what the database has and on nothing else.
    async fn find_person(&self, album: AlbumId, query: SelfieQuery) -> Result<Vec<SelfieHit>>;
}

/// A bib search.
#[derive(Clone, Debug)]
pub struct TextQuery {
    /// Upper-case letters and digits only, at least one: see [`crate::search::variants::normalise_bib`].
    pub text: String,
    /// No fuzzy matches.
    pub exact: bool,
}

/// How a text matches a query.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TextMatch {
    /// It equals the query.
    Exact,
    /// It differs in characters that look alike: 0/O, 1/I/7, 5/S, 8/B, 6/G.
    Confusable,
    /// It lacks a character at one end: cut off by the frame or a fold.
    Truncated,
    /// It is one edit away.
    OneEdit,
}

/// A photo in which a bib was found.
#[derive(Clone, Debug, PartialEq)]
pub struct TextHit {
    /// The photo.
    pub photo: PhotoId,
    /// The text in the photo.
    pub text: String,
    /// Where in the photo.
    pub bounding_box: BoundingBox,
    /// 0 to 100: from the reader's score and the kind of match.
    pub confidence: f64,
    /// How it matches.
    pub match_kind: TextMatch,
}

/// Bib search.
#[async_trait]
pub trait Texts: Send + Sync {
    /// Returns the photos that match: exact matches first, then by falling confidence, one hit per photo.
    async fn search(&self, album: AlbumId, query: &TextQuery) -> Result<Vec<TextHit>>;
}
