//! Errors of a snapshot.

use std::{fmt, io};

use crate::telemetry::log;
use basalt_engine::serial::{REDIS_VERSION_MAX, VALKEY_VERSIONS, module_of, rdb_type_name};

/// An error in a snapshot; [`LoadError`](crate::persist::load::LoadError) adds its position.
#[derive(Debug)]
pub enum Fault {
    /// Reading the file failed.
    Read(io::Error),
    /// The file ends before its end marker.
    Short,
    /// The file does not begin like a snapshot; these are its first bytes.
    Signature([u8; 9]),
    /// The file has an unknown Valkey version.
    Valkey(u32),
    /// The file has a newer RDB version than this server supports.
    Version(u32),
    /// The stored checksum differs from the computed one.
    Checksum {
        /// The stored checksum.
        expected: u64,
        /// The computed checksum.
        found: u64,
    },
    /// The file has keys in a database that this server does not have (`databases`).
    Database(u64),
    /// A record of unknown type.
    Opcode(u8),
    /// A value of an unsupported type, whose end cannot be determined.
    Foreign {
        /// Key of the value.
        key: Vec<u8>,
        /// Description of the value.
        what: &'static str,
    },
    /// A value of a module that does not exist here.
    Module {
        /// Key of the value.
        key: Vec<u8>,
        /// Number of the module: its name and the version of the value.
        number: u64,
    },
    /// A string in an unknown encoding, or an impossible number.
    Form(&'static str),
    /// A key occurs twice in a database.
    Twice {
        /// The key that occurs twice.
        key: Vec<u8>,
        /// Index of the database.
        db: usize,
    },
    /// A value that cannot be decoded.
    Value {
        /// Key of the value.
        key: Vec<u8>,
        /// Type byte of the value.
        rdb_type: u8,
        /// Description of the error.
        why: &'static str,
    },
    /// A function library that cannot be loaded, and the reason.
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
                "Can't handle RDB format version {version} of Valkey: the file is from a newer server; supported \
                 versions are {} to {}",
                VALKEY_VERSIONS.start(),
                VALKEY_VERSIONS.end()
            ),
            Fault::Version(version) => write!(
                f,
                "Can't handle RDB format version {version}: the file is from a newer server; versions up to \
                 {REDIS_VERSION_MAX} are supported"
            ),
            Fault::Checksum { expected, found } => write!(
                f,
                "RDB CRC error: the stored checksum is {expected:x}, but the data has {found:x}"
            ),
            Fault::Database(db) => write!(
                f,
                "The RDB file has keys for database {db}, which is beyond the number of databases"
            ),
            Fault::Opcode(code) => write!(f, "Unknown RDB opcode or value type {code}"),
            Fault::Foreign { key, what } => write!(
                f,
                "The key '{}' holds {what}, a type that this server does not support",
                log::quoted(key)
            ),
            Fault::Module { key, number } => {
                let (name, version) = module_of(*number);
                write!(
                    f,
                    "The key '{}' holds a value of the module '{name}' (version {version}), which this server does \
                     not have; with rdb-skip-unknown-modules such values are left out",
                    log::quoted(key)
                )
            }
            Fault::Form(why) => f.write_str(why),
            Fault::Twice { key, db } => write!(
                f,
                "Duplicate key found in RDB file: '{}' in database {db}",
                log::quoted(key)
            ),
            Fault::Value { key, rdb_type, why } => write!(
                f,
                "{} integrity check failed for the key '{}': {why}",
                rdb_type_name(*rdb_type),
                log::quoted(key)
            ),
            Fault::Function(why) => write!(f, "Failed loading a function library: {why}"),
            Fault::Stopped => f.write_str("Loading was cancelled"),
        }
    }
}
