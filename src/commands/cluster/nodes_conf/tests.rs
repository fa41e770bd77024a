//! Files of redis-server can be read, written files can be read again, and errors for defective files name the line.

use proptest::prelude::*;

use super::read::{Broken, read};
use super::write::{describe, write};
use crate::cluster::assembly::{AssemblyRecord, Stage};
use crate::cluster::flags::NodeFlags;
use crate::cluster::map::{ClusterMap, NodeView, UNOWNED};
use crate::cluster::node_id::NodeId;
use crate::cluster::saved::{Saved, SavedNode};
use crate::cluster::slot_set::SlotSet;
use basalt_core::base::hash::SLOTS;

/// Written by redis-server 7.0.15: a primary with two slots being moved, and one replica that is gone.
const PRIMARY: &str = include_str!("samples/redis-7.0.15-primary.conf");
/// Written by redis-server 7.0.15: the node has a host name.
const HOSTNAME: &str = include_str!("samples/redis-7.0.15-hostname.conf");
/// Written by redis-server 7.0.15 at its first start.
const NEW: &str = include_str!("samples/redis-7.0.15-new.conf");

const ID: &str = "28e8ff7a77886969e9cebc113fb698fa4132a5bf";

fn id(of: u8) -> NodeId {
    NodeId::from_random([of; 20])
}

fn myself(saved: &Saved) -> &SavedNode {
    let mut nodes = saved.nodes.iter();
    let found = nodes.find(|node| node.flags.any(NodeFlags::MYSELF));
    found.expect("one has the flag")
}

#[test]
fn files_of_redis_are_read() {
    let saved = read(PRIMARY, false).expect("it is good");
    assert_eq!((saved.nodes.len(), saved.current_epoch), (4, 3));
    let me = myself(&saved);
    assert_eq!(me.id.as_str(), ID);
    assert_eq!(
        (me.ip.as_str(), me.port, me.tls_port),
        ("127.0.0.1", 23001, 0)
    );
    assert_eq!(
        (me.bus_port, me.config_epoch, me.shard_id),
        (33001, 1, None)
    );
    let slots: Vec<_> = me.slots.ranges().collect();
    assert_eq!(slots, [(0, 6), (8, 8), (10, 5460)]);
    let going: Vec<u16> = saved.migrating.keys().copied().collect();
    let coming: Vec<u16> = saved.importing.keys().copied().collect();
    assert_eq!((going, coming), (vec![100], vec![5500]));
    let replica = &saved.nodes[0];
    let flags = NodeFlags::REPLICA
        .or(NodeFlags::FAILED)
        .or(NodeFlags::NO_FAILOVER);
    assert_eq!((replica.flags, replica.primary), (flags, Some(me.id)));
    assert_eq!(replica.config_epoch, 0);
    assert_eq!(saved.nodes[1].hostname, "host.example");

    let saved = read(HOSTNAME, false).expect("it is good");
    assert_eq!(myself(&saved).hostname, "host.example");
    let saved = read(NEW, false).expect("it is good");
    assert_eq!((saved.nodes.len(), myself(&saved).ip.as_str()), (1, ""));
    // The bus uses TLS, so the port is a TLS port.
    let saved = read(PRIMARY, true).expect("it is good");
    assert_eq!((myself(&saved).port, myself(&saved).tls_port), (0, 23001));
}

#[test]
fn what_is_written_has_the_fields_of_redis() {
    let mut saved = read(PRIMARY, false).expect("it is good");
    saved.nodes.retain(|node| node.id.as_str() == ID);
    saved.nodes[0].human_name = "east/1".to_owned();
    saved.nodes[0].shard_id = Some(id(0xEE));
    saved.nodes[0].pong_received = 5;
    saved.last_vote_epoch = 2;
    let shard = "ee".repeat(20);
    let to = "11f644b4680fda3a7f8a815d39e54287e8cc1da2";
    let expected = format!(
        "{ID} 127.0.0.1:23001@33001,,tls-port=0,nodename=east/1,shard-id={shard} myself,master - 0 5 1 connected \
         0-6 8 10-5460 [100->-{to}] [5500-<-{to}]\nvars currentEpoch 3 lastVoteEpoch 2\n"
    );
    assert_eq!(write(&saved), expected);
    assert_eq!(read(&expected, false), Ok(saved.clone()));
    // A name that would break the line is left out.
    saved.nodes[0].human_name = "a b".to_owned();
    assert_eq!(write(&saved), expected.replace(",nodename=east/1", ""));
}

