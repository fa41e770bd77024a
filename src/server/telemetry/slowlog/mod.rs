//! SLOWLOG and COMMANDLOG: the slowest commands, and those with large requests or replies, newest first.
//!
//! This module knows no commands: the session states what ran, how long, and for which client. The length limit
//! is passed with each addition, so that a lower limit takes effect with the next such command, as in Redis.
//! Arguments are truncated before they are kept, so an entry takes a few KiB at most.

use std::collections::VecDeque;

use parking_lot::Mutex;

use super::Telemetry;
use basalt_commands::command::Args;
use basalt_commands::command::declaration::Command;
use basalt_commands::command::host::{CommandLog, SlowlogEntry, SlowlogMoment};
use basalt_commands::config::Config;

/// Arguments kept of one command; the last one states how many more there were.
const ARGUMENTS_MAX: usize = 32;

/// Bytes kept of one argument.
const ARGUMENT_BYTES_MAX: usize = 128;

/// Whether a command that ran for `duration_ns` is logged.
#[inline]
pub fn is_slow(config: &Config, duration_ns: u64) -> bool {
    let threshold_us = config.slowlog_log_slower_than;
    threshold_us >= 0 && duration_ns / 1_000 >= threshold_us as u64 && config.slowlog_max_len > 0
}

/// Whether a request of this size is logged.
#[inline]
pub fn is_large_request(config: &Config, bytes: usize) -> bool {
    bytes >= least_bytes(config.commandlog_request_larger_than)
}

/// Returns the reply size from which on a command is logged.
#[inline]
pub fn large_reply_bytes(config: &Config) -> usize {
    least_bytes(config.commandlog_reply_larger_than)
}

/// Whether a reply of this size is logged.
#[inline]
pub fn is_large_reply(config: &Config, bytes: usize) -> bool {
    bytes >= large_reply_bytes(config)
}

/// Converts a limit to bytes. A negative limit disables logging and becomes larger than any size.
#[inline]
fn least_bytes(limit: i64) -> usize {
    limit as usize
}

/// A log of commands; see the module.
#[derive(Debug, Default)]
pub struct Slowlog {
    inner: Mutex<SlowlogState>,
}

#[derive(Debug, Default)]
struct SlowlogState {
    /// Entries, newest first.
    entries: VecDeque<(SlowlogMoment, SlowlogEntry)>,
    next_id: u64,
    /// Total cost of all entries ever added.
    total_cost: u64,
    resets: u64,
    moments: u64,
}

impl Telemetry {
    /// Returns a command log.
    pub fn command_log(&self, log: CommandLog) -> &Slowlog {
        match log {
            CommandLog::Slow => &self.slowlog,
            CommandLog::LargeRequest => &self.large_requests,
            CommandLog::LargeReply => &self.large_replies,
        }
    }
}

impl Slowlog {
    /// Adds an entry, assigns its id, and drops the oldest entries beyond the limit. An entry from before the
    /// latest reset is dropped.
    ///
    /// A command that ran inside a transaction may be reported after a later entry. Its entry is then inserted
    /// at its moment, and ids are reassigned so that they still descend in the list.
    pub fn add(&self, len_max: u64, moment: SlowlogMoment, entry: SlowlogEntry) {
        let mut inner = self.inner.lock();
        if inner.resets != moment.resets {
            return;
        }
        let id = inner.next_id;
        inner.next_id += 1;
        inner.total_cost = inner.total_cost.wrapping_add(entry.cost);
        let entries = &mut inner.entries;
        let at = entries.partition_point(|(other, _)| *other > moment);
        entries.insert(at, (moment, SlowlogEntry { id, ..entry }));
        for newer in (0..at).rev() {
            let id = entries[newer].1.id;
            entries[newer].1.id = std::mem::replace(&mut entries[newer + 1].1.id, id);
        }
        let kept = usize::try_from(len_max).unwrap_or(usize::MAX);
        inner.entries.truncate(kept);
    }

    /// Counts slow commands of a unit that are not kept, because too many slow commands of the same unit follow
    /// them.
    pub fn skip(&self, count: u64) {
        self.inner.lock().next_id += count;
    }

    /// Starts a new moment: entries of this moment are ordered after all entries of earlier ones.
    pub fn moment(&self) -> SlowlogMoment {
        let mut inner = self.inner.lock();
        inner.moments += 1;
        SlowlogMoment {
            resets: inner.resets,
            number: inner.moments,
        }
    }

    /// Returns at most `count` entries, newest first.
    pub fn get(&self, count: usize) -> Vec<SlowlogEntry> {
        self.inner
            .lock()
            .entries
            .iter()
            .take(count)
            .map(|(_, entry)| entry.clone())
            .collect()
    }

    /// Returns the number of entries.
    pub fn len(&self) -> usize {
        self.inner.lock().entries.len()
    }

    /// Whether the log is empty.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Removes all entries; ids continue.
    pub fn reset(&self) {
        let mut inner = self.inner.lock();
        inner.entries.clear();
        inner.resets += 1;
    }

    /// Returns, for the metrics, the number of entries since the start and their total microseconds.
    pub fn totals(&self) -> (u64, u64) {
        let inner = self.inner.lock();
        (inner.next_id, inner.total_cost)
    }

    /// Returns, for the metrics, the id and duration (µs) of the newest entry.
    pub fn newest(&self) -> Option<(u64, u64)> {
        self.inner
            .lock()
            .entries
            .front()
            .map(|(_, entry)| (entry.id, entry.cost))
    }
}

/// Returns the arguments to be kept: secrets redacted, long ones truncated.
pub fn arguments(command: &Command, args: &Args<'_>) -> Vec<Vec<u8>> {
    shorten(args.from(0).enumerate().map(
        |(index, argument)| match command.is_secret(args, index) {
            true => &b"(redacted)"[..],
            false => argument,
        },
    ))
}

fn shorten<'a>(arguments: impl Iterator<Item = &'a [u8]>) -> Vec<Vec<u8>> {
    let mut kept: Vec<Vec<u8>> = Vec::new();
    let mut count = 0;
    for argument in arguments {
        count += 1;
        if count <= ARGUMENTS_MAX {
            kept.push(shorten_one(argument));
        }
    }
    if count > ARGUMENTS_MAX {
        // The note "... (n more arguments)" replaces the last kept argument, so that argument counts as left
        // out.
        let left_out = count - ARGUMENTS_MAX + 1;
        kept[ARGUMENTS_MAX - 1] = format!("... ({left_out} more arguments)").into_bytes();
    }
    kept
}

fn shorten_one(argument: &[u8]) -> Vec<u8> {
    let Some((head, rest)) = argument.split_at_checked(ARGUMENT_BYTES_MAX) else {
        return argument.to_vec();
    };
    let mut kept = head.to_vec();
    if !rest.is_empty() {
        kept.extend_from_slice(format!("... ({} more bytes)", rest.len()).as_bytes());
    }
    kept
}

#[cfg(test)]
mod tests;
