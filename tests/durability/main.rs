//! What survives, and what others can read: servers that are killed under load, disks that fail, files that travel.
//!
//! ```text
//! failovers  replicas that take over under load
//! fleet      servers that follow each other, end, are killed and change roles
//! kills      kill -9 at random; clients remember what was acknowledged
//! migration  a running redis-server is replaced by this one
//! sentinels  a running redis-server is replaced by this one, by Sentinel
//! load       clients that write until a server ends; what must be there afterwards
//! model, steps, history, shared   what they do, and what must be there afterwards
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
