//! A snapshot in transit to several replicas: the snapshot's threads write it, every waiting replica reads it
//! at its own pace, and pieces are dropped when all readers have read them.
//!
//! The writer waits while the slowest reader is more than [`WINDOW_BYTES`] behind, so a reader that reads
//! nothing for too long must be dropped by its replica's task. When no reader is left the snapshot is
//! cancelled.

use std::collections::{BTreeMap, VecDeque};
use std::io;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use bytes::Bytes;
use parking_lot::{Condvar, Mutex};

use crate::persist::oplog::Gate;
use crate::persist::snapshot::Running;

/// Maximum lead of the writer over the slowest reader.
const WINDOW_BYTES: u64 = 16 << 20;

/// Interval at which a waiting writer checks whether any reader is left.
const LOOK: Duration = Duration::from_millis(100);

/// Outcome of the transfer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum TransferOutcome {
    Whole,
    Broken,
}

#[derive(Default)]
struct TransferState {
    /// Pieces not yet read by all readers, each with the position after it.
    pieces: VecDeque<(u64, Bytes)>,
    written: u64,
    ended: Option<TransferOutcome>,
    /// Position of each reader, by number.
    readers: BTreeMap<u64, u64>,
    last_reader: u64,
    running: Option<Arc<Running>>,
}

/// A snapshot in transit: one writer, and several readers; see the module.
#[derive(Default)]
pub(super) struct SnapshotTransfer {
    inner: Mutex<TransferState>,
    /// Gate that opens when data was written, or the transfer ended.
    changed: Gate,
    room: Condvar,
}

/// Data available to a reader.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum TransferData {
    /// No data is available yet.
    Nothing,
    /// The next bytes of the snapshot.
    Bytes(Bytes),
    /// The reader has everything.
    End,
    /// The transfer failed; data received so far is unusable.
    Broken,
}

impl SnapshotTransfer {
    /// Creates a reader that starts at the beginning of the snapshot.
    pub(super) fn reader(self: &Arc<Self>) -> TransferReader {
        let mut inner = self.inner.lock();
        inner.last_reader += 1;
        let number = inner.last_reader;
        inner.readers.insert(number, 0);
        TransferReader {
            transfer: Arc::clone(self),
            number,
        }
    }

    /// Creates a late reader, if nothing has been written yet.
    pub(super) fn late_reader(self: &Arc<Self>) -> Option<TransferReader> {
        let is_early = {
            let inner = self.inner.lock();
            inner.written == 0 && inner.ended.is_none() && !inner.readers.is_empty()
        };
        is_early.then(|| self.reader())
    }

    /// Returns the number of readers.
    pub(super) fn readers(&self) -> usize {
        self.inner.lock().readers.len()
    }

    /// Sets the snapshot to cancel when no reader is left.
    pub(super) fn set_running(&self, running: Arc<Running>) {
        let mut inner = self.inner.lock();
        if inner.readers.is_empty() {
            running.cancel();
        } else {
            inner.running = Some(running);
        }
    }

    /// Writes the next data; blocks while the slowest reader is too far behind, so threads that serve
    /// connections must not call it.
    pub(super) fn write(&self, bytes: Bytes) -> io::Result<()> {
        let mut inner = self.inner.lock();
        while !inner.readers.is_empty() && inner.ended.is_none() {
            let slowest = inner.readers.values().min().copied().unwrap_or(0);
            if inner.written - slowest <= WINDOW_BYTES {
                break;
            }
            self.room.wait_for(&mut inner, LOOK);
        }
        if inner.readers.is_empty() || inner.ended.is_some() {
            return Err(io::Error::other("no replica is waiting for it any more"));
        }
        inner.written += bytes.len() as u64;
        let behind = inner.written;
        inner.pieces.push_back((behind, bytes));
        drop(inner);
        self.changed.open();
        Ok(())
    }

    /// Ends the transfer, complete or not.
    pub(super) fn end(&self, is_whole: bool) {
        let mut inner = self.inner.lock();
        inner.ended.get_or_insert(match is_whole {
            true => TransferOutcome::Whole,
            false => TransferOutcome::Broken,
        });
        inner.running = None;
        drop(inner);
        self.changed.open();
    }
}

/// A reader of a transfer.
pub(super) struct TransferReader {
    transfer: Arc<SnapshotTransfer>,
    number: u64,
}

