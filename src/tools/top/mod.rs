//! `basalt top`: a server's figures on a terminal, updated each second. It uses the Redis protocol, so it shows
//! basalt, Redis and Valkey as far as each reports on itself. It is independent of the server code in this program.
//!
//! ```text
//! wire      a blocking client connection
//! watch     a server that is polled by a thread, which may block
//! keys      reads typed keys on a separate thread
//! signals   signals that end the program
//! figures   two samples of INFO, and the rates between them
//! screen    the figures as lines and boxes
//! ```

mod figures;
mod keys;
mod screen;
mod signals;
mod watch;
pub(crate) mod wire;

use std::io::IsTerminal;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::sync::mpsc::{Receiver, RecvTimeoutError};
use std::time::{Duration, Instant};

use clap::{Arg, ArgAction, ArgMatches, Command};
use ratatui::Terminal;
use ratatui::backend::TestBackend;
use ratatui::crossterm::event::KeyCode;

use basalt_server::tls::asking::{self, ToolTls};
use screen::{ScreenState, TopSortOrder};
use watch::{Asked, TopPoller};
use wire::ServerEndpoint;

/// Columns and rows of the output without a terminal.
const PRINTED: (u16, u16) = (110, 38);

/// Polling interval for keys.
const KEYS_EVERY: Duration = Duration::from_millis(200);

/// Runs the program; the error is a message for the user.
pub fn run(arguments: &[std::ffi::OsString]) -> Result<(), String> {
    let name = [std::ffi::OsString::from("basalt top")];
    let given = match command().try_get_matches_from(name.iter().chain(arguments)) {
        Ok(given) => given,
        Err(error) if !error.use_stderr() => {
            print(&error.to_string());
            return Ok(());
        }
        Err(error) => return Err(error.to_string()),
    };
    let place = place(&given)?;
    let seconds: f64 = *given.get_one("interval").unwrap_or(&1.0);
    let interval = Duration::try_from_secs_f64(seconds.clamp(0.1, 3_600.0)).unwrap_or(KEYS_EVERY);
    match given.get_flag("once") || !std::io::stdout().is_terminal() {
        true => once(place, interval),
        false => run_until_quit(place, interval),
    }
}

fn command() -> Command {
    let option = |name: &'static str, short: char, value: &'static str, help: &'static str| {
        Arg::new(name)
            .long(name)
            .short(short)
            .value_name(value)
            .help(help)
    };
    Command::new("basalt top")
        .about("Shows live statistics of a basalt, Redis or Valkey server")
        .disable_help_flag(true)
        .arg(
            option("host", 'h', "HOST", "Host name or address of the server")
                .default_value("127.0.0.1"),
        )
        .arg(
            option("port", 'p', "PORT", "Port of the server")
                .default_value("6379")
                .value_parser(clap::value_parser!(u16)),
        )
        .arg(option(
            "socket",
            's',
            "PATH",
            "Unix socket of the server, instead of host and port",
        ))
        .arg(option(
            "pass",
            'a',
            "PASSWORD",
            "Password; default: the environment variable REDISCLI_AUTH",
        ))
        .arg(
            Arg::new("user")
                .long("user")
                .value_name("USER")
                .help("User name to sign in with"),
        )
        .args(asking::arguments())
        .arg(
            option("interval", 'i', "SECONDS", "Seconds between two updates")
                .default_value("1")
                .value_parser(clap::value_parser!(f64)),
        )
        .arg(
            Arg::new("once")
                .long("once")
                .action(ArgAction::SetTrue)
                .help(
                    "Print the figures of one interval and exit (the default without a terminal)",
                ),
        )
        .arg(
            Arg::new("help")
                .long("help")
                .action(ArgAction::Help)
                .help("Print this help"),
        )
}

fn place(given: &ArgMatches) -> Result<ServerEndpoint, String> {
    let text = |name: &str| given.get_one::<String>(name).cloned();
    let password = text("pass").or_else(|| std::env::var("REDISCLI_AUTH").ok());
    let user = text("user");
    if user.is_some() && password.is_none() {
        return Err("--user needs a password: give it with -a or REDISCLI_AUTH".to_owned());
    }
    let tls = ToolTls::of(given)?;
    let socket = text("socket");
    if tls.is_some() && socket.is_some() {
        return Err("--tls cannot be used with a unix socket".to_owned());
    }
    Ok(ServerEndpoint {
        host: text("host").unwrap_or_default(),
        port: given.get_one("port").copied().unwrap_or_default(),
        socket,
        user,
        password,
        tls,
    })
}

fn print(text: &str) {
    use std::io::Write;
    // Ignore errors: a reader that has closed the pipe, as in `| head`, is fine.
    let _ = writeln!(std::io::stdout(), "{}", text.trim_end());
}

fn once(place: ServerEndpoint, interval: Duration) -> Result<(), String> {
    let mut state = ScreenState::new(place.shown());
    let mut asked = Asked::new(place);
    state.add(asked.ask().map_err(|error| error.to_string())?);
    std::thread::sleep(interval);
    state.add(asked.ask().map_err(|error| error.to_string())?);
    let (columns, rows) = PRINTED;
    let backend = TestBackend::new(columns, rows);
    let Ok(mut terminal) = Terminal::new(backend);
    let Ok(drawn) = terminal.draw(|frame| screen::draw(frame, &state));
    let cells = drawn.buffer.content();
    for row in cells.chunks(usize::from(columns)) {
        let line: String = row.iter().map(ratatui::buffer::Cell::symbol).collect();
        print(&line);
    }
    Ok(())
}

fn run_until_quit(place: ServerEndpoint, interval: Duration) -> Result<(), String> {
    let mut state = ScreenState::new(place.shown());
    let mut asked = Asked::new(place);
    // Report problems with the address where it was typed, before taking over the screen.
    state.add(asked.ask().map_err(|error| error.to_string())?);
    let watch = TopPoller::begin(asked).map_err(|error| error.to_string())?;
    let is_over = signals::listen().map_err(|error| error.to_string())?;
    let mut terminal = ratatui::try_init().map_err(|error| error.to_string())?;
    let typed = keys::listen(std::sync::Arc::clone(&is_over)).map_err(|error| error.to_string());
    let ended =
        typed.map(|typed| follow(watch, state, interval, &mut terminal, (&typed, &is_over)));
    ratatui::restore();
    ended?.map_err(|error| error.to_string())
}

fn follow(
    mut watch: TopPoller,
    mut state: ScreenState,
    interval: Duration,
    terminal: &mut ratatui::DefaultTerminal,
    (typed, is_over): (&Receiver<KeyCode>, &AtomicBool),
) -> std::io::Result<()> {
    let mut asked = Instant::now();
    while !is_over.load(Relaxed) {
        watch.hear(&mut state);
        terminal.draw(|frame| screen::draw(frame, &state))?;
        let left = interval.saturating_sub(asked.elapsed());
        match typed.recv_timeout(left.min(KEYS_EVERY)) {
            Err(RecvTimeoutError::Timeout) => {}
            // The program is ending, or keys cannot be read any more.
            Err(RecvTimeoutError::Disconnected) => return Ok(()),
            Ok(key) => match key {
                KeyCode::Char('p') => state.is_paused = !state.is_paused,
                KeyCode::Left => state.order = state.order.before(),
                KeyCode::Right => state.order = state.order.next(),
                KeyCode::Char('t') => state.order = TopSortOrder::Time,
                KeyCode::Char('n') => state.order = TopSortOrder::Calls,
                _ => {}
            },
        }
        if asked.elapsed() >= interval && !state.is_paused {
            asked = Instant::now();
            watch.want();
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests;
