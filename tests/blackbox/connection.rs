//! Connections: names, ids, lists, kills, pauses, suppressed replies, passwords.

use std::time::{Duration, Instant};

use crate::support::{self, Options, Server, check, eventually};
use crate::wire::Raw;

fn field(line: &str, name: &str) -> String {
    let found = line
        .split(' ')
        .find_map(|word| word.strip_prefix(&format!("{name}=")));
    found
        .unwrap_or_else(|| panic!("no {name}= in {line}"))
        .trim_end()
        .to_owned()
}

#[test]
fn client_list_names_every_connection_with_its_state() {
    support::at_each_shard_count(|server| {
        let mut first = server.raw();
        let mut second = server.raw3();
        check(&mut first, "CLIENT SETNAME first", "OK");
        check(&mut second, "SELECT 5", "OK");
        let id = first.call("CLIENT ID").integer();
        let info = first.call("CLIENT INFO").body();
        assert_eq!(field(&info, "id"), id.to_string());
        assert_eq!(field(&info, "name"), "first");
        assert_eq!(field(&info, "cmd"), "client|info");
        assert_eq!(field(&info, "resp"), "2");
        assert_eq!(field(&info, "user"), "default");
        assert_eq!(field(&info, "laddr"), format!("127.0.0.1:{}", server.port));
        let list = first.call("CLIENT LIST").body();
        let other = list
            .lines()
            .find(|line| field(line, "db") == "5")
            .expect("the second client");
        assert_eq!(field(other, "cmd"), "select");
        assert_eq!(field(other, "resp"), "3");
        let only = first.call(&format!("CLIENT LIST ID {id} 999999")).body();
        assert_eq!(only.lines().count(), 1);
        for name in [
            "addr", "fd", "age", "idle", "flags", "sub", "psub", "multi", "qbuf", "obl", "omem",
            "events",
        ] {
            field(&info, name);
        }
    });
}

#[test]
fn killed_clients_are_closed_and_counted() {
    support::at_each_shard_count(|server| {
        let mut killer = server.raw();
        let mut victim = server.raw();
        let id = victim.call("CLIENT ID").integer();
        check(&mut killer, &format!("CLIENT KILL ID {id}"), "(integer) 1");
        assert!(victim.is_closed());
        let mut victim = server.raw();
        let addr = field(&victim.call("CLIENT INFO").body(), "addr");
        check(&mut killer, &format!("CLIENT KILL {addr}"), "OK");
        assert!(victim.is_closed());
        check(
            &mut killer,
            &format!("CLIENT KILL {addr}"),
            "(error) ERR No such client",
        );
        let mut victims: Vec<_> = (0..20).map(|_| server.raw()).collect();
        victims
            .iter_mut()
            .for_each(|victim| check(victim, "PING", "PONG"));
        support::eventually("only they are left", || {
            killer.call("CLIENT LIST").body().lines().count() == 21
        });
        check(&mut killer, "CLIENT KILL TYPE normal", "(integer) 20");
        assert!(victims.iter_mut().all(|victim| victim.is_closed()));
        check(&mut killer, "PING", "PONG");
        support::eventually("they are gone", || {
            killer.call("CLIENT LIST").body().lines().count() == 1
        });
        // Without SKIPME it takes itself as well, after the answer.
        check(
            &mut killer,
            "CLIENT KILL TYPE normal SKIPME no",
            "(integer) 1",
        );
        assert!(killer.is_closed());
    });
}

#[test]
fn silence_is_kept_and_broken_as_asked() {
    support::at_each_shard_count(|server| {
        let mut raw = server.raw();
        raw.send(
            b"CLIENT REPLY OFF\r\nSET quiet 1\r\nINCR quiet\r\nCLIENT REPLY ON\r\nGET quiet\r\n",
        );
        assert_eq!(raw.read().show(), "OK");
        assert_eq!(raw.read().show(), "\"2\"");
        raw.send(b"CLIENT REPLY SKIP\r\nINCR quiet\r\nGET quiet\r\n");
        assert_eq!(raw.read().show(), "\"3\"");
    });
}

#[test]
fn a_pause_holds_writes_until_it_ends() {
    support::at_each_shard_count(|server| {
        let mut raw = server.raw();
        let mut writer = server.raw();
        check(&mut writer, "PING", "PONG");
        check(&mut raw, "CLIENT PAUSE 60000 WRITE", "OK");
        check(&mut raw, "GET paused", "(nil)");
        writer.send(b"SET paused v\r\n");
        std::thread::sleep(Duration::from_millis(50));
        check(&mut raw, "GET paused", "(nil)");
        check(&mut raw, "CLIENT UNPAUSE", "OK");
        assert_eq!(writer.read().show(), "OK");
        check(&mut raw, "GET paused", "\"v\"");
        let started = Instant::now();
        check(&mut raw, "CLIENT PAUSE 100 ALL", "OK");
        check(&mut writer, "GET paused", "\"v\"");
        assert!(
            started.elapsed() >= Duration::from_millis(95),
            "served during the pause"
        );
    });
}

