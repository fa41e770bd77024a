//! Compressed snapshots over sockets: files under `rdbcompression lz4` and `zstd` are loaded again, and replicas get a
//! compressed snapshot only if they can read one.

use std::fs;
use std::io::{BufRead, BufReader, Read};

use crate::replicated::{Writer, follow, settle};
use crate::support::{self, Options, Oracle, Server, check, eventually, info_number, start_loaded};
use crate::wire::{Raw, encode};

const CODECS: [(&str, u8); 2] = [("lz4", 1), ("zstd", 2)];

/// Writes keys of all types, more than a block of a frame has.
fn fill(server: &Server, seed: u64) {
    Writer::new(server, seed).write(2_000);
    let lines: Vec<String> = (0..3_000)
        .map(|number| {
            format!(
                "SET long:{number} {}",
                "compressible".repeat(20 + number % 50)
            )
        })
        .collect();
    let lines: Vec<&str> = lines.iter().map(String::as_str).collect();
    let mut client = server.raw();
    client.pipeline(&lines);
    // Keys that expire would change digests.
    let script = "for _, key in ipairs(redis.call('KEYS', '*')) do redis.call('PERSIST', key) end return 'done'";
    for db in 0..3 {
        check(&mut client, &format!("SELECT {db}"), "OK");
        check(&mut client, &format!("EVAL \"{script}\" 0"), "\"done\"");
        eventually("expired keys are deleted", || {
            let keys = client.call("KEYS *").items().len() as i64;
            client.call("DBSIZE").integer() == keys
        });
    }
}

fn digest(raw: &mut Raw) -> String {
    raw.call("DEBUG DIGEST").show()
}

#[test]
fn compressed_files_are_loaded_again() {
    for (name, code) in CODECS {
        let dir = tempfile::tempdir().expect("a temporary folder");
        let place = dir.path().display().to_string();
        let options = Options::shards(4).with("dir", &place);
        let server = Server::start(&options);
        fill(&server, 3);
        let mut raw = server.raw();
        check(&mut raw, "SAVE", "OK");
        let file = dir.path().join("dump.rdb");
        let plain = fs::metadata(&file).expect("saved").len();
        check(&mut raw, &format!("CONFIG SET rdbcompression {name}"), "OK");
        check(&mut raw, "SAVE", "OK");
        let expected = digest(&mut raw);
        let bytes = fs::read(&file).expect("saved");
        assert_eq!(bytes[..7], [b'V', b'C', b'S', 1, code, 0, 1]);
        assert!(
            (bytes.len() as u64) < plain,
            "{name}: {} {plain}",
            bytes.len()
        );
        check(&mut raw, "DEBUG RELOAD", "OK");
        assert_eq!(digest(&mut raw), expected, "{name}");
        drop((raw, server));
        // A server with the default directives loads it, too.
        let server = start_loaded(&options);
        let mut raw = server.raw();
        assert_eq!(digest(&mut raw), expected, "{name}");
        check(
            &mut raw,
            "CONFIG GET rdbcompression",
            "1) \"rdbcompression\"\n2) \"yes\"",
        );
        drop((raw, server));
        let checked = support::command()
            .args(["check-rdb".as_ref(), file.as_os_str()])
            .output()
            .expect("it runs");
        let text = String::from_utf8_lossy(&checked.stdout);
        assert!(checked.status.success(), "{text}");
        // A damaged file stops the start.
        let mut damaged = bytes.clone();
        let middle = damaged.len() / 2;
        // One bit may not change what a repetition unpacks to.
        for byte in &mut damaged[middle..middle + 32] {
            *byte ^= 0xff;
        }
        for bad in [&damaged[..], &bytes[..middle]] {
            fs::write(&file, bad).expect("written");
            let checked = support::command()
                .args(["check-rdb".as_ref(), file.as_os_str()])
                .output()
                .expect("it runs");
            assert!(!checked.status.success(), "{name}");
        }
    }
}

