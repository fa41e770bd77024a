//! Parsing of requests and writing of replies. Independent of commands.

pub mod answer;
pub mod reply;
pub mod request;
