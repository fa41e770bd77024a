//! Units: transactions and scripts, which run atomically and may be rolled back and run again.
//!
//! ```text
//! mod          a running unit: more shards, undo logs, time limits; commit and rollback
//! plan         the shards and the thread of a run, and of a rerun after a rollback
//! context      the context of its steps, and the work that they leave
//! transaction  the queued commands, and the loop that runs them
//! step         one command of a unit
//! script       one script of a unit: the commands that it calls
//! weight       estimate of transactions that may take too long for a connection's thread
//! ```
//!
//! A unit is one EVAL, EVALSHA or FCALL, or an EXEC. It changes the data directly, with the shards of its
//! declared keys locked. When a command needs another shard, the unit tries to lock it. If that fails, the
//! unit's changes are rolled back (`engine::undo`), and it runs again with all the shards that it is known to
//! need by then; after a few such rollbacks, it runs with all shards. A unit that takes longer than
//! [`INLINE_NS`] is rolled back too, and runs again on a separate thread, so that a script occupies no
//! connection thread for longer than that. Collections record how to undo their changes, so even large
//! collections need no copy. If undoing a change would still need a large copy, the unit runs again with all
//! shards locked, so that it needs no rollback, and without an undo log. A transaction of commands that are
//! known to be short, and declare all their keys, can never fail midway: no undo log is kept for it.
//!
//! Nothing of a unit is visible before it commits: log records, published messages and replies are sent only
//! then. State that Lua keeps between runs (a function's upvalues) is not rolled back.
//!
//! Invariants: an engine is changed only with an active undo log, unless the unit is irrevocable; no undo log stays
//! active when a unit ends.

pub mod context;
pub mod plan;
pub mod script;
#[cfg(test)]
mod simulation;
pub mod step;
pub mod transaction;
mod weight;

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

use super::HeldShards;
use super::execute::{self, UnitOutput};
use super::handler::all_of;
use super::ownership::engines::HeldEngines;
use super::route::Router;
use smallvec::SmallVec;

use crate::script::footprint::UNDECLARED_MAX;
use crate::script::host::Interrupted;
use crate::script::running::{self, RunningUnits, Runs};
use crate::telemetry::clock::{self, Ticks};
use crate::telemetry::counters::{self, LockExtent, UnitKind};
use basalt_commands::command::declaration::{Command, Flags, Group, KeyFlags, KeySpec, Run};
use basalt_commands::command::transaction::EXEC_ROW;
use basalt_commands::command::{Args, keys};
use basalt_commands::config::Config;
use basalt_engine::effect::{Follower, News};
use basalt_engine::evict::Full;
use basalt_engine::undo::Change;
use basalt_engine::value::Part;
use basalt_engine::{Engine, Key, Now, Reads};
use context::{UnitContext, UnitOutcome};
use plan::{Abort, UnitPlan};

/// Nanoseconds for which a script may occupy a connection's thread, where other threads take its connections meanwhile.
const INLINE_NS: u64 = 10_000_000;

/// Nanoseconds for which a script may occupy a connection's thread, where all connections of the thread wait for it.
const INLINE_AT_HOME_NS: u64 = 1_000_000;

/// The time limit in force.
static INLINE_NS_MAX: AtomicU64 = AtomicU64::new(INLINE_NS);

/// Sets that connections wait for the units on their own thread, as no other thread serves them.
pub fn serve_connections_at_home() {
    INLINE_NS_MAX.store(INLINE_AT_HOME_NS, Relaxed);
}

/// A unit that takes less than this number of nanoseconds uses its starting time as its end time, too, for
/// expiry.
const BRIEF_NS: u64 = 500_000;

/// Nanoseconds between two checks of the queues of the shards that a long script holds.
const QUEUES_NS: u64 = 1_000_000;

/// Attempts on a locked shard before the unit is rolled back because of it.
const SPINS: u32 = 64;

/// Attempts on a locked shard by a unit on a separate thread, which delays no connections.
const SPINS_OFFLOADED: u32 = 4_096;

/// Maximum bytes of a collection that is copied for undo: a copy keeps one shard locked for some tens of
/// microseconds; the alternative, a run with all shards on a separate thread, keeps all of them locked for as
/// long. (Tests have small collections.)
const IMAGE_BYTES_MAX: usize = if cfg!(test) { 1024 } else { 32 * 1024 };

