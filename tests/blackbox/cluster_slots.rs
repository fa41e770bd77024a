//! Requests to nodes of a cluster: redirection by the slot of the keys, requests while a slot moves, and
//! waiting or subscribed clients after it has moved. Every reply is redis-server's: `BASALT_TEST_SERVER` can
//! run the tests there.

use crate::support::{Options, Server, blocked, check, eventually, free_port};
use crate::wire::{Raw, Value};

/// The slot of `{bar}`, which the first of two nodes has.
const BAR: u16 = 5_061;

/// The slot of `{foo}`, which the second has.
const FOO: u16 = 12_182;

fn node() -> Server {
    Server::start(
        &Options::shards(4)
            .threads(2)
            .with("cluster-enabled", "yes")
            .with("cluster-port", &free_port().to_string()),
    )
}

fn text(client: &mut Raw, line: &str) -> String {
    client.call(line).text()
}

fn id(server: &Server) -> String {
    text(&mut server.raw(), "CLUSTER MYID")
}

fn bus_port(server: &Server) -> String {
    let nodes = text(&mut server.raw(), "CLUSTER NODES");
    let place = nodes.split(' ').nth(1).expect("an address");
    let (_, port) = place.rsplit_once('@').expect("a port of the bus");
    port.split(',').next().expect("a port").to_owned()
}

fn is_ok(server: &Server) -> bool {
    text(&mut server.raw(), "CLUSTER INFO").contains("cluster_state:ok")
}

/// Starts two nodes, each with half of the slots.
fn pair() -> (Server, Server) {
    let (one, two) = (node(), node());
    check(&mut one.raw(), "CLUSTER ADDSLOTSRANGE 0 8191", "OK");
    check(&mut two.raw(), "CLUSTER ADDSLOTSRANGE 8192 16383", "OK");
    check(&mut one.raw(), "CLUSTER SET-CONFIG-EPOCH 1", "OK");
    check(&mut two.raw(), "CLUSTER SET-CONFIG-EPOCH 2", "OK");
    let meet = format!("CLUSTER MEET 127.0.0.1 {} {}", two.port, bus_port(&two));
    check(&mut one.raw(), &meet, "OK");
    eventually("both serve", || is_ok(&one) && is_ok(&two));
    (one, two)
}

fn moved(slot: u16, to: &Server) -> String {
    format!("(error) MOVED {slot} 127.0.0.1:{}", to.port)
}

fn ask(slot: u16, to: &Server) -> String {
    format!("(error) ASK {slot} 127.0.0.1:{}", to.port)
}

/// Marks a slot as moving from one node to the other, with its keys still to be moved.
fn open(slot: u16, from: &Server, to: &Server) {
    let importing = format!("CLUSTER SETSLOT {slot} IMPORTING {}", id(from));
    check(&mut to.raw(), &importing, "OK");
    let migrating = format!("CLUSTER SETSLOT {slot} MIGRATING {}", id(to));
    check(&mut from.raw(), &migrating, "OK");
}

/// Assigns a slot's new owner at both nodes.
fn give(slot: u16, to: &Server, from: &Server) {
    let line = format!("CLUSTER SETSLOT {slot} NODE {}", id(to));
    check(&mut to.raw(), &line, "OK");
    check(&mut from.raw(), &line, "OK");
}

const CROSS: &str = "(error) CROSSSLOT Keys in request don't hash to the same slot";
const TRY_AGAIN: &str = "(error) TRYAGAIN Multiple keys request during rehashing of slot";
const ABORTED: &str = "(error) EXECABORT Transaction discarded because of previous errors.";

