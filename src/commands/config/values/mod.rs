//! Types of parameters beyond numbers and texts: words from a list, and values with a syntax of their own.
//!
//! Each type implements its own formatting and parsing; no type knows its parameter, except for the `Special` values
//! at the end, to which rows of the table refer.

pub mod checks;

use std::fs;
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

use crate::config::Config;
use crate::config::parameter::{Mode, Special};
use crate::config::words;
use basalt_core::base::{lossless, text};
use basalt_core::bit_set;

/// A type whose values are words from a list.
pub trait Coded: Copy {
    /// The words and their codes, in the order in which errors list them.
    const NAMES: &'static [(&'static str, u32)];
    /// Returns the value's code.
    fn code(self) -> u32;
    /// Decodes a code, which must be one of `NAMES`, or a union of them for sets of words.
    fn decode(code: u32) -> Self;
}

macro_rules! choices {
    ($(#[$about:meta])* $name:ident { $first:ident = $first_word:literal $(, $variant:ident = $($word:literal)|+)* $(,)? }) => {
        $(#[$about])*
        #[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
        #[expect(missing_docs, reason = "the words are the documentation")]
        pub enum $name { #[default] $first, $($variant),* }

        impl Coded for $name {
            const NAMES: &'static [(&'static str, u32)] =
                &[($first_word, Self::$first as u32), $($(($word, Self::$variant as u32)),+),*];
            fn code(self) -> u32 {
                self as u32
            }
            fn decode(code: u32) -> Self {
                const ALL: &[$name] = &[$name::$first, $($name::$variant),*];
                ALL[code as usize]
            }
        }

        impl $name {
            /// Returns the word for this value.
            pub fn name(self) -> &'static str {
                let named = Self::NAMES.iter().find(|(_, code)| *code == self.code());
                named.map_or("", |(word, _)| word)
            }
        }
    };
}

choices! {
    /// Which keys may be evicted when memory is full, and in which order.
    MaxmemoryPolicy {
        VolatileLru = "volatile-lru", VolatileLfu = "volatile-lfu", VolatileRandom = "volatile-random",
        VolatileTtl = "volatile-ttl", AllkeysLru = "allkeys-lru", AllkeysLfu = "allkeys-lfu",
        AllkeysRandom = "allkeys-random", Noeviction = "noeviction", VolatileLrm = "volatile-lrm",
        AllkeysLrm = "allkeys-lrm",
    }
}

impl MaxmemoryPolicy {
    /// Whether keys are evicted by the time since their last modification, however often they are read.
    #[inline]
    #[must_use]
    pub fn is_lrm(self) -> bool {
        matches!(
            self,
            MaxmemoryPolicy::VolatileLrm | MaxmemoryPolicy::AllkeysLrm
        )
    }
}
choices! {
    /// The lowest severity of messages that are logged.
    LogLevel { Debug = "debug", Verbose = "verbose", Notice = "notice", Warning = "warning", Nothing = "nothing" }
}
choices! {
    /// The format of the log's lines.
    LogFormat { Legacy = "legacy", Logfmt = "logfmt", Json = "json" }
}
choices! {
    /// The format of times in the log.
    LogTimestampFormat { Legacy = "legacy", Iso8601 = "iso8601", Milliseconds = "milliseconds" }
}
choices! {
    /// The syslog facility to which the log is sent.
    SyslogFacility {
        User = "user", Local0 = "local0", Local1 = "local1", Local2 = "local2", Local3 = "local3",
        Local4 = "local4", Local5 = "local5", Local6 = "local6", Local7 = "local7",
    }
}
choices! {
    /// The process that supervises this server.
    Supervised { Upstart = "upstart", Systemd = "systemd", Auto = "auto", No = "no" }
}
choices! {
    /// When the append-only file is synced to disk.
    Appendfsync { Everysec = "everysec", Always = "always", No = "no" }
}
choices! {
    /// The way a replica loads a snapshot that it receives over the network.
    DisklessLoad {
        Disabled = "disabled", OnEmptyDb = "on-empty-db", Swapdb = "swapdb", FlushBeforeLoad = "flush-before-load"
    }
}
choices! {
    /// Whether this server is a node of a cluster (`yes`), or emulates a cluster of one node.
    ClusterMode { No = "no", Yes = "yes", Emulated = "emulated" }
}
choices! {
    /// Whether TLS clients must present a certificate.
    TlsAuthClients { No = "no", Yes = "yes", Optional = "optional" }
}
choices! {
    /// The name in a client's certificate that identifies its ACL user.
    TlsAuthClientsUser { Off = "off", CommonName = "CN", Uri = "URI" }
}
choices! {
    /// Whether the kernel's out-of-memory score is adjusted.
    OomScoreAdj { No = "no", Relative = "yes" | "relative", Absolute = "absolute" }
}
choices! {
    /// The channels that a new user may use.
    AclPubsubDefault { Allchannels = "allchannels", Resetchannels = "resetchannels" }
}
choices! {
    /// The senders whose serialized values are checked in full.
    SanitizeDumpPayload { No = "no", Yes = "yes", Clients = "clients" }
}
choices! {
    /// The clients that may use a dangerous facility.
    Protected { No = "no", Yes = "yes", Local = "local" }
}
choices! {
    /// The kind of endpoint that cluster clients are given.
    EndpointType { Ip = "ip", Hostname = "hostname", UnknownEndpoint = "unknown-endpoint" }
}
choices! {
    /// What to do when a command from the primary or the append-only file fails.
    PropagationError { Ignore = "ignore", Panic = "panic", PanicOnReplicas = "panic-on-replicas" }
}
choices! {
    /// What to do when a command of the append-only file fails during loading.
    LoadErrors { Stop = "stop", Continue = "continue" }
}
choices! {
    /// Compression of snapshots in files: string by string, or as one stream.
    RdbCompression { No = "no", Strings = "yes" | "lzf", Lz4 = "lz4", Zstd = "zstd" }
}
choices! {
    /// The strongest compression of snapshots that are sent to replicas.
    ReplCompression { No = "no", Lz4 = "yes" | "lz4", Zstd = "zstd" }
}

