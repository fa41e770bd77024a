//! Access rights of the console: names are shown only to users who may see them, as long as they may, and
//! escaped everywhere.

use std::time::{Duration, Instant};

use super::{EVIL, Followed, basic, get, get_with, page_of, start, status, with_names};
use crate::support::{self, check, eventually, is_stand_in};

#[test]
fn an_open_page_stops_naming_names_when_the_right_to_them_is_gone() {
    if is_stand_in() {
        return;
    }
    let (_server, port, mut raw) = with_names(&[]);
    check(&mut raw, "ACL SETUSER gone on >pass ~* +@all", "OK");
    check(&mut raw, "ACL SETUSER less on >pass ~* +@all", "OK");
    check(&mut raw, "CONFIG SET metrics-key-names yes", "OK");
    let mut gone = Followed::open(port, "/keys", &basic("gone:pass"));
    let mut less = Followed::open(port, "/keys", &basic("less:pass"));
    let mut any = Followed::open(port, "/keys", "");
    check(&mut raw, "CONFIG SET metrics-key-names no", "OK");
    for followed in [&mut gone, &mut less] {
        followed.until("hot:&lt;script");
    }
    check(&mut raw, "ACL DELUSER gone", "(integer) 1");
    check(&mut raw, "ACL SETUSER less -hotkeys|top", "OK");
    let changed = Instant::now();
    // The stream of a user who was deleted ends with the next event.
    while gone.more() {}
    assert!(
        changed.elapsed() < Duration::from_secs(5),
        "{:?}",
        changed.elapsed()
    );
    // The panels are sent anew each five seconds; those made before the change may still be under way.
    std::thread::sleep(Duration::from_millis(200));
    for followed in [&mut less, &mut any] {
        followed.said.clear();
        while !followed.said.ends_with("\n\r\n") {
            assert!(followed.more());
        }
        followed.said.clear();
        followed.until("\"hot-uses\":");
        followed.until("(hidden)");
        assert!(
            !followed.said.contains("hot:&lt;script"),
            "{}",
            followed.said
        );
    }
    // A visitor's stream ends when a password is asked for.
    check(&mut raw, "CONFIG SET metrics-auth prom:secret", "OK");
    let changed = Instant::now();
    while any.more() {}
    assert!(
        changed.elapsed() < Duration::from_secs(5),
        "{:?}",
        changed.elapsed()
    );
}

/// The bytes of a prefix are those of the user's keys, without others'.
#[test]
fn a_user_who_may_see_few_keys_is_told_what_these_take_and_no_more() {
    if is_stand_in() {
        return;
    }
    let (server, port) = start(&[]);
    let mut raw = server.raw();
    for number in 0..2_000 {
        raw.command(&[
            &b"SET"[..],
            format!("large:{number}").as_bytes(),
            &[b'x'; 2_000],
        ]);
    }
    for number in 0..500 {
        raw.command(&[&b"SET"[..], format!("own:{number}").as_bytes(), b"x"]);
    }
    check(
        &mut raw,
        "ACL SETUSER some on >pass ~own:* +memory|bigkeys",
        "OK",
    );
    let some = basic("some:pass");
    let told = page_of(port, "/api/v1/memory", &some);
    let (_, rest) = told.split_once("\"prefixes\":[{").expect("prefixes");
    let prefix = rest.split('}').next().unwrap_or_default();
    assert!(prefix.contains("\"name\":\"own:\""), "{told}");
    let number = |name: &str| -> f64 {
        let (_, rest) = prefix
            .split_once(&format!("\"{name}\":"))
            .expect("a figure");
        let text = rest.split(',').next().unwrap_or_default();
        text.parse().expect("a number")
    };
    let (keys, bytes) = (number("keys"), number("bytes"));
    assert!((400.0..600.0).contains(&keys), "{keys} of 500 keys");
    // 4 MB are the others'.
    assert!(bytes < 300_000.0, "{bytes} bytes");
    assert!(!told.contains("large:"), "{told}");
    let page = page_of(port, "/", &some);
    assert!(page.contains("own:") && !page.contains("large:"), "{page}");
    assert!(
        page.contains("Prefixes that this user may not read are not shown."),
        "{page}"
    );
    let page = page_of(port, "/", "");
    assert!(
        page.contains("Key prefixes are shown only to users who may see key names."),
        "{page}"
    );
}

