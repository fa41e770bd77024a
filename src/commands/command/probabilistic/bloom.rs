//! BF.*: Bloom filters, which add layers as they grow.

use super::{
    ANSWERED_KEY, CAPACITY_MAX, EXISTS, EXPANSION_MAX, INSERTED_KEY, NOT_FOUND, READ_KEY, SINCE,
    UPDATED_KEY, change, find, float, integer, read,
};
use crate::command::context::ShardCx;
use crate::command::declaration::{Command, CommandResult, Flags, Group};
use crate::command::error::CommandError;
use crate::command::{Args, Out};
use crate::config::Config;
use basalt_core::structures::sketch::bloom::{Bloom, BloomParams, NotAdded};
use basalt_engine::effect::Event;
use basalt_engine::value::DataType;
use basalt_engine::value::sketch::{entry_of, view};

/// Maximum error rate; higher rates are replaced by this one.
const ERROR_RATE_CAP: f64 = 0.25;

const NO_MEMORY: &str = "ERR Insufficient memory to create filter";

/// Parameters of a new filter.
struct BloomOptions {
    capacity: i64,
    error_rate: f64,
    expansion: i64,
    scales: bool,
    creates: bool,
}

impl BloomOptions {
    fn defaults(config: &Config) -> BloomOptions {
        BloomOptions {
            capacity: config.bf_initial_size,
            error_rate: config.bf_error_rate,
            expansion: config.bf_expansion_factor,
            scales: config.bf_expansion_factor > 0,
            creates: true,
        }
    }

    fn plan(&self) -> Result<BloomParams, CommandError> {
        let growth = u32::try_from(self.expansion).unwrap_or(0);
        let growth = (self.scales && growth > 0).then_some(growth);
        let capacity = u64::try_from(self.capacity).unwrap_or(0);
        let error_rate = self.error_rate.min(ERROR_RATE_CAP);
        BloomParams::new(capacity, error_rate, growth).ok_or_else(|| NO_MEMORY.into())
    }
}

fn is_error_rate(rate: f64) -> bool {
    rate > 0.0 && rate < 1.0
}

fn is_capacity(capacity: i64) -> bool {
    (1..=CAPACITY_MAX).contains(&capacity)
}

fn is_expansion(expansion: i64) -> bool {
    (0..=EXPANSION_MAX).contains(&expansion)
}

/// `BF.RESERVE key error_rate capacity [EXPANSION expansion] [NONSCALING]`
pub(super) static BF_RESERVE: Command = Command::new("bf.reserve", Group::Bloom, -4)
    .writes(INSERTED_KEY)
    .flags(Flags::DENYOOM)
    .doc(
        SINCE,
        "key error_rate:double capacity:integer [EXPANSION expansion:integer] [NONSCALING]",
        "Creates an empty Bloom filter with the given error rate and capacity.",
    )
    .on_keys(reserve);

fn reserve(cx: &mut ShardCx<'_>, args: &Args<'_>, out: &mut Out) -> CommandResult {
    if args.len() > 7 {
        return Err(CommandError::Arity("bf.reserve"));
    }
    let mut options = BloomOptions::defaults(cx.config);
    options.error_rate = float(args, 2, "ERR bad error rate")?;
    if !is_error_rate(options.error_rate) {
        return Err("ERR error rate must be in the range (0.000000, 1.000000)".into());
    }
    options.capacity = integer(args, 3, "ERR bad capacity")?;
    if !is_capacity(options.capacity) {
        return Err("ERR capacity must be in the range [1, 1073741824]".into());
    }
    let (mut expansion, mut at) = (None, 4);
    while at < args.len() {
        if args.is(at, "nonscaling") {
            options.scales = false;
        } else if args.is(at, "expansion") {
            at += 1;
            if at >= args.len() {
                return Err("ERR no expansion".into());
            }
            expansion = Some(integer(args, at, "ERR bad expansion")?);
        } else {
            return Err(CommandError::Syntax);
        }
        at += 1;
    }
    if let Some(expansion) = expansion {
        if !is_expansion(expansion) {
            return Err("ERR expansion must be in the range [0, 32768]".into());
        }
        if expansion > 0 && !options.scales {
            return Err("Nonscaling filters cannot expand".into());
        }
        options.expansion = expansion;
    }
    let key = args.key(1);
    let mut keyspace = cx.at(&key);
    if keyspace.find_typed(&key, DataType::Bloom)?.is_some() {
        return Err(EXISTS.into());
    }
    let plan = options.plan()?;
    keyspace.create(&key, || entry_of(key.bytes, plan.build()));
    keyspace.wrote(key.bytes, Event::new(b'd', "bf.reserve"));
    out.ok();
    Ok(())
}

