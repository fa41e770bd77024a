//! JSON documents: their commands, replies and errors, in both dialects of paths.
//!
//! ```text
//! set      JSON.SET MSET MERGE                     documents and parts of them
//! get      JSON.GET MGET RESP                      texts and other forms of them
//! remove   JSON.DEL FORGET CLEAR
//! number   JSON.NUMINCRBY NUMMULTBY NUMPOWBY
//! scalar   JSON.TOGGLE STRAPPEND STRLEN TYPE
//! array    JSON.ARRAPPEND ARRINDEX ARRINSERT ARRLEN ARRPOP ARRTRIM
//! object   JSON.OBJKEYS OBJLEN
//! debug    JSON.DEBUG
//! path     paths: their programs, and what they find
//! ```
//!
//! A path in JSONPath (`$…`) is answered by an array with an element for each match, null where a match is of another
//! type than the command works on. A legacy path (`.…`, `name`) is answered by one value: reading commands take the
//! first match, changes apply to all matches and answer for the last. Errors begin with the codes of valkey-json, and
//! have the words of RedisJSON.

mod array;
mod computed;
mod debug;
mod get;
mod number;
mod object;
mod path;
mod remove;
mod scalar;
mod set;
mod shape;
#[cfg(test)]
mod tests;

use super::context::{Scales, ShardCx};
use super::declaration::{Command, CommandResult, KeyFlags, KeySpec};
use super::error::CommandError;
use super::{Args, Out};
use crate::config::Config;
use basalt_core::structures::table::EntrySlot;
use basalt_engine::Key;
use basalt_engine::keyspace::Keyspace;
use basalt_engine::value::DataType;
use basalt_engine::value::json::{self, JsonRef, edit};
use path::Path;

pub(super) static TABLE: &[&Command] = &[
    &array::ARRAPPEND,
    &array::ARRINDEX,
    &array::ARRINSERT,
    &array::ARRLEN,
    &array::ARRPOP,
    &array::ARRTRIM,
    &remove::CLEAR,
    &debug::DEBUG,
    &remove::DEL,
    &remove::FORGET,
    &get::GET,
    &set::MERGE,
    &get::MGET,
    &set::MSET,
    &number::NUMINCRBY,
    &number::NUMMULTBY,
    &number::NUMPOWBY,
    &object::OBJKEYS,
    &object::OBJLEN,
    &get::RESP,
    &set::SET,
    &scalar::STRAPPEND,
    &scalar::STRLEN,
    &scalar::TOGGLE,
    &scalar::TYPE,
];

/// Drops the paths that this thread keeps, for tests that count bytes.
#[cfg(test)]
pub(super) fn drop_kept_paths() {
    path::drop_kept();
}

/// The class of the events.
const CLASS: u8 = b'd';

/// The key of commands that read.
const READ_KEY: &[KeySpec] = KeySpec::FIRST_READ;

/// The key of commands that change a document and return something of it.
const CHANGED_KEY: &[KeySpec] = &[KeySpec::one(
    1,
    KeyFlags::RW.or(KeyFlags::ACCESS).or(KeyFlags::UPDATE),
)];

/// The key of commands that remove a document or a part of it.
const REMOVED_KEY: &[KeySpec] = &[KeySpec::one(1, KeyFlags::RW.or(KeyFlags::DELETE))];

const NO_KEY: &str = "NONEXISTENT could not perform this operation on a key that doesn't exist";
const NEW_AT_ROOT: &str = "SYNTAXERR new objects must be created at the root";
const OTHER_TYPE: &str = "WRONGTYPE Existing key has wrong Redis type";
const DEEP: &str = "LIMIT recursion limit exceeded";
const TOO_LARGE: &str = "LIMIT JSON document is larger than proto-max-bulk-len";
const NOT_UTF8: &str = "ERR Couldn't parse as UTF-8 string";

/// Returns the error for a path without a match.
#[cold]
fn no_path(path: &[u8]) -> CommandError {
    let path = super::error::shown(path);
    format!("NONEXISTENT Path '{path}' does not exist").into()
}

/// Returns the error for a legacy path without a match of the right type; `matches` tells how many there are of any.
#[cold]
fn no_path_or(path: &[u8], matches: usize, or: &str) -> CommandError {
    let code = match matches {
        0 => "NONEXISTENT",
        _ => "WRONGTYPE",
    };
    let path = super::error::shown(path);
    format!("{code} Path '{path}' does not exist or {or}").into()
}

/// Returns the error for a legacy path whose first match is of another type.
#[cold]
fn expected(name: &str) -> CommandError {
    format!("WRONGTYPE wrong type of path value - expected {name}").into()
}

/// Parses a text into the packed form of a value, for a command that stores or compares it.
fn parse(text: &[u8]) -> Result<Vec<u8>, CommandError> {
    json::parse(text).map_err(|error| error.to_string().into())
}

