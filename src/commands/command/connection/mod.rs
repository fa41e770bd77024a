//! Commands on the connection itself: authentication, protocol, liveness.

use super::acl::check::{self, Asker};
use super::client;
use super::context::{After, Block, Look, RequiredCopies, SessionCx};
use super::declaration::{Command, CommandResult, Flags, Group};
use super::error::{CommandError, shown};
use super::pubsub;
use super::{Args, Out};
use crate::acl::Denied;
use crate::acl::log::AclLogContext;
use crate::acl::user::DEFAULT;
use basalt_core::base::number;
use basalt_core::resp::reply::Protocol;

pub(super) static TABLE: &[&Command] = &[&AUTH, &ECHO, &HELLO, &PING, &QUIT, &RESET];

/// The compatibility level that this server claims.
pub(super) const REDIS_VERSION: &str = "7.4.0";

const BEFORE_AUTH: Flags = Flags::NOSCRIPT
    .or(Flags::LOADING)
    .or(Flags::STALE)
    .or(Flags::FAST)
    .or(Flags::NO_AUTH)
    .or(Flags::ALLOW_BUSY);

/// `AUTH [username] password`
static AUTH: Command = Command::new("auth", Group::Connection, -2)
    .flags(BEFORE_AUTH.or(Flags::SENSITIVE))
    .doc(
        "1.0.0",
        "[username] password",
        "Authenticates the connection.",
    )
    .complexity("O(N) for N passwords of the user.")
    .history(&[("6.0.0", "Accepts a user name.")])
    .repeatable()
    .on_session(auth);

fn auth(cx: &mut SessionCx<'_>, args: &Args<'_>, out: &mut Out) -> CommandResult {
    let (user, password) = match args.len() {
        2 if cx.server.users().default().user().is_nopass() => {
            return Err(
                "ERR AUTH <password> called without any password configured for the default \
                 user. Are you sure your configuration is correct?"
                    .into(),
            );
        }
        2 => (DEFAULT, args.get(1)),
        3 => (args.get(1), args.get(2)),
        _ => return Err(CommandError::Syntax),
    };
    match authenticate(cx, args, user, password) {
        Ok(()) => out.ok(),
        Err(error) => refuse(cx, error)?,
    }
    Ok(())
}

const WRONG: &str = "WRONGPASS invalid username-password pair or user is disabled.";

/// Rejects credentials; with a delay if the client's address had many rejections recently.
fn refuse(cx: &mut SessionCx<'_>, error: CommandError) -> CommandResult {
    let address = &cx.client.shared.address;
    let host = address
        .rsplit_once(':')
        .map_or(&**address, |(host, _)| host);
    let until_ms = cx.server.users().note_failed_login(host, cx.now.unix_ms);
    if until_ms <= cx.now.unix_ms || cx.outbox.is_of_transaction() {
        return Err(error);
    }
    cx.after = After::Block(Block {
        until_ms: Some(until_ms),
        on_timeout: Out::null,
        look: Some(Look {
            has_come: |_, _, _, is_over, _| is_over.then(|| Err(WRONG.into())),
            wanted: RequiredCopies::default(),
        }),
        holds: false,
    });
    Ok(())
}

/// Authenticates the connection; if that fails, its user stays the same.
fn authenticate(
    cx: &mut SessionCx<'_>,
    args: &Args<'_>,
    user: &[u8],
    password: &[u8],
) -> CommandResult {
    let found = cx.server.users().find(user);
    if let Some(handle) = found.filter(|handle| handle.user().signs_in(password)) {
        cx.client.set_user(&handle, true);
        return Ok(());
    }
    let asker = Asker {
        client: &cx.client.shared,
        server: cx.server,
        config: cx.config,
        place: match cx.outbox.is_of_transaction() {
            true => AclLogContext::Multi,
            false => AclLogContext::TopLevel,
        },
        db: cx.client.db,
        now_ms: cx.now.unix_ms,
    };
    check::note(asker, Denied::Auth, user, args.get(0));
    Err(WRONG.into())
}

/// `ECHO message`
static ECHO: Command = Command::new("echo", Group::Connection, 2)
    .flags(Flags::LOADING.or(Flags::STALE).or(Flags::FAST))
    .doc("1.0.0", "message", "Returns the message.")
    .repeatable()
    .on_session(|_, args, out| {
        out.bulk(args.get(1));
        Ok(())
    });

/// `HELLO [protover [AUTH username password] [SETNAME clientname]]`
static HELLO: Command = Command::new("hello", Group::Connection, -1)
    .flags(BEFORE_AUTH)
    .hides(is_credential)
    .doc(
        "6.0.0",
        "[protover [AUTH username password] [SETNAME clientname]]",
        "Negotiates the protocol version and describes the server.",
    )
    .history(&[(
        "6.2.0",
        "Without a version it changes nothing and only reports.",
    )])
    .repeatable()
    .on_session(hello);

