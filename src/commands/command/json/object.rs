//! Objects: JSON.OBJKEYS and JSON.OBJLEN.

use super::{NO_KEY, READ_KEY, expected, no_path_or, per_match, place, read, root, weigh_search};
use crate::command::context::ShardCx;
use crate::command::declaration::{Command, CommandResult, Group};
use crate::command::{Args, Out};
use basalt_engine::value::json::{JsonRef, JsonView};

/// `JSON.OBJKEYS key [path]`
pub(super) static OBJKEYS: Command = Command::new("json.objkeys", Group::Json, -2)
    .reads(READ_KEY)
    .doc(
        "1.0.0",
        "key [path]",
        "Returns the names of the members of objects in a document.",
    )
    .complexity("O(N) where N is the size of the document.")
    .takes_long()
    .on_keys(objkeys);

fn is_object(value: JsonRef<'_>) -> bool {
    value.view() == JsonView::Object
}

fn names(value: JsonRef<'_>, out: &mut Out) {
    out.array(value.len());
    value.members().for_each(|(name, _)| out.bulk(name));
}

fn objkeys(cx: &mut ShardCx<'_>, args: &Args<'_>, out: &mut Out) -> CommandResult {
    let path = place(cx, args, 2)?;
    let (key, scales) = (args.key(1), cx.scales());
    let mut keyspace = cx.at(&key);
    let Some(place) = read(&mut keyspace, &key)? else {
        return match path.is_legacy() {
            true => {
                out.null();
                Ok(())
            }
            false => Err(NO_KEY.into()),
        };
    };
    let root = root(&keyspace, place);
    weigh_search(scales, root)?;
    if path.is_legacy() {
        match path.first(root)? {
            None => out.null(),
            Some(found) if is_object(found) => names(found, out),
            Some(_) => return Err(no_path_or(path.text(), 1, "not an object")),
        }
        return Ok(());
    }
    per_match(&path, root, out, |found, out| match is_object(found) {
        true => names(found, out),
        false => out.null(),
    })
}

/// `JSON.OBJLEN key [path]`
pub(super) static OBJLEN: Command = Command::new("json.objlen", Group::Json, -2)
    .reads(READ_KEY)
    .doc(
        "1.0.0",
        "key [path]",
        "Returns the number of members of objects in a document.",
    )
    .complexity(
        "O(1) for a path to one value, O(N) for others, where N is the size of the document.",
    )
    .takes_long()
    .on_keys(objlen);

fn objlen(cx: &mut ShardCx<'_>, args: &Args<'_>, out: &mut Out) -> CommandResult {
    let path = place(cx, args, 2)?;
    let (key, scales) = (args.key(1), cx.scales());
    let mut keyspace = cx.at(&key);
    let Some(place) = read(&mut keyspace, &key)? else {
        return match path.is_legacy() {
            true => {
                out.null();
                Ok(())
            }
            false => Err(no_path_or(path.text(), 0, "not an object")),
        };
    };
    let root = root(&keyspace, place);
    weigh_search(scales, root)?;
    if path.is_legacy() {
        match path.first(root)? {
            None => out.null(),
            Some(found) if is_object(found) => out.integer(found.len() as i64),
            Some(_) => return Err(expected("object")),
        }
        return Ok(());
    }
    per_match(&path, root, out, |found, out| match is_object(found) {
        true => out.integer(found.len() as i64),
        false => out.null(),
    })
}
