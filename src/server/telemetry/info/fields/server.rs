//! The section about the program, its addresses and its clock.

use std::fmt::Write;
use std::sync::atomic::Ordering::Relaxed;

use super::{InfoField, constant, count, shown, text, zero};
use crate::telemetry::info::{CRON_HZ, InfoContext, told_version};
use crate::telemetry::process;

/// Rows of the section `server`.
pub(in crate::telemetry::info) static SERVER: &[InfoField] = &[
    text("redis_version", |s| shown(told_version(s.config))),
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
    count("process_id", |_| u64::from(std::process::id())),
    constant("process_supervised", "no"),
    text("run_id", |s| shown(&s.telemetry.run_id)),
    count("tcp_port", |s| u64::from(s.config.port)),
    count("server_time_usec", |s| s.snapshot.unix_us),
    count("uptime_in_seconds", |s| s.snapshot.uptime_s),
    count("uptime_in_days", |s| s.snapshot.uptime_s / 86_400),
    count("hz", |_| u64::from(CRON_HZ)),
    text("configured_hz", |s| shown(s.config.hz)),
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
    zero("io_threads_active"),
    text("listener0", |s| listeners(s).next()),
    text("listener1", |s| listeners(s).nth(1)),
];

/// Formats the addresses on which the server listens.
fn listeners(source: &InfoContext<'_>) -> impl Iterator<Item = String> {
    let config = source.config;
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
