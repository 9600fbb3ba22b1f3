//! JPEG decoding. What cameras write is decoded by our own decoder, with the pixels of libjpeg-turbo, which takes 1.3 to 1.8
//! times as long at half size (`bench/RESULTS.md`). Everything else (progressive, CMYK, unusual sampling or scale), and
//! whatever ours finds damaged, is decoded and judged by libjpeg-turbo. Tells its harmless warnings (stray bytes between
//! segments and a few in front of a restart marker or the end marker, unknown revisions, scan headers with odd parameters and
//! profiles with odd numbers, which cameras and editors write) from damage (a file that ends early, has invalid codes, or has
//! data left over in its scan).

use photofinish_jpeg::Damage;
use photofinish_kernels::image::frame::Size;
use photofinish_store::model::photo::FailureReason;
use turbojpeg::{Colorspace, DecompressHeader, Decompressor, Image, PixelFormat, ScalingFactor};

use crate::engine::fault::Poison;
use crate::image::jpeg_structure::{JpegStructure, before_pixels, has_end_marker, without_oddities};

/// Maximum scans of a progressive file. Cameras and tools write 3 to 12; a file of many more is made to exhaust the CPU.
const MAX_SCANS: u32 = 100;

/// Decodes JPEG files; one per thread.
pub(crate) struct JpegDecoder {
    baseline: photofinish_jpeg::Decoder,
    turbo: Decompressor,
    /// Whether `turbo` has returned an error. It then keeps what it had read of that file: an unknown marker, for example, would
    /// make it refuse every file after that.
    is_spoiled: bool,
}

/// The header of a JPEG file.
#[derive(Clone, Copy, Debug)]
pub(crate) struct JpegHeader {
    /// Size of the stored picture.
    pub(crate) size: Size,
    is_lossless: bool,
    is_cmyk: bool,
    is_inverted: bool,
    /// Bytes of coefficients per pixel that the decoder keeps until it has read all scans.
    coefficient_bytes_per_pixel: usize,
    /// Whether a copy of the file is decoded in its place, because libjpeg-turbo warns of the header: [`without_oddities`].
    has_oddity: bool,
    /// Bytes of the copy of the file that may be made.
    copy_bytes: usize,
}

/// An error of libjpeg-turbo, which it also returns for warnings.
enum TurboError {
    /// A warning that does not affect the pixels.
    HarmlessWarning(Poison),
    /// A warning of what [`without_oddities`] removes. It does not affect the pixels, but nothing is known of the rest of the
    /// file. The poison is for a file of which it cannot be known.
    Oddity(Poison),
    /// The file was not decoded, or not reliably.
    Poison(Poison),
}

impl TurboError {
    /// The poison for a file whose warnings are not harmless.
    fn into_poison(self) -> Poison {
        let (Self::HarmlessWarning(poison) | Self::Oddity(poison) | Self::Poison(poison)) = self;
        poison
    }
}

impl JpegDecoder {
    /// Creates a decoder.
    ///
    /// # Errors
    /// When libjpeg-turbo cannot allocate its state.
    pub(crate) fn new() -> turbojpeg::Result<Self> {
        Ok(Self { baseline: photofinish_jpeg::Decoder::new(), turbo: new_turbo()?, is_spoiled: false })
    }

    /// Returns a decoder of libjpeg-turbo that knows nothing of earlier files.
    fn turbo(&mut self) -> Result<&mut Decompressor, Poison> {
        if self.is_spoiled {
            let cannot = |error| {
                let detail = format!("jpeg: cannot create a decoder: {error}");
                Poison::new(FailureReason::ProcessingCrashed, detail)
            };
            self.turbo = new_turbo().map_err(cannot)?;
            self.is_spoiled = false;
        }
        Ok(&mut self.turbo)
    }

    /// Reads the header.
    ///
    /// # Errors
    /// When the header is damaged or of an unsupported kind.
    pub(crate) fn read_header(&mut self, file: &[u8]) -> Result<JpegHeader, Poison> {
        let mut result = self.read_turbo_header(file);
        let has_oddity = matches!(result, Err(TurboError::Oddity(_)));
        if has_oddity {
            // libjpeg-turbo warned only, so that it has read all the rest of the header.
            result = self.read_turbo_header(&without_oddities(before_pixels(file)));
        }
        let header = result.map_err(TurboError::into_poison)?;
        let is_cmyk = matches!(header.colorspace, Colorspace::CMYK | Colorspace::YCCK);
        let structure = JpegStructure::read(file);
        Ok(JpegHeader {
            size: Size { width: parse_side(header.width)?, height: parse_side(header.height)? },
            is_lossless: header.is_lossless,
            is_cmyk,
            is_inverted: is_cmyk && structure.is_adobe,
            coefficient_bytes_per_pixel: structure.coefficient_bytes_per_pixel(),
            has_oddity,
            copy_bytes: if has_oddity || structure.may_need_a_copy() { file.len() } else { 0 },
        })
    }

