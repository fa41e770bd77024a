//! Black-box tests: the server as a process, spoken to over TCP, one module per family. Nothing here imports the
//! crate; what cannot be seen through a socket is not tested here.

mod bits;
mod calm;
mod concurrency;
mod connection;
mod debug;
mod dump;
mod events;
mod eviction;
mod expiry;
mod hashes;
mod insight;
mod introspect;
mod keys;
mod kills;
mod limits;
mod lists;
mod long;
mod migrate;
mod monitor;
mod protocol;
mod pubsub;
mod scripts;
mod serializable;
mod server_commands;
mod sorted_sets;
mod sorting;
mod streams;
mod strings;
mod support;
mod tracking;
mod transactions;
mod transcripts;
mod units;
mod waiting;
mod wire;
