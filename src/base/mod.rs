//! No Redis, no I/O: numbers, hashes, checksums, patterns, randomness and the shape of time.

pub mod counter;
pub mod extended;
mod float_text;
pub mod hash;
pub mod number;
pub mod random;
pub mod text;