    /// Reads the header by libjpeg-turbo. Returns what it only warns of as an error too.
    fn read_turbo_header(&mut self, file: &[u8]) -> Result<DecompressHeader, TurboError> {
        let turbo = self.turbo().map_err(TurboError::Poison)?;
        turbo.read_header(file).map_err(|error| {
            self.is_spoiled = true;
            classify_error(&error, &HEADER_ODDITIES)
        })
    }

    /// Decodes as planned, as row-major RGB, into `out`, and sets its length.
    ///
    /// # Errors
    /// When the file is damaged.
    pub(crate) fn decode(&mut self, file: &[u8], plan: &JpegPlan, out: &mut Vec<u8>) -> Result<(), Poison> {
        let copy = plan.header.has_oddity.then(|| without_oddities(file));
        let file = copy.as_deref().unwrap_or(file);
        let Err(damage) = self.decode_baseline(file, plan, out) else { return Ok(()) };
        self.decode_any(file, plan, damage, out)
    }

    /// Decodes what cameras write.
    ///
    /// # Errors
    /// The damage that was found, or nothing if the file is not for our decoder. libjpeg-turbo must then be asked, and what is
    /// in `out` is of no use.
    fn decode_baseline(
        &mut self,
        file: &[u8],
        plan: &JpegPlan,
        out: &mut Vec<u8>,
    ) -> Result<(), Option<Damage>> {
        let Some(scale) = photofinish_jpeg::Scale::from_eighths(plan.scale.0) else { return Err(None) };
        let Ok(header) = photofinish_jpeg::Header::read(file) else { return Err(None) };
        let photofinish_jpeg::Size { width, height } = header.size();
        // Memory was acquired for the size that libjpeg-turbo read.
        if [width, height] != [plan.header.size.width as usize, plan.header.size.height as usize] {
            return Err(None);
        }
        out.resize(header.rgb_bytes(scale), 0);
        self.baseline.decode(&header, scale, out).map_err(Some)
    }

    /// Decodes by libjpeg-turbo, which judges the file together with our decoder, if that has found `damage`.
    fn decode_any(
        &mut self,
        file: &[u8],
        plan: &JpegPlan,
        damage: Option<Damage>,
        out: &mut Vec<u8>,
    ) -> Result<(), Poison> {
        out.resize(plan.decoded_size().area() * plan.header.pixel_format().size(), 0);
        // Where our decoder did not look, nobody says whether bytes in front of a restart marker are all that is wrong.
        let is_harmless = if damage.is_some() { is_harmless_in_scan } else { is_harmless_at_end };
        let mut result = self.decompress(file, plan, is_harmless, out);
        if matches!(result, Err(TurboError::Oddity(_))) {
            // Of all its warnings libjpeg-turbo tells only the first: of a copy without this one it tells what else is wrong.
            result = self.decompress(&without_oddities(file), plan, is_harmless, out);
        }
        match (result, damage) {
            (Ok(()), _) => {}
            // The blocks were read, and a few bytes are in front of a restart marker or the end marker.
            (Err(TurboError::HarmlessWarning(_)), None | Some(Damage::LeftOver | Damage::MissingMarker)) => {}
            // Bytes are left over because broken codes ate too few. libjpeg-turbo does not warn of all such codes.
            (Err(TurboError::HarmlessWarning(_)), Some(damage)) => {
                return Err(Poison::new(FailureReason::CorruptImage, format!("jpeg: {damage}")));
            }
            (Err(error), _) => return Err(error.into_poison()),
        }
        if plan.header.is_cmyk {
            rgb_from_cmyk(out, plan.header.is_inverted);
        }
        Ok(())
    }

