//! Responses: the endpoint's own pages, and the headers common to all responses.

use std::io::{self, Write};
use std::sync::atomic::Ordering::Relaxed;

use flate2::Compression;
use flate2::write::GzEncoder;
use http_body_util::{BodyExt, Full};
use hyper::body::{Bytes, Incoming};
use hyper::header::{
    ACCEPT_ENCODING, ALLOW, AUTHORIZATION, CACHE_CONTROL, CONTENT_ENCODING,
    CONTENT_SECURITY_POLICY, CONTENT_TYPE, HeaderMap, HeaderName, HeaderValue, REFERRER_POLICY,
    VARY, WWW_AUTHENTICATE, X_CONTENT_TYPE_OPTIONS, X_FRAME_OPTIONS,
};
use hyper::{Method, Request, Response, StatusCode};
use sha2::{Digest, Sha256};

use super::{ResponseBody, hosts};
use crate::telemetry::metrics;
use crate::telemetry::observed::Observed;
use basalt_core::base::{base64, hex, lossless};

/// Minimum size, in bytes, of a page that is compressed.
const COMPRESSED_BYTES_MIN: usize = 1024;

/// Returns the response to a request for one of the endpoint's own pages, or 404.
pub(super) fn own(request: &Request<Incoming>, service: &dyn Observed) -> Response<ResponseBody> {
    let path = request.uri().path();
    if !matches!(path, "/" | "/metrics" | "/health" | "/ready") {
        let console = match service.config().console {
            true => " The console is at /.",
            false => "",
        };
        return text(
            StatusCode::NOT_FOUND,
            format!("Not found. Available paths: /metrics, /health and /ready.{console}\n"),
        );
    }
    if !matches!(*request.method(), Method::GET | Method::HEAD) {
        let mut response = text(
            StatusCode::METHOD_NOT_ALLOWED,
            "Only GET and HEAD are allowed.\n",
        );
        response
            .headers_mut()
            .insert(ALLOW, HeaderValue::from_static("GET, HEAD"));
        return response;
    }
    let config = service.config();
    let is_foreign =
        || hosts::is_browser(request.headers()) && !hosts::has_own_host(request, &config);
    match path {
        "/metrics" if is_foreign() => text(StatusCode::MISDIRECTED_REQUEST, hosts::FOREIGN),
        "/metrics" if !may_read(request.headers(), &config.metrics_auth) => {
            let mut response = text(
                StatusCode::UNAUTHORIZED,
                "A user name and a password are required.\n",
            );
            let asked = HeaderValue::from_static("Basic realm=\"basalt\"");
            response.headers_mut().insert(WWW_AUTHENTICATE, asked);
            response
        }
        "/metrics" => {
            let mut response = page(request.headers(), metrics::render(service).into_bytes());
            let kind = HeaderValue::from_static(metrics::CONTENT_TYPE);
            response.headers_mut().insert(CONTENT_TYPE, kind);
            response
        }
        "/health" => text(StatusCode::OK, "ok\n"),
        "/ready" => match unready(service) {
            None => text(StatusCode::OK, "ready\n"),
            Some(why) => text(StatusCode::SERVICE_UNAVAILABLE, format!("not ready{why}\n")),
        },
        _ => text(StatusCode::OK, "basalt: /metrics /health /ready\n"),
    }
}

/// Returns why clients should not be routed to this server, if so: it is starting or stopping, or it refuses
/// writes because of the disk. A replica stays ready even if it refuses writes.
fn unready(service: &dyn Observed) -> Option<String> {
    let telemetry = service.telemetry();
    if !telemetry.is_ready() {
        return Some(String::new());
    }
    let is_replica = telemetry.replication.is_replica.load(Relaxed);
    let refusal = telemetry.persistence.refusal(&service.config());
    let refusal = refusal.filter(|_| !is_replica)?;
    Some(format!(": writes are refused: {}", refusal.text()))
}

/// Security headers of every response, unless the response sets others: no MIME sniffing, no use by other sites'
/// pages, no caching.
const GUARDS: [(HeaderName, &str); 6] = [
    (X_CONTENT_TYPE_OPTIONS, "nosniff"),
    (
        HeaderName::from_static("cross-origin-resource-policy"),
        "same-origin",
    ),
    (X_FRAME_OPTIONS, "DENY"),
    (REFERRER_POLICY, "no-referrer"),
    (
        CONTENT_SECURITY_POLICY,
        "default-src 'none'; frame-ancestors 'none'",
    ),
    (CACHE_CONTROL, "no-store"),
];

/// Adds the security headers `GUARDS` to a response.
pub(super) fn guarded(mut response: Response<ResponseBody>) -> Response<ResponseBody> {
    let headers = response.headers_mut();
    for (name, value) in GUARDS {
        headers
            .entry(name)
            .or_insert(HeaderValue::from_static(value));
    }
    response
}

