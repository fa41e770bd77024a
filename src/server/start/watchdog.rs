//! The software watchdog: logs stack traces when a shard stays locked for too long. It also makes long-running
//! scripts check the clock ([`attention`]).
//!
//! `watchdog-period` is the maximum number of milliseconds for which a thread may keep a shard locked (a
//! "hold"). Each longer hold is reported once, with the stacks of the threads that have shards locked at that
//! time. An external SIGALRM requests the stacks of all threads. The start of a hold is not recorded: a thread
//! checks twice per period whether the hold is still the same.

use std::fmt::Write;
use std::sync::Arc;

use super::crash::{client_line, describe_frames};
use crate::shard::ownership;
use crate::state::Service;
use crate::sys::lua::attention;
use crate::sys::watchdog::{self, Stack, Woken};
use crate::telemetry::{clock, log};

/// Minimum interval between two checks, in milliseconds.
const LOOK_MS_MIN: u32 = 5;

/// Observed state of a shard.
#[derive(Clone, Copy, Default)]
struct ObservedHold {
    /// The unique number of the shard's current hold; `None` while the shard is free.
    hold: Option<u64>,
    /// Unix time in milliseconds at which this hold was first observed.
    since_ms: u64,
    is_told: bool,
}

/// Starts the thread that reports long holds.
pub(super) fn watch(service: Arc<Service>) {
    if let Err(error) = watchdog::install(ownership::is_holding) {
        tracing::warn!("The watchdog is disabled: {error}");
        return;
    }
    if let Err(error) = attention::install() {
        tracing::warn!(
            "The timer for script time limits is not available; scripts check the clock every few \
                        instructions instead: {error}"
        );
    }
    let thread = std::thread::Builder::new().name("basalt-watchdog".to_owned());
    if let Err(error) = thread.spawn(move || run(&service)) {
        tracing::warn!("The watchdog is disabled: {error}");
    }
}

fn run(service: &Service) {
    let mut seen = vec![ObservedHold::default(); service.shards.len()];
    loop {
        let period_ms = service.config.load().watchdog_period;
        let look_ms = (period_ms > 0).then(|| (period_ms / 2).max(LOOK_MS_MIN));
        let script_ms = attention::is_needed().then_some(attention::LOOK_MS);
        let woken = watchdog::wait(look_ms.into_iter().chain(script_ms).min());
        attention::look();
        match woken {
            Woken::Asked => report(service, "Received SIGALRM", |_| true),
            // Discard earlier observations, because the watchdog did not check in between.
            Woken::Told => seen.fill(ObservedHold::default()),
            Woken::TimedOut if period_ms > 0 => look(service, &mut seen, period_ms.into()),
            Woken::TimedOut => {}
        }
    }
}

fn look(service: &Service, seen: &mut [ObservedHold], period_ms: u64) {
    let now_ms = clock::unix_ms();
    let mut late = String::new();
    for (shard, seen) in seen.iter_mut().enumerate() {
        let hold = service.shards.hold_number(shard as u16);
        if hold.is_none() || hold != seen.hold {
            *seen = ObservedHold {
                hold,
                since_ms: now_ms,
                is_told: false,
            };
        }
        let held_ms = now_ms.saturating_sub(seen.since_ms);
        if hold.is_some() && held_ms >= period_ms && !seen.is_told {
            seen.is_told = true;
            let _ = write!(
                late,
                "\nshard {shard} has been busy for {held_ms} ms or longer"
            );
        }
    }
    if !late.is_empty() {
        let title = format!("--- WATCHDOG TIMER EXPIRED ---{late}");
        report(service, &title, |stack| stack.holds);
    }
}

fn report(service: &Service, title: &str, is_wanted: impl Fn(&Stack) -> bool) {
    let mut text = format!("\n{title}\n\n------ STACK TRACE ------\n");
    for thread in threads() {
        let Some(stack) = watchdog::stack_of(thread) else {
            continue;
        };
        if !is_wanted(&stack) {
            continue;
        }
        let name = std::fs::read_to_string(format!("/proc/self/task/{thread}/comm"));
        let name = name.unwrap_or_default();
        let holds = if stack.holds { ", holds shards" } else { "" };
        let _ = writeln!(
            text,
            "\nBacktrace of thread {thread} ({}){holds}:",
            name.trim()
        );
        if let Some(client) = service.clients.get(stack.client) {
            let _ = writeln!(text, "for {}", client_line(&client, clock::unix_ms()));
        }
        text.push_str(&describe_frames(&stack.frames));
    }
    text.push_str("\n------ STACK TRACE DONE ------\n--------\n");
    log::raw(&text);
}

/// Returns the system's ids of the process's other threads.
fn threads() -> Vec<i32> {
    let own = std::fs::read_link("/proc/thread-self").ok();
    let own = own.and_then(|path| path.file_name()?.to_str()?.parse().ok());
    let entries = std::fs::read_dir("/proc/self/task").into_iter().flatten();
    entries
        .filter_map(|entry| entry.ok()?.file_name().to_str()?.parse().ok())
        .filter(|thread| Some(*thread) != own)
        .collect()
}