#[test]
fn requests_are_sent_to_the_node_that_has_the_slot() {
    let (one, two) = pair();
    let mut client = one.raw();
    let to_two = moved(FOO, &two);
    for (line, expected) in [
        ("SET bar 1", "OK"),
        ("GET foo", &to_two),
        ("MSET {bar}a 1 {bar}b 2", "OK"),
        ("MGET bar foo", CROSS),
        ("MGET foo bar", CROSS),
        ("DEL foo", &to_two),
        // As in Redis, errors in the arguments come first, missing rights next.
        (
            "GET",
            "(error) ERR wrong number of arguments for 'get' command",
        ),
        ("OBJECT ENCODING foo", &to_two),
        ("EVAL \"return 1\" 0", "(integer) 1"),
        ("EVAL \"return 1\" 1 foo", &to_two),
        ("EVAL \"return 1\" 2 foo bar", CROSS),
        ("EVAL \"return redis.call('GET', KEYS[1])\" 1 bar", "\"1\""),
        ("PING", "PONG"),
        ("DBSIZE", "(integer) 3"),
        ("SELECT 0", "OK"),
        (
            "SELECT 1",
            "(error) ERR SELECT is not allowed in cluster mode",
        ),
        (
            "SWAPDB 0 1",
            "(error) ERR SWAPDB is not allowed in cluster mode",
        ),
        (
            "MOVE bar 1",
            "(error) ERR MOVE is not allowed in cluster mode",
        ),
        (
            "REPLICAOF 127.0.0.1 1",
            "(error) ERR REPLICAOF not allowed in cluster mode.",
        ),
        ("RPUSH {bar}l 2 1", "(integer) 2"),
        ("SORT {bar}l BY nothing", "1) \"2\"\n2) \"1\""),
        (
            "SORT {bar}l BY w_*",
            "(error) ERR BY option of SORT denied in Cluster mode.",
        ),
        (
            "SORT {bar}l GET w_*",
            "(error) ERR GET option of SORT denied in Cluster mode.",
        ),
        ("SPUBLISH bar x", "(integer) 0"),
        ("SPUBLISH foo x", &to_two),
        ("SSUBSCRIBE bar foo", CROSS),
    ] {
        check(&mut client, line, expected);
    }
    let flags = |client: &mut Raw| {
        let list = text(client, "CLIENT LIST");
        let own = list.lines().find(|line| line.contains("cmd=client"));
        let own = own.expect("its line").to_owned();
        own.split(' ')
            .find_map(|word| word.strip_prefix("flags=").map(str::to_owned))
    };
    check(&mut client, "READONLY", "OK");
    assert_eq!(flags(&mut client).as_deref(), Some("r"));
    check(&mut client, "GET foo", &to_two);
    check(&mut client, "READWRITE", "OK");
    assert_eq!(flags(&mut client).as_deref(), Some("N"));
}

#[test]
fn a_transaction_is_for_one_slot_and_one_node() {
    let (one, two) = pair();
    let mut client = one.raw();
    check(&mut client, "MULTI", "OK");
    check(&mut client, "SET bar 1", "QUEUED");
    check(&mut client, "GET foo", &moved(FOO, &two));
    check(&mut client, "EXEC", ABORTED);
    check(&mut client, "MULTI", "OK");
    check(&mut client, "SET {bar}1 1", "QUEUED");
    check(&mut client, "SET {b}2 1", "QUEUED");
    check(&mut client, "EXEC", CROSS);
    check(&mut client, "EXEC", "(error) ERR EXEC without MULTI");
    check(&mut client, "MULTI", "OK");
    check(&mut client, "SET bar 1", "QUEUED");
    check(&mut client, "INCR bar", "QUEUED");
    check(&mut client, "EXEC", "1) OK\n2) (integer) 2");
    check(&mut client, "WATCH foo", &moved(FOO, &two));
}

#[test]
fn scripts_use_keys_of_their_slot() {
    let (one, _two) = pair();
    let mut client = one.raw();
    check(&mut client, "SET {b}2 x", "OK");
    let mut call = |flags: &str, body: &str, keys: &[&str]| {
        let source = format!("{flags}{body}");
        let count = keys.len().to_string();
        let mut request = vec!["EVAL", &source, &count];
        request.extend(keys);
        client.command(&request).show()
    };
    // Without a `#!` line, a script may do all that old scripts may.
    assert_eq!(
        call("", "return redis.call('GET', '{b}2')", &["bar"]),
        "\"x\""
    );
    let strange = call("", "return redis.call('GET', 'foo')", &["bar"]);
    assert!(
        strange.contains("Script attempted to access a non local key in a cluster node"),
        "{strange}"
    );
    let cross = call("#!lua\n", "return redis.call('GET', '{b}2')", &["bar"]);
    assert!(
        cross.contains("Script attempted to access keys that do not hash to the same slot"),
        "{cross}"
    );
    let undeclared = "redis.call('GET', 'bar') return redis.call('GET', '{b}2')";
    let cross = call("#!lua\n", undeclared, &[]);
    assert!(cross.contains("do not hash to the same slot"), "{cross}");
    let flag = "#!lua flags=allow-cross-slot-keys\n";
    assert_eq!(
        call(flag, "return redis.call('GET', '{b}2')", &["bar"]),
        "\"x\""
    );
    let refused = call("#!lua flags=no-cluster\n", "return 1", &[]);
    assert_eq!(
        refused,
        "(error) ERR Can not run script on cluster, 'no-cluster' flag is set."
    );
}

