//! Declarations of scripts and functions: flags, and the line `#!lua …`.

use std::ops::Range;

use basalt_commands::command::declaration::Flags;
use basalt_commands::command::error::{CommandError, shown};
use basalt_core::base::text;
use basalt_core::bit_set;

bit_set! {
    /// The flags that a script or function declares.
    #[derive(Debug, Default)]
    pub struct ScriptFlags(u8) {
        /// The script writes nothing.
        NO_WRITES = "no-writes";
        /// The script may run while memory is exhausted.
        ALLOW_OOM = "allow-oom";
        /// The script may run on a replica that has lost its primary.
        ALLOW_STALE = "allow-stale";
        /// The script must not run in a cluster.
        NO_CLUSTER = "no-cluster";
        /// The script may use keys of several slots.
        ALLOW_CROSS_SLOT = "allow-cross-slot-keys";
        /// The script declares no flags, like scripts before Redis 7.
        SILENT;
    }
}

impl ScriptFlags {
    /// Flags either of which lets the script use keys of any slot.
    pub const CROSSES_SLOTS: ScriptFlags = ScriptFlags::ALLOW_CROSS_SLOT.or(ScriptFlags::SILENT);

    /// Returns the equivalent command flags.
    pub fn of_command(self) -> Flags {
        if self.any(ScriptFlags::SILENT) {
            return Flags::NONE;
        }
        let writes = match self.any(ScriptFlags::NO_WRITES) {
            true => Flags::READONLY,
            false => Flags::WRITE,
        };
        let stale = match self.any(ScriptFlags::ALLOW_STALE) {
            true => writes.or(Flags::STALE),
            false => writes,
        };
        match self.any(ScriptFlags::NO_WRITES.or(ScriptFlags::ALLOW_OOM)) {
            true => stale,
            false => stale.or(Flags::DENYOOM),
        }
    }

    /// Returns the flag of this name.
    pub fn named(name: &[u8]) -> Option<ScriptFlags> {
        let mut all = Self::ALL.iter();
        all.find(|(_, known)| known.as_bytes() == name)
            .map(|(flag, _)| *flag)
    }
}

/// The words of the line `#!…`, and the offset of the code after it, which is that of the line's end.
type ShebangLine = (Vec<Vec<u8>>, usize);

/// Parses the first line of a script that begins with `#!`; returns `None` for other scripts, and an error if the line
/// has no end.
pub(super) fn head(body: &[u8]) -> Option<Result<ShebangLine, ()>> {
    if !body.starts_with(b"#!") {
        return None;
    }
    // Like Redis, stop at a zero byte.
    let end = body.iter().position(|byte| matches!(byte, b'\n' | 0));
    let Some(end) = end.filter(|end| body[*end] == b'\n') else {
        return Some(Err(()));
    };
    let mut bytes = Vec::new();
    let mut ranges: Vec<Range<usize>> = Vec::new();
    let words = match text::split_arguments(&body[..end], &mut bytes, |range| ranges.push(range)) {
        Ok(_) => ranges
            .into_iter()
            .map(|range| bytes[range].to_vec())
            .collect(),
        Err(_) => Vec::new(),
    };
    Some(Ok((words, end)))
}

/// Returns the flags of a script and the start of its code.
pub(super) fn of_script(body: &[u8]) -> Result<(ScriptFlags, usize), CommandError> {
    let (words, code_start) = match head(body) {
        None => return Ok((ScriptFlags::SILENT, 0)),
        Some(Err(())) => return Err("ERR Invalid script shebang".into()),
        Some(Ok(head)) => head,
    };
    let refuse =
        |what: &str, word: &[u8]| CommandError::from(format!("ERR {what}: {}", shown(word)));
    let Some((engine, options)) = words.split_first() else {
        return Err("ERR Invalid engine in script shebang".into());
    };
    if engine != b"#!lua" {
        return Err(refuse("Unexpected engine in script shebang", engine));
    }
    let mut flags = ScriptFlags::default();
    for option in options {
        let Some(names) = option.strip_prefix(b"flags=") else {
            return Err(refuse("Unknown lua shebang option", option));
        };
        if names.is_empty() {
            continue;
        }
        for name in names.split(|byte| *byte == b',') {
            let Some(flag) = ScriptFlags::named(name) else {
                return Err(refuse("Unexpected flag in script shebang", name));
            };
            flags = flags.or(flag);
        }
    }
    Ok((flags, code_start))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn text_of(body: &str) -> String {
        match of_script(body.as_bytes()) {
            Ok((flags, start)) => format!("{:?} {start}", flags.names().collect::<Vec<_>>()),
            Err(error) => error.text().into_owned(),
        }
    }

    #[test]
    fn the_first_line_says_what_a_script_is_like() {
        for (body, expected) in [
            ("return 1", "[] 0"),
            ("#!lua\nreturn 1", "[] 5"),
            ("#!lua flags=\nreturn 1", "[] 12"),
            (
                "#!lua flags=no-writes,allow-oom\nx",
                "[\"no-writes\", \"allow-oom\"] 31",
            ),
            (
                "#!lua flags=no-writes  flags=no-cluster\nx",
                "[\"no-writes\", \"no-cluster\"] 39",
            ),
            ("#!lua", "ERR Invalid script shebang"),
            (
                "#!not-lua\nx",
                "ERR Unexpected engine in script shebang: #!not-lua",
            ),
            ("#!lua name=x\nx", "ERR Unknown lua shebang option: name=x"),
            (
                "#!lua flags=bad\nx",
                "ERR Unexpected flag in script shebang: bad",
            ),
            (
                "#!lua flags=a,,b\nx",
                "ERR Unexpected flag in script shebang: a",
            ),
        ] {
            assert_eq!(text_of(body), expected, "{body}");
        }
        assert_eq!(of_script(b"x").expect("fine").0, ScriptFlags::SILENT);
    }
}
