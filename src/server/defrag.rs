//! `activedefrag`: when values are moved together, and how much of a core that may take.
//!
//! Once a second the allocator is asked how much more memory it holds than is in use. Above the thresholds a walk over
//! all shards begins, in slices under the token of one shard each, from the background thread. Its share of a core grows
//! with the waste, from `active-defrag-cycle-min` to `active-defrag-cycle-max`. A walk that did not help enough is
//! followed by another one; one that hardly moved anything is not, until the waste has grown or a minute has passed.

use std::sync::atomic::Ordering::Relaxed;

use crate::config::Config;
use crate::engine::Now;
use crate::engine::defrag::Walk;
use crate::session::service::Service;
use crate::structures::slabs::{self, Mover};
use crate::telemetry::clock::Ticks;
use crate::telemetry::memory;

/// How often the allocator is asked.
const LOOK_MS: u64 = 1_000;

/// How long nothing is tried after a walk that hardly moved anything.
const REST_MS: u64 = 60_000;

/// The longest that the thread, which has other things to do, works on this at once.
const WORK_NS_MAX: u64 = 5_000_000;

/// The least waste, in percent of what is in use, of a slab that is to become empty.
const SLAB_WASTE_PERCENT_MIN: u32 = 5;

/// See the module.
#[derive(Default)]
pub(super) struct Defragging {
    cycle: Option<Cycle>,
    looked_ms: u64,
    /// Until then, and unless more is wasted than this, nothing is tried.
    rests_until_ms: u64,
    rested_waste_bytes: u64,
}

/// A walk over all shards.
struct Cycle {
    mover: Mover,
    walk: Walk,
    shard: usize,
    percent: u32,
    /// Not before, so as not to take more than its share.
    due: Option<(Ticks, u64)>,
    began: Ticks,
}

/// What the allocator holds beyond what is in use, and in percent of that.
#[derive(Clone, Copy, Debug, PartialEq)]
struct Waste {
    bytes: u64,
    percent: f64,
}

impl Waste {
    fn now() -> Option<Waste> {
        let (allocated, active) = memory::allocator_figures()?;
        let bytes = active.saturating_sub(allocated);
        Some(Waste {
            bytes,
            percent: bytes as f64 * 100.0 / allocated.max(1) as f64,
        })
    }

    /// The percent of a core that it is worth to mend this; none, if it is to be left as it is.
    fn effort(self, config: &Config) -> Option<u32> {
        let lower = f64::from(config.active_defrag_threshold_lower);
        let upper = f64::from(config.active_defrag_threshold_upper).max(lower + 1.0);
        if self.percent < lower || self.bytes < config.active_defrag_ignore_bytes {
            return None;
        }
        let least = config.active_defrag_cycle_min;
        let most = config.active_defrag_cycle_max.max(least);
        let share = ((self.percent - lower) / (upper - lower)).clamp(0.0, 1.0);
        Some(least + (f64::from(most - least) * share) as u32)
    }
}

impl Defragging {
    /// Does what is due; true while a walk is under way.
    pub(super) fn go_on(&mut self, service: &Service, now: Now) -> bool {
        let config = service.config.load();
        if self.cycle.is_none() && !config.activedefrag {
            return false;
        }
        if now.unix_ms.abs_diff(self.looked_ms) >= LOOK_MS {
            self.looked_ms = now.unix_ms;
            self.decide(service, &config, now);
        }
        let Some(cycle) = &mut self.cycle else {
            return false;
        };
        if !config.activedefrag {
            self.stop(service);
            return false;
        }
        let before = Ticks::now();
        if cycle.may_go_on(before) {
            let more = slabs::without_cache(|| cycle.work(service, before));
            let spent_ns = Ticks::now().since_ns(before);
            cycle.rest(spent_ns);
            service
                .telemetry
                .note_defrag(&config, now.unix_ms, spent_ns);
            cycle.publish(service);
            if !more {
                self.finish(service, &config, now);
            }
        }
        self.cycle.is_some()
    }

    fn decide(&mut self, service: &Service, config: &Config, now: Now) {
        let Some(waste) = Waste::now() else { return };
        let effort = waste.effort(config);
        if let Some(cycle) = &mut self.cycle {
            // What has begun is finished, if only with the least effort.
            cycle.percent = effort.unwrap_or(config.active_defrag_cycle_min);
            return;
        }
        let rests = now.unix_ms < self.rests_until_ms
            && waste.bytes < self.rested_waste_bytes + self.rested_waste_bytes / 10;
        if let Some(percent) = effort
            && !rests
        {
            self.begin(service, config, percent);
        }
    }

