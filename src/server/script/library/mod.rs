//! The scripts known to the server, by the SHA-1 of their text: shared by all interpreters, each of which
//! compiles the scripts that it runs.
//!
//! Scripts of EVAL are kept while they are among the [`EVALUATED_MAX`] most recently used ones and fit the
//! account of [`ScriptTextBytes`]; those of SCRIPT LOAD are kept until SCRIPT FLUSH, and refused if they do not fit.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering::Relaxed};

use arc_swap::ArcSwapOption;
use dashmap::{DashMap, Entry};
use parking_lot::Mutex;

use super::flags::{self, ScriptFlags};
use super::functions::Functions;
use super::memory::ScriptTextBytes;
use super::sha::{Sha, hex, sha1};
use basalt_commands::command::error::CommandError;
use basalt_commands::command::host::scripts::TextBound;
use basalt_core::alloc::account::size_class;
use basalt_core::alloc::slabs::Mover;
use basalt_core::base::hex;

/// Number of SCRIPT FLUSH calls. A thread that is about to wait compares this count to see whether its
/// interpreter still has older scripts.
static FLUSHED: AtomicU64 = AtomicU64::new(0);

/// Maximum number of EVAL scripts kept.
pub const EVALUATED_MAX: usize = 500;

/// One script known to the server.
pub struct Script {
    /// SHA-1 of the text, by which the script is called.
    pub sha: Sha,
    /// SHA-1 of the text in hexadecimal digits.
    pub hex: [u8; 40],
    /// The script's text. Defragmentation may move it while interpreters use the script. It is freed as soon as
    /// no client can call the script any more, even if idle interpreters still keep the script.
    body: ArcSwapOption<Box<[u8]>>,
    body_len: usize,
    /// Offset of the code after the line `#!lua …`.
    code_start: usize,
    /// Flags declared by the script.
    pub flags: ScriptFlags,
    /// Whether EVALSHA finds the script.
    is_known: AtomicBool,
    /// Whether the script was added by SCRIPT LOAD, so that it is kept until SCRIPT FLUSH.
    is_loaded: AtomicBool,
    used: AtomicU64,
}

impl Script {
    /// True if this is the script's text.
    #[inline]
    pub fn is_text(&self, text: &[u8]) -> bool {
        let body = self.body.load();
        body.as_ref().is_some_and(|body| ***body == *text)
    }

    /// Returns the script's text; `None` if it was removed.
    pub fn body(&self) -> Option<Arc<Box<[u8]>>> {
        self.body.load_full()
    }

    /// Returns the code in the script's text `body`, without the `#!` line. The end of that line is kept, so
    /// that Lua's line numbers match the user's.
    pub fn code_of<'a>(&self, body: &'a [u8]) -> &'a [u8] {
        &body[self.code_start..]
    }

    /// Moves the script's text out of sparse slabs of the allocator.
    fn relocate(&self, mover: &mut Mover) {
        let Some(body) = self.body() else {
            return;
        };
        mover.begin();
        mover.add(body.as_ptr().addr());
        mover.add(Arc::as_ptr(&body).addr());
        mover.look();
        // The `Arc` with the text may also lie in a sparse slab.
        if mover.must_move_all(2, 1) {
            let moved = Some(Arc::new(Box::clone(&body)));
            // Only if the text was not removed meanwhile.
            self.body.compare_and_swap(&body, moved);
        }
    }

    fn forget(&self) {
        self.is_known.store(false, Relaxed);
        self.is_loaded.store(false, Relaxed);
        self.body.store(None);
    }

    /// True if EVALSHA finds this very script, rather than another instance with the same text.
    pub fn is_known(&self) -> bool {
        self.is_known.load(Relaxed)
    }
}

/// All scripts known to a server, with its function libraries.
pub struct Library {
    by_sha: DashMap<Sha, Arc<Script>>,
    evaluated: Mutex<Vec<Arc<Script>>>,
    bytes: AtomicUsize,
    uses: AtomicU64,
    flushes: AtomicU64,
    evicted: AtomicU64,
    texts: Arc<ScriptTextBytes>,
    /// Function libraries.
    pub functions: Functions,
    /// Undeclared keys and shards used by scripts.
    pub footprints: super::footprint::Footprints,
    /// Counters of script runs that needed more shards, were repeated or slow.
    pub runs: super::running::Runs,
    /// Units that have been running for long.
    pub running: super::running::RunningUnits,
}

