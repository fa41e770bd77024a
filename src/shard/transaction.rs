//! The commands of a transaction, queued, and run as one step with all their shards in hand.
//!
//! It owns all that it needs, so that it can travel as a message like any other command.

use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;
use std::time::Duration;

use super::attempt::Attempt;
use super::attempt::terms::Terms;
use super::execute::{self, Scene};
use super::heavy::{KEYS_MANY, LARGE_BYTES_MIN, bytes_in, chosen_db, keys_in};
use super::script::{self, ScriptCall};
use crate::client::connection::Connection;
use crate::client::registry::Sayings;
use crate::command::args::RoutedKey;
use crate::command::context::{
    After, ClientView, Engines, Gather, Outbox, Publications, Server, SessionCx, ShardPlace,
};
use crate::command::declaration::{Command, CommandResult, Flags, Run, ScriptVerb};
use crate::command::error::CommandError;
use crate::command::{Args, Out};
use crate::config::Config;
use crate::engine::{Deferred, Engine, Key, Now};
use crate::resp::reply::Mark;
use crate::resp::request::Span;
use crate::script::footprint;
use crate::script::library::Library;
use crate::telemetry::clock::{self, Ticks};
use crate::telemetry::counters::{self, Extent, Kind, Spent, Tally};
use crate::telemetry::{latency, slowlog};

/// A key that must not change before EXEC.
#[derive(Clone, Debug)]
pub struct Watched {
    /// Its database.
    pub db: usize,
    /// Its name.
    pub key: Box<[u8]>,
    /// Its hash.
    pub hash: u64,
    /// Its shard.
    pub shard: u16,
    /// The largest stamp that the connection knew of when it began to watch.
    pub stamp: u64,
    /// How often it was asked to be watched.
    pub times: usize,
}

impl Watched {
    /// A key whose time came meanwhile goes now, and that is a change.
    pub(super) fn expire(&self, engine: &mut Engine, now: Now) {
        let key = Key {
            bytes: &self.key,
            hash: self.hash,
        };
        let _ = engine.keyspace(self.db, now).untouched().find_write(&key);
    }

    /// One record for each key, whose watch begins where the first of them did.
    pub fn merge(all: &mut Vec<Watched>) {
        all.sort_by(|one, other| {
            (one.db, &one.key, one.stamp).cmp(&(other.db, &other.key, other.stamp))
        });
        all.dedup_by(|later, first| {
            let is_same = (later.db, &later.key) == (first.db, &first.key);
            first.times += if is_same { later.times } else { 0 };
            is_same
        });
    }
}

/// One queued command.
struct Step {
    command: &'static Command,
    needs_all_shards: bool,
    spans_end: u32,
    keys_end: u32,
}

/// Queued commands and watched keys.
#[derive(Default)]
pub struct Transaction {
    data: Vec<u8>,
    spans: Vec<Span>,
    keys: Vec<RoutedKey>,
    steps: Vec<Step>,
    /// What must not have changed.
    pub watched: Vec<Watched>,
    /// One command that no MULTI began: a script, which answers for itself.
    is_lone: bool,
    /// What the names in there take.
    watched_names_bytes: usize,
    /// The commands that are looked at for hot keys, ascending.
    chosen: Vec<usize>,
}

/// What a watched key takes in its shard.
const WATCHED_BYTES: usize = 64;

/// What a transaction runs with besides its shards.
pub struct Stage<'a> {
    /// The connection, whose database a step may change.
    pub connection: &'a mut Connection,
    /// What steps may ask of the server.
    pub server: &'static dyn Server,
    /// Scripts and functions.
    pub scripts: &'static Library,
    /// Limits and thresholds.
    pub config: &'a Arc<Config>,
    /// Those that a step has set in place of them.
    pub renewed: Option<Arc<Config>>,
    /// The moment.
    pub now: Now,
    /// How many shards the server has.
    pub shard_count: u16,
}

impl Stage<'_> {
    /// Limits and thresholds as the steps before have left them.
    pub(super) fn config(&self) -> &Arc<Config> {
        self.renewed.as_ref().unwrap_or(self.config)
    }

    /// Lets CLIENT LIST see what steps made of the connection.
    fn publish(&self) {
        let Connection {
            shared,
            db,
            protocol,
            ..
        } = &*self.connection;
        shared.db.store(*db as u32, Relaxed);
        shared.resp.store(protocol.version(), Relaxed);
    }
}

