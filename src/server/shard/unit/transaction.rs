//! The queued commands of a transaction, run atomically with all their shards locked.
//!
//! A transaction owns all that it needs, so that it can be queued as a message like any other command.

use std::collections::HashMap;
use std::mem;

use smallvec::SmallVec;

use super::context::{UnitContext, UnitOutcome};
use super::plan::UnitPlan;
use super::weight::{KEYS_MANY, LARGE_BYTES_MIN, bytes_in, chosen_db, keys_in};
use super::{ExecutionUnit, script, step};
use crate::script::footprint;
use crate::script::library::Library;
use crate::shard::ownership::ShardList;
use crate::shard::ownership::engines::HeldEngines;
use crate::shard::permit::{self, Permit, Redirect};
use crate::telemetry::clock::Ticks;
use crate::telemetry::counters::{Spent, UnitKind};
use basalt_commands::cluster::route::{RoutingFlags, SlotOf};
use basalt_commands::command::acl::check::{self, AclLogContext, Asker};
use basalt_commands::command::admission::Candidate;
use basalt_commands::command::declaration::{Command, Flags, Run, ScriptVerb};
use basalt_commands::command::error::CommandError;
use basalt_commands::command::owned::{self, OwnedArgs};
use basalt_commands::command::transaction::exec_abort;
use basalt_commands::command::{Args, Out};
use basalt_engine::evict::Full;
use basalt_engine::record;
use basalt_engine::watching::Watched;
use basalt_engine::{Engine, Now};

/// One queued command.
struct QueuedCommand {
    command: &'static Command,
    needs_all_shards: bool,
    spans_end: u32,
    keys_end: u32,
}

/// Some queued commands, in order.
#[derive(Default)]
struct Steps {
    args: OwnedArgs,
    steps: Vec<QueuedCommand>,
}

impl Steps {
    fn push(&mut self, command: &'static Command, args: &Args<'_>) {
        self.args.push_all(args);
        self.steps.push(QueuedCommand {
            command,
            needs_all_shards: command.needs_all_shards(args),
            spans_end: self.args.len() as u32,
            keys_end: self.args.keys().len() as u32,
        });
    }

    /// Returns the queued commands with their arguments.
    fn commands(&self) -> impl Iterator<Item = (&'static Command, Args<'_>)> {
        let (mut span, mut key) = (0, 0);
        self.steps.iter().map(move |step| {
            let (spans, keys) = (span..step.spans_end as usize, key..step.keys_end as usize);
            (span, key) = (spans.end, keys.end);
            (step.command, self.args.part(spans, keys))
        })
    }

    fn memory_bytes(&self) -> usize {
        self.args.memory_bytes() + self.steps.capacity() * size_of::<QueuedCommand>()
    }
}

/// Queued commands and watched keys.
#[derive(Default)]
pub struct Transaction {
    /// Full chunks of queued commands. The queue is kept in chunks because it may exceed the limit of one
    /// argument buffer, and so that it is never copied to a larger buffer.
    full: Vec<Steps>,
    /// The last chunk of commands.
    last: Steps,
    /// Number of commands in `full`, and (`full_bytes`) their memory in bytes.
    full_len: usize,
    full_bytes: usize,
    /// True if a queued command has so many or such long arguments that it takes long.
    is_long: bool,
    /// Watched keys: one record per key, as of its first WATCH.
    pub watched: Vec<Watched>,
    /// Index of the record of a key, by its database and hash.
    watched_places: HashMap<(usize, u64), usize>,
    /// True for a single script outside MULTI, whose reply is not wrapped in an array.
    is_lone: bool,
    /// Bytes of the names of watched keys, in `watched` and in their shards.
    watched_names_bytes: usize,
    /// Indices of the commands sampled for hot keys, ascending.
    sampled: Vec<usize>,
    /// In a cluster, the slot of all keys, and (`routing`) the commands' combined routing flags.
    slot: SlotOf,
    routing: RoutingFlags,
    /// In a cluster, the permit with which EXEC was admitted.
    pub permit: Option<Permit>,
}

