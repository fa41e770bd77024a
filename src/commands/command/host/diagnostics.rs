//! Statistics and reports: INFO, the slow log, latency, hot keys, memory.

/// Statistics and reports: INFO, the slow log, latency, hot keys, memory.
pub trait Diagnostics {
    /// Resets the statistics (CONFIG RESETSTAT).
    fn reset_statistics(&self);
    /// Returns the text of INFO for these sections (lower case; empty: the default ones).
    fn info(&self, sections: &[String]) -> String;
    /// Returns the statistics for MEMORY STATS and MEMORY DOCTOR.
    fn memory(&self) -> MemoryReport;
    /// Returns the newest entries of a command log, newest first, at most `count`.
    fn command_log(&self, log: CommandLog, count: usize) -> Vec<SlowlogEntry>;
    /// Returns the number of entries in a command log.
    fn command_log_len(&self, log: CommandLog) -> usize;
    /// Empties a command log.
    fn command_log_reset(&self, log: CommandLog);
    /// Takes a new ordering stamp for the slow log: entries with it are sorted after those with earlier stamps.
    fn slowlog_moment(&self) -> SlowlogMoment;
    /// Returns the latest and worst latency of every event.
    fn latency_latest(&self) -> Vec<LatencyEvent>;
    /// Returns the samples of one event: Unix seconds and milliseconds of latency.
    fn latency_history(&self, event: &str) -> Vec<(u64, u64)>;
    /// Returns a report on latency, for people.
    fn latency_doctor(&self) -> String;
    /// Returns an ASCII graph of an event's samples.
    fn latency_graph(&self, event: &str) -> Option<String>;
    /// Returns a report on memory, for people.
    fn memory_doctor(&self) -> String;
    /// Deletes the samples of these events (of all if empty). Returns the number of events.
    fn latency_reset(&self, events: &[String]) -> usize;
    /// Returns the calls and latency buckets (upper bound in µs, cumulative count) of a command, by its index in the
    /// registry.
    fn latency_histogram(&self, command: usize) -> Option<(u64, Vec<(u64, u64)>)>;
    /// Returns memory that the allocator holds unused to the system.
    fn purge_memory(&self);
    /// Returns the statistics of the allocator in its own words.
    fn allocator_report(&self) -> String;
    /// Starts to track hot keys. Returns false if tracking is already in progress.
    fn hot_keys_start(&self, request: HotKeysRequest) -> bool;
    /// Stops tracking and keeps the result. Returns false if tracking is not in progress.
    fn hot_keys_stop(&self) -> bool;
    /// Discards the result. Returns false while tracking is in progress.
    fn hot_keys_reset(&self) -> bool;
    /// Returns the result of the last tracking.
    fn hot_keys(&self) -> Option<HotKeysReport>;
    /// Returns the recently hottest keys, regardless of HOTKEYS START.
    fn hot_keys_top(&self, count: usize) -> HotKeysTop;
}

/// Arguments of HOTKEYS START.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct HotKeysRequest {
    /// Track by CPU time.
    pub cpu: bool,
    /// Track by bytes received and sent.
    pub net: bool,
    /// Number of keys to report.
    pub count: usize,
    /// Seconds after which tracking ends by itself; 0 for never.
    pub duration_s: u64,
    /// One of this many commands is examined.
    pub sample: u32,
}

/// Result of HOTKEYS GET.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct HotKeysReport {
    /// Whether tracking is in progress.
    pub is_active: bool,
    /// One of this many commands was examined.
    pub sample: u32,
    /// Time of all commands, in microseconds.
    pub all_us: u64,
    /// Bytes of all commands.
    pub all_bytes: u64,
    /// Start of tracking, in Unix milliseconds.
    pub started_ms: u64,
    /// Duration of tracking in milliseconds.
    pub duration_ms: u64,
    /// User CPU time of the process, in milliseconds.
    pub user_ms: u64,
    /// System CPU time of the process, in milliseconds.
    pub system_ms: u64,
    /// The hottest keys by microseconds, if requested.
    pub by_us: Option<Vec<(Vec<u8>, u64)>>,
    /// The hottest keys by bytes, if requested.
    pub by_bytes: Option<Vec<(Vec<u8>, u64)>>,
}

