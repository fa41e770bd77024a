//! TDIGEST.*: t-digests, which estimate the distribution of numbers.

use super::count_min::split_keys;
use super::{INSERTED_KEY, READ_KEY, SINCE, UPDATED_KEY, change, find, float, integer, read};
use crate::command::context::ShardCx;
use crate::command::declaration::{Command, CommandResult, Flags, Group, KeyFlags, KeySpec};
use crate::command::error::CommandError;
use crate::command::{Args, Out};
use basalt_core::structures::sketch::t_digest::{COMPRESSION_MAX, TDigest};
use basalt_engine::effect::Event;
use basalt_engine::value::DataType;
use basalt_engine::value::sketch::{entry_of, view};

const MISSING: &str = "ERR T-Digest: key does not exist";
const OVERFLOW: &str = "ERR T-Digest: overflow detected";
const COMPRESSION: u64 = 100;

fn compression(args: &Args<'_>, at: usize) -> Result<u64, CommandError> {
    let number = integer(
        args,
        at,
        "ERR T-Digest: error parsing compression parameter",
    )?;
    match u64::try_from(number).unwrap_or(0) {
        0 => Err("ERR T-Digest: compression parameter needs to be a positive integer".into()),
        large if large > COMPRESSION_MAX => Err("ERR T-Digest: allocation failed".into()),
        fine => Ok(fine),
    }
}

/// `TDIGEST.CREATE key [COMPRESSION compression]`
pub(super) static TDIGEST_CREATE: Command = Command::new("tdigest.create", Group::TDigest, -2)
    .writes(INSERTED_KEY)
    .flags(Flags::DENYOOM)
    .doc(
        SINCE,
        "key [COMPRESSION compression:integer]",
        "Creates an empty t-digest.",
    )
    .on_keys(create);

fn create(cx: &mut ShardCx<'_>, args: &Args<'_>, out: &mut Out) -> CommandResult {
    let key = args.key(1);
    if args.len() != 2 && args.len() != 4 {
        return Err(CommandError::Arity("tdigest.create"));
    }
    let mut keyspace = cx.at(&key);
    if keyspace.find_typed(&key, DataType::TDigest)?.is_some() {
        return Err("ERR T-Digest: key already exists".into());
    }
    let compression = match args.len() {
        2 => COMPRESSION,
        _ if args.is(2, "compression") => compression(args, 3)?,
        _ => return Err("ERR T-Digest: wrong keyword".into()),
    };
    keyspace.create(&key, || entry_of(key.bytes, TDigest::new(compression)));
    keyspace.wrote(key.bytes, Event::new(b'd', "tdigest.create"));
    out.ok();
    Ok(())
}

/// `TDIGEST.RESET key`
pub(super) static TDIGEST_RESET: Command = Command::new("tdigest.reset", Group::TDigest, 2)
    .writes(&[KeySpec::one(1, KeyFlags::RW.or(KeyFlags::DELETE))])
    .flags(Flags::DENYOOM)
    .doc(SINCE, "key", "Removes all numbers from a t-digest.")
    .on_keys(reset);

fn reset(cx: &mut ShardCx<'_>, args: &Args<'_>, out: &mut Out) -> CommandResult {
    let key = args.key(1);
    let mut keyspace = cx.at(&key);
    let place = find::<TDigest>(&mut keyspace, &key, MISSING)?;
    change(&mut keyspace, place, TDigest::reset);
    keyspace.wrote(key.bytes, Event::new(b'd', "tdigest.reset"));
    out.ok();
    Ok(())
}

/// `TDIGEST.ADD key value [value ...]`
pub(super) static TDIGEST_ADD: Command = Command::new("tdigest.add", Group::TDigest, -3)
    .writes(UPDATED_KEY)
    .flags(Flags::DENYOOM)
    .doc(
        SINCE,
        "key value:double [value:double ...]",
        "Adds numbers to a t-digest.",
    )
    .complexity("O(N), N being the count of numbers.")
    .on_keys(add);

