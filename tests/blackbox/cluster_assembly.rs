//! Clusters that nobody assembles: new nodes with `cluster-size` and `cluster-seeds`, next to nodes that must not join.

use std::fs;
use std::process::Command;

use crate::clustered::{TIMEOUT, id, info, run, text};
use crate::support::{
    Options, Oracle, Server, check, eventually, free_port, info_field, is_stand_in, skipped,
};
use crate::wire::Value;

/// The place of a node: its folder, and its ports for clients and for the bus.
struct Place {
    folder: tempfile::TempDir,
    port: u16,
    bus_port: u16,
}

impl Place {
    fn new() -> Place {
        Place {
            folder: tempfile::tempdir().expect("a folder"),
            port: free_port(),
            bus_port: free_port(),
        }
    }

    /// Gives the node other ports, as a pod that comes back has another address.
    fn move_on(&mut self) {
        (self.port, self.bus_port) = (free_port(), free_port());
    }

    fn seed(&self) -> String {
        format!("localhost:{}@{}", self.port, self.bus_port)
    }

    fn folder(&self) -> &str {
        self.folder.path().to_str().expect("a plain path")
    }
}

fn seeds(places: &[Place]) -> String {
    let seeds: Vec<String> = places.iter().map(Place::seed).collect();
    seeds.join(" ")
}

/// Returns the options of a node of a cluster of this many primaries with a replica each.
fn node(place: &Place, seeds: &str, size: usize) -> Options {
    Options::shards(2)
        .threads(1)
        .with("dir", place.folder())
        .with("cluster-enabled", "yes")
        .with("cluster-node-timeout", TIMEOUT)
        .with("cluster-port", &place.bus_port.to_string())
        .with("cluster-seeds", seeds)
        .with("cluster-size", &size.to_string())
        .with("cluster-replicas", "1")
        .with("shutdown-on-sigterm", "failover")
        .with("repl-diskless-sync-delay", "0")
        .with("appendonly", "yes")
        .port(place.port)
}

fn start(places: &[Place], size: usize) -> Vec<Server> {
    let seeds = seeds(places);
    let servers = places
        .iter()
        .map(|place| Server::start(&node(place, &seeds, size)));
    servers.collect()
}

fn is_assembled(server: &Server) -> bool {
    let mut client = server.raw();
    let replication = text(&mut client, "INFO replication");
    info(&mut client, "cluster_state") == "ok"
        && info(&mut client, "cluster_assembly") == "assembled"
        && (replication.contains("role:master\r\nconnected_slaves:1")
            || replication.contains("master_link_status:up"))
}

fn await_assembly(servers: &[Server]) {
    eventually("all nodes are one cluster, and all replicas follow", || {
        servers.iter().all(is_assembled)
    });
}

fn hindrance(server: &Server) -> String {
    let text = text(&mut server.raw(), "CLUSTER INFO");
    let mut lines = text.lines();
    let why = lines.find_map(|line| line.strip_prefix("cluster_assembly_hindrance:"));
    why.unwrap_or_default().to_owned()
}

fn stop(mut server: Server) {
    server.signal("TERM");
    assert_eq!(server.wait_for_exit(), Some(0), "{}", server.log());
}

/// Writes a key into each of some slots, and reads those written before.
fn write(servers: &[Server], round: u32) {
    for key in 0..20 {
        let key = format!("k{key}");
        if round > 0 {
            let before = run(&servers[0], &["GET", &key]);
            assert_eq!(before.text(), (round - 1).to_string(), "{key}");
        }
        assert_eq!(
            run(&servers[0], &["SET", &key, &round.to_string()]).text(),
            "OK"
        );
    }
}

