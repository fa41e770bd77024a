//! Commands on all fields of a hash, at once or in parts.

use super::read;
use crate::command::Args;
use crate::command::Out;
use crate::command::context::ShardCx;
use crate::command::declaration::{Command, CommandResult, Group, KeySpec};
use crate::command::element::{reply_element, reply_item};
use crate::command::scan;

const COMPLEXITY: &str = "O(N), N being the count of fields.";
const TIPS: &[&str] = &["nondeterministic_output_order"];

/// `HGETALL key`
pub(super) static HGETALL: Command = Command::new("hgetall", Group::Hash, 2)
    .reads(KeySpec::FIRST_READ)
    .doc(
        "2.0.0",
        "key",
        "Returns all fields of a hash with their values.",
    )
    .complexity(COMPLEXITY)
    .tips(TIPS)
    .takes_long()
    .on_keys(hgetall);

fn hgetall(cx: &mut ShardCx<'_>, args: &Args<'_>, out: &mut Out) -> CommandResult {
    let (key, scales) = (args.key(1), cx.scales());
    let mut keyspace = cx.at(&key);
    let Some(hash) = read(&mut keyspace, &key)? else {
        out.map(0);
        return Ok(());
    };
    scales.weigh(hash.len())?;
    out.map(hash.len());
    hash.for_each(|field| {
        reply_element(field.name, out);
        reply_item(field.value, out);
    });
    Ok(())
}

/// `HKEYS key`
pub(super) static HKEYS: Command = Command::new("hkeys", Group::Hash, 2)
    .reads(KeySpec::FIRST_READ)
    .doc("2.0.0", "key", "Returns the names of all fields of a hash.")
    .complexity(COMPLEXITY)
    .tips(TIPS)
    .takes_long()
    .on_keys(|cx, args, out| one_of_each(cx, args, out, true));

/// `HVALS key`
pub(super) static HVALS: Command = Command::new("hvals", Group::Hash, 2)
    .reads(KeySpec::FIRST_READ)
    .doc(
        "2.0.0",
        "key",
        "Returns the values of all fields of a hash.",
    )
    .complexity(COMPLEXITY)
    .tips(TIPS)
    .takes_long()
    .on_keys(|cx, args, out| one_of_each(cx, args, out, false));

fn one_of_each(cx: &mut ShardCx<'_>, args: &Args<'_>, out: &mut Out, names: bool) -> CommandResult {
    let (key, scales) = (args.key(1), cx.scales());
    let mut keyspace = cx.at(&key);
    let Some(hash) = read(&mut keyspace, &key)? else {
        out.array(0);
        return Ok(());
    };
    scales.weigh(hash.len())?;
    out.array(hash.len());
    hash.for_each(|field| match names {
        true => reply_element(field.name, out),
        false => reply_item(field.value, out),
    });
    Ok(())
}

/// `HSCAN key cursor [MATCH pattern] [COUNT count] [NOVALUES]`
pub(super) static HSCAN: Command = Command::new("hscan", Group::Hash, -3)
    .reads(KeySpec::FIRST_READ)
    .doc(
        "2.8.0",
        "key cursor [MATCH pattern] [COUNT count] [NOVALUES]",
        "Iterates over the fields of a hash.",
    )
    .complexity("O(1) for each call, O(N) for a complete iteration over N fields.")
    .tips(&["nondeterministic_output"])
    .on_keys(hscan);

fn hscan(cx: &mut ShardCx<'_>, args: &Args<'_>, out: &mut Out) -> CommandResult {
    let cursor = scan::cursor(args.get(2))?;
    let key = args.key(1);
    let mut keyspace = cx.at(&key);
    // Redis parses the options only if the hash exists.
    let Some(hash) = read(&mut keyspace, &key)? else {
        scan::reply_nothing(out);
        return Ok(());
    };
    let options = scan::Options::parse_with(args, 3, Some("novalues"), |_| false)?;
    let mut fields = Out::new(out.protocol());
    let mut count = 0;
    let next = hash.scan(cursor, options.count, |field| {
        if options.pattern.is_some() && !field.name.with_bytes(|name| options.fits(name)) {
            return;
        }
        count += 1;
        reply_element(field.name, &mut fields);
        if !options.is_bare {
            count += 1;
            reply_item(field.value, &mut fields);
        }
    });
    scan::reply(next, count, &mut fields, out);
    Ok(())
}
