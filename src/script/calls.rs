//! `redis.call` and `redis.pcall`: a command that a script wants is admitted, run by the host, and its reply converted.

use std::io::IoSlice;

use mlua::{Lua, Value};

use super::api::Cleared;
use super::convert::{self, Arguments, Reader};
use super::errors::{self, Raised};
use super::host::{Call, Host, Interrupted};
use super::vm::{HOST, RUN, Run as Running, freely, interrupt, with_arguments};
use crate::command::Out;
use crate::command::declaration::{Command, Flags, Run};
use crate::command::error::CommandError;
use crate::command::table::{registry, resolve};
use crate::resp::request::{NOTHING_BESIDE, Span};
use crate::structures::lua::{Answer, Direct, Given, Return, answer};

/// What became of a call.
enum Called {
    /// It was run, and its reply is in the output.
    Answered {
        /// It may have changed data.
        writes: bool,
    },
    /// It was not admitted.
    Refused(String),
    /// The script ends.
    Interrupted(Interrupted),
}

/// What a script may do.
#[derive(Clone, Copy)]
struct Bounds {
    is_read_only: bool,
    is_free_to_grow: bool,
}

/// What is left to be done of a call for which a [`Return`] is not enough.
#[derive(Default)]
pub(super) enum Unfinished {
    /// The reply in the output is converted.
    #[default]
    Reply,
    /// The script hears of an error.
    Failed {
        /// The error reply.
        text: Vec<u8>,
        /// The statistics know of it.
        is_counted: bool,
    },
    /// The script ends.
    Interrupted(Interrupted),
}

/// `redis.call`, or `redis.pcall`, as Lua calls it. Errors are raised by the one, and returned by the other.
pub(super) struct Calling<const IS_RAISING: bool>;

impl<const IS_RAISING: bool> Direct for Calling<IS_RAISING> {
    fn call(given: &Given<'_>) -> Return {
        with_arguments(|arguments| {
            given.iter().for_each(|argument| arguments.take(argument));
            let answer = start(arguments, IS_RAISING);
            // Whoever comes next finds none.
            arguments.clear();
            answer
        })
    }
}

/// Runs a command.
fn start(arguments: &Arguments, is_raising: bool) -> Return {
    RUN.with(|run| {
        if let Some(interrupted) = run.interrupted.get() {
            return put_off(run, Unfinished::Interrupted(interrupted));
        }
        if let Err(text) = check_arguments(arguments) {
            return tell_error(run, text.as_bytes(), false);
        }
        let mut out = run.out.borrow_mut();
        out.clear();
        out.set_protocol(run.protocol.get());
        let bounds = Bounds {
            is_read_only: run.is_read_only.get(),
            is_free_to_grow: run.is_free_to_grow.get(),
        };
        let (data, spans) = (&arguments.data, &arguments.spans);
        let called =
            HOST.with(|place| place.with(|host| dispatch(host, data, spans, bounds, &mut out)));
        let Some(Called::Answered { writes }) = called else {
            return match called {
                Some(Called::Interrupted(interrupted)) => {
                    put_off(run, Unfinished::Interrupted(interrupted))
                }
                Some(Called::Refused(text)) => tell_error(run, text.as_bytes(), true),
                _ => {
                    let text = b"redis.call can only be called inside a script invocation";
                    tell_error(run, text, false)
                }
            };
        };
        if writes {
            run.is_free_to_grow.set(true);
        }
        let reply = out.as_slice();
        if let Some(answer) = reply.and_then(convert::at_once) {
            return answer;
        }
        if is_raising
            && let Some(reply) = reply
            && reply.first() == Some(&b'-')
        {
            let end = reply.iter().position(|byte| *byte == b'\r');
            return tell_error(run, &reply[..end.unwrap_or(reply.len())], true);
        }
        put_off(run, Unfinished::Reply)
    })
}

/// Leaves the rest of a call to the function that can do it.
#[cold]
fn put_off(run: &Running, unfinished: Unfinished) -> Return {
    run.unfinished.set(unfinished);
    Return::otherwise()
}

/// The script hears of an error.
#[cold]
fn tell_error(run: &Running, text: &[u8], is_counted: bool) -> Return {
    let text = errors::with_code(text);
    put_off(run, Unfinished::Failed { text, is_counted })
}

/// Finishes a call.
pub(super) fn finish(lua: &Lua, is_raising: bool) -> mlua::Result<Answer> {
    RUN.with(|run| match run.unfinished.take() {
        Unfinished::Interrupted(interrupted) => Err(interrupt(interrupted)),
        Unfinished::Failed { text, is_counted } => fail(lua, is_raising, text, is_counted),
        Unfinished::Reply => {
            let out = run.out.borrow();
            let joined;
            let reply = match out.as_slice() {
                Some(reply) => reply,
                None => {
                    joined = join(&out);
                    &joined
                }
            };
            let mut reader = Reader::new(reply);
            if let Some(text) = reader.text() {
                return answer(lua, text);
            }
            freely(lua, reply.len(), || reader.value(lua)).map(Answer::from)
        }
    })
}

