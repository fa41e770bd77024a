//! COMMAND INFO: a row in the form that clients use to route commands.

use super::super::context::SessionCx;
use super::super::declaration::{
    BeginSearch, Command, CommandResult, FindKeys, Flags, KeyFlags, KeySpec,
};
use super::super::registry::registry;
use super::super::{Args, Out};
use super::{find, listed_children};

/// `COMMAND INFO [command-name [command-name ...]]`
pub(super) fn info(_: &mut SessionCx<'_>, args: &Args<'_>, out: &mut Out) -> CommandResult {
    if args.len() == 2 {
        reply_all(out);
        return Ok(());
    }
    out.array(args.len() - 2);
    for name in args.from(2) {
        match find(name) {
            Some(command) => reply(command, out),
            None => out.null(),
        }
    }
    Ok(())
}

/// Replies with all commands; subcommands are inside their containers.
pub(super) fn reply_all(out: &mut Out) {
    out.array(registry().top_level().count());
    for command in registry().top_level() {
        reply(command, out);
    }
}

fn reply(command: &'static Command, out: &mut Out) {
    let legacy = Legacy::of(command);
    let mut flags = command.flags;
    if legacy.is_movable {
        flags = flags.or(Flags::MOVABLEKEYS);
    }
    out.array(10);
    out.bulk(command.full_name.as_bytes());
    out.integer(i64::from(command.arity));
    reply_words(
        Flags::ALL
            .iter()
            .filter(|(flag, _)| flags.has(*flag) && !Flags::INTERNAL.has(*flag))
            .map(|(_, name)| *name),
        out,
    );
    out.integer(i64::from(legacy.first));
    out.integer(i64::from(legacy.last));
    out.integer(i64::from(legacy.step));
    reply_words(command.acl_categories().names(), out);
    out.set(command.tips.len());
    for tip in command.tips {
        out.bulk(tip.as_bytes());
    }
    out.set(command.listed_keys().len());
    for spec in command.listed_keys() {
        reply_spec(spec, out);
    }
    match listed_children(command).count() {
        0 => out.set(0),
        count => out.array(count),
    }
    for child in listed_children(command) {
        reply(child, out);
    }
}

/// Replies with a set of words, each as a status.
pub(super) fn reply_words(words: impl Iterator<Item = &'static str>, out: &mut Out) {
    let mark = out.later();
    let mut count = 0;
    for word in words {
        out.simple(word);
        count += 1;
    }
    out.close_set(mark, count);
}

/// Replies with the flags of a key specification.
pub(super) fn reply_key_flags(flags: KeyFlags, out: &mut Out) {
    reply_words(flags.names(), out);
}

fn reply_spec(spec: &KeySpec, out: &mut Out) {
    out.map(3 + usize::from(spec.notes.is_some()));
    if let Some(notes) = spec.notes {
        out.bulk(b"notes");
        out.bulk(notes.as_bytes());
    }
    out.bulk(b"flags");
    reply_key_flags(spec.flags, out);
    out.bulk(b"begin_search");
    match spec.begin {
        BeginSearch::Index(index) => reply_way("index", &[("index", index)], out),
        BeginSearch::Unknown => reply_way("unknown", &[], out),
        BeginSearch::Keyword(word, from) => {
            begin_way("keyword", 2, out);
            out.bulk(b"keyword");
            out.bulk(word.as_bytes());
            out.bulk(b"startfrom");
            out.integer(i64::from(from));
        }
    }
    out.bulk(b"find_keys");
    match spec.find {
        FindKeys::Range { last, step, limit } => reply_way(
            "range",
            &[("lastkey", last), ("keystep", step), ("limit", limit)],
            out,
        ),
        FindKeys::KeyNum {
            count_at,
            first,
            step,
        } => reply_way(
            "keynum",
            &[
                ("keynumidx", count_at),
                ("firstkey", first),
                ("keystep", step),
            ],
            out,
        ),
        FindKeys::Unknown => reply_way("unknown", &[], out),
    }
}

fn begin_way(kind: &str, count: usize, out: &mut Out) {
    out.map(2);
    out.bulk(b"type");
    out.bulk(kind.as_bytes());
    out.bulk(b"spec");
    out.map(count);
}

fn reply_way(kind: &str, numbers: &[(&str, i32)], out: &mut Out) {
    begin_way(kind, numbers.len(), out);
    for (name, number) in numbers {
        out.bulk(name.as_bytes());
        out.integer(i64::from(*number));
    }
}

/// Key positions in the form for clients older than key specifications: first, last, step.
#[derive(Debug, Default, PartialEq, Eq)]
struct Legacy {
    first: i32,
    last: i32,
    step: i32,
    /// Whether first, last and step do not find every key.
    is_movable: bool,
}

impl Legacy {
    /// Derives the form from the specifications: a single range is taken as it is; several are joined if they
    /// directly follow each other with step 1. In all other cases the keys are movable.
    fn of(command: &Command) -> Legacy {
        let mut legacy = Legacy::default();
        if let [spec] = command.listed_keys()
            && let (BeginSearch::Index(first), FindKeys::Range { last, step, .. }) =
                (spec.begin, spec.find)
        {
            return Legacy {
                first,
                last: if last >= 0 { first + last } else { last },
                step,
                is_movable: spec.flags.has(KeyFlags::INCOMPLETE),
            };
        }
        for spec in command.listed_keys() {
            let (BeginSearch::Index(first), FindKeys::Range { last, step: 1, .. }) =
                (spec.begin, spec.find)
            else {
                legacy.is_movable = true;
                continue;
            };
            if legacy.last != 0 && legacy.last != first - 1 {
                legacy.is_movable = true;
                continue;
            }
            legacy.is_movable |= spec.flags.has(KeyFlags::INCOMPLETE);
            if legacy.step == 0 {
                legacy.first = first;
                legacy.step = 1;
            }
            let last = if last >= 0 { first + last } else { last };
            // As unsigned numbers, positions counted from the end are greater than any counted from the beginning.
            legacy.last = (legacy.last as u32).max(last as u32) as i32;
        }
        legacy
    }
}
