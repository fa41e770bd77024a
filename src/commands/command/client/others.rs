//! Actions of one connection on others: closing them, pausing them, ending their waits (KILL, PAUSE, UNPAUSE,
//! UNBLOCK).

use super::filters::{ClientFilterTarget, Filters};
use super::{ADMIN, GROUP, database_count};
use crate::client::shared::Unblocked;
use crate::command::context::{After, SessionCx};
use crate::command::declaration::{Command, CommandResult};
use crate::command::error::{CommandError, shown_name};
use crate::command::options::blocking_timeout_ms;
use crate::command::{Args, Out};

/// `CLIENT KILL <ip:port | <[ID client-id] | [TYPE …] | [USER username] | [ADDR ip:port] | …>>`
pub(super) static KILL: Command = Command::sub("client|kill", "kill", GROUP, -3)
    .flags(ADMIN)
    .doc(
        "2.4.0",
        "<ip:port | <[ID client-id] | [TYPE <NORMAL | MASTER | SLAVE | REPLICA | PUBSUB>] | \
         [USER username] | [ADDR ip:port] | [LADDR ip:port] | [SKIPME <YES | NO>] | \
         [MAXAGE maxage] [[ID client-id] | [TYPE <NORMAL | MASTER | SLAVE | REPLICA | PUBSUB>] | \
         [USER username] | [ADDR ip:port] | [LADDR ip:port] | [SKIPME <YES | NO>] | \
         [MAXAGE maxage] ...]>>",
        "Closes client connections.",
    )
    .complexity("O(N) for N connections.")
    .history(&[
        ("2.8.12", "Added the form with filters."),
        ("2.8.12", "Added the `ID` filter."),
        ("3.2.0", "Added the type `master`."),
        (
            "5.0.0",
            "Renamed the type `slave` to `replica`; the old name still works.",
        ),
        ("6.2.0", "Added the `LADDR` filter."),
        ("7.4.0", "Added the `MAXAGE` filter."),
        (
            "9.0.0",
            "Added filters for all fields of `CLIENT LIST`, and negated filters that begin with `NOT-`.",
        ),
    ])
    .on_session(kill);

fn kill(cx: &mut SessionCx<'_>, args: &Args<'_>, out: &mut Out) -> CommandResult {
    let filters = match args.len() {
        3 => Filters::of_address(args.get(2)),
        _ => Filters::read(
            args,
            cx.server.users(),
            database_count(cx),
            ClientFilterTarget::Kill,
        )?,
    };
    let self_id = cx.client.id();
    let now_ms = cx.now.unix_ms;
    let mut killed = 0;
    let clients = cx.server.clients();
    for client in clients.all() {
        if !filters.hold(&client, self_id, now_ms) {
            continue;
        }
        killed += 1;
        if client.id == self_id {
            cx.after = After::Close;
        } else {
            clients.kill(&client);
        }
    }
    match (args.len(), killed) {
        (3, 0) => return Err("ERR No such client".into()),
        (3, _) => out.ok(),
        _ => out.integer(killed),
    }
    Ok(())
}

/// `CLIENT PAUSE timeout [WRITE | ALL]`
pub(super) static PAUSE: Command = Command::sub("client|pause", "pause", GROUP, -3)
    .flags(ADMIN)
    .doc(
        "3.0.0",
        "timeout:integer [WRITE | ALL]",
        "Pauses all commands, or only writes, for a number of milliseconds.",
    )
    .history(&[("6.2.0", "Added the modes `WRITE` and `ALL`.")])
    .on_session(pause);

fn pause(cx: &mut SessionCx<'_>, args: &Args<'_>, out: &mut Out) -> CommandResult {
    if args.len() > 4 {
        return Err(too_many(args));
    }
    let writes_only = args.len() == 4 && args.is(3, "write");
    if args.len() == 4 && !writes_only && !args.is(3, "all") {
        return Err("ERR CLIENT PAUSE mode must be WRITE or ALL".into());
    }
    let Some(until_ms) = blocking_timeout_ms(args, 2, cx.now)? else {
        out.ok();
        return Ok(());
    };
    let landed = cx.server.pause(until_ms, writes_only);
    match cx.outbox.is_of_transaction() {
        // A transaction has shards locked, and does not wait.
        true => out.ok(),
        false => cx.after = After::Await(landed),
    }
    Ok(())
}

/// `CLIENT UNPAUSE`
pub(super) static UNPAUSE: Command = Command::sub("client|unpause", "unpause", GROUP, 2)
    .flags(ADMIN)
    .doc(
        "6.2.0",
        "",
        "Ends CLIENT PAUSE: commands are processed again.",
    )
    .complexity("O(N) for N connections.")
    .on_session(|cx, _, out| {
        cx.server.unpause();
        out.ok();
        Ok(())
    });

/// `CLIENT UNBLOCK client-id [TIMEOUT | ERROR]`
pub(super) static UNBLOCK: Command = Command::sub("client|unblock", "unblock", GROUP, -3)
    .flags(ADMIN)
    .doc(
        "5.0.0",
        "client-id [TIMEOUT | ERROR]",
        "Unblocks a blocked connection, as if it had timed out or with an error.",
    )
    .complexity("O(1)")
    .on_session(unblock);

fn unblock(cx: &mut SessionCx<'_>, args: &Args<'_>, out: &mut Out) -> CommandResult {
    if args.len() > 4 {
        return Err(too_many(args));
    }
    let how = match args.len() {
        4 if args.is(3, "error") => Unblocked::WithError,
        4 if !args.is(3, "timeout") => {
            return Err("ERR CLIENT UNBLOCK reason should be TIMEOUT or ERROR".into());
        }
        _ => Unblocked::TimedOut,
    };
    let id = args.integer(2)?;
    let client = cx.server.clients().get(id as u64);
    out.integer(i64::from(client.is_some_and(|client| client.unblock(how))));
    Ok(())
}

#[cold]
fn too_many(args: &Args<'_>) -> CommandError {
    let name = shown_name(args.get(1));
    format!("ERR unknown subcommand or wrong number of arguments for '{name}'. Try CLIENT HELP.")
        .into()
}
