//! The rows of the commands about replication.
//!
//! ```text
//! sync  PSYNC SYNC REPLCONF: requests of a replica to its primary
//! wait  WAIT WAITAOF
//! role  ROLE REPLICAOF SLAVEOF FAILOVER
//! ```

mod role;
mod sync;
#[cfg(test)]
mod tests;
mod wait;

use super::declaration::Command;

pub use sync::REPLCONF;

/// The rows of this family.
pub static TABLE: &[&Command] = &[
    &sync::PSYNC,
    &sync::SYNC,
    &sync::REPLCONF,
    &role::ROLE,
    &role::REPLICAOF,
    &role::SLAVEOF,
    &role::FAILOVER,
    &wait::WAIT,
    &wait::WAITAOF,
];
