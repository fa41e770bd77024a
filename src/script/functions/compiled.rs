//! Libraries in one interpreter: their code is run once, and leaves callbacks behind.

use std::collections::HashMap;
use std::sync::{Arc, Weak};

use mlua::{Function, Lua, MultiValue, Table, Value};

use super::{BAD_NAME, Found, Source, is_name};
use crate::command::error::CommandError;
use crate::script::errors;
use crate::script::flags::ScriptFlags;
use crate::script::vm::{RUN, Vm};
use crate::structures::lua::Called;
use crate::telemetry::clock::Ticks;

/// A function that a library registered.
pub(in crate::script) struct Registered {
    pub(super) name: String,
    pub(super) description: Option<Vec<u8>>,
    pub(super) flags: ScriptFlags,
    callback: Function,
}

/// Callbacks by library and name.
#[derive(Default)]
pub(in crate::script) struct Libraries {
    loaded: HashMap<u64, Loaded>,
}

struct Loaded {
    source: Weak<Source>,
    callbacks: HashMap<String, Function>,
}

impl Libraries {
    /// Keeps what the code of a library left; what belongs to libraries that are gone goes.
    pub(super) fn keep(&mut self, source: &Arc<Source>, registered: Vec<Registered>) {
        self.loaded
            .retain(|_, loaded| loaded.source.strong_count() > 0);
        let callbacks = registered
            .into_iter()
            .map(|function| (function.name, function.callback))
            .collect();
        let loaded = Loaded {
            source: Arc::downgrade(source),
            callbacks,
        };
        self.loaded.insert(source.id, loaded);
    }
}

impl Vm {
    /// The callback of a function; its library's code is run if that has not been done here.
    pub(in crate::script) fn of_function(
        &mut self,
        found: &Found,
    ) -> Result<Function, CommandError> {
        if !self.libraries.loaded.contains_key(&found.source.id) {
            let registered = self.load_library(&found.source)?;
            self.libraries.keep(&found.source, registered);
        }
        let loaded = self.libraries.loaded.get(&found.source.id);
        let callback = loaded.and_then(|loaded| loaded.callbacks.get(&found.name));
        callback
            .cloned()
            .ok_or_else(|| "ERR Function not found".into())
    }

    /// Runs the code of a library; what it registered.
    pub(super) fn load_library(
        &mut self,
        source: &Source,
    ) -> Result<Vec<Registered>, CommandError> {
        let code = &source.code[source.code_start..];
        let run = self
            .load(code, "@user_function", &self.library_globals)
            .map_err(|text| format!("ERR Error compiling function: {text}"))?;
        RUN.with(|state| {
            state.registered.borrow_mut().clear();
            state.interrupted.set(None);
            state.loading_since.set(Some(Ticks::now()));
        });
        let result = self.set_loading.call::<()>(true).and_then(|()| {
            let result = self.call_protected(&run);
            self.set_loading.call::<()>(false)?;
            result
        });
        let (interrupted, registered) = RUN.with(|state| {
            state.loading_since.set(None);
            (state.interrupted.take(), state.registered.take())
        });
        let refuse =
            |why: &str| CommandError::from(format!("ERR Error registering functions: {why}"));
        if interrupted.is_some() {
            return Err(refuse("ERR FUNCTION LOAD timeout"));
        }
        match result {
            Ok(Called::Text(()) | Called::Value(_)) => Ok(registered),
            Ok(Called::Failed(Value::Table(table))) => match table.raw_get::<Value>("err") {
                Ok(Value::String(text)) => Err(refuse(&String::from_utf8_lossy(&text.as_bytes()))),
                _ => Err(refuse("(null)")),
            },
            Ok(Called::Failed(_)) => Err(refuse("execution failure")),
            Err(error) => Err(refuse(&format!("ERR {}", errors::plain(&error)))),
        }
    }
}

