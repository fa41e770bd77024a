//! Commands that remove documents or empty parts of them: JSON.DEL, JSON.FORGET and JSON.CLEAR.

use super::path::outermost;
use super::{CHANGED_KEY, CLASS, REMOVED_KEY, change, find, find_any, place, root, weigh_search};
use crate::command::context::ShardCx;
use crate::command::declaration::{Command, CommandResult, Group};
use crate::command::{Args, Out};
use basalt_engine::effect::Event;
use basalt_engine::value::json::edit::{self, Fate};
use basalt_engine::value::json::{JsonRef, JsonView, Number, PackedScalar, packed_empty};

/// `JSON.DEL key [path]`
pub(super) static DEL: Command = Command::new("json.del", Group::Json, -2)
    .writes(REMOVED_KEY)
    .doc(
        "1.0.0",
        "key [path]",
        "Removes a document, or values from it.",
    )
    .complexity("O(N) where N is the size of the document.")
    .takes_long()
    .on_keys(del);

/// `JSON.FORGET key [path]`
pub(super) static FORGET: Command = Command::new("json.forget", Group::Json, -2)
    .writes(REMOVED_KEY)
    .doc("1.0.0", "key [path]", "Does what JSON.DEL does.")
    .complexity("O(N) where N is the size of the document.")
    .takes_long()
    .on_keys(del);

fn del(cx: &mut ShardCx<'_>, args: &Args<'_>, out: &mut Out) -> CommandResult {
    let path = place(cx, args, 2)?;
    let (key, scales) = (args.key(1), cx.scales());
    let mut keyspace = cx.at(&key);
    let Some(place) = find_any(&mut keyspace, &key)? else {
        out.integer(0);
        return Ok(());
    };
    let event = Event::new(CLASS, "json.del");
    if path.is_root() {
        keyspace.delete(place);
        keyspace.wrote(key.bytes, event);
        out.integer(1);
        return Ok(());
    }
    let doc = root(&keyspace, place);
    weigh_search(scales, doc)?;
    let targets = outermost(doc, &path.places(doc, |_| true)?.targets);
    // A path other than that of the root may all the same lead to it, as `$..a` never does, but `($)`.
    if targets.first() == Some(&0) {
        keyspace.delete(place);
        keyspace.wrote(key.bytes, event);
        out.integer(1);
        return Ok(());
    }
    change(&mut keyspace, place, &targets, &mut |_, _, _| Fate::Goes);
    if !targets.is_empty() {
        // As in RedisJSON, a document goes with the last of its members.
        if root(&keyspace, place).is_empty() {
            keyspace.delete(place);
        }
        keyspace.wrote(key.bytes, event);
    }
    out.integer(targets.len() as i64);
    Ok(())
}

/// `JSON.CLEAR key [path]`
pub(super) static CLEAR: Command = Command::new("json.clear", Group::Json, -2)
    .writes(CHANGED_KEY)
    .doc(
        "2.0.0",
        "key [path]",
        "Empties arrays and objects of a document, and sets numbers to 0.",
    )
    .complexity("O(N) where N is the size of the document.")
    .takes_long()
    .on_keys(clear);

/// Returns what a value is when it is cleared, packed; None if it is so already, or is of a type that stays.
fn cleared(value: JsonRef<'_>) -> Option<Vec<u8>> {
    match value.view() {
        JsonView::Array | JsonView::Object if value.is_empty() => None,
        found @ (JsonView::Array | JsonView::Object) => {
            Some(packed_empty(found == JsonView::Object))
        }
        JsonView::Number(number) if number.as_f64() != 0.0 => {
            Some(PackedScalar::number(Number::Int(0)).as_bytes().to_vec())
        }
        _ => None,
    }
}

fn clear(cx: &mut ShardCx<'_>, args: &Args<'_>, out: &mut Out) -> CommandResult {
    let path = place(cx, args, 2)?;
    let (key, scales) = (args.key(1), cx.scales());
    let mut keyspace = cx.at(&key);
    let place = find(&mut keyspace, &key)?;
    let doc = root(&keyspace, place);
    weigh_search(scales, doc)?;
    let places = path.places(doc, |value| cleared(value).is_some())?;
    let count = places.targets.len();
    let targets = outermost(doc, &places.targets);
    change(&mut keyspace, place, &targets, &mut |_, doc, spot| {
        if let Some(value) = cleared(JsonRef::root(&doc.bytes()[spot.at..])) {
            edit::replace(doc, spot, &value);
        }
        Fate::Stays
    });
    if count > 0 {
        keyspace.wrote(key.bytes, Event::new(CLASS, "json.clear"));
    }
    out.integer(count as i64);
    Ok(())
}
