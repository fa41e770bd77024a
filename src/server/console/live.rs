//! Panels resent while a page is open, as server-sent events: one event per second, with the panels that are due.
//!
//! An event is produced when it is polled, so nothing is produced for a client that does not read; pages that show
//! the same to viewers with the same rights are sent the same text, which is produced once. The viewer is
//! authenticated again for each event, and the stream ends once it may see nothing any more. A stream ends by
//! itself before its connection is closed, and the browser reconnects.

use std::convert::Infallible;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use http_body_util::BodyExt;
use hyper::body::{Body as HttpBody, Bytes, Frame};
use parking_lot::Mutex;
use tokio::time::{Instant, Interval, MissedTickBehavior, interval};

use super::pages::{self, Page};
use super::query::Query;
use super::view::{self, View};
use super::viewer::{Credentials, Viewer};
use crate::telemetry::clock;
use crate::telemetry::exporter::ResponseBody;
use crate::telemetry::exporter::places::Stay;
use crate::telemetry::observed::Observed;

/// Time before the end of its connection at which a stream ends.
const SPARE: Duration = Duration::from_secs(5);

/// Milliseconds after which a browser reconnects.
const RETRY_MS: u64 = 1_000;

/// Maximum number of cached texts per second; at least the number of pages times spans.
const MADE_MAX: usize = 64;

/// Live updates of pages; see the module.
pub(super) struct LiveUpdates {
    service: Arc<dyn Observed>,
    made: Mutex<Made>,
}

/// Texts produced in one second for viewers who are not logged in.
#[derive(Default)]
struct Made {
    second: u64,
    texts: Vec<(LiveCacheKey, Bytes)>,
}

/// The inputs of a text besides the second.
#[derive(Clone, Debug, PartialEq, Eq)]
struct LiveCacheKey {
    path: &'static str,
    range: &'static str,
    names_for_all: bool,
}

impl LiveUpdates {
    pub(super) fn new(service: Arc<dyn Observed>) -> LiveUpdates {
        LiveUpdates {
            service,
            made: Mutex::default(),
        }
    }

    /// Opens the event stream of a page.
    pub(super) fn open(
        live: &Arc<LiveUpdates>,
        credentials: Credentials,
        page: &'static Page,
        query: &Query,
        connection_ends: Instant,
        stay: Stay,
    ) -> ResponseBody {
        let mut ticks = interval(Duration::from_secs(1));
        ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
        let events = LiveEventStream {
            live: Arc::clone(live),
            credentials,
            page,
            range: view::span_of(query).name,
            ticks,
            ends: connection_ends - SPARE,
            has_begun: false,
            _stay: stay,
        };
        events.boxed_unsync()
    }

    /// Returns the event of a second.
    fn event(
        &self,
        page: &'static Page,
        range: &'static str,
        viewer: &Viewer,
        second: u64,
    ) -> Bytes {
        if viewer.user.is_some() {
            return self.make(page, range, viewer, second);
        }
        let key = LiveCacheKey {
            path: page.path,
            range,
            names_for_all: viewer.names_for_all,
        };
        let mut made = self.made.lock();
        if made.second != second {
            *made = Made {
                second,
                texts: Vec::new(),
            };
        }
        if let Some((_, text)) = made.texts.iter().find(|(each, _)| *each == key) {
            return text.clone();
        }
        let text = self.make(page, range, viewer, second);
        if made.texts.len() < MADE_MAX {
            made.texts.push((key, text.clone()));
        }
        text
    }

    fn make(
        &self,
        page: &'static Page,
        range: &'static str,
        viewer: &Viewer,
        second: u64,
    ) -> Bytes {
        let query = Query::parse(&format!("range={range}"));
        let view = View::new(&*self.service, viewer.clone(), query);
        // The JSON contains no line break, so it is one line of data.
        Bytes::from(format!(
            "data: {}\n\n",
            pages::fragments(page, &view, second)
        ))
    }
}

/// The event stream of one open page.
struct LiveEventStream {
    live: Arc<LiveUpdates>,
    credentials: Credentials,
    page: &'static Page,
    range: &'static str,
    ticks: Interval,
    ends: Instant,
    has_begun: bool,
    _stay: Stay,
}

impl HttpBody for LiveEventStream {
    type Data = Bytes;
    type Error = Infallible;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Infallible>>> {
        let now = match self.ticks.poll_tick(cx) {
            Poll::Ready(now) => now,
            Poll::Pending => return Poll::Pending,
        };
        let is_on = self.live.service.config().console;
        let viewer = match self.credentials.look(&*self.live.service) {
            Ok(viewer) if is_on && now < self.ends => viewer,
            _ => return Poll::Ready(None),
        };
        if !std::mem::replace(&mut self.has_begun, true) {
            let begin = format!("retry: {RETRY_MS}\n\n");
            return Poll::Ready(Some(Ok(Frame::data(Bytes::from(begin)))));
        }
        let second = clock::unix_ms() / 1_000;
        let event = self.live.event(self.page, self.range, &viewer, second);
        Poll::Ready(Some(Ok(Frame::data(event))))
    }
}
