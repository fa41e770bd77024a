//! Libraries of functions: what FUNCTION manages and FCALL finds.
//!
//! All interpreters share the sources; each runs a library's code when it first calls one of its functions
//! ([`compiled`]), and keeps what it found for as long as [`Functions::version`] stays what it was. So the lock is
//! taken for a first call, and for changes, which take as long as what they change: code runs before the lock is taken.

pub(super) mod compiled;
mod loading;
mod payload;

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;
use std::sync::atomic::{
    AtomicU64,
    Ordering::{Acquire, Relaxed, Release},
};

use parking_lot::RwLock;

use self::compiled::Compiled;
use self::loading::Made;
use super::flags::{self, ScriptFlags};
use crate::script::memory::Texts;
use basalt_commands::command::error::{CommandError, shown};
use basalt_commands::command::host::scripts::{
    FunctionView, LibraryView, LogChange, Restore, TextBound,
};
use basalt_core::base::glob::{self, Case};

/// One library.
pub(super) struct Source {
    /// Distinct for each that was ever loaded.
    id: u64,
    name: String,
    code: Vec<u8>,
    /// Where the code begins behind `#!lua name=…`.
    code_start: usize,
    functions: Vec<Declared>,
    compiled: Compiled,
}

impl Source {
    /// What this takes in memory.
    fn bytes(&self) -> usize {
        self.code.len() + size_of::<Source>() + self.functions.len() * (size_of::<Declared>() + 64)
    }
}

/// The source of a library, shared with it.
#[derive(Clone)]
pub struct Code(Arc<Source>);

impl Code {
    /// The source, from `#!` on.
    pub fn as_bytes(&self) -> &[u8] {
        &self.0.code
    }
}

impl std::fmt::Debug for Code {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_tuple("Code").field(&self.0.name).finish()
    }
}

/// A function as its library registered it.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Declared {
    name: String,
    description: Option<Vec<u8>>,
    flags: ScriptFlags,
}

/// A function, and the library that registered it.
pub(super) struct Found {
    source: Arc<Source>,
    at: usize,
}

impl Found {
    fn declared(&self) -> &Declared {
        &self.source.functions[self.at]
    }

    /// What the function says of itself.
    pub(super) fn flags(&self) -> ScriptFlags {
        self.declared().flags
    }
}

#[derive(Default)]
struct Known {
    libraries: BTreeMap<String, Arc<Source>>,
    /// By lower-case name: the library and the position in it.
    functions: HashMap<Vec<u8>, (Arc<Source>, usize)>,
    /// What the libraries take in memory.
    bytes: usize,
}

/// See the module.
#[derive(Default)]
pub struct Functions {
    known: RwLock<Known>,
    /// The position in the log behind all changes that can be seen. Written below the lock of `known`.
    position: AtomicU64,
    /// Libraries that went, or were replaced, so far. Written below the lock of `known`.
    version: AtomicU64,
    flushed: AtomicU64,
    /// The account of all texts, these sources among them.
    texts: Arc<Texts>,
}

static IDS: AtomicU64 = AtomicU64::new(1);

/// Libraries that went, or were replaced, so far: threads that are about to wait look whether they hold any of them.
static LOST: AtomicU64 = AtomicU64::new(0);

/// Libraries of any server that went, or were replaced, so far.
pub(super) fn lost() -> u64 {
    LOST.load(Relaxed)
}

const BAD_NAME: &str = "ERR Library names can only contain letters, numbers, or underscores(_) and must be at least one \
     character long";

impl Functions {
    /// No libraries yet, whose sources will count in an account of texts.
    pub(super) fn counted_in(texts: Arc<Texts>) -> Functions {
        Functions {
            texts,
            ..Functions::default()
        }
    }

    /// Bytes of sources that may be loaded.
    fn room(&self, bound: TextBound) -> usize {
        match bound {
            TextBound::Holds => self.texts.room(),
            TextBound::Lifted => usize::MAX,
        }
    }

    /// Refuses `added` bytes of sources in place of `removed` ones if there is no room for what is more.
    fn check_room(
        &self,
        removed: usize,
        added: usize,
        bound: TextBound,
    ) -> Result<(), CommandError> {
        match added.saturating_sub(removed) <= self.room(bound) {
            true => Ok(()),
            false => Err(CommandError::OutOfMemory),
        }
    }

    /// The function of this name, in any case.
    pub(super) fn find(&self, name: &[u8]) -> Option<Found> {
        let known = self.known.read();
        let found = match known.functions.get(name) {
            Some(found) => found,
            None => known.functions.get(&name.to_ascii_lowercase())?,
        };
        let (source, at) = found;
        Some(Found {
            source: Arc::clone(source),
            at: *at,
        })
    }

    /// What was found while this was what it is now may be called without another look.
    #[inline]
    pub(super) fn version(&self) -> u64 {
        self.version.load(Acquire)
    }

