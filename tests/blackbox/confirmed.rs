//! `min-sync-replicas`: no reply leaves before enough replicas have acknowledged what it reflects. Stand-ins for
//! replicas acknowledge when the test wants it.

use std::io::ErrorKind;

use crate::replicated::{follow, info};
use crate::replication_primary::{Socket, acknowledge_when_asked};
use crate::support::{Options, Oracle, Server, check, eventually};
use crate::wire::{Raw, encode};

const REFUSED: &str = "(error) NOREPLICAS Not enough good replicas to write.";
const UNCONFIRMED: &str = "(error) NOREPLICAS Not confirmed by min-sync-replicas replicas in time. A write is \
                           done here, but a failover may undo it.";

fn primary(replicas: usize, timeout_ms: u64) -> Options {
    Options::shards(8)
        .with("repl-diskless-sync-delay", "0")
        .with("min-sync-replicas", &replicas.to_string())
        .with("sync-replicas-timeout", &timeout_ms.to_string())
}

/// Acknowledges everything that the primary has written so far: it limits what it hears to that.
fn acknowledge(replica: &mut Socket) {
    replica.send(b"REPLCONF ACK 4000000000\r\n");
}

/// Connects replicas that acknowledge when they are told to.
fn attach<const N: usize>(server: &Server) -> [Socket; N] {
    let replicas = std::array::from_fn(|_| {
        let (mut replica, _) = Socket::synchronize(server);
        acknowledge(&mut replica);
        replica
    });
    let mut client = server.raw();
    eventually("all count", || {
        info(&mut client, "sync_replicas") == N.to_string()
    });
    replicas
}

/// Acknowledges everything until a client has received something: each request of the primary confirms what was
/// written before it, so several writes may take several acknowledgements.
fn acknowledge_for(replica: &mut Socket, client: &Raw) {
    eventually("it is confirmed", || {
        acknowledge(replica);
        !is_silent(client)
    });
}

/// Whether the client has received nothing.
fn is_silent(client: &Raw) -> bool {
    let stream = client.stream();
    stream.set_nonblocking(true).expect("a mode");
    let peeked = stream.peek(&mut [0]);
    stream.set_nonblocking(false).expect("a mode");
    matches!(peeked, Err(error) if error.kind() == ErrorKind::WouldBlock)
}

/// Sends a request that writes, and returns once it has been executed.
fn begin(server: &Server, line: &str) -> Raw {
    let (mut writer, mut observer) = (server.raw(), server.raw());
    begin_on(&mut writer, &mut observer, line);
    writer
}

fn begin_on(writer: &mut Raw, observer: &mut Raw, line: &str) {
    let offset = |observer: &mut Raw| {
        let text = info(observer, "master_repl_offset");
        text.parse::<u64>().expect("an offset")
    };
    let before = offset(observer);
    writer.send(&encode(&crate::wire::split(line)));
    eventually("the write is done", || offset(observer) > before);
}

#[test]
fn a_reply_waits_for_as_many_replicas_as_are_wanted() {
    let server = Server::start(&primary(2, 0));
    let mut client = server.raw();
    check(&mut client, "SET k 1", REFUSED);
    check(&mut client, "GET k", "(nil)");
    let [mut first, mut second, _silent] = attach(&server);
    let mut writer = begin(&server, "SET k 1");
    acknowledge(&mut first);
    // More acknowledgements of one replica do not make it two.
    acknowledge(&mut first);
    check(&mut client, "PING", "PONG");
    assert!(is_silent(&writer), "one replica was enough");
    acknowledge(&mut second);
    assert_eq!(writer.read().show(), "OK");
    check(&mut client, "GET k", "\"1\"");
    // A setting that needs no replica lets go of those who wait.
    let mut writer = begin(&server, "SET k 2");
    assert!(is_silent(&writer));
    check(&mut client, "CONFIG SET min-sync-replicas 0", "OK");
    assert_eq!(writer.read().show(), "OK");
    // Only what is written after it has been set is waited for.
    check(&mut client, "SET k 3", "OK");
    check(&mut client, "CONFIG SET min-sync-replicas 1", "OK");
    check(&mut client, "GET k", "\"3\"");
    let mut writer = begin(&server, "SET k 4");
    acknowledge(&mut second);
    assert_eq!(writer.read().show(), "OK");
}

