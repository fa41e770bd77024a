//! The system and the C library, as far as no safe interface reaches them: signals and stack traces, huge pages,
//! forking, the environment that the process's title overwrites, Lua's stack.

pub mod crash;
pub mod daemon;
pub mod environment;
pub mod huge_pages;
pub mod lua;
pub mod signals;
pub mod watchdog;
