//! Sizes of requests and replies by command, in bytes as sent (`size-tracking`).
//!
//! Each thread has counters of its own. They are made when a command is first counted, so that a server without
//! `size-tracking` has none.

use std::sync::OnceLock;

use basalt_commands::command::declaration::Command;
use basalt_commands::command::registry::registry;
use basalt_core::base::counter::Counter;

/// Number of bins: bin `i` counts sizes from 2^i bytes on, below twice as many; the first one also empty replies, and
/// the last one everything above.
pub const BINS: usize = 32;

/// Sizes of one direction of a command's messages.
#[derive(Debug, Default)]
struct SizeCounters {
    bytes: Counter,
    bins: [Counter; BINS],
}

impl SizeCounters {
    fn add(&self, bytes: usize) {
        self.bytes.add(bytes as u64);
        self.bins[bin_of(bytes)].add(1);
    }
}

fn bin_of(bytes: usize) -> usize {
    (bytes.max(1).ilog2() as usize).min(BINS - 1)
}

/// Sizes of a command's requests and of its replies, once it was counted.
type BothDirections = OnceLock<Box<[SizeCounters; 2]>>;

/// A thread's counters, by command.
#[derive(Debug, Default)]
pub struct ThreadSizes(OnceLock<Box<[BothDirections]>>);

impl ThreadSizes {
    /// Counts a request that was answered.
    pub fn add(&self, command: &Command, request_bytes: usize, reply_bytes: usize) {
        let all = self
            .0
            .get_or_init(|| registry().all().iter().map(|_| OnceLock::new()).collect());
        let [requests, replies] = &**all[command.id()].get_or_init(Box::default);
        requests.add(request_bytes);
        replies.add(reply_bytes);
    }

    fn of(&self, id: usize) -> Option<&[SizeCounters; 2]> {
        self.0.get()?[id].get().map(|sizes| &**sizes)
    }

    /// Resets the counters: CONFIG RESETSTAT.
    pub(super) fn reset(&self) {
        let commands = self.0.get().into_iter().flatten();
        for direction in commands.filter_map(OnceLock::get).flat_map(|both| &**both) {
            direction.bytes.set(0);
            direction.bins.iter().for_each(|bin| bin.set(0));
        }
    }
}

/// Sizes of one direction, summed over all threads.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct SizeFigures {
    /// Total bytes.
    pub bytes: u64,
    /// Number of messages by size.
    pub bins: [u64; BINS],
}

impl SizeFigures {
    fn add(&mut self, counters: &SizeCounters) {
        self.bytes += counters.bytes.get();
        for (sum, count) in self.bins.iter_mut().zip(&counters.bins) {
            *sum += count.get();
        }
    }

    /// Returns the number of messages.
    pub fn count(&self) -> u64 {
        self.bins.iter().sum()
    }
}

/// Sizes of a command's requests and replies.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CommandSizes {
    /// Full name of the command.
    pub name: &'static str,
    /// Sizes of the requests.
    pub requests: SizeFigures,
    /// Sizes of the replies.
    pub replies: SizeFigures,
}

/// Returns the sizes of all commands that these threads have counted.
pub(super) fn sums<'t>(
    threads: impl Iterator<Item = &'t ThreadSizes> + Clone,
) -> Vec<CommandSizes> {
    let sizes = registry().all().iter().map(|command| {
        let mut sums = [SizeFigures::default(), SizeFigures::default()];
        for both in threads.clone().filter_map(|sizes| sizes.of(command.id())) {
            sums.iter_mut()
                .zip(both)
                .for_each(|(sum, counters)| sum.add(counters));
        }
        let [requests, replies] = sums;
        CommandSizes {
            name: command.full_name,
            requests,
            replies,
        }
    });
    sizes.filter(|sizes| sizes.requests.count() > 0).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_size_lies_in_the_bin_of_the_power_of_two_that_it_reaches() {
        for (bytes, bin) in [
            (0, 0),
            (1, 0),
            (2, 1),
            (3, 1),
            (4, 2),
            (1_023, 9),
            (1_024, 10),
            (usize::MAX, BINS - 1),
        ] {
            assert_eq!(bin_of(bytes), bin, "{bytes}");
        }
    }

    #[test]
    fn both_directions_are_counted_by_command_until_they_are_reset() {
        let find = |name: &str| registry().find(name.as_bytes()).expect("a command");
        let sizes = ThreadSizes::default();
        assert!(sizes.of(find("get").id()).is_none());
        sizes.add(find("get"), 40, 100);
        sizes.add(find("get"), 33, 5);
        sizes.add(find("set"), 4_000, 5);
        let shown = |name: &str| {
            let both = sizes.of(find(name).id()).expect("it was counted");
            let mut sums = [SizeFigures::default(), SizeFigures::default()];
            sums.iter_mut()
                .zip(both)
                .for_each(|(sum, counters)| sum.add(counters));
            sums.map(|sum| (sum.count(), sum.bytes, sum.bins[5], sum.bins[2]))
        };
        assert_eq!(shown("get"), [(2, 73, 2, 0), (2, 105, 0, 1)]);
        assert_eq!(shown("set"), [(1, 4_000, 0, 0), (1, 5, 0, 1)]);
        sizes.reset();
        assert_eq!(shown("get"), [(0, 0, 0, 0); 2]);
    }
}
