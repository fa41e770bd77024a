//! CLUSTER, and the commands by which clients of a cluster declare how their requests may be served (ASKING,
//! READONLY, READWRITE). With `cluster-enabled no` all of them reply like redis-server without a cluster; the rows
//! exist for clients that list the commands.
//!
//! ```text
//! change     changes of the cluster
//! emulated   the cluster that is this server and its replicas, as a map
//! migration  the same as moves, with the commands of Redis 8.4
//! moves      atomic slot migration
//! nodes      replies of nodes, shards, ranges of slots and links
//! scan       a walk over the keys of all nodes
//! slot_stats the number of keys of each slot, and the costs of requests for them
//! slots      the keys of a hash slot
//! ```

mod change;
mod emulated;
mod migration;
pub(super) mod moves;
mod nodes;
mod scan;
mod slot_stats;
mod slots;

use std::fmt::Write;
use std::sync::atomic::Ordering::Relaxed;

use super::context::SessionCx;
use super::declaration::{Categories, Command, CommandResult, Flags, Group};
use super::error::CommandError;
use super::help::reply_help;
use super::host::cluster::{MESSAGE_KINDS, Traffic};
use super::{Args, Out};
use crate::cluster::assembly::{AssemblyState, AssemblyView};
use crate::cluster::flags::NodeFlags;
use crate::cluster::map::{ClusterMap, UNOWNED};
use crate::cluster::route::RoutingFlags;
use crate::config::values::ClusterMode;
use basalt_core::base::hash;
use basalt_core::base::lossless;

const GROUP: Group = Group::Cluster;

/// Flags of commands that report nodes and slots but no data.
const TELLS: Flags = Flags::STALE.or(Flags::TELLS_NODES);

const TIPS: &[&str] = &["nondeterministic_output"];

pub(super) static TABLE: &[&Command] =
    &[&ASKING, &CLUSTER, &scan::CLUSTERSCAN, &READONLY, &READWRITE];

const NOT_ENABLED: &str = "ERR This instance has cluster support disabled";

/// Returns the current cluster map, or an error if this server is not in cluster mode.
fn view(cx: &SessionCx<'_>) -> Result<ClusterMap, CommandError> {
    match (cx.config.cluster_enabled, cx.server.cluster()) {
        (ClusterMode::Emulated, _) => Ok(emulated::map(cx)),
        (ClusterMode::Yes, Some(cluster)) => {
            let mut map = cluster.view();
            let myself = usize::from(map.myself);
            map.nodes[myself].offset = own_offset(cx);
            Ok(map)
        }
        _ => Err(NOT_ENABLED.into()),
    }
}

/// Returns this server's current replication offset; the map contains the offset last sent to the other nodes.
fn own_offset(cx: &SessionCx<'_>) -> u64 {
    match cx.server.replica().upstream() {
        Some(upstream) => u64::try_from(upstream.offset).unwrap_or(0),
        None => cx.server.primary().stream().offset,
    }
}

/// Returns the error for an unknown node ID.
fn unknown(name: &[u8]) -> CommandError {
    format!("ERR Unknown node {}", lossless::text_of(name)).into()
}

/// `CLUSTER subcommand`
static CLUSTER: Command = Command::new("cluster", GROUP, -2)
    .doc("3.0.0", "", "Groups the commands of Redis Cluster.")
    .complexity("Depends on subcommand.")
    .container(&[
        &change::ADDSLOTS,
        &change::ADDSLOTSRANGE,
        &change::BUMPEPOCH,
        &moves::CANCELSLOTMIGRATIONS,
        &nodes::COUNT_FAILURE_REPORTS,
        &slots::COUNTKEYSINSLOT,
        &change::DELSLOTS,
        &change::DELSLOTSRANGE,
        &change::FAILOVER,
        &change::FLUSHSLOTS,
        &change::FORGET,
        &slots::GETKEYSINSLOT,
        &moves::GETSLOTMIGRATIONS,
        &HELP,
        &INFO,
        &KEYSLOT,
        &nodes::LINKS,
        &change::MEET,
        &moves::MIGRATESLOTS,
        &migration::MIGRATION,
        &MYID,
        &MYSHARDID,
        &nodes::NODES,
        &nodes::REPLICAS,
        &change::REPLICATE,
        &change::RESET,
        &change::SAVECONFIG,
        &change::SET_CONFIG_EPOCH,
        &change::SETSLOT,
        &nodes::SHARDS,
        &nodes::SLAVES,
        &nodes::SLOTS,
        &slot_stats::SLOT_STATS,
        &moves::SYNCSLOTS,
    ]);

