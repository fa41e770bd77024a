//! Data that the server loads at its start: snapshots of redis-server and its own, LOADING meanwhile, damaged
//! files, and the program that checks them.

use std::path::Path;
use std::process::{Command, Output};

use crate::dump::{dump, makers, portrait};
use crate::support::{self, Options, Oracle, Server, eventually, free_port, is_stand_in};
use crate::wire::{Raw, Value};

fn folder() -> tempfile::TempDir {
    tempfile::tempdir().expect("a temporary folder")
}

/// Starts a server on the files in a folder.
fn start_on(dir: &Path, options: Options) -> Server {
    let options = options.with("dir", &dir.display().to_string());
    let server = Server::start(&options);
    let mut client = server.raw();
    while client.call("PING").show().contains("LOADING") {
        std::thread::sleep(std::time::Duration::from_millis(2));
    }
    server
}

/// Returns a snapshot of strings.
fn strings(count: usize, value: &str) -> Vec<u8> {
    let mut file = b"REDIS0010".to_vec();
    for number in 0..count {
        let key = format!("key:{number}");
        file.push(0);
        for text in [key.as_str(), value] {
            file.extend_from_slice(&[0x80]);
            file.extend_from_slice(&(text.len() as u32).to_be_bytes());
            file.extend_from_slice(text.as_bytes());
        }
    }
    file.push(0xff);
    // No checksum.
    file.extend_from_slice(&[0; 8]);
    file
}

fn keys(client: &mut Raw) -> Vec<String> {
    let reply = client.call("KEYS *");
    let mut keys: Vec<String> = reply.items().iter().map(Value::body).collect();
    keys.sort();
    keys
}

#[test]
fn what_redis_server_saved_is_there_and_what_we_dump_is_there_for_it() {
    let Some(oracle) = Oracle::start() else {
        return;
    };
    let mut theirs = oracle.0.raw();
    for line in makers() {
        theirs.call(&line);
    }
    theirs.call("SET volatile x PXAT 4000000000000");
    theirs.call(
        "FUNCTION LOAD \"#!lua name=lib\\nredis.register_function('f', function() return 7 end)\"",
    );
    theirs.call("SELECT 3");
    theirs.call("RPUSH elsewhere 1 2 3");
    theirs.call("SELECT 0");
    let digest = theirs.call("DEBUG DIGEST").text();
    assert_ne!(digest, "0".repeat(40));
    for compression in ["yes", "no"] {
        theirs.call(&format!("CONFIG SET rdbcompression {compression}"));
        assert_eq!(theirs.call("SAVE").text(), "OK");
        for (shards, threads) in [(1, 1), (8, 2)] {
            let ours = start_on(&oracle.0.dir(), Options::shards(shards).threads(threads));
            let mut client = ours.raw();
            assert_eq!(client.call("DEBUG DIGEST").text(), digest);
            assert_eq!(keys(&mut client), keys(&mut theirs));
            for key in keys(&mut theirs) {
                assert_eq!(
                    portrait(&mut client, &key),
                    portrait(&mut theirs, &key),
                    "{key}"
                );
            }
            assert_eq!(client.call("FCALL f 0").integer(), 7);
            assert_eq!(
                client.call("PEXPIRETIME volatile").integer(),
                4_000_000_000_000
            );
        }
    }
    // And the reverse, from a file of payloads made here.
    let ours = start_on(&oracle.0.dir(), Options::shards(4));
    let mut client = ours.raw();
    let mut file = b"REDIS0010".to_vec();
    for db in [0, 3] {
        client.call(&format!("SELECT {db}"));
        file.extend_from_slice(&[0xfe, db]);
        for key in keys(&mut client) {
            let payload = dump(&mut client, &key);
            let value = &payload[..payload.len() - 10];
            let at_ms = client.call(&format!("PEXPIRETIME {key}")).integer();
            if at_ms > 0 {
                file.push(0xfc);
                file.extend_from_slice(&at_ms.to_le_bytes());
            }
            file.extend_from_slice(&[value[0], key.len() as u8]);
            file.extend_from_slice(key.as_bytes());
            file.extend_from_slice(&value[1..]);
        }
    }
    file.push(0xff);
    file.extend_from_slice(&[0; 8]);
    std::fs::write(oracle.0.dir().join("dump.rdb"), file).expect("a file");
    assert_eq!(theirs.call("DEBUG RELOAD NOSAVE").text(), "OK");
    assert_eq!(theirs.call("DEBUG DIGEST").text(), digest);
}

