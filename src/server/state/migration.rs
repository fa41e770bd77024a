//! MIGRATE, as sessions ask for it.

use crate::shard::QueuedJob;
use basalt_commands::command::host::migration::Migration;

/// Carries keys to other servers.
pub trait Migrator: Send + Sync {
    /// Begins a migration. Its reply goes into the message, which is given back in the end.
    fn start(&self, migration: Box<Migration>, reply: QueuedJob);
}
