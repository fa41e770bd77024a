//! What commands may ask of the server, and of its halves that have rows of their own; implemented far above, so that
//! `command` stays below telemetry, sockets and threads.
//!
//! ```text
//! this file  [`Server`], and what it answers with
//! cluster    the cluster that this server is a node of, and whose a slot is
//! migration  keys that move to another server
//! primary    the half of replication that sends the stream
//! replica    the half that follows somebody
//! scripts    scripts and functions
//! ```
//!
//! Nothing here knows a handler or what it works on.

pub mod cluster;
pub mod migration;
pub mod primary;
pub mod replica;
pub mod scripts;

use std::sync::Arc;

use self::cluster::Cluster;
use self::primary::Primary;
use self::replica::Replica;
use self::scripts::{LogChange, Scripts};
use super::error::CommandError;
use crate::acl::{User, Users};
use crate::client::registry::Registry;
use crate::client::shared::Shared;
use crate::config::Config;
use crate::config::rewrite::Adding;
use crate::engine::record::Records;
use crate::pubsub::PubSub;

/// Whether a user could run a request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum DryRun {
    /// There is no such command.
    NoCommand,
    /// A command of this name has another number of arguments.
    WrongArity(&'static str),
    /// The user could not, in these words.
    Refused(String),
    /// The user could.
    Allowed,
}

