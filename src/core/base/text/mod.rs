//! Text as typed and read by people: splitting a line into arguments with quotes, quoting bytes for a log or a
//! file, folding names to lower case.
//!
//! The rules are Redis's (inline commands, configuration files and MONITOR all share them). Knows nothing of commands
//! and protocols.

use std::fmt::Write as _;
use std::ops::Range;

use super::hex;

/// Error: the line ended inside quotes, or a closing quote was not followed by white space.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct UnbalancedQuotes;

/// Splits a line into arguments, as `redis-cli` and `redis.conf` understand quotes.
///
/// The text of the arguments is appended to `bytes`, one after the other; `each` is called with the position of
/// each in `bytes`. In double quotes `\n \r \t \b \a \xHH` are escapes and any other escaped byte stands for
/// itself; in single quotes only `\'` is. On an error `bytes` may hold some arguments already.
pub fn split_arguments(
    line: &[u8],
    bytes: &mut Vec<u8>,
    mut each: impl FnMut(Range<usize>),
) -> Result<(), UnbalancedQuotes> {
    let mut rest = line;
    loop {
        let blanks = rest.iter().take_while(|byte| is_space(**byte)).count();
        rest = &rest[blanks..];
        if rest.is_empty() {
            return Ok(());
        }
        let start = bytes.len();
        rest = split_one(rest, bytes)?;
        each(start..bytes.len());
    }
}

/// Reads one argument from the beginning of `rest`. Returns the text behind it.
fn split_one<'a>(mut rest: &'a [u8], bytes: &mut Vec<u8>) -> Result<&'a [u8], UnbalancedQuotes> {
    loop {
        match rest {
            [] => return Ok(rest),
            // Vertical tabs and form feeds separate arguments only before an argument; they never end one.
            [b' ' | b'\n' | b'\r' | b'\t', after @ ..] => return Ok(after),
            // A quote may begin in the middle of an argument, but the closing quote always ends the argument.
            [b'"', after @ ..] => return in_double_quotes(after, bytes),
            [b'\'', after @ ..] => return in_single_quotes(after, bytes),
            [byte, after @ ..] => {
                bytes.push(*byte);
                rest = after;
            }
        }
    }
}

fn in_double_quotes<'a>(
    mut rest: &'a [u8],
    bytes: &mut Vec<u8>,
) -> Result<&'a [u8], UnbalancedQuotes> {
    loop {
        rest = match rest {
            [] => return Err(UnbalancedQuotes),
            [b'"', after @ ..] => return behind_quote(after),
            [b'\\', escaped, after @ ..] => {
                let digits = after.get(..2).filter(|_| *escaped == b'x');
                if let Some([byte]) = digits.and_then(hex::parse) {
                    bytes.push(byte);
                    rest = &after[2..];
                    continue;
                }
                bytes.push(match escaped {
                    b'n' => b'\n',
                    b'r' => b'\r',
                    b't' => b'\t',
                    b'b' => 0x08,
                    b'a' => 0x07,
                    other => *other,
                });
                after
            }
            [byte, after @ ..] => {
                bytes.push(*byte);
                after
            }
        }
    }
}

fn in_single_quotes<'a>(
    mut rest: &'a [u8],
    bytes: &mut Vec<u8>,
) -> Result<&'a [u8], UnbalancedQuotes> {
    loop {
        rest = match rest {
            [] => return Err(UnbalancedQuotes),
            [b'\'', after @ ..] => return behind_quote(after),
            [b'\\', b'\'', after @ ..] => {
                bytes.push(b'\'');
                after
            }
            [byte, after @ ..] => {
                bytes.push(*byte);
                after
            }
        }
    }
}

fn behind_quote(rest: &[u8]) -> Result<&[u8], UnbalancedQuotes> {
    match rest.first() {
        Some(byte) if !is_space(*byte) => Err(UnbalancedQuotes),
        _ => Ok(rest),
    }
}

