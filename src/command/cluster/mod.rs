//! CLUSTER, and what clients of a cluster say of themselves. With `cluster-enabled no` all of it answers what
//! redis-server answers then; the rows are there for clients that ask which commands there are.
//!
//! ```text
//! emulated   the cluster that is this server and its replicas
//! slots      the keys of a hash slot
//! ```

mod emulated;
mod slots;

use std::fmt::Write;

use emulated::Node;

use super::context::SessionCx;
use super::declaration::{Categories, Command, CommandResult, Flags, Group};
use super::error::CommandError;
use super::server::reply_help;
use super::{Args, Out};
use crate::base::hash;
use crate::base::lossless;
use crate::config::values::{ClusterMode, EndpointType};

const GROUP: Group = Group::Cluster;

/// Of what changes the cluster.
const CHANGES: Flags = Flags::ADMIN.or(Flags::STALE).or(Flags::NO_ASYNC_LOADING);

const TIPS: &[&str] = &["nondeterministic_output"];

pub(super) static TABLE: &[&Command] = &[&ASKING, &CLUSTER, &READONLY, &READWRITE];

const NOT_ENABLED: &str = "ERR This instance has cluster support disabled";

/// The nodes of the cluster, if this server is one.
fn nodes(cx: &SessionCx<'_>) -> Result<Vec<Node>, CommandError> {
    match cx.config.cluster_enabled {
        ClusterMode::Emulated => Ok(emulated::nodes(cx)),
        ClusterMode::No | ClusterMode::Yes => Err(NOT_ENABLED.into()),
    }
}

/// What would change the cluster, which is what it is.
fn change(cx: &mut SessionCx<'_>, _: &Args<'_>, _: &mut Out) -> CommandResult {
    nodes(cx)?;
    Err("ERR This cluster is this server and its replicas (cluster-enabled emulated) and cannot be changed".into())
}

/// `CLUSTER subcommand`
static CLUSTER: Command = Command::new("cluster", GROUP, -2)
    .doc("3.0.0", "", "Holds the commands of Redis Cluster.")
    .complexity("Depends on subcommand.")
    .container(&[
        &ADDSLOTS,
        &ADDSLOTSRANGE,
        &BUMPEPOCH,
        &COUNT_FAILURE_REPORTS,
        &slots::COUNTKEYSINSLOT,
        &DELSLOTS,
        &DELSLOTSRANGE,
        &FAILOVER,
        &FLUSHSLOTS,
        &FORGET,
        &slots::GETKEYSINSLOT,
        &HELP,
        &INFO,
        &KEYSLOT,
        &LINKS,
        &MEET,
        &MYID,
        &MYSHARDID,
        &NODES,
        &REPLICAS,
        &REPLICATE,
        &RESET,
        &SAVECONFIG,
        &SET_CONFIG_EPOCH,
        &SETSLOT,
        &SHARDS,
        &SLAVES,
        &SLOTS,
    ]);

/// `CLUSTER ADDSLOTS slot [slot ...]`
static ADDSLOTS: Command = Command::sub("cluster|addslots", "addslots", GROUP, -3)
    .flags(CHANGES)
    .doc("3.0.0", "slot [slot ...]", "Gives hash slots to this node.")
    .complexity("O(N) for N slots.")
    .repeatable()
    .on_session(change);

/// `CLUSTER ADDSLOTSRANGE start-slot end-slot [start-slot end-slot ...]`
static ADDSLOTSRANGE: Command = Command::sub("cluster|addslotsrange", "addslotsrange", GROUP, -4)
    .flags(CHANGES)
    .doc(
        "7.0.0",
        "start-slot end-slot [start-slot end-slot ...]",
        "Gives ranges of hash slots to this node.",
    )
    .complexity("O(N) for N slots in the ranges.")
    .repeatable()
    .on_session(change);

/// `CLUSTER BUMPEPOCH`
static BUMPEPOCH: Command = Command::sub("cluster|bumpepoch", "bumpepoch", GROUP, 2)
    .flags(CHANGES)
    .doc(
        "3.0.0",
        "",
        "Raises the configuration epoch of the cluster.",
    )
    .tips(TIPS)
    .repeatable()
    .on_session(change);

