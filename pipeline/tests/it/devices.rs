//! A GPU that fails on a call, lacks memory, does not answer or disappears: no photo is lost, failed or counted twice.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use photofinish_kernels::batch::letterbox::{self, Placement};
use photofinish_kernels::device::Device;
use photofinish_kernels::image::frame::Frame;
use photofinish_kernels::image::tensor::{Channels, Normalisation, Tensor};
use photofinish_models::bucket::Bucket;
use photofinish_models::fakes::FakeModels;
use photofinish_models::onnx::kernels::KernelDevice;
use photofinish_models::traits::{
    BatchSizes, BibReader, BibText, FaceBox, FaceDetector, FaceEmbedder, ModelError, ModelFactory,
    ModelIdentity, ReadRequest,
};
use photofinish_pipeline::{Component, PipelineSettings, PipelineStatus};
use photofinish_store::model::ids::{AlbumId, PhotoId};
use photofinish_store::model::photo::StateCounts;
use photofinish_store::traits::{LeaseKind, LeaseRequest};

use crate::faulty_gpu::{CANVAS, Fault, FaultyGpu, Log};
use crate::support::{PipelineFixture, album_config, encode_jpeg, runner_picture, test_settings, wait_for};

const INPUT: Normalisation = Normalisation::raw(Channels::Rgb);

/// Frames per call where the device has memory for them.
const BATCH: usize = 16;

const PHOTOS: u16 = 24;

/// How long the first call of a device takes, so that photos wait for it: on a busy machine longer.
const PATIENCE: [Duration; 4] =
    [Duration::from_millis(500), Duration::from_secs(2), Duration::from_secs(8), Duration::from_secs(30)];

/// The bib of a photo on which the reader fails, alone or in a batch.
const BAD_BIB: &str = "666";

/// The bib of a photo at which the device is lost, whenever it is read.
const LOSING_BIB: &str = "667";

/// Which network needs the device for each call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum User {
    Detector,
    Reader,
}

const USERS: [User; 2] = [User::Detector, User::Reader];

/// Networks that read painted marks.
pub struct DeviceModels {
    kernels: KernelDevice,
    user: User,
    fakes: FakeModels,
}

/// A network that puts its frames on the device, and finds marks in those that came through.
struct OnDevice<N: ?Sized> {
    kernels: KernelDevice,
    bucket: Bucket,
    input: Tensor,
    marks: Box<N>,
}

impl<N: ?Sized> OnDevice<N> {
    fn new(models: &DeviceModels, marks: Box<N>) -> Result<Box<Self>, ModelError> {
        models.kernels.open()?;
        let (bucket, input) = (Bucket::new(BATCH), Tensor::default());
        Ok(Box::new(Self { kernels: models.kernels.clone(), bucket, input, marks }))
    }

    fn run<I, O>(
        &mut self,
        items: &[I],
        frame: impl Fn(&I) -> Frame<'_>,
        find: impl Fn(&mut N, &[I]) -> Result<Vec<O>, ModelError>,
    ) -> Result<Vec<O>, ModelError> {
        let mut bucket = self.bucket;
        let found = bucket.run(items, |part| {
            let placements: Vec<_> = part.iter().map(|item| place(frame(item))).collect();
            let input = &mut self.input;
            let place_all =
                |device: &Device| letterbox::place_all(device, &placements, CANVAS, &INPUT, input);
            self.kernels.run("network", place_all)?;
            find(self.marks.as_mut(), part)
        });
        self.bucket = bucket;
        found
    }
}

impl ModelFactory for DeviceModels {
    fn create_face_detector(&self) -> Result<Box<dyn FaceDetector>, ModelError> {
        let marks = self.fakes.create_face_detector()?;
        if self.user == User::Detector { Ok(OnDevice::new(self, marks)?) } else { Ok(marks) }
    }

    fn create_face_embedder(&self) -> Result<Box<dyn FaceEmbedder>, ModelError> {
        self.fakes.create_face_embedder()
    }

    fn create_bib_reader(&self) -> Result<Box<dyn BibReader>, ModelError> {
        let marks = self.fakes.create_bib_reader()?;
        if self.user == User::Reader { Ok(OnDevice::new(self, marks)?) } else { Ok(marks) }
    }

    fn batch_sizes(&self) -> BatchSizes {
        BatchSizes { detect: BATCH, embed: BATCH, read: BATCH }
    }

