//! Snapshots, the append-only file, and the shutdown of the server.

use std::sync::Arc;

use super::super::error::CommandError;
use super::Awaited;
use crate::client::shared::Shared;

/// Snapshots, the append-only file, and the shutdown of the server.
pub trait HostPersistence {
    /// Saves a snapshot; an error if one is already being saved.
    fn save(&self) -> Result<Awaited, CommandError>;
    /// Saves a snapshot in the background; the result is ready when its data are cut. None: it starts later, as
    /// something else is under way that it is allowed to wait for.
    fn save_in_background(&self, may_wait: bool) -> Result<Option<Awaited>, CommandError>;
    /// Saves a snapshot in the background as soon as nothing else is under way; an error if one is being saved.
    fn schedule_save(&self) -> Result<(), CommandError>;
    /// Returns the error if writes are refused because nothing could be saved.
    fn unsaved_text(&self) -> Option<&'static str>;
    /// Handles the deletion of all data: a running save is aborted, and the empty state is saved, if there are save
    /// points.
    fn save_emptied(&self) -> Option<Awaited>;
    /// Returns the time of the last saved snapshot, in Unix seconds.
    fn last_save_s(&self) -> u64;
    /// Shuts down the server.
    fn shut_down(&self, exit: Exit) -> Awaited;
    /// DEBUG RELOAD.
    fn reload(&self, reload: Reload) -> Awaited;
    /// Rewrites the append-only file in the background; an error if that is under way. None: it starts later, as
    /// something else is under way or `may_begin` is false.
    fn rewrite_aof(&self, may_begin: bool) -> Result<Option<Awaited>, CommandError>;
    /// Whether the append-only file has synced to disk everything appended to the log before a position; none: it is
    /// off. The client is nudged when that may have changed.
    fn is_aof_synced(&self, position: u64, waiter: Option<&Arc<Shared>>) -> Option<bool>;
    /// Returns the position after everything appended to the log: figures read earlier reflect nothing after it,
    /// except for effects of a command that still has its shards locked.
    fn log_position(&self) -> u64;
    /// DEBUG LOADAOF.
    fn load_aof(&self) -> Awaited;
    /// Cancels the shutdown that a signal requested; returns whether there was one.
    fn abort_shutdown(&self) -> bool;
}

/// Options of SHUTDOWN.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Exit {
    /// Whether a snapshot is saved first; none: if there are save points.
    pub saves: Option<bool>,
    /// Shut down even if something fails.
    pub is_forced: bool,
    /// Do not wait for replicas.
    pub is_now: bool,
}

/// Options of DEBUG RELOAD.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Reload {
    /// Load what was saved before, and save nothing now.
    pub skips_save: bool,
    /// Keep the current data.
    pub skips_flush: bool,
    /// Keys of the snapshot replace existing ones.
    pub merges: bool,
}
