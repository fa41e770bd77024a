//! Primaries of a cluster that stop: a replica takes over before the end (SHUTDOWN FAILOVER, `shutdown-on-sigterm
//! failover`), or the shutdown is refused (SAFE). The node timeout is longer than the tests, so that no failure is
//! noticed.

use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};
use std::thread;

use crate::clustered::{agree, bus_port, id, info, meet, run, text, unite};
use crate::replicated::{await_link, settle};
use crate::support::{self, Options, Oracle, Server, check, eventually, free_port};
use crate::wire::Value;

const TIMEOUT: &str = "600000";

/// A key in a slot of the first node of three.
const KEY: &str = "{b}k";

fn node() -> Server {
    let options = Options::shards(2)
        .threads(2)
        .with("cluster-enabled", "yes")
        .with("cluster-node-timeout", TIMEOUT)
        .with("shutdown-on-sigterm", "failover")
        .with("repl-diskless-sync-delay", "0")
        .with("cluster-port", &free_port().to_string());
    Server::start(&options)
}

/// Valkey 9 as a node, if it is there.
fn valkey() -> Option<Server> {
    let port = free_port().to_string();
    let directives = [
        ("cluster-enabled", "yes"),
        ("cluster-node-timeout", TIMEOUT),
        ("cluster-port", port.as_str()),
        ("repl-diskless-sync-delay", "0"),
    ];
    Oracle::start_valkey_with(&directives).map(|oracle| oracle.0)
}

/// Makes a cluster of three primaries, with a replica of the first one.
fn unite_with_replica(primaries: &[&Server], replica: &Server) {
    unite(primaries);
    let (first, port) = (primaries[0], bus_port(primaries[0]));
    let introduce = format!("CLUSTER MEET 127.0.0.1 {} {port}", first.port);
    let mut client = replica.raw();
    check(&mut client, &introduce, "OK");
    let (primary, follower) = (id(first), id(replica));
    // Valkey forgets the ID of a replica that introduces itself too early.
    eventually("both know each other", || {
        let knows = |server: &Server, name: &str| {
            let nodes = text(&mut server.raw(), "CLUSTER NODES");
            let mut lines = nodes.lines();
            lines.any(|line| line.starts_with(name) && !line.contains("handshake"))
        };
        knows(replica, &primary) && knows(first, &follower)
    });
    check(&mut client, &format!("CLUSTER REPLICATE {primary}"), "OK");
    let is_known = |server: &&Server| {
        let nodes = text(&mut server.raw(), "CLUSTER NODES");
        let mut lines = nodes.lines();
        lines.any(|line| line.contains("slave") && line.contains(&primary))
    };
    eventually("all know that it follows", || {
        primaries.iter().all(is_known) && is_known(&replica)
    });
    eventually("the replica has the data", || {
        text(&mut replica.raw(), "INFO replication").contains("master_link_status:up")
    });
}

fn stop(primary: &mut Server) {
    primary.raw().send(b"SHUTDOWN NOSAVE FAILOVER\r\n");
    assert_eq!(primary.wait_for_exit(), Some(0));
}

fn await_promotion(replica: &Server) {
    eventually("the replica leads", || {
        text(&mut replica.raw(), "INFO replication").contains("role:master")
    });
}

/// Checks that all nodes left know that the replica leads, and serve.
fn check_heir(heir: &Server, others: &[&Server]) {
    assert!(text(&mut heir.raw(), "INFO replication").contains("role:master"));
    let name = id(heir);
    let knows = |server: &&Server| {
        let nodes = text(&mut server.raw(), "CLUSTER NODES");
        let mut lines = nodes.lines();
        lines.any(|line| line.starts_with(&name) && line.contains("master "))
    };
    eventually("the others know that it leads, and serve", || {
        let serves = |server: &&Server| info(&mut server.raw(), "cluster_state") == "ok";
        others.iter().all(|server| knows(server) && serves(server))
    });
}

