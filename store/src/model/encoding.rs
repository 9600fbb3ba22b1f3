//! How times and vectors are encoded in the database and compared with other systems: times in microseconds since 1970,
//! vectors as little-endian f32.

use time::OffsetDateTime;

use crate::error::{StoreError, StoreErrorKind};

/// Returns the current time of this machine in microseconds since 1970.
pub(crate) fn now() -> i64 {
    micros(OffsetDateTime::now_utc())
}

/// Returns microseconds since 1970, rounded down.
pub(crate) fn micros(at: OffsetDateTime) -> i64 {
    // Within i64: the years that `OffsetDateTime` supports are 2^59 microseconds at most.
    at.unix_timestamp_nanos().div_euclid(1000) as i64
}

/// Encodes a vector.
pub(crate) fn vector_to_bytes(vector: &[f32]) -> Vec<u8> {
    vector.iter().flat_map(|value| value.to_le_bytes()).collect()
}

/// Decodes a vector.
///
/// # Errors
/// `Corrupt` if there are no bytes or the last number is incomplete.
pub(crate) fn floats_from_bytes(bytes: &[u8]) -> Result<impl Iterator<Item = f32>, StoreError> {
    let (values, rest) = bytes.as_chunks::<4>();
    if values.is_empty() || !rest.is_empty() {
        return Err(StoreError::new(StoreErrorKind::Corrupt, "embedding"));
    }
    Ok(values.iter().map(|value| f32::from_le_bytes(*value)))
}
