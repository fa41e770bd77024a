//! Long arguments of a request that has not arrived whole: they leave the read buffer, each for a block of its own.

use super::{Parser, Span};
use crate::structures::block::Block;
use crate::structures::filling::Filling;

/// The long arguments of one incomplete request.
#[derive(Debug, Default)]
pub(super) struct Long {
    /// The finished ones.
    pub(super) blocks: Vec<Block>,
    /// The one that is being read.
    filling: Option<Filling>,
    /// Bytes of all of them.
    pub(super) len: usize,
}

impl Parser {
    /// Moves the argument that is being read to a block, if it is known to take `len_min` bytes at least: what has
    /// arrived of it goes there from the end of `input`. From then on [`Parser::filling`] takes the rest, and has room
    /// for `more` bytes of it.
    ///
    /// `input[start..]` is what the last call of [`Parser::parse`] was given, which found no complete request.
    #[cold]
    pub fn begin_block(&mut self, input: &mut Vec<u8>, start: usize, len_min: usize, more: usize) {
        if self.wants == 0 || self.filling().is_some() {
            return;
        }
        let position = self.position as usize + self.header_len as usize;
        let received = input.len() - start - position;
        // Two bytes follow an argument.
        let len = received + self.wants as usize - 2;
        if len < len_min {
            return;
        }
        let long = self.long.get_or_insert_default();
        long.len += len;
        long.filling = Some(Filling::new(len, received + more));
        (self.position, self.header_len) = (position as u32, 0);
        self.fill_block(input, start);
    }

    /// Moves what arrived in `input` of an argument that is read into a block there. `start` is where the request begins.
    pub fn fill_block(&mut self, input: &mut Vec<u8>, start: usize) {
        let position = start + self.position as usize;
        let Some(filling) = self.filling() else {
            return;
        };
        let count = filling.take_in(&input[position..]);
        let wants = filling.missing() + 2;
        input.drain(position..position + count);
        let wants = wants.saturating_sub(input.len() - position);
        self.wants = u32::try_from(wants).unwrap_or(u32::MAX);
    }

    /// The block that the argument is read into, if there is one that has not arrived whole. Who adds to it calls
    /// [`Parser::fill_block`] afterwards.
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
        let finished = long.blocks.iter().map(Block::memory_bytes);
        let filling = long.filling.as_ref().map_or(0, Filling::memory_bytes);
        finished.sum::<usize>() + filling
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
            self.wants = (end - buf.len()) as u32;
            long.filling = Some(filling);
            return false;
        }
        let block = filling.finish();
        self.spans
            .push(Span::in_block(long.blocks.len(), block.len()));
        long.blocks.push(block);
        self.position = end as u32;
        self.missing -= 1;
        true
    }
}
