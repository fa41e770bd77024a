//! Commands that took long for the slow log or the latency monitor: noted while a unit runs, told when it has ended.

use std::collections::VecDeque;

use super::Telemetry;
use super::{latency, slowlog};
use basalt_commands::client::shared::Shared;
use basalt_commands::command::Args;
use basalt_commands::command::declaration::{Command, Flags};
use basalt_commands::command::host::{CommandLog, Server, SlowlogEntry, SlowlogMoment};
use basalt_commands::config::Config;
use basalt_engine::Now;

/// Slow calls of scripts that are kept of a unit, if the slow log has room for fewer.
const CALLS_MIN: usize = 16;

/// Whether the slow log or the latency monitor wants to know of a command that ran for so long.
#[inline]
pub fn is_slow(config: &Config, duration_ns: u64) -> bool {
    slowlog::is_slow(config, duration_ns) || latency::is_slow(config, duration_ns)
}

/// A command that took long, a step of a unit or by itself.
#[derive(Clone, Copy, Debug)]
pub struct SlowStep {
    /// Number of the step.
    pub step: usize,
    /// Nanoseconds that it took.
    pub duration_ns: u64,
    /// When it had run.
    pub moment: SlowlogMoment,
}

impl SlowStep {
    /// A step that took so long, if that is long.
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

/// A command that a script called, and that took long.
struct SlowCall {
    /// The time, and the number of the script among the steps of the unit.
    slow: SlowStep,
    command: &'static Command,
    /// What the slow log keeps of its arguments.
    arguments: Vec<Vec<u8>>,
}

/// What took long of a unit.
#[derive(Default)]
pub struct SlowNotes {
    /// The steps, ascending.
    pub steps: Vec<SlowStep>,
    /// The calls of scripts, the last ones.
    calls: VecDeque<SlowCall>,
    /// Calls before these that were not kept.
    calls_lost: u64,
}

impl SlowNotes {
    /// Whether nothing took long.
    pub fn is_empty(&self) -> bool {
        self.steps.is_empty() && self.calls.is_empty()
    }

    /// Keeps a step in its place.
    pub fn note(&mut self, step: SlowStep) {
        let at = self.steps.partition_point(|other| other.step < step.step);
        self.steps.insert(at, step);
    }

    /// Keeps a call of a script.
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

/// Tells the slow log and the latency monitor what took long of a client's commands.
pub struct Reporter<'r> {
    /// Where that is kept.
    pub telemetry: &'r Telemetry,
    /// Limits and thresholds.
    pub config: &'r Config,
    /// The client.
    pub client: &'r Shared,
    /// The moment.
    pub now: Now,
}

impl Reporter<'_> {
    /// Tells of a command, if it took long enough.
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

    /// Tells of a command whose request or reply has many bytes.
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

    /// Tells of what took long of that which a script called, which was that step of a unit.
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
/// Most bytes of a client's name that an entry keeps: a log of long ones would take what no limit counts.
const NAME_BYTES_MAX: usize = 128;

fn shortened(name: &[u8]) -> String {
    let kept = &name[..name.len().min(NAME_BYTES_MAX)];
    let mut text = String::from_utf8_lossy(kept).into_owned();
    if name.len() > kept.len() {
        text.push_str(&format!("... ({} more bytes)", name.len() - kept.len()));
    }
    text
}
