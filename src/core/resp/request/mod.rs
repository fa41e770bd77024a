//! Requests in a connection's read buffer: arrays of bulk strings, and inline commands.
//!
//! The parser is incremental and copies nothing: an argument is a [`Span`] of the read buffer. For an incomplete
//! request the [`Parser`] keeps the spans of complete arguments, so that continuing costs no more than the new
//! bytes, however large the request. Nothing is reserved for a length that a client merely claims: memory grows
//! with the received bytes.
//!
//! A long incomplete argument may leave the read buffer for a block of its own ([`Parser::begin_block`]), into
//! which the socket writes the rest of it and which a command can store as it is. The request continues in the read
//! buffer as if the argument were not there.
//!
//! ```text
//! *3\r\n$3\r\nSET\r\n$3\r\nkey\r\n$100000\r\n | \r\n        the read buffer
//!                                       └ 100,000 bytes, in a block
//! ```
//!
//! The module knows nothing of commands, sockets and connections. The parser is as strict, and as lax, as Redis:
//! lengths are canonical decimal numbers; the two bytes after an argument and the byte after a `\r` are skipped
//! without a check. Three deliberate differences: whether a line is too long depends only on the line, never on how
//! the network split it, so the same bytes always give the same requests; a zero byte in a line is an ordinary byte
//! (Redis no longer finds the end of such a line); and a single request of 2 GiB is rejected.

mod long;

use std::fmt;

use memchr::memchr;

use crate::base::number::parse_i64;
use crate::base::text::split_arguments;
use crate::structures::block::{Content, SharedBlock};
use long::Long;

/// Appends a request to another server.
pub fn append<A: AsRef<[u8]>>(out: &mut Vec<u8>, arguments: &[A]) {
    out.extend_from_slice(format!("*{}\r\n", arguments.len()).as_bytes());
    for argument in arguments {
        let argument = argument.as_ref();
        out.extend_from_slice(format!("${}\r\n", argument.len()).as_bytes());
        out.extend_from_slice(argument);
        out.extend_from_slice(b"\r\n");
    }
}

/// One argument: a range of the buffer that was given to [`Parser::parse`], or a reference to the [`Arena`] that
/// belongs to the buffer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Span {
    /// Offset of the first byte in the buffer. With the highest bit set, an offset in [`Arena::unescaped`]; with the
    /// two highest bits set, an index of [`Arena::blocks`].
    start: u32,
    /// Number of bytes of the argument.
    len: u32,
}

/// The bit of [`Span::start`] that marks an argument outside of the buffer.
const BESIDE: u32 = 1 << 31;

/// The bits of [`Span::start`] that mark an argument in a block.
const IN_BLOCK: u32 = BESIDE | 1 << 30;

/// Maximum offset of a span. A single request this long is rejected.
const OFFSET_MAX: usize = BESIDE as usize - 1;

/// Maximum number of spans whose memory is kept for later requests.
const SPANS_KEPT_MAX: usize = 16 * 1024;

/// Maximum bytes of inline arguments whose memory is kept.
const UNESCAPED_KEPT_MAX: usize = 64 * 1024;

/// Maximum number of block handles whose memory is kept.
const BLOCKS_KEPT_MAX: usize = 64;

impl Span {
    /// Creates a span of the buffer.
    pub fn in_buffer(start: usize, len: usize) -> Span {
        debug_assert!(start + len <= OFFSET_MAX);
        Span {
            start: start as u32,
            len: len as u32,
        }
    }

    /// Creates a span for an argument in a block.
    fn in_block(index: usize, len: usize) -> Span {
        Span {
            start: index as u32 | IN_BLOCK,
            len: len as u32,
        }
    }

    /// Returns the number of bytes.
    #[inline]
    pub fn len(self) -> usize {
        self.len as usize
    }

    /// True if there are no bytes.
    pub fn is_empty(self) -> bool {
        self.len == 0
    }

    /// Returns the offset of the first byte in the buffer, if the argument is in it.
    #[inline]
    pub fn start(self) -> Option<usize> {
        (self.start & BESIDE == 0).then_some(self.start as usize)
    }

    /// Returns the index of the block, if the argument is one.
    #[inline]
    pub fn block(self) -> Option<usize> {
        (self.start & IN_BLOCK == IN_BLOCK).then_some((self.start & !IN_BLOCK) as usize)
    }

