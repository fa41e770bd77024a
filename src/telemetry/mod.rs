//! Metrics, slow log, latency, INFO, log lines and the HTTP endpoint.
//!
//! The data path counts in plain integers ([`counters`], and the shards' boards); everything here reads them.

pub mod clock;
pub mod counters;
pub mod slowlog;
