//! The lock recipes of docs/locks.md, each raced by many workers through a real client library against the
//! built server.
//!
//! Workers die without releasing, oversleep, release late and lose their connections; locks live for tens of
//! milliseconds. Nothing is asserted about speed: every worker records when it believed that it had a lock,
//! and `history` judges the records. `LOCKS_MS` is the length of a storm at each number of threads and shards
//! (default 600).

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
