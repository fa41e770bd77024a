//! CONFIG: reads, changes and writes back parameters.

use super::super::context::{After, SessionCx};
use super::super::declaration::{Command, CommandResult, Flags, Group, always};
use super::super::error::CommandError;
use super::super::{Args, Out};
use crate::config::live;
use crate::config::rewrite::AddedParameters;
use basalt_core::base::lossless;

const GROUP: Group = Group::Server;
const FLAGS: Flags = Flags::ADMIN
    .or(Flags::NOSCRIPT)
    .or(Flags::LOADING)
    .or(Flags::STALE);

/// `CONFIG subcommand`
pub(super) static CONFIG: Command = Command::new("config", GROUP, -2)
    .doc(
        "2.0.0",
        "",
        "Groups the commands for the server's configuration.",
    )
    .complexity("Depends on subcommand.")
    .container(&[&GET, &HELP, &RESETSTAT, &REWRITE, &SET]);

/// `CONFIG GET parameter [parameter ...]`
static GET: Command = Command::sub("config|get", "get", GROUP, -3)
    .flags(FLAGS)
    .doc(
        "2.0.0",
        "parameter [parameter ...]",
        "Returns the values of parameters that match patterns.",
    )
    .complexity("O(N) when N is the number of configuration parameters provided")
    .history(&[("7.0.0", "Accepts several parameters in one call")])
    .repeatable()
    .on_session(get);

fn get(cx: &mut SessionCx<'_>, args: &Args<'_>, out: &mut Out) -> CommandResult {
    let patterns: Vec<&[u8]> = args.from(2).collect();
    let rows = live::get(cx.config, &patterns);
    out.map(rows.len());
    for (name, value) in rows {
        out.bulk(&lossless::bytes_of(&name));
        out.bulk(&lossless::bytes_of(&value));
    }
    Ok(())
}

/// `CONFIG SET parameter value [parameter value ...]`
static SET: Command = Command::sub("config|set", "set", GROUP, -4)
    .flags(FLAGS)
    .doc(
        "2.0.0",
        "<parameter value> [parameter value ...]",
        "Changes parameters, all or none.",
    )
    .complexity("O(N) when N is the number of configuration parameters provided")
    .history(&[("7.0.0", "Accepts several parameters in one call.")])
    .tips(&["request_policy:all_nodes", "response_policy:all_succeeded"])
    .hides(is_secret)
    .postponed_if(asks_system)
    .on_session(set);

/// Whether setting one of the parameters makes a call to the operating system.
fn asks_system(args: &Args<'_>) -> bool {
    args.from(2).step_by(2).any(live::asks_system)
}

/// Whether an argument is the value of a parameter that holds a password.
fn is_secret(args: &Args<'_>, index: usize) -> bool {
    index > 2 && !index.is_multiple_of(2) && live::is_sensitive(args.get(index - 1))
}

fn set(cx: &mut SessionCx<'_>, args: &Args<'_>, out: &mut Out) -> CommandResult {
    if !args.len().is_multiple_of(2) {
        return Err(CommandError::Syntax);
    }
    let pairs: Vec<(&[u8], &[u8])> = (2..args.len())
        .step_by(2)
        .map(|at| (args.get(at), args.get(at + 1)))
        .collect();
    cx.server.config_set(&pairs, cx.client.shared.is_local())?;
    if !cx.outbox.is_of_transaction() {
        cx.server.follow_config();
    }
    cx.after = After::Configured;
    out.ok();
    Ok(())
}

/// `CONFIG REWRITE`
static REWRITE: Command = Command::sub("config|rewrite", "rewrite", GROUP, 2)
    .flags(FLAGS)
    .doc(
        "2.8.0",
        "",
        "Writes changed parameters to the configuration file.",
    )
    .tips(&["request_policy:all_nodes", "response_policy:all_succeeded"])
    .postponed_if(always)
    .on_session(rewrite);

fn rewrite(cx: &mut SessionCx<'_>, _: &Args<'_>, out: &mut Out) -> CommandResult {
    cx.server.config_rewrite(AddedParameters::Differing)?;
    out.ok();
    Ok(())
}

/// `CONFIG RESETSTAT`
static RESETSTAT: Command = Command::sub("config|resetstat", "resetstat", GROUP, 2)
    .flags(FLAGS)
    .doc("2.0.0", "", "Resets the statistics that INFO shows.")
    .tips(&["request_policy:all_nodes", "response_policy:all_succeeded"])
    .on_session(resetstat);

fn resetstat(cx: &mut SessionCx<'_>, _: &Args<'_>, out: &mut Out) -> CommandResult {
    cx.server.reset_statistics();
    out.ok();
    Ok(())
}

/// `CONFIG HELP`
static HELP: Command = Command::sub("config|help", "help", GROUP, 2)
    .doc("5.0.0", "", "Explains the subcommands of CONFIG.")
    .on_help(&[
        "GET <pattern>",
        "    Return the parameters whose names match the pattern, and their values.",
        "SET <directive> <value>",
        "    Change parameters, all of them or none.",
        "RESETSTAT",
        "    Reset the statistics that INFO shows.",
        "REWRITE",
        "    Write the changes to the configuration file.",
    ]);