/// What few units leave to be done.
#[derive(Default)]
pub struct Seldom {
    /// The error replies of steps, for the statistics.
    pub errors: Vec<Vec<u8>>,
    /// The steps that took long for the slow log or the latency monitor, with the time that they took.
    pub slow: Vec<(usize, u64)>,
    /// The steps that are looked at for hot keys, with their time and the length of their replies.
    pub chosen: Vec<(usize, u64, usize)>,
    /// What scripts called, while somebody looks on.
    pub script_calls: Vec<ScriptCall>,
    /// Steps that run when the shards are let go, with the places of their replies.
    pub postponed: Vec<(usize, Mark)>,
    /// What the connection said of itself before a step that may have changed it.
    said: Option<Sayings>,
}

/// What a run leaves to be done besides its reply.
#[derive(Default)]
pub struct Aftermath {
    /// Whether the commands were run at all: no watched key had changed.
    pub was_run: bool,
    /// It was not, for want of memory.
    pub was_refused: bool,
    /// What a step wants the session to do.
    pub after: After,
    /// What is to be published when the shards are let go.
    pub publications: Publications,
    /// A script held its shards for too long. What it watched is watched still.
    pub was_turned_away: bool,
    /// What is yet to be counted of a unit's commands, and of those that its scripts called.
    pub tally: Tally,
    /// It may be undone yet, so that nothing of it is counted.
    is_open: bool,
    /// The database that the first command ran in.
    pub db: usize,
    /// The commands that chose another database, and which: it is that of the following ones, too.
    pub selections: Vec<(usize, usize)>,
    /// The command that is running.
    pub step: usize,
    /// The script that is no transaction's answered with an error.
    pub failed: bool,
    /// The command under way may be undone, with all before it, if it takes too long here.
    pub may_leave: bool,
    /// That is so, and it did nothing.
    pub leaves: bool,
    /// See there; most units have none of it.
    pub seldom: Option<Box<Seldom>>,
}

impl Aftermath {
    /// What is there of the seldom things, made if nothing is.
    #[cold]
    pub fn seldom(&mut self) -> &mut Seldom {
        self.seldom.get_or_insert_default()
    }

    /// Something that is undone with the unit is about to happen to the connection.
    #[cold]
    fn keep_sayings(&mut self, connection: &Connection) {
        let said = &mut self.seldom().said;
        said.get_or_insert_with(|| connection.shared.sayings());
    }

    /// There is no memory for what may be added: nothing runs.
    #[cold]
    fn refuse(&mut self, out: &mut Out) {
        self.was_refused = true;
        let why = CommandError::OutOfMemory;
        let text = format!("EXECABORT Transaction discarded because of: {}", why.text());
        out.error(text.as_bytes());
    }

    /// Whether a step runs, and counts, when the shards are let go.
    fn is_postponed(&self, step: usize) -> bool {
        let postponed = self.seldom.iter().flat_map(|seldom| &seldom.postponed);
        postponed.last().is_some_and(|(last, _)| *last == step)
    }

    /// The step under way has run.
    fn note(&mut self, command: &'static Command, spent: Spent, config: &Config) {
        let duration_ns = spent.duration_ns;
        match self.is_open {
            true => self.tally.ran(command, spent),
            false => counters::local()
                .command(command)
                .ran(duration_ns, spent.failed),
        }
        self.note_time(self.step, duration_ns, config);
    }

    /// A step took so long, which the slow log or the latency monitor may want to know.
    pub fn note_time(&mut self, step: usize, duration_ns: u64, config: &Config) {
        if slowlog::is_slow(config, duration_ns) || latency::is_slow(config, duration_ns) {
            let slow = &mut self.seldom().slow;
            let at = slow.partition_point(|(other, _)| *other < step);
            slow.insert(at, (step, duration_ns));
        }
    }

    /// The unit is done: what was put off is counted.
    fn close(&mut self) {
        self.is_open = false;
        self.tally.count(counters::local());
    }
}

