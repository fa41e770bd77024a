//! DEBUG RELOAD: every value written as a snapshot would have it and read back, to prove that nothing is lost.
//!
//! There is no file: each key's value becomes bytes and then a value again, in place, one key after the other. What
//! can not be read back stays as it was, and the answer is an error.

use super::super::context::ShardCx;
use super::super::declaration::{Command, CommandResult};
use super::super::generic::dump::limits;
use super::super::{Args, Out};
use super::{GROUP, PART};
use crate::engine::Key;
use crate::engine::serial::reader::Reader;
use crate::engine::serial::writer::Writer;
use crate::engine::serial::{self, Form};

/// `DEBUG RELOAD [MERGE] [NOFLUSH] [NOSAVE]`
pub(super) static RELOAD: Command = Command::sub("debug|reload", "reload", GROUP, -2)
    .flags(PART)
    .doc(
        "1.0.0",
        "[options ...]",
        "Writes every value as a snapshot would and reads it back, in memory.",
    )
    .complexity("O(N) where N is the size of the data")
    .on_all_shards(reload);

/// The options say what becomes of data beside the file, and of the file. There is none, so they change nothing.
fn reload(cx: &mut ShardCx<'_>, args: &Args<'_>, out: &mut Out) -> CommandResult {
    let is_known = |at: usize| {
        ["merge", "noflush", "nosave"]
            .iter()
            .any(|word| args.is(at, word))
    };
    if !(2..args.len()).all(is_known) {
        return Err("ERR DEBUG RELOAD only supports the MERGE, NOFLUSH and NOSAVE options.".into());
    }
    let mut is_whole = true;
    for index in 0..cx.engine_count() {
        for db in 0..cx.engine(index).database_count() {
            is_whole &= reload_db(cx, index, db);
        }
    }
    if !is_whole {
        return Err("ERR Error trying to load the RDB dump, check server logs.".into());
    }
    out.ok();
    Ok(())
}

/// One database of one shard, without what is due; false if a value could not be read back.
fn reload_db(cx: &mut ShardCx<'_>, index: usize, db: usize) -> bool {
    const KEYS_A_STEP: usize = 1_000;
    let (limits, compresses) = (
        limits(cx.config, cx.seed(), cx.now),
        cx.config.rdbcompression,
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
            Ok(entry) if reader.rest().is_empty() => keyspace.adopt(&key, Some(place), entry),
            _ => is_whole = false,
        }
    }
    is_whole
}