/// `CLUSTER COUNT-FAILURE-REPORTS node-id`
static COUNT_FAILURE_REPORTS: Command = Command::sub(
    "cluster|count-failure-reports",
    "count-failure-reports",
    GROUP,
    3,
)
.flags(Flags::ADMIN.or(Flags::STALE))
.doc(
    "3.0.0",
    "node-id",
    "Counts the nodes that hold a node to have failed.",
)
.complexity("O(N) for N reports.")
.tips(TIPS)
.repeatable()
.on_session(count_failure_reports);

fn count_failure_reports(cx: &mut SessionCx<'_>, args: &Args<'_>, out: &mut Out) -> CommandResult {
    let nodes = nodes(cx)?;
    known(&nodes, args)?;
    out.integer(0);
    Ok(())
}

fn known<'n>(nodes: &'n [Node], args: &Args<'_>) -> Result<&'n Node, CommandError> {
    let found = nodes.iter().find(|node| node.id.as_bytes() == args.get(2));
    found.ok_or_else(|| format!("ERR Unknown node {}", lossless::text_of(args.get(2))).into())
}

/// `CLUSTER DELSLOTS slot [slot ...]`
static DELSLOTS: Command = Command::sub("cluster|delslots", "delslots", GROUP, -3)
    .flags(CHANGES)
    .doc(
        "3.0.0",
        "slot [slot ...]",
        "Takes hash slots from this node.",
    )
    .complexity("O(N) for N slots.")
    .repeatable()
    .on_session(change);

/// `CLUSTER DELSLOTSRANGE start-slot end-slot [start-slot end-slot ...]`
static DELSLOTSRANGE: Command = Command::sub("cluster|delslotsrange", "delslotsrange", GROUP, -4)
    .flags(CHANGES)
    .doc(
        "7.0.0",
        "start-slot end-slot [start-slot end-slot ...]",
        "Takes ranges of hash slots from this node.",
    )
    .complexity("O(N) for N slots in the ranges.")
    .repeatable()
    .on_session(change);

/// `CLUSTER FAILOVER [FORCE | TAKEOVER]`
static FAILOVER: Command = Command::sub("cluster|failover", "failover", GROUP, -2)
    .flags(CHANGES)
    .doc(
        "3.0.0",
        "[FORCE | TAKEOVER]",
        "Has a replica take its primary's place.",
    )
    .repeatable()
    .on_session(change);

/// `CLUSTER FLUSHSLOTS`
static FLUSHSLOTS: Command = Command::sub("cluster|flushslots", "flushslots", GROUP, 2)
    .flags(CHANGES)
    .doc("3.0.0", "", "Takes all hash slots from this node.")
    .repeatable()
    .on_session(change);

/// `CLUSTER FORGET node-id`
static FORGET: Command = Command::sub("cluster|forget", "forget", GROUP, 3)
    .flags(CHANGES)
    .doc(
        "3.0.0",
        "node-id",
        "Takes a node out of the table of nodes.",
    )
    .repeatable()
    .on_session(change);

/// `CLUSTER HELP`
static HELP: Command = Command::sub("cluster|help", "help", GROUP, 2)
    .flags(Flags::LOADING.or(Flags::STALE))
    .doc("5.0.0", "", "Explains the subcommands of CLUSTER.")
    .repeatable()
    .on_session(help);

fn help(cx: &mut SessionCx<'_>, _: &Args<'_>, out: &mut Out) -> CommandResult {
    nodes(cx)?;
    let lines = [
        "COUNT-FAILURE-REPORTS <node-id>",
        "    Count the nodes that hold a node to have failed.",
        "COUNTKEYSINSLOT <slot>",
        "    Count the keys of a slot.",
        "GETKEYSINSLOT <slot> <count>",
        "    Answer keys of a slot.",
        "INFO",
        "    Answer the state of the cluster.",
        "KEYSLOT <key>",
        "    Answer the slot of a key.",
        "LINKS",
        "    List the connections with other nodes.",
        "MYID",
        "    Answer the id of this node.",
        "MYSHARDID",
        "    Answer the id of this node's shard.",
        "NODES",
        "    List the nodes, a line each.",
        "REPLICAS <node-id>",
        "    List the replicas of a node.",
        "SHARDS",
        "    List shards with their slots and nodes.",
        "SLOTS",
        "    List ranges of slots with their nodes.",
    ];
    reply_help("CLUSTER", &lines, out);
    Ok(())
}

