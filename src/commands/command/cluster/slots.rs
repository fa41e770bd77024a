//! The keys of a hash slot. All of them are in one shard, the only shard that is visited.

use super::super::Args;
use super::super::context::{Gather, ShardCx};
use super::super::declaration::{Command, CommandResult, Flags};
use super::super::error::CommandError;
use super::{GROUP, NOT_ENABLED, TIPS};
use crate::config::values::ClusterMode;
use basalt_core::base::hash::SLOTS;

/// Keys that one visit examines: some 100 µs of work, after which other threads can lock the shard.
pub(super) const KEYS_PER_VISIT: usize = 512;

/// `CLUSTER COUNTKEYSINSLOT slot`
pub(super) static COUNTKEYSINSLOT: Command =
    Command::sub("cluster|countkeysinslot", "countkeysinslot", GROUP, 3)
        .flags(Flags::STALE)
        .doc(
            "3.0.0",
            "slot",
            "Returns the number of keys of a hash slot.",
        )
        .complexity("O(1)")
        .by_cursor(shard_of, count_part, |_, gather, out| {
            out.integer(gather.count);
            Ok(())
        });

/// `CLUSTER GETKEYSINSLOT slot count`
pub(super) static GETKEYSINSLOT: Command =
    Command::sub("cluster|getkeysinslot", "getkeysinslot", GROUP, 4)
        .flags(Flags::STALE)
        .doc("3.0.0", "slot count", "Returns keys of a hash slot.")
        .complexity("O(N) for N keys returned.")
        .tips(TIPS)
        .by_cursor(shard_of, keys_part, |_, gather, out| {
            gather.reply(out);
            Ok(())
        });

const INVALID: &str = "ERR Invalid slot or number of keys";

/// Returns the shard that has the slot. For an invalid slot the first shard will do: the command reports the error
/// there.
fn shard_of(args: &Args<'_>, shard_count: u16) -> Result<u16, CommandError> {
    let slot = slot_at(args, INVALID).unwrap_or(0);
    Ok(slot & (shard_count - 1))
}

fn count_part(cx: &mut ShardCx<'_>, args: &Args<'_>, gather: &mut Gather) -> CommandResult {
    check_enabled(cx)?;
    let slot = slot_at(args, "ERR Invalid slot")?;
    let db = cx.client.db;
    gather.count = cx.keyspace(0, db).keys_in_slot(slot) as i64;
    gather.done = true;
    Ok(())
}

fn keys_part(cx: &mut ShardCx<'_>, args: &Args<'_>, gather: &mut Gather) -> CommandResult {
    check_enabled(cx)?;
    let slot = slot_at(args, INVALID)?;
    let count = args.integer(3)?;
    if count < 0 {
        return Err(INVALID.into());
    }
    let wanted = usize::try_from(count - gather.count).unwrap_or(usize::MAX);
    if wanted > 0 {
        let (db, from) = (cx.client.db, gather.position);
        let budget = wanted.min(KEYS_PER_VISIT);
        let mut taken = 0;
        gather.position = cx.keyspace(0, db).walk_slot(slot, from, budget, |entry| {
            if taken < budget {
                gather.push(entry.key());
            }
            taken += 1;
        });
        if gather.count >= count {
            gather.position = 0;
        }
    }
    gather.done = gather.position == 0;
    Ok(())
}

pub(super) fn check_enabled(cx: &ShardCx<'_>) -> CommandResult {
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
