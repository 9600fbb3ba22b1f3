//! Faces and texts of many photos, sampled into the items of one tensor in one launch: aligned squares for the
//! embedder, rectified strips for the text recogniser.

mod cpu;
mod plan;
mod types;

use crate::device::Device;
use crate::gpu::GpuError;
use crate::image::frame::Size;
use crate::image::tensor::{Normalisation, Tensor};
use crate::warp::align::Template;

pub(super) use self::types::SOURCE;
pub use self::types::{Face, Text};

/// Aligns each face as [`crate::warp::align::align`] does and writes it into its item of a tensor, which is given the
/// shape of the batch. On devices that fuse products and sums, a pixel may differ by one level.
///
/// # Errors
/// When the device fails, or a photo is more than its largest buffer.
pub fn align_all(
    device: &Device,
    faces: &[Face<'_>],
    template: &Template,
    normalisation: &Normalisation,
    out: &mut Tensor,
) -> Result<(), GpuError> {
    let side = template.side as usize;
    out.reshape([faces.len(), 3, side, side]);
    match device {
        Device::Cpu => {
            cpu::align_all(faces, template, normalisation, out);
            Ok(())
        }
        Device::Gpu(gpu) => {
            let items: Vec<_> = faces.iter().map(|face| plan::Item::face(face, template)).collect();
            plan::warp_all(&**gpu, &items, normalisation, out)
        }
    }
}

/// Rectifies each text as [`crate::warp::rectify::Rectifier::place`] does, into items of `strip` pixels. On devices
/// that divide with less than full precision or fuse products and sums, a pixel may differ by one level.
///
/// # Errors
/// When the device fails, or a photo is more than its largest buffer.
pub fn rectify_all(
    device: &Device,
    texts: &[Text<'_>],
    strip: Size,
    normalisation: &Normalisation,
    out: &mut Tensor,
) -> Result<(), GpuError> {
    out.reshape([texts.len(), 3, strip.height as usize, strip.width as usize]);
    match device {
        Device::Cpu => {
            cpu::rectify_all(texts, normalisation, out);
            Ok(())
        }
        Device::Gpu(gpu) => {
            let items: Vec<_> = texts.iter().map(|text| plan::Item::text(text, strip)).collect();
            plan::warp_all(&**gpu, &items, normalisation, out)
        }
    }
}
