//! TOPK.*: the elements that were added most often.

use super::{ANSWERED_KEY, INSERTED_KEY, READ_KEY, SINCE, find, float, integer, read};
use crate::command::context::ShardCx;
use crate::command::declaration::{Command, CommandResult, Flags, Group};
use crate::command::error::CommandError;
use crate::command::{Args, Out};
use basalt_core::alloc::account;
use basalt_core::base::number;
use basalt_core::structures::sketch::top_k::{TopK, TopKParams};
use basalt_engine::effect::Event;
use basalt_engine::value::sketch::{entry_of, view, view_mut};

const MISSING: &str = "TopK: key does not exist";

/// `TOPK.RESERVE key topk [width depth decay]`
pub(super) static TOPK_RESERVE: Command = Command::new("topk.reserve", Group::TopK, -3)
    .writes(INSERTED_KEY)
    .flags(Flags::DENYOOM)
    .doc(
        SINCE,
        "key topk:integer [width:integer depth:integer decay:double]",
        "Creates a list of the k most frequent elements.",
    )
    .on_keys(reserve);

fn reserve(cx: &mut ShardCx<'_>, args: &Args<'_>, out: &mut Out) -> CommandResult {
    const DEFAULTS: (u32, u32, f64) = (8, 7, 0.9);
    if args.len() != 3 && args.len() != 6 {
        return Err(CommandError::Arity("topk.reserve"));
    }
    let key = args.key(1);
    let mut keyspace = cx.at(&key);
    if keyspace.find_write(&key).is_some() {
        return Err("TopK: key already exists".into());
    }
    let positive = |index, error| {
        let number = u32::try_from(integer(args, index, error)?).unwrap_or(0);
        Some(number)
            .filter(|number| *number > 0)
            .ok_or_else(|| CommandError::from(error))
    };
    let k = positive(2, "TopK: invalid k")?;
    let (width, depth, decay) = if args.len() == 3 {
        DEFAULTS
    } else {
        const DECAY: &str = "TopK: invalid decay value. must be '<= 1' & '> 0'";
        let width = positive(3, "TopK: invalid width")?;
        let depth = positive(4, "TopK: invalid depth")?;
        let decay = float(args, 5, DECAY)?;
        if !(decay > 0.0 && decay <= 1.0) {
            return Err(DECAY.into());
        }
        (width, depth, decay)
    };
    let plan = TopKParams::new(k, width, depth, decay)
        .ok_or("ERR Insufficient memory to create topk data structure")?;
    keyspace.create(&key, || entry_of(key.bytes, plan.build()));
    keyspace.wrote(key.bytes, Event::new(b'd', "topk.reserve"));
    out.ok();
    Ok(())
}

const EACH: &str =
    "O(N * (K + D)), N being the count of elements, K the length of the list and D the depth.";

/// `TOPK.ADD key items [items ...]`
pub(super) static TOPK_ADD: Command = Command::new("topk.add", Group::TopK, -3)
    .writes(ANSWERED_KEY)
    .flags(Flags::DENYOOM)
    .doc(
        SINCE,
        "key items [items ...]",
        "Counts elements once each and returns the elements that they replaced in the list.",
    )
    .complexity(EACH)
    .takes_long()
    .on_keys(add);

fn add(cx: &mut ShardCx<'_>, args: &Args<'_>, out: &mut Out) -> CommandResult {
    let items = args.from(2).map(|item| (item, 1));
    count(cx, args, items, "topk.add", out)
}

/// `TOPK.INCRBY key item increment [item increment ...]`
pub(super) static TOPK_INCRBY: Command = Command::new("topk.incrby", Group::TopK, -4)
    .writes(ANSWERED_KEY)
    .flags(Flags::DENYOOM)
    .doc(
        SINCE,
        "key item increment:integer [item increment:integer ...]",
        "Counts elements several times each and returns the elements that they replaced in the list.",
    )
    .complexity(EACH)
    .takes_long()
    .on_keys(incrby);

fn incrby(cx: &mut ShardCx<'_>, args: &Args<'_>, out: &mut Out) -> CommandResult {
    const INCREMENT_MAX: i64 = 100_000;
    if !args.len().is_multiple_of(2) {
        return Err(CommandError::Arity("topk.incrby"));
    }
    {
        let key = args.key(1);
        find::<TopK>(&mut cx.at(&key), &key, MISSING)?;
    }
    let increment = |at| {
        number::parse_i64(args.get(at))
            .filter(|increment| (0..=INCREMENT_MAX).contains(increment))
            .map(|increment| increment as u32)
    };
    let mut places = (2..args.len()).step_by(2);
    if places.clone().any(|at| increment(at + 1).is_none()) {
        return Err(
            "TopK: increment must be an integer greater or equal to 0 and smaller or equal to 100,000".into(),
        );
    }
    let items = std::iter::from_fn(|| {
        let at = places.next()?;
        Some((args.get(at), increment(at + 1)?))
    });
    count(cx, args, items, "topk.incrby", out)
}

