//! Commands that rename, move and copy values.
//!
//! The shards of both keys are locked; the entry moves from engine to engine, and its memory is charged to the
//! receiving one. A place is valid only until the next change, so the target is looked up again after the source is
//! removed.

use crate::command::aside::{Aside, AsideContext, BuildAside, SliceResult};
use crate::command::context::ShardCx;
use crate::command::database;
use crate::command::declaration::{
    Command, CommandResult, Databases, Flags, Group, KeyFlags, KeySpec, ReadArgument,
};
use crate::command::error::CommandError;
use crate::command::prepared::{Built, Prepared};
use crate::command::{Args, Out};
use basalt_core::base::hash::HashSeed;
use basalt_core::structures::entry::{Entry, EntryRef};
use basalt_core::structures::table::EntrySlot;
use basalt_engine::Key;
use basalt_engine::effect::Event;
use basalt_engine::keyspace::Keyspace;
use basalt_engine::value::copying::{CopySlice, SlicedCopy};
use basalt_engine::value::{Object, ObjectKind, string_entry};

const SAME_OBJECT: &str = "ERR source and destination objects are the same";

const SOURCE_REMOVED: KeySpec =
    KeySpec::one(1, KeyFlags::RW.or(KeyFlags::ACCESS).or(KeyFlags::DELETE));

/// `RENAME key newkey`
pub(super) static RENAME: Command = Command::new("rename", Group::Generic, 3)
    .writes(&[
        SOURCE_REMOVED,
        KeySpec::one(2, KeyFlags::OW.or(KeyFlags::UPDATE)),
    ])
    .doc(
        "1.0.0",
        "key newkey",
        "Renames a key; an existing key with the new name is deleted.",
    )
    .on_keys(rename_over);

/// `RENAMENX key newkey`
pub(super) static RENAMENX: Command = Command::new("renamenx", Group::Generic, 3)
    .writes(&[
        SOURCE_REMOVED,
        KeySpec::one(2, KeyFlags::OW.or(KeyFlags::INSERT)),
    ])
    .flags(Flags::FAST)
    .doc(
        "1.0.0",
        "key newkey",
        "Renames a key unless the new name exists.",
    )
    .history(&[("3.2.0", "Renaming a key to itself is no longer an error.")])
    .on_keys(rename_if_free);

fn rename_over(cx: &mut ShardCx<'_>, args: &Args<'_>, out: &mut Out) -> CommandResult {
    let (source, target) = (args.key(1), args.key(2));
    if cx.at(&source).find_write(&source).is_none() {
        return Err(CommandError::NoSuchKey);
    }
    if source.bytes != target.bytes {
        rename(cx, args);
    }
    out.ok();
    Ok(())
}

fn rename_if_free(cx: &mut ShardCx<'_>, args: &Args<'_>, out: &mut Out) -> CommandResult {
    let (source, target) = (args.key(1), args.key(2));
    if cx.at(&source).find_write(&source).is_none() {
        return Err(CommandError::NoSuchKey);
    }
    let is_free = cx.at(&target).find_write(&target).is_none();
    if is_free {
        rename(cx, args);
    }
    out.integer(i64::from(is_free));
    Ok(())
}

/// Moves an existing entry to another name.
fn rename(cx: &mut ShardCx<'_>, args: &Args<'_>) {
    let (source, target) = (args.key(1), args.key(2));
    let mut from = cx.at(&source);
    let Some(place) = from.find_write(&source) else {
        return;
    };
    let kept = KeptBesideValue::of(&from, &source, place);
    let entry = from.take(place);
    from.wrote(source.bytes, Event::generic("rename_from"));
    put(cx.at(&target), &target, entry, &kept, "rename_to");
}

/// Properties of a key beside its value, which follow the value to another name or database.
struct KeptBesideValue {
    tags: Vec<Box<[u8]>>,
    is_blessed: bool,
}

impl KeptBesideValue {
    fn of(from: &Keyspace<'_>, key: &Key<'_>, place: EntrySlot) -> KeptBesideValue {
        KeptBesideValue {
            tags: from.tags(place),
            is_blessed: from.is_blessed(key),
        }
    }
}

/// Stores an entry with its tags and its blessing under a key, in place of the key's present value, if any.
fn put(
    mut to: Keyspace<'_>,
    key: &Key<'_>,
    entry: Entry<Object>,
    kept: &KeptBesideValue,
    event: &'static str,
) {
    let replaced = to.find_write(key);
    let data_type = ObjectKind(entry.view().kind()).data_type();
    to.replaces(key, replaced, data_type);
    to.adopt(key, replaced, entry);
    to.restore_tags(key, &kept.tags);
    if kept.is_blessed != to.is_blessed(key) {
        to.set_blessed(key, kept.is_blessed);
    }
    to.wrote(key.bytes, Event::generic(event));
}

/// `COPY source destination [DB destination-db] [REPLACE]`
pub(super) static COPY: Command = Command::new("copy", Group::Generic, -3)
    .writes(&[
        KeySpec::one(1, KeyFlags::RO.or(KeyFlags::ACCESS)),
        KeySpec::one(2, KeyFlags::OW.or(KeyFlags::UPDATE)),
    ])
    .databases(Databases::SelectedAnd(copied_to))
    .flags(Flags::DENYOOM)
    .doc(
        "6.2.0",
        "source destination [DB destination-db] [REPLACE]",
        "Stores a copy of a key's value under another key.",
    )
    .complexity("O(N) for a collection of N elements, O(1) for strings.")
    .takes_long()
    .builds_aside(begin_copy)
    .on_keys(copy);

