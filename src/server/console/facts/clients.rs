//! The connections: searched, sorted, and paginated.

use std::cmp::Ordering;
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;

use serde_json::{Value, json};

use super::super::query::Query;
use super::super::view::View;
use super::super::viewer::Sight;
use super::{HIDDEN, name};
use crate::telemetry::clock;
use basalt_commands::client::shared::mailbox::Mailbox;
use basalt_commands::client::shared::{Peer, Shared};
use basalt_commands::command::client;
use basalt_commands::command::registry::registry;

/// Default number of rows per page.
const ROWS: usize = 50;

/// Maximum number of rows per page.
const ROWS_MAX: usize = 500;

/// Maximum length of a search text, in characters.
const SEARCH_CHARS_MAX: usize = 64;

/// A connection, as a row of the list.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct ClientRow {
    pub(crate) id: u64,
    pub(crate) address: String,
    pub(crate) name: String,
    pub(crate) user: String,
    pub(crate) library: String,
    pub(crate) age_s: u64,
    pub(crate) idle_s: u64,
    pub(crate) flags: String,
    pub(crate) db: u32,
    pub(crate) command: String,
    pub(crate) commands: u64,
    pub(crate) bytes_in: u64,
    pub(crate) bytes_out: u64,
    pub(crate) unsent: u64,
    pub(crate) memory: u64,
}

/// A column by which connections can be sorted.
pub(crate) struct ClientColumn {
    /// The name in addresses and in the API.
    pub(crate) name: &'static str,
    /// The title on a page.
    pub(crate) title: &'static str,
    /// Whether the column's values are numbers.
    pub(crate) is_number: bool,
    compare: fn(&ClientRow, &ClientRow) -> Ordering,
}

/// The columns, in display order.
pub(crate) static COLUMNS: [ClientColumn; 14] = [
    number("id", "ID", |one, other| one.id.cmp(&other.id)),
    column("address", "Address", |one, other| {
        one.address.cmp(&other.address)
    }),
    column("name", "Name", |one, other| one.name.cmp(&other.name)),
    column("user", "User", |one, other| one.user.cmp(&other.user)),
    column("library", "Library", |one, other| {
        one.library.cmp(&other.library)
    }),
    number("age", "Age", |one, other| one.age_s.cmp(&other.age_s)),
    number("idle", "Idle", |one, other| one.idle_s.cmp(&other.idle_s)),
    number("db", "DB", |one, other| one.db.cmp(&other.db)),
    column("command", "Last command", |one, other| {
        one.command.cmp(&other.command)
    }),
    number("commands", "Commands", |one, other| {
        one.commands.cmp(&other.commands)
    }),
    number("in", "Received", |one, other| {
        one.bytes_in.cmp(&other.bytes_in)
    }),
    number("out", "Sent", |one, other| {
        one.bytes_out.cmp(&other.bytes_out)
    }),
    number("unsent", "Not yet sent", |one, other| {
        one.unsent.cmp(&other.unsent)
    }),
    number("memory", "Memory", |one, other| {
        one.memory.cmp(&other.memory)
    }),
];

const fn column(
    name: &'static str,
    title: &'static str,
    compare: fn(&ClientRow, &ClientRow) -> Ordering,
) -> ClientColumn {
    ClientColumn {
        name,
        title,
        is_number: false,
        compare,
    }
}

const fn number(
    name: &'static str,
    title: &'static str,
    compare: fn(&ClientRow, &ClientRow) -> Ordering,
) -> ClientColumn {
    ClientColumn {
        is_number: true,
        ..column(name, title, compare)
    }
}

/// A query for connections: search text, sort order and page.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct ClientQuery {
    pub(crate) search: String,
    pub(crate) sort: &'static str,
    pub(crate) descends: bool,
    /// Page number, from 1.
    pub(crate) page: usize,
    pub(crate) rows: usize,
}

impl ClientQuery {
    /// Parses a query string; invalid parts are ignored.
    pub(crate) fn of(query: &Query) -> ClientQuery {
        let sort = query.get("sort").unwrap_or_default();
        let column = COLUMNS.iter().find(|column| column.name == sort);
        ClientQuery {
            search: query
                .get("search")
                .unwrap_or_default()
                .chars()
                .take(SEARCH_CHARS_MAX)
                .collect(),
            sort: column.unwrap_or(&COLUMNS[0]).name,
            descends: query.get("order") == Some("desc"),
            page: query.count("page", 1, 1_000_000).max(1),
            rows: query.count("rows", ROWS, ROWS_MAX).max(1),
        }
    }
}

