//! `activedefrag` and `maxmemory-compact`: when to defragment, and how much of a core to use for it.
//!
//! Once a second the allocator is asked how much more memory it holds than is in use. If this waste exceeds the
//! thresholds, a pass over all shards begins. The background thread works in slices, each with one shard
//! locked. Its share of a core grows with the waste, from `active-defrag-cycle-min` to
//! `active-defrag-cycle-max`. After a pass that helped, another may follow at once. After a pass that hardly
//! moved anything, none follows until the waste has grown or a minute has passed. Keys are distributed over
//! shards at random, so a shard with hardly anything to move predicts the same of the next: a pass that finds
//! such shards continues with minimum effort until one has more to move.
//!
//! A memory limit is meant for all memory that the process takes, not only for its accounted data. So with
//! `maxmemory-compact`, which is on by default, values are also defragmented when the allocator's pages take
//! notably more than the limit, and free pages are returned sooner.

use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;

use super::runtime::Spawner;
use crate::script::sha::Sha;
use crate::state::Service;
use crate::telemetry::clock::Ticks;
use crate::telemetry::memory::{self, AllocatorFigures, Decay};
use basalt_commands::client::shared::mailbox::Topic;
use basalt_commands::config::Config;
use basalt_core::alloc::slabs::{self, Mover};
use basalt_engine::Now;
use basalt_engine::defrag::Walk;

/// Interval of the allocator checks in milliseconds.
const LOOK_MS: u64 = 1_000;

/// Milliseconds of pause after a pass that hardly moved anything.
const REST_MS: u64 = 60_000;

/// Maximum nanoseconds of uninterrupted work, because the background thread has other work.
const WORK_NS_MAX: u64 = 5_000_000;

/// Milliseconds of pause after a pass that hardly moved anything while the memory limit is exceeded.
const LIMIT_REST_MS: u64 = 5_000;

/// A slab of the allocator is emptied only if its unused part is at least this percentage of its bytes in use.
const SLAB_WASTE_PERCENT_MIN: u32 = 5;

/// Values are defragmented if the allocator's pages exceed the memory limit by at least this percentage.
const BEYOND_LIMIT_PERCENT_MIN: f64 = 5.0;

/// Defragmentation uses its maximum effort if the allocator's pages exceed the memory limit by at least this
/// percentage.
const BEYOND_LIMIT_PERCENT_MAX: f64 = 15.0;

/// Minimum and maximum percentage of a core for defragmentation because of the memory limit.
const LIMIT_EFFORT_PERCENT: (u32, u32) = (1, 30);

/// Percentage of a core for a pass that finds little.
const PERCENT_MIN: u32 = 1;

/// A shard has little to move if fewer than 1/n of its allocations had to be moved.
const LITTLE_PARTS: u64 = 20;
/// A pass did not help if it moved fewer than 1/n of the allocations, or reduced the waste by less than 1/n.
const HELPED_PARTS: u64 = 50;

/// Excess of all memory held by the allocator over the limit, in percent, above which free pages are returned
/// to the system at once,
const RESIDENT_PERCENT_HIGH: f64 = 10.0;

/// until the excess falls below this percentage.
const RESIDENT_PERCENT_LOW: f64 = 7.0;

/// Scripts, or channel names, processed per slice.
const SCRIPTS_PER_SLICE: usize = 64;

/// The state of defragmentation; see the module.
#[derive(Default)]
pub(super) struct Defragging {
    cycle: Option<Cycle>,
    looked_ms: u64,
    /// No pass begins before this time, unless the waste has grown notably beyond `rested_waste_bytes`.
    rests_until_ms: u64,
    rested_waste_bytes: u64,
    decay: Decay,
}

