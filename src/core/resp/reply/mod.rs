//! Replies as bytes, in RESP2 and RESP3: the output of one connection, or of one command.
//!
//! Handlers write values by type (a map, a null, a double), and [`Out`] encodes them in the protocol of the
//! connection. Large values are added as shared blocks and never copied. Knows nothing of commands and sockets.
//!
//! The output is one byte vector, interrupted at some offsets by blocks:
//!
//! ```text
//! bytes   $3\r\nfoo\r\n$20000\r\n|\r\n:1\r\n
//!                                └ blocks[0] is sent here
//! ```
//!
//! A vector that has become long is sealed: it becomes a block itself, and another one is begun. So however long a
//! reply gets, none of it is ever copied to a larger buffer, and the memory of sent data is freed at once.

pub mod frames;
mod sending;

use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};

use bytes::Bytes;

use crate::base::number::F64Buffer;

/// The protocol version of a connection (HELLO).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Protocol {
    /// The initial version of every client.
    #[default]
    Resp2,
    /// Adds maps, sets, doubles, nulls and pushes.
    Resp3,
}

impl Protocol {
    /// Returns the number used by HELLO.
    pub fn version(self) -> u8 {
        match self {
            Protocol::Resp2 => 2,
            Protocol::Resp3 => 3,
        }
    }
}

/// Values of at least this length are sent from their own memory instead of being copied.
pub const SHARED_LEN_MIN: usize = 16 * 1024;

/// Maximum bytes of a reply, with the unsent data before it; a longer one is aborted ([`Out::is_too_long`]).
static REPLY_BYTES_MAX: AtomicUsize = AtomicUsize::new(1 << 30);

/// Sets the maximum length of a reply (`proto-max-reply-len`), in bytes.
pub fn set_reply_bytes_max(bytes: u64) {
    REPLY_BYTES_MAX.store(usize::try_from(bytes).unwrap_or(usize::MAX), Relaxed);
}

/// Capacity beyond this is freed when the output has been sent.
const CAPACITY_KEPT_MAX: usize = 64 * 1024;

/// A growing sequence of replies, and how much of it has been sent.
#[derive(Debug, Default)]
pub struct Out {
    bytes: Vec<u8>,
    /// Blocks with the offsets in `bytes` before which they belong, ascending.
    blocks: Vec<(usize, Bytes)>,
    /// Bytes in all blocks.
    blocks_len: usize,
    /// The part that has been sent: an offset in `bytes`, whole blocks, and bytes of the next block.
    sent: usize,
    sent_blocks: usize,
    sent_of_block: usize,
    /// The part of `blocks_len` that has been sent.
    sent_blocks_len: usize,
    /// All bytes sent since the last [`Out::clear`].
    sent_total: usize,
    /// Number of times that the vector was sealed.
    seals: u32,
    errors: u32,
    protocol: Protocol,
    is_cut: bool,
    is_too_long: bool,
}

/// An aggregate that was begun without its length. It must be closed; of several, the last begun is closed first.
#[derive(Debug)]
#[must_use = "the reply is broken until the aggregate is closed"]
pub struct OpenAggregate(Position);

/// The reply that replaces the start of an aggregate.
#[derive(Debug)]
pub enum Filling {
    /// A number, written as an integer.
    Integer(usize),
    /// A reply that was written separately.
    Reply(Out),
}

/// A position in the output to return to.
#[derive(Clone, Copy, Debug)]
pub struct Position {
    /// Offset in the vector, valid while `seals` is unchanged.
    bytes: usize,
    seals: u32,
    /// Number of all bytes written before the position, sent or not.
    end: usize,
    errors: u32,
}

/// Length of the header that most aggregates have: kind, one digit, line end.
const HEADER_LEN: usize = 4;

/// Strings gathered piece by piece, without ever moving them: the elements of an array whose length is known at the
/// end.
#[derive(Debug, Default)]
pub struct Bulks {
    full: Vec<Bytes>,
    open: Vec<u8>,
    full_len: usize,
}

/// Bytes at which a piece is closed, or the vector is sealed.
const PIECE_LEN: usize = 64 * 1024;

/// The error that replaces a reply that is too long.
pub const TOO_LONG: &str = "ERR reply is longer than proto-max-reply-len";