/// Appends `bytes` in double quotes, with everything that is not printable ASCII escaped, so that
/// [`split_arguments`] reads the same bytes back.
pub fn quote(bytes: &[u8], into: &mut Vec<u8>) {
    into.reserve(bytes.len() + 2);
    into.push(b'"');
    for byte in bytes {
        match byte {
            b'\\' | b'"' => into.extend_from_slice(&[b'\\', *byte]),
            b'\n' => into.extend_from_slice(b"\\n"),
            b'\r' => into.extend_from_slice(b"\\r"),
            b'\t' => into.extend_from_slice(b"\\t"),
            0x07 => into.extend_from_slice(b"\\a"),
            0x08 => into.extend_from_slice(b"\\b"),
            b' '..=b'~' => into.push(*byte),
            _ => {
                into.extend_from_slice(b"\\x");
                into.extend_from_slice(&hex::pair(*byte));
            }
        }
    }
    into.push(b'"');
}

/// Returns `bytes` in the form of [`quote`].
#[must_use]
pub fn quoted(bytes: &[u8]) -> String {
    let mut text = Vec::new();
    quote(bytes, &mut text);
    String::from_utf8(text).expect("quoting leaves printable ASCII only")
}

/// A name folded to ASCII lower case in a buffer on the stack; names longer than `N` are rejected, since no known
/// name is that long.
#[derive(Clone, Copy, Debug)]
pub struct Folded<const N: usize> {
    bytes: [u8; N],
    len: usize,
}

impl<const N: usize> Folded<N> {
    /// Folds `name`; `None` if it has more than `N` bytes.
    #[inline]
    pub fn new(name: &[u8]) -> Option<Self> {
        let mut bytes = [0; N];
        let target = bytes.get_mut(..name.len())?;
        target.copy_from_slice(name);
        target.make_ascii_lowercase();
        Some(Self {
            bytes,
            len: name.len(),
        })
    }

    /// Returns the folded name.
    #[inline]
    pub fn as_bytes(&self) -> &[u8] {
        &self.bytes[..self.len]
    }
}

/// True for the white space of C: blank, tab, line feed, vertical tab, form feed, carriage return.
#[inline]
pub fn is_space(byte: u8) -> bool {
    matches!(byte, b' ' | b'\t'..=b'\r')
}

/// Returns a text in which everything is visible: bytes that are not valid text, invisible characters, and characters
/// that would mislead a terminal or a reader are escaped.
pub fn visible(bytes: &[u8]) -> String {
    visible_within(bytes, usize::MAX)
}

/// Returns [`visible`] text of at most `chars_max` characters; longer text ends with an ellipsis, and no escape is
/// cut.
pub fn visible_within(bytes: &[u8], chars_max: usize) -> String {
    let (mut shown, mut count) = (String::new(), 0);
    let mut piece = String::new();
    for chunk in bytes.utf8_chunks() {
        let invalid = chunk.invalid().iter().map(|byte| Err(*byte));
        for each in chunk.valid().chars().map(Ok).chain(invalid) {
            piece.clear();
            // Writing to a String can not fail.
            let _ = match each {
                Ok(each) if each.is_control() || is_invisible(each) => {
                    write!(piece, "{}", each.escape_default())
                }
                Ok(each) => write!(piece, "{each}"),
                Err(byte) => write!(piece, "\\x{byte:02x}"),
            };
            count += piece.chars().count();
            if count > chars_max {
                shown.push('…');
                return shown;
            }
            shown.push_str(&piece);
        }
    }
    shown
}

/// A writer to a terminal for texts that may contain bytes of a file or of an untrusted source: all output is made
/// [`visible`], except line ends.
pub struct Visible<'w>(pub &'w mut dyn std::io::Write);

impl std::io::Write for Visible<'_> {
    fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
        for line in bytes.split_inclusive(|byte| *byte == b'\n') {
            let text = line.strip_suffix(b"\n");
            self.0.write_all(visible(text.unwrap_or(line)).as_bytes())?;
            if text.is_some() {
                self.0.write_all(b"\n")?;
            }
        }
        Ok(bytes.len())
    }

    fn flush(&mut self) -> std::io::Result<()> {
        self.0.flush()
    }
}

/// True for characters that change how other characters are displayed, or are invisible: direction marks, joiners,
/// line separators.
pub fn is_invisible(each: char) -> bool {
    matches!(
        each,
        '\u{ad}'
            | '\u{61c}'
            | '\u{200b}'..='\u{200f}'
            | '\u{2028}'..='\u{202e}'
            | '\u{2060}'..='\u{206f}'
            | '\u{feff}'
            | '\u{fff9}'..='\u{fffb}'
            | '\u{e0000}'..='\u{e007f}'
    )
}

#[cfg(test)]
mod tests;
