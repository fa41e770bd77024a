//! Read-only commands: LLEN LINDEX LRANGE LPOS.

use std::ops::ControlFlow;

use super::edit::at;
use super::{index_within, range_within};
use crate::command::context::ShardCx;
use crate::command::declaration::{Command, CommandResult, Flags, Group, KeyFlags, KeySpec};
use crate::command::element::reply_item;
use crate::command::error::CommandError;
use crate::command::{Args, Out};
use basalt_core::base::number;
use basalt_core::structures::quicklist::End;
use basalt_engine::value::DataType;

/// `LLEN key`
pub(super) static LLEN: Command = Command::new("llen", Group::List, 2)
    .reads(&[KeySpec::one(1, KeyFlags::RO)])
    .flags(Flags::FAST)
    .doc("1.0.0", "key", "Returns the number of elements of a list.")
    .on_keys(llen);

fn llen(cx: &mut ShardCx<'_>, args: &Args<'_>, out: &mut Out) -> CommandResult {
    let key = args.key(1);
    let mut keyspace = cx.at(&key);
    let found = keyspace.read_typed(&key, DataType::List)?;
    out.integer(found.map_or(0, |place| at(&keyspace, place).len()) as i64);
    Ok(())
}

/// `LINDEX key index`
pub(super) static LINDEX: Command = Command::new("lindex", Group::List, 3)
    .reads(KeySpec::FIRST_READ)
    .doc("1.0.0", "key index", "Returns the element at an index.")
    .complexity("O(N) for N elements between it and the nearer end.")
    .reads_from(End::Front)
    .on_keys(lindex);

fn lindex(cx: &mut ShardCx<'_>, args: &Args<'_>, out: &mut Out) -> CommandResult {
    let key = args.key(1);
    let mut keyspace = cx.at(&key);
    let Some(place) = keyspace.read_typed(&key, DataType::List)? else {
        // Redis does not check the index if the list does not exist.
        out.null();
        return Ok(());
    };
    let list = at(&keyspace, place);
    let index = index_within(args.integer(2)?, list.len());
    let found = index.and_then(|index| list.get(index, |element| reply_item(element, out)));
    if found.is_none() {
        out.null();
    }
    Ok(())
}

/// `LRANGE key start stop`
pub(super) static LRANGE: Command = Command::new("lrange", Group::List, 4)
    .reads(KeySpec::FIRST_READ)
    .doc(
        "1.0.0",
        "key start stop",
        "Returns the elements in a range of indices.",
    )
    .complexity("O(S+N) for N elements, S elements away from the nearer end.")
    .reads_from(End::Front)
    .takes_long()
    .on_keys(lrange);

fn lrange(cx: &mut ShardCx<'_>, args: &Args<'_>, out: &mut Out) -> CommandResult {
    let (start, stop) = (args.integer(2)?, args.integer(3)?);
    let (key, scales) = (args.key(1), cx.scales());
    let mut keyspace = cx.at(&key);
    let found = keyspace.read_typed(&key, DataType::List)?;
    let list = found.map(|place| at(&keyspace, place));
    let range = list.and_then(|list| range_within(start, stop, list.len()));
    scales.weigh(range.map_or(0, |(_, count)| count))?;
    out.array(range.map_or(0, |(_, count)| count));
    if let (Some(list), Some((first, count))) = (list, range) {
        list.visit(End::Front, first, count, |element| reply_item(element, out));
    }
    Ok(())
}

/// `LPOS key element [RANK rank] [COUNT num-matches] [MAXLEN len]`
pub(super) static LPOS: Command = Command::new("lpos", Group::List, -3)
    .reads(KeySpec::FIRST_READ)
    .doc(
        "6.0.6",
        "key element [RANK rank] [COUNT num-matches] [MAXLEN len]",
        "Returns the indices of elements that equal the given one.",
    )
    .complexity("O(N) for the N elements looked at, of which MAXLEN sets the most.")
    .reads_from(End::Front)
    .takes_long()
    .on_keys(lpos);

/// The matches that a request of LPOS asks for.
struct Matches {
    from: End,
    /// Number of matches to skip.
    skipped: u64,
    /// Maximum number of matches; 0: all; None: the first one, and the reply is not an array.
    count: Option<usize>,
    looked_at_max: usize,
}

impl Matches {
    fn parse(args: &Args<'_>) -> Result<Matches, CommandError> {
        let mut matches = Matches {
            from: End::Front,
            skipped: 0,
            count: None,
            looked_at_max: usize::MAX,
        };
        let positive = |at: usize, error: &'static str| {
            number::parse_i64(args.get(at))
                .and_then(|number| usize::try_from(number).ok())
                .ok_or(CommandError::from(error))
        };
        for word in (3..args.len()).step_by(2) {
            let value = word + 1;
            if value >= args.len() {
                return Err(CommandError::Syntax);
            }
            if args.is(word, "rank") {
                (matches.from, matches.skipped) = rank(args.integer(value)?)?;
            } else if args.is(word, "count") {
                matches.count = Some(positive(value, "ERR COUNT can't be negative")?);
            } else if args.is(word, "maxlen") {
                matches.looked_at_max = match positive(value, "ERR MAXLEN can't be negative")? {
                    0 => usize::MAX,
                    most => most,
                };
            } else {
                return Err(CommandError::Syntax);
            }
        }
        Ok(matches)
    }
}

/// Returns the end from which a rank counts, and the number of matches to skip.
fn rank(rank: i64) -> Result<(End, u64), CommandError> {
    match rank {
        0 => Err("ERR RANK can't be zero: use 1 to start from the first match, 2 from the second ... \
                  or use negative to start from the end of the list"
            .into()),
        i64::MIN => Err(
            "ERR value is out of range, value must between -9223372036854775807 and 9223372036854775807".into(),
        ),
        1.. => Ok((End::Front, rank.unsigned_abs() - 1)),
        _ => Ok((End::Back, rank.unsigned_abs() - 1)),
    }
}

fn lpos(cx: &mut ShardCx<'_>, args: &Args<'_>, out: &mut Out) -> CommandResult {
    let Matches {
        from,
        mut skipped,
        count,
        looked_at_max,
    } = Matches::parse(args)?;
    let (key, scales) = (args.key(1), cx.scales());
    let mut keyspace = cx.at(&key);
    let found = keyspace.read_typed(&key, DataType::List)?;
    let list = found.map(|place| at(&keyspace, place));
    // Comparing an element costs a fraction of returning one.
    scales.weigh(list.map_or(0, |list| list.len().min(looked_at_max)) / 8)?;
    let wanted = count.unwrap_or(1);
    let mark = count.map(|_| out.later());
    let mut answered = 0;
    if let Some(list) = list {
        list.positions(args.get(2), from, looked_at_max, |index| {
            if skipped > 0 {
                skipped -= 1;
                return ControlFlow::Continue(());
            }
            out.integer(index as i64);
            answered += 1;
            if answered == wanted {
                ControlFlow::Break(())
            } else {
                ControlFlow::Continue(())
            }
        });
    }
    match mark {
        Some(mark) => out.close_array(mark, answered),
        None if answered == 0 => out.null(),
        None => {}
    }
    Ok(())
}
