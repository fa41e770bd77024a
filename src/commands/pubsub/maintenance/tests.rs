//! Notifications to clients that have no connection.

use super::*;
use crate::config::Config;

const NOW_MS: u64 = 1_700_000_000_000;

fn client(id: u64) -> Arc<Shared> {
    let address = format!("127.0.0.1:{id}");
    let shared = Shared::new(id, address.clone(), address, 8, false, 0);
    shared.resp.store(3, Relaxed);
    Arc::new(shared)
}

fn mail(client: &Shared) -> String {
    let out = client.take_mail();
    let bytes = out.as_ref().and_then(|out| out.as_slice()).unwrap_or(b"");
    String::from_utf8_lossy(bytes).replace("\r\n", " ")
}

fn pubsub(change: impl FnOnce(&mut Config)) -> PubSub {
    let pubsub = PubSub::default();
    let mut config = Config::default();
    change(&mut config);
    pubsub.configure(&config);
    pubsub
}

fn target(host: &str) -> HandoffTarget {
    HandoffTarget {
        host: host.to_owned(),
        certified_host: None,
        port: 7001,
        tls_port: 7101,
    }
}

#[test]
fn only_clients_that_asked_and_speak_resp3_are_told() {
    let pubsub = pubsub(|_| ());
    let (asks, speaks_2, silent, stopped) = (client(1), client(2), client(3), client(4));
    for asking in [&asks, &speaks_2, &stopped] {
        pubsub.start_maintenance(asking, MaintenanceOptions::NONE, NOW_MS);
    }
    speaks_2.resp.store(2, Relaxed);
    pubsub.forget(&stopped);
    assert_eq!(pubsub.figures().maintenance.clients, 2);
    pubsub.begin_failover(Some(2_500), NOW_MS);
    assert_eq!(
        mail(&asks),
        format!(">4 $12 FAILING_OVER :{NOW_MS} :3 $5 [\"1\"] ")
    );
    for other in [&speaks_2, &silent, &stopped] {
        assert_eq!(mail(other), "");
    }
    speaks_2.resp.store(3, Relaxed);
    pubsub.end_failover(NOW_MS);
    let ended = format!(">3 $11 FAILED_OVER :{} $5 [\"1\"] ", NOW_MS + 1);
    assert_eq!([mail(&asks), mail(&speaks_2)], [ended.clone(), ended]);
    pubsub.end_failover(NOW_MS);
    assert_eq!(mail(&asks), "", "there was no other failover");
    assert_eq!(pubsub.figures().maintenance.sent, 3);
}

#[test]
fn numbers_rise_whatever_the_clock_does() {
    let pubsub = pubsub(|_| ());
    let asks = client(1);
    pubsub.start_maintenance(&asks, MaintenanceOptions::NONE, NOW_MS);
    for (now_ms, number) in [
        (NOW_MS, NOW_MS),
        (NOW_MS - 9, NOW_MS + 1),
        (NOW_MS + 50, NOW_MS + 50),
    ] {
        pubsub.tell_slots_stay(now_ms);
        assert_eq!(mail(&asks), format!(">3 $8 MIGRATED :{number} $5 [\"1\"] "));
    }
}

#[test]
fn endpoints_are_of_the_kind_that_was_asked_for() {
    let (names, none, tls) = (
        MaintenanceOptions::NAMES,
        MaintenanceOptions::NO_ENDPOINT,
        MaintenanceOptions::TLS,
    );
    let any = MaintenanceOptions::NONE;
    for (host, asked, expected) in [
        ("10.0.0.2", any, Some("10.0.0.2:7001")),
        ("10.0.0.2", tls, Some("10.0.0.2:7101")),
        ("10.0.0.2", names, Some("10.0.0.2:7001")),
        ("10.0.0.2", names.or(tls), None),
        ("cache-2.local", names, Some("cache-2.local:7001")),
        ("cache-2.local", names.or(tls), Some("cache-2.local:7101")),
        ("cache-2.local", any, Some("cache-2.local:7001")),
        ("::1", any, Some("::1:7001")),
        ("10.0.0.2", none, None),
        ("", any, None),
    ] {
        let endpoint = target(host).endpoint(asked);
        assert_eq!(endpoint.as_deref(), expected, "{host} {asked:?}");
    }
    let certified = HandoffTarget {
        certified_host: Some("cache-2.local".to_owned()),
        ..target("10.0.0.2")
    };
    for (asked, expected) in [
        (names.or(tls), Some("cache-2.local:7101")),
        (names, Some("10.0.0.2:7001")),
        (tls, Some("10.0.0.2:7101")),
        (names.or(tls).or(none), None),
    ] {
        assert_eq!(certified.endpoint(asked).as_deref(), expected, "{asked:?}");
    }
    let no_port = HandoffTarget {
        tls_port: 0,
        ..target("10.0.0.2")
    };
    assert_eq!(no_port.endpoint(tls), None);
}

