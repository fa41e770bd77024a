//! All users of a server, and which of them a connection is.

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
use super::log::{self, Log};
use super::user::{DEFAULT, User};

/// A user as connections hold it: what it may do changes under them.
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

    /// The user as it is now.
    pub fn user(&self) -> Arc<User> {
        self.user.load_full()
    }

    /// The user as it is now, for a moment: cheaper than [`Handle::user`].
    #[inline]
    pub fn peek(&self) -> impl Deref<Target = Arc<User>> {
        self.user.load()
    }

    /// Whether anything may be refused to it.
    pub fn is_restricted(&self) -> bool {
        self.is_restricted.load(Relaxed)
    }

    fn set(&self, user: User, catalogue: &dyn Catalogue) {
        self.is_restricted
            .store(!user.is_unrestricted(catalogue), Relaxed);
        self.user.store(Arc::new(user));
    }
}

/// How often something was refused since the start.
#[derive(Debug, Default)]
pub struct Figures {
    counts: [AtomicU64; 6],
}

impl Figures {
    /// How often this was refused.
    pub fn of(&self, denied: Denied) -> u64 {
        self.counts[denied as usize].load(Relaxed)
    }
}

/// See the module.
pub struct Users {
    catalogue: &'static dyn Catalogue,
    all: RwLock<BTreeMap<Vec<u8>, Arc<Handle>>>,
    default: Arc<Handle>,
    log: Mutex<Log>,
    attempts: Mutex<Attempts>,
    /// What was refused.
    pub figures: Figures,
}

impl Users {
    /// The default user alone, who may do everything.
    pub fn new(catalogue: &'static dyn Catalogue) -> Users {
        let default = Arc::new(Handle::new(User::default_user(), catalogue));
        let all = BTreeMap::from([(DEFAULT.to_vec(), Arc::clone(&default))]);
        Users {
            catalogue,
            all: RwLock::new(all),
            default,
            log: Mutex::default(),
            attempts: Mutex::default(),
            figures: Figures::default(),
        }
    }

    /// What rules may name.
    pub fn catalogue(&self) -> &'static dyn Catalogue {
        self.catalogue
    }

    /// The user that connections are which name none.
    pub fn default(&self) -> &Arc<Handle> {
        &self.default
    }

    /// A user by name.
    pub fn find(&self, name: &[u8]) -> Option<Arc<Handle>> {
        self.all.read().get(name).cloned()
    }

    /// All users by their names, ascending.
    pub fn all(&self) -> Vec<Arc<User>> {
        self.all
            .read()
            .values()
            .map(|handle| handle.user())
            .collect()
    }

    /// Changes a user, or makes it: what it is like by then, and what it was like before if there was one. One change
    /// comes after the other.
    pub fn change<E>(
        &self,
        name: &[u8],
        opens_channels: bool,
        change: impl FnOnce(&User) -> Result<User, E>,
    ) -> Result<Change, E> {
        let mut all = self.all.write();
        match all.entry(name.to_vec()) {
            Entry::Occupied(known) => {
                let handle = Arc::clone(known.get());
                let before = handle.user();
                let mut base = User::clone(&before);
                base.opens_channels = opens_channels;
                let user = change(&base)?;
                handle.set(user, self.catalogue);
                Ok(Change {
                    handle,
                    before: Some(before),
                })
            }
            Entry::Vacant(place) => {
                let user = change(&User::new(name, opens_channels))?;
                let handle = Arc::new(Handle::new(user, self.catalogue));
                place.insert(Arc::clone(&handle));
                Ok(Change {
                    handle,
                    before: None,
                })
            }
        }
    }

    /// Deletes a user, which is not the default one.
    pub fn remove(&self, name: &[u8]) -> Option<Arc<Handle>> {
        match name == DEFAULT {
            true => None,
            false => self.all.write().remove(name),
        }
    }

    /// Puts users in place of all that there are. The default user stays, as it is named or as it was made; the handles
    /// of all others are given back, whose connections are to end.
    pub fn replace(&self, users: Vec<User>) -> Vec<Arc<Handle>> {
        let mut next = BTreeMap::from([(DEFAULT.to_vec(), Arc::clone(&self.default))]);
        let mut default = User::default_user();
        for user in users {
            if user.name == DEFAULT {
                default = user;
            } else {
                let name = user.name.clone();
                next.insert(name, Arc::new(Handle::new(user, self.catalogue)));
            }
        }
        self.default.set(default, self.catalogue);
        let before = std::mem::replace(&mut *self.all.write(), next);
        let is_gone = |handle: &Arc<Handle>| !Arc::ptr_eq(handle, &self.default);
        before.into_values().filter(is_gone).collect()
    }

    /// Counts something that was refused, and notes it in the log.
    pub fn note(&self, entry: log::Entry, entries_max: usize) {
        self.figures.counts[entry.denied as usize].fetch_add(1, Relaxed);
        self.log.lock().add(entry, entries_max);
    }

    /// Notes that somebody at this address failed to sign in; when that is to be answered, in Unix milliseconds.
    pub fn failed(&self, host: &str, now_ms: u64) -> u64 {
        self.attempts.lock().fail(host, now_ms)
    }

    /// The latest of what was refused.
    pub fn log(&self, count: usize) -> Vec<log::Entry> {
        self.log.lock().latest(count)
    }

    /// ACL LOG RESET.
    pub fn clear_log(&self) {
        self.log.lock().clear();
    }
}

impl std::fmt::Debug for Users {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Users").field("all", &self.all).finish()
    }
}

/// A user that was changed.
pub struct Change {
    /// The user.
    pub handle: Arc<Handle>,
    /// What it was before.
    pub before: Option<Arc<User>>,
}
