//! Maintenance notifications (CLIENT MAINT_NOTIFICATIONS): what clients are told at each failover and at each migration
//! of slots, where among their replies, and what becomes of the requests that wait meanwhile.

use std::io::{Read, Write};
use std::time::Instant;

use rcgen::SanType;

use crate::clustered::{self, agree, id, unite};
use crate::replicated::{await_link, info, settle};
use crate::support::{self, Options, Server, check, eventually};
use crate::tls::{self, Authority};
use crate::wire::{Raw, Value};

const ON: &str = "CLIENT MAINT_NOTIFICATIONS ON";

fn options() -> Options {
    Options::shards(4).with("repl-diskless-sync-delay", "0")
}

/// Returns a primary and its replica.
fn pair() -> (Server, Server) {
    let one = Server::start(&options());
    // A replica from its start: a primary that becomes one tells its clients.
    let following = format!("127.0.0.1 {}", one.port);
    let other = Server::start(&options().with("replicaof", &following));
    await_link(&other);
    settle(&[&one, &other]);
    (one, other)
}

fn listener(server: &Server) -> Raw {
    let mut raw = server.raw3();
    check(&mut raw, ON, "OK");
    raw
}

/// Stops a server's process, and returns when none of its threads runs any more.
fn stop(server: &Server) {
    server.signal("STOP");
    eventually("it is stopped", || {
        let tasks = std::fs::read_dir(format!("/proc/{}/task", server.pid()));
        tasks.expect("its threads").flatten().all(|task| {
            let stat = std::fs::read_to_string(task.path().join("stat")).unwrap_or_default();
            stat.rsplit(')')
                .next()
                .is_some_and(|rest| rest.starts_with(" T"))
        })
    });
}

/// Reads a push; returns its words without the number, and the number.
fn told(raw: &mut Raw) -> (String, i64) {
    let push = raw.read();
    assert!(matches!(&push, Value::Push(_)), "{}", push.show());
    let number = push.items()[1].integer();
    (push.words().replacen(&format!(" {number}"), "", 1), number)
}

/// Reads as many pushes as are expected; their numbers must rise.
fn expect(raw: &mut Raw, expected: &[&str]) {
    let mut last = 0;
    for line in expected {
        let (words, number) = told(raw);
        assert_eq!(words, *line);
        assert!(number > last, "{number} after {last}");
        last = number;
    }
}

fn moving(target: &Server, seconds: u32) -> String {
    format!("MOVING {seconds} 127.0.0.1:{}", target.port)
}

#[test]
fn each_argument_is_checked() {
    support::at_each_shard_count(|server| {
        let (mut raw, mut old) = (server.raw3(), server.raw());
        let refused = "(error) ERR syntax error";
        for line in [
            "CLIENT MAINT_NOTIFICATIONS YES",
            "CLIENT MAINT_NOTIFICATIONS OFF moving-endpoint-type none",
            "CLIENT MAINT_NOTIFICATIONS OFF OFF",
            "CLIENT MAINT_NOTIFICATIONS ON none",
            "CLIENT MAINT_NOTIFICATIONS ON moving-endpoint-type",
            "CLIENT MAINT_NOTIFICATIONS ON endpoint-type none",
            "CLIENT MAINT_NOTIFICATIONS ON moving-endpoint-type none none",
            "CLIENT MAINT_NOTIFICATIONS ON moving-endpoint-type none moving-endpoint-type none",
            "CLIENT MAINT_NOTIFICATIONS ON \"\"",
        ] {
            check(&mut raw, line, refused);
        }
        check(
            &mut raw,
            "CLIENT MAINT_NOTIFICATIONS",
            "(error) ERR wrong number of arguments for 'client|maint_notifications' command",
        );
        check(
            &mut raw,
            "CLIENT MAINT_NOTIFICATIONS ON moving-endpoint-type intern",
            "(error) ERR Unknown moving-endpoint-type 'intern'",
        );
        let only_3 =
            "(error) ERR Maintenance notifications are only available with RESP3 (HELLO 3)";
        check(&mut old, ON, only_3);
        check(&mut old, "CLIENT MAINT_NOTIFICATIONS OFF", "OK");
        for endpoint in [
            "internal-ip",
            "INTERNAL-FQDN",
            "External-Ip",
            "external-fqdn",
            "none",
        ] {
            check(
                &mut raw,
                &format!("{ON} Moving-Endpoint-Type {endpoint}"),
                "OK",
            );
        }
        let has_letter = |raw: &mut Raw| raw.call("CLIENT INFO").text().contains(" capa=m ");
        let clients = |old: &mut Raw| info(old, "maint_notification_clients");
        assert!(has_letter(&mut raw) && clients(&mut old) == "1");
        let filtered = old.call("CLIENT LIST CAPA m").text();
        assert_eq!(filtered.lines().count(), 1, "{filtered}");
        check(&mut raw, "CLIENT MAINT_NOTIFICATIONS off", "OK");
        assert!(!has_letter(&mut raw) && clients(&mut old) == "0");
        check(&mut raw, ON, "OK");
        check(&mut raw, "RESET", "RESET");
        assert!(!has_letter(&mut raw) && clients(&mut old) == "0");
        check(&mut raw, ON, only_3);
        drop(listener(server));
        eventually("it is forgotten", || clients(&mut old) == "0");
    });
}