/// Initial capacity of a transaction: commands, and bytes of their arguments.
const ROOM_STEPS: usize = 12;
const ROOM_BYTES: usize = 1024;

/// Bytes of short arguments above which a new chunk is started.
const STEPS_BYTES: usize = if cfg!(test) { 4096 } else { 1024 * 1024 };

/// Bytes of a watched key in its shard, besides its name.
const WATCHED_BYTES: usize = 96;

/// Runs one command of a transaction; returns true if it replied with an error, which is meaningless if the unit has to
/// be rolled back.
fn run_step(
    (command, args): (&'static Command, &Args<'_>),
    unit: &mut ExecutionUnit<'_, '_>,
    cx: &mut UnitContext<'_>,
    out: &mut Out,
    outcome: &mut UnitOutcome,
) -> bool {
    if let Run::Script(verb) = command.run {
        // Scripts record their errors themselves.
        return script::run((command, verb), args, unit, cx, out, outcome);
    }
    if matches!(command.run, Run::Session(_)) {
        match command.flags.has(Flags::REPEATABLE) && !unit.is_irrevocable() {
            true => outcome.keep_settings(cx.connection),
            false => unit.make_irrevocable(),
        }
    }
    let prepared = unit.prepare(command, args, cx.connection.db, cx.config());
    if prepared.is_err() {
        return false;
    }
    let mark = out.position();
    outcome.may_offload = unit.may_offload();
    let failed = step::run(command, args, &mut unit.engines(), cx, out, outcome);
    if outcome.offloads {
        unit.offload();
        return false;
    }
    if failed {
        outcome.notes().errors.push(out.since(mark).to_vec());
    }
    failed
}

/// Returns why the client's user may no longer run a queued command, if so; the denial is logged.
fn denial(cx: &UnitContext<'_>, command: &'static Command, args: &Args<'_>) -> Option<String> {
    let client = &cx.connection.shared;
    if !client.is_checked() || cx.connection.origin.replays() {
        return None;
    }
    let asker = Asker {
        client,
        server: cx.server,
        config: cx.config(),
        place: AclLogContext::Multi,
        db: cx.connection.db,
        now_ms: cx.now.unix_ms,
    };
    check::refusal(asker, command, args, |refused, _| check::exec_text(refused))
}

impl Transaction {
    /// Creates a unit of a single script.
    pub fn lone(command: &'static Command, args: &Args<'_>) -> Transaction {
        let mut transaction = Transaction {
            is_lone: true,
            ..Transaction::default()
        };
        transaction.last.args = OwnedArgs::with_room_for(args);
        transaction.add(command, args);
        transaction
    }

    /// Records the slot of a queued command's keys.
    pub fn note_slot(&mut self, slot: SlotOf, command: &Command) {
        self.slot = self.slot.with(slot);
        if command.is_write() {
            self.routing = self.routing.or(RoutingFlags::WRITES);
        }
    }

    /// Returns the slot of all keys, in a cluster, and routing flags that tell whether any command writes.
    pub fn slot(&self) -> (SlotOf, RoutingFlags) {
        (self.slot, self.routing)
    }

    /// Returns whether this is a script and not a transaction.
    pub fn is_lone(&self) -> bool {
        self.is_lone
    }

    /// Queues a command.
    pub fn push(&mut self, command: &'static Command, args: &Args<'_>) {
        if self.last.steps.is_empty() {
            self.last.args = OwnedArgs::with_room(ROOM_BYTES, 3 * ROOM_STEPS, ROOM_STEPS);
            self.last.steps.reserve_exact(ROOM_STEPS);
        } else if self.last.args.short_bytes() + owned::short_bytes(args) > STEPS_BYTES {
            let full = mem::take(&mut self.last);
            self.full_len += full.steps.len();
            self.full_bytes += full.memory_bytes();
            self.full.push(full);
        }
        self.add(command, args);
    }

