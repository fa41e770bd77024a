//! The append-only file: Redis 7's directory of files, written from the log.

pub mod manifest;
pub mod writer;
