//! The packed form of JSON values.
//!
//! ```text
//! value    tag u8 | fixed bytes                       null, Booleans, numbers
//!          80..ff | text                              a string of 0 to 127 bytes
//!          tag u8 | length | text                     a longer string
//!          tag u8 | length | count | content          an array or object
//! content  value value …   ·   name value name value …            (a name is a string value)
//! ```
//!
//! Lengths and counts take one, two or four bytes, as the tag says; all numbers are little-endian. The length of a
//! container is that of its content in bytes, so that a reader steps over a value without looking into it. A number
//! that is written as a short decimal is stored as an integer and the count of its digits behind the point: it takes
//! two to seven bytes instead of nine, and the division of the two gives exactly the float of its text.

/// Tags of values.
pub(super) mod tag {
    pub(crate) const NULL: u8 = 0x00;
    pub(crate) const FALSE: u8 = 0x01;
    pub(crate) const TRUE: u8 = 0x02;
    pub(crate) const INT_8: u8 = 0x03;
    pub(crate) const INT_16: u8 = 0x04;
    pub(crate) const INT_32: u8 = 0x05;
    pub(crate) const INT_64: u8 = 0x06;
    pub(crate) const UINT_64: u8 = 0x07;
    pub(crate) const FLOAT: u8 = 0x08;
    /// Strings whose length is in one, two or four bytes; the next two tags are the wider ones.
    pub(crate) const STRING: u8 = 0x09;
    /// Arrays whose length and count take one, two or four bytes each.
    pub(crate) const ARRAY: u8 = 0x0c;
    /// Objects, likewise.
    pub(crate) const OBJECT: u8 = 0x0f;
    /// Decimals of one byte; the tag's low four bits are the number of digits behind the point.
    pub(crate) const DECIMAL_8: u8 = 0x20;
    /// Decimals of two bytes.
    pub(crate) const DECIMAL_16: u8 = 0x30;
    /// Decimals of four bytes.
    pub(crate) const DECIMAL_32: u8 = 0x40;
    /// Decimals of six bytes.
    pub(crate) const DECIMAL_48: u8 = 0x50;
    /// The integers from 0 to 31.
    pub(crate) const SMALL: u8 = 0x60;
    /// Strings of at most 127 bytes.
    pub(crate) const SHORT: u8 = 0x80;
}

/// Maximum depth of containers within containers, as RedisJSON has it.
pub const DEPTH_MAX: usize = 127;

/// The largest length of a string that the tag holds.
const SHORT_MAX: usize = 127;

/// The largest integer that the tag holds.
const SMALL_MAX: i64 = 31;

/// Mantissas of decimals beyond this are stored as floats.
const MANTISSA_MAX: i64 = (1 << 47) - 1;

/// Powers of ten that a float represents exactly.
const POWERS: [f64; 16] = [
    1e0, 1e1, 1e2, 1e3, 1e4, 1e5, 1e6, 1e7, 1e8, 1e9, 1e10, 1e11, 1e12, 1e13, 1e14, 1e15,
];

/// The width of a string's length, or of a container's length and count.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Width {
    One = 1,
    Two = 2,
    Four = 4,
}

impl Width {
    /// Returns the least width that represents a number.
    pub(super) fn of(number: usize) -> Width {
        match number {
            0..=0xff => Width::One,
            0x100..=0xffff => Width::Two,
            _ => Width::Four,
        }
    }

    fn step(self) -> u8 {
        self as u8 / 2
    }

    #[inline]
    fn of_step(step: u8) -> Width {
        match step {
            0 => Width::One,
            1 => Width::Two,
            _ => Width::Four,
        }
    }

    #[inline(always)]
    fn read(self, bytes: &[u8]) -> usize {
        match self {
            Width::One => usize::from(bytes[0]),
            Width::Two => usize::from(u16::from_le_bytes([bytes[0], bytes[1]])),
            Width::Four => u32::from_le_bytes([bytes[0], bytes[1], bytes[2], bytes[3]]) as usize,
        }
    }

    fn write(self, number: usize, bytes: &mut [u8]) {
        let width = self as usize;
        bytes[..width].copy_from_slice(&(number as u32).to_le_bytes()[..width]);
    }
}

/// The header of an array or object.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Header {
    pub(super) is_object: bool,
    pub(super) width: Width,
    /// Bytes of the content.
    pub(super) len: usize,
    /// Number of elements or members.
    pub(super) count: usize,
}

impl Header {
    /// Returns the header for a content, of the least width.
    pub(super) fn new(is_object: bool, len: usize, count: usize) -> Header {
        Header {
            is_object,
            width: Width::of(len.max(count)),
            len,
            count,
        }
    }

