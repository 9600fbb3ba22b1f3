//! Two GPUs in one process: they share the photos, and one that is lost leaves the rest to the other.

use std::sync::Arc;
use std::time::Duration;

use crossbeam_channel::bounded;
use photofinish_models::traits::ModelFactory;
use photofinish_pipeline::{Pipeline, PipelineSettings, PipelineStatus};
use photofinish_store::model::ids::{AlbumId, PhotoId};

use crate::devices::{User, check_photo, count, models_on, start_models};
use crate::faulty_gpu::{Fault, Log};
use crate::support::{
    PipelineFixture, album_config, encode_jpeg, runner_picture, test_settings, wait_for, wait_until_running,
};

const BIB: &str = "100";

/// Starts a pipeline on devices with these logs, and waits until all of them are ready for photos.
fn start(fixture: &PipelineFixture, settings: PipelineSettings, logs: &[Arc<Log>]) -> Pipeline {
    let models = logs.iter().map(|log| models_on(User::Reader, log) as Arc<dyn ModelFactory>).collect();
    let pipeline = fixture.start_pipeline_on(settings, models, Arc::clone(&fixture.store.blobs));
    wait_until_running(&pipeline);
    pipeline
}

/// Leases end soon, for photos that a lost device had in its hands.
fn settings_with_short_leases() -> PipelineSettings {
    PipelineSettings { lease_ttl: Duration::from_secs(3), ..test_settings() }
}

fn logs(faults: [Fault; 2]) -> [Arc<Log>; 2] {
    faults.map(|fault| Log::new(fault, Duration::ZERO))
}

/// Uploads copies of one photo at once.
fn upload(fixture: &PipelineFixture, pipeline: &Pipeline, photos: usize) -> (AlbumId, Vec<PhotoId>) {
    let album = fixture.create_album(album_config());
    let file = encode_jpeg(&runner_picture(1, BIB));
    let photos = fixture.upload_photos(album, &vec![file; photos]);
    pipeline.wake();
    (album, photos)
}

/// Waits until all photos are ready, each with its face and its bib.
fn check_album(fixture: &PipelineFixture, album: AlbumId, photos: &[PhotoId]) {
    let counts = fixture.wait_until_processed(album);
    assert_eq!((counts.ready, counts.failed), (photos.len() as u64, 0));
    photos.iter().for_each(|photo| check_photo(fixture, album, *photo, BIB));
}

fn done(logs: &[Arc<Log>; 2]) -> [usize; 2] {
    [count(&logs[0].done), count(&logs[1].done)]
}

/// Waits until a device is given up, and checks that the status says so.
fn wait_until_given_up(pipeline: &Pipeline, device: &str) {
    let text = format!("1 of 2 devices work; {device} does not until the process is replaced: ");
    wait_for("the end of a device", || match pipeline.status() {
        PipelineStatus::RunningOnSome { reason } if reason.starts_with(&text) => Some(()),
        _ => None,
    });
    assert_eq!(pipeline.device_failure(), None, "the process has another device");
}

#[test]
fn two_devices_share_the_photos_and_each_photo_is_read_once() {
    let fixture = PipelineFixture::new();
    let logs = logs([Fault::Nothing, Fault::Nothing]);
    let pipeline = start(&fixture, test_settings(), &logs);
    let (album, photos) = upload(&fixture, &pipeline, 90);
    check_album(&fixture, album, &photos);
    let report = pipeline.stop();
    assert!(report.drained && report.abandoned_threads.is_empty(), "{report:?}");
    assert_eq!((report.given_back, report.unfinished), (0, 0));
    let done = done(&logs);
    assert!(done.iter().sum::<usize>() == photos.len() && done.iter().all(|count| *count > 0), "{done:?}");
}

#[test]
fn the_slower_of_two_devices_gets_fewer_photos() {
    let fixture = PipelineFixture::new();
    let (open, gate) = bounded(0);
    let slow = Log::gated(gate);
    let fast = Log::new(Fault::Nothing, Duration::ZERO);
    let logs = [slow, fast];
    let pipeline = start(&fixture, test_settings(), &logs);
    let (album, photos) = upload(&fixture, &pipeline, 160);
    // All but those for which the slow one had room: 32 leases, 8 files and the pixels of its budget.
    wait_for("the photos of the fast device", || (fixture.state_counts(album).ready >= 90).then_some(()));
    assert_eq!(count(&logs[0].done), 0);
    drop(open);
    check_album(&fixture, album, &photos);
    assert!(pipeline.stop().drained);
    let done = done(&logs);
    assert!(done[0] > 0 && done[0] < done[1] && done[0] + done[1] == photos.len(), "{done:?}");
}

