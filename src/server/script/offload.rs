//! Threads for units, and for single commands, that take long: created on demand, up to a bound, and kept.
//!
//! Work arrives here with the shards it needs already locked, so that work waiting for shards never occupies a
//! thread. At most one work item per shard exists at a time, and each gets a thread; only work that needs no
//! shard may have to wait. This module knows neither shards nor jobs.

use std::collections::VecDeque;

use parking_lot::{Condvar, Mutex, MutexGuard};

use super::stack;
use basalt_core::alloc::slabs;

/// Maximum number of threads for work that has no shard locked: scripts without keys, all of which may be
/// endless.
pub const SHARDLESS_MAX: usize = 64;

/// Work for a thread of the pool.
type OffloadTask = Box<dyn FnOnce() + Send>;

#[derive(Default)]
struct OffloadState {
    /// Work that has shards locked; it must never wait for other work to end.
    with_shards: VecDeque<OffloadTask>,
    shardless: VecDeque<OffloadTask>,
    shardless_running: usize,
    idle: usize,
    /// Number of requests to idle threads to clean up again.
    rests: u64,
}

impl OffloadState {
    /// Takes the next work from the queues; also returns whether it has no shard locked.
    fn next(&mut self) -> Option<(OffloadTask, bool)> {
        if let Some(work) = self.with_shards.pop_front() {
            return Some((work, false));
        }
        if self.shardless_running == SHARDLESS_MAX {
            return None;
        }
        let work = self.shardless.pop_front()?;
        self.shardless_running += 1;
        Some((work, true))
    }

    /// Returns the number of queued work items that could begin now if a thread were available for each.
    fn due(&self) -> usize {
        let room = SHARDLESS_MAX - self.shardless_running;
        self.with_shards.len() + self.shardless.len().min(room)
    }
}

/// Cleans up a thread before it waits.
fn rest() {
    super::rest();
    slabs::empty_cache_if_told();
}

/// A pool of threads for work that takes long.
#[derive(Default)]
pub struct OffloadPool {
    state: Mutex<OffloadState>,
    work: Condvar,
}

impl OffloadPool {
    /// Runs work on a thread of the pool. If the system cannot create another thread, the work runs on the
    /// calling thread, because shards that it has locked must be released.
    pub fn run(&'static self, work: impl FnOnce() + Send + 'static, holds_shards: bool) {
        let mut state = self.state.lock();
        match holds_shards {
            true => state.with_shards.push_back(Box::new(work)),
            false => state.shardless.push_back(Box::new(work)),
        }
        if state.idle >= state.due() {
            self.work.notify_one();
            return;
        }
        if state.due() == 0 {
            return;
        }
        drop(state);
        let made = stack::spawn("basalt-offload".to_owned(), move || self.serve());
        if made.is_err()
            && let Some((work, is_shardless)) = { self.state.lock().next() }
        {
            work();
            self.end(is_shardless);
        }
    }

    /// Makes idle threads release the memory they cache.
    pub fn rest_again(&self) {
        self.state.lock().rests += 1;
        self.work.notify_all();
    }

    fn end(&self, was_shardless: bool) {
        self.state.lock().shardless_running -= usize::from(was_shardless);
    }

    /// Runs queued work for ever. A thread without work waits and does not end: per-thread counters are never
    /// freed, so threads must not be created again and again.
    fn serve(&self) {
        let mut state = self.state.lock();
        let (mut has_rested, mut rests) = (true, state.rests);
        loop {
            if let Some((work, is_shardless)) = state.next() {
                MutexGuard::unlocked(&mut state, work);
                state.shardless_running -= usize::from(is_shardless);
                has_rested = false;
                continue;
            }
            let was_told = std::mem::replace(&mut rests, state.rests) != state.rests;
            if !std::mem::replace(&mut has_rested, true) || was_told {
                // Clean up before the thread counts as idle: work that arrives meanwhile must not wait for the
                // cleanup.
                MutexGuard::unlocked(&mut state, rest);
                continue;
            }
            state.idle += 1;
            self.work.wait(&mut state);
            state.idle -= 1;
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc;

    use super::*;

    #[test]
    fn work_with_shards_does_not_wait_behind_endless_work_without() {
        let pool: &OffloadPool = Box::leak(Box::default());
        let (release, released) = mpsc::channel::<()>();
        let released = std::sync::Arc::new(Mutex::new(released));
        for _ in 0..SHARDLESS_MAX + 6 {
            let released = std::sync::Arc::clone(&released);
            pool.run(
                move || {
                    let _ = released.lock().recv();
                },
                false,
            );
        }
        let (sender, done) = mpsc::channel();
        for number in 0..3 {
            let sender = sender.clone();
            pool.run(move || sender.send(number).expect("the test listens"), true);
        }
        let mut numbers: Vec<i32> = done.iter().take(3).collect();
        numbers.sort_unstable();
        assert_eq!(numbers, [0, 1, 2]);
        while pool.state.lock().shardless.len() > 6 {
            std::thread::yield_now();
        }
        drop(release);
        pool.run(move || sender.send(3).expect("the test listens"), false);
        assert_eq!(done.recv(), Ok(3), "the others have ended");
    }
}
