//! Binds the protocol to the engine: one declaration a command, one file a family.
//!
//! No sockets, no threads, no clock: handlers get what they need in a context and answer into an output.
//!
//! # Adding a command
//!
//! 1. In its family's folder, write a `static` row above its handler: name, group, arity with the name (negative: at
//!    least), `reads` or `writes` with where its keys stand, `doc`, and how it meets the shards: `on_keys`,
//!    `on_all_shards`, `on_each_shard`, `by_cursor` or `on_session`. Models: `string/edit.rs` (a change in place),
//!    `list/pop.rs` (a count, an array in reply), `list/transfer.rs` (two keys), `string/set.rs` (options).
//! 2. List the row in the family's `TABLE`, in the order of the names. Look-up, routing, admission, COMMAND, ACL
//!    categories, statistics and metrics derive from it.
//! 3. Write the handler: `args.key(1)`, `args.integer(3)?`, `args.is(4, "word")`, `cx.at(&key)` for the keyspace of the
//!    key's shard, `find_typed` there and typed calls of [`engine::keyspace`](crate::engine::keyspace), `out` for the
//!    reply, whose arrays begin with their length. A `Place` is good until something else is looked up or changed, as a
//!    look-up may delete what has expired: look up again. A change is told by one `Keyspace::wrote`; it feeds events,
//!    waiters, watches, tracking and snapshots. Memory is charged by the keyspace's own calls (`put_…`, `edit_…`),
//!    nothing else has to be done for it. The log gets the request itself when something was changed.
//! 4. If the work grows with a value, declare `takes_long` and ask `cx.scales().weigh(elements)` before anything is
//!    changed or answered: it may answer that the command is to run on another thread, from its start.
//! 5. If an argument is stored, declare `keeps_block` and store `args.content(n)`: a long one is shared, not copied.
//! 6. If time, chance or floats decide what is written, say by `cx.log_instead` what the log gets in its place.
//! 7. Tests: a section in `tests/transcripts/families/`, recorded by `BLESS=1 cargo test --test blackbox transcripts`,
//!    and a line in the family's `rows.txt`. What redis-server 7.0 does not know is typed by hand below
//!    `!since VERSION` (`!since basalt: why`), and so is each later answer that depends on it, and has no line in
//!    `rows.txt`. What writes needs a case in `logging/tests/cases`; if 7.0 does not know the command, with a key of
//!    `YOUNG_KEYS`, made in `YOUNG_SEED` if none there has the right type, or else redis-server is asked and fails.
//!    `cargo test --lib command::` runs all but the recording; it says what else is missing.

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
pub mod host;
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
