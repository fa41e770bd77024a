//! Servers as nodes of a Redis Cluster: they meet, agree, restart and fail over, also together with
//! redis-server.

use std::fs;
use std::process::Command;

use crate::support::{self, Options, Oracle, Server, check, eventually, free_port};
use crate::tls::{self, Authority};
use crate::wire::{Raw, Value};

/// Milliseconds of silence after which a node counts as failed.
pub(crate) const TIMEOUT: &str = "2000";

pub(crate) fn options() -> Options {
    Options::shards(4)
        .threads(1)
        .with("cluster-enabled", "yes")
        .with("cluster-node-timeout", TIMEOUT)
        .with("cluster-port", &free_port().to_string())
}

fn start() -> Server {
    Server::start(&options())
}

pub(crate) fn text(client: &mut Raw, line: &str) -> String {
    match client.call(line) {
        Value::Bulk(bytes) => String::from_utf8(bytes).expect("it is text"),
        other => panic!("{line}: {other:?}"),
    }
}

pub(crate) fn info(client: &mut Raw, field: &str) -> String {
    let text = text(client, "CLUSTER INFO");
    let line = text
        .lines()
        .find_map(|line| line.strip_prefix(field)?.strip_prefix(':'));
    line.unwrap_or_else(|| panic!("no {field}: {text}"))
        .to_owned()
}

pub(crate) fn id(server: &Server) -> String {
    text(&mut server.raw(), "CLUSTER MYID")
}

pub(crate) fn bus_port(server: &Server) -> String {
    let nodes = text(&mut server.raw(), "CLUSTER NODES");
    let myself = nodes
        .lines()
        .find(|line| line.contains("myself"))
        .expect("it is there");
    let (_, behind) = myself.split_once('@').expect("a port");
    behind.split([' ', ',']).next().expect("a port").to_owned()
}

/// Introduces a node to a cluster.
pub(crate) fn meet(newcomer: &Server, member: &Server) {
    let line = format!(
        "CLUSTER MEET 127.0.0.1 {} {}",
        member.port,
        bus_port(member)
    );
    check(&mut newcomer.raw(), &line, "OK");
}

/// Returns a node's view of each node: name, address, flags without `myself`, primary, epoch, slots.
fn view(server: &Server) -> Vec<String> {
    let nodes = text(&mut server.raw(), "CLUSTER NODES");
    let mut lines: Vec<String> = nodes
        .lines()
        .map(|line| {
            let fields: Vec<&str> = line.split(' ').collect();
            let flags = fields[2].trim_start_matches("myself,");
            let slots: Vec<&str> = fields[8..]
                .iter()
                .copied()
                .filter(|slot| !slot.starts_with('['))
                .collect();
            format!(
                "{} {} {flags} {} {} {slots:?}",
                fields[0], fields[1], fields[3], fields[6]
            )
        })
        .collect();
    lines.sort();
    lines
}

/// Makes one cluster of servers and distributes the slots among all of them.
pub(crate) fn unite(servers: &[&Server]) {
    let first = servers[0];
    for (at, server) in servers.iter().enumerate() {
        let mut client = server.raw();
        let share = 16384 / servers.len();
        let last = if at + 1 == servers.len() {
            16383
        } else {
            (at + 1) * share - 1
        };
        check(
            &mut client,
            &format!("CLUSTER ADDSLOTSRANGE {} {last}", at * share),
            "OK",
        );
        check(
            &mut client,
            &format!("CLUSTER SET-CONFIG-EPOCH {}", at + 1),
            "OK",
        );
        if at > 0 {
            let meet = format!("CLUSTER MEET 127.0.0.1 {} {}", first.port, bus_port(first));
            check(&mut client, &meet, "OK");
        }
    }
    agree(servers);
}

/// Waits until all servers have equal views of all nodes, and serve.
pub(crate) fn agree(servers: &[&Server]) {
    eventually("all nodes agree", || {
        let first = view(servers[0]);
        let is_whole = first.len() == servers.len();
        is_whole
            && servers.iter().all(|server| {
                view(server) == first && info(&mut server.raw(), "cluster_state") == "ok"
            })
    });
}

