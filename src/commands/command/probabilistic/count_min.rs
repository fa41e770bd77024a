//! CMS.*: estimates how often elements were added, never too low.

use super::{ANSWERED_KEY, INSERTED_KEY, READ_KEY, SINCE, change, find, float, integer, read};
use crate::command::args::RoutedKey;
use crate::command::context::ShardCx;
use crate::command::declaration::{Command, CommandResult, Flags, Group, KeyFlags, KeySpec};
use crate::command::error::CommandError;
use crate::command::{Args, Out};
use basalt_core::structures::sketch::count_min::{
    CellSize, CountMin, CountMinParams, OutOfRange, Sum, dimensions,
};
use basalt_engine::effect::Event;
use basalt_engine::value::sketch::entry_of;

const MISSING: &str = "CMS: key does not exist";

/// `CMS.INITBYDIM key width depth [CELL_SIZE bytes]`
pub(super) static CMS_INITBYDIM: Command = Command::new("cms.initbydim", Group::CountMin, -4)
    .writes(INSERTED_KEY)
    .flags(Flags::DENYOOM)
    .doc(
        SINCE,
        "key width:integer depth:integer [CELL_SIZE cell-size:integer]",
        "Creates a count-min sketch of the given width and depth.",
    )
    .on_keys(init_by_dimensions);

fn init_by_dimensions(cx: &mut ShardCx<'_>, args: &Args<'_>, out: &mut Out) -> CommandResult {
    let cell = cell_size(args, "cms.initbydim")?;
    refuse_existing(cx, args)?;
    let positive = |index, error| {
        let number = u64::try_from(integer(args, index, error)?).unwrap_or(0);
        Some(number)
            .filter(|number| *number > 0)
            .ok_or_else(|| CommandError::from(error))
    };
    let width = positive(2, "CMS: invalid width")?;
    let depth = positive(3, "CMS: invalid depth")?;
    init(cx, args, (width, depth, cell), out)
}

/// `CMS.INITBYPROB key error probability [CELL_SIZE bytes]`
pub(super) static CMS_INITBYPROB: Command = Command::new("cms.initbyprob", Group::CountMin, -4)
    .writes(INSERTED_KEY)
    .flags(Flags::DENYOOM)
    .doc(
        SINCE,
        "key error:double probability:double [CELL_SIZE cell-size:integer]",
        "Creates a count-min sketch of the given error rate and probability.",
    )
    .on_keys(init_by_probability);

fn init_by_probability(cx: &mut ShardCx<'_>, args: &Args<'_>, out: &mut Out) -> CommandResult {
    let cell = cell_size(args, "cms.initbyprob")?;
    refuse_existing(cx, args)?;
    let share = |index, error| {
        let number = float(args, index, error)?;
        Some(number)
            .filter(|number| *number > 0.0 && *number < 1.0)
            .ok_or_else(|| CommandError::from(error))
    };
    let error_rate = share(2, "CMS: invalid overestimation value")?;
    let probability = share(3, "CMS: invalid prob value")?;
    let (width, depth) = dimensions(error_rate, probability);
    init(cx, args, (width, depth, cell), out)
}

/// Reads the option CELL_SIZE.
fn cell_size(args: &Args<'_>, name: &'static str) -> Result<CellSize, CommandError> {
    const INVALID: &str = "CMS: invalid cell size";
    match args.len() {
        4 => Ok(CellSize::default()),
        6 if args.is(4, "cell_size") => {
            let bytes = u64::try_from(integer(args, 5, INVALID)?).ok();
            let size = bytes.and_then(CellSize::of);
            size.ok_or_else(|| INVALID.into())
        }
        6 => Err(CommandError::Syntax),
        _ => Err(CommandError::Arity(name)),
    }
}

fn refuse_existing(cx: &mut ShardCx<'_>, args: &Args<'_>) -> CommandResult {
    let key = args.key(1);
    match cx.at(&key).find_write(&key) {
        Some(_) => Err("CMS: key already exists".into()),
        None => Ok(()),
    }
}

