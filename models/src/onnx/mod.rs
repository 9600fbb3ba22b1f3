//! ONNX Runtime: the library and its device ([`runtime`]), and one loaded network ([`session`]). The only module that calls
//! `ort`.

pub mod cpu;
pub mod runtime;
pub mod session;
