//! The decoders with their buffers, and the CPU that each takes.

use std::time::Duration;

use photofinish_jpeg::{Header, Scale};
use turbojpeg::{Decompressor, Image, PixelFormat, ScalingFactor};

use crate::process::own_cpu;

/// The decoders; they keep their buffers from file to file.
pub(super) struct Decoders {
    ours: photofinish_jpeg::Decoder,
    /// Ours as on a processor without its vector instructions.
    portable: photofinish_jpeg::Decoder,
    turbo: Decompressor,
    our_pixels: Vec<u8>,
    turbo_pixels: Vec<u8>,
}

/// What came of a file.
pub(super) enum Outcome {
    /// Ours found damage, or libjpeg-turbo warned.
    Damaged,
    /// All decoded it.
    Decoded {
        /// The least CPU of all rounds.
        ours: Duration,
        /// The least CPU of all rounds.
        portable: Duration,
        /// The least CPU of all rounds.
        turbo: Duration,
        has_same_pixels: bool,
    },
}

impl Decoders {
    /// # Errors
    /// When libjpeg-turbo cannot allocate its state.
    pub(super) fn new() -> anyhow::Result<Self> {
        Ok(Self {
            ours: photofinish_jpeg::Decoder::new(),
            portable: photofinish_jpeg::Decoder::portable(),
            turbo: Decompressor::new()?,
            our_pixels: Vec::new(),
            turbo_pixels: Vec::new(),
        })
    }

    /// Decodes a file with each in turn.
    ///
    /// # Errors
    /// When libjpeg-turbo does not know the scale.
    pub(super) fn compare(&mut self, file: &[u8], scale: Scale, rounds: usize) -> anyhow::Result<Outcome> {
        self.turbo.set_scaling_factor(ScalingFactor::new(scale.eighths(), 8))?;
        let [mut ours, mut portable, mut turbo] = [Duration::MAX; 3];
        let mut has_same_pixels = true;
        for _ in 0..rounds.max(1) {
            let start = own_cpu();
            let is_decoded = self.decode_with_turbo(file, scale).is_ok();
            turbo = turbo.min(own_cpu().saturating_sub(start));
            let Self { our_pixels, turbo_pixels, .. } = self;
            let start = own_cpu();
            let is_whole = decode_with(&mut self.ours, file, scale, our_pixels).is_ok();
            ours = ours.min(own_cpu().saturating_sub(start));
            has_same_pixels &= our_pixels == turbo_pixels;
            let start = own_cpu();
            let is_whole_too = decode_with(&mut self.portable, file, scale, our_pixels).is_ok();
            portable = portable.min(own_cpu().saturating_sub(start));
            has_same_pixels &= our_pixels == turbo_pixels;
            if !is_decoded || !is_whole || !is_whole_too {
                return Ok(Outcome::Damaged);
            }
        }
        Ok(Outcome::Decoded { ours, portable, turbo, has_same_pixels })
    }

    /// The least CPU of all rounds of zune-jpeg, which the crate `image` uses, at full size: it knows no other. Nothing for
    /// a file that it does not decode.
    pub(super) fn time_zune(file: &[u8], rounds: usize) -> Option<Duration> {
        let mut least = Duration::MAX;
        for _ in 0..rounds.max(1) {
            let start = own_cpu();
            image::load_from_memory_with_format(file, image::ImageFormat::Jpeg).ok()?;
            least = least.min(own_cpu().saturating_sub(start));
        }
        Some(least)
    }

    fn decode_with_turbo(&mut self, file: &[u8], scale: Scale) -> anyhow::Result<()> {
        // `decompress` reads the header again; the size is that of our header, which is cheaper.
        let size = Header::read(file)?.scaled_size(scale);
        self.turbo_pixels.resize(size.width * size.height * 3, 0);
        let (width, height, format) = (size.width, size.height, PixelFormat::RGB);
        let pixels = self.turbo_pixels.as_mut_slice();
        Ok(self.turbo.decompress(file, Image { pixels, width, pitch: width * 3, height, format })?)
    }
}

/// Decodes a file with one of ours into a buffer that is reused.
fn decode_with(
    decoder: &mut photofinish_jpeg::Decoder,
    file: &[u8],
    scale: Scale,
    pixels: &mut Vec<u8>,
) -> anyhow::Result<()> {
    let header = Header::read(file)?;
    pixels.resize(header.rgb_bytes(scale), 0);
    Ok(decoder.decode(&header, scale, pixels)?)
}
