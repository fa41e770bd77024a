//! Commands that change the cluster: arguments are checked here as far as that is possible without the cluster;
//! everything else is done by the cluster.
//!
//! None of these commands runs with a shard locked: transactions postpone them until their shards are released, and
//! scripts, which keep their locks to the end, may not call them.

use core::net::IpAddr;

use super::super::context::{After, SessionCx};
use super::super::declaration::{Command, CommandResult, Flags};
use super::super::error::CommandError;
use super::super::host::cluster::Cluster;
use super::super::{Args, Out};
use super::{GROUP, NOT_ENABLED, TIPS, unknown};
use crate::client::connection::Origin;
use crate::cluster::change::{ClusterChange, Failover, SlotChange};
use crate::cluster::node_id::NodeId;
use crate::cluster::slot_set::SlotSet;
use crate::config::values::ClusterMode;
use basalt_core::base::hash::SLOTS;
use basalt_core::base::lossless;

/// Default distance of a node's bus port from its port for clients.
const BUS_PORT_ABOVE: i64 = 10_000;

/// Flags of commands that change the cluster.
pub(super) const CHANGES: Flags = Flags::ADMIN.or(Flags::STALE).or(Flags::NO_ASYNC_LOADING);

/// The required state of slots before a change.
#[derive(Clone, Copy, PartialEq, Eq)]
enum SlotPrecondition {
    /// The slots have an owner.
    Assigned,
    /// The slots have no owner.
    Unassigned,
}

/// Returns the cluster, or the error if this server cannot change it.
pub(super) fn changeable<'s>(cx: &SessionCx<'s>) -> Result<&'s dyn Cluster, CommandError> {
    match (cx.config.cluster_enabled, cx.server.cluster()) {
        (ClusterMode::Emulated, _) => Err(
            "ERR This cluster is this server and its replicas (cluster-enabled emulated) and cannot be changed".into(),
        ),
        (_, None) => Err(NOT_ENABLED.into()),
        _ if cx.client.is_in_script => {
            Err("ERR This Redis command is not allowed from script".into())
        }
        (_, Some(cluster)) => Ok(cluster),
    }
}

fn apply(cx: &mut SessionCx<'_>, change: ClusterChange) -> CommandResult {
    cx.after = After::Await(changeable(cx)?.change(change));
    Ok(())
}

pub(super) fn slot_at(args: &Args<'_>, at: usize) -> Result<u16, CommandError> {
    let number = args.integer(at).ok();
    let slot = number.and_then(|number| u16::try_from(number).ok());
    slot.filter(|slot| *slot < SLOTS)
        .ok_or_else(|| "ERR Invalid or out of range slot".into())
}

fn wrong_count(args: &Args<'_>) -> CommandError {
    let name = lossless::text_of(args.get(1)).into_owned();
    format!("ERR unknown subcommand or wrong number of arguments for '{name}'. Try CLUSTER HELP.")
        .into()
}

/// Parses slots that are listed one by one.
fn listed(
    cx: &SessionCx<'_>,
    args: &Args<'_>,
    wanted: SlotPrecondition,
) -> Result<SlotSet, CommandError> {
    changeable(cx)?;
    let slots: Result<Vec<u16>, CommandError> =
        (2..args.len()).map(|at| slot_at(args, at)).collect();
    collected(cx, slots?, wanted)
}

/// Parses slots given as ranges: the first and the last slot of each.
fn ranged(
    cx: &SessionCx<'_>,
    args: &Args<'_>,
    wanted: SlotPrecondition,
) -> Result<SlotSet, CommandError> {
    changeable(cx)?;
    if !args.len().is_multiple_of(2) {
        return Err(CommandError::Arity(cx.command.full_name));
    }
    let mut set = SlotSet::default();
    for at in (2..args.len()).step_by(2) {
        let (first, last) = (slot_at(args, at)?, slot_at(args, at + 1)?);
        if first > last {
            return Err(format!(
                "ERR start slot number {first} is greater than end slot number {last}"
            )
            .into());
        }
        add(cx, &mut set, first..=last, wanted)?;
    }
    Ok(set)
}

fn collected(
    cx: &SessionCx<'_>,
    slots: impl IntoIterator<Item = u16>,
    wanted: SlotPrecondition,
) -> Result<SlotSet, CommandError> {
    let mut set = SlotSet::default();
    add(cx, &mut set, slots, wanted)?;
    Ok(set)
}