/// Runs a command and follows the cluster's redirection.
pub(crate) fn run(from: &Server, words: &[&str]) -> Value {
    let mut client = from.raw();
    for _ in 0..5 {
        let reply = client.command(words);
        let said = match &reply {
            Value::Error(said) => String::from_utf8_lossy(said).into_owned(),
            _ => return reply,
        };
        let Some(place) = said.strip_prefix("MOVED ") else {
            return reply;
        };
        let (_, port) = place.rsplit_once(':').expect("an address");
        client = Raw::connect(port.parse().expect("a port"));
    }
    panic!("{words:?} is sent on and on")
}

#[test]
fn nodes_meet_agree_and_come_back_as_who_they_were() {
    if support::is_stand_in() {
        return;
    }
    let dir = tempfile::tempdir().expect("a folder");
    let folder = dir.path().to_str().expect("a plain path").to_owned();
    let kept = options().with("dir", &folder);
    let (one, two) = (start(), start());
    let mut third = Server::start(&kept);
    unite(&[&one, &two, &third]);
    for number in 0..20 {
        let name = format!("k{number}");
        assert_eq!(run(&one, &["SET", &name, &name]).text(), "OK");
        assert_eq!(run(&two, &["GET", &name]).text(), name);
    }
    check(
        &mut two.raw(),
        "CONFIG SET cluster-announce-hostname b.example cluster-announce-ip 127.0.0.1",
        "OK",
    );
    eventually("the other nodes hear of its name", || {
        let hears =
            |server| text(&mut Server::raw(server), "CLUSTER NODES").contains(",b.example ");
        hears(&one) && hears(&third)
    });
    let before = view(&one);
    let (port, name) = (third.port, id(&third));
    let saved = fs::read_to_string(dir.path().join("nodes.conf")).expect("it is there");
    for server in [&one, &two, &third] {
        assert!(saved.contains(&id(server)), "{saved}");
    }
    assert!(
        saved.contains("vars currentEpoch 3 lastVoteEpoch 0\n"),
        "{saved}"
    );
    third.signal("KILL");
    third.wait_for_exit();
    drop(third);
    let third = Server::start(&kept.port(port));
    assert_eq!(id(&third), name);
    agree(&[&one, &two, &third]);
    assert_eq!(view(&third), before);
}

#[test]
fn a_replica_takes_the_place_of_its_primary_by_itself_and_on_request() {
    if support::is_stand_in() {
        return;
    }
    let (one, two, three, spare) = (start(), start(), start(), start());
    unite(&[&one, &two, &three]);
    meet(&spare, &one);
    agree(&[&one, &two, &three, &spare]);
    check(
        &mut spare.raw(),
        &format!("CLUSTER REPLICATE {}", id(&one)),
        "OK",
    );
    agree(&[&one, &two, &three, &spare]);
    // A key of the first third.
    assert_eq!(run(&two, &["SET", "{b}k", "1"]).text(), "OK");
    crate::replicated::await_link(&spare);
    check(&mut spare.raw(), "CLUSTER FAILOVER", "OK");
    let is_primary = |server: &Server| server.raw().call("ROLE").show().contains("\"master\"");
    eventually("the replica leads", || {
        is_primary(&spare) && !is_primary(&one)
    });
    agree(&[&one, &two, &three, &spare]);
    assert_eq!(run(&two, &["GET", "{b}k"]).text(), "1");
    crate::replicated::await_link(&one);
    let mut writer = spare.raw();
    check(&mut writer, "SET {b}k 2", "OK");
    check(&mut writer, "WAIT 1 5000", "(integer) 1");
    // Now its primary is gone for good.
    let gone = id(&spare);
    drop(spare);
    eventually("the replica leads again", || is_primary(&one));
    eventually("the cluster serves", || {
        let states = [&one, &two, &three].map(|server| info(&mut server.raw(), "cluster_state"));
        states.iter().all(|state| state == "ok")
    });
    assert_eq!(run(&two, &["GET", "{b}k"]).text(), "2");
    let nodes = text(&mut two.raw(), "CLUSTER NODES");
    let failed = nodes
        .lines()
        .find(|line| line.starts_with(&gone))
        .expect("it is known");
    assert!(failed.contains("fail"), "{failed}");
}