/// Maximum bytes of a string that is copied for undo.
const IMAGE_TEXT_BYTES_MAX: usize = 1024 * 1024;

/// State of a unit on a separate thread that other threads see, for SCRIPT KILL and BUSY replies.
struct PublishedUnit<'r> {
    running: &'r RunningUnits,
    /// The running script.
    script: Option<Arc<running::RunningUnit>>,
    /// The enclosing transaction, if any.
    transaction: Option<Arc<running::RunningUnit>>,
    /// When the queues of the unit's shards were last checked.
    looked: Ticks,
}

impl PublishedUnit<'_> {
    fn begin(
        &self,
        command: &'static Command,
        args: Vec<Vec<u8>>,
        (client, shards): (u64, &[u16]),
    ) -> Arc<running::RunningUnit> {
        let begun = self.running.begin(command, args, client);
        begun.set_shards(shards);
        begun
    }
}

/// Saved read counts (hits and misses) by shard; most units read from one shard.
type KeptReads = SmallVec<[(u16, Reads); 1]>;

fn reads_of(kept: &KeptReads, shard: u16) -> Option<&Reads> {
    let mut kept = kept.iter();
    kept.find(|(of, _)| *of == shard).map(|(_, reads)| reads)
}

/// A running unit; see the module.
pub struct ExecutionUnit<'r, 'a> {
    held: &'r mut HeldShards<'a>,
    router: Router,
    /// True if the unit can no longer be rolled back, and keeps no undo log.
    is_irrevocable: bool,
    /// State of a unit on a separate thread; `None` on a connection's thread.
    offloaded: Option<PublishedUnit<'r>>,
    since: Ticks,
    /// The last clock reading: before each command, after those of scripts, and every few thousand instructions of a
    /// script.
    latest: Ticks,
    abort: Option<Abort>,
    /// Shards that the unit needed but could not lock.
    missing: Vec<u16>,
    /// Number of shards that were locked during the run, beyond the initial ones.
    extended: u32,
    /// True if some shards may keep an undo log.
    has_undo_logs: bool,
    /// Keys that scripts accessed without having declared them.
    undeclared: Vec<Vec<u8>>,
    /// Number of scripts started in this run.
    scripts: usize,
    /// Indices of scripts that were killed (SCRIPT KILL), in this run or in an earlier one that was rolled
    /// back.
    killed: Vec<usize>,
    /// Read counts of shards as before the unit's first read there, for a rollback; shards with an undo log are
    /// excluded, as the log restores the counts.
    reads: KeptReads,
    /// If set, the unit's clock stands still, and the unit times out after this number of calls.
    #[cfg(test)]
    timeless: Option<u64>,
}

impl<'r, 'a> ExecutionUnit<'r, 'a> {
    /// Creates a unit on a connection's thread.
    pub fn inline(held: &'r mut HeldShards<'a>, router: Router) -> ExecutionUnit<'r, 'a> {
        let since = Ticks::now();
        ExecutionUnit {
            held,
            router,
            is_irrevocable: false,
            offloaded: None,
            since,
            latest: since,
            abort: None,
            missing: Vec::new(),
            extended: 0,
            has_undo_logs: false,
            undeclared: Vec::new(),
            scripts: 0,
            killed: Vec::new(),
            reads: KeptReads::default(),
            #[cfg(test)]
            timeless: None,
        }
    }

    /// Creates a unit on a separate thread.
    pub fn offloaded(
        held: &'r mut HeldShards<'a>,
        router: Router,
        plan: &UnitPlan,
        running: &'r RunningUnits,
    ) -> ExecutionUnit<'r, 'a> {
        let unit = ExecutionUnit::inline(held, router);
        let site = PublishedUnit {
            running,
            script: None,
            transaction: None,
            looked: unit.since,
        };
        ExecutionUnit {
            is_irrevocable: plan.is_irrevocable,
            offloaded: Some(site),
            killed: plan.killed.clone(),
            ..unit
        }
    }

    /// Returns the router.
    pub fn router(&self) -> Router {
        self.router
    }

    /// Returns whether the unit can no longer be rolled back.
    pub fn is_irrevocable(&self) -> bool {
        self.is_irrevocable
    }

