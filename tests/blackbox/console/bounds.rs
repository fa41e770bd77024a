//! Bad input and excessive load at the console: the effects are small and confined to the client that caused
//! them.

use std::io::{Read, Write};
use std::net::{Shutdown, TcpStream};
use std::time::{Duration, Instant};

use super::{EVIL, Followed, PAGES, body, get, page_of, send, start, status};
use crate::support::{self, check, eventually, is_stand_in};
use crate::wire::Raw;

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
fn the_page_too_many_says_so_and_the_others_go_on() {
    if is_stand_in() {
        return;
    }
    let (_server, port) = start(&[]);
    let mut open: Vec<Followed> = (0..48).map(|_| Followed::open(port, "/", "")).collect();
    for followed in &mut open {
        followed.until("retry: ");
    }
    let refused = get(port, "/events?page=/");
    assert_eq!(status(&refused), "503", "{refused}");
    assert!(refused.contains("retry-after: 10\r\n"), "{refused}");
    assert!(
        body(&refused).contains("Too many pages are open"),
        "{refused}"
    );
    // Pages, scrapes and probes are answered all the same, however many, and no event stream ends.
    for _ in 0..100 {
        assert_eq!(status(&get(port, "/api/v1")), "200");
    }
    assert_eq!(status(&get(port, "/")), "200");
    assert!(support::http(port, "/health").ends_with("ok\n"));
    for followed in &mut open {
        followed.said.clear();
        followed.until("data: {");
    }
    open.pop();
    eventually("a page that is closed makes room", || {
        let mut followed = Followed::open(port, "/", "");
        followed.more();
        status(&followed.said) == "200"
    });
}

/// A page has at most 200 kB with its styles, however names are chosen and whatever is requested.
#[test]
fn pages_are_small_whatever_there_is_to_show() {
    if is_stand_in() {
        return;
    }
    let (server, port) = start(&[
        ("metrics-key-names", "yes"),
        ("hot-keys-sample", "1"),
        ("slowlog-log-slower-than", "0"),
        ("slowlog-max-len", "1000"),
    ]);
    let mut raw = server.raw();
    let user = "\"".repeat(400);
    raw.command(&[
        &b"ACL"[..],
        b"SETUSER",
        user.as_bytes(),
        b"on",
        b"nopass",
        b"~*",
        b"+@all",
    ]);
    let clients: Vec<Raw> = (0..250)
        .map(|_| {
            let mut client = server.raw();
            assert!(
                !client
                    .command(&[&b"AUTH"[..], user.as_bytes(), b"x"])
                    .is_error()
            );
            let name = "\"&<".repeat(100);
            assert!(
                !client
                    .command(&[&b"CLIENT"[..], b"SETNAME", name.as_bytes()])
                    .is_error()
            );
            client
        })
        .collect();
    for number in 0..300 {
        let key = |letter: &str| format!("{}{number}:", letter.repeat(500)).into_bytes();
        let keys: Vec<Vec<u8>> = ["\"", "\x1b", "&", "\u{e0001}"].map(key).to_vec();
        let words = keys.iter().flat_map(|key| [key.as_slice(), b"value"]);
        raw.command(&[&b"MSET"[..]].into_iter().chain(words).collect::<Vec<_>>());
    }
    let assets: usize = ["/console.css", "/console.js", "/icon.svg"]
        .iter()
        .map(|path| body(&get(port, path)).len())
        .sum();
    let search = "%22".repeat(4_000);
    let wide = [
        "/clients?rows=500".to_owned(),
        format!("/clients?rows=500&search={search}"),
        "/report?rows=500".to_owned(),
        "/report?range=5m".to_owned(),
    ];
    for path in PAGES.iter().map(|path| (*path).to_owned()).chain(wide) {
        let answer = get(port, &path);
        assert_eq!(status(&answer), "200", "{path}");
        let bytes = body(&answer).len() + assets;
        assert!(bytes <= 200_000, "{path}: {bytes} bytes");
        assert!(!answer.contains("the page is full"), "{path}");
    }
    let page = page_of(port, "/clients?rows=500", "");
    assert!(page.contains("more rows are not shown"), "{page}");
    drop(clients);
}

/// A report has at most as many rows as a page, whatever is requested.
#[test]
fn a_report_lists_two_hundred_clients() {
    if is_stand_in() {
        return;
    }
    let (server, port) = start(&[]);
    let clients: Vec<Raw> = (0..150)
        .map(|_| {
            let mut raw = server.raw();
            // Only a client that was answered is known to be in the list.
            raw.call("PING");
            raw
        })
        .collect();
    let report = page_of(port, "/report?range=5m", "");
    let (_, rest) = report
        .split_once("aria-label=\"Connections\"")
        .expect("the panel");
    let panel = rest.split("</section>").next().unwrap_or_default();
    let rows = panel.matches("<th scope=\"row\"").count();
    assert!(rows > 100, "{rows} rows");
    drop(clients);
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
                // The oldest are closed for the newest.
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
