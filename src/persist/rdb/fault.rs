//! What can be wrong with a snapshot.

use std::{fmt, io};

use super::VERSION_MAX;
use crate::engine::serial::form_name;
use crate::telemetry::log;

/// What is wrong with a snapshot, see [`LoadError`](crate::persist::load::LoadError) for where.
#[derive(Debug)]
pub enum Fault {
    /// The file could not be read on.
    Read(io::Error),
    /// The file ends too early.
    Short,
    /// The file does not begin as a snapshot does; these are its first bytes.
    Signature([u8; 9]),
    /// The file is of Valkey, of a version of its own.
    Valkey(u32),
    /// The file is of a newer version.
    Version(u32),
    /// The checksum is another one than that of the file's bytes.
    Checksum {
        /// What stands at its end.
        expected: u64,
        /// What its bytes have.
        found: u64,
    },
    /// The file has keys for a database that is not here.
    Database(u64),
    /// A record of no known kind.
    Opcode(u8),
    /// A module's value, whose end only the module could find.
    Module,
    /// A string in no known form, or a number where none can be.
    Form(&'static str),
    /// A key is in a database twice.
    Twice {
        /// The key.
        key: Vec<u8>,
        /// The database.
        db: usize,
    },
    /// A value that is none, and why.
    Value {
        /// Key of the value.
        key: Vec<u8>,
        /// Form of the value.
        form: u8,
        /// What is wrong with it.
        why: &'static str,
    },
    /// A library of functions that can not be loaded, and why.
    Function(String),
    /// Loading was stopped.
    Stopped,
}

impl fmt::Display for Fault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Fault::Read(error) => write!(f, "Error reading the RDB file: {error}"),
            Fault::Short => f.write_str("Unexpected EOF reading RDB file"),
            Fault::Signature(_) => f.write_str("Wrong signature trying to load DB from file"),
            Fault::Valkey(version) => write!(
                f,
                "This is an RDB file of Valkey in its own format, version {version}: Valkey 9 and later write what only \
                 Valkey reads. Save it with Valkey 8 or older, or copy the keys over the network"
            ),
            Fault::Version(version) => write!(
                f,
                "Can't handle RDB format version {version}: it is of a newer server; versions up to {VERSION_MAX} are read"
            ),
            Fault::Checksum { expected, found } => write!(
                f,
                "RDB CRC error: the checksum says {expected:x} and the bytes have {found:x}"
            ),
            Fault::Database(db) => write!(
                f,
                "The RDB file has keys for database {db}, and there are fewer"
            ),
            Fault::Opcode(code) => write!(f, "Unknown RDB opcode or value type {code}"),
            Fault::Module => f.write_str("A value of a module that is not here"),
            Fault::Form(why) => f.write_str(why),
            Fault::Twice { key, db } => write!(
                f,
                "Duplicate key found in RDB file: '{}' in database {db}",
                log::quoted(key)
            ),
            Fault::Value { key, form, why } => write!(
                f,
                "{} integrity check failed for the key '{}': {why}",
                form_name(*form),
                log::quoted(key)
            ),
            Fault::Function(why) => write!(f, "Failed loading a library of functions: {why}"),
            Fault::Stopped => f.write_str("Loading was stopped"),
        }
    }
}
