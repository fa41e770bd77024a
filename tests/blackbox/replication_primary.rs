//! basalt as a primary: replicas of redis-server 7.0.15 follow it, and raw sockets send it false replication
//! requests.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpStream;
use std::time::{Duration, Instant};

use crate::dump::makers;
use crate::replicated::{Writer, follow, info, settle};
use crate::support::{Options, Oracle, Server, check, eventually, variable};
use crate::wire::Raw;

/// Returns the options of a primary that sends snapshots at once.
fn primary() -> Options {
    Options::shards(8).with("repl-diskless-sync-delay", "0")
}

fn count(client: &mut Raw, name: &str) -> u64 {
    info(client, name).parse().expect("a count")
}

#[test]
fn a_replica_gets_every_type_by_socket_and_by_file_and_then_the_stream() {
    for diskless in ["yes", "no"] {
        let server = Server::start(&primary().with("repl-diskless-sync", diskless));
        let mut client = server.raw();
        for line in makers() {
            client.call(&line);
        }
        client.call("FUNCTION LOAD \"#!lua name=l\\nredis.register_function{function_name='f', callback=function() return 1 end, flags={'no-writes'}}\"");
        client.call(&format!("SET long {}", "x".repeat(200_000)));
        let Some(Oracle(replica)) = Oracle::start() else {
            return;
        };
        follow(&replica, &server);
        settle(&[&server, &replica]);
        check(&mut replica.raw(), "FCALL_RO f 0", "(integer) 1");
        Writer::new(&server, variable("SEED", 1)).write(3_000);
        settle(&[&server, &replica]);
        check(&mut client, "WAIT 1 0", "(integer) 1");
        assert_eq!(count(&mut client, "sync_full"), 1);
    }
}

#[test]
fn a_link_that_is_cut_goes_on_where_it_was() {
    let Some(Oracle(replica)) = Oracle::start() else {
        return;
    };
    let server = Server::start(&primary().with("repl-backlog-size", "10mb"));
    let mut client = server.raw();
    let mut writer = Writer::new(&server, variable("SEED", 2));
    writer.write(500);
    follow(&replica, &server);
    for cut in 1..=5 {
        writer.write(300);
        let killed = client.call("CLIENT KILL TYPE replica").integer();
        writer.write(300);
        if killed == 0 {
            continue;
        }
        eventually("the replica is back", || {
            count(&mut client, "sync_partial_ok") >= cut
        });
        settle(&[&server, &replica]);
    }
    assert_eq!(count(&mut client, "sync_full"), 1);
    // Formerly a primary, it asked for its own stream, which no server here knows.
    assert_eq!(count(&mut client, "sync_partial_err"), 1);
}

#[test]
fn a_replica_that_missed_more_than_the_backlog_begins_anew() {
    let Some(Oracle(replica)) = Oracle::start() else {
        return;
    };
    let server = Server::start(&primary().with("repl-backlog-size", "16kb"));
    let mut client = server.raw();
    follow(&replica, &server);
    replica.signal("STOP");
    client.call("CLIENT KILL TYPE replica");
    for _ in 0..20 {
        client.call(&format!("APPEND k {}", "x".repeat(10_000)));
    }
    replica.signal("CONT");
    eventually("it is refused", || {
        count(&mut client, "sync_partial_err") == 2
    });
    settle(&[&server, &replica]);
    assert_eq!(count(&mut client, "sync_full"), 2);
}

#[test]
fn replicas_that_come_together_share_a_snapshot() {
    let replicas: Vec<Oracle> = (0..3).filter_map(|_| Oracle::start()).collect();
    if replicas.is_empty() {
        return;
    }
    let options = Options::shards(8)
        .with("repl-diskless-sync-delay", "600")
        .with("repl-diskless-sync-max-replicas", "3");
    let server = Server::start(&options);
    let mut client = server.raw();
    Writer::new(&server, 3).write(1_000);
    for Oracle(replica) in &replicas {
        let line = format!("REPLICAOF 127.0.0.1 {}", server.port);
        check(&mut replica.raw(), &line, "OK");
    }
    for Oracle(replica) in &replicas {
        settle(&[&server, replica]);
    }
    let log = server.log();
    assert_eq!(log.matches("Starting BGSAVE for SYNC").count(), 1, "{log}");
    assert_eq!(info(&mut client, "connected_slaves"), "3");
    check(&mut client, "WAIT 3 0", "(integer) 3");
}

