//! LOCK: takes a lock, or waits for it.

use super::{EXPIRE_EVENT, HELD, deadline_ms, holds, log_fence, owner};
use crate::command::context::{ShardCx, Wait};
use crate::command::declaration::{Command, CommandResult, Flags, Group};
use crate::command::error::CommandError;
use crate::command::hash::{edit, rules};
use crate::command::options::wait_until_ms;
use crate::command::{Args, Out};
use basalt_core::structures::table::EntrySlot;
use basalt_engine::Key;
use basalt_engine::effect::Event;
use basalt_engine::value::DataType;
use basalt_engine::value::hash::{FieldDeadline, new_hash};

const HSET_EVENT: Event = Event::new(b'h', "hset");
const HINCRBY_EVENT: Event = Event::new(b'h', "hincrby");

const TOO_MANY: &str = "OOM held locks already use a sixteenth of 'maxmemory'";

/// `LOCK key owner ttl-ms [WAIT ms]`
pub(in super::super) static LOCK: Command = Command::new("lock", Group::Lock, -4)
    .writes(HELD)
    .flags(Flags::DENYOOM.or(Flags::FAST).or(Flags::BLOCKING))
    .with_usage()
    .doc(
        Command::OWN,
        "key owner ttl-ms:integer [WAIT wait-ms:integer]",
        "Acquires a lock for an owner, or waits for it; returns its fencing token and count.",
    )
    .on_keys(lock);

/// The parameters of a request.
struct LockRequest<'a> {
    owner: &'a [u8],
    /// Deadline of the lock, in Unix milliseconds.
    at_ms: u64,
    /// End of the wait, in Unix milliseconds; None: no wait.
    until_ms: Option<u64>,
}

impl<'a> LockRequest<'a> {
    fn parse(cx: &ShardCx<'_>, args: &Args<'a>) -> Result<LockRequest<'a>, CommandError> {
        let waits = match args.len() {
            4 => false,
            6 if args.is(4, "wait") => true,
            _ => return Err(CommandError::Syntax),
        };
        let (owner, at_ms) = (owner(args)?, deadline_ms(cx, args)?);
        let until_ms = match waits {
            true => wait_until_ms(args, 5, cx.now.unix_ms)?,
            false => None,
        };
        Ok(LockRequest {
            owner,
            at_ms,
            until_ms,
        })
    }
}

fn lock(cx: &mut ShardCx<'_>, args: &Args<'_>, out: &mut Out) -> CommandResult {
    let request = LockRequest::parse(cx, args)?;
    let (db, has_waited) = (cx.client.db, cx.has_waited());
    let key = args.key(1);
    let mut keyspace = cx.at(&key);
    match keyspace.find_typed(&key, DataType::Hash)? {
        None => {
            let waiters = &mut keyspace.engine().waiters;
            if has_waited || !waiters.is_awaited_in_turn(db, key.bytes) {
                return take(cx, &key, &request, out);
            }
            // The first waiting client gets the lock as soon as this command is done.
            waiters.wake(db, key.bytes);
        }
        Some(place) => {
            if let Some(holds) = holds(&keyspace, place, request.owner)? {
                return take_again(cx, &key, (place, holds), &request, out);
            }
            if let (Some(at_ms), Some(_)) = (keyspace.entry(place).deadline(), request.until_ms) {
                let over_ms = at_ms.saturating_add(1);
                keyspace.engine().waiters.look_again(db, key.bytes, over_ms);
            }
        }
    }
    match request.until_ms {
        Some(until_ms) if cx.may_block() => cx.wait(Wait {
            when_gone: true,
            in_turn: true,
            looks_again: true,
            ..Wait::new(DataType::Hash, Some(until_ms))
        }),
        _ => out.null_array(),
    }
    Ok(())
}

/// Takes a lock that is free.
fn take(
    cx: &mut ShardCx<'_>,
    key: &Key<'_>,
    request: &LockRequest<'_>,
    out: &mut Out,
) -> CommandResult {
    let (rules, has_waited) = (rules(cx), cx.has_waited());
    let mut keyspace = cx.at(key);
    if !keyspace.may_hold(key.bytes, request.owner, rules.makes_small(request.owner)) {
        return Err(TOO_MANY.into());
    }
    let pair = std::iter::once((request.owner, &b"1"[..]));
    let place = keyspace.create(key, || new_hash(key.bytes, pair, &rules));
    keyspace.set_deadline(key, place, Some(request.at_ms));
    let fence = keyspace.draw_fence(key.bytes, request.owner);
    keyspace.wrote(key.bytes, HSET_EVENT);
    keyspace.wrote(key.bytes, EXPIRE_EVENT);
    let figures = &keyspace.engine().published().locks;
    figures.taken.add(1);
    figures.handed_over.add(u64::from(has_waited));
    cx.log_instead([
        b"HSET".into(),
        key.bytes.into(),
        request.owner.into(),
        b"1".into(),
    ]);
    cx.log_deadline(key.bytes, request.at_ms);
    log_fence(cx, key.bytes, fence);
    reply(fence.number, 1, out);
    Ok(())
}

/// Takes a lock again for the owner that already has it: increments the hold count.
fn take_again(
    cx: &mut ShardCx<'_>,
    key: &Key<'_>,
    (place, before): (EntrySlot, i64),
    request: &LockRequest<'_>,
    out: &mut Out,
) -> CommandResult {
    let rules = rules(cx);
    let holds = before.checked_add(1).ok_or(CommandError::Overflow)?;
    let mut keyspace = cx.at(key);
    let known = keyspace.fence(key.bytes, request.owner);
    let is_small = rules.makes_small(request.owner);
    if known.is_none() && !keyspace.may_hold(key.bytes, request.owner, is_small) {
        return Err(TOO_MANY.into());
    }
    edit(&mut keyspace, place, &rules, |hash| {
        let mut digits = itoa::Buffer::new();
        let holds = digits.format(holds).as_bytes();
        hash.set(request.owner, holds, FieldDeadline::Keep)
    });
    keyspace.wrote(key.bytes, HINCRBY_EVENT);
    // The later of both deadlines wins, and no deadline is the latest.
    let deadline = keyspace.entry(place).deadline();
    let is_longer = deadline.is_some_and(|deadline_ms| deadline_ms < request.at_ms);
    if is_longer {
        keyspace.set_deadline(key, place, Some(request.at_ms));
        keyspace.hold(key.bytes);
        keyspace.wrote(key.bytes, EXPIRE_EVENT);
    }
    // A lock that was created by plain commands has no fencing token yet.
    let drawn = match known {
        Some(_) => None,
        None => Some(keyspace.draw_fence(key.bytes, request.owner)),
    };
    keyspace.engine().published().locks.retaken.add(1);
    cx.log_instead([
        b"HINCRBY".into(),
        key.bytes.into(),
        request.owner.into(),
        b"1".into(),
    ]);
    if is_longer {
        cx.log_deadline(key.bytes, request.at_ms);
    }
    if let Some(fence) = drawn {
        log_fence(cx, key.bytes, fence);
    }
    let drawn = drawn.map(|fence| fence.number);
    reply(known.or(drawn).unwrap_or_default(), holds, out);
    Ok(())
}

fn reply(fence: u64, holds: i64, out: &mut Out) {
    out.array(2);
    out.integer(fence as i64);
    out.integer(holds);
}