impl RdbCompression {
    /// Whether long strings of serialized values (DUMP, MIGRATE) are compressed.
    pub fn compresses_values(self) -> bool {
        self != RdbCompression::No
    }
}

choices! {
    /// How connections are distributed over threads.
    Runtime { Auto = "auto", Shared = "shared", PerCore = "per-core" }
}
choices! {
    /// The ordered index of large sorted sets.
    ZsetIndex { Btree = "btree", Skiplist = "skiplist" }
}

bit_set! {
    /// The options of a shutdown by signal.
    #[derive(Debug, Default)]
    pub struct ShutdownOptions(u32) {
        /// Saves, even without save points.
        SAVE;
        /// Does not save, even with save points.
        NOSAVE;
        /// Does not wait for replicas.
        NOW;
        /// Continues despite any failure.
        FORCE;
        /// Does not stop a primary that serves slots of a cluster.
        SAFE;
        /// Hands the slots of a cluster's primary over to a replica first.
        FAILOVER;
    }
}

impl Coded for ShutdownOptions {
    const NAMES: &'static [(&'static str, u32)] = &[
        ("default", 0),
        ("save", 1),
        ("nosave", 2),
        ("now", 4),
        ("force", 8),
        ("safe", 16),
        ("failover", 32),
    ];
    fn code(self) -> u32 {
        self.0
    }
    fn decode(code: u32) -> Self {
        Self(code)
    }
}

/// The classes of keyspace events that are published: Redis's letters, as bits.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct EventClasses(pub u32);

impl EventClasses {
    /// The letters in the order in which they are shown, with their bits, and whether `A` includes the class.
    const LETTERS: &[(char, u32, bool)] = &[
        ('g', 1 << 2, true),
        ('$', 1 << 3, true),
        ('l', 1 << 4, true),
        ('s', 1 << 5, true),
        ('h', 1 << 6, true),
        ('z', 1 << 7, true),
        ('x', 1 << 8, true),
        ('e', 1 << 9, true),
        ('t', 1 << 10, true),
        ('d', 1 << 13, true),
        ('n', 1 << 14, false),
        ('K', 1, false),
        ('E', 1 << 1, false),
        ('m', 1 << 11, false),
        ('o', 1 << 15, false),
        ('c', 1 << 16, false),
        ('S', 1 << 17, false),
        ('T', 1 << 18, false),
        ('I', 1 << 19, false),
        ('V', 1 << 20, false),
    ];

    /// Returns the bit of one class by its letter, or for `A` all its classes; `None` for an unknown letter.
    pub fn of(letter: char) -> Option<Self> {
        if letter == 'A' {
            let all = Self::LETTERS.iter().filter(|(_, _, in_all)| *in_all);
            return Some(Self(all.fold(0, |bits, (_, bit, _)| bits | bit)));
        }
        Self::LETTERS
            .iter()
            .find(|(known, ..)| *known == letter)
            .map(|(_, bit, _)| Self(*bit))
    }