#[test]
fn nodes_of_redis_server_are_nodes_beside_ours() {
    if support::is_stand_in() {
        return;
    }
    let oracle = || {
        let directive = |name: &str, value: &str| (name.to_owned(), value.to_owned());
        Oracle::start_with(&[
            directive("cluster-enabled", "yes"),
            directive("cluster-node-timeout", TIMEOUT),
            directive("cluster-port", &free_port().to_string()),
        ])
    };
    let (Some(Oracle(redis)), Some(Oracle(other))) = (oracle(), oracle()) else {
        return;
    };
    let ours = start();
    let servers = [&redis, &ours, &other];
    let places = servers.map(|server| format!("127.0.0.1:{}", server.port));
    let created = Command::new("redis-cli")
        .args(["--cluster", "create"])
        .args(&places)
        .arg("--cluster-yes")
        .output()
        .expect("redis-cli comes with redis-server");
    let said = String::from_utf8_lossy(&created.stdout).into_owned();
    assert!(said.contains("[OK] All 16384 slots covered."), "{said}");
    agree(&servers);
    for server in servers {
        let mut client = server.raw();
        for kind in ["ping", "pong"] {
            for way in ["sent", "received"] {
                let count = info(&mut client, &format!("cluster_stats_messages_{kind}_{way}"));
                assert_ne!(count, "0", "{kind} {way}");
            }
        }
    }
    for number in 0..20 {
        let name = format!("k{number}");
        assert_eq!(run(&ours, &["SET", &name, &name]).text(), "OK");
        assert_eq!(run(&other, &["GET", &name]).text(), name);
    }
    for (from, to) in [(&ours, &redis), (&redis, &ours)] {
        let mut subscriber = to.raw();
        check(
            &mut subscriber,
            "SUBSCRIBE news",
            "1) \"subscribe\"\n2) \"news\"\n3) (integer) 1",
        );
        from.raw().call("PUBLISH news hello");
        let message = subscriber.read().show();
        assert_eq!(message, "1) \"message\"\n2) \"news\"\n3) \"hello\"");
    }
    let checked = Command::new("redis-cli")
        .args(["--cluster", "check", &places[1]])
        .output()
        .expect("it is there");
    let said = String::from_utf8_lossy(&checked.stdout).into_owned();
    assert!(
        said.contains("[OK] All nodes agree about slots configuration."),
        "{said}"
    );
}

#[test]
fn a_file_that_is_locked_or_broken_stops_the_start() {
    if support::is_stand_in() {
        return;
    }
    let dir = tempfile::tempdir().expect("a folder");
    let folder = dir.path().to_str().expect("a plain path").to_owned();
    let refused = |port: u16, more: &[&str]| {
        let output = support::command()
            .args([
                "--metrics-port",
                "0",
                "--save",
                "",
                "--cluster-enabled",
                "yes",
            ])
            .args(["--port", &port.to_string(), "--dir", &folder])
            .args(more)
            .output()
            .expect("the server");
        assert!(!output.status.success());
        let (out, err) = (output.stdout, output.stderr);
        String::from_utf8_lossy(&[out, err].concat()).into_owned()
    };
    let bus = free_port().to_string();
    let server = Server::start(&options().with("dir", &folder));
    let said = refused(free_port(), &["--cluster-port", &bus]);
    let why = "nodes.conf is already used by a different Redis Cluster node. Please make sure that different nodes use \
               different cluster configuration files.";
    assert!(said.contains(why), "{said}");
    drop(server);
    fs::write(dir.path().join("nodes.conf"), "vars currentEpoch\n").expect("there is room");
    let said = refused(free_port(), &["--cluster-port", &bus]);
    let why = "Unrecoverable error: corrupted cluster config file \"vars currentEpoch\".";
    assert!(
        said.contains(why) && said.contains("line 1: a variable without a value"),
        "{said}"
    );
    fs::remove_file(dir.path().join("nodes.conf")).expect("it is there");
    let said = refused(55_536, &[]);
    assert!(
        said.contains("Your Redis port number must be 55535 or less."),
        "{said}"
    );
}