impl Default for Library {
    fn default() -> Library {
        let texts = Arc::new(ScriptTextBytes::default());
        Library {
            by_sha: DashMap::default(),
            evaluated: Mutex::default(),
            bytes: AtomicUsize::default(),
            uses: AtomicU64::default(),
            flushes: AtomicU64::default(),
            evicted: AtomicU64::default(),
            functions: Functions::counted_in(Arc::clone(&texts)),
            texts,
            footprints: super::footprint::Footprints::default(),
            runs: super::running::Runs::default(),
            running: super::running::RunningUnits::default(),
        }
    }
}

impl Library {
    /// Sets the memory limit for the texts of scripts and libraries according to `maxmemory`, in bytes.
    pub fn limit_texts(&self, maxmemory: u64) {
        self.texts.limit(maxmemory);
        self.fit_evaluated();
    }

    /// Returns the bytes of the texts of all scripts and libraries.
    pub fn text_bytes(&self) -> usize {
        self.texts.bytes()
    }

    /// Parses the head of a script, without adding the script.
    pub fn parse(body: &[u8]) -> Result<Script, CommandError> {
        let (flags, code_start) = flags::of_script(body)?;
        let sha = sha1(body);
        Ok(Script {
            sha,
            hex: hex(&sha),
            body: ArcSwapOption::from_pointee(Box::from(body)),
            body_len: body.len(),
            code_start,
            flags,
            is_known: AtomicBool::new(false),
            is_loaded: AtomicBool::new(false),
            used: AtomicU64::new(0),
        })
    }

    /// Finds a script by the hexadecimal digits of its SHA-1, in either case, for EVALSHA.
    pub fn find(&self, digits: &[u8]) -> Option<Arc<Script>> {
        let sha = hex::parse(digits)?;
        let script = self.by_sha.get(&sha)?;
        self.note_used(&script);
        Some(Arc::clone(&script))
    }

    /// Returns the known script with this text, if any.
    pub fn known(&self, text: &[u8]) -> Option<Arc<Script>> {
        let script = self.by_sha.get(&sha1(text))?;
        Some(Arc::clone(&script))
    }

    /// True if EVALSHA would find the script; Redis compares the digits as given.
    pub fn contains(&self, digits: &[u8]) -> bool {
        hex::parse(digits).is_some_and(|sha| self.by_sha.contains_key(&sha))
    }

    /// Returns the SHA-1 of all scripts, to iterate over them in steps.
    pub fn names(&self) -> Vec<Sha> {
        self.by_sha.iter().map(|script| *script.key()).collect()
    }

    /// Moves the texts of the scripts `names` out of sparse slabs of the allocator.
    pub fn relocate(&self, names: &[Sha], mover: &mut Mover) {
        for name in names {
            if let Some(script) = self.by_sha.get(name) {
                script.relocate(mover);
            }
        }
    }

    /// Records that EVAL uses a script, which keeps the script from being evicted. The usual case, a known
    /// script, writes to no shared cache line but its own. If another instance with this text is known, returns
    /// it; the caller must use that from now on.
    #[inline]
    pub fn note_evaluated(&self, script: &Arc<Script>, text: &[u8]) -> Option<Arc<Script>> {
        match script.is_known() {
            true => {
                self.note_used(script);
                None
            }
            false => self.keep_evaluated(script, text),
        }
    }

    /// Notes that a known script is used.
    #[inline]
    pub fn note_used(&self, script: &Script) {
        let uses = self.uses.load(Relaxed);
        if script.used.load(Relaxed) != uses {
            script.used.store(uses, Relaxed);
        }
    }

    #[cold]
    fn keep_evaluated(&self, script: &Arc<Script>, text: &[u8]) -> Option<Arc<Script>> {
        let mut evaluated = self.evaluated.lock();
        let used = self.uses.fetch_add(1, Relaxed) + 1;
        script.used.store(used, Relaxed);
        if let Some(known) = self.insert(script, text) {
            known.used.store(used, Relaxed);
            return Some(known);
        }
        if evaluated.len() >= EVALUATED_MAX {
            self.forget_oldest(&mut evaluated);
        }
        evaluated.push(Arc::clone(script));
        self.forget_evaluated(&mut evaluated);
        None
    }

    /// Removes scripts of EVAL until all texts fit in the memory limit.
    pub(super) fn fit_evaluated(&self) {
        self.forget_evaluated(&mut self.evaluated.lock());
    }

    /// Works like [`Library::fit_evaluated`], for callers that have locked the list.
    fn forget_evaluated(&self, evaluated: &mut Vec<Arc<Script>>) {
        while self.texts.must_forget_evaluated() && !evaluated.is_empty() {
            self.forget_oldest(evaluated);
        }
    }

