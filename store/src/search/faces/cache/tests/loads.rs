//! Loads that their searches leave, that fail, or that the end of the store ends.

use std::time::Duration;

use super::*;

#[tokio::test]
async fn a_load_goes_on_when_its_searches_have_gone() {
    let source = Arc::new(ObservedSource::new(0));
    let cache = Arc::new(FaceCache::new(source.clone(), usize::MAX));
    let album = AlbumId::generate();
    for _ in 0..20 {
        let impatient = spawn_search(&cache, album);
        run_until_idle().await;
        impatient.abort();
        assert!(impatient.await.unwrap_err().is_cancelled());
    }
    let search = spawn_search(&cache, album);
    run_until_idle().await;
    source.permits.add_permits(1);
    assert_eq!(search.await.unwrap(), FACES);
    assert_eq!(source.loads.load(Ordering::SeqCst), 1);
}

#[tokio::test]
async fn a_load_without_any_search_left_leaves_its_faces_in_memory() {
    let source = Arc::new(ObservedSource::new(0));
    let cache = Arc::new(FaceCache::new(source.clone(), usize::MAX));
    let album = AlbumId::generate();
    let impatient = spawn_search(&cache, album);
    run_until_idle().await;
    impatient.abort();
    source.permits.add_permits(1);
    run_until_idle().await;
    assert_eq!(cache.count_resident_faces(album).await, Some(FACES));
    assert_eq!(spawn_search(&cache, album).await.unwrap(), FACES);
    assert_eq!(source.loads.load(Ordering::SeqCst), 1);
}

#[tokio::test]
async fn a_load_that_waits_its_turn_is_given_up_when_no_search_is_left() {
    let source = Arc::new(ObservedSource::new(0));
    let cache = Arc::new(FaceCache::new(source.clone(), usize::MAX));
    let (loading, waiting) = (AlbumId::generate(), AlbumId::generate());
    let first = spawn_search(&cache, loading);
    run_until_idle().await;
    let second = spawn_search(&cache, waiting);
    run_until_idle().await;
    let slot = cache.lock_albums().entries[&waiting].slot.clone();
    assert!(slot.updates.is_running());
    second.abort();
    tokio::time::timeout(Duration::from_secs(60), async {
        while slot.updates.is_running() {
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
    })
    .await
    .expect("the load is never given up");
    source.permits.add_permits(2);
    assert_eq!(first.await.unwrap(), FACES);
    assert_eq!(source.loads.load(Ordering::SeqCst), 1);
    assert_eq!(spawn_search(&cache, waiting).await.unwrap(), FACES);
}

#[tokio::test]
async fn a_deletion_does_not_wait_for_the_load_of_its_album_and_counts_when_it_has_ended() {
    let source = Arc::new(ObservedSource::new(0));
    let cache = Arc::new(FaceCache::new(source.clone(), usize::MAX));
    let album = AlbumId::generate();
    let search = spawn_search(&cache, album);
    run_until_idle().await;
    assert_eq!(source.loads.load(Ordering::SeqCst), 1);
    let deletion = cache.forget_photo(album, DELETED_PHOTO);
    tokio::time::timeout(Duration::from_secs(60), deletion).await.expect("it waits for the load");
    source.permits.add_permits(1);
    search.await.unwrap();
    run_until_idle().await;
    assert_eq!(cache.count_resident_faces(album).await, Some(FACES - 1));
}

#[tokio::test]
async fn ten_cold_albums_of_one_organization_delay_an_album_of_another_by_one_load() {
    let source = Arc::new(ObservedSource::new(0));
    let cache = Arc::new(FaceCache::new(source.clone(), usize::MAX));
    let large: Vec<_> = (0..10).map(|_| spawn_search(&cache, AlbumId::generate())).collect();
    run_until_idle().await;
    let small = AlbumId::generate();
    *source.small_album.lock().unwrap() = Some(small);
    let search = spawn_search(&cache, small);
    run_until_idle().await;
    // The load that runs, one more of the organization that came first, and this one.
    source.permits.add_permits(3);
    run_until_idle().await;
    assert!(search.is_finished(), "{} albums were loaded first", source.loads.load(Ordering::SeqCst));
    assert_eq!(large.iter().filter(|search| search.is_finished()).count(), 2);
    source.permits.add_permits(10);
    for search in large.into_iter().chain([search]) {
        assert_eq!(search.await.unwrap(), FACES);
    }
}

#[tokio::test]
async fn all_searches_share_the_error_of_a_load_and_the_next_one_loads_again() {
    let source = Arc::new(ObservedSource::new(0));
    let cache = Arc::new(FaceCache::new(source.clone(), usize::MAX));
    let album = AlbumId::generate();
    let searches = [(); 5].map(|()| {
        let cache = Arc::clone(&cache);
        tokio::spawn(
            async move { cache.nearest(album, &probe(), 100, 0.5).await.map_err(|error| error.kind) },
        )
    });
    run_until_idle().await;
    source.permits.close();
    for search in searches {
        assert_eq!(search.await.unwrap(), Err(StoreErrorKind::Unavailable));
    }
    assert_eq!(source.loads.load(Ordering::SeqCst), 1);
    assert!(cache.nearest(album, &probe(), 100, 0.5).await.is_err());
    assert_eq!(source.loads.load(Ordering::SeqCst), 2);
}

#[tokio::test]
async fn closing_ends_a_load_and_the_searches_that_wait_for_it() {
    let source = Arc::new(ObservedSource::new(0));
    let cache = Arc::new(FaceCache::new(source.clone(), usize::MAX));
    let waiting = Arc::clone(&cache);
    let search =
        tokio::spawn(async move { waiting.nearest(AlbumId::generate(), &probe(), 100, 0.5).await.is_err() });
    run_until_idle().await;
    cache.close();
    assert!(search.await.unwrap());
    run_until_idle().await;
    // The loader, the cache of the test and nobody else: no task is left that could read.
    assert_eq!(Arc::strong_count(&cache.loader), 1);
}
