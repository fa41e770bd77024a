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
use super::{Args, Out};
use basalt_core::base::lossless;

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

/// Writes the reply of a `… HELP`: a title, the lines of the container, and how to get help.
pub(super) fn reply_help(container: &str, lines: &[&str], out: &mut Out) {
    out.array(lines.len() + 3);
    out.simple(format!(
        "{container} <subcommand> [<arg> [value] [opt] ...]. Subcommands are:"
    ));
    for line in lines {
        out.simple(line);
    }
    out.simple("HELP");
    out.simple("    Print this help.");
}

/// Returns an argument as text that can represent any bytes, see [`lossless`].
pub(super) fn text(args: &Args<'_>, index: usize) -> String {
    lossless::text_of(args.get(index)).into_owned()
}
