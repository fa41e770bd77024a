//! History of all rows of [`series`]: the last hour by seconds, and the last day by minutes.
//!
//! The background samples the published figures once a second, so that a page opened after an incident shows
//! it. Rates, shares and percentiles are those of the second between two samples. The point of a minute is the
//! mean of its seconds, or the worst second where that is more useful. Memory is bounded and allocated in
//! blocks of 60 points, so that a server which has just started uses none:
//!
//! ```text
//! seconds   block | block | … 60 + 1 blocks of 60 points      point: the time, a value per series,
//! minutes   block | block | … 24 + 1 blocks of 60 points             commands per second per latency bucket
//! ```

pub mod series;

use std::collections::VecDeque;
use std::sync::atomic::Ordering::Relaxed;

use parking_lot::Mutex;

use super::clock::Ticks;
use super::counters::BUCKETS;
use super::figures::FigureContext;
use super::histogram::{Buckets, upper_ns};
use super::observed::Observed;
use series::{Fold, READ_EACH, SERIES, SeriesReader};

/// Number of latency buckets: those of the commands up to 8 s; the last one also counts everything slower.
pub const HISTORY_BUCKETS: usize = 24;

/// Values of a point.
const WIDTH: usize = SERIES.len() + HISTORY_BUCKETS;

/// Points of a block.
const BLOCK_POINTS: usize = 60;

/// Blocks of the last hour, including the one being filled.
const SECONDS_BLOCKS: usize = 61;

/// Blocks of the last day.
const MINUTES_BLOCKS: usize = 25;

/// Bytes of a block: its values, its times, and its entry in the queue of blocks, whose capacity may be up to
/// twice its length.
const BLOCK_BYTES: usize = allocated(BLOCK_POINTS * WIDTH * size_of::<f32>())
    + allocated(BLOCK_POINTS * size_of::<u64>())
    + 2 * size_of::<HistoryBlock>();

/// Returns the bytes that the allocator uses for `bytes`; sizes are rounded up to one of four size classes per
/// power of two.
const fn allocated(bytes: usize) -> usize {
    bytes.next_multiple_of(bytes.next_power_of_two() / 8)
}

/// Upper bound of the history's memory, in bytes.
pub const BYTES_MAX: usize = (SECONDS_BLOCKS + MINUTES_BLOCKS) * BLOCK_BYTES;

const _: () = assert!(BYTES_MAX <= 8 << 20);

/// The resolution of a query.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum HistoryResolution {
    /// An hour of seconds.
    Second,
    /// A day of minutes.
    Minute,
}

/// Returns the upper bound of a latency bucket in nanoseconds; `None` for the last bucket.
pub fn bucket_upper_bound_ns(bucket: usize) -> Option<u64> {
    (bucket + 1 < HISTORY_BUCKETS).then(|| upper_ns(bucket))
}

/// A point of the history.
#[derive(Clone, Copy, Debug)]
pub struct HistoryPoint<'a> {
    /// Unix time in seconds: of the sample, or of the end of the minute.
    pub at_s: u64,
    values: &'a [f32],
}

impl HistoryPoint<'_> {
    /// Returns the value of the row at index `series` of [`SERIES`]; `None` where it is undefined, such as a
    /// percentile in a second without commands.
    pub fn value(&self, series: usize) -> Option<f64> {
        let value = *self.values[..SERIES.len()].get(series)?;
        (!value.is_nan()).then_some(f64::from(value))
    }

    /// Returns the commands per second in a latency bucket.
    pub fn bucket(&self, bucket: usize) -> f64 {
        let value = self.values.get(SERIES.len() + bucket);
        value.map_or(0.0, |value| f64::from(*value))
    }
}

/// A sample of the figures; sums and gauges are unprocessed.
#[derive(Clone, Debug)]
pub struct Reading {
    /// For each row, the up to [`READ_EACH`] figures from which its value is computed.
    figures: Vec<[f64; READ_EACH]>,
    /// Runs of all commands by duration.
    buckets: Buckets,
    /// Number of statistics resets before the sample.
    resets: u64,
}

