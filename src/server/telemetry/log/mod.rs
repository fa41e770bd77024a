//! The log: lines in redis-server's format, logfmt or JSON, written through `tracing` to a file or standard output,
//! and additionally to syslog.
//!
//! ```text
//! 27871:M 21 Nov 2026 12:43:08.186 * Ready to accept connections tcp
//! pid   role   local time          level
//! ```
//!
//! The levels of Redis map to those of `tracing`: debug (`.`) is `trace!`, verbose (`-`) is `debug!`, notice (`*`)
//! is `info!`, warning (`#`) is `warn!` and `error!`. As in Redis, the file is opened for each line, so that it can
//! be moved away at any time. The log records changes of state, never requests, so the cost of a line does not
//! matter.
//!
//! Lines at notice and above contain no user data except what reports and errors quote ([`quoted`]). Unprintable
//! characters are escaped so that no client can forge a line.

pub mod recent;
mod shape;
mod syslog;

use std::borrow::Cow;
use std::collections::HashMap;
use std::fmt::{self, Write as _};
use std::fs::OpenOptions;
use std::io::{self, IsTerminal, Write as _};
use std::path::{Path, PathBuf};
use std::sync::OnceLock;
use std::sync::atomic::{AtomicBool, AtomicU8, Ordering::Relaxed};

use parking_lot::Mutex;
use tracing::field::{Field, Visit};
use tracing::level_filters::LevelFilter;
use tracing::subscriber::Interest;
use tracing::{Event, Level, Metadata, Subscriber};
use tracing_subscriber::layer::{Context, Layer, SubscriberExt};
use tracing_subscriber::registry::Registry;

use super::clock;
use basalt_commands::config::Config;
use basalt_commands::config::values::{Coded, LogFormat, LogLevel, LogTimestampFormat};
use basalt_core::base::lossless;
use basalt_core::base::text::Visible;
use recent::{RecentLines, RecentLogLine};
use shape::LogLine;
use syslog::Syslog;

/// Seconds during which a kind of warning is not repeated.
const REPEAT_S: u64 = 10;

/// Maximum number of kinds of warnings; the names come from the source, so this is never reached.
const KINDS_MAX: usize = 1024;

/// The lowest level logged: 0 debug, 1 verbose, 2 notice, 3 warning, 4 nothing.
static LEVEL: AtomicU8 = AtomicU8::new(2);

/// The code of the [`LogFormat`] in force.
static FORMAT: AtomicU8 = AtomicU8::new(0);

/// The code of the [`LogTimestampFormat`] in force.
static TIMESTAMP: AtomicU8 = AtomicU8::new(0);

/// Whether log lines show the role of a replica.
static IS_REPLICA: AtomicBool = AtomicBool::new(false);

/// Whether user data are redacted in the log (`hide-user-data-from-log`).
static HIDES: AtomicBool = AtomicBool::new(false);

/// Whether the terminal's current line is one that [`rewrite`] overwrites.
static IS_LINE_OPEN: AtomicBool = AtomicBool::new(false);

static OUTPUT: OnceLock<LogOutput> = OnceLock::new();

static SYSLOG: OnceLock<Syslog> = OnceLock::new();

static KEPT: RecentLines = RecentLines::new();

/// Path of syslog's socket.
const SYSLOG_PATH: &str = "/dev/log";

/// Placeholder for hidden user data.
pub const HIDDEN: &str = "*redacted*";

/// Destination of log lines.
#[derive(Debug)]
enum LogOutput {
    Stdout { is_terminal: bool },
    File(PathBuf),
}