    /// Parses the classes named by letters.
    pub fn parse(letters: &str) -> Option<Self> {
        letters.chars().try_fold(Self(0), |bits, letter| {
            Some(Self(bits.0 | Self::of(letter)?.0))
        })
    }

    /// Whether all of `other` is in this set.
    pub fn contains(self, other: Self) -> bool {
        self.0 & other.0 == other.0
    }
}

impl std::fmt::Display for EventClasses {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let all = Self::of('A').is_some_and(|all| self.contains(all));
        if all {
            f.write_str("A")?;
        }
        for (letter, bit, in_all) in Self::LETTERS {
            // Redis leaves `n` out after an `A`: a file written from that would lose the class, so here it is shown.
            if self.0 & bit != 0 && !(all && *in_all) {
                write!(f, "{letter}")?;
            }
        }
        Ok(())
    }
}

/// One save point: save after this many seconds if there were at least this many changes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct SavePoint {
    /// Seconds since the last save.
    pub seconds: u64,
    /// Changes since the last save.
    pub changes: u64,
}

/// The limit of a client's unsent output.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct OutputLimit {
    /// At this many bytes the client is closed at once; 0 is no limit.
    pub hard_bytes: u64,
    /// Above this many bytes for `soft_seconds` the client is closed; 0 is no limit.
    pub soft_bytes: u64,
    /// Seconds that the output may stay above the soft limit.
    pub soft_seconds: u64,
}

/// The limits on unsent output of the three classes of clients.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct OutputLimits {
    /// Limit of ordinary clients, including those in MONITOR mode.
    pub normal: OutputLimit,
    /// Limit of replicas.
    pub replica: OutputLimit,
    /// Limit of clients with subscriptions.
    pub pubsub: OutputLimit,
}

/// `dir`: the working directory, stored as an absolute path, because CONFIG GET shows an absolute one; `.` until the
/// start resolves it.
pub const DIR: Special = Special {
    default: &["."],
    many: false,
    set: |config, words, mode| {
        config.dir = match mode {
            Mode::Default => PathBuf::from(&words[0]),
            _ => directory(&config.dir.join(lossless::path_of(&words[0])))
                .map_err(|error| system_text(&error))?,
        };
        Ok(())
    },
    show: |config| lossless::text_of(config.dir.as_os_str().as_bytes()).into_owned(),
    lines: |config| vec![text::quoted(config.dir.as_os_str().as_bytes())],
    always_written: true,
};

/// Returns the absolute path of a directory, if it exists.
fn directory(path: &Path) -> io::Result<PathBuf> {
    let found = fs::canonicalize(path)?;
    // A lookup after a trailing slash fails for a file, and for a directory that may not be entered.
    fs::metadata(found.join("."))?;
    Ok(found)
}

/// Returns the system's text for an error, like C's strerror.
pub fn system_text(error: &io::Error) -> String {
    let text = error.to_string();
    match text.split_once(" (os error") {
        Some((words, _)) => words.to_owned(),
        None => text,
    }
}

/// `bind`: addresses to listen on; an address with a leading `-` may be unavailable.
pub const BIND: Special = Special {
    default: &["*", "-::*"],
    many: true,
    set: |config, words, _| {
        config.bind = addresses(words)?;
        Ok(())
    },
    show: |config| config.bind.join(" "),
    lines: |config| match config.bind.as_slice() {
        [] => vec!["\"\"".to_owned()],
        some if some == BIND.default => vec![],
        some => vec![some.join(" ")],
    },
    always_written: false,
};

/// The value of `metrics-bind` that stands for the addresses of `bind`.
pub const AS_BIND: &str = "bind";

/// `metrics-bind`: addresses of the metrics endpoint, in the syntax of `bind`, or the word `bind` for the addresses
/// of `bind`.
pub const METRICS_BIND: Special = Special {
    default: &[AS_BIND],
    many: true,
    set: |config, words, _| {
        config.metrics_bind = addresses(words)?;
        Ok(())
    },
    show: |config| config.metrics_bind.join(" "),
    lines: |config| match config.metrics_bind.as_slice() {
        [] => vec!["\"\"".to_owned()],
        some if some == METRICS_BIND.default => vec![],
        some => vec![some.join(" ")],
    },
    always_written: false,
};

fn addresses(words: &[String]) -> Result<Vec<String>, String> {
    const ADDRESSES_MAX: usize = 16;
    if words.len() > ADDRESSES_MAX {
        return Err("Too many bind addresses specified.".to_owned());
    }
    match words {
        [one] if one.is_empty() => Ok(vec![]),
        _ => Ok(words.to_vec()),
    }
}

