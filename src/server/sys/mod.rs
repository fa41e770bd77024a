//! Parts of the system and the C library that no safe interface covers: signals and stack traces, huge pages,
//! forking, the environment area that the process title overwrites, Lua's stack.

pub mod crash;
pub mod daemon;
pub mod environment;
pub mod huge_pages;
pub mod lua;
pub mod signals;
pub mod watchdog;
