//! Estimates which transactions may take too long for a connection's thread, from the keys that they name, before
//! anything runs. A command itself finds out whether it takes long, and asks
//! [`Scales`](basalt_commands::command::context::Scales); commands that may take long have
//! [`Flags::TAKES_LONG`](basalt_commands::command::declaration::Flags::TAKES_LONG).

use basalt_commands::command::Args;
use basalt_commands::command::declaration::{Command, Flags};
use basalt_engine::Engine;
use basalt_engine::db::Db;
use basalt_engine::value::object::entry_bytes;

/// A command whose values have at most this total number of bytes is never too slow for a connection's thread.
pub(super) const LARGE_BYTES_MIN: usize = 128 * 1024;

/// Iterating over more keys than this is too slow for a connection's thread.
pub(super) const KEYS_MANY: usize = 8 * 1024;

/// Returns the database that a command selects for the commands after it, if any.
pub(super) fn chosen_db(command: &Command, args: &Args<'_>) -> Option<usize> {
    if !command.flags.has(Flags::SELECTS_DB) || args.len() != 2 {
        return None;
    }
    args.integer(1).ok().and_then(|db| usize::try_from(db).ok())
}

/// Returns the number of keys of a database on these shards.
pub(super) fn keys_in(engines: &[&mut Engine], db: usize) -> usize {
    let dbs = engines.iter().filter_map(|engine| engine.db(db));
    dbs.map(Db::len).sum()
}

/// Returns the total bytes of all values that a command names.
pub(super) fn bytes_in(engines: &[&mut Engine], db: usize, args: &Args<'_>) -> usize {
    let bytes = args.keys().iter().map(|routed| {
        let mut engines = engines.iter();
        let engine = engines.find(|engine| engine.shard == routed.shard);
        let entry = engine.and_then(|engine| engine.peek(db, &args.key_of(routed)));
        entry.map_or(0, entry_bytes)
    });
    bytes.sum()
}
