//! One server as a whole cluster (`cluster-enabled emulated`): the commands that cluster clients use, and
//! redis-cli.

use std::process::Command;

use crate::replicated::await_link;
use crate::support::{self, Options, Server, check, eventually, info_text};
use crate::wire::{Raw, Value};

fn start() -> Server {
    Server::start(
        &Options::shards(16)
            .threads(2)
            .with("cluster-enabled", "emulated"),
    )
}

fn id(client: &mut Raw) -> String {
    let shown = client.call("CLUSTER MYID").show();
    let id = shown.trim_matches('"').to_owned();
    assert!(
        id.len() == 40 && id.bytes().all(|byte| byte.is_ascii_hexdigit()),
        "{id}"
    );
    id
}

/// Returns the output of redis-cli; `None` if it is not installed.
fn redis_cli(port: u16, arguments: &[&str]) -> Option<String> {
    let output = Command::new("redis-cli")
        .args(["-p", &port.to_string()])
        .args(arguments)
        .output();
    let output = output.ok()?;
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    assert!(output.status.success(), "{arguments:?}: {text}");
    Some(text)
}

#[test]
fn one_server_has_all_slots_and_takes_all_commands() {
    let server = start();
    let mut client = server.raw();
    let (port, myself) = (server.port, id(&mut client));
    assert_eq!(
        info_text(&mut client, "cluster", "cluster_enabled").as_deref(),
        Some("1")
    );
    assert_eq!(
        info_text(&mut client, "server", "redis_mode").as_deref(),
        Some("cluster")
    );
    assert!(client.call("HELLO 2").show().contains("\"cluster\""));
    let slots = format!(
        "1) 1) (integer) 0\n   2) (integer) 16383\n   3) 1) \"127.0.0.1\"\n      2) (integer) {port}\n      3) \"{myself}\"\n\
         \u{20}     4) (empty array)"
    );
    check(&mut client, "CLUSTER SLOTS", &slots);
    let line = format!("{myself} 127.0.0.1:{port}@0 myself,master - 0 0 1 connected 0-16383\n");
    assert_eq!(client.call("CLUSTER NODES"), Value::Bulk(line.into_bytes()));
    assert!(
        client
            .call("CLUSTER INFO")
            .show()
            .contains("cluster_state:ok")
    );
    check(&mut client, "CLUSTER LINKS", "(empty array)");
    check(&mut client, "CLUSTER KEYSLOT {user}:1", "(integer) 5474");
    for request in ["READONLY", "READWRITE", "ASKING"] {
        check(&mut client, request, "OK");
    }
    // Requests that a real cluster's nodes refuse: keys of several slots, and databases.
    check(&mut client, "MSET a 1 b 2 c 3", "OK");
    check(&mut client, "SELECT 3", "OK");
    check(&mut client, "SET a x", "OK");
    check(&mut client, "CLUSTER COUNTKEYSINSLOT 15495", "(integer) 1");
    check(&mut client, "CLUSTER GETKEYSINSLOT 15495 10", "1) \"a\"");
    check(&mut client, "SELECT 0", "OK");
    check(
        &mut client,
        "EVAL \"return redis.call('GET', KEYS[1]) .. redis.call('GET', KEYS[2])\" 2 a b",
        "\"12\"",
    );
    for request in [
        "CLUSTER ADDSLOTS 1",
        "CLUSTER MEET 127.0.0.1 7000",
        "CLUSTER FAILOVER",
        "CLUSTER RESET HARD",
        "CLUSTER SETSLOT 1 STABLE",
        "CLUSTER REPLICATE 0123456789012345678901234567890123456789",
    ] {
        let shown = client.call(request).show();
        assert!(shown.contains("cannot be changed"), "{request}: {shown}");
    }
    check(
        &mut client,
        "CLUSTER REPLICAS abc",
        "(error) ERR Unknown node abc",
    );
    check(
        &mut client,
        &format!("CLUSTER REPLICAS {myself}"),
        "(empty array)",
    );
    check(
        &mut client,
        &format!("CLUSTER COUNT-FAILURE-REPORTS {myself}"),
        "(integer) 0",
    );
}

