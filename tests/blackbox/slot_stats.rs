//! CLUSTER SLOT-STATS: the cost of the requests for each slot, counted as Valkey 9 counts it.

use crate::clustered::options;
use crate::support::{Oracle, Server, blocked, check, eventually, free_port, is_stand_in};
use crate::wire::Raw;

/// The slot of `b` and of keys with that tag.
const SLOT: &str = "3300";

/// Starts a whole cluster of one node, in which the costs of requests are counted.
fn node() -> Server {
    let server = Server::start(&options().with("cluster-slot-stats-enabled", "yes"));
    serve_all(&server);
    server
}

fn serve_all(server: &Server) {
    check(&mut server.raw(), "CLUSTER ADDSLOTSRANGE 0 16383", "OK");
    let serves = || !server.raw().call("GET nothing").is_error();
    eventually("the cluster serves", serves);
    check(&mut server.raw(), "CONFIG RESETSTAT", "OK");
}

/// Returns a slot's figures by their names, in the order of the reply.
fn figures_of(client: &mut Raw, slot: &str) -> Vec<(String, i64)> {
    let line = format!("CLUSTER SLOT-STATS SLOTSRANGE {slot} {slot}");
    let reply = client.call(&line);
    let [row] = reply.items() else {
        panic!("{}", reply.show());
    };
    let pairs = row.items()[1].items().chunks(2);
    pairs
        .map(|pair| (pair[0].text(), pair[1].integer()))
        .collect()
}

/// Returns the costs since the last reset of the figures: the bytes of requests and of replies, and whether
/// any time was counted.
fn taken(client: &mut Raw) -> (i64, i64, bool) {
    let figures = figures_of(client, SLOT);
    let figure = |name: &str| {
        let found = figures.iter().find(|(known, _)| known == name);
        found.unwrap_or_else(|| panic!("no {name}: {figures:?}")).1
    };
    check(client, "CONFIG RESETSTAT", "OK");
    let bytes = (figure("network-bytes-in"), figure("network-bytes-out"));
    (bytes.0, bytes.1, figure("cpu-usec") > 0)
}

/// Requests, run one after the other, with their expected costs according to their bytes. The time is more
/// than zero where a command runs long enough for that.
const DIALOGUES: &[&[&str]] = &[
    &["SET b 1"],
    &["GET b"],
    &["GET b", "GET c"],
    &["MGET {b}1 b"],
    &["HSET {b}h f v", "HGETALL {b}h"],
    &["LPUSH b 1"],
    &["SET b 1 2"],
    &["GET"],
    &["NONE b 1"],
    &["SET a 1", "GET a"],
    &["MEMORY USAGE b"],
    &["WATCH b", "UNWATCH"],
    &["MULTI", "PING", "EXEC", "GET b"],
    &["SPUBLISH b hello"],
    &["CLUSTER COUNTKEYSINSLOT 3300"],
    &["EVAL \"return redis.call('strlen',KEYS[1])\" 0 b"],
    &["EVAL \"return redis.call('strlen',KEYS[1])\" 1 b"],
    &["EVAL \"#!lua flags=allow-cross-slot-keys\\nreturn redis.call('get',KEYS[1])\" 1 b"],
    &["HELLO 3", "GET {b}none"],
];

#[test]
fn bytes_are_those_that_valkey_counts() {
    if is_stand_in() {
        return;
    }
    let bus = free_port().to_string();
    let Some(Oracle(valkey)) = Oracle::start_valkey_with(&[
        ("cluster-enabled", "yes"),
        ("cluster-port", &bus),
        ("cluster-slot-stats-enabled", "yes"),
    ]) else {
        return;
    };
    serve_all(&valkey);
    let ours = node();
    let (mut we, mut they) = (ours.raw(), valkey.raw());
    for dialogue in DIALOGUES {
        let ask = |server: &Server, client: &mut Raw| {
            let mut asking = server.raw();
            for line in *dialogue {
                asking.call(line);
            }
            taken(client)
        };
        let (one, two) = (ask(&ours, &mut we), ask(&valkey, &mut they));
        assert_eq!((one.0, one.1), (two.0, two.1), "{dialogue:?}");
    }
    for line in [
        "SLOTSRANGE 0 1",
        "ORDERBY network-bytes-in LIMIT 2 ASC",
        "ORDERBY cpu-usec LIMIT 3",
        "ORDERBY network-bytes-out DESC LIMIT 1",
        "ORDERBY memory-bytes",
        "ORDERBY cpu-usec LIMIT x",
        "ORDERBY cpu-usec LIMIT 16385",
        "ORDERBY cpu-usec ASC ASC",
        "ORDERBY cpu-usec LIMIT",
        "SLOTSRANGE 2 1",
        "SLOTSRANGE 0",
        "ELSE 0 1",
    ] {
        let line = format!("CLUSTER SLOT-STATS {line}");
        check(&mut they, "CONFIG RESETSTAT", "OK");
        check(&mut we, "CONFIG RESETSTAT", "OK");
        assert_eq!(we.call(&line), they.call(&line), "{line}");
    }
    for client in [&mut we, &mut they] {
        check(client, "CONFIG SET cluster-slot-stats-enabled no", "OK");
    }
    for line in [
        "SLOTSRANGE 3300 3300",
        "ORDERBY cpu-usec LIMIT x",
        "ORDERBY key-count LIMIT 1",
    ] {
        let line = format!("CLUSTER SLOT-STATS {line}");
        assert_eq!(we.call(&line), they.call(&line), "{line}");
    }
}

