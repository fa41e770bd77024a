//! Start-up directives that restrict clients and operators: each acts as in redis-server, which runs beside
//! this server.

use std::net::{TcpStream, UdpSocket};
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::process::Command;

use crate::support::{self, Options, Oracle, Server, free_port};
use crate::wire::{Raw, Value};

/// Starts this server and redis-server, if it is installed, with the same directives.
fn both(directives: &[(&str, &str)]) -> Vec<Server> {
    let ours = directives
        .iter()
        .fold(Options::shards(2), |options, (name, value)| {
            options.with(name, value)
        });
    let owned = |(name, value): &(&str, &str)| (name.to_string(), value.to_string());
    let theirs: Vec<_> = directives.iter().map(owned).collect();
    let mut servers = vec![Server::start(&ours)];
    servers.extend(Oracle::start_with(&theirs).map(|oracle| oracle.0));
    servers
}

/// Sends the requests to each server, and compares the replies.
fn alike(servers: &[Server], lines: &[&str]) -> Vec<String> {
    let answers = servers.iter().map(|server| {
        let mut raw = server.raw();
        let asked = lines.iter().map(|line| raw.call(line).show());
        asked.collect::<Vec<_>>()
    });
    let answers: Vec<_> = answers.collect();
    for other in &answers[1..] {
        assert_eq!(&answers[0], other, "{lines:?}");
    }
    answers.into_iter().next().unwrap_or_default()
}

#[test]
fn renamed_commands_go_by_their_new_names_alone() {
    let servers = both(&[
        ("rename-command", "CONFIG secret"),
        ("rename-command", "FLUSHALL "),
    ]);
    let answers = alike(
        &servers,
        &[
            "CONFIG GET maxclients",
            "secret GET maxclients",
            "FLUSHALL",
            "COMMAND INFO config",
            "COMMAND INFO flushall",
            "EVAL 'return redis.call(\"flushall\")' 0",
            "MULTI",
            "CONFIG GET maxclients",
            "secret GET maxclients",
            "EXEC",
        ],
    );
    assert!(
        answers[0].contains("unknown command") && answers[1].contains("10000"),
        "{answers:?}"
    );
    assert!(answers[2].contains("unknown command"), "{answers:?}");
}

#[test]
fn protected_directives_change_for_whom_the_start_said() {
    for (value, is_allowed) in [("no", false), ("local", true), ("yes", true)] {
        let servers = both(&[("enable-protected-configs", value)]);
        let answers = alike(
            &servers,
            &[
                "CONFIG SET dir /tmp",
                "CONFIG SET dbfilename other.rdb",
                "CONFIG SET enable-protected-configs yes",
                "CONFIG GET enable-protected-configs",
            ],
        );
        assert_eq!(answers[0] == "OK", is_allowed, "{answers:?}");
        assert!(answers[2].contains("immutable"), "{answers:?}");
    }
}

/// There are no modules, so that none is loaded for any client. The error depends on which clients may load
/// modules.
#[test]
fn modules_and_debug_are_refused_as_by_redis_server_here_and_from_elsewhere() {
    let lines = [
        "CONFIG GET enable-module-command",
        "MODULE",
        "MODULE LIST",
        "MODULE LIST x",
        "MODULE NOSUCH",
        "MODULE LOAD",
        "MODULE LOAD /nowhere.so",
        "module load /nowhere.so a b",
        "MODULE LOADEX",
        "MODULE LOADEX /nowhere.so CONFIG a b ARGS c",
        "MODULE UNLOAD",
        "MODULE UNLOAD x",
        "MODULE UNLOAD x y",
        "ACL DRYRUN default MODULE LOAD x",
        "ACL SETUSER narrow on nopass ~* +@all -module +module|list",
        "ACL SETUSER bare on nopass ~* +@all -@admin",
        "ACL DRYRUN narrow MODULE LIST",
        "EVAL 'return redis.call(\"module\", \"load\", \"x\")' 0",
        "EVAL 'return redis.pcall(\"module\", \"unload\", \"x\")' 0",
        "COMMAND INFO module|load module|loadex module|unload module|list",
        "DEBUG SLEEP 0",
        "CONFIG SET dir /tmp",
        "CONFIG SET enable-module-command yes",
        "CONFIG SET enable-debug-command yes",
        "MULTI",
        "MODULE LOAD x",
        "DEBUG SLEEP 0",
        "EXEC",
        "AUTH narrow x",
        "MODULE LOAD x",
        "MODULE UNLOAD",
        "MODULE LIST",
        "AUTH bare x",
        "MODULE LOADEX x",
    ];
    // Between 7.0 and 7.2 the text came to name the user.
    let shown = |raw: &mut Raw, line: &str| {
        let text = raw.call(line).show();
        text.replace("NOPERM this user has", "NOPERM User has")
            .replace("NOPERM User narrow has", "NOPERM User has")
            .replace("NOPERM User bare has", "NOPERM User has")
            .replace("User narrow has", "This user has")
    };
    for value in ["no", "local", "yes"] {
        let servers = both(&[
            ("enable-module-command", value),
            ("enable-debug-command", value),
            ("enable-protected-configs", value),
            ("bind", "0.0.0.0"),
            ("protected-mode", "no"),
        ]);
        let ask = |address: std::net::IpAddr| {
            let answers = servers.iter().map(|server| {
                let stream = TcpStream::connect((address, server.port)).expect("it listens");
                let mut raw = Raw::over(stream).expect("its options");
                let asked = lines.iter().map(|line| shown(&mut raw, line));
                asked.collect::<Vec<_>>()
            });
            let answers: Vec<_> = answers.collect();
            for other in &answers[1..] {
                for (at, line) in lines.iter().enumerate() {
                    assert_eq!(answers[0][at], other[at], "{value} {address}: {line}");
                }
            }
            let load = lines.iter().position(|line| line.ends_with("nowhere.so"));
            let text = answers[0][load.expect("it is there")].clone();
            match text.split("ERR ").nth(1) {
                Some(text) if text.starts_with("MODULE command not allowed. ") => false,
                Some(text) if text.starts_with("Error loading the extension. ") => true,
                _ => panic!("{text}"),
            }
        };
        let here = std::net::Ipv4Addr::LOCALHOST.into();
        assert_eq!(ask(here), value != "no");
        if let Some(elsewhere) = address() {
            assert_eq!(ask(elsewhere), value == "yes");
        }
    }
}