fn add(cx: &mut ShardCx<'_>, args: &Args<'_>, out: &mut Out) -> CommandResult {
    let key = args.key(1);
    let mut keyspace = cx.at(&key);
    let place = find::<TDigest>(&mut keyspace, &key, MISSING)?;
    let numbers = floats(args, "ERR T-Digest: error parsing val parameter")?;
    if numbers.iter().any(|number| !number.is_finite()) {
        return Err("ERR T-Digest: val parameter needs to be a finite number".into());
    }
    let left = i64::MAX as u64 - view::<TDigest>(keyspace.entry(place)).count();
    if left < numbers.len() as u64 {
        return Err(OVERFLOW.into());
    }
    change(&mut keyspace, place, |digest: &mut TDigest| {
        numbers.iter().try_for_each(|number| digest.add(*number))
    })
    .map_err(|_| CommandError::from(OVERFLOW))?;
    keyspace.wrote(key.bytes, Event::new(b'd', "tdigest.add"));
    out.ok();
    Ok(())
}

/// Parses all arguments as numbers, starting with the third.
fn floats(args: &Args<'_>, error: &'static str) -> Result<Vec<f64>, CommandError> {
    (2..args.len())
        .map(|index| float(args, index, error))
        .collect()
}

/// `TDIGEST.MERGE destination-key numkeys source-key [source-key ...] [COMPRESSION compression] [OVERRIDE]`
pub(super) static TDIGEST_MERGE: Command = Command::new("tdigest.merge", Group::TDigest, -4)
    .writes(&[
        KeySpec::one(1, KeyFlags::RW.or(KeyFlags::UPDATE)),
        KeySpec::counted(2, KeyFlags::RO.or(KeyFlags::ACCESS)),
    ])
    .flags(Flags::DENYOOM.or(Flags::MOVABLEKEYS))
    .doc(
        SINCE,
        "destination-key numkeys:integer source-key [source-key ...] [COMPRESSION compression:integer] [OVERRIDE]",
        "Merges t-digests into another one, or replaces it with OVERRIDE.",
    )
    .complexity("O(N * K), N being the count of centroids and K that of t-digests.")
    .on_keys(merge);

fn merge(cx: &mut ShardCx<'_>, args: &Args<'_>, out: &mut Out) -> CommandResult {
    let arity = || CommandError::Arity("tdigest.merge");
    let count = integer(args, 2, "ERR T-Digest: error parsing numkeys")?;
    let count = usize::try_from(count).unwrap_or(0);
    if count == 0 {
        return Err("ERR T-Digest: numkeys needs to be a positive integer".into());
    }
    if count > args.len() - 3 {
        return Err(arity());
    }
    let (target, sources) = split_keys(args, count)?;
    let target_key = args.key_of(target);
    let before = {
        let mut keyspace = cx.at_routed(target);
        let found = keyspace.find_typed(&target_key, DataType::TDigest)?;
        found.map(|place| view::<TDigest>(keyspace.entry(place)).clone())
    };
    let (mut wanted, mut replaces) = (None, false);
    let mut at = 3 + count;
    while at < args.len() {
        if args.is(at, "override") {
            replaces = true;
        } else if args.is(at, "compression") {
            at += 1;
            if at >= args.len() {
                return Err(arity());
            }
            wanted = Some(compression(args, at)?);
        } else {
            return Err("ERR T-Digest: wrong keyword".into());
        }
        at += 1;
    }
    let before = before.filter(|_| !replaces);
    let mut parts = Vec::with_capacity(sources.len());
    for source in sources {
        let mut keyspace = cx.at_routed(source);
        let digest = read::<TDigest>(&mut keyspace, &args.key_of(source), MISSING)?;
        parts.push(digest.clone());
    }
    // By default the compression is that of the destination, or the highest of the sources.
    let highest = parts.iter().map(TDigest::compression).max();
    let kept = before.as_ref().map(TDigest::compression);
    let compression = wanted.or(kept).or(highest).unwrap_or(COMPRESSION);
    let mut union = TDigest::new(compression);
    for part in before.iter().chain(&parts) {
        union
            .add_all(part)
            .map_err(|_| CommandError::from(OVERFLOW))?;
    }
    let mut keyspace = cx.at_routed(target);
    match keyspace.find_typed(&target_key, DataType::TDigest)? {
        // The result is copied, so that its memory is charged to the key.
        Some(place) => {
            change(&mut keyspace, place, |digest: &mut TDigest| {
                digest.replace(&union);
            });
            keyspace.set_deadline(&target_key, place, None);
        }
        None => {
            keyspace.create(&target_key, || entry_of(target_key.bytes, union.clone()));
        }
    }
    keyspace.wrote(target_key.bytes, Event::new(b'd', "tdigest.merge"));
    out.ok();
    Ok(())
}