#[test]
fn six_new_nodes_are_a_cluster_and_are_it_again_wherever_they_come_back() {
    if is_stand_in() {
        return;
    }
    let mut places = [(); 6].map(|()| Place::new());
    let mut servers = start(&places, 3);
    await_assembly(&servers);
    let names: Vec<String> = servers.iter().map(id).collect();
    let owners = |servers: &[Server]| {
        let nodes = text(&mut servers[0].raw(), "CLUSTER NODES");
        nodes.lines().filter(|line| line.contains("master")).count()
    };
    assert_eq!(owners(&servers), 3);
    let checked = Command::new("redis-cli")
        .args([
            "--cluster",
            "check",
            &format!("127.0.0.1:{}", servers[0].port),
        ])
        .output();
    match checked {
        Ok(checked) => {
            let said = String::from_utf8_lossy(&checked.stdout).into_owned();
            assert!(checked.status.success(), "{said}");
            assert!(said.contains("All 16384 slots covered"), "{said}");
        }
        Err(_) => skipped("no redis-cli"),
    }
    write(&servers, 0);
    for round in 1..3 {
        // All at once, with new addresses.
        for mut server in servers {
            server.signal("TERM");
            server.wait_for_exit();
        }
        places.iter_mut().for_each(Place::move_on);
        servers = start(&places, 3);
        await_assembly(&servers);
        write(&servers, round);
        assert_eq!(servers.iter().map(id).collect::<Vec<_>>(), names);
    }
    // A primary that is stopped has handed its slots over.
    let is_primary =
        |server: &Server| text(&mut server.raw(), "INFO replication").contains("role:master");
    let at = servers.iter().position(is_primary).expect("three of them");
    stop(servers.remove(at));
    write(&servers, 3);
    let seeds = seeds(&places);
    servers.push(Server::start(&node(&places[at], &seeds, 3)));
    await_assembly(&servers);
    assert_eq!(owners(&servers), 3);
}

/// Starts two nodes of a cluster of one primary and one replica, of which the second comes last.
#[test]
fn nodes_wait_for_the_others_and_say_what_hinders_them() {
    if is_stand_in() {
        return;
    }
    let places = [(); 3].map(|()| Place::new());
    let seeds = seeds(&places);
    let one = Server::start(&node(&places[0], &seeds, 1));
    let waits_for = |server: &Server, expected: [&str; 3]| {
        let fields = ["", "_nodes", "_nodes_needed"];
        eventually("the node waits", || {
            let mut client = server.raw();
            let found = fields.map(|field| info(&mut client, &format!("cluster_assembly{field}")));
            found == expected
        });
    };
    waits_for(&one, ["waiting", "1", "2"]);
    let doctor = text(&mut one.raw(), "MEMORY DOCTOR");
    assert!(
        doctor.contains("waits for the nodes of a new cluster: 1 of 2 are there"),
        "{doctor}"
    );
    check(
        &mut one.raw(),
        "SET k v",
        "(error) CLUSTERDOWN Hash slot not served",
    );
    // A node with data.
    let full = Server::start(
        &Options::shards(2)
            .with("dir", places[1].folder())
            .with("appendonly", "yes")
            .with("appendfsync", "always"),
    );
    check(&mut full.raw(), "SET k v", "OK");
    drop(full);
    let two = Server::start(&node(&places[1], &seeds, 1));
    eventually("both say why", || {
        hindrance(&two).contains("this node does not take part: it has data")
            && hindrance(&one).contains("does not join: it is not new")
    });
    assert_eq!(info(&mut two.raw(), "cluster_slots_assigned"), "0");
    // A node of another size. What is wrong with both is put right while they run.
    let three = Server::start(&node(&places[2], &seeds, 2));
    eventually("both say why", || {
        hindrance(&one).contains("has cluster-size 2 and cluster-replicas 1, this node 1 and 1")
            && hindrance(&three)
                .contains("has cluster-size 1 and cluster-replicas 1, this node 2 and 1")
    });
    waits_for(&one, ["waiting", "1", "2"]);
    check(&mut three.raw(), "CONFIG SET cluster-size 1", "OK");
    eventually("two of them are a cluster", || {
        is_assembled(&one) && is_assembled(&three)
    });
    // The third one joins as another replica.
    check(&mut two.raw(), "FLUSHALL", "OK");
    eventually("the last one follows", || {
        text(&mut two.raw(), "INFO replication").contains("master_link_status:up")
    });
    eventually("it has joined", || {
        info(&mut two.raw(), "cluster_assembly") == "assembled"
    });
}

