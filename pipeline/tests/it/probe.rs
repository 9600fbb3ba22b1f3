//! The probe service: selfies to face embeddings, without a pipeline.

use std::future::poll_fn;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Condvar, Mutex};
use std::task::Poll;
use std::time::Duration;

use bytes::Bytes;
use photofinish_kernels::image::frame::Frame;
use photofinish_models::fakes::{FakeModels, paint_face};
use photofinish_models::traits::{
    BatchSizes, BibReader, FaceBox, FaceCrop, FaceDetector, FaceEmbedder, ModelError, ModelFactory,
    ModelIdentity,
};
use photofinish_pipeline::{
    ProbeFace, ProbeService, ProbeServiceError, ProbeSettings, ProbeStatus, ReservedCores,
};
use photofinish_store::model::ids::OrganizationId;

use crate::support::{
    LIMITS, PROBE_SETTINGS, encode_jpeg, encode_jpeg_with_orientation, gradient_picture, runner_picture,
    wait_for,
};

pub(crate) fn new_runtime() -> tokio::runtime::Runtime {
    tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build().unwrap()
}

/// Has a selfie of some organization embedded.
pub(crate) async fn embed(service: &ProbeService, selfie: Vec<u8>) -> Result<ProbeFace, ProbeServiceError> {
    embed_for(service, OrganizationId::generate(), selfie).await
}

async fn embed_for(
    service: &ProbeService,
    organization: OrganizationId,
    selfie: Vec<u8>,
) -> Result<ProbeFace, ProbeServiceError> {
    service.take_turn(organization).await?.embed(Bytes::from(selfie), Arc::default()).await
}

/// Returns the embedding that the fake models return for a person.
fn fake_vector(person: u16) -> Vec<f32> {
    let picture = runner_picture(person, "1");
    let models = FakeModels::default();
    let face = models.create_face_detector().unwrap().detect(&[picture.frame()], 640).unwrap()[0][0];
    let crop = FaceCrop::new(picture.frame(), face.landmarks);
    models.create_face_embedder().unwrap().embed(&[crop]).unwrap().remove(0).vector
}

#[test]
fn the_largest_face_of_a_selfie_becomes_a_vector() {
    let service =
        ProbeService::start(vec![Arc::new(FakeModels::default())], PROBE_SETTINGS, ReservedCores::default());
    let mut picture = gradient_picture(1600, 1200);
    paint_face(&mut picture, 5, [100, 100, 200]);
    paint_face(&mut picture, 6, [700, 200, 500]);
    paint_face(&mut picture, 7, [1300, 900, 160]);
    for exif in [1, 6, 8, 3] {
        let face =
            new_runtime().block_on(embed(&service, encode_jpeg_with_orientation(&picture, exif))).unwrap();
        assert_eq!(
            (face.vector, face.model.as_str()),
            (fake_vector(6), "fake-embedder@1"),
            "orientation {exif}"
        );
    }
    service.stop();
}

#[test]
fn a_picture_that_is_nothing_but_a_face_is_enough() {
    let service =
        ProbeService::start(vec![Arc::new(FakeModels::default())], PROBE_SETTINGS, ReservedCores::default());
    let mut picture = gradient_picture(60, 60);
    paint_face(&mut picture, 31, [0, 0, 60]);
    let face = new_runtime().block_on(embed(&service, encode_jpeg(&picture))).unwrap();
    assert_eq!(face.vector, fake_vector(31));
    service.stop();
}

#[test]
fn each_selfie_without_a_face_gets_the_reason() {
    let service =
        ProbeService::start(vec![Arc::new(FakeModels::default())], PROBE_SETTINGS, ReservedCores::default());
    let runtime = new_runtime();
    let embed_error = |selfie: Vec<u8>| runtime.block_on(embed(&service, selfie)).unwrap_err();
    assert_eq!(embed_error(encode_jpeg(&gradient_picture(800, 600))), ProbeServiceError::NoFace);
    assert_eq!(embed_error(Vec::new()), ProbeServiceError::Unreadable);
    assert_eq!(embed_error(b"not an image".to_vec()), ProbeServiceError::Unreadable);
    assert_eq!(embed_error(vec![0; LIMITS.max_file_bytes as usize + 1]), ProbeServiceError::Unreadable);
    let complete = encode_jpeg(&runner_picture(1, "1"));
    assert_eq!(embed_error(complete[..complete.len() / 2].to_vec()), ProbeServiceError::Unreadable);
    // The service still works after all of these.
    assert!(runtime.block_on(embed(&service, complete)).is_ok());
    service.stop();
    assert_eq!(embed_error(encode_jpeg(&runner_picture(1, "1"))), ProbeServiceError::Unavailable);
}

