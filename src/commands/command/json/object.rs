//! Objects: JSON.OBJKEYS and JSON.OBJLEN.

use super::{NO_KEY, READ_KEY, ReadErrors, expected, no_path_or, read_matches};
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
    let errors = ReadErrors {
        no_document: |_| NO_KEY.into(),
        no_match: None,
        other_type: |path| no_path_or(path.text(), 1, "not an object"),
    };
    read_matches(cx, args, out, &errors, |found, out| {
        let is_right = is_object(found);
        if is_right {
            names(found, out);
        }
        is_right
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
    let errors = ReadErrors {
        no_document: |path| no_path_or(path.text(), 0, "not an object"),
        no_match: None,
        other_type: |_| expected("object"),
    };
    read_matches(cx, args, out, &errors, |found, out| {
        let is_right = is_object(found);
        if is_right {
            out.integer(found.len() as i64);
        }
        is_right
    })
}
