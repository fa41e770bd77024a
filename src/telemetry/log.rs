//! The log: lines in the shape of redis-server's, written through `tracing`.
//!
//! ```text
//! 27871:M 21 Nov 2026 12:43:08.186 * Ready to accept connections tcp
//! pid   role   local time          level
//! ```
//!
//! The levels of Redis map to those of `tracing`: debug (`.`) is `trace!`, verbose (`-`) is `debug!`, notice (`*`) is
//! `info!`, warning (`#`) is `warn!` and `error!`. A file is opened anew for each line, as in Redis, so that it can be
//! moved away at any time. The log carries changes of state, never requests: a line may cost what a line costs.
//!
//! No user data at notice and above. What is not printable is escaped, so that no client can forge a line.

use std::collections::HashMap;
use std::fmt::{self, Write as _};
use std::fs::OpenOptions;
use std::io::{self, Write as _};
use std::path::PathBuf;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicU8, Ordering::Relaxed};

use parking_lot::Mutex;
use tracing::field::{Field, Visit};
use tracing::level_filters::LevelFilter;
use tracing::subscriber::Interest;
use tracing::{Event, Level, Metadata, Subscriber};
use tracing_subscriber::layer::{Context, Layer, SubscriberExt};
use tracing_subscriber::registry::Registry;

use super::clock;
use crate::base::lossless;
use crate::config::values::LogLevel;

/// Seconds for which one kind of warning is not repeated.
const REPEAT_S: u64 = 10;

/// Kinds of warnings that are told apart; the names come from the source, so this is never reached.
const KINDS_MAX: usize = 1024;

/// What is logged: 0 debug, 1 verbose, 2 notice, 3 warning, 4 nothing.
static LEVEL: AtomicU8 = AtomicU8::new(2);

static OUTPUT: OnceLock<Output> = OnceLock::new();

/// Where lines go.
#[derive(Debug)]
enum Output {
    Stdout,
    File(PathBuf),
}

/// Starts the log; to be called once, before the first line. The error says why the file can not be written.
pub fn start(level: LogLevel, file: &str) -> io::Result<()> {
    set_level(level);
    let output = if file.is_empty() {
        Output::Stdout
    } else {
        // Made absolute now: `dir` may change later.
        let path = std::path::absolute(lossless::path_of(file))?;
        OpenOptions::new().create(true).append(true).open(&path)?;
        Output::File(path)
    };
    if OUTPUT.set(output).is_ok() {
        // Another subscriber is there only in tests, and may stay.
        let _ = tracing::subscriber::set_global_default(Registry::default().with(Lines));
    }
    Ok(())
}

/// `loglevel`, which may change at any time.
pub fn set_level(level: LogLevel) {
    let number = match level {
        LogLevel::Debug => 0,
        LogLevel::Verbose => 1,
        LogLevel::Notice => 2,
        LogLevel::Warning => 3,
        LogLevel::Nothing => 4,
    };
    LEVEL.store(number, Relaxed);
}

/// A warning that may come often: each kind is logged once in ten seconds, with the number of those left out.
pub fn warn_seldom(kind: &'static str, text: impl fmt::Display) {
    static SEEN: OnceLock<Mutex<Limiter>> = OnceLock::new();
    let verdict = SEEN
        .get_or_init(Mutex::default)
        .lock()
        .ask(kind, clock::unix_ms() / 1_000);
    match verdict {
        None => {}
        Some(0) => tracing::warn!("{text}"),
        Some(left_out) => tracing::warn!("{text} ({left_out} more like this)"),
    }
}

/// When a kind of warning was last logged, and how many were left out since.
#[derive(Debug, Default)]
struct Limiter {
    kinds: HashMap<&'static str, (u64, u64)>,
}

impl Limiter {
    /// Whether a warning may go out, and how many were left out before it.
    fn ask(&mut self, kind: &'static str, now_s: u64) -> Option<u64> {
        let has_room = self.kinds.len() < KINDS_MAX;
        match self.kinds.get_mut(kind) {
            Some((last_s, left_out)) if now_s.saturating_sub(*last_s) < REPEAT_S => {
                *left_out += 1;
                None
            }
            Some((last_s, left_out)) => {
                *last_s = now_s;
                Some(std::mem::take(left_out))
            }
            None if has_room => {
                self.kinds.insert(kind, (now_s, 0));
                Some(0)
            }
            None => None,
        }
    }
}

/// The layer that writes lines.
struct Lines;

impl<S: Subscriber> Layer<S> for Lines {
    fn register_callsite(&self, _: &'static Metadata<'static>) -> Interest {
        // The level may change, so each event asks.
        Interest::sometimes()
    }