#[test]
fn nobody_is_shown_what_is_not_confirmed() {
    let server = Server::start(&primary(1, 0));
    let [mut replica] = attach(&server);
    let mut observer = server.raw();
    for (number, (write, read, shown)) in [
        ("SET s 1", "GET s", "\"1\""),
        (
            "RPUSH l a",
            "EVAL \"return redis.call('LLEN', 'l')\" 1 l",
            "(integer) 1",
        ),
        (
            "EVAL \"redis.call('SET', 'e', 2)\" 1 e",
            "MGET e nothing",
            "1) \"2\"\n2) (nil)",
        ),
        (
            "HSET h f v",
            "SCAN 0 MATCH h COUNT 1000",
            "1) \"0\"\n2) 1) \"h\"",
        ),
        ("INCR n", "EXISTS n", "(integer) 1"),
    ]
    .into_iter()
    .enumerate()
    {
        let mut writer = begin(&server, write);
        let mut readers = [server.raw(), server.raw()];
        for reader in &mut readers {
            reader.send(&encode(&crate::wire::split(read)));
        }
        // Both have run once their commands are counted; no reply may have left.
        let name = crate::wire::split(read)[0].to_ascii_lowercase();
        let field = format!("cmdstat_{}", String::from_utf8_lossy(&name));
        eventually("they are read", || {
            let stats = observer.call("INFO commandstats").text();
            let line = stats.lines().find(|line| line.starts_with(&field));
            line.is_some_and(|line| !line.contains("calls=1,"))
        });
        assert!(
            is_silent(&writer) && readers.iter().all(is_silent),
            "{number}"
        );
        acknowledge(&mut replica);
        assert!(!writer.read().is_error());
        for reader in &mut readers {
            assert_eq!(reader.read().show(), shown, "{read}");
        }
        check(&mut observer, "CONFIG RESETSTAT", "OK");
    }
    // A client that reads another shard's keys, or none, does not wait.
    let _writer = begin(&server, "SET s 2");
    check(&mut observer, "PING", "PONG");
    check(&mut observer, "PUBLISH channel message", "(integer) 0");
    assert!(info(&mut observer, "keyspace_hits").parse::<u64>().is_ok());
    let others = (0..64).filter(|number| {
        let mut reader = server.raw();
        reader.send(&encode(&["GET".to_owned(), format!("other{number}")]));
        check(&mut observer, "PING", "PONG");
        !is_silent(&reader)
    });
    assert!(others.count() > 8, "all shards wait for one");
}

#[test]
fn replies_become_errors_where_replicas_are_late_and_writes_are_refused_until_they_are_back() {
    let server = Server::start(&primary(1, 300));
    let [mut replica] = attach(&server);
    let mut client = server.raw();
    let mut waiting = server.raw3();
    check(&mut waiting, "CLIENT TRACKING ON", "OK");
    check(&mut client, "SET k 1", UNCONFIRMED);
    // From here on nothing waits.
    check(&mut client, "SET k 2", REFUSED);
    check(&mut client, "GET k", UNCONFIRMED);
    check(&mut client, "PING", "PONG");
    check(&mut client, "GET k", UNCONFIRMED);
    assert_eq!(info(&mut client, "sync_replicas"), "1");
    eventually("it is shown", || {
        info(&mut client, "sync_replicas_overdue") == "1"
    });
    // Every reply of a batch is replaced, whatever its form, and none is lost.
    let replies = client.pipeline(&["GET k", "MGET k k", "ECHO text", "SET k 3", "INFO server"]);
    assert_eq!(replies.len(), 5);
    assert!(replies.iter().all(|reply| reply.show() == UNCONFIRMED));
    check(&mut client, "MULTI", "OK");
    check(&mut client, "GET k", "QUEUED");
    check(&mut client, "EXEC", UNCONFIRMED);
    check(&mut waiting, "MGET k k", UNCONFIRMED);
    let script = client.call("EVAL \"return redis.call('set', 'k', 4)\" 1 k");
    assert!(script.show().contains("NOREPLICAS"), "{}", script.show());
    acknowledge(&mut replica);
    eventually("writes are taken", || {
        acknowledge(&mut replica);
        let mut writer = server.raw();
        writer.send(&encode(&["SET", "k", "5"]));
        acknowledge(&mut replica);
        let reply = writer.read();
        acknowledge(&mut replica);
        !reply.is_error()
    });
    let replica = std::thread::spawn(move || replica_that_answers(replica));
    check(&mut client, "GET k", "\"5\"");
    check(&mut client, "SET k 6", "OK");
    assert_eq!(info(&mut client, "sync_replicas_overdue"), "0");
    assert!(
        info(&mut client, "unconfirmed_replies")
            .parse::<u64>()
            .expect("a count")
            > 5
    );
    drop(server);
    replica.join().expect("it ends with the server");
}

