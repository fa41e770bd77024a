//! CONFIG SET within transactions: its effects on shards, sockets and folders come when no shard is locked.

use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::time::Duration;

use crate::support::{self, Options, Server, check, eventually, free_port, is_listening};
use crate::wire::Raw;

/// Returns the reply of a transaction, as redis-cli prints it.
fn transaction(raw: &mut Raw, lines: &[&str]) -> String {
    check(raw, "MULTI", "OK");
    for line in lines {
        check(raw, line, "QUEUED");
    }
    raw.call("EXEC").show()
}

fn tracked(raw: &mut Raw) -> usize {
    let info = raw.call("INFO stats").body();
    let mut lines = info.lines();
    let line = lines.find_map(|line| line.strip_prefix("tracking_total_keys:"));
    line.and_then(|count| count.parse().ok())
        .expect("a number in INFO")
}

#[test]
fn changes_inside_and_outside_of_transactions_meet_and_nobody_waits_for_ever() {
    const ROUNDS: usize = 120;
    const KEYS: usize = 2_000;
    let server = Server::start(&Options::shards(2).threads(4));
    let is_over = AtomicBool::new(false);
    let work_until_then = |work: &mut dyn FnMut(usize)| {
        let mut turn = 0;
        while !is_over.load(Relaxed) {
            work(turn);
            turn += 1;
        }
    };
    // Keys that clients cache, of which shards are to forget some whenever fewer are allowed.
    let reads = || {
        let (mut raw, mut filler) = (server.raw3(), server.raw());
        check(&mut raw, "CLIENT TRACKING ON NOLOOP", "OK");
        for key in 0..KEYS {
            filler.call(&format!("SET key:{key} value"));
        }
        let lines: Vec<String> = (0..KEYS).map(|key| format!("STRLEN key:{key}")).collect();
        work_until_then(&mut |_| {
            let mut bytes = lines.join("\r\n");
            bytes.push_str("\r\nECHO end\r\n");
            raw.send(bytes.as_bytes());
            // Invalidations come in between.
            while !raw.read().show().contains("end") {}
        });
    };
    let transactions = |number: usize| {
        let mut raw = server.raw();
        work_until_then(&mut |turn| {
            let lines = [
                format!("SET key:{} new", (number * 131 + turn) % KEYS),
                format!("CONFIG SET slowlog-max-len {}", turn % 7),
            ];
            let lines: Vec<&str> = lines.iter().map(String::as_str).collect();
            let reply = transaction(&mut raw, &lines);
            assert_eq!(reply, "1) OK\n2) OK");
        });
    };
    std::thread::scope(|scope| {
        scope.spawn(reads);
        for number in 0..4 {
            let transactions = &transactions;
            scope.spawn(move || transactions(number));
        }
        let mut raw = server.raw();
        let mut result = Ok(());
        for _ in 0..ROUNDS {
            result = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
                check(&mut raw, "CONFIG SET tracking-table-max-keys 0", "OK");
                eventually("many keys are tracked", || tracked(&mut raw) > KEYS / 2);
                check(&mut raw, "CONFIG SET tracking-table-max-keys 10", "OK");
            }));
            if result.is_err() {
                break;
            }
        }
        is_over.store(true, Relaxed);
        if let Err(panic) = result {
            std::panic::resume_unwind(panic);
        }
    });
}

