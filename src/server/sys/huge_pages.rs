//! Transparent huge pages: sets whether the kernel may give the process memory in pages of 2 MiB.
//!
//! With huge pages, lookups among many keys cause fewer TLB misses; but a small server would take tens of MiB
//! more, and memory freed in parts of such a page stays resident for longer. The allocator requests huge pages
//! for all its memory (`alloc`), and this switch overrides that: huge pages are forbidden from before `main`,
//! and the background allows them once the process is large.

#![expect(
    unsafe_code,
    reason = "the C library's prctl, which rustix does not have for this"
)]

use std::ffi::c_ulong;

/// Allows or forbids huge pages for this process; existing pages are not changed. Returns false if the kernel
/// lacks this switch.
pub fn allow(is_allowed: bool) -> bool {
    let is_disabled = c_ulong::from(!is_allowed);
    // SAFETY: this option reads its arguments as numbers and touches no memory of the caller.
    let result = unsafe { libc::prctl(libc::PR_SET_THP_DISABLE, is_disabled, 0, 0, 0) };
    result == 0
}

/// Forbids huge pages before the allocator starts: the C library calls the functions listed in this section, in
/// ascending order of their numbers, and those below 65,535 before functions without a number, such as the
/// allocator's own initialization.
#[cfg(not(any(miri, feature = "system-allocator")))]
#[used]
// SAFETY: the section is a list of pointers to functions of this kind, which are called one by one in a single thread.
#[unsafe(link_section = ".init_array.00101")]
static FORBID_AT_START: extern "C" fn() = {
    extern "C" fn forbid() {
        allow(false);
    }
    forbid
};
