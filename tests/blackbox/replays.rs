//! Replication streams and append-only files that redis-server and Valkey wrote while all of their write
//! commands were called with all options (`tests/replays/record.py`): replayed here, they leave the same data
//! as there.

use std::fs;
use std::io::{Read, Write};
use std::path::{Path, PathBuf};

use flate2::read::GzDecoder;

use crate::replicated::info;
use crate::replication_liars::{ID, Liar};
use crate::support::{Options, Server, basalt, eventually, skipped, start_loaded};
use crate::wire::{Raw, Value, encode, split};

fn folder() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/replays")
}

/// Returns the recordings of each server, in folders named by server and version.
fn recorded() -> Vec<PathBuf> {
    let all = fs::read_dir(folder().join("corpus")).expect("recordings");
    let mut all: Vec<PathBuf> = all.map(|one| one.expect("a folder").path()).collect();
    all.sort();
    assert!(all.len() >= 3, "{all:?}");
    all
}

fn part(of: &Path, name: &str) -> Option<Vec<u8>> {
    let file = fs::File::open(of.join(format!("{name}.gz"))).ok()?;
    let mut bytes = Vec::new();
    GzDecoder::new(file)
        .read_to_end(&mut bytes)
        .expect("it is whole");
    Some(bytes)
}

/// Encodes a value as bytes of RESP2.
fn flat(value: &Value) -> Vec<u8> {
    match value {
        Value::Simple(text) => [b"+", text.as_slice(), b"\r\n"].concat(),
        Value::Error(text) => [b"-", text.as_slice(), b"\r\n"].concat(),
        Value::Integer(number) => format!(":{number}\r\n").into_bytes(),
        Value::Bulk(text) => [
            format!("${}\r\n", text.len()).as_bytes(),
            text.as_slice(),
            b"\r\n",
        ]
        .concat(),
        Value::Array(items) => {
            let mut bytes = format!("*{}\r\n", items.len()).into_bytes();
            items.iter().for_each(|item| bytes.extend(flat(item)));
            bytes
        }
        _ => b"$-1\r\n".to_vec(),
    }
}

fn named(reply: &Value, names: &[&str]) -> Vec<Value> {
    let items = reply.items();
    let of = |name: &&str| {
        let found = items.chunks(2).find(|pair| pair[0].text() == **name);
        found.map_or(Value::NilBulk, |pair| pair[1].clone())
    };
    names.iter().map(of).collect()
}

fn in_order(mut items: Vec<Value>) -> Value {
    items.sort_by_key(flat);
    Value::Array(items)
}

/// Returns the parts of XINFO STREAM FULL that are neither a moment nor an estimate.
fn stream(reply: &Value, is_of_7_0: bool) -> Value {
    let has_something = |consumer: &Value| !consumer.items()[1].items().is_empty();
    let group = |group: &Value| {
        let mut of = named(
            group,
            &["name", "last-delivered-id", "entries-read", "pending"],
        );
        let consumers = &named(group, &["consumers"])[0];
        let consumers = consumers.items().iter();
        let consumers = consumers.map(|one| Value::Array(named(one, &["name", "pending"])));
        let consumers = consumers.filter(|one| !is_of_7_0 || has_something(one));
        of.push(in_order(consumers.collect()));
        Value::Array(of)
    };
    let mut of = named(
        reply,
        &[
            "length",
            "last-generated-id",
            "max-deleted-entry-id",
            "entries-added",
            "entries",
        ],
    );
    let groups = &named(reply, &["groups"])[0];
    of.push(Value::Array(groups.items().iter().map(group).collect()));
    Value::Array(of)
}

