//! Maintenance notifications (CLIENT MAINT_NOTIFICATIONS): clients that asked for them are told that a failover or a
//! migration of slots begins and ends, and which server has their data then.
//!
//! ```text
//! FAILING_OVER seq seconds shards ▸ FAILED_OVER seq shards ▸ MOVING seq seconds host:port, if a replica took over
//! SMIGRATING seq slots            ▸ SMIGRATED seq [[source destination slots] …], or MIGRATED seq shards if they stay
//! ```
//!
//! Notifications are posted as invalidations are ([`Shared::post`]), so they come between replies. They are advice: a
//! client that does not read its pushes gets no more of them ([`UNREAD_BYTES_MAX`]). All clients get them in the same
//! order, as they are posted under one lock; no shard may be locked meanwhile, except where a client starts or stops.
//!
//! While a failover runs and for some seconds after a handover, clients that turn notifications on are told of it as
//! well, and their writes are not refused: their connections are closed ([`PubSub::is_leaving`]), as clients repeat a
//! request whose connection broke, at the new server, but not one that was refused.

use std::collections::HashMap;
use std::net::IpAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering::Relaxed, Ordering::SeqCst};
use std::task::Waker;

use parking_lot::Mutex;

use super::PubSub;
use crate::client::shared::Shared;
use crate::client::shared::mailbox::Mailbox;
use crate::client::shared::maintenance::MaintenanceOptions;
use crate::config::Config;
use basalt_core::resp::reply::{Out, Protocol};

/// A client with more unread bytes of pushes than this gets no notification.
const UNREAD_BYTES_MAX: usize = 16 * 1024;

/// The shards of a notification. Clients only log them; this server is one.
const SHARDS: &[u8] = b"[\"1\"]";

/// The server that took over from this one.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct HandoffTarget {
    /// Address or host name.
    pub host: String,
    /// A host name in its certificate, if known.
    pub certified_host: Option<String>,
    /// Port without TLS; 0: not known.
    pub port: u16,
    /// Port with TLS; 0: not known.
    pub tls_port: u16,
}

impl HandoffTarget {
    /// Returns the endpoint for a client; None if the client must use the one that it has.
    fn endpoint(&self, asked: MaintenanceOptions) -> Option<String> {
        let is_tls = asked.any(MaintenanceOptions::TLS);
        let port = if is_tls { self.tls_port } else { self.port };
        // A certificate is checked against a name, so an address does not do for TLS.
        let lacks_name =
            asked.any(MaintenanceOptions::NAMES) && is_tls && self.host.parse::<IpAddr>().is_ok();
        let host = match lacks_name {
            true => self.certified_host.as_deref()?,
            false => &self.host,
        };
        let is_known = !host.is_empty() && port != 0;
        (is_known && !asked.any(MaintenanceOptions::NO_ENDPOINT)).then(|| format!("{host}:{port}"))
    }
}

/// Slots that moved from this server to another.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MovedSlots {
    /// Endpoint of this server as CLUSTER SLOTS names it, to clients without and with TLS.
    pub source: [String; 2],
    /// Endpoint of the server that has them now, likewise.
    pub destination: [String; 2],
    /// The slots: numbers and ranges, separated by commas.
    pub slots: String,
}

/// A handover that clients are told of until it is over.
#[derive(Clone)]
struct Handoff {
    target: HandoffTarget,
    until_ms: u64,
}

#[derive(Default)]
struct MaintenanceState {
    clients: HashMap<u64, Arc<Shared>>,
    /// The number of the last notification.
    last_number: u64,
    /// When the failover under way is going to be over, in Unix milliseconds, as clients were told.
    failover_until_ms: Option<u64>,
    handoff: Option<Handoff>,
}

impl MaintenanceState {
    /// Returns the next number: larger than the last one, and than those from before a restart, and unlikely to be
    /// that of another node. Cluster clients ignore a number that they have seen, whichever node sent it.
    fn next_number(&mut self, now_ms: u64) -> u64 {
        self.last_number = now_ms.max(self.last_number + 1);
        self.last_number
    }
}

/// The clients with maintenance notifications, and the maintenance under way; see the module.
#[derive(Default)]
pub(super) struct Maintenance {
    state: Mutex<MaintenanceState>,
    is_disabled: AtomicBool,
    handoff_ms: AtomicU64,
    /// Whether a failover is under way.
    is_failing_over: AtomicBool,
    /// When the last handover is over, in Unix milliseconds; 0: there is none.
    handed_off_until_ms: AtomicU64,
    clients: AtomicUsize,
    sent: AtomicU64,
    dropped: AtomicU64,
}

/// Figures for INFO and the metrics.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct MaintenanceFigures {
    /// Number of connections with notifications.
    pub clients: usize,
    /// Notifications sent since the start.
    pub sent: u64,
    /// Notifications not sent because the client did not read.
    pub dropped: u64,
}