#[test]
fn what_asks_the_system_runs_behind_its_transaction_and_answers_in_its_place() {
    let server = Server::start(&Options::shards(8));
    let (mut raw, mut subscriber) = (server.raw(), server.raw());
    let own = raw.call("CLIENT ID").integer();
    assert!(own > 0);
    subscriber.call("SUBSCRIBE news");
    let long = "x".repeat(20_000);
    check(&mut raw, &format!("SET long {long}"), "OK");
    check(&mut raw, "CONFIG SET slowlog-log-slower-than 4000", "OK");
    // Blocks, numbers that are known later and replies that come later, side by side.
    let reply = transaction(
        &mut raw,
        &[
            "INCR counter",
            "CONFIG SET maxclients 1234",
            "PUBLISH news one",
            "GET long",
            "DEBUG SLEEP 0.01",
            "CONFIG SET maxclients 0",
            "PUBLISH news two",
            "CONFIG SET dir /nowhere/at/all maxclients 99",
            "INCR counter",
        ],
    );
    let refused = "(error) ERR CONFIG SET failed (possibly related to argument";
    let protected = "can't set protected config";
    assert_eq!(
        reply,
        format!(
            "1) (integer) 1\n2) OK\n3) (integer) 1\n4) \"{long}\"\n5) OK\n\
             6) {refused} 'maxclients') - argument must be between 1 and 4294967295 inclusive\n\
             7) (integer) 1\n8) {refused} 'dir') - {protected}\n9) (integer) 2"
        )
    );
    check(
        &mut raw,
        "CONFIG GET maxclients",
        "1) \"maxclients\"\n2) \"1234\"",
    );
    // The command is counted, with the time that it took.
    let stats = raw.call("INFO commandstats").body();
    let line = stats
        .lines()
        .find(|line| line.starts_with("cmdstat_debug:"));
    let line = line.expect("it was counted");
    assert!(line.starts_with("cmdstat_debug:calls=1,"), "{line}");
    let mut figures = line.split(',');
    let usec = figures.find_map(|figure| figure.strip_prefix("usec="));
    let usec: u64 = usec.and_then(|usec| usec.parse().ok()).expect("a number");
    // A busy machine begins to wait late, and so has waited for less.
    assert!(usec >= 4_000, "{line}");
    let slow = raw.call("SLOWLOG GET").show();
    assert!(
        slow.contains("\"0.01\"") && !slow.contains("EXEC"),
        "{slow}"
    );
    let errors = raw.call("INFO errorstats").body();
    assert!(errors.contains("errorstat_ERR:count=2"), "{errors}");
    // Changes of plain parameters are visible to the next commands.
    let reply = transaction(
        &mut raw,
        &[
            "CONFIG SET slowlog-max-len 77",
            "CONFIG GET slowlog-max-len",
        ],
    );
    assert_eq!(reply, "1) OK\n2) 1) \"slowlog-max-len\"\n   2) \"77\"");
}

#[test]
fn a_transaction_moves_the_port_and_changes_limits() {
    let server = Server::start(&Options::shards(8));
    let mut raw = server.raw();
    let port = free_port();
    let change = format!("CONFIG SET port {port}");
    let reply = transaction(&mut raw, &["SET key value", &change, "GET key"]);
    assert_eq!(reply, "1) OK\n2) OK\n3) \"value\"");
    eventually("the new port is open", || is_listening(port));
    let reply = transaction(&mut raw, &["CONFIG SET port 1", "GET key"]);
    if !reply.starts_with("1) OK") {
        let expected = "1) (error) ERR CONFIG SET failed (possibly related to argument 'port') - Unable to listen on \
                        this port. Check server logs.\n2) \"value\"";
        assert_eq!(reply, expected);
        check(
            &mut raw,
            "CONFIG GET port",
            &format!("1) \"port\"\n2) \"{port}\""),
        );
    }
    // Without a file there is nothing to be written.
    let reply = transaction(&mut raw, &["CONFIG REWRITE", "GET key"]);
    assert_eq!(
        reply,
        "1) (error) ERR The server is running without a config file\n2) \"value\""
    );
    // A limit that is set by a transaction is felt.
    for number in 0..2_000 {
        raw.call(&format!("SET filler:{number} {number:0100}"));
    }
    let lines = [
        "CONFIG SET maxmemory 1 maxmemory-policy allkeys-random",
        "PING",
    ];
    assert_eq!(transaction(&mut raw, &lines), "1) OK\n2) PONG");
    eventually("keys go", || raw.call("DBSIZE").integer() == 0);
}

#[test]
fn a_process_has_huge_pages_once_it_is_large_unless_disable_thp_says_yes() {
    for (directive, allowed) in [("yes", "0"), ("no", "1")] {
        let options = Options::shards(4).with("disable-thp", directive);
        let server = Server::start(&options);
        let is_allowed = || {
            let status = std::fs::read_to_string(format!("/proc/{}/status", server.pid()));
            let status = status.expect("the server runs");
            let mut lines = status.lines();
            let said = lines.find_map(|line| line.strip_prefix("THP_enabled:"));
            said.map(|said| said.trim().to_owned())
        };
        let Some(said) = is_allowed() else {
            return support::skipped("this kernel does not say who may have huge pages");
        };
        assert_eq!(said, "0", "a small one with disable-thp {directive}");
        // More than 64 MiB.
        check(&mut server.raw(), "DEBUG POPULATE 100000 key 1000", "OK");
        eventually("the background looks", || {
            is_allowed().is_some_and(|said| said == allowed)
        });
        if directive == "yes" {
            // The server checks each 100 ms.
            std::thread::sleep(Duration::from_millis(300));
            assert_eq!(is_allowed().as_deref(), Some("0"));
        }
        // The allocator asks for them in any case: the kernel's list of mappings has the mark of that.
        let maps = std::fs::read_to_string(format!("/proc/{}/smaps", server.pid()));
        let maps = maps.expect("the server runs");
        let asks = maps
            .lines()
            .any(|line| line.starts_with("VmFlags:") && line.contains(" hg"));
        assert!(asks, "no mapping that huge pages are asked for");
    }
}
