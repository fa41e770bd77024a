//! What the slow log and the latency monitor are told of commands that were run.
//!
//! A command that waits is told of when it has its reply, with the time that it ran and not that it waited. One that
//! a transaction runs is told of by itself.

use std::sync::atomic::Ordering::Relaxed;

use super::Session;
use super::batch::{Batch, Plan};
use crate::command::Args;
use crate::command::declaration::{Command, Flags};
use crate::config::Config;
use crate::engine::Now;
use crate::shard::transaction::{Aftermath, Transaction};
use crate::telemetry::clock::Ticks;
use crate::telemetry::{counters, latency, slowlog};

/// How long a request ran that waits.
pub(super) struct Waited {
    ran_ns: u64,
    /// Its wait counts as well, from then on.
    counts_from: Option<Ticks>,
}

impl Session {
    /// Notes a command that was run.
    #[inline]
    pub(super) fn note(
        &mut self,
        batch: &Batch,
        plan: &Plan,
        command: &'static Command,
        config: &Config,
        now: Now,
        duration_ns: u64,
    ) {
        self.connection
            .shared
            .last_command
            .store(command.id() as u16, Relaxed);
        if slowlog::is_slow(config, duration_ns) {
            let args = batch.args(plan);
            self.note_slow(&args, command, config, now, duration_ns / 1_000);
        }
        if latency::is_slow(config, duration_ns) {
            self.note_latency(command, config, now, duration_ns / 1_000_000);
        }
    }

    /// A request begins to wait; whether its wait is what it does (DEBUG SLEEP).
    #[cold]
    pub(super) fn begin_wait(&mut self, ran_ns: u64, wait_counts: bool) {
        self.waited = Some(Box::new(Waited {
            ran_ns,
            counts_from: wait_counts.then(Ticks::now),
        }));
    }

    /// A request that waited has its reply. It was counted when it began to wait, unless its wait is what it does.
    #[cold]
    pub(super) fn note_waited(
        &mut self,
        batch: &Batch,
        plan: &Plan,
        command: &'static Command,
        config: &Config,
        now: Now,
        failed: bool,
    ) {
        let Some(waited) = self.waited.take() else {
            return;
        };
        let counters = counters::local().command(command);
        let mut duration_ns = waited.ran_ns;
        if let Some(since) = waited.counts_from {
            duration_ns += Ticks::now().since_ns(since);
            counters.ran(duration_ns, failed);
        } else {
            counters.failed.add(u64::from(failed));
        }
        self.note(batch, plan, command, config, now, duration_ns);
    }

    /// Notes those commands of a transaction that took long, or that are looked at for hot keys. No shard may be in hand.
    pub(super) fn note_steps(
        &self,
        transaction: &Transaction,
        aftermath: &Aftermath,
        config: &Config,
        now: Now,
    ) {
        let Some(seldom) = &aftermath.seldom else {
            return;
        };
        let mut slow = seldom.slow.iter().peekable();
        let mut chosen = seldom.chosen.iter().peekable();
        if slow.peek().is_none() && chosen.peek().is_none() {
            return;
        }
        for (index, (command, args)) in transaction.commands().enumerate() {
            if let Some((_, duration_ns, reply_bytes)) = chosen.next_if(|(step, ..)| *step == index)
            {
                self.note_hot(&args, *duration_ns, *reply_bytes);
            }
            let Some((_, duration_ns)) = slow.next_if(|(step, _)| *step == index) else {
                continue;
            };
            if slowlog::is_slow(config, *duration_ns) {
                self.note_slow(&args, command, config, now, duration_ns / 1_000);
            }
            if latency::is_slow(config, *duration_ns) {
                self.note_latency(command, config, now, duration_ns / 1_000_000);
            }
        }
    }

    /// Lets a command that was chosen for it count for its keys.
    #[cold]
    #[inline(never)]
    pub(super) fn note_hot(&self, args: &Args<'_>, duration_ns: u64, reply_bytes: usize) {
        /// Of an argument, beside its bytes.
        const FRAME_BYTES: usize = 5;
        let received: usize = args
            .from(0)
            .map(|argument| argument.len() + FRAME_BYTES)
            .sum();
        let bytes = (received + reply_bytes) as u64;
        let keys = args.keys().iter().map(|routed| args.key_of(routed));
        let hot_keys = &self.service().telemetry.hot_keys;
        hot_keys.add(counters::local(), keys, duration_ns, bytes);
    }

    /// Tells the latency monitor of a command that reached its threshold.
    #[cold]
    fn note_latency(&self, command: &'static Command, config: &Config, now: Now, duration_ms: u64) {
        let event = if command.flags.has(Flags::FAST) {
            latency::FAST_COMMAND
        } else {
            latency::COMMAND
        };
        self.service()
            .telemetry
            .latency
            .note(config, event, now.unix_ms / 1_000, duration_ms);
    }

    /// Puts a slow command into the slow log; what a sensitive one was told stays out of it.
    #[cold]
    fn note_slow(
        &self,
        args: &Args<'_>,
        command: &'static Command,
        config: &Config,
        now: Now,
        duration_us: u64,
    ) {
        if command.flags.has(Flags::SKIP_SLOWLOG) {
            return;
        }
        let shared = &self.connection.shared;
        self.service().slowlog.add(
            config,
            now.unix_ms / 1_000,
            duration_us,
            args.from(0).enumerate().map(|(index, argument)| {
                match command.is_secret(args, index) {
                    true => b"(redacted)",
                    false => argument,
                }
            }),
            &shared.address,
            &shared.labels().name,
        );
    }
}
