//! What the log says of a start and a stop, in the words that tools wait for in redis-server's log.

use std::path::Path;

use crate::config::Config;
use crate::telemetry::info::REDIS_VERSION;

/// Before anything is opened.
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
    tracing::info!("Running mode=standalone, port={}. PID: {pid}", config.port);
}

/// Once all is there but the data.
pub(super) fn initialized() {
    tracing::info!("Server initialized");
}

/// Once clients are served.
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

/// As the last line.
pub(super) fn stopped() {
    tracing::warn!("basalt is now ready to exit, bye bye...");
}
