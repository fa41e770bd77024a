//! The two connections of a replica that receives the snapshot through one and the stream through the other.
//!
//! ```text
//! Valkey   snapshot's connection ▸ offset and client id ▸ the other one names that id and requests what follows
//! Redis    stream's connection ▸ client id ▸ the snapshot's one names that id ▸ the stream follows automatically
//! ```
//!
//! The stream after the snapshot is kept in the pair until the stream's connection takes it. When the stream's
//! connection closes, the snapshot's connection ends, too, and so does its snapshot.

use std::sync::Arc;
use std::task::{Context, Poll};

use atomic_waker::AtomicWaker;
use parking_lot::Mutex;

use crate::replication::backlog::Cursor;
use basalt_commands::command::host::primary::ReplicaChannel;

/// State of one of the two connections.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum ChannelState {
    /// The connection has not been opened yet.
    Awaited,
    There,
    /// The connection has closed, or is done.
    Gone,
}

struct DualChannelState {
    /// Cursor of the stream after the snapshot, until the stream's connection takes it.
    cursor: Option<Cursor>,
    main: ChannelState,
    rdb: ChannelState,
}

struct DualChannelPair {
    state: Mutex<DualChannelState>,
    /// Waker of the stream's connection.
    waker: AtomicWaker,
}

/// A connection's role in the pair.
pub(super) struct Seat {
    pair: Arc<DualChannelPair>,
    pub channel: ReplicaChannel,
}

impl DualChannelState {
    fn half(&mut self, channel: ReplicaChannel) -> &mut ChannelState {
        match channel {
            ReplicaChannel::Main(_) => &mut self.main,
            ReplicaChannel::Rdb(_) => &mut self.rdb,
        }
    }
}

impl Seat {
    /// Creates a pair, and returns the seat of its first connection.
    pub(super) fn first(channel: ReplicaChannel) -> Seat {
        let mut state = DualChannelState {
            cursor: None,
            main: ChannelState::Awaited,
            rdb: ChannelState::Awaited,
        };
        *state.half(channel) = ChannelState::There;
        Seat {
            pair: Arc::new(DualChannelPair {
                state: Mutex::new(state),
                waker: AtomicWaker::new(),
            }),
            channel,
        }
    }

    /// Returns the seat for the second connection, if it is awaited.
    pub(super) fn second(&self) -> Option<Seat> {
        let channel = match self.channel {
            ReplicaChannel::Main(words) => ReplicaChannel::Rdb(words),
            ReplicaChannel::Rdb(words) => ReplicaChannel::Main(words),
        };
        let mut state = self.pair.state.lock();
        let is_there = *state.half(self.channel) == ChannelState::There;
        let half = state.half(channel);
        if !is_there || *half != ChannelState::Awaited {
            return None;
        }
        *half = ChannelState::There;
        Some(Seat {
            pair: Arc::clone(&self.pair),
            channel,
        })
    }

    /// True if the snapshot is sent through this connection.
    pub(super) fn is_rdb(&self) -> bool {
        matches!(self.channel, ReplicaChannel::Rdb(_))
    }

    /// Returns the state of the other connection.
    pub(super) fn other(&self) -> ChannelState {
        let state = self.pair.state.lock();
        match self.channel {
            ReplicaChannel::Main(_) => state.rdb,
            ReplicaChannel::Rdb(_) => state.main,
        }
    }

    /// Keeps the stream after the snapshot for the stream's connection.
    pub(super) fn put(&self, cursor: Cursor) {
        let mut state = self.pair.state.lock();
        state.cursor = (state.main != ChannelState::Gone).then_some(cursor);
        drop(state);
        self.pair.waker.wake();
    }

    /// Takes the cursor of the stream after the snapshot; returns it only once.
    pub(super) fn take(&self) -> Option<Cursor> {
        self.pair.state.lock().cursor.take()
    }

    /// True if the snapshot's stream offset is known, but the stream's connection has not arrived yet.
    pub(super) fn awaits_main(&self) -> bool {
        let state = self.pair.state.lock();
        state.cursor.is_some() && state.main == ChannelState::Awaited
    }

    /// True if the stream's connection has not taken the cursor yet; if the snapshot's connection closed now,
    /// it would be lost.
    pub(super) fn keeps(&self) -> bool {
        self.pair.state.lock().cursor.is_some()
    }

    /// Completes when the cursor of the stream can be taken.
    pub(super) fn poll_put(&self, cx: &mut Context<'_>) -> Poll<()> {
        self.pair.waker.register(cx.waker());
        match self.pair.state.lock().cursor.is_some() {
            true => Poll::Ready(()),
            false => Poll::Pending,
        }
    }

    /// Returns the bytes of the stream that are kept for the stream's connection.
    pub(super) fn kept_bytes(&self) -> u64 {
        let state = self.pair.state.lock();
        state.cursor.as_ref().map_or(0, Cursor::behind_bytes)
    }

    /// Leaves the pair, as the connection closes. The kept stream is dropped, because no other connection can take
    /// it any more.
    pub(super) fn leave(&self) {
        let mut state = self.pair.state.lock();
        *state.half(self.channel) = ChannelState::Gone;
        state.cursor = None;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::replication::backlog::Backlog;
    use basalt_commands::command::host::primary::Words;

    #[test]
    fn one_keeps_for_the_other_what_follows_and_nothing_is_kept_when_one_goes() {
        let backlog = Arc::<Backlog>::default();
        backlog.set_size(10);
        backlog.keep(true);
        backlog.append(bytes::Bytes::from_static(b"abc"));
        let cursor = || backlog.cursor(2).expect("it is there");
        let rdb = Seat::first(ReplicaChannel::Rdb(Words::Valkey));
        assert!(rdb.is_rdb() && !rdb.awaits_main() && rdb.other() == ChannelState::Awaited);
        rdb.put(cursor());
        assert!(rdb.awaits_main() && rdb.kept_bytes() == 2);
        let main = rdb.second().expect("it is awaited");
        assert!(
            !rdb.awaits_main() && rdb.keeps(),
            "it came and took nothing"
        );
        assert!(rdb.second().is_none() && main.second().is_none());
        assert_eq!(main.channel, ReplicaChannel::Main(Words::Valkey));
        assert_eq!(main.take().map(|cursor| cursor.next()), Some(2));
        assert!(main.take().is_none() && !rdb.keeps());
        main.leave();
        assert_eq!(
            (rdb.other(), main.other()),
            (ChannelState::Gone, ChannelState::There)
        );
        rdb.put(cursor());
        assert_eq!(rdb.kept_bytes(), 0);

        let main = Seat::first(ReplicaChannel::Main(Words::Redis));
        main.leave();
        assert!(main.second().is_none(), "nobody is there to come to");
    }
}
