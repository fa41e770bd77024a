//! Geo commands in process.
