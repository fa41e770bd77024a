//! The configuration, and access to the configuration file and the ACL file.

use std::sync::Arc;

use super::super::error::CommandError;
use crate::config::Config;
use crate::config::rewrite::AddedParameters;

/// The configuration, and access to the configuration file and the ACL file.
pub trait HostSettings {
    /// Returns the text of the ACL file (`aclfile`).
    fn read_users(&self) -> Result<Vec<u8>, String>;
    /// Replaces the ACL file atomically.
    fn write_users(&self, text: &[u8]) -> Result<(), String>;
    /// Returns the current configuration.
    fn config(&self) -> Arc<Config>;
    /// Changes parameters; all or nothing. The reactions of shards, connections and the allocator are left to
    /// [`HostSettings::follow_config`]; as are calls to the operating system, because a transaction may call this with
    /// shards locked ([`Command::is_postponed`](crate::command::declaration::Command::is_postponed)).
    fn config_set(&self, pairs: &[(&[u8], &[u8])], is_local: bool) -> Result<(), CommandError>;
    /// Applies the current configuration to shards, connections and the allocator. No shard may be locked; the
    /// background does the rest.
    fn follow_config(&self);
    /// Applies the server's current role to settings that differ between roles.
    fn follow_role(&self);
    /// Rewrites the configuration file; `adding` tells which parameters may be added.
    fn config_rewrite(&self, adding: AddedParameters) -> Result<(), CommandError>;
}
