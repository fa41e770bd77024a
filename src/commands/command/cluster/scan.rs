//! CLUSTERSCAN: a walk over the keys of all nodes, slot by slot, as in Valkey 9.1.
//!
//! ```text
//! 1f0c9a24-{06S}-77         the node that made it, a tag of the slot, the position in the slot
//!        0-{Qi0}-0          the beginning of a slot, on any node
//! ```
//!
//! A cursor contains a hash tag: a client sends it to the node to which it would send a key of that name, which is
//! the slot's current owner. Positions are those of [`walk_slot`](basalt_engine::keyspace::Keyspace::walk_slot),
//! whose order is specific to a node: if a cursor was made by another node, the walk over its slot starts anew. One
//! call continues over this node's slots until it has examined COUNT keys.

use super::super::context::{Gather, ShardCx};
use super::super::declaration::{Categories, Command, CommandResult, Flags, KeyFlags, KeySpec};
use super::super::error::CommandError;
use super::super::scan::Options;
use super::super::{Args, Out};
use super::GROUP;
use super::slots::{KEYS_PER_VISIT, check_enabled};
use basalt_core::base::hash::{SLOTS, slot};
use basalt_core::base::{lossless, slot_tags};
use basalt_engine::Engine;
use basalt_engine::value::{DataType, ObjectKind};

/// `CLUSTERSCAN cursor [MATCH match-pattern] [COUNT count] [TYPE type] [SLOT slot]`
pub(super) static CLUSTERSCAN: Command = Command::new("clusterscan", GROUP, -2)
    .reads(&[KeySpec::one(1, KeyFlags::NOT_KEY)])
    .flags(Flags::TOUCHES_ARBITRARY_KEYS)
    .categories(Categories::KEYSPACE)
    .doc(
        "9.1.0",
        "cursor [MATCH match-pattern] [COUNT count] [TYPE type] [SLOT slot]",
        "Iterates over the keys of a cluster, slot by slot.",
    )
    .complexity("O(N) for N keys that it looks at.")
    .tips(&[
        "nondeterministic_output",
        "request_policy:special",
        "response_policy:special",
    ])
    .by_cursor(shard_of, part, merge);

/// The cursor that starts a walk, and the one that a finished walk returns.
const NOWHERE: &[u8] = b"0";

/// Bits of [`Gather::cursor`] for the position in a slot; the slot is above them.
const POSITION_BITS: u32 = 48;

/// A cursor as sent by a client.
enum ScanCursor<'a> {
    /// The start of a walk: the reply is the cursor of the first slot, which may belong to another node.
    Start,
    /// The walk continues in a slot.
    In {
        slot: u16,
        /// Fingerprint of the node that made the cursor; `0` if any node may continue.
        fingerprint: &'a [u8],
        position: u64,
    },
}

impl<'a> ScanCursor<'a> {
    fn read(text: &'a [u8]) -> Result<ScanCursor<'a>, CommandError> {
        const INVALID: &str = "ERR Invalid cursor";
        if text == NOWHERE {
            return Ok(ScanCursor::Start);
        }
        let first = memchr::memchr(b'-', text).ok_or(INVALID)?;
        let last = memchr::memrchr(b'-', text).filter(|last| *last > first);
        let digits = &text[last.ok_or(INVALID)? + 1..];
        let is_number = !digits.is_empty() && digits.iter().all(u8::is_ascii_digit);
        let number = std::str::from_utf8(digits).ok().filter(|_| is_number);
        let number = number.and_then(|digits| digits.parse().ok());
        Ok(ScanCursor::In {
            slot: slot(text),
            fingerprint: &text[..first],
            position: number.ok_or(INVALID)?,
        })
    }
}

/// The keys that are requested.
struct ClusterScanRequest<'a> {
    cursor: ScanCursor<'a>,
    options: Options<'a>,
    data_type: Option<DataType>,
    /// The slot of the option SLOT, to which the walk is limited.
    slot: Option<u16>,
}

