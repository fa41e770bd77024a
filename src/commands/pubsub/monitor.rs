//! MONITOR: sends every command that is run, as a line, to the clients in that mode.

use std::io::Write;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};

use parking_lot::RwLock;

use super::{Posting, PubSub};
use crate::client::shared::Shared;
use basalt_core::base::text;

/// The clients in MONITOR mode.
#[derive(Default)]
pub(super) struct Monitors {
    clients: RwLock<Vec<Arc<Shared>>>,
    count: AtomicUsize,
}

/// A command that was run, as MONITOR shows it.
pub struct Shown<'a> {
    /// Time in microseconds since the epoch.
    pub unix_us: u64,
    /// Index of the database that the command ran in.
    pub db: usize,
    /// The client that ran the command; None for a script.
    pub client: Option<&'a Shared>,
}

impl PubSub {
    /// Whether any client is in MONITOR mode.
    #[inline]
    pub fn is_monitored(&self) -> bool {
        self.monitors.count.load(Relaxed) > 0
    }

    /// Starts MONITOR for a client.
    pub fn add_monitor(&self, client: &Arc<Shared>) {
        let mut clients = self.monitors.clients.write();
        if !client.mailbox_or_new().monitors.swap(true, Relaxed) {
            clients.push(Arc::clone(client));
        }
        self.monitors.count.store(clients.len(), Relaxed);
    }

    /// Ends MONITOR for a client.
    pub(super) fn remove_monitor(&self, client: &Shared) {
        if !client.is_monitor() {
            return;
        }
        let mut clients = self.monitors.clients.write();
        if let Some(mailbox) = client.mailbox() {
            mailbox.monitors.store(false, Relaxed);
        }
        clients.retain(|other| other.id != client.id);
        self.monitors.count.store(clients.len(), Relaxed);
    }

    /// Sends a command to all clients in MONITOR mode. The arguments must contain no secrets.
    pub fn show<'a>(
        &self,
        shown: &Shown<'_>,
        arguments: impl Iterator<Item = &'a [u8]>,
        posting: &mut Posting<'_>,
    ) {
        let Shown {
            unix_us,
            db,
            client,
        } = shown;
        let (seconds, us) = (unix_us / 1_000_000, unix_us % 1_000_000);
        let mut line = format!("+{seconds}.{us:06} [{db} ").into_bytes();
        match client {
            None => line.extend_from_slice(b"lua]"),
            Some(client) if client.unix_socket => {
                let path = client.address.trim_end_matches(":0");
                let _ = write!(line, "unix:{path}]");
            }
            Some(client) => {
                let _ = write!(line, "{}]", client.address);
            }
        }
        for argument in arguments {
            line.push(b' ');
            text::quote(argument, &mut line);
        }
        line.extend_from_slice(b"\r\n");
        let bound = self.bounds.normal();
        for monitor in self.monitors.clients.read().iter() {
            posting.post(monitor, bound, |out| out.raw(&line));
        }
    }
}
