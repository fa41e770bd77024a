//! What interpreters take of memory, and how much one may.

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