    fn add(&mut self, command: &'static Command, args: &Args<'_>) {
        self.is_long |= args.are_long(|at| command.keeps(at));
        self.last.push(command, args);
    }

    fn all(&self) -> impl DoubleEndedIterator<Item = &Steps> {
        self.full.iter().chain([&self.last])
    }

    fn steps(&self) -> impl DoubleEndedIterator<Item = &QueuedCommand> {
        self.all().flat_map(|some| &some.steps)
    }

    /// Returns the queued commands with their arguments.
    pub fn commands(&self) -> impl Iterator<Item = (&'static Command, Args<'_>)> {
        self.all().flat_map(Steps::commands)
    }

    /// Returns the number of queued commands.
    pub fn len(&self) -> usize {
        self.full_len + self.last.steps.len()
    }

    /// Returns whether no command is queued.
    pub fn is_empty(&self) -> bool {
        self.last.steps.is_empty()
    }

    /// Returns the memory of the transaction, in bytes.
    pub fn memory_bytes(&self) -> usize {
        self.full_bytes
            + self.full.capacity() * size_of::<Steps>()
            + self.last.memory_bytes()
            + self.watched.capacity() * size_of::<Watched>()
            + self.watched.len() * WATCHED_BYTES
            + self.watched_names_bytes
            + self.watched_places.capacity() * size_of::<((usize, u64), usize)>()
    }

    /// Sets which commands are sampled for hot keys, ascending.
    pub fn sample(&mut self, sampled: Vec<usize>) {
        self.sampled = sampled;
    }

    /// Adds a watched key.
    pub fn watch(&mut self, watched: Watched) {
        let place = (watched.db, watched.hash);
        if let Some(at) = self.watched_places.get(&place)
            && self.watched[*at].key == watched.key
        {
            self.watched[*at].times += watched.times;
            return;
        }
        self.watched_places.insert(place, self.watched.len());
        self.watched_names_bytes += 2 * watched.key.len();
        self.watched.push(watched);
    }

    /// Returns whether a command needs all shards, whatever its keys are. Scripts begin with the shards of their
    /// declared keys.
    fn is_wide(&self) -> bool {
        self.steps().any(|step| match step.command.run {
            Run::Script(_) => false,
            Run::EachShard(..) | Run::Cursor(..) => true,
            _ => step.needs_all_shards,
        })
    }

