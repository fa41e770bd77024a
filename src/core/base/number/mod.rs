//! Numbers from text and to text, as Redis reads and prints them.
//!
//! Knows nothing of commands. Nothing here allocates.

use super::float_text::{FloatText, FloatValue};
use super::grisu::Digits;

/// Parses a decimal `i64` as Redis does wherever it expects an integer: only the canonical form, without plus sign,
/// leading zeros, blanks or `-0`.
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

/// Parses digits that begin with 1 to 9.
#[inline]
fn parse_digits(digits: &[u8]) -> Option<u64> {
    if digits.len() > 20 || !matches!(digits.first()?, b'1'..=b'9') {
        return None;
    }
    // 19 digits cannot overflow; the 20th digit can.
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

/// Reads a double as Redis does for scores, increments and coordinates: everything that C's `strtod` accepts and
/// consumes to the last byte, including hexadecimal (`0x1.8p3`) and `inf`, but no leading blanks and no NaN.
/// Returns None for numbers too large or too small for a double, instead of rounding to infinity or zero.
pub fn parse_f64(text: &[u8]) -> Option<f64> {
    let number = FloatText::scan(text)?;
    let magnitude = match &number.value {
        FloatValue::Infinity => f64::INFINITY,
        FloatValue::Decimal { .. } => {
            let value: f64 = std::str::from_utf8(text).ok()?.parse().ok()?;
            if value.is_infinite() || (value == 0.0 && !number.value.is_zero()) {
                return None;
            }
            return Some(value);
        }
        FloatValue::Hex { .. } => {
            let rounded = number
                .value
                .hex_bits()
                .round(f64::MANTISSA_DIGITS, F64_EXPONENT_MIN);
            if rounded.exponent > F64_EXPONENT_MAX
                || (rounded.mantissa == 0 && !number.value.is_zero())
            {
                return None;
            }
            const HIDDEN: u64 = 1 << 52;
            f64::from_bits(if rounded.mantissa < HIDDEN {
                rounded.mantissa
            } else {
                let exponent = (rounded.exponent - F64_EXPONENT_MIN + 1) as u64;
                exponent << 52 | (rounded.mantissa - HIDDEN)
            })
        }
    };
    Some(if number.negative {
        -magnitude
    } else {
        magnitude
    })
}

/// The exponents of a double whose mantissa is read as an integer of 53 bits.
const F64_EXPONENT_MIN: i32 = -1074;
const F64_EXPONENT_MAX: i32 = 971;

/// Reads an amount of memory as in a configuration file: digits and an optional unit, `1gb`, `100k`, `64MB`. `k`,
/// `m` and `g` are powers of 1000, `kb`, `mb` and `gb` of 1024.
pub fn parse_memory(text: &[u8]) -> Option<u64> {
    let digits_len = text.iter().take_while(|byte| byte.is_ascii_digit()).count();
    let (digits, unit) = text.split_at(digits_len);
    let mut folded = [0; 2];
    folded.get_mut(..unit.len())?.copy_from_slice(unit);
    folded.make_ascii_lowercase();
    let factor = match &folded[..unit.len()] {
        b"" | b"b" => 1,
        b"k" => 1000,
        b"kb" => 1 << 10,
        b"m" => 1_000_000,
        b"mb" => 1 << 20,
        b"g" => 1_000_000_000,
        b"gb" => 1 << 30,
        _ => return None,
    };
    // Leading zeros are accepted here, unlike in numbers among the arguments of commands.
    let significant = digits
        .iter()
        .position(|digit| *digit != b'0')
        .unwrap_or(digits_len);
    let value = match &digits[significant..] {
        [] if digits.is_empty() => return None,
        [] => 0,
        digits => parse_digits(digits)?,
    };
    value.checked_mul(factor)
}

/// Reads an amount of memory, or a percentage such as `80%` of `whole`.
pub fn parse_memory_or_percent(text: &[u8], whole: u64) -> Option<u64> {
    let Some(percent) = text.strip_suffix(b"%") else {
        return parse_memory(text);
    };
    let percent = parse_u64(percent).filter(|percent| *percent <= 100)?;
    Some((u128::from(whole) * u128::from(percent) / 100) as u64)
}

/// Buffer for the text of any `f64`, as [`F64Buffer::format`] prints it.
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
    /// Prints `value` as Redis 7.2 does for scores and other doubles: `inf`, `-inf`, `nan`, `-0`; integers up to 2^62
    /// without exponent; otherwise [`Digits`] that read back as the same number, without exponent unless that takes
    /// many zeros (`1e+22`, `1.5e-7`).
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
        let len = self.lay_out(&Digits::of(value), value.is_sign_negative());
        &self.0[..len]
    }

    /// Writes a number that is no integer below 2^62. Returns the length.
    fn lay_out(&mut self, number: &Digits, is_negative: bool) -> usize {
        let digits = number.text();
        let count = digits.len() as i32;
        let exponent = number.scale + count - 1; // of the first digit
        let mut text = FloatTextCursor {
            bytes: &mut self.0,
            len: 0,
        };
        if is_negative {
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

struct FloatTextCursor<'a> {
    bytes: &'a mut [u8; F64_TEXT_LEN_MAX],
    len: usize,
}

impl FloatTextCursor<'_> {
    fn put(&mut self, text: &[u8]) {
        self.bytes[self.len..][..text.len()].copy_from_slice(text);
        self.len += text.len();
    }

    fn zeros(&mut self, count: i32) {
        self.put(&b"00000000"[..count as usize]);
    }
}

#[cfg(test)]
mod tests;
