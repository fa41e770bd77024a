//! A role: named permissions that any number of users have, beside their own.

use std::collections::BTreeMap;
use std::sync::Arc;

use super::selector::Selector;

/// All roles, by name.
pub type Roles = BTreeMap<Vec<u8>, Arc<Role>>;

/// A role, see the module.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Role {
    pub(super) name: Vec<u8>,
    pub(super) root: Selector,
    pub(super) selectors: Vec<Selector>,
    /// Whether new selectors allow all channels (`acl-pubsub-default`).
    pub(super) opens_channels: bool,
}

impl Role {
    /// Creates a role without permissions.
    pub fn new(name: &[u8], opens_channels: bool) -> Role {
        Role {
            name: name.to_vec(),
            root: Selector::new(opens_channels),
            selectors: Vec::new(),
            opens_channels,
        }
    }

    /// Returns the role's name.
    pub fn name(&self) -> &[u8] {
        &self.name
    }

    /// Returns the root permissions: the rules outside of parentheses.
    pub fn root(&self) -> &Selector {
        &self.root
    }

    /// Returns the permissions in parentheses.
    pub fn selectors(&self) -> &[Selector] {
        &self.selectors
    }

    pub(super) fn all_selectors(&self) -> impl Iterator<Item = &Selector> {
        std::iter::once(&self.root).chain(&self.selectors)
    }
}

/// Returns the error about the name of a role that rules and files could not hold.
pub fn name_error(name: &[u8]) -> Option<&'static str> {
    let has = |wanted: fn(&u8) -> bool| name.iter().any(wanted);
    Some(match name {
        [] => "Role names can't be empty",
        _ if has(|byte| !byte.is_ascii_graphic()) => {
            "Role names can only contain printable ASCII characters other than spaces"
        }
        _ if has(|byte| *byte == b',') => "Role names can't contain commas",
        _ if has(|byte| matches!(byte, b'"' | b'\'' | b'\\')) => {
            "Role names can't contain quotes or backslashes"
        }
        _ => return None,
    })
}
