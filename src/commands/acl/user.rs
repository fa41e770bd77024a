//! A user: its authentication and permissions.

use std::sync::Arc;

use sha2::{Digest, Sha256};

use super::catalogue::Catalogue;
use super::denied::Denied;
use super::role::Role;
use super::selector::{KeyAccess, Pattern, Selector, Wanted};

/// The name of the user of connections that have not named one.
pub const DEFAULT: &[u8] = b"default";

/// SHA-256 of a password.
pub type Hash = [u8; 32];

/// A user, see the module.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct User {
    pub(super) name: Vec<u8>,
    pub(super) is_on: bool,
    /// Whether any password is accepted.
    pub(super) is_nopass: bool,
    pub(super) skips_sanitizing: bool,
    pub(super) passwords: Vec<Hash>,
    pub(super) root: Selector,
    pub(super) selectors: Vec<Selector>,
    /// Roles, whose permissions the user has beside its own.
    pub(super) roles: Vec<Arc<Role>>,
    /// Whether new selectors allow all channels (`acl-pubsub-default`).
    pub(super) opens_channels: bool,
}

impl User {
    /// Creates a user without permissions, which cannot authenticate.
    pub fn new(name: &[u8], opens_channels: bool) -> User {
        User {
            name: name.to_vec(),
            is_on: false,
            is_nopass: false,
            skips_sanitizing: false,
            passwords: Vec::new(),
            root: Selector::new(opens_channels),
            selectors: Vec::new(),
            roles: Vec::new(),
            opens_channels,
        }
    }

    /// Creates the user of connections that have not named one, which is unrestricted.
    pub fn default_user() -> User {
        let mut user = User::new(DEFAULT, true);
        user.is_on = true;
        user.is_nopass = true;
        user.root.set_all(true);
        user.root.all_keys = true;
        user
    }

    /// Returns the user's name.
    pub fn name(&self) -> &[u8] {
        &self.name
    }

    /// Whether a new connection gets this user without a password.
    pub fn needs_no_password(&self) -> bool {
        self.is_on && self.is_nopass
    }

    /// Whether the user may authenticate at all (`on`).
    pub fn is_on(&self) -> bool {
        self.is_on
    }

    /// Returns a copy of the user with only this password, or accepting any password if it is empty.
    pub fn with_password(&self, password: &[u8]) -> User {
        let mut user = self.clone();
        user.is_nopass = password.is_empty();
        user.passwords.clear();
        if !password.is_empty() {
            user.passwords.push(hash(password));
        }
        user
    }

    /// Whether some channels that the user `before` was allowed are not allowed any more.
    pub fn loses_channels_of(&self, before: &User) -> bool {
        if self.all_selectors().any(|selector| selector.all_channels) {
            return false;
        }
        let has = |pattern: &Pattern| {
            let mut all = self.all_selectors().flat_map(|selector| &selector.channels);
            all.any(|one| one == pattern)
        };
        before
            .all_selectors()
            .any(|selector| selector.all_channels || !selector.channels.iter().all(has))
    }

    /// Whether any password is accepted.
    pub fn is_nopass(&self) -> bool {
        self.is_nopass
    }

    /// Whether the user may authenticate with a password. The time does not depend on which byte of which hash
    /// differs.
    pub fn signs_in(&self, password: &[u8]) -> bool {
        let given = hash(password);
        let mut is_known = false;
        for known in &self.passwords {
            let difference = known.iter().zip(&given).fold(0, |all, (one, other)| {
                all | std::hint::black_box(one ^ other)
            });
            is_known |= std::hint::black_box(difference) == 0;
        }
        self.is_on && (self.is_nopass || is_known)
    }

    pub(super) fn all_selectors(&self) -> impl Iterator<Item = &Selector> {
        let of_roles = self.roles.iter().flat_map(|role| role.all_selectors());
        std::iter::once(&self.root)
            .chain(&self.selectors)
            .chain(of_roles)
    }

    /// Returns the user's roles.
    pub fn roles(&self) -> &[Arc<Role>] {
        &self.roles
    }

    /// Whether the user has a role of this name.
    pub fn has_role(&self, name: &[u8]) -> bool {
        self.roles.iter().any(|role| role.name() == name)
    }

    /// Returns the user with the current definition of a role.
    pub(super) fn with_role(&self, changed: &Arc<Role>) -> User {
        let mut user = self.clone();
        let mut known = user.roles.iter_mut();
        if let Some(known) = known.find(|role| role.name() == changed.name()) {
            *known = Arc::clone(changed);
        }
        user
    }

    /// Whether the user is allowed everything.
    pub fn is_unrestricted(&self, catalogue: &dyn Catalogue) -> bool {
        self.all_selectors()
            .any(|selector| selector.is_unrestricted(catalogue.count()))
    }

    /// Returns the reason for a denial and the position of the argument concerned; None if the command is allowed. If
    /// all selectors deny the command, the reason is that of the selector that comes closest to allowing it.
    #[inline]
    pub fn refusal(&self, wanted: &Wanted<'_, '_>) -> Option<(Denied, usize)> {
        let mut closest = (Denied::Database, 0);
        for selector in self.all_selectors() {
            closest = closest.max(selector.refusal(wanted)?);
        }
        Some(closest)
    }

    /// Whether some of the user's permissions are limited to certain databases.
    #[inline]
    pub fn has_database_rules(&self) -> bool {
        let mut all = self.all_selectors();
        all.any(|selector| selector.databases.is_some())
    }

    /// Whether the permissions without parentheses, of the user or of a role, certainly allow a command with one key
    /// and no channel. Otherwise the command may still be allowed, see [`User::refusal`].
    #[inline]
    pub fn has_plainly(&self, id: usize, key: &[u8], access: KeyAccess) -> bool {
        self.root.has_plainly(id, key, access)
            || (self.roles.iter()).any(|role| role.root().has_plainly(id, key, access))
    }

    /// Whether the user may run a command and read any key whose name the command derives from data.
    pub fn reads_all_keys(&self, wanted: &Wanted<'_, '_>) -> bool {
        self.all_selectors()
            .any(|selector| selector.refusal(wanted).is_none() && selector.reads_all_keys())
    }

    /// Whether some command of the user may read a key in a database. If `db` is None the key must be readable in all
    /// databases.
    pub fn reads_key(&self, key: &[u8], db: Option<usize>) -> bool {
        self.all_selectors()
            .any(|selector| selector.reads_key(key, db))
    }

    /// Whether the user may subscribe to a channel, or to a pattern of channels.
    pub fn has_channel(&self, channel: &[u8], is_pattern: bool) -> bool {
        self.all_selectors()
            .any(|selector| selector.has_channel(channel, is_pattern))
    }
}

/// Returns the hash of a password, as it is stored.
pub(super) fn hash(password: &[u8]) -> Hash {
    Sha256::digest(password).into()
}
