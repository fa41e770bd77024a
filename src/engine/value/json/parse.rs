//! Texts into documents: a parser that writes the packed form as it reads, with nothing in between.
//!
//! It accepts what RFC 8259 allows, and no more; of members with the same name the last one counts, in the place of the
//! first. Errors name the line and column, both counted from 1, where the text cannot go on.

use std::collections::{HashMap, HashSet};
use std::fmt;
use std::hash::{BuildHasher, BuildHasherDefault, Hasher, RandomState};

use super::encoding::{
    DEPTH_MAX, Header, Number, Stored, push_stored, push_text, push_text_header, size,
    stored_number, tag, text,
};

/// The reason why a text is no document.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Problem {
    /// The text is not UTF-8.
    NotUtf8,
    /// The text ends too early.
    End,
    /// No value begins here.
    NoValue,
    /// A word other than `true`, `false` and `null`.
    BadWord,
    /// Digits are missing.
    BadNumber,
    /// A number beyond the largest float.
    HugeNumber,
    /// An unescaped control character in a string.
    Control,
    /// A backslash before another character than those of JSON.
    BadEscape,
    /// A half of a surrogate pair without the other half.
    LoneSurrogate,
    /// A member does not begin with a string.
    NoName,
    /// The name of a member is not followed by a colon.
    NoColon,
    /// An element is followed neither by a comma nor by the end.
    NoComma,
    /// A comma before the end of an array or object.
    TrailingComma,
    /// Text after the document.
    Trailing,
    /// Too many arrays or objects within each other.
    Deep,
    /// The document is larger than one may be.
    Large,
}

/// A text that is no document, and where this shows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ParseError {
    /// The reason.
    pub problem: Problem,
    /// Offset in the text.
    pub at: usize,
    /// Line of that offset, from 1.
    pub line: usize,
    /// Column in bytes, from 1.
    pub column: usize,
}

impl fmt::Display for ParseError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let text = match self.problem {
            Problem::NotUtf8 => return f.write_str("ERR Couldn't parse as UTF-8 string"),
            Problem::End => "EOF while parsing a value",
            Problem::NoValue => "expected value",
            Problem::BadWord => "expected ident",
            Problem::BadNumber => "invalid number",
            Problem::HugeNumber => "number out of range",
            Problem::Control => "control character found while parsing a string",
            Problem::BadEscape => "invalid escape",
            Problem::LoneSurrogate => "lone surrogate in an escape",
            Problem::NoName => "key must be a string",
            Problem::NoColon => "expected `:`",
            Problem::NoComma => "expected `,` or the end of the array or object",
            Problem::TrailingComma => "trailing comma",
            Problem::Trailing => "trailing characters",
            Problem::Deep => "recursion limit exceeded",
            Problem::Large => {
                return f.write_str("LIMIT JSON document is larger than proto-max-bulk-len");
            }
        };
        let code = match self.problem {
            Problem::Deep => "LIMIT",
            _ => "SYNTAXERR",
        };
        write!(
            f,
            "{code} {text} at line {} column {}",
            self.line, self.column
        )
    }
}

/// Parses a whole text into the packed form.
pub fn parse(text: &[u8]) -> Result<Vec<u8>, ParseError> {
    let fail = |problem, at: usize| {
        let before = &text[..at];
        let line_at = before.iter().rposition(|byte| *byte == b'\n');
        ParseError {
            problem,
            at,
            line: 1 + before.iter().filter(|byte| **byte == b'\n').count(),
            column: 1 + at - line_at.map_or(0, |newline| newline + 1),
        }
    };
    if let Err(error) = std::str::from_utf8(text) {
        return Err(fail(Problem::NotUtf8, error.valid_up_to()));
    }
    if text.len() > u32::MAX as usize {
        return Err(fail(Problem::Large, 0));
    }
    let mut parser = Parser {
        text,
        at: 0,
        out: Vec::with_capacity(text.len() - text.len() / 8),
        open: Vec::new(),
    };
    match parser.document() {
        Ok(()) => Ok(parser.out),
        Err(problem) => Err(fail(problem, parser.at.min(text.len()))),
    }
}