/// The recently hottest keys: weights are scaled up to all commands, and halve every five minutes.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct HotKeysTop {
    /// One of this many commands is examined; 0: none is.
    pub interval: u32,
    /// Uses of keys by commands.
    pub commands: u64,
    /// Bytes received and sent by these commands.
    pub bytes: u64,
    /// Keys with their uses, hottest first.
    pub by_commands: Vec<(Vec<u8>, u64)>,
    /// Keys with their bytes.
    pub by_bytes: Vec<(Vec<u8>, u64)>,
    /// Keys that threads have copies of (`hot-copies`), with the number of threads.
    pub copied: Vec<(Vec<u8>, u64)>,
}

/// Stamp of a command's completion, for the order of the slow log: entries are in this order, whichever thread adds
/// its own first.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct SlowlogMoment {
    /// Number of times that the log had been emptied before the stamp.
    pub resets: u64,
    /// Number of earlier stamps.
    pub number: u64,
}

/// The command log, by the kind of commands that it records.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CommandLog {
    /// Slow commands: the slow log.
    Slow,
    /// Commands with a large request.
    LargeRequest,
    /// Commands with a large reply.
    LargeReply,
}

/// One entry of a command log.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SlowlogEntry {
    /// Number of the entry; later entries have larger ones.
    pub id: u64,
    /// Time of the command, in Unix seconds.
    pub at_s: u64,
    /// Microseconds that the command ran, or bytes of its request or reply.
    pub cost: u64,
    /// The arguments, shortened.
    pub arguments: Vec<Vec<u8>>,
    /// Address of the client.
    pub address: String,
    /// Name of the client (CLIENT SETNAME).
    pub name: String,
}

/// The latencies of one monitored event.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LatencyEvent {
    /// Name of the event.
    pub name: String,
    /// Time of the latest sample, in Unix seconds.
    pub at_s: u64,
    /// The latest sample, in milliseconds.
    pub latest_ms: u64,
    /// The highest sample so far, in milliseconds.
    pub max_ms: u64,
}

/// Memory statistics for MEMORY STATS and DOCTOR.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct MemoryReport {
    /// Bytes allocated from the allocator.
    pub used: u64,
    /// Bytes of the replication stream kept for slow replicas, beyond the backlog's size.
    pub kept_for_replicas: u64,
    /// Bytes of the log's ring, and of records that the append-only file has not written yet.
    pub not_counted_log: u64,
    /// Bytes that a snapshot has encoded and its sink has not taken yet.
    pub not_counted_snapshot: u64,
    /// The highest `used` so far.
    pub peak: u64,
    /// The Unix time in seconds of that peak.
    pub peak_at_s: u64,
    /// The value of `used` just after the start.
    pub startup: u64,
    /// Bytes used by clients' connections.
    pub clients: u64,
    /// Bytes of links to replicas.
    pub replicas: u64,
    /// Bytes of the stream kept for replicas.
    pub backlog: u64,
    /// Bytes charged to the shards.
    pub dataset: u64,
    /// Keys and keys with a deadline of each database.
    pub dbs: Vec<(u64, u64)>,
    /// Bytes that the allocator has handed out.
    pub allocator_allocated: u64,
    /// Bytes in the allocator's active pages.
    pub allocator_active: u64,
    /// Bytes of the allocator that are resident in memory.
    pub allocator_resident: u64,
    /// Resident set of the process, in bytes.
    pub rss: u64,
    /// Bytes of the largest value of each type that has a large one, by the name of the type.
    pub largest: Vec<(&'static str, u64)>,
    /// Bytes of the sources of scripts.
    pub scripts: u64,
    /// Bytes of the sources of functions.
    pub functions: u64,
}
