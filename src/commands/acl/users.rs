//! All users of a server, and the references that connections hold to them.

use std::collections::BTreeMap;
use std::collections::btree_map::Entry;
use std::ops::Deref;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};

use arc_swap::ArcSwap;
use parking_lot::{Mutex, RwLock};

use super::attempts::Attempts;
use super::catalogue::Catalogue;
use super::denied::Denied;
use super::log::{self, AclLog};
use super::role::{Role, Roles};
use super::user::{DEFAULT, User};

/// A connection's reference to a user, whose permissions may change at any time.
#[derive(Debug)]
pub struct Handle {
    user: ArcSwap<User>,
    is_restricted: AtomicBool,
}

impl Handle {
    fn new(user: User, catalogue: &dyn Catalogue) -> Handle {
        let is_restricted = !user.is_unrestricted(catalogue);
        Handle {
            user: ArcSwap::from_pointee(user),
            is_restricted: AtomicBool::new(is_restricted),
        }
    }

    /// Returns the current user.
    pub fn user(&self) -> Arc<User> {
        self.user.load_full()
    }

    /// Returns the current user, for brief use: cheaper than [`Handle::user`].
    #[inline]
    pub fn peek(&self) -> impl Deref<Target = Arc<User>> {
        self.user.load()
    }

    /// Whether anything may be denied to the user.
    pub fn is_restricted(&self) -> bool {
        self.is_restricted.load(Relaxed)
    }

    fn set(&self, user: User, catalogue: &dyn Catalogue) {
        self.is_restricted
            .store(!user.is_unrestricted(catalogue), Relaxed);
        self.user.store(Arc::new(user));
    }
}

/// Numbers of denials since the start.
#[derive(Debug, Default)]
pub struct DenialCounts {
    counts: [AtomicU64; 6],
}

impl DenialCounts {
    /// Returns the number of denials of this kind.
    pub fn of(&self, denied: Denied) -> u64 {
        self.counts[denied as usize].load(Relaxed)
    }
}

/// Users and roles by name.
#[derive(Debug)]
struct Named {
    users: BTreeMap<Vec<u8>, Arc<Handle>>,
    roles: Roles,
}

/// All users and their roles, see the module.
pub struct Users {
    catalogue: &'static dyn Catalogue,
    all: RwLock<Named>,
    default: Arc<Handle>,
    log: Mutex<AclLog>,
    attempts: Mutex<Attempts>,
    /// Numbers of denials since the start, by reason.
    pub figures: DenialCounts,
}

impl Users {
    /// Creates the registry with only the default user, which is unrestricted.
    pub fn new(catalogue: &'static dyn Catalogue) -> Users {
        let default = Arc::new(Handle::new(User::default_user(), catalogue));
        let users = BTreeMap::from([(DEFAULT.to_vec(), Arc::clone(&default))]);
        let roles = Roles::new();
        Users {
            catalogue,
            all: RwLock::new(Named { users, roles }),
            default,
            log: Mutex::default(),
            attempts: Mutex::default(),
            figures: DenialCounts::default(),
        }
    }