    /// Removes the least recently used script of EVAL, unless SCRIPT LOAD has loaded it since.
    fn forget_oldest(&self, evaluated: &mut Vec<Arc<Script>>) {
        let ages = evaluated.iter().enumerate();
        let oldest = ages.min_by_key(|(_, script)| script.used.load(Relaxed));
        let Some((at, _)) = oldest else {
            return;
        };
        let script = evaluated.swap_remove(at);
        if !script.is_loaded.load(Relaxed) {
            self.remove(&script);
            self.evicted.fetch_add(1, Relaxed);
        }
    }

    /// Keeps a script until SCRIPT FLUSH, removing scripts of EVAL if needed.
    pub fn keep_loaded(
        &self,
        script: &Arc<Script>,
        text: &[u8],
        bound: TextBound,
    ) -> Result<(), CommandError> {
        // While this list is locked, no known script is removed.
        let mut evaluated = self.evaluated.lock();
        let known = self.by_sha.get(&script.sha).map(|known| Arc::clone(&known));
        let is_loaded = known.is_some_and(|known| known.is_loaded.load(Relaxed));
        if is_loaded {
            return Ok(());
        }
        let bytes = cost(script);
        if bound == TextBound::Holds && bytes > self.texts.room() {
            return Err(CommandError::OutOfMemory);
        }
        let known = self.insert(script, text);
        let kept = known.as_ref().unwrap_or(script);
        kept.is_loaded.store(true, Relaxed);
        self.texts.change_evaluated(bytes, 0);
        self.texts.change_loaded(0, bytes);
        self.forget_evaluated(&mut evaluated);
        Ok(())
    }

    /// Adds a script. If a script with this text is already known, returns that one instead.
    fn insert(&self, script: &Arc<Script>, text: &[u8]) -> Option<Arc<Script>> {
        match self.by_sha.entry(script.sha) {
            Entry::Occupied(known) => Some(Arc::clone(known.get())),
            Entry::Vacant(place) => {
                // The text may have been removed since the script was looked up.
                if script.body.load().is_none() {
                    script.body.store(Some(Arc::new(text.into())));
                }
                // Set the flag before other threads can find the script and remove it again.
                script.is_known.store(true, Relaxed);
                self.bytes.fetch_add(cost(script), Relaxed);
                self.texts.change_evaluated(0, cost(script));
                place.insert(Arc::clone(script));
                None
            }
        }
    }

    fn remove(&self, script: &Script) {
        if self.by_sha.remove(&script.sha).is_some() {
            self.discount(script);
        }
        script.forget();
    }

    /// Subtracts a removed script from the counters.
    fn discount(&self, script: &Script) {
        let bytes = cost(script);
        self.bytes.fetch_sub(bytes, Relaxed);
        match script.is_loaded.load(Relaxed) {
            true => self.texts.change_loaded(bytes, 0),
            false => self.texts.change_evaluated(bytes, 0),
        }
    }

    /// Removes all scripts: SCRIPT FLUSH.
    pub fn flush(&self) {
        let mut evaluated = self.evaluated.lock();
        evaluated.clear();
        self.by_sha.retain(|_, script| {
            self.discount(script);
            script.forget();
            false
        });
        self.by_sha.shrink_to_fit();
        self.flushes.fetch_add(1, Relaxed);
        FLUSHED.fetch_add(1, Relaxed);
    }

    /// Returns how many times all scripts of this library were removed.
    #[inline]
    pub fn flushes(&self) -> u64 {
        self.flushes.load(Relaxed)
    }

    /// Returns the number of known scripts.
    pub fn len(&self) -> usize {
        self.by_sha.len()
    }

    /// True if there are no scripts.
    pub fn is_empty(&self) -> bool {
        self.by_sha.is_empty()
    }

    /// Returns the memory of the scripts.
    pub fn bytes(&self) -> usize {
        self.bytes.load(Relaxed)
    }

    /// Returns how many scripts of EVAL were evicted by newer ones.
    pub fn evicted(&self) -> u64 {
        self.evicted.load(Relaxed)
    }
}

/// Returns how many times all scripts of any library were removed.
pub(super) fn flushed() -> u64 {
    FLUSHED.load(Relaxed)
}

/// Returns the memory of a script in bytes, rounded up to the allocator's size classes.
fn cost(script: &Script) -> usize {
    /// Bytes of the reference counts of an `Arc`.
    const COUNTS: usize = 2 * size_of::<usize>();
    let text = size_class(script.body_len) + size_class(size_of::<Box<[u8]>>() + COUNTS);
    text + size_class(size_of::<Script>() + COUNTS) + size_of::<(Sha, Arc<Script>)>()
}

#[cfg(test)]
mod tests;