fn add(
    cx: &SessionCx<'_>,
    set: &mut SlotSet,
    slots: impl IntoIterator<Item = u16>,
    wanted: SlotPrecondition,
) -> Result<(), CommandError> {
    let map = changeable(cx)?.map();
    for slot in slots {
        let text = match (map.owner(slot), wanted) {
            (None, SlotPrecondition::Assigned) => format!("ERR Slot {slot} is already unassigned"),
            (Some(_), SlotPrecondition::Unassigned) => format!("ERR Slot {slot} is already busy"),
            _ if !set.insert(slot) => format!("ERR Slot {slot} specified multiple times"),
            _ => continue,
        };
        return Err(text.into());
    }
    Ok(())
}

/// `CLUSTER ADDSLOTS slot [slot ...]`
pub(super) static ADDSLOTS: Command = Command::sub("cluster|addslots", "addslots", GROUP, -3)
    .flags(CHANGES)
    .doc(
        "3.0.0",
        "slot [slot ...]",
        "Assigns hash slots to this node.",
    )
    .complexity("O(N) for N slots.")
    .postponed_if(|_| true)
    .on_session(add_slots);

fn add_slots(cx: &mut SessionCx<'_>, args: &Args<'_>, _: &mut Out) -> CommandResult {
    let slots = listed(cx, args, SlotPrecondition::Unassigned)?;
    apply(cx, ClusterChange::AddSlots(slots))
}

/// `CLUSTER ADDSLOTSRANGE start-slot end-slot [start-slot end-slot ...]`
pub(super) static ADDSLOTSRANGE: Command =
    Command::sub("cluster|addslotsrange", "addslotsrange", GROUP, -4)
        .flags(CHANGES)
        .doc(
            "7.0.0",
            "start-slot end-slot [start-slot end-slot ...]",
            "Assigns ranges of hash slots to this node.",
        )
        .complexity("O(N) for N slots in the ranges.")
        .postponed_if(|_| true)
        .on_session(add_ranges);

fn add_ranges(cx: &mut SessionCx<'_>, args: &Args<'_>, _: &mut Out) -> CommandResult {
    let slots = ranged(cx, args, SlotPrecondition::Unassigned)?;
    apply(cx, ClusterChange::AddSlots(slots))
}

/// `CLUSTER BUMPEPOCH`
pub(super) static BUMPEPOCH: Command = Command::sub("cluster|bumpepoch", "bumpepoch", GROUP, 2)
    .flags(CHANGES)
    .doc(
        "3.0.0",
        "",
        "Increases the configuration epoch of the cluster.",
    )
    .tips(TIPS)
    .postponed_if(|_| true)
    .on_session(|cx, _, _| apply(cx, ClusterChange::BumpEpoch));

/// `CLUSTER DELSLOTS slot [slot ...]`
pub(super) static DELSLOTS: Command = Command::sub("cluster|delslots", "delslots", GROUP, -3)
    .flags(CHANGES)
    .doc(
        "3.0.0",
        "slot [slot ...]",
        "Removes hash slots from this node.",
    )
    .complexity("O(N) for N slots.")
    .postponed_if(|_| true)
    .on_session(delete_slots);

fn delete_slots(cx: &mut SessionCx<'_>, args: &Args<'_>, _: &mut Out) -> CommandResult {
    let slots = listed(cx, args, SlotPrecondition::Assigned)?;
    apply(cx, ClusterChange::DelSlots(slots))
}

/// `CLUSTER DELSLOTSRANGE start-slot end-slot [start-slot end-slot ...]`
pub(super) static DELSLOTSRANGE: Command =
    Command::sub("cluster|delslotsrange", "delslotsrange", GROUP, -4)
        .flags(CHANGES)
        .doc(
            "7.0.0",
            "start-slot end-slot [start-slot end-slot ...]",
            "Removes ranges of hash slots from this node.",
        )
        .complexity("O(N) for N slots in the ranges.")
        .postponed_if(|_| true)
        .on_session(delete_ranges);

fn delete_ranges(cx: &mut SessionCx<'_>, args: &Args<'_>, _: &mut Out) -> CommandResult {
    let slots = ranged(cx, args, SlotPrecondition::Assigned)?;
    apply(cx, ClusterChange::DelSlots(slots))
}

/// `CLUSTER FAILOVER [FORCE | TAKEOVER]`
pub(super) static FAILOVER: Command = Command::sub("cluster|failover", "failover", GROUP, -2)
    .flags(CHANGES)
    .doc(
        "3.0.0",
        "[FORCE | TAKEOVER]",
        "Promotes a replica to replace its primary.",
    )
    .postponed_if(|_| true)
    .on_session(fail_over);

