//! A one-line text on the server's state, for the service manager.

use std::sync::atomic::Ordering::Relaxed;

use crate::state::Service;
use crate::telemetry::clock;
use basalt_commands::command::host::replica::LinkState;

/// Returns the server's current state.
pub(super) fn text(service: &Service) -> String {
    let loading = &service.telemetry.persistence.loading;
    if loading.is_loading.load(Relaxed) {
        return format!("Loading: {}", loading.share(clock::unix_ms()));
    }
    let Some(server) = service
        .server
        .get()
        .filter(|_| service.telemetry.is_ready())
    else {
        return "Starting".to_owned();
    };
    let clients = service.clients.count();
    match server.replica().upstream() {
        None => {
            let replicas = server.primary().replicas().len();
            format!("Serving as primary: {clients} clients, {replicas} replicas")
        }
        Some(upstream) => {
            let (host, port) = (&upstream.host, upstream.port);
            match server.lacks_primary() {
                false => format!("Serving as replica of {host}:{port}: {clients} clients"),
                true if upstream.state == LinkState::Sync => {
                    format!("Replica of {host}:{port}: full synchronization in progress")
                }
                true => format!("Replica of {host}:{port}: the link is down"),
            }
        }
    }
}
