//! COMMAND GETKEYS and GETKEYSANDFLAGS: which arguments of a command are keys.

use super::super::context::SessionCx;
use super::super::declaration::{BeginSearch, Command, CommandResult, Flags, KeyFlags, KeySpec};
use super::super::keys::{effective_flags, positions};
use super::super::table::{registry, resolve};
use super::super::{Args, Out};
use super::info::reply_key_flags;

/// Where the command stands whose keys are asked for.
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

type Found = Vec<(usize, KeyFlags)>;

fn find_keys(args: &Args<'_>) -> Result<Found, super::super::error::CommandError> {
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
    let mut found = Found::new();
    let result = positions(command, count, argument, |at, flags| {
        if is_key(flags) {
            found.push((at, effective_flags(command, flags, count, argument)));
        }
    });
    // Keys behind a word stand for those at a place, which then hold nothing (MIGRATE … KEYS).
    let is_instead = |flags: KeyFlags| flags.has(KeyFlags::INCOMPLETE);
    let has_keyword = |spec: &KeySpec| matches!(spec.begin, BeginSearch::Keyword(..));
    if command.keys.iter().any(has_keyword) && found.iter().any(|(_, flags)| is_instead(*flags)) {
        found.retain(|(_, flags)| is_instead(*flags));
        let flags = command.keys[0].flags;
        found.iter_mut().for_each(|found| found.1 = flags);
    }
    if (result.is_err() || found.is_empty()) && !command.flags.has(Flags::NO_MANDATORY_KEYS) {
        return Err("ERR Invalid arguments specified for command".into());
    }
    Ok(found)
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