    /// Returns whether the unit was aborted and has to be rolled back.
    pub fn is_aborted(&self) -> bool {
        self.abort.is_some()
    }

    /// Starts a script of the unit; `client` is the id of its client.
    pub fn begin_script(&mut self, command: &'static Command, args: &Args<'_>, client: u64) {
        if let Some(site) = &mut self.offloaded {
            let begun = site.begin(command, args.to_vec(), (client, self.held.shards()));
            if self.killed.contains(&self.scripts) {
                begun.kill_again();
            }
            site.script = Some(begun);
        }
        self.scripts += 1;
    }

    /// Returns the script that runs on a separate thread.
    #[inline]
    fn script(&self) -> Option<&running::RunningUnit> {
        self.offloaded.as_ref()?.script.as_deref()
    }

    /// Ends a script of the unit.
    pub fn end_script(&mut self) {
        if let Some(site) = &mut self.offloaded
            && let Some(script) = site.script.take()
        {
            site.running.end(&script);
            if script.is_killed() {
                self.killed.push(self.scripts - 1);
            }
        }
    }

    /// Marks the unit as a transaction; `client` is the id of its client.
    pub fn begin_transaction(&mut self, client: u64) {
        if let Some(site) = &mut self.offloaded {
            let begun = site.begin(EXEC_ROW, Vec::new(), (client, self.held.shards()));
            site.transaction = Some(begun);
        }
    }

    /// Ends the unit's script and transaction.
    fn end_all(&mut self) {
        self.end_script();
        if let Some(site) = &mut self.offloaded
            && let Some(transaction) = site.transaction.take()
        {
            site.running.end(&transaction);
        }
    }

    /// Returns the time at the end of a unit that began at `began`; a brief unit ends at `began`.
    fn now(&self, began: Now) -> Now {
        match self.latest.since_ns(self.since) {
            ..BRIEF_NS => began,
            _ => clock::now(),
        }
    }

    /// Reads the clock after a command; returns the nanoseconds since the previous reading.
    pub fn read_clock_ns(&mut self) -> u64 {
        let now = Ticks::now();
        now.since_ns(std::mem::replace(&mut self.latest, now))
    }

    /// Checks, called periodically, whether the unit may continue.
    pub fn tick(&mut self, config: &Config) -> Result<(), Interrupted> {
        if self.abort.is_some() {
            return Err(Interrupted::Again);
        }
        #[cfg(test)]
        if let Some(left) = &mut self.timeless {
            if *left == 0 {
                return Err(self.end(Abort::TooSlow));
            }
            *left -= 1;
            return Ok(());
        }
        let now = Ticks::now();
        self.latest = now;
        if self.offloaded.is_some() {
            return self.tick_offloaded(now, config);
        }
        match now.since_ns(self.since) > INLINE_NS_MAX.load(Relaxed) && !self.is_irrevocable {
            true => Err(self.end(Abort::TooSlow)),
            false => Ok(()),
        }
    }

    /// Checks the queues of the unit's shards, and whether its script was killed.
    #[cold]
    fn tick_offloaded(&mut self, now: Ticks, config: &Config) -> Result<(), Interrupted> {
        let Some(site) = &mut self.offloaded else {
            return Ok(());
        };
        if now.since_ns(site.looked) < QUEUES_NS {
            return Ok(());
        }
        site.looked = now;
        let Some(unit) = site.script.as_ref().or(site.transaction.as_ref()) else {
            return Ok(());
        };
        if unit.is_killed() {
            return Err(Interrupted::Killed);
        }
        let threshold_ms = u64::try_from(config.busy_reply_threshold).unwrap_or(0);
        // As in Redis, zero means "never".
        if threshold_ms > 0 && now.since_ns(self.since) / 1_000_000 >= threshold_ms {
            let is_news = site.running.note_busy(unit);
            let text = unit.busy_text();
            self.held.turn_away(is_news, |job| job.turn_away(text));
        }
        Ok(())
    }

    /// Stops the unit's clock.
    #[cfg(test)]
    fn let_no_time_pass(&mut self) {
        self.timeless = Some(u64::MAX);
    }

