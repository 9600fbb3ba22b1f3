//! Watermarks and which photos show them, permitted downloads, and photos by how they were taken.

use std::time::Duration;

use bytes::Bytes;
use uuid::Uuid;

use super::assert_error_kind;
use crate::conformance::fixture::{AlbumFixture, album_config, empty_results, random_digest};
use crate::error::StoreErrorKind;
use crate::model::cost::Spent;
use crate::model::download::{Download, DownloadFile, NewDownload};
use crate::model::photo::{CameraCount, PhotoQuery, PhotoState, TakenQuery};
use crate::model::watermark::{
    AlbumToMark, MarkedPhoto, WatermarkChange, WatermarkPlacement, WatermarkPosition,
};
use crate::store::Store;
use crate::traits::Lease;

const LONG: Duration = Duration::from_secs(600);

/// Checks the backends of [`crate::traits::Watermarks`] and [`crate::traits::Downloads`].
pub async fn pictures_suite(store: &Store) {
    a_watermark_is_versioned(store).await;
    photos_are_marked_when_they_are_finished(store).await;
    a_change_while_a_photo_is_processed_is_noticed(store).await;
    a_notice_during_the_marking_is_not_lost(store).await;
    albums_to_mark_are_listed_by_organizations_in_turn(store).await;
    earlier_watermarks_that_are_drawn_late_are_drawn_over(store).await;
    a_download_ends(store).await;
    photos_are_listed_by_how_they_were_taken(store).await;
}

fn change(picture: Option<&'static [u8]>) -> WatermarkChange {
    let placement = WatermarkPlacement { position: WatermarkPosition::TopLeft, opacity: 0.5, scale: 0.125 };
    WatermarkChange { picture: picture.map(Bytes::from_static), placement }
}

async fn version_of_album(fixture: &AlbumFixture) -> i64 {
    let album = fixture.store.albums.get(&fixture.tenant, fixture.album).await;
    album.expect("the album exists").watermark_version
}

async fn to_mark(fixture: &AlbumFixture) -> Option<AlbumToMark> {
    let albums = fixture.store.watermarks.list_albums_to_mark().await.expect("lists them");
    albums.into_iter().find(|album| album.album == fixture.album)
}

async fn a_watermark_is_versioned(store: &Store) {
    let fixture = AlbumFixture::create(store).await;
    let (watermarks, album) = (&store.watermarks, fixture.album);
    assert_eq!(watermarks.get(album).await.expect("reads it"), None);
    assert_error_kind(watermarks.set(album, change(None)).await, StoreErrorKind::NotFound);
    assert_eq!(watermarks.get(album).await.expect("reads it"), None, "nothing was written");
    let first = watermarks.set(album, change(Some(b"png"))).await.expect("sets it");
    assert_eq!(version_of_album(&fixture).await, first.version);
    assert_eq!(watermarks.get(album).await.expect("reads it").as_ref(), Some(&first));
    let second = watermarks.set(album, change(None)).await.expect("keeps the picture");
    assert_eq!((second.picture.as_ref(), second.placement), (&b"png"[..], change(None).placement));
    assert!(second.version > first.version);
    watermarks.remove(album).await.expect("removes it");
    watermarks.remove(album).await.expect("removes it again");
    assert_eq!(watermarks.get(album).await.expect("reads it"), None);
    assert_eq!((version_of_album(&fixture).await, to_mark(&fixture).await), (0, None));
    let third = watermarks.set(album, change(Some(b"other"))).await.expect("sets it");
    assert!(third.version > second.version, "no version is given twice");
    fixture.delete().await;
}

/// Finishes a photo as a worker does that knows this version.
async fn finish(fixture: &AlbumFixture, lease: &Lease, version: i64) {
    let mut results = empty_results(lease);
    results.watermark_version = version;
    fixture.store.queue.finish(vec![results]).await.expect("finishes it");
}

