//! The stream of this server, as both halves of replication see it: the backlog, and the stream's ids.
//!
//! Ids and offsets are read and changed together, under one lock, which no thread holds while it waits.

use std::sync::Arc;
use std::sync::atomic::{AtomicI64, AtomicU64, Ordering::Relaxed};
use std::sync::mpsc;
use std::time::Duration;

use bytes::Bytes;
use parking_lot::Mutex;
use tokio::sync::{MutexGuard as AsyncGuard, watch};

use super::backlog::{AtMark, Backlog};
use super::confirmation::Confirmations;
use super::history::History;
use crate::persist::oplog::OpLog;
use crate::persist::snapshot::{Fields, SnapshotSource};
use basalt_commands::command::host::primary::StreamFacts;
use basalt_engine::effect::Interest;
use basalt_engine::record::Audience;

/// Source of a stream.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Source {
    /// No source: writes are not part of the stream.
    Nobody,
    /// The command log, on a primary.
    Log,
    /// The link to the primary, on a replica.
    Link,
}

/// Maximum wait of a snapshot for its stream offset. Normally the marker arrives within milliseconds.
const MARK_PATIENCE: Duration = Duration::from_secs(5);

/// The replication stream of this server: backlog, ids and source.
pub struct ReplicationStream {
    /// The newest bytes of the stream.
    pub backlog: Arc<Backlog>,
    /// Which positions of the log replicas have confirmed.
    pub confirmations: Arc<Confirmations>,
    history: Mutex<History>,
    interest: Arc<Interest>,
    log: Arc<OpLog>,
    db: AtomicU64,
    /// Changed only while all shards are locked.
    source: Mutex<Source>,
    /// Locked while commands of the primary are applied and appended, and while a snapshot's cut is made, so
    /// that the data and the stream offset agree at the cut.
    applying: tokio::sync::Mutex<()>,
    /// Number of requested role changes not made yet.
    changes: watch::Sender<usize>,
}

impl ReplicationStream {
    /// Creates an empty stream without a source. The stream reports the memory kept only for slow replicas in
    /// `kept_bytes`.
    pub fn new(
        interest: Arc<Interest>,
        log: Arc<OpLog>,
        kept_bytes: &Arc<AtomicI64>,
    ) -> Arc<ReplicationStream> {
        let backlog = Arc::new(Backlog::telling(kept_bytes));
        log.subscribe(Arc::clone(&backlog) as _);
        let confirmations = Confirmations::new(&log, &backlog);
        Arc::new(ReplicationStream {
            backlog,
            confirmations,
            history: Mutex::default(),
            interest,
            log,
            db: AtomicU64::new(0),
            source: Mutex::new(Source::Nobody),
            applying: tokio::sync::Mutex::default(),
            changes: watch::channel(0).0,
        })
    }

    /// Returns the ids and the offsets of the stream.
    pub fn facts(&self) -> StreamFacts {
        let history = self.history.lock();
        let figures = self.backlog.figures();
        StreamFacts {
            id: history.id.clone(),
            previous: history.previous.clone(),
            offset: figures.end,
            is_kept: figures.is_active,
            first: figures.first,
            held_bytes: figures.held_bytes,
        }
    }

    /// True if the stream with this id has the same bytes as this stream from `offset` on.
    pub fn covers(&self, id: &str, offset: u64) -> bool {
        self.history.lock().covers(id, offset)
    }

    /// Returns the source of the stream.
    pub fn source(&self) -> Source {
        *self.source.lock()
    }

    /// Switches to another stream, as the data now correspond to it up to an offset; [`ReplicationStream::append`]
    /// continues from there.
    pub fn adopt(&self, id: &str, offset: u64) {
        *self.source.lock() = Source::Link;
        let mut history = self.history.lock();
        *history = History {
            id: id.to_owned(),
            previous: None,
        };
        self.backlog.keep(true);
        self.backlog.reset(offset);
    }

    /// Continues under another id from here on, as the primary does.
    pub fn continue_as(&self, id: &str) {
        let mut history = self.history.lock();
        let next = self.backlog.end() + 1;
        history.follow(id, next);
    }

    /// Appends data from the primary as received.
    pub fn append(&self, bytes: Bytes) {
        self.backlog.append(bytes);
    }

    /// Gives the stream a new id, as this server writes it from here on.
    pub fn branch(&self) {
        let mut history = self.history.lock();
        let next = self.backlog.end() + 1;
        history.branch(next);
    }

    /// Begins a stream that no replica knows.
    pub fn renew(&self) {
        *self.history.lock() = History::new();
    }

    /// Sets the database selected at the end of the primary's stream.
    pub fn set_db(&self, db: usize) {
        self.db.store(db as u64, Relaxed);
    }

    /// Returns the database selected at the end of the primary's stream.
    pub fn db(&self) -> usize {
        self.db.load(Relaxed) as usize
    }

