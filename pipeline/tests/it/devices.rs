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
    BatchSizes, BibReader, FaceBox, FaceDetector, FaceEmbedder, ModelError, ModelFactory, ModelIdentity,
};
use photofinish_store::model::ids::{AlbumId, PhotoId};
use photofinish_store::traits::{LeaseKind, LeaseRequest};

use crate::support::{PipelineFixture, album_config, encode_jpeg, runner_picture};

/// What the network under test takes of a frame.
const CANVAS: Size = Size { width: 64, height: 64 };
const CANVAS_BYTES: usize = 3 * 64 * 64 * 4;
const INPUT: Normalisation = Normalisation::raw(Channels::Rgb);

/// Frames per call where the device has memory for them.
const BATCH: usize = 8;

const PHOTOS: u16 = 24;

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

/// Networks that read painted marks; the detector needs the device for each call.
struct DeviceModels {
    kernels: KernelDevice,
    fakes: FakeModels,
}

struct DeviceDetector {
    kernels: KernelDevice,
    bucket: Bucket,
    input: Tensor,
    marks: Box<dyn FaceDetector>,
}

impl ModelFactory for DeviceModels {
    fn create_face_detector(&self) -> Result<Box<dyn FaceDetector>, ModelError> {
        self.kernels.open()?;
        let (kernels, marks) = (self.kernels.clone(), self.fakes.create_face_detector()?);
        Ok(Box::new(DeviceDetector { kernels, bucket: Bucket::new(BATCH), input: Tensor::default(), marks }))
    }

    fn create_face_embedder(&self) -> Result<Box<dyn FaceEmbedder>, ModelError> {
        self.fakes.create_face_embedder()
    }

    fn create_bib_reader(&self) -> Result<Box<dyn BibReader>, ModelError> {
        self.fakes.create_bib_reader()
    }

    fn batch_sizes(&self) -> BatchSizes {
        BatchSizes { detect: BATCH, embed: BATCH, read: BATCH }
    }
}

impl FaceDetector for DeviceDetector {
    fn detect(&mut self, frames: &[Frame<'_>], long_side: u32) -> Result<Vec<Vec<FaceBox>>, ModelError> {
        let mut bucket = self.bucket;
        let found = bucket.run(frames, |part| {
            let (placements, input): (Vec<_>, _) = (part.iter().map(place).collect(), &mut self.input);
            let place_all =
                |device: &Device| letterbox::place_all(device, &placements, CANVAS, &INPUT, input);
            self.kernels.run("detector", place_all)?;
            self.marks.detect(part, long_side)
        });
        self.bucket = bucket;
        found
    }

    fn identity(&self) -> &ModelIdentity {
        self.marks.identity()
    }
}

fn place<'a>(frame: &Frame<'a>) -> Placement<'a> {
    Placement { window: frame.as_window(), size: frame.size().fit_within(CANVAS.width), skipped_rows: 0 }
}

/// Processes an album on a device with this fault; every photo must be ready, with its face and its bib.
fn process(fault: Fault) -> Arc<Log> {
    let fixture = PipelineFixture::new();
    let album = fixture.create_album(album_config());
    let bib = |index: u16| format!("{}", 100 + index);
    let files = (0..PHOTOS).map(|index| encode_jpeg(&runner_picture(index, &bib(index))));
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
    let models = Arc::new(DeviceModels { kernels, fakes });
    let blobs = Arc::clone(&fixture.store.blobs);
    let pipeline = fixture.start_pipeline_with(models, blobs, Duration::from_secs(30));
    let counts = fixture.wait_until_processed(album);
    assert!(pipeline.stop().drained);
    assert_eq!((counts.ready, counts.failed), (u64::from(PHOTOS), 0), "{fault:?}");
    for (index, photo) in photos.iter().enumerate() {
        check_photo(&fixture, album, *photo, &bib(index as u16));
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
    for call in [1, 2, 3] {
        let log = process(Fault::Call(call));
        assert_eq!(count(&log.opened), 1, "the generation goes on");
    }
}

#[test]
fn a_device_without_memory_for_a_batch_gets_smaller_ones() {
    let log = process(Fault::Memory(2));
    let (done, refused) = (count(&log.most_done), count(&log.most_refused));
    assert!(refused > 2, "batches form: at most {refused} frames were tried");
    assert_eq!(done, 2, "calls are as large as there is memory for");
    assert_eq!(count(&log.opened), 1, "the generation goes on");
}

#[test]
fn a_device_that_disappears_is_opened_again_and_its_photos_are_given_back() {
    let log = process(Fault::Disappears(2));
    assert_eq!(count(&log.opened), 2);
    assert!(count(&log.most_done) > 1, "batches form");
}

#[test]
fn a_device_that_does_not_answer_is_opened_again() {
    assert_eq!(count(&process(Fault::Hangs(2)).opened), 2);
}