async fn photos_are_marked_when_they_are_finished(store: &Store) {
    let fixture = AlbumFixture::create(store).await;
    let (watermarks, album) = (&store.watermarks, fixture.album);
    let before = fixture.add_ready_photo(Vec::new(), Vec::new()).await;
    let mark = watermarks.set(album, change(Some(b"png"))).await.expect("sets it");
    assert_eq!(watermarks.find_marked(album).await.expect("looks"), None);
    fixture.queue_photos(1).await;
    let lease = fixture.lease_fresh(1, LONG).await.pop().expect("a photo waits");
    assert_eq!(lease.watermark_version, mark.version);
    finish(&fixture, &lease, mark.version).await;
    assert_eq!(watermarks.find_marked(album).await.expect("looks"), Some(lease.photo));
    assert!(store.photos.get(album, lease.photo).await.expect("exists").is_marked);
    assert!(!store.photos.get(album, before).await.expect("exists").is_marked);
    assert_eq!(watermarks.count_unmarked(album, mark.version).await.expect("counts"), 1);
    let listed = watermarks.list_unmarked(album, mark.version, None, 10).await.expect("lists them");
    assert_eq!(listed, [before]);
    let spent = Spent { bytes_read: 90, bytes_written: 110, ..Spent::default() };
    let marked: Vec<_> = listed.iter().map(|photo| MarkedPhoto { photo: *photo, spent }).collect();
    let stored = async || store.costs.stored(&fixture.tenant, Some(album)).await.expect("sums up");
    let unmarked = stored().await;
    for _ in 0..2 {
        watermarks.note_marked(album, &marked, mark.version).await.expect("notes it");
    }
    let all = stored().await;
    let added = (all.objects - unmarked.objects, all.bytes - unmarked.bytes);
    assert_eq!(added, (1, 110), "the second picture took the place of the first");
    let rest = watermarks.list_unmarked(album, mark.version, None, 10).await.expect("lists them");
    assert!(rest.is_empty());
    let after = watermarks.list_unmarked(album, 0, Some(before), 10).await.expect("lists them");
    assert_eq!(after, [lease.photo], "after the one that was named");
    fixture.delete().await;
}

async fn a_change_while_a_photo_is_processed_is_noticed(store: &Store) {
    let fixture = AlbumFixture::create(store).await;
    let (watermarks, album) = (&store.watermarks, fixture.album);
    fixture.queue_photos(1).await;
    let lease = fixture.lease_fresh(1, LONG).await.pop().expect("a photo waits");
    assert_eq!(lease.watermark_version, 0);
    watermarks.set(album, change(Some(b"png"))).await.expect("sets it");
    let listed = to_mark(&fixture).await.expect("the change asks for it");
    watermarks.note_all_marked(listed).await.expect("no photo was ready");
    assert_eq!(to_mark(&fixture).await, None);
    finish(&fixture, &lease, 0).await;
    assert!(to_mark(&fixture).await.is_some(), "the photo was processed without the watermark");
    fixture.delete().await;
}

async fn a_notice_during_the_marking_is_not_lost(store: &Store) {
    let fixture = AlbumFixture::create(store).await;
    let (watermarks, album) = (&store.watermarks, fixture.album);
    watermarks.set(album, change(Some(b"png"))).await.expect("sets it");
    let first = to_mark(&fixture).await.expect("the change asks for it");
    watermarks.set(album, change(Some(b"other"))).await.expect("sets it again");
    watermarks.note_all_marked(first).await.expect("notes it");
    let second = to_mark(&fixture).await.expect("the second change was not seen by who marked for the first");
    watermarks.note_all_marked(second).await.expect("notes it");
    watermarks.note_all_marked(first).await.expect("an old note changes nothing");
    assert_eq!(to_mark(&fixture).await, None);
    fixture.delete().await;
}

async fn albums_to_mark_are_listed_by_organizations_in_turn(store: &Store) {
    let first = AlbumFixture::create(store).await;
    let second = first.create_album(album_config()).await;
    let of_another = AlbumFixture::create(store).await;
    for fixture in [&first, &second, &of_another] {
        store.watermarks.set(fixture.album, change(Some(b"png"))).await.expect("sets it");
    }
    let listed = store.watermarks.list_albums_to_mark().await.expect("lists them");
    let place = |fixture: &AlbumFixture| listed.iter().position(|listed| listed.album == fixture.album);
    let places = [&first, &of_another, &second].map(|fixture| place(fixture).expect("it is listed"));
    assert!(places.is_sorted(), "{places:?}");
    for fixture in [first, second, of_another] {
        fixture.delete().await;
    }
}

