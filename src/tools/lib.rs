//! Programs beside a server, which ask it from outside.

#![forbid(unsafe_code)]

pub mod report;
pub mod top;
