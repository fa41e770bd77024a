//! Deadlines of members: setting, reading and removing them.

use super::{SREM_EVENT, at, event, limits, took_out};
use crate::command::Args;
use crate::command::Out;
use crate::command::context::ShardCx;
use crate::command::declaration::{Command, CommandResult, Flags, Group, KeyFlags, KeySpec};
use crate::command::element_deadline::{self, Condition, CountedNames, Giver, log_names};
use crate::command::options::TimeForm;
use basalt_engine::effect::Event;
use basalt_engine::value::DataType;
use basalt_engine::value::set;

const SEXPIRE_EVENT: Event = event("sexpire");
const SPERSIST_EVENT: Event = event("spersist");
const UPDATED: &[KeySpec] = &[KeySpec::one(1, KeyFlags::RW.or(KeyFlags::UPDATE))];
const COMPLEXITY: &str = "O(N), N being the count of members named.";
const BAD_COUNT: &str = "ERR Number of members must be a positive integer";

const MEMBERS: CountedNames = CountedNames {
    word: "members",
    missing: "ERR Mandatory argument MEMBERS is missing or not at the right position",
    mismatch: "ERR The `nummembers` parameter must match the number of arguments",
};

/// `SEXPIRE key seconds [NX | XX | GT | LT] MEMBERS nummembers member [member ...]`
pub(super) static SEXPIRE: Command = Command::new("sexpire", Group::Set, -6)
    .writes(UPDATED)
    .flags(Flags::FAST)
    .doc(
        "8.12.0",
        "key seconds [NX | XX | GT | LT] MEMBERS <nummembers:integer member [member ...]>",
        "Sets the time to live of set members in seconds.",
    )
    .complexity(COMPLEXITY)
    .on_keys(|cx, args, out| expire(cx, args, out, TimeForm::Seconds));

/// `SPEXPIRE key milliseconds [NX | XX | GT | LT] MEMBERS nummembers member [member ...]`
pub(super) static SPEXPIRE: Command = Command::new("spexpire", Group::Set, -6)
    .writes(UPDATED)
    .flags(Flags::FAST)
    .doc(
        "8.12.0",
        "key milliseconds [NX | XX | GT | LT] MEMBERS <nummembers:integer member [member ...]>",
        "Sets the time to live of set members in milliseconds.",
    )
    .complexity(COMPLEXITY)
    .on_keys(|cx, args, out| expire(cx, args, out, TimeForm::Millis));

/// `SEXPIREAT key unix-time-seconds [NX | XX | GT | LT] MEMBERS nummembers member [member ...]`
pub(super) static SEXPIREAT: Command = Command::new("sexpireat", Group::Set, -6)
    .writes(UPDATED)
    .flags(Flags::FAST)
    .doc(
        "8.12.0",
        "key unix-time-seconds [NX | XX | GT | LT] MEMBERS <nummembers:integer member [member ...]>",
        "Sets the expiration of set members to a Unix time in seconds.",
    )
    .complexity(COMPLEXITY)
    .on_keys(|cx, args, out| expire(cx, args, out, TimeForm::UnixSeconds));

/// `SPEXPIREAT key unix-time-milliseconds [NX | XX | GT | LT] MEMBERS nummembers member [member ...]`
pub(super) static SPEXPIREAT: Command = Command::new("spexpireat", Group::Set, -6)
    .writes(UPDATED)
    .flags(Flags::FAST)
    .doc(
        "8.12.0",
        "key unix-time-milliseconds [NX | XX | GT | LT] MEMBERS <nummembers:integer member [member ...]>",
        "Sets the expiration of set members to a Unix time in milliseconds.",
    )
    .complexity(COMPLEXITY)
    .on_keys(|cx, args, out| expire(cx, args, out, TimeForm::UnixMillis));

fn expire(cx: &mut ShardCx<'_>, args: &Args<'_>, out: &mut Out, form: TimeForm) -> CommandResult {
    let (limits, is_logged) = (limits(cx), cx.is_logged());
    let (now_ms, giver) = (cx.now.unix_ms, Giver::of(cx));
    let key = args.key(1);
    let mut keyspace = cx.at(&key);
    let found = keyspace.find_typed(&key, DataType::Set)?;
    let at_ms = element_deadline::given(args, 2, form, now_ms, giver)?;
    let condition = Condition::of(args, 3);
    let word_at = 3 + usize::from(condition != Condition::Always);
    let members = MEMBERS.read(
        args,
        word_at,
        "ERR Parameter `numMembers` should be greater than 0",
    )?;
    out.array(members.len());
    let is_past = at_ms <= limits.now_ms;
    let (mut changed, mut given) = (0, Vec::new());
    for member in members {
        let there = found.and_then(|place| Some((place, at(&keyspace, place).deadline(member)?)));
        let Some((place, before)) = there else {
            out.integer(-2);
            continue;
        };
        if !condition.allows(before, at_ms) {
            out.integer(0);
            continue;
        }
        keyspace.edit(place, |entry| match is_past {
            true => set::remove(entry, member, limits.now_ms),
            false => set::set_deadline(entry, member, Some(at_ms), &limits),
        });
        changed += 1;
        if is_logged {
            given.push(member);
        }
        out.integer(if is_past { 2 } else { 1 });
    }
    let Some(place) = found.filter(|_| changed > 0) else {
        return Ok(());
    };
    if is_past {
        keyspace.engine().published().expired_fields.add(changed);
        took_out(&mut keyspace, &key, place, SREM_EVENT);
        log_names(cx, &[b"SREM", key.bytes], &given);
        return Ok(());
    }
    keyspace.wrote(key.bytes, SEXPIRE_EVENT);
    let (mut deadline, mut count) = (itoa::Buffer::new(), itoa::Buffer::new());
    let deadline = deadline.format(at_ms).as_bytes();
    let count = count.format(given.len()).as_bytes();
    let head = [b"SPEXPIREAT", key.bytes, deadline, b"MEMBERS", count];
    log_names(cx, &head, &given);
    Ok(())
}

