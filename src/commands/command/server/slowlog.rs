//! SLOWLOG: the log of slow commands; COMMANDLOG: that log, and those of commands with large requests or replies.

use super::super::context::SessionCx;
use super::super::declaration::{Command, CommandResult, Flags, Group};
use super::super::error::CommandError;
use super::super::host::{CommandLog, SlowlogEntry};
use super::super::{Args, Out};

const GROUP: Group = Group::Server;
const FLAGS: Flags = Flags::ADMIN.or(Flags::LOADING).or(Flags::STALE);

/// Number of entries that SLOWLOG GET returns by default.
const COUNT_DEFAULT: usize = 10;

/// `SLOWLOG subcommand`
pub(super) static SLOWLOG: Command = Command::new("slowlog", GROUP, -2)
    .doc("2.2.12", "", "Groups the commands for the slow log.")
    .complexity("Depends on subcommand.")
    .container(&[&GET, &HELP, &LEN, &RESET]);

/// `SLOWLOG GET [count]`
static GET: Command = Command::sub("slowlog|get", "get", GROUP, -2)
    .flags(FLAGS)
    .doc(
        "2.2.12",
        "[count]",
        "Returns entries of the slow log, the newest first.",
    )
    .complexity("O(N) where N is the number of entries returned")
    .history(&[(
        "4.0.0",
        "Added client IP address, port and name to the reply.",
    )])
    .tips(&["request_policy:all_nodes", "nondeterministic_output"])
    .repeatable()
    .on_session(get);

fn get(cx: &mut SessionCx<'_>, args: &Args<'_>, out: &mut Out) -> CommandResult {
    let count = match args.len() {
        2 => COUNT_DEFAULT,
        3 => match args.integer(2) {
            Ok(-1) => usize::MAX,
            Ok(count) if count >= 0 => count as usize,
            _ => return Err("ERR count should be greater than or equal to -1".into()),
        },
        _ => {
            return Err(
                "ERR unknown subcommand or wrong number of arguments for 'GET'. Try SLOWLOG HELP."
                    .into(),
            );
        }
    };
    reply_entries(&cx.server.command_log(CommandLog::Slow, count), out);
    Ok(())
}

fn reply_entries(entries: &[SlowlogEntry], out: &mut Out) {
    out.array(entries.len());
    for entry in entries {
        out.array(6);
        out.integer(entry.id as i64);
        out.integer(entry.at_s as i64);
        out.integer(entry.cost as i64);
        out.array(entry.arguments.len());
        for argument in &entry.arguments {
            out.bulk(argument);
        }
        out.bulk(entry.address.as_bytes());
        out.bulk(entry.name.as_bytes());
    }
}

/// `SLOWLOG LEN`
static LEN: Command = Command::sub("slowlog|len", "len", GROUP, 2)
    .flags(FLAGS)
    .doc(
        "2.2.12",
        "",
        "Returns the number of entries of the slow log.",
    )
    .tips(&[
        "request_policy:all_nodes",
        "response_policy:agg_sum",
        "nondeterministic_output",
    ])
    .repeatable()
    .on_session(len);

fn len(cx: &mut SessionCx<'_>, _: &Args<'_>, out: &mut Out) -> CommandResult {
    out.integer(cx.server.command_log_len(CommandLog::Slow) as i64);
    Ok(())
}

/// `SLOWLOG RESET`
static RESET: Command = Command::sub("slowlog|reset", "reset", GROUP, 2)
    .flags(FLAGS)
    .doc("2.2.12", "", "Removes all entries from the slow log.")
    .complexity("O(N) where N is the number of entries in the slowlog")
    .tips(&["request_policy:all_nodes", "response_policy:all_succeeded"])
    .on_session(reset);

fn reset(cx: &mut SessionCx<'_>, _: &Args<'_>, out: &mut Out) -> CommandResult {
    cx.server.command_log_reset(CommandLog::Slow);
    out.ok();
    Ok(())
}

/// `SLOWLOG HELP`
static HELP: Command = Command::sub("slowlog|help", "help", GROUP, 2)
    .doc("6.2.0", "", "Explains the subcommands of SLOWLOG.")
    .on_help(&[
        "GET [<count>]",
        "    Return entries, the newest first (default: 10; -1 for all).",
        "    An entry has an id, a time, a duration in microseconds, the arguments,",
        "    and the address and name of the client.",
        "LEN",
        "    Return the number of entries.",
        "RESET",
        "    Remove all entries.",
    ]);