/// A pass over all shards.
struct Cycle {
    mover: Mover,
    walk: Walk,
    shard: usize,
    /// Remaining scripts, once the shards are done.
    scripts: Option<Vec<Sha>>,
    /// Remaining channel names, once the scripts are done.
    channels: Option<Vec<(Topic, Arc<[u8]>)>>,
    percent: u32,
    /// Counts of moved and unmoved allocations at the beginning of the current shard; and (`finds_little`)
    /// whether the previous shard had little to move.
    shard_began: (u64, u64),
    finds_little: bool,
    /// Waste at the beginning of the pass.
    began_waste: Waste,
    /// When the pass last paused, and for how many nanoseconds, to keep to its share of a core.
    due: Option<(Ticks, u64)>,
    began: Ticks,
    /// Arenas of the allocator from which moved values are allocated in turn.
    arenas: Vec<u32>,
    turn: usize,
}

/// Memory that the allocator holds beyond what is in use, also as a percentage of the bytes in use.
#[derive(Clone, Copy, Debug, PartialEq)]
struct Waste {
    bytes: u64,
    /// Bytes in use by the process.
    used_bytes: u64,
    percent: f64,
    /// Excess over the memory limit, as a percentage of it, of the active pages and of all resident memory.
    active_beyond_percent: f64,
    resident_beyond_percent: f64,
}

impl Waste {
    fn now(config: &Config) -> Option<Waste> {
        let figures = memory::allocator_figures()?;
        Some(Waste::of(figures, config.maxmemory))
    }

    fn of(figures: AllocatorFigures, limit: u64) -> Waste {
        let bytes = figures.active.saturating_sub(figures.allocated);
        let beyond = |bytes: u64| match limit {
            0 => 0.0,
            _ => bytes as f64 * 100.0 / limit as f64 - 100.0,
        };
        Waste {
            bytes,
            used_bytes: figures.allocated,
            percent: bytes as f64 * 100.0 / figures.allocated.max(1) as f64,
            active_beyond_percent: beyond(figures.active),
            resident_beyond_percent: beyond(figures.resident),
        }
    }

    /// Whether another pass may help after one that ends now: either the waste has shrunk and the pass moved
    /// enough, or the memory in use has shrunk meanwhile, which causes new waste.
    fn may_be_mended(self, before: Waste, did_little: bool) -> bool {
        let is_less = |now: u64, before: u64| now < before - before / HELPED_PARTS;
        let helped = !did_little && is_less(self.bytes, before.bytes);
        helped || is_less(self.used_bytes, before.used_bytes)
    }

    /// Returns the percentage of a core worth spending on this waste; `None` if it is too small.
    fn effort(self, config: &Config) -> Option<u32> {
        let when_asked = self.effort_when_asked(config);
        when_asked.max(self.effort_at_limit(config))
    }

    fn effort_at_limit(self, config: &Config) -> Option<u32> {
        let beyond = self.active_beyond_percent - BEYOND_LIMIT_PERCENT_MIN;
        // Pages beyond the limit that are in use cannot be reduced.
        let is_waste = self.percent >= BEYOND_LIMIT_PERCENT_MIN;
        if !config.maxmemory_compact || beyond < 0.0 || !is_waste {
            return None;
        }
        let (least, most) = LIMIT_EFFORT_PERCENT;
        let share = beyond / (BEYOND_LIMIT_PERCENT_MAX - BEYOND_LIMIT_PERCENT_MIN);
        Some(least + (f64::from(most - least) * share.min(1.0)) as u32)
    }

