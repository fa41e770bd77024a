//! One interpreter per thread: created on first use, bounded in memory, discarded when it has exhausted its
//! memory.
//!
//! It caches compiled functions. The state that callbacks need while a script runs is in thread-locals, see
//! [`current`](super::current).

use std::cell::{Cell, RefCell, RefMut};
use std::rc::Rc;
use std::sync::Arc;

use mlua::chunk::ChunkMode;
use mlua::state::{GcIncParams, GcMode};
use mlua::{Function, HookTriggers, Lua, LuaOptions, LuaString, StdLib, Table, VmState};

use super::current::tick;
use super::errors;
use super::footprint;
use super::functions::Functions;
use super::functions::compiled::Libraries;
use super::library::{self, Library, Script};
use super::memory::{self, InterpreterMemory};
use super::sha::Sha;
use super::unsandboxed::ListAccess;
use super::{api, bits, json, msgpack, packing, pattern, screens, texts, unsandboxed};
use crate::sys::lua::{self, Called, Pinned, attention};
use crate::sys::watchdog;
use basalt_commands::command::error::CommandError;
use basalt_core::base::hash::HashSeed;

/// An interpreter that uses more than 1/n of its memory limit after a script is recreated.
const KEPT_PARTS: usize = 2;

/// Garbage is collected when an interpreter's memory has grown to this percentage of its live memory. An idle
/// interpreter uses some 60 KB, and traversing them more often would cost more than running the scripts.
const COLLECTION_PERCENT: i32 = 300;

/// Number of uses after which a small interpreter is collected, to measure its live memory.
const RUNS_PER_LOOK: u64 = 16 * 1024;

/// Maximum bytes of a small interpreter.
const MEMORY_BYTES_SMALL: usize = 1024 * 1024;

/// Minimum bytes of a large interpreter: mostly garbage, except for the data of its last script.
const MEMORY_BYTES_LARGE: usize = 2 * MEMORY_BYTES_SMALL;

/// Number of uses after which a large interpreter is checked again, if most of its memory was live the last
/// time.
const RUNS_PER_LOOK_LARGE: u64 = 64;

/// Maximum number of compiled functions an interpreter keeps.
const COMPILED_MAX: usize = 1_000;

/// Number of recently used scripts that are found without a hash table lookup.
const RECENT: usize = 16;

const PRELUDE: &str = include_str!("prelude.lua");

thread_local! {
    static VM: RefCell<Option<Vm>> = const { RefCell::new(None) };
}

/// A compiled script. Callers keep it by an `Rc`, whose count only this thread writes; the reference count of
/// the `Script` inside is written by all threads.
pub(super) struct Compiled {
    pub(super) script: Arc<Script>,
    run: Rc<Pinned>,
    access: ListAccess,
    used: Cell<u64>,
}

/// An interpreter with its caches of compiled scripts and libraries.
pub(super) struct Vm {
    pub(super) lua: Lua,
    /// The error handler that every script runs under.
    handle: Pinned,
    pub(super) set_loading: Function,
    pub(super) library_globals: Table,
    /// The table that the globals' proxy protects, and (`names`) the names KEYS and ARGV.
    globals: Table,
    names: [LuaString; 2],
    environment: Table,
    /// Globals for plain scripts, and the names of those that are tables to be protected.
    plain_environment: Table,
    shared_names: Vec<Vec<u8>>,
    /// Globals for plain scripts that only read their lists; their KEYS and ARGV are the reused tables `lists`
    /// if they are short.
    reading_environment: Table,
    lists: [lua::ReusableTextTable; 2],
    has_lists: Cell<bool>,
    /// Compiled scripts by the hash of their text.
    by_text: std::collections::HashMap<u64, Rc<Compiled>, NoHash>,
    by_sha: std::collections::HashMap<Sha, u64, NoHash>,
    /// Recently used scripts: those called by EVAL at an index from the [`footprint::tag`] of their text, and
    /// (`recent_by_sha`) those called by EVALSHA at an index from some of their digits.
    recent_by_text: [Option<Rc<Compiled>>; RECENT],
    recent_by_sha: [Option<Rc<Compiled>>; RECENT],
    /// Function libraries whose code was run in this interpreter.
    pub(super) libraries: Libraries,
    uses: u64,
    /// Flush count of the script library when last checked.
    flushes: u64,
    /// Flush count of all servers' script libraries when the thread last checked before waiting.
    flushed: u64,
    seed: HashSeed,
    /// Number of uses, and that number when the thread last called [`rest`].
    runs: u64,
    /// Memory limit in bytes, as of the interpreter's creation.
    limit: usize,
    rested: u64,
    /// Memory in use in bytes, and (`live`) its live part after the last collection.
    memory: InterpreterMemory,
    live: usize,
}

