//! Changes a photo a little, as another camera, another distance or another minute would: networks are sensitive to scale
//! and to shifts of less than a pixel, so one run over a set of photos says little. An evaluation is the mean over several
//! of these changes.
//!
//! Scale and shift move the face boxes that the detector returns by a few per cent, so the regions that are read change
//! too: boxes need no change of their own.

use fast_image_resize::{FilterType, ResizeAlg, ResizeOptions};
use image::RgbImage;

use super::random::SplitMix;
use super::{change_brightness, encode_jpeg, resample};

/// Pixels that are cut from each side together: the shift of the picture against the pixels of the file is between zero
/// and this.
const SHIFT: f64 = 2.0;

/// Factor of the size.
const ZOOM: [f64; 2] = [0.7, 1.3];

/// Factor of the brightness.
const BRIGHTNESS: [f64; 2] = [0.8, 1.2];

/// JPEG quality; the upper end is excluded.
const QUALITY: [f64; 2] = [80.0, 96.0];

/// One of the changes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub enum Change {
    /// The size.
    Scale,
    /// Where the picture is in the file.
    Shift,
    /// The brightness.
    Brightness,
    /// The JPEG quality.
    Quality,
}

/// How a photo is changed.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Jitter {
    /// Factor of its width and height.
    pub zoom: f64,
    /// Pixels of the original, with fractions, that are cut at the left.
    pub left: f64,
    /// The same at the top.
    pub top: f64,
    /// Factor of its brightness.
    pub brightness: f64,
    /// JPEG quality of the result.
    pub quality: i32,
}

impl Jitter {
    /// Draws a change. It depends on the seed and the photo alone, so that a photo is changed in the same way whatever the
    /// other photos of a run are.
    pub fn draw(seed: u64, file: &str) -> Self {
        let mut random = SplitMix(seed);
        for byte in file.bytes() {
            random.0 ^= u64::from(byte);
            random.next();
        }
        Self {
            zoom: random.uniform(ZOOM[0], ZOOM[1]),
            left: random.uniform(0.0, SHIFT),
            top: random.uniform(0.0, SHIFT),
            brightness: random.uniform(BRIGHTNESS[0], BRIGHTNESS[1]),
            quality: random.uniform(QUALITY[0], QUALITY[1]) as i32,
        }
    }

    /// Keeps one change and undoes the others, to measure it alone. The highest quality is not undone: the file has to be
    /// written again.
    #[must_use]
    pub fn only(self, change: Change) -> Self {
        let unchanged =
            Self { zoom: 1.0, left: 0.0, top: 0.0, brightness: 1.0, quality: QUALITY[1] as i32 - 1 };
        match change {
            Change::Scale => Self { zoom: self.zoom, ..unchanged },
            Change::Shift => Self { left: self.left, top: self.top, ..unchanged },
            Change::Brightness => Self { brightness: self.brightness, ..unchanged },
            Change::Quality => Self { quality: self.quality, ..unchanged },
        }
    }

    /// Returns the changed photo.
    ///
    /// # Errors
    /// When the picture is smaller than the shift.
    pub fn apply(&self, picture: &RgbImage) -> anyhow::Result<RgbImage> {
        let (width, height) = (f64::from(picture.width()) - SHIFT, f64::from(picture.height()) - SHIFT);
        anyhow::ensure!(width >= 1.0 && height >= 1.0, "a picture of {width} x {height} pixels");
        let scaled = |length: f64| ((length * self.zoom).round() as u32).max(1);
        let options = ResizeOptions::new()
            .resize_alg(ResizeAlg::Convolution(FilterType::Lanczos3))
            .crop(self.left, self.top, width, height);
        let mut changed = resample(picture, scaled(width), scaled(height), &options)?;
        change_brightness(&mut changed, self.brightness);
        Ok(changed)
    }

    /// Returns the changed photo as JPEG.
    ///
    /// # Errors
    /// When the picture is smaller than the shift.
    pub fn make_jpeg(&self, picture: &RgbImage) -> anyhow::Result<Vec<u8>> {
        encode_jpeg(&self.apply(picture)?, self.quality)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_change_depends_on_the_seed_and_the_photo_alone() {
        assert_eq!(Jitter::draw(1, "a.jpg"), Jitter::draw(1, "a.jpg"));
        assert_ne!(Jitter::draw(1, "a.jpg"), Jitter::draw(2, "a.jpg"));
        assert_ne!(Jitter::draw(1, "a.jpg"), Jitter::draw(1, "b.jpg"));
        for seed in 0..200 {
            let jitter = Jitter::draw(seed, "a.jpg");
            assert!((0.7..1.3).contains(&jitter.zoom) && (80..=95).contains(&jitter.quality), "{jitter:?}");
        }
    }

    #[test]
    fn one_change_alone_leaves_the_rest_as_it_is() {
        let jitter = Jitter::draw(1, "a.jpg");
        let scaled = jitter.only(Change::Scale);
        assert_eq!(scaled, Jitter { zoom: jitter.zoom, left: 0.0, top: 0.0, brightness: 1.0, quality: 95 });
        let picture = RgbImage::from_fn(40, 30, |x, y| image::Rgb([x as u8 * 6, y as u8 * 8, 100]));
        let darker = Jitter { brightness: 0.5, ..jitter }.only(Change::Brightness).apply(&picture).unwrap();
        assert_eq!(darker.dimensions(), (38, 28), "without the two pixels that a shift may take");
        assert_eq!(darker.get_pixel(20, 10).0, [60, 40, 50]);
    }

    /// Returns where a box of the original (left, top, right, bottom, in pixels) is in the changed photo.
    fn move_box(jitter: &Jitter, [left, top, right, bottom]: [f64; 4]) -> [f64; 4] {
        let [x0, x1] = [left, right].map(|x| (x - jitter.left) * jitter.zoom);
        let [y0, y1] = [top, bottom].map(|y| (y - jitter.top) * jitter.zoom);
        [x0, y0, x1, y1]
    }

    #[test]
    fn a_box_moves_with_what_it_shows() {
        let mut picture = RgbImage::new(400, 300);
        for (x, y) in (100..140).flat_map(|x| (60..80).map(move |y| (x, y))) {
            picture.put_pixel(x, y, image::Rgb([200; 3]));
        }
        for seed in 0..5 {
            let jitter = Jitter { brightness: 1.1, ..Jitter::draw(seed, "a.jpg") };
            let changed = jitter.apply(&picture).unwrap();
            let [left, top, right, bottom] = move_box(&jitter, [100.0, 60.0, 140.0, 80.0]);
            let value = |x: f64, y: f64| changed.get_pixel(x as u32, y as u32).0[0];
            let middle = [(left + right) / 2.0, (top + bottom) / 2.0];
            assert_eq!(value(middle[0], middle[1]), 220, "brighter by a tenth");
            for (x, y) in [
                (left - 4.0, middle[1]),
                (right + 4.0, middle[1]),
                (middle[0], top - 4.0),
                (middle[0], bottom + 4.0),
            ] {
                assert!(value(x, y) < 30, "outside at {x}, {y} with {jitter:?}");
            }
            assert!(value(left + 3.0, top + 3.0) > 190 && value(right - 4.0, bottom - 4.0) > 190);
        }
    }
}
