//! Units with scripts: they begin with the shards that they name, and may be undone and run again.
//!
//! ```text
//! mod      what a unit may do while it runs: come to need more shards, change data, go on
//! terms    on what terms a unit runs, and on which ones it runs again
//! threads  where units run that take long
//! ```
//!
//! A unit is one EVAL, EVALSHA or FCALL, or an EXEC with any of these. It runs where it is, with the shards of the keys
//! that it names. When a command needs another shard it is tried for. If somebody has it, what the unit did is undone
//! (`engine::undo`), and it runs again with all the shards that it is known to need by then; after some such runs, with
//! all there are. A unit that takes longer than [`INLINE_NS`] is undone too, and runs again on a thread of its own, so
//! that no thread of connections is held by a script for longer than that. Collections write down what undoes their changes,
//! however large they are. Where a change would still need a large copy to be undone, the unit runs again with all shards,
//! so that nothing can come in between, and nothing is kept.
//!
//! Nobody sees anything of a unit before it commits: effects, publications and replies wait. What Lua keeps between runs
//! (a function's upvalues) is not undone.
//!
//! Invariants: an engine is changed only with a log on, unless the unit is bare; no attempt is left on when a unit ends.

#[cfg(test)]
mod simulation;
pub mod terms;
pub mod threads;

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

use super::execute;
use super::message::Message;
use super::ownership::hands::Hands;
use super::ownership::reach::Reach;
use super::route::Router;
use crate::command::context::Publications;
use crate::command::declaration::{Command, Flags, Group, KeyFlags, KeySpec, Run};
use crate::command::{Args, keys};
use crate::config::Config;
use crate::engine::board::Reads;
use crate::engine::undo::Change;
use crate::engine::value::Part;
use crate::engine::{Deferred, Engine, Key, Now};
use crate::script::footprint::STRAYS_MAX;
use crate::script::host::Interrupted;
use crate::script::running::{Running, Runs, Unit};
use crate::telemetry::clock::{self, Ticks};
use crate::telemetry::counters::{self, Extent, Kind};
use terms::{Stop, Terms};

/// How long a script may hold the thread of a connection.
pub const INLINE_NS: u64 = 10_000_000;

/// A unit that takes less than this leaves nothing that could have expired meanwhile.
const BRIEF_NS: u64 = 500_000;

/// Between two looks at the queues of the shards that a long script holds.
const TEND_NS: u64 = 1_000_000;

/// How often a held shard is looked at before the unit is undone because of it.
const SPINS: u32 = 64;

/// The same on a thread of its own, where nobody waits for the thread.
const SPINS_APART: u32 = 4_096;

/// Collections with more bytes than this are not copied to be restored: a copy of that takes some tens of microseconds
/// of one shard, and a run with all shards on a thread of its own takes as much of all of them.
/// (Tests have small collections.)
const IMAGE_BYTES_MAX: usize = if cfg!(test) { 1024 } else { 32 * 1024 };

/// Commands on streams that leave the groups alone.
const ENTRIES_ONLY: [&str; 4] = ["xadd", "xdel", "xtrim", "xsetid"];

/// The same for strings, which are copied at once.
const IMAGE_TEXT_BYTES_MAX: usize = 1024 * 1024;

/// Where a unit runs.
enum Place<'r> {
    /// On the thread of a connection.
    Inline,
    /// On a thread of its own.
    Apart {
        running: &'r Running,
        unit: Option<Arc<Unit>>,
        tended: Ticks,
    },
}

/// What shards had counted of reads at some moment; most units read of one.
#[derive(Default)]
struct KeptReads {
    first: Option<(u16, Reads)>,
    more: Vec<(u16, Reads)>,
}

impl KeptReads {
    fn of(&self, shard: u16) -> Option<Reads> {
        let mut all = self.first.iter().chain(&self.more);
        all.find(|(kept, _)| *kept == shard)
            .map(|(_, reads)| *reads)
    }

    fn keep(&mut self, shard: u16, reads: Reads) {
        match self.first {
            None => self.first = Some((shard, reads)),
            Some(_) => self.more.push((shard, reads)),
        }
    }
}

/// A unit that runs. See the module.
pub struct Attempt<'r, 'a> {
    reach: &'r mut Reach<'a, Engine, Message>,
    router: Router,
    is_bare: bool,
    place: Place<'r>,
    since: Ticks,
    /// The clock when it was last read.
    latest: Ticks,
    stop: Option<Stop>,
    /// Shards that it needed and did not get.
    lacks: Vec<u16>,
    /// Shards that it got on the way.
    extended: u32,
    /// Keys that it did not begin with.
    strays: Vec<Vec<u8>>,
    /// It is not undone any more.
    is_settled: bool,
    /// What shards had counted of reads before its first, but for those that go back by themselves.
    reads: KeptReads,
    /// Time does not pass; calls that are left until it is over all the same.
    #[cfg(test)]
    timeless: Option<u64>,
}