#[test]
fn a_password_is_asked_for_and_can_be_changed() {
    let server = Server::start(&Options::shards(2).with("requirepass", "first"));
    let mut raw = server.raw();
    check(&mut raw, "GET k", "(error) NOAUTH Authentication required.");
    check(
        &mut raw,
        "AUTH wrong",
        "(error) WRONGPASS invalid username-password pair or user is disabled.",
    );
    check(
        &mut raw,
        "AUTH default wrong",
        "(error) WRONGPASS invalid username-password pair or user is disabled.",
    );
    check(
        &mut raw,
        "AUTH nobody first",
        "(error) WRONGPASS invalid username-password pair or user is disabled.",
    );
    assert!(
        raw.call("HELLO 3")
            .text()
            .starts_with("NOAUTH HELLO must be called with the client already authenticated")
    );
    assert!(!raw.call("HELLO 3 AUTH default first").is_error());
    check(&mut raw, "GET k", "(null)");
    check(&mut raw, "CONFIG SET requirepass second", "OK");
    check(&mut raw, "GET k", "(null)");
    let mut other = server.raw();
    check(&mut other, "AUTH second", "OK");
    check(&mut other, "RESET", "RESET");
    check(
        &mut other,
        "GET k",
        "(error) NOAUTH Authentication required.",
    );
    check(&mut other, "QUIT", "OK");
    assert!(other.is_closed());
    check(&mut raw, "CONFIG SET requirepass ''", "OK");
    check(&mut server.raw(), "GET k", "(nil)");
}

#[test]
fn quit_answers_what_came_before_it_and_nothing_after() {
    support::at_each_shard_count(|server| {
        let mut raw = server.raw();
        raw.send(b"SET q 1\r\nQUIT\r\nSET q 2\r\n");
        assert_eq!(raw.read_to_close(), b"+OK\r\n+OK\r\n");
        check(&mut server.raw(), "GET q", "\"1\"");
    });
}

#[test]
fn ids_rise_and_are_never_reused() {
    support::at_each_shard_count(|server| {
        let mut last = 0;
        for _ in 0..50 {
            let id = server.raw().call("CLIENT ID").integer();
            assert!(id > last);
            last = id;
        }
    });
}

#[test]
fn whoever_was_killed_is_gone_for_whoever_asks() {
    support::at_each_shard_count(|server| {
        let mut raw = server.raw();
        let others: Vec<_> = (0..8).map(|_| server.raw()).collect();
        support::eventually("all are there and nobody else", || {
            let info = raw.call("INFO clients").body();
            info.contains("connected_clients:9\r\n")
        });
        check(&mut raw, "CLIENT KILL SKIPME yes", "(integer) 8");
        let info = raw.call("INFO clients").body();
        assert!(info.contains("connected_clients:1\r\n"), "{info}");
        let list = raw.call("CLIENT LIST").body();
        assert_eq!(list.lines().count(), 1, "{list}");
        for mut other in others {
            assert!(other.is_closed());
        }
    });
}

/// Returns the line of one client, as another one sees it.
fn described(observer: &mut Raw, id: i64) -> String {
    observer.call(&format!("CLIENT LIST ID {id}")).body()
}

#[test]
fn a_client_that_waits_shows_what_it_waits_in() {
    let server = Server::start(&Options::shards(2));
    let (mut observer, mut client) = (server.raw(), server.raw());
    let id = client.call("CLIENT ID").integer();
    for (line, name) in [
        ("BLPOP none 0", "blpop"),
        ("XREAD BLOCK 0 STREAMS none $", "xread"),
        ("BZPOPMIN none other 0", "bzpopmin"),
        ("BLMOVE none other LEFT LEFT 0", "blmove"),
        ("WAIT 1 0", "wait"),
    ] {
        check(&mut client, "PING", "PONG");
        client.send(format!("{line}\r\n").as_bytes());
        eventually("it waits", || {
            field(&described(&mut observer, id), "flags") == "b"
        });
        assert_eq!(field(&described(&mut observer, id), "cmd"), name);
        check(
            &mut observer,
            &format!("CLIENT UNBLOCK {id}"),
            "(integer) 1",
        );
        client.read();
    }
    check(&mut observer, "CLIENT PAUSE 100000 WRITE", "OK");
    client.send(b"SET a b\r\n");
    eventually("it is held back", || {
        field(&described(&mut observer, id), "flags") == "b"
    });
    assert_eq!(field(&described(&mut observer, id), "cmd"), "set");
    check(&mut observer, "CLIENT UNPAUSE", "OK");
    client.read();
    client.call("GET");
    assert_eq!(field(&described(&mut observer, id), "cmd"), "get");
    client.call("NOSUCH");
    assert_eq!(field(&described(&mut observer, id), "cmd"), "NULL");
}

