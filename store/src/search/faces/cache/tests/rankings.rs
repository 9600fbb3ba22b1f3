//! Searches whose faces change between the pass over the index and the reading of their vectors.

use std::sync::Mutex;

use super::*;

/// An album of two faces, of which the first is deleted from the database when its vector is read for the first time, in the
/// place of which another one is found.
struct ShrinkingSource {
    photos: [PhotoId; 2],
    reads: Mutex<Vec<Vec<FaceId>>>,
    newest: AtomicI64,
}

impl ShrinkingSource {
    fn change(&self) -> Change {
        Change { number: self.newest.load(Ordering::SeqCst), nonce: 7 }
    }

    fn push(&self, matrix: &mut FaceMatrix, number: usize, memory: &dyn MemoryObserver) -> Result<()> {
        let face = IndexedFace {
            id: FaceId(number as i64),
            photo: self.photos[number],
            bounding_box: BoundingBox { top: 0.0, left: 0.0, width: 0.1, height: 0.1 },
            model: "net@1",
            vector: &vector_to_bytes(&[1.0, number as f32 / 10.0]),
        };
        matrix.push(&face, memory)
    }
}

#[async_trait]
impl FaceSource for ShrinkingSource {
    async fn last_change(&self, _: AlbumId) -> Result<Option<Change>> {
        Ok(Some(self.change()))
    }

    async fn owner(&self, _: AlbumId) -> Result<Option<OrganizationId>> {
        Ok(Some(OrganizationId(uuid::Uuid::nil())))
    }

    async fn last_changes(&self, albums: &[AlbumId]) -> Result<Vec<(AlbumId, Change)>> {
        Ok(albums.iter().map(|album| (*album, self.change())).collect())
    }

    async fn load_faces(&self, _: AlbumId, memory: &dyn MemoryObserver) -> Result<(Change, FaceMatrix)> {
        let mut matrix = FaceMatrix::default();
        self.push(&mut matrix, 0, memory)?;
        self.push(&mut matrix, 1, memory)?;
        Ok((self.change(), matrix))
    }

    async fn changes_since(
        &self,
        _: AlbumId,
        _: Change,
        _: &dyn MemoryObserver,
    ) -> Result<Option<FaceChanges>> {
        let faces = FaceMatrix::default();
        Ok(Some(FaceChanges { up_to: self.change(), photos: vec![self.photos[0]], faces }))
    }

    async fn read_embeddings(&self, _: AlbumId, faces: &[FaceId]) -> Result<Vec<(FaceId, Embedding)>> {
        self.reads.lock().unwrap().push(faces.to_vec());
        self.newest.store(2, Ordering::SeqCst);
        let remaining = faces.iter().filter(|face| face.0 == 1);
        let second = || Embedding { model: "net@1".into(), vector: vec![1.0, 0.1] };
        Ok(remaining.map(|face| (*face, second())).collect())
    }
}

#[tokio::test]
async fn a_face_that_goes_away_during_a_search_does_not_take_the_place_of_another() {
    let photos = [(); 2].map(|()| PhotoId::generate());
    let source = Arc::new(ShrinkingSource { photos, reads: Mutex::default(), newest: AtomicI64::new(1) });
    let cache = FaceCache::new(source.clone(), usize::MAX);
    let hits = cache.nearest(AlbumId::generate(), &probe(), 1, 0.5).await.unwrap();
    assert_eq!(hits.iter().map(|hit| hit.photo).collect::<Vec<_>>(), [photos[1]]);
    // First the face that is gone was the best; the second search did not know it any more.
    let reads = source.reads.lock().unwrap();
    assert_eq!(reads.last().unwrap(), &[FaceId(1)]);
    assert!(reads[0].contains(&FaceId(0)) && reads.len() == 2, "{reads:?}");
}
