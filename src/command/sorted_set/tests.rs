//! Sorted sets in process.