#[test]
fn servers_of_redis_are_no_part_of_it_and_do_not_mind() {
    if is_stand_in() {
        return;
    }
    let mut places = [(); 4].map(|()| Place::new());
    let directive = |name: &str, value: &str| (name.to_owned(), value.to_owned());
    let redis = |place: &Place| {
        let directives = [
            directive("dir", place.folder()),
            directive("cluster-enabled", "yes"),
            directive("cluster-node-timeout", TIMEOUT),
            directive("cluster-port", &place.bus_port.to_string()),
        ];
        Oracle::start_with(&directives).map(|oracle| oracle.0)
    };
    let (Some(other), Some(empty)) = (redis(&places[2]), redis(&places[3])) else {
        return;
    };
    (places[2].port, places[3].port) = (other.port, empty.port);
    check(&mut other.raw(), "CLUSTER ADDSLOTSRANGE 0 16383", "OK");
    check(&mut other.raw(), "CLUSTER BUMPEPOCH", "BUMPED 1");
    let seeds_of_all = seeds(&places);
    let start = |place: &Place| Server::start(&node(place, &seeds_of_all, 1));
    let ours = [start(&places[0]), start(&places[1])];
    await_assembly(&ours);
    eventually("the one with slots is kept out", || {
        hindrance(&ours[0]).contains("it has slots or a primary in another cluster")
    });
    let knows = |server: &Server, other: &Server| {
        let nodes = text(&mut server.raw(), "CLUSTER NODES");
        let name = id(other);
        let mut lines = nodes.lines();
        lines.any(|line| line.starts_with(&name) && !line.contains("handshake"))
    };
    eventually("the empty one is a node of the cluster", || {
        knows(&empty, &ours[0])
            && knows(&ours[0], &empty)
            && info(&mut empty.raw(), "cluster_state") == "ok"
    });
    assert!(!knows(&other, &ours[0]) && !knows(&ours[0], &other));
    let nodes = text(&mut other.raw(), "CLUSTER NODES");
    let known = nodes.lines().filter(|line| !line.contains("handshake"));
    assert_eq!(known.count(), 1, "{nodes}");
    assert_eq!(info(&mut other.raw(), "cluster_state"), "ok");
    // redis-server reads the file of an assembled node.
    let saved = fs::read_to_string(places[0].folder.path().join("nodes.conf")).expect("a file");
    assert!(saved.contains(" assembly assembled:1:"), "{saved}");
    let name = id(&ours[0]);
    drop(ours);
    let heir = redis(&places[0]).expect("it starts");
    assert_eq!(id(&heir), name);
}

/// Reads a field of the first node of the first shard in CLUSTER SHARDS.
fn field_of_node(server: &Server, name: &str, field: &str) -> Option<String> {
    let shards = server.raw().call("CLUSTER SHARDS");
    let nodes = shards
        .items()
        .iter()
        .flat_map(|shard| shard.items()[3].items().to_vec());
    let fields = |node: &Value| node.items().to_vec();
    let node = nodes
        .map(|node| fields(&node))
        .find(|node| node[1].text() == name)?;
    let at = node
        .iter()
        .position(|value| matches!(value, Value::Bulk(bytes) if bytes == field.as_bytes()))?;
    Some(node[at + 1].text())
}

#[test]
fn zones_are_shown_to_clients_and_to_nodes_of_valkey() {
    if is_stand_in() {
        return;
    }
    let ours = Server::start(&crate::clustered::options().with("availability-zone", "eu-1a"));
    let mut client = ours.raw();
    assert_eq!(
        info_field(&mut client, "server", "availability_zone"),
        "eu-1a"
    );
    let hello = client.call("HELLO");
    let words: Vec<String> = hello.items().iter().map(Value::show).collect();
    assert_eq!(words[14..], ["\"availability_zone\"", "\"eu-1a\""]);
    check(&mut client, "CLUSTER ADDSLOTSRANGE 0 16383", "OK");
    let name = id(&ours);
    assert_eq!(
        field_of_node(&ours, &name, "availability-zone").as_deref(),
        Some("eu-1a")
    );
    let slots = client.call("CLUSTER SLOTS");
    let shown = slots.items()[0].items()[2].items()[3].show();
    assert!(
        shown.contains("availability-zone") && shown.contains("eu-1a"),
        "{shown}"
    );
    let bus = free_port().to_string();
    let started = Oracle::start_valkey_with(&[
        ("cluster-enabled", "yes"),
        ("cluster-port", &bus),
        ("availability-zone", "eu-1b"),
    ]);
    let Some(Oracle(valkey)) = started else {
        return;
    };
    crate::clustered::meet(&valkey, &ours);
    let theirs = id(&valkey);
    eventually("each knows the other's zone", || {
        field_of_node(&ours, &theirs, "availability-zone").as_deref() == Some("eu-1b")
            && field_of_node(&valkey, &name, "availability-zone").as_deref() == Some("eu-1a")
    });
    check(&mut client, "CONFIG SET availability-zone ''", "OK");
    eventually("it is shown no longer", || {
        field_of_node(&valkey, &name, "availability-zone").is_none()
    });
}
