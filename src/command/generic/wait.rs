//! WAIT and WAITAOF: until replicas, or the append-only file, have what this connection wrote.
//!
//! There are no replicas yet, so of these what is asked for is either nothing, or never comes: then the connection waits
//! for its time as it would on a Redis without replicas.

use std::sync::atomic::Ordering::Relaxed;

use crate::client::connection::Connection;
use crate::command::context::{After, Block, Server, SessionCx};
use crate::command::declaration::{Categories, Command, CommandResult, Flags, Group};
use crate::command::options::blocking_timeout_ms;
use crate::command::{Args, Out};

const TIPS: &[&str] = &["request_policy:all_shards", "response_policy:agg_min"];

/// `WAIT numreplicas timeout`
pub(super) static WAIT: Command = Command::new("wait", Group::Generic, 3)
    .flags(Flags::NOSCRIPT.or(Flags::SCRIPTS_MAY))
    .categories(Categories::CONNECTION)
    .doc(
        "3.0.0",
        "numreplicas timeout:integer",
        "Waits until so many replicas have what this connection wrote.",
    )
    .tips(TIPS)
    .repeatable()
    .on_session(wait);

fn wait(cx: &mut SessionCx<'_>, args: &Args<'_>, out: &mut Out) -> CommandResult {
    let wanted = args.integer(1)?;
    let until_ms = blocking_timeout_ms(args, 2, cx.now)?;
    if wanted <= 0 {
        out.integer(0);
    } else {
        cx.after = After::Block(Block {
            until_ms,
            on_timeout: |out| out.integer(0),
            look: None,
            holds: false,
        });
    }
    Ok(())
}

/// `WAITAOF numlocal numreplicas timeout`
pub(super) static WAITAOF: Command = Command::new("waitaof", Group::Generic, 4)
    .flags(Flags::NOSCRIPT.or(Flags::SCRIPTS_MAY))
    .categories(Categories::CONNECTION)
    .doc(
        "7.2.0",
        "numlocal numreplicas timeout:integer",
        "Waits until the append-only files here and on replicas have what this connection wrote.",
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
    let position = cx.client.shared.log_position.load(Relaxed);
    let is_synced = cx.server.is_aof_synced(position, None);
    if local == 1 && is_synced.is_none() {
        return Err(OFF.into());
    }
    let is_synced = is_synced.unwrap_or(false);
    let is_enough = replicas == 0 && (local == 0 || is_synced);
    if is_enough || cx.outbox.is_of_transaction() {
        reply_aof(out, is_synced);
        return Ok(());
    }
    cx.after = After::Block(Block {
        until_ms,
        on_timeout: |out| reply_aof(out, false),
        look: Some(match (local, replicas) {
            (0, _) => look_at_replicas,
            (_, 0) => look_at_disk,
            _ => look_at_both,
        }),
        holds: false,
    });
    Ok(())
}

const OFF: &str = "ERR WAITAOF cannot be used when numlocal is set but appendonly is disabled.";

/// Until the append-only file has it.
fn look_at_disk(
    server: &dyn Server,
    connection: &Connection,
    is_over: bool,
    out: &mut Out,
) -> Option<CommandResult> {
    let position = connection.shared.log_position.load(Relaxed);
    let waiter = (!is_over).then_some(&connection.shared);
    match server.is_aof_synced(position, waiter) {
        None => return Some(Err(OFF.into())),
        Some(false) if !is_over => return None,
        Some(is_synced) => reply_aof(out, is_synced),
    }
    Some(Ok(()))
}

/// Until replicas have it: there are none.
fn look_at_replicas(
    server: &dyn Server,
    connection: &Connection,
    is_over: bool,
    out: &mut Out,
) -> Option<CommandResult> {
    let position = connection.shared.log_position.load(Relaxed);
    is_over.then(|| {
        reply_aof(out, server.is_aof_synced(position, None).unwrap_or(false));
        Ok(())
    })
}

/// Until both have it.
fn look_at_both(
    server: &dyn Server,
    connection: &Connection,
    is_over: bool,
    out: &mut Out,
) -> Option<CommandResult> {
    let position = connection.shared.log_position.load(Relaxed);
    // Also where the disk has it, it has to hear when the file is turned off.
    let is_synced = server.is_aof_synced(position, Some(&connection.shared));
    if is_synced.is_none() {
        return Some(Err(OFF.into()));
    }
    look_at_replicas(server, connection, is_over, out)
}

/// Whether the file here has it; no replica does.
fn reply_aof(out: &mut Out, is_synced: bool) {
    out.array(2);
    out.integer(i64::from(is_synced));
    out.integer(0);
}