/// Returns an argument that must be UTF-8.
fn utf8<'a>(args: &Args<'a>, index: usize) -> Result<&'a [u8], CommandError> {
    let text = args.get(index);
    match std::str::from_utf8(text) {
        Ok(_) => Ok(text),
        Err(_) => Err(NOT_UTF8.into()),
    }
}

/// Returns the path at a position, where the request may end; without one, the legacy path of the whole document.
fn place(cx: &ShardCx<'_>, args: &Args<'_>, index: usize) -> Result<Path, CommandError> {
    if args.len() > index + 1 {
        return Err(CommandError::Arity(cx.command.name));
    }
    match index < args.len() {
        true => Path::of_places(args.get(index)),
        false => Path::of_places(b"."),
    }
}

/// Moves a search in a large document to another thread: passing over a value takes an eighth of
/// the time of printing it.
fn weigh_search(scales: Scales, root: JsonRef<'_>) -> CommandResult {
    scales.weigh_bytes(root.bytes().len() / 8)
}

/// Writes an array with a reply for each match.
fn per_match(
    path: &Path,
    root: JsonRef<'_>,
    out: &mut Out,
    mut write: impl FnMut(JsonRef<'_>, &mut Out),
) -> CommandResult {
    let all = path.all(root)?;
    out.array(all.len());
    all.into_iter().for_each(|found| write(found, out));
    Ok(())
}

/// The errors of a command that reads values of one type.
struct ReadErrors {
    /// There is no document, and the path is a JSONPath.
    no_document: fn(&Path) -> CommandError,
    /// A legacy path has no match; None if the reply is null then.
    no_match: Option<fn(&Path) -> CommandError>,
    /// The first match of a legacy path has another type.
    other_type: fn(&Path) -> CommandError,
}

/// Runs a command that reads something of each match of the path in its second argument, of the first match if the
/// path is legacy. `write` returns false, and writes nothing, if the value has another type.
fn read_matches(
    cx: &mut ShardCx<'_>,
    args: &Args<'_>,
    out: &mut Out,
    errors: &ReadErrors,
    write: impl Fn(JsonRef<'_>, &mut Out) -> bool,
) -> CommandResult {
    let path = place(cx, args, 2)?;
    let (key, scales) = (args.key(1), cx.scales());
    let mut keyspace = cx.at(&key);
    let Some(place) = read(&mut keyspace, &key)? else {
        if !path.is_legacy() {
            return Err((errors.no_document)(&path));
        }
        out.null();
        return Ok(());
    };
    let root = root(&keyspace, place);
    weigh_search(scales, root)?;
    if !path.is_legacy() {
        return per_match(&path, root, out, |found, out| {
            if !write(found, out) {
                out.null();
            }
        });
    }
    match (path.first(root)?, errors.no_match) {
        (Some(found), _) if write(found, out) => {}
        (Some(_), _) => return Err((errors.other_type)(&path)),
        (None, Some(no_match)) => return Err(no_match(&path)),
        (None, None) => out.null(),
    }
    Ok(())
}

/// Checks that a document may grow by some bytes.
fn check_room(config: &Config, len: usize, more: usize) -> CommandResult {
    // Lengths are kept in 32 bits, of which the headers of containers may take some.
    let most = config.proto_max_bulk_len.min(u64::from(u32::MAX / 2));
    match len as u64 + more as u64 > most {
        true => Err(TOO_LARGE.into()),
        false => Ok(()),
    }
}

/// Looks up a document for reading.
fn read(keyspace: &mut Keyspace<'_>, key: &Key<'_>) -> CommandResult<Option<EntrySlot>> {
    let found = keyspace.read_typed(key, DataType::Json);
    found.map_err(|_| OTHER_TYPE.into())
}

/// Looks up a document that is about to change, if there is one.
fn find_any(keyspace: &mut Keyspace<'_>, key: &Key<'_>) -> CommandResult<Option<EntrySlot>> {
    let found = keyspace.find_typed(key, DataType::Json);
    found.map_err(|_| OTHER_TYPE.into())
}

/// Looks up a document that must exist, for a change.
fn find(keyspace: &mut Keyspace<'_>, key: &Key<'_>) -> CommandResult<EntrySlot> {
    find_any(keyspace, key)?.ok_or_else(|| NO_KEY.into())
}

/// Returns the root of a document that was looked up.
fn root<'k>(keyspace: &'k Keyspace<'_>, place: EntrySlot) -> JsonRef<'k> {
    JsonRef::of(keyspace.entry(place))
}

/// Changes the values at these offsets of a document.
fn change(
    keyspace: &mut Keyspace<'_>,
    place: EntrySlot,
    targets: &[usize],
    apply: &mut edit::Apply<'_>,
) {
    if !targets.is_empty() {
        keyspace.edit(place, |entry| {
            json::edit(entry, |doc| edit::change_all(doc, targets, apply));
        });
    }
}
