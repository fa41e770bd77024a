//! A rate limit with bursts, with the replies of redis-cell: the generic cell rate algorithm.
//!
//! At the maximum sustained rate, requests come one *interval* apart. A key holds the time at which the next request
//! would come if all earlier ones had come evenly, in nanoseconds since 1970 as in redis-cell, and expires at that
//! time. A request moves that time by an interval; it is limited if the time would then be further ahead than a whole
//! burst lasts.

use crate::command::context::ShardCx;
use crate::command::declaration::{Command, CommandResult, Flags, Group, KeyFlags, KeySpec};
use crate::command::error::CommandError;
use crate::command::{Args, Out};
use basalt_engine::effect::Event;
use basalt_engine::keyspace::Deadline;
use basalt_engine::value::DataType;

const NS_PER_S: i64 = 1_000_000_000;
const NS_PER_MS: i64 = 1_000_000;
const NS_PER_US: i64 = 1_000;

/// `CL.THROTTLE key max-burst count period [quantity]`
pub(super) static THROTTLE: Command = Command::new("cl.throttle", Group::String, -5)
    .writes(&[KeySpec::one(
        1,
        KeyFlags::RW.or(KeyFlags::ACCESS).or(KeyFlags::UPDATE),
    )])
    .flags(Flags::DENYOOM.or(Flags::FAST))
    .doc(
        Command::OWN,
        "key max-burst:integer count:integer period:integer [quantity:integer]",
        "Counts an action against a rate limit and returns whether it is allowed.",
    )
    .tips(&["nondeterministic_output"])
    .on_keys(throttle);

/// A rate, in nanoseconds.
#[derive(Clone, Copy, Debug)]
pub(super) struct Rate {
    /// Maximum burst: number of requests let through at once.
    limit: i64,
    interval: i64,
    /// Maximum nanoseconds by which the stored time may be ahead of the clock.
    tolerance: i64,
}

impl Rate {
    fn of(max_burst: i64, count: i64, period_s: i64) -> Option<Rate> {
        let limit = max_burst.checked_add(1)?;
        // Divides as redis-cell does; exact up to 104 days.
        let interval = (period_s.checked_mul(NS_PER_S)? as f64 / count as f64) as i64;
        Some(Rate {
            limit,
            interval,
            tolerance: interval.checked_mul(limit)?,
        })
    }
}

/// The decision on a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct ThrottleDecision {
    is_limited: bool,
    remaining: i64,
    /// Nanoseconds after which the request may be repeated; None if it is allowed, or can never be.
    retry_after: Option<i64>,
    reset_after: i64,
    /// The new value of the key, if it changes.
    moment: Option<i64>,
}

/// Decides on a request at time `now`; None on overflow.
fn judge(rate: Rate, moment: Option<i64>, now: i64, quantity: i64) -> Option<ThrottleDecision> {
    let moment = moment.unwrap_or(now);
    let step = rate.interval.checked_mul(quantity)?;
    let next = moment.max(now).checked_add(step)?;
    let early = next.checked_sub(rate.tolerance)?.checked_sub(now)?;
    let is_limited = early > 0;
    let reset_after = match is_limited {
        true => moment.checked_sub(now)?,
        false => next.checked_sub(now)?,
    };
    let left = rate.tolerance.checked_sub(reset_after)?;
    let in_us = |ns: i64| (ns / NS_PER_US) as f64;
    let remaining = match rate.interval / NS_PER_US {
        _ if left <= -rate.interval => 0,
        0 => left / rate.interval,
        _ => (in_us(left) / in_us(rate.interval)) as i64,
    };
    Some(ThrottleDecision {
        is_limited,
        remaining,
        retry_after: (is_limited && step <= rate.tolerance).then_some(early),
        reset_after,
        moment: (!is_limited && quantity > 0).then_some(next),
    })
}

/// Converts to whole seconds, rounded up if at least a millisecond remains.
fn in_seconds(ns: i64) -> i64 {
    ns / NS_PER_S + i64::from(ns % NS_PER_S >= NS_PER_MS)
}

fn throttle(cx: &mut ShardCx<'_>, args: &Args<'_>, out: &mut Out) -> CommandResult {
    if args.len() > 6 {
        return Err(CommandError::Arity(cx.command.full_name));
    }
    let number = |at: usize, least: i64, error: &'static str| {
        let number = args.integer(at)?;
        match number >= least {
            true => Ok(number),
            false => Err(CommandError::from(error)),
        }
    };
    let max_burst = number(2, 0, "ERR max_burst must not be negative")?;
    let count = number(3, 1, "ERR count must be positive")?;
    let period_s = number(4, 1, "ERR period must be positive")?;
    let quantity = match args.len() {
        6 => number(5, 0, "ERR quantity must not be negative")?,
        _ => 1,
    };
    const TOO_LARGE: &str = "ERR the rate is out of range";
    let rate = Rate::of(max_burst, count, period_s).ok_or(TOO_LARGE)?;
    if rate.interval == 0 {
        return Err("ERR the rate is higher than one per nanosecond".into());
    }
    let now = i64::try_from(cx.now.unix_ms).unwrap_or(i64::MAX);
    let now = now.saturating_mul(NS_PER_MS);
    let key = args.key(1);
    let mut keyspace = cx.at(&key);
    let found = keyspace.find_typed(&key, DataType::String)?;
    let moment = match found {
        Some(place) => {
            let moment = keyspace.text(place)?.integer();
            Some(moment.ok_or(CommandError::NotInteger)?)
        }
        None => None,
    };
    let verdict = judge(rate, moment, now, quantity).ok_or(TOO_LARGE)?;
    let figures = &keyspace.engine().published().rates;
    match verdict.is_limited {
        true => figures.limited.add(1),
        false => figures.let_through.add(1),
    }
    if let Some(moment) = verdict.moment {
        let at_ms = moment.div_euclid(NS_PER_MS) + i64::from(moment.rem_euclid(NS_PER_MS) > 0);
        let deadline = Deadline::At(at_ms.unsigned_abs());
        let mut digits = itoa::Buffer::new();
        let value = digits.format(moment).as_bytes();
        keyspace.put_text(&key, found, value, deadline);
        keyspace.wrote(key.bytes, Event::string("set"));
        keyspace.wrote(key.bytes, Event::generic("expire"));
        cx.log_edited_string(&key, value.into(), deadline);
    }
    out.array(5);
    out.integer(i64::from(verdict.is_limited));
    out.integer(rate.limit);
    out.integer(verdict.remaining);
    out.integer(verdict.retry_after.map_or(-1, in_seconds));
    out.integer(in_seconds(verdict.reset_after));
    Ok(())
}
