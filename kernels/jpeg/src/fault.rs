//! Why a file is not decoded here, or not to the end. Knows nothing of how decoding works.

use std::error::Error;
use std::fmt;

/// Why a file is not decoded here. None of these says that the file is bad: another decoder must be asked.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Refusal {
    /// It does not begin like a JPEG file, or ends before its first scan.
    NotJpeg,
    /// Valid, or common enough that other decoders read it, and not of the kind that is decoded here: progressive,
    /// arithmetic, 12-bit, RGB, CMYK, several scans, unusual sampling.
    Unsupported(&'static str),
    /// A segment of the header contradicts itself or another one.
    Malformed(&'static str),
}

impl fmt::Display for Refusal {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::NotJpeg => write!(formatter, "not the beginning of a JPEG file"),
            Self::Unsupported(what) => write!(formatter, "not supported: {what}"),
            Self::Malformed(what) => write!(formatter, "malformed: {what}"),
        }
    }
}

impl Error for Refusal {}

/// What is wrong with the entropy-coded data of a file. Another decoder may make a picture of what is there.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Damage {
    /// A code that is not in the Huffman table.
    InvalidCode,
    /// A run of zeros that leads out of its block.
    LongRun,
    /// A DC coefficient that no picture has.
    DcOutOfRange,
    /// The data ends before the last block.
    EndsEarly,
    /// There is more data than blocks.
    LeftOver,
    /// A restart marker or the end marker is not where it must be.
    MissingMarker,
}

impl fmt::Display for Damage {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(match self {
            Self::InvalidCode => "an invalid Huffman code",
            Self::LongRun => "a run of zeros longer than its block",
            Self::DcOutOfRange => "a DC coefficient out of range",
            Self::EndsEarly => "the scan ends early",
            Self::LeftOver => "bytes are left over in the scan",
            Self::MissingMarker => "a restart or end marker is missing",
        })
    }
}

impl Error for Damage {}
