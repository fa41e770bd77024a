//! Errors of an append-only file.

use std::{fmt, io};

use crate::persist::rdb::fault::Fault;
use crate::session::batch::Failed;
use crate::telemetry::log;

/// An error of an append-only file.
#[derive(Debug)]
pub enum AofFault {
    /// Reading the file failed.
    Read(io::Error),
    /// The file ends within a command, or with zeros.
    Short,
    /// The file ends within a transaction. None of its commands was run.
    Unfinished,
    /// The next bytes are not a command.
    Format,
    /// An unknown command.
    Unknown(Vec<u8>),
    /// The number of arguments is wrong for the command.
    Arguments(Vec<u8>),
    /// The command would block, or close the connection, or stop the server, which no valid file does.
    Waits,
    /// The command replied with an error.
    Failed(Box<Failed>),
    /// The leading snapshot is invalid.
    Snapshot(Fault),
    /// Loading was stopped.
    Stopped,
}

impl fmt::Display for AofFault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            AofFault::Read(error) => write!(
                f,
                "Unrecoverable error reading the append only file: {error}"
            ),
            AofFault::Short => f.write_str("Unexpected end of file reading the append only file"),
            AofFault::Unfinished => {
                f.write_str("Unexpected end of file within a MULTI/EXEC transaction")
            }
            AofFault::Format => f.write_str("Bad file format reading the append only file"),
            AofFault::Unknown(name) => write!(
                f,
                "Unknown command '{}' reading the append only file",
                log::quoted(name)
            ),
            AofFault::Arguments(name) => write!(
                f,
                "Wrong number of arguments for the command '{}' reading the append only file",
                log::quoted(name)
            ),
            AofFault::Waits => f.write_str(
                "The append only file contains a command that blocks or stops the server",
            ),
            AofFault::Failed(failed) => write!(
                f,
                "Error '{}' of the command '{}' reading the append only file",
                log::quoted(failed.reply.as_bytes()),
                failed.command
            ),
            AofFault::Snapshot(fault) => fault.fmt(f),
            AofFault::Stopped => f.write_str("Loading was cancelled"),
        }
    }
}
