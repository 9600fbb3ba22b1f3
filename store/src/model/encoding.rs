//! How times and vectors are stored: times as microseconds since 1970 (UTC), vectors as little-endian `f32` bytes.

use std::time::Duration;

use time::OffsetDateTime;

use crate::error::{StoreError, StoreErrorKind};

/// The current time of this machine, microseconds.
pub(crate) fn now_micros() -> i64 {
    to_micros(OffsetDateTime::now_utc())
}

/// Microseconds since 1970, rounded down.
pub(crate) fn to_micros(time: OffsetDateTime) -> i64 {
    // Fits: the years that `OffsetDateTime` supports are 2^59 microseconds at most.
    time.unix_timestamp_nanos().div_euclid(1000) as i64
}

/// `start + ttl` in microseconds; saturates.
pub(crate) fn micros_after(start: i64, ttl: Duration) -> i64 {
    start.saturating_add(i64::try_from(ttl.as_micros()).unwrap_or(i64::MAX))
}

/// The time of a stored number of microseconds.
///
/// # Errors
/// `Corrupt` for a time outside the years that `OffsetDateTime` supports.
pub(crate) fn from_micros(micros: i64) -> Result<OffsetDateTime, StoreError> {
    OffsetDateTime::from_unix_timestamp_nanos(i128::from(micros) * 1000)
        .map_err(|error| StoreError::new(StoreErrorKind::Corrupt, "time").with_source(error))
}

/// The bytes of a vector, 4 per value.
pub(crate) fn vector_to_bytes(vector: &[f32]) -> Vec<u8> {
    vector.iter().flat_map(|value| value.to_le_bytes()).collect()
}

/// The values of a stored vector.
///
/// # Errors
/// `Corrupt` when there are no bytes or their number is not a multiple of 4.
pub(crate) fn floats_from_bytes(bytes: &[u8]) -> Result<impl Iterator<Item = f32>, StoreError> {
    let (values, rest) = bytes.as_chunks::<4>();
    if values.is_empty() || !rest.is_empty() {
        return Err(StoreError::new(StoreErrorKind::Corrupt, "embedding"));
    }
    Ok(values.iter().map(|value| f32::from_le_bytes(*value)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_before_1970_round_trip() {
        let before = OffsetDateTime::UNIX_EPOCH - time::Duration::microseconds(1_500_001);
        assert_eq!(from_micros(to_micros(before)).unwrap(), before);
    }

    #[test]
    fn a_vector_round_trips_and_a_truncated_one_is_corrupt() {
        let vector = vec![0.25_f32, -1.0, f32::MIN_POSITIVE];
        let bytes = vector_to_bytes(&vector);
        assert_eq!(floats_from_bytes(&bytes).unwrap().collect::<Vec<_>>(), vector);
        assert!(floats_from_bytes(&bytes[..7]).is_err());
        assert!(floats_from_bytes(&[]).is_err());
    }
}