#[test]
fn what_is_no_packet_ends_the_link_and_changes_nothing() {
    if support::is_stand_in() {
        return;
    }
    let server = start();
    let port = bus_port(&server).parse().expect("a port");
    let before = view(&server);
    for bytes in [
        b"GET / HTTP/1.1\r\n\r\n".as_slice(),
        b"RCmb\0\0\0\x10\0\0\0\0\0\0\0\0",
    ] {
        let mut stranger = Raw::connect(port);
        stranger.send(bytes);
        assert!(stranger.is_closed());
    }
    // A header of the right length whose sender has no name: dropped, and the link goes on.
    let mut header = vec![0; 2256];
    header[..8].copy_from_slice(b"RCmb\0\0\x08\xd0");
    header[9] = 1;
    header[13] = 6;
    let mut stranger = Raw::connect(port);
    stranger.send(&header);
    stranger.send(&header);
    eventually("it is noted", || {
        server
            .log()
            .contains("the name of the sender is not a node name")
    });
    assert_eq!(view(&server), before);
    assert!(
        server
            .log()
            .contains("Bad message length or signature received on the Cluster bus")
    );
}

#[test]
fn nodes_show_each_other_certificates_over_tls() {
    if support::is_stand_in() {
        return;
    }
    let authority = Authority::new();
    let start = |name: &str| {
        let tls_port = free_port();
        let options = authority
            .options(tls_port)
            .with("tls-cluster", "yes")
            .with("tls-auth-clients", "no")
            .with("cluster-enabled", "yes")
            .with("cluster-node-timeout", TIMEOUT)
            .with("cluster-announce-human-nodename", name)
            .with("cluster-port", &free_port().to_string());
        (Server::start(&options), tls_port)
    };
    let ((one, tls_port), (two, _)) = (start("one"), start("two"));
    check(&mut one.raw(), "CLUSTER ADDSLOTSRANGE 0 8000", "OK");
    check(&mut two.raw(), "CLUSTER ADDSLOTSRANGE 8001 16383", "OK");
    let meet = format!("CLUSTER MEET 127.0.0.1 {tls_port} {}", bus_port(&one));
    check(&mut two.raw(), &meet, "OK");
    agree(&[&one, &two]);
    let bus: u16 = bus_port(&one).parse().expect("a port");
    let before = view(&one);
    let mut plain = Raw::connect(bus);
    plain.send(b"RCmb\0\0\x08\xd0");
    assert!(plain.is_closed());
    // Whatever clients have to present, nodes have to present a certificate.
    let mut stranger = tls::connect(bus, authority.client(None, tls::NEW));
    let asked = tls::ask(&mut stranger, b"RCmb", b"x");
    assert!(asked.is_err());
    eventually("it is noted", || {
        one.log()
            .contains("Error accepting cluster node connection from 127.0.0.1")
    });
    assert_eq!(view(&one), before);
}

#[test]
fn a_node_that_can_not_save_is_silent_until_it_can() {
    if support::is_stand_in() {
        return;
    }
    let (one, two) = (start(), start());
    unite(&[&one, &two]);
    let in_the_way = two.dir().join("nodes.conf.tmp");
    fs::create_dir(&in_the_way).expect("there is room");
    let said = two.raw().call("CLUSTER SAVECONFIG").text();
    let why = "ERR error saving the cluster node config: ";
    assert!(said.starts_with(why), "{said}");
    // A change that cannot be saved does not happen, so that no node learns of it later.
    let epochs = |server: &Server| {
        let mut raw = server.raw();
        ["cluster_my_epoch", "cluster_current_epoch"].map(|field| info(&mut raw, field))
    };
    let before = epochs(&two);
    let said = two.raw().call("CLUSTER BUMPEPOCH").text();
    assert!(said.starts_with(why), "{said}");
    assert_eq!(epochs(&two), before);
    let name = id(&two);
    let is_suspect = || {
        let nodes = text(&mut one.raw(), "CLUSTER NODES");
        let mut lines = nodes.lines();
        lines.any(|line| line.starts_with(&name) && line.contains("fail?"))
    };
    eventually("the other node misses it", is_suspect);
    assert!(
        two.log().contains("this node sends nothing"),
        "{}",
        two.log()
    );
    let fails = || info(&mut two.raw(), "cluster_state") == "fail";
    eventually("it serves no longer, although it hears the other", fails);
    fs::remove_dir(&in_the_way).expect("it is there");
    agree(&[&one, &two]);
    assert!(two.log().contains("can be written again"), "{}", two.log());
}

