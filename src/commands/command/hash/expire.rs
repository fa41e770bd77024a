//! Deadlines of fields: setting, reading and removing them.

use super::{
    BAD_COUNT, FIELDS, HDEL_EVENT, HEXPIRE_EVENT, HPERSIST_EVENT, UPDATED, delete_if_empty, edit,
    field_at, read, rules,
};
use crate::command::Args;
use crate::command::Out;
use crate::command::context::ShardCx;
use crate::command::declaration::{Command, CommandResult, Flags, Group, KeySpec};
use crate::command::element_deadline::{self, Condition, Giver, log_names};
use crate::command::options::TimeForm;
use basalt_core::structures::table::EntrySlot;
use basalt_engine::Key;
use basalt_engine::keyspace::Keyspace;
use basalt_engine::value::DataType;
use basalt_engine::value::hash::HashRules;

pub(super) const COMPLEXITY: &str = "O(N), N being the count of fields named.";

/// `HEXPIRE key seconds [NX | XX | GT | LT] FIELDS numfields field [field ...]`
pub(super) static HEXPIRE: Command = Command::new("hexpire", Group::Hash, -6)
    .writes(UPDATED)
    .flags(Flags::FAST)
    .doc(
        "7.4.0",
        "key seconds [NX | XX | GT | LT] FIELDS <numfields:integer field [field ...]>",
        "Sets the time to live of hash fields in seconds.",
    )
    .complexity(COMPLEXITY)
    .on_keys(|cx, args, out| expire(cx, args, out, TimeForm::Seconds));

/// `HPEXPIRE key milliseconds [NX | XX | GT | LT] FIELDS numfields field [field ...]`
pub(super) static HPEXPIRE: Command = Command::new("hpexpire", Group::Hash, -6)
    .writes(UPDATED)
    .flags(Flags::FAST)
    .doc(
        "7.4.0",
        "key milliseconds [NX | XX | GT | LT] FIELDS <numfields:integer field [field ...]>",
        "Sets the time to live of hash fields in milliseconds.",
    )
    .complexity(COMPLEXITY)
    .on_keys(|cx, args, out| expire(cx, args, out, TimeForm::Millis));

/// `HEXPIREAT key unix-time-seconds [NX | XX | GT | LT] FIELDS numfields field [field ...]`
pub(super) static HEXPIREAT: Command = Command::new("hexpireat", Group::Hash, -6)
    .writes(UPDATED)
    .flags(Flags::FAST)
    .doc(
        "7.4.0",
        "key unix-time-seconds [NX | XX | GT | LT] FIELDS <numfields:integer field [field ...]>",
        "Sets the expiration of hash fields to a Unix time in seconds.",
    )
    .complexity(COMPLEXITY)
    .on_keys(|cx, args, out| expire(cx, args, out, TimeForm::UnixSeconds));

/// `HPEXPIREAT key unix-time-milliseconds [NX | XX | GT | LT] FIELDS numfields field [field ...]`
pub(super) static HPEXPIREAT: Command = Command::new("hpexpireat", Group::Hash, -6)
    .writes(UPDATED)
    .flags(Flags::FAST)
    .doc(
        "7.4.0",
        "key unix-time-milliseconds [NX | XX | GT | LT] FIELDS <numfields:integer field [field ...]>",
        "Sets the expiration of hash fields to a Unix time in milliseconds.",
    )
    .complexity(COMPLEXITY)
    .on_keys(|cx, args, out| expire(cx, args, out, TimeForm::UnixMillis));

/// Counts of the fields that were given a deadline, by outcome.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct HexpireCounts {
    pub(super) updated: u64,
    pub(super) deleted: u64,
}

impl HexpireCounts {
    /// Sets the deadline of an existing field, or deletes the field if the deadline has passed. Returns true if the
    /// field is deleted.
    pub(super) fn give(
        &mut self,
        keyspace: &mut Keyspace<'_>,
        place: EntrySlot,
        rules: &HashRules,
        name: &[u8],
        at_ms: u64,
    ) -> bool {
        let past = at_ms <= rules.now_ms;
        edit(keyspace, place, rules, |hash| {
            if past {
                hash.remove(name)
            } else {
                hash.set_deadline(name, Some(at_ms))
            }
        });
        if past {
            self.deleted += 1;
            keyspace.engine().published().expired_fields.add(1);
        } else {
            self.updated += 1;
        }
        past
    }

