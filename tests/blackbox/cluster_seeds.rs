//! `cluster-seeds`: nodes that discover each other.

use crate::clustered::TIMEOUT;
use crate::support::{Options, Server, check, eventually, free_port, is_stand_in};

/// Returns the options of a node at these ports, for clients and for the bus.
fn node((port, bus): (u16, u16)) -> Options {
    Options::shards(2)
        .threads(1)
        .with("cluster-enabled", "yes")
        .with("cluster-node-timeout", TIMEOUT)
        .with("cluster-port", &bus.to_string())
        .port(port)
}

fn places<const N: usize>() -> ([(u16, u16); N], String) {
    let places = [(); N].map(|()| (free_port(), free_port()));
    let seeds = places.map(|(port, bus)| format!("localhost:{port}@{bus}"));
    (places, seeds.join(" "))
}

/// Nodes that a server is linked to.
fn linked(server: &Server) -> usize {
    let nodes = server.raw().call("CLUSTER NODES").text();
    let others = nodes.lines().filter(|line| !line.contains("myself"));
    others
        .filter(|line| !line.contains("handshake") && line.contains(" connected"))
        .count()
}

#[test]
fn nodes_that_start_alone_find_each_other_by_name() {
    if is_stand_in() {
        return;
    }
    let (places, seeds) = places::<3>();
    let start = |at: usize| Server::start(&node(places[at]).with("cluster-seeds", &seeds));
    let (one, two, three) = (start(0), start(1), start(2));
    for server in [&one, &two, &three] {
        eventually("it is linked to both others", || linked(server) == 2);
    }
    // One restarts as another node, which knows no other node.
    let name = three.raw().call("CLUSTER MYID").text();
    drop(three);
    let three = start(2);
    assert_ne!(three.raw().call("CLUSTER MYID").text(), name);
    eventually("it is linked to both others", || linked(&three) == 2);
}

#[test]
fn places_may_be_named_while_the_node_runs() {
    if is_stand_in() {
        return;
    }
    let (places, seeds) = places::<2>();
    let (one, two) = (
        Server::start(&node(places[0])),
        Server::start(&node(places[1])),
    );
    assert_eq!((linked(&one), linked(&two)), (0, 0));
    let mut client = one.raw();
    for wrong in ["localhost", "localhost:0", "localhost:1,localhost:2"] {
        let reply = client.command(&["CONFIG", "SET", "cluster-seeds", wrong]);
        assert!(
            reply
                .show()
                .contains("cluster-seeds must be a list of host:port"),
            "{}",
            reply.show()
        );
    }
    let set = client.command(&["CONFIG", "SET", "cluster-seeds", &seeds]);
    assert_eq!(set.text(), "OK");
    eventually("they are linked", || linked(&one) == 1 && linked(&two) == 1);
    check(&mut client, "CLUSTER KEYSLOT a", "(integer) 15495");
}