/// `BF.ADD key item`
pub(super) static BF_ADD: Command = Command::new("bf.add", Group::Bloom, 3)
    .writes(ANSWERED_KEY)
    .flags(Flags::DENYOOM)
    .doc(
        SINCE,
        "key item",
        "Adds an element to a Bloom filter, created if necessary, and returns whether it is new.",
    )
    .complexity("O(K), K being the count of hashes.")
    .on_keys(add);

fn add(cx: &mut ShardCx<'_>, args: &Args<'_>, out: &mut Out) -> CommandResult {
    let options = BloomOptions::defaults(cx.config);
    insert(cx, args, args.from(2), &options, None, out)
}

const EACH: &str = "O(K * N), K being the count of hashes and N that of elements.";

/// `BF.MADD key item [item ...]`
pub(super) static BF_MADD: Command = Command::new("bf.madd", Group::Bloom, -3)
    .writes(ANSWERED_KEY)
    .flags(Flags::DENYOOM)
    .doc(
        SINCE,
        "key item [item ...]",
        "Adds elements to a Bloom filter, created if necessary, and returns which of them are new.",
    )
    .complexity(EACH)
    .on_keys(madd);

fn madd(cx: &mut ShardCx<'_>, args: &Args<'_>, out: &mut Out) -> CommandResult {
    let options = BloomOptions::defaults(cx.config);
    insert(cx, args, args.from(2), &options, Some(()), out)
}

/// `BF.INSERT key [CAPACITY …] [ERROR …] [EXPANSION …] [NOCREATE] [NONSCALING] ITEMS item [item ...]`
pub(super) static BF_INSERT: Command = Command::new("bf.insert", Group::Bloom, -4)
    .writes(ANSWERED_KEY)
    .flags(Flags::DENYOOM)
    .doc(
        SINCE,
        "key [CAPACITY capacity:integer] [ERROR error:double] [EXPANSION expansion:integer] [NOCREATE] \
         [NONSCALING] ITEMS item [item ...]",
        "Adds elements to a Bloom filter, created with the given options if necessary.",
    )
    .complexity(EACH)
    .on_keys(insert_with_options);

fn insert_with_options(cx: &mut ShardCx<'_>, args: &Args<'_>, out: &mut Out) -> CommandResult {
    let arity = || CommandError::Arity("bf.insert");
    let mut options = BloomOptions::defaults(cx.config);
    let mut at = 2;
    while at < args.len() && !args.is(at, "items") {
        let word = at;
        let takes_value = ["capacity", "error", "expansion"]
            .iter()
            .any(|name| args.is(word, name));
        if takes_value {
            at += 1;
            if at >= args.len() {
                return Err(arity());
            }
        }
        if args.is(word, "capacity") {
            options.capacity = integer(args, at, "Bad capacity")?;
            if !is_capacity(options.capacity) {
                return Err("Bad capacity".into());
            }
        } else if args.is(word, "error") {
            options.error_rate = float(args, at, "Bad error rate")?;
            if !is_error_rate(options.error_rate) {
                return Err("Bad error rate".into());
            }
        } else if args.is(word, "expansion") {
            options.expansion = integer(args, at, "Bad expansion")?;
            if !is_expansion(options.expansion) {
                return Err("Bad expansion".into());
            }
        } else if args.is(word, "nocreate") {
            options.creates = false;
        } else if args.is(word, "nonscaling") {
            options.scales = false;
        } else {
            return Err("Unknown argument received".into());
        }
        at += 1;
    }
    if at + 1 >= args.len() {
        return Err(arity());
    }
    insert(cx, args, args.from(at + 1), &options, Some(()), out)
}

