//! What the face index reads: the faces of an album, and which of them changed since an earlier read. Contains no SQL.

use async_trait::async_trait;
use uuid::Uuid;

use super::matrix::{FaceMatrix, MemoryObserver};
use crate::model::ids::{AlbumId, FaceId, OrganizationId, PhotoId};
use crate::model::photo::Embedding;
use crate::traits::Result;

/// A change of an album's faces.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Change {
    /// Number of the change within its album, from 1; 0 stands for an album without changes.
    pub(crate) number: i64,
    /// Random: after a failover or a restore a different change may have the same number.
    pub(crate) nonce: i64,
}

impl Change {
    /// Returns a change of this number with a new nonce.
    pub(crate) fn new(number: i64) -> Self {
        // The lower half of a random UUID is random except for two bits.
        Self { number, nonce: Uuid::new_v4().as_u128() as i64 }
    }
}

/// Reads the faces of albums. Every face read is reported to `memory` before it is stored.
#[async_trait]
pub(crate) trait FaceSource: Send + Sync {
    /// Returns the last change of the album; `None` if there is no such album.
    async fn last_change(&self, album: AlbumId) -> Result<Option<Change>>;
    /// Returns the organization of an album; `None` if there is no such album.
    async fn owner(&self, album: AlbumId) -> Result<Option<OrganizationId>>;
    /// Returns the last change of each of the albums that exists, in any order and with one query.
    async fn last_changes(&self, albums: &[AlbumId]) -> Result<Vec<(AlbumId, Change)>>;
    /// Returns all searchable faces of the album and its last change, both from one snapshot.
    async fn load_faces(&self, album: AlbumId, memory: &dyn MemoryObserver) -> Result<(Change, FaceMatrix)>;
    /// Returns what changed after `seen`, from one snapshot; `None` if the database does not know that change.
    async fn changes_since(
        &self,
        album: AlbumId,
        seen: Change,
        memory: &dyn MemoryObserver,
    ) -> Result<Option<FaceChanges>>;
    /// Returns the embeddings of those of the faces that are in the album, in any order.
    async fn read_embeddings(&self, album: AlbumId, faces: &[FaceId]) -> Result<Vec<(FaceId, Embedding)>>;
}

/// What changed in an album.
pub(crate) struct FaceChanges {
    /// The last change included.
    pub(crate) up_to: Change,
    /// The changed photos, including deleted ones.
    pub(crate) photos: Vec<PhotoId>,
    /// The faces that these photos have now.
    pub(crate) faces: FaceMatrix,
}