/// `save`: points in pairs of seconds and changes; the empty word clears them.
pub const SAVE: Special = Special {
    default: &["3600", "1", "300", "100", "60", "10000"],
    many: true,
    set: |config, words, mode| {
        let cleared = matches!(words, [one] if one.is_empty());
        let words = if cleared { &[] } else { words };
        let points = save_points(words).ok_or("Invalid save parameters")?;
        if cleared || mode != Mode::Append {
            config.save.clear();
        }
        config.save.extend(points);
        Ok(())
    },
    show: |config| {
        let points = config
            .save
            .iter()
            .map(|point| format!("{} {}", point.seconds, point.changes));
        points.collect::<Vec<_>>().join(" ")
    },
    lines: |config| {
        if config.save.is_empty() {
            return vec!["\"\"".to_owned()];
        }
        let points = config
            .save
            .iter()
            .map(|point| format!("{} {}", point.seconds, point.changes));
        points.collect()
    },
    always_written: true,
};

fn save_points(words: &[String]) -> Option<Vec<SavePoint>> {
    if !words.len().is_multiple_of(2) {
        return None;
    }
    let mut points = Vec::with_capacity(words.len() / 2);
    for pair in words.chunks_exact(2) {
        let seconds = pair[0].parse().ok().filter(|seconds| *seconds >= 1)?;
        points.push(SavePoint {
            seconds,
            changes: pair[1].parse().ok()?,
        });
    }
    Some(points)
}

/// `client-output-buffer-limit`: class, hard limit, soft limit, seconds; optionally for several classes at once.
pub const OUTPUT_LIMITS: Special = Special {
    default: &[
        "normal", "0", "0", "0", "replica", "256mb", "64mb", "60", "pubsub", "32mb", "8mb", "60",
    ],
    many: true,
    set: |config, words, _| {
        if !words.len().is_multiple_of(4) {
            return Err("Wrong number of arguments in buffer limit configuration.".to_owned());
        }
        let mut limits = config.client_output_buffer_limit;
        for class in words.chunks_exact(4) {
            let place = match class[0].to_ascii_lowercase().as_str() {
                "normal" => &mut limits.normal,
                "replica" | "slave" => &mut limits.replica,
                "pubsub" => &mut limits.pubsub,
                _ => {
                    return Err(
                        "Invalid client class specified in buffer limit configuration.".to_owned(),
                    );
                }
            };
            *place = output_limit(&class[1..]).ok_or(
                "Error in hard, soft or soft_seconds setting in buffer limit configuration.",
            )?;
        }
        config.client_output_buffer_limit = limits;
        Ok(())
    },
    // CONFIG GET keeps the old word for replicas, which clients parse; files have the new one.
    show: |config| {
        let limits = config.client_output_buffer_limit;
        let shown = [
            ("normal", limits.normal),
            ("slave", limits.replica),
            ("pubsub", limits.pubsub),
        ]
        .map(|(class, limit)| {
            format!(
                "{class} {} {} {}",
                limit.hard_bytes, limit.soft_bytes, limit.soft_seconds
            )
        });
        shown.join(" ")
    },
    lines: |config| {
        let limits = config.client_output_buffer_limit;
        let default = Config::default().client_output_buffer_limit;
        let classes = [
            ("normal", limits.normal, default.normal),
            ("replica", limits.replica, default.replica),
            ("pubsub", limits.pubsub, default.pubsub),
        ];
        let changed = classes
            .into_iter()
            .filter(|(_, limit, default)| limit != default);
        changed
            .map(|(class, limit, _)| {
                let hard = words::memory(limit.hard_bytes.into());
                let soft = words::memory(limit.soft_bytes.into());
                format!("{class} {hard} {soft} {}", limit.soft_seconds)
            })
            .collect()
    },
    always_written: false,
};

fn output_limit(words: &[String]) -> Option<OutputLimit> {
    Some(OutputLimit {
        hard_bytes: words::parse_memory(&words[0])?,
        soft_bytes: words::parse_memory(&words[1])?,
        soft_seconds: words[2].parse().ok()?,
    })
}

