//! Responses of `faces/erase`, `people/erase` and `erasures/*`.

use photofinish_store::model::erasure::{self as stored, ErasureKind, ErasureState, Kept, ScannedStore};
use serde::Serialize;
use time::OffsetDateTime;
use utoipa::ToSchema;
use uuid::Uuid;

use super::{Output, sample};
use crate::wire::cursor::encode_id;
use crate::wire::visitor::PublicErasure;

/// What was removed.
#[derive(Clone, Copy, Serialize, ToSchema)]
pub(crate) struct RemovedCounts {
    /// Faces that lost their vector, or were deleted with their photo.
    #[schema(value_type = f64, minimum = 0)]
    faces: u64,
    #[schema(value_type = f64, minimum = 0)]
    vectors: u64,
    #[schema(value_type = f64, minimum = 0)]
    texts: u64,
    #[schema(value_type = f64, minimum = 0)]
    photos: u64,
    /// Selfies.
    #[schema(value_type = f64, minimum = 0)]
    probes: u64,
    /// Objects of the storage: originals, previews, thumbnails, selfies.
    #[schema(value_type = f64, minimum = 0)]
    objects: u64,
    #[schema(value_type = f64, minimum = 0)]
    bytes: u64,
}

/// Something that stays.
#[derive(Clone, Serialize, ToSchema)]
pub(crate) struct KeptThing {
    what: String,
    why: String,
}

/// What a scan found in one place.
#[derive(Clone, Serialize, ToSchema)]
pub(crate) struct StoreScan {
    /// `rows`, `objects`, `face indexes`, `message queue` where there is one and photos are deleted that were waiting or being
    /// processed, and `write-ahead log` or `dead rows`, the last two in receipts alone; may grow.
    #[schema(example = "rows")]
    store: String,
    #[schema(value_type = f64, minimum = 0)]
    looked: u64,
    #[schema(value_type = f64, minimum = 0)]
    left: u64,
}

/// A search for what was erased.
#[derive(Clone, Serialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub(crate) struct Scan {
    #[serde(with = "time::serde::rfc3339")]
    finished_at: OffsetDateTime,
    stores: Vec<StoreScan>,
    /// The sum over all stores: 0 in every receipt.
    #[schema(value_type = f64, minimum = 0)]
    left: u64,
}

/// What an erasure is about.
#[derive(Clone, Copy, Serialize, ToSchema)]
pub(crate) struct Subject {
    /// `face`, `bib`, `photo` or `album`; may grow.
    #[schema(example = "face")]
    kind: &'static str,
}

/// Backups, which the service cannot erase.
#[derive(Clone, Copy, Serialize, ToSchema)]
pub(crate) struct Backups {
    /// Until when backups may contain it; null if backups are not covered.
    #[schema(required)]
    #[serde(with = "time::serde::rfc3339::option")]
    until: Option<OffsetDateTime>,
}

/// An erasure, and its receipt once it is done.
#[derive(Clone, Serialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub(crate) struct Erasure {
    receipt_id: Uuid,
    /// `running`: searches find it no more, files and memory are being cleaned. `done`: nothing of it was found anywhere.
    #[schema(example = "done")]
    state: &'static str,
    #[serde(with = "time::serde::rfc3339")]
    asked_at: OffsetDateTime,
    /// When the receipt was signed; null while running, as all that follows from here but ids and counts.
    #[schema(required)]
    #[serde(with = "time::serde::rfc3339::option")]
    issued_at: Option<OffsetDateTime>,
    organization_id: Uuid,
    album_id: Uuid,
    subject: Subject,
    removed: RemovedCounts,
    /// What stays, and why.
    kept: Vec<KeptThing>,
    #[schema(required)]
    scan: Option<Scan>,
    #[schema(required)]
    backups: Option<Backups>,
    /// The receipt as a compact JWS (RFC 7515), `alg` `EdDSA`, to be checked with a key of
    /// `/.well-known/photofinish-keys.json`.
    #[schema(required)]
    jws: Option<String>,
}

