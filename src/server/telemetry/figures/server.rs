//! The program, its addresses, its clock and its CPU time.

use std::fmt::Write;
use std::sync::atomic::Ordering::Relaxed;

use super::{Figure, FigureContext, FigureReader, constant, count, shown, text, zero};
use crate::telemetry::process;
use basalt_commands::config::Config;

/// The Redis version claimed towards clients.
pub const REDIS_VERSION: &str = "7.4.0";

/// Returns the Redis version reported to clients: `REDIS_VERSION`, unless the configuration overrides it.
pub(in crate::telemetry) fn told_version(config: &Config) -> &str {
    match config.version_override.as_str() {
        "" => REDIS_VERSION,
        version => version,
    }
}

/// Runs of the cron per second.
const CRON_HZ: u64 = 10;

/// Rows of the section `server`.
pub(in crate::telemetry) static SERVER: &[Figure] = &[
    text("redis_version", |s| shown(told_version(&s.config))),
    constant("server_name", "basalt"),
    constant("basalt_version", env!("CARGO_PKG_VERSION")),
    constant("redis_git_sha1", "00000000"),
    zero("redis_git_dirty"),
    zero("redis_build_id"),
    text("redis_mode", |s| shown(s.config.mode_name())),
    text("os", |_| shown(process::os())),
    count("arch_bits", |_| u64::from(usize::BITS)),
    constant("monotonic_clock", "time stamp counter"),
    constant("multiplexing_api", "epoll"),
    constant("atomicvar_api", "rust"),
    constant("gcc_version", "0.0.0"),
    count("process_id", |_| u64::from(std::process::id())).gauge("redis_process_id", "Process ID."),
    constant("process_supervised", "no"),
    text("run_id", |s| shown(&s.telemetry.run_id)),
    count("tcp_port", |s| u64::from(s.config.port)),
    count("server_time_usec", |s| s.snapshot.unix_us),
    count("uptime_in_seconds", |s| s.snapshot.uptime_s)
        .gauge("redis_uptime_in_seconds", "Uptime in seconds."),
    count("uptime_in_days", |s| s.snapshot.uptime_s / 86_400),
    count("hz", |_| CRON_HZ),
    count("configured_hz", |s| u64::from(s.config.hz)),
    text("shutdown_in_milliseconds", |s| {
        let ends_at_ms = s.telemetry.replication.ends_at_ms.load(Relaxed);
        let left_ms = ends_at_ms.saturating_sub(s.snapshot.unix_us / 1_000);
        (ends_at_ms > 0).then(|| left_ms.to_string())
    }),
    count("lru_clock", |s| {
        (s.snapshot.unix_us / 1_000_000) & 0xff_ffff
    }),
    text("executable", |s| shown(s.telemetry.executable.display())),
    text("config_file", |s| {
        let file = s.telemetry.config_file.as_ref();
        Some(file.map_or_else(String::new, |file| file.display().to_string()))
    }),
    text("availability_zone", |s| shown(&s.config.availability_zone)),
    zero("io_threads_active").gauge(
        "redis_io_threads_active",
        "Always 0: there are no separate I/O threads.",
    ),
    text("listener0", |s| listeners(s).next()),
    text("listener1", |s| listeners(s).nth(1)),
];

/// Formats the addresses on which the server listens.
fn listeners(source: &FigureContext<'_>) -> impl Iterator<Item = String> {
    let config = &source.config;
    let tcp = (config.port != 0).then(|| {
        let mut value = "name=tcp".to_owned();
        for address in &config.bind {
            let _ = write!(value, ",bind={address}");
        }
        format!("{value},port={}", config.port)
    });
    let path = &config.unixsocket;
    let unix = (!path.is_empty()).then(|| format!("name=unix,bind={path}"));
    tcp.into_iter().chain(unix)
}

/// CPU time, in seconds.
pub(in crate::telemetry) static CPU: &[Figure] = &[
    cpu("used_cpu_sys", |s| s.snapshot.cpu.own.system)
        .counter("redis_cpu_sys_seconds_total", SYSTEM),
    cpu("used_cpu_user", |s| s.snapshot.cpu.own.user).counter("redis_cpu_user_seconds_total", USER),
    cpu("used_cpu_sys_children", |s| s.snapshot.cpu.children.system)
        .counter("redis_cpu_sys_children_seconds_total", SYSTEM),
    cpu("used_cpu_user_children", |s| s.snapshot.cpu.children.user)
        .counter("redis_cpu_user_children_seconds_total", USER),
    cpu("used_cpu_sys_main_thread", |s| {
        s.snapshot.cpu.main_thread.system
    })
    .counter("redis_cpu_sys_main_thread_seconds_total", SYSTEM),
    cpu("used_cpu_user_main_thread", |s| {
        s.snapshot.cpu.main_thread.user
    })
    .counter("redis_cpu_user_main_thread_seconds_total", USER),
];

const fn cpu(field: &'static str, read: fn(&FigureContext<'_>) -> f64) -> Figure {
    Figure::new(field, FigureReader::Seconds(read))
}

const SYSTEM: &str = "System CPU time in seconds.";

const USER: &str = "User CPU time in seconds.";

/// The section for debugging: the longest hold of a shard, and the longest iteration of the background.
pub(in crate::telemetry) static DEBUG: &[Figure] = &[
    zero("eventloop_duration_aof_sum"),
    count("eventloop_duration_cron_sum", |s| {
        s.snapshot.since_reset.rounds.cron_ns / 1_000
    }),
    count("eventloop_duration_max", |s| {
        let longest_ns = s.snapshot.tokens().longest_hold_ns;
        longest_ns.max(s.snapshot.since_reset.rounds.cron_ns_max) / 1_000
    }),
    count("eventloop_cmd_per_cycle_max", |s| s.snapshot.most_commands),
    count("eventloop_new_connections_per_cycle_max", |s| {
        s.telemetry.rounds.connections_begun_max()
    })
    .gauge(
        "basalt_new_connections_per_cycle_max",
        "Largest number of connections that a thread began in one turn (max-new-connections-per-cycle).",
    ),
];
