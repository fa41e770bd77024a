//! The channels and databases that a request uses, and key flags that depend on its arguments.
//!
//! ACL rules judge a request by these properties, and the export of a slot uses them to find the keys that a logged
//! command changes.

use super::KeyFlags;
use crate::acl::selector::Used;
use basalt_core::base::number;

/// Reads an argument of a request.
pub type ReadArgument<'r, 'a> = &'r dyn Fn(usize) -> &'a [u8];

/// Finds positions of arguments, given their number and a way to read them.
pub type PositionsFinder = for<'r, 'a> fn(usize, ReadArgument<'r, 'a>) -> Vec<usize>;

/// Computes the flags of a key from a request, given the number of arguments and a way to read them.
pub type KeyFlagsOf = for<'r, 'a> fn(usize, ReadArgument<'r, 'a>) -> KeyFlags;

/// The arguments of a command that are channels to send to or subscribe to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Channels {
    /// No argument is a channel.
    None,
    /// The first argument is a channel.
    First,
    /// All arguments are channels.
    All,
    /// All arguments are patterns of channels.
    Patterns,
}

impl Channels {
    /// Returns the maximum number of channel arguments, counted from the first argument.
    pub fn count_max(self) -> usize {
        match self {
            Channels::None => 0,
            Channels::First => 1,
            Channels::All | Channels::Patterns => usize::MAX,
        }
    }
}

/// The databases that a command reads or changes.
#[derive(Clone, Copy)]
pub enum Databases {
    /// The selected database, if the command names keys or visits shards; otherwise none.
    Selected,
    /// The databases whose numbers are in these arguments.
    Numbered(&'static [usize]),
    /// The selected database, and those whose numbers are in the arguments that the function finds.
    SelectedAnd(PositionsFinder),
    /// All databases.
    All,
}

impl Databases {
    /// Returns the databases of a request, with the positions of the arguments that name them. Invalid database
    /// numbers are left for the command itself to refuse.
    pub(super) fn of(
        self,
        argument_count: usize,
        argument: ReadArgument<'_, '_>,
        selected: Option<usize>,
    ) -> Vec<(usize, Used)> {
        let numbered = |at: usize| {
            let named = (at < argument_count).then(|| number::parse_i64(argument(at)));
            let named = named.flatten().and_then(|named| u32::try_from(named).ok());
            named.map(|named| (at, Used::One(named)))
        };
        let selected = selected.map(|db| (0, Used::number(db)));
        match self {
            Databases::Selected => selected.into_iter().collect(),
            Databases::Numbered(positions) => {
                positions.iter().filter_map(|at| numbered(*at)).collect()
            }
            Databases::SelectedAnd(find) => {
                let found = find(argument_count, argument).into_iter();
                let found = found.filter_map(numbered);
                selected.into_iter().chain(found).collect()
            }
            Databases::All => vec![(0, Used::All)],
        }
    }
}