/// Identity hasher for keys that are hashes already.
#[derive(Clone, Copy, Default)]
pub(super) struct NoHash(u64);

impl std::hash::BuildHasher for NoHash {
    type Hasher = NoHash;
    fn build_hasher(&self) -> NoHash {
        NoHash(0)
    }
}

impl std::hash::Hasher for NoHash {
    fn finish(&self) -> u64 {
        self.0
    }
    fn write(&mut self, bytes: &[u8]) {
        for chunk in bytes.chunks(8) {
            let mut word = [0; 8];
            word[..chunk.len()].copy_from_slice(chunk);
            self.0 = self.0.rotate_left(5) ^ u64::from_le_bytes(word);
        }
    }
    fn write_u64(&mut self, value: u64) {
        self.0 = value;
    }
}

/// Runs a closure with the interpreter of this thread; with a temporary one if that is running a script which calls
/// something that needs one (SCRIPT LOAD, FUNCTION LOAD).
pub(super) fn with<R>(work: impl FnOnce(&mut Vm) -> R) -> R {
    VM.with(|place| match place.try_borrow_mut() {
        Ok(place) => with_vm(place, work),
        Err(_) => work(&mut Vm::new()),
    })
}

/// Runs a closure with the interpreter of this thread, unless that is running a script.
pub(super) fn with_own<R>(work: impl FnOnce(&mut Vm) -> R) -> Option<R> {
    VM.with(|place| Some(with_vm(place.try_borrow_mut().ok()?, work)))
}

#[inline]
fn with_vm<R>(mut place: RefMut<'_, Option<Vm>>, work: impl FnOnce(&mut Vm) -> R) -> R {
    if place
        .as_ref()
        .is_some_and(|vm| vm.limit != memory::limit_bytes())
    {
        *place = None;
    }
    let vm = place.get_or_insert_with(Vm::new);
    let result = work(vm);
    let mut used = vm.lua.used_memory();
    vm.runs += 1;
    // Collect small interpreters only now and then, to measure their live memory, and large ones when
    // worthwhile, so that long arguments do not stay in memory until scripts have produced as much garbage
    // again.
    let is_time = match used < MEMORY_BYTES_SMALL {
        true => vm.runs.is_multiple_of(RUNS_PER_LOOK),
        false => used > MEMORY_BYTES_LARGE && vm.is_due(used),
    };
    if is_time {
        used = vm.collect();
    }
    vm.memory.follow(used);
    if used > vm.limit / KEPT_PARTS {
        *place = None;
    }
    result
}

/// Collects the garbage of this thread's scripts, if there is much, and drops compiled scripts and libraries
/// that were removed; for threads that are about to wait, as their next script may come much later.
pub(super) fn rest() {
    VM.with_borrow_mut(|place| {
        let Some(vm) = place else {
            return;
        };
        if std::mem::replace(&mut vm.flushed, library::flushed()) != vm.flushed {
            vm.forget_all();
        }
        if vm.libraries.rest() {
            vm.settle();
        }
        if std::mem::replace(&mut vm.rested, vm.runs) != vm.runs
            && vm.has_garbage(vm.lua.used_memory())
        {
            let used = vm.collect();
            vm.memory.set(used);
        }
    });
}

/// Makes the interpreter of this thread drop its compiled code, after SCRIPT FLUSH or FUNCTION FLUSH. Other
/// threads' interpreters do so with their next script, or in the next [`rest`], which a background task
/// triggers.
pub(super) fn follow_flush(library: &Library) {
    VM.with(|place| {
        // A flush called by a script running in this interpreter is applied later, as in other threads.
        if let Ok(mut place) = place.try_borrow_mut()
            && let Some(vm) = place.as_mut()
        {
            vm.follow(library);
        }
    });
}