    fn begin(&mut self, service: &Service, config: &Config, percent: u32) {
        let waste = config.active_defrag_threshold_lower;
        let Some(mover) = Mover::new(waste.max(SLAB_WASTE_PERCENT_MIN) as usize) else {
            return;
        };
        tracing::debug!("Starting active defrag, using {percent}% of a core");
        let cycle = self.cycle.insert(Cycle {
            mover,
            walk: Walk::default(),
            shard: 0,
            percent,
            due: None,
            began: Ticks::now(),
        });
        cycle.publish(service);
    }

    /// A walk is at its end: another one, if it helped and there is more to mend.
    fn finish(&mut self, service: &Service, config: &Config, now: Now) {
        let Some(cycle) = self.cycle.take() else {
            return;
        };
        let (moved, left_alone) = (cycle.mover.moved, cycle.mover.left_alone);
        let did_little = moved < left_alone / 50;
        self.stop(service);
        let Some(waste) = Waste::now() else { return };
        match waste.effort(config) {
            Some(percent) if !did_little => self.begin(service, config, percent),
            Some(_) => {
                self.rests_until_ms = now.unix_ms + REST_MS;
                self.rested_waste_bytes = waste.bytes;
            }
            None => self.rests_until_ms = 0,
        }
    }

    fn stop(&mut self, service: &Service) {
        self.cycle = None;
        let figures = &service.telemetry.defrag;
        figures.percent.store(0, Relaxed);
        figures
            .active_ns
            .fetch_add(figures.current_ns.swap(0, Relaxed), Relaxed);
    }
}

impl Cycle {
    fn may_go_on(&self, now: Ticks) -> bool {
        self.due
            .is_none_or(|(since, pause_ns)| now.since_ns(since) >= pause_ns)
    }

    /// After so much work, rests so long that it takes its share.
    fn rest(&mut self, spent_ns: u64) {
        let percent = u64::from(self.percent.clamp(1, 99));
        let pause_ns = spent_ns * (100 - percent) / percent;
        self.due = Some((Ticks::now(), pause_ns));
    }

    /// Runs slices for as long as its share of some ms; false at the end of the walk.
    fn work(&mut self, service: &Service, began: Ticks) -> bool {
        let work_ns = WORK_NS_MAX * u64::from(self.percent.min(99)) / 100;
        loop {
            let Ok(shard) = u16::try_from(self.shard) else {
                return false;
            };
            if self.shard >= service.shards.len() {
                return false;
            }
            // Whoever holds it is not to be waited for.
            let Some(mut engine) = service.shards.try_take(shard) else {
                return true;
            };
            let taken = Ticks::now();
            let more = engine.defrag_slice(&mut self.walk, &mut self.mover);
            let now = Ticks::now();
            service.shards.note_hold_ns(shard, now.since_ns(taken));
            drop(engine);
            if !more {
                self.shard += 1;
                let figures = &service.telemetry.defrag;
                let walk = std::mem::take(&mut self.walk);
                figures.keys_moved.fetch_add(walk.keys_moved, Relaxed);
                figures
                    .keys_left_alone
                    .fetch_add(walk.keys_left_alone, Relaxed);
            }
            if now.since_ns(began) >= work_ns {
                return true;
            }
        }
    }

    fn publish(&mut self, service: &Service) {
        let figures = &service.telemetry.defrag;
        figures
            .percent
            .store(u64::from(self.percent.max(1)), Relaxed);
        figures
            .current_ns
            .store(Ticks::now().since_ns(self.began), Relaxed);
        let (moved, left_alone) = self.mover.take_news();
        figures.moved.fetch_add(moved, Relaxed);
        figures.left_alone.fetch_add(left_alone, Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_effort_grows_with_the_waste_and_a_little_waste_is_left_alone() {
        let config = Config {
            active_defrag_ignore_bytes: 1_000,
            active_defrag_threshold_lower: 10,
            active_defrag_threshold_upper: 100,
            active_defrag_cycle_min: 1,
            active_defrag_cycle_max: 25,
            ..Config::default()
        };
        let effort = |bytes, percent| Waste { bytes, percent }.effort(&config);
        assert_eq!(effort(999, 50.0), None);
        assert_eq!(effort(5_000, 9.9), None);
        assert_eq!(effort(5_000, 10.0), Some(1));
        assert_eq!(effort(5_000, 55.0), Some(13));
        assert_eq!(effort(5_000, 100.0), Some(25));
        assert_eq!(effort(5_000, 700.0), Some(25));
    }
}