/// Calls `read` with a digest whose buffered numbers have been merged. Merging changes its representation but none of
/// its results, so it need not be replicated.
fn with_merged<R>(
    cx: &mut ShardCx<'_>,
    args: &Args<'_>,
    read: impl FnOnce(&TDigest) -> R,
) -> Result<R, CommandError> {
    let key = args.key(1);
    let mut keyspace = cx.at(&key);
    let found = keyspace.read_typed(&key, DataType::TDigest)?;
    let place = found.ok_or_else(|| CommandError::from(MISSING))?;
    if !view::<TDigest>(keyspace.entry(place)).is_merged() {
        change(&mut keyspace, place, TDigest::merge);
    }
    Ok(read(view(keyspace.entry(place))))
}

fn check_found(cx: &mut ShardCx<'_>, args: &Args<'_>) -> CommandResult {
    let key = args.key(1);
    find::<TDigest>(&mut cx.at(&key), &key, MISSING).map(|_| ())
}

/// `TDIGEST.MIN key`
pub(super) static TDIGEST_MIN: Command = Command::new("tdigest.min", Group::TDigest, 2)
    .reads(READ_KEY)
    .doc(SINCE, "key", "Returns the lowest number of a t-digest.")
    .on_keys(min);

fn min(cx: &mut ShardCx<'_>, args: &Args<'_>, out: &mut Out) -> CommandResult {
    let key = args.key(1);
    out.double(read::<TDigest>(&mut cx.at(&key), &key, MISSING)?.min());
    Ok(())
}

/// `TDIGEST.MAX key`
pub(super) static TDIGEST_MAX: Command = Command::new("tdigest.max", Group::TDigest, 2)
    .reads(READ_KEY)
    .doc(SINCE, "key", "Returns the highest number of a t-digest.")
    .on_keys(max);

fn max(cx: &mut ShardCx<'_>, args: &Args<'_>, out: &mut Out) -> CommandResult {
    let key = args.key(1);
    out.double(read::<TDigest>(&mut cx.at(&key), &key, MISSING)?.max());
    Ok(())
}

/// `TDIGEST.QUANTILE key quantile [quantile ...]`
pub(super) static TDIGEST_QUANTILE: Command = Command::new("tdigest.quantile", Group::TDigest, -3)
    .reads(READ_KEY)
    .doc(
        SINCE,
        "key quantile:double [quantile:double ...]",
        "Returns the numbers at the given quantiles.",
    )
    .complexity("O(N), N being the count of quantiles.")
    .on_keys(quantile);

fn quantile(cx: &mut ShardCx<'_>, args: &Args<'_>, out: &mut Out) -> CommandResult {
    check_found(cx, args)?;
    let shares = floats(args, "ERR T-Digest: error parsing quantile")?;
    if shares.iter().any(|share| !(0.0..=1.0).contains(share)) {
        return Err("ERR T-Digest: quantile should be in [0,1]".into());
    }
    with_merged(cx, args, |digest| {
        out.array(shares.len());
        for share in &shares {
            out.double(digest.quantile(*share));
        }
    })
}

