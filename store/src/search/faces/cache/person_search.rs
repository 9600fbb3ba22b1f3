//! A selfie search of an album in memory: several passes, each over the faces as they are at that time.

use std::sync::{Mutex, PoisonError};

use tokio::sync::OwnedRwLockReadGuard;

use super::FaceCache;
use crate::model::ids::{AlbumId, FaceId};
use crate::model::photo::Embedding;
use crate::search::faces::passes::Progress;
use crate::search::faces::ranking::Ranker;
use crate::search::faces::residency::AlbumFaces as ResidentFaces;
use crate::search::scoring::{FaceQuery, ScoredFace};
use crate::search::selfie::AlbumFaces;
use crate::traits::Result;

/// The faces of one album as a selfie search asks for them. A change that comes between two passes counts from then on.
pub(super) struct PersonSearch<'a> {
    cache: &'a FaceCache,
    album: AlbumId,
    count: usize,
    /// For the first pass.
    faces: Mutex<Option<OwnedRwLockReadGuard<ResidentFaces>>>,
    /// What the first pass is to the search: the search may have begun again.
    first: Progress,
    ranker: tokio::sync::Mutex<Ranker<'a>>,
}

impl<'a> PersonSearch<'a> {
    pub(super) fn new(
        cache: &'a FaceCache,
        album: AlbumId,
        faces: OwnedRwLockReadGuard<ResidentFaces>,
        probe: &Embedding,
        first: Progress,
    ) -> Self {
        let count = faces.matrix.count_comparable(probe);
        let ranker = tokio::sync::Mutex::new(cache.ranker(album));
        Self { cache, album, count, faces: Mutex::new(Some(faces)), first, ranker }
    }

    /// See [`Ranker::is_current`].
    pub(super) async fn is_current(&self) -> bool {
        self.ranker.lock().await.is_current()
    }
}

impl AlbumFaces for PersonSearch<'_> {
    fn count(&self) -> usize {
        self.count
    }

    async fn search(&self, queries: Vec<FaceQuery>) -> Result<Vec<Vec<ScoredFace>>> {
        let first = self.faces.lock().unwrap_or_else(PoisonError::into_inner).take();
        let (faces, progress) = match first {
            Some(faces) => (Some(faces), self.first),
            None => (self.cache.faces_in_memory(self.album).await?, Progress::Continued),
        };
        let Some(faces) = faces else { return Ok(vec![Vec::new(); queries.len()]) };
        let shortlists = self.cache.shortlist(self.album, faces, &queries, progress).await?;
        let mut ranker = self.ranker.lock().await;
        let mut found = Vec::with_capacity(queries.len());
        for (query, shortlist) in queries.iter().zip(shortlists) {
            found.push(ranker.rank(query, shortlist).await?);
        }
        Ok(found)
    }

    async fn read_vectors(&self, faces: &[ScoredFace]) -> Result<Vec<Option<Vec<f32>>>> {
        let ids: Vec<FaceId> = faces.iter().map(|face| face.face).collect();
        self.ranker.lock().await.read_vectors(&ids).await
    }
}