/// Writers go on while a signal ends the primary: each one is redirected to the replica, which has all acknowledged
/// writes.
#[test]
fn a_primary_that_gets_sigterm_hands_over_to_its_replica() {
    if support::is_stand_in() {
        return;
    }
    let mut first = node();
    let others = [node(), node(), node()];
    let [second, third, replica] = &others;
    unite_with_replica(&[&first, second, third], replica);
    let mut told = first.raw3();
    check(&mut told, "CLIENT MAINT_NOTIFICATIONS ON", "OK");
    let begun = AtomicUsize::new(0);
    let written = thread::scope(|scope| {
        let writers: Vec<_> = (0..4)
            .map(|writer| {
                let (mut client, begun) = (first.raw(), &begun);
                scope.spawn(move || {
                    let mut acknowledged = 0;
                    loop {
                        let next = (acknowledged + 1).to_string();
                        match client.command(&["SET", &format!("{KEY}{writer}"), &next]) {
                            Value::Error(error) => {
                                return (
                                    acknowledged,
                                    String::from_utf8_lossy(&error).into_owned(),
                                );
                            }
                            reply => assert_eq!(reply.text(), "OK"),
                        }
                        acknowledged += 1;
                        if acknowledged == 1 {
                            begun.fetch_add(1, Relaxed);
                        }
                    }
                })
            })
            .collect();
        eventually("all write", || begun.load(Relaxed) == 4);
        first.signal("TERM");
        let ended = writers
            .into_iter()
            .map(|writer| writer.join().expect("no panic"));
        ended.collect::<Vec<_>>()
    });
    assert_eq!(first.wait_for_exit(), Some(0));
    let log = first.log();
    assert!(log.contains("has taken over"), "{log}");
    for (writer, (acknowledged, error)) in written.iter().enumerate() {
        assert!(error.starts_with("MOVED "), "{error}");
        assert!(error.ends_with(&format!(":{}", replica.port)), "{error}");
        let found = run(second, &["GET", &format!("{KEY}{writer}")]).text();
        assert_eq!(found, acknowledged.to_string());
    }
    check_heir(replica, &[second, third, replica]);
    for kind in ["FAILING_OVER", "SMIGRATED", "FAILED_OVER"] {
        let push = told.read();
        assert_eq!(push.items()[0].text(), kind, "{}", push.show());
    }
}

/// Without a replica that knows the command, or is in sync, the other nodes are told that the primary stops, and elect.
#[test]
fn a_primary_whose_replica_is_of_redis_announces_its_end() {
    if support::is_stand_in() {
        return;
    }
    let port = free_port().to_string();
    let directives = [
        ("cluster-enabled", "yes"),
        ("cluster-node-timeout", TIMEOUT),
        ("cluster-port", port.as_str()),
        ("repl-diskless-sync-delay", "0"),
    ];
    let owned = directives.map(|(name, value)| (name.to_owned(), value.to_owned()));
    let Some(Oracle(replica)) = Oracle::start_with(&owned) else {
        return;
    };
    let mut first = node();
    let (second, third) = (node(), node());
    unite_with_replica(&[&first, &second, &third], &replica);
    for number in 0..100 {
        check(&mut first.raw(), &format!("SET {KEY} {number}"), "OK");
    }
    stop(&mut first);
    await_promotion(&replica);
    check_heir(&replica, &[&second, &third, &replica]);
    assert_eq!(run(&second, &["GET", KEY]).text(), "99");
}

/// The flags of the replica changed after the last change of slots or roles.
#[test]
fn a_replica_that_may_not_lead_is_not_handed_anything() {
    if support::is_stand_in() {
        return;
    }
    let mut first = node();
    let (second, third, replica) = (node(), node(), node());
    unite_with_replica(&[&first, &second, &third], &replica);
    check(
        &mut replica.raw(),
        "CONFIG SET cluster-replica-no-failover yes",
        "OK",
    );
    eventually("the primary knows", || {
        text(&mut first.raw(), "CLUSTER NODES").contains("nofailover")
    });
    stop(&mut first);
    let log = first.log();
    assert!(log.contains("No replica can take over"), "{log}");
    assert!(text(&mut replica.raw(), "INFO replication").contains("role:slave"));
}

