//! basalt as a process: threads, sockets, files, replication, telemetry.

#[forbid(unsafe_code)]
pub mod console;
#[forbid(unsafe_code)]
pub mod net;
#[forbid(unsafe_code)]
mod node;
#[forbid(unsafe_code)]
pub mod persist;
#[forbid(unsafe_code)]
pub mod replication;
#[forbid(unsafe_code)]
pub mod script;
#[forbid(unsafe_code)]
pub mod session;
pub mod shard;
#[forbid(unsafe_code)]
pub mod start;
#[forbid(unsafe_code)]
pub mod state;
pub mod sys;
#[forbid(unsafe_code)]
pub mod telemetry;
#[forbid(unsafe_code)]
pub mod tls;