impl Vm {
    /// Drops compiled scripts if the library was flushed since the last call, and functions whose libraries
    /// were removed.
    #[inline]
    pub(super) fn follow(&mut self, library: &Library) {
        let flushes = library.flushes();
        if self.flushes != flushes {
            self.flushes = flushes;
            self.forget_all();
        }
        self.follow_functions(&library.functions);
    }

    /// Drops functions whose libraries were removed.
    #[inline]
    pub(super) fn follow_functions(&mut self, functions: &Functions) {
        if self.libraries.follow(functions) {
            self.settle();
        }
    }

    #[cold]
    fn forget_all(&mut self) {
        self.by_text = Default::default();
        self.by_sha = Default::default();
        self.recent_by_text = Default::default();
        self.recent_by_sha = Default::default();
        self.settle();
    }

    #[cold]
    fn settle(&mut self) {
        let used = self.collect();
        self.memory.set(used);
    }

    /// Returns whether a large interpreter that uses `used` bytes should be collected now. A collection
    /// traverses all live memory, so it needs to free at least half as much garbage.
    fn is_due(&self, used: usize) -> bool {
        self.live < MEMORY_BYTES_SMALL
            || self.runs.is_multiple_of(RUNS_PER_LOOK_LARGE) && self.has_garbage(used)
    }

    fn has_garbage(&self, used: usize) -> bool {
        used > MEMORY_BYTES_LARGE && used > self.live + self.live / 2
    }

    /// Frees unreferenced memory; returns the live bytes.
    fn collect(&mut self) -> usize {
        self.drop_lists();
        self.lua.expire_registry_values();
        let _ = self.lua.gc_collect();
        self.live = self.lua.used_memory();
        memory::note_live(self.live);
        self.live
    }

    fn new() -> Vm {
        if attention::register() {
            watchdog::look_again();
        }
        Vm::build().expect("an interpreter fits into memory")
    }

    fn build() -> mlua::Result<Vm> {
        let libraries = StdLib::TABLE | StdLib::STRING | StdLib::MATH;
        let lua = Lua::new_with(libraries, LuaOptions::new())?;
        let raw = lua.globals();
        let native = lua.create_table()?;
        let added = lua.create_table()?;
        api::install(&lua, &native, &added)?;
        pattern::install(&lua, &native)?;
        screens::install(&lua, &native)?;
        texts::install(&lua, &native)?;
        bits::install(&lua, &added)?;
        json::install(&lua, &added)?;
        msgpack::install(&lua, &added)?;
        packing::install(&lua, &added)?;
        lua.load(PRELUDE)
            .set_name("=basalt")
            .set_mode(ChunkMode::Text)
            .into_function()?
            .call::<()>((native.clone(), raw.clone(), added))?;
        let environment: Table = native.raw_get("globals")?;
        let mut shared_names = Vec::new();
        for name in native.raw_get::<Table>("shared_names")?.sequence_values() {
            let name: LuaString = name?;
            shared_names.push(name.as_bytes().to_vec());
        }
        lua.set_globals(environment.clone())?;
        lua.set_global_hook(
            HookTriggers::new().every_nth_instruction(attention::INSTRUCTIONS),
            |_, _| {
                attention::settle();
                tick().map(|()| VmState::Continue)
            },
        )?;
        lua.gc_set_mode(GcMode::Incremental(
            GcIncParams::default().pause(COLLECTION_PERCENT),
        ));
        lua.gc_collect()?;
        let limit = memory::limit_bytes();
        lua.set_memory_limit(limit)?;
        let mut memory = InterpreterMemory::default();
        memory.set(lua.used_memory());
        let live = lua.used_memory();
        memory::note_live(live);
        Ok(Vm {
            handle: Pinned::new(&lua, native.raw_get::<Function>("handle")?)?,
            names: [lua.create_string("KEYS")?, lua.create_string("ARGV")?],
            set_loading: native.raw_get("set_loading")?,
            library_globals: native.raw_get("library_globals")?,
            globals: raw,
            environment,
            plain_environment: native.raw_get("plain_globals")?,
            shared_names,
            reading_environment: native.raw_get("reading_globals")?,
            lists: [
                lua::ReusableTextTable::new(&lua)?,
                lua::ReusableTextTable::new(&lua)?,
            ],
            has_lists: Cell::new(false),
            by_text: Default::default(),
            by_sha: Default::default(),
            recent_by_text: Default::default(),
            recent_by_sha: Default::default(),
            libraries: Libraries::default(),
            uses: 0,
            flushes: 0,
            flushed: library::flushed(),
            runs: 0,
            rested: 0,
            limit,
            memory,
            live,
            seed: HashSeed {
                k0: basalt_core::base::random::Random::from_system().next_u64(),
                k1: 7,
            },
            lua,
        })
    }

