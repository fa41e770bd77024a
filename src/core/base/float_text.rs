//! The text of a floating point number, as C's `strtod` and `strtold` understand it, and exact rounding.
//!
//! Shared by the two precisions that Redis computes in: double, and the 80-bit extended one. Splits the text into
//! parts without computing a value, except for hexadecimal, whose bits are readily available.

use super::hex;

/// A number whose text is well formed to the last byte.
pub(super) struct FloatText<'a> {
    pub(super) negative: bool,
    pub(super) value: FloatValue<'a>,
}

pub(super) enum FloatValue<'a> {
    Infinity,
    /// The digits before and after the point; the value is this number times ten to the power of `exponent`.
    Decimal {
        whole: &'a [u8],
        fraction: &'a [u8],
        exponent: i64,
    },
    /// The hexadecimal digits before and after the point; the value is this number times two to the power of
    /// `exponent`.
    Hex {
        whole: &'a [u8],
        fraction: &'a [u8],
        exponent: i64,
    },
}

/// Exponents saturate here: far beyond any format, and far from overflow when numbers of digits are added.
const EXPONENT_LIMIT: i64 = 1 << 40;

impl<'a> FloatText<'a> {
    /// Splits `text` into its parts. White space and NaN are rejected.
    pub(super) fn scan(text: &'a [u8]) -> Option<Self> {
        let (negative, text) = match text {
            [b'-', rest @ ..] => (true, rest),
            [b'+', rest @ ..] => (false, rest),
            rest => (false, rest),
        };
        let value = match text {
            [b'0', b'x' | b'X', rest @ ..] => {
                let (whole, fraction, exponent) = parts(rest, u8::is_ascii_hexdigit, b'p')?;
                FloatValue::Hex {
                    whole,
                    fraction,
                    exponent,
                }
            }
            [b'i' | b'I', ..]
                if text.eq_ignore_ascii_case(b"inf") || text.eq_ignore_ascii_case(b"infinity") =>
            {
                FloatValue::Infinity
            }
            _ => {
                let (whole, fraction, exponent) = parts(text, u8::is_ascii_digit, b'e')?;
                FloatValue::Decimal {
                    whole,
                    fraction,
                    exponent,
                }
            }
        };
        Some(Self { negative, value })
    }
}

/// Parses digits, optionally a point and digits, optionally a marker and an exponent, and nothing else.
fn parts(text: &[u8], is_digit: impl Fn(&u8) -> bool, marker: u8) -> Option<(&[u8], &[u8], i64)> {
    let digits_of = |text: &[u8]| text.iter().take_while(|byte| is_digit(byte)).count();
    let (whole, rest) = text.split_at(digits_of(text));
    let (fraction, rest) = match rest {
        [b'.', rest @ ..] => rest.split_at(digits_of(rest)),
        rest => (&rest[..0], rest),
    };
    if whole.is_empty() && fraction.is_empty() {
        return None;
    }
    let exponent = match rest {
        [] => 0,
        [first, rest @ ..] if first.eq_ignore_ascii_case(&marker) => exponent_of(rest)?,
        _ => return None,
    };
    Some((whole, fraction, exponent))
}

fn exponent_of(text: &[u8]) -> Option<i64> {
    let (negative, digits) = match text {
        [b'-', rest @ ..] => (true, rest),
        [b'+', rest @ ..] => (false, rest),
        rest => (false, rest),
    };
    if digits.is_empty() || !digits.iter().all(u8::is_ascii_digit) {
        return None;
    }
    let magnitude = digits.iter().fold(0, |value: i64, digit| {
        (value * 10 + i64::from(digit - b'0')).min(EXPONENT_LIMIT)
    });
    Some(if negative { -magnitude } else { magnitude })
}

impl FloatValue<'_> {
    /// True if all digits are zero, whatever the exponent.
    pub(super) fn is_zero(&self) -> bool {
        match self {
            Self::Infinity => false,
            Self::Decimal {
                whole, fraction, ..
            }
            | Self::Hex {
                whole, fraction, ..
            } => whole.iter().chain(*fraction).all(|digit| *digit == b'0'),
        }
    }

    /// Returns the value of hexadecimal digits.
    pub(super) fn hex_bits(&self) -> Bits {
        let Self::Hex {
            whole,
            fraction,
            exponent,
        } = self
        else {
            unreachable!("called for hexadecimal numbers only");
        };
        let mut bits = Bits {
            mantissa: 0,
            inexact: false,
            exponent: 0,
        };
        let mut exponent = *exponent - 4 * fraction.len() as i64;
        for digit in whole.iter().chain(*fraction) {
            let value = hex::value(*digit).expect("only digits were taken in");
            if bits.mantissa >> 124 == 0 {
                bits.mantissa = bits.mantissa << 4 | u128::from(value);
            } else {
                bits.inexact |= value != 0;
                exponent += 4;
            }
        }
        // Clamped to a range far beyond all formats.
        bits.exponent = exponent.clamp(-100_000, 100_000) as i32;
        bits
    }
}

/// An exact value, or one with set bits below its last bit: `mantissa` times two to the power of `exponent`. If
/// `inexact`, the mantissa has more bits than it will be rounded to.
#[derive(Clone, Copy, Debug)]
pub(super) struct Bits {
    pub(super) mantissa: u128,
    pub(super) inexact: bool,
    pub(super) exponent: i32,
}

/// A value of at most 64 bits; the highest bit is set unless the exponent is the smallest possible.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Rounded {
    pub(super) mantissa: u64,
    pub(super) exponent: i32,
}

impl Bits {
    /// Rounds to `precision` bits, to nearest and ties to even; to fewer bits where the exponent would fall below
    /// `exponent_min`.
    pub(super) fn round(self, precision: u32, exponent_min: i32) -> Rounded {
        if self.mantissa == 0 {
            return Rounded {
                mantissa: 0,
                exponent: exponent_min,
            };
        }
        let bits = 128 - self.mantissa.leading_zeros();
        let dropped = (bits as i32 - precision as i32).max(exponent_min - self.exponent);
        let mut exponent = self.exponent + dropped;
        if dropped <= 0 {
            let mantissa = (self.mantissa << -dropped) as u64;
            return Rounded { mantissa, exponent };
        }
        if dropped > 128 {
            return Rounded {
                mantissa: 0,
                exponent: exponent_min,
            };
        }
        let half = 1 << (dropped - 1);
        let mut kept = if dropped == 128 {
            0
        } else {
            self.mantissa >> dropped
        };
        let rest = self.mantissa & (half - 1 + half);
        if rest > half || (rest == half && (self.inexact || kept & 1 == 1)) {
            kept += 1;
            if kept >> precision != 0 {
                kept >>= 1;
                exponent += 1;
            }
        }
        Rounded {
            mantissa: kept as u64,
            exponent,
        }
    }
}