const NAMED: [&str; 9] = [
    "/",
    "/keys",
    "/clients",
    "/slow-log",
    "/report",
    "/api/v1/hot-keys",
    "/api/v1/big-keys",
    "/api/v1/clients",
    "/api/v1/slow-log",
];

#[test]
fn names_are_escaped_for_users_who_may_see_them_and_hidden_from_others() {
    if is_stand_in() {
        return;
    }
    let (_server, port, mut raw) = with_names(&[]);
    check(&mut raw, "ACL SETUSER all on >pass ~* +@all", "OK");
    check(
        &mut raw,
        "ACL SETUSER some on >token ~big:* +hotkeys|top +memory|bigkeys",
        "OK",
    );
    check(&mut raw, "ACL SETUSER none on >word +ping", "OK");
    let all = basic("all:pass");
    for path in NAMED {
        let page = page_of(port, path, "");
        for secret in ["hot:", "big:", "secret"] {
            assert!(!page.contains(secret), "{path} shows {secret}: {page}");
        }
        let page = page_of(port, path, &all);
        // Values are shown to no user.
        assert!(
            !page.contains("secret-value") && !page.contains("<script>alert"),
            "{path}"
        );
        for control in ['\u{1b}', '\u{202e}', '\0', '\u{fffd}'] {
            assert!(!page.contains(control), "{path}: {control:?}");
        }
    }
    let keys = page_of(port, "/keys", &all);
    let shown = "&lt;script&gt;alert(1)&lt;/script&gt;&quot;'&amp;\\u{1b}[2J\\u{202e}\\xff\\u{0}";
    assert!(
        keys.contains(&format!("hot:{shown}")) && keys.contains(&format!("big:{shown}")),
        "{keys}"
    );
    assert!(page_of(port, "/clients", &all).contains("secret-&lt;client&gt;"));
    assert!(page_of(port, "/slow-log", &all).contains("hot:&lt;script"));
    assert!(page_of(port, "/api/v1/big-keys", &all).contains("big:\\u003cscript\\u003ealert(1)"));
    assert!(page_of(port, "/log", &all).contains("Ready to accept connections"));

    // By a token, as far as the rules go.
    let some = "Authorization: Bearer token\r\n";
    let keys = page_of(port, "/keys", some);
    assert!(
        keys.contains("big:&lt;") && !keys.contains("hot:&lt;"),
        "{keys}"
    );
    assert!(!page_of(port, "/clients", some).contains("secret"));
    let none = basic("none:word");
    for path in ["/keys", "/clients", "/slow-log", "/log"] {
        let page = page_of(port, path, &none);
        assert!(
            !page.contains("hot:") && !page.contains("secret") && !page.contains("Ready to accept")
        );
    }
    check(&mut raw, "CONFIG SET metrics-key-names yes", "OK");
    assert!(page_of(port, "/keys", "").contains("hot:&lt;script"));
}

/// Replicas name themselves, too, by their address, and users are named by other users.
#[test]
fn names_of_neighbours_and_users_are_escaped_and_add_no_line_to_info() {
    if is_stand_in() {
        return;
    }
    let (server, port) = start(&[("metrics-key-names", "yes")]);
    let mut raw = server.raw();
    let refused = raw.command(&[&b"CLIENT"[..], b"SETNAME", EVIL]);
    assert!(refused.is_error(), "{refused:?}");
    let refused = raw.command(&[&b"CLIENT"[..], b"SETINFO", b"LIB-NAME", EVIL]);
    assert!(refused.is_error(), "{refused:?}");
    let user: Vec<u8> = EVIL.iter().copied().filter(|byte| *byte != 0).collect();
    raw.command(&[
        &b"ACL"[..],
        b"SETUSER",
        &user,
        b"on",
        b">pass",
        b"~*",
        b"+@all",
    ]);
    let mut named = server.raw();
    assert!(!named.command(&[&b"AUTH"[..], &user, b"pass"]).is_error());
    let mut replica = server.raw();
    let address = [EVIL, b"\r\nmaxmemory:1\r\n"].concat();
    let words = [
        &b"REPLCONF"[..],
        b"listening-port",
        b"1",
        b"ip-address",
        &address,
    ];
    assert!(!replica.command(&words).is_error());
    replica.send(b"PSYNC ? -1\r\n");
    eventually("there is a replica", || {
        support::info_number(&mut raw, "replication", "connected_slaves") == 1.0
    });
    let told = raw.call("INFO everything").body();
    let lines = told.lines().filter(|line| line.starts_with("maxmemory:"));
    assert_eq!(lines.collect::<Vec<_>>(), ["maxmemory:0"]);
    for (path, name) in [
        ("/replication", "&lt;script&gt;alert(1)"),
        ("/clients", "&lt;script&gt;alert(1)"),
        ("/report", "&lt;script&gt;alert(1)"),
        ("/api/v1/replication", "\\u003cscript\\u003ealert(1)"),
        ("/api/v1/clients", "\\u003cscript\\u003ealert(1)"),
        ("/api/v1/overview", "\\u003cscript\\u003ealert(1)"),
    ] {
        let page = page_of(port, path, "");
        assert!(page.contains(name), "{path}: {page}");
        assert!(!page.contains("<script>alert"), "{path}");
        for control in ['\u{1b}', '\u{202e}', '\0'] {
            assert!(!page.contains(control), "{path}: {control:?}");
        }
    }
    drop(named);
}