fn init(
    cx: &mut ShardCx<'_>,
    args: &Args<'_>,
    (width, depth, cell): (u64, u64, CellSize),
    out: &mut Out,
) -> CommandResult {
    let fits = width > 0 && depth > 0 && width <= i64::MAX as u64 / depth;
    if !fits {
        return Err("CMS: invalid init arguments".into());
    }
    let plan = CountMinParams::new(width, depth, cell)
        .ok_or("CMS: Insufficient memory to create the key")?;
    let key = args.key(1);
    let mut keyspace = cx.at(&key);
    keyspace.create(&key, || entry_of(key.bytes, plan.build()));
    keyspace.wrote(key.bytes, Event::new(b'd', "cms.init"));
    out.ok();
    Ok(())
}

/// `CMS.INCRBY key item increment [item increment ...]`
pub(super) static CMS_INCRBY: Command = Command::new("cms.incrby", Group::CountMin, -4)
    .writes(ANSWERED_KEY)
    .flags(Flags::DENYOOM)
    .doc(
        SINCE,
        "key item increment:integer [item increment:integer ...]",
        "Adds to the counts of elements, or subtracts from them, and returns the new estimates.",
    )
    .complexity("O(N), N being the count of elements.")
    .on_keys(incrby);

fn incrby(cx: &mut ShardCx<'_>, args: &Args<'_>, out: &mut Out) -> CommandResult {
    if !args.len().is_multiple_of(2) {
        return Err(CommandError::Arity("cms.incrby"));
    }
    let key = args.key(1);
    let mut keyspace = cx.at(&key);
    let place = find::<CountMin>(&mut keyspace, &key, MISSING)?;
    let increment = |at| integer(args, at, "CMS: Cannot parse number");
    for at in (2..args.len()).step_by(2) {
        increment(at + 1)?;
    }
    let mut has_changed = false;
    out.array((args.len() - 2) / 2);
    for at in (2..args.len()).step_by(2) {
        let by = increment(at + 1)?;
        let estimate = change(&mut keyspace, place, |sketch: &mut CountMin| {
            sketch.add(args.get(at), by)
        });
        has_changed |= estimate.is_ok();
        match estimate {
            Ok(estimate) => out.integer(estimate.cast_signed()),
            Err(OutOfRange::Overflow) => out.error("CMS: INCRBY overflow"),
            Err(OutOfRange::Underflow) => out.error("CMS: INCRBY underflow"),
        }
    }
    if has_changed {
        keyspace.wrote(key.bytes, Event::new(b'd', "cms.incrby"));
    }
    Ok(())
}

/// `CMS.QUERY key item [item ...]`
pub(super) static CMS_QUERY: Command = Command::new("cms.query", Group::CountMin, -3)
    .reads(READ_KEY)
    .doc(
        SINCE,
        "key item [item ...]",
        "Returns upper estimates of how often elements were added.",
    )
    .complexity("O(N), N being the count of elements.")
    .on_keys(query);

fn query(cx: &mut ShardCx<'_>, args: &Args<'_>, out: &mut Out) -> CommandResult {
    let key = args.key(1);
    let mut keyspace = cx.at(&key);
    let sketch = read::<CountMin>(&mut keyspace, &key, MISSING)?;
    out.array(args.len() - 2);
    for item in args.from(2) {
        out.integer(sketch.estimate(item).cast_signed());
    }
    Ok(())
}

/// `CMS.MERGE destination numkeys source [source ...] [WEIGHTS weight [weight ...]]`
pub(super) static CMS_MERGE: Command = Command::new("cms.merge", Group::CountMin, -4)
    .writes(&[
        KeySpec::one(1, KeyFlags::RW.or(KeyFlags::UPDATE)),
        KeySpec::counted(2, KeyFlags::RO.or(KeyFlags::ACCESS)),
    ])
    .flags(Flags::DENYOOM.or(Flags::MOVABLEKEYS))
    .doc(
        SINCE,
        "destination numkeys:integer source [source ...] [WEIGHTS weight:integer [weight:integer ...]]",
        "Stores the weighted sum of count-min sketches of the same size.",
    )
    .complexity("O(N), N being the count of sketches.")
    .on_keys(merge);

