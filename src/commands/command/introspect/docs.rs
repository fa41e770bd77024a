//! COMMAND DOCS: the purpose of commands and their arguments.

use super::super::context::SessionCx;
use super::super::declaration::{Command, CommandResult, Flags};
use super::super::registry::registry;
use super::super::syntax::{self, Argument, ArgumentType};
use super::super::{Args, Out};
use super::info::reply_words;
use super::{find, listed_children};

/// `COMMAND DOCS [command-name [command-name ...]]`
pub(super) fn docs(_: &mut SessionCx<'_>, args: &Args<'_>, out: &mut Out) -> CommandResult {
    let commands: Vec<&Command> = match args.len() {
        2 => registry().top_level().collect(),
        _ => args.from(2).filter_map(find).collect(),
    };
    out.map(commands.len());
    for command in commands {
        out.bulk(command.full_name.as_bytes());
        reply(command, out);
    }
    Ok(())
}

fn reply(command: &Command, out: &mut Out) {
    // A self-test of the table parses every line, so none fails here.
    let arguments = syntax::arguments(command).unwrap_or_default();
    let doc_flags = || {
        [
            command.deprecated.is_some().then_some("deprecated"),
            command.flags.has(Flags::SYSCMD).then_some("syscmd"),
        ]
        .into_iter()
        .flatten()
    };
    let children = listed_children(command).count();
    let mark = out.later();
    let mut count = 4;
    pair("summary", command.summary, out);
    pair("since", command.since, out);
    pair("group", command.group.name(), out);
    pair("complexity", command.complexity, out);
    if doc_flags().next().is_some() {
        out.bulk(b"doc_flags");
        reply_words(doc_flags(), out);
        count += 1;
    }
    if let Some((since, replaced_by)) = command.deprecated {
        pair("deprecated_since", since, out);
        pair("replaced_by", replaced_by, out);
        count += 2;
    }
    if !command.history.is_empty() {
        out.bulk(b"history");
        out.set(command.history.len());
        for (version, change) in command.history {
            out.array(2);
            out.bulk(version.as_bytes());
            out.bulk(change.as_bytes());
        }
        count += 1;
    }
    if !arguments.is_empty() {
        out.bulk(b"arguments");
        reply_arguments(&arguments, out);
        count += 1;
    }
    if children > 0 {
        out.bulk(b"subcommands");
        out.map(children);
        for child in listed_children(command) {
            out.bulk(child.full_name.as_bytes());
            reply(child, out);
        }
        count += 1;
    }
    out.close_map(mark, count);
}

fn pair(name: &str, value: &str, out: &mut Out) {
    out.bulk(name.as_bytes());
    out.bulk(value.as_bytes());
}

fn reply_arguments(arguments: &[Argument], out: &mut Out) {
    out.array(arguments.len());
    for argument in arguments {
        reply_argument(argument, out);
    }
}

fn reply_argument(argument: &Argument, out: &mut Out) {
    let mark = out.later();
    let mut count = 3;
    let is_aggregate = matches!(argument.kind, ArgumentType::OneOf | ArgumentType::Block);
    pair("name", &argument.name, out);
    pair("type", argument.kind.name(), out);
    if !is_aggregate {
        pair("display_text", &argument.name, out);
    }
    if let Some(index) = argument.key_spec {
        out.bulk(b"key_spec_index");
        out.integer(index as i64);
        count += 1;
    }
    if let Some(token) = argument.token {
        pair("token", token, out);
        count += 1;
    }
    let flags = || {
        [
            (argument.optional, "optional"),
            (argument.multiple, "multiple"),
            (argument.multiple_token, "multiple_token"),
        ]
        .into_iter()
        .filter_map(|(is_set, name)| is_set.then_some(name))
    };
    if flags().next().is_some() {
        out.bulk(b"flags");
        reply_words(flags(), out);
        count += 1;
    }
    if is_aggregate {
        out.bulk(b"arguments");
        reply_arguments(&argument.parts, out);
    }
    out.close_map(mark, count);
}