#[test]
fn clients_hear_loading_until_all_is_there() {
    if is_stand_in() {
        return;
    }
    let dir = folder();
    std::fs::write(dir.path().join("dump.rdb"), strings(1_000, "value")).expect("a file");
    let metrics = free_port();
    let options = Options::shards(4)
        .threads(2)
        .with("dir", &dir.path().display().to_string())
        .with("key-load-delay", "1000000")
        .with("metrics-port", &metrics.to_string());
    let server = Server::start(&options);
    let mut client = server.raw();
    let loading = "-LOADING Redis is loading the dataset in memory";
    for line in [
        "GET key:1",
        "SET a b",
        "PING",
        "DBSIZE",
        "EVAL return 0",
        "CONFIG SET dir /",
    ] {
        let reply = client.call(line).show();
        assert!(reply.contains(&loading[1..]), "{line}: {reply}");
    }
    // Commands that are allowed meanwhile; others are refused when they are queued.
    assert_eq!(client.call("MULTI").text(), "OK");
    assert!(client.call("GET key:1").show().contains("LOADING"));
    assert!(client.call("EXEC").show().contains("EXECABORT"));
    assert_eq!(client.call("SELECT 0").text(), "OK");
    // Clients are refused from the first moment on, also before the file is opened.
    eventually("the file is being read", || {
        let info = client.call("INFO persistence").body();
        !info.contains("loading_start_time:0\r")
    });
    let info = client.call("INFO persistence").body();
    let total = std::fs::metadata(dir.path().join("dump.rdb"))
        .expect("a file")
        .len();
    for field in [
        "loading:1\r\n".to_owned(),
        format!("loading_total_bytes:{total}\r\n"),
        "loading_loaded_perc:".to_owned(),
        "loading_eta_seconds:".to_owned(),
        "loading_start_time:".to_owned(),
    ] {
        assert!(info.contains(&field), "{field}: {info}");
    }
    assert!(get(metrics, "/health").starts_with("HTTP/1.1 200"));
    assert!(get(metrics, "/ready").starts_with("HTTP/1.1 503"));
    assert!(get(metrics, "/metrics").contains("redis_loading_dump_file 1"));
    assert!(!server.log().contains("Ready to accept"));
    // From now on it takes no time.
    assert_eq!(client.call("CONFIG SET key-load-delay 0").text(), "OK");
    while client.call("PING").show().contains("LOADING") {
        std::thread::sleep(std::time::Duration::from_millis(2));
    }
    assert_eq!(client.call("DBSIZE").integer(), 1_000);
    let info = client.call("INFO persistence").body();
    assert!(info.contains("loading:0\r\n"), "{info}");
    assert!(
        info.contains("rdb_last_load_keys_loaded:1000\r\n"),
        "{info}"
    );
    assert!(!info.contains("loading_eta_seconds"), "{info}");
    let log = server.log();
    for line in [
        "Done loading RDB, keys loaded: 1000, keys expired: 0.",
        "DB loaded from disk: ",
        "Ready to accept connections",
    ] {
        assert!(log.contains(line), "{line}: {log}");
    }
    assert!(get(metrics, "/ready").starts_with("HTTP/1.1 200"));
}

#[test]
fn a_server_that_loads_follows_its_configuration_and_is_stopped_at_once() {
    if is_stand_in() {
        return;
    }
    for appendonly in ["no", "yes"] {
        let folder = folder();
        let (dir, snapshot) = (folder.path(), strings(1_000, "value"));
        match appendonly {
            "no" => std::fs::write(dir.join("dump.rdb"), snapshot).expect("a file"),
            _ => append_only_file(dir, "base.rdb seq 1 type b", &snapshot),
        }
        // It takes a quarter of an hour.
        let options = Options::shards(1)
            .with("dir", &dir.display().to_string())
            .with("appendonly", appendonly)
            .with("key-load-delay", "1000000");
        let mut server = Server::start(&options);
        let mut client = server.raw();
        for setting in ["appendfsync always", "aof-disable-auto-gc no"] {
            support::check(&mut client, &format!("CONFIG SET {setting}"), "OK");
        }
        let refused = "(error) LOADING Redis is loading the dataset in memory";
        support::check(&mut client, "CONFIG SET appendonly no", refused);
        client.send(b"SHUTDOWN NOSAVE\r\n");
        assert_eq!(server.wait_for_exit(), Some(0));
    }
}

/// Writes an append-only directory of one file; `line` is the end of the file's line in the manifest.
fn append_only_file(dir: &Path, line: &str, bytes: &[u8]) {
    let dir = dir.join("appendonlydir");
    std::fs::create_dir(&dir).expect("made");
    let manifest = format!("file appendonly.aof.1.{line}\n");
    std::fs::write(dir.join("appendonly.aof.manifest"), manifest).expect("written");
    let (name, _) = line.split_once(' ').expect("a name first");
    std::fs::write(dir.join(format!("appendonly.aof.1.{name}")), bytes).expect("written");
}

