//! Leases: a key that is missing, or stale, is loaded by one client, while the others wait for it or continue without
//! it.
//!
//! ```text
//! mod    LGET LFILL LDROP LSTALE
//! ```
//!
//! The definition of a lease and its end are described in [`engine::leases`](basalt_engine::leases). Clients without
//! leases see ordinary strings. Leases are never executed by other servers: LFILL is logged as the equivalent SET.

#[cfg(test)]
mod tests;

use super::context::{ShardCx, Wait};
use super::declaration::{Command, CommandResult, Flags, Group, KeyFlags, KeySpec};
use super::error::CommandError;
use super::marks::{MarkOptions, window_ms};
use super::options::{Expiry, wait_until_ms};
use super::string::reply_text;
use super::{Args, Out};
use crate::acl::User;
use crate::acl::selector::{Used, Wanted};
use basalt_engine::Key;
use basalt_engine::effect::Event;
use basalt_engine::keyspace::{Deadline, Keyspace};
use basalt_engine::leases::LeaseStatus;
use basalt_engine::marks::{Marks, stale_ms};
use basalt_engine::value::DataType;

pub(super) static TABLE: &[&Command] = &[&LDROP, &LFILL, &LGET, &LSTALE];

/// The error for a client that finds no value and may not store one.
const NOT_LOADED: &str =
    "NOPERM The key is missing and this user may not load it: no permission to run LFILL on it";

/// Whether the ACL rules let a user run LFILL on a key. Users who may not get no lease of the key: they could not end
/// the lease, and would keep clients that may load the key from doing so.
pub fn may_load(user: &User, db: usize, key: &[u8]) -> bool {
    let wanted = Wanted {
        id: LFILL.rule_id(),
        is_free: false,
        first_argument: Some(key),
        keys: &[(1, key, LFILL.keys[0].flags.access())],
        channels: &[],
        are_patterns: false,
        databases: &[(0, Used::number(db))],
    };
    user.refusal(&wanted).is_none()
}

/// The state in which a key was found.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum LeaseState {
    Stale,
    Miss,
    Busy,
}

/// The end of the reply for a key that exists and is fresh: `hit`, and no token.
const HIT_END: &[u8] = b"+hit\r\n:0\r\n";

/// Writes the end of a reply: the key's state, and the token that the client now has, or 0.
#[inline]
fn end_reply(state: LeaseState, token: u64, out: &mut Out) {
    out.simple(match state {
        LeaseState::Stale => "stale",
        LeaseState::Miss => "miss",
        LeaseState::Busy => "busy",
    });
    out.integer(token as i64);
}

/// Writes the reply to a client that loads a missing key, or finds another client loading it.
fn reply_nothing(state: LeaseState, token: u64, out: &mut Out) {
    out.array(3);
    out.null();
    end_reply(state, token, out);
}

/// `LGET key LEASE milliseconds [WAIT milliseconds]`
static LGET: Command = Command::new("lget", Group::String, -4)
    .reads(KeySpec::FIRST_READ)
    .flags(Flags::FAST.or(Flags::BLOCKING))
    .with_usage()
    .doc(
        Command::OWN,
        "key LEASE lease-milliseconds [WAIT wait-milliseconds]",
        "Returns the string value of a key, or gives a lease token to the one client that should load it.",
    )
    .on_keys(lget);

