//! Hexadecimal encoding of bytes, two digits each, and decoding.

const DIGITS: &[u8; 16] = b"0123456789abcdef";

/// Returns the two digits of a byte, in lower case.
#[inline]
#[must_use]
pub const fn pair(byte: u8) -> [u8; 2] {
    [DIGITS[(byte >> 4) as usize], DIGITS[(byte & 15) as usize]]
}

/// Returns the digits of all bytes, in lower case.
#[must_use]
pub fn text(bytes: &[u8]) -> String {
    bytes
        .iter()
        .flat_map(|byte| pair(*byte).map(char::from))
        .collect()
}

/// Returns the digits of all bytes as an array, in lower case.
///
/// # Panics
/// Panics unless `N` is twice the number of bytes; the caller chooses both lengths.
#[must_use]
pub fn array<const N: usize>(bytes: &[u8]) -> [u8; N] {
    assert_eq!(2 * bytes.len(), N, "two digits a byte");
    std::array::from_fn(|at| pair(bytes[at / 2])[at % 2])
}

/// Returns the value of a hexadecimal digit of either case; None for other bytes.
#[inline]
#[must_use]
pub const fn value(digit: u8) -> Option<u8> {
    match digit {
        b'0'..=b'9' => Some(digit - b'0'),
        b'a'..=b'f' => Some(digit - b'a' + 10),
        b'A'..=b'F' => Some(digit - b'A' + 10),
        _ => None,
    }
}

/// Decodes `N` bytes from twice as many hexadecimal digits of either case; None if the text is anything else.
#[must_use]
pub fn parse<const N: usize>(digits: &[u8]) -> Option<[u8; N]> {
    let (pairs, rest) = digits.as_chunks::<2>();
    if pairs.len() != N || !rest.is_empty() {
        return None;
    }
    let mut bytes = [0; N];
    for (byte, [high, low]) in bytes.iter_mut().zip(pairs) {
        *byte = value(*high)? << 4 | value(*low)?;
    }
    Some(bytes)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_byte_has_the_two_digits_that_rust_formats_and_they_are_read_in_either_case() {
        for byte in 0..=u8::MAX {
            let digits = format!("{byte:02x}");
            assert_eq!(pair(byte), digits.as_bytes());
            assert_eq!(text(&[byte, 0x0a]), format!("{digits}0a"));
            assert_eq!(array::<4>(&[0xf0, byte])[2..], *digits.as_bytes());
            assert_eq!(parse(digits.as_bytes()), Some([byte]));
            assert_eq!(parse(digits.to_uppercase().as_bytes()), Some([byte]));
        }
    }

    #[test]
    fn what_is_no_digit_or_not_as_many_as_wanted_is_no_byte() {
        for digits in [
            "", "0", "0g", "g0", "00 ", "000", "0000", "+1", "/0", ":0", "@0", "`0",
        ] {
            assert_eq!(parse::<1>(digits.as_bytes()), None, "{digits}");
        }
        assert_eq!(parse::<0>(b""), Some([]));
    }
}