/// Returns a reply in the form in which `record.py` records it.
fn noted(kind: &str, reply: Value) -> Value {
    match (kind, &reply) {
        ("ordered", Value::Array(items)) => in_order(items.clone()),
        ("pairs", Value::Array(items)) => {
            let pairs = items.chunks(2).map(|pair| Value::Array(pair.to_vec()));
            in_order(pairs.collect())
        }
        ("scores", Value::Array(items)) => {
            let items = items.iter().enumerate().map(|(at, item)| match at % 2 {
                0 => item.clone(),
                _ => {
                    let score: f64 = item.text().parse().expect("a score");
                    Value::Bulk(format!("{:016x}", score.to_bits()).into_bytes())
                }
            });
            Value::Array(items.collect())
        }
        ("stream", Value::Array(_)) => stream(&reply, false),
        ("stream_of_7_0", Value::Array(_)) => stream(&reply, true),
        ("libraries", Value::Array(items)) => {
            let of = |library| Value::Array(named(library, &["library_name", "library_code"]));
            in_order(items.iter().map(of).collect())
        }
        _ => reply,
    }
}

/// Repeats the queries that were sent to the server that wrote it.
fn check_content(server: &Server, of: &Path, what: &str) {
    let content = part(of, &format!("{what}.content")).expect("what is wanted");
    let content = String::from_utf8(content).expect("text");
    let mut raw: Raw = server.raw();
    let mut asked = 0;
    for line in content.lines() {
        let words = split(line);
        let kind = String::from_utf8_lossy(&words[0]).into_owned();
        raw.send(&encode(&words[2..]));
        let found = flat(&noted(&kind, raw.read()));
        assert!(
            found == words[1],
            "{what} of {}: {line}\nfound {:?}",
            of.display(),
            String::from_utf8_lossy(&found)
        );
        asked += 1;
    }
    assert!(asked > 50, "{}", of.display());
    let log = server.log();
    assert!(
        !log.contains("CRITICAL"),
        "{what} of {}: {log}",
        of.display()
    );
}

#[test]
fn streams_of_other_servers_leave_here_what_they_leave_there() {
    for of in recorded() {
        let (snapshot, stream) = (part(&of, "snapshot"), part(&of, "stream"));
        let (snapshot, stream) = (snapshot.expect("a snapshot"), stream.expect("a stream"));
        let primary = Liar::new();
        let server = Server::start(&Options::shards(8));
        let mut raw = server.raw();
        raw.call(&format!("REPLICAOF 127.0.0.1 {}", primary.port));
        let (mut link, _) = primary.serve();
        let begun = format!("+FULLRESYNC {ID} 0\r\n${}\r\n", snapshot.len());
        for bytes in [begun.as_bytes(), &snapshot, &stream] {
            link.write_all(bytes).expect("it is sent");
        }
        let end = stream.len().to_string();
        eventually("all is applied", || {
            info(&mut raw, "slave_repl_offset") == end
        });
        check_content(&server, &of, "stream");
    }
}

#[test]
fn append_only_files_of_other_servers_leave_here_what_they_leave_there() {
    for of in recorded() {
        for what in ["file", "rewritten"] {
            let dir = tempfile::tempdir().expect("a temporary folder");
            let files = dir.path().join("appendonlydir");
            fs::create_dir(&files).expect("a folder");
            let mut manifest = String::new();
            for (part_name, kind) in [("base", 'b'), ("incr", 'i')] {
                let Some(bytes) = part(&of, &format!("{what}.{part_name}")) else {
                    continue;
                };
                let is_snapshot = bytes.starts_with(b"REDIS") || bytes.starts_with(b"VALKEY");
                let form = if is_snapshot { "rdb" } else { "aof" };
                let name = format!("appendonly.aof.1.{part_name}.{form}");
                manifest += &format!("file {name} seq 1 type {kind}\n");
                fs::write(files.join(name), bytes).expect("a file");
            }
            let of_files = files.join("appendonly.aof.manifest");
            fs::write(of_files, manifest).expect("a manifest");
            let options = Options::shards(8)
                .with("dir", &dir.path().display().to_string())
                .with("appendonly", "yes");
            check_content(&start_loaded(&options), &of, what);
        }
    }
}

/// With `BASALT_RECORD=1` the installed servers are recorded anew.
#[test]
fn what_other_servers_write_today_leaves_here_what_it_leaves_there() {
    if std::env::var_os("BASALT_RECORD").is_none() {
        return skipped("BASALT_RECORD is not set");
    }
    let status = std::process::Command::new("python3")
        .arg(folder().join("record.py"))
        .arg(basalt())
        .status();
    assert!(status.expect("python3").success());
}