/// What the commands of a transaction run on.
enum Hold<'h, 'e, 'r, 'a> {
    /// The shards of all of them, for as long as it takes.
    Given(&'h mut [&'e mut Engine]),
    /// A unit, which may come to need more, and may have to be undone.
    Unit(&'h mut Attempt<'r, 'a>),
}

impl Hold<'_, '_, '_, '_> {
    fn with_engines<R>(&mut self, work: impl FnOnce(&mut [&mut Engine]) -> R) -> R {
        match self {
            Hold::Given(engines) => work(engines),
            Hold::Unit(attempt) => attempt.with_engines(work),
        }
    }

    /// Whether the unit has to be undone.
    fn is_stopped(&self) -> bool {
        matches!(self, Hold::Unit(attempt) if attempt.is_stopped())
    }

    /// Runs one command; true when it answered with an error, which is of no meaning if the unit has to be undone.
    fn run(
        &mut self,
        command: &'static Command,
        args: &Args<'_>,
        stage: &mut Stage<'_>,
        out: &mut Out,
        aftermath: &mut Aftermath,
    ) -> bool {
        if let Hold::Unit(attempt) = self {
            if let Run::Script(verb) = command.run {
                // Scripts note their errors themselves.
                return script::run((command, verb), args, attempt, stage, out, aftermath);
            }
            if matches!(command.run, Run::Session(_)) {
                match command.flags.has(Flags::REPEATABLE) {
                    true => aftermath.keep_sayings(stage.connection),
                    false => attempt.settle(),
                }
            }
            let db = stage.connection.db;
            if attempt.prepare(command, args, db, stage.config()).is_err() {
                return false;
            }
        }
        let mark = out.position();
        if let Hold::Unit(attempt) = self {
            aftermath.may_leave = attempt.may_leave();
        }
        let failed =
            self.with_engines(|engines| run_step(command, args, engines, stage, out, aftermath));
        if let Hold::Unit(attempt) = self
            && aftermath.leaves
        {
            attempt.leave();
            return false;
        }
        if failed {
            aftermath.seldom().errors.push(out.since(mark).to_vec());
        }
        failed
    }
}

impl Transaction {
    /// A script that is its own unit.
    pub fn lone(command: &'static Command, args: &Args<'_>) -> Transaction {
        let mut transaction = Transaction {
            is_lone: true,
            ..Transaction::default()
        };
        transaction.push(command, args);
        transaction
    }

    /// Whether it is a script and no transaction.
    pub fn is_lone(&self) -> bool {
        self.is_lone
    }

    /// Queues a command.
    pub fn push(&mut self, command: &'static Command, args: &Args<'_>) {
        for argument in args.from(0) {
            self.spans.push(Span {
                start: self.data.len() as u32,
                len: argument.len() as u32,
            });
            self.data.extend_from_slice(argument);
        }
        self.keys.extend_from_slice(args.keys());
        self.steps.push(Step {
            command,
            needs_all_shards: command.needs_all_shards(args),
            spans_end: self.spans.len() as u32,
            keys_end: self.keys.len() as u32,
        });
    }

    /// The queued commands with their arguments.
    pub fn commands(&self) -> impl Iterator<Item = (&'static Command, Args<'_>)> {
        let (mut span, mut key) = (0, 0);
        self.steps.iter().map(move |step| {
            let spans = &self.spans[span..step.spans_end as usize];
            let keys = &self.keys[key..step.keys_end as usize];
            (span, key) = (step.spans_end as usize, step.keys_end as usize);
            (step.command, Args::new(&self.data, &[], spans, keys))
        })
    }

    /// How many commands are queued.
    pub fn len(&self) -> usize {
        self.steps.len()
    }

    /// Whether none is.
    pub fn is_empty(&self) -> bool {
        self.steps.is_empty()
    }

    /// What it takes in memory.
    pub fn memory_bytes(&self) -> usize {
        self.data.capacity()
            + self.spans.capacity() * size_of::<Span>()
            + self.keys.capacity() * size_of::<RoutedKey>()
            + self.steps.capacity() * size_of::<Step>()
            + self.watched.capacity() * size_of::<Watched>()
            + self.watched.len() * WATCHED_BYTES
            + self.watched_names_bytes
    }