fn merge(cx: &mut ShardCx<'_>, args: &Args<'_>, out: &mut Out) -> CommandResult {
    let count = integer(args, 2, "CMS: invalid numkeys")?;
    let rest = args.len() - 3;
    let count = usize::try_from(count).unwrap_or(0);
    if count == 0 {
        return Err("CMS: Number of keys must be positive".into());
    }
    let weights_at = (3..args.len()).find(|at| args.is(*at, "weights"));
    match weights_at {
        None if rest != count => return Err("CMS: wrong number of keys".into()),
        Some(at) if at - 3 != count || rest - 1 != count * 2 => {
            return Err("CMS: wrong number of keys/weights".into());
        }
        _ => {}
    }
    let (target, sources) = split_keys(args, count)?;
    let target_key = args.key_of(target);
    let mut sum = {
        let mut keyspace = cx.at_routed(target);
        Sum::new(read::<CountMin>(&mut keyspace, &target_key, MISSING)?)
    };
    let size = |sketch: &CountMin| (sketch.width(), sketch.depth());
    let (target_size, target_cell) = {
        let mut keyspace = cx.at_routed(target);
        let sketch = read::<CountMin>(&mut keyspace, &target_key, MISSING)?;
        (size(sketch), sketch.cell_size())
    };
    for (index, source) in sources.iter().enumerate() {
        let weight = match weights_at {
            Some(at) => integer(args, at + 1 + index, "CMS: invalid weight value")?,
            None => 1,
        };
        let key = args.key_of(source);
        let mut keyspace = cx.at_routed(source);
        let sketch = read::<CountMin>(&mut keyspace, &key, MISSING)?;
        if size(sketch) != target_size {
            return Err("CMS: width/depth is not equal".into());
        }
        if sketch.cell_size() != target_cell {
            return Err("CMS: cell size is not equal".into());
        }
        if !sum.add(sketch, weight) {
            return Err("CMS: MERGE overflow".into());
        }
    }
    let mut keyspace = cx.at_routed(target);
    let place = find::<CountMin>(&mut keyspace, &target_key, MISSING)?;
    if !change(&mut keyspace, place, |sketch: &mut CountMin| {
        sketch.replace(&sum)
    }) {
        return Err("CMS: MERGE overflow".into());
    }
    keyspace.wrote(target_key.bytes, Event::new(b'd', "cms.merge"));
    out.ok();
    Ok(())
}

/// Splits the keys of a merge into destination and sources.
pub(super) fn split_keys<'a>(
    args: &Args<'a>,
    count: usize,
) -> Result<(&'a RoutedKey, &'a [RoutedKey]), CommandError> {
    match args.keys().split_first() {
        Some((target, sources)) if sources.len() == count => Ok((target, sources)),
        _ => Err(CommandError::Syntax),
    }
}

/// `CMS.INFO key`
pub(super) static CMS_INFO: Command = Command::new("cms.info", Group::CountMin, 2)
    .reads(READ_KEY)
    .doc(
        SINCE,
        "key",
        "Returns information about a count-min sketch.",
    )
    .on_keys(info);

fn info(cx: &mut ShardCx<'_>, args: &Args<'_>, out: &mut Out) -> CommandResult {
    let key = args.key(1);
    let mut keyspace = cx.at(&key);
    let sketch = read::<CountMin>(&mut keyspace, &key, MISSING)?;
    let facts = [
        ("width", sketch.width()),
        ("depth", sketch.depth()),
        ("count", sketch.count()),
        ("cell_size", sketch.cell_size().bytes() as u64),
    ];
    out.map(facts.len());
    for (name, fact) in facts {
        out.simple(name);
        out.integer(fact as i64);
    }
    Ok(())
}
