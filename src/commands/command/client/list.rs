//! CLIENT LIST and INFO: a connection in one line, with the fields of Redis 7.4 and Valkey 9 in their order.

use std::fmt::Write as _;
use std::sync::atomic::Ordering::Relaxed;

use super::filters::{ClientFilterTarget, Filters};
use super::kind;
use super::{ADMIN, FLAGS, GROUP, database_count};
use crate::client::shared::mailbox::{Mailbox, Topic};
use crate::client::shared::tracking::TrackingOptions;
use crate::client::shared::{Peer, Shared};
use crate::command::context::SessionCx;
use crate::command::declaration::{Command, CommandResult, Flags};
use crate::command::registry::registry;
use crate::command::{Args, Out};
use basalt_core::base::number;

/// `CLIENT INFO`
pub(super) static INFO: Command = Command::sub("client|info", "info", GROUP, 2)
    .flags(FLAGS)
    .doc("6.2.0", "", "Returns information about this connection.")
    .tips(&["nondeterministic_output"])
    .repeatable()
    .on_session(info);

fn info(cx: &mut SessionCx<'_>, args: &Args<'_>, out: &mut Out) -> CommandResult {
    let mut text = String::new();
    describe_to(cx, args, &cx.client.shared, &mut text);
    out.verbatim("txt", text);
    Ok(())
}

/// `CLIENT LIST [TYPE <NORMAL | MASTER | REPLICA | PUBSUB>] [ID client-id [client-id ...]] [filter value ...]`
pub(super) static LIST: Command = Command::sub("client|list", "list", GROUP, -2)
    .flags(ADMIN.or(Flags::OTHERS_FIRST))
    .doc(
        "2.4.0",
        "[TYPE <NORMAL | MASTER | REPLICA | PUBSUB>] [ID client-id [client-id ...]]",
        "Returns information about the connections, one per line.",
    )
    .complexity("O(N) for N connections.")
    .history(&[
        ("2.8.12", "Added the `id` field."),
        ("5.0.0", "Added the `TYPE` filter."),
        ("6.0.0", "Added the `user` field."),
        (
            "6.2.0",
            "Added the `ID` filter and the fields `argv-mem`, `tot-mem`, `laddr` and `redir`.",
        ),
        (
            "7.0.0",
            "Added the fields `resp`, `multi-mem`, `rbs` and `rbp`.",
        ),
        ("7.0.3", "Added the `ssub` field."),
        ("8.0.0", "Added the `capa` field."),
        (
            "9.0.0",
            "Added filters for all fields, and negated filters that begin with `NOT-`.",
        ),
    ])
    .tips(&["nondeterministic_output"])
    .repeatable()
    .on_session(list);

fn list(cx: &mut SessionCx<'_>, args: &Args<'_>, out: &mut Out) -> CommandResult {
    let mut text = String::new();
    let ids: Option<Vec<i64>> = args.from(3).map(number::parse_i64).collect();
    if let Some(ids) = ids.filter(|_| args.len() > 3 && args.is(2, "id")) {
        // In the order of the IDs in the request.
        for id in ids {
            if let Some(client) = cx.server.clients().get(id as u64) {
                describe_to(cx, args, &client, &mut text);
            }
        }
    } else {
        let filters = Filters::read(
            args,
            cx.server.users(),
            database_count(cx),
            ClientFilterTarget::List,
        )?;
        for client in cx.server.clients().all() {
            if filters.hold(&client, cx.client.id(), cx.now.unix_ms) {
                describe_to(cx, args, &client, &mut text);
            }
        }
    }
    out.verbatim("txt", text);
    Ok(())
}

/// Writes the line of a connection. The requesting connection's own request counts as part of its query buffer, as in
/// Redis, although it is read into a shared buffer here; fields that exist only because of the way Redis buffers are
/// zero.
fn describe_to(cx: &SessionCx<'_>, args: &Args<'_>, client: &Shared, text: &mut String) {
    let asking = (client.id == cx.client.id()).then(|| CallingClient {
        db: cx.client.db,
        protocol: cx.client.protocol.version(),
        command: cx.command.full_name,
        request_bytes: request_bytes(args),
        argument_bytes: args.from(0).map(<[u8]>::len).sum(),
    });
    write_line(client, asking.as_ref(), cx.now.unix_ms, text);
}

/// Returns the line of a connection, without its line end.
pub(in crate::command) fn describe(client: &Shared, now_ms: u64) -> String {
    let mut text = String::new();
    write_line(client, None, now_ms, &mut text);
    text.truncate(text.trim_end().len());
    text
}

