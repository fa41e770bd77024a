//! Persistence: the log of writes, the append-only file, snapshots, and loading them.
//!
//! Layered above sessions and below the server. Commands access it through `command::host::Server`.

pub mod aof;
pub mod files;
pub mod load;
pub mod oplog;
pub mod rdb;
pub mod snapshot;