#[test]
fn a_handover_is_told_to_those_who_ask_while_it_lasts() {
    let pubsub = pubsub(|config| config.maint_handoff_seconds = 10);
    let (early, late, too_late) = (client(1), client(2), client(3));
    pubsub.start_maintenance(&early, MaintenanceOptions::NONE, NOW_MS);
    assert!(!pubsub.is_leaving(&early, NOW_MS));
    pubsub.begin_failover(None, NOW_MS);
    assert!(pubsub.is_leaving(&early, NOW_MS));
    pubsub.hand_off(target("10.0.0.2"), NOW_MS);
    let moving =
        |number: u64, seconds: u64| format!(">4 $6 MOVING :{number} :{seconds} $13 10.0.0.2:7001 ");
    assert!(mail(&early).ends_with(&moving(NOW_MS + 2, 10)));
    assert!(pubsub.is_leaving(&early, NOW_MS) && !pubsub.is_leaving(&late, NOW_MS));
    pubsub.start_maintenance(&late, MaintenanceOptions::NONE, NOW_MS + 3_500);
    assert_eq!(mail(&late), moving(NOW_MS + 3_500, 7));
    assert!(!pubsub.is_leaving(&late, NOW_MS + 10_000));
    pubsub.start_maintenance(&too_late, MaintenanceOptions::NONE, NOW_MS + 10_000);
    assert_eq!(mail(&too_late), "");
    pubsub.end_handoff();
    assert!(!pubsub.is_handing_off(NOW_MS));
    pubsub.begin_failover(Some(4_000), NOW_MS);
    let during = client(4);
    pubsub.start_maintenance(&during, MaintenanceOptions::NONE, NOW_MS + 1_000);
    assert!(mail(&during).contains("FAILING_OVER") && mail(&during).is_empty());
}

#[test]
fn slots_are_named_by_endpoints_of_the_clients_own_kind() {
    let pubsub = pubsub(|_| ());
    let (plain, encrypted) = (client(1), client(2));
    pubsub.start_maintenance(&plain, MaintenanceOptions::NONE, NOW_MS);
    pubsub.start_maintenance(&encrypted, MaintenanceOptions::TLS, NOW_MS);
    pubsub.tell_slots_migrating("1,5-7", NOW_MS);
    let migrating = format!(">3 $10 SMIGRATING :{NOW_MS} $5 1,5-7 ");
    assert_eq!([mail(&plain), mail(&encrypted)], [&*migrating, &*migrating]);
    let moved = MovedSlots {
        source: ["a:1".to_owned(), "a:2".to_owned()],
        destination: ["b:1".to_owned(), "b:2".to_owned()],
        slots: "1,5-7".to_owned(),
    };
    pubsub.tell_slots_migrated(&[moved], NOW_MS);
    for (client, port) in [(&plain, 1), (&encrypted, 2)] {
        let number = NOW_MS + 1;
        assert_eq!(
            mail(client),
            format!(">3 $9 SMIGRATED :{number} *1 *3 $3 a:{port} $3 b:{port} $5 1,5-7 ")
        );
    }
}

#[test]
fn clients_that_do_not_read_cost_a_bounded_number_of_bytes() {
    let pubsub = pubsub(|_| ());
    let clients: Vec<_> = (1..=1_000).map(client).collect();
    for client in &clients {
        pubsub.start_maintenance(client, MaintenanceOptions::NONE, NOW_MS);
    }
    for round in 0..2_000 {
        pubsub.tell_slots_stay(NOW_MS + round);
    }
    for client in &clients {
        let bytes = client.mailbox().map_or(0, Mailbox::bytes);
        assert!(bytes > UNREAD_BYTES_MAX && bytes < UNREAD_BYTES_MAX + 200);
        assert!(!client.is_killed());
    }
    let figures = pubsub.figures().maintenance;
    assert_eq!(figures.sent + figures.dropped, 2_000_000);
    assert!(figures.dropped > 1_000_000);
    // One that reads again is told again.
    drop(clients[0].take_mail());
    pubsub.tell_slots_stay(NOW_MS + 3_000);
    assert!(mail(&clients[0]).contains("MIGRATED"));
}

#[test]
fn disabled_notifications_are_not_sent() {
    let pubsub = pubsub(|config| config.maint_notifications = false);
    let asks = client(1);
    assert!(pubsub.is_maintenance_silent());
    pubsub.start_maintenance(&asks, MaintenanceOptions::NONE, NOW_MS);
    pubsub.begin_failover(None, NOW_MS);
    assert_eq!(mail(&asks), "");
}