impl From<stored::RemovedCounts> for RemovedCounts {
    fn from(removed: stored::RemovedCounts) -> Self {
        let stored::RemovedCounts { faces, vectors, texts, photos, probes, objects, bytes } = removed;
        Self { faces, vectors, texts, photos, probes, objects, bytes }
    }
}

impl From<stored::ErasureScan> for Scan {
    fn from(scan: stored::ErasureScan) -> Self {
        let to_wire = |ScannedStore { store, looked, left }| StoreScan { store, looked, left };
        Self {
            finished_at: scan.finished_at,
            stores: scan.stores.into_iter().map(to_wire).collect(),
            left: scan.left,
        }
    }
}

impl From<stored::Erasure> for Erasure {
    fn from(erasure: stored::Erasure) -> Self {
        let (mut issued_at, mut kept, mut scan, mut backups, mut jws) = (None, Vec::new(), None, None, None);
        if let Some(receipt) = erasure.receipt {
            let to_wire = |Kept { what, why }| KeptThing { what, why };
            kept = receipt.kept.into_iter().map(to_wire).collect();
            (issued_at, scan, jws) = (Some(receipt.issued_at), Some(receipt.scan.into()), Some(receipt.jws));
            backups = Some(Backups { until: receipt.backups.until });
        }
        Self {
            receipt_id: erasure.id.0,
            state: erasure.state.as_str(),
            asked_at: erasure.asked_at,
            issued_at,
            organization_id: erasure.tenant.organization.0,
            album_id: erasure.album.0,
            subject: Subject { kind: erasure.kind.as_str() },
            removed: erasure.removed.into(),
            kept,
            scan,
            backups,
            jws,
        }
    }
}

impl Scan {
    fn example() -> Self {
        let store = |store: &str, looked| StoreScan { store: store.to_owned(), looked, left: 0 };
        Self {
            finished_at: sample::TIME,
            stores: vec![store("rows", 31), store("objects", 2960), store("face indexes", 3)],
            left: 0,
        }
    }
}

impl Output for Erasure {
    fn example() -> Self {
        let removed = stored::RemovedCounts {
            faces: 14,
            vectors: 14,
            probes: 1,
            objects: 1,
            bytes: 48_211,
            ..Default::default()
        };
        let kept =
            KeptThing { what: "14 photos".to_owned(), why: "the request was to keep photos".to_owned() };
        Self {
            receipt_id: sample::ERASURE.0,
            state: ErasureState::Done.as_str(),
            asked_at: sample::TIME,
            issued_at: Some(sample::TIME),
            organization_id: sample::ORGANIZATION.0,
            album_id: sample::ALBUM.0,
            subject: Subject { kind: ErasureKind::Face.as_str() },
            removed: removed.into(),
            kept: vec![kept],
            scan: Some(Scan::example()),
            backups: Some(Backups { until: None }),
            jws: Some("eyJhbGciOiJFZERTQSJ9.eyJyZWNlaXB0SWQiOiIifQ.c2lnbmF0dXJl".to_owned()),
        }
    }
}

/// A search for what was erased.
#[derive(Serialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub(crate) struct Verification {
    /// The sum over all stores.
    #[schema(value_type = f64, minimum = 0)]
    left: u64,
    stores: Vec<StoreScan>,
    #[serde(with = "time::serde::rfc3339")]
    checked_at: OffsetDateTime,
}

impl From<stored::ErasureScan> for Verification {
    fn from(scan: stored::ErasureScan) -> Self {
        let Scan { finished_at, stores, left } = scan.into();
        Self { left, stores, checked_at: finished_at }
    }
}

impl Output for Verification {
    fn example() -> Self {
        let Scan { finished_at, stores, left } = Scan::example();
        Self { left, stores, checked_at: finished_at }
    }
}

