//! The slow log. Values are omitted: of the arguments only the command's name is shown, and the keys that the
//! viewer may see.

use serde_json::{Value, json};

use super::super::view::View;
use super::super::viewer::Sight;
use super::keys::shown;
use super::{HIDDEN, name};
use basalt_commands::command::host::SlowlogEntry;
use basalt_commands::command::keys;
use basalt_commands::command::registry::{registry, resolve};

/// Maximum number of entries.
pub(crate) const ENTRIES_MAX: usize = 200;

/// Keys shown per entry.
const KEYS_MAX: usize = 4;

/// A slow command.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Slow {
    pub(crate) id: u64,
    pub(crate) at_s: u64,
    pub(crate) duration_us: u64,
    pub(crate) command: String,
    /// The command's keys, as far as the viewer may see them.
    pub(crate) keys: Vec<String>,
    /// Number of logged arguments, including values, which are not shown.
    pub(crate) arguments: usize,
    pub(crate) client: String,
}

/// Returns the latest entries, newest first.
pub(crate) fn entries(view: &View<'_>, count: usize) -> Vec<Slow> {
    let entries = view.service.telemetry().slowlog.get(count.min(ENTRIES_MAX));
    entries.iter().map(|entry| slow(view, entry)).collect()
}

fn slow(view: &View<'_>, entry: &SlowlogEntry) -> Slow {
    let arguments = &entry.arguments;
    let first = arguments.first().map_or(&b""[..], Vec::as_slice);
    let command = registry().find(first);
    let second = arguments.get(1).map(Vec::as_slice);
    let command = command.map(|command| resolve(command, second));
    let found = command.map(|command| {
        let argument = |at: usize| arguments.get(at).map_or(&b""[..], Vec::as_slice);
        keys::all(command, arguments.len(), argument).unwrap_or_default()
    });
    let keys = found.into_iter().flatten().take(KEYS_MAX);
    let client = match view.viewer.sees(Sight::SlowLog) {
        true if entry.name.is_empty() => name(entry.address.as_bytes()),
        true => format!(
            "{} ({})",
            name(entry.name.as_bytes()),
            name(entry.address.as_bytes())
        ),
        false => HIDDEN.to_owned(),
    };
    Slow {
        id: entry.id,
        at_s: entry.at_s,
        duration_us: entry.cost,
        // A name that is no command may be anything, such as a misplaced key.
        command: command.map_or_else(
            || "(unknown)".to_owned(),
            |command| command.full_name.replace('|', " ").to_uppercase(),
        ),
        keys: keys
            .filter_map(|(at, _)| arguments.get(at))
            .map(|key| shown(view, Sight::SlowLog, key, None))
            .collect(),
        arguments: arguments.len(),
        client,
    }
}

/// Formats entries as JSON.
pub(crate) fn json(entries: &[Slow]) -> Value {
    let entry = |slow: &Slow| {
        json!({
            "id": slow.id,
            "time": slow.at_s,
            "duration_us": slow.duration_us,
            "command": slow.command,
            "keys": slow.keys,
            "arguments": slow.arguments,
            "client": slow.client,
        })
    };
    Value::Array(entries.iter().map(entry).collect())
}
