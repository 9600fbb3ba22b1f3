//! Whole photos through the whole pipeline, with the real store in a temporary directory and fake models that read painted
//! marks.

#![expect(clippy::unwrap_used, reason = "a test that cannot continue panics")]

mod devices;
mod fairness;
mod faulty_gpu;
mod lifecycle;
mod photos;
mod probe;
mod probe_devices;
mod profiles;
mod several_devices;
mod spans;
mod support;
