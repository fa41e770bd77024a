//! The server as a process: start and end, signals, its title and log, crashes and the watchdog.

use std::ffi::OsString;
use std::fs;
use std::process::Command;

use crate::operating::Killed;
use crate::support::{
    self, Options, Server, check, eventually, free_port, info_field, is_stand_in,
};
use crate::wire::{self, Raw};

#[test]
fn shutdown_ends_the_process_well() {
    for line in [
        "SHUTDOWN\r\n",
        "SHUTDOWN NOSAVE\r\n",
        "SHUTDOWN NOSAVE NOW FORCE\r\n",
    ] {
        let mut server = Server::start(&Options::shards(8));
        let mut raw = server.raw();
        raw.send(line.as_bytes());
        assert!(raw.is_closed());
        assert_eq!(server.wait_for_exit(), Some(0), "{line}");
    }
    for signal in ["-TERM", "-INT"] {
        let mut server = Server::start(&Options::shards(8));
        let pid = server.pid().to_string();
        assert!(
            Command::new("kill")
                .args([signal, &pid])
                .status()
                .expect("kill")
                .success()
        );
        assert_eq!(
            server.wait_for_exit(),
            Some(0),
            "{signal}: {}",
            server.log()
        );
    }
}

fn signal(signal: &str, server: &Server) {
    let pid = server.pid().to_string();
    let sent = Command::new("kill").args([signal, &pid]).status();
    assert!(sent.expect("kill").success());
}

#[test]
fn what_a_signal_asked_for_is_taken_back_until_the_background_comes_round() {
    let mut server = Server::start(&Options::shards(8));
    let mut raw = server.raw();
    assert!(raw.call("SHUTDOWN ABORT").is_error());
    for name in ["-TERM", "-INT"] {
        assert_eq!(raw.call("DEBUG PAUSE-CRON 1").text(), "OK");
        let times = |text: &str| server.log().matches(text).count();
        let before = times("scheduling shutdown");
        signal(name, &server);
        support::eventually("the signal arrives", || {
            times("scheduling shutdown") > before
        });
        assert_eq!(raw.call("SHUTDOWN ABORT").text(), "OK");
        assert_eq!(
            raw.call("SHUTDOWN ABORT").text(),
            "ERR No shutdown in progress."
        );
        assert!(times("Shutdown manually aborted") > 0);
        assert_eq!(raw.call("DEBUG PAUSE-CRON 0").text(), "OK");
    }
    assert_eq!(raw.call("PING").text(), "PONG");
    signal("-TERM", &server);
    assert_eq!(server.wait_for_exit(), Some(0), "{}", server.log());
}

#[test]
fn the_kernel_is_told_how_soon_the_server_may_go() {
    let server = Server::start(
        &Options::shards(2)
            .with("oom-score-adj", "relative")
            .with("oom-score-adj-values", "11 22 33"),
    );
    let score = || -> i32 {
        let file = format!("/proc/{}/oom_score_adj", server.pid());
        let text = std::fs::read_to_string(file).expect("it runs");
        text.trim().parse().expect("a number")
    };
    let own = std::fs::read_to_string("/proc/self/oom_score_adj").expect("it runs");
    let own: i32 = own.trim().parse().expect("a number");
    support::eventually("it is set", || score() == own + 11);
    let mut raw = server.raw();
    support::check(&mut raw, "CONFIG SET oom-score-adj-values '40 0 0'", "OK");
    assert_eq!(score(), own + 40);
    // A replica has a value of its own.
    support::check(&mut raw, "CONFIG SET oom-score-adj-values '40 60 0'", "OK");
    support::check(&mut raw, "REPLICAOF 127.0.0.1 1", "OK");
    assert_eq!(score(), own + 60);
    support::check(&mut raw, "REPLICAOF NO ONE", "OK");
    assert_eq!(score(), own + 40);
    support::check(&mut raw, "CONFIG SET oom-score-adj absolute", "OK");
    assert_eq!(score(), 40);
    support::check(&mut raw, "CONFIG SET oom-score-adj no", "OK");
    assert_eq!(score(), own);
}

#[test]
fn the_log_has_the_shape_that_tools_read() {
    let server = Server::start(&Options::shards(2));
    let role = format!("{}:M ", server.pid());
    for text in [&role, "Server initialized", "Ready to accept connections"] {
        support::eventually(text, || server.log().contains(text));
    }
}

