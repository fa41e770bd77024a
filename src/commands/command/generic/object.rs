//! OBJECT: properties of a value other than its content.

use crate::command::context::ShardCx;
use crate::command::declaration::{Command, CommandResult, Group, KeyFlags, KeySpec};
use crate::command::error::CommandError;
use crate::command::{Args, Out};
use crate::config::values::MaxmemoryPolicy;
use basalt_core::structures::table::EntrySlot;
use basalt_engine::Key;
use basalt_engine::hot_counts::{NEW_KEY, on_logarithmic_scale};
use basalt_engine::keyspace::Keyspace;
use basalt_engine::restored_access::Access;
use basalt_engine::value::Text;

const KEY: &[KeySpec] = &[KeySpec::one(2, KeyFlags::RO)];
const TIPS: &[&str] = &["nondeterministic_output"];

/// The number of references that Redis reports for the small integers that it shares among keys.
const SHARED_REFERENCES: i64 = i32::MAX as i64;

/// Integers from 0 up to here are shared in Redis.
const SHARED_INTEGERS: i64 = 10_000;

/// `OBJECT subcommand`
pub(super) static OBJECT: Command = Command::new("object", Group::Generic, -2)
    .doc("2.2.3", "", "Groups the commands that inspect values.")
    .complexity("Depends on subcommand.")
    .container(&[&ENCODING, &FREQ, &HELP, &IDLETIME, &REFCOUNT]);

/// `OBJECT ENCODING key`
static ENCODING: Command = Command::sub("object|encoding", "encoding", Group::Generic, 3)
    .reads(KEY)
    .doc("2.2.3", "key", "Returns the encoding of a key's value.")
    .tips(TIPS)
    .on_keys(encoding);

fn encoding(cx: &mut ShardCx<'_>, args: &Args<'_>, out: &mut Out) -> CommandResult {
    about(cx, args, out, |keyspace, place, out| {
        out.bulk(keyspace.kind(place).encoding().name().as_bytes());
        Ok(())
    })
}

/// `OBJECT FREQ key`
static FREQ: Command = Command::sub("object|freq", "freq", Group::Generic, 3)
    .reads(KEY)
    .doc(
        "4.0.0",
        "key",
        "Returns the logarithmic access frequency of a key.",
    )
    .tips(TIPS)
    .on_keys(freq);

/// Replies with the frequency of a key: for a hot key the uses estimated from samples of all commands, for every
/// other key the few uses that its access bits count.
fn freq(cx: &mut ShardCx<'_>, args: &Args<'_>, out: &mut Out) -> CommandResult {
    let (key, is_tracked) = (args.key(2), is_lfu(cx.config.maxmemory_policy));
    let factor = cx.config.lfu_log_factor;
    about(cx, args, out, |keyspace, place, out| {
        if !is_tracked {
            return Err(
                "ERR An LFU maxmemory policy is not selected, access frequency not tracked. \
                 Please note that when switching between policies at runtime LRU and LFU data \
                 will take some time to adjust."
                    .into(),
            );
        }
        let access = keyspace.restored_access(&key, place);
        out.integer(i64::from(match access {
            Some(Access::Frequency(frequency)) => frequency,
            _ => on_logarithmic_scale(keyspace.sampled_uses(&key), factor)
                .max(NEW_KEY + keyspace.uses(place)),
        }));
        Ok(())
    })
}

/// `OBJECT IDLETIME key`
static IDLETIME: Command = Command::sub("object|idletime", "idletime", Group::Generic, 3)
    .reads(KEY)
    .doc(
        "2.2.3",
        "key",
        "Returns the seconds since the last access to a key.",
    )
    .tips(TIPS)
    .on_keys(idle_time);

