//! The console: pages on the metrics port that show the server's state, and the same as JSON.
//!
//! All contents are read from published figures by the thread that serves metrics. No shard is locked, except
//! by the two queries of keys ([`Observed::big_keys`], [`Observed::sample`]), which skip a shard that is
//! locked. The console changes nothing, and never shows the values of keys.
//!
//! ```text
//! viewer         the authenticated viewer, and what that user's rules allow to see
//! query          the query string
//! view           the server at a moment, and its viewer
//! room           the bytes that a page may take
//! facts          lists beyond INFO's figures: clients, keys, slots, directives
//! api            the facts as JSON, a row per path
//! chart          charts, as SVG
//! pages          the facts as pages made of panels, a row per page
//! live           panels resent as events while a page is open
//! ```

mod api;
mod chart;
mod facts;
mod live;
mod pages;
mod query;
mod room;
mod view;
mod viewer;

use std::sync::Arc;
use std::time::Duration;

use http_body_util::{BodyExt, Full};
use hyper::body::{Bytes, Incoming};
use hyper::header::{self, HeaderMap, HeaderName, HeaderValue};
use hyper::{Method, Request, Response, StatusCode};

use crate::telemetry::exporter::{ResponseBody, Site, SiteResponse, Visit, answers, hosts};
use crate::telemetry::observed::Observed;
use live::LiveUpdates;
use query::Query;
use view::View;
use viewer::{ConsoleDenial, Credentials};

/// The console; see the module.
pub struct Console {
    service: Arc<dyn Observed>,
    live: Arc<LiveUpdates>,
}

/// Content security policy of the console's pages: load only from this server.
const POLICY: &str = "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; connect-src 'self'; \
                      base-uri 'none'; form-action 'self'; frame-ancestors 'none'";

/// Content security policy of a report, whose styles are inline.
const REPORT_POLICY: &str = "default-src 'none'; style-src 'unsafe-inline'; base-uri 'none'; form-action 'none'; \
                             frame-ancestors 'none'";

/// [`REPORT_POLICY`] inside a report, for a browser that opens the file; without the directives that only a header
/// can set.
const REPORT_META: &str =
    "default-src 'none'; style-src 'unsafe-inline'; base-uri 'none'; form-action 'none'";

/// Response to an open page that requests updates when too many pages are open.
const TOO_MANY: &str =
    "Too many pages are open: this page is not updated until another one is closed.\n";

/// Seconds after which a page that got `TOO_MANY` retries.
const RETRY_S: &str = "10";

/// Path that makes a browser prompt for a user and password.
const SIGN_IN: &str = "/sign-in";

/// A static file used by pages.
struct Asset {
    path: &'static str,
    kind: &'static str,
    text: &'static str,
}

static ASSETS: [Asset; 3] = [
    Asset {
        path: "/console.css",
        kind: "text/css; charset=utf-8",
        text: include_str!("assets/console.css"),
    },
    Asset {
        path: "/console.js",
        kind: "text/javascript; charset=utf-8",
        text: include_str!("assets/console.js"),
    },
    Asset {
        path: "/icon.svg",
        kind: "image/svg+xml",
        text: include_str!("assets/icon.svg"),
    },
];

impl Console {
    /// Creates the console of a server.
    pub fn new(service: Arc<dyn Observed>) -> Console {
        let live = Arc::new(LiveUpdates::new(Arc::clone(&service)));
        Console { service, live }
    }
}

impl Site for Console {
    fn answer(&self, request: &Request<Incoming>, visit: &Visit) -> Option<SiteResponse> {
        let config = self.service.config();
        if !config.console {
            return None;
        }
        let path = request.uri().path();
        let asset = ASSETS.iter().find(|asset| asset.path == path);
        let is_known = asset.is_some()
            || path == SIGN_IN
            || path == pages::EVENTS
            || pages::find(path).is_some()
            || path == pages::REPORT
            || api::find(path).is_some();
        if !is_known {
            return None;
        }
        let headers = request.headers();
        let mut answer = SiteResponse {
            response: self.respond(request, visit, asset),
            after: Duration::ZERO,
        };
        if answer.response.extensions().get() == Some(&ConsoleDenial::Unknown) {
            answer.after = viewer::failed(&*self.service, headers, visit.peer);
        }
        Some(answer)
    }
}