/// Returns an address of this machine other than loopback, if it has one.
fn address() -> Option<std::net::IpAddr> {
    let socket = UdpSocket::bind("0.0.0.0:0").ok()?;
    // Nothing is sent: the system only chooses the address that it would be sent from.
    socket.connect("192.0.2.1:9").ok()?;
    let address = socket.local_addr().ok()?.ip();
    (!address.is_loopback() && !address.is_unspecified()).then_some(address)
}

#[test]
fn protected_mode_keeps_out_who_comes_from_elsewhere() {
    let Some(address) = address() else {
        return support::skipped("this machine has the loopback address only");
    };
    for server in both(&[("bind", "0.0.0.0")]) {
        let from_elsewhere = || {
            let stream = TcpStream::connect((address, server.port)).expect("it listens");
            let mut raw = Raw::over(stream).expect("its options");
            raw.send_unchecked(b"PING\r\n");
            match raw.try_read() {
                Ok(Value::Error(text)) => {
                    let text = String::from_utf8_lossy(&text).into_owned();
                    text.split(' ').next().unwrap_or_default().to_owned()
                }
                Ok(other) => other.show(),
                Err(error) => format!("{error}"),
            }
        };
        assert_eq!(from_elsewhere(), "DENIED", "{}", server.name);
        let mut raw = server.raw();
        support::check(&mut raw, "CONFIG SET protected-mode no", "OK");
        assert_eq!(from_elsewhere(), "PONG", "{}", server.name);
        support::check(&mut raw, "CONFIG SET protected-mode yes", "OK");
        support::check(&mut raw, "CONFIG SET requirepass secret", "OK");
        assert_eq!(from_elsewhere(), "NOAUTH", "{}", server.name);
    }
}

#[test]
fn signals_end_the_server_as_the_configuration_says() {
    for (signal, directive) in [
        ("TERM", "shutdown-on-sigterm"),
        ("INT", "shutdown-on-sigint"),
    ] {
        for (options, saves, is_saved) in [
            ("default", "", false),
            ("default", "3600 1000", true),
            ("save", "", true),
            ("nosave", "3600 1000", false),
            ("now force nosave", "3600 1000", false),
        ] {
            let directives = [
                (directive, options),
                ("save", saves),
                ("shutdown-timeout", "1"),
            ];
            for mut server in both(&directives) {
                support::check(&mut server.raw(), "SET k v", "OK");
                server.signal(signal);
                assert_eq!(server.wait_for_exit(), Some(0), "{}", server.log());
                let is_there = server.dir().join("dump.rdb").exists();
                assert_eq!(
                    is_there, is_saved,
                    "{} {signal} {options} {saves}",
                    server.name
                );
            }
        }
    }
}

#[test]
fn the_unix_socket_has_the_permissions_that_were_asked_for() {
    let folder = tempfile::tempdir().expect("a folder");
    for mode in [0o700, 0o770, 0o777] {
        let (path, text) = (folder.path().join("socket"), format!("{mode:o}"));
        let shown = path.display().to_string();
        for mut server in both_one_by_one(&[("unixsocket", &shown), ("unixsocketperm", &text)]) {
            let found = std::fs::metadata(&path).expect("a socket").permissions();
            assert_eq!(found.mode() & 0o777, mode, "{}", server.name);
            server.signal("TERM");
            assert_eq!(server.wait_for_exit(), Some(0));
            assert!(!path.exists(), "{}", server.name);
        }
    }
}

/// Starts the servers of [`both`] one after the other, the second once the first has ended.
fn both_one_by_one(directives: &[(&str, &str)]) -> impl Iterator<Item = Server> {
    let owned = |(name, value): &(&str, &str)| (name.to_string(), value.to_string());
    let directives: Vec<(String, String)> = directives.iter().map(owned).collect();
    (0..2).filter_map(move |turn| match turn {
        0 => {
            let options = directives.iter().fold(Options::shards(2), |options, each| {
                options.with(&each.0, &each.1)
            });
            Some(Server::start(&options))
        }
        _ => Oracle::start_with(&directives).map(|oracle| oracle.0),
    })
}

#[test]
fn a_renaming_that_can_not_be_stops_the_start() {
    let redis = Path::new("/usr/bin/redis-server").exists();
    let folder = tempfile::tempdir().expect("a folder");
    for (old, new) in [("nosuch", "x"), ("GET", "set")] {
        let mut programs = vec![support::command()];
        if redis {
            programs.push(Command::new("/usr/bin/redis-server"));
        }
        for (index, mut program) in programs.into_iter().enumerate() {
            if index == 0 && !support::is_stand_in() {
                program.args(["--metrics-port", "0"]);
            }
            program.args(["--port", &free_port().to_string(), "--dir"]);
            program
                .arg(folder.path())
                .args(["--rename-command", old, new]);
            let output = program.output().expect("a server");
            assert!(!output.status.success(), "{program:?} starts");
        }
    }
}
