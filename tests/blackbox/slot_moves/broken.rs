//! Moves that are cut off: links that break, nodes that are killed, primaries that are replaced by a replica.

use std::io::{Read, Write};
use std::net::{Shutdown, TcpListener, TcpStream};
use std::process::Command;
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::Duration;

use super::{
    TAG, await_end, check_filled, count, fill, is_over, latest, migrate, owns, pair, start,
};
use crate::clustered::{agree, id, options, unite};
use crate::support::{self, Options, Server, check, eventually, free_port};
use crate::wire::Raw;

/// Passes bytes on between the source and the target of a move, until a word has come by.
struct Between {
    port: u16,
    cut: Arc<Mutex<Option<Cut>>>,
}

/// A position at which the connection between two ends is cut.
#[derive(Clone, Copy)]
struct Cut {
    word: &'static str,
    /// Behind the word, or before it.
    is_behind: bool,
    /// A process that is killed then.
    kills: Option<u32>,
}

impl Between {
    fn new(target: u16) -> Between {
        let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
        let port = listener.local_addr().expect("it is bound").port();
        let cut = Arc::new(Mutex::new(None));
        let when = Arc::clone(&cut);
        thread::spawn(move || {
            for from in listener.incoming().flatten() {
                let to = TcpStream::connect(("127.0.0.1", target)).expect("the target is there");
                for (from, to) in [
                    (from.try_clone(), to.try_clone()),
                    (to.try_clone(), from.try_clone()),
                ] {
                    let (from, to) = (from.expect("a socket"), to.expect("a socket"));
                    let when = Arc::clone(&when);
                    thread::spawn(move || pass(from, to, &when));
                }
            }
        });
        Between { port, cut }
    }

