//! Function libraries, managed by FUNCTION and called by FCALL.
//!
//! All interpreters share the sources; each runs a library's code when it first calls one of its functions
//! ([`compiled`]), and caches the result for as long as [`Functions::version`] is unchanged. So a thread takes
//! the lock only for a first call, and for changes. A change keeps the lock only briefly, because a new
//! library's code is run before the lock is taken.

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

use self::compiled::LibraryMemory;
use self::loading::EvaluatedLibrary;
use super::flags::{self, ScriptFlags};
use crate::script::memory::ScriptTextBytes;
use basalt_commands::command::error::{CommandError, shown};
use basalt_commands::command::host::scripts::{
    FunctionView, LibraryView, LogChange, Restore, TextBound,
};
use basalt_core::base::glob::{self, Case};

/// The source of one function library.
pub(super) struct FunctionLibrary {
    /// Id of this source, unique among all libraries ever loaded.
    id: u64,
    name: String,
    code: Vec<u8>,
    /// Offset of the code after the line `#!lua name=…`.
    code_start: usize,
    functions: Vec<Declared>,
    compiled: LibraryMemory,
}

impl FunctionLibrary {
    /// Returns the memory of the library's source, in bytes.
    fn bytes(&self) -> usize {
        self.code.len()
            + size_of::<FunctionLibrary>()
            + self.functions.len() * (size_of::<Declared>() + 64)
    }
}

/// The source of a library, shared with the library.
#[derive(Clone)]
pub struct Code(Arc<FunctionLibrary>);

impl Code {
    /// Returns the source, from `#!` on.
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
pub(super) struct LibraryFunction {
    source: Arc<FunctionLibrary>,
    at: usize,
}

impl LibraryFunction {
    fn declared(&self) -> &Declared {
        &self.source.functions[self.at]
    }

    /// Returns the flags declared by the function.
    pub(super) fn flags(&self) -> ScriptFlags {
        self.declared().flags
    }
}

#[derive(Default)]
struct Known {
    libraries: BTreeMap<String, Arc<FunctionLibrary>>,
    /// Functions by lower-case name: the library, and the function's index in it.
    functions: HashMap<Vec<u8>, (Arc<FunctionLibrary>, usize)>,
    /// Total memory of the libraries' sources, in bytes.
    bytes: usize,
}

/// The function libraries of a server.
#[derive(Default)]
pub struct Functions {
    known: RwLock<Known>,
    /// Log position after the latest change of libraries that lookups can see. Written while `known` is locked.
    position: AtomicU64,
    /// Number of libraries removed or replaced so far. Written while `known` is locked.
    version: AtomicU64,
    flushed: AtomicU64,
    /// Account of the memory of all script texts, including the libraries' sources.
    texts: Arc<ScriptTextBytes>,
}

static IDS: AtomicU64 = AtomicU64::new(1);

/// Number of libraries removed or replaced so far: a thread that is about to wait compares this count to see
/// whether its interpreter may still have removed libraries.
static LOST: AtomicU64 = AtomicU64::new(0);

/// Returns the number of libraries removed or replaced so far in this process (tests run several servers in one).
pub(super) fn lost() -> u64 {
    LOST.load(Relaxed)
}

const BAD_NAME: &str = "ERR Library names can only contain letters, numbers, or underscores(_) and must be at least one \
     character long";

impl Functions {
    /// Creates an empty set of libraries whose sources will count in an account of texts.
    pub(super) fn counted_in(texts: Arc<ScriptTextBytes>) -> Functions {
        Functions {
            texts,
            ..Functions::default()
        }
    }

    /// Returns how many bytes of sources may still be loaded.
    fn room(&self, bound: TextBound) -> usize {
        match bound {
            TextBound::Holds => self.texts.room(),
            TextBound::Lifted => usize::MAX,
        }
    }

    /// Returns an error if the memory limit does not allow replacing `removed` bytes of sources by `added` bytes.
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

    /// Returns the function of this name, case-insensitively.
    pub(super) fn find(&self, name: &[u8]) -> Option<LibraryFunction> {
        let known = self.known.read();
        let found = match known.functions.get(name) {
            Some(found) => found,
            None => known.functions.get(&name.to_ascii_lowercase())?,
        };
        let (source, at) = found;
        Some(LibraryFunction {
            source: Arc::clone(source),
            at: *at,
        })
    }

    /// Returns the version: functions found at the same version may be called without another lookup.
    #[inline]
    pub(super) fn version(&self) -> u64 {
        self.version.load(Acquire)
    }

    /// Returns the log position after all changes that earlier lookups have seen: if replies wait for the disk,
    /// a reply that depends on libraries must wait for this position.
    #[inline]
    pub fn position(&self) -> u64 {
        self.position.load(Acquire)
    }