/// What session handlers may ask of the server; the composition root implements it.
pub trait Server: Send + Sync {
    /// The registry of connections.
    fn clients(&self) -> &Registry;
    /// All users, and what they were refused.
    fn users(&self) -> &Users;
    /// 40 hexadecimal digits that are drawn at each start.
    fn run_id(&self) -> &str;
    /// Whether a user could run a request.
    fn dry_run(&self, user: &User, request: &[Vec<u8>], db: usize) -> DryRun;
    /// The text of the file of users (`aclfile`).
    fn read_users(&self) -> Result<Vec<u8>, String>;
    /// Puts a text in place of the file of users, in one step.
    fn write_users(&self, text: &[u8]) -> Result<(), String>;
    /// Who is subscribed to what.
    fn pubsub(&self) -> &PubSub;
    /// The half of replication that sends the stream.
    fn primary(&self) -> &dyn Primary;
    /// The half that follows somebody.
    fn replica(&self) -> &'static dyn Replica;
    /// The cluster that this server is a node of, with `cluster-enabled yes`.
    fn cluster(&self) -> Option<&dyn Cluster>;
    /// The configuration as it is now.
    fn config(&self) -> Arc<Config>;
    /// Changes parameters; all or nothing. What shards, connections and the allocator do because of it is left to
    /// [`Server::follow_config`]; as a transaction may call this with shards in hand, so are those that ask the system
    /// for something ([`Command::is_postponed`](crate::command::declaration::Command::is_postponed)).
    fn config_set(&self, pairs: &[(&[u8], &[u8])], is_local: bool) -> Result<(), CommandError>;
    /// Makes the configuration felt, as it is now. No shard may be in hand; the background sees to what is not done
    /// here.
    fn follow_config(&self);
    /// Makes the role felt that this server has now, where the configuration says different things for each.
    fn follow_role(&self);
    /// Writes the configuration file again.
    fn config_rewrite(&self, adding: Adding) -> Result<(), CommandError>;
    /// Saves a snapshot; an error if one is being saved already.
    fn save(&self) -> Result<Awaited, CommandError>;
    /// Saves a snapshot in the background: what is awaited is the cut. None: it begins later, as something else is
    /// under way, for which it may wait.
    fn save_in_background(&self, may_wait: bool) -> Result<Option<Awaited>, CommandError>;
    /// Saves a snapshot in the background as soon as nothing else is under way; an error if one is being saved.
    fn schedule_save(&self) -> Result<(), CommandError>;
    /// Whether this server follows a primary.
    fn is_replica(&self) -> bool;
    /// Whether the stream does not come of the primary that this server follows.
    fn lacks_primary(&self) -> bool;
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
    /// Has the append-only file's thread sleep for so many microseconds before it writes.
    fn set_aof_flush_sleep(&self, us: u64);
    /// Takes back the end that a signal asked for; whether one did.
    fn abort_shutdown(&self) -> bool;
    /// Zeroes the statistics.
    fn reset_statistics(&self);
    /// The text of INFO for these sections (lower case; empty: the default ones).
    fn info(&self, sections: &[String]) -> String;
    /// Facts about memory.
    fn memory(&self) -> MemoryReport;
    /// A log of commands, newest first, at most so many.
    fn command_log(&self, log: CommandLog, count: usize) -> Vec<SlowlogEntry>;
    /// Entries in a log of commands.
    fn command_log_len(&self, log: CommandLog) -> usize;
    /// Empties a log of commands.
    fn command_log_reset(&self, log: CommandLog);
    /// Asks the slow log for a new moment: what it is told as of now comes behind what it is told as of earlier.
    fn slowlog_moment(&self) -> SlowlogMoment;
    /// Latest and worst latency of every event.
    fn latency_latest(&self) -> Vec<LatencyEvent>;
    /// Samples of one event: Unix seconds and milliseconds of latency.
    fn latency_history(&self, event: &str) -> Vec<(u64, u64)>;
    /// A report on latency, for people.
    fn latency_doctor(&self) -> String;
    /// A drawing of an event's samples.
    fn latency_graph(&self, event: &str) -> Option<String>;
    /// A report on memory, for people.
    fn memory_doctor(&self) -> String;
    /// Forgets events (all of them when empty); says how many.
    fn latency_reset(&self, events: &[String]) -> usize;
    /// Calls and latency buckets (upper bound in µs, cumulative count) of a command, by its position in the registry.
    fn latency_histogram(&self, command: usize) -> Option<(u64, Vec<(u64, u64)>)>;
    /// CLIENT PAUSE: holds all clients back (or only their writes) until a Unix time in milliseconds. What is awaited
    /// is that all that was under way has taken effect.
    fn pause(&self, until_ms: u64, writes_only: bool) -> Awaited;
    /// CLIENT UNPAUSE.
    fn unpause(&self);
    /// DEBUG SLEEP: holds all clients back until a Unix time in milliseconds.
    fn sleep(&self, until_ms: u64);
    /// Microseconds since the epoch, read now.
    fn unix_us(&self) -> u64;
    /// Debug switches: whether due keys are deleted in the background.
    fn set_active_expire(&self, on: bool);
    /// Debug switches: whether idle clients keep what they have.
    fn pause_cron(&self, paused: bool);
    /// A text that the log should carry.
    fn log(&self, line: &str);
    /// Gives memory that the allocator holds but nothing uses back to the system.
    fn purge_memory(&self);
    /// Statistics of the allocator in its own words.
    fn allocator_report(&self) -> String;
    /// Appends to the log what commands leave that belong to no shard, and forgets it; the position behind it. See
    /// [`crate::engine::record::append`] for `is_unit`.
    fn log_records(&self, records: &mut Records, is_unit: bool) -> Option<u64>;
    /// Changes libraries of functions, and has the records of that appended if it succeeds: changes come one after the
    /// other, so that their records do. The position behind them.
    fn change_libraries(
        &self,
        records: &mut Records,
        change: &mut dyn FnMut(&dyn Scripts, LogChange<'_>) -> Result<(), CommandError>,
    ) -> Result<Option<u64>, CommandError>;
    /// How many shards there are.
    fn shard_count(&self) -> usize;
    /// Scripts and functions.
    fn scripts(&self) -> &dyn Scripts;
    /// Sets whether scripts may call what is not meant for them (a debug switch).
    fn set_allows_every_command_in_scripts(&self, on: bool);
    /// Whether scripts may call what is not meant for them (a debug switch).
    fn allows_every_command_in_scripts(&self) -> bool;
    /// Begins to look for hot keys; false if that is under way.
    fn hot_keys_start(&self, request: HotKeysRequest) -> bool;
    /// Ends it and keeps what was found; false if there is nothing to end.
    fn hot_keys_stop(&self) -> bool;
    /// Forgets what was found; false while it is under way.
    fn hot_keys_reset(&self) -> bool;
    /// What was found.
    fn hot_keys(&self) -> Option<HotKeysReport>;
    /// The hottest keys of late, whether or not anybody asked for them.
    fn hot_keys_top(&self, count: usize) -> HotKeysTop;
}

/// What is called once, when awaited work is done, with what it has to say, or has failed.
pub type Done = Box<dyn FnOnce(Result<String, CommandError>) + Send>;

/// What is answered once awaited work is done.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Told {
    /// A text that is known before: a transaction answers it at once.
    Text(&'static str),
    /// What the work has to say.
    ByWork,
    /// Nothing: the server stops.
    Nothing,
}

/// Work that others do, and a reply waits for.
#[derive(Clone)]
pub struct Awaited {
    /// Begins it, or waits for it if it has begun.
    pub begin: Arc<dyn Fn(Done) + Send + Sync>,
    /// The reply if all goes well.
    pub told: Told,
}

impl std::fmt::Debug for Awaited {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_tuple("Awaited").field(&self.told).finish()
    }
}

/// How the server is to end.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Exit {
    /// Whether a snapshot is saved before; none: if there are save points.
    pub saves: Option<bool>,
    /// Whatever fails.
    pub is_forced: bool,
    /// Without waiting for replicas.
    pub is_now: bool,
}

