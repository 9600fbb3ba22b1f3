//! A GPU that fails on a call, lacks memory, does not answer or disappears: no photo is lost, failed or counted twice.

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::thread;
use std::time::Duration;

use photofinish_kernels::batch::letterbox::{self, Placement};
use photofinish_kernels::device::Device;
use photofinish_kernels::gpu::{Buffer, Gpu, GpuError, Program, Resident};
use photofinish_kernels::image::frame::{Frame, Size};
use photofinish_kernels::image::tensor::{Channels, Normalisation, Tensor};
use photofinish_models::bucket::Bucket;
use photofinish_models::fakes::FakeModels;
use photofinish_models::onnx::kernels::KernelDevice;
use photofinish_models::traits::{
    BatchSizes, BibReader, BibText, FaceBox, FaceDetector, FaceEmbedder, ModelError, ModelFactory,
    ModelIdentity, ReadRequest,
};
use photofinish_store::model::ids::{AlbumId, PhotoId};
use photofinish_store::model::photo::StateCounts;
use photofinish_store::traits::{LeaseKind, LeaseRequest};

use crate::support::{PipelineFixture, album_config, encode_jpeg, runner_picture};

/// What the network under test takes of a frame.
const CANVAS: Size = Size { width: 64, height: 64 };
const CANVAS_BYTES: usize = 3 * 64 * 64 * 4;
const INPUT: Normalisation = Normalisation::raw(Channels::Rgb);

/// Frames per call where the device has memory for them.
const BATCH: usize = 8;

const PHOTOS: u16 = 24;

/// The bib of a photo on which the reader fails, alone or in a batch.
const BAD_BIB: &str = "666";

/// What goes wrong with a device.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Fault {
    /// This call fails, counted from 1.
    Call(usize),
    /// There is memory for so many frames.
    Memory(usize),
    /// From this call on the device is gone, until it is opened again.
    Disappears(usize),
    /// This call finds no answer before the device is given up.
    Hangs(usize),
    /// None.
    Nothing,
}

/// What is known of all devices that were opened.
#[derive(Debug)]
struct Log {
    fault: Fault,
    opened: AtomicUsize,
    calls: AtomicUsize,
    /// The most frames of a call that was done, and of one that was refused.
    most_done: AtomicUsize,
    most_refused: AtomicUsize,
}

/// A device that writes zeros, until its fault.
struct FaultyGpu {
    log: Arc<Log>,
    is_lost: AtomicBool,
}

impl fmt::Debug for FaultyGpu {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a device with a fault")
    }
}

impl FaultyGpu {
    fn lose(&self) -> GpuError {
        self.is_lost.store(true, Ordering::SeqCst);
        GpuError::Lost("it fell off the bus".into())
    }

    /// Does nothing, or what the fault does at this call.
    fn fail(&self, call: usize, frames: usize) -> Result<(), GpuError> {
        let is_first = self.log.opened.load(Ordering::SeqCst) == 1;
        if call == 1 && is_first {
            // On a busy machine too photos wait then, and batches form.
            thread::sleep(Duration::from_millis(500));
        }
        match self.log.fault {
            _ if self.is_lost.load(Ordering::SeqCst) => Err(self.lose()),
            Fault::Call(bad) if call == bad => Err(GpuError::Failed("a kernel was rejected".into())),
            Fault::Memory(most) if frames > most => Err(GpuError::OutOfMemory("none left".into())),
            Fault::Disappears(last) if is_first && call >= last => Err(self.lose()),
            Fault::Hangs(bad) if is_first && call == bad => {
                thread::sleep(Duration::from_millis(500));
                Err(self.lose())
            }
            _ => Ok(()),
        }
    }
}

impl Gpu for FaultyGpu {
    fn name(&self) -> String {
        "a device with a fault".into()
    }

    fn max_buffer_bytes(&self) -> usize {
        1 << 30
    }

    fn upload(&self, bytes: &[u8]) -> Result<Resident, GpuError> {
        Ok(Resident { bytes: bytes.len(), memory: Arc::new(()) })
    }

    fn run(&self, program: &Program<'_>) -> Result<Vec<Vec<u8>>, GpuError> {
        let sizes = program.buffers.iter().filter_map(|buffer| match buffer {
            Buffer::Output(bytes) => Some(*bytes),
            _ => None,
        });
        let outputs: Vec<Vec<u8>> = sizes.map(|bytes| vec![0; bytes]).collect();
        let frames = outputs.iter().map(Vec::len).sum::<usize>() / CANVAS_BYTES;
        let call = self.log.calls.fetch_add(1, Ordering::SeqCst) + 1;
        let result = self.fail(call, frames);
        let most = if result.is_ok() { &self.log.most_done } else { &self.log.most_refused };
        most.fetch_max(frames, Ordering::SeqCst);
        result.map(|()| outputs)
    }
}

/// Which network needs the device for each call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum User {
    Detector,
    Reader,
}

