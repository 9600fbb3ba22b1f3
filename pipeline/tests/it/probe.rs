//! The probe service: selfies to face embeddings, without a pipeline.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use photofinish_kernels::image::frame::Frame;
use photofinish_models::fakes::{FakeModels, paint_face};
use photofinish_models::traits::{
    BatchSizes, BibReader, FaceBox, FaceCrop, FaceDetector, FaceEmbedder, ModelError, ModelFactory,
    ModelIdentity,
};
use photofinish_pipeline::{ProbeService, ProbeServiceError};

use crate::support::{LIMITS, encode_jpeg, encode_jpeg_with_orientation, gradient_picture, runner_picture};

fn new_runtime() -> tokio::runtime::Runtime {
    tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build().unwrap()
}

/// Returns the embedding that the fake models return for a person.
fn fake_vector(person: u16) -> Vec<f32> {
    let picture = runner_picture(person, "1");
    let models = FakeModels::default();
    let face = models.create_face_detector().unwrap().detect(&[picture.frame()], 640).unwrap()[0][0];
    let crop = FaceCrop { frame: picture.frame(), landmarks: face.landmarks };
    models.create_face_embedder().unwrap().embed(&[crop]).unwrap().remove(0).vector
}

#[test]
fn the_largest_face_of_a_selfie_becomes_a_vector() {
    let service = ProbeService::start(Arc::new(FakeModels::default()), LIMITS, 4);
    let mut picture = gradient_picture(1600, 1200);
    paint_face(&mut picture, 5, [100, 100, 200]);
    paint_face(&mut picture, 6, [700, 200, 500]);
    paint_face(&mut picture, 7, [1300, 900, 160]);
    for exif in [1, 6, 8, 3] {
        let face = new_runtime()
            .block_on(service.embed(Bytes::from(encode_jpeg_with_orientation(&picture, exif))))
            .unwrap();
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
    let service = ProbeService::start(Arc::new(FakeModels::default()), LIMITS, 4);
    let mut picture = gradient_picture(60, 60);
    paint_face(&mut picture, 31, [0, 0, 60]);
    let face = new_runtime().block_on(service.embed(Bytes::from(encode_jpeg(&picture)))).unwrap();
    assert_eq!(face.vector, fake_vector(31));
    service.stop();
}

#[test]
fn each_selfie_without_a_face_gets_the_reason() {
    let service = ProbeService::start(Arc::new(FakeModels::default()), LIMITS, 4);
    let runtime = new_runtime();
    let embed_error = |selfie: Vec<u8>| runtime.block_on(service.embed(Bytes::from(selfie))).unwrap_err();
    assert_eq!(embed_error(encode_jpeg(&gradient_picture(800, 600))), ProbeServiceError::NoFace);
    assert_eq!(embed_error(Vec::new()), ProbeServiceError::Unreadable);
    assert_eq!(embed_error(b"not an image".to_vec()), ProbeServiceError::Unreadable);
    assert_eq!(embed_error(vec![0; LIMITS.max_file_bytes as usize + 1]), ProbeServiceError::Unreadable);
    let complete = encode_jpeg(&runner_picture(1, "1"));
    assert_eq!(embed_error(complete[..complete.len() / 2].to_vec()), ProbeServiceError::Unreadable);
    // The service still works after all of these.
    assert!(runtime.block_on(service.embed(Bytes::from(complete))).is_ok());
    service.stop();
    assert_eq!(embed_error(encode_jpeg(&runner_picture(1, "1"))), ProbeServiceError::Unavailable);
}

/// Models whose detector panics for frames 333 pixels wide, and returns a device error for frames 334 pixels wide.
struct FragileModels;

struct FragileDetector(Box<dyn FaceDetector>);

impl FaceDetector for FragileDetector {
    fn detect(&mut self, frames: &[Frame<'_>], long_side: u32) -> Result<Vec<Vec<FaceBox>>, ModelError> {
        assert!(frames[0].width() != 333, "injected panic");
        if frames[0].width() == 334 {
            return Err(ModelError::Device { device: "fake".into(), detail: "lost".into() });
        }
        self.0.detect(frames, long_side)
    }

    fn identity(&self) -> &ModelIdentity {
        self.0.identity()
    }
}

impl ModelFactory for FragileModels {
    fn create_face_detector(&self) -> Result<Box<dyn FaceDetector>, ModelError> {
        Ok(Box::new(FragileDetector(FakeModels::default().create_face_detector()?)))
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

#[test]
fn a_selfie_that_panics_does_not_affect_other_selfies() {
    let service = ProbeService::start(Arc::new(FragileModels), LIMITS, 4);
    let runtime = new_runtime();
    let embed = |selfie: Vec<u8>| runtime.block_on(service.embed(Bytes::from(selfie)));
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

#[test]
fn a_full_queue_says_when_to_retry() {
    let slow = FakeModels { delay: Duration::from_millis(1500), ..FakeModels::default() };
    let service = Arc::new(ProbeService::start(Arc::new(slow), LIMITS, 1));
    let selfie = Bytes::from(encode_jpeg(&runner_picture(1, "1")));
    let results = new_runtime().block_on(async {
        let requests: Vec<_> = (0..6)
            .map(|_| {
                let (service, selfie) = (Arc::clone(&service), selfie.clone());
                tokio::spawn(async move { service.embed(selfie).await })
            })
            .collect();
        let mut results = Vec::new();
        for request in requests {
            results.push(request.await.unwrap());
        }
        results
    });
    let served = results.iter().filter(|result| result.is_ok()).count();
    assert!((1..=2).contains(&served), "{results:?}");
    for error in results.iter().filter_map(|result| result.as_ref().err()) {
        let ProbeServiceError::Busy { retry_after } = error else { panic!("{error:?}") };
        assert!((Duration::from_secs(1)..Duration::from_secs(10)).contains(retry_after));
    }
    service.stop();
}