/// Parses a text that is to be a number; None if it is another value, or none.
pub fn parse_number(text: &[u8]) -> Result<Option<Number>, ParseError> {
    if matches!(text.first(), Some(b'-' | b'0'..=b'9'))
        && let Ok((stored, end)) = number(text, 0)
        && end == text.len()
    {
        return Ok(Some(stored.number()));
    }
    let value = parse(text)?;
    Ok(stored_number(&value).map(Stored::number))
}

/// Members up to which an object is searched for a name that may be in it; beyond, the hashes of the names are kept.
const SEARCHED_MAX: usize = 32;

/// The hashes of an object's names, under a random key of the object, so that clients cannot choose names that collide.
#[derive(Default)]
struct Hashes {
    state: RandomState,
    known: HashSet<u64, BuildHasherDefault<Unhashed>>,
}

impl Hashes {
    /// Adds a name. Returns false if there was one with the same hash.
    fn insert(&mut self, name: &[u8]) -> bool {
        self.known.insert(self.state.hash_one(name))
    }
}

/// The hasher of hashes, which leaves them as they are.
#[derive(Default)]
struct Unhashed(u64);

impl Hasher for Unhashed {
    fn finish(&self) -> u64 {
        self.0
    }

    fn write(&mut self, _: &[u8]) {}

    fn write_u64(&mut self, hash: u64) {
        self.0 = hash;
    }
}

/// An array or object that is being read.
struct Open {
    /// Offset of its header in the output.
    start: usize,
    is_object: bool,
    count: usize,
    /// One bit for each name, by a weak hash: a name whose bit is free is new.
    bits: u64,
    /// Hashes of the names, once there are many.
    hashes: Option<Box<Hashes>>,
    /// True if a name may have come twice.
    repeats: bool,
}

struct Parser<'t> {
    text: &'t [u8],
    at: usize,
    out: Vec<u8>,
    open: Vec<Open>,
}

/// True for bytes that end a run of plain characters in a string.
const fn ends_run(byte: u8) -> bool {
    byte < 0x20 || byte == b'"' || byte == b'\\'
}

static ENDS_RUN: [bool; 256] = {
    let mut table = [false; 256];
    let mut byte = 0;
    while byte < 256 {
        table[byte] = ends_run(byte as u8);
        byte += 1;
    }
    table
};

/// Bytes of a narrow header, which is written before the content is known.
const NARROW: usize = 3;

