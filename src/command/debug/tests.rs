//! DEBUG in process. The signatures were computed by redis-server 7.0.15 over the same data.