/// A replica that is a socket and a test.
pub(crate) struct Socket(BufReader<TcpStream>);

impl Socket {
    fn connect(server: &Server) -> Socket {
        let stream = TcpStream::connect(("127.0.0.1", server.port)).expect("a connection");
        let patience = Some(Duration::from_secs(90));
        stream.set_read_timeout(patience).expect("a time-out");
        Socket(BufReader::new(stream))
    }

    pub(crate) fn send(&mut self, bytes: &[u8]) {
        self.0.get_mut().write_all(bytes).expect("it is sent");
    }

    /// Returns the next line that is not empty.
    fn line(&mut self) -> String {
        loop {
            let mut line = String::new();
            assert!(
                self.0.read_line(&mut line).expect("a line") > 0,
                "it is closed"
            );
            if !line.trim().is_empty() {
                return line.trim().to_owned();
            }
        }
    }

    /// Reads until something comes.
    fn read_until(&mut self, wanted: &[u8]) {
        let (mut found, mut byte) = (Vec::new(), [0]);
        while !found.ends_with(wanted) {
            self.0.read_exact(&mut byte).expect("more comes");
            found.push(byte[0]);
        }
    }

    fn read_to_close(&mut self) {
        // A socket that was closed with something unread may be reset.
        let _ = self.0.read_to_end(&mut Vec::new());
    }

    /// Gets a whole snapshot; its offset.
    pub(crate) fn synchronize(server: &Server) -> (Socket, u64) {
        let mut socket = Socket::connect(server);
        socket.send(b"REPLCONF capa eof capa psync2\r\n");
        assert_eq!(socket.line(), "+OK");
        socket.send(b"PSYNC ? -1\r\n");
        let line = socket.line();
        let offset = line.rsplit(' ').next().expect("an offset").parse();
        let head = socket.line();
        let mark = head.strip_prefix("$EOF:").expect("a snapshot").to_owned();
        socket.read_until(mark.as_bytes());
        (socket, offset.expect("a number"))
    }

    /// Connects the server's only replica, and waits until it counts as caught up; returns also its
    /// snapshot's offset.
    pub(crate) fn attach(server: &Server, client: &mut Raw) -> (Socket, u64) {
        let (mut socket, offset) = Socket::synchronize(server);
        socket.send(b"REPLCONF ACK 0\r\n");
        eventually("it is there", || {
            info(client, "slave0").contains("state=online")
        });
        (socket, offset)
    }
}

/// Answers each request for an acknowledgement as redis-server does, with the offset before the request, and
/// sends nothing else, until the server is gone. The stream's first byte follows the snapshot of this offset.
pub(crate) fn acknowledge_when_asked(mut socket: Socket, mut offset: u64) {
    let mut line = Vec::new();
    let mut next = |socket: &mut Socket| {
        line.clear();
        let read = socket.0.read_until(b'\n', &mut line).unwrap_or(0);
        let text = String::from_utf8_lossy(&line).trim().to_owned();
        (read > 0).then_some((text, read as u64))
    };
    while let Some((head, mut len)) = next(&mut socket) {
        let count: usize = head.trim_start_matches('*').parse().expect("a count");
        let mut words = Vec::new();
        for at in 0..2 * count {
            let Some((word, read)) = next(&mut socket) else {
                return;
            };
            len += read;
            if at % 2 == 1 {
                words.push(word);
            }
        }
        if words.get(1).is_some_and(|word| word == "GETACK") {
            let said = format!(
                "*3\r\n$8\r\nREPLCONF\r\n$3\r\nACK\r\n${}\r\n{offset}\r\n",
                offset.to_string().len()
            );
            if socket.0.get_mut().write_all(said.as_bytes()).is_err() {
                return;
            }
        }
        offset += len;
    }
}

#[test]
fn a_replica_that_answers_only_when_asked_and_with_the_offset_before_the_question_ends_each_wait() {
    let server = Server::start(&primary().threads(4));
    let (socket, offset) = Socket::attach(&server, &mut server.raw());
    let replica = std::thread::spawn(move || acknowledge_when_asked(socket, offset));
    std::thread::scope(|scope| {
        for number in 0..4 {
            let mut client = server.raw();
            scope.spawn(move || {
                for round in 0..100 {
                    client.send(format!("SET k{number} {round}\r\nWAIT 1 0\r\n").as_bytes());
                    assert_eq!(client.read().show(), "OK");
                    assert_eq!(client.read().show(), "(integer) 1");
                }
            });
        }
    });
    drop(server);
    replica.join().expect("the stand-in ends with the server");
}