#[test]
fn it_obeys_rules_of_users_and_can_be_switched_off() {
    let server = Server::start(&options());
    let mut admin = server.raw();
    check(
        &mut admin,
        "ACL SETUSER app on nopass ~* +@all -client|maint_notifications",
        "OK",
    );
    let mut raw = server.raw3();
    check(&mut raw, "AUTH app x", "OK");
    let denied = raw.call(ON).show();
    assert!(denied.contains("NOPERM"), "{denied}");
    check(&mut admin, "ACL SETUSER app -@all +@connection", "OK");
    check(&mut raw, ON, "OK");
    check(&mut admin, "CONFIG SET maint-notifications no", "OK");
    check(
        &mut raw,
        ON,
        "(error) ERR Maintenance notifications are disabled (maint-notifications)",
    );
    check(&mut raw, "CLIENT MAINT_NOTIFICATIONS OFF", "OK");
    check(&mut admin, "CONFIG SET maint-notifications yes", "OK");
    let mut raw = server.raw3();
    let replies = raw.pipeline(&["MULTI", ON, "EXEC"]);
    assert_eq!(replies[2].items()[0].text(), "OK");
    assert_eq!(info(&mut admin, "maint_notification_clients"), "1");
}

#[test]
fn a_failover_is_told_and_no_client_that_asked_is_refused() {
    let (one, other) = pair();
    check(&mut one.raw(), "CONFIG SET maint-handoff-seconds 20", "OK");
    let (mut idle, mut silent, mut old) = (listener(&one), one.raw3(), one.raw());
    let (mut blocks, mut queues, mut scripts) = (listener(&one), listener(&one), listener(&one));
    let mut at_replica = listener(&other);
    check(&mut queues, "MULTI", "OK");
    check(&mut queues, "SET k queued", "QUEUED");
    blocks.send(b"BLPOP list 0\r\n");
    eventually("it blocks", || info(&mut old, "blocked_clients") == "1");
    // The replica has not the whole stream while it is stopped.
    stop(&other);
    check(&mut old, "SET k 0", "OK");
    check(
        &mut idle,
        &format!("FAILOVER TO 127.0.0.1 {} TIMEOUT 60000", other.port),
        "OK",
    );
    expect(&mut idle, &["FAILING_OVER 60 [\"1\"]"]);
    let mut late = one.raw3();
    check(&mut late, ON, "OK");
    assert!(told(&mut late).0.starts_with("FAILING_OVER "));
    // Replies come in between as ever; a write waits.
    check(&mut idle, "GET k", "\"0\"");
    idle.send(b"GET k\r\nSET k 1\r\nGET k\r\n");
    for (raw, request) in [
        (&mut queues, "EXEC\r\n"),
        (
            &mut scripts,
            "EVAL \"return redis.call('set', KEYS[1], 1)\" 1 k\r\n",
        ),
        (&mut silent, "SET k 1\r\n"),
        (&mut old, "SET k 1\r\n"),
    ] {
        raw.send(request.as_bytes());
    }
    assert_eq!(idle.read().text(), "0");
    other.signal("CONT");
    let moved = moving(&other, 20);
    let failing = "FAILING_OVER 60 [\"1\"]";
    expect(&mut idle, &["FAILED_OVER [\"1\"]", &moved]);
    assert!(
        idle.is_closed(),
        "its write is not refused: it may repeat it"
    );
    expect(&mut queues, &[failing, "FAILED_OVER [\"1\"]", &moved]);
    assert!(queues.is_closed());
    expect(&mut scripts, &[failing, "FAILED_OVER [\"1\"]", &moved]);
    assert!(scripts.is_closed());
    expect(&mut late, &["FAILED_OVER [\"1\"]", &moved]);
    // The blocked one was blocked no longer when the role changed.
    expect(&mut blocks, &[failing]);
    blocks.read_to_close();
    for raw in [&mut silent, &mut old] {
        assert!(raw.read().show().starts_with("(error) READONLY"));
    }
    // Nothing was told to the replica's clients, nor written twice or not at all.
    check(&mut at_replica, "GET k", "\"0\"");
    check(&mut at_replica, "SET k 2", "OK");
    settle(&[&other, &one]);
    // Who comes now is told as well, and is not refused either.
    let mut comes = one.raw3();
    check(&mut comes, ON, "OK");
    let (words, _) = told(&mut comes);
    assert!(words.starts_with("MOVING "), "{words}");
    check(&mut comes, "GET k", "\"2\"");
    assert!(closes(&mut comes, "SET k 3"));
    assert!(closes(&mut late, "GET k\r\nSET k 3"));
    assert!(old.call("SET k 3").is_error());
    check(&mut other.raw(), "GET k", "\"2\"");
}

