//! The file formats that can be decoded.

use photofinish_store::model::photo::FailureReason;

use crate::engine::fault::Poison;

/// A file format that can be decoded.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Format {
    Jpeg,
    Png,
    WebP,
    /// Only where it is switched on.
    Heic,
}

/// Brands of files with still pictures that may be coded with HEVC. The generic ones are also those of other codecs, which
/// shows in the items.
const HEIC_BRANDS: [&[u8; 4]; 6] = [b"heic", b"heix", b"hevc", b"hevx", b"mif1", b"msf1"];

impl Format {
    /// Detects the format by the first bytes.
    ///
    /// # Errors
    /// When the format is none of these, or HEIC and `reads_heic` is false.
    pub(crate) fn from_magic_bytes(file: &[u8], reads_heic: bool) -> Result<Self, Poison> {
        let unsupported = |what: &str| Err(Poison::new(FailureReason::UnsupportedFormat, what));
        match file {
            [] => unsupported("the file is empty"),
            [0xff, 0xd8, 0xff, ..] => Ok(Self::Jpeg),
            [0x89, b'P', b'N', b'G', b'\r', b'\n', 0x1a, b'\n', ..] => Ok(Self::Png),
            [b'R', b'I', b'F', b'F', _, _, _, _, b'W', b'E', b'B', b'P', ..] => Ok(Self::WebP),
            [_, _, _, _, b'f', b't', b'y', b'p', ..] if reads_heic && has_heic_brand(file) => Ok(Self::Heic),
            [_, _, _, _, b'f', b't', b'y', b'p', ..] if reads_heic => {
                unsupported("avif or video is not supported")
            }
            [_, _, _, _, b'f', b't', b'y', b'p', ..] => unsupported("heic, avif or video is not supported"),
            [b'G', b'I', b'F', b'8', ..] => unsupported("gif is not supported"),
            [b'I', b'I', b'*', 0, ..] | [b'M', b'M', 0, b'*', ..] => {
                unsupported("tiff or a camera's raw file is not supported")
            }
            _ => unsupported("not a picture of a known format"),
        }
    }
}

/// Whether the first brand, or another of the file's first box, is one of HEIC. An AVIF file has the generic one too.
fn has_heic_brand(file: &[u8]) -> bool {
    let Some((length, content)) = file.split_first_chunk::<4>() else { return false };
    let content =
        &content[4..content.len().min((u32::from_be_bytes(*length) as usize).saturating_sub(4)).max(4)];
    let (brands, _) = content.as_chunks::<4>();
    let is_heic = |brand: &[u8; 4]| HEIC_BRANDS.contains(&brand);
    match brands {
        [[b'a', b'v', b'i', b'f' | b's'], ..] => false,
        // The second is the version of the first.
        [first, _, others @ ..] => is_heic(first) || others.iter().any(is_heic),
        _ => false,
    }
}
