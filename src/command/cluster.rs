//! CLUSTER, and what clients of a cluster say of themselves. This server is no node of one, so all of it answers what
//! redis-server answers with `cluster-enabled no`; the rows are there for clients that ask which commands there are.

use super::context::SessionCx;
use super::declaration::{Categories, Command, CommandResult, Flags, Group};
use super::{Args, Out};

const GROUP: Group = Group::Cluster;

/// Of what changes the cluster.
const CHANGES: Flags = Flags::ADMIN.or(Flags::STALE).or(Flags::NO_ASYNC_LOADING);

const TIPS: &[&str] = &["nondeterministic_output"];

pub(super) static TABLE: &[&Command] = &[&ASKING, &CLUSTER, &READONLY, &READWRITE];

fn no_cluster(_: &mut SessionCx<'_>, _: &Args<'_>, _: &mut Out) -> CommandResult {
    Err("ERR This instance has cluster support disabled".into())
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
        &COUNTKEYSINSLOT,
        &DELSLOTS,
        &DELSLOTSRANGE,
        &FAILOVER,
        &FLUSHSLOTS,
        &FORGET,
        &GETKEYSINSLOT,
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
    .on_session(no_cluster);

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
    .on_session(no_cluster);

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
    .on_session(no_cluster);

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
.on_session(no_cluster);

/// `CLUSTER COUNTKEYSINSLOT slot`
static COUNTKEYSINSLOT: Command =
    Command::sub("cluster|countkeysinslot", "countkeysinslot", GROUP, 3)
        .flags(Flags::STALE)
        .doc("3.0.0", "slot", "Counts the keys of a hash slot.")
        .repeatable()
        .on_session(no_cluster);

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
    .on_session(no_cluster);

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
    .on_session(no_cluster);

/// `CLUSTER FAILOVER [FORCE | TAKEOVER]`
static FAILOVER: Command = Command::sub("cluster|failover", "failover", GROUP, -2)
    .flags(CHANGES)
    .doc(
        "3.0.0",
        "[FORCE | TAKEOVER]",
        "Has a replica take its primary's place.",
    )
    .repeatable()
    .on_session(no_cluster);

/// `CLUSTER FLUSHSLOTS`
static FLUSHSLOTS: Command = Command::sub("cluster|flushslots", "flushslots", GROUP, 2)
    .flags(CHANGES)
    .doc("3.0.0", "", "Takes all hash slots from this node.")
    .repeatable()
    .on_session(no_cluster);

/// `CLUSTER FORGET node-id`
static FORGET: Command = Command::sub("cluster|forget", "forget", GROUP, 3)
    .flags(CHANGES)
    .doc(
        "3.0.0",
        "node-id",
        "Takes a node out of the table of nodes.",
    )
    .repeatable()
    .on_session(no_cluster);

/// `CLUSTER GETKEYSINSLOT slot count`
static GETKEYSINSLOT: Command = Command::sub("cluster|getkeysinslot", "getkeysinslot", GROUP, 4)
    .flags(Flags::STALE)
    .doc("3.0.0", "slot count", "Answers keys of a hash slot.")
    .complexity("O(N) for N keys that are asked for.")
    .tips(TIPS)
    .repeatable()
    .on_session(no_cluster);

/// `CLUSTER HELP`
static HELP: Command = Command::sub("cluster|help", "help", GROUP, 2)
    .flags(Flags::LOADING.or(Flags::STALE))
    .doc("5.0.0", "", "Explains the subcommands of CLUSTER.")
    .repeatable()
    .on_session(no_cluster);

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
    .on_session(no_cluster);

/// `CLUSTER KEYSLOT key`
static KEYSLOT: Command = Command::sub("cluster|keyslot", "keyslot", GROUP, 3)
    .flags(Flags::STALE)
    .doc("3.0.0", "key:string", "Answers the hash slot of a key.")
    .complexity("O(N) for N bytes of the key.")
    .repeatable()
    .on_session(no_cluster);

/// `CLUSTER LINKS`
static LINKS: Command = Command::sub("cluster|links", "links", GROUP, 2)
    .flags(Flags::STALE)
    .doc("7.0.0", "", "Lists the connections with other nodes.")
    .complexity("O(N) for N nodes.")
    .tips(TIPS)
    .repeatable()
    .on_session(no_cluster);

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
    .on_session(no_cluster);

/// `CLUSTER MYID`
static MYID: Command = Command::sub("cluster|myid", "myid", GROUP, 2)
    .flags(Flags::STALE)
    .doc("3.0.0", "", "Answers the id of this node.")
    .repeatable()
    .on_session(no_cluster);

/// `CLUSTER MYSHARDID`
static MYSHARDID: Command = Command::sub("cluster|myshardid", "myshardid", GROUP, 2)
    .flags(Flags::STALE)
    .doc("7.2.0", "", "Answers the id of this node's shard.")
    .tips(TIPS)
    .repeatable()
    .on_session(no_cluster);

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
    .on_session(no_cluster);

/// `CLUSTER REPLICAS node-id`
static REPLICAS: Command = Command::sub("cluster|replicas", "replicas", GROUP, 3)
    .flags(Flags::ADMIN.or(Flags::STALE))
    .doc("5.0.0", "node-id", "Lists the replicas of a primary.")
    .complexity("O(N) for N replicas.")
    .tips(TIPS)
    .repeatable()
    .on_session(no_cluster);

/// `CLUSTER REPLICATE node-id`
static REPLICATE: Command = Command::sub("cluster|replicate", "replicate", GROUP, 3)
    .flags(CHANGES)
    .doc(
        "3.0.0",
        "node-id",
        "Makes this node a replica of a primary.",
    )
    .repeatable()
    .on_session(no_cluster);

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
    .on_session(no_cluster);

/// `CLUSTER SAVECONFIG`
static SAVECONFIG: Command = Command::sub("cluster|saveconfig", "saveconfig", GROUP, 2)
    .flags(CHANGES)
    .doc("3.0.0", "", "Writes the file of the configuration.")
    .repeatable()
    .on_session(no_cluster);

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
        .on_session(no_cluster);

/// `CLUSTER SETSLOT slot <IMPORTING node-id | MIGRATING node-id | NODE node-id | STABLE>`
static SETSLOT: Command = Command::sub("cluster|setslot", "setslot", GROUP, -4)
    .flags(CHANGES)
    .doc(
        "3.0.0",
        "slot <IMPORTING node-id | MIGRATING node-id | NODE node-id | STABLE>",
        "Says whose a hash slot is, or where it moves.",
    )
    .repeatable()
    .on_session(no_cluster);

/// `CLUSTER SHARDS`
static SHARDS: Command = Command::sub("cluster|shards", "shards", GROUP, 2)
    .flags(Flags::LOADING.or(Flags::STALE))
    .doc("7.0.0", "", "Lists shards with their slots and nodes.")
    .complexity("O(N) for N nodes.")
    .tips(TIPS)
    .repeatable()
    .on_session(no_cluster);

/// `CLUSTER SLAVES node-id`
static SLAVES: Command = Command::sub("cluster|slaves", "slaves", GROUP, 3)
    .flags(Flags::ADMIN.or(Flags::STALE))
    .doc("3.0.0", "node-id", "Lists the replicas of a primary.")
    .complexity("O(N) for N replicas.")
    .tips(TIPS)
    .deprecated("5.0.0", "`CLUSTER REPLICAS`")
    .repeatable()
    .on_session(no_cluster);

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
    .on_session(no_cluster);

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
    .on_session(no_cluster);

const FLAGS: Flags = Flags::FAST.or(Flags::LOADING).or(Flags::STALE);

/// `READONLY`
static READONLY: Command = Command::new("readonly", GROUP, 1)
    .flags(FLAGS)
    .categories(Categories::CONNECTION)
    .doc("3.0.0", "", "Says that a replica's data will do.")
    .repeatable()
    .on_session(no_cluster);

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
    .on_session(no_cluster);

#[cfg(test)]
mod tests {
    use super::super::testing::on_every_setup;

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
                "READONLY",
                "READWRITE",
                "ASKING",
            ] {
                cli.check(line, NONE);
            }
        });
    }
}
