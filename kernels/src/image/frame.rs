//! Pictures in memory: RGB, 8 bits per channel, row-major, no padding. Decoding happens elsewhere.

/// A borrowed picture. Its pixels are `width * height * 3` bytes, neither side is zero.
#[derive(Clone, Copy, Debug)]
pub struct Frame<'a> {
    pixels: &'a [u8],
    width: u32,
    height: u32,
}

/// An owned picture. Its pixels are `width * height * 3` bytes, neither side is zero.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Picture {
    pixels: Vec<u8>,
    width: u32,
    height: u32,
}

/// The pixels given are not `width * height * 3` bytes, or a side is zero.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{bytes} bytes are not a {width} x {height} RGB picture")]
pub struct FrameError {
    /// Bytes given.
    pub bytes: usize,
    /// Width given.
    pub width: u32,
    /// Height given.
    pub height: u32,
}

impl<'a> Frame<'a> {
    /// Borrows row-major RGB pixels as a frame.
    ///
    /// # Errors
    /// When `pixels` is not `width * height * 3` bytes, or a side is zero.
    pub fn new(pixels: &'a [u8], width: u32, height: u32) -> Result<Self, FrameError> {
        check_dimensions(pixels.len(), width, height)?;
        Ok(Self { pixels, width, height })
    }

    /// Row-major RGB.
    pub fn pixels(&self) -> &'a [u8] {
        self.pixels
    }

    /// Width, pixels.
    pub fn width(&self) -> u32 {
        self.width
    }

    /// Height, pixels.
    pub fn height(&self) -> u32 {
        self.height
    }

    /// The longer side, pixels.
    pub fn long_side(&self) -> u32 {
        self.size().long_side()
    }

    /// Width and height.
    pub fn size(&self) -> Size {
        Size { width: self.width, height: self.height }
    }

    /// The window that covers the whole frame.
    pub fn as_window(self) -> Window<'a> {
        Window { frame: self, left: 0, top: 0, size: self.size() }
    }

    /// The window of `size` at `left`, `top`; `None` when it is empty or reaches outside the frame.
    pub fn window(self, left: u32, top: u32, size: Size) -> Option<Window<'a>> {
        let fits = |start: u32, length: u32, limit: u32| {
            length > 0 && start.checked_add(length).is_some_and(|end| end <= limit)
        };
        (fits(left, size.width, self.width) && fits(top, size.height, self.height)).then_some(Window {
            frame: self,
            left,
            top,
            size,
        })
    }
}

impl Picture {
    /// Creates a picture from row-major RGB pixels.
    ///
    /// # Errors
    /// When `pixels` is not `width * height * 3` bytes, or a side is zero.
    pub fn new(pixels: Vec<u8>, width: u32, height: u32) -> Result<Self, FrameError> {
        check_dimensions(pixels.len(), width, height)?;
        Ok(Self { pixels, width, height })
    }

    /// Borrows the picture as a frame.
    pub fn frame(&self) -> Frame<'_> {
        Frame { pixels: &self.pixels, width: self.width, height: self.height }
    }

    /// Width, pixels.
    pub fn width(&self) -> u32 {
        self.width
    }

    /// Height, pixels.
    pub fn height(&self) -> u32 {
        self.height
    }

    /// The longer side, pixels.
    pub fn long_side(&self) -> u32 {
        self.size().long_side()
    }

    /// Bytes of its pixels.
    pub fn size_bytes(&self) -> usize {
        self.pixels.len()
    }

    /// Returns the pixel buffer, for reuse.
    pub fn into_pixels(self) -> Vec<u8> {
        self.pixels
    }

    /// Width and height.
    pub fn size(&self) -> Size {
        Size { width: self.width, height: self.height }
    }

    /// Row-major RGB.
    pub fn pixels_mut(&mut self) -> &mut [u8] {
        &mut self.pixels
    }
}

fn check_dimensions(bytes: usize, width: u32, height: u32) -> Result<(), FrameError> {
    let expected = (width as usize).checked_mul(height as usize).and_then(|n| n.checked_mul(3));
    if width > 0 && height > 0 && expected == Some(bytes) {
        Ok(())
    } else {
        Err(FrameError { bytes, width, height })
    }
}

/// Width and height, pixels.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Size {
    /// Width, pixels.
    pub width: u32,
    /// Height, pixels.
    pub height: u32,
}

impl Size {
    /// The longer side, pixels.
    pub fn long_side(self) -> u32 {
        self.width.max(self.height)
    }

    /// Returns the size with the same aspect ratio whose long side is at most `long_side`: never larger than this one,
    /// no side below one pixel. Rounds to the nearest pixel, halves to even.
    pub fn fit_within(self, long_side: u32) -> Self {
        let longest = self.long_side();
        if longest <= long_side {
            return self;
        }
        let ratio = f64::from(long_side) / f64::from(longest);
        let scaled = |side: u32| ((f64::from(side) * ratio).round_ties_even() as u32).max(1);
        Self { width: scaled(self.width), height: scaled(self.height) }
    }

    /// Width times height, pixels.
    pub fn area(self) -> usize {
        self.width as usize * self.height as usize
    }
}

/// A rectangular part of a frame, borrowed. It is never empty and never reaches outside the frame.
#[derive(Clone, Copy, Debug)]
pub struct Window<'a> {
    frame: Frame<'a>,
    left: u32,
    top: u32,
    size: Size,
}

impl<'a> Window<'a> {
    pub(crate) fn frame(&self) -> Frame<'a> {
        self.frame
    }

    pub(crate) fn left(&self) -> u32 {
        self.left
    }

    pub(crate) fn top(&self) -> u32 {
        self.top
    }

    /// Width and height.
    pub fn size(&self) -> Size {
        self.size
    }

    /// Row `y` as RGB pixels.
    ///
    /// # Panics
    /// When `y` is not below the height.
    pub fn row(&self, y: u32) -> &'a [u8] {
        assert!(y < self.size.height, "row {y} of {}", self.size.height);
        let start = ((self.top + y) as usize * self.frame.width as usize + self.left as usize) * 3;
        &self.frame.pixels[start..start + self.size.width as usize * 3]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_window_shows_the_rows_of_its_part() {
        let pixels: Vec<u8> = (0..4 * 3 * 3).collect();
        let frame = Frame::new(&pixels, 4, 3).unwrap();
        let window = frame.window(1, 1, Size { width: 2, height: 2 }).unwrap();
        assert_eq!(window.row(0), &[15, 16, 17, 18, 19, 20]);
        assert_eq!(window.row(1), &[27, 28, 29, 30, 31, 32]);
    }

    #[test]
    fn a_window_beyond_the_frame_is_none() {
        let pixels = [0; 4 * 3 * 3];
        let frame = Frame::new(&pixels, 4, 3).unwrap();
        assert!(frame.window(3, 0, Size { width: 2, height: 1 }).is_none());
        assert!(frame.window(0, 0, Size { width: 0, height: 1 }).is_none());
        assert!(frame.window(1, 1, Size { width: u32::MAX, height: 1 }).is_none());
    }

    #[test]
    fn fitting_keeps_the_shape_and_never_enlarges() {
        let size = Size { width: 6000, height: 4000 };
        assert_eq!(size.fit_within(2048), Size { width: 2048, height: 1365 });
        assert_eq!(size.fit_within(8000), size);
        assert_eq!(Size { width: 9000, height: 1 }.fit_within(512), Size { width: 512, height: 1 });
    }
}
