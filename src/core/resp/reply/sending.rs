//! Sending of an output: its bytes as slices for one write, and the removal of sent data.

use std::io::IoSlice;

use super::Out;

impl Out {
    /// Returns the unsent bytes if they are contiguous, so that a plain write suffices.
    #[inline]
    pub fn as_slice(&self) -> Option<&[u8]> {
        if self.blocks.len() == self.sent_blocks {
            Some(&self.bytes[self.sent..])
        } else {
            None
        }
    }

    /// Appends the unsent bytes as slices to `slices`, in order, until its capacity is used up (at least one slice).
    pub fn io_slices<'a>(&'a self, slices: &mut Vec<IoSlice<'a>>) {
        self.io_slices_within(usize::MAX, slices);
    }

    /// Appends the unsent bytes as slices for one write, of at most `bytes_max` bytes in total.
    pub fn io_slices_within<'a>(&'a self, mut bytes_max: usize, slices: &mut Vec<IoSlice<'a>>) {
        let slices_max = slices.capacity().max(slices.len() + 1);
        let mut within = |bytes: &'a [u8]| {
            let slice = &bytes[..bytes.len().min(bytes_max)];
            bytes_max -= slice.len();
            IoSlice::new(slice)
        };
        let mut sent = self.sent;
        let mut sent_of_block = self.sent_of_block;
        for (at, block) in &self.blocks[self.sent_blocks..] {
            if sent < *at && slices.len() < slices_max {
                slices.push(within(&self.bytes[sent..*at]));
            }
            if slices.len() == slices_max || slices.last().is_some_and(|slice| slice.is_empty()) {
                return;
            }
            slices.push(within(&block[sent_of_block..]));
            sent = *at;
            sent_of_block = 0;
        }
        if sent < self.bytes.len() && slices.len() < slices_max {
            slices.push(within(&self.bytes[sent..]));
        }
    }

    /// Records that `count` more bytes have been sent. When all are sent, the output is cleared.
    pub fn advance(&mut self, mut count: usize) {
        assert!(count <= self.len_bytes(), "more sent than there was");
        self.sent_total += count;
        while count > 0 {
            let block = self.blocks.get_mut(self.sent_blocks);
            let cut = block.as_ref().map_or(self.bytes.len(), |(at, _)| *at);
            let step = count.min(cut - self.sent);
            self.sent += step;
            count -= step;
            if let Some((_, block)) = block
                && self.sent == cut
            {
                let step = count.min(block.len() - self.sent_of_block);
                self.sent_of_block += step;
                self.sent_blocks_len += step;
                count -= step;
                if self.sent_of_block == block.len() {
                    // The memory is freed before the rest of the output is sent.
                    let sent_len = std::mem::take(block).len();
                    self.blocks_len -= sent_len;
                    self.sent_blocks_len -= sent_len;
                    self.sent_blocks += 1;
                    self.sent_of_block = 0;
                }
            }
        }
        if self.is_empty() {
            self.clear();
        }
    }

    /// Removes sent data, once it is more than the unsent data: otherwise the output of a client that is always a
    /// little behind would grow forever. Invalidates positions in the output.
    pub fn compact(&mut self) {
        let is_due = |sent: usize, len: usize| sent > 0 && sent * 2 >= len;
        if !is_due(self.sent, self.bytes.len()) && !is_due(self.sent_blocks, self.blocks.len()) {
            return;
        }
        self.seals = self.seals.wrapping_add(1);
        self.bytes.drain(..self.sent);
        self.blocks.drain(..self.sent_blocks);
        self.blocks.iter_mut().for_each(|(at, _)| *at -= self.sent);
        (self.sent, self.sent_blocks) = (0, 0);
    }
}