/// Fake models whose detectors are made by a function. Selfies need no bib reader.
struct ModelsWith<F>(F);

impl<F> ModelFactory for ModelsWith<F>
where
    F: Fn(Box<dyn FaceDetector>) -> Result<Box<dyn FaceDetector>, ModelError> + Send + Sync,
{
    fn create_face_detector(&self) -> Result<Box<dyn FaceDetector>, ModelError> {
        self.0(FakeModels::default().create_face_detector()?)
    }

    fn create_face_embedder(&self) -> Result<Box<dyn FaceEmbedder>, ModelError> {
        FakeModels::default().create_face_embedder()
    }

    fn create_bib_reader(&self) -> Result<Box<dyn BibReader>, ModelError> {
        Err(ModelError::Runtime("the probe service reads no bibs".into()))
    }

    fn batch_sizes(&self) -> BatchSizes {
        FakeModels::default().batch_sizes()
    }
}

pub(crate) fn models_with<F>(make_detector: F) -> Arc<dyn ModelFactory>
where
    F: Fn(Box<dyn FaceDetector>) -> Result<Box<dyn FaceDetector>, ModelError> + Send + Sync + 'static,
{
    Arc::new(ModelsWith(make_detector))
}

pub(crate) fn lost_device() -> ModelError {
    ModelError::Device { device: "fake".into(), detail: "lost".into() }
}

/// A detector that panics for frames 333 pixels wide, and returns a device error for frames 334 pixels wide.
struct FragileDetector(Box<dyn FaceDetector>);

impl FaceDetector for FragileDetector {
    fn detect(&mut self, frames: &[Frame<'_>], long_side: u32) -> Result<Vec<Vec<FaceBox>>, ModelError> {
        assert!(frames[0].width() != 333, "injected panic");
        if frames[0].width() == 334 {
            return Err(lost_device());
        }
        self.0.detect(frames, long_side)
    }

    fn identity(&self) -> &ModelIdentity {
        self.0.identity()
    }
}

#[test]
fn a_selfie_that_panics_does_not_affect_other_selfies() {
    let service = ProbeService::start(
        vec![models_with(|detector| Ok(Box::new(FragileDetector(detector))))],
        PROBE_SETTINGS,
        ReservedCores::default(),
    );
    let runtime = new_runtime();
    let embed = |selfie: Vec<u8>| runtime.block_on(embed(&service, selfie));
    let good = encode_jpeg(&runner_picture(8, "1"));
    assert_eq!(embed(encode_jpeg(&gradient_picture(333, 200))), Err(ProbeServiceError::Unreadable));
    assert!(embed(good.clone()).is_ok());
    assert_eq!(
        embed(encode_jpeg(&gradient_picture(334, 200))).unwrap_err(),
        ProbeServiceError::Unreadable,
        "the detector works for other images"
    );
    assert!(embed(good).is_ok());
    service.stop();
}

/// Models whose detector waits for a permit for each frame 333 pixels wide; a closed gate lets all pass.
#[derive(Clone, Default)]
struct GatedModels {
    gate: Arc<Gate>,
    loads: Arc<AtomicUsize>,
}

#[derive(Default)]
struct Gate {
    state: Mutex<GateState>,
    changed: Condvar,
}

#[derive(Default)]
struct GateState {
    permits: usize,
    entered: usize,
}

impl Gate {
    fn pass(&self) {
        let mut state = self.state.lock().unwrap();
        state.entered += 1;
        self.changed.notify_all();
        while state.permits == 0 {
            state = self.changed.wait(state).unwrap();
        }
        state.permits -= 1;
    }

    fn open(&self, permits: usize) {
        self.state.lock().unwrap().permits += permits;
        self.changed.notify_all();
    }

