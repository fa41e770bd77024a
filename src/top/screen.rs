//! The figures as lines and boxes. What does not fit is left out, so that a small terminal shows the first of it.

use std::collections::VecDeque;
use std::time::Duration;

use ratatui::Frame;
use ratatui::layout::{Constraint, Layout, Rect};
use ratatui::style::{Color, Modifier, Style};
use ratatui::text::{Line, Span};
use ratatui::widgets::{Block, Cell, Gauge, Paragraph, Row, Sparkline, Table};

use super::figures::{CommandFigures, Figures, rate};

/// Rates that are remembered for the picture.
const PAST: usize = 240;

/// By what commands are sorted.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) enum Order {
    /// The part of all time.
    #[default]
    Time,
    /// Calls a second.
    Calls,
    /// The time of each.
    Each,
    /// The name.
    Name,
}

impl Order {
    const ALL: [Order; 4] = [Order::Time, Order::Calls, Order::Each, Order::Name];

    fn step(self, by: usize) -> Order {
        let at = Order::ALL.iter().position(|order| *order == self);
        Order::ALL[(at.unwrap_or(0) + by) % Order::ALL.len()]
    }

    pub(super) fn next(self) -> Order {
        self.step(1)
    }

    pub(super) fn before(self) -> Order {
        self.step(Order::ALL.len() - 1)
    }

    fn name(self) -> &'static str {
        match self {
            Order::Time => "time",
            Order::Calls => "calls",
            Order::Each => "time of each",
            Order::Name => "name",
        }
    }
}

/// What is shown.
pub(super) struct State {
    place: String,
    before: Option<Figures>,
    now: Option<Figures>,
    past: VecDeque<u64>,
    pub(super) order: Order,
    pub(super) is_paused: bool,
    /// Why there is nothing newer.
    pub(super) trouble: Option<String>,
}

impl State {
    pub(super) fn new(place: String) -> State {
        State {
            place,
            before: None,
            now: None,
            past: VecDeque::new(),
            order: Order::default(),
            is_paused: false,
            trouble: None,
        }
    }

    pub(super) fn add(&mut self, figures: Figures) {
        self.before = self.now.replace(figures);
        if let (Some(before), Some(now)) = (&self.before, &self.now) {
            if self.past.len() == PAST {
                self.past.pop_front();
            }
            self.past
                .push_back(rate(before, now, "total_commands_processed") as u64);
        }
    }
}

/// Draws all of it.
pub(super) fn draw(frame: &mut Frame<'_>, state: &State) {
    let Some(now) = &state.now else {
        return;
    };
    let before = state.before.as_ref().unwrap_or(now);
    let has_hot_keys = !now.hot_keys.is_empty();
    let [head, rates, boxes, commands, foot] = Layout::vertical([
        Constraint::Length(1),
        Constraint::Length(6),
        Constraint::Length(8),
        Constraint::Min(4),
        Constraint::Length(1),
    ])
    .areas(frame.area());
    frame.render_widget(Paragraph::new(title(state, now)), head);
    draw_rates(frame, rates, state, before, now);
    let [left, middle, right] = Layout::horizontal([Constraint::Fill(1); 3]).areas(boxes);
    frame.render_widget(boxed("Memory", memory(now)), left);
    if let Some(part) = memory_part(now) {
        let bottom = Rect {
            x: left.x + 1,
            y: left.bottom().saturating_sub(2),
            width: left.width.saturating_sub(2),
            height: 1,
        };
        let gauge = Gauge::default()
            .ratio(part)
            .gauge_style(Style::new().fg(if part > 0.95 {
                Color::Yellow
            } else {
                Color::Blue
            }));
        frame.render_widget(gauge, bottom.intersection(frame.area()));
    }
    frame.render_widget(boxed("Keys and clients", keys(before, now)), middle);
    frame.render_widget(boxed("Copies", copies(now)), right);
    let [commands, hot] = match has_hot_keys {
        true => Layout::horizontal([Constraint::Fill(2), Constraint::Fill(1)]).areas(commands),
        false => [commands, Rect::ZERO],
    };
    draw_commands(frame, commands, state, before, now);
    if has_hot_keys {
        let rows = now.hot_keys.iter().map(|(key, percent)| {
            Line::from(vec![
                Span::raw(format!("{percent:>5.1} %  ")),
                Span::raw(key.clone()),
            ])
        });
        frame.render_widget(boxed("Hot keys, of all uses", rows.collect()), hot);
    }
    let keys = Line::styled(
        format!(" q quit   p pause   ←→ order: {}", state.order.name()),
        Style::new().add_modifier(Modifier::DIM),
    );
    let foot_line = match (&state.trouble, state.is_paused) {
        (Some(trouble), _) => Line::styled(format!(" {trouble}"), Style::new().fg(Color::Red)),
        (None, true) => Line::styled(" Paused; p goes on", Style::new().fg(Color::Yellow)),
        (None, false) => keys,
    };
    frame.render_widget(Paragraph::new(foot_line), foot);
}

