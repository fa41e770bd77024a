//! Primaries that send wrong data, truncate it or disconnect: the link ends with a line in the log, the
//! earlier data stay, and the replica goes on.

use std::cell::Cell;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::time::Duration;

use crate::replicated::{Writer, info};
use crate::support::{Options, Oracle, Server, check, eventually};
use crate::wire::{encode, split};

pub(crate) const ID: &str = "0123456789012345678901234567890123456789";

/// A primary that answers correctly until it is asked for the stream, and then sends wrong data.
pub(crate) struct Liar {
    listener: TcpListener,
    pub(crate) port: u16,
    /// The replica whose link was served last offers to take the snapshot by a second connection.
    offers: Cell<bool>,
}

impl Liar {
    pub(crate) fn new() -> Liar {
        let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
        let port = listener.local_addr().expect("an address").port();
        Liar {
            listener,
            port,
            offers: Cell::new(false),
        }
    }

    /// Whether a second connection for the snapshot was offered by the link that was served last.
    pub(crate) fn was_offered(&self) -> bool {
        self.offers.get()
    }

    /// Serves the next link up to PSYNC or SYNC, whose words are answered.
    pub(crate) fn serve(&self) -> (TcpStream, Vec<String>) {
        let (mut stream, _) = self.listener.accept().expect("a link");
        let _ = stream.set_read_timeout(Some(Duration::from_secs(60)));
        let mut reader = BufReader::new(stream.try_clone().expect("a second handle"));
        loop {
            let words = request(&mut reader);
            match words.first().map(String::as_str) {
                Some("PSYNC" | "SYNC") => return (stream, words),
                Some("PING") => stream.write_all(b"+PONG\r\n").expect("sent"),
                Some(_) => {
                    let is_offer =
                        |word: &String| word == "dual-channel" || word == "rdb-channel-repl";
                    if words.iter().any(|word| word == "psync2") {
                        self.offers.set(words.iter().any(is_offer));
                    }
                    stream.write_all(b"+OK\r\n").expect("sent");
                }
                None => {
                    // The link broke early; the next one comes.
                    let (next, _) = self.listener.accept().expect("a link");
                    stream = next;
                    reader = BufReader::new(stream.try_clone().expect("a second handle"));
                }
            }
        }
    }
}

pub(crate) fn request(reader: &mut impl BufRead) -> Vec<String> {
    let mut line = String::new();
    if reader.read_line(&mut line).unwrap_or(0) == 0 {
        return Vec::new();
    }
    let count: usize = line
        .trim_start_matches('*')
        .trim()
        .parse()
        .expect("a count");
    let mut words = Vec::new();
    for _ in 0..count {
        line.clear();
        reader.read_line(&mut line).expect("a length");
        let len: usize = line
            .trim_start_matches('$')
            .trim()
            .parse()
            .expect("a length");
        let mut word = vec![0; len + 2];
        reader.read_exact(&mut word).expect("a word");
        words.push(String::from_utf8_lossy(&word[..len]).into_owned());
    }
    words
}

/// Returns the snapshot of a server with some data.
pub(crate) fn snapshot() -> Vec<u8> {
    let server = Server::start(&Options::shards(4));
    Writer::new(&server, 9).write(300);
    let mut client = server.raw();
    client.call("SELECT 0");
    client.call("SET told 1");
    check(&mut client, "SAVE", "OK");
    std::fs::read(server.dir().join("dump.rdb")).expect("a snapshot")
}

fn replica(load: &str) -> Server {
    let server = Server::start(&Options::shards(8).with("repl-diskless-load", load));
    server.raw().call("SET mine 1");
    server
}

fn full(offset: &str) -> Vec<u8> {
    format!("+FULLRESYNC {ID} {offset}\r\n").into_bytes()
}

/// Returns a full synchronization as an honest primary sends it, its length first.
fn full_sync() -> Vec<u8> {
    let whole = snapshot();
    let length = format!("${}\r\n", whole.len()).into_bytes();
    [full("0"), length, whole].concat()
}

