//! The foundation of the other crates: plain functions, the allocator, data structures, the wire protocol.

pub mod alloc;
#[forbid(unsafe_code)]
pub mod base;
#[forbid(unsafe_code)]
pub mod json_path;
#[forbid(unsafe_code)]
pub mod resp;
pub mod structures;

#[cfg(not(any(miri, feature = "system-allocator")))]
#[global_allocator]
static ALLOCATOR: alloc::counting::Counting<tikv_jemallocator::Jemalloc> =
    alloc::counting::Counting(tikv_jemallocator::Jemalloc);

// Miri and the address sanitizer (`.ci/lua-asan`) bring their own allocator.
#[cfg(any(miri, feature = "system-allocator"))]
#[global_allocator]
static ALLOCATOR: alloc::counting::Counting<std::alloc::System> =
    alloc::counting::Counting(std::alloc::System);
