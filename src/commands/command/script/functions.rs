//! FUNCTION: loads, lists, dumps and deletes libraries of functions.

use super::super::context::SessionCx;
use super::super::declaration::{Command, CommandResult, Flags, always};
use super::super::{Args, Out};
use super::GROUP;
use crate::command::error::{CommandError, shown, shown_name};
use crate::command::host::scripts::{ExecutionKind, LibraryView, Restore};

const FLAGS: Flags = Flags::NOSCRIPT;

/// `FUNCTION subcommand`
pub(super) static FUNCTION: Command = Command::new("function", GROUP, -2)
    .doc("7.0.0", "", "Groups the commands that manage functions.")
    .complexity("Depends on subcommand.")
    .container(&[
        &DELETE, &DUMP, &FLUSH, &HELP, &KILL, &LIST, &LOAD, &RESTORE, &STATS,
    ]);

const ALL_SHARDS: &[&str] = &["request_policy:all_shards", "response_policy:all_succeeded"];

/// `FUNCTION DELETE library-name`
static DELETE: Command = Command::sub("function|delete", "delete", GROUP, 3)
    .flags(FLAGS.or(Flags::WRITE))
    .doc(
        "7.0.0",
        "library-name",
        "Deletes a library and its functions.",
    )
    .tips(ALL_SHARDS)
    .on_session(delete);

fn delete(cx: &mut SessionCx<'_>, args: &Args<'_>, out: &mut Out) -> CommandResult {
    cx.change_libraries(args, |scripts, log| {
        scripts.delete_library(args.get(2), log)
    })?;
    out.ok();
    Ok(())
}

/// `FUNCTION DUMP`
static DUMP: Command = Command::sub("function|dump", "dump", GROUP, 2)
    .flags(FLAGS)
    .doc("7.0.0", "", "Returns all libraries as one payload.")
    .complexity("O(N) with the number of functions.")
    .repeatable()
    .on_session(dump);

fn dump(cx: &mut SessionCx<'_>, _: &Args<'_>, out: &mut Out) -> CommandResult {
    out.bulk(&cx.read_libraries(|scripts| scripts.dump_libraries()));
    Ok(())
}

/// `FUNCTION FLUSH [ASYNC|SYNC]`
static FLUSH: Command = Command::sub("function|flush", "flush", GROUP, -2)
    .flags(FLAGS.or(Flags::WRITE))
    .doc("7.0.0", "[ASYNC | SYNC]", "Deletes all libraries.")
    .complexity("O(N) with the number of functions.")
    .tips(ALL_SHARDS)
    .on_session(flush);

fn flush(cx: &mut SessionCx<'_>, args: &Args<'_>, out: &mut Out) -> CommandResult {
    match args.len() {
        2 => {}
        3 if args.is(2, "async") || args.is(2, "sync") => {}
        3 => return Err("ERR FUNCTION FLUSH only supports SYNC|ASYNC option".into()),
        _ => return Err(syntax_error(args)),
    }
    cx.change_libraries(args, |scripts, log| {
        scripts.flush_libraries(log);
        Ok(())
    })?;
    out.ok();
    Ok(())
}

/// Returns the error for too many arguments of a subcommand.
fn syntax_error(args: &Args<'_>) -> CommandError {
    let name = shown_name(args.get(1));
    format!("ERR unknown subcommand or wrong number of arguments for '{name}'. Try FUNCTION HELP.")
        .into()
}

/// `FUNCTION HELP`
static HELP: Command = Command::sub("function|help", "help", GROUP, 2)
    .doc("7.0.0", "", "Explains the subcommands of FUNCTION.")
    .on_help(&[
        "DELETE <LIBRARY NAME>",
        "    Delete a library.",
        "DUMP",
        "    Return all libraries as one payload, for FUNCTION RESTORE.",
        "FLUSH [ASYNC|SYNC]",
        "    Delete all libraries.",
        "KILL",
        "    Stop running functions that have not written yet.",
        "LIST [LIBRARYNAME PATTERN] [WITHCODE]",
        "    List all libraries, or those whose names match, optionally with their code.",
        "LOAD [REPLACE] <FUNCTION CODE>",
        "    Create a library, or replace the library with the same name.",
        "RESTORE <PAYLOAD> [FLUSH|APPEND|REPLACE]",
        "    Restore libraries from a payload. Existing libraries are deleted first (FLUSH), must have other names",
        "    (APPEND, the default), or are replaced by those of the same name (REPLACE).",
        "STATS",
        "    Return the running function and statistics of each engine.",
    ]);

/// `FUNCTION KILL`
static KILL: Command = Command::sub("function|kill", "kill", GROUP, 2)
    .flags(FLAGS.or(Flags::ALLOW_BUSY))
    .doc("7.0.0", "", "Stops running functions.")
    .tips(&["request_policy:all_shards", "response_policy:one_succeeded"])
    .postponed_if(always)
    .on_session(kill);

fn kill(cx: &mut SessionCx<'_>, _: &Args<'_>, out: &mut Out) -> CommandResult {
    cx.server.scripts().kill(ExecutionKind::Function)?;
    out.ok();
    Ok(())
}

/// `FUNCTION LIST [LIBRARYNAME library-name-pattern] [WITHCODE]`
static LIST: Command = Command::sub("function|list", "list", GROUP, -2)
    .flags(FLAGS)
    .doc(
        "7.0.0",
        "[LIBRARYNAME library-name-pattern] [WITHCODE]",
        "Lists the libraries and their functions.",
    )
    .complexity("O(N) with the number of functions.")
    .tips(&["nondeterministic_output_order"])
    .repeatable()
    .on_session(list);

