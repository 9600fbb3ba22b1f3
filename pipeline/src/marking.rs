//! Draws watermarks on the previews of photos that were processed before: what the stage `resize` does for all others.

use bytes::Bytes;
use photofinish_kernels::image::frame::Size;
use turbojpeg::{Compressor, Decompressor, Image, PixelFormat};

use crate::image::color_profile::{ColorProfile, attach_profile};
pub use crate::image::watermark::{WatermarkError, WatermarkPicture};
use crate::stages::resize::preview_compressor;

/// Why a preview was not marked.
#[derive(Debug, thiserror::Error)]
pub enum MarkingError {
    /// The preview is damaged.
    #[error("the preview is damaged: {0}")]
    Jpeg(#[from] turbojpeg::Error),
}

/// Draws watermarks on JPEG files.
pub struct PreviewMarker {
    decompressor: Decompressor,
    compressor: Compressor,
    /// Whether it has returned an error: it then keeps what it had read of that file.
    is_spoiled: bool,
}

impl PreviewMarker {
    /// Creates one.
    ///
    /// # Errors
    /// When libjpeg-turbo cannot allocate its state.
    pub fn new() -> turbojpeg::Result<Self> {
        Ok(Self { decompressor: Decompressor::new()?, compressor: preview_compressor()?, is_spoiled: false })
    }

    /// Returns the preview with the watermark, as a JPEG file with the colour profile of the preview.
    ///
    /// # Errors
    /// When the preview cannot be decoded.
    pub fn mark(&mut self, preview: &[u8], watermark: &WatermarkPicture) -> Result<Bytes, MarkingError> {
        self.draw_on(preview, watermark).inspect_err(|_| self.is_spoiled = true)
    }

    fn draw_on(&mut self, preview: &[u8], watermark: &WatermarkPicture) -> Result<Bytes, MarkingError> {
        if std::mem::take(&mut self.is_spoiled) {
            *self = Self::new()?;
        }
        let header = self.decompressor.read_header(preview)?;
        let (width, height) = (header.width, header.height);
        let mut pixels = vec![0; width * height * 3];
        let image =
            Image { pixels: &mut pixels[..], width, pitch: width * 3, height, format: PixelFormat::RGB };
        self.decompressor.decompress(preview, image)?;
        let size = Size { width: width as u32, height: height as u32 };
        watermark.draw(&mut pixels, size);
        let image = Image { pixels: &pixels[..], width, pitch: width * 3, height, format: PixelFormat::RGB };
        let marked = self.compressor.compress_to_vec(image)?;
        Ok(attach_profile(marked, ColorProfile::from_jpeg(preview).as_ref()))
    }
}
