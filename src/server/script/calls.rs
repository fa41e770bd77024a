//! `redis.call` and `redis.pcall`: admits a script's command, has the host run it, and converts its reply.

use std::io::IoSlice;

use mlua::{Lua, Value};

use super::convert::{self, ReplyReader};
use super::current::{Cleared, HOST, RUN, ScriptRunState, Unfinished, interrupt, with_arguments};
use super::errors::{self, Raised};
use super::host::{Call, Host, Interrupted};
use super::memory::{freely, limit_bytes};
use super::words::Arguments;
use crate::sys::lua::{Direct, Given, Return, ReturnValue, answer};
use basalt_commands::command::Out;
use basalt_commands::command::admission::{self, Stage, World};
use basalt_commands::command::declaration::{Command, Run};
use basalt_commands::command::error::CommandError;
use basalt_commands::command::registry::{registry, resolve};
use basalt_commands::config::Config;
use basalt_core::resp::reply::TOO_LONG;
use basalt_core::resp::request::{NOTHING_BESIDE, Span};

/// Outcome of a call.
enum ScriptCallOutcome {
    /// The command was run, and its reply is in the thread's output buffer (`RUN`).
    Answered {
        /// The command may have changed data.
        writes: bool,
    },
    /// The command was not admitted, with the error.
    Refused(String),
    /// The script must end.
    Interrupted(Interrupted),
}

/// Input of the admission rules: a script, and its client.
pub(super) struct ScriptWorld<'a, 'h> {
    pub(super) host: &'a mut (dyn Host + 'h),
    pub(super) is_read_only: bool,
    /// Whether the script may add data although memory is exhausted, for example because it has already
    /// written.
    pub(super) is_free_to_grow: bool,
    /// The command that the script calls, for the ACL check of the client's user; `None` if it is unknown, or while the
    /// script itself is being admitted.
    pub(super) call: Option<Call<'a>>,
}

impl World for ScriptWorld<'_, '_> {
    fn config(&self) -> &Config {
        self.host.config()
    }

    fn denial(&mut self) -> Option<CommandError> {
        let text = self.host.denial(&self.call?, true)?;
        Some(match text.starts_with("ERR ") {
            true => text.into(),
            false => format!("ERR ACL failure in script: {text}").into(),
        })
    }

    fn is_exempt(&self) -> bool {
        self.is_free_to_grow || self.host.replays()
    }

    fn unsaved_text(&self) -> Option<&'static str> {
        self.host.server().unsaved_text()
    }

    fn lacks_replicas(&self) -> bool {
        let primary = self.host.server().primary();
        primary.lacks_replicas(self.config())
    }

    fn is_read_only_replica(&self) -> bool {
        let (server, config) = (self.host.server(), self.host.config());
        server.is_replica() && config.replica_read_only && !self.host.replays()
    }

    fn is_stale(&self) -> bool {
        let (server, config) = (self.host.server(), self.host.config());
        !config.replica_serve_stale_data && server.lacks_primary() && !self.host.replays()
    }

    fn out_of_memory(&mut self) -> Option<CommandError> {
        match self.host.replays() {
            true => None,
            false => self.host.make_room().err().map(CommandError::from),
        }
    }

    fn is_read_only(&self) -> bool {
        self.is_read_only
    }

    fn lifts_noscript(&self) -> bool {
        self.host.server().allows_every_command_in_scripts()
    }
}

/// `redis.call`, or `redis.pcall`, as called by Lua. The former raises errors, the latter returns them.
pub(super) struct Calling<const IS_RAISING: bool>;

impl<const IS_RAISING: bool> Direct for Calling<IS_RAISING> {
    fn call(given: &Given<'_>) -> Return {
        with_arguments(|arguments| {
            given.iter().for_each(|argument| arguments.take(argument));
            let answer = start(arguments, IS_RAISING);
            // Clear the arguments, so that the next call starts without any.
            arguments.clear();
            answer
        })
    }
}

