//! Threads for units, and for single commands, that take long: made when they are needed, up to a bound, and kept.
//!
//! A unit gets its thread first and its shards then, so that no shard is ever held for a unit that has yet to wait for a
//! thread: the thread submits the unit's message, which comes back to it, departed, with all its shards.

use std::collections::VecDeque;
use std::sync::Arc;

use parking_lot::{Condvar, Mutex, MutexGuard};

use super::super::Shards;
use super::super::message::Message;
use super::super::ownership::parcel::Parcel;
use super::super::ownership::reach::Departed;
use crate::script::{self, stack};
use crate::structures::slabs;

/// Most threads for units. Their units may all be endless; others wait in line then, without any shard.
pub const THREADS_MAX: usize = 64;

/// Where a unit that departed meets its thread.
#[derive(Default)]
pub struct Platform {
    /// The unit with all its shards; or nothing, if it will not come.
    waiting: Mutex<Option<Option<Departed<Message>>>>,
    arrived: Condvar,
}

impl Platform {
    /// The unit has all its shards.
    pub fn arrive(&self, departed: Departed<Message>) {
        *self.waiting.lock() = Some(Some(departed));
        self.arrived.notify_one();
    }

    /// The unit was turned away while it waited for its shards.
    pub fn cancel(&self) {
        *self.waiting.lock() = Some(None);
        self.arrived.notify_one();
    }

    fn wait(&self) -> Option<Departed<Message>> {
        let mut waiting = self.waiting.lock();
        loop {
            if let Some(departed) = waiting.take() {
                return departed;
            }
            self.arrived.wait(&mut waiting);
        }
    }
}

#[derive(Default)]
struct State {
    queue: VecDeque<Box<Parcel<Message>>>,
    threads: usize,
    idle: usize,
}

/// What a thread does before it waits.
fn rest() {
    script::rest();
    slabs::empty_cache_if_told();
}

/// See the module.
#[derive(Default)]
pub struct Threads {
    state: Mutex<State>,
    work: Condvar,
}

impl Threads {
    /// Runs a unit on a thread of its own, as soon as there is one.
    pub fn run(&'static self, parcel: Box<Parcel<Message>>, shards: &'static Shards) {
        let mut state = self.state.lock();
        state.queue.push_back(parcel);
        if state.idle >= state.queue.len() {
            self.work.notify_one();
            return;
        }
        if state.threads < THREADS_MAX {
            state.threads += 1;
            drop(state);
            let name = "basalt-long".to_owned();
            let made = stack::spawn(name, move || self.work_on(shards));
            if made.is_err() {
                // Whoever works now takes it; if nobody does, it waits for the next try.
                self.state.lock().threads -= 1;
            }
        }
    }

    fn work_on(&'static self, shards: &'static Shards) {
        loop {
            let mut parcel = self.next();
            let platform = Arc::new(Platform::default());
            parcel.prepare();
            parcel.meets_at(Arc::clone(&platform));
            shards.submit(parcel);
            if let Some(departed) = platform.wait() {
                shards.resume(departed, |message, reach| message.run_apart(reach));
            }
        }
    }

    /// The next unit. A thread that is not needed any more waits for ever: what is counted by thread is never given back,
    /// so that threads must not come and go.
    fn next(&self) -> Box<Parcel<Message>> {
        let mut state = self.state.lock();
        let mut has_rested = false;
        loop {
            if let Some(parcel) = state.queue.pop_front() {
                return parcel;
            }
            if !std::mem::replace(&mut has_rested, true) {
                // Before it counts as idle: who comes meanwhile is not to wait for that.
                MutexGuard::unlocked(&mut state, rest);
                continue;
            }
            state.idle += 1;
            self.work.wait(&mut state);
            state.idle -= 1;
        }
    }
}
