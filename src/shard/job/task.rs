//! What the server asks of shards that is no command of a client.

use std::sync::{Arc, OnceLock, Weak};

use super::Job;
use crate::engine::migration::Transfer;
use crate::engine::watching::Watched;
use crate::engine::{Engine, Now, waiting};
use crate::shard::QueuedJob;
use crate::shard::Shards;
use crate::shard::blocking::Waiter;
use crate::shard::execute;
use crate::shard::ownership::engines::HeldEngines;
use crate::telemetry::clock;

/// See the module.
pub enum Task {
    /// A request waits no more: it leaves the queues of the shard.
    Forget(Arc<Waiter>),
    /// A request that waits can be served, with all its shards in hand.
    Serve(Arc<Waiter>),
    /// A connection watches these keys no more.
    Unwatch(Vec<Watched>),
    /// Keys move to another server.
    Migrate(Box<Transfer>),
    /// Work that leaves what commands see as it is.
    Work(Work),
}

/// What a task does with its shards in hand. It never waits.
type Work = Box<dyn FnMut(&mut [&mut Engine], Now) + Send>;

impl Task {
    /// Takes a waiter out of the queues of one shard.
    pub fn forget(waiter: &Arc<Waiter>, shard: u16) -> QueuedJob {
        Job::task(&[shard], Task::Forget(Arc::clone(waiter)))
    }

    /// Has one shard forget what was watched.
    pub fn unwatch(watched: Vec<Watched>, shard: u16) -> QueuedJob {
        Job::task(&[shard], Task::Unwatch(watched))
    }

    /// Work that leaves what commands see as it is.
    pub fn work(work: impl FnMut(&mut [&mut Engine], Now) + Send + 'static) -> Task {
        Task::Work(Box::new(work))
    }

    /// Takes a transfer to its shards.
    pub fn migrate(transfer: Box<Transfer>) -> QueuedJob {
        let shards = transfer.shards();
        Job::task(&shards, Task::Migrate(transfer))
    }

    pub(super) fn run(&mut self, engines: &mut HeldEngines<'_, Engine>) {
        let now = clock::now();
        let mut engines = engines.all();
        match self {
            Task::Forget(waiter) => waiter.leave(&mut engines),
            Task::Serve(waiter) => waiter.answer_call(&mut engines, now),
            Task::Unwatch(watched) => {
                for engine in &mut engines {
                    watched.iter().for_each(|watched| watched.forget(engine));
                }
            }
            Task::Migrate(transfer) => transfer.run(&mut engines, now),
            Task::Work(work) => work(&mut engines, now),
        }
        execute::end_of_change(&mut engines, now, true);
    }
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
            shards.submit(Job::task(&waiter.shards(), Task::Serve(waiter)));
        }
    }
}
