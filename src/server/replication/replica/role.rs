//! Changes that come with a new role, made atomically for all shards.

use std::future::poll_fn;

use tokio::sync::oneshot;

use crate::shard::job::task;
use crate::state::Service;
use basalt_commands::client::under_way::UnderWay;
use basalt_engine::{Engine, Now};

/// Runs a closure with all shards locked, and waits for it.
pub(super) async fn on_all(
    service: &'static Service,
    work: impl FnMut(&mut [&mut Engine], Now) + Send + 'static,
) {
    let ticket = task::send_to_all(&service.shards, work);
    poll_fn(|cx| ticket.poll(cx).map(drop)).await;
}

/// Waits until all previously admitted commands have taken effect: after that, no command that would now be
/// refused is in flight.
pub(super) async fn landed(service: &'static Service) {
    let (say, over) = oneshot::channel();
    UnderWay::when_over(&service.under_way, || drop(say));
    // The sender is dropped without sending a value, which completes `over` with an error.
    let _: Result<(), _> = over.await;
}

/// Deletes all data and all function libraries.
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