// A client that turns notifications on now is told as well, and is not refused either.
fn closes(raw: &mut Raw, request: &str) -> bool {
    raw.send(format!("{request}\r\n").as_bytes());
    for _ in request.lines().skip(1) {
        raw.read();
    }
    raw.is_closed()
}

#[test]
fn a_failover_that_fails_is_told_to_be_over() {
    let (one, other) = pair();
    let (mut raw, mut waits) = (listener(&one), listener(&one));
    stop(&other);
    check(&mut raw, "SET k 0", "OK");
    check(&mut raw, "FAILOVER TIMEOUT 1200", "OK");
    expect(&mut raw, &["FAILING_OVER 2 [\"1\"]"]);
    waits.send(b"SET k 1\r\n");
    expect(&mut waits, &["FAILING_OVER 2 [\"1\"]"]);
    // The write that waited goes on at the same moment.
    let both = [waits.read(), waits.read()];
    let both = both.each_ref().map(Value::words);
    assert!(both.contains(&"OK".to_owned()), "{both:?}");
    assert!(both.iter().any(|words| words.starts_with("FAILED_OVER ")));
    expect(&mut raw, &["FAILED_OVER [\"1\"]"]);
    check(&mut raw, "FAILOVER", "OK");
    expect(&mut raw, &["FAILING_OVER 30 [\"1\"]"]);
    check(&mut raw, "FAILOVER ABORT", "OK");
    expect(&mut raw, &["FAILED_OVER [\"1\"]"]);
    check(
        &mut raw,
        "FAILOVER ABORT",
        "(error) ERR No failover in progress.",
    );
    other.signal("CONT");
    check(&mut raw, "SET k 2", "OK");
}

