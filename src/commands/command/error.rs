//! The errors that commands return. The texts must match those of Redis; they are defined here, or in a family of
//! commands that needs texts of its own.
//!
//! A sentence that quotes what a client sent is made with [`shown`], like any other text; on the way to the client
//! the quoted parts become the original bytes again ([`lossless`]).

use std::borrow::Cow;
use std::fmt;

use super::{Args, Out};
use basalt_core::base::lossless;
use basalt_engine::evict::Full;

/// The reply in place of replies that reflect writes which `min-sync-replicas` replicas did not confirm in time.
pub const UNCONFIRMED: &str = "NOREPLICAS Not confirmed by min-sync-replicas replicas in time. A write is done here, \
    but a failover may undo it.";

/// Maximum bytes of a name that an error quotes, and of all arguments of an unknown command.
const QUOTED_BYTES_MAX: usize = 128;

/// HIMPORT SET names a fieldset that the connection has not registered; clients look for this exact text.
pub const NO_FIELDSET: &str = "ERR no such fieldset";

/// An error reply, without the leading `-`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum CommandError {
    /// The key holds another type.
    WrongType,
    /// The arguments do not match the command's syntax.
    Syntax,
    /// An argument is not a 64-bit integer.
    NotInteger,
    /// An argument is not a valid float.
    NotFloat,
    /// A count or index is out of range.
    OutOfRange,
    /// The key does not exist and must.
    NoSuchKey,
    /// An integer result would overflow.
    Overflow,
    /// A string would become longer than allowed.
    StringTooLong,
    /// A database index is invalid.
    DbIndex,
    /// The command of this name was called with a wrong number of arguments.
    Arity(&'static str),
    /// A deadline for the command of this name cannot be stored.
    InvalidExpire(&'static str),
    /// Memory is full, and nothing can be evicted.
    OutOfMemory,
    /// The database of this number has used up its share of memory, and nothing can be evicted from it.
    ShareUsedUp(usize),
    /// The command would take too long on the thread that it was started on; nothing has been done. Clients never see
    /// this: the command is run again where no other client waits for the thread, see [`super::context::Scales`].
    TooLongHere,
    /// Fewer replicas are connected than writes demand.
    NoReplicas,
    /// A write was sent to a replica by a client other than its primary.
    ReadOnly,
    /// A replica without its primary's stream must not serve stale data to the client.
    MasterDown,
    /// Data are being loaded.
    Loading,
    /// A serialized value of this type is corrupt: the reason is logged and not sent to the client.
    BadValue(u8, &'static str),
    /// Another node of the cluster must run the command: the whole text of MOVED or another redirection.
    Elsewhere(String),
    /// Any other error, with its text.
    Text(Cow<'static, [u8]>),
}

impl From<Full> for CommandError {
    fn from(full: Full) -> CommandError {
        match full {
            Full::Memory => CommandError::OutOfMemory,
            Full::Share(db) => CommandError::ShareUsedUp(db),
        }
    }
}

impl From<&'static str> for CommandError {
    fn from(text: &'static str) -> CommandError {
        CommandError::Text(Cow::Borrowed(text.as_bytes()))
    }
}

impl From<String> for CommandError {
    fn from(text: String) -> CommandError {
        CommandError::Text(Cow::Owned(lossless::bytes_of(&text).into_owned()))
    }
}

impl CommandError {
    /// Returns the text as sent to clients.
    pub fn text(&self) -> ErrorText<'_> {
        let fixed: &str = match self {
            CommandError::WrongType => {
                "WRONGTYPE Operation against a key holding the wrong kind of value"
            }
            CommandError::OutOfMemory => "OOM command not allowed when used memory > 'maxmemory'.",
            CommandError::BadValue(..) => "ERR Bad data format",
            CommandError::Loading => "LOADING Redis is loading the dataset in memory",
            CommandError::NoReplicas => "NOREPLICAS Not enough good replicas to write.",
            CommandError::ReadOnly => "READONLY You can't write against a read only replica.",
            CommandError::MasterDown => {
                "MASTERDOWN Link with MASTER is down and replica-serve-stale-data is set to 'no'."
            }
            CommandError::Syntax => "ERR syntax error",
            CommandError::NotInteger => "ERR value is not an integer or out of range",
            CommandError::NotFloat => "ERR value is not a valid float",
            CommandError::OutOfRange => "ERR index out of range",
            CommandError::NoSuchKey => "ERR no such key",
            CommandError::Overflow => "ERR increment or decrement would overflow",
            CommandError::StringTooLong => {
                "ERR string exceeds maximum allowed size (proto-max-bulk-len)"
            }
            CommandError::TooLongHere => "ERR the command takes too long",
            CommandError::DbIndex => "ERR DB index is out of range",
            CommandError::Arity(name) => {
                let text = format!("ERR wrong number of arguments for '{name}' command");
                return ErrorText(Cow::Owned(text.into_bytes()));
            }
            CommandError::InvalidExpire(name) => {
                let text = format!("ERR invalid expire time in '{name}' command");
                return ErrorText(Cow::Owned(text.into_bytes()));
            }
            CommandError::ShareUsedUp(db) => {
                let text = format!(
                    "OOM command not allowed when used memory of database {db} > its share in 'maxmemory-db'."
                );
                return ErrorText(Cow::Owned(text.into_bytes()));
            }
            CommandError::Elsewhere(text) => return ErrorText(Cow::Borrowed(text.as_bytes())),
            CommandError::Text(text) => return ErrorText(Cow::Borrowed(text)),
        };
        ErrorText(Cow::Borrowed(fixed.as_bytes()))
    }
}

/// The bytes of an error reply, without the leading `-`: a sentence that may contain arbitrary bytes sent by a
/// client. Its displayed form is the text from which [`From<String>`](CommandError) makes the same error again.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ErrorText<'a>(Cow<'a, [u8]>);

impl ErrorText<'_> {
    /// Returns the text with `more` appended.
    #[must_use]
    pub fn with(self, more: &str) -> ErrorText<'static> {
        ErrorText(Cow::Owned([&self.0, more.as_bytes()].concat()))
    }

    /// Returns the bytes as sent to clients.
    pub fn as_bytes(&self) -> &[u8] {
        &self.0
    }

    /// Converts the error to a text.
    pub fn into_owned(self) -> String {
        lossless::text_of(&self.0).into_owned()
    }
}