    fn wait_for_entered(&self, count: usize) {
        wait_for("a selfie in the detector", || (self.state.lock().unwrap().entered >= count).then_some(()));
    }
}

struct GatedDetector {
    gate: Arc<Gate>,
    detector: Box<dyn FaceDetector>,
}

impl FaceDetector for GatedDetector {
    fn detect(&mut self, frames: &[Frame<'_>], long_side: u32) -> Result<Vec<Vec<FaceBox>>, ModelError> {
        if frames[0].width() == 333 {
            self.gate.pass();
        }
        self.detector.detect(frames, long_side)
    }

    fn identity(&self) -> &ModelIdentity {
        self.detector.identity()
    }
}

impl GatedModels {
    fn to_factory(&self) -> Arc<dyn ModelFactory> {
        let Self { gate, loads } = self.clone();
        models_with(move |detector| {
            loads.fetch_add(1, Ordering::SeqCst);
            Ok(Box::new(GatedDetector { gate: Arc::clone(&gate), detector }))
        })
    }
}

/// Returns a selfie whose face [`GatedModels`] finds once it has a permit.
fn gated_selfie() -> Vec<u8> {
    let mut picture = gradient_picture(333, 300);
    paint_face(&mut picture, 9, [40, 40, 160]);
    encode_jpeg(&picture)
}

/// Returns a selfie that takes little time.
pub(crate) fn small_selfie(person: u16) -> Vec<u8> {
    let mut picture = gradient_picture(300, 300);
    paint_face(&mut picture, person, [40, 40, 160]);
    encode_jpeg(&picture)
}

type Search = tokio::task::JoinHandle<Result<ProbeFace, ProbeServiceError>>;

fn spawn_search(
    runtime: &tokio::runtime::Runtime,
    service: &Arc<ProbeService>,
    organization: OrganizationId,
    selfie: Vec<u8>,
) -> Search {
    let service = Arc::clone(service);
    runtime.spawn(async move { embed_for(&service, organization, selfie).await })
}

#[test]
fn an_organization_that_takes_all_its_places_is_refused_and_others_are_served() {
    let models = GatedModels::default();
    let settings = ProbeSettings { places: 12, ..PROBE_SETTINGS };
    let service =
        Arc::new(ProbeService::start(vec![models.to_factory()], settings, ReservedCores::default()));
    let runtime = new_runtime();
    let (greedy, modest) = (OrganizationId::generate(), OrganizationId::generate());
    let searches: Vec<Search> =
        (0..30).map(|_| spawn_search(&runtime, &service, greedy, gated_selfie())).collect();
    models.gate.wait_for_entered(1);
    let refused = || searches.iter().filter(|search| search.is_finished()).count();
    wait_for("refusals", || (refused() == 18).then_some(()));
    let (turn, selfie) = (runtime.block_on(service.take_turn(modest)).unwrap(), small_selfie(3));
    let mut search = Box::pin(turn.embed(selfie.into(), Arc::default()));
    // The first poll hands the selfie over. So two are ahead of it, who have a turn, and nobody who gets one later.
    let first_poll = runtime.block_on(poll_fn(|context| Poll::Ready(search.as_mut().poll(context))));
    assert!(first_poll.is_pending());
    let served = runtime.spawn(search);
    models.gate.open(2);
    wait_for("the other organization", || served.is_finished().then_some(()));
    assert_eq!(runtime.block_on(served).unwrap().unwrap().vector, fake_vector(3));
    models.gate.open(10);
    let mut busy = 0;
    for search in searches {
        match runtime.block_on(search).unwrap() {
            Ok(_) => {}
            Err(ProbeServiceError::Busy { retry_after }) => {
                assert!((Duration::from_secs(1)..Duration::from_secs(60)).contains(&retry_after));
                busy += 1;
            }
            Err(error) => panic!("{error:?}"),
        }
    }
    assert_eq!(busy, 18);
    service.stop();
}

#[test]
fn selfies_of_callers_that_went_away_are_not_examined() {
    let models = GatedModels::default();
    let settings = ProbeSettings { places: 2, ..PROBE_SETTINGS };
    let service =
        Arc::new(ProbeService::start(vec![models.to_factory()], settings, ReservedCores::default()));
    let runtime = new_runtime();
    let organization = OrganizationId::generate();
    let first = spawn_search(&runtime, &service, organization, gated_selfie());
    models.gate.wait_for_entered(1);
    for _ in 0..10 {
        // Dropped while its selfie waits, or refused because such selfies still take the places.
        let service = Arc::clone(&service);
        let cancelled = runtime.block_on(async move {
            let search = embed_for(&service, organization, gated_selfie());
            tokio::time::timeout(Duration::from_millis(1), search).await
        });
        assert!(cancelled.is_err() || matches!(cancelled, Ok(Err(ProbeServiceError::Busy { .. }))));
    }
    models.gate.open(1);
    assert!(runtime.block_on(first).unwrap().is_ok());
    assert!(runtime.block_on(embed_for(&service, organization, small_selfie(3))).is_ok());
    assert_eq!(models.gate.state.lock().unwrap().entered, 1);
    service.stop();
}

#[test]
fn a_selfie_that_hangs_ends_with_an_error_and_others_are_served() {
    let models = GatedModels::default();
    let settings = ProbeSettings { time_limit: Duration::from_secs(2), ..PROBE_SETTINGS };
    let service =
        Arc::new(ProbeService::start(vec![models.to_factory()], settings, ReservedCores::default()));
    let runtime = new_runtime();
    let hanging = spawn_search(&runtime, &service, OrganizationId::generate(), gated_selfie());
    models.gate.wait_for_entered(1);
    let other = runtime.block_on(embed(&service, small_selfie(3)));
    assert_eq!(other.unwrap().vector, fake_vector(3));
    // The process may have stood still meanwhile: nothing is said about the picture yet.
    assert_eq!(runtime.block_on(hanging).unwrap(), Err(ProbeServiceError::Unavailable));
    assert_eq!(models.loads.load(Ordering::SeqCst), 2, "its thread was replaced once");
    assert_eq!(service.status(), ProbeStatus::Running);
    models.gate.open(2);
    assert_eq!(runtime.block_on(embed(&service, gated_selfie())).unwrap().vector, fake_vector(9));
    service.stop();
}

#[test]
fn too_many_hanging_threads_are_reported_until_one_ends() {
    let models = GatedModels::default();
    let settings = ProbeSettings { time_limit: Duration::from_secs(2), ..PROBE_SETTINGS };
    let service =
        Arc::new(ProbeService::start(vec![models.to_factory()], settings, ReservedCores::default()));
    let runtime = new_runtime();
    for hanging in 1..=4 {
        let result = runtime.block_on(embed(&service, gated_selfie()));
        let is_known = hanging > 1;
        let error = if is_known { ProbeServiceError::TimedOut } else { ProbeServiceError::Unavailable };
        assert_eq!(result, Err(error), "{hanging}");
    }
    let reason = wait_for("the report", || match service.status() {
        ProbeStatus::Down(reason) => Some(reason),
        _ => None,
    });
    assert!(reason.contains("4 threads hang"), "{reason}");
    let selfie = || small_selfie(3);
    assert_eq!(runtime.block_on(embed(&service, selfie())), Err(ProbeServiceError::Unavailable));
    assert_eq!(models.loads.load(Ordering::SeqCst), 4, "no more threads than these");
    models.gate.open(1);
    wait_for("a service that works", || (service.status() == ProbeStatus::Running).then_some(()));
    assert!(runtime.block_on(embed(&service, selfie())).is_ok());
    models.gate.open(3);
    service.stop();
}

#[test]
fn models_that_cannot_be_loaded_are_reported_and_loaded_when_they_can_be() {
    let is_broken = Arc::new(AtomicBool::new(true));
    let broken = Arc::clone(&is_broken);
    let models = models_with(
        move |detector| {
            if broken.load(Ordering::SeqCst) { Err(lost_device()) } else { Ok(detector) }
        },
    );
    let service = ProbeService::start(vec![models], PROBE_SETTINGS, ReservedCores::default());
    let runtime = new_runtime();
    wait_for("the report", || matches!(service.status(), ProbeStatus::Down(_)).then_some(()));
    let selfie = || small_selfie(3);
    assert_eq!(runtime.block_on(embed(&service, selfie())), Err(ProbeServiceError::Unavailable));
    is_broken.store(false, Ordering::SeqCst);
    // Without any request: a load balancer sends none to a process that is not ready.
    wait_for("a service that works", || (service.status() == ProbeStatus::Running).then_some(()));
    assert!(runtime.block_on(embed(&service, selfie())).is_ok());
    assert_eq!(service.device_failure(), None, "the device has come back");
    service.stop();
}
