//! The `redis` table, and the functions used by the prelude.
//!
//! ```text
//! call pcall                       implemented in calls.rs
//! error_reply status_reply sha1hex log setresp set_repl replicate_commands breakpoint debug acl_check_cmd
//! register_function                only while a library is being loaded
//! ```

use mlua::{Function, Lua, MultiValue, Table, Value};

use super::calls::{self, Calling};
use super::current::{ArgumentTaker, HOST, RUN, STEP_BYTES, look};
use super::errors;
use super::numerals::truncated;
use super::sha;
use crate::sys::lua::{LuaCallArguments, direct, naming};
use crate::telemetry::process;
use basalt_core::base::lossless::before_nul;
use basalt_core::resp::reply::Protocol;
use basalt_engine::record::Audience;

/// The Redis version reported to scripts, as `redis.REDIS_VERSION` and as a number.
const VERSION: (&str, i64) = ("7.4.0", 0x0007_0400);

/// The version of this server.
const OWN_VERSION: &str = env!("CARGO_PKG_VERSION");

/// The levels of `redis.log`.
const LEVELS: [&str; 4] = ["LOG_DEBUG", "LOG_VERBOSE", "LOG_NOTICE", "LOG_WARNING"];

/// Names and bit masks for `redis.set_repl`.
const REPLICATE: [(&str, i64); 5] = [
    ("REPL_NONE", 0),
    ("REPL_AOF", 1),
    ("REPL_SLAVE", 2),
    ("REPL_REPLICA", 2),
    ("REPL_ALL", 3),
];

/// Installs the `redis` table, and the functions used by the prelude.
pub(super) fn install(lua: &Lua, native: &Table, libraries: &Table) -> mlua::Result<()> {
    install_natives(lua, native)?;
    let redis = lua.create_table()?;
    common(lua, &redis)?;
    let finish = |is_raising| lua.create_function(move |lua, ()| calls::finish(lua, is_raising));
    redis.raw_set("call", direct::<Calling<true>>(lua, &finish(true)?)?)?;
    redis.raw_set("pcall", direct::<Calling<false>>(lua, &finish(false)?)?)?;
    redis.raw_set("sha1hex", lua.create_function(sha1hex)?)?;
    redis.raw_set("error_reply", lua.create_function(error_reply)?)?;
    redis.raw_set("status_reply", lua.create_function(status_reply)?)?;
    redis.raw_set("setresp", lua.create_function(set_protocol)?)?;
    redis.raw_set("set_repl", lua.create_function(set_replication)?)?;
    redis.raw_set(
        "acl_check_cmd",
        lua.create_function(|lua, _: LuaCallArguments<ArgumentTaker>| {
            calls::check_permission(lua)
        })?,
    )?;
    for (name, bits) in REPLICATE {
        redis.raw_set(name, bits)?;
    }
    // Functions of libraries get all entries defined so far; scripts of EVAL get a few more.
    let function_redis = lua.create_table()?;
    for pair in redis.pairs::<Value, Value>() {
        let (name, value) = pair?;
        function_redis.raw_set(name, value)?;
    }
    native.raw_set("function_redis", function_redis)?;
    redis.raw_set(
        "replicate_commands",
        lua.create_function(|_, _: MultiValue| Ok(true))?,
    )?;
    redis.raw_set(
        "breakpoint",
        lua.create_function(|_, _: MultiValue| Ok(false))?,
    )?;
    redis.raw_set("debug", lua.create_function(|_, _: MultiValue| Ok(()))?)?;
    // Valkey's name for the same table.
    libraries.raw_set("server", &redis)?;
    libraries.raw_set("redis", redis)?;
    let os = lua.create_table()?;
    os.raw_set(
        "clock",
        lua.create_function(|_, _: MultiValue| Ok(processor_seconds()))?,
    )?;
    libraries.raw_set("os", os)?;

    let loading = lua.create_table()?;
    common(lua, &loading)?;
    loading.raw_set(
        "register_function",
        lua.create_function(super::functions::compiled::register)?,
    )?;
    native.raw_set("loading_redis", loading)
}

