//! COMMAND LIST: the names of all commands, or of those that a filter matches.

use super::super::context::SessionCx;
use super::super::declaration::{Categories, Command, CommandResult, Flags};
use super::super::error::CommandError;
use super::super::registry::registry;
use super::super::{Args, Out};
use basalt_core::base::glob::{self, Case};

enum Filter<'a> {
    None,
    /// There are no modules, so this matches no commands.
    Module,
    Category(Option<Categories>),
    Pattern(&'a [u8]),
}

impl Filter<'_> {
    fn lets_through(&self, command: &Command) -> bool {
        match self {
            Filter::None => true,
            Filter::Module => false,
            Filter::Category(category) => {
                category.is_some_and(|category| command.acl_categories().has(category))
            }
            Filter::Pattern(pattern) => {
                glob::matches(pattern, command.full_name.as_bytes(), Case::Insensitive)
            }
        }
    }
}

/// `COMMAND LIST [FILTERBY <MODULE module-name | ACLCAT category | PATTERN pattern>]`
pub(super) fn list(_: &mut SessionCx<'_>, args: &Args<'_>, out: &mut Out) -> CommandResult {
    let filter = match args.len() {
        2 => Filter::None,
        5 if args.is(2, "FILTERBY") => {
            let value = args.get(4);
            if args.is(3, "MODULE") {
                Filter::Module
            } else if args.is(3, "ACLCAT") {
                Filter::Category(category(value))
            } else if args.is(3, "PATTERN") {
                Filter::Pattern(value)
            } else {
                return Err(CommandError::Syntax);
            }
        }
        _ => return Err(CommandError::Syntax),
    };
    let mark = out.later();
    let mut count = 0;
    for command in registry().callable() {
        if !command.flags.has(Flags::UNLISTED) && filter.lets_through(command) {
            out.bulk(command.full_name.as_bytes());
            count += 1;
        }
    }
    out.close_array(mark, count);
    Ok(())
}

/// Finds a category by its name without the `@`.
fn category(name: &[u8]) -> Option<Categories> {
    let is_it = |text: &str| text.as_bytes()[1..].eq_ignore_ascii_case(name);
    Categories::ALL
        .iter()
        .find(|(_, text)| is_it(text))
        .map(|(category, _)| *category)
}
