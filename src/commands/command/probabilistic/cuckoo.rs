//! CF.*: cuckoo filters, from which elements can be removed.

use super::{
    ANSWERED_KEY, CAPACITY_MAX, EXISTS, EXPANSION_MAX, INSERTED_KEY, NOT_FOUND, READ_KEY, SINCE,
    UPDATED_KEY, change, find, integer, read,
};
use crate::command::context::ShardCx;
use crate::command::declaration::{Command, CommandResult, Flags, Group, KeyFlags, KeySpec};
use crate::command::error::CommandError;
use crate::command::{Args, Out};
use crate::config::Config;
use basalt_core::structures::sketch::cuckoo::{Added, Cuckoo, CuckooParams};
use basalt_engine::effect::Event;
use basalt_engine::value::DataType;
use basalt_engine::value::sketch::{entry_of, view};

const NO_MEMORY: &str = "ERR Insufficient memory to create filter";
const BUCKET_SIZE_MAX: i64 = 255;
const MOVES_MAX: i64 = 65_535;

/// Parameters of a new filter.
struct CuckooOptions {
    capacity: i64,
    bucket_size: i64,
    moves_max: i64,
    expansion: i64,
    creates: bool,
}

impl CuckooOptions {
    fn defaults(config: &Config) -> CuckooOptions {
        CuckooOptions {
            capacity: config.cf_initial_size,
            bucket_size: config.cf_bucket_size,
            moves_max: config.cf_max_iterations,
            expansion: config.cf_expansion_factor,
            creates: true,
        }
    }

    fn plan(&self) -> Result<CuckooParams, CommandError> {
        let short = |number: i64| u16::try_from(number).unwrap_or(u16::MAX);
        CuckooParams::new(
            u64::try_from(self.capacity).unwrap_or(0),
            short(self.bucket_size),
            short(self.moves_max),
            short(self.expansion),
        )
        .ok_or_else(|| NO_MEMORY.into())
    }
}

/// `CF.RESERVE key capacity [BUCKETSIZE bucketsize] [MAXITERATIONS maxiterations] [EXPANSION expansion]`
pub(super) static CF_RESERVE: Command = Command::new("cf.reserve", Group::Cuckoo, -3)
    .writes(INSERTED_KEY)
    .flags(Flags::DENYOOM)
    .doc(
        SINCE,
        "key capacity:integer [BUCKETSIZE bucketsize:integer] [MAXITERATIONS maxiterations:integer] \
         [EXPANSION expansion:integer]",
        "Creates an empty cuckoo filter with the given capacity.",
    )
    .on_keys(reserve);

fn reserve(cx: &mut ShardCx<'_>, args: &Args<'_>, out: &mut Out) -> CommandResult {
    if args.len().is_multiple_of(2) {
        return Err(CommandError::Arity("cf.reserve"));
    }
    let mut options = CuckooOptions::defaults(cx.config);
    options.capacity = integer(args, 2, "Bad capacity")?;
    for word in (3..args.len()).step_by(2) {
        let (field, range, error) = if args.is(word, "maxiterations") {
            (
                &mut options.moves_max,
                1..=MOVES_MAX,
                (
                    "Couldn't parse MAXITERATIONS",
                    "MAXITERATIONS: value must be in the range [1, 65535]",
                ),
            )
        } else if args.is(word, "bucketsize") {
            (
                &mut options.bucket_size,
                1..=BUCKET_SIZE_MAX,
                (
                    "Couldn't parse BUCKETSIZE",
                    "BUCKETSIZE: value must be in the range [1, 255]",
                ),
            )
        } else if args.is(word, "expansion") {
            (
                &mut options.expansion,
                0..=EXPANSION_MAX,
                (
                    "Couldn't parse EXPANSION",
                    "EXPANSION: value must be in the range [0, 32768]",
                ),
            )
        } else {
            return Err(CommandError::Syntax);
        };
        let (unreadable, out_of_range) = error;
        *field = integer(args, word + 1, unreadable)?;
        if !range.contains(field) {
            return Err(out_of_range.into());
        }
    }
    if options.capacity > CAPACITY_MAX || options.capacity < options.bucket_size * 2 {
        return Err("Capacity must be in the range [2 * BUCKETSIZE, 1073741824]".into());
    }
    let key = args.key(1);
    let mut keyspace = cx.at(&key);
    if keyspace.find_typed(&key, DataType::Cuckoo)?.is_some() {
        return Err(EXISTS.into());
    }
    let plan = options.plan()?;
    keyspace.create(&key, || entry_of(key.bytes, plan.build()));
    keyspace.wrote(key.bytes, Event::new(b'd', "cf.reserve"));
    out.ok();
    Ok(())
}