    /// Makes the unit time out after this many calls.
    #[cfg(test)]
    fn stop_after(&mut self, calls: u64) {
        self.timeless = Some(calls);
    }

    /// Makes the unit's changes final: it is not rolled back any more. All further commands must have their shards by
    /// now.
    pub fn make_irrevocable(&mut self) {
        if !std::mem::replace(&mut self.is_irrevocable, true) && self.has_undo_logs {
            let mut engines = self.engines();
            engines
                .iter()
                .for_each(|(_, engine)| engine.commit_attempt());
        }
    }

    /// Returns whether a command of the unit may ask to be offloaded as too slow.
    pub fn may_offload(&self) -> bool {
        !self.is_irrevocable && self.abort.is_none() && self.offloaded.is_none()
    }

    /// Aborts the unit because a command takes too long for this thread: the unit will be rolled back and run
    /// on a separate thread.
    pub fn offload(&mut self) -> Interrupted {
        self.end(Abort::TooSlow)
    }

    #[cold]
    fn end(&mut self, abort: Abort) -> Interrupted {
        if self.script().is_some_and(|script| !script.note_rollback()) {
            return Interrupted::Killed;
        }
        self.abort.get_or_insert(abort);
        Interrupted::Again
    }

    /// Locks the shards of a command, and makes sure that its changes can be undone.
    pub fn prepare(
        &mut self,
        command: &'static Command,
        args: &Args<'_>,
        db: usize,
        config: &Config,
    ) -> Result<(), Interrupted> {
        self.tick(config)?;
        let needs_all = command.needs_all_shards(args)
            || matches!(command.run, Run::EachShard(..) | Run::Cursor(..));
        if needs_all {
            if self.held.shards().len() < usize::from(self.router.shard_count()) {
                return Err(self.end(Abort::NeedsAllShards));
            }
        } else if matches!(command.run, Run::Keys(_)) {
            self.get_shards(args)?;
        } else {
            return Ok(());
        }
        const MAY_WRITE: Flags = Flags::WRITE.or(Flags::MAY_REPLICATE);
        if command.flags.any(MAY_WRITE) {
            if !self.is_irrevocable {
                self.keep_images(command, args, db, needs_all)?;
            }
            if self.script().is_some_and(|script| !script.note_write()) {
                return Err(Interrupted::Killed);
            }
        } else if !self.is_irrevocable && !self.has_reads(args, needs_all) {
            self.keep_reads(args, needs_all);
        }
        Ok(())
    }

    /// Returns whether the read counts of the shards of a reading command are already saved.
    #[inline]
    fn has_reads(&self, args: &Args<'_>, needs_all: bool) -> bool {
        let Some((first, _)) = self.reads.first() else {
            return false;
        };
        !needs_all && args.keys().iter().all(|key| key.shard == *first)
    }

    /// Saves the read counts of the shards of a reading command.
    fn keep_reads(&mut self, args: &Args<'_>, needs_all: bool) {
        let reads = &mut self.reads;
        for_each_named(&mut self.held.engines(), args, needs_all, |engine| {
            if reads_of(reads, engine.shard).is_none() && !engine.is_in_attempt() {
                reads.push((engine.shard, engine.reads()));
            }
        });
    }

    #[inline]
    fn get_shards(&mut self, args: &Args<'_>) -> Result<(), Interrupted> {
        let keys = args.keys();
        match !keys.is_empty() && keys.iter().all(|key| self.held.holds(key.shard)) {
            true => Ok(()),
            false => self.get_more_shards(args),
        }
    }

    #[cold]
    fn get_more_shards(&mut self, args: &Args<'_>) -> Result<(), Interrupted> {
        self.missing.clear();
        let keys = args.keys();
        let spins = match self.offloaded {
            None => SPINS,
            Some(_) => SPINS_OFFLOADED,
        };
        for key in keys {
            if !self.held.holds(key.shard) {
                if self.undeclared.len() < UNDECLARED_MAX {
                    self.undeclared.push(args.key_of(key).bytes.to_vec());
                }
                match self.held.try_extend(key.shard, spins) {
                    true => self.extended += 1,
                    false => self.missing.push(key.shard),
                }
            }
        }
        // A command whose keys could not be determined runs on any shard, to report the error.
        if keys.is_empty() && self.held.shards().is_empty() && !self.held.try_extend(0, spins) {
            self.missing.push(0);
        }
        if let Some(site) = &self.offloaded {
            let units = site.script.iter().chain(&site.transaction);
            units.for_each(|unit| unit.set_shards(self.held.shards()));
        }
        match self.missing.is_empty() {
            true => Ok(()),
            false => Err(self.end(Abort::MissingShards)),
        }
    }