    /// Waits until the data applied from the primary's stream equals the data appended, and keeps it so until
    /// the guard is dropped.
    pub async fn at_rest(&self) -> AsyncGuard<'_, ()> {
        self.applying.lock().await
    }

    /// Makes the log feed the stream from here on, and keeps the data. All shards must be locked.
    pub fn feed_from_here(&self, at_mark: AtMark) {
        let number = self.backlog.feed_from(at_mark);
        *self.source.lock() = Source::Log;
        self.confirmations.begin();
        self.interest.set_listening(Audience::REPLICAS, true);
        self.log.mark(Audience::REPLICAS, number);
    }

    /// Makes the log stop feeding the stream at this point; `next` is the new source. All shards must be
    /// locked.
    pub fn feed_until_here(&self, next: Source, at_mark: AtMark) {
        let number = self.backlog.feed_until(next != Source::Nobody, at_mark);
        *self.source.lock() = next;
        if next == Source::Link {
            self.confirmations.end();
        }
        self.interest.set_listening(Audience::REPLICAS, false);
        self.log.mark(Audience::REPLICAS, number);
    }

    /// Reports the stream offset that corresponds to the current data. The log feeds the stream from here on,
    /// if there was no source. All shards must be locked, and the caller must have the guard of
    /// `ReplicationStream::at_rest`.
    pub fn cut(&self, at_mark: AtMark) {
        match self.source() {
            Source::Nobody => self.feed_from_here(at_mark),
            Source::Log => {
                let number = self.backlog.expect_mark(at_mark);
                self.log.mark(Audience::REPLICAS, number);
            }
            Source::Link => at_mark(self.backlog.end()),
        }
    }

    /// Appends a command that concerns the link and not data, such as PING or REPLCONF GETACK, in order but
    /// without a SELECT. Returns the log position after it.
    pub fn tell(&self, arguments: &[&[u8]]) -> u64 {
        self.log.tell(Audience::REPLICAS, arguments)
    }

    /// Makes everything appended to the log by now part of the stream.
    pub fn catch_up(&self) {
        if self.source() == Source::Log {
            self.log.hand_out();
        }
    }

    /// Makes write commands that wait for a slow replica check again.
    pub fn look_at_readers(&self) {
        self.log.look_at_readers();
    }

    /// Returns the position after everything appended to the log.
    pub fn log_tail(&self) -> u64 {
        self.log.tail()
    }

    /// Notes that a change of the role was requested.
    pub fn begin_change(&self) {
        self.changes.send_modify(|count| *count += 1);
    }

    /// Notes that a requested change of the role was made.
    pub fn end_change(&self) {
        self.changes.send_modify(|count| *count -= 1);
    }

    /// True if the role is the one requested last.
    pub fn is_settled(&self) -> bool {
        *self.changes.borrow() == 0
    }

    /// Waits until the role is the one requested last.
    pub async fn settled(&self) {
        let mut changes = self.changes.subscribe();
        // This cannot fail: the sender lives as long as the stream.
        let _ = changes.wait_for(|count| *count == 0).await;
    }

    /// Starts the log's sequencer, unless it runs. The stream's markers travel through the log.
    pub fn start(&self) -> std::io::Result<()> {
        self.log.start()
    }
}

/// Returns the header fields with the stream position of a snapshot.
fn fields(id: &str, offset: u64, db: u64) -> Vec<(&'static str, String)> {
    vec![
        ("repl-stream-db", db.to_string()),
        ("repl-id", id.to_owned()),
        ("repl-offset", offset.to_string()),
    ]
}

impl SnapshotSource for ReplicationStream {
    fn hold(&self) -> AsyncGuard<'_, ()> {
        self.applying.blocking_lock()
    }

    fn at_cut(&self) -> Fields {
        let (id, db) = (self.facts().id, self.db.load(Relaxed));
        match self.source() {
            Source::Nobody => Box::new(Vec::new),
            Source::Link => {
                let offset = self.backlog.end();
                Box::new(move || fields(&id, offset, db))
            }
            Source::Log => {
                let (tell, told) = mpsc::channel();
                self.cut(Box::new(move |offset| {
                    let _ = tell.send(offset);
                }));
                // The data after the marker begins with SELECT, so the database does not matter.
                Box::new(move || match told.recv_timeout(MARK_PATIENCE) {
                    Ok(offset) => fields(&id, offset, 0),
                    Err(_) => Vec::new(),
                })
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ids_follow_the_role_and_offsets_go_on() {
        let stream = ReplicationStream::new(Arc::default(), Arc::default(), &Arc::default());
        let own = stream.facts().id;
        stream.backlog.set_size(10);
        stream.adopt("first", 100);
        assert!(stream.covers("first", 101) && !stream.covers(&own, 1));
        stream.append(Bytes::from_static(b"abc"));
        stream.continue_as("second");
        let facts = stream.facts();
        assert_eq!((facts.offset, facts.first, facts.held_bytes), (103, 101, 3));
        assert_eq!(facts.id, "second");
        assert_eq!(facts.previous, Some(("first".to_owned(), 104)));
        stream.branch();
        let facts = stream.facts();
        assert_eq!(facts.previous, Some(("second".to_owned(), 104)));
        assert!(facts.is_kept && stream.covers("second", 104) && !stream.covers("second", 105));
        stream.renew();
        assert!(!stream.covers("second", 104));
    }
}
