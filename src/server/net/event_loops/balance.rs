//! Which connections move, and where to: a loop that is much busier than the others gives connections to the least busy
//! one.
//!
//! A connection moves only if the busier one of the two loops is less busy afterwards. So a connection that fills a
//! loop stays, and the others there leave it.

use std::cmp::Reverse;
use std::collections::HashMap;

use super::EventLoop;
use crate::telemetry::clock::Ticks;
use crate::telemetry::event_loop::busy_ns;

/// A loop is too busy if it is busier than the mean by this factor, in tenths.
const TOO_BUSY_TENTHS: u64 = 13;

/// A loop that is busy for less than this part of the time delays no client, however idle the others are.
const BUSY_PARTS: u64 = 5;

/// Connections that one loop gives away at a time. Many light ones may have to leave a heavy one.
const MOVES_MAX: usize = 256;

/// Periods that connections have to follow an order: one that sends five requests per second should.
const MOVING_PERIODS: u8 = 5;

/// A connection that has moved stays for this long.
const STAY_NS: u64 = 1_000_000_000;

/// The state of a loop between two ticks.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum Phase {
    #[default]
    Watched,
    /// The loop's connections add up their times.
    Measured,
    /// Connections were told to move, and have this many periods to do so.
    Moving(u8),
}

/// Compares the loops' busy times in each period.
pub struct Balancer {
    loops: &'static [EventLoop],
    phases: Vec<Phase>,
    /// Busy nanoseconds of each loop since its start, as of the last tick.
    busy_ns: Vec<u64>,
    ticked: Ticks,
    /// When clients' connections were told to move.
    moved: HashMap<u64, Ticks>,
}

impl Balancer {
    pub(super) fn new(loops: &'static [EventLoop]) -> Balancer {
        Balancer {
            loops,
            phases: vec![Phase::default(); loops.len()],
            busy_ns: loops.iter().map(|each| busy_ns(each.runtime())).collect(),
            ticked: Ticks::now(),
            moved: HashMap::new(),
        }
    }

    /// Ends a period: records how busy each loop was, and orders connections to move. To be called about ten times
    /// per second.
    pub fn tick(&mut self) {
        let now = Ticks::now();
        let period_ns = now.since_ns(self.ticked).max(1);
        self.ticked = now;
        let mut busy: Vec<u64> = Vec::with_capacity(self.loops.len());
        for (event_loop, before) in self.loops.iter().zip(&mut self.busy_ns) {
            let total = busy_ns(event_loop.runtime());
            let spent = total.saturating_sub(*before).min(period_ns);
            *before = total;
            event_loop.set_busy(spent, period_ns);
            busy.push(spent);
        }
        self.moved.retain(|_, moved| now.since_ns(*moved) < STAY_NS);
        for index in 0..self.loops.len() {
            let event_loop = &self.loops[index];
            self.phases[index] = match self.phases[index] {
                Phase::Watched
                    if event_loop.has_several() && is_too_busy(&busy, index, period_ns) =>
                {
                    event_loop.measure();
                    Phase::Measured
                }
                Phase::Measured => {
                    let measured = event_loop.end_measurement();
                    match is_too_busy(&busy, index, period_ns) {
                        true => self.order(index, &mut busy, measured, now),
                        false => Phase::Watched,
                    }
                }
                Phase::Moving(0) => {
                    event_loop.order(HashMap::new());
                    Phase::Watched
                }
                Phase::Moving(left) => Phase::Moving(left - 1),
                Phase::Watched => Phase::Watched,
            };
        }
    }

    fn order(
        &mut self,
        from: usize,
        busy: &mut [u64],
        measured: HashMap<u64, u64>,
        now: Ticks,
    ) -> Phase {
        let may_move = |(client, _): &(u64, u64)| !self.moved.contains_key(client);
        let candidates = measured.into_iter().filter(may_move).collect();
        let moves = choose(busy, from, candidates);
        if moves.is_empty() {
            return Phase::Watched;
        }
        self.moved
            .extend(moves.iter().map(|(client, _)| (*client, now)));
        let to = |(client, index): (u64, usize)| (client, &self.loops[index]);
        self.loops[from].order(moves.into_iter().map(to).collect());
        Phase::Moving(MOVING_PERIODS)
    }
}

