//! All fields of a hash, at once or some at a time.

use super::{READ, read, reply_element};
use crate::base::glob::{self, Case};
use crate::command::Args;
use crate::command::Out;
use crate::command::context::ShardCx;
use crate::command::declaration::{Command, CommandResult, Group};
use crate::command::error::CommandError;
use crate::command::generic::scan_cursor;

const COMPLEXITY: &str = "O(N), N being the count of fields.";
const TIPS: &[&str] = &["nondeterministic_output_order"];

/// `HGETALL key`
pub(super) static HGETALL: Command = Command::new("hgetall", Group::Hash, 2)
    .reads(READ)
    .doc(
        "2.0.0",
        "key",
        "Answers all fields of a hash with their values.",
    )
    .complexity(COMPLEXITY)
    .tips(TIPS)
    .on_keys(hgetall);

fn hgetall(cx: &mut ShardCx<'_>, args: &Args<'_>, out: &mut Out) -> CommandResult {
    let key = args.key(1);
    let mut keyspace = cx.at(&key);
    let Some(hash) = read(&mut keyspace, &key)? else {
        out.map(0);
        return Ok(());
    };
    out.map(hash.len());
    hash.for_each(|field| {
        reply_element(field.name, out);
        reply_element(field.value, out);
    });
    Ok(())
}

/// `HKEYS key`
pub(super) static HKEYS: Command = Command::new("hkeys", Group::Hash, 2)
    .reads(READ)
    .doc("2.0.0", "key", "Answers the names of all fields of a hash.")
    .complexity(COMPLEXITY)
    .tips(TIPS)
    .on_keys(|cx, args, out| one_of_each(cx, args, out, true));

/// `HVALS key`
pub(super) static HVALS: Command = Command::new("hvals", Group::Hash, 2)
    .reads(READ)
    .doc(
        "2.0.0",
        "key",
        "Answers the values of all fields of a hash.",
    )
    .complexity(COMPLEXITY)
    .tips(TIPS)
    .on_keys(|cx, args, out| one_of_each(cx, args, out, false));

fn one_of_each(cx: &mut ShardCx<'_>, args: &Args<'_>, out: &mut Out, names: bool) -> CommandResult {
    let key = args.key(1);
    let mut keyspace = cx.at(&key);
    let Some(hash) = read(&mut keyspace, &key)? else {
        out.array(0);
        return Ok(());
    };
    out.array(hash.len());
    hash.for_each(|field| reply_element(if names { field.name } else { field.value }, out));
    Ok(())
}

/// `HSCAN key cursor [MATCH pattern] [COUNT count] [NOVALUES]`
pub(super) static HSCAN: Command = Command::new("hscan", Group::Hash, -3)
    .reads(READ)
    .doc(
        "2.8.0",
        "key cursor [MATCH pattern] [COUNT count] [NOVALUES]",
        "Walks over the fields of a hash, some at a time.",
    )
    .complexity("O(1) for each call, O(N) for a whole walk over N fields.")
    .tips(&["nondeterministic_output"])
    .on_keys(hscan);

/// Fields that one call looks at, unless COUNT says otherwise.
const SCAN_COUNT: i64 = 10;

struct ScanOptions<'a> {
    pattern: Option<&'a [u8]>,
    count: usize,
    values: bool,
}

fn scan_options<'a>(args: &Args<'a>) -> Result<ScanOptions<'a>, CommandError> {
    let mut options = ScanOptions {
        pattern: None,
        count: SCAN_COUNT as usize,
        values: true,
    };
    let mut at = 3;
    while at < args.len() {
        let has_value = at + 1 < args.len();
        if args.is(at, "count") && has_value {
            let count = args.integer(at + 1)?;
            if count < 1 {
                return Err(CommandError::Syntax);
            }
            options.count = usize::try_from(count).unwrap_or(usize::MAX);
            at += 2;
        } else if args.is(at, "match") && has_value {
            let pattern = args.get(at + 1);
            options.pattern = (!glob::matches_all(pattern)).then_some(pattern);
            at += 2;
        } else if args.is(at, "novalues") {
            options.values = false;
            at += 1;
        } else {
            return Err(CommandError::Syntax);
        }
    }
    Ok(options)
}

fn hscan(cx: &mut ShardCx<'_>, args: &Args<'_>, out: &mut Out) -> CommandResult {
    let cursor = scan_cursor(args.get(2)).ok_or("ERR invalid cursor")?;
    let key = args.key(1);
    let mut keyspace = cx.at(&key);
    // Redis reads the options of a hash that is there only.
    let Some(hash) = read(&mut keyspace, &key)? else {
        out.array(2);
        out.bulk(b"0");
        out.array(0);
        return Ok(());
    };
    let options = scan_options(args)?;
    // The cursor is known after the fields, and stands before them.
    let mut fields = Out::new(out.protocol());
    let mark = fields.later();
    let mut count = 0;
    let next = hash.scan(cursor, options.count, |field| {
        let fits = |pattern| {
            field
                .name
                .with_bytes(|name| glob::matches(pattern, name, Case::Sensitive))
        };
        if !options.pattern.is_none_or(fits) {
            return;
        }
        count += 1;
        reply_element(field.name, &mut fields);
        if options.values {
            count += 1;
            reply_element(field.value, &mut fields);
        }
    });
    fields.close_array(mark, count);
    out.array(2);
    out.bulk_integer(next as i64);
    out.append(&mut fields);
    Ok(())
}
