//! What loops need so that the compiler makes vector instructions of them. Those that the processor has are found at run
//! time: a loop is in a struct that `pulp` dispatches, with all that it calls inlined. A closure would be a function of its own,
//! compiled for any processor.

/// 2^23: of a float of this size the last bit counts ones.
const ONES: f32 = 8_388_608.0;

/// The whole part of a number of at least 0 and below 256. A cast says what becomes of all others too, for which there is no
/// vector instruction.
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
    fn what_is_out_of_range_is_no_panic() {
        for value in [f32::NAN, f32::INFINITY, f32::MIN, -1.0, -1.5 * ONES] {
            let (_, _) = (whole_byte(value), whole_number(value));
        }
    }
}
