//! Formats of a line: redis-server's, logfmt with Valkey's names, and JSON with the same names.
//!
//! ```text
//! 27871:M 21 Nov 2026 12:43:08.186 * Ready to accept connections tcp
//! pid=27871 role=primary timestamp="21 Nov 2026 12:43:08.186" level=notice message="Ready to accept connections tcp"
//! {"pid":27871,"role":"primary","timestamp":"21 Nov 2026 12:43:08.186","level":"notice","message":"Ready …"}
//! ```

use std::fmt::Write;

use crate::telemetry::clock;
use basalt_commands::config::values::{LogFormat, LogTimestampFormat};
use basalt_core::base::text::is_invisible;

/// The parts of a line.
pub(super) struct LogLine<'l> {
    pub(super) pid: u32,
    pub(super) is_replica: bool,
    pub(super) time: String,
    /// Level from 0, debug, to 3, warning.
    pub(super) rank: u8,
    pub(super) message: &'l str,
}

/// Marks and names of the levels, by rank.
const LEVELS: [(char, &str); 4] = [
    ('.', "debug"),
    ('-', "info"),
    ('*', "notice"),
    ('#', "warning"),
];

impl LogLine<'_> {
    /// Formats the line, including its terminator.
    pub(super) fn text(&self, format: LogFormat) -> String {
        let LogLine { pid, time, .. } = self;
        let (mark, level) = LEVELS[usize::from(self.rank).min(LEVELS.len() - 1)];
        let (letter, role) = match self.is_replica {
            true => ('S', "replica"),
            false => ('M', "primary"),
        };
        let mut text = String::new();
        // Writing to a `String` cannot fail.
        let _ = match format {
            LogFormat::Legacy => write!(text, "{pid}:{letter} {time} {mark} "),
            LogFormat::Logfmt => write!(
                text,
                "pid={pid} role={role} timestamp=\"{time}\" level={level} message=\""
            ),
            LogFormat::Json => write!(
                text,
                "{{\"pid\":{pid},\"role\":\"{role}\",\"timestamp\":\"{time}\",\"level\":\"{level}\",\"message\":\""
            ),
        };
        let is_quoted = format != LogFormat::Legacy;
        for letter in self.message.chars() {
            match letter {
                '"' | '\\' if is_quoted => text.extend(['\\', letter]),
                '\n' | '\r' | '\t' => text.extend(letter.escape_default()),
                // Escapes characters that a terminal would interpret or that would disguise the text.
                letter if !letter.is_control() && !is_invisible(letter) => text.push(letter),
                letter if format == LogFormat::Json => {
                    for unit in letter.encode_utf16(&mut [0; 2]) {
                        let _ = write!(text, "\\u{unit:04x}");
                    }
                }
                letter => text.extend(letter.escape_default()),
            }
        }
        text.push_str(match format {
            LogFormat::Legacy => "\n",
            LogFormat::Logfmt => "\"\n",
            LogFormat::Json => "\"}\n",
        });
        text
    }
}

/// Formats the current time.
pub(super) fn time(format: LogTimestampFormat) -> String {
    let pattern = match format {
        LogTimestampFormat::Legacy => "%d %b %Y %H:%M:%S.%3f",
        LogTimestampFormat::Iso8601 => "%Y-%m-%dT%H:%M:%S.%3f%:z",
        LogTimestampFormat::Milliseconds => return clock::unix_ms().to_string(),
    };
    jiff::Zoned::now().strftime(pattern).to_string()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn shaped(format: LogFormat, rank: u8, message: &str) -> String {
        let line = LogLine {
            pid: 42,
            is_replica: rank == 3,
            time: "T".to_owned(),
            rank,
            message,
        };
        line.text(format)
    }

    #[test]
    fn a_line_has_the_shape_that_was_asked_for() {
        let message = "say \"a\\b\"";
        for (format, expected) in [
            (LogFormat::Legacy, "42:M T * say \"a\\b\"\n"),
            (
                LogFormat::Logfmt,
                "pid=42 role=primary timestamp=\"T\" level=notice message=\"say \\\"a\\\\b\\\"\"\n",
            ),
            (
                LogFormat::Json,
                "{\"pid\":42,\"role\":\"primary\",\"timestamp\":\"T\",\"level\":\"notice\",\"message\":\"say \\\"a\\\\b\\\"\"}\n",
            ),
        ] {
            assert_eq!(shaped(format, 2, message), expected);
        }
        assert_eq!(shaped(LogFormat::Legacy, 3, "x"), "42:S T # x\n");
        assert!(
            shaped(LogFormat::Json, 3, "x")
                .contains("\"role\":\"replica\",\"timestamp\":\"T\",\"level\":\"warning\"")
        );
        assert!(shaped(LogFormat::Logfmt, 0, "x").contains("level=debug"));
        assert_eq!(shaped(LogFormat::Legacy, 1, "x"), "42:M T - x\n");
    }

    #[test]
    fn a_message_can_not_forge_a_line() {
        let message = "a\n2:M T # b\r\u{1b}[2J\t\0 key=\n";
        let legacy = shaped(LogFormat::Legacy, 3, message);
        assert_eq!(
            legacy,
            "42:S T # a\\n2:M T # b\\r\\u{1b}[2J\\t\\u{0} key=\\n\n"
        );
        let json = shaped(LogFormat::Json, 3, message);
        assert!(
            json.ends_with("\"a\\n2:M T # b\\r\\u001b[2J\\t\\u0000 key=\\n\"}\n"),
            "{json}"
        );
        let turned = "a\u{202e}b\u{e0041}";
        assert!(shaped(LogFormat::Legacy, 3, turned).ends_with("a\\u{202e}b\\u{e0041}\n"));
        assert!(shaped(LogFormat::Json, 3, turned).ends_with("\"a\\u202eb\\udb40\\udc41\"}\n"));
        let logfmt = shaped(LogFormat::Logfmt, 3, "a\" level=debug message=\"b\n");
        assert!(
            logfmt.ends_with("message=\"a\\\" level=debug message=\\\"b\\n\"\n"),
            "{logfmt}"
        );
        assert!(
            [legacy, json, logfmt]
                .iter()
                .all(|line| line.matches('\n').count() == 1)
        );
    }

    #[test]
    fn times_have_the_form_that_was_asked_for() {
        let legacy = time(LogTimestampFormat::Legacy);
        let parts: Vec<usize> = legacy.split([' ', ':', '.']).map(str::len).collect();
        assert_eq!(parts, [2, 3, 4, 2, 2, 2, 3], "{legacy}");
        let iso = time(LogTimestampFormat::Iso8601);
        let parts: Vec<usize> = iso.split(['-', 'T', ':', '.', '+']).map(str::len).collect();
        assert_eq!(parts, [4, 2, 2, 2, 2, 2, 3, 2, 2], "{iso}");
        assert!(
            time(LogTimestampFormat::Milliseconds)
                .parse::<u64>()
                .is_ok_and(|ms| ms > 1_700_000_000_000)
        );
    }
}
