//! What a refresh reads, and what it removes from memory.

use super::*;

/// Searches three albums of `source`, which are then in memory.
async fn cache_of_three(source: &Arc<ObservedSource>) -> (Arc<FaceCache>, [AlbumId; 3]) {
    let cache = Arc::new(FaceCache::new(Arc::clone(source) as _, usize::MAX));
    let albums = [(); 3].map(|()| AlbumId::generate());
    for album in albums {
        assert_eq!(spawn_search(&cache, album).await.unwrap(), source.faces);
    }
    (cache, albums)
}

#[tokio::test]
async fn a_refresh_asks_once_and_reads_nothing_while_nothing_changes() {
    let source = Arc::new(ObservedSource { changed: 1, ..ObservedSource::new(3) });
    let (cache, albums) = cache_of_three(&source).await;
    cache.refresh().await.unwrap();
    assert_eq!((source.refreshes.load(Ordering::SeqCst), source.loads.load(Ordering::SeqCst)), (1, 3));
    for album in albums {
        assert_eq!(cache.count_resident_faces(album).await, Some(FACES));
    }
}

#[tokio::test]
async fn a_refresh_applies_changes_and_never_loads() {
    let source = Arc::new(ObservedSource::new(3));
    let (cache, albums) = cache_of_three(&source).await;
    // The database does not know any more what the cache has seen.
    source.newest.store(2, Ordering::SeqCst);
    cache.refresh().await.unwrap();
    assert_eq!(source.loads.load(Ordering::SeqCst), 3);
    for album in albums {
        assert_eq!(cache.count_resident_faces(album).await, None);
    }
    assert_eq!(cache.lock_albums().bytes(), 0);
}

#[tokio::test]
async fn a_refresh_removes_deleted_albums() {
    let source = Arc::new(ObservedSource::new(3));
    let (cache, _) = cache_of_three(&source).await;
    source.is_deleted.store(true, Ordering::SeqCst);
    cache.refresh().await.unwrap();
    assert!(cache.lock_albums().entries.is_empty());
}

#[tokio::test]
async fn entries_of_albums_without_faces_do_not_stay() {
    let source = Arc::new(ObservedSource { faces: 0, ..ObservedSource::new(3) });
    let (cache, albums) = cache_of_three(&source).await;
    cache.refresh().await.unwrap();
    assert_eq!(cache.lock_albums().entries.len(), 3, "they were just searched");
    assert_eq!(spawn_search(&cache, albums[0]).await.unwrap(), 0);
    cache.refresh().await.unwrap();
    assert_eq!(cache.lock_albums().entries.keys().collect::<Vec<_>>(), [&albums[0]]);
    cache.refresh().await.unwrap();
    assert!(cache.lock_albums().entries.is_empty());
}
