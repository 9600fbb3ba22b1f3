//! Erasures: what somebody asked to be removed, what was removed for them, and the receipt that says so.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};
use time::OffsetDateTime;

use crate::model::album::{RetentionConfig, Tenant};
use crate::model::ids::{AlbumId, ErasureId, KeyId, OrganizationId, PhotoId, ReportId};
use crate::model::photo::{BoundingBox, Embedding};

/// What an erasure is about.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ErasureKind {
    /// The faces of one person in an album.
    Face,
    /// A bib of an album.
    Bib,
    /// A photo.
    Photo,
    /// An album.
    Album,
}

impl ErasureKind {
    /// Every kind.
    pub const ALL: [Self; 4] = [Self::Face, Self::Bib, Self::Photo, Self::Album];

    /// Its name on the wire and in the database.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Face => "face",
            Self::Bib => "bib",
            Self::Photo => "photo",
            Self::Album => "album",
        }
    }
}

/// How far an erasure has got.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ErasureState {
    /// What no search may find is gone; files, memory and free space are being cleaned.
    Running,
    /// It was looked for everywhere, and nothing was found.
    Done,
}

impl ErasureState {
    /// Every state.
    pub const ALL: [Self; 2] = [Self::Running, Self::Done];

    /// Its name on the wire and in the database.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Running => "running",
            Self::Done => "done",
        }
    }
}

/// A face in a photo.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct FacePlace {
    /// The photo.
    pub photo: PhotoId,
    /// Where in it.
    pub bounding_box: BoundingBox,
}

/// What is to be erased of an album.
#[derive(Clone, Debug)]
pub enum ErasureSubject {
    /// Faces, and the selfies that show the same person.
    Faces {
        /// The faces, those of a search.
        places: Vec<FacePlace>,
        /// What selfies are compared with; `None` when nothing is known of the person but these faces.
        selfie: Option<ComparedSelfie>,
        /// When the search began, by the database's clock, microseconds.
        searched_at: i64,
    },
    /// A bib, wherever it was read.
    Bib {
        /// Upper-case letters and digits.
        bib: String,
        /// The faces above it too.
        with_faces: bool,
    },
}

/// A selfie that was searched with.
#[derive(Clone, Debug)]
pub struct ComparedSelfie {
    /// Its vector.
    pub embedding: Embedding,
    /// Selfies with at least this cosine to it go too.
    pub min_cosine: f32,
}

/// What becomes of what an organization has used, when it is erased.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LedgerFate {
    /// Sums by day and operation stay, without ids.
    KeepNumbers,
    /// It goes too.
    Delete,
}

/// What becomes of the photos in which something is erased.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PhotoFate {
    /// They stay; what is erased in them is not found any more.
    Keep,
    /// Those in which nobody else can be found are deleted.
    Delete,
}

/// What to erase.
#[derive(Clone, Debug)]
pub struct NewErasure {
    /// The owner of the album.
    pub tenant: Tenant,
    /// The album.
    pub album: AlbumId,
    /// The key that asks.
    pub asked_by: KeyId,
    /// What.
    pub subject: ErasureSubject,
    /// And the photos.
    pub photos: PhotoFate,
    /// What a visitor said who asked for it: a report of the album, which goes with it, and those of the same request.
    pub report: Option<ReportId>,
}

/// What an erasure would remove now.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ErasurePreview {
    /// Faces that would lose their vector.
    pub faces: u64,
    /// Texts that would no longer say what was read.
    pub texts: u64,
    /// Selfies that would be deleted.
    pub probes: u64,
    /// The photos in which these are.
    pub photos: Vec<PhotoId>,
    /// Those of them that would be deleted.
    pub deleted_photos: Vec<PhotoId>,
    /// Photos in which nobody was looked for, because they are not read yet.
    pub unread_photos: u64,
}

/// How much was removed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct RemovedCounts {
    /// Faces whose vector or whose row was removed.
    pub faces: u64,
    /// Vectors of faces.
    pub vectors: u64,
    /// Texts.
    pub texts: u64,
    /// Photos.
    pub photos: u64,
    /// Selfies.
    pub probes: u64,
    /// Objects of the storage.
    pub objects: u64,
    /// Their bytes.
    pub bytes: u64,
}

/// Something that stays, and why.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Kept {
    /// What.
    pub what: String,
    /// Why.
    pub why: String,
}

/// What a scan found in one place.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ScannedStore {
    /// The place.
    pub store: String,
    /// How many rows, objects or processes were looked at.
    pub looked: u64,
    /// How many of them still had what was erased.
    pub left: u64,
}

/// What a scan found everywhere.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct ErasureScan {
    /// When it ended.
    #[serde(with = "time::serde::rfc3339")]
    pub finished_at: OffsetDateTime,
    /// Place by place.
    pub stores: Vec<ScannedStore>,
    /// The sum over all places.
    pub left: u64,
}

/// What a receipt is about.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ReceiptSubject {
    /// The kind. No bib, no name and no vector is in a receipt.
    pub kind: ErasureKind,
}

/// Until when backups may have what was erased.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct BackupNotice {
    /// Null: backups are not covered.
    #[serde(with = "time::serde::rfc3339::option")]
    pub until: Option<OffsetDateTime>,
}

