//! A block that is being filled: bytes of a known count that arrive in pieces, written straight to where they will be
//! kept.
//!
//! Room is made for what is there and for what its owner asks for, never for more than the count. Full, the block takes
//! exactly what a copy of the same bytes would take. Socket readers write through [`BufMut`].

#![expect(
    unsafe_code,
    reason = "readers write to memory that is not initialised yet"
)]

use std::fmt;

use bytes::BufMut;
use bytes::buf::UninitSlice;

use crate::structures::block::Block;

/// See the module.
pub struct Filling {
    block: Block,
    /// How many bytes it holds when it is full.
    len: usize,
}

impl Filling {
    /// Nothing yet of `len` bytes, with room for `room` of them.
    #[must_use]
    pub fn new(len: usize, room: usize) -> Filling {
        Filling {
            block: Block::with_capacity(room.min(len)),
            len,
        }
    }

    /// Bytes that have arrived.
    #[must_use]
    pub fn received(&self) -> usize {
        self.block.len()
    }

    /// Bytes that have not arrived yet.
    #[must_use]
    pub fn missing(&self) -> usize {
        self.len - self.block.len()
    }

    /// Bytes for which there is room.
    #[must_use]
    pub fn room(&self) -> usize {
        self.block.room().min(self.len) - self.block.len()
    }

    /// Makes room for so many more bytes, or for all that are missing if these are fewer.
    pub fn reserve(&mut self, more: usize) {
        let room = self.received() + more.min(self.missing());
        if room > self.block.room() {
            self.block.reserve_exact(room);
        }
    }

    /// Takes bytes in that arrived elsewhere: those of them that are missing. Says how many.
    pub fn take_in(&mut self, bytes: &[u8]) -> usize {
        let count = bytes.len().min(self.missing());
        if count > self.room() {
            // Room doubles, so that copies to other places stay linear.
            self.reserve(count.max(self.received()));
        }
        self.put_slice(&bytes[..count]);
        count
    }

    /// Gives back room that has not been filled.
    pub fn shrink_to_fit(&mut self) {
        self.block.shrink_to_fit();
    }

    /// What the allocator has set aside.
    #[must_use]
    pub fn memory_bytes(&self) -> usize {
        self.block.memory_bytes()
    }

    /// The block, once no byte is missing.
    #[must_use]
    pub fn finish(self) -> Block {
        assert_eq!(self.missing(), 0, "the block is full");
        self.block
    }
}

// SAFETY: the block has one owner; its room is exclusively borrowed with `self`; bytes count as initialised only after
// the caller of `advance_mut` has promised that they are.
unsafe impl BufMut for Filling {
    fn remaining_mut(&self) -> usize {
        self.room()
    }

    unsafe fn advance_mut(&mut self, count: usize) {
        assert!(count <= self.room(), "within the room");
        // SAFETY: sole owner; the caller has initialised these bytes, which lie within the room.
        unsafe { self.block.set_len(self.block.len() + count) };
    }

    fn chunk_mut(&mut self) -> &mut UninitSlice {
        let room = self.room();
        // SAFETY: so many bytes behind those that are there are ours, borrowed with `self`.
        unsafe { UninitSlice::from_raw_parts_mut(self.block.end(), room) }
    }
}

impl fmt::Debug for Filling {
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
            let mut filling = Filling::new(bytes.len(), room);
            assert!(filling.memory_bytes() <= Block::new(&bytes).memory_bytes());
            for part in bytes.chunks(piece) {
                assert_eq!(filling.take_in(part), part.len());
            }
            assert_eq!(filling.take_in(b"not ours"), 0);
            let block = filling.finish();
            assert!(block[..] == bytes && block.is_unique());
            assert_eq!(block.memory_bytes(), Block::new(&bytes).memory_bytes());
        }
    }

    #[test]
    fn room_is_made_for_no_more_than_was_asked_for_and_is_missing() {
        let mut filling = Filling::new(100_000, 20_000);
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
        let mut filling = Filling::new(10, 10);
        filling.put_slice(b"abc");
        filling.chunk_mut()[..2].copy_from_slice(b"de");
        // SAFETY: two bytes were just written there.
        unsafe { filling.advance_mut(2) };
        assert_eq!(filling.take_in(b"fghijkl"), 5);
        assert_eq!(&filling.finish()[..], b"abcdefghij");
    }
}
