//! The crash report: logs what is known about the end of the process, in the format of Redis's report.
//!
//! A thread sleeps until a signal or a panic ends the process ([`crash`]), and then logs what it can: the stack,
//! INFO, the clients, what runs for long. `crash-log-enabled no` disables the report.

use std::backtrace::{Backtrace, BacktraceStatus};
use std::fmt::Write;
use std::panic::PanicHookInfo;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;

use parking_lot::Mutex;

use crate::state::Service;
use crate::sys::crash::{self, Crash};
use crate::telemetry::{clock, info, log};
use basalt_commands::client::shared::Shared;
use basalt_commands::command::host::scripts::Scripts;
use basalt_commands::command::registry::registry;

/// Maximum number of clients described.
const CLIENTS_MAX: usize = 1_000;

/// The panic's message, for the report.
static PANIC: Mutex<Option<String>> = Mutex::new(None);

/// Starts the thread that reports crashes.
pub(super) fn watch(service: Arc<Service>) {
    if let Err(error) = crash::install() {
        tracing::warn!("Crash reports are disabled: {error}");
        return;
    }
    let reporting = move || {
        crash::prepare_thread();
        loop {
            let crash = crash::wait();
            let panic = PANIC.lock().take();
            if service.config.load().crash_log_enabled {
                write_report(&service, &crash, panic.as_deref());
            }
            crash::over();
        }
    };
    let thread = std::thread::Builder::new().name("basalt-crash".to_owned());
    if let Err(error) = thread.spawn(reporting) {
        tracing::warn!("Crash reports are disabled: {error}");
        return;
    }
    let before = std::panic::take_hook();
    std::panic::set_hook(Box::new(move |panic| {
        *PANIC.lock() = Some(describe_panic(panic));
        crash::report();
        before(panic);
        // If a panic only ends a thread, later panics must be reported, too.
        if cfg!(panic = "unwind") {
            crash::go_on();
        }
    }));
}

/// Describes a panic: message, location and backtrace.
fn describe_panic(panic: &PanicHookInfo<'_>) -> String {
    let place = panic.location();
    let place = place.map_or_else(String::new, |place| {
        format!(" #{}:{}", place.file(), place.line())
    });
    let said = panic.payload_as_str().unwrap_or("panic without a message");
    let mut text = format!(
        "------------------------------------------------\n!!! Software Failure. Press left mouse button to continue\nGuru Meditation: {said}{place}\n------------------------------------------------\n"
    );
    let trace = Backtrace::force_capture();
    if trace.status() == BacktraceStatus::Captured {
        let _ = writeln!(text, "{trace}");
    }
    text
}

fn write_report(service: &Service, crash: &Crash, panic: Option<&str>) {
    log::raw("\n\n=== REDIS BUG REPORT START: Cut & paste starting from here ===\n");
    match panic {
        Some(panic) => log::raw(panic),
        None => tracing::error!("{}", cause(crash)),
    }
    log::raw("\n------ STACK TRACE ------\n\n");
    log::raw(&stack(crash));
    log::raw("\n------ STACK TRACE DONE ------\n");
    // Anything that may block on a lock comes last.
    log::raw("\n------ INFO OUTPUT ------\n");
    log::raw(&info::text(service, &["everything".to_owned()]).replace('\r', ""));
    if let Some(client) = service.clients.get(crash.client) {
        let line = client_line(&client, clock::unix_ms());
        log::raw(&format!("\n------ CURRENT CLIENT INFO ------\n{line}\n"));
    }
    log::raw("\n------ CLIENT LIST OUTPUT ------\n");
    log::raw(&clients(service));
    if let Some(function) = service.scripts.running_function() {
        let named = format!(
            "\n------ RUNNING FUNCTION ------\n{} for {} ms\n",
            function.name, function.duration_ms
        );
        log::raw(&named);
    }
    log::raw("\n=== REDIS BUG REPORT END. Make sure to include from START to END. ===\n\n");
    tracing::error!(
        "basalt {} crashed. Please report the lines above; addr2line -Cfe {} translates the addresses to source \
         lines.",
        env!("CARGO_PKG_VERSION"),
        service.telemetry.executable.display()
    );
}

