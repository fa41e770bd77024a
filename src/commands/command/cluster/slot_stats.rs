//! Statistics of a node's slots: the number of keys, which is always counted, and the costs of requests for them,
//! which are counted with `cluster-slot-stats-enabled`.

use super::super::context::{Gather, ShardCx};
use super::super::declaration::{Command, CommandResult, Flags};
use super::super::error::CommandError;
use super::super::{Args, Out};
use super::GROUP;
use super::slots::check_enabled;
use basalt_core::base::hash::SLOTS;
use basalt_core::base::lossless;

/// `CLUSTER SLOT-STATS <SLOTSRANGE start-slot end-slot | ORDERBY metric [LIMIT limit] [ASC | DESC]>`
pub(super) static SLOT_STATS: Command = Command::sub("cluster|slot-stats", "slot-stats", GROUP, -4)
    .flags(Flags::STALE.or(Flags::LOADING))
    .doc(
        "8.0.0",
        "<SLOTSRANGE start-slot end-slot | ORDERBY metric [LIMIT limit] [ASC | DESC]>",
        "Returns the number of keys, CPU time and network bytes of each hash slot of this node.",
    )
    .complexity("O(N) for N slots that are looked at, O(N log N) with ORDERBY.")
    .tips(&["nondeterministic_output", "request_policy:all_shards"])
    .on_each_shard(part, merge);

/// The metrics of a slot, in the order of replies: the first is always counted, the others only if configured.
const METRICS: [&str; 4] = [
    "key-count",
    "cpu-usec",
    "network-bytes-in",
    "network-bytes-out",
];

/// A slot and its figures, in the order of [`METRICS`].
struct SlotStatsRow {
    slot: u16,
    figures: Vec<u64>,
}

impl SlotStatsRow {
    fn to_bytes(&self) -> Vec<u8> {
        let figures = self.figures.iter().flat_map(|figure| figure.to_be_bytes());
        self.slot.to_be_bytes().into_iter().chain(figures).collect()
    }

    fn of_bytes(bytes: &[u8]) -> Option<SlotStatsRow> {
        let (slot, figures) = bytes.split_first_chunk()?;
        let (figures, _) = figures.as_chunks();
        Some(SlotStatsRow {
            slot: u16::from_be_bytes(*slot),
            figures: figures
                .iter()
                .map(|bytes| u64::from_be_bytes(*bytes))
                .collect(),
        })
    }
}