#[test]
fn older_and_newer_forms_are_read() {
    let line = |address: &str| format!("{ID} {address} myself,master - 0 0 0 connected 5\n");
    let node = |address: &str, is_tls| {
        let saved = read(&line(address), is_tls).expect("it is good");
        saved.nodes.into_iter().next().expect("there is one")
    };
    let ports = |address: &str, is_tls| {
        let node = node(address, is_tls);
        (node.port, node.tls_port, node.bus_port)
    };
    assert_eq!(ports("10.0.0.1:7000", false), (7000, 0, 17000));
    assert_eq!(ports("10.0.0.1:7000", true), (0, 7000, 17000));
    assert_eq!(ports("::1:7000@9", false), (7000, 0, 9));
    assert_eq!(node("::1:7000@9", false).ip, "::1");
    assert_eq!(ports(":0@0", false), (0, 0, 0));
    assert_eq!(ports("a:1@2,,tls-port=3", true), (1, 3, 2));
    assert_eq!(ports("a:1@2,,tcp-port=3", false), (3, 1, 2));
    let zoned = node("a:1@2,h.x,availability-zone=east,nodename=n", false);
    assert_eq!(
        (zoned.hostname.as_str(), zoned.human_name.as_str()),
        ("h.x", "n")
    );
    let vars = format!(
        "{}\n\nVARS currentEpoch 9 tomorrow x LASTVOTEEPOCH 8\n",
        line("a:1@2")
    );
    let saved = read(&vars, false).expect("it is good");
    assert_eq!((saved.current_epoch, saved.last_vote_epoch), (9, 8));
    // An epoch above the current one, and a replica that was in another shard than its primary.
    let (a, b) = ("a".repeat(40), "b".repeat(40));
    let two = format!(
        "{a} h:1@2,,shard-id={b} master - 0 0 7 connected 1-3\n\
         {b} h:1@2,,shard-id={a} myself,slave {a} 0 0 7 connected\n"
    );
    let saved = read(&two, false).expect("it is good");
    assert_eq!((saved.current_epoch, myself(&saved).config_epoch), (7, 0));
    assert_eq!(myself(&saved).shard_id, NodeId::from_text(b.as_bytes()));
}

#[test]
fn broken_files_say_what_is_wrong_and_where() {
    let good = format!("{ID} 10.0.0.1:1@2 myself,master - 0 0 0 connected");
    let broken = |text: &str| {
        let Broken { line, what } = read(text, false).expect_err(text);
        format!("{line} {what}")
    };
    let instead = |from: &str, to: &str| broken(&format!("\n{}\n", good.replace(from, to)));
    assert_eq!(broken(""), "0 no node has the flag myself");
    assert_eq!(instead("myself,", ""), "2 no node has the flag myself");
    assert_eq!(
        instead("28e8", "28E8"),
        format!("2 the name of the node is {:?}", ID.replace("28e8", "28E8"))
    );
    assert_eq!(instead(" connected", ""), "2 7 fields, but 8 are required");
    assert_eq!(
        instead("10.0.0.1:1", "10.0.0.1"),
        "2 the address is \"10.0.0.1@2\""
    );
    assert_eq!(
        instead(":1@2", ":70000@2"),
        "2 the address is \"10.0.0.1:70000@2\""
    );
    assert_eq!(instead("10.0", "1/0"), "2 the address is \"1/0.0.1:1@2\"");
    assert_eq!(
        instead(":1@2", ":60000"),
        "2 port 60000 is too high for a cluster bus port"
    );
    assert_eq!(
        instead("@2", "@2,,x"),
        "2 the field \"x\" is not of the form name=value"
    );
    assert_eq!(
        instead("@2", "@2,,nodename=a=b"),
        "2 the field \"nodename=a=b\" is not of the form name=value"
    );
    assert_eq!(
        instead("@2", "@2,,shard-id=1"),
        "2 the name of the shard is \"1\""
    );
    assert_eq!(instead("master", "leader"), "2 flag \"leader\" is unknown");
    assert_eq!(instead(" - ", " x "), "2 the name of the primary is \"x\"");
    assert_eq!(instead("- 0", "- x"), "2 the time of the ping is \"x\"");
    for slots in ["16384", "5-16384", "9-5", "x", "-", "-1"] {
        assert_eq!(
            instead("connected", &format!("connected {slots}")),
            format!("2 slots {slots:?}")
        );
    }
    for open in [
        "[5]",
        "[5->-x]",
        "[99999->-x]",
        "[5->-",
        "[5-=-x]",
        "[é->-x]",
    ] {
        assert_eq!(
            instead("connected", &format!("connected {open}")),
            format!("2 open slot {open}")
        );
    }
    assert_eq!(
        broken(&format!("{good}\n{good}\n")),
        format!("2 node {ID} has more than one line")
    );
    let other = good.replace("28e8", "28e9");
    assert_eq!(
        broken(&format!("{good}\n{other}\n")),
        "2 2 nodes have the flag myself"
    );
    assert_eq!(
        broken(&format!("{good}\nvars currentEpoch\n")),
        "2 a variable without a value"
    );
    assert_eq!(
        broken(&format!("{good}\nvars currentEpoch x\n")),
        "2 currentEpoch is \"x\""
    );
    assert_eq!(
        broken(&format!("{good}\nvars assembly agreed:1\n")),
        "2 assembly is \"agreed:1\""
    );
}

