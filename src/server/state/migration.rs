//! MIGRATE, as requested by sessions.

use crate::shard::QueuedJob;
use basalt_commands::command::host::migration::Migration;

/// Moves keys to other servers.
pub trait Migrator: Send + Sync {
    /// Starts a migration. Its reply is written into `reply`, which is returned at the end.
    fn start(&self, migration: Box<Migration>, reply: QueuedJob);
}