/// Adds elements; with `many` the reply is an array.
fn insert<'a>(
    cx: &mut ShardCx<'_>,
    args: &Args<'_>,
    items: impl Iterator<Item = &'a [u8]>,
    options: &BloomOptions,
    many: Option<()>,
    out: &mut Out,
) -> CommandResult {
    let key = args.key(1);
    let mut keyspace = cx.at(&key);
    let (place, mut changed) = match keyspace.find_typed(&key, DataType::Bloom)? {
        Some(place) => (place, false),
        None if options.creates => {
            let plan = options.plan()?;
            let place = keyspace.create(&key, || entry_of(key.bytes, plan.build()));
            (place, true)
        }
        None => return Err(NOT_FOUND.into()),
    };
    let mark = many.map(|()| out.later());
    let mut replies = 0;
    let mut failed = None;
    for item in items {
        match change(&mut keyspace, place, |filter: &mut Bloom| filter.add(item)) {
            Ok(is_new) => {
                changed |= is_new;
                out.boolean(is_new);
            }
            Err(error) => {
                failed = Some(match error {
                    NotAdded::Full => "ERR non scaling filter is full",
                    NotAdded::NoMemory => "ERR problem inserting into filter",
                });
            }
        }
        replies += 1;
        if failed.is_some() {
            break;
        }
    }
    if changed {
        keyspace.wrote(key.bytes, Event::new(b'd', "bf.add"));
    }
    match (mark, failed) {
        (Some(mark), failed) => {
            if let Some(text) = failed {
                out.error(text);
            }
            out.close_array(mark, replies);
            Ok(())
        }
        (None, Some(text)) => Err(text.into()),
        (None, None) => Ok(()),
    }
}

/// `BF.EXISTS key item`
pub(super) static BF_EXISTS: Command = Command::new("bf.exists", Group::Bloom, 3)
    .reads(READ_KEY)
    .flags(Flags::FAST)
    .doc(
        SINCE,
        "key item",
        "Returns whether an element may be in a Bloom filter.",
    )
    .complexity("O(K), K being the count of hashes.")
    .on_keys(exists);

fn exists(cx: &mut ShardCx<'_>, args: &Args<'_>, out: &mut Out) -> CommandResult {
    let key = args.key(1);
    let mut keyspace = cx.at(&key);
    // A key of another type is treated as missing.
    let filter = read::<Bloom>(&mut keyspace, &key, NOT_FOUND).ok();
    for item in args.from(2) {
        out.boolean(filter.is_some_and(|filter| filter.has(item)));
    }
    Ok(())
}

/// `BF.MEXISTS key item [item ...]`
pub(super) static BF_MEXISTS: Command = Command::new("bf.mexists", Group::Bloom, -3)
    .reads(READ_KEY)
    .flags(Flags::FAST)
    .doc(
        SINCE,
        "key item [item ...]",
        "Returns which elements may be in a Bloom filter.",
    )
    .complexity(EACH)
    .on_keys(mexists);

fn mexists(cx: &mut ShardCx<'_>, args: &Args<'_>, out: &mut Out) -> CommandResult {
    out.array(args.len() - 2);
    exists(cx, args, out)
}

/// `BF.CARD key`
pub(super) static BF_CARD: Command = Command::new("bf.card", Group::Bloom, 2)
    .reads(READ_KEY)
    .flags(Flags::FAST)
    .doc(
        SINCE,
        "key",
        "Returns the number of elements added to a Bloom filter.",
    )
    .on_keys(card);

fn card(cx: &mut ShardCx<'_>, args: &Args<'_>, out: &mut Out) -> CommandResult {
    let key = args.key(1);
    let mut keyspace = cx.at(&key);
    let count = match keyspace.read_typed(&key, DataType::Bloom)? {
        Some(place) => view::<Bloom>(keyspace.entry(place)).len(),
        None => 0,
    };
    out.integer(count as i64);
    Ok(())
}

/// `BF.INFO key [CAPACITY | SIZE | FILTERS | ITEMS | EXPANSION]`
pub(super) static BF_INFO: Command = Command::new("bf.info", Group::Bloom, -2)
    .reads(READ_KEY)
    .flags(Flags::FAST)
    .doc(
        SINCE,
        "key [CAPACITY | SIZE | FILTERS | ITEMS | EXPANSION]",
        "Returns information about a Bloom filter.",
    )
    .on_keys(info);

fn info(cx: &mut ShardCx<'_>, args: &Args<'_>, out: &mut Out) -> CommandResult {
    if args.len() > 3 {
        return Err(CommandError::Arity("bf.info"));
    }
    let key = args.key(1);
    let mut keyspace = cx.at(&key);
    let filter = read::<Bloom>(&mut keyspace, &key, NOT_FOUND)?;
    let facts = [
        ("capacity", "Capacity", Some(filter.capacity())),
        ("size", "Size", Some(filter.memory_bytes())),
        ("filters", "Number of filters", Some(filter.layers() as u64)),
        ("items", "Number of items inserted", Some(filter.len())),
        (
            "expansion",
            "Expansion rate",
            filter.growth().map(u64::from),
        ),
    ];
    let value = |value: Option<u64>, out: &mut Out| match value {
        Some(number) => out.integer(number as i64),
        None => out.null(),
    };
    if args.len() == 3 {
        let asked = facts.iter().find(|(word, ..)| args.is(2, word));
        let (_, name, fact) = *asked.ok_or("Invalid information value")?;
        if out.is_resp3() {
            out.map(1);
            out.simple(name);
        } else {
            out.array(1);
        }
        value(fact, out);
        return Ok(());
    }
    out.map(facts.len());
    for (_, name, fact) in facts {
        out.simple(name);
        value(fact, out);
    }
    Ok(())
}

