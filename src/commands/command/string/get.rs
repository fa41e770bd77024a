//! Commands that read strings, and GETDEL.

use super::reply_text;
use crate::command::Args;
use crate::command::Out;
use crate::command::context::ShardCx;
use crate::command::declaration::{
    Command, CommandResult, CopyReply, Flags, Group, KeyFlags, KeySpec,
};
use crate::command::error::CommandError;
use crate::command::options::{Expiry, PERSIST};
use basalt_engine::effect::Event;
use basalt_engine::value::Text;

/// `GET key`
pub(super) static GET: Command = Command::new("get", Group::String, 2)
    .reads(KeySpec::FIRST_READ)
    .flags(Flags::FAST)
    .doc("1.0.0", "key", "Returns the string value of a key.")
    .answered_from_copy(CopyReply::Value)
    .on_keys(get);

fn get(cx: &mut ShardCx<'_>, args: &Args<'_>, out: &mut Out) -> CommandResult {
    let key = args.key(1);
    match cx.at(&key).read_text(&key)? {
        Some(text) => reply_text(text, out),
        None => out.null(),
    }
    Ok(())
}

/// `GETDEL key`
pub(super) static GETDEL: Command = Command::new("getdel", Group::String, 2)
    .writes(&[KeySpec::one(
        1,
        KeyFlags::RW.or(KeyFlags::ACCESS).or(KeyFlags::DELETE),
    )])
    .flags(Flags::FAST)
    .doc(
        "6.2.0",
        "key",
        "Returns the string value of a key and deletes the key.",
    )
    .on_keys(getdel);

fn getdel(cx: &mut ShardCx<'_>, args: &Args<'_>, out: &mut Out) -> CommandResult {
    let key = args.key(1);
    let mut keyspace = cx.at(&key);
    let Some(place) = keyspace.find_read(&key) else {
        keyspace.missed_deletion(key.bytes);
        out.null();
        return Ok(());
    };
    reply_text(keyspace.text(place)?, out);
    keyspace.delete(place);
    keyspace.wrote(key.bytes, Event::DEL);
    cx.log_deletion(key.bytes, cx.config.lazyfree_lazy_user_del);
    Ok(())
}

/// `GETEX key [EX seconds | PX milliseconds | EXAT unix-time-seconds | PXAT unix-time-milliseconds | PERSIST]`
pub(super) static GETEX: Command = Command::new("getex", Group::String, -2)
    .writes(&[KeySpec::one(1, KeyFlags::RW.or(KeyFlags::ACCESS).or(KeyFlags::UPDATE))
        .note("RW and UPDATE because it changes the TTL")])
    .flags(Flags::FAST)
    .doc(
        "6.2.0",
        "key [EX seconds | PX milliseconds | EXAT unix-time-seconds | PXAT unix-time-milliseconds | PERSIST]",
        "Returns the string value of a key and sets or removes its expiration.",
    )
    .answered_from_copy(CopyReply::Value)
    .on_keys(getex);

fn getex(cx: &mut ShardCx<'_>, args: &Args<'_>, out: &mut Out) -> CommandResult {
    let mut expiry = Expiry::Unsaid;
    let mut at = 2;
    while at < args.len() {
        at = expiry
            .accept(args, at, PERSIST)
            .ok_or(CommandError::Syntax)?;
    }
    let (key, now) = (args.key(1), cx.now);
    let mut keyspace = cx.at(&key);
    let Some(place) = keyspace.find_read(&key) else {
        out.null();
        return Ok(());
    };
    let text = keyspace.text(place)?;
    let deadline_ms = expiry.deadline_ms(args, now, "getex")?;
    reply_text(text, out);
    match (expiry, deadline_ms) {
        (Expiry::Given(form, _), Some(at_ms)) if !form.is_relative() && keyspace.is_past(at_ms) => {
            keyspace.delete(place);
            keyspace.wrote(key.bytes, Event::DEL);
            cx.log_deletion(key.bytes, cx.config.lazyfree_lazy_expire);
        }
        (_, Some(at_ms)) => {
            keyspace.set_deadline(&key, place, deadline_ms);
            keyspace.wrote(key.bytes, Event::generic("expire"));
            cx.log_deadline(key.bytes, at_ms);
        }
        (Expiry::Persist, None) if keyspace.entry(place).deadline().is_some() => {
            keyspace.set_deadline(&key, place, None);
            keyspace.wrote(key.bytes, Event::generic("persist"));
            cx.log_instead([b"PERSIST".into(), key.bytes.into()]);
        }
        _ => {}
    }
    Ok(())
}

const RANGE_COMPLEXITY: &str = "O(N), N being the length of the answer.";

/// `GETRANGE key start end`
pub(super) static GETRANGE: Command = Command::new("getrange", Group::String, 4)
    .reads(KeySpec::FIRST_READ)
    .doc(
        "2.4.0",
        "key start end",
        "Returns a substring of the string value of a key.",
    )
    .complexity(RANGE_COMPLEXITY)
    .on_keys(getrange);

/// `SUBSTR key start end`
pub(super) static SUBSTR: Command = Command::new("substr", Group::String, 4)
    .reads(KeySpec::FIRST_READ)
    .deprecated("2.0.0", "`GETRANGE`")
    .doc(
        "1.0.0",
        "key start end",
        "Returns a substring of the string value of a key.",
    )
    .complexity(RANGE_COMPLEXITY)
    .on_keys(getrange);

fn getrange(cx: &mut ShardCx<'_>, args: &Args<'_>, out: &mut Out) -> CommandResult {
    let (start, end) = (args.integer(2)?, args.integer(3)?);
    let key = args.key(1);
    let mut keyspace = cx.at(&key);
    let Some(text) = keyspace.read_text(&key)? else {
        out.bulk(b"");
        return Ok(());
    };
    match (byte_range(text.len(), start, end), text) {
        (None, _) => out.bulk(b""),
        (Some((from, to)), Text::Block(block)) => {
            out.bulk_shared(block.clone().into_bytes().slice(from..to));
        }
        (Some((from, to)), text) => text.with_bytes(|bytes| out.bulk(&bytes[from..to])),
    }
    Ok(())
}

/// Converts inclusive positions, negative ones from the end, to a range of a string; `None` if it is empty.
fn byte_range(len: usize, start: i64, end: i64) -> Option<(usize, usize)> {
    if start < 0 && end < 0 && start > end {
        return None;
    }
    let absolute = |position: i64| match position {
        0.. => position,
        _ => (len as i64).saturating_add(position).max(0),
    };
    let (from, to) = (absolute(start), absolute(end).min(len as i64 - 1));
    (from <= to).then(|| (from as usize, to as usize + 1))
}

/// `STRLEN key`
pub(super) static STRLEN: Command = Command::new("strlen", Group::String, 2)
    .reads(&[KeySpec::one(1, KeyFlags::RO)])
    .flags(Flags::FAST)
    .doc(
        "2.2.0",
        "key",
        "Returns the length of the string value of a key.",
    )
    .answered_from_copy(CopyReply::Length)
    .on_keys(strlen);

fn strlen(cx: &mut ShardCx<'_>, args: &Args<'_>, out: &mut Out) -> CommandResult {
    let key = args.key(1);
    let len = cx.at(&key).read_text(&key)?.map_or(0, |text| text.len());
    out.integer(len as i64);
    Ok(())
}
