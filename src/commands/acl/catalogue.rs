//! Commands as rules name them.

/// What rules may name.
pub trait Catalogue: Sync {
    /// How many commands and subcommands there are; their numbers are smaller.
    fn count(&self) -> usize;
    /// A command by its own name, in lower case; `container|sub` for a subcommand.
    fn find(&self, name: &str) -> Option<Entry>;
    /// The commands and subcommands of a category, by its name in lower case without `@`.
    fn category(&self, name: &str) -> Option<Vec<Entry>>;
}

/// A command, as rules see it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Entry {
    /// The command's number.
    pub id: usize,
    /// `container|sub` for subcommands, else the name.
    pub full_name: &'static str,
    /// Whether it is a subcommand.
    pub is_sub: bool,
    /// The numbers of its subcommands.
    pub children: Vec<usize>,
}