/// `TDIGEST.CDF key value [value ...]`
pub(super) static TDIGEST_CDF: Command = Command::new("tdigest.cdf", Group::TDigest, -3)
    .reads(READ_KEY)
    .doc(
        SINCE,
        "key value:double [value:double ...]",
        "Returns the fractions of all numbers that are below the given numbers.",
    )
    .complexity("O(N), N being the count of values.")
    .on_keys(cdf);

fn cdf(cx: &mut ShardCx<'_>, args: &Args<'_>, out: &mut Out) -> CommandResult {
    check_found(cx, args)?;
    let numbers = floats(args, "ERR T-Digest: error parsing cdf")?;
    with_merged(cx, args, |digest| {
        out.array(numbers.len());
        for number in &numbers {
            out.double(digest.share_below(*number));
        }
    })
}

/// The end from which ranks count.
#[derive(Clone, Copy, PartialEq, Eq)]
enum From {
    Lowest,
    Highest,
}

/// `TDIGEST.RANK key value [value ...]`
pub(super) static TDIGEST_RANK: Command = Command::new("tdigest.rank", Group::TDigest, -3)
    .reads(READ_KEY)
    .doc(
        SINCE,
        "key value:double [value:double ...]",
        "Returns how many numbers are lower than the given ones.",
    )
    .complexity("O(N), N being the count of values.")
    .on_keys(|cx, args, out| ranks(cx, args, From::Lowest, out));

/// `TDIGEST.REVRANK key value [value ...]`
pub(super) static TDIGEST_REVRANK: Command = Command::new("tdigest.revrank", Group::TDigest, -3)
    .reads(READ_KEY)
    .doc(
        SINCE,
        "key value:double [value:double ...]",
        "Returns how many numbers are higher than the given ones.",
    )
    .complexity("O(N), N being the count of values.")
    .on_keys(|cx, args, out| ranks(cx, args, From::Highest, out));

fn ranks(cx: &mut ShardCx<'_>, args: &Args<'_>, from: From, out: &mut Out) -> CommandResult {
    check_found(cx, args)?;
    let numbers = floats(args, "ERR T-Digest: error parsing value")?;
    with_merged(cx, args, |digest| {
        out.array(numbers.len());
        for number in &numbers {
            out.integer(rank_of(digest, *number, from));
        }
    })
}

fn rank_of(digest: &TDigest, number: f64, from: From) -> i64 {
    const EMPTY: i64 = -2;
    let count = digest.count() as i64;
    if count == 0 {
        return EMPTY;
    }
    let (below, above) = match from {
        From::Lowest => (-1, count),
        From::Highest => (count, -1),
    };
    if number < digest.min() {
        return below;
    }
    if number > digest.max() {
        return above;
    }
    let before = digest.share_below(number) * count as f64;
    match from {
        // Numbers equal to the value count half, rounded up.
        From::Lowest => (before - 0.5).ceil() as i64,
        From::Highest => (count as f64 - before.round()).round() as i64,
    }
}

/// `TDIGEST.BYRANK key rank [rank ...]`
pub(super) static TDIGEST_BYRANK: Command = Command::new("tdigest.byrank", Group::TDigest, -3)
    .reads(READ_KEY)
    .doc(
        SINCE,
        "key rank:double [rank:double ...]",
        "Returns the numbers of the given ranks, counted from the lowest.",
    )
    .complexity("O(N), N being the count of ranks.")
    .on_keys(|cx, args, out| by_ranks(cx, args, From::Lowest, out));

/// `TDIGEST.BYREVRANK key reverse_rank [reverse_rank ...]`
pub(super) static TDIGEST_BYREVRANK: Command =
    Command::new("tdigest.byrevrank", Group::TDigest, -3)
        .reads(READ_KEY)
        .doc(
            SINCE,
            "key reverse_rank:double [reverse_rank:double ...]",
            "Returns the numbers of the given ranks, counted from the highest.",
        )
        .complexity("O(N), N being the count of ranks.")
        .on_keys(|cx, args, out| by_ranks(cx, args, From::Highest, out));