    /// Returns the commands that rules can name.
    pub fn catalogue(&self) -> &'static dyn Catalogue {
        self.catalogue
    }

    /// Returns the user of connections that have not named one.
    pub fn default(&self) -> &Arc<Handle> {
        &self.default
    }

    /// Finds a user by name.
    pub fn find(&self, name: &[u8]) -> Option<Arc<Handle>> {
        self.all.read().users.get(name).cloned()
    }

    /// Returns all users ordered by name.
    pub fn all(&self) -> Vec<Arc<User>> {
        let all = self.all.read();
        all.users.values().map(|handle| handle.user()).collect()
    }

    /// Finds a role by name.
    pub fn role(&self, name: &[u8]) -> Option<Arc<Role>> {
        self.all.read().roles.get(name).cloned()
    }

    /// Returns all roles ordered by name.
    pub fn roles(&self) -> Vec<Arc<Role>> {
        self.all.read().roles.values().cloned().collect()
    }

    /// Changes or creates a role. Returns the changes of the users that have it.
    pub fn change_role<E>(
        &self,
        name: &[u8],
        opens_channels: bool,
        change: impl FnOnce(&Role) -> Result<Role, E>,
    ) -> Result<Vec<UserChange>, E> {
        let mut all = self.all.write();
        let before = match all.roles.get(name) {
            Some(known) => Role {
                opens_channels,
                ..Role::clone(known)
            },
            None => Role::new(name, opens_channels),
        };
        let role = Arc::new(change(&before)?);
        all.roles.insert(name.to_vec(), Arc::clone(&role));
        let mut changes = Vec::new();
        for handle in all.users.values() {
            let before = handle.user();
            if before.has_role(name) {
                handle.set(before.with_role(&role), self.catalogue);
                changes.push(UserChange {
                    handle: Arc::clone(handle),
                    before: Some(before),
                });
            }
        }
        Ok(changes)
    }

    /// Deletes roles and returns how many there were. If a user has one of them none is deleted, and that one is the
    /// error.
    pub fn remove_roles<'n>(&self, names: &[&'n [u8]]) -> Result<usize, &'n [u8]> {
        let mut all = self.all.write();
        let is_used = |name: &&&[u8]| {
            let mut users = all.users.values();
            users.any(|handle| handle.user().has_role(name))
        };
        if let Some(used) = names.iter().find(is_used) {
            return Err(*used);
        }
        let removed = names
            .iter()
            .filter(|name| all.roles.remove(**name).is_some());
        Ok(removed.count())
    }

    /// Changes or creates a user. Returns the user's handle, and the previous state if the user existed. Changes are
    /// serialized.
    pub fn change<E>(
        &self,
        name: &[u8],
        opens_channels: bool,
        change: impl FnOnce(&User, &Roles) -> Result<User, E>,
    ) -> Result<UserChange, E> {
        let mut all = self.all.write();
        let Named { users, roles } = &mut *all;
        match users.entry(name.to_vec()) {
            Entry::Occupied(known) => {
                let handle = Arc::clone(known.get());
                let before = handle.user();
                let mut base = User::clone(&before);
                base.opens_channels = opens_channels;
                let user = change(&base, roles)?;
                handle.set(user, self.catalogue);
                Ok(UserChange {
                    handle,
                    before: Some(before),
                })
            }
            Entry::Vacant(place) => {
                let user = change(&User::new(name, opens_channels), roles)?;
                let handle = Arc::new(Handle::new(user, self.catalogue));
                place.insert(Arc::clone(&handle));
                Ok(UserChange {
                    handle,
                    before: None,
                })
            }
        }
    }

    /// Deletes a user other than the default one. Returns its handle; None if there is no such user.
    pub fn remove(&self, name: &[u8]) -> Option<Arc<Handle>> {
        match name == DEFAULT {
            true => None,
            false => self.all.write().users.remove(name),
        }
    }

    /// Replaces all users and roles, and returns the users that existed before: the connections of deleted ones are to
    /// be closed. The default user stays, with the given or the initial definition.
    pub fn replace(&self, users: Vec<User>, roles: Roles) -> ReplacedUsers {
        let mut all = self.all.write();
        let named = Named {
            users: BTreeMap::new(),
            roles,
        };
        let mut before = std::mem::replace(&mut *all, named).users;
        let mut changed = Vec::new();
        let names_default = users.iter().any(|user| user.name == DEFAULT);
        let initial = (!names_default).then(User::default_user);
        for user in users.into_iter().chain(initial) {
            let name = user.name.clone();
            let handle = match before.remove(&name) {
                Some(handle) => {
                    changed.push(UserChange {
                        handle: Arc::clone(&handle),
                        before: Some(handle.user()),
                    });
                    handle.set(user, self.catalogue);
                    handle
                }
                None => Arc::new(Handle::new(user, self.catalogue)),
            };
            all.users.insert(name, handle);
        }
        ReplacedUsers {
            changed,
            deleted: before.into_values().collect(),
        }
    }

    /// Counts a denial and adds it to the log.
    pub fn note(&self, entry: log::AclLogEntry, entries_max: usize) {
        self.figures.counts[entry.denied as usize].fetch_add(1, Relaxed);
        self.log.lock().add(entry, entries_max);
    }

    /// Records a failed authentication from an address. Returns when to reply, in Unix milliseconds.
    pub fn note_failed_login(&self, host: &str, now_ms: u64) -> u64 {
        self.attempts.lock().fail(host, now_ms)
    }

    /// Returns the latest denials.
    pub fn latest_denials(&self, count: usize) -> Vec<log::AclLogEntry> {
        self.log.lock().latest(count)
    }

    /// Removes all entries of the log of denials (ACL LOG RESET).
    pub fn clear_log(&self) {
        self.log.lock().clear();
    }
}

impl std::fmt::Debug for Users {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Users").field("all", &self.all).finish()
    }
}

/// The users that existed before all were replaced.
pub struct ReplacedUsers {
    /// Users that exist still, with new rules.
    pub changed: Vec<UserChange>,
    /// Users that exist no longer.
    pub deleted: Vec<Arc<Handle>>,
}

/// A change of a user.
pub struct UserChange {
    /// The changed or created user.
    pub handle: Arc<Handle>,
    /// The user's previous state; None if it was created.
    pub before: Option<Arc<User>>,
}
