//! The server's allocator: accounting by thread, deferred freeing, occupancy of slabs.

pub mod account;
pub mod counting;
pub mod deferred_free;
pub mod slabs;

/// Options that jemalloc reads at startup: it requests huge pages for all its memory, and the server's
/// `sys::huge_pages` decides whether the process gets them.
#[cfg(not(any(miri, feature = "system-allocator")))]
#[expect(
    unsafe_code,
    reason = "jemalloc finds its options by the symbol's name"
)]
#[used]
// SAFETY: the text ends with a zero byte and lives as long as the process; no other symbol has this name.
#[unsafe(export_name = "malloc_conf")]
pub static OPTIONS: &[u8; 11] = b"thp:always\0";
