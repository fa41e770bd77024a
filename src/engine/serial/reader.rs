//! Reads lengths, strings and numbers in the form shared by snapshots and DUMP.
//!
//! Every claimed length is checked against the remaining bytes before any memory is allocated for it. Knows nothing
//! of values and frames.

use std::borrow::Cow;
use std::collections::BTreeMap;

use super::{Malformed, form};
use basalt_core::base::number;
use basalt_core::structures::lzf;

/// Maximum bytes that one byte of compressed text can expand to: three bytes copy up to 264.
const EXPANSION_MAX: usize = 88;

/// The context in which values are read: the server that wrote them, and definitions that precede them.
#[derive(Clone, Debug, Default)]
pub struct DecodeContext {
    /// True for Valkey of version 9 or later, whose type numbers differ from those of Redis from 7.4 on.
    pub is_valkey: bool,
    /// Field names shared by hashes, by the number that replaces them.
    pub templates: BTreeMap<u64, Vec<Box<[u8]>>>,
}

/// A reader of serialized bytes.
pub struct Reader<'a> {
    rest: &'a [u8],
    string_bytes_max: usize,
    origin: Option<&'a DecodeContext>,
}

/// The start of a string: its length, or the code of a special form.
enum StringHeader {
    Length(u64),
    Form(u8),
}

impl<'a> Reader<'a> {
    /// Creates a reader; no string may be longer than `string_bytes_max` bytes.
    pub fn new(bytes: &'a [u8], string_bytes_max: usize) -> Reader<'a> {
        Reader {
            rest: bytes,
            string_bytes_max,
            origin: None,
        }
    }

    /// Sets the origin of the bytes.
    pub fn from(self, origin: &'a DecodeContext) -> Reader<'a> {
        let origin = Some(origin);
        Reader { origin, ..self }
    }

    /// True if Valkey wrote the bytes.
    pub(super) fn is_valkey(&self) -> bool {
        self.origin.is_some_and(|origin| origin.is_valkey)
    }

    /// Returns the field names of a template.
    pub(super) fn template(&self, number: u64) -> Result<&'a [Box<[u8]>], Malformed> {
        let fields = self.origin.and_then(|origin| origin.templates.get(&number));
        fields
            .map(Vec::as_slice)
            .ok_or(Malformed("a missing field template"))
    }

    /// Returns the remaining bytes.
    pub fn rest(&self) -> &'a [u8] {
        self.rest
    }

    /// Reads the next byte.
    pub fn byte(&mut self) -> Result<u8, Malformed> {
        let [byte] = self.array()?;
        Ok(byte)
    }

    /// Reads the next `N` bytes.
    pub(super) fn array<const N: usize>(&mut self) -> Result<[u8; N], Malformed> {
        let (bytes, rest) = self.rest.split_first_chunk::<N>().ok_or(Malformed::SHORT)?;
        self.rest = rest;
        Ok(*bytes)
    }

    /// Reads `count` bytes.
    pub(super) fn raw(&mut self, count: usize) -> Result<&'a [u8], Malformed> {
        let (bytes, rest) = self.rest.split_at_checked(count).ok_or(Malformed::SHORT)?;
        self.rest = rest;
        Ok(bytes)
    }

    fn head(&mut self) -> Result<StringHeader, Malformed> {
        let first = self.byte()?;
        Ok(match first {
            0x00..=0x3f => StringHeader::Length(u64::from(first)),
            0x40..=0x7f => {
                let low = self.byte()?;
                StringHeader::Length(u64::from(first & 0x3f) << 8 | u64::from(low))
            }
            form::LENGTH_32 => StringHeader::Length(u64::from(u32::from_be_bytes(self.array()?))),
            form::LENGTH_64 => StringHeader::Length(u64::from_be_bytes(self.array()?)),
            0xc0.. => StringHeader::Form(first),
            _ => return Err(Malformed("a length in an unknown format")),
        })
    }

    /// Reads a length, or another number encoded like a length.
    pub fn length(&mut self) -> Result<u64, Malformed> {
        match self.head()? {
            StringHeader::Length(length) => Ok(length),
            StringHeader::Form(_) => Err(Malformed("a string instead of a length")),
        }
    }

    /// Reads a number of items of at least `bytes_each` bytes each. Returns an error if the remaining bytes cannot hold
    /// them, so that memory may be reserved for them.
    pub(super) fn count(&mut self, bytes_each: usize) -> Result<usize, Malformed> {
        let count = usize::try_from(self.length()?).map_err(|_| Malformed::SHORT)?;
        if count > self.rest.len() / bytes_each {
            return Err(Malformed::SHORT);
        }
        Ok(count)
    }

    /// Reads a string in any of its forms.
    pub fn string(&mut self) -> Result<Cow<'a, [u8]>, Malformed> {
        let length = match self.head()? {
            StringHeader::Length(length) => length,
            StringHeader::Form(form::LZF) => return self.compressed().map(Cow::Owned),
            StringHeader::Form(code) => {
                let number = self.integer(code)?;
                let digits = itoa::Buffer::new().format(number).as_bytes().to_vec();
                return Ok(Cow::Owned(digits));
            }
        };
        let length = usize::try_from(length).map_err(|_| Malformed::SHORT)?;
        if length > self.string_bytes_max {
            return Err(Malformed::BEYOND_LIMIT);
        }
        self.raw(length).map(Cow::Borrowed)
    }

    fn integer(&mut self, code: u8) -> Result<i64, Malformed> {
        Ok(match code {
            form::INT_8 => i64::from(i8::from_le_bytes(self.array()?)),
            form::INT_16 => i64::from(i16::from_le_bytes(self.array()?)),
            form::INT_32 => i64::from(i32::from_le_bytes(self.array()?)),
            _ => return Err(Malformed("a string in an unknown format")),
        })
    }

    fn compressed(&mut self) -> Result<Vec<u8>, Malformed> {
        let packed_len = usize::try_from(self.length()?).map_err(|_| Malformed::SHORT)?;
        let length = usize::try_from(self.length()?).map_err(|_| Malformed::SHORT)?;
        let packed = self.raw(packed_len)?;
        if length > self.string_bytes_max {
            return Err(Malformed::BEYOND_LIMIT);
        }
        if length / EXPANSION_MAX > packed.len() {
            return Err(Malformed("a compressed string with an excessive length"));
        }
        lzf::decompress(packed, length).ok_or(Malformed("a malformed compressed string"))
    }

    /// Reads a binary double; NaN is an error.
    pub(super) fn double(&mut self) -> Result<f64, Malformed> {
        let number = f64::from_le_bytes(self.array()?);
        if number.is_nan() {
            return Err(Malformed::NAN);
        }
        Ok(number)
    }

    /// Reads a double as text with its length, the form in sorted sets before version 8; NaN is an error.
    pub(super) fn text_double(&mut self) -> Result<f64, Malformed> {
        match self.byte()? {
            253 => Err(Malformed::NAN),
            254 => Ok(f64::INFINITY),
            255 => Ok(f64::NEG_INFINITY),
            length => {
                let text = self.raw(usize::from(length))?;
                number::parse_f64(text).ok_or(Malformed("a score that is not a number"))
            }
        }
    }

    /// Reads a time in milliseconds.
    pub(super) fn millis(&mut self) -> Result<u64, Malformed> {
        self.array().map(u64::from_le_bytes)
    }
}
