//! Members in order: ZRANGE, its older relatives, and ZRANGESTORE.

use super::bounds::{Ranks, SortedSetRange};
use super::{aside, begin_members, event, install, reply_scored, store};
use crate::client::connection::Origin;
use crate::command::Args;
use crate::command::Out;
use crate::command::context::ShardCx;
use crate::command::declaration::{Command, CommandResult, Flags, Group, KeyFlags, KeySpec};
use crate::command::error::CommandError;
use crate::command::prepared::Prepared;
use basalt_core::structures::ordered::Direction;
use basalt_core::structures::table::EntrySlot;
use basalt_engine::Key;
use basalt_engine::keyspace::Keyspace;
use basalt_engine::value::DataType;
use basalt_engine::value::sorted_set::SortedSet;

const COST: &str = "O(log(N)+M) in a set of N members, for M that are answered.";

/// The kind of the bounds of a range: ranks, scores or members.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum BoundKind {
    Rank,
    Score,
    Lex,
}

/// The parameters that a command's name implies.
#[derive(Clone, Copy)]
struct ImpliedParameters {
    /// Index of the key; the bounds follow it.
    key_at: usize,
    by: Option<BoundKind>,
    direction: Option<Direction>,
    takes_scores: bool,
}

/// A parsed request of ZRANGE or one of its relatives.
struct ZrangeRequest<'a> {
    bounds: SortedSetRange<'a>,
    direction: Direction,
    offset: i64,
    count: i64,
    is_limited: bool,
    with_scores: bool,
}

impl<'a> ZrangeRequest<'a> {
    fn parse(
        origin: Origin,
        args: &Args<'a>,
        given: ImpliedParameters,
    ) -> Result<ZrangeRequest<'a>, CommandError> {
        let (mut by, mut direction) = (given.by, given.direction);
        let mut limit = None;
        let mut with_scores = false;
        let mut at = given.key_at + 3;
        while at < args.len() {
            if given.takes_scores && args.is(at, "withscores") {
                with_scores = true;
            } else if args.is(at, "limit") && at + 2 < args.len() {
                limit = Some((args.integer(at + 1)?, args.integer(at + 2)?));
                at += 2;
            } else if direction.is_none() && args.is(at, "rev") {
                direction = Some(Direction::Descending);
            } else if by.is_none() && args.is(at, "bylex") {
                by = Some(BoundKind::Lex);
            } else if by.is_none() && args.is(at, "byscore") {
                by = Some(BoundKind::Score);
            } else {
                return Err(CommandError::Syntax);
            }
            at += 1;
        }
        let by = by.unwrap_or(BoundKind::Rank);
        let direction = direction.unwrap_or(Direction::Ascending);
        let (offset, count) = limit.unwrap_or((0, -1));
        if count != -1 && by == BoundKind::Rank {
            return Err(
                "ERR syntax error, LIMIT is only supported in combination with \
                        either BYSCORE or BYLEX"
                    .into(),
            );
        }
        if with_scores && by == BoundKind::Lex {
            return Err(
                "ERR syntax error, WITHSCORES not supported in combination with BYLEX".into(),
            );
        }
        let (first, second) = (given.key_at + 1, given.key_at + 2);
        // The request gives the greater bound of a descending range first.
        let (min, max) = match direction {
            Direction::Ascending => (args.get(first), args.get(second)),
            Direction::Descending => (args.get(second), args.get(first)),
        };
        let bounds = match by {
            BoundKind::Rank => SortedSetRange::Rank(args.integer(first)?, args.integer(second)?),
            BoundKind::Score => SortedSetRange::scores(origin, min, max)?,
            BoundKind::Lex => SortedSetRange::members(min, max)?,
        };
        Ok(ZrangeRequest {
            bounds,
            direction,
            offset,
            count,
            is_limited: limit.is_some() && by != BoundKind::Rank,
            with_scores,
        })
    }

    fn ranks(&self, set: SortedSet<'_>) -> Ranks {
        let ranks = self.bounds.ranks(set, self.direction);
        if self.is_limited {
            ranks.limited(self.offset, self.count, self.direction)
        } else {
            ranks
        }
    }
}

