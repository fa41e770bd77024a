//! Sockets: listeners, connections, buffers and their limits.

pub mod buffer_budget;
pub mod connection;
mod input;
pub mod listener;
pub mod pool;
pub mod stream;
mod write_batching;
