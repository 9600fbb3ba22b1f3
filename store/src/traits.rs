//! What the rest of the house may ask of the store, a trait per noun. Backends implement them and run
//! the exported suite; nobody outside this crate sees SQL or an object store.

use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use bytes::Bytes;
use time::OffsetDateTime;
use url::Url;

use crate::error::StoreError;
use crate::model::album::{Album, AlbumChange, AlbumConfig, AlbumPage, AlbumQuery, NewAlbum, Tenant};
use crate::model::ids::{AlbumId, KeyId, LeaseId, OrganizationId, PhotoId, ProbeId};
use crate::model::key::{Key, KeyDigest, NewKey};
use crate::model::object_key::ObjectKey;
use crate::model::photo::{
    BoundingBox, DetectedFace, DetectedText, Embedding, FailureReason, NewPhoto, Photo, PhotoPage,
    PhotoQuery, PhotoSize, StateCounts,
};

/// What every call answers.
pub type Result<T> = std::result::Result<T, StoreError>;

/// Organizations and their keys.
#[async_trait]
pub trait Keys: Send + Sync {
    /// The organization of this name, made when there is none.
    async fn get_or_create_organization(&self, name: &str) -> Result<OrganizationId>;
    /// Keeps a key.
    async fn create(&self, key: NewKey) -> Result<Key>;
    /// The key of this digest, revoked and expired ones too.
    async fn find(&self, digest: &KeyDigest) -> Result<Option<Key>>;
    /// Notes that a key was used; at most one write a minute and key.
    async fn touch(&self, id: KeyId, at: OffsetDateTime) -> Result<()>;
    /// All keys, oldest first.
    async fn list(&self) -> Result<Vec<Key>>;
    /// Refuses a key from now on; idempotent. `NotFound` when there is none.
    async fn revoke(&self, id: KeyId) -> Result<()>;
}

/// Albums. Another tenant's album is `NotFound`.
#[async_trait]
pub trait Albums: Send + Sync {
    /// Makes one.
    async fn create(&self, album: NewAlbum) -> Result<Album>;
    /// One album.
    async fn get(&self, tenant: &Tenant, id: AlbumId) -> Result<Album>;
    /// Changes fields of it. `Conflict` where it is not as the change takes it to be.
    async fn update(&self, tenant: &Tenant, id: AlbumId, change: AlbumChange) -> Result<Album>;
    /// Takes it out of the world: from the moment this returns it is `NotFound` for everybody but `close` and `delete`,
    /// no photo of it is leased or confirmed, and what a worker has of it ends as `Finish::Gone`. Its rows are still
    /// there. Idempotent, until they are removed.
    async fn close(&self, tenant: &Tenant, id: AlbumId) -> Result<()>;
    /// Closes it, then removes its rows (photos, faces, texts, changes, probes) in steps; the caller removes the objects
    /// first and after. A call that broke off is finished by calling again.
    async fn delete(&self, tenant: &Tenant, id: AlbumId) -> Result<()>;
    /// Albums that were closed before `before` and whose rows are still there, some of them.
    async fn list_closed(&self, before: OffsetDateTime) -> Result<Vec<(Tenant, AlbumId)>>;
    /// A page of them, newest first.
    async fn list(&self, tenant: &Tenant, query: AlbumQuery) -> Result<AlbumPage>;
}

