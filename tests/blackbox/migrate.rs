//! MIGRATE: keys that move to another server while other clients use them.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::SeqCst};

use crate::support::{Options, Oracle, Server, check, eventually};

fn pair() -> (Server, Server) {
    let options = Options::shards(8).threads(4);
    (Server::start(&options), Server::start(&options))
}

#[test]
fn keys_arrive_with_value_and_deadline_and_leave() {
    let (here, there) = pair();
    let (mut one, mut other) = (here.raw(), there.raw());
    let port = there.port;
    check(&mut one, "RPUSH l a b c", "(integer) 3");
    check(&mut one, "SET s v PX 100000", "OK");
    check(&mut one, "SET stays v", "OK");
    check(
        &mut one,
        &format!("MIGRATE 127.0.0.1 {port} none 0 60000"),
        "NOKEY",
    );
    let line = format!("MIGRATE 127.0.0.1 {port} \"\" 3 60000 KEYS l none s l");
    check(&mut one, &line, "OK");
    check(&mut one, "DBSIZE", "(integer) 1");
    check(&mut other, "SELECT 3", "OK");
    check(&mut other, "LRANGE l 0 -1", "1) \"a\"\n2) \"b\"\n3) \"c\"");
    let ttl_ms = other.call("PTTL s").integer();
    assert!((1..=100_000).contains(&ttl_ms), "{ttl_ms}");
    check(
        &mut one,
        &format!("MIGRATE 127.0.0.1 {port} stays 0 60000 COPY"),
        "OK",
    );
    check(&mut one, "GET stays", "\"v\"");
    let line = format!("MIGRATE 127.0.0.1 {port} stays 0 60000");
    let busy =
        "(error) ERR Target instance replied with error: BUSYKEY Target key name already exists.";
    check(&mut one, &line, busy);
    check(&mut one, "EXISTS stays", "(integer) 1");
    check(&mut one, &format!("{line} REPLACE"), "OK");
    check(&mut one, "EXISTS stays", "(integer) 0");
    assert!(
        one.call("INFO stats")
            .body()
            .contains("migrate_cached_sockets:1")
    );
}

#[test]
fn what_can_not_be_done_is_said_and_changes_nothing() {
    let (here, there) = pair();
    let mut one = here.raw();
    // No server listens on the lowest port, and no other test will.
    let (port, closed) = (there.port, 1);
    check(&mut one, "SET k v", "OK");
    for (line, reply) in [
        (
            format!("127.0.0.1 {port} k 0 x"),
            "ERR value is not an integer or out of range",
        ),
        (
            format!("127.0.0.1 {port} k x 10"),
            "ERR value is not an integer or out of range",
        ),
        (format!("127.0.0.1 {port} k 0 10 WHAT"), "ERR syntax error"),
        (format!("127.0.0.1 {port} k 0 10 AUTH"), "ERR syntax error"),
        (
            format!("127.0.0.1 {port} k 0 10 AUTH2 a"),
            "ERR syntax error",
        ),
        (
            format!("127.0.0.1 {port} k 0 10 KEYS a"),
            "ERR When using MIGRATE KEYS option, the key argument must be set to the empty string",
        ),
        (
            format!("127.0.0.1 {closed} k 0 60000"),
            "IOERR error or timeout connecting to the client",
        ),
        (
            format!("127.0.0.1 {port} k 99 60000"),
            "ERR Target instance replied with error: ERR DB index is out of range",
        ),
        // Its own RESTORE waits for the key that MIGRATE itself has paused.
        (
            format!("127.0.0.1 {} k 0 1000", here.port),
            "IOERR error or timeout reading to target instance",
        ),
    ] {
        check(
            &mut one,
            &format!("MIGRATE {line}"),
            &format!("(error) {reply}"),
        );
        check(&mut one, "GET k", "\"v\"");
    }
    check(&mut one, "MULTI", "OK");
    check(
        &mut one,
        &format!("MIGRATE 127.0.0.1 {port} k 0 100"),
        "QUEUED",
    );
    check(
        &mut one,
        "EXEC",
        "1) (error) ERR MIGRATE is not possible inside a transaction or a script",
    );
    // Where SELECT was refused, the key has been restored in the database that was selected there, as Redis
    // does.
    let line = format!("MIGRATE 127.0.0.1 {port} \"\" 0 60000 REPLACE KEYS k k");
    check(&mut one, &line, "OK");
}

