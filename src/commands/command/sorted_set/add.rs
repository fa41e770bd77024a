//! Commands that add members and change scores.

use super::{event, limits, score};
use crate::command::Args;
use crate::command::Out;
use crate::command::context::ShardCx;
use crate::command::declaration::{Command, CommandResult, Flags, Group, KeyFlags, KeySpec};
use crate::command::error::CommandError;
use basalt_engine::Key;
use basalt_engine::effect::Event;
use basalt_engine::value::DataType;
use basalt_engine::value::sorted_set::SortedSetMut;

const ADDED: Event = event("zadd");
const INCREASED: Event = event("zincr");

/// The rules for adding members and changing scores.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(in crate::command) struct ZaddOptions {
    /// `NX`: only adds members; existing ones stay unchanged.
    pub(in crate::command) only_new: bool,
    /// `XX`: only changes existing members.
    pub(in crate::command) only_old: bool,
    /// `GT`: a score may only rise.
    pub(in crate::command) only_greater: bool,
    /// `LT`: a score may only fall.
    pub(in crate::command) only_less: bool,
    /// `INCR`: adds the given score to the existing one.
    pub(in crate::command) increment: bool,
}

/// The outcome of adding members and changing scores.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(in crate::command) struct ZaddOutcome {
    /// Members that are new.
    pub(in crate::command) added: i64,
    /// Members whose score has changed.
    pub(in crate::command) updated: i64,
    /// The new score of the last member for which the rules permit the change.
    pub(in crate::command) last_score: Option<f64>,
    /// Whether the result of an increment was not a number.
    is_nan: bool,
}

impl ZaddOptions {
    /// Returns the new score of a member, if it gets one.
    fn decide(self, given: f64, old: Option<f64>, outcome: &mut ZaddOutcome) -> Option<f64> {
        let Some(old) = old else {
            if self.only_old {
                return None;
            }
            outcome.added += 1;
            outcome.last_score = Some(given);
            return Some(given);
        };
        if self.only_new {
            return None;
        }
        let new = if self.increment { old + given } else { given };
        if new.is_nan() {
            outcome.is_nan = true;
            return None;
        }
        if (self.only_less && new >= old) || (self.only_greater && new <= old) {
            return None;
        }
        outcome.last_score = Some(new);
        if new == old {
            return None;
        }
        outcome.updated += 1;
        Some(new)
    }
}

/// Adds members, creating the set if it does not exist, and records the change.
pub(in crate::command) fn add<'a>(
    cx: &mut ShardCx<'_>,
    key: &Key<'_>,
    members: impl Iterator<Item = (f64, &'a [u8])>,
    rules: ZaddOptions,
) -> Result<ZaddOutcome, CommandError> {
    let limits = limits(cx);
    let mut keyspace = cx.at(key);
    let mut outcome = ZaddOutcome::default();
    let place = match keyspace.find_typed(key, DataType::SortedSet)? {
        Some(place) => place,
        None if rules.only_old => return Ok(outcome),
        // The first member will be added: no rule can prevent the addition of a new member here.
        None => keyspace.create(key, || SortedSetMut::empty_entry(key.bytes)),
    };
    keyspace.edit(place, |entry| {
        let mut set = SortedSetMut::new(entry, limits);
        for (given, member) in members {
            set.update(member, given, |old| rules.decide(given, old, &mut outcome));
        }
    });
    if outcome.is_nan {
        return Err("ERR resulting score is not a number (NaN)".into());
    }
    if outcome.added + outcome.updated > 0 {
        let event = if rules.increment { INCREASED } else { ADDED };
        keyspace.wrote(key.bytes, event);
    }
    Ok(outcome)
}

