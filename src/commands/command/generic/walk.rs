//! Commands that find keys without their names: all of them, step by step, or a random one.
//!
//! KEYS and SCAN go from shard to shard and lock one at a time, so they do not see the whole database at one moment.
//! They give the guarantee of Redis: a key that exists from the first call to the last is returned.
//!
//! A SCAN cursor is the shard in the upper 16 bits and the position in that shard's table in the lower 48. One call
//! continues over several shards until it has examined COUNT keys, so that a small database does not need a call per
//! shard:
//!
//! ```text
//! SCAN 0 COUNT 10           shard 0 has 4 keys, shard 1 has 9
//!   shard 0  4 keys, done   → on to shard 1 with a budget of 6
//!   shard 1  6 keys, more   → cursor 1 << 48 | position
//! ```

use crate::command::context::{Gather, ShardCx};
use crate::command::declaration::{Command, CommandResult, Flags, Group};
use crate::command::error::CommandError;
use crate::command::{Args, Out, scan};
use basalt_core::base::glob::{self, Case};
use basalt_engine::value::{DataType, ObjectKind};

/// `KEYS pattern`
pub(super) static KEYS: Command = Command::new("keys", Group::Generic, 2)
    .reads(&[])
    .categories(super::super::declaration::Categories::DANGEROUS)
    .doc(
        "1.0.0",
        "pattern",
        "Returns all keys that match a pattern, shard by shard.",
    )
    .complexity("O(N) for N keys in the database.")
    .tips(&["request_policy:all_shards", "nondeterministic_output_order"])
    .takes_long()
    .on_each_shard(keys_part, keys_merge);

/// Keys that one visit of a shard examines: some 100 µs of work, after which other threads can lock the shard.
const KEYS_PER_VISIT: usize = 512;

fn keys_part(cx: &mut ShardCx<'_>, args: &Args<'_>, gather: &mut Gather) -> CommandResult {
    let pattern = args.get(1);
    let all = glob::matches_all(pattern);
    let db = cx.client.db;
    let from = gather.position;
    let mut keyspace = cx.keyspace(0, db);
    gather.position = keyspace.scan_once(from, KEYS_PER_VISIT, |entry| {
        if all || glob::matches(pattern, entry.key(), Case::Sensitive) {
            gather.push(entry.key());
        }
    });
    Ok(())
}

fn keys_merge(_: &Args<'_>, gather: Gather, out: &mut Out) -> CommandResult {
    gather.reply(out);
    Ok(())
}

/// `SCAN cursor [MATCH pattern] [COUNT count] [TYPE type]`
pub(super) static SCAN: Command = Command::new("scan", Group::Generic, -2)
    .reads(&[])
    .flags(Flags::TOUCHES_ARBITRARY_KEYS)
    .doc(
        "2.8.0",
        "cursor [MATCH pattern] [COUNT count] [TYPE type]",
        "Iterates over the keys of the database.",
    )
    .complexity("O(1) for each call, O(N) for a complete iteration over N keys.")
    .history(&[("6.0.0", "Added the `TYPE` option.")])
    .tips(&[
        "nondeterministic_output",
        "request_policy:special",
        "response_policy:special",
    ])
    .by_cursor(scan_shard, scan_part, scan::merge);

fn scan_shard(args: &Args<'_>, shard_count: u16) -> Result<u16, CommandError> {
    scan::shard_of(args.get(1), shard_count)
}

fn scan_part(cx: &mut ShardCx<'_>, args: &Args<'_>, gather: &mut Gather) -> CommandResult {
    // `Some(None)`: an unknown type, so that no key has it.
    let mut data_type = None;
    let options = scan::Options::parse_with(args, 2, None, |at| {
        let is_type = args.is(at, "type");
        if is_type {
            let named = DataType::ALL.iter().find(|(_, name)| args.is(at + 1, name));
            data_type = Some(named.map(|(data_type, _)| *data_type));
        }
        is_type
    })?;
    let count = options.count as u64;
    let (shard, db) = (cx.shard, cx.client.db);
    let position = scan::position_in(args.get(1), shard)?;
    let budget = count.saturating_sub(gather.visited).max(1);
    let budget = usize::try_from(budget).unwrap_or(usize::MAX);
    let next = cx.keyspace(0, db).scan_expiring(position, budget, |entry| {
        gather.visited += 1;
        let has_type =
            data_type.is_none_or(|wanted| wanted == Some(ObjectKind(entry.kind()).data_type()));
        if has_type && options.fits(entry.key()) {
            gather.push(entry.key());
        }
    });
    scan::end_visit(gather, shard, next, count);
    Ok(())
}

/// `RANDOMKEY`
pub(super) static RANDOMKEY: Command = Command::new("randomkey", Group::Generic, 1)
    .reads(&[])
    .flags(Flags::TOUCHES_ARBITRARY_KEYS)
    .doc("1.0.0", "", "Returns a random key.")
    .tips(&[
        "request_policy:all_shards",
        "response_policy:special",
        "nondeterministic_output",
    ])
    .on_all_shards(random_key);

/// Replies with a random key: the shard is chosen with the weight of its number of keys, so that all keys are equally
/// likely.
fn random_key(cx: &mut ShardCx<'_>, _: &Args<'_>, out: &mut Out) -> CommandResult {
    let db = cx.client.db;
    let lens: Vec<u64> = (0..cx.engine_count())
        .map(|index| cx.keyspace(index, db).shown_len() as u64)
        .collect();
    let total: u64 = lens.iter().sum();
    if total == 0 {
        out.null();
        return Ok(());
    }
    let mut draw = cx.engine(0).random.below(total);
    let mut first = 0;
    while draw >= lens[first] {
        draw -= lens[first];
        first += 1;
    }
    // A shard may turn out to contain only expired keys; then the next one is tried.
    for index in (first..lens.len()).chain(0..first) {
        if let Some(key) = cx.keyspace(index, db).random() {
            out.bulk(&key);
            return Ok(());
        }
    }
    out.null();
    Ok(())
}
