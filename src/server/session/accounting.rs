//! Bookkeeping after a command, wherever it ran: counts, slow log, latency monitor, hot keys, MONITOR, CLIENT REPLY,
//! CLIENT CACHING, WATCH.
//!
//! A blocked command is reported when it has its reply, with its run time excluding the wait. Each command of a
//! transaction is reported separately.

use std::ops::ControlFlow::{Break, Continue};
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;

use super::batch::{Failed, Request};
use super::hot_keys;
use super::turn::Turn;
use super::waiting::Blocked;
use super::{Flow, Ran, Session, Step};
use crate::shard::unit::context::UnitOutcome;
use crate::shard::unit::transaction::Transaction;
use crate::telemetry::Telemetry;
use crate::telemetry::clock::Ticks;
use crate::telemetry::hotkeys::Sampled;
use crate::telemetry::slow::{self, Reporter, SlowStep};
use crate::telemetry::{counters, errors, slowlog};
use basalt_commands::client::connection::{Origin, ReplyMode};
use basalt_commands::command::Out;
use basalt_commands::command::args::RoutedKey;
use basalt_commands::command::client::request_bytes;
use basalt_commands::command::context::After;
use basalt_commands::command::declaration::{Command, Flags, Run};
use basalt_commands::command::host::CommandLog;
use basalt_commands::command::registry::registry;
use basalt_commands::command::transaction::is_watch;
use basalt_commands::config::Config;
use basalt_commands::config::values::LoadErrors;
use basalt_core::base::lossless;
use basalt_core::resp::reply::Position;
use basalt_engine::{Key, Now};

/// Run time of a blocked request before it blocked.
pub(super) struct Waited {
    ran_ns: u64,
    /// Start of the wait, if the wait counts as run time (DEBUG SLEEP).
    counts_from: Option<Ticks>,
}

/// Figures of a command that has run.
pub(super) struct Finished {
    /// Start of the command's reply in the output.
    pub mark: Position,
    /// Run time in nanoseconds.
    pub duration_ns: u64,
    /// True if the reply is an error.
    pub failed: bool,
    /// The configuration in force after the command, if the command has changed it.
    pub config_override: Option<Arc<Config>>,
}

impl Finished {
    pub(super) fn new(mark: Position, duration_ns: u64, failed: bool) -> Finished {
        Finished {
            mark,
            duration_ns,
            failed,
            config_override: None,
        }
    }
}

/// Decides how the turn (one pass over a batch of requests) continues after a command that ran for
/// `duration_ns`: with the next command, or by yielding to other connections.
#[inline]
fn go_on(turn: &mut Turn<'_>, duration_ns: u64) -> Flow {
    match turn.is_long(duration_ns) {
        true => Break(Step::Yield),
        false => Continue(()),
    }
}

/// Carries out the action `after` that a command requested, and decides how the turn continues.
#[inline]
pub(super) fn follow(turn: &mut Turn<'_>, after: After) -> Flow {
    match after {
        After::Nothing | After::Block(_) | After::Migrate(_) | After::Await(_) => Continue(()),
        After::Configured => Break(Step::Configured),
        After::Close => Break(Step::Close),
        After::Follow(follow) => {
            turn.batch.follow = Some(follow);
            Break(Step::Follow)
        }
        After::Shutdown => Break(Step::Shutdown),
    }
}

impl Session {
    /// Accounts for a request that was dispatched, and returns how the turn continues.
    #[inline]
    pub(super) fn account(
        &mut self,
        turn: &mut Turn<'_>,
        request: Request<'_>,
        mark: Position,
        ran: Ran,
    ) -> Flow {
        let Ran::Answered { failed } = ran else {
            return self.account_other(turn, request, mark, ran);
        };
        let duration_ns = self.answered(turn, request, Finished::new(mark, 0, failed));
        go_on(turn, duration_ns)
    }

    /// Accounts for a request whose outcome is not a plain reply.
    #[inline(never)]
    fn account_other(
        &mut self,
        turn: &mut Turn<'_>,
        request: Request<'_>,
        mark: Position,
        ran: Ran,
    ) -> Flow {
        let (failed, after) = match ran {
            Ran::Answered { failed } => (failed, After::Nothing),
            Ran::Then(after) => (false, after),
            Ran::Queued(ticket) => return Break(Step::Wait(ticket)),
            Ran::Later => return Break(Step::Yield),
            Ran::Refused => {
                self.note_refused(turn, mark, request.command);
                return Continue(());
            }
            Ran::Blocked(blocked) => return self.block(turn, request, (blocked, mark)),
        };
        if let After::Block(block) = after {
            return self.block(turn, request, (Blocked::For(block), mark));
        }
        let mut finished = Finished::new(mark, 0, failed);
        if let After::Configured = after {
            finished.config_override = Some(self.service.config.load_full());
        }
        let duration_ns = self.answered(turn, request, finished);
        follow(turn, after)?;
        go_on(turn, duration_ns)
    }

