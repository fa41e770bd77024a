//! Errors of a configuration (location, directive, reason), and the block of text that is printed when the server
//! does not start.

use std::fmt;
use std::path::PathBuf;

use crate::config::table::Config;
use crate::config::values;

/// The location of a directive.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum DirectiveLocation {
    /// A line of a file; standard input is the file `-`.
    File {
        /// Path of the file.
        path: PathBuf,
        /// The line's number, starting with 1.
        line: usize,
    },
    /// The environment variables of the process.
    Environment,
    /// The arguments on the command line.
    Arguments,
}

/// A configuration with which the server does not start.
#[derive(Debug, thiserror::Error)]
pub enum ConfigError {
    /// A directive that is unknown, has a bad value or requests an unsupported feature. Formatted as by redis-server,
    /// so that tools that look for redis-server's block find this one.
    #[error("{header}{place}\n>>> '{text}'\n{reason}", header = ConfigErrorHeader)]
    Directive {
        /// Location of the directive.
        place: DirectiveLocation,
        /// The line, without surrounding blanks.
        text: String,
        /// Why the directive is refused.
        reason: String,
    },
    /// Several errors of this kind.
    #[error("{}", several(.0))]
    Several(Vec<ConfigError>),
    /// An error that concerns the configuration as a whole.
    #[error("{header}{0}", header = ConfigErrorHeader)]
    Whole(String),
    /// A file cannot be read.
    #[error("Fatal error, can't open config file '{}': {reason}", path.display())]
    Unreadable {
        /// Path of the file.
        path: PathBuf,
        /// The system's error text.
        reason: String,
    },
    /// A command line option, or a name under which the program was called, that redis-server supports and this
    /// server does not.
    #[error("{0}")]
    Argument(String),
}

impl ConfigError {
    /// Combines several errors into one.
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

/// Returns the error for a working directory that could not be entered although it was checked.
pub fn directory_failure(config: &Config, error: &std::io::Error) -> ConfigError {
    let reason = values::system_text(error);
    ConfigError::Whole(format!(
        "Can't enter the directory {}: {reason}",
        config.dir.display()
    ))
}

/// The first line of the block, when displayed.
struct ConfigErrorHeader;

impl fmt::Display for ConfigErrorHeader {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(
            f,
            "*** FATAL CONFIG FILE ERROR (basalt {}) ***",
            env!("CARGO_PKG_VERSION")
        )
    }
}

impl fmt::Display for DirectiveLocation {
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