    /// Reads the header of a value; None if it is no container.
    #[inline]
    pub(super) fn of(value: &[u8]) -> Option<Header> {
        let (is_object, step) = match value[0] {
            found @ tag::ARRAY..tag::OBJECT => (false, found - tag::ARRAY),
            found @ tag::OBJECT..=0x11 => (true, found - tag::OBJECT),
            _ => return None,
        };
        let width = Width::of_step(step);
        Some(Header {
            is_object,
            width,
            len: width.read(&value[1..]),
            count: width.read(&value[1 + width as usize..]),
        })
    }

    /// Bytes of the header.
    #[inline]
    pub(super) fn bytes(self) -> usize {
        1 + 2 * self.width as usize
    }

    /// Returns the header's bytes; the second is how many they are.
    pub(super) fn encoded(self) -> ([u8; 9], usize) {
        let mut bytes = [0; 9];
        let first = if self.is_object {
            tag::OBJECT
        } else {
            tag::ARRAY
        };
        bytes[0] = first + self.width.step();
        self.width.write(self.len, &mut bytes[1..]);
        self.width
            .write(self.count, &mut bytes[1 + self.width as usize..]);
        (bytes, self.bytes())
    }
}

/// The bytes of values by their tags; 0 for those that have a length.
static SIZES: [u8; 256] = {
    let mut sizes = [0; 256];
    let mut at = 0;
    while at < 256 {
        sizes[at] = match at as u8 {
            first @ tag::SHORT.. => 1 + (first & 0x7f),
            tag::NULL..=tag::TRUE | tag::SMALL..tag::SHORT => 1,
            tag::INT_8 | tag::DECIMAL_8..tag::DECIMAL_16 => 2,
            tag::INT_16 | tag::DECIMAL_16..tag::DECIMAL_32 => 3,
            tag::INT_32 | tag::DECIMAL_32..tag::DECIMAL_48 => 5,
            tag::INT_64 | tag::UINT_64 | tag::FLOAT => 9,
            tag::DECIMAL_48..tag::SMALL => 7,
            _ => 0,
        };
        at += 1;
    }
    sizes
};

/// Returns the bytes of the value at the beginning of `value`.
#[inline(always)]
pub(super) fn size(value: &[u8]) -> usize {
    match SIZES[usize::from(value[0])] {
        0 => long_size(value),
        size => usize::from(size),
    }
}

/// Returns the bytes of a long string or of a container.
fn long_size(value: &[u8]) -> usize {
    if let first @ tag::STRING..tag::ARRAY = value[0] {
        let width = Width::of_step(first - tag::STRING);
        return 1 + width as usize + width.read(&value[1..]);
    }
    match Header::of(value) {
        Some(header) => header.bytes() + header.len,
        None => unreachable!("no tag"),
    }
}

/// Returns the text of a string value; None for other values.
#[inline]
pub(super) fn text(value: &[u8]) -> Option<&[u8]> {
    let (at, len) = match value[0] {
        first @ tag::SHORT.. => (1, usize::from(first & 0x7f)),
        first @ tag::STRING..tag::ARRAY => {
            let width = Width::of_step(first - tag::STRING);
            (1 + width as usize, width.read(&value[1..]))
        }
        _ => return None,
    };
    Some(&value[at..at + len])
}

/// Appends the header of a string; its text is to follow.
pub(super) fn push_text_header(out: &mut Vec<u8>, len: usize) {
    if len <= SHORT_MAX {
        out.push(tag::SHORT | len as u8);
        return;
    }
    let width = Width::of(len);
    out.push(tag::STRING + width.step());
    out.extend_from_slice(&(len as u32).to_le_bytes()[..width as usize]);
}

/// Appends a string.
pub(super) fn push_text(out: &mut Vec<u8>, text: &[u8]) {
    push_text_header(out, text.len());
    out.extend_from_slice(text);
}

/// A number of a document.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Number {
    /// An integer.
    Int(i64),
    /// An integer beyond those of an `i64`.
    Uint(u64),
    /// Any other number, which is finite.
    Float(f64),
}

impl Number {
    /// Returns the nearest float.
    pub fn as_f64(self) -> f64 {
        match self {
            Number::Int(number) => number as f64,
            Number::Uint(number) => number as f64,
            Number::Float(number) => number,
        }
    }

    /// Returns the text of the number in a document.
    pub fn text(self) -> NumberText {
        let mut text = NumberText {
            bytes: [0; TEXT_MAX],
            len: 0,
        };
        match self {
            Number::Int(number) => text.set(itoa::Buffer::new().format(number).as_bytes()),
            Number::Uint(number) => text.set(itoa::Buffer::new().format(number).as_bytes()),
            Number::Float(number) => text.set(ryu::Buffer::new().format_finite(number).as_bytes()),
        }
        text
    }
}

