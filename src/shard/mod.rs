//! The token of each shard, and how commands meet shards.
//!
//! [`ownership`] is the protocol and knows nothing of Redis; [`route`] names the shard of a key; [`execute`] runs one
//! command with its shards in hand; [`message`] is a command that had to queue; [`migration`] is what MIGRATE
//! does with its keys.

pub mod attempt;
pub mod blocking;
pub mod execute;
mod heavy;
pub mod message;
pub mod migration;
pub mod ownership;
pub mod route;
pub mod script;
pub mod transaction;

use crate::engine::Engine;

/// The shards of this server.
pub type Shards = ownership::Shards<Engine, message::Message>;