/// Bytes for the length of a string and its line ends.
const FRAME_LEN: usize = 16;

/// A list of blocks that is longer than this is freed when the output has been sent.
const BLOCKS_KEPT_MAX: usize = 64;

impl Bulks {
    /// Adds a string as the next element.
    pub fn push(&mut self, string: &[u8]) {
        let mut buffer = itoa::Buffer::new();
        let length = buffer.format(string.len()).as_bytes();
        self.open.reserve(string.len() + length.len() + 5);
        self.open.push(b'$');
        self.open.extend_from_slice(length);
        self.open.extend_from_slice(b"\r\n");
        self.open.extend_from_slice(string);
        self.open.extend_from_slice(b"\r\n");
        if self.open.len() >= PIECE_LEN {
            let piece = std::mem::take(&mut self.open);
            self.full_len += piece.len();
            self.full.push(piece.into());
        }
    }

    /// Returns the total bytes of the strings in a reply.
    pub fn len_bytes(&self) -> usize {
        self.full_len + self.open.len()
    }
}

impl Out {
    /// Creates an empty output.
    pub fn new(protocol: Protocol) -> Self {
        Self {
            protocol,
            ..Self::default()
        }
    }

    /// Creates an empty output with capacity for `bytes` bytes.
    pub fn with_room(protocol: Protocol, bytes: usize) -> Self {
        let mut out = Out::new(protocol);
        out.bytes = Vec::with_capacity(bytes);
        out
    }

    /// Returns the protocol for later writes.
    pub fn protocol(&self) -> Protocol {
        self.protocol
    }

    /// Changes the protocol for later writes.
    pub fn set_protocol(&mut self, protocol: Protocol) {
        self.protocol = protocol;
    }

    /// True if the connection uses RESP3.
    #[inline]
    pub fn is_resp3(&self) -> bool {
        self.protocol == Protocol::Resp3
    }

    // Replies ------------------------------------------------------------------------------------------

    /// Writes `OK`.
    #[inline]
    pub fn ok(&mut self) {
        self.bytes.extend_from_slice(b"+OK\r\n");
    }

    /// Writes a status, which must not contain line ends.
    pub fn simple(&mut self, text: impl AsRef<[u8]>) {
        let text = text.as_ref();
        debug_assert!(
            memchr::memchr2(b'\r', b'\n', text).is_none(),
            "a status is one line"
        );
        self.line(b'+', text);
    }

    /// Writes an error: its code, a blank, a sentence. Line ends become blanks, or are dropped at the end.
    #[cold]
    pub fn error(&mut self, text: impl AsRef<[u8]>) {
        let mut text = text.as_ref();
        while let [before @ .., b'\r' | b'\n'] = text {
            text = before;
        }
        self.bytes.push(b'-');
        let one_line = text.iter().map(|byte| match byte {
            b'\r' | b'\n' => b' ',
            other => *other,
        });
        self.bytes.extend(one_line);
        self.bytes.extend_from_slice(b"\r\n");
        self.errors += 1;
    }

    /// Writes an integer.
    #[inline]
    pub fn integer(&mut self, value: i64) {
        self.header(b':', value);
    }

    /// Writes a bulk string.
    #[inline]
    pub fn bulk(&mut self, bytes: &[u8]) {
        // A single reservation, so that none of the three writes has to grow the vector.
        if self.bytes.capacity() - self.bytes.len() < bytes.len() + FRAME_LEN
            && !self.make_room(bytes.len() + FRAME_LEN)
        {
            return;
        }
        self.header(b'$', bytes.len() as i64);
        self.bytes.extend_from_slice(bytes);
        self.bytes.extend_from_slice(b"\r\n");
    }

    /// Writes the decimal text of an integer, as a string.
    pub fn bulk_integer(&mut self, value: i64) {
        self.bulk(itoa::Buffer::new().format(value).as_bytes());
    }

    /// Writes a string that is shared with its owner; from [`SHARED_LEN_MIN`] on it is not copied.
    pub fn bulk_shared(&mut self, value: Bytes) {
        if value.len() < SHARED_LEN_MIN {
            return self.bulk(&value);
        }
        self.header(b'$', value.len() as i64);
        self.block(value);
        self.bytes.extend_from_slice(b"\r\n");
    }