fn title(state: &State, now: &Figures) -> Line<'static> {
    let role = match now.info.text("role") {
        Some("slave") => "replica",
        _ => "primary",
    };
    let up = now.info.figure("uptime_in_seconds");
    Line::from(vec![
        Span::styled(
            format!(" {} ", now.server()),
            Style::new().add_modifier(Modifier::BOLD),
        ),
        Span::raw(format!(" {}  {role}  up {}", state.place, duration(up))),
    ])
}

fn boxed(title: &'static str, lines: Vec<Line<'static>>) -> Paragraph<'static> {
    Paragraph::new(lines).block(Block::bordered().title(title))
}

/// A line of a name and a figure.
fn row(name: &'static str, value: String) -> Line<'static> {
    Line::from(vec![
        Span::styled(
            format!("{name:<15} "),
            Style::new().add_modifier(Modifier::DIM),
        ),
        Span::raw(value),
    ])
}

fn draw_rates(frame: &mut Frame<'_>, area: Rect, state: &State, before: &Figures, now: &Figures) {
    let [figures, picture] =
        Layout::horizontal([Constraint::Length(36), Constraint::Fill(1)]).areas(area);
    let (hits, misses) = (
        rate(before, now, "keyspace_hits"),
        rate(before, now, "keyspace_misses"),
    );
    let ratio = match hits + misses > 0.0 {
        true => format!("{:.1} %", 100.0 * hits / (hits + misses)),
        false => "–".to_owned(),
    };
    let each = |field| rate(before, now, field);
    let lines = vec![
        row(
            "Commands",
            format!("{}/s", number(each("total_commands_processed"))),
        ),
        row("Hit ratio", ratio),
        row(
            "Received",
            format!("{}/s", bytes(each("total_net_input_bytes"))),
        ),
        row(
            "Sent",
            format!("{}/s", bytes(each("total_net_output_bytes"))),
        ),
    ];
    frame.render_widget(boxed("A second", lines), figures);
    let block = Block::bordered().title("Commands a second");
    let inner = block.inner(picture);
    frame.render_widget(block, picture);
    let shown = state.past.len().saturating_sub(usize::from(inner.width));
    let past: Vec<u64> = state.past.iter().skip(shown).copied().collect();
    frame.render_widget(
        Sparkline::default()
            .data(past)
            .style(Style::new().fg(Color::Blue)),
        inner,
    );
}

fn memory_part(now: &Figures) -> Option<f64> {
    let limit = now.info.figure("maxmemory");
    // What is not held against the limit, such as what is kept for replicas.
    let counted = now.info.figure("used_memory") - now.info.figure("mem_not_counted_for_evict");
    (limit > 0.0).then(|| (counted / limit).clamp(0.0, 1.0))
}

fn memory(now: &Figures) -> Vec<Line<'static>> {
    let of = |field| bytes(now.info.figure(field));
    let limit = match now.info.figure("maxmemory") > 0.0 {
        true => of("maxmemory"),
        false => "none".to_owned(),
    };
    vec![
        row("In use", of("used_memory")),
        row("Resident", of("used_memory_rss")),
        row("Peak", of("used_memory_peak")),
        row("Limit", limit),
        row(
            "Fragmentation",
            format!("{:.2}", now.info.figure("mem_fragmentation_ratio")),
        ),
    ]
}

fn keys(before: &Figures, now: &Figures) -> Vec<Line<'static>> {
    let (keys, expiring) = now.keys();
    let each = |field| format!("{}/s", number(rate(before, now, field)));
    vec![
        row("Keys", number(keys)),
        row("With deadline", number(expiring)),
        row("Evicted", each("evicted_keys")),
        row("Expired", each("expired_keys")),
        row("Clients", number(now.info.figure("connected_clients"))),
        row("Blocked", number(now.info.figure("blocked_clients"))),
    ]
}

