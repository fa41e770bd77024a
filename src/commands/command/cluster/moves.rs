//! Atomic slot migration, with the commands of Valkey 9.
//!
//! The nodes exchange `CLUSTER SYNCSLOTS` over a client's connection to the node that receives the slots.

use super::super::context::{After, SessionCx};
use super::super::declaration::{Command, CommandResult, Flags};
use super::super::error::CommandError;
use super::super::host::cluster::{MoveAnswer, MoveStep, SlotMove};
use super::super::{Args, Out};
use super::GROUP;
use super::change::{CHANGES, changeable, slot_at};
use crate::cluster::node_id::NodeId;
use crate::cluster::slot_note::SlotNote;
use crate::cluster::slot_set::SlotSet;
use basalt_core::base::lossless;
use basalt_engine::serial::commands;

/// `CLUSTER MIGRATESLOTS SLOTSRANGE start end [start end ...] NODE node-id [SLOTSRANGE ...]`
pub(super) static MIGRATESLOTS: Command =
    Command::sub("cluster|migrateslots", "migrateslots", GROUP, -4)
        .flags(CHANGES)
        .doc(
            "9.0.0",
            "<SLOTSRANGE start-slot end-slot [start-slot end-slot ...] NODE node-id [SLOTSRANGE start-slot end-slot \
             [start-slot end-slot ...] NODE node-id ...]>",
            "Migrates slots of this node with all their keys to other nodes.",
        )
        .complexity("O(N) for N slots in the ranges.")
        .postponed_if(|_| true)
        .on_session(migrate_slots);

fn migrate_slots(cx: &mut SessionCx<'_>, args: &Args<'_>, out: &mut Out) -> CommandResult {
    let cluster = changeable(cx)?;
    let map = cluster.map();
    let mut moves: Vec<(SlotSet, NodeId)> = Vec::new();
    let mut all = SlotSet::default();
    let mut at = 2;
    while at < args.len() {
        if !args.is(at, "slotsrange") {
            return Err(CommandError::Syntax);
        }
        let (slots, behind) = ranges(args, at + 1)?;
        if slots.is_empty() {
            return Err("ERR No slot ranges specified".into());
        }
        if behind + 1 >= args.len() || !args.is(behind, "node") {
            return Err(CommandError::Syntax);
        }
        for slot in slots.iter() {
            if !all.insert(slot) {
                return Err("ERR Slot ranges in migrations overlap".into());
            }
        }
        let name = args.get(behind + 1);
        let shown = lossless::text_of(name).into_owned();
        let Some(id) = NodeId::from_text(name) else {
            return Err(format!("ERR Invalid node name: {shown}").into());
        };
        let Some(node) = map.find(name) else {
            return Err(format!("ERR Unknown node name: {shown}").into());
        };
        if node.id == map.me().id {
            return Err("ERR Target node can not be this node.".into());
        }
        if !node.is_primary() {
            return Err("ERR Target node is not a master".into());
        }
        moves.push((slots, id));
        at = behind + 2;
    }
    cluster.move_slots(moves)?;
    out.ok();
    Ok(())
}

/// Parses ranges of slots, starting at a position. Returns them and the position after them: that of the next word,
/// or the end.
fn ranges(args: &Args<'_>, from: usize) -> Result<(SlotSet, usize), CommandError> {
    let mut set = SlotSet::default();
    let mut at = from;
    let mut before: Vec<(u16, u16)> = Vec::new();
    while at < args.len() && !args.is(at, "node") {
        let first = slot_at(args, at)?;
        if at + 1 >= args.len() {
            return Err("ERR Invalid or out of range slot".into());
        }
        let last = slot_at(args, at + 1)?;
        if first > last {
            return Err(format!(
                "ERR Start slot number {first} is greater than end slot number {last}."
            )
            .into());
        }
        let met = before
            .iter()
            .find(|(other_first, other_last)| first <= *other_last && *other_first <= last);
        if let Some((other_first, other_last)) = met {
            return Err(format!(
                "ERR Slot range {first}-{last} overlaps with previous range {other_first}-{other_last}."
            )
            .into());
        }
        before.push((first, last));
        (first..=last).for_each(|slot| {
            set.insert(slot);
        });
        at += 2;
    }
    Ok((set, at))
}