/// Begins to copy a large value aside ([`command::aside`](crate::command::aside)).
fn begin_copy(args: &Args<'_>, cx: &AsideContext<'_>) -> Option<Aside> {
    let value = CopyAside {
        key: args.get(2).into(),
        seed: cx.seed,
        copy: None,
    };
    Some(Aside::new(args, &args.keys()[..1], cx.db, Box::new(value)))
}

/// A copy that is being built aside.
struct CopyAside {
    /// The target key.
    key: Box<[u8]>,
    seed: HashSeed,
    /// None before the first slice.
    copy: Option<SlicedCopy>,
}

impl BuildAside for CopyAside {
    fn read(&mut self, sources: &[Option<EntryRef<'_, Object>>]) -> SliceResult {
        let Some(entry) = sources.first().copied().flatten() else {
            return SliceResult::Unsuitable;
        };
        if self.copy.is_none() {
            self.copy = SlicedCopy::begin(entry, self.seed);
        }
        match self.copy.as_mut().map(|copy| copy.read(entry)) {
            Some(CopySlice::More) => SliceResult::More,
            Some(CopySlice::Whole) => SliceResult::Whole,
            Some(CopySlice::Changed) | None => SliceResult::Unsuitable,
        }
    }

    fn add(&mut self) {
        if let Some(copy) = &mut self.copy {
            copy.add();
        }
    }

    fn take(&mut self) -> Built {
        Ok(match self.copy.take() {
            Some(copy) => copy.into_entry(&self.key),
            None => string_entry(b"", b"", None),
        })
    }
}

/// Returns the positions of the database indexes in a request of COPY. If DB is repeated, the handler decides which
/// counts.
fn copied_to(count: usize, argument: ReadArgument<'_, '_>) -> Vec<usize> {
    let mut found = Vec::new();
    let mut at = 3;
    while at < count {
        let is_named = argument(at).eq_ignore_ascii_case(b"db");
        if is_named && at + 1 < count {
            found.push(at + 1);
        }
        at += 1 + usize::from(is_named);
    }
    found
}

fn copy(cx: &mut ShardCx<'_>, args: &Args<'_>, out: &mut Out) -> CommandResult {
    let (source, target) = (args.key(1), args.key(2));
    let mut target_db = cx.client.db;
    let mut replaces = false;
    let mut at = 3;
    while at < args.len() {
        if args.is(at, "replace") {
            replaces = true;
            at += 1;
        } else if args.is(at, "db") && at + 1 < args.len() {
            target_db = database::number(args, at + 1, cx.config, None)?;
            at += 2;
        } else {
            return Err(CommandError::Syntax);
        }
    }
    if target_db == cx.client.db && source.bytes == target.bytes {
        return Err(SAME_OBJECT.into());
    }
    let (scales, mut from) = (cx.scales(), cx.at(&source));
    let found = from.find_read(&source);
    let (is_there, bytes) = (found.is_some(), found.map(|place| from.memory_bytes(place)));
    let is_taken = cx.at_db(&target, target_db).find_write(&target).is_some();
    if !is_there || (is_taken && !replaces) {
        out.integer(0);
        return Ok(());
    }
    if target_db != cx.client.db {
        cx.at_db(&target, target_db)
            .engine()
            .check_share(target_db)?;
    }
    let built = args.prepared().and_then(Prepared::take).transpose()?;
    if built.is_none() {
        scales.weigh_bytes(bytes.unwrap_or(0))?;
    }
    let mut from = cx.at(&source);
    let place = from
        .find_write(&source)
        .expect("found above, at the same moment");
    let entry = match built {
        Some(copy) => from.complete_copy(place, copy),
        None => from.duplicate(place),
    };
    let kept = KeptBesideValue::of(&from, &source, place);
    let to = cx.at_db(&target, target_db);
    put(to, &target, entry, &kept, "copy_to");
    out.integer(1);
    Ok(())
}

/// `MOVE key db`
pub(super) static MOVE: Command = Command::new("move", Group::Generic, 3)
    .writes(&[KeySpec::one(
        1,
        KeyFlags::RW.or(KeyFlags::ACCESS).or(KeyFlags::UPDATE),
    )])
    .databases(Databases::SelectedAnd(|_, _| vec![2]))
    .flags(Flags::FAST.or(Flags::PAYS))
    .doc("1.0.0", "key db", "Moves a key to another database.")
    .on_keys(move_to_db);

fn move_to_db(cx: &mut ShardCx<'_>, args: &Args<'_>, out: &mut Out) -> CommandResult {
    if cx.config.has_first_database_only() {
        return Err("ERR MOVE is not allowed in cluster mode".into());
    }
    let key = args.key(1);
    let target_db = database::number(args, 2, cx.config, None)?;
    if target_db == cx.client.db {
        return Err(SAME_OBJECT.into());
    }
    let is_there = cx.at(&key).find_write(&key).is_some();
    if !is_there || cx.at_db(&key, target_db).find_write(&key).is_some() {
        out.integer(0);
        return Ok(());
    }
    cx.at_db(&key, target_db).engine().check_share(target_db)?;
    let mut from = cx.at(&key);
    let place = from
        .find_write(&key)
        .expect("found above, at the same moment");
    let kept = KeptBesideValue::of(&from, &key, place);
    let entry = from.take(place);
    from.wrote(key.bytes, Event::generic("move_from"));
    put(cx.at_db(&key, target_db), &key, entry, &kept, "move_to");
    out.integer(1);
    Ok(())
}
