//! Paths into JSON documents, as clients write them: parsed once to a [`Program`], which finds nodes, locations or
//! computed values in any document that implements [`Node`].
//!
//! There are two dialects, told apart by how the text begins: `$.a[0]` is JSONPath and means all matches; `.a[0]`,
//! `a[0]` and `["a"]` are legacy and mean one value. Both have the same segments behind their beginning: names,
//! wildcards, `..`, slices, unions of names or of indices, and filters. A JSONPath text may also be a projection, which
//! computes a value (`$.a + 1`, `$.list.length()`).
//!
//! Filters can compare everything with everything, so a search counts its steps in a [`Budget`] and fails when that is
//! used up. Texts, nesting and regular expressions have limits of their own (`limits.rs`).

mod evaluate;
mod limits;
mod locations;
mod node;
mod parse;
mod program;
mod syntax;
#[cfg(test)]
mod tests;
mod value;

pub use limits::{Budget, PathError};
pub use locations::{Location, Step, without_descendants};
pub use node::{Node, View, equal};
pub use program::Program;
pub use syntax::{DefiniteStep, Dialect};
pub use value::Value;
