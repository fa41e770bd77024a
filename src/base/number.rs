//! Numbers from text and to text, as Redis reads and prints them.
//!
//! Knows no command. Nothing here allocates unless it says so.

/// Reads a decimal `i64` as Redis does wherever it wants an integer: only the canonical form, no plus
/// sign, no leading zeros, no blanks, no `-0`.
#[inline]
pub fn parse_i64(text: &[u8]) -> Option<i64> {
    let (negative, digits) = match text {
        [b'-', digits @ ..] => (true, digits),
        digits => (false, digits),
    };
    let magnitude = match digits {
        [b'0'] if !negative => return Some(0),
        _ => parse_digits(digits)?,
    };
    if negative {
        0_i64.checked_sub_unsigned(magnitude)
    } else {
        i64::try_from(magnitude).ok()
    }
}

/// Reads a decimal `u64`, only in its canonical form.
#[inline]
pub fn parse_u64(text: &[u8]) -> Option<u64> {
    if text == b"0" {
        Some(0)
    } else {
        parse_digits(text)
    }
}

/// Digits that begin with 1 to 9.
#[inline]
fn parse_digits(digits: &[u8]) -> Option<u64> {
    if digits.len() > 20 || !matches!(digits.first()?, b'1'..=b'9') {
        return None;
    }
    // 19 digits cannot overflow, the 20th can.
    let (safe, last) = digits.split_at(digits.len().min(19));
    let mut value = 0_u64;
    for digit in safe {
        let digit = digit.wrapping_sub(b'0');
        if digit > 9 {
            return None;
        }
        value = value * 10 + u64::from(digit);
    }
    for digit in last {
        let digit = digit.wrapping_sub(b'0');
        if digit > 9 {
            return None;
        }
        value = value.checked_mul(10)?.checked_add(u64::from(digit))?;
    }
    Some(value)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn integers_are_read_in_canonical_form_only() {
        for text in [
            "0",
            "1",
            "-1",
            "9223372036854775807",
            "-9223372036854775808",
        ] {
            assert_eq!(parse_i64(text.as_bytes()), text.parse().ok(), "{text}");
        }
        for text in [
            "",
            "-",
            "+1",
            "01",
            "-01",
            "-0",
            "00",
            " 1",
            "1 ",
            "1a",
            "9223372036854775808",
            "-9223372036854775809",
            "18446744073709551616",
            "99999999999999999999999",
            "1-",
            "--1",
        ] {
            assert_eq!(parse_i64(text.as_bytes()), None, "{text}");
        }
        assert_eq!(parse_u64(b"18446744073709551615"), Some(u64::MAX));
        for text in [
            "",
            "18446744073709551616",
            "-1",
            "00",
            "+0",
            "99999999999999999999",
        ] {
            assert_eq!(parse_u64(text.as_bytes()), None, "{text}");
        }
    }

    proptest! {
        #[test]
        fn every_integer_survives_printing_and_reading(signed: i64, unsigned: u64) {
            prop_assert_eq!(parse_i64(signed.to_string().as_bytes()), Some(signed));
            prop_assert_eq!(parse_u64(unsigned.to_string().as_bytes()), Some(unsigned));
        }

        #[test]
        fn what_is_not_canonical_is_refused(text in "[-+ 0-9a]{0,21}") {
            let expected = text.parse::<i64>().ok().filter(|value| value.to_string() == text);
            prop_assert_eq!(parse_i64(text.as_bytes()), expected);
        }
    }
}