#[test]
fn append_only_files_begin_with_a_compressed_snapshot() {
    for (name, code) in CODECS {
        let dir = tempfile::tempdir().expect("a temporary folder");
        let options = Options::shards(4)
            .with("dir", &dir.path().display().to_string())
            .with("appendonly", "yes")
            .with("rdbcompression", name);
        let mut server = start_loaded(&options);
        fill(&server, 4);
        let mut raw = server.raw();
        raw.call("BGREWRITEAOF");
        eventually("the file is rewritten", || {
            info_number(&mut raw, "persistence", "aof_rewrite_in_progress") == 0.0
                && info_number(&mut raw, "persistence", "aof_rewrite_scheduled") == 0.0
        });
        let folder = fs::read_dir(dir.path().join("appendonlydir")).expect("a folder");
        let files = folder.map(|file| file.expect("a file").path());
        let base = files.filter(|path| path.to_string_lossy().ends_with(".base.rdb"));
        let bytes = fs::read(base.last().expect("a base")).expect("read");
        assert_eq!(bytes[..7], [b'V', b'C', b'S', 1, code, 0, 1]);
        fill(&server, 5);
        let expected = digest(&mut raw);
        drop(raw);
        server.signal("TERM");
        server.wait_for_exit();
        let checked = support::command()
            .arg("check-aof")
            .arg(dir.path().join("appendonlydir/appendonly.aof.manifest"))
            .output()
            .expect("it runs");
        let text = String::from_utf8_lossy(&checked.stdout);
        assert!(checked.status.success(), "{text}");
        let server = start_loaded(&options);
        assert_eq!(digest(&mut server.raw()), expected, "{name}");
    }
}

/// Returns the first bytes of the snapshot that a replica with these capabilities gets.
fn first_bytes(server: &Server, capabilities: &[&str]) -> Vec<u8> {
    let mut raw = server.raw();
    let mut words = vec!["REPLCONF", "capa", "eof"];
    words.extend(capabilities.iter().flat_map(|word| ["capa", word]));
    assert_eq!(raw.command(&words).show(), "OK");
    raw.send(&encode(&["PSYNC", "?", "-1"]));
    let mut reader = BufReader::new(raw.stream());
    for begins in ["+FULLRESYNC", "$EOF:"] {
        let mut line = String::new();
        while line.trim().is_empty() {
            line.clear();
            assert!(reader.read_line(&mut line).expect("a line") > 0);
        }
        assert!(line.starts_with(begins), "{line}");
    }
    let mut bytes = vec![0; 7];
    reader.read_exact(&mut bytes).expect("a snapshot");
    bytes
}

#[test]
fn replicas_get_what_they_say_they_read() {
    let server = Server::start(&Options::shards(4).with("repl-diskless-sync-delay", "0"));
    let mut raw = server.raw();
    fill(&server, 6);
    let lz4 = [b'V', b'C', b'S', 1, 1, 0, 1];
    let zstd = [b'V', b'C', b'S', 1, 2, 0, 1];
    let plain = *b"REDIS00";
    let all: &[&str] = &["lz4", "zstd"];
    for (ceiling, capabilities, expected) in [
        ("no", all, plain),
        ("no", &["basalt-lz4", "basalt-zstd"], plain),
        ("yes", &[], plain),
        ("yes", all, lz4),
        ("lz4", all, lz4),
        ("lz4", &["zstd"], plain),
        ("zstd", all, zstd),
        ("zstd", &["lz4"], lz4),
        ("zstd", &["basalt-lz4", "basalt-zstd"], zstd),
        ("zstd", &["psync2"], plain),
    ] {
        check(
            &mut raw,
            &format!("CONFIG SET repl-compression {ceiling}"),
            "OK",
        );
        let found = first_bytes(&server, capabilities);
        assert_eq!(found, expected, "{ceiling} {capabilities:?}");
    }
    check(&mut raw, "CONFIG SET repl-compression zstd", "OK");
    check(
        &mut raw,
        "CONFIG SET repl-compression none",
        "(error) ERR CONFIG SET failed (possibly related to argument 'repl-compression') - argument(s) must be one of \
         the following: no, yes, lz4, zstd",
    );
    // Every way in which a replica of basalt loads a snapshot, and servers that know nothing of it.
    let mut replicas: Vec<Server> = ["disabled", "swapdb", "on-empty-db", "flush-before-load"]
        .iter()
        .map(|way| Server::start(&Options::shards(2).with("repl-diskless-load", way)))
        .collect();
    replicas.push(Server::start(
        &Options::shards(2).with("repl-rdb-channel", "yes"),
    ));
    check(&mut raw, "CONFIG SET repl-rdb-channel yes", "OK");
    let theirs = [
        Oracle::start(),
        Oracle::start_newer_redis(),
        Oracle::start_valkey_with(&[]),
    ];
    replicas.extend(theirs.into_iter().flatten().map(|Oracle(server)| server));
    for replica in &replicas {
        follow(replica, &server);
    }
    fill(&server, 7);
    let mut all = vec![&server];
    all.extend(&replicas);
    settle(&all);
}
