//! Function libraries in one interpreter. Each library's code is run once, which registers its functions as
//! callbacks.

use std::cell::RefCell;
use std::collections::{HashMap, HashSet};
use std::rc::Rc;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};
use std::sync::{Arc, Weak};

use mlua::{Function, Lua, MultiValue, Table, Value};

use super::{BAD_NAME, Declared, FunctionLibrary, Functions, is_name, lost};
use crate::script::current::RUN;
use crate::script::errors;
use crate::script::flags::ScriptFlags;
use crate::sys::lua::Pinned;

/// Maximum number of function names resolved per interpreter.
const NAMES_MAX: usize = 4096;

/// Memory of a function in an interpreter beyond the length of its dump: the closure, the prototype and the
/// registry entry are larger than their dump, but the dump's header and variable names take no memory of their
/// own.
const FUNCTION_BYTES: usize = 100;

/// Bytes of compiled libraries in all interpreters.
static BYTES: AtomicUsize = AtomicUsize::new(0);

/// Returns the bytes of compiled libraries in all interpreters, as measured when their code was run. Removed
/// libraries are not counted, although an idle interpreter may keep them as garbage for a while.
pub(in crate::script) fn bytes() -> usize {
    BYTES.load(Relaxed)
}

/// Memory of one library in all interpreters, for as long as the library exists.
#[derive(Default)]
pub(super) struct LibraryMemory(AtomicUsize);

impl LibraryMemory {
    fn add(&self, bytes: usize) {
        self.0.fetch_add(bytes, Relaxed);
        BYTES.fetch_add(bytes, Relaxed);
    }

    fn remove(&self, bytes: usize) {
        self.0.fetch_sub(bytes, Relaxed);
        BYTES.fetch_sub(bytes, Relaxed);
    }
}

impl Drop for LibraryMemory {
    fn drop(&mut self) {
        BYTES.fetch_sub(*self.0.get_mut(), Relaxed);
    }
}

/// A function that a library registered.
struct Registered {
    declared: Declared,
    callback: Pinned,
    bytes: usize,
}

/// Functions registered so far by the library being loaded.
#[derive(Default)]
struct PendingFunctions {
    functions: Vec<Registered>,
    names: HashSet<String>,
}

thread_local! {
    /// Functions registered so far by the library whose code this thread runs.
    static REGISTERED: RefCell<PendingFunctions> = RefCell::default();
}

/// Clears the registrations left by code that this thread ran before.
pub(super) fn forget_registered() {
    REGISTERED.take();
}

/// Result of running a library's code in an interpreter.
pub(super) struct LibraryLoadResult {
    functions: Vec<Registered>,
    /// Approximate memory of the functions, without the values that they capture. It is estimated from their
    /// dumps, because compiling leaves more garbage than code, so the growth of the interpreter's memory says
    /// little.
    bytes: usize,
}

impl LibraryLoadResult {
    /// Takes the registrations of the code that this thread has just run.
    pub(super) fn take() -> LibraryLoadResult {
        let functions = REGISTERED.take().functions;
        LibraryLoadResult {
            bytes: functions.iter().map(|function| function.bytes).sum(),
            functions,
        }
    }

    /// Returns the declarations (name and flags) of the registered functions.
    pub(super) fn declared(&self) -> impl Iterator<Item = &Declared> {
        self.functions.iter().map(|function| &function.declared)
    }

    /// True if all functions belong to this interpreter.
    pub(super) fn is_of(&self, lua: &Lua) -> bool {
        let mut functions = self.functions.iter();
        functions.all(|function| function.callback.is_of(lua))
    }
}

/// A function that can be called in one interpreter.
pub(in crate::script) struct Callable {
    /// Name given by the library.
    pub(in crate::script) name: String,
    /// Flags declared by the function.
    pub(in crate::script) flags: ScriptFlags,
    pub(in crate::script) callback: Pinned,
}

/// Callbacks by library and name.
#[derive(Default)]
pub(in crate::script) struct Libraries {
    loaded: HashMap<u64, LoadedLibrary>,
    /// Names as spelled by callers, and the functions to which they resolved at [`Libraries::version`].
    by_name: HashMap<Vec<u8>, Rc<Callable>>,
    version: u64,
    /// Value of the count of removed libraries when the thread last checked it before waiting.
    lost: u64,
    /// The libraries' version at which entries of removed libraries were last dropped.
    pruned: u64,
}

struct LoadedLibrary {
    source: Weak<FunctionLibrary>,
    callbacks: Vec<Rc<Callable>>,
    bytes: usize,
}