/// Starts a faulty primary, and a server that is to follow it.
fn misled() -> (Liar, Server) {
    let (liar, server) = (Liar::new(), replica("disabled"));
    server
        .raw()
        .call(&format!("REPLICAOF 127.0.0.1 {}", liar.port));
    (liar, server)
}

#[test]
fn lies_end_the_link_and_the_data_of_before_stay() {
    let whole = snapshot();
    let counted = |len: usize| format!("${len}\r\n").into_bytes();
    let mark = b"abcdefghijabcdefghijabcdefghijabcdefghij";
    let mut torn = whole.clone();
    let middle = torn.len() / 2;
    torn[middle] ^= 0x55;
    let lies: Vec<(&str, Vec<u8>)> = vec![
        ("nothing", Vec::new()),
        ("no answer to PSYNC", b"hello\r\n".to_vec()),
        ("an id that is none", b"+FULLRESYNC x 1\r\n".to_vec()),
        ("a negative offset", full("-5")),
        ("a stream that was not asked for", b"+CONTINUE\r\n".to_vec()),
        ("a line without an end", vec![b'+'; 100_000]),
        ("no snapshot", [full("1"), b"+OK\r\n".to_vec()].concat()),
        ("an error", [full("1"), b"-ERR no\r\n".to_vec()].concat()),
        (
            "a length that is none",
            [full("1"), b"$-7\r\n".to_vec()].concat(),
        ),
        (
            "a huge length",
            [
                full("1"),
                b"$18446744073709551615\r\n".to_vec(),
                whole.clone(),
            ]
            .concat(),
        ),
        (
            "half a snapshot",
            [
                full("1"),
                counted(whole.len()),
                whole[..whole.len() / 2].to_vec(),
            ]
            .concat(),
        ),
        (
            "a length that is too short",
            [full("1"), counted(whole.len() / 2), whole.clone()].concat(),
        ),
        (
            "a broken snapshot",
            [full("1"), counted(torn.len()), torn.clone()].concat(),
        ),
        (
            "no snapshot at all",
            [full("1"), counted(9), b"GARBAGE!!".to_vec()].concat(),
        ),
        (
            "half a mark",
            [
                full("1"),
                b"$EOF:".to_vec(),
                mark.to_vec(),
                b"\r\n".to_vec(),
                whole.clone(),
                mark[..39].to_vec(),
            ]
            .concat(),
        ),
        (
            "a short mark",
            [full("1"), b"$EOF:abc\r\n".to_vec(), whole.clone()].concat(),
        ),
    ];
    for load in ["disabled", "swapdb"] {
        let liar = Liar::new();
        let server = replica(load);
        let mut client = server.raw();
        check(
            &mut client,
            &format!("REPLICAOF 127.0.0.1 {}", liar.port),
            "OK",
        );
        let mut last = "the start";
        for (name, lie) in lies.iter().chain([&("the end", Vec::new())]) {
            // The replica tries again when it is through with the lie before.
            let (mut link, words) = liar.serve();
            assert_eq!(client.call("GET mine").show(), "\"1\"", "{load}: {last}");
            assert_eq!(
                client.call("DBSIZE").show(),
                "(integer) 1",
                "{load}: {last}"
            );
            assert_eq!(words[1..], ["?", "-1"], "{load}: {last}");
            let _ = link.write_all(lie);
            last = name;
        }
        assert_eq!(info(&mut client, "loading"), "0");
        assert_eq!(info(&mut client, "async_loading"), "0");
        let files = std::fs::read_dir(server.dir()).expect("a folder");
        let left: Vec<_> = files
            .filter_map(|file| file.ok()?.file_name().into_string().ok())
            .filter(|name| name.starts_with("temp-"))
            .collect();
        assert!(left.is_empty(), "{left:?}");
    }
}

