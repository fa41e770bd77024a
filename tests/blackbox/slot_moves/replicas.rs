//! Replicas at both ends of moves: this server's and Valkey 9's, below primaries of either kind, while
//! clients write. `BASALT_REPLICA_MOVES` sets the number of moves in each direction.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};

use super::broken::attach;
use super::{
    READS, TAG, WRITES, all, await_end, count, fill, is_over, latest, migrate, move_over, owns,
    start_writers, valkey_node,
};
use crate::clustered::{options, unite};
use crate::replicated;
use crate::support::{self, Oracle, Server, check, eventually};

const KEYS: usize = 5_000;
const WRITERS: usize = 2;

/// Complaints about the primary's stream that no replica's log may contain.
const COMPLAINTS: [&str; 4] = [
    "CRITICAL",
    "ASSERTION",
    "crashed by signal",
    "Slot is already being imported",
];

/// A replica stays with its primary, and need not wait for others before it gets the data.
const DIRECTIVES: [(&str, &str); 2] = [
    ("cluster-allow-replica-migration", "no"),
    ("repl-diskless-sync-delay", "0"),
];

fn start() -> Server {
    let all = DIRECTIVES.iter();
    Server::start(&all.fold(options(), |options, (name, value)| {
        options.with(name, value)
    }))
}

/// Starts a replica of this server and one of Valkey for each of two primaries, if Valkey is installed.
fn replicas() -> Option<Vec<Server>> {
    let mut replicas = Vec::new();
    for _ in 0..2 {
        let Oracle(valkey) = valkey_node(&DIRECTIVES)?;
        replicas.extend([start(), valkey]);
    }
    Some(replicas)
}

/// Gives each of two primaries two of the replicas; the shards, each with its primary first.
fn join<'s>(primaries: [&'s Server; 2], replicas: &'s [Server]) -> [Vec<&'s Server>; 2] {
    let mut known = primaries.to_vec();
    let mut shards = primaries.map(|primary| vec![primary]);
    for (at, replica) in replicas.iter().enumerate() {
        attach(replica, primaries[at / 2], &known);
        known.push(replica);
        shards[at / 2].push(replica);
    }
    shards
}

/// Checks that all servers of a shard survived without a complaint, and have their primary's data.
fn check_shard(shard: &[&Server]) {
    replicated::settle(shard);
    for server in shard {
        check(&mut server.raw(), "PING", "PONG");
        let log = server.log();
        let mut lines = log.lines();
        let complaint =
            lines.find(|line| COMPLAINTS.iter().any(|complaint| line.contains(complaint)));
        assert_eq!(complaint, None, "of {}", server.name);
        assert_eq!(count(server), count(shard[0]), "at {}", server.name);
    }
}

/// Moves the slot, again where writes could not be held back for long enough: the machine may be busy.
fn move_in_time(from: &Server, to: &Server) {
    const OUT_OF_TIME: [&str; 4] = ["TRYAGAIN", "Timed out", "paused for too long", "Unpaused"];
    loop {
        migrate(from, to);
        eventually("the move ends", || is_over(from));
        let message = latest(from, "message");
        if !OUT_OF_TIME.iter().any(|why| message.contains(why)) {
            return await_end(from, "success");
        }
    }
}

/// Moves a slot to and fro between two primaries with replicas of both kinds, under writes.
fn move_under_writes(one: &Server, two: &Server) {
    let Some(replicas) = replicas() else {
        return;
    };
    let shards = join([one, two], &replicas);
    let written = all(one, WRITES);
    assert!(written.iter().all(|reply| !reply.contains("error")));
    fill(one, KEYS);
    let before = all(one, READS);
    let stops = Arc::new(AtomicBool::new(false));
    let writers = start_writers(one, WRITERS, &stops);
    let moves = support::variable("BASALT_REPLICA_MOVES", 2);
    for _ in 0..moves {
        for (from, to) in [(one, two), (two, one)] {
            move_in_time(from, to);
            eventually("it has taken them", || owns(to));
            eventually("the keys go", || count(from) == 0);
        }
    }
    stops.store(true, Relaxed);
    let mut sum = 0;
    for writer in writers {
        writer.join().expect("it has not failed").check(&mut sum);
    }
    assert!(sum > 0, "they have written");
    shards.iter().for_each(|shard| check_shard(shard));
    super::check_filled(one, KEYS);
    let after = all(one, READS);
    // The writers change a field of the hash, and the bits and the rest are as they were.
    assert_eq!(after[3..], before[3..]);
}

#[test]
fn replicas_of_both_kinds_below_our_primaries_follow_moves() {
    if support::is_stand_in() {
        return;
    }
    let (one, two) = (start(), start());
    unite(&[&one, &two]);
    move_under_writes(&one, &two);
}

#[test]
fn replicas_of_both_kinds_follow_moves_between_our_primary_and_one_of_valkey() {
    let Some((ours, valkey)) = super::valkey_beside(&DIRECTIVES) else {
        return;
    };
    move_under_writes(&ours, &valkey);
}

#[test]
fn a_move_that_is_cancelled_leaves_nothing_at_the_replicas_of_its_target() {
    if support::is_stand_in() {
        return;
    }
    let (one, two) = (start(), start());
    unite(&[&one, &two]);
    let Some(replicas) = replicas() else {
        return;
    };
    let [_, shard] = join([&one, &two], &replicas);
    fill(&one, 20_000);
    for _ in 0..3 {
        migrate(&one, &two);
        eventually("keys come to the replicas", || {
            shard.iter().all(|server| count(server) > 0) || is_over(&one)
        });
        let is_cancelled = one.raw().call("CLUSTER CANCELSLOTMIGRATIONS").text() == "OK";
        eventually("it is over", || is_over(&one) && is_over(&two));
        if !is_cancelled || owns(&two) {
            // The move was faster.
            move_over(&two, &one);
        }
        eventually("what had come goes", || count(&two) == 0);
    }
    check_shard(&shard);
    let key = format!("{TAG}k0");
    assert_eq!(one.raw().command(&["GET", &key]).text(), "0");
    move_over(&one, &two);
    check_shard(&shard);
}