fn list(cx: &mut SessionCx<'_>, args: &Args<'_>, out: &mut Out) -> CommandResult {
    let (mut pattern, mut with_code) = (None, false);
    let mut at = 2;
    while at < args.len() {
        if !with_code && args.is(at, "withcode") {
            with_code = true;
        } else if pattern.is_none() && args.is(at, "libraryname") {
            at += 1;
            if at == args.len() {
                return Err("ERR library name argument was not given".into());
            }
            pattern = Some(args.get(at));
        } else {
            let shown = shown(args.get(at));
            return Err(format!("ERR Unknown argument {shown}").into());
        }
        at += 1;
    }
    let libraries = cx.read_libraries(|scripts| scripts.libraries(pattern));
    out.array(libraries.len());
    for library in &libraries {
        list_one(library, with_code, out);
    }
    Ok(())
}

fn list_one(library: &LibraryView, with_code: bool, out: &mut Out) {
    out.map(if with_code { 4 } else { 3 });
    out.bulk(b"library_name");
    out.bulk(library.name.as_bytes());
    out.bulk(b"engine");
    out.bulk(b"LUA");
    out.bulk(b"functions");
    out.array(library.functions.len());
    for function in &library.functions {
        out.map(3);
        out.bulk(b"name");
        out.bulk(function.name.as_bytes());
        out.bulk(b"description");
        match &function.description {
            Some(text) => out.bulk(text),
            None => out.null(),
        }
        out.bulk(b"flags");
        out.set(function.flags.len());
        for flag in &function.flags {
            out.simple(flag);
        }
    }
    if with_code {
        out.bulk(b"library_code");
        out.bulk(&library.code);
    }
}

/// `FUNCTION LOAD [REPLACE] function-code`
static LOAD: Command = Command::sub("function|load", "load", GROUP, -3)
    .flags(FLAGS.or(Flags::WRITE).or(Flags::DENYOOM))
    .doc("7.0.0", "[REPLACE] function-code", "Creates a library.")
    .complexity("O(1), and the time that its code takes to compile.")
    .tips(ALL_SHARDS)
    .on_session(load);

fn load(cx: &mut SessionCx<'_>, args: &Args<'_>, out: &mut Out) -> CommandResult {
    let last = args.len() - 1;
    let mut may_replace = false;
    for at in 2..last {
        if !args.is(at, "replace") {
            let shown = shown(args.get(at));
            return Err(format!("ERR Unknown option given: {shown}").into());
        }
        may_replace = true;
    }
    let (mut name, bound) = (String::new(), cx.text_bound());
    cx.change_libraries(args, |scripts, log| {
        name = scripts.load_library(args.get(last), may_replace, bound, log)?;
        Ok(())
    })?;
    out.bulk(name.as_bytes());
    Ok(())
}

/// `FUNCTION RESTORE serialized-value [FLUSH|APPEND|REPLACE]`
static RESTORE: Command = Command::sub("function|restore", "restore", GROUP, -3)
    .flags(FLAGS.or(Flags::WRITE).or(Flags::DENYOOM))
    .doc(
        "7.0.0",
        "serialized-value [FLUSH | APPEND | REPLACE]",
        "Restores libraries from a payload.",
    )
    .complexity("O(N) with the number of functions.")
    .tips(ALL_SHARDS)
    .on_session(restore);

fn restore(cx: &mut SessionCx<'_>, args: &Args<'_>, out: &mut Out) -> CommandResult {
    let policy = match args.len() {
        3 => Restore::Append,
        4 if args.is(3, "append") => Restore::Append,
        4 if args.is(3, "flush") => Restore::Flush,
        4 if args.is(3, "replace") => Restore::Replace,
        4 => {
            return Err(
                "ERR Wrong restore policy given, value should be either FLUSH, APPEND or REPLACE."
                    .into(),
            );
        }
        _ => return Err(syntax_error(args)),
    };
    let bound = cx.text_bound();
    cx.change_libraries(args, |scripts, log| {
        scripts.restore_libraries(args.get(2), policy, bound, log)
    })?;
    out.ok();
    Ok(())
}

/// `FUNCTION STATS`
static STATS: Command = Command::sub("function|stats", "stats", GROUP, 2)
    .flags(FLAGS.or(Flags::ALLOW_BUSY))
    .doc(
        "7.0.0",
        "",
        "Returns the running function and statistics of each engine.",
    )
    .tips(&[
        "nondeterministic_output",
        "request_policy:all_shards",
        "response_policy:special",
    ])
    .repeatable()
    .on_session(stats);

fn stats(cx: &mut SessionCx<'_>, _: &Args<'_>, out: &mut Out) -> CommandResult {
    let (libraries, functions) = cx.read_libraries(|scripts| scripts.library_counts());
    let scripts = cx.server.scripts();
    out.map(2);
    out.bulk(b"running_script");
    match scripts.running_function() {
        None => out.null(),
        Some(running) => {
            out.map(3);
            out.bulk(b"name");
            out.bulk(running.name.as_bytes());
            out.bulk(b"command");
            out.array(running.command.len());
            for argument in &running.command {
                out.bulk(argument);
            }
            out.bulk(b"duration_ms");
            out.integer(running.duration_ms as i64);
        }
    }
    out.bulk(b"engines");
    out.map(1);
    out.bulk(b"LUA");
    out.map(2);
    out.bulk(b"libraries_count");
    out.integer(libraries as i64);
    out.bulk(b"functions_count");
    out.integer(functions as i64);
    Ok(())
}
