//! DEBUG OBJECT, LISTPACK, HTSTATS and POPULATE: the encoding of values, and the creation of many.

use super::super::context::ShardCx;
use super::super::declaration::{Command, CommandResult, KeyFlags, KeySpec};
use super::super::error::CommandError;
use super::super::generic::object::idle_ms;
use super::super::{Args, Out};
use super::{GROUP, PART, unknown};
use basalt_core::base::hash::slot;
use basalt_core::structures::entry::EntryRef;
use basalt_engine::Key;
use basalt_engine::keyspace::Deadline;
use basalt_engine::serial::writer::Writer;
use basalt_engine::serial::{self, Form};
use basalt_engine::value::hash::HashRef;
use basalt_engine::value::list::ListRef;
use basalt_engine::value::set::SetRef;
use basalt_engine::value::sorted_set::SortedSet;
use basalt_engine::value::{DataType, Object, ValueEncoding};

const KEY: &[KeySpec] = &[KeySpec::one(2, KeyFlags::RO.or(KeyFlags::ACCESS))];

/// `DEBUG OBJECT key`
pub(super) static OBJECT: Command = Command::sub("debug|object", "object", GROUP, -2)
    .flags(PART)
    .names_keys(KEY)
    .doc("1.0.0", "key", "Describes the encoding of a value.")
    .on_keys(object);

fn object(cx: &mut ShardCx<'_>, args: &Args<'_>, out: &mut Out) -> CommandResult {
    const CLOCK_MASK: u64 = (1 << 24) - 1;
    if args.len() != 3 {
        return Err(unknown(args));
    }
    let key = args.key(2);
    let compresses = cx.config.rdbcompression.compresses_values();
    let now_ms = cx.now.unix_ms;
    let keyspace = cx.at(&key).untouched();
    let place = keyspace
        .find_as_it_lies(&key)
        .ok_or(CommandError::NoSuchKey)?;
    let mut writer = Writer::new(Form::Whole, compresses);
    serial::write(keyspace.entry(place), now_ms, &mut writer);
    // The type byte is not counted.
    let saved_bytes = writer.bytes().len() - 1;
    let idle_ms = idle_ms(&keyspace, &key, place);
    let clock = (now_ms.saturating_sub(idle_ms) / 1_000) & CLOCK_MASK;
    let idle_s = idle_ms / 1_000;
    out.simple(format!(
        "Value at:{:p} refcount:1 encoding:{} serializedlength:{saved_bytes} lru:{clock} \
         lru_seconds_idle:{idle_s}{}",
        keyspace.entry(place).key().as_ptr(),
        keyspace.kind(place).encoding().name(),
        about_nodes(keyspace.entry(place)),
    ));
    Ok(())
}

/// Describes a list that consists of nodes.
fn about_nodes(entry: EntryRef<'_, Object>) -> String {
    let Some(list) = ListRef::of(entry).and_then(ListRef::as_quicklist) else {
        return String::new();
    };
    let (count, limits) = (list.nodes().len(), list.limits());
    format!(
        " ql_nodes:{count} ql_avg_node:{:.2} ql_listpack_max:{} ql_compressed:{} \
         ql_uncompressed_size:{}",
        list.len() as f64 / count as f64,
        limits.fill,
        u8::from(limits.compress_depth != 0),
        list.uncompressed_bytes(),
    )
}

/// `DEBUG LISTPACK key`
pub(super) static LISTPACK: Command = Command::sub("debug|listpack", "listpack", GROUP, -2)
    .flags(PART)
    .names_keys(KEY)
    .doc(
        "7.0.0",
        "key",
        "Returns the size of a value in the compact encoding.",
    )
    .on_keys(listpack);

fn listpack(cx: &mut ShardCx<'_>, args: &Args<'_>, out: &mut Out) -> CommandResult {
    if args.len() != 3 {
        return Err(unknown(args));
    }
    let key = args.key(2);
    let keyspace = cx.at(&key).untouched();
    let place = keyspace
        .find_as_it_lies(&key)
        .ok_or(CommandError::NoSuchKey)?;
    let encoding = keyspace.kind(place).encoding();
    if !matches!(
        encoding,
        ValueEncoding::Listpack | ValueEncoding::Listpackex
    ) {
        return Err("ERR Not a listpack encoded object.".into());
    }
    out.simple(format!(
        "Listpack in an entry of {} bytes",
        keyspace.entry(place).memory_bytes()
    ));
    Ok(())
}

/// `DEBUG HTSTATS dbid [FULL]`
pub(super) static HTSTATS: Command = Command::sub("debug|htstats", "htstats", GROUP, -2)
    .flags(PART)
    .doc(
        "4.0.0",
        "dbid [FULL]",
        "Returns statistics of the tables of a database.",
    )
    .on_all_shards(htstats);