    /// Decodes by libjpeg-turbo. Returns what it only warns of as an error too.
    fn decompress(
        &mut self,
        file: &[u8],
        plan: &JpegPlan,
        is_harmless: fn(&str) -> bool,
        pixels: &mut [u8],
    ) -> Result<(), TurboError> {
        let (size, format) = (plan.decoded_size(), plan.header.pixel_format());
        let (width, height) = (size.width as usize, size.height as usize);
        let image = Image { pixels, width, pitch: width * format.size(), height, format };
        let turbo = self.turbo().map_err(TurboError::Poison)?;
        let scaled = turbo.set_scaling_factor(plan.scale.factor());
        scaled.map_err(|error| TurboError::Poison(to_poison(&error)))?;
        turbo.decompress(file, image).map_err(|error| {
            self.is_spoiled = true;
            // Of several warnings it tells only the first, so a harmless one does not prove that the file is complete; its end
            // marker does.
            if is_harmless(&error.to_string()) && has_end_marker(file) {
                return TurboError::HarmlessWarning(to_poison(&error));
            }
            classify_error(&error, &SCAN_ODDITIES)
        })
    }
}

fn new_turbo() -> turbojpeg::Result<Decompressor> {
    let mut turbo = Decompressor::new()?;
    turbo.set_scan_limit(MAX_SCANS)?;
    Ok(turbo)
}

impl JpegHeader {
    /// Plans to decode at the smallest scale at which the long side is still at least `long_side`, or at full scale.
    pub(crate) fn plan_for(self, long_side: u32) -> JpegPlan {
        let suffices = |scale: &Scale| scale.scale_size(self.size).long_side() >= long_side;
        // A lossless file has no DCT that could be scaled.
        let scale = Scale::ALL.into_iter().find(suffices).filter(|_| !self.is_lossless);
        JpegPlan { header: self, scale: scale.unwrap_or(Scale::FULL) }
    }

    /// The format of the pixels that libjpeg-turbo decodes into.
    fn pixel_format(&self) -> PixelFormat {
        if self.is_cmyk { PixelFormat::CMYK } else { PixelFormat::RGB }
    }
}

/// A JPEG header and the scale to decode at.
#[derive(Clone, Copy, Debug)]
pub(crate) struct JpegPlan {
    header: JpegHeader,
    scale: Scale,
}

impl JpegPlan {
    /// The size of the decoded picture.
    pub(crate) fn decoded_size(&self) -> Size {
        self.scale.scale_size(self.header.size)
    }

    /// Bytes of the buffer to decode into. CMYK takes 4 bytes per pixel and is converted to RGB in place.
    pub(crate) fn buffer_bytes(&self) -> usize {
        self.decoded_size().area() * if self.header.is_cmyk { 4 } else { 3 }
    }

    /// Peak memory of decoding, bytes, including the result.
    pub(crate) fn peak_bytes(&self) -> usize {
        let coefficient_bytes = self.header.size.area() * self.header.coefficient_bytes_per_pixel;
        self.buffer_bytes() + coefficient_bytes + self.header.copy_bytes
    }
}

/// A scale of the inverse DCT, in eighths.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Scale(u8);

impl Scale {
    const FULL: Self = Self(8);
    /// Smallest first. 5, 6 and 7 eighths are left out: libjpeg-turbo decodes them with plain code, in 1.2 to 1.7 times the
    /// time of full size and twice the time of our decoder at full size, which is more than the resize then saves.
    const ALL: [Self; 5] = [Self(1), Self(2), Self(3), Self(4), Self::FULL];

    /// The size of a picture decoded at this scale.
    fn scale_size(self, size: Size) -> Size {
        let factor = self.factor();
        let scaled = |side: u32| u32::try_from(factor.scale(side as usize)).unwrap_or(side);
        Size { width: scaled(size.width), height: scaled(size.height) }
    }

    fn factor(self) -> ScalingFactor {
        ScalingFactor::new(self.0.into(), 8)
    }
}

/// Warnings of a header of what [`without_oddities`] removes: a camera's own bytes between segments, unknown revisions, and a
/// profile whose parts are numbered wrongly.
const HEADER_ODDITIES: [&str; 4] = [
    "extraneous bytes before marker",
    "unknown JFIF revision",
    "Unknown Adobe color transform",
    "bad ICC marker",
];

/// The same of a scan: of a sequential file whose header does not end in `00 3f 00`, as in the photos of many phones.
const SCAN_ODDITIES: [&str; 1] = ["Invalid SOS parameters for sequential JPEG"];

/// The most bytes in front of the end marker that are a camera's own. What a damaged scan leaves over is mostly far more.
const MAX_STRAY_BYTES: u32 = 16;

