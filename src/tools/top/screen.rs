//! The figures as lines and boxes. Parts that do not fit are omitted as a whole, so that a small terminal shows
//! the first ones; names that are too long end with an ellipsis, and numbers are never cut.

use std::collections::VecDeque;
use std::time::{Duration, Instant};

use ratatui::Frame;
use ratatui::layout::{Constraint, Layout, Rect};
use ratatui::style::{Color, Modifier, Style};
use ratatui::text::{Line, Span};
use ratatui::widgets::{Block, Cell, Gauge, Paragraph, Row, Sparkline, Table};

use super::figures::{CommandStats, ServerSample, rate};
use basalt_core::base::text::visible;

/// Number of past rates kept for the graph.
const PAST: usize = 240;

/// Sort order of the commands.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) enum TopSortOrder {
    /// By share of the total time.
    #[default]
    Time,
    /// By calls per second.
    Calls,
    /// By mean time per call.
    Each,
    /// By name.
    Name,
}

impl TopSortOrder {
    const ALL: [TopSortOrder; 4] = [
        TopSortOrder::Time,
        TopSortOrder::Calls,
        TopSortOrder::Each,
        TopSortOrder::Name,
    ];

    fn step(self, by: usize) -> TopSortOrder {
        let at = TopSortOrder::ALL.iter().position(|order| *order == self);
        TopSortOrder::ALL[(at.unwrap_or(0) + by) % TopSortOrder::ALL.len()]
    }

    pub(super) fn next(self) -> TopSortOrder {
        self.step(1)
    }

    pub(super) fn before(self) -> TopSortOrder {
        self.step(TopSortOrder::ALL.len() - 1)
    }

    fn name(self) -> &'static str {
        match self {
            TopSortOrder::Time => "time",
            TopSortOrder::Calls => "calls",
            TopSortOrder::Each => "time per call",
            TopSortOrder::Name => "name",
        }
    }
}

/// The contents of the screen.
pub(super) struct ScreenState {
    place: String,
    pub(super) before: Option<ServerSample>,
    pub(super) now: Option<ServerSample>,
    /// Past commands per second, in hundredths: an idle server has about one such unit, so that the graph has no
    /// gaps.
    past: VecDeque<u64>,
    pub(super) order: TopSortOrder,
    pub(super) is_paused: bool,
    /// Why there are no newer figures.
    pub(super) trouble: Option<String>,
}

impl ScreenState {
    /// Returns when the server last replied.
    pub(super) fn heard(&self) -> Option<Instant> {
        self.now.as_ref().map(|now| now.at)
    }

    pub(super) fn new(place: String) -> ScreenState {
        ScreenState {
            place,
            before: None,
            now: None,
            past: VecDeque::new(),
            order: TopSortOrder::default(),
            is_paused: false,
            trouble: None,
        }
    }

    pub(super) fn add(&mut self, figures: ServerSample) {
        self.before = self.now.replace(figures);
        if let (Some(before), Some(now)) = (&self.before, &self.now) {
            if self.past.len() == PAST {
                self.past.pop_front();
            }
            self.past
                .push_back((rate(before, now, "total_commands_processed") * 100.0) as u64);
        }
    }
}

/// Rows of the rates, including their frame.
const RATES_ROWS: u16 = 6;

/// Rows of the boxes, including their frames.
const BOXES_ROWS: u16 = 8;

/// Minimum rows of the commands.
const COMMANDS_ROWS_MIN: u16 = 4;

/// Minimum columns of a box.
const BOX_COLUMNS_MIN: u16 = 24;

/// Minimum columns of the screen for which hot keys are placed beside the commands instead of below them.
const WIDE_COLUMNS: u16 = 110;

