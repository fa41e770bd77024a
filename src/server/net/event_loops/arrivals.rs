//! New connections on their way to an event loop, which begins a bounded number of them in one turn.
//!
//! To begin a connection takes several system calls, and its first request often a password to check. An event loop
//! that began all connections of a storm at once would keep its other clients waiting for as long. So one task of the
//! loop takes `max-new-connections-per-cycle` of them, and then lets the loop look for what has arrived on the sockets
//! of those that it serves.

use std::collections::VecDeque;
use std::fmt;

use parking_lot::Mutex;

use super::EventLoop;
use crate::state::Service;

/// Begins a connection, on the thread of its event loop.
type Arrival = Box<dyn FnOnce() + Send>;

/// The new connections of an event loop that it has not begun yet.
#[derive(Default)]
pub(super) struct Arrivals(Mutex<Waiting>);

#[derive(Default)]
struct Waiting {
    queue: VecDeque<Arrival>,
    /// Whether the task that begins them is running.
    is_served: bool,
}

impl fmt::Debug for Arrivals {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Arrivals({})", self.0.lock().queue.len())
    }
}

impl Arrivals {
    /// Adds a connection. Returns whether the caller has to start the task that begins it.
    fn push(&self, arrival: Arrival) -> bool {
        let mut waiting = self.0.lock();
        waiting.queue.push_back(arrival);
        !std::mem::replace(&mut waiting.is_served, true)
    }

    /// Takes the next connection; `None` ends the task that begins them.
    fn pop(&self) -> Option<Arrival> {
        let mut waiting = self.0.lock();
        let next = waiting.queue.pop_front();
        waiting.is_served = next.is_some();
        next
    }

    /// Begins all connections, up to `count_max()` in one turn of the calling task's event loop. `note` is told the
    /// number at the end of each turn.
    async fn begin_all(&self, count_max: impl Fn() -> usize, note: impl Fn(usize)) {
        loop {
            let count_max = count_max();
            for begun in 0..count_max {
                let Some(begin) = self.pop() else {
                    return note(begun);
                };
                begin();
            }
            note(count_max);
            tokio::task::yield_now().await;
        }
    }
}

/// Lets an event loop begin a connection, after those that it was given before.
pub fn take(event_loop: &'static EventLoop, service: &'static Service, arrival: Arrival) {
    if event_loop.arrivals.push(arrival) {
        let count_max = || service.config.load().max_new_connections_per_cycle as usize;
        let rounds = &service.telemetry.rounds;
        let serving = (event_loop.arrivals).begin_all(count_max, |begun| rounds.note_begun(begun));
        event_loop.runtime().spawn(serving);
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;

    /// Begins `count` connections beside a client that has something to do in each turn, and returns how many began
    /// between two of the client's turns, at most.
    fn most_between_two_turns(count: usize, count_max: usize) -> usize {
        let arrivals: &'static Arrivals = Box::leak(Box::default());
        let begun = Arc::new(Mutex::new((0, 0)));
        for _ in 0..count {
            let begun = Arc::clone(&begun);
            arrivals.push(Box::new(move || {
                let (all, since_turn) = &mut *begun.lock();
                *all += 1;
                *since_turn += 1;
            }));
        }
        let runtime = tokio::runtime::Builder::new_current_thread()
            .build()
            .expect("a runtime");
        let most_noted = Arc::new(Mutex::new(0));
        let noted = Arc::clone(&most_noted);
        let most = runtime.block_on(async {
            tokio::spawn(arrivals.begin_all(
                move || count_max,
                move |begun| {
                    let mut most = noted.lock();
                    *most = begun.max(*most);
                },
            ));
            let mut most = 0;
            loop {
                let (all, since_turn) = *begun.lock();
                most = most.max(since_turn);
                if all == count {
                    return most;
                }
                begun.lock().1 = 0;
                tokio::task::yield_now().await;
            }
        });
        assert_eq!(*most_noted.lock(), most, "the figure");
        most
    }

    #[test]
    fn a_loop_begins_no_more_in_one_turn_than_it_may() {
        assert_eq!(most_between_two_turns(35, 10), 10);
        assert_eq!(most_between_two_turns(7, 1), 1);
        assert_eq!(most_between_two_turns(35, 1000), 35);
    }

    #[test]
    fn the_task_ends_when_nothing_waits_and_the_next_arrival_starts_another() {
        let arrivals = Arrivals::default();
        assert!(arrivals.push(Box::new(|| {})));
        assert!(!arrivals.push(Box::new(|| {})));
        assert!(arrivals.pop().is_some() && arrivals.pop().is_some());
        assert!(!arrivals.push(Box::new(|| {})), "the task has not noticed");
        assert!(arrivals.pop().is_some() && arrivals.pop().is_none());
        assert!(arrivals.push(Box::new(|| {})));
    }
}