fn find(keyspace: &mut Keyspace<'_>, key: &Key<'_>) -> Result<Option<EntrySlot>, CommandError> {
    Ok(keyspace.read_typed(key, DataType::SortedSet)?)
}

fn reply(
    cx: &mut ShardCx<'_>,
    args: &Args<'_>,
    out: &mut Out,
    given: ImpliedParameters,
) -> CommandResult {
    let wanted = ZrangeRequest::parse(cx.client.origin, args, given)?;
    let (key, scales) = (args.key(given.key_at), cx.scales());
    let mut keyspace = cx.at(&key);
    let Some(place) = find(&mut keyspace, &key)? else {
        out.array(0);
        return Ok(());
    };
    let set = SortedSet::of(keyspace.entry(place));
    let ranks = wanted.ranks(set);
    scales.weigh(ranks.count())?;
    begin_members(ranks.count(), wanted.with_scores, out);
    for (member, score) in set.range(ranks.from, ranks.to, wanted.direction) {
        reply_scored(member, score, wanted.with_scores, out);
    }
    Ok(())
}

/// `ZRANGE key start stop [BYSCORE | BYLEX] [REV] [LIMIT offset count] [WITHSCORES]`
pub(super) static ZRANGE: Command = Command::new("zrange", Group::SortedSet, -4)
    .reads(KeySpec::FIRST_READ)
    .doc(
        "1.2.0",
        "key start:string stop:string [BYSCORE | BYLEX] [REV] [LIMIT offset count] [WITHSCORES]",
        "Returns a range of members, by rank, score or name.",
    )
    .complexity(COST)
    .history(&[(
        "6.2.0",
        "New options: `REV`, `BYSCORE`, `BYLEX` and `LIMIT`.",
    )])
    .takes_long()
    .on_keys(|cx, args, out| {
        let given = ImpliedParameters {
            key_at: 1,
            by: None,
            direction: None,
            takes_scores: true,
        };
        reply(cx, args, out, given)
    });

/// Runs a command whose name implies the kind of the bounds and the direction.
fn reply_implied(
    cx: &mut ShardCx<'_>,
    args: &Args<'_>,
    out: &mut Out,
    by: BoundKind,
    direction: Direction,
) -> CommandResult {
    let given = ImpliedParameters {
        key_at: 1,
        by: Some(by),
        direction: Some(direction),
        takes_scores: true,
    };
    reply(cx, args, out, given)
}

/// `ZREVRANGE key start stop [WITHSCORES]`
pub(super) static ZREVRANGE: Command = Command::new("zrevrange", Group::SortedSet, -4)
    .reads(KeySpec::FIRST_READ)
    .doc(
        "1.2.0",
        "key start stop [WITHSCORES]",
        "Returns a range of members by rank, the greatest score first.",
    )
    .complexity(COST)
    .deprecated("6.2.0", "`ZRANGE` with the `REV` argument")
    .takes_long()
    .on_keys(|cx, args, out| reply_implied(cx, args, out, BoundKind::Rank, Direction::Descending));

/// `ZRANGEBYSCORE key min max [WITHSCORES] [LIMIT offset count]`
pub(super) static ZRANGEBYSCORE: Command = Command::new("zrangebyscore", Group::SortedSet, -4)
    .reads(KeySpec::FIRST_READ)
    .doc(
        "1.0.5",
        "key min max [WITHSCORES] [LIMIT offset count]",
        "Returns the members with scores in a range.",
    )
    .complexity(COST)
    .history(&[("2.0.0", "New option: `WITHSCORES`.")])
    .deprecated("6.2.0", "`ZRANGE` with the `BYSCORE` argument")
    .takes_long()
    .on_keys(|cx, args, out| reply_implied(cx, args, out, BoundKind::Score, Direction::Ascending));

/// `ZREVRANGEBYSCORE key max min [WITHSCORES] [LIMIT offset count]`
pub(super) static ZREVRANGEBYSCORE: Command =
    Command::new("zrevrangebyscore", Group::SortedSet, -4)
        .reads(KeySpec::FIRST_READ)
        .doc(
            "2.2.0",
            "key max min [WITHSCORES] [LIMIT offset count]",
            "Returns the members with scores in a range, the greatest first.",
        )
        .complexity(COST)
        .history(&[("2.1.6", "The bounds may be exclusive.")])
        .deprecated("6.2.0", "`ZRANGE` with the `REV` and `BYSCORE` arguments")
        .takes_long()
        .on_keys(|cx, args, out| {
            reply_implied(cx, args, out, BoundKind::Score, Direction::Descending)
        });