impl TransferReader {
    /// Returns the next data, which is kept until [`TransferReader::advance`].
    pub(super) fn peek(&self) -> TransferData {
        let inner = self.transfer.inner.lock();
        let at = inner.readers.get(&self.number).copied().unwrap_or(0);
        let first = inner.pieces.partition_point(|(behind, _)| *behind <= at);
        match (inner.pieces.get(first), inner.ended) {
            (_, Some(TransferOutcome::Broken)) => TransferData::Broken,
            (Some((behind, piece)), _) => {
                let left = (behind - at) as usize;
                TransferData::Bytes(piece.slice(piece.len() - left..))
            }
            (None, Some(TransferOutcome::Whole)) => TransferData::End,
            (None, None) => TransferData::Nothing,
        }
    }

    /// True if the reader has taken any data.
    pub(super) fn has_begun(&self) -> bool {
        let inner = self.transfer.inner.lock();
        inner.readers.get(&self.number).is_some_and(|at| *at > 0)
    }

    /// Advances over bytes that were taken.
    pub(super) fn advance(&self, bytes: u64) {
        let mut inner = self.transfer.inner.lock();
        if let Some(at) = inner.readers.get_mut(&self.number) {
            *at += bytes;
        }
        self.transfer.drop_read(&mut inner);
    }

    /// Completes once there is data or an end.
    pub(super) fn poll_readable(&self, cx: &mut Context<'_>) -> Poll<()> {
        let holds = || self.peek() != TransferData::Nothing;
        match holds() {
            true => Poll::Ready(()),
            false => self.transfer.changed.poll_next(cx, holds),
        }
    }
}

impl SnapshotTransfer {
    fn drop_read(&self, inner: &mut TransferState) {
        let slowest = inner.readers.values().min().copied();
        let slowest = slowest.unwrap_or(u64::MAX);
        while inner
            .pieces
            .front()
            .is_some_and(|(behind, _)| *behind <= slowest)
        {
            inner.pieces.pop_front();
        }
        self.room.notify_all();
    }
}

impl Drop for TransferReader {
    fn drop(&mut self) {
        let mut inner = self.transfer.inner.lock();
        inner.readers.remove(&self.number);
        self.transfer.drop_read(&mut inner);
        if inner.readers.is_empty()
            && inner.ended.is_none()
            && let Some(running) = inner.running.take()
        {
            drop(inner);
            tracing::info!("Diskless rdb transfer, last replica dropped, killing fork child.");
            running.cancel();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn bytes(found: TransferData) -> Vec<u8> {
        match found {
            TransferData::Bytes(bytes) => bytes.to_vec(),
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn readers_read_at_their_own_pace_and_what_all_have_is_dropped() {
        let transfer = Arc::<SnapshotTransfer>::default();
        let (first, second) = (transfer.reader(), transfer.reader());
        transfer.write(Bytes::from_static(b"abc")).expect("room");
        transfer.write(Bytes::from_static(b"def")).expect("room");
        assert_eq!(bytes(first.peek()), b"abc");
        first.advance(2);
        assert_eq!(bytes(first.peek()), b"c");
        first.advance(4);
        assert_eq!(first.peek(), TransferData::Nothing);
        assert_eq!(transfer.inner.lock().pieces.len(), 2);
        second.advance(3);
        assert_eq!(transfer.inner.lock().pieces.len(), 1);
        transfer.end(true);
        assert_eq!(
            (bytes(second.peek()), first.peek()),
            (b"def".to_vec(), TransferData::End)
        );
    }

    #[test]
    fn a_writer_waits_for_the_slowest_and_for_nobody_when_all_are_gone() {
        let transfer = Arc::<SnapshotTransfer>::default();
        let (slow, fast) = (transfer.reader(), transfer.reader());
        let whole = Bytes::from(vec![b'x'; 2 * WINDOW_BYTES as usize]);
        transfer.write(whole).expect("room");
        fast.advance(2 * WINDOW_BYTES);
        let writer = Arc::clone(&transfer);
        let thread = std::thread::spawn(move || writer.write(Bytes::from_static(b"y")).is_ok());
        std::thread::sleep(Duration::from_millis(20));
        assert!(!thread.is_finished());
        slow.advance(WINDOW_BYTES);
        assert!(thread.join().expect("no panic"));
        drop(slow);
        drop(fast);
        assert!(transfer.write(Bytes::from_static(b"z")).is_err());
    }

    #[test]
    fn what_broke_is_worth_nothing_even_if_some_is_left() {
        let transfer = Arc::<SnapshotTransfer>::default();
        let reader = transfer.reader();
        transfer.write(Bytes::from_static(b"abc")).expect("room");
        transfer.end(false);
        transfer.end(true);
        assert_eq!(reader.peek(), TransferData::Broken);
    }
}
