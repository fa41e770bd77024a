//! The console and its API on the metrics port: what is answered, to whom, and that nothing bad makes it do more.

use std::io::{Read, Write};
use std::net::{Shutdown, TcpStream};
use std::time::{Duration, Instant};

use crate::support::{self, Options, Server, check, eventually, is_stand_in};
use crate::wire::Raw;

const PAGES: [&str; 11] = [
    "/",
    "/keys",
    "/caching",
    "/clients",
    "/slow-log",
    "/persistence",
    "/replication",
    "/cluster",
    "/configuration",
    "/log",
    "/report",
];

/// A name that is a script, goes back over the line that shows it, and is no UTF-8.
pub(crate) const EVIL: &[u8] = b"<script>alert(1)</script>\"'&\x1b[2J\xe2\x80\xae\xff\x00";

pub(crate) fn start(directives: &[(&str, &str)]) -> (Server, u16) {
    let port = support::free_port();
    let mut options = Options::shards(4).with("metrics-port", &port.to_string());
    for (name, value) in directives {
        options = options.with(name, value);
    }
    (Server::start(&options), port)
}

/// Sends bytes, and reads until the server closes.
fn send(port: u16, bytes: &[u8]) -> String {
    let mut stream = TcpStream::connect(("127.0.0.1", port)).expect("the metrics port");
    let _ = stream.write_all(bytes);
    let mut answer = Vec::new();
    let _ = stream.read_to_end(&mut answer);
    String::from_utf8_lossy(&answer).into_owned()
}

fn get_with(port: u16, path: &str, headers: &str) -> String {
    let request =
        format!("GET {path} HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n{headers}\r\n");
    send(port, request.as_bytes())
}

fn get(port: u16, path: &str) -> String {
    get_with(port, path, "")
}

fn status(answer: &str) -> &str {
    answer.split(' ').nth(1).unwrap_or_default()
}

fn body(answer: &str) -> &str {
    answer.split_once("\r\n\r\n").map_or("", |(_, body)| body)
}

/// Base64, so that a user's name and password can be sent.
fn basic(user: &str) -> String {
    const DIGITS: &[u8] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    let mut text = String::new();
    for three in user.as_bytes().chunks(3) {
        let byte = |at: usize| u32::from(three.get(at).copied().unwrap_or(0));
        let bits = byte(0) << 16 | byte(1) << 8 | byte(2);
        for digit in 0..=three.len() {
            text.push(char::from(DIGITS[(bits >> (18 - 6 * digit) & 63) as usize]));
        }
    }
    format!("Authorization: Basic {text}\r\n")
}

/// The paths that the API names.
fn endpoints(port: u16) -> Vec<String> {
    let list = get(port, "/api/v1");
    let paths = body(&list)
        .split('"')
        .filter(|word| word.starts_with("/api/v1"));
    paths.map(str::to_owned).collect()
}

#[test]
fn each_page_and_each_path_of_the_api_is_answered_and_may_load_nothing_from_elsewhere() {
    if is_stand_in() {
        return;
    }
    let (server, port) = start(&[]);
    let mut raw = server.raw();
    for index in 0..100 {
        raw.call(&format!("SET key:{index} value"));
        raw.call(&format!("GET key:{index}"));
    }
    let assets: usize = ["/console.css", "/console.js", "/icon.svg"]
        .iter()
        .map(|path| {
            let answer = get(port, path);
            assert_eq!(status(&answer), "200", "{path}");
            body(&answer).len()
        })
        .sum();
    for path in PAGES {
        let answer = get(port, path);
        assert_eq!(status(&answer), "200", "{path}");
        let head = answer.split("\r\n\r\n").next().unwrap_or_default();
        assert!(
            head.contains("content-security-policy: default-src 'none'"),
            "{head}"
        );
        assert!(
            head.contains("x-content-type-options: nosniff")
                && head.contains("cache-control: no-store")
        );
        let page = body(&answer);
        for elsewhere in [
            "http://",
            "https://",
            "//cdn",
            "onclick",
            "javascript:",
            "style=\"",
        ] {
            assert!(!page.contains(elsewhere), "{path}: {elsewhere}");
        }
        assert!(
            page.len() + assets <= 200_000,
            "{path}: {} bytes",
            page.len() + assets
        );
        assert!(!page.contains("NaN") && !page.contains("inf "), "{path}");
    }
    let report = get(port, "/report");
    assert!(!body(&report).contains("<script") && !body(&report).contains("<link"));
    let paths = endpoints(port);
    assert!(paths.len() > 15, "{paths:?}");
    for path in &paths {
        let answer = get(port, path);
        let expected = if path == "/api/v1/log" { "403" } else { "200" };
        assert_eq!(status(&answer), expected, "{path}: {answer}");
        assert!(answer.contains("content-type: application/json"), "{path}");
    }
    let overview = get(port, "/api/v1/overview");
    assert!(
        body(&overview).contains("\"redis_version\":\"7.4.0\""),
        "{overview}"
    );
    for wrong in [
        "/api/v1/history?series=nothing",
        "/api/v1/history?step=hour",
        "/api/v1/latency?since=yesterday",
    ] {
        assert_eq!(status(&get(port, wrong)), "400", "{wrong}");
    }
    let post = "POST /clients HTTP/1.1\r\nHost: localhost\r\nContent-Length: 0\r\nConnection: close\r\n\r\n";
    assert_eq!(status(&send(port, post.as_bytes())), "405");
}

