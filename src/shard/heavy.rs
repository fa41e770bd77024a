//! Which transactions may take too long for the thread of a connection: a guess from what they name, before anything runs.
//! Whether one does is found out by the commands themselves, which ask [`Scales`](crate::command::context::Scales).

use crate::command::Args;
use crate::command::declaration::{Command, Group};
use crate::engine::Engine;
use crate::engine::db::Db;
use crate::engine::value::object::entry_bytes;

/// Commands that go over as much of a large value, or of the keyspace, as they are asked to: those that ask `Scales`, but
/// for those whose changes to large values cannot be undone.
const TAKE_LONG: [&str; 49] = [
    "bitcount",
    "bitop",
    "copy",
    "dump",
    "hgetall",
    "hkeys",
    "hrandfield",
    "hvals",
    "keys",
    "lpos",
    "lrange",
    "lrem",
    "ltrim",
    "sdiff",
    "sdiffstore",
    "sinter",
    "sintercard",
    "sinterstore",
    "smembers",
    "sort",
    "sort_ro",
    "spop",
    "srandmember",
    "sunion",
    "sunionstore",
    "xrange",
    "xread",
    "xrevrange",
    "zcount",
    "zdiff",
    "zdiffstore",
    "zinter",
    "zintercard",
    "zinterstore",
    "zlexcount",
    "zrandmember",
    "zrange",
    "zrangebylex",
    "zrangebyscore",
    "zrangestore",
    "zremrangebylex",
    "zremrangebyrank",
    "zremrangebyscore",
    "zrevrange",
    "zrevrangebylex",
    "zrevrangebyscore",
    "zunion",
    "zunionstore",
    "lcs",
];

/// Whether a command may take long, if what it is about is large.
pub(super) fn may_take_long(command: &Command) -> bool {
    // Most of what is queued is not even looked for.
    let is_quick = matches!(command.group, Group::Connection | Group::Server);
    !is_quick && TAKE_LONG.contains(&command.name)
}

/// Values of fewer bytes, all that a command names together, are never too much for the thread of a connection.
pub(super) const LARGE_BYTES_MIN: usize = 128 * 1024;

/// Keys that are too many to be gone over there.
pub(super) const KEYS_MANY: usize = 8 * 1024;

/// The database that a command chooses for those behind it, if there is such a one.
pub(super) fn chosen_db(command: &Command, args: &Args<'_>) -> Option<usize> {
    if command.name != "select" || args.len() != 2 {
        return None;
    }
    args.integer(1).ok().and_then(|db| usize::try_from(db).ok())
}

/// Keys of a database on these shards.
pub(super) fn keys_in(engines: &[&mut Engine], db: usize) -> usize {
    let dbs = engines.iter().filter_map(|engine| engine.db(db));
    dbs.map(Db::len).sum()
}

/// Bytes of all values that a command names.
pub(super) fn bytes_in(engines: &[&mut Engine], db: usize, args: &Args<'_>) -> usize {
    let bytes = args.keys().iter().map(|routed| {
        let mut engines = engines.iter();
        let engine = engines.find(|engine| engine.shard == routed.shard);
        let entry = engine.and_then(|engine| engine.peek(db, &args.key_of(routed)));
        entry.map_or(0, entry_bytes)
    });
    bytes.sum()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::command::table;

    #[test]
    fn what_takes_long_are_commands_that_are_there() {
        for name in TAKE_LONG {
            let command = table::registry().find(name.as_bytes());
            assert!(command.is_some_and(may_take_long), "{name}");
        }
        let quick = table::registry().find(b"sadd");
        assert!(!quick.is_some_and(may_take_long));
    }
}
