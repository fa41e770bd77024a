//! Arrays: JSON.ARRAPPEND, ARRINDEX, ARRINSERT, ARRLEN, ARRPOP and ARRTRIM.

use super::get::{RESP3_ONLY, expansion};
use super::path::{Path, Places};
use super::shape::{self, Expansion};
use super::{
    CHANGED_KEY, CLASS, DEEP, NO_KEY, READ_KEY, ReadErrors, change, check_room, expected, find,
    no_path, no_path_or, per_match, read, read_matches, root, weigh_search,
};
use crate::command::context::{Scales, ShardCx};
use crate::command::declaration::{Command, CommandResult, Flags, Group};
use crate::command::error::CommandError;
use crate::command::{Args, Out};
use crate::config::Config;
use basalt_core::json_path::equal;
use basalt_core::structures::splice::Splice;
use basalt_core::structures::table::EntrySlot;
use basalt_engine::effect::Event;
use basalt_engine::keyspace::Keyspace;
use basalt_engine::value::json::edit::{self, Fate, Spot};
use basalt_engine::value::json::{DEPTH_MAX, JsonRef, JsonView};

const COST: &str =
    "O(1) for a path to one value, O(N) for others, where N is the size of the document.";
const SEARCH_COST: &str = "O(N) where N is the size of the document.";

fn is_array(value: JsonRef<'_>) -> bool {
    value.view() == JsonView::Array
}

/// Returns the array that a change has reached.
fn array_at<'d>(doc: &'d dyn Splice, spot: &Spot) -> JsonRef<'d> {
    JsonRef::root(&doc.bytes()[spot.at..])
}

/// Finds the arrays of a document that are about to change.
fn arrays(
    keyspace: &Keyspace<'_>,
    place: EntrySlot,
    path: &Path,
    scales: Scales,
) -> CommandResult<Places> {
    let doc = root(keyspace, place);
    weigh_search(scales, doc)?;
    path.places(doc, is_array)
}

/// Values that are about to be inserted into arrays: packed one after the other, their number, and the depth of the
/// deepest.
struct Inserted {
    values: Vec<u8>,
    count: usize,
    depth: usize,
}

impl Inserted {
    fn parse(args: &Args<'_>, from: usize) -> CommandResult<Inserted> {
        let mut inserted = Inserted {
            values: Vec::new(),
            count: args.len() - from,
            depth: 0,
        };
        for text in args.from(from) {
            let value = super::parse(text)?;
            inserted.depth = inserted.depth.max(JsonRef::root(&value).depth());
            inserted.values.extend_from_slice(&value);
        }
        Ok(inserted)
    }

    /// Checks that the values may be inserted into arrays at these offsets.
    fn check(&self, config: &Config, doc: JsonRef<'_>, targets: &[usize]) -> CommandResult {
        let more = self.values.len().saturating_mul(targets.len());
        check_room(config, doc.bytes().len(), more)?;
        let depth = self.depth;
        let is_deep = |at: &usize| edit::depth_around(doc.bytes(), *at) + 1 + depth > DEPTH_MAX;
        match depth > 0 && targets.iter().any(is_deep) {
            true => Err(DEEP.into()),
            false => Ok(()),
        }
    }
}

/// `JSON.ARRAPPEND key path value [value ...]`
pub(super) static ARRAPPEND: Command = Command::new("json.arrappend", Group::Json, -4)
    .writes(CHANGED_KEY)
    .flags(Flags::DENYOOM)
    .doc(
        "1.0.0",
        "key path value [value ...]",
        "Appends values to arrays in a document.",
    )
    .complexity(COST)
    .takes_long()
    .on_keys(arrappend);

fn arrappend(cx: &mut ShardCx<'_>, args: &Args<'_>, out: &mut Out) -> CommandResult {
    insert(cx, args, 3, None, "json.arrappend", out)
}

