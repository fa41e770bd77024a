//! INFO's figures on a page: formatted for people, with the field's name and value attached for programs.

use jiff::Timestamp;
use maud::{Markup, html};

use super::super::chart::lines::{Chart, draw};
use super::super::chart::{self, duration};
use super::View;
use crate::telemetry::history::series::SeriesUnit;

/// A figure, identified by its INFO field.
#[derive(Clone, Copy, Debug)]
pub(super) struct DashboardFigure {
    pub(super) title: &'static str,
    pub(super) field: &'static str,
    pub(super) how: FigureFormat,
}

/// The format of a figure's value.
#[derive(Clone, Copy, Debug)]
pub(super) enum FigureFormat {
    /// A number with its unit.
    Number(SeriesUnit),
    /// Seconds in readable form.
    Duration,
    /// A point in time, in Unix seconds.
    Time,
    /// Yes or no.
    Flag,
    /// An unformatted text; `ok` is shown as good, and `err` as bad.
    Text,
}

/// The format of a count.
pub(super) const COUNT: FigureFormat = FigureFormat::Number(SeriesUnit::Count);

/// The format of bytes.
pub(super) const BYTES: FigureFormat = FigureFormat::Number(SeriesUnit::Bytes);

pub(super) const fn figure(
    title: &'static str,
    field: &'static str,
    how: FigureFormat,
) -> DashboardFigure {
    DashboardFigure { title, field, how }
}

/// Formats a figure's value.
pub(super) fn value(view: &View<'_>, figure: &DashboardFigure) -> Markup {
    let text = view.info.text(figure.field);
    let Some(text) = text else {
        return html! { span class="quiet" { "–" } };
    };
    let number = view.info.number(figure.field);
    let shown = match (figure.how, number) {
        (FigureFormat::Number(unit), Some(number)) => chart::shown(number, unit),
        (FigureFormat::Duration, Some(number)) if number < 0.0 => "–".to_owned(),
        (FigureFormat::Duration, Some(number)) => duration(number as u64),
        (FigureFormat::Time, Some(number)) => {
            let at_s = number as u64;
            format!(
                "{} ({} ago)",
                time(at_s),
                duration(view.now_s.saturating_sub(at_s))
            )
        }
        (FigureFormat::Flag, Some(number)) => if number == 0.0 { "no" } else { "yes" }.to_owned(),
        (FigureFormat::Text, _) | (_, None) => text.to_owned(),
    };
    let class = match (figure.how, text) {
        (FigureFormat::Text, "ok" | "up") => "good",
        (FigureFormat::Text, "err" | "down") => "bad",
        _ => "plain",
    };
    html! { data class=(class) value=(text) data-field=(figure.field) { (shown) } }
}

/// Formats figures as a list.
pub(super) fn list(view: &View<'_>, figures: &[DashboardFigure]) -> Markup {
    html! {
        dl class="figures" {
            @for figure in figures {
                div { dt { (figure.title) } dd { (value(view, figure)) } }
            }
        }
    }
}

/// Draws a chart over time.
pub(super) fn over_time(view: &View<'_>, chart: &Chart) -> Markup {
    draw(
        chart,
        &view.service.telemetry().history,
        view.span(),
        view.now_s,
    )
}

/// Formats a Unix time in readable form, in UTC.
pub(super) fn time(at_s: u64) -> String {
    let at = Timestamp::from_second(at_s.cast_signed()).unwrap_or_default();
    at.strftime("%Y-%m-%d %H:%M:%S").to_string()
}