#[test]
fn a_snapshot_may_come_byte_by_byte_and_by_every_way() {
    let whole = snapshot();
    let mark = b"abcdefghijabcdefghijabcdefghijabcdefghij";
    let marked = [b"$EOF:", &mark[..], b"\r\n", &whole, mark].concat();
    let counted = [format!("${}\r\n", whole.len()).as_bytes(), &whole].concat();
    for load in ["disabled", "swapdb", "on-empty-db", "flush-before-load"] {
        for body in [&marked, &counted] {
            let liar = Liar::new();
            let server = replica(load);
            let mut client = server.raw();
            if load == "on-empty-db" {
                client.call("FLUSHALL");
            }
            client.call(&format!("REPLICAOF 127.0.0.1 {}", liar.port));
            let (mut link, _) = liar.serve();
            let _ = link.set_nodelay(true);
            link.write_all(&full("77")).expect("sent");
            link.write_all(b"\n\n\n").expect("sent");
            for piece in body.chunks(97) {
                link.write_all(piece).expect("sent");
            }
            for byte in b"*3\r\n$3\r\nSET\r\n$1\r\nk\r\n$1\r\nv\r\n" {
                link.write_all(&[*byte]).expect("sent");
            }
            eventually("it is applied", || client.call("GET k").show() == "\"v\"");
            assert_eq!(client.call("GET told").show(), "\"1\"", "{load}");
            check(&mut client, "EXISTS mine", "(integer) 0");
            // The figure follows the data.
            eventually("the offset is known", || {
                info(&mut client, "slave_repl_offset") == "104"
            });
        }
    }
}

#[test]
fn what_is_no_command_ends_the_link_and_an_unknown_one_does_not() {
    let body = full_sync();
    let (liar, server) = misled();
    let mut client = server.raw();
    for stream in [
        &b"*1\r\n$x\r\n"[..],
        b"*99999999999\r\n",
        b"*2\r\n$3\r\nGET\r\n+x\r\n",
    ] {
        let (mut link, words) = liar.serve();
        assert_eq!(words[1], "?", "nothing goes on behind nonsense");
        link.write_all(&body).expect("sent");
        link.write_all(stream).expect("sent");
        let mut rest = Vec::new();
        let _ = link.read_to_end(&mut rest);
    }
    let (mut link, _) = liar.serve();
    link.write_all(&body).expect("sent");
    let stream = b"*2\r\n$7\r\nNONESUC\r\n$1\r\nx\r\n*2\r\n$3\r\nSET\r\n$1\r\nk\r\n*3\r\n$4\r\nINCR\r\n$4\r\ntold\r\n$1\r\n1\r\n\
        *3\r\n$5\r\nLPUSH\r\n$4\r\ntold\r\n$1\r\n1\r\n*3\r\n$3\r\nSET\r\n$1\r\nk\r\n$1\r\nv\r\n";
    link.write_all(stream).expect("sent");
    eventually("it is applied", || client.call("GET k").show() == "\"v\"");
    assert_eq!(
        info(&mut client, "slave_repl_offset"),
        stream.len().to_string()
    );
    assert!(
        server
            .log()
            .contains("This replica is sending an error to its master")
    );
    check(&mut client, "GET told", "\"1\"");
}

#[test]
fn what_would_wait_or_end_the_server_ends_the_link_and_its_name_is_in_the_log() {
    let body = full_sync();
    let (liar, server) = (Liar::new(), replica("disabled"));
    let mut client = server.raw();
    let mut follow = || {
        check(&mut client, "REPLICAOF NO ONE", "OK");
        check(
            &mut client,
            &format!("REPLICAOF 127.0.0.1 {}", liar.port),
            "OK",
        );
        let (mut link, _) = liar.serve();
        link.write_all(&body).expect("sent");
        link
    };
    for line in [
        "BLPOP none 0",
        "BLMOVE none told LEFT LEFT 0",
        "XREAD BLOCK 0 STREAMS none $",
        "PSYNC ? -1",
        "SYNC",
        "QUIT",
        "SHUTDOWN NOSAVE",
    ] {
        let mut link = follow();
        link.write_all(&encode(&split(line))).expect("sent");
        let mut rest = Vec::new();
        let ended = link.read_to_end(&mut rest);
        let name = line.split(' ').next().unwrap_or(line);
        let told = format!("The master sent an unexpected command: '{name}'");
        eventually(&format!("{line} ends the link ({ended:?})"), || {
            server.log().contains(&told)
        });
    }
    let _link = follow();
    let mut client = server.raw();
    eventually("it follows", || {
        info(&mut client, "master_link_status") == "up"
    });
    check(&mut client, "GET told", "\"1\"");
}

