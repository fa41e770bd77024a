//! Commands on single members: their scores and ranks, removal, sampling and scanning.

use std::collections::HashSet;

use super::{answer_each, begin_members, event, limits, read, reply_scored, took_out};
use crate::command::Args;
use crate::command::Out;
use crate::command::context::ShardCx;
use crate::command::declaration::{Command, CommandResult, Flags, Group, KeyFlags, KeySpec};
use crate::command::element::reply_element;
use crate::command::error::CommandError;
use crate::command::scan;
use basalt_core::base::number::{self, F64Buffer};
use basalt_core::structures::ordered::Direction;
use basalt_engine::value::DataType;
use basalt_engine::value::sorted_set::{SortedSet, SortedSetMut};

/// `ZREM key member [member ...]`
pub(super) static ZREM: Command = Command::new("zrem", Group::SortedSet, -3)
    .writes(&[KeySpec::one(1, KeyFlags::RW.or(KeyFlags::DELETE))])
    .flags(Flags::FAST)
    .doc(
        "1.2.0",
        "key member [member ...]",
        "Removes members; returns how many there were.",
    )
    .complexity("O(M*log(N)) for M members, in a set of N.")
    .history(&[("2.4.0", "Accepts several members.")])
    .looks_up(2)
    .on_keys(zrem);

fn zrem(cx: &mut ShardCx<'_>, args: &Args<'_>, out: &mut Out) -> CommandResult {
    let limits = limits(cx);
    let key = args.key(1);
    let mut keyspace = cx.at(&key);
    let mut count = 0;
    if let Some(place) = keyspace.find_typed(&key, DataType::SortedSet)? {
        keyspace.edit(place, |entry| {
            let mut set = SortedSetMut::new(entry, limits);
            for member in args.from(2) {
                count += i64::from(set.remove(member).is_some());
            }
        });
        if count > 0 {
            took_out(&mut keyspace, &key, place, event("zrem"));
        }
    }
    out.integer(count);
    Ok(())
}

/// `ZCARD key`
pub(super) static ZCARD: Command = Command::new("zcard", Group::SortedSet, 2)
    .reads(&[KeySpec::one(1, KeyFlags::RO)])
    .flags(Flags::FAST)
    .doc("1.2.0", "key", "Returns the number of members.")
    .on_keys(zcard);

fn zcard(cx: &mut ShardCx<'_>, args: &Args<'_>, out: &mut Out) -> CommandResult {
    let key = args.key(1);
    let mut keyspace = cx.at(&key);
    let set = read(&mut keyspace, &key)?;
    out.integer(set.map_or(0, |set| set.len()) as i64);
    Ok(())
}

/// `ZSCORE key member`
pub(super) static ZSCORE: Command = Command::new("zscore", Group::SortedSet, 3)
    .reads(KeySpec::FIRST_READ)
    .flags(Flags::FAST)
    .doc("1.2.0", "key member", "Returns the score of a member.")
    .looks_up(2)
    .on_keys(zscore);

fn zscore(cx: &mut ShardCx<'_>, args: &Args<'_>, out: &mut Out) -> CommandResult {
    let key = args.key(1);
    let mut keyspace = cx.at(&key);
    match read(&mut keyspace, &key)?.and_then(|set| set.score(args.get(2))) {
        Some(score) => out.double(score),
        None => out.null(),
    }
    Ok(())
}

/// `ZMSCORE key member [member ...]`
pub(super) static ZMSCORE: Command = Command::new("zmscore", Group::SortedSet, -3)
    .reads(KeySpec::FIRST_READ)
    .flags(Flags::FAST)
    .doc(
        "6.2.0",
        "key member [member ...]",
        "Returns the scores of several members.",
    )
    .complexity("O(N) for N members.")
    .looks_up(2)
    .on_keys(zmscore);

fn zmscore(cx: &mut ShardCx<'_>, args: &Args<'_>, out: &mut Out) -> CommandResult {
    answer_each(cx, args, out, |score, out| match score {
        Some(score) => out.double(score),
        None => out.null(),
    })
}