    /// Logs a change before lookups can see it. The caller has locked `known` and made the change.
    fn log(&self, log: LogChange<'_>) {
        if let Some(position) = log() {
            self.position.fetch_max(position, Release);
        }
    }

    /// Counts removed libraries, which interpreters may still use. The caller has locked `known`.
    fn lose(&self, libraries: usize) {
        self.version.fetch_add(libraries as u64, Release);
        LOST.fetch_add(libraries as u64, Release);
    }

    /// Creates a library; returns its name.
    pub fn load(
        &self,
        code: &[u8],
        may_replace: bool,
        bound: TextBound,
        log: LogChange<'_>,
    ) -> Result<String, CommandError> {
        let (name, code_start) = head(code)?;
        // Check before the code is run, as in Redis; checked again when `known` is locked.
        self.known.read().check(&name, may_replace)?;
        let made = EvaluatedLibrary::new(self, name.clone(), code, code_start)?;
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
        EvaluatedLibrary::keep([made]);
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

    /// Deletes all libraries.
    pub fn flush(&self, log: LogChange<'_>) {
        self.replace(Known::default(), log);
    }

    /// Returns how many functions were deleted by flushes, plus one per flush for the interpreter, as in Redis.
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
        // Redis counts the functions, and one for the interpreter that had compiled them, as objects freed in
        // the background.
        let functions = before.functions.len() as u64;
        if functions > 0 {
            self.flushed.fetch_add(functions + 1, Relaxed);
        }
    }

    /// Returns the libraries whose names match `pattern`, or all libraries without a pattern.
    pub(super) fn views(&self, pattern: Option<&[u8]>) -> Vec<LibraryView> {
        let known = self.known.read();
        let is_wanted = |name: &str| {
            pattern.is_none_or(|pattern| glob::matches(pattern, name.as_bytes(), Case::Insensitive))
        };
        let wanted = known
            .libraries
            .values()
            .filter(|source| is_wanted(&source.name));
        let view = |source: &Arc<FunctionLibrary>| LibraryView {
            name: source.name.clone(),
            code: source.code.clone(),
            functions: source.functions.iter().map(view_of).collect(),
        };
        wanted.map(view).collect()
    }

    /// Returns the numbers of libraries and functions.
    pub fn counts(&self) -> (usize, usize) {
        let known = self.known.read();
        (known.libraries.len(), known.functions.len())
    }

    /// Returns the memory of the sources.
    pub fn bytes(&self) -> usize {
        self.known.read().bytes
    }

    /// Returns the sources of all libraries.
    pub fn codes(&self) -> Vec<Code> {
        let known = self.known.read();
        known.libraries.values().cloned().map(Code).collect()
    }

    /// Serializes all libraries as one payload.
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
        // The memory of replaced libraries becomes available, too.
        let room = self.room(bound).saturating_add(self.bytes());
        let mut added = Known::default();
        let mut all_made = Vec::new();
        for code in payload::read(bytes, room)? {
            let (name, code_start) = head(&code)?;
            added.check(&name, false)?;
            let made = EvaluatedLibrary::new(self, name, &code, code_start)?;
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
        EvaluatedLibrary::keep(all_made);
        Ok(())
    }

    /// Adds libraries to the existing ones, all or none.
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
        flags: declared.flags.names().collect(),
    }
}

impl Known {
    /// Checks whether a library of this name can be added.
    fn check(&self, name: &str, may_replace: bool) -> Result<(), CommandError> {
        match self.libraries.contains_key(name) && !may_replace {
            true => Err(format!("ERR Library '{name}' already exists").into()),
            false => Ok(()),
        }
    }

    /// Returns the bytes of the library of this name, 0 if no such library exists.
    fn bytes_of(&self, name: &str) -> usize {
        let source = self.libraries.get(name);
        source.map_or(0, |source| source.bytes())
    }

    fn remove(&mut self, name: &str) -> Option<Arc<FunctionLibrary>> {
        let source = self.libraries.remove(name)?;
        for function in &source.functions {
            self.functions
                .remove(function.name.to_ascii_lowercase().as_bytes());
        }
        self.bytes -= source.bytes();
        Some(source)
    }

    fn link(&mut self, source: Arc<FunctionLibrary>) -> Result<(), CommandError> {
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

/// True if this is a valid name of a library or a function.
fn is_name(name: &[u8]) -> bool {
    let is_fine = |byte: &u8| byte.is_ascii_alphanumeric() || *byte == b'_';
    !name.is_empty() && name.iter().all(is_fine)
}

/// Returns the library name in the first line of a library's source, and the offset of the code after that
/// line.
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
