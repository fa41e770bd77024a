//! The server itself: its configuration, its statistics, its logs and its memory.

mod config;
mod hotkeys;
mod info;
mod latency;
mod memory;
mod module;
mod rewrite;
mod save;
mod slowlog;

use super::declaration::Command;

pub(super) static TABLE: &[&Command] = &[
    &slowlog::COMMANDLOG,
    &config::CONFIG,
    &hotkeys::HOTKEYS,
    &info::INFO,
    &info::LOLWUT,
    &info::TIME,
    &latency::LATENCY,
    &memory::MEMORY,
    &module::MODULE,
    &rewrite::BGREWRITEAOF,
    &save::BGSAVE,
    &save::LASTSAVE,
    &save::SAVE,
    &save::SHUTDOWN,
    &slowlog::SLOWLOG,
];