/// `CLUSTER CANCELSLOTMIGRATIONS`
pub(super) static CANCELSLOTMIGRATIONS: Command = Command::sub(
    "cluster|cancelslotmigrations",
    "cancelslotmigrations",
    GROUP,
    2,
)
.flags(CHANGES)
.doc("9.0.0", "", "Cancels all slot migrations from this node.")
.complexity("O(N) for N moves.")
.postponed_if(|_| true)
.on_session(cancel);

fn cancel(cx: &mut SessionCx<'_>, _: &Args<'_>, out: &mut Out) -> CommandResult {
    let cluster = changeable(cx)?;
    if !cluster.cancel_moves() {
        return Err("ERR No migrations ongoing".into());
    }
    out.ok();
    Ok(())
}

/// `CLUSTER GETSLOTMIGRATIONS`
pub(super) static GETSLOTMIGRATIONS: Command = Command::sub(
    "cluster|getslotmigrations",
    "getslotmigrations",
    GROUP,
    2,
)
.flags(Flags::ADMIN.or(Flags::NO_ASYNC_LOADING).or(Flags::STALE))
.doc(
    "9.0.0",
    "",
    "Lists the slot migrations from and to this node that are in progress or ended recently.",
)
.complexity("O(N) for N moves.")
.repeatable()
.on_session(list);

fn list(cx: &mut SessionCx<'_>, _: &Args<'_>, out: &mut Out) -> CommandResult {
    let moves = changeable(cx)?.moves();
    out.array(moves.len());
    moves.iter().for_each(|one| show(one, out));
    Ok(())
}

fn show(one: &SlotMove, out: &mut Out) {
    let ranges: Vec<String> = one
        .slots
        .ranges()
        .map(|(first, last)| format!("{first}-{last}"))
        .collect();
    let operation = match one.is_export {
        true => "EXPORT",
        false => "IMPORT",
    };
    out.map(12);
    let text = |name: &str, value: &str, out: &mut Out| {
        out.bulk(name.as_bytes());
        out.bulk(value.as_bytes());
    };
    let number = |name: &str, value: u64, out: &mut Out| {
        out.bulk(name.as_bytes());
        out.integer(value.cast_signed());
    };
    text("name", one.name.as_str(), out);
    text("operation", operation, out);
    text("slot_ranges", &ranges.join(" "), out);
    text("target_node", one.target.as_str(), out);
    text("source_node", one.source.as_str(), out);
    number("create_time", one.created_s, out);
    number("last_update_time", one.updated_s, out);
    number("last_ack_time", one.acked_s, out);
    text("state", one.state, out);
    text("message", &one.message, out);
    // Nothing is copied on write: there is no fork.
    number("cow_size", 0, out);
    number("remaining_repl_size", one.waiting_bytes, out);
}

/// `CLUSTER SYNCSLOTS word [...]`
pub(in super::super) static SYNCSLOTS: Command = Command::sub("cluster|syncslots", "syncslots", GROUP, -3)
    .flags(
        Flags::ADMIN
            .or(Flags::NO_ASYNC_LOADING)
            .or(Flags::NO_MULTI)
            .or(Flags::NOSCRIPT),
    )
    .doc(
        "9.0.0",
        "<ESTABLISH SOURCE node-id NAME name SLOTSRANGE start-slot end-slot [start-slot end-slot ...] | ACK | SNAPSHOT-EOF \
         | PAUSED | FAILOVER-GRANTED>",
        "Carries internal messages between nodes during slot migrations.",
    )
    .on_session(sync_slots);

