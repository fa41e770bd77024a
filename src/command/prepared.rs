//! What is made of a command's arguments before its shards are in hand, where to make it takes long: the value that
//! RESTORE stores.

use std::cell::Cell;

use super::Args;
use super::error::CommandError;
use crate::base::hash::Seed;
use crate::config::Config;
use crate::engine::Now;
use crate::engine::value::Object;
use crate::structures::entry::Entry;

/// A value that no shard pays for, or why there is none.
pub type Built = Result<Entry<Object>, CommandError>;

/// Makes a value of nothing but the arguments.
pub type Builder = fn(&Args<'_>, &Config, Seed, Now) -> Built;

/// A value until its command takes it.
pub struct Prepared(Cell<Option<Built>>);

impl Prepared {
    /// Keeps a value for its command.
    pub fn new(built: Built) -> Prepared {
        Prepared(Cell::new(Some(built)))
    }

    /// Hands the value out, once.
    pub fn take(&self) -> Option<Built> {
        self.0.take()
    }
}