    /// Returns the compiled script with this text, compiling the text if needed.
    #[inline]
    pub(super) fn compiled_by_text(&mut self, text: &[u8]) -> Result<Rc<Compiled>, CommandError> {
        let place = Vm::place_of(text);
        if let Some(compiled) = &self.recent_by_text[place]
            && compiled.script.is_text(text)
        {
            return Ok(Rc::clone(compiled));
        }
        let found = self.look_up_text(text)?;
        self.recent_by_text[place] = Some(Rc::clone(&found));
        Ok(found)
    }

    /// Returns the compiled script with this text, and adds it to the library.
    #[inline]
    pub(super) fn compiled_for_eval(
        &mut self,
        text: &[u8],
        library: &Library,
    ) -> Result<Rc<Compiled>, CommandError> {
        let compiled = self.compiled_by_text(text)?;
        match library.note_evaluated(&compiled.script, text) {
            None => Ok(compiled),
            Some(script) => {
                let hash = self.seed.hash(text);
                let renamed = self.rename(hash, &compiled, script);
                self.recent_by_text[Vm::place_of(text)] = Some(Rc::clone(&renamed));
                Ok(renamed)
            }
        }
    }

    #[inline]
    fn place_of(text: &[u8]) -> usize {
        footprint::tag(text) as usize / 2 % RECENT
    }

    #[inline(never)]
    fn look_up_text(&mut self, text: &[u8]) -> Result<Rc<Compiled>, CommandError> {
        self.uses += 1;
        let hash = self.seed.hash(text);
        if let Some(compiled) = self.by_text.get(&hash)
            && compiled.script.is_text(text)
        {
            compiled.used.set(self.uses);
            return Ok(Rc::clone(compiled));
        }
        let script = Arc::new(Library::parse(text)?);
        self.compile(hash, script, text)
    }

    /// Checks that a text compiles, for SCRIPT LOAD. The result is not kept: threads that run the script
    /// compile it again, and most loaded scripts are run on few threads.
    pub(super) fn check(&self, text: &[u8]) -> Result<Script, CommandError> {
        let script = Library::parse(text)?;
        self.load_script(script.code_of(text))?;
        Ok(script)
    }

    /// Returns the compiled script with this SHA-1, if the library knows it.
    #[inline]
    pub(super) fn compiled_by_sha(
        &mut self,
        digits: &[u8],
        library: &Library,
    ) -> Result<Option<Rc<Compiled>>, CommandError> {
        let some = digits.first_chunk().copied().map_or(0, u64::from_le_bytes);
        // The lower four bits of a hexadecimal digit's byte are enough for an index.
        let place = (some & 0x0f0f_0f0f_0f0f_0f0f) as usize % 31 % RECENT;
        if let Some(compiled) = &self.recent_by_sha[place]
            && compiled.script.hex == *digits
            && compiled.script.is_known()
        {
            library.note_used(&compiled.script);
            return Ok(Some(Rc::clone(compiled)));
        }
        let Some(script) = library.find(digits) else {
            return Ok(None);
        };
        let compiled = self.compiled_script(script)?;
        if let Some(compiled) = &compiled {
            self.recent_by_sha[place] = Some(Rc::clone(compiled));
        }
        Ok(compiled)
    }

    /// Returns a script of the library, compiled if needed; `None` if it is being removed at this moment.
    #[inline(never)]
    fn compiled_script(
        &mut self,
        script: Arc<Script>,
    ) -> Result<Option<Rc<Compiled>>, CommandError> {
        self.uses += 1;
        let Some(body) = script.body() else {
            return Ok(None);
        };
        let hash = match self.by_sha.get(&script.sha) {
            Some(hash) => *hash,
            None => self.seed.hash(&body),
        };
        if let Some(compiled) = self.by_text.get(&hash)
            && compiled.script.sha == script.sha
        {
            compiled.used.set(self.uses);
            if Arc::ptr_eq(&compiled.script, &script) {
                return Ok(Some(Rc::clone(compiled)));
            }
            let compiled = Rc::clone(compiled);
            return Ok(Some(self.rename(hash, &compiled, script)));
        }
        self.compile(hash, script, &body).map(Some)
    }