/// The command that adds elements, which determines the reply.
#[derive(Clone, Copy, PartialEq, Eq)]
enum CuckooAddMode {
    /// CF.ADD: one element, which may exist.
    One,
    /// CF.ADDNX: one element, unless it exists.
    OneNew,
    /// CF.INSERT: several elements, which may exist.
    Many,
    /// CF.INSERTNX: several elements, unless they exist.
    ManyNew,
}

const ADD_COMPLEXITY: &str = "O(K + I), K being the count of layers and I that of moves.";
const INSERT_COMPLEXITY: &str =
    "O(N * (K + I)), N being the count of elements, K that of layers and I that of moves.";

/// `CF.ADD key item`
pub(super) static CF_ADD: Command = Command::new("cf.add", Group::Cuckoo, 3)
    .writes(INSERTED_KEY)
    .flags(Flags::DENYOOM)
    .doc(
        SINCE,
        "key item",
        "Adds an element to a cuckoo filter, created if necessary.",
    )
    .complexity(ADD_COMPLEXITY)
    .on_keys(add);

fn add(cx: &mut ShardCx<'_>, args: &Args<'_>, out: &mut Out) -> CommandResult {
    let options = CuckooOptions::defaults(cx.config);
    insert(cx, args, 2, &options, CuckooAddMode::One, out)
}

/// `CF.ADDNX key item`
pub(super) static CF_ADDNX: Command = Command::new("cf.addnx", Group::Cuckoo, 3)
    .writes(ANSWERED_KEY)
    .flags(Flags::DENYOOM)
    .doc(
        SINCE,
        "key item",
        "Adds an element to a cuckoo filter unless it seems to be in it.",
    )
    .complexity(ADD_COMPLEXITY)
    .on_keys(addnx);

fn addnx(cx: &mut ShardCx<'_>, args: &Args<'_>, out: &mut Out) -> CommandResult {
    let options = CuckooOptions::defaults(cx.config);
    insert(cx, args, 2, &options, CuckooAddMode::OneNew, out)
}

/// `CF.INSERT key [CAPACITY capacity] [NOCREATE] ITEMS item [item ...]`
pub(super) static CF_INSERT: Command = Command::new("cf.insert", Group::Cuckoo, -4)
    .writes(INSERTED_KEY)
    .flags(Flags::DENYOOM)
    .doc(
        SINCE,
        "key [CAPACITY capacity:integer] [NOCREATE] ITEMS item [item ...]",
        "Adds elements to a cuckoo filter, created with the given options if necessary.",
    )
    .complexity(INSERT_COMPLEXITY)
    .on_keys(|cx, args, out| insert_with_options(cx, args, CuckooAddMode::Many, out));

/// `CF.INSERTNX key [CAPACITY capacity] [NOCREATE] ITEMS item [item ...]`
pub(super) static CF_INSERTNX: Command = Command::new("cf.insertnx", Group::Cuckoo, -4)
    .writes(ANSWERED_KEY)
    .flags(Flags::DENYOOM)
    .doc(
        SINCE,
        "key [CAPACITY capacity:integer] [NOCREATE] ITEMS item [item ...]",
        "Adds elements to a cuckoo filter that do not seem to be in it.",
    )
    .complexity(INSERT_COMPLEXITY)
    .on_keys(|cx, args, out| insert_with_options(cx, args, CuckooAddMode::ManyNew, out));

