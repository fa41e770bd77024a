//! In which form each type keeps a long argument, so that it can be copied before the shard is in hand.

use super::hash::HashTable;
use super::object::Object;
use super::set::Members;
use crate::structures::ahead::Ahead;
use crate::structures::block::Block;
use crate::structures::entry::Entry;
use crate::structures::ordered::ranking::Ranking;

/// What becomes of an argument that is stored.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Form {
    /// A key.
    Key,
    /// A string.
    Text,
    /// An element of a list.
    Element,
    /// A member of a set.
    Member,
    /// The value of a field of a hash, whose name is the argument before.
    Field,
    /// A member of a sorted set.
    Ranked,
}

/// Copies a long argument to where it will be kept; `before` is the argument in front of it.
pub fn copy(form: Form, before: &[u8], argument: &[u8], ahead: &mut Ahead) {
    match form {
        Form::Key => ahead.add(argument, Entry::<Object>::plan_key(argument.len())),
        Form::Text | Form::Element => ahead.add(argument, Block::plan(argument.len())),
        Form::Member => ahead.add(argument, Members::plan(argument.len())),
        Form::Ranked => ahead.add(argument, Ranking::plan(argument.len())),
        Form::Field => {
            ahead.add(before, HashTable::plan(before.len()));
            ahead.add(argument, Block::plan(argument.len()));
        }
    }
}