fn count<'a>(
    cx: &mut ShardCx<'_>,
    args: &Args<'_>,
    items: impl Iterator<Item = (&'a [u8], u32)>,
    name: &'static str,
    out: &mut Out,
) -> CommandResult {
    let (key, scales) = (args.key(1), cx.scales());
    let mut keyspace = cx.at(&key);
    let place = find::<TopK>(&mut keyspace, &key, MISSING)?;
    scales.weigh(touched(view::<TopK>(keyspace.entry(place)), args.len() - 2))?;
    let mut random = keyspace.engine().random.fork();
    let mark = out.later();
    let mut replies = 0;
    for (item, times) in items {
        let gone = keyspace.edit(place, |entry| {
            let gone = view_mut::<TopK>(entry).add(item, times, &mut random);
            // Bytes that are returned to the client must not be charged to the shard.
            gone.map(|gone| account::uncharged(|| gone.to_vec()))
        });
        match gone {
            Some(gone) => out.bulk(&gone),
            None => out.null(),
        }
        replies += 1;
    }
    out.close_array(mark, replies);
    keyspace.wrote(key.bytes, Event::new(b'd', name));
    Ok(())
}

/// Returns the number of counters that adding `elements` elements touches.
fn touched(sketch: &TopK, elements: usize) -> usize {
    let (.., depth, _) = sketch.settings();
    elements.saturating_mul(depth as usize)
}

/// `TOPK.QUERY key item [item ...]`
pub(super) static TOPK_QUERY: Command = Command::new("topk.query", Group::TopK, -3)
    .reads(READ_KEY)
    .doc(
        SINCE,
        "key item [item ...]",
        "Returns which elements are in the list of the most frequent.",
    )
    .complexity("O(N), N being the count of elements.")
    .on_keys(query);

fn query(cx: &mut ShardCx<'_>, args: &Args<'_>, out: &mut Out) -> CommandResult {
    let key = args.key(1);
    let mut keyspace = cx.at(&key);
    let sketch = read::<TopK>(&mut keyspace, &key, MISSING)?;
    out.array(args.len() - 2);
    for item in args.from(2) {
        out.boolean(sketch.has(item));
    }
    Ok(())
}

/// `TOPK.COUNT key item [item ...]`
pub(super) static TOPK_COUNT: Command = Command::new("topk.count", Group::TopK, -3)
    .reads(READ_KEY)
    .doc(
        SINCE,
        "key item [item ...]",
        "Returns estimates of how often elements were counted.",
    )
    .complexity("O(N * D), N being the count of elements and D the depth.")
    .takes_long()
    .on_keys(count_of);

fn count_of(cx: &mut ShardCx<'_>, args: &Args<'_>, out: &mut Out) -> CommandResult {
    let (key, scales) = (args.key(1), cx.scales());
    let mut keyspace = cx.at(&key);
    let sketch = read::<TopK>(&mut keyspace, &key, MISSING)?;
    scales.weigh(touched(sketch, args.len() - 2))?;
    out.array(args.len() - 2);
    for item in args.from(2) {
        out.integer(i64::from(sketch.count(item)));
    }
    Ok(())
}

/// `TOPK.LIST key [WITHCOUNT]`
pub(super) static TOPK_LIST: Command = Command::new("topk.list", Group::TopK, -2)
    .reads(READ_KEY)
    .doc(
        SINCE,
        "key [WITHCOUNT]",
        "Returns the most frequent elements, the most frequent one first.",
    )
    .complexity("O(K log K), K being the length of the list.")
    .on_keys(list);

fn list(cx: &mut ShardCx<'_>, args: &Args<'_>, out: &mut Out) -> CommandResult {
    let with_count = match args.len() {
        2 => false,
        3 if args.is(2, "withcount") => true,
        3 => return Err("WITHCOUNT keyword expected".into()),
        _ => return Err(CommandError::Arity("topk.list")),
    };
    let key = args.key(1);
    let mut keyspace = cx.at(&key);
    let list = read::<TopK>(&mut keyspace, &key, MISSING)?.list();
    out.array(list.len() * if with_count { 2 } else { 1 });
    for (item, count) in list {
        out.bulk(item);
        if with_count {
            out.integer(i64::from(count));
        }
    }
    Ok(())
}

/// `TOPK.INFO key`
pub(super) static TOPK_INFO: Command = Command::new("topk.info", Group::TopK, 2)
    .reads(READ_KEY)
    .doc(
        SINCE,
        "key",
        "Returns information about a list of the most frequent elements.",
    )
    .on_keys(info);

fn info(cx: &mut ShardCx<'_>, args: &Args<'_>, out: &mut Out) -> CommandResult {
    let key = args.key(1);
    let mut keyspace = cx.at(&key);
    let (k, width, depth, decay) = read::<TopK>(&mut keyspace, &key, MISSING)?.settings();
    out.map(4);
    for (name, fact) in [("k", k), ("width", width), ("depth", depth)] {
        out.simple(name);
        out.integer(i64::from(fact));
    }
    out.simple("decay");
    out.double(decay);
    Ok(())
}