/// Draws the whole screen.
pub(super) fn draw(frame: &mut Frame<'_>, state: &ScreenState) {
    let Some(now) = &state.now else {
        return;
    };
    let before = state.before.as_ref().unwrap_or(now);
    let area = frame.area();
    let mut left = area.height.saturating_sub(2);
    let mut take = |rows: u16, needed: u16| {
        let taken = if left >= needed { rows.min(left) } else { 0 };
        left -= taken;
        taken
    };
    let rows = [
        1,
        take(RATES_ROWS, 1),
        take(BOXES_ROWS, BOXES_ROWS),
        take(u16::MAX, COMMANDS_ROWS_MIN),
    ];
    let [head, rates, boxes, commands, _, foot] = Layout::vertical([
        Constraint::Length(rows[0]),
        Constraint::Length(rows[1]),
        Constraint::Length(rows[2]),
        Constraint::Length(rows[3]),
        Constraint::Fill(1),
        Constraint::Length(1),
    ])
    .areas(area);
    frame.render_widget(Paragraph::new(title(state, now, head.width)), head);
    if !rates.is_empty() {
        draw_rates(frame, rates, state, before, now);
    }
    if !boxes.is_empty() {
        draw_boxes(frame, boxes, before, now);
    }
    if !commands.is_empty() {
        let (commands, hot) = split_commands(commands, !now.hot_keys.is_empty());
        draw_commands(frame, commands, state, before, now);
        draw_hot_keys(frame, hot, now);
    }
    let (text, style) = match (&state.trouble, state.is_paused) {
        (Some(trouble), _) => (format!(" {trouble}"), Style::new().fg(Color::Red)),
        (None, true) => (
            " Paused: press p to resume".to_owned(),
            Style::new().fg(Color::Yellow),
        ),
        (None, false) => (
            format!(" q quit   p pause   ←→ sort by: {}", state.order.name()),
            Style::new().add_modifier(Modifier::DIM),
        ),
    };
    let line = Line::styled(fitted(&text, foot.width), style);
    frame.render_widget(Paragraph::new(line), foot);
}

/// Fits a text into a number of columns; a longer one ends with an ellipsis.
fn fitted(text: &str, columns: u16) -> String {
    let columns = usize::from(columns);
    if Span::raw(text).width() <= columns {
        return text.to_owned();
    }
    let mut cut = String::new();
    for each in text.chars() {
        cut.push(each);
        if Span::raw(cut.as_str()).width() + 1 > columns {
            cut.pop();
            break;
        }
    }
    match columns {
        0 => String::new(),
        _ => cut + "…",
    }
}

fn title(state: &ScreenState, now: &ServerSample, columns: u16) -> Line<'static> {
    let role = match now.info.text("role") {
        Some("slave") => "replica",
        _ => "primary",
    };
    let up = now.info.figure("uptime_in_seconds");
    let server = fitted(&format!(" {} ", now.server()), columns);
    let rest = format!(" {}  {role}  up {}", state.place, duration(up));
    let left = usize::from(columns).saturating_sub(Span::raw(server.as_str()).width());
    Line::from(vec![
        Span::styled(server, Style::new().add_modifier(Modifier::BOLD)),
        Span::raw(fitted(&rest, left as u16)),
    ])
}

