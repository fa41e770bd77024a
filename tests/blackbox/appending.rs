//! The append-only file: what is acknowledged is there after a kill, and directories go to redis-server and back.

use std::path::Path;
use std::process::{Command, Stdio};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};

use crate::dump::makers;
use crate::support::{Draw, Options, Server, check, eventually, free_port};
use crate::wire::Raw;

fn options(dir: &Path) -> Options {
    Options::shards(8)
        .with("dir", &dir.display().to_string())
        .with("appendonly", "yes")
}

/// Starts a server, and waits until its data are there.
fn start(options: &Options) -> Server {
    let server = Server::start(options);
    let mut client = server.raw();
    eventually("the data are there", || {
        !client.call("PING").show().contains("LOADING")
    });
    server
}

fn kill(server: &mut Server) {
    let pid = server.pid().to_string();
    let killed = Command::new("kill").args(["-9", &pid]).status();
    assert!(killed.expect("it can be run").success());
    server.wait_for_exit();
}

fn number(client: &mut Raw, key: &str) -> u64 {
    client
        .call(&format!("GET {key}"))
        .body()
        .parse()
        .unwrap_or(0)
}

#[test]
fn what_was_acknowledged_under_always_survives_kills_and_transactions_stay_whole() {
    const WRITERS: usize = 4;
    let dir = tempfile::tempdir().expect("a temporary folder");
    let options = options(dir.path()).with("appendfsync", "always");
    let acknowledged: Vec<AtomicU64> = (0..WRITERS).map(|_| AtomicU64::new(0)).collect();
    let mut draw = Draw::new(7);
    for round in 0..6 {
        let mut server = start(&options);
        let ends = AtomicBool::new(false);
        std::thread::scope(|scope| {
            for (writer, acknowledged) in acknowledged.iter().enumerate() {
                let mut client = server.raw();
                let ends = &ends;
                scope.spawn(move || {
                    let (one, two) = (format!("{{{writer}}}a"), format!("other:{writer}"));
                    while !ends.load(Relaxed) {
                        let lines = format!("MULTI\r\nINCR {one}\r\nINCR {two}\r\nEXEC\r\n");
                        client.send_unchecked(lines.as_bytes());
                        let replies = (0..4).map(|_| client.try_read().ok());
                        let Some(exec) = replies.last().flatten() else {
                            return;
                        };
                        let count = exec.items()[0].integer().unsigned_abs();
                        acknowledged.store(count, Relaxed);
                    }
                });
            }
            let before: u64 = acknowledged.iter().map(|count| count.load(Relaxed)).sum();
            let wanted = before + 20 + draw.below(60) as u64;
            eventually("enough is written", || {
                acknowledged
                    .iter()
                    .map(|count| count.load(Relaxed))
                    .sum::<u64>()
                    >= wanted
            });
            if round % 2 == 1 {
                check(
                    &mut server.raw(),
                    "BGREWRITEAOF",
                    "Background append only file rewriting started",
                );
            }
            kill(&mut server);
            ends.store(true, Relaxed);
        });
        let server = start(&options);
        let mut client = server.raw();
        for (writer, acknowledged) in acknowledged.iter().enumerate() {
            let one = number(&mut client, &format!("{{{writer}}}a"));
            let two = number(&mut client, &format!("other:{writer}"));
            let known = acknowledged.load(Relaxed);
            assert_eq!(one, two, "a transaction is there whole or not at all");
            assert!(
                one == known || one == known + 1,
                "round {round}: {one}, and {known} were acknowledged"
            );
            acknowledged.store(one, Relaxed);
        }
    }
}

/// redis-server on a directory, until it is told to end.
struct Theirs(std::process::Child, u16);

impl Theirs {
    fn start(dir: &Path) -> Option<Theirs> {
        let port = free_port();
        let mut command = Command::new("redis-server");
        command.args([
            "--port",
            &port.to_string(),
            "--bind",
            "127.0.0.1",
            "--save",
            "",
        ]);
        command.args(["--appendonly", "yes", "--enable-debug-command", "yes"]);
        command.arg("--dir").arg(dir).stdout(Stdio::null());
        Some(Theirs(command.spawn().ok()?, port))
    }
}

#[test]
fn directories_go_to_redis_server_and_back() {
    let dir = tempfile::tempdir().expect("a temporary folder");
    let digest = |client: &mut Raw| client.call("DEBUG DIGEST").show();
    let finish = |client: &mut Raw, round: usize| {
        client.call(&format!("RPUSH rounds {round}"));
        if round >= 2 {
            client.call("BGREWRITEAOF");
            eventually("the rewrite is over", || {
                let info = client.call("INFO persistence").text();
                info.contains("aof_rewrite_in_progress:0")
                    && info.contains("aof_rewrite_scheduled:0")
            });
        }
        client.call(&format!("SADD seen {round}"));
        let after = client.call("DEBUG DIGEST").show();
        client.send(b"SHUTDOWN\r\n");
        client.read_to_close();
        after
    };
    let mut last = None;
    for round in 0..5 {
        let (mut client, mut ended): (Raw, Box<dyn FnMut()>) = if round % 2 == 0 {
            let mut server = start(&options(dir.path()));
            let client = server.raw();
            let ended = move || {
                server.wait_for_exit();
            };
            (client, Box::new(ended))
        } else {
            let Some(mut server) = Theirs::start(dir.path()) else {
                // There is no redis-server here.
                return;
            };
            eventually("redis-server is there", || {
                Raw::try_connect(server.1).is_ok()
            });
            let mut client = Raw::connect(server.1);
            eventually("it has loaded", || !client.call("PING").is_error());
            (client, Box::new(move || drop(server.0.wait())))
        };
        match &last {
            None => makers().iter().for_each(|line| drop(client.call(line))),
            Some(last) => assert_eq!(&digest(&mut client), last, "round {round}"),
        }
        last = Some(finish(&mut client, round));
        ended();
    }
}

#[test]
fn it_is_turned_on_and_off_while_clients_write() {
    let dir = tempfile::tempdir().expect("a temporary folder");
    let options = options(dir.path());
    let before = Options::shards(8).with("dir", &dir.path().display().to_string());
    let mut server = start(&before);
    let mut client = server.raw();
    check(&mut client, "SET before 1", "OK");
    check(&mut client, "CONFIG SET appendonly yes", "OK");
    eventually("the first rewrite is over", || {
        let info = client.call("INFO persistence").text();
        info.contains("aof_rewrite_in_progress:0") && info.contains("aof_rewrites:1")
    });
    check(&mut client, "CONFIG SET appendfsync always", "OK");
    check(&mut client, "SET after 1", "OK");
    kill(&mut server);
    let mut server = start(&options);
    let mut client = server.raw();
    check(&mut client, "MGET before after", "1) \"1\"\n2) \"1\"");
    check(&mut client, "CONFIG SET appendonly no", "OK");
    check(&mut client, "SET unlogged 1", "OK");
    kill(&mut server);
    let server = start(&options);
    check(
        &mut server.raw(),
        "EXISTS before after unlogged",
        "(integer) 2",
    );
}
