//! Full synchronization over two connections, one for the snapshot and one for the stream: in the protocols
//! of Valkey 8 and of Redis 8, from both sides, and with either connection cut.

use std::io::{BufReader, Read, Write};
use std::net::{Shutdown, TcpStream};
use std::time::Duration;

use crate::replicated::{Writer, info, settle};
use crate::replication_liars::{ID, Liar, request, snapshot};
use crate::support::{Options, Server, check, eventually};
use crate::wire::Raw;

const VALKEY: &str = "dual-channel-replication-enabled";
const REDIS: &str = "repl-rdb-channel";
const BOTH: [&str; 2] = [VALKEY, REDIS];

fn options(words: &str) -> Options {
    let options = Options::shards(8).with("repl-diskless-sync-delay", "0");
    options.with(words, "yes")
}

/// Starts a primary with so much data that a snapshot takes time.
fn slow_primary(words: &str) -> Server {
    let server = Server::start(&options(words));
    let mut client = server.raw();
    Writer::new(&server, 3).write(500);
    client.call("SELECT 0");
    client.call("DEBUG POPULATE 3000 many 100");
    client.call("CONFIG SET rdb-key-save-delay 500");
    server
}

fn begin(replica: &Server, primary: &Server) {
    let mut client = replica.raw();
    check(
        &mut client,
        &format!("REPLICAOF 127.0.0.1 {}", primary.port),
        "OK",
    );
}

/// Waits until the stream goes to a replica whose snapshot is on its way.
fn await_both(primary: &mut Raw) -> String {
    let mut seen = String::new();
    eventually("the stream goes beside the snapshot", || {
        seen = primary.call("INFO replication").body();
        seen.contains("state=bg_transfer") || seen.contains("state=send_bulk_and_stream")
    });
    seen
}

fn synced(words: &str, load: &str) {
    let primary = slow_primary(words);
    let replica = Server::start(&options(words).with("repl-diskless-load", load));
    let (mut client, mut copy) = (primary.raw(), replica.raw());
    begin(&replica, &primary);
    let seen = await_both(&mut client);
    let (state, kept, is_twice) = match words {
        VALKEY => ("bg_transfer", "replicas_repl_buffer_peak", true),
        _ => (
            "send_bulk_and_stream",
            "replica_full_sync_buffer_peak",
            false,
        ),
    };
    assert!(seen.contains(&format!("state={state},")), "{words}: {seen}");
    assert_eq!(seen.contains("type=rdb-channel"), is_twice, "{seen}");
    let list = client.call("CLIENT LIST TYPE replica").body();
    assert_eq!(list.lines().count(), 2, "{list}");
    assert_eq!(list.contains("flags=SC"), !is_twice, "{list}");
    Writer::new(&primary, 4).write(1_000);
    settle(&[&primary, &replica]);
    let peak: u64 = info(&mut copy, kept).parse().expect("a number");
    assert!(peak > 10_000, "{words} {load}: {peak}");
    assert_eq!(info(&mut client, "sync_full"), "1");
    let seen = client.call("INFO replication").body();
    assert!(
        seen.contains("connected_slaves:1\r\n") && seen.contains("state=online"),
        "{seen}"
    );
    assert!(!seen.contains("type="), "{seen}");
    check(&mut client, "WAIT 1 0", "(integer) 1");
    // The next break is none for a snapshot.
    client.call("CLIENT KILL TYPE replica");
    client.call("SET more 1");
    settle(&[&primary, &replica]);
    assert_eq!(info(&mut client, "sync_full"), "1");
}

#[test]
fn a_replica_has_all_in_the_words_of_valkey() {
    for load in ["disabled", "swapdb"] {
        synced(VALKEY, load);
    }
}

#[test]
fn a_replica_has_all_in_the_words_of_redis() {
    for load in ["disabled", "on-empty-db"] {
        synced(REDIS, load);
    }
}

#[test]
fn one_side_alone_gets_an_ordinary_synchronization() {
    for (mine, theirs) in [(VALKEY, REDIS), (REDIS, VALKEY)] {
        let (primary, replica) = (
            Server::start(&options(mine)),
            Server::start(&options(theirs)),
        );
        Writer::new(&primary, 5).write(200);
        begin(&replica, &primary);
        settle(&[&primary, &replica]);
        assert!(!replica.log().contains("second connection"));
        assert_eq!(info(&mut primary.raw(), "sync_full"), "1");
    }
    let server = Server::start(&Options::shards(1));
    for option in ["rdb-channel", "main-ch-client-id", "set-rdb-client-id"] {
        let unknown = format!("(error) ERR Unrecognized REPLCONF option: {option}");
        check(&mut server.raw(), &format!("REPLCONF {option} 1"), &unknown);
    }
    // Nothing goes straight to a socket there, so that there is nothing to send beside the stream.
    let server = Server::start(&options(VALKEY).with("repl-diskless-sync", "no"));
    let mut asking = Asking::new(&server, "dual-channel");
    assert!(asking.ask("? -1").starts_with("+FULLRESYNC "));
}

