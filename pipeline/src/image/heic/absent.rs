//! What a build without the feature `heic` has in place of a decoder.

use photofinish_kernels::image::orient::Orientation;
use photofinish_store::model::photo::FailureReason;

use super::HeicHeader;
use crate::engine::fault::Poison;

/// Reads nothing.
///
/// # Errors
/// Always.
pub(crate) fn read_header(_file: &[u8]) -> Result<HeicHeader, Poison> {
    Err(unsupported())
}

/// Decodes nothing.
///
/// # Errors
/// Always.
pub(crate) fn decode(_file: &[u8], _header: &HeicHeader, _out: &mut Vec<u8>) -> Result<(), Poison> {
    Err(unsupported())
}

/// Returns `None`: no file is known to have an orientation of its own.
pub(crate) fn read_orientation(_file: &[u8]) -> Option<Orientation> {
    None
}

fn unsupported() -> Poison {
    Poison::new(FailureReason::UnsupportedFormat, "heic: not built in (it lacks the feature heic)")
}