/// Writes a notification in the form that a client asked for.
type Write<'w> = &'w dyn Fn(&mut Out, MaintenanceOptions);

impl Maintenance {
    pub(super) fn configure(&self, config: &Config) {
        self.is_disabled.store(!config.maint_notifications, Relaxed);
        let seconds = u64::from(config.maint_handoff_seconds);
        self.handoff_ms.store(seconds * 1_000, Relaxed);
    }

    pub(super) fn figures(&self) -> MaintenanceFigures {
        MaintenanceFigures {
            clients: self.clients.load(Relaxed),
            sent: self.sent.load(Relaxed),
            dropped: self.dropped.load(Relaxed),
        }
    }

    pub(super) fn stop(&self, client: &Shared) {
        if client.maintenance() == MaintenanceOptions::OFF {
            return;
        }
        client.set_maintenance(MaintenanceOptions::OFF);
        let mut state = self.state.lock();
        state.clients.remove(&client.id);
        self.clients.store(state.clients.len(), Relaxed);
    }
}

fn seconds_until(until_ms: u64, now_ms: u64) -> u64 {
    until_ms.saturating_sub(now_ms).div_ceil(1_000)
}

fn write_start(out: &mut Out, kind: &[u8], number: u64, seconds: u64) {
    out.push(4);
    out.bulk(kind);
    out.integer(number.cast_signed());
    out.integer(seconds.cast_signed());
    out.bulk(SHARDS);
}

fn write_end(out: &mut Out, kind: &[u8], number: u64) {
    out.push(3);
    out.bulk(kind);
    out.integer(number.cast_signed());
    out.bulk(SHARDS);
}

fn write_moving(
    out: &mut Out,
    handoff: &Handoff,
    asked: MaintenanceOptions,
    (number, now_ms): (u64, u64),
) {
    out.push(4);
    out.bulk(b"MOVING");
    out.integer(number.cast_signed());
    out.integer(seconds_until(handoff.until_ms, now_ms).cast_signed());
    match handoff.target.endpoint(asked) {
        Some(endpoint) => out.bulk(endpoint.as_bytes()),
        None => out.null(),
    }
}

impl PubSub {
    /// Whether notifications are disabled (`maint-notifications no`).
    pub fn is_maintenance_silent(&self) -> bool {
        self.maintenance.is_disabled.load(Relaxed)
    }

    /// Starts notifications for a client, which may have them already, and tells it of maintenance under way. The
    /// client must be the one whose command runs: it is not woken.
    pub fn start_maintenance(
        &self,
        client: &Arc<Shared>,
        options: MaintenanceOptions,
        now_ms: u64,
    ) {
        let mut state = self.maintenance.state.lock();
        client.set_maintenance(options.or(MaintenanceOptions::ON));
        state.clients.insert(client.id, Arc::clone(client));
        let count = state.clients.len();
        self.maintenance.clients.store(count, Relaxed);
        if let Some(until_ms) = state.failover_until_ms {
            let number = state.next_number(now_ms);
            let seconds = seconds_until(until_ms, now_ms);
            self.notify(client, &|out, _| {
                write_start(out, b"FAILING_OVER", number, seconds);
            });
        }
        let handoff = state.handoff.clone();
        if let Some(handoff) = handoff.filter(|handoff| handoff.until_ms > now_ms) {
            // The number is new: redis-py ignores one that it has seen on another connection.
            let number = state.next_number(now_ms);
            self.notify(client, &|out, asked| {
                write_moving(out, &handoff, asked, (number, now_ms));
            });
        }
    }

    /// Stops notifications for a client.
    pub fn stop_maintenance(&self, client: &Shared) {
        self.maintenance.stop(client);
    }

    /// Sends FAILING_OVER: a replica is about to be promoted, which takes `ms` milliseconds at most; None stands for
    /// `maint-handoff-seconds`.
    pub fn begin_failover(&self, ms: Option<u64>, now_ms: u64) {
        let ms = ms.unwrap_or_else(|| self.maintenance.handoff_ms.load(Relaxed));
        let seconds = ms.div_ceil(1_000);
        self.maintenance.is_failing_over.store(true, SeqCst);
        self.notify_all(now_ms, |state, number| {
            state.failover_until_ms = Some(now_ms.saturating_add(ms));
            Some(move |out: &mut Out, _| write_start(out, b"FAILING_OVER", number, seconds))
        });
    }

    /// Sends FAILED_OVER to clients if they got FAILING_OVER: the failover is over, whether or not a replica was
    /// promoted.
    pub fn end_failover(&self, now_ms: u64) {
        self.maintenance.is_failing_over.store(false, SeqCst);
        self.notify_all(now_ms, |state, number| {
            state.failover_until_ms.take()?;
            Some(move |out: &mut Out, _| write_end(out, b"FAILED_OVER", number))
        });
    }

