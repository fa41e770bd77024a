//! SLOWLOG and COMMANDLOG: the commands that took longest, and those of large requests and replies, newest first.
//!
//! Knows nothing of commands: the session says what ran, how long, and for whom. Bounded by a number that
//! comes with each addition, so that a smaller limit takes effect with the next such command, as in Redis. Arguments
//! are shortened before they are kept: what a slow command leaves behind is a few KiB at most.

use std::collections::VecDeque;

use parking_lot::Mutex;

use super::Telemetry;
use basalt_commands::command::Args;
use basalt_commands::command::declaration::Command;
use basalt_commands::command::host::{CommandLog, SlowlogEntry, SlowlogMoment};
use basalt_commands::config::Config;

/// Arguments kept of one command; the last one says how many more there were.
const ARGUMENTS_MAX: usize = 32;

/// Bytes kept of one argument.
const ARGUMENT_BYTES_MAX: usize = 128;

/// Whether a command that ran for so long is kept.
#[inline]
pub fn is_slow(config: &Config, duration_ns: u64) -> bool {
    let threshold_us = config.slowlog_log_slower_than;
    threshold_us >= 0 && duration_ns / 1_000 >= threshold_us as u64 && config.slowlog_max_len > 0
}

/// Whether so many bytes of a request are kept.
#[inline]
pub fn is_large_request(config: &Config, bytes: usize) -> bool {
    bytes >= least_bytes(config.commandlog_request_larger_than)
}

/// From how many bytes on a reply is kept.
#[inline]
pub fn large_reply_bytes(config: &Config) -> usize {
    least_bytes(config.commandlog_reply_larger_than)
}

/// Whether so many bytes of a reply are kept.
#[inline]
pub fn is_large_reply(config: &Config, bytes: usize) -> bool {
    bytes >= large_reply_bytes(config)
}

/// The bytes that a limit says; more than there are if it is negative, as it is none then.
#[inline]
fn least_bytes(limit: i64) -> usize {
    limit as usize
}

/// See the module.
#[derive(Debug, Default)]
pub struct Slowlog {
    inner: Mutex<Inner>,
}

#[derive(Debug, Default)]
struct Inner {
    /// Newest first.
    entries: VecDeque<(SlowlogMoment, SlowlogEntry)>,
    next_id: u64,
    /// What all entries that were ever made took.
    total_cost: u64,
    resets: u64,
    moments: u64,
}

impl Telemetry {
    /// A log of commands.
    pub fn command_log(&self, log: CommandLog) -> &Slowlog {
        match log {
            CommandLog::Slow => &self.slowlog,
            CommandLog::LargeRequest => &self.large_requests,
            CommandLog::LargeReply => &self.large_replies,
        }
    }
}

impl Slowlog {
    /// Keeps one command, whose number it chooses, and drops the oldest ones beyond the limit; one that ran before the
    /// latest reset is not kept.
    ///
    /// What a transaction has served may be told of before the transaction itself: then numbers move, so that they
    /// descend in the list as always.
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

    /// Counts commands that are not kept because too many others of the same unit follow.
    pub fn skip(&self, count: u64) {
        self.inner.lock().next_id += count;
    }

    /// Begins a new moment: what is added as of it comes behind all that was added as of earlier ones.
    pub fn moment(&self) -> SlowlogMoment {
        let mut inner = self.inner.lock();
        inner.moments += 1;
        SlowlogMoment {
            resets: inner.resets,
            number: inner.moments,
        }
    }

    /// At most so many, newest first.
    pub fn get(&self, count: usize) -> Vec<SlowlogEntry> {
        self.inner
            .lock()
            .entries
            .iter()
            .take(count)
            .map(|(_, entry)| entry.clone())
            .collect()
    }

    /// How many are kept.
    pub fn len(&self) -> usize {
        self.inner.lock().entries.len()
    }

    /// Whether none is kept.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Forgets all; numbers go on.
    pub fn reset(&self) {
        let mut inner = self.inner.lock();
        inner.entries.clear();
        inner.resets += 1;
    }

    /// For the metrics: commands noted since the start, and the microseconds that they took.
    pub fn totals(&self) -> (u64, u64) {
        let inner = self.inner.lock();
        (inner.next_id, inner.total_cost)
    }

    /// For the metrics: number and duration (µs) of the newest entry.
    pub fn newest(&self) -> Option<(u64, u64)> {
        self.inner
            .lock()
            .entries
            .front()
            .map(|(_, entry)| (entry.id, entry.cost))
    }
}

/// What is kept of a command's arguments: no secrets, and little of long ones.
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
        // The note takes the place of the last one kept, which therefore counts among those left out.
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
