//! Support for tests and benches: servers as child processes, a raw RESP client, recorded dialogues, request
//! streams.
//!
//! Independent of basalt's own crates, so that the tests of each of them can use it.

#![allow(missing_docs, reason = "what the names of test helpers say is enough")]

pub mod random;
#[cfg(feature = "servers")]
pub mod replicated;
#[cfg(feature = "servers")]
pub mod support;
pub mod transcript;
#[cfg(feature = "servers")]
pub mod wire;
pub mod workload;
