//! The endpoint through its socket.

use std::io::{Read, Write};
use std::net::TcpStream;

use super::places::CONNECTIONS_MAX;
use super::*;
use crate::state::Service;
use crate::telemetry::Telemetry;
use basalt_commands::config::Config;

fn endpoint() -> (ExporterHandle, Arc<Service>) {
    let telemetry = Telemetry::new(None, 1);
    let service = Arc::new(crate::start::build(
        Arc::new(Config::default()),
        2,
        telemetry,
    ));
    let listener = TcpListener::bind(("127.0.0.1", 0)).expect("a free port");
    let handle =
        start(vec![listener], Arc::clone(&service) as _, Arc::new(NoSite)).expect("a thread");
    (handle, service)
}

fn ask(handle: &ExporterHandle, request: &str) -> String {
    let mut stream = TcpStream::connect(handle.addresses()[0]).expect("it listens");
    stream.write_all(request.as_bytes()).expect("it reads");
    let mut reply = String::new();
    stream
        .read_to_string(&mut reply)
        .expect("it answers and closes");
    reply
}

fn get(handle: &ExporterHandle, path: &str) -> String {
    ask(
        handle,
        &format!("GET {path} HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n"),
    )
}

#[test]
fn metrics_and_health_are_served_and_ready_follows_the_server() {
    let (handle, service) = endpoint();
    let metrics = get(&handle, "/metrics");
    assert!(metrics.starts_with("HTTP/1.1 200 OK\r\n"), "{metrics}");
    assert!(metrics.contains("content-type: text/plain; version=0.0.4"));
    assert!(metrics.contains("\nredis_up 1\n"));
    assert!(get(&handle, "/health").ends_with("\r\n\r\nok\n"));
    assert!(get(&handle, "/ready").starts_with("HTTP/1.1 503 "));
    service.telemetry.set_ready(true);
    assert!(get(&handle, "/ready").starts_with("HTTP/1.1 200 "));
}

#[test]
fn a_page_is_compressed_where_that_is_asked_for_and_worth_it() {
    let (handle, _service) = endpoint();
    let mut stream = TcpStream::connect(handle.addresses()[0]).expect("it listens");
    let ask =
        "GET /metrics HTTP/1.1\r\nHost: x\r\nAccept-Encoding: gzip\r\nConnection: close\r\n\r\n";
    stream.write_all(ask.as_bytes()).expect("it reads");
    let mut reply = Vec::new();
    stream
        .read_to_end(&mut reply)
        .expect("it answers and closes");
    let split = reply.windows(4).position(|four| four == b"\r\n\r\n");
    let (head, body) = reply.split_at(split.expect("a head") + 4);
    let head = std::str::from_utf8(head).expect("a text");
    assert!(head.contains("content-encoding: gzip") && head.contains("vary: Accept-Encoding"));
    let mut page = String::new();
    flate2::read::GzDecoder::new(body)
        .read_to_string(&mut page)
        .expect("gzip");
    assert!(page.contains("\nredis_up 1\n") && page.ends_with('\n'));
    assert!(
        body.len() * 3 < page.len(),
        "{} of {}",
        body.len(),
        page.len()
    );

    let plain = get(&handle, "/metrics");
    assert!(!plain.contains("content-encoding") && plain.contains("vary: Accept-Encoding"));
}

#[test]
fn other_paths_and_methods_are_refused_and_head_has_no_body() {
    let (handle, _service) = endpoint();
    assert!(get(&handle, "/else").starts_with("HTTP/1.1 404 "));
    let post =
        "POST /metrics HTTP/1.1\r\nHost: x\r\nContent-Length: 0\r\nConnection: close\r\n\r\n";
    let refused = ask(&handle, post);
    assert!(refused.starts_with("HTTP/1.1 405 ") && refused.contains("allow: GET, HEAD"));
    let head = ask(
        &handle,
        "HEAD /health HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n",
    );
    assert!(
        head.contains("content-length: 3") && head.ends_with("\r\n\r\n"),
        "{head}"
    );
}

#[test]
fn one_connection_serves_several_requests() {
    let (handle, _service) = endpoint();
    let one = "GET /health HTTP/1.1\r\nHost: x\r\n\r\n";
    let last = "GET /ready HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n";
    let replies = ask(&handle, &format!("{one}{one}{last}"));
    assert_eq!(replies.matches("HTTP/1.1 200 ").count(), 2);
    assert_eq!(replies.matches("HTTP/1.1 503 ").count(), 1);
}

