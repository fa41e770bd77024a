//! A counter with bounds and a deadline: INCR and EXPIRE in one step.

use crate::command::context::ShardCx;
use crate::command::declaration::{Command, CommandResult, Flags, Group, KeyFlags, KeySpec};
use crate::command::error::CommandError;
use crate::command::options::{Expiry, PERSIST};
use crate::command::{Args, Out};
use basalt_core::base::extended::Extended;
use basalt_engine::Key;
use basalt_engine::effect::Event;
use basalt_engine::keyspace::{Deadline, Keyspace};

/// `INCREX key [BYFLOAT increment | BYINT increment] [LBOUND bound] [UBOUND bound] [SATURATE] [expiry] [ENX]`
pub(super) static INCREX: Command = Command::new("increx", Group::String, -2)
    .writes(&[KeySpec::one(
        1,
        KeyFlags::RW.or(KeyFlags::ACCESS).or(KeyFlags::UPDATE),
    )])
    .flags(Flags::DENYOOM.or(Flags::FAST))
    .doc(
        "8.8.0",
        "key [BYFLOAT float:double | BYINT integer] [LBOUND lowerbound:string] [UBOUND upperbound:string] [SATURATE] \
         [EX seconds | PX milliseconds | EXAT unix-time-seconds | PXAT unix-time-milliseconds | PERSIST] [ENX]",
        "Increments the number stored at a key within bounds, and sets its expiration.",
    )
    .on_keys(increx);

/// The options of INCREX, by the positions of their arguments.
#[derive(Clone, Copy, Default)]
struct IncrexOptions {
    float_at: Option<usize>,
    integer_at: Option<usize>,
    lower_at: Option<usize>,
    upper_at: Option<usize>,
    saturates: bool,
    expiry: Expiry,
    only_without_deadline: bool,
}

impl IncrexOptions {
    fn parse(args: &Args<'_>) -> Result<IncrexOptions, CommandError> {
        let mut options = IncrexOptions::default();
        let mut at = 2;
        while at < args.len() {
            at = options.accept(args, at).ok_or(CommandError::Syntax)?;
        }
        if options.float_at.is_some() && options.integer_at.is_some() {
            return Err(CommandError::Syntax);
        }
        if options.only_without_deadline {
            match options.expiry {
                Expiry::Given(..) => {}
                Expiry::Unsaid => return Err("ERR ENX flag requires an expiration".into()),
                _ => return Err(CommandError::Syntax),
            }
        }
        Ok(options)
    }

    /// Reads the option at `at`; returns the position of the next one.
    fn accept(&mut self, args: &Args<'_>, at: usize) -> Option<usize> {
        if let Some(next) = self.expiry.accept(args, at, PERSIST) {
            return Some(next);
        }
        if args.is(at, "saturate") {
            self.saturates = true;
            return Some(at + 1);
        }
        if args.is(at, "enx") {
            self.only_without_deadline = true;
            return Some(at + 1);
        }
        let place = match () {
            () if args.is(at, "byfloat") => &mut self.float_at,
            () if args.is(at, "byint") => &mut self.integer_at,
            () if args.is(at, "lbound") => &mut self.lower_at,
            () if args.is(at, "ubound") => &mut self.upper_at,
            () => return None,
        };
        if place.is_some() || at + 1 >= args.len() {
            return None;
        }
        *place = Some(at + 1);
        Some(at + 2)
    }
}

const BOUNDS_CROSSED: &str = "ERR LBOUND can't be greater than UBOUND";

fn increx(cx: &mut ShardCx<'_>, args: &Args<'_>, out: &mut Out) -> CommandResult {
    let options = IncrexOptions::parse(args)?;
    let given_ms = options.expiry.deadline_ms(args, cx.now, "increx")?;
    match options.float_at {
        Some(at) => add_float(cx, args, (options, at), given_ms, out),
        None => add_integer(cx, args, options, given_ms, out),
    }
}

/// Returns what to do with the key's deadline.
fn new_deadline(
    keyspace: &Keyspace<'_>,
    key: &Key<'_>,
    options: IncrexOptions,
    given_ms: Option<u64>,
) -> Deadline {
    let found = keyspace.find_as_it_lies(key);
    let has_deadline = found.is_some_and(|place| keyspace.entry(place).deadline().is_some());
    match (options.expiry, given_ms) {
        (Expiry::Persist, _) if has_deadline => Deadline::Clear,
        (_, Some(_)) if options.only_without_deadline && has_deadline => Deadline::Keep,
        (_, Some(at_ms)) => Deadline::At(at_ms),
        _ => Deadline::Keep,
    }
}

