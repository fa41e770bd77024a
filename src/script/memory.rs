//! What interpreters take of memory, and how much one may.

use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};

use mlua::Lua;

use super::functions::compiled;

/// Bytes that one interpreter may take.
pub(super) const MEMORY_BYTES_MAX: usize = 256 * 1024 * 1024;

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
    let _ = lua.set_memory_limit(MEMORY_BYTES_MAX);
    result
}
