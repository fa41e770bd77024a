//! Units: transactions and scripts, which run as one step and may be rolled back and run again.
//!
//! ```text
//! mod          what a unit may do while it runs: get more shards, change data, go on; commit and rollback
//! plan         how a unit runs: with which shards, on which thread; and how it runs again after a rollback
//! context      what its steps run with, and what they leave to be done
//! transaction  the queued commands, and the loop that runs them
//! step         one command of a unit
//! script       one script of a unit: the commands that it calls
//! weight       which transactions may take too long for the thread of a connection
//! ```
//!
//! A unit is one EVAL, EVALSHA or FCALL, or an EXEC. It runs where it is, with the shards of the keys that it names.
//! When a command needs another shard it is tried for. If that is held, what the unit did is rolled back
//! (`engine::undo`), and it runs again with all the shards that it is known to need by then; after some such runs, with
//! all there are. A unit that takes longer than [`INLINE_NS`] is rolled back too, and runs again on a thread of its
//! own, so that no thread of connections is held by a script for longer than that. Collections write down what undoes
//! their changes, however large they are. Where a change would still need a large copy to be undone, the unit runs
//! again with all shards, so that nothing can come in between, and nothing is kept. A transaction of commands that are
//! known to be short, and name all their keys, can never fail on its way: no undo log is kept for it.
//!
//! Nothing of a unit is visible before it commits: effects, publications and replies wait. What Lua keeps between
//! runs (a function's upvalues) is not rolled back.
//!
//! Invariants: an engine is changed only with an undo log on, unless the unit is irrevocable; no log is left on when a
//! unit ends.

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
use super::execute::{self, Beside};
use super::job::command::all_of;
use super::ownership::engines::HeldEngines;
use super::route::Router;
use smallvec::SmallVec;

use crate::script::footprint::UNDECLARED_MAX;
use crate::script::host::Interrupted;
use crate::script::running::{self, Running, Runs};
use crate::telemetry::clock::{self, Ticks};
use crate::telemetry::counters::{self, Extent, Kind};
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

/// Nanoseconds for which a script may hold the thread of a connection.
pub const INLINE_NS: u64 = 10_000_000;

/// A unit that takes less nanoseconds than this leaves nothing that could have expired meanwhile.
const BRIEF_NS: u64 = 500_000;

/// Nanoseconds between two looks at the queues of the shards that a long script holds.
const QUEUES_NS: u64 = 1_000_000;

/// Looks at a held shard before the unit is rolled back because of it.
const SPINS: u32 = 64;

/// Looks at a held shard by a unit on a thread of its own, for which no connection waits.
const SPINS_OFFLOADED: u32 = 4_096;

/// Bytes of the largest collection that is copied to be restored: that takes some tens of microseconds of one shard,
/// and a run with all shards on a thread of its own takes as much of all of them. (Tests have small collections.)
const IMAGE_BYTES_MAX: usize = if cfg!(test) { 1024 } else { 32 * 1024 };

/// Bytes of the largest string that is copied to be restored.
const IMAGE_TEXT_BYTES_MAX: usize = 1024 * 1024;

/// What a unit on a thread of its own shows of itself.
struct Site<'r> {
    running: &'r Running,
    /// The script that runs.
    script: Option<Arc<running::Unit>>,
    /// The transaction around it, if there is one.
    transaction: Option<Arc<running::Unit>>,
    /// When the queues were last looked at.
    looked: Ticks,
}

impl Site<'_> {
    fn begin(
        &self,
        command: &'static Command,
        args: Vec<Vec<u8>>,
        (client, shards): (u64, &[u16]),
    ) -> Arc<running::Unit> {
        let begun = self.running.begin(command, args, client);
        begun.set_shards(shards);
        begun
    }
}

/// What shards had counted of reads at some moment; most units read of one.
type KeptReads = SmallVec<[(u16, Reads); 1]>;

fn reads_of(kept: &KeptReads, shard: u16) -> Option<&Reads> {
    let mut kept = kept.iter();
    kept.find(|(of, _)| *of == shard).map(|(_, reads)| reads)
}

