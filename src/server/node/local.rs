//! Answers of this server to queries of the state machine.

use super::Bus;
use basalt_commands::cluster::settings::{Local, PrimaryLink};
use basalt_commands::command::host::primary::HostPrimary;

/// The server as queried by the machine. No query locks a shard, as the machine calls them under its lock.
pub(super) struct LocalServer(pub(super) &'static Bus);

impl Local for LocalServer {
    fn offset(&self) -> u64 {
        let replication = &self.0.replication;
        match replication.replica.applied() {
            Some(offset) => offset,
            None => replication.primary.stream().offset,
        }
    }

    fn keys_in_slot(&self, slot: u16) -> u64 {
        let service = self.0.service;
        let shard = usize::from(service.router.shard_of_slot(slot));
        // The machine only checks whether the number is zero.
        u64::from(service.all_published[shard].has_keys_in_slot(slot))
    }

    fn has_keys(&self) -> bool {
        let mut shards = self.0.service.all_published.iter();
        shards.any(|shard| shard.dbs.iter().any(|db| db.keys.get() > 0))
    }

    fn primary_link(&self) -> Option<PrimaryLink> {
        let (is_up, silent_ms) = self.0.replication.replica.silence()?;
        Some(PrimaryLink { is_up, silent_ms })
    }
}
