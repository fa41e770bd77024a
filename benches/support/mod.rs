//! What the server benches share: reading their arguments, starting basalt and its peers on chosen cores, reading what
//! the system says of a process, a plain client for loading and asking, and a load generator. Knows nothing of what is
//! being compared.

#![allow(dead_code, reason = "each bench uses its part")]

pub(crate) mod ages;
pub(crate) mod arguments;
pub(crate) mod closed_loop;
pub(crate) mod load;
pub(crate) mod peers;
pub(crate) mod process;
pub(crate) mod scenarios;
