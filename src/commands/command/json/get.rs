//! Documents and parts of them: JSON.GET, JSON.MGET and JSON.RESP.

use super::path::Path;
use super::shape::{self, Expansion};
use super::{READ_KEY, no_path, read, root};
use crate::command::context::ShardCx;
use crate::command::declaration::{Command, CommandResult, Group, KeyFlags, KeySpec};
use crate::command::error::CommandError;
use crate::command::{Args, Out};
use basalt_engine::value::DataType;
use basalt_engine::value::json::JsonRef;
use basalt_engine::value::json::print::{Format, quote};

/// `JSON.GET key [INDENT indent] [NEWLINE newline] [SPACE space] [path [path ...]]`
pub(super) static GET: Command = Command::new("json.get", Group::Json, -2)
    .reads(READ_KEY)
    .doc(
        "1.0.0",
        "key [INDENT indent] [NEWLINE newline] [SPACE space] [path [path ...]]",
        "Returns a document, or parts of it, as text.",
    )
    .complexity("O(N) where N is the size of the document.")
    .takes_long()
    .on_keys(get);

/// The options of JSON.GET.
struct GetOptions<'a> {
    format: Format<'a>,
    expansion: Option<Expansion>,
    /// Position of the first path, or the number of arguments.
    paths: usize,
}

const WRONG_FORMAT: &str = "ERR wrong reply format";
pub(super) const RESP3_ONLY: &str = "ERR FORMAT argument is not supported on RESP2";

/// Returns the form of RESP3 that a word names; None for texts.
pub(super) fn expansion(word: &[u8], texts: &str) -> Result<Option<Expansion>, CommandError> {
    if word.eq_ignore_ascii_case(texts.as_bytes()) {
        Ok(None)
    } else if word.eq_ignore_ascii_case(b"EXPAND1") {
        Ok(Some(Expansion::Scalars))
    } else if word.eq_ignore_ascii_case(b"EXPAND") {
        Ok(Some(Expansion::All))
    } else {
        Err(WRONG_FORMAT.into())
    }
}

