//! Commands that took long; filled in by the telemetry family.

use crate::config::Config;

/// The slow log.
#[derive(Default)]
pub struct Slowlog;

impl Slowlog {
    /// Adds a command.
    pub fn add<'a>(
        &self,
        _: &Config,
        _: u64,
        _: u64,
        _: impl Iterator<Item = &'a [u8]>,
        _: &str,
        _: &[u8],
    ) {
    }
}
