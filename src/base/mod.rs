//! No Redis, no I/O: numbers, hashes, checksums, patterns, randomness and the shape of time.

pub mod hash;