/// `oom-score-adj-values`: the scores of a primary, a replica and a background child.
pub const OOM_VALUES: Special = Special {
    default: &["0", "200", "800"],
    many: true,
    set: |config, words, _| {
        let [master, replica, child] = words else {
            return Err("wrong number of arguments".to_owned());
        };
        let mut values = [0; 3];
        for (value, word) in values.iter_mut().zip([master, replica, child]) {
            let number = word
                .parse()
                .ok()
                .filter(|number| (-2000..=2000).contains(number));
            *value = number
                .ok_or("Invalid oom-score-adj-values, elements must be between -2000 and 2000.")?;
        }
        config.oom_score_adj_values = values;
        Ok(())
    },
    show: |config| {
        config
            .oom_score_adj_values
            .map(|value| value.to_string())
            .join(" ")
    },
    lines: |config| {
        vec![
            config
                .oom_score_adj_values
                .map(|value| value.to_string())
                .join(" "),
        ]
    },
    always_written: false,
};

/// `notify-keyspace-events`: the letters of event classes.
pub const EVENTS: Special = Special {
    default: &[""],
    many: false,
    set: |config, words, _| {
        let classes = EventClasses::parse(&words[0]);
        config.notify_keyspace_events =
            classes.ok_or("Invalid event class character. Use 'Ag$lshzxeKEtmdnocSTIV'.")?;
        Ok(())
    },
    show: |config| config.notify_keyspace_events.to_string(),
    lines: |config| {
        vec![text::quoted(
            config.notify_keyspace_events.to_string().as_bytes(),
        )]
    },
    always_written: false,
};

/// `replicaof`: a host and a port, or `no one`.
pub const REPLICAOF: Special = Special {
    default: &["no", "one"],
    many: true,
    set: |config, words, _| {
        let [host, port] = words else {
            return Err("wrong number of arguments".to_owned());
        };
        if host.eq_ignore_ascii_case("no") && port.eq_ignore_ascii_case("one") {
            config.replicaof = None;
            return Ok(());
        }
        let port = port.parse().map_err(|_| "Invalid master port")?;
        config.replicaof = Some((host.clone(), port));
        Ok(())
    },
    show: |config| match &config.replicaof {
        Some((host, port)) => format!("{host} {port}"),
        None => String::new(),
    },
    // In a cluster, nodes.conf stores the primary of the node.
    lines: |config| match &config.replicaof {
        Some((host, port)) if config.cluster_enabled != ClusterMode::Yes => {
            vec![format!("{host} {port}")]
        }
        _ => vec![],
    },
    always_written: false,
};

/// `bf-error-rate`: between 0 and 1, and at most a quarter.
pub const BF_ERROR_RATE: Special = Special {
    default: &["0.01"],
    many: false,
    set: |config, words, _| {
        let rate = words[0].parse::<f64>();
        let rate = rate.map_err(|_| "Invalid value for `bf-error-rate`")?;
        if !(rate > 0.0 && rate < 1.0) {
            return Err(
                "Value for `bf-error-rate` must be in the range (0.000000, 1.000000)".to_owned(),
            );
        }
        config.bf_error_rate = rate.min(0.25);
        Ok(())
    },
    show: |config| config.bf_error_rate.to_string(),
    lines: |config| vec![config.bf_error_rate.to_string()],
    always_written: false,
};

/// `latency-tracking-info-percentiles`: numbers from 0 to 100; the empty word clears them.
pub const PERCENTILES: Special = Special {
    default: &["50", "99", "99.9"],
    many: true,
    set: |config, words, _| {
        let words = if matches!(words, [one] if one.is_empty()) {
            &[]
        } else {
            words
        };
        let mut percentiles = Vec::with_capacity(words.len());
        for word in words {
            let number = word.parse::<f64>().ok().filter(|number| !number.is_nan());
            let number = number.ok_or("Invalid latency-tracking-info-percentiles parameters")?;
            if !(0.0..=100.0).contains(&number) {
                return Err(
                    "latency-tracking-info-percentiles parameters should sit between [0.0,100.0]"
                        .to_owned(),
                );
            }
            percentiles.push(number);
        }
        config.latency_tracking_info_percentiles = percentiles;
        Ok(())
    },
    show: |config| percentile_words(&config.latency_tracking_info_percentiles),
    lines: |config| match percentile_words(&config.latency_tracking_info_percentiles) {
        none if none.is_empty() => vec!["\"\"".to_owned()],
        some => vec![some],
    },
    always_written: true,
};

/// Formats with six decimals at most, without trailing zeroes.
fn percentile_words(percentiles: &[f64]) -> String {
    let shown = percentiles.iter().map(|number| {
        let text = format!("{number:.6}");
        text.trim_end_matches('0').trim_end_matches('.').to_owned()
    });
    shown.collect::<Vec<_>>().join(" ")
}
