//! CLIENT: settings of a connection, and actions on others.
//!
//! ```text
//! mod          ID GETNAME SETNAME SETINFO CAPA REPLY NO-EVICT NO-TOUCH HELP
//! list         INFO LIST, and the line that describes a connection
//! kind         the type and flags of a connection
//! filters      the connections that LIST shows and KILL closes
//! others       KILL PAUSE UNPAUSE UNBLOCK
//! tracking     TRACKING CACHING GETREDIR TRACKINGINFO
//! maintenance  MAINT_NOTIFICATIONS
//! ```

mod filters;
mod kind;
mod list;
mod maintenance;
mod others;
#[cfg(test)]
mod tests;
mod tracking;

use std::sync::atomic::Ordering::Relaxed;

pub use kind::flags;
pub(super) use list::describe;

use super::context::SessionCx;
use super::declaration::{Command, CommandResult, Flags, Group};
use super::error::{CommandError, shown};
use super::{Args, Out};
use crate::client::connection::ReplyMode;
use crate::cluster::route::RoutingFlags;

/// Returns the bytes of a request sent as an array.
pub fn request_bytes(args: &Args<'_>) -> usize {
    list::request_bytes(args)
}

pub(super) static TABLE: &[&Command] = &[&CLIENT];

const GROUP: Group = Group::Connection;
const FLAGS: Flags = Flags::NOSCRIPT
    .or(Flags::LOADING)
    .or(Flags::STALE)
    .or(Flags::KEEPS_CACHING);
const ADMIN: Flags = FLAGS.or(Flags::ADMIN);

/// `CLIENT subcommand`
static CLIENT: Command = Command::new("client", GROUP, -2)
    .doc("2.4.0", "", "Groups the commands for client connections.")
    .complexity("Depends on subcommand.")
    .container(&[
        &tracking::CACHING,
        &CAPA,
        &GETNAME,
        &tracking::GETREDIR,
        &HELP,
        &ID,
        &list::INFO,
        &others::KILL,
        &list::LIST,
        &maintenance::MAINT_NOTIFICATIONS,
        &NO_EVICT,
        &NO_TOUCH,
        &others::PAUSE,
        &REPLY,
        &SETINFO,
        &SETNAME,
        &tracking::TRACKING,
        &tracking::TRACKINGINFO,
        &others::UNBLOCK,
        &others::UNPAUSE,
    ]);

/// `CLIENT ID`
static ID: Command = Command::sub("client|id", "id", GROUP, 2)
    .flags(FLAGS)
    .doc("5.0.0", "", "Returns the ID of the connection.")
    .repeatable()
    .on_session(|cx, _, out| {
        out.integer(cx.client.id() as i64);
        Ok(())
    });

/// `CLIENT GETNAME`
static GETNAME: Command = Command::sub("client|getname", "getname", GROUP, 2)
    .flags(FLAGS)
    .doc("2.6.9", "", "Returns the name of this connection.")
    .repeatable()
    .on_session(|cx, _, out| {
        let name = cx.client.shared.labels().name;
        if name.is_empty() {
            out.null();
        } else {
            out.bulk(&name);
        }
        Ok(())
    });

/// `CLIENT SETNAME connection-name`
static SETNAME: Command = Command::sub("client|setname", "setname", GROUP, 3)
    .flags(FLAGS)
    .doc(
        "2.6.9",
        "connection-name",
        "Sets the name of the connection; an empty name removes it.",
    )
    .tips(&["request_policy:all_nodes", "response_policy:all_succeeded"])
    .repeatable()
    .on_session(|cx, args, out| {
        check_name(args.get(2))?;
        set_name(cx, args.get(2));
        out.ok();
        Ok(())
    });

/// Checks that a name contains only characters allowed in the lines of CLIENT LIST.
pub(super) fn check_name(name: &[u8]) -> CommandResult {
    if is_printable(name) {
        return Ok(());
    }
    Err("ERR Client names cannot contain spaces, newlines or special characters.".into())
}

pub(super) fn set_name(cx: &mut SessionCx<'_>, name: &[u8]) {
    cx.client
        .shared
        .set_labels(|labels| labels.name = name.to_vec());
}

fn is_printable(text: &[u8]) -> bool {
    text.iter().all(u8::is_ascii_graphic)
}

