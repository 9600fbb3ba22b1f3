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
    cache.refresh(1).await.unwrap();
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
    cache.refresh(1).await.unwrap();
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
    cache.refresh(1).await.unwrap();
    assert!(cache.lock_albums().entries.is_empty());
}

#[tokio::test]
async fn entries_of_albums_without_faces_do_not_stay() {
    let source = Arc::new(ObservedSource { faces: 0, ..ObservedSource::new(3) });
    let (cache, albums) = cache_of_three(&source).await;
    cache.refresh(1).await.unwrap();
    assert_eq!(cache.lock_albums().entries.len(), 3, "they were just searched");
    assert_eq!(spawn_search(&cache, albums[0]).await.unwrap(), 0);
    cache.refresh(1).await.unwrap();
    assert_eq!(cache.lock_albums().entries.keys().collect::<Vec<_>>(), [&albums[0]]);
    cache.refresh(1).await.unwrap();
    assert!(cache.lock_albums().entries.is_empty());
}

/// Receipts of erasures wait for what a refresh returns.
#[tokio::test]
async fn a_refresh_passes_an_erasure_although_some_album_is_being_loaded_at_each() {
    let source = Arc::new(ObservedSource::new(0));
    let cache = Arc::new(FaceCache::new(Arc::clone(&source) as _, usize::MAX));
    let albums = [(); 2].map(|()| AlbumId::generate());
    let mut searches = albums.map(|album| spawn_search(&cache, album));
    run_until_idle().await;
    let erased_at = 10;
    assert_eq!(
        cache.refresh(erased_at + 1).await.unwrap(),
        0,
        "the load that runs may have read what was erased"
    );
    let mut begun_at = erased_at + 1;
    for round in 0..4 {
        let ending = round % 2;
        source.permits.add_permits(1);
        run_until_idle().await;
        assert!(searches[ending].is_finished());
        // As if it had been evicted: it waits behind the other, which is being loaded.
        cache.forget_album(albums[ending]);
        searches[ending] = spawn_search(&cache, albums[ending]);
        run_until_idle().await;
        assert_eq!(source.loads.load(Ordering::SeqCst), round + 2);
        let now = begun_at + 10;
        assert_eq!(cache.refresh(now).await.unwrap(), begun_at, "as of the beginning of the load that runs");
        begun_at = now;
    }
    source.permits.add_permits(2);
    for search in searches {
        assert_eq!(search.await.unwrap(), FACES);
    }
    assert_eq!(cache.refresh(100).await.unwrap(), 100);
}