impl Parser<'_> {
    #[inline]
    fn peek(&self) -> Option<u8> {
        self.text.get(self.at).copied()
    }

    #[inline]
    fn blank(&mut self) {
        while matches!(self.peek(), Some(b' ' | b'\n' | b'\r' | b'\t')) {
            self.at += 1;
        }
    }

    fn document(&mut self) -> Result<(), Problem> {
        self.blank();
        let mut is_begun = self.value()?;
        while !self.open.is_empty() {
            is_begun = match is_begun {
                true => self.first()?,
                false => self.next()?,
            };
        }
        self.blank();
        match self.peek() {
            Some(_) => Err(Problem::Trailing),
            None => Ok(()),
        }
    }

    /// Reads a scalar, or the beginning of a container. Returns true if it is a container.
    fn value(&mut self) -> Result<bool, Problem> {
        match self.peek().ok_or(Problem::End)? {
            b'"' => self.string()?,
            b'-' | b'0'..=b'9' => self.number()?,
            b'{' => return self.begin(true),
            b'[' => return self.begin(false),
            b't' => self.word(b"true", tag::TRUE)?,
            b'f' => self.word(b"false", tag::FALSE)?,
            b'n' => self.word(b"null", tag::NULL)?,
            _ => return Err(Problem::NoValue),
        }
        Ok(false)
    }

    fn word(&mut self, word: &[u8], tag: u8) -> Result<(), Problem> {
        for byte in word {
            match self.peek() {
                Some(found) if found == *byte => self.at += 1,
                Some(_) => return Err(Problem::BadWord),
                None => return Err(Problem::End),
            }
        }
        self.out.push(tag);
        Ok(())
    }

    fn begin(&mut self, is_object: bool) -> Result<bool, Problem> {
        if self.open.len() == DEPTH_MAX {
            return Err(Problem::Deep);
        }
        self.at += 1;
        self.open.push(Open {
            start: self.out.len(),
            is_object,
            count: 0,
            bits: 0,
            hashes: None,
            repeats: false,
        });
        self.out.extend_from_slice(&[0; NARROW]);
        Ok(true)
    }

    /// Reads what follows the beginning of a container.
    fn first(&mut self) -> Result<bool, Problem> {
        self.blank();
        let is_object = self.open.last().is_some_and(|open| open.is_object);
        let end = if is_object { b'}' } else { b']' };
        if self.peek() == Some(end) {
            self.at += 1;
            self.close();
            return Ok(false);
        }
        self.element(is_object)
    }

    /// Reads what follows an element of a container.
    fn next(&mut self) -> Result<bool, Problem> {
        self.settle();
        self.blank();
        let is_object = self.open.last().is_some_and(|open| open.is_object);
        let end = if is_object { b'}' } else { b']' };
        match self.peek() {
            Some(b',') => self.at += 1,
            Some(found) if found == end => {
                self.at += 1;
                self.close();
                return Ok(false);
            }
            Some(_) => return Err(Problem::NoComma),
            None => return Err(Problem::End),
        }
        self.blank();
        if self.peek() == Some(end) {
            return Err(Problem::TrailingComma);
        }
        self.element(is_object)
    }

    /// Reads an element, or a member with its name, as far as it is no container.
    fn element(&mut self, is_object: bool) -> Result<bool, Problem> {
        if is_object {
            match self.peek() {
                Some(b'"') => {}
                Some(_) => return Err(Problem::NoName),
                None => return Err(Problem::End),
            }
            let name_at = self.out.len();
            self.string()?;
            self.name(name_at);
            self.blank();
            match self.peek() {
                Some(b':') => self.at += 1,
                Some(_) => return Err(Problem::NoColon),
                None => return Err(Problem::End),
            }
            self.blank();
        }
        self.value()
    }

    /// Notes the name at `name_at`, the end of the output, which may have come before.
    fn name(&mut self, name_at: usize) {
        let Some(open) = self.open.last_mut() else {
            return;
        };
        let (before, name) = self.out.split_at(name_at);
        let Some(name) = text(name) else { return };
        let content = &before[open.start + NARROW..];
        if let Some(hashes) = &mut open.hashes {
            open.repeats |= !hashes.insert(name);
            return;
        }
        let bit = 1 << (weak_hash(name) & 63);
        open.repeats |= open.bits & bit != 0 && names_of(content).any(|known| known == name);
        open.bits |= bit;
        if open.count == SEARCHED_MAX {
            let mut hashes = Box::<Hashes>::default();
            for name in names_of(content).chain([name]) {
                hashes.insert(name);
            }
            open.hashes = Some(hashes);
        }
    }

    /// Counts an element that has just been read.
    #[inline]
    fn settle(&mut self) {
        if let Some(open) = self.open.last_mut() {
            open.count += 1;
        }
    }

    /// Ends the innermost container: writes its header, now that its length is known.
    fn close(&mut self) {
        let Some(mut open) = self.open.pop() else {
            return;
        };
        if open.repeats {
            let content = self.out.split_off(open.start + NARROW);
            open.count = push_distinct(&mut self.out, &content);
        }
        let len = self.out.len() - open.start - NARROW;
        let header = Header::new(open.is_object, len, open.count);
        let (bytes, header_len) = header.encoded();
        self.out[open.start..open.start + NARROW].copy_from_slice(&bytes[..NARROW]);
        if header_len > NARROW {
            let rest = bytes[NARROW..header_len].iter().copied();
            let at = open.start + NARROW;
            self.out.splice(at..at, rest);
        }
    }

    #[inline]
    fn string(&mut self) -> Result<(), Problem> {
        self.at += 1;
        let start = self.at;
        self.run();
        if self.peek() == Some(b'"') {
            push_text(&mut self.out, &self.text[start..self.at]);
            self.at += 1;
            return Ok(());
        }
        self.escaped(start)
    }

    /// Passes over plain characters of a string.
    #[inline]
    fn run(&mut self) {
        let rest = &self.text[self.at..];
        let plain = rest.iter().position(|byte| ENDS_RUN[usize::from(*byte)]);
        self.at += plain.unwrap_or(rest.len());
    }

    /// Reads a string with escapes, whose plain beginning has been passed.
    #[cold]
    fn escaped(&mut self, start: usize) -> Result<(), Problem> {
        let mut text = self.text[start..self.at].to_vec();
        loop {
            match self.peek() {
                Some(b'"') => break,
                Some(b'\\') => self.escape(&mut text)?,
                Some(_) => return Err(Problem::Control),
                None => return Err(Problem::End),
            }
            let plain = self.at;
            self.run();
            text.extend_from_slice(&self.text[plain..self.at]);
        }
        self.at += 1;
        push_text_header(&mut self.out, text.len());
        self.out.extend_from_slice(&text);
        Ok(())
    }

    fn escape(&mut self, text: &mut Vec<u8>) -> Result<(), Problem> {
        self.at += 1;
        let plain = match self.peek().ok_or(Problem::End)? {
            byte @ (b'"' | b'\\' | b'/') => byte,
            b'b' => 0x08,
            b'f' => 0x0c,
            b'n' => b'\n',
            b'r' => b'\r',
            b't' => b'\t',
            b'u' => {
                self.at += 1;
                let letter = self.unicode()?;
                text.extend_from_slice(letter.encode_utf8(&mut [0; 4]).as_bytes());
                return Ok(());
            }
            _ => return Err(Problem::BadEscape),
        };
        self.at += 1;
        text.push(plain);
        Ok(())
    }

    /// Reads the digits of a `\u` escape, and of the second one if it is the first of a pair.
    fn unicode(&mut self) -> Result<char, Problem> {
        let first = self.hex()?;
        let code = match first {
            0xd800..=0xdbff => {
                if !self.text[self.at..].starts_with(b"\\u") {
                    return Err(Problem::LoneSurrogate);
                }
                self.at += 2;
                let second = self.hex()?;
                if !(0xdc00..=0xdfff).contains(&second) {
                    return Err(Problem::LoneSurrogate);
                }
                0x10000 + ((first - 0xd800) << 10) + (second - 0xdc00)
            }
            code => code,
        };
        char::from_u32(code).ok_or(Problem::LoneSurrogate)
    }

    fn hex(&mut self) -> Result<u32, Problem> {
        let mut code = 0;
        for _ in 0..4 {
            let digit = char::from(self.peek().ok_or(Problem::End)?).to_digit(16);
            code = code << 4 | digit.ok_or(Problem::BadEscape)?;
            self.at += 1;
        }
        Ok(code)
    }

    fn number(&mut self) -> Result<(), Problem> {
        let start = self.at;
        let (stored, end) = number(self.text, start).map_err(|(problem, at)| {
            self.at = at;
            problem
        })?;
        self.at = end;
        push_stored(&mut self.out, stored);
        Ok(())
    }
}

