//! Periods (epochs) of running or queued work: a caller that must know when all of it has ended starts a new period,
//! and its callback is called when no work of earlier periods is left.

use std::sync::Arc;

use arc_swap::ArcSwap;
use parking_lot::Mutex;

/// Callback for the end of a period.
type EndCallback = Box<dyn FnOnce() + Send>;

/// A period. Each batch of a connection and each job holds a reference to the period in which it began.
#[derive(Default)]
pub struct UnderWay(Mutex<EpochCompletion>);

/// The action at the end of a period.
#[derive(Default)]
struct EpochCompletion {
    done: Option<EndCallback>,
    /// The next period, kept alive so that it does not end before this one.
    _next: Option<Arc<UnderWay>>,
}

impl UnderWay {
    /// Calls `done` once all work that began before this call has ended.
    pub fn when_over(current: &ArcSwap<UnderWay>, done: impl FnOnce() + Send + 'static) {
        let next = Arc::<UnderWay>::default();
        let ended = current.swap(Arc::clone(&next));
        *ended.0.lock() = EpochCompletion {
            done: Some(Box::new(done)),
            _next: Some(next),
        };
    }
}

impl Drop for UnderWay {
    fn drop(&mut self) {
        if let Some(done) = self.0.get_mut().done.take() {
            done();
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};

    use super::*;

    #[test]
    fn a_period_ends_with_all_before_it() {
        let current = ArcSwap::<UnderWay>::default();
        let told = Arc::new(AtomicUsize::new(0));
        let tell = || {
            let told = Arc::clone(&told);
            move || {
                told.fetch_add(1, Relaxed);
            }
        };
        let first = current.load_full();
        UnderWay::when_over(&current, tell());
        let second = current.load();
        UnderWay::when_over(&current, tell());
        drop(second);
        assert_eq!(told.load(Relaxed), 0, "the first is still under way");
        drop(first);
        assert_eq!(told.load(Relaxed), 2);
        UnderWay::when_over(&current, tell());
        assert_eq!(told.load(Relaxed), 3, "nothing was under way");
    }
}
