//! Names with their subscribers: channels, distributed over several locks, and patterns under a single lock.
//!
//! Subscribers are ordered by their IDs, so that one of many is found and removed quickly. The text of a name is
//! shared with its subscribers' lists of subscriptions.

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};

use parking_lot::RwLock;

use crate::client::shared::Shared;
use basalt_core::base::maps;

pub(super) type Subscribers = Vec<Arc<Shared>>;

pub(super) fn insert(subscribers: &mut Subscribers, client: &Arc<Shared>) {
    let at = subscribers.partition_point(|other| other.id < client.id);
    subscribers.insert(at, Arc::clone(client));
}

pub(super) fn take_out(subscribers: &mut Subscribers, id: u64) {
    if let Ok(at) = subscribers.binary_search_by_key(&id, |client| client.id) {
        subscribers.remove(at);
        if subscribers.len() < subscribers.capacity() / 4 {
            subscribers.shrink_to_fit();
        }
    }
}

/// Names under one lock.
#[derive(Default)]
struct ChannelPartition(RwLock<HashMap<Arc<[u8]>, Subscribers>>);

impl ChannelPartition {
    /// Adds a subscriber to a name; returns the name, to be shared, and whether it is new.
    fn add(&self, name: &[u8], client: &Arc<Shared>) -> (Arc<[u8]>, bool) {
        let mut names = self.0.write();
        let known = names.get_key_value(name).map(|(name, _)| Arc::clone(name));
        let is_new = known.is_none();
        let name = known.unwrap_or_else(|| Arc::from(name));
        let subscribers = names.entry(Arc::clone(&name));
        insert(subscribers.or_insert_with(|| Vec::with_capacity(1)), client);
        (name, is_new)
    }

    /// Removes a subscriber; returns whether it was the last one.
    fn remove(&self, name: &[u8], id: u64) -> bool {
        let mut names = self.0.write();
        let Some(clients) = names.get_mut(name) else {
            return false;
        };
        take_out(clients, id);
        let is_last = clients.is_empty();
        if is_last {
            names.remove(name);
            maps::shrink(&mut names);
        }
        is_last
    }

    /// Moves a name, and the list of its subscribers, to newly allocated memory. Returns the name and its
    /// subscribers; None if there are none. No concurrent lookup finds the name missing.
    fn relocate(&self, name: &[u8]) -> Option<(Arc<[u8]>, Subscribers)> {
        let mut names = self.0.write();
        let (old, clients) = names.remove_entry(name)?;
        let new: Arc<[u8]> = Arc::from(&*old);
        names.insert(Arc::clone(&new), clients.clone());
        Some((new, clients))
    }
}

/// Number of locks over which channels are distributed.
const PARTS: usize = 64;

/// Channels with their subscribers.
pub(super) struct ChannelTable {
    parts: [ChannelPartition; PARTS],
    count: AtomicUsize,
}

impl Default for ChannelTable {
    fn default() -> ChannelTable {
        ChannelTable {
            parts: std::array::from_fn(|_| ChannelPartition::default()),
            count: AtomicUsize::new(0),
        }
    }
}

impl ChannelTable {
    /// Returns the part that contains a name; names that differ in their last bytes, as most do, are in different
    /// parts.
    fn part(&self, name: &[u8]) -> &ChannelPartition {
        const LOOKED_AT: usize = 16;
        let tail = &name[name.len().saturating_sub(LOOKED_AT)..];
        let mixed = tail.iter().fold(name.len() as u64, |mixed, byte| {
            (mixed ^ u64::from(*byte)).wrapping_mul(0x0100_0000_01b3)
        });
        &self.parts[(mixed ^ (mixed >> 32)) as usize % PARTS]
    }

    /// Adds a subscriber to a channel; returns the channel's name, to be shared.
    pub(super) fn add(&self, name: &[u8], client: &Arc<Shared>) -> Arc<[u8]> {
        let (name, is_new) = self.part(name).add(name, client);
        self.count.fetch_add(usize::from(is_new), Relaxed);
        name
    }

    pub(super) fn remove(&self, name: &[u8], id: u64) {
        let is_last = self.part(name).remove(name, id);
        self.count.fetch_sub(usize::from(is_last), Relaxed);
    }

    /// Calls `show` with the subscribers of a channel. Returns their number.
    pub(super) fn with(&self, name: &[u8], mut show: impl FnMut(&[Arc<Shared>])) -> usize {
        if self.is_empty() {
            return 0;
        }
        let names = self.part(name).0.read();
        names.get(name).map_or(0, |clients| {
            show(clients);
            clients.len()
        })
    }

    pub(super) fn names(&self, is_wanted: impl Fn(&[u8]) -> bool) -> Vec<Arc<[u8]>> {
        let mut wanted = Vec::new();
        for part in &self.parts {
            let names = part.0.read();
            wanted.extend(names.keys().filter(|name| is_wanted(name)).cloned());
        }
        wanted
    }

    /// See [`ChannelPartition::relocate`].
    pub(super) fn relocate(&self, name: &[u8]) -> Option<(Arc<[u8]>, Subscribers)> {
        self.part(name).relocate(name)
    }

    pub(super) fn len(&self) -> usize {
        self.count.load(Relaxed)
    }

    pub(super) fn is_empty(&self) -> bool {
        self.len() == 0
    }
}

/// Patterns with their subscribers.
#[derive(Default)]
pub(super) struct Patterns {
    by_text: ChannelPartition,
    count: AtomicUsize,
}

impl Patterns {
    pub(super) fn add(&self, text: &[u8], client: &Arc<Shared>) -> Arc<[u8]> {
        let (text, is_new) = self.by_text.add(text, client);
        self.count.fetch_add(usize::from(is_new), Relaxed);
        text
    }

    pub(super) fn remove(&self, text: &[u8], id: u64) {
        let is_last = self.by_text.remove(text, id);
        self.count.fetch_sub(usize::from(is_last), Relaxed);
    }

    pub(super) fn with_each(&self, mut show: impl FnMut(&[u8], &[Arc<Shared>])) {
        if self.is_empty() {
            return;
        }
        for (text, clients) in self.by_text.0.read().iter() {
            show(text, clients);
        }
    }

    pub(super) fn names(&self) -> Vec<Arc<[u8]>> {
        self.by_text.0.read().keys().cloned().collect()
    }

    /// See [`ChannelPartition::relocate`].
    pub(super) fn relocate(&self, text: &[u8]) -> Option<(Arc<[u8]>, Subscribers)> {
        self.by_text.relocate(text)
    }

    pub(super) fn len(&self) -> usize {
        self.count.load(Relaxed)
    }

    pub(super) fn is_empty(&self) -> bool {
        self.len() == 0
    }
}
