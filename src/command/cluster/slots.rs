//! The keys of a hash slot, which all lie in one shard: those are looked at that lie with them.

use super::super::context::{Gather, ShardCx};
use super::super::declaration::{Command, CommandResult, Flags};
use super::super::error::CommandError;
use super::super::{Args, Out};
use super::{GROUP, NOT_ENABLED, TIPS};
use crate::base::hash::{SLOTS, slot};
use crate::config::values::ClusterMode;

/// Keys that one visit looks at: some 100 µs of work, after which others get at the shard.
const KEYS_PER_VISIT: usize = 512;

/// `CLUSTER COUNTKEYSINSLOT slot`
pub(super) static COUNTKEYSINSLOT: Command =
    Command::sub("cluster|countkeysinslot", "countkeysinslot", GROUP, 3)
        .flags(Flags::STALE)
        .doc("3.0.0", "slot", "Counts the keys of a hash slot.")
        .complexity("O(N) for N keys in the slot's shard.")
        .takes_long()
        .on_each_shard(
            |cx, args, gather| {
                visit(
                    cx,
                    slot_at(args, "ERR Invalid slot"),
                    gather,
                    |_, gather| {
                        gather.count += 1;
                        true
                    },
                )
            },
            |_, gather, out| {
                out.integer(gather.count);
                Ok(())
            },
        );

/// `CLUSTER GETKEYSINSLOT slot count`
pub(super) static GETKEYSINSLOT: Command =
    Command::sub("cluster|getkeysinslot", "getkeysinslot", GROUP, 4)
        .flags(Flags::STALE)
        .doc("3.0.0", "slot count", "Answers keys of a hash slot.")
        .complexity("O(N) for N keys in the slot's shard.")
        .tips(TIPS)
        .takes_long()
        .on_each_shard(keys_part, keys_merge);

const INVALID: &str = "ERR Invalid slot or number of keys";

fn keys_part(cx: &mut ShardCx<'_>, args: &Args<'_>, gather: &mut Gather) -> CommandResult {
    check_enabled(cx)?;
    let slot = slot_at(args, INVALID);
    let count = args.integer(3)?;
    if count < 0 {
        return Err(INVALID.into());
    }
    visit(cx, slot, gather, |key, gather| {
        let is_wanted = gather.count < count;
        if is_wanted {
            gather.push(key);
        }
        is_wanted
    })
}

fn keys_merge(_: &Args<'_>, gather: Gather, out: &mut Out) -> CommandResult {
    gather.reply(out);
    Ok(())
}

fn check_enabled(cx: &ShardCx<'_>) -> CommandResult {
    match cx.config.cluster_enabled {
        ClusterMode::No => Err(NOT_ENABLED.into()),
        ClusterMode::Yes | ClusterMode::Emulated => Ok(()),
    }
}

fn slot_at(args: &Args<'_>, invalid: &'static str) -> Result<u16, CommandError> {
    let number = args.integer(2)?;
    let number = u16::try_from(number).ok().filter(|number| *number < SLOTS);
    number.ok_or(CommandError::from(invalid))
}

/// Hands on keys of a slot, some at each visit of its shard, as long as `take` wants more.
fn visit(
    cx: &mut ShardCx<'_>,
    wanted: Result<u16, CommandError>,
    gather: &mut Gather,
    mut take: impl FnMut(&[u8], &mut Gather) -> bool,
) -> CommandResult {
    check_enabled(cx)?;
    let wanted = wanted?;
    if wanted % cx.shard.count != cx.shard.index {
        return Ok(());
    }
    let db = cx.client.db;
    let from = gather.position;
    let mut wants_more = true;
    let next = cx.keyspace(0, db).scan_once(from, KEYS_PER_VISIT, |entry| {
        if wants_more && slot(entry.key()) == wanted {
            wants_more = take(entry.key(), gather);
        }
    });
    gather.position = if wants_more { next } else { 0 };
    gather.done = gather.position == 0;
    Ok(())
}