fn by_ranks(cx: &mut ShardCx<'_>, args: &Args<'_>, from: From, out: &mut Out) -> CommandResult {
    check_found(cx, args)?;
    let mut ranks = Vec::with_capacity(args.len() - 2);
    for index in 2..args.len() {
        let rank = integer(args, index, "ERR T-Digest: error parsing rank")?;
        let rank = u64::try_from(rank)
            .map_err(|_| CommandError::from("ERR T-Digest: rank needs to be non negative"))?;
        ranks.push(rank);
    }
    with_merged(cx, args, |digest| {
        out.array(ranks.len());
        for rank in &ranks {
            out.double(by_rank(digest, *rank, from));
        }
    })
}

fn by_rank(digest: &TDigest, rank: u64, from: From) -> f64 {
    let count = digest.count();
    match (rank, from) {
        _ if count == 0 => f64::NAN,
        (0, From::Lowest) => digest.min(),
        (0, From::Highest) => digest.max(),
        (rank, From::Lowest) if rank >= count => f64::INFINITY,
        (rank, From::Highest) if rank >= count => f64::NEG_INFINITY,
        (rank, From::Lowest) => digest.quantile(rank as f64 / count as f64),
        (rank, From::Highest) => digest.quantile((count - rank - 1) as f64 / count as f64),
    }
}

/// `TDIGEST.TRIMMED_MEAN key low_cut_quantile high_cut_quantile`
pub(super) static TDIGEST_TRIMMED_MEAN: Command =
    Command::new("tdigest.trimmed_mean", Group::TDigest, 4)
        .reads(READ_KEY)
        .doc(
            SINCE,
            "key low_cut_quantile:double high_cut_quantile:double",
            "Returns the mean of the numbers between two quantiles.",
        )
        .complexity("O(N), N being the count of centroids.")
        .on_keys(trimmed_mean);

fn trimmed_mean(cx: &mut ShardCx<'_>, args: &Args<'_>, out: &mut Out) -> CommandResult {
    check_found(cx, args)?;
    let low = float(args, 2, "ERR T-Digest: error parsing low_cut_percentile")?;
    let high = float(args, 3, "ERR T-Digest: error parsing high_cut_percentile")?;
    if !(0.0..=1.0).contains(&low) || !(0.0..=1.0).contains(&high) {
        return Err(
            "ERR T-Digest: low_cut_percentile and high_cut_percentile should be in [0,1]".into(),
        );
    }
    if low >= high {
        return Err(
            "ERR T-Digest: low_cut_percentile should be lower than high_cut_percentile".into(),
        );
    }
    let mean = with_merged(cx, args, |digest| digest.trimmed_mean(low, high))?;
    out.double(mean);
    Ok(())
}

/// `TDIGEST.INFO key`
pub(super) static TDIGEST_INFO: Command = Command::new("tdigest.info", Group::TDigest, 2)
    .reads(READ_KEY)
    .doc(SINCE, "key", "Returns information about a t-digest.")
    .on_keys(info);

fn info(cx: &mut ShardCx<'_>, args: &Args<'_>, out: &mut Out) -> CommandResult {
    let key = args.key(1);
    let mut keyspace = cx.at(&key);
    let digest = read::<TDigest>(&mut keyspace, &key, MISSING)?;
    let (nodes, weights) = (digest.nodes(), digest.weights());
    let facts = [
        ("Compression", digest.compression()),
        ("Capacity", digest.capacity() as u64),
        ("Merged nodes", nodes.0 as u64),
        ("Unmerged nodes", nodes.1 as u64),
        ("Merged weight", weights.0),
        ("Unmerged weight", weights.1),
        ("Observations", digest.count()),
        ("Total compressions", digest.merges()),
        ("Memory usage", digest.memory_bytes() as u64),
    ];
    out.map(facts.len());
    for (name, fact) in facts {
        out.simple(name);
        out.integer(fact as i64);
    }
    Ok(())
}
