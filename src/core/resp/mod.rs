//! Bytes to requests and replies to bytes. Knows no command.

pub mod answer;
pub mod reply;
pub mod request;
