//! Fields as numbers: HINCRBY and HINCRBYFLOAT.

use super::{ACCESSED_AND_UPDATED, at, edit, rules};
use crate::command::Args;
use crate::command::Out;
use crate::command::context::ShardCx;
use crate::command::declaration::{Command, CommandResult, Flags, Group};
use crate::command::element_deadline::log_given;
use crate::command::error::CommandError;
use basalt_core::base::extended::Extended;
use basalt_core::structures::item::Item;
use basalt_engine::effect::Event;
use basalt_engine::value::DataType;
use basalt_engine::value::hash::{FieldDeadline, HashRules, new_hash};

const FLAGS: Flags = Flags::DENYOOM.or(Flags::FAST);

/// `HINCRBY key field increment`
pub(super) static HINCRBY: Command = Command::new("hincrby", Group::Hash, 4)
    .writes(ACCESSED_AND_UPDATED)
    .flags(FLAGS)
    .doc(
        "2.0.0",
        "key field increment",
        "Increments the integer value of a hash field; a missing field counts as 0.",
    )
    .looks_up(2)
    .on_keys(hincrby);

fn hincrby(cx: &mut ShardCx<'_>, args: &Args<'_>, out: &mut Out) -> CommandResult {
    let increment = args.integer(3)?;
    let mut buffer = itoa::Buffer::new();
    let mut after = 0;
    change(cx, args, Event::new(b'h', "hincrby"), |before| {
        let before = match before {
            Some(value) => value.integer().ok_or("ERR hash value is not an integer")?,
            None => 0,
        };
        after = before
            .checked_add(increment)
            .ok_or(CommandError::Overflow)?;
        Ok(buffer.format(after).as_bytes())
    })?;
    out.integer(after);
    Ok(())
}

/// `HINCRBYFLOAT key field increment`
pub(super) static HINCRBYFLOAT: Command = Command::new("hincrbyfloat", Group::Hash, 4)
    .writes(ACCESSED_AND_UPDATED)
    .flags(FLAGS)
    .doc(
        "2.6.0",
        "key field increment:double",
        "Increments the floating-point value of a hash field; a missing field counts as 0.",
    )
    .on_keys(hincrbyfloat);

fn hincrbyfloat(cx: &mut ShardCx<'_>, args: &Args<'_>, out: &mut Out) -> CommandResult {
    let increment = Extended::parse(args.get(3)).ok_or(CommandError::NotFloat)?;
    if !increment.is_finite() {
        return Err("ERR value is NaN or Infinity".into());
    }
    let mut text = Vec::new();
    let deadline = change(cx, args, Event::new(b'h', "hincrbyfloat"), |before| {
        let before = match before {
            Some(element) => element
                .with_bytes(Extended::parse)
                .ok_or("ERR hash value is not a float")?,
            None => Extended::ZERO,
        };
        let after = before
            .checked_add(increment)
            .ok_or("ERR increment would produce NaN or Infinity")?;
        after.print(&mut text);
        Ok(text.as_slice())
    })?;
    let (key, name) = (args.get(1), args.get(2));
    cx.log_instead([b"HSET".into(), key.into(), name.into(), (&text).into()]);
    if let Some(at_ms) = deadline.filter(|_| cx.is_logged()) {
        // Logs the deadline again, because the HSET logged before removes it.
        log_given::<HashRules>(cx, key, at_ms, None, &[name]);
    }
    out.bulk(&text);
    Ok(())
}

/// Replaces the value of the field that a request names with the result of `compute`; the field's deadline, if any,
/// is kept.
fn change<'t>(
    cx: &mut ShardCx<'_>,
    args: &Args<'_>,
    event: Event,
    compute: impl FnOnce(Option<Item<'_>>) -> Result<&'t [u8], CommandError>,
) -> CommandResult<Option<u64>> {
    let rules = rules(cx);
    let key = args.key(1);
    let name = args.get(2);
    let mut keyspace = cx.at(&key);
    let found = keyspace.find_typed(&key, DataType::Hash)?;
    let before = found
        .and_then(|place| at(&keyspace, place))
        .and_then(|hash| hash.get(name));
    let deadline = before.and_then(|field| field.deadline);
    let value = compute(before.map(|field| field.value))?;
    match found {
        Some(place) => {
            edit(&mut keyspace, place, &rules, |hash| {
                hash.set(name, value, FieldDeadline::Keep)
            });
        }
        None => {
            let pair = std::iter::once((name, value));
            keyspace.create(&key, || new_hash(key.bytes, pair, &rules));
        }
    }
    keyspace.wrote_fields(key.bytes, event, [name]);
    Ok(deadline)
}
