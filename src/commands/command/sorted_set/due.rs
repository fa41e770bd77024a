//! Queues of members that become due: their scores are Unix times in seconds, with fractions.

use super::limits;
use super::pop::{Pop, PopEnd, ZpopReplyFormat};
use crate::command::context::{ShardCx, Wait};
use crate::command::declaration::{Command, CommandResult, Flags, Group, KeyFlags, KeySpec};
use crate::command::error::CommandError;
use crate::command::options;
use crate::command::{Args, Out};
use basalt_core::structures::table::EntrySlot;
use basalt_engine::keyspace::Keyspace;
use basalt_engine::value::DataType;
use basalt_engine::value::sorted_set::SortedSet;
use basalt_engine::{Key, Now};

const TAKEN: KeyFlags = KeyFlags::RW.or(KeyFlags::ACCESS).or(KeyFlags::DELETE);

/// `ZPOPDUE key [COUNT count]`
pub(super) static ZPOPDUE: Command = Command::new("zpopdue", Group::SortedSet, -2)
    .writes(&[KeySpec::one(1, TAKEN)])
    .flags(Flags::FAST)
    .doc(
        Command::OWN,
        "key [COUNT count]",
        "Removes and returns the members whose score, a Unix time in seconds, has passed.",
    )
    .complexity("O(M*log(N)) for M members, in a set of N.")
    .tips(&["nondeterministic_output"])
    .on_keys(popdue);

/// `BZPOPDUE key [key ...] timeout [COUNT count]`
pub(super) static BZPOPDUE: Command = Command::new("bzpopdue", Group::SortedSet, -3)
    .writes(&[KeySpec::range(1, -2, 1, TAKEN.or(KeyFlags::INCOMPLETE))
        .note("`COUNT` and its number stand behind the timeout")])
    .flags(Flags::BLOCKING.or(Flags::MOVABLEKEYS))
    .doc(
        Command::OWN,
        "key [key ...] timeout [COUNT count]",
        "Removes and returns the members that are due, or blocks until a member is due.",
    )
    .complexity("O(K) + O(M*log(N)) for K keys and M members out of N.")
    .tips(&["nondeterministic_output"])
    .ends_with_options(|count, argument| 2 * usize::from(has_count(count, argument)))
    .on_keys(bpopdue);

/// Whether the two last arguments of BZPOPDUE are `COUNT` and its number: there is a key and a timeout before them.
fn has_count<'a>(count: usize, argument: &dyn Fn(usize) -> &'a [u8]) -> bool {
    count >= 5 && argument(count - 2).eq_ignore_ascii_case(b"count")
}

/// Parses the number after `COUNT`, at this index.
fn count_at(args: &Args<'_>, at: usize) -> Result<usize, CommandError> {
    let count = args.integer(at).ok().filter(|count| *count > 0);
    let count = count.ok_or("ERR count should be greater than 0")?;
    Ok(usize::try_from(count).unwrap_or(usize::MAX))
}

/// Whether a score, interpreted as a time, has come. A double has microsecond precision at present times.
fn is_due(score: f64, now: Now) -> bool {
    score <= now.unix_ms as f64 / 1000.0
}

/// Returns the first whole Unix millisecond at which a score is due; None if that is out of range.
fn due_ms(score: f64) -> Option<u64> {
    let ms = (score * 1000.0).ceil();
    (ms < u64::MAX as f64).then_some(ms.max(0.0) as u64)
}

/// Returns the number of members of the set at a place that are due, at most `most`.
fn due_count(keyspace: &Keyspace<'_>, place: EntrySlot, most: usize) -> usize {
    let now = keyspace.now();
    let set = SortedSet::of(keyspace.entry(place));
    set.rank_by_score(|score| is_due(score, now)).min(most)
}

/// Removes the first members and replies with them and their scores.
fn take(
    cx: &mut ShardCx<'_>,
    key: &Key<'_>,
    (place, count): (EntrySlot, usize),
    style: ZpopReplyFormat,
    out: &mut Out,
) {
    let pop = Pop {
        end: PopEnd::Min,
        count,
        style,
        limits: limits(cx),
    };
    let mut keyspace = cx.at(key);
    pop.run(&mut keyspace, key, place, out);
    let figures = &keyspace.engine().published().rates;
    figures.due_taken.add(count as u64);
    // The due members come first on every server with the same set, so ZPOPMIN removes them.
    cx.log_taken(b"ZPOPMIN", key.bytes, count);
}

fn popdue(cx: &mut ShardCx<'_>, args: &Args<'_>, out: &mut Out) -> CommandResult {
    let most = match args.len() {
        2 => 1,
        4 if args.is(2, "count") => count_at(args, 3)?,
        _ => return Err(CommandError::Syntax),
    };
    let key = args.key(1);
    let mut keyspace = cx.at(&key);
    let found = keyspace.find_typed(&key, DataType::SortedSet)?;
    let count = found.map_or(0, |place| due_count(&keyspace, place, most));
    let style = match out.is_resp3() {
        true => ZpopReplyFormat::Pairs,
        false => ZpopReplyFormat::Flat,
    };
    match found.filter(|_| count > 0) {
        Some(place) => take(cx, &key, (place, count), style, out),
        None => out.array(0),
    }
    Ok(())
}

fn bpopdue(cx: &mut ShardCx<'_>, args: &Args<'_>, out: &mut Out) -> CommandResult {
    let has_count = has_count(args.len(), &|at| args.get(at));
    let timeout_at = args.len() - 1 - 2 * usize::from(has_count);
    let most = match has_count {
        true => count_at(args, args.len() - 1)?,
        false => 1,
    };
    let until_ms = options::blocking_timeout(args, timeout_at, cx.now)?;
    let (db, may_block) = (cx.client.db, cx.may_block());
    for routed in args.keys() {
        if !cx.holds(routed) {
            continue;
        }
        let key = args.key_of(routed);
        let mut keyspace = cx.at_routed(routed);
        let Some(place) = keyspace.find_typed(&key, DataType::SortedSet)? else {
            continue;
        };
        let count = due_count(&keyspace, place, most);
        if count > 0 {
            let style = ZpopReplyFormat::KeyAndPairs;
            take(cx, &key, (place, count), style, out);
            return Ok(());
        }
        let first = SortedSet::of(keyspace.entry(place)).get(0);
        let due_ms = first.and_then(|(_, score)| due_ms(score));
        if let Some(due_ms) = due_ms.filter(|_| may_block) {
            keyspace.engine().waiters.look_again(db, key.bytes, due_ms);
        }
    }
    match may_block {
        true => cx.wait(Wait {
            looks_again: true,
            ..Wait::new(DataType::SortedSet, until_ms)
        }),
        false => out.null_array(),
    }
    Ok(())
}

#[cfg(test)]
mod unit_tests {
    use super::*;

    #[test]
    fn a_member_is_due_from_the_millisecond_on_at_which_it_is_looked_at() {
        for (score, at_ms) in [
            (0.0, 0),
            (-5.0, 0),
            (f64::NEG_INFINITY, 0),
            (1.5, 1_500),
            (1_700_000_000.000_4, 1_700_000_000_001),
            (1_700_000_000.25, 1_700_000_000_250),
        ] {
            assert_eq!(due_ms(score), Some(at_ms), "{score}");
            let is_due_at = |unix_ms| is_due(score, Now { unix_ms });
            assert!(is_due_at(at_ms), "{score}");
            assert!(at_ms == 0 || !is_due_at(at_ms - 1), "{score}");
        }
        assert_eq!(due_ms(f64::INFINITY), None);
        assert_eq!(due_ms(1e300), None);
    }
}