/// The most bytes in front of a restart marker that are a camera's own: some webcams (Logitech C270) fill up segments with them.
const MAX_RESTART_STRAY_BYTES: u32 = 4;

/// Whether a warning that was not there when the header was read is harmless: it comes after the first scan has begun.
/// Stray bytes are, if they are few and in front of the end marker, or very few and in front of a restart marker. More, or some
/// in front of another marker, are what is left over of a scan or of one of its restart segments whose broken codes ate too
/// little: libjpeg-turbo does not warn of all such codes.
fn is_harmless_in_scan(message: &str) -> bool {
    stray_bytes(message).is_some_and(|stray| match stray.marker {
        0xd0..=0xd7 => stray.count <= MAX_RESTART_STRAY_BYTES,
        _ => stray.is_harmless_at_end(),
    })
}

/// As [`is_harmless_in_scan`], but bytes in front of a restart marker are damage.
fn is_harmless_at_end(message: &str) -> bool {
    stray_bytes(message).is_some_and(|stray| stray.is_harmless_at_end())
}

/// Bytes that libjpeg-turbo found in front of a marker.
struct StrayBytes {
    count: u32,
    marker: u8,
}

impl StrayBytes {
    fn is_harmless_at_end(&self) -> bool {
        self.marker == 0xd9 && self.count <= MAX_STRAY_BYTES
    }
}

/// Returns the bytes that a warning is of, if it is of such bytes.
fn stray_bytes(message: &str) -> Option<StrayBytes> {
    let (before, marker) = message.split_once(" extraneous bytes before marker 0x")?;
    let count = before.rsplit(' ').next()?.parse::<u32>().ok()?;
    Some(StrayBytes { count, marker: u8::from_str_radix(marker.trim_end(), 16).ok()? })
}

/// Tells what can be removed from damage by the message: libjpeg-turbo returns an error for a warning too, after it has decoded
/// everything.
fn classify_error(error: &turbojpeg::Error, oddities: &[&str]) -> TurboError {
    let message = error.to_string();
    if oddities.iter().any(|oddity| message.contains(oddity)) {
        return TurboError::Oddity(to_poison(error));
    }
    // "unsupported" or "Unsupported".
    if message.contains("nsupported") {
        return TurboError::Poison(Poison::new(FailureReason::UnsupportedFormat, format!("jpeg: {message}")));
    }
    TurboError::Poison(to_poison(error))
}

fn to_poison(error: &turbojpeg::Error) -> Poison {
    Poison::new(FailureReason::CorruptImage, format!("jpeg: {error}"))
}

fn parse_side(side: usize) -> Result<u32, Poison> {
    u32::try_from(side)
        .ok()
        .filter(|side| *side > 0)
        .ok_or_else(|| Poison::new(FailureReason::CorruptImage, "jpeg: a side of zero pixels"))
}

/// Converts CMYK to RGB in place. Adobe stores inverted values (255 is no ink), others store them directly.
fn rgb_from_cmyk(pixels: &mut Vec<u8>, is_inverted: bool) {
    let flip = if is_inverted { 0 } else { 0xff };
    let count = pixels.len() / 4;
    for i in 0..count {
        let [c, m, y, k] = [0, 1, 2, 3].map(|channel| u32::from(pixels[i * 4 + channel] ^ flip));
        let light = |ink: u32| ((ink * k + 127) / 255) as u8;
        pixels[i * 3] = light(c);
        pixels[i * 3 + 1] = light(m);
        pixels[i * 3 + 2] = light(y);
    }
    pixels.truncate(count * 3);
}

#[cfg(test)]
mod tests {
    use turbojpeg::{Compressor, Subsamp};

    use super::*;

    fn header(width: u32, height: u32) -> JpegHeader {
        JpegHeader {
            size: Size { width, height },
            is_lossless: false,
            is_cmyk: false,
            is_inverted: false,
            coefficient_bytes_per_pixel: 0,
            has_oddity: false,
            copy_bytes: 0,
        }
    }

    /// A JPEG of waves and gradients.
    fn encode(format: PixelFormat, set: impl FnOnce(&mut Compressor)) -> Vec<u8> {
        let (width, height) = (333, 250);
        let pixels: Vec<u8> = (0..width * height * format.size())
            .map(|i| ((i as f32 / 50.0).sin() * 90.0 + 128.0) as u8 ^ (i / (width * 40)) as u8)
            .collect();
        let mut compressor = Compressor::new().unwrap();
        compressor.set_quality(90).unwrap();
        compressor.set_subsamp(Subsamp::Sub2x2).unwrap();
        set(&mut compressor);
        let image = Image { pixels: &pixels[..], width, pitch: width * format.size(), height, format };
        compressor.compress_to_vec(image).unwrap()
    }