    /// Accounts for a command that has just replied; returns its run time in nanoseconds.
    #[inline(always)]
    fn answered(
        &mut self,
        turn: &mut Turn<'_>,
        request: Request<'_>,
        mut finished: Finished,
    ) -> u64 {
        let duration_ns = turn.lap_ns() + std::mem::take(&mut turn.earlier_ns);
        finished.duration_ns = duration_ns;
        turn.note_hold(request.plan.route, duration_ns);
        if self.pending.is_some() && !finished.failed && self.is_queueing(request.command) {
            // A command queued by MULTI counts when it runs; only its network bytes count now.
            if turn.config.size_tracking {
                self.count_sizes(turn, request, finished.mark);
            }
            if turn.counts_slots {
                let unrun = Finished::new(finished.mark, 0, false);
                self.count_slot(turn, request, &unrun);
            }
            self.end_reply(turn, request.command, finished.mark);
        } else {
            self.finish(turn, request, &finished);
        }
        duration_ns
    }

    /// Blocks a request. The request stays the next one of the batch until it has its reply.
    #[cold]
    fn block(
        &mut self,
        turn: &mut Turn<'_>,
        request: Request<'_>,
        (blocked, mark): (Blocked, Position),
    ) -> Flow {
        turn.release();
        let duration_ns = turn.lap_ns();
        // A command whose wait is part of its run time (DEBUG SLEEP) is counted when the wait is over.
        let holds = matches!(&blocked, Blocked::For(block) if block.holds);
        if !holds {
            self.count(turn, request, &Finished::new(mark, duration_ns, false));
        }
        self.begin_wait(duration_ns, holds);
        if turn.is_monitored {
            self.show(turn, request);
        }
        if let Blocked::For(_) = blocked {
            self.connection.shared.block();
        }
        self.blocked = Some(Box::new(blocked));
        Continue(())
    }

    /// Accounts for a command that has its reply, and moves on to the next request.
    #[inline(always)]
    pub(super) fn finish(
        &mut self,
        turn: &mut Turn<'_>,
        request: Request<'_>,
        finished: &Finished,
    ) {
        if self.replays() {
            return self.finish_replayed(turn, request, finished);
        }
        self.count(turn, request, finished);
        self.tell(turn, request, finished);
        if turn.is_observed {
            self.observe(turn, request, finished);
        }
        if request.command.flags.has(Flags::TRANSACTIONAL)
            && is_watch(request.command)
            && !finished.failed
        {
            self.note_watched(turn.batch, request.plan);
        }
        self.end_reply(turn, request.command, finished.mark);
    }

    /// Counts a command for its slot and sends it to MONITOR clients, where enabled.
    #[inline(never)]
    fn observe(&self, turn: &mut Turn<'_>, request: Request<'_>, finished: &Finished) {
        if turn.counts_slots {
            self.count_slot(turn, request, finished);
        }
        if turn.is_monitored {
            turn.release();
            self.show(turn, request);
        }
    }

    #[inline]
    fn finish_replayed(&mut self, turn: &mut Turn<'_>, request: Request<'_>, finished: &Finished) {
        if self.connection.origin == Origin::Primary {
            self.count(turn, request, finished);
            self.connection.shared.count_commands(1);
        }
        if finished.failed {
            self.replay_failed(turn, Some(request.command), finished.mark);
        }
        self.end_reply(turn, request.command, finished.mark);
    }

    /// Handles the failure of a replayed command, which had succeeded where it first ran (on the primary,
    /// before a restart, or on another node).
    #[cold]
    pub(super) fn replay_failed(
        &self,
        turn: &mut Turn<'_>,
        command: Option<&Command>,
        mark: Position,
    ) {
        let reply = turn.batch.out.since(mark).to_vec();
        self.note_replay_failed(turn, command, &reply);
    }

    /// Does the same as [`Session::replay_failed`], given the error reply. After a failure in an append-only
    /// file nothing more is run, unless `aof-load-errors` allows it; after a failure in a slot migration, the
    /// migration ends.
    #[cold]
    fn note_replay_failed(&self, turn: &mut Turn<'_>, command: Option<&Command>, reply: &[u8]) {
        turn.release();
        if !self.replays() {
            return self.move_failed(command, reply);
        }
        let (name, text) = self.note_error(turn.config, command, reply);
        let batch = &mut turn.batch;
        if self.connection.origin == Origin::File
            && turn.config.aof_load_errors == LoadErrors::Stop
            && batch.failed.is_none()
        {
            batch.plans.truncate(batch.next + 1);
            batch.failed = Some(Box::new(Failed {
                command: name,
                reply: text,
            }));
        }
    }

