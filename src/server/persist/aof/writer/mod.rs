//! Appends log records to the file of commands, whole records or none. The threads that call it belong to the
//! parent module. A stretch is a sequence of whole records that were taken from the log together.
//!
//! Unwritten records stay queued, and a partially written stretch is truncated, so that the file ends with whole
//! records whenever possible. Records before a marker go to the file before it, which is synced before the next
//! file is written to: so a crash never leaves a gap between two files.

use std::collections::VecDeque;
use std::io::{self, IoSlice};
use std::sync::Arc;
use std::time::{Duration, Instant};

use bytes::Bytes;

use crate::persist::files::File;
use crate::persist::oplog::{OpLogItem, Stretch};

/// Maximum number of slices per system call.
const PIECES_MAX: usize = 512;

/// An entry of the queue of unwritten data.
enum Queued {
    Bytes(Bytes),
    /// End of a stretch: every record before this log position is earlier in the queue.
    End(u64),
    /// Marker with this number, at this log position: later records go to the next file.
    Mark(u64, u64),
}

/// An operation that failed during a flush.
#[derive(Debug)]
pub enum AofFlushError {
    /// Writing to the file.
    Write(io::Error),
    /// Syncing a file before switching to the next one.
    Sync(io::Error),
}

impl AofFlushError {
    /// Returns the underlying error.
    pub fn into_error(self) -> io::Error {
        match self {
            AofFlushError::Write(error) | AofFlushError::Sync(error) => error,
        }
    }
}

/// Writer of log records to the file of commands, with a queue; see the module.
#[derive(Default)]
pub struct AofWriter {
    file: Option<Arc<dyn File>>,
    /// Identifies the current file among all used so far.
    generation: u64,
    /// Length of the file, in bytes, up to the end of the last whole stretch.
    len: u64,
    queue: VecDeque<Queued>,
    queued_bytes: u64,
    /// Written part of the first queued stretch: number of whole queue entries, and bytes of the next entry.
    cursor: (usize, usize),
    written: u64,
    /// Number of the expected marker, and the file to switch to there.
    next: Option<(u64, Arc<dyn File>)>,
    /// Unix second of the last timestamp annotation in the file.
    noted_s: u64,
    /// Whether writing is on hold; records stay queued.
    is_held: bool,
    /// Whether queued records were dropped and no new file has begun since.
    has_gap: bool,
    /// Duration of the sync at the last marker, until `AofWriter::take_sync_time` takes it.
    spent: Option<Duration>,
}

impl AofWriter {
    /// Clears the queue, and appends records pushed from now on to `file`, after its first `len` bytes.
    pub fn open(&mut self, file: Arc<dyn File>, len: u64) {
        self.queue.clear();
        self.queued_bytes = 0;
        self.next = None;
        self.use_file(file, len);
        self.noted_s = 0;
        self.is_held = false;
        self.has_gap = false;
    }

    /// Clears the queue and releases the file.
    pub fn close(&mut self) {
        self.queue.clear();
        self.queued_bytes = 0;
        self.next = None;
        self.file = None;
        self.cursor = (0, 0);
        self.generation += 1;
    }

    fn use_file(&mut self, file: Arc<dyn File>, len: u64) {
        self.file = Some(file);
        self.len = len;
        self.cursor = (0, 0);
        self.generation += 1;
    }

    /// Returns the current file, its generation, and the log position before which everything is written.
    pub fn file(&self) -> Option<(Arc<dyn File>, u64, u64)> {
        let file = self.file.as_ref()?;
        Some((Arc::clone(file), self.generation, self.written))
    }

    /// Returns the log position before which everything is written.
    pub fn written(&self) -> u64 {
        self.written
    }

    /// Returns the bytes of the file, whole stretches only.
    pub fn file_bytes(&self) -> u64 {
        self.len
    }

    /// Returns the number of queued bytes.
    pub fn queued_bytes(&self) -> u64 {
        self.queued_bytes
    }