#[test]
fn addresses_are_those_that_the_configuration_announces() {
    let server = start();
    let mut client = server.raw();
    let myself = id(&mut client);
    let set = |client: &mut Raw, name: &str, value: &str| {
        check(client, &format!("CONFIG SET cluster-{name} {value}"), "OK");
    };
    set(&mut client, "announce-ip", "192.0.2.7");
    set(&mut client, "announce-port", "7777");
    set(&mut client, "announce-hostname", "cache.example");
    let nodes = client.call("CLUSTER NODES").show();
    assert!(nodes.contains("192.0.2.7:7777@0,cache.example"), "{nodes}");
    let endpoint = |client: &mut Raw, endpoint: &str, more: &str| {
        let slots = client.call("CLUSTER SLOTS").show();
        let expected = format!(
            "3) 1) {endpoint}\n      2) (integer) 7777\n      3) \"{myself}\"\n      4) 1) {more}"
        );
        assert!(slots.contains(&expected), "{slots}");
        let shards = client.call("CLUSTER SHARDS").show();
        let words = shards.split_whitespace().collect::<Vec<_>>().join(" ");
        // As in Redis, CLUSTER SHARDS has an empty text where CLUSTER SLOTS has nothing.
        let endpoint = endpoint.replace("(nil)", "\"\"");
        assert!(
            words.contains(&format!("\"endpoint\" 8) {endpoint}")),
            "{words}"
        );
    };
    endpoint(
        &mut client,
        "\"192.0.2.7\"",
        "\"hostname\"\n         2) \"cache.example\"",
    );
    set(&mut client, "preferred-endpoint-type", "hostname");
    endpoint(
        &mut client,
        "\"cache.example\"",
        "\"ip\"\n         2) \"192.0.2.7\"",
    );
    set(&mut client, "preferred-endpoint-type", "unknown-endpoint");
    endpoint(&mut client, "(nil)", "\"ip\"\n         2) \"192.0.2.7\"");
}

#[test]
fn replicas_are_nodes_of_it_too() {
    if support::is_stand_in() {
        return;
    }
    let (primary, replica) = (start(), start());
    let (mut client, mut following) = (primary.raw(), replica.raw());
    check(
        &mut following,
        &format!("REPLICAOF 127.0.0.1 {}", primary.port),
        "OK",
    );
    await_link(&replica);
    eventually("the primary lists it", || {
        client
            .call("CLUSTER SLOTS")
            .show()
            .contains(&format!("(integer) {}", replica.port))
    });
    let myself = id(&mut client);
    let lines = client.call(&format!("CLUSTER REPLICAS {myself}")).show();
    assert!(
        lines.contains(&format!(
            "127.0.0.1:{}@0 slave {myself} 0 0 1 connected",
            replica.port
        )),
        "{lines}"
    );
    assert_eq!(
        client.call("CLUSTER MYSHARDID"),
        following.call("CLUSTER MYSHARDID")
    );
    let nodes = following.call("CLUSTER NODES").show();
    assert!(
        nodes.contains("myself,slave") && nodes.contains("master - 0 0 1 connected 0-16383"),
        "{nodes}"
    );
    let info = following.call("CLUSTER INFO").show();
    assert!(info.contains("cluster_known_nodes:2"), "{info}");
    check(&mut following, "READONLY", "OK");
    assert!(following.call("SET a 1").show().contains("READONLY"));
    // A replica that takes the place of its primary has the slots.
    check(&mut following, "REPLICAOF NO ONE", "OK");
    eventually("it has the slots", || {
        following
            .call("CLUSTER NODES")
            .show()
            .contains("myself,master - 0 0 1 connected 0-16383")
    });
}

#[test]
fn the_cluster_commands_of_redis_cli_find_nothing_wrong() {
    let server = start();
    let mut client = server.raw();
    for at in 0..100 {
        check(&mut client, &format!("SET k:{at} v"), "OK");
    }
    let at = format!("127.0.0.1:{}", server.port);
    let Some(text) = redis_cli(server.port, &["--cluster", "check", &at]) else {
        assert!(
            std::env::var_os("BASALT_REQUIRE_ORACLE").is_none(),
            "redis-cli is missing"
        );
        return;
    };
    assert!(
        text.contains("[OK] All 16384 slots covered.") && text.contains("100 keys"),
        "{text}"
    );
    let text = redis_cli(server.port, &["--cluster", "info", &at]).expect("as above");
    assert!(text.contains("[OK] 100 keys in 1 masters."), "{text}");
    let text = redis_cli(server.port, &["-c", "MGET", "k:1", "k:2"]).expect("as above");
    assert_eq!(text, "v\nv\n");
}