    /// Returns the argument itself, given the parsed buffer and its arena.
    #[inline]
    pub fn bytes<'a>(self, buf: &'a [u8], arena: &'a Arena) -> &'a [u8] {
        if self.start & BESIDE == 0 {
            let start = self.start as usize;
            &buf[start..start + self.len as usize]
        } else {
            arena.content(self).bytes()
        }
    }

    /// Returns the argument in the form to be stored: with its block if it is in one.
    #[inline]
    pub fn content<'a>(self, buf: &'a [u8], arena: &'a Arena) -> Content<'a> {
        if self.start & BESIDE == 0 {
            let start = self.start as usize;
            Content::from(&buf[start..start + self.len as usize])
        } else {
            arena.content(self)
        }
    }
}

/// Arguments outside of the parsed buffer.
#[derive(Clone, Debug, Default)]
pub struct Arena {
    /// The arguments of inline commands, with quotes and escapes resolved.
    pub unescaped: Vec<u8>,
    /// Long arguments, in blocks of their own.
    pub blocks: Vec<SharedBlock>,
}

/// An empty arena, for a buffer that contains all arguments.
pub static NOTHING_BESIDE: Arena = Arena {
    unescaped: Vec::new(),
    blocks: Vec::new(),
};

impl Arena {
    #[cold]
    fn content(&self, span: Span) -> Content<'_> {
        match span.block() {
            Some(index) => Content::from(&self.blocks[index]),
            None => {
                let start = (span.start & !BESIDE) as usize;
                Content::from(&self.unescaped[start..start + span.len as usize])
            }
        }
    }

    /// Adds a block. Returns its span.
    pub fn push(&mut self, block: SharedBlock) -> Span {
        let span = Span::in_block(self.blocks.len(), block.len());
        self.blocks.push(block);
        span
    }

    /// Returns the bytes allocated for the arena.
    pub fn memory_bytes(&self) -> usize {
        let handles = self.blocks.capacity() * size_of::<SharedBlock>();
        let blocks = self.blocks.iter().map(SharedBlock::memory_bytes);
        self.unescaped.capacity() + handles + blocks.sum::<usize>()
    }

    fn clear(&mut self) {
        self.unescaped.clear();
        if self.unescaped.capacity() > UNESCAPED_KEPT_MAX {
            self.unescaped.shrink_to(UNESCAPED_KEPT_MAX);
        }
        if !self.blocks.is_empty() {
            self.blocks.clear();
            self.blocks.shrink_to(BLOCKS_KEPT_MAX);
        }
    }
}

/// One complete request: its arguments are `spans[first..first + count]` of the [`Requests`] that contain it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Frame {
    /// Index of the request's first span.
    pub first: u32,
    /// Number of the request's arguments, at least 1.
    pub count: u32,
    /// Offset in the buffer just after the request.
    pub end: u32,
}

/// The requests found in one buffer, reused from batch to batch.
#[derive(Clone, Debug, Default)]
pub struct Requests {
    /// The arguments of all requests, in order.
    pub spans: Vec<Span>,
    /// The requests, in order.
    pub requests: Vec<Frame>,
    /// Arguments outside of the buffer.
    pub arena: Box<Arena>,
}

impl Requests {
    /// Returns the bytes of memory for the requests and the positions of their arguments.
    #[must_use]
    pub fn memory_bytes(&self) -> usize {
        self.spans.capacity() * size_of::<Span>()
            + self.requests.capacity() * size_of::<Frame>()
            + size_of::<Arena>()
            + self.arena.memory_bytes()
    }

    /// Removes all requests; keeps the memory, unless an unusual batch made it large.
    pub fn clear(&mut self) {
        self.spans.clear();
        self.requests.clear();
        self.arena.clear();
        if self.spans.capacity() > SPANS_KEPT_MAX {
            self.spans.shrink_to(SPANS_KEPT_MAX);
        }
    }

    /// Returns the argument `spans[index]`, where `buf` is the buffer that was parsed.
    #[inline]
    pub fn argument<'a>(&'a self, buf: &'a [u8], index: usize) -> &'a [u8] {
        self.spans[index].bytes(buf, &self.arena)
    }

    /// Returns the spans of `request`.
    #[inline]
    pub fn spans_of(&self, request: Frame) -> &[Span] {
        &self.spans[request.first as usize..][..request.count as usize]
    }