fn check_arguments(arguments: &Arguments) -> Result<(), &'static str> {
    if arguments.is_spoiled {
        Err("Lua redis lib command arguments must be strings or integers")
    } else if arguments.spans.is_empty() {
        Err("Please specify at least one argument for this redis lib call")
    } else {
        Ok(())
    }
}

#[cold]
fn fail(lua: &Lua, is_raising: bool, text: Vec<u8>, is_counted: bool) -> mlua::Result<Answer> {
    if is_raising {
        return Err(Raised::Reply { text, is_counted }.into());
    }
    errors::table(lua, &text, is_counted).map(|table| Value::Table(table).into())
}

fn dispatch(
    host: &mut (dyn Host + '_),
    data: &[u8],
    spans: &[Span],
    bounds: Bounds,
    out: &mut Out,
) -> Called {
    let argument = |at: usize| spans[at].bytes(data, &NOTHING_BESIDE);
    let command = find(spans.len(), &argument);
    if let Some(text) = refusal(host, command, spans.len(), bounds) {
        return refuse(host, command, text);
    }
    let Some(command) = command else {
        return Called::Answered { writes: false };
    };
    let call = Call {
        command,
        data,
        spans,
    };
    match host.call(&call, out) {
        Ok(()) => Called::Answered {
            writes: command.is_write(),
        },
        Err(interrupted) => Called::Interrupted(interrupted),
    }
}

#[cold]
fn refuse(host: &mut (dyn Host + '_), command: Option<&'static Command>, text: String) -> Called {
    host.note_refused(command, &errors::with_code(text.as_bytes()));
    Called::Refused(text)
}

/// The row that some arguments name.
fn find<'a>(count: usize, argument: &dyn Fn(usize) -> &'a [u8]) -> Option<&'static Command> {
    let command = registry().find(argument(0))?;
    if command.children().is_empty() || count < 2 {
        return Some(command);
    }
    let found = resolve(command, Some(argument(1)));
    let is_lost = std::ptr::eq(found, command) && matches!(command.run, Run::Container(_));
    (!is_lost).then_some(found)
}

/// Why a script may not call this, if it may not.
fn refusal(
    host: &mut (dyn Host + '_),
    command: Option<&'static Command>,
    count: usize,
    bounds: Bounds,
) -> Option<String> {
    let Some(command) = command else {
        return refused("Unknown Redis command called from script");
    };
    if !command.accepts(count) || matches!(command.run, Run::Container(_)) {
        return refused("Wrong number of args calling Redis command from script");
    }
    let is_allowed = !command.flags.has(Flags::NOSCRIPT)
        || command.flags.has(Flags::SCRIPTS_MAY)
        || (host.server().allows_every_command_in_scripts()
            && !matches!(command.run, Run::Script(_) | Run::Transaction(_)));
    if !is_allowed {
        return refused("This Redis command is not allowed from script");
    }
    if bounds.is_read_only && command.flags.any(Flags::WRITE.or(Flags::MAY_REPLICATE)) {
        return refused("Write commands are not allowed from read-only scripts.");
    }
    if command.is_write() && !bounds.is_free_to_grow && host.config().lacks_replicas() {
        return refused_with(&CommandError::NoReplicas);
    }
    if command.flags.has(Flags::DENYOOM) && !bounds.is_free_to_grow && !host.has_room() {
        return refused_with(&CommandError::OutOfMemory);
    }
    None
}

#[cold]
fn refused(why: &str) -> Option<String> {
    Some(why.to_owned())
}

#[cold]
fn refused_with(error: &CommandError) -> Option<String> {
    Some(format!("-{}", error.text()))
}

/// `redis.acl_check_cmd`: there is one user, who may do everything that exists.
pub(super) fn check_permission(_: &Lua) -> mlua::Result<Value> {
    let _cleared = Cleared;
    if let Err(text) = with_arguments(|arguments| check_arguments(arguments)) {
        return Err(errors::reply(text));
    }
    let is_there = with_arguments(|arguments| {
        let argument = |at: usize| arguments.spans[at].bytes(&arguments.data, &NOTHING_BESIDE);
        find(arguments.spans.len(), &argument).is_some()
    });
    if !is_there {
        return Err(errors::reply(
            "Invalid command passed to redis.acl_check_cmd()",
        ));
    }
    Ok(Value::Boolean(true))
}

/// A reply with shared blocks in it, in one piece.
#[cold]
fn join(out: &Out) -> Vec<u8> {
    let mut slices: Vec<IoSlice<'_>> = Vec::with_capacity(1024);
    let mut whole = Vec::with_capacity(out.len_bytes());
    out.io_slices(&mut slices);
    for slice in &slices {
        whole.extend_from_slice(slice);
    }
    if whole.len() == out.len_bytes() {
        return whole;
    }
    // More pieces than usual.
    let mut slices: Vec<IoSlice<'_>> = Vec::with_capacity(out.len_bytes() / 1024 + 2);
    out.io_slices(&mut slices);
    slices
        .iter()
        .flat_map(|slice| slice.iter().copied())
        .collect()
}
