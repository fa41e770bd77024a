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
mod tests {
    use super::*;

    fn add(log: &Slowlog, config: &Config, arguments: &[&[u8]]) {
        let entry = SlowlogEntry {
            id: 0,
            at_s: 7,
            cost: 12_000,
            arguments: shorten(arguments.iter().copied()),
            address: "127.0.0.1:5".into(),
            name: "me".into(),
        };
        log.add(config.slowlog_max_len, log.moment(), entry);
    }

    #[test]
    fn the_newest_entry_comes_first_and_numbers_never_repeat() {
        let (log, config) = (Slowlog::default(), Config::default());
        add(&log, &config, &[b"get", b"a"]);
        add(&log, &config, &[b"get", b"b"]);
        let entries = log.get(10);
        assert_eq!(
            entries.iter().map(|entry| entry.id).collect::<Vec<_>>(),
            [1, 0]
        );
        assert_eq!(entries[0].arguments, [b"get".to_vec(), b"b".to_vec()]);
        assert_eq!((entries[0].at_s, entries[0].cost), (7, 12_000));
        assert_eq!(
            (entries[0].address.as_str(), entries[0].name.as_str()),
            ("127.0.0.1:5", "me")
        );
        log.reset();
        assert!(log.is_empty());
        add(&log, &config, &[b"get", b"c"]);
        assert_eq!(log.get(1)[0].id, 2);
        assert_eq!(log.totals(), (3, 36_000));
    }

    #[test]
    fn entries_come_in_the_order_in_which_commands_ran() {
        let (log, config) = (Slowlog::default(), Config::default());
        let (pushed, served) = (log.moment(), log.moment());
        let entry = |argument: &str| SlowlogEntry {
            id: 0,
            at_s: 7,
            cost: 12_000,
            arguments: vec![argument.into()],
            address: String::new(),
            name: String::new(),
        };
        log.add(config.slowlog_max_len, served, entry("blpop"));
        log.add(config.slowlog_max_len, pushed, entry("lpush"));
        log.add(config.slowlog_max_len, log.moment(), entry("get"));
        let entries = log.get(3);
        let seen = entries
            .iter()
            .map(|entry| (entry.id, &entry.arguments[0][..]));
        let expected: [(u64, &[u8]); 3] = [(2, b"get"), (1, b"blpop"), (0, b"lpush")];
        assert_eq!(seen.collect::<Vec<_>>(), expected);
    }

    #[test]
    fn what_ran_before_a_reset_does_not_come_after_it() {
        let (log, config) = (Slowlog::default(), Config::default());
        let before = log.moment();
        log.reset();
        let entry = SlowlogEntry {
            id: 0,
            at_s: 7,
            cost: 12_000,
            arguments: vec![b"ping".to_vec()],
            address: String::new(),
            name: String::new(),
        };
        log.add(config.slowlog_max_len, before, entry.clone());
        assert!(log.is_empty());
        log.skip(3);
        log.add(config.slowlog_max_len, log.moment(), entry);
        assert_eq!(log.get(1)[0].id, 3);
    }

    #[test]
    fn no_bytes_are_many_where_the_limit_is_none() {
        let config = |limit| Config {
            commandlog_reply_larger_than: limit,
            ..Config::default()
        };
        for bytes in [0, 1, 1 << 40] {
            assert!(!is_large_reply(&config(-1), bytes));
            assert!(is_large_reply(&config(0), bytes));
        }
        assert!(is_large_reply(&config(100), 100) && !is_large_reply(&config(100), 99));
    }

    #[test]
    fn a_log_without_room_wants_no_command() {
        let mut config = Config {
            slowlog_log_slower_than: 0,
            ..Config::default()
        };
        assert!(is_slow(&config, 1));
        config.slowlog_max_len = 0;
        assert!(!is_slow(&config, 1));
    }

    #[test]
    fn the_configured_length_bounds_the_log_and_shrinks_it() {
        let log = Slowlog::default();
        let mut config = Config {
            slowlog_max_len: 5,
            ..Config::default()
        };
        for _ in 0..20 {
            add(&log, &config, &[b"x"]);
        }
        assert_eq!(log.len(), 5);
        config.slowlog_max_len = 2;
        add(&log, &config, &[b"x"]);
        assert_eq!(log.len(), 2);
        assert_eq!(log.get(1).len(), 1);
        config.slowlog_max_len = 0;
        add(&log, &config, &[b"x"]);
        assert_eq!(log.len(), 0);
    }

    #[test]
    fn many_arguments_end_in_a_note_on_how_many_are_left_out() {
        let arguments: Vec<Vec<u8>> = (0..40).map(|i| i.to_string().into_bytes()).collect();
        let kept = shorten(arguments.iter().map(Vec::as_slice));
        assert_eq!(kept.len(), 32);
        assert_eq!(kept[30], b"30");
        assert_eq!(kept[31], b"... (9 more arguments)");
        assert_eq!(
            shorten(arguments[..32].iter().map(Vec::as_slice))[31],
            b"31"
        );
    }

    #[test]
    fn a_long_argument_ends_in_a_note_on_how_much_is_left_out() {
        assert_eq!(shorten_one(&[b'A'; 128]), [b'A'; 128]);
        let kept = shorten_one(&[b'A'; 129]);
        assert_eq!(kept[..128], [b'A'; 128]);
        assert_eq!(&kept[128..], b"... (1 more bytes)");
    }
}
