//! Scripts and functions in Lua 5.1.
//!
//! ```text
//! host        interface of a running script to the unit that runs it
//! library     the scripts known to the server, by SHA-1; functions/ the function libraries
//! footprint   undeclared keys used by scripts, for prediction
//! running     long-running units, which may be killed
//! stack       threads with stacks for scripts; offload those for units and commands that take long
//! vm          one interpreter per thread; prelude.lua and api its environment; unsandboxed scripts that need no
//!             proxies; memory of interpreters
//! current     state of the running script, for the Rust functions that it calls
//! calls       redis.call; convert replies and values; words its arguments; errors on their way
//! screens     which calls of Lua's own functions are allowed; pattern and texts replacements for long texts
//! json msgpack packing bits random   cjson, cmsgpack, struct, bit, math.random
//! ```
//!
//! [`run`] runs one EVAL, EVALSHA or FCALL for a [`host::Host`]. This module knows no shards, sessions or
//! sockets. It uses the safe interface of `mlua`, and `sys::lua` for the operations that every script needs.

pub mod footprint;
pub mod host;
pub mod library;

mod api;
mod arguments;
mod bits;
mod calls;
mod convert;
mod current;
mod errors;
mod flags;
pub mod functions;
mod json;
mod memory;
mod msgpack;
mod numerals;
pub mod offload;
mod packing;
mod pattern;
mod random;
pub mod running;
mod screens;
pub mod sha;
pub mod stack;
mod texts;
mod unsandboxed;
mod vm;
mod words;

use mlua::Value;

use crate::sys::lua::{Called, attention};
use basalt_commands::command::admission::{self, Candidate, Stage, World};
use basalt_commands::command::declaration::{Command, Flags, Run, ScriptVerb};
use basalt_commands::command::error::CommandError;
use basalt_commands::command::host::scripts as commands;
use basalt_commands::command::{Args, Out};
use basalt_commands::config::values::ClusterMode;
use basalt_core::base::lossless::before_nul;
use basalt_core::base::number;
use basalt_core::resp::reply::Protocol;
use calls::ScriptWorld;
use current::{HOST, RUN};
use flags::ScriptFlags;
use host::{Host, Interrupted};
use library::Library;
use vm::Vm;

pub use memory::{limit_memory, memory_figures};

/// Outcome of a script.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Ended {
    /// Whether the reply is an error.
    pub failed: bool,
    /// Whether the error was already counted in the statistics, because a command that the script called
    /// replied with it.
    pub is_counted: bool,
    /// Why the host ended the script, if it did. After [`Interrupted::Again`] the reply is meaningless.
    pub interrupted: Option<Interrupted>,
}

/// Maximum number of keys and arguments passed to Lua without allocating a list.
const FEW: usize = 16;

