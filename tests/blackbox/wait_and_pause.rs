//! Requests with delayed replies: WAIT, ended by its timeout, by CLIENT UNBLOCK or by the client's end; and
//! pauses.

use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::time::{Duration, Instant};

use crate::support::{self, Options, Server, check, eventually};
use crate::wire::{Raw, encode};

fn is_blocked(raw: &mut Raw, id: i64) -> bool {
    let line = raw.call(&format!("CLIENT LIST ID {id}")).body();
    line.contains(" flags=b ")
}

#[test]
fn what_is_sent_behind_a_wait_is_answered_behind_it() {
    support::at_each_shard_count(|server| {
        let (mut raw, mut other) = (server.raw(), server.raw());
        let id = raw.call("CLIENT ID").integer();
        // Requests before the wait are answered before it ends, and only the other client ends it.
        raw.send(b"SET k 1\r\nWAIT 1 0\r\nINCR k\r\n");
        assert_eq!(raw.read().show(), "OK");
        eventually("waiting", || is_blocked(&mut other, id));
        check(&mut other, "GET k", "\"1\"");
        check(&mut other, &format!("CLIENT UNBLOCK {id}"), "(integer) 1");
        for expected in ["(integer) 0", "(integer) 2"] {
            assert_eq!(raw.read().show(), expected);
        }
        let started = Instant::now();
        raw.send(b"SET k 1\r\nWAIT 1 120\r\nINCR k\r\nWAIT 0 0\r\nGET k\r\n");
        assert_eq!(raw.read().show(), "OK");
        for expected in ["(integer) 0", "(integer) 2", "(integer) 0", "\"2\""] {
            assert_eq!(raw.read().show(), expected);
        }
        assert!(started.elapsed() >= Duration::from_millis(120));
    });
}

#[test]
fn a_wait_without_end_is_ended_by_unblock() {
    support::at_each_shard_count(|server| {
        let mut other = server.raw();
        for (how, reply) in [
            ("", "(integer) 0"),
            (" TIMEOUT", "(integer) 0"),
            (
                " ERROR",
                "(error) UNBLOCKED client unblocked via CLIENT UNBLOCK",
            ),
        ] {
            let mut waiting = server.raw();
            let id = waiting.call("CLIENT ID").integer();
            check(
                &mut other,
                &format!("CLIENT UNBLOCK {id}{how}"),
                "(integer) 0",
            );
            waiting.send(b"WAIT 1 0\r\nPING\r\n");
            eventually("blocked", || is_blocked(&mut other, id));
            check(
                &mut other,
                &format!("CLIENT UNBLOCK {id}{how}"),
                "(integer) 1",
            );
            assert_eq!(waiting.read().show(), reply);
            assert_eq!(waiting.read().show(), "PONG");
            check(
                &mut other,
                &format!("CLIENT UNBLOCK {id}{how}"),
                "(integer) 0",
            );
        }
    });
}

#[test]
fn who_waits_can_be_killed_or_go_away() {
    support::at_each_shard_count(|server| {
        let mut other = server.raw();
        let mut waiting = server.raw();
        let id = waiting.call("CLIENT ID").integer();
        waiting.send(b"WAIT 1 0\r\n");
        eventually("blocked", || is_blocked(&mut other, id));
        check(&mut other, &format!("CLIENT KILL ID {id}"), "(integer) 1");
        assert!(waiting.is_closed());

        let mut waiting = server.raw();
        let id = waiting.call("CLIENT ID").integer();
        waiting.send(b"WAIT 1 0\r\n");
        eventually("blocked", || is_blocked(&mut other, id));
        drop(waiting);
        eventually("gone", || {
            let list = other.call(&format!("CLIENT LIST ID {id}")).body();
            list.is_empty()
        });
    });
}

#[test]
fn silence_holds_for_late_replies_too() {
    support::at_each_shard_count(|server| {
        let mut raw = server.raw();
        raw.send(b"CLIENT REPLY SKIP\r\nWAIT 1 20\r\nPING\r\n");
        assert_eq!(raw.read().show(), "PONG");
    });
}

#[test]
fn a_pause_of_everything_holds_every_request_back() {
    support::at_each_shard_count(|server| {
        let mut raw = server.raw();
        let mut others: Vec<Raw> = (0..4).map(|_| server.raw()).collect();
        others
            .iter_mut()
            .for_each(|other| check(other, "PING", "PONG"));
        let started = Instant::now();
        check(&mut raw, "CLIENT PAUSE 200 ALL", "OK");
        // As in Redis, the one request that could end the pause waits for its end.
        raw.send(b"PING\r\n");
        for (other, request) in
            others
                .iter_mut()
                .zip(["PING\r\n", "GET k\r\n", "CLIENT UNPAUSE\r\n", "KEYS *\r\n"])
        {
            other.send(request.as_bytes());
        }
        assert_eq!(raw.read().show(), "PONG");
        for other in &mut others {
            other.read();
        }
        assert!(started.elapsed() >= Duration::from_millis(195));
    });
}

