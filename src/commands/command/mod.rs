//! Binds the protocol to the engine: one declaration per command, one file per family.
//!
//! No sockets, threads or clocks: handlers get everything they need from a context and write their reply to an
//! output.
//!
//! # Adding a command
//!
//! 1. **Row.** In its family's folder write a `static` row above its handler. Models: `string/edit.rs` (a change in
//!    place), `list/pop.rs` (a count, an array in the reply), `list/transfer.rs` (two keys), `string/set.rs` (options),
//!    MSETEX (newer than 7.0). It has:
//!    - name, group, and arity including the name (negative: at least);
//!    - `reads` or `writes` with a [`KeySpec`](declaration::KeySpec) that says where its keys are and what is done to
//!      them (ACCESS: the reply depends on the value; UPDATE, INSERT, DELETE: how the value changes);
//!    - `flags`: DENYOOM if a value may grow, FAST for O(1) and O(log N) only;
//!    - `doc` with the version of Redis or Valkey that introduced it, or `Command::OWN` for a command that neither has;
//!    - only if its syntax is hard to guess: `with_usage`, which appends the syntax to errors;
//!    - how it uses the shards: `on_keys`, `on_all_shards`, `on_each_shard`, `by_cursor` or `on_session`.
//! 2. **Table.** List the row in the family's `TABLE`, in alphabetical order, and name it in the family's module
//!    head. Lookup, routing, admission, COMMAND, ACL categories, statistics and metrics derive from it.
//! 3. **Handler.**
//!    - `args.key(1)`, `args.integer(3)?`, `args.is(4, "word")` read arguments.
//!    - `cx.at(&key)` is the keyspace of the key's shard, with the calls of
//!      [`engine::keyspace`](basalt_engine::keyspace).
//!    - `cx.config` is the current configuration, the same for the whole command.
//!    - `out` takes the reply; arrays in it begin with their length. `return Err("ERR …".into())` replies with an error
//!      of your own.
//!    - An [`EntrySlot`](basalt_core::structures::table::EntrySlot) is valid until something else is looked up or
//!      changed, as a lookup may delete an expired key: look up again then.
//!    - One `Keyspace::wrote` per changed key feeds events, blocked clients, WATCH, tracking and snapshots. Memory is
//!      charged by the keyspace's own calls (`put_…`, `edit_…`).
//!    - `keyspace.engine().published()` has the counters of the shard (model: `rate/throttle.rs`).
//! 4. **Long work.** If the work grows with a value, declare `takes_long` and call `cx.scales().weigh(elements)?`, or
//!    `weigh_bytes`, before anything is changed or written to the reply: it may abort this run, and the command then
//!    runs again on another thread. The unit is an element that is returned; where an element costs less, divide (LREM
//!    by 4, LPOS by 8). The test belongs in `tests/blackbox/stalls.rs`, since in process no command leaves its thread
//!    (`script_runs_apart` of INFO rises when the command runs in MULTI).
//! 5. **Long arguments.** If an argument is stored, declare `keeps_block` and store `args.content(n)`: a long one is
//!    shared, not copied.
//! 6. **Log.** A request that changed something is logged as it was sent, and other servers, possibly Redis 7.0,
//!    execute it. If time, chance, floats or waiting decide what is written, or 7.0 lacks the command, use
//!    `cx.log_instead`, `log_string` or `log_deletion` to log what brings 7.0 to the same state (table in
//!    [`logging`]).
//! 7. **Tests.** `cargo test -p basalt-commands command::` runs all but the recording, and names rows that lack one of
//!    the entries marked "(named)".
//!    - Requests go to `tests/transcripts/families/` (`tests/support/transcript.rs` explains the format);
//!      `BLESS=1 cargo test --test blackbox transcripts` records the replies of redis-server 7.0. Replies that 7.0
//!      cannot give are typed by hand, each below a line `!since VERSION` or `!since basalt: why`. Because redis-server
//!      never sees these requests, the replies to later reads of what they wrote are typed by hand, too. Each request
//!      needs its own `!since` line. Options and commands of later versions that several families share are in
//!      `tests/transcripts/later.txt`.
//!    - Its row is compared with those of Redis and Valkey, if they have the command:
//!      `BLESS=1 cargo test --test blackbox command_rows`. Each difference gets a reason in
//!      `tests/rows/differences.txt` (named).
//!    - A command that writes gets a case in `logging/tests/cases` (named; with a key of `NEWER_SEED` if 7.0 lacks
//!      it).
//!    - A command that writes gets a line in `TEMPLATES` of `generic/undone.rs` (named), and lines in the family's
//!      tests of events, deadlines and encodings.
//!    - `docs/compatibility.md` lists what 7.0 lacks.

pub mod acl;
pub mod admission;
pub mod args;
pub mod aside;
mod bitmap;
mod bless;
pub mod catalogue;
pub mod client;
pub mod cluster;
pub mod connection;
pub mod context;
pub mod database;
pub mod debug;
pub mod declaration;
pub mod element;
mod element_deadline;
pub mod error;
pub mod generic;
pub mod geo;
pub mod hash;
mod help;
pub mod host;
pub mod hyperloglog;
pub mod introspect;
mod json;
pub mod keys;
pub mod lease;
pub mod list;
mod lock;
pub mod logging;
pub mod marks;
pub mod notes;
pub mod options;
pub mod owned;
pub mod prepared;
pub mod probabilistic;
pub mod pubsub;
mod rate;
pub mod registry;
pub mod replication;
pub mod scan;
pub mod script;
pub mod server;
pub mod set;
pub mod sorted_set;
pub mod stream;
pub mod string;
pub mod syntax;
mod table;
mod tag;
#[cfg(any(test, feature = "testing"))]
pub mod testing;
pub mod transaction;

/// Returns the rows of all commands, by family: what [`registry`] looks up. This function is not part of the registry
/// because rows name handlers, and handlers look up commands.
fn families() -> &'static [&'static [&'static declaration::Command]] {
    table::FAMILIES
}

pub use args::Args;
pub use basalt_core::resp::reply::Out;
