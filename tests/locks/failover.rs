//! Locks on a primary whose replica is promoted: which guarantees are kept, and which are not.

use crate::support::{Options, Server, check, eventually, info_text};
use crate::wire::Raw;

const TAKE: &str = "SET lock first NX PX 60000";
const TAKE_TOO: &str = "SET lock second NX PX 60000";

/// A primary and its replica.
struct Pair {
    primary: Server,
    replica: Server,
}

impl Pair {
    fn start() -> Pair {
        let start = || Server::start(&Options::shards(8).with("repl-diskless-sync-delay", "0"));
        let pair = Pair {
            primary: start(),
            replica: start(),
        };
        let line = format!("REPLICAOF 127.0.0.1 {}", pair.primary.port);
        check(&mut pair.replica.raw(), &line, "OK");
        let mut raw = pair.primary.raw();
        eventually("the replica is online", || {
            let told = info_text(&mut raw, "replication", "slave0");
            told.is_some_and(|told| told.contains("state=online"))
        });
        // It counts once it has answered.
        raw.call("SET warm up");
        eventually("the replica acknowledges", || {
            raw.call("WAIT 1 100").integer() == 1
        });
        pair
    }

    /// Kills the primary, with everything that it has not sent, and promotes the replica.
    fn lose_primary(&mut self) -> Raw {
        self.primary.signal("KILL");
        self.primary.wait_for_exit();
        self.replica.signal("CONT");
        let mut raw = self.replica.raw();
        check(&mut raw, "REPLICAOF NO ONE", "OK");
        raw
    }
}

#[test]
fn a_lock_that_no_replica_has_is_lost_with_its_primary_and_wait_says_so() {
    let mut pair = Pair::start();
    let mut raw = pair.primary.raw();
    pair.replica.signal("STOP");
    check(&mut raw, "CLIENT KILL TYPE replica", "(integer) 1");
    // Until the connection is closed it may take in more, for a replica that reads on later.
    eventually("the replica's connection is closed", || {
        info_text(&mut raw, "replication", "connected_slaves").as_deref() == Some("0")
    });
    check(&mut raw, TAKE, "OK");
    // Hence it is not trusted, and is released if possible.
    check(&mut raw, "WAIT 1 50", "(integer) 0");
    let mut after = pair.lose_primary();
    check(&mut after, TAKE_TOO, "OK");
}

#[test]
fn a_lock_that_wait_counted_is_held_after_the_primary_died() {
    let mut pair = Pair::start();
    let mut raw = pair.primary.raw();
    check(&mut raw, TAKE, "OK");
    check(&mut raw, "WAIT 1 5000", "(integer) 1");
    let mut after = pair.lose_primary();
    check(&mut after, TAKE_TOO, "(nil)");
    check(&mut after, "DELEX lock IFEQ second", "(integer) 0");
    check(&mut after, "DELEX lock IFEQ first", "(integer) 1");
}

#[test]
fn a_planned_failover_takes_locks_along_with_their_time() {
    let pair = Pair::start();
    let mut old = pair.primary.raw();
    check(&mut old, "SET lock first NX PX 1500", "OK");
    check(&mut old, "FAILOVER", "OK");
    let mut new = pair.replica.raw();
    eventually("the roles have changed", || {
        info_text(&mut new, "replication", "role").as_deref() == Some("master")
    });
    check(&mut new, TAKE_TOO, "(nil)");
    let refused = old.call("DELEX lock IFEQ first");
    assert!(refused.show().contains("READONLY"), "{}", refused.show());
    eventually("the lock runs out", || !new.call(TAKE_TOO).is_nil());
}

#[test]
fn redlock_holds_though_one_of_its_instances_forgot_the_lock() {
    let mut instances: Vec<Pair> = (0..3).map(|_| Pair::start()).collect();
    // The first instance is replaced by a replica that never had the lock: its link was cut before.
    check(&mut instances[0].replica.raw(), "REPLICAOF NO ONE", "OK");
    let take = |raw: &mut Raw, line: &str| usize::from(!raw.call(line).is_nil());
    let mut taken = 0;
    for pair in &instances {
        taken += take(&mut pair.primary.raw(), TAKE);
    }
    assert_eq!(taken, 3);
    let mut first = instances[0].lose_primary();
    let mut taken = take(&mut first, TAKE_TOO);
    for pair in &instances[1..] {
        taken += take(&mut pair.primary.raw(), TAKE_TOO);
    }
    assert_eq!(taken, 1, "no majority for the second");
}
