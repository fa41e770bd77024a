//! Shared parts of the server benches: reading arguments, starting basalt and its peers on chosen cores, reading the
//! system's statistics of a process, a plain client for loading and queries, and a load generator. Independent of the
//! subject of the comparison.

#![allow(dead_code, reason = "each bench uses its part")]

pub(crate) mod ages;
pub(crate) mod arguments;
pub(crate) mod closed_loop;
pub(crate) mod load;
pub(crate) mod peers;
pub(crate) mod process;
pub(crate) mod scenarios;
