//! The configuration, and the files of configuration and users.

use std::sync::Arc;

use super::super::error::CommandError;
use crate::config::Config;
use crate::config::rewrite::Adding;

/// The configuration, and the files of configuration and users.
pub trait HostSettings {
    /// Returns the text of the file of users (`aclfile`).
    fn read_users(&self) -> Result<Vec<u8>, String>;
    /// Replaces the file of users atomically.
    fn write_users(&self, text: &[u8]) -> Result<(), String>;
    /// Returns the current configuration.
    fn config(&self) -> Arc<Config>;
    /// Changes parameters; all or nothing. The reactions of shards, connections and the allocator are left to
    /// [`HostSettings::follow_config`]; as a transaction may call this with shards locked, so are those that ask the
    /// system for something ([`Command::is_postponed`](crate::command::declaration::Command::is_postponed)).
    fn config_set(&self, pairs: &[(&[u8], &[u8])], is_local: bool) -> Result<(), CommandError>;
    /// Applies the current configuration. No shard may be locked; the background does what is not done here.
    fn follow_config(&self);
    /// Applies the server's current role, where the configuration differs between roles.
    fn follow_role(&self);
    /// Rewrites the configuration file.
    fn config_rewrite(&self, adding: Adding) -> Result<(), CommandError>;
}
