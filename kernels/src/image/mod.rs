//! Images in memory: frames of bytes, their orientation, and tensors as models take them.

pub mod frame;
pub mod orient;
pub mod tensor;