/// Returns a page, compressed if the client accepts that and the page is large enough.
pub fn page(asked: &HeaderMap, page: Vec<u8>) -> Response<ResponseBody> {
    let compressed = match takes_gzip(asked) && page.len() >= COMPRESSED_BYTES_MIN {
        true => gzip(&page).ok(),
        false => None,
    };
    let is_compressed = compressed.is_some();
    let mut response = text(StatusCode::OK, compressed.unwrap_or(page));
    let headers = response.headers_mut();
    headers.insert(VARY, HeaderValue::from_static("Accept-Encoding"));
    if is_compressed {
        headers.insert(CONTENT_ENCODING, HeaderValue::from_static("gzip"));
    }
    response
}

fn gzip(page: &[u8]) -> io::Result<Vec<u8>> {
    // The page's recurring numbers and names shrink to a tenth at the fastest level; better levels take several
    // times as long.
    let mut encoder = GzEncoder::new(Vec::with_capacity(page.len() / 4), Compression::fast());
    encoder.write_all(page)?;
    encoder.finish()
}

/// Whether a request accepts gzip (RFC 9110, 12.5.3). A named coding takes precedence over `*`, and weight 0
/// forbids a coding.
fn takes_gzip(asked: &HeaderMap) -> bool {
    let (mut of_gzip, mut of_any) = (None, None);
    for header in asked.get_all(ACCEPT_ENCODING) {
        for coding in header.to_str().unwrap_or_default().split(',') {
            let mut parts = coding.split(';').map(str::trim);
            let name = parts.next().unwrap_or_default().to_ascii_lowercase();
            let weight = parts.find_map(|part| part.strip_prefix("q=").or(part.strip_prefix("Q=")));
            let weight: f64 = weight.map_or(1.0, |weight| weight.parse().unwrap_or(0.0));
            match name.as_str() {
                "gzip" | "x-gzip" => of_gzip = Some(weight > 0.0),
                "*" => of_any = Some(weight > 0.0),
                _ => {}
            }
        }
    }
    of_gzip.or(of_any).unwrap_or(false)
}

/// Whether a request has the credentials required by `metrics-auth`, or none are required.
pub fn may_read(headers: &HeaderMap, asked: &str) -> bool {
    asked.is_empty() || shows_auth(headers, asked)
}

/// Whether headers carry the user and the password of `metrics-auth`. Digests are compared, so that timing reveals
/// nothing about the password.
pub fn shows_auth(headers: &HeaderMap, asked: &str) -> bool {
    let Some((user, secret)) = asked.split_once(':') else {
        return false;
    };
    let header = headers.get(AUTHORIZATION);
    let shown =
        header.and_then(|header| base64::decode(header.as_bytes().strip_prefix(b"Basic ")?));
    let Some(shown) = shown else {
        return false;
    };
    let split = shown.iter().position(|byte| *byte == b':');
    let Some((shown_user, password)) = split.map(|at| (&shown[..at], &shown[at + 1..])) else {
        return false;
    };
    let hexadecimal = |bytes: &[u8]| -> String { hex::text(&Sha256::digest(bytes)) };
    let wanted = match secret.strip_prefix('#') {
        Some(digest) => digest.to_ascii_lowercase(),
        None => hexadecimal(&lossless::bytes_of(secret)),
    };
    let wanted = hexadecimal(&[&*lossless::bytes_of(user), b":", wanted.as_bytes()].concat());
    let shown = hexadecimal(password);
    wanted == hexadecimal(&[shown_user, b":", shown.as_bytes()].concat())
}

/// Returns a plain-text response.
pub fn text(status: StatusCode, body: impl Into<Bytes>) -> Response<ResponseBody> {
    let mut response = Response::new(Full::new(body.into()).boxed_unsync());
    *response.status_mut() = status;
    let kind = HeaderValue::from_static("text/plain; charset=utf-8");
    response.headers_mut().insert(CONTENT_TYPE, kind);
    response
}

#[cfg(test)]
mod tests {
    use super::*;

    fn headers_of(codings: &[&'static str]) -> HeaderMap {
        let values = codings
            .iter()
            .map(|codings| HeaderValue::from_static(codings));
        values.map(|codings| (ACCEPT_ENCODING, codings)).collect()
    }

    #[test]
    fn gzip_is_taken_where_it_is_asked_for_and_not_forbidden() {
        for (codings, taken) in [
            (&[][..], false),
            (&["gzip"], true),
            (&["deflate, GZIP;q=0.5"], true),
            (&["x-gzip"], true),
            (&["*"], true),
            (&["deflate", "br, gzip"], true),
            (&["gzip;q=0"], false),
            (&["gzip; q=0.000, *"], false),
            (&["*;q=0"], false),
            (&["*;q=0, gzip;q=1"], true),
            (&["identity"], false),
            (&["gzippy"], false),
            (&["gzip;q=nonsense"], false),
            (&[""], false),
            (&[",;;q=,=;"], false),
        ] {
            assert_eq!(takes_gzip(&headers_of(codings)), taken, "{codings:?}");
        }
    }

    #[test]
    fn what_is_short_is_not_worth_being_compressed() {
        let encoding = |bytes| {
            let response = page(&headers_of(&["gzip"]), vec![b'x'; bytes]);
            response.headers().contains_key(CONTENT_ENCODING)
        };
        assert!(!encoding(COMPRESSED_BYTES_MIN - 1) && encoding(COMPRESSED_BYTES_MIN));
    }
}
