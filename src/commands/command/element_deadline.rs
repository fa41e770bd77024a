//! The commands that let elements expire, hash fields and set members, as one loop over [`ElementRules`].

use super::context::ShardCx;
use super::declaration::{Command, CommandResult, Flags, Group, KeySpec};
use super::error::CommandError;
use super::options::TimeForm;
use super::{Args, Out};
use basalt_core::base::number::parse_i64;
use basalt_core::structures::block::Content;
use basalt_core::structures::entry::Entry;
use basalt_core::structures::table::EntrySlot;
use basalt_engine::Key;
use basalt_engine::effect::Event;
use basalt_engine::keyspace::Keyspace;
use basalt_engine::value::deadlines::ELEMENT_DEADLINE_MAX;
use basalt_engine::value::{DataType, Object};

/// The rules for changes of a type of collection whose elements may have deadlines, and the words of its commands.
pub(super) trait ElementRules: Sized {
    const DATA_TYPE: DataType;
    const GROUP: Group;
    /// First version of Redis that has the commands.
    const SINCE: &'static str;
    const COMPLEXITY: &'static str;
    const NAMES: CountedNames;
    const EXPIRE_EVENT: Event;
    const PERSIST_EVENT: Event;
    /// Name of the command that gives elements a deadline in Unix milliseconds.
    const EXPIRE: &'static [u8];
    /// Name of the command that removes elements.
    const REMOVE: &'static [u8];
    /// Whether the condition of a request is logged, although the logged elements have met it.
    const LOGS_CONDITION: bool;