/// Photos of an album. The caller has checked, by `Albums::get`, that the album is the tenant's.
#[async_trait]
pub trait Photos: Send + Sync {
    /// Expects photos, one id each, in order; one transaction.
    async fn create(&self, album: AlbumId, photos: Vec<NewPhoto>) -> Result<Vec<PhotoId>>;
    /// One photo.
    async fn get(&self, album: AlbumId, id: PhotoId) -> Result<Photo>;
    /// Those of `ids` that are in the album, in any order.
    async fn get_many(&self, album: AlbumId, ids: &[PhotoId]) -> Result<Vec<Photo>>;
    /// What was seen in one, in the order it was seen; empty until it is ready.
    async fn get_detections(
        &self,
        album: AlbumId,
        id: PhotoId,
    ) -> Result<(Vec<DetectedFace>, Vec<DetectedText>)>;
    /// A page of them, oldest first.
    async fn list(&self, album: AlbumId, query: PhotoQuery) -> Result<PhotoPage>;
    /// Removes its rows and notes the change for face indexes; the caller removes the objects.
    async fn delete(&self, album: AlbumId, id: PhotoId) -> Result<()>;
    /// Photos by state.
    async fn counts(&self, album: AlbumId) -> Result<StateCounts>;
    /// How many photos of the album became ready or failed within the last `window`, by the clock that noted when they
    /// did: the rate of `albums/progress`.
    async fn settled_within(&self, album: AlbumId, window: Duration) -> Result<u64>;
}

/// A photo that a worker has for a while.
#[derive(Clone, Debug)]
pub struct Lease {
    /// Fences `finish` and `fail`: once the lease passes to another worker, this one is refused.
    pub id: LeaseId,
    /// The photo.
    pub photo: PhotoId,
    /// Its album.
    pub album: AlbumId,
    /// Whose it is.
    pub organization: OrganizationId,
    /// How its album wants it read.
    pub config: Arc<AlbumConfig>,
    /// 1 for the first lease that was not given back.
    pub attempt: u32,
    /// Since when it has waited: its confirmation, or the last time that it was put back in the queue.
    pub confirmed_at: OffsetDateTime,
}

/// What to lease.
#[derive(Clone, Copy, Debug)]
pub struct LeaseRequest {
    /// At most this many.
    pub limit: usize,
    /// For this long, unless renewed.
    pub ttl: Duration,
    /// Fresh photos, or one suspect: a photo whose earlier lease ended without a word.
    pub suspects: bool,
}

/// Everything read from a photo.
#[derive(Clone, Debug)]
pub struct PhotoResults {
    /// Under which lease.
    pub lease: Lease,
    /// Of the upright photo.
    pub size: PhotoSize,
    /// EXIF time.
    pub taken_at: Option<OffsetDateTime>,
    /// EXIF camera.
    pub camera: Option<String>,
    /// Faces, largest first.
    pub faces: Vec<DetectedFace>,
    /// Texts.
    pub texts: Vec<DetectedText>,
}

/// What became of a photo handed to `finish`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Finish {
    /// Its results stand.
    Done,
    /// The lease had passed to another worker: nothing was written.
    Superseded,
    /// The photo was deleted: nothing was written, and nobody else will want what the caller stored for it.
    Gone,
}

/// The work queue. The database is the truth; delivery is at least once, effects exactly once.
#[async_trait]
pub trait Queue: Send + Sync {
    /// Queues photos that wait for their upload; idempotent, durable when it returns. Unknown ids are left out
    /// of the answer; photos already confirmed are in it.
    async fn confirm(&self, album: AlbumId, photos: &[PhotoId]) -> Result<Vec<PhotoId>>;
    /// Puts one failed photo back in the queue with a clean count. `Conflict` when it is not failed.
    async fn retry(&self, album: AlbumId, photo: PhotoId) -> Result<()>;
    /// Puts every ready or failed photo of an album back in the queue; answers how many.
    async fn reprocess(&self, album: AlbumId) -> Result<u64>;
    /// Takes photos; the attempt is counted here and committed. Photos at their attempt limit become failed
    /// (`ProcessingCrashed`) instead.
    async fn lease(&self, request: LeaseRequest) -> Result<Vec<Lease>>;
    /// Keeps leases alive; answers those that are still held.
    async fn renew(&self, leases: &[LeaseId], ttl: Duration) -> Result<Vec<LeaseId>>;
    /// Writes faces, texts, state and a new change number for all of them in one transaction, fenced by lease.
    /// Idempotent: deletes what an earlier attempt wrote. One answer per photo, in order.
    async fn finish(&self, photos: Vec<PhotoResults>) -> Result<Vec<Finish>>;
    /// Ends a photo for good.
    async fn fail(&self, lease: &Lease, reason: FailureReason, detail: &str) -> Result<Finish>;
    /// Gives photos back unharmed: the attempt is not counted.
    async fn release(&self, leases: &[LeaseId]) -> Result<()>;
    /// Whether photos can be leased now: the rows can be written, and the queue beside them answers where there is one.
    async fn check(&self) -> Result<()>;
    /// How many photos wait, over all albums.
    async fn depth(&self) -> Result<u64>;
    /// Since when the photo that has waited longest waits, suspects left out; `None` when none waits.
    async fn waiting_since(&self) -> Result<Option<OffsetDateTime>>;
}

