//! The probe service on a device that fails: it is given up where only another process has it back, and another device is used
//! where there is one.

use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Condvar, Mutex};
use std::time::{Duration, Instant};

use photofinish_kernels::image::frame::Frame;
use photofinish_models::fakes::FakeModels;
use photofinish_models::traits::{
    BatchSizes, BibReader, FaceBox, FaceDetector, FaceEmbedder, ModelError, ModelFactory, ModelIdentity,
};
use photofinish_pipeline::{ProbeService, ProbeServiceError, ProbeSettings, ProbeStatus, ReservedCores};

use crate::probe::{embed, lost_device, models_with, new_runtime, small_selfie};
use crate::support::{PROBE_SETTINGS, wait_for};

/// Failures in a row after which the device is given up.
const MAX_OUTAGES: usize = 8;

fn wait_for_failure(service: &ProbeService) -> String {
    wait_for("the end of the service", || service.device_failure().map(str::to_owned))
}

#[test]
fn a_device_that_is_lost_for_good_is_given_up() {
    let loads = Arc::new(AtomicUsize::new(0));
    let counted = Arc::clone(&loads);
    let models = models_with(move |_| {
        counted.fetch_add(1, Ordering::SeqCst);
        Err(lost_device())
    });
    let service = ProbeService::start(vec![models], PROBE_SETTINGS, ReservedCores::default());
    let reason = wait_for_failure(&service);
    assert!(reason.contains("device fake: lost"), "{reason}");
    assert!(matches!(service.status(), ProbeStatus::Down(_)), "{:?}", service.status());
    let answer = new_runtime().block_on(embed(&service, small_selfie(3)));
    assert_eq!(answer, Err(ProbeServiceError::Unavailable));
    service.stop();
    assert_eq!(loads.load(Ordering::SeqCst), MAX_OUTAGES);
}

/// A detector whose device loads it and runs it no more once `is_lost`.
struct DyingDetector {
    detector: Box<dyn FaceDetector>,
    is_lost: Arc<AtomicBool>,
}

impl FaceDetector for DyingDetector {
    fn detect(&mut self, frames: &[Frame<'_>], long_side: u32) -> Result<Vec<Vec<FaceBox>>, ModelError> {
        if self.is_lost.load(Ordering::SeqCst) {
            return Err(lost_device());
        }
        self.detector.detect(frames, long_side)
    }

    fn identity(&self) -> &ModelIdentity {
        self.detector.identity()
    }
}

/// A device that can be lost.
struct DyingDevice {
    models: Arc<dyn ModelFactory>,
    is_lost: Arc<AtomicBool>,
    loads: Arc<AtomicUsize>,
}

impl DyingDevice {
    fn new() -> Self {
        let (is_lost, loads) = (Arc::<AtomicBool>::default(), Arc::<AtomicUsize>::default());
        let (shared, counted) = (Arc::clone(&is_lost), Arc::clone(&loads));
        let models = models_with(move |detector| {
            counted.fetch_add(1, Ordering::SeqCst);
            Ok(Box::new(DyingDetector { detector, is_lost: Arc::clone(&shared) }))
        });
        Self { models, is_lost, loads }
    }

    fn set_lost(&self, is_lost: bool) {
        self.is_lost.store(is_lost, Ordering::SeqCst);
    }