impl Reading {
    /// Samples the current figures.
    fn of(service: &dyn Observed) -> Reading {
        let resets = service.telemetry().resets.load(Relaxed);
        let source = FigureContext::gather(service);
        let mut buckets = [0; BUCKETS];
        for command in &source.snapshot.commands {
            for (sum, count) in buckets.iter_mut().zip(command.buckets) {
                *sum += count;
            }
        }
        Reading {
            figures: SERIES.iter().map(|row| row.figures(&source)).collect(),
            buckets,
            resets,
        }
    }
}

/// The history; see the module.
#[derive(Debug, Default)]
pub struct MetricsHistory {
    inner: Mutex<HistoryState>,
}

#[derive(Debug, Default)]
struct HistoryState {
    seconds: Ring,
    minutes: Ring,
    minute: Minute,
    before: Option<(Ticks, Reading)>,
    read_s: u64,
}

impl MetricsHistory {
    /// Takes a sample, unless one was taken in this second of Unix time.
    pub fn sample(&self, service: &dyn Observed, now_s: u64) {
        if self.inner.lock().read_s == now_s {
            return;
        }
        let (reading, now) = (Reading::of(service), Ticks::now());
        let mut inner = self.inner.lock();
        inner.read_s = now_s;
        let before = inner.before.replace((now, reading.clone()));
        if let Some((then, before)) = before {
            let interval_s = now.since_ns(then) as f64 / 1e9;
            inner.add(now_s, &values(&before, &reading, interval_s));
        }
    }

