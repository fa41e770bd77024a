//! Moving an element from list to list: LMOVE RPOPLPUSH, and BLMOVE BRPOPLPUSH, which wait for one.
//!
//! The shards of both lists are in hand, so no client sees the element in neither or in both. The lists may be one:
//! then it turns.

use super::{POPPED, PUSHED, end_named, limits, popped_event, pushed_event, took};
use crate::alloc::account;
use crate::command::context::{ShardCx, Wait};
use crate::command::declaration::{Command, CommandResult, Flags, Group, KeySpec};
use crate::command::element::reply_item;
use crate::command::error::CommandError;
use crate::command::options::blocking_timeout;
use crate::command::{Args, Out};
use crate::engine::Key;
use crate::engine::value::{DataType, list};
use crate::structures::block::{Block, Content};
use crate::structures::item::Item;
use crate::structures::quicklist::End;

const SOURCE_AND_TARGET: &[KeySpec] = &[KeySpec::one(1, POPPED), KeySpec::one(2, PUSHED)];

/// `LMOVE source destination <LEFT | RIGHT> <LEFT | RIGHT>`
pub(super) static LMOVE: Command = Command::new("lmove", Group::List, 5)
    .writes(SOURCE_AND_TARGET)
    .flags(Flags::DENYOOM)
    .doc(
        "6.2.0",
        "source destination <LEFT | RIGHT> <LEFT | RIGHT>",
        "Takes an element from an end of a list and adds it at an end of another, or of the same.",
    )
    .on_keys(lmove);

fn lmove(cx: &mut ShardCx<'_>, args: &Args<'_>, out: &mut Out) -> CommandResult {
    let (from, to) = (end_named(args, 3)?, end_named(args, 4)?);
    move_or_null(cx, args, from, to, out)
}

/// `RPOPLPUSH source destination`
pub(super) static RPOPLPUSH: Command = Command::new("rpoplpush", Group::List, 3)
    .writes(SOURCE_AND_TARGET)
    .flags(Flags::DENYOOM)
    .doc(
        "1.2.0",
        "source destination",
        "Takes the last element of a list and adds it in front of another, or of the same.",
    )
    .deprecated("6.2.0", "`LMOVE` with the `RIGHT` and `LEFT` arguments")
    .on_keys(|cx, args, out| move_or_null(cx, args, End::Back, End::Front, out));

fn move_or_null(
    cx: &mut ShardCx<'_>,
    args: &Args<'_>,
    from: End,
    to: End,
    out: &mut Out,
) -> CommandResult {
    if !move_element(cx, args, from, to, out)? {
        out.null();
    }
    Ok(())
}

/// Moves an element and answers it; false if there is none.
fn move_element(
    cx: &mut ShardCx<'_>,
    args: &Args<'_>,
    from: End,
    to: End,
    out: &mut Out,
) -> Result<bool, CommandError> {
    let (source, target) = (args.key(1), args.key(2));
    if cx
        .at(&source)
        .find_typed(&source, DataType::List)?
        .is_none()
    {
        return Ok(false);
    }
    cx.at(&target).find_typed(&target, DataType::List)?;
    let limits = limits(cx);
    // Looked up again: an expired target that was just deleted may have moved the source.
    let mut keyspace = cx.at(&source);
    let place = keyspace
        .find_write(&source)
        .expect("found above, at the same moment");
    let popped = keyspace.edit(place, |entry| {
        list::pop(entry, from, &limits, |element| {
            account::apart(|| Moved::of(element))
        })
    });
    let (element, left) = popped.expect("a list is never empty");
    let is_same = source.bytes == target.bytes;
    push(cx, &target, to, element.as_item());
    let mut keyspace = cx.at(&source);
    if is_same {
        keyspace.wrote(source.bytes, popped_event(from));
    } else {
        let place = keyspace
            .find_write(&source)
            .expect("emptied, but not deleted yet");
        took(&mut keyspace, &source, place, popped_event(from), left);
    }
    reply_item(element.as_item(), out);
    Ok(true)
}

/// An element between two lists.
enum Moved {
    Bytes(Vec<u8>),
    Block(Block),
}

impl Moved {
    fn of(item: Item<'_>) -> Moved {
        match item {
            Item::Block(block) => Moved::Block(block.clone()),
            item => Moved::Bytes(item.to_vec()),
        }
    }

    fn as_item(&self) -> Item<'_> {
        match self {
            Moved::Bytes(bytes) => Item::bytes(bytes),
            Moved::Block(block) => Item::Block(block),
        }
    }
}

fn push(cx: &mut ShardCx<'_>, key: &Key<'_>, end: End, element: Item<'_>) {
    let limits = limits(cx);
    let mut keyspace = cx.at(key);
    let place = keyspace
        .find_write(key)
        .unwrap_or_else(|| keyspace.create(key, || list::empty_entry(key.bytes)));
    keyspace.edit(place, |entry| {
        list::push_element(entry, end, element, &limits)
    });
    // The move counts once, where the element was taken.
    keyspace.followed(key.bytes, pushed_event(end));
}

/// `BLMOVE source destination <LEFT | RIGHT> <LEFT | RIGHT> timeout`
pub(super) static BLMOVE: Command = Command::new("blmove", Group::List, 6)
    .writes(SOURCE_AND_TARGET)
    .flags(Flags::DENYOOM.or(Flags::BLOCKING))
    .doc(
        "6.2.0",
        "source destination <LEFT | RIGHT> <LEFT | RIGHT> timeout",
        "As LMOVE, and waits for an element if there is none.",
    )
    .on_keys(blmove);

fn blmove(cx: &mut ShardCx<'_>, args: &Args<'_>, out: &mut Out) -> CommandResult {
    let (from, to) = (end_named(args, 3)?, end_named(args, 4)?);
    move_or_wait(cx, args, from, to, 5, out)
}

/// `BRPOPLPUSH source destination timeout`
pub(super) static BRPOPLPUSH: Command = Command::new("brpoplpush", Group::List, 4)
    .writes(SOURCE_AND_TARGET)
    .flags(Flags::DENYOOM.or(Flags::BLOCKING))
    .doc(
        "2.2.0",
        "source destination timeout",
        "As RPOPLPUSH, and waits for an element if there is none.",
    )
    .history(&[("6.0.0", "`timeout` may be a fraction of a second.")])
    .deprecated("6.2.0", "`BLMOVE` with the `RIGHT` and `LEFT` arguments")
    .on_keys(|cx, args, out| move_or_wait(cx, args, End::Back, End::Front, 3, out));

fn move_or_wait(
    cx: &mut ShardCx<'_>,
    args: &Args<'_>,
    from: End,
    to: End,
    timeout_at: usize,
    out: &mut Out,
) -> CommandResult {
    let until_ms = blocking_timeout(args, timeout_at, cx.now)?;
    if move_element(cx, args, from, to, out)? {
        if cx.is_logged() {
            // What it is when it does not wait.
            let mut request: Vec<Content<'_>> = args.contents(0).take(timeout_at).collect();
            request[0] = match timeout_at {
                3 => b"RPOPLPUSH".into(),
                _ => b"LMOVE".into(),
            };
            cx.log_instead(request);
        }
        return Ok(());
    }
    if cx.may_block() {
        cx.wait(Wait {
            needs_all: true,
            ..Wait::new(DataType::List, until_ms)
        });
    } else {
        // The end of the time answers the null of arrays; here Redis answers that of strings.
        out.null();
    }
    Ok(())
}