    /// Says which commands are looked at for hot keys, ascending.
    pub fn look_at(&mut self, chosen: Vec<usize>) {
        self.chosen = chosen;
    }

    /// Adds a key that must not change.
    pub fn watch(&mut self, watched: Watched) {
        self.watched_names_bytes += watched.key.len();
        self.watched.push(watched);
    }

    /// Whether a command of it needs all shards, whatever its keys are. Scripts begin with what they name.
    fn is_wide(&self) -> bool {
        self.steps.iter().any(|step| match step.command.run {
            Run::Script(_) => false,
            Run::EachShard(..) | Run::Cursor(..) => true,
            _ => step.needs_all_shards,
        })
    }

    /// Whether any of the queued commands changes data by its name; scripts look at that themselves.
    pub fn writes(&self) -> bool {
        self.steps.iter().any(|step| step.command.is_write())
    }

    /// The shards that it needs to begin with, ascending, out of so many.
    pub fn shards(&self, count: u16) -> Vec<u16> {
        if self.is_wide() {
            return (0..count).collect();
        }
        let mut shards: Vec<u16> = self.keys.iter().map(|key| key.shard).collect();
        shards.extend(self.watched.iter().map(|watched| watched.shard));
        // A command whose keys could not be found runs anywhere, to say so.
        let is_lost = |step: &Step| matches!(step.command.run, Run::Keys(_));
        if shards.is_empty() && self.steps.iter().any(is_lost) {
            shards.push(0);
        }
        shards.sort_unstable();
        shards.dedup();
        shards
    }

    /// Whether any of the queued commands may take too long for the thread of a connection, going by how large the values
    /// are before the first of them runs. The engines are those of [`Transaction::shards`].
    pub fn may_be_heavy(&self, engines: &[&mut Engine], db: usize) -> bool {
        let takes_long = |step: &Step| step.command.flags.has(Flags::TAKES_LONG);
        if !self.steps.iter().any(takes_long) {
            return false;
        }
        let mut db = db;
        let count = engines.first().map_or(0, |engine| engine.board().dbs.len());
        let mut steps = self.steps.iter().zip(self.commands());
        steps.any(|(step, (command, args))| {
            if let Some(chosen) = chosen_db(command, &args).filter(|chosen| *chosen < count) {
                db = chosen;
            }
            takes_long(step)
                && match command.run {
                    Run::EachShard(..) => keys_in(engines, db) > KEYS_MANY,
                    _ => bytes_in(engines, db, &args) > LARGE_BYTES_MIN,
                }
        })
    }

    /// Whether its arguments are so long that something is done with them before any shard is in hand.
    pub fn is_long(&self) -> bool {
        let mut spans = self.spans.iter();
        self.data.len() > LARGE_BYTES_MIN && spans.any(|span| span.len as usize > LARGE_BYTES_MIN)
    }

    /// Whether any of the queued commands may add data.
    fn may_grow(&self) -> bool {
        let mut steps = self.steps.iter();
        steps.any(|step| step.command.flags.has(Flags::DENYOOM))
    }

    /// Runs everything with the engines of [`Transaction::shards`] in hand, or nothing if a watched key changed or there
    /// is no memory for what may be added.
    pub fn run(&self, engines: &mut [&mut Engine], stage: Stage<'_>, out: &mut Out) -> Aftermath {
        let mut aftermath = Aftermath::default();
        let mut stage = stage;
        let extent = Extent::of(engines.len(), stage.shard_count);
        counters::local().ran_unit(Kind::Transaction, extent);
        self.run_on(Hold::Given(engines), &mut stage, out, &mut aftermath);
        // Steps may have taken long: what they left may have expired by now.
        execute::serve_waiters_of_all(engines, clock::now(), &mut aftermath.publications);
        aftermath
    }

    /// Whether scripts are among the commands, so that it runs as a unit, by [`Transaction::attempt`].
    pub fn has_scripts(&self) -> bool {
        let mut steps = self.steps.iter();
        steps.any(|step| matches!(step.command.run, Run::Script(_)))
    }