    /// True if the queue is empty.
    pub fn is_idle(&self) -> bool {
        self.queue.is_empty()
    }

    /// True if the writer expects a marker that it has not reached yet.
    pub fn awaits_mark(&self) -> bool {
        self.next.is_some()
    }

    /// Sets the empty file for the records after the marker `number`.
    pub fn expect_mark(&mut self, number: u64, file: Arc<dyn File>) {
        self.next = Some((number, file));
    }

    /// Puts writing on hold because earlier writes may be lost: further records would follow a gap.
    pub fn hold(&mut self) {
        self.is_held = true;
    }

    /// True if writing is on hold.
    pub fn is_held(&self) -> bool {
        self.is_held
    }

    /// Queues a stretch of records, preceded by a timestamp annotation if `now_s` is given.
    pub fn push(&mut self, stretch: Stretch, now_s: Option<u64>) {
        let mut is_noted = false;
        for item in stretch.items {
            match item {
                OpLogItem::Bytes(bytes, _) => {
                    if let Some(now_s) = now_s.filter(|now_s| *now_s > self.noted_s && !is_noted) {
                        self.noted_s = now_s;
                        self.queue_bytes(Bytes::from(format!("#TS:{now_s}\r\n")));
                    }
                    is_noted = true;
                    self.queue_bytes(bytes);
                }
                OpLogItem::Mark(number, position) => {
                    self.queue.push_back(Queued::End(position));
                    self.queue.push_back(Queued::Mark(number, position));
                    self.noted_s = 0;
                    is_noted = false;
                }
            }
        }
        self.queue.push_back(Queued::End(stretch.position));
    }

    fn queue_bytes(&mut self, bytes: Bytes) {
        self.queued_bytes += bytes.len() as u64;
        self.queue.push_back(Queued::Bytes(bytes));
    }

    /// Drops everything queued before a marker and continues after it in the next file: the caller has a base
    /// that contains the dropped records. The writer is on hold until that base counts ([`AofWriter::release`]).
    /// Returns false if the marker has not arrived yet.
    pub fn skip_to_mark(&mut self, number: u64) -> bool {
        let found = self
            .queue
            .iter()
            .position(|queued| matches!(queued, Queued::Mark(one, _) if *one == number));
        let Some(found) = found else {
            return false;
        };
        for queued in self.queue.drain(..=found) {
            match queued {
                Queued::Bytes(bytes) => self.queued_bytes -= bytes.len() as u64,
                Queued::End(position) | Queued::Mark(_, position) => self.written = position,
            }
        }
        self.pass_mark(number);
        self.is_held = true;
        true
    }

    /// Returns how long the last flush took to sync a file before switching to the next one; `None` if it did
    /// not switch.
    pub fn take_sync_time(&mut self) -> Option<Duration> {
        self.spent.take()
    }

    /// Resumes writing, unless the records would follow a gap.
    pub fn release(&mut self) {
        self.is_held = self.has_gap;
    }

    fn pass_mark(&mut self, number: u64) {
        if let Some((_, file)) = self.next.take_if(|(one, _)| *one == number) {
            self.use_file(file, 0);
            self.has_gap = false;
        }
    }

    /// True if records were dropped. Only a rewrite whose cut comes after them makes the file complete again.
    pub fn has_gap(&self) -> bool {
        self.has_gap
    }

    /// Drops the queue, and writes nothing more until a rewrite that begins after this call has succeeded. A
    /// running rewrite does not suffice: its cut may precede the dropped records.
    pub fn forget(&mut self) {
        self.queue.retain(|queued| matches!(queued, Queued::End(_)));
        self.queued_bytes = 0;
        self.cursor = (0, 0);
        self.next = None;
        self.is_held = true;
        self.has_gap = true;
    }

    /// Writes all queued records to the file.
    pub fn flush(&mut self) -> Result<(), AofFlushError> {
        self.flush_telling(&mut |_| ())
    }