    /// Returns the arguments of `request`, where `buf` is the buffer that was parsed.
    pub fn arguments<'a>(
        &'a self,
        buf: &'a [u8],
        request: Frame,
    ) -> impl ExactSizeIterator<Item = &'a [u8]> {
        self.spans_of(request)
            .iter()
            .map(move |span| span.bytes(buf, &self.arena))
    }
}

/// The limits for requests of a client.
#[derive(Clone, Copy, Debug)]
pub struct RequestLimits {
    /// Maximum length of an argument (`proto-max-bulk-len`); arguments of up to 99 bytes are always accepted.
    pub bulk_len_max: u64,
    /// Maximum bytes of the unread part of a request (`client-query-buffer-limit`), which includes an argument and
    /// its line end.
    pub query_bytes_max: u64,
    /// Maximum length of a line: an inline command, or the line of a count or length.
    pub inline_len_max: usize,
    /// False for clients that have yet to authenticate: they are limited to 10 arguments of at most 16 KiB.
    pub authenticated: bool,
}

impl Default for RequestLimits {
    fn default() -> Self {
        Self {
            bulk_len_max: 512 << 20,
            query_bytes_max: 1 << 30,
            inline_len_max: 64 << 10,
            authenticated: true,
        }
    }
}

const LINE_END_BYTES: u64 = 2;
const UNAUTHENTICATED_COUNT_MAX: i64 = 10;
const UNAUTHENTICATED_BULK_LEN_MAX: i64 = 16 * 1024;

/// Error: the bytes violate the protocol. Reply [`ProtocolError::text`] once and close the connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ProtocolError {
    /// The line of a count is too long.
    CountLineTooLong,
    /// The line of a length is too long.
    LengthLineTooLong,
    /// An inline command is too long.
    InlineTooLong,
    /// The count of arguments is not a number, or too large.
    InvalidCount,
    /// The length of an argument is not a number, negative, or too large.
    InvalidLength,
    /// An unexpected byte, given here, instead of the `$` of an argument.
    ExpectedBulk(u8),
    /// Unclosed quotes in an inline command.
    UnbalancedQuotes,
    /// Too many arguments before authentication.
    UnauthenticatedCount,
    /// An argument too long before authentication.
    UnauthenticatedLength,
    /// A single request has 2 GiB. (Redis has no such limit, but a query buffer limit of 1 GiB.)
    RequestTooLong,
    /// An argument beyond the query buffer limit; Redis closes the connection without a reply.
    QueryTooLong,
}

impl ProtocolError {
    /// Returns the error reply, without the leading `-` and the line end. An unexpected byte in place of a `$` is
    /// included unchanged, so this need not be UTF-8.
    #[cold]
    pub fn text(self) -> Vec<u8> {
        let mut text = b"ERR Protocol error: ".to_vec();
        let rest: &[u8] = match self {
            Self::CountLineTooLong => b"too big mbulk count string",
            Self::LengthLineTooLong => b"too big bulk count string",
            Self::InlineTooLong => b"too big inline request",
            Self::InvalidCount => b"invalid multibulk length",
            Self::InvalidLength => b"invalid bulk length",
            Self::ExpectedBulk(_) => b"expected '$', got '",
            Self::UnbalancedQuotes => b"unbalanced quotes in request",
            Self::UnauthenticatedCount => b"unauthenticated multibulk length",
            Self::UnauthenticatedLength => b"unauthenticated bulk length",
            Self::RequestTooLong | Self::QueryTooLong => b"too big request",
        };
        text.extend_from_slice(rest);
        if let Self::ExpectedBulk(byte) = self {
            text.extend_from_slice(&[
                if matches!(byte, b'\r' | b'\n') {
                    b' '
                } else {
                    byte
                },
                b'\'',
            ]);
        }
        text
    }
}

impl fmt::Display for ProtocolError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&String::from_utf8_lossy(&self.text()))
    }
}

impl std::error::Error for ProtocolError {}

/// The state of parsing one incomplete request.
///
/// ```text
/// *3\r\n$3\r\nSET\r\n$3\r\nkey\r\n$100000\r\nvalu
/// └ offset 0             spans: SET, key  │└ header_len: 9 (wants: what is left of the value)
///                                         └ position (missing: 1)
/// ```
#[derive(Debug, Default)]
pub struct Parser {
    /// The complete arguments of the request.
    spans: Vec<Span>,
    /// Long arguments of the request, if it has any.
    long: Option<Box<Long>>,
    /// Offset of the next argument: of its header, or, once the argument has been moved to a block, of the line end
    /// after it.
    position: u32,
    /// Number of arguments not parsed yet; 0 when no request has begun.
    missing: u32,
    /// Bytes of the header at `position`, 0 if it is incomplete.
    header_len: u32,
    /// Bytes still to be received for the argument at `position`, 0 if unknown.
    wants: u32,
}

