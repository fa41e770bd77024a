//! Sockets: listeners, connections, event loops, buffers and their limits.

pub mod buffer_budget;
pub mod client;
pub mod connection;
pub mod event_loops;
mod input;
pub mod listener;
pub mod pool;
pub mod stream;
mod write_batching;