const USERS: [User; 2] = [User::Detector, User::Reader];

/// Networks that read painted marks.
struct DeviceModels {
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

/// Processes photos with these bibs, each with a face, on a device with this fault.
fn process_bibs(user: User, fault: Fault, bibs: &[String]) -> Processed {
    let fixture = PipelineFixture::new();
    let album = fixture.create_album(album_config());
    let files = (0..).zip(bibs).map(|(index, bib)| encode_jpeg(&runner_picture(index, bib)));
    let photos = fixture.upload_photos(album, &files.collect::<Vec<_>>());
    let log = Arc::new(Log {
        fault,
        opened: AtomicUsize::default(),
        calls: AtomicUsize::default(),
        most_done: AtomicUsize::default(),
        most_refused: AtomicUsize::default(),
    });
    let opened = Arc::clone(&log);
    let kernels = KernelDevice::opened_by(move || {
        opened.opened.fetch_add(1, Ordering::SeqCst);
        Ok(Arc::new(FaultyGpu { log: Arc::clone(&opened), is_lost: AtomicBool::default() }))
    });
    // A slow network: photos wait for it.
    let fakes = FakeModels { delay: Duration::from_millis(30), ..FakeModels::default() };
    let models = Arc::new(DeviceModels { kernels, user, fakes });
    let blobs = Arc::clone(&fixture.store.blobs);
    let pipeline = fixture.start_pipeline_with(models, blobs, Duration::from_secs(30));
    let counts = fixture.wait_until_processed(album);
    assert!(pipeline.stop().drained);
    Processed { fixture, album, photos, counts, log }
}

/// Processes an album on a device with this fault; every photo must be ready, with its face and its bib.
fn process(user: User, fault: Fault) -> Arc<Log> {
    let bibs: Vec<String> = (0..PHOTOS).map(|index| format!("{}", 100 + index)).collect();
    let Processed { fixture, album, photos, counts, log } = process_bibs(user, fault, &bibs);
    assert_eq!((counts.ready, counts.failed), (u64::from(PHOTOS), 0), "{user:?} {fault:?}");
    for (photo, bib) in photos.iter().zip(&bibs) {
        check_photo(&fixture, album, *photo, bib);
    }
    let request = LeaseRequest { limit: 1, ttl: Duration::from_secs(1), kind: LeaseKind::Fresh };
    assert!(fixture.runtime.block_on(fixture.store.queue.lease(request)).unwrap().is_empty());
    log
}

fn check_photo(fixture: &PipelineFixture, album: AlbumId, photo: PhotoId, bib: &str) {
    let (faces, texts) = fixture.load_detections(album, photo);
    assert_eq!(faces.len(), 1);
    assert_eq!(texts.iter().map(|text| text.text.as_str()).collect::<Vec<_>>(), [bib]);
}

fn count(value: &AtomicUsize) -> usize {
    value.load(Ordering::SeqCst)
}

#[test]
fn a_call_of_a_device_that_fails_costs_no_photo() {
    for (user, call) in USERS.into_iter().flat_map(|user| [1, 2, 3].map(|call| (user, call))) {
        let log = process(user, Fault::Call(call));
        assert_eq!(count(&log.opened), 1, "the generation goes on");
    }
}

#[test]
fn a_device_without_memory_for_a_batch_gets_smaller_ones() {
    for user in USERS {
        let log = process(user, Fault::Memory(2));
        let (done, refused) = (count(&log.most_done), count(&log.most_refused));
        assert!(refused > 2, "{user:?}: batches form: at most {refused} frames were tried");
        assert_eq!(done, 2, "{user:?}: calls are as large as there is memory for");
        assert_eq!(count(&log.opened), 1, "the generation goes on");
    }
}

#[test]
fn a_photo_that_the_device_rejects_fails_alone_and_its_batch_is_read() {
    let mut bibs: Vec<String> = (0..PHOTOS).map(|index| format!("{}", 100 + index)).collect();
    bibs[5] = BAD_BIB.to_owned();
    let Processed { fixture, album, photos, counts, log } = process_bibs(User::Reader, Fault::Nothing, &bibs);
    assert_eq!((counts.ready, counts.failed), (u64::from(PHOTOS) - 1, 1));
    assert!(count(&log.most_done) > 1, "batches form");
    for (photo, bib) in photos.iter().zip(&bibs).filter(|(_, bib)| *bib != BAD_BIB) {
        check_photo(&fixture, album, *photo, bib);
    }
}

#[test]
fn a_device_that_disappears_is_opened_again_and_its_photos_are_given_back() {
    for user in USERS {
        let log = process(user, Fault::Disappears(2));
        assert_eq!(count(&log.opened), 2);
        assert!(count(&log.most_done) > 1, "{user:?}: batches form");
    }
}

#[test]
fn a_device_that_does_not_answer_is_opened_again() {
    for user in USERS {
        assert_eq!(count(&process(user, Fault::Hangs(2)).opened), 2);
    }
}