    /// Does the same as [`AofWriter::flush`], and before each system call passes the number of bytes still queued
    /// to `tell`.
    pub fn flush_telling(&mut self, tell: &mut dyn FnMut(u64)) -> Result<(), AofFlushError> {
        if self.is_held {
            return Ok(());
        }
        loop {
            self.pass_ends();
            tell(self.queued_bytes);
            match self.queue.get(self.cursor.0) {
                None => return Ok(()),
                Some(Queued::Mark(number, position)) => {
                    let (number, position) = (*number, *position);
                    if self.next.as_ref().is_some_and(|(one, _)| *one == number)
                        && let Some(file) = &self.file
                    {
                        let began = Instant::now();
                        let synced = file.sync();
                        self.spent = Some(began.elapsed());
                        synced.map_err(AofFlushError::Sync)?;
                    }
                    self.queue.drain(..=self.cursor.0);
                    self.cursor = (0, 0);
                    self.written = position;
                    self.pass_mark(number);
                }
                Some(_) => self.write_some()?,
            }
        }
    }

    /// Removes the written stretches at the front of the queue and updates the written position.
    fn pass_ends(&mut self) {
        while let Some(Queued::End(position)) = self.queue.get(self.cursor.0) {
            self.written = *position;
            for queued in self.queue.drain(..=self.cursor.0) {
                if let Queued::Bytes(bytes) = queued {
                    self.len += bytes.len() as u64;
                    self.queued_bytes -= bytes.len() as u64;
                }
            }
            self.cursor = (0, 0);
        }
    }

    /// Makes one system call, for records before the next marker.
    fn write_some(&mut self) -> Result<(), AofFlushError> {
        let Some(file) = self.file.clone() else {
            // No file is open: drop the records.
            self.cursor.0 = self.queue.len();
            self.queue
                .retain(|queued| !matches!(queued, Queued::Bytes(_)));
            self.queued_bytes = 0;
            self.cursor = (0, 0);
            return Ok(());
        };
        let (index, offset) = self.cursor;
        let mut pieces = Vec::new();
        for queued in self.queue.range(index..).take(PIECES_MAX) {
            match queued {
                Queued::Bytes(bytes) => pieces.push(IoSlice::new(bytes)),
                Queued::End(_) => {}
                Queued::Mark(..) => break,
            }
        }
        let mut pieces = &mut pieces[..];
        IoSlice::advance_slices(&mut pieces, offset);
        let result = file.write(pieces);
        match result {
            Ok(0) => Err(self.cut(&*file, io::ErrorKind::WriteZero.into())),
            Ok(count) => {
                self.advance(count);
                Ok(())
            }
            Err(error) if error.kind() == io::ErrorKind::Interrupted => Ok(()),
            Err(error) => Err(self.cut(&*file, error)),
        }
    }

    /// Moves the cursor over written bytes.
    fn advance(&mut self, mut count: usize) {
        let (mut index, mut offset) = self.cursor;
        while count > 0 {
            if let Queued::Bytes(bytes) = &self.queue[index] {
                let left = bytes.len() - offset;
                if count < left {
                    offset += count;
                    break;
                }
                count -= left;
            } else {
                // The end of a stretch: everything before it is written.
                self.cursor = (index, 0);
                self.pass_ends();
                (index, offset) = self.cursor;
                continue;
            }
            index += 1;
            offset = 0;
        }
        self.cursor = (index, offset);
    }

    /// Handles a failed write: truncates the file to whole stretches. If that fails, too, the retry continues
    /// after the bytes already written.
    fn cut(&mut self, file: &dyn File, error: io::Error) -> AofFlushError {
        if self.cursor != (0, 0) && file.truncate(self.len).is_ok() {
            self.cursor = (0, 0);
        }
        AofFlushError::Write(error)
    }
}

#[cfg(test)]
mod tests;
