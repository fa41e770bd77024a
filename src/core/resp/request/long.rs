//! Long arguments of a request that has not arrived whole: they leave the read buffer, each for a block of its own.

use super::{Parser, Span};
use crate::base::number::parse_i64;
use crate::structures::block::Block;
use crate::structures::filling::Filling;

/// The long arguments of one incomplete request.
#[derive(Debug, Default)]
pub(super) struct Long {
    /// The finished ones.
    pub(super) blocks: Vec<Block>,
    /// The one that is being read.
    filling: Option<Filling>,
    /// Bytes of all of them, and of those that they lack.
    pub(super) len: usize,
    /// What the allocator has set aside for the finished ones.
    finished_bytes: usize,
}

impl Long {
    /// Bytes missing for the argument that is read into a block, with its line end.
    pub(super) fn wants(&self) -> Option<usize> {
        Some(self.filling.as_ref()?.missing() + 2)
    }
}

impl Parser {
    /// Moves the argument that is being read to a block, if it is known to take `len_min` bytes at least: what has
    /// arrived of it goes there from the end of `input`. From then on [`Parser::filling`] takes the rest, and has room
    /// for `more` bytes of it.
    ///
    /// `input[start..]` begins with what the last call of [`Parser::parse`] was given, which found no complete request.
    #[cold]
    pub fn begin_block(&mut self, input: &mut Vec<u8>, start: usize, len_min: usize, more: usize) {
        if self.header_len == 0 {
            return;
        }
        let (header, header_len) = (self.position as usize, self.header_len as usize);
        let position = header + header_len;
        // A `$` before the digits, and a line end behind them.
        let digits = &input[start + header + 1..start + position - 2];
        let len = parse_i64(digits).and_then(|len| usize::try_from(len).ok());
        let Some(len) = len.filter(|len| *len >= len_min) else {
            return;
        };
        let received = (input.len() - start - position).min(len);
        let long = self.long.get_or_insert_default();
        long.len += len;
        long.filling = Some(Filling::new(len, received + more));
        (self.position, self.header_len) = (position as u32, 0);
        self.fill_block(input, start);
    }

    /// Moves what arrived in `input` of an argument that is read into a block there. `start` is where the request
    /// begins.
    pub fn fill_block(&mut self, input: &mut Vec<u8>, start: usize) {
        let position = start + self.position as usize;
        let Some(filling) = self.filling() else {
            return;
        };
        let count = filling.take_in(&input[position..]);
        input.drain(position..position + count);
    }

    /// The block that the argument is read into, if there is one. Readers may add to it, as long as none of the
    /// argument lies in the read buffer.
    pub fn filling(&mut self) -> Option<&mut Filling> {
        self.long.as_mut()?.filling.as_mut()
    }

    /// Whether the argument that is read into a block has arrived, and perhaps not the line end behind it.
    pub fn is_block_full(&self) -> bool {
        let filling = self.long.as_ref().and_then(|long| long.filling.as_ref());
        filling.is_some_and(|filling| filling.missing() == 0)
    }

    /// Bytes of the argument that is being read that have left the read buffer.
    pub fn filled_bytes(&self) -> usize {
        let filling = self.long.as_ref().and_then(|long| long.filling.as_ref());
        filling.map_or(0, Filling::received)
    }

    /// Bytes of the whole request that have left the read buffer.
    pub fn moved_bytes(&self) -> usize {
        let Some(long) = &self.long else {
            return 0;
        };
        let missing = long.filling.as_ref().map_or(0, Filling::missing);
        long.len - missing
    }

    /// What the allocator has set aside for these bytes.
    pub fn blocks_memory_bytes(&self) -> usize {
        let Some(long) = &self.long else {
            return 0;
        };
        let filling = long.filling.as_ref();
        long.finished_bytes + filling.map_or(0, Filling::memory_bytes)
    }

    /// Ends the argument that is read into a block, if there is one; false if it has not arrived whole, with the two
    /// bytes behind it.
    pub(super) fn end_block(&mut self, buf: &[u8]) -> bool {
        let Some(long) = &mut self.long else {
            return true;
        };
        let Some(filling) = long.filling.take_if(|filling| filling.missing() == 0) else {
            return long.filling.is_none();
        };
        let end = self.position as usize + 2;
        if buf.len() < end {
            long.filling = Some(filling);
            return false;
        }
        let block = filling.finish();
        self.spans
            .push(Span::in_block(long.blocks.len(), block.len()));
        long.finished_bytes += block.memory_bytes();
        long.blocks.push(block);
        self.position = end as u32;
        self.missing -= 1;
        true
    }
}
