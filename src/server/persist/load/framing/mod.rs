//! Finds where the commands of an append-only file begin and end. Commands are not run or looked up here.
//!
//! ```text
//! command   "*" count CRLF ( "$" length CRLF bytes CRLF ) …
//! line      "#" anything LF, which is not a command
//! ```

use std::io::{self, Read};
use std::ops::Range;

use basalt_core::resp::request::Span;

/// Bytes read from the file at a time.
const READ_BYTES: usize = 256 * 1024;

/// Maximum length of an annotation line.
const LINE_BYTES_MAX: usize = 1024;

/// Maximum number of arguments of a command, and of bytes of an argument.
const COUNT_MAX: u64 = i32::MAX as u64;

/// Maximum length of a command, and of the commands that can be run together.
pub(super) const COMMAND_BYTES_MAX: usize = match cfg!(test) {
    true => 1024 * 1024,
    false => i32::MAX as usize,
};

/// Reason why no command follows.
#[derive(Debug)]
pub(super) enum CommandFramingError {
    /// Reading the file failed.
    Read(io::Error),
    /// The file ends within a command, or with zeros in place of the rest of a command or after the last
    /// command, as after a power loss.
    Short,
    /// The next bytes are not a command, or too long for one.
    Format,
}

/// A file being read.
pub(super) struct CommandFileReader<'s> {
    from: &'s mut dyn Read,
    /// Buffer: the data read, up to `end`, of which the first `at` bytes were returned as commands; then free
    /// space.
    bytes: Vec<u8>,
    at: usize,
    end: usize,
    /// The positions of the last command's arguments within the command.
    spans: Vec<Span>,
    /// Offset in the file of the first byte of `bytes`.
    before: u64,
    has_ended: bool,
}

/// Classification of a buffer's beginning.
#[derive(Debug, PartialEq, Eq)]
enum AofFrameKind {
    /// A command of this many bytes.
    Command(usize),
    /// An annotation line of this many bytes.
    Line(usize),
    /// An incomplete command or line of at least this many bytes.
    Part(usize),
    /// Bytes that begin neither a command nor an annotation line, or a line longer than `LINE_BYTES_MAX`.
    Neither,
}

impl<'s> CommandFileReader<'s> {
    /// Reads commands from `begun`, whose first byte is at offset `before` of the file, and then from `from`.
    pub(super) fn new(
        from: &'s mut dyn Read,
        begun: Vec<u8>,
        before: u64,
    ) -> CommandFileReader<'s> {
        CommandFileReader {
            from,
            end: begun.len(),
            bytes: begun,
            at: 0,
            spans: Vec::new(),
            before,
            has_ended: false,
        }
    }

    /// Returns the offset of the next command.
    pub(super) fn offset(&self) -> u64 {
        self.before + self.at as u64
    }

    /// Returns the bytes of a command returned by the last call of [`CommandFileReader::next`].
    pub(super) fn bytes(&self, place: Range<usize>) -> &[u8] {
        &self.bytes[place]
    }

    /// Returns the positions of the last command's arguments within the command.
    pub(super) fn spans(&self) -> &[Span] {
        &self.spans
    }

    /// Returns the next command, valid until the following call; `None` at the end.
    pub(super) fn next(&mut self) -> Result<Option<Range<usize>>, CommandFramingError> {
        loop {
            let needed = match see(&self.bytes[self.at..self.end], &mut self.spans) {
                AofFrameKind::Command(len) if len > COMMAND_BYTES_MAX => {
                    return Err(CommandFramingError::Format);
                }
                AofFrameKind::Command(len) => {
                    let place = self.at..self.at + len;
                    self.at += len;
                    return Ok(Some(place));
                }
                AofFrameKind::Line(len) => {
                    self.at += len;
                    continue;
                }
                AofFrameKind::Part(needed) => needed,
                AofFrameKind::Neither if self.ends_in_zeros()? => {
                    return Err(CommandFramingError::Short);
                }
                AofFrameKind::Neither => return Err(CommandFramingError::Format),
            };
            if self.has_ended {
                return match self.end > self.at {
                    true => Err(CommandFramingError::Short),
                    false => Ok(None),
                };
            }
            self.read(needed).map_err(CommandFramingError::Read)?;
        }
    }

    /// Discards the commands already returned, and reads until at least `needed` bytes are there or the file
    /// ends.
    fn read(&mut self, needed: usize) -> io::Result<()> {
        self.bytes.copy_within(self.at..self.end, 0);
        self.before += self.at as u64;
        self.end -= self.at;
        self.at = 0;
        let len = self.end;
        // Long commands are scanned repeatedly while they arrive, so each read is larger; but never larger than the
        // data already received justifies.
        let more = needed
            .saturating_sub(len)
            .clamp(READ_BYTES, len.max(READ_BYTES));
        if self.bytes.len() < len + more {
            self.bytes.resize(len + more, 0);
        }
        let got = loop {
            match self.from.read(&mut self.bytes[len..len + more]) {
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                got => break got,
            }
        };
        let got = got?;
        self.end += got;
        self.has_ended = got == 0;
        Ok(())
    }

    /// Returns whether the rest of the file, from a partial command or after the last command, consists of
    /// zeros. Reads the file to its end, so nothing can be read afterwards.
    fn ends_in_zeros(&mut self) -> Result<bool, CommandFramingError> {
        let offset = self.offset();
        let rest = &self.bytes[self.at..self.end];
        let last = rest.iter().rposition(|byte| *byte != 0);
        let part = &rest[..last.map_or(0, |last| last + 1)];
        let mut ends =
            part.len() < rest.len() && matches!(see(part, &mut self.spans), AofFrameKind::Part(_));
        while ends && !self.has_ended {
            self.at = self.end;
            self.read(READ_BYTES).map_err(CommandFramingError::Read)?;
            ends = self.bytes[self.at..self.end].iter().all(|byte| *byte == 0);
        }
        (self.before, self.at, self.end) = (offset, 0, 0);
        Ok(ends)
    }
}