    /// Cuts the connection at a message of either side: before it, or after it.
    fn cut_at(&self, word: Option<(&'static str, bool)>) {
        let cut = word.map(|(word, is_behind)| Cut {
            word,
            is_behind,
            kills: None,
        });
        *self.cut.lock().expect("nobody panics") = cut;
    }

    /// Kills a process when a word has come by.
    fn kill_at(&self, word: &'static str, pid: u32) {
        let cut = Cut {
            word,
            is_behind: true,
            kills: Some(pid),
        };
        *self.cut.lock().expect("nobody panics") = Some(cut);
    }
}

fn pass(mut from: TcpStream, mut to: TcpStream, when: &Mutex<Option<Cut>>) {
    let mut bytes = vec![0; 1 << 16];
    while let Ok(count @ 1..) = from.read(&mut bytes) {
        let said = &bytes[..count];
        let cut = *when.lock().expect("nobody panics");
        let found = cut.and_then(
            |Cut {
                 word, is_behind, ..
             }| {
                let wanted = format!("\r\n{word}\r\n").into_bytes();
                let at = said.windows(wanted.len()).position(|part| part == wanted)?;
                Some(if is_behind { count } else { at })
            },
        );
        let _ = to.write_all(&said[..found.unwrap_or(count)]);
        if found.is_some() {
            if let Some(pid) = cut.and_then(|cut| cut.kills) {
                let killed = Command::new("kill").args(["-9", &pid.to_string()]).status();
                assert!(killed.is_ok_and(|status| status.success()), "it was there");
            }
            break;
        }
    }
    // The bytes have to arrive before the end of the connection does.
    thread::sleep(Duration::from_millis(20));
    let _ = from.shutdown(Shutdown::Both);
    let _ = to.shutdown(Shutdown::Both);
}

#[test]
fn a_link_that_breaks_at_any_word_leaves_one_owner_with_all_keys() {
    if support::is_stand_in() {
        return;
    }
    let port = free_port();
    let between = Between::new(port);
    let announced = options()
        .port(port)
        .with("cluster-announce-port", &between.port.to_string());
    let (one, two) = pair(&announced);
    let keys = 300;
    fill(&one, keys);
    for word in [
        "ESTABLISH",
        "ACK",
        "SNAPSHOT-EOF",
        "REQUEST-PAUSE",
        "PAUSED",
        "REQUEST-FAILOVER",
    ] {
        for behind in [false, true] {
            between.cut_at(Some((word, behind)));
            migrate(&one, &two);
            await_end(&one, "failed");
            eventually("both know", || {
                !latest(&two, "state").ends_with("requested")
            });
            assert!(owns(&one) && !owns(&two), "{word} {behind}");
            check_filled(&one, keys);
            // Writes go on.
            check(&mut one.raw(), &format!("SET {TAG}w {word}"), "OK");
            eventually("what had come goes", || count(&two) == 0);
        }
    }
    // The target does not receive the grant: the source waits, and keeps the slot.
    between.cut_at(Some(("FAILOVER-GRANTED", false)));
    migrate(&one, &two);
    await_end(&one, "failed");
    assert!(owns(&one) && !owns(&two));
    // The target receives the grant, but the source does not learn of it: the bus informs it.
    between.cut_at(Some(("FAILOVER-GRANTED", true)));
    eventually("what had come goes", || count(&two) == 0);
    migrate(&one, &two);
    await_end(&one, "success");
    let mut client = Raw::connect(port);
    assert_eq!(client.command(&["GET", "{b}k7"]).text(), "7");
    check_filled(&two, keys);
    eventually("the keys go", || count(&one) == 0);
}

#[test]
fn a_node_that_is_killed_leaves_the_slot_and_its_keys_with_the_other() {
    if support::is_stand_in() {
        return;
    }
    let keys = 20_000;
    for kills_source in [false, true] {
        let dir = tempfile::tempdir().expect("a folder");
        let kept = options()
            .with("dir", dir.path().to_str().expect("a plain path"))
            .with("appendonly", "yes")
            .with("appendfsync", "always");
        let (kept, lost) = (Server::start(&kept), kept);
        let other = start();
        let (one, two) = match kills_source {
            true => (&kept, &other),
            false => (&other, &kept),
        };
        unite(&[one, two]);
        fill(one, keys);
        migrate(one, two);
        eventually("keys come", || count(two) > 0);
        kept.signal("KILL");
        let port = kept.port;
        let mut kept = kept;
        kept.wait_for_exit();
        drop(kept);
        eventually("the other knows", || is_over(&other));
        let again = support::start_loaded(&lost.port(port));
        let (one, two) = match kills_source {
            true => (&again, &other),
            false => (&other, &again),
        };
        agree(&[one, two]);
        assert!(owns(one) && !owns(two));
        check_filled(one, keys);
        eventually("what had come goes", || count(two) == 0);
        migrate(one, two);
        await_end(one, "success");
        check_filled(two, keys);
    }
}

/// Adds a replica of a node to a cluster.
fn replica_of(primary: &Server, others: &[&Server]) -> Server {
    let replica = start();
    attach(&replica, primary, others);
    replica
}

/// Makes a server a replica of a node, and so a node of the cluster of which some nodes are given.
pub(crate) fn attach(replica: &Server, primary: &Server, others: &[&Server]) {
    let nodes = text_of(primary, "CLUSTER NODES");
    let myself = nodes.lines().find(|line| line.contains("myself"));
    let place = myself.and_then(|line| line.split(' ').nth(1));
    let (address, bus) = place
        .and_then(|place| place.split_once('@'))
        .expect("a place");
    let (_, port) = address.rsplit_once(':').expect("a port");
    let bus = bus.split(',').next().expect("a port");
    check(
        &mut replica.raw(),
        &format!("CLUSTER MEET 127.0.0.1 {port} {bus}"),
        "OK",
    );
    let mut all = others.to_vec();
    all.push(replica);
    agree(&all);
    let line = format!("CLUSTER REPLICATE {}", id(primary));
    check(&mut replica.raw(), &line, "OK");
    agree(&all);
    crate::replicated::await_link(replica);
}

fn text_of(server: &Server, line: &str) -> String {
    String::from_utf8(server.raw().call(line).bytes().to_vec()).expect("it is text")
}

fn fail_over_to(replica: &Server) {
    check(&mut replica.raw(), "CLUSTER FAILOVER", "OK");
    eventually("the replica leads", || {
        replica.raw().call("ROLE").show().contains("\"master\"")
    });
}

#[test]
fn a_failover_at_either_end_leaves_the_slot_where_it_was_and_replicas_follow_what_comes() {
    if support::is_stand_in() {
        return;
    }
    let (one, two, three) = (start(), start(), start());
    unite(&[&one, &two, &three]);
    let spare = replica_of(&two, &[&one, &two, &three]);
    let all = [&one, &two, &three, &spare];
    let keys = 20_000;
    fill(&one, keys);
    migrate(&one, &two);
    eventually("keys come to the replica", || {
        count(&spare) > 0 || is_over(&one)
    });
    fail_over_to(&spare);
    eventually("the source knows", || is_over(&one));
    agree(&all);
    if latest(&one, "state") == "failed" {
        assert!(owns(&one) && !owns(&spare));
        eventually("what had come goes", || {
            count(&two) == 0 && count(&spare) == 0
        });
        check_filled(&one, keys);
        migrate(&one, &spare);
        await_end(&one, "success");
    }
    check_filled(&spare, keys);
    eventually("the replica has them", || {
        count(&two) == keys.cast_signed() as i64
    });
    // Now the source's place is taken.
    migrate(&spare, &one);
    eventually("keys come", || count(&one) > 0 || is_over(&spare));
    fail_over_to(&two);
    eventually("the source knows", || is_over(&spare));
    agree(&all);
    assert!(owns(&one) != owns(&two));
    let owner = if owns(&one) { &one } else { &two };
    check_filled(owner, keys);
    // A source that was replaced behind its grant can not know that the other node has taken the slot.
    if latest(&spare, "state") == "failed" && owns(&two) {
        eventually("what had come goes", || count(&one) == 0);
    }
}

/// Starts a node whose data and slots outlive it, in a folder.
fn lasting(dir: &tempfile::TempDir, more: &Options) -> Options {
    more.clone()
        .with("dir", dir.path().to_str().expect("a plain path"))
        .with("appendonly", "yes")
        .with("appendfsync", "always")
}

#[test]
fn either_end_may_be_killed_at_any_word_and_the_slot_has_one_owner_with_all_keys() {
    if support::is_stand_in() {
        return;
    }
    let keys = 300;
    for kills_source in [false, true] {
        let (source_dir, target_dir) = (tempfile::tempdir(), tempfile::tempdir());
        let dirs = (source_dir.expect("a folder"), target_dir.expect("a folder"));
        let port = free_port();
        let between = Between::new(port);
        let of_source = lasting(&dirs.0, &options());
        let announced = options().with("cluster-announce-port", &between.port.to_string());
        let of_target = lasting(&dirs.1, &announced).port(port);
        let (mut one, mut two) = (Server::start(&of_source), Server::start(&of_target));
        unite(&[&one, &two]);
        fill(&one, keys);
        for word in ["ACK", "SNAPSHOT-EOF", "PAUSED", "FAILOVER-GRANTED"] {
            let pid = if kills_source { one.pid() } else { two.pid() };
            between.kill_at(word, pid);
            migrate(&one, &two);
            let (killed, options) = match kills_source {
                true => (&mut one, &of_source),
                false => (&mut two, &of_target),
            };
            killed.wait_for_exit();
            let options = options.clone().port(killed.port);
            between.cut_at(None);
            *killed = support::start_loaded(&options);
            agree(&[&one, &two]);
            eventually("the slot has one owner", || owns(&one) != owns(&two));
            eventually("the other end knows", || {
                latest(&one, "state").is_empty() || is_over(&one)
            });
            let (owner, other) = match owns(&one) {
                true => (&one, &two),
                false => (&two, &one),
            };
            check_filled(owner, keys);
            eventually("what is not owned goes", || count(other) == 0);
            if owns(&two) {
                migrate(&two, &one);
                await_end(&two, "success");
                eventually("the keys go", || count(&two) == 0);
            }
        }
    }
}