    /// Writes the strings that were gathered in `bulks`.
    pub fn bulks(&mut self, bulks: Bulks) {
        bulks.full.into_iter().for_each(|piece| self.block(piece));
        self.bytes.extend_from_slice(&bulks.open);
    }

    /// Writes the null of strings and of single values.
    #[inline]
    pub fn null(&mut self) {
        self.bytes.extend_from_slice(if self.is_resp3() {
            b"_\r\n"
        } else {
            b"$-1\r\n"
        });
    }

    /// Writes the null of arrays; RESP3 has only one kind of null.
    #[inline]
    pub fn null_array(&mut self) {
        self.bytes.extend_from_slice(if self.is_resp3() {
            b"_\r\n"
        } else {
            b"*-1\r\n"
        });
    }

    /// Writes the header of an array; `count` elements must follow.
    #[inline]
    pub fn array(&mut self, count: usize) {
        self.header(b'*', count as i64);
    }

    /// Writes the header of a map; `count` pairs must follow. In RESP2 it is an array of twice as many elements.
    pub fn map(&mut self, count: usize) {
        let (kind, count) = self.kind_of_map(count);
        self.header(kind, count as i64);
    }

    /// Writes the header of a set; `count` members must follow. In RESP2 it is an array.
    pub fn set(&mut self, count: usize) {
        self.header(self.kind_of_set(), count as i64);
    }

    /// Writes the header of a push; `count` elements must follow. In RESP2 it is an array.
    pub fn push(&mut self, count: usize) {
        self.header(if self.is_resp3() { b'>' } else { b'*' }, count as i64);
    }

    /// Writes the header of attributes, before the reply that they belong to; `count` pairs must follow. RESP2 has no
    /// attributes: check [`Out::is_resp3`] first.
    pub fn attribute(&mut self, count: usize) {
        debug_assert!(self.is_resp3(), "RESP2 has no attributes");
        self.header(b'|', count as i64);
    }

    /// Writes a double in the format of Redis. In RESP2 it is a string.
    pub fn double(&mut self, value: f64) {
        self.double_text(F64Buffer::default().format(value));
    }

    /// Writes a double that the caller has formatted, such as a coordinate. In RESP2 it is a string.
    pub fn double_text(&mut self, text: &[u8]) {
        if self.is_resp3() {
            self.line(b',', text);
        } else {
            self.bulk(text);
        }
    }

    /// Writes a Boolean. In RESP2 it is 1 or 0.
    pub fn boolean(&mut self, value: bool) {
        self.bytes.extend_from_slice(match (self.protocol, value) {
            (Protocol::Resp2, true) => b":1\r\n",
            (Protocol::Resp2, false) => b":0\r\n",
            (Protocol::Resp3, true) => b"#t\r\n",
            (Protocol::Resp3, false) => b"#f\r\n",
        });
    }

    /// Writes an integer of any length. In RESP2 it is a string.
    pub fn big_number(&mut self, digits: impl AsRef<[u8]>) {
        let digits = digits.as_ref();
        if self.is_resp3() {
            self.line(b'(', digits);
        } else {
            self.bulk(digits);
        }
    }

    /// Writes a text with its format, three bytes such as `txt` or `mkd`. In RESP2 it is a string.
    pub fn verbatim(&mut self, format: &str, text: impl AsRef<[u8]>) {
        debug_assert_eq!(format.len(), 3);
        let text = text.as_ref();
        if !self.is_resp3() {
            return self.bulk(text);
        }
        self.header(b'=', text.len() as i64 + 4);
        self.bytes.extend_from_slice(format.as_bytes());
        self.bytes.push(b':');
        self.bytes.extend_from_slice(text);
        self.bytes.extend_from_slice(b"\r\n");
    }

    /// Writes bytes that are already a reply, or part of one, in this protocol.
    pub fn raw(&mut self, bytes: &[u8]) {
        self.bytes.extend_from_slice(bytes);
    }

    // Lengths known afterwards -------------------------------------------------------------------------

    /// Begins an aggregate whose length is not known yet.
    pub fn later(&mut self) -> OpenAggregate {
        let mark = OpenAggregate(self.position());
        self.bytes.extend_from_slice(&[0; HEADER_LEN]);
        mark
    }