/// A photo by its whole key.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct PhotoRef {
    /// Its album.
    pub album: AlbumId,
    /// Itself.
    pub photo: PhotoId,
}

/// A queued photo that no message names yet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct UnpublishedPhoto {
    /// The photo.
    pub photo: PhotoRef,
    /// When it was queued, microseconds; with the photo it names this turn of it.
    pub confirmed_at: i64,
}

/// What became of a photo that a message named.
#[derive(Clone, Debug)]
pub enum Named {
    /// The caller has it now.
    Leased(Lease),
    /// It is not to be worked on any more: ready, failed or gone. Its message has done its work.
    Obsolete,
    /// Another worker has it. Its message is still needed: that worker may die.
    HeldElsewhere,
    /// An earlier lease of it ended without a word. It waits to be leased alone, as a suspect, and not by its name.
    Suspect,
}

/// What a message queue asks of the rows whose photos it carries the names of. The rows stay the truth: messages may be
/// lost, doubled or late, and every photo that was confirmed is still worked on once.
#[async_trait]
pub trait OutboxQueue: Queue {
    /// Queued photos not yet published, oldest first within an album, fairly over albums (a huge album does not starve a
    /// small one). Fewer than `limit` only when there are no more, or more albums than one call looks at.
    async fn unpublished(&self, limit: usize) -> Result<Vec<UnpublishedPhoto>>;
    /// Notes that messages name them; a photo queued again meanwhile (another `confirmed_at`) stays unpublished, and so
    /// does one whose album was closed.
    async fn mark_published(&self, photos: &[UnpublishedPhoto]) -> Result<()>;
    /// Leases exactly these, where they wait for their first lease; the attempt is counted and committed here. One whose
    /// lease lapsed is no photo to take beside others, and stays as it is; at its attempt limit it becomes failed. One
    /// answer a photo, in order.
    async fn lease_named(&self, photos: &[PhotoRef], ttl: Duration) -> Result<Vec<Named>>;
    /// Photos published before `before` (microseconds) that wait or whose lease lapsed: they become unpublished, and
    /// those whose lease lapsed wait again, as suspects. Answers how many.
    async fn republish(&self, before: i64) -> Result<u64>;
}

/// A runner's selfie while it lives.
#[derive(Clone, Debug, PartialEq)]
pub struct Probe {
    /// The `imageId`.
    pub id: ProbeId,
    /// The album it searches.
    pub album: AlbumId,
    /// Whose the album is: with it the bytes' object can be named.
    pub organization: OrganizationId,
    /// From when on it is unknown.
    pub expires_at: OffsetDateTime,
    /// Its vector, once made.
    pub embedding: Option<Embedding>,
}

/// Selfies.
#[async_trait]
pub trait Probes: Send + Sync {
    /// Expects a selfie.
    async fn create(&self, album: AlbumId, ttl: Duration) -> Result<Probe>;
    /// One that has not expired and belongs to the album.
    async fn get(&self, album: AlbumId, id: ProbeId) -> Result<Probe>;
    /// Keeps its vector.
    async fn set_embedding(&self, id: ProbeId, embedding: Embedding) -> Result<()>;
    /// Some of the expired ones, longest expired first. They stay until they are removed: what is left of their bytes
    /// goes first, so that no bytes are left that nobody knows of.
    async fn list_expired(&self) -> Result<Vec<Probe>>;
    /// Removes these.
    async fn remove(&self, probes: &[ProbeId]) -> Result<()>;
}

