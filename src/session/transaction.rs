//! MULTI, EXEC, DISCARD, WATCH and UNWATCH: what is queued, and what runs it.
//!
//! EXEC takes the shards of all queued commands and of all watched keys at once, as any command over several shards
//! does: tried a few times, then the whole transaction travels as a message.

use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;

use super::batch::{Batch, Plan};
use super::{Ran, SPINS, SPINS_ALL, Session, TRIES_ALL};
use crate::command::Out;
use crate::command::context::{After, ShardPlace};
use crate::command::declaration::{Command, Flags, Run, TransactionVerb};
use crate::command::error::CommandError;
use crate::config::Config;
use crate::engine::{Deferred, Engine, Now};
use crate::shard::message::{Message, Parts, TransactionRun};
use crate::shard::transaction::{Aftermath, Stage, Transaction, Watched};
use crate::telemetry::{counters, errors};

/// What a connection that has begun to watch or to queue keeps of it.
#[derive(Default)]
pub(super) struct Pending {
    /// What is queued, and what is watched.
    transaction: Transaction,
    /// MULTI was sent.
    is_open: bool,
    /// A command was refused when it should have been queued.
    is_spoiled: bool,
    /// So many watched keys are looked through for those that are there twice.
    merges_at: usize,
}

/// Watched keys that are too few to be looked through.
const WATCHED_MIN: usize = 64;

impl Pending {
    /// What is queued.
    pub(super) fn transaction(&self) -> &Transaction {
        &self.transaction
    }
}

impl Session {
    /// A command was refused: a transaction that is being queued will not run.
    pub(super) fn spoil_transaction(&mut self) {
        if let Some(pending) = &mut self.pending {
            pending.is_spoiled |= pending.is_open;
        }
    }

    /// Whether a command is queued by a transaction, so that nothing can hold it back before EXEC.
    pub(super) fn is_queueing(&self, command: &Command) -> bool {
        self.is_open() && is_queued(command)
    }

    pub(super) fn is_open(&self) -> bool {
        self.pending.as_ref().is_some_and(|pending| pending.is_open)
    }

    /// Deals with a command while something is watched or queued, or that has to do with that; nothing if it is to
    /// run as any other.
    #[cold]
    pub(super) fn transact(
        &mut self,
        batch: &mut Batch,
        plan: &Plan,
        command: &'static Command,
        config: &Arc<Config>,
        now: Now,
    ) -> Option<Ran> {
        let is_open = self.is_open();
        if let (true, Some(text)) = (is_open, self.busy_with_script(command)) {
            if matches!(command.run, Run::Transaction(TransactionVerb::Exec)) {
                self.discard(now);
                let text = format!("EXECABORT Transaction discarded because of: {text}");
                return Some(error(batch, &text));
            }
            self.spoil_transaction();
            return Some(error(batch, text));
        }
        if is_open && command.flags.has(Flags::NO_MULTI) {
            self.spoil_transaction();
            batch
                .out
                .error("ERR Command not allowed inside a transaction");
            return Some(Ran::Yes { failed: true });
        }
        if is_open && is_queued(command) {
            let is_unwatch = matches!(command.run, Run::Transaction(_));
            if !is_unwatch && self.service.budget.is_out_of_memory() {
                self.spoil_transaction();
                batch.out.error(CommandError::OutOfMemory.text().as_bytes());
                return Some(Ran::Refused);
            }
            return Some(self.enqueue(batch, plan, command, config));
        }
        let verb = match command.run {
            Run::Transaction(verb) => verb,
            // WATCH runs as any other command, and is noted afterwards; RESET and QUIT end what was begun.
            Run::Keys(_) if !is_open => return None,
            Run::Keys(_) => {
                return Some(error(batch, "ERR WATCH inside MULTI is not allowed"));
            }
            _ => {
                if command.flags.has(Flags::TRANSACTIONAL) {
                    self.discard(now);
                }
                return None;
            }
        };
        Some(match verb {
            TransactionVerb::Multi if is_open => error(batch, "ERR MULTI calls can not be nested"),
            TransactionVerb::Multi => {
                self.pending.get_or_insert_default().is_open = true;
                batch.out.ok();
                Ran::Yes { failed: false }
            }
            TransactionVerb::Exec if !is_open => error(batch, "ERR EXEC without MULTI"),
            TransactionVerb::Exec => self.exec(batch, plan, command, config, now),
            TransactionVerb::Discard if !is_open => error(batch, "ERR DISCARD without MULTI"),
            TransactionVerb::Discard | TransactionVerb::Unwatch => {
                self.discard(now);
                batch.out.ok();
                Ran::Yes { failed: false }
            }
        })
    }

