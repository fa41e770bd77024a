//! Atomic slot migration, with the commands of Redis 8.4: the request is sent to the node that is to receive the
//! slots.

use super::super::context::SessionCx;
use super::super::declaration::{Command, CommandResult};
use super::super::error::CommandError;
use super::super::host::cluster::{SlotMove, SlotTask};
use super::super::{Args, Out};
use super::change::{CHANGES, changeable, slot_at};
use super::{GROUP, TIPS};
use crate::cluster::map::ClusterMap;
use crate::cluster::node_id::NodeId;
use crate::cluster::slot_set::SlotSet;

/// `CLUSTER MIGRATION <IMPORT start end [start end ...] | CANCEL <ID task-id | ALL> | STATUS <ID task-id | ALL>>`
pub(super) static MIGRATION: Command = Command::sub("cluster|migration", "migration", GROUP, -4)
    .flags(CHANGES)
    .doc(
        "8.4.0",
        "<IMPORT start-slot end-slot [start-slot end-slot ...] | CANCEL <ID task-id | ALL> | STATUS <ID task-id | ALL>>",
        "Imports slots from another node, reports the progress, or cancels it.",
    )
    .complexity("O(N) for N slots in the ranges.")
    .tips(TIPS)
    .postponed_if(|_| true)
    .on_session(migration);

fn migration(cx: &mut SessionCx<'_>, args: &Args<'_>, out: &mut Out) -> CommandResult {
    let cluster = changeable(cx)?;
    if args.is(2, "import") {
        let slots = ranges(args)?;
        let source = source_of(&slots, &cluster.map())?;
        let task = cluster.import_slots(source, slots)?;
        out.bulk(task.as_bytes());
        return Ok(());
    }
    let is_cancel = args.is(2, "cancel");
    if !is_cancel && !args.is(2, "status") {
        return Err(UNKNOWN.into());
    }
    let which = which(args)?;
    if is_cancel {
        out.integer(cluster.cancel_tasks(which) as i64);
        return Ok(());
    }
    let mut tasks = cluster.slot_tasks();
    if let Some(id) = which {
        tasks.retain(|task| task.id.as_bytes() == id);
    }
    out.array(tasks.len());
    tasks.iter().for_each(|task| show(task, out));
    Ok(())
}

const UNKNOWN: &str = "ERR unknown argument";

/// Parses `ID task-id` or `ALL`; returns None for `ALL`.
fn which<'a>(args: &Args<'a>) -> Result<Option<&'a [u8]>, CommandError> {
    let (is_one, is_all) = (args.is(3, "id"), args.is(3, "all"));
    match args.len() {
        5 if is_one => Ok(Some(args.get(4))),
        4 if is_all => Ok(None),
        4 | 5 if !is_one && !is_all => Err(UNKNOWN.into()),
        _ => Err(CommandError::Arity("cluster|migration")),
    }
}

fn ranges(args: &Args<'_>) -> Result<SlotSet, CommandError> {
    if args.len().is_multiple_of(2) {
        return Err(CommandError::Arity("cluster|migration"));
    }
    let mut set = SlotSet::default();
    for at in (3..args.len()).step_by(2) {
        let (first, last) = (slot_at(args, at)?, slot_at(args, at + 1)?);
        if first > last {
            let text =
                format!("ERR start slot number {first} is greater than end slot number {last}");
            return Err(text.into());
        }
        for slot in first..=last {
            if !set.insert(slot) {
                return Err(format!("ERR Slot {slot} specified multiple times").into());
            }
        }
    }
    Ok(set)
}

/// Returns the only node that owns the slots, or an error if several nodes own them or they cannot be moved from there.
fn source_of(slots: &SlotSet, map: &ClusterMap) -> Result<NodeId, CommandError> {
    if !map.me().is_primary() {
        return Err("ERR slot migration not allowed on replica.".into());
    }
    if !map.migrating.is_empty() || !map.importing.is_empty() {
        return Err("ERR all slot states must be STABLE to start a slot migration task.".into());
    }
    let mut source = None;
    for slot in slots.iter() {
        let Some(owner) = map.owner(slot) else {
            return Err(format!("ERR slot has no owner: {slot}").into());
        };
        if *source.get_or_insert(owner.id) != owner.id {
            return Err("ERR slots belong to different source nodes".into());
        }
    }
    match source {
        Some(source) if source != map.me().id => Ok(source),
        _ => Err("ERR this node is already the owner of the slot range".into()),
    }
}

/// Returns Redis's word for the state of a task.
fn word(of: &SlotMove) -> &'static str {
    match (of.state, of.is_export) {
        ("success", _) => "completed",
        ("failed", _) => "failed",
        ("cancelled", _) => "canceled",
        ("connecting", _) => "connecting",
        ("reading-establish-response", _) => "send-handshake",
        ("waiting-to-snapshot", _) => "wait-bgsave-start",
        ("snapshotting", _) => "send-bulk-and-stream",
        ("replicating", _) => "send-stream",
        ("failover-paused", _) => "handoff-prep",
        ("failover-granted", true) => "handoff",
        ("waiting-for-ack", _) => "syncslots-reply",
        ("receiving-snapshot", _) => "accumulate-buffer",
        ("waiting-for-paused", _) => "streaming-buffer",
        _ => "takeover",
    }
}

fn show(task: &SlotTask, out: &mut Out) {
    let SlotTask { id, of } = task;
    let ranges: Vec<String> = of
        .slots
        .ranges()
        .map(|(first, last)| format!("{first}-{last}"))
        .collect();
    let is_over = ["success", "failed", "cancelled"].contains(&of.state);
    let (began_ms, ended_ms) = (
        of.created_s * 1000,
        u64::from(is_over) * of.updated_s * 1000,
    );
    let texts = [
        ("id", id.as_str()),
        ("slots", &ranges.join(" ")),
        ("source", of.source.as_str()),
        ("dest", of.target.as_str()),
        ("operation", if of.is_export { "migrate" } else { "import" }),
        ("state", word(of)),
        ("last_error", &of.message),
    ];
    let numbers = [
        // Failed migrations are not retried.
        ("retries", 0),
        ("create_time", began_ms),
        ("start_time", began_ms),
        ("end_time", ended_ms),
        ("write_pause_ms", of.paused_ms),
    ];
    out.map(texts.len() + numbers.len());
    for (name, text) in texts {
        out.bulk(name.as_bytes());
        out.bulk(text.as_bytes());
    }
    for (name, number) in numbers {
        out.bulk(name.as_bytes());
        out.integer(number.cast_signed());
    }
}
