//! A block that is being filled: bytes whose total number is known arrive in pieces and are written directly to their
//! final memory.
//!
//! Capacity is allocated for the received bytes and for what the owner requests, never for more than the total
//! number. Once full, the block has exactly the size of a copy of the same bytes. Socket readers write through
//! [`BufMut`].

#![expect(
    unsafe_code,
    reason = "readers write to memory that is not initialised yet"
)]

use std::fmt;

use bytes::BufMut;
use bytes::buf::UninitSlice;

use crate::structures::block::SharedBlock;

/// A block being filled, see the module.
pub struct BlockBuilder {
    block: SharedBlock,
    /// Number of bytes of the full block.
    len: usize,
}

impl BlockBuilder {
    /// Creates an empty filling of `len` bytes, with capacity for `room` of them.
    #[must_use]
    pub fn new(len: usize, room: usize) -> BlockBuilder {
        BlockBuilder {
            block: SharedBlock::with_capacity(room.min(len)),
            len,
        }
    }

    /// Returns the number of bytes received.
    #[must_use]
    pub fn received(&self) -> usize {
        self.block.len()
    }

    /// Returns the number of bytes missing.
    #[must_use]
    pub fn missing(&self) -> usize {
        self.len - self.block.len()
    }

    /// Returns the unused capacity in bytes.
    #[must_use]
    pub fn room(&self) -> usize {
        self.block.room().min(self.len) - self.block.len()
    }

    /// Reserves capacity for `more` more bytes, or for all missing ones if these are fewer.
    pub fn reserve(&mut self, more: usize) {
        let room = self.received() + more.min(self.missing());
        if room > self.block.room() {
            self.block.reserve_exact(room);
        }
    }

    /// Copies bytes received elsewhere into the block, as many as are missing. Returns the number of copied bytes.
    pub fn take_in(&mut self, bytes: &[u8]) -> usize {
        let count = bytes.len().min(self.missing());
        if count > self.room() {
            // The capacity doubles, so that the cost of copies stays linear.
            self.reserve(count.max(self.received()));
        }
        self.put_slice(&bytes[..count]);
        count
    }

    /// Frees unused capacity.
    pub fn shrink_to_fit(&mut self) {
        self.block.shrink_to_fit();
    }

    /// Returns the bytes allocated.
    #[must_use]
    pub fn memory_bytes(&self) -> usize {
        self.block.memory_bytes()
    }

    /// Returns the block, once no byte is missing.
    #[must_use]
    pub fn finish(self) -> SharedBlock {
        assert_eq!(self.missing(), 0, "the block is full");
        self.block
    }
}

// SAFETY: the block has one owner; its capacity is exclusively borrowed with `self`; bytes count as initialised
// only after the caller of `advance_mut` has promised that they are.
unsafe impl BufMut for BlockBuilder {
    fn remaining_mut(&self) -> usize {
        self.room()
    }

    unsafe fn advance_mut(&mut self, count: usize) {
        assert!(count <= self.room(), "within the room");
        // SAFETY: sole owner; the caller has initialised these bytes, which lie within the capacity.
        unsafe { self.block.set_len(self.block.len() + count) };
    }

    fn chunk_mut(&mut self) -> &mut UninitSlice {
        let room = self.room();
        // SAFETY: `room` bytes behind the existing ones are ours, borrowed with `self`.
        unsafe { UninitSlice::from_raw_parts_mut(self.block.end(), room) }
    }
}

impl fmt::Debug for BlockBuilder {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Filling({} of {} bytes)", self.received(), self.len)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bytes_that_arrive_in_pieces_become_one_block_of_the_usual_size() {
        let bytes: Vec<u8> = (0..50_000_u32).map(|at| at as u8).collect();
        for (piece, room) in [(1, 0), (999, 20_000), (17_000, 1), (50_000, 60_000)] {
            let mut filling = BlockBuilder::new(bytes.len(), room);
            assert!(filling.memory_bytes() <= SharedBlock::new(&bytes).memory_bytes());
            for part in bytes.chunks(piece) {
                assert_eq!(filling.take_in(part), part.len());
            }
            assert_eq!(filling.take_in(b"not ours"), 0);
            let block = filling.finish();
            assert!(block[..] == bytes && block.is_unique());
            assert_eq!(
                block.memory_bytes(),
                SharedBlock::new(&bytes).memory_bytes()
            );
        }
    }

    #[test]
    fn room_is_made_for_no_more_than_was_asked_for_and_is_missing() {
        let mut filling = BlockBuilder::new(100_000, 20_000);
        assert!((20_000..25_000).contains(&filling.room()));
        filling.take_in(&[1; 30_000]);
        assert!(filling.memory_bytes() < 70_000, "{filling:?}");
        filling.reserve(50_000);
        assert!((50_000..60_000).contains(&filling.room()));
        filling.reserve(usize::MAX);
        assert_eq!(filling.room(), 70_000);
        filling.shrink_to_fit();
        assert!(filling.room() < 8_000);
        assert_eq!((filling.received(), filling.missing()), (30_000, 70_000));
    }

    #[test]
    fn a_reader_writes_behind_what_is_there() {
        let mut filling = BlockBuilder::new(10, 10);
        filling.put_slice(b"abc");
        filling.chunk_mut()[..2].copy_from_slice(b"de");
        // SAFETY: two bytes were just written there.
        unsafe { filling.advance_mut(2) };
        assert_eq!(filling.take_in(b"fghijkl"), 5);
        assert_eq!(&filling.finish()[..], b"abcdefghij");
    }
}
