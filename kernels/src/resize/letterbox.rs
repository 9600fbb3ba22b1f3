//! Letterboxing: a picture resized into a network's input, top-left, normalised, the rest padded.

use crate::device::Device;
use crate::image::frame::{Size, Window};
use crate::image::tensor::Slot;
use crate::resize::{ResizeTarget, Resizer};

/// Writes pictures into tensors; owns the buffers.
pub struct Letterbox {
    resizer: Resizer,
    pixels: Vec<u8>,
}

impl Letterbox {
    /// Creates a letterbox on this device.
    pub fn new(device: &Device) -> Self {
        match device {
            Device::Cpu => Self { resizer: Resizer::default(), pixels: Vec::new() },
        }
    }

    /// Resizes `source` to `size` with the filter of [`ResizeTarget::for_network_input`] and writes it at the top left
    /// of the slot; what does not fit is cropped.
    ///
    /// # Panics
    /// When a side of `size` is zero or the tensor has no such item.
    pub fn place(&mut self, source: Window<'_>, size: Size, slot: Slot<'_>) {
        let from = source.size();
        if from == size {
            slot.write_rows(size, |y| source.row(y));
            return;
        }
        self.resizer.resize(source, ResizeTarget::for_network_input(from, size), &mut self.pixels);
        let stride = size.width as usize * 3;
        let pixels = &self.pixels;
        slot.write_rows(size, |y| &pixels[y as usize * stride..][..stride]);
    }
}

/// Returns the smallest multiple of `step` that is at least `value`.
pub fn round_up_to_multiple(value: u32, step: u32) -> u32 {
    value.div_ceil(step) * step
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::image::frame::Frame;
    use crate::image::tensor::{Channels, Normalisation, Tensor};

    #[test]
    fn a_picture_is_placed_top_left_and_the_rest_is_padding() {
        let pixels = vec![200; 8 * 4 * 3];
        let frame = Frame::new(&pixels, 8, 4).unwrap();
        let normalisation = Normalisation { padding: -1.0, ..Normalisation::raw(Channels::Bgr) };
        let mut tensor = Tensor::default();
        tensor.reshape([1, 3, 32, 32]);
        let slot = Slot { tensor: &mut tensor, item: 0, normalisation: &normalisation };
        Letterbox::new(&Device::Cpu).place(frame.as_window(), Size { width: 4, height: 2 }, slot);
        for (index, &value) in tensor.data().iter().enumerate() {
            let (y, x) = (index / 32 % 32, index % 32);
            let expected = if x < 4 && y < 2 { 200.0 } else { -1.0 };
            assert_eq!(value, expected, "{x} {y}");
        }
    }

    #[test]
    fn multiples_round_up() {
        assert_eq!(round_up_to_multiple(427, 32), 448);
        assert_eq!(round_up_to_multiple(640, 32), 640);
    }
}
