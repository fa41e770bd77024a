//! The table of parameters and the struct that they fill: each row is one directive and one field.
//!
//! Names, defaults, bounds and mutability are those of Redis 7.2 (and of 7.4 for its additions), because files and
//! clients rely on them; the descriptions are this server's own. Rows are in the order in which `--help` and CONFIG
//! GET list them.

use std::path::PathBuf;

use crate::config::parameter::{IMMUTABLE, MUTABLE, Parameter, ParameterKind, Unit};
use crate::config::seeds::{self, Seed};
use crate::config::shares::{self, Share};
use crate::config::values::checks;
use crate::config::values::{
    self, AclPubsubDefault, Appendfsync, ClusterMode, Coded, DisklessLoad, EndpointType,
    EventClasses, LoadErrors, LogFormat, LogLevel, LogTimestampFormat, MaxmemoryPolicy,
    OomScoreAdj, OutputLimits, PropagationError, Protected, RdbCompression, ReplCompression,
    Runtime, SanitizeDumpPayload, SavePoint, ShutdownOptions, Supervised, SyslogFacility,
    TlsAuthClients, TlsAuthClientsUser, ZsetIndex,
};

/// `kind!(type …)` is the type of a field, `kind!(row field …)` the kind of its row.
macro_rules! kind {
    (type flag($($rest:tt)*)) => { bool };
    (type number($number:ty, $($rest:tt)*)) => { $number };
    (type text($($rest:tt)*)) => { String };
    (type choice($choice:ty, $($rest:tt)*)) => { $choice };
    (type words($choice:ty, $($rest:tt)*)) => { $choice };
    (type special($special:ty, $($rest:tt)*)) => { $special };

    (row $field:ident flag($default:expr)) => { kind!(row $field flag($default, nothing_follows)) };
    (row $field:ident flag($default:expr, $then:expr)) => {
        ParameterKind::Flag {
            default: $default,
            read: |config| config.$field,
            write: |config, value| {
                config.$field = value;
                $then(config);
            },
        }
    };
    (row $field:ident number($number:ty, $default:expr, $lower:expr, $upper:expr)) => {
        kind!(row $field number($number, $default, $lower, $upper, Unit::Plain))
    };
    (row $field:ident number($number:ty, $default:expr, $lower:expr, $upper:expr, $unit:expr)) => {
        kind!(row $field number($number, $default, $lower, $upper, $unit, nothing_follows))
    };
    (row $field:ident number($number:ty, $default:expr, $lower:expr, $upper:expr, $unit:expr, $then:expr)) => {
        ParameterKind::Number {
            default: $default as i128,
            lower: $lower as i128,
            upper: $upper as i128,
            unit: $unit,
            read: |config| config.$field as i128,
            write: |config, value| {
                config.$field = value as $number;
                $then(config);
            },
        }
    };
    (row $field:ident text($default:expr)) => {
        kind!(row $field text($default, checks::any_text))
    };
    (row $field:ident text($default:expr, $check:expr)) => {
        ParameterKind::Text {
            default: $default,
            check: $check,
            read: |config| &config.$field,
            write: |config, value| config.$field = value,
        }
    };
    (row $field:ident choice($choice:ty, $default:expr)) => {
        ParameterKind::Choice {
            names: <$choice>::NAMES,
            many: false,
            default: $default as u32,
            check: checks::any_code,
            read: |config| config.$field.code(),
            write: |config, code| config.$field = <$choice>::decode(code),
        }
    };
    (row $field:ident words($choice:ty, $default:expr, $check:expr)) => {
        ParameterKind::Choice {
            names: <$choice>::NAMES,
            many: true,
            default: $default,
            check: $check,
            read: |config| config.$field.code(),
            write: |config, code| config.$field = <$choice>::decode(code),
        }
    };
    (row $field:ident special($special:ty, $functions:expr)) => { ParameterKind::Special($functions) };
}