/// The bytes of photos, previews, thumbnails and selfies.
#[async_trait]
pub trait Blobs: Send + Sync {
    /// The whole object. `NotFound`; `TooLarge` above `at_most` bytes.
    async fn read(&self, key: &ObjectKey, at_most: u64) -> Result<Bytes>;
    /// Writes or replaces an object; durable when it returns.
    async fn write(&self, key: &ObjectKey, content_type: &str, bytes: Bytes) -> Result<()>;
    /// A URL that accepts one HTTP PUT of this content type and at most this size, for `ttl`.
    async fn upload_url(&self, key: &ObjectKey, upload: UploadConditions<'_>) -> Result<Url>;
    /// A URL that answers HTTP GET for `ttl`.
    async fn download_url(&self, key: &ObjectKey, ttl: Duration) -> Result<Url>;
    /// The object's size in bytes; `None` when it is not there.
    async fn head(&self, key: &ObjectKey) -> Result<Option<u64>>;
    /// Removes an object; no error when it is not there.
    async fn delete(&self, key: &ObjectKey) -> Result<()>;
    /// Removes every object of an album.
    async fn delete_album(&self, organization: OrganizationId, album: AlbumId) -> Result<()>;
}

/// The content type of an upload that may be any image, for a sender who does not know the type yet. Local files hold
/// the sender to it; a presigned URL binds one type exactly or none at all, and then takes any.
pub const ANY_IMAGE: &str = "image/*";

/// What an upload URL is bound to.
#[derive(Clone, Copy, Debug)]
pub struct UploadConditions<'a> {
    /// The `Content-Type` that the PUT must carry, or [`ANY_IMAGE`].
    pub content_type: &'a str,
    /// The largest body, bytes. A presigned URL cannot be bound to it: whoever takes the upload for done looks at its
    /// size again.
    pub max_bytes: u64,
    /// How long it holds; a week at most.
    pub ttl: Duration,
}

/// A photo in which a probe's face was found.
#[derive(Clone, Debug, PartialEq)]
pub struct FaceHit {
    /// The photo.
    pub photo: PhotoId,
    /// Cosine to the probe, -1 to 1.
    pub cosine: f32,
    /// The best face of that photo.
    pub bounding_box: BoundingBox,
}

/// Vectors of albums in memory: a cache that follows the rows by change number.
#[async_trait]
pub trait FaceIndex: Send + Sync {
    /// Catches up with the rows, then answers the photos whose best face is at least `at_least` close to the probe
    /// (same model only), best first, at most `k`, one hit a photo.
    #[expect(clippy::too_many_arguments, reason = "each is of another type and needed by every call")]
    async fn nearest(
        &self,
        album: AlbumId,
        probe: &Embedding,
        k: usize,
        at_least: f32,
    ) -> Result<Vec<FaceHit>>;
}

/// What a runner typed.
#[derive(Clone, Debug)]
pub struct TextQuery {
    /// Trimmed, upper-cased, letters and digits only; at least one.
    pub text: String,
    /// No fuzzy matches.
    pub exact: bool,
}

/// How a text was found.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TextMatch {
    /// Read as asked.
    Exact,
    /// Characters that look alike: 0/O, 1/I/7, 5/S, 8/B, 6/G.
    Confusable,
    /// A digit at an end is missing: cut by the frame or a fold.
    Cut,
    /// One edit away.
    OneEdit,
}

/// A photo in which a bib was found.
#[derive(Clone, Debug, PartialEq)]
pub struct TextHit {
    /// The photo.
    pub photo: PhotoId,
    /// What was read.
    pub text: String,
    /// Where.
    pub bounding_box: BoundingBox,
    /// 0 to 100: from the reader's score and the edit made.
    pub confidence: f64,
    /// How it was found.
    pub match_kind: TextMatch,
}

/// Bibs of albums.
#[async_trait]
pub trait Texts: Send + Sync {
    /// The photos in which the text was read: exact matches first, then by falling confidence, one hit a photo.
    async fn search(&self, album: AlbumId, query: &TextQuery) -> Result<Vec<TextHit>>;
}
