//! Slow commands for the slow log and the latency monitor: recorded while a unit (a transaction or a script)
//! runs, and reported when the unit has ended.

use std::collections::VecDeque;

use super::Telemetry;
use super::{latency, slowlog};
use basalt_commands::client::shared::Shared;
use basalt_commands::command::Args;
use basalt_commands::command::declaration::{Command, Flags};
use basalt_commands::command::host::{CommandLog, Server, SlowlogEntry, SlowlogMoment};
use basalt_commands::config::Config;
use basalt_engine::Now;

/// Minimum number of slow script calls kept per unit, if the slow log's limit is lower.
const CALLS_MIN: usize = 16;

/// Whether the slow log or the latency monitor records a command that ran for `duration_ns`.
#[inline]
pub fn is_slow(config: &Config, duration_ns: u64) -> bool {
    slowlog::is_slow(config, duration_ns) || latency::is_slow(config, duration_ns)
}

/// A slow command, run as a step of a unit or by itself.
#[derive(Clone, Copy, Debug)]
pub struct SlowStep {
    /// Index of the step.
    pub step: usize,
    /// Nanoseconds that it took.
    pub duration_ns: u64,
    /// When the command finished, in the slow log's order.
    pub moment: SlowlogMoment,
}

impl SlowStep {
    /// Creates the record of a step if it was slow.
    #[inline]
    pub fn of(
        step: usize,
        duration_ns: u64,
        (config, server): (&Config, &dyn Server),
    ) -> Option<SlowStep> {
        is_slow(config, duration_ns).then(|| SlowStep {
            step,
            duration_ns,
            moment: server.slowlog_moment(),
        })
    }
}

/// A slow command called by a script.
struct SlowCall {
    /// The duration, and the script's step index in the unit.
    slow: SlowStep,
    command: &'static Command,
    /// The command's arguments as kept by the slow log.
    arguments: Vec<Vec<u8>>,
}

/// The slow commands of a unit.
#[derive(Default)]
pub struct SlowNotes {
    /// Slow steps, in ascending order.
    pub steps: Vec<SlowStep>,
    /// The most recent slow calls of scripts.
    calls: VecDeque<SlowCall>,
    /// Number of earlier calls that were dropped.
    calls_lost: u64,
}

impl SlowNotes {
    /// Whether no slow command was recorded.
    pub fn is_empty(&self) -> bool {
        self.steps.is_empty() && self.calls.is_empty()
    }

    /// Inserts a slow step, keeping the steps in ascending order.
    pub fn note(&mut self, step: SlowStep) {
        let at = self.steps.partition_point(|other| other.step < step.step);
        self.steps.insert(at, step);
    }

    /// Records a script's call.
    #[cold]
    pub fn note_call(
        &mut self,
        command: &'static Command,
        args: &Args<'_>,
        slow: SlowStep,
        config: &Config,
    ) {
        let kept = usize::try_from(config.slowlog_max_len).unwrap_or(usize::MAX);
        if self.calls.len() >= kept.max(CALLS_MIN) {
            self.calls.pop_front();
            self.calls_lost += 1;
        }
        self.calls.push_back(SlowCall {
            slow,
            command,
            arguments: slowlog::arguments(command, args),
        });
    }
}

/// Reports a client's slow commands to the slow log and the latency monitor.
pub struct Reporter<'r> {
    /// Destination of the reports.
    pub telemetry: &'r Telemetry,
    /// Limits and thresholds.
    pub config: &'r Config,
    /// The client.
    pub client: &'r Shared,
    /// The current time.
    pub now: Now,
}

impl Reporter<'_> {
    /// Reports a command if it was slow enough.
    pub fn tell(
        &self,
        command: &'static Command,
        arguments: impl FnOnce() -> Vec<Vec<u8>>,
        slow: SlowStep,
    ) {
        let (config, duration_ns, at_s) = (self.config, slow.duration_ns, self.now.unix_ms / 1_000);
        if slowlog::is_slow(config, duration_ns) && !command.flags.has(Flags::SKIP_SLOWLOG) {
            let entry = self.entry(duration_ns / 1_000, arguments());
            let slowlog = &self.telemetry.slowlog;
            slowlog.add(config.slowlog_max_len, slow.moment, entry);
        }
        if latency::is_slow(config, duration_ns) {
            let event = match command.flags.has(Flags::FAST) {
                true => latency::FAST_COMMAND,
                false => latency::COMMAND,
            };
            let monitor = &self.telemetry.latency;
            monitor.note(config, event, at_s, duration_ns / 1_000_000);
        }
    }

    fn entry(&self, cost: u64, arguments: Vec<Vec<u8>>) -> SlowlogEntry {
        SlowlogEntry {
            id: 0,
            at_s: self.now.unix_ms / 1_000,
            cost,
            arguments,
            address: self.client.address.to_string(),
            name: shortened(&self.client.labels().name),
        }
    }

    /// Reports a command with a large request or reply.
    pub fn tell_large(
        &self,
        command: &'static Command,
        log: CommandLog,
        bytes: usize,
        arguments: Vec<Vec<u8>>,
    ) {
        if command.flags.has(Flags::SKIP_SLOWLOG) {
            return;
        }
        let len_max = match log {
            CommandLog::Slow => self.config.slowlog_max_len,
            CommandLog::LargeRequest => self.config.commandlog_large_request_max_len,
            CommandLog::LargeReply => self.config.commandlog_large_reply_max_len,
        };
        let log = self.telemetry.command_log(log);
        log.add(len_max, log.moment(), self.entry(bytes as u64, arguments));
    }

    /// Reports the slow commands that the script at index `step` of the unit called.
    pub fn tell_calls(&self, notes: &SlowNotes, step: usize) {
        let mut calls = notes.calls.iter().peekable();
        if calls.peek().is_some_and(|first| first.slow.step == step) {
            self.telemetry.slowlog.skip(notes.calls_lost);
        }
        for call in calls.filter(|call| call.slow.step == step) {
            self.tell(call.command, || call.arguments.clone(), call.slow);
        }
    }
}
/// Bytes kept of a client's name in an entry. Longer names would take memory that no limit counts.
const NAME_BYTES_MAX: usize = 128;

fn shortened(name: &[u8]) -> String {
    let kept = &name[..name.len().min(NAME_BYTES_MAX)];
    let mut text = String::from_utf8_lossy(kept).into_owned();
    if name.len() > kept.len() {
        text.push_str(&format!("... ({} more bytes)", name.len() - kept.len()));
    }
    text
}