    /// Calls `visit` with all points since `since_s`, oldest first.
    pub fn each(
        &self,
        step: HistoryResolution,
        since_s: u64,
        mut visit: impl FnMut(HistoryPoint<'_>),
    ) {
        let inner = self.inner.lock();
        let ring = match step {
            HistoryResolution::Second => &inner.seconds,
            HistoryResolution::Minute => &inner.minutes,
        };
        ring.each(since_s, &mut visit);
    }
}

impl HistoryState {
    fn add(&mut self, at_s: u64, values: &[f32; WIDTH]) {
        // If the clock was set back, drop the points that are now in the future, so that times stay in order.
        if self.seconds.newest_s().is_some_and(|newest| newest > at_s) {
            self.seconds.forget_after(at_s);
            self.minutes.forget_after(at_s);
            self.minute = Minute::default();
        }
        self.seconds.add(SECONDS_BLOCKS, at_s, values);
        if let Some((end_s, mean)) = self.minute.add(at_s, values) {
            self.minutes.add(MINUTES_BLOCKS, end_s, &mean);
        }
    }
}

/// Returns the values of one point: of the time between two samples, `interval_s` seconds apart. If statistics
/// were reset in between, the growth of sums is unknown and reported as such: a drop to zero would look like an
/// outage.
fn values(before: &Reading, now: &Reading, interval_s: f64) -> [f32; WIDTH] {
    let is_reset = before.resets != now.resets;
    // A sum that shrank was also reset.
    let growth = |then: f64, now: f64| match is_reset || now < then {
        true => f64::NAN,
        false => now - then,
    };
    let each_second = |more: f64| match interval_s > 0.0 {
        true => more / interval_s,
        false => 0.0,
    };
    let ran: Buckets = std::array::from_fn(|bucket| match is_reset {
        true => 0,
        false => now.buckets[bucket].saturating_sub(before.buckets[bucket]),
    });
    let mut values = [f32::NAN; WIDTH];
    for (index, row) in SERIES.iter().enumerate() {
        let (then, now) = (before.figures[index], now.figures[index]);
        let more = |at: usize| growth(then[at], now[at]);
        let value = match row.read {
            SeriesReader::Gauge(_) | SeriesReader::Field(_) => now[0],
            SeriesReader::Rate(_) | SeriesReader::FieldRate(_) => {
                each_second(growth(then[0], now[0]))
            }
            SeriesReader::Share(_) => 100.0 * more(0) / (more(0) + more(1)),
            SeriesReader::Mean(_) => more(0) / more(1),
            SeriesReader::Percentile(percent) => series::percentile_us(&ran, percent),
        };
        values[index] = value as f32;
    }
    for (bucket, count) in ran.iter().enumerate() {
        let place = &mut values[SERIES.len() + bucket.min(HISTORY_BUCKETS - 1)];
        let before = if place.is_nan() { 0.0 } else { *place };
        *place = before + each_second(*count as f64) as f32;
    }
    values
}

/// The seconds of the current minute, folded into one point.
#[derive(Debug)]
struct Minute {
    number: u64,
    folded: Box<[(f64, u32); WIDTH]>,
}

impl Default for Minute {
    fn default() -> Minute {
        Minute {
            number: 0,
            folded: Box::new([(0.0, 0); WIDTH]),
        }
    }
}

impl Minute {
    /// Adds a second. Returns the end and the values of the previous minute if this second completes it.
    fn add(&mut self, at_s: u64, values: &[f32; WIDTH]) -> Option<(u64, [f32; WIDTH])> {
        let number = at_s / 60;
        let ended = (self.number != number && self.number != 0).then(|| {
            let value = |index: usize| {
                let (sum, count) = self.folded[index];
                match (fold_of(index), count) {
                    (_, 0) => f32::NAN,
                    (Fold::Mean, count) => (sum / f64::from(count)) as f32,
                    (Fold::Max, _) => sum as f32,
                }
            };
            ((self.number + 1) * 60, std::array::from_fn(value))
        });
        if self.number != number {
            *self = Minute {
                number,
                ..Minute::default()
            };
        }
        for (index, value) in values
            .iter()
            .enumerate()
            .filter(|(_, value)| !value.is_nan())
        {
            let (sum, count) = &mut self.folded[index];
            let value = f64::from(*value);
            *sum = match fold_of(index) {
                Fold::Mean => *sum + value,
                Fold::Max => sum.max(value),
            };
            *count += 1;
        }
        ended
    }
}

fn fold_of(index: usize) -> Fold {
    SERIES.get(index).map_or(Fold::Mean, |row| row.fold)
}

/// Points in order of time, in blocks; when there are too many, the oldest block is dropped.
#[derive(Debug, Default)]
struct Ring {
    blocks: VecDeque<HistoryBlock>,
}

#[derive(Debug)]
struct HistoryBlock {
    times_s: Vec<u64>,
    values: Box<[f32]>,
}

impl Ring {
    fn add(&mut self, blocks_max: usize, at_s: u64, values: &[f32; WIDTH]) {
        let is_full = |block: &HistoryBlock| block.times_s.len() == BLOCK_POINTS;
        if self.blocks.back().is_none_or(is_full) {
            // Reuse the oldest block.
            let mut block = match self.blocks.len() < blocks_max {
                true => HistoryBlock {
                    times_s: Vec::with_capacity(BLOCK_POINTS),
                    values: vec![0.0; BLOCK_POINTS * WIDTH].into_boxed_slice(),
                },
                false => self.blocks.pop_front().expect("there is at least one"),
            };
            block.times_s.clear();
            self.blocks.push_back(block);
        }
        let block = self.blocks.back_mut().expect("the last block has room");
        let start = block.times_s.len() * WIDTH;
        block.values[start..start + WIDTH].copy_from_slice(values);
        block.times_s.push(at_s);
    }

    fn newest_s(&self) -> Option<u64> {
        self.blocks.back()?.times_s.last().copied()
    }

    fn forget_after(&mut self, at_s: u64) {
        for block in &mut self.blocks {
            let kept = block.times_s.partition_point(|time_s| *time_s <= at_s);
            block.times_s.truncate(kept);
        }
        self.blocks.retain(|block| !block.times_s.is_empty());
    }

    fn each(&self, since_s: u64, visit: &mut dyn FnMut(HistoryPoint<'_>)) {
        for block in &self.blocks {
            for (at_s, values) in block.times_s.iter().zip(block.values.chunks_exact(WIDTH)) {
                if *at_s >= since_s {
                    visit(HistoryPoint {
                        at_s: *at_s,
                        values,
                    });
                }
            }
        }
    }
}

#[cfg(test)]
mod tests;