/// Describes the signal and its cause.
fn cause(crash: &Crash) -> String {
    let mut text = format!(
        "basalt {} crashed by signal: {}, si_code: {}",
        env!("CARGO_PKG_VERSION"),
        crash.signal,
        crash.code
    );
    match crash.sender {
        Some(sender) => _ = write!(text, ", sent by process {sender}"),
        None => _ = write!(text, ", accessing address: {:#x}", crash.address),
    }
    let name = std::fs::read_to_string(format!("/proc/self/task/{}/comm", crash.thread));
    if let Ok(name) = name {
        let _ = write!(text, ", in thread {} ({})", crash.thread, name.trim());
    }
    text
}

/// Formats the crashed thread's stack frames in Redis's layout, which tools read.
fn stack(crash: &Crash) -> String {
    let mut text = format!("Backtrace of thread {}:\n", crash.thread);
    text.push_str(&describe_frames(&crash.frames));
    text
}

/// Formats frames as `file(+offset)[address]`, one per line.
pub(super) fn describe_frames(frames: &[usize]) -> String {
    let maps = std::fs::read_to_string("/proc/self/maps").unwrap_or_default();
    let mut text = String::new();
    for frame in frames {
        let _ = match place_of(*frame, &maps) {
            Some((file, offset)) => writeln!(text, "{file}(+{offset:#x})[{frame:#x}]"),
            None => writeln!(text, "[{frame:#x}]"),
        };
    }
    text
}

/// Returns the file mapped at an address, and the address's offset from the file's first byte in memory.
fn place_of(address: usize, maps: &str) -> Option<(&str, usize)> {
    let mapped = |line: &'_ str| -> Option<(usize, usize)> {
        let (start, end) = line.split(' ').next()?.split_once('-')?;
        let number = |digits| usize::from_str_radix(digits, 16).ok();
        Some((number(start)?, number(end)?))
    };
    let file_of = |line: &'_ str| line.find('/').map(|at| at..line.len());
    let line = maps
        .lines()
        .find(|line| mapped(line).is_some_and(|(start, end)| (start..end).contains(&address)))?;
    let file = &line[file_of(line)?];
    let first = maps.lines().find(|line| line.ends_with(file))?;
    let (start, _) = mapped(first)?;
    let name = Path::new(file).file_name()?.to_str()?;
    Some((name, address - start))
}

/// Lists the clients, one per line, with the first fields of CLIENT LIST.
fn clients(service: &Service) -> String {
    let mut text = String::new();
    let now_ms = clock::unix_ms();
    let all = service.clients.all();
    for client in all.iter().take(CLIENTS_MAX) {
        let _ = writeln!(text, "{}", client_line(client, now_ms));
    }
    if all.len() > CLIENTS_MAX {
        let _ = writeln!(text, "and {} more", all.len() - CLIENTS_MAX);
    }
    text
}

/// Describes a client with its last command, which is the running one while a thread works for it.
pub(super) fn client_line(client: &Shared, now_ms: u64) -> String {
    let seconds = |since_ms: u64| now_ms.saturating_sub(since_ms) / 1_000;
    let last = usize::from(client.last_command.load(Relaxed));
    let command = registry().all().get(last);
    format!(
        "id={} addr={} laddr={} fd={} name={} age={} idle={} db={} qbuf={} omem={} cmd={}",
        client.id,
        client.address,
        client.local_address,
        client.fd(),
        log::quoted(&client.labels().name),
        seconds(client.created_ms),
        seconds(client.active_ms.load(Relaxed)),
        client.db.load(Relaxed),
        client.query_bytes.load(Relaxed),
        client.output_bytes.load(Relaxed),
        command.map_or("NULL", |command| command.full_name),
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_address_is_found_in_what_is_mapped() {
        let maps = "1000-2000 r--p 00000000 08:01 7 /usr/bin/basalt\n\
                    2000-5000 r-xp 00001000 08:01 7 /usr/bin/basalt\n\
                    7000-8000 rw-p 00000000 00:00 0 \n\
                    9000-a000 r-xp 00000000 08:01 9 /lib/libc.so.6\n";
        assert_eq!(place_of(0x2345, maps), Some(("basalt", 0x1345)));
        assert_eq!(place_of(0x9001, maps), Some(("libc.so.6", 1)));
        assert_eq!(place_of(0x7001, maps), None);
        assert_eq!(place_of(0x5000, maps), None);
    }
}