#[test]
fn transactions_scripts_and_those_who_wait_count_once_for_their_slot() {
    if is_stand_in() {
        return;
    }
    let server = node();
    let (mut client, mut eye) = (server.raw(), server.raw());
    let mut lines = |lines: &[&str]| {
        for line in lines {
            client.call(line);
        }
        let (bytes_in, bytes_out, _) = taken(&mut eye);
        (bytes_in, bytes_out)
    };
    assert_eq!(lines(&["SET b 1"]), (27, 5));
    // MULTI and EXEC are 29 bytes, both commands 47; twice QUEUED, and the replies as an array.
    assert_eq!(
        lines(&["MULTI", "SET b 1", "GET b", "EXEC"]),
        (29 + 47, 18 + 16)
    );
    assert_eq!(lines(&["MULTI", "GET b", "DISCARD"]), (20, 9));
    let slots_apart = lines(&["MULTI", "GET b", "GET c", "EXEC"]);
    assert_eq!(slots_apart, (20, 9), "the transaction is refused");
    let script =
        |flags: &str| format!("EVAL \"#!lua{flags}\\nreturn redis.call('get',KEYS[1])\" 1 b");
    let (kept, crossing) = (script(""), script(" flags=allow-cross-slot-keys"));
    assert_eq!(lines(&[&kept]), (73, 7));
    assert_eq!(lines(&[&crossing]), (0, 7));
    let mut waiting = blocked(&server, &mut eye, "BLPOP {b}l 0");
    check(&mut eye, "RPUSH {b}l v", "(integer) 1");
    assert_eq!(waiting.read().items().len(), 2);
    let (bytes_in, bytes_out, _) = taken(&mut eye);
    // Both requests as arrays; the reply of BLPOP, and that of RPUSH.
    assert_eq!((bytes_in, bytes_out), (32 + 32, 21 + 4));
}

#[test]
fn time_is_counted_for_the_slot_in_which_it_is_spent_and_only_while_that_is_wanted() {
    if is_stand_in() {
        return;
    }
    let server = node();
    let mut client = server.raw();
    let filled: Vec<String> = (0..20_000).map(|number| number.to_string()).collect();
    let mut words = vec!["SADD", "{b}s"];
    words.extend(filled.iter().map(String::as_str));
    client.command(&words);
    client.call("SINTER {b}s {b}s");
    let cpu = |client: &mut Raw, slot: &str| {
        let figures = figures_of(client, slot);
        figures
            .iter()
            .find(|(name, _)| name == "cpu-usec")
            .map(|(_, usec)| *usec)
    };
    assert!(cpu(&mut client, SLOT).is_some_and(|usec| usec > 0));
    assert_eq!(cpu(&mut client, "0"), Some(0));
    let ordered = client.call("CLUSTER SLOT-STATS ORDERBY cpu-usec LIMIT 1");
    assert_eq!(ordered.items()[0].items()[0].integer().to_string(), SLOT);
    check(
        &mut client,
        "CONFIG SET cluster-slot-stats-enabled no",
        "OK",
    );
    assert_eq!(cpu(&mut client, SLOT), None);
    check(&mut client, "CONFIG RESETSTAT", "OK");
    client.call("GET b");
    check(
        &mut client,
        "CONFIG SET cluster-slot-stats-enabled yes",
        "OK",
    );
    assert_eq!(cpu(&mut client, SLOT), Some(0));
}

#[test]
fn a_slot_that_went_and_came_back_begins_anew() {
    if is_stand_in() {
        return;
    }
    let server = node();
    let mut client = server.raw();
    client.call("GET b");
    client.call("GET c");
    check(&mut client, "CLUSTER DELSLOTS 3300", "OK");
    check(&mut client, "CLUSTER ADDSLOTS 3300", "OK");
    let bytes = |client: &mut Raw, slot: &str| figures_of(client, slot)[2].1;
    eventually("it begins anew", || bytes(&mut client, SLOT) == 0);
    // The slot of c, which stayed.
    assert_eq!(bytes(&mut client, "7365"), 20);
}
