//! SCRIPT: management of scripts.

use super::super::context::SessionCx;
use super::super::declaration::{Command, CommandResult, Flags, always};
use super::super::error::CommandError;
use super::super::{Args, Out};
use super::GROUP;
use crate::command::host::scripts::{ExecutionKind, RunView};

const FLAGS: Flags = Flags::NOSCRIPT;

/// `SCRIPT subcommand`
pub(super) static SCRIPT: Command = Command::new("script", GROUP, -2)
    .doc("2.6.0", "", "Groups the commands that manage scripts.")
    .complexity("Depends on subcommand.")
    .container(&[&DEBUG, &EXISTS, &FLUSH, &HELP, &KILL, &LOAD, &SHOW, &STATS]);

/// `SCRIPT DEBUG YES|SYNC|NO`
static DEBUG: Command = Command::sub("script|debug", "debug", GROUP, 3)
    .flags(FLAGS)
    .doc(
        "3.2.0",
        "<YES | SYNC | NO>",
        "Sets whether scripts run in a debugger; only NO is supported.",
    )
    .on_session(debug);

fn debug(_: &mut SessionCx<'_>, args: &Args<'_>, out: &mut Out) -> CommandResult {
    if args.is(2, "no") {
        out.ok();
        return Ok(());
    }
    if args.is(2, "yes") || args.is(2, "sync") {
        return Err("ERR SCRIPT DEBUG is not supported: this server has no Lua debugger".into());
    }
    Err("ERR Use SCRIPT DEBUG YES/SYNC/NO".into())
}

/// `SCRIPT EXISTS sha1 [sha1 ...]`
static EXISTS: Command = Command::sub("script|exists", "exists", GROUP, -3)
    .flags(FLAGS)
    .doc(
        "2.6.0",
        "sha1 [sha1 ...]",
        "Returns whether scripts with the given SHA-1 digests are cached.",
    )
    .complexity("O(N) with the number of scripts asked for.")
    .tips(&[
        "request_policy:all_shards",
        "response_policy:agg_logical_and",
    ])
    .repeatable()
    .on_session(exists);

fn exists(cx: &mut SessionCx<'_>, args: &Args<'_>, out: &mut Out) -> CommandResult {
    out.array(args.len() - 2);
    for sha1 in args.from(2) {
        out.integer(i64::from(cx.server.scripts().exists(sha1)));
    }
    Ok(())
}

/// `SCRIPT FLUSH [ASYNC|SYNC]`
static FLUSH: Command = Command::sub("script|flush", "flush", GROUP, -2)
    .flags(FLAGS)
    .doc(
        "2.6.0",
        "[ASYNC | SYNC]",
        "Removes all scripts from the cache.",
    )
    .complexity("O(N) with the number of scripts.")
    .history(&[(
        "6.2.0",
        "Added the `ASYNC` and `SYNC` flushing mode modifiers.",
    )])
    .tips(&["request_policy:all_nodes", "response_policy:all_succeeded"])
    .on_session(flush);

fn flush(cx: &mut SessionCx<'_>, args: &Args<'_>, out: &mut Out) -> CommandResult {
    let is_understood = match args.len() {
        2 => true,
        3 => args.is(2, "async") || args.is(2, "sync"),
        _ => false,
    };
    if !is_understood {
        return Err("ERR SCRIPT FLUSH only support SYNC|ASYNC option".into());
    }
    cx.server.scripts().flush();
    out.ok();
    Ok(())
}

/// `SCRIPT HELP`
static HELP: Command = Command::sub("script|help", "help", GROUP, 2)
    .doc("5.0.0", "", "Explains the subcommands of SCRIPT.")
    .on_help(&[
        "DEBUG (YES|SYNC|NO)",
        "    Set whether scripts run in a debugger; only NO is supported.",
        "EXISTS <sha1> [<sha1> ...]",
        "    Return for each SHA-1 whether the script is cached.",
        "FLUSH [ASYNC|SYNC]",
        "    Remove all scripts from the cache.",
        "KILL",
        "    Stop running scripts that have not written yet.",
        "LOAD <script>",
        "    Cache a script without running it and return its SHA-1.",
        "SHOW <sha1>",
        "    Return the source of a script.",
        "STATS [<name>]",
        "    Return the scripts that have been running for long, and those that needed more",
        "    shards or time than declared.",
    ]);