#[test]
fn a_replica_that_never_reads_is_given_up_and_holds_nobody_up() {
    let Some(Oracle(replica)) = Oracle::start() else {
        return;
    };
    let options = primary()
        .with("client-output-buffer-limit", "replica 20mb 0 0")
        .with("repl-backlog-size", "1mb");
    let server = Server::start(&options);
    let mut client = server.raw();
    follow(&replica, &server);
    let (mut stuck, _) = Socket::synchronize(&server);
    stuck.send(b"REPLCONF ACK 0\r\n");
    eventually("both are there", || {
        info(&mut client, "connected_slaves") == "2"
    });
    let value = "x".repeat(100_000);
    let mut written = 0;
    while info(&mut client, "connected_slaves") == "2" {
        client.call(&format!("SET k{} {value}", written % 10));
        written += 1;
        assert!(written < 5_000, "nobody is given up");
    }
    assert!(written * 100_000 > 20 << 20, "too soon");
    assert_eq!(
        count(&mut client, "client_output_buffer_limit_disconnections"),
        1
    );
    settle(&[&server, &replica]);
    eventually("what it did not read is dropped", || {
        let held = info(&mut client, "mem_total_replication_buffers");
        held.parse::<u64>().expect("bytes") < 4 << 20
    });
}

#[test]
fn ten_slow_replicas_take_no_more_memory_than_one() {
    const MORE_BYTES_MAX: u64 = 2 << 20;
    let used = |replicas: usize| {
        let options = primary()
            .threads(2)
            .with("client-output-buffer-limit", "replica 1gb 0 0")
            .with("repl-timeout", "600");
        let server = Server::start(&options);
        let mut client = server.raw();
        let mut slow: Vec<Socket> = (0..replicas)
            .map(|_| Socket::synchronize(&server).0)
            .collect();
        slow.iter_mut()
            .for_each(|socket| socket.send(b"REPLCONF ACK 0\r\n"));
        let value = "x".repeat(4_000);
        for number in 0..5_000 {
            client.call(&format!("SET key:{} {value}", number % 10));
        }
        assert_eq!(count(&mut client, "connected_slaves"), replicas as u64);
        assert!(count(&mut client, "mem_total_replication_buffers") > 8 << 20);
        count(&mut client, "used_memory")
    };
    let (one, ten) = (used(1), used(10));
    // The system's buffers may have taken less from one connection than from another.
    assert!(ten < one + MORE_BYTES_MAX, "{one} with one, {ten} with ten");
}

#[test]
fn ten_replicas_that_come_back_at_once_all_get_what_they_missed() {
    const REPLICAS: usize = 10;
    let server = Server::start(&primary());
    let mut client = server.raw();
    client.call("SET a 1");
    let synchronized = (0..REPLICAS).map(|_| Socket::synchronize(&server).1);
    let offsets: Vec<u64> = synchronized.collect();
    client.call("SET b 2");
    let id = info(&mut client, "master_replid");
    std::thread::scope(|scope| {
        for offset in &offsets {
            let (server, id) = (&server, &id);
            scope.spawn(move || {
                let mut socket = Socket::connect(server);
                socket.send(b"REPLCONF capa psync2\r\n");
                assert_eq!(socket.line(), "+OK");
                socket.send(format!("PSYNC {id} {}\r\n", offset + 1).as_bytes());
                assert_eq!(socket.line(), format!("+CONTINUE {id}"));
                socket.read_until(b"$3\r\nSET\r\n$1\r\nb\r\n$1\r\n2\r\n");
            });
        }
    });
    assert_eq!(count(&mut client, "sync_partial_ok"), REPLICAS as u64);
}