    /// On what terms a unit begins, with so many shards in the server.
    pub fn terms(&self, count: u16) -> Terms {
        let mut scripts_follow = false;
        for step in self.steps.iter().rev() {
            match step.command.run {
                Run::Script(_) => scripts_follow = true,
                // What it does to others is not undone, and a script behind it may come to need other shards.
                Run::Session(_) if scripts_follow && !step.command.flags.has(Flags::REPEATABLE) => {
                    return Terms::bare(count);
                }
                _ => {}
            }
        }
        Terms::with(self.shards(count)).apart_if(self.is_long())
    }

    /// As [`Transaction::run`], with scripts among the commands; nothing if it was undone, and is to run again on the
    /// terms that it finds then.
    pub fn attempt(
        &self,
        mut attempt: Attempt<'_, '_>,
        mut stage: Stage<'_>,
        out: &mut Out,
        terms: &mut Terms,
        deferred: &mut Deferred,
    ) -> Option<Aftermath> {
        if let ([step], true) = (self.steps.as_slice(), self.is_lone)
            && let Run::Script(verb) = step.command.run
        {
            let args = Args::new(&self.data, &[], &self.spans, &self.keys);
            let what = (step.command, verb);
            let rest = (terms, deferred);
            return run_lone(what, &args, attempt, &mut stage, out, rest);
        }
        let (mark, before) = (out.position(), stage.connection.clone());
        let mut aftermath = Aftermath {
            is_open: true,
            ..Aftermath::default()
        };
        attempt.begin_transaction(stage.connection.id());
        self.run_on(Hold::Unit(&mut attempt), &mut stage, out, &mut aftermath);
        if attempt.is_stopped() {
            out.truncate(mark);
            out.set_protocol(before.protocol);
            *stage.connection = before;
            if let Some(said) = aftermath.seldom.and_then(|seldom| seldom.said) {
                stage.connection.shared.say_again(said);
            }
            attempt.undo(terms, deferred);
            return None;
        }
        let runs = &stage.scripts.runs;
        attempt.read_clock_ns();
        let rest = (&mut aftermath.publications, deferred);
        attempt.commit(Kind::Transaction, stage.now, terms, runs, rest);
        aftermath.close();
        Some(aftermath)
    }

    /// Runs everything, or nothing; or, if the unit has to be undone, some of it.
    fn run_on(
        &self,
        mut hold: Hold<'_, '_, '_, '_>,
        stage: &mut Stage<'_>,
        out: &mut Out,
        aftermath: &mut Aftermath,
    ) {
        let (may_grow, now) = (self.may_grow(), stage.now);
        let has_room =
            |engines: &mut [&mut Engine]| engines.iter_mut().all(|engine| engine.has_room(now));
        let has_changed = hold.with_engines(|engines| self.any_changed(engines, now));
        if may_grow && !hold.with_engines(has_room) {
            aftermath.refuse(out);
        } else if has_changed {
            out.null_array();
        } else {
            out.array(self.steps.len());
            aftermath.was_run = true;
            self.run_steps(&mut hold, stage, out, aftermath);
        }
        if hold.is_stopped() {
            return;
        }
        hold.with_engines(|engines| {
            self.unwatch(engines);
            if may_grow && aftermath.was_run {
                for engine in engines {
                    engine.pay(now, self.steps.len());
                }
            }
        });
        stage.publish();
    }

    fn run_steps(
        &self,
        hold: &mut Hold<'_, '_, '_, '_>,
        stage: &mut Stage<'_>,
        out: &mut Out,
        aftermath: &mut Aftermath,
    ) {
        let mut before = Ticks::now();
        let mut db = stage.connection.db;
        aftermath.db = db;
        for (number, (command, args)) in self.commands().enumerate() {
            aftermath.step = number;
            let mark = out.position();
            let failed = hold.run(command, &args, stage, out, aftermath);
            if hold.is_stopped() {
                return;
            }
            if stage.connection.db != db {
                db = stage.connection.db;
                aftermath.selections.push((number, db));
            }
            out.set_protocol(stage.connection.protocol);
            let after = Ticks::now();
            let duration_ns = after.since_ns(before);
            before = after;
            let spent = Spent {
                duration_ns,
                failed,
            };
            if !aftermath.is_postponed(number) {
                aftermath.note(command, spent, stage.config());
            }
            if self.chosen.binary_search(&number).is_ok() {
                let reply_bytes = out.len_since(mark);
                let what = (number, duration_ns, reply_bytes);
                aftermath.seldom().chosen.push(what);
            }
        }
    }

