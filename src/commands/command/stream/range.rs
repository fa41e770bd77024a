//! Commands that read entries by their IDs.

use super::{Args, Command, CommandError, CommandResult, DataType, Out, ShardCx};
use super::{interval_end, interval_start, reply_entries, stream_at};
use crate::command::declaration::{Group, KeySpec};

const COMPLEXITY: &str = "O(N), N being the count of entries answered.";
const HISTORY: &[(&str, &str)] = &[("6.2.0", "Range bounds can be exclusive.")];

/// `XRANGE key start end [COUNT count]`
pub(super) static XRANGE: Command = Command::new("xrange", Group::Stream, -4)
    .reads(KeySpec::FIRST_READ)
    .doc(
        "5.0.0",
        "key start:string end:string [COUNT count]",
        "Returns the entries of a stream between two IDs.",
    )
    .complexity(COMPLEXITY)
    .history(HISTORY)
    .takes_long()
    .on_keys(|cx, args, out| range(cx, args, StreamDirection::Forwards, out));

/// `XREVRANGE key end start [COUNT count]`
pub(super) static XREVRANGE: Command = Command::new("xrevrange", Group::Stream, -4)
    .reads(KeySpec::FIRST_READ)
    .doc(
        "5.0.0",
        "key end:string start:string [COUNT count]",
        "Returns the entries of a stream between two IDs, the last one first.",
    )
    .complexity(COMPLEXITY)
    .history(HISTORY)
    .takes_long()
    .on_keys(|cx, args, out| range(cx, args, StreamDirection::Backwards, out));

#[derive(Clone, Copy, PartialEq, Eq)]
enum StreamDirection {
    Forwards,
    Backwards,
}

fn range(
    cx: &mut ShardCx<'_>,
    args: &Args<'_>,
    direction: StreamDirection,
    out: &mut Out,
) -> CommandResult {
    let (start_at, end_at) = match direction {
        StreamDirection::Forwards => (2, 3),
        StreamDirection::Backwards => (3, 2),
    };
    let start = interval_start(args.get(start_at))?;
    let end = interval_end(args.get(end_at))?;
    let mut count_max = None;
    let mut at = 4;
    while at < args.len() {
        if !args.is(at, "count") || at + 1 >= args.len() {
            return Err(CommandError::Syntax);
        }
        count_max = Some(u64::try_from(args.integer(at + 1)?).unwrap_or(0));
        at += 2;
    }
    let (key, scales) = (args.key(1), cx.scales());
    let mut keyspace = cx.at(&key);
    let Some(place) = keyspace.read_typed(&key, DataType::Stream)? else {
        out.array(0);
        return Ok(());
    };
    if count_max == Some(0) {
        out.null_array();
        return Ok(());
    }
    let stream = stream_at(&keyspace, place);
    let answered_max = count_max.unwrap_or(u64::MAX).min(stream.metadata().length);
    scales.weigh(usize::try_from(answered_max).unwrap_or(usize::MAX))?;
    let count_max = count_max.unwrap_or(0);
    match direction {
        StreamDirection::Forwards => reply_entries(stream.range(start, end), count_max, out),
        StreamDirection::Backwards => {
            reply_entries(stream.range_reverse(start, end), count_max, out)
        }
    };
    Ok(())
}
