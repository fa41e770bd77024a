//! Checks that the threads which run commands make progress: each iterates its loop or is parked, according to its
//! runtime's counters, and each runtime runs the tasks it is given.
//!
//! A thread is stuck if, between two checks, it was awake all the time and completed no iteration. Then it spent
//! all that time in one command, or at one lock; checks are half of the watchdog timeout apart.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::time::Duration;

use tokio::runtime::Handle;

/// Progress of the runtimes; see the module.
pub(super) struct Pulse {
    runtimes: Vec<Followed>,
    asked: u64,
}

/// A runtime, with its last observed state.
struct Followed {
    handle: Handle,
    /// Number of the last probe, a task spawned on the runtime, that was completed.
    answered: Arc<AtomicU64>,
    threads: Vec<WorkerPulse>,
}

/// A worker's park and unpark count, and its busy time; both are updated whenever it completes an iteration.
#[derive(Clone, Copy, PartialEq)]
struct WorkerPulse {
    turns: u64,
    busy: Duration,
}

impl WorkerPulse {
    fn now(handle: &Handle, thread: usize) -> WorkerPulse {
        let metrics = handle.metrics();
        WorkerPulse {
            turns: metrics.worker_park_unpark_count(thread),
            busy: metrics.worker_total_busy_duration(thread),
        }
    }

    /// Whether the worker is parked: it parked once more than it unparked.
    fn sleeps(self) -> bool {
        self.turns % 2 == 1
    }
}

impl Pulse {
    /// Starts observing the progress of these runtimes.
    pub(super) fn of(runtimes: &[Handle]) -> Pulse {
        let follow = |handle: &Handle| {
            let threads = 0..handle.metrics().num_workers();
            Followed {
                handle: handle.clone(),
                answered: Arc::default(),
                threads: threads
                    .map(|thread| WorkerPulse::now(handle, thread))
                    .collect(),
            }
        };
        Pulse {
            runtimes: runtimes.iter().map(follow).collect(),
            asked: 0,
        }
    }

    /// Returns a description of the thread or runtime that made no progress since the previous call, if any.
    pub(super) fn stuck(&mut self) -> Option<String> {
        let mut stuck = None;
        for (index, runtime) in self.runtimes.iter_mut().enumerate() {
            for (thread, seen) in runtime.threads.iter_mut().enumerate() {
                let now = WorkerPulse::now(&runtime.handle, thread);
                if now == *seen && !now.sleeps() {
                    stuck = Some(format!("thread {thread} of runtime {index} is stuck"));
                }
                *seen = now;
            }
            if runtime.answered.load(Relaxed) != self.asked {
                stuck = Some(format!("no thread of runtime {index} accepts work"));
            }
            let (answered, asked) = (Arc::clone(&runtime.answered), self.asked + 1);
            runtime.handle.spawn(async move {
                answered.fetch_max(asked, Relaxed);
            });
        }
        self.asked += 1;
        stuck
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::mpsc;
    use std::task::Poll;
    use std::time::Instant;

    /// Checks repeatedly until the result is `is_stuck`; returns false if that takes very long.
    fn comes_to(pulse: &mut Pulse, is_stuck: bool) -> bool {
        let began = Instant::now();
        while began.elapsed() < Duration::from_secs(60) {
            std::thread::sleep(Duration::from_millis(50));
            if pulse.stuck().is_some() == is_stuck {
                return true;
            }
        }
        false
    }

    #[test]
    fn a_thread_that_hangs_is_found_beside_others_that_go_on() {
        for threads in [1, 3] {
            let runtime = tokio::runtime::Builder::new_multi_thread()
                .worker_threads(threads)
                .enable_all()
                .build()
                .expect("a runtime");
            let mut pulse = Pulse::of(&[runtime.handle().clone()]);
            assert!(comes_to(&mut pulse, false), "an idle runtime is well");
            let (go_on, wait) = mpsc::channel::<()>();
            let (say, hangs) = mpsc::channel();
            runtime.spawn(async move {
                let _ = say.send(());
                let _ = wait.recv();
            });
            hangs.recv().expect("it hangs");
            assert!(comes_to(&mut pulse, true), "one of {threads} hangs");
            assert!(pulse.stuck().is_some(), "and still does");
            drop(go_on);
            assert!(comes_to(&mut pulse, false), "it goes on");
        }
    }

    /// Steps of a busy thread's task between two checks; the runtime completes an iteration every 61 steps. How
    /// long that takes depends on the machine.
    const STEPS_BETWEEN_LOOKS: u64 = 10_000;

    #[test]
    fn a_busy_thread_is_never_called_stuck_while_it_goes_on() {
        // One task yields to others, and one is immediately ready again, so that the thread never parks.
        for gives_way in [true, false] {
            let runtime = tokio::runtime::Builder::new_multi_thread()
                .worker_threads(1)
                .build()
                .expect("a runtime");
            let steps = Arc::new(AtomicU64::new(0));
            let stepping = Arc::clone(&steps);
            runtime.spawn(async move {
                loop {
                    stepping.fetch_add(1, Relaxed);
                    match gives_way {
                        true => tokio::task::yield_now().await,
                        false => due_again_at_once().await,
                    }
                }
            });
            let mut pulse = Pulse::of(&[runtime.handle().clone()]);
            for look in 0..20 {
                let wanted = steps.load(Relaxed) + STEPS_BETWEEN_LOOKS;
                let began = Instant::now();
                while steps.load(Relaxed) < wanted {
                    assert!(began.elapsed() < Duration::from_secs(60), "it goes on");
                    std::thread::yield_now();
                }
                assert_eq!(pulse.stuck(), None, "look {look}, gives way: {gives_way}");
            }
            runtime.shutdown_background();
        }
    }

    /// Makes the runtime poll the task again: it is ready before it returns to the runtime.
    async fn due_again_at_once() {
        let mut is_again = false;
        std::future::poll_fn(|cx| {
            if std::mem::replace(&mut is_again, true) {
                return Poll::Ready(());
            }
            cx.waker().wake_by_ref();
            Poll::Pending
        })
        .await;
    }
}