const _: () = assert!(size_of::<Parser>() == 48);

/// The result of reading the arguments of one request.
enum ParseProgress {
    /// The request is complete and ends at this offset.
    Complete(usize),
    /// More bytes are needed.
    Incomplete(Missing),
}

/// The part of a request that is still to be received.
struct Missing {
    /// Offset of the header of the current argument.
    position: usize,
    /// Number of arguments not parsed yet.
    missing: u32,
    /// Bytes of the header at `position`, 0 if it is incomplete.
    header_len: usize,
    /// Offset at which the argument ends, as far as known.
    end: usize,
}

/// A count or a length with its line end.
enum Number {
    /// The line is incomplete.
    Incomplete,
    /// The value, and the offset after the line.
    Read(i64, usize),
}

impl Parser {
    /// Appends up to `count_max` more complete requests in `buf` to `into`. Returns the bytes consumed, including
    /// empty lines and empty arrays, which do not count as requests.
    ///
    /// `buf` must begin at the first byte of the first unfinished request: after each call the caller drops the
    /// bytes consumed, appends new ones and calls again. The spans refer to `buf` as it was given.
    ///
    /// An error is returned by a call of its own: requests before the error are returned first, so that they can be
    /// run, and the next call returns the error. (The next call may have other limits, as AUTH may have been among
    /// those requests.) So only `Ok(0)` means that everything readable has been read.
    pub fn parse(
        &mut self,
        buf: &[u8],
        limits: &RequestLimits,
        count_max: usize,
        into: &mut Requests,
    ) -> Result<usize, ProtocolError> {
        let buf = &buf[..buf.len().min(OFFSET_MAX)];
        let mut start = 0;
        let requests_max = into.requests.len() + count_max;
        if self.missing > 0 && count_max > 0 {
            match self.resume(buf, limits, into)? {
                Some(end) => start = end,
                None => return Ok(0),
            }
        }
        let mut found = start > 0;
        while start < buf.len() && into.requests.len() < requests_max {
            let first = into.spans.len();
            match self.request(buf, start, limits, into) {
                Ok(Some(end)) => {
                    found |= into.spans.len() > first;
                    start = end;
                }
                Ok(None) => break,
                Err(error) => {
                    into.spans.truncate(first);
                    return if found { Ok(start) } else { Err(error) };
                }
            }
        }
        Ok(start)
    }

    /// Returns the bytes still missing for the current argument, with its line end; 0 if unknown. A hint for the
    /// next read: the client claimed this length and may never send it.
    pub fn wants(&self) -> usize {
        match &self.long {
            Some(long) => long.wants().unwrap_or(self.wants as usize),
            None => self.wants as usize,
        }
    }

    /// Returns how many bytes of `buf`, in which the last call found no further complete request, have been parsed:
    /// the complete arguments of a request, and the header of the current one.
    pub fn read_len(&self, buf: &[u8]) -> usize {
        match self.missing {
            0 => 0,
            _ => (self.position as usize + self.header_len as usize).min(buf.len()),
        }
    }

    /// True if an incomplete request has begun to arrive (unknown for incomplete lines).
    pub fn is_inside_request(&self) -> bool {
        self.missing > 0
    }

    /// Reads one request at `start`. Returns the offset of its end, or None if it is incomplete.
    #[inline]
    fn request(
        &mut self,
        buf: &[u8],
        start: usize,
        limits: &RequestLimits,
        into: &mut Requests,
    ) -> Result<Option<usize>, ProtocolError> {
        if buf[start] != b'*' {
            return inline(buf, start, limits, into);
        }
        let (count, position) = match short_number(buf, start, b'*') {
            Some(read) => read,
            None => match line_number(buf, start, limits, ProtocolError::CountLineTooLong)? {
                Number::Incomplete => return Ok(None),
                Number::Read(count, next) if count <= i64::from(i32::MAX) => (count, next),
                Number::Read(..) => return Err(ProtocolError::InvalidCount),
            },
        };
        if count > UNAUTHENTICATED_COUNT_MAX && !limits.authenticated {
            return Err(ProtocolError::UnauthenticatedCount);
        }
        if count <= 0 {
            return Ok(Some(position));
        }
        let count = count as u32;
        let first = into.spans.len();
        match arguments(buf, position, count, limits, &mut into.spans)? {
            ParseProgress::Complete(end) => {
                into.requests.push(Frame {
                    first: first as u32,
                    count,
                    end: end as u32,
                });
                Ok(Some(end))
            }
            ParseProgress::Incomplete(mut missing) => {
                if start == 0 && missing.end > OFFSET_MAX {
                    return Err(ProtocolError::RequestTooLong);
                }
                // The next buffer begins at the start of this request.
                let back = start as u32;
                let finished = into.spans.drain(first..);
                self.spans.extend(finished.map(|s| Span {
                    start: s.start - back,
                    len: s.len,
                }));
                missing.position -= start;
                missing.end -= start;
                self.stop(&missing, buf.len() - start);
                Ok(None)
            }
        }
    }

