//! Validates JSON input, collecting every issue, and describes the same rules for the OpenAPI document.

pub(crate) mod bibs;
#[cfg(feature = "fuzzing")]
pub(crate) mod fuzzed;
pub(crate) mod input;
pub(crate) mod issues;
pub(crate) mod shape;
pub(crate) mod times;
pub(crate) mod validators;
