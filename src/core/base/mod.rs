//! Utilities that know nothing of Redis and do no I/O: numbers, hashes, checksums, patterns, randomness.

pub mod base64;
pub mod bit_set;
pub mod checksum;
pub mod counter;
pub mod extended;
mod float_text;
pub mod glob;
mod grisu;
pub mod hash;
pub mod hex;
pub mod info;
pub mod lossless;
pub mod maps;
pub mod number;
pub mod random;
pub mod sizes;
pub mod slot_tags;
pub mod text;