/// `os.clock`: the CPU time used by the server, in seconds.
fn processor_seconds() -> f64 {
    process::cpu_ns() as f64 / 1e9
}

/// Installs the entries that are available even while a library is loaded.
fn common(lua: &Lua, redis: &Table) -> mlua::Result<()> {
    redis.raw_set("log", lua.create_function(log)?)?;
    for (level, name) in LEVELS.iter().enumerate() {
        redis.raw_set(*name, level)?;
    }
    redis.raw_set("REDIS_VERSION", VERSION.0)?;
    redis.raw_set("REDIS_VERSION_NUM", VERSION.1)?;
    redis.raw_set("SERVER_NAME", "basalt")?;
    redis.raw_set("SERVER_VERSION", OWN_VERSION)?;
    redis.raw_set("SERVER_VERSION_NUM", numbered(OWN_VERSION))
}

/// Encodes a version as Redis does: one byte for each part.
fn numbered(version: &str) -> i64 {
    let parts = version.split('.').map(|part| part.parse().unwrap_or(0_i64));
    parts.fold(0, |number, part| number << 8 | part)
}

// Functions for the prelude --------------------------------------------------------------------------------------

fn install_natives(lua: &Lua, native: &Table) -> mlua::Result<()> {
    native.raw_set("caught", lua.create_function(errors::caught)?)?;
    native.raw_set(
        "is_interruption",
        lua.create_function(|_, value: Value| Ok(errors::is_interruption(&value)))?,
    )?;
    native.raw_set("handle", lua.create_function(handle)?)?;
    let next: Function = lua.globals().raw_get("next")?;
    let place = native.clone();
    native.raw_set(
        "pairs",
        lua.create_function(move |lua, arguments: MultiValue| {
            let Some(Value::Table(table)) = arguments.front() else {
                return Err(errors::wrong_type(
                    lua,
                    1,
                    "pairs",
                    "table",
                    arguments.front(),
                ));
            };
            let step = match behind(&place, table)? {
                None => next.clone(),
                Some(inner) => {
                    let next = next.clone();
                    lua.create_function(move |_, (_, key): (Value, Value)| {
                        next.call::<MultiValue>((inner.clone(), key))
                    })?
                }
            };
            Ok((step, table.clone(), Value::Nil))
        })?,
    )?;
    let place = native.clone();
    native.raw_set(
        "rawget",
        lua.create_function(move |lua, arguments: MultiValue| {
            let Some(Value::Table(table)) = arguments.front() else {
                return Err(errors::wrong_type(
                    lua,
                    1,
                    "rawget",
                    "table",
                    arguments.front(),
                ));
            };
            let Some(key) = arguments.get(1) else {
                return Err(errors::bad_argument(lua, 2, "rawget", "value expected"));
            };
            match behind(&place, table)? {
                Some(inner) => inner.raw_get::<Value>(key),
                None => table.raw_get::<Value>(key),
            }
        })?,
    )?;
    let replacements = lua.create_table()?;
    let math = lua.create_table()?;
    math.raw_set("random", lua.create_function(random)?)?;
    math.raw_set("randomseed", lua.create_function(random_seed)?)?;
    replacements.raw_set("math", math)?;
    native.raw_set("replacements", replacements)
}

/// Returns the table that a proxy protects; `None` if `table` is no proxy.
fn behind(native: &Table, table: &Table) -> mlua::Result<Option<Table>> {
    let inner_of: Table = native.raw_get("inner_of")?;
    inner_of.raw_get(table)
}