/// Records that a key has another number, and applies its new deadline, if any.
fn finish(
    cx: &mut ShardCx<'_>,
    key: &Key<'_>,
    event: &'static str,
    value: &[u8],
    deadline: Deadline,
) {
    let mut keyspace = cx.at(key);
    let place = keyspace.find_as_it_lies(key);
    keyspace.wrote(key.bytes, Event::string(event));
    let changed = match deadline {
        Deadline::Keep => None,
        Deadline::Clear => Some((None, "persist")),
        Deadline::At(at_ms) => Some((Some(at_ms), "expire")),
    };
    if let (Some((at_ms, event)), Some(place)) = (changed, place) {
        keyspace.set_deadline(key, place, at_ms);
        keyspace.wrote(key.bytes, Event::generic(event));
    }
    cx.log_edited_string(key, value.into(), deadline);
}

fn add_integer(
    cx: &mut ShardCx<'_>,
    args: &Args<'_>,
    options: IncrexOptions,
    given_ms: Option<u64>,
    out: &mut Out,
) -> CommandResult {
    let number = |at: Option<usize>, unsaid: i64| match at {
        Some(at) => args.integer(at),
        None => Ok(unsaid),
    };
    let increment = number(options.integer_at, 1)?;
    let lower = number(options.lower_at, i64::MIN)?;
    let upper = number(options.upper_at, i64::MAX)?;
    if lower > upper {
        return Err(BOUNDS_CROSSED.into());
    }
    let key = args.key(1);
    let mut keyspace = cx.at(&key);
    let found = keyspace.find_write(&key);
    let before = match found {
        Some(place) => keyspace.text(place)?.integer(),
        None => Some(0),
    };
    let before = before.ok_or(CommandError::NotInteger)?;
    let sum = i128::from(before) + i128::from(increment);
    let within = sum.clamp(i128::from(lower), i128::from(upper)) as i64;
    let is_within = sum == i128::from(within);
    out.array(2);
    if !is_within && !options.saturates {
        out.integer(before);
        out.integer(0);
        return Ok(());
    }
    out.integer(within);
    // If a bound is far on the other side of the previous value, the difference may overflow.
    out.integer(within.saturating_sub(before));
    let deadline = new_deadline(&keyspace, &key, options, given_ms);
    keyspace.put_integer(&key, found, within);
    let mut digits = itoa::Buffer::new();
    let value = digits.format(within).as_bytes();
    finish(cx, &key, "incrby", value, deadline);
    Ok(())
}

fn add_float(
    cx: &mut ShardCx<'_>,
    args: &Args<'_>,
    (options, increment_at): (IncrexOptions, usize),
    given_ms: Option<u64>,
    out: &mut Out,
) -> CommandResult {
    let number = |at: usize| Extended::parse(args.get(at)).ok_or(CommandError::NotFloat);
    let bound = |at: Option<usize>, unsaid: Extended| at.map_or(Ok(unsaid), number);
    let increment = number(increment_at)?;
    let lower = bound(options.lower_at, Extended::MAX.negated())?;
    let upper = bound(options.upper_at, Extended::MAX)?;
    if upper.is_less_than(lower) {
        return Err(BOUNDS_CROSSED.into());
    }
    let key = args.key(1);
    let mut keyspace = cx.at(&key);
    let found = keyspace.find_write(&key);
    let before = match found {
        Some(place) => keyspace.text(place)?.with_bytes(Extended::parse),
        None => Some(Extended::ZERO),
    };
    let before = before.ok_or(CommandError::NotFloat)?;
    if !before.is_finite() || !increment.is_finite() {
        return Err("ERR increment would produce NaN or Infinity".into());
    }
    let sum = before.checked_add(increment);
    let after = match sum {
        Some(sum) if sum.is_less_than(lower) => lower,
        Some(sum) if upper.is_less_than(sum) => upper,
        Some(sum) => sum,
        None if increment.is_less_than(Extended::ZERO) => lower,
        None => upper,
    };
    let (mut value, mut applied) = (Vec::new(), Vec::new());
    out.array(2);
    if sum != Some(after) && !options.saturates {
        before.print(&mut value);
        out.double_text(&value);
        out.double_text(b"0");
        return Ok(());
    }
    after.print(&mut value);
    match sum == Some(after) {
        true => increment.print(&mut applied),
        false => {
            let by = after.checked_add(before.negated());
            by.unwrap_or(Extended::ZERO).print(&mut applied);
        }
    }
    out.double_text(&value);
    out.double_text(&applied);
    let deadline = new_deadline(&keyspace, &key, options, given_ms);
    keyspace.put_bytes(&key, found, &value);
    finish(cx, &key, "incrbyfloat", &value, deadline);
    Ok(())
}
