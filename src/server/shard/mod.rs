//! Execution of commands on shards.
//!
//! ```text
//! ownership  the token of each shard, its queue, and guards; knows nothing of Redis
//! route      the shard of a key
//! permit     whether this node serves the slots of a request: when it is admitted, and again where it runs
//! handler    runs the handler of one command: its context, its reply, its records
//! execute    one command with its shards locked, and what follows for others
//! blocking   requests that wait for a key
//! unit       transactions and scripts: several commands as one, which can be rolled back
//! job        a queued command, unit or task, which owns all it needs
//! ```

#[forbid(unsafe_code)]
pub mod blocking;
#[forbid(unsafe_code)]
pub mod execute;
#[forbid(unsafe_code)]
pub mod handler;
#[forbid(unsafe_code)]
pub mod job;
pub mod ownership;
#[forbid(unsafe_code)]
pub mod permit;
#[forbid(unsafe_code)]
pub mod route;
#[forbid(unsafe_code)]
pub mod unit;

use basalt_engine::Engine;

/// The shards of this server.
pub type Shards = ownership::ShardSet<Engine, job::Job>;

/// A job in its queueable form.
pub type QueuedJob = Box<ownership::queued::QueuedMessage<job::Job>>;

/// The tokens of the shards that a unit has locked, to which it can add more.
pub type HeldShards<'a> = ownership::tokens::HeldTokens<'a, Engine, job::Job>;