/// The error handler below every script: converts the raised value to a table, with the script's line.
fn handle(lua: &Lua, value: Value) -> mlua::Result<Value> {
    let value = errors::caught(lua, value)?;
    if errors::is_interruption(&value) {
        return Ok(value);
    }
    let table = match value {
        Value::Table(table) => table,
        other => {
            let mut text = b"ERR ".to_vec();
            match lua.coerce_string(other.clone())? {
                Some(string) => text.extend_from_slice(&string.as_bytes()),
                None => text.extend_from_slice(described(&other).as_bytes()),
            }
            errors::table(lua, &text, false)?
        }
    };
    if let Some((source, line)) = errors::script_frame(lua, 1, |source| source.source) {
        table.raw_set("source", source)?;
        table.raw_set("line", line)?;
    }
    Ok(Value::Table(table))
}

/// Formats a value as `tostring` does.
fn described(value: &Value) -> String {
    match value {
        Value::Nil => "nil".to_owned(),
        Value::Boolean(value) => value.to_string(),
        other => {
            let number = naming::number_of(other.to_pointer());
            format!("{}: 0x{number:016x}", other.type_name())
        }
    }
}

// Numbers --------------------------------------------------------------------------------------------------------

/// Returns an argument as C's `int`.
fn integer(lua: &Lua, arguments: &MultiValue, at: usize, function: &str) -> mlua::Result<i32> {
    let value = arguments.get(at).cloned().unwrap_or(Value::Nil);
    let number = match &value {
        Value::Nil => None,
        _ => lua.coerce_number(value.clone())?,
    };
    match number {
        Some(number) => Ok(truncated(number) as i32),
        None => Err(errors::wrong_type(
            lua,
            at + 1,
            function,
            "number",
            arguments.get(at),
        )),
    }
}

fn random(lua: &Lua, arguments: MultiValue) -> mlua::Result<f64> {
    use super::random::Rand48;
    let number = RUN.with(|run| {
        let mut random = run.random.get();
        let number = random.next();
        run.random.set(random);
        number
    });
    let share = f64::from(number % Rand48::MAX) / f64::from(Rand48::MAX);
    match arguments.len() {
        0 => Ok(share),
        1 => {
            let upper = integer(lua, &arguments, 0, "random")?;
            if upper < 1 {
                return Err(errors::bad_argument(lua, 1, "random", "interval is empty"));
            }
            Ok((share * f64::from(upper)).floor() + 1.0)
        }
        2 => {
            let lower = integer(lua, &arguments, 0, "random")?;
            let upper = integer(lua, &arguments, 1, "random")?;
            if lower > upper {
                return Err(errors::bad_argument(lua, 2, "random", "interval is empty"));
            }
            let width = upper.wrapping_sub(lower).wrapping_add(1);
            Ok((share * f64::from(width)).floor() + f64::from(lower))
        }
        _ => Err(errors::complain(lua, "wrong number of arguments")),
    }
}

fn random_seed(lua: &Lua, arguments: MultiValue) -> mlua::Result<()> {
    let seed = integer(lua, &arguments, 0, "randomseed")?;
    RUN.with(|run| run.random.set(super::random::Rand48::seeded(seed)));
    Ok(())
}

// redis.* --------------------------------------------------------------------------------------------------------

fn sha1hex(lua: &Lua, arguments: MultiValue) -> mlua::Result<Value> {
    if arguments.len() != 1 {
        return Err(errors::reply("wrong number of arguments"));
    }
    let text = match arguments.front().cloned() {
        Some(value @ (Value::String(_) | Value::Integer(_) | Value::Number(_))) => {
            lua.coerce_string(value)?
        }
        _ => None,
    };
    let digest = match text {
        Some(text) => sha::sha1_stepwise(&text.as_bytes(), STEP_BYTES, look)?,
        None => sha::sha1(b""),
    };
    lua.create_string(sha::hex(&digest)).map(Value::String)
}

const WRONG_ARGUMENTS: &str = "ERR wrong number or type of arguments";

