//! Streams: IDs are given, never made from the clock, so that both servers have the same.

use crate::support::Draw;
use crate::wire::Value;

/// The rows.
pub(crate) const ROWS: &[(u32, &str)] = &[
    (
        14,
        "XADD {stream} [NOMKSTREAM] [(MAXLEN|MINID) [=|~] {trim} [LIMIT {small}]] {new_id} ({field_name} {value})*",
    ),
    (14, "XADD {stream} {new_id} ({field_name} {value})*"),
    (1, "XADD {key} {new_id} {field_name} {value}"),
    (2, "XLEN {stream}"),
    (4, "XRANGE {stream} {bound} {bound} [COUNT {count}]"),
    (
        4,
        "XREVRANGE {stream} {bound} {bound} [COUNT {count}|{junk}]",
    ),
    (4, "XDEL {stream} {old_id}*"),
    (
        4,
        "XTRIM {stream} (MAXLEN|MINID) [=|~] {trim} [LIMIT {small}|{junk}]",
    ),
    (4, "XREAD [COUNT {count}] STREAMS {stream} {read_id}"),
    (
        2,
        "XREAD [COUNT {count}] STREAMS {stream} {stream} {read_id} {read_id}",
    ),
    // Behind all that is deleted: 7.0 does not look at that.
    (
        1,
        "XSETID {stream} (59-9|60-1|60-2) [ENTRIESADDED {small}] [MAXDELETEDID {old_id}]",
    ),
    (
        6,
        "XGROUP CREATE {stream} {group} {group_id} [MKSTREAM] [ENTRIESREAD {small}|{junk}]",
    ),
    (
        3,
        "XGROUP SETID {stream} {group} {group_id} [ENTRIESREAD {small}]",
    ),
    (1, "XGROUP DESTROY {stream} {group}"),
    (
        2,
        "XGROUP (CREATECONSUMER|DELCONSUMER) {stream} {group} {consumer}",
    ),
    (
        10,
        "XREADGROUP GROUP {group} {consumer} [COUNT {count}] [NOACK] STREAMS {stream} {group_read_id}",
    ),
    (
        2,
        "XREADGROUP GROUP {group} {consumer} [COUNT {count}] STREAMS {stream} {stream} {group_read_id} >",
    ),
    (4, "XACK {stream} {group} {old_id}*"),
    (3, "XPENDING {stream} {group}"),
    (
        4,
        "XPENDING {stream} {group} [IDLE 0] {bound} {bound} {count} [{consumer}]",
    ),
    (
        5,
        "XCLAIM {stream} {group} {consumer} 0 {old_id}* [RETRYCOUNT {small}] [FORCE] [JUSTID] [LASTID {old_id}|{junk}]",
    ),
    (
        4,
        "XAUTOCLAIM {stream} {group} {consumer} 0 {bound} [COUNT {count}] [JUSTID]",
    ),
    (3, "XINFO STREAM {stream} [FULL [COUNT {count}]]"),
    (2, "XINFO GROUPS {stream}"),
    (2, "XINFO CONSUMERS {stream} {group}"),
    (1, "XINFO {junk} {stream}"),
];

/// Returns a word of a kind that only streams have.
pub(crate) fn word(draw: &mut Draw, kind: &str) -> Option<Vec<u8>> {
    let number = |draw: &mut Draw, bound: usize| draw.below(bound).to_string();
    let small_id = |draw: &mut Draw, ms: usize| match draw.below(3) {
        0 => number(draw, ms),
        _ => format!("{}-{}", draw.below(ms), draw.below(4)),
    };
    let pick = |draw: &mut Draw, pool: &[&str]| pool[draw.below(pool.len())].to_owned();
    Some(
        match kind {
            "stream" => pick(draw, &["a", "b", "a", "b", "c", "{t}e"]),
            "group" => pick(draw, &["g", "g", "g", "h"]),
            "consumer" => pick(draw, &["c", "c", "d", "e"]),
            "field_name" => pick(draw, &["f", "f", "f", "g", "1", ""]),
            "count" => pick(draw, &["0", "1", "1", "2", "3", "100", "-1"]),
            "trim" => match draw.below(3) {
                0 => small_id(draw, 60),
                _ => number(draw, 12),
            },
            // Mostly greater than the existing ones.
            "new_id" => match draw.below(12) {
                0 => format!("{}-*", draw.below(60)),
                1 => pick(
                    draw,
                    &[
                        "0-0",
                        "0-*",
                        "-",
                        "+",
                        "x",
                        "7-18446744073709551615",
                        "01-02",
                        "1-1-1",
                    ],
                ),
                _ => format!("{}-{}", draw.below(60), draw.below(9)),
            },
            "old_id" => match draw.below(20) {
                0 => pick(
                    draw,
                    &["x", "-", "0", "18446744073709551615-18446744073709551615"],
                ),
                _ => format!("{}-{}", draw.below(60), draw.below(9)),
            },
            "bound" => match draw.below(10) {
                0..=3 => pick(draw, &["-", "+"]),
                4 => pick(
                    draw,
                    &[
                        "(",
                        "(-",
                        "(+",
                        "x",
                        "(0-0",
                        "0",
                        "18446744073709551615",
                        "(18446744073709551615-18446744073709551615",
                    ],
                ),
                5 | 6 => format!("({}", small_id(draw, 60)),
                _ => small_id(draw, 60),
            },
            "read_id" => match draw.below(6) {
                0 => pick(draw, &["$", "0", "x", ">", "18446744073709551615"]),
                1 => "0".to_owned(),
                _ => small_id(draw, 60),
            },
            "group_id" => match draw.below(4) {
                0 => "$".to_owned(),
                1 => "0".to_owned(),
                2 => pick(draw, &["x", "-", "+"]),
                _ => small_id(draw, 60),
            },
            "group_read_id" => match draw.below(6) {
                0 => pick(draw, &["0", "$", "x", "18446744073709551615"]),
                1 => small_id(draw, 60),
                _ => ">".to_owned(),
            },
            _ => return None,
        }
        .into_bytes(),
    )
}

