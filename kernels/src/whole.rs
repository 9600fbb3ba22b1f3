//! The whole part of floating-point numbers that are known to be in range. A cast says what becomes of all others too, which
//! is no vector instruction.

/// 2^23: of a float of this size the last bit counts ones.
const ONES: f32 = 8_388_608.0;

/// The whole part of a number from 0 up to 256.
#[inline(always)]
pub(crate) fn whole_byte(value: f32) -> u8 {
    (value.floor() + ONES).to_bits() as u8
}

/// A whole number of either sign, of less than 2^22, as an integer.
#[inline(always)]
pub(crate) fn whole_number(value: f32) -> i32 {
    const ZERO: f32 = 1.5 * ONES;
    (value + ZERO).to_bits().wrapping_sub(ZERO.to_bits()) as i32
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn in_range_they_are_what_casts_give() {
        for quarters in 0..4 * 256_i16 {
            let value = f32::from(quarters) / 4.0;
            assert_eq!(whole_byte(value), value as u8, "{value}");
            assert_eq!(whole_byte(value.next_down().max(0.0)), value.next_down().max(0.0) as u8);
        }
        for value in [-4_194_303, -65_536, -2, -1, 0, 1, 65_535, 4_194_303] {
            assert_eq!(whole_number(value as f32), value);
        }
    }

    #[test]
    fn what_is_no_number_does_no_harm() {
        for value in [f32::NAN, f32::INFINITY, -1.0] {
            let (_, _) = (whole_byte(value), whole_number(value));
        }
    }
}
