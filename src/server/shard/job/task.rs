//! Internal tasks of the server on locked shards.

use std::sync::{Arc, OnceLock, Weak};

use super::{Job, Ticket};
use crate::shard::QueuedJob;
use crate::shard::Shards;
use crate::shard::blocking::BlockedRequest;
use basalt_engine::watching::Watched;
use basalt_engine::{Engine, Now, waiting};

/// The work of a task on its locked shards. It must not block.
pub type Task = Box<dyn FnMut(&mut [&mut Engine], Now) + Send>;

/// Creates a job that removes a waiter from the queues of its keys in one shard.
pub fn forget(waiter: &Arc<BlockedRequest>, shard: u16) -> QueuedJob {
    let waiter = Arc::clone(waiter);
    Job::task(&[shard], move |engines, _| waiter.leave(engines))
}

/// Creates a job that removes a connection's watched keys (WATCH) from one shard.
pub fn unwatch(watched: Vec<Watched>, shard: u16) -> QueuedJob {
    Job::task(&[shard], move |engines, _| {
        for engine in engines {
            watched.iter().for_each(|watched| watched.forget(engine));
        }
    })
}

/// Submits work on these shards; returns the ticket on which its end is awaited.
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

/// Submits work on all shards; returns the ticket on which its end is awaited.
pub fn send_to_all(
    shards: &Shards,
    work: impl FnMut(&mut [&mut Engine], Now) + Send + 'static,
) -> Arc<Ticket> {
    let all: Vec<u16> = (0..shards.len() as u16).collect();
    send(shards, &all, work)
}

/// Sends waiters that need more shards than are locked to all of their shards.
#[derive(Default)]
pub struct WaiterDispatcher(OnceLock<Weak<Shards>>);

impl WaiterDispatcher {
    /// Sets the shards to which waiters are sent.
    pub fn reach(&self, shards: &Arc<Shards>) {
        self.0.get_or_init(|| Arc::downgrade(shards));
    }
}

impl waiting::Dispatcher for WaiterDispatcher {
    fn call(&self, waiter: Arc<dyn waiting::Waiter>) {
        let shards = self.0.get().and_then(Weak::upgrade);
        if let (Some(shards), Ok(waiter)) = (shards, waiter.into_any().downcast::<BlockedRequest>())
        {
            let route = waiter.shards();
            let serve = move |engines: &mut [&mut Engine], now| waiter.answer_call(engines, now);
            shards.submit(Job::task(&route, serve));
        }
    }
}