    fn effort_when_asked(self, config: &Config) -> Option<u32> {
        if !config.activedefrag {
            return None;
        }
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
    /// Checks the allocator and works on the current pass, as due. Returns true while a pass is in progress.
    pub(super) fn go_on(&mut self, service: &Service, spawner: &Spawner, now: Now) -> bool {
        let config = service.config.load();
        let is_limited = config.maxmemory > 0 && config.maxmemory_compact;
        if self.cycle.is_none() && !config.activedefrag && !is_limited {
            // When a limit is set again, the allocator starts from its setting at that time.
            self.decay = Decay::Soon;
            // When defragmentation is enabled again, start without a pause.
            self.rests_until_ms = 0;
            service.telemetry.defrag.percent.store(0, Relaxed);
            return false;
        }
        if now.unix_ms.abs_diff(self.looked_ms) >= LOOK_MS {
            self.looked_ms = now.unix_ms;
            self.decide(service, spawner, &config, now);
        }
        let Some(cycle) = &mut self.cycle else {
            return false;
        };
        if !config.activedefrag && !is_limited {
            self.stop(service);
            return false;
        }
        let before = Ticks::now();
        if cycle.may_go_on(before) {
            let more = slabs::in_arena(cycle.next_arena(), || {
                slabs::without_cache(|| cycle.work(service, before))
            });
            let spent_ns = Ticks::now().since_ns(before);
            cycle.rest(spent_ns);
            service
                .telemetry
                .note_defrag(&config, now.unix_ms, spent_ns);
            cycle.publish(service);
            if !more {
                self.finish(service, spawner, &config, now);
            }
        }
        self.cycle.is_some()
    }

    fn decide(&mut self, service: &Service, spawner: &Spawner, config: &Config, now: Now) {
        let Some(waste) = Waste::now(config) else {
            return;
        };
        self.choose_decay(waste, config);
        let effort = waste.effort(config);
        if let Some(cycle) = &mut self.cycle {
            // A pass that has begun is completed, even if with minimum effort.
            cycle.percent = effort.unwrap_or(config.active_defrag_cycle_min);
            return;
        }
        service.telemetry.defrag.percent.store(0, Relaxed);
        let rests = now.unix_ms < self.rests_until_ms
            && waste.bytes < self.rested_waste_bytes + self.rested_waste_bytes / 10;
        if let Some(percent) = effort
            && !rests
        {
            self.begin(service, spawner, config, percent, waste);
        }
    }

    /// Makes the allocator return free pages at once while it holds notably more than the limit.
    fn choose_decay(&mut self, waste: Waste, config: &Config) {
        if config.maxmemory == 0 || !config.maxmemory_compact {
            return;
        }
        let beyond = waste.resident_beyond_percent;
        let decay = match self.decay {
            Decay::AtOnce if beyond > RESIDENT_PERCENT_LOW => Decay::AtOnce,
            _ if beyond > RESIDENT_PERCENT_HIGH => Decay::AtOnce,
            _ => Decay::Soon,
        };
        // Set `AtOnce` again each time, because a memory limit that was set meanwhile changes the allocator's
        // setting.
        if decay != self.decay || decay == Decay::AtOnce {
            self.decay = decay;
            memory::set_decay(decay);
        }
    }

    fn begin(
        &mut self,
        service: &Service,
        spawner: &Spawner,
        config: &Config,
        percent: u32,
        began_waste: Waste,
    ) {
        let waste = match config.activedefrag {
            true => config.active_defrag_threshold_lower,
            false => SLAB_WASTE_PERCENT_MIN,
        };
        let Some(mover) = Mover::new(waste.max(SLAB_WASTE_PERCENT_MIN) as usize) else {
            return;
        };
        // Empty the threads' caches of free slots first, because they count as waste but moving values does not
        // reduce them.
        spawner.empty_caches();
        tracing::debug!("Starting active defrag, using {percent}% of a core");
        let cycle = Cycle::new(mover, percent, began_waste);
        let cycle = self.cycle.insert(cycle);
        cycle.publish(service);
    }

    /// Ends a pass, and begins another if it helped and there is more to reduce.
    fn finish(&mut self, service: &Service, spawner: &Spawner, config: &Config, now: Now) {
        let Some(cycle) = self.cycle.take() else {
            return;
        };
        let (moved, left_alone) = (cycle.mover.moved, cycle.mover.left_alone);
        let did_little = moved < left_alone / HELPED_PARTS;
        self.stop(service);
        let Some(waste) = Waste::now(config) else {
            return;
        };
        // Keep reporting the pass in INFO until the next check, so that even a short pass is seen.
        let figures = &service.telemetry.defrag;
        figures
            .percent
            .store(u64::from(cycle.percent.max(1)), Relaxed);
        // A pass may not help, because values of some sizes always leave part of their pages unused.
        let helped = waste.may_be_mended(cycle.began_waste, did_little);
        match waste.effort(config) {
            Some(percent) if helped => self.begin(service, spawner, config, percent, waste),
            Some(_) => {
                let rest_ms = match waste.effort_at_limit(config) {
                    Some(_) => LIMIT_REST_MS,
                    None => REST_MS,
                };
                self.rests_until_ms = now.unix_ms + rest_ms;
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
    fn new(mover: Mover, percent: u32, began_waste: Waste) -> Cycle {
        Cycle {
            mover,
            walk: Walk::default(),
            shard: 0,
            scripts: None,
            channels: None,
            percent,
            shard_began: (0, 0),
            finds_little: false,
            began_waste,
            due: None,
            began: Ticks::now(),
            arenas: slabs::busy_arenas(),
            turn: 0,
        }
    }

    fn may_go_on(&self, now: Ticks) -> bool {
        self.due
            .is_none_or(|(since, pause_ns)| now.since_ns(since) >= pause_ns)
    }

    /// Records after a shard whether it had little to move, which determines the effort for the next shard.
    fn judge_shard(&mut self) {
        let now = (self.mover.moved, self.mover.left_alone);
        let before = std::mem::replace(&mut self.shard_began, now);
        let (moved, left_alone) = (now.0 - before.0, now.1 - before.1);
        self.finds_little = moved < left_alone / LITTLE_PARTS;
    }

    /// Returns the percentage of a core that the pass uses now.
    fn pace_percent(&self) -> u32 {
        match self.finds_little {
            true => PERCENT_MIN,
            false => self.percent.clamp(PERCENT_MIN, 99),
        }
    }

    fn next_arena(&mut self) -> Option<u32> {
        self.turn = self.turn.wrapping_add(1);
        let index = self.turn.checked_rem(self.arenas.len())?;
        self.arenas.get(index).copied()
    }

    /// Schedules a pause after `spent_ns` of work that keeps the pass to its share of a core.
    fn rest(&mut self, spent_ns: u64) {
        let percent = u64::from(self.pace_percent());
        let pause_ns = spent_ns * (100 - percent) / percent;
        self.due = Some((Ticks::now(), pause_ns));
    }

    /// Runs slices for the pass's share of some milliseconds. Returns false at the end of the pass.
    fn work(&mut self, service: &Service, began: Ticks) -> bool {
        let work_ns = WORK_NS_MAX * u64::from(self.pace_percent()) / 100;
        loop {
            let Ok(shard) = u16::try_from(self.shard) else {
                return false;
            };
            if self.shard >= service.shards.len() {
                return self.move_scripts(service, began, work_ns)
                    || self.move_channels(service, began, work_ns);
            }
            // Do not wait for the thread that has locked the shard.
            let Some(mut engine) = service.shards.try_take(shard) else {
                return true;
            };
            let taken = Ticks::now();
            let more = engine.defrag_slice(&mut self.walk, &mut self.mover);
            let now = Ticks::now();
            service.note_hold(shard, now.since_ns(taken));
            drop(engine);
            if !more {
                self.shard += 1;
                self.judge_shard();
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

    /// Moves script texts for at most `work_ns` after `began`. Returns false when none are left.
    fn move_scripts(&mut self, service: &Service, began: Ticks, work_ns: u64) -> bool {
        let scripts = &service.scripts;
        let left = self.scripts.get_or_insert_with(|| scripts.names());
        while !left.is_empty() && Ticks::now().since_ns(began) < work_ns {
            let some = left.split_off(left.len().saturating_sub(SCRIPTS_PER_SLICE));
            scripts.relocate(&some, &mut self.mover);
        }
        !left.is_empty()
    }

    /// Moves channel names for at most `work_ns` after `began`. Returns false when none are left.
    fn move_channels(&mut self, service: &Service, began: Ticks, work_ns: u64) -> bool {
        let pubsub = &service.pubsub;
        let left = self.channels.get_or_insert_with(|| pubsub.all_names());
        while !left.is_empty() && Ticks::now().since_ns(began) < work_ns {
            let some = left.split_off(left.len().saturating_sub(SCRIPTS_PER_SLICE));
            pubsub.relocate(&some, &mut self.mover);
        }
        !left.is_empty()
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

    #[cfg(not(any(miri, feature = "system-allocator")))]
    #[test]
    fn a_walk_slows_down_where_there_is_little_and_speeds_up_again() {
        let mut cycle = Cycle::new(
            Mover::new(5).expect("jemalloc can be asked"),
            20,
            Waste::of(AllocatorFigures::default(), 0),
        );
        for (moved, left_alone, percent) in
            [(0, 0, 20), (40, 1_000, 1), (0, 5_000, 1), (60, 1_000, 20)]
        {
            cycle.mover.moved += moved;
            cycle.mover.left_alone += left_alone;
            cycle.judge_shard();
            assert_eq!(cycle.pace_percent(), percent, "{moved} of {left_alone}");
        }
    }

    #[test]
    fn another_walk_may_help_if_there_is_less_waste_or_less_is_in_use() {
        let waste = |allocated, active| {
            let figures = AllocatorFigures {
                allocated,
                active,
                resident: active,
            };
            Waste::of(figures, 0)
        };
        let before = waste(10_000, 15_000);
        assert!(waste(10_000, 14_000).may_be_mended(before, false));
        assert!(!waste(10_000, 14_000).may_be_mended(before, true));
        assert!(!waste(10_000, 14_950).may_be_mended(before, false));
        assert!(!waste(12_000, 17_000).may_be_mended(before, false));
        for did_little in [false, true] {
            assert!(waste(9_000, 14_900).may_be_mended(before, did_little));
        }
    }

    #[test]
    fn the_effort_grows_with_the_waste_and_a_little_waste_is_left_alone() {
        let config = Config {
            activedefrag: true,
            active_defrag_ignore_bytes: 1_000,
            active_defrag_threshold_lower: 10,
            active_defrag_threshold_upper: 100,
            active_defrag_cycle_min: 1,
            active_defrag_cycle_max: 25,
            ..Config::default()
        };
        let waste = Waste::of(AllocatorFigures::default(), 0);
        let effort = |bytes, percent| {
            let waste = Waste {
                bytes,
                percent,
                ..waste
            };
            waste.effort(&config)
        };
        assert_eq!(effort(999, 50.0), None);
        assert_eq!(effort(5_000, 9.9), None);
        assert_eq!(effort(5_000, 10.0), Some(1));
        assert_eq!(effort(5_000, 55.0), Some(13));
        assert_eq!(effort(5_000, 100.0), Some(25));
        assert_eq!(effort(5_000, 700.0), Some(25));
    }

    #[test]
    fn a_limit_that_the_allocator_exceeds_is_worth_an_effort_if_it_is_waste() {
        let config = Config {
            maxmemory: 1_000,
            ..Config::default()
        };
        let effort = |allocated, active| {
            let figures = AllocatorFigures {
                allocated,
                active,
                resident: active,
            };
            Waste::of(figures, 1_000).effort(&config)
        };
        assert_eq!(effort(950, 1_040), None);
        assert_eq!(effort(950, 1_050), Some(1));
        assert_eq!(effort(1_000, 1_100), Some(15));
        assert_eq!(effort(1_000, 1_300), Some(30));
        assert_eq!(effort(1_290, 1_300), None, "it is all in use");
        let off = Config {
            maxmemory_compact: false,
            ..config.clone()
        };
        let figures = AllocatorFigures {
            allocated: 1_000,
            active: 2_000,
            resident: 2_000,
        };
        assert_eq!(Waste::of(figures, 1_000).effort(&off), None);
    }
}
