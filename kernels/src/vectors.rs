//! What loops need so that the compiler makes vector instructions of them. Which ones the processor has is known at run time:
//! `pulp` dispatches to a function that is compiled for them. Only what is inlined there is compiled for them too, and a
//! closure is when the compiler finds it small enough; the method of a struct that implements `NullaryFnOnce` always is.

/// Floats from here to twice as much have a unit in the last place of 1.
const TWO_TO_23: f32 = 8_388_608.0;

/// The whole part of a number of at least 0 and below 256. `as u8` saturates, for which the compiler makes no vector
/// instructions. Of other numbers the result is arbitrary.
#[inline(always)]
pub(crate) fn whole_byte(value: f32) -> u8 {
    (value.floor() + TWO_TO_23).to_bits() as u8
}

/// A whole number of either sign, of less than 2^22, as an integer. Of other numbers the result is arbitrary, but never near
/// the ends of the range.
#[inline(always)]
pub(crate) fn whole_number(value: f32) -> i32 {
    const ZERO: f32 = 1.5 * TWO_TO_23;
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
        assert_eq!(whole_byte(256.0_f32.next_down()), 255);
        for value in [-4_194_303, -65_536, -2, -1, 0, 1, 65_535, 4_194_303] {
            assert_eq!(whole_number(value as f32), value);
        }
    }

    #[test]
    fn what_is_no_number_is_far_outside_of_any_frame() {
        for value in [f32::NAN, -f32::NAN, f32::INFINITY, f32::NEG_INFINITY] {
            let number = i64::from(whole_number(value));
            assert!((1 << 23..i64::from(i32::MAX)).contains(&number.abs()), "{value}: {number}");
        }
        assert_eq!(whole_byte(f32::NAN), 0);
    }
}
