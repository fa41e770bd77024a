//! COMMAND GETKEYS and GETKEYSANDFLAGS: the keys among a command's arguments.

use super::super::context::SessionCx;
use super::super::declaration::{Command, CommandResult, Flags, KeyFlags};
use super::super::keys;
use super::super::registry::{registry, resolve};
use super::super::{Args, Out};
use super::info::reply_key_flags;

/// Index of the command whose keys are requested.
const FIRST: usize = 2;

/// `COMMAND GETKEYS command [arg [arg ...]]`
pub(super) fn get_keys(_: &mut SessionCx<'_>, args: &Args<'_>, out: &mut Out) -> CommandResult {
    let found = find_keys(args)?;
    out.array(found.len());
    for (at, _) in found {
        out.bulk(args.get(FIRST + at));
    }
    Ok(())
}

/// `COMMAND GETKEYSANDFLAGS command [arg [arg ...]]`
pub(super) fn get_keys_and_flags(
    _: &mut SessionCx<'_>,
    args: &Args<'_>,
    out: &mut Out,
) -> CommandResult {
    let found = find_keys(args)?;
    out.array(found.len());
    for (at, flags) in found {
        out.array(2);
        out.bulk(args.get(FIRST + at));
        reply_key_flags(flags, out);
    }
    Ok(())
}

type KeyPositions = Vec<(usize, KeyFlags)>;

fn find_keys(args: &Args<'_>) -> Result<KeyPositions, super::super::error::CommandError> {
    let count = args.len() - FIRST;
    let argument = |index: usize| args.get(FIRST + index);
    let command = named(args).ok_or("ERR Invalid command specified")?;
    let is_key = |flags: KeyFlags| !flags.has(KeyFlags::NOT_KEY);
    if !command.keys.iter().any(|spec| is_key(spec.flags)) {
        return Err("ERR The command has no key arguments".into());
    }
    if !command.accepts(count) {
        return Err("ERR Invalid number of arguments specified for command".into());
    }
    let found = keys::all(command, count, argument);
    match found {
        Ok(found) if !found.is_empty() => Ok(found),
        _ if command.flags.has(Flags::NO_MANDATORY_KEYS) => Ok(KeyPositions::new()),
        _ => Err("ERR Invalid arguments specified for command".into()),
    }
}

fn named(args: &Args<'_>) -> Option<&'static Command> {
    let command = registry().find(args.get(FIRST))?;
    let is_container = super::listed_children(command).next().is_some();
    if !is_container || args.len() == FIRST + 1 {
        return Some(command);
    }
    let found = resolve(command, Some(args.get(FIRST + 1)));
    (found.name != found.full_name).then_some(found)
}