/// `redis.register_function`.
pub(in crate::script) fn register(lua: &Lua, arguments: MultiValue) -> mlua::Result<()> {
    if RUN.with(|run| run.loading_since.get().is_none()) {
        return Err(errors::reply(
            "redis.register_function can only be called on FUNCTION LOAD command",
        ));
    }
    let mut arguments = arguments.into_iter();
    let registered = match (arguments.next(), arguments.next(), arguments.next()) {
        (Some(Value::Table(named)), None, None) => from_table(lua, &named)?,
        (Some(_), None, None) => {
            return Err(errors::reply(
                "calling redis.register_function with a single argument is only applicable to Lua table \
                 (representing named arguments).",
            ));
        }
        (Some(name), Some(callback), None) => {
            let Some(name) = text(lua, &name)? else {
                return Err(errors::reply(
                    "first argument to redis.register_function must be a string",
                ));
            };
            let Value::Function(callback) = callback else {
                return Err(errors::reply(
                    "second argument to redis.register_function must be a function",
                ));
            };
            Registering {
                name,
                description: None,
                flags: ScriptFlags::default(),
                callback,
            }
        }
        _ => {
            return Err(errors::reply(
                "wrong number of arguments to redis.register_function",
            ));
        }
    };
    let name = registered.name;
    if !is_name(&name) {
        return Err(errors::reply(&BAD_NAME["ERR ".len()..]));
    }
    let name = String::from_utf8_lossy(&name).into_owned();
    RUN.with(|run| {
        let mut all = run.registered.borrow_mut();
        if all.iter().any(|function| function.name == name) {
            return Err(errors::reply("Function already exists in the library"));
        }
        all.push(Registered {
            name,
            description: registered.description,
            flags: registered.flags,
            callback: registered.callback,
        });
        Ok(())
    })
}

struct Registering {
    name: Vec<u8>,
    description: Option<Vec<u8>>,
    flags: ScriptFlags,
    callback: Function,
}

/// A string or a number, as a string.
fn text(lua: &Lua, value: &Value) -> mlua::Result<Option<Vec<u8>>> {
    match value {
        Value::String(_) | Value::Integer(_) | Value::Number(_) => {
            let text = lua.coerce_string(value.clone())?;
            Ok(text.map(|text| text.as_bytes().to_vec()))
        }
        _ => Ok(None),
    }
}

fn from_table(lua: &Lua, named: &Table) -> mlua::Result<Registering> {
    let (mut name, mut description, mut callback) = (None, None, None);
    let mut flags = ScriptFlags::default();
    for pair in named.pairs::<Value, Value>() {
        let (key, value) = pair?;
        let Some(key) = text(lua, &key)? else {
            return Err(errors::reply(
                "named argument key given to redis.register_function is not a string",
            ));
        };
        match key.to_ascii_lowercase().as_slice() {
            b"function_name" => {
                name = text(lua, &value)?;
                if name.is_none() {
                    return Err(errors::reply(
                        "function_name argument given to redis.register_function must be a string",
                    ));
                }
            }
            b"description" => {
                description = text(lua, &value)?;
                if description.is_none() {
                    return Err(errors::reply(
                        "description argument given to redis.register_function must be a string",
                    ));
                }
            }
            b"callback" => match value {
                Value::Function(function) => callback = Some(function),
                _ => {
                    return Err(errors::reply(
                        "callback argument given to redis.register_function must be a function",
                    ));
                }
            },
            b"flags" => match value {
                Value::Table(list) => flags = flags_of(lua, &list)?,
                _ => {
                    return Err(errors::reply(
                        "flags argument to redis.register_function must be a table representing function flags",
                    ));
                }
            },
            _ => {
                return Err(errors::reply(
                    "unknown argument given to redis.register_function",
                ));
            }
        }
    }
    Ok(Registering {
        name: name.ok_or_else(|| {
            errors::reply("redis.register_function must get a function name argument")
        })?,
        description,
        flags,
        callback: callback
            .ok_or_else(|| errors::reply("redis.register_function must get a callback argument"))?,
    })
}

fn flags_of(lua: &Lua, list: &Table) -> mlua::Result<ScriptFlags> {
    let mut flags = ScriptFlags::default();
    for at in 1.. {
        let value: Value = list.get(at)?;
        if value.is_nil() {
            break;
        }
        let name = text(lua, &value)?.map(|name| name.to_ascii_lowercase());
        match name.and_then(|name| ScriptFlags::named(&name)) {
            Some(flag) => flags = flags.or(flag),
            None => return Err(errors::reply("unknown flag given")),
        }
    }
    Ok(flags)
}