    /// Whether our decoder decodes a file at each scale, after checking that the result is libjpeg-turbo's.
    fn decoded_by_ours(file: &[u8]) -> [bool; 5] {
        let mut decoder = JpegDecoder::new().unwrap();
        let header = decoder.read_header(file).unwrap();
        Scale::ALL.map(|scale| {
            let plan = JpegPlan { header, scale };
            let [mut ours, mut turbos, mut either] = [const { Vec::new() }; 3];
            let is_ours = decoder.decode_baseline(file, &plan, &mut ours).is_ok();
            let expected = decoder.decode_any(file, &plan, None, &mut turbos).map_err(|poison| poison.reason);
            assert_eq!(decoder.decode(file, &plan, &mut either).map_err(|poison| poison.reason), expected);
            if expected.is_ok() {
                assert!(either == turbos && (!is_ours || ours == turbos), "other pixels at {scale:?}");
            }
            is_ours
        })
    }

    #[test]
    fn what_cameras_write_is_decoded_by_our_decoder() {
        for sampling in [Subsamp::None, Subsamp::Sub2x1, Subsamp::Sub2x2, Subsamp::Gray] {
            let file = encode(PixelFormat::RGB, |compressor| compressor.set_subsamp(sampling).unwrap());
            assert_eq!(decoded_by_ours(&file), [true; 5], "{sampling:?}");
        }
    }

    #[test]
    fn what_phones_write_is_decoded_by_our_decoder() {
        let mut file = encode(PixelFormat::RGB, |_| {});
        let scan = file.windows(2).position(|pair| pair == [0xff, 0xda]).unwrap();
        assert_eq!(file[scan + 11..scan + 14], [0, 63, 0]);
        file[scan + 11..scan + 14].copy_from_slice(&[0, 0, 0]);
        assert_eq!(decoded_by_ours(&file), [true; 5]);
    }

    #[test]
    fn what_our_decoder_leaves_is_decoded_by_libjpeg_turbo() {
        let progressive = encode(PixelFormat::RGB, |compressor| compressor.set_progressive(true).unwrap());
        let cmyk = encode(PixelFormat::CMYK, |_| {});
        let sampled = encode(PixelFormat::RGB, |compressor| compressor.set_subsamp(Subsamp::Sub1x2).unwrap());
        let whole = encode(PixelFormat::RGB, |_| {});
        let mut stuffed = whole.clone();
        stuffed.splice(whole.len() - 2..whole.len() - 2, [0x11; 7]);
        let cut = whole[..whole.len() / 2].to_vec();
        for file in [progressive, cmyk, sampled, stuffed, cut] {
            assert_eq!(decoded_by_ours(&file), [false; 5]);
        }
    }

    #[test]
    fn the_smallest_sufficient_scale_is_chosen() {
        let scaled =
            |width, height, long_side| header(width, height).plan_for(long_side).decoded_size().long_side();
        assert_eq!(scaled(6000, 4000, 2048), 2250);
        assert_eq!(scaled(4000, 6000, 2048), 2250);
        assert_eq!(scaled(4096, 3072, 2048), 2048);
        assert_eq!(scaled(4094, 3072, 2048), 4094);
        assert_eq!(scaled(2048, 1000, 2048), 2048);
        assert_eq!(scaled(1500, 1000, 2048), 1500);
        assert_eq!(scaled(16384, 100, 2048), 2048);
        assert_eq!(scaled(40000, 100, 2048), 5000);
    }

    #[test]
    fn cmyk_becomes_rgb() {
        let mut as_adobe = vec![255, 255, 255, 255, 0, 255, 255, 255, 255, 255, 255, 0];
        rgb_from_cmyk(&mut as_adobe, true);
        assert_eq!(as_adobe, [255, 255, 255, 0, 255, 255, 0, 0, 0]);
        let mut as_ink = vec![0, 0, 0, 0, 255, 0, 0, 0];
        rgb_from_cmyk(&mut as_ink, false);
        assert_eq!(as_ink, [255, 255, 255, 0, 255, 255]);
    }
}
