//! Parts of the system and the C library that no safe interface covers: signals and stack traces, huge pages,
//! forking, the memory area of the environment (which the process title overwrites), and Lua's stack.

pub mod crash;
pub mod daemon;
pub mod environment;
pub mod huge_pages;
pub mod lua;
pub mod signals;
pub mod watchdog;