    fn enqueue(
        &mut self,
        batch: &mut Batch,
        plan: &Plan,
        command: &'static Command,
        config: &Config,
    ) -> Ran {
        let Some(pending) = &mut self.pending else {
            unreachable!("a transaction is open")
        };
        if !pending.is_spoiled {
            pending.transaction.push(command, &batch.args(plan));
            if pending.transaction.memory_bytes() as u64 > config.client_query_buffer_limit {
                self.must_close = true;
                return Ran::Then(After::Close);
            }
        }
        batch.out.simple("QUEUED");
        Ran::Yes { failed: false }
    }

    /// Tells others what the connection queues and watches.
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

    /// Notes what WATCH has just begun to watch.
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
        // Whoever watches the same keys over and over is not to fill the memory with that.
        let watched = &mut pending.transaction.watched;
        if watched.len() >= pending.merges_at {
            Watched::merge(watched);
            pending.merges_at = watched.len() * 2 + WATCHED_MIN;
        }
    }

    /// Forgets what is queued and what is watched.
    pub(super) fn discard(&mut self, now: Now) {
        let Some(pending) = self.pending.take() else {
            return;
        };
        self.unwatch(pending.transaction.watched, now);
    }

    /// Has the shards forget what was watched; nobody awaits that.
    pub(super) fn unwatch(&self, mut watched: Vec<Watched>, now: Now) {
        watched.sort_by_key(|watched| watched.shard);
        for group in watched.chunk_by(|one, other| one.shard == other.shard) {
            let shard = group[0].shard;
            let config = self.service.config.load_full();
            let message = Message::unwatch(group.to_vec(), shard, now, &config);
            self.service.shards.submit(message);
        }
    }

    fn exec(
        &mut self,
        batch: &mut Batch,
        plan: &Plan,
        command: &'static Command,
        config: &Arc<Config>,
        now: Now,
    ) -> Ran {
        let Some(pending) = self.pending.take() else {
            unreachable!("a transaction is open")
        };
        let mut transaction = pending.transaction;
        if pending.is_spoiled {
            self.unwatch(transaction.watched, now);
            return error(
                batch,
                "EXECABORT Transaction discarded because of previous errors.",
            );
        }
        if config.lacks_replicas() && transaction.writes() {
            self.unwatch(transaction.watched, now);
            let why = CommandError::NoReplicas;
            let text = format!("EXECABORT Transaction discarded because of: {}", why.text());
            return error(batch, &text);
        }
        let hot_keys = &self.service.telemetry.hot_keys;
        transaction.look_at(hot_keys.choose(counters::local(), transaction.len()));
        if transaction.has_scripts() || transaction.is_long() {
            return self.exec_unit(batch, plan, (command, transaction), config, now);
        }
        let shards = &self.service.shards;
        let count = shards.len() as u16;
        let wanted = transaction.shards(count);
        let server = self.service.server();
        let mut stage = Some(Stage {
            connection: &mut self.connection,
            server,
            scripts: &self.service.scripts,
            config,
            renewed: None,
            now,
            shard_count: count,
        });
        let mut is_heavy = false;
        let mut run = |engines: &mut [&mut Engine], out: &mut Out| {
            let db = stage.as_ref()?.connection.db;
            if transaction.may_be_heavy(engines, db) {
                is_heavy = true;
                return None;
            }
            let stage = stage.take()?;
            Some(transaction.run(engines, stage, out))
        };
        let done: Option<Aftermath> = match *wanted.as_slice() {
            [] => run(&mut [], &mut batch.out),
            [shard] => shards.take_spinning(shard, SPINS).and_then(|mut held| {
                let done = run(&mut [&mut held], &mut batch.out);
                batch.deferred.append(&mut held.deferred);
                done
            }),
            _ => (0..TRIES_ALL)
                .find_map(|_| {
                    let Some(mut all) = shards.try_take_all(&wanted) else {
                        (0..SPINS_ALL).for_each(|_| std::hint::spin_loop());
                        return None;
                    };
                    let mut hands = all.hands();
                    let mut engines: Vec<&mut Engine> =
                        hands.iter().map(|(_, engine)| engine).collect();
                    let done = run(&mut engines, &mut batch.out);
                    for engine in engines {
                        batch.deferred.append(&mut engine.deferred);
                    }
                    Some(done)
                })
                .flatten(),
        };
        batch.deferred.settle();
        if is_heavy {
            // As a unit it can be undone where it turns out to be, and run where nobody waits for the thread.
            return self.exec_unit(batch, plan, (command, transaction), config, now);
        }
        if let Some(aftermath) = done {
            let Batch { out, deferred, .. } = batch;
            return self.after_exec(&transaction, aftermath, (out, deferred), config, now);
        }
        let out = Out::new(self.connection.protocol);
        let args = batch.args(plan);
        let (message, ticket) = Message::new(Parts {
            shards: &wanted,
            place: ShardPlace {
                index: wanted[0],
                count,
            },
            transaction: Some(Box::new(TransactionRun {
                transaction,
                connection: self.connection.clone(),
                server,
                scripts: &self.service.scripts,
                aftermath: Aftermath::default(),
                unit: None,
            })),
            ..Parts::new(command, &args, self.view(), now, config, out)
        });
        shards.submit(message);
        Ran::Queued(ticket)
    }

    /// Does what a transaction left to be done besides its reply, which stands in `out`. No shard may be in hand.
    pub(super) fn after_exec(
        &mut self,
        transaction: &Transaction,
        mut aftermath: Aftermath,
        (out, deferred): (&mut Out, &mut Deferred),
        config: &Config,
        now: Now,
    ) -> Ran {
        if aftermath.was_run {
            self.show_transaction(transaction, &aftermath, &mut deferred.wakes);
        }
        let places = self.run_postponed(transaction, &mut aftermath, deferred);
        let renewed = matches!(aftermath.after, After::Configured);
        if renewed {
            self.service.server().follow_config();
        }
        let renewed = renewed.then(|| self.service.config.load_full());
        self.note_steps(
            transaction,
            &aftermath,
            renewed.as_deref().unwrap_or(config),
            now,
        );
        let publications = std::mem::take(&mut aftermath.publications);
        publications.finish(&self.service.pubsub, places, out, &mut deferred.wakes);
        Self::after_unit(aftermath)
    }

    /// What a transaction or a script wants of the session.
    pub(super) fn after_unit(aftermath: Aftermath) -> Ran {
        if aftermath.was_refused {
            return Ran::Refused;
        }
        if let Some(seldom) = &aftermath.seldom {
            seldom.errors.iter().for_each(|text| errors::note(text));
        }
        Ran::Then(aftermath.after)
    }
}

/// Whether an open transaction queues a command, rather than doing it at once.
fn is_queued(command: &Command) -> bool {
    !command.flags.has(Flags::TRANSACTIONAL)
        || matches!(command.run, Run::Transaction(TransactionVerb::Unwatch))
}

fn error(batch: &mut Batch, text: &str) -> Ran {
    batch.out.error(text);
    Ran::Yes { failed: true }
}
