//! CLUSTERSCAN: a scan over the keys of all nodes, as in Valkey 9.1.

use std::collections::BTreeMap;

use crate::clustered::{options, run, unite};
use crate::support::{Options, Oracle, Server, check, eventually, free_port, is_stand_in};
use crate::wire::Raw;

/// Scans all nodes with these options, and follows redirections; returns the keys and how often each was
/// found.
fn walk(from: &Server, options: &[&str]) -> BTreeMap<String, usize> {
    let mut found = BTreeMap::new();
    let mut cursor = "0".to_owned();
    loop {
        let reply = run(from, &[&["CLUSTERSCAN", &cursor], options].concat());
        let [next, keys] = reply.items() else {
            panic!("{cursor}: {}", reply.show());
        };
        for key in keys.items() {
            *found.entry(key.text()).or_default() += 1;
        }
        cursor = next.text();
        if cursor == "0" {
            return found;
        }
    }
}

#[test]
fn a_walk_over_two_nodes_finds_each_key_once() {
    if is_stand_in() {
        return;
    }
    let (one, two) = (Server::start(&options()), Server::start(&options()));
    unite(&[&one, &two]);
    let names = (0..300).map(|number| format!("k{number}"));
    // One slot with many keys, which takes several calls.
    let names = names.chain((0..700).map(|number| format!("{{b}}{number}")));
    let names: Vec<String> = names.collect();
    for name in &names {
        assert_eq!(run(&one, &["SET", name, "v"]).text(), "OK");
    }
    for name in ["{b}list", "list"] {
        assert_eq!(run(&one, &["RPUSH", name, "v"]).integer(), 1);
    }
    let found = walk(&two, &["COUNT", "100"]);
    assert_eq!(found.len(), names.len() + 2);
    assert!(found.values().all(|times| *times == 1));
    assert_eq!(walk(&one, &["TYPE", "list", "COUNT", "1000"]).len(), 2);
    let matching = walk(&one, &["MATCH", "k1?", "COUNT", "5000"]);
    assert_eq!(matching.len(), 10);
    // SLOT ends where the slot does.
    assert_eq!(walk(&one, &["SLOT", "3300"]).len(), 701);
    // Expired keys are not found.
    run(&one, &["SET", "{b}0", "v", "PX", "1"]);
    eventually("it is over", || {
        run(&one, &["EXISTS", "{b}0"]).integer() == 0
    });
    assert_eq!(walk(&one, &["SLOT", "3300"]).len(), 700);
}

#[test]
fn a_cursor_of_another_node_begins_its_slot_anew_and_is_sent_where_the_slot_is() {
    if is_stand_in() {
        return;
    }
    let (one, two) = (Server::start(&options()), Server::start(&options()));
    unite(&[&one, &two]);
    for number in 0..100 {
        run(&one, &["SET", &format!("{{b}}{number}"), "v"]);
    }
    let mut client = one.raw();
    let begun = client.command(&["CLUSTERSCAN", "0-{b}-0", "SLOT", "3300"]);
    let cursor = begun.items()[0].text();
    let moved = two.raw().command(&["CLUSTERSCAN", &cursor]);
    assert_eq!(moved.text(), format!("MOVED 3300 127.0.0.1:{}", one.port));
    // The position continues only in cursors that this node has made.
    let (own, rest) = cursor.split_once('-').expect("a node's own");
    let stranger = format!("{own}x-{rest}");
    let all = |cursor: &str| {
        let words = ["CLUSTERSCAN", cursor, "SLOT", "3300", "COUNT", "1000"];
        one.raw().command(&words).items()[1].items().len()
    };
    assert_eq!(all(&cursor), 100 - begun.items()[1].items().len());
    assert_eq!(all(&stranger), 100);
    // In a transaction of one slot, and in a script.
    check(&mut client, "MULTI", "OK");
    check(&mut client, "CLUSTERSCAN 0-{b}-0 COUNT 1000", "QUEUED");
    let done = client.call("EXEC");
    assert_eq!(
        done.items()[0].items()[1].items().len(),
        100,
        "{}",
        done.show()
    );
}

/// Replies that are errors, or the beginning of a walk.
const ANSWERS: &[&str] = &[
    "CLUSTERSCAN",
    "CLUSTERSCAN 0",
    "CLUSTERSCAN 0 SLOT 0",
    "CLUSTERSCAN 0 SLOT 16384",
    "CLUSTERSCAN 0 SLOT -1",
    "CLUSTERSCAN 0 SLOT a",
    "CLUSTERSCAN 0 SLOT",
    "CLUSTERSCAN 0 SLOT 1 SLOT 2",
    "CLUSTERSCAN 0 COUNT 0",
    "CLUSTERSCAN 0 COUNT x",
    "CLUSTERSCAN 0 TYPE none",
    "CLUSTERSCAN 0 COUNT 0 TYPE none",
    "CLUSTERSCAN 0 WHERE",
    "CLUSTERSCAN 0 MATCH",
    "CLUSTERSCAN x",
    "CLUSTERSCAN x WHERE",
    "CLUSTERSCAN x SLOT a",
    "CLUSTERSCAN 00",
    "CLUSTERSCAN 0-{b}",
    "CLUSTERSCAN 0-{b}-",
    "CLUSTERSCAN 0-{b}-x",
    "CLUSTERSCAN 0-{b}-99999999999999999999",
    "CLUSTERSCAN 0-{b}-0 SLOT 3301",
    "CLUSTERSCAN 0-{b}-0 SLOT 3301 WHERE",
    "CLUSTERSCAN 0-{b}-0 SLOT 3300",
    "CLUSTERSCAN 0-{b}-0 SLOT 3300 TYPE list",
    "COMMAND GETKEYS CLUSTERSCAN 0",
    "COMMAND INFO CLUSTERSCAN",
];

#[test]
fn errors_and_beginnings_are_those_of_valkey() {
    if is_stand_in() {
        return;
    }
    let bus = free_port().to_string();
    let directives = [("cluster-enabled", "yes"), ("cluster-port", bus.as_str())];
    let Some(Oracle(valkey)) = Oracle::start_valkey_with(&directives) else {
        return;
    };
    let ours = Server::start(&options());
    let serve = |server: &Server| -> Raw {
        check(&mut server.raw(), "CLUSTER ADDSLOTSRANGE 0 16383", "OK");
        let mut client = server.raw();
        eventually("the cluster serves", || {
            client.call("SET b v").show() == "OK"
        });
        client
    };
    let (mut we, mut they) = (serve(&ours), serve(&valkey));
    for line in ANSWERS {
        assert_eq!(we.call(line), they.call(line), "{line}");
    }
    let alone = Server::start(&Options::shards(4));
    let disabled = "(error) ERR This instance has cluster support disabled";
    check(&mut alone.raw(), "CLUSTERSCAN 0", disabled);
}