/// Returns a command as a file and a client write it.
fn command(words: &[&str]) -> String {
    let words = words
        .iter()
        .map(|word| format!("${}\r\n{word}\r\n", word.len()));
    format!("*{}\r\n{}", words.len(), words.collect::<String>())
}

#[test]
fn scripts_of_the_file_run_whatever_would_refuse_those_of_clients() {
    let folder = folder();
    let commands = [
        command(&["EVAL", "redis.call('SET', KEYS[1], '100')", "1", "k"]),
        command(&["EVAL", "return redis.call('INCR', KEYS[1])", "1", "k"]),
        command(&[
            "EVAL",
            "#!lua\nreturn redis.call('INCR', KEYS[1])",
            "1",
            "k",
        ]),
    ];
    let commands = commands.concat();
    append_only_file(folder.path(), "incr.aof seq 1 type i", commands.as_bytes());
    let options = Options::shards(4)
        .with("appendonly", "yes")
        .with("replicaof", "127.0.0.1 1")
        .with("min-replicas-to-write", "1");
    for stale in ["yes", "no"] {
        let options = options.clone().with("replica-serve-stale-data", stale);
        let server = start_on(folder.path(), options);
        let mut client = server.raw();
        assert!(client.call("SET k mine").is_error());
        eventually("it has loaded", || {
            client.call("REPLICAOF NO ONE").show() == "OK"
        });
        assert_eq!(client.call("GET k").show(), "\"102\"", "{stale}");
    }
}

fn get(port: u16, path: &str) -> String {
    use std::io::{Read, Write};
    let mut stream = std::net::TcpStream::connect(("127.0.0.1", port)).expect("a connection");
    let request = format!("GET {path} HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n");
    stream.write_all(request.as_bytes()).expect("sent");
    let mut reply = String::new();
    stream.read_to_string(&mut reply).expect("a reply");
    reply
}

/// Runs the program on a folder until it ends by itself.
fn run_on(dir: &Path) -> Output {
    support::command()
        .args(["--metrics-port", "0", "--port", &free_port().to_string()])
        .arg("--dir")
        .arg(dir)
        .output()
        .expect("it runs")
}

fn check(file: &Path) -> (bool, String) {
    let output = support::command()
        .arg("check-rdb")
        .arg(file)
        .output()
        .expect("it runs");
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    (output.status.success(), text)
}

#[test]
fn a_broken_file_ends_the_start_with_its_reason() {
    if is_stand_in() {
        return;
    }
    let good = strings(10, "value");
    let cut = good[..good.len() / 2].to_vec();
    let mut summed = good.clone();
    let last = summed.len() - 1;
    summed[last] = 1;
    let mut opcode = good.clone();
    opcode[9] = 99;
    let internal = "Internal error in RDB reading offset";
    let ends = "Terminating server after rdb file reading failure.";
    for (bytes, lines) in [
        (cut, vec![internal, "Unexpected EOF", "Short read", ends]),
        (
            summed,
            vec![internal, "RDB CRC error", "Wrong RDB checksum", ends],
        ),
        (
            opcode,
            vec![internal, "Unknown RDB opcode or value type 99", ends],
        ),
        (
            b"VALKEY099abc".to_vec(),
            vec!["Can't handle RDB format version 99 of Valkey"],
        ),
        (
            b"REDIS0099abc".to_vec(),
            vec!["Can't handle RDB format version 99"],
        ),
        (b"PK\x03\x04 something".to_vec(), vec!["Wrong signature"]),
    ] {
        let dir = folder();
        let file = dir.path().join("dump.rdb");
        std::fs::write(&file, &bytes).expect("a file");
        let output = run_on(dir.path());
        let log = String::from_utf8_lossy(&output.stdout);
        assert_eq!(output.status.code(), Some(1), "{log}");
        for line in lines
            .iter()
            .chain(&["Fatal error loading the DB, check server logs. Exiting."])
        {
            assert!(log.contains(line), "{line}: {log}");
        }
        let (is_good, text) = check(&file);
        assert!(
            !is_good && text.contains("--- RDB ERROR DETECTED ---"),
            "{text}"
        );
    }
    let dir = folder();
    let file = dir.path().join("dump.rdb");
    std::fs::write(&file, &good).expect("a file");
    let (is_good, text) = check(&file);
    assert!(
        is_good && text.contains("\\o/ RDB looks OK! \\o/"),
        "{text}"
    );
    assert!(text.contains("[info] 10 keys read"), "{text}");
    let link = dir.path().join("redis-check-rdb");
    std::os::unix::fs::symlink(support::basalt(), &link).expect("a link");
    let mut command = Command::new(&link);
    let output = command.env_remove("BASALT_BINARY").arg(&file).output();
    let output = output.expect("it runs");
    assert!(output.status.success());
    assert!(!check(&dir.path().join("absent")).0);
}

