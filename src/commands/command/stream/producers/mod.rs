//! Deduplication of entries of producers that send an entry again if they do not know whether it was added: XADD with
//! IDMP and IDMPAUTO, and the rules by which a stream remembers the producers' IDs.

use super::{Args, Command, CommandError, CommandResult, DataType, Out, ShardCx, StreamId};
use super::{edit_stream, stream_at, strict_id, unnotified};
use crate::command::declaration::{Flags, Group, KeySpec};
use crate::config::Config;
use basalt_core::base::hash;
use basalt_engine::value::stream::producers::ProducerLimits;

/// How a producer identifies its entry; each variant has the index of the producer's name.
#[derive(Clone, Copy)]
pub(super) enum ProducerOption {
    /// The producer's ID of the entry follows its name.
    Given(usize),
    /// The ID is computed from the fields of the entry.
    Automatic(usize),
}

/// A producer, and its ID of an entry.
pub(super) struct Named<'a> {
    pub(super) producer: &'a [u8],
    pub(super) id: Vec<u8>,
}

impl ProducerOption {
    /// Parses the option of XADD at `at`, if it is IDMP or IDMPAUTO. Returns the option, and the index of its last
    /// argument.
    pub(super) fn parse(
        args: &Args<'_>,
        at: usize,
        known: Option<ProducerOption>,
    ) -> Result<Option<(ProducerOption, usize)>, CommandError> {
        let left = args.len() - at - 1;
        let (naming, last, word) = if args.is(at, "idmpauto") && left >= 1 {
            (ProducerOption::Automatic(at + 1), at + 1, "IDMPAUTO")
        } else if args.is(at, "idmp") && left >= 2 {
            (ProducerOption::Given(at + 1), at + 2, "IDMP")
        } else {
            return Ok(None);
        };
        if known.is_some() {
            return Err("ERR syntax error, IDMP/IDMPAUTO specified multiple times".into());
        }
        for (at, part) in (at + 1..=last).zip(["producer", "idempotent"]) {
            if args.get(at).is_empty() {
                return Err(
                    format!("ERR syntax error, {word} requires a non-empty {part} ID").into(),
                );
            }
        }
        Ok(Some((naming, last)))
    }

    /// Returns the producer and its ID of the entry whose fields begin at `first_field`.
    pub(super) fn named<'a>(self, args: &'a Args<'_>, first_field: usize) -> Named<'a> {
        match self {
            ProducerOption::Given(at) => Named {
                producer: args.get(at),
                id: args.get(at + 1).to_vec(),
            },
            ProducerOption::Automatic(at) => Named {
                producer: args.get(at),
                id: automatic_id(args, first_field).to_vec(),
            },
        }
    }
}

/// Computes the ID of an entry from its fields, regardless of their order: by the algorithm of Redis, so that IDs in
/// its files and replicas stay valid.
fn automatic_id(args: &Args<'_>, first_field: usize) -> [u8; 16] {
    let halves = |both: u128| [both as u64, (both >> 64) as u64];
    let (mut sums, mut mixed) = ([0_u64; 2], [0_u64; 2]);
    for at in (first_field..args.len()).step_by(2) {
        let name = args.get(at);
        let length = (name.len() as u64).to_le_bytes();
        let pair = halves(hash::digest_128(&[name, &length, args.get(at + 1)]));
        for (half, part) in pair.into_iter().enumerate() {
            sums[half] = sums[half].wrapping_add(part);
            mixed[half] ^= part;
        }
    }
    let low = sums[0] ^ mixed[1].rotate_left(1);
    let high = sums[1] ^ mixed[0].rotate_left(1);
    (u128::from(high) << 64 | u128::from(low)).to_le_bytes()
}

/// Returns the default rules of a stream.
pub(super) fn usual_rules(config: &Config) -> ProducerLimits {
    ProducerLimits {
        seconds: config.stream_idmp_duration,
        each_max: config.stream_idmp_maxsize,
    }
}

/// `XCFGSET key [IDMP-DURATION idmp-duration] [IDMP-MAXSIZE idmp-maxsize]`
pub(super) static XCFGSET: Command = Command::new("xcfgset", Group::Stream, -2)
    .writes(KeySpec::FIRST_UPDATED)
    .flags(Flags::FAST.or(Flags::ENTRIES_ONLY))
    .doc(
        "8.6.0",
        "key [IDMP-DURATION idmp_duration:integer] [IDMP-MAXSIZE idmp_maxsize:integer]",
        "Sets how long and how many entries of each producer a stream remembers.",
    )
    .on_keys(xcfgset);