fn lget(cx: &mut ShardCx<'_>, args: &Args<'_>, out: &mut Out) -> CommandResult {
    let options = GetOptions::parse(args, cx.now.unix_ms)?;
    let key = args.key(1);
    let (now, db, holder) = (cx.now, cx.client.db, cx.client.id);
    let mut keyspace = cx.at(&key);
    if let Some(place) = keyspace.find_read(&key) {
        let text = keyspace.text(place)?;
        out.array(3);
        reply_text(text, out);
        match keyspace.is_stale(place) {
            false => out.raw(HIT_END),
            true => {
                let token = lease_of_stale(&mut keyspace, &key, holder, options.lease_until_ms);
                end_reply(LeaseState::Stale, token, out);
            }
        }
        return Ok(());
    }
    let engine = keyspace.engine();
    let is_free = engine.waiters.lease_of(db, &key, now) == LeaseStatus::Free;
    if is_free {
        if engine.rest.follows() {
            // A replica gets its data from its primary, not from clients.
            return Err(CommandError::ReadOnly);
        }
        if !engine.waiters.may_load((db, holder), &key) {
            return Err(NOT_LOADED.into());
        }
        let until_ms = options.lease_until_ms;
        let token = engine
            .waiters
            .give_lease((db, holder), &key, until_ms, &mut engine.random);
        reply_nothing(LeaseState::Miss, token, out);
        return Ok(());
    }
    match options.wait_until_ms {
        Some(until_ms) if cx.may_block() => cx.wait(Wait {
            when_gone: true,
            when_loaded: true,
            on_timeout: |out| reply_nothing(LeaseState::Busy, 0, out),
            ..Wait::new(DataType::String, Some(until_ms))
        }),
        _ => reply_nothing(LeaseState::Busy, 0, out),
    }
    Ok(())
}

/// Returns a new token for loading a key that is past its fresh time; 0 if another client is loading it, or no client
/// of this server can.
#[cold]
fn lease_of_stale(keyspace: &mut Keyspace<'_>, key: &Key<'_>, holder: u64, until_ms: u64) -> u64 {
    let (now, db) = (keyspace.now(), keyspace.db_index());
    let engine = keyspace.engine();
    engine.published().leases.stale_served.add(1);
    if engine.rest.follows() || engine.waiters.lease_of(db, key, now) != LeaseStatus::Free {
        return 0;
    }
    if !engine.waiters.may_load((db, holder), key) {
        return 0;
    }
    engine
        .waiters
        .give_lease((db, holder), key, until_ms, &mut engine.random)
}

/// Options of LGET for a key that does not exist.
struct GetOptions {
    lease_until_ms: u64,
    /// When to stop waiting for another client that loads the key, in Unix milliseconds; None: no wait.
    wait_until_ms: Option<u64>,
}

impl GetOptions {
    #[inline]
    fn parse(args: &Args<'_>, now_ms: u64) -> Result<GetOptions, CommandError> {
        let mut options = GetOptions {
            lease_until_ms: 0,
            wait_until_ms: None,
        };
        let mut at = 2;
        while at < args.len() {
            let has_value = at + 1 < args.len();
            if has_value && args.is(at, "lease") {
                options.lease_until_ms = lease_until_ms(args.integer(at + 1)?, now_ms)?;
            } else if has_value && args.is(at, "wait") {
                options.wait_until_ms = wait_until_ms(args, at + 1, now_ms)?;
            } else {
                return Err(CommandError::Syntax);
            }
            at += 2;
        }
        match options.lease_until_ms {
            0 => Err(CommandError::Syntax),
            _ => Ok(options),
        }
    }
}

/// The longest lease, in milliseconds: a loader that takes longer is presumed dead, and stops keeping other clients
/// from loading the key.
const LEASE_MS_MAX: i64 = 3_600_000;

fn lease_until_ms(lease_ms: i64, now_ms: u64) -> Result<u64, CommandError> {
    match lease_ms {
        1..=LEASE_MS_MAX => Ok(now_ms.saturating_add(lease_ms as u64)),
        ..1 => Err("ERR invalid lease time in 'lget' command".into()),
        _ => Err("ERR invalid lease time in 'lget' command: at most 3600000 milliseconds".into()),
    }
}

/// `LFILL key token value [expiry] [STALE milliseconds] [TAGS numtags tag [tag ...]]`
static LFILL: Command = Command::new("lfill", Group::String, -4)
    .writes(&[KeySpec::one(1, KeyFlags::OW.or(KeyFlags::UPDATE))])
    .flags(Flags::DENYOOM.or(Flags::FAST))
    .keeps_block(3)
    .with_usage()
    .doc(
        Command::OWN,
        "key token value [EX seconds | PX milliseconds | EXAT unix-time-seconds | PXAT unix-time-milliseconds] \
         [STALE stale-milliseconds] [TAGS numtags tag [tag ...]]",
        "Stores the loaded string value of a key, unless its lease token is void.",
    )
    .on_keys(lfill);