#[test]
fn whoever_lies_is_refused_or_closed_and_nothing_else_happens() {
    let server = Server::start(&primary());
    let mut client = server.raw();
    client.call("SET a 1");
    let (_first, offset) = Socket::synchronize(&server);
    let id = info(&mut client, "master_replid");
    let future = (offset + 1_000_000).to_string();
    for (id, at) in [
        (id.as_str(), future.as_str()),
        (id.as_str(), "9223372036854775807"),
        (id.as_str(), "0"),
        (id.as_str(), "-5"),
        ("0000000000000000000000000000000000000000", "1"),
        ("x", "1"),
    ] {
        let mut socket = Socket::connect(&server);
        // Otherwise a snapshot is made by file, and replicas that ask next get that one.
        socket.send(b"REPLCONF capa eof capa psync2\r\n");
        assert_eq!(socket.line(), "+OK");
        socket.send(format!("PSYNC {id} {at}\r\n").as_bytes());
        let line = socket.line();
        assert!(line.starts_with("+FULLRESYNC "), "{id} {at}: {line}");
    }
    let mut socket = Socket::connect(&server);
    socket.send(b"PSYNC ? x\r\n");
    assert_eq!(
        socket.line(),
        "-ERR value is not an integer or out of range"
    );
    // An acknowledged offset that was never written does not count.
    let (mut liar, _) = Socket::synchronize(&server);
    client.call("SET a 2");
    let end = info(&mut client, "master_repl_offset");
    liar.send(b"REPLCONF ACK 9223372036854775807\r\n");
    eventually("the lie is heard", || {
        let replicas = client.call("INFO replication").body();
        replicas.contains(&format!(",offset={end},"))
    });
    client.call("SET b 2");
    check(&mut client, "WAIT 1 100", "(integer) 0");
    for garbage in [
        &b"PING\r\n"[..],
        b"*1\r\n$4\r\nINFO\r\n",
        b"*3000000000\r\n",
        b"*3\r\n$8\r\nREPLCONF\r\n$99999999999\r\n",
        b"\xff\xfe\x00garbage\r\n",
        b"SYNC\r\n",
    ] {
        let (mut socket, _) = Socket::synchronize(&server);
        socket.send(garbage);
        socket.read_to_close();
    }
    check(&mut client, "GET b", "\"2\"");
}

#[test]
fn a_silent_replica_is_given_up_in_time_and_pings_come_by_period() {
    let options = primary()
        .with("repl-timeout", "6")
        .with("repl-ping-replica-period", "1");
    let server = Server::start(&options);
    let mut client = server.raw();
    let (mut socket, _) = Socket::synchronize(&server);
    socket.send(b"REPLCONF ACK 0\r\n");
    let began = Instant::now();
    socket.read_until(b"*1\r\n$4\r\nPING\r\n");
    socket.read_to_close();
    assert!(began.elapsed() > Duration::from_millis(5_500));
    assert_eq!(info(&mut client, "connected_slaves"), "0");
}

#[test]
fn the_end_waits_for_replicas_and_is_taken_back() {
    let Some(Oracle(replica)) = Oracle::start() else {
        return;
    };
    let mut server = Server::start(&primary().with("shutdown-timeout", "60"));
    let mut client = server.raw();
    follow(&replica, &server);
    replica.signal("STOP");
    client.call("SET k 1");
    let mut ending = server.raw();
    ending.send(b"SHUTDOWN\r\n");
    eventually("it waits", || {
        !info(&mut client, "shutdown_in_milliseconds").is_empty()
    });
    let mut another = server.raw();
    another.send(b"SHUTDOWN\r\n");
    eventually("both are known to wait", || {
        count(&mut client, "blocked_clients") == 2
    });
    check(&mut client, "SHUTDOWN ABORT", "OK");
    assert!(ending.read().is_error() && another.read().is_error());
    assert_eq!(count(&mut client, "blocked_clients"), 0);
    check(&mut client, "SET k 2", "OK");
    ending.send(b"SHUTDOWN\r\n");
    eventually("it waits again", || {
        !info(&mut client, "shutdown_in_milliseconds").is_empty()
    });
    replica.signal("CONT");
    assert_eq!(server.wait_for_exit(), Some(0));
    let mut below = replica.raw();
    check(&mut below, "GET k", "\"2\"");
}

#[test]
fn an_end_that_waited_for_replicas_and_fails_lets_writers_go_on() {
    let server = Server::start(&primary().with("shutdown-timeout", "60"));
    let mut client = server.raw();
    client.call("SET a 1");
    let (mut replica, offset) = Socket::attach(&server, &mut client);
    client.call("SET k 1");
    let mut ending = server.raw();
    ending.send(b"SHUTDOWN\r\n");
    eventually("it waits", || {
        !info(&mut client, "shutdown_in_milliseconds").is_empty()
    });
    // The first file, which is long in coming.
    check(&mut client, "CONFIG SET rdb-key-save-delay 30000000", "OK");
    check(&mut client, "CONFIG SET appendonly yes", "OK");
    let acknowledged = format!("REPLCONF ACK {}\r\n", offset + 1_000);
    replica.send(acknowledged.as_bytes());
    let reply = ending.read();
    let text = "Errors trying to SHUTDOWN. Check logs.";
    assert!(reply.show().contains(text), "{}", reply.show());
    check(&mut client, "SET k 2", "OK");
    assert!(server.log().contains("Errors trying to shut down"));
}