#[test]
fn a_primary_made_a_replica_tells_where_the_new_one_is() {
    let (one, other) = pair();
    let (mut address, mut name, mut none) = (listener(&one), one.raw3(), one.raw3());
    check(
        &mut name,
        &format!("{ON} moving-endpoint-type external-fqdn"),
        "OK",
    );
    check(&mut none, &format!("{ON} moving-endpoint-type none"), "OK");
    let mut at_replica = listener(&other);
    // As Sentinel does it: the replica first.
    check(&mut other.raw(), "REPLICAOF NO ONE", "OK");
    let line = format!("REPLICAOF localhost {}", other.port);
    check(&mut one.raw(), &line, "OK");
    let moved = format!("MOVING 30 localhost:{}", other.port);
    expect(&mut address, &[&moved]);
    expect(&mut name, &[&moved]);
    expect(&mut none, &["MOVING 30 (nil)"]);
    check(&mut at_replica, "PING", "PONG");
    // Once more, to another: clients that are here still are told.
    check(&mut one.raw(), "REPLICAOF 127.0.0.1 1", "OK");
    expect(&mut address, &["MOVING 30 127.0.0.1:1"]);
    // A primary again, it takes writes, and nobody is told to go.
    check(&mut one.raw(), "REPLICAOF NO ONE", "OK");
    check(&mut address, "SET k 1", "OK");
    let mut comes = listener(&one);
    check(&mut comes, "SET k 2", "OK");
    // A server that only ever was a replica refuses as before.
    let third = Server::start(&options().with("replicaof", &format!("127.0.0.1 {}", one.port)));
    let mut comes = listener(&third);
    eventually("it follows", || {
        info(&mut comes, "master_link_status") == "up"
    });
    assert!(comes.call("SET k 3").show().starts_with("(error) READONLY"));
}

#[test]
fn a_handover_is_over_after_its_seconds() {
    let one = Server::start(&options().with("maint-handoff-seconds", "1"));
    let mut early = listener(&one);
    let began = Instant::now();
    check(&mut one.raw(), "REPLICAOF 127.0.0.1 1", "OK");
    expect(&mut early, &["MOVING 1 127.0.0.1:1"]);
    eventually("a write is refused", || {
        let mut raw = one.raw3();
        raw.send(format!("{ON}\r\nSET k 1\r\n").as_bytes());
        let replies: Vec<Value> = std::iter::from_fn(|| raw.try_read().ok()).take(2).collect();
        replies
            .iter()
            .any(|reply| reply.show().contains("READONLY"))
    });
    assert!(began.elapsed().as_millis() >= 900);
}

#[test]
fn a_shutdown_with_a_replica_is_told_as_a_failover() {
    let (mut one, other) = pair();
    let mut raw = listener(&one);
    check(&mut one.raw(), "CONFIG SET shutdown-timeout 60", "OK");
    stop(&other);
    check(&mut raw, "SET k 1", "OK");
    one.signal("TERM");
    expect(&mut raw, &["FAILING_OVER 60 [\"1\"]"]);
    eventually("it can be called off", || {
        !one.raw().call("SHUTDOWN ABORT").is_error()
    });
    expect(&mut raw, &["FAILED_OVER [\"1\"]"]);
    check(&mut raw, "SET k 2", "OK");
    one.signal("TERM");
    expect(&mut raw, &["FAILING_OVER 60 [\"1\"]"]);
    other.signal("CONT");
    one.wait_for_exit();
    assert!(raw.is_closed());
    // Without a replica there is nobody to take over.
    let alone = Server::start(&options());
    let mut raw = listener(&alone);
    alone.signal("TERM");
    assert!(raw.is_closed());
}

