//! Whether the threads that run commands move: each goes round its loop, or sleeps, as its runtime counts; and each
//! runtime runs a task that it is given.
//!
//! A thread is stuck when, from one look to the next, it was awake all the time and has not come round once. Then it
//! has been in one command, or at one lock, for that long; looks are half of the watchdog's time apart.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::time::Duration;

use tokio::runtime::Handle;

/// See the module.
pub(super) struct Pulse {
    runtimes: Vec<Followed>,
    asked: u64,
}

/// A runtime, and what was seen of it.
struct Followed {
    handle: Handle,
    /// The last question that a task of it has answered.
    answered: Arc<AtomicU64>,
    threads: Vec<Seen>,
}

/// How often a thread lay down or woke, and how long it has been busy, counted whenever it comes round.
#[derive(Clone, Copy, PartialEq)]
struct Seen {
    turns: u64,
    busy: Duration,
}

impl Seen {
    fn now(handle: &Handle, thread: usize) -> Seen {
        let metrics = handle.metrics();
        Seen {
            turns: metrics.worker_park_unpark_count(thread),
            busy: metrics.worker_total_busy_duration(thread),
        }
    }

    /// Whether the thread sleeps: it lay down once more than it woke.
    fn sleeps(self) -> bool {
        self.turns % 2 == 1
    }
}

impl Pulse {
    /// Begins to follow runtimes.
    pub(super) fn of(runtimes: &[Handle]) -> Pulse {
        let follow = |handle: &Handle| {
            let threads = 0..handle.metrics().num_workers();
            Followed {
                handle: handle.clone(),
                answered: Arc::default(),
                threads: threads.map(|thread| Seen::now(handle, thread)).collect(),
            }
        };
        Pulse {
            runtimes: runtimes.iter().map(follow).collect(),
            asked: 0,
        }
    }

    /// What has not moved since the last time that this was asked, if there is anything.
    pub(super) fn stuck(&mut self) -> Option<String> {
        let mut stuck = None;
        for (index, runtime) in self.runtimes.iter_mut().enumerate() {
            for (thread, seen) in runtime.threads.iter_mut().enumerate() {
                let now = Seen::now(&runtime.handle, thread);
                if now == *seen && !now.sleeps() {
                    stuck = Some(format!(
                        "thread {thread} of runtime {index} is stuck in one step"
                    ));
                }
                *seen = now;
            }
            if runtime.answered.load(Relaxed) != self.asked {
                stuck = Some(format!("no thread of runtime {index} has taken up work"));
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

    /// Looks until a look says what is expected; false if that takes very long.
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

    /// How often a busy thread takes up its task between two looks: the runtime comes round every 61 times. How long
    /// that takes is the machine's matter.
    const STEPS_BETWEEN_LOOKS: u64 = 10_000;

    #[test]
    fn a_busy_thread_is_never_called_stuck_while_it_goes_on() {
        // One that gives way to others, and one that is due again at once, so that the thread never lies down.
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

    /// Lets the runtime poll the task again, which it has ready before this returns to it.
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