    /// Counts and logs an error reply; returns the command's name and the error text.
    fn note_error(
        &self,
        config: &Config,
        command: Option<&Command>,
        reply: &[u8],
    ) -> (&'static str, String) {
        let text = lossless::text_of(reply);
        let text = text.trim_end().to_owned();
        let name = command.map_or("?", |command| command.full_name);
        let figures = &self.service().telemetry.replication;
        figures.note_error(self.connection.origin, config, name, &text);
        (name, text)
    }

    /// Handles failed commands of a replayed transaction, which had succeeded where it first ran.
    #[cold]
    pub(super) fn steps_failed(
        &self,
        turn: &mut Turn<'_>,
        transaction: &Transaction,
        outcome: &UnitOutcome,
    ) {
        let Some(notes) = &outcome.notes else {
            return;
        };
        for (step, reply) in &notes.failed {
            let command = transaction.commands().nth(*step);
            self.note_replay_failed(turn, command.map(|(command, _)| command), reply);
        }
    }

    /// Counts a command that ran, and samples its keys for hot keys when due.
    #[inline]
    pub(super) fn count(&self, turn: &mut Turn<'_>, request: Request<'_>, finished: &Finished) {
        let Finished {
            mark,
            duration_ns,
            failed,
            ..
        } = *finished;
        turn.counters
            .command(request.command)
            .ran(duration_ns, failed);
        if turn.counters.takes_sample() {
            self.sample(turn, request, duration_ns, mark);
        }
    }

    /// Reports a command to the error statistics, the slow log and the latency monitor.
    #[inline]
    fn tell(&mut self, turn: &mut Turn<'_>, request: Request<'_>, finished: &Finished) {
        self.connection.shared.count_commands(1);
        let duration_ns = finished.duration_ns;
        let config = finished.config_override.as_ref().unwrap_or(turn.config);
        let is_slow = slow::is_slow(config, duration_ns);
        let is_large = turn.batch.out.len_since(finished.mark) >= turn.large_from_bytes;
        if finished.failed || is_slow || is_large {
            self.tell_notable(turn, request, finished, (is_slow, is_large));
        }
    }

    /// Reports a command that failed, was slow, or may have a large request or reply.
    #[cold]
    #[inline(never)]
    fn tell_notable(
        &mut self,
        turn: &mut Turn<'_>,
        request: Request<'_>,
        finished: &Finished,
        (is_slow, is_large): (bool, bool),
    ) {
        let config = finished.config_override.as_ref().unwrap_or(turn.config);
        if config.size_tracking {
            let (request_bytes, reply_bytes) = self.count_sizes(turn, request, finished.mark);
            if !finished.failed
                && !is_slow
                && !slowlog::is_large_request(config, request_bytes)
                && !slowlog::is_large_reply(config, reply_bytes)
            {
                return;
            }
        }
        let config = Arc::clone(config);
        // Release the shard first: what follows takes a lock, and no command should wait for that while it has
        // a shard locked.
        turn.release();
        // Scripts record their errors themselves.
        if finished.failed && !matches!(request.command.run, Run::Script(_)) {
            errors::note(turn.batch.out.since(finished.mark));
        }
        if finished.failed && self.hands_off(turn, finished.mark) {
            return;
        }
        let args = turn.batch.args(request.plan);
        if is_large {
            let reporter = self.slow(&config, turn.now);
            let reply_bytes = turn.batch.out.len_since(finished.mark);
            let request_bytes = request_bytes(&args);
            for (log, bytes, is_it) in [
                (
                    CommandLog::LargeRequest,
                    request_bytes,
                    slowlog::is_large_request(&config, request_bytes),
                ),
                (
                    CommandLog::LargeReply,
                    reply_bytes,
                    slowlog::is_large_reply(&config, reply_bytes),
                ),
            ] {
                if is_it {
                    let arguments = slowlog::arguments(request.command, &args);
                    reporter.tell_large(request.command, log, bytes, arguments);
                }
            }
        }
        if !is_slow {
            return;
        }
        let slow = SlowStep {
            step: 0,
            duration_ns: finished.duration_ns,
            moment: self.service.telemetry.slowlog.moment(),
        };
        let arguments = || slowlog::arguments(request.command, &args);
        let reporter = self.slow(&config, turn.now);
        reporter.tell(request.command, arguments, slow);
    }

