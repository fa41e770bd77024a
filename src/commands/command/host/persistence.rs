//! Snapshots, the append-only file, and the end of the server.

use std::sync::Arc;

use super::super::error::CommandError;
use super::Awaited;
use crate::client::shared::Shared;

/// Snapshots, the append-only file, and the end of the server.
pub trait Persistence {
    /// Saves a snapshot; an error if one is being saved already.
    fn save(&self) -> Result<Awaited, CommandError>;
    /// Saves a snapshot in the background: what is awaited is the cut. None: it begins later, as something else is
    /// under way, for which it may wait.
    fn save_in_background(&self, may_wait: bool) -> Result<Option<Awaited>, CommandError>;
    /// Saves a snapshot in the background as soon as nothing else is under way; an error if one is being saved.
    fn schedule_save(&self) -> Result<(), CommandError>;
    /// Why writes are refused because nothing could be saved, if they are.
    fn unsaved_text(&self) -> Option<&'static str>;
    /// After all data were deleted: what is being saved is given up, and the empty state is saved, if there are save
    /// points.
    fn save_emptied(&self) -> Option<Awaited>;
    /// When the last snapshot was saved, in Unix seconds.
    fn last_save_s(&self) -> u64;
    /// Ends the server.
    fn shut_down(&self, exit: Exit) -> Awaited;
    /// DEBUG RELOAD.
    fn reload(&self, reload: Reload) -> Awaited;
    /// Rewrites the append-only file in the background; an error if that is under way. None: it begins later, as
    /// something else is under way or `may_begin` says so.
    fn rewrite_aof(&self, may_begin: bool) -> Result<Option<Awaited>, CommandError>;
    /// Whether the append-only file has all on its disk that was appended to the log before a position; none: it is
    /// off. The client is nudged when that may have changed.
    fn is_aof_synced(&self, position: u64, waiter: Option<&Arc<Shared>>) -> Option<bool>;
    /// The position behind all that was appended to the log: figures that were read before tell of nothing behind it,
    /// but for what a command has done that still has its shards in hand.
    fn log_position(&self) -> u64;
    /// DEBUG LOADAOF.
    fn load_aof(&self) -> Awaited;
    /// Takes back the end that a signal asked for; whether one did.
    fn abort_shutdown(&self) -> bool;
}

/// Options of SHUTDOWN.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Exit {
    /// Whether a snapshot is saved before; none: if there are save points.
    pub saves: Option<bool>,
    /// Whatever fails.
    pub is_forced: bool,
    /// Without waiting for replicas.
    pub is_now: bool,
}

/// Options of DEBUG RELOAD.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Reload {
    /// Loads what was saved before, and saves nothing now.
    pub skips_save: bool,
    /// Keeps what is there.
    pub skips_flush: bool,
    /// Keys of the snapshot replace those that are there.
    pub merges: bool,
}