    /// Continues the request at the beginning of `buf`. An error leaves the state unchanged.
    #[cold]
    fn resume(
        &mut self,
        buf: &[u8],
        limits: &RequestLimits,
        into: &mut Requests,
    ) -> Result<Option<usize>, ProtocolError> {
        if !self.end_block(buf) {
            return Ok(None);
        }
        let finished = self.spans.len();
        let (position, missing) = (self.position as usize, self.missing);
        let progress = arguments(buf, position, missing, limits, &mut self.spans);
        let moved = self.long.as_ref().map_or(0, |long| long.len);
        match progress {
            Ok(ParseProgress::Complete(end)) => {
                self.hand_over(end, into);
                Ok(Some(end))
            }
            Ok(ParseProgress::Incomplete(missing)) if missing.end + moved <= OFFSET_MAX => {
                self.stop(&missing, buf.len());
                Ok(None)
            }
            other => {
                self.spans.truncate(finished);
                Err(other.err().unwrap_or(ProtocolError::RequestTooLong))
            }
        }
    }

    /// Appends the request, which is complete and ends at this offset, to the requests found.
    fn hand_over(&mut self, end: usize, into: &mut Requests) {
        let first = into.spans.len() as u32;
        let count = self.spans.len() as u32;
        if let Some(long) = self.long.take() {
            let before = into.arena.blocks.len() as u32;
            for span in &mut self.spans {
                span.start += if span.block().is_some() { before } else { 0 };
            }
            into.arena.blocks.extend(long.blocks);
        }
        into.spans.append(&mut self.spans);
        into.requests.push(Frame {
            first,
            count,
            end: end as u32,
        });
        self.spans.shrink_to(SPANS_KEPT_MAX);
        (self.position, self.missing) = (0, 0);
        (self.header_len, self.wants) = (0, 0);
    }

    /// Stores the state of an incomplete request that begins a buffer of this length.
    fn stop(&mut self, missing: &Missing, buf_len: usize) {
        self.position = missing.position as u32;
        self.missing = missing.missing;
        self.header_len = missing.header_len as u32;
        let wants = missing.end.saturating_sub(buf_len);
        self.wants = u32::try_from(wants).unwrap_or(u32::MAX);
    }
}

/// Parses `missing` arguments, starting at `position`, into `spans`.
#[inline(always)]
fn arguments(
    buf: &[u8],
    mut position: usize,
    mut missing: u32,
    limits: &RequestLimits,
    spans: &mut Vec<Span>,
) -> Result<ParseProgress, ProtocolError> {
    while missing > 0 {
        let (len, data) = match short_number(buf, position, b'$') {
            Some((len, data)) => (len as usize, data),
            None => match bulk_length(buf, position, limits)? {
                Some(read) => read,
                None => {
                    return Ok(ParseProgress::Incomplete(Missing {
                        position,
                        missing,
                        header_len: 0,
                        end: position,
                    }));
                }
            },
        };
        // Two bytes follow an argument. As in Redis, they are not checked; clients may depend on that.
        let end = data + len + 2;
        if end > buf.len() {
            return Ok(ParseProgress::Incomplete(Missing {
                position,
                missing,
                header_len: data - position,
                end,
            }));
        }
        spans.push(Span {
            start: data as u32,
            len: len as u32,
        });
        position = end;
        missing -= 1;
    }
    Ok(ParseProgress::Complete(position))
}

