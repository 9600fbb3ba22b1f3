//! What is deleted is gone: from search, lists, storage, and from what is still queued.

use photofinish_tests::harness::pictures::Picture;
use photofinish_tests::harness::{Group, Options, Service, Shared, text};
use serde_json::{Value, json};

use crate::whole_way::finish;

static GROUP: Group = Group::new();

fn service() -> Shared {
    GROUP.service(Options::fakes)
}

#[test]
fn a_deleted_photo_leaves_search_list_and_storage() {
    let service = Service::start(Options::fakes());
    let partner = service.partner();
    let album = partner.album("Delete one");
    let kept = partner.upload(&album, "kept.jpg", &finish().jpeg());
    let gone = partner.upload(&album, "gone.jpg", &finish().jpeg());
    partner.wait_idle(&album);
    assert_eq!(partner.find_face(&album, &Picture::selfie(1).jpeg()).len(), 2);
    let preview = text(&partner.photo(&album, &gone)["url"]);
    assert_eq!(service.objects().len(), 6, "original, preview and thumbnail of each");

    partner.ok("/photos/photo/delete", &json!({ "albumId": album, "photoId": gone }));

    assert_eq!(ids(&partner.find_face(&album, &Picture::selfie(1).jpeg())), [&*kept]);
    assert_eq!(ids(&partner.find_text(&album, "1204")), [&*kept]);
    assert_eq!(ids(&partner.photos(&album)), [&*kept]);
    partner.call("/photos/photo/get", &json!({ "albumId": album, "photoId": gone })).defined(404);
    partner.confirm(&album, &gone).defined(404);
    assert_eq!(partner.get(&preview).status, 404);
    assert_eq!(service.objects().len(), 3, "{:?}", service.objects());
    assert_eq!(partner.progress(&album)["total"], 1);
}

#[test]
fn a_deleted_album_leaves_nothing() {
    let service = Service::start(Options::fakes());
    let partner = service.partner();
    let album = partner.album("Delete all");
    partner.upload(&album, "a.jpg", &finish().jpeg());
    partner.selfie(&album, &Picture::selfie(1).jpeg());
    partner.wait_idle(&album);
    assert_eq!(service.objects().len(), 4);
    partner.ok("/albums/delete", &json!({ "albumId": album }));
    assert_eq!(service.objects(), Vec::<std::path::PathBuf>::new());
    for path in [
        "/albums/get",
        "/albums/progress",
        "/photos/photo/list",
        "/photos/search/face/signed",
        "/albums/delete",
    ] {
        partner.call(path, &json!({ "albumId": album })).defined(404);
    }
    assert_eq!(partner.ok("/albums/list", &json!({}))["total"], 0);
}

#[test]
fn a_deleted_photo_that_is_still_queued_never_comes_back() {
    let service = service();
    let partner = service.partner();
    let album = partner.album("Queued");
    let photo = Picture::new(2400, 1600).bib("1204", [300, 300]).jpeg();
    let ids: Vec<String> = (0..10).map(|n| partner.upload(&album, &format!("{n}.jpg"), &photo)).collect();
    for id in &ids {
        partner.ok("/photos/photo/delete", &json!({ "albumId": album, "photoId": id }));
    }
    let progress = partner.wait_idle(&album);
    assert_eq!(progress["total"], 0, "{progress}");
    assert_eq!(partner.find_text(&album, "1204"), Vec::<Value>::new());
}

#[test]
fn bytes_that_came_after_their_photo_was_deleted_are_swept() {
    let service = Service::start(Options::fakes());
    let partner = service.partner();
    let album = partner.album("Sweep");
    partner.upload(&album, "kept.jpg", &finish().jpeg());
    let gone = partner.upload(&album, "gone.jpg", &finish().jpeg());
    partner.wait_idle(&album);
    let before = service.objects();
    let original = before.iter().find(|path| path.ends_with(format!("{gone}/original"))).expect("its bytes");
    partner.ok("/photos/photo/delete", &json!({ "albumId": album, "photoId": gone }));
    // As by a presigned URL that still holds.
    std::fs::create_dir_all(original.parent().expect("a folder")).expect("makes it");
    std::fs::write(original, "again").expect("writes it");
    let young = service.run(&["sweep"]);
    assert!(young.success().contains("0 of them without a use"), "{}", young.everything());
    let old = std::time::SystemTime::now() - std::time::Duration::from_secs(49 * 3600);
    for path in service.objects() {
        let file = std::fs::File::options().write(true).open(path).expect("opens it");
        file.set_modified(old).expect("makes it old");
    }
    let dry = service.run(&["sweep", "--dry-run"]);
    assert!(
        dry.success().contains("1 of them without a use (5 bytes) would be removed"),
        "{}",
        dry.everything()
    );
    assert_eq!(service.objects().len(), 4);
    let swept = service.run(&["sweep"]);
    assert!(swept.success().contains("1 of them without a use (5 bytes) removed"), "{}", swept.everything());
    let left: Vec<_> = before.into_iter().filter(|path| !path.to_string_lossy().contains(&*gone)).collect();
    assert_eq!(service.objects(), left);
}

fn ids(photos: &[Value]) -> Vec<&str> {
    photos.iter().filter_map(|photo| photo["id"].as_str()).collect()
}