/// `COMMANDLOG subcommand`
pub(super) static COMMANDLOG: Command = Command::new("commandlog", GROUP, -2)
    .doc("8.1.0", "", "Groups the commands for the logs of commands.")
    .complexity("Depends on subcommand.")
    .container(&[&LOG_GET, &LOG_HELP, &LOG_LEN, &LOG_RESET]);

/// Parses the word for a log: SLOW, LARGE-REQUEST or LARGE-REPLY.
fn named(args: &Args<'_>, at: usize) -> Result<CommandLog, CommandError> {
    match () {
        () if args.is(at, "slow") => Ok(CommandLog::Slow),
        () if args.is(at, "large-request") => Ok(CommandLog::LargeRequest),
        () if args.is(at, "large-reply") => Ok(CommandLog::LargeReply),
        () => {
            Err("ERR type should be one of the following: slow, large-request, large-reply".into())
        }
    }
}

/// `COMMANDLOG GET count <SLOW | LARGE-REQUEST | LARGE-REPLY>`
static LOG_GET: Command = Command::sub("commandlog|get", "get", GROUP, 4)
    .flags(FLAGS)
    .doc(
        "8.1.0",
        "count <SLOW | LARGE-REQUEST | LARGE-REPLY>",
        "Returns entries of a log of commands, the newest first.",
    )
    .complexity("O(N) where N is the number of entries returned")
    .tips(&["request_policy:all_nodes", "nondeterministic_output"])
    .repeatable()
    .on_session(log_get);

fn log_get(cx: &mut SessionCx<'_>, args: &Args<'_>, out: &mut Out) -> CommandResult {
    let count = match args.integer(2) {
        Ok(-1) => usize::MAX,
        Ok(count) if count >= 0 => count as usize,
        _ => return Err("ERR count should be greater than or equal to -1".into()),
    };
    reply_entries(&cx.server.command_log(named(args, 3)?, count), out);
    Ok(())
}

/// `COMMANDLOG LEN <SLOW | LARGE-REQUEST | LARGE-REPLY>`
static LOG_LEN: Command = Command::sub("commandlog|len", "len", GROUP, 3)
    .flags(FLAGS)
    .doc(
        "8.1.0",
        "<SLOW | LARGE-REQUEST | LARGE-REPLY>",
        "Returns the number of entries of a log of commands.",
    )
    .tips(&[
        "request_policy:all_nodes",
        "response_policy:agg_sum",
        "nondeterministic_output",
    ])
    .repeatable()
    .on_session(log_len);

fn log_len(cx: &mut SessionCx<'_>, args: &Args<'_>, out: &mut Out) -> CommandResult {
    out.integer(cx.server.command_log_len(named(args, 2)?) as i64);
    Ok(())
}

/// `COMMANDLOG RESET <SLOW | LARGE-REQUEST | LARGE-REPLY>`
static LOG_RESET: Command = Command::sub("commandlog|reset", "reset", GROUP, 3)
    .flags(FLAGS)
    .doc(
        "8.1.0",
        "<SLOW | LARGE-REQUEST | LARGE-REPLY>",
        "Removes all entries from a log of commands.",
    )
    .complexity("O(N) where N is the number of entries in the commandlog")
    .tips(&["request_policy:all_nodes", "response_policy:all_succeeded"])
    .on_session(log_reset);

fn log_reset(cx: &mut SessionCx<'_>, args: &Args<'_>, out: &mut Out) -> CommandResult {
    cx.server.command_log_reset(named(args, 2)?);
    out.ok();
    Ok(())
}

/// `COMMANDLOG HELP`
static LOG_HELP: Command = Command::sub("commandlog|help", "help", GROUP, 2)
    .doc("8.1.0", "", "Explains the subcommands of COMMANDLOG.")
    .on_help(&[
        "GET <count> <type>",
        "    Return entries of a log, the newest first (-1 for all). The types are slow, large-request, large-reply.",
        "    An entry has an id, a time, the microseconds or bytes that exceeded the threshold, the arguments,",
        "    and the address and name of the client.",
        "LEN <type>",
        "    Return the number of entries.",
        "RESET <type>",
        "    Remove all entries.",
    ]);