impl Drop for LoadedLibrary {
    fn drop(&mut self) {
        if let Some(source) = self.source.upgrade() {
            source.compiled.remove(self.bytes);
        }
    }
}

impl Libraries {
    /// Returns the function to which a name resolved when it was last called, if it was.
    #[inline]
    pub(super) fn called(&self, name: &[u8]) -> Option<&Rc<Callable>> {
        self.by_name.get(name)
    }

    /// True if the code of a library was run in this interpreter.
    pub(super) fn has(&self, source: &FunctionLibrary) -> bool {
        self.loaded.contains_key(&source.id)
    }

    /// Resolves a name to the library function `declared` from now on; returns `None` if the library's code did not
    /// register it here.
    pub(super) fn learn(
        &mut self,
        name: &[u8],
        source: &FunctionLibrary,
        declared: &str,
    ) -> Option<Rc<Callable>> {
        let mut callbacks = self.loaded.get(&source.id)?.callbacks.iter();
        let callable = Rc::clone(callbacks.find(|callable| callable.name == declared)?);
        if self.by_name.len() >= NAMES_MAX {
            self.by_name.clear();
        }
        self.by_name.insert(name.to_vec(), Rc::clone(&callable));
        Some(callable)
    }

    /// Stores the result of running a library's code.
    pub(super) fn keep(&mut self, source: &Arc<FunctionLibrary>, ran: LibraryLoadResult) {
        let callbacks = ran.functions.into_iter().map(|function| {
            Rc::new(Callable {
                name: function.declared.name,
                flags: function.declared.flags,
                callback: function.callback,
            })
        });
        source.compiled.add(ran.bytes);
        let loaded = LoadedLibrary {
            source: Arc::downgrade(source),
            callbacks: callbacks.collect(),
            bytes: ran.bytes,
        };
        self.loaded.insert(source.id, loaded);
    }

    /// Clears the resolved names if libraries have changed. If a good part of the libraries may have been
    /// removed, also drops the entries of removed libraries; returns whether it dropped entries.
    #[inline]
    pub(in crate::script) fn follow(&mut self, functions: &Functions) -> bool {
        let version = functions.version();
        self.version != version && self.catch_up(version)
    }

    #[cold]
    fn catch_up(&mut self, version: u64) -> bool {
        self.version = version;
        self.by_name = HashMap::new();
        // A check of all entries costs time proportional to the number of libraries, so do it only after as
        // many changes.
        if version - self.pruned <= self.loaded.len() as u64 / 4 {
            return false;
        }
        self.pruned = version;
        self.prune()
    }

    /// Drops the entries of removed libraries, if many libraries may have been removed since the last call; for
    /// a thread
    /// that is about to wait. Returns whether it dropped entries.
    pub(in crate::script) fn rest(&mut self) -> bool {
        let lost = lost();
        if lost - self.lost <= self.loaded.len() as u64 / 4 {
            return false;
        }
        self.lost = lost;
        self.by_name = HashMap::new();
        self.prune()
    }

    fn prune(&mut self) -> bool {
        let before = self.loaded.len();
        self.loaded
            .retain(|_, loaded| loaded.source.strong_count() > 0);
        self.loaded.shrink_to(self.loaded.len() * 2);
        self.loaded.len() < before
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
            Registration {
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
    REGISTERED.with_borrow_mut(|all| {
        if !all.names.insert(name.clone()) {
            return Err(errors::reply("Function already exists in the library"));
        }
        all.functions.push(Registered {
            declared: Declared {
                name,
                description: registered.description,
                flags: registered.flags,
            },
            bytes: registered.callback.dump(false).len() + FUNCTION_BYTES,
            callback: Pinned::new(lua, registered.callback)?,
        });
        Ok(())
    })
}

struct Registration {
    name: Vec<u8>,
    description: Option<Vec<u8>>,
    flags: ScriptFlags,
    callback: Function,
}

/// Converts a string or a number to a string.
fn text(lua: &Lua, value: &Value) -> mlua::Result<Option<Vec<u8>>> {
    match value {
        Value::String(_) | Value::Integer(_) | Value::Number(_) => {
            let text = lua.coerce_string(value.clone())?;
            Ok(text.map(|text| text.as_bytes().to_vec()))
        }
        _ => Ok(None),
    }
}

fn from_table(lua: &Lua, named: &Table) -> mlua::Result<Registration> {
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
    Ok(Registration {
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