fn error_reply(lua: &Lua, arguments: MultiValue) -> mlua::Result<Table> {
    match arguments.front() {
        Some(Value::String(text)) if arguments.len() == 1 => {
            let mut whole = before_nul(&text.as_bytes()).to_vec();
            if !whole.starts_with(b"-") {
                whole.insert(0, b'-');
            }
            errors::table(lua, &errors::with_code(&whole), false)
        }
        _ => errors::table(lua, WRONG_ARGUMENTS.as_bytes(), false),
    }
}

fn status_reply(lua: &Lua, arguments: MultiValue) -> mlua::Result<Table> {
    match arguments.front() {
        Some(Value::String(text)) if arguments.len() == 1 => {
            let table = lua.create_table_with_capacity(0, 1)?;
            table.raw_set("ok", text)?;
            Ok(table)
        }
        _ => errors::table(lua, WRONG_ARGUMENTS.as_bytes(), false),
    }
}

/// Converts a value to a number, as C would.
fn loose_number(lua: &Lua, value: Option<&Value>) -> mlua::Result<i64> {
    match value {
        None | Some(Value::Nil) => Ok(0),
        Some(value) => Ok(lua.coerce_number(value.clone())?.map_or(0, truncated)),
    }
}

fn set_protocol(lua: &Lua, arguments: MultiValue) -> mlua::Result<()> {
    if arguments.len() != 1 {
        return Err(errors::reply("redis.setresp() requires one argument."));
    }
    let protocol = match loose_number(lua, arguments.front())? {
        2 => Protocol::Resp2,
        3 => Protocol::Resp3,
        _ => return Err(errors::reply("RESP version must be 2 or 3.")),
    };
    RUN.with(|run| run.protocol.set(protocol));
    Ok(())
}

/// `redis.set_repl`: sets whether the script's next commands go to the append-only file, the replicas, or both.
fn set_replication(lua: &Lua, arguments: MultiValue) -> mlua::Result<()> {
    if arguments.len() != 1 {
        return Err(errors::reply("redis.set_repl() requires one argument."));
    }
    match loose_number(lua, arguments.front())? {
        bits @ 0..=3 => {
            let audience = Audience::from_bits(bits as u8);
            HOST.with(|place| place.with(|host| host.set_audience(audience)));
            Ok(())
        }
        _ => Err(errors::reply(
            "Invalid replication flags. Use REPL_AOF, REPL_REPLICA, REPL_ALL or REPL_NONE.",
        )),
    }
}

/// Maximum bytes of a line of `redis.log`; longer lines are truncated.
const LINE_BYTES_MAX: usize = 1024 * 1024;

fn log(lua: &Lua, arguments: MultiValue) -> mlua::Result<()> {
    if arguments.len() < 2 {
        return Err(errors::reply("redis.log() requires two arguments or more."));
    }
    let level = match arguments.front() {
        Some(Value::Nil) | None => None,
        Some(value) => lua.coerce_number(value.clone())?.map(truncated),
    };
    let Some(level) = level else {
        return Err(errors::reply(
            "First argument must be a number (log level).",
        ));
    };
    if !(0..LEVELS.len() as i64).contains(&level) {
        return Err(errors::reply("Invalid debug level."));
    }
    let mut line = Vec::new();
    for value in arguments.iter().skip(1) {
        if let Value::String(_) | Value::Integer(_) | Value::Number(_) = value
            && let Some(text) = lua.coerce_string(value.clone())?
        {
            if !line.is_empty() {
                line.push(b' ');
            }
            line.extend_from_slice(&text.as_bytes());
        }
    }
    line.truncate(LINE_BYTES_MAX);
    let line = String::from_utf8_lossy(&line);
    match level {
        0 => tracing::trace!("{line}"),
        1 => tracing::debug!("{line}"),
        2 => tracing::info!("{line}"),
        _ => tracing::warn!("{line}"),
    }
    Ok(())
}