/// Starts the log; call once, before the first line. Errors if the log file cannot be written.
pub fn start(config: &Config) -> io::Result<()> {
    configure(config);
    let output = if config.logfile.is_empty() {
        LogOutput::Stdout {
            is_terminal: io::stdout().is_terminal(),
        }
    } else {
        // Make the path absolute now, because `dir` may change later.
        let path = std::path::absolute(lossless::path_of(&config.logfile))?;
        OpenOptions::new().create(true).append(true).open(&path)?;
        LogOutput::File(path)
    };
    if OUTPUT.set(output).is_ok() {
        // Setting the subscriber fails only in tests that already set another one, which may stay.
        let _ = tracing::subscriber::set_global_default(Registry::default().with(LogLineLayer));
    }
    if config.syslog_enabled {
        let syslog = Syslog::new(
            Path::new(SYSLOG_PATH),
            &config.syslog_ident,
            config.syslog_facility,
        );
        let opened = syslog.open();
        let _ = SYSLOG.set(syslog);
        if let Err(error) = opened {
            tracing::warn!(
                "Can't connect to syslog at {SYSLOG_PATH}: {error}; each log line retries"
            );
        }
    }
    Ok(())
}

/// Applies `loglevel` and the log's other directives that may change at any time.
pub fn configure(config: &Config) {
    let level = match config.loglevel {
        LogLevel::Debug => 0,
        LogLevel::Verbose => 1,
        LogLevel::Notice => 2,
        LogLevel::Warning => 3,
        LogLevel::Nothing => 4,
    };
    LEVEL.store(level, Relaxed);
    FORMAT.store(config.log_format.code() as u8, Relaxed);
    TIMESTAMP.store(config.log_timestamp_format.code() as u8, Relaxed);
    HIDES.store(config.hide_user_data_from_log, Relaxed);
}

/// Sets the role that lines state: replica or primary.
pub fn set_role(is_replica: bool) {
    IS_REPLICA.store(is_replica, Relaxed);
}

/// Returns user text for a line of the log, redacted under `hide-user-data-from-log`.
pub fn quoted(text: &[u8]) -> Cow<'_, str> {
    match HIDES.load(Relaxed) {
        true => Cow::Borrowed(HIDDEN),
        false => lossless::text_of(text),
    }
}

/// Whether the log goes to a terminal.
pub fn is_on_terminal() -> bool {
    matches!(OUTPUT.get(), Some(LogOutput::Stdout { is_terminal: true }))
}

/// Whether a startup error must also go to standard error, because the log does not go to the operator's
/// terminal.
fn needs_word() -> bool {
    match OUTPUT.get() {
        Some(LogOutput::Stdout { is_terminal }) => !is_terminal && io::stderr().is_terminal(),
        Some(LogOutput::File(_)) => true,
        None => true,
    }
}

/// Logs why the server does not start, and repeats it on the terminal if needed.
pub fn refusal(text: &str) {
    tracing::error!("{text}");
    if needs_word() {
        // The text may quote a corrupt file.
        let _ = writeln!(Visible(&mut io::stderr()), "{text}");
    }
}

/// Writes a progress line on the terminal. The next progress line, or the next line of the log, overwrites it.
pub fn rewrite(text: &str) {
    if is_on_terminal() && LEVEL.load(Relaxed) <= 2 {
        let mut stdout = io::stdout().lock();
        IS_LINE_OPEN.store(true, Relaxed);
        let _ = write!(stdout, "\r{text}\x1b[K");
        let _ = stdout.flush();
    }
}

/// Logs a rate-limited warning; see [`seldom`].
pub fn warn_seldom(kind: &'static str, text: impl fmt::Display) {
    seldom(kind, text, |text| tracing::warn!("{text}"));
}

/// Writes a rate-limited line: each kind is logged once in ten seconds, with the number of lines suppressed.
pub fn seldom(kind: &'static str, text: impl fmt::Display, write: impl FnOnce(&dyn fmt::Display)) {
    static SEEN: OnceLock<Mutex<Limiter>> = OnceLock::new();
    let verdict = SEEN
        .get_or_init(Mutex::default)
        .lock()
        .ask(kind, clock::unix_ms() / 1_000);
    match verdict {
        None => {}
        Some(0) => write(&text),
        Some(left_out) => write(&format_args!("{text} ({left_out} more like this)")),
    }
}

