//! A user: how it signs in, and what it may do.

use sha2::{Digest, Sha256};

use super::catalogue::Catalogue;
use super::denied::Denied;
use super::selector::{Access, Pattern, Selector, Wanted};

/// The name of the user that connections are which name none.
pub const DEFAULT: &[u8] = b"default";

/// SHA-256 of a password.
pub type Hash = [u8; 32];

/// See the module.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct User {
    pub(super) name: Vec<u8>,
    pub(super) is_on: bool,
    /// Any password will do.
    pub(super) is_nopass: bool,
    pub(super) skips_sanitizing: bool,
    pub(super) passwords: Vec<Hash>,
    pub(super) root: Selector,
    pub(super) selectors: Vec<Selector>,
    /// New selectors allow all channels (`acl-pubsub-default`).
    pub(super) opens_channels: bool,
}

impl User {
    /// A user who may do nothing, and cannot sign in.
    pub fn new(name: &[u8], opens_channels: bool) -> User {
        User {
            name: name.to_vec(),
            is_on: false,
            is_nopass: false,
            skips_sanitizing: false,
            passwords: Vec::new(),
            root: Selector::new(opens_channels),
            selectors: Vec::new(),
            opens_channels,
        }
    }

    /// The user of connections that name none, who may do everything.
    pub fn default_user() -> User {
        let mut user = User::new(DEFAULT, true);
        user.is_on = true;
        user.is_nopass = true;
        user.root.set_all(true);
        user.root.all_keys = true;
        user
    }

    /// The user's name.
    pub fn name(&self) -> &[u8] {
        &self.name
    }

    /// Whether a connection that names no user is this one without a password.
    pub fn needs_no_password(&self) -> bool {
        self.is_on && self.is_nopass
    }

    /// Whether it may sign in at all.
    pub fn is_on(&self) -> bool {
        self.is_on
    }

    /// A copy with this password alone, or with any if it is empty.
    pub fn with_password(&self, password: &[u8]) -> User {
        let mut user = self.clone();
        user.is_nopass = password.is_empty();
        user.passwords.clear();
        if !password.is_empty() {
            user.passwords.push(hash(password));
        }
        user
    }

    /// Whether there are channels that it may not have any more.
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

    /// Whether any password will do.
    pub fn is_nopass(&self) -> bool {
        self.is_nopass
    }

    /// Whether it may sign in with a password. Takes as long whichever byte of whichever hash differs.
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
        std::iter::once(&self.root).chain(&self.selectors)
    }

    /// Whether nothing is refused to it.
    pub fn is_unrestricted(&self, catalogue: &dyn Catalogue) -> bool {
        self.all_selectors()
            .any(|selector| selector.is_unrestricted(catalogue.count()))
    }

    /// What is refused of a command, and the position of the argument that it is about: of all selectors, what comes
    /// closest to being allowed.
    #[inline]
    pub fn refusal(&self, wanted: &Wanted<'_, '_>) -> Option<(Denied, usize)> {
        let mut closest = (Denied::Database, 0);
        for selector in self.all_selectors() {
            closest = closest.max(selector.refusal(wanted)?);
        }
        Some(closest)
    }

    /// Whether there are databases that some of its permissions are not for.
    #[inline]
    pub fn has_database_rules(&self) -> bool {
        let mut all = self.all_selectors();
        all.any(|selector| selector.databases.is_some())
    }

    /// Whether its permissions without parentheses allow a command with one key and no channel for certain. What is not
    /// allowed so may be allowed otherwise, as [`User::refusal`] says.
    #[inline]
    pub fn has_plainly(&self, id: usize, key: &[u8], access: Access) -> bool {
        self.root.has_plainly(id, key, access)
    }

    /// Whether it may run a command and read whatever keys that makes up.
    pub fn reads_all_keys(&self, wanted: &Wanted<'_, '_>) -> bool {
        self.all_selectors()
            .any(|selector| selector.refusal(wanted).is_none() && selector.reads_all_keys())
    }

    /// Whether it may read a key of a database, by whatever command. Where the database is not known it has to be one
    /// that may be read in all.
    pub fn reads_key(&self, key: &[u8], db: Option<usize>) -> bool {
        self.all_selectors()
            .any(|selector| selector.reads_key(key, db))
    }

    /// Whether it may be subscribed to a channel, or to a pattern of channels.
    pub fn has_channel(&self, channel: &[u8], is_pattern: bool) -> bool {
        self.all_selectors()
            .any(|selector| selector.has_channel(channel, is_pattern))
    }
}

/// What is kept of a password.
pub(super) fn hash(password: &[u8]) -> Hash {
    Sha256::digest(password).into()
}
