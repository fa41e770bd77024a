//! MULTI, EXEC, DISCARD, WATCH and UNWATCH: queued commands and watched keys.

use std::sync::atomic::Ordering::Relaxed;

use super::batch::{Batch, Plan, Request};
use super::turn::Turn;
use super::{Ran, Session};
use crate::shard::job::task;
use crate::shard::unit::transaction::Transaction;
use basalt_commands::cluster::route::SlotOf;
use basalt_commands::command::context::After;
use basalt_commands::command::declaration::{Command, Flags, Run, TransactionVerb};
use basalt_commands::command::transaction::exec_abort;
use basalt_engine::watching::Watched;

/// Transaction state of a connection that watches keys or queues commands.
#[derive(Default)]
pub(super) struct MultiState {
    /// Queued commands and watched keys.
    transaction: Transaction,
    /// True after MULTI, until EXEC or DISCARD.
    is_open: bool,
    /// True if a command was refused instead of queued, so that EXEC aborts.
    is_spoiled: bool,
    /// The database selected by the last queued SELECT, if any.
    db: Option<usize>,
}

impl MultiState {
    /// Returns the queued transaction.
    pub(super) fn transaction(&self) -> &Transaction {
        &self.transaction
    }
}

impl Session {
    /// Marks an open transaction as failed after a refused command: EXEC will abort.
    pub(super) fn spoil_transaction(&mut self) {
        if let Some(pending) = &mut self.pending {
            pending.is_spoiled |= pending.is_open;
        }
    }

    /// Returns whether MULTI is open and queues this command, so that nothing delays the command before EXEC.
    pub(super) fn is_queueing(&self, command: &Command) -> bool {
        self.is_open() && is_queued(command)
    }

    /// Returns the memory of queued commands and watched keys, in bytes.
    pub(super) fn queued_bytes(&self) -> usize {
        let pending = self.pending.as_ref();
        pending.map_or(0, |pending| pending.transaction.memory_bytes())
    }

    pub(super) fn is_open(&self) -> bool {
        self.pending.as_ref().is_some_and(|pending| pending.is_open)
    }

    /// Returns the database in which the next command will run, considering queued SELECT commands.
    pub(super) fn db(&self) -> usize {
        let queued = self.pending.as_ref().and_then(|pending| pending.db);
        queued.unwrap_or(self.connection.db)
    }

    /// Handles a command while keys are watched or commands queued, or one that concerns transactions; returns
    /// `None` if the command is to run like any other. No shard may be locked.
    #[cold]
    pub(super) fn transact(&mut self, turn: &mut Turn<'_>, request: Request<'_>) -> Option<Ran> {
        let is_open = self.is_open();
        if is_open && is_queued(request.command) {
            return Some(self.enqueue(turn, request));
        }
        let verb = match request.command.run {
            Run::Transaction(verb) => verb,
            // WATCH runs like any other command, and its keys are recorded afterwards; RESET and QUIT end the
            // transaction.
            Run::Keys(_) if !is_open => return None,
            Run::Keys(_) => {
                return Some(error(turn, "ERR WATCH inside MULTI is not allowed"));
            }
            _ => {
                if request.command.flags.has(Flags::TRANSACTIONAL) {
                    self.discard();
                }
                return None;
            }
        };
        Some(match verb {
            TransactionVerb::Multi if is_open => error(turn, "ERR MULTI calls can not be nested"),
            TransactionVerb::Multi => {
                self.pending.get_or_insert_default().is_open = true;
                turn.batch.out.ok();
                Ran::Answered { failed: false }
            }
            TransactionVerb::Exec if !is_open => error(turn, "ERR EXEC without MULTI"),
            TransactionVerb::Exec => self.exec(turn, request),
            TransactionVerb::Discard if !is_open => error(turn, "ERR DISCARD without MULTI"),
            TransactionVerb::Discard | TransactionVerb::Unwatch => {
                self.discard();
                turn.batch.out.ok();
                Ran::Answered { failed: false }
            }
        })
    }