fn htstats(cx: &mut ShardCx<'_>, args: &Args<'_>, out: &mut Out) -> CommandResult {
    if args.len() < 3 {
        return Err(unknown(args));
    }
    let db = usize::try_from(args.integer(2)?)
        .ok()
        .filter(|db| *db < cx.engine(0).database_count())
        .ok_or("ERR Out of range database")?;
    let (mut keys, mut volatile, mut tables) = (0, 0, 0);
    for index in 0..cx.engine_count() {
        if let Some(db) = cx.engine(index).db(db) {
            keys += db.len();
            volatile += db.volatile_count();
            tables += 1;
        }
    }
    let about = |count: usize| match count {
        0 => "No stats available for empty dictionaries\n".to_owned(),
        _ => format!(" number of tables: {tables}\n number of elements: {count}\n"),
    };
    out.verbatim(
        "txt",
        format!(
            "[Dictionary HT]\n{}[Expires HT]\n{}",
            about(keys),
            about(volatile)
        ),
    );
    Ok(())
}

/// `DEBUG HTSTATS-KEY key [FULL]`
pub(super) static HTSTATS_KEY: Command =
    Command::sub("debug|htstats-key", "htstats-key", GROUP, -2)
        .flags(PART)
        .names_keys(KEY)
        .doc(
            "4.0.0",
            "key [FULL]",
            "Returns statistics of the table of a value.",
        )
        .on_keys(htstats_key);

fn htstats_key(cx: &mut ShardCx<'_>, args: &Args<'_>, out: &mut Out) -> CommandResult {
    if args.len() < 3 {
        return Err(unknown(args));
    }
    let (key, now_ms) = (args.key(2), cx.now.unix_ms);
    let keyspace = cx.at(&key).untouched();
    let place = keyspace
        .find_as_it_lies(&key)
        .ok_or(CommandError::NoSuchKey)?;
    if !matches!(
        keyspace.kind(place).encoding(),
        ValueEncoding::Hashtable | ValueEncoding::Skiplist
    ) {
        return Err(
            "ERR The value stored at the specified key is not represented using an hash table"
                .into(),
        );
    }
    let entry = keyspace.entry(place);
    let count = match keyspace.kind(place).data_type() {
        DataType::Set => SetRef::of(entry, now_ms).len(),
        DataType::SortedSet => SortedSet::of(entry).len(),
        _ => HashRef::of(entry, now_ms).map_or(0, |hash| hash.len()),
    };
    out.verbatim("txt", format!(" number of elements: {count}\n"));
    Ok(())
}

/// `DEBUG POPULATE count [prefix] [size]`
pub(super) static POPULATE: Command = Command::sub("debug|populate", "populate", GROUP, -2)
    .flags(PART)
    .doc(
        "1.0.0",
        "count [prefix [size]]",
        "Creates string keys that do not exist yet.",
    )
    .complexity("O(N) where N is the number of keys")
    .on_all_shards(populate);

/// Estimates the bytes of a key, given the lengths of its name and value.
fn size_of_key(prefix: usize, value: usize) -> usize {
    const NUMBERED_BYTES: usize = 32;
    prefix + value + NUMBERED_BYTES
}

/// Creates the keys. As in Redis they are not announced: no notification, no replication, no log.
fn populate(cx: &mut ShardCx<'_>, args: &Args<'_>, out: &mut Out) -> CommandResult {
    if !(3..=5).contains(&args.len()) {
        return Err(unknown(args));
    }
    let positive = |index: usize| match args.integer(index) {
        Ok(number) if number >= 0 => Ok(number as usize),
        Ok(_) => Err("ERR value is out of range, must be positive".into()),
        Err(error) => Err(error),
    };
    let count = positive(2)?;
    let prefix = if args.len() > 3 { args.get(3) } else { b"key" };
    let size = if args.len() > 4 { positive(4)? } else { 0 };
    let (db, seed) = (cx.client.db, cx.engine(0).seed());
    // A command that adds more than fits is refused, so that it does not evict all other keys.
    let each = size_of_key(prefix.len(), size);
    if !cx.engine(0).budget().has_room(each.saturating_mul(count)) {
        return Err(CommandError::OutOfMemory);
    }
    // All shards are locked, their number is a power of two, and the low bits of a key's slot select its shard.
    let mask = cx.engine_count() as u16 - 1;
    for number in 0..count {
        let name = [prefix, b":", number.to_string().as_bytes()].concat();
        let mut value = format!("value:{number}").into_bytes();
        if size > 0 {
            value.resize(size, 0);
        }
        let key = Key::new(&name, seed);
        let index = usize::from(slot(&name) & mask);
        let mut keyspace = cx.keyspace(index, db);
        if keyspace.find_write(&key).is_none() {
            keyspace.put_text(&key, None, &value, Deadline::Clear);
        }
    }
    out.ok();
    Ok(())
}
