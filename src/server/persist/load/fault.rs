//! What can be wrong with an append-only file.

use std::{fmt, io};

use crate::persist::rdb::fault::Fault;
use crate::session::batch::Failed;
use crate::telemetry::log;

/// What is wrong with an append-only file.
#[derive(Debug)]
pub enum AofFault {
    /// The file could not be read on.
    Read(io::Error),
    /// The file ends within a command, or with zeros.
    Short,
    /// The file ends within a transaction, of which nothing was run.
    Unfinished,
    /// What follows is no command.
    Format,
    /// There is no such command.
    Unknown(Vec<u8>),
    /// The command does not take so many arguments.
    Arguments(Vec<u8>),
    /// The command would wait for something, or end the server.
    Waits,
    /// The command answered with an error.
    Failed(Box<Failed>),
    /// The snapshot at the beginning is broken.
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
            AofFault::Waits => {
                f.write_str("A command of the append only file waits or ends the server")
            }
            AofFault::Failed(failed) => write!(
                f,
                "Error '{}' of the command '{}' reading the append only file",
                log::quoted(failed.reply.as_bytes()),
                failed.command
            ),
            AofFault::Snapshot(fault) => fault.fmt(f),
            AofFault::Stopped => f.write_str("Loading was stopped"),
        }
    }
}
