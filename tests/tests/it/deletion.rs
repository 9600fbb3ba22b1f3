//! Deleted photos and albums: they disappear from searches, lists and storage, and queued ones are never read.

use photofinish_tests::harness::test_photo::TestPhoto;
use photofinish_tests::harness::{Service, ServiceOptions, SharedService, SharedServiceRef, expect_string};
use serde_json::{Value, json};

use crate::end_to_end::finish_photo;

static GROUP: SharedService = SharedService::new();

fn service() -> SharedServiceRef {
    GROUP.get_or_start(ServiceOptions::with_fake_models)
}

#[test]
fn a_deleted_photo_is_gone_from_search_list_and_storage() {
    let service = Service::start(ServiceOptions::with_fake_models());
    let partner = service.partner();
    let album = partner.create_album("Delete one");
    let kept = partner.upload_photo(&album, "kept.jpg", &finish_photo().to_jpeg());
    let deleted = partner.upload_photo(&album, "gone.jpg", &finish_photo().to_jpeg());
    partner.wait_until_idle(&album);
    assert_eq!(partner.search_by_selfie(&album, &TestPhoto::selfie(1).to_jpeg()).len(), 2);
    let preview = expect_string(&partner.get_photo(&album, &deleted)["url"]);
    assert_eq!(service.list_objects().len(), 6, "original, preview and thumbnail of each");

    partner.call_ok("/photos/photo/delete", &json!({ "albumId": album, "photoId": deleted }));

    assert_eq!(hit_ids(&partner.search_by_selfie(&album, &TestPhoto::selfie(1).to_jpeg())), [&*kept]);
    assert_eq!(hit_ids(&partner.search_by_bib(&album, "1204")), [&*kept]);
    assert_eq!(hit_ids(&partner.list_photos(&album)), [&*kept]);
    partner
        .call("/photos/photo/get", &json!({ "albumId": album, "photoId": deleted }))
        .expect_defined_error(404);
    partner.confirm_photo(&album, &deleted).expect_defined_error(404);
    assert_eq!(partner.get(&preview).status, 404);
    assert_eq!(service.list_objects().len(), 3, "{:?}", service.list_objects());
    assert_eq!(partner.album_progress(&album)["total"], 1);
}

#[test]
fn a_deleted_album_leaves_nothing() {
    let service = Service::start(ServiceOptions::with_fake_models());
    let partner = service.partner();
    let album = partner.create_album("Delete all");
    partner.upload_photo(&album, "a.jpg", &finish_photo().to_jpeg());
    partner.upload_selfie(&album, &TestPhoto::selfie(1).to_jpeg());
    partner.wait_until_idle(&album);
    assert_eq!(service.list_objects().len(), 4);
    partner.call_ok("/albums/delete", &json!({ "albumId": album }));
    assert_eq!(service.list_objects(), Vec::<std::path::PathBuf>::new());
    for path in [
        "/albums/get",
        "/albums/progress",
        "/photos/photo/list",
        "/photos/search/face/signed",
        "/albums/delete",
    ] {
        partner.call(path, &json!({ "albumId": album })).expect_defined_error(404);
    }
    assert_eq!(partner.call_ok("/albums/list", &json!({}))["total"], 0);
}

#[test]
fn a_deleted_photo_that_is_still_queued_never_comes_back() {
    let service = service();
    let partner = service.partner();
    let album = partner.create_album("Queued");
    let photo = TestPhoto::new(2400, 1600).with_bib("1204", [300, 300]).to_jpeg();
    let ids: Vec<String> =
        (0..10).map(|n| partner.upload_photo(&album, &format!("{n}.jpg"), &photo)).collect();
    for id in &ids {
        partner.call_ok("/photos/photo/delete", &json!({ "albumId": album, "photoId": id }));
    }
    let progress = partner.wait_until_idle(&album);
    assert_eq!(progress["total"], 0, "{progress}");
    assert_eq!(partner.search_by_bib(&album, "1204"), Vec::<Value>::new());
}

#[test]
fn bytes_uploaded_after_their_photo_was_deleted_are_collected() {
    let service = Service::start(ServiceOptions::with_fake_models());
    let partner = service.partner();
    let album = partner.create_album("Sweep");
    partner.upload_photo(&album, "kept.jpg", &finish_photo().to_jpeg());
    let deleted = partner.upload_photo(&album, "gone.jpg", &finish_photo().to_jpeg());
    partner.wait_until_idle(&album);
    let before = service.list_objects();
    let original =
        before.iter().find(|path| path.ends_with(format!("{deleted}/original"))).expect("its bytes");
    partner.call_ok("/photos/photo/delete", &json!({ "albumId": album, "photoId": deleted }));
    // As by an upload URL that is still valid.
    std::fs::create_dir_all(original.parent().expect("a folder")).expect("a folder");
    std::fs::write(original, "again").expect("a file");
    let too_young = service.run(&["sweep"]);
    assert!(
        too_young.expect_success().contains("0 of them without a use"),
        "{}",
        too_young.combined_output()
    );
    let old = std::time::SystemTime::now() - std::time::Duration::from_secs(49 * 3600);
    for path in service.list_objects() {
        let file = std::fs::File::options().write(true).open(path).expect("an object");
        file.set_modified(old).expect("an older object");
    }
    let dry = service.run(&["sweep", "--dry-run"]);
    assert!(
        dry.expect_success().contains("1 of them without a use (5 bytes) would be removed"),
        "{}",
        dry.combined_output()
    );
    assert_eq!(service.list_objects().len(), 4);
    let collected = service.run(&["sweep"]);
    assert!(
        collected.expect_success().contains("1 of them without a use (5 bytes) removed"),
        "{}",
        collected.combined_output()
    );
    let left: Vec<_> =
        before.into_iter().filter(|path| !path.to_string_lossy().contains(&*deleted)).collect();
    assert_eq!(service.list_objects(), left);
}

fn hit_ids(photos: &[Value]) -> Vec<&str> {
    photos.iter().filter_map(|photo| photo["id"].as_str()).collect()
}
