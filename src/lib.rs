//! basalt: a multi-threaded, sharded, in-memory cache server that speaks the Redis protocol.
//!
//! The modules in reading order, and who may import whom (checked by `tests/tidy/`):
//!
//! ```text
//! base ← alloc ← structures ← engine ┐
//! base ← resp ───────────────────────┼← command ← shard ← session ← net, persist ← server ← main
//! base ← client, config ─────────────┤
//! client, config ← pubsub ───────────┘
//! command ← script ← shard
//! base ← sys ← script, shard, session, server
//! base ← telemetry ← (shard and above; below it, plain counters only)
//! ```
//!
//! Invariants, mostly of absence: `resp` does not know that commands exist; `structures` does not know that Redis
//! exists; from `base` through `command` there is no tokio, no thread, no lock, no socket, no file and no reading of
//! the clock; handlers never see an encoding or a socket; the keyspace is never shared.

pub mod alloc;
pub mod base;
pub mod client;
pub mod command;
pub mod config;
pub mod engine;
pub mod net;
pub mod persist;
pub mod pubsub;
pub mod replication;
pub mod resp;
pub mod script;
pub mod server;
pub mod session;
pub mod shard;
pub mod structures;
pub mod sys;
pub mod telemetry;

#[cfg(not(any(loom, asan, miri)))]
#[global_allocator]
static ALLOCATOR: alloc::counting::Counting<tikv_jemallocator::Jemalloc> =
    alloc::counting::Counting(tikv_jemallocator::Jemalloc);

// Model checking replaces the atomics, the address sanitizer (`--cfg asan`) and Miri the allocator.
#[cfg(any(loom, asan, miri))]
#[global_allocator]
static ALLOCATOR: alloc::counting::Counting<std::alloc::System> =
    alloc::counting::Counting(std::alloc::System);