#[test]
fn a_tls_client_that_wants_a_name_gets_one_of_the_new_primarys_certificate() {
    let authority = Authority::new();
    let names = ["*.test", "localhost", "two.test", "three.test"].map(str::to_owned);
    authority.sign("two", "two", |params| {
        let names = names.map(|name| SanType::DnsName(name.try_into().expect("a name")));
        params.subject_alt_names = names.to_vec();
    });
    let start = |own: &str, following: &str| {
        let tls_port = support::free_port();
        let options = authority.options(tls_port).with("tls-replication", "yes");
        let options = options
            .with("tls-cert-file", &authority.text(&format!("{own}.crt")))
            .with("tls-key-file", &authority.text(&format!("{own}.key")))
            .with("repl-diskless-sync-delay", "0");
        let options = match following {
            "" => options,
            primary => options.with("replicaof", primary),
        };
        (Server::start(&options), tls_port)
    };
    let (one, one_port) = start("server", "");
    let (other, other_port) = start("two", &format!("127.0.0.1 {one_port}"));
    await_link(&other);
    settle(&[&one, &other]);
    let mut channel = tls::connect(one_port, authority.client(Some("client"), tls::NEW));
    let mut lines = |request: &str, end: &str| {
        channel.write_all(request.as_bytes()).expect("it is sent");
        let mut text = Vec::new();
        while !String::from_utf8_lossy(&text).contains(end) {
            let mut byte = [0];
            channel.read_exact(&mut byte).expect("a reply");
            text.push(byte[0]);
        }
        String::from_utf8(text).expect("text")
    };
    let asks = format!("{ON} moving-endpoint-type internal-fqdn\r\n");
    lines(&format!("HELLO 3\r\n{asks}"), "+OK\r\n");
    check(&mut one.raw(), "FAILOVER", "OK");
    let moved = lines("", "two.test:");
    let told = moved + &lines("", "\r\n");
    assert!(
        told.contains("MOVING") && told.ends_with(&format!("two.test:{other_port}\r\n")),
        "neither a pattern nor a name that both have: {told}"
    );
}

fn slots_of(server: &Server) -> String {
    let nodes = server.raw().call("CLUSTER NODES").text();
    let mine = nodes.lines().find(|line| line.contains("myself"));
    let mine = mine.expect("it knows itself");
    mine.split(' ').skip(8).collect::<Vec<_>>().join(",")
}

#[test]
fn a_cluster_tells_which_node_has_the_slots() {
    if support::is_stand_in() {
        return;
    }
    let start = || Server::start(&clustered::options());
    let (one, two, spare) = (start(), start(), start());
    unite(&[&one, &two]);
    clustered::meet(&spare, &one);
    agree(&[&one, &two, &spare]);
    check(
        &mut spare.raw(),
        &format!("CLUSTER REPLICATE {}", id(&one)),
        "OK",
    );
    agree(&[&one, &two, &spare]);
    await_link(&spare);
    let (mut raw, mut at_two, mut at_spare) = (listener(&one), listener(&two), listener(&spare));
    let place = |server: &Server| format!("127.0.0.1:{}", server.port);
    // Slots that move.
    let migrate = |to: &Server| {
        let line = format!("CLUSTER MIGRATESLOTS SLOTSRANGE 7 9 11 11 NODE {}", id(to));
        check(&mut one.raw(), &line, "OK");
    };
    migrate(&two);
    let migrated = format!("SMIGRATED {} {} 7-9,11", place(&one), place(&two));
    expect(&mut raw, &["SMIGRATING 7-9,11", &migrated]);
    agree(&[&one, &two, &spare]);
    let slots = slots_of(&one);
    check(&mut spare.raw(), "CLUSTER FAILOVER", "OK");
    let (words, _) = told(&mut raw);
    assert!(words.starts_with("FAILING_OVER "), "{words}");
    let migrated = format!("SMIGRATED {} {} {slots}", place(&one), place(&spare));
    expect(&mut raw, &[&migrated, "FAILED_OVER [\"1\"]"]);
    let moved = raw.call("SET {b}k 1").show();
    assert!(moved.starts_with("(error) MOVED "), "{moved}");
    agree(&[&one, &two, &spare]);
    // By force it is not announced.
    let mut raw = listener(&spare);
    check(&mut one.raw(), "CLUSTER FAILOVER TAKEOVER", "OK");
    let migrated = format!("SMIGRATED {} {} {slots}", place(&spare), place(&one));
    expect(&mut raw, &[&migrated]);
    for other in [&mut at_two, &mut at_spare] {
        let first = other.call("PING").show();
        assert!(first == "PONG" || first.contains("SMIGRATED"), "{first}");
    }
}