/// Acknowledges everything, again and again, until the server is gone.
fn replica_that_answers(replica: Socket) {
    acknowledge_when_asked(replica, 4_000_000_000);
}

#[test]
fn a_replica_that_is_lost_is_waited_for_and_may_come_back_elsewhere() {
    let server = Server::start(&primary(1, 0));
    let [replica] = attach(&server);
    let mut client = server.raw();
    let mut popping = server.raw();
    popping.send(&encode(&["BLPOP", "queue", "0"]));
    eventually("it waits", || info(&mut client, "blocked_clients") == "1");
    let writers = [
        begin(&server, "RPUSH queue job"),
        begin(&server, "EVAL \"return redis.call('set', 'k', 4)\" 1 k"),
    ];
    let mut transaction = server.raw();
    check(&mut transaction, "MULTI", "OK");
    check(&mut transaction, "INCR counter", "QUEUED");
    begin_on(&mut transaction, &mut client, "EXEC");
    drop(replica);
    eventually("it is gone", || info(&mut client, "sync_replicas") == "0");
    check(&mut client, "SET other 1", REFUSED);
    let held = [&popping, &transaction, &writers[0], &writers[1]];
    assert!(held.into_iter().all(is_silent));
    // All that was written is in the snapshot of the next one.
    let [mut next] = attach(&server);
    for client in [&popping, &transaction, &writers[0], &writers[1]] {
        acknowledge_for(&mut next, client);
    }
    assert_eq!(popping.read().show(), "1) \"queue\"\n2) \"job\"");
    assert_eq!(transaction.read().show(), "1) (integer) 1");
    for mut writer in writers {
        assert!(!writer.read().is_error());
    }
}

#[test]
fn clients_that_are_killed_or_leave_while_they_wait_end() {
    let server = Server::start(&primary(1, 0));
    let [mut replica] = attach(&server);
    let mut client = server.raw();
    let mut killed = server.raw();
    let id = killed.call("CLIENT ID").integer();
    begin_on(&mut killed, &mut client, "SET killed 1");
    let left = begin(&server, "SET left 1");
    check(&mut client, &format!("CLIENT KILL ID {id}"), "(integer) 1");
    assert_eq!(killed.read_to_close(), b"");
    drop(left);
    eventually("only the two are left", || {
        info(&mut client, "connected_clients") == "1"
    });
    client.send(&encode(&["MGET", "killed", "left"]));
    acknowledge_for(&mut replica, &client);
    assert_eq!(client.read().show(), "1) \"1\"\n2) \"1\"");
}

