//! Batches the replies of one round: a connection that has run its requests lets the other ready connections of
//! this thread run theirs, and sends afterwards.
//!
//! Sends wake clients, and waking a sleeping process is the most expensive part of a send (about 7 µs). When
//! replies are sent back to back, the client stays awake after the first one, and a client with a single event
//! loop is woken once for many replies. This module does not know what is sent. The wait is one lap of the
//! thread's run queue, never a timer. A connection that is ready alone does not wait at all, because queueing a
//! task would wake another thread, which finds only that task or nothing (with a single connection, this wakeup
//! is most of a command's cost).
//!
//! The number of connections holding a buffer of replies at a time is bounded. More buffers would cost more
//! cache misses than the batching saves (with all of 400 connections waiting, a GET cost 5 % more instead of
//! less).

use std::cell::OnceCell;
use std::future::poll_fn;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};
use std::task::Poll;

use tokio::runtime::{Handle, RuntimeMetrics};

/// Maximum number of waiting connections per thread.
const WAITING_MAX: usize = 64;

thread_local! {
    /// Leaked, because a waiting task may continue on another thread than it started on.
    static WAITING: &'static AtomicUsize = Box::leak(Box::default());

    static RUN_QUEUE: OnceCell<Option<RunQueue>> = const { OnceCell::new() };
}

/// The number of tasks ready on this thread, according to its runtime.
struct RunQueue {
    metrics: RuntimeMetrics,
    worker: usize,
}

impl RunQueue {
    /// Returns `None` on a thread that is not a runtime worker, or if the runtime does not report it.
    fn of_this_thread() -> Option<RunQueue> {
        let metrics = Handle::try_current().ok()?.metrics();
        let worker = (0..metrics.num_workers()).find(|worker| is_this_thread(&metrics, *worker))?;
        Some(RunQueue { metrics, worker })
    }

    #[cfg(tokio_unstable)]
    fn is_empty(&self) -> bool {
        self.metrics.worker_local_queue_depth(self.worker) == 0
    }

    #[cfg(not(tokio_unstable))]
    fn is_empty(&self) -> bool {
        let _ = (&self.metrics, self.worker);
        false
    }
}

#[cfg(tokio_unstable)]
fn is_this_thread(metrics: &RuntimeMetrics, worker: usize) -> bool {
    metrics.worker_thread_id(worker) == Some(std::thread::current().id())
}

#[cfg(not(tokio_unstable))]
fn is_this_thread(_: &RuntimeMetrics, _: usize) -> bool {
    false
}

/// Whether no other task is ready on this thread.
fn is_alone() -> bool {
    RUN_QUEUE.with(|queue| {
        let queue = queue.get_or_init(RunQueue::of_this_thread);
        queue.as_ref().is_some_and(RunQueue::is_empty)
    })
}

/// Counts a waiting connection for as long as it exists: a task may be dropped while it waits.
struct WriteWaitGuard(&'static AtomicUsize);

impl WriteWaitGuard {
    fn begin() -> Option<WriteWaitGuard> {
        let waiting = WAITING.with(|waiting| *waiting);
        if waiting.load(Relaxed) >= WAITING_MAX {
            return None;
        }
        waiting.fetch_add(1, Relaxed);
        Some(WriteWaitGuard(waiting))
    }
}

impl Drop for WriteWaitGuard {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Relaxed);
    }
}

/// Waits until the tasks that are ready now have run. Returns at once if no other task is ready or too many
/// connections are already waiting.
pub(super) async fn others_first() {
    if is_alone() {
        return;
    }
    let Some(_waiting) = WriteWaitGuard::begin() else {
        return;
    };
    let mut is_over = false;
    poll_fn(|cx| {
        if is_over {
            return Poll::Ready(());
        }
        is_over = true;
        // Do not use `yield_now`, which would first poll for new events by an unnecessary system call.
        cx.waker().wake_by_ref();
        Poll::Pending
    })
    .await;
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use parking_lot::Mutex;

    use super::*;

    #[test]
    fn who_goes_on_elsewhere_is_counted_where_he_began() {
        let waiting = WriteWaitGuard::begin().expect("nobody waits");
        std::thread::spawn(move || drop(waiting))
            .join()
            .expect("it is counted down");
        assert_eq!(WAITING.with(|waiting| waiting.load(Relaxed)), 0);
    }

    fn runtime() -> tokio::runtime::Runtime {
        tokio::runtime::Builder::new_current_thread()
            .build()
            .expect("a runtime")
    }

    #[test]
    fn those_who_are_ready_run_before_the_first_goes_on_but_no_more_than_the_bound_wait() {
        let log = Arc::new(Mutex::new(Vec::new()));
        runtime().block_on(async {
            let tasks: Vec<_> = (0..WAITING_MAX + 1)
                .map(|number| {
                    let log = Arc::clone(&log);
                    tokio::spawn(async move {
                        log.lock().push(("ran", number));
                        others_first().await;
                        log.lock().push(("sent", number));
                    })
                })
                .collect();
            for task in tasks {
                task.await.expect("it ends");
            }
        });
        let log = log.lock();
        let ran = (0..WAITING_MAX + 1).map(|number| ("ran", number));
        let last = std::iter::once(("sent", WAITING_MAX));
        let sent = (0..WAITING_MAX).map(|number| ("sent", number));
        assert_eq!(*log, ran.chain(last).chain(sent).collect::<Vec<_>>());
    }

    #[cfg(tokio_unstable)]
    #[test]
    fn who_is_ready_alone_goes_on_at_once() {
        runtime().block_on(async {
            let alone = tokio::spawn(async { poll_once(&mut Box::pin(others_first())).await });
            assert!(alone.await.expect("it ends").is_ready());
            let two = [(); 2]
                .map(|()| tokio::spawn(async { poll_once(&mut Box::pin(others_first())).await }));
            let [first, second] = two;
            assert!(first.await.expect("it ends").is_pending());
            assert!(second.await.expect("it ends").is_ready());
        });
    }

    #[test]
    fn a_task_that_is_dropped_while_it_waits_is_not_counted_any_more() {
        runtime().block_on(async {
            // Another task is ready.
            let other = tokio::spawn(async {});
            let mut waiting = Box::pin(others_first());
            let first = poll_once(&mut waiting).await;
            assert!(first.is_pending());
            assert_eq!(WAITING.with(|waiting| waiting.load(Relaxed)), 1);
            drop(waiting);
            assert_eq!(WAITING.with(|waiting| waiting.load(Relaxed)), 0);
            other.await.expect("it ends");
        });
    }

    async fn poll_once<F: Future<Output = ()> + Unpin>(future: &mut F) -> Poll<()> {
        poll_fn(|cx| Poll::Ready(std::pin::Pin::new(&mut *future).poll(cx))).await
    }
}