impl<'r, 'a> Attempt<'r, 'a> {
    /// A unit on the thread of a connection.
    pub fn inline(reach: &'r mut Reach<'a, Engine, Message>, router: Router) -> Attempt<'r, 'a> {
        let since = Ticks::now();
        Attempt {
            reach,
            router,
            is_bare: false,
            place: Place::Inline,
            since,
            latest: since,
            stop: None,
            lacks: Vec::new(),
            extended: 0,
            strays: Vec::new(),
            is_settled: false,
            reads: KeptReads::default(),
            #[cfg(test)]
            timeless: None,
        }
    }

    /// A unit on a thread of its own.
    pub fn apart(
        reach: &'r mut Reach<'a, Engine, Message>,
        router: Router,
        terms: &Terms,
        running: &'r Running,
    ) -> Attempt<'r, 'a> {
        let since = Ticks::now();
        let place = Place::Apart {
            running,
            unit: None,
            tended: since,
        };
        Attempt {
            is_bare: terms.is_bare,
            place,
            since,
            ..Attempt::inline(reach, router)
        }
    }

    /// Who owns a key.
    pub fn router(&self) -> Router {
        self.router
    }

    /// Whether it has to be undone.
    pub fn is_stopped(&self) -> bool {
        self.stop.is_some()
    }

    /// A script of the unit begins.
    pub fn begin_script(&mut self, command: &'static Command, args: &Args<'_>) {
        if let Place::Apart { running, unit, .. } = &mut self.place {
            let kind = terms::kind(command);
            *unit = Some(running.begin(kind, args.to_vec()));
        }
    }

    /// It is over.
    pub fn end_script(&mut self) {
        if let Place::Apart { running, unit, .. } = &mut self.place
            && let Some(unit) = unit.take()
        {
            running.end(&unit);
        }
    }

    /// When the clock was last read, which is done before each command, after those of scripts, and each few thousand
    /// instructions of a script.
    pub fn latest(&self) -> Ticks {
        self.latest
    }

    /// The moment, at the end of a unit that began at another one.
    fn now(&self, began: Now) -> Now {
        match self.latest.since_ns(self.since) {
            ..BRIEF_NS => began,
            _ => clock::now(),
        }
    }

    /// Reads the clock behind a command: the time since it was read before.
    pub fn read_clock_ns(&mut self) -> u64 {
        let now = Ticks::now();
        now.since_ns(std::mem::replace(&mut self.latest, now))
    }

    /// Asked now and then: whether the unit may go on.
    pub fn tick(&mut self, config: &Config) -> Result<(), Interrupted> {
        if self.stop.is_some() {
            return Err(Interrupted::Again);
        }
        #[cfg(test)]
        if let Some(left) = &mut self.timeless {
            if *left == 0 {
                return Err(self.end(Stop::Slow));
            }
            *left -= 1;
            return Ok(());
        }
        let now = Ticks::now();
        self.latest = now;
        if let Place::Inline = self.place {
            if now.since_ns(self.since) > INLINE_NS && !self.is_settled {
                return Err(self.end(Stop::Slow));
            }
            return Ok(());
        }
        self.tick_apart(now, config)
    }

