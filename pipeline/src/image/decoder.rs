//! Decodes pictures by their content, never by a file name, and only within the limits: the header is checked before
//! anything is allocated for pixels. All decoding in this crate goes through [`Decoder`].

use photofinish_kernels::image::frame::{Picture, Size};
use photofinish_store::model::photo::FailureReason;

use crate::engine::fault::Poison;
use crate::image::color_profile::ColorProfile;
use crate::image::format::Format;
use crate::image::heic::{self, HeicHeader};
use crate::image::jpeg::{JpegDecoder, JpegPlan};
use crate::image::jpeg_structure::JpegStructure;
use crate::image::pool::{BufferPool, PooledPicture};
use crate::image::raster::{self, RasterHeader};
use crate::image::webp;
use crate::settings::Limits;

/// Maximum length of a side, pixels: that of a JPEG. Resizing keeps 48 bytes for each pixel of a side, so a file of one
/// very long line would take gigabytes.
const MAX_SIDE: u32 = 65_535;

/// Bytes that decoding may take per pixel of the limit of decoded pixels, beside a copy of the file. 8-bit RGB never needs
/// more: 3 for the pixels and, in a JPEG of several scans, 6 for the coefficients. 16-bit RGB fits too, and so does CMYK,
/// as a large CMYK photo is decoded at a smaller scale. Formats that need more per pixel are accepted up to fewer pixels:
/// with a limit of 200 megapixels, about 163 megapixels at 16 bits with transparency, about 120 of an animation, and about
/// 180 of a HEIC that is no grid of tiles.
///
/// What a decoder of JPEG keeps for itself, 5 MiB a thread ([`photofinish_jpeg::MAX_BUFFER_BYTES`]), is small beside what a
/// file of one scan leaves of this.
///
/// The pixel budget does not bound a single photo: one above the budget runs alone (see `engine::budget`). And
/// 200 megapixels of one colour are a file of a megabyte.
pub const MAX_BYTES_PER_PIXEL: u64 = 9;

/// How to decode a file whose header was checked, and what it takes.
pub(crate) struct DecodePlan {
    format: Format,
    backend: DecodeBackend,
    /// Size of the stored picture, before scaling and orientation.
    pub(crate) stored_size: Size,
    /// Size of the decoded picture, after scaling, before orientation.
    pub(crate) decoded_size: Size,
    /// Bytes of the buffer that is decoded into; it stays with the decoded picture.
    pub(crate) buffer_bytes: usize,
    /// Peak memory of decoding, bytes, including the result.
    pub(crate) peak_bytes: usize,
    /// Which colours the pixels stand for, if the file says so.
    pub(crate) color_profile: Option<ColorProfile>,
}

enum DecodeBackend {
    TurboJpeg(JpegPlan),
    ImageCrate(RasterHeader),
    Heic(HeicHeader),
}

/// Decodes pictures; one per thread.
pub(crate) struct Decoder {
    jpeg: JpegDecoder,
    limits: Limits,
    /// The most pixels of a decoded picture. A JPEG may have more, up to the limit, if a smaller scale is enough.
    max_decoded_pixels: u64,
    pool: BufferPool,
}

impl Decoder {
    /// Creates a decoder whose pictures take their buffers from `pool`.
    ///
    /// # Errors
    /// When libjpeg-turbo cannot allocate its state.
    pub(crate) fn new(limits: Limits, pool: BufferPool) -> turbojpeg::Result<Self> {
        Self::with_max_decoded_pixels(limits.max_pixels, limits, pool)
    }

    /// Creates a decoder of pictures with at most `max_decoded_pixels` once they are decoded. Only JPEGs can be decoded
    /// at a smaller scale, so this is the limit of all others.
    ///
    /// # Errors
    /// When libjpeg-turbo cannot allocate its state.
    pub(crate) fn with_max_decoded_pixels(
        max_decoded_pixels: u64,
        limits: Limits,
        pool: BufferPool,
    ) -> turbojpeg::Result<Self> {
        let max_decoded_pixels = max_decoded_pixels.min(limits.max_pixels);
        Ok(Self { jpeg: JpegDecoder::new()?, limits, max_decoded_pixels, pool })
    }

    /// Checks the header and plans to decode at the smallest scale whose long side is at least the one that
    /// `long_side_for` returns for the stored size.
    ///
    /// # Errors
    /// When the file is not a picture, is damaged, or is above the limits.
    pub(crate) fn plan(
        &mut self,
        file: &[u8],
        long_side_for: impl FnOnce(Size) -> u32,
    ) -> Result<DecodePlan, Poison> {
        let format = Format::from_magic_bytes(file, self.limits.reads_heic)?;
        if let Some(claimed) = read_claimed_size(file, format) {
            self.check_size(claimed, self.max_stored_pixels(format))?;
        }
        let plan = self.plan_format(format, file, long_side_for)?;
        self.check_size(plan.decoded_size, self.max_decoded_pixels)?;
        self.check_peak_bytes(&plan)?;
        Ok(plan)
    }

