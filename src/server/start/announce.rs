//! Log messages about startup and shutdown, in redis-server's wording, which tools wait for.

use std::path::Path;

use super::accept;
use crate::telemetry::info::REDIS_VERSION;
use basalt_commands::config::Config;
use basalt_commands::config::machine::{self, Memory};

/// Logs that the server is starting, before anything is opened.
pub(super) fn starting(config: &Config, file: Option<&Path>, warnings: &[String]) {
    let pid = std::process::id();
    tracing::info!(
        "basalt version={}, redis_version={REDIS_VERSION}, bits={}, pid={pid}, just started",
        env!("CARGO_PKG_VERSION"),
        usize::BITS
    );
    match file {
        Some(_) => tracing::info!("Configuration loaded"),
        None => tracing::warn!(
            "Warning: no config file specified, using the default config. In order to specify a config file use \
             basalt /path/to/basalt.conf"
        ),
    }
    for warning in warnings {
        tracing::warn!("Warning: {warning}");
    }
    tracing::info!(
        "Running mode={}, port={}. PID: {pid}",
        config.mode_name(),
        config.port
    );
}

/// Logs a summary of the running server: threads, memory, persistence, addresses.
pub(super) fn runs(config: &Config, threads: usize, shards: usize, metrics_port: Option<u16>) {
    let cores = std::thread::available_parallelism().map_or(1, usize::from);
    tracing::info!("Threads: {threads}, CPU cores: {cores}, shards of the keyspace: {shards}");
    tracing::info!("Memory: {}", memory(config, machine::memory()));
    tracing::info!("Persistence: {}", persistence(config));
    tracing::info!("Addresses: {}", addresses(config, metrics_port));
}

fn memory(config: &Config, memory: Memory) -> String {
    const MIB: f64 = 1024.0 * 1024.0;
    let whose = match memory.is_limited {
        true => "memory limit of this container",
        false => "memory of this machine",
    };
    let all_mib = memory.bytes as f64 / MIB;
    match config.maxmemory {
        0 => format!("no maxmemory, so data may grow up to the {whose} ({all_mib:.0} MiB)"),
        bytes => format!(
            "maxmemory {:.0} MiB; {whose}: {all_mib:.0} MiB; maxmemory-policy {}",
            bytes as f64 / MIB,
            config.maxmemory_policy.name()
        ),
    }
}

fn persistence(config: &Config) -> String {
    let points: Vec<String> = config
        .save
        .iter()
        .map(|point| format!("{} s and {} changes", point.seconds, point.changes))
        .collect();
    let snapshots = match points.is_empty() {
        true => "no automatic snapshots".to_owned(),
        false => format!(
            "snapshots in {} after {}",
            config.dbfilename,
            points.join(", ")
        ),
    };
    let log = match config.appendonly {
        true => format!(
            "append-only file in {}, appendfsync {}",
            config.appenddirname,
            config.appendfsync.name()
        ),
        false => "no append-only file".to_owned(),
    };
    format!("{snapshots}; {log}; directory {}", config.dir.display())
}

fn addresses(config: &Config, metrics_port: Option<u16>) -> String {
    let at = |addresses: &[String], scheme: &str, port: u16, path: &str| {
        let named = addresses.iter().map(|name| {
            let name = name.strip_prefix('-').unwrap_or(name);
            match name.contains(':') {
                true => format!("{scheme}[{name}]:{port}{path}"),
                false => format!("{scheme}{name}:{port}{path}"),
            }
        });
        named.collect::<Vec<_>>().join(" ")
    };
    let mut all = Vec::new();
    if config.port != 0 {
        all.push(format!("TCP {}", at(&config.bind, "", config.port, "")));
    }
    if config.tls_port != 0 {
        all.push(format!("TLS {}", at(&config.bind, "", config.tls_port, "")));
    }
    if !config.unixsocket.is_empty() {
        all.push(format!("unix socket {}", config.unixsocket));
    }
    let metrics = accept::metrics_addresses(config);
    if let Some(port) = metrics_port {
        let scheme = if config.metrics_tls {
            "https://"
        } else {
            "http://"
        };
        // If the server listens on all addresses, show the loopback address, because a URL needs a specific
        // one.
        let is_any =
            |name: &String| matches!(name.trim_start_matches('-'), "*" | "::*" | "::" | "0.0.0.0");
        let local = ["localhost".to_owned()];
        let named = if metrics.iter().any(is_any) {
            &local
        } else {
            metrics
        };
        let urls = at(named, scheme, port, "/metrics");
        all.push(format!("metrics {urls}"));
        if config.console {
            all.push(format!("console {}", at(named, scheme, port, "/")));
        }
    }
    all.join("; ")
}

/// Logs that everything but the data is ready.
pub(super) fn initialized() {
    tracing::info!("Server initialized");
}

/// Logs that clients are served.
pub(super) fn ready(config: &Config) {
    if config.port != 0 {
        tracing::info!("Ready to accept connections tcp");
    }
    if config.tls_port != 0 {
        tracing::info!("Ready to accept connections tls");
    }
    if !config.unixsocket.is_empty() {
        tracing::info!("Ready to accept connections unix");
    }
}

/// Logs, as the last line, that the server has stopped.
pub(super) fn stopped() {
    tracing::warn!("basalt is now ready to exit, bye bye...");
}
