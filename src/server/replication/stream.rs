//! The stream of this server, as both halves of replication see it: the backlog, and the ids that it goes by.
//!
//! Ids and offsets are read and changed together, under one lock, which is never held while anything waits.

use std::sync::Arc;
use std::sync::atomic::{AtomicI64, AtomicU64, Ordering::Relaxed};
use std::sync::mpsc;
use std::time::Duration;

use bytes::Bytes;
use parking_lot::Mutex;
use tokio::sync::{MutexGuard as AsyncGuard, watch};

use super::backlog::{AtMark, Backlog};
use super::history::History;
use crate::persist::oplog::OpLog;
use crate::persist::snapshot::{Fields, Origin};
use basalt_commands::command::host::primary::StreamFacts;
use basalt_engine::effect::Interest;
use basalt_engine::record::{self, Audience, Head, Log as _, Records};

/// Who feeds a stream.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Source {
    /// No writer: what is written is not part of the stream.
    Nobody,
    /// The log.
    Log,
    /// The link to the primary.
    Link,
}

/// How long a snapshot waits to know where in the stream it stands. The log takes milliseconds.
const MARK_PATIENCE: Duration = Duration::from_secs(5);

/// See the module.
pub struct Stream {
    /// The newest bytes.
    pub backlog: Arc<Backlog>,
    history: Mutex<History>,
    interest: Arc<Interest>,
    log: Arc<OpLog>,
    db: AtomicU64,
    /// Changed with all shards in hand.
    source: Mutex<Source>,
    /// Held while what came from the primary is applied and appended, and while a cut is made: data and offset agree
    /// then.
    applying: tokio::sync::Mutex<()>,
    /// Changes of the role that were asked for and are not made.
    changes: watch::Sender<usize>,
}

impl Stream {
    /// An empty one, which nothing feeds. What it keeps for slow replicas alone is told.
    pub fn new(
        interest: Arc<Interest>,
        log: Arc<OpLog>,
        kept_bytes: &Arc<AtomicI64>,
    ) -> Arc<Stream> {
        let backlog = Arc::new(Backlog::telling(kept_bytes));
        log.subscribe(Arc::clone(&backlog) as _);
        Arc::new(Stream {
            backlog,
            history: Mutex::default(),
            interest,
            log,
            db: AtomicU64::new(0),
            source: Mutex::new(Source::Nobody),
            applying: tokio::sync::Mutex::default(),
            changes: watch::channel(0).0,
        })
    }

    /// The ids, and where the stream is.
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

    /// Whether the bytes from an offset on, of the stream with this id, are those of this one.
    pub fn covers(&self, id: &str, offset: u64) -> bool {
        self.history.lock().covers(id, offset)
    }

    /// Who feeds it.
    pub fn source(&self) -> Source {
        *self.source.lock()
    }

    /// The data are now those of another stream, up to an offset, from which on [`Stream::append`] goes on.
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

    /// The primary goes on from here under another id.
    pub fn continue_as(&self, id: &str) {
        let mut history = self.history.lock();
        let next = self.backlog.end() + 1;
        history.follow(id, next);
    }

    /// Appends what came from the primary, as it came.
    pub fn append(&self, bytes: Bytes) {
        self.backlog.append(bytes);
    }

    /// Gives the stream an id of its own, as this server writes it from here on.
    pub fn branch(&self) {
        let mut history = self.history.lock();
        let next = self.backlog.end() + 1;
        history.branch(next);
    }

    /// Begins a stream that no replica knows.
    pub fn renew(&self) {
        *self.history.lock() = History::new();
    }

    /// The database that the primary's stream has selected at its end.
    pub fn set_db(&self, db: usize) {
        self.db.store(db as u64, Relaxed);
    }

    /// The database that the primary's stream has selected at its end.
    pub fn db(&self) -> usize {
        self.db.load(Relaxed) as usize
    }

    /// Waits until what came from the primary is applied and appended in whole units, and keeps it so.
    pub async fn at_rest(&self) -> AsyncGuard<'_, ()> {
        self.applying.lock().await
    }

    /// With all shards in hand: has the log feed the stream from here on, and keeps what comes.
    pub fn feed_from_here(&self, at_mark: AtMark) {
        let number = self.backlog.feed_from(at_mark);
        *self.source.lock() = Source::Log;
        self.interest.set_listening(Audience::REPLICAS, true);
        self.log.mark(Audience::REPLICAS, number);
    }

    /// With all shards in hand: has the log feed the stream no more from here on, but another source, or none.
    pub fn feed_until_here(&self, next: Source, at_mark: AtMark) {
        let number = self.backlog.feed_until(next != Source::Nobody, at_mark);
        *self.source.lock() = next;
        self.interest.set_listening(Audience::REPLICAS, false);
        self.log.mark(Audience::REPLICAS, number);
    }

    /// With all shards in hand, and what came from a primary at rest: tells the offset at which the data are those of
    /// the stream. A source feeds it from here on, if none did.
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

    /// Appends a command that concerns the link and no data: it comes in its turn, and is in no database.
    pub fn tell(&self, arguments: &[&[u8]]) -> u64 {
        let mut records = Records::default();
        let head = Head {
            stamp: 0,
            db: record::ANY_DB,
            audience: Audience::REPLICAS,
        };
        records.push_bytes(head, arguments);
        self.log.append(&mut records, false)
    }

    /// Makes all that was appended to the log by now part of the stream.
    pub fn catch_up(&self) {
        if self.source() == Source::Log {
            self.log.hand_out();
        }
    }

    /// Has writers go on that waited for somebody who read the stream too slowly.
    pub fn look_at_readers(&self) {
        self.log.look_at_readers();
    }

    /// The position behind all that was appended to the log.
    pub fn log_tail(&self) -> u64 {
        self.log.tail()
    }

    /// A change of the role is asked for.
    pub fn begin_change(&self) {
        self.changes.send_modify(|count| *count += 1);
    }

    /// The change of the role that was asked for is made.
    pub fn end_change(&self) {
        self.changes.send_modify(|count| *count -= 1);
    }

    /// Whether the role is the one that was asked for last.
    pub fn is_settled(&self) -> bool {
        *self.changes.borrow() == 0
    }

    /// Waits until the role is the one that was asked for last.
    pub async fn settled(&self) {
        let mut changes = self.changes.subscribe();
        // The sender is here.
        let _ = changes.wait_for(|count| *count == 0).await;
    }

    /// Starts the log, which marks go through; nothing if it runs.
    pub fn start(&self) -> std::io::Result<()> {
        self.log.start()
    }
}

/// What a snapshot says of where it stands.
fn fields(id: &str, offset: u64, db: u64) -> Vec<(&'static str, String)> {
    vec![
        ("repl-stream-db", db.to_string()),
        ("repl-id", id.to_owned()),
        ("repl-offset", offset.to_string()),
    ]
}

impl Origin for Stream {
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
                // What follows the mark begins with SELECT.
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
        let stream = Stream::new(Arc::default(), Arc::default(), &Arc::default());
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
