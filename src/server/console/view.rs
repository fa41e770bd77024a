//! The server at a moment and its viewer, which pages and the API show.

use std::sync::Arc;

use super::chart::lines::{ChartSpan, SPANS};
use super::query::Query;
use super::room::Room;
use super::viewer::{Sight, Viewer};
use crate::telemetry::observed::Observed;
use crate::telemetry::{clock, findings, info};
use basalt_commands::config::Config;
use basalt_core::base::info::InfoText;

/// The source of a page: a server at a moment, and its viewer.
pub(super) struct View<'a> {
    pub(super) service: &'a dyn Observed,
    pub(super) config: Arc<Config>,
    pub(super) viewer: Viewer,
    pub(super) query: Query,
    /// All of INFO.
    pub(super) info: InfoText,
    pub(super) now_s: u64,
    /// Remaining bytes of the page.
    pub(super) room: Room,
}

impl<'a> View<'a> {
    pub(super) fn new(service: &'a dyn Observed, viewer: Viewer, query: Query) -> View<'a> {
        View {
            service,
            config: service.config(),
            viewer,
            query,
            info: InfoText::parse(&info::text(service, &["everything".to_owned()])),
            now_s: clock::unix_ms() / 1_000,
            room: Room::of_page(),
        }
    }

    /// Returns the time span shown.
    pub(super) fn span(&self) -> ChartSpan {
        span_of(&self.query)
    }

    /// Returns the findings: the subject, the text for this viewer, and the fix.
    pub(super) fn findings(&self) -> Vec<(&'static str, String, &'static str)> {
        let shown = |(about, finding): (&'static str, findings::Finding)| {
            let named = finding.key.as_ref().is_none_or(|key| {
                self.viewer.sees(Sight::HotKeys) && self.viewer.sees_key(key, None)
            });
            (about, finding.shown(named).to_owned(), finding.remedy)
        };
        findings::all(self.service).into_iter().map(shown).collect()
    }
}

/// Returns the time span that a query requests.
pub(super) fn span_of(query: &Query) -> ChartSpan {
    let name = query.get("range").unwrap_or_default();
    let found = SPANS.iter().find(|span| span.name == name);
    *found.unwrap_or(&SPANS[0])
}