fn see(bytes: &[u8], spans: &mut Vec<Span>) -> AofFrameKind {
    match bytes.first() {
        None => AofFrameKind::Part(1),
        Some(b'*') => see_command(bytes, spans),
        Some(b'#') => match memchr::memchr(b'\n', &bytes[..bytes.len().min(LINE_BYTES_MAX)]) {
            Some(end) => AofFrameKind::Line(end + 1),
            None if bytes.len() >= LINE_BYTES_MAX => AofFrameKind::Neither,
            None => AofFrameKind::Part(bytes.len() + 1),
        },
        Some(_) => AofFrameKind::Neither,
    }
}

fn see_command(bytes: &[u8], spans: &mut Vec<Span>) -> AofFrameKind {
    spans.clear();
    let (count, mut at) = match number(bytes, 0) {
        Ok(Some((count, at))) if count > 0 => (count, at),
        Ok(Some(_)) | Err(()) => return AofFrameKind::Neither,
        Ok(None) => return AofFrameKind::Part(bytes.len() + 1),
    };
    for _ in 0..count {
        match bytes.get(at) {
            Some(b'$') => {}
            Some(_) => return AofFrameKind::Neither,
            None => return AofFrameKind::Part(at + 1),
        }
        let (len, from) = match number(bytes, at) {
            Ok(Some((len, from))) => (len as usize, from),
            Ok(None) => return AofFrameKind::Part(bytes.len() + 1),
            Err(()) => return AofFrameKind::Neither,
        };
        let end = from + len;
        at = end + 2;
        match bytes.get(end..at) {
            Some(b"\r\n") => {}
            Some(_) => return AofFrameKind::Neither,
            None => return AofFrameKind::Part(at),
        }
        if end <= COMMAND_BYTES_MAX {
            spans.push(Span::in_buffer(from, len));
        }
    }
    AofFrameKind::Command(at)
}

/// Returns the number after the type byte at `mark_at`, and the start of the next line; `None` if the line is
/// incomplete.
fn number(bytes: &[u8], mark_at: usize) -> Result<Option<(u64, usize)>, ()> {
    let digits = bytes.get(mark_at + 1..).unwrap_or_default();
    let (mut number, mut count) = (0, 0);
    while let Some(digit @ b'0'..=b'9') = digits.get(count) {
        number = number * 10 + u64::from(digit - b'0');
        if number > COUNT_MAX {
            return Err(());
        }
        count += 1;
    }
    match &digits[count..] {
        [b'\r', b'\n', ..] if count > 0 => Ok(Some((number, mark_at + count + 3))),
        [] => Ok(None),
        [b'\r'] if count > 0 => Ok(None),
        _ => Err(()),
    }
}

#[cfg(test)]
mod tests;
