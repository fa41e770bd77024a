//! Errors on their way through the interpreter.
//!
//! A failing callback returns a [`Raised`] inside an `mlua::Error`, which Lua carries as a userdata. Where scripts
//! can see it (their `pcall`, `xpcall` and `coroutine.resume`, and the handler below every script), it is converted
//! to what Redis would give: a string, or a table with `err`. An interruption is not converted but raised again.

use std::borrow::Cow;
use std::fmt;

use mlua::debug::DebugSource;
use mlua::{Error, Lua, Table, Value};

use basalt_core::base::lossless;

/// The value that a callback raises instead of returning normally.
#[derive(Clone, Debug)]
pub(super) enum Raised {
    /// A text with its position, as raised by `error("…")`.
    Text(Vec<u8>),
    /// A table with the text of an error reply in `err`.
    Reply {
        /// The text of the error reply: code, space, message.
        text: Vec<u8>,
        /// Whether the error has already been counted in the statistics.
        is_counted: bool,
    },
    /// The script must end; the reason is in `Run::interrupted`.
    Interrupted,
}

impl fmt::Display for Raised {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Raised::Text(text) | Raised::Reply { text, .. } => {
                f.write_str(&String::from_utf8_lossy(text))
            }
            Raised::Interrupted => f.write_str("the script is interrupted"),
        }
    }
}

impl std::error::Error for Raised {}

impl From<Raised> for Error {
    fn from(raised: Raised) -> Error {
        Error::external(raised)
    }
}

/// Returns an error that raises a table, as the functions of `redis` do; the text may quote a client.
pub(super) fn reply(text: &str) -> Error {
    let raised = Raised::Reply {
        text: with_code(&lossless::bytes_of(text)),
        is_counted: false,
    };
    raised.into()
}

/// Returns an error whose text names the line that called the function, as Lua's own libraries do.
pub(super) fn complain(lua: &Lua, text: impl AsRef<[u8]>) -> Error {
    let mut whole = whereabouts(lua, 1);
    whole.extend_from_slice(text.as_ref());
    Raised::Text(whole).into()
}

/// Returns an error whose text names the script's line, for a function that replaces one of Lua's own.
pub(super) fn complain_in_place(lua: &Lua, text: &str) -> Error {
    let mut whole = whereabouts(lua, 1);
    if whole.is_empty() {
        whole = whereabouts(lua, 2);
    }
    whole.extend_from_slice(text.as_bytes());
    Raised::Text(whole).into()
}

/// Returns an error about a bad argument. As in Lua's own libraries, the error names the function as the
/// script's call does, or `?` if the script does not call it directly (but through `pcall`). For functions
/// called by the prelude it uses `function`.
pub(super) fn bad_argument(lua: &Lua, number: usize, function: &str, why: &str) -> Error {
    let called = lua.inspect_stack(0, |frame| {
        let names = frame.names();
        let name = names.name.map(Cow::into_owned);
        (name, names.name_what == Some("method"))
    });
    let is_ours = lua.inspect_stack(1, |frame| frame.source().source.as_deref() == Some(PRELUDE));
    let (name, is_method) = match (called, is_ours) {
        (Some((name, is_method)), Some(false)) => (name.unwrap_or("?".to_owned()), is_method),
        _ => (function.to_owned(), false),
    };
    // In a method call (`a:b()`), the value before the colon does not count as an argument.
    let text = match (number, is_method) {
        (1, true) => format!("calling '{name}' on bad self ({why})"),
        (number, _) => {
            let number = number - usize::from(is_method && number > 0);
            format!("bad argument #{number} to '{name}' ({why})")
        }
    };
    complain(lua, text)
}

/// Returns an error about an argument of the wrong type.
pub(super) fn wrong_type(
    lua: &Lua,
    number: usize,
    function: &str,
    wanted: &str,
    got: Option<&Value>,
) -> Error {
    let got = got.map_or("no value", type_name);
    bad_argument(
        lua,
        number,
        function,
        &format!("{wanted} expected, got {got}"),
    )
}

/// Returns the name of a value's type in Lua.
pub(super) fn type_name(value: &Value) -> &'static str {
    match value {
        Value::Integer(_) => "number",
        other => other.type_name(),
    }
}

/// Returns `source:line: ` of the stack frame `level` above the running callback; empty if the frame has no
/// line.
fn whereabouts(lua: &Lua, level: usize) -> Vec<u8> {
    let place = lua.inspect_stack(level, |frame| {
        let line = frame.current_line()?;
        let source = frame.source().short_src?.into_owned();
        Some(format!("{source}:{line}: "))
    });
    place.flatten().unwrap_or_default().into_bytes()
}

/// Position prefix of messages that name the prelude as the source.
const PRELUDE_NAME: &[u8] = b"basalt:";

/// Source name of the prelude.
const PRELUDE: &str = "=basalt";

/// Maximum number of stack frames inspected.
const FRAMES_MAX: usize = 10;