    /// The same on a thread of its own.
    #[cold]
    fn tick_apart(&mut self, now: Ticks, config: &Config) -> Result<(), Interrupted> {
        let Place::Apart {
            running,
            unit,
            tended,
        } = &mut self.place
        else {
            return Ok(());
        };
        if now.since_ns(*tended) < TEND_NS {
            return Ok(());
        }
        *tended = now;
        let Some(unit) = unit else {
            return Ok(());
        };
        if unit.is_killed() {
            return Err(Interrupted::Killed);
        }
        let threshold_ms = u64::try_from(config.busy_reply_threshold).unwrap_or(0);
        // Redis takes zero for "never".
        let is_busy = threshold_ms > 0 && now.since_ns(self.since) / 1_000_000 >= threshold_ms;
        let is_news = is_busy && running.note_busy(unit);
        let text = unit.busy_text();
        self.reach
            .tend(is_news, |message| is_busy && message.turn_away(text));
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

    /// From here on it is not undone: what it did stays. Whatever comes has its shards by now.
    pub fn settle(&mut self) {
        if !std::mem::replace(&mut self.is_settled, true) {
            self.is_bare = true;
            self.with_engines(|engines| {
                for engine in engines {
                    engine.commit_attempt();
                }
            });
        }
    }

    /// Whether a command of it may say that it takes too long here.
    pub fn may_leave(&self) -> bool {
        let is_undone = !self.is_settled && !self.is_bare && self.stop.is_none();
        is_undone && matches!(self.place, Place::Inline)
    }

    /// A command of it has said so.
    pub fn leave(&mut self) -> Interrupted {
        self.end(Stop::Slow)
    }

    #[cold]
    fn end(&mut self, stop: Stop) -> Interrupted {
        debug_assert!(!self.is_settled, "it had all its shards");
        self.stop.get_or_insert(stop);
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
            if self.reach.shards().len() < usize::from(self.router.shard_count()) {
                return Err(self.end(Stop::NeedsAll));
            }
        } else if matches!(command.run, Run::Keys(_)) {
            self.get_shards(args)?;
        } else {
            return Ok(());
        }
        const MAY_WRITE: Flags = Flags::WRITE.or(Flags::MAY_REPLICATE);
        if command.flags.any(MAY_WRITE) {
            if !self.is_bare {
                self.keep_images(command, args, db, needs_all)?;
            }
            if let Place::Apart {
                unit: Some(unit), ..
            } = &self.place
            {
                unit.note_write();
            }
        } else if !self.is_bare && !self.has_reads(args, needs_all) {
            self.keep_reads(args, needs_all);
        }
        Ok(())
    }

    /// Whether all that is to be remembered of a command that reads is remembered already.
    #[inline]
    fn has_reads(&self, args: &Args<'_>, needs_all: bool) -> bool {
        let Some((first, _)) = self.reads.first else {
            return false;
        };
        !needs_all && args.keys().iter().all(|key| key.shard == first)
    }

    /// Remembers what the shards of a command that reads have counted so far.
    fn keep_reads(&mut self, args: &Args<'_>, needs_all: bool) {
        let mut hands = self.reach.hands();
        let reads = &mut self.reads;
        let mut keep = |shard: u16, engine: &mut Engine| {
            if reads.of(shard).is_none() && !engine.is_in_attempt() {
                reads.keep(shard, engine.board().reads());
            }
        };
        if needs_all {
            hands.iter().for_each(|(shard, engine)| keep(shard, engine));
        } else {
            for key in args.keys() {
                if let Some(engine) = hands.get(key.shard) {
                    keep(key.shard, engine);
                }
            }
        }
    }

    #[inline]
    fn get_shards(&mut self, args: &Args<'_>) -> Result<(), Interrupted> {
        let keys = args.keys();
        match !keys.is_empty() && keys.iter().all(|key| self.reach.holds(key.shard)) {
            true => Ok(()),
            false => self.get_more_shards(args),
        }
    }