#[test]
fn slots_given_by_hand_outlive_the_process_once_that_is_answered() {
    if support::is_stand_in() {
        return;
    }
    let dir = tempfile::tempdir().expect("a folder");
    let folder = dir.path().to_str().expect("a plain path").to_owned();
    let kept = options().with("dir", &folder);
    let one = start();
    let mut target = Server::start(&kept);
    unite(&[&one, &target]);
    let (port, name) = (target.port, id(&target));
    let (mut source_client, mut client) = (one.raw(), target.raw());
    let mut give = |slot: u16| {
        let line = format!("CLUSTER SETSLOT {slot} NODE {name}");
        check(&mut client, &line, "OK");
        check(&mut source_client, &line, "OK");
    };
    // The first one gives the target a new epoch, which has to reach the disk first.
    give(0);
    agree(&[&one, &target]);
    (1..30).for_each(&mut give);
    target.signal("KILL");
    target.wait_for_exit();
    drop(target);
    let target = Server::start(&kept.port(port));
    agree(&[&one, &target]);
    let own = view(&target).into_iter().find(|line| line.contains(&name));
    let own = own.expect("it knows itself");
    assert!(own.contains("\"0-29\""), "{own}");
}

#[test]
fn a_bus_without_tls_on_a_public_address_is_warned_of() {
    if support::is_stand_in() {
        return;
    }
    let is_warned = |server: &Server| {
        server
            .log()
            .contains("can join the cluster and take over slots")
    };
    let public = Server::start(&options().with("bind", "0.0.0.0"));
    eventually("the log says so", || is_warned(&public));
    assert!(!is_warned(&start()), "others can not reach it");
}

#[test]
fn a_replica_that_is_reset_is_alone_and_empty() {
    if support::is_stand_in() {
        return;
    }
    let (one, spare) = (start(), start());
    check(&mut one.raw(), "CLUSTER ADDSLOTSRANGE 0 16383", "OK");
    let meet = format!("CLUSTER MEET 127.0.0.1 {} {}", one.port, bus_port(&one));
    check(&mut spare.raw(), &meet, "OK");
    agree(&[&one, &spare]);
    let before = id(&spare);
    let follow = format!("CLUSTER REPLICATE {}", id(&one));
    check(&mut spare.raw(), &follow, "OK");
    crate::replicated::await_link(&spare);
    for number in 0..50 {
        check(&mut one.raw(), &format!("SET k{number} v"), "OK");
    }
    eventually("the data are there", || {
        spare.raw().call("DBSIZE").show() == "(integer) 50"
    });
    check(&mut spare.raw(), "CLUSTER RESET HARD", "OK");
    eventually("the data are gone", || {
        spare.raw().call("DBSIZE").show() == "(integer) 0"
    });
    assert!(spare.raw().call("ROLE").show().contains("\"master\""));
    assert_ne!(id(&spare), before);
    assert_eq!(info(&mut spare.raw(), "cluster_known_nodes"), "1");
    check(&mut one.raw(), "DBSIZE", "(integer) 50");
    check(&mut one.raw(), &format!("CLUSTER FORGET {before}"), "OK");
}