    /// The position in the log behind all changes of what was found before this is asked: a reply that knows of
    /// libraries has to wait for it where replies wait for the disk.
    #[inline]
    pub fn position(&self) -> u64 {
        self.position.load(Acquire)
    }

    /// Logs a change before anybody can see it. The caller holds the lock of `known`, with the change made.
    fn log(&self, log: LogChange<'_>) {
        if let Some(position) = log() {
            self.position.fetch_max(position, Release);
        }
    }

    /// Counts libraries that may have been found and are no longer there. The caller holds the lock of `known`.
    fn lose(&self, libraries: usize) {
        self.version.fetch_add(libraries as u64, Release);
        LOST.fetch_add(libraries as u64, Release);
    }

    /// Creates a library; its name.
    pub fn load(
        &self,
        code: &[u8],
        may_replace: bool,
        bound: TextBound,
        log: LogChange<'_>,
    ) -> Result<String, CommandError> {
        let (name, code_start) = head(code)?;
        // Said before the code is run, as in Redis, and again when it is known how things stand then.
        self.known.read().check(&name, may_replace)?;
        let made = Made::new(self, name.clone(), code, code_start)?;
        let before = {
            let mut known = self.known.write();
            known.check(&name, may_replace)?;
            self.check_room(known.bytes_of(&name), made.source.bytes(), bound)?;
            let bytes = known.bytes;
            let before = known.remove(&name);
            self.lose(usize::from(before.is_some()));
            if let Err(error) = known.link(Arc::clone(&made.source)) {
                if let Some(before) = before {
                    let _ = known.link(before);
                }
                return Err(error);
            }
            self.texts.change_loaded(bytes, known.bytes);
            self.log(log);
            before
        };
        drop(before);
        Made::keep([made]);
        Ok(name)
    }

    /// Deletes a library.
    pub(super) fn delete(&self, name: &[u8], log: LogChange<'_>) -> Result<(), CommandError> {
        let name = std::str::from_utf8(name).unwrap_or_default();
        let mut known = self.known.write();
        let source = known.remove(name).ok_or("ERR Library not found")?;
        self.texts.change_loaded(source.bytes(), 0);
        self.lose(1);
        self.log(log);
        Ok(())
    }

    /// Deletes all of them.
    pub fn flush(&self, log: LogChange<'_>) {
        self.replace(Known::default(), log);
    }

    /// How many functions were deleted by deleting all, and the compiled code of each time.
    pub fn flushed(&self) -> u64 {
        self.flushed.load(Relaxed)
    }

    fn replace(&self, next: Known, log: LogChange<'_>) {
        let mut known = self.known.write();
        let before = std::mem::replace(&mut *known, next);
        self.texts.change_loaded(before.bytes, known.bytes);
        self.lose(before.libraries.len());
        self.log(log);
        drop(known);
        // Redis counts them where it frees them in the background, with the interpreter that had compiled them.
        let functions = before.functions.len() as u64;
        if functions > 0 {
            self.flushed.fetch_add(functions + 1, Relaxed);
        }
    }

    /// The libraries whose names match.
    pub(super) fn views(&self, pattern: Option<&[u8]>) -> Vec<LibraryView> {
        let known = self.known.read();
        let is_wanted = |name: &str| {
            pattern.is_none_or(|pattern| glob::matches(pattern, name.as_bytes(), Case::Insensitive))
        };
        let wanted = known
            .libraries
            .values()
            .filter(|source| is_wanted(&source.name));
        let view = |source: &Arc<Source>| LibraryView {
            name: source.name.clone(),
            code: source.code.clone(),
            functions: source.functions.iter().map(view_of).collect(),
        };
        wanted.map(view).collect()
    }

    /// How many libraries and functions there are.
    pub fn counts(&self) -> (usize, usize) {
        let known = self.known.read();
        (known.libraries.len(), known.functions.len())
    }

    /// What their sources take in memory.
    pub fn bytes(&self) -> usize {
        self.known.read().bytes
    }

    /// The sources of all libraries.
    pub fn codes(&self) -> Vec<Code> {
        let known = self.known.read();
        known.libraries.values().cloned().map(Code).collect()
    }

    /// All libraries as one payload.
    pub(super) fn dump(&self) -> Vec<u8> {
        let known = self.known.read();
        let codes = known.libraries.values();
        payload::write(codes.map(|source| source.code.as_slice()))
    }

