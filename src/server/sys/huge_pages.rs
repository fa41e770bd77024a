//! Transparent huge pages: the process says whether the kernel may give it memory in pages of 2 MiB.
//!
//! With them a look-up in many keys misses the translation cache less often; a small server would take tens of MiB
//! more, and what is freed in parts of such a page stays resident for longer. The allocator asks for them everywhere
//! (`alloc`), and this switch, which stands above that, decides: it is off from before `main`, and the background puts
//! it on once the process is large.

#![expect(
    unsafe_code,
    reason = "the C library's prctl, which rustix does not have for this"
)]

use std::ffi::c_ulong;

/// Lets the kernel use huge pages for this process, or forbids it; pages that are there stay as they are. False where
/// the kernel does not know the switch.
pub fn allow(is_allowed: bool) -> bool {
    let is_disabled = c_ulong::from(!is_allowed);
    // SAFETY: this option reads its arguments as numbers and touches no memory of the caller.
    let result = unsafe { libc::prctl(libc::PR_SET_THP_DISABLE, is_disabled, 0, 0, 0) };
    result == 0
}

/// Runs before the allocator starts: the C library calls what this section lists, lower numbers first, and those below
/// 65,535 before what has none, as the allocator's own start.
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