#[test]
fn who_shows_a_wrong_password_is_refused_counted_and_noted() {
    if is_stand_in() {
        return;
    }
    let (server, port) = start(&[("metrics-auth", "prom:secret")]);
    let mut raw = server.raw();
    check(&mut raw, "ACL SETUSER me on >pass ~* +@all", "OK");
    check(&mut raw, "ACL SETUSER off off >gone ~* +@all", "OK");
    for path in ["/", "/api/v1/overview", "/report"] {
        let answer = get(port, path);
        assert_eq!(status(&answer), "401", "{path}");
        assert!(
            answer.contains("www-authenticate: Basic realm=\"basalt\""),
            "{path}"
        );
        for good in [basic("prom:secret"), basic("me:pass")] {
            assert_eq!(status(&get_with(port, path, &good)), "200", "{path}");
        }
    }
    // The script of an open page is refused without a word that has the browser ask.
    let answer = get(port, "/events?page=/");
    assert!(
        status(&answer) == "403" && !answer.contains("www-authenticate"),
        "{answer}"
    );
    let before = support::info_number(&mut raw, "stats", "acl_access_denied_auth");
    let events = get_with(port, "/events?page=/", &basic("me:wrong"));
    assert_eq!(status(&events), "403", "{events}");
    let wrong = [
        basic("me:wrong"),
        // Any password would do for it: a success reveals nothing of the user.
        basic("default:guessed"),
        basic("nobody:pass"),
        basic("off:gone"),
        basic("prom:wrong"),
        basic("me"),
        "Authorization: Bearer wrong\r\n".to_owned(),
        "Authorization: Basic %%%\r\n".to_owned(),
        "Authorization: Digest x\r\n".to_owned(),
        "Authorization: \r\n".to_owned(),
    ];
    for headers in &wrong {
        assert_eq!(status(&get_with(port, "/", headers)), "401", "{headers}");
    }
    let after = support::info_number(&mut raw, "stats", "acl_access_denied_auth");
    assert_eq!(after - before, wrong.len() as f64 + 1.0);
    let log = raw.call("ACL LOG");
    let entries = log.items().iter().map(|entry| entry.items());
    let noted: Vec<(String, String)> = entries
        .map(|fields| (fields[7].text(), fields[9].text()))
        .collect();
    for user in ["me", "nobody", "off", "prom"] {
        let entry = ("console".to_owned(), user.to_owned());
        assert!(noted.contains(&entry), "{user}: {noted:?}");
    }
    // Styles and scripts have nothing to hide.
    assert_eq!(status(&get(port, "/console.css")), "200");
    let signed_in = get_with(port, "/sign-in", &basic("me:pass"));
    assert!(
        status(&signed_in) == "303" && signed_in.contains("location: /"),
        "{signed_in}"
    );
    assert_eq!(
        status(&get_with(port, "/sign-in", &basic("prom:secret"))),
        "401"
    );
}

#[test]
fn directives_that_differ_are_shown_and_secrets_are_not() {
    if is_stand_in() {
        return;
    }
    let (_server, port) = start(&[
        ("maxmemory", "77mb"),
        ("masterauth", "very-secret"),
        ("metrics-key-names", "yes"),
    ]);
    for path in ["/configuration", "/api/v1/config", "/report"] {
        let page = page_of(port, path, "");
        assert!(
            page.contains("masterauth") && !page.contains("very-secret"),
            "{path}"
        );
        assert!(page.contains("80740352"), "{path}: {page}");
        assert!(!page.contains("appendfsync"), "{path}");
    }
}
