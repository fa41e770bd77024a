//! A request that ran and has no reply yet: what it waits for, and how it goes on.

use std::ops::ControlFlow::{Break, Continue};
use std::sync::Arc;

use super::batch::Request;
use super::turn::Turn;
use super::{Flow, Session, Step};
use crate::shard::blocking::Waiter;
use crate::shard::job::task;
use basalt_commands::client::shared::{Unblocked, WaitState};
use basalt_commands::command::Out;
use basalt_commands::command::context::Block;
use basalt_commands::command::declaration::CommandResult;
use basalt_commands::command::error::write_failure;

/// What a connection waits for.
pub(super) enum Blocked {
    /// For its time to end, or CLIENT UNBLOCK.
    For(Block),
    /// For a key as well.
    On(Arc<Waiter>),
}

/// How soon to look again at a wait that ended by its time while somebody was about to serve it.
const SOON_MS: u64 = 1;

impl Session {
    /// Goes on with the request that the connection is blocked in, as far as that is possible. No shard is in hand.
    #[cold]
    pub(super) fn end_wait(&mut self, turn: &mut Turn<'_>, request: Request<'_>) -> Flow {
        let Some(blocked) = self.blocked.take() else {
            return Continue(());
        };
        let mark = turn.batch.out.position();
        let served = match &*blocked {
            Blocked::On(waiter) if waiter.state() == WaitState::Served => Some(waiter),
            _ => None,
        };
        let failed = match served {
            Some(waiter) => match self.take_served(turn, waiter) {
                Some(failed) => failed,
                None => {
                    self.refuse_served(turn, request);
                    turn.batch.next += 1;
                    return Continue(());
                }
            },
            None => match self.end_of_time(turn, &blocked) {
                Ok(failed) => failed,
                Err(until_ms) => {
                    self.blocked = Some(blocked);
                    return Break(Step::SleepUntil(until_ms));
                }
            },
        };
        self.finish_wait(turn, request, (mark, failed));
        match self.must_close {
            true => Break(Step::Close),
            false => Continue(()),
        }
    }

    /// Takes the reply of a request that was served; whether it is an error. None: it is yet to be refused.
    fn take_served(&mut self, turn: &mut Turn<'_>, waiter: &Arc<Waiter>) -> Option<bool> {
        self.connection.shared.end();
        let mut failed = Some(false);
        if let Some(mut served) = waiter.take_reply() {
            turn.batch.out.append(&mut served.out);
            self.learn(&served.client);
            failed = (!served.is_denied).then_some(served.failed);
        }
        // The thread that served it had some of its shards in hand only.
        if waiter.shards().len() > 1 {
            self.leave_queues(waiter);
        }
        failed
    }

    /// The end of a wait without what it waited for; whether the reply is an error. Or the Unix time in milliseconds
    /// until which it goes on, unless it is nudged.
    fn end_of_time(&mut self, turn: &mut Turn<'_>, blocked: &Blocked) -> Result<bool, u64> {
        let (until_ms, on_timeout) = match blocked {
            Blocked::For(block) => (block.until_ms, block.on_timeout),
            Blocked::On(waiter) => (waiter.wait().until_ms, waiter.wait().on_timeout),
        };
        let now_ms = turn.now.unix_ms;
        // Times are whole milliseconds, cut off: only the one after the last is never before the time that was asked
        // for.
        let end_ms = until_ms.map(|until_ms| until_ms.saturating_add(1));
        let is_late = end_ms.is_some_and(|end_ms| end_ms <= now_ms);
        let unblocked = self.connection.shared.unblocked(is_late);
        if let (None, Blocked::For(block)) = (unblocked, blocked)
            && let Some(result) = self.look(block, false, &mut turn.batch.out)
        {
            // A client that ends it otherwise at this moment is too late, but is answered that it did.
            let _ = self.connection.shared.unblocked(true);
            return Ok(write_failure(result, &mut turn.batch.out));
        }
        let Some(unblocked) = unblocked else {
            return Err(match is_late {
                true => now_ms + SOON_MS,
                false => end_ms.unwrap_or(u64::MAX),
            });
        };
        if let Blocked::On(waiter) = blocked {
            self.leave_queues(waiter);
        }
        let out = &mut turn.batch.out;
        Ok(match unblocked {
            Unblocked::TimedOut => match blocked {
                Blocked::For(block) if block.look.is_some() => {
                    let result = self.look(block, true, out);
                    write_failure(result.unwrap_or(Ok(())), out)
                }
                _ => {
                    on_timeout(out);
                    false
                }
            },
            Unblocked::WithError => {
                out.error("UNBLOCKED client unblocked via CLIENT UNBLOCK");
                true
            }
            Unblocked::Redirected => {
                let text = match blocked {
                    Blocked::On(waiter) => waiter.redirection(turn.config),
                    Blocked::For(_) => None,
                };
                turn.batch.out.error(text.unwrap_or_default());
                true
            }
            Unblocked::RoleChanged => {
                out.error(
                    "UNBLOCKED force unblock from blocking operation, instance state changed (master -> replica?)",
                );
                self.must_close = true;
                true
            }
        })
    }

    /// Whether what it waits for has come, besides the end of its time; the reply is written then.
    fn look(&self, block: &Block, is_over: bool, out: &mut Out) -> Option<CommandResult> {
        let look = block.look?;
        let server = self.service.server();
        (look.has_come)(server, &self.connection, look.wanted, is_over, out)
    }

    /// Whether the reply is there that the connection waits for. What others have for it may tell of changes that the
    /// reply does not know of, and must stand behind it then.
    pub fn is_served(&self) -> bool {
        matches!(self.blocked.as_deref(), Some(Blocked::On(waiter)) if waiter.state() == WaitState::Served)
    }

    /// The connection ends: no thread may serve it any more, and those behind it in the queues move up.
    pub fn end(&mut self) {
        self.discard();
        self.service.pubsub.forget(&self.connection.shared);
        if let Some(Blocked::On(waiter)) = self.blocked.take().as_deref() {
            self.connection.shared.unblock(Unblocked::TimedOut);
            self.connection.shared.end();
            self.leave_queues(waiter);
        }
    }

    fn leave_queues(&self, waiter: &Arc<Waiter>) {
        for shard in waiter.shards() {
            self.service.shards.submit(task::forget(waiter, shard));
        }
    }
}