    /// Returns all queued commands as one candidate for admission. Scripts count as what they declare; those that
    /// declare nothing are checked call by call.
    pub fn candidate(&self, library: &Library) -> Candidate<'_> {
        let is_script = |step: &QueuedCommand| matches!(step.command.run, Run::Script(_));
        if !self.steps().any(is_script) {
            return Candidate::together(self.steps().map(|step| step.command.flags));
        }
        let flags = self.commands().map(|(command, args)| {
            match crate::script::declared(command, &args, library) {
                Some(declared) => command.flags.without(Flags::STALE).or(declared),
                None => command.flags,
            }
        });
        Candidate::together(flags)
    }

    /// Returns the shards to lock at the start, on a server with `count` shards, in any order and possibly
    /// repeated.
    fn shards(&self, count: u16) -> ShardList {
        if self.is_wide() {
            return (0..count).collect();
        }
        let keys = self.all().flat_map(|some| some.args.keys());
        let mut shards: ShardList = keys.map(|key| key.shard).collect();
        shards.extend(self.watched.iter().map(|watched| watched.shard));
        // A command whose keys could not be determined runs on any shard, to report the error.
        let is_lost = |step: &QueuedCommand| matches!(step.command.run, Run::Keys(_));
        if shards.is_empty() && self.steps().any(is_lost) {
            shards.push(0);
        }
        shards
    }

    /// Returns whether any queued command may take too long for a connection's thread, judging by the sizes of
    /// the values before the first of them runs. `engines` are those of the transaction's plan.
    fn may_be_heavy(&self, engines: &[&mut Engine], db: usize) -> bool {
        let takes_long = |step: &QueuedCommand| step.command.flags.has(Flags::TAKES_LONG);
        if !self.steps().any(takes_long) {
            return false;
        }
        let mut db = db;
        let count = engines
            .first()
            .map_or(0, |engine| engine.published().dbs.len());
        let mut steps = self.steps().zip(self.commands());
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

    /// Returns whether any queued command may add data.
    fn may_grow(&self) -> bool {
        self.steps()
            .any(|step| step.command.flags.has(Flags::DENYOOM))
    }

    /// Returns whether any queued command may exceed the memory limit or a database's share of it, so that keys
    /// must be
    /// evicted afterwards.
    fn may_owe(&self) -> bool {
        self.steps()
            .any(|step| step.command.flags.any(Flags::DENYOOM.or(Flags::PAYS)))
    }

    /// Evicts keys in each database that queued commands may add to, starting with `db`.
    fn make_room(
        &self,
        unit: &mut ExecutionUnit<'_, '_>,
        mut db: usize,
        now: Now,
    ) -> Result<(), Full> {
        let mut dbs = SmallVec::<[usize; 2]>::new();
        let mut engines = unit.engines();
        let count = (engines.iter().next()).map_or(0, |(_, engine)| engine.database_count());
        for (command, args) in self.commands() {
            if let Some(chosen) = chosen_db(command, &args).filter(|chosen| *chosen < count) {
                db = chosen;
            }
            if command.flags.has(Flags::DENYOOM) && !dbs.contains(&db) {
                dbs.push(db);
            }
        }
        for (_, engine) in engines.iter() {
            for db in &dbs {
                engine.make_room(*db, now)?;
            }
        }
        Ok(())
    }

    /// Returns whether any queued command is a script.
    fn has_scripts(&self) -> bool {
        self.steps()
            .any(|step| matches!(step.command.run, Run::Script(_)))
    }

    /// Returns the plan of the first run, on a server with `count` shards.
    pub fn plan(&self, count: u16) -> UnitPlan {
        let mut scripts_follow = false;
        for step in self.steps().rev() {
            match step.command.run {
                Run::Script(_) => scripts_follow = true,
                // The command's effects on other clients cannot be rolled back, and a later script may need
                // further shards, which could cause a rollback.
                Run::Session(_) if scripts_follow && !step.command.flags.has(Flags::REPEATABLE) => {
                    return UnitPlan::irrevocable(count);
                }
                _ => {}
            }
        }
        UnitPlan {
            is_complete: !self.has_scripts(),
            ..UnitPlan::with(self.shards(count)).offloaded_if(self.is_long)
        }
    }

    /// Runs all commands, or none if a watched key changed or memory is insufficient. Returns `None` if the
    /// unit was rolled back, and is to run again by the updated plan.
    pub fn run(
        &self,
        mut unit: ExecutionUnit<'_, '_>,
        mut cx: UnitContext<'_>,
        out: &mut Out,
        plan: &mut UnitPlan,
    ) -> Option<UnitOutcome> {
        if let ([step], true) = (self.last.steps.as_slice(), self.is_lone)
            && let Run::Script(verb) = step.command.run
        {
            let args = self.last.args.args();
            return run_lone((step.command, verb), &args, unit, cx, (out, plan));
        }
        let (mark, before) = (out.position(), cx.connection.clone());
        unit.begin_transaction(before.id());
        let may_fail = !plan.is_complete
            || unit.may_offload()
                && unit.with_engines(|engines| self.may_be_heavy(engines, before.db));
        // If no command can fail or need further shards, keep no undo log.
        if !may_fail {
            unit.make_irrevocable();
        }
        let mut outcome = UnitOutcome {
            is_open: may_fail,
            ..UnitOutcome::default()
        };
        self.run_on(&mut unit, &mut cx, out, &mut outcome);
        if unit.is_aborted() {
            out.truncate(mark);
            out.set_protocol(before.protocol);
            *cx.connection = before;
            if let Some(before) = outcome.notes.and_then(|notes| notes.settings_before) {
                cx.connection.shared.restore_settings(before);
            }
            unit.roll_back(plan);
            return None;
        }
        unit.read_clock_ns();
        unit.commit(UnitKind::Transaction, &mut cx, &mut outcome, plan);
        Some(outcome)
    }

    /// Runs all commands or none; or only some of them, if the unit then has to be rolled back.
    fn run_on(
        &self,
        unit: &mut ExecutionUnit<'_, '_>,
        cx: &mut UnitContext<'_>,
        out: &mut Out,
        outcome: &mut UnitOutcome,
    ) {
        let (may_grow, now) = (self.may_grow(), cx.now);
        let has_changed = self.any_changed(&mut unit.engines(), now);
        let all = self.commands().map(|(_, args)| args);
        if let Err(redirect) = still_valid(unit, cx, all) {
            outcome.was_refused = true;
            out.error(redirect.text);
        } else if may_grow && let Err(full) = self.make_room(unit, cx.connection.db, now) {
            outcome.was_refused = true;
            out.error(exec_abort(CommandError::from(full).text().as_bytes()));
        } else if has_changed {
            out.null_array();
        } else {
            out.array(self.len());
            outcome.was_run = true;
            self.run_steps(unit, cx, out, outcome);
        }
        if unit.is_aborted() {
            return;
        }
        self.unwatch(&mut unit.engines());
        if self.may_owe()
            && outcome.was_run
            && unit.engines().iter().any(|(_, engine)| engine.owes())
        {
            unit.with_engines(|engines| {
                // Append the transaction's records now, so that the evictions that follow are logged
                // separately. The transaction cannot be rolled back at this point.
                outcome.log_position = record::append(engines, &mut outcome.records, true);
                for engine in engines {
                    engine.pay(now, self.len());
                }
            });
        }
        cx.publish();
    }

    fn run_steps(
        &self,
        unit: &mut ExecutionUnit<'_, '_>,
        cx: &mut UnitContext<'_>,
        out: &mut Out,
        outcome: &mut UnitOutcome,
    ) {
        let mut before = Ticks::now();
        let mut db = cx.connection.db;
        outcome.db = db;
        for (number, (command, args)) in self.commands().enumerate() {
            outcome.step = number;
            let mark = out.position();
            let failed = match denial(cx, command, &args) {
                None => run_step((command, &args), unit, cx, out, outcome),
                Some(text) => {
                    out.error(text);
                    outcome.notes().errors.push(out.since(mark).to_vec());
                    true
                }
            };
            if unit.is_aborted() {
                return;
            }
            if failed && cx.connection.origin.has_run_before() {
                outcome
                    .notes()
                    .failed
                    .push((number, out.since(mark).to_vec()));
            }
            if cx.connection.db != db {
                db = cx.connection.db;
                outcome.selections.push((number, db));
            }
            out.set_protocol(cx.connection.protocol);
            let after = Ticks::now();
            let duration_ns = after.since_ns(before);
            before = after;
            let spent = Spent {
                duration_ns,
                failed,
            };
            if !outcome.is_postponed(number) {
                outcome.note(command, spent, cx);
            }
            if self.sampled.binary_search(&number).is_ok() {
                let reply_bytes = out.len_since(mark);
                let sample = (number, duration_ns, reply_bytes);
                outcome.notes().sampled.push(sample);
            }
        }
    }

    /// Returns whether one of the watched keys has changed.
    fn any_changed(&self, engines: &mut HeldEngines<'_, Engine>, now: Now) -> bool {
        let mut any_changed = false;
        for watched in &self.watched {
            let engine = engines.get(watched.shard);
            any_changed |= engine.is_some_and(|engine| watched.has_changed(engine, now));
        }
        any_changed
    }

    /// Removes the transaction's watched keys from the shards.
    fn unwatch(&self, engines: &mut HeldEngines<'_, Engine>) {
        for watched in &self.watched {
            if let Some(engine) = engines.get(watched.shard) {
                watched.forget(engine);
            }
        }
    }
}

