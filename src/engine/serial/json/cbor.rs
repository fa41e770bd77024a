//! Version 4 of documents: CBOR (RFC 8949) of definite lengths. An array of numbers of one kind is a tag of RFC 8746
//! with the numbers in little-endian order; one tag of its own is for the shortened floating point of 16 bits.

use super::{FORM, Next, Text};
use crate::serial::Malformed;

/// The tag of an array of shortened floating point.
const BF16: u64 = 0x1_0000;

/// Returns the text of a document.
pub(super) fn text(bytes: &[u8]) -> Result<Vec<u8>, Malformed> {
    let mut items = Items(bytes);
    let mut text = Text::default();
    loop {
        value(&mut items, &mut text)?;
        match text.next() {
            Next::End if items.0.is_empty() => return Ok(text.bytes),
            Next::End => return Err(FORM),
            Next::Value => {}
            Next::Member => {
                text.quoted(items.expected(3)?);
                text.bytes.push(b':');
            }
        }
    }
}

/// The items that are left.
struct Items<'a>(&'a [u8]);

impl<'a> Items<'a> {
    fn array<const N: usize>(&mut self) -> Result<[u8; N], Malformed> {
        let (bytes, rest) = self.0.split_first_chunk().ok_or(Malformed::SHORT)?;
        self.0 = rest;
        Ok(*bytes)
    }

    fn slice(&mut self, len: u64) -> Result<&'a [u8], Malformed> {
        let len = usize::try_from(len).map_err(|_| Malformed::SHORT)?;
        let (bytes, rest) = self.0.split_at_checked(len).ok_or(Malformed::SHORT)?;
        self.0 = rest;
        Ok(bytes)
    }

    /// Reads the head of an item: its major type, the five bits behind that, and its number.
    fn head(&mut self) -> Result<(u8, u8, u64), Malformed> {
        let [first] = self.array()?;
        let info = first & 31;
        let number = match info {
            0..24 => u64::from(info),
            24 => u64::from(self.array::<1>()?[0]),
            25 => u64::from(u16::from_be_bytes(self.array()?)),
            26 => u64::from(u32::from_be_bytes(self.array()?)),
            27 => u64::from_be_bytes(self.array()?),
            _ => return Err(FORM),
        };
        Ok((first >> 5, info, number))
    }

    /// Reads bytes (major type 2) or text (3).
    fn expected(&mut self, major: u8) -> Result<&'a [u8], Malformed> {
        match self.head()? {
            (found, _, len) if found == major => self.slice(len),
            _ => Err(FORM),
        }
    }
}

/// Reads a scalar, an array of numbers, or the beginning of another array or an object.
fn value(items: &mut Items<'_>, text: &mut Text) -> Result<(), Malformed> {
    let (major, info, number) = items.head()?;
    match (major, info) {
        (0, _) => text.number(number),
        (1, _) => match i64::try_from(number) {
            Ok(number) => text.number(-1 - number),
            Err(_) => return Err(FORM),
        },
        (3, _) => text.quoted(items.slice(number)?),
        (4, _) => text.begin(false, number)?,
        (5, _) => text.begin(true, number)?,
        (6, _) => numbers(number, items.expected(2)?, text)?,
        (7, 20) => text.word("false"),
        (7, 21) => text.word("true"),
        (7, 22) => text.word("null"),
        (7, 25) => float(half(number as u16), text),
        (7, 26) => float(f64::from(f32::from_bits(number as u32)), text),
        (7, 27) => float(f64::from_bits(number), text),
        _ => return Err(FORM),
    }
    Ok(())
}

/// Infinity and NaN become null, as in RedisJSON.
fn float(number: f64, text: &mut Text) {
    match number.is_finite() {
        true => text.float(number),
        false => text.word("null"),
    }
}

/// Writes the array of numbers that a tag marks.
fn numbers(tag: u64, bytes: &[u8], text: &mut Text) -> Result<(), Malformed> {
    match tag {
        64 => each(bytes, text, |n: [u8; 1], text| text.number(n[0])),
        72 => each(bytes, text, |n, text| text.number(i8::from_le_bytes(n))),
        69 => each(bytes, text, |n, text| text.number(u16::from_le_bytes(n))),
        77 => each(bytes, text, |n, text| text.number(i16::from_le_bytes(n))),
        70 => each(bytes, text, |n, text| text.number(u32::from_le_bytes(n))),
        78 => each(bytes, text, |n, text| text.number(i32::from_le_bytes(n))),
        71 => each(bytes, text, |n, text| text.number(u64::from_le_bytes(n))),
        79 => each(bytes, text, |n, text| text.number(i64::from_le_bytes(n))),
        84 => each(bytes, text, |n, text| {
            short_float(u16::from_le_bytes(n), half, text);
        }),
        BF16 => each(bytes, text, |n, text| {
            short_float(u16::from_le_bytes(n), brain, text);
        }),
        85 => each(bytes, text, |n, text| {
            let number = f32::from_le_bytes(n);
            match number.is_finite() {
                // The digits that tell it from other numbers of 32 bits.
                true => text.word(&format!("{number:?}")),
                false => text.word("null"),
            }
        }),
        86 => each(bytes, text, |n, text| float(f64::from_le_bytes(n), text)),
        _ => Err(FORM),
    }
}

fn each<const N: usize>(
    bytes: &[u8],
    text: &mut Text,
    mut write: impl FnMut([u8; N], &mut Text),
) -> Result<(), Malformed> {
    let (numbers, rest) = bytes.as_chunks::<N>();
    if !rest.is_empty() {
        return Err(FORM);
    }
    text.bytes.push(b'[');
    for (index, number) in numbers.iter().enumerate() {
        if index > 0 {
            text.bytes.push(b',');
        }
        write(*number, text);
    }
    text.bytes.push(b']');
    Ok(())
}

/// The number that IEEE's format of 16 bits means: a sign, 5 bits of exponent, 10 of fraction.
pub(super) fn half(bits: u16) -> f64 {
    let fraction = f64::from(bits & 0x3ff) / 1024.0;
    let size = match i32::from(bits >> 10 & 31) {
        0 => fraction * 2f64.powi(-14),
        31 if fraction == 0.0 => f64::INFINITY,
        31 => f64::NAN,
        exponent => (1.0 + fraction) * 2f64.powi(exponent - 15),
    };
    if bits >> 15 == 0 { size } else { -size }
}

/// The number that the shortened format of 16 bits means: the upper half of the format of 32 bits.
fn brain(bits: u16) -> f64 {
    f64::from(f32::from_bits(u32::from(bits) << 16))
}

/// Writes the fewest digits that tell a number from its neighbors in its format.
fn short_float(bits: u16, number_of: fn(u16) -> f64, text: &mut Text) {
    let number = number_of(bits);
    if !number.is_finite() || bits & 0x7fff == 0 {
        return float(number, text);
    }
    let neighbors = [number_of(bits - 1), number_of(bits + 1)];
    let is_nearest = |digits: &f64| {
        let distance = (digits - number).abs();
        neighbors
            .iter()
            .all(|other| !other.is_finite() || distance < (digits - other).abs())
    };
    // Five digits are enough for 11 bits.
    let shortest = (0..5)
        .filter_map(|digits| format!("{number:.digits$e}").parse().ok())
        .find(is_nearest);
    float(shortest.unwrap_or(number), text);
}