    /// Counts the sizes of a request and of its reply, which starts at `mark`, and returns both.
    #[cold]
    fn count_sizes(&self, turn: &Turn<'_>, request: Request<'_>, mark: Position) -> (usize, usize) {
        let request_bytes = request_bytes(&turn.batch.args(request.plan));
        let reply_bytes = match self.connection.reply_mode {
            ReplyMode::On => turn.batch.out.len_since(mark),
            _ => 0,
        };
        let sizes = &turn.counters.sizes;
        sizes.add(request.command, request_bytes, reply_bytes);
        (request_bytes, reply_bytes)
    }

    /// Returns the reporter of this connection's commands to the slow log and the latency monitor.
    pub(super) fn slow<'r>(&'r self, config: &'r Config, now: Now) -> Reporter<'r> {
        Reporter {
            telemetry: &self.service.telemetry,
            config,
            client: &self.connection.shared,
            now,
        }
    }

    /// Completes a reply, which CLIENT REPLY may remove, and moves on to the next command.
    #[inline(always)]
    fn end_reply(&mut self, turn: &mut Turn<'_>, command: &'static Command, mark: Position) {
        let mark = match command.flags.has(Flags::SUBSCRIBER) && command.flags.has(Flags::PUBSUB) {
            // Confirmations of subscriptions are not replies: even clients that disabled replies receive them.
            true => turn.batch.out.position(),
            false => mark,
        };
        if turn.batch.out.is_too_long() {
            replace_too_long(turn, mark);
        }
        self.apply_reply_mode(&mut turn.batch.out, mark);
        if self.connection.is_caching {
            self.end_caching(Some(command));
        }
        turn.batch.next += 1;
    }

    /// Records the refusal of an admitted command; the error starts at `mark`.
    #[cold]
    pub(super) fn note_refused(
        &mut self,
        turn: &mut Turn<'_>,
        mark: Position,
        command: &'static Command,
    ) {
        turn.release();
        turn.counters.command(command).rejected.add(1);
        errors::note(turn.batch.out.since(mark));
        if self.replays() {
            self.replay_failed(turn, Some(command), mark);
        }
        self.hands_off(turn, mark);
        self.apply_reply_mode(&mut turn.batch.out, mark);
        self.end_caching(Some(command));
        turn.batch.next += 1;
    }

    /// Ends the effect of CLIENT CACHING, which applies only to the next command or transaction, even a refused
    /// one.
    #[cold]
    pub(super) fn end_caching(&mut self, command: Option<&Command>) {
        let keeps = command.is_some_and(|command| command.flags.has(Flags::KEEPS_CACHING));
        if self.connection.is_caching && !self.is_open() && !keeps {
            let tracking = self.connection.tracking;
            self.connection.set_tracking(tracking, false);
        }
    }

    /// Removes the reply just written under CLIENT REPLY OFF and SKIP.
    #[inline]
    pub(super) fn apply_reply_mode(&mut self, out: &mut Out, mark: Position) {
        if self.connection.reply_mode != ReplyMode::On {
            self.take_back(out, mark);
        }
    }

    #[cold]
    fn take_back(&mut self, out: &mut Out, mark: Position) {
        match self.connection.reply_mode {
            ReplyMode::On => {}
            ReplyMode::Off => {
                if self.connection.origin == Origin::SlotImport && out.since(mark).starts_with(b"-")
                {
                    let last = self.connection.shared.last_command.load(Relaxed);
                    let command = registry().all().get(usize::from(last));
                    self.move_failed(command.copied(), out.since(mark));
                }
                out.truncate(mark);
            }
            ReplyMode::SkipThis => {
                out.truncate(mark);
                self.connection.reply_mode = ReplyMode::On;
            }
            ReplyMode::SkipNext => {
                out.truncate(mark);
                self.connection.reply_mode = ReplyMode::SkipThis;
            }
            ReplyMode::OnlyThis => self.connection.reply_mode = ReplyMode::Off,
        }
    }

    /// Handles the failure of a command sent by a node that migrates slots to this one: the migration fails,
    /// and the slots stay with that node.
    #[cold]
    fn move_failed(&self, command: Option<&Command>, reply: &[u8]) {
        let config = self.service.config.load();
        self.note_error(&config, command, reply);
        if let Some(cluster) = self.service.cluster.get() {
            cluster.import_failed(&self.connection.shared, reply);
        }
    }

