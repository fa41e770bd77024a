//! Commands that write whole strings.

use super::conditional::Comparison;
use super::reply_text;
use crate::command::Args;
use crate::command::Out;
use crate::command::context::ShardCx;
use crate::command::declaration::{
    Command, CommandResult, Flags, Group, KeyFlags, KeySpec, ReadArgument,
};
use crate::command::error::CommandError;
use crate::command::lock;
use crate::command::marks::MarkOptions;
use crate::command::options::{Expiry, KEEPTTL, TimeForm};
use basalt_core::base::number;
use basalt_engine::effect::Event;
use basalt_engine::keyspace::Deadline;
use basalt_engine::marks::Marks;
use basalt_engine::value::DataType;

pub(super) const SET_EVENT: Event = Event::string("set");
pub(super) const EXPIRE_EVENT: Event = Event::generic("expire");

/// `SET key value [NX | XX | IFEQ value | IFNE value | IFDEQ digest | IFDNE digest] [GET] [expiry]`
pub(super) static SET: Command = Command::new("set", Group::String, -3)
    .writes(&[KeySpec::one(
        1,
        KeyFlags::RW.or(KeyFlags::ACCESS).or(KeyFlags::UPDATE).or(KeyFlags::VARIABLE_FLAGS),
    )
    .note("RW and ACCESS due to the optional `GET` argument"),
    KeySpec::one(1, KeyFlags::RO.or(KeyFlags::ACCESS)).after_keyword("FENCE", 3).unlisted()])
    .finds_keyword(fence_at)
    .key_flags_of(key_flags)
    .flags(Flags::DENYOOM)
    .keeps_block(2)
    .doc(
        "1.0.0",
        "key value [NX | XX | IFEQ ifeq-value | IFNE ifne-value | IFDEQ ifdeq-digest | IFDNE ifdne-digest] [GET] \
         [EX seconds | PX milliseconds | EXAT unix-time-seconds | PXAT unix-time-milliseconds | KEEPTTL] \
         [FENCE <lock:string fence:integer>] [STALE stale-milliseconds] [TAGS numtags tag [tag ...]]",
        "Sets the string value of a key, replacing any old value.",
    )
    .history(&[
        ("2.6.12", "New options: `EX`, `PX`, `NX` and `XX`."),
        ("6.0.0", "New option: `KEEPTTL`."),
        ("6.2.0", "New options: `GET`, `EXAT` and `PXAT`."),
        ("7.0.0", "`NX` and `GET` can be combined."),
        ("8.4.0", "New options: `IFEQ`, `IFNE`, `IFDEQ` and `IFDNE`."),
    ])
    .on_keys(set);

fn set(cx: &mut ShardCx<'_>, args: &Args<'_>, out: &mut Out) -> CommandResult {
    if args.len() > 3 {
        return set_with_options(cx, args, out);
    }
    let key = args.key(1);
    let mut keyspace = cx.at(&key);
    let found = keyspace.find_write(&key);
    keyspace.overwrites(&key, found, DataType::String);
    keyspace.put_text(&key, found, args.content(2), Deadline::Clear);
    keyspace.wrote(key.bytes, SET_EVENT);
    out.ok();
    Ok(())
}

/// The condition under which SET stores its value.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum SetCondition {
    Always,
    IfAbsent,
    IfPresent,
    IfValue(Comparison),
}

#[derive(Clone, Copy, Debug)]
struct SetOptions {
    condition: SetCondition,
    expiry: Expiry,
    get: bool,
    /// Index of the key of the lock that must be held (option FENCE); the fencing token follows.
    lock_at: Option<usize>,
    marks: MarkOptions,
}

/// Returns the flags of the key: GET and conditions read the value that they return or compare.
fn key_flags(count: usize, argument: ReadArgument<'_, '_>) -> KeyFlags {
    let reads = |at: usize| {
        let is = |word: &&str| argument(at).eq_ignore_ascii_case(word.as_bytes());
        ["GET", "IFEQ", "IFNE", "IFDEQ", "IFDNE"].iter().any(is)
    };
    match (3..count).any(reads) {
        true => KeyFlags::RW.or(KeyFlags::ACCESS).or(KeyFlags::UPDATE),
        false => KeyFlags::OW.or(KeyFlags::UPDATE),
    }
}

/// Returns the position of `FENCE` in a request of SET; the number of arguments if it is absent. Operands of other
/// options may be the same word.
fn fence_at<'a>(count: usize, argument: &dyn Fn(usize) -> &'a [u8]) -> Option<usize> {
    let mut at = 3;
    while at < count && !argument(at).eq_ignore_ascii_case(b"fence") {
        let has_next = at + 1 < count;
        at += match has_next && argument(at).eq_ignore_ascii_case(b"tags") {
            true => 2 + number_of_tags(argument(at + 1), count),
            false => 1 + operands(argument(at)),
        };
    }
    Some(at)
}

