//! Snapshots compressed as one stream, in the format of Valkey 9.2.
//!
//! ```text
//! "VCS" | version 1 u8 | codec u8: 1 LZ4, 2 Zstandard | reserved 0 u8 | kind u8: 1 snapshot
//! one LZ4 frame or one Zstandard frame: the snapshot
//! ```
//!
//! Bytes after the frame are no part of the snapshot: an append-only file may begin with a compressed one. The frame
//! has checksums of its own if `rdbchecksum` is on, so the CRC-64 within is not computed when it is read.
//!
//! The input is untrusted. A frame is decoded in pieces, so a length that it claims allocates nothing; windows are
//! bounded, and so is how much longer a record may be than the bytes that it came from ([`Unpacker::record_max`]).

use std::io::{self, BufRead, Read, Write};

use lz4_flex::frame::{BlockSize, FrameDecoder, FrameEncoder, FrameInfo};
use zstd::stream::{read, write};

use super::fault::Fault;

/// Beginning of a compressed stream.
pub(super) const MAGIC: &[u8; 3] = b"VCS";

/// Length of the envelope before the frame.
const ENVELOPE_BYTES: usize = 7;

const VERSION: u8 = 1;
const KIND_SNAPSHOT: u8 = 1;

/// Bytes of compressed input requested at a time.
const READ_BYTES: usize = 64 * 1024;

/// Bytes of compressed output that are passed on at a time.
const PIECE_BYTES: usize = 64 * 1024;

/// Largest window of Zstandard that is accepted, as a power of two; encoders at usual levels need 23 at most.
const WINDOW_LOG_MAX: u32 = 24;

/// Bytes that a record may have, however few compressed bytes were read.
const RECORD_BYTES_FREE: u64 = if cfg!(test) { 1 << 20 } else { 1 << 30 };

/// Bytes that a record may have beyond that for each compressed byte that was read.
const RECORD_RATIO_MAX: u64 = 1_024;

/// Level of Zstandard: its default.
const LEVEL: i32 = 3;

/// A codec for whole streams.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Codec {
    /// LZ4, in its frame format.
    Lz4,
    /// Zstandard.
    Zstd,
}

impl Codec {
    fn code(self) -> u8 {
        match self {
            Codec::Lz4 => 1,
            Codec::Zstd => 2,
        }
    }
}

/// A compressor of one snapshot.
pub struct Packer(Frame);

enum Frame {
    Lz4(Box<FrameEncoder<Vec<u8>>>),
    Zstd(write::Encoder<'static, Vec<u8>>),
}

impl Packer {
    /// Begins a compressed snapshot, with checksums in the frame or without.
    pub fn new(codec: Codec, has_checksums: bool) -> io::Result<Packer> {
        let mut out = MAGIC.to_vec();
        out.extend([VERSION, codec.code(), 0, KIND_SNAPSHOT]);
        Ok(Packer(match codec {
            Codec::Lz4 => {
                let info = FrameInfo::new()
                    .block_size(BlockSize::Max256KB)
                    .block_checksums(has_checksums)
                    .content_checksum(has_checksums);
                Frame::Lz4(Box::new(FrameEncoder::with_frame_info(info, out)))
            }
            Codec::Zstd => {
                let mut encoder = write::Encoder::new(out, LEVEL)?;
                encoder.include_checksum(has_checksums)?;
                Frame::Zstd(encoder)
            }
        }))
    }

    /// Compresses the next bytes, and returns compressed ones once there are enough of them.
    pub fn add(&mut self, bytes: &[u8]) -> io::Result<Option<Vec<u8>>> {
        let out = match &mut self.0 {
            Frame::Lz4(encoder) => {
                encoder.write_all(bytes)?;
                encoder.get_mut()
            }
            Frame::Zstd(encoder) => {
                encoder.write_all(bytes)?;
                encoder.get_mut()
            }
        };
        Ok((out.len() >= PIECE_BYTES).then(|| std::mem::take(out)))
    }

    /// Ends the frame and returns the rest of the compressed bytes.
    pub fn finish(self) -> io::Result<Vec<u8>> {
        match self.0 {
            Frame::Lz4(encoder) => encoder.finish().map_err(io::Error::other),
            Frame::Zstd(encoder) => encoder.finish(),
        }
    }
}

/// Compresses a whole snapshot.
#[cfg(test)]
pub(crate) fn pack(codec: Codec, has_checksums: bool, bytes: &[u8]) -> io::Result<Vec<u8>> {
    let mut packer = Packer::new(codec, has_checksums)?;
    let mut out = packer.add(bytes)?.unwrap_or_default();
    out.extend(packer.finish()?);
    Ok(out)
}

/// The compressed input: bytes that were read already, then the rest.
struct Compressed<'s> {
    from: &'s mut dyn Read,
    buffer: Vec<u8>,
    at: usize,
    /// Total bytes of earlier buffers.
    before: u64,
    /// Whether the end of the input was met while more was needed.
    has_ended: bool,
    /// Whether reading failed, unlike decoding.
    has_failed: bool,
}

