//! Values derived from a command's arguments before its shards are locked: the value that RESTORE stores, as building
//! it takes long, and the field names that HIMPORT SET refers to, as these belong to the connection.

use std::cell::Cell;
use std::sync::Arc;

use super::Args;
use super::error::CommandError;
use crate::client::fieldsets::Fieldset;
use crate::config::Config;
use basalt_core::base::hash::HashSeed;
use basalt_core::structures::entry::Entry;
use basalt_engine::Now;
use basalt_engine::value::Object;

/// A value that is not charged to any shard yet, or the error of building it.
pub type Built = Result<Entry<Object>, CommandError>;

/// Builds a value from the arguments alone.
pub type Builder = fn(&Args<'_>, &Config, HashSeed, Now) -> Built;

/// Prepared data of a command, see the module.
pub enum Prepared {
    /// A value, until its command takes it.
    Value(Cell<Option<Built>>),
    /// The field names that HIMPORT SET refers to.
    Fieldset(Arc<Fieldset>),
}

impl Prepared {
    /// Stores a value for its command.
    pub fn new(built: Built) -> Prepared {
        Prepared::Value(Cell::new(Some(built)))
    }

    /// Takes the value out, once.
    pub fn take(&self) -> Option<Built> {
        match self {
            Prepared::Value(built) => built.take(),
            Prepared::Fieldset(_) => None,
        }
    }

    /// Returns the names of fields.
    pub fn fieldset(&self) -> Option<&Fieldset> {
        match self {
            Prepared::Value(_) => None,
            Prepared::Fieldset(fieldset) => Some(fieldset),
        }
    }
}
