//! Memory use and limits of interpreters and of script texts.

use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};

use mlua::Lua;

use super::functions::compiled;

/// Maximum bytes of one interpreter.
pub(super) const MEMORY_BYTES_MAX: usize = 256 * 1024 * 1024;

/// Minimum limit of one interpreter in bytes, even if `maxmemory-clients` is lower.
const MEMORY_BYTES_MIN: usize = 32 * 1024 * 1024;

/// Limit of one interpreter under the current configuration, in bytes.
static LIMIT_BYTES: AtomicUsize = AtomicUsize::new(MEMORY_BYTES_MAX);

/// Maximum bytes that `freely` may allocate without the interpreter's limit.
const FREE_BYTES_MAX: usize = 64 * 1024;

/// Bytes of all interpreters together.
static MEMORY_BYTES: AtomicUsize = AtomicUsize::new(0);

/// Bytes of one interpreter without garbage, as measured by the latest collection in any interpreter.
static LIVE_BYTES: AtomicUsize = AtomicUsize::new(0);

/// Memory of interpreters in bytes, as of their last scripts.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ScriptMemory {
    /// All interpreters, including garbage.
    pub total: usize,
    /// One interpreter without garbage, as of the last collection in any interpreter.
    pub live_each: usize,
    /// Compiled function libraries in all interpreters.
    pub functions: usize,
}

/// Returns the memory of interpreters.
pub fn memory_figures() -> ScriptMemory {
    ScriptMemory {
        total: MEMORY_BYTES.load(Relaxed),
        live_each: LIVE_BYTES.load(Relaxed),
        functions: compiled::bytes(),
    }
}

/// Limits each interpreter by the limit of all clients together, in bytes; 0 for none. A script that needs more
/// fails.
pub fn limit_memory(client_bytes_max: u64) {
    LIMIT_BYTES.store(limit_of(client_bytes_max), Relaxed);
}

fn limit_of(client_bytes_max: u64) -> usize {
    match usize::try_from(client_bytes_max) {
        Ok(0) | Err(_) => MEMORY_BYTES_MAX,
        Ok(bytes) => bytes.clamp(MEMORY_BYTES_MIN, MEMORY_BYTES_MAX),
    }
}

/// Returns the limit of one interpreter, in bytes.
#[inline]
pub(super) fn limit_bytes() -> usize {
    LIMIT_BYTES.load(Relaxed)
}

/// Maximum bytes of script texts if no `maxmemory` is set.
const TEXT_BYTES_MAX: usize = 256 * 1024 * 1024;

/// Minimum limit for texts, however small `maxmemory` is.
const TEXT_BYTES_MIN: usize = 1024 * 1024;

/// The texts of all scripts and libraries of a server: one account with one limit, a sixteenth of `maxmemory`.
/// Texts do not count as data, so that they evict no keys; therefore they need a limit of their own.
#[derive(Debug)]
pub(super) struct ScriptTextBytes {
    /// Bytes of libraries, and of scripts of SCRIPT LOAD, which are kept until they are deleted.
    loaded_bytes: AtomicUsize,
    /// Bytes of scripts of EVAL, which are evicted in favor of loaded texts and newer scripts.
    eval_bytes: AtomicUsize,
    bytes_max: AtomicUsize,
}

impl Default for ScriptTextBytes {
    fn default() -> ScriptTextBytes {
        ScriptTextBytes {
            loaded_bytes: AtomicUsize::new(0),
            eval_bytes: AtomicUsize::new(0),
            bytes_max: AtomicUsize::new(TEXT_BYTES_MAX),
        }
    }
}

impl ScriptTextBytes {
    /// Sets the limit for a value of `maxmemory`, in bytes; 0 for no limit.
    pub(super) fn limit(&self, maxmemory: u64) {
        let bytes_max = match usize::try_from(maxmemory / 16) {
            _ if maxmemory == 0 => TEXT_BYTES_MAX,
            Ok(bytes) => bytes.max(TEXT_BYTES_MIN),
            Err(_) => usize::MAX,
        };
        self.bytes_max.store(bytes_max, Relaxed);
    }

    /// Returns the bytes of all texts.
    pub(super) fn bytes(&self) -> usize {
        self.loaded_bytes.load(Relaxed) + self.eval_bytes.load(Relaxed)
    }

    /// Returns how many bytes of texts may still be loaded.
    pub(super) fn room(&self) -> usize {
        let bytes_max = self.bytes_max.load(Relaxed);
        bytes_max.saturating_sub(self.loaded_bytes.load(Relaxed))
    }

    /// True if scripts of EVAL have to be evicted. Some EVAL scripts stay however much is loaded; otherwise
    /// each EVAL would have to compile its script.
    pub(super) fn must_forget_evaluated(&self) -> bool {
        self.eval_bytes.load(Relaxed) > self.room().max(TEXT_BYTES_MIN)
    }

    /// Updates the account of loaded texts, of which `before` bytes were replaced by `after` bytes.
    pub(super) fn change_loaded(&self, before: usize, after: usize) {
        change(&self.loaded_bytes, before, after);
    }

    /// Updates the account of EVAL scripts, of which `before` bytes were replaced by `after` bytes.
    pub(super) fn change_evaluated(&self, before: usize, after: usize) {
        change(&self.eval_bytes, before, after);
    }
}

fn change(counter: &AtomicUsize, before: usize, after: usize) {
    counter.fetch_add(after, Relaxed);
    counter.fetch_sub(before, Relaxed);
}

/// One interpreter's share of [`MEMORY_BYTES`], which all threads update. It is updated only after a sufficient
/// change, so that most scripts need not write to it.
#[derive(Default)]
pub(super) struct InterpreterMemory(usize);

impl InterpreterMemory {
    /// Change in bytes from which the sum is updated.
    const STEP_BYTES: usize = 16 * 1024;

    #[inline]
    pub(super) fn follow(&mut self, bytes: usize) {
        if self.0.abs_diff(bytes) >= InterpreterMemory::STEP_BYTES {
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

impl Drop for InterpreterMemory {
    fn drop(&mut self) {
        self.set(0);
    }
}

/// Records the memory of an interpreter that was just collected.
pub(super) fn note_live(bytes: usize) {
    LIVE_BYTES.store(bytes, Relaxed);
}

/// Runs `work`, which allocates at most a few times `bytes` bytes in the interpreter. If `bytes` is small, the
/// interpreter's memory limit is lifted during the work, because handling allocation failures costs time.
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
        let texts = ScriptTextBytes::default();
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