    /// Returns the rules for a command.
    fn of(cx: &ShardCx<'_>) -> Self;

    /// Returns the time of the command.
    fn now_ms(&self) -> u64;

    /// Returns the optional deadline of an element; the outer None if there is no such element.
    fn deadline(keyspace: &Keyspace<'_>, place: EntrySlot, name: &[u8]) -> Option<Option<u64>>;

    /// Sets or removes the deadline of an element. Returns false if there is no such element.
    fn set_deadline(&self, entry: &mut Entry<Object>, name: &[u8], deadline: Option<u64>) -> bool;

    /// Removes an element. Returns false if there is no such element.
    fn remove(&self, entry: &mut Entry<Object>, name: &[u8]) -> bool;

    /// Records that deadlines of elements were set or removed.
    fn wrote(keyspace: &mut Keyspace<'_>, key: &[u8], event: Event, names: &[&[u8]]);

    /// Records that elements were removed, and deletes the key if no element is left.
    fn removed(keyspace: &mut Keyspace<'_>, key: &Key<'_>, place: EntrySlot, names: &[&[u8]]);
}

/// A command that sets element deadlines, and whether the request has run before, on another server or on this one
/// (as from a log).
#[derive(Clone, Copy)]
pub(super) struct Giver {
    command: &'static str,
    has_run_before: bool,
}

impl Giver {
    pub(super) fn of(cx: &ShardCx<'_>) -> Giver {
        Giver {
            command: cx.command.name,
            has_run_before: cx.client.origin.has_run_before(),
        }
    }
}

/// Returns the deadline that an argument gives to elements. A time in the past is allowed: it deletes the elements. A
/// time too late to be stored is refused, as by Redis; if a server has accepted it before, as Valkey does, it becomes
/// the latest possible deadline.
pub(super) fn given(
    args: &Args<'_>,
    time_at: usize,
    form: TimeForm,
    now_ms: u64,
    giver: Giver,
) -> Result<u64, CommandError> {
    let time = u64::try_from(args.integer(time_at)?)
        .map_err(|_| "ERR invalid expire time, must be >= 0")?;
    let start_ms = if form.is_relative() { now_ms } else { 0 };
    let ms = match form {
        TimeForm::Seconds | TimeForm::UnixSeconds => time.checked_mul(1000),
        TimeForm::Millis | TimeForm::UnixMillis => Some(time),
    };
    let at_ms = ms.and_then(|ms| ms.checked_add(start_ms));
    match at_ms.filter(|at_ms| *at_ms <= ELEMENT_DEADLINE_MAX) {
        None if giver.has_run_before => Ok(ELEMENT_DEADLINE_MAX),
        kept => kept.ok_or(CommandError::InvalidExpire(giver.command)),
    }
}

/// Formats a deadline as commands return it; seconds are rounded up, as Redis does for fields.
fn shown(at_ms: u64, form: TimeForm, now_ms: u64) -> i64 {
    let ms = if form.is_relative() {
        at_ms.saturating_sub(now_ms)
    } else {
        at_ms
    };
    let shown = match form {
        TimeForm::Seconds | TimeForm::UnixSeconds => ms.div_ceil(1000),
        TimeForm::Millis | TimeForm::UnixMillis => ms,
    };
    shown as i64
}

/// The condition on the previous deadline for setting the new one (NX, XX, GT or LT).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Condition {
    Always,
    None,
    Some,
    Later,
    Sooner,
}

impl Condition {
    pub(super) fn of(args: &Args<'_>, at: usize) -> Condition {
        match () {
            () if args.is(at, "nx") => Condition::None,
            () if args.is(at, "xx") => Condition::Some,
            () if args.is(at, "gt") => Condition::Later,
            () if args.is(at, "lt") => Condition::Sooner,
            () => Condition::Always,
        }
    }

    /// Whether the deadline may be set; an element without deadline counts as one that never expires.
    pub(super) fn allows(self, before: Option<u64>, at_ms: u64) -> bool {
        match self {
            Condition::Always => true,
            Condition::None => before.is_none(),
            Condition::Some => before.is_some(),
            Condition::Later => before.is_some_and(|before_ms| at_ms > before_ms),
            Condition::Sooner => before.is_none_or(|before_ms| at_ms < before_ms),
        }
    }
}

/// The word before the count of named elements, and the errors for a wrong word or a wrong count.
pub(super) struct CountedNames {
    pub(super) word: &'static str,
    pub(super) missing: &'static str,
    pub(super) mismatch: &'static str,
    pub(super) bad_count: &'static str,
    /// The error for a wrong count in a command that sets deadlines.
    pub(super) bad_count_for_expiry: &'static str,
}

impl CountedNames {
    /// Returns the names after the word and the count; the word is expected at `word_at`. Returns an error if anything
    /// follows the names.
    pub(super) fn read<'a>(
        &self,
        args: &Args<'a>,
        word_at: usize,
        bad_count: &'static str,
    ) -> Result<impl ExactSizeIterator<Item = &'a [u8]> + use<'a>, CommandError> {
        if word_at >= args.len() || !args.is(word_at, self.word) {
            return Err(self.missing.into());
        }
        if word_at + 1 >= args.len() {
            return Err(bad_count.into());
        }
        let count = parse_i64(args.get(word_at + 1)).filter(|count| *count >= 1);
        let count = count.ok_or(bad_count)?;
        let names = args.from(word_at + 2);
        if count as u64 != names.len() as u64 {
            return Err(self.mismatch.into());
        }
        Ok(names)
    }
}

/// Logs a command with names at its end.
pub(super) fn log_names(cx: &mut ShardCx<'_>, head: &[&[u8]], names: &[&[u8]]) {
    let all = head.iter().chain(names);
    let request: Vec<Content<'_>> = all.map(|part| Content::from(*part)).collect();
    cx.log_instead(request);
}

/// A deadline that is given to elements one after the other; one that has passed removes them.
pub(super) struct NewDeadline<'a, R> {
    rules: R,
    at_ms: u64,
    /// Number of changed elements.
    changed: u64,
    wants_names: bool,
    /// The changed elements, if their names are wanted.
    names: Vec<&'a [u8]>,
}

