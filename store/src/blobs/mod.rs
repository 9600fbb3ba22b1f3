//! The bytes of photos and selfies, on a local disk or in a bucket, and the garbage collection of both.

pub mod cloud;
pub(crate) mod gc;
pub mod local;
pub(crate) mod object_ops;
pub mod storage;
