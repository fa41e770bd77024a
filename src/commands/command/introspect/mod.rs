//! COMMAND: describes the commands of this server, from the rows of the command table.
//!
//! Nothing here is written down twice: names, flags, key positions, categories and arguments are read from the rows.

mod docs;
mod info;
mod keys;
mod list;
#[cfg(test)]
mod tests;

use super::context::SessionCx;
use super::declaration::{Categories, Command, CommandResult, Flags, Group};
use super::registry::{registry, resolve};
use super::{Args, Out};
use crate::command::error::shown_name;

pub(super) static TABLE: &[&Command] = &[&COMMAND];

const GROUP: Group = Group::Server;
const FLAGS: Flags = Flags::LOADING.or(Flags::STALE);
const UNORDERED: &[&str] = &["nondeterministic_output_order"];
const PER_COMMAND: &str = "O(N) where N is the number of commands to look up";
const PER_TABLE: &str = "O(N) where N is the total number of Redis commands";

/// `COMMAND`
static COMMAND: Command = Command::new("command", GROUP, -1)
    .flags(FLAGS)
    .categories(Categories::CONNECTION)
    .doc("2.8.13", "", "Describes every command.")
    .complexity(PER_TABLE)
    .tips(UNORDERED)
    .with_subcommands(&[
        &COUNT,
        &DOCS,
        &GETKEYS,
        &GETKEYSANDFLAGS,
        &HELP,
        &INFO,
        &LIST,
    ])
    .repeatable()
    .on_session(command);

fn command(_: &mut SessionCx<'_>, args: &Args<'_>, out: &mut Out) -> CommandResult {
    if args.len() > 1 {
        let name = shown_name(args.get(1));
        return Err(format!("ERR unknown subcommand '{name}'. Try COMMAND HELP.").into());
    }
    info::reply_all(out);
    Ok(())
}

/// `COMMAND COUNT`
static COUNT: Command = Command::sub("command|count", "count", GROUP, 2)
    .flags(FLAGS)
    .categories(Categories::CONNECTION)
    .doc("2.8.13", "", "Returns the number of commands.")
    .repeatable()
    .on_session(|_, _, out| {
        out.integer(registry().top_level().count() as i64);
        Ok(())
    });

/// `COMMAND DOCS [command-name [command-name ...]]`
static DOCS: Command = Command::sub("command|docs", "docs", GROUP, -2)
    .flags(FLAGS)
    .categories(Categories::CONNECTION)
    .doc(
        "7.0.0",
        "[command-name [command-name ...]]",
        "Documents commands: what they are for and which arguments they take.",
    )
    .complexity(PER_COMMAND)
    .tips(UNORDERED)
    .repeatable()
    .on_session(docs::docs);

/// `COMMAND GETKEYS command [arg [arg ...]]`
static GETKEYS: Command = Command::sub("command|getkeys", "getkeys", GROUP, -3)
    .flags(FLAGS)
    .categories(Categories::CONNECTION)
    .doc(
        "2.8.13",
        "command [arg [arg ...]]",
        "Returns the keys of a full command.",
    )
    .complexity("O(N) where N is the number of arguments to the command")
    .repeatable()
    .on_session(keys::get_keys);

/// `COMMAND GETKEYSANDFLAGS command [arg [arg ...]]`
static GETKEYSANDFLAGS: Command =
    Command::sub("command|getkeysandflags", "getkeysandflags", GROUP, -3)
        .flags(FLAGS)
        .categories(Categories::CONNECTION)
        .doc(
            "7.0.0",
            "command [arg [arg ...]]",
            "Returns the keys of a full command, with their access flags.",
        )
        .complexity("O(N) where N is the number of arguments to the command")
        .repeatable()
        .on_session(keys::get_keys_and_flags);

/// `COMMAND INFO [command-name [command-name ...]]`
static INFO: Command = Command::sub("command|info", "info", GROUP, -2)
    .flags(FLAGS.or(Flags::HOLDS_NOTES))
    .categories(Categories::CONNECTION)
    .doc(
        "2.8.13",
        "[command-name [command-name ...]]",
        "Describes the given commands, or all.",
    )
    .complexity(PER_COMMAND)
    .history(&[("7.0.0", "Without a name it describes all commands.")])
    .tips(UNORDERED)
    .repeatable()
    .on_session(info::info);

/// `COMMAND LIST [FILTERBY <MODULE module-name | ACLCAT category | PATTERN pattern>]`
static LIST: Command = Command::sub("command|list", "list", GROUP, -2)
    .flags(FLAGS)
    .categories(Categories::CONNECTION)
    .doc(
        "7.0.0",
        "[FILTERBY <MODULE module-name | ACLCAT category | PATTERN pattern>]",
        "Returns the names of all commands, or of those that match a filter.",
    )
    .complexity(PER_TABLE)
    .tips(UNORDERED)
    .repeatable()
    .on_session(list::list);

/// `COMMAND HELP`
static HELP: Command = Command::sub("command|help", "help", GROUP, 2)
    .flags(FLAGS)
    .categories(Categories::CONNECTION)
    .doc("5.0.0", "", "Explains the subcommands of COMMAND.")
    .on_help(&[
        "(no subcommand)",
        "    Describe every command.",
        "COUNT",
        "    Return the number of commands.",
        "LIST [FILTERBY <MODULE <name>|ACLCAT <category>|PATTERN <pattern>>]",
        "    List the names of all commands, or of those that match a filter.",
        "INFO [<command-name> ...]",
        "    Describe these commands, or all.",
        "DOCS [<command-name> ...]",
        "    Document these commands, or all.",
        "GETKEYS <full-command>",
        "    Return the keys of a full command.",
        "GETKEYSANDFLAGS <full-command>",
        "    Return the keys of a full command, with their access flags.",
    ]);

/// Returns the subcommands that clients may see.
fn listed_children(command: &Command) -> impl Iterator<Item = &'static Command> {
    let children = command.children().iter().copied();
    children.filter(|child| !child.flags.has(Flags::UNLISTED))
}

/// Finds a command by `name` or `container|sub`, ignoring case.
fn find(name: &[u8]) -> Option<&'static Command> {
    let mut words = name.split(|byte| *byte == b'|');
    let command = registry().find(words.next()?)?;
    let found = match words.next() {
        None => command,
        Some(sub) => resolve(command, Some(sub)),
    };
    let is_sub = found.name != found.full_name;
    let fits = is_sub == name.contains(&b'|') && words.next().is_none();
    (fits && !found.flags.has(Flags::UNLISTED)).then_some(found)
}