/// Checks that a unit still runs on this node of a cluster, checking which keys of all its commands this node
/// has.
fn still_valid<'a>(
    unit: &mut ExecutionUnit<'_, '_>,
    cx: &UnitContext<'_>,
    all: impl Iterator<Item = Args<'a>>,
) -> Result<(), Redirect> {
    let Some(permit) = cx.permit else {
        return Ok(());
    };
    let at = (cx.connection.db, cx.now);
    permit.still_valid(cx.config(), || {
        unit.with_engines(|engines| permit::presence(engines, all, at))
    })
}

/// Runs a script that is its own unit. Returns `None` if it was rolled back, and is to run again by the updated plan.
pub fn run_lone(
    (command, verb): (&'static Command, ScriptVerb),
    args: &Args<'_>,
    mut unit: ExecutionUnit<'_, '_>,
    mut cx: UnitContext<'_>,
    (out, plan): (&mut Out, &mut UnitPlan),
) -> Option<UnitOutcome> {
    let mark = out.position();
    let mut outcome = UnitOutcome {
        was_run: true,
        is_open: true,
        is_lone: true,
        db: cx.connection.db,
        ..UnitOutcome::default()
    };
    let what = (command, verb);
    outcome.failed = match still_valid(&mut unit, &cx, std::iter::once(*args)) {
        Ok(()) => script::run(what, args, &mut unit, &mut cx, out, &mut outcome),
        Err(redirect) => {
            outcome.was_refused = true;
            out.error(redirect.text);
            true
        }
    };
    if unit.is_aborted() {
        out.truncate(mark);
        unit.roll_back(plan);
        return None;
    }
    out.set_protocol(cx.connection.protocol);
    unit.commit(UnitKind::Script, &mut cx, &mut outcome, plan);
    let tag = plan.tag.unwrap_or_else(|| footprint::tag_of(args));
    cx.scripts.footprints.note(tag, args, &plan.outcome);
    Some(outcome)
}

#[cfg(test)]
mod tests {
    use super::*;
    use basalt_commands::command::args::RoutedKey;
    use basalt_commands::command::registry::registry;
    use basalt_core::resp::request::Span;

    #[test]
    fn what_is_queued_comes_back_in_order_however_much_it_is_and_lies_in_places_of_limited_size() {
        let command = registry().find(b"set").expect("a command");
        let mut transaction = Transaction::default();
        let lengths: Vec<usize> = (0..400).map(|number| number * 37 % 700).collect();
        let lengths = [&lengths[..], &[3 * STEPS_BYTES, 1, STEPS_BYTES, 0]].concat();
        let text = |number: usize, len: usize| format!("SETkey:{number:04}{}", "x".repeat(len));
        for (number, len) in lengths.iter().enumerate() {
            let text = text(number, *len);
            let spans = [(0, 3), (3, 8), (11, *len)];
            let spans = spans.map(|(start, len)| Span::in_buffer(start, len));
            let key = RoutedKey {
                hash: number as u64,
                argument: 1,
                shard: number as u16,
                engine_index: 0,
            };
            transaction.push(command, &Args::in_buffer(text.as_bytes(), &spans, &[key]));
        }
        assert_eq!(transaction.len(), lengths.len());
        assert_eq!(transaction.commands().count(), lengths.len());
        let queued = transaction.commands().zip(&lengths).enumerate();
        for (number, ((_, args), len)) in queued {
            assert_eq!(args.to_vec().concat(), text(number, *len).into_bytes());
            assert_eq!(args.key(1).hash, number as u64);
        }
        let shards = transaction.shards(1).iter().copied().collect::<Vec<u16>>();
        assert_eq!(shards, (0..lengths.len() as u16).collect::<Vec<u16>>());
        let bytes: usize = transaction.all().map(Steps::memory_bytes).sum();
        assert!(transaction.memory_bytes() >= bytes);
        assert!(transaction.full.len() > 10, "{}", transaction.full.len());
        for some in transaction.all() {
            let is_lone = some.steps.len() == 1;
            assert!(is_lone || some.args.short_bytes() <= STEPS_BYTES);
        }
    }
}
