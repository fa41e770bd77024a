//! CONFIG GET and CONFIG SET as functions over a configuration and the table.
//!
//! Texts stand for any bytes, as [`lossless`] has it. They know no connection and apply nothing: SET changes a
//! `Config`, all pairs or none, and says which parameters now differ; the caller makes the change felt, and keeps the
//! old `Config` to go back to.

use std::borrow::Cow;
use std::fmt;

use crate::config::parameter::{Mode, Parameter};
use crate::config::table::{Config, PARAMETERS};
use crate::config::values::Protected;
use crate::config::{find, pattern, shares};
use basalt_core::base::lossless;

/// Why a parameter that is fixed at the start keeps its value.
const IMMUTABLE: &str = "can't set immutable config";

/// Where the client that sets a parameter is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Peer {
    /// On this machine: the loopback address or the unix socket.
    Local,
    /// Anywhere else.
    Remote,
}

impl Protected {
    /// Whether a client there may use what this guards.
    pub fn allows(self, peer: Peer) -> bool {
        match self {
            Self::No => false,
            Self::Yes => true,
            Self::Local => peer == Peer::Local,
        }
    }
}

/// Why CONFIG SET changed nothing. Shown without the `ERR`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum SetError {
    /// There is no such parameter; the name is as it was given.
    Unknown(String),
    /// A parameter cannot be set so.
    Failed {
        /// The parameter's name, as Redis repeats it.
        name: String,
        /// What is wrong.
        reason: String,
    },
}

impl fmt::Display for SetError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Unknown(name) => {
                write!(
                    f,
                    "Unknown option or number of arguments for CONFIG SET - '{name}'"
                )
            }
            Self::Failed { name, reason } => {
                write!(
                    f,
                    "CONFIG SET failed (possibly related to argument '{name}') - {reason}"
                )
            }
        }
    }
}

/// The names that the patterns match, aliases too, each once, with their values. A name without wildcards comes back
/// spelled as it was asked for, as on Redis; hidden parameters answer to nothing else.
pub fn get<P: AsRef<[u8]>>(config: &Config, patterns: &[P]) -> Vec<(String, String)> {
    let mut found: Vec<(String, String)> = Vec::new();
    let mut add = |name: &str, parameter: &Parameter| {
        if !found
            .iter()
            .any(|(known, _)| known.eq_ignore_ascii_case(name))
        {
            found.push((name.to_owned(), parameter.show(config)));
        }
    };
    for wanted in patterns {
        let wanted = lossless::text_of(wanted.as_ref());
        if !wanted.contains(['*', '?', '[']) {
            if let Some(parameter) = find(&wanted) {
                add(&wanted, parameter);
            }
            continue;
        }
        for parameter in PARAMETERS
            .iter()
            .filter(|parameter| !parameter.traits.hidden)
        {
            // Spelt with other dashes it is the same name, which is listed once.
            let alias = parameter
                .traits
                .alias
                .filter(|alias| alias.replace('-', "_") != parameter.name);
            for name in [Some(parameter.name), alias].into_iter().flatten() {
                if pattern::matches(&wanted, name) {
                    add(name, parameter);
                }
            }
        }
    }
    found
}

/// Whether setting a parameter asks the system for something, which may take time and may fail.
pub fn asks_system(name: &[u8]) -> bool {
    find(&parameter_name(name)).is_some_and(|parameter| parameter.traits.asks_system)
}

/// Whether a parameter's value is a secret, which no log may show.
pub fn is_sensitive(name: &[u8]) -> bool {
    let name = parameter_name(name);
    PARAMETERS
        .iter()
        .any(|parameter| parameter.traits.sensitive && parameter.is_called(&name))
}

/// Parameters whose values may have a byte of zero in them.
const WITH_ZEROS: [&str; 2] = ["masterauth", "requirepass"];

/// A parameter's name as CONFIG SET takes it.
fn parameter_name(name: &[u8]) -> Cow<'_, str> {
    lossless::text_of(lossless::until_zero(name))
}

/// Sets all pairs, or none of them. Returns the names, as the table has them, whose values are now different.
pub fn set<N: AsRef<[u8]>, V: AsRef<[u8]>>(
    config: &mut Config,
    pairs: &[(N, V)],
    peer: Peer,
) -> Result<Vec<&'static str>, SetError> {
    let rows = rows_of(config, pairs, peer)?;
    let mut changed = config.clone();
    let default = Config::default();
    for ((parameter, name), (_, value)) in rows.iter().zip(pairs) {
        let failure = |reason: String| SetError::Failed {
            name: (*name).to_owned(),
            reason,
        };
        let value = match WITH_ZEROS.contains(&parameter.name) {
            true => value.as_ref(),
            false => lossless::until_zero(value.as_ref()),
        };
        let value = &*lossless::text_of(value);
        let words: Vec<String> = match (parameter.takes_many(), value) {
            (true, "") => vec![],
            (true, _) => value.split(' ').map(str::to_owned).collect(),
            (false, _) => vec![value.to_owned()],
        };
        parameter
            .set(&mut changed, &words, Mode::Replace)
            .map_err(failure)?;
        if !parameter.traits.mutable && parameter.show(&changed) != parameter.show(config) {
            return Err(failure(IMMUTABLE.to_owned()));
        }
        let is_default = parameter.is_default(&changed, &default);
        let support = parameter.traits.support;
        if let Some(reason) = support.refusal(is_default) {
            return Err(failure(reason.to_owned()));
        }
    }
    if let Some(reason) = shares::refusal(&changed) {
        let name = "maxmemory-db".to_owned();
        return Err(SetError::Failed { name, reason });
    }
    // Redis takes any hz and brings it within bounds when it comes into force.
    changed.hz = changed.hz.clamp(1, 500);
    let differing = rows.iter().map(|(parameter, _)| parameter);
    let names = differing
        .filter(|parameter| parameter.show(config) != parameter.show(&changed))
        .map(|parameter| parameter.name)
        .collect();
    *config = changed;
    Ok(names)
}

/// Whether a parameter keeps its value while data are loaded.
pub fn is_denied_while_loading(name: &[u8]) -> bool {
    find(&parameter_name(name)).is_some_and(|parameter| parameter.traits.denied_while_loading)
}

/// The rows that the names mean, with the table's spelling of each; the first name that may not be set is the error.
fn rows_of<N: AsRef<[u8]>, V>(
    config: &Config,
    pairs: &[(N, V)],
    peer: Peer,
) -> Result<Vec<(&'static Parameter, &'static str)>, SetError> {
    let mut rows: Vec<(&Parameter, &str)> = Vec::with_capacity(pairs.len());
    for (name, _) in pairs {
        let name = parameter_name(name.as_ref());
        let failure = |reason: &str| {
            Err(SetError::Failed {
                name: name.clone().into_owned(),
                reason: reason.to_owned(),
            })
        };
        let row = find(&name).and_then(|parameter| Some((parameter, parameter.spelling(&name)?)));
        let Some((parameter, spelling)) = row else {
            return Err(SetError::Unknown(name.into_owned()));
        };
        // Tools set all that they were shown, but for what they know to be immutable; they cannot know of ours.
        if !parameter.traits.mutable && parameter.traits.since != "basalt" {
            return failure(IMMUTABLE);
        }
        if parameter.traits.protected && !config.enable_protected_configs.allows(peer) {
            return failure("can't set protected config");
        }
        // A name and its alias pass as two: the later one wins, as on Redis.
        if rows.iter().any(|(_, known)| *known == spelling) {
            return failure("duplicate parameter");
        }
        rows.push((parameter, spelling));
    }
    Ok(rows)
}