/// Runs the command of a `redis.call`; [`finish`] handles a reply that cannot be passed to Lua at once.
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
        let (data, spans) = (&arguments.data, &arguments.spans);
        let called = HOST.with(|place| {
            place.with(|host| {
                let world = ScriptWorld {
                    host,
                    is_read_only: run.is_read_only.get(),
                    is_free_to_grow: run.is_free_to_grow.get(),
                    call: None,
                };
                dispatch(world, data, spans, &mut out)
            })
        });
        let Some(ScriptCallOutcome::Answered { writes }) = called else {
            return match called {
                Some(ScriptCallOutcome::Interrupted(interrupted)) => {
                    put_off(run, Unfinished::Interrupted(interrupted))
                }
                Some(ScriptCallOutcome::Refused(text)) => tell_error(run, text.as_bytes(), true),
                _ => {
                    let text = b"redis.call can only be called inside a script invocation";
                    tell_error(run, text, false)
                }
            };
        };
        if writes {
            run.is_free_to_grow.set(true);
        }
        // Replace a reply that is too long: Lua would copy it, and has no memory for that anyway.
        if out.is_too_long() || out.len_bytes() > limit_bytes() {
            out.clear();
            out.error(TOO_LONG);
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

/// Stores the remaining work of a call, which [`finish`] will do.
#[cold]
fn put_off(run: &ScriptRunState, unfinished: Unfinished) -> Return {
    run.unfinished.set(unfinished);
    Return::otherwise()
}

/// Reports an error to the script.
#[cold]
fn tell_error(run: &ScriptRunState, text: &[u8], is_counted: bool) -> Return {
    let text = errors::with_code(text);
    put_off(run, Unfinished::Failed { text, is_counted })
}

/// Does the work that `start` left: converts the reply, raises or returns an error, or ends the script.
pub(super) fn finish(lua: &Lua, is_raising: bool) -> mlua::Result<ReturnValue> {
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
            let mut reader = ReplyReader::new(reply);
            if let Some(text) = reader.text() {
                return answer(lua, text);
            }
            freely(lua, reply.len(), || reader.value(lua)).map(ReturnValue::from)
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
fn fail(lua: &Lua, is_raising: bool, text: Vec<u8>, is_counted: bool) -> mlua::Result<ReturnValue> {
    if is_raising {
        return Err(Raised::Reply { text, is_counted }.into());
    }
    errors::table(lua, &text, is_counted).map(|table| Value::Table(table).into())
}

fn dispatch<'a>(
    mut world: ScriptWorld<'a, '_>,
    data: &'a [u8],
    spans: &'a [Span],
    out: &mut Out,
) -> ScriptCallOutcome {
    let argument = |at: usize| spans[at].bytes(data, &NOTHING_BESIDE);
    let found = find(spans.len(), &argument);
    world.call = found.map(|command| Call {
        command,
        data,
        spans,
    });
    let command = match admit(&mut world, found, spans.len()) {
        Ok(command) => command,
        Err(error) => return refuse(world.host, found, &error),
    };
    let call = Call {
        command,
        data,
        spans,
    };
    match world.host.call(&call, out) {
        Ok(()) => ScriptCallOutcome::Answered {
            writes: command.is_write(),
        },
        Err(interrupted) => ScriptCallOutcome::Interrupted(interrupted),
    }
}

#[cold]
fn refuse(
    host: &mut (dyn Host + '_),
    command: Option<&'static Command>,
    error: &CommandError,
) -> ScriptCallOutcome {
    let text = format!("-{}", error.text());
    host.note_refused(command, &errors::with_code(text.as_bytes()));
    ScriptCallOutcome::Refused(text)
}

/// Finds the command or subcommand that these arguments name.
fn find<'a>(count: usize, argument: &dyn Fn(usize) -> &'a [u8]) -> Option<&'static Command> {
    let command = registry().find(argument(0))?;
    if command.children().is_empty() || count < 2 {
        return Some(command);
    }
    let found = resolve(command, Some(argument(1)));
    let is_lost = std::ptr::eq(found, command) && matches!(command.run, Run::Container(_));
    (!is_lost).then_some(found)
}

/// Returns the command, if a script may call it with `count` arguments.
#[inline]
fn admit(
    world: &mut ScriptWorld<'_, '_>,
    command: Option<&'static Command>,
    count: usize,
) -> Result<&'static Command, CommandError> {
    let Some(command) = command else {
        return Err("ERR Unknown Redis command called from script".into());
    };
    if !command.accepts(count) || matches!(command.run, Run::Container(_)) {
        return Err("ERR Wrong number of args calling Redis command from script".into());
    }
    admission::judge(world, command, Stage::CALL)?;
    Ok(command)
}

/// `redis.acl_check_cmd`: returns whether the user of the script's client may run a command.
pub(super) fn check_permission(_: &Lua) -> mlua::Result<Value> {
    let _cleared = Cleared;
    if let Err(text) = with_arguments(|arguments| check_arguments(arguments)) {
        return Err(errors::reply(text));
    }
    let is_allowed = with_arguments(|arguments| {
        let (data, spans) = (&arguments.data[..], &arguments.spans[..]);
        let argument = |at: usize| spans[at].bytes(data, &NOTHING_BESIDE);
        let command = find(spans.len(), &argument)?;
        let call = Call {
            command,
            data,
            spans,
        };
        let denial = HOST.with(|place| place.with(|host| host.denial(&call, false)));
        Some(!matches!(denial, Some(Some(_))))
    });
    match is_allowed {
        Some(is_allowed) => Ok(Value::Boolean(is_allowed)),
        None => Err(errors::reply(
            "Invalid command passed to redis.acl_check_cmd()",
        )),
    }
}

/// Joins a reply with shared blocks into one buffer.
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
    // A large reply consists of many slices, so allocate the list for all of them.
    let mut slices: Vec<IoSlice<'_>> = Vec::with_capacity(out.len_bytes() / 1024 + 2);
    out.io_slices(&mut slices);
    slices
        .iter()
        .flat_map(|slice| slice.iter().copied())
        .collect()
}