    /// Makes sure that a command's changes can be undone.
    fn keep_images(
        &mut self,
        command: &'static Command,
        args: &Args<'_>,
        db: usize,
        needs_all: bool,
    ) -> Result<(), Interrupted> {
        self.has_undo_logs = true;
        let mut engines = self.held.engines();
        for_each_named(&mut engines, args, needs_all, |engine| {
            if !engine.is_in_attempt() {
                engine.begin_attempt();
            }
        });
        // Commands that only overwrite or delete values need no copy.
        let edits = |spec: &KeySpec| spec.flags.has(KeyFlags::RW);
        if command.key_finder.is_none() && !command.keys.iter().any(edits) {
            return Ok(());
        }
        match needs_large_image(&mut engines, command, args, db) {
            true => Err(self.end(Abort::TooLargeToUndo)),
            false => Ok(()),
        }
    }

    /// Evicts keys for the data that a script may add to a database.
    pub fn make_room(&mut self, db: usize, now: Now, config: &Config) -> Result<(), Full> {
        if config.maxmemory == 0 && config.maxmemory_db.is_empty() {
            return Ok(());
        }
        // Lock any shard if none is locked yet: every shard knows the memory limit.
        if self.held.shards().is_empty() && self.get_shards(&Args::none()).is_err() {
            return Ok(());
        }
        (self.engines().iter()).try_for_each(|(_, engine)| engine.make_room(db, now))
    }

    /// Returns the locked engines.
    #[inline]
    fn engines(&mut self) -> HeldEngines<'_, Engine> {
        self.held.engines()
    }

    /// Runs `work` with the locked engines, ascending.
    pub fn with_engines<R>(&mut self, work: impl FnOnce(&mut [&mut Engine]) -> R) -> R {
        all_of(&mut self.held.engines()).with_all(work)
    }

    /// Commits the unit: makes its changes final, serves requests blocked on changed keys, and appends its
    /// messages to other clients.
    pub fn commit(
        mut self,
        kind: UnitKind,
        cx: &mut UnitContext<'_>,
        outcome: &mut UnitOutcome,
        plan: &mut UnitPlan,
    ) {
        self.end_all();
        let now = self.now(cx.now);
        let mut log_position = outcome.log_position;
        let mut beside = UnitOutput {
            publications: &mut outcome.publications,
            records: &mut outcome.records,
            // If the unit's records were appended earlier, the remaining ones are of evicted keys, which need
            // not be atomic.
            is_unit: log_position.is_none(),
        };
        let is_irrevocable = self.is_irrevocable;
        let mut position = 0;
        // A function that the unit called (or found missing) may have been loaded just now, so the reply
        // reflects that log position, too.
        let mut seen = cx.scripts.functions.position();
        self.with_engines(|engines| {
            if !is_irrevocable {
                for engine in engines.iter_mut() {
                    engine.commit_attempt();
                }
            }
            let behind = execute::end_of_several(engines, now, &mut beside);
            log_position = log_position.or(behind);
            let positions = engines.iter().map(|engine| engine.effects.position());
            position = positions.max().unwrap_or(0);
            // Include the log positions of all data read or checked, such as watched keys.
            let log_positions = engines.iter().map(|engine| engine.effects.log_position());
            seen = log_positions.fold(seen, u64::max);
        });
        cx.connection.shared.see_log(seen);
        if !beside.records.is_empty() {
            // The records remain if no shard was locked.
            log_position = cx.server.log_records(beside.records, true);
        }
        if let Some(log_position) = log_position {
            cx.connection.shared.note_log(log_position, log_position);
        }
        let publications = beside.publications;
        if !publications.is_empty() {
            let mut news = Box::<News>::default();
            news.publications.append(publications);
            // The messages remain if no shard was locked; then nothing else triggers their delivery.
            position = cx.server.pubsub().append(news);
            cx.server.pubsub().deliver();
        }
        cx.connection.position = cx.connection.position.max(position);
        let in_hand = self.held.shards().len();
        let extent = LockExtent::of(in_hand, self.router.shard_count());
        counters::local().ran_unit(kind, extent);
        plan.outcome.is_wide = extent == LockExtent::All;
        plan.outcome.duration_ns = self.latest.since_ns(self.since);
        self.note_undeclared(plan);
        if in_hand > 1 || self.offloaded.is_some() || plan.outcome.reruns > 0 {
            self.count_run(plan, &cx.scripts.runs);
        }
        outcome.close();
    }

    /// Counts the unit in the script statistics: shards locked later, reruns, slow and offloaded runs.
    #[cold]
    fn count_run(&self, plan: &UnitPlan, runs: &Runs) {
        let count = |figure: &AtomicU64, by: u64| {
            if by > 0 {
                figure.fetch_add(by, Relaxed);
            }
        };
        count(&runs.extended, u64::from(plan.outcome.extended));
        count(&runs.reruns, u64::from(plan.outcome.reruns));
        count(&runs.slow, u64::from(plan.outcome.was_slow));
        count(&runs.apart, u64::from(self.offloaded.is_some()));
    }

    fn note_undeclared(&mut self, plan: &mut UnitPlan) {
        let outcome = &mut plan.outcome;
        outcome.extended += self.extended;
        for key in self.undeclared.drain(..) {
            if outcome.undeclared.len() < UNDECLARED_MAX && !outcome.undeclared.contains(&key) {
                outcome.undeclared.push(key);
            }
        }
    }

    /// Rolls the unit back; and changes `plan` to that of the rerun.
    pub fn roll_back(mut self, plan: &mut UnitPlan) {
        self.end_all();
        let reads = std::mem::take(&mut self.reads);
        for (shard, engine) in self.engines().iter() {
            engine.undo_attempt();
            if let Some(reads) = reads_of(&reads, shard) {
                engine.forget_reads_since(reads);
            }
        }
        self.note_undeclared(plan);
        let abort = self.abort.unwrap_or(Abort::TooSlow);
        let count = self.router.shard_count();
        plan.after(abort, self.held.shards(), &self.missing, count);
        plan.killed = self.killed;
    }
}