    /// Whether one of the watched keys has changed.
    fn any_changed(&self, engines: &mut [&mut Engine], now: Now) -> bool {
        let mut any_changed = false;
        for watched in &self.watched {
            let mut engines = engines.iter_mut();
            if let Some(engine) = engines.find(|engine| engine.shard == watched.shard) {
                any_changed |= has_changed(engine, watched, now);
            }
        }
        any_changed
    }

    /// Watches no more.
    fn unwatch(&self, engines: &mut [&mut Engine]) {
        for watched in &self.watched {
            let mut engines = engines.iter_mut();
            if let Some(engine) = engines.find(|engine| engine.shard == watched.shard) {
                let Watched { db, key, times, .. } = watched;
                engine.watches.remove(*db, key, *times);
            }
        }
    }
}

/// Whether a watched key changed since it is watched.
fn has_changed(engine: &mut Engine, watched: &Watched, now: Now) -> bool {
    watched.expire(engine, now);
    engine
        .watches
        .changed_since(watched.db, &watched.key, watched.stamp)
}

/// Runs a script that is its own unit; nothing if it was undone, and is to run again on the terms that it finds then.
pub fn run_lone(
    (command, verb): (&'static Command, ScriptVerb),
    args: &Args<'_>,
    mut attempt: Attempt<'_, '_>,
    stage: &mut Stage<'_>,
    out: &mut Out,
    (terms, deferred): (&mut Terms, &mut Deferred),
) -> Option<Aftermath> {
    let mark = out.position();
    let mut aftermath = Aftermath {
        was_run: true,
        is_open: true,
        db: stage.connection.db,
        ..Aftermath::default()
    };
    let what = (command, verb);
    aftermath.failed = script::run(what, args, &mut attempt, stage, out, &mut aftermath);
    if attempt.is_stopped() {
        out.truncate(mark);
        attempt.undo(terms, deferred);
        return None;
    }
    out.set_protocol(stage.connection.protocol);
    let library = stage.scripts;
    let rest = (&mut aftermath.publications, deferred);
    attempt.commit(Kind::Script, stage.now, terms, &library.runs, rest);
    aftermath.close();
    let tag = terms.tag.unwrap_or_else(|| footprint::tag_of(args));
    library.footprints.note(tag, args, &terms.outcome);
    Some(aftermath)
}

/// Runs one command; true when it answered with an error.
pub(super) fn run_step(
    command: &'static Command,
    args: &Args<'_>,
    engines: &mut [&mut Engine],
    stage: &mut Stage<'_>,
    out: &mut Out,
    aftermath: &mut Aftermath,
) -> bool {
    let result = match command.run {
        Run::Session(_) if !stage.connection.is_in_script && command.is_postponed(args) => {
            let place = (aftermath.step, out.later());
            aftermath.seldom().postponed.push(place);
            return false;
        }
        Run::Session(handler) => {
            let config = stage.renewed.as_ref().unwrap_or(stage.config);
            let mut cx = SessionCx {
                client: stage.connection,
                server: stage.server,
                config,
                now: stage.now,
                command,
                after: After::Nothing,
                outbox: Outbox::Held(&mut aftermath.publications.kept),
            };
            let result = handler(&mut cx, args, out);
            match cx.after {
                After::Nothing => {}
                After::Configured => {
                    stage.renewed = Some(stage.server.config());
                    if matches!(aftermath.after, After::Nothing) {
                        aftermath.after = After::Configured;
                    }
                }
                // Nothing waits inside a transaction.
                After::Block(block) => {
                    if let (true, Some(until_ms)) = (block.holds, block.until_ms) {
                        let left_ms = until_ms.saturating_sub(clock::unix_ms());
                        std::thread::sleep(Duration::from_millis(left_ms));
                    }
                    (block.on_timeout)(out);
                }
                after => aftermath.after = after,
            }
            result
        }
        // UNWATCH: the keys are watched no more when a transaction runs.
        Run::Transaction(_) => {
            out.ok();
            Ok(())
        }
        Run::Container(_) => Err("ERR unknown subcommand".into()),
        Run::Script(_) => Err("ERR a script cannot run here".into()),
        _ => return run_on_shards(command, args, engines, stage, out, aftermath),
    };
    match result {
        Ok(()) => false,
        Err(error) => {
            out.error(error.text().as_bytes());
            true
        }
    }
}

fn run_on_shards(
    command: &'static Command,
    args: &Args<'_>,
    engines: &mut [&mut Engine],
    stage: &mut Stage<'_>,
    out: &mut Out,
    aftermath: &mut Aftermath,
) -> bool {
    let mut view = ClientView::of(stage.connection);
    let (now, count) = (stage.now, stage.shard_count);
    let config = stage.renewed.as_ref().unwrap_or(stage.config);
    let scene = |index: u16| Scene {
        now,
        config,
        place: ShardPlace { index, count },
        blocker: None,
        may_leave: false,
    };
    let failed = match command.run {
        Run::EachShard(..)
            if aftermath.may_leave
                && command.flags.has(Flags::TAKES_LONG)
                && keys_in(engines, view.db) > KEYS_MANY =>
        {
            aftermath.leaves = true;
            return true;
        }
        Run::EachShard(_, merge) | Run::Cursor(_, _, merge) => {
            let result = visit_each(command, args, engines, &mut view, &scene, count);
            match result.and_then(|gather| merge(args, gather, out)) {
                Ok(()) => false,
                Err(error) => {
                    out.error(error.text().as_bytes());
                    true
                }
            }
        }
        _ => {
            if let [only] = engines {
                let place = scene(only.shard);
                let mut cx = execute::context(command, Engines::One(only), &view, place, args);
                if aftermath.may_leave {
                    cx.allow_leaving();
                }
                let failed = execute::answer(command, &mut cx, args, out);
                aftermath.leaves |= cx.leaves();
                execute::learn(&mut cx, &mut view);
                stage.connection.stamp = view.stamp;
                return failed;
            }
            let needs_all = command.needs_all_shards(args);
            let is_mine =
                |shard: u16| needs_all || args.keys().iter().any(|key| key.shard == shard);
            // A command without keys that could be found runs anywhere, to say so.
            let anywhere = match engines.iter().any(|engine| is_mine(engine.shard)) {
                true => None,
                false => engines.first().map(|engine| engine.shard),
            };
            let mut mine: Vec<&mut Engine> = engines
                .iter_mut()
                .filter(|engine| is_mine(engine.shard) || anywhere == Some(engine.shard))
                .map(|engine| &mut **engine)
                .collect();
            let first = mine.first().map_or(0, |engine| engine.shard);
            let mine = match mine.len() {
                1 => Engines::One(mine.remove(0)),
                _ => Engines::Many(mine),
            };
            let mut cx = execute::context(command, mine, &view, scene(first), args);
            if aftermath.may_leave {
                cx.allow_leaving();
            }
            let failed = execute::answer(command, &mut cx, args, out);
            aftermath.leaves |= cx.leaves();
            execute::learn(&mut cx, &mut view);
            failed
        }
    };
    stage.connection.stamp = view.stamp;
    failed
}

fn visit_each<'s>(
    command: &'static Command,
    args: &Args<'s>,
    engines: &mut [&mut Engine],
    view: &mut ClientView,
    scene: &dyn Fn(u16) -> Scene<'s>,
    count: u16,
) -> CommandResult<Gather> {
    let (part, first) = match command.run {
        Run::EachShard(part, _) => (part, 0),
        Run::Cursor(shard_of, part, _) => (part, shard_of(args, count)?),
        _ => unreachable!("{} does not go from shard to shard", command.full_name),
    };
    let mut gather = Gather::default();
    for engine in engines.iter_mut().filter(|engine| engine.shard >= first) {
        if gather.done {
            break;
        }
        let shard = engine.shard;
        let mut cx = execute::context(command, Engines::One(engine), view, scene(shard), args);
        let mut result = part(&mut cx, args, &mut gather);
        while result.is_ok() && gather.position != 0 {
            result = part(&mut cx, args, &mut gather);
        }
        execute::learn(&mut cx, view);
        result?;
    }
    Ok(gather)
}
