//! Decodes pictures by their content, never by a name, and never more of them than the limits allow: the header is
//! judged before anything is allocated for its pixels. The only way from bytes to pixels in this crate.

use photofinish_kernels::frame::{Picture, Size};
use photofinish_store::model::photo::FailureReason;

use crate::engine::fault::Poison;
use crate::image::jpeg::{JpegDecoder, JpegPlan};
use crate::image::jpeg_structure::{JpegStructure, has_end_marker};
use crate::image::pool::{PixelPool, PooledPicture};
use crate::image::raster::{self, RasterHeader};
use crate::image::webp;
use crate::settings::Limits;

/// A kind of file that can be decoded.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Format {
    Jpeg,
    Png,
    WebP,
}

impl Format {
    /// By the first bytes.
    ///
    /// # Errors
    /// When it is none that can be decoded.
    pub(crate) fn from_magic_bytes(file: &[u8]) -> Result<Self, Poison> {
        let unsupported = |what: &str| Err(Poison::new(FailureReason::UnsupportedFormat, what));
        match file {
            [] => unsupported("the file is empty"),
            [0xff, 0xd8, 0xff, ..] => Ok(Self::Jpeg),
            [0x89, b'P', b'N', b'G', b'\r', b'\n', 0x1a, b'\n', ..] => Ok(Self::Png),
            [b'R', b'I', b'F', b'F', _, _, _, _, b'W', b'E', b'B', b'P', ..] => Ok(Self::WebP),
            [_, _, _, _, b'f', b't', b'y', b'p', ..] => unsupported("heic, avif or video, not built in"),
            [b'G', b'I', b'F', b'8', ..] => unsupported("gif"),
            [b'I', b'I', b'*', 0, ..] | [b'M', b'M', 0, b'*', ..] => {
                unsupported("tiff or a camera's raw file")
            }
            _ => unsupported("no picture of a known kind"),
        }
    }
}

/// Most pixels on a side: what a JPEG can have. A line of many more is no photo, and resizing keeps 48 bytes for each
/// pixel of a side, so that a file of one line would take gigabytes.
const MAX_SIDE: u32 = 65_535;

/// Bytes that decoding may take for each pixel that a file may have, beside a copy of the file. No photo of 8 bit RGB
/// takes more: 3 for its pixels and, in a JPEG of several scans, 6 for its coefficients. So each of them is read up
/// to the limit of pixels, and 16 bit RGB too, as well as CMYK, of which a large photo is decoded at a smaller scale.
/// What takes more is read up to fewer pixels: with a limit of 200 megapixels, about 163 of 16 bits with
/// transparency, and about 120 of an animation.
///
/// The budget does not see to it: a giant gets the empty house, whatever it takes (see [`crate::engine::budget`]). And 200
/// megapixels of one colour are a file of a megabyte.
const MAX_BYTES_PER_PIXEL: u64 = 9;

/// A file whose header was judged, and how it is going to be decoded.
pub(crate) struct DecodePlan {
    format: Format,
    backend: DecodeBackend,
    /// Of the stored picture.
    pub(crate) stored_size: Size,
    /// Of what decoding gives.
    pub(crate) decoded_size: Size,
    /// Bytes of the buffer that is decoded into, and kept with the decoded picture.
    pub(crate) buffer_bytes: usize,
    /// Bytes that decoding needs at its peak, the result included.
    pub(crate) peak_bytes: usize,
}

enum DecodeBackend {
    TurboJpeg(JpegPlan),
    ImageCrate(RasterHeader),
}

/// Decodes pictures; one a thread.
pub(crate) struct Decoder {
    jpeg: JpegDecoder,
    limits: Limits,
    pool: PixelPool,
}

impl Decoder {
    /// # Errors
    /// When there is no memory for libjpeg-turbo.
    pub(crate) fn new(limits: Limits, pool: PixelPool) -> turbojpeg::Result<Self> {
        Ok(Self { jpeg: JpegDecoder::new()?, limits, pool })
    }

    /// Judges the header and plans to decode at the smallest scale whose long side serves `long_side_for`, which is
    /// asked with the stored size.
    ///
    /// # Errors
    /// When it is no picture, a damaged one, or one beyond the limits.
    pub(crate) fn plan(
        &mut self,
        file: &[u8],
        long_side_for: impl FnOnce(Size) -> u32,
    ) -> Result<DecodePlan, Poison> {
        let format = Format::from_magic_bytes(file)?;
        if let Some(claimed) = read_claimed_size(file, format) {
            self.check_size(claimed)?;
        }
        let plan = self.plan_format(format, file, long_side_for)?;
        self.check_peak_bytes(&plan)?;
        Ok(plan)
    }