/// `JSON.ARRINSERT key path index value [value ...]`
pub(super) static ARRINSERT: Command = Command::new("json.arrinsert", Group::Json, -5)
    .writes(CHANGED_KEY)
    .flags(Flags::DENYOOM)
    .doc(
        "1.0.0",
        "key path index:integer value [value ...]",
        "Inserts values before an element of arrays in a document.",
    )
    .complexity(SEARCH_COST)
    .takes_long()
    .on_keys(arrinsert);

fn arrinsert(cx: &mut ShardCx<'_>, args: &Args<'_>, out: &mut Out) -> CommandResult {
    let index = args.integer(3)?;
    insert(cx, args, 4, Some(index), "json.arrinsert", out)
}

const OUT_OF_BOUNDS: &str = "OUTOFBOUNDARIES index out of bounds";

/// Returns the position in an array of `len` elements before which an index inserts: the end without an index.
fn position(index: Option<i64>, len: usize) -> Option<usize> {
    let Some(index) = index else { return Some(len) };
    let position = match index < 0 {
        true => len.checked_sub(usize::try_from(index.unsigned_abs()).ok()?)?,
        false => usize::try_from(index).ok()?,
    };
    (position <= len).then_some(position)
}

fn insert(
    cx: &mut ShardCx<'_>,
    args: &Args<'_>,
    from: usize,
    index: Option<i64>,
    event: &'static str,
    out: &mut Out,
) -> CommandResult {
    let path = Path::of_places(args.get(2))?;
    let (key, scales) = (args.key(1), cx.scales());
    let config = cx.config;
    let mut keyspace = cx.at(&key);
    let place = find(&mut keyspace, &key)?;
    scales.weigh_bytes(args.from(from).map(<[u8]>::len).sum())?;
    let inserted = Inserted::parse(args, from)?;
    let places = arrays(&keyspace, place, &path, scales)?;
    let doc = root(&keyspace, place);
    inserted.check(config, doc, &places.targets)?;
    let is_outside = |at: &usize| position(index, doc.at_offset(*at).len()).is_none();
    if places.targets.iter().any(is_outside) {
        return Err(OUT_OF_BOUNDS.into());
    }
    let mut results = vec![0; places.targets.len()];
    change(
        &mut keyspace,
        place,
        &places.targets,
        &mut |at, doc, spot| {
            let len = array_at(doc, spot).len();
            let before = position(index, len).unwrap_or(len);
            edit::insert_elements(doc, spot, before, &inserted.values, inserted.count);
            results[at] = len + inserted.count;
            Fate::Stays
        },
    );
    if !results.is_empty() {
        keyspace.wrote(key.bytes, Event::new(CLASS, event));
    }
    let missing = || no_path_or(path.text(), places.matches, "not an array");
    shape::results(&path, places.spread(&results), missing, out, |len, out| {
        out.integer(len as i64);
    })
}

/// `JSON.ARRINDEX key path value [start [stop]]`
pub(super) static ARRINDEX: Command = Command::new("json.arrindex", Group::Json, -4)
    .reads(READ_KEY)
    .doc(
        "1.0.0",
        "key path value [start:integer [stop:integer]]",
        "Returns the index of the first occurrence of a value in arrays of a document.",
    )
    .complexity(SEARCH_COST)
    .takes_long()
    .on_keys(arrindex);

/// Returns the first index of a value in an array, -1 if it is not in it. The range does not include its end, which is
/// that of the array if it is 0; negative positions count from the end.
fn index_of(array: JsonRef<'_>, value: JsonRef<'_>, start: i64, stop: i64) -> i64 {
    let len = array.len() as i64;
    let start = match start < 0 {
        true => (len.saturating_add(start)).max(0),
        false => start.min(len - 1).max(0),
    };
    let stop = match stop {
        0 => len,
        ..0 => (len.saturating_add(stop)).max(0),
        _ => stop.min(len),
    };
    let range = stop.saturating_sub(start).max(0);
    let mut elements = array.elements().skip(start as usize).take(range as usize);
    match elements.position(|element| equal(element, value)) {
        Some(at) => start + at as i64,
        None => -1,
    }
}

