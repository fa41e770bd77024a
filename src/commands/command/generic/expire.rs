//! Deadlines of keys: setting, reading and removing them.

use crate::command::context::ShardCx;
use crate::command::declaration::{Command, CommandResult, Flags, Group, KeySpec};
use crate::command::error::{CommandError, shown};
use crate::command::options::TimeForm;
use crate::command::{Args, Out};
use basalt_core::structures::block::Content;
use basalt_core::structures::entry::DEADLINE_MAX;
use basalt_engine::effect::Event;

const HISTORY: &[(&str, &str)] = &[("7.0.0", "Added the conditions `NX`, `XX`, `GT` and `LT`.")];
const TTL_HISTORY: &[(&str, &str)] = &[("2.8.0", "Returns -2 when there is no such key.")];

/// `EXPIRE key seconds [NX | XX | GT | LT]`
pub(super) static EXPIRE: Command = Command::new("expire", Group::Generic, -3)
    .writes(KeySpec::FIRST_UPDATED)
    .flags(Flags::FAST)
    .doc(
        "1.0.0",
        "key seconds [NX | XX | GT | LT]",
        "Sets the time to live of a key in seconds.",
    )
    .history(HISTORY)
    .on_keys(|cx, args, out| expire(cx, args, out, TimeForm::Seconds));

/// `PEXPIRE key milliseconds [NX | XX | GT | LT]`
pub(super) static PEXPIRE: Command = Command::new("pexpire", Group::Generic, -3)
    .writes(KeySpec::FIRST_UPDATED)
    .flags(Flags::FAST)
    .doc(
        "2.6.0",
        "key milliseconds [NX | XX | GT | LT]",
        "Sets the time to live of a key in milliseconds.",
    )
    .history(HISTORY)
    .on_keys(|cx, args, out| expire(cx, args, out, TimeForm::Millis));

/// `EXPIREAT key unix-time-seconds [NX | XX | GT | LT]`
pub(super) static EXPIREAT: Command = Command::new("expireat", Group::Generic, -3)
    .writes(KeySpec::FIRST_UPDATED)
    .flags(Flags::FAST)
    .doc(
        "1.2.0",
        "key unix-time-seconds [NX | XX | GT | LT]",
        "Sets the expiration of a key to a Unix time in seconds.",
    )
    .history(HISTORY)
    .on_keys(|cx, args, out| expire(cx, args, out, TimeForm::UnixSeconds));

/// `PEXPIREAT key unix-time-milliseconds [NX | XX | GT | LT]`
pub(super) static PEXPIREAT: Command = Command::new("pexpireat", Group::Generic, -3)
    .writes(KeySpec::FIRST_UPDATED)
    .flags(Flags::FAST)
    .doc(
        "2.6.0",
        "key unix-time-milliseconds [NX | XX | GT | LT]",
        "Sets the expiration of a key to a Unix time in milliseconds.",
    )
    .history(HISTORY)
    .on_keys(|cx, args, out| expire(cx, args, out, TimeForm::UnixMillis));

/// The condition on the previous deadline for setting the new one (NX, XX, GT, LT).
#[derive(Clone, Copy, Default)]
struct ExpireCondition {
    none: bool,
    some: bool,
    later: bool,
    sooner: bool,
}

impl ExpireCondition {
    fn read(args: &Args<'_>) -> Result<ExpireCondition, CommandError> {
        let mut condition = ExpireCondition::default();
        for at in 3..args.len() {
            let flag = match () {
                () if args.is(at, "nx") => &mut condition.none,
                () if args.is(at, "xx") => &mut condition.some,
                () if args.is(at, "gt") => &mut condition.later,
                () if args.is(at, "lt") => &mut condition.sooner,
                () => {
                    let option = shown(args.get(at)).into_owned();
                    return Err(format!("ERR Unsupported option {option}").into());
                }
            };
            *flag = true;
        }
        if condition.none && (condition.some || condition.later || condition.sooner) {
            return Err(
                "ERR NX and XX, GT or LT options at the same time are not compatible".into(),
            );
        }
        if condition.later && condition.sooner {
            return Err("ERR GT and LT options at the same time are not compatible".into());
        }
        Ok(condition)
    }

    /// Whether the deadline may be set; a key without deadline counts as one that never expires.
    fn allows(self, before_ms: Option<u64>, at_ms: i64) -> bool {
        let before = before_ms.map(|before_ms| before_ms as i64);
        !(self.none && before.is_some()
            || self.some && before.is_none()
            || self.later && before.is_none_or(|before_ms| at_ms <= before_ms)
            || self.sooner && before.is_some_and(|before_ms| at_ms >= before_ms))
    }
}

