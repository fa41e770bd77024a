//! Receiving into the read buffer, or directly into the block of a long argument.
//!
//! Memory grows with the bytes received, not with announced lengths, and doubles, so that copying stays linear.
//! When much of a long argument has arrived, memory for the rest is reserved at once: repeated copying of a
//! hundred MiB would stall other connections.

use std::io::{self, ErrorKind};

use bytes::BufMut;

use super::buffer_budget::{CLAIM_BYTES_MAX, LARGE_BYTES};
use super::pool;
use super::stream::ClientSocket;
use crate::session::batch::Batch;
use basalt_core::resp::request::Parser;

/// If at least this number of bytes of an argument is missing, they are read directly into its block. Fewer
/// bytes are read through the read buffer, because copying them costs less than a separate read.
const STRAIGHT_BYTES_MIN: usize = pool::INPUT_BYTES / 2;

/// Reads once. Into the buffer it reads at most until `unread_max` bytes are unread there, but always at least
/// one byte. Returns the number of bytes received, `None` if no data was available, `Some(0)` at the end of the
/// stream.
pub(super) fn read(
    stream: &mut ClientSocket,
    parser: &mut Parser,
    batch: &mut Batch,
    unread_max: usize,
) -> io::Result<Option<usize>> {
    let straight = match read_straight(stream, parser) {
        None => 0,
        Some(Ok(count)) if count > 0 && parser.is_block_full() => count,
        Some(read) => return or_nothing(read),
    };
    // The argument is complete: also read available data after it.
    match read_buffered(stream, parser, batch, unread_max) {
        Ok(count) => Ok(Some(straight + count)),
        Err(_) if straight > 0 => Ok(Some(straight)),
        Err(error) => or_nothing(Err(error)),
    }
}

fn or_nothing(read: io::Result<usize>) -> io::Result<Option<usize>> {
    match read {
        Ok(count) => Ok(Some(count)),
        Err(error) if error.kind() == ErrorKind::WouldBlock => Ok(None),
        Err(error) => Err(error),
    }
}

/// Reads into the block of a long argument, if much of it is missing.
#[inline]
fn read_straight(stream: &mut ClientSocket, parser: &mut Parser) -> Option<io::Result<usize>> {
    let filling = parser.filling()?;
    let missing = filling.missing();
    if missing < STRAIGHT_BYTES_MIN {
        return None;
    }
    match filling.received() {
        CLAIM_BYTES_MAX.. => filling.reserve(missing),
        received if filling.room() < missing.min(STRAIGHT_BYTES_MIN) => {
            filling.reserve(received.max(pool::INPUT_BYTES));
        }
        _ => {}
    }
    Some(stream.try_read(filling))
}

fn read_buffered(
    stream: &mut ClientSocket,
    parser: &mut Parser,
    batch: &mut Batch,
    unread_max: usize,
) -> io::Result<usize> {
    let room = unread_max.saturating_sub(batch.pending().len()).max(1);
    let input = &mut batch.input;
    let wants = match parser.filling() {
        None => parser.wants(),
        // The missing bytes go into the argument's own block.
        Some(_) => 0,
    };
    let free = input.capacity() - input.len();
    if (free < pool::INPUT_BYTES / 2 && free < room) || wants > 0 {
        let wanted = match input.len() {
            CLAIM_BYTES_MAX.. => wants,
            received => wants.min(received),
        };
        if wants > 0 && input.len() > LARGE_BYTES {
            // Reserve exactly this, because the memory of clients is counted.
            input.reserve_exact(wanted.max(pool::INPUT_BYTES / 4));
        } else {
            input.reserve(wanted.max(pool::INPUT_BYTES));
        }
    }
    let count = stream.try_read(&mut input.limit(room))?;
    let received = u32::try_from(input.len()).unwrap_or(u32::MAX);
    batch.peak = batch.peak.max(received);
    batch.fill_block(parser);
    Ok(count)
}