#[test]
fn clients_are_shown_less() {
    let view = |of: u8, flags, primary: Option<u16>| NodeView {
        id: id(of),
        shard_id: id(9),
        ip: "10.0.0.1".to_owned(),
        port: 7000,
        tls_port: 7001,
        bus_port: 17000,
        hostname: String::new(),
        human_name: "n".to_owned(),
        zone: "z".to_owned(),
        flags,
        primary,
        primary_id: primary.map(|_| id(0x11)),
        slots: SlotSet::default(),
        config_epoch: u64::from(of),
        offset: 0,
        ping_sent: 1,
        pong_received: 2,
        is_linked: false,
        failure_reports: 0,
    };
    let mut map = ClusterMap {
        owners: vec![UNOWNED; usize::from(SLOTS)].into(),
        nodes: vec![
            view(0x11, NodeFlags::PRIMARY.or(NodeFlags::MYSELF), None),
            view(0x22, NodeFlags::REPLICA, Some(0)),
        ],
        myself: 0,
        migrating: [(5, 1), (6, 1)].into(),
        importing: [(3, 1), (6, 1)].into(),
        is_up: true,
        down: None,
        current_epoch: 1,
        size: 1,
        slots_maybe_failed: 0,
        slots_failed: 0,
        assembly: Default::default(),
    };
    map.nodes[0].slots = [1, 2, 7].into_iter().collect();
    let (one, two) = (id(0x11), id(0x22));
    assert_eq!(
        describe(&map, &map.nodes[0], false),
        format!(
            "{one} 10.0.0.1:7000@17000 myself,master - 1 2 17 connected 1-2 7 [3-<-{two}] [5->-{two}] [6->-{two}]"
        )
    );
    map.nodes[1].hostname = "h.x".to_owned();
    map.nodes[1].config_epoch = 17;
    assert_eq!(
        describe(&map, &map.nodes[1], true),
        format!("{two} 10.0.0.1:7001@17000,h.x slave {one} 1 2 17 disconnected")
    );
}

fn nodes() -> impl Strategy<Value = SavedNode> {
    let texts = (
        prop_oneof![Just(String::new()), "[0-9a-f.:]{1,20}"],
        "[a-z0-9.-]{0,9}",
        "[a-z0-9/_.-]{0,9}",
    );
    let numbers = any::<(u16, u16, u16, u64, u64, u64)>();
    let flags = prop::sample::select(vec![0, 1, 5, 9, 64 | 1, 512]);
    let slots = prop::collection::vec(0..SLOTS, 0..20);
    (any::<[u8; 20]>(), texts, numbers, flags, slots).prop_map(
        |(name, (ip, hostname, human_name), numbers, flags, slots)| SavedNode {
            id: NodeId::from_random(name),
            ip,
            port: numbers.0,
            tls_port: numbers.1,
            bus_port: numbers.2,
            hostname,
            human_name,
            shard_id: Some(NodeId::from_random(name)),
            flags: NodeFlags(flags),
            primary: None,
            ping_sent: numbers.3,
            pong_received: numbers.4,
            config_epoch: numbers.5,
            slots: slots.into_iter().collect(),
        },
    )
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(200))]

    #[test]
    fn what_was_saved_comes_back(mut nodes in prop::collection::vec(nodes(), 1..6), replicas: u8, vote: u64) {
        nodes[0].flags.set(NodeFlags::MYSELF);
        let mut taken = SlotSet::default();
        for at in 0..nodes.len() {
            let mine: Vec<u16> = nodes[at].slots.iter().filter(|slot| taken.insert(*slot)).collect();
            nodes[at].slots = mine.into_iter().collect();
            if at > 0 && replicas >> at & 1 == 1 {
                let (primary, shard) = (nodes[0].id, nodes[0].shard_id);
                let node = &mut nodes[at];
                (node.flags, node.primary) = (NodeFlags::REPLICA, Some(primary));
                (node.shard_id, node.config_epoch) = (shard, 0);
            }
        }
        let saved = Saved {
            current_epoch: u64::MAX,
            last_vote_epoch: vote,
            migrating: [(3, nodes[0].id)].into(),
            importing: [(4, id(1))].into(),
            assembly: AssemblyRecord {
                term: vote,
                stage: Stage::Assembled(vote.into()),
            },
            nodes,
        };
        prop_assert_eq!(read(&write(&saved), false), Ok(saved));
    }

    #[test]
    fn any_text_is_read_or_broken(text in "[0-9a-f]{40} [a-z0-9:@,= \\[\\]<>\n-]{0,200}") {
        let _ = read(&text, false);
    }
}