fn expire(cx: &mut ShardCx<'_>, args: &Args<'_>, out: &mut Out, form: TimeForm) -> CommandResult {
    let condition = ExpireCondition::read(args)?;
    let time = args.integer(2)?;
    let now_ms = cx.now.unix_ms as i64;
    let invalid = CommandError::InvalidExpire(cx.command.name);
    let at_ms = match form {
        TimeForm::Seconds | TimeForm::UnixSeconds => time.checked_mul(1000),
        TimeForm::Millis | TimeForm::UnixMillis => Some(time),
    };
    let start_ms = if form.is_relative() { now_ms } else { 0 };
    let at_ms = at_ms.and_then(|at_ms| at_ms.checked_add(start_ms));
    // The engine stores no later deadline than this; without the limit, such a deadline would count as later again
    // each time.
    let at_ms = at_ms.ok_or(invalid)?.min(DEADLINE_MAX as i64);

    let key = args.key(1);
    let mut keyspace = cx.at(&key);
    let found = keyspace
        .find_write(&key)
        .filter(|place| condition.allows(keyspace.entry(*place).deadline(), at_ms));
    let Some(place) = found else {
        out.integer(0);
        return Ok(());
    };
    if keyspace.is_past(u64::try_from(at_ms).unwrap_or(0)) {
        keyspace.delete(place);
        keyspace.wrote(key.bytes, Event::DEL);
        cx.log_deletion(key.bytes, cx.config.lazyfree_lazy_expire);
    } else {
        keyspace.set_deadline(&key, place, Some(u64::try_from(at_ms).unwrap_or(0)));
        keyspace.wrote(key.bytes, Event::generic("expire"));
        if form != TimeForm::UnixMillis {
            log(cx, args, at_ms);
        }
    }
    out.integer(1);
    Ok(())
}

/// Logs the request with an absolute time, and with its condition.
fn log(cx: &mut ShardCx<'_>, args: &Args<'_>, at_ms: i64) {
    if args.len() == 3 {
        return cx.log_deadline(args.get(1), at_ms as u64);
    }
    if cx.is_logged() {
        let mut digits = itoa::Buffer::new();
        let mut request: Vec<Content<'_>> = args.contents(0).collect();
        request[0] = b"PEXPIREAT".into();
        request[2] = digits.format(at_ms).as_bytes().into();
        cx.log_instead(request);
    }
}

/// `PERSIST key`
pub(super) static PERSIST: Command = Command::new("persist", Group::Generic, 2)
    .writes(KeySpec::FIRST_UPDATED)
    .flags(Flags::FAST)
    .doc("2.2.0", "key", "Removes the expiration of a key.")
    .on_keys(persist);

fn persist(cx: &mut ShardCx<'_>, args: &Args<'_>, out: &mut Out) -> CommandResult {
    let key = args.key(1);
    let mut keyspace = cx.at(&key);
    let found = keyspace
        .find_write(&key)
        .filter(|place| keyspace.entry(*place).deadline().is_some());
    if let Some(place) = found {
        keyspace.set_deadline(&key, place, None);
        keyspace.wrote(key.bytes, Event::generic("persist"));
    }
    out.integer(i64::from(found.is_some()));
    Ok(())
}

/// `TTL key`
pub(super) static TTL: Command = Command::new("ttl", Group::Generic, 2)
    .reads(KeySpec::FIRST_READ)
    .flags(Flags::FAST)
    .doc(
        "1.0.0",
        "key",
        "Returns the remaining time to live of a key in seconds.",
    )
    .history(TTL_HISTORY)
    .tips(&["nondeterministic_output"])
    .on_keys(|cx, args, out| time_left(cx, args, out, TimeForm::Seconds));

/// `PTTL key`
pub(super) static PTTL: Command = Command::new("pttl", Group::Generic, 2)
    .reads(KeySpec::FIRST_READ)
    .flags(Flags::FAST)
    .doc(
        "2.6.0",
        "key",
        "Returns the remaining time to live of a key in milliseconds.",
    )
    .history(TTL_HISTORY)
    .tips(&["nondeterministic_output"])
    .on_keys(|cx, args, out| time_left(cx, args, out, TimeForm::Millis));

/// `EXPIRETIME key`
pub(super) static EXPIRETIME: Command = Command::new("expiretime", Group::Generic, 2)
    .reads(KeySpec::FIRST_READ)
    .flags(Flags::FAST)
    .doc(
        "7.0.0",
        "key",
        "Returns the Unix time in seconds at which a key expires.",
    )
    .on_keys(|cx, args, out| time_left(cx, args, out, TimeForm::UnixSeconds));

/// `PEXPIRETIME key`
pub(super) static PEXPIRETIME: Command = Command::new("pexpiretime", Group::Generic, 2)
    .reads(KeySpec::FIRST_READ)
    .flags(Flags::FAST)
    .doc(
        "7.0.0",
        "key",
        "Returns the Unix time in milliseconds at which a key expires.",
    )
    .on_keys(|cx, args, out| time_left(cx, args, out, TimeForm::UnixMillis));

/// Replies with the remaining time; -2: no such key; -1: no deadline; seconds are rounded to the nearest, as in
/// Redis.
fn time_left(
    cx: &mut ShardCx<'_>,
    args: &Args<'_>,
    out: &mut Out,
    form: TimeForm,
) -> CommandResult {
    let key = args.key(1);
    let now_ms = cx.now.unix_ms;
    let mut keyspace = cx.at(&key).untouched();
    let Some(place) = keyspace.find_read(&key) else {
        out.integer(-2);
        return Ok(());
    };
    let Some(at_ms) = keyspace.entry(place).deadline() else {
        out.integer(-1);
        return Ok(());
    };
    let ms = match form.is_relative() {
        true => at_ms.saturating_sub(now_ms),
        false => at_ms,
    };
    out.integer(match form {
        TimeForm::Seconds | TimeForm::UnixSeconds => (ms + 500) / 1000,
        TimeForm::Millis | TimeForm::UnixMillis => ms,
    } as i64);
    Ok(())
}