#[test]
fn no_writer_sleeps_through_the_end_of_a_pause() {
    support::at_each_shard_count(|server| {
        let mut raw = server.raw();
        let mut writers: Vec<Raw> = (0..4).map(|_| server.raw()).collect();
        for round in 1..=50 {
            check(&mut raw, "CLIENT PAUSE 100000 WRITE", "OK");
            for writer in &mut writers {
                writer.send(b"INCR rounds\r\nGET rounds\r\n");
            }
            if round % 2 == 0 {
                eventually("all held back", || {
                    let clients = raw.call("INFO clients").body();
                    clients.contains("blocked_clients:4\r\n")
                });
            }
            check(&mut raw, "CLIENT UNPAUSE", "OK");
            for writer in &mut writers {
                assert!(!writer.read().is_error());
                assert!(!writer.read().is_nil());
            }
            check(&mut raw, "GET rounds", &format!("\"{}\"", round * 4));
        }
    });
}

/// Scripts that run for so long are rolled back, and run again on a thread of their own.
const LONG_SCRIPT: &str = "for i = 1, tonumber(ARGV[1]) do end \
     redis.call('incr', KEYS[1]) redis.call('incr', ARGV[2]) return 1";

#[test]
fn once_a_pause_of_writes_is_answered_nothing_is_written() {
    const ROUNDS: usize = 30;
    const KEYS: [&str; 6] = ["a", "b", "c", "d", "e", "f"];
    for threads in [2, 4, 8] {
        let server = Server::start(&Options::shards(16).threads(threads));
        let stop = AtomicBool::new(false);
        std::thread::scope(|scope| {
            for number in 0..6 {
                let (server, stop) = (&server, &stop);
                scope.spawn(move || {
                    let mut raw = server.raw();
                    let (own, other) = (KEYS[number], KEYS[(number + 1) % KEYS.len()]);
                    let requests = match number {
                        0 => encode(&["EVAL", LONG_SCRIPT, "1", own, "2000000", other]),
                        1 => encode(&["EVAL", LONG_SCRIPT, "1", own, "1000", other]),
                        2 => {
                            let lines = ["MULTI", "INCR a", "INCR f", "EXEC"];
                            lines
                                .map(|line| encode(&line.split(' ').collect::<Vec<_>>()))
                                .concat()
                        }
                        _ => encode(&["INCR", own]).repeat(20),
                    };
                    let replies = [1, 1, 4, 20][number.min(3)];
                    while !stop.load(Relaxed) {
                        raw.send(&requests);
                        (0..replies).for_each(|_| drop(raw.read()));
                    }
                });
            }
            let mut raw = server.raw();
            let read = "MGET a b c d e f";
            let mut before = String::new();
            for round in 0..ROUNDS {
                check(&mut raw, "CLIENT PAUSE 100000 WRITE", "OK");
                let paused = raw.call(read).show();
                std::thread::sleep(Duration::from_millis(10));
                assert_eq!(raw.call(read).show(), paused, "round {round}");
                check(&mut raw, "CLIENT UNPAUSE", "OK");
                eventually("the writers go on", || raw.call(read).show() != paused);
                assert_ne!(before, paused);
                before = paused;
            }
            stop.store(true, Relaxed);
        });
    }
}

#[test]
fn waits_that_are_over_leave_no_memory_behind() {
    const CLIENTS: usize = 20;
    const WAITS: usize = 100;
    let server = Server::start(&Options::shards(16));
    let mut raw = server.raw();
    let figure = |raw: &mut Raw, section: &str, name: &str| -> u64 {
        support::info_number(raw, section, name) as u64
    };
    // Waits that end by time, for keys of several shards, and some whose clients go.
    let mut wait = |round: usize| {
        let mut clients: Vec<Raw> = (0..CLIENTS).map(|_| server.raw()).collect();
        for (number, client) in clients.iter_mut().enumerate() {
            let lines: String = (0..WAITS)
                .map(|at| format!("BLPOP a:{round}:{number}:{at} b:{number}:{at} 0.001\r\n"))
                .collect();
            client.send(lines.as_bytes());
        }
        for client in &mut clients {
            for _ in 0..WAITS {
                assert_eq!(client.read().show(), "(nil array)");
            }
            client.send(format!("BLPOP c:{round} d:{round} 0\r\n").as_bytes());
        }
        let blocked = |raw: &mut Raw| figure(raw, "clients", "blocked_clients");
        eventually("all wait", || blocked(&mut raw) == CLIENTS as u64);
        drop(clients);
        eventually("all are gone", || {
            blocked(&mut raw) == 0 && figure(&mut raw, "clients", "connected_clients") == 1
        });
        // Threads fill their pools of buffers sooner or later.
        let pooled = figure(&mut raw, "memory", "mem_pooled_buffers");
        figure(&mut raw, "memory", "used_memory") - pooled
    };
    // Other buffers and the like are made once.
    let before = (0..3).map(&mut wait).max().expect("some rounds");
    for round in 3..6 {
        wait(round);
    }
    let least = (6..9).map(&mut wait).min().expect("some rounds");
    // A word for each wait of the rounds between would be more.
    assert!(least < before + 48 * 1024, "{least} bytes after {before}");
}
