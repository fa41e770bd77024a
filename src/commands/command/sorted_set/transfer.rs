//! Commands that move members with their scores from one sorted set to another: ZMOVE, BZMOVE, which waits for members,
//! and ZMOVEMEMBER.
//!
//! The shards of both sets are locked, so no client sees a member in both sets or in neither.

use std::collections::HashSet;

use super::bounds::SortedSetRange;
use super::{event, limits, reply_scored, took_out};
use crate::client::connection::Origin;
use crate::command::context::{ShardCx, Wait};
use crate::command::declaration::{Command, CommandResult, Flags, Group, KeyFlags, KeySpec};
use crate::command::error::CommandError;
use crate::command::options::blocking_timeout;
use crate::command::{Args, Out};
use basalt_core::alloc::account;
use basalt_core::base::number::{self, F64Buffer};
use basalt_core::structures::block::Content;
use basalt_core::structures::listpack::Element;
use basalt_core::structures::ordered::Direction;
use basalt_core::structures::table::EntrySlot;
use basalt_engine::Key;
use basalt_engine::effect::Event;
use basalt_engine::value::DataType;
use basalt_engine::value::sorted_set::{ScoredMembers, SortedSet, SortedSetMut};

const SOURCE_AND_TARGET: &[KeySpec] = &[
    KeySpec::one(1, KeyFlags::RW.or(KeyFlags::ACCESS).or(KeyFlags::DELETE)),
    KeySpec::one(2, KeyFlags::RW.or(KeyFlags::INSERT)),
];

/// `ZMOVE source destination <MIN | MAX | BYSCORE score-min score-max> [COUNT count]`
pub(super) static ZMOVE: Command = Command::new("zmove", Group::SortedSet, -4)
    .writes(SOURCE_AND_TARGET)
    .flags(Flags::DENYOOM)
    .doc(
        "8.12.0",
        "source destination <MIN | MAX | BYSCORE score-min:double score-max:double> [COUNT count]",
        "Moves the members with the lowest or highest scores, or with scores in a range, to another sorted set.",
    )
    .complexity("O(log(N) + K*(log(N)+log(M))) for K members, moved from a set of N to one of M.")
    .takes_long()
    .on_keys(zmove);

fn zmove(cx: &mut ShardCx<'_>, args: &Args<'_>, out: &mut Out) -> CommandResult {
    let (selection, at) = ZmoveSelection::parse(cx.client.origin, args)?;
    let count = count_from(args, at)?;
    if move_selected(cx, args, selection, count, out)? != Outcome::Moved {
        out.null_array();
    }
    Ok(())
}

/// `BZMOVE source destination <MIN | MAX> timeout [COUNT count]`
pub(super) static BZMOVE: Command = Command::new("bzmove", Group::SortedSet, -5)
    .writes(SOURCE_AND_TARGET)
    .flags(Flags::DENYOOM.or(Flags::BLOCKING))
    .doc(
        "8.12.0",
        "source destination <MIN | MAX> timeout:double [COUNT count]",
        "Like ZMOVE with MIN or MAX, but blocks until there is a member.",
    )
    .complexity("O(K*(log(N)+log(M))) for K members, moved from a set of N to one of M.")
    .takes_long()
    .on_keys(bzmove);

fn bzmove(cx: &mut ShardCx<'_>, args: &Args<'_>, out: &mut Out) -> CommandResult {
    let selection = ZmoveSelection::end(args).ok_or(CommandError::Syntax)?;
    let count = count_from(args, 5)?;
    let until_ms = blocking_timeout(args, 4, cx.now)?;
    match move_selected(cx, args, selection, count, out)? {
        Outcome::Moved => {}
        Outcome::NothingThere if cx.may_block() => cx.wait(Wait {
            needs_all: true,
            ..Wait::new(DataType::SortedSet, until_ms)
        }),
        Outcome::NothingThere | Outcome::SameKey => out.null_array(),
    }
    Ok(())
}

/// Which members ZMOVE moves.
#[derive(Clone, Copy, Debug)]
enum ZmoveSelection<'a> {
    Lowest,
    Highest,
    Scores(SortedSetRange<'a>),
}