fn arrindex(cx: &mut ShardCx<'_>, args: &Args<'_>, out: &mut Out) -> CommandResult {
    if args.len() > 6 {
        return Err(CommandError::Arity("json.arrindex"));
    }
    let path = Path::of_places(args.get(2))?;
    let number = |at| match args.len() > at {
        true => args.integer(at),
        false => Ok(0),
    };
    let (start, stop) = (number(4)?, number(5)?);
    let (key, scales) = (args.key(1), cx.scales());
    scales.weigh_bytes(args.get(3).len())?;
    let value = super::parse(args.get(3))?;
    let value = JsonRef::root(&value);
    let mut keyspace = cx.at(&key);
    let Some(place) = read(&mut keyspace, &key)? else {
        return Err(no_path(path.text()));
    };
    let doc = root(&keyspace, place);
    weigh_search(scales, doc)?;
    if path.is_legacy() {
        let found = path.first(doc)?.ok_or_else(|| no_path(path.text()))?;
        if !is_array(found) {
            return Err(expected("array"));
        }
        out.integer(index_of(found, value, start, stop));
        return Ok(());
    }
    per_match(&path, doc, out, |found, out| match is_array(found) {
        true => out.integer(index_of(found, value, start, stop)),
        false => out.null(),
    })
}

/// `JSON.ARRLEN key [path]`
pub(super) static ARRLEN: Command = Command::new("json.arrlen", Group::Json, -2)
    .reads(READ_KEY)
    .doc(
        "1.0.0",
        "key [path]",
        "Returns the lengths of arrays in a document.",
    )
    .complexity(COST)
    .takes_long()
    .on_keys(arrlen);

fn arrlen(cx: &mut ShardCx<'_>, args: &Args<'_>, out: &mut Out) -> CommandResult {
    let errors = ReadErrors {
        no_document: |_| NO_KEY.into(),
        no_match: Some(|path| no_path(path.text())),
        other_type: |path| no_path_or(path.text(), 1, "not an array"),
    };
    read_matches(cx, args, out, &errors, |found, out| {
        let is_right = is_array(found);
        if is_right {
            out.integer(found.len() as i64);
        }
        is_right
    })
}

/// `JSON.ARRPOP key [path [index]]`
pub(super) static ARRPOP: Command = Command::new("json.arrpop", Group::Json, -2)
    .writes(CHANGED_KEY)
    .doc(
        "1.0.0",
        "key [path [index:integer]]",
        "Removes an element from arrays in a document, and returns it.",
    )
    .complexity(SEARCH_COST)
    .takes_long()
    .on_keys(arrpop);

/// The arguments of JSON.ARRPOP.
struct Popped {
    path: Path,
    index: i64,
    expansion: Option<Expansion>,
}

impl Popped {
    fn read(args: &Args<'_>, is_resp3: bool) -> CommandResult<Popped> {
        let (mut at, mut form) = (2, None);
        // Without a value the word is a path.
        if args.len() > 3 && args.is(2, "format") {
            form = expansion(args.get(3), "strings")?;
            if !is_resp3 {
                return Err(RESP3_ONLY.into());
            }
            at = 4;
        }
        if args.len() > at + 2 {
            return Err(CommandError::Arity("json.arrpop"));
        }
        let popped = Popped {
            path: Path::of_places(if args.len() > at { args.get(at) } else { b"." })?,
            index: match args.len() > at + 1 {
                true => args.integer(at + 1)?,
                false => -1,
            },
            expansion: form,
        };
        if popped.path.is_legacy() && popped.expansion.is_some() {
            return Err("ERR Legacy paths are supported only with FORMAT STRINGS".into());
        }
        Ok(popped)
    }
}

