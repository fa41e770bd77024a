//! The bytes of a snapshot as they come: read ahead in pieces, summed, and given away in stretches.

use std::io::{self, Read};

use super::fault::Fault;
use basalt_core::base::checksum;

/// Bytes that are asked for at once.
const READ_BYTES: usize = 64 * 1024;

/// A stretch of records is given away when it has so many bytes.
pub(super) const STRETCH_BYTES: usize = 512 * 1024;

/// See the module. Memory follows what has come, whatever lengths the bytes claim.
pub(super) struct Source<'s> {
    from: &'s mut dyn Read,
    /// What has come and was not given away; read as far as `at`.
    bytes: Vec<u8>,
    at: usize,
    /// How much was given away, and its checksum.
    before: u64,
    crc: u64,
    /// Room for the next stretch.
    spare: Vec<u8>,
}

impl<'s> Source<'s> {
    /// Reads from the first byte, of which some may have come already.
    pub(super) fn new(from: &'s mut dyn Read, begun: Vec<u8>) -> Source<'s> {
        Source {
            from,
            bytes: begun,
            at: 0,
            before: 0,
            crc: 0,
            spare: Vec::new(),
        }
    }

    /// How many bytes were read so far.
    pub(super) fn offset(&self) -> u64 {
        self.before + self.at as u64
    }

    /// Where the next byte lies in the stretch.
    pub(super) fn at(&self) -> usize {
        self.at
    }

    /// The checksum of all that was read so far.
    pub(super) fn crc(&self) -> u64 {
        checksum::update(self.crc, &self.bytes[..self.at])
    }

    /// Sees to it that so many bytes lie behind the last one read.
    #[inline]
    fn need(&mut self, count: usize) -> Result<(), Fault> {
        if self.bytes.len() - self.at >= count {
            return Ok(());
        }
        self.fetch(count)
    }

    #[cold]
    fn fetch(&mut self, count: usize) -> Result<(), Fault> {
        while self.bytes.len() - self.at < count {
            let len = self.bytes.len();
            // So long a stretch grows by as much as has come.
            let more = len.clamp(READ_BYTES, 16 * READ_BYTES);
            self.bytes.resize(len + more, 0);
            let got = self.from.read(&mut self.bytes[len..]);
            self.bytes.truncate(len + *got.as_ref().unwrap_or(&0));
            match got {
                Ok(0) => return Err(Fault::Short),
                Ok(_) => {}
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Err(Fault::Read(error)),
            }
        }
        Ok(())
    }

    /// The next byte.
    #[inline]
    pub(super) fn byte(&mut self) -> Result<u8, Fault> {
        self.need(1)?;
        let byte = self.bytes[self.at];
        self.at += 1;
        Ok(byte)
    }

    /// The next bytes.
    #[inline]
    pub(super) fn array<const N: usize>(&mut self) -> Result<[u8; N], Fault> {
        self.need(N)?;
        let mut array = [0; N];
        array.copy_from_slice(&self.bytes[self.at..self.at + N]);
        self.at += N;
        Ok(array)
    }

    /// Passes so many bytes.
    #[inline]
    pub(super) fn skip(&mut self, count: u64) -> Result<(), Fault> {
        let count = usize::try_from(count).map_err(|_| Fault::Short)?;
        // What can not be is not waited for.
        if count > isize::MAX as usize / 2 {
            return Err(Fault::Short);
        }
        self.need(count)?;
        self.at += count;
        Ok(())
    }

    /// What was read since a place in the stretch.
    pub(super) fn since(&self, from: usize) -> &[u8] {
        &self.bytes[from..self.at]
    }

    /// Gives away what was read, and goes on with the rest.
    pub(super) fn take(&mut self) -> Vec<u8> {
        let mut next = std::mem::take(&mut self.spare);
        next.clear();
        next.reserve(self.at.min(STRETCH_BYTES) + 2 * READ_BYTES);
        next.extend_from_slice(&self.bytes[self.at..]);
        let mut taken = std::mem::replace(&mut self.bytes, next);
        taken.truncate(self.at);
        self.crc = checksum::update(self.crc, &taken);
        self.before += self.at as u64;
        self.at = 0;
        taken
    }

    /// Takes a stretch back, for its memory.
    pub(super) fn give_back(&mut self, stretch: Vec<u8>) {
        if self.spare.capacity() < stretch.capacity() && stretch.capacity() <= 4 << 20 {
            self.spare = stretch;
        }
    }

    /// What has come and was not read.
    pub(super) fn rest(&self) -> &[u8] {
        &self.bytes[self.at..]
    }
}
