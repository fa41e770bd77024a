//! The commands that ACL rules can name.

/// The commands and categories that rules can name.
pub trait Catalogue: Sync {
    /// Returns the number of commands and subcommands; all IDs are smaller than that.
    fn count(&self) -> usize;
    /// Finds a command by its original name, in lower case; `container|sub` for a subcommand.
    fn find(&self, name: &str) -> Option<Entry>;
    /// Returns the commands and subcommands of a category, by its name in lower case without `@`.
    fn category(&self, name: &str) -> Option<Vec<Entry>>;
}

/// A command, as rules see it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Entry {
    /// The command's ID, an index below [`Catalogue::count`].
    pub id: usize,
    /// `container|sub` for subcommands, else the name.
    pub full_name: &'static str,
    /// Whether the command is a subcommand.
    pub is_sub: bool,
    /// The IDs of the command's subcommands.
    pub children: Vec<usize>,
}
