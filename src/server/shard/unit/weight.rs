//! Which transactions may take too long for the thread of a connection: a guess from what they name, before anything
//! runs. A command finds out by itself whether it does, and asks
//! [`Scales`](basalt_commands::command::context::Scales); those that do have
//! [`Flags::TAKES_LONG`](basalt_commands::command::declaration::Flags::TAKES_LONG).

use basalt_commands::command::Args;
use basalt_commands::command::declaration::{Command, Flags};
use basalt_engine::Engine;
use basalt_engine::db::Db;
use basalt_engine::value::object::entry_bytes;

/// Values of fewer bytes, all that a command names together, are never too much for the thread of a connection.
pub(super) const LARGE_BYTES_MIN: usize = 128 * 1024;

/// Keys that are too many to be gone over there.
pub(super) const KEYS_MANY: usize = 8 * 1024;

/// The database that a command chooses for those behind it, if there is such a one.
pub(super) fn chosen_db(command: &Command, args: &Args<'_>) -> Option<usize> {
    if !command.flags.has(Flags::SELECTS_DB) || args.len() != 2 {
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
