//! Sockets: listeners, connections, buffers and their limits.