#[test]
fn history_has_a_point_for_each_second() {
    if is_stand_in() {
        return;
    }
    let (server, port) = start(&[]);
    let mut raw = server.raw();
    let points = || -> Vec<(u64, f64)> {
        let answer = get(port, "/api/v1/history?series=ops,memory_used");
        let text = body(&answer);
        let points = text.split_once("\"points\":[").map_or("", |(_, rest)| rest);
        let points = points.split("[").filter_map(|point| {
            let mut values = point.split([',', ']']);
            Some((values.next()?.parse().ok()?, values.next()?.parse().ok()?))
        });
        points.collect()
    };
    eventually("some seconds were read", || {
        check(&mut raw, "SET a 1", "OK");
        let points = points();
        points.len() >= 3 && points.iter().any(|(_, ops)| *ops > 0.0)
    });
    let times: Vec<u64> = points().into_iter().map(|(at_s, _)| at_s).collect();
    assert!(times.is_sorted_by(|one, other| one < other), "{times:?}");
}

#[test]
fn an_open_page_is_sent_its_panels_and_a_reader_that_takes_nothing_disturbs_nobody() {
    if is_stand_in() {
        return;
    }
    let (_server, port) = start(&[]);
    let open = |page: &str| {
        let mut stream = TcpStream::connect(("127.0.0.1", port)).expect("the metrics port");
        let request = format!("GET /events?page={page} HTTP/1.1\r\nHost: localhost\r\n\r\n");
        stream.write_all(request.as_bytes()).expect("send");
        stream
    };
    // None of these ever reads.
    let slow: Vec<TcpStream> = (0..40).map(|_| open("/")).collect();
    let mut stream = open("/");
    stream
        .set_read_timeout(Some(Duration::from_secs(60)))
        .expect("a socket");
    let mut text = String::new();
    let mut buffer = [0; 65_536];
    while text.matches("data: {").count() < 3 {
        let count = stream.read(&mut buffer).expect("events come");
        assert!(count > 0, "the stream ended: {text}");
        text.push_str(&String::from_utf8_lossy(&buffer[..count]));
    }
    assert!(text.contains("content-type: text/event-stream") && text.contains("\"summary\":\"<dl"));
    assert_eq!(status(&get(port, "/")), "200");
    assert!(support::http(port, "/health").ends_with("ok\n"));
    drop(slow);
    for wrong in [
        "/events",
        "/events?page=/nothing",
        "/events?page=/../etc/passwd",
    ] {
        assert_eq!(status(&get(port, wrong)), "404", "{wrong}");
    }
}

