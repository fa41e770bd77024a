//! basalt: a multi-threaded, sharded, in-memory cache server that speaks the Redis protocol.
//!
//! ARCHITECTURE.md is the map: what each module holds, which may import which, the way of a request, and the words that
//! are used here. `tests/tidy/` checks the imports and the other rules.

pub mod acl;
pub mod alloc;
pub mod base;
pub mod client;
pub mod cluster;
pub mod command;
pub mod config;
pub mod console;
pub mod engine;
pub mod net;
pub mod persist;
pub mod pubsub;
pub mod replication;
pub mod report;
pub mod resp;
pub mod script;
pub mod server;
pub mod session;
pub mod shard;
pub mod structures;
pub mod sys;
pub mod telemetry;
pub mod tls;
pub mod top;

#[cfg(not(any(loom, asan, miri)))]
#[global_allocator]
static ALLOCATOR: alloc::counting::Counting<tikv_jemallocator::Jemalloc> =
    alloc::counting::Counting(tikv_jemallocator::Jemalloc);

// Model checking replaces the atomics, the address sanitizer (`--cfg asan`) and Miri the allocator.
#[cfg(any(loom, asan, miri))]
#[global_allocator]
static ALLOCATOR: alloc::counting::Counting<std::alloc::System> =
    alloc::counting::Counting(std::alloc::System);