/// Maximum length of a number's text.
const TEXT_MAX: usize = 32;

/// The text of a number.
#[derive(Clone, Copy, Debug)]
pub struct NumberText {
    bytes: [u8; TEXT_MAX],
    len: usize,
}

impl NumberText {
    fn set(&mut self, text: &[u8]) {
        self.bytes[..text.len()].copy_from_slice(text);
        self.len = text.len();
    }

    /// Returns the text.
    pub fn as_bytes(&self) -> &[u8] {
        &self.bytes[..self.len]
    }
}

/// A number as stored: a decimal keeps its digits.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) enum Stored {
    Number(Number),
    /// The mantissa, and how many of its digits are behind the point: at least one.
    Decimal(i64, u8),
}

impl Stored {
    /// Returns the decimal of a mantissa with `behind` digits behind the point, if it is stored as one.
    pub(super) fn decimal(mut mantissa: i64, mut behind: u8) -> Option<Stored> {
        while behind > 1 && mantissa % 10 == 0 {
            mantissa /= 10;
            behind -= 1;
        }
        let digits = mantissa
            .unsigned_abs()
            .checked_ilog10()
            .map_or(1, |log| log + 1) as i32;
        // Beyond this a number is printed with an exponent.
        let is_plain = digits - i32::from(behind) > -5;
        let fits = mantissa.unsigned_abs() <= MANTISSA_MAX as u64 && (1..16).contains(&behind);
        (is_plain && fits).then_some(Stored::Decimal(mantissa, behind))
    }

    /// Returns the number.
    #[inline]
    pub(super) fn number(self) -> Number {
        match self {
            Stored::Number(number) => number,
            Stored::Decimal(mantissa, behind) => {
                Number::Float(mantissa as f64 / POWERS[usize::from(behind & 15)])
            }
        }
    }

    /// Appends the text of the number.
    pub(super) fn print(self, out: &mut Vec<u8>) {
        let Stored::Decimal(mantissa, behind) = self else {
            out.extend_from_slice(self.number().text().as_bytes());
            return;
        };
        let mut buffer = itoa::Buffer::new();
        let digits = buffer.format(mantissa.unsigned_abs()).as_bytes();
        if mantissa < 0 {
            out.push(b'-');
        }
        let behind = usize::from(behind);
        match digits.len().checked_sub(behind) {
            Some(before @ 1..) => {
                out.extend_from_slice(&digits[..before]);
                out.push(b'.');
                out.extend_from_slice(&digits[before..]);
            }
            _ => {
                out.extend_from_slice(b"0.");
                out.extend(std::iter::repeat_n(b'0', behind - digits.len()));
                out.extend_from_slice(digits);
            }
        }
    }
}

fn signed<const N: usize>(value: &[u8]) -> i64 {
    let mut bytes = [0; 8];
    bytes[..N].copy_from_slice(&value[1..1 + N]);
    let shift = 64 - 8 * N as u32;
    i64::from_le_bytes(bytes) << shift >> shift
}

/// Returns the number that a value is; None for other values.
#[inline]
pub(super) fn stored_number(value: &[u8]) -> Option<Stored> {
    let first = value[0];
    let behind = first & 15;
    Some(match first {
        tag::SMALL..tag::SHORT => Stored::Number(Number::Int(i64::from(first & 31))),
        tag::INT_8 => Stored::Number(Number::Int(signed::<1>(value))),
        tag::INT_16 => Stored::Number(Number::Int(signed::<2>(value))),
        tag::INT_32 => Stored::Number(Number::Int(signed::<4>(value))),
        tag::INT_64 => Stored::Number(Number::Int(signed::<8>(value))),
        tag::UINT_64 => Stored::Number(Number::Uint(signed::<8>(value) as u64)),
        tag::FLOAT => Stored::Number(Number::Float(f64::from_bits(signed::<8>(value) as u64))),
        tag::DECIMAL_8..tag::DECIMAL_16 => Stored::Decimal(signed::<1>(value), behind),
        tag::DECIMAL_16..tag::DECIMAL_32 => Stored::Decimal(signed::<2>(value), behind),
        tag::DECIMAL_32..tag::DECIMAL_48 => Stored::Decimal(signed::<4>(value), behind),
        tag::DECIMAL_48..tag::SMALL => Stored::Decimal(signed::<6>(value), behind),
        _ => return None,
    })
}