fn insert_with_options(
    cx: &mut ShardCx<'_>,
    args: &Args<'_>,
    mode: CuckooAddMode,
    out: &mut Out,
) -> CommandResult {
    const CAPACITY_MIN: i64 = 4;
    let name = cx.command.name;
    let mut options = CuckooOptions::defaults(cx.config);
    let mut at = 2;
    while at < args.len() && !args.is(at, "items") {
        if args.is(at, "capacity") {
            at += 1;
            if at >= args.len() {
                return Err(CommandError::Arity(name));
            }
            options.capacity = integer(args, at, "Bad capacity")?;
            if !(CAPACITY_MIN..=CAPACITY_MAX).contains(&options.capacity) {
                return Err(
                    "Capacity must be in the range [cf-bucket-size * 2, 1073741824]".into(),
                );
            }
        } else if args.is(at, "nocreate") {
            options.creates = false;
        } else {
            return Err("Unknown argument received".into());
        }
        at += 1;
    }
    if at + 1 >= args.len() {
        return Err(CommandError::Arity(name));
    }
    insert(cx, args, at + 1, &options, mode, out)
}

fn insert(
    cx: &mut ShardCx<'_>,
    args: &Args<'_>,
    items_at: usize,
    options: &CuckooOptions,
    mode: CuckooAddMode,
    out: &mut Out,
) -> CommandResult {
    let layers_max = usize::try_from(cx.config.cf_max_expansions).unwrap_or(1);
    let key = args.key(1);
    let mut keyspace = cx.at(&key);
    let found = keyspace.find_typed(&key, DataType::Cuckoo)?;
    let layers = match found {
        Some(place) => view::<Cuckoo>(keyspace.entry(place)).layers(),
        None => usize::from(options.creates),
    };
    if layers >= layers_max {
        return Err("Maximum expansions reached".into());
    }
    let (place, mut changed) = match found {
        Some(place) => (place, false),
        None if options.creates => {
            if options.capacity < options.bucket_size * 2 {
                return Err("ERR Could not create filter".into());
            }
            let plan = options.plan()?;
            let place = keyspace.create(&key, || entry_of(key.bytes, plan.build()));
            (place, true)
        }
        None => return Err(NOT_FOUND.into()),
    };
    let items = args.from(items_at);
    if matches!(mode, CuckooAddMode::Many | CuckooAddMode::ManyNew) {
        out.array(items.len());
    }
    for item in items {
        let added = change(&mut keyspace, place, |filter: &mut Cuckoo| match mode {
            CuckooAddMode::One | CuckooAddMode::Many => filter.add(item),
            CuckooAddMode::OneNew | CuckooAddMode::ManyNew => filter.add_new(item),
        });
        changed |= added == Added::Yes;
        match (mode, added) {
            (CuckooAddMode::ManyNew, added) => out.integer(match added {
                Added::Yes => 1,
                Added::Exists => 0,
                Added::Full | Added::NoMemory => -1,
            }),
            (_, Added::Yes) => out.boolean(true),
            (_, Added::Exists) => out.boolean(false),
            (CuckooAddMode::Many, _) if out.is_resp3() => out.boolean(false),
            (CuckooAddMode::Many, _) => out.integer(-1),
            (_, Added::Full) => return Err("Filter is full".into()),
            (_, Added::NoMemory) => return Err("ERR Insufficient memory".into()),
        }
    }
    if changed {
        keyspace.wrote(key.bytes, Event::new(b'd', "cf.add"));
    }
    Ok(())
}

/// `CF.EXISTS key item`
pub(super) static CF_EXISTS: Command = Command::new("cf.exists", Group::Cuckoo, 3)
    .reads(READ_KEY)
    .flags(Flags::FAST)
    .doc(
        SINCE,
        "key item",
        "Returns whether an element may be in a cuckoo filter.",
    )
    .complexity("O(K), K being the count of layers.")
    .on_keys(exists);

fn exists(cx: &mut ShardCx<'_>, args: &Args<'_>, out: &mut Out) -> CommandResult {
    let key = args.key(1);
    let mut keyspace = cx.at(&key);
    // A key of another type is treated as missing.
    let filter = read::<Cuckoo>(&mut keyspace, &key, NOT_FOUND).ok();
    for item in args.from(2) {
        out.boolean(filter.is_some_and(|filter| filter.has(item)));
    }
    Ok(())
}