/// Names in a folder that begin with this.
fn named(dir: &Path, start: &str) -> Vec<String> {
    let entries = std::fs::read_dir(dir).expect("a folder");
    let names = entries.filter_map(|entry| entry.ok()?.file_name().into_string().ok());
    let mut names: Vec<String> = names.filter(|name| name.starts_with(start)).collect();
    names.sort();
    names
}

#[test]
fn a_snapshot_that_is_put_there_is_restored_into_an_append_only_file_that_is_not() {
    if is_stand_in() {
        return;
    }
    let dir = folder();
    let dump = dir.path().join("dump.rdb");
    let backup = strings(1_000, "value");
    std::fs::write(&dump, &backup).expect("a file");
    let options = || {
        Options::shards(4)
            .with("appendonly", "yes")
            .with("save", "100000 1000000")
    };
    let mut server = start_on(dir.path(), options());
    let mut client = server.raw();
    assert_eq!(client.call("DBSIZE").integer(), 1_000);
    assert!(
        server
            .log()
            .contains("copied as the base of a new append only file")
    );
    // Nothing but the log has it from now on.
    std::fs::remove_file(&dump).expect("a file");
    client.call("SET later x");
    let synced = client.call("WAITAOF 1 0 0");
    assert_eq!(synced.items()[0].integer(), 1);
    server.signal("KILL");
    let _ = server.wait_for_exit();
    let mut server = start_on(dir.path(), options());
    assert_eq!(server.raw().call("DBSIZE").integer(), 1_001);
    server.signal("TERM");
    assert_eq!(server.wait_for_exit(), Some(0));
    assert!(std::fs::metadata(&dump).expect("it was saved").len() > 10_000);
}

#[test]
fn a_snapshot_that_is_not_loaded_and_was_not_saved_there_is_kept() {
    if is_stand_in() {
        return;
    }
    let dir = folder();
    let dump = dir.path().join("dump.rdb");
    let options = || {
        Options::shards(4)
            .with("appendonly", "yes")
            .with("save", "100000 1000000")
    };
    let end = |mut server: Server| {
        server.signal("TERM");
        assert_eq!(server.wait_for_exit(), Some(0));
    };
    let server = start_on(dir.path(), options());
    server.raw().call("SET mine 1");
    end(server);
    // A snapshot that the server saved itself is not kept, however often it starts.
    end(start_on(dir.path(), options()));
    assert_eq!(named(dir.path(), "dump.rdb"), ["dump.rdb"]);
    let backup = strings(1_000, "value");
    std::fs::write(&dump, &backup).expect("a file");
    let server = start_on(dir.path(), options());
    assert_eq!(server.raw().call("DBSIZE").integer(), 1);
    end(server);
    let names = named(dir.path(), "dump.rdb");
    assert_eq!(names.len(), 2, "{names:?}");
    assert!(names[1].ends_with(".bak"), "{names:?}");
    let kept = std::fs::read(dir.path().join(&names[1])).expect("a file");
    assert!(kept == backup, "byte for byte");
}

#[test]
fn what_a_file_says_is_shown_by_the_checks_and_not_done_to_the_terminal() {
    if is_stand_in() {
        return;
    }
    let dir = folder();
    let evil = b"REDIS0011\xfa\x05redis\x0a\x1b]0;PWN\x07\n\xff";
    let manifest = b"file \x1b]0;PWN\x07 seq 1 type i\n";
    for (name, tool, bytes) in [
        ("a.rdb", "check-rdb", &evil[..]),
        ("a.aof", "check-aof", &evil[..]),
        ("a.manifest", "check-aof", &manifest[..]),
    ] {
        let path = dir.path().join(name);
        std::fs::write(&path, bytes).expect("a file");
        let output = support::command().arg(tool).arg(&path).output();
        let output = output.expect("the tool");
        let all = [output.stdout, output.stderr].concat();
        let text = String::from_utf8(all).expect("a text");
        assert!(text.lines().count() > 1, "{tool} {name}: {text}");
        let raw = |each: char| each.is_control() && each != '\n' && each != '\r';
        assert!(!text.contains(raw), "{tool} {name}: {text:?}");
    }
}