    fn enqueue(&mut self, turn: &mut Turn<'_>, request: Request<'_>) -> Ran {
        let Some(pending) = &mut self.pending else {
            unreachable!("a transaction is open")
        };
        if !pending.is_spoiled {
            let args = turn.batch.args(request.plan);
            pending.transaction.push(request.command, &args);
            pending
                .transaction
                .note_slot(request.plan.slot, request.command);
            if request.command.flags.has(Flags::SELECTS_DB) {
                let number = args.integer(1).ok();
                pending.db = number.and_then(|number| usize::try_from(number).ok());
            }
            let bytes = pending.transaction.memory_bytes() as u64;
            let is_limited = !self.connection.origin.replays();
            if is_limited && bytes > turn.config.client_query_buffer_limit {
                self.must_close = true;
                self.service.clients.overfed.fetch_add(1, Relaxed);
                return Ran::Then(After::Close);
            }
        }
        turn.batch.out.simple("QUEUED");
        Ran::Answered { failed: false }
    }

    /// Publishes the numbers of queued commands and watched keys, for CLIENT LIST.
    pub fn note_pending(&self) {
        let shared = &self.connection.shared;
        let (mut bytes, mut queued) = (0, -1);
        if let Some(pending) = &self.pending {
            bytes = pending.transaction.memory_bytes();
            if pending.is_open {
                queued = i32::try_from(pending.transaction.len()).unwrap_or(i32::MAX);
            }
        } else if shared.queued_bytes.load(Relaxed) == 0 && shared.queued.load(Relaxed) < 0 {
            return;
        }
        shared.queued_bytes.store(bytes, Relaxed);
        shared.queued.store(queued, Relaxed);
    }

    /// Records the keys that WATCH has just begun to watch.
    pub(super) fn note_watched(&mut self, batch: &Batch, plan: &Plan) {
        let args = batch.args(plan);
        let pending = self.pending.get_or_insert_default();
        for routed in args.keys() {
            pending.transaction.watch(Watched {
                db: self.connection.db,
                key: args.get(routed.argument as usize).into(),
                hash: routed.hash,
                shard: routed.shard,
                stamp: self.connection.stamp,
                times: 1,
            });
        }
        let count = pending.transaction.watched.len();
        self.connection.shared.watched.store(count, Relaxed);
    }

    /// Removes and returns the queued commands and watched keys.
    fn take_pending(&mut self) -> Option<Box<MultiState>> {
        self.connection.shared.watched.store(0, Relaxed);
        self.pending.take()
    }

    /// Drops the queued commands and watched keys.
    pub(super) fn discard(&mut self) {
        if let Some(pending) = self.take_pending() {
            self.unwatch(pending.transaction.watched);
        }
    }

    /// Submits tasks that remove the watches from the shards, without waiting for the tasks.
    pub(super) fn unwatch(&self, mut watched: Vec<Watched>) {
        watched.sort_by_key(|watched| watched.shard);
        for group in watched.chunk_by(|one, other| one.shard == other.shard) {
            let task = task::unwatch(group.to_vec(), group[0].shard);
            self.service.shards.submit(task);
        }
    }

    fn exec(&mut self, turn: &mut Turn<'_>, request: Request<'_>) -> Ran {
        let permit = self.permit(turn, request);
        let queued = self.pending.as_ref().filter(|pending| !pending.is_spoiled);
        let judged = queued.map_or(Ok(()), |pending| {
            let candidate = pending.transaction.candidate(&self.service.scripts);
            self.judge_transaction(turn.config, candidate)
        });
        let Some(pending) = self.take_pending() else {
            unreachable!("a transaction is open")
        };
        let mut transaction = pending.transaction;
        transaction.permit = permit;
        turn.transaction_slot = SlotOf::NONE;
        if pending.is_spoiled {
            self.unwatch(transaction.watched);
            return error(
                turn,
                "EXECABORT Transaction discarded because of previous errors.",
            );
        }
        if let Err(why) = judged {
            self.unwatch(transaction.watched);
            return error(turn, exec_abort(why.text().as_bytes()));
        }
        let hot_keys = &self.service.telemetry.hot_keys;
        (turn.transaction_slot, _) = transaction.slot();
        transaction.sample(hot_keys.choose(turn.counters, transaction.len()));
        self.run_transaction(turn, transaction)
    }
}

/// Returns whether an open transaction queues a command, rather than executing it at once.
fn is_queued(command: &Command) -> bool {
    !command.flags.has(Flags::TRANSACTIONAL)
        || matches!(command.run, Run::Transaction(TransactionVerb::Unwatch))
}

fn error(turn: &mut Turn<'_>, text: impl AsRef<[u8]>) -> Ran {
    turn.batch.out.error(text);
    Ran::Answered { failed: true }
}
