//! Replicas that are promoted under load, after the primary was killed or by FAILOVER.
//!
//! Clients remember which writes were acknowledged: for a killed primary, those that a replica has according
//! to WAIT; for a planned failover, all that got a reply. The new primary must have a client's state after
//! one of its steps, with no acknowledged step missing. The environment variables in `kills` set the length
//! of the run.

use std::time::{Duration, Instant};

use crate::history::Promise;
use crate::load::{Load, load_library};
use crate::support::{Server, check, eventually, info_number, info_text, variable};
use crate::wire::Raw;

struct Run {
    load: Load,
}

#[test]
fn what_wait_acknowledged_is_there_when_a_replica_takes_over_from_a_killed_primary() {
    let mut run = Run::new(1);
    let mut primary = run.start();
    load_library(&primary);
    let rounds = variable("STORM_ROUNDS", 4);
    for round in 0..rounds {
        let replica = run.start();
        follow(&replica, &primary);
        run.storm(&primary, || {
            primary.signal("KILL");
        });
        primary.wait_for_exit();
        check(&mut replica.raw(), "REPLICAOF NO ONE", "OK");
        // Clients that share keys do not ask WAIT.
        let nothing = Promise::Before(Instant::now() - Duration::from_secs(3_600));
        run.judge(&replica, Promise::Acknowledged, nothing, round);
        primary = replica;
    }
    run.report("killed", rounds);
}

#[test]
fn a_primary_that_is_told_to_end_leaves_all_that_was_answered_to_its_replica() {
    let mut run = Run::new(0);
    let mut primary = run.start();
    load_library(&primary);
    let rounds = variable("STORM_ROUNDS", 4);
    for round in 0..rounds {
        let (replica, late) = (run.start(), run.start());
        follow(&replica, &primary);
        // Another one is in the middle of its first synchronization, or about to begin it.
        check(
            &mut primary.raw(),
            "CONFIG SET rdb-key-save-delay 500",
            "OK",
        );
        let line = format!("REPLICAOF 127.0.0.1 {}", primary.port);
        check(&mut late.raw(), &line, "OK");
        let how = ["SHUTDOWN", "SHUTDOWN SAVE", "SHUTDOWN NOSAVE"][run.load.draw.below(3)];
        run.storm(&primary, || {
            primary
                .raw()
                .send_unchecked(format!("{how}\r\n").as_bytes());
            eventually("it ends", || Raw::try_connect(primary.port).is_err());
        });
        assert_eq!(primary.wait_for_exit(), Some(0), "{}", primary.log());
        check(&mut replica.raw(), "REPLICAOF NO ONE", "OK");
        run.judge(
            &replica,
            Promise::Acknowledged,
            Promise::Acknowledged,
            round,
        );
        primary = replica;
    }
    run.report("ended", rounds);
}

#[test]
fn a_planned_failover_loses_nothing_and_the_old_primary_goes_on_as_a_replica() {
    let mut run = Run::new(0);
    let mut servers = [run.start(), run.start()];
    load_library(&servers[0]);
    follow(&servers[1], &servers[0]);
    let rounds = variable("STORM_ROUNDS", 4);
    for round in 0..rounds {
        let [primary, replica] = &servers;
        run.storm(primary, || {
            check(&mut primary.raw(), "FAILOVER", "OK");
            let mut raw = primary.raw();
            eventually("the roles have changed", || {
                info_text(&mut raw, "replication", "role").as_deref() == Some("slave")
            });
        });
        let role = info_text(&mut replica.raw(), "replication", "role");
        assert_eq!(role.as_deref(), Some("master"), "round {round}");
        run.judge(replica, Promise::Acknowledged, Promise::Acknowledged, round);
        await_link(primary);
        settle(&servers);
        servers.reverse();
        let full = servers
            .iter()
            .map(|server| info_number(&mut server.raw(), "stats", "sync_full"));
        assert_eq!(
            full.sum::<f64>(),
            1.0,
            "round {round}: only the first synchronization is a full one"
        );
    }
    run.report("planned", rounds);
}

/// Makes a server follow another one, and waits until it does.
fn follow(replica: &Server, primary: &Server) {
    let line = format!("REPLICAOF 127.0.0.1 {}", primary.port);
    check(&mut replica.raw(), &line, "OK");
    await_link(replica);
    let mut raw = primary.raw();
    eventually("the replica is online", || {
        let told = info_text(&mut raw, "replication", "slave0");
        told.is_some_and(|told| told.contains("state=online"))
    });
}

fn await_link(replica: &Server) {
    let mut raw = replica.raw();
    eventually("the link is up", || {
        info_text(&mut raw, "replication", "master_link_status").as_deref() == Some("up")
    });
}

/// Waits until both have the same data.
fn settle(servers: &[Server; 2]) {
    let mut clients = servers.each_ref().map(Server::raw);
    eventually("the data are equal", || {
        let [one, other] = clients
            .each_mut()
            .map(|client| client.call("DEBUG DIGEST").show());
        one == other
    });
}

impl Run {
    fn new(replicas: u32) -> Run {
        Run {
            load: Load::new(replicas),
        }
    }

    fn start(&mut self) -> Server {
        let options = self.load.options();
        let options = options
            .threads([1, 2, 4, 8][self.load.draw.below(4)])
            .with("repl-diskless-sync-delay", "0")
            .with("repl-backlog-size", "64mb")
            .with("save", "");
        Server::start(&options)
    }

    /// Puts load on a server, until `end` has ended its time as a primary.
    fn storm(&mut self, server: &Server, end: impl FnOnce()) {
        let ms = 200 + self.load.draw.below(800);
        self.load.storm(server.port, ms, end);
    }

    fn judge(&mut self, server: &Server, own: Promise, shared: Promise, round: u64) {
        let faults = self.load.faults(server, own, shared);
        assert!(faults.is_empty(), "round {round}:\n{}", faults.join("\n"));
    }

    fn report(&self, how: &str, rounds: u64) {
        let Load {
            acknowledged, lost, ..
        } = &self.load;
        assert!(*acknowledged > 0, "nothing was acknowledged");
        eprintln!("{how}: {rounds} failovers, {acknowledged} steps acknowledged, {lost} lost");
    }
}