/// Names and figures of a box.
type BoxLines = Vec<(&'static str, String)>;

/// Draws a box of names and figures; if a name and its figure do not fit into a line, the name is shortened.
fn draw_box(frame: &mut Frame<'_>, area: Rect, title: &'static str, lines: BoxLines) {
    const NAME_COLUMNS: usize = 15;
    let block = Block::bordered().title(title);
    let columns = usize::from(block.inner(area).width);
    let line = |(name, value): (&'static str, String)| {
        let value = fitted(&value, columns as u16);
        let left = columns.saturating_sub(Span::raw(value.as_str()).width() + 1);
        let width = left.min(NAME_COLUMNS);
        let name = fitted(name, width as u16);
        let dim = Style::new().add_modifier(Modifier::DIM);
        Line::from(vec![
            Span::styled(format!("{name:<width$} "), dim),
            Span::raw(value),
        ])
    };
    let lines: Vec<Line<'_>> = lines.into_iter().map(line).collect();
    frame.render_widget(Paragraph::new(lines).block(block), area);
}

fn draw_boxes(frame: &mut Frame<'_>, area: Rect, before: &ServerSample, now: &ServerSample) {
    let count = usize::from((area.width / BOX_COLUMNS_MIN).clamp(1, 3));
    let columns = Layout::horizontal(vec![Constraint::Fill(1); count]).split(area);
    let boxes = [
        ("Memory", memory(now)),
        ("Keys and clients", keys(before, now)),
        ("Replication and saving", copies(now)),
    ];
    for (area, (title, lines)) in columns.iter().zip(boxes) {
        draw_box(frame, *area, title, lines);
    }
    // The row below the memory figures.
    let row = Block::bordered().inner(columns[0]).rows().nth(5);
    if let (Some(part), Some(row)) = (memory_part(now), row) {
        let colour = match part > 0.95 {
            true => Color::Yellow,
            false => Color::Blue,
        };
        let gauge = Gauge::default().ratio(part).gauge_style(colour);
        frame.render_widget(gauge, row);
    }
}

/// Splits the area of the commands and hot keys: beside each other, below each other, or without hot keys.
fn split_commands(area: Rect, has_hot_keys: bool) -> (Rect, Rect) {
    const HOT_ROWS: u16 = 6;
    let is_wide = area.width >= WIDE_COLUMNS;
    let [first, second] = match (has_hot_keys, is_wide) {
        (true, true) => Layout::horizontal([Constraint::Fill(2), Constraint::Fill(1)]).areas(area),
        (true, false) if area.height >= 2 * HOT_ROWS => {
            Layout::vertical([Constraint::Fill(1), Constraint::Length(HOT_ROWS)]).areas(area)
        }
        _ => [area, Rect::ZERO],
    };
    (first, second)
}

fn draw_hot_keys(frame: &mut Frame<'_>, area: Rect, now: &ServerSample) {
    if area.is_empty() {
        return;
    }
    let block = Block::bordered().title("Hot keys, % of all uses");
    let columns = block.inner(area).width;
    let row = |(key, percent): &(String, f64)| {
        let percent = format!("{percent:>5.1} %  ");
        let left = columns.saturating_sub(percent.len() as u16);
        Line::from(format!("{percent}{}", fitted(key, left)))
    };
    let rows: Vec<Line<'_>> = now.hot_keys.iter().map(row).collect();
    frame.render_widget(Paragraph::new(rows).block(block), area);
}

/// Columns of the numeric rates.
const FIGURES_COLUMNS: u16 = 36;

fn draw_rates(
    frame: &mut Frame<'_>,
    area: Rect,
    state: &ScreenState,
    before: &ServerSample,
    now: &ServerSample,
) {
    let [figures, picture] = match area.width >= 2 * FIGURES_COLUMNS {
        true => Layout::horizontal([Constraint::Length(FIGURES_COLUMNS), Constraint::Fill(1)])
            .areas(area),
        false => [area, Rect::ZERO],
    };
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
        (
            "Commands",
            format!("{}/s", number(each("total_commands_processed"))),
        ),
        ("Hit ratio", ratio),
        (
            "Received",
            format!("{}/s", bytes(each("total_net_input_bytes"))),
        ),
        (
            "Sent",
            format!("{}/s", bytes(each("total_net_output_bytes"))),
        ),
    ];
    draw_box(frame, figures, "Per second", lines);
    if picture.is_empty() {
        return;
    }
    let block = Block::bordered().title("Commands per second");
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

fn memory_part(now: &ServerSample) -> Option<f64> {
    let limit = now.info.figure("maxmemory");
    // Exclude memory that does not count against the limit, such as replication buffers.
    let counted = now.info.figure("used_memory") - now.info.figure("mem_not_counted_for_evict");
    (limit > 0.0).then(|| (counted / limit).clamp(0.0, 1.0))
}

fn memory(now: &ServerSample) -> BoxLines {
    let of = |field| bytes(now.info.figure(field));
    let limit = match now.info.figure("maxmemory") > 0.0 {
        true => of("maxmemory"),
        false => "none".to_owned(),
    };
    vec![
        ("Used", of("used_memory")),
        ("Resident (RSS)", of("used_memory_rss")),
        ("Peak", of("used_memory_peak")),
        ("Limit", limit),
        (
            "Fragmentation",
            format!("{:.2}", now.info.figure("mem_fragmentation_ratio")),
        ),
    ]
}

fn keys(before: &ServerSample, now: &ServerSample) -> BoxLines {
    let (keys, expiring) = now.keys();
    let each = |field| format!("{}/s", number(rate(before, now, field)));
    vec![
        ("Keys", number(keys)),
        ("Keys with TTL", number(expiring)),
        ("Evicted", each("evicted_keys")),
        ("Expired", each("expired_keys")),
        ("Clients", number(now.info.figure("connected_clients"))),
        (
            "Blocked clients",
            number(now.info.figure("blocked_clients")),
        ),
    ]
}

fn copies(now: &ServerSample) -> BoxLines {
    let info = &now.info;
    let text = |field| visible(info.text(field).unwrap_or("–").as_bytes());
    let mut lines = BoxLines::new();
    match info.text("role") {
        Some("slave") => lines.push(("Primary link", text("master_link_status"))),
        _ => lines.push(("Replicas", number(info.figure("connected_slaves")))),
    }
    lines.push(("Offset", text("master_repl_offset")));
    let saved = match info.figure("rdb_bgsave_in_progress") > 0.0 {
        true => "in progress".to_owned(),
        false => text("rdb_last_bgsave_status"),
    };
    lines.push(("Last snapshot", saved));
    lines.push((
        "Unsaved changes",
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
    lines.push(("AOF", appended));
    lines
}

/// A column of the command table.
struct Column {
    title: &'static str,
    columns: u16,
    /// Priority: if there is not enough room, columns with a high number are omitted first.
    rank: u8,
    /// Formats a command's figure, given the total time of all commands.
    show: fn(&CommandStats, f64) -> String,
}

const fn column(
    title: &'static str,
    columns: u16,
    rank: u8,
    show: fn(&CommandStats, f64) -> String,
) -> Column {
    Column {
        title,
        columns,
        rank,
        show,
    }
}

static COLUMNS: [Column; 6] = [
    column("calls/s", 9, 0, |row, _| number(row.calls)),
    column("µs/call", 9, 1, |row, _| {
        short(row.usec / row.calls.max(1e-9), 1)
    }),
    column("p50 µs", 8, 5, |row, _| percentile(row.p50)),
    column("p99 µs", 9, 3, |row, _| percentile(row.p99)),
    column("% time", 8, 2, |row, all| {
        format!("{:.1} %", 100.0 * row.usec / all.max(1e-9))
    }),
    column("errors/s", 9, 4, |row, _| number(row.failed)),
];

/// Minimum and maximum columns of a command's name.
const NAME_COLUMNS: (u16, u16) = (12, 28);

/// Returns the columns that fit, and the width left for the name.
fn fitting(columns: u16) -> (Vec<&'static Column>, u16) {
    let mut shown: Vec<&Column> = COLUMNS.iter().collect();
    loop {
        let taken: u16 = shown.iter().map(|column| column.columns + 1).sum();
        if taken + NAME_COLUMNS.0 <= columns || shown.is_empty() {
            let left = columns.saturating_sub(taken);
            return (shown, left.min(NAME_COLUMNS.1));
        }
        let last = shown.iter().map(|column| column.rank).max();
        shown.retain(|column| Some(column.rank) != last);
    }
}

fn draw_commands(
    frame: &mut Frame<'_>,
    area: Rect,
    state: &ScreenState,
    before: &ServerSample,
    now: &ServerSample,
) {
    let rows = changed(before, now, state.order);
    let all: f64 = rows.iter().map(|row| row.usec).sum();
    let block = Block::bordered().title("Commands");
    let (shown, name_columns) = fitting(block.inner(area).width);
    let right = |text: String| Cell::new(Line::from(text).right_aligned());
    let cells = rows.iter().map(|row| {
        let name = Cell::new(fitted(&row.name, name_columns));
        let figures = shown.iter().map(|column| right((column.show)(row, all)));
        Row::new(std::iter::once(name).chain(figures))
    });
    let titles = shown.iter().map(|column| right(column.title.to_owned()));
    let head = Row::new(std::iter::once(Cell::new("Command")).chain(titles));
    let widths = shown
        .iter()
        .map(|column| Constraint::Length(column.columns));
    let widths = std::iter::once(Constraint::Length(name_columns)).chain(widths);
    let table = Table::new(cells, widths)
        .header(head.style(Style::new().add_modifier(Modifier::DIM)))
        .block(block);
    frame.render_widget(table, area);
}

fn percentile(value: Option<f64>) -> String {
    value.map_or("–".to_owned(), |value| short(value, 0))
}

/// Formats a number with `digits` decimals, or in short form if that is too long.
fn short(value: f64, digits: usize) -> String {
    let text = format!("{value:.digits$}");
    match text.len() > 7 {
        true => number(value),
        false => text,
    }
}

/// Returns each command's rates, except for commands that were not called; percentiles are those since the start.
fn changed(before: &ServerSample, now: &ServerSample, order: TopSortOrder) -> Vec<CommandStats> {
    let seconds = now
        .at
        .duration_since(before.at)
        .max(Duration::from_millis(1))
        .as_secs_f64();
    let mut rows: Vec<CommandStats> = now.commands.values().cloned().collect();
    for row in &mut rows {
        if let Some(then) = before.commands.get(&row.name) {
            row.calls -= then.calls;
            row.usec -= then.usec;
            row.failed -= then.failed;
        }
        for figure in [&mut row.calls, &mut row.usec, &mut row.failed] {
            *figure = figure.max(0.0) / seconds;
        }
    }
    rows.retain(|row| row.calls > 0.0 || row.failed > 0.0);
    let each = |row: &CommandStats| row.usec / row.calls.max(1e-9);
    rows.sort_by(|one, other| match order {
        TopSortOrder::Time => other.usec.total_cmp(&one.usec),
        TopSortOrder::Calls => other.calls.total_cmp(&one.calls),
        TopSortOrder::Each => each(other).total_cmp(&each(one)),
        TopSortOrder::Name => one.name.cmp(&other.name),
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