#[test]
fn a_migration_that_is_cancelled_is_told_to_be_over() {
    if support::is_stand_in() {
        return;
    }
    let start = || Server::start(&clustered::options());
    let (one, two) = (start(), start());
    unite(&[&one, &two]);
    let mut raw = listener(&one);
    let mut filler = one.raw();
    for number in 0..64 {
        let value = "x".repeat(1 << 20);
        check(&mut filler, &format!("SET {{b}}{number} {value}"), "OK");
    }
    let line = format!(
        "CLUSTER MIGRATESLOTS SLOTSRANGE 3300 3300 NODE {}",
        id(&two)
    );
    check(&mut filler, &line, "OK");
    expect(&mut raw, &["SMIGRATING 3300"]);
    stop(&two);
    check(&mut filler, "CLUSTER CANCELSLOTMIGRATIONS", "OK");
    expect(&mut raw, &["MIGRATED [\"1\"]"]);
    two.signal("CONT");
    check(&mut raw, "GET {b}none", "(null)");
}

#[test]
fn pushes_come_between_replies() {
    let (one, other) = pair();
    let mut raw = listener(&one);
    // No failover can succeed.
    stop(&other);
    check(&mut raw, "SET other 1", "OK");
    for (line, words) in [
        ("SUBSCRIBE news", "subscribe news 1"),
        ("CLIENT TRACKING ON", "OK"),
    ] {
        assert!(
            raw.call(line)
                .show()
                .contains(words.split(' ').next().expect("a word"))
        );
    }
    let mut admin = one.raw();
    let requests = "GET k\r\nECHO one\r\nMGET a b c\r\n".repeat(200);
    for round in 0..20 {
        raw.send(requests.as_bytes());
        check(&mut admin, "FAILOVER TIMEOUT 60000", "OK");
        let aborted = admin.call("FAILOVER ABORT");
        assert!(!aborted.is_error(), "{round}");
        let (mut replies, mut pushes) = (Vec::new(), Vec::new());
        while replies.len() < 600 || pushes.len() < 2 {
            match raw.read() {
                push @ Value::Push(_) => pushes.push(push.words()),
                reply => replies.push(reply.show()),
            }
        }
        for three in replies.chunks(3) {
            assert_eq!(three[0], "(null)");
            assert_eq!(three[1], "\"one\"");
            assert!(three[2].contains("(null)"));
        }
        assert!(pushes[0].starts_with("FAILING_OVER ") && pushes[1].starts_with("FAILED_OVER "));
    }
}

#[test]
fn a_thousand_clients_that_do_not_read_cost_little() {
    let (one, other) = pair();
    support::raise_descriptor_limit();
    let mut admin = one.raw();
    // No failover can succeed.
    stop(&other);
    check(&mut admin, "SET k 0", "OK");
    let sleepers: Vec<Raw> = (0..1_200).map(|_| listener(&one)).collect();
    assert_eq!(info(&mut admin, "maint_notification_clients"), "1200");
    let before = one.resident_bytes();
    let round = |admin: &mut Raw| {
        check(admin, "FAILOVER TIMEOUT 60000", "OK");
        check(admin, "FAILOVER ABORT", "OK");
    };
    for _ in 0..100 {
        round(&mut admin);
    }
    let sent = |admin: &mut Raw, name: &str| info(admin, name).parse::<u64>().expect("a number");
    eventually("all is sent", || {
        let all = sent(&mut admin, "maint_notifications_sent");
        all + sent(&mut admin, "maint_notifications_dropped") == 240_000
    });
    // The kernel's buffers hold what the sleepers do not read.
    let grown = one.resident_bytes().saturating_sub(before);
    assert!(grown < 64 << 20, "{grown}");
    check(&mut admin, "SET k 1", "OK");
    drop(sleepers);
    eventually("they are gone", || {
        info(&mut admin, "maint_notification_clients") == "0"
    });
}
