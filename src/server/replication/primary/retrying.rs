//! Replicas that were sent a snapshot of a form that not all servers read, and have not said since that they have
//! loaded it. One that can not read it asks for all data again at once, for ever: the next time it has to wait, longer
//! from time to time.

use std::collections::BTreeMap;

use parking_lot::Mutex;

use super::peer::Peer;
use crate::telemetry::clock;
use basalt_engine::serial::V10;

/// The first wait, and the longest one.
const WAIT_MS: (u64, u64) = (1_000, 60_000);

/// Replicas that are remembered: a client can give itself any name.
const REMEMBERED_MAX: usize = 64;

struct Sent {
    times: u32,
    version: u16,
    at_ms: u64,
    /// The log says it already.
    is_told: bool,
}

impl Sent {
    fn waits_until_ms(&self) -> u64 {
        let (first, longest) = WAIT_MS;
        let doubled = first.checked_shl(self.times.saturating_sub(1));
        self.at_ms + doubled.unwrap_or(longest).min(longest)
    }
}

/// See the module.
#[derive(Default)]
pub(super) struct Retrying {
    by_name: Mutex<BTreeMap<String, Sent>>,
}

impl Retrying {
    /// A snapshot of a version of the format goes to a replica.
    pub(super) fn note_sent(&self, peer: &Peer, version: u16) {
        // Who wants a snapshot alone, or never says what it has, is not heard of again.
        let is_heard = peer.seat.is_some() || !peer.is_mute && !peer.is_for_snapshot();
        let is_named = peer.announced.port != 0;
        if version <= V10 || peer.announced.is_basalt || !is_heard || !is_named {
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
            at_ms: clock::unix_ms(),
            is_told: false,
        };
        by_name.insert(name, sent);
    }

    /// A replica has loaded what it was sent.
    pub(super) fn note_loaded(&self, peer: &Peer) {
        let mut by_name = self.by_name.lock();
        if !by_name.is_empty() {
            by_name.remove(&peer.name());
        }
    }

    /// Why a replica gets no snapshot now, if it has to wait for one: a line for it.
    pub(super) fn refusal(&self, peer: &Peer) -> Option<String> {
        let name = peer.name();
        let mut by_name = self.by_name.lock();
        let sent = by_name.get_mut(&name)?;
        let wait_ms = sent.waits_until_ms().saturating_sub(clock::unix_ms());
        if wait_ms == 0 {
            return None;
        }
        let version = sent.version;
        if !std::mem::replace(&mut sent.is_told, true) {
            let said = match peer.announced.version.as_str() {
                "" => "it says of no version".to_owned(),
                version => format!("it says to be of version {version}"),
            };
            tracing::warn!(
                "Replica {name} asks for all data again, without having loaded what it was sent (times: {}). Fields of \
                 hashes have deadlines, which Redis 7.4, Valkey 9 and later can load ({said}). The next snapshot goes \
                 to it in {wait_ms} ms.",
                sent.times
            );
        }
        // What replicas of all servers take for a reason to ask again later.
        Some(format!(
            "-NOMASTERLINK the last snapshot (RDB version {version}, with deadlines of fields of hashes) was not loaded; \
             the next one can be had in {wait_ms} ms\r\n"
        ))
    }
}