#[test]
fn a_server_that_closed_its_connection_is_connected_to_anew() {
    let (here, there) = pair();
    let (mut one, mut other) = (here.raw(), there.raw());
    eventually("nobody else is connected", || {
        other.call("CLIENT LIST").body().lines().count() == 1
    });
    for round in 0..3 {
        check(&mut one, "SET k v", "OK");
        let line = format!("MIGRATE 127.0.0.1 {} k 0 60000 REPLACE", there.port);
        check(&mut one, &line, "OK");
        let killed = other.call("CLIENT KILL TYPE normal SKIPME yes").integer();
        assert_eq!(killed, 1, "round {round}");
    }
}

#[test]
fn redis_takes_what_is_migrated_to_it() {
    let Some(Oracle(oracle)) = Oracle::start() else {
        return;
    };
    let here = Server::start(&Options::shards(4));
    let (mut one, mut other) = (here.raw(), oracle.raw());
    check(&mut other, "CONFIG SET requirepass p", "OK");
    check(&mut one, "HSET h a 1 b 2", "(integer) 2");
    let line = format!("MIGRATE 127.0.0.1 {} h 0 60000", oracle.port);
    let reply = one.call(&line).show();
    assert!(reply.contains("NOAUTH"), "{reply}");
    let reply = one.call(&format!("{line} AUTH wrong")).show();
    assert!(reply.contains("WRONGPASS"), "{reply}");
    check(&mut one, &format!("{line} AUTH2 default p"), "OK");
    check(&mut other, "AUTH p", "OK");
    check(&mut other, "HGET h b", "\"2\"");
    check(&mut one, "DBSIZE", "(integer) 0");
}

/// Increments go on while the key moves: each of them counts once, here or there.
#[test]
fn no_acknowledged_write_is_lost_while_a_key_moves() {
    let (here, there) = pair();
    let key_count = 40;
    let acknowledged = AtomicU64::new(0);
    let (at, is_over) = (AtomicU64::new(0), AtomicBool::new(false));
    std::thread::scope(|scope| {
        for writer in 0..4 {
            let (here, acknowledged, at, is_over) = (&here, &acknowledged, &at, &is_over);
            scope.spawn(move || {
                let mut raw = here.raw();
                while !is_over.load(SeqCst) {
                    let key = at.load(SeqCst);
                    let reply = match writer {
                        0 => {
                            raw.send(format!("MULTI\r\nINCR k{key}\r\nEXEC\r\n").as_bytes());
                            (0..3).for_each(|_| drop(raw.read().show()));
                            String::new()
                        }
                        1 => raw.call(&format!("INCRBY k{key} 1")).show(),
                        _ => raw.call(&format!("EXPIRE k{key} 10000")).show(),
                    };
                    assert!(!reply.contains("error"), "{reply}");
                    acknowledged.fetch_add(u64::from(writer < 2), SeqCst);
                }
            });
        }
        let mut raw = here.raw();
        for key in 0..key_count {
            at.store(key, SeqCst);
            std::thread::sleep(std::time::Duration::from_millis(5));
            let line = format!("MIGRATE 127.0.0.1 {} k{key} 0 60000", there.port);
            let reply = raw.call(&line).show();
            assert!(reply == "OK" || reply == "NOKEY", "{reply}");
        }
        is_over.store(true, SeqCst);
    });
    let (mut one, mut other) = (here.raw(), there.raw());
    let mut counted = 0;
    for key in 0..key_count {
        for raw in [&mut one, &mut other] {
            let value = raw.call(&format!("GET k{key}")).show();
            let digits: String = value.chars().filter(char::is_ascii_digit).collect();
            counted += digits.parse::<u64>().unwrap_or(0);
        }
    }
    assert_eq!(counted, acknowledged.load(SeqCst));
}