impl Console {
    fn respond(
        &self,
        request: &Request<Incoming>,
        visit: &Visit,
        asset: Option<&Asset>,
    ) -> Response<ResponseBody> {
        let (path, headers) = (request.uri().path(), request.headers());
        if !matches!(*request.method(), Method::GET | Method::HEAD) {
            let mut response = plain(
                StatusCode::METHOD_NOT_ALLOWED,
                "Only GET and HEAD are allowed.\n",
            );
            let allowed = HeaderValue::from_static("GET, HEAD");
            response.headers_mut().insert(header::ALLOW, allowed);
            return response;
        }
        if !hosts::has_own_host(request, &self.service.config()) {
            return plain(StatusCode::MISDIRECTED_REQUEST, hosts::FOREIGN);
        }
        if let Some(asset) = asset {
            let mut response = answers::page(headers, asset.text.as_bytes().to_vec());
            set(&mut response, header::CONTENT_TYPE, asset.kind);
            set(&mut response, header::CACHE_CONTROL, "max-age=3600");
            return guarded(response, POLICY);
        }
        let credentials = Credentials::of(headers);
        if path == SIGN_IN {
            return match viewer::sign_in(&*self.service, headers) {
                Ok(viewer) if viewer.user.is_some() => see_other("/"),
                Ok(_) => ask_for_user("Sign in as an ACL user of this server.\n"),
                Err(refused) => refuse(refused),
            };
        }
        let viewer = match credentials.look(&*self.service) {
            Ok(viewer) => viewer,
            Err(refused) if path == pages::EVENTS => return refuse_script(refused),
            Err(refused) => return refuse(refused),
        };
        let query = Query::parse(request.uri().query().unwrap_or_default());
        if path == pages::EVENTS {
            return self.follow(credentials, &query, visit);
        }
        if let Some(endpoint) = api::find(path) {
            let view = View::new(&*self.service, viewer, query);
            return match (endpoint.answer)(&view) {
                Ok(value) => json(headers, StatusCode::OK, &value),
                Err((status, text)) => json(headers, status, &serde_json::json!({ "error": text })),
            };
        }
        let view = View::new(&*self.service, viewer, query);
        let (text, policy) = match pages::find(path) {
            Some(page) => (pages::render(page, &view), POLICY),
            None => (pages::report(view), REPORT_POLICY),
        };
        let mut response = answers::page(headers, text.into_bytes());
        set(
            &mut response,
            header::CONTENT_TYPE,
            "text/html; charset=utf-8",
        );
        guarded(response, policy)
    }
}

impl Console {
    /// Returns the event stream of an open page.
    fn follow(
        &self,
        credentials: Credentials,
        query: &Query,
        visit: &Visit,
    ) -> Response<ResponseBody> {
        let Some(shown) = query.get("page").and_then(pages::find) else {
            return plain(StatusCode::NOT_FOUND, "There is no such page.\n");
        };
        match visit.stay() {
            Some(stay) => events(LiveUpdates::open(
                &self.live,
                credentials,
                shown,
                query,
                visit.ends,
                stay,
            )),
            None => {
                let mut response = plain(StatusCode::SERVICE_UNAVAILABLE, TOO_MANY);
                set(&mut response, header::RETRY_AFTER, RETRY_S);
                response
            }
        }
    }
}

fn set(response: &mut Response<ResponseBody>, name: HeaderName, value: &'static str) {
    let value = HeaderValue::from_static(value);
    response.headers_mut().insert(name, value);
}

/// Adds the content security policy.
fn guarded(mut response: Response<ResponseBody>, policy: &'static str) -> Response<ResponseBody> {
    set(&mut response, header::CONTENT_SECURITY_POLICY, policy);
    response
}

fn plain(status: StatusCode, text: impl Into<Bytes>) -> Response<ResponseBody> {
    guarded(answers::text(status, text), POLICY)
}

fn json(
    asked: &HeaderMap,
    status: StatusCode,
    value: &serde_json::Value,
) -> Response<ResponseBody> {
    // These three characters occur only within strings; escaped, they are harmless even if a program puts the
    // response into a page.
    let text = value.to_string().replace('<', "\\u003c");
    let mut text = text.replace('>', "\\u003e").replace('&', "\\u0026");
    text.push('\n');
    let mut response = answers::page(asked, text.into_bytes());
    *response.status_mut() = status;
    set(&mut response, header::CONTENT_TYPE, "application/json");
    guarded(response, POLICY)
}

fn events(body: ResponseBody) -> Response<ResponseBody> {
    let mut response = Response::new(body);
    set(&mut response, header::CONTENT_TYPE, "text/event-stream");
    // Close this connection afterwards: the next stream needs a new one, so that the connection's time limit
    // does not cut it short.
    set(&mut response, header::CONNECTION, "close");
    guarded(response, POLICY)
}

fn ask_for_user(text: &'static str) -> Response<ResponseBody> {
    let mut response = plain(StatusCode::UNAUTHORIZED, text);
    set(
        &mut response,
        header::WWW_AUTHENTICATE,
        "Basic realm=\"basalt\", charset=\"UTF-8\"",
    );
    response
}

/// Refuses a viewer without credentials, or with wrong ones; the response tells which of the two.
fn refuse(refused: ConsoleDenial) -> Response<ResponseBody> {
    let mut response = ask_for_user(refused.text());
    response.extensions_mut().insert(refused);
    response
}

/// Like [`refuse`], but for requests by the script of an open page, for which the browser must not prompt for a
/// user.
fn refuse_script(refused: ConsoleDenial) -> Response<ResponseBody> {
    let mut response = plain(StatusCode::FORBIDDEN, refused.text());
    response.extensions_mut().insert(refused);
    response
}

fn see_other(place: &'static str) -> Response<ResponseBody> {
    let mut response = Response::new(Full::new(Bytes::new()).boxed_unsync());
    *response.status_mut() = StatusCode::SEE_OTHER;
    set(&mut response, header::LOCATION, place);
    guarded(response, POLICY)
}
