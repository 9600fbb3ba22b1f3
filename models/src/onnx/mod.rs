//! ONNX Runtime: the library and its device ([`runtime`], chosen by [`devices`]), and one loaded network ([`session`]).
//! The only module that calls `ort`.

mod calls;
pub mod cpu;
pub mod devices;
mod failure;
pub mod kernels;
mod probe;
pub mod runtime;
pub mod session;
mod shapes;
mod turns;

pub use self::calls::take_device_time;