#[test]
fn a_slot_on_the_move_is_asked_for_where_its_keys_are() {
    let (one, two) = pair();
    let (mut here, mut there) = (one.raw(), two.raw());
    check(&mut here, "MSET {bar}1 a {bar}2 b {bar}3 c", "OK");
    open(BAR, &one, &two);
    let nodes = text(&mut here, "CLUSTER NODES");
    assert!(
        nodes.contains(&format!("[{BAR}->-{}]", id(&two))),
        "{nodes}"
    );
    let nodes = text(&mut there, "CLUSTER NODES");
    assert!(
        nodes.contains(&format!("[{BAR}-<-{}]", id(&one))),
        "{nodes}"
    );
    let to_two = ask(BAR, &two);
    check(&mut here, "GET {bar}1", "\"a\"");
    check(&mut here, "GET {bar}9", &to_two);
    check(&mut here, "SET {bar}9 x", &to_two);
    check(&mut here, "MGET {bar}1 {bar}9", TRY_AGAIN);
    check(
        &mut here,
        "EVAL \"return redis.call('GET', KEYS[1])\" 1 {bar}9",
        &to_two,
    );
    check(&mut there, "GET {bar}9", &moved(BAR, &one));
    check(&mut there, "ASKING", "OK");
    check(&mut there, "SET {bar}9 x", "OK");
    check(&mut there, "GET {bar}9", &moved(BAR, &one));
    check(&mut there, "ASKING", "OK");
    check(&mut there, "MGET {bar}9 {bar}1", TRY_AGAIN);
    // Queued commands are checked, too.
    check(&mut here, "MULTI", "OK");
    check(&mut here, "GET {bar}9", &to_two);
    check(&mut here, "EXEC", ABORTED);
    // ASKING is valid for all of a transaction.
    check(&mut there, "ASKING", "OK");
    check(&mut there, "MULTI", "OK");
    check(&mut there, "SET {bar}8 y", "QUEUED");
    check(&mut there, "GET {bar}8", "QUEUED");
    check(&mut there, "EXEC", "1) OK\n2) \"y\"");
    check(&mut there, "GET {bar}8", &moved(BAR, &one));
    // A transaction of which some keys have gone.
    check(&mut here, "MULTI", "OK");
    check(&mut here, "SET {bar}1 a", "QUEUED");
    let migrate = format!(
        "MIGRATE 127.0.0.1 {} \"\" 0 5000 KEYS {{bar}}1 {{bar}}2",
        two.port
    );
    check(&mut one.raw(), &migrate, "OK");
    check(&mut here, "EXEC", &to_two);
    check(&mut here, "GET {bar}1", &to_two);
    check(&mut here, "GET {bar}3", "\"c\"");
    check(
        &mut here,
        &format!("CLUSTER COUNTKEYSINSLOT {BAR}"),
        "(integer) 1",
    );
    let refused = here
        .call(&format!("CLUSTER SETSLOT {BAR} NODE {}", id(&two)))
        .show();
    assert!(refused.contains("while I still hold keys"), "{refused}");
    let migrate = format!("MIGRATE 127.0.0.1 {} {{bar}}3 0 5000", two.port);
    check(&mut here, &migrate, "OK");
    give(BAR, &two, &one);
    check(&mut here, "GET {bar}1", &moved(BAR, &two));
    check(
        &mut there,
        "MGET {bar}1 {bar}2 {bar}3 {bar}9",
        "1) \"a\"\n2) \"b\"\n3) \"c\"\n4) \"x\"",
    );
}