/// The requested slots, and their order.
struct SlotStatsQuery {
    first: u16,
    last: u16,
    /// The index in [`METRICS`] by which the slots are sorted, and the direction; None: in the order of the slots.
    order: Option<(usize, SlotStatsOrder)>,
    limit: usize,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum SlotStatsOrder {
    Ascending,
    Descending,
}

impl SlotStatsQuery {
    /// Parses the request; `metrics` are those that it may be ordered by.
    fn read(args: &Args<'_>, metrics: &[&str]) -> Result<SlotStatsQuery, CommandError> {
        if args.is(2, "slotsrange") && args.len() == 5 {
            let (first, last) = (slot_at(args, 3)?, slot_at(args, 4)?);
            if first > last {
                return Err(format!(
                    "ERR Start slot number {first} is greater than end slot number {last}"
                )
                .into());
            }
            let limit = usize::from(SLOTS);
            let order = None;
            return Ok(SlotStatsQuery {
                first,
                last,
                order,
                limit,
            });
        }
        if !args.is(2, "orderby") {
            let name = lossless::text_of(args.get(1));
            return Err(format!(
                "ERR unknown subcommand or wrong number of arguments for '{name}'. Try CLUSTER HELP."
            )
            .into());
        }
        let Some(metric) = metrics.iter().position(|name| args.is(3, name)) else {
            return Err("ERR Unrecognized sort metric for ORDERBY.".into());
        };
        let (limit, order) = filters(args)?;
        Ok(SlotStatsQuery {
            first: 0,
            last: SLOTS - 1,
            order: Some((metric, order.unwrap_or(SlotStatsOrder::Descending))),
            limit: limit.unwrap_or(usize::from(SLOTS)),
        })
    }
}

/// Parses LIMIT, and ASC or DESC, each at most once.
fn filters(args: &Args<'_>) -> Result<(Option<usize>, Option<SlotStatsOrder>), CommandError> {
    const TWICE: &str = "ERR Multiple filters of the same type are disallowed.";
    let (mut limit, mut order, mut at) = (None, None, 4);
    while at < args.len() {
        let known = match () {
            () if args.is(at, "limit") && at + 1 < args.len() => {
                let number = args.integer(at + 1).ok();
                let number = number.and_then(|number| usize::try_from(number).ok());
                let number = number.filter(|number| (1..=usize::from(SLOTS)).contains(number));
                at += 1;
                limit
                    .replace(number.ok_or(
                        "ERR Limit has to lie in between 1 and 16384 (maximum number of slots).",
                    )?)
                    .is_some()
            }
            () if args.is(at, "asc") => order.replace(SlotStatsOrder::Ascending).is_some(),
            () if args.is(at, "desc") => order.replace(SlotStatsOrder::Descending).is_some(),
            () => return Err(CommandError::Syntax),
        };
        if known {
            return Err(TWICE.into());
        }
        at += 1;
    }
    Ok((limit, order))
}

fn slot_at(args: &Args<'_>, at: usize) -> Result<u16, CommandError> {
    let number = args.integer(at).ok();
    let slot = number.and_then(|number| u16::try_from(number).ok());
    slot.filter(|slot| *slot < SLOTS)
        .ok_or_else(|| "ERR Invalid or out of range slot".into())
}

/// Returns the rows of the slots of one shard.
fn part(cx: &mut ShardCx<'_>, args: &Args<'_>, gather: &mut Gather) -> CommandResult {
    check_enabled(cx)?;
    let counts = cx.config.cluster_slot_stats_enabled;
    let metrics = &METRICS[..if counts { METRICS.len() } else { 1 }];
    let SlotStatsQuery { first, last, .. } = SlotStatsQuery::read(args, metrics)?;
    let (shard, databases) = (cx.shard, cx.config.databases as usize);
    for slot in (first..=last).filter(|slot| slot % shard.count == shard.index) {
        let routes = gather.routes.as_ref();
        if routes.is_some_and(|routes| !routes.map.is_of_my_shard(slot)) {
            continue;
        }
        let keys = (0..databases).map(|db| cx.keyspace(0, db).keys_in_slot(slot));
        let mut figures = vec![keys.sum()];
        if counts {
            let usage = cx.engine(0).slot_usage(slot);
            figures.extend([usage.cpu_ns / 1_000, usage.bytes_in, usage.bytes_out]);
        }
        gather.rows.push(SlotStatsRow { slot, figures }.to_bytes());
    }
    Ok(())
}

fn merge(args: &Args<'_>, gather: Gather, out: &mut Out) -> CommandResult {
    let SlotStatsQuery { order, limit, .. } = SlotStatsQuery::read(args, &METRICS)?;
    let rows = gather.rows.iter();
    let mut rows: Vec<SlotStatsRow> = rows.filter_map(|row| SlotStatsRow::of_bytes(row)).collect();
    rows.sort_unstable_by_key(|row| row.slot);
    // Metrics that were counted when the first shards were visited may have been turned off since.
    let figure = |row: &SlotStatsRow, metric: usize| row.figures.get(metric).copied().unwrap_or(0);
    match order {
        None => {}
        Some((metric, SlotStatsOrder::Ascending)) => rows.sort_by_key(|row| figure(row, metric)),
        Some((metric, SlotStatsOrder::Descending)) => {
            rows.sort_by_key(|row| std::cmp::Reverse(figure(row, metric)));
        }
    }
    rows.truncate(limit);
    out.array(rows.len());
    for SlotStatsRow { slot, figures } in rows {
        out.array(2);
        out.integer(i64::from(slot));
        out.map(figures.len());
        for (name, figure) in METRICS.iter().zip(figures) {
            out.bulk(name.as_bytes());
            out.integer(figure.cast_signed());
        }
    }
    Ok(())
}
