//! What is done to many photos in one transaction, in the way of each database: [`one_by_one`] on SQLite, where a
//! statement costs microseconds, [`at_once`] on Postgres, where it costs a round trip.
//!
//! Who may do it, and to which photos, is decided by the callers, once for both.

pub(crate) mod postgres;
pub(crate) mod sqlite;

use std::collections::{HashMap, HashSet};

use async_trait::async_trait;
use sqlx::FromRow;

use super::Transaction;
use crate::error::StoreError;
use crate::model::ids::{AlbumId, LeaseId, PhotoId};
use crate::model::photo::{NewPhoto, PhotoState};
use crate::search::faces::Change;
use crate::sql::row_types::parse_photo_state;
use crate::traits::{PhotoRef, PhotoResults, Result, UnpublishedPhoto};

/// When a lease was taken and when it lapses, microseconds.
#[derive(Clone, Copy)]
pub(crate) struct LeaseWindow {
    pub(crate) now: i64,
    pub(crate) until: i64,
}

/// A photo about to be leased.
#[derive(Clone, Copy)]
pub(crate) struct LeaseCandidate {
    pub(crate) photo: PhotoRef,
    pub(crate) attempts: i64,
}

/// Where a photo is.
pub(crate) struct PhotoRowState {
    pub(crate) state: PhotoState,
    pub(crate) attempts: i64,
    /// The running lease.
    pub(crate) lease: Option<LeaseId>,
    /// When it lapses; 0 without one.
    pub(crate) lease_until: i64,
}

#[derive(FromRow)]
struct PhotoStateRow {
    album: AlbumId,
    id: PhotoId,
    state: String,
    attempts: i64,
    lease: Option<LeaseId>,
    lease_until: i64,
}

impl PhotoStateRow {
    fn into_state(self) -> Result<(PhotoRef, PhotoRowState)> {
        let Self { album, id, state, attempts, lease, lease_until } = self;
        let state = parse_photo_state(&state)?;
        Ok((PhotoRef { album, photo: id }, PhotoRowState { state, attempts, lease, lease_until }))
    }
}

fn album_not_found(album: AlbumId) -> StoreError {
    StoreError::not_found(format!("album {album}"))
}

/// Many photos in one transaction.
#[async_trait]
pub(crate) trait QueueWrites: Send {
    /// Where these photos are; those that do not exist are left out, and those whose album was closed. Nobody else changes
    /// them until the transaction ends.
    async fn lock_photos(&mut self, photos: &[PhotoRef]) -> Result<HashMap<PhotoRef, PhotoRowState>>;
    /// Inserts photos that wait for their upload. `NotFound` without the album, or when it was closed; until the
    /// transaction ends it is not.
    async fn insert_photos(
        &mut self,
        album: AlbumId,
        photos: Vec<(PhotoId, NewPhoto)>,
        now: i64,
    ) -> Result<()>;
    /// Queues photos held that waited for their upload.
    async fn queue_photos(&mut self, photos: &[PhotoRef], now: i64) -> Result<()>;
    /// Gives photos held their leases and counts the attempts; answers when each was queued, microseconds.
    async fn assign_leases(
        &mut self,
        photos: &[(PhotoRef, LeaseId)],
        term: LeaseWindow,
    ) -> Result<HashMap<LeaseId, i64>>;
    /// Keeps running leases alive; answers which of these they are.
    async fn renew_leases(&mut self, leases: &[LeaseId], until: i64) -> Result<HashSet<LeaseId>>;
    /// Puts the photos of running leases back, uncounted, in a turn of its own: a microsecond later than the one before, so
    /// that they keep their places and a message queue does not take the next message of them for the last.
    async fn release_leases(&mut self, leases: &[LeaseId], now: i64) -> Result<()>;
    /// Makes photos held ready.
    async fn mark_ready(&mut self, photos: &[&PhotoResults], now: i64) -> Result<()>;
    /// Removes what an earlier reading saw in photos held; answers whether there were faces.
    async fn delete_detections(&mut self, photos: &[PhotoRef]) -> Result<bool>;
    /// Inserts what was seen.
    async fn insert_detections(&mut self, photos: &[&PhotoResults]) -> Result<()>;
    /// Notes that these photos belong to a change of their album's.
    async fn record_change(&mut self, album: AlbumId, change: Change, photos: &[PhotoId]) -> Result<()>;
    /// Notes that messages name these turns of photos, but for those whose album was closed.
    async fn mark_published(&mut self, photos: &[UnpublishedPhoto], now: i64) -> Result<()>;
}

impl Transaction {
    /// The way of this transaction's database.
    pub(crate) fn queue_writes(&mut self) -> &mut dyn QueueWrites {
        match self {
            Self::Sqlite(transaction) => &mut **transaction,
            Self::Postgres(link) => link,
        }
    }
}