    /// Closes an array of `count` elements.
    pub fn close_array(&mut self, mark: OpenAggregate, count: usize) {
        self.close(mark, b'*', count);
    }

    /// Closes a map of `count` pairs.
    pub fn close_map(&mut self, mark: OpenAggregate, count: usize) {
        let (kind, count) = self.kind_of_map(count);
        self.close(mark, kind, count);
    }

    /// Closes a set of `count` members.
    pub fn close_set(&mut self, mark: OpenAggregate, count: usize) {
        self.close(mark, self.kind_of_set(), count);
    }

    /// Replaces the start of an aggregate by an integer, without an aggregate.
    pub fn close_integer(&mut self, mark: OpenAggregate, value: usize) {
        self.close(mark, b':', value);
    }

    /// Replaces the aggregate and its contents by a null array.
    pub fn close_null_array(&mut self, mark: OpenAggregate) {
        self.truncate(mark.0);
        self.null_array();
    }

    /// Replaces the starts of several aggregates, in any order.
    pub fn fill(&mut self, mut places: Vec<(OpenAggregate, Filling)>) {
        // From the last position to the first, as the bytes after a position move if the new header needs more space.
        places.sort_by_key(|(mark, _)| std::cmp::Reverse(mark.0.end));
        for (mark, filling) in places {
            match filling {
                Filling::Integer(value) => self.close_integer(mark, value),
                Filling::Reply(reply) => self.close_reply(mark, &reply),
            }
        }
    }

    fn close_reply(&mut self, mark: OpenAggregate, reply: &Out) {
        let mut slices = Vec::with_capacity(2 * reply.blocks.len() + 1);
        reply.io_slices(&mut slices);
        let bytes: Vec<u8> = slices.iter().flat_map(|slice| slice.to_vec()).collect();
        self.errors += reply.errors;
        self.close_with(mark.0, &bytes);
    }

    fn close(&mut self, mark: OpenAggregate, kind: u8, count: usize) {
        if mark.0.seals == self.seals && count < 10 {
            let at = mark.0.bytes;
            let header = [kind, b'0' + count as u8, b'\r', b'\n'];
            self.bytes[at..at + HEADER_LEN].copy_from_slice(&header);
            return;
        }
        let header = format!("{}{count}\r\n", char::from(kind));
        self.close_with(mark.0, header.as_bytes());
    }

    /// Replaces the reserved header by some bytes.
    fn close_with(&mut self, mark: Position, header: &[u8]) {
        match mark.seals == self.seals {
            true => self.close_at(mark.bytes, header),
            false => self.close_sealed(mark, header),
        }
    }

    fn close_at(&mut self, at: usize, header: &[u8]) {
        self.bytes
            .splice(at..at + HEADER_LEN, header.iter().copied());
        // Offsets after it shift by the difference to the reserved length.
        for (offset, _) in self
            .blocks
            .iter_mut()
            .rev()
            .take_while(|(offset, _)| *offset > at)
        {
            *offset = *offset + header.len() - HEADER_LEN;
        }
    }

    /// Writes a header at a position that may be in a sealed block by now: then that block is split there.
    #[cold]
    fn close_sealed(&mut self, mark: Position, header: &[u8]) {
        let mut back = self.written() - mark.end;
        let mut cut = self.bytes.len();
        for index in (self.sent_blocks..self.blocks.len()).rev() {
            let (at, block) = &mut self.blocks[index];
            if back <= cut - *at {
                break;
            }
            back -= cut - *at;
            cut = *at;
            if back > block.len() {
                back -= block.len();
                continue;
            }
            let header = header.to_vec();
            let place = block.len() - back;
            let behind = block.split_off(place + HEADER_LEN);
            let before = block.split_to(place);
            self.blocks_len = self.blocks_len - HEADER_LEN + header.len();
            let pieces = [before, header.into(), behind].into_iter();
            let pieces = pieces.filter(|piece| !piece.is_empty());
            self.blocks
                .splice(index..=index, pieces.map(|piece| (cut, piece)));
            return;
        }
        self.close_at(cut - back, header);
    }

    // The output as a whole ----------------------------------------------------------------------------