#[test]
fn a_thousand_pages_at_once_leave_probes_and_commands_alone() {
    if is_stand_in() {
        return;
    }
    let (server, port) = start(&[]);
    let mut raw = server.raw();
    let descriptors = support::raise_descriptor_limit();
    let count = descriptors.saturating_sub(100).min(1_000);
    let before = support::info_number(&mut raw, "memory", "used_memory");
    for path in ["/", "/events?page=/", "/report"] {
        let request = format!("GET {path} HTTP/1.1\r\nHost: localhost\r\n\r\n");
        let greedy: Vec<TcpStream> = (0..count)
            .filter_map(|_| {
                let mut stream = TcpStream::connect(("127.0.0.1", port)).ok()?;
                // The oldest are let go for the newest.
                let _ = stream.write_all(request.as_bytes());
                Some(stream)
            })
            .collect();
        assert_eq!(greedy.len(), count);
        let began = Instant::now();
        for _ in 0..10 {
            check(&mut raw, "PING", "PONG");
        }
        assert!(began.elapsed() < Duration::from_secs(2), "{path}");
        assert!(support::http(port, "/health").ends_with("ok\n"));
        let used = support::info_number(&mut raw, "memory", "used_memory");
        // A page has less than 200 kB, and 64 are served.
        assert!(used - before < 64e6, "{path}: {}", used - before);
    }
    eventually("pages are answered again", || {
        status(&get(port, "/")) == "200"
    });
}

#[test]
fn what_is_no_http_or_too_much_of_it_is_refused() {
    if is_stand_in() {
        return;
    }
    let (_server, port) = start(&[]);
    assert_eq!(status(&send(port, b"*1\r\n$4\r\nPING\r\n")), "400");
    assert_eq!(status(&send(port, &EVIL.repeat(10))), "400");
    let huge = format!(
        "GET / HTTP/1.1\r\nHost: localhost\r\nX: {}\r\n\r\n",
        "y".repeat(100_000)
    );
    assert_ne!(status(&send(port, huge.as_bytes())), "200");
    let many = format!(
        "GET / HTTP/1.1\r\nHost: localhost\r\n{}\r\n",
        "X: y\r\n".repeat(1_000)
    );
    assert_ne!(status(&send(port, many.as_bytes())), "200");
    let long = format!("/{}", "a".repeat(60_000));
    assert_ne!(status(&get(port, &long)), "200");
    for path in [
        "/../../etc/passwd",
        "/console.css/../../etc/passwd",
        "/%2e%2e/%2e%2e/etc/passwd",
        "/api/v1/../../etc/passwd",
        "/api/v1/clients/..",
        "//etc/passwd",
        "/.",
        "/assets/console.css",
    ] {
        assert_eq!(status(&get(port, path)), "404", "{path}");
    }
    for query in [
        "/?range=%3Cscript%3E",
        "/clients?search=%3Cscript%3E%00%ff&page=99999999999999999999&rows=-1&sort=%27",
        "/clients?page=18446744073709551615&rows=18446744073709551615",
        "/api/v1/clients?rows=0&page=0",
        "/api/v1/slow-log?count=99999999999999",
        "/api/v1/history?series=all&since=18446744073709551615",
    ] {
        let answer = get(port, query);
        assert_eq!(status(&answer), "200", "{query}: {answer}");
        assert!(!answer.contains("<script>"), "{query}");
    }
    // A client that ends its half early is answered, and a request that is cut short ends the connection.
    let mut stream = TcpStream::connect(("127.0.0.1", port)).expect("the metrics port");
    stream.write_all(b"GET /cons").expect("send");
    stream.shutdown(Shutdown::Write).expect("a socket");
    let mut rest = Vec::new();
    let _ = stream.read_to_end(&mut rest);
    assert_eq!(status(&get(port, "/")), "200");
}

#[test]
fn only_own_names_of_the_server_are_answered() {
    if is_stand_in() {
        return;
    }
    let (server, port) = start(&[]);
    let ask = |host: &str| {
        let request = format!("GET /api/v1/overview HTTP/1.1\r\n{host}Connection: close\r\n\r\n");
        status(&send(port, request.as_bytes())).to_owned()
    };
    for own in [
        "Host: localhost:9121\r\n".to_owned(),
        format!("Host: 127.0.0.1:{port}\r\n"),
        "Host: [::1]\r\n".to_owned(),
    ] {
        assert_eq!(ask(&own), "200", "{own}");
    }
    for other in [
        "",
        "Host: evil.example.com\r\n",
        "Host: 127.0.0.1.evil.example.com\r\n",
        "Host: localhost\r\nHost: evil.example.com\r\n",
    ] {
        assert_eq!(ask(other), "421", "{other}");
    }
    // A scraper may come by any name, as it always could.
    let scrape = b"GET /metrics HTTP/1.1\r\nHost: cache.svc\r\nConnection: close\r\n\r\n";
    assert_eq!(status(&send(port, scrape)), "200");
    let mut raw = server.raw();
    check(
        &mut raw,
        "CONFIG SET console-hosts \"cache.svc other\"",
        "OK",
    );
    assert_eq!(ask("Host: cache.svc:9121\r\n"), "200");
    assert!(raw.call("CONFIG SET console-hosts a/b").is_error());
}

