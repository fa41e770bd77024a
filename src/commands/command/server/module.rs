//! MODULE: there are no modules, and none can be loaded. The modules of Redis 8 are built in here, under the names of
//! their commands; clients that look for a module find out from COMMAND.
//!
//! Clients that `enable-module-command` allows to load modules get the error that loading failed, for any module;
//! others are refused before they get here, see [`Flags::LOADS_MODULES`].

use super::super::context::SessionCx;
use super::super::declaration::{Command, CommandResult, Flags, Group};
use super::super::{Args, Out};
use basalt_core::base::text;

const GROUP: Group = Group::Server;
const CHANGES: Flags = Flags::ADMIN
    .or(Flags::NOSCRIPT)
    .or(Flags::NO_ASYNC_LOADING)
    .or(Flags::LOADS_MODULES);

/// `MODULE subcommand`
pub(super) static MODULE: Command = Command::new("module", GROUP, -2)
    .doc("4.0.0", "", "Groups the commands for modules.")
    .complexity("Depends on subcommand.")
    .container(&[&HELP, &LIST, &LOAD, &LOADEX, &UNLOAD]);

/// `MODULE LIST`
static LIST: Command = Command::sub("module|list", "list", GROUP, 2)
    .flags(Flags::ADMIN.or(Flags::NOSCRIPT))
    .doc("4.0.0", "", "Returns the loaded modules.")
    .complexity("O(N) where N is the number of loaded modules.")
    .tips(&["nondeterministic_output_order"])
    .repeatable()
    .on_session(list);

fn list(_: &mut SessionCx<'_>, _: &Args<'_>, out: &mut Out) -> CommandResult {
    out.array(0);
    Ok(())
}

/// `MODULE LOAD path [arg [arg ...]]`
static LOAD: Command = Command::sub("module|load", "load", GROUP, -3)
    .flags(CHANGES)
    .doc(
        "4.0.0",
        "path [arg [arg ...]]",
        "Returns an error: modules are not supported.",
    )
    .complexity("O(1)")
    .repeatable()
    .on_session(load);

/// `MODULE LOADEX path [CONFIG name value [CONFIG name value ...]] [ARGS args [args ...]]`
static LOADEX: Command = Command::sub("module|loadex", "loadex", GROUP, -3)
    .flags(CHANGES)
    .doc(
        "7.0.0",
        "path [CONFIG <name value> [CONFIG <name value> ...]] [ARGS args [args ...]]",
        "Returns an error: modules are not supported.",
    )
    .complexity("O(1)")
    .repeatable()
    .on_session(load);

fn load(_: &mut SessionCx<'_>, args: &Args<'_>, _: &mut Out) -> CommandResult {
    tracing::warn!(
        "Module {} failed to load: modules are not supported",
        text::quoted(args.get(2))
    );
    Err("ERR Error loading the extension. Please check the server logs.".into())
}

/// `MODULE UNLOAD name`
static UNLOAD: Command = Command::sub("module|unload", "unload", GROUP, 3)
    .flags(CHANGES)
    .doc(
        "4.0.0",
        "name",
        "Returns an error: modules are not supported.",
    )
    .complexity("O(1)")
    .repeatable()
    .on_session(unload);

fn unload(_: &mut SessionCx<'_>, _: &Args<'_>, _: &mut Out) -> CommandResult {
    Err("ERR Error unloading module: no such module with that name".into())
}

/// `MODULE HELP`
static HELP: Command = Command::sub("module|help", "help", GROUP, 2)
    .doc("5.0.0", "", "Explains the subcommands of MODULE.")
    .on_help(&[
        "LIST",
        "    Return an empty list: modules are not supported.",
        "LOAD <path> [<arg> ...]",
        "    Return an error: modules are not supported.",
        "LOADEX <path> [[CONFIG NAME VALUE] [CONFIG NAME VALUE]] [ARGS ...]",
        "    Return an error: modules are not supported.",
        "UNLOAD <name>",
        "    Return an error: modules are not supported.",
    ]);
