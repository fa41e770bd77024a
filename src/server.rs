//! Composition root: builds shards, registries and listeners; starts and stops them in order.

use crate::config::Startup;

/// Serves until it is told to stop; returns the process's exit code.
pub fn run(startup: Startup) -> i32 {
    drop(startup);
    0
}