impl BufRead for Compressed<'_> {
    fn fill_buf(&mut self) -> io::Result<&[u8]> {
        if self.at == self.buffer.len() {
            self.before += self.at as u64;
            self.at = 0;
            self.buffer.resize(READ_BYTES, 0);
            let got = loop {
                match self.from.read(&mut self.buffer) {
                    Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                    got => break got,
                }
            };
            self.buffer.truncate(*got.as_ref().unwrap_or(&0));
            self.has_failed |= got.is_err();
            self.has_ended |= got? == 0;
        }
        Ok(&self.buffer[self.at..])
    }

    fn consume(&mut self, count: usize) {
        self.at += count;
    }
}

impl Read for Compressed<'_> {
    fn read(&mut self, into: &mut [u8]) -> io::Result<usize> {
        let count = self.fill_buf()?.read(into)?;
        self.consume(count);
        Ok(count)
    }
}

enum Unframer<'s> {
    Lz4(Box<FrameDecoder<Compressed<'s>>>),
    Zstd(read::Decoder<'static, Compressed<'s>>),
}

/// A decompressor of one snapshot.
pub(super) struct Unpacker<'s> {
    frame: Unframer<'s>,
    /// Whether the end of the frame was read.
    has_ended: bool,
}

impl<'s> Unpacker<'s> {
    /// Reads the envelope of a compressed snapshot, of which `begun` was read already.
    pub(super) fn new(from: &'s mut dyn Read, begun: Vec<u8>) -> Result<Unpacker<'s>, Fault> {
        let mut input = Compressed {
            from,
            buffer: begun,
            at: 0,
            before: 0,
            has_ended: false,
            has_failed: false,
        };
        let mut envelope = [0; ENVELOPE_BYTES];
        let read = input.read_exact(&mut envelope);
        read.map_err(|error| fault_of(error, input.has_failed))?;
        let frame = match envelope[MAGIC.len()..] {
            [VERSION, 1, 0, KIND_SNAPSHOT] => Unframer::Lz4(Box::new(FrameDecoder::new(input))),
            [VERSION, 2, 0, KIND_SNAPSHOT] => {
                let decoder = read::Decoder::with_buffer(input).map_err(Fault::Read)?;
                let mut decoder = decoder.single_frame();
                decoder
                    .window_log_max(WINDOW_LOG_MAX)
                    .map_err(Fault::Read)?;
                Unframer::Zstd(decoder)
            }
            [VERSION, 1 | 2, 0, _] => {
                return Err(Fault::Form("Compressed data that are no snapshot"));
            }
            _ => return Err(Fault::Form("Data compressed in an unknown way")),
        };
        Ok(Unpacker {
            frame,
            has_ended: false,
        })
    }

    fn input(&self) -> &Compressed<'s> {
        match &self.frame {
            Unframer::Lz4(decoder) => decoder.get_ref(),
            Unframer::Zstd(decoder) => decoder.get_ref(),
        }
    }

    /// Decompresses the next bytes; 0 at the end of the frame.
    pub(super) fn read(&mut self, into: &mut [u8]) -> Result<usize, Fault> {
        if self.has_ended {
            return Ok(0);
        }
        let read = match &mut self.frame {
            Unframer::Lz4(decoder) => decoder.read(into),
            Unframer::Zstd(decoder) => decoder.read(into),
        };
        let (has_ended, has_failed) = (self.input().has_ended, self.input().has_failed);
        match read {
            // The decoder of LZ4 takes the end of the input for the end of the frame.
            Ok(0) if has_ended => Err(Fault::Short),
            Ok(count) => {
                self.has_ended = count == 0;
                Ok(count)
            }
            Err(error) => Err(fault_of(error, has_failed)),
        }
    }

    /// Returns the number of compressed bytes that were decoded.
    pub(super) fn consumed(&self) -> u64 {
        let input = self.input();
        input.before + input.at as u64
    }

    /// Returns the bytes that a record read so far may have.
    pub(super) fn record_max(&self) -> u64 {
        RECORD_BYTES_FREE.saturating_add(self.consumed().saturating_mul(RECORD_RATIO_MAX))
    }

    /// Returns the bytes received and not decoded: after the end of the frame, those that follow it.
    pub(super) fn rest(&self) -> &[u8] {
        let input = self.input();
        &input.buffer[input.at..]
    }
}

fn fault_of(error: io::Error, has_failed: bool) -> Fault {
    match error.kind() {
        _ if has_failed => Fault::Read(error),
        io::ErrorKind::UnexpectedEof => Fault::Short,
        _ => Fault::Form("Compressed data that are damaged"),
    }
}