    /// Records the start of a wait; `wait_counts` if the wait is run time (DEBUG SLEEP).
    #[cold]
    pub(super) fn begin_wait(&mut self, ran_ns: u64, wait_counts: bool) {
        self.waited = Some(Box::new(Waited {
            ran_ns,
            counts_from: wait_counts.then(Ticks::now),
        }));
    }

    /// Completes a blocked request. The request was counted when it blocked, unless its wait counts as run
    /// time.
    #[cold]
    pub(super) fn finish_wait(
        &mut self,
        turn: &mut Turn<'_>,
        request: Request<'_>,
        (mark, failed): (Position, bool),
    ) {
        let waited = self.waited.take();
        let mut finished = Finished::new(mark, 0, failed);
        if let Some(Waited {
            ran_ns,
            counts_from,
        }) = waited.map(|waited| *waited)
        {
            let counters = turn.counters.command(request.command);
            finished.duration_ns = ran_ns;
            match counts_from {
                Some(since) => {
                    finished.duration_ns += Ticks::now().since_ns(since);
                    counters.ran(finished.duration_ns, failed);
                }
                None => counters.failed.add(u64::from(failed)),
            }
        }
        self.tell(turn, request, &finished);
        if turn.counts_slots {
            self.count_slot(turn, request, &finished);
        }
        self.end_reply(turn, request.command, mark);
    }

    /// Records the keys of the command that the hot-key countdown selected, and starts the next countdown.
    #[cold]
    #[inline(never)]
    fn sample(&self, turn: &Turn<'_>, request: Request<'_>, duration_ns: u64, mark: Position) {
        let Telemetry {
            hot_keys, prefixes, ..
        } = &self.service.telemetry;
        hot_keys.count_anew(turn.counters);
        let args = turn.batch.args(request.plan);
        let found = match request.command.flags.has(Flags::READONLY) {
            // A read-only command leaves its keys unchanged, so it can be checked now which of them exist.
            true => {
                let keys = args.keys().iter();
                keys.map(|routed| self.is_there(turn, routed, &args.key_of(routed)))
                    .collect()
            }
            false => Vec::new(),
        };
        let sampled = Sampled {
            command: request.command,
            duration_ns,
            reply_bytes: turn.batch.out.len_since(mark),
            found,
        };
        hot_keys.add(turn.counters, prefixes, &args, &sampled);
        let reply = request.command.copy_reply(&args);
        let key = reply.map(|_| (self.connection.db, args.key(1)));
        let key = key.as_ref().map(|(db, key)| (*db, key));
        let at = (turn.config.hot_copies, turn.now.unix_ms);
        hot_keys::count_sample(turn.counters, key, at);
    }

    /// Returns whether a key that was just read exists, if that is known.
    fn is_there(&self, turn: &Turn<'_>, routed: &RoutedKey, key: &Key<'_>) -> Option<bool> {
        let db = self.connection.db;
        turn.is_there(db, routed, key)
            .or_else(|| hot_keys::has_copy(db, key).then_some(true))
    }

    /// Reports the commands of a transaction that took long, or that are sampled for hot keys. No shard may be locked.
    pub(super) fn tell_steps(
        &self,
        transaction: &Transaction,
        outcome: &UnitOutcome,
        config: &Config,
        now: Now,
    ) {
        let Some(notes) = &outcome.notes else {
            return;
        };
        notes.errors.iter().for_each(|text| errors::note(text));
        let mut slow = notes.slow.steps.iter().peekable();
        let mut sampled = notes.sampled.iter().peekable();
        if notes.slow.is_empty() && sampled.peek().is_none() {
            return;
        }
        let reporter = self.slow(config, now);
        for (index, (command, args)) in transaction.commands().enumerate() {
            if let Some((_, duration_ns, reply_bytes)) =
                sampled.next_if(|(step, ..)| *step == index)
            {
                let Telemetry {
                    hot_keys, prefixes, ..
                } = &self.service.telemetry;
                let sampled = Sampled {
                    command,
                    duration_ns: *duration_ns,
                    reply_bytes: *reply_bytes,
                    found: Vec::new(),
                };
                hot_keys.add(counters::local(), prefixes, &args, &sampled);
            }
            if matches!(command.run, Run::Script(_)) {
                reporter.tell_calls(&notes.slow, index);
            }
            if let Some(slow) = slow.next_if(|slow| slow.step == index) {
                let arguments = || slowlog::arguments(command, &args);
                reporter.tell(command, arguments, *slow);
            }
        }
    }
}

/// Replaces a reply that exceeds the maximum length by an error.
#[cold]
#[inline(never)]
fn replace_too_long(turn: &mut Turn<'_>, mark: Position) {
    turn.batch.out.replace_too_long(mark);
    errors::note(turn.batch.out.since(mark));
}
