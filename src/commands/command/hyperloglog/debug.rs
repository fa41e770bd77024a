//! Commands that inspect a HyperLogLog, and test the implementation.

use super::{corrupt, own, sparse_bytes_max, with_sketch};
use crate::command::context::{SessionCx, ShardCx};
use crate::command::declaration::{Command, CommandResult, Flags, Group, KeyFlags, KeySpec};
use crate::command::error::shown;
use crate::command::{Args, Out};
use basalt_core::base::random::Random;
use basalt_core::structures::hyperloglog::{Encoding, REGISTERS, dense, self_test, sparse};
use basalt_core::structures::table::EntrySlot;
use basalt_engine::Key;
use basalt_engine::keyspace::Keyspace;
use basalt_engine::value::hyperloglog as value;
use std::fmt::Write as _;

/// `PFDEBUG subcommand key`
pub(super) static PFDEBUG: Command = Command::new("pfdebug", Group::HyperLogLog, 3)
    .writes(&[KeySpec::one(2, KeyFlags::RW.or(KeyFlags::ACCESS))])
    .flags(Flags::DENYOOM.or(Flags::ADMIN).or(Flags::SYSCMD))
    .doc(
        "2.8.9",
        "subcommand key",
        "Shows or changes the encoding of a HyperLogLog.",
    )
    .complexity("O(1)")
    .on_keys(pfdebug);

fn pfdebug(cx: &mut ShardCx<'_>, args: &Args<'_>, out: &mut Out) -> CommandResult {
    let key = args.key(2);
    let mut keyspace = cx.at(&key);
    let Some(place) = keyspace.find_text(&key)? else {
        return Err("ERR The specified key does not exist".into());
    };
    let encoding = with_sketch(keyspace.text(place)?, |sketch| sketch.encoding())?;
    if args.is(1, "getreg") {
        to_dense(&mut keyspace, &key, place, encoding)?;
        let text = keyspace.peek_text(&key).ok_or("ERR no such key")?;
        out.array(REGISTERS);
        with_sketch(text, |sketch| {
            for index in 0..REGISTERS {
                out.integer(i64::from(dense::value_at(sketch.body(), index)));
            }
        })
    } else if args.is(1, "decode") {
        if encoding != Encoding::Sparse {
            return Err("ERR HLL encoding is not sparse".into());
        }
        let decoded = with_sketch(keyspace.text(place)?, |sketch| decode(sketch.body()))?;
        out.bulk(decoded.as_bytes());
        Ok(())
    } else if args.is(1, "encoding") {
        out.simple(match encoding {
            Encoding::Dense => "dense",
            Encoding::Sparse => "sparse",
        });
        Ok(())
    } else if args.is(1, "todense") {
        to_dense(&mut keyspace, &key, place, encoding)?;
        out.integer(i64::from(encoding == Encoding::Sparse));
        Ok(())
    } else {
        let name = shown(args.get(1));
        Err(format!("ERR Unknown PFDEBUG subcommand '{name}'").into())
    }
}

/// Converts a sketch to the dense encoding. As in Redis this counts as a change, but no client is notified.
fn to_dense(
    keyspace: &mut Keyspace<'_>,
    key: &Key<'_>,
    place: EntrySlot,
    encoding: Encoding,
) -> CommandResult {
    if encoding == Encoding::Dense {
        return Ok(());
    }
    own(keyspace, key, place)?;
    keyspace.edit(place, value::to_dense).map_err(corrupt)?;
    keyspace.engine().effects.changed(1);
    keyspace.engine().published().dirty.add(1);
    Ok(())
}

fn decode(runs: &[u8]) -> String {
    let mut text = String::new();
    for run in sparse::runs(runs) {
        let separator = if text.is_empty() { "" } else { " " };
        let _ = match (run.value, run.bytes) {
            (0, 1) => write!(text, "{separator}z:{}", run.len),
            (0, _) => write!(text, "{separator}Z:{}", run.len),
            (value, _) => write!(text, "{separator}v:{value},{}", run.len),
        };
    }
    text
}

/// `PFSELFTEST`
pub(super) static PFSELFTEST: Command = Command::new("pfselftest", Group::HyperLogLog, 1)
    .flags(Flags::ADMIN.or(Flags::SYSCMD))
    .doc("2.8.9", "", "Tests the implementation of HyperLogLog.")
    .complexity("O(1), with a constant of some million elements.")
    .repeatable()
    .on_session(pfselftest);

fn pfselftest(cx: &mut SessionCx<'_>, _: &Args<'_>, out: &mut Out) -> CommandResult {
    let mut random = Random::new(cx.now.unix_ms);
    self_test::run(&mut random, sparse_bytes_max(cx.config))
        .map_err(|failed| format!("TESTFAILED {failed}"))?;
    out.ok();
    Ok(())
}