/// A simulated replica: a connection and the lines that come through it.
struct Asking {
    stream: TcpStream,
    reader: BufReader<TcpStream>,
}

impl Asking {
    fn connect(server: &Server) -> Asking {
        let stream = TcpStream::connect(("127.0.0.1", server.port)).expect("a connection");
        let _ = stream.set_read_timeout(Some(Duration::from_secs(60)));
        let reader = BufReader::new(stream.try_clone().expect("a second handle"));
        Asking { stream, reader }
    }

    fn new(server: &Server, capability: &str) -> Asking {
        let mut asking = Asking::connect(server);
        assert_eq!(
            asking.call(&format!("REPLCONF capa eof capa psync2 capa {capability}")),
            "+OK"
        );
        asking
    }

    fn call(&mut self, line: &str) -> String {
        self.stream
            .write_all(format!("{line}\r\n").as_bytes())
            .expect("sent");
        self.line()
    }

    fn ask(&mut self, position: &str) -> String {
        self.call(&format!("PSYNC {position}"))
    }

    fn line(&mut self) -> String {
        loop {
            let mut line = Vec::new();
            let mut byte = [0];
            while self.reader.read(&mut byte).expect("a byte") == 1 && byte[0] != b'\n' {
                line.push(byte[0]);
            }
            let line = String::from_utf8_lossy(&line).trim_end().to_owned();
            if !line.is_empty() {
                return line;
            }
        }
    }

    fn reads_to_the_end(&mut self) -> usize {
        let mut rest = Vec::new();
        // However it ends.
        let _ = self.reader.read_to_end(&mut rest);
        rest.len()
    }
}

/// Opens the two connections of a simulated replica; returns the stream's, the snapshot's, and the reply
/// about the snapshot.
fn both(server: &Server, words: &str) -> (Asking, Asking, String) {
    if words == REDIS {
        let mut main = Asking::new(server, "rdb-channel-repl");
        let told = main.ask("? -1");
        let client = told.strip_prefix("+RDBCHANNELSYNC ").expect("an offer");
        let mut rdb = Asking::connect(server);
        let said = format!("REPLCONF capa eof rdb-only 1 rdb-channel 1 main-ch-client-id {client}");
        assert_eq!(rdb.call(&said), "+OK");
        let told = rdb.ask("? -1");
        assert!(told.starts_with("+FULLRESYNC "), "{told}");
        return (main, rdb, told);
    }
    let mut main = Asking::new(server, "dual-channel");
    assert_eq!(main.ask("? -1"), "+DUALCHANNELSYNC");
    assert_eq!(
        main.call("PING"),
        "+PONG",
        "it is a client like others still"
    );
    let mut rdb = Asking::connect(server);
    assert_eq!(
        rdb.call("REPLCONF capa eof rdb-only 1 rdb-channel 1"),
        "+OK"
    );
    let told = rdb.call("SYNC");
    let words: Vec<&str> = told.split([':', ' ']).collect();
    let [_, offset, id, "-1", client] = words.as_slice() else {
        panic!("{told}")
    };
    assert_eq!(info(&mut server.raw(), "replicas_waiting_psync"), "1");
    assert_eq!(
        main.call(&format!("REPLCONF set-rdb-client-id {client}")),
        "+OK"
    );
    let next = offset.parse::<u64>().expect("an offset") + 1;
    let answer = main.ask(&format!("{id} {next}"));
    assert_eq!(answer, format!("+CONTINUE {id}"));
    assert_eq!(info(&mut server.raw(), "replicas_waiting_psync"), "0");
    (main, rdb, told)
}

fn await_no_snapshot(client: &mut Raw) {
    eventually("nobody follows, and no snapshot is made", || {
        info(client, "connected_slaves") == "0" && info(client, "rdb_bgsave_in_progress") == "0"
    });
}