/// `ZADD key [NX | XX] [GT | LT] [CH] [INCR] score member [score member ...]`
pub(super) static ZADD: Command = Command::new("zadd", Group::SortedSet, -4)
    .writes(KeySpec::FIRST_UPDATED)
    .flags(Flags::DENYOOM.or(Flags::FAST))
    .doc(
        "1.2.0",
        "key [NX | XX] [GT | LT] [CH] [INCR] score member [score member ...]",
        "Adds members to a sorted set, or changes their scores.",
    )
    .complexity("O(log(N)) for each member, in a set of N.")
    .history(&[
        ("2.4.0", "Accepts several members."),
        ("3.0.2", "New options: `XX`, `NX`, `CH` and `INCR`."),
        ("6.2.0", "New options: `GT` and `LT`."),
    ])
    .looks_up(3)
    .on_keys(zadd);

fn zadd(cx: &mut ShardCx<'_>, args: &Args<'_>, out: &mut Out) -> CommandResult {
    let mut rules = ZaddOptions::default();
    let mut counts_changes = false;
    let mut at = 2;
    while at < args.len() {
        let word = args.get(at);
        let option = match word.len() {
            2 if word.eq_ignore_ascii_case(b"nx") => &mut rules.only_new,
            2 if word.eq_ignore_ascii_case(b"xx") => &mut rules.only_old,
            2 if word.eq_ignore_ascii_case(b"gt") => &mut rules.only_greater,
            2 if word.eq_ignore_ascii_case(b"lt") => &mut rules.only_less,
            2 if word.eq_ignore_ascii_case(b"ch") => &mut counts_changes,
            4 if word.eq_ignore_ascii_case(b"incr") => &mut rules.increment,
            _ => break,
        };
        *option = true;
        at += 1;
    }
    let words = args.len() - at;
    if words == 0 || !words.is_multiple_of(2) {
        return Err(CommandError::Syntax);
    }
    if rules.only_new && rules.only_old {
        return Err("ERR XX and NX options at the same time are not compatible".into());
    }
    if (rules.only_new && (rules.only_greater || rules.only_less))
        || (rules.only_greater && rules.only_less)
    {
        return Err("ERR GT, LT, and/or NX options at the same time are not compatible".into());
    }
    if rules.increment && words > 2 {
        return Err("ERR INCR option supports a single increment-element pair".into());
    }
    let first = (score(args.get(at))?, args.get(at + 1));
    // All scores are parsed before anything changes; nothing is allocated for the usual single one.
    let mut others = Vec::new();
    for at in (at + 2..args.len()).step_by(2) {
        others.push((score(args.get(at))?, args.get(at + 1)));
    }
    // Borrowed, because memory freed inside the edit would be subtracted from the set's account.
    let members = std::iter::once(first).chain(others.iter().copied());
    let outcome = add(cx, &args.key(1), members, rules)?;
    match outcome.last_score {
        Some(score) if rules.increment => out.double(score),
        None if rules.increment => out.null(),
        _ if counts_changes => out.integer(outcome.added + outcome.updated),
        _ => out.integer(outcome.added),
    }
    Ok(())
}

/// `ZINCRBY key increment member`
pub(super) static ZINCRBY: Command = Command::new("zincrby", Group::SortedSet, 4)
    .writes(&[KeySpec::one(
        1,
        KeyFlags::RW.or(KeyFlags::ACCESS).or(KeyFlags::UPDATE),
    )])
    .flags(Flags::DENYOOM.or(Flags::FAST))
    .doc(
        "1.2.0",
        "key increment member",
        "Adds to the score of a member, which begins with 0.",
    )
    .complexity("O(log(N)) in a set of N members.")
    .looks_up(3)
    .on_keys(zincrby);

fn zincrby(cx: &mut ShardCx<'_>, args: &Args<'_>, out: &mut Out) -> CommandResult {
    let rules = ZaddOptions {
        increment: true,
        ..ZaddOptions::default()
    };
    let given = (score(args.get(2))?, args.get(3));
    let outcome = add(cx, &args.key(1), std::iter::once(given), rules)?;
    out.double(outcome.last_score.unwrap_or(given.0));
    Ok(())
}