/// Returns the only replica, according to INFO.
fn only_replica(client: &mut Raw) -> String {
    info(client, "slave0")
}

/// Connects a replica that has asked for a snapshot.
fn ask(server: &Server) -> Socket {
    let mut socket = Socket::connect(server);
    socket.send(b"PSYNC ? -1\r\n");
    socket
}

#[test]
fn a_snapshot_that_no_replica_needs_any_more_ends_unless_it_is_a_save() {
    let options = primary()
        .with("repl-diskless-sync", "no")
        .with("rdb-key-save-delay", "500000");
    let server = Server::start(&options);
    let mut client = server.raw();
    for key in 0..4 {
        client.call(&format!("SET {key} 1"));
    }
    for save in ["", "3600 1000"] {
        client.call(&format!("CONFIG SET save \"{save}\""));
        let before = count(&mut client, "rdb_changes_since_last_save");
        assert!(before > 0);
        let replica = ask(&server);
        eventually("it waits for the file", || {
            only_replica(&mut client).contains("state=wait_bgsave")
                && count(&mut client, "rdb_bgsave_in_progress") == 1
        });
        drop(replica);
        eventually("the snapshot is over", || {
            count(&mut client, "rdb_bgsave_in_progress") == 0
        });
        let is_saved = count(&mut client, "rdb_changes_since_last_save") < before;
        assert_eq!(is_saved, !save.is_empty(), "{save:?}\n{}", server.log());
    }
}

#[test]
fn a_snapshot_for_replicas_of_data_that_are_deleted_is_given_up() {
    let server = Server::start(&primary().with("rdb-key-save-delay", "30000000"));
    let mut client = server.raw();
    client.call("MSET a 1 b 2");
    let mut replica = Socket::connect(&server);
    replica.send(b"REPLCONF capa eof\r\n");
    assert_eq!(replica.line(), "+OK");
    replica.send(b"PSYNC ? -1\r\n");
    eventually("it is sent as it is made", || {
        only_replica(&mut client).contains("state=wait_bgsave")
            && count(&mut client, "rdb_bgsave_in_progress") == 1
    });
    check(&mut client, "FLUSHALL", "OK");
    replica.read_to_close();
    // There is nothing to be saved slowly any more.
    let (_again, _) = Socket::synchronize(&server);
}

#[test]
fn what_a_replica_must_not_ask_for_is_named_in_the_log() {
    let server = Server::start(&primary());
    for (line, named) in [
        ("XINFO HELP\r\n", "xinfo|help"),
        ("GET foo\r\n", "get"),
        ("PING\r\n", "ping"),
    ] {
        let (mut socket, _) = Socket::synchronize(&server);
        socket.send(line.as_bytes());
        socket.read_to_close();
        let text = format!("Replica generated a reply to command '{named}', disconnecting it: ");
        eventually("it is in the log", || server.log().contains(&text));
    }
    assert!(
        server
            .log()
            .contains("Replica can't interact with the keyspace")
    );
    let mut socket = Socket::connect(&server);
    socket.send(b"PSYNC ? x\r\n");
    assert!(socket.line().starts_with('-'));
    let text = "asks for synchronization but with a wrong offset";
    assert!(server.log().contains(text));
}

#[test]
fn the_offset_is_behind_what_was_written_wherever_it_is_asked_for() {
    let server = Server::start(&primary());
    let mut client = server.raw();
    let _replica = Socket::synchronize(&server);
    let last_word = |line: &str| line.rsplit(' ').next()?.parse::<u64>().ok();
    for _ in 0..50 {
        let before = count(&mut client, "master_repl_offset");
        client.call("SET k 1");
        // A record of 27 bytes, and SELECT before the first one.
        assert!(count(&mut client, "master_repl_offset") >= before + 27);
        client.call("SET k 1");
        let replies = client.pipeline(&["MULTI", "ROLE", "EXEC"]);
        let role = replies[2].show();
        let offset = role.lines().nth(1).and_then(last_word);
        assert!(offset >= Some(before + 54), "{role}");
    }
}