fn mean(busy: &[u64]) -> u64 {
    busy.iter().sum::<u64>() / busy.len().max(1) as u64
}

fn is_too_busy(busy: &[u64], index: usize, period_ns: u64) -> bool {
    busy[index] > period_ns / BUSY_PARTS && busy[index] > mean(busy) * TOO_BUSY_TENTHS / 10
}

/// Returns the connections that leave the loop `from`, and the index of the loop that each moves to. `candidates` has
/// the busy time of each connection in the period, `busy` that of each loop, which is updated.
///
/// Each time, the connection moves whose time comes closest to half of the difference between the loops.
fn choose(busy: &mut [u64], from: usize, mut candidates: Vec<(u64, u64)>) -> Vec<(u64, usize)> {
    let mut moves = Vec::new();
    let enough = mean(busy);
    candidates.retain(|(_, spent)| *spent > 0);
    candidates.sort_unstable_by_key(|(client, spent)| (Reverse(*spent), *client));
    while moves.len() < MOVES_MAX && busy[from] > enough {
        let Some(to) = (0..busy.len()).min_by_key(|index| busy[*index]) else {
            break;
        };
        let difference = busy[from] - busy[to].min(busy[from]);
        let closest = (0..candidates.len())
            .filter(|at| candidates[*at].1 < difference)
            .min_by_key(|at| candidates[*at].1.abs_diff(difference / 2));
        let Some(closest) = closest else {
            break;
        };
        let (client, spent) = candidates.remove(closest);
        busy[from] = busy[from].saturating_sub(spent);
        busy[to] += spent;
        moves.push((client, to));
    }
    moves
}

#[cfg(test)]
mod tests {
    use super::*;

    const PERIOD: u64 = 100_000;

    #[test]
    fn one_of_two_heavy_connections_moves_to_the_idle_loop() {
        let mut busy = [100_000, 0, 30_000];
        let moves = choose(&mut busy, 0, vec![(7, 50_000), (8, 50_000)]);
        assert_eq!(moves, [(7, 1)]);
        assert_eq!(busy, [50_000, 50_000, 30_000]);
    }

    #[test]
    fn light_connections_leave_a_heavy_one_which_stays() {
        let mut busy = [100_000, 30_000];
        let light = (1..=1000).map(|client| (client, 20));
        let moves = choose(&mut busy, 0, light.chain([(5000, 80_000)]).collect());
        assert_eq!(moves.len(), MOVES_MAX);
        assert!(moves.iter().all(|(client, to)| *client <= 1000 && *to == 1));
    }

    #[test]
    fn the_connection_moves_that_makes_both_loops_equally_busy() {
        let mut busy = [100_000, 10_000];
        let moves = choose(&mut busy, 0, vec![(1, 60_000), (2, 40_000)]);
        assert_eq!(moves, [(2, 1)]);
    }

    #[test]
    fn nothing_moves_where_it_would_only_change_places() {
        let mut busy = [90_000, 10_000];
        assert_eq!(choose(&mut busy, 0, vec![(1, 90_000)]), []);
        assert_eq!(choose(&mut busy, 0, vec![(1, 0)]), []);
        assert_eq!(choose(&mut busy, 0, vec![]), []);
    }

    #[test]
    fn only_a_loop_that_is_far_above_the_mean_and_delays_others_is_too_busy() {
        assert!(is_too_busy(&[90_000, 10_000], 0, PERIOD));
        assert!(!is_too_busy(&[90_000, 10_000], 1, PERIOD));
        assert!(!is_too_busy(&[90_000, 80_000], 0, PERIOD));
        assert!(!is_too_busy(&[15_000, 0], 0, PERIOD));
    }
}
