//! What the server asks of shards that is no command of a client: work with the shards in hand.

use std::sync::{Arc, OnceLock, Weak};

use super::{Job, Ticket};
use crate::shard::QueuedJob;
use crate::shard::Shards;
use crate::shard::blocking::Waiter;
use basalt_engine::watching::Watched;
use basalt_engine::{Engine, Now, waiting};

/// What a task does with its shards in hand. It never waits.
pub type Task = Box<dyn FnMut(&mut [&mut Engine], Now) + Send>;

/// Takes a waiter out of the queues of one shard.
pub fn forget(waiter: &Arc<Waiter>, shard: u16) -> QueuedJob {
    let waiter = Arc::clone(waiter);
    Job::task(&[shard], move |engines, _| waiter.leave(engines))
}

/// Has one shard forget what a connection watched.
pub fn unwatch(watched: Vec<Watched>, shard: u16) -> QueuedJob {
    Job::task(&[shard], move |engines, _| {
        for engine in engines {
            watched.iter().for_each(|watched| watched.forget(engine));
        }
    })
}

/// Has something done with these shards in hand; the ticket on which the end of that is awaited.
pub fn send(
    shards: &Shards,
    route: &[u16],
    work: impl FnMut(&mut [&mut Engine], Now) + Send + 'static,
) -> Arc<Ticket> {
    let mut job = Job::task(route, work);
    let ticket = Job::await_end(&mut job);
    shards.submit(job);
    ticket
}

/// Has something done with all shards in hand; the ticket on which the end of that is awaited.
pub fn send_to_all(
    shards: &Shards,
    work: impl FnMut(&mut [&mut Engine], Now) + Send + 'static,
) -> Arc<Ticket> {
    let all: Vec<u16> = (0..shards.len() as u16).collect();
    send(shards, &all, work)
}

/// Sends waiters that need more shards than are in hand to all of these.
#[derive(Default)]
pub struct WaiterDispatcher(OnceLock<Weak<Shards>>);

impl WaiterDispatcher {
    /// Sets the shards that it reaches.
    pub fn reach(&self, shards: &Arc<Shards>) {
        self.0.get_or_init(|| Arc::downgrade(shards));
    }
}

impl waiting::Caller for WaiterDispatcher {
    fn call(&self, waiter: Arc<dyn waiting::Waiter>) {
        let shards = self.0.get().and_then(Weak::upgrade);
        if let (Some(shards), Ok(waiter)) = (shards, waiter.into_any().downcast::<Waiter>()) {
            let route = waiter.shards();
            let serve = move |engines: &mut [&mut Engine], now| waiter.answer_call(engines, now);
            shards.submit(Job::task(&route, serve));
        }
    }
}