#[test]
fn what_is_kept_for_a_slow_replica_pushes_no_keys_out() {
    const KEYS: u64 = 100;
    let options = primary()
        .with("maxmemory-policy", "allkeys-random")
        .with("client-output-buffer-limit", "replica 1gb 0 0")
        .with("repl-backlog-size", "16kb")
        .with("repl-timeout", "600");
    let server = Server::start(&options);
    let mut client = server.raw();
    for key in 0..KEYS {
        client.call(&format!("SETRANGE key:{key} 100000 x"));
    }
    let (slow, _) = Socket::attach(&server, &mut client);
    let limit = count(&mut client, "used_memory") + (4 << 20);
    check(&mut client, &format!("CONFIG SET maxmemory {limit}"), "OK");
    let value = "x".repeat(50_000);
    for _ in 0..600 {
        client.call(&format!("SETRANGE key:0 0 {value}"));
    }
    assert!(count(&mut client, "mem_clients_slaves") > 8 << 20);
    assert!(count(&mut client, "mem_not_counted_replicas") > 8 << 20);
    let not_counted = count(&mut client, "mem_not_counted_for_evict");
    assert!(not_counted >= count(&mut client, "mem_not_counted_replicas"));
    check(&mut client, "DBSIZE", &format!("(integer) {KEYS}"));
    drop(slow);
    eventually("nothing is kept for it any more", || {
        count(&mut client, "mem_not_counted_replicas") <= 16 << 10
            && count(&mut client, "mem_clients_slaves") == 0
    });
}

#[test]
fn what_is_kept_for_a_slow_replica_is_counted_but_for_a_few_blocks() {
    let options = primary()
        .with("client-output-buffer-limit", "replica 1gb 0 0")
        .with("repl-backlog-size", "16kb")
        .with("repl-timeout", "600")
        .with("slowlog-log-slower-than", "-1")
        .with("latency-tracking", "no");
    let server = Server::start(&options);
    let mut client = server.raw();
    client.call("SETRANGE key 1000 x");
    let (_slow, _) = Socket::attach(&server, &mut client);
    let line = format!("SETRANGE key 0 {}", "x".repeat(100));
    client.call(&line);
    let before = own_bytes(&mut client);
    // The system takes the first ones for the replica.
    eventually("much is kept", || {
        client.pipeline(&[line.as_str(); 100]);
        count(&mut client, "mem_not_counted_for_evict") > 8 << 20
    });
    let more = own_bytes(&mut client) - before;
    // The client's own buffers are among them, and the block of each thread that is not full yet.
    assert!(more.abs() < 200 << 10, "{more} bytes are not counted");
}

/// Returns the server's memory without the stream that is kept for slow replicas.
fn own_bytes(client: &mut Raw) -> i64 {
    let text = client.call("INFO memory").body();
    let field = |name: &str| -> i64 {
        let mut lines = text.lines();
        let found = lines.find_map(|line| line.strip_prefix(name)?.strip_prefix(':'));
        found.and_then(|text| text.parse().ok()).expect("a number")
    };
    field("used_memory") - field("mem_not_counted_for_evict")
}

