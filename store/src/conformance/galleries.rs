//! What visitors of galleries say of photos.

use super::assert_error_kind;
use super::fixture::AlbumFixture;
use crate::error::StoreErrorKind;
use crate::model::encoding::now_micros;
use crate::model::gallery::{
    GalleryChange, GalleryLink, GallerySettings, NewReport, ReportKind, ReportedPhoto,
};
use crate::model::ids::PhotoId;
use crate::model::photo::BoundingBox;
use crate::store::Store;

/// Checks [`crate::traits::Galleries`].
pub async fn galleries_suite(store: &Store) {
    a_change_takes_the_place_of_one_version(store).await;
    a_report_is_of_all_its_photos_and_counts_once(store).await;
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

async fn report(fixture: &AlbumFixture, kind: ReportKind, visitor: u8, photos: Vec<PhotoId>) {
    let place = BoundingBox { top: 0.1, left: 0.2, width: 0.05, height: 0.07 };
    let faces = if kind == ReportKind::Removal { vec![place] } else { Vec::new() };
    let photos = photos.into_iter().map(|photo| ReportedPhoto { photo, faces: faces.clone() }).collect();
    let (visitor, note) = ([visitor; 32], "a note".to_owned());
    let report = NewReport { album: fixture.album, photos, kind, visitor, note, created_at: now_micros() };
    fixture.store.galleries.report(report).await.expect("reports");
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
