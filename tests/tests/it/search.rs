//! Search through the whole pipeline. Order, thresholds and pages are tested in `api/tests/http`.

use std::io::Cursor;

use photofinish_tests::harness::test_photo::TestPhoto;
use photofinish_tests::harness::{
    ALL_SCOPES, Service, ServiceOptions, SharedService, SharedServiceRef, wait_until,
};
use serde_json::json;

static GROUP: SharedService = SharedService::new();

fn service() -> SharedServiceRef {
    GROUP.get_or_start(ServiceOptions::with_fake_models)
}

#[test]
fn a_photo_is_one_hit_however_often_it_shows_the_bib() {
    let service = service();
    let partner = service.partner();
    let album = partner.create_album("Twins");
    let twins = TestPhoto::new(1200, 800)
        .with_bib("314", [100, 100])
        .with_bib("314", [700, 500])
        .with_face(4, [100, 300, 110])
        .with_face(4, [700, 150, 110]);
    let photo = partner.upload_photo(&album, "twins.jpg", &twins.to_jpeg());
    partner.wait_until_idle(&album);
    assert_eq!(partner.get_photo(&album, &photo)["texts"].as_array().map(Vec::len), Some(2));
    assert_eq!(partner.search_by_bib(&album, "314").len(), 1);
    assert_eq!(partner.search_by_selfie(&album, &TestPhoto::selfie(4).to_jpeg()).len(), 1);
}

#[test]
fn the_largest_face_of_a_selfie_is_searched() {
    let service = service();
    let partner = service.partner();
    let album = partner.create_album("Selfie");
    let mine = partner.upload_photo(
        &album,
        "mine.jpg",
        &TestPhoto::new(600, 400).with_face(8, [200, 100, 110]).to_jpeg(),
    );
    partner.upload_photo(
        &album,
        "theirs.jpg",
        &TestPhoto::new(600, 400).with_face(9, [200, 100, 110]).to_jpeg(),
    );
    partner.wait_until_idle(&album);
    let selfie = TestPhoto::new(900, 900).with_face(9, [20, 20, 90]).with_face(8, [300, 200, 400]).to_jpeg();
    let hits = partner.search_by_selfie(&album, &selfie);
    assert_eq!(hits.len(), 1, "{hits:?}");
    assert_eq!(hits[0]["id"], mine);
}

#[test]
fn a_photo_is_found_as_soon_as_it_is_ready_and_not_after_it_is_deleted() {
    let service = service();
    let partner = service.partner();
    let album = partner.create_album("Live");
    let image = partner.upload_selfie(&album, &TestPhoto::selfie(13).to_jpeg());
    assert_eq!(partner.search_by_image(&album, &image).expect_ok()["total"], 0);
    for count in 1..=3 {
        partner.upload_photo(
            &album,
            &format!("{count}.jpg"),
            &TestPhoto::new(600, 400).with_face(13, [200, 100, 110]).to_jpeg(),
        );
        partner.wait_until_idle(&album);
        assert_eq!(
            partner.search_by_image(&album, &image).expect_ok()["total"],
            count,
            "the index follows the database"
        );
    }
    for photo in partner.list_photos(&album) {
        partner.call_ok("/photos/photo/delete", &json!({ "albumId": album, "photoId": photo["id"] }));
    }
    assert_eq!(partner.search_by_image(&album, &image).expect_ok()["total"], 0);
}

#[test]
fn many_large_selfies_of_one_organization_keep_no_other_from_searching() {
    let service = Service::start(ServiceOptions::with_fake_models());
    let [greedy, modest] = ["Greedy Timing", "Lake Timing"]
        .map(|name| service.partner_with(&service.create_key_for(name, &ALL_SCOPES, "test")));
    let mut large = Vec::new();
    let pixels = image::RgbImage::from_pixel(6000, 4000, image::Rgb([90, 120, 150]));
    pixels.write_to(&mut Cursor::new(&mut large), image::ImageFormat::Png).expect("a PNG");
    let album = greedy.create_album("Greedy");
    let images: Vec<String> = (0..30).map(|_| greedy.upload_selfie(&album, &large)).collect();
    let others_album = modest.create_album("Modest");
    let statuses: Vec<u16> = std::thread::scope(|scope| {
        let (greedy, album) = (&greedy, &album);
        let searches: Vec<_> = images
            .iter()
            .map(|image| scope.spawn(move || greedy.search_by_image(album, image).status))
            .collect();
        for person in 1..=4 {
            // Fails at any response but 200.
            modest.search_by_selfie(&others_album, &TestPhoto::selfie(person).to_jpeg());
        }
        searches.into_iter().map(|search| search.join().expect("a response")).collect()
    });
    assert!(statuses.iter().all(|status| [422, 429].contains(status)), "{statuses:?}");
    assert!(statuses.contains(&422) && statuses.contains(&429), "{statuses:?}");
    // Those that were refused for lack of a place are examined once there is one.
    for image in &images {
        wait_until("the selfie is examined", || greedy.search_by_image(&album, image).status == 422);
    }
}
