//! The console and its API on the metrics port: its replies, its access rights, and that bad requests gain
//! nothing.

mod bounds;
mod rights;

use std::io::{Read, Write};
use std::net::TcpStream;
use std::time::Duration;

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

/// Encodes a user's name and password as Base64.
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

/// Returns the paths that the API names.
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

/// A page's events, as they come.
struct Followed {
    stream: TcpStream,
    said: String,
}

impl Followed {
    fn open(port: u16, page: &str, headers: &str) -> Followed {
        let mut stream = TcpStream::connect(("127.0.0.1", port)).expect("the metrics port");
        let request =
            format!("GET /events?page={page} HTTP/1.1\r\nHost: localhost\r\n{headers}\r\n");
        stream.write_all(request.as_bytes()).expect("send");
        let patience = Some(Duration::from_secs(30));
        stream.set_read_timeout(patience).expect("a socket");
        Followed {
            stream,
            said: String::new(),
        }
    }

    /// Reads on; false at the end.
    fn more(&mut self) -> bool {
        let mut buffer = [0; 65_536];
        let count = self.stream.read(&mut buffer).expect("something comes");
        self.said
            .push_str(&String::from_utf8_lossy(&buffer[..count]));
        count > 0
    }

    /// Reads until an event contains a text.
    fn until(&mut self, said: &str) {
        while !self.said.contains(said) {
            assert!(self.more(), "it ended before {said}: {}", self.said);
        }
    }
}

#[test]
fn what_was_never_done_is_not_said_to_have_gone_well() {
    if is_stand_in() {
        return;
    }
    let (server, port) = start(&[]);
    let page = page_of(port, "/persistence", "");
    assert!(
        page.contains("No snapshot has been written since the server started."),
        "{page}"
    );
    assert!(!page.contains("rdb_last_save_time") && !page.contains("rdb_last_bgsave_status"));
    let mut raw = server.raw();
    raw.call("SET key value");
    check(&mut raw, "SAVE", "OK");
    let page = page_of(port, "/persistence", "");
    assert!(page.contains("data-field=\"rdb_last_save_time\""), "{page}");
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

/// Starts a server with names in all sources: hot and large keys, a client, the slow log, the log.
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
    // An empty server is shown as such.
    let (_empty, port) = start(&[]);
    let page = page_of(port, "/caching", "");
    assert!(
        is_seen(&page, "unused") && !is_seen(&page, "databases"),
        "{page}"
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
fn figures_of_a_page_are_those_of_info() {
    if is_stand_in() {
        return;
    }
    let (server, port, mut raw) = with_names(&[]);
    drop(server.client());
    eventually("the other client has gone", || {
        support::info_number(&mut raw, "clients", "connected_clients") == 1.0
    });
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

/// A folder has the snapshot's name, so that writes are refused until it is removed.
#[test]
fn writes_that_are_refused_for_the_disk_stand_out_and_come_back_by_themselves() {
    if is_stand_in() {
        return;
    }
    let (server, port) = start(&[("save", "100000 1000000")]);
    let mut raw = server.raw();
    eventually("it is ready", || {
        get(port, "/ready").starts_with("HTTP/1.1 200 ")
    });
    let file = server.dir().join("dump.rdb");
    std::fs::create_dir(&file).expect("a folder");
    check(&mut raw, "SET a 1", "OK");
    check(&mut raw, "BGSAVE", "Background saving started");
    eventually("the save fails", || {
        support::info_field(&mut raw, "persistence", "rdb_last_bgsave_status") == "err"
    });
    let refused = raw.call("SET a 2").show();
    assert!(
        refused.contains("MISCONF Redis is configured to save RDB snapshots")
            && refused.contains("The last BGSAVE failed"),
        "{refused}"
    );
    let ready = get(port, "/ready");
    assert!(
        ready.starts_with("HTTP/1.1 503 ") && ready.contains("writes are refused: MISCONF"),
        "{ready}"
    );
    let findings = get(port, "/api/v1/findings");
    assert!(
        findings.contains("\"about\":\"persistence\"")
            && findings.contains("\"remedy\":\"stop-writes-on-bgsave-error\""),
        "{findings}"
    );
    assert!(get(port, "/").contains("Writes are refused because the last BGSAVE failed"));
    let doctor = raw.call("MEMORY DOCTOR").show();
    assert!(doctor.contains("Writes are refused"), "{doctor}");
    std::fs::remove_dir(&file).expect("nothing is in it");
    // No client writes, so no save point is ever reached: it is tried again all the same.
    eventually("writes are taken again", || {
        raw.call("SET a 3").show() == "OK"
    });
    assert!(get(port, "/ready").starts_with("HTTP/1.1 200 "));
    assert!(!get(port, "/api/v1/findings").contains("persistence"));
}

#[test]
fn a_replica_without_its_primary_stands_out() {
    if is_stand_in() {
        return;
    }
    let nobody = support::free_port();
    let (server, port) = start(&[("replicaof", &format!("127.0.0.1 {nobody}"))]);
    let findings = get(port, "/api/v1/findings");
    assert!(
        findings.contains("\"about\":\"replication\"") && findings.contains("is down"),
        "{findings}"
    );
    check(&mut server.raw(), "REPLICAOF NO ONE", "OK");
    assert!(!get(port, "/api/v1/findings").contains("replication"));
}

#[test]
fn a_cluster_that_is_down_stands_out() {
    if is_stand_in() {
        return;
    }
    let (server, port) = start(&[("cluster-enabled", "yes")]);
    let mut raw = server.raw();
    let findings = get(port, "/api/v1/findings");
    assert!(
        findings.contains("\"about\":\"cluster\"")
            && findings.contains("16384 slots are not assigned"),
        "{findings}"
    );
    check(&mut raw, "CLUSTER ADDSLOTSRANGE 0 16383", "OK");
    eventually("it serves", || {
        let findings = get(port, "/api/v1/findings");
        !findings.contains("\"about\":\"cluster\"")
    });
}

#[test]
fn what_is_hidden_or_not_known_yet_says_what_helps() {
    if is_stand_in() {
        return;
    }
    let (server, port) = start(&[]);
    let mut raw = server.raw();
    let keys = get(port, "/keys");
    assert!(
        keys.contains("ACL SETUSER viewer on") && keys.contains("metrics-key-names yes"),
        "{keys}"
    );
    assert!(
        !keys.contains("href=\"/sign-in\""),
        "nobody can sign in: {keys}"
    );
    check(&mut raw, "ACL SETUSER viewer on >secret ~* +@read", "OK");
    assert!(get(port, "/keys").contains("href=\"/sign-in\""));
    let missing = get(port, "/no/such/page");
    assert!(missing.contains("The console is at /."), "{missing}");
    let curve = support::info_text(&mut raw, "missratio", "curve_status");
    assert!(curve.is_some_and(|text| text.contains("reads of many keys")));
}
