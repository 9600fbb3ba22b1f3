//! Input tensors of networks: f32 in NCHW order (item, plane, row, column), in reused memory.

use crate::image::frame::Size;

/// A batch of items of equal shape.
#[derive(Clone, Debug, Default)]
pub struct Tensor {
    shape: [usize; 4],
    data: Vec<f32>,
}

/// The order of the colour planes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Channels {
    /// Red first.
    Rgb,
    /// Blue first.
    Bgr,
}

/// How a channel value (0 to 255) becomes a number: `(value - mean) * scale`, per plane.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Normalisation {
    /// Order of the planes.
    pub channels: Channels,
    /// Subtracted, in the order of the planes.
    pub mean: [f32; 3],
    /// Multiplied afterwards, in the order of the planes.
    pub scale: [f32; 3],
    /// The normalised value outside the picture.
    pub padding: f32,
}

impl Normalisation {
    /// Values 0 to 255 unchanged, padded with 0.
    pub const fn raw(channels: Channels) -> Self {
        Self { channels, mean: [0.0; 3], scale: [1.0; 3], padding: 0.0 }
    }
}

/// One item of a tensor that a picture is written into.
pub struct Slot<'t> {
    /// Already shaped; three planes.
    pub tensor: &'t mut Tensor,
    /// Index of the item.
    pub item: usize,
    /// How pixels become numbers.
    pub normalisation: &'t Normalisation,
}

impl Tensor {
    /// Sets the shape: items, planes, rows, columns. Memory only grows. Items that there were keep their values where only the
    /// number of items changes; other values are unspecified until written.
    pub fn reshape(&mut self, shape: [usize; 4]) {
        self.shape = shape;
        self.data.resize(shape.iter().product(), 0.0);
    }

    /// Items, planes, rows, columns.
    pub fn shape(&self) -> [usize; 4] {
        self.shape
    }

    /// All values.
    pub fn data(&self) -> &[f32] {
        &self.data
    }

    /// All values, mutable.
    pub fn data_mut(&mut self) -> &mut [f32] {
        &mut self.data
    }

    /// Rows and columns of an item.
    pub fn item_size(&self) -> Size {
        Size { width: self.shape[3] as u32, height: self.shape[2] as u32 }
    }

    /// The values of one item.
    ///
    /// # Panics
    /// When the tensor has no such item.
    pub fn item_mut(&mut self, item: usize) -> &mut [f32] {
        let length = self.shape[1] * self.shape[2] * self.shape[3];
        &mut self.data[item * length..(item + 1) * length]
    }
}

impl Slot<'_> {
    /// Writes a picture of size `size` at the top left, normalised, and pads the rest; what does not fit is cropped.
    /// `row(y)` returns row `y` as RGB pixels.
    ///
    /// # Panics
    /// When the tensor has no such item, or not three planes.
    pub fn write_rows<'p>(self, size: Size, row: impl Fn(u32) -> &'p [u8]) {
        let Self { tensor, item, normalisation } = self;
        let [_, planes, rows, columns] = tensor.shape;
        assert_eq!(planes, 3, "pixels have three planes");
        let width = (size.width as usize).min(columns);
        let height = (size.height as usize).min(rows);
        let values = tensor.item_mut(item);
        let (first, rest) = values.split_at_mut(rows * columns);
        let (second, third) = rest.split_at_mut(rows * columns);
        let mut targets = [first, second, third];
        for y in 0..rows {
            let mut lines = targets.each_mut().map(|target| &mut target[y * columns..][..columns]);
            let shown = if y < height { width } else { 0 };
            lines.iter_mut().for_each(|line| line[shown..].fill(normalisation.padding));
            if y < height {
                let (lines, pixels) = (lines.map(|line| &mut line[..width]), &row(y as u32)[..width * 3]);
                pulp::Arch::new().dispatch(WriteRow { normalisation, pixels, lines });
            }
        }
    }
}

/// A row to write.
struct WriteRow<'n, 'p, 'l> {
    normalisation: &'n Normalisation,
    /// RGB.
    pixels: &'p [u8],
    /// Of each plane, as many values as there are pixels.
    lines: [&'l mut [f32]; 3],
}

impl pulp::NullaryFnOnce for WriteRow<'_, '_, '_> {
    type Output = ();

    #[inline(always)]
    fn call(self) {
        let Self { normalisation: Normalisation { channels, mean, scale, .. }, pixels, lines } = self;
        let [first, second, third] = lines;
        let (reds, blues, red, blue) = match channels {
            Channels::Rgb => (first, third, 0, 2),
            Channels::Bgr => (third, first, 2, 0),
        };
        let values = reds.iter_mut().zip(second).zip(blues);
        for (((to_red, to_green), to_blue), pixel) in values.zip(pixels.chunks_exact(3)) {
            *to_red = (f32::from(pixel[0]) - mean[red]) * scale[red];
            *to_green = (f32::from(pixel[1]) - mean[1]) * scale[1];
            *to_blue = (f32::from(pixel[2]) - mean[blue]) * scale[blue];
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pixels_become_planes_in_the_requested_order() {
        let pixels = [10, 20, 30, 40, 50, 60];
        let normalisation = Normalisation {
            channels: Channels::Bgr,
            mean: [1.0, 2.0, 3.0],
            scale: [1.0, 0.5, 2.0],
            padding: -1.0,
        };
        let mut tensor = Tensor::default();
        tensor.reshape([1, 3, 2, 3]);
        let slot = Slot { tensor: &mut tensor, item: 0, normalisation: &normalisation };
        slot.write_rows(Size { width: 2, height: 1 }, |_| &pixels);
        let expected = [
            29.0, 59.0, -1.0, -1.0, -1.0, -1.0, // blue
            9.0, 24.0, -1.0, -1.0, -1.0, -1.0, // green
            14.0, 74.0, -1.0, -1.0, -1.0, -1.0, // red
        ];
        assert_eq!(tensor.data(), expected);
    }

    #[test]
    fn a_picture_larger_than_the_item_is_cropped() {
        let pixels = [7; 3 * 5];
        let mut tensor = Tensor::default();
        tensor.reshape([2, 3, 1, 2]);
        let normalisation = Normalisation::raw(Channels::Rgb);
        let slot = Slot { tensor: &mut tensor, item: 1, normalisation: &normalisation };
        slot.write_rows(Size { width: 5, height: 9 }, |_| &pixels);
        assert_eq!(tensor.data()[6..], [7.0; 6]);
        assert_eq!(tensor.data()[..6], [0.0; 6]);
    }
}