/// A weak hash of a name, for one word of bits.
fn weak_hash(name: &[u8]) -> u32 {
    let at = |index: usize| name.get(index).map_or(0, |byte| u32::from(*byte));
    let sum = at(0) * 31 + at(name.len() / 2) * 13 + at(name.len().wrapping_sub(1)) * 7;
    (sum + name.len() as u32).wrapping_mul(0x9e37_79b1) >> 16
}

/// Returns the members of an object's content, each as its name and the value of it, both packed.
fn members(content: &[u8]) -> impl Iterator<Item = (&[u8], &[u8])> {
    let mut left = content;
    std::iter::from_fn(move || {
        if left.is_empty() {
            return None;
        }
        let (name, rest) = left.split_at(size(left));
        let (value, rest) = rest.split_at(size(rest));
        left = rest;
        Some((name, value))
    })
}

fn names_of(content: &[u8]) -> impl Iterator<Item = &[u8]> {
    members(content).filter_map(|(name, _)| text(name))
}

/// Appends each name of an object's content once, with its last value, in the place of its first. Returns how many.
fn push_distinct(out: &mut Vec<u8>, content: &[u8]) -> usize {
    let mut places: HashMap<&[u8], usize> = HashMap::new();
    let mut kept: Vec<(&[u8], &[u8])> = Vec::new();
    for (name, value) in members(content) {
        match places.get(name) {
            Some(at) => kept[*at].1 = value,
            None => {
                places.insert(name, kept.len());
                kept.push((name, value));
            }
        }
    }
    for (name, value) in &kept {
        out.extend_from_slice(name);
        out.extend_from_slice(value);
    }
    kept.len()
}