    fn plan_format(
        &mut self,
        format: Format,
        file: &[u8],
        long_side_for: impl FnOnce(Size) -> u32,
    ) -> Result<DecodePlan, Poison> {
        if format == Format::Jpeg {
            let header = self.jpeg.read_header(file)?;
            let stored_size = header.size;
            self.check_size(stored_size, self.limits.max_pixels)?;
            let plan = header.plan_for(long_side_for(stored_size));
            return Ok(DecodePlan {
                format,
                stored_size,
                decoded_size: plan.decoded_size(),
                buffer_bytes: plan.buffer_bytes(),
                peak_bytes: plan.peak_bytes(),
                color_profile: ColorProfile::from_jpeg(file),
                backend: DecodeBackend::TurboJpeg(plan),
            });
        }
        if format == Format::Heic {
            return self.plan_heic(file);
        }
        let header = raster::read_header(file, format)?;
        self.check_size(header.size, self.max_decoded_pixels)?;
        Ok(DecodePlan {
            format,
            stored_size: header.size,
            decoded_size: header.size,
            buffer_bytes: header.size.area() * 3,
            peak_bytes: header.peak_bytes,
            color_profile: header.color_profile.clone(),
            backend: DecodeBackend::ImageCrate(header),
        })
    }

    fn plan_heic(&self, file: &[u8]) -> Result<DecodePlan, Poison> {
        let header = heic::read_header(file)?;
        self.check_size(header.coded_size, self.max_decoded_pixels)?;
        Ok(DecodePlan {
            format: Format::Heic,
            stored_size: header.size,
            decoded_size: header.size,
            buffer_bytes: header.size.area() * 3,
            peak_bytes: header.peak_bytes,
            color_profile: header.color_profile.clone(),
            backend: DecodeBackend::Heic(header),
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
            DecodeBackend::Heic(header) => heic::decode(file, header, &mut pixels)?,
            DecodeBackend::ImageCrate(header) => raster::decode(file, plan.format, header, &mut pixels)?,
        }
        let picture = Picture::new(pixels, plan.decoded_size.width, plan.decoded_size.height)
            .map_err(|error| Poison::new(FailureReason::CorruptImage, error.to_string()))?;
        Ok(PooledPicture::new(picture, &self.pool))
    }

    fn max_stored_pixels(&self, format: Format) -> u64 {
        if format == Format::Jpeg { self.limits.max_pixels } else { self.max_decoded_pixels }
    }

    fn check_size(&self, size: Size, max_pixels: u64) -> Result<(), Poison> {
        let Size { width, height } = size;
        let pixels = u64::from(width) * u64::from(height);
        if pixels > max_pixels {
            let detail = format!("{width} x {height} pixels, the limit is {max_pixels}");
            return Err(Poison::new(FailureReason::TooManyPixels, detail));
        }
        if size.long_side() > MAX_SIDE {
            let detail = format!("{width} x {height} pixels, the limit is {MAX_SIDE} per side");
            return Err(Poison::new(FailureReason::TooManyPixels, detail));
        }
        Ok(())
    }

    fn check_peak_bytes(&self, plan: &DecodePlan) -> Result<(), Poison> {
        let limit = self.max_decoded_pixels.saturating_mul(MAX_BYTES_PER_PIXEL);
        let limit = limit.saturating_add(self.limits.max_file_bytes);
        if plan.peak_bytes as u64 > limit {
            let Size { width, height } = plan.stored_size;
            let detail = format!(
                "{width} x {height} pixels of this format take {} bytes, the limit is {limit}",
                plan.peak_bytes
            );
            return Err(Poison::new(FailureReason::TooManyPixels, detail));
        }
        Ok(())
    }
}

/// Reads the size that the header claims, before any decoder parses the file.
fn read_claimed_size(file: &[u8], format: Format) -> Option<Size> {
    let (width, height) = match format {
        Format::Jpeg => JpegStructure::read(file).size?,
        Format::Png => {
            let header = file.get(12..24)?.strip_prefix(b"IHDR")?;
            let side =
                |offset: usize| Some(u32::from_be_bytes(header.get(offset..offset + 4)?.try_into().ok()?));
            (side(0)?, side(4)?)
        }
        // Without a canvas, the decoder reads the sides without allocating: `raster::read_header`.
        Format::WebP => webp::read_canvas_size(file)?,
        // The decoder reads the sides without allocating: `heic::read_header`.
        Format::Heic => return None,
    };
    Some(Size { width, height })
}
