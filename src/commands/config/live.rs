//! CONFIG GET and CONFIG SET as functions on a configuration and the table.
//!
//! Texts can represent any bytes, see [`lossless`]. The functions know no connection and apply no change to the
//! server: SET changes a `Config`, all pairs or none, and returns the parameters that now differ; the caller applies
//! the change, and keeps the old `Config` for a rollback.

use std::borrow::Cow;
use std::fmt;

use crate::config::parameter::{Mode, Parameter};
use crate::config::table::{Config, PARAMETERS};
use crate::config::values::Protected;
use crate::config::{find, pattern, shares};
use basalt_core::base::lossless;

/// The error for a parameter that is fixed at the start.
const IMMUTABLE: &str = "can't set immutable config";

/// The location of the client that sets a parameter: this machine or another.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ClientLocality {
    /// From this host: over the loopback address or the unix socket.
    Local,
    /// From any other address.
    Remote,
}

impl Protected {
    /// Whether a client at this location may use the protected facility (`enable-…-command`).
    pub fn allows(self, peer: ClientLocality) -> bool {
        match self {
            Self::No => false,
            Self::Yes => true,
            Self::Local => peer == ClientLocality::Local,
        }
    }
}

/// The reason why CONFIG SET changed nothing. Displayed without `ERR`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum SetError {
    /// There is no such parameter; the name as given.
    Unknown(String),
    /// A parameter cannot be set to the value.
    Failed {
        /// The parameter's name, as Redis quotes it.
        name: String,
        /// Why the parameter cannot be set.
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

/// Returns the names that the patterns match, including aliases, each once, with their values. A name without
/// wildcards is returned with its spelling in the request, as in Redis; hidden parameters are returned only if named
/// in full.
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
            // An alias that differs from the name only in dashes counts as the same name, and is listed once.
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

/// Whether setting a parameter makes a call to the operating system, which may take time and may fail.
pub fn asks_system(name: &[u8]) -> bool {
    find(&parameter_name(name)).is_some_and(|parameter| parameter.traits.asks_system)
}

/// Whether a parameter's value is a secret, which must not be logged.
pub fn is_sensitive(name: &[u8]) -> bool {
    let name = parameter_name(name);
    PARAMETERS
        .iter()
        .any(|parameter| parameter.traits.sensitive && parameter.is_called(&name))
}

/// Parameters whose values may contain zero bytes.
const WITH_ZEROS: [&str; 2] = ["masterauth", "requirepass"];

/// Returns a parameter's name as interpreted by CONFIG SET.
fn parameter_name(name: &[u8]) -> Cow<'_, str> {
    lossless::text_of(lossless::before_nul(name))
}

/// Sets all pairs, or none of them. Returns the table's names of the parameters whose values have changed.
pub fn set<N: AsRef<[u8]>, V: AsRef<[u8]>>(
    config: &mut Config,
    pairs: &[(N, V)],
    peer: ClientLocality,
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
            false => lossless::before_nul(value.as_ref()),
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
    // Redis accepts any value of hz and clamps it when it takes effect.
    changed.hz = changed.hz.clamp(1, 500);
    let differing = rows.iter().map(|(parameter, _)| parameter);
    let names = differing
        .filter(|parameter| parameter.show(config) != parameter.show(&changed))
        .map(|parameter| parameter.name)
        .collect();
    *config = changed;
    Ok(names)
}

/// Whether a parameter cannot be set while data are loaded.
pub fn is_denied_while_loading(name: &[u8]) -> bool {
    find(&parameter_name(name)).is_some_and(|parameter| parameter.traits.denied_while_loading)
}

/// Returns the rows of the names, with the table's spelling of each; the error is for the first name that may not be
/// set.
fn rows_of<N: AsRef<[u8]>, V>(
    config: &Config,
    pairs: &[(N, V)],
    peer: ClientLocality,
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
        // Tools set all parameters that CONFIG GET returned, except those that they know to be immutable; they do not
        // know the parameters that only this server has.
        if !parameter.traits.mutable && parameter.traits.since != "basalt" {
            return failure(IMMUTABLE);
        }
        if parameter.traits.protected && !config.enable_protected_configs.allows(peer) {
            return failure("can't set protected config");
        }
        // A name and its alias count as different: the later one wins, as in Redis.
        if rows.iter().any(|(_, known)| *known == spelling) {
            return failure("duplicate parameter");
        }
        rows.push((parameter, spelling));
    }
    Ok(rows)
}
