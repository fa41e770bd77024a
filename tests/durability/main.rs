//! Durability and file compatibility: servers that are killed under load, disks that fail, files that move
//! between servers.
//!
//! ```text
//! failovers  replicas that are promoted under load
//! fleet      servers that replicate each other, shut down, are killed and change roles
//! kills      kill -9 at random; clients remember the acknowledged writes
//! migration  this server replaces a running redis-server
//! sentinels  this server replaces a running redis-server, by Sentinel
//! load       clients that write until a server ends; which writes must be there afterwards
//! model, steps, history, shared   the clients' steps, and the states that they permit
//! faults     system calls that fail, full and read-only disks, directories in the way or gone
//! ```

use basalt_testing::{replicated, support, wire};

mod failovers;
mod faults;
mod fleet;
mod history;
mod kills;
mod load;
mod migration;
mod model;
mod sentinels;
mod shared;
mod steps;