/// Properties that a connection knows only of itself.
struct CallingClient {
    db: usize,
    protocol: u8,
    command: &'static str,
    request_bytes: usize,
    argument_bytes: usize,
}

fn write_line(client: &Shared, asking: Option<&CallingClient>, now_ms: u64, text: &mut String) {
    let is_self = asking.is_some();
    let (query_bytes, argument_bytes) = match asking {
        Some(asking) => (asking.request_bytes, asking.argument_bytes),
        None => (client.query_bytes.load(Relaxed), 0),
    };
    let user = client.user().map_or_else(
        || "default".to_owned(),
        |user| String::from_utf8_lossy(user.user().name()).into_owned(),
    );
    let output_bytes = client.output_bytes.load(Relaxed);
    let free_bytes = client
        .buffer_bytes
        .load(Relaxed)
        .saturating_sub(query_bytes);
    let (pushes, pushed_bytes) = client
        .mailbox()
        .map_or((0, 0), |mailbox| (mailbox.pushes(), mailbox.bytes()));
    let subscriptions = |topic| {
        client
            .mailbox()
            .map_or(0, |mailbox: &Mailbox| mailbox.count(topic))
    };
    let queued_bytes = client.queued_bytes.load(Relaxed);
    // The query buffer of other connections is known; this request may be in a buffer that belongs to no client.
    let unowned_bytes = query_bytes.saturating_sub(client.buffer_bytes.load(Relaxed));
    let unowned_bytes = if is_self { unowned_bytes } else { 0 };
    let stream_bytes = match client.peer() {
        Peer::Replica => output_bytes,
        _ => 0,
    };
    let total_bytes = client.memory_bytes() + unowned_bytes + argument_bytes + stream_bytes;
    let waiting_bytes = output_bytes + pushed_bytes;
    let command = match last_command(client) {
        None => asking.map_or("NULL", |asking| asking.command),
        Some(last) => last,
    };
    let labels = client.labels();
    let seconds = |since_ms: u64| (now_ms / 1000).saturating_sub(since_ms / 1000);
    let _ = writeln!(
        text,
        "id={} addr={} laddr={} fd={} name={} age={} idle={} flags={} capa={} db={} sub={} psub={} ssub={} \
         multi={} watch={} qbuf={query_bytes} qbuf-free={free_bytes} argv-mem={argument_bytes} multi-mem={queued_bytes} \
         rbs=0 rbp=0 obl=0 oll={pushes} omem={waiting_bytes} tot-mem={total_bytes} events={} cmd={command} \
         user={user} redir={} resp={} lib-name={} lib-ver={} tot-net-in={} tot-net-out={} tot-cmds={}",
        client.id,
        client.address,
        client.local_address,
        client.fd(),
        String::from_utf8_lossy(&labels.name),
        seconds(client.created_ms),
        if is_self {
            0
        } else {
            seconds(client.active_ms.load(Relaxed))
        },
        kind::flags(client),
        kind::capabilities(client),
        asking.map_or(client.db.load(Relaxed) as usize, |asking| asking.db),
        subscriptions(Topic::Channel),
        subscriptions(Topic::Pattern),
        subscriptions(Topic::ShardChannel),
        client.queued.load(Relaxed),
        client.watched.load(Relaxed),
        if output_bytes == 0 { "r" } else { "rw" },
        redirection(client),
        asking.map_or(client.resp.load(Relaxed), |asking| asking.protocol),
        String::from_utf8_lossy(&labels.lib_name),
        String::from_utf8_lossy(&labels.lib_ver),
        client.bytes_in.get(),
        client.bytes_out.get(),
        client.commands.load(Relaxed),
    );
}

/// Returns the last command of a connection, if it is known.
fn last_command(client: &Shared) -> Option<&'static str> {
    let last = usize::from(client.last_command.load(Relaxed));
    registry().all().get(last).map(|command| command.full_name)
}

/// Returns the ID of the client that receives this client's invalidation messages: 0 for itself, -1 if it does not
/// track.
pub(super) fn redirection(client: &Shared) -> i64 {
    match client.tracking() {
        Some(tracking) if tracking.options().any(TrackingOptions::ON) => {
            tracking.redirect_id() as i64
        }
        _ => -1,
    }
}

/// Returns the bytes of a request sent as an array.
pub(super) fn request_bytes(args: &Args<'_>) -> usize {
    let line = |number: usize| number.checked_ilog10().unwrap_or(0) as usize + 4;
    line(args.len())
        + args
            .from(0)
            .map(|argument| line(argument.len()) + argument.len() + 2)
            .sum::<usize>()
}