#[test]
fn who_waits_for_a_key_or_listens_to_a_channel_is_sent_after_a_slot_that_goes() {
    let (one, two) = pair();
    let mut other = one.raw();
    let mut waiting = blocked(&one, &mut other, "BLPOP {bar}q 0");
    let mut staying = blocked(&one, &mut other, "BLPOP {b}q 0");
    let mut listening = one.raw();
    let confirmed = listening.call("SSUBSCRIBE {bar}c");
    assert!(
        confirmed.show().contains("ssubscribe"),
        "{}",
        confirmed.show()
    );
    open(BAR, &one, &two);
    check(&mut other, "SPUBLISH {bar}c still", "(integer) 1");
    assert!(listening.read().show().contains("still"));
    give(BAR, &two, &one);
    assert_eq!(waiting.read().show(), moved(BAR, &two));
    let ended = listening.read();
    let items: Vec<String> = ended.items().iter().take(2).map(Value::text).collect();
    assert_eq!(items, ["sunsubscribe", "{bar}c"]);
    check(&mut listening, "SSUBSCRIBE {bar}c", &moved(BAR, &two));
    check(&mut other, "RPUSH {b}q x", "(integer) 1");
    assert!(staying.read().show().contains("\"x\""));
}

#[test]
fn who_waits_for_a_group_is_sent_after_a_stream_that_goes_with_its_slot() {
    let (one, two) = pair();
    let mut here = one.raw();
    check(&mut here, "XGROUP CREATE {bar}s g $ MKSTREAM", "OK");
    let mut waiting = blocked(
        &one,
        &mut here,
        "XREADGROUP GROUP g c BLOCK 0 STREAMS {bar}s >",
    );
    open(BAR, &one, &two);
    let migrate = format!("MIGRATE 127.0.0.1 {} {{bar}}s 0 5000", two.port);
    check(&mut here, &migrate, "OK");
    assert_eq!(waiting.read().show(), ask(BAR, &two));
}

#[test]
fn who_listens_to_a_channel_of_a_slot_that_comes_goes_on_when_other_slots_move() {
    let (one, two) = pair();
    open(BAR, &one, &two);
    let mut listening = two.raw();
    check(&mut listening, "ASKING", "OK");
    let confirmed = listening.call("SSUBSCRIBE {bar}c").show();
    assert!(confirmed.contains("ssubscribe"), "{confirmed}");
    open(BAR + 1, &one, &two);
    give(BAR + 1, &two, &one);
    give(BAR, &two, &one);
    check(&mut two.raw(), "SPUBLISH {bar}c here", "(integer) 1");
    let message = listening.read().show();
    assert!(message.contains("here"), "{message}");
}

#[test]
fn a_slot_without_a_node_takes_the_cluster_down() {
    let (one, _two) = pair();
    let mut client = one.raw();
    check(&mut client, "SET bar 1", "OK");
    let mut waiting = blocked(&one, &mut one.raw(), "BLPOP {bar}q 0");
    check(&mut client, "CLUSTER DELSLOTS 1", "OK");
    const DOWN: &str = "(error) CLUSTERDOWN The cluster is down";
    eventually("it is down", || client.call("GET bar").show() == DOWN);
    assert_eq!(waiting.read().show(), DOWN);
    check(
        &mut client,
        "CONFIG SET cluster-allow-reads-when-down yes",
        "OK",
    );
    check(&mut client, "GET bar", "\"1\"");
    check(
        &mut client,
        "SET bar 2",
        "(error) CLUSTERDOWN The cluster is down and only accepts read commands",
    );
    check(&mut client, "SPUBLISH bar x", "(integer) 0");
    check(
        &mut client,
        "CONFIG SET cluster-allow-pubsubshard-when-down no",
        "OK",
    );
    check(&mut client, "SPUBLISH bar x", DOWN);
    // The tag's slot is 1.
    check(
        &mut client,
        "GET {d9C}",
        "(error) CLUSTERDOWN Hash slot not served",
    );
    check(&mut client, "PING", "PONG");
    check(
        &mut client,
        "CONFIG SET cluster-require-full-coverage no",
        "OK",
    );
    eventually("it serves again", || {
        client.call("SET bar 3").show() == "OK"
    });
}

#[test]
fn messages_reach_all_nodes() {
    let (one, two) = pair();
    let mut listening = two.raw();
    let confirmed = listening.call("SUBSCRIBE news");
    assert!(confirmed.show().contains("subscribe"));
    let mut publishing = one.raw();
    check(&mut publishing, "PUBLISH news first", "(integer) 0");
    check(&mut publishing, "MULTI", "OK");
    check(&mut publishing, "PUBLISH news second", "QUEUED");
    check(&mut publishing, "SET bar 1", "QUEUED");
    check(&mut publishing, "EXEC", "1) (integer) 0\n2) OK");
    for expected in ["first", "second"] {
        assert!(listening.read().show().contains(expected));
    }
}