/// `CLIENT SETINFO <LIB-NAME libname | LIB-VER libver>`
static SETINFO: Command = Command::sub("client|setinfo", "setinfo", GROUP, 4)
    .flags(FLAGS)
    .doc(
        "7.2.0",
        "<LIB-NAME libname | LIB-VER libver>",
        "Sets the name or version of the connection's client library.",
    )
    .tips(&["request_policy:all_nodes", "response_policy:all_succeeded"])
    .repeatable()
    .on_session(set_info);

fn set_info(cx: &mut SessionCx<'_>, args: &Args<'_>, out: &mut Out) -> CommandResult {
    let is_name = args.is(2, "lib-name");
    let attribute = || shown(args.get(2)).into_owned();
    if !is_name && !args.is(2, "lib-ver") {
        return Err(format!("ERR Unrecognized option '{}'", attribute()).into());
    }
    let value = args.get(3);
    if !is_printable(value) {
        return Err(format!(
            "ERR {} cannot contain spaces, newlines or special characters.",
            attribute()
        )
        .into());
    }
    cx.client.shared.set_labels(|labels| {
        let label = if is_name {
            &mut labels.lib_name
        } else {
            &mut labels.lib_ver
        };
        *label = value.to_vec();
    });
    out.ok();
    Ok(())
}

/// `CLIENT CAPA capability [capability ...]`
static CAPA: Command = Command::sub("client|capa", "capa", GROUP, -3)
    .flags(FLAGS)
    .doc(
        "8.0.0",
        "capability [capability ...]",
        "Declares what the client supports: `redirect`, following redirections from a replica to its primary.",
    )
    .repeatable()
    .on_session(|cx, args, out| {
        // Other capabilities belong to later servers and are ignored.
        if (2..args.len()).any(|at| args.is(at, "redirect")) {
            let own = cx.client.own_routing.or(RoutingFlags::TAKES_REDIRECTS);
            let routing = cx.client.routing.or(RoutingFlags::TAKES_REDIRECTS);
            (cx.client.own_routing, cx.client.routing) = (own, routing);
            cx.client.shared.takes_redirects.store(true, Relaxed);
        }
        out.ok();
        Ok(())
    });

/// Returns the number of databases that a client can select.
fn database_count(cx: &SessionCx<'_>) -> u64 {
    u64::from(cx.config.databases)
}

/// `CLIENT REPLY <ON | OFF | SKIP>`
static REPLY: Command = Command::sub("client|reply", "reply", GROUP, 3)
    .flags(FLAGS)
    .doc(
        "3.2.0",
        "<ON | OFF | SKIP>",
        "Sets whether the server replies to the commands of the connection.",
    )
    .repeatable()
    .on_session(reply);

/// Sets the reply mode. The session suppresses replies, including the one of this request.
fn reply(cx: &mut SessionCx<'_>, args: &Args<'_>, out: &mut Out) -> CommandResult {
    if args.is(2, "on") {
        cx.client.set_reply_mode(ReplyMode::On);
        out.ok();
    } else if args.is(2, "off") {
        cx.client.set_reply_mode(ReplyMode::Off);
    } else if args.is(2, "skip") {
        if cx.client.reply_mode != ReplyMode::Off {
            cx.client.set_reply_mode(ReplyMode::SkipNext);
        }
    } else {
        return Err(CommandError::Syntax);
    }
    Ok(())
}

/// `CLIENT NO-EVICT <ON | OFF>`
static NO_EVICT: Command = Command::sub("client|no-evict", "no-evict", GROUP, 3)
    .flags(ADMIN)
    .doc(
        "7.0.0",
        "<ON | OFF>",
        "Excludes the connection from client eviction.",
    )
    .repeatable()
    .on_session(|cx, args, out| {
        let on = switch(args)?;
        cx.client.shared.no_evict.store(on, Relaxed);
        out.ok();
        Ok(())
    });

/// `CLIENT NO-TOUCH <ON | OFF>`
static NO_TOUCH: Command = Command::sub("client|no-touch", "no-touch", GROUP, 3)
    .flags(FLAGS)
    .doc(
        "7.2.0",
        "<ON | OFF>",
        "Sets whether the connection's commands leave the access times of keys unchanged.",
    )
    .repeatable()
    .on_session(|cx, args, out| {
        let on = switch(args)?;
        cx.client.no_touch = on;
        cx.client.shared.no_touch.store(on, Relaxed);
        out.ok();
        Ok(())
    });