#[test]
fn a_bad_start_says_why_and_fails() {
    if is_stand_in() {
        return;
    }
    let refused: [&[&str]; 4] = [
        &["--nosuchdirective", "1"],
        &["--maxclients", "abc"],
        &["--port", "70000"],
        &["--maxmemory", "-5"],
    ];
    for arguments in refused {
        let output = support::command()
            .args(["--metrics-port", "0"])
            .args(arguments)
            .output()
            .expect("the server");
        let text = String::from_utf8_lossy(&output.stderr).into_owned();
        assert!(!output.status.success(), "{arguments:?} starts");
        assert!(
            text.contains("FATAL CONFIG FILE ERROR"),
            "{arguments:?}: {text}"
        );
        assert!(
            text.contains(arguments[0].trim_start_matches('-')),
            "{arguments:?}: {text}"
        );
    }
}

#[test]
fn who_asked_for_the_end_sees_it_when_nobody_can_connect() {
    for _ in 0..5 {
        let mut server = Server::start(&Options::shards(2));
        let mut raw = server.raw();
        raw.send(b"SHUTDOWN NOSAVE\r\n");
        assert!(raw.is_closed());
        assert!(Raw::try_connect(server.port).is_err());
        assert_eq!(server.wait_for_exit(), Some(0));
    }
}

/// Returns the server's title as `ps` shows it.
fn shown_title(raw: &mut Raw) -> String {
    let pid = &info_field(raw, "server", "process_id");
    let shown = std::fs::read(format!("/proc/{pid}/cmdline")).expect("the server runs");
    // Some kernels show zeros behind a title that is shorter than the arguments were.
    let end = shown.iter().position(|byte| *byte == 0);
    String::from_utf8_lossy(&shown[..end.unwrap_or(shown.len())]).into_owned()
}

#[test]
fn the_process_shows_its_title() {
    let server = Server::start(&Options::shards(1));
    let mut raw = server.raw();
    let port = server.port;
    let title = shown_title(&mut raw);
    assert!(title.ends_with(&format!(" 127.0.0.1:{port}")), "{title}");
    let set = |raw: &mut Raw, template: &str| {
        raw.command(&["CONFIG", "SET", "proc-title-template", template])
    };
    // A title longer than the arguments were: it extends over the environment that the server got from this
    // process.
    let bytes_of = |(name, value): (OsString, OsString)| name.len() + value.len() + 2;
    let long = "x".repeat(std::env::vars_os().map(bytes_of).sum::<usize>().min(700));
    set(&mut raw, &format!("a {{port}} {{{{{{tls-port}}}} {long}")).text();
    assert_eq!(shown_title(&mut raw), format!("a {port} {{0}} {long}"));
    set(&mut raw, "{config-file}").text();
    assert_eq!(shown_title(&mut raw), "-");
    for refused in ["{port", "{nothing}", "", "  ", "{title}"] {
        let reply = set(&mut raw, refused).text();
        assert!(reply.contains("template format is invalid"), "{reply}");
        assert_eq!(shown_title(&mut raw), "-");
    }
}

#[test]
fn a_crash_leaves_a_report_in_the_log() {
    for (line, cause) in [
        (
            "DEBUG SEGFAULT\r\n",
            "crashed by signal: 11, si_code: 1, accessing address: 0x8",
        ),
        (
            "DEBUG PANIC\r\n",
            "Guru Meditation: called by Debug Command #src/commands/command/debug/mod.rs:",
        ),
    ] {
        let mut server = Server::start(&Options::shards(2));
        let mut raw = server.raw();
        raw.call("CLIENT SETNAME crashing");
        raw.send(line.as_bytes());
        // In a build for tests a panic ends the connection only.
        support::eventually("the report", || {
            server.log().contains("REDIS BUG REPORT END")
        });
        assert!(raw.is_closed());
        let log = server.log();
        for part in [
            "=== REDIS BUG REPORT START: Cut & paste starting from here ===",
            cause,
            "------ STACK TRACE ------",
            "basalt(+0x",
            "------ INFO OUTPUT ------\n# Server\n",
            "# Keyspace",
            "------ CURRENT CLIENT INFO ------\nid=",
            "------ CLIENT LIST OUTPUT ------\nid=",
            " name=crashing ",
        ] {
            assert!(log.contains(part), "{part}:\n{log}");
        }
        let (_, current) = log.split_once("CURRENT CLIENT INFO").expect("a client");
        let current = current.lines().nth(1).expect("its line");
        assert!(current.contains(" name=crashing "), "{current}");
        assert!(current.ends_with(" cmd=debug"), "{current}");
        if line.contains("SEGFAULT") {
            assert_eq!(server.wait_for_exit(), Some(-1), "the signal ends it");
        }
    }
    let mut server = Server::start(&Options::shards(2).with("crash-log-enabled", "no"));
    let mut raw = server.raw();
    raw.send(b"DEBUG SEGFAULT\r\n");
    assert!(raw.is_closed());
    assert_eq!(server.wait_for_exit(), Some(-1));
    assert!(!server.log().contains("BUG REPORT"));
}

