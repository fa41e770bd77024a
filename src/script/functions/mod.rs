//! Libraries of functions: what FUNCTION manages and FCALL finds.
//!
//! All interpreters share the sources; each runs a library's code when it first calls one of its functions
//! ([`compiled`]). Readers take a snapshot; whoever changes something makes a new one.

pub(super) mod compiled;
mod payload;

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

use arc_swap::ArcSwap;
use parking_lot::Mutex;

use super::flags::{self, ScriptFlags};
use super::vm;
use crate::base::glob::{self, Case};
use crate::command::error::CommandError;
use crate::command::script::{FunctionView, LibraryView, Restore};

/// One library.
pub(super) struct Source {
    /// Distinct for each that was ever loaded.
    id: u64,
    name: String,
    code: Vec<u8>,
    /// Where the code begins behind `#!lua name=…`.
    code_start: usize,
    functions: Vec<Declared>,
}

/// A function as its library registered it.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Declared {
    name: String,
    description: Option<Vec<u8>>,
    flags: ScriptFlags,
}

/// What FCALL found.
pub(super) struct Found {
    /// The function's name as its library wrote it.
    pub(super) name: String,
    /// Its flags.
    pub(super) flags: ScriptFlags,
    source: Arc<Source>,
}

#[derive(Clone, Default)]
struct Snapshot {
    libraries: BTreeMap<String, Arc<Source>>,
    /// By lower-case name: the library and the position in it.
    functions: HashMap<Vec<u8>, (Arc<Source>, usize)>,
}

/// See the module.
#[derive(Default)]
pub struct Functions {
    now: ArcSwap<Snapshot>,
    changing: Mutex<()>,
}

static IDS: AtomicU64 = AtomicU64::new(1);

const BAD_NAME: &str = "ERR Library names can only contain letters, numbers, or underscores(_) and must be at least one \
     character long";

impl Functions {
    /// The function of this name, in any case.
    pub(super) fn find(&self, name: &[u8]) -> Option<Found> {
        let now = self.now.load();
        let found = match now.functions.get(name) {
            Some(found) => found,
            None => now.functions.get(&name.to_ascii_lowercase())?,
        };
        let (source, at) = found;
        let declared = source.functions.get(*at)?;
        Some(Found {
            name: declared.name.clone(),
            flags: declared.flags,
            source: Arc::clone(source),
        })
    }

    /// Creates a library; its name.
    pub(super) fn load(&self, code: &[u8], may_replace: bool) -> Result<String, CommandError> {
        let (name, code_start) = head(code)?;
        // Said before the code is run, as in Redis, and again when it is known how things stand then.
        self.now.load().check(&name, may_replace)?;
        let made = Made::new(&name, code, code_start)?;
        {
            let _one_at_a_time = self.changing.lock();
            let mut next = (**self.now.load()).clone();
            next.add(&made.source, may_replace)?;
            self.now.store(Arc::new(next));
        }
        made.keep();
        Ok(name)
    }

    /// Deletes a library.
    pub(super) fn delete(&self, name: &[u8]) -> Result<(), CommandError> {
        let _one_at_a_time = self.changing.lock();
        let mut next = (**self.now.load()).clone();
        let name = std::str::from_utf8(name).unwrap_or_default();
        next.remove(name).ok_or("ERR Library not found")?;
        self.now.store(Arc::new(next));
        Ok(())
    }

    /// Deletes all of them.
    pub(super) fn flush(&self) {
        let _one_at_a_time = self.changing.lock();
        self.now.store(Arc::default());
    }

    /// The libraries whose names match.
    pub(super) fn views(&self, pattern: Option<&[u8]>) -> Vec<LibraryView> {
        let now = self.now.load();
        let is_wanted = |name: &str| {
            pattern.is_none_or(|pattern| glob::matches(pattern, name.as_bytes(), Case::Insensitive))
        };
        let wanted = now
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
        let now = self.now.load();
        (now.libraries.len(), now.functions.len())
    }

    /// What their sources take in memory.
    pub fn bytes(&self) -> usize {
        let now = self.now.load();
        let of = |source: &Arc<Source>| {
            source.code.len()
                + size_of::<Source>()
                + source.functions.len() * (size_of::<Declared>() + 64)
        };
        now.libraries.values().map(of).sum()
    }

    /// All libraries as one payload.
    pub(super) fn dump(&self) -> Vec<u8> {
        let now = self.now.load();
        payload::write(now.libraries.values().map(|source| source.code.as_slice()))
    }

    /// Creates the libraries of a payload, all or none.
    pub(super) fn restore(&self, bytes: &[u8], policy: Restore) -> Result<(), CommandError> {
        let mut added = Snapshot::default();
        for code in payload::read(bytes)? {
            let (name, code_start) = head(&code)?;
            added.check(&name, false)?;
            let made = Made::new(&name, &code, code_start)?;
            added.add(&made.source, false)?;
            made.keep();
        }
        let _one_at_a_time = self.changing.lock();
        if policy == Restore::Flush {
            self.now.store(Arc::new(added));
            return Ok(());
        }
        let mut next = (**self.now.load()).clone();
        for name in added.libraries.keys() {
            if next.libraries.contains_key(name) {
                if policy == Restore::Append {
                    return Err(format!("ERR Library {name} already exists").into());
                }
                next.remove(name);
            }
        }
        for source in added.libraries.into_values() {
            next.link(source)?;
        }
        self.now.store(Arc::new(next));
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

/// A library whose code was run, and what that left behind.
struct Made {
    source: Arc<Source>,
    registered: Vec<compiled::Registered>,
}

impl Made {
    /// Runs the code of a library, which takes some time: no lock is held.
    fn new(name: &str, code: &[u8], code_start: usize) -> Result<Made, CommandError> {
        let mut source = Source {
            id: IDS.fetch_add(1, Relaxed),
            name: name.to_owned(),
            code: code.to_vec(),
            code_start,
            functions: Vec::new(),
        };
        let registered = vm::with(|vm| vm.load_library(&source))?;
        if registered.is_empty() {
            return Err("ERR No functions registered".into());
        }
        let declared = |function: &compiled::Registered| Declared {
            name: function.name.clone(),
            description: function.description.clone(),
            flags: function.flags,
        };
        source.functions = registered.iter().map(declared).collect();
        Ok(Made {
            source: Arc::new(source),
            registered,
        })
    }

    /// Leaves what the code registered in this thread's interpreter, which ran it.
    fn keep(self) {
        vm::with_own(|vm| vm.libraries.keep(&self.source, self.registered));
    }
}

impl Snapshot {
    /// Whether a library of this name can be added.
    fn check(&self, name: &str, may_replace: bool) -> Result<(), CommandError> {
        match self.libraries.contains_key(name) && !may_replace {
            true => Err(format!("ERR Library '{name}' already exists").into()),
            false => Ok(()),
        }
    }

    fn add(&mut self, source: &Arc<Source>, may_replace: bool) -> Result<(), CommandError> {
        self.check(&source.name, may_replace)?;
        self.remove(&source.name);
        self.link(Arc::clone(source))
    }

    fn remove(&mut self, name: &str) -> Option<Arc<Source>> {
        let source = self.libraries.remove(name)?;
        self.functions.retain(|_, (other, _)| other.id != source.id);
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
            let shown = String::from_utf8_lossy(option);
            return Err(format!("ERR Invalid metadata value given: {shown}").into());
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
        let shown = String::from_utf8_lossy(engine);
        return Err(format!("ERR Engine '{shown}' not found").into());
    }
    Ok((String::from_utf8_lossy(name).into_owned(), code_start))
}
