//! Tests of `cluster`.

use std::sync::atomic::Ordering::Relaxed;

use super::super::host::cluster::tests::Fixed;
use super::super::testing::{Terminal, on_every_setup};
use crate::cluster::flags::NodeFlags;
use crate::cluster::map::UNOWNED;
use crate::cluster::node_id::NodeId;
use crate::cluster::route::RoutingFlags;
use crate::cluster::testing::map;

#[test]
fn whatever_is_asked_of_a_cluster_there_is_none() {
    const NONE: &str = "(error) ERR This instance has cluster support disabled";
    on_every_setup(|cli| {
        for line in [
            "CLUSTER INFO",
            "CLUSTER HELP",
            "CLUSTER RESET",
            "CLUSTER FAILOVER x y z",
            "cluster keyslot a",
            "CLUSTER COUNTKEYSINSLOT x",
            "CLUSTER GETKEYSINSLOT 1 1",
            "CLUSTER GETKEYSINSLOT 3 +1",
            "READONLY",
            "READWRITE",
            "ASKING",
        ] {
            cli.check(line, NONE);
        }
    });
}

fn node(number: u8) -> String {
    NodeId::from_random([number; 20]).to_string()
}

#[test]
fn the_map_is_told_in_the_forms_of_redis() {
    on_every_setup(|cli| {
        let mut moving = map();
        moving.migrating.insert(7, 3);
        moving.importing.insert(9_000, 1);
        moving.nodes[1].hostname = "db.example".to_owned();
        moving.nodes[2].offset = 12;
        moving.nodes[3].flags.set(NodeFlags::MAYBE_FAILED);
        moving.nodes[3].is_linked = false;
        cli.join(Box::new(Fixed(moving)));
        let (one, two, three, four) = (node(0), node(1), node(2), node(3));
        let nodes = cli.run("CLUSTER NODES");
        for line in [
            format!(
                "{one} 10.0.0.0:7000@17000 myself,master - 0 0 0 connected 0-5460 [7->-{four}] [9000-<-{two}]"
            ),
            format!("{two} 10.0.0.1:7001@17001,db.example master - 0 0 1 connected 5461-10922"),
            format!("{three} 10.0.0.2:7002@17002 slave {two} 0 0 1 connected"),
            format!("{four} 10.0.0.3:7003@17003 master,fail? - 0 0 3 disconnected 10923-16383"),
        ] {
            assert!(nodes.contains(&line), "{line}\n{nodes}");
        }
        let replicas = cli.run(&format!("CLUSTER REPLICAS {two}"));
        assert!(
            replicas.contains(&format!("{three} 10.0.0.2:7002")),
            "{replicas}"
        );
        const NO_PRIMARY: &str = "(error) ERR The specified node is not a master";
        cli.check(&format!("CLUSTER SLAVES {three}"), NO_PRIMARY);
        cli.check("CLUSTER REPLICAS x", "(error) ERR Unknown node x");
        cli.check("CLUSTER MYID", &format!("\"{one}\""));
        let info = cli.run("CLUSTER INFO");
        for field in [
            "cluster_state:ok",
            "cluster_slots_assigned:16384",
            "cluster_slots_ok:10923",
            "cluster_slots_pfail:5461",
            "cluster_known_nodes:4",
            "cluster_size:3",
            "cluster_current_epoch:3",
            "cluster_my_epoch:0",
            "cluster_stats_messages_ping_sent:3",
            "cluster_stats_messages_sent:3",
            "cluster_stats_messages_pong_received:2",
        ] {
            assert!(info.contains(field), "{field}: {info}");
        }
        let slots = cli.run("CLUSTER SLOTS");
        let words = slots.split_whitespace().collect::<Vec<_>>().join(" ");
        assert!(
            words.contains("(integer) 5461 2) (integer) 10922"),
            "{words}"
        );
        assert!(
            words.contains(&three),
            "a replica that has something: {words}"
        );
        let shards = cli.run("CLUSTER SHARDS");
        assert_eq!(shards.matches("\"role\"").count(), 4, "{shards}");
        assert_eq!(shards.matches("\"slots\"").count(), 3, "{shards}");
        let links = cli.run("CLUSTER LINKS");
        assert!(links.contains("\"to\"") && links.contains(&two), "{links}");
        cli.check(
            &format!("CLUSTER COUNT-FAILURE-REPORTS {two}"),
            "(integer) 0",
        );
    });
}

