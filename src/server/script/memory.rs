//! Memory of interpreters and of the texts of scripts: how much each takes, and how much it may.

use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};

use mlua::Lua;

use super::functions::compiled;

/// Bytes that one interpreter may take at most.
pub(super) const MEMORY_BYTES_MAX: usize = 256 * 1024 * 1024;

/// Bytes that one interpreter may take however little all clients may.
const MEMORY_BYTES_MIN: usize = 32 * 1024 * 1024;

/// Bytes that one interpreter may take as the configuration is.
static LIMIT_BYTES: AtomicUsize = AtomicUsize::new(MEMORY_BYTES_MAX);

/// What may be taken without a look at the bound.
const FREE_BYTES_MAX: usize = 64 * 1024;

/// What all interpreters take together.
static MEMORY_BYTES: AtomicUsize = AtomicUsize::new(0);

/// What one of them takes without garbage: the one that was collected last.
static LIVE_BYTES: AtomicUsize = AtomicUsize::new(0);

/// What interpreters take, as of their last scripts.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Memory {
    /// All of them, garbage included.
    pub total: usize,
    /// One of them, as the last collection of any left it.
    pub live_each: usize,
    /// Compiled libraries of functions, in all of them.
    pub functions: usize,
}

/// What interpreters take.
pub fn memory_figures() -> Memory {
    Memory {
        total: MEMORY_BYTES.load(Relaxed),
        live_each: LIVE_BYTES.load(Relaxed),
        functions: compiled::bytes(),
    }
}

/// Bounds each interpreter by what all clients together may take, in bytes; 0 for no such limit. A script that needs
/// more fails.
pub fn limit_memory(client_bytes_max: u64) {
    LIMIT_BYTES.store(limit_of(client_bytes_max), Relaxed);
}

fn limit_of(client_bytes_max: u64) -> usize {
    match usize::try_from(client_bytes_max) {
        Ok(0) | Err(_) => MEMORY_BYTES_MAX,
        Ok(bytes) => bytes.clamp(MEMORY_BYTES_MIN, MEMORY_BYTES_MAX),
    }
}

/// Bytes that one interpreter may take.
#[inline]
pub(super) fn limit_bytes() -> usize {
    LIMIT_BYTES.load(Relaxed)
}

/// Bytes of texts without `maxmemory`.
const TEXT_BYTES_MAX: usize = 256 * 1024 * 1024;

/// Bytes of texts that are allowed however small `maxmemory` is.
const TEXT_BYTES_MIN: usize = 1024 * 1024;

/// The texts of all scripts and libraries that a server keeps: one account with one bound, a sixteenth of `maxmemory`.
/// Texts count beside the data, so that they evict no key; without a bound of their own they would have none.
#[derive(Debug)]
pub(super) struct Texts {
    /// Libraries, and scripts of SCRIPT LOAD: they stay until they are deleted.
    loaded: AtomicUsize,
    /// Scripts of EVAL: they give way to what is loaded, and to newer ones.
    evaluated: AtomicUsize,
    bytes_max: AtomicUsize,
}

impl Default for Texts {
    fn default() -> Texts {
        Texts {
            loaded: AtomicUsize::new(0),
            evaluated: AtomicUsize::new(0),
            bytes_max: AtomicUsize::new(TEXT_BYTES_MAX),
        }
    }
}

impl Texts {
    /// Sets the bound for a value of `maxmemory`, in bytes; 0 for no limit.
    pub(super) fn limit(&self, maxmemory: u64) {
        let bytes_max = match usize::try_from(maxmemory / 16) {
            _ if maxmemory == 0 => TEXT_BYTES_MAX,
            Ok(bytes) => bytes.max(TEXT_BYTES_MIN),
            Err(_) => usize::MAX,
        };
        self.bytes_max.store(bytes_max, Relaxed);
    }

    /// Bytes of all texts.
    pub(super) fn bytes(&self) -> usize {
        self.loaded.load(Relaxed) + self.evaluated.load(Relaxed)
    }