/// `BF.DEBUG key`
pub(super) static BF_DEBUG: Command = Command::new("bf.debug", Group::Bloom, 2)
    .reads(READ_KEY)
    .flags(Flags::FAST)
    .doc(SINCE, "key", "Describes the layers of a Bloom filter.")
    .on_keys(debug);

fn debug(cx: &mut ShardCx<'_>, args: &Args<'_>, out: &mut Out) -> CommandResult {
    let key = args.key(1);
    let mut keyspace = cx.at(&key);
    let filter = read::<Bloom>(&mut keyspace, &key, NOT_FOUND)?;
    let layers = filter.describe_layers();
    out.array(1 + layers.len());
    out.bulk(format!("size:{}", filter.len()).as_bytes());
    for layer in layers {
        out.bulk(layer.as_bytes());
    }
    Ok(())
}

const WHOLE: &str = "O(N), N being the capacity.";

/// `BF.SCANDUMP key iterator`
pub(super) static BF_SCANDUMP: Command = Command::new("bf.scandump", Group::Bloom, 3)
    .reads(READ_KEY)
    .flags(Flags::FAST)
    .doc(
        SINCE,
        "key iterator:integer",
        "Returns a part of a Bloom filter and the position of the next part.",
    )
    .complexity(WHOLE)
    .on_keys(scandump);

fn scandump(cx: &mut ShardCx<'_>, args: &Args<'_>, out: &mut Out) -> CommandResult {
    let key = args.key(1);
    let mut keyspace = cx.at(&key);
    let filter = read::<Bloom>(&mut keyspace, &key, NOT_FOUND)?;
    let cursor = integer(args, 2, "Second argument must be numeric")?;
    out.array(2);
    if cursor == 0 {
        out.integer(1);
        out.bulk(&filter.header());
        return Ok(());
    }
    let cursor = u64::try_from(cursor).unwrap_or(0);
    let chunk = filter.chunk(cursor).unwrap_or(&[]);
    let next = if chunk.is_empty() {
        0
    } else {
        cursor as i64 + chunk.len() as i64
    };
    out.integer(next);
    out.bulk(chunk);
    Ok(())
}

/// `BF.LOADCHUNK key iterator data`
pub(super) static BF_LOADCHUNK: Command = Command::new("bf.loadchunk", Group::Bloom, 4)
    .writes(UPDATED_KEY)
    .flags(Flags::DENYOOM)
    .doc(
        SINCE,
        "key iterator:integer data",
        "Restores a part of a dumped Bloom filter.",
    )
    .complexity(WHOLE)
    .on_keys(loadchunk);

fn loadchunk(cx: &mut ShardCx<'_>, args: &Args<'_>, out: &mut Out) -> CommandResult {
    const BAD_DATA: &str = "ERR received bad data";
    let cursor = integer(args, 2, "ERR Second argument must be numeric")?;
    let (key, data) = (args.key(1), args.get(3));
    let mut keyspace = cx.at(&key);
    if keyspace.find_typed(&key, DataType::Bloom)?.is_none() && cursor == 1 {
        let plan = BloomParams::from_header(data).ok_or(BAD_DATA)?;
        keyspace.create(&key, || entry_of(key.bytes, plan.build()));
    } else {
        let place = find::<Bloom>(&mut keyspace, &key, NOT_FOUND)?;
        // The cursor that SCANDUMP returned is the offset of the end of the piece.
        let start = u64::try_from(cursor)
            .ok()
            .and_then(|end| end.checked_sub(data.len() as u64))
            .ok_or(BAD_DATA)?;
        if !change(&mut keyspace, place, |filter: &mut Bloom| {
            filter.load_chunk(start, data)
        }) {
            return Err(BAD_DATA.into());
        }
    }
    keyspace.wrote(key.bytes, Event::new(b'd', "bf.loadchunk"));
    out.ok();
    Ok(())
}