#[test]
fn the_arguments_of_changes_are_looked_at_as_redis_does() {
    on_every_setup(|cli| {
        let mut some = map();
        for slot in 100..110 {
            some.owners[slot] = UNOWNED;
        }
        cli.join(Box::new(Fixed(some)));
        let other = node(1);
        let known = format!("Node({})", &other[..8]);
        for (line, answer) in [
            ("ADDSLOTS 100 101", "AddSlots([(100, 101)])".to_owned()),
            ("ADDSLOTS 99", "(error) ERR Slot 99 is already busy".to_owned()),
            ("ADDSLOTS 100 x", "(error) ERR Invalid or out of range slot".to_owned()),
            ("ADDSLOTS 16384", "(error) ERR Invalid or out of range slot".to_owned()),
            (
                "ADDSLOTS 100 100",
                "(error) ERR Slot 100 specified multiple times".to_owned(),
            ),
            ("ADDSLOTSRANGE 100 104 106 107", "AddSlots([(100, 104), (106, 107)])".to_owned()),
            (
                "ADDSLOTSRANGE 100 104 106",
                "(error) ERR wrong number of arguments for 'cluster|addslotsrange' command".to_owned(),
            ),
            (
                "ADDSLOTSRANGE 104 100",
                "(error) ERR start slot number 104 is greater than end slot number 100".to_owned(),
            ),
            ("DELSLOTS 99", "DelSlots([(99, 99)])".to_owned()),
            ("DELSLOTS 100", "(error) ERR Slot 100 is already unassigned".to_owned()),
            ("DELSLOTSRANGE 90 91", "DelSlots([(90, 91)])".to_owned()),
            ("MEET 10.0.0.9 7000", "Meet { ip: \"10.0.0.9\", port: 7000, bus_port: 17000, is_by_hand: true }".to_owned()),
            ("MEET ::1 7000 9", "Meet { ip: \"::1\", port: 7000, bus_port: 9, is_by_hand: true }".to_owned()),
            ("MEET 10.0.0.9 a", "(error) ERR Invalid base port specified: a".to_owned()),
            ("MEET 10.0.0.9 1 b", "(error) ERR Invalid bus port specified: b".to_owned()),
            (
                "MEET host 7000",
                "(error) ERR Invalid node address specified: host:7000".to_owned(),
            ),
            (
                "MEET 10.0.0.9 60000",
                "(error) ERR Invalid node address specified: 10.0.0.9:60000".to_owned(),
            ),
            ("FORGET x", "(error) ERR Unknown node x".to_owned()),
            ("FAILOVER force", "Failover(Force)".to_owned()),
            ("FAILOVER now", "(error) ERR syntax error".to_owned()),
            ("RESET", "Reset { is_hard: false }".to_owned()),
            ("RESET hard", "Reset { is_hard: true }".to_owned()),
            ("RESET x", "(error) ERR syntax error".to_owned()),
            ("SET-CONFIG-EPOCH 7", "SetConfigEpoch(7)".to_owned()),
            (
                "SET-CONFIG-EPOCH -1",
                "(error) ERR Invalid config epoch specified: -1".to_owned(),
            ),
            (
                "SET-CONFIG-EPOCH x",
                "(error) ERR value is not an integer or out of range".to_owned(),
            ),
            ("SAVECONFIG", "(error) ERR error saving the cluster node config: No space left".to_owned()),
            ("SETSLOT 7 STABLE", "SetSlot { slot: 7, to: Stable }".to_owned()),
            (
                "SETSLOT 7 MIGRATING x",
                "(error) ERR I don't know about node x".to_owned(),
            ),
            (
                "SETSLOT 9000 MIGRATING x",
                "(error) ERR I'm not the owner of hash slot 9000".to_owned(),
            ),
            (
                "SETSLOT 7 IMPORTING x",
                "(error) ERR I'm already the owner of hash slot 7".to_owned(),
            ),
            ("SETSLOT 7 NODE x", "(error) ERR Unknown node x".to_owned()),
            (
                "SETSLOT 7 WHERE",
                "(error) ERR Invalid CLUSTER SETSLOT action or number of arguments. Try CLUSTER HELP".to_owned(),
            ),
        ] {
            cli.check(&format!("CLUSTER {line}"), &answer);
        }
        cli.check(
            &format!("CLUSTER SETSLOT 7 NODE {other}"),
            &format!("SetSlot {{ slot: 7, to: {known} }}"),
        );
    });
}