/// Finds the nearest frame, from level `first` on, that belongs to the script; returns the name of its source, read by
/// `name`, and its line.
pub(super) fn script_frame(
    lua: &Lua,
    first: usize,
    name: fn(DebugSource<'_>) -> Option<Cow<'_, str>>,
) -> Option<(String, usize)> {
    // `inspect_stack` returns `None` beyond the last frame.
    let frames = (first..FRAMES_MAX).map_while(|level| {
        lua.inspect_stack(level, |frame| {
            let source = frame.source();
            let is_ours = source.what == "C" || source.source.as_deref() == Some(PRELUDE);
            let line = frame.current_line();
            let name = name(source).map(Cow::into_owned);
            (!is_ours).then_some(name.zip(line)).flatten()
        })
    });
    frames.flatten().next()
}

/// Returns `source:line: ` of the nearest frame that belongs to the script.
fn user_place(lua: &Lua) -> Vec<u8> {
    let place = script_frame(lua, 0, |source| source.short_src);
    place.map_or(Vec::new(), |(source, line)| {
        format!("{source}:{line}: ").into_bytes()
    })
}

/// Returns the [`Raised`] inside an error of the interpreter.
pub(super) fn raised(error: &Error) -> Option<&Raised> {
    match error {
        Error::CallbackError { cause, .. } => raised(cause),
        Error::ExternalError(inner) => inner.downcast_ref(),
        _ => None,
    }
}

/// Converts a caught Lua value to the form that scripts are to see.
pub(super) fn caught(lua: &Lua, value: Value) -> mlua::Result<Value> {
    let error = match &value {
        Value::Error(error) => error,
        Value::String(text) => {
            // Lua's own functions name the position of the prelude function that called them: replace it by the
            // script's position.
            let text = text.as_bytes();
            let Some(rest) = text.strip_prefix(PRELUDE_NAME) else {
                return Ok(value.clone());
            };
            let start = memchr::memmem::find(rest, b": ").map_or(0, |at| at + 2);
            let mut whole = user_place(lua);
            whole.extend_from_slice(&rest[start..]);
            return lua.create_string(whole).map(Value::String);
        }
        _ => return Ok(value),
    };
    match raised(error) {
        Some(Raised::Interrupted) => Ok(value),
        Some(Raised::Text(text)) => lua.create_string(text).map(Value::String),
        Some(Raised::Reply { text, is_counted }) => table(lua, text, *is_counted).map(Value::Table),
        None => {
            let text = plain(error);
            lua.create_string(text).map(Value::String)
        }
    }
}

/// Formats an error of the interpreter itself, without traceback.
pub(super) fn plain(error: &Error) -> String {
    match error {
        Error::CallbackError { cause, .. } => plain(cause),
        Error::RuntimeError(text) | Error::MemoryError(text) => text
            .split("\nstack traceback:")
            .next()
            .unwrap_or_default()
            .to_owned(),
        other => other.to_string(),
    }
}

/// True if a caught value means that the script must end.
pub(super) fn is_interruption(value: &Value) -> bool {
    matches!(value, Value::Error(error) if matches!(raised(error), Some(Raised::Interrupted)))
}

/// Creates a table that represents an error reply.
pub(super) fn table(lua: &Lua, text: &[u8], is_counted: bool) -> mlua::Result<Table> {
    let table = lua.create_table_with_capacity(0, 4)?;
    table.raw_set("err", lua.create_string(text)?)?;
    if is_counted {
        table.raw_set("ignore_error_stats_update", true)?;
    }
    Ok(table)
}

/// Formats the text of an error reply. `-CODE message` keeps its code; without a code it gets `ERR`.
pub(super) fn with_code(text: &[u8]) -> Vec<u8> {
    let trim = |text: &[u8]| {
        let is_end = |byte: &u8| matches!(byte, b'\r' | b'\n');
        let start = text
            .iter()
            .position(|byte| !is_end(byte))
            .unwrap_or(text.len());
        let end = text
            .iter()
            .rposition(|byte| !is_end(byte))
            .map_or(start, |at| at + 1);
        text[start..end].to_vec()
    };
    let (code, sentence) = match text.strip_prefix(b"-") {
        None => (&b"ERR"[..], text),
        Some(rest) => match rest.iter().position(|byte| *byte == b' ') {
            Some(at) => (&rest[..at], &rest[at + 1..]),
            None => (&b"ERR"[..], rest),
        },
    };
    let mut whole = code.to_vec();
    whole.push(b' ');
    whole.extend(trim(sentence));
    whole
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_error_reply_has_a_code() {
        for (text, expected) in [
            ("no such thing", "ERR no such thing"),
            ("-WRONGTYPE not that", "WRONGTYPE not that"),
            ("-OOPS", "ERR OOPS"),
            ("-My Err\r\n", "My Err"),
            ("", "ERR "),
        ] {
            assert_eq!(with_code(text.as_bytes()), expected.as_bytes());
        }
    }
}
