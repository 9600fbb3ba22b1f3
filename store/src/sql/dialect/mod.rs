//! Writes to many photos in one transaction, one statement for all of them, implemented per database: [`postgres`] has
//! arrays and locks rows, [`sqlite`] has neither.
//!
//! The callers decide which photos may be changed, once for both databases.

pub(crate) mod postgres;
pub(crate) mod sqlite;
mod sqlite_detections;

use std::collections::{HashMap, HashSet};

use async_trait::async_trait;
use sqlx::FromRow;

use crate::error::StoreError;
use crate::model::ids::{AlbumId, LeaseId, PhotoId};
use crate::model::photo::{NewPhoto, PhotoState};
use crate::search::faces::Change;
use crate::sql::changes::ChangeKind;
use crate::sql::credits::ledger::Holds;
use crate::sql::database::Transaction;
use crate::sql::row_types::parse_photo_state;
use crate::traits::{PhotoRef, PhotoResults, Result, UnpublishedPhoto};

/// When a lease begins and when it expires, microseconds.
#[derive(Clone, Copy)]
pub(crate) struct LeaseWindow {
    pub(crate) now: i64,
    pub(crate) until: i64,
}

/// A photo that is about to be leased.
#[derive(Clone, Copy)]
pub(crate) struct LeaseCandidate {
    pub(crate) photo: PhotoRef,
    pub(crate) attempts: i64,
}

/// The queue columns of a photo's row.
pub(crate) struct PhotoRowState {
    pub(crate) state: PhotoState,
    pub(crate) attempts: i64,
    /// The running lease.
    pub(crate) lease: Option<LeaseId>,
    /// When the lease expires, microseconds; 0 without one.
    pub(crate) lease_until: i64,
    /// What is held for it, thousandths of a credit.
    pub(crate) held: i64,
    /// Whether it was paid for.
    pub(crate) is_charged: bool,
    /// When it was queued, or asked for again while it is processed, microseconds. That of a lease is as it was then.
    pub(crate) confirmed_at: Option<i64>,
}

#[derive(FromRow)]
struct PhotoStateRow {
    album: AlbumId,
    id: PhotoId,
    state: String,
    attempts: i64,
    lease: Option<LeaseId>,
    lease_until: i64,
    held: i64,
    charged_at: Option<i64>,
    confirmed_at: Option<i64>,
}

impl PhotoStateRow {
    fn into_state(self) -> Result<(PhotoRef, PhotoRowState)> {
        let Self { album, id, state, attempts, lease, lease_until, held, charged_at, confirmed_at } = self;
        let state = parse_photo_state(&state)?;
        let is_charged = charged_at.is_some();
        let row = PhotoRowState { state, attempts, lease, lease_until, held, is_charged, confirmed_at };
        Ok((PhotoRef { album, photo: id }, row))
    }
}

/// What [`QueueWrites::queue_photos`] sets, except for the values of each photo. `$now` is the parameter of the time,
/// `$price` that of what is held for a photo that is not paid. None of the photos has pictures.
macro_rules! queue_uploaded {
    ($now:literal, $price:literal, $rest:expr) => {
        concat!(
            "update photo set state = 'queued', confirmed_at = ",
            $now,
            ", updated_at = ",
            $now,
            ", published_at = null, attempts = 0, failure = null, failure_detail = null, settled_at = null, \
             width = null, height = null, \
             organization = (select organization from album where album.id = photo.album), \
             held = case when charged_at is null then ",
            $price,
            " else 0 end, ",
            $rest
        )
    };
}
use queue_uploaded;

fn photo_ref(results: &PhotoResults) -> PhotoRef {
    PhotoRef { album: results.lease.album, photo: results.lease.photo }
}

fn album_not_found(album: AlbumId) -> StoreError {
    StoreError::not_found(format!("album {album}"))
}

/// Writes to many photos in one transaction. Photos that a method changes must have been locked by
/// [`Self::lock_photos`] in the same transaction. Times are microseconds.
#[async_trait]
pub(crate) trait QueueWrites: Send {
    /// Locks photos until the transaction ends and returns their states, without photos that do not exist or whose album
    /// is closed.
    async fn lock_photos(&mut self, photos: &[PhotoRef]) -> Result<HashMap<PhotoRef, PhotoRowState>>;
    /// Inserts photos that wait for their upload. `NotFound` when the album does not exist or is closed; it cannot be
    /// closed until the transaction ends.
    async fn insert_photos(
        &mut self,
        album: AlbumId,
        photos: Vec<(PhotoId, NewPhoto)>,
        now: i64,
    ) -> Result<()>;
    /// Queues locked photos that wait for their upload or have failed, with the bytes of their uploads where these are
    /// known, and holds the price of each that is not paid.
    async fn queue_photos(
        &mut self,
        uploads: &[(PhotoRef, Option<i64>)],
        holds: &Holds,
        now: i64,
    ) -> Result<()>;
    /// Assigns leases to locked photos and counts the attempts; returns when each photo was queued.
    async fn assign_leases(
        &mut self,
        photos: &[(PhotoRef, LeaseId)],
        window: LeaseWindow,
    ) -> Result<HashMap<LeaseId, i64>>;
    /// Extends running leases; returns those that were running.
    async fn renew_leases(&mut self, leases: &[LeaseId], until: i64) -> Result<HashSet<LeaseId>>;
    /// Requeues the photos of running leases without counting the attempt. Sets `confirmed_at` one microsecond later, so
    /// that they keep their places and a message queue does not take the next message for a duplicate of the last one.
    async fn release_leases(&mut self, leases: &[LeaseId], now: i64) -> Result<()>;
    /// Makes locked photos ready, and paid, with nothing held for them.
    async fn mark_ready(&mut self, photos: &[&PhotoResults], now: i64) -> Result<()>;
    /// Deletes the faces and texts of locked photos.
    async fn delete_detections(&mut self, photos: &[PhotoRef]) -> Result<()>;
    /// Inserts the faces and texts of photos.
    async fn insert_detections(&mut self, photos: &[&PhotoResults]) -> Result<()>;
    /// Records that these photos belong to a change of their album.
    async fn record_change(
        &mut self,
        album: AlbumId,
        change: Change,
        photos: &[PhotoId],
        kind: ChangeKind,
    ) -> Result<()>;
    /// Records that messages were published for these stays in the queue, except for photos of closed albums.
    async fn mark_published(&mut self, photos: &[UnpublishedPhoto], now: i64) -> Result<()>;
}

impl Transaction {
    /// The implementation for this transaction's database.
    pub(crate) fn queue_writes(&mut self) -> &mut dyn QueueWrites {
        match self {
            Self::Sqlite(transaction) => &mut **transaction,
            Self::Postgres(connection) => connection,
        }
    }
}