/// `CLUSTER INFO`
static INFO: Command = Command::sub("cluster|info", "info", GROUP, 2)
    .flags(Flags::STALE)
    .doc(
        "3.0.0",
        "",
        "Answers the state of the cluster as this node sees it.",
    )
    .tips(TIPS)
    .repeatable()
    .on_session(info);

fn info(cx: &mut SessionCx<'_>, _: &Args<'_>, out: &mut Out) -> CommandResult {
    let known = nodes(cx)?.len();
    let mut text = "cluster_state:ok\r\n".to_owned();
    for (name, figure) in figures(known) {
        let _ = write!(text, "{name}:{figure}\r\n");
    }
    out.verbatim("txt", text.as_bytes());
    Ok(())
}

/// The numbers of CLUSTER INFO where one server is the whole cluster, of which so many nodes are known.
pub fn figures(known_nodes: usize) -> [(&'static str, usize); 11] {
    [
        ("cluster_slots_assigned", 16384),
        ("cluster_slots_ok", 16384),
        ("cluster_slots_pfail", 0),
        ("cluster_slots_fail", 0),
        ("cluster_known_nodes", known_nodes),
        ("cluster_size", 1),
        ("cluster_current_epoch", 1),
        ("cluster_my_epoch", 1),
        ("cluster_stats_messages_sent", 0),
        ("cluster_stats_messages_received", 0),
        ("total_cluster_links_buffer_limit_exceeded", 0),
    ]
}

/// `CLUSTER KEYSLOT key`
static KEYSLOT: Command = Command::sub("cluster|keyslot", "keyslot", GROUP, 3)
    .flags(Flags::STALE)
    .doc("3.0.0", "key:string", "Answers the hash slot of a key.")
    .complexity("O(N) for N bytes of the key.")
    .repeatable()
    .on_session(key_slot);

fn key_slot(cx: &mut SessionCx<'_>, args: &Args<'_>, out: &mut Out) -> CommandResult {
    nodes(cx)?;
    out.integer(i64::from(hash::slot(args.get(2))));
    Ok(())
}

/// `CLUSTER LINKS`
static LINKS: Command = Command::sub("cluster|links", "links", GROUP, 2)
    .flags(Flags::STALE)
    .doc("7.0.0", "", "Lists the connections with other nodes.")
    .complexity("O(N) for N nodes.")
    .tips(TIPS)
    .repeatable()
    .on_session(links);

/// There is no bus, and so no link.
fn links(cx: &mut SessionCx<'_>, _: &Args<'_>, out: &mut Out) -> CommandResult {
    nodes(cx)?;
    out.array(0);
    Ok(())
}

/// `CLUSTER MEET ip port [cluster-bus-port]`
static MEET: Command = Command::sub("cluster|meet", "meet", GROUP, -4)
    .flags(CHANGES)
    .doc(
        "3.0.0",
        "ip port [cluster-bus-port:integer]",
        "Makes another node known to this one.",
    )
    .history(&[("4.0.0", "Takes the port of the cluster bus too.")])
    .repeatable()
    .on_session(change);

/// `CLUSTER MYID`
static MYID: Command = Command::sub("cluster|myid", "myid", GROUP, 2)
    .flags(Flags::STALE)
    .doc("3.0.0", "", "Answers the id of this node.")
    .repeatable()
    .on_session(my_id);

fn my_id(cx: &mut SessionCx<'_>, _: &Args<'_>, out: &mut Out) -> CommandResult {
    nodes(cx)?;
    out.bulk(cx.server.run_id().as_bytes());
    Ok(())
}

/// `CLUSTER MYSHARDID`
static MYSHARDID: Command = Command::sub("cluster|myshardid", "myshardid", GROUP, 2)
    .flags(Flags::STALE)
    .doc("7.2.0", "", "Answers the id of this node's shard.")
    .tips(TIPS)
    .repeatable()
    .on_session(my_shard_id);

/// The id of the stream, which a primary shares with its replicas.
fn my_shard_id(cx: &mut SessionCx<'_>, _: &Args<'_>, out: &mut Out) -> CommandResult {
    nodes(cx)?;
    out.bulk(cx.server.primary().stream().id.as_bytes());
    Ok(())
}

/// `CLUSTER NODES`
static NODES: Command = Command::sub("cluster|nodes", "nodes", GROUP, 2)
    .flags(Flags::STALE)
    .doc(
        "3.0.0",
        "",
        "Lists the nodes as their file of the configuration does.",
    )
    .complexity("O(N) for N nodes.")
    .tips(TIPS)
    .repeatable()
    .on_session(node_lines);

fn node_lines(cx: &mut SessionCx<'_>, _: &Args<'_>, out: &mut Out) -> CommandResult {
    let nodes = nodes(cx)?;
    let lines: String = nodes
        .iter()
        .map(|node| node.line(&nodes[0].id) + "\n")
        .collect();
    out.verbatim("txt", lines.as_bytes());
    Ok(())
}

/// `CLUSTER REPLICAS node-id`
static REPLICAS: Command = Command::sub("cluster|replicas", "replicas", GROUP, 3)
    .flags(Flags::ADMIN.or(Flags::STALE))
    .doc("5.0.0", "node-id", "Lists the replicas of a primary.")
    .complexity("O(N) for N replicas.")
    .tips(TIPS)
    .repeatable()
    .on_session(replicas);

fn replicas(cx: &mut SessionCx<'_>, args: &Args<'_>, out: &mut Out) -> CommandResult {
    let nodes = nodes(cx)?;
    if !known(&nodes, args)?.is_primary {
        return Err("ERR The specified node is not a master".into());
    }
    out.array(nodes.len() - 1);
    for replica in &nodes[1..] {
        out.bulk(replica.line(&nodes[0].id).as_bytes());
    }
    Ok(())
}

/// `CLUSTER REPLICATE node-id`
static REPLICATE: Command = Command::sub("cluster|replicate", "replicate", GROUP, 3)
    .flags(CHANGES)
    .doc(
        "3.0.0",
        "node-id",
        "Makes this node a replica of a primary.",
    )
    .repeatable()
    .on_session(change);

/// `CLUSTER RESET [HARD | SOFT]`
static RESET: Command = Command::sub("cluster|reset", "reset", GROUP, -2)
    .flags(Flags::ADMIN.or(Flags::NOSCRIPT).or(Flags::STALE))
    .doc(
        "3.0.0",
        "[HARD | SOFT]",
        "Makes this node forget the cluster.",
    )
    .complexity("O(N) for N known nodes, and for the keys that go.")
    .repeatable()
    .on_session(change);

/// `CLUSTER SAVECONFIG`
static SAVECONFIG: Command = Command::sub("cluster|saveconfig", "saveconfig", GROUP, 2)
    .flags(CHANGES)
    .doc("3.0.0", "", "Writes the file of the configuration.")
    .repeatable()
    .on_session(change);

/// `CLUSTER SET-CONFIG-EPOCH config-epoch`
static SET_CONFIG_EPOCH: Command =
    Command::sub("cluster|set-config-epoch", "set-config-epoch", GROUP, 3)
        .flags(CHANGES)
        .doc(
            "3.0.0",
            "config-epoch:integer",
            "Sets the configuration epoch of a new node.",
        )
        .repeatable()
        .on_session(change);

/// `CLUSTER SETSLOT slot <IMPORTING node-id | MIGRATING node-id | NODE node-id | STABLE>`
static SETSLOT: Command = Command::sub("cluster|setslot", "setslot", GROUP, -4)
    .flags(CHANGES)
    .doc(
        "3.0.0",
        "slot <IMPORTING node-id | MIGRATING node-id | NODE node-id | STABLE>",
        "Says whose a hash slot is, or where it moves.",
    )
    .repeatable()
    .on_session(change);

/// `CLUSTER SHARDS`
static SHARDS: Command = Command::sub("cluster|shards", "shards", GROUP, 2)
    .flags(Flags::LOADING.or(Flags::STALE))
    .doc("7.0.0", "", "Lists shards with their slots and nodes.")
    .complexity("O(N) for N nodes.")
    .tips(TIPS)
    .repeatable()
    .on_session(shards);

fn shards(cx: &mut SessionCx<'_>, _: &Args<'_>, out: &mut Out) -> CommandResult {
    let nodes = nodes(cx)?;
    let endpoint_type = cx.config.cluster_preferred_endpoint_type;
    out.array(1);
    out.map(2);
    out.bulk(b"slots");
    out.array(2);
    out.integer(0);
    out.integer(i64::from(hash::SLOTS) - 1);
    out.bulk(b"nodes");
    out.array(nodes.len());
    for node in &nodes {
        let address = &node.address;
        let has_hostname = !address.hostname.is_empty();
        out.map(7 + usize::from(has_hostname));
        out.bulk(b"id");
        out.bulk(node.id.as_bytes());
        out.bulk(b"port");
        out.integer(i64::from(address.port));
        out.bulk(b"ip");
        out.bulk(address.ip.as_bytes());
        out.bulk(b"endpoint");
        endpoint(node, endpoint_type, out);
        if has_hostname {
            out.bulk(b"hostname");
            out.bulk(address.hostname.as_bytes());
        }
        out.bulk(b"role");
        out.bulk(if node.is_primary {
            b"master"
        } else {
            b"replica"
        });
        out.bulk(b"replication-offset");
        out.integer(node.offset.cast_signed());
        out.bulk(b"health");
        out.bulk(if node.is_linked {
            b"online"
        } else {
            b"loading"
        });
    }
    Ok(())
}

fn endpoint(node: &Node, wanted: EndpointType, out: &mut Out) {
    match node.address.endpoint(wanted) {
        Some(endpoint) => out.bulk(endpoint.as_bytes()),
        None => out.null(),
    }
}

/// `CLUSTER SLAVES node-id`
static SLAVES: Command = Command::sub("cluster|slaves", "slaves", GROUP, 3)
    .flags(Flags::ADMIN.or(Flags::STALE))
    .doc("3.0.0", "node-id", "Lists the replicas of a primary.")
    .complexity("O(N) for N replicas.")
    .tips(TIPS)
    .deprecated("5.0.0", "`CLUSTER REPLICAS`")
    .repeatable()
    .on_session(replicas);

/// `CLUSTER SLOTS`
static SLOTS: Command = Command::sub("cluster|slots", "slots", GROUP, 2)
    .flags(Flags::LOADING.or(Flags::STALE))
    .doc("3.0.0", "", "Lists ranges of hash slots with their nodes.")
    .complexity("O(N) for N nodes.")
    .history(&[
        ("4.0.0", "Tells the ids of nodes too."),
        ("7.0.0", "Tells more about how nodes are reached."),
    ])
    .tips(TIPS)
    .deprecated("7.0.0", "`CLUSTER SHARDS`")
    .repeatable()
    .on_session(slot_ranges);

fn slot_ranges(cx: &mut SessionCx<'_>, _: &Args<'_>, out: &mut Out) -> CommandResult {
    let nodes = nodes(cx)?;
    let endpoint_type = cx.config.cluster_preferred_endpoint_type;
    let is_shown = |node: &&Node| node.is_primary || node.is_linked;
    let shown: Vec<&Node> = nodes.iter().filter(is_shown).collect();
    out.array(1);
    out.array(2 + shown.len());
    out.integer(0);
    out.integer(i64::from(hash::SLOTS) - 1);
    for node in shown {
        let address = &node.address;
        out.array(4);
        endpoint(node, endpoint_type, out);
        out.integer(i64::from(address.port));
        out.bulk(node.id.as_bytes());
        // What the endpoint does not say already.
        let ip = (endpoint_type != EndpointType::Ip).then_some(("ip", &address.ip));
        let has_other = endpoint_type != EndpointType::Hostname && !address.hostname.is_empty();
        let hostname = has_other.then_some(("hostname", &address.hostname));
        let more: Vec<_> = ip.into_iter().chain(hostname).collect();
        out.map(more.len());
        for (name, value) in more {
            out.bulk(name.as_bytes());
            out.bulk(value.as_bytes());
        }
    }
    Ok(())
}

/// `ASKING`
static ASKING: Command = Command::new("asking", GROUP, 1)
    .flags(Flags::FAST)
    .categories(Categories::CONNECTION)
    .doc(
        "3.0.0",
        "",
        "Says that the next command follows an -ASK redirection.",
    )
    .repeatable()
    .on_session(accept);

/// The node has all slots, and serves reads as a replica too, so there is nothing to remember.
fn accept(cx: &mut SessionCx<'_>, _: &Args<'_>, out: &mut Out) -> CommandResult {
    nodes(cx)?;
    out.ok();
    Ok(())
}

const FLAGS: Flags = Flags::FAST.or(Flags::LOADING).or(Flags::STALE);

/// `READONLY`
static READONLY: Command = Command::new("readonly", GROUP, 1)
    .flags(FLAGS)
    .categories(Categories::CONNECTION)
    .doc("3.0.0", "", "Says that a replica's data will do.")
    .repeatable()
    .on_session(accept);

/// `READWRITE`
static READWRITE: Command = Command::new("readwrite", GROUP, 1)
    .flags(FLAGS)
    .categories(Categories::CONNECTION)
    .doc(
        "3.0.0",
        "",
        "Says that a replica's data will not do any more.",
    )
    .repeatable()
    .on_session(accept);

#[cfg(test)]
mod tests {
    use super::super::testing::{Terminal, on_every_setup};

    #[test]
    fn whatever_is_asked_of_a_cluster_there_is_none() {
        const NONE: &str = "(error) ERR This instance has cluster support disabled";
        on_every_setup(|cli| {
            for line in [
                "CLUSTER INFO",
                "CLUSTER HELP",
                "CLUSTER RESET",
                "CLUSTER FAILOVER x y z",
                "cluster keyslot a",
                "CLUSTER COUNTKEYSINSLOT x",
                "CLUSTER GETKEYSINSLOT 1 1",
                "CLUSTER GETKEYSINSLOT 3 +1",
                "READONLY",
                "READWRITE",
                "ASKING",
            ] {
                cli.check(line, NONE);
            }
        });
    }

    #[test]
    fn the_keys_of_a_slot_are_counted_and_listed() {
        on_every_setup(|cli: &mut Terminal| {
            cli.be_cluster();
            for at in 0..3_000 {
                cli.run(&format!("SET {{a}}:{at} v"));
                cli.run(&format!("SET other:{at} v"));
            }
            cli.check("CLUSTER KEYSLOT {a}:1", "(integer) 15495");
            cli.check("CLUSTER COUNTKEYSINSLOT 15495", "(integer) 3000");
            cli.check("CLUSTER GETKEYSINSLOT 15495 0", "(empty array)");
            let listed = cli.run("CLUSTER GETKEYSINSLOT 15495 2000");
            assert_eq!(listed.matches("{a}:").count(), 2_000);
            let mut listed: Vec<&str> = listed
                .lines()
                .filter_map(|line| line.split(") ").nth(1))
                .collect();
            listed.sort_unstable();
            listed.dedup();
            assert_eq!(listed.len(), 2_000, "each once");
            cli.run("DEL {a}:7 {a}:8 {a}:8 none");
            cli.check("CLUSTER COUNTKEYSINSLOT 15495", "(integer) 2998");
            cli.check("CLUSTER COUNTKEYSINSLOT 16384", "(error) ERR Invalid slot");
            cli.check(
                "CLUSTER COUNTKEYSINSLOT a",
                "(error) ERR value is not an integer or out of range",
            );
            const INVALID: &str = "(error) ERR Invalid slot or number of keys";
            cli.check("CLUSTER GETKEYSINSLOT 1 -1", INVALID);
            cli.check("CLUSTER GETKEYSINSLOT -1 1", INVALID);
        });
    }
}
