//! Fair shares: organizations take turns, the albums of one take turns, and what a turn gives is cost.

use std::collections::HashMap;

use crate::conformance::fixture::{AlbumFixture, LONG, album_config, empty_results};
use crate::model::album::{AlbumConfig, Grid, RecognitionMode};
use crate::model::ids::AlbumId;
use crate::store::Store;
use crate::traits::{FinishOutcome, Upload};

/// Checks a queue that publishes photos that cost up to `lead` ahead of the workers. It must be empty: what others have
/// left in it, also of albums that are deleted, is ahead of all photos, and leases without an end make the lead larger.
pub async fn fair_shares_suite(store: &Store, lead: usize) {
    an_organization_with_many_albums_gets_the_share_of_one(store, lead).await;
    photos_in_cells_count_by_their_cells(store, lead).await;
    albums_of_an_organization_share_by_cost(store, lead).await;
    large_photos_count_by_their_size(store, lead).await;
    every_album_of_many_organizations_is_served(store).await;
}

/// Leases and finishes so many photos in the order in which the queue offers them; counts those of each album.
async fn serve(store: &Store, fixture: &AlbumFixture, count: usize) -> HashMap<AlbumId, usize> {
    let mut served = HashMap::new();
    let mut left = count;
    while left > 0 {
        let leases = fixture.lease_fresh(left.min(4), LONG).await;
        assert!(!leases.is_empty(), "{left} of {count} photos are missing");
        left -= leases.len();
        for lease in &leases {
            *served.entry(lease.album).or_default() += 1;
        }
        let answers = store.queue.finish(leases.iter().map(empty_results).collect()).await.expect("finishes");
        assert_eq!(answers, vec![FinishOutcome::Done; leases.len()]);
    }
    served
}

fn count(served: &HashMap<AlbumId, usize>, fixture: &AlbumFixture) -> usize {
    served.get(&fixture.album).copied().unwrap_or(0)
}

/// The most cells that an album may ask for; networks run on 16 of them, for faces and for texts.
fn grid_config() -> AlbumConfig {
    let mut config = album_config();
    for recognition in [&mut config.face, &mut config.text] {
        recognition.mode = RecognitionMode::Grid;
        recognition.grid = Some(Grid { rows: 16, columns: 16, cell_width: 640, cell_height: 640 });
    }
    config
}

async fn an_organization_with_many_albums_gets_the_share_of_one(store: &Store, lead: usize) {
    let mut albums = vec![AlbumFixture::create(store).await];
    for _ in 0..5 {
        albums.push(albums[0].create_album(album_config()).await);
    }
    for album in &albums {
        album.queue_photos(20 + lead).await;
    }
    let single = AlbumFixture::create(store).await;
    single.queue_photos(30 + lead).await;
    serve(store, &single, lead).await;
    let served = serve(store, &single, 40).await;
    let of_single = count(&served, &single);
    assert!((18..=22).contains(&of_single), "{of_single} of 40, beside an organization with 6 albums");
    for album in &albums {
        let of_album = count(&served, album);
        assert!((2..=5).contains(&of_album), "{of_album} of 20 for one of 6 albums: {served:?}");
    }
    single.delete().await;
    for album in albums {
        album.delete().await;
    }
}

/// Of 68 photos, two with 33 times the cost of the others get half of the work.
async fn check_costly_shares(store: &Store, costly: &AlbumFixture, plain: &AlbumFixture, lead: usize) {
    plain.queue_photos(80 + lead).await;
    serve(store, plain, lead).await;
    let served = serve(store, plain, 68).await;
    let (of_costly, of_plain) = (count(&served, costly), count(&served, plain));
    assert!((1..=4).contains(&of_costly), "{of_costly} costly photos and {of_plain} others");
}

async fn photos_in_cells_count_by_their_cells(store: &Store, lead: usize) {
    let plain = AlbumFixture::create(store).await;
    let costly = AlbumFixture::create(store).await.create_album(grid_config()).await;
    costly.queue_photos(40 + lead).await;
    check_costly_shares(store, &costly, &plain, lead).await;
    plain.delete().await;
    costly.delete().await;
}

async fn albums_of_an_organization_share_by_cost(store: &Store, lead: usize) {
    let plain = AlbumFixture::create(store).await;
    let costly = plain.create_album(grid_config()).await;
    costly.queue_photos(40 + lead).await;
    check_costly_shares(store, &costly, &plain, lead).await;
    plain.delete().await;
    costly.delete().await;
}

async fn large_photos_count_by_their_size(store: &Store, lead: usize) {
    let (plain, large) = (AlbumFixture::create(store).await, AlbumFixture::create(store).await);
    let photos = large.create_photos(40 + lead).await;
    let size_bytes = Some(33 * (12 << 20));
    let uploads: Vec<Upload> = photos.into_iter().map(|photo| Upload { photo, size_bytes }).collect();
    store.queue.confirm_uploads(large.album, &uploads).await.expect("confirms");
    check_costly_shares(store, &large, &plain, lead).await;
    plain.delete().await;
    large.delete().await;
}

/// More of both than one call considers.
async fn every_album_of_many_organizations_is_served(store: &Store) {
    const MANY: usize = 20;
    let mut albums = Vec::new();
    for _ in 0..MANY {
        albums.push(AlbumFixture::create(store).await);
    }
    for _ in 1..MANY {
        albums.push(albums[0].create_album(album_config()).await);
    }
    for album in &albums {
        album.queue_photos(2).await;
    }
    let served = serve(store, &albums[0], 2 * albums.len()).await;
    assert_eq!(served.len(), albums.len());
    assert!(served.values().all(|count| *count == 2), "{served:?}");
    assert_eq!(store.queue.depth().await.expect("counts"), 0);
    for album in albums {
        album.delete().await;
    }
}
