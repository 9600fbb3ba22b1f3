//! Changes of valid input: of single bytes and ranges, and of what the format is made of: lengths, markers, checksums,
//! tokens.

use rand::RngExt as _;
use rand::rngs::StdRng;

use crate::wire::find;

/// What an input is made of.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Structure {
    /// Segments that begin with a marker and a length.
    Jpeg,
    /// Chunks of length, name, content and checksum.
    Png,
    /// Chunks of name and length.
    Webp,
    /// Boxes of length and name, within each other.
    #[cfg(feature = "heic")]
    Heif,
    /// Characters, with these tokens between them.
    Text(&'static [&'static str]),
}

/// Numbers at which lengths overflow, or signs change.
const ODD_NUMBERS: [u32; 12] =
    [0, 1, 2, 3, 0x7f, 0x80, 0xff, 0x7fff, 0xffff, 0x7fff_ffff, 0x8000_0000, 0xffff_ffff];

/// JPEG markers that begin, end or interrupt something.
const MARKERS: [u8; 16] =
    [0x00, 0x01, 0xc0, 0xc1, 0xc2, 0xc3, 0xc4, 0xc9, 0xcc, 0xd0, 0xd8, 0xd9, 0xda, 0xdb, 0xdd, 0xe1];

const CHUNKS: [&[u8; 4]; 14] = [
    b"IHDR", b"IDAT", b"IEND", b"PLTE", b"tRNS", b"eXIf", b"acTL", b"fcTL", b"iCCP", b"VP8 ", b"VP8L",
    b"VP8X", b"ANMF", b"ALPH",
];

/// Boxes, properties and kinds of items of a HEIF file.
#[cfg(feature = "heic")]
const BOXES: [&[u8; 4]; 22] = [
    b"ftyp", b"meta", b"pitm", b"iinf", b"infe", b"iloc", b"iref", b"dimg", b"auxl", b"iprp", b"ipco",
    b"ipma", b"ispe", b"hvcC", b"colr", b"clap", b"irot", b"imir", b"auxC", b"idat", b"hvc1", b"grid",
];

/// The largest input: doubled parts must not grow without end.
const MAX_BYTES: usize = 1 << 20;

/// Changes the input once.
pub(super) fn mutate(input: &mut Vec<u8>, structure: Structure, rng: &mut StdRng) {
    let is_structural = rng.random_range(0..2) == 0;
    match structure {
        Structure::Jpeg if is_structural => change_jpeg(input, rng),
        Structure::Png if is_structural => change_png(input, rng),
        Structure::Webp if is_structural => change_webp(input, rng),
        #[cfg(feature = "heic")]
        Structure::Heif if is_structural => change_heif(input, rng),
        Structure::Text(tokens) if is_structural => insert_token(input, tokens, rng),
        _ => change_bytes(input, rng),
    }
    input.truncate(MAX_BYTES);
}

/// A position; half of them in the first bytes, where headers are.
fn position(length: usize, rng: &mut StdRng) -> usize {
    let end = if rng.random_range(0..2) == 0 { length.min(600) } else { length };
    if end == 0 { 0 } else { rng.random_range(0..end) }
}

fn change_bytes(input: &mut Vec<u8>, rng: &mut StdRng) {
    let at = position(input.len(), rng);
    let end = (at + rng.random_range(1..40)).min(input.len());
    match rng.random_range(0..8) {
        0 | 1 => {
            if let Some(byte) = input.get_mut(at) {
                *byte ^= 1 << rng.random_range(0..8);
            }
        }
        2 => input[at..end].iter_mut().for_each(|byte| *byte = rng.random_range(0..=255)),
        3 => input.truncate(at),
        4 => drop(input.drain(at..end)),
        5 => {
            let part = input[at..end].to_vec();
            input.splice(at..at, part);
        }
        6 => {
            let from = position(input.len(), rng);
            let part = input[from..(from + 40).min(input.len())].to_vec();
            input.splice(at..end, part);
        }
        _ => write_number(input, at, rng),
    }
}

/// Writes an odd number over two or four bytes, in either order.
fn write_number(input: &mut [u8], at: usize, rng: &mut StdRng) {
    let number = ODD_NUMBERS[rng.random_range(0..ODD_NUMBERS.len())];
    let bytes = if rng.random_range(0..2) == 0 { number.to_be_bytes() } else { number.to_le_bytes() };
    let width = [2, 4][rng.random_range(0..2)];
    let from = if bytes[0] == 0 { 4 - width } else { 0 };
    for (offset, byte) in bytes[from..from + width].iter().enumerate() {
        if let Some(target) = input.get_mut(at + offset) {
            *target = *byte;
        }
    }
}

/// The offsets at which `starts_here` holds.
fn offsets(input: &[u8], starts_here: impl Fn(&[u8]) -> bool) -> Vec<usize> {
    (0..input.len()).filter(|at| starts_here(&input[*at..])).collect()
}

fn pick(offsets: &[usize], rng: &mut StdRng) -> Option<usize> {
    (!offsets.is_empty()).then(|| offsets[rng.random_range(0..offsets.len())])
}

