//! JSON.DEBUG: the memory of documents.

use super::{no_path, root, weigh_search};
use crate::command::context::ShardCx;
use crate::command::declaration::{
    BeginSearch, Command, CommandResult, FindKeys, Group, KeyFlags, KeySpec,
};
use crate::command::error::CommandError;
use crate::command::{Args, Out};
use basalt_engine::value::json::JsonRef;

/// The key of JSON.DEBUG MEMORY.
const KEY: &[KeySpec] = &[KeySpec {
    begin: BeginSearch::Keyword("MEMORY", 1),
    find: FindKeys::Range {
        last: 0,
        step: 1,
        limit: 0,
    },
    flags: KeyFlags::RO.or(KeyFlags::ACCESS),
    notes: None,
    is_listed: true,
}];

/// `JSON.DEBUG MEMORY key [path]`, `JSON.DEBUG HELP`
pub(super) static DEBUG: Command = Command::new("json.debug", Group::Json, -2)
    .reads(KEY)
    .doc(
        "1.0.0",
        "<MEMORY key [path] | HELP>",
        "Returns the memory of values in a document, or a help text.",
    )
    .complexity("O(N) where N is the size of the document.")
    .takes_long()
    .on_keys(debug);

const HELP: [&str; 2] = [
    "MEMORY <key> [path] - reports memory usage",
    "HELP                - this message",
];

fn debug(cx: &mut ShardCx<'_>, args: &Args<'_>, out: &mut Out) -> CommandResult {
    if args.is(1, "help") && args.len() == 2 {
        out.array(HELP.len());
        HELP.iter().for_each(|line| out.simple(line));
        return Ok(());
    }
    if !args.is(1, "memory") {
        return Err("ERR unknown subcommand - try `JSON.DEBUG HELP`".into());
    }
    if !(3..=4).contains(&args.len()) {
        return Err(CommandError::Arity("json.debug"));
    }
    let path = super::place(cx, args, 3)?;
    let (key, scales) = (args.key(2), cx.scales());
    let mut keyspace = cx.at(&key);
    let Some(place) = super::read(&mut keyspace, &key)? else {
        match path.is_legacy() {
            true => out.integer(0),
            false => out.array(0),
        }
        return Ok(());
    };
    let (doc, whole) = (root(&keyspace, place), keyspace.memory_bytes(place));
    weigh_search(scales, doc)?;
    // The whole document takes what MEMORY USAGE says; a part of it, its share of the packed bytes.
    let bytes = |value: JsonRef<'_>| match value.offset_in(doc) {
        0 => whole as i64,
        _ => value.bytes().len() as i64,
    };
    if path.is_legacy() {
        let found = path.first(doc)?.ok_or_else(|| no_path(path.text()))?;
        out.integer(bytes(found));
        return Ok(());
    }
    super::per_match(&path, doc, out, |found, out| out.integer(bytes(found)))
}
