//! Pictures in memory: RGB, 8 bits, row-major, upright, no padding. Decoding and EXIF happen before.

/// A picture that somebody else owns.
#[derive(Clone, Copy, Debug)]
pub struct Frame<'a> {
    pixels: &'a [u8],
    width: u32,
    height: u32,
}

/// A picture.
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

fn check(bytes: usize, width: u32, height: u32) -> Result<(), FrameError> {
    let wanted = (width as usize).checked_mul(height as usize).and_then(|n| n.checked_mul(3));
    if width > 0 && height > 0 && wanted == Some(bytes) {
        Ok(())
    } else {
        Err(FrameError { bytes, width, height })
    }
}

impl<'a> Frame<'a> {
    /// A view of RGB pixels.
    ///
    /// # Errors
    /// When the length does not fit the sides, or a side is zero.
    pub fn new(pixels: &'a [u8], width: u32, height: u32) -> Result<Self, FrameError> {
        check(pixels.len(), width, height)?;
        Ok(Self { pixels, width, height })
    }

    /// Row-major RGB.
    pub fn pixels(&self) -> &'a [u8] {
        self.pixels
    }

    /// Pixels across.
    pub fn width(&self) -> u32 {
        self.width
    }

    /// Pixels down.
    pub fn height(&self) -> u32 {
        self.height
    }

    /// The longer side.
    pub fn long_side(&self) -> u32 {
        self.width.max(self.height)
    }
}

impl Picture {
    /// Takes RGB pixels.
    ///
    /// # Errors
    /// When the length does not fit the sides, or a side is zero.
    pub fn new(pixels: Vec<u8>, width: u32, height: u32) -> Result<Self, FrameError> {
        check(pixels.len(), width, height)?;
        Ok(Self { pixels, width, height })
    }

    /// A view of it.
    pub fn frame(&self) -> Frame<'_> {
        Frame { pixels: &self.pixels, width: self.width, height: self.height }
    }

    /// Pixels across.
    pub fn width(&self) -> u32 {
        self.width
    }

    /// Pixels down.
    pub fn height(&self) -> u32 {
        self.height
    }

    /// The longer side.
    pub fn long_side(&self) -> u32 {
        self.width.max(self.height)
    }

    /// Bytes of memory it takes.
    pub fn size_bytes(&self) -> usize {
        self.pixels.len()
    }

    /// The pixels, for reuse.
    pub fn into_pixels(self) -> Vec<u8> {
        self.pixels
    }
}
