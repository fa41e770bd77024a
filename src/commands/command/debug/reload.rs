//! DEBUG RELOAD: saves all data as a snapshot and loads it again; DEBUG REENCODE: the same value by value, in memory,
//! to prove that nothing is lost.

use super::super::context::{After, SessionCx, ShardCx};
use super::super::declaration::{Command, CommandResult, Flags};
use super::super::generic::dump::limits;
use super::super::host::Reload;
use super::super::{Args, Out};
use super::{GROUP, PART, unknown};
use basalt_engine::Key;
use basalt_engine::serial::reader::Reader;
use basalt_engine::serial::writer::Writer;
use basalt_engine::serial::{self, Form};

/// `DEBUG RELOAD [MERGE] [NOFLUSH] [NOSAVE]`
pub(super) static RELOAD: Command = Command::sub("debug|reload", "reload", GROUP, -2)
    .flags(PART.or(Flags::NO_MULTI))
    .doc(
        "1.0.0",
        "[options ...]",
        "Saves a snapshot, deletes all data and loads the snapshot.",
    )
    .complexity("O(N) where N is the size of the data")
    .on_session(reload);

/// `DEBUG LOADAOF`
pub(super) static LOADAOF: Command = Command::sub("debug|loadaof", "loadaof", GROUP, -2)
    .flags(PART.or(Flags::NO_MULTI))
    .doc(
        "1.0.0",
        "",
        "Deletes all data and loads the append-only file.",
    )
    .complexity("O(N) where N is the size of the file")
    .on_session(load_aof);

fn load_aof(cx: &mut SessionCx<'_>, args: &Args<'_>, _: &mut Out) -> CommandResult {
    if args.len() > 2 {
        return Err(unknown(args));
    }
    cx.after = After::Await(cx.server.load_aof());
    Ok(())
}

fn reload(cx: &mut SessionCx<'_>, args: &Args<'_>, _: &mut Out) -> CommandResult {
    let mut reload = Reload::default();
    for at in 2..args.len() {
        if args.is(at, "merge") {
            reload.merges = true;
        } else if args.is(at, "noflush") {
            reload.skips_flush = true;
        } else if args.is(at, "nosave") {
            reload.skips_save = true;
        } else {
            return Err(
                "ERR DEBUG RELOAD only supports the MERGE, NOFLUSH and NOSAVE options.".into(),
            );
        }
    }
    cx.after = After::Await(cx.server.reload(reload));
    Ok(())
}

/// `DEBUG REENCODE`
pub(super) static REENCODE: Command = Command::sub("debug|reencode", "reencode", GROUP, 2)
    .flags(PART)
    .doc(
        "1.0.0",
        "",
        "Encodes every value as in a snapshot and decodes it again, in memory.",
    )
    .complexity("O(N) where N is the size of the data")
    .on_all_shards(reencode);

/// Encodes each key's value and decodes it again, in place, one key after the other. A value that cannot be decoded
/// stays as it was, and the reply is an error.
fn reencode(cx: &mut ShardCx<'_>, _: &Args<'_>, out: &mut Out) -> CommandResult {
    let mut is_whole = true;
    for index in 0..cx.engine_count() {
        for db in 0..cx.engine(index).database_count() {
            is_whole &= reencode_db(cx, index, db);
        }
    }
    if !is_whole {
        return Err("ERR a value could not be read back".into());
    }
    out.ok();
    Ok(())
}

/// Re-encodes one database of one shard, except expired keys; false if a value could not be decoded.
fn reencode_db(cx: &mut ShardCx<'_>, index: usize, db: usize) -> bool {
    const KEYS_A_STEP: usize = 1_000;
    let (limits, compresses) = (
        limits(cx.config, cx.seed(), cx.now),
        cx.config.rdbcompression.compresses_values(),
    );
    let now_ms = cx.now.unix_ms;
    let seed = cx.engine(index).seed();
    let mut keyspace = cx.keyspace(index, db).untouched();
    let mut keys: Vec<Vec<u8>> = Vec::with_capacity(keyspace.len());
    let mut cursor = 0;
    loop {
        cursor =
            keyspace.scan_expiring(cursor, KEYS_A_STEP, |entry| keys.push(entry.key().to_vec()));
        if cursor == 0 {
            break;
        }
    }
    let mut writer = Writer::new(Form::Whole, compresses);
    let mut is_whole = true;
    for key in &keys {
        let key = Key::new(key, seed);
        let Some(place) = keyspace.find_write(&key) else {
            continue;
        };
        writer.clear();
        serial::write(keyspace.entry(place), now_ms, &mut writer);
        let deadline = keyspace.entry(place).deadline();
        let mut reader = Reader::new(writer.bytes(), limits.string_bytes_max);
        match serial::read(key.bytes, deadline, &mut reader, &limits) {
            Ok(mut entry) if reader.rest().is_empty() => {
                keyspace.inherit_marks(place, &mut entry);
                keyspace.adopt(&key, Some(place), entry);
            }
            _ => is_whole = false,
        }
    }
    is_whole
}
