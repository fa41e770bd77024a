//! Gives the process's environment variables memory of their own, apart from the area in which the kernel put them.
//!
//! That area follows the arguments, and a program that shows a title in place of the arguments (`ps` reads it there)
//! needs its room. Afterwards nothing that asks for a variable, in Rust or in C, reads the area any more.

#![expect(
    unsafe_code,
    reason = "variables are set again, which is sound while there is one thread"
)]

use std::ffi::OsString;

/// What the allocator calls its threads. They are started before `main`, and read the environment no more once they
/// run.
const OF_ALLOCATOR: &[u8] = b"jemalloc_bg_thd\n";

/// Moves all variables. False, and nothing is changed, unless the process has only the calling thread, beside those of
/// the allocator, which bear their name a moment after they begin.
///
/// Left behind is what no look-up by name finds: the second of two of one name, and a name that begins with `=`.
pub fn settle() -> bool {
    if count_threads() != Some(1) {
        return false;
    }
    let can_be_set = |name: &OsString| !name.as_encoded_bytes().contains(&b'=');
    for (name, value) in std::env::vars_os().filter(|(name, _)| can_be_set(name)) {
        // SAFETY: no other thread reads or writes the environment, as there is none that could: the kernel says so, and
        // only the calling thread could start one.
        unsafe { std::env::set_var(&name, &value) };
    }
    true
}

/// How many threads the process has that are not the allocator's, if the kernel says so.
pub(super) fn count_threads() -> Option<usize> {
    // Files that are none: the kernel's answer, asked for where the promise of the call above is made.
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