fn sync_slots(cx: &mut SessionCx<'_>, args: &Args<'_>, out: &mut Out) -> CommandResult {
    if cx.client.origin.replays() {
        return replay(cx, args);
    }
    let cluster = changeable(cx)?;
    let step = if args.is(2, "establish") {
        establish(args)?
    } else {
        let steps = [
            MoveStep::Ack,
            MoveStep::SnapshotEnd,
            MoveStep::Paused,
            MoveStep::Granted,
        ];
        let known = steps.into_iter().find(|step| args.is(2, step.name()));
        match known.filter(|_| args.len() == 3) {
            Some(step) => step,
            None => return Err(CommandError::Syntax),
        }
    };
    match cluster.handle_move_step(&cx.client.shared, step)? {
        MoveAnswer::Agreed => {
            cx.client.begin_slot_import();
            out.ok();
        }
        MoveAnswer::Word(word) => {
            cx.client.begin_slot_import();
            let mut said = Vec::new();
            commands::command(&mut said, &[b"CLUSTER", b"SYNCSLOTS", word.as_bytes()]);
            out.raw(&said);
        }
        MoveAnswer::Done => cx.after = After::Close,
    }
    Ok(())
}

/// `ESTABLISH …`, or `FINISH STATE state NAME name MESSAGE message`, which a node of Valkey logs when it receives
/// slots.
fn replay(cx: &mut SessionCx<'_>, args: &Args<'_>) -> CommandResult {
    // A server that is no longer a node of a cluster keeps all keys.
    let Some(cluster) = cx.server.cluster() else {
        return Ok(());
    };
    if args.is(2, "establish") {
        if let MoveStep::Establish { name, slots, .. } = establish(args)? {
            cluster.replay_note(SlotNote {
                name,
                is_coming: true,
                slots,
            });
        }
    } else if args.is(2, "finish") && args.len() > 6 && args.is(5, "name") {
        let name = NodeId::from_text(args.get(6)).ok_or(CommandError::Syntax)?;
        cluster.replay_over(name);
    }
    Ok(())
}

/// `SLOTS COMING|GOING name range …`, or `SLOTS OVER name`: the beginning of a slot migration, see [`SlotNote`], or
/// its end. It occurs in notes of the log only, see [`notes`](crate::command::notes), and has an effect only if it
/// comes from a primary or a file.
pub(in super::super) static NOTE: Command = Command::new("slots", GROUP, -3)
    .flags(Flags::LOADING.or(Flags::STALE).or(Flags::UNLISTED))
    .doc(
        Command::OWN,
        "<COMING | GOING> name range [range ...] | OVER name",
        "Records slots whose keys may have to be deleted; used only in the replication log.",
    )
    .on_session(note);

fn note(cx: &mut SessionCx<'_>, args: &Args<'_>, out: &mut Out) -> CommandResult {
    if let (true, Some(cluster)) = (cx.client.origin.replays(), cx.server.cluster()) {
        if args.is(1, "over") && args.len() == 3 {
            let name = NodeId::from_text(args.get(2)).ok_or(CommandError::Syntax)?;
            cluster.replay_over(name);
        } else {
            let note = SlotNote::parse(args.from(1)).ok_or(CommandError::Syntax)?;
            cluster.replay_note(note);
        }
    }
    out.ok();
    Ok(())
}

/// `ESTABLISH SOURCE node-id NAME name SLOTSRANGE start end [start end ...]`
fn establish(args: &Args<'_>) -> Result<MoveStep, CommandError> {
    let has_words =
        args.len() >= 10 && args.is(3, "source") && args.is(5, "name") && args.is(7, "slotsrange");
    let (source, name) = match has_words {
        true => (
            NodeId::from_text(args.get(4)),
            NodeId::from_text(args.get(6)),
        ),
        false => (None, None),
    };
    let (Some(source), Some(name)) = (source, name) else {
        return Err(CommandError::Syntax);
    };
    let (slots, behind) = ranges(args, 8)?;
    match behind == args.len() {
        true => Ok(MoveStep::Establish {
            source,
            name,
            slots,
        }),
        false => Err(CommandError::Syntax),
    }
}
