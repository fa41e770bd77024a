//! What was made for a command before its shards were in hand.

use std::cell::Cell;

use super::Args;
use super::error::CommandError;
use super::renewal::Renewal;
use crate::base::hash::Seed;
use crate::config::Config;
use crate::engine::Now;
use crate::engine::value::Object;
use crate::structures::entry::Entry;

/// A value on nobody's account, or why there is none.
pub type Built = Result<Entry<Object>, CommandError>;

/// Makes a value of nothing but the arguments.
pub type Builder = fn(&Args<'_>, &Config, Seed, Now) -> Built;

/// See the module.
#[derive(Default)]
pub struct Made {
    /// The string that it writes to.
    pub renewal: Renewal,
    /// The value that it stores.
    built: Cell<Option<Built>>,
}

impl Made {
    /// Keeps the value for the command.
    pub fn set_built(&self, built: Built) {
        self.built.set(Some(built));
    }

    /// Hands the value out, once.
    pub fn take_built(&self) -> Option<Built> {
        self.built.take()
    }
}