#[test]
fn a_signal_from_outside_is_reported_with_its_sender() {
    let mut server = Server::start(&Options::shards(2));
    signal("-ABRT", &server);
    assert_eq!(server.wait_for_exit(), Some(-1));
    let log = server.log();
    assert!(
        log.contains("crashed by signal: 6, si_code: 0, sent by process "),
        "{log}"
    );
    assert!(log.contains("REDIS BUG REPORT END"), "{log}");
}

/// Returns the stacks in a log, each with the lines above it.
fn stacks(log: &str) -> Vec<String> {
    let (_, stacks) = log.split_once("STACK TRACE ------").unwrap_or_default();
    let stacks = stacks.split("Backtrace of thread ").skip(1);
    stacks.map(str::to_owned).collect()
}

#[test]
fn the_watchdog_tells_what_holds_a_shard_for_long() {
    let server = Server::start(&Options::shards(2));
    let (mut raw, mut holder) = (server.raw(), server.raw());
    check(&mut holder, "CLIENT SETNAME holder", "OK");
    check(&mut raw, "CONFIG SET busy-reply-threshold 100", "OK");
    let endless = [
        "EVAL",
        "while true do redis.call('GET', KEYS[1]) end",
        "1",
        "k",
    ];
    // No client has asked for it yet.
    let killed = |raw: &mut Raw, holder: &mut Raw| {
        eventually("it is killed", || raw.call("SCRIPT KILL").body() == "OK");
        assert!(holder.read().is_error());
    };
    holder.send(&wire::encode(&endless));
    eventually("it is busy", || raw.call("GET k").is_error());
    killed(&mut raw, &mut holder);
    assert!(!server.log().contains("WATCHDOG"), "{}", server.log());
    check(&mut raw, "CONFIG SET watchdog-period 200", "OK");
    holder.send(&wire::encode(&endless));
    eventually("it is told of", || {
        server.log().contains("STACK TRACE DONE")
    });
    killed(&mut raw, &mut holder);
    let log = server.log();
    assert!(
        log.contains("--- WATCHDOG TIMER EXPIRED ---\nshard "),
        "{log}"
    );
    let stacks = stacks(&log);
    let is_holder = |stack: &String| stack.contains(", holds shards:\n");
    assert!(stacks.iter().all(is_holder), "nobody else: {log}");
    let of_holder = stacks.iter().find(|stack| stack.contains(" name=holder "));
    let of_holder = of_holder.expect("the client's thread");
    assert!(of_holder.contains(":\nfor id="), "{log}");
    assert!(of_holder.contains(" cmd=eval\n"), "{log}");
    assert!(of_holder.contains("basalt(+0x"), "{log}");
    check(&mut raw, "CONFIG SET watchdog-period 0", "OK");
}

#[test]
fn sigalrm_has_all_stacks_logged_and_the_server_goes_on() {
    let server = Server::start(&Options::shards(2).threads(2));
    let mut raw = server.raw();
    check(&mut raw, "SET k v", "OK");
    signal("-ALRM", &server);
    eventually("the stacks", || server.log().contains("STACK TRACE DONE"));
    let log = server.log();
    assert!(log.contains("Received SIGALRM"), "{log}");
    for name in ["basalt-background", "basalt-crash"] {
        let named = format!("({name:.15}):");
        assert!(log.contains(&named), "{named} {log}");
    }
    check(&mut raw, "GET k", "\"v\"");
}

/// Several servers on one machine start as several redis-servers do: a server without a configured metrics
/// port gets another one than the first server's.
#[test]
fn servers_beside_each_other_have_metrics_at_ports_of_their_own() {
    let servers: Vec<_> = (0..2)
        .map(|_| {
            let folder = tempfile::tempdir().expect("a folder");
            let port = free_port();
            let mut command = support::command();
            command
                .args([
                    "--port",
                    &port.to_string(),
                    "--bind",
                    "127.0.0.1",
                    "--save",
                    "",
                    "--dir",
                ])
                .arg(folder.path())
                .arg("--logfile")
                .arg(folder.path().join("log"));
            (folder, Killed(command.spawn().expect("the server starts")))
        })
        .collect();
    let metrics: Vec<String> = servers
        .iter()
        .map(|(folder, ..)| {
            let log = || fs::read_to_string(folder.path().join("log")).unwrap_or_default();
            eventually("the server is ready", || {
                log().contains("Ready to accept connections")
            });
            let log = log();
            let at = log
                .find("metrics http://127.0.0.1:")
                .expect("where the metrics are");
            log[at..].lines().next().expect("a line").to_owned()
        })
        .collect();
    assert_ne!(metrics[0], metrics[1]);
}
