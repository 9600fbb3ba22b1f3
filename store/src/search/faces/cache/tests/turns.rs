//! How many small albums are searched at once, and for whom.

use super::*;
use crate::turns::on_behalf_of;

#[tokio::test]
async fn an_organization_searches_one_small_album_a_core_and_keeps_no_other_waiting() {
    let source = ObservedSource { read_permits: Some(Semaphore::new(0)), ..ObservedSource::new(1) };
    let source = Arc::new(source);
    let cache = Arc::new(FaceCache::new(source.clone(), usize::MAX));
    let album = AlbumId::generate();
    let places = count_inline_places() as usize;
    let searches: Vec<_> = (0..3 * places).map(|_| spawn_search(&cache, album)).collect();
    run_until_idle().await;
    assert_eq!(source.reading.load(Ordering::SeqCst), places, "searches at once");
    // Each of them has its turn and waits for the database.
    let of_another = {
        let cache = Arc::clone(&cache);
        let search = async move { cache.nearest(album, &probe(), 100, 0.5).await.unwrap().len() };
        tokio::spawn(on_behalf_of(OrganizationId::generate(), search))
    };
    run_until_idle().await;
    assert_eq!(source.reading.load(Ordering::SeqCst), places + 1, "another organization waits for them");
    // Those that wait keep no update of the album waiting.
    let updated = Arc::clone(&cache);
    let deletion = tokio::spawn(async move { updated.forget_photo(album, PhotoId::generate()).await });
    run_until_idle().await;
    assert!(deletion.is_finished());
    let permits = source.read_permits.as_ref().unwrap();
    permits.add_permits(places + 1);
    run_until_idle().await;
    assert!(of_another.is_finished());
    assert!(searches.iter().any(|search| !search.is_finished()), "it was the last");
    permits.add_permits(3 * places);
    for search in searches.into_iter().chain([of_another]) {
        assert_eq!(search.await.unwrap(), FACES);
    }
}

#[tokio::test]
async fn a_search_that_leaves_while_it_waits_gives_its_turn_to_another() {
    let source = ObservedSource { read_permits: Some(Semaphore::new(0)), ..ObservedSource::new(1) };
    let source = Arc::new(source);
    let cache = Arc::new(FaceCache::new(source.clone(), usize::MAX));
    let album = AlbumId::generate();
    let places = count_inline_places() as usize;
    let impatient: Vec<_> = (0..4 * places).map(|_| spawn_search(&cache, album)).collect();
    run_until_idle().await;
    for search in impatient {
        search.abort();
        assert!(search.await.unwrap_err().is_cancelled());
    }
    source.read_permits.as_ref().unwrap().add_permits(1);
    assert_eq!(spawn_search(&cache, album).await.unwrap(), FACES);
}