    /// Returns the number of unsent bytes.
    pub fn len_bytes(&self) -> usize {
        self.bytes.len() - self.sent + self.blocks_len - self.sent_blocks_len
    }

    /// True if everything has been sent.
    pub fn is_empty(&self) -> bool {
        self.len_bytes() == 0
    }

    /// Returns the number of error replies written since the last [`Out::clear`].
    pub fn errors(&self) -> u32 {
        self.errors
    }

    /// Aborts a reply midway, because it exceeds the client's output limit; the client is to be closed without
    /// getting the reply.
    pub fn cut(&mut self, start: Position) {
        self.truncate(start);
        self.is_cut = true;
    }

    /// True if a reply was aborted.
    pub fn is_cut(&self) -> bool {
        self.is_cut
    }

    /// True if the current reply is longer than allowed. Further strings are left out, so that the reply takes no
    /// more memory: it is malformed, and must be replaced.
    #[inline]
    pub fn is_too_long(&self) -> bool {
        self.is_too_long
    }

    /// Replaces a reply that is too long by an error.
    #[cold]
    pub fn replace_too_long(&mut self, start: Position) {
        self.truncate(start);
        self.is_too_long = false;
        self.error(TOO_LONG);
    }

    /// Returns the memory held, for the accounting of clients.
    pub fn memory_bytes(&self) -> usize {
        self.bytes.capacity()
            + self.blocks.capacity() * size_of::<(usize, Bytes)>()
            + self.blocks_len
    }

    /// Removes all replies; keeps the memory, unless an unusual reply made it large.
    pub fn clear(&mut self) {
        self.bytes.clear();
        self.blocks.clear();
        if self.bytes.capacity() > CAPACITY_KEPT_MAX {
            // The vector is not shrunk: that would copy it, and free the rest at once.
            self.bytes = Vec::with_capacity(CAPACITY_KEPT_MAX);
        }
        if self.blocks.capacity() > BLOCKS_KEPT_MAX {
            self.blocks = Vec::new();
        }
        (self.blocks_len, self.sent_blocks_len, self.sent_total) = (0, 0, 0);
        (self.sent, self.sent_blocks, self.sent_of_block) = (0, 0, 0);
        self.errors = 0;
        self.is_cut = false;
        self.is_too_long = false;
    }

    /// Returns the current end of the output.
    pub fn position(&self) -> Position {
        Position {
            bytes: self.bytes.len(),
            seals: self.seals,
            end: self.written(),
            errors: self.errors,
        }
    }

    /// Returns the bytes written since `position`, without shared blocks; of a long reply only the last part, which
    /// is always enough for an error.
    pub fn since(&self, position: Position) -> &[u8] {
        match position.seals == self.seals {
            true => &self.bytes[position.bytes..],
            false => &self.bytes,
        }
    }

    /// Returns the number of bytes written since `position`, including shared blocks.
    pub fn len_since(&self, position: Position) -> usize {
        self.written().saturating_sub(position.end)
    }

    /// Removes everything written since `position` (CLIENT REPLY, scripts). None of it may have been sent.
    pub fn truncate(&mut self, position: Position) {
        let mut surplus = self.written() - position.end;
        assert!(
            surplus <= self.len_bytes(),
            "the bytes to remove have not been sent"
        );
        loop {
            let cut = self.blocks.last().map_or(0, |(at, _)| *at).max(self.sent);
            let step = surplus.min(self.bytes.len() - cut);
            self.bytes.truncate(self.bytes.len() - step);
            surplus -= step;
            if surplus == 0 {
                break;
            }
            let Some((_, block)) = self.blocks.last_mut() else {
                break;
            };
            if block.len() > surplus {
                block.truncate(block.len() - surplus);
                self.blocks_len -= surplus;
                break;
            }
            surplus -= block.len();
            self.blocks_len -= block.len();
            self.blocks.pop();
        }
        self.errors = position.errors;
    }

    /// Returns the number of bytes written since the last [`Out::clear`], sent or not.
    #[inline]
    fn written(&self) -> usize {
        self.len_bytes() + self.sent_total
    }

