//! The input of a snapshot: reads ahead in pieces, computes the checksum, and returns the bytes in stretches.

use std::io::{self, Read};

use super::fault::Fault;
use super::packed::{self, Unpacker};
use basalt_core::base::checksum;

/// Bytes requested from the input at a time.
const READ_BYTES: usize = 64 * 1024;

/// Bytes at which a stretch of records is complete.
pub(super) const STRETCH_BYTES: usize = 512 * 1024;

/// The bytes of a snapshot, as they are or compressed.
enum Origin<'s> {
    Plain(&'s mut dyn Read),
    Packed(Box<Unpacker<'s>>),
}

/// The input of a snapshot. Memory use grows with the received data, not with the lengths that the data claims.
pub(super) struct RdbInput<'s> {
    from: Origin<'s>,
    /// Data received and not yet returned as a stretch, of which the first `at` bytes were read by the decoder.
    bytes: Vec<u8>,
    at: usize,
    /// Total bytes of all stretches returned so far, and (`crc`) their checksum.
    before: u64,
    crc: u64,
    /// Buffer of an earlier stretch, reused for the next one.
    spare: Vec<u8>,
}

impl<'s> RdbInput<'s> {
    /// Creates the input from the snapshot's first byte on: first `begun`, which was already received, then
    /// `from`. A compressed snapshot is decompressed.
    pub(super) fn new(from: &'s mut dyn Read, mut begun: Vec<u8>) -> Result<RdbInput<'s>, Fault> {
        let needed = packed::MAGIC.len().saturating_sub(begun.len()) as u64;
        let read = from.take(needed).read_to_end(&mut begun);
        read.map_err(Fault::Read)?;
        let (from, bytes) = match begun.starts_with(packed::MAGIC) {
            true => {
                let unpacker = Unpacker::new(from, begun)?;
                (Origin::Packed(Box::new(unpacker)), Vec::new())
            }
            false => (Origin::Plain(from), begun),
        };
        Ok(RdbInput {
            from,
            bytes,
            at: 0,
            before: 0,
            crc: 0,
            spare: Vec::new(),
        })
    }

    /// Returns the number of bytes read by the decoder so far.
    pub(super) fn offset(&self) -> u64 {
        self.before + self.at as u64
    }

    /// Returns the number of bytes of the file that the decoder has read so far.
    pub(super) fn consumed(&self) -> u64 {
        match &self.from {
            Origin::Plain(_) => self.offset(),
            Origin::Packed(unpacker) => unpacker.consumed(),
        }
    }

    /// True if the snapshot is compressed.
    pub(super) fn is_packed(&self) -> bool {
        matches!(self.from, Origin::Packed(_))
    }

    /// Checks that a compressed snapshot ends where the decoder is.
    pub(super) fn check_end(&mut self) -> Result<(), Fault> {
        let Origin::Packed(unpacker) = &mut self.from else {
            return Ok(());
        };
        let is_over = self.at == self.bytes.len() && unpacker.read(&mut [0])? == 0;
        match is_over {
            true => Ok(()),
            false => Err(Fault::Form("Compressed data after the end of the snapshot")),
        }
    }

    /// Returns the position of the next byte in the stretch.
    pub(super) fn at(&self) -> usize {
        self.at
    }

    /// Returns the checksum of everything read so far.
    pub(super) fn crc(&self) -> u64 {
        checksum::update(self.crc, &self.bytes[..self.at])
    }

    /// Makes at least `count` unread bytes available.
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
            // Read at most as much as the stretch already has, so that a long one doubles in size.
            let more = len.clamp(READ_BYTES, 16 * READ_BYTES);
            if let Origin::Packed(unpacker) = &self.from
                && (len + more) as u64 > unpacker.record_max()
            {
                return Err(Fault::Form("A value much longer than its compressed bytes"));
            }
            self.bytes.resize(len + more, 0);
            let got = self.from.read(&mut self.bytes[len..]);
            self.bytes.truncate(len + *got.as_ref().unwrap_or(&0));
            if got? == 0 {
                return Err(Fault::Short);
            }
        }
        Ok(())
    }

    /// Returns the next byte.
    #[inline]
    pub(super) fn byte(&mut self) -> Result<u8, Fault> {
        self.need(1)?;
        let byte = self.bytes[self.at];
        self.at += 1;
        Ok(byte)
    }

    /// Returns the next bytes.
    #[inline]
    pub(super) fn array<const N: usize>(&mut self) -> Result<[u8; N], Fault> {
        self.need(N)?;
        let mut array = [0; N];
        array.copy_from_slice(&self.bytes[self.at..self.at + N]);
        self.at += N;
        Ok(array)
    }

    /// Skips `count` bytes.
    #[inline]
    pub(super) fn skip(&mut self, count: u64) -> Result<(), Fault> {
        let count = usize::try_from(count).map_err(|_| Fault::Short)?;
        // Refuse an impossible number of bytes at once.
        if count > isize::MAX as usize / 2 {
            return Err(Fault::Short);
        }
        self.need(count)?;
        self.at += count;
        Ok(())
    }

    /// Returns the bytes read since position `from` of the stretch.
    pub(super) fn since(&self, from: usize) -> &[u8] {
        &self.bytes[from..self.at]
    }

    /// Returns the bytes read as a stretch, and keeps the unread rest for the next one.
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

    /// Takes back a stretch's memory for reuse.
    pub(super) fn give_back(&mut self, stretch: Vec<u8>) {
        if self.spare.capacity() < stretch.capacity() && stretch.capacity() <= 4 << 20 {
            self.spare = stretch;
        }
    }

    /// Returns the bytes received but not read by the decoder.
    pub(super) fn rest(&self) -> &[u8] {
        match &self.from {
            Origin::Plain(_) => &self.bytes[self.at..],
            Origin::Packed(unpacker) => unpacker.rest(),
        }
    }
}

impl Origin<'_> {
    fn read(&mut self, into: &mut [u8]) -> Result<usize, Fault> {
        let from = match self {
            Origin::Plain(from) => from,
            Origin::Packed(unpacker) => return unpacker.read(into),
        };
        loop {
            match from.read(into) {
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                got => return got.map_err(Fault::Read),
            }
        }
    }
}