/// A packed scalar of a few bytes.
#[derive(Clone, Copy, Debug)]
pub struct PackedScalar {
    bytes: [u8; 9],
    len: u8,
}

impl PackedScalar {
    fn new(first: u8, number: i64) -> PackedScalar {
        let mut bytes = [0; 9];
        bytes[0] = first;
        bytes[1..].copy_from_slice(&number.to_le_bytes());
        let len = size(&bytes) as u8;
        PackedScalar { bytes, len }
    }

    fn of_stored(stored: Stored) -> PackedScalar {
        let (first, number) = match stored {
            Stored::Number(Number::Int(number @ 0..=SMALL_MAX)) => (tag::SMALL | number as u8, 0),
            Stored::Number(Number::Int(number)) => {
                let first = match number {
                    -0x80..=0x7f => tag::INT_8,
                    -0x8000..=0x7fff => tag::INT_16,
                    -0x8000_0000..=0x7fff_ffff => tag::INT_32,
                    _ => tag::INT_64,
                };
                (first, number)
            }
            Stored::Number(Number::Uint(number)) => (tag::UINT_64, number as i64),
            Stored::Number(Number::Float(number)) => (tag::FLOAT, number.to_bits() as i64),
            Stored::Decimal(mantissa, behind) => {
                let first = match mantissa {
                    -0x80..=0x7f => tag::DECIMAL_8,
                    -0x8000..=0x7fff => tag::DECIMAL_16,
                    -0x8000_0000..=0x7fff_ffff => tag::DECIMAL_32,
                    _ => tag::DECIMAL_48,
                };
                (first | behind, mantissa)
            }
        };
        PackedScalar::new(first, number)
    }

    /// Packs the number that a command has computed.
    pub fn number(number: Number) -> PackedScalar {
        let decimal = match number {
            Number::Float(float) => decimal_of(float),
            _ => None,
        };
        PackedScalar::of_stored(decimal.unwrap_or(Stored::Number(number)))
    }

    /// Packs a Boolean.
    pub fn truth(truth: bool) -> PackedScalar {
        PackedScalar::new(if truth { tag::TRUE } else { tag::FALSE }, 0)
    }

    /// Returns the packed form.
    pub fn as_bytes(&self) -> &[u8] {
        &self.bytes[..usize::from(self.len)]
    }
}

/// Appends a number.
#[inline]
pub(super) fn push_stored(out: &mut Vec<u8>, stored: Stored) {
    out.extend_from_slice(PackedScalar::of_stored(stored).as_bytes());
}

/// Returns the decimal that is the shortest text of a float, if it is stored as one.
fn decimal_of(float: f64) -> Option<Stored> {
    let mut buffer = ryu::Buffer::new();
    let text = buffer.format_finite(float).as_bytes();
    let (is_negative, text) = match text {
        [b'-', rest @ ..] => (true, rest),
        _ => (false, text),
    };
    // The largest mantissa has 15 digits.
    if text.len() > 16 || (is_negative && float == 0.0) {
        return None;
    }
    let point = text.iter().position(|byte| *byte == b'.')?;
    let mut mantissa = 0;
    for byte in text {
        match byte {
            b'0'..=b'9' => mantissa = mantissa * 10 + i64::from(byte - b'0'),
            b'.' => {}
            _ => return None,
        }
    }
    let behind = u8::try_from(text.len() - point - 1).ok()?;
    Stored::decimal(if is_negative { -mantissa } else { mantissa }, behind)
}

/// Returns the type of a value under the name that JSON.TYPE replies.
pub(super) fn type_name(value: &[u8]) -> &'static str {
    match value[0] {
        tag::NULL => "null",
        tag::FALSE | tag::TRUE => "boolean",
        tag::STRING..tag::ARRAY | tag::SHORT.. => "string",
        tag::ARRAY..tag::OBJECT => "array",
        tag::OBJECT..=0x11 => "object",
        _ => match stored_number(value).map(Stored::number) {
            Some(Number::Float(_)) | None => "number",
            Some(_) => "integer",
        },
    }
}

/// Returns the depth of containers in a value: 0 for scalars, 1 for an array of scalars.
pub(super) fn depth(value: &[u8]) -> usize {
    let (mut deepest, mut at) = (0, 0);
    // The ends of the containers around `at`.
    let mut ends: Vec<usize> = Vec::new();
    let end = size(value);
    while at < end {
        while ends.last().is_some_and(|last| *last == at) {
            ends.pop();
        }
        match Header::of(&value[at..]) {
            Some(header) => {
                at += header.bytes();
                ends.push(at + header.len);
                deepest = deepest.max(ends.len());
            }
            None => at += size(&value[at..]),
        }
    }
    deepest
}