    /// Associates a compiled text with `script`, the instance that the library knows by this text. (If two
    /// threads meet a new text at the same time, each creates an instance.)
    fn rename(&mut self, hash: u64, compiled: &Compiled, script: Arc<Script>) -> Rc<Compiled> {
        let renamed = Compiled {
            script,
            run: Rc::clone(&compiled.run),
            access: compiled.access,
            used: Cell::new(self.uses),
        };
        self.keep(hash, renamed)
    }

    fn compile(
        &mut self,
        hash: u64,
        script: Arc<Script>,
        body: &[u8],
    ) -> Result<Rc<Compiled>, CommandError> {
        let run = self.load_script(script.code_of(body))?;
        let is_shared = |name: &[u8]| self.shared_names.iter().any(|shared| shared == name);
        let mut access = unsandboxed::list_access(&run.dump(true), &is_shared);
        let environment = match access {
            ListAccess::Guarded => None,
            ListAccess::Plain => Some(&self.plain_environment),
            ListAccess::Reading => Some(&self.reading_environment),
        };
        if let Some(environment) = environment
            && !matches!(run.set_environment(environment.clone()), Ok(true))
        {
            access = ListAccess::Guarded;
        }
        let run = self.pin(&run)?;
        let used = Cell::new(self.uses);
        let compiled = Compiled {
            script,
            run: Rc::new(run),
            access,
            used,
        };
        Ok(self.keep(hash, compiled))
    }

    fn pin(&self, function: &Function) -> Result<Pinned, CommandError> {
        let pinned = Pinned::new(&self.lua, function);
        Ok(pinned.map_err(|error| format!("ERR {}", errors::plain(&error)))?)
    }

    fn load_script(&self, code: &[u8]) -> Result<Function, CommandError> {
        let loaded = self.load(code, "@user_script", &self.environment);
        Ok(loaded.map_err(|text| format!("ERR Error compiling script (new function): {text}"))?)
    }

    /// Compiles a text in an environment.
    pub(super) fn load(
        &self,
        code: &[u8],
        name: &str,
        environment: &Table,
    ) -> Result<Function, String> {
        // Keep the name referenced: Lua's compiler does not for a moment in which garbage may be collected
        // (CVE-2025-49844).
        let _held = self.lua.create_string(name);
        self.lua
            .load(code)
            .set_name(name)
            .set_mode(ChunkMode::Text)
            .set_environment(environment.clone())
            .into_function()
            .map_err(|error| match error {
                mlua::Error::SyntaxError { message, .. } => {
                    lua::compile_failure(&self.lua, code, name, message)
                }
                other => errors::plain(&other),
            })
    }

    fn keep(&mut self, hash: u64, compiled: Compiled) -> Rc<Compiled> {
        if self.by_text.len() >= COMPILED_MAX {
            self.forget_some();
        }
        let compiled = Rc::new(compiled);
        self.by_sha.insert(compiled.script.sha, hash);
        if let Some(before) = self.by_text.insert(hash, Rc::clone(&compiled))
            && before.script.sha != compiled.script.sha
        {
            self.by_sha.remove(&before.script.sha);
        }
        compiled
    }

    /// Drops the least recently used half of the compiled scripts.
    #[cold]
    fn forget_some(&mut self) {
        let mut used: Vec<u64> = self
            .by_text
            .values()
            .map(|compiled| compiled.used.get())
            .collect();
        let middle = used.len() / 2;
        let (_, limit, _) = used.select_nth_unstable(middle);
        let limit = *limit;
        self.by_text
            .retain(|_, compiled| compiled.used.get() >= limit);
        let by_text = &self.by_text;
        self.by_sha.retain(|_, hash| by_text.contains_key(hash));
    }