#[test]
fn the_console_is_off_where_that_is_said() {
    if is_stand_in() {
        return;
    }
    let (server, port) = start(&[("console", "no")]);
    let mut raw = server.raw();
    for path in PAGES
        .into_iter()
        .skip(1)
        .chain(["/api/v1", "/events?page=/", "/console.js"])
    {
        assert_eq!(status(&get(port, path)), "404", "{path}");
    }
    assert!(get(port, "/").ends_with("basalt: /metrics /health /ready\n"));
    check(&mut raw, "CONFIG SET console yes", "OK");
    assert_eq!(status(&get(port, "/keys")), "200");
}

/// A server with names in every place: keys that are hot and large, a client, the slow log, the log.
fn with_names(directives: &[(&str, &str)]) -> (Server, u16, Raw) {
    let common = [
        ("hot-keys-sample", "1"),
        ("slowlog-log-slower-than", "0"),
        ("maxmemory", "1gb"),
    ];
    let (server, port) = start(&[&common[..], directives].concat());
    let mut raw = server.raw();
    let key = |name: &[u8]| [name, EVIL].concat();
    check(&mut raw, "CLIENT SETNAME secret-<client>", "OK");
    for _ in 0..50 {
        raw.command(&[&b"SET"[..], &key(b"hot:"), b"secret-value"]);
        raw.command(&[&b"GET"[..], &key(b"hot:")]);
    }
    raw.command(&[&b"SETRANGE"[..], &key(b"big:"), b"200000", b"secret-value"]);
    (server, port, raw)
}