fn switch(args: &Args<'_>) -> Result<bool, CommandError> {
    match args.is(2, "on") {
        false if !args.is(2, "off") => Err(CommandError::Syntax),
        on => Ok(on),
    }
}

/// `CLIENT HELP`
static HELP: Command = Command::sub("client|help", "help", GROUP, 2)
    .flags(Flags::LOADING.or(Flags::STALE).or(Flags::KEEPS_CACHING))
    .doc("5.0.0", "", "Explains the subcommands.")
    .on_help(HELP_LINES);

const HELP_LINES: &[&str] = &[
    "CACHING (YES|NO)",
    "    Set whether the keys of the next command are tracked, in the modes OPTIN and OPTOUT.",
    "CAPA <option> [<option> [...]]",
    "    Declare what the client supports. Options:",
    "    * REDIRECT: follow redirections from a replica to its primary.",
    "GETNAME",
    "    Return the name of this connection.",
    "GETREDIR",
    "    Return the connection to which the invalidations of this one are redirected.",
    "ID",
    "    Return the id of this connection.",
    "INFO",
    "    Return information about this connection.",
    "KILL <ip:port>",
    "    Close the connection from this address.",
    "KILL <option> <value> [<option> <value> [...]]",
    "    Close the connections that match all options:",
    "    * ADDR (<ip:port>|<unixsocket>:0)",
    "      Connections from this address.",
    "    * ID <client-id>",
    "      The connection with this ID.",
    "    * LADDR (<ip:port>|<unixsocket>:0)",
    "      Connections to this local address.",
    "    * MAXAGE <seconds>",
    "      Connections that are at least this many seconds old.",
    "    * TYPE (NORMAL|MASTER|REPLICA|PUBSUB)",
    "      Connections of this type.",
    "    * USER <username>",
    "      Connections authenticated as this user.",
    "    * IP <ip>, NAME <name>, LIB-NAME <name>, LIB-VER <version>, DB <db>",
    "      Connections with this value in CLIENT LIST.",
    "    * FLAGS <letters>, CAPA <letters>",
    "      Connections with all these letters in CLIENT LIST.",
    "    * IDLE <seconds>",
    "      Connections without a command for this many seconds.",
    "    * NOT-<option> <value>",
    "      Connections that do not match the option (not available for IDLE and MAXAGE).",
    "    * SKIPME (YES|NO)",
    "      Whether this connection is skipped (default: yes).",
    "LIST [options ...]",
    "    Return information about the connections, one per line. Options:",
    "    * ID <client-id> [<client-id> ...]",
    "      Only connections with these IDs.",
    "    * TYPE (NORMAL|MASTER|REPLICA|PUBSUB)",
    "      Only connections of this type.",
    "    * The other options of KILL; this connection is shown by default.",
    "MAINT_NOTIFICATIONS (ON|OFF) [MOVING-ENDPOINT-TYPE <type>]",
    "    Send notifications of failovers and of slots that move to this connection (RESP3). Types:",
    "    * INTERNAL-IP, EXTERNAL-IP: the address of the new server.",
    "    * INTERNAL-FQDN, EXTERNAL-FQDN: its host name.",
    "    * NONE: nothing.",
    "NO-EVICT (ON|OFF)",
    "    Exclude this connection from client eviction.",
    "NO-TOUCH (ON|OFF)",
    "    Leave the access times of keys unchanged.",
    "PAUSE <timeout> [WRITE|ALL]",
    "    Pause all commands, or only writes, for a number of milliseconds.",
    "REPLY (ON|OFF|SKIP)",
    "    Set whether the server replies to the commands of this connection.",
    "SETINFO <option> <value>",
    "    Set the name or version of the client library. Options:",
    "    * LIB-NAME: its name.",
    "    * LIB-VER: its version.",
    "SETNAME <name>",
    "    Give this connection a name.",
    "TRACKING (ON|OFF) [REDIRECT <id>] [BCAST] [PREFIX <prefix> [...]]",
    "         [OPTIN] [OPTOUT] [NOLOOP]",
    "    Send invalidation messages to this or another connection when keys that it has read change.",
    "TRACKINGINFO",
    "    Return how keys are tracked for this connection.",
    "UNBLOCK <clientid> [TIMEOUT|ERROR]",
    "    Unblock a blocked connection.",
    "UNPAUSE",
    "    End CLIENT PAUSE: process commands again.",
];
