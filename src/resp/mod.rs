//! Bytes to requests and replies to bytes. Knows no command.

pub mod reply;
pub mod request;
