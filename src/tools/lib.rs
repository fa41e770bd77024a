//! Command-line tools that query a running server.

#![forbid(unsafe_code)]

pub mod report;
pub mod top;