/// True if the replies are equal, except for times and for the changes of 7.2.
pub(crate) fn alike(words: &[Vec<u8>], ours: &Value, theirs: &Value) -> bool {
    let is = |at: usize, word: &str| {
        words
            .get(at)
            .is_some_and(|given| given.eq_ignore_ascii_case(word.as_bytes()))
    };
    if let (Value::Error(ours), Value::Error(theirs)) = (ours, theirs) {
        let unbalanced = |text: &[u8]| text.starts_with(b"ERR Unbalanced");
        // 7.0 takes an exhausted millisecond for an entry that is too large.
        let exhausted = theirs.starts_with(b"ERR Elements are too large")
            && ours.starts_with(b"ERR The ID specified in XADD is equal or smaller");
        // 7.2 looks at the greatest deleted ID first.
        let too_small =
            |text: &[u8]| text.starts_with(b"ERR The ID specified in XSETID is smaller");
        return unbalanced(ours) && unbalanced(theirs)
            || too_small(ours) && too_small(theirs)
            || exhausted;
    }
    if is(0, "XGROUP") && is(1, "CREATECONSUMER") {
        return matches!((ours, theirs), (Value::Integer(0), Value::Integer(1)));
    }
    let timeless = |value: &Value| match () {
        () if is(0, "XPENDING") => without_idle(value),
        () if is(0, "XINFO") => without_times(value),
        () => value.clone(),
    };
    timeless(ours) == timeless(theirs)
}

/// Removes the idle times of pending entries.
fn without_idle(value: &Value) -> Value {
    match value {
        Value::Array(items) if items.len() == 4 && matches!(items[2], Value::Integer(_)) => {
            Value::Array([&items[..2], &items[3..]].concat())
        }
        Value::Array(items) => Value::Array(items.iter().map(without_idle).collect()),
        other => other.clone(),
    }
}

const TIMES: [&[u8]; 4] = [b"idle", b"inactive", b"seen-time", b"active-time"];

/// Fields of a stream and its groups that 8.6 and 8.8 report beyond those of 7.0.
const NEWER: [&[u8]; 7] = [
    b"idmp-duration",
    b"idmp-maxsize",
    b"pids-tracked",
    b"iids-tracked",
    b"iids-added",
    b"iids-duplicates",
    b"nacked-count",
];

/// Names and values, which RESP2 has in one row.
fn pairs(value: &Value) -> Vec<(Value, Value)> {
    match value {
        Value::Map(pairs) => pairs.clone(),
        Value::Array(items) if items.len().is_multiple_of(2) => items
            .chunks(2)
            .map(|pair| (pair[0].clone(), pair[1].clone()))
            .collect(),
        _ => Vec::new(),
    }
}

fn is_named(name: &Value, names: &[&[u8]]) -> bool {
    matches!(name, Value::Bulk(name) if names.contains(&name.as_slice()))
}

/// True for a consumer without entries: 7.0 creates none for a claim that finds nothing.
fn is_idle_consumer(value: &Value) -> bool {
    let pairs = pairs(value);
    let has_time = pairs.iter().any(|(name, _)| is_named(name, &TIMES));
    let has_nothing = pairs.iter().any(|(name, count)| {
        is_named(name, &[b"pending", b"pel-count"]) && *count == Value::Integer(0)
    });
    has_time && has_nothing
}

/// Streams, groups and consumers without times, and without consumers that have nothing.
fn without_times(value: &Value) -> Value {
    let named = pairs(value);
    if named
        .iter()
        .any(|(name, _)| is_named(name, &[b"name", b"length"]))
    {
        let kept = named
            .iter()
            .filter(|(name, value)| {
                let is_count =
                    is_named(name, &[b"consumers"]) && matches!(value, Value::Integer(_));
                !is_count && !is_named(name, &TIMES) && !is_named(name, &NEWER)
            })
            .map(|(name, value)| (name.clone(), without_times(value)));
        return Value::Map(kept.collect());
    }
    match value {
        Value::Array(items) => {
            // A pending entry: its time stands before the last number.
            let is_pending = (items.len() == 3 || items.len() == 4)
                && items[items.len() - 2..]
                    .iter()
                    .all(|item| matches!(item, Value::Integer(_)));
            let kept = items
                .iter()
                .enumerate()
                .filter(|(at, item)| {
                    !(is_idle_consumer(item) || is_pending && at + 2 == items.len())
                })
                .map(|(_, item)| without_times(item));
            Value::Array(kept.collect())
        }
        other => other.clone(),
    }
}