    /// Runs a script of EVAL; returns its value, or the error made by its handler. A text value is passed to
    /// `on_text`.
    #[inline]
    pub(super) fn run<R>(
        &self,
        compiled: &Compiled,
        keys: &[&[u8]],
        arguments: &[&[u8]],
        on_text: impl FnOnce(&[u8]) -> R,
    ) -> mlua::Result<Called<R>> {
        let [its_keys, its_arguments] = &self.lists;
        let fits = compiled.access == ListAccess::Reading
            && its_keys.fits(keys)
            && its_arguments.fits(arguments);
        let filled = [(its_keys, keys), (its_arguments, arguments)];
        let filled = match fits {
            true => {
                self.show_lists()?;
                &filled[..]
            }
            false => {
                self.give_lists(compiled.access, keys, arguments)?;
                &[]
            }
        };
        lua::call_below(&self.lua, &self.handle, &compiled.run, filled, &[], on_text)
    }

    /// Removes KEYS and ARGV of the last script from the globals.
    #[cold]
    fn drop_lists(&self) {
        let environments = [
            &self.globals,
            &self.plain_environment,
            &self.reading_environment,
        ];
        for environment in environments {
            for name in &self.names {
                // Removing an entry allocates nothing.
                let _ = environment.raw_set(name, mlua::Nil);
            }
        }
        self.has_lists.set(false);
    }

    /// Makes the reused KEYS and ARGV tables visible to scripts that only read their lists.
    #[inline]
    fn show_lists(&self) -> mlua::Result<()> {
        if !self.has_lists.get() {
            let [keys_name, arguments_name] = &self.names;
            let [its_keys, its_arguments] = &self.lists;
            let globals = &self.reading_environment;
            globals.raw_set(keys_name, its_keys.table())?;
            globals.raw_set(arguments_name, its_arguments.table())?;
            self.has_lists.set(true);
        }
        Ok(())
    }

    /// Creates new KEYS and ARGV tables for a script.
    #[inline(never)]
    fn give_lists(
        &self,
        access: ListAccess,
        keys: &[&[u8]],
        arguments: &[&[u8]],
    ) -> mlua::Result<()> {
        let [keys_name, arguments_name] = &self.names;
        let globals = match access {
            ListAccess::Guarded => &self.globals,
            ListAccess::Plain => &self.plain_environment,
            ListAccess::Reading => {
                self.has_lists.set(false);
                &self.reading_environment
            }
        };
        let lists = [(keys_name, keys), (arguments_name, arguments)];
        lua::set_lists(&self.lua, globals, lists)
    }

    /// Runs a function of FCALL, with its keys and arguments.
    pub(super) fn run_function<R>(
        &self,
        function: &Pinned,
        keys: &[&[u8]],
        arguments: &[&[u8]],
        on_text: impl FnOnce(&[u8]) -> R,
    ) -> mlua::Result<Called<R>> {
        let lists = [
            lua::list(&self.lua, keys)?,
            lua::list(&self.lua, arguments)?,
        ];
        lua::call_below(&self.lua, &self.handle, function, &[], &lists, on_text)
    }

    /// Runs a function without arguments, under the error handler.
    pub(super) fn call_protected(&self, function: &Function) -> mlua::Result<Called<()>> {
        let function = Pinned::new(&self.lua, function)?;
        lua::call_below(&self.lua, &self.handle, &function, &[], &[], |_| ())
    }

    /// For the fuzzer: makes Lua collect all garbage at every opportunity, or restores the normal settings, and
    /// makes Lua check frequently whether the script may continue.
    #[cfg(test)]
    pub(super) fn collect_always(&self, is_eager: bool) {
        let (pause, multiplier) = if is_eager {
            (0, 100_000_000)
        } else {
            (150, 200)
        };
        let params = GcIncParams::default()
            .pause(pause)
            .step_multiplier(multiplier);
        self.lua.gc_set_mode(GcMode::Incremental(params));
        let often = HookTriggers::new().every_nth_instruction(attention::INSTRUCTIONS / 20);
        let set = self
            .lua
            .set_global_hook(often, |_, _| tick().map(|()| VmState::Continue));
        set.expect("room");
    }

    /// Makes the pattern functions accessible to scripts of tests.
    #[cfg(test)]
    pub(super) fn show_patterns(&self) {
        let native = self.lua.create_table().expect("room");
        pattern::install(&self.lua, &native).expect("room");
        let patterns: Table = native.raw_get("patterns").expect("there");
        for globals in [
            &self.globals,
            &self.plain_environment,
            &self.reading_environment,
        ] {
            let set = globals.raw_set("redis_patterns", &patterns);
            set.expect("room");
        }
    }
}
