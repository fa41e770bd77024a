//! `src/alloc`, `src/base`, `src/structures` and `src/resp` once more, for Miri: their unit tests run here.
//!
//! Nothing but paths and the allocator: what Miri interprets is the server's own source. Under Miri the tests
//! shorten their loops (`cfg!(miri)`); those that ask jemalloc are not there, nor those of statistics that need many
//! rounds, all of which test safe code.

#![cfg_attr(
    miri,
    allow(dead_code, unused_imports, reason = "of tests that are not there")
)]

#[path = "../../../src/alloc/mod.rs"]
pub mod alloc;
#[path = "../../../src/base/mod.rs"]
pub mod base;
#[path = "../../../src/resp/mod.rs"]
pub mod resp;
#[path = "../../../src/structures/mod.rs"]
pub mod structures;

/// Counts as in the server, so that tests of exact bytes hold.
#[global_allocator]
static ALLOCATOR: alloc::counting::Counting<std::alloc::System> =
    alloc::counting::Counting(std::alloc::System);