    /// How often its models were loaded.
    fn loads(&self) -> usize {
        self.loads.load(Ordering::SeqCst)
    }
}

fn start_on(devices: &[DyingDevice]) -> ProbeService {
    let models = devices.iter().map(|device| Arc::clone(&device.models)).collect();
    ProbeService::start(models, PROBE_SETTINGS, ReservedCores::default())
}

#[test]
fn a_device_that_loads_models_and_does_not_run_them_is_given_up() {
    let device = DyingDevice::new();
    let service = start_on(std::slice::from_ref(&device));
    let runtime = new_runtime();
    assert!(runtime.block_on(embed(&service, small_selfie(3))).is_ok());
    device.set_lost(true);
    let answer = runtime.block_on(embed(&service, small_selfie(3)));
    assert_eq!(answer, Err(ProbeServiceError::Unavailable));
    let reason = wait_for_failure(&service);
    assert!(reason.contains("device fake: lost"), "{reason}");
    service.stop();
}

#[test]
fn a_device_that_is_lost_and_comes_back_is_used_again() {
    let device = DyingDevice::new();
    let service = start_on(std::slice::from_ref(&device));
    let runtime = new_runtime();
    // Lost more often than it may be in a row.
    for _ in 0..MAX_OUTAGES {
        device.set_lost(true);
        let answer = runtime.block_on(embed(&service, small_selfie(3)));
        assert_eq!(answer, Err(ProbeServiceError::Unavailable));
        device.set_lost(false);
        wait_for("a service that works", || {
            runtime.block_on(embed(&service, small_selfie(3))).is_ok().then_some(())
        });
    }
    assert_eq!(service.device_failure(), None);
    service.stop();
}

#[test]
fn the_selfie_after_the_loss_of_a_device_is_examined_on_another() {
    let devices = [DyingDevice::new(), DyingDevice::new()];
    let service = start_on(&devices);
    let runtime = new_runtime();
    let embed = || runtime.block_on(embed(&service, small_selfie(3))).map(drop);
    assert_eq!((embed(), devices.each_ref().map(DyingDevice::loads)), (Ok(()), [1, 0]));
    devices[0].set_lost(true);
    assert_eq!(embed(), Err(ProbeServiceError::Unavailable));
    assert_eq!((embed(), devices.each_ref().map(DyingDevice::loads)), (Ok(()), [1, 1]));
    // The first one has come back when the second one is lost.
    devices[0].set_lost(false);
    devices[1].set_lost(true);
    assert_eq!(embed(), Err(ProbeServiceError::Unavailable));
    assert_eq!((embed(), devices.each_ref().map(DyingDevice::loads)), (Ok(()), [2, 1]));
    assert_eq!((service.status(), service.device_failure()), (ProbeStatus::Running, None));
    service.stop();
}

#[test]
fn the_process_has_to_be_replaced_when_selfies_have_no_device_left() {
    let devices = [DyingDevice::new(), DyingDevice::new()];
    let service = start_on(&devices);
    let runtime = new_runtime();
    let embed = || runtime.block_on(embed(&service, small_selfie(3))).map(drop);
    assert_eq!(embed(), Ok(()));
    devices.iter().for_each(|device| device.set_lost(true));
    // A device that was never lost is believed until a selfie meets it.
    for _ in &devices {
        assert_eq!(embed(), Err(ProbeServiceError::Unavailable));
    }
    let reason = wait_for_failure(&service);
    assert!(reason.contains("device fake: lost"), "{reason}");
    assert!(matches!(service.status(), ProbeStatus::Down(_)), "{:?}", service.status());
    service.stop();
}

/// Models on a device whose calls do not return until it is released.
#[derive(Default)]
struct HangingModels {
    is_released: Mutex<bool>,
    released: Condvar,
    called_at: Mutex<Option<Instant>>,
}

impl ModelFactory for HangingModels {
    fn create_face_detector(&self) -> Result<Box<dyn FaceDetector>, ModelError> {
        FakeModels::default().create_face_detector()
    }

    fn create_face_embedder(&self) -> Result<Box<dyn FaceEmbedder>, ModelError> {
        self.called_at.lock().unwrap().get_or_insert_with(Instant::now);
        let is_released = self.is_released.lock().unwrap();
        drop(self.released.wait_while(is_released, |is_released| !*is_released).unwrap());
        FakeModels::default().create_face_embedder()
    }

    fn create_bib_reader(&self) -> Result<Box<dyn BibReader>, ModelError> {
        Err(ModelError::Runtime("the probe service reads no bibs".into()))
    }

    fn batch_sizes(&self) -> BatchSizes {
        FakeModels::default().batch_sizes()
    }

    fn longest_device_call(&self) -> Option<Duration> {
        self.called_at.lock().unwrap().map(|called_at| called_at.elapsed())
    }
}

impl HangingModels {
    fn release(&self) {
        *self.is_released.lock().unwrap() = true;
        self.released.notify_all();
    }
}

#[test]
fn a_device_whose_calls_never_return_is_given_up() {
    let models = Arc::new(HangingModels::default());
    let settings = ProbeSettings {
        time_limit: Duration::from_millis(100),
        device_call_limit: Duration::from_secs(1),
        ..PROBE_SETTINGS
    };
    let hanging = Arc::clone(&models) as Arc<dyn ModelFactory>;
    let service = ProbeService::start(vec![hanging], settings, ReservedCores::default());
    let reason = wait_for_failure(&service);
    assert!(reason.contains("a call of the device has not returned"), "{reason}");
    // Does not wait for the thread that hangs.
    service.stop();
    models.release();
}

#[test]
fn a_device_whose_calls_never_return_leaves_selfies_to_another() {
    let models = Arc::new(HangingModels::default());
    let settings = ProbeSettings {
        time_limit: Duration::from_secs(5),
        device_call_limit: Duration::from_secs(1),
        ..PROBE_SETTINGS
    };
    let hanging = Arc::clone(&models) as Arc<dyn ModelFactory>;
    let service = ProbeService::start(
        vec![hanging, Arc::new(FakeModels::default())],
        settings,
        ReservedCores::default(),
    );
    wait_for("the other device", || (service.status() == ProbeStatus::Running).then_some(()));
    assert!(new_runtime().block_on(embed(&service, small_selfie(3))).is_ok());
    assert_eq!(service.device_failure(), None, "the process has another device");
    service.stop();
    models.release();
}