/// What an erasure would remove.
#[derive(Serialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub(crate) struct Preview {
    /// Always true: nothing was erased.
    dry_run: bool,
    #[schema(value_type = f64, minimum = 0)]
    faces: u64,
    #[schema(value_type = f64, minimum = 0)]
    texts: u64,
    /// Selfies.
    #[schema(value_type = f64, minimum = 0)]
    probes: u64,
    /// The photos in which these are.
    photo_ids: Vec<Uuid>,
    /// Those of them that would be deleted.
    deleted_photo_ids: Vec<Uuid>,
    /// Photos in which nobody was looked for, because they are not read yet.
    #[schema(value_type = f64, minimum = 0)]
    unread_photos: u64,
    /// To be sent back, with the same request and without `dryRun`.
    confirm: String,
    /// Until when it can be.
    #[serde(with = "time::serde::rfc3339")]
    confirm_until: OffsetDateTime,
}

impl Preview {
    pub(crate) fn new(
        preview: stored::ErasurePreview,
        confirm: String,
        confirm_until: OffsetDateTime,
    ) -> Self {
        Self {
            dry_run: true,
            faces: preview.faces,
            texts: preview.texts,
            probes: preview.probes,
            photo_ids: preview.photos.into_iter().map(|photo| photo.0).collect(),
            deleted_photo_ids: preview.deleted_photos.into_iter().map(|photo| photo.0).collect(),
            unread_photos: preview.unread_photos,
            confirm,
            confirm_until,
        }
    }
}

/// An erasure that was asked for.
#[derive(Serialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub(crate) struct BegunErasure {
    /// Always false: something was erased.
    dry_run: bool,
    #[serde(flatten)]
    erasure: Erasure,
}

/// The answer to a request to erase: with `dryRun` what would go, else the erasure.
#[derive(Serialize, ToSchema)]
#[serde(untagged)]
pub(crate) enum ErasureAnswer {
    Preview(Preview),
    Begun(Box<BegunErasure>),
}

impl From<stored::Erasure> for ErasureAnswer {
    fn from(erasure: stored::Erasure) -> Self {
        Self::Begun(Box::new(BegunErasure { dry_run: false, erasure: erasure.into() }))
    }
}

impl From<ErasureAnswer> for PublicErasure {
    fn from(answer: ErasureAnswer) -> Self {
        let (faces, confirm, receipt_id) = match answer {
            ErasureAnswer::Preview(preview) => (preview.faces, Some(preview.confirm), None),
            ErasureAnswer::Begun(begun) => {
                (begun.erasure.removed.faces, None, Some(begun.erasure.receipt_id))
            }
        };
        Self { faces, confirm, receipt_id, is_request: false }
    }
}

impl Output for ErasureAnswer {
    fn example() -> Self {
        Self::Begun(Box::new(BegunErasure { dry_run: false, erasure: Erasure::example() }))
    }
}

/// What a deletion answers.
#[derive(Serialize, ToSchema)]
pub(crate) struct Deletion {
    /// Always true; a failure is an error response.
    #[schema(example = true)]
    success: bool,
    /// What was done, for people.
    message: &'static str,
    /// The receipt, which is running until files and memory are clean: `erasures/get` has it some seconds later.
    receipt: Erasure,
}

impl Deletion {
    pub(crate) fn new(message: &'static str, erasure: stored::Erasure) -> Self {
        Self { success: true, message, receipt: erasure.into() }
    }
}

impl Output for Deletion {
    fn example() -> Self {
        Self { success: true, message: "Photo deleted", receipt: Erasure::example() }
    }
}

/// Erasures, newest first.
#[derive(Serialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub(crate) struct ErasurePage {
    erasures: Vec<Erasure>,
    /// The cursor of the next page; null on the last page.
    #[schema(required)]
    next_cursor: Option<String>,
    /// Number of erasures on all pages.
    #[schema(value_type = f64, minimum = 0)]
    total: u64,
}

impl From<stored::ErasurePage> for ErasurePage {
    fn from(page: stored::ErasurePage) -> Self {
        Self {
            erasures: page.erasures.into_iter().map(Into::into).collect(),
            next_cursor: page.next.map(|id| encode_id(id.0)),
            total: page.total,
        }
    }
}

impl Output for ErasurePage {
    fn example() -> Self {
        Self { erasures: vec![Erasure::example()], next_cursor: None, total: 1 }
    }
}