#[test]
fn the_snapshot_ends_with_either_connection() {
    for words in BOTH {
        let server = slow_primary(words);
        let mut client = server.raw();
        let (main, mut rdb, _) = both(&server, words);
        assert!(rdb.line().starts_with("$EOF:"));
        main.stream.shutdown(Shutdown::Both).expect("shut");
        // The server ends it, and not at its end.
        assert!(rdb.reads_to_the_end() < 300_000);
        await_no_snapshot(&mut client);

        let (mut main, rdb, _) = both(&server, words);
        rdb.stream.shutdown(Shutdown::Both).expect("shut");
        eventually("the snapshot is not made on", || {
            info(&mut client, "rdb_bgsave_in_progress") == "0"
        });
        client.call("CLIENT KILL TYPE replica");
        main.reads_to_the_end();
        await_no_snapshot(&mut client);
    }
}

#[test]
fn a_replica_that_opens_no_second_connection_is_given_up() {
    let server = Server::start(&options(REDIS).with("repl-timeout", "1"));
    let mut main = Asking::new(&server, "rdb-channel-repl");
    assert!(main.ask("? -1").starts_with("+RDBCHANNELSYNC "));
    main.reads_to_the_end();
    assert!(server.log().contains("did not open its second connection"));

    // The stream after the snapshot is kept for that time, and no longer.
    let server = Server::start(&options(VALKEY).with("repl-timeout", "1"));
    let mut rdb = Asking::connect(&server);
    assert_eq!(
        rdb.call("REPLCONF capa eof rdb-only 1 rdb-channel 1"),
        "+OK"
    );
    assert!(rdb.call("SYNC").starts_with("$ENDOFF:"));
    assert!(rdb.reads_to_the_end() > 40);
    assert!(server.log().contains("did not open its second connection"));
    await_no_snapshot(&mut server.raw());
}

#[test]
fn the_stream_follows_a_snapshot_that_is_sent_before_anybody_else_runs() {
    for words in BOTH {
        let server = Server::start(&options(words).threads(1));
        let mut client = server.raw();
        for round in 0..20 {
            // The thread serves the connections again when the snapshot has arrived completely.
            let mut busy = server.raw();
            let script = "EVAL \"for i=1,1e6 do end\" 0\r\n";
            busy.send(script.repeat(40).as_bytes());
            let (mut main, mut rdb, _) = both(&server, words);
            assert!(rdb.reads_to_the_end() > 40);
            client.call("SET k v");
            let mut byte = [0];
            let count = main.reader.read(&mut byte).expect("no error");
            assert_eq!(count, 1, "{words}, round {round}: {}", server.log());
        }
    }
}

#[test]
fn a_replica_that_has_no_room_for_the_stream_says_that_it_is_there() {
    for words in BOTH {
        let primary = Server::start(&options(words).with("repl-timeout", "2"));
        let limited = options(words)
            .with("replica-full-sync-buffer-limit", "1")
            .with("key-load-delay", "2000");
        let replica = Server::start(&limited);
        primary.raw().call("DEBUG POPULATE 3000 many 10");
        begin(&replica, &primary);
        let mut copy = replica.raw();
        eventually("it loads", || info(&mut copy, "loading") == "1");
        primary.raw().call("SET k v");
        settle(&[&primary, &replica]);
        let log = primary.log();
        assert!(!log.contains("timedout replica"), "{words}: {log}");
    }
}

/// Starts a simulated primary that offers a second connection, and a server that follows it.
fn misled(words: &str, load: &str) -> (Liar, Server) {
    let liar = Liar::new();
    let server = Server::start(
        &options(words)
            .with("repl-diskless-load", load)
            .with("repl-timeout", "60"),
    );
    server.raw().call("SET mine 1");
    let line = format!("REPLICAOF 127.0.0.1 {}", liar.port);
    check(&mut server.raw(), &line, "OK");
    (liar, server)
}

fn offer(words: &str) -> &'static [u8] {
    match words {
        VALKEY => b"+DUALCHANNELSYNC\r\n",
        _ => b"+RDBCHANNELSYNC 7\r\n",
    }
}

/// Serves both connections up to the snapshot, as an honest primary does: the stream's, and the snapshot's.
fn honest(liar: &Liar, words: &str) -> (TcpStream, TcpStream) {
    let (mut main, _) = liar.serve();
    main.write_all(offer(words)).expect("sent");
    if words == REDIS {
        let (mut rdb, _) = liar.serve();
        rdb.write_all(format!("+FULLRESYNC {ID} 7\r\n").as_bytes())
            .expect("sent");
        return (main, rdb);
    }
    let (mut rdb, asked) = liar.serve();
    assert_eq!(asked, ["SYNC"]);
    rdb.write_all(format!("$ENDOFF:7 {ID} -1 12\r\n").as_bytes())
        .expect("sent");
    let mut reader = BufReader::new(main.try_clone().expect("a second handle"));
    assert_eq!(
        request(&mut reader),
        ["REPLCONF", "set-rdb-client-id", "12"]
    );
    main.write_all(b"+OK\r\n").expect("sent");
    assert_eq!(request(&mut reader), ["PSYNC", ID, "8"]);
    main.write_all(b"+CONTINUE\r\n").expect("sent");
    (main, rdb)
}

