//! Permission checks for the user of a connection: for requests, for what EXEC runs, and for what scripts call.

use super::super::Args;
use super::super::client::describe;
use super::super::declaration::{Channels, Command, Flags, KeyFlags};
use super::super::host::Server;
use super::super::keys;
use crate::acl::Denied;
use crate::acl::log::AclLogEntry;
use crate::acl::selector::Wanted;
use crate::client::shared::Shared;
use crate::config::Config;
use basalt_core::base::lossless;

pub use crate::acl::User;
pub use crate::acl::log::AclLogContext;

/// A denied request: the reason, and the index of the denied argument.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AclDenial {
    /// Denied by the rules of the user.
    Denied(Denied, usize),
    /// The request derives key names from data, and the user may not read every key; with the error text.
    AnyKey(&'static str),
}

impl AclDenial {
    /// Returns the error text, with or without the name of the denied object.
    pub fn text(self, user: &User, command: &Command, args: &Args<'_>, is_verbose: bool) -> String {
        let name = lossless::text_of(user.name());
        let (denied, at) = match self {
            AclDenial::Denied(denied, at) => (denied, at),
            AclDenial::AnyKey(text) => return text.to_owned(),
        };
        let what = match denied {
            Denied::Command | Denied::Auth | Denied::Certificate => {
                let command = command.full_name;
                return format!("User {name} has no permissions to run the '{command}' command");
            }
            Denied::Key => "key",
            Denied::Channel => "channel",
            Denied::Database if is_verbose => {
                let object = lossless::text_of(args.get(at));
                return format!("User {name} has no permissions to access database {object}");
            }
            Denied::Database => return "No permissions to access database".to_owned(),
        };
        match is_verbose {
            true => {
                let object = lossless::text_of(args.get(at));
                format!("User {name} has no permissions to access the '{object}' {what}")
            }
            false => format!("No permissions to access a {what}"),
        }
    }
}

/// Fast path for commands with a single key, the most frequent ones: true if the user is certainly allowed. False means
/// undecided: call [`refused`].
#[inline]
pub fn is_plainly_allowed(user: &User, command: &'static Command, args: &Args<'_>) -> bool {
    let Some(at) = keys::only(command, args.len(), |at| args.get(at)) else {
        return false;
    };
    let flags = command.keys[0].flags;
    !flags.any(KeyFlags::VARIABLE_FLAGS.or(KeyFlags::NOT_KEY))
        && at < args.len()
        && user.has_plainly(command.rule_id(), args.get(at), flags.access())
}

/// Returns the reason why a user may not run a command in a database; None if the user may.
pub fn refused(
    user: &User,
    command: &'static Command,
    args: &Args<'_>,
    db: usize,
) -> Option<AclDenial> {
    let channels = args.from(1).enumerate().take(command.channels.count_max());
    let channels: Vec<_> = channels.map(|(at, channel)| (at + 1, channel)).collect();
    let databases = match user.has_database_rules() {
        true => command.databases_of(args.len(), &|at| args.get(at), db),
        false => Vec::new(),
    };
    let mut wanted = Wanted {
        id: command.rule_id(),
        is_free: command.flags.has(Flags::NO_AUTH),
        first_argument: args.from(1).next(),
        keys: &[],
        channels: &channels,
        are_patterns: command.channels == Channels::Patterns,
        databases: &databases,
    };
    let is_allowed = |wanted: &Wanted<'_, '_>| match user.refusal(wanted) {
        Some((denied, at)) => Some(AclDenial::Denied(denied, at)),
        None => any_key_refusal(user, command, args, wanted),
    };
    // Most commands have one key, or none.
    if let Some(at) = keys::only(command, args.len(), |at| args.get(at))
        && at < args.len()
    {
        let key = args.get(at);
        let flags = effective_flags(command, command.keys[0].flags, args);
        let one = [(at, key, flags.access())];
        wanted.keys = if flags.has(KeyFlags::NOT_KEY) {
            &[]
        } else {
            &one
        };
        return is_allowed(&wanted);
    }
    let found = match command.keys {
        [] => Vec::new(),
        // The command itself reports errors about its keys.
        _ => keys::all(command, args.len(), |at| args.get(at)).unwrap_or_default(),
    };
    let found = found.into_iter();
    let all: Vec<_> = found
        .map(|(at, flags)| (at, args.get(at), flags.access()))
        .collect();
    wanted.keys = &all;
    is_allowed(&wanted)
}

