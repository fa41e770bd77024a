//! Host names under which a browser may send requests. With DNS rebinding, a page of another site can make that
//! site's name resolve to this machine and then read this server's pages as its own; the host name of the request
//! reveals it.
//!
//! A [`Site`](super::Site)'s pages are for browsers and require one of the server's own names. `/metrics` is for
//! scrapers, which use whatever name a service has at the time (Docker, Kubernetes), so only browsers need an own
//! name there ([`is_browser`]). `/health` and `/ready` reveal nothing of use to another site.

use std::net::IpAddr;

use hyper::header::{HOST, HeaderMap, ORIGIN, USER_AGENT};
use hyper::{Request, body::Incoming};

use basalt_commands::config::Config;

/// Response to a browser whose request names a host that is not this server.
pub const FOREIGN: &str =
    "Unknown host name. Use the address of the server, or add the name to console-hosts.
";

/// Whether a request's host name is one of this server's names.
pub fn has_own_host(request: &Request<Incoming>, config: &Config) -> bool {
    let mut named = request.headers().get_all(HOST).iter();
    let host = match (request.uri().authority(), named.next(), named.next()) {
        (Some(authority), ..) => authority.as_str(),
        (None, Some(host), None) => host.to_str().unwrap_or_default(),
        (None, ..) => "",
    };
    is_ours(host, config, &own_name())
}

/// Whether a request comes from a browser. A browser's user agent begins with `Mozilla/`, which a page cannot
/// change in most browsers, and its requests carry their mode or the origin of the page; scrapers and probes do
/// none of that.
pub(super) fn is_browser(headers: &HeaderMap) -> bool {
    let name = headers.get(USER_AGENT);
    name.is_some_and(|name| name.as_bytes().starts_with(b"Mozilla/"))
        || headers.contains_key("sec-fetch-mode")
        || headers.contains_key(ORIGIN)
}

fn own_name() -> String {
    let names = rustix::system::uname();
    names.nodename().to_string_lossy().into_owned()
}

/// Whether `host` is an address, `localhost`, the machine's own name or one of `console-hosts`, with or without a
/// port.
fn is_ours(host: &str, config: &Config, own_name: &str) -> bool {
    let Some(name) = without_port(host) else {
        return false;
    };
    if name.parse::<IpAddr>().is_ok() {
        return true;
    }
    let name = name.strip_suffix('.').unwrap_or(name);
    let mut listed = config.console_hosts.split_ascii_whitespace();
    let is = |other: &str| !other.is_empty() && name.eq_ignore_ascii_case(other);
    is("localhost") || is(own_name) || listed.any(is)
}

/// Returns the host of `host[:port]`, without the brackets of an IPv6 address; `None` if the text after the
/// host is not a port.
fn without_port(host: &str) -> Option<&str> {
    let (name, port) = match host.strip_prefix('[') {
        Some(rest) => rest.split_once(']')?,
        None => host.split_at(host.find(':').unwrap_or(host.len())),
    };
    let is_port = match port.strip_prefix(':') {
        Some(digits) => digits.bytes().all(|digit| digit.is_ascii_digit()),
        None => port.is_empty(),
    };
    (is_port && !name.is_empty()).then_some(name)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_and_own_names_are_taken_and_others_are_not() {
        let config = Config {
            console_hosts: "cache.example.com  other.internal".to_owned(),
            ..Config::default()
        };
        for host in [
            "127.0.0.1",
            "127.0.0.1:9121",
            "[::1]:9121",
            "[fe80::1]",
            "localhost",
            "LOCALHOST.:80",
            "cache-7:9121",
            "Cache.Example.com",
            "other.internal:1",
        ] {
            assert!(is_ours(host, &config, "cache-7"), "{host}");
        }
        for host in [
            "",
            ":9121",
            "evil.example.com",
            "evil.example.com:9121",
            "localhost.evil.com",
            "cache.example.com.evil.com",
            "127.0.0.1.evil.com",
            "localhost:80@evil.com",
            "localhost:x",
            "[::1",
            "::1",
            "other.internal cache.example.com",
        ] {
            assert!(!is_ours(host, &config, "cache-7"), "{host}");
        }
        assert!(!is_ours("", &config, "") && !is_ours(".", &config, ""));
    }
}