fn xcfgset(cx: &mut ShardCx<'_>, args: &Args<'_>, out: &mut Out) -> CommandResult {
    let usual = usual_rules(cx.config);
    let key = args.key(1);
    let mut keyspace = cx.at(&key);
    let place = keyspace
        .find_typed(&key, DataType::Stream)?
        .ok_or(CommandError::NoSuchKey)?;
    let known = stream_at(&keyspace, place).producers();
    let mut rules = known.map_or(usual, |producers| producers.facts().rules);
    let (mut has_duration, mut has_size) = (false, false);
    let mut at = 2;
    while at < args.len() {
        let has_value = at + 1 < args.len();
        let (name, unit, given, range, field) = if args.is(at, "idmp-duration") && has_value {
            let field = &mut rules.seconds;
            (
                "DURATION",
                "seconds",
                &mut has_duration,
                ProducerLimits::SECONDS,
                field,
            )
        } else if args.is(at, "idmp-maxsize") && has_value {
            let field = &mut rules.each_max;
            (
                "MAXSIZE",
                "entries",
                &mut has_size,
                ProducerLimits::EACH_MAX,
                field,
            )
        } else {
            return Err(CommandError::Syntax);
        };
        if std::mem::replace(given, true) {
            return Err(format!("ERR IDMP-{name} specified multiple times").into());
        }
        let value = args.integer(at + 1)?;
        *field = u64::try_from(value)
            .ok()
            .filter(|value| range.contains(value))
            .ok_or_else(|| {
                let (least, most) = range.into_inner();
                CommandError::from(format!(
                    "ERR IDMP-{name} must be between {least} and {most} {unit}"
                ))
            })?;
        at += 2;
    }
    if !has_duration && !has_size {
        return Err("ERR At least one parameter must be specified".into());
    }
    if edit_stream(&mut keyspace, place, |stream| {
        stream.set_rules(rules, usual)
    }) {
        keyspace.wrote_metadata(key.bytes, unnotified("xcfgset"));
    }
    out.ok();
    Ok(())
}

/// `XIDMPRECORD key pid iid stream-id`
pub(super) static XIDMPRECORD: Command = Command::new("xidmprecord", Group::Stream, 5)
    .writes(KeySpec::FIRST_UPDATED)
    .flags(Flags::DENYOOM.or(Flags::FAST).or(Flags::ENTRIES_ONLY))
    .doc(
        "8.8.0",
        "key pid iid stream-id",
        "Makes a stream remember that a producer added an entry; used in files and replication.",
    )
    .on_keys(xidmprecord);

fn xidmprecord(cx: &mut ShardCx<'_>, args: &Args<'_>, out: &mut Out) -> CommandResult {
    for (at, part) in [(2, "producer"), (3, "idempotent")] {
        if args.get(at).is_empty() {
            return Err(format!("ERR XIDMPRECORD requires a non-empty {part} ID").into());
        }
    }
    let (producer, id) = (args.get(2), args.get(3));
    let (usual, now_ms) = (usual_rules(cx.config), cx.now.unix_ms);
    let entry: StreamId = strict_id(args.get(4))?;
    let key = args.key(1);
    let mut keyspace = cx.at(&key);
    let place = keyspace
        .find_typed(&key, DataType::Stream)?
        .ok_or(CommandError::NoSuchKey)?;
    let stream = stream_at(&keyspace, place);
    match stream.added_before(producer, id, now_ms) {
        Some(known) if known == entry => {}
        Some(_) => {
            return Err(
                "ERR The specified IDMP producer-id/idempotent-id pair maps to a different stream ID"
                    .into(),
            );
        }
        None if !stream.contains(entry) => {
            return Err("ERR The specified stream ID was deleted or doesn't exist".into());
        }
        None => {
            edit_stream(&mut keyspace, place, |stream| {
                stream.remember(producer, id, entry, usual, now_ms);
            });
            keyspace.wrote_metadata(key.bytes, unnotified("xidmprecord"));
        }
    }
    out.ok();
    Ok(())
}

#[cfg(test)]
mod tests;
