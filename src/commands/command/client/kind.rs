//! The kind of a connection: its type, and its flags in CLIENT LIST.

use std::sync::atomic::Ordering::Relaxed;

use crate::client::shared::maintenance::MaintenanceOptions;
use crate::client::shared::tracking::{Tracking, TrackingOptions};
use crate::client::shared::{Peer, Shared};
use crate::command::error::{CommandError, shown};

/// The purpose of a connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum ClientType {
    Normal,
    Master,
    Replica,
    PubSub,
}

impl ClientType {
    pub(super) fn of(client: &Shared) -> ClientType {
        match client.peer() {
            Peer::Replica => ClientType::Replica,
            Peer::Primary => ClientType::Master,
            Peer::Client if client.subscriptions() > 0 => ClientType::PubSub,
            Peer::Client => ClientType::Normal,
        }
    }

    pub(super) fn named(name: &[u8]) -> Result<ClientType, CommandError> {
        let types = [
            ("normal", ClientType::Normal),
            ("master", ClientType::Master),
            ("replica", ClientType::Replica),
            ("slave", ClientType::Replica),
            ("pubsub", ClientType::PubSub),
        ];
        types
            .iter()
            .find(|(word, _)| name.eq_ignore_ascii_case(word.as_bytes()))
            .map(|(_, client_type)| *client_type)
            .ok_or_else(|| {
                let name = shown(name);
                format!("ERR Unknown client type '{name}'").into()
            })
    }
}

/// Whether the connection is the one that sends a replica its snapshot, in the protocol of Redis 8.
fn is_for_snapshot(client: &Shared) -> bool {
    let announced = (client.peer() == Peer::Replica).then(|| client.announced());
    announced.is_some_and(|said| said.is_rdb_channel && said.main_client.is_some())
}

/// Returns letters for the client's declared capabilities, and `m` if it gets maintenance notifications.
pub(super) fn capabilities(client: &Shared) -> &'static str {
    let is_told = client.maintenance().any(MaintenanceOptions::ON);
    match (client.takes_redirects.load(Relaxed), is_told) {
        (true, true) => "rm",
        (true, false) => "r",
        (false, true) => "m",
        (false, false) => "",
    }
}

/// Returns letters for the kind and state of a connection, `N` if none applies.
pub fn flags(client: &Shared) -> String {
    let tracking = client.tracking_options();
    let letters = [
        ('S', client.peer() == Peer::Replica),
        ('C', is_for_snapshot(client)),
        ('M', client.peer() == Peer::Primary),
        ('O', client.is_monitor()),
        ('P', client.subscriptions() > 0),
        ('x', client.queued.load(Relaxed) >= 0),
        ('b', client.is_blocked()),
        ('t', tracking.any(TrackingOptions::ON)),
        ('R', client.tracking().is_some_and(Tracking::is_broken)),
        ('B', tracking.any(TrackingOptions::BCAST)),
        ('A', client.is_killed()),
        ('U', client.unix_socket),
        ('r', client.reads_here.load(Relaxed)),
        ('e', client.no_evict.load(Relaxed)),
        ('T', client.no_touch.load(Relaxed)),
    ];
    let set: String = letters
        .iter()
        .filter(|(_, is_set)| *is_set)
        .map(|(letter, _)| *letter)
        .collect();
    if set.is_empty() { "N".into() } else { set }
}