const RANK_HISTORY: &[(&str, &str)] = &[("7.2.0", "New option: `WITHSCORE`.")];
const RANK_COST: &str = "O(log(N)) in a set of N members.";

/// `ZRANK key member [WITHSCORE]`
pub(super) static ZRANK: Command = Command::new("zrank", Group::SortedSet, -3)
    .reads(KeySpec::FIRST_READ)
    .flags(Flags::FAST)
    .doc(
        "2.0.0",
        "key member [WITHSCORE]",
        "Returns the rank of a member, lowest score first.",
    )
    .complexity(RANK_COST)
    .history(RANK_HISTORY)
    .looks_up(2)
    .on_keys(|cx, args, out| rank(cx, args, out, Direction::Ascending));

/// `ZREVRANK key member [WITHSCORE]`
pub(super) static ZREVRANK: Command = Command::new("zrevrank", Group::SortedSet, -3)
    .reads(KeySpec::FIRST_READ)
    .flags(Flags::FAST)
    .doc(
        "2.0.0",
        "key member [WITHSCORE]",
        "Returns the rank of a member, highest score first.",
    )
    .complexity(RANK_COST)
    .history(RANK_HISTORY)
    .looks_up(2)
    .on_keys(|cx, args, out| rank(cx, args, out, Direction::Descending));

fn rank(
    cx: &mut ShardCx<'_>,
    args: &Args<'_>,
    out: &mut Out,
    direction: Direction,
) -> CommandResult {
    if args.len() > 4 {
        return Err(CommandError::Arity(cx.command.full_name));
    }
    let with_score = args.len() == 4;
    if with_score && !args.is(3, "withscore") {
        return Err(CommandError::Syntax);
    }
    let key = args.key(1);
    let mut keyspace = cx.at(&key);
    let set = read(&mut keyspace, &key)?;
    let found = set.and_then(|set| {
        let (rank, score) = set.rank(args.get(2))?;
        Some(match direction {
            Direction::Ascending => (rank, score),
            Direction::Descending => (set.len() - 1 - rank, score),
        })
    });
    match found {
        Some((rank, score)) => {
            if with_score {
                out.array(2);
            }
            out.integer(rank as i64);
            if with_score {
                out.double(score);
            }
        }
        None if with_score => out.null_array(),
        None => out.null(),
    }
    Ok(())
}

/// Maximum number of samples of one ZRANDMEMBER with repetitions: a reply of gibibytes helps no client.
const DRAWS_MAX: u64 = 1 << 26;

/// `ZRANDMEMBER key [count [WITHSCORES]]`
pub(super) static ZRANDMEMBER: Command = Command::new("zrandmember", Group::SortedSet, -2)
    .reads(KeySpec::FIRST_READ)
    .doc(
        "6.2.0",
        "key [count [WITHSCORES]]",
        "Returns one or several random members.",
    )
    .complexity("O(N) for N members that are answered.")
    .tips(&["nondeterministic_output"])
    .takes_long()
    .on_keys(zrandmember);

