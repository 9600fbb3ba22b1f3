//! Face networks: two detectors and the embedder. Each adapts one network to the traits of [`crate::traits`].

pub mod embedder;
pub mod libfacedetection;
pub mod yunet;
