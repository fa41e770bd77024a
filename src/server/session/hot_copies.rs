//! Reads of hot keys, answered from copies.
//!
//! Each thread keeps copies of the few strings that it reads most ([`hot_keys`]), and answers from
//! them without a shard's token and without writing to memory that other threads read. A string is copied when it was
//! read in the ordinary way, while its shard is locked, together with a
//! [`Validity`](basalt_core::structures::copies::Validity) that every later change of the key ends first. A copy that
//! is still current was therefore read before the change, in every order that anybody can observe; a connection that
//! has changed the key itself, or was told of a change, finds the copy ended.
//!
//! One read in 256 goes the ordinary way, so that eviction learns that the key is in use. So do all reads of clients
//! with client-side caching, and those on connections of other servers.

use super::batch::{self, Request};
use super::hot_keys::{self, HotCopy, ReadVerdict, VALUE_BYTES_MAX};
use super::turn::Turn;
use super::{Ran, Session};
use basalt_commands::command::declaration::CopyReply;

impl Session {
    /// Runs a command on the shard of its key, for a thread with hot keys: answers from a copy if there is a current
    /// one.
    #[inline(never)]
    pub(super) fn on_hot_shard(
        &mut self,
        turn: &mut Turn<'_>,
        request: Request<'_>,
        shard: u16,
    ) -> Ran {
        let Some(reply) = self.copy_reply(turn, request) else {
            return self.on_shard_apart(turn, request, shard, None);
        };
        match self.answer_from_copy(turn, request, reply) {
            ReadVerdict::Answered => return Ran::Answered { failed: false },
            ReadVerdict::Ordinary => return self.on_shard_apart(turn, request, shard, None),
            ReadVerdict::Copies => {}
        }
        let ran = self.on_shard_apart(turn, request, shard, None);
        if let Ran::Answered { failed: false } = ran {
            self.copy_value(turn, request);
        }
        ran
    }

    /// Returns what a copy would have to answer; `None` if the command must run in the ordinary way.
    fn copy_reply(&self, turn: &Turn<'_>, request: Request<'_>) -> Option<CopyReply> {
        let is_ordinary =
            turn.is_observed || self.connection.tracks || self.replays() || !turn.config.hot_copies;
        let reply = request.command.copy_reply(&turn.batch.args(request.plan));
        reply.filter(|_| !is_ordinary)
    }

    /// Answers from a copy of the key's string, if this thread has one that is current.
    fn answer_from_copy(
        &mut self,
        turn: &mut Turn<'_>,
        request: Request<'_>,
        reply: CopyReply,
    ) -> ReadVerdict {
        let (db, now_ms) = (self.connection.db, turn.now.unix_ms);
        let batch::BatchParts { args, out, .. } = turn.batch.parts(request.plan);
        let routes = turn.routes.as_ref();
        let seen = hot_keys::with(|copies| {
            let copy = match copies.judge(db, &args.key(1), now_ms) {
                (ReadVerdict::Answered, Some(copy)) => copy,
                (verdict, _) => return Err(verdict),
            };
            // Asked after the copy, so that the slot was this node's at a moment when the copy was current.
            if routes.is_some_and(|routes| !routes.are_settled(request.plan.slot)) {
                return Err(ReadVerdict::Ordinary);
            }
            let bytes = copy.read();
            match reply {
                CopyReply::Value => out.bulk(bytes),
                CopyReply::Length => out.integer(bytes.len() as i64),
                CopyReply::Presence => out.integer(1),
            }
            Ok(copy.seen())
        });
        match seen {
            Ok(seen) => {
                let connection = &mut self.connection;
                connection.stamp = connection.stamp.max(seen.stamp);
                connection.position = connection.position.max(seen.position);
                if seen.log_position != 0 {
                    connection.shared.see_log(seen.log_position);
                }
                ReadVerdict::Answered
            }
            Err(verdict) => verdict,
        }
    }

    /// Copies the string that a command has just read; its shard is still locked.
    #[cold]
    fn copy_value(&self, turn: &mut Turn<'_>, request: Request<'_>) {
        let (db, now) = (self.connection.db, turn.now);
        let copied = turn.copy_text(request.plan, db, VALUE_BYTES_MAX);
        let key = turn.batch.args(request.plan).key(1);
        hot_keys::with(|copies| {
            match copied {
                Some(text) => {
                    let reads = turn.counters.hot_copies.reads_of(db);
                    copies.keep(db, &key, HotCopy::new(text, reads, now.unix_ms));
                }
                None => copies.put_off(db, &key, now.unix_ms),
            }
            copies.publish(turn.counters);
        });
    }
}
