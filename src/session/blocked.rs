//! A request that ran and has no reply yet: what it waits for, and how it goes on.

use std::sync::Arc;

use super::Session;
use super::batch::Batch;
use crate::client::registry::{Unblocked, WaitState};
use crate::command::context::Block;
use crate::engine::Now;
use crate::shard::blocking::Waiter;
use crate::shard::message::Message;
use crate::telemetry::errors;

/// What a connection waits for.
pub(super) enum Blocked {
    /// For its time to end, or CLIENT UNBLOCK.
    For(Block),
    /// For a key as well.
    On(Arc<Waiter>),
}

/// How it goes on.
pub(super) enum Going {
    /// The reply is written; whether it is an error, of which the statistics know.
    Answered {
        /// It is.
        failed: bool,
    },
    /// Not before this Unix time in milliseconds, or a nudge.
    Waits(u64),
}

/// How soon to look again at a wait that ended by its time while somebody was about to serve it.
const SOON_MS: u64 = 1;

impl Session {
    /// Goes on with the request that the connection is blocked in, as far as that is possible.
    #[cold]
    pub(super) fn go_on(&mut self, batch: &mut Batch, blocked: Blocked, now: Now) -> Going {
        let (until_ms, on_timeout) = match &blocked {
            Blocked::For(block) => (block.until_ms, block.on_timeout),
            Blocked::On(waiter) => (waiter.wait().until_ms, waiter.wait().on_timeout),
        };
        let mark = batch.out.position();
        if let Blocked::On(waiter) = &blocked
            && waiter.state() == WaitState::Served
        {
            self.connection.shared.end();
            let mut failed = false;
            if let Some(mut served) = waiter.take_reply() {
                batch.out.append(&mut served.out);
                self.connection.stamp = self.connection.stamp.max(served.stamp);
                failed = served.failed;
                if failed {
                    errors::note(batch.out.since(mark));
                }
            }
            // Whoever served it had some of its shards in hand only.
            if waiter.shards().len() > 1 {
                self.leave_queues(waiter, now);
            }
            self.apply_reply_mode(&mut batch.out, mark);
            return Going::Answered { failed };
        }
        // Times are whole milliseconds, cut off: only the one after the last is never before the time that was asked for.
        let end_ms = until_ms.map(|until_ms| until_ms.saturating_add(1));
        let is_late = end_ms.is_some_and(|end_ms| end_ms <= now.unix_ms);
        let Some(unblocked) = self.connection.shared.unblocked(is_late) else {
            self.blocked = Some(blocked);
            return Going::Waits(match is_late {
                true => now.unix_ms + SOON_MS,
                false => end_ms.unwrap_or(u64::MAX),
            });
        };
        if let Blocked::On(waiter) = &blocked {
            self.leave_queues(waiter, now);
        }
        match unblocked {
            Unblocked::TimedOut => on_timeout(&mut batch.out),
            Unblocked::WithError => batch
                .out
                .error("UNBLOCKED client unblocked via CLIENT UNBLOCK"),
        }
        let failed = matches!(unblocked, Unblocked::WithError);
        if failed {
            errors::note(batch.out.since(mark));
        }
        self.apply_reply_mode(&mut batch.out, mark);
        Going::Answered { failed }
    }

    /// Whether the reply is there that the connection waits for. What others have for it may tell of changes that the
    /// reply does not know of, and must stand behind it then.
    pub fn is_served(&self) -> bool {
        matches!(&self.blocked, Some(Blocked::On(waiter)) if waiter.state() == WaitState::Served)
    }

    /// The connection ends: nobody may serve it any more, and those behind it in the queues move up.
    pub fn end(&mut self, now: Now) {
        self.discard(now);
        self.service.pubsub.forget(&self.connection.shared);
        if let Some(Blocked::On(waiter)) = self.blocked.take() {
            self.connection.shared.unblock(Unblocked::TimedOut);
            self.connection.shared.end();
            self.leave_queues(&waiter, now);
        }
    }

    fn leave_queues(&self, waiter: &Arc<Waiter>, now: Now) {
        for shard in waiter.shards() {
            self.service
                .shards
                .submit(Message::leave(waiter, shard, now));
        }
    }
}
