//! Authentication of a move's source at its target: with a password, as a user, with a certificate.

use super::{TAG, await_end, check_filled, count, fill, is_over, latest, migrate, owns, pair};
use crate::clustered::{TIMEOUT, agree, id, options};
use crate::support::{self, Server, check, eventually, free_port};
use crate::tls::Authority;

const KEYS: usize = 300;

/// Begins a move that fails; why.
fn fails(from: &Server, line: &str) -> String {
    check(&mut from.raw(), line, "OK");
    eventually("it ends", || is_over(from));
    assert_eq!(latest(from, "state"), "failed");
    latest(from, "message")
}

fn line(to: &Server) -> String {
    format!(
        "CLUSTER MIGRATESLOTS SLOTSRANGE {slot} {slot} NODE {}",
        id(to),
        slot = super::SLOT
    )
}

#[test]
fn a_target_with_a_password_is_told_masterauth() {
    if support::is_stand_in() {
        return;
    }
    let (one, two) = pair(&options());
    fill(&one, KEYS);
    let (line, mut inside) = (line(&two), two.raw());
    check(&mut inside, "CONFIG SET requirepass secret", "OK");
    let refused = "Target node replied with error: NOAUTH Authentication required.";
    assert_eq!(fails(&one, &line), refused);
    check(&mut one.raw(), "CONFIG SET masterauth wrong", "OK");
    let wrong = "Failed to AUTH to target node: WRONGPASS invalid username-password pair or user is disabled.";
    assert_eq!(fails(&one, &line), wrong);
    check(&mut one.raw(), "CONFIG SET masterauth secret", "OK");
    check(&mut one.raw(), &line, "OK");
    await_end(&one, "success");
    let opened = inside.command(&["CONFIG", "SET", "requirepass", ""]);
    assert_eq!(opened.text(), "OK");
    check_filled(&two, KEYS);
    eventually("the keys go", || count(&one) == 0);
}

#[test]
fn the_source_moves_what_its_user_may_write() {
    if support::is_stand_in() {
        return;
    }
    let (one, two) = pair(&options());
    fill(&one, KEYS);
    let line = line(&two);
    let mut target = two.raw();
    for rules in [
        "ACL SETUSER default -cluster|syncslots",
        "ACL SETUSER reader on >secret ~* &* +@all -@write",
        "ACL SETUSER other on >secret ~other* &* +@all",
        "ACL SETUSER mover on >secret ~{b}* resetchannels -@all +@write +cluster|syncslots +multi +exec +select",
    ] {
        check(&mut target, rules, "OK");
    }
    let refused = "Target node replied with error: NOPERM User default has no permissions to run the \
                   'cluster|syncslots' command";
    assert_eq!(fails(&one, &line), refused);
    check(&mut one.raw(), "CONFIG SET masterauth secret", "OK");
    for user in ["reader", "other"] {
        let directive = format!("CONFIG SET masteruser {user}");
        check(&mut one.raw(), &directive, "OK");
        fails(&one, &line);
        eventually("the target knows", || is_over(&two));
        let why = latest(&two, "message");
        let begins = "A command failed during slot import: NOPERM";
        assert!(why.starts_with(begins), "{user}: {why}");
        assert!(owns(&one) && !owns(&two));
        eventually("nothing has come", || count(&two) == 0);
    }
    check(&mut one.raw(), "CONFIG SET masteruser mover", "OK");
    migrate(&one, &two);
    await_end(&one, "success");
    check_filled(&two, KEYS);
    eventually("the keys go", || count(&one) == 0);
}

#[test]
fn slots_move_over_tls_where_the_nodes_speak_it() {
    if support::is_stand_in() {
        return;
    }
    let authority = Authority::new();
    let start = || {
        let (port, bus_port) = (free_port(), free_port());
        let options = authority
            .options(port)
            .with("shards", "4")
            .with("tls-cluster", "yes")
            .with("cluster-enabled", "yes")
            .with("cluster-node-timeout", TIMEOUT)
            .with("cluster-port", &bus_port.to_string());
        let metrics_port = free_port();
        let options = options.with("metrics-port", &metrics_port.to_string());
        (Server::start(&options), port, bus_port, metrics_port)
    };
    let ((one, port, bus_port, _), (two, _, _, metrics_port)) = (start(), start());
    check(&mut one.raw(), "CLUSTER ADDSLOTSRANGE 0 8000", "OK");
    check(&mut two.raw(), "CLUSTER ADDSLOTSRANGE 8001 16383", "OK");
    let meet = format!("CLUSTER MEET 127.0.0.1 {port} {bus_port}");
    check(&mut two.raw(), &meet, "OK");
    agree(&[&one, &two]);
    fill(&one, KEYS);
    let long = format!("SETRANGE {TAG}long 3000000 end");
    assert_eq!(one.raw().call(&long).integer(), 3_000_003);
    let shaken = || crate::tls::metric(metrics_port, "basalt_tls_handshakes_total");
    let before = shaken();
    for (from, to) in [(&one, &two), (&two, &one)] {
        migrate(from, to);
        await_end(from, "success");
        assert!(shaken() > before, "the target's clients' port spoke TLS");
        check_filled(to, KEYS);
        let length = to.raw().call(&format!("STRLEN {TAG}long"));
        assert_eq!(length.integer(), 3_000_003);
        eventually("the keys go", || count(from) == 0);
    }
}