    fn uses_cores(&self) -> bool {
        false
    }

    fn longest_device_call(&self) -> Option<Duration> {
        self.kernels.longest_call()
    }
}

impl FaceDetector for OnDevice<dyn FaceDetector> {
    fn detect(&mut self, frames: &[Frame<'_>], long_side: u32) -> Result<Vec<Vec<FaceBox>>, ModelError> {
        self.run(frames, |frame| *frame, |marks, part| marks.detect(part, long_side))
    }

    fn identity(&self) -> &ModelIdentity {
        self.marks.identity()
    }
}

impl BibReader for OnDevice<dyn BibReader> {
    fn read(&mut self, photos: &[ReadRequest<'_>]) -> Result<Vec<Vec<BibText>>, ModelError> {
        self.run(
            photos,
            |photo| photo.frame,
            |marks, part| {
                let found = marks.read(part)?;
                if found.iter().flatten().any(|text| text.text == BAD_BIB) {
                    return Err(ModelError::Inference {
                        name: "reader".into(),
                        detail: "a bad photo".into(),
                    });
                }
                if found.iter().flatten().any(|text| text.text == LOSING_BIB) {
                    return Err(ModelError::Device { device: "faulty".into(), detail: "lost".into() });
                }
                Ok(found)
            },
        )
    }

    fn identity(&self) -> &ModelIdentity {
        self.marks.identity()
    }
}

fn place(frame: Frame<'_>) -> Placement<'_> {
    Placement { window: frame.as_window(), size: frame.size().fit_within(CANVAS.width), skipped_rows: 0 }
}

/// An album processed on a device.
struct Processed {
    fixture: PipelineFixture,
    album: AlbumId,
    photos: Vec<PhotoId>,
    counts: StateCounts,
    log: Arc<Log>,
}

/// Networks on a device with this fault, as a process has them that has just started.
pub fn start_models(user: User, fault: Fault, patience: Duration) -> (Arc<DeviceModels>, Arc<Log>) {
    let log = Log::new(fault, patience);
    (models_on(user, &log), log)
}

/// Networks on the device of this log.
pub fn models_on(user: User, log: &Arc<Log>) -> Arc<DeviceModels> {
    let opened = Arc::clone(log);
    let kernels = KernelDevice::opened_by(move || Ok(FaultyGpu::open(&opened)));
    // A slow network: photos wait for it.
    let fakes = FakeModels { delay: Duration::from_millis(30), ..FakeModels::default() };
    Arc::new(DeviceModels { kernels, user, fakes })
}

fn upload(fixture: &PipelineFixture, bibs: &[String]) -> (AlbumId, Vec<PhotoId>) {
    let album = fixture.create_album(album_config());
    let files = (0..).zip(bibs).map(|(index, bib)| encode_jpeg(&runner_picture(index, bib)));
    (album, fixture.upload_photos(album, &files.collect::<Vec<_>>()))
}

/// Processes photos with these bibs, each with a face, on a device with this fault.
fn process_bibs(user: User, fault: Fault, bibs: &[String], patience: Duration) -> Processed {
    // Photos at whose processing the device is lost wait for the end of their leases.
    let settings = PipelineSettings { lease_ttl: Duration::from_secs(3), ..test_settings() };
    process_bibs_with(settings, user, fault, bibs, patience)
}

fn process_bibs_with(
    settings: PipelineSettings,
    user: User,
    fault: Fault,
    bibs: &[String],
    patience: Duration,
) -> Processed {
    let fixture = PipelineFixture::new();
    let (album, photos) = upload(&fixture, bibs);
    let (models, log) = start_models(user, fault, patience);
    let blobs = Arc::clone(&fixture.store.blobs);
    let pipeline = fixture.start_pipeline_with_settings(settings, models, blobs);
    let counts = fixture.wait_until_processed(album);
    assert!(pipeline.stop().drained);
    Processed { fixture, album, photos, counts, log }
}

/// Processes an album on a device with this fault; every photo must be ready, with its face and its bib.
fn process(user: User, fault: Fault, patience: Duration) -> Arc<Log> {
    let bibs = number_photos();
    check_all(process_bibs(user, fault, &bibs, patience), &bibs)
}

/// Checks that every photo is ready, with its face and its bib, and none is queued.
fn check_all(processed: Processed, bibs: &[String]) -> Arc<Log> {
    let Processed { fixture, album, photos, counts, log } = processed;
    assert_eq!((counts.ready, counts.failed), (u64::from(PHOTOS), 0), "{:?}", log.fault);
    for (photo, bib) in photos.iter().zip(bibs) {
        check_photo(&fixture, album, *photo, bib);
    }
    let request = LeaseRequest { limit: 1, ttl: Duration::from_secs(1), kind: LeaseKind::Fresh };
    assert!(fixture.runtime.block_on(fixture.store.queue.lease(request)).unwrap().is_empty());
    log
}

/// Does it again with more patience until batches have formed: on a busy machine photos arrive slowly.
fn process_in_batches(user: User, fault: Fault, have_formed: impl Fn(&Log) -> bool) -> Arc<Log> {
    let mut logs = PATIENCE.into_iter().map(|patience| process(user, fault, patience));
    logs.find(|log| have_formed(log)).expect("batches form")
}

pub fn check_photo(fixture: &PipelineFixture, album: AlbumId, photo: PhotoId, bib: &str) {
    let (faces, texts) = fixture.load_detections(album, photo);
    assert_eq!(faces.len(), 1);
    assert_eq!(texts.iter().map(|text| text.text.as_str()).collect::<Vec<_>>(), [bib]);
}

fn number_photos() -> Vec<String> {
    (0..PHOTOS).map(|index| format!("{}", 100 + index)).collect()
}

pub fn count(value: &AtomicUsize) -> usize {
    value.load(Ordering::SeqCst)
}

#[test]
fn a_call_of_a_device_that_fails_costs_no_photo() {
    for (user, call) in USERS.into_iter().flat_map(|user| [1, 2, 3].map(|call| (user, call))) {
        let log = process(user, Fault::Call(call), PATIENCE[0]);
        assert_eq!(count(&log.opened), 1, "the generation goes on");
    }
}

#[test]
fn a_device_without_memory_for_a_batch_gets_smaller_ones() {
    // One thread for each stage and pixels of all photos, so that more than eight wait and go into a call of 16.
    let settings = PipelineSettings { read_threads: 1, pixel_budget_bytes: 512 << 20, ..test_settings() };
    let bibs = number_photos();
    for (user, memory, largest) in USERS.into_iter().flat_map(|user| [(user, 8, 4), (user, 1, 1)]) {
        let process = |patience| {
            let fault = Fault::Memory(memory);
            check_all(process_bibs_with(settings.clone(), user, fault, &bibs, patience), &bibs)
        };
        let mut logs = PATIENCE.into_iter().map(process);
        let log = logs.find(|log| count(&log.most_refused) > 8).expect("batches of more than eight form");
        assert_eq!(count(&log.most_done), largest, "{user:?}: calls are as large as there is memory for");
        assert_eq!(count(&log.opened), 1, "the generation goes on");
    }
}

#[test]
fn a_photo_that_the_device_rejects_fails_alone_and_its_batch_is_read() {
    let mut bibs = number_photos();
    bibs[5] = BAD_BIB.to_owned();
    let mut processed =
        PATIENCE.into_iter().map(|patience| process_bibs(User::Reader, Fault::Nothing, &bibs, patience));
    let in_batches = processed.find(|processed| count(&processed.log.most_done) > 1);
    let Processed { fixture, album, photos, counts, .. } = in_batches.expect("batches form");
    assert_eq!((counts.ready, counts.failed), (u64::from(PHOTOS) - 1, 1));
    for (photo, bib) in photos.iter().zip(&bibs).filter(|(_, bib)| *bib != BAD_BIB) {
        check_photo(&fixture, album, *photo, bib);
    }
}

#[test]
fn a_device_that_disappears_is_opened_again_and_its_photos_are_given_back() {
    for user in USERS {
        let log = process_in_batches(user, Fault::Disappears(2), |log| count(&log.most_done) > 1);
        assert_eq!(count(&log.opened), 2);
    }
}

#[test]
fn a_device_that_does_not_answer_is_opened_again() {
    for user in USERS {
        assert_eq!(count(&process(user, Fault::Hangs(2), PATIENCE[0]).opened), 2);
    }
}

#[test]
fn a_call_that_never_returns_ends_the_pipeline_and_another_process_finishes_its_photos() {
    let bibs = number_photos();
    let fixture = PipelineFixture::new();
    let (album, photos) = upload(&fixture, &bibs);
    let (models, _) = start_models(User::Reader, Fault::NeverReturns(2), PATIENCE[0]);
    let settings = PipelineSettings {
        read_threads: 1,
        lease_ttl: Duration::from_secs(3),
        device_call_limit: Duration::from_secs(5),
        ..test_settings()
    };
    let pipeline = fixture.start_pipeline_with_settings(settings, models, Arc::clone(&fixture.store.blobs));
    let reason = wait_for("the end of the pipeline", || pipeline.device_failure().map(str::to_owned));
    assert!(reason.contains("has not returned"), "{reason}");
    let status = pipeline.status();
    assert!(matches!(status, PipelineStatus::Down { component: Component::Models, .. }), "{status:?}");
    let report = pipeline.stop();
    assert_eq!((report.drained, report.abandoned_threads.as_slice()), (false, &["read-0".to_owned()][..]));
    assert!(report.given_back > 0, "those that other threads had are given back: {report:?}");
    let held = report.unfinished;
    assert!(
        (1..=BATCH).contains(&held),
        "the batch of the thread that hangs, until its leases expire: {held}"
    );

    finish_in_another_process(&fixture, album, &photos, &bibs);
}

/// Processes what is left of an album with a device that works; every photo must be ready.
fn finish_in_another_process(fixture: &PipelineFixture, album: AlbumId, photos: &[PhotoId], bibs: &[String]) {
    let (models, log) = start_models(User::Reader, Fault::Nothing, PATIENCE[0]);
    let blobs = Arc::clone(&fixture.store.blobs);
    let pipeline = fixture.start_pipeline_with(models, blobs, Duration::from_secs(30));
    let counts = fixture.wait_until_processed(album);
    assert_eq!((counts.ready, counts.failed), (u64::from(PHOTOS), 0));
    assert!(pipeline.stop().drained);
    assert_eq!(count(&log.opened), 1);
    for (photo, bib) in photos.iter().zip(bibs) {
        check_photo(fixture, album, *photo, bib);
    }
}

#[test]
fn a_device_that_is_gone_for_good_ends_the_pipeline_and_another_process_finishes_its_photos() {
    let bibs = number_photos();
    let fixture = PipelineFixture::new();
    let (album, photos) = upload(&fixture, &bibs);
    let (models, log) = start_models(User::Reader, Fault::IsGone(2), PATIENCE[0]);
    let settings = PipelineSettings { lease_ttl: Duration::from_secs(3), ..test_settings() };
    let pipeline = fixture.start_pipeline_with_settings(settings, models, Arc::clone(&fixture.store.blobs));
    let reason = wait_for("the end of the pipeline", || pipeline.device_failure().map(str::to_owned));
    // Which of the stages notices it last is a matter of luck: the others find the device closed.
    assert!(reason.contains("fell off the bus") || reason.contains("it is not open"), "{reason}");
    assert!(count(&log.opened) > 1, "it was tried again");
    let status = pipeline.status();
    assert!(matches!(status, PipelineStatus::Down { component: Component::Models, .. }), "{status:?}");
    pipeline.stop();
    finish_in_another_process(&fixture, album, &photos, &bibs);
}

#[test]
fn a_photo_at_which_the_device_is_always_lost_fails_and_all_others_are_read() {
    let mut bibs = number_photos();
    bibs[5] = LOSING_BIB.to_owned();
    let fixture = PipelineFixture::new();
    let (album, photos) = upload(&fixture, &bibs);
    let (models, _) = start_models(User::Reader, Fault::Nothing, PATIENCE[0]);
    let settings = PipelineSettings { lease_ttl: Duration::from_secs(3), ..test_settings() };
    let pipeline = fixture.start_pipeline_with_settings(settings, models, Arc::clone(&fixture.store.blobs));
    let counts = fixture.wait_until_processed(album);
    assert_eq!((counts.ready, counts.failed), (u64::from(PHOTOS) - 1, 1));
    for (photo, bib) in photos.iter().zip(&bibs).filter(|(_, bib)| *bib != LOSING_BIB) {
        check_photo(&fixture, album, *photo, bib);
    }
    assert_eq!(pipeline.device_failure(), None, "the device can be opened again");
    assert!(pipeline.stop().drained);
}