    /// Whether no field was affected.
    pub(super) fn is_empty(self) -> bool {
        self == HexpireCounts::default()
    }

    /// Records the change of these fields as one event, and deletes the key if no field is left.
    pub(super) fn record<'n>(
        self,
        keyspace: &mut Keyspace<'_>,
        key: &Key<'_>,
        place: EntrySlot,
        names: impl Iterator<Item = &'n [u8]>,
    ) {
        let event = if self.deleted > 0 {
            HDEL_EVENT
        } else {
            HEXPIRE_EVENT
        };
        keyspace.wrote_fields(key.bytes, event, names);
        delete_if_empty(keyspace, key, place);
    }
}

fn expire(cx: &mut ShardCx<'_>, args: &Args<'_>, out: &mut Out, form: TimeForm) -> CommandResult {
    let (rules, is_logged) = (rules(cx), cx.is_logged());
    let (now_ms, giver) = (cx.now.unix_ms, Giver::of(cx));
    let key = args.key(1);
    let mut keyspace = cx.at(&key);
    let found = keyspace.find_typed(&key, DataType::Hash)?;
    let at_ms = element_deadline::given(args, 2, form, now_ms, giver)?;
    let condition = Condition::of(args, 3);
    let word_at = 3 + usize::from(condition != Condition::Always);
    let names = FIELDS.read(
        args,
        word_at,
        "ERR Parameter `numFields` should be greater than 0",
    )?;
    out.array(names.len());
    let mut tally = HexpireCounts::default();
    let mut given = Vec::new();
    for name in names {
        let Some((place, field)) = field_at(&keyspace, found, name) else {
            out.integer(-2);
            continue;
        };
        if !condition.allows(field.deadline, at_ms) {
            out.integer(0);
            continue;
        }
        if is_logged || keyspace.wants_fields() {
            given.push(name);
        }
        if tally.give(&mut keyspace, place, &rules, name, at_ms) {
            out.integer(2);
        } else {
            out.integer(1);
        }
    }
    if let Some(place) = found.filter(|_| !tally.is_empty()) {
        tally.record(&mut keyspace, &key, place, given.iter().copied());
        if is_logged {
            let word = (condition != Condition::Always).then(|| args.get(3));
            log_given(cx, key.bytes, at_ms, word, &given);
        }
    }
    Ok(())
}

/// Logs that fields, which met the condition, were given a deadline, or that they were deleted if the deadline has
/// passed.
pub(super) fn log_given(
    cx: &mut ShardCx<'_>,
    key: &[u8],
    at_ms: u64,
    condition: Option<&[u8]>,
    names: &[&[u8]],
) {
    if names.is_empty() {
        return;
    }
    if at_ms <= cx.now.unix_ms {
        return log_names(cx, &[b"HDEL", key], names);
    }
    let (mut deadline, mut count) = (itoa::Buffer::new(), itoa::Buffer::new());
    let deadline = deadline.format(at_ms).as_bytes();
    let mut head: Vec<&[u8]> = vec![b"HPEXPIREAT", key, deadline];
    head.extend(condition);
    head.extend([b"FIELDS", count.format(names.len()).as_bytes()]);
    log_names(cx, &head, names);
}

/// Removes the deadline of a field that has one.
pub(super) fn take_deadline(
    keyspace: &mut Keyspace<'_>,
    place: EntrySlot,
    rules: &HashRules,
    name: &[u8],
) -> bool {
    edit(keyspace, place, rules, |hash| hash.set_deadline(name, None))
}

/// `HPERSIST key FIELDS numfields field [field ...]`
pub(super) static HPERSIST: Command = Command::new("hpersist", Group::Hash, -5)
    .writes(UPDATED)
    .flags(Flags::FAST)
    .doc(
        "7.4.0",
        "key FIELDS <numfields:integer field [field ...]>",
        "Removes the expiration of hash fields.",
    )
    .complexity(COMPLEXITY)
    .on_keys(persist);

