//! What may be wrong with a configuration: where, which directive, why; and the block that the start prints for it.

use std::fmt;
use std::path::PathBuf;

use crate::config::table::Config;
use crate::config::values;

/// Where a directive stands.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Place {
    /// A line of a file; standard input is the file `-`.
    File {
        /// The file's path.
        path: PathBuf,
        /// The line's number from 1.
        line: usize,
    },
    /// The process's environment.
    Environment,
    /// The command line.
    Arguments,
}

/// A configuration that the server does not start with.
#[derive(Debug, thiserror::Error)]
pub enum ConfigError {
    /// A directive that is unknown, has a bad value or asks for what is not built. Shown as redis-server shows it, so
    /// that whatever watches for its block finds ours.
    #[error("{header}{place}\n>>> '{text}'\n{reason}", header = Header)]
    Directive {
        /// Where it stands.
        place: Place,
        /// The line, without the blanks around it.
        text: String,
        /// What is wrong.
        reason: String,
    },
    /// Several things are wrong.
    #[error("{}", several(.0))]
    Several(Vec<ConfigError>),
    /// Something is wrong with the whole.
    #[error("{header}{0}", header = Header)]
    Whole(String),
    /// A file cannot be read.
    #[error("Fatal error, can't open config file '{}': {reason}", path.display())]
    Unreadable {
        /// The file.
        path: PathBuf,
        /// The system's words.
        reason: String,
    },
    /// An argument, or a name of the program, that redis-server knows and this server does not.
    #[error("{0}")]
    Argument(String),
}

impl ConfigError {
    /// All that is wrong as one error.
    pub(super) fn all(mut errors: Vec<ConfigError>) -> ConfigError {
        match errors.len() {
            1 => errors.remove(0),
            _ => ConfigError::Several(errors),
        }
    }
}

fn several(errors: &[ConfigError]) -> String {
    let errors = errors.iter().map(ToString::to_string);
    errors.collect::<Vec<_>>().join("\n\n")
}

/// The error for a working directory that cannot be entered after all.
pub fn directory_failure(config: &Config, error: &std::io::Error) -> ConfigError {
    let reason = values::system_text(error);
    ConfigError::Whole(format!(
        "Can't enter the directory {}: {reason}",
        config.dir.display()
    ))
}

/// The first line of the block.
struct Header;

impl fmt::Display for Header {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(
            f,
            "*** FATAL CONFIG FILE ERROR (basalt {}) ***",
            env!("CARGO_PKG_VERSION")
        )
    }
}

impl fmt::Display for Place {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::File { path, line } => {
                write!(
                    f,
                    "Reading the configuration file, at line {line} of {}",
                    path.display()
                )
            }
            Self::Environment => f.write_str("Reading the environment"),
            Self::Arguments => f.write_str("Reading the arguments"),
        }
    }
}
