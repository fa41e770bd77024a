//! Permissions of the files and sockets that the server creates, and signals that it ignores.

use std::os::unix::fs::MetadataExt;
use std::path::Path;
use std::process::{Command, Stdio};

use crate::support::{self, Options, Server, check, eventually, start_loaded};
use crate::wire::Raw;

fn mode(path: &Path) -> u32 {
    let metadata = std::fs::metadata(path).unwrap_or_else(|error| panic!("{path:?}: {error}"));
    metadata.mode() & 0o777
}

/// Starts a server with every kind of file, under a umask that lets all users read; returns their modes.
fn modes(extra: &[(&str, &str)]) -> [u32; 5] {
    let dir = tempfile::tempdir().expect("a temporary folder");
    let place = |name: &str| dir.path().join(name);
    let shown = |name: &str| place(name).display().to_string();
    let mut command = Command::new("sh");
    let port = support::free_port();
    let mut line = format!(
        "umask 022; exec '{}' --port {port} --metrics-port 0 --appendonly yes --save '' --dir '{}' --logfile log \
         --unixsocket '{}'",
        support::basalt().display(),
        dir.path().display(),
        shown("socket")
    );
    for (name, value) in extra {
        line.push_str(&format!(" --{name} {value}"));
    }
    command.args(["-c", &line]).env_remove("BASALT_BINARY");
    let mut child = command.stdin(Stdio::null()).spawn().expect("sh");
    eventually("it listens", || Raw::try_connect(port).is_ok());
    let mut client = Raw::connect(port);
    eventually("it has loaded", || client.call("SET a 1").show() == "OK");
    check(&mut client, "SAVE", "OK");
    let all = [
        place("socket"),
        place("dump.rdb"),
        place("log"),
        place("appendonlydir"),
        place("appendonlydir/appendonly.aof.1.incr.aof"),
    ];
    let modes = all.map(|path| mode(&path));
    let _ = child.kill();
    let _ = child.wait();
    modes
}

#[test]
fn what_is_made_is_for_its_owner_alone_unless_configured() {
    if support::is_stand_in() {
        return;
    }
    assert_eq!(modes(&[]), [0o700, 0o600, 0o600, 0o700, 0o600]);
    let opened = [("unixsocketperm", "770"), ("file-mode", "640")];
    assert_eq!(modes(&opened), [0o770, 0o640, 0o640, 0o750, 0o640]);
}

#[test]
fn signals_for_others_end_nothing() {
    if support::is_stand_in() {
        return;
    }
    let server = Server::start(&Options::shards(4));
    let mut client = server.raw();
    check(&mut client, "SET a 1", "OK");
    for name in ["HUP", "USR1", "USR2", "PIPE"] {
        server.signal(name);
        check(&mut client, "GET a", "\"1\"");
    }
    // The log goes on in a new file after logrotate has moved it.
    let dir = tempfile::tempdir().expect("a temporary folder");
    let log = dir.path().join("log");
    let logging = Server::start(&Options::shards(4).with("logfile", &log.display().to_string()));
    std::fs::rename(&log, dir.path().join("log.1")).expect("moved");
    logging.signal("HUP");
    check(&mut logging.raw(), "DEBUG LOG hello", "OK");
    let text = std::fs::read_to_string(&log).expect("made anew");
    assert!(text.contains("hello"));
}

#[test]
fn populate_stays_within_the_limit_of_memory() {
    if support::is_stand_in() {
        return;
    }
    let server = Server::start(&Options::shards(8).with("maxmemory", "20mb"));
    let mut client = server.raw();
    check(
        &mut client,
        "DEBUG POPULATE 1000000 key 1000",
        "(error) OOM command not allowed when used memory > 'maxmemory'.",
    );
    check(&mut client, "DBSIZE", "(integer) 0");
    check(&mut client, "DEBUG POPULATE 1000 key 1000", "OK");
    check(&mut client, "DBSIZE", "(integer) 1000");
}

/// Creates a folder of append-only files with ten keys in the base and ten after it.
fn appended(dir: &Path) {
    let options = Options::shards(4)
        .with("dir", &dir.display().to_string())
        .with("appendonly", "yes");
    let mut server = start_loaded(&options);
    let mut client = server.raw();
    for key in 0..10 {
        client.call(&format!("SET base:{key} 1"));
    }
    check(
        &mut client,
        "BGREWRITEAOF",
        "Background append only file rewriting started",
    );
    eventually("it is rewritten", || {
        support::info_number(&mut client, "persistence", "aof_rewrites") >= 1.0
            && support::info_number(&mut client, "persistence", "aof_rewrite_in_progress") == 0.0
    });
    for key in 0..10 {
        client.call(&format!("SET more:{key} 1"));
    }
    client.call("WAITAOF 1 0 5000");
    client.send_unchecked(b"SHUTDOWN\r\n");
    server.wait_for_exit();
}

