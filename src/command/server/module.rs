//! MODULE: there are none. What Redis 8 has as modules is built in here, under the names of its commands, and clients
//! that look for a module find out from COMMAND.

use super::super::context::SessionCx;
use super::super::declaration::{Command, CommandResult, Flags, Group};
use super::super::{Args, Out};
use super::reply_help;

const GROUP: Group = Group::Server;

/// `MODULE subcommand`
pub(super) static MODULE: Command = Command::new("module", GROUP, -2)
    .flags(Flags::UNLISTED)
    .doc("4.0.0", "", "Holds the commands for modules.")
    .complexity("Depends on subcommand.")
    .container(&[&HELP, &LIST]);

/// `MODULE LIST`
static LIST: Command = Command::sub("module|list", "list", GROUP, 2)
    .flags(Flags::ADMIN.or(Flags::NOSCRIPT))
    .doc("4.0.0", "", "Answers the modules that are loaded.")
    .complexity("O(N) where N is the number of loaded modules.")
    .tips(&["nondeterministic_output_order"])
    .repeatable()
    .on_session(list);

fn list(_: &mut SessionCx<'_>, _: &Args<'_>, out: &mut Out) -> CommandResult {
    out.array(0);
    Ok(())
}

/// `MODULE HELP`
static HELP: Command = Command::sub("module|help", "help", GROUP, 2)
    .flags(Flags::LOADING.or(Flags::STALE))
    .doc("5.0.0", "", "Explains the subcommands of MODULE.")
    .repeatable()
    .on_session(help);

fn help(_: &mut SessionCx<'_>, _: &Args<'_>, out: &mut Out) -> CommandResult {
    let lines = [
        "LIST",
        "    The modules that are loaded: none, as none can be.",
    ];
    reply_help("MODULE", &lines, out);
    Ok(())
}
