//! `basalt top` and `basalt report`, programs beside the server.

use std::process::{Command, Stdio};

use crate::console::{EVIL, start};
use crate::support::{Options, Oracle, Server, basalt, check, is_stand_in};

#[test]
fn a_report_is_written_whole_or_not_at_all() {
    if is_stand_in() {
        return;
    }
    let (server, port) = start(&[("metrics-auth", "prom:secret")]);
    let file = server.dir().join("report.html");
    let report_of = |port: &str, arguments: &[&str]| {
        let output = Command::new(basalt())
            .arg("report")
            .arg(&file)
            .args(["-p", port])
            .args(arguments)
            .env_remove("REDISCLI_AUTH")
            .output()
            .expect("it runs");
        let said = String::from_utf8_lossy(&output.stderr).into_owned();
        (output.status.success(), said)
    };
    let metrics = port.to_string();
    let (is_good, said) = report_of(&metrics, &[]);
    assert!(
        !is_good && said.contains("401 A user name and a password are required"),
        "{said}"
    );
    assert!(!file.exists());
    let user = ["--user", "prom", "-a", "secret", "--range", "1h"];
    let (is_good, said) = report_of(&metrics, &user);
    assert!(is_good, "{said}");
    let page = std::fs::read_to_string(&file).expect("a report");
    assert!(page.starts_with("<!DOCTYPE html>") && page.ends_with("</html>"));
    for panel in ["Findings", "Latency", "Append-only file (AOF)", "Topology"] {
        assert!(page.contains(panel), "{panel}");
    }
    // The client port reveals the metrics port, if there is one.
    std::fs::remove_file(&file).expect("a report");
    let data = server.port.to_string();
    let (is_good, said) = report_of(&data, &user);
    assert!(is_good && file.exists(), "{said}");
    let without = Server::start(&Options::shards(4));
    let (is_good, said) = report_of(&without.port.to_string(), &[]);
    assert!(
        !is_good && said.contains("this server has no metrics port"),
        "{said}"
    );
}

#[test]
fn top_shows_basalt_and_the_reference_server_by_name() {
    if is_stand_in() {
        return;
    }
    let port_of = |server: &Server| {
        let mut raw = server.raw();
        raw.call("CONFIG GET port").items()[1].text()
    };
    let top = |port: &str, more: &[&str]| {
        let output = Command::new(basalt())
            .args(["top", "--once", "-i", "0.3", "-p", port])
            .args(more)
            .env_remove("REDISCLI_AUTH")
            .stdin(Stdio::null())
            .output()
            .expect("it runs");
        let text = String::from_utf8_lossy(&output.stdout).into_owned();
        (
            output.status.success(),
            text,
            String::from_utf8_lossy(&output.stderr).into_owned(),
        )
    };
    let (server, _) = start(&[("maxmemory", "64mb"), ("hot-keys-sample", "1")]);
    let mut raw = server.raw();
    let port = port_of(&server);
    for _ in 0..20 {
        raw.command(&[&b"SET"[..], EVIL, b"v"]);
    }
    let (is_good, screen, said) = top(&port, &[]);
    assert!(is_good, "{said}");
    for wanted in [
        "basalt (as Redis ",
        "primary",
        "64.00 MiB",
        "Keys            1",
        "Hot keys",
        "<script>alert(1)",
    ] {
        assert!(screen.contains(wanted), "{wanted}:\n{screen}");
    }
    assert!(!screen.contains('\u{1b}') && !screen.contains('\u{202e}'));
    check(&mut raw, "CONFIG SET requirepass word", "OK");
    let (is_good, _, said) = top(&port, &["-a", "wrong"]);
    assert!(!is_good && said.contains("WRONGPASS"), "{said}");
    assert!(top(&port, &["-a", "word"]).0);
    if let Some(oracle) = Oracle::start() {
        let (is_good, screen, said) = top(&port_of(&oracle.0), &[]);
        assert!(is_good, "{said}");
        assert!(
            screen.contains("Redis 7.") && screen.contains("Replicas        0"),
            "{screen}"
        );
    }
}