fn arrpop(cx: &mut ShardCx<'_>, args: &Args<'_>, out: &mut Out) -> CommandResult {
    let popped = Popped::read(args, out.is_resp3())?;
    let (key, scales) = (args.key(1), cx.scales());
    let mut keyspace = cx.at(&key);
    let place = find(&mut keyspace, &key)?;
    let places = arrays(&keyspace, place, &popped.path, scales)?;
    let mut results: Vec<Option<Vec<u8>>> = vec![None; places.targets.len()];
    change(
        &mut keyspace,
        place,
        &places.targets,
        &mut |number, doc, spot| {
            let array = array_at(doc, spot);
            let len = array.len() as i64;
            let at = match popped.index < 0 {
                true => (len.saturating_add(popped.index)).max(0),
                false => popped.index.min(len - 1),
            };
            if len > 0 {
                let at = at as usize;
                // The reply outlives the change, whose memory is charged to the shard.
                results[number] = basalt_core::alloc::account::uncharged(|| {
                    array.element(at).map(|element| element.bytes().to_vec())
                });
                edit::remove_elements(doc, spot, at..at + 1);
            }
            Fate::Stays
        },
    );
    if results.iter().any(Option::is_some) {
        keyspace.wrote(key.bytes, Event::new(CLASS, "json.arrpop"));
    }
    let missing = || no_path_or(popped.path.text(), places.matches, "not an array");
    let spread = places.spread(&results);
    shape::results(&popped.path, spread, missing, out, |element, out| {
        match (&element, popped.expansion) {
            (None, _) => out.null(),
            (Some(element), Some(form)) => shape::expanded(JsonRef::root(element), form, out),
            (Some(element), None) => shape::text(JsonRef::root(element).text(), out),
        }
    })
}

/// `JSON.ARRTRIM key path start stop`
pub(super) static ARRTRIM: Command = Command::new("json.arrtrim", Group::Json, 5)
    .writes(CHANGED_KEY)
    .doc(
        "1.0.0",
        "key path start:integer stop:integer",
        "Removes the elements outside of a range from arrays in a document.",
    )
    .complexity(SEARCH_COST)
    .takes_long()
    .on_keys(arrtrim);

/// Returns the range of elements that stay.
fn kept(start: i64, stop: i64, len: usize) -> std::ops::Range<usize> {
    let len = len as i64;
    let from_end = |index: i64| match index < 0 {
        true => (len.saturating_add(index)).max(0),
        false => index,
    };
    let (start, stop) = (from_end(start), from_end(stop).min(len - 1));
    match start > stop || start >= len {
        true => 0..0,
        false => start as usize..stop as usize + 1,
    }
}

fn arrtrim(cx: &mut ShardCx<'_>, args: &Args<'_>, out: &mut Out) -> CommandResult {
    let path = Path::of_places(args.get(2))?;
    let (start, stop) = (args.integer(3)?, args.integer(4)?);
    let (key, scales) = (args.key(1), cx.scales());
    let mut keyspace = cx.at(&key);
    let place = find(&mut keyspace, &key)?;
    let places = arrays(&keyspace, place, &path, scales)?;
    let mut results = vec![0; places.targets.len()];
    change(
        &mut keyspace,
        place,
        &places.targets,
        &mut |at, doc, spot| {
            let len = array_at(doc, spot).len();
            let kept = kept(start, stop, len);
            edit::remove_elements(doc, spot, kept.end..len);
            edit::remove_elements(doc, spot, 0..kept.start);
            results[at] = kept.len();
            Fate::Stays
        },
    );
    if !results.is_empty() {
        keyspace.wrote(key.bytes, Event::new(CLASS, "json.arrtrim"));
    }
    let missing = || no_path_or(path.text(), places.matches, "not an array");
    shape::results(&path, places.spread(&results), missing, out, |len, out| {
        out.integer(len as i64);
    })
}