fn marked(whole: &[u8]) -> Vec<u8> {
    let mark = b"abcdefghijabcdefghijabcdefghijabcdefghij";
    [b"$EOF:", &mark[..], b"\r\n", whole, mark].concat()
}

const SET: &[u8] = b"*3\r\n$3\r\nSET\r\n$1\r\nk\r\n$1\r\nv\r\n";

#[test]
fn a_connection_that_breaks_begins_anew_and_loses_nothing() {
    let whole = marked(&snapshot());
    for words in BOTH {
        for load in ["disabled", "swapdb"] {
            let (liar, server) = misled(words, load);
            let mut client = server.raw();
            // The snapshot's connection, then the stream's, each within the snapshot.
            for cuts_main in [false, true] {
                let (main, mut rdb) = honest(&liar, words);
                rdb.write_all(&whole[..whole.len() / 2]).expect("sent");
                if cuts_main {
                    drop(main);
                    let mut rest = Vec::new();
                    let _ = rdb.read_to_end(&mut rest);
                }
            }
            let (mut main, mut rdb) = honest(&liar, words);
            check(&mut client, "GET mine", "\"1\"");
            main.write_all(&SET[..10]).expect("sent");
            for piece in whole.chunks(997) {
                rdb.write_all(piece).expect("sent");
            }
            main.write_all(&SET[10..]).expect("sent");
            eventually("it is applied", || client.call("GET k").show() == "\"v\"");
            check(&mut client, "EXISTS mine", "(integer) 0");
            check(&mut client, "GET told", "\"1\"");
            let offset = (7 + SET.len()).to_string();
            assert_eq!(info(&mut client, "slave_repl_offset"), offset);
            // The stream continues after a break as usual.
            drop(main);
            let (_, asked) = liar.serve();
            assert_eq!(asked[1..], [ID.to_owned(), (8 + SET.len()).to_string()]);
        }
    }
}

#[test]
fn what_is_no_second_connection_falls_back_to_one() {
    for words in BOTH {
        let (liar, server) = misled(words, "disabled");
        let mut client = server.raw();
        for lie in ["-ERR no\r\n", "+FULLRESYNC x 1\r\n", "$ENDOFF:x\r\n", ""] {
            let (mut main, _) = liar.serve();
            assert!(liar.was_offered(), "{lie}");
            main.write_all(offer(words)).expect("sent");
            let (mut rdb, _) = liar.serve();
            rdb.write_all(lie.as_bytes()).expect("sent");
            drop(rdb);
            // The next link has one connection.
            let (mut main, _) = liar.serve();
            assert!(!liar.was_offered(), "{lie}");
            // The protocol was not offered, so that this is nonsense.
            main.write_all(offer(words)).expect("sent");
            check(&mut client, "GET mine", "\"1\"");
        }
        assert!(
            server
                .log()
                .contains("Can't open the second connection to the master")
        );
    }
}

#[test]
fn what_waits_for_the_snapshot_has_a_limit_and_the_rest_stays_with_the_primary() {
    let whole = marked(&snapshot());
    for words in BOTH {
        let (liar, server) = misled(words, "disabled");
        let mut client = server.raw();
        check(
            &mut client,
            "CONFIG SET replica-full-sync-buffer-limit 100kb",
            "OK",
        );
        let (mut main, mut rdb) = honest(&liar, words);
        let value = "x".repeat(1000);
        let one = format!("*3\r\n$6\r\nAPPEND\r\n$1\r\nk\r\n$1000\r\n{value}\r\n");
        let count = 20_000;
        let stream = one.repeat(count).into_bytes();
        let total = stream.len();
        let writing = std::thread::spawn(move || {
            main.write_all(&stream).expect("sent");
            main
        });
        eventually("the limit is reached", || {
            server.log().contains("which is the limit")
        });
        let peak = match words {
            VALKEY => "replicas_repl_buffer_peak",
            _ => "replica_full_sync_buffer_peak",
        };
        let peak: usize = info(&mut client, peak).parse().expect("a number");
        assert!((100_000..1_000_000).contains(&peak), "{peak}");
        rdb.write_all(&whole).expect("sent");
        let _main = writing.join().expect("written");
        let end = (7 + total).to_string();
        eventually("all is applied", || {
            info(&mut client, "slave_repl_offset") == end
        });
        check(
            &mut client,
            "STRLEN k",
            &format!("(integer) {}", count * 1000),
        );
    }
}
