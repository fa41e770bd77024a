//! Numbers: JSON.NUMINCRBY, JSON.NUMMULTBY and JSON.NUMPOWBY.

use super::path::{Path, Places};
use super::{CHANGED_KEY, CLASS, change, find, no_path_or, root, shape, weigh_search};
use crate::command::context::ShardCx;
use crate::command::declaration::{Command, CommandResult, Group};
use crate::command::error::CommandError;
use crate::command::{Args, Out};
use basalt_engine::effect::Event;
use basalt_engine::value::json::edit::{self, Fate};
use basalt_engine::value::json::{JsonRef, JsonView, Number, PackedScalar, parse_number};
use smallvec::SmallVec;

const COST: &str =
    "O(1) for a path to one value, O(N) for others, where N is the size of the document.";

/// `JSON.NUMINCRBY key path value`
pub(super) static NUMINCRBY: Command = Command::new("json.numincrby", Group::Json, 4)
    .writes(CHANGED_KEY)
    .doc(
        "1.0.0",
        "key path value:double",
        "Increments numbers in a document.",
    )
    .complexity(COST)
    .takes_long()
    .on_keys(numincrby);

/// `JSON.NUMMULTBY key path value`
pub(super) static NUMMULTBY: Command = Command::new("json.nummultby", Group::Json, 4)
    .writes(CHANGED_KEY)
    .doc(
        "1.0.0",
        "key path value:double",
        "Multiplies numbers in a document.",
    )
    .complexity(COST)
    .takes_long()
    .on_keys(nummultby);

/// `JSON.NUMPOWBY key path value`
pub(super) static NUMPOWBY: Command = Command::new("json.numpowby", Group::Json, 4)
    .writes(CHANGED_KEY)
    .doc(
        "1.0.0",
        "key path value:double",
        "Raises numbers in a document to a power.",
    )
    .complexity(COST)
    .takes_long()
    .on_keys(numpowby);

/// An operation, on integers and on floats.
struct Operation {
    event: &'static str,
    /// None if the result is no integer, or too large.
    integers: fn(i128, i128) -> Option<i128>,
    floats: fn(f64, f64) -> f64,
}

fn numincrby(cx: &mut ShardCx<'_>, args: &Args<'_>, out: &mut Out) -> CommandResult {
    let operation = Operation {
        event: "json.numincrby",
        integers: i128::checked_add,
        floats: |left, right| left + right,
    };
    compute(cx, args, &operation, out)
}

fn nummultby(cx: &mut ShardCx<'_>, args: &Args<'_>, out: &mut Out) -> CommandResult {
    let operation = Operation {
        event: "json.nummultby",
        integers: i128::checked_mul,
        floats: |left, right| left * right,
    };
    compute(cx, args, &operation, out)
}

fn numpowby(cx: &mut ShardCx<'_>, args: &Args<'_>, out: &mut Out) -> CommandResult {
    let operation = Operation {
        event: "json.numpowby",
        integers: |left, right| left.checked_pow(u32::try_from(right).ok()?),
        floats: f64::powf,
    };
    compute(cx, args, &operation, out)
}

const OVERFLOW: &str = "OVERFLOW numeric overflow";
const NOT_NUMBER: &str = "WRONGTYPE bad input number";

fn integer(number: Number) -> Option<i128> {
    match number {
        Number::Int(number) => Some(number.into()),
        Number::Uint(number) => Some(number.into()),
        Number::Float(_) => None,
    }
}

impl Operation {
    /// Returns the result for one number of a document: an integer if both are. As in RedisJSON, integers beyond those
    /// of an `i64` are kept as such in arrays only; elsewhere they count as floats.
    fn result(
        &self,
        before: Number,
        by: Number,
        is_in_array: impl FnOnce() -> bool,
    ) -> Result<Number, CommandError> {
        if let (Some(left), Some(right)) = (integer(before), integer(by)) {
            let are_long = matches!(before, Number::Uint(_)) || matches!(by, Number::Uint(_));
            let result = (self.integers)(left, right);
            let short = result.and_then(|result| i64::try_from(result).ok());
            if let (Some(short), false) = (short, are_long) {
                return Ok(Number::Int(short));
            }
            if is_in_array() {
                let long = result.and_then(|result| u64::try_from(result).ok());
                let long = long.map(Number::Uint);
                return Ok(short.map(Number::Int).or(long).ok_or(OVERFLOW)?);
            }
            if !are_long {
                return Err(OVERFLOW.into());
            }
        }
        let result = (self.floats)(before.as_f64(), by.as_f64());
        match result.is_finite() {
            true => Ok(Number::Float(result)),
            false => Err(OVERFLOW.into()),
        }
    }
}

fn number_of(value: JsonRef<'_>) -> Option<Number> {
    match value.view() {
        JsonView::Number(number) => Some(number),
        _ => None,
    }
}

/// Computes all results before the first of them is stored, so that an overflow changes nothing.
fn compute(
    cx: &mut ShardCx<'_>,
    args: &Args<'_>,
    operation: &Operation,
    out: &mut Out,
) -> CommandResult {
    let path = Path::of_places(args.get(2))?;
    let (key, scales) = (args.key(1), cx.scales());
    let mut keyspace = cx.at(&key);
    let place = find(&mut keyspace, &key)?;
    let by = parse_number(args.get(3)).map_err(|error| CommandError::from(error.to_string()))?;
    let by = by.ok_or(NOT_NUMBER)?;
    let doc = root(&keyspace, place);
    weigh_search(scales, doc)?;
    let places = path.places(doc, |value| number_of(value).is_some())?;
    let results: Result<SmallVec<[Number; 1]>, CommandError> = places
        .targets
        .iter()
        .filter_map(|at| number_of(doc.at_offset(*at)).map(|before| (*at, before)))
        .map(|(at, before)| operation.result(before, by, || edit::is_in_array(doc.bytes(), at)))
        .collect();
    let results = results?;
    change(
        &mut keyspace,
        place,
        &places.targets,
        &mut |at, doc, spot| {
            edit::replace(doc, spot, PackedScalar::number(results[at]).as_bytes());
            Fate::Stays
        },
    );
    if !results.is_empty() {
        keyspace.wrote(key.bytes, Event::new(CLASS, operation.event));
    }
    reply(&path, &places, &results, out)
}

/// In RESP3 the reply is an array for both dialects; in RESP2 it is text, for JSONPath that of an array.
fn reply(path: &Path, places: &Places, results: &[Number], out: &mut Out) -> CommandResult {
    let results = places.spread(results);
    if path.is_legacy() && results.iter().all(Option::is_none) {
        return Err(no_path_or(
            path.text(),
            places.matches,
            "does not contains a number",
        ));
    }
    if out.is_resp3() {
        out.array(results.len());
        for result in results {
            match result {
                Some(number) => shape::number(number, out),
                None => out.null(),
            }
        }
        return Ok(());
    }
    if path.is_legacy() {
        if let Some(last) = results.into_iter().flatten().last() {
            out.bulk(last.text().as_bytes());
        }
        return Ok(());
    }
    let mut text = vec![b'['];
    for (at, result) in results.into_iter().enumerate() {
        if at > 0 {
            text.push(b',');
        }
        match result {
            Some(number) => text.extend_from_slice(number.text().as_bytes()),
            None => text.extend_from_slice(b"null"),
        }
    }
    text.push(b']');
    out.bulk(&text);
    Ok(())
}
