//! The reference: one face or text after another.

use super::types::{Face, Text};
use crate::device::Device;
use crate::image::frame::Size;
use crate::image::tensor::{Normalisation, Slot, Tensor};
use crate::warp::align::{Template, align};
use crate::warp::rectify::Rectifier;

pub(super) fn align_all(
    faces: &[Face<'_>],
    template: &Template,
    normalisation: &Normalisation,
    out: &mut Tensor,
) {
    let (side, mut pixels) = (template.side, Vec::new());
    let stride = side as usize * 3;
    for (item, face) in faces.iter().enumerate() {
        align(face.frame, &face.landmarks, template, &mut pixels);
        let slot = Slot { tensor: out, item, normalisation };
        slot.write_rows(Size { width: side, height: side }, |y| &pixels[y as usize * stride..][..stride]);
    }
}

pub(super) fn rectify_all(texts: &[Text<'_>], normalisation: &Normalisation, out: &mut Tensor) {
    let mut rectifier = Rectifier::new(&Device::Cpu);
    for (item, text) in texts.iter().enumerate() {
        rectifier.place(text.frame, &text.quad, Slot { tensor: out, item, normalisation });
    }
}