/// Runs a script or function for a host and writes its reply.
pub fn run(
    verb: ScriptVerb,
    args: &Args<'_>,
    host: &mut (dyn Host + '_),
    library: &Library,
    out: &mut Out,
) -> Ended {
    stack::check();
    vm::with(|vm| {
        let result = match verb {
            ScriptVerb::Fcall | ScriptVerb::FcallRo => {
                run_function(vm, verb, args, host, library, out)
            }
            _ => run_script(vm, verb, args, host, library, out),
        };
        result.unwrap_or_else(|error| refuse(&error, out))
    })
}

/// Replies with the error because of which the script is not run.
#[cold]
fn refuse(error: &CommandError, out: &mut Out) -> Ended {
    out.error(error.text().as_bytes());
    Ended {
        failed: true,
        ..Ended::default()
    }
}

#[cold]
fn no_script() -> CommandError {
    "NOSCRIPT No matching script. Please use EVAL.".into()
}

#[inline]
fn run_script(
    vm: &mut Vm,
    verb: ScriptVerb,
    args: &Args<'_>,
    host: &mut (dyn Host + '_),
    library: &Library,
    out: &mut Out,
) -> Result<Ended, CommandError> {
    const NO_NUMBER: &str = "ERR value is not an integer or out of range";
    vm.follow(library);
    let is_read_only = matches!(verb, ScriptVerb::EvalRo | ScriptVerb::EvalShaRo);
    let (compiled, key_count) = match verb {
        ScriptVerb::Eval | ScriptVerb::EvalRo => {
            let key_count = key_count(args, NO_NUMBER)?;
            (vm.compiled_for_eval(args.get(1), library)?, key_count)
        }
        _ => {
            if args.get(1).len() != 40 {
                return Err(no_script());
            }
            let key_count = key_count(args, NO_NUMBER)?;
            let found = vm.compiled_by_sha(args.get(1), library)?;
            (found.ok_or_else(no_script)?, key_count)
        }
    };
    begin(compiled.script.flags, is_read_only, host)?;
    with_host(host, args, key_count, |keys, rest| {
        let result = vm.run(&compiled, keys, rest, |text| answer_text(text, out));
        conclude(vm, result, out, || {
            std::str::from_utf8(&compiled.script.hex).unwrap_or_default()
        })
    })
}

#[inline(never)]
fn run_function(
    vm: &mut Vm,
    verb: ScriptVerb,
    args: &Args<'_>,
    host: &mut (dyn Host + '_),
    library: &Library,
    out: &mut Out,
) -> Result<Ended, CommandError> {
    vm.follow(library);
    let function = vm.of_function(args.get(1), &library.functions)?;
    let key_count = key_count(args, "ERR Bad number of keys provided")?;
    begin(function.flags, verb == ScriptVerb::FcallRo, host)?;
    with_host(host, args, key_count, |keys, rest| {
        let result = vm.run_function(&function.callback, keys, rest, |text| {
            answer_text(text, out)
        });
        conclude(vm, result, out, || &function.name)
    })
}

/// Runs a closure with the host accessible to its callbacks, and with keys and other arguments separated.
#[inline]
fn with_host<R>(
    host: &mut (dyn Host + '_),
    args: &Args<'_>,
    key_count: usize,
    run: impl FnOnce(&[&[u8]], &[&[u8]]) -> R,
) -> R {
    let result = HOST.with(|place| place.set(host, || with_texts(args, key_count, run)));
    // Clear the output buffer, as the last reply may have been long.
    RUN.with(|run| run.out.borrow_mut().clear());
    result
}

/// Cleans up a thread that ran scripts before it waits.
pub fn rest() {
    vm::rest();
}

/// Returns a count of removals of scripts and libraries. Interpreters of waiting threads keep removed ones
/// until the next [`rest`].
pub fn departures() -> u64 {
    functions::lost() + library::flushed()
}

/// Prepares a run, if the script or function may run now.
#[inline]
fn begin(
    flags: ScriptFlags,
    is_read_only: bool,
    host: &mut (dyn Host + '_),
) -> Result<(), CommandError> {
    admit(flags, is_read_only, host)?;
    // Scripts without flags may do what scripts could before flags existed.
    if flags.any(ScriptFlags::CROSSES_SLOTS) {
        host.allow_cross_slot();
    }
    RUN.with(|run| {
        run.protocol.set(Protocol::Resp2);
        run.is_read_only
            .set(is_read_only || flags.any(ScriptFlags::NO_WRITES));
        // `make_room` is called only before a script's first write, so that a script may finish its writes.
        run.is_free_to_grow.set(flags.any(ScriptFlags::ALLOW_OOM));
        run.interrupted.set(None);
    });
    Ok(())
}

/// Checks whether a script or function may run, by its declared flags.
#[inline]
fn admit(
    flags: ScriptFlags,
    is_read_only: bool,
    host: &mut (dyn Host + '_),
) -> Result<(), CommandError> {
    let mut world = ScriptWorld {
        host,
        is_read_only,
        is_free_to_grow: false,
        call: None,
    };
    // Most scripts declare nothing, and are not checked.
    if flags.any(ScriptFlags::SILENT) && !world.is_stale() {
        return Ok(());
    }
    if flags.any(ScriptFlags::NO_CLUSTER) && world.host.config().cluster_enabled == ClusterMode::Yes
    {
        return Err("ERR Can not run script on cluster, 'no-cluster' flag is set.".into());
    }
    let candidate = Candidate::together([flags.of_command()]);
    admission::judge(&mut world, candidate, Stage::SCRIPT)
}

/// Splits the arguments after the name into keys and others.
#[inline]
fn with_texts<R>(
    args: &Args<'_>,
    key_count: usize,
    run: impl FnOnce(&[&[u8]], &[&[u8]]) -> R,
) -> R {
    let count = args.len() - 3;
    let (mut few, many): ([&[u8]; FEW], Vec<&[u8]>);
    let texts = if count <= FEW {
        few = [&[]; FEW];
        for (place, text) in few.iter_mut().zip(args.from(3)) {
            *place = text;
        }
        &few[..count]
    } else {
        many = args.from(3).collect();
        &many
    };
    let (keys, rest) = texts.split_at(key_count);
    run(keys, rest)
}

/// Replies with a text returned by the script.
#[inline]
fn answer_text(text: &[u8], out: &mut Out) {
    if RUN.with(|run| run.interrupted.get().is_none()) {
        out.bulk(text);
    }
}

/// Writes the reply of a run whose result is not a text: another value, an error, or an interruption.
#[inline]
fn conclude<'n>(
    vm: &Vm,
    result: mlua::Result<Called<()>>,
    out: &mut Out,
    name: impl Fn() -> &'n str,
) -> Result<Ended, CommandError> {
    let (interrupted, protocol) = RUN.with(|run| (run.interrupted.take(), run.protocol.get()));
    if let Some(interrupted) = interrupted {
        return Ok(end(interrupted, name(), out));
    }
    match result {
        Ok(Called::Text(())) => Ok(Ended::default()),
        Ok(Called::Value(value)) => {
            let mark = out.position();
            let written = attention::running(&vm.lua, || convert::write(&value, protocol, out));
            let interrupted = RUN.with(|run| run.interrupted.take());
            match (written, interrupted) {
                (_, Some(interrupted)) => {
                    out.truncate(mark);
                    Ok(end(interrupted, name(), out))
                }
                (Ok(written), None) => Ok(Ended {
                    failed: written.failed,
                    is_counted: written.is_counted,
                    interrupted: None,
                }),
                (Err(error), None) => Err(no_answer(&error)),
            }
        }
        failed => Ok(fail(failed, name(), out)),
    }
}

#[cold]
fn no_answer(error: &mlua::Error) -> CommandError {
    CommandError::from(format!("ERR {}", errors::plain(error)))
}

/// Replies after the host ended the script.
#[cold]
fn end(interrupted: Interrupted, name: &str, out: &mut Out) -> Ended {
    // Redis uses the same text for functions.
    out.error(format!(
        "ERR Script killed by user with SCRIPT KILL... script: {name}"
    ));
    Ended {
        failed: true,
        interrupted: Some(interrupted),
        ..Ended::default()
    }
}

/// Replies with the error that the script raised.
#[cold]
fn fail(result: mlua::Result<Called<()>>, name: &str, out: &mut Out) -> Ended {
    let is_counted = match result {
        Ok(Called::Failed(value)) => write_failure(name, &value, out),
        Ok(_) => return Ended::default(),
        Err(error) => {
            let why = errors::plain(&error);
            out.error(format!("ERR Error running script {name}, {why}"));
            false
        }
    };
    Ended {
        failed: true,
        is_counted,
        interrupted: None,
    }
}

/// Writes the error of a script, with its position; returns whether it was already counted in the statistics.
fn write_failure(name: &str, value: &Value, out: &mut Out) -> bool {
    let Value::Table(table) = value else {
        let why = match value {
            Value::String(text) => text.as_bytes().iter().copied().take(100).collect(),
            _ => b"execution failure".to_vec(),
        };
        let start = format!("ERR Error running script {name}, ");
        out.error([start.as_bytes(), &why].concat());
        return false;
    };
    let text_of = |field: &str| match table.raw_get(field) {
        Ok(Value::String(text)) => Some(before_nul(&text.as_bytes()).to_vec()),
        Ok(Value::Integer(number)) => Some(number.to_string().into_bytes()),
        Ok(Value::Number(number)) => Some(number.to_string().into_bytes()),
        _ => None,
    };
    let mut text = text_of("err").unwrap_or_else(|| b"(null)".to_vec());
    if let (Some(source), Some(line)) = (text_of("source"), text_of("line")) {
        text.extend_from_slice(format!(" script: {name}, on ").as_bytes());
        text.extend_from_slice(&source);
        text.push(b':');
        text.extend_from_slice(&line);
        text.push(b'.');
    }
    out.error(&text);
    matches!(
        table.raw_get("ignore_error_stats_update"),
        Ok(Value::Boolean(true))
    )
}

/// Returns the declared flags of the script or function that a command names, if the script or function is
/// known.
fn flags_of(command: &Command, args: &Args<'_>, library: &Library) -> Option<ScriptFlags> {
    match command.run {
        Run::Script(ScriptVerb::Eval | ScriptVerb::EvalRo) => {
            flags::of_script(args.get(1)).ok().map(|(flags, _)| flags)
        }
        Run::Script(ScriptVerb::EvalSha | ScriptVerb::EvalShaRo) => {
            library.find(args.get(1)).map(|script| script.flags)
        }
        Run::Script(ScriptVerb::Fcall | ScriptVerb::FcallRo) => {
            let found = library.functions.find(args.get(1));
            found.map(|found| found.flags())
        }
        _ => None,
    }
}

/// Returns the declared flags of the script or function that a command names, as command flags; `None` if it is
/// unknown or declares no flags.
pub fn declared(command: &Command, args: &Args<'_>, library: &Library) -> Option<Flags> {
    let declares = |flags: &ScriptFlags| !flags.any(ScriptFlags::SILENT);
    let flags = flags_of(command, args, library).filter(declares);
    flags.map(ScriptFlags::of_command)
}

/// True if a script may use keys of other slots than those of its declared keys, or is unknown.
pub fn may_cross_slots(command: &Command, args: &Args<'_>, library: &Library) -> bool {
    flags_of(command, args, library).is_none_or(|flags| flags.any(ScriptFlags::CROSSES_SLOTS))
}

/// True if a command may cause changes that must be replicated. For a script, its declared flags are trusted.
pub fn may_write(command: &Command, args: &Args<'_>, library: &Library) -> bool {
    match declared(command, args, library) {
        Some(flags) => flags.has(Flags::WRITE),
        None => command.flags.any(Flags::WRITE.or(Flags::MAY_REPLICATE)),
    }
}

fn key_count(args: &Args<'_>, not_a_number: &'static str) -> Result<usize, CommandError> {
    let count = number::parse_i64(args.get(2)).ok_or(not_a_number)?;
    if count > args.len() as i64 - 3 {
        return Err("ERR Number of keys can't be greater than number of args".into());
    }
    usize::try_from(count).map_err(|_| "ERR Number of keys can't be negative".into())
}

/// The interface of commands that manage scripts.
impl commands::Scripts for Library {
    fn load(&self, body: &[u8], bound: commands::TextBound) -> Result<[u8; 40], CommandError> {
        if let Some(known) = self.known(body) {
            self.keep_loaded(&known, body, bound)?;
            return Ok(known.hex);
        }
        let script = std::sync::Arc::new(vm::with(|vm| vm.check(body))?);
        self.keep_loaded(&script, body, bound)?;
        Ok(script.hex)
    }

    fn exists(&self, sha1: &[u8]) -> bool {
        self.contains(sha1)
    }

    fn body(&self, sha1: &[u8]) -> Option<Vec<u8>> {
        let body = self.find(sha1)?.body()?;
        Some(body.to_vec())
    }

    fn flush(&self) {
        Library::flush(self);
        vm::follow_flush(self);
    }

    fn kill(&self, what: commands::ExecutionKind) -> Result<(), CommandError> {
        self.running.kill(what)
    }

    fn load_library(
        &self,
        code: &[u8],
        may_replace: bool,
        bound: commands::TextBound,
        log: commands::LogChange<'_>,
    ) -> Result<String, CommandError> {
        let name = self.functions.load(code, may_replace, bound, log)?;
        self.fit_evaluated();
        Ok(name)
    }

    fn delete_library(
        &self,
        name: &[u8],
        log: commands::LogChange<'_>,
    ) -> Result<(), CommandError> {
        self.functions.delete(name, log)
    }

    fn flush_libraries(&self, log: commands::LogChange<'_>) {
        self.functions.flush(log);
        vm::follow_flush(self);
    }

    fn libraries_position(&self) -> u64 {
        self.functions.position()
    }

    fn libraries(&self, pattern: Option<&[u8]>) -> Vec<commands::LibraryView> {
        self.functions.views(pattern)
    }

    fn dump_libraries(&self) -> Vec<u8> {
        self.functions.dump()
    }

    fn restore_libraries(
        &self,
        payload: &[u8],
        policy: commands::Restore,
        bound: commands::TextBound,
        log: commands::LogChange<'_>,
    ) -> Result<(), CommandError> {
        self.functions.restore(payload, policy, bound, log)?;
        self.fit_evaluated();
        Ok(())
    }

    fn library_counts(&self) -> (usize, usize) {
        self.functions.counts()
    }

    fn statistics(&self, name: Option<&[u8]>) -> Vec<commands::ScriptStatistics> {
        self.footprints.statistics(name)
    }

    fn running_function(&self) -> Option<commands::FunctionRun> {
        self.running.function()
    }

    fn running(&self) -> Vec<commands::RunView> {
        self.running.views()
    }
}

#[cfg(test)]
mod tests;
