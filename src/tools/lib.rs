//! Programs that query a server from outside.

#![forbid(unsafe_code)]

pub mod report;
pub mod top;
