//! Booleans, strings and types: JSON.TOGGLE, JSON.STRAPPEND, JSON.STRLEN and JSON.TYPE.

use super::path::Path;
use super::{
    CHANGED_KEY, CLASS, NO_KEY, READ_KEY, ReadErrors, change, check_room, expected, find, no_path,
    no_path_or, place, read, read_matches, root, shape, weigh_search,
};
use crate::command::context::ShardCx;
use crate::command::declaration::{Command, CommandResult, Flags, Group};
use crate::command::error::CommandError;
use crate::command::{Args, Out};
use basalt_engine::effect::Event;
use basalt_engine::value::json::edit::{self, Fate};
use basalt_engine::value::json::{JsonRef, JsonView, PackedScalar, packed_text};

const COST: &str =
    "O(1) for a path to one value, O(N) for others, where N is the size of the document.";

/// `JSON.TOGGLE key path`
pub(super) static TOGGLE: Command = Command::new("json.toggle", Group::Json, 3)
    .writes(CHANGED_KEY)
    .doc("2.0.0", "key path", "Negates Booleans in a document.")
    .complexity(COST)
    .takes_long()
    .on_keys(toggle);

fn truth_of(value: JsonRef<'_>) -> Option<bool> {
    match value.view() {
        JsonView::Bool(truth) => Some(truth),
        _ => None,
    }
}

fn toggle(cx: &mut ShardCx<'_>, args: &Args<'_>, out: &mut Out) -> CommandResult {
    let path = Path::of_places(args.get(2))?;
    let (key, scales) = (args.key(1), cx.scales());
    let mut keyspace = cx.at(&key);
    let place = find(&mut keyspace, &key)?;
    let doc = root(&keyspace, place);
    weigh_search(scales, doc)?;
    let places = path.places(doc, |value| truth_of(value).is_some())?;
    let mut results = vec![false; places.targets.len()];
    change(
        &mut keyspace,
        place,
        &places.targets,
        &mut |at, doc, spot| {
            let before = truth_of(JsonRef::root(&doc.bytes()[spot.at..]));
            results[at] = !before.unwrap_or(false);
            edit::replace(doc, spot, PackedScalar::truth(results[at]).as_bytes());
            Fate::Stays
        },
    );
    if !results.is_empty() {
        keyspace.wrote(key.bytes, Event::new(CLASS, "json.toggle"));
    }
    let missing = || no_path_or(path.text(), places.matches, "not a bool");
    let is_legacy = path.is_legacy();
    shape::results(
        &path,
        places.spread(&results),
        missing,
        out,
        |truth, out| match (is_legacy, truth) {
            (true, true) => out.bulk(b"true"),
            (true, false) => out.bulk(b"false"),
            (false, truth) => out.integer(i64::from(truth)),
        },
    )
}

/// `JSON.STRAPPEND key [path] value`
pub(super) static STRAPPEND: Command = Command::new("json.strappend", Group::Json, -3)
    .writes(CHANGED_KEY)
    .flags(Flags::DENYOOM)
    .doc(
        "1.0.0",
        "key [path] value",
        "Appends a string to strings in a document.",
    )
    .complexity(COST)
    .takes_long()
    .on_keys(strappend);

fn text_of(value: JsonRef<'_>) -> Option<&[u8]> {
    match value.view() {
        JsonView::Text(text) => Some(text),
        _ => None,
    }
}

fn strappend(cx: &mut ShardCx<'_>, args: &Args<'_>, out: &mut Out) -> CommandResult {
    let (path, text) = match args.len() {
        3 => (Path::of_places(b".")?, args.get(2)),
        4 => (Path::of_places(args.get(2))?, args.get(3)),
        _ => return Err(CommandError::Arity("json.strappend")),
    };
    let (key, scales) = (args.key(1), cx.scales());
    scales.weigh_bytes(text.len())?;
    let config = cx.config;
    let mut keyspace = cx.at(&key);
    let place = find(&mut keyspace, &key)?;
    let doc = root(&keyspace, place);
    weigh_search(scales, doc)?;
    let places = path.places(doc, |value| text_of(value).is_some())?;
    let more = super::parse(text)?;
    let more = text_of(JsonRef::root(&more)).ok_or_else(|| expected("string"))?;
    let growth = more.len().saturating_mul(places.targets.len());
    check_room(config, doc.bytes().len(), growth)?;
    let mut results = vec![0; places.targets.len()];
    change(
        &mut keyspace,
        place,
        &places.targets,
        &mut |at, doc, spot| {
            let before = text_of(JsonRef::root(&doc.bytes()[spot.at..])).unwrap_or_default();
            let text = [before, more].concat();
            results[at] = text.len();
            edit::replace(doc, spot, &packed_text(&text));
            Fate::Stays
        },
    );
    if !results.is_empty() {
        keyspace.wrote(key.bytes, Event::new(CLASS, "json.strappend"));
    }
    let missing = || no_path_or(path.text(), places.matches, "not a string");
    shape::results(&path, places.spread(&results), missing, out, |len, out| {
        out.integer(len as i64);
    })
}

/// `JSON.STRLEN key [path]`
pub(super) static STRLEN: Command = Command::new("json.strlen", Group::Json, -2)
    .reads(READ_KEY)
    .doc(
        "1.0.0",
        "key [path]",
        "Returns the lengths of strings in a document, in bytes.",
    )
    .complexity(COST)
    .takes_long()
    .on_keys(strlen);

fn strlen(cx: &mut ShardCx<'_>, args: &Args<'_>, out: &mut Out) -> CommandResult {
    let errors = ReadErrors {
        no_document: |_| NO_KEY.into(),
        no_match: Some(|path| no_path(path.text())),
        other_type: |_| expected("string"),
    };
    read_matches(cx, args, out, &errors, |found, out| {
        let text = text_of(found);
        if let Some(text) = text {
            out.integer(text.len() as i64);
        }
        text.is_some()
    })
}

/// `JSON.TYPE key [path]`
pub(super) static TYPE: Command = Command::new("json.type", Group::Json, -2)
    .reads(READ_KEY)
    .doc(
        "1.0.0",
        "key [path]",
        "Returns the types of values in a document.",
    )
    .complexity(COST)
    .takes_long()
    .on_keys(data_type);

/// In RESP3 the reply is within one more array than in RESP2.
fn data_type(cx: &mut ShardCx<'_>, args: &Args<'_>, out: &mut Out) -> CommandResult {
    let path = place(cx, args, 2)?;
    let (key, scales) = (args.key(1), cx.scales());
    let mut keyspace = cx.at(&key);
    let found = read(&mut keyspace, &key)?;
    let doc = match found {
        Some(place) => {
            let doc = root(&keyspace, place);
            weigh_search(scales, doc)?;
            Some(doc)
        }
        None => None,
    };
    let types = match doc {
        None => None,
        Some(doc) if path.is_legacy() => {
            let first = path.first(doc)?;
            first.map(|found| vec![found.type_name()])
        }
        Some(doc) => {
            let all = path.all(doc)?;
            Some(all.into_iter().map(JsonRef::type_name).collect())
        }
    };
    if out.is_resp3() {
        out.array(1);
    }
    let Some(types) = types else {
        out.null();
        return Ok(());
    };
    if !path.is_legacy() {
        out.array(types.len());
    }
    types
        .iter()
        .for_each(|name: &&str| out.bulk(name.as_bytes()));
    Ok(())
}
