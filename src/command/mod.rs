//! Binds the protocol to the engine: one declaration a command, one file a family.
//!
//! No sockets, no threads, no clock: handlers get what they need in a context and answer into an output.
//!
//! # Adding a command
//!
//! 1. In its family's folder, write a `static` row above its handler (`string/edit.rs` is a model): name, group, arity
//!    with the name, `reads` or `writes` with where its keys stand, `doc`, and how it meets the shards: `on_keys`,
//!    `on_all_shards`, `on_each_shard`, `by_cursor` or `on_session`.
//! 2. List the row in the family's `TABLE`, in the order of the names. Look-up, routing, admission, COMMAND, ACL
//!    categories, statistics and metrics derive from it.
//! 3. Write the handler: `args.key(1)`, `cx.at(&key)` for the keyspace of the key's shard, typed calls of
//!    [`engine::keyspace`](crate::engine::keyspace), `out` for the reply. A change is told by one `Keyspace::wrote`;
//!    it feeds events, waiters, watches, tracking and snapshots. Memory is charged by the keyspace's own calls
//!    (`put_…`, `edit_…`), nothing else has to be done for it.
//! 4. If the work grows with a value, declare `takes_long` and ask `cx.scales().weigh(elements)` before anything is
//!    changed: it may answer that the command is to run on another thread, from its start.
//! 5. If an argument is stored, declare `keeps_block` and store `args.content(n)`: a long one is shared, not copied.
//! 6. If time, chance or floats decide what is written, say by `cx.log_instead` what the log gets in its place.
//! 7. Tests: a dialogue in `tests/transcripts/families/`, recorded by `BLESS=1`, a line in the family's `rows.txt` if
//!    redis-server 7.0 knows the command, and for what writes a case in `logging/tests/cases` (with a key of
//!    `YOUNG_KEYS` where redis-server 7.0 does not know what is logged). Tests of the table say what else is missing.

pub mod admission;
pub mod args;
pub mod bitmap;
pub mod client;
pub mod cluster;
pub mod connection;
pub mod context;
pub mod database;
pub mod debug;
pub mod declaration;
pub mod element;
pub mod error;
pub mod generic;
pub mod geo;
pub mod hash;
pub mod hyperloglog;
pub mod introspect;
pub mod keys;
pub mod list;
pub mod logging;
pub mod options;
pub mod owned;
pub mod prepared;
pub mod probabilistic;
pub mod pubsub;
pub mod replication;
pub mod scan;
pub mod script;
pub mod server;
pub mod set;
pub mod sorted_set;
pub mod stream;
pub mod string;
pub mod syntax;
pub mod table;
#[cfg(test)]
pub(crate) mod testing;
pub mod transaction;

pub use crate::resp::reply::Out;
pub use args::Args;
