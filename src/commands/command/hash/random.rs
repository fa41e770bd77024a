//! HRANDFIELD: random fields.

use super::{at, read};
use crate::command::Args;
use crate::command::Out;
use crate::command::context::ShardCx;
use crate::command::declaration::{Command, CommandResult, Group, KeySpec};
use crate::command::element::{reply_element, reply_item};
use crate::command::error::CommandError;
use basalt_engine::value::DataType;
use basalt_engine::value::hash::Field;

/// `HRANDFIELD key [count [WITHVALUES]]`
pub(super) static HRANDFIELD: Command = Command::new("hrandfield", Group::Hash, -2)
    .reads(KeySpec::FIRST_READ)
    .doc(
        "6.2.0",
        "key [count [WITHVALUES]]",
        "Returns random fields of a hash: distinct ones, or possibly repeated ones if the count is negative.",
    )
    .complexity("O(N), N being the count of fields answered.")
    .tips(&["nondeterministic_output"])
    .takes_long()
    .on_keys(hrandfield);

/// Bytes of the shortest element in a reply.
const ELEMENT_BYTES_MIN: u64 = 6;

fn too_many() -> CommandError {
    "ERR value is out of range".into()
}

fn hrandfield(cx: &mut ShardCx<'_>, args: &Args<'_>, out: &mut Out) -> CommandResult {
    if args.len() == 2 {
        return one(cx, args, out);
    }
    let count = args.integer(2)?;
    if count == i64::MIN {
        return Err(
            "ERR value is out of range, value must between -9223372036854775807 and 9223372036854775807"
                .into(),
        );
    }
    let with_values = match args.len() {
        3 => false,
        4 if args.is(3, "withvalues") => true,
        _ => return Err(CommandError::Syntax),
    };
    if with_values && count.unsigned_abs() > i64::MAX as u64 / 2 {
        return Err(too_many());
    }
    many(cx, args, out, count, with_values)
}

fn one(cx: &mut ShardCx<'_>, args: &Args<'_>, out: &mut Out) -> CommandResult {
    let key = args.key(1);
    let mut random = cx.at(&key).engine().random.fork();
    let mut keyspace = cx.at(&key);
    let Some(hash) = read(&mut keyspace, &key)? else {
        out.null();
        return Ok(());
    };
    let position = out.position();
    hash.draw(&mut random, 1, |field| {
        reply_element(field.name, out);
        true
    });
    if out.since(position).is_empty() {
        out.null();
    }
    Ok(())
}

fn many(
    cx: &mut ShardCx<'_>,
    args: &Args<'_>,
    out: &mut Out,
    count: i64,
    with_values: bool,
) -> CommandResult {
    let (key, scales) = (args.key(1), cx.scales());
    let bytes_max = cx.config.proto_max_bulk_len;
    // If an output limit closes the client anyway, the request is not refused, as in Redis.
    let cut_at = match cx.config.client_output_buffer_limit.normal.hard_bytes {
        0 => None,
        limit => Some(limit).filter(|limit| *limit < bytes_max),
    };
    let mut keyspace = cx.at(&key);
    let found = keyspace.read_typed(&key, DataType::Hash)?;
    let Some(place) = found.filter(|_| count != 0) else {
        out.array(0);
        return Ok(());
    };
    let mut random = keyspace.engine().random.fork();
    let Some(hash) = at(&keyspace, place) else {
        out.array(0);
        return Ok(());
    };
    // With repetition any number of fields may be requested, so the reply's size is what must be limited.
    let wanted = count.unsigned_abs();
    if count < 0 && cut_at.is_none() && wanted.saturating_mul(ELEMENT_BYTES_MIN) > bytes_max {
        return Err(too_many());
    }
    scales.weigh(match count {
        ..0 => usize::try_from(wanted).unwrap_or(usize::MAX),
        _ => hash.len(),
    })?;
    let start = out.position();
    let mark = out.later();
    let (mut elements, mut bytes, nested) = (0, 0, out.is_resp3());
    let mut reply = |field: Field<'_>| {
        elements += 1;
        bytes += field.name.len() as u64 + ELEMENT_BYTES_MIN;
        if with_values && nested {
            out.array(2);
        }
        reply_element(field.name, out);
        if with_values {
            elements += usize::from(!nested);
            bytes += field.value.len() as u64 + ELEMENT_BYTES_MIN;
            reply_item(field.value, out);
        }
        match cut_at {
            Some(limit) => out.len_bytes() as u64 <= limit,
            None => bytes <= bytes_max,
        }
    };
    let wanted = usize::try_from(wanted).unwrap_or(usize::MAX);
    if count < 0 {
        hash.draw(&mut random, wanted, &mut reply);
        if cut_at.is_some_and(|limit| out.len_bytes() as u64 > limit) {
            out.cut(start);
            return Ok(());
        }
        if cut_at.is_none() && bytes > bytes_max {
            out.truncate(start);
            return Err(too_many());
        }
    } else {
        hash.draw_distinct(&mut random, wanted, |field| {
            reply(field);
        });
    }
    out.close_array(mark, elements);
    Ok(())
}