impl<'a, R: ElementRules> NewDeadline<'a, R> {
    /// Creates a deadline; `wants_names` tells whether the names of the changed elements are logged or recorded.
    pub(super) fn new(rules: R, at_ms: u64, wants_names: bool) -> NewDeadline<'a, R> {
        NewDeadline {
            rules,
            at_ms,
            changed: 0,
            wants_names,
            names: Vec::new(),
        }
    }

    fn is_past(&self) -> bool {
        self.at_ms <= self.rules.now_ms()
    }

    /// Gives the deadline to an existing element.
    pub(super) fn give(&mut self, keyspace: &mut Keyspace<'_>, place: EntrySlot, name: &'a [u8]) {
        keyspace.edit(place, |entry| match self.is_past() {
            true => self.rules.remove(entry, name),
            false => self.rules.set_deadline(entry, name, Some(self.at_ms)),
        });
        self.changed += 1;
        if self.wants_names {
            self.names.push(name);
        }
    }

    /// Records the change of all elements as one event, and deletes the key if no element is left.
    pub(super) fn record(&self, keyspace: &mut Keyspace<'_>, key: &Key<'_>, place: EntrySlot) {
        if self.changed == 0 {
            return;
        }
        if self.is_past() {
            let published = keyspace.engine().published();
            published.expired_fields.add(self.changed);
            R::removed(keyspace, key, place, &self.names);
        } else {
            R::wrote(keyspace, key.bytes, R::EXPIRE_EVENT, &self.names);
        }
    }

    /// Logs the change.
    pub(super) fn log(&self, cx: &mut ShardCx<'_>, key: &[u8], condition: Option<&[u8]>) {
        if !cx.is_logged() || self.names.is_empty() {
            return;
        }
        if self.is_past() {
            log_names(cx, &[R::REMOVE, key], &self.names);
        } else {
            log_given::<R>(cx, key, self.at_ms, condition, &self.names);
        }
    }
}

/// Logs that elements, which met the condition, were given a deadline in the future.
pub(super) fn log_given<R: ElementRules>(
    cx: &mut ShardCx<'_>,
    key: &[u8],
    at_ms: u64,
    condition: Option<&[u8]>,
    names: &[&[u8]],
) {
    let (mut deadline, mut count) = (itoa::Buffer::new(), itoa::Buffer::new());
    let deadline = deadline.format(at_ms).as_bytes();
    let mut head = vec![R::EXPIRE, key, deadline];
    head.extend(condition);
    let count = count.format(names.len()).as_bytes();
    head.extend([R::NAMES.word.as_bytes(), count]);
    log_names(cx, &head, names);
}

/// Returns the row of a command that sets deadlines, without a handler.
pub(super) const fn expire_row<R: ElementRules>(
    name: &'static str,
    syntax: &'static str,
    summary: &'static str,
) -> Command {
    Command::new(name, R::GROUP, -6)
        .writes(KeySpec::FIRST_UPDATED)
        .flags(Flags::FAST)
        .doc(R::SINCE, syntax, summary)
        .complexity(R::COMPLEXITY)
}

/// Runs a command that sets deadlines.
pub(super) fn expire<R: ElementRules>(
    cx: &mut ShardCx<'_>,
    args: &Args<'_>,
    out: &mut Out,
    form: TimeForm,
) -> CommandResult {
    let (rules, is_logged) = (R::of(cx), cx.is_logged());
    let (now_ms, giver) = (cx.now.unix_ms, Giver::of(cx));
    let key = args.key(1);
    let mut keyspace = cx.at(&key);
    let found = keyspace.find_typed(&key, R::DATA_TYPE)?;
    let at_ms = given(args, 2, form, now_ms, giver)?;
    let condition = Condition::of(args, 3);
    let word_at = 3 + usize::from(condition != Condition::Always);
    let names = R::NAMES.read(args, word_at, R::NAMES.bad_count_for_expiry)?;
    out.array(names.len());
    let mut new = NewDeadline::new(rules, at_ms, is_logged || keyspace.wants_fields());
    for name in names {
        out.integer(match existing::<R>(&keyspace, found, name) {
            None => -2,
            Some((_, before)) if !condition.allows(before, at_ms) => 0,
            Some((place, _)) => {
                new.give(&mut keyspace, place, name);
                if new.is_past() { 2 } else { 1 }
            }
        });
    }
    if let Some(place) = found {
        new.record(&mut keyspace, &key, place);
    }
    let is_conditional = condition != Condition::Always && R::LOGS_CONDITION;
    new.log(cx, key.bytes, is_conditional.then(|| args.get(3)));
    Ok(())
}

