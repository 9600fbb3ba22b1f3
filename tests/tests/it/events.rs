//! Events of a whole service, from the upload to the list.

use std::collections::BTreeSet;
use std::time::{Duration, Instant};

use photofinish_tests::harness::test_photo::TestPhoto;
use photofinish_tests::harness::{Service, ServiceOptions};
use serde_json::{Value, json};

/// An album is idle after ten seconds; the machine may be busy.
const WAIT_LIMIT: Duration = Duration::from_secs(120);

/// The events after a cursor until one has this type, with the cursor after them.
fn events_until(service: &Service, cursor: Option<&Value>, last: &str) -> (Vec<Value>, Value) {
    let begin = Instant::now();
    let input = cursor.map_or_else(|| json!({}), |cursor| json!({ "cursor": cursor }));
    let partner = service.partner();
    loop {
        let page: Value = partner.client().call("events/list", &input).expect("events");
        let events = page["events"].as_array().expect("a list").clone();
        if events.iter().any(|event| event["type"] == last) {
            return (events, page["nextCursor"].clone());
        }
        assert!(begin.elapsed() < WAIT_LIMIT, "no {last} in {events:?}");
        std::thread::sleep(Duration::from_millis(100));
    }
}

#[test]
fn what_happens_to_photos_is_told() {
    let service = Service::start(ServiceOptions::with_fake_models());
    let partner = service.partner();
    let album = partner.create_album("Told");
    let photo = TestPhoto::new(600, 400).to_jpeg();
    let mut ready: BTreeSet<String> =
        (0..5).map(|number| partner.upload_photo(&album, &format!("{number}.jpg"), &photo)).collect();
    let damaged = partner.upload_photo(&album, "damaged.jpg", &photo[..photo.len() / 2]);
    let (events, cursor) = events_until(&service, None, "album.idle");
    for event in &events {
        assert_eq!(event["data"]["albumId"], json!(album), "{event}");
    }
    let failed: Vec<&Value> = events.iter().filter(|event| event["type"] == "photo.failed").collect();
    assert_eq!(failed.len(), 1, "{events:?}");
    let expected = json!([{ "photoId": damaged, "reason": "CORRUPT_IMAGE" }]);
    assert_eq!(failed[0]["data"]["photos"], expected);
    for event in events.iter().filter(|event| event["type"] == "photo.ready") {
        for photo in event["data"]["photos"].as_array().expect("a list") {
            let photo = photo["photoId"].as_str().expect("an id");
            assert!(ready.remove(photo), "{photo} is told twice or unknown");
        }
    }
    assert!(ready.is_empty(), "not told: {ready:?}");
    let idle = &events.last().expect("an event")["data"];
    assert_eq!((&idle["ready"], &idle["failed"], &idle["total"]), (&json!(5), &json!(1), &json!(6)));
    // Another process goes on where the killed one was.
    service.kill();
    service.restart();
    let _: Value =
        partner.client().call("albums/delete", &json!({ "albumId": album })).expect("the album is deleted");
    let (events, _) = events_until(&service, Some(&cursor), "album.deleted");
    assert_eq!(events.len(), 1, "{events:?}");
    assert_eq!(events[0]["data"]["photos"], json!(6));
}
