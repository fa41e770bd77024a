//! The 80-bit floating point numbers of x86 (`long double`), in software.
//!
//! Redis computes INCRBYFLOAT and HINCRBYFLOAT in such numbers, so that 0.1 + 0.2 is 0.3; doubles would differ in the
//! last digits. Reading, adding and printing are each rounded correctly, to nearest with ties to even, as in the
//! processor and the C library. Knows nothing of commands.
//!
//! A finite number is `mantissa · 2^exponent`. The mantissa has 64 bits; its highest bit is set, unless the number is
//! zero or so small that the exponent can go no lower:
//!
//! ```text
//! 0.1 = 0xcccccccccccccccd · 2^-67         the smallest: 1 · 2^-16445
//! ```

use super::float_text::{Bits, FloatText, FloatValue};

/// An extended number, never a NaN.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Extended {
    negative: bool,
    mantissa: u64,
    exponent: i32,
}

const PRECISION: u32 = 64;
const EXPONENT_MIN: i32 = -16445;
const EXPONENT_MAX: i32 = 16320;

/// The exponent of infinities.
const INFINITE: i32 = i32::MAX;

/// Maximum length of a text that Redis accepts.
const TEXT_LEN_MAX: usize = 5 * 1024 - 1;

/// A decimal number with at least this many digits before its point is too large.
const MAGNITUDE_MAX: i64 = 4940;

/// A decimal number with this many zeros after its point is too small, even for rounding up.
const MAGNITUDE_MIN: i64 = -4960;

/// Powers of five up to this exponent fit in 64 bits.
const SHORT_POWER_MAX: u32 = 27;

/// Number of printed digits after the point.
const FRACTION_DIGITS: usize = 17;

impl Extended {
    /// Zero.
    pub const ZERO: Self = Self {
        negative: false,
        mantissa: 0,
        exponent: EXPONENT_MIN,
    };

    /// The largest finite number.
    pub const MAX: Self = Self {
        negative: false,
        mantissa: u64::MAX,
        exponent: EXPONENT_MAX,
    };

    /// Reads a number as C's `strtold` does, to the last byte: decimal, hexadecimal, `inf`; no leading blanks, no
    /// NaN. Returns None for numbers that are too large, or too small to differ from zero.
    pub fn parse(text: &[u8]) -> Option<Self> {
        if text.len() > TEXT_LEN_MAX {
            return None;
        }
        let FloatText { negative, value } = FloatText::scan(text)?;
        let bits = match &value {
            FloatValue::Infinity => {
                return Some(Self {
                    negative,
                    mantissa: 0,
                    exponent: INFINITE,
                });
            }
            value if value.is_zero() => Bits {
                mantissa: 0,
                inexact: false,
                exponent: 0,
            },
            FloatValue::Decimal {
                whole,
                fraction,
                exponent,
            } => decimal_bits(whole, fraction, *exponent)?,
            FloatValue::Hex { .. } => value.hex_bits(),
        };
        let number = Self::rounded(negative, bits);
        let vanished = number.mantissa == 0 && bits.mantissa != 0;
        if vanished || !number.is_finite() {
            None
        } else {
            Some(number)
        }
    }

    /// True if the number is not an infinity.
    pub fn is_finite(self) -> bool {
        self.exponent != INFINITE
    }

    /// Returns the number with the other sign.
    pub fn negated(self) -> Self {
        Self {
            negative: !self.negative,
            ..self
        }
    }

    /// True if the number is less than another one. Zeros of both signs are equal.
    pub fn is_less_than(self, other: Self) -> bool {
        let is_zero = |number: Self| number.mantissa == 0 && number.is_finite();
        let size = |number: Self| (number.exponent, number.mantissa);
        match (
            self.negative && !is_zero(self),
            other.negative && !is_zero(other),
        ) {
            (true, false) => true,
            (false, true) => false,
            (false, false) => size(self) < size(other),
            (true, true) => size(self) > size(other),
        }
    }

    /// Returns the sum; None if it is infinite or NaN.
    pub fn checked_add(self, other: Self) -> Option<Self> {
        if !self.is_finite() || !other.is_finite() {
            return None;
        }
        let (large, small) = if (self.exponent, self.mantissa) >= (other.exponent, other.mantissa) {
            (self, other)
        } else {
            (other, self)
        };
        if small.mantissa == 0 {
            return Some(large);
        }
        // One bit above for the carry, 63 bits below for rounding; of bits below these only whether any is set
        // matters.
        let large_bits = u128::from(large.mantissa) << 63;
        let small_bits = u128::from(small.mantissa) << 63;
        let distance = (large.exponent - small.exponent) as u32;
        let (shifted, inexact) = match distance {
            0..=127 => (
                small_bits >> distance,
                small_bits & ((1 << distance) - 1) != 0,
            ),
            _ => (0, true),
        };
        let mantissa = if large.negative == small.negative {
            large_bits + shifted
        } else {
            large_bits - shifted - u128::from(inexact)
        };
        let bits = Bits {
            mantissa,
            inexact,
            exponent: large.exponent - 63,
        };
        let sum = Self::rounded(large.negative && mantissa != 0, bits);
        sum.is_finite().then_some(sum)
    }