/// How DEBUG RELOAD goes about it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Reload {
    /// Loads what was saved before, and saves nothing now.
    pub skips_save: bool,
    /// Keeps what is there.
    pub skips_flush: bool,
    /// Keys of the snapshot replace those that are there.
    pub merges: bool,
}

/// What HOTKEYS START asks for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct HotKeysRequest {
    /// By time.
    pub cpu: bool,
    /// By bytes received and sent.
    pub net: bool,
    /// Keys to name.
    pub count: usize,
    /// When it ends by itself; 0 for never.
    pub duration_s: u64,
    /// One in so many commands is looked at.
    pub sample: u32,
}

/// What HOTKEYS GET answers.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct HotKeysReport {
    /// Whether it is under way.
    pub is_active: bool,
    /// One in so many commands was looked at.
    pub sample: u32,
    /// Time of all commands, in microseconds.
    pub all_us: u64,
    /// Bytes of all commands.
    pub all_bytes: u64,
    /// When it began.
    pub started_ms: u64,
    /// How long it took.
    pub duration_ms: u64,
    /// CPU time of the process.
    pub user_ms: u64,
    /// CPU time of the process inside the kernel, in milliseconds.
    pub system_ms: u64,
    /// The hottest keys by microseconds, if that was asked for.
    pub by_us: Option<Vec<(Vec<u8>, u64)>>,
    /// The hottest keys by bytes, if that was asked for.
    pub by_bytes: Option<Vec<(Vec<u8>, u64)>>,
}

/// The hottest keys of late: weights are scaled to all commands, and halve every five minutes.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct HotKeysTop {
    /// One in so many commands is looked at; 0: none is.
    pub interval: u32,
    /// Uses of keys by commands.
    pub commands: u64,
    /// Bytes of these commands.
    pub bytes: u64,
    /// Keys with their uses, hottest first.
    pub by_commands: Vec<(Vec<u8>, u64)>,
    /// Keys with their bytes.
    pub by_bytes: Vec<(Vec<u8>, u64)>,
}

/// When a command had run, as the slow log counts: entries come in this order, whichever thread adds its own first.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct SlowlogMoment {
    /// How often the log had been emptied.
    pub resets: u64,
    /// How many moments there had been.
    pub number: u64,
}

/// Which commands a log keeps.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CommandLog {
    /// Commands that took long: the slow log.
    Slow,
    /// Commands whose request was large.
    LargeRequest,
    /// Commands whose reply was large.
    LargeReply,
}

/// One entry of a log of commands.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SlowlogEntry {
    /// Ever-growing number.
    pub id: u64,
    /// Unix seconds.
    pub at_s: u64,
    /// Microseconds that the command ran, or bytes of its request or its reply.
    pub cost: u64,
    /// The arguments, shortened.
    pub arguments: Vec<Vec<u8>>,
    /// The client's address.
    pub address: String,
    /// The client's name.
    pub name: String,
}

/// One monitored event.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LatencyEvent {
    /// Name of the event.
    pub name: String,
    /// Unix seconds of the latest sample.
    pub at_s: u64,
    /// The latest sample.
    pub latest_ms: u64,
    /// The worst ever.
    pub max_ms: u64,
}

/// Facts about memory for MEMORY STATS and DOCTOR.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct MemoryReport {
    /// Bytes handed out by the allocator.
    pub used: u64,
    /// Bytes that hold the stream for slow replicas, beyond the backlog's size.
    pub kept_for_replicas: u64,
    /// The log's ring, and what the append-only file has not written.
    pub not_counted_log: u64,
    /// What a snapshot has encoded and its sink has not taken.
    pub not_counted_snapshot: u64,
    /// The highest `used` so far.
    pub peak: u64,
    /// `used` just after the start.
    pub startup: u64,
    /// Bytes of connections.
    pub clients: u64,
    /// Bytes of links to replicas.
    pub replicas: u64,
    /// Bytes of the stream that are kept for replicas.
    pub backlog: u64,
    /// Bytes charged to the shards.
    pub dataset: u64,
    /// Keys and keys with a deadline of each database.
    pub dbs: Vec<(u64, u64)>,
    /// Bytes that the allocator has given out.
    pub allocator_allocated: u64,
    /// Bytes in the allocator's active pages.
    pub allocator_active: u64,
    /// Bytes of the allocator that are mapped in memory.
    pub allocator_resident: u64,
    /// Resident set of the process.
    pub rss: u64,
    /// Bytes of the largest value of each type of which there is a large one, by the name of the type.
    pub largest: Vec<(&'static str, u64)>,
    /// Sources of scripts.
    pub scripts: u64,
    /// Sources of functions.
    pub functions: u64,
}