fn fail_over(cx: &mut SessionCx<'_>, args: &Args<'_>, _: &mut Out) -> CommandResult {
    changeable(cx)?;
    let how = match args.len() {
        2 => Failover::Agreed,
        3 if args.is(2, "force") => Failover::Force,
        3 if args.is(2, "takeover") => Failover::Takeover,
        5 if args.is(2, "force") && args.is(3, "replicaid") => return take_over(cx, args),
        3..=5 => return Err(CommandError::Syntax),
        _ => return Err(wrong_count(args)),
    };
    apply(cx, ClusterChange::Failover(how))
}

/// `CLUSTER FAILOVER FORCE REPLICAID node-id`: the primary, which is about to stop, asks one of its replicas to take
/// over. All replicas receive the command, so it is ignored if another one is meant.
fn take_over(cx: &mut SessionCx<'_>, args: &Args<'_>) -> CommandResult {
    if cx.client.origin != Origin::Primary {
        return Err(CommandError::Syntax);
    }
    let cluster = changeable(cx)?;
    if cluster.map().me().id.as_bytes() == args.get(4) {
        let change = cluster.change(ClusterChange::Failover(Failover::Handover));
        // The stream does not wait: the change ends it.
        (change.begin)(Box::new(|_| ()));
    }
    Ok(())
}

/// `CLUSTER FLUSHSLOTS`
pub(super) static FLUSHSLOTS: Command = Command::sub("cluster|flushslots", "flushslots", GROUP, 2)
    .flags(CHANGES)
    .doc("3.0.0", "", "Removes all hash slots from this node.")
    .postponed_if(|_| true)
    .on_session(|cx, _, _| apply(cx, ClusterChange::FlushSlots));

/// `CLUSTER FORGET node-id`
pub(super) static FORGET: Command = Command::sub("cluster|forget", "forget", GROUP, 3)
    .flags(CHANGES)
    .doc("3.0.0", "node-id", "Removes a node from this node's table.")
    .postponed_if(|_| true)
    .on_session(forget);

fn forget(cx: &mut SessionCx<'_>, args: &Args<'_>, _: &mut Out) -> CommandResult {
    changeable(cx)?;
    let node = NodeId::from_text(args.get(2)).ok_or_else(|| unknown(args.get(2)))?;
    apply(cx, ClusterChange::Forget(node))
}

/// `CLUSTER MEET ip port [cluster-bus-port]`
pub(super) static MEET: Command = Command::sub("cluster|meet", "meet", GROUP, -4)
    .flags(CHANGES)
    .doc(
        "3.0.0",
        "ip port [cluster-bus-port:integer]",
        "Adds another node to the cluster of this one.",
    )
    .history(&[("4.0.0", "Accepts the cluster bus port.")])
    .postponed_if(|_| true)
    .on_session(meet);

fn meet(cx: &mut SessionCx<'_>, args: &Args<'_>, _: &mut Out) -> CommandResult {
    changeable(cx)?;
    if args.len() > 5 {
        return Err(wrong_count(args));
    }
    let shown = |at: usize| lossless::text_of(args.get(at)).into_owned();
    let port = args
        .integer(3)
        .map_err(|_| format!("ERR Invalid base port specified: {}", shown(3)))?;
    let bus_port = match args.len() {
        5 => args
            .integer(4)
            .map_err(|_| format!("ERR Invalid bus port specified: {}", shown(4)))?,
        _ => port.saturating_add(BUS_PORT_ABOVE),
    };
    let address = std::str::from_utf8(args.get(2)).ok();
    let address = address.and_then(|text| text.parse::<IpAddr>().ok());
    let is_port = |port: i64| u16::try_from(port).ok().filter(|port| *port != 0);
    let (Some(ip), Some(port), Some(bus_port)) = (address, is_port(port), is_port(bus_port)) else {
        let place = format!("{}:{}", shown(2), shown(3));
        return Err(format!("ERR Invalid node address specified: {place}").into());
    };
    let ip = ip.to_string();
    let is_by_hand = true;
    let change = ClusterChange::Meet {
        ip,
        port,
        bus_port,
        is_by_hand,
    };
    apply(cx, change)
}

/// `CLUSTER REPLICATE node-id`
pub(super) static REPLICATE: Command = Command::sub("cluster|replicate", "replicate", GROUP, 3)
    .flags(CHANGES)
    .doc(
        "3.0.0",
        "node-id",
        "Makes this node a replica of a primary.",
    )
    .postponed_if(|_| true)
    .on_session(replicate);

fn replicate(cx: &mut SessionCx<'_>, args: &Args<'_>, _: &mut Out) -> CommandResult {
    changeable(cx)?;
    let node = NodeId::from_text(args.get(2)).ok_or_else(|| unknown(args.get(2)))?;
    apply(cx, ClusterChange::Replicate(node))
}