/// A unit that runs. See the module.
pub struct Unit<'r, 'a> {
    held: &'r mut HeldShards<'a>,
    router: Router,
    /// The unit is not rolled back any more, and keeps no undo log.
    is_irrevocable: bool,
    /// None on the thread of a connection.
    offloaded: Option<Site<'r>>,
    since: Ticks,
    /// The clock when it was last read: before each command, after those of scripts, and each few thousand instructions
    /// of a script.
    latest: Ticks,
    abort: Option<Abort>,
    /// Shards that it needed and did not get.
    missing: Vec<u16>,
    /// Shards that it got on the way.
    extended: u32,
    /// Some shards may keep an undo log.
    has_undo_logs: bool,
    /// Keys that it did not begin with.
    undeclared: Vec<Vec<u8>>,
    /// Scripts that have begun.
    scripts: usize,
    /// Scripts that were killed, in this run or in one that was rolled back.
    killed: Vec<usize>,
    /// What shards had counted of reads before its first, but for those that go back by themselves.
    reads: KeptReads,
    /// Time does not pass; calls that are left until it is over all the same.
    #[cfg(test)]
    timeless: Option<u64>,
}

impl<'r, 'a> Unit<'r, 'a> {
    /// A unit on the thread of a connection.
    pub fn inline(held: &'r mut HeldShards<'a>, router: Router) -> Unit<'r, 'a> {
        let since = Ticks::now();
        Unit {
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

    /// A unit on a thread of its own.
    pub fn offloaded(
        held: &'r mut HeldShards<'a>,
        router: Router,
        plan: &UnitPlan,
        running: &'r Running,
    ) -> Unit<'r, 'a> {
        let unit = Unit::inline(held, router);
        let site = Site {
            running,
            script: None,
            transaction: None,
            looked: unit.since,
        };
        Unit {
            is_irrevocable: plan.is_irrevocable,
            offloaded: Some(site),
            killed: plan.killed.clone(),
            ..unit
        }
    }

    /// The owner of each key.
    pub fn router(&self) -> Router {
        self.router
    }

    /// Whether it is not rolled back any more.
    pub fn is_irrevocable(&self) -> bool {
        self.is_irrevocable
    }

    /// Whether it has to be rolled back.
    pub fn is_aborted(&self) -> bool {
        self.abort.is_some()
    }

    /// A script of the unit begins, for a client.
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

    /// The script that runs on a thread of its own.
    #[inline]
    fn script(&self) -> Option<&running::Unit> {
        self.offloaded.as_ref()?.script.as_deref()
    }

    /// A script of the unit is over.
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

    /// The unit is a transaction, of a client.
    pub fn begin_transaction(&mut self, client: u64) {
        if let Some(site) = &mut self.offloaded {
            let begun = site.begin(EXEC_ROW, Vec::new(), (client, self.held.shards()));
            site.transaction = Some(begun);
        }
    }

    /// The unit is over, with its script and transaction.
    fn end_all(&mut self) {
        self.end_script();
        if let Some(site) = &mut self.offloaded
            && let Some(transaction) = site.transaction.take()
        {
            site.running.end(&transaction);
        }
    }

    /// The moment, at the end of a unit that began at another one.
    fn now(&self, began: Now) -> Now {
        match self.latest.since_ns(self.since) {
            ..BRIEF_NS => began,
            _ => clock::now(),
        }
    }

    /// Reads the clock behind a command: nanoseconds since it was read before.
    pub fn read_clock_ns(&mut self) -> u64 {
        let now = Ticks::now();
        now.since_ns(std::mem::replace(&mut self.latest, now))
    }

    /// Asked now and then: whether the unit may go on.
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
        match now.since_ns(self.since) > INLINE_NS && !self.is_irrevocable {
            true => Err(self.end(Abort::TooSlow)),
            false => Ok(()),
        }
    }

    /// Looks at the queues of the shards that the unit holds, and at whether its script was killed.
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
        // Redis takes zero for "never".
        if threshold_ms > 0 && now.since_ns(self.since) / 1_000_000 >= threshold_ms {
            let is_news = site.running.note_busy(unit);
            let text = unit.busy_text();
            self.held.turn_away(is_news, |job| job.turn_away(text));
        }
        Ok(())
    }

    /// Lets no time pass.
    #[cfg(test)]
    fn let_no_time_pass(&mut self) {
        self.timeless = Some(u64::MAX);
    }

    /// Lets the time be over after so many calls.
    #[cfg(test)]
    fn stop_after(&mut self, calls: u64) {
        self.timeless = Some(calls);
    }

    /// From here on it is not rolled back: what it did stays. Whatever comes has its shards by now.
    pub fn make_irrevocable(&mut self) {
        if !std::mem::replace(&mut self.is_irrevocable, true) && self.has_undo_logs {
            let mut engines = self.engines();
            engines
                .iter()
                .for_each(|(_, engine)| engine.commit_attempt());
        }
    }

    /// Whether a command of it may say that it takes too long here.
    pub fn may_offload(&self) -> bool {
        !self.is_irrevocable && self.abort.is_none() && self.offloaded.is_none()
    }