/// Replies with the idle time of a key. The access bits hold the number of uses, but no time. Only the time since any
/// key of the shard was used is known, so the reply is a lower bound, and 0 on a busy server; unless RESTORE set the
/// key's idle time and the key was not used since.
fn idle_time(cx: &mut ShardCx<'_>, args: &Args<'_>, out: &mut Out) -> CommandResult {
    let (key, is_tracked) = (args.key(2), !is_lfu(cx.config.maxmemory_policy));
    about(cx, args, out, |keyspace, place, out| {
        if !is_tracked {
            return Err(
                "ERR An LFU maxmemory policy is selected, idle time not tracked. Please note \
                 that when switching between policies at runtime LRU and LFU data will take \
                 some time to adjust."
                    .into(),
            );
        }
        out.integer((idle_ms(keyspace, &key, place) / 1000) as i64);
        Ok(())
    })
}

/// Returns for how long a key has been idle, as far as that is known: see [`idle_time`].
pub(in crate::command) fn idle_ms(keyspace: &Keyspace<'_>, key: &Key<'_>, place: EntrySlot) -> u64 {
    match keyspace.restored_access(key, place) {
        Some(Access::LastAt(at_ms)) => keyspace.now().unix_ms.saturating_sub(at_ms),
        _ => keyspace.idle_ms_min(),
    }
}

/// `OBJECT REFCOUNT key`
static REFCOUNT: Command = Command::sub("object|refcount", "refcount", Group::Generic, 3)
    .reads(KEY)
    .doc(
        "2.2.3",
        "key",
        "Returns the reference count of a key's value.",
    )
    .tips(TIPS)
    .on_keys(reference_count);

/// Replies with the reference count: 1, as values have one owner here; integers that Redis shares among keys get
/// Redis's reply.
fn reference_count(cx: &mut ShardCx<'_>, args: &Args<'_>, out: &mut Out) -> CommandResult {
    let shares = cx.config.maxmemory == 0 || !ranks_keys(cx.config.maxmemory_policy);
    about(cx, args, out, |keyspace, place, out| {
        let is_shared = matches!(
            keyspace.text(place),
            Ok(Text::Integer(number)) if shares && (0..SHARED_INTEGERS).contains(&number)
        );
        out.integer(if is_shared { SHARED_REFERENCES } else { 1 });
        Ok(())
    })
}

/// `OBJECT HELP`
static HELP: Command = Command::sub("object|help", "help", Group::Generic, 2)
    .doc("6.2.0", "", "Explains the subcommands.")
    .on_help(&[
        "ENCODING <key>",
        "    Return the encoding of the value.",
        "FREQ <key>",
        "    Return the access frequency of the key (LFU policies only).",
        "IDLETIME <key>",
        "    Return the seconds since the last access to the key.",
        "REFCOUNT <key>",
        "    Return the reference count of the value.",
    ]);

/// Calls `answer` with the entry of a key, or replies null; nothing is counted or touched.
fn about(
    cx: &mut ShardCx<'_>,
    args: &Args<'_>,
    out: &mut Out,
    answer: impl FnOnce(&Keyspace<'_>, EntrySlot, &mut Out) -> Result<(), CommandError>,
) -> CommandResult {
    let key = args.key(2);
    let mut keyspace = cx.at(&key).untouched();
    match keyspace.find_unnoticed(&key) {
        Some(place) => answer(&keyspace, place, out),
        None => {
            out.null();
            Ok(())
        }
    }
}

/// Whether an eviction policy is LFU.
pub fn is_lfu(policy: MaxmemoryPolicy) -> bool {
    matches!(
        policy,
        MaxmemoryPolicy::AllkeysLfu | MaxmemoryPolicy::VolatileLfu
    )
}

/// Whether a policy keeps statistics per key, so that Redis cannot share values among keys.
fn ranks_keys(policy: MaxmemoryPolicy) -> bool {
    is_lfu(policy)
        || policy.is_lrm()
        || matches!(
            policy,
            MaxmemoryPolicy::AllkeysLru | MaxmemoryPolicy::VolatileLru
        )
}
