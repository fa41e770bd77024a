//! What changes with the role, at one moment for all shards.

use std::future::poll_fn;

use tokio::sync::oneshot;

use crate::shard::job::task;
use crate::state::Service;
use basalt_commands::client::under_way::UnderWay;
use basalt_engine::{Engine, Now};

/// Runs something with all shards in hand, and waits for that.
pub(super) async fn on_all(
    service: &'static Service,
    work: impl FnMut(&mut [&mut Engine], Now) + Send + 'static,
) {
    let ticket = task::send_to_all(&service.shards, work);
    poll_fn(|cx| ticket.poll(cx).map(drop)).await;
}

/// Waits until all that was admitted before has taken effect: what a rule refuses from now on is not under way any
/// more.
pub(super) async fn landed(service: &'static Service) {
    let (say, over) = oneshot::channel();
    UnderWay::when_over(&service.under_way, || drop(say));
    // It ends by being dropped.
    let _: Result<(), _> = over.await;
}

/// Deletes all data and all libraries of functions.
pub(super) async fn empty(service: &'static Service) {
    on_all(service, |engines, _| {
        for engine in engines {
            let removed = engine.flush_all() as u64;
            engine.published().lazyfreed.add(removed);
        }
    })
    .await;
    service.scripts.functions.flush(&mut || None);
}
