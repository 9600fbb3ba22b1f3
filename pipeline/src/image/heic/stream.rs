//! The HEVC stream of a coded picture: the parameter sets of its header, then its slices. What a stream may contain beside
//! these is left out, so that nothing in it can change the size that was planned for.

use heifer::heifer_hevc_dec::nal::{NalHeader, NalUnit, NalUnitType};
use heifer::heifer_hevc_dec::params::ParameterSets;
use heifer::heifer_hevc_dec::{self as hevc, decoder};
use heifer::heifer_isobmff::boxes::HevcConfig;
use photofinish_kernels::image::frame::Size;

use super::container::{corrupt, unsupported};
use crate::engine::fault::Poison;

pub(super) use heifer::heifer_hevc_dec::recon::Frame;

/// The most bytes of parameter sets. Encoders write 50 to 3,000.
const MAX_PARAMETER_BYTES: usize = 64 << 10;
/// The most slices of a picture. Phones write one a tile, encoders of films one a row of blocks at most.
const MAX_SLICES: usize = 4_096;
/// Stands before every unit of a stream, and never within one.
const START_CODE: [u8; 3] = [0, 0, 1];

/// What the parameter sets say of the pictures that follow them.
#[derive(Clone, Copy, Debug)]
pub(super) struct CodedFormat {
    /// The sides of what is decoded, before the stream's own borders are cut off.
    pub(super) coded_size: Size,
    /// Peak memory of decoding, bytes per pixel of the coded size, without the stream.
    pub(super) bytes_per_pixel: usize,
}

impl CodedFormat {
    /// Reads the parameter sets. Of several, the largest counts: each slice may name any of them.
    ///
    /// # Errors
    /// When they are damaged, or there are none.
    pub(super) fn read(config: &HevcConfig) -> Result<Self, Poison> {
        let bytes: usize = config.nal_units.iter().map(Vec::len).sum();
        if bytes > MAX_PARAMETER_BYTES {
            return Err(unsupported(&format!(
                "{bytes} bytes of parameters, the limit is {MAX_PARAMETER_BYTES}"
            )));
        }
        let mut sets = ParameterSets::default();
        for unit in parameter_units(config) {
            NalUnit::parse(unit).and_then(|unit| sets.add(&unit)).map_err(|error| to_poison(&error))?;
        }
        let mut format = Self { coded_size: Size { width: 0, height: 0 }, bytes_per_pixel: 0 };
        for parameters in sets.sps.iter().flatten() {
            let size = &mut format.coded_size;
            size.width = size.width.max(parameters.pic_width_in_luma_samples);
            size.height = size.height.max(parameters.pic_height_in_luma_samples);
            let bytes_per_pixel = peak_bytes_per_pixel(parameters.chroma_format_idc);
            format.bytes_per_pixel = format.bytes_per_pixel.max(bytes_per_pixel);
        }
        if format.bytes_per_pixel == 0 {
            return Err(corrupt("a picture without parameters"));
        }
        Ok(format)
    }
}

/// Peak bytes per pixel of decoding: the samples take two bytes each, and either a second time those of brightness, for the
/// filter that reads what it writes, and a byte and a half of notes on blocks, or a second time all of them, where borders
/// are cut off, and a byte of notes.
fn peak_bytes_per_pixel(chroma_format: u8) -> usize {
    match chroma_format {
        // Grey, then a quarter, a half, and as much colour as brightness, twice.
        0 => 6,
        1 => 7,
        2 => 9,
        _ => 13,
    }
}

/// Decodes a picture from its parameter sets and the bytes of its item.
///
/// # Errors
/// When they are damaged or of an unsupported kind.
pub(super) fn decode(config: &HevcConfig, data: &[u8], format: CodedFormat) -> Result<Frame, Poison> {
    let stream = assemble(config, data)?;
    let max_pixels = format.coded_size.area() as u64;
    let options = decoder::DecodeOptions { max_pixels, ..Default::default() };
    decoder::decode_picture(&stream, options).map_err(|error| to_poison(&error))
}

/// The stream: each unit behind a start code.
fn assemble(config: &HevcConfig, data: &[u8]) -> Result<Vec<u8>, Poison> {
    let mut stream = Vec::with_capacity(data.len() + MAX_PARAMETER_BYTES.min(4 << 10));
    for unit in parameter_units(config) {
        append_unit(&mut stream, unit)?;
    }
    let mut slices = 0;
    let mut units = Units { rest: data, length_bytes: usize::from(config.nal_length_size) };
    while let Some(unit) = units.next_unit()? {
        if !is_of(unit, NalUnitType::is_slice) {
            continue;
        }
        slices += 1;
        if slices > MAX_SLICES {
            return Err(unsupported(&format!("more than {MAX_SLICES} slices")));
        }
        append_unit(&mut stream, unit)?;
    }
    Ok(stream)
}

fn append_unit(stream: &mut Vec<u8>, unit: &[u8]) -> Result<(), Poison> {
    if unit.windows(START_CODE.len()).any(|bytes| bytes == START_CODE) {
        return Err(corrupt("a unit within a unit"));
    }
    stream.extend(START_CODE);
    stream.extend(unit);
    Ok(())
}

fn parameter_units(config: &HevcConfig) -> impl Iterator<Item = &[u8]> {
    let is_set = |kind| matches!(kind, NalUnitType::Vps | NalUnitType::Sps | NalUnitType::Pps);
    config.nal_units.iter().map(Vec::as_slice).filter(move |unit| is_of(unit, is_set))
}

/// Whether a unit is of a kind and of the picture itself: other layers are a second view, or depth.
fn is_of(unit: &[u8], is_kind: impl Fn(NalUnitType) -> bool) -> bool {
    NalHeader::parse(unit).is_ok_and(|header| header.layer_id == 0 && is_kind(header.unit_type))
}

/// The units of an item, each behind its length.
struct Units<'a> {
    rest: &'a [u8],
    length_bytes: usize,
}

impl<'a> Units<'a> {
    fn next_unit(&mut self) -> Result<Option<&'a [u8]>, Poison> {
        if self.rest.is_empty() {
            return Ok(None);
        }
        let split = self.rest.split_at_checked(self.length_bytes).and_then(|(length, behind)| {
            let length = length.iter().fold(0, |length, byte| length << 8 | usize::from(*byte));
            behind.split_at_checked(length)
        });
        let (unit, rest) = split.ok_or_else(|| corrupt("a picture ends early"))?;
        self.rest = rest;
        Ok(Some(unit))
    }
}

fn to_poison(error: &hevc::Error) -> Poison {
    match error {
        hevc::Error::Unimplemented(_) => unsupported(&error.to_string()),
        _ => corrupt(&error.to_string()),
    }
}