/// `CLUSTER HELP`
static HELP: Command = Command::sub("cluster|help", "help", GROUP, 2)
    .flags(Flags::LOADING.or(Flags::STALE))
    .doc("5.0.0", "", "Explains the subcommands of CLUSTER.")
    .repeatable()
    .on_session(help);

fn help(cx: &mut SessionCx<'_>, _: &Args<'_>, out: &mut Out) -> CommandResult {
    if cx.config.cluster_enabled == ClusterMode::No {
        return Err(NOT_ENABLED.into());
    }
    reply_help("CLUSTER", HELP_LINES, out);
    Ok(())
}

const HELP_LINES: &[&str] = &[
    "ADDSLOTS <slot> [<slot> ...]",
    "    Assign unassigned slots to this node.",
    "ADDSLOTSRANGE <first> <last> [<first> <last> ...]",
    "    Assign ranges of unassigned slots to this node.",
    "BUMPEPOCH",
    "    Increase the configuration epoch of this node.",
    "CANCELSLOTMIGRATIONS",
    "    Cancel all slot migrations from this node.",
    "COUNT-FAILURE-REPORTS <node-id>",
    "    Return the number of nodes that report a node as failing.",
    "COUNTKEYSINSLOT <slot>",
    "    Return the number of keys in a slot.",
    "DELSLOTS <slot> [<slot> ...]",
    "    Remove the assignment of these slots.",
    "DELSLOTSRANGE <first> <last> [<first> <last> ...]",
    "    Remove the assignment of the slots of these ranges.",
    "FAILOVER [FORCE|TAKEOVER]",
    "    Promote this replica to replace its primary.",
    "FLUSHSLOTS",
    "    Remove all slots from this node.",
    "FORGET <node-id>",
    "    Remove a node from the cluster.",
    "GETKEYSINSLOT <slot> <count>",
    "    Return keys of a slot.",
    "GETSLOTMIGRATIONS",
    "    List the slot migrations from and to this node that are in progress or ended recently.",
    "INFO",
    "    Return the state of the cluster.",
    "KEYSLOT <key>",
    "    Return the hash slot of a key.",
    "LINKS",
    "    List the connections with other nodes.",
    "MEET <ip> <port> [<bus-port>]",
    "    Add another node to the cluster.",
    "MIGRATESLOTS SLOTSRANGE <first> <last> [<first> <last> ...] NODE <node-id> [SLOTSRANGE ...]",
    "    Migrate slots with all their keys to other nodes.",
    "MIGRATION (IMPORT <first> <last> [<first> <last> ...]|CANCEL (ID <task-id>|ALL)|STATUS (ID <task-id>|ALL))",
    "    Import slots with all their keys from another node.",
    "MYID",
    "    Return the id of this node.",
    "MYSHARDID",
    "    Return the id of this node's shard.",
    "NODES",
    "    List the nodes, one per line.",
    "REPLICAS <node-id>",
    "    List the replicas of a node.",
    "REPLICATE <node-id>",
    "    Make this node a replica of another one.",
    "RESET [HARD|SOFT]",
    "    Remove all other nodes and all slots from this node.",
    "SAVECONFIG",
    "    Save nodes.conf.",
    "SET-CONFIG-EPOCH <epoch>",
    "    Set the epoch of a new node.",
    "SETSLOT <slot> (IMPORTING <node-id>|MIGRATING <node-id>|NODE <node-id>|STABLE)",
    "    Assign a slot to a node, or mark it as migrating or importing.",
    "SHARDS",
    "    List shards with their slots and nodes.",
    "SLOT-STATS (SLOTSRANGE <first> <last>|ORDERBY <metric> [LIMIT <count>] [ASC|DESC])",
    "    Return the number of keys, CPU time and network bytes of each slot of this node.",
    "SLOTS",
    "    List ranges of slots with their nodes.",
];