    /// Sends MOVING: clients are to continue at another server, as this one becomes its replica. Before that, ends the
    /// failover that is under way, if any.
    pub fn hand_off(&self, target: HandoffTarget, now_ms: u64) {
        let until_ms = now_ms + self.maintenance.handoff_ms.load(Relaxed);
        // Set this before the failover ends: no write of these clients may be refused in between.
        let until = &self.maintenance.handed_off_until_ms;
        until.store(until_ms, SeqCst);
        self.end_failover(now_ms);
        self.notify_all(now_ms, |state, number| {
            let handoff = Handoff { target, until_ms };
            state.handoff = Some(handoff.clone());
            Some(move |out: &mut Out, asked| {
                write_moving(out, &handoff, asked, (number, now_ms));
            })
        });
    }

    /// Ends the time in which clients are told of the last handover, as this server is a primary again.
    pub fn end_handoff(&self) {
        self.maintenance.handed_off_until_ms.store(0, Relaxed);
        self.maintenance.state.lock().handoff = None;
    }

    /// Whether clients are being told of a handover.
    pub fn is_handing_off(&self, now_ms: u64) -> bool {
        self.maintenance.handed_off_until_ms.load(SeqCst) > now_ms
    }

    /// Whether a client is told that its data are going to another server, or have gone there: its connection is closed
    /// instead of a write refused.
    pub fn is_leaving(&self, client: &Shared, now_ms: u64) -> bool {
        let is_failing_over = self.maintenance.is_failing_over.load(SeqCst);
        self.gets_notifications(client) && (is_failing_over || self.is_handing_off(now_ms))
    }

    /// Whether a client gets notifications: it asked for them, speaks RESP3, and they are not disabled.
    pub fn gets_notifications(&self, client: &Shared) -> bool {
        client.maintenance().any(MaintenanceOptions::ON)
            && client.resp.load(Relaxed) == Protocol::Resp3.version()
            && !self.is_maintenance_silent()
    }

    /// Sends SMIGRATING: slots are being moved to another node.
    pub fn tell_slots_migrating(&self, slots: &str, now_ms: u64) {
        self.notify_all(now_ms, |_, number| {
            Some(move |out: &mut Out, _| {
                out.push(3);
                out.bulk(b"SMIGRATING");
                out.integer(number.cast_signed());
                out.bulk(slots.as_bytes());
            })
        });
    }

    /// Sends SMIGRATED: other nodes have slots of this one now.
    pub fn tell_slots_migrated(&self, moves: &[MovedSlots], now_ms: u64) {
        self.notify_all(now_ms, |_, number| {
            Some(move |out: &mut Out, asked: MaintenanceOptions| {
                let which = usize::from(asked.any(MaintenanceOptions::TLS));
                out.push(3);
                out.bulk(b"SMIGRATED");
                out.integer(number.cast_signed());
                out.array(moves.len());
                for moved in moves {
                    out.array(3);
                    out.bulk(moved.source[which].as_bytes());
                    out.bulk(moved.destination[which].as_bytes());
                    out.bulk(moved.slots.as_bytes());
                }
            })
        });
    }

    /// Sends MIGRATED: a migration of slots is over and changed nothing.
    pub fn tell_slots_stay(&self, now_ms: u64) {
        self.notify_all(now_ms, |_, number| {
            Some(move |out: &mut Out, _| write_end(out, b"MIGRATED", number))
        });
    }

    /// Sends a notification to all clients that asked; `prepare` changes the state and returns what to write, if
    /// anything, with this number.
    fn notify_all<W: Fn(&mut Out, MaintenanceOptions)>(
        &self,
        now_ms: u64,
        prepare: impl FnOnce(&mut MaintenanceState, u64) -> Option<W>,
    ) {
        let mut wakes: Vec<Waker> = Vec::new();
        {
            let mut state = self.maintenance.state.lock();
            let number = state.next_number(now_ms);
            let Some(write) = prepare(&mut state, number) else {
                return;
            };
            for client in state.clients.values() {
                wakes.extend(self.notify(client, &write));
            }
        }
        wakes.into_iter().for_each(Waker::wake);
    }

    fn notify(&self, client: &Shared, write: Write<'_>) -> Option<Waker> {
        let figures = &self.maintenance;
        if !self.gets_notifications(client) || client.is_gone() {
            return None;
        }
        if client.mailbox().map_or(0, Mailbox::bytes) > UNREAD_BYTES_MAX {
            figures.dropped.fetch_add(1, Relaxed);
            return None;
        }
        figures.sent.fetch_add(1, Relaxed);
        let asked = client.maintenance();
        client.post(self.bound_of(client), |out| write(out, asked))
    }
}

#[cfg(test)]
mod tests;