/// The proof of an erasure.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Receipt {
    /// The id of the erasure.
    pub receipt_id: ErasureId,
    /// When it was signed.
    #[serde(with = "time::serde::rfc3339")]
    pub issued_at: OffsetDateTime,
    /// The owner of the album.
    pub organization_id: OrganizationId,
    /// The album.
    pub album_id: AlbumId,
    /// What it is about.
    pub subject: ReceiptSubject,
    /// What was removed.
    pub removed: RemovedCounts,
    /// What stays.
    pub kept: Vec<Kept>,
    /// That nothing was found afterwards.
    pub scan: ErasureScan,
    /// Backups.
    pub backups: BackupNotice,
    /// All of this as a compact JWS (RFC 7515), signed by Ed25519; empty while it is being signed.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub jws: String,
}

/// The proof that an organization is gone, beside the receipts of its albums. It is given to whoever asked and kept nowhere.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct OrganizationReceipt {
    /// An id of its own.
    pub receipt_id: ErasureId,
    /// When it was signed.
    #[serde(with = "time::serde::rfc3339")]
    pub issued_at: OffsetDateTime,
    /// The organization.
    pub organization_id: OrganizationId,
    /// What it is about.
    pub subject: OrganizationSubject,
    /// How many rows and objects were removed, by table, beside those of its albums.
    pub removed: BTreeMap<&'static str, u64>,
    /// What stays.
    pub kept: Vec<Kept>,
    /// That nothing was found afterwards.
    pub scan: ErasureScan,
    /// Backups.
    pub backups: BackupNotice,
    /// All of this as a compact JWS (RFC 7515), signed by Ed25519; empty while it is being signed.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub jws: String,
}

/// What a receipt of an organization is about.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct OrganizationSubject {
    /// `organization`.
    pub kind: &'static str,
}

/// An erasure.
#[derive(Clone, Debug, PartialEq)]
pub struct Erasure {
    /// Its id.
    pub id: ErasureId,
    /// The owner of the album.
    pub tenant: Tenant,
    /// The album.
    pub album: AlbumId,
    /// What it is about.
    pub kind: ErasureKind,
    /// How far it has got.
    pub state: ErasureState,
    /// The key that asked.
    pub asked_by: KeyId,
    /// When it was asked.
    pub asked_at: OffsetDateTime,
    /// When it was done.
    pub finished_at: Option<OffsetDateTime>,
    /// What was removed so far.
    pub removed: RemovedCounts,
    /// Exactly when it is done.
    pub receipt: Option<Receipt>,
}

/// Which erasures to list.
#[derive(Clone, Debug)]
pub struct ErasureQuery {
    /// Only those before (older than) this one.
    pub before: Option<ErasureId>,
    /// Only those of this album.
    pub album: Option<AlbumId>,
    /// At most this many.
    pub limit: u32,
}

/// One page, newest first.
#[derive(Clone, Debug)]
pub struct ErasurePage {
    /// The erasures.
    pub erasures: Vec<Erasure>,
    /// Where the next page begins, when there is one.
    pub next: Option<ErasureId>,
    /// How many there are in all.
    pub total: u64,
}

/// A public key with which receipts are checked.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ReceiptKey {
    /// Its thumbprint (RFC 7638), the `kid` of receipts.
    pub id: String,
    /// Ed25519.
    pub public_key: Vec<u8>,
}

/// What of an album is erased because of its age.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ExpiringPart {
    /// The vectors of its faces.
    Faces,
    /// Its photos, and the album with them.
    Photos,
}

impl ExpiringPart {
    /// Every part.
    pub const ALL: [Self; 2] = [Self::Faces, Self::Photos];

    /// Its name in events.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Faces => "faces",
            Self::Photos => "photos",
        }
    }
}

/// An album and its age.
#[derive(Clone, Debug, PartialEq)]
pub struct AgeingAlbum {
    /// Its id.
    pub id: AlbumId,
    /// Its owner.
    pub tenant: Tenant,
    /// Whether faces are recognised in it.
    pub has_faces: bool,
    /// For how long what is kept.
    pub retention: RetentionConfig,
    /// From when its age counts: at most an hour after a photo of it was last confirmed; when it was created if none was.
    pub counted_from: OffsetDateTime,
    /// Whether photos of it wait or are being processed.
    pub is_busy: bool,
    /// Of which end of its faces its owner was told; 1970 for none.
    pub told_faces_expire_at: OffsetDateTime,
    /// Of which end of its photos.
    pub told_photos_expire_at: OffsetDateTime,
}

impl AgeingAlbum {
    /// Returns what of it is going to be erased and when, photos first. `limit` is for how long the operator keeps anything.
    #[must_use]
    pub fn find_expiring(&self, limit: RetentionConfig) -> Vec<(ExpiringPart, OffsetDateTime)> {
        let retention = self.retention.at_most(limit);
        let end_of = |days: u32| self.counted_from + time::Duration::days(i64::from(days));
        let photos = retention.photos_days.map(|days| (ExpiringPart::Photos, end_of(days)));
        let faces =
            retention.faces_days.filter(|_| self.has_faces).map(|days| (ExpiringPart::Faces, end_of(days)));
        photos.into_iter().chain(faces).collect()
    }
}