    /// Creates the libraries of a payload, all or none.
    pub(super) fn restore(
        &self,
        bytes: &[u8],
        policy: Restore,
        bound: TextBound,
        log: LogChange<'_>,
    ) -> Result<(), CommandError> {
        // What goes makes room, too.
        let room = self.room(bound).saturating_add(self.bytes());
        let mut added = Known::default();
        let mut all_made = Vec::new();
        for code in payload::read(bytes, room)? {
            let (name, code_start) = head(&code)?;
            added.check(&name, false)?;
            let made = Made::new(self, name, &code, code_start)?;
            added.link(Arc::clone(&made.source))?;
            all_made.push(made);
        }
        match policy {
            Restore::Flush => {
                self.check_room(self.bytes(), added.bytes, bound)?;
                self.replace(added, log);
            }
            _ => self.add(added, policy, bound, log)?,
        }
        Made::keep(all_made);
        Ok(())
    }

    /// Adds libraries to those that are known, all or none.
    fn add(
        &self,
        added: Known,
        policy: Restore,
        bound: TextBound,
        log: LogChange<'_>,
    ) -> Result<(), CommandError> {
        let mut known = self.known.write();
        let (mut replaced, bytes) = (Vec::new(), known.bytes);
        for name in added.libraries.keys() {
            if known.libraries.contains_key(name) && policy == Restore::Append {
                return Err(format!("ERR Library {name} already exists").into());
            }
        }
        let removed = added.libraries.keys().map(|name| known.bytes_of(name));
        self.check_room(removed.sum(), added.bytes, bound)?;
        for name in added.libraries.keys() {
            replaced.extend(known.remove(name));
        }
        self.lose(replaced.len());
        let mut linked: Vec<String> = Vec::new();
        for (name, source) in added.libraries {
            if let Err(error) = known.link(source) {
                for name in &linked {
                    known.remove(name);
                }
                for before in replaced {
                    let _ = known.link(before);
                }
                return Err(error);
            }
            linked.push(name);
        }
        self.texts.change_loaded(bytes, known.bytes);
        self.log(log);
        Ok(())
    }
}

fn view_of(declared: &Declared) -> FunctionView {
    FunctionView {
        name: declared.name.clone(),
        description: declared.description.clone(),
        flags: declared.flags.names(),
    }
}

impl Known {
    /// Whether a library of this name can be added.
    fn check(&self, name: &str, may_replace: bool) -> Result<(), CommandError> {
        match self.libraries.contains_key(name) && !may_replace {
            true => Err(format!("ERR Library '{name}' already exists").into()),
            false => Ok(()),
        }
    }

    /// Bytes of the library of this name, 0 if there is none.
    fn bytes_of(&self, name: &str) -> usize {
        let source = self.libraries.get(name);
        source.map_or(0, |source| source.bytes())
    }

    fn remove(&mut self, name: &str) -> Option<Arc<Source>> {
        let source = self.libraries.remove(name)?;
        for function in &source.functions {
            self.functions
                .remove(function.name.to_ascii_lowercase().as_bytes());
        }
        self.bytes -= source.bytes();
        Some(source)
    }

    fn link(&mut self, source: Arc<Source>) -> Result<(), CommandError> {
        for function in &source.functions {
            let key = function.name.to_ascii_lowercase().into_bytes();
            if self.functions.contains_key(&key) {
                return Err(format!("ERR Function {} already exists", function.name).into());
            }
        }
        for (at, function) in source.functions.iter().enumerate() {
            let key = function.name.to_ascii_lowercase().into_bytes();
            self.functions.insert(key, (Arc::clone(&source), at));
        }
        self.bytes += source.bytes();
        self.libraries.insert(source.name.clone(), source);
        Ok(())
    }
}

/// Whether a library or a function may be called this.
fn is_name(name: &[u8]) -> bool {
    let is_fine = |byte: &u8| byte.is_ascii_alphanumeric() || *byte == b'_';
    !name.is_empty() && name.iter().all(is_fine)
}

/// The name in the first line of a library, and where the code behind it begins.
fn head(code: &[u8]) -> Result<(String, usize), CommandError> {
    let (words, code_start) = match flags::head(code) {
        None => return Err("ERR Missing library metadata".into()),
        Some(Err(())) => return Err("ERR Invalid library metadata".into()),
        Some(Ok(head)) => head,
    };
    let Some((engine, options)) = words.split_first() else {
        return Err("ERR Invalid library metadata".into());
    };
    let mut name = None;
    for option in options {
        let is_name = option.len() >= 5 && option[..5].eq_ignore_ascii_case(b"name=");
        if !is_name {
            let given = shown(option);
            return Err(format!("ERR Invalid metadata value given: {given}").into());
        }
        if name.replace(&option[5..]).is_some() {
            return Err(
                "ERR Invalid metadata value, name argument was given multiple times".into(),
            );
        }
    }
    let name = name.ok_or("ERR Library name was not given")?;
    if !is_name(name) {
        return Err(BAD_NAME.into());
    }
    let engine = engine.get(2..).unwrap_or_default();
    if !engine.eq_ignore_ascii_case(b"lua") {
        let engine = shown(engine);
        return Err(format!("ERR Engine '{engine}' not found").into());
    }
    Ok((String::from_utf8_lossy(name).into_owned(), code_start))
}