/// Returns the number of tags after their count; an invalid count is refused later.
fn number_of_tags(number: &[u8], count: usize) -> usize {
    let number = number::parse_i64(number).and_then(|number| usize::try_from(number).ok());
    number.map_or(0, |number| number.min(count))
}

/// Returns how many operands follow an option of SET other than TAGS.
fn operands(option: &[u8]) -> usize {
    const WITH_ONE: [&str; 9] = [
        "ex", "px", "exat", "pxat", "ifeq", "ifne", "ifdeq", "ifdne", "stale",
    ];
    let is = |word: &&str| option.eq_ignore_ascii_case(word.as_bytes());
    usize::from(WITH_ONE.iter().any(is))
}

impl SetOptions {
    fn parse(args: &Args<'_>) -> Result<SetOptions, CommandError> {
        let mut options = SetOptions {
            condition: SetCondition::Always,
            expiry: Expiry::Unsaid,
            get: false,
            lock_at: None,
            marks: MarkOptions::default(),
        };
        let mut at = 3;
        while at < args.len() {
            at = match options.accept(args, at) {
                Some(next) => next,
                None => {
                    let next = options.marks.accept(args, at)?;
                    next.ok_or(CommandError::Syntax)?
                }
            };
        }
        Ok(options)
    }

    /// Whether the request has the same effect on other servers, so that it can be logged as it is.
    fn means_the_same_elsewhere(self) -> bool {
        let is_known = matches!(
            self.condition,
            SetCondition::Always | SetCondition::IfAbsent | SetCondition::IfPresent
        );
        let is_absolute = matches!(
            self.expiry,
            Expiry::Unsaid | Expiry::Keep | Expiry::Given(TimeForm::UnixMillis, _)
        );
        let is_plain = !self.get && self.lock_at.is_none() && self.marks.are_unsaid();
        is_known && is_absolute && is_plain
    }

    fn accept(&mut self, args: &Args<'_>, at: usize) -> Option<usize> {
        if let Some(next) = self.expiry.accept(args, at, KEEPTTL) {
            return Some(next);
        }
        if args.is(at, "get") {
            self.get = true;
            return Some(at + 1);
        }
        if args.is(at, "fence") && self.lock_at.is_none() && at + 2 < args.len() {
            self.lock_at = Some(at + 1);
            return Some(at + 3);
        }
        let (condition, next) = if args.is(at, "nx") {
            (SetCondition::IfAbsent, at + 1)
        } else if args.is(at, "xx") {
            (SetCondition::IfPresent, at + 1)
        } else {
            (SetCondition::IfValue(Comparison::parse(args, at)?), at + 2)
        };
        // NX may be repeated; any two different conditions exclude each other.
        if self.condition != SetCondition::Always && self.condition != condition {
            return None;
        }
        self.condition = condition;
        Some(next)
    }
}

fn set_with_options(cx: &mut ShardCx<'_>, args: &Args<'_>, out: &mut Out) -> CommandResult {
    let options = SetOptions::parse(args)?;
    let deadline = options.expiry.on_replace(args, cx.now, "set")?;
    let (deadline, stale_ms) = options.marks.stretch(args, deadline, "set")?;
    let is_fenced_off = match options.lock_at {
        Some(at) => {
            let fence = args.integer(at + 1)?;
            !lock::is_held_with(cx, &args.key(at), fence)?
        }
        None => false,
    };
    let key = args.key(1);
    let mut keyspace = cx.at(&key);
    let found = if options.get {
        keyspace.find_read(&key)
    } else {
        keyspace.find_write(&key)
    };
    let old = match found {
        Some(place) if options.get => Some(keyspace.text(place)?),
        _ => None,
    };
    let holds = match (options.condition, found) {
        _ if is_fenced_off => false,
        (SetCondition::Always, _) => true,
        (SetCondition::IfAbsent, found) => found.is_none(),
        (SetCondition::IfPresent, found) => found.is_some(),
        (SetCondition::IfValue(comparison), None) => comparison.holds_for_nothing(),
        (SetCondition::IfValue(comparison), Some(place)) => {
            comparison.holds(keyspace.text(place)?, args)?
        }
    };
    match old {
        Some(text) => reply_text(text, out),
        None if options.get || !holds => out.null(),
        None => out.ok(),
    }
    if holds {
        keyspace.overwrites(&key, found, DataType::String);
        keyspace.put_text(&key, found, args.content(2), deadline);
        let marks = Marks {
            stale_ms: match deadline {
                Deadline::Keep => keyspace.stale_ms_of(&key),
                _ => stale_ms,
            },
            tags: options.marks.tags(args).collect(),
        };
        if !marks.is_empty() {
            keyspace.set_marks(&key, &marks);
        }
        keyspace.wrote(key.bytes, SET_EVENT);
        if matches!(deadline, Deadline::At(_)) {
            keyspace.wrote(key.bytes, EXPIRE_EVENT);
        }
        if !options.means_the_same_elsewhere() {
            cx.log_string(key.bytes, args.content(2), deadline);
            cx.log_marks(key.bytes, &marks);
        }
    }
    Ok(())
}