    /// Appends all replies of `other`, of which nothing has been sent.
    pub fn append(&mut self, other: &mut Self) {
        assert!(other.sent_total == 0);
        if self.bytes.is_empty() && self.blocks.is_empty() && self.bytes.capacity() == 0 {
            std::mem::swap(&mut self.bytes, &mut other.bytes);
            std::mem::swap(&mut self.blocks, &mut other.blocks);
        } else {
            let shift = self.bytes.len();
            self.bytes.extend_from_slice(&other.bytes);
            self.blocks.extend(
                other
                    .blocks
                    .drain(..)
                    .map(|(at, block)| (at + shift, block)),
            );
        }
        self.blocks_len += other.blocks_len;
        self.errors += other.errors;
        self.is_cut |= other.is_cut;
        self.is_too_long |= other.is_too_long;
        other.clear();
    }

    // Pieces -------------------------------------------------------------------------------------------

    /// Writes one byte for the kind, a number, and the line end.
    #[inline]
    fn header(&mut self, kind: u8, value: i64) {
        match value {
            0..=9 => self
                .bytes
                .extend_from_slice(&short_header::<4>(kind, value)),
            10..=99 => self
                .bytes
                .extend_from_slice(&short_header::<5>(kind, value)),
            100..=999 => self
                .bytes
                .extend_from_slice(&short_header::<6>(kind, value)),
            1000..=9999 => self
                .bytes
                .extend_from_slice(&short_header::<7>(kind, value)),
            _ => self.line(kind, itoa::Buffer::new().format(value).as_bytes()),
        }
    }

    fn line(&mut self, kind: u8, text: &[u8]) {
        self.bytes.reserve(text.len() + 3);
        self.bytes.push(kind);
        self.bytes.extend_from_slice(text);
        self.bytes.extend_from_slice(b"\r\n");
    }

    fn block(&mut self, block: Bytes) {
        if self.has_no_room(block.len()) {
            return;
        }
        self.blocks_len += block.len();
        self.blocks.push((self.bytes.len(), block));
    }

    /// True if a reply with `len` more bytes would be too long.
    fn has_no_room(&mut self, len: usize) -> bool {
        self.is_too_long |= self.len_bytes() + len > REPLY_BYTES_MAX.load(Relaxed);
        self.is_too_long
    }

    /// Makes space for the following write, in a new vector if this one has become long. Returns false if the reply
    /// would be too long, so that the write must be omitted.
    #[cold]
    #[inline(never)]
    fn make_room(&mut self, len: usize) -> bool {
        if self.has_no_room(len) {
            return false;
        }
        if self.bytes.len() >= PIECE_LEN {
            self.seal();
            self.bytes = Vec::with_capacity(PIECE_LEN.max(len));
        }
        self.bytes.reserve(len);
        true
    }

    /// Turns the vector into blocks: its parts between the existing blocks.
    fn seal(&mut self) {
        let piece = Bytes::from(std::mem::take(&mut self.bytes));
        let unsent = self.blocks.split_off(self.sent_blocks);
        self.blocks.clear();
        self.sent_blocks = 0;
        let mut from = self.sent;
        for (at, block) in unsent {
            if at > from {
                self.seal_part(piece.slice(from..at));
                from = at;
            }
            self.blocks.push((0, block));
        }
        if piece.len() > from {
            self.seal_part(piece.slice(from..));
        }
        self.sent = 0;
        self.seals = self.seals.wrapping_add(1);
    }

    fn seal_part(&mut self, part: Bytes) {
        self.blocks_len += part.len();
        self.blocks.push((0, part));
    }

    fn kind_of_map(&self, count: usize) -> (u8, usize) {
        if self.is_resp3() {
            (b'%', count)
        } else {
            (b'*', count * 2)
        }
    }

    fn kind_of_set(&self) -> u8 {
        if self.is_resp3() { b'~' } else { b'*' }
    }
}

/// Returns a header of a constant length, which avoids copies of variable length.
#[inline(always)]
fn short_header<const LEN: usize>(kind: u8, value: i64) -> [u8; LEN] {
    let mut rest = value as u32;
    let mut text = [0; LEN];
    text[0] = kind;
    for digit in text[1..LEN - 2].iter_mut().rev() {
        *digit = b'0' + (rest % 10) as u8;
        rest /= 10;
    }
    text[LEN - 2] = b'\r';
    text[LEN - 1] = b'\n';
    text
}

#[cfg(test)]
mod tests;