    /// Appends the number with 17 digits after the point, as `%.17Lf` prints it, without trailing zeros, a trailing
    /// point, or the sign of a zero. Infinities are `inf` and `-inf`.
    pub fn print(self, into: &mut Vec<u8>) {
        if !self.is_finite() {
            return into.extend_from_slice(if self.negative { b"-inf" } else { b"inf" });
        }
        if self.exponent > 64 {
            return self.print_large(into);
        }
        const ONE: u128 = 10_u128.pow(FRACTION_DIGITS as u32);
        let mantissa = u128::from(self.mantissa);
        let (mut whole, mut fraction) = (0, 0);
        if self.exponent >= 0 {
            whole = mantissa << self.exponent;
        } else if self.exponent > -128 {
            let places = self.exponent.unsigned_abs();
            whole = mantissa >> places;
            // 64 bits times 10^17, which has 57 bits: no overflow.
            let scaled = (mantissa & ((1 << places) - 1)) * ONE;
            fraction = scaled >> places;
            let rest = scaled & ((1 << places) - 1);
            let half = 1 << (places - 1);
            fraction += u128::from(rest > half || (rest == half && fraction & 1 == 1));
            if fraction == ONE {
                whole += 1;
                fraction = 0;
            }
        }
        if self.negative && (whole > 0 || fraction > 0) {
            into.push(b'-');
        }
        into.extend_from_slice(itoa::Buffer::new().format(whole).as_bytes());
        if fraction > 0 {
            let mut digits = [b'0'; FRACTION_DIGITS];
            let mut rest = fraction as u64;
            for digit in digits.iter_mut().rev() {
                *digit += (rest % 10) as u8;
                rest /= 10;
            }
            let zeros = digits
                .iter()
                .rev()
                .take_while(|digit| **digit == b'0')
                .count();
            into.push(b'.');
            into.extend_from_slice(&digits[..FRACTION_DIGITS - zeros]);
        }
    }

    /// Prints an integer of more than 128 bits.
    fn print_large(self, into: &mut Vec<u8>) {
        const LIMB: u64 = 1_000_000_000;
        let mut limbs = Vec::new(); // nine digits each, the lowest first
        let mut rest = self.mantissa;
        while rest > 0 {
            limbs.push(rest % LIMB);
            rest /= LIMB;
        }
        let mut doublings = self.exponent;
        while doublings > 0 {
            let step = doublings.min(32);
            let mut carry = 0;
            for limb in &mut limbs {
                let value = (*limb << step) + carry;
                *limb = value % LIMB;
                carry = value / LIMB;
            }
            while carry > 0 {
                limbs.push(carry % LIMB);
                carry /= LIMB;
            }
            doublings -= step;
        }
        if self.negative {
            into.push(b'-');
        }
        let (highest, lower) = limbs.split_last().expect("the number is not zero");
        into.extend_from_slice(itoa::Buffer::new().format(*highest).as_bytes());
        for limb in lower.iter().rev() {
            // A leading digit preserves the zeros.
            into.extend_from_slice(&itoa::Buffer::new().format(LIMB + limb).as_bytes()[1..]);
        }
    }

    fn rounded(negative: bool, bits: Bits) -> Self {
        let rounded = bits.round(PRECISION, EXPONENT_MIN);
        if rounded.exponent > EXPONENT_MAX {
            return Self {
                negative,
                mantissa: 0,
                exponent: INFINITE,
            };
        }
        Self {
            negative,
            mantissa: rounded.mantissa,
            exponent: rounded.exponent,
        }
    }
}

impl From<i64> for Extended {
    fn from(value: i64) -> Self {
        let mantissa = u128::from(value.unsigned_abs());
        Self::rounded(
            value < 0,
            Bits {
                mantissa,
                inexact: false,
                exponent: 0,
            },
        )
    }
}

impl From<f64> for Extended {
    /// Converts a double exactly; a NaN becomes zero.
    fn from(value: f64) -> Self {
        let negative = value.is_sign_negative();
        if value.is_infinite() {
            return Self {
                negative,
                mantissa: 0,
                exponent: INFINITE,
            };
        } else if value.is_nan() {
            return Self::ZERO;
        }
        let fraction = value.to_bits() & ((1 << 52) - 1);
        let biased = (value.to_bits() >> 52 & 0x7ff) as i32;
        let hidden = u64::from(biased > 0) << 52;
        let mantissa = u128::from(hidden | fraction);
        Self::rounded(
            negative,
            Bits {
                mantissa,
                inexact: false,
                exponent: biased.max(1) - 1075,
            },
        )
    }
}

