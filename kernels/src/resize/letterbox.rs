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
            Device::Cpu | Device::Gpu(_) => Self { resizer: Resizer::default(), pixels: Vec::new() },
        }
    }

    /// Resizes `source` to `size` with the filter of [`ResizeTarget::for_network_input`] and writes it at the top left
    /// of the slot; what does not fit is cropped.
    ///
    /// # Panics
    /// When a side of `size` is zero or the tensor has no such item.
    pub fn place(&mut self, source: Window<'_>, size: Size, slot: Slot<'_>) {
        self.place_rows(source, size, 0, slot);
    }

    /// As [`Self::place`], without the first `skipped` rows of the resized picture: each row has the same pixels as there.
    ///
    /// # Panics
    /// When a side of `size` is zero or the tensor has no such item.
    pub fn place_rows(&mut self, source: Window<'_>, size: Size, skipped: u32, slot: Slot<'_>) {
        let from = source.size();
        let rest = Size { width: size.width, height: size.height.saturating_sub(skipped) };
        if from == size {
            slot.write_rows(rest, |y| source.row(y + skipped));
            return;
        }
        self.resizer.resize(source, ResizeTarget::for_network_input(from, size), &mut self.pixels);
        let stride = size.width as usize * 3;
        let pixels = &self.pixels;
        slot.write_rows(rest, |y| &pixels[(y + skipped) as usize * stride..][..stride]);
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
    fn skipped_rows_leave_the_others_as_they_are() {
        let pixels: Vec<u8> = (0..12 * 9 * 3).map(|value| (value * 7 % 251) as u8).collect();
        let frame = Frame::new(&pixels, 12, 9).unwrap();
        let normalisation = Normalisation { padding: -1.0, ..Normalisation::raw(Channels::Bgr) };
        for size in
            [Size { width: 12, height: 9 }, Size { width: 6, height: 5 }, Size { width: 20, height: 15 }]
        {
            let placed = |rows: usize, skipped: u32| {
                let mut tensor = Tensor::default();
                tensor.reshape([1, 3, rows, 32]);
                let slot = Slot { tensor: &mut tensor, item: 0, normalisation: &normalisation };
                Letterbox::new(&Device::Cpu).place_rows(frame.as_window(), size, skipped, slot);
                tensor.data().to_vec()
            };
            let whole = placed(32, 0);
            for skipped in 0..24 {
                let part = placed(8, skipped);
                for plane in 0..3 {
                    let from = (plane * 32 + skipped as usize) * 32;
                    assert_eq!(
                        part[plane * 8 * 32..][..8 * 32],
                        whole[from..][..8 * 32],
                        "{size:?} {skipped}"
                    );
                }
            }
        }
    }

    #[test]
    fn multiples_round_up() {
        assert_eq!(round_up_to_multiple(427, 32), 448);
        assert_eq!(round_up_to_multiple(640, 32), 640);
    }
}