fn lfill(cx: &mut ShardCx<'_>, args: &Args<'_>, out: &mut Out) -> CommandResult {
    let token = args.integer(2)?;
    let (mut expiry, mut options) = (Expiry::Unsaid, MarkOptions::default());
    let mut at = 4;
    while at < args.len() {
        at = match expiry.accept_time(args, at) {
            Some(next) => next,
            None => options.accept(args, at)?.ok_or(CommandError::Syntax)?,
        };
    }
    let deadline = expiry.on_replace(args, cx.now, "lfill")?;
    let (deadline, stale_ms) = options.stretch(args, deadline, "lfill")?;
    let (key, now, db) = (args.key(1), cx.now, cx.client.db);
    let mut keyspace = cx.at(&key);
    let found = keyspace.find_write(&key);
    let waiters = &mut keyspace.engine().waiters;
    if !waiters.fill_lease(db, &key, token as u64, now, options.tags(args)) {
        out.integer(0);
        return Ok(());
    }
    keyspace.overwrites(&key, found, DataType::String);
    keyspace.put_text(&key, found, args.content(3), deadline);
    let marks = Marks {
        stale_ms,
        tags: options.tags(args).collect(),
    };
    if !marks.is_empty() {
        keyspace.set_marks(&key, &marks);
    }
    keyspace.wrote(key.bytes, Event::string("set"));
    if matches!(deadline, Deadline::At(_)) {
        keyspace.wrote(key.bytes, Event::generic("expire"));
    }
    cx.log_string(key.bytes, args.content(3), deadline);
    cx.log_marks(key.bytes, &marks);
    out.integer(1);
    Ok(())
}

/// `LDROP key token`
static LDROP: Command = Command::new("ldrop", Group::String, 3)
    .reads(KeySpec::FIRST_READ)
    .flags(Flags::FAST)
    .doc(
        Command::OWN,
        "key token",
        "Releases the lease of a key; the first waiting client gets the next one.",
    )
    .on_keys(ldrop);

fn ldrop(cx: &mut ShardCx<'_>, args: &Args<'_>, out: &mut Out) -> CommandResult {
    let token = args.integer(2)?;
    let (key, now, db) = (args.key(1), cx.now, cx.client.db);
    let mut keyspace = cx.at(&key).untouched();
    let waiters = &mut keyspace.engine().waiters;
    let is_dropped = waiters.drop_lease(db, &key, token as u64, now);
    out.integer(i64::from(is_dropped));
    Ok(())
}

/// `LSTALE key milliseconds`
pub(super) static LSTALE: Command = Command::new("lstale", Group::Generic, 3)
    .writes(&[KeySpec::one(
        1,
        KeyFlags::RW.or(KeyFlags::ACCESS).or(KeyFlags::UPDATE),
    )])
    .flags(Flags::FAST)
    .doc(
        Command::OWN,
        "key milliseconds",
        "Sets how long before its expiration a key becomes stale; 0: never.",
    )
    .on_keys(lstale);

fn lstale(cx: &mut ShardCx<'_>, args: &Args<'_>, out: &mut Out) -> CommandResult {
    let window_ms = window_ms(args, 2, "lstale")?;
    let key = args.key(1);
    let mut keyspace = cx.at(&key);
    let found = keyspace.find_write(&key);
    if let Some(place) = found
        && stale_ms(keyspace.entry(place)) != window_ms
    {
        keyspace.set_stale_ms(place, window_ms);
        keyspace.wrote(key.bytes, Event::generic("lstale"));
        cx.log_stale(key.bytes, window_ms);
    }
    out.integer(i64::from(found.is_some()));
    Ok(())
}