    /// A command of it has said that it takes too long here.
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

    /// Gets the shards of a command, and makes sure that what it changes can be undone.
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

    /// Whether all that is to be remembered of a command that reads is remembered already.
    #[inline]
    fn has_reads(&self, args: &Args<'_>, needs_all: bool) -> bool {
        let Some((first, _)) = self.reads.first() else {
            return false;
        };
        !needs_all && args.keys().iter().all(|key| key.shard == *first)
    }

    /// Remembers what the shards of a command that reads have counted so far.
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
        // A command whose keys could not be found runs anywhere, to say so.
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

    /// Sees to it that what a command changes can be undone.
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
        // Whatever only overwrites or deletes is done here.
        let edits = |spec: &KeySpec| spec.flags.has(KeyFlags::RW);
        if command.key_finder.is_none() && !command.keys.iter().any(edits) {
            return Ok(());
        }
        match needs_large_image(&mut engines, command, args, db) {
            true => Err(self.end(Abort::TooLargeToUndo)),
            false => Ok(()),
        }
    }

    /// Makes room for what a script may add to a database.
    pub fn make_room(&mut self, db: usize, now: Now, config: &Config) -> Result<(), Full> {
        if config.maxmemory == 0 && config.maxmemory_db.is_empty() {
            return Ok(());
        }
        // Any shard knows, and there may be none in hand yet.
        if self.held.shards().is_empty() && self.get_shards(&Args::none()).is_err() {
            return Ok(());
        }
        (self.engines().iter()).try_for_each(|(_, engine)| engine.make_room(db, now))
    }

    /// The engines in hand.
    #[inline]
    fn engines(&mut self) -> HeldEngines<'_, Engine> {
        self.held.engines()
    }

    /// The engines in hand, ascending.
    pub fn with_engines<R>(&mut self, work: impl FnOnce(&mut [&mut Engine]) -> R) -> R {
        all_of(&mut self.held.engines()).with_all(work)
    }

    /// The unit is done: what it changed stays, those are served who waited for it, and what others want to hear of it
    /// is appended, with the messages that it published.
    pub fn commit(
        mut self,
        kind: Kind,
        cx: &mut UnitContext<'_>,
        outcome: &mut UnitOutcome,
        plan: &mut UnitPlan,
    ) {
        self.end_all();
        let now = self.now(cx.now);
        let mut log_position = outcome.log_position;
        let mut beside = Beside {
            publications: &mut outcome.publications,
            records: &mut outcome.records,
            // Behind what was appended already there are only keys that went to make room.
            is_unit: log_position.is_none(),
        };
        let is_irrevocable = self.is_irrevocable;
        let mut position = 0;
        // A function that it called, or one that was not there, may be as new as what it read.
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
            // What it read or only looked at, as at a key that was watched.
            let log_positions = engines.iter().map(|engine| engine.effects.log_position());
            seen = log_positions.fold(seen, u64::max);
        });
        cx.connection.shared.see_log(seen);
        if !beside.records.is_empty() {
            // Without a shard in hand, as below.
            log_position = cx.server.log_records(beside.records, true);
        }
        if let Some(log_position) = log_position {
            cx.connection.shared.note_log(log_position, log_position);
        }
        let publications = beside.publications;
        if !publications.is_empty() {
            let mut news = Box::<News>::default();
            news.publications.append(publications);
            // Without a shard in hand: nothing else will have it delivered.
            position = cx.server.pubsub().append(news);
            cx.server.pubsub().deliver();
        }
        cx.connection.position = cx.connection.position.max(position);
        let in_hand = self.held.shards().len();
        let extent = Extent::of(in_hand, self.router.shard_count());
        counters::local().ran_unit(kind, extent);
        plan.outcome.is_wide = extent == Extent::All;
        plan.outcome.duration_ns = self.latest.since_ns(self.since);
        self.note_undeclared(plan);
        if in_hand > 1 || self.offloaded.is_some() || plan.outcome.reruns > 0 {
            self.count_run(plan, &cx.scripts.runs);
        }
        outcome.close();
    }

    /// Counts what was unusual about the runs of the unit.
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

    /// The unit did nothing; how it runs again is written into `plan`.
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

/// Goes over the engines that a command names: those of its keys, or all.
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

/// Whether a command may change a value that is too large to be copied.
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
            // What is overwritten or deleted moves and is not copied; what is only read stays. Of commands on keys as
            // such, those that read the value take it elsewhere, and others give it a deadline.
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