/// `CF.MEXISTS key item [item ...]`
pub(super) static CF_MEXISTS: Command = Command::new("cf.mexists", Group::Cuckoo, -3)
    .reads(READ_KEY)
    .flags(Flags::FAST)
    .doc(
        SINCE,
        "key item [item ...]",
        "Returns which elements may be in a cuckoo filter.",
    )
    .complexity("O(K * N), K being the count of layers and N that of elements.")
    .on_keys(mexists);

fn mexists(cx: &mut ShardCx<'_>, args: &Args<'_>, out: &mut Out) -> CommandResult {
    out.array(args.len() - 2);
    exists(cx, args, out)
}

/// `CF.COUNT key item`
pub(super) static CF_COUNT: Command = Command::new("cf.count", Group::Cuckoo, 3)
    .reads(READ_KEY)
    .flags(Flags::FAST)
    .doc(
        SINCE,
        "key item",
        "Returns an estimate of how often an element is in a cuckoo filter.",
    )
    .complexity("O(K), K being the count of layers.")
    .on_keys(count);

fn count(cx: &mut ShardCx<'_>, args: &Args<'_>, out: &mut Out) -> CommandResult {
    let key = args.key(1);
    let mut keyspace = cx.at(&key);
    let filter = read::<Cuckoo>(&mut keyspace, &key, NOT_FOUND).ok();
    out.integer(filter.map_or(0, |filter| filter.count(args.get(2)) as i64));
    Ok(())
}

/// `CF.DEL key item`
pub(super) static CF_DEL: Command = Command::new("cf.del", Group::Cuckoo, 3)
    .writes(&[KeySpec::one(
        1,
        KeyFlags::RW.or(KeyFlags::ACCESS).or(KeyFlags::DELETE),
    )])
    .flags(Flags::FAST)
    .doc(
        SINCE,
        "key item",
        "Removes one occurrence of an element from a cuckoo filter.",
    )
    .complexity("O(K), K being the count of layers.")
    .on_keys(del);

fn del(cx: &mut ShardCx<'_>, args: &Args<'_>, out: &mut Out) -> CommandResult {
    let key = args.key(1);
    let mut keyspace = cx.at(&key);
    let place = find::<Cuckoo>(&mut keyspace, &key, "Not found")?;
    let removed = change(&mut keyspace, place, |filter: &mut Cuckoo| {
        filter.remove(args.get(2))
    });
    if removed {
        keyspace.wrote(key.bytes, Event::new(b'd', "cf.del"));
    }
    out.boolean(removed);
    Ok(())
}

/// `CF.INFO key`
pub(super) static CF_INFO: Command = Command::new("cf.info", Group::Cuckoo, 2)
    .reads(READ_KEY)
    .flags(Flags::FAST)
    .doc(SINCE, "key", "Returns information about a cuckoo filter.")
    .on_keys(info);

fn info(cx: &mut ShardCx<'_>, args: &Args<'_>, out: &mut Out) -> CommandResult {
    let key = args.key(1);
    let mut keyspace = cx.at(&key);
    let filter = read::<Cuckoo>(&mut keyspace, &key, NOT_FOUND)?;
    let (bucket_size, moves_max, expansion) = filter.settings();
    let facts = [
        ("Size", filter.memory_bytes()),
        ("Number of buckets", filter.buckets()),
        ("Number of filters", filter.layers() as u64),
        ("Number of items inserted", filter.len()),
        ("Number of items deleted", filter.removed()),
        ("Bucket size", u64::from(bucket_size)),
        ("Expansion rate", u64::from(expansion)),
        ("Max iterations", u64::from(moves_max)),
    ];
    out.map(facts.len());
    for (name, fact) in facts {
        out.simple(name);
        out.integer(fact as i64);
    }
    Ok(())
}

/// `CF.DEBUG key`
pub(super) static CF_DEBUG: Command = Command::new("cf.debug", Group::Cuckoo, 2)
    .reads(READ_KEY)
    .flags(Flags::FAST)
    .doc(SINCE, "key", "Describes a cuckoo filter in one line.")
    .on_keys(debug);