#[test]
fn a_device_that_is_gone_for_good_gives_its_photos_back_and_the_other_goes_on() {
    let fixture = PipelineFixture::new();
    let logs = logs([Fault::IsGone(2), Fault::Nothing]);
    let pipeline = start(&fixture, settings_with_short_leases(), &logs);
    let (album, photos) = upload(&fixture, &pipeline, 60);
    check_album(&fixture, album, &photos);
    wait_until_given_up(&pipeline, "device 0");
    assert_eq!(count(&logs[1].opened), 1, "the generation of the other goes on");
    // It still does.
    let (album, photos) = upload(&fixture, &pipeline, 10);
    check_album(&fixture, album, &photos);
    let report = pipeline.stop();
    assert_eq!((report.unfinished, report.abandoned_threads.len()), (0, 0), "{report:?}");
    assert!(report.given_back > 0, "{report:?}");
}

#[test]
fn a_call_that_never_returns_on_one_device_leaves_the_rest_to_the_other() {
    let fixture = PipelineFixture::new();
    let logs = logs([Fault::Nothing, Fault::NeverReturns(2)]);
    let settings = PipelineSettings {
        read_threads: 1,
        device_call_limit: Duration::from_secs(5),
        ..settings_with_short_leases()
    };
    let pipeline = start(&fixture, settings, &logs);
    let (album, photos) = upload(&fixture, &pipeline, 60);
    check_album(&fixture, album, &photos);
    wait_until_given_up(&pipeline, "device 1");
    let report = pipeline.stop();
    assert_eq!(report.abandoned_threads, ["read-0 of device 1"]);
    assert_eq!(count(&logs[0].opened), 1, "the generation of the other goes on");
}

#[test]
fn the_process_has_to_be_replaced_when_no_device_is_left() {
    let fixture = PipelineFixture::new();
    let logs = logs([Fault::IsGone(2), Fault::IsGone(2)]);
    let pipeline = start(&fixture, settings_with_short_leases(), &logs);
    let (album, photos) = upload(&fixture, &pipeline, 60);
    let reason = wait_for("the end of the pipeline", || pipeline.device_failure().map(str::to_owned));
    assert!(reason.contains("fell off the bus") || reason.contains("it is not open"), "{reason}");
    let PipelineStatus::Down { reason, .. } = pipeline.status() else { panic!("{:?}", pipeline.status()) };
    assert!(reason.starts_with("0 of 2 devices work; device 0 does not until"), "{reason}");
    pipeline.stop();
    // Another process finishes its photos.
    let (models, _) = start_models(User::Reader, Fault::Nothing, Duration::ZERO);
    let blobs = Arc::clone(&fixture.store.blobs);
    let pipeline = fixture.start_pipeline_with(models, blobs, Duration::from_secs(30));
    check_album(&fixture, album, &photos);
    assert!(pipeline.stop().drained);
}

#[test]
fn a_stop_gives_back_the_photos_of_all_devices() {
    let fixture = PipelineFixture::new();
    let gates: [_; 2] = std::array::from_fn(|_| bounded(0));
    let logs = gates.each_ref().map(|(_, gate)| Log::gated(gate.clone()));
    let settings = PipelineSettings { drain_grace: Duration::from_millis(1), ..test_settings() };
    let pipeline = start(&fixture, settings, &logs);
    let (album, photos) = upload(&fixture, &pipeline, 100);
    // More than one has room for.
    wait_for("photos on both devices", || (pipeline.in_flight() > 60).then_some(()));
    wait_for("calls of both", || logs.iter().all(|log| count(&log.calls) > 0).then_some(()));
    let report = pipeline.stop();
    assert!(!report.drained && report.unfinished == 0 && report.given_back > 60, "{report:?}");
    let counts = fixture.state_counts(album);
    assert_eq!((counts.processing, counts.failed, counts.queued), (0, 0, 100), "{counts:?}");
    drop(gates);
    let pipeline = start(&fixture, test_settings(), &self::logs([Fault::Nothing, Fault::Nothing]));
    check_album(&fixture, album, &photos);
    assert!(pipeline.stop().drained);
}