/// `SETNX key value`
pub(super) static SETNX: Command = Command::new("setnx", Group::String, 3)
    .writes(&[KeySpec::one(1, KeyFlags::OW.or(KeyFlags::INSERT))])
    .flags(Flags::DENYOOM.or(Flags::FAST))
    .keeps_block(2)
    .deprecated("2.6.12", "`SET` with the `NX` argument")
    .doc(
        "1.0.0",
        "key value",
        "Sets the string value of a key unless it exists.",
    )
    .on_keys(setnx);

fn setnx(cx: &mut ShardCx<'_>, args: &Args<'_>, out: &mut Out) -> CommandResult {
    let key = args.key(1);
    let mut keyspace = cx.at(&key);
    let found = keyspace.find_write(&key);
    if found.is_none() {
        keyspace.put_text(&key, None, args.content(2), Deadline::Clear);
        keyspace.wrote(key.bytes, SET_EVENT);
    }
    out.integer(i64::from(found.is_none()));
    Ok(())
}

/// `SETEX key seconds value`
pub(super) static SETEX: Command = Command::new("setex", Group::String, 4)
    .writes(&[KeySpec::one(1, KeyFlags::OW.or(KeyFlags::UPDATE))])
    .flags(Flags::DENYOOM)
    .keeps_block(3)
    .deprecated("2.6.12", "`SET` with the `EX` argument")
    .doc(
        "2.0.0",
        "key seconds value",
        "Sets the string value of a key and its time to live in seconds.",
    )
    .on_keys(|cx, args, out| set_for(cx, args, out, TimeForm::Seconds));

/// `PSETEX key milliseconds value`
pub(super) static PSETEX: Command = Command::new("psetex", Group::String, 4)
    .writes(&[KeySpec::one(1, KeyFlags::OW.or(KeyFlags::UPDATE))])
    .flags(Flags::DENYOOM)
    .keeps_block(3)
    .deprecated("2.6.12", "`SET` with the `PX` argument")
    .doc(
        "2.6.0",
        "key milliseconds value",
        "Sets the string value of a key and its time to live in milliseconds.",
    )
    .on_keys(|cx, args, out| set_for(cx, args, out, TimeForm::Millis));

fn set_for(cx: &mut ShardCx<'_>, args: &Args<'_>, out: &mut Out, form: TimeForm) -> CommandResult {
    let at_ms = form.deadline_ms(args.integer(2)?, cx.now, cx.command.full_name)?;
    let key = args.key(1);
    let mut keyspace = cx.at(&key);
    let found = keyspace.find_write(&key);
    keyspace.overwrites(&key, found, DataType::String);
    keyspace.put_text(&key, found, args.content(3), Deadline::At(at_ms));
    keyspace.wrote(key.bytes, SET_EVENT);
    keyspace.wrote(key.bytes, EXPIRE_EVENT);
    cx.log_string(key.bytes, args.content(3), Deadline::At(at_ms));
    out.ok();
    Ok(())
}

/// `GETSET key value`
pub(super) static GETSET: Command = Command::new("getset", Group::String, 3)
    .writes(&[KeySpec::one(
        1,
        KeyFlags::RW.or(KeyFlags::ACCESS).or(KeyFlags::UPDATE),
    )])
    .flags(Flags::DENYOOM.or(Flags::FAST))
    .keeps_block(2)
    .deprecated("6.2.0", "`SET` with the `!GET` argument")
    .doc(
        "1.0.0",
        "key value",
        "Sets the string value of a key and returns the old one.",
    )
    .on_keys(getset);

fn getset(cx: &mut ShardCx<'_>, args: &Args<'_>, out: &mut Out) -> CommandResult {
    let key = args.key(1);
    let mut keyspace = cx.at(&key);
    let found = keyspace.find_read(&key);
    match found {
        Some(place) => reply_text(keyspace.text(place)?, out),
        None => out.null(),
    }
    keyspace.overwrites(&key, found, DataType::String);
    keyspace.put_text(&key, found, args.content(2), Deadline::Clear);
    keyspace.wrote(key.bytes, SET_EVENT);
    cx.log_string(key.bytes, args.content(2), Deadline::Clear);
    Ok(())
}