fn debug(cx: &mut ShardCx<'_>, args: &Args<'_>, out: &mut Out) -> CommandResult {
    let key = args.key(1);
    let mut keyspace = cx.at(&key);
    let filter = read::<Cuckoo>(&mut keyspace, &key, NOT_FOUND)?;
    let (bucket_size, moves_max, expansion) = filter.settings();
    let text = format!(
        "bktsize:{bucket_size} buckets:{} items:{} deletes:{} filters:{} max_iterations:{moves_max} \
         expansion:{expansion}",
        filter.buckets(),
        filter.len(),
        filter.removed(),
        filter.layers(),
    );
    out.bulk(text.as_bytes());
    Ok(())
}

const WHOLE: &str = "O(N), N being the capacity.";

/// `CF.SCANDUMP key iterator`
pub(super) static CF_SCANDUMP: Command = Command::new("cf.scandump", Group::Cuckoo, 3)
    .reads(READ_KEY)
    .flags(Flags::FAST)
    .doc(
        SINCE,
        "key iterator:integer",
        "Returns a part of a cuckoo filter and the position of the next part.",
    )
    .complexity(WHOLE)
    .on_keys(scandump);

const INVALID_POSITION: &str = "Invalid position";

fn scandump(cx: &mut ShardCx<'_>, args: &Args<'_>, out: &mut Out) -> CommandResult {
    let cursor = integer(args, 2, INVALID_POSITION)?;
    let cursor = u64::try_from(cursor).map_err(|_| CommandError::from(INVALID_POSITION))?;
    let key = args.key(1);
    let mut keyspace = cx.at(&key);
    let filter = read::<Cuckoo>(&mut keyspace, &key, NOT_FOUND)?;
    out.array(2);
    if cursor == 0 && !filter.is_empty() {
        out.integer(1);
        out.bulk(&filter.header());
        return Ok(());
    }
    match filter.chunk(cursor).filter(|_| !filter.is_empty()) {
        Some(chunk) => {
            out.integer(cursor as i64 + chunk.len() as i64);
            out.bulk(chunk);
        }
        None => {
            out.integer(0);
            out.null();
        }
    }
    Ok(())
}

/// `CF.LOADCHUNK key iterator data`
pub(super) static CF_LOADCHUNK: Command = Command::new("cf.loadchunk", Group::Cuckoo, 4)
    .writes(UPDATED_KEY)
    .flags(Flags::DENYOOM)
    .doc(
        SINCE,
        "key iterator:integer data",
        "Restores a part of a dumped cuckoo filter.",
    )
    .complexity(WHOLE)
    .on_keys(loadchunk);

fn loadchunk(cx: &mut ShardCx<'_>, args: &Args<'_>, out: &mut Out) -> CommandResult {
    const HEADER_BYTES: usize = 38;
    const NOT_LOADED: &str = "Couldn't load chunk!";
    let cursor = integer(args, 2, INVALID_POSITION)?;
    if cursor == 0 {
        return Err(INVALID_POSITION.into());
    }
    let (key, data) = (args.key(1), args.get(3));
    let mut keyspace = cx.at(&key);
    if cursor == 1 {
        if keyspace.find_typed(&key, DataType::Cuckoo)?.is_some() {
            return Err(EXISTS.into());
        }
        if data.len() != HEADER_BYTES {
            return Err("Invalid header".into());
        }
        let plan = CuckooParams::from_header(data).ok_or("Couldn't create filter!")?;
        keyspace.create(&key, || entry_of(key.bytes, plan.build()));
    } else {
        let place = find::<Cuckoo>(&mut keyspace, &key, NOT_FOUND)?;
        // The cursor that SCANDUMP returned is the offset of the end of the piece.
        let start = u64::try_from(cursor)
            .ok()
            .and_then(|end| end.checked_sub(data.len() as u64))
            .filter(|_| !data.is_empty())
            .ok_or(NOT_LOADED)?;
        if !change(&mut keyspace, place, |filter: &mut Cuckoo| {
            filter.load_chunk(start, data)
        }) {
            return Err(NOT_LOADED.into());
        }
    }
    keyspace.wrote(key.bytes, Event::new(b'd', "cf.loadchunk"));
    out.ok();
    Ok(())
}
