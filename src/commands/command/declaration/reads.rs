//! The parts of a value that a command reads.

use basalt_core::structures::quicklist::End;

/// The part of a collection that is prefetched into the cache before a command runs in a pipeline.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Ahead {
    /// Nothing is prefetched.
    Nothing,
    /// One end of a list.
    End(End),
    /// The position, in a large collection's table, of the element that this argument names.
    Element(usize),
}

/// The reply of a command that reads nothing but the string under its key.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CopyReply {
    /// The string.
    Value,
    /// The string's length.
    Length,
    /// The fact that the key exists.
    Presence,
}