/// Returns the value of decimal digits that are not all zero, exact to more than 64 bits; None if the value is far
/// too large or too small.
fn decimal_bits(whole: &[u8], fraction: &[u8], exponent: i64) -> Option<Bits> {
    let digits = || whole.iter().chain(fraction).map(|digit| digit - b'0');
    let leading = digits().take_while(|digit| *digit == 0).count();
    let trailing = digits().rev().take_while(|digit| *digit == 0).count();
    let count = whole.len() + fraction.len() - leading - trailing;
    let significant = digits().skip(leading).take(count);
    let power = exponent - fraction.len() as i64 + trailing as i64;
    let magnitude = count as i64 + power;
    if !(MAGNITUDE_MIN..=MAGNITUDE_MAX).contains(&magnitude) {
        return None;
    }
    let power = power as i32;
    let five = power.unsigned_abs();
    let short = five <= SHORT_POWER_MAX && count <= if power >= 0 { 19 } else { 38 };
    let bits = if short {
        let value = significant.fold(0, |value: u128, digit| value * 10 + u128::from(digit));
        let five = 5_u128.pow(five);
        if power >= 0 {
            Bits {
                mantissa: value * five,
                inexact: false,
                exponent: power,
            }
        } else {
            // 128 bits divided by at most 63 bits leave at least 65: enough to round to 64.
            let shift = value.leading_zeros();
            let value = value << shift;
            let exponent = power - shift as i32;
            Bits {
                mantissa: value / five,
                inexact: value % five != 0,
                exponent,
            }
        }
    } else {
        let mut value = Natural::default();
        significant.for_each(|digit| value.multiply_add(10, u32::from(digit)));
        if power >= 0 {
            value.multiply_by_power_of_five(five);
            value.highest_bits(power)
        } else {
            let mut divisor = Natural::from_one();
            divisor.multiply_by_power_of_five(five);
            value.divide(divisor, power)
        }
    };
    Some(bits)
}

/// A natural number of any size: limbs of 32 bits, the lowest first, without leading zeros.
///
/// Needed only for numbers of unusual length or exponent, so the code is short rather than fast.
#[derive(Default)]
struct Natural(Vec<u32>);

impl Natural {
    fn from_one() -> Self {
        Self(vec![1])
    }

    fn multiply_add(&mut self, factor: u32, summand: u32) {
        let mut carry = u64::from(summand);
        for limb in &mut self.0 {
            carry += u64::from(*limb) * u64::from(factor);
            *limb = carry as u32;
            carry >>= 32;
        }
        if carry > 0 {
            self.0.push(carry as u32);
        }
    }

    fn multiply_by_power_of_five(&mut self, mut power: u32) {
        while power > 0 {
            let step = power.min(13);
            self.multiply_add(5_u32.pow(step), 0);
            power -= step;
        }
    }

    fn bits_len(&self) -> usize {
        self.0
            .last()
            .map_or(0, |top| self.0.len() * 32 - top.leading_zeros() as usize)
    }

    fn shift_left(&mut self, bits: usize) {
        self.multiply_add(1 << (bits % 32), 0);
        self.0.splice(..0, std::iter::repeat_n(0, bits / 32));
    }

    /// Returns the 128 highest bits of the number times two to the power of `exponent`.
    fn highest_bits(mut self, exponent: i32) -> Bits {
        // Rounded up to a limb boundary, so that the highest bits are whole limbs.
        let shift = (128_usize.saturating_sub(self.bits_len())).next_multiple_of(32);
        self.shift_left(shift);
        let (low, high) = self.0.split_at(self.0.len() - 4);
        let mantissa = high
            .iter()
            .rev()
            .fold(0, |value, limb| value << 32 | u128::from(*limb));
        Bits {
            mantissa,
            inexact: low.iter().any(|limb| *limb != 0),
            exponent: exponent + low.len() as i32 * 32 - shift as i32,
        }
    }

    /// Returns the quotient to 68 bits, times two to the power of `exponent`.
    fn divide(mut self, mut divisor: Self, exponent: i32) -> Bits {
        const STEPS: i32 = 68;
        let (own, other) = (self.bits_len(), divisor.bits_len());
        self.shift_left(other.saturating_sub(own));
        divisor.shift_left(own.saturating_sub(other));
        // Both numbers have the same length now: the quotient is between 1/2 and 2.
        let mut quotient = 0;
        for _ in 0..STEPS {
            let bit = self.is_at_least(&divisor);
            if bit {
                self.subtract(&divisor);
            }
            quotient = quotient << 1 | u128::from(bit);
            self.multiply_add(2, 0);
        }
        let moved = own as i32 - other as i32;
        Bits {
            mantissa: quotient,
            inexact: !self.0.is_empty(),
            exponent: exponent + moved - (STEPS - 1),
        }
    }

    fn is_at_least(&self, other: &Self) -> bool {
        match self.0.len().cmp(&other.0.len()) {
            std::cmp::Ordering::Equal => self.0.iter().rev().ge(other.0.iter().rev()),
            unequal => unequal.is_gt(),
        }
    }

    fn subtract(&mut self, other: &Self) {
        let mut borrow = false;
        let others = other.0.iter().copied().chain(std::iter::repeat(0));
        for (limb, other) in self.0.iter_mut().zip(others) {
            let (difference, first) = limb.overflowing_sub(other);
            let (difference, second) = difference.overflowing_sub(u32::from(borrow));
            *limb = difference;
            borrow = first || second;
        }
        while self.0.last() == Some(&0) {
            self.0.pop();
        }
    }
}

#[cfg(test)]
mod tests;