    /// Bytes that may still be loaded.
    pub(super) fn room(&self) -> usize {
        let bytes_max = self.bytes_max.load(Relaxed);
        bytes_max.saturating_sub(self.loaded.load(Relaxed))
    }

    /// Whether scripts of EVAL have to go. However much is loaded some of them stay, or each EVAL would compile.
    pub(super) fn must_forget_evaluated(&self) -> bool {
        self.evaluated.load(Relaxed) > self.room().max(TEXT_BYTES_MIN)
    }

    /// Counts what is loaded where `before` bytes were.
    pub(super) fn change_loaded(&self, before: usize, after: usize) {
        change(&self.loaded, before, after);
    }

    /// Counts scripts of EVAL where `before` bytes were.
    pub(super) fn change_evaluated(&self, before: usize, after: usize) {
        change(&self.evaluated, before, after);
    }
}

fn change(counter: &AtomicUsize, before: usize, after: usize) {
    counter.fetch_add(after, Relaxed);
    counter.fetch_sub(before, Relaxed);
}

/// One interpreter's share of [`MEMORY_BYTES`], which all threads add to: it follows in steps, so that no script has
/// to.
#[derive(Default)]
pub(super) struct Figure(usize);

impl Figure {
    /// What is not told yet at most.
    const STEP_BYTES: usize = 16 * 1024;

    #[inline]
    pub(super) fn follow(&mut self, bytes: usize) {
        if self.0.abs_diff(bytes) >= Figure::STEP_BYTES {
            self.set(bytes);
        }
    }

    #[cold]
    pub(super) fn set(&mut self, bytes: usize) {
        let before = std::mem::replace(&mut self.0, bytes);
        MEMORY_BYTES.fetch_add(bytes, Relaxed);
        MEMORY_BYTES.fetch_sub(before, Relaxed);
    }
}

impl Drop for Figure {
    fn drop(&mut self) {
        self.set(0);
    }
}

/// Notes what an interpreter takes that was just collected.
pub(super) fn note_live(bytes: usize) {
    LIVE_BYTES.store(bytes, Relaxed);
}

/// Runs something that takes no more memory than a few times so many bytes. As long as that is little the bound of the
/// interpreter is lifted meanwhile, as what may fail costs more.
#[inline]
pub(super) fn freely<R>(lua: &Lua, bytes: usize, work: impl FnOnce() -> R) -> R {
    if bytes > FREE_BYTES_MAX {
        return work();
    }
    let _ = lua.set_memory_limit(0);
    let result = work();
    let _ = lua.set_memory_limit(limit_bytes());
    result
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn texts_take_a_sixteenth_of_the_limit_of_memory() {
        let texts = Texts::default();
        for (maxmemory, expected) in [
            (0, TEXT_BYTES_MAX),
            (1, TEXT_BYTES_MIN),
            (160 << 20, 10 << 20),
            (64 << 30, 4 << 30),
        ] {
            texts.limit(maxmemory);
            assert_eq!(texts.room(), expected, "{maxmemory}");
        }
        texts.limit(1);
        texts.change_evaluated(0, TEXT_BYTES_MIN + 1);
        assert!(texts.must_forget_evaluated());
        texts.change_evaluated(1, 0);
        texts.change_loaded(0, 2 * TEXT_BYTES_MIN);
        assert_eq!(texts.room(), 0);
        assert!(!texts.must_forget_evaluated(), "some stay");
    }

    #[test]
    fn an_interpreter_takes_what_all_clients_may_within_limits_of_its_own() {
        for (clients, expected) in [
            (0, MEMORY_BYTES_MAX),
            (1, MEMORY_BYTES_MIN),
            (64 << 20, 64 << 20),
            (u64::MAX, MEMORY_BYTES_MAX),
        ] {
            assert_eq!(limit_of(clients), expected, "{clients}");
        }
    }
}
