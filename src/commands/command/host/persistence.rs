//! Snapshots, the append-only file, and the shutdown of the server.

use std::sync::Arc;

use super::super::error::CommandError;
use super::Awaited;
use crate::client::shared::Shared;

/// Snapshots, the append-only file, and the shutdown of the server.
pub trait HostPersistence {
    /// Saves a snapshot. Returns an error if one is already being saved.
    fn save(&self) -> Result<Awaited, CommandError>;
    /// Starts a snapshot in the background; the result is ready at its cut. None: with `may_wait`, other work is in
    /// progress, and the snapshot starts after it.
    fn save_in_background(&self, may_wait: bool) -> Result<Option<Awaited>, CommandError>;
    /// Starts a snapshot in the background as soon as no other such work is in progress. Returns an error if a snapshot
    /// is being saved.
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
    /// DEBUG RELOAD: saves a snapshot and loads it.
    fn reload(&self, reload: Reload) -> Awaited;
    /// Starts to rewrite the append-only file in the background. Returns an error if a rewrite is in progress. None:
    /// other work is in progress or `may_begin` is false, and the rewrite starts later.
    fn rewrite_aof(&self, may_begin: bool) -> Result<Option<Awaited>, CommandError>;
    /// Whether the append-only file has synced to disk everything appended to the log before a position; None: the
    /// file is off. The waiting client is woken when that may have changed.
    fn is_aof_synced(&self, position: u64, waiter: Option<&Arc<Shared>>) -> Option<bool>;
    /// Returns the position after everything appended to the log: data read before this call reflect nothing after
    /// the position, except for effects of commands that still have their shards locked.
    fn log_position(&self) -> u64;
    /// DEBUG LOADAOF: loads the append-only file.
    fn load_aof(&self) -> Awaited;
    /// SHUTDOWN ABORT: cancels a shutdown that is scheduled, or that waits for replicas.
    fn abort_shutdown(&self) -> Result<(), CommandError>;
}

/// Options of SHUTDOWN.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Exit {
    /// Whether a snapshot is saved first; None: only if there are save points.
    pub saves: Option<bool>,
    /// Whether to shut down even if something fails.
    pub is_forced: bool,
    /// Whether to shut down without waiting for replicas.
    pub is_now: bool,
    /// Whether to refuse the shutdown of a primary that serves slots of a cluster.
    pub is_safe: bool,
    /// Whether a primary of a cluster hands its slots over to a replica first.
    pub fails_over: bool,
}

/// Options of DEBUG RELOAD.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Reload {
    /// Whether to load what was saved before, without saving now.
    pub skips_save: bool,
    /// Whether to keep the current data.
    pub skips_flush: bool,
    /// Whether keys of the snapshot replace existing ones.
    pub merges: bool,
}
