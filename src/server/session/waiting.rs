//! A blocked request, which has run and has no reply yet: its wait and its completion.

use std::ops::ControlFlow::{Break, Continue};
use std::sync::Arc;

use super::batch::Request;
use super::turn::Turn;
use super::{Flow, Session, Step};
use crate::shard::blocking::BlockedRequest;
use crate::shard::job::task;
use basalt_commands::client::shared::{Unblocked, WaitState};
use basalt_commands::command::Out;
use basalt_commands::command::context::Block;
use basalt_commands::command::declaration::CommandResult;
use basalt_commands::command::error::write_failure;

/// The wait of a connection.
pub(super) enum Blocked {
    /// A wait until a timeout, CLIENT UNBLOCK, or a condition, without keys.
    For(Block),
    /// A wait until a key is available, or a timeout or CLIENT UNBLOCK.
    On(Arc<BlockedRequest>),
}

/// Milliseconds until the retry of a wait that timed out while another thread was about to serve it.
const SOON_MS: u64 = 1;

impl Session {
    /// Continues the request that the connection is blocked in, as far as possible. No shard may be locked.
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

    /// Takes the reply of a served request and returns whether the reply is an error; returns `None` if the
    /// request must be refused, because its user may no longer run it.
    fn take_served(&mut self, turn: &mut Turn<'_>, waiter: &Arc<BlockedRequest>) -> Option<bool> {
        self.connection.shared.end();
        let mut failed = Some(false);
        if let Some(mut served) = waiter.take_reply() {
            turn.batch.out.append(&mut served.out);
            self.learn(&served.client);
            failed = (!served.is_denied).then_some(served.failed);
        }
        // The serving thread had locked only some of the request's shards: leave the queues of the others.
        if waiter.shards().len() > 1 {
            self.leave_queues(waiter);
        }
        failed
    }

    /// Ends a wait that was not served, if it is over, and returns whether the reply is an error. If it is not over,
    /// returns as `Err` the time when the task must wake up, in Unix milliseconds.
    fn end_of_time(&mut self, turn: &mut Turn<'_>, blocked: &Blocked) -> Result<bool, u64> {
        let (until_ms, on_timeout) = match blocked {
            Blocked::For(block) => (block.until_ms, block.on_timeout),
            Blocked::On(waiter) => (waiter.wait().until_ms, waiter.wait().on_timeout),
        };
        let now_ms = turn.now.unix_ms;
        // Times are truncated to whole milliseconds: only the next one is certain not to precede the requested time.
        let end_ms = until_ms.map(|until_ms| until_ms.saturating_add(1));
        let is_late = end_ms.is_some_and(|end_ms| end_ms <= now_ms);
        let unblocked = self.connection.shared.unblocked(is_late);
        if let (None, Blocked::For(block)) = (unblocked, blocked)
            && let Some(result) = self.look(block, false, &mut turn.batch.out)
        {
            // A concurrent CLIENT UNBLOCK comes too late, yet its sender is told that it succeeded.
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
                self.must_close = true;
                // A client that is told where to continue repeats the request there if it has no reply.
                let shared = &self.connection.shared;
                let is_told = self.service.pubsub.gets_notifications(shared);
                if !is_told {
                    out.error(
                        "UNBLOCKED force unblock from blocking operation, instance state changed (master -> replica?)",
                    );
                }
                !is_told
            }
        })
    }

    /// Checks the condition that the client waits for, besides the timeout. If it is met (or `is_over`, the
    /// timeout has passed), writes the reply and returns its result.
    fn look(&self, block: &Block, is_over: bool, out: &mut Out) -> Option<CommandResult> {
        let look = block.look?;
        let server = self.service.server();
        (look.has_come)(server, &self.connection, look.wanted, is_over, out)
    }

    /// Returns whether the awaited reply has arrived. If so, push messages must be sent after the reply,
    /// because they may report later changes.
    pub fn is_served(&self) -> bool {
        matches!(self.blocked.as_deref(), Some(Blocked::On(waiter)) if waiter.state() == WaitState::Served)
    }

    /// Ends the state of a closing connection: no thread may serve its blocked request any more, and the
    /// clients queued after it move up.
    pub fn end(&mut self) {
        self.discard();
        self.service.pubsub.forget(&self.connection.shared);
        if let Some(Blocked::On(waiter)) = self.blocked.take().as_deref() {
            self.connection.shared.unblock(Unblocked::TimedOut);
            self.connection.shared.end();
            self.leave_queues(waiter);
        }
    }

    fn leave_queues(&self, waiter: &Arc<BlockedRequest>) {
        for shard in waiter.shards() {
            self.service.shards.submit(task::forget(waiter, shard));
        }
    }
}
