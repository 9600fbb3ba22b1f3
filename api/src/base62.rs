//! Numbers as digits and letters.

const ALPHABET: &[u8; 62] = b"0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz";

/// Writes a big-endian number as `length` base-62 digits with leading zeros. `length` must be enough for every value.
pub(crate) fn base62(bytes: &[u8], length: usize) -> String {
    let mut number = bytes.to_vec();
    let mut digits = vec![ALPHABET[0]; length];
    for digit in digits.iter_mut().rev() {
        // Long division by 62, most significant byte first.
        let mut remainder = 0_u32;
        for byte in &mut number {
            let dividend = remainder << 8 | u32::from(*byte);
            *byte = (dividend / 62) as u8;
            remainder = dividend % 62;
        }
        *digit = ALPHABET[remainder as usize];
    }
    digits.into_iter().map(char::from).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn base62_is_positional() {
        assert_eq!(base62(&[0], 2), "00");
        assert_eq!(base62(&[61], 2), "0z");
        assert_eq!(base62(&[62], 2), "10");
        assert_eq!(base62(&u32::MAX.to_be_bytes(), 6), "4gfFC3");
    }
}