impl<'a> GetOptions<'a> {
    fn read(args: &Args<'a>, is_resp3: bool) -> Result<GetOptions<'a>, CommandError> {
        let mut options = GetOptions {
            format: Format::default(),
            expansion: None,
            paths: 2,
        };
        while options.paths < args.len() {
            let at = options.paths;
            let value = || match args.len() > at + 1 {
                true => super::utf8(args, at + 1),
                false => Err(CommandError::Arity("json.get")),
            };
            if args.is(at, "noescape") {
                options.paths += 1;
                continue;
            } else if args.is(at, "indent") {
                options.format.indent = value()?;
            } else if args.is(at, "newline") {
                options.format.newline = value()?;
            } else if args.is(at, "space") {
                options.format.space = value()?;
            } else if args.is(at, "format") {
                if !is_resp3 {
                    return Err(RESP3_ONLY.into());
                }
                options.expansion = expansion(value()?, "string")?;
            } else {
                break;
            }
            options.paths += 2;
        }
        Ok(options)
    }
}

/// Returns the paths of a request. Options behind a path have no effect any more, as in RedisJSON.
fn paths(args: &Args<'_>, from: usize) -> Result<Vec<Path>, CommandError> {
    let (mut paths, mut at) = (Vec::with_capacity(1), from);
    while at < args.len() {
        let is_option = ["indent", "newline", "space", "format"];
        if is_option.iter().any(|word| args.is(at, word)) {
            at += 2;
        } else if args.is(at, "noescape") {
            at += 1;
        } else {
            paths.push(Path::parse(args.get(at))?);
            at += 1;
        }
    }
    if paths.is_empty() {
        paths.push(Path::parse(b".")?);
    }
    Ok(paths)
}

fn get(cx: &mut ShardCx<'_>, args: &Args<'_>, out: &mut Out) -> CommandResult {
    let options = GetOptions::read(args, out.is_resp3())?;
    let paths = paths(args, options.paths)?;
    let (key, scales) = (args.key(1), cx.scales());
    let mut keyspace = cx.at(&key);
    let Some(place) = read(&mut keyspace, &key)? else {
        out.null();
        return Ok(());
    };
    let root = root(&keyspace, place);
    let bytes = root.bytes().len();
    scales.weigh_bytes(match paths.as_slice() {
        [path] if path.is_definite() && !path.is_root() => bytes / 8,
        paths => bytes * paths.len(),
    })?;
    if let Some(expansion) = options.expansion {
        return get_expanded(&paths, root, expansion, out);
    }
    let text = match paths.as_slice() {
        [path] => {
            let mut text = Vec::with_capacity(128);
            print_matches(path, root, path.is_legacy(), &options.format, 0, &mut text)?;
            text
        }
        paths => print_paths(paths, root, &options.format)?,
    };
    shape::text(text, out);
    Ok(())
}

/// Appends the text of the first match, or of an array of all matches, within values at a depth.
fn print_matches(
    path: &Path,
    root: JsonRef<'_>,
    only_first: bool,
    format: &Format<'_>,
    depth: usize,
    text: &mut Vec<u8>,
) -> CommandResult {
    if path.is_projection() {
        let values = path.computed(root)?;
        let values = values.iter().map(|value| JsonRef::root(value));
        shape::print_array(values, format, depth, text);
    } else if only_first {
        let found = path.first(root)?.ok_or_else(|| no_path(path.text()))?;
        found.print_at(format, depth, text);
    } else if path.is_definite() {
        shape::print_array(path.first(root)?.into_iter(), format, depth, text);
    } else {
        shape::print_array(path.all(root)?.into_iter(), format, depth, text);
    }
    Ok(())
}

/// Returns the text of an object with a member for each path: arrays of all matches, unless all paths are legacy.
fn print_paths(paths: &[Path], root: JsonRef<'_>, format: &Format<'_>) -> CommandResult<Vec<u8>> {
    let only_first = paths.iter().all(Path::is_legacy);
    let mut text = vec![b'{'];
    let is_repeated = |at: usize| {
        paths[..at]
            .iter()
            .any(|path| path.text() == paths[at].text())
    };
    for (at, path) in paths.iter().enumerate() {
        if is_repeated(at) {
            continue;
        }
        if at > 0 {
            text.push(b',');
        }
        text.extend_from_slice(format.newline);
        text.extend_from_slice(format.indent);
        quote(path.text(), &mut text);
        text.push(b':');
        text.extend_from_slice(format.space);
        print_matches(path, root, only_first, format, 1, &mut text)?;
    }
    text.extend_from_slice(format.newline);
    text.push(b'}');
    Ok(text)
}

fn get_expanded(
    paths: &[Path],
    root: JsonRef<'_>,
    expansion: Expansion,
    out: &mut Out,
) -> CommandResult {
    let found: Result<Vec<_>, CommandError> = paths
        .iter()
        .map(|path| match path.is_projection() {
            true => path.computed(root).map(|values| (Vec::new(), values)),
            false => path.all(root).map(|values| (values, Vec::new())),
        })
        .collect();
    let found = found?;
    out.array(found.len());
    for (values, computed) in found {
        out.array(values.len() + computed.len());
        let computed = computed.iter().map(|value| JsonRef::root(value));
        let all = values.into_iter().chain(computed);
        all.for_each(|value| shape::expanded(value, expansion, out));
    }
    Ok(())
}

/// `JSON.MGET key [key ...] path`
pub(super) static MGET: Command = Command::new("json.mget", Group::Json, -3)
    .reads(&[KeySpec::range(1, -2, 1, KeyFlags::RO.or(KeyFlags::ACCESS))])
    .doc(
        "1.0.0",
        "key [key ...] path",
        "Returns the parts of several documents at a path, as texts.",
    )
    .complexity("O(N) where N is the size of the documents.")
    .takes_long()
    .on_keys(mget);

fn mget(cx: &mut ShardCx<'_>, args: &Args<'_>, out: &mut Out) -> CommandResult {
    let path = args.get(args.len() - 1);
    let Ok(path) = Path::parse(path) else {
        // As in RedisJSON, a bad path finds nothing in any of the documents.
        let keys = args.len() - 2;
        out.array(keys);
        (0..keys).for_each(|_| out.null());
        return Ok(());
    };
    let scales = cx.scales();
    let mut bytes = 0;
    for index in 1..args.len() - 1 {
        let key = args.key(index);
        let mut keyspace = cx.at(&key);
        if let Some(place) = keyspace.find_read(&key)
            && keyspace.kind(place).data_type() == DataType::Json
        {
            bytes += root(&keyspace, place).bytes().len();
        }
    }
    scales.weigh_bytes(bytes)?;
    let mut texts = Vec::with_capacity(args.len() - 2);
    for index in 1..args.len() - 1 {
        let (key, routed) = (args.key(index), args.routed(index));
        let entry = cx.peek(&routed, &key);
        let doc = entry.filter(|entry| {
            basalt_engine::value::ObjectKind(entry.kind()).data_type() == DataType::Json
        });
        let Some(doc) = doc else {
            texts.push(None);
            continue;
        };
        let (mut text, root) = (Vec::new(), JsonRef::of(doc));
        let format = Format::default();
        let is_missing = path.is_legacy() && !path.is_projection() && path.first(root)?.is_none();
        if !is_missing {
            print_matches(&path, root, path.is_legacy(), &format, 0, &mut text)?;
        }
        texts.push((!is_missing).then_some(text));
    }
    out.array(texts.len());
    for text in texts {
        match text {
            Some(text) => shape::text(text, out),
            None => out.null(),
        }
    }
    Ok(())
}

/// `JSON.RESP key [path]`
pub(super) static RESP: Command = Command::new("json.resp", Group::Json, -2)
    .reads(READ_KEY)
    .doc(
        "1.0.0",
        "key [path]",
        "Returns a document, or parts of it, as values of the protocol.",
    )
    .complexity("O(N) where N is the size of the document.")
    .takes_long()
    .on_keys(resp);

fn resp(cx: &mut ShardCx<'_>, args: &Args<'_>, out: &mut Out) -> CommandResult {
    if args.len() > 3 {
        return Err(CommandError::Arity("json.resp"));
    }
    let path = match args.len() {
        3 => Path::parse(args.get(2))?,
        _ => Path::parse(b".")?,
    };
    let (key, scales) = (args.key(1), cx.scales());
    let mut keyspace = cx.at(&key);
    let Some(place) = read(&mut keyspace, &key)? else {
        out.null();
        return Ok(());
    };
    let root = root(&keyspace, place);
    scales.weigh_bytes(root.bytes().len())?;
    if path.is_projection() {
        let values = path.computed(root)?;
        out.array(values.len());
        let values = values.iter().map(|value| JsonRef::root(value));
        values.for_each(|value| shape::resp(value, out));
    } else if path.is_legacy() {
        let found = path.first(root)?.ok_or_else(|| no_path(path.text()))?;
        shape::resp(found, out);
    } else {
        super::per_match(&path, root, out, shape::resp)?;
    }
    Ok(())
}