/// `ZRANGEBYLEX key min max [LIMIT offset count]`
pub(super) static ZRANGEBYLEX: Command = Command::new("zrangebylex", Group::SortedSet, -4)
    .reads(KeySpec::FIRST_READ)
    .doc(
        "2.8.9",
        "key min:string max:string [LIMIT offset count]",
        "Returns a range of members of equal scores, by name.",
    )
    .complexity(COST)
    .deprecated("6.2.0", "`ZRANGE` with the `BYLEX` argument")
    .takes_long()
    .on_keys(|cx, args, out| reply_implied(cx, args, out, BoundKind::Lex, Direction::Ascending));

/// `ZREVRANGEBYLEX key max min [LIMIT offset count]`
pub(super) static ZREVRANGEBYLEX: Command = Command::new("zrevrangebylex", Group::SortedSet, -4)
    .reads(KeySpec::FIRST_READ)
    .doc(
        "2.8.9",
        "key max:string min:string [LIMIT offset count]",
        "Returns a range of members of equal scores, by name, the greatest first.",
    )
    .complexity(COST)
    .deprecated("6.2.0", "`ZRANGE` with the `REV` and `BYLEX` arguments")
    .takes_long()
    .on_keys(|cx, args, out| reply_implied(cx, args, out, BoundKind::Lex, Direction::Descending));

/// `ZRANGESTORE dst src min max [BYSCORE | BYLEX] [REV] [LIMIT offset count]`
pub(super) static ZRANGESTORE: Command = Command::new("zrangestore", Group::SortedSet, -5)
    .writes(&[
        KeySpec::one(1, KeyFlags::OW.or(KeyFlags::UPDATE)),
        KeySpec::one(2, KeyFlags::RO.or(KeyFlags::ACCESS)),
    ])
    .flags(Flags::DENYOOM)
    .doc(
        "6.2.0",
        "dst:key src:key min:string max:string [BYSCORE | BYLEX] [REV] [LIMIT offset count]",
        "Stores a range of members as a sorted set of their own.",
    )
    .complexity("O(log(N)+M) in a set of N members, for M that are stored.")
    .takes_long()
    .builds_aside(|args, cx| aside::begin_range(args, cx, stored_ranks))
    .on_keys(zrangestore);

/// The parameters of ZRANGESTORE.
const STORED: ImpliedParameters = ImpliedParameters {
    key_at: 2,
    by: None,
    direction: None,
    takes_scores: false,
};

/// Returns the ranks of the members that a request of ZRANGESTORE stores; None if the request is malformed.
fn stored_ranks(args: &Args<'_>, set: SortedSet<'_>) -> Option<Ranks> {
    // The handler parses the request again, for its real origin.
    let wanted = ZrangeRequest::parse(Origin::File, args, STORED).ok()?;
    Some(wanted.ranks(set))
}

fn zrangestore(cx: &mut ShardCx<'_>, args: &Args<'_>, out: &mut Out) -> CommandResult {
    let wanted = ZrangeRequest::parse(cx.client.origin, args, STORED)?;
    let (source, scales) = (args.key(2), cx.scales());
    let mut keyspace = cx.at(&source);
    let found = find(&mut keyspace, &source)?;
    if let Some(built) = args.prepared().and_then(Prepared::take) {
        install(cx, &args.key(1), built?, event("zrangestore"), out);
        return Ok(());
    }
    let members = match found {
        None => Vec::new(),
        Some(place) => {
            let set = SortedSet::of(keyspace.entry(place));
            let ranks = wanted.ranks(set);
            scales.weigh(ranks.count())?;
            set.range(ranks.from, ranks.to, wanted.direction)
                .map(|(member, score)| (member.to_vec(), score))
                .collect()
        }
    };
    store(cx, &args.key(1), members, event("zrangestore"), out);
    Ok(())
}