/// `CLUSTER INFO`
static INFO: Command = Command::sub("cluster|info", "info", GROUP, 2)
    .flags(TELLS)
    .doc(
        "3.0.0",
        "",
        "Returns the state of the cluster as this node sees it.",
    )
    .tips(TIPS)
    .repeatable()
    .on_session(info);

fn info(cx: &mut SessionCx<'_>, _: &Args<'_>, out: &mut Out) -> CommandResult {
    let map = view(cx)?;
    let traffic = cx.server.cluster().map(|cluster| cluster.traffic());
    let traffic = traffic.unwrap_or_default();
    let state = if map.is_up { "ok" } else { "fail" };
    let mut text = format!("cluster_state:{state}\r\n");
    for (name, figure) in figures(&map) {
        let _ = write!(text, "{name}:{figure}\r\n");
    }
    write_assembly(&mut text, &map.assembly);
    write_messages(&mut text, "sent", &traffic.sent);
    write_messages(&mut text, "received", &traffic.received);
    let exceeded = traffic.links_over_limit;
    let _ = write!(
        text,
        "total_cluster_links_buffer_limit_exceeded:{exceeded}\r\n"
    );
    out.verbatim("txt", text.as_bytes());
    Ok(())
}

/// Writes the state of a cluster that assembles itself (`cluster-size`).
fn write_assembly(text: &mut String, assembly: &AssemblyView) {
    if assembly.state == AssemblyState::Off {
        return;
    }
    let _ = write!(text, "cluster_assembly:{}\r\n", assembly.state.word());
    if assembly.needed > 0 {
        let (here, needed) = (assembly.here, assembly.needed);
        let _ = write!(
            text,
            "cluster_assembly_nodes:{here}\r\ncluster_assembly_nodes_needed:{needed}\r\n"
        );
    }
    if !assembly.hindrances.is_empty() {
        let why = assembly.hindrances.join("; ");
        let _ = write!(text, "cluster_assembly_hindrance:{why}\r\n");
    }
}

/// Writes the counts of the message kinds that occurred, in the order of CLUSTER INFO, and their sum.
fn write_messages(text: &mut String, way: &str, counts: &[u64; MESSAGE_KINDS.len()]) {
    for (kind, count) in MESSAGE_KINDS.iter().zip(counts) {
        if *count > 0 {
            let _ = write!(text, "cluster_stats_messages_{kind}_{way}:{count}\r\n");
        }
    }
    let all = Traffic::sum(counts);
    let _ = write!(text, "cluster_stats_messages_{way}:{all}\r\n");
}

