//! The database's side of a message queue beside it. The types are part of [`crate::traits`].

use std::time::Duration;

use async_trait::async_trait;

use crate::error::StoreError;
use crate::traits::{Lease, PhotoRef, Queue};

type Result<T> = std::result::Result<T, StoreError>;

/// A queued photo for which no message has been published yet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct UnpublishedPhoto {
    /// The photo.
    pub photo: PhotoRef,
    /// When it was queued, microseconds. Distinguishes this stay in the queue from earlier and later ones.
    pub confirmed_at: i64,
}

/// Photos to publish now.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct UnpublishedPhotos {
    /// The photos in the order in which workers should get them.
    pub photos: Vec<UnpublishedPhoto>,
    /// What they cost together, in photos of 24 megapixels without a grid.
    pub cost: u64,
}

/// The answer to a message that names a photo.
#[derive(Clone, Debug)]
pub enum NamedLease {
    /// The caller has leased it.
    Leased(Lease),
    /// It needs no work: it is ready, failed or deleted. Its message can be acknowledged.
    Obsolete,
    /// Another worker has leased it. Its message is still needed: that worker may die.
    HeldElsewhere,
    /// An earlier lease of it expired. It will be leased alone, as a crash suspect, and not by a message.
    CrashSuspect,
}

/// The database's side of a message queue that carries photo ids to workers. The database stays the source of truth:
/// messages may be lost, duplicated or late, and every confirmed photo is still processed once.
#[async_trait]
pub trait OutboxQueue: Queue {
    /// Returns queued photos that are not published yet, until they cost `max_cost`: in turn between organizations, in
    /// turn between the albums of one, each by cost, and oldest first within an album. Returns fewer when there are no
    /// more, or when there are more organizations than one call reads.
    async fn list_unpublished(&self, max_cost: u64) -> Result<UnpublishedPhotos>;
    /// Records that messages were published for these photos. Skips photos that were requeued meanwhile (their
    /// `confirmed_at` differs) and those of closed albums.
    async fn mark_published(&self, photos: &[UnpublishedPhoto]) -> Result<()>;
    /// Leases exactly these photos, if they are fresh; the attempt is counted and committed before this returns. A crash
    /// suspect is left as it is, or becomes failed when it has reached its attempt limit. Returns one answer per photo,
    /// in order.
    async fn lease_named(&self, photos: &[PhotoRef], ttl: Duration) -> Result<Vec<NamedLease>>;
    /// Makes photos unpublished again that were published before `before` (microseconds) and still wait, or whose lease
    /// expired; the latter wait as crash suspects. Returns how many.
    async fn republish(&self, before: i64) -> Result<u64>;
}
