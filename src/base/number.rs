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

/// Room for the text of any `f64`, as [`F64Buffer::format`] prints it.
#[derive(Clone, Copy, Debug)]
pub struct F64Buffer([u8; F64_TEXT_LEN_MAX]);

/// 17 digits, a sign, a point, and at most 6 zeros or 5 bytes of exponent.
const F64_TEXT_LEN_MAX: usize = 32;

impl Default for F64Buffer {
    fn default() -> Self {
        Self([0; F64_TEXT_LEN_MAX])
    }
}

impl F64Buffer {
    /// Prints `value` as Redis 7.2 does for scores and other doubles: `inf`, `-inf`, `nan`, `-0`; integers
    /// up to 2^62 as such; else the shortest digits that read back as the same number, written out
    /// unless that takes many zeros (`1e+23`, `1.5e-7`).
    pub fn format(&mut self, value: f64) -> &[u8] {
        const INTEGER_MAX: f64 = (1_u64 << 62) as f64;
        if value.abs() <= INTEGER_MAX && value.trunc() == value {
            if value == 0.0 && value.is_sign_negative() {
                return b"-0";
            }
            let mut buffer = itoa::Buffer::new();
            let text = buffer.format(value as i64).as_bytes();
            self.0[..text.len()].copy_from_slice(text);
            return &self.0[..text.len()];
        }
        if value.is_nan() {
            return b"nan";
        }
        if value.is_infinite() {
            return if value < 0.0 { b"-inf" } else { b"inf" };
        }
        let len = self.lay_out(&Digits::of(value));
        &self.0[..len]
    }

    /// Writes a number that is no integer below 2^62; gives back the length.
    fn lay_out(&mut self, number: &Digits) -> usize {
        let digits = &number.digits[..number.count];
        let count = number.count as i32;
        let exponent = number.scale + count - 1; // of the first digit
        let mut text = Cursor {
            bytes: &mut self.0,
            len: 0,
        };
        if number.negative {
            text.put(b"-");
        }
        if number.scale >= 0 && exponent < count + 7 {
            text.put(digits);
            text.zeros(number.scale);
        } else if number.scale < 0 && (number.scale > -7 || exponent.abs() < 4) {
            if exponent < 0 {
                text.put(b"0.");
                text.zeros(-exponent - 1);
                text.put(digits);
            } else {
                let (whole, fraction) = digits.split_at(exponent as usize + 1);
                text.put(whole);
                text.put(b".");
                text.put(fraction);
            }
        } else {
            text.put(&digits[..1]);
            if count > 1 {
                text.put(b".");
                text.put(&digits[1..]);
            }
            text.put(if exponent < 0 { b"e-" } else { b"e+" });
            text.put(
                itoa::Buffer::new()
                    .format(exponent.unsigned_abs())
                    .as_bytes(),
            );
        }
        text.len
    }
}

/// The shortest digits of a number: `digits` as an integer, times ten to the power of `scale`.
struct Digits {
    negative: bool,
    digits: [u8; 20],
    count: usize,
    scale: i32,
}

impl Digits {
    /// Takes the digits out of what zmij prints: `123.0`, `0.00123`, `-1.23e-7`.
    fn of(value: f64) -> Self {
        let mut buffer = zmij::Buffer::new();
        let text = buffer.format_finite(value).as_bytes();
        let mut number = Self {
            negative: value.is_sign_negative(),
            digits: [0; 20],
            count: 0,
            scale: 0,
        };
        let mut behind_point = false;
        let mut rest = text;
        while let [byte, after @ ..] = rest {
            rest = after;
            match byte {
                b'0'..=b'9' => {
                    number.scale -= i32::from(behind_point);
                    // Zeros before the first digit say nothing but where the point is.
                    if number.count > 0 || *byte != b'0' {
                        number.digits[number.count] = *byte;
                        number.count += 1;
                    }
                }
                b'.' => behind_point = true,
                b'e' => {
                    let digits = rest.strip_prefix(b"+").unwrap_or(rest);
                    number.scale += parse_i64(digits).expect("zmij prints a number") as i32;
                    break;
                }
                _ => {}
            }
        }
        while number.count > 1 && number.digits[number.count - 1] == b'0' {
            number.count -= 1;
            number.scale += 1;
        }
        number
    }
}

struct Cursor<'a> {
    bytes: &'a mut [u8; F64_TEXT_LEN_MAX],
    len: usize,
}

impl Cursor<'_> {
    fn put(&mut self, text: &[u8]) {
        self.bytes[self.len..][..text.len()].copy_from_slice(text);
        self.len += text.len();
    }

    fn zeros(&mut self, count: i32) {
        self.put(&b"00000000"[..count as usize]);
    }
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

    fn printed(value: f64) -> String {
        String::from_utf8(F64Buffer::default().format(value).to_vec()).expect("ASCII")
    }

    #[test]
    fn doubles_are_printed_as_redis_7_2_does() {
        for (value, text) in [
            (0.0, "0"),
            (-0.0, "-0"),
            (3.0, "3"),
            (-3.0, "-3"),
            (f64::INFINITY, "inf"),
            (f64::NEG_INFINITY, "-inf"),
            (f64::NAN, "nan"),
            (4611686018427387904.0, "4611686018427387904"),
            (4611686018427388928.0, "4611686018427389000"),
            (1e18, "1000000000000000000"),
            (1e19, "1e+19"),
            (1.5e22, "1.5e+22"),
            (1.2345678901234567e22, "12345678901234568000000"),
            (1.2345678901234567e25, "1.2345678901234566e+25"),
            (0.1, "0.1"),
            (0.5, "0.5"),
            (-0.5, "-0.5"),
            (3.25, "3.25"),
            (0.30000000000000004, "0.30000000000000004"),
            (123456.789, "123456.789"),
            (0.000001, "0.000001"),
            (0.0000015, "1.5e-6"),
            (0.00012345, "1.2345e-4"),
            (0.0012345, "0.0012345"),
            (0.0012345678, "0.0012345678"),
            (1e-7, "1e-7"),
            (1.5e-7, "1.5e-7"),
            (1e23, "1e+23"),
            (1e100, "1e+100"),
            (f64::MAX, "1.7976931348623157e+308"),
            (f64::MIN_POSITIVE, "2.2250738585072014e-308"),
            (5e-324, "5e-324"),
            (-1.2345678901234567e-300, "-1.2345678901234567e-300"),
        ] {
            assert_eq!(printed(value), text);
        }
    }

    proptest! {
        #[test]
        fn every_double_survives_printing_and_reading(bits: u64, small in -1e6..1e6_f64) {
            for value in [f64::from_bits(bits), small] {
                if !value.is_nan() {
                    prop_assert_eq!(printed(value).parse::<f64>(), Ok(value));
                }
            }
        }

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