fn persist(cx: &mut ShardCx<'_>, args: &Args<'_>, out: &mut Out) -> CommandResult {
    let rules = rules(cx);
    let key = args.key(1);
    let mut keyspace = cx.at(&key);
    let found = keyspace.find_typed(&key, DataType::Hash)?;
    let names = FIELDS.read(args, 2, BAD_COUNT)?;
    out.array(names.len());
    let mut changed = false;
    let mut persisted = Vec::new();
    for name in names {
        let Some((place, field)) = field_at(&keyspace, found, name) else {
            out.integer(-2);
            continue;
        };
        if field.deadline.is_none() {
            out.integer(-1);
            continue;
        }
        changed |= take_deadline(&mut keyspace, place, &rules, name);
        if keyspace.wants_fields() {
            persisted.push(name);
        }
        out.integer(1);
    }
    if changed {
        keyspace.wrote_fields(key.bytes, HPERSIST_EVENT, persisted);
    }
    Ok(())
}

/// `HTTL key FIELDS numfields field [field ...]`
pub(super) static HTTL: Command = Command::new("httl", Group::Hash, -5)
    .reads(KeySpec::FIRST_READ)
    .flags(Flags::FAST)
    .doc(
        "7.4.0",
        "key FIELDS <numfields:integer field [field ...]>",
        "Returns the remaining time to live of hash fields in seconds.",
    )
    .complexity(COMPLEXITY)
    .tips(&["nondeterministic_output"])
    .on_keys(|cx, args, out| time_left(cx, args, out, TimeForm::Seconds));

/// `HPTTL key FIELDS numfields field [field ...]`
pub(super) static HPTTL: Command = Command::new("hpttl", Group::Hash, -5)
    .reads(KeySpec::FIRST_READ)
    .flags(Flags::FAST)
    .doc(
        "7.4.0",
        "key FIELDS <numfields:integer field [field ...]>",
        "Returns the remaining time to live of hash fields in milliseconds.",
    )
    .complexity(COMPLEXITY)
    .tips(&["nondeterministic_output"])
    .on_keys(|cx, args, out| time_left(cx, args, out, TimeForm::Millis));

/// `HEXPIRETIME key FIELDS numfields field [field ...]`
pub(super) static HEXPIRETIME: Command = Command::new("hexpiretime", Group::Hash, -5)
    .reads(KeySpec::FIRST_READ)
    .flags(Flags::FAST)
    .doc(
        "7.4.0",
        "key FIELDS <numfields:integer field [field ...]>",
        "Returns the Unix times in seconds at which fields expire.",
    )
    .complexity(COMPLEXITY)
    .on_keys(|cx, args, out| time_left(cx, args, out, TimeForm::UnixSeconds));

/// `HPEXPIRETIME key FIELDS numfields field [field ...]`
pub(super) static HPEXPIRETIME: Command = Command::new("hpexpiretime", Group::Hash, -5)
    .reads(KeySpec::FIRST_READ)
    .flags(Flags::FAST)
    .doc(
        "7.4.0",
        "key FIELDS <numfields:integer field [field ...]>",
        "Returns the Unix times in milliseconds at which fields expire.",
    )
    .complexity(COMPLEXITY)
    .on_keys(|cx, args, out| time_left(cx, args, out, TimeForm::UnixMillis));

fn time_left(
    cx: &mut ShardCx<'_>,
    args: &Args<'_>,
    out: &mut Out,
    form: TimeForm,
) -> CommandResult {
    let now_ms = cx.now.unix_ms;
    let key = args.key(1);
    let mut keyspace = cx.at(&key);
    let hash = read(&mut keyspace, &key)?;
    let names = FIELDS.read(args, 2, BAD_COUNT)?;
    let deadline = |name: &[u8]| Some(hash?.get(name)?.deadline);
    element_deadline::reply_times(out, names, (form, now_ms), deadline);
    Ok(())
}
