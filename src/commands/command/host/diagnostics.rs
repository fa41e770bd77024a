//! Statistics and reports: INFO, the slow log, latency, hot keys, memory.

/// Statistics and reports: INFO, the slow log, latency, hot keys, memory.
pub trait Diagnostics {
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
    /// Gives memory that the allocator holds but nothing uses back to the system.
    fn purge_memory(&self);
    /// Statistics of the allocator in its own words.
    fn allocator_report(&self) -> String;
    /// Begins to look for hot keys; false if that is under way.
    fn hot_keys_start(&self, request: HotKeysRequest) -> bool;
    /// Ends it and keeps what was found; false if there is nothing to end.
    fn hot_keys_stop(&self) -> bool;
    /// Forgets what was found; false while it is under way.
    fn hot_keys_reset(&self) -> bool;
    /// The result of the last search.
    fn hot_keys(&self) -> Option<HotKeysReport>;
    /// The hottest keys of late, whether or not anybody asked for them.
    fn hot_keys_top(&self, count: usize) -> HotKeysTop;
}

/// Arguments of HOTKEYS START.
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

/// Result of HOTKEYS GET.
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
    /// Duration of the search in milliseconds.
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
    /// The number of times that the log had been emptied.
    pub resets: u64,
    /// The number of moments before this one.
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
    /// The Unix time in seconds at which it was that.
    pub peak_at_s: u64,
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