/// A page of connections.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct ClientPage {
    pub(crate) asked: ClientQuery,
    /// Number of all connections.
    pub(crate) all: usize,
    /// Number of connections that match the search.
    pub(crate) matching: usize,
    pub(crate) pages: usize,
    pub(crate) rows: Vec<ClientRow>,
}

/// Returns the requested page of connections, or the last page if fewer exist.
pub(crate) fn find(view: &View<'_>, mut asked: ClientQuery) -> ClientPage {
    let clients = view.service.clients().all();
    let sees = view.viewer.sees(Sight::Clients);
    let now_ms = clock::unix_ms();
    let all = clients.len();
    let rows = clients.iter().map(|client| row(client, sees, now_ms));
    let search = asked.search.to_lowercase();
    let is_wanted = |row: &ClientRow| {
        let fields = [
            &row.address,
            &row.name,
            &row.user,
            &row.library,
            &row.command,
        ];
        let has = |field: &&String| field.to_lowercase().contains(&search);
        search.is_empty() || fields.iter().any(has) || row.id.to_string() == search
    };
    let mut rows: Vec<ClientRow> = rows.filter(is_wanted).collect();
    let column = COLUMNS.iter().find(|column| column.name == asked.sort);
    let column = column.unwrap_or(&COLUMNS[0]);
    rows.sort_by(|one, other| {
        let order = (column.compare)(one, other).then(one.id.cmp(&other.id));
        if asked.descends {
            order.reverse()
        } else {
            order
        }
    });
    let matching = rows.len();
    let pages = matching.div_ceil(asked.rows).max(1);
    asked.page = asked.page.min(pages);
    let first = (asked.page - 1) * asked.rows;
    let rows = rows.into_iter().skip(first).take(asked.rows).collect();
    ClientPage {
        asked,
        all,
        matching,
        pages,
        rows,
    }
}

fn row(client: &Arc<Shared>, sees: bool, now_ms: u64) -> ClientRow {
    let seconds = |since_ms: u64| now_ms.saturating_sub(since_ms) / 1_000;
    let labels = client.labels();
    let hidden = |text: String| match sees {
        true => text,
        false => HIDDEN.to_owned(),
    };
    let user = client
        .user()
        .map_or_else(|| "default".to_owned(), |user| name(user.user().name()));
    let library = [labels.lib_name.as_slice(), labels.lib_ver.as_slice()];
    let library: Vec<String> = library.iter().map(|part| name(part)).collect();
    let last = usize::from(client.last_command.load(Relaxed));
    let pushed = client.mailbox().map_or(0, Mailbox::bytes);
    let all = registry().all();
    ClientRow {
        id: client.id,
        address: hidden(name(client.address.as_bytes())),
        name: hidden(name(&labels.name)),
        user: hidden(user),
        library: hidden(library.join(" ").trim().to_owned()),
        age_s: seconds(client.created_ms),
        idle_s: seconds(client.active_ms.load(Relaxed)),
        flags: client::flags(client),
        db: client.db.load(Relaxed),
        command: match (client.peer(), all.get(last)) {
            (Peer::Client, Some(command)) => command.full_name.replace('|', " ").to_uppercase(),
            (Peer::Client, None) => String::new(),
            (Peer::Replica, _) => "(replica)".to_owned(),
            (Peer::Primary, _) => "(primary)".to_owned(),
        },
        commands: client.commands.load(Relaxed),
        bytes_in: client.bytes_in.get(),
        bytes_out: client.bytes_out.get(),
        unsent: (client.output_bytes.load(Relaxed) + pushed) as u64,
        memory: client.memory_bytes() as u64,
    }
}

impl ClientPage {
    /// Formats the page as JSON.
    pub(crate) fn json(&self) -> Value {
        let row = |row: &ClientRow| {
            json!({
                "id": row.id, "address": row.address, "name": row.name, "user": row.user, "library": row.library,
                "age": row.age_s, "idle": row.idle_s, "flags": row.flags, "db": row.db, "command": row.command,
                "commands": row.commands, "in": row.bytes_in, "out": row.bytes_out, "unsent": row.unsent,
                "memory": row.memory,
            })
        };
        json!({
            "all": self.all,
            "matching": self.matching,
            "page": self.asked.page,
            "pages": self.pages,
            "clients": self.rows.iter().map(row).collect::<Vec<_>>(),
        })
    }
}
