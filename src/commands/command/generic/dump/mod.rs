//! Serialization of values for other servers, and back.
//!
//! DUMP writes a format that any server from 7.0 on can read; RESTORE reads what servers up to 7.4 write. A payload
//! is checked completely before anything changes.

#[cfg(test)]
mod tests;

use basalt_engine::value::ObjectKind;
use bytes::Bytes;

use super::object::is_lfu;
use crate::command::context::ShardCx;
use crate::command::declaration::{
    Categories, Command, CommandResult, Flags, Group, KeyFlags, KeySpec,
};
use crate::command::error::CommandError;
use crate::command::prepared::{Built, Prepared};
use crate::command::{Args, Out};
use crate::command::{hash, set, sorted_set};
use crate::config::Config;
use basalt_core::base::hash::HashSeed;
use basalt_core::structures::block::Content;
use basalt_core::structures::entry::DEADLINE_MAX;
use basalt_engine::Now;
use basalt_engine::effect::Event;
use basalt_engine::restored_access::Access;
use basalt_engine::serial::reader::Reader;
use basalt_engine::serial::writer::Writer;
use basalt_engine::serial::{self, Limits, Malformed, frame};
use basalt_engine::value::list;

/// `DUMP key`
pub(super) static DUMP: Command = Command::new("dump", Group::Generic, 2)
    .reads(KeySpec::FIRST_READ)
    .doc(
        "2.6.0",
        "key",
        "Returns a key's value as a payload for RESTORE, on this or another server.",
    )
    .complexity("O(N) where N is the size of the value.")
    .tips(&["nondeterministic_output"])
    .takes_long()
    .on_keys(dump);

fn dump(cx: &mut ShardCx<'_>, args: &Args<'_>, out: &mut Out) -> CommandResult {
    let compresses = cx.config.rdbcompression.compresses_values();
    let now_ms = cx.now.unix_ms;
    let (key, scales) = (args.key(1), cx.scales());
    let mut keyspace = cx.at(&key);
    let Some(place) = keyspace.find_read(&key) else {
        out.null();
        return Ok(());
    };
    scales.weigh_bytes(keyspace.memory_bytes(place))?;
    let mut writer = Writer::new(serial::Form::Oldest, compresses);
    serial::write(keyspace.entry(place), now_ms, &mut writer);
    let (value, version) = writer.finish();
    out.bulk_shared(Bytes::from(frame::seal(value, version)));
    Ok(())
}

/// `RESTORE key ttl serialized-value [REPLACE] [ABSTTL] [IDLETIME seconds] [FREQ frequency]`
pub(super) static RESTORE: Command = Command::new("restore", Group::Generic, -4)
    .writes(&[KeySpec::one(1, KeyFlags::OW.or(KeyFlags::UPDATE))])
    .flags(Flags::DENYOOM)
    .builds(read)
    .categories(Categories::DANGEROUS)
    .doc(
        "2.6.0",
        "key ttl serialized-value [REPLACE] [ABSTTL] [IDLETIME seconds] [FREQ frequency]",
        "Creates a key from a payload of DUMP.",
    )
    .complexity("O(N) where N is the size of the value, times log(N) for sorted sets.")
    .history(&[
        ("3.0.0", "Added the `REPLACE` modifier."),
        ("5.0.0", "Added the `ABSTTL` modifier."),
        ("5.0.0", "Added the `IDLETIME` and `FREQ` options."),
    ])
    .takes_long()
    .on_keys(restore);

/// `RESTORE-ASKING key ttl serialized-value [REPLACE] [ABSTTL] [IDLETIME seconds] [FREQ frequency]`: RESTORE for
/// slots that move between the nodes of a cluster; without a cluster the same as RESTORE.
pub(super) static RESTORE_ASKING: Command = Command::new("restore-asking", Group::Server, -4)
    .writes(RESTORE.keys)
    .flags(Flags::DENYOOM.or(Flags::ASKING).or(Flags::SYSCMD))
    .builds(read)
    .categories(Categories::DANGEROUS.or(Categories::KEYSPACE))
    .doc(
        "3.0.0",
        RESTORE.syntax,
        "Restores a key that moves between nodes of a cluster.",
    )
    .complexity(RESTORE.complexity)
    .history(RESTORE.history)
    .takes_long()
    .on_keys(restore);

/// The options of RESTORE.
#[derive(Default)]
struct RestoreOptions {
    replaces: bool,
    is_absolute: bool,
    idle_s: Option<u64>,
    frequency: Option<u8>,
}

impl RestoreOptions {
    fn read(args: &Args<'_>) -> Result<RestoreOptions, CommandError> {
        let mut options = RestoreOptions::default();
        let mut at = 4;
        while at < args.len() {
            let has_value = at + 1 < args.len();
            if args.is(at, "replace") {
                options.replaces = true;
            } else if args.is(at, "absttl") {
                options.is_absolute = true;
            } else if args.is(at, "idletime") && has_value && options.frequency.is_none() {
                at += 1;
                let idle_s = u64::try_from(args.integer(at)?)
                    .map_err(|_| "ERR Invalid IDLETIME value, must be >= 0")?;
                options.idle_s = Some(idle_s);
            } else if args.is(at, "freq") && has_value && options.idle_s.is_none() {
                at += 1;
                let frequency = u8::try_from(args.integer(at)?)
                    .map_err(|_| "ERR Invalid FREQ value, must be >= 0 and <= 255")?;
                options.frequency = Some(frequency);
            } else {
                return Err(CommandError::Syntax);
            }
            at += 1;
        }
        Ok(options)
    }