#[test]
fn a_transaction_is_never_seen_in_part_and_begins_anew_after_a_cut() {
    let body = full_sync();
    let (liar, server) = misled();
    let mut client = server.raw();
    let first = b"*2\r\n$4\r\nINCR\r\n$1\r\na\r\n";
    let unit = b"*1\r\n$5\r\nMULTI\r\n*2\r\n$4\r\nINCR\r\n$1\r\na\r\n*2\r\n$4\r\nINCR\r\n$1\r\nb\r\n*1\r\n$4\r\nEXEC\r\n";
    let stream = [&first[..], unit].concat();
    let (mut link, _) = liar.serve();
    link.write_all(&body).expect("sent");
    let mut sent = 0;
    for cut in 1..stream.len() {
        link.write_all(&stream[sent..cut]).expect("sent");
        drop(link);
        let (next, words) = liar.serve();
        assert_eq!(words[1], ID);
        let wanted: usize = words[2].parse().expect("an offset");
        sent = wanted - 1;
        let whole_so_far = if cut < first.len() { 0 } else { first.len() };
        assert_eq!(sent, whole_so_far, "cut at {cut}");
        check(&mut client, "EXISTS b", "(integer) 0");
        link = next;
        link.write_all(b"+CONTINUE\r\n").expect("sent");
    }
    link.write_all(&stream[sent..]).expect("sent");
    eventually("it is applied", || client.call("GET b").show() == "\"1\"");
    check(&mut client, "GET a", "\"2\"");
    assert_eq!(
        info(&mut client, "slave_repl_offset"),
        stream.len().to_string()
    );
}

#[test]
fn the_data_of_before_are_served_while_others_are_loaded_aside() {
    let Some(Oracle(primary)) = Oracle::start() else {
        return;
    };
    let options = Options::shards(8)
        .threads(2)
        .with("repl-diskless-load", "swapdb");
    let replica = Server::start(&options);
    primary
        .raw()
        .call("CONFIG SET repl-diskless-sync-delay 0 rdb-key-save-delay 0");
    Writer::new(&primary, 11).write(500);
    crate::replicated::follow(&replica, &primary);
    let mut client = replica.raw();
    // It comes back when the stream has gone on too far to be caught up with, under one id.
    replica.signal("STOP");
    let mut control = primary.raw();
    control.call("CONFIG SET repl-backlog-size 16384 rdb-key-save-delay 2000");
    control.call("CLIENT KILL TYPE slave");
    control.call("SET seen 1");
    Writer::new(&primary, 12).write(3000);
    // Enough that it comes in parts, and takes its time.
    control.call("CONFIG SET rdbcompression no");
    control.call("DEBUG POPULATE 300 large 10000");
    replica.signal("CONT");
    let (mut was_aside, mut was_refused) = (false, false);
    eventually("all is loaded", || {
        was_aside |= info(&mut client, "async_loading") == "1" && !client.call("DBSIZE").is_error();
        let set = client.call("CONFIG SET repl-diskless-load swapdb").show();
        was_refused |= set.contains("LOADING");
        info(&mut client, "master_link_status") == "up"
    });
    control.call("CONFIG SET rdb-key-save-delay 0");
    crate::replicated::settle(&[&primary, &replica]);
    assert!(was_aside, "clients were served while it was loaded");
    assert!(was_refused, "what may not change meanwhile did not");
}
