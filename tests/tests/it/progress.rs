//! The progress of an album, as a stream.

use photofinish_client::{ClientError, Progress};
use photofinish_tests::harness::test_photo::TestPhoto;
use photofinish_tests::harness::{Service, ServiceOptions};

#[test]
fn progress_streams_until_the_album_is_idle() {
    let service = Service::start(ServiceOptions::with_fake_models());
    let partner = service.partner();
    let album = partner.create_album("Stream");
    let photo = TestPhoto::new(2400, 1600).with_bib("1204", [300, 300]).to_jpeg();
    for number in 0..12 {
        partner.upload_photo(&album, &format!("{number}.jpg"), &photo);
    }
    let stream = partner.client().stream_progress(&album).expect("a stream");
    let events: Vec<Progress> = stream.map(|event| event.expect("progress until the end")).collect();
    for event in &events {
        let sum = event.awaiting_upload + event.queued + event.processing + event.ready + event.failed;
        assert_eq!(event.total, sum, "{event:?}");
    }
    let last = events.last().expect("an event");
    assert_eq!((last.ready, last.is_idle()), (12, true), "{last:?}");
    assert_eq!(
        (last.photos_per_second, last.seconds_left, &last.bottleneck),
        (None, None, &None),
        "{last:?}"
    );
    let missing = partner.client().stream_progress("01890000-0000-7000-8000-000000000000");
    assert!(matches!(missing.err(), Some(ClientError::Refused { error, .. }) if error.status == 404));
}

#[test]
fn an_api_names_the_bottleneck_of_its_workers() {
    let api = Service::start(ServiceOptions::with_fake_models().with_role("serve"));
    let delay = ServiceOptions::with_fake_models().with_setting("PHOTOFINISH_FAKE_DELAY_MS", "400");
    let worker = api.start_beside(delay.with_role("work"));
    let partner = api.partner();
    let album = partner.create_album("Cluster");
    let photo = TestPhoto::new(600, 400).to_jpeg();
    for number in 0..40 {
        partner.upload_photo(&album, &format!("{number}.jpg"), &photo);
    }
    let stream = partner.client().stream_progress(&album).expect("a stream");
    let events: Vec<Progress> = stream.map(|event| event.expect("progress until the end")).collect();
    let named: Vec<&str> = events.iter().filter_map(|event| event.bottleneck.as_deref()).collect();
    assert!(named.contains(&"read"), "{events:?}");
    drop(worker);
}