fn change_jpeg(input: &mut Vec<u8>, rng: &mut StdRng) {
    let is_marker = |bytes: &[u8]| bytes.len() > 3 && bytes[0] == 0xff && bytes[1] != 0 && bytes[1] != 0xff;
    let markers = offsets(input, is_marker);
    let Some(at) = pick(&markers, rng) else { return };
    match rng.random_range(0..5) {
        0 => input[at + 1] = MARKERS[rng.random_range(0..MARKERS.len())],
        1 => write_number(input, at + 2, rng),
        2 => input[at + 3] = input[at + 3].wrapping_add(rng.random_range(0..6)).wrapping_sub(3),
        3 => {
            // A segment again, or at another place.
            let length = usize::from(u16::from_be_bytes([input[at + 2], input[at + 3]])) + 2;
            let segment = input[at..(at + length).min(input.len())].to_vec();
            let to = pick(&markers, rng).unwrap_or(at);
            input.splice(to..to, segment);
        }
        _ => {
            // The header of the frame or a scan: precision, size, components, sampling.
            let at = (at + 4 + rng.random_range(0..15)).min(input.len() - 1);
            input[at] = rng.random_range(0..=255);
        }
    }
}

fn change_png(input: &mut Vec<u8>, rng: &mut StdRng) {
    let names = offsets(input, |bytes| CHUNKS.iter().any(|name| bytes.starts_with(&name[..])));
    let Some(at) = pick(&names, rng).filter(|at| *at >= 4) else { return };
    match rng.random_range(0..4) {
        0 => write_number(input, at - 4, rng),
        1 => input[at..at + 4].copy_from_slice(CHUNKS[rng.random_range(0..CHUNKS.len())]),
        2 => {
            let length = chunk_length(input, at).min(input.len() - at - 4);
            let end = (at + 8 + length).min(input.len());
            let chunk = input[at - 4..end].to_vec();
            let to = pick(&names, rng).filter(|to| *to >= 4).unwrap_or(at) - 4;
            input.splice(to..to, chunk);
        }
        _ => {
            let to = (at + 4 + rng.random_range(0..14)).min(input.len() - 1);
            input[to] = rng.random_range(0..=255);
        }
    }
    // A wrong checksum would end the reading there; one chunk in two gets a right one.
    if rng.random_range(0..2) == 0 && at + 4 <= input.len() {
        let length = chunk_length(input, at);
        if let Some(end) = (at + 4).checked_add(length).filter(|end| end + 4 <= input.len()) {
            let checksum = crc32fast::hash(&input[at..end]);
            input[end..end + 4].copy_from_slice(&checksum.to_be_bytes());
        }
    }
}

/// The length in front of a PNG chunk's name.
fn chunk_length(input: &[u8], name_at: usize) -> usize {
    let bytes: [u8; 4] = input[name_at - 4..name_at].try_into().unwrap_or_default();
    u32::from_be_bytes(bytes) as usize
}

fn change_webp(input: &mut Vec<u8>, rng: &mut StdRng) {
    let names = offsets(input, |bytes| CHUNKS.iter().any(|name| bytes.starts_with(&name[..])));
    let Some(at) = pick(&names, rng) else { return };
    match rng.random_range(0..4) {
        0 => write_number(input, at + 4, rng),
        1 => input[at..at + 4].copy_from_slice(CHUNKS[rng.random_range(0..CHUNKS.len())]),
        2 => {
            let chunk = input[at..(at + 8 + rng.random_range(0..64)).min(input.len())].to_vec();
            let to = pick(&names, rng).unwrap_or(at);
            input.splice(to..to, chunk);
        }
        _ => {
            let to = (at + 8 + rng.random_range(0..12)).min(input.len() - 1);
            input[to] = rng.random_range(0..=255);
        }
    }
    if rng.random_range(0..2) == 0 && find(input, b"RIFF") == Some(0) && input.len() >= 8 {
        let size = (input.len() - 8) as u32;
        input[4..8].copy_from_slice(&size.to_le_bytes());
    }
}

/// Changes the length or the name of a box, a number in it, or repeats it without mending the lengths around it.
#[cfg(feature = "heic")]
fn change_heif(input: &mut Vec<u8>, rng: &mut StdRng) {
    let names = offsets(input, |bytes| BOXES.iter().any(|name| bytes.starts_with(&name[..])));
    let Some(at) = pick(&names, rng).filter(|at| *at >= 4) else { return };
    match rng.random_range(0..5) {
        0 => write_number(input, at - 4, rng),
        1 => input[at..at + 4].copy_from_slice(BOXES[rng.random_range(0..BOXES.len())]),
        2 => {
            let length = chunk_length(input, at).min(input.len() - at + 4);
            let part = input[at - 4..at - 4 + length].to_vec();
            let to = pick(&names, rng).filter(|to| *to >= 4).unwrap_or(at) - 4;
            input.splice(to..to, part);
        }
        3 => write_number(input, at + 4 + rng.random_range(0..24), rng),
        _ => {
            // The counts, sizes and parameters that follow.
            let to = (at + 4 + rng.random_range(0..60)).min(input.len() - 1);
            input[to] = input[to].wrapping_add(rng.random_range(0..6)).wrapping_sub(3);
        }
    }
}

fn insert_token(input: &mut Vec<u8>, tokens: &[&str], rng: &mut StdRng) {
    let at = if input.is_empty() { 0 } else { rng.random_range(0..=input.len()) };
    let token = tokens[rng.random_range(0..tokens.len())];
    let repeated = token.repeat([1, 1, 1, 2, 200][rng.random_range(0..5)]);
    let end = (at + rng.random_range(0..4)).min(input.len());
    input.splice(at..end, repeated.into_bytes());
}
