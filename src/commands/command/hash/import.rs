//! HIMPORT: hashes with the same fields, whose names a connection sends once.

use std::sync::Arc;

use super::{HSET_EVENT, rules};
use crate::client::connection::Connection;
use crate::client::fieldsets::{Fieldset, Fieldsets};
use crate::command::context::{SessionCx, ShardCx};
use crate::command::declaration::{Command, CommandResult, Flags, Group, KeyFlags, KeySpec};
use crate::command::error::NO_FIELDSET;
use crate::command::prepared::Prepared;
use crate::command::{Args, Out};
use basalt_core::structures::block::Content;
use basalt_engine::value::DataType;
use basalt_engine::value::hash::new_hash;
use basalt_engine::value::object::detached;

/// Maximum fieldsets per connection: a transaction that changes them copies them all, while others wait for its
/// thread.
const FIELDSETS_MAX: usize = 10_000;

const TOO_MANY: &str = "ERR a connection may have 10000 fieldsets at most";

/// Index of the first value of SET.
const VALUES: usize = 4;

/// `HIMPORT subcommand`
pub(super) static HIMPORT: Command = Command::new("himport", Group::Hash, -2)
    .doc(
        "8.10.0",
        "",
        "Groups the commands that create hashes from prepared field names.",
    )
    .complexity("Depends on subcommand.")
    .container(&[&DISCARD, &DISCARDALL, &PREPARE, &SET]);

/// `HIMPORT PREPARE fieldset-name field [field ...]`
static PREPARE: Command = Command::sub("himport|prepare", "prepare", Group::Hash, -4)
    .flags(Flags::DENYOOM)
    .doc(
        "8.10.0",
        "fieldset-name field [field ...]",
        "Prepares a named list of field names for this connection.",
    )
    .complexity("O(N*log(N)) for N names of fields.")
    .tips(&["request_policy:all_shards"])
    .repeatable()
    .on_session(prepare);

fn prepare(cx: &mut SessionCx<'_>, args: &Args<'_>, out: &mut Out) -> CommandResult {
    let Some(fieldset) = Fieldset::new(args.from(3)) else {
        return Err("ERR duplicate field name in fieldset".into());
    };
    let name = args.get(2);
    let is_full = |fieldsets: &Arc<Fieldsets>| {
        fieldsets.len() >= FIELDSETS_MAX && fieldsets.get(name).is_none()
    };
    if cx.client.fieldsets.as_ref().is_some_and(is_full) {
        return Err(TOO_MANY.into());
    }
    change(cx.client, |fieldsets| fieldsets.put(name, fieldset));
    out.ok();
    Ok(())
}

/// Changes the fieldsets of a connection, allocating or freeing the table as needed.
fn change<R>(client: &mut Connection, change: impl FnOnce(&mut Fieldsets) -> R) -> R {
    let shared = &client.shared;
    let fieldsets = client
        .fieldsets
        .get_or_insert_with(|| Arc::new(Fieldsets::new(shared)));
    let fieldsets = Arc::make_mut(fieldsets);
    let result = change(fieldsets);
    if fieldsets.is_empty() {
        client.fieldsets = None;
    }
    result
}

/// `HIMPORT DISCARD fieldset-name`
static DISCARD: Command = Command::sub("himport|discard", "discard", Group::Hash, 3)
    .doc(
        "8.10.0",
        "fieldset-name",
        "Discards a named list of field names.",
    )
    .complexity("O(N) for N fieldsets of the connection.")
    .tips(&["request_policy:all_shards"])
    .repeatable()
    .on_session(|cx, args, out| {
        let name = args.get(2);
        // While a transaction keeps the fieldsets' previous state for a rollback, a change copies all of them: so
        // only an actual change is made.
        let is_there = cx
            .client
            .fieldsets
            .as_ref()
            .is_some_and(|sets| sets.get(name).is_some());
        let is_gone = is_there && change(cx.client, |fieldsets| fieldsets.remove(name));
        out.integer(i64::from(is_gone));
        Ok(())
    });

/// `HIMPORT DISCARDALL`
static DISCARDALL: Command = Command::sub("himport|discardall", "discardall", Group::Hash, 2)
    .doc(
        "8.10.0",
        "",
        "Discards all lists of field names of this connection.",
    )
    .complexity("O(N) for N fieldsets of the connection.")
    .tips(&["request_policy:all_shards"])
    .repeatable()
    .on_session(|cx, _, out| {
        let gone = cx.client.fieldsets.take();
        out.integer(gone.map_or(0, |fieldsets| fieldsets.len()) as i64);
        Ok(())
    });

/// `HIMPORT SET key fieldset-name value [value ...]`
static SET: Command = Command::sub("himport|set", "set", Group::Hash, -5)
    .writes(&[KeySpec::one(2, KeyFlags::OW.or(KeyFlags::UPDATE))])
    .flags(Flags::DENYOOM.or(Flags::NAMES_FIELDSET))
    .keeps_blocks(VALUES, 1)
    .doc(
        "8.10.0",
        "key fieldset-name value [value ...]",
        "Replaces a hash with the given values of the prepared field names.",
    )
    .complexity("O(N) for N names of fields.")
    .on_keys(set);

fn set(cx: &mut ShardCx<'_>, args: &Args<'_>, out: &mut Out) -> CommandResult {
    let Some(fieldset) = args.prepared().and_then(Prepared::fieldset) else {
        return Err(NO_FIELDSET.into());
    };
    if args.len() - VALUES != fieldset.len() {
        return Err("ERR value count does not match fieldset field count".into());
    }
    let pairs = fieldset
        .fields()
        .map(|(name, position)| (name, args.content(VALUES + position)));
    let rules = rules(cx);
    let key = args.key(2);
    let mut keyspace = cx.at(&key);
    let found = keyspace.find_typed(&key, DataType::Hash)?;
    match found {
        Some(_) => {
            let entry = detached(|| new_hash(key.bytes, pairs.clone(), &rules));
            keyspace.overwrites(&key, found, DataType::Hash);
            keyspace.adopt(&key, found, entry);
        }
        None => {
            keyspace.create(&key, || new_hash(key.bytes, pairs.clone(), &rules));
        }
    }
    let names = fieldset.fields().map(|(name, _)| name);
    keyspace.wrote_fields(key.bytes, HSET_EVENT, names);
    if cx.is_logged() {
        if found.is_some() {
            cx.log_deletion(key.bytes, false);
        }
        let mut request: Vec<Content<'_>> = vec![b"HSET".into(), key.bytes.into()];
        for (name, value) in pairs {
            request.push(name.into());
            request.push(value);
        }
        cx.log_instead(request);
        cx.log_blessing(&key);
    }
    out.ok();
    Ok(())
}