/// Starts a server on a copy of the folder; how many keys it has, none if it refuses to start.
fn keys_of(program: &std::ffi::OsStr, from: &Path, manifest: &[u8]) -> Option<i64> {
    let dir = tempfile::tempdir().expect("a temporary folder");
    let to = dir.path().join("appendonlydir");
    std::fs::create_dir(&to).expect("a folder");
    for file in std::fs::read_dir(from.join("appendonlydir")).expect("the folder") {
        let file = file.expect("a file");
        std::fs::copy(file.path(), to.join(file.file_name())).expect("copied");
    }
    std::fs::write(to.join("appendonly.aof.manifest"), manifest).expect("written");
    let port = support::free_port();
    let mut command = Command::new(program);
    command.env_remove("BASALT_BINARY");
    command.args([
        "--port",
        &port.to_string(),
        "--bind",
        "127.0.0.1",
        "--save",
        "",
    ]);
    command
        .args(["--appendonly", "yes", "--dir"])
        .arg(dir.path());
    if program == support::basalt() {
        command.args(["--metrics-port", "0", "--shards", "4"]);
    }
    command.stdin(Stdio::null()).stdout(Stdio::null());
    let mut child = command.stderr(Stdio::null()).spawn().expect("it starts");
    let mut keys = None;
    eventually("it is up, or has refused", || {
        if child.try_wait().expect("a child").is_some() {
            return true;
        }
        let Ok(mut client) = Raw::try_connect(port) else {
            return false;
        };
        client.send_unchecked(b"DBSIZE\r\n");
        match client.try_read() {
            Ok(reply) if !reply.is_error() => keys = Some(reply.integer()),
            _ => return false,
        }
        true
    });
    let _ = child.kill();
    let _ = child.wait();
    keys
}

#[test]
fn a_manifest_with_zeros_between_its_lines_is_refused() {
    if support::is_stand_in() {
        return;
    }
    let dir = tempfile::tempdir().expect("a temporary folder");
    appended(dir.path());
    let manifest = std::fs::read(dir.path().join("appendonlydir/appendonly.aof.manifest"));
    let manifest = manifest.expect("it is there");
    assert_eq!(keys_of(&support::basalt(), dir.path(), &manifest), Some(20));
    let end = manifest
        .iter()
        .position(|byte| *byte == b'\n')
        .expect("a line");
    let mut zeros = manifest.clone();
    zeros[end..end + 5].fill(0);
    assert_eq!(keys_of(&support::basalt(), dir.path(), &zeros), None);
    let path = dir.path().join("appendonlydir/appendonly.aof.manifest");
    std::fs::write(&path, &zeros).expect("written");
    let checked = support::command().arg("check-aof").arg(&path).output();
    let checked = checked.expect("it runs");
    assert!(!checked.status.success());
    let said = String::from_utf8_lossy(&checked.stdout).into_owned();
    assert!(
        said.contains(&format!("byte {} of the line", end + 1)),
        "{said}"
    );
}

/// `BASALT_MANIFESTS` sets the number of manifests.
#[test]
fn what_redis_refuses_of_mutated_manifests_is_refused() {
    let redis = std::ffi::OsStr::new("redis-server");
    if support::is_stand_in() || support::Oracle::start().is_none() {
        return;
    }
    let dir = tempfile::tempdir().expect("a temporary folder");
    appended(dir.path());
    let manifest = std::fs::read(dir.path().join("appendonlydir/appendonly.aof.manifest"));
    let manifest = manifest.expect("it is there");
    let count = support::variable("BASALT_MANIFESTS", 60);
    let (mut refused, mut alike) = (0, 0);
    for seed in 0..1000 {
        // Few mutations leave a manifest that both load.
        if seed >= count && alike > 0 {
            break;
        }
        let mut draw = support::Draw::new(seed);
        let mut mutated = manifest.clone();
        for _ in 0..=draw.below(2) {
            let at = draw.below(mutated.len());
            match draw.below(7) {
                0 => mutated[at] = draw.below(256) as u8,
                1 => mutated[at] ^= 1 << draw.below(8),
                2 => drop(mutated.remove(at)),
                3 => mutated.truncate(at.max(1)),
                4 => {
                    let end = (at + 1 + draw.below(8)).min(mutated.len());
                    mutated[at..end].fill(0);
                }
                5 => {
                    let lines: Vec<Vec<u8>> = mutated
                        .split_inclusive(|byte| *byte == b'\n')
                        .map(<[u8]>::to_vec)
                        .collect();
                    let line = lines[draw.below(lines.len())].clone();
                    mutated.extend(line);
                }
                _ => mutated.insert(at, draw.below(256) as u8),
            }
        }
        let theirs = keys_of(redis, dir.path(), &mutated);
        let ours = keys_of(&support::basalt(), dir.path(), &mutated);
        let shown = String::from_utf8_lossy(&mutated).into_owned();
        match (theirs, ours) {
            (None, ours) => {
                assert_eq!(ours, None, "seed {seed}: {shown:?}");
                refused += 1;
            }
            (Some(_), None) => {}
            (theirs, ours) => {
                assert_eq!(ours, theirs, "seed {seed}: {shown:?}");
                alike += 1;
            }
        }
    }
    assert!(refused > 0 && alike > 0, "{refused} refused, {alike} alike");
}
