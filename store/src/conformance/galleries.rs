//! What visitors of galleries say of photos.

use super::assert_error_kind;
use super::fixture::AlbumFixture;
use crate::error::StoreErrorKind;
use crate::model::encoding::now_micros;
use crate::model::gallery::{
    GalleryChange, GalleryLink, GallerySettings, NewReport, ReportKind, ReportLimits, ReportedPhoto,
};
use crate::model::ids::PhotoId;
use crate::model::photo::BoundingBox;
use crate::store::Store;

/// Checks [`crate::traits::Galleries`].
pub async fn galleries_suite(store: &Store) {
    a_change_takes_the_place_of_one_version(store).await;
    a_report_is_of_all_its_photos_and_counts_once(store).await;
    reports_are_kept_up_to_their_limits(store).await;
}

/// Two who change a gallery at once begin with the same version: the second must not undo what the first did.
async fn a_change_takes_the_place_of_one_version(store: &Store) {
    let fixture = AlbumFixture::create(store).await;
    let galleries = &fixture.store.galleries;
    let change = |link: &str, replaces| {
        let digest = std::array::from_fn(|at| link.as_bytes()[at % link.len()]);
        let link = GalleryLink { text: link.to_owned(), digest };
        let (album, settings) = (fixture.album, GallerySettings::default());
        GalleryChange { album, enabled: true, link, settings, expires_at: None, replaces }
    };
    let album = fixture.album.to_string();
    let links = ["first", "second", "third"].map(|name| format!("{name} {album}"));
    let first = galleries.save(change(&links[0], None)).await.expect("saves");
    assert_error_kind(galleries.save(change(&links[1], None)).await, StoreErrorKind::Conflict);
    let second = galleries.save(change(&links[1], Some(first.version))).await.expect("saves");
    assert!(second.version > first.version);
    assert_error_kind(galleries.save(change(&links[2], Some(first.version))).await, StoreErrorKind::Conflict);
    let stored = galleries.get(fixture.album).await.expect("reads");
    assert_eq!(stored.map(|gallery| gallery.link), Some(links[1].clone()));
    fixture.delete().await;
}

pub(super) async fn report(fixture: &AlbumFixture, kind: ReportKind, visitor: u8, photos: Vec<PhotoId>) {
    let place = BoundingBox { top: 0.1, left: 0.2, width: 0.05, height: 0.07 };
    let faces = if kind == ReportKind::Removal { vec![place] } else { Vec::new() };
    let photos = photos.into_iter().map(|photo| ReportedPhoto { photo, faces: faces.clone() }).collect();
    let (visitor, note) = ([visitor; 32], "a note".to_owned());
    let (created_at, limits) = (now_micros(), None);
    let report = NewReport { album: fixture.album, photos, kind, visitor, note, created_at, limits };
    assert!(fixture.store.galleries.report(report).await.expect("reports"));
}

async fn a_report_is_of_all_its_photos_and_counts_once(store: &Store) {
    let fixture = AlbumFixture::create(store).await;
    let mut photos = fixture.create_photos(2).await;
    photos.sort();
    let gone = PhotoId::generate();
    for _ in 0..2 {
        report(&fixture, ReportKind::Removal, 1, vec![photos[0], gone, photos[1]]).await;
    }
    let reports = fixture.store.galleries.list_reports(fixture.album, 10).await.expect("lists");
    let mut reported: Vec<PhotoId> = reports.iter().map(|report| report.photo).collect();
    reported.sort();
    assert_eq!(reported, photos, "each photo that is there, once");
    assert!(reports.iter().all(|report| report.kind == ReportKind::Removal && report.note == "a note"));
    assert_eq!(reports[0].created_at, reports[1].created_at, "said at one time");

    // Of another selfie, and of another kind.
    report(&fixture, ReportKind::Removal, 2, photos.clone()).await;
    report(&fixture, ReportKind::NotMe, 1, vec![photos[0]]).await;
    assert_eq!(fixture.store.galleries.list_reports(fixture.album, 10).await.expect("lists").len(), 5);
    assert_eq!(fixture.store.galleries.list_reports(fixture.album, 3).await.expect("lists").len(), 3);

    let galleries = &fixture.store.galleries;
    let first = galleries.find_reports(fixture.album, reports[0].id).await.expect("finds");
    assert_eq!(first.iter().map(|report| report.photo).collect::<Vec<_>>(), photos, "all of the request");
    assert!(first.iter().all(|report| report.faces.len() == 1));
    galleries.dismiss_reports(fixture.album, reports[0].id).await.expect("dismisses");
    assert_error_kind(galleries.find_reports(fixture.album, reports[1].id).await, StoreErrorKind::NotFound);
    let left = galleries.list_reports(fixture.album, 10).await.expect("lists");
    assert_eq!(left.len(), 3, "another selfie's request and what was said of one photo");
    let said = left.iter().find(|report| report.kind == ReportKind::NotMe).expect("it is there").id;
    galleries.dismiss_reports(fixture.album, said).await.expect("dismisses");
    assert_eq!(galleries.list_reports(fixture.album, 10).await.expect("lists").len(), 2);
    fixture.delete().await;
}

/// Says of a photo that a visitor is not in it, where there are at most three reports, two of them of this visitor.
async fn say_within_limits(fixture: &AlbumFixture, visitor: u8, photo: PhotoId) -> bool {
    let report = NewReport {
        album: fixture.album,
        photos: vec![ReportedPhoto { photo, faces: Vec::new() }],
        kind: ReportKind::NotMe,
        visitor: [visitor; 32],
        note: String::new(),
        created_at: now_micros(),
        limits: Some(ReportLimits { album: 3, visitor: 2 }),
    };
    fixture.store.galleries.report(report).await.expect("reports")
}

async fn reports_are_kept_up_to_their_limits(store: &Store) {
    let fixture = AlbumFixture::create(store).await;
    let photos = fixture.create_photos(3).await;
    let galleries = &fixture.store.galleries;
    // These are neither counted nor refused.
    report(&fixture, ReportKind::Removal, 1, photos.clone()).await;
    for photo in &photos[..2] {
        assert!(say_within_limits(&fixture, 1, *photo).await);
    }
    assert!(!say_within_limits(&fixture, 1, photos[2]).await, "a third of one visitor");
    assert!(say_within_limits(&fixture, 1, photos[0]).await, "it is kept already");
    assert!(say_within_limits(&fixture, 2, photos[0]).await);
    assert!(!say_within_limits(&fixture, 2, photos[1]).await, "a fourth of the album");
    assert!(
        say_within_limits(&fixture, 2, PhotoId::generate()).await,
        "nothing is kept of a photo that is gone"
    );
    report(&fixture, ReportKind::Removal, 2, photos.clone()).await;
    let said = galleries.list_reports(fixture.album, 10).await.expect("lists");
    let said: Vec<_> = said.iter().filter(|report| report.kind == ReportKind::NotMe).collect();
    assert_eq!(said.len(), 3);
    galleries.dismiss_reports(fixture.album, said[0].id).await.expect("dismisses");
    assert!(say_within_limits(&fixture, 3, photos[2]).await, "there is room again");
    // Another album has its own.
    let other = AlbumFixture::create(store).await;
    let elsewhere = other.create_photos(1).await[0];
    assert!(say_within_limits(&other, 1, elsewhere).await);
    other.delete().await;
    fixture.delete().await;
}