macro_rules! parameters {
    ($($field:ident: $kind:ident $values:tt, $name:literal, $traits:expr, $summary:literal;)*) => {
        /// The configuration: a field for each row of [`PARAMETERS`], and directives that only files can contain.
        #[derive(Debug, Clone, PartialEq)]
        pub struct Config {
            $(#[doc = concat!("`", $name, "`: ", $summary)] pub $field: kind!(type $kind $values),)*
            /// `rename-command`: pairs of old and new name; an empty new name removes the command.
            pub renamed_commands: Vec<(String, String)>,
            /// `role` lines: pairs of name and rules.
            pub roles: Vec<(String, Vec<String>)>,
            /// `user` lines: pairs of name and rules.
            pub users: Vec<(String, Vec<String>)>,
            /// The `role` and `user` lines for a rewritten file, if they are not kept unchanged.
            pub user_lines: Option<Vec<String>>,
            /// Received bytes from which on each command of a turn may be noteworthy for its size. Follows from
            /// `commandlog-request-larger-than` and `size-tracking`, so that a turn reads only this.
            pub noted_request_bytes: usize,
        }

        /// Every parameter.
        pub static PARAMETERS: &[Parameter] = &[$(Parameter {
            name: $name,
            kind: kind!(row $field $kind $values),
            traits: $traits,
            summary: $summary,
        }),*];

        impl Default for Config {
            fn default() -> Self {
                let mut config = Self {
                    $($field: Default::default(),)*
                    renamed_commands: Vec::new(),
                    roles: Vec::new(),
                    users: Vec::new(),
                    user_lines: None,
                    noted_request_bytes: 0,
                };
                for parameter in PARAMETERS {
                    parameter.reset(&mut config);
                }
                config
            }
        }
    };
}

/// Most directives determine nothing else in the configuration.
fn nothing_follows(_: &mut Config) {}

const INT_MAX: i128 = i32::MAX as i128;
const INT_MIN: i128 = i32::MIN as i128;
const UINT_MAX: i128 = u32::MAX as i128;
const LONG_MAX: i128 = i64::MAX as i128;
const ULONG_MAX: i128 = u64::MAX as i128;
const MEMORY: Unit = Unit::Memory;

const NO_DH: &str = "key exchange uses elliptic curves only, which need no parameters";
const OTHER_DESIGN: &str = "it tunes something that this server does not have";

parameters! {
    // Network
    bind: special(Vec<String>, values::BIND), "bind", MUTABLE.asks_system(),
        "Addresses to listen on; an address with a leading minus sign may be unavailable.";
    port: number(u16, 6379, 0, 65535), "port", MUTABLE.asks_system(), "TCP port; 0: no TCP port.";
    protected_mode: flag(true), "protected-mode", MUTABLE,
        "Whether only local clients are served while the default user has no password.";
    unixsocket: text(""), "unixsocket", IMMUTABLE, "Path of the unix socket; empty: no socket.";
    unixsocketperm: number(u32, 0, 0, 0o777, Unit::Octal), "unixsocketperm", IMMUTABLE,
        "Permissions of the unix socket; 0: as in file-mode.";
    file_mode: number(u32, 0o600, 0o400, 0o777, Unit::Octal), "file-mode", IMMUTABLE.since("basalt"),
        "Permissions of new data and log files; new directories also get the execute bits.";
    tcp_backlog: number(u32, 511, 0, INT_MAX), "tcp-backlog", IMMUTABLE,
        "Connections that may wait to be accepted.";
    tcp_keepalive: number(u32, 300, 0, INT_MAX), "tcp-keepalive", MUTABLE,
        "Seconds without data before TCP keepalive probes are sent; 0: never.";
    timeout: number(u32, 0, 0, INT_MAX), "timeout", MUTABLE,
        "Seconds after which an idle client is disconnected; 0: never.";
    maxclients: number(u32, 10000, 1, UINT_MAX), "maxclients", MUTABLE.asks_system(),
        "Maximum number of connected clients.";
    auth_timeout: number(u32, 60, 0, INT_MAX), "auth-timeout", MUTABLE.since("basalt"),
        "Seconds within which a client must authenticate if a password is required; 0: no limit.";
    max_new_connections_per_cycle: number(u32, 10, 1, 1000), "max-new-connections-per-cycle",
        MUTABLE.since("7.4"), "Maximum number of connections that an event loop accepts, or begins, in one turn.";
    max_new_tls_connections_per_cycle: number(u32, 1, 1, 1000), "max-new-tls-connections-per-cycle",
        MUTABLE.since("7.4"), "Maximum number of TLS handshakes that an event loop begins in one turn.";
    bind_source_addr: text(""), "bind-source-addr", MUTABLE,
        "Source address of connections to other servers.";
    socket_mark_id: number(u32, 0, 0, UINT_MAX), "socket-mark-id",
        IMMUTABLE.warned("sockets are not marked"), "Mark set on the listening sockets.";
    proto_max_reply_len: number(u64, 1 << 30, 1 << 20, LONG_MAX, MEMORY), "proto-max-reply-len",
        MUTABLE.since("basalt"), "Maximum reply size of one command, transaction or script; longer replies become an \
                                  error.";
    proto_max_bulk_len: number(u64, 512 << 20, 1 << 20, LONG_MAX, MEMORY), "proto-max-bulk-len", MUTABLE,
        "Maximum size of a single argument.";
    client_query_buffer_limit: number(u64, 1 << 30, 1 << 20, LONG_MAX, MEMORY),
        "client-query-buffer-limit", MUTABLE, "Maximum unprocessed input of one client.";
    client_output_buffer_limit: special(OutputLimits, values::OUTPUT_LIMITS), "client-output-buffer-limit",
        MUTABLE, "Maximum unsent output of each class of clients: class, hard limit, soft limit, seconds.";

    client_output_timeout: number(u32, 0, 0, INT_MAX), "client-output-timeout", MUTABLE.since("basalt"),
        "Seconds after which a client is closed that accepts nothing of its unsent output; 0: never.";

    // Threads and shards
    shards: number(u32, 0, 0, 1024), "shards", IMMUTABLE.since("basalt"),
        "Shards of the keyspace, rounded up to a power of two; 0: eight per core, at least 64.";
    threads: number(u32, 0, 0, 1024), "threads", IMMUTABLE.since("basalt"),
        "Threads that serve connections; 0: one per core.";
    runtime: choice(Runtime, Runtime::Auto), "runtime", IMMUTABLE.since("basalt"),
        "One runtime for all threads (shared), or one each (per-core); auto: per-core from four threads on.";
    overload_p99: number(u32, 0, 0, 60_000), "overload-p99", MUTABLE.since("basalt"),
        "Milliseconds within which 99 of 100 requests must begin; beyond, expensive commands are refused; 0: never.";
    io_threads: number(u32, 1, 1, 128), "io-threads",
        IMMUTABLE.warned("every thread does its own input and output: use `threads`"),
        "Number of I/O threads of Redis.";
    io_threads_do_reads: flag(false), "io-threads-do-reads", IMMUTABLE.no_effect(OTHER_DESIGN),
        "Whether the I/O threads of Redis also read.";

    // General
    daemonize: flag(false), "daemonize",
        IMMUTABLE, "Whether the server runs in the background once clients can connect.";
    supervised: choice(Supervised, Supervised::No), "supervised", IMMUTABLE,
        "Service manager to notify; auto: detected from the environment.";
    pidfile: text(""), "pidfile", IMMUTABLE,
        "File that contains the process ID while the server runs; always written with daemonize.";
    loglevel: choice(LogLevel, LogLevel::Notice), "loglevel", MUTABLE, "Minimum level of log messages.";
    logfile: text(""), "logfile", IMMUTABLE, "Log file; empty: standard output.";
    log_format: choice(LogFormat, LogFormat::Legacy), "log-format", MUTABLE.since("8.1"),
        "Format of log lines: that of Redis, logfmt or JSON.";
    log_timestamp_format: choice(LogTimestampFormat, LogTimestampFormat::Legacy), "log-timestamp-format",
        MUTABLE.since("8.1"), "Format of log timestamps: that of Redis, ISO 8601 or Unix milliseconds.";
    syslog_enabled: flag(false), "syslog-enabled", IMMUTABLE, "Whether to log to syslog too.";
    syslog_ident: text("redis"), "syslog-ident", IMMUTABLE, "Program name in syslog.";
    syslog_facility: choice(SyslogFacility, SyslogFacility::Local0), "syslog-facility", IMMUTABLE,
        "Syslog facility.";
    crash_log_enabled: flag(true), "crash-log-enabled", MUTABLE,
        "Whether crash reports are logged.";
    crash_memcheck_enabled: flag(true), "crash-memcheck-enabled", MUTABLE.no_effect(OTHER_DESIGN),
        "Whether memory is tested after a crash.";
    use_exit_on_panic: flag(false), "use-exit-on-panic", MUTABLE.since("7.2").hidden().no_effect(OTHER_DESIGN),
        "Whether a failed assertion exits rather than aborts.";
    databases: number(u32, 16, 1, INT_MAX), "databases", IMMUTABLE, "Number of databases.";
    always_show_logo: flag(false), "always-show-logo", IMMUTABLE.no_effect("there is no logo"),
        "Whether a logo is logged at startup.";
    hide_user_data_from_log: flag(false), "hide-user-data-from-log",
        MUTABLE.since("7.4"), "Whether the log hides keys, arguments and client names, also where replies quote them.";
    set_proc_title: flag(true), "set-proc-title", IMMUTABLE,
        "Whether the process title is set.";
    proc_title_template: text("{title} {listen-addr} {server-mode}", checks::title_template),
        "proc-title-template", MUTABLE.asks_system(), "Template of the process title that `ps` shows.";
    version_override: text("", checks::version), "version-override", MUTABLE.since("basalt"),
        "Redis version that INFO and HELLO report; empty: the real one.";
    locale_collate: text(""), "locale-collate",
        MUTABLE.since("7.2").warned("texts are compared as bytes"), "Locale in which texts are compared.";
    ignore_warnings: text(""), "ignore-warnings", MUTABLE.no_effect(OTHER_DESIGN),
        "Warnings about the system to leave out.";
    disable_thp: flag(false), "disable-thp", IMMUTABLE,
        "Whether transparent huge pages are disabled for the process.";
    oom_score_adj: choice(OomScoreAdj, OomScoreAdj::No), "oom-score-adj",
        MUTABLE.asks_system(), "Whether the kernel's out-of-memory score is adjusted.";
    oom_score_adj_values: special([i32; 3], values::OOM_VALUES), "oom-score-adj-values",
        MUTABLE.asks_system(), "Scores of a master, a replica and a background child.";
    server_cpulist: text(""), "server_cpulist",
        IMMUTABLE.alias("server-cpulist").warned("threads are not pinned: use taskset or a cpuset"),
        "Cores for serving threads.";
    bio_cpulist: text(""), "bio_cpulist",
        IMMUTABLE.alias("bio-cpulist").warned("threads are not pinned: use taskset or a cpuset"),
        "Cores for background threads.";
    aof_rewrite_cpulist: text(""), "aof_rewrite_cpulist",
        IMMUTABLE.alias("aof-rewrite-cpulist").no_effect("there is no such child"),
        "Cores for the child that rewrites the append-only file.";
    bgsave_cpulist: text(""), "bgsave_cpulist",
        IMMUTABLE.alias("bgsave-cpulist").no_effect("there is no such child"),
        "Cores for the child that saves.";
    hz: number(u32, 10, 0, INT_MAX), "hz", MUTABLE,
        "Rounds of background work per second, from 1 to 500; other values are clamped.";
    dynamic_hz: flag(true), "dynamic-hz", MUTABLE.no_effect(OTHER_DESIGN),
        "Whether the rounds of background work increase with the number of clients.";
    activerehashing: flag(true), "activerehashing",
        MUTABLE.no_effect("tables grow a segment at a time and never rehash"),
        "Whether tables are rehashed in the background.";
    shutdown_timeout: number(u32, 10, 0, INT_MAX), "shutdown-timeout", MUTABLE,
        "Seconds that a shutdown waits for replicas.";
    shutdown_on_sigint: words(ShutdownOptions, 0, checks::shutdown_options), "shutdown-on-sigint",
        MUTABLE, "Options of the shutdown on SIGINT.";
    shutdown_on_sigterm: words(ShutdownOptions, 0, checks::shutdown_options), "shutdown-on-sigterm",
        MUTABLE, "Options of the shutdown on SIGTERM.";
    watchdog_period: number(u32, 0, 0, INT_MAX), "watchdog-period", MUTABLE.hidden(),
        "Milliseconds for which a shard may be busy before stack traces of the threads that hold shards are logged; \
         0: never.";

    // Access control
    requirepass: text(""), "requirepass", MUTABLE.sensitive(),
        "Password of the default user; empty: no password.";
    aclfile: text(""), "aclfile", IMMUTABLE,
        "File of ACL users.";
    acl_pubsub_default: choice(AclPubsubDefault, AclPubsubDefault::Resetchannels), "acl-pubsub-default",
        MUTABLE, "Pub/sub channels that a new user may access.";
    acllog_max_len: number(u64, 128, 0, LONG_MAX), "acllog-max-len", MUTABLE,
        "Maximum number of entries of ACL LOG.";
    enable_protected_configs: choice(Protected, Protected::No), "enable-protected-configs", IMMUTABLE,
        "Which clients may change protected directives such as `dir` and `dbfilename`.";
    enable_debug_command: choice(Protected, Protected::No), "enable-debug-command", IMMUTABLE,
        "Which clients may run DEBUG.";
    enable_module_command: choice(Protected, Protected::No), "enable-module-command",
        IMMUTABLE, "Which clients may run MODULE LOAD and UNLOAD; modules cannot be loaded in any case.";

    // Memory
    maxmemory: number(u64, 0, 0, ULONG_MAX, Unit::MemoryOfMachine), "maxmemory", MUTABLE,
        "Memory limit, in bytes or percent of the memory of this machine or container; 0: no limit.";
    maxmemory_db: special(Vec<Share>, shares::SHARES), "maxmemory-db", MUTABLE.since("basalt"),
        "Memory shares of databases: database number and bytes or percent of maxmemory; a database over its share \
         evicts from itself first.";
    maxmemory_policy: choice(MaxmemoryPolicy, MaxmemoryPolicy::Noeviction), "maxmemory-policy",
        MUTABLE, "Eviction policy when maxmemory is reached.";
    maxmemory_size_rule: flag(true), "maxmemory-size-rule", MUTABLE.since("basalt"),
        "Whether the LRU and LFU policies evict large values before small ones.";
    maxmemory_compact: flag(true), "maxmemory-compact", MUTABLE.since("basalt"),
        "Whether memory is defragmented when the allocator holds much more than maxmemory.";
    maxmemory_samples: number(u32, 5, 1, INT_MAX), "maxmemory-samples", MUTABLE.no_effect(OTHER_DESIGN),
        "Number of keys that Redis samples to find one to evict.";
    maxmemory_eviction_tenacity: number(u32, 10, 0, 100), "maxmemory-eviction-tenacity",
        MUTABLE.no_effect(OTHER_DESIGN), "How long eviction may delay a command (0 to 100).";
    maxmemory_clients: number(i64, -25, -100, LONG_MAX, Unit::MemoryOrPercent), "maxmemory-clients",
        MUTABLE, "Maximum memory of all clients, in bytes or (negative here) percent of maxmemory; 0: no limit.";
    lfu_log_factor: number(u32, 10, 0, INT_MAX), "lfu-log-factor", MUTABLE,
        "How slowly the counter of OBJECT FREQ grows.";
    lfu_decay_time: number(u32, 1, 0, INT_MAX), "lfu-decay-time", MUTABLE.no_effect(OTHER_DESIGN),
        "Minutes after which the access counter decays.";
    active_expire_effort: number(u32, 1, 1, 10), "active-expire-effort", MUTABLE.no_effect(OTHER_DESIGN),
        "Effort that Redis spends on finding expired keys.";
    lazyfree_lazy_eviction: flag(false), "lazyfree-lazy-eviction",
        MUTABLE.no_effect("large values are always freed in slices"), "Whether evicted values are freed in the \
                                                                       background.";
    lazyfree_lazy_expire: flag(false), "lazyfree-lazy-expire",
        MUTABLE.no_effect("large values are always freed in slices"), "Whether expired values are freed in the \
                                                                       background.";
    lazyfree_lazy_server_del: flag(false), "lazyfree-lazy-server-del",
        MUTABLE.no_effect("large values are always freed in slices"),
        "Whether overwritten values are freed in the background.";
    lazyfree_lazy_user_del: flag(false), "lazyfree-lazy-user-del",
        MUTABLE.no_effect("large values are always freed in slices"), "Whether DEL frees values in the background.";
    lazyfree_lazy_user_flush: flag(false), "lazyfree-lazy-user-flush", MUTABLE,
        "Whether FLUSHALL and FLUSHDB without ASYNC or SYNC free values in the background.";
    jemalloc_bg_thread: flag(true), "jemalloc-bg-thread", MUTABLE.no_effect(OTHER_DESIGN),
        "Whether the allocator returns memory in the background.";
    activedefrag: flag(false), "activedefrag", MUTABLE,
        "Whether fragmented memory is compacted.";
    active_defrag_ignore_bytes: number(u64, 100 << 20, 1, LONG_MAX, MEMORY), "active-defrag-ignore-bytes",
        MUTABLE, "Fragmentation in bytes below which nothing is compacted.";
    active_defrag_threshold_lower: number(u32, 10, 0, 1000), "active-defrag-threshold-lower",
        MUTABLE, "Percent of fragmentation at which compaction starts.";
    active_defrag_threshold_upper: number(u32, 100, 0, 1000), "active-defrag-threshold-upper",
        MUTABLE, "Percent of fragmentation at which compaction uses the most CPU.";
    active_defrag_cycle_min: number(u32, 1, 1, 99), "active-defrag-cycle-min", MUTABLE,
        "Minimum percent of a CPU core for compaction.";
    active_defrag_cycle_max: number(u32, 25, 1, 99), "active-defrag-cycle-max", MUTABLE,
        "Maximum percent of a CPU core for compaction.";
    active_defrag_max_scan_fields: number(u64, 1000, 1, LONG_MAX), "active-defrag-max-scan-fields",
        MUTABLE.no_effect("a fixed number of elements is scanned at once"),
        "Elements of a collection scanned at once.";
    tracking_table_max_keys: number(u64, 1_000_000, 0, LONG_MAX), "tracking-table-max-keys",
        MUTABLE, "Maximum number of keys tracked for client-side caching.";

    // Values
    hash_max_listpack_entries: number(u64, 512, 0, LONG_MAX), "hash-max-listpack-entries",
        MUTABLE.alias("hash-max-ziplist-entries"), "Maximum number of fields of a hash in the compact encoding.";
    hash_max_listpack_value: number(u64, 64, 0, LONG_MAX, MEMORY), "hash-max-listpack-value",
        MUTABLE.alias("hash-max-ziplist-value"), "Maximum bytes of a field or value of a hash in the compact \
                                                  encoding.";
    list_max_listpack_size: number(i32, -2, INT_MIN, INT_MAX), "list-max-listpack-size",
        MUTABLE.alias("list-max-ziplist-size"),
        "Elements in one node of a list; -1 to -5 for nodes of 4 to 64 KiB.";
    list_compress_depth: number(u32, 0, 0, INT_MAX), "list-compress-depth", MUTABLE,
        "Nodes at either end of a list that are not compressed; 0 compresses none.";
    set_max_intset_entries: number(u64, 512, 0, LONG_MAX), "set-max-intset-entries", MUTABLE,
        "Maximum number of members of a set of integers in the integer encoding.";
    set_max_listpack_entries: number(u64, 128, 0, LONG_MAX), "set-max-listpack-entries",
        MUTABLE.since("7.2"), "Maximum number of members of a set in the compact encoding.";
    set_max_listpack_value: number(u64, 64, 0, LONG_MAX), "set-max-listpack-value", MUTABLE.since("7.2"),
        "Maximum bytes of a member of a set in the compact encoding.";
    zset_max_listpack_entries: number(u64, 128, 0, LONG_MAX), "zset-max-listpack-entries",
        MUTABLE.alias("zset-max-ziplist-entries"), "Maximum number of members of a sorted set in the compact \
                                                    encoding.";
    zset_max_listpack_value: number(u64, 64, 0, LONG_MAX, MEMORY), "zset-max-listpack-value",
        MUTABLE.alias("zset-max-ziplist-value"), "Maximum bytes of a member of a sorted set in the compact encoding.";
    zset_index: choice(ZsetIndex, ZsetIndex::Btree), "zset-index", IMMUTABLE.since("basalt"),
        "The ordered index of large sorted sets.";
    hll_sparse_max_bytes: number(u64, 3000, 0, LONG_MAX, MEMORY), "hll-sparse-max-bytes", MUTABLE,
        "Maximum bytes of a HyperLogLog in the sparse encoding.";
    bf_error_rate: special(f64, values::BF_ERROR_RATE), "bf-error-rate", MUTABLE.since("8.0"),
        "Error rate of Bloom filters that BF.ADD creates.";
    bf_initial_size: number(i64, 100, 1, 1 << 30), "bf-initial-size", MUTABLE.since("8.0"),
        "Capacity of Bloom filters that BF.ADD creates.";
    bf_expansion_factor: number(i64, 2, 0, 32_768), "bf-expansion-factor", MUTABLE.since("8.0"),
        "Capacity of the next layer of a Bloom filter, as a multiple of the last one; 0: no next layer.";
    cf_bucket_size: number(i64, 2, 1, 255), "cf-bucket-size", MUTABLE.since("8.0"),
        "Elements per bucket of a cuckoo filter.";
    cf_initial_size: number(i64, 1024, 2, 1 << 30), "cf-initial-size", MUTABLE.since("8.0"),
        "Capacity of cuckoo filters that CF.ADD creates.";
    cf_max_iterations: number(i64, 20, 1, 65_535), "cf-max-iterations", MUTABLE.since("8.0"),
        "Attempts to move elements of a cuckoo filter before it counts as full.";
    cf_expansion_factor: number(i64, 1, 0, 32_768), "cf-expansion-factor", MUTABLE.since("8.0"),
        "Size of the next layer of a cuckoo filter, as a multiple of the last one; 0: no next layer.";
    cf_max_expansions: number(i64, 32, 1, 65_536), "cf-max-expansions", MUTABLE.since("8.0"),
        "Maximum number of layers of a cuckoo filter.";
    stream_node_max_bytes: number(u64, 4096, 0, LONG_MAX, MEMORY), "stream-node-max-bytes", MUTABLE,
        "Maximum bytes of a stream node; 0: no limit.";
    stream_node_max_entries: number(i64, 100, 0, LONG_MAX), "stream-node-max-entries", MUTABLE,
        "Maximum entries of a stream node; 0: no limit.";
    stream_idmp_duration: number(u64, 100, 1, 86_400), "stream-idmp-duration", MUTABLE.since("8.6"),
        "Default number of seconds that a stream remembers the entries of a producer (XCFGSET).";
    stream_idmp_maxsize: number(u64, 100, 1, 10_000), "stream-idmp-maxsize", MUTABLE.since("8.6"),
        "Default maximum number of entries that a stream remembers per producer (XCFGSET).";
    sanitize_dump_payload: choice(SanitizeDumpPayload, SanitizeDumpPayload::No), "sanitize-dump-payload",
        MUTABLE.no_effect("serialized values are always fully checked"),
        "Which serialized values are fully checked.";

    // Monitoring
    slowlog_log_slower_than: number(i64, 10_000, -1, LONG_MAX), "slowlog-log-slower-than",
        MUTABLE.alias("commandlog-execution-slower-than"),
        "Microseconds from which a command is logged as slow; -1: none, 0: all.";
    slowlog_max_len: number(u64, 128, 0, LONG_MAX), "slowlog-max-len",
        MUTABLE.alias("commandlog-slow-execution-max-len"),
        "Maximum number of entries of the slow log.";
    commandlog_request_larger_than: number(i64, 1_048_576, -1, LONG_MAX, Unit::Plain, Config::follow_sizes),
        "commandlog-request-larger-than",
        MUTABLE.since("8.1"), "Bytes from which a request is logged as large; -1: none, 0: all.";
    commandlog_large_request_max_len: number(u64, 128, 0, LONG_MAX), "commandlog-large-request-max-len",
        MUTABLE.since("8.1"), "Maximum number of large requests in the log.";
    commandlog_reply_larger_than: number(i64, 1_048_576, -1, LONG_MAX), "commandlog-reply-larger-than",
        MUTABLE.since("8.1"), "Bytes from which a reply is logged as large; -1: none, 0: all.";
    commandlog_large_reply_max_len: number(u64, 128, 0, LONG_MAX), "commandlog-large-reply-max-len",
        MUTABLE.since("8.1"), "Maximum number of large replies in the log.";
    latency_monitor_threshold: number(i64, 0, 0, LONG_MAX), "latency-monitor-threshold", MUTABLE,
        "Milliseconds from which the latency monitor records an event; 0: off.";
    size_tracking: flag(false, Config::follow_sizes), "size-tracking", MUTABLE.since("basalt"),
        "Whether sizes of requests and replies are counted by command (INFO sizestats).";
    latency_tracking: flag(true), "latency-tracking", MUTABLE,
        "Whether a latency histogram is kept for each command.";
    latency_tracking_info_percentiles: special(Vec<f64>, values::PERCENTILES),
        "latency-tracking-info-percentiles", MUTABLE, "Percentiles that INFO latencystats shows.";
    notify_keyspace_events: special(EventClasses, values::EVENTS), "notify-keyspace-events",
        MUTABLE, "Classes of keyspace events that are published.";
    hot_keys_sample: number(u32, 256, 0, 1_000_000), "hot-keys-sample", MUTABLE.since("basalt"),
        "Sampling rate for hot keys: one in this many commands; 0: off.";
    hot_copies: flag(true), "hot-copies", MUTABLE.since("basalt"),
        "Whether threads answer reads of hot keys from copies of their own.";
    prefix_delimiter: text(":"), "prefix-delimiter", MUTABLE.since("basalt"),
        "Delimiter between the parts of a key, for INFO prefixes; empty: keys have no prefixes.";
    prefix_depth: number(u32, 1, 1, 64), "prefix-depth", MUTABLE.since("basalt"),
        "Number of parts of a key that form its prefix, for INFO prefixes.";
    miss_ratio_curve: flag(true), "miss-ratio-curve", MUTABLE.since("basalt"),
        "Whether hit ratios with other memory sizes are estimated.";
    metrics_port: number(u16, 9121, 0, 65535), "metrics-port", IMMUTABLE.since("basalt"),
        "TCP port of metrics, health checks and the console; 0: off.";
    metrics_bind: special(Vec<String>, values::METRICS_BIND), "metrics-bind", IMMUTABLE.since("basalt"),
        "Addresses of the metrics port, in the syntax of `bind`.";
    metrics_tls: flag(false), "metrics-tls", IMMUTABLE.since("basalt"),
        "Whether the metrics port uses TLS, with the certificate of tls-cert-file.";
    metrics_auth: text("", checks::metrics_auth), "metrics-auth", MUTABLE.sensitive().since("basalt"),
        "Credentials for /metrics: user:password, or user:# and the SHA-256 in hexadecimal digits; empty: none \
         needed.";
    metrics_key_names: flag(false), "metrics-key-names", MUTABLE.since("basalt"),
        "Whether /metrics and the console show names of keys and clients to everybody.";
    console: flag(true), "console", MUTABLE.since("basalt"),
        "Whether the metrics port serves the console and its API.";
    console_hosts: text("", checks::host_names), "console-hosts", MUTABLE.since("basalt"),
        "Host names under which browsers may open the console, besides localhost, addresses and the host name of the \
         machine.";

    // Scripts
    busy_reply_threshold: number(i64, 5000, 0, LONG_MAX), "busy-reply-threshold",
        MUTABLE.alias("lua-time-limit"),
        "Milliseconds after which a running script makes other commands fail with BUSY.";

    // Snapshots and the append-only file
    dir: special(PathBuf, values::DIR), "dir",
        MUTABLE.protected().denied_while_loading().asks_system(),
        "Working directory, where data files are stored.";
    save: special(Vec<SavePoint>, values::SAVE), "save", MUTABLE,
        "Save points: pairs of seconds and minimum number of changes.";
    dbfilename: text("dump.rdb", checks::snapshot_name), "dbfilename",
        MUTABLE.protected(), "File name of the snapshot.";
    rdbcompression: choice(RdbCompression, RdbCompression::Strings), "rdbcompression", MUTABLE,
        "Whether long strings are compressed in snapshots and in replies to DUMP (yes), or whole snapshot files (lz4, \
         zstd).";
    rdbchecksum: flag(true), "rdbchecksum", IMMUTABLE,
        "Whether a snapshot ends with a checksum.";
    rdb_skip_unknown_modules: flag(false), "rdb-skip-unknown-modules", MUTABLE.since("basalt"),
        "Whether values of modules that do not exist here are left out when a snapshot is loaded; if not, they are an \
         error.";
    rdb_del_sync_files: flag(false), "rdb-del-sync-files", MUTABLE,
        "Whether snapshot files made only for replicas are deleted.";
    rdb_save_incremental_fsync: flag(true), "rdb-save-incremental-fsync", MUTABLE,
        "Whether a snapshot is synced to disk in small steps while it is written.";
    rdb_key_save_delay: number(i32, 0, INT_MIN, INT_MAX), "rdb-key-save-delay",
        MUTABLE.hidden(), "Microseconds to wait after each key saved, for tests.";
    key_load_delay: number(i32, 0, INT_MIN, INT_MAX), "key-load-delay", MUTABLE.hidden(),
        "Microseconds to wait after each key loaded, for tests.";
    loading_process_events_interval_bytes: number(u64, 2 << 20, 1024, INT_MAX),
        "loading-process-events-interval-bytes", MUTABLE.hidden().no_effect("clients are always served while loading"),
        "Bytes loaded between two checks for client requests.";
    stop_writes_on_bgsave_error: flag(true), "stop-writes-on-bgsave-error", MUTABLE,
        "Whether writes are refused after a failed background save.";
    appendonly: flag(false), "appendonly",
        MUTABLE.denied_while_loading().asks_system(),
        "Whether writes are logged to the append-only file.";
    appendfilename: text("appendonly.aof", checks::append_file_name), "appendfilename",
        IMMUTABLE, "Prefix of the names of append-only files.";
    appenddirname: text("appendonlydir", checks::append_directory_name), "appenddirname",
        IMMUTABLE, "Directory of the append-only files.";
    appendfsync: choice(Appendfsync, Appendfsync::Everysec), "appendfsync", MUTABLE,
        "When the append-only file is synced to disk.";
    no_appendfsync_on_rewrite: flag(false), "no-appendfsync-on-rewrite", MUTABLE,
        "Whether fsync of the append-only file is skipped during a rewrite.";
    auto_aof_rewrite_percentage: number(u32, 100, 0, INT_MAX), "auto-aof-rewrite-percentage",
        MUTABLE, "Growth in percent at which the append-only file is rewritten.";
    auto_aof_rewrite_min_size: number(u64, 64 << 20, 0, LONG_MAX, MEMORY), "auto-aof-rewrite-min-size",
        MUTABLE, "Size below which the append-only file is not rewritten.";
    aof_load_truncated: flag(true), "aof-load-truncated", MUTABLE,
        "Whether a truncated append-only file is loaded up to its last complete command.";
    aof_load_errors: choice(LoadErrors, LoadErrors::Stop), "aof-load-errors", MUTABLE.since("basalt"),
        "What happens when a command of the append-only file fails.";
    aof_use_rdb_preamble: flag(true), "aof-use-rdb-preamble",
        MUTABLE,
        "Whether a rewritten append-only file begins with a snapshot.";
    aof_timestamp_enabled: flag(false), "aof-timestamp-enabled", MUTABLE,
        "Whether timestamps are written to the append-only file.";
    aof_rewrite_incremental_fsync: flag(true), "aof-rewrite-incremental-fsync", MUTABLE,
        "Whether a rewritten file is synced to disk in small steps while it is written.";
    aof_disable_auto_gc: flag(false), "aof-disable-auto-gc", MUTABLE.hidden(),
        "Whether old append-only files are kept, for tests.";

    // Replication
    replicaof: special(Option<(String, u16)>, values::REPLICAOF), "replicaof",
        IMMUTABLE.alias("slaveof"), "Host and port of the master.";
    masteruser: text(""), "masteruser", MUTABLE.alias("primaryuser").sensitive(),
        "User name for authentication at the master.";
    masterauth: text(""), "masterauth", MUTABLE.alias("primaryauth").sensitive(),
        "Password for authentication at the master.";
    replica_serve_stale_data: flag(true), "replica-serve-stale-data",
        MUTABLE.alias("slave-serve-stale-data"),
        "Whether a replica serves stale data while the link to its master is down.";
    replica_read_only: flag(true), "replica-read-only",
        MUTABLE.alias("slave-read-only"), "Whether a replica refuses writes of clients.";
    replica_lazy_flush: flag(false), "replica-lazy-flush",
        MUTABLE.alias("slave-lazy-flush"),
        "Whether a replica drops its old data in the background.";
    replica_priority: number(u32, 100, 0, INT_MAX), "replica-priority",
        MUTABLE.alias("slave-priority"), "Priority in a failover by Sentinel; 0: never promoted.";
    replica_announced: flag(true), "replica-announced", MUTABLE,
        "Whether Sentinel reports this replica.";
    replica_announce_ip: text(""), "replica-announce-ip",
        MUTABLE.alias("slave-announce-ip"), "Address that a replica announces to its master.";
    replica_announce_port: number(u16, 0, 0, 65535), "replica-announce-port",
        MUTABLE.alias("slave-announce-port"), "Port that a replica announces to its master.";
    replica_ignore_maxmemory: flag(true), "replica-ignore-maxmemory",
        MUTABLE.alias("slave-ignore-maxmemory"),
        "Whether a replica leaves eviction to its master.";
    replica_ignore_disk_write_errors: flag(false), "replica-ignore-disk-write-errors",
        MUTABLE, "Whether a replica keeps applying writes when it cannot write to the disk.";
    propagation_error_behavior: choice(PropagationError, PropagationError::Ignore),
        "propagation-error-behavior", MUTABLE,
        "What happens when a command from the master, or from the append-only file, fails.";
    repl_diskless_sync: flag(true), "repl-diskless-sync", MUTABLE,
        "Whether snapshots are sent to replicas directly, without a file.";
    repl_diskless_sync_delay: number(u32, 5, 0, INT_MAX), "repl-diskless-sync-delay",
        MUTABLE, "Seconds to wait for further replicas before a snapshot is sent.";
    repl_diskless_sync_max_replicas: number(u32, 0, 0, INT_MAX), "repl-diskless-sync-max-replicas",
        MUTABLE, "Number of waiting replicas at which the snapshot starts without further delay; 0: always wait.";
    repl_compression: choice(ReplCompression, ReplCompression::No), "repl-compression", MUTABLE.since("9.2"),
        "The strongest compression of snapshots that are sent to replicas without a file.";
    repl_diskless_load: choice(DisklessLoad, DisklessLoad::Disabled), "repl-diskless-load",
        MUTABLE.denied_while_loading(), "How a replica loads its snapshot.";
    dual_channel_replication_enabled: flag(false), "dual-channel-replication-enabled",
        MUTABLE.since("8.0"),
        "Whether a replica receives snapshot and replication stream in parallel (Valkey's protocol).";
    repl_rdb_channel: flag(false), "repl-rdb-channel", MUTABLE.since("8.0"),
        "Whether a replica receives snapshot and replication stream in parallel (Redis protocol).";
    replica_full_sync_buffer_limit: number(u64, 0, 0, LONG_MAX, MEMORY), "replica-full-sync-buffer-limit",
        MUTABLE.since("8.0"),
        "Maximum bytes of the replication stream buffered while a snapshot is loaded; 0: the output limit of \
         replicas.";
    repl_ping_replica_period: number(u32, 10, 1, INT_MAX), "repl-ping-replica-period",
        MUTABLE.alias("repl-ping-slave-period"), "Seconds between pings to replicas.";
    repl_timeout: number(u32, 60, 1, INT_MAX), "repl-timeout", MUTABLE,
        "Seconds without data after which a replication link is closed.";
    repl_disable_tcp_nodelay: flag(false), "repl-disable-tcp-nodelay", MUTABLE,
        "Whether the replication stream waits to fill TCP packets.";
    repl_backlog_size: number(u64, 1 << 20, 1, LONG_MAX, MEMORY), "repl-backlog-size",
        MUTABLE, "Size of the replication backlog.";
    repl_backlog_ttl: number(u64, 3600, 0, LONG_MAX), "repl-backlog-ttl", MUTABLE,
        "Seconds that the replication backlog is kept without replicas; 0: forever.";
    replica_slows_writers: flag(false), "replica-slows-writers", MUTABLE.since("basalt"),
        "Whether writes wait for a slow replica before it is disconnected.";
    min_replicas_to_write: number(u32, 0, 0, INT_MAX), "min-replicas-to-write",
        MUTABLE.alias("min-slaves-to-write"), "Minimum number of replicas; with fewer, writes are refused.";
    min_replicas_max_lag: number(u32, 10, 0, INT_MAX), "min-replicas-max-lag",
        MUTABLE.alias("min-slaves-max-lag"),
        "Maximum lag in seconds of a replica that counts for min-replicas-to-write; 0: writes do not need replicas.";
    min_sync_replicas: number(u32, 0, 0, INT_MAX), "min-sync-replicas", MUTABLE.since("basalt"),
        "Number of replicas that must have acknowledged what a reply reflects before it is sent; 0: none.";
    sync_replicas_timeout: number(u64, 5000, 0, LONG_MAX), "sync-replicas-timeout", MUTABLE.since("basalt"),
        "Milliseconds that replies wait for min-sync-replicas before they become errors and writes are refused; 0: for ever.";
    maint_notifications: flag(true), "maint-notifications", MUTABLE.since("basalt"),
        "Whether clients that ask for it (CLIENT MAINT_NOTIFICATIONS) are told of failovers and of slots that move.";
    maint_handoff_seconds: number(u32, 30, 1, 3600), "maint-handoff-seconds", MUTABLE.since("basalt"),
        "Seconds in which clients with maintenance notifications are told to move to the new primary.";

    // Cluster
    cluster_enabled: choice(ClusterMode, ClusterMode::No), "cluster-enabled",
        IMMUTABLE,
        "Whether the server is a cluster node; emulated: it and its replicas look like a whole cluster.";
    cluster_databases: number(u32, 1, 1, INT_MAX), "cluster-databases",
        IMMUTABLE.since("9.0"), "Number of databases of a cluster node.";
    cluster_config_file: text("nodes.conf"), "cluster-config-file", IMMUTABLE,
        "File of the cluster state.";
    cluster_node_timeout: number(i64, 15_000, 0, LONG_MAX), "cluster-node-timeout",
        MUTABLE, "Milliseconds without a reply after which a node is considered failed.";
    cluster_ping_interval: number(i64, 0, 0, LONG_MAX), "cluster-ping-interval",
        MUTABLE.since("7.2").hidden(), "Milliseconds between pings, for tests.";
    cluster_port: number(u16, 0, 0, 65535), "cluster-port", IMMUTABLE,
        "Port of the cluster bus; 0: the port plus 10000.";
    cluster_announce_ip: text(""), "cluster-announce-ip", MUTABLE,
        "Address that this node announces; empty: the address that clients connect to.";
    cluster_announce_hostname: text("", checks::host_name), "cluster-announce-hostname",
        MUTABLE, "Host name that this node announces to clients.";
    cluster_seeds: special(Vec<Seed>, seeds::SEEDS), "cluster-seeds", MUTABLE.since("basalt"),
        "Host names or addresses with ports of nodes to join; used while this node has too few links.";
    cluster_size: number(u32, 0, 0, 1024), "cluster-size", MUTABLE.since("basalt"),
        "Number of primaries of a cluster that its nodes assemble themselves at their first start; 0: none.";
    cluster_replicas: number(u32, 1, 0, 8), "cluster-replicas", MUTABLE.since("basalt"),
        "Number of replicas of each primary of a cluster that assembles itself.";
    cluster_announce_human_nodename: text("", checks::node_name), "cluster-announce-human-nodename",
        MUTABLE.since("7.2"), "Name of this node in logs.";
    availability_zone: text(""), "availability-zone", MUTABLE.since("8.1"),
        "Availability zone of this node, shown to clients and to the other nodes.";
    cluster_announce_port: number(u16, 0, 0, 65535), "cluster-announce-port", MUTABLE,
        "Port that this node announces; 0: the port that clients connect to.";
    cluster_announce_tls_port: number(u16, 0, 0, 65535), "cluster-announce-tls-port",
        MUTABLE, "TLS port that this node announces; 0: the port that clients connect to.";
    cluster_announce_bus_port: number(u16, 0, 0, 65535), "cluster-announce-bus-port",
        MUTABLE, "Cluster bus port that this node announces.";
    cluster_preferred_endpoint_type: choice(EndpointType, EndpointType::Ip),
        "cluster-preferred-endpoint-type", MUTABLE,
        "Type of endpoint that clients are redirected to.";
    cluster_link_sendbuf_limit: number(u64, 0, 0, ULONG_MAX, MEMORY), "cluster-link-sendbuf-limit",
        MUTABLE, "Maximum unsent bytes of a cluster bus link; 0: no limit.";
    cluster_slot_migration_log_max_len: number(u32, 1000, 0, INT_MAX), "cluster-slot-migration-log-max-len",
        MUTABLE.since("9.0"), "Maximum number of finished slot migrations that CLUSTER GETSLOTMIGRATIONS shows.";
    slot_migration_max_failover_repl_bytes: number(i64, 0, -1, LONG_MAX, MEMORY),
        "slot-migration-max-failover-repl-bytes", MUTABLE.since("9.0"),
        "Unsent bytes of changes at which the source of a slot migration pauses writes for the handover; -1: no \
         limit.";
    cluster_migration_barrier: number(u32, 1, 0, INT_MAX), "cluster-migration-barrier",
        MUTABLE, "Minimum number of replicas that a master keeps when another master needs one.";
    cluster_allow_replica_migration: flag(true), "cluster-allow-replica-migration",
        MUTABLE, "Whether replicas migrate to masters without a replica.";
    cluster_replica_validity_factor: number(u32, 10, 0, INT_MAX), "cluster-replica-validity-factor",
        MUTABLE.alias("cluster-slave-validity-factor"),
        "Maximum age of a replica's data for a failover, as a multiple of the node timeout.";
    cluster_replica_no_failover: flag(false), "cluster-replica-no-failover",
        MUTABLE.alias("cluster-slave-no-failover"),
        "Whether this replica never starts a failover by itself.";
    cluster_require_full_coverage: flag(true), "cluster-require-full-coverage",
        MUTABLE, "Whether the cluster stops serving while any slot is uncovered.";
    cluster_allow_reads_when_down: flag(false), "cluster-allow-reads-when-down",
        MUTABLE, "Whether a node serves reads while the cluster is down.";
    cluster_allow_pubsubshard_when_down: flag(true), "cluster-allow-pubsubshard-when-down",
        MUTABLE, "Whether sharded pub/sub works while the cluster is down.";
    cluster_slot_stats_enabled: flag(false), "cluster-slot-stats-enabled",
        MUTABLE.since("8.0"), "Whether CLUSTER SLOT-STATS includes CPU time and network bytes of each slot.";
    cluster_blacklist_ttl: number(u32, 60, 0, INT_MAX), "cluster-blacklist-ttl",
        MUTABLE.since("9.0"), "Seconds for which a forgotten node cannot join again.";
    cluster_manual_failover_timeout: number(u32, 5000, 1, INT_MAX), "cluster-manual-failover-timeout",
        MUTABLE.since("9.0"), "Timeout of a manual failover in milliseconds.";
    cluster_message_gossip_perc: number(u32, 10, 1, 100), "cluster-message-gossip-perc",
        MUTABLE.since("9.0").hidden(), "Percent of the nodes whose state a ping contains.";

    // TLS
    tls_port: number(u16, 0, 0, 65535), "tls-port", MUTABLE.asks_system(), "TLS port; 0: no TLS port.";
    tls_cert_file: text(""), "tls-cert-file", MUTABLE.asks_system(), "Certificate.";
    tls_key_file: text(""), "tls-key-file", MUTABLE.asks_system(), "Private key of the certificate.";
    tls_key_file_pass: text(""), "tls-key-file-pass", MUTABLE.sensitive().asks_system(),
        "Password of the private key.";
    tls_client_cert_file: text(""), "tls-client-cert-file", MUTABLE.asks_system(),
        "Certificate for connections to other servers.";
    tls_client_key_file: text(""), "tls-client-key-file", MUTABLE.asks_system(),
        "Private key of the client certificate.";
    tls_client_key_file_pass: text(""), "tls-client-key-file-pass", MUTABLE.sensitive().asks_system(),
        "Password of the client private key.";
    tls_dh_params_file: text(""), "tls-dh-params-file", MUTABLE.warned(NO_DH),
        "Diffie-Hellman parameters.";
    tls_ca_cert_file: text(""), "tls-ca-cert-file", MUTABLE.asks_system(),
        "File of trusted CA certificates.";
    tls_ca_cert_dir: text(""), "tls-ca-cert-dir", MUTABLE.asks_system(),
        "Directory of trusted CA certificates.";
    tls_auth_clients: choice(TlsAuthClients, TlsAuthClients::Yes), "tls-auth-clients",
        MUTABLE.asks_system(), "Whether clients must show a certificate.";
    tls_auth_clients_user: choice(TlsAuthClientsUser, TlsAuthClientsUser::Off), "tls-auth-clients-user",
        MUTABLE.since("9.0"),
        "Which name in a client certificate is the ACL user.";
    tls_replication: flag(false), "tls-replication", MUTABLE.asks_system(),
        "Whether replication links use TLS.";
    tls_cluster: flag(false), "tls-cluster", MUTABLE.asks_system(), "Whether MIGRATE and the cluster bus use TLS.";
    tls_protocols: text(""), "tls-protocols", MUTABLE.asks_system(), "Enabled TLS versions.";
    tls_ciphers: text(""), "tls-ciphers", MUTABLE.asks_system(), "Ciphers of TLS 1.2.";
    tls_ciphersuites: text(""), "tls-ciphersuites", MUTABLE.asks_system(), "Ciphers of TLS 1.3.";
    tls_groups: text(""), "tls-groups", MUTABLE.since("9.2").asks_system(),
        "Groups of the key exchange, in order of preference; empty: those of the TLS library.";
    tls_prefer_server_ciphers: flag(false), "tls-prefer-server-ciphers", MUTABLE.asks_system(),
        "Whether the server's cipher order is preferred.";
    tls_session_caching: flag(true), "tls-session-caching", MUTABLE.asks_system(),
        "Whether TLS sessions can be resumed.";
    tls_session_cache_size: number(u32, 20480, 0, INT_MAX), "tls-session-cache-size",
        MUTABLE.asks_system(), "Maximum number of cached TLS sessions; 0: no limit.";
    tls_session_cache_timeout: number(u32, 300, 0, INT_MAX), "tls-session-cache-timeout",
        MUTABLE.asks_system(), "Seconds for which a TLS session can be resumed.";
    tls_auto_reload_interval: number(u32, 5, 0, INT_MAX), "tls-auto-reload-interval", MUTABLE.since("basalt"),
        "Seconds between two checks for changed certificates, keys or CA certificates; 0: never.";
}
