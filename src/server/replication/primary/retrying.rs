//! Backoff for replicas that were sent a snapshot in a format that not all servers can read, or with JSON documents,
//! which need a module elsewhere, and have not confirmed loading it. A replica that cannot read the snapshot would
//! otherwise request a full synchronization at once, again and again. So it has to wait before the next snapshot,
//! longer each time.

use std::collections::BTreeMap;

use parking_lot::Mutex;

use super::peer::ConnectedReplica;
use crate::telemetry::clock;
use basalt_engine::serial::{self, V10};

/// First and maximum delay.
const WAIT_MS: (u64, u64) = (1_000, 60_000);

/// Maximum number of replicas remembered: a client can give itself any name.
const REMEMBERED_MAX: usize = 64;

struct Sent {
    times: u32,
    version: u16,
    /// Whether the data may have had documents.
    has_documents: bool,
    at_ms: u64,
    /// Whether the waiting was already logged.
    is_told: bool,
}

impl Sent {
    fn waits_until_ms(&self) -> u64 {
        let (first, longest) = WAIT_MS;
        let doubled = first.checked_shl(self.times.saturating_sub(1));
        self.at_ms + doubled.unwrap_or(longest).min(longest)
    }
}

/// Replicas that have not confirmed loading their snapshot, by name; see the module.
#[derive(Default)]
pub(super) struct ReplicaRetries {
    by_name: Mutex<BTreeMap<String, Sent>>,
}

impl ReplicaRetries {
    /// Records that a replica is sent a snapshot with this RDB version.
    pub(super) fn note_sent(&self, peer: &ConnectedReplica, version: u16) {
        // A client that only wants a snapshot, or never acknowledges, will not confirm loading it.
        let is_heard = peer.seat.is_some() || !peer.is_mute && !peer.is_for_snapshot();
        let is_named = peer.announced.port != 0;
        let has_documents = serial::has_written_documents();
        let is_for_all = version <= V10 && !has_documents;
        if is_for_all || peer.announced.is_basalt || !is_heard || !is_named {
            return;
        }
        let mut by_name = self.by_name.lock();
        let name = peer.name();
        if by_name.len() >= REMEMBERED_MAX && !by_name.contains_key(&name) {
            let oldest = by_name.iter().min_by_key(|(_, sent)| sent.at_ms);
            let oldest = oldest.map(|(name, _)| name.clone());
            oldest.map(|oldest| by_name.remove(&oldest));
        }
        let times = by_name.get(&name).map_or(0, |sent| sent.times);
        let sent = Sent {
            times: times.saturating_add(1),
            version,
            has_documents,
            at_ms: clock::unix_ms(),
            is_told: false,
        };
        by_name.insert(name, sent);
    }

    /// Notes that a replica has loaded its snapshot.
    pub(super) fn note_loaded(&self, peer: &ConnectedReplica) {
        let mut by_name = self.by_name.lock();
        if !by_name.is_empty() {
            by_name.remove(&peer.name());
        }
    }

    /// Returns an error line if a replica has to wait for its next snapshot.
    pub(super) fn refusal(&self, peer: &ConnectedReplica) -> Option<String> {
        let name = peer.name();
        let mut by_name = self.by_name.lock();
        let sent = by_name.get_mut(&name)?;
        let wait_ms = sent.waits_until_ms().saturating_sub(clock::unix_ms());
        if wait_ms == 0 {
            return None;
        }
        let version = sent.version;
        let (contents, readers) = match (version > V10, sent.has_documents) {
            (true, false) => (
                "hash fields with a TTL",
                "Redis 7.4, Valkey 9 and later can load",
            ),
            (false, _) => (
                "JSON documents",
                "servers with RedisJSON or valkey-json can load",
            ),
            (true, true) => (
                "hash fields with a TTL and JSON documents",
                "Redis 7.4, Valkey 9 and later with RedisJSON or valkey-json can load",
            ),
        };
        if !std::mem::replace(&mut sent.is_told, true) {
            let said = match peer.announced.version.as_str() {
                "" => "its version is unknown".to_owned(),
                version => format!("it reports version {version}"),
            };
            tracing::warn!(
                "Replica {name} requests a full resync again without having loaded the last snapshot (times: {}). The \
                 data has {contents}, which only {readers} ({said}). The next snapshot is sent in {wait_ms} ms.",
                sent.times
            );
        }
        // Replicas of all servers take this error as a reason to retry later.
        Some(format!(
            "-NOMASTERLINK the last snapshot (RDB version {version}, with {contents}) was not loaded; the next one is \
             available in {wait_ms} ms\r\n"
        ))
    }
}
