//! The file formats that can be decoded.

use photofinish_store::model::photo::FailureReason;

use crate::engine::fault::Poison;

/// A file format that can be decoded.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Format {
    Jpeg,
    Png,
    WebP,
    #[cfg(feature = "heic")]
    Heic,
}

/// The first brands of files whose pictures are coded as HEVC, or may be.
#[cfg(feature = "heic")]
const HEIC_BRANDS: [&[u8; 4]; 6] = [b"heic", b"heix", b"hevc", b"hevx", b"mif1", b"msf1"];

impl Format {
    /// Detects the format by the first bytes.
    ///
    /// # Errors
    /// When the format is none of these.
    pub(crate) fn from_magic_bytes(file: &[u8]) -> Result<Self, Poison> {
        let unsupported = |what: &str| Err(Poison::new(FailureReason::UnsupportedFormat, what));
        match file {
            [] => unsupported("the file is empty"),
            [0xff, 0xd8, 0xff, ..] => Ok(Self::Jpeg),
            [0x89, b'P', b'N', b'G', b'\r', b'\n', 0x1a, b'\n', ..] => Ok(Self::Png),
            [b'R', b'I', b'F', b'F', _, _, _, _, b'W', b'E', b'B', b'P', ..] => Ok(Self::WebP),
            #[cfg(feature = "heic")]
            [_, _, _, _, b'f', b't', b'y', b'p', a, b, c, d, ..]
                if HEIC_BRANDS.contains(&&[*a, *b, *c, *d]) =>
            {
                Ok(Self::Heic)
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