/// Whether an argument of HELLO is a user's name or a password.
fn is_credential(args: &Args<'_>, index: usize) -> bool {
    (1..=2).any(|back| index > back + 1 && args.is(index - back, "auth"))
}

fn hello(cx: &mut SessionCx<'_>, args: &Args<'_>, out: &mut Out) -> CommandResult {
    let mut protocol = cx.client.protocol;
    if args.len() > 1 {
        protocol = match number::parse_i64(args.get(1)) {
            Some(2) => Protocol::Resp2,
            Some(3) => Protocol::Resp3,
            Some(_) => return Err("NOPROTO unsupported protocol version".into()),
            None => return Err("ERR Protocol version is not an integer or out of range".into()),
        };
    }
    let mut credentials = None;
    let mut name = None;
    let mut at = 2;
    while at < args.len() {
        if args.is(at, "auth") && at + 2 < args.len() {
            credentials = Some((args.get(at + 1), args.get(at + 2)));
            at += 3;
        } else if args.is(at, "setname") && at + 1 < args.len() {
            client::check_name(args.get(at + 1))?;
            name = Some(args.get(at + 1));
            at += 2;
        } else {
            let option = shown(args.get(at)).into_owned();
            return Err(format!("ERR Syntax error in HELLO option '{option}'").into());
        }
    }
    if let Some((user, password)) = credentials
        && let Err(error) = authenticate(cx, args, user, password)
    {
        return refuse(cx, error);
    }
    if !cx.client.authenticated && !cx.server.users().default().user().needs_no_password() {
        return Err(
            "NOAUTH HELLO must be called with the client already authenticated, otherwise the \
             HELLO <proto> AUTH <user> <pass> option can be used to authenticate the client and \
             select the RESP protocol version at the same time"
                .into(),
        );
    }
    if let Some(name) = name {
        client::set_name(cx, name);
    }
    cx.client.protocol = protocol;
    out.set_protocol(protocol);
    let zone = &cx.config.availability_zone;
    out.map(7 + usize::from(!zone.is_empty()));
    let fact = |out: &mut Out, name: &str, value: &str| {
        out.bulk(name.as_bytes());
        out.bulk(value.as_bytes());
    };
    fact(out, "server", "redis");
    let version = match cx.config.version_override.as_str() {
        "" => REDIS_VERSION,
        version => version,
    };
    fact(out, "version", version);
    out.bulk(b"proto");
    out.integer(i64::from(protocol.version()));
    out.bulk(b"id");
    out.integer(cx.client.id() as i64);
    fact(out, "mode", cx.config.mode_name());
    fact(out, "role", "master");
    out.bulk(b"modules");
    out.array(0);
    if !zone.is_empty() {
        fact(out, "availability_zone", zone);
    }
    Ok(())
}

/// `PING [message]`
static PING: Command = Command::new("ping", Group::Connection, -1)
    .flags(Flags::FAST.or(Flags::SUBSCRIBER).or(Flags::HEALTH))
    .doc("1.0.0", "[message]", "Returns PONG, or the message.")
    .tips(&["request_policy:all_shards", "response_policy:all_succeeded"])
    .repeatable()
    .on_session(ping);

fn ping(cx: &mut SessionCx<'_>, args: &Args<'_>, out: &mut Out) -> CommandResult {
    // A RESP2 client with subscriptions gets a reply in the form of a pub/sub message.
    let is_subscribed = !out.is_resp3() && cx.client.shared.subscriptions() > 0;
    match args.len() {
        1 | 2 if is_subscribed => {
            out.array(2);
            out.bulk(b"pong");
            out.bulk(if args.len() == 2 { args.get(1) } else { b"" });
        }
        1 => out.simple("PONG"),
        2 => out.bulk(args.get(1)),
        _ => return Err(CommandError::Arity("ping")),
    }
    Ok(())
}

/// `QUIT`
static QUIT: Command = Command::new("quit", Group::Connection, -1)
    .flags(BEFORE_AUTH.or(Flags::TRANSACTIONAL).or(Flags::SUBSCRIBER))
    .deprecated("7.2.0", "just closing the connection")
    .doc("1.0.0", "", "Closes the connection after the reply.")
    .on_session(|cx, _, out| {
        out.ok();
        cx.after = After::Close;
        Ok(())
    });

/// `RESET`
pub(super) static RESET: Command = Command::new("reset", Group::Connection, 1)
    .flags(BEFORE_AUTH.or(Flags::TRANSACTIONAL).or(Flags::SUBSCRIBER))
    .doc("6.2.0", "", "Resets the connection to its initial state.")
    .on_session(|cx, _, out| {
        cx.server.pubsub().forget(&cx.client.shared);
        pubsub::take_messages(cx, out);
        cx.client.reset(cx.server.users().default());
        out.set_protocol(cx.client.protocol);
        out.simple("RESET");
        Ok(())
    });

#[cfg(test)]
mod tests;