impl<'a> ZmoveSelection<'a> {
    /// Parses MIN or MAX.
    fn end(args: &Args<'_>) -> Option<ZmoveSelection<'a>> {
        if args.is(3, "min") {
            Some(ZmoveSelection::Lowest)
        } else if args.is(3, "max") {
            Some(ZmoveSelection::Highest)
        } else {
            None
        }
    }

    /// Parses the selection. Returns it and the position of the first argument after it.
    fn parse(origin: Origin, args: &Args<'_>) -> Result<(ZmoveSelection<'a>, usize), CommandError> {
        if let Some(end) = ZmoveSelection::end(args) {
            return Ok((end, 4));
        }
        if !args.is(3, "byscore") || args.len() < 6 {
            return Err(CommandError::Syntax);
        }
        let range = SortedSetRange::scores(origin, args.get(4), args.get(5))?;
        Ok((ZmoveSelection::Scores(range), 6))
    }
}

/// Parses `COUNT count`, which may be missing, at the end of a request.
fn count_from(args: &Args<'_>, at: usize) -> Result<Option<usize>, CommandError> {
    if args.len() == at {
        return Ok(None);
    }
    if args.len() != at + 2 || !args.is(at, "count") {
        return Err(CommandError::Syntax);
    }
    let count = number::parse_i64(args.get(at + 1)).filter(|count| *count > 0);
    let count = count.ok_or("ERR count should be greater than 0")?;
    Ok(Some(usize::try_from(count).unwrap_or(usize::MAX)))
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Outcome {
    /// Members were moved, and the reply is written.
    Moved,
    /// There is nothing to move.
    NothingThere,
    /// Source and destination are the same key.
    SameKey,
}

/// Moves selected members and replies with them. Without a count, MIN and MAX move one member, and BYSCORE all in the
/// range.
fn move_selected(
    cx: &mut ShardCx<'_>,
    args: &Args<'_>,
    selection: ZmoveSelection<'_>,
    count: Option<usize>,
    out: &mut Out,
) -> Result<Outcome, CommandError> {
    let (source, target, limits) = (args.key(1), args.key(2), limits(cx));
    let Some(place) = find(cx, &source, &target)? else {
        return Ok(match source.bytes == target.bytes {
            true => Outcome::SameKey,
            false => Outcome::NothingThere,
        });
    };
    let (scales, mut keyspace) = (cx.scales(), cx.at(&source));
    let set = SortedSet::of(keyspace.entry(place));
    let (from, to, direction) = match selection {
        ZmoveSelection::Lowest => {
            let count = count.unwrap_or(1).min(set.len());
            (0, count, Direction::Ascending)
        }
        ZmoveSelection::Highest => {
            let count = count.unwrap_or(1).min(set.len());
            (set.len() - count, set.len(), Direction::Descending)
        }
        ZmoveSelection::Scores(range) => {
            let ranks = range.ranks(set, Direction::Ascending);
            let count = count.unwrap_or(usize::MAX).min(ranks.count());
            (ranks.from, ranks.from + count, Direction::Ascending)
        }
    };
    if from == to {
        return Ok(Outcome::NothingThere);
    }
    scales.weigh(to - from)?;
    let range = set.range(from, to, direction);
    let moved: ScoredMembers = range
        .map(|(member, score)| (member.to_vec(), score))
        .collect();
    keyspace.edit(place, |entry| {
        SortedSetMut::new(entry, limits).remove_range(from, to - from);
    });
    let taken = match selection {
        ZmoveSelection::Lowest => event("zpopmin"),
        ZmoveSelection::Highest => event("zpopmax"),
        ZmoveSelection::Scores(_) => event("zrem"),
    };
    took_out(&mut keyspace, &source, place, taken);
    arrive(cx, &source, &target, &moved, out);
    Ok(Outcome::Moved)
}

/// Looks up both sets. Returns the place of the source if it exists and is not the destination.
fn find(
    cx: &mut ShardCx<'_>,
    source: &Key<'_>,
    target: &Key<'_>,
) -> Result<Option<EntrySlot>, CommandError> {
    let found = cx.at(source).find_typed(source, DataType::SortedSet)?;
    if found.is_none() || source.bytes == target.bytes {
        return Ok(None);
    }
    cx.at(target).find_typed(target, DataType::SortedSet)?;
    // Looked up again: if the target had expired and was just deleted, the source's place may have changed.
    Ok(cx.at(source).find_write(source))
}

/// Adds members that were removed from the source to the destination, replies with them and logs the move.
fn arrive(
    cx: &mut ShardCx<'_>,
    source: &Key<'_>,
    target: &Key<'_>,
    moved: &ScoredMembers,
    out: &mut Out,
) {
    let limits = limits(cx);
    let mut keyspace = cx.at(target);
    let place = keyspace
        .find_write(target)
        .unwrap_or_else(|| keyspace.create(target, || SortedSetMut::empty_entry(target.bytes)));
    keyspace.edit(place, |entry| {
        let mut set = SortedSetMut::new(entry, limits);
        for (member, score) in moved {
            set.update(member, *score, |_| Some(*score));
        }
    });
    // The move counts once, for the set from which the members were taken.
    keyspace.followed(target.bytes, ADDED);
    out.array(moved.len());
    for (member, score) in moved {
        if !out.is_resp3() {
            out.array(2);
        }
        reply_scored(Element::Bytes(member), *score, true, out);
    }
    log(cx, source, target, moved);
}

const ADDED: Event = Event::new(b'z', "zadd");

/// Logs the removal and the addition, which servers before 8.12 know.
fn log(cx: &mut ShardCx<'_>, source: &Key<'_>, target: &Key<'_>, moved: &ScoredMembers) {
    /// Maximum number of members that one record names.
    const LOGGED_TOGETHER_MAX: usize = 1024;
    if !cx.is_logged() {
        return;
    }
    for some in moved.chunks(LOGGED_TOGETHER_MAX) {
        let mut request: Vec<Content<'_>> = vec![b"ZREM".into(), source.bytes.into()];
        request.extend(some.iter().map(|(member, _)| Content::from(member)));
        cx.log_instead(request);
        let text = |score: f64| F64Buffer::default().format(score).to_vec();
        let scores: Vec<Vec<u8>> = some.iter().map(|(_, score)| text(*score)).collect();
        let mut request: Vec<Content<'_>> = vec![b"ZADD".into(), target.bytes.into()];
        for ((member, _), score) in some.iter().zip(&scores) {
            request.push(score.into());
            request.push(member.into());
        }
        cx.log_instead(request);
    }
}

/// `ZMOVEMEMBER source destination [NX | XX] MEMBERS num-members member [member ...]`
pub(super) static ZMOVEMEMBER: Command = Command::new("zmovemember", Group::SortedSet, -6)
    .writes(SOURCE_AND_TARGET)
    .flags(Flags::DENYOOM)
    .doc(
        "8.12.0",
        "source destination [NX | XX] MEMBERS num-members:integer member [member ...]",
        "Moves members with their scores to another sorted set, possibly only those that it lacks or has.",
    )
    .complexity("O(K*(log(N)+log(M))) for K members, moved from a set of N to one of M.")
    .takes_long()
    .on_keys(zmovemember);

fn zmovemember(cx: &mut ShardCx<'_>, args: &Args<'_>, out: &mut Out) -> CommandResult {
    let wants_present = match () {
        () if args.is(3, "nx") => Some(false),
        () if args.is(3, "xx") => Some(true),
        () => None,
    };
    let words_at = 3 + usize::from(wants_present.is_some());
    if !args.is(words_at, "members") {
        return Err(CommandError::Syntax);
    }
    let named_at = words_at + 2;
    let named = number::parse_i64(args.get(words_at + 1))
        .filter(|number| *number > 0)
        .ok_or("ERR Parameter `num-members` should be greater than 0")?;
    if usize::try_from(named).ok() != args.len().checked_sub(named_at) {
        return Err("ERR The `num-members` parameter must match the number of arguments".into());
    }
    let (source, target, limits) = (args.key(1), args.key(2), limits(cx));
    let Some(place) = find(cx, &source, &target)? else {
        out.null_array();
        return Ok(());
    };
    cx.scales().weigh(args.len() - named_at)?;
    let moved = account::uncharged(|| {
        movable(
            cx,
            args,
            (&source, place, &target),
            (named_at, wants_present),
        )
    });
    if moved.is_empty() {
        out.null_array();
        return Ok(());
    }
    let mut keyspace = cx.at(&source);
    keyspace.edit(place, |entry| {
        let mut set = SortedSetMut::new(entry, limits);
        for (member, _) in &moved {
            set.remove(member);
        }
    });
    took_out(&mut keyspace, &source, place, event("zrem"));
    arrive(cx, &source, &target, &moved, out);
    Ok(())
}

/// Returns the named members that the source has and that meet the condition, each once, in the order of the request.
fn movable(
    cx: &mut ShardCx<'_>,
    args: &Args<'_>,
    (source, place, target): (&Key<'_>, EntrySlot, &Key<'_>),
    (named_at, wants_present): (usize, Option<bool>),
) -> ScoredMembers {
    let mut seen = HashSet::new();
    let mut moved = ScoredMembers::new();
    for member in args.from(named_at) {
        let keyspace = cx.at(source);
        let Some(score) = SortedSet::of(keyspace.entry(place)).score(member) else {
            continue;
        };
        let is_present = |cx: &mut ShardCx<'_>| {
            let mut keyspace = cx.at(target);
            let found = keyspace.find_write(target);
            found.is_some_and(|place| SortedSet::of(keyspace.entry(place)).score(member).is_some())
        };
        let fits = wants_present.is_none_or(|wanted| is_present(cx) == wanted);
        if fits && seen.insert(member) {
            moved.push((member.to_vec(), score));
        }
    }
    moved
}
