//! Replies of one round leave together: a connection that has run its requests lets the other connections that are
//! ready on this thread run theirs, and sends after them.
//!
//! Clients are woken by sends, and a wake of a sleeping process is the dearest part of one (about 7 us here). Sent back
//! to back, the replies find the client's side awake from the first of them on, and whoever asks from one event loop is
//! woken once for many. It knows nothing of what is sent. The wait is one lap of the thread's run queue, never a
//! timer; a thread with one connection pays the cost of queueing a task.
//!
//! Bound: so many connections hold a buffer of replies at a time. More would spread over more cache than the sends save
//! (with 400 connections all held, a GET cost 5 % more instead of less).

use std::future::poll_fn;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};
use std::task::Poll;

/// Connections of a thread that wait at a time.
const WAITING_MAX: usize = 64;

thread_local! {
    /// Lives as long as the process, as who waits may go on on another thread than it began on.
    static WAITING: &'static AtomicUsize = Box::leak(Box::default());
}

/// Counts a connection that waits, for as long as it exists: a task may be dropped while it waits.
struct Waiting(&'static AtomicUsize);

impl Waiting {
    fn begin() -> Option<Waiting> {
        let waiting = WAITING.with(|waiting| *waiting);
        if waiting.load(Relaxed) >= WAITING_MAX {
            return None;
        }
        waiting.fetch_add(1, Relaxed);
        Some(Waiting(waiting))
    }
}

impl Drop for Waiting {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Relaxed);
    }
}

/// Waits until the tasks that are ready now have had their turn, unless too many wait already.
pub(super) async fn others_first() {
    let Some(_waiting) = Waiting::begin() else {
        return;
    };
    let mut is_over = false;
    poll_fn(|cx| {
        if is_over {
            return Poll::Ready(());
        }
        is_over = true;
        // Not `yield_now`, which would look for new events first: a system call for nothing.
        cx.waker().wake_by_ref();
        Poll::Pending
    })
    .await;
}

#[cfg(test)]
mod tests {
    use std::cell::RefCell;
    use std::rc::Rc;

    use super::*;

    #[test]
    fn who_goes_on_elsewhere_is_counted_where_he_began() {
        let waiting = Waiting::begin().expect("nobody waits");
        std::thread::spawn(move || drop(waiting))
            .join()
            .expect("it is counted down");
        assert_eq!(WAITING.with(|waiting| waiting.load(Relaxed)), 0);
    }

    #[test]
    fn those_who_are_ready_run_before_the_first_goes_on_but_no_more_than_the_bound_wait() {
        let runtime = tokio::runtime::Builder::new_current_thread()
            .build()
            .expect("a runtime");
        let local = tokio::task::LocalSet::new();
        let log = Rc::new(RefCell::new(Vec::new()));
        local.block_on(&runtime, async {
            let tasks: Vec<_> = (0..WAITING_MAX + 1)
                .map(|number| {
                    let log = Rc::clone(&log);
                    tokio::task::spawn_local(async move {
                        log.borrow_mut().push(("ran", number));
                        others_first().await;
                        log.borrow_mut().push(("sent", number));
                    })
                })
                .collect();
            for task in tasks {
                task.await.expect("it ends");
            }
        });
        let log = log.borrow();
        let ran = (0..WAITING_MAX + 1).map(|number| ("ran", number));
        let last = std::iter::once(("sent", WAITING_MAX));
        let sent = (0..WAITING_MAX).map(|number| ("sent", number));
        assert_eq!(*log, ran.chain(last).chain(sent).collect::<Vec<_>>());
    }

    #[test]
    fn a_task_that_is_dropped_while_it_waits_is_not_counted_any_more() {
        let runtime = tokio::runtime::Builder::new_current_thread()
            .build()
            .expect("a runtime");
        runtime.block_on(async {
            let mut waiting = Box::pin(others_first());
            let first = poll_once(&mut waiting).await;
            assert!(first.is_pending());
            assert_eq!(WAITING.with(|waiting| waiting.load(Relaxed)), 1);
            drop(waiting);
            assert_eq!(WAITING.with(|waiting| waiting.load(Relaxed)), 0);
        });
    }

    async fn poll_once<F: Future<Output = ()> + Unpin>(future: &mut F) -> Poll<()> {
        poll_fn(|cx| Poll::Ready(std::pin::Pin::new(&mut *future).poll(cx))).await
    }
}