fn copies(now: &Figures) -> Vec<Line<'static>> {
    let info = &now.info;
    let text = |field| info.text(field).unwrap_or("–").to_owned();
    let mut lines = Vec::new();
    match info.text("role") {
        Some("slave") => lines.push(row("Primary's link", text("master_link_status"))),
        _ => lines.push(row("Replicas", number(info.figure("connected_slaves")))),
    }
    lines.push(row("Offset", text("master_repl_offset")));
    let saved = match info.figure("rdb_bgsave_in_progress") > 0.0 {
        true => "being written".to_owned(),
        false => text("rdb_last_bgsave_status"),
    };
    lines.push(row("Snapshot", saved));
    lines.push(row(
        "Changes since",
        number(info.figure("rdb_changes_since_last_save")),
    ));
    let appended = match info.figure("aof_enabled") > 0.0 {
        true => format!(
            "{} {}",
            text("aof_last_write_status"),
            bytes(info.figure("aof_current_size"))
        ),
        false => "off".to_owned(),
    };
    lines.push(row("Appended", appended));
    lines
}

fn draw_commands(
    frame: &mut Frame<'_>,
    area: Rect,
    state: &State,
    before: &Figures,
    now: &Figures,
) {
    let rows = changed(before, now, state.order);
    let all: f64 = rows.iter().map(|row| row.usec).sum();
    let cells = rows.iter().map(|row| {
        let each = if row.calls > 0.0 {
            row.usec / row.calls
        } else {
            0.0
        };
        let percentile =
            |value: Option<f64>| value.map_or("–".to_owned(), |value| format!("{value:.0}"));
        Row::new([
            Cell::new(row.name.clone()),
            number_cell(number(row.calls)),
            number_cell(format!("{each:.1}")),
            number_cell(percentile(row.p50)),
            number_cell(percentile(row.p99)),
            number_cell(format!("{:.1} %", 100.0 * row.usec / all.max(1e-9))),
            number_cell(number(row.failed)),
        ])
    });
    let head = [
        "Command", "a second", "µs each", "p50 µs", "p99 µs", "of time", "failed/s",
    ];
    let widths = [20, 9, 9, 8, 9, 8, 9].map(Constraint::Length);
    let table = Table::new(cells, widths)
        .header(Row::new(head).style(Style::new().add_modifier(Modifier::DIM)))
        .block(Block::bordered().title("Commands"));
    frame.render_widget(table, area);
}

fn number_cell(text: String) -> Cell<'static> {
    Cell::new(Line::from(text).right_aligned())
}

/// What each command did in a second, but for those that did nothing; percentiles are those since the start.
fn changed(before: &Figures, now: &Figures, order: Order) -> Vec<CommandFigures> {
    let seconds = now
        .at
        .duration_since(before.at)
        .max(Duration::from_millis(1))
        .as_secs_f64();
    let earlier = before.commands();
    let mut rows: Vec<CommandFigures> = now.commands();
    for row in &mut rows {
        if let Some(then) = earlier.iter().find(|then| then.name == row.name) {
            row.calls -= then.calls;
            row.usec -= then.usec;
            row.failed -= then.failed;
        }
        for figure in [&mut row.calls, &mut row.usec, &mut row.failed] {
            *figure = figure.max(0.0) / seconds;
        }
    }
    rows.retain(|row| row.calls > 0.0 || row.failed > 0.0);
    let each = |row: &CommandFigures| row.usec / row.calls.max(1e-9);
    rows.sort_by(|one, other| match order {
        Order::Time => other.usec.total_cmp(&one.usec),
        Order::Calls => other.calls.total_cmp(&one.calls),
        Order::Each => each(other).total_cmp(&each(one)),
        Order::Name => one.name.cmp(&other.name),
    });
    rows
}

fn number(value: f64) -> String {
    scaled(value, 1_000.0, ["", "k", "M", "G", "T"])
}

fn bytes(value: f64) -> String {
    scaled(value, 1_024.0, [" B", " KiB", " MiB", " GiB", " TiB"])
}

fn scaled(value: f64, step: f64, names: [&str; 5]) -> String {
    let (mut left, mut power) = (value, 0);
    while left >= step - 0.5 && power + 1 < names.len() {
        left /= step;
        power += 1;
    }
    match power {
        0 => format!("{left:.0}{}", names[0]),
        _ => format!("{left:.2}{}", names[power]),
    }
}

fn duration(seconds: f64) -> String {
    let seconds = seconds as u64;
    let (days, hours, minutes) = (seconds / 86_400, seconds / 3_600 % 24, seconds / 60 % 60);
    match (days, hours) {
        (0, 0) => format!("{minutes} min {} s", seconds % 60),
        (0, _) => format!("{hours} h {minutes} min"),
        _ => format!("{days} d {hours} h"),
    }
}