/// Returns the figures of CLUSTER INFO that depend on the map, for a cluster of a single primary (emulated mode) with
/// this number of known nodes.
pub fn figures_of_one(known_nodes: u64) -> [(&'static str, u64); 8] {
    let slots = u64::from(hash::SLOTS);
    [
        ("cluster_slots_assigned", slots),
        ("cluster_slots_ok", slots),
        ("cluster_slots_pfail", 0),
        ("cluster_slots_fail", 0),
        ("cluster_known_nodes", known_nodes),
        ("cluster_size", 1),
        ("cluster_current_epoch", 1),
        ("cluster_my_epoch", 1),
    ]
}

/// Returns the figures of CLUSTER INFO that depend on the map.
pub fn figures(map: &ClusterMap) -> [(&'static str, u64); 8] {
    let assigned = map.owners.iter().filter(|owner| **owner != UNOWNED).count() as u64;
    let slots_of = |flag: NodeFlags, but: NodeFlags| {
        let nodes = map.nodes.iter();
        let found = nodes.filter(|node| node.flags.any(flag) && !node.flags.any(but));
        found.map(|node| u64::from(node.slots.len())).sum::<u64>()
    };
    let failed = slots_of(NodeFlags::FAILED, NodeFlags::NONE);
    let maybe_failed = slots_of(NodeFlags::MAYBE_FAILED, NodeFlags::FAILED);
    [
        ("cluster_slots_assigned", assigned),
        (
            "cluster_slots_ok",
            assigned.saturating_sub(failed + maybe_failed),
        ),
        ("cluster_slots_pfail", maybe_failed),
        ("cluster_slots_fail", failed),
        ("cluster_known_nodes", map.nodes.len() as u64),
        ("cluster_size", map.size as u64),
        ("cluster_current_epoch", map.current_epoch),
        ("cluster_my_epoch", map.me().config_epoch),
    ]
}

/// `CLUSTER KEYSLOT key`
static KEYSLOT: Command = Command::sub("cluster|keyslot", "keyslot", GROUP, 3)
    .flags(TELLS)
    .doc("3.0.0", "key:string", "Returns the hash slot of a key.")
    .complexity("O(N) for N bytes of the key.")
    .repeatable()
    .on_session(key_slot);

fn key_slot(cx: &mut SessionCx<'_>, args: &Args<'_>, out: &mut Out) -> CommandResult {
    if cx.config.cluster_enabled == ClusterMode::No {
        return Err(NOT_ENABLED.into());
    }
    out.integer(i64::from(hash::slot(args.get(2))));
    Ok(())
}

/// `CLUSTER MYID`
static MYID: Command = Command::sub("cluster|myid", "myid", GROUP, 2)
    .flags(TELLS)
    .doc("3.0.0", "", "Returns the id of this node.")
    .repeatable()
    .on_session(|cx, _, out| {
        out.bulk(view(cx)?.me().id.as_bytes());
        Ok(())
    });

/// `CLUSTER MYSHARDID`
static MYSHARDID: Command = Command::sub("cluster|myshardid", "myshardid", GROUP, 2)
    .flags(TELLS)
    .doc("7.2.0", "", "Returns the id of this node's shard.")
    .tips(TIPS)
    .repeatable()
    .on_session(|cx, _, out| {
        out.bulk(view(cx)?.me().shard_id.as_bytes());
        Ok(())
    });

/// `ASKING`
static ASKING: Command = Command::new("asking", GROUP, 1)
    .flags(Flags::FAST)
    .categories(Categories::CONNECTION)
    .doc(
        "3.0.0",
        "",
        "Marks the next command as following an -ASK redirection.",
    )
    .repeatable()
    .on_session(|cx, _, out| say(cx, out, |routing| routing.or(RoutingFlags::WILL_ASK)));

/// Records the mode that ASKING, READONLY or READWRITE sets. Without a cluster it has no effect, except for clients
/// that a replica redirects to its primary.
fn say(
    cx: &mut SessionCx<'_>,
    out: &mut Out,
    change: fn(RoutingFlags) -> RoutingFlags,
) -> CommandResult {
    let routing = cx.client.routing;
    if cx.config.cluster_enabled == ClusterMode::No && !routing.any(RoutingFlags::TAKES_REDIRECTS) {
        return Err(NOT_ENABLED.into());
    }
    let routing = change(routing);
    cx.client.routing = routing;
    let reads_here = routing.any(RoutingFlags::READS_HERE);
    cx.client.shared.reads_here.store(reads_here, Relaxed);
    out.ok();
    Ok(())
}

const FLAGS: Flags = Flags::FAST.or(Flags::LOADING).or(Flags::STALE);

/// `READONLY`
static READONLY: Command = Command::new("readonly", GROUP, 1)
    .flags(FLAGS)
    .categories(Categories::CONNECTION)
    .doc(
        "3.0.0",
        "",
        "Allows reads from a replica on this connection.",
    )
    .repeatable()
    .on_session(|cx, _, out| say(cx, out, |routing| routing.or(RoutingFlags::READS_HERE)));

/// `READWRITE`
static READWRITE: Command = Command::new("readwrite", GROUP, 1)
    .flags(FLAGS)
    .categories(Categories::CONNECTION)
    .doc("3.0.0", "", "Ends READONLY: reads go to the primary again.")
    .repeatable()
    .on_session(|cx, _, out| {
        say(cx, out, |routing| {
            routing.put(RoutingFlags::READS_HERE, false)
        })
    });

#[cfg(test)]
mod tests;