#[test]
fn links_over_which_too_much_waits_are_freed() {
    if support::is_stand_in() {
        return;
    }
    let (one, two) = (start(), start());
    unite(&[&one, &two]);
    let links = one.raw().call("CLUSTER LINKS").show();
    for direction in ["\"to\"", "\"from\""] {
        assert!(links.contains(direction), "{links}");
    }
    let limit = |bytes: u64| format!("CONFIG SET cluster-link-sendbuf-limit {bytes}");
    check(&mut one.raw(), &limit(1), "OK");
    let freed = "total_cluster_links_buffer_limit_exceeded";
    eventually("links are freed", || info(&mut one.raw(), freed) != "0");
    check(&mut one.raw(), &limit(0), "OK");
    agree(&[&one, &two]);
}

#[test]
fn a_node_of_redis_server_goes_on_as_one_of_ours() {
    if support::is_stand_in() {
        return;
    }
    let dir = tempfile::tempdir().expect("a folder");
    let folder = dir.path().to_str().expect("a plain path").to_owned();
    let bus = free_port().to_string();
    let directive = |name: &str, value: &str| (name.to_owned(), value.to_owned());
    let started = Oracle::start_with(&[
        directive("dir", &folder),
        directive("cluster-enabled", "yes"),
        directive("cluster-port", &bus),
    ]);
    let Some(Oracle(mut redis)) = started else {
        return;
    };
    let mut client = redis.raw();
    check(&mut client, "CLUSTER ADDSLOTSRANGE 0 16383", "OK");
    check(&mut client, "CLUSTER BUMPEPOCH", "BUMPED 1");
    eventually("it serves", || info(&mut client, "cluster_state") == "ok");
    check(&mut client, "SET k v", "OK");
    let (name, port) = (id(&redis), redis.port);
    client.send(b"SHUTDOWN SAVE\r\n");
    assert_eq!(redis.wait_for_exit(), Some(0));
    let ours = support::start_loaded(
        &options()
            .port(port)
            .with("dir", &folder)
            .with("cluster-port", &bus),
    );
    assert_eq!(id(&ours), name);
    let mut client = ours.raw();
    eventually("it serves", || info(&mut client, "cluster_state") == "ok");
    assert_eq!(info(&mut client, "cluster_my_epoch"), "1");
    check(&mut client, "GET k", "\"v\"");
}

#[test]
fn a_replica_is_shown_with_its_primarys_own_epoch_even_if_that_is_a_replica() {
    if support::is_stand_in() {
        return;
    }
    let [me, one, two] = ["a", "b", "c"].map(|digit| digit.repeat(40));
    let saved = format!(
        "{me} 127.0.0.1:3@10003 myself,master - 0 0 5 connected 0-16383\n\
         {one} 127.0.0.1:1@10001 slave {me} 0 0 5 connected\n\
         {two} 127.0.0.1:2@10002 slave {one} 0 0 0 connected\n\
         vars currentEpoch 5 lastVoteEpoch 0\n"
    );
    let folders = [(); 2].map(|()| tempfile::tempdir().expect("a folder"));
    let places = folders.each_ref().map(|folder| {
        fs::write(folder.path().join("nodes.conf"), &saved).expect("it is written");
        folder.path().to_str().expect("a plain path").to_owned()
    });
    let epochs = |server: &Server| {
        let nodes = text(&mut server.raw(), "CLUSTER NODES");
        [&me, &one, &two].map(|id| {
            let mut lines = nodes.lines();
            let line = lines.find(|line| line.starts_with(id.as_str()));
            let line = line.unwrap_or_else(|| panic!("no {id}: {nodes}"));
            line.split(' ').nth(6).expect("an epoch").to_owned()
        })
    };
    let ours = Server::start(&options().with("dir", &places[0]));
    assert_eq!(epochs(&ours), ["5", "5", "0"]);
    let directive = |name: &str, value: &str| (name.to_owned(), value.to_owned());
    let started = Oracle::start_with(&[
        directive("cluster-enabled", "yes"),
        directive("cluster-port", &free_port().to_string()),
        directive("dir", &places[1]),
    ]);
    if let Some(Oracle(redis)) = started {
        assert_eq!(epochs(&redis), epochs(&ours));
    }
}
