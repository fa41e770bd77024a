//! Documents into texts.

use super::encoding::{Header, size, stored_number, tag, text};

/// White space between the values of a text, which makes it readable; none by default.
#[derive(Clone, Copy, Debug, Default)]
pub struct Format<'f> {
    /// Put at the beginning of each line, as often as the line is deep.
    pub indent: &'f [u8],
    /// Put between the elements, and between them and the brackets.
    pub newline: &'f [u8],
    /// Put behind the colon of a member.
    pub space: &'f [u8],
}

/// A container that is being printed.
#[derive(Clone, Copy, Debug)]
struct Level {
    end: usize,
    is_object: bool,
    is_empty: bool,
}

/// The progress of printing a value, which can pause between any two values in it.
#[derive(Debug, Default)]
pub struct Printer {
    at: usize,
    levels: Vec<Level>,
    /// Number of values around the one that is printed.
    depth: usize,
}

impl Printer {
    /// Begins to print a value that is within `depth` others.
    pub fn at_depth(depth: usize) -> Printer {
        Printer {
            depth,
            ..Printer::default()
        }
    }

    /// Continues to append the text of `value`, until it is done or `bytes_max` bytes have been added. Returns true
    /// while more is left.
    pub fn print_some(
        &mut self,
        value: &[u8],
        format: &Format<'_>,
        bytes_max: usize,
        out: &mut Vec<u8>,
    ) -> bool {
        let stop = out.len().saturating_add(bytes_max);
        loop {
            while let Some(level) = self.levels.last().filter(|level| level.end == self.at) {
                let (is_object, is_empty) = (level.is_object, level.is_empty);
                self.levels.pop();
                if !is_empty {
                    self.line(format, out);
                }
                out.push(if is_object { b'}' } else { b']' });
            }
            let depth = self.depth + self.levels.len();
            match self.levels.last_mut() {
                None if self.at > 0 => return false,
                None => {}
                Some(_) if out.len() >= stop => return true,
                Some(level) => {
                    if !std::mem::take(&mut level.is_empty) {
                        out.push(b',');
                    }
                    let is_object = level.is_object;
                    line(format, depth, out);
                    if is_object {
                        let name = &value[self.at..];
                        self.at += size(name);
                        quote(text(name).unwrap_or_default(), out);
                        out.push(b':');
                        out.extend_from_slice(format.space);
                    }
                }
            }
            self.value(&value[self.at..], out);
        }
    }

    fn line(&self, format: &Format<'_>, out: &mut Vec<u8>) {
        line(format, self.depth + self.levels.len(), out);
    }

    /// Appends a scalar, or begins a container.
    fn value(&mut self, value: &[u8], out: &mut Vec<u8>) {
        if let Some(header) = Header::of(value) {
            out.push(if header.is_object { b'{' } else { b'[' });
            self.at += header.bytes();
            self.levels.push(Level {
                end: self.at + header.len,
                is_object: header.is_object,
                is_empty: true,
            });
            return;
        }
        scalar(value, out);
        self.at += size(value);
    }
}

fn line(format: &Format<'_>, depth: usize, out: &mut Vec<u8>) {
    out.extend_from_slice(format.newline);
    for _ in 0..depth {
        out.extend_from_slice(format.indent);
    }
}

fn scalar(value: &[u8], out: &mut Vec<u8>) {
    if let Some(text) = text(value) {
        return quote(text, out);
    }
    if let Some(stored) = stored_number(value) {
        return stored.print(out);
    }
    out.extend_from_slice(match value[0] {
        tag::TRUE => b"true",
        tag::FALSE => b"false",
        _ => b"null",
    });
}

/// The character after the backslash of an escape; `u` for those that have no short one, 0 for plain characters.
static ESCAPES: [u8; 256] = {
    let mut table = [0; 256];
    let mut byte = 0;
    while byte < 0x20 {
        table[byte] = b'u';
        byte += 1;
    }
    table[0x08] = b'b';
    table[0x09] = b't';
    table[0x0a] = b'n';
    table[0x0c] = b'f';
    table[0x0d] = b'r';
    table[b'"' as usize] = b'"';
    table[b'\\' as usize] = b'\\';
    table
};

/// Appends a string with its quotes.
pub fn quote(text: &[u8], out: &mut Vec<u8>) {
    const HEX: &[u8; 16] = b"0123456789abcdef";
    out.push(b'"');
    let mut left = text;
    loop {
        let plain = left
            .iter()
            .position(|byte| ESCAPES[usize::from(*byte)] != 0);
        let Some(at) = plain else {
            out.extend_from_slice(left);
            break;
        };
        out.extend_from_slice(&left[..at]);
        let byte = left[at];
        match ESCAPES[usize::from(byte)] {
            b'u' => {
                let digits = [HEX[usize::from(byte >> 4)], HEX[usize::from(byte & 15)]];
                out.extend_from_slice(b"\\u00");
                out.extend_from_slice(&digits);
            }
            letter => out.extend_from_slice(&[b'\\', letter]),
        }
        left = &left[at + 1..];
    }
    out.push(b'"');
}
