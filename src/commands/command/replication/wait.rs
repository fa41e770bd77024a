//! WAIT and WAITAOF: wait until replicas, or the append-only file, have what this connection wrote.

use std::sync::atomic::Ordering::Relaxed;

use crate::client::connection::Connection;
use crate::command::context::{After, Block, Look, RequiredCopies, SessionCx};
use crate::command::declaration::{Categories, Command, CommandResult, Flags, Group};
use crate::command::host::Server;
use crate::command::host::primary::Acknowledged;
use crate::command::options::blocking_timeout_ms;
use crate::command::{Args, Out};

const TIPS: &[&str] = &["request_policy:all_shards", "response_policy:agg_min"];

/// `WAIT numreplicas timeout`
pub(super) static WAIT: Command = Command::new("wait", Group::Generic, 3)
    .flags(Flags::BLOCKING)
    .categories(Categories::CONNECTION)
    .doc(
        "3.0.0",
        "numreplicas timeout:integer",
        "Waits until a number of replicas have acknowledged this connection's writes.",
    )
    .tips(TIPS)
    .repeatable()
    .on_session(wait);

fn wait(cx: &mut SessionCx<'_>, args: &Args<'_>, out: &mut Out) -> CommandResult {
    refuse_on_replica(
        cx,
        "WAIT",
        "since Redis 4.0 if a replica is configured to be writable (which is not the default) ",
    )?;
    let replicas = args.integer(1)?;
    let until_ms = blocking_timeout_ms(args, 2, cx.now)?;
    let found = look(cx.server, cx.client, false);
    if found.replicas.received.cast_signed() >= replicas || cx.outbox.is_of_transaction() {
        out.integer(found.replicas.received.cast_signed());
        return Ok(());
    }
    let wanted = RequiredCopies {
        local: false,
        replicas: replicas.cast_unsigned(),
    };
    block(
        cx,
        until_ms,
        wanted,
        |server, connection, wanted, is_over, out| {
            let found = look(server, connection, !is_over);
            let has_come = is_over || found.replicas.received >= wanted.replicas;
            has_come.then(|| {
                out.integer(found.replicas.received.cast_signed());
                Ok(())
            })
        },
    );
    Ok(())
}

fn refuse_on_replica(cx: &SessionCx<'_>, name: &str, since: &str) -> CommandResult {
    match cx.server.replica().upstream() {
        None => Ok(()),
        Some(_) => Err(format!(
            "ERR {name} cannot be used with replica instances. Please also note that {since}writes to replicas are just local and \
             are not propagated."
        )
        .into()),
    }
}

fn block(
    cx: &mut SessionCx<'_>,
    until_ms: Option<u64>,
    wanted: RequiredCopies,
    has_come: fn(&dyn Server, &Connection, RequiredCopies, bool, &mut Out) -> Option<CommandResult>,
) {
    if wanted.replicas > 0 {
        let written = cx.client.shared.log_position.load(Relaxed);
        let primary = cx.server.primary();
        primary.ask_for_acknowledgements(Some(written));
    }
    cx.after = After::Block(Block {
        until_ms,
        // Never called: `look` replies on timeout.
        on_timeout: Out::null,
        look: Some(Look { has_come, wanted }),
        holds: false,
    });
}

/// The copies (file and replicas) that already contain what a connection wrote.
struct AcknowledgedCopies {
    /// Whether the append-only file contains it; None: the file is off.
    local: Option<bool>,
    replicas: Acknowledged,
}

/// Looks up which copies contain what the connection wrote. If `waits`, the connection is woken when that may have
/// changed.
fn look(server: &dyn Server, connection: &Connection, waits: bool) -> AcknowledgedCopies {
    let position = connection.shared.log_position.load(Relaxed);
    let waiter = waits.then_some(&connection.shared);
    AcknowledgedCopies {
        local: server.is_aof_synced(position, waiter),
        replicas: server.primary().acknowledged(position, waiter),
    }
}

/// `WAITAOF numlocal numreplicas timeout`
pub(super) static WAITAOF: Command = Command::new("waitaof", Group::Generic, 4)
    .flags(Flags::BLOCKING)
    .categories(Categories::CONNECTION)
    .doc(
        "7.2.0",
        "numlocal numreplicas timeout:integer",
        "Waits until this connection's writes are in the append-only files here and on replicas.",
    )
    .tips(TIPS)
    .repeatable()
    .on_session(wait_aof);

fn wait_aof(cx: &mut SessionCx<'_>, args: &Args<'_>, out: &mut Out) -> CommandResult {
    let local = args.integer(1)?;
    if !(0..=1).contains(&local) {
        return Err("ERR value is out of range, value must between 0 and 1".into());
    }
    let replicas = args.integer(2)?;
    if replicas < 0 {
        return Err("ERR value is out of range, must be positive".into());
    }
    let until_ms = blocking_timeout_ms(args, 3, cx.now)?;
    refuse_on_replica(cx, "WAITAOF", "")?;
    let wanted = RequiredCopies {
        local: local == 1,
        replicas: replicas.cast_unsigned(),
    };
    let found = look(cx.server, cx.client, false);
    if wanted.local && found.local.is_none() {
        return Err(OFF.into());
    }
    if found.is_enough(wanted) || cx.outbox.is_of_transaction() {
        found.reply(out);
        return Ok(());
    }
    block(cx, until_ms, wanted, look_at_disks);
    Ok(())
}

const OFF: &str = "ERR WAITAOF cannot be used when numlocal is set but appendonly is disabled.";

fn look_at_disks(
    server: &dyn Server,
    connection: &Connection,
    wanted: RequiredCopies,
    is_over: bool,
    out: &mut Out,
) -> Option<CommandResult> {
    let found = look(server, connection, !is_over);
    if wanted.local && found.local.is_none() {
        return Some(Err(OFF.into()));
    }
    (is_over || found.is_enough(wanted)).then(|| {
        found.reply(out);
        Ok(())
    })
}

impl AcknowledgedCopies {
    fn is_enough(&self, wanted: RequiredCopies) -> bool {
        let local = !wanted.local || self.local == Some(true);
        local && self.replicas.synced >= wanted.replicas
    }

    fn reply(&self, out: &mut Out) {
        out.array(2);
        out.integer(i64::from(self.local == Some(true)));
        out.integer(self.replicas.synced.cast_signed());
    }
}
