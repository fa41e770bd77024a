//! The single function that finds a command's keys: routing, COMMAND GETKEYS, ACL, cluster and tracking all call it.

use super::declaration::{BeginSearch, Command, FindKeys, KeyFlags, KeySpec, LoneKey};
use basalt_core::base::number;

/// The reason why a command's keys could not be found.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum KeysError {
    /// A count of keys that is invalid, or larger than the number of arguments that follow.
    InvalidCount,
}

/// Calls `found` with the argument position and the flags of each key, in the order of the specifications.
///
/// `argument_count` includes the name (and the subcommand); `argument` returns the argument at an index.
pub fn positions<'a>(
    command: &Command,
    argument_count: usize,
    argument: impl Fn(usize) -> &'a [u8],
    mut found: impl FnMut(usize, KeyFlags),
) -> Result<(), KeysError> {
    let all_count = argument_count;
    let argument_count = match command.options_at_end {
        Some(find) => all_count - find(all_count, &argument).min(all_count),
        None => all_count,
    };
    for spec in command.keys {
        let Some(begin) = begin(command, spec, argument_count, &argument) else {
            continue;
        };
        match spec.find {
            FindKeys::Range { last, step, limit } => {
                let last = if last >= 0 {
                    begin + last as usize
                } else {
                    let end = (argument_count as i64 + i64::from(last)).max(0) as usize;
                    match limit {
                        0 | 1 => end,
                        share => begin + (argument_count - begin) / share as usize - 1,
                    }
                };
                let mut at = begin;
                while at <= last && at < argument_count {
                    found(at, spec.flags);
                    at += step as usize;
                }
            }
            FindKeys::KeyNum {
                count_at,
                first,
                step,
            } => {
                let count_at = begin + count_at as usize;
                if count_at >= argument_count {
                    continue;
                }
                let count = number::parse_i64(argument(count_at)).filter(|count| *count >= 0);
                let Some(count) = count else {
                    return Err(KeysError::InvalidCount);
                };
                let first = begin + first as usize;
                let room = argument_count.saturating_sub(first).div_ceil(step as usize);
                if count as usize > room {
                    return Err(KeysError::InvalidCount);
                }
                for index in 0..count as usize {
                    found(first + index * step as usize, spec.flags);
                }
            }
            FindKeys::Unknown => {}
        }
    }
    if let Some(find) = command.key_finder
        && let Some((at, flags)) = find(all_count, &argument)
    {
        found(at, flags);
    }
    Ok(())
}

/// Returns the keys of a request in the order of the specifications, with the flags that its arguments give them;
/// without names that are routed like keys but are not keys.
pub fn all<'a>(
    command: &Command,
    argument_count: usize,
    argument: impl Fn(usize) -> &'a [u8] + Copy,
) -> Result<Vec<(usize, KeyFlags)>, KeysError> {
    let mut found = Vec::new();
    positions(command, argument_count, argument, |at, flags| {
        if !flags.has(KeyFlags::NOT_KEY) {
            found.push((
                at,
                effective_flags(command, flags, argument_count, argument),
            ));
        }
    })?;
    // Keys after a keyword replace the key at a fixed position, which is then empty (MIGRATE … KEYS).
    let is_instead = |flags: KeyFlags| flags.has(KeyFlags::INCOMPLETE);
    let is_behind_a_word = |spec: &KeySpec| matches!(spec.begin, BeginSearch::Keyword(..));
    if command.keys.iter().any(is_behind_a_word)
        && found.iter().any(|(_, flags)| is_instead(*flags))
    {
        found.retain(|(_, flags)| is_instead(*flags));
        let flags = command.keys[0].flags;
        found.iter_mut().for_each(|found| found.1 = flags);
    }
    Ok(found)
}

/// Returns the position of the only key of a request; None unless the request has exactly one key, at the position
/// where all requests of its command have one (further keys of the command would follow a keyword that is not among
/// the arguments).
#[inline]
pub fn only<'a>(
    command: &Command,
    argument_count: usize,
    argument: impl Fn(usize) -> &'a [u8],
) -> Option<usize> {
    let LoneKey { at, arguments_max } = command.lone_key;
    if argument_count <= arguments_max
        || arguments_max > 0 && !has_keyword(command, argument_count, argument)
    {
        return Some(at);
    }
    None
}

/// Whether the arguments contain a keyword after which a command has keys.
#[inline(never)]
fn has_keyword<'a>(
    command: &Command,
    argument_count: usize,
    argument: impl Fn(usize) -> &'a [u8],
) -> bool {
    command.keys.iter().any(|spec| match spec.begin {
        BeginSearch::Keyword(word, from) => (from.max(1) as usize..argument_count)
            .any(|at| argument(at).eq_ignore_ascii_case(word.as_bytes())),
        _ => false,
    })
}

/// Returns the flags of a key, computed from the request if they depend on it.
pub fn effective_flags<'a>(
    command: &Command,
    flags: KeyFlags,
    argument_count: usize,
    argument: impl Fn(usize) -> &'a [u8],
) -> KeyFlags {
    match command.key_flags_of {
        Some(flags_of) if flags.has(KeyFlags::VARIABLE_FLAGS) => {
            flags_of(argument_count, &argument)
        }
        _ => flags,
    }
}

fn begin<'a>(
    command: &Command,
    spec: &KeySpec,
    argument_count: usize,
    argument: &impl Fn(usize) -> &'a [u8],
) -> Option<usize> {
    let begin = match spec.begin {
        BeginSearch::Index(index) => index as usize,
        BeginSearch::Keyword(word, from) => {
            let is_word = |at: &usize| argument(*at).eq_ignore_ascii_case(word.as_bytes());
            let known = command
                .keyword_finder
                .and_then(|find| find(argument_count, argument));
            // Requests that the command will refuse are searched for keys in the way of Redis.
            let at = if known.is_some() {
                known
            } else if from > 0 {
                (from as usize..argument_count).find(is_word)
            } else {
                let last = (argument_count as i64 + i64::from(from)).max(0) as usize;
                (1..=last).rev().find(is_word)
            };
            at? + 1
        }
        BeginSearch::Unknown => return None,
    };
    (begin < argument_count).then_some(begin)
}