/// Rate limiter of warnings: for each kind, the second when one was last logged, and the number suppressed since.
#[derive(Debug, Default)]
struct Limiter {
    kinds: HashMap<&'static str, (u64, u64)>,
}

impl Limiter {
    /// Returns the number of warnings suppressed before this one, or `None` if this one is suppressed too.
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
struct LogLineLayer;

impl<S: Subscriber> Layer<S> for LogLineLayer {
    fn register_callsite(&self, _: &'static Metadata<'static>) -> Interest {
        // The level may change, so check it for each event.
        Interest::sometimes()
    }

    fn enabled(&self, metadata: &Metadata<'_>, _: Context<'_, S>) -> bool {
        metadata.is_event() && rank(*metadata.level()) >= LEVEL.load(Relaxed)
    }

    fn max_level_hint(&self) -> Option<LevelFilter> {
        None
    }

    fn on_event(&self, event: &Event<'_>, _: Context<'_, S>) {
        let mut text = LogEventText::default();
        event.record(&mut text);
        text.message.push_str(&text.fields);
        let line = LogLine {
            pid: std::process::id(),
            is_replica: IS_REPLICA.load(Relaxed),
            time: shape::time(LogTimestampFormat::decode(TIMESTAMP.load(Relaxed).into())),
            rank: rank(*event.metadata().level()),
            message: &text.message,
        };
        KEPT.add(
            clock::unix_ms(),
            LEVELS[usize::from(line.rank)],
            line.message,
        );
        // An unwritable log must not stop the server.
        let _ = write(&line.text(LogFormat::decode(FORMAT.load(Relaxed).into())));
        if let Some(syslog) = SYSLOG.get() {
            syslog.send(line.rank, line.message);
        }
    }
}

/// Writes lines verbatim, at every level except `nothing`.
pub fn raw(text: &str) {
    if LEVEL.load(Relaxed) < 4 {
        let _ = write(text);
        if let Some(syslog) = SYSLOG.get() {
            let lines = text.lines().filter(|line| !line.trim().is_empty());
            lines.for_each(|line| syslog.send(3, line));
        }
    }
}

fn write(line: &str) -> io::Result<()> {
    match OUTPUT.get() {
        Some(LogOutput::File(path)) => {
            let mut file = OpenOptions::new().create(true).append(true).open(path)?;
            file.write_all(line.as_bytes())
        }
        _ => {
            let mut stdout = io::stdout().lock();
            if IS_LINE_OPEN.swap(false, Relaxed) {
                stdout.write_all(b"\r\x1b[K")?;
            }
            stdout.write_all(line.as_bytes())?;
            stdout.flush()
        }
    }
}

/// Returns at most `count` of the last lines, oldest first.
pub fn latest(count: usize) -> Vec<RecentLogLine> {
    KEPT.latest(count)
}

/// Level names by number.
const LEVELS: [&str; 4] = ["debug", "verbose", "notice", "warning"];

/// Returns Redis's number for a level.
fn rank(level: Level) -> u8 {
    match level {
        Level::TRACE => 0,
        Level::DEBUG => 1,
        Level::INFO => 2,
        Level::WARN | Level::ERROR => 3,
    }
}

/// An event's message, and its other fields as ` name=value`.
#[derive(Default)]
struct LogEventText {
    message: String,
    fields: String,
}

impl Visit for LogEventText {
    fn record_debug(&mut self, field: &Field, value: &dyn fmt::Debug) {
        // Writing to a `String` cannot fail.
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
    fn a_kind_of_warning_is_repeated_after_a_while_only() {
        let mut limiter = Limiter::default();
        assert_eq!(limiter.ask("full", 100), Some(0));
        assert_eq!(limiter.ask("full", 105), None);
        assert_eq!(limiter.ask("full", 109), None);
        assert_eq!(limiter.ask("other", 109), Some(0));
        assert_eq!(limiter.ask("full", 110), Some(2));
        assert_eq!(limiter.ask("full", 120), Some(0));
    }
}
