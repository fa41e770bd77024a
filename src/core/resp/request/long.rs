//! Long arguments of an incomplete request: they are moved from the read buffer to blocks of their own.

use super::{Parser, Span};
use crate::base::number::parse_i64;
use crate::structures::block::SharedBlock;
use crate::structures::filling::BlockBuilder;

/// The long arguments of one incomplete request.
#[derive(Debug, Default)]
pub(super) struct Long {
    /// The complete long arguments.
    pub(super) blocks: Vec<SharedBlock>,
    /// The long argument that is being received.
    filling: Option<BlockBuilder>,
    /// Bytes of all long arguments, including those not received yet.
    pub(super) len: usize,
    /// Bytes allocated for the complete long arguments.
    finished_bytes: usize,
}

impl Long {
    /// Returns the bytes missing for the argument that is received into a block, with its line end.
    pub(super) fn wants(&self) -> Option<usize> {
        Some(self.filling.as_ref()?.missing() + 2)
    }
}

impl Parser {
    /// Moves the argument that is being received to a block, if its known length is at least `len_min` bytes: its
    /// received part is moved there from the end of `input`. From then on [`Parser::filling`] receives the rest,
    /// and has capacity for `more` bytes of it.
    ///
    /// `input[start..]` begins with the input of the last call of [`Parser::parse`], which found no complete
    /// request.
    #[cold]
    pub fn begin_block(&mut self, input: &mut Vec<u8>, start: usize, len_min: usize, more: usize) {
        if self.header_len == 0 {
            return;
        }
        let (header, header_len) = (self.position as usize, self.header_len as usize);
        let position = header + header_len;
        // A `$` precedes the digits, and a line end follows.
        let digits = &input[start + header + 1..start + position - 2];
        let len = parse_i64(digits).and_then(|len| usize::try_from(len).ok());
        let Some(len) = len.filter(|len| *len >= len_min) else {
            return;
        };
        let received = (input.len() - start - position).min(len);
        let long = self.long.get_or_insert_default();
        long.len += len;
        long.filling = Some(BlockBuilder::new(len, received + more));
        (self.position, self.header_len) = (position as u32, 0);
        self.fill_block(input, start);
    }

    /// Moves the bytes in `input` that belong to an argument received into a block to that block. `start` is where
    /// the request begins.
    pub fn fill_block(&mut self, input: &mut Vec<u8>, start: usize) {
        let position = start + self.position as usize;
        let Some(filling) = self.filling() else {
            return;
        };
        let count = filling.take_in(&input[position..]);
        input.drain(position..position + count);
    }

    /// Returns the block into which the argument is received, if there is one. Readers may add to it, as long as no
    /// byte of the argument is in the read buffer.
    pub fn filling(&mut self) -> Option<&mut BlockBuilder> {
        self.long.as_mut()?.filling.as_mut()
    }

    /// True if the argument that is received into a block is complete, perhaps without its line end.
    pub fn is_block_full(&self) -> bool {
        let filling = self.long.as_ref().and_then(|long| long.filling.as_ref());
        filling.is_some_and(|filling| filling.missing() == 0)
    }

    /// Returns the bytes of the current argument that have left the read buffer.
    pub fn filled_bytes(&self) -> usize {
        let filling = self.long.as_ref().and_then(|long| long.filling.as_ref());
        filling.map_or(0, BlockBuilder::received)
    }

    /// Returns the bytes of the whole request that have left the read buffer.
    pub fn moved_bytes(&self) -> usize {
        let Some(long) = &self.long else {
            return 0;
        };
        let missing = long.filling.as_ref().map_or(0, BlockBuilder::missing);
        long.len - missing
    }

    /// Returns the bytes allocated for the long arguments.
    pub fn blocks_memory_bytes(&self) -> usize {
        let Some(long) = &self.long else {
            return 0;
        };
        let filling = long.filling.as_ref();
        long.finished_bytes + filling.map_or(0, BlockBuilder::memory_bytes)
    }

    /// Completes the argument that is received into a block, if there is one. Returns false if it is incomplete,
    /// including the two bytes after it.
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