/// `CLUSTER RESET [HARD | SOFT]`
pub(super) static RESET: Command = Command::sub("cluster|reset", "reset", GROUP, -2)
    .flags(Flags::ADMIN.or(Flags::NOSCRIPT).or(Flags::STALE))
    .doc(
        "3.0.0",
        "[HARD | SOFT]",
        "Resets this node: it leaves the cluster.",
    )
    .complexity("O(N) for N known nodes, and for the keys that go.")
    .postponed_if(|_| true)
    .on_session(reset);

fn reset(cx: &mut SessionCx<'_>, args: &Args<'_>, _: &mut Out) -> CommandResult {
    changeable(cx)?;
    let is_hard = match args.len() {
        2 => false,
        3 if args.is(2, "hard") => true,
        3 if args.is(2, "soft") => false,
        3 => return Err(CommandError::Syntax),
        _ => return Err(wrong_count(args)),
    };
    apply(cx, ClusterChange::Reset { is_hard })
}

/// `CLUSTER SAVECONFIG`
pub(super) static SAVECONFIG: Command = Command::sub("cluster|saveconfig", "saveconfig", GROUP, 2)
    .flags(CHANGES)
    .doc("3.0.0", "", "Writes nodes.conf to disk.")
    .postponed_if(|_| true)
    .on_session(|cx, _, _| apply(cx, ClusterChange::SaveConfig));

/// `CLUSTER SET-CONFIG-EPOCH config-epoch`
pub(super) static SET_CONFIG_EPOCH: Command =
    Command::sub("cluster|set-config-epoch", "set-config-epoch", GROUP, 3)
        .flags(CHANGES)
        .doc(
            "3.0.0",
            "config-epoch:integer",
            "Sets the configuration epoch of a new node.",
        )
        .postponed_if(|_| true)
        .on_session(set_config_epoch);

fn set_config_epoch(cx: &mut SessionCx<'_>, args: &Args<'_>, _: &mut Out) -> CommandResult {
    changeable(cx)?;
    let epoch = args.integer(2)?;
    let given = u64::try_from(epoch);
    let given = given.map_err(|_| format!("ERR Invalid config epoch specified: {epoch}"))?;
    apply(cx, ClusterChange::SetConfigEpoch(given))
}

/// `CLUSTER SETSLOT slot <IMPORTING node-id | MIGRATING node-id | NODE node-id | STABLE>`
pub(super) static SETSLOT: Command = Command::sub("cluster|setslot", "setslot", GROUP, -4)
    .flags(CHANGES)
    .doc(
        "3.0.0",
        "slot <IMPORTING node-id | MIGRATING node-id | NODE node-id | STABLE>",
        "Assigns a hash slot to a node, or marks it as migrating or importing.",
    )
    .postponed_if(|_| true)
    .on_session(set_slot);

fn set_slot(cx: &mut SessionCx<'_>, args: &Args<'_>, _: &mut Out) -> CommandResult {
    let map = changeable(cx)?.map();
    if !map.me().is_primary() {
        return Err("ERR Please use SETSLOT only with masters.".into());
    }
    let slot = slot_at(args, 2)?;
    let action = |word: &str, count: usize| args.is(3, word) && args.len() == count;
    let name = || args.get(4);
    let to = if action("stable", 4) {
        SlotChange::Stable
    } else if action("node", 5) {
        SlotChange::Node(NodeId::from_text(name()).ok_or_else(|| unknown(name()))?)
    } else if action("migrating", 5) {
        match NodeId::from_text(name()) {
            Some(node) => SlotChange::Migrating(node),
            None if map.owners[usize::from(slot)] != map.myself => {
                return Err(format!("ERR I'm not the owner of hash slot {slot}").into());
            }
            None => return Err(not_known(name())),
        }
    } else if action("importing", 5) {
        match NodeId::from_text(name()) {
            Some(node) => SlotChange::Importing(node),
            None if map.owners[usize::from(slot)] == map.myself => {
                return Err(format!("ERR I'm already the owner of hash slot {slot}").into());
            }
            None => return Err(not_known(name())),
        }
    } else {
        return Err(
            "ERR Invalid CLUSTER SETSLOT action or number of arguments. Try CLUSTER HELP".into(),
        );
    };
    apply(cx, ClusterChange::SetSlot { slot, to })
}

fn not_known(name: &[u8]) -> CommandError {
    format!("ERR I don't know about node {}", lossless::text_of(name)).into()
}