#[test]
fn a_client_shows_what_it_watches_queues_sends_and_runs() {
    let server = Server::start(&Options::shards(2));
    let (mut observer, mut client) = (server.raw(), server.raw());
    let id = client.call("CLIENT ID").integer();
    let mut shows = |fields: &[(&str, &str)]| {
        // Some of it is noted when the reply is sent already.
        for (name, value) in fields {
            eventually(&format!("{name} is {value}"), || {
                field(&described(&mut observer, id), name) == *value
            });
        }
    };
    shows(&[
        ("watch", "0"),
        ("tot-net-in", "24"),
        ("tot-net-out", "4"),
        ("tot-cmds", "1"),
    ]);
    check(&mut client, "WATCH x y x", "OK");
    shows(&[("watch", "2"), ("cmd", "watch"), ("flags", "N")]);
    let names: Vec<String> = (0..100).map(|number| format!("k{number}")).collect();
    check(&mut client, &format!("WATCH {} x", names.join(" ")), "OK");
    check(&mut client, &format!("WATCH {} y", names.join(" ")), "OK");
    shows(&[("watch", "102"), ("tot-cmds", "4")]);
    check(&mut client, "MULTI", "OK");
    check(&mut client, "SET x 1", "QUEUED");
    shows(&[
        ("multi", "1"),
        ("watch", "102"),
        ("flags", "x"),
        ("cmd", "set"),
        ("tot-cmds", "5"),
    ]);
    check(&mut client, "INCR x", "QUEUED");
    client.call("EXEC");
    shows(&[
        ("multi", "-1"),
        ("watch", "0"),
        ("flags", "N"),
        ("cmd", "exec"),
        ("tot-cmds", "8"),
    ]);
    client.call("EVAL \"redis.call('SET','x','1') return redis.call('GET','x')\" 0");
    shows(&[("cmd", "eval"), ("tot-cmds", "11")]);
    client.call("NOSUCH");
    client.call("LPUSH x y");
    shows(&[("cmd", "lpush"), ("tot-cmds", "12")]);
    check(&mut client, "WATCH x", "OK");
    check(&mut client, "UNWATCH", "OK");
    shows(&[("watch", "0"), ("tot-cmds", "14")]);
}

#[test]
fn clients_that_watch_are_counted_and_those_that_sent_too_much() {
    let server = Server::start(&Options::shards(2));
    let (mut observer, mut client, mut greedy) = (server.raw(), server.raw(), server.raw());
    let mut holds = |section: &str, line: &str| {
        let text = observer.call(&format!("INFO {section}")).body();
        assert!(text.lines().any(|one| one == line), "{line} in {text}");
    };
    holds("clients", "watching_clients:0");
    check(&mut client, "WATCH x y", "OK");
    holds("clients", "watching_clients:1");
    holds("clients", "total_watched_keys:2");
    let mut other = server.raw();
    check(&mut other, "WATCH y z", "OK");
    holds("clients", "watching_clients:2");
    holds("clients", "total_watched_keys:3");
    check(&mut other, "UNWATCH", "OK");
    check(&mut client, "UNWATCH", "OK");
    holds("clients", "watching_clients:0");
    holds("clients", "total_watched_keys:0");
    holds("clients", "pubsub_clients:0");
    other.call("SSUBSCRIBE a");
    other.call("SUBSCRIBE a");
    holds("clients", "pubsub_clients:1");
    other.call("UNSUBSCRIBE a");
    holds("clients", "pubsub_clients:1");
    other.call("SUNSUBSCRIBE a");
    holds("clients", "pubsub_clients:0");
    holds("stats", "client_query_buffer_limit_disconnections:0");
    check(
        &mut client,
        "CONFIG SET client-query-buffer-limit 1mb",
        "OK",
    );
    greedy.send(b"*2\r\n$3\r\nGET\r\n$3000000\r\n");
    greedy.send_unchecked(&vec![b'x'; 2_500_000]);
    assert!(greedy.is_closed());
    holds("stats", "client_query_buffer_limit_disconnections:1");
    check(&mut client, "CONFIG RESETSTAT", "OK");
    holds("stats", "client_query_buffer_limit_disconnections:0");
}