#[test]
fn what_is_kept_for_a_slow_replica_is_counted_so_well_that_little_room_is_enough() {
    const KEYS: u64 = 100;
    // Some records are on their way through the log, the more the busier the machine is.
    const ROOM_BYTES: i64 = 256 << 10;
    let options = primary()
        .with("maxmemory-policy", "allkeys-random")
        .with("client-output-buffer-limit", "replica 1gb 0 0")
        .with("repl-backlog-size", "10kb")
        .with("repl-timeout", "600")
        .with("slowlog-log-slower-than", "-1")
        .with("latency-tracking", "no");
    let server = Server::start(&options);
    let mut client = server.raw();
    for key in 0..KEYS {
        client.call(&format!("SETRANGE key:{key} 100000 x"));
    }
    let line = format!("SETRANGE key:0 0 {}", "x".repeat(100));
    for _ in 0..3 {
        let (slow, _) = Socket::attach(&server, &mut client);
        // Its buffers are as large as they get.
        client.pipeline(&[line.as_str(); 100]);
        assert!(count(&mut client, "mem_clients_normal") >= 16 << 10);
        eventually("the snapshot that it got is given back", || {
            count(&mut client, "mem_not_counted_snapshot") == 0
        });
        let before = own_bytes(&mut client);
        let limit = before + ROOM_BYTES;
        check(&mut client, &format!("CONFIG SET maxmemory {limit}"), "OK");
        // The replica takes nothing, and the system some MiB of it.
        while count(&mut client, "mem_not_counted_for_evict") < 6 << 20 {
            for _ in 0..10 {
                client.pipeline(&[line.as_str(); 100]);
            }
        }
        check(&mut client, "DBSIZE", &format!("(integer) {KEYS}"));
        let more = own_bytes(&mut client) - before;
        assert!(more.abs() < ROOM_BYTES, "{more} bytes are not counted");
        // From the reply on, its memory no longer counts for replicas, and is freed or not counted.
        check(&mut client, "CLIENT KILL TYPE replica", "(integer) 1");
        let left = own_bytes(&mut client) - before;
        assert_eq!(count(&mut client, "mem_clients_slaves"), 0);
        // Threads keep some of the memory that they freed, to use it again.
        assert!(left.abs() < ROOM_BYTES, "{left} bytes are left");
        check(&mut client, "CONFIG SET maxmemory 0", "OK");
        drop(slow);
    }
}

#[test]
fn writes_depend_on_replicas_where_that_is_wanted() {
    let Some(Oracle(replica)) = Oracle::start() else {
        return;
    };
    let server = Server::start(&primary().with("min-replicas-to-write", "1"));
    let mut client = server.raw();
    let refused = "(error) NOREPLICAS Not enough good replicas to write.";
    check(&mut client, "SET k 1", refused);
    follow(&replica, &server);
    eventually("writes are taken", || !client.call("SET k 1").is_error());
    assert_eq!(info(&mut client, "min_slaves_good_slaves"), "1");
    check(&mut replica.raw(), "REPLICAOF NO ONE", "OK");
    eventually("they are refused again", || {
        client.call("SET another 2").is_error()
    });
    let reply = client.call("EVAL \"return redis.call('set','k','3')\" 1 k");
    assert!(reply.show().contains("NOREPLICAS"), "{}", reply.show());
    check(&mut client, "GET k", "\"1\"");
}

#[test]
fn writers_wait_for_a_slow_replica_where_that_is_wanted() {
    let options = primary()
        .with("replica-slows-writers", "yes")
        .with("repl-timeout", "600")
        .with("client-output-buffer-limit", "replica 8mb 0 0");
    let server = Server::start(&options);
    let mut client = server.raw();
    let (mut slow, _) = Socket::synchronize(&server);
    slow.send(b"REPLCONF ACK 0\r\n");
    eventually("it is there", || {
        info(&mut client, "connected_slaves") == "1"
    });
    std::thread::sleep(Duration::from_millis(300));
    let writer = {
        let mut client = server.raw();
        std::thread::spawn(move || {
            let value = "x".repeat(100_000);
            for number in 0..400 {
                client.call(&format!("SET k{} {value}", number % 10));
            }
        })
    };
    eventually("the writer waits", || {
        let held = info(&mut client, "mem_total_replication_buffers");
        held.parse::<u64>().expect("bytes") > 4 << 20
    });
    std::thread::sleep(Duration::from_millis(300));
    assert!(!writer.is_finished());
    assert_eq!(info(&mut client, "connected_slaves"), "1");
    check(&mut client, "EXISTS k1", "(integer) 1");
    // Reading frees it.
    let mut bytes = vec![0; 1 << 20];
    while !writer.is_finished() {
        assert!(slow.0.read(&mut bytes).expect("more comes") > 0);
    }
    writer.join().expect("the writer ends");
    assert_eq!(info(&mut client, "connected_slaves"), "1");
}

#[test]
fn what_debug_replicates_only_replicas_run() {
    let Some(Oracle(replica)) = Oracle::start() else {
        return;
    };
    let server = Server::start(&primary());
    let mut client = server.raw();
    follow(&replica, &server);
    check(&mut client, "DEBUG REPLICATE SET only there", "OK");
    check(&mut client, "WAIT 1 0", "(integer) 1");
    check(&mut client, "GET only", "(nil)");
    check(&mut replica.raw(), "GET only", "\"there\"");
    let id = info(&mut client, "master_replid");
    check(&mut client, "DEBUG CHANGE-REPL-ID", "OK");
    assert_ne!(info(&mut client, "master_replid"), id);
}