#[test]
fn valkey_takes_over_from_us_and_we_from_valkey() {
    if support::is_stand_in() {
        return;
    }
    for is_heir_ours in [false, true] {
        let Some(theirs) = valkey() else {
            return;
        };
        let ours = node();
        let (mut first, replica) = match is_heir_ours {
            true => (theirs, ours),
            false => (ours, theirs),
        };
        let (second, third) = (node(), node());
        unite_with_replica(&[&first, &second, &third], &replica);
        check(&mut first.raw(), &format!("SET {KEY} v"), "OK");
        check(&mut first.raw(), "WAIT 1 10000", "(integer) 1");
        stop(&mut first);
        await_promotion(&replica);
        check_heir(&replica, &[&second, &third, &replica]);
        assert_eq!(run(&second, &["GET", KEY]).text(), "v");
    }
}

#[test]
fn a_handover_that_a_replica_was_asked_for_cannot_be_aborted() {
    if support::is_stand_in() {
        return;
    }
    let (mut first, second, third, replica) = (node(), node(), node(), node());
    unite_with_replica(&[&first, &second, &third], &replica);
    let mut client = first.raw();
    let nothing = "(error) ERR No shutdown in progress.";
    check(&mut client, "SHUTDOWN ABORT", nothing);
    check(
        &mut client,
        "CONFIG SET cluster-manual-failover-timeout 600000",
        "OK",
    );
    settle(&[&first, &replica]);
    // It has everything, and does not answer.
    replica.signal("STOP");
    first.signal("TERM");
    let refused =
        "(error) ERR A replica is taking over, so the shutdown can't be aborted any more.";
    eventually("a replica is asked", || {
        first.log().contains("Handing over to replica")
    });
    eventually("it is too late", || {
        client.call("SHUTDOWN ABORT").show() == refused
    });
    replica.signal("CONT");
    assert_eq!(first.wait_for_exit(), Some(0));
    check_heir(&replica, &[&second, &third, &replica]);
}

#[test]
fn a_primary_that_was_promoted_a_moment_ago_hands_over_too() {
    if support::is_stand_in() {
        return;
    }
    let (first, second, third, mut replica) = (node(), node(), node(), node());
    unite_with_replica(&[&first, &second, &third], &replica);
    settle(&[&first, &replica]);
    check(&mut replica.raw(), "CLUSTER FAILOVER", "OK");
    await_promotion(&replica);
    await_link(&first);
    // The nodes tell each other of their roles by gossip, which may be later than this.
    replica.signal("TERM");
    assert_eq!(replica.wait_for_exit(), Some(0));
    check_heir(&first, &[&second, &third, &first]);
}

#[test]
fn a_primary_with_slots_is_not_stopped_safely() {
    if support::is_stand_in() {
        return;
    }
    let mut server = node();
    unite(&[&server]);
    let mut client = server.raw();
    check(
        &mut client,
        "REPLCONF set-cluster-node-id abc",
        "(error) ERR Unknown node abc",
    );
    // Nothing happens, so clients are told nothing, though there is a replica.
    let mut told = server.raw3();
    check(&mut told, "CLIENT MAINT_NOTIFICATIONS ON", "OK");
    let replica = node();
    meet(&replica, &server);
    agree(&[&server, &replica]);
    let follow = format!("CLUSTER REPLICATE {}", id(&server));
    check(&mut replica.raw(), &follow, "OK");
    await_link(&replica);
    for line in ["SHUTDOWN SAFE", "SHUTDOWN NOSAVE NOW SAFE FAILOVER"] {
        let refused = "(error) ERR Errors trying to SHUTDOWN. Check logs.";
        check(&mut client, line, refused);
    }
    check(&mut told, "GET none", "(null)");
    drop(replica);
    let id = id(&server);
    for line in [
        format!("CLUSTER FAILOVER FORCE REPLICAID {id}"),
        "CLUSTER FAILOVER FORCE TAKEOVER x".to_owned(),
        "CLUSTER FAILOVER REPLICAID".to_owned(),
    ] {
        check(&mut client, &line, "(error) ERR syntax error");
    }
    check(
        &mut client,
        "CONFIG SET shutdown-on-sigterm \"safe nosave\"",
        "OK",
    );
    server.signal("TERM");
    eventually("the signal is refused", || {
        server.log().contains("errors trying to shut down")
    });
    check(&mut client, "SET k v", "OK");
    client.send(b"SHUTDOWN SAFE FORCE NOSAVE\r\n");
    assert_eq!(server.wait_for_exit(), Some(0));
}
