//! Histories show the promised order: transactions are strictly serializable, single keys are linearizable, and a crash
//! or a failover takes nothing but what docs/guarantees.md says.
//!
//! ```text
//! history, edn     histories of transactions; their form that Elle reads
//! list_append      the judge of transactions; graph: its components and cycles
//! survivors        the judge of what a crash has left
//! linear, objects  the judge of single keys, and how strings, locks and leases behave
//! clients          what clients share; appending: those of transactions; singles: those of single keys
//! rounds           servers, clients and faults at once for a while, and the verdict
//! fronts           controls: stand-ins before a server that break a promise, which the judges must notice
//! long             the program that does all this for an hour (`cargo run --example consistency`)
//! ```
//!
//! `CONSISTENCY_SECONDS` is how long each round lasts (by default one), `CONSISTENCY_SEED` what is drawn.

use basalt_testing::{support, wire};

mod appending;
mod clients;
mod edn;
mod fronts;
mod graph;
mod history;
mod linear;
mod list_append;
mod objects;
mod rounds;
mod singles;
mod survivors;

mod anomalies;
mod controls;
mod promises;
mod searches;