/// Parses the header of an argument whose length has more than two digits, is incomplete or invalid.
#[inline(never)]
fn bulk_length(
    buf: &[u8],
    position: usize,
    limits: &RequestLimits,
) -> Result<Option<(usize, usize)>, ProtocolError> {
    // Redis waits for the whole line before it checks the first byte.
    let number = line_number(buf, position, limits, ProtocolError::LengthLineTooLong);
    match number {
        Ok(Number::Incomplete) => Ok(None),
        Err(ProtocolError::LengthLineTooLong) => Err(ProtocolError::LengthLineTooLong),
        _ if buf[position] != b'$' => Err(ProtocolError::ExpectedBulk(buf[position])),
        Ok(Number::Read(len, data)) => {
            if len < 0 || len as u64 > limits.bulk_len_max {
                Err(ProtocolError::InvalidLength)
            } else if len > UNAUTHENTICATED_BULK_LEN_MAX && !limits.authenticated {
                Err(ProtocolError::UnauthenticatedLength)
            } else if len as u64 + LINE_END_BYTES > limits.query_bytes_max {
                Err(ProtocolError::QueryTooLong)
            } else {
                // Limited to a length that is rejected anyway, so that no offset overflows.
                Ok(Some(((len as u64).min(OFFSET_MAX as u64) as usize, data)))
            }
        }
        Err(_) => Err(ProtocolError::InvalidLength),
    }
}

/// Returns a canonical number of one or two digits after `kind`, which nearly all counts and lengths are, and the
/// offset after its line. `None` only means that `line_number` must examine the line.
#[inline(always)]
fn short_number(buf: &[u8], position: usize, kind: u8) -> Option<(i64, usize)> {
    // These five bytes exist whenever the argument does: the shortest is `$0` and twice a line end.
    let [first, tens, ones, third, _] = *buf.get(position..)?.first_chunk()?;
    let tens = tens.wrapping_sub(b'0');
    if first != kind || tens > 9 {
        return None;
    }
    if ones == b'\r' {
        return Some((i64::from(tens), position + 4));
    }
    let ones = ones.wrapping_sub(b'0');
    if third != b'\r' || ones > 9 || tens == 0 {
        return None;
    }
    Some((i64::from(tens) * 10 + i64::from(ones), position + 5))
}

/// Returns the number between the first byte at `position` and the line end. The byte after the `\r` is skipped.
#[inline(never)]
fn line_number(
    buf: &[u8],
    position: usize,
    limits: &RequestLimits,
    too_long: ProtocolError,
) -> Result<Number, ProtocolError> {
    let rest = &buf[position..];
    let window = &rest[..rest.len().min(limits.inline_len_max + 1)];
    let Some(line_len) = memchr(b'\r', window) else {
        return if rest.len() > limits.inline_len_max {
            Err(too_long)
        } else {
            Ok(Number::Incomplete)
        };
    };
    if line_len + 1 >= rest.len() {
        return Ok(Number::Incomplete);
    }
    // An empty line has no first byte to be skipped.
    let digits = rest.get(1..line_len).unwrap_or_default();
    let value = parse_i64(digits).ok_or(ProtocolError::InvalidCount)?;
    Ok(Number::Read(value, position + line_len + 2))
}

/// Parses a request that is a line of words.
#[cold]
fn inline(
    buf: &[u8],
    start: usize,
    limits: &RequestLimits,
    into: &mut Requests,
) -> Result<Option<usize>, ProtocolError> {
    let rest = &buf[start..];
    let window = &rest[..rest.len().min(limits.inline_len_max + 1)];
    let Some(line_len) = memchr(b'\n', window) else {
        return if rest.len() > limits.inline_len_max {
            Err(ProtocolError::InlineTooLong)
        } else {
            Ok(None)
        };
    };
    let line = &rest[..line_len];
    let line = line.strip_suffix(b"\r").unwrap_or(line);
    let end = start + line_len + 1;
    let first = into.spans.len();
    let Requests {
        spans,
        requests,
        arena,
    } = into;
    let unescaped = &mut arena.unescaped;
    let unescaped_len = unescaped.len();
    let split = split_arguments(line, unescaped, |range| {
        spans.push(Span {
            start: range.start as u32 | BESIDE,
            len: range.len() as u32,
        });
    });
    if split.is_err() {
        unescaped.truncate(unescaped_len);
        return Err(ProtocolError::UnbalancedQuotes);
    }
    let count = (spans.len() - first) as u32;
    if count > 0 {
        requests.push(Frame {
            first: first as u32,
            count,
            end: end as u32,
        });
    }
    Ok(Some(end))
}

#[cfg(test)]
mod tests;
