//! Random members, with and without removing them.

use super::{at, event, limits, took_out};
use crate::command::Args;
use crate::command::Out;
use crate::command::context::ShardCx;
use crate::command::declaration::{Command, CommandResult, Flags, Group, KeyFlags, KeySpec};
use crate::command::element::reply_element;
use crate::command::error::CommandError;
use basalt_core::alloc::account;
use basalt_core::base::number;
use basalt_core::structures::block::Content;
use basalt_core::structures::listpack::Element;
use basalt_engine::effect::Event;
use basalt_engine::value::DataType;
use basalt_engine::value::object::detached;
use basalt_engine::value::set;

const SPOP_EVENT: Event = event("spop");

/// Maximum number of members that one record removes.
const LOGGED_TOGETHER_MAX: usize = 1024;

/// Maximum number of samples of one SRANDMEMBER with repetitions: a reply of gigabytes helps no client.
const DRAWS_MAX: u64 = 1 << 26;

/// `SPOP key [count]`
pub(super) static SPOP: Command = Command::new("spop", Group::Set, -2)
    .writes(&[KeySpec::one(
        1,
        KeyFlags::RW.or(KeyFlags::ACCESS).or(KeyFlags::DELETE),
    )])
    .flags(Flags::FAST)
    .doc(
        "1.0.0",
        "key [count]",
        "Removes and returns one or several random members of a set.",
    )
    .complexity("O(1), or O(N) for N members that are taken.")
    .history(&[("3.2.0", "New argument: `count`.")])
    .tips(&["nondeterministic_output"])
    .takes_long()
    .on_keys(spop);

fn spop(cx: &mut ShardCx<'_>, args: &Args<'_>, out: &mut Out) -> CommandResult {
    match args.len() {
        2 => spop_one(cx, args, out),
        3 => spop_many(cx, args, out),
        _ => Err(CommandError::Syntax),
    }
}

fn spop_one(cx: &mut ShardCx<'_>, args: &Args<'_>, out: &mut Out) -> CommandResult {
    let (key, due_ms) = (args.key(1), cx.elements_due_ms());
    let mut keyspace = cx.at(&key);
    let Some(place) = keyspace.find_typed(&key, DataType::Set)? else {
        out.null();
        return Ok(());
    };
    let mut random = keyspace.engine().random.fork();
    let set = at(&keyspace, place);
    let member = set::random_member(set, &mut random).map(|member| member.to_vec());
    if let Some(member) = member {
        keyspace.edit(place, |entry| set::remove(entry, &member, due_ms));
        took_out(&mut keyspace, &key, place, SPOP_EVENT);
        cx.log_instead([b"SREM".into(), key.bytes.into(), (&member).into()]);
        out.bulk(&member);
    }
    Ok(())
}

fn spop_many(cx: &mut ShardCx<'_>, args: &Args<'_>, out: &mut Out) -> CommandResult {
    let count = number::parse_i64(args.get(2))
        .and_then(|count| usize::try_from(count).ok())
        .ok_or("ERR value is out of range, must be positive")?;
    let (limits, scales) = (limits(cx), cx.scales());
    let key = args.key(1);
    let is_logged = cx.is_logged();
    let mut keyspace = cx.at(&key);
    let found = keyspace.find_typed(&key, DataType::Set)?;
    let Some(place) = found.filter(|_| count > 0) else {
        out.set(0);
        return Ok(());
    };
    let set = at(&keyspace, place);
    scales.weigh(count.min(set.len()))?;
    if count >= set.len() {
        out.set(set.len());
        set.for_each(|member| reply_element(member, out));
        keyspace.delete(place);
        keyspace.wrote(key.bytes, SPOP_EVENT);
        keyspace.wrote(key.bytes, Event::DEL);
        cx.log_deletion(key.bytes, cx.config.lazyfree_lazy_server_del);
        return Ok(());
    }
    out.set(count);
    let is_new = set::leaves_few(set, count);
    let mut random = keyspace.engine().random.fork();
    let mut taken = Vec::new();
    let take = |member: Element<'_>| {
        account::uncharged(|| {
            if is_logged {
                taken.push(member.to_vec());
            }
            reply_element(member, out);
        });
    };
    if is_new {
        let mut left =
            detached(|| set::left_of(keyspace.entry(place), count, &mut random, &limits, take));
        keyspace.inherit_marks(place, &mut left);
        keyspace.adopt(&key, Some(place), left);
    } else {
        keyspace.edit(place, |entry| {
            set::take_many(entry, count, &mut random, limits.now_ms, take);
        });
    }
    keyspace.wrote(key.bytes, SPOP_EVENT);
    for some in taken.chunks(LOGGED_TOGETHER_MAX) {
        let head = [b"SREM".into(), Content::from(key.bytes)].into_iter();
        let request: Vec<Content<'_>> = head.chain(some.iter().map(Content::from)).collect();
        cx.log_instead(request);
    }
    Ok(())
}

/// `SRANDMEMBER key [count]`
pub(super) static SRANDMEMBER: Command = Command::new("srandmember", Group::Set, -2)
    .reads(KeySpec::FIRST_READ)
    .doc(
        "1.0.0",
        "key [count]",
        "Returns one or several random members of a set.",
    )
    .complexity("O(1), or O(N) for a count of N, whatever its sign.")
    .history(&[("2.6.0", "New argument: `count`.")])
    .tips(&["nondeterministic_output"])
    .takes_long()
    .on_keys(srandmember);

fn srandmember(cx: &mut ShardCx<'_>, args: &Args<'_>, out: &mut Out) -> CommandResult {
    let count = match args.len() {
        2 => None,
        3 => Some(draw_count(args)?),
        _ => return Err(CommandError::Syntax),
    };
    let (key, scales) = (args.key(1), cx.scales());
    let mut keyspace = cx.at(&key);
    let found = keyspace.read_typed(&key, DataType::Set)?;
    let mut random = keyspace.engine().random.fork();
    let set = found.map(|place| at(&keyspace, place));
    match (set, count) {
        (None, None) => out.null(),
        (Some(set), None) => match set::random_member(set, &mut random) {
            Some(member) => reply_element(member, out),
            None => out.null(),
        },
        (None, Some(_)) | (_, Some(0)) => out.array(0),
        (Some(set), Some(count @ 1..)) => {
            let count = usize::try_from(count).unwrap_or(usize::MAX).min(set.len());
            scales.weigh(count)?;
            out.array(count);
            set::sample(set, count, &mut random, |member| reply_element(member, out));
        }
        (Some(set), Some(count)) => {
            if count.unsigned_abs() > DRAWS_MAX {
                return Err("ERR value is out of range".into());
            }
            let count = count.unsigned_abs() as usize;
            scales.weigh(count)?;
            out.array(count);
            set::random_many(set, count, &mut random, |member| reply_element(member, out));
        }
    }
    Ok(())
}

/// Parses the number of members: a negative one counts samples, in which members may repeat.
fn draw_count(args: &Args<'_>) -> Result<i64, CommandError> {
    match number::parse_i64(args.get(2)) {
        Some(i64::MIN) => Err(format!(
            "ERR value is out of range, value must between {} and {}",
            -i64::MAX,
            i64::MAX
        )
        .into()),
        Some(count) => Ok(count),
        None => Err(CommandError::NotInteger),
    }
}