/// Passes over digits, of which there must be at least one.
fn digits(text: &[u8], from: usize) -> Result<usize, (Problem, usize)> {
    let rest = &text[from..];
    match rest.iter().position(|byte| !byte.is_ascii_digit()) {
        Some(0) => Err((Problem::BadNumber, from)),
        None if rest.is_empty() => Err((Problem::End, from)),
        Some(count) => Ok(from + count),
        None => Ok(text.len()),
    }
}

/// Reads the number at an offset of a text. Returns the offset of its end.
pub(super) fn number(text: &[u8], start: usize) -> Result<(Stored, usize), (Problem, usize)> {
    let is_negative = text[start] == b'-';
    let first = start + usize::from(is_negative);
    let point = digits(text, first)?;
    if text[first] == b'0' && point > first + 1 {
        return Err((Problem::BadNumber, first + 1));
    }
    let mut end = point;
    if text.get(point) == Some(&b'.') {
        end = digits(text, point + 1)?;
    }
    let mantissa_end = end;
    if matches!(text.get(end), Some(b'e' | b'E')) {
        let sign = usize::from(matches!(text.get(end + 1), Some(b'+' | b'-')));
        end = digits(text, end + 1 + sign)?;
    }
    let stored = stored(
        &text[start..end],
        point - start,
        mantissa_end - start,
        is_negative,
    );
    stored
        .map(|stored| (stored, end))
        .ok_or((Problem::HugeNumber, end))
}

/// Returns a number whose form has been checked; None if it is too large.
fn stored(text: &[u8], point: usize, mantissa_end: usize, is_negative: bool) -> Option<Stored> {
    let float = |text: &[u8]| {
        let float: f64 = std::str::from_utf8(text).ok()?.parse().ok()?;
        float
            .is_finite()
            .then_some(Stored::Number(Number::Float(float)))
    };
    if mantissa_end < text.len() {
        return float(text);
    }
    if point == text.len() {
        let digits = std::str::from_utf8(&text[usize::from(is_negative)..]).ok()?;
        return match digits.parse::<u64>() {
            Ok(0) if is_negative => Some(Stored::Number(Number::Float(-0.0))),
            Ok(number) if is_negative => match 0i64.checked_sub_unsigned(number) {
                Some(number) => Some(Stored::Number(Number::Int(number))),
                None => float(text),
            },
            Ok(number) => Some(Stored::Number(match i64::try_from(number) {
                Ok(number) => Number::Int(number),
                Err(_) => Number::Uint(number),
            })),
            Err(_) => float(text),
        };
    }
    // Fifteen digits and a power of ten up to that: both are exact as floats.
    let behind = mantissa_end - point - 1;
    if text.len() <= 16 && behind < 16 {
        let digits = text.iter().filter(|byte| byte.is_ascii_digit());
        let mantissa = digits.fold(0, |sum, byte| sum * 10 + i64::from(byte - b'0'));
        let is_zero = mantissa == 0;
        let mantissa = if is_negative { -mantissa } else { mantissa };
        if !(is_zero && is_negative)
            && let Some(decimal) = Stored::decimal(mantissa, behind as u8)
        {
            return Some(decimal);
        }
    }
    float(text)
}
