//! Moves the process's environment variables to separate memory, out of the area where the kernel placed them.
//!
//! This area follows the arguments. A program that shows a title in place of its arguments, where `ps` reads
//! it, needs the space. After the move, no lookup of a variable, in Rust or in C, reads the area any more.

#![expect(
    unsafe_code,
    reason = "variables are set again, which is sound while there is one thread"
)]

use std::ffi::OsString;

/// The name of the allocator's threads. These threads are started before `main`, and do not read the
/// environment any more once they have their name.
const OF_ALLOCATOR: &[u8] = b"jemalloc_bg_thd\n";

/// Moves all variables. Returns false, without effect, unless the calling thread is the only one besides the
/// allocator's threads, which get their name shortly after they start.
///
/// Variables that no lookup by name finds are left behind: the second of two with the same name, and names that
/// begin with `=`.
pub fn settle() -> bool {
    if count_threads() != Some(1) {
        return false;
    }
    let can_be_set = |name: &OsString| !name.as_encoded_bytes().contains(&b'=');
    for (name, value) in std::env::vars_os().filter(|(name, _)| can_be_set(name)) {
        // SAFETY: no other thread reads or writes the environment, because there is none that could: the kernel
        // says so, and only the calling thread could start one.
        unsafe { std::env::set_var(&name, &value) };
    }
    true
}

/// Returns the number of threads that are not the allocator's, if the kernel reports it.
pub(super) fn count_threads() -> Option<usize> {
    // These are not real files but figures of the kernel. Read them here, because the safety of the caller
    // relies on them.
    let mut count = 0;
    for thread in std::fs::read_dir("/proc/self/task").ok()? {
        let name = std::fs::read(thread.ok()?.path().join("comm")).ok()?;
        count += usize::from(name != OF_ALLOCATOR);
    }
    Some(count)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    #[cfg(not(miri))]
    fn beside_another_thread_nothing_is_moved() {
        let (stop, stopped) = std::sync::mpsc::channel::<()>();
        let other = std::thread::spawn(move || stopped.recv());
        assert!(!settle());
        drop(stop);
        assert!(other.join().is_ok());
    }
}