fn page_of(port: u16, path: &str, headers: &str) -> String {
    let answer = get_with(port, path, headers);
    assert_eq!(status(&answer), "200", "{path}: {answer}");
    body(&answer).to_owned()
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
        // Values are shown to nobody.
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

/// Others than clients name themselves, too: a replica its address, and whoever makes users theirs.
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
fn databases_leases_and_locks_are_shown_where_there_are_some() {
    if is_stand_in() {
        return;
    }
    let (server, port) = start(&[("maxmemory-db", "3 1mb")]);
    let mut raw = server.raw();
    let is_seen = |page: &str, panel: &str| {
        let mark = format!("aria-labelledby=\"t-{panel}\"");
        let (_, rest) = page.split_once(&mark).expect("a panel");
        !rest.starts_with(" hidden")
    };
    let panels = ["leases", "tags", "locks", "rates", "due"];
    let page = page_of(port, "/caching", "");
    // A share is something to show, though nothing is there yet.
    assert!(
        is_seen(&page, "databases")
            && page.contains("value=\"1048576\" data-field=\"database3.share\"")
    );
    for panel in panels {
        assert!(!is_seen(&page, panel), "{panel}: {page}");
    }
    raw.call("SELECT 3");
    for line in [
        "SET key value",
        "GET key",
        "GET other",
        "LGET page LEASE 1000",
        "SET tagged value TAGS 1 shop:1",
        "TAG INVALIDATE shop:1",
        "LOCK lock me 1000",
        "UNLOCK lock me",
        "CL.THROTTLE login 1 1 60",
        "ZADD jobs 1 mail",
        "BZPOPDUE jobs 1",
    ] {
        let reply = raw.call(line);
        assert!(!reply.is_error(), "{line}: {reply:?}");
    }
    let page = page_of(port, "/caching", "");
    for panel in panels {
        assert!(is_seen(&page, panel), "{panel}: {page}");
    }
    assert!(!is_seen(&page, "unused"));
    for figure in [
        "database3.hits",
        "leases_given",
        "tags_keys_invalidated",
        "due_members_taken",
    ] {
        let shown = format!("value=\"1\" data-field=\"{figure}\"");
        assert!(page.contains(&shown), "{figure}: {page}");
    }
    let databases = page_of(port, "/api/v1/databases", "");
    assert!(
        databases.contains("\"db\":3") && databases.contains("\"share\":1048576"),
        "{databases}"
    );
    assert!(page_of(port, "/api/v1/leases", "").contains("\"leases_given\":1"));
    assert!(page_of(port, "/api/v1/locks", "").contains("\"locks_taken\":1"));
    // A server that holds nothing says so.
    let (_empty, port) = start(&[]);
    let page = page_of(port, "/caching", "");
    assert!(
        is_seen(&page, "unused") && !is_seen(&page, "databases"),
        "{page}"
    );
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
    for path in ["/", "/api/v1/overview", "/events?page=/", "/report"] {
        let answer = get(port, path);
        assert_eq!(status(&answer), "401", "{path}");
        assert!(
            answer.contains("www-authenticate: Basic realm=\"basalt\""),
            "{path}"
        );
        for good in [basic("prom:secret"), basic("me:pass")] {
            if !path.starts_with("/events") {
                assert_eq!(status(&get_with(port, path, &good)), "200", "{path}");
            }
        }
    }
    let before = support::info_number(&mut raw, "stats", "acl_access_denied_auth");
    let wrong = [
        basic("me:wrong"),
        // Any password would do for it: that shows nothing of who asks.
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
    assert_eq!(after - before, wrong.len() as f64);
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
fn clients_are_searched_sorted_and_shown_page_by_page() {
    if is_stand_in() {
        return;
    }
    let (server, port) = start(&[("metrics-key-names", "yes")]);
    let clients: Vec<Raw> = (0..60)
        .map(|number| {
            let mut raw = server.raw();
            check(&mut raw, &format!("CLIENT SETNAME web-{number:02}"), "OK");
            raw
        })
        .collect();
    let found = |query: &str| page_of(port, &format!("/api/v1/clients?{query}"), "");
    let page = found("search=web-&sort=name&order=desc&rows=10&page=2");
    assert!(
        page.contains("\"matching\":60") && page.contains("\"pages\":6"),
        "{page}"
    );
    let names: Vec<&str> = page
        .split("\"name\":\"")
        .skip(1)
        .filter_map(|rest| rest.split('"').next())
        .collect();
    let expected: Vec<String> = (40..50)
        .rev()
        .map(|number| format!("web-{number:02}"))
        .collect();
    assert_eq!(names, expected);
    assert!(found("search=WEB-07").contains("\"matching\":1"));
    assert!(found("search=nothing").contains("\"matching\":0"));
    // Behind the last page there is the last one.
    assert!(found("search=web-&rows=50&page=9").contains("\"page\":2"));
    let shown = page_of(port, "/clients?search=web-&sort=memory&order=desc", "");
    assert!(
        shown.contains("aria-sort=\"descending\"") && shown.contains("Page 1 of 2"),
        "{shown}"
    );
    drop(clients);
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

#[test]
fn figures_of_a_page_are_those_of_info() {
    if is_stand_in() {
        return;
    }
    let (server, port, mut raw) = with_names(&[]);
    drop(server.client());
    let shown = |page: &str, field: &str| -> f64 {
        let mark = format!("data-field=\"{field}\"");
        let before = page.split(&mark).next().unwrap_or_default();
        let value = before.rsplit("value=\"").next().unwrap_or_default();
        let value = value.split('"').next().unwrap_or_default();
        value
            .parse()
            .unwrap_or_else(|_| panic!("no figure of {field}"))
    };
    let page = page_of(port, "/", "");
    for (section, field) in [
        ("stats", "keyspace_hits"),
        ("stats", "keyspace_misses"),
        ("stats", "evicted_keys"),
        ("memory", "maxmemory"),
    ] {
        let said = support::info_number(&mut raw, section, field);
        assert_eq!(shown(&page, field), said, "{field}");
    }
    assert_eq!(shown(&page, "keys"), 2.0);
    assert_eq!(shown(&page, "connected_clients"), 1.0);
}