    /// Returns the given access data (idle time or frequency), if the eviction policy uses it.
    fn access(&self, now_ms: u64, is_by_frequency: bool) -> Option<Access> {
        if is_by_frequency {
            return self.frequency.map(Access::Frequency);
        }
        let idle_ms = self.idle_s?.saturating_mul(1000);
        Some(Access::LastAt(now_ms.saturating_sub(idle_ms)))
    }
}

fn restore(cx: &mut ShardCx<'_>, args: &Args<'_>, out: &mut Out) -> CommandResult {
    let options = RestoreOptions::read(args)?;
    cx.scales().weigh_bytes(args.get(3).len())?;
    let (key, now) = (args.key(1), cx.now);
    let (config, seed, now_ms) = (cx.config, cx.seed(), now.unix_ms);
    let is_by_frequency = is_lfu(cx.config.maxmemory_policy);
    let mut keyspace = cx.at(&key);
    if !options.replaces && keyspace.find_write(&key).is_some() {
        return Err("BUSYKEY Target key name already exists.".into());
    }
    let ttl = u64::try_from(args.integer(2)?).map_err(|_| "ERR Invalid TTL value, must be >= 0")?;
    let at_ms = match ttl {
        0 => None,
        _ if options.is_absolute => Some(ttl),
        // Redis adds in an i64; a sum that wraps around is a time in the past.
        _ => Some(now_ms.saturating_add(ttl))
            .map(|at_ms| if at_ms > i64::MAX as u64 { 0 } else { at_ms }),
    };
    let at_ms = at_ms.map(|at_ms| at_ms.min(DEADLINE_MAX));
    let built = args.prepared().and_then(Prepared::take);
    let built = built.unwrap_or_else(|| read(args, config, seed, now));
    if let Err(CommandError::BadValue(rdb_type, why)) = built {
        let name = serial::rdb_type_name(rdb_type);
        keyspace
            .engine()
            .deferred
            .notes
            .push(format!("RESTORE: {name} integrity check failed: {why}"));
    }
    let mut entry = built?;
    entry.set_deadline(at_ms);

    let found = keyspace.find_write(&key);
    if at_ms.is_some_and(|at_ms| keyspace.is_past(at_ms)) {
        if let Some(place) = found {
            keyspace.delete(place);
            keyspace.wrote(key.bytes, Event::DEL);
            cx.log_deletion(key.bytes, config.lazyfree_lazy_server_del);
        }
    } else {
        let data_type = ObjectKind(entry.view().kind()).data_type();
        keyspace.overwrites(&key, found, data_type);
        keyspace.adopt(&key, found, entry);
        if let Some(access) = options.access(now_ms, is_by_frequency) {
            keyspace.restore_access(&key, access);
        }
        keyspace.wrote(key.bytes, Event::generic("restore"));
        if let Some(at_ms) = at_ms.filter(|_| !options.is_absolute) {
            log_absolute(cx, args, at_ms);
        }
    }
    out.ok();
    Ok(())
}

/// Logs a RESTORE with a relative expiry time as one with an absolute time.
fn log_absolute(cx: &mut ShardCx<'_>, args: &Args<'_>, at_ms: u64) {
    if cx.is_logged() {
        let mut digits = itoa::Buffer::new();
        let mut request: Vec<Content<'_>> = args.contents(0).collect();
        request[2] = digits.format(at_ms).as_bytes().into();
        request.push(b"ABSTTL".into());
        cx.log_instead(request);
    }
}

/// Decodes the value of a request, under its key.
fn read(args: &Args<'_>, config: &Config, seed: HashSeed, now: Now) -> Built {
    let limits = limits(config, seed, now);
    let (value, origin) =
        frame::open(args.get(3)).ok_or("ERR DUMP payload version or checksum are wrong")?;
    let mut reader = Reader::new(value, limits.string_bytes_max).from(&origin);
    let rdb_type = value.first().copied().unwrap_or(u8::MAX);
    let bad = |error: Malformed| CommandError::BadValue(rdb_type, error.0);
    let entry = serial::read(args.get(1), None, &mut reader, &limits).map_err(bad)?;
    match reader.rest().is_empty() {
        true => Ok(entry),
        false => Err(bad(Malformed("unexpected bytes at the end"))),
    }
}

/// Returns the thresholds of the configuration that determine the encodings of decoded values.
pub fn limits(config: &Config, seed: HashSeed, now: Now) -> Limits {
    Limits {
        string_bytes_max: usize::try_from(config.proto_max_bulk_len)
            .map_or(u32::MAX as usize, |bytes| bytes.min(u32::MAX as usize)),
        list: list::limits(config.list_max_listpack_size, config.list_compress_depth),
        set: set::limits_of(config, seed, now.unix_ms),
        sorted_set: sorted_set::limits_of(config, seed),
        hash: hash::rules_of(config, seed, now),
    }
}