/// Returns the place of the collection that a lookup found, and the deadline of an element, if both exist.
fn existing<R: ElementRules>(
    keyspace: &Keyspace<'_>,
    found: Option<EntrySlot>,
    name: &[u8],
) -> Option<(EntrySlot, Option<u64>)> {
    let place = found?;
    Some((place, R::deadline(keyspace, place, name)?))
}

/// Returns the row of a command that removes deadlines.
pub(super) const fn persist_row<R: ElementRules>(
    name: &'static str,
    syntax: &'static str,
    summary: &'static str,
) -> Command {
    Command::new(name, R::GROUP, -5)
        .writes(KeySpec::FIRST_UPDATED)
        .flags(Flags::FAST)
        .doc(R::SINCE, syntax, summary)
        .complexity(R::COMPLEXITY)
        .on_keys(persist::<R>)
}

fn persist<R: ElementRules>(cx: &mut ShardCx<'_>, args: &Args<'_>, out: &mut Out) -> CommandResult {
    let rules = R::of(cx);
    let key = args.key(1);
    let mut keyspace = cx.at(&key);
    let found = keyspace.find_typed(&key, R::DATA_TYPE)?;
    let names = R::NAMES.read(args, 2, R::NAMES.bad_count)?;
    out.array(names.len());
    let mut changed = false;
    let mut persisted = Vec::new();
    for name in names {
        out.integer(match existing::<R>(&keyspace, found, name) {
            None => -2,
            Some((_, None)) => -1,
            Some((place, Some(_))) => {
                changed |= keyspace.edit(place, |entry| rules.set_deadline(entry, name, None));
                if keyspace.wants_fields() {
                    persisted.push(name);
                }
                1
            }
        });
    }
    if changed {
        R::wrote(&mut keyspace, key.bytes, R::PERSIST_EVENT, &persisted);
    }
    Ok(())
}

/// Returns the row of a command that reads deadlines, without a handler.
pub(super) const fn time_row<R: ElementRules>(
    name: &'static str,
    syntax: &'static str,
    summary: &'static str,
) -> Command {
    Command::new(name, R::GROUP, -5)
        .reads(KeySpec::FIRST_READ)
        .flags(Flags::FAST)
        .doc(R::SINCE, syntax, summary)
        .complexity(R::COMPLEXITY)
}

/// Runs a command that reads deadlines: replies with the deadline of each element; -2: there is no such element; -1:
/// it has no deadline.
pub(super) fn time<R: ElementRules>(
    cx: &mut ShardCx<'_>,
    args: &Args<'_>,
    out: &mut Out,
    form: TimeForm,
) -> CommandResult {
    let now_ms = cx.now.unix_ms;
    let key = args.key(1);
    let mut keyspace = cx.at(&key);
    let found = keyspace.read_typed(&key, R::DATA_TYPE)?;
    let names = R::NAMES.read(args, 2, R::NAMES.bad_count)?;
    out.array(names.len());
    for name in names {
        out.integer(match existing::<R>(&keyspace, found, name) {
            None => -2,
            Some((_, None)) => -1,
            Some((_, Some(at_ms))) => shown(at_ms, form, now_ms),
        });
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::Condition;

    #[test]
    fn conditions_compare_with_the_deadline_before() {
        for (condition, none, sooner, same, later) in [
            (Condition::Always, true, true, true, true),
            (Condition::None, true, false, false, false),
            (Condition::Some, false, true, true, true),
            (Condition::Later, false, false, false, true),
            (Condition::Sooner, true, true, false, false),
        ] {
            assert_eq!(condition.allows(None, 10), none, "{condition:?}");
            assert_eq!(condition.allows(Some(20), 10), sooner, "{condition:?}");
            assert_eq!(condition.allows(Some(10), 10), same, "{condition:?}");
            assert_eq!(condition.allows(Some(5), 10), later, "{condition:?}");
        }
    }
}