    fn plan_format(
        &mut self,
        format: Format,
        file: &[u8],
        long_side_for: impl FnOnce(Size) -> u32,
    ) -> Result<DecodePlan, Poison> {
        if format == Format::Jpeg
            && let Some(header) = self.jpeg.read_header(file)?
        {
            let stored = header.size;
            self.check_size((stored.width, stored.height))?;
            let plan = header.plan_for(long_side_for(stored));
            let (decoded, buffer_bytes, peak_bytes) =
                (plan.decoded_size(), plan.buffer_bytes(), plan.peak_bytes());
            return Ok(DecodePlan {
                format,
                backend: DecodeBackend::TurboJpeg(plan),
                stored_size: stored,
                decoded_size: decoded,
                buffer_bytes,
                peak_bytes,
            });
        }
        let header = raster::read_header(file, format)?;
        let (size, peak_bytes) = (header.size, header.peak_bytes);
        self.check_size((size.width, size.height))?;
        let (way, buffer_bytes) = (DecodeBackend::ImageCrate(header), size.area() * 3);
        Ok(DecodePlan {
            format,
            backend: way,
            stored_size: size,
            decoded_size: size,
            buffer_bytes,
            peak_bytes,
        })
    }

    /// Decodes as planned.
    ///
    /// # Errors
    /// When the file is damaged.
    pub(crate) fn decode(&mut self, file: &[u8], plan: &DecodePlan) -> Result<PooledPicture, Poison> {
        let mut pixels = self.pool.acquire_buffer(plan.buffer_bytes);
        match &plan.backend {
            DecodeBackend::TurboJpeg(plan) => self.jpeg.decode(file, plan, &mut pixels)?,
            DecodeBackend::ImageCrate(header) => {
                // Its JPEG decoder paints what is missing grey.
                if plan.format == Format::Jpeg && !has_end_marker(file) {
                    return Err(Poison::new(FailureReason::CorruptImage, "jpeg: it ends early"));
                }
                raster::decode(file, plan.format, header, &mut pixels)?;
            }
        }
        let picture = Picture::new(pixels, plan.decoded_size.width, plan.decoded_size.height)
            .map_err(|error| Poison::new(FailureReason::CorruptImage, error.to_string()))?;
        Ok(PooledPicture::new(picture, &self.pool))
    }

    fn check_size(&self, (width, height): (u32, u32)) -> Result<(), Poison> {
        let pixels = u64::from(width) * u64::from(height);
        if pixels > self.limits.max_pixels {
            let detail = format!("{width} x {height} pixels, at most {} are read", self.limits.max_pixels);
            return Err(Poison::new(FailureReason::TooManyPixels, detail));
        }
        if width.max(height) > MAX_SIDE {
            let detail = format!("{width} x {height} pixels, at most {MAX_SIDE} a side are read");
            return Err(Poison::new(FailureReason::TooManyPixels, detail));
        }
        Ok(())
    }

    fn check_peak_bytes(&self, plan: &DecodePlan) -> Result<(), Poison> {
        let Limits { max_file_bytes, max_pixels } = self.limits;
        let most = max_pixels.saturating_mul(MAX_BYTES_PER_PIXEL).saturating_add(max_file_bytes);
        if plan.peak_bytes as u64 > most {
            let Size { width, height } = plan.stored_size;
            let detail = format!(
                "{width} x {height} pixels of this kind take {} bytes, at most {most} are given",
                plan.peak_bytes
            );
            return Err(Poison::new(FailureReason::TooManyPixels, detail));
        }
        Ok(())
    }
}

/// What the first bytes say, before any decoder looks at the file.
fn read_claimed_size(file: &[u8], format: Format) -> Option<(u32, u32)> {
    match format {
        Format::Jpeg => JpegStructure::read(file).size,
        Format::Png => {
            let header = file.get(12..24)?.strip_prefix(b"IHDR")?;
            let side = |at: usize| Some(u32::from_be_bytes(header.get(at..at + 4)?.try_into().ok()?));
            Some((side(0)?, side(4)?))
        }
        // Where there is no canvas, the decoder reads the sides without allocating: `raster::header`.
        Format::WebP => webp::read_canvas_size(file),
    }
}