#[test]
fn garbage_and_endless_heads_end_the_connection_and_nothing_else() {
    let (handle, _service) = endpoint();
    assert!(ask(&handle, "*1\r\n$4\r\nPING\r\n").starts_with("HTTP/1.1 400 "));
    let long = format!(
        "GET / HTTP/1.1\r\nX: {}\r\n\r\n",
        "y".repeat(2 * HEAD_BYTES_MAX)
    );
    let mut stream = TcpStream::connect(handle.addresses()[0]).expect("it listens");
    // The server may hang up before reading everything.
    let _ = stream.write_all(long.as_bytes());
    let mut reply = Vec::new();
    let _ = stream.read_to_end(&mut reply);
    assert!(!reply.starts_with(b"HTTP/1.1 200"));
    assert!(get(&handle, "/health").ends_with("ok\n"));
}

#[test]
fn probes_are_answered_whatever_those_hold_who_never_read() {
    let (handle, _service) = endpoint();
    let scrapes = "GET /metrics HTTP/1.1\r\nHost: x\r\n\r\n".repeat(200);
    let greedy: Vec<TcpStream> = (0..2 * CONNECTIONS_MAX)
        .map(|_| {
            let mut stream = TcpStream::connect(handle.addresses()[0]).expect("it listens");
            // Later connections evict the first.
            let _ = stream.write_all(scrapes.as_bytes());
            stream
        })
        .collect();
    for _ in 0..3 {
        assert!(get(&handle, "/health").ends_with("ok\n"));
    }
    drop(greedy);
}

#[test]
fn a_probe_waits_for_few_scrapes_however_many_are_asked_for() {
    let (handle, _service) = endpoint();
    let scrapes = "GET /metrics HTTP/1.1\r\nHost: x\r\n\r\n".repeat(100);
    let mut greedy: Vec<TcpStream> = (0..CONNECTIONS_MAX / 2)
        .map(|_| {
            let mut stream = TcpStream::connect(handle.addresses()[0]).expect("it listens");
            stream.write_all(scrapes.as_bytes()).expect("there is room");
            stream
        })
        .collect();
    assert!(get(&handle, "/health").ends_with("ok\n"));
    let mut made = 0;
    for stream in &mut greedy {
        stream.set_nonblocking(true).expect("a socket");
        let mut answers = vec![0; 1 << 20];
        let count = stream.read(&mut answers).unwrap_or(0);
        let starts = answers[..count].windows(15);
        made += starts.filter(|bytes| bytes == b"HTTP/1.1 200 OK").count();
    }
    assert!(made < 3 * CONNECTIONS_MAX, "{made} scrapes were made");
}

#[test]
fn a_dropped_handle_gives_the_port_back() {
    let (handle, _service) = endpoint();
    let address = handle.addresses()[0];
    drop(handle);
    assert!(TcpStream::connect(address).is_err());
}

#[test]
fn every_answer_tells_browsers_that_it_is_for_no_other_site() {
    let (handle, _service) = endpoint();
    let post =
        "POST /metrics HTTP/1.1\r\nHost: x\r\nContent-Length: 0\r\nConnection: close\r\n\r\n";
    let answers = ["/metrics", "/health", "/ready", "/", "/else"].map(|path| get(&handle, path));
    for answer in answers.into_iter().chain([ask(&handle, post)]) {
        for header in [
            "x-content-type-options: nosniff\r\n",
            "cross-origin-resource-policy: same-origin\r\n",
            "content-security-policy: default-src 'none'; frame-ancestors 'none'\r\n",
            "cache-control: no-store\r\n",
        ] {
            assert!(answer.contains(header), "{header} in {answer}");
        }
    }
}

#[test]
fn scrapers_come_by_any_name_and_browsers_by_own_names_only() {
    let (handle, _service) = endpoint();
    let scrape = |host: &str, header: &str| {
        let request =
            format!("GET /metrics HTTP/1.1\r\nHost: {host}\r\n{header}Connection: close\r\n\r\n");
        ask(&handle, &request)[9..12].to_owned()
    };
    for (scraper, browser) in [
        (
            "User-Agent: Prometheus/3.5.0\r\n",
            "User-Agent: Mozilla/5.0 (X11)\r\n",
        ),
        (
            "User-Agent: curl/8.5.0\r\n",
            "Origin: http://evil.example.com\r\n",
        ),
        ("", "Sec-Fetch-Mode: cors\r\n"),
    ] {
        assert_eq!(
            scrape("cache.default.svc:9121", scraper),
            "200",
            "{scraper}"
        );
        assert_eq!(scrape("evil.example.com:9121", browser), "421", "{browser}");
        assert_eq!(scrape("127.0.0.1:9121", browser), "200", "{browser}");
        assert_eq!(scrape("localhost:9121", browser), "200", "{browser}");
    }
}
