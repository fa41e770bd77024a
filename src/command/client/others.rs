//! What one connection may do to others: close them, hold them back, end their waits.

use super::list::ClientType;
use super::{ADMIN, GROUP};
use crate::base::number;
use crate::client::registry::{Shared, Unblocked};
use crate::command::connection::DEFAULT_USER;
use crate::command::context::{After, SessionCx};
use crate::command::declaration::{Command, CommandResult};
use crate::command::error::{CommandError, shown, shown_name};
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
        "Closes connections.",
    )
    .complexity("O(N) for N connections.")
    .history(&[
        ("2.8.12", "Added the form with filters."),
        ("2.8.12", "Added the `ID` filter."),
        ("3.2.0", "Added the type `master`."),
        (
            "5.0.0",
            "Named the type `slave` `replica`; the old name still works.",
        ),
        ("6.2.0", "Added the `LADDR` filter."),
        ("7.4.0", "Added the `MAXAGE` filter."),
    ])
    .on_session(kill);

/// Which connections to close: those for which every filter holds.
struct Filters<'a> {
    id: Option<u64>,
    address: Option<&'a [u8]>,
    local_address: Option<&'a [u8]>,
    client_type: Option<ClientType>,
    age_s_min: Option<u64>,
    spares_self: bool,
}

impl<'a> Filters<'a> {
    fn read(args: &Args<'a>) -> Result<Filters<'a>, CommandError> {
        let mut filters = Filters {
            id: None,
            address: None,
            local_address: None,
            client_type: None,
            age_s_min: None,
            spares_self: true,
        };
        if args.len() == 3 {
            // The old form: one address, which may be one's own.
            filters.address = Some(args.get(2));
            filters.spares_self = false;
            return Ok(filters);
        }
        let mut at = 2;
        while at < args.len() {
            if at + 1 >= args.len() {
                return Err(CommandError::Syntax);
            }
            let value = args.get(at + 1);
            if args.is(at, "id") {
                let id = number::parse_i64(value).filter(|id| *id > 0);
                filters.id = Some(id.ok_or("ERR client-id should be greater than 0")? as u64);
            } else if args.is(at, "maxage") {
                let age_s = number::parse_i64(value)
                    .ok_or("ERR maxage is not an integer or out of range")?;
                if age_s <= 0 {
                    return Err("ERR maxage should be greater than 0".into());
                }
                filters.age_s_min = Some(age_s as u64);
            } else if args.is(at, "type") {
                filters.client_type = Some(ClientType::named(value)?);
            } else if args.is(at, "addr") {
                filters.address = Some(value);
            } else if args.is(at, "laddr") {
                filters.local_address = Some(value);
            } else if args.is(at, "user") {
                // The only user is everybody's.
                if value != DEFAULT_USER.as_bytes() {
                    let name = shown(value);
                    return Err(format!("ERR No such user '{name}'").into());
                }
            } else if args.is(at, "skipme") {
                filters.spares_self = args.is(at + 1, "yes");
                if !filters.spares_self && !args.is(at + 1, "no") {
                    return Err(CommandError::Syntax);
                }
            } else {
                return Err(CommandError::Syntax);
            }
            at += 2;
        }
        Ok(filters)
    }

    fn hold(&self, client: &Shared, self_id: u64, now_s: u64) -> bool {
        let age_s = now_s.saturating_sub(client.created_ms / 1000);
        self.id.is_none_or(|id| id == client.id)
            && self
                .address
                .is_none_or(|at| at == client.address.as_bytes())
            && self
                .local_address
                .is_none_or(|at| at == client.local_address.as_bytes())
            && self
                .client_type
                .is_none_or(|wanted| wanted == ClientType::of(client))
            && self.age_s_min.is_none_or(|min| age_s >= min)
            && !(self.spares_self && client.id == self_id)
    }
}

fn kill(cx: &mut SessionCx<'_>, args: &Args<'_>, out: &mut Out) -> CommandResult {
    let filters = Filters::read(args)?;
    let self_id = cx.client.id();
    let now_s = cx.now.unix_ms / 1000;
    let mut killed = 0;
    let clients = cx.server.clients();
    for client in clients.all() {
        if !filters.hold(&client, self_id, now_s) {
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
        "Holds all requests, or only writes, back for so many milliseconds.",
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
    if let Some(until_ms) = blocking_timeout_ms(args, 2, cx.now)? {
        cx.server.pause(until_ms, writes_only);
    }
    out.ok();
    Ok(())
}

/// `CLIENT UNPAUSE`
pub(super) static UNPAUSE: Command = Command::sub("client|unpause", "unpause", GROUP, 2)
    .flags(ADMIN)
    .doc("6.2.0", "", "Ends a pause.")
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
        "Ends the wait of a blocked connection, as if its time were over or with an error.",
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
