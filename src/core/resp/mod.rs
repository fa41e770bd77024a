//! Parsing of requests and writing of replies. Knows nothing of commands.

pub mod answer;
pub mod reply;
pub mod request;