fn effective_flags(command: &Command, flags: KeyFlags, args: &Args<'_>) -> KeyFlags {
    keys::effective_flags(command, flags, args.len(), |at| args.get(at))
}

/// Checks a request that derives key names from data: it needs the permission to read every key.
fn any_key_refusal(
    user: &User,
    command: &Command,
    args: &Args<'_>,
    wanted: &Wanted<'_, '_>,
) -> Option<AclDenial> {
    let text = command.reads_any_key?(args)?;
    (!user.reads_all_keys(wanted)).then_some(AclDenial::AnyKey(text))
}

/// The client that sent the request, and its context.
#[derive(Clone, Copy)]
pub struct Asker<'c> {
    /// The connection that sent the request.
    pub client: &'c Shared,
    /// The server of the connection.
    pub server: &'c dyn Server,
    /// The configuration, for the size of the ACL log.
    pub config: &'c Config,
    /// The context of the command, for the ACL log: top level, transaction or script.
    pub place: AclLogContext,
    /// Index of the selected database.
    pub db: usize,
    /// Unix time in milliseconds.
    pub now_ms: u64,
}

/// Returns the error if the user of a connection may not run a command, and counts and logs the denial. `say` makes
/// the error text.
#[cold]
pub fn refusal(
    asker: Asker<'_>,
    command: &'static Command,
    args: &Args<'_>,
    say: impl FnOnce(AclDenial, &User) -> String,
) -> Option<String> {
    let users = asker.server.users();
    let handle = asker.client.user();
    let handle = handle.as_ref().unwrap_or(users.default());
    if !handle.is_restricted() {
        return None;
    }
    let user = handle.user();
    let refused = refused(&user, command, args, asker.db)?;
    if let AclDenial::Denied(denied, at) = refused {
        let object = match denied {
            Denied::Command | Denied::Auth | Denied::Certificate | Denied::Database => {
                command.full_name.as_bytes()
            }
            Denied::Key | Denied::Channel => args.get(at),
        };
        note(asker, denied, user.name(), object);
    }
    Some(say(refused, &user))
}

/// Whether the user of a connection may not run a command; a denial is not recorded.
pub fn refusal_unnoted(asker: Asker<'_>, command: &'static Command, args: &Args<'_>) -> bool {
    let handle = asker.client.user();
    let handle = handle.as_ref().unwrap_or(asker.server.users().default());
    handle.is_restricted() && refused(&handle.user(), command, args, asker.db).is_some()
}

/// Counts a denial, and adds it to the ACL log.
pub fn note(asker: Asker<'_>, denied: Denied, user: &[u8], object: &[u8]) {
    let entry = AclLogEntry {
        count: 1,
        denied,
        place: asker.place,
        object: object.to_vec(),
        user: user.to_vec(),
        client: describe(asker.client, asker.now_ms),
        id: 0,
        created_ms: asker.now_ms,
        updated_ms: asker.now_ms,
    };
    let entries_max = usize::try_from(asker.config.acllog_max_len).unwrap_or(usize::MAX);
    asker.server.users().note(entry, entries_max);
}

/// Returns the error for a client whose request is denied.
pub fn request_text(refused: AclDenial, user: &User, command: &Command, args: &Args<'_>) -> String {
    let text = refused.text(user, command, args, false);
    match refused {
        AclDenial::Denied(..) => format!("NOPERM {text}"),
        AclDenial::AnyKey(_) => text,
    }
}

/// Returns the error that replaces the reply of a command that its user may no longer run at the time of EXEC.
pub fn exec_text(refused: AclDenial) -> String {
    let why = match refused {
        AclDenial::Denied(Denied::Command, _) => {
            "no permission to execute the command or subcommand"
        }
        AclDenial::Denied(Denied::Database, _) => "no permission to access the database",
        AclDenial::Denied(Denied::Key, _) => "no permission to touch the specified keys",
        AclDenial::Denied(Denied::Channel, _) => {
            "no permission to access one of the channels used as arguments to the command"
        }
        AclDenial::Denied(Denied::Auth | Denied::Certificate, _) => "no permission",
        AclDenial::AnyKey(text) => return text.to_owned(),
    };
    format!(
        "NOPERM ACLs rules changed between the moment the transaction was accumulated and the EXEC call. This command is \
         no longer allowed for the following reason: {why}"
    )
}
