//! What is made of a command's arguments before its shards are in hand: the value that RESTORE stores, as to make it
//! takes long, and the names of fields that HIMPORT SET means, as these are the connection's.

use std::cell::Cell;
use std::sync::Arc;

use super::Args;
use super::error::CommandError;
use crate::client::fieldsets::Fieldset;
use crate::config::Config;
use basalt_core::base::hash::Seed;
use basalt_core::structures::entry::Entry;
use basalt_engine::Now;
use basalt_engine::value::Object;

/// A value that no shard pays for, or why there is none.
pub type Built = Result<Entry<Object>, CommandError>;

/// Makes a value of nothing but the arguments.
pub type Builder = fn(&Args<'_>, &Config, Seed, Now) -> Built;

/// See the module.
pub enum Prepared {
    /// A value until its command takes it.
    Value(Cell<Option<Built>>),
    /// Names of fields.
    Fieldset(Arc<Fieldset>),
}

impl Prepared {
    /// Keeps a value for its command.
    pub fn new(built: Built) -> Prepared {
        Prepared::Value(Cell::new(Some(built)))
    }

    /// Hands the value out, once.
    pub fn take(&self) -> Option<Built> {
        match self {
            Prepared::Value(built) => built.take(),
            Prepared::Fieldset(_) => None,
        }
    }

    /// The names of fields.
    pub fn fieldset(&self) -> Option<&Fieldset> {
        match self {
            Prepared::Value(_) => None,
            Prepared::Fieldset(fieldset) => Some(fieldset),
        }
    }
}
