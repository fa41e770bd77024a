//! Clients that are idle, slow or unauthenticated: buffers returned, connections closed.

use std::sync::atomic::Ordering::Relaxed;

use crate::net::buffer_budget;
use crate::start::accept;
use crate::state::Service;
use crate::telemetry::clock;
use basalt_commands::client::shared::Peer;
use basalt_commands::client::shared::mailbox::{Mailbox, OutputBound};

/// Milliseconds for which a connection keeps its buffer after its last request.
const BUFFER_KEPT_MS: u64 = 2_000;

/// Spare buffer capacity below which a connection is not woken.
const BUFFER_ROOM_BYTES_MAX: usize = 8 * 1024;

/// Makes connections return buffers that they have not used recently.
pub(super) fn collect_idle_buffers(service: &Service) {
    if !buffer_budget::is_any() {
        return;
    }
    let now_ms = clock::unix_ms();
    for client in service.clients.all() {
        let idle_ms = now_ms.saturating_sub(client.active_ms.load(Relaxed));
        let bytes = client.buffer_bytes.load(Relaxed);
        let has_room = bytes > client.query_bytes.load(Relaxed) + BUFFER_ROOM_BYTES_MAX;
        if has_room && idle_ms >= BUFFER_KEPT_MS {
            client.request_buffer();
        }
    }
}

/// Closes clients that have sent nothing for `timeout` seconds.
pub(super) fn close_idle_clients(service: &Service) {
    close_unauthenticated(service);
    let timeout_s = u64::from(service.config.load().timeout);
    if timeout_s == 0 {
        return;
    }
    let now_ms = clock::unix_ms();
    for client in service.clients.all() {
        let idle_ms = now_ms.saturating_sub(client.active_ms.load(Relaxed));
        // Skip clients that wait for data or messages: they send nothing.
        let is_waiting = client.is_blocked()
            || client.subscriptions() > 0
            || client.is_monitor()
            || client.peer() != Peer::Client;
        if idle_ms > timeout_s * 1_000 && !is_waiting {
            client.kill();
        }
    }
}

/// Closes clients that have not authenticated within `auth-timeout` seconds.
fn close_unauthenticated(service: &Service) {
    let timeout_s = u64::from(service.config.load().auth_timeout);
    if timeout_s == 0 || service.clients.unauthenticated() == 0 {
        return;
    }
    let now_ms = clock::unix_ms();
    let mut closed = 0;
    for client in service.clients.all() {
        let age_ms = now_ms.saturating_sub(client.created_ms);
        if client.is_unauthenticated() && age_ms > timeout_s * 1_000 {
            service.clients.kill(&client);
            closed += 1;
        }
    }
    if closed > 0 {
        let counter = &service.clients.unauthenticated_closed;
        counter.fetch_add(closed as u64, Relaxed);
        accept::note_closed(closed);
    }
}

/// Enforces the limits of unsent output that depend on time: closes clients that have exceeded the soft limit of
/// `client-output-buffer-limit` for too long, and those that accept nothing (`client-output-timeout`).
pub(super) fn cut_slow_clients(service: &Service) {
    let now_ms = clock::unix_ms();
    let config = service.config.load();
    let stuck_ms = u64::from(config.client_output_timeout) * 1_000;
    let limit = config.client_output_buffer_limit.normal;
    let normal = OutputBound {
        hard_bytes: limit.hard_bytes,
        soft_bytes: limit.soft_bytes,
        soft_ms: limit.soft_seconds.saturating_mul(1_000),
    };
    let clients = service.clients.all().into_iter();
    // The output of replicas is checked by their senders.
    for client in clients.filter(|client| client.peer() == Peer::Client) {
        let unsent = client.output_bytes.load(Relaxed);
        let waiting = client.mailbox().map_or(0, Mailbox::bytes);
        if unsent + waiting > 0 {
            let bound = match client.subscriptions() + waiting {
                // Without subscriptions, the output consists of the client's own replies, to which the limit
                // for Pub/Sub does not apply.
                0 => normal,
                _ => service.pubsub.bound_of(&client),
            };
            client.check_output(bound, now_ms);
            client.check_progress(stuck_ms, now_ms);
        }
    }
}