impl<'a> ClusterScanRequest<'a> {
    fn read(args: &Args<'a>) -> Result<ClusterScanRequest<'a>, CommandError> {
        let (mut data_type, mut slot) = (None, None);
        let mut error: Option<CommandError> = None;
        let options = Options::parse_with(args, 2, None, |at| {
            if args.is(at, "type") {
                let named = DataType::ALL.iter().find(|(_, name)| args.is(at + 1, name));
                data_type = named.map(|(data_type, _)| *data_type);
                if named.is_none() {
                    let name = lossless::text_of(args.get(at + 1));
                    error = Some(format!("ERR unknown type name '{name}'").into());
                }
            } else if args.is(at, "slot") {
                if slot.is_some() {
                    error = Some("ERR SLOT option can only be specified once".into());
                }
                let number = args.integer(at + 1).ok();
                slot = number.and_then(|number| u16::try_from(number).ok());
                slot = slot.filter(|slot| *slot < SLOTS);
                if slot.is_none() {
                    error = Some("ERR Invalid or out of range slot".into());
                }
            } else {
                return false;
            }
            // An error in the options ends their parsing and is returned in place of the result.
            error.is_none()
        });
        let options = match error {
            Some(error) => return Err(error),
            None => options?,
        };
        let cursor = ScanCursor::read(args.get(1))?;
        if let (ScanCursor::In { slot: place, .. }, Some(only)) = (&cursor, slot)
            && *place != only
        {
            return Err("ERR Cursor slot mismatch with SLOT argument".into());
        }
        Ok(ClusterScanRequest {
            cursor,
            options,
            data_type,
            slot,
        })
    }
}

/// Returns the shard of the cursor's slot; any shard for a cursor without a slot.
fn shard_of(args: &Args<'_>, shard_count: u16) -> Result<u16, CommandError> {
    Ok(slot(args.get(1)) & (shard_count - 1))
}

/// Returns a node's fingerprint in cursors: the order of its keys depends on its seed.
fn fingerprint(engine: &Engine) -> String {
    format!("{:08x}", engine.seed().hash(b"CLUSTERSCAN") as u32)
}

/// Visits some keys of one slot. [`Gather::cursor`] becomes the position of the next visit, [`Gather::rows`] the
/// fingerprint of the node whose order the position refers to.
fn part(cx: &mut ShardCx<'_>, args: &Args<'_>, gather: &mut Gather) -> CommandResult {
    check_enabled(cx)?;
    let ClusterScanRequest {
        cursor,
        options,
        data_type,
        slot: only,
    } = ClusterScanRequest::read(args)?;
    let (is_first, own) = (gather.rows.is_empty(), fingerprint(cx.engine(0)));
    let (slot, position) = match cursor {
        ScanCursor::Start => {
            gather.cursor = u64::from(only.unwrap_or(0)) << POSITION_BITS;
            gather.done = true;
            return Ok(());
        }
        ScanCursor::In {
            slot,
            fingerprint,
            position,
        } if is_first => {
            let is_known = fingerprint == NOWHERE || fingerprint == own.as_bytes();
            (slot, if is_known { position } else { 0 })
        }
        ScanCursor::In { .. } => (
            (gather.cursor >> POSITION_BITS) as u16,
            gather.cursor & ((1 << POSITION_BITS) - 1),
        ),
    };
    if is_first {
        gather.rows.push(own.into_bytes());
    }
    let count = options.count as u64;
    let budget = count.saturating_sub(gather.visited).max(1);
    let budget = usize::try_from(budget)
        .unwrap_or(usize::MAX)
        .min(KEYS_PER_VISIT);
    let db = cx.client.db;
    let next = cx
        .keyspace(0, db)
        .scan_slot(slot, position, budget, |entry| {
            gather.visited += 1;
            let has_type =
                data_type.is_none_or(|wanted| wanted == ObjectKind(entry.kind()).data_type());
            if has_type && options.fits(entry.key()) {
                gather.push(entry.key());
            }
        });
    gather.position = 0;
    if next != 0 {
        gather.cursor = u64::from(slot) << POSITION_BITS | next;
        gather.done = gather.visited >= count;
        gather.position = u64::from(!gather.done);
        return Ok(());
    }
    let routes = gather.routes.as_ref();
    let goes_on = |slot: u16| routes.is_none_or(|routes| routes.map.is_of_my_shard(slot));
    let next = slot + 1;
    gather.done = true;
    if only.is_some() || next == SLOTS {
        // The end of the walk; `merge` recognizes it by the missing row.
        gather.rows.clear();
    } else {
        gather.cursor = u64::from(next) << POSITION_BITS;
        gather.done = gather.visited >= count || !goes_on(next);
        gather.goes_around = true;
    }
    Ok(())
}

fn merge(args: &Args<'_>, gather: Gather, out: &mut Out) -> CommandResult {
    let starts = args.get(1) == NOWHERE;
    let (slot, position) = (
        (gather.cursor >> POSITION_BITS) as u16,
        gather.cursor & ((1 << POSITION_BITS) - 1),
    );
    out.array(2);
    let own = gather.rows.first().map(Vec::as_slice);
    match own.or(starts.then_some(NOWHERE)) {
        None => out.bulk(NOWHERE),
        Some(own) => {
            let own = if position == 0 { NOWHERE } else { own };
            let mut buffer = itoa::Buffer::new();
            let position = buffer.format(position).as_bytes();
            let tag = slot_tags::of(slot);
            out.bulk(&[own, b"-{", &tag, b"}-", position].concat());
        }
    }
    gather.reply(out);
    Ok(())
}