fn zrandmember(cx: &mut ShardCx<'_>, args: &Args<'_>, out: &mut Out) -> CommandResult {
    let count = match args.len() {
        2 => None,
        _ => Some(draw_count(args)?),
    };
    let with_scores = args.len() == 4;
    let (key, scales) = (args.key(1), cx.scales());
    let mut keyspace = cx.at(&key);
    let Some(place) = keyspace.read_typed(&key, DataType::SortedSet)? else {
        match count {
            Some(_) => out.array(0),
            None => out.null(),
        }
        return Ok(());
    };
    let mut random = keyspace.engine().random.fork();
    let set = SortedSet::of(keyspace.entry(place));
    let len = set.len();
    let Some(count) = count else {
        match set.random(&mut random) {
            Some((member, _)) => reply_element(member, out),
            None => out.null(),
        }
        return Ok(());
    };
    if count < 0 {
        if count.unsigned_abs() > DRAWS_MAX {
            return Err("ERR value is out of range".into());
        }
        scales.weigh(count.unsigned_abs() as usize)?;
        begin_members(count.unsigned_abs() as usize, with_scores, out);
        let all: Vec<_> = match set {
            SortedSet::Small(_) => set.iter().collect(),
            SortedSet::Large(_) => Vec::new(),
        };
        for _ in 0..count.unsigned_abs() {
            let drawn = match all.len() {
                0 => set.random(&mut random),
                len => all.get(random.index(len)).copied(),
            };
            if let Some((member, score)) = drawn {
                reply_scored(member, score, with_scores, out);
            }
        }
        return Ok(());
    }
    let wanted = usize::try_from(count).unwrap_or(usize::MAX).min(len);
    scales.weigh(wanted)?;
    begin_members(wanted, with_scores, out);
    /// Walking over all members costs about as much as this many samples per member.
    const WALK_COSTS_DRAWS: usize = 8;
    if matches!(set, SortedSet::Small(_)) || wanted.saturating_mul(WALK_COSTS_DRAWS) > len {
        let (mut unseen, mut wanted) = (len, wanted);
        for (member, score) in set.iter() {
            if random.index(unseen) < wanted {
                wanted -= 1;
                reply_scored(member, score, with_scores, out);
            }
            unseen -= 1;
            if wanted == 0 {
                break;
            }
        }
        return Ok(());
    }
    let mut drawn = HashSet::with_capacity(wanted);
    while drawn.len() < wanted {
        let rank = random.index(len);
        if drawn.insert(rank)
            && let Some((member, score)) = set.get(rank)
        {
            reply_scored(member, score, with_scores, out);
        }
    }
    Ok(())
}

/// Parses the number of members: a negative one counts samples, in which members may repeat.
fn draw_count(args: &Args<'_>) -> Result<i64, CommandError> {
    let count = number::parse_i64(args.get(2)).ok_or(CommandError::NotInteger)?;
    if count == i64::MIN {
        return Err(format!(
            "ERR value is out of range, value must between {} and {}",
            -i64::MAX,
            i64::MAX
        )
        .into());
    }
    if args.len() > 4 || (args.len() == 4 && !args.is(3, "withscores")) {
        return Err(CommandError::Syntax);
    }
    if args.len() == 4 && count.unsigned_abs() > i64::MAX as u64 / 2 {
        return Err("ERR value is out of range".into());
    }
    Ok(count)
}

/// `ZSCAN key cursor [MATCH pattern] [COUNT count] [NOSCORES]`
pub(super) static ZSCAN: Command = Command::new("zscan", Group::SortedSet, -3)
    .reads(KeySpec::FIRST_READ)
    .doc(
        "2.8.0",
        "key cursor [MATCH pattern] [COUNT count] [NOSCORES]",
        "Iterates over the members and scores of a sorted set.",
    )
    .complexity("O(1) for each call, O(N) for a complete iteration over N members.")
    .tips(&["nondeterministic_output"])
    .on_keys(zscan);

fn zscan(cx: &mut ShardCx<'_>, args: &Args<'_>, out: &mut Out) -> CommandResult {
    let cursor = scan::cursor(args.get(2))?;
    let key = args.key(1);
    let mut keyspace = cx.at(&key);
    let Some(set) = read(&mut keyspace, &key)? else {
        scan::reply_nothing(out);
        return Ok(());
    };
    let options = scan::Options::parse_with(args, 3, Some("noscores"), |_| false)?;
    let mut elements = Out::new(out.protocol());
    let mut count = 0;
    let next = set.scan(cursor, options.count, |member, score| {
        if options.pattern.is_none() || member.with_bytes(|member| options.fits(member)) {
            reply_element(member, &mut elements);
            count += 1;
            if !options.is_bare {
                elements.bulk(F64Buffer::default().format(score));
                count += 1;
            }
        }
    });
    scan::reply(next, count, &mut elements, out);
    Ok(())
}