    #[cold]
    fn get_more_shards(&mut self, args: &Args<'_>) -> Result<(), Interrupted> {
        let keys = args.keys();
        let spins = match self.place {
            Place::Inline => SPINS,
            Place::Apart { .. } => SPINS_APART,
        };
        for key in keys {
            if !self.reach.holds(key.shard) {
                if self.strays.len() < STRAYS_MAX {
                    self.strays.push(args.key_of(key).bytes.to_vec());
                }
                match self.reach.try_extend(key.shard, spins) {
                    true => self.extended += 1,
                    false => self.lacks.push(key.shard),
                }
            }
        }
        // A command whose keys could not be found runs anywhere, to say so.
        if keys.is_empty() && self.reach.shards().is_empty() && !self.reach.try_extend(0, spins) {
            self.lacks.push(0);
        }
        match self.lacks.is_empty() {
            true => Ok(()),
            false => Err(self.end(Stop::Lacks)),
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
        let mut is_large = false;
        {
            let mut hands = self.reach.hands();
            if needs_all || args.keys().is_empty() {
                for (_, engine) in hands.iter().filter(|(_, engine)| !engine.is_in_attempt()) {
                    engine.begin_attempt();
                }
            }
            for key in args.keys() {
                if let Some(engine) = hands.get(key.shard)
                    && !engine.is_in_attempt()
                {
                    engine.begin_attempt();
                }
            }
            // Whatever only overwrites or deletes is done here.
            let edits = |spec: &KeySpec| spec.flags.has(KeyFlags::RW);
            if command.key_finder.is_none() && !command.keys.iter().any(edits) {
                return Ok(());
            }
            let argument = |at: usize| args.get(at);
            let keys = args.keys();
            let change = match command.group {
                Group::Generic => Change::Taken,
                Group::Stream if ENTRIES_ONLY.contains(&command.name) => {
                    Change::InPlace(Part::Entries)
                }
                _ => Change::InPlace(Part::Any),
            };
            let _ = keys::positions(command, args.len(), argument, |at, flags| {
                // What is overwritten or deleted moves and is not copied; what is only read stays. Of commands on keys as
                // such, those that read the value take it elsewhere, and others give it a deadline.
                let is_generic = command.group == Group::Generic;
                let is_edited =
                    flags.has(KeyFlags::RW) && (!is_generic || flags.has(KeyFlags::ACCESS));
                let Some(key) = keys.iter().find(|key| key.argument as usize == at) else {
                    return;
                };
                if is_edited && let Some(engine) = hands.get(key.shard) {
                    let key = Key {
                        bytes: args.get(at),
                        hash: key.hash,
                    };
                    is_large |= engine.needs_large_image(
                        db,
                        &key,
                        change,
                        IMAGE_BYTES_MAX,
                        IMAGE_TEXT_BYTES_MAX,
                    );
                }
            });
        }
        match is_large {
            true => Err(self.end(Stop::NeedsBare)),
            false => Ok(()),
        }
    }

    /// Whether there is memory for what a script may add.
    pub fn has_room(&mut self, now: Now, config: &Config) -> bool {
        if config.maxmemory == 0 {
            return true;
        }
        // Any shard knows, and there may be none in hand yet.
        if self.reach.shards().is_empty() && self.get_shards(&Args::none()).is_err() {
            return true;
        }
        self.with_engines(|engines| engines.iter_mut().all(|engine| engine.has_room(now)))
    }

    /// The engines in hand, ascending.
    pub fn with_engines<R>(&mut self, work: impl FnOnce(&mut [&mut Engine]) -> R) -> R {
        let mut hands = self.reach.hands();
        let (mut one, mut many);
        let engines: &mut [&mut Engine] = match hands.len() {
            1 => {
                one = [hands.first()];
                &mut one
            }
            _ => {
                many = all_of(&mut hands);
                &mut many
            }
        };
        work(engines)
    }

    /// The unit, which began at this moment, is done: what it changed stays, and those are served who waited for it. What
    /// is due afterwards is added to `deferred`.
    pub fn commit(
        mut self,
        kind: Kind,
        began: Now,
        terms: &mut Terms,
        runs: &Runs,
        (publications, deferred): (&mut Publications, &mut Deferred),
    ) {
        self.end_script();
        let now = self.now(began);
        self.with_engines(|engines| {
            for engine in engines.iter_mut() {
                engine.commit_attempt();
            }
            execute::serve_waiters_of_all(engines, now, publications);
            for engine in engines.iter_mut() {
                deferred.append(&mut engine.deferred);
            }
        });
        let in_hand = self.reach.shards().len();
        let extent = Extent::of(in_hand, self.router.shard_count());
        counters::local().ran_unit(kind, extent);
        terms.outcome.is_wide = extent == Extent::All;
        terms.outcome.duration_ns = self.latest.since_ns(self.since);
        let is_apart = matches!(self.place, Place::Apart { .. });
        self.note_strays(terms);
        let outcome = &terms.outcome;
        if in_hand > 1 || is_apart || outcome.reruns > 0 {
            let count = |figure: &AtomicU64, by: u64| {
                if by > 0 {
                    figure.fetch_add(by, Relaxed);
                }
            };
            count(&runs.extended, u64::from(outcome.extended));
            count(&runs.reruns, u64::from(outcome.reruns));
            count(&runs.slow, u64::from(outcome.was_slow));
            count(&runs.apart, u64::from(is_apart));
        }
    }

    fn note_strays(&mut self, terms: &mut Terms) {
        let outcome = &mut terms.outcome;
        outcome.extended += self.extended;
        for stray in self.strays.drain(..) {
            if outcome.strays.len() < STRAYS_MAX && !outcome.strays.contains(&stray) {
                outcome.strays.push(stray);
            }
        }
    }

    /// The unit did nothing; on what terms it runs again is written into `terms`.
    pub fn undo(mut self, terms: &mut Terms, deferred: &mut Deferred) {
        self.end_script();
        let reads = std::mem::take(&mut self.reads);
        self.with_engines(|engines| {
            for engine in engines {
                engine.undo_attempt();
                if let Some(reads) = reads.of(engine.shard) {
                    engine.board().recount(reads);
                }
                deferred.append(&mut engine.deferred);
            }
        });
        self.note_strays(terms);
        let stop = self.stop.unwrap_or(Stop::Slow);
        let count = self.router.shard_count();
        terms.after(stop, self.reach.shards(), &self.lacks, count);
    }
}

/// Several engines, or none.
#[cold]
fn all_of<'h>(hands: &'h mut Hands<'_, Engine>) -> Vec<&'h mut Engine> {
    hands.iter().map(|(_, engine)| engine).collect()
}
