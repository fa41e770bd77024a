//! Events of the last minutes, on which findings are based so that old problems disappear from the reports. Of
//! a sum, only its growth in these minutes counts; of a longest duration, only the longest of these minutes.

use std::collections::VecDeque;
use std::sync::atomic::Ordering::Relaxed;

use parking_lot::Mutex;

use crate::telemetry::holds::Longest;
use crate::telemetry::observed::Observed;

/// Complete minutes that count as recent, besides the current one.
pub const MINUTES: usize = 10;

/// Sums since the start, or their recent growth.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Sums {
    /// Times that shards were locked.
    pub takes: u64,
    /// Attempts that found shards locked.
    pub takes_found_held: u64,
    /// Syncs (fsync) of the append-only file.
    pub syncs: u64,
    /// Microseconds that these syncs took.
    pub sync_total_us: u64,
    /// Writes of the append-only file that did not wait for the previous sync.
    pub delayed_syncs: u64,
    /// Times that write commands waited for the append-only file.
    pub waits_for_disk: u64,
    /// Times that write commands waited for a replica.
    pub waits_for_replica: u64,
    /// Number of keys evicted because of the memory limit.
    pub evicted: u64,
    /// Commands refused because of overload.
    pub overload_refused: u64,
}

impl Sums {
    fn now(service: &dyn Observed) -> Sums {
        let persistence = &service.telemetry().persistence;
        let (aof, waits) = (&persistence.aof, &persistence.writer_waits);
        let all_published = service.all_published();
        let syncs = aof.fsync.counts.iter().map(|count| count.load(Relaxed));
        let mut sums = Sums {
            syncs: syncs.sum(),
            sync_total_us: aof.fsync.total_us.load(Relaxed),
            delayed_syncs: aof.delayed_fsync.load(Relaxed),
            waits_for_disk: waits.for_disk.load(Relaxed),
            waits_for_replica: waits.for_replica.load(Relaxed),
            evicted: (all_published.iter())
                .map(|shard| shard.all_counts().evicted)
                .sum(),
            overload_refused: service.telemetry().overload.refused.load(Relaxed),
            ..Sums::default()
        };
        for shard in 0..all_published.len() {
            let token = service.token(shard);
            sums.takes += token.takes;
            sums.takes_found_held += token.takes_found_held;
        }
        sums
    }

    fn since(self, then: Sums) -> Sums {
        let more = u64::saturating_sub;
        Sums {
            takes: more(self.takes, then.takes),
            takes_found_held: more(self.takes_found_held, then.takes_found_held),
            syncs: more(self.syncs, then.syncs),
            sync_total_us: more(self.sync_total_us, then.sync_total_us),
            delayed_syncs: more(self.delayed_syncs, then.delayed_syncs),
            waits_for_disk: more(self.waits_for_disk, then.waits_for_disk),
            waits_for_replica: more(self.waits_for_replica, then.waits_for_replica),
            evicted: more(self.evicted, then.evicted),
            overload_refused: more(self.overload_refused, then.overload_refused),
        }
    }
}

/// Events of the last minutes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct RecentEvents {
    /// Growth of the sums in the last minutes.
    pub sums: Sums,
    /// The longest times that threads kept shards locked.
    pub holds: Longest,
}

/// Events of the last minutes; see the module.
#[derive(Debug, Default)]
pub struct Recent {
    minutes: Mutex<Minutes>,
}

#[derive(Debug, Default)]
struct Minutes {
    /// Number of the current minute, since 1970.
    number: u64,
    /// Unix second in which the threads' scheduling times were last read.
    read_s: u64,
    /// State at the end of each minute, oldest first: the sums, and the longest shard locks of the minute.
    ended: VecDeque<(Sums, Longest)>,
}

impl Minutes {
    /// Stores the state at the end of a minute. One more minute is kept than counts, for the sums at the beginning
    /// of the first one.
    fn end(&mut self, sums: Sums, holds: Longest) {
        self.ended.push_back((sums, holds));
        if self.ended.len() > MINUTES + 1 {
            self.ended.pop_front();
        }
    }

    fn recent_events(&self, now: Sums, holds: Longest) -> RecentEvents {
        // A server that started only recently: its sums began at zero.
        let (before, counted) = match self.ended.len() > MINUTES {
            true => (self.ended[0].0, 1),
            false => (Sums::default(), 0),
        };
        let ended = self.ended.iter().skip(counted).map(|(_, longest)| *longest);
        RecentEvents {
            sums: now.since(before),
            holds: ended.fold(holds, Longest::with),
        }
    }
}

impl Recent {
    /// Records the end of a minute; call about once a second.
    pub fn tick(&self, service: &dyn Observed, now_s: u64) {
        let holds = &service.telemetry().holds;
        let mut minutes = self.minutes.lock();
        if std::mem::replace(&mut minutes.read_s, now_s) != now_s {
            holds.read();
        }
        let before = std::mem::replace(&mut minutes.number, now_s / 60);
        if before == now_s / 60 || before == 0 {
            return;
        }
        for shard in 0..service.all_published().len() {
            service.forget_recent_hold(shard);
        }
        minutes.end(Sums::now(service), holds.take_longest());
    }

    /// Returns the events of the last minutes.
    pub fn recent_events(&self, service: &dyn Observed) -> RecentEvents {
        let longest = service.telemetry().holds.longest();
        self.minutes
            .lock()
            .recent_events(Sums::now(service), longest)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::telemetry::holds::Hold;

    #[test]
    fn what_was_long_ago_does_not_count_any_more() {
        let sums = |delayed_syncs| Sums {
            delayed_syncs,
            ..Sums::default()
        };
        let mut minutes = Minutes::default();
        let holds = |ns| {
            let hold = Hold { ns, waited_ns: 0 };
            Longest {
                by_run: hold,
                by_wait: hold,
            }
        };
        let late = |minutes: &Minutes, now| {
            let late = minutes.recent_events(sums(now), holds(3));
            (late.sums.delayed_syncs, late.holds.by_run.ns)
        };
        assert_eq!(late(&minutes, 5), (5, 3), "all is of late at the start");
        minutes.end(sums(7), holds(90));
        for _ in 1..MINUTES {
            minutes.end(sums(7), holds(1));
        }
        assert_eq!(late(&minutes, 8), (8, 90));
        minutes.end(sums(7), holds(2));
        assert_eq!(late(&minutes, 8), (1, 3));
    }

    #[test]
    fn a_minute_ends_once_and_takes_the_holds_with_it() {
        let _counting = crate::telemetry::COUNTING.lock();
        let config = std::sync::Arc::new(basalt_commands::config::Config::default());
        let telemetry = crate::telemetry::Telemetry::new(None, 1);
        let service = crate::start::build(config, 2, telemetry);
        let recent = Recent::default();
        for now_s in [600, 601, 659, 660, 661, 725] {
            recent.tick(&service, now_s);
        }
        assert_eq!(recent.minutes.lock().ended.len(), 2);
    }
}
