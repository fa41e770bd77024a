//! What the user of a connection is refused: asked for requests, for what EXEC runs, and for what scripts call.

use super::super::Args;
use super::super::client::describe;
use super::super::declaration::{Channels, Command, Flags, KeyFlags};
use super::super::host::Server;
use super::super::keys;
use crate::acl::Denied;
use crate::acl::log::Entry;
use crate::acl::selector::Wanted;
use crate::client::shared::Shared;
use crate::config::Config;
use basalt_core::base::lossless;

pub use crate::acl::User;
pub use crate::acl::log::Place;

/// What is refused, and where it stands among the arguments.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Refused {
    /// By the rules of the user.
    Denied(Denied, usize),
    /// The request may not read the keys that it makes of data; in these words.
    AnyKey(&'static str),
}

impl Refused {
    /// Why, with the name of what is refused or without it.
    pub fn text(self, user: &User, command: &Command, args: &Args<'_>, is_verbose: bool) -> String {
        let name = lossless::text_of(user.name());
        let (denied, at) = match self {
            Refused::Denied(denied, at) => (denied, at),
            Refused::AnyKey(text) => return text.to_owned(),
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

/// Whether a user may run a command on its one key for certain, which most requests are; of others [`refused`] knows.
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

/// What a user is refused of a command in a database.
pub fn refused(
    user: &User,
    command: &'static Command,
    args: &Args<'_>,
    db: usize,
) -> Option<Refused> {
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
        Some((denied, at)) => Some(Refused::Denied(denied, at)),
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
        // The command itself says what is wrong with its keys.
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

/// A request that makes keys of data needs the right to read every key.
fn any_key_refusal(
    user: &User,
    command: &Command,
    args: &Args<'_>,
    wanted: &Wanted<'_, '_>,
) -> Option<Refused> {
    let text = command.reads_any_key?(args)?;
    (!user.reads_all_keys(wanted)).then_some(Refused::AnyKey(text))
}

/// Who asks, and where.
#[derive(Clone, Copy)]
pub struct Asker<'c> {
    /// The connection.
    pub client: &'c Shared,
    /// The server of the connection.
    pub server: &'c dyn Server,
    /// How much is remembered of refusals.
    pub config: &'c Config,
    /// Where the command stands.
    pub place: Place,
    /// The database that is selected there.
    pub db: usize,
    /// Unix time in milliseconds.
    pub now_ms: u64,
}

/// Why the user of a connection may not run a command, which is counted and noted then. `say` makes the sentence.
#[cold]
pub fn refusal(
    asker: Asker<'_>,
    command: &'static Command,
    args: &Args<'_>,
    say: impl FnOnce(Refused, &User) -> String,
) -> Option<String> {
    let users = asker.server.users();
    let handle = asker.client.user();
    let handle = handle.as_ref().unwrap_or(users.default());
    if !handle.is_restricted() {
        return None;
    }
    let user = handle.user();
    let refused = refused(&user, command, args, asker.db)?;
    if let Refused::Denied(denied, at) = refused {
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

/// Whether the user of a connection may not run a command, which is noted nowhere.
pub fn refusal_unnoted(asker: Asker<'_>, command: &'static Command, args: &Args<'_>) -> bool {
    let handle = asker.client.user();
    let handle = handle.as_ref().unwrap_or(asker.server.users().default());
    handle.is_restricted() && refused(&handle.user(), command, args, asker.db).is_some()
}

/// Counts something that was refused, and notes it.
pub fn note(asker: Asker<'_>, denied: Denied, user: &[u8], object: &[u8]) {
    let entry = Entry {
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

/// What a client is told whose request is refused.
pub fn request_text(refused: Refused, user: &User, command: &Command, args: &Args<'_>) -> String {
    let text = refused.text(user, command, args, false);
    match refused {
        Refused::Denied(..) => format!("NOPERM {text}"),
        Refused::AnyKey(_) => text,
    }
}

/// What stands in place of the reply of a command that its user may no longer run when EXEC comes.
pub fn exec_text(refused: Refused) -> String {
    let why = match refused {
        Refused::Denied(Denied::Command, _) => "no permission to execute the command or subcommand",
        Refused::Denied(Denied::Database, _) => "no permission to access the database",
        Refused::Denied(Denied::Key, _) => "no permission to touch the specified keys",
        Refused::Denied(Denied::Channel, _) => {
            "no permission to access one of the channels used as arguments to the command"
        }
        Refused::Denied(Denied::Auth | Denied::Certificate, _) => "no permission",
        Refused::AnyKey(text) => return text.to_owned(),
    };
    format!(
        "NOPERM ACLs rules changed between the moment the transaction was accumulated and the EXEC call. This command is \
         no longer allowed for the following reason: {why}"
    )
}
