//! The configuration, and the files of configuration and users.

use std::sync::Arc;

use super::super::error::CommandError;
use crate::config::Config;
use crate::config::rewrite::Adding;

/// The configuration, and the files of configuration and users.
pub trait Settings {
    /// The text of the file of users (`aclfile`).
    fn read_users(&self) -> Result<Vec<u8>, String>;
    /// Puts a text in place of the file of users, in one step.
    fn write_users(&self, text: &[u8]) -> Result<(), String>;
    /// The configuration as it is now.
    fn config(&self) -> Arc<Config>;
    /// Changes parameters; all or nothing. What shards, connections and the allocator do because of it is left to
    /// [`Settings::follow_config`]; as a transaction may call this with shards in hand, so are those that ask the
    /// system for something ([`Command::is_postponed`](crate::command::declaration::Command::is_postponed)).
    fn config_set(&self, pairs: &[(&[u8], &[u8])], is_local: bool) -> Result<(), CommandError>;
    /// Makes the configuration felt, as it is now. No shard may be in hand; the background sees to what is not done
    /// here.
    fn follow_config(&self);
    /// Makes the role felt that this server has now, where the configuration says different things for each.
    fn follow_role(&self);
    /// Writes the configuration file again.
    fn config_rewrite(&self, adding: Adding) -> Result<(), CommandError>;
}
