//! What visitors of galleries say of photos.

use super::fixture::AlbumFixture;
use crate::model::gallery::{NewReport, ReportKind};
use crate::model::ids::PhotoId;
use crate::store::Store;

/// Checks the reports of [`crate::traits::Galleries`].
pub async fn galleries_suite(store: &Store) {
    a_report_is_of_all_its_photos_and_counts_once(store).await;
}

async fn report(fixture: &AlbumFixture, kind: ReportKind, visitor: u8, photos: Vec<PhotoId>) {
    let report =
        NewReport { album: fixture.album, photos, kind, visitor: [visitor; 32], note: "a note".into() };
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
    fixture.delete().await;
}