    fn enabled(&self, metadata: &Metadata<'_>, _: Context<'_, S>) -> bool {
        metadata.is_event() && rank(*metadata.level()).0 >= LEVEL.load(Relaxed)
    }

    fn max_level_hint(&self) -> Option<LevelFilter> {
        None
    }

    fn on_event(&self, event: &Event<'_>, _: Context<'_, S>) {
        let mut text = Text::default();
        event.record(&mut text);
        let (_, mark) = rank(*event.metadata().level());
        let line = line(
            std::process::id(),
            &local_time(),
            mark,
            &text.message,
            &text.fields,
        );
        // A log that can not be written must not stop the server.
        let _ = write(&line);
    }
}

/// Writes lines as they are, at every level but `nothing`.
pub fn raw(text: &str) {
    if LEVEL.load(Relaxed) < 4 {
        let _ = write(text);
    }
}

fn write(line: &str) -> io::Result<()> {
    match OUTPUT.get() {
        Some(Output::File(path)) => {
            let mut file = OpenOptions::new().create(true).append(true).open(path)?;
            file.write_all(line.as_bytes())
        }
        _ => {
            let mut stdout = io::stdout().lock();
            stdout.write_all(line.as_bytes())?;
            stdout.flush()
        }
    }
}

/// Redis's number and mark of a level.
fn rank(level: Level) -> (u8, char) {
    match level {
        Level::TRACE => (0, '.'),
        Level::DEBUG => (1, '-'),
        Level::INFO => (2, '*'),
        Level::WARN | Level::ERROR => (3, '#'),
    }
}

fn local_time() -> String {
    jiff::Zoned::now()
        .strftime("%d %b %Y %H:%M:%S.%3f")
        .to_string()
}

fn line(pid: u32, time: &str, mark: char, message: &str, fields: &str) -> String {
    let mut line = format!("{pid}:M {time} {mark} ");
    for letter in message.chars().chain(fields.chars()) {
        if letter.is_control() {
            line.extend(letter.escape_default());
        } else {
            line.push(letter);
        }
    }
    line.push('\n');
    line
}

/// An event's message, and its other fields as ` name=value`.
#[derive(Default)]
struct Text {
    message: String,
    fields: String,
}

impl Visit for Text {
    fn record_debug(&mut self, field: &Field, value: &dyn fmt::Debug) {
        // Writing to a String can not fail.
        let _ = match field.name() {
            "message" => write!(self.message, "{value:?}"),
            name => write!(self.fields, " {name}={value:?}"),
        };
    }

    fn record_str(&mut self, field: &Field, value: &str) {
        let _ = match field.name() {
            "message" => write!(self.message, "{value}"),
            name => write!(self.fields, " {name}={value}"),
        };
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_has_the_shape_of_redis() {
        assert_eq!(
            line(
                42,
                "21 Nov 2026 12:43:08.186",
                '*',
                "Ready to accept connections tcp",
                ""
            ),
            "42:M 21 Nov 2026 12:43:08.186 * Ready to accept connections tcp\n"
        );
        let time = local_time();
        let parts: Vec<&str> = time.split([' ', ':', '.']).collect();
        assert_eq!(
            parts.iter().map(|part| part.len()).collect::<Vec<_>>(),
            [2, 3, 4, 2, 2, 2, 3]
        );
    }

    #[test]
    fn a_message_can_not_forge_a_line() {
        let line = line(1, "T", '#', "a\n2:M T # b\r\u{1b}[2J", " key=\n");
        assert_eq!(line.matches('\n').count(), 1);
        assert_eq!(line, "1:M T # a\\n2:M T # b\\r\\u{1b}[2J key=\\n\n");
    }

    #[test]
    fn a_kind_of_warning_is_repeated_after_a_while_only() {
        let mut limiter = Limiter::default();
        assert_eq!(limiter.ask("full", 100), Some(0));
        assert_eq!(limiter.ask("full", 105), None);
        assert_eq!(limiter.ask("full", 109), None);
        assert_eq!(limiter.ask("other", 109), Some(0));
        assert_eq!(limiter.ask("full", 110), Some(2));
        assert_eq!(limiter.ask("full", 120), Some(0));
    }

    #[test]
    fn levels_keep_redis_marks_and_order() {
        let levels = [Level::TRACE, Level::DEBUG, Level::INFO, Level::WARN];
        let ranks = levels.map(rank);
        assert_eq!(ranks, [(0, '.'), (1, '-'), (2, '*'), (3, '#')]);
    }
}