/// Calls `work` for the engines of a command's keys, or for all engines if the command needs all.
fn for_each_named(
    engines: &mut HeldEngines<'_, Engine>,
    args: &Args<'_>,
    needs_all: bool,
    mut work: impl FnMut(&mut Engine),
) {
    if needs_all || args.keys().is_empty() {
        engines.iter().for_each(|(_, engine)| work(engine));
    }
    for key in args.keys() {
        if let Some(engine) = engines.get(key.shard) {
            work(engine);
        }
    }
}

/// Returns whether a command may change a value that is too large to be copied.
fn needs_large_image(
    engines: &mut HeldEngines<'_, Engine>,
    command: &'static Command,
    args: &Args<'_>,
    db: usize,
) -> bool {
    let change = match command.group {
        Group::Generic => Change::Taken,
        _ if command.flags.has(Flags::ENTRIES_ONLY) => Change::InPlace(Part::Entries),
        _ => Change::InPlace(Part::Any),
    };
    let mut is_large = false;
    let _ = keys::positions(
        command,
        args.len(),
        |at| args.get(at),
        |at, flags| {
            // Overwritten or deleted values are moved into the undo log, not copied, and values that are only
            // read need no copy. Among the generic commands, those flagged as accessing the value move it
            // elsewhere; the others set a deadline.
            let is_generic = command.group == Group::Generic;
            let is_edited = flags.has(KeyFlags::RW) && (!is_generic || flags.has(KeyFlags::ACCESS));
            let routed = args.keys().iter().find(|key| key.argument as usize == at);
            if let Some(routed) = routed
                && is_edited
                && let Some(engine) = engines.get(routed.shard)
            {
                let key = Key {
                    bytes: args.get(at),
                    hash: routed.hash,
                };
                let (collection_max, text_max) = (IMAGE_BYTES_MAX, IMAGE_TEXT_BYTES_MAX);
                is_large |= engine.needs_large_image(db, &key, change, collection_max, text_max);
            }
        },
    );
    is_large
}