#[test]
fn a_primary_that_becomes_a_replica_confirms_nothing_any_more() {
    let (server, next) = (
        Server::start(&primary(1, 0)),
        Server::start(&Options::shards(8)),
    );
    let [_replica] = attach(&server);
    let mut client = server.raw();
    let mut writer = begin(&server, "SET k old");
    check(&mut next.raw(), "SET k new", "OK");
    check(
        &mut client,
        &format!("REPLICAOF 127.0.0.1 {}", next.port),
        "OK",
    );
    assert_eq!(writer.read().show(), UNCONFIRMED);
    // The replica's own data are its primary's, which need no confirmation.
    eventually("it follows", || client.call("GET k").show() == "\"new\"");
    check(&mut client, "REPLICAOF NO ONE", "OK");
    check(&mut client, "GET k", "\"new\"");
    check(&mut client, "SET k 2", REFUSED);
}

#[test]
fn servers_of_every_kind_confirm() {
    let options = Options::shards(8)
        .with("appendonly", "yes")
        .with("appendfsync", "always");
    let own = [Server::start(&Options::shards(2)), Server::start(&options)];
    let others = [
        Oracle::start(),
        Oracle::start_newer_redis(),
        Oracle::start_valkey_with(&[]),
    ];
    let others = others.into_iter().flatten().map(|Oracle(server)| server);
    for replica in own.into_iter().chain(others) {
        let server = Server::start(&primary(1, 60_000));
        follow(&replica, &server);
        let mut client = server.raw();
        eventually("it counts", || info(&mut client, "sync_replicas") == "1");
        for number in 0..200 {
            check(&mut client, &format!("SET k{number} {number}"), "OK");
            // No WAIT is needed: the replica has it.
            check(
                &mut replica.raw(),
                &format!("GET k{number}"),
                &format!("\"{number}\""),
            );
        }
    }
}

#[test]
fn wait_does_not_count_a_replica_that_has_its_snapshot_still_to_load() {
    let server = Server::start(&Options::shards(8).with("repl-diskless-sync-delay", "0"));
    let mut client = server.raw();
    check(&mut client, "SET k 1", "OK");
    let (mut replica, _) = Socket::synchronize(&server);
    eventually("it has got its snapshot", || {
        info(&mut client, "slave0").contains("state=online")
    });
    check(&mut client, "WAIT 1 1", "(integer) 0");
    acknowledge(&mut replica);
    check(&mut client, "WAIT 1 0", "(integer) 1");
}

#[test]
fn keys_that_expire_need_no_confirmation() {
    let server = Server::start(&primary(1, 0));
    let [mut replica] = attach(&server);
    let mut writer = begin(&server, "SET k v PX 100");
    acknowledge_for(&mut replica, &writer);
    assert_eq!(writer.read().show(), "OK");
    let mut client = server.raw();
    eventually("the deletion is on its way to replicas", || {
        info(&mut client, "expired_keys") == "1"
    });
    check(&mut client, "GET k", "(nil)");
    check(&mut client, "EXISTS k", "(integer) 0");
}

#[test]
fn a_primary_steps_aside_for_a_replica_that_is_promoted() {
    let server = Server::start(&primary(1, 0));
    let [mut other] = attach(&server);
    let next = Server::start(&Options::shards(8));
    follow(&next, &server);
    let mut client = server.raw();
    eventually("both count", || info(&mut client, "sync_replicas") == "2");
    let mut writer = begin(&server, "SET k 1");
    acknowledge_for(&mut other, &writer);
    assert_eq!(writer.read().show(), "OK");
    check(&mut next.raw(), "REPLICAOF NO ONE", "OK");
    // The other replica alone would be enough, and has not been told yet.
    eventually("nothing is written", || {
        acknowledge(&mut other);
        let mut writer = server.raw();
        writer.send(&encode(&["SET", "k", "2"]));
        acknowledge_for(&mut other, &writer);
        writer.read().show() == REFUSED
    });
    check(&mut client, "PING", "PONG");
    // An operator who knows that no server replaces this one can accept writes again.
    check(&mut client, "CONFIG SET min-sync-replicas 0", "OK");
    check(&mut client, "SET k 3", "OK");
    assert!(
        server
            .log()
            .contains("One of the replicas is a primary now")
    );
}