/// A process that stalls for longer than it has the task writes earlier pictures over those of another one.
async fn earlier_watermarks_that_are_drawn_late_are_drawn_over(store: &Store) {
    let fixture = AlbumFixture::create(store).await;
    let (watermarks, album) = (&store.watermarks, fixture.album);
    let photo = fixture.add_ready_photo(Vec::new(), Vec::new()).await;
    let marked = [MarkedPhoto { photo, spent: Spent::default() }];
    assert_eq!(watermarks.version(album).await.expect("reads it"), 0);
    let first = watermarks.set(album, change(Some(b"png"))).await.expect("sets it").version;
    let second = watermarks.set(album, change(Some(b"other"))).await.expect("sets it again").version;
    assert_eq!(watermarks.version(album).await.expect("reads it"), second);
    watermarks.note_marked(album, &marked, second).await.expect("notes it");
    let listed = to_mark(&fixture).await.expect("the changes ask for it");
    watermarks.note_all_marked(listed).await.expect("notes it");
    assert_eq!(to_mark(&fixture).await, None);
    watermarks.note_marked(album, &marked, first).await.expect("notes it");
    assert!(to_mark(&fixture).await.is_some(), "the photo shows the first one");
    let unmarked = watermarks.list_unmarked(album, second, None, 10).await.expect("lists them");
    assert_eq!(unmarked, [photo]);
    watermarks.remove(album).await.expect("removes it");
    watermarks.note_marked(album, &marked, second).await.expect("notes it");
    assert_eq!((watermarks.version(album).await.expect("reads it"), to_mark(&fixture).await), (0, None));
    fixture.delete().await;
}

async fn a_download_ends(store: &Store) {
    let fixture = AlbumFixture::create(store).await;
    let photos = fixture.create_photos(2).await;
    let new = |ttl| NewDownload {
        digest: random_digest(),
        album: fixture.album,
        photos: photos.clone(),
        file: DownloadFile::Marked,
        ttl,
    };
    let (open, over) = (new(LONG), new(Duration::ZERO));
    for download in [&over, &open] {
        store.downloads.create(download.clone()).await.expect("permits it");
    }
    let expected = Download {
        organization: fixture.tenant.organization,
        album: fixture.album,
        title: store.albums.get(&fixture.tenant, fixture.album).await.expect("exists").title,
        photos: photos.clone(),
        file: DownloadFile::Marked,
    };
    assert_eq!(store.downloads.find(&open.digest).await.expect("looks"), Some(expected));
    assert_eq!(store.downloads.find(&over.digest).await.expect("looks"), None);
    assert_eq!(store.downloads.find(&random_digest()).await.expect("looks"), None);
    fixture.delete().await;
    assert_eq!(store.downloads.find(&open.digest).await.expect("looks"), None, "it goes with its album");
}

async fn photos_are_listed_by_how_they_were_taken(store: &Store) {
    let fixture = AlbumFixture::create(store).await;
    let album = fixture.album;
    let camera = format!("camera {}", Uuid::now_v7());
    let mut taken = Vec::new();
    for minute in 0..3 {
        fixture.queue_photos(1).await;
        let lease = fixture.lease_fresh(1, LONG).await.pop().expect("a photo waits");
        let mut results = empty_results(&lease);
        let time = results.taken_at.expect("the fixture has one") + time::Duration::minutes(minute);
        results.taken_at = Some(time);
        results.camera = (minute < 2).then(|| camera.clone());
        taken.push((lease.photo, time));
        store.queue.finish(vec![results]).await.expect("finishes it");
    }
    fixture.create_photos(1).await;
    let page = PhotoQuery { after: None, limit: 1, state: Some(PhotoState::Ready) };
    let all = TakenQuery { page, camera: None, from: None, until: None, known_total: None };
    let list = |query| async { store.photos.list_taken(album, query).await.expect("lists them") };
    let first = list(all.clone()).await;
    assert_eq!((first.total, first.next), (3, Some(taken[0].0)));
    let of_camera = TakenQuery { camera: Some(camera.clone()), ..all.clone() };
    assert_eq!(list(of_camera).await.total, 2);
    let between = TakenQuery { from: Some(taken[1].1), until: Some(taken[2].1), ..all.clone() };
    let found = list(between).await;
    assert_eq!((found.total, found.photos[0].id, found.next), (1, taken[1].0, None), "from, but not until");
    let mut rest = all;
    rest.page.after = first.next;
    assert_eq!(list(rest).await.photos[0].id, taken[1].0);
    let cameras = store.photos.count_by_camera(album).await.expect("counts them");
    let count = |camera, photos| CameraCount { camera, photos };
    assert_eq!(cameras.len(), 2);
    assert!(cameras.contains(&count(Some(camera), 2)) && cameras.contains(&count(None, 2)));
    fixture.delete().await;
}