#[test]
fn what_a_client_says_of_its_requests_is_seen_in_its_flags() {
    on_every_setup(|cli| {
        cli.join(Box::new(Fixed(map())));
        cli.check("READONLY", "OK");
        assert!(cli.connection.shared.reads_here.load(Relaxed));
        cli.check("ASKING", "OK");
        let routing = cli.connection.routing;
        assert!(routing.any(RoutingFlags::WILL_ASK) && routing.any(RoutingFlags::READS_HERE));
        cli.check("READWRITE", "OK");
        assert!(!cli.connection.routing.any(RoutingFlags::READS_HERE));
        assert!(!cli.connection.shared.reads_here.load(Relaxed));
    });
}

#[test]
fn slots_are_listed_with_how_many_keys_they_have() {
    on_every_setup(|cli: &mut Terminal| {
        cli.be_cluster();
        for line in [
            "SET {a}1 v",
            "SET {a}2 v",
            "SET {b}1 v",
            "SET {b}2 v",
            "SET c v",
        ] {
            cli.run(line);
        }
        let flat = |cli: &mut Terminal, line: &str| {
            let shown = cli.run(&format!("CLUSTER SLOT-STATS {line}"));
            let words = shown.split_whitespace().collect::<Vec<_>>().join(" ");
            words
                .replace(") (integer)", ")")
                .replace(" => (integer)", "")
        };
        let ordered = flat(cli, "ORDERBY key-count LIMIT 3");
        let places = ["3300", "15495", "7365"].map(|slot| ordered.find(slot));
        assert!(
            places.is_sorted() && places.iter().all(Option::is_some),
            "{ordered}"
        );
        let ranged = flat(cli, "SLOTSRANGE 3299 3300");
        assert!(
            ranged.contains("3299") && ranged.contains("key-count"),
            "{ranged}"
        );
        assert!(!flat(cli, "ORDERBY key-count ASC LIMIT 1").contains("15495"));
        for (line, error) in [
            (
                "SLOTSRANGE 2 1",
                "ERR Start slot number 2 is greater than end slot number 1",
            ),
            ("SLOTSRANGE 1 16384", "ERR Invalid or out of range slot"),
            (
                "ORDERBY cpu-usec",
                "ERR Unrecognized sort metric for ORDERBY.",
            ),
            (
                "ORDERBY key-count LIMIT 0",
                "ERR Limit has to lie in between 1 and 16384 (maximum number of slots).",
            ),
            (
                "ORDERBY key-count ASC DESC",
                "ERR Multiple filters of the same type are disallowed.",
            ),
            ("ORDERBY key-count BY", "ERR syntax error"),
            (
                "ORDERBY key-count LIMIT x",
                "ERR Limit has to lie in between 1 and 16384 (maximum number of slots).",
            ),
        ] {
            cli.check(
                &format!("CLUSTER SLOT-STATS {line}"),
                &format!("(error) {error}"),
            );
        }
    });
}

#[test]
fn the_keys_of_a_slot_are_counted_and_listed() {
    on_every_setup(|cli: &mut Terminal| {
        cli.be_cluster();
        for at in 0..3_000 {
            cli.run(&format!("SET {{a}}:{at} v"));
            cli.run(&format!("SET other:{at} v"));
        }
        cli.check("CLUSTER KEYSLOT {a}:1", "(integer) 15495");
        cli.check("CLUSTER COUNTKEYSINSLOT 15495", "(integer) 3000");
        cli.check("CLUSTER GETKEYSINSLOT 15495 0", "(empty array)");
        let listed = cli.run("CLUSTER GETKEYSINSLOT 15495 2000");
        assert_eq!(listed.matches("{a}:").count(), 2_000);
        let mut listed: Vec<&str> = listed
            .lines()
            .filter_map(|line| line.split(") ").nth(1))
            .collect();
        listed.sort_unstable();
        listed.dedup();
        assert_eq!(listed.len(), 2_000, "each once");
        cli.run("DEL {a}:7 {a}:8 {a}:8 none");
        cli.check("CLUSTER COUNTKEYSINSLOT 15495", "(integer) 2998");
        cli.check("CLUSTER COUNTKEYSINSLOT 16384", "(error) ERR Invalid slot");
        cli.check(
            "CLUSTER COUNTKEYSINSLOT a",
            "(error) ERR value is not an integer or out of range",
        );
        const INVALID: &str = "(error) ERR Invalid slot or number of keys";
        cli.check("CLUSTER GETKEYSINSLOT 1 -1", INVALID);
        cli.check("CLUSTER GETKEYSINSLOT -1 1", INVALID);
    });
}