/// `SCRIPT SHOW sha1`: from Valkey 8.
static SHOW: Command = Command::sub("script|show", "show", GROUP, 3)
    .flags(FLAGS.or(Flags::STALE).or(Flags::UNLISTED))
    .doc("8.0.0", "sha1", "Returns the source of a script.")
    .repeatable()
    .on_session(show);

fn show(cx: &mut SessionCx<'_>, args: &Args<'_>, out: &mut Out) -> CommandResult {
    let body = cx.server.scripts().body(args.get(2));
    out.bulk(&body.ok_or("NOSCRIPT No matching script.")?);
    Ok(())
}

/// `SCRIPT STATS [name]`: a command of our own.
static STATS: Command = Command::sub("script|stats", "stats", GROUP, -2)
    .flags(FLAGS.or(Flags::ALLOW_BUSY).or(Flags::UNLISTED))
    .doc(
        "7.2.0",
        "[name]",
        "Returns long-running scripts, and scripts that needed more shards or time than declared.",
    )
    .complexity("O(N log N) with the number of such scripts.")
    .repeatable()
    .on_session(stats);

fn stats(cx: &mut SessionCx<'_>, args: &Args<'_>, out: &mut Out) -> CommandResult {
    if args.len() > 3 {
        return Err(CommandError::Arity("script|stats"));
    }
    let name = (args.len() == 3).then(|| args.get(2));
    let scripts = cx.server.scripts();
    out.map(2);
    out.bulk(b"running");
    let is_meant = |run: &RunView| name.is_none_or(|name| run.name.eq_ignore_ascii_case(name));
    let mut running = scripts.running();
    running.retain(is_meant);
    out.array(running.len());
    running.iter().for_each(|run| show_run(run, out));
    out.bulk(b"scripts");
    let all = scripts.statistics(name);
    out.array(all.len());
    for script in all {
        out.map(7);
        out.bulk(b"name");
        out.bulk(&script.name);
        for (field, figure) in [
            ("runs", script.runs),
            ("shards-extended", script.extended),
            ("reruns", script.reruns),
            ("slow", script.slow),
            ("wide", script.wide),
            ("learned-keys", script.learned_keys),
        ] {
            out.bulk(field.as_bytes());
            out.integer(figure as i64);
        }
    }
    Ok(())
}

fn show_run(run: &RunView, out: &mut Out) {
    out.map(6);
    out.bulk(b"kind");
    out.bulk(run.kind.name().as_bytes());
    out.bulk(b"name");
    out.bulk(&run.name);
    out.bulk(b"client-id");
    out.integer(run.client as i64);
    out.bulk(b"duration-ms");
    out.integer(run.duration_ms as i64);
    out.bulk(b"state");
    out.bulk(run.standing.name().as_bytes());
    out.bulk(b"shards");
    out.array(run.shards.len());
    for shard in &run.shards {
        out.integer(i64::from(*shard));
    }
}

/// `SCRIPT KILL`
static KILL: Command = Command::sub("script|kill", "kill", GROUP, 2)
    .flags(FLAGS.or(Flags::ALLOW_BUSY))
    .doc("2.6.0", "", "Stops running scripts.")
    .tips(&["request_policy:all_shards", "response_policy:one_succeeded"])
    .postponed_if(always)
    .on_session(kill);

fn kill(cx: &mut SessionCx<'_>, _: &Args<'_>, out: &mut Out) -> CommandResult {
    cx.server.scripts().kill(ExecutionKind::Script)?;
    out.ok();
    Ok(())
}

/// `SCRIPT LOAD script`
static LOAD: Command = Command::sub("script|load", "load", GROUP, 3)
    .flags(FLAGS.or(Flags::STALE))
    .doc(
        "2.6.0",
        "script",
        "Caches a script without running it and returns its SHA-1.",
    )
    .complexity("O(N) with the length of the script.")
    .tips(&["request_policy:all_nodes", "response_policy:all_succeeded"])
    .repeatable()
    .on_session(load);

fn load(cx: &mut SessionCx<'_>, args: &Args<'_>, out: &mut Out) -> CommandResult {
    let sha1 = cx.server.scripts().load(args.get(2), cx.text_bound())?;
    out.bulk(&sha1);
    Ok(())
}