impl fmt::Display for ErrorText<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&lossless::text_of(&self.0))
    }
}

impl PartialEq<str> for ErrorText<'_> {
    fn eq(&self, other: &str) -> bool {
        self.as_bytes() == other.as_bytes()
    }
}

impl PartialEq<&str> for ErrorText<'_> {
    fn eq(&self, other: &&str) -> bool {
        self == *other
    }
}

/// Quotes what a client sent: up to a zero byte, as in Redis.
pub fn shown(bytes: &[u8]) -> Cow<'_, str> {
    lossless::text_of(lossless::before_nul(bytes))
}

/// Quotes what a client sent in place of a name, at most 128 bytes.
pub fn shown_name(bytes: &[u8]) -> Cow<'_, str> {
    shown(&bytes[..bytes.len().min(QUOTED_BYTES_MAX)])
}

/// Commands of Redis 8 whose families are missing here, by the prefix of their names.
const MISSING_FAMILIES: [(&[u8], &str); 2] = [(b"ft.", "search"), (b"ts.", "time series")];

/// Commands of vector sets, whose names share no prefix of their own.
const VECTOR_SETS: [&[u8]; 13] = [
    b"vadd",
    b"vcard",
    b"vdim",
    b"vemb",
    b"vgetattr",
    b"vinfo",
    b"vismember",
    b"vlinks",
    b"vrandmember",
    b"vrange",
    b"vrem",
    b"vsetattr",
    b"vsim",
];

/// Returns the family of a command that Redis has and this server lacks.
fn missing_family(name: &[u8]) -> Option<&'static str> {
    let name = name.to_ascii_lowercase();
    if VECTOR_SETS.contains(&name.as_slice()) {
        return Some("vector sets");
    }
    let mut families = MISSING_FAMILIES.iter();
    let found = families.find(|(start, _)| name.starts_with(start));
    found.map(|(_, family)| *family)
}

/// Returns the error for an unknown command: quotes the name, and 128 bytes of the arguments. If its whole family is
/// missing the error says so at the end, as clients look at how it begins.
#[cold]
pub fn unknown_command(args: &Args<'_>) -> Vec<u8> {
    let short =
        |bytes: &[u8], room: usize| lossless::before_nul(&bytes[..bytes.len().min(room)]).to_vec();
    let mut quoted = Vec::new();
    for argument in args.from(1) {
        if quoted.len() >= QUOTED_BYTES_MAX {
            break;
        }
        let shown = short(argument, QUOTED_BYTES_MAX - quoted.len());
        quoted.extend([&b"'"[..], &shown, b"' "].concat());
    }
    let hint = match missing_family(args.get(0)) {
        Some(family) => {
            format!("(basalt has no {family}, see \"What is missing\" in docs/compatibility.md)")
        }
        None => String::new(),
    };
    [
        b"ERR unknown command '".as_slice(),
        &short(args.get(0), QUOTED_BYTES_MAX),
        b"', with args beginning with: ",
        &quoted,
        hint.as_bytes(),
    ]
    .concat()
}

/// Writes the error of a failed command. Returns whether there was one.
#[inline]
pub fn write_failure(result: Result<(), CommandError>, out: &mut Out) -> bool {
    match result {
        Ok(()) => false,
        Err(error) => {
            out.error(error.text().as_bytes());
            true
        }
    }
}

/// Returns the error for an unknown subcommand of this command.
#[cold]
pub fn unknown_subcommand(args: &Args<'_>, command: &str) -> Vec<u8> {
    let (name, command) = (shown_name(args.get(1)), command.to_ascii_uppercase());
    let text = format!("ERR unknown subcommand '{name}'. Try {command} HELP.");
    lossless::bytes_of(&text).into_owned()
}

impl fmt::Display for CommandError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(&self.text(), f)
    }
}
