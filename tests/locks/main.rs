//! The lock recipes of docs/locks.md, each raced by many workers through a real client library against the built
//! server.
//!
//! Workers die without releasing, oversleep, release late and lose their connections; lives are tens of milliseconds.
//! Nothing is asserted about speed: every worker writes down what it believed and when, and `history` judges the whole.
//! `LOCKS_MS` is how long a storm goes on at each number of threads and shards (default 600).

use basalt_testing::{support, wire};

mod classic;
mod failover;
mod flaws;
mod history;
mod redlock;
mod scripted;
mod single;
mod storm;
mod waiting;
