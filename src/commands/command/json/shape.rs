//! The shapes of replies: values as texts, as RESP, and per match of a path.

use super::path::{Path, Spread};
use crate::command::Out;
use crate::command::declaration::CommandResult;
use basalt_core::resp::reply::SHARED_LEN_MIN;
use basalt_engine::value::json::print::Format;
use basalt_engine::value::json::{JsonRef, JsonView, Number};
use bytes::Bytes;

/// Writes a text as a string.
pub(super) fn text(text: Vec<u8>, out: &mut Out) {
    match text.len() < SHARED_LEN_MIN {
        true => out.bulk(&text),
        false => out.bulk_shared(Bytes::from(text)),
    }
}

/// Appends the text of an array of values.
pub(super) fn print_array<'d>(
    values: impl Iterator<Item = JsonRef<'d>>,
    format: &Format<'_>,
    depth: usize,
    into: &mut Vec<u8>,
) {
    let line = |depth: usize, into: &mut Vec<u8>| {
        into.extend_from_slice(format.newline);
        (0..depth).for_each(|_| into.extend_from_slice(format.indent));
    };
    into.push(b'[');
    let mut is_empty = true;
    for value in values {
        if !std::mem::take(&mut is_empty) {
            into.push(b',');
        }
        line(depth + 1, into);
        value.print_at(format, depth + 1, into);
    }
    if !is_empty {
        line(depth, into);
    }
    into.push(b']');
}

/// Writes a number as a reply.
pub(super) fn number(number: Number, out: &mut Out) {
    match number {
        Number::Int(number) => out.integer(number),
        number => out.double(number.as_f64()),
    }
}

/// The forms of values in RESP3.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Expansion {
    /// Scalars as RESP, but for strings; the rest as texts.
    Scalars,
    /// Everything as RESP.
    All,
}

/// Writes a value in a form of RESP3.
pub(super) fn expanded(value: JsonRef<'_>, expansion: Expansion, out: &mut Out) {
    match value.view() {
        JsonView::Null => out.null(),
        JsonView::Bool(truth) => out.boolean(truth),
        JsonView::Number(found) => number(found, out),
        _ if expansion == Expansion::Scalars => text(value.text(), out),
        JsonView::Text(found) => out.bulk(found),
        JsonView::Array => {
            out.array(value.len());
            value
                .elements()
                .for_each(|element| expanded(element, expansion, out));
        }
        JsonView::Object => {
            out.map(value.len());
            for (name, member) in value.members() {
                out.bulk(name);
                expanded(member, expansion, out);
            }
        }
    }
}

/// Writes a value in the form of JSON.RESP: containers are arrays that begin with their bracket.
pub(super) fn resp(value: JsonRef<'_>, out: &mut Out) {
    match value.view() {
        JsonView::Null => out.null(),
        JsonView::Bool(true) => out.simple("true"),
        JsonView::Bool(false) => out.simple("false"),
        JsonView::Number(found) => number(found, out),
        JsonView::Text(found) => out.bulk(found),
        JsonView::Array => {
            out.array(1 + value.len());
            out.simple("[");
            value.elements().for_each(|element| resp(element, out));
        }
        JsonView::Object => {
            out.array(1 + 2 * value.len());
            out.simple("{");
            for (name, member) in value.members() {
                out.bulk(name);
                resp(member, out);
            }
        }
    }
}

/// Writes the reply of a change: for JSONPath an element for each match, for a legacy path the result of the last
/// match of the right type.
pub(super) fn results<T>(
    path: &Path,
    results: Spread<T>,
    missing: impl FnOnce() -> crate::command::error::CommandError,
    out: &mut Out,
    mut write: impl FnMut(T, &mut Out),
) -> CommandResult {
    if path.is_legacy() {
        let last = results.into_iter().flatten().last().ok_or_else(missing)?;
        write(last, out);
        return Ok(());
    }
    out.array(results.len());
    for result in results {
        match result {
            Some(result) => write(result, out),
            None => out.null(),
        }
    }
    Ok(())
}
