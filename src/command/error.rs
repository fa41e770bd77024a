//! The errors that commands answer with; their texts are exact and stand only here and where a family needs its own.

use std::borrow::Cow;
use std::fmt;

/// An error reply, without the leading `-`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum CommandError {
    /// The key holds another type.
    WrongType,
    /// Arguments do not fit the syntax.
    Syntax,
    /// Not a 64-bit integer.
    NotInteger,
    /// Not a valid float.
    NotFloat,
    /// A count or index outside of what is possible.
    OutOfRange,
    /// The key must exist.
    NoSuchKey,
    /// An integer result would overflow.
    Overflow,
    /// A string would become longer than allowed.
    StringTooLong,
    /// A database number that is none.
    DbIndex,
    /// Wrong number of arguments, for this command.
    Arity(&'static str),
    /// A deadline that can not be kept, for this command.
    InvalidExpire(&'static str),
    /// Memory is full, and nothing can be evicted.
    OutOfMemory,
    /// It takes too long for the thread that it was begun on; nothing has been done. Clients never see this: the command
    /// is run again where nobody else waits for the thread, see [`super::context::Scales`].
    TooLongHere,
    /// Fewer replicas follow than writes ask for.
    NoReplicas,
    /// Any other text.
    Text(Cow<'static, str>),
}

impl From<&'static str> for CommandError {
    fn from(text: &'static str) -> CommandError {
        CommandError::Text(Cow::Borrowed(text))
    }
}

impl From<String> for CommandError {
    fn from(text: String) -> CommandError {
        CommandError::Text(Cow::Owned(text))
    }
}

impl CommandError {
    /// The text as it goes over the wire.
    pub fn text(&self) -> Cow<'_, str> {
        Cow::Borrowed(match self {
            CommandError::WrongType => {
                "WRONGTYPE Operation against a key holding the wrong kind of value"
            }
            CommandError::OutOfMemory => "OOM command not allowed when used memory > 'maxmemory'.",
            CommandError::NoReplicas => "NOREPLICAS Not enough good replicas to write.",
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
                return Cow::Owned(format!(
                    "ERR wrong number of arguments for '{name}' command"
                ));
            }
            CommandError::InvalidExpire(name) => {
                return Cow::Owned(format!("ERR invalid expire time in '{name}' command"));
            }
            CommandError::Text(text) => text,
        })
    }
}

impl fmt::Display for CommandError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.text())
    }
}