/// `SPERSIST key MEMBERS nummembers member [member ...]`
pub(super) static SPERSIST: Command = Command::new("spersist", Group::Set, -5)
    .writes(UPDATED)
    .flags(Flags::FAST)
    .doc(
        "8.12.0",
        "key MEMBERS <nummembers:integer member [member ...]>",
        "Removes the expiration of set members.",
    )
    .complexity(COMPLEXITY)
    .on_keys(persist);

fn persist(cx: &mut ShardCx<'_>, args: &Args<'_>, out: &mut Out) -> CommandResult {
    let limits = limits(cx);
    let key = args.key(1);
    let mut keyspace = cx.at(&key);
    let found = keyspace.find_typed(&key, DataType::Set)?;
    let members = MEMBERS.read(args, 2, BAD_COUNT)?;
    out.array(members.len());
    let mut changed = false;
    for member in members {
        let there = found.and_then(|place| Some((place, at(&keyspace, place).deadline(member)?)));
        match there {
            None => out.integer(-2),
            Some((_, None)) => out.integer(-1),
            Some((place, Some(_))) => {
                keyspace.edit(place, |entry| {
                    set::set_deadline(entry, member, None, &limits)
                });
                changed = true;
                out.integer(1);
            }
        }
    }
    if changed {
        keyspace.wrote(key.bytes, SPERSIST_EVENT);
    }
    Ok(())
}

/// `STTL key MEMBERS nummembers member [member ...]`
pub(super) static STTL: Command = Command::new("sttl", Group::Set, -5)
    .reads(KeySpec::FIRST_READ)
    .flags(Flags::FAST)
    .doc(
        "8.12.0",
        "key MEMBERS <nummembers:integer member [member ...]>",
        "Returns the remaining time to live of set members in seconds.",
    )
    .complexity(COMPLEXITY)
    .tips(&["nondeterministic_output"])
    .on_keys(|cx, args, out| time_left(cx, args, out, TimeForm::Seconds));

/// `SPTTL key MEMBERS nummembers member [member ...]`
pub(super) static SPTTL: Command = Command::new("spttl", Group::Set, -5)
    .reads(KeySpec::FIRST_READ)
    .flags(Flags::FAST)
    .doc(
        "8.12.0",
        "key MEMBERS <nummembers:integer member [member ...]>",
        "Returns the remaining time to live of set members in milliseconds.",
    )
    .complexity(COMPLEXITY)
    .tips(&["nondeterministic_output"])
    .on_keys(|cx, args, out| time_left(cx, args, out, TimeForm::Millis));

/// `SEXPIRETIME key MEMBERS nummembers member [member ...]`
pub(super) static SEXPIRETIME: Command = Command::new("sexpiretime", Group::Set, -5)
    .reads(KeySpec::FIRST_READ)
    .flags(Flags::FAST)
    .doc(
        "8.12.0",
        "key MEMBERS <nummembers:integer member [member ...]>",
        "Returns the Unix times in seconds at which members of a set expire.",
    )
    .complexity(COMPLEXITY)
    .on_keys(|cx, args, out| time_left(cx, args, out, TimeForm::UnixSeconds));

/// `SPEXPIRETIME key MEMBERS nummembers member [member ...]`
pub(super) static SPEXPIRETIME: Command = Command::new("spexpiretime", Group::Set, -5)
    .reads(KeySpec::FIRST_READ)
    .flags(Flags::FAST)
    .doc(
        "8.12.0",
        "key MEMBERS <nummembers:integer member [member ...]>",
        "Returns the Unix times in milliseconds at which members of a set expire.",
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
    let found = keyspace.read_typed(&key, DataType::Set)?;
    let set = found.map(|place| at(&keyspace, place));
    let members = MEMBERS.read(args, 2, BAD_COUNT)?;
    let deadline = |member: &[u8]| set.and_then(|set| set.deadline(member));
    element_deadline::reply_times(out, members, (form, now_ms), deadline);
    Ok(())
}
