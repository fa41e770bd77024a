//! Sockets: listeners, connections, buffers and their limits.

pub mod connection;
mod input;
pub mod listener;
pub mod pool;
pub mod retained;
mod round;
pub mod stream;
