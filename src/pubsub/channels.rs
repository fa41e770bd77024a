//! Names with their subscribers: channels, spread over locks, and patterns under one.
//!
//! Subscribers stand in the order of their numbers, so that one of many is found and taken out quickly.

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};

use dashmap::DashMap;
use parking_lot::RwLock;

use crate::client::registry::Shared;

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

/// Channels.
#[derive(Default)]
pub(super) struct Channels {
    by_name: DashMap<Arc<[u8]>, Subscribers>,
    count: AtomicUsize,
}

impl Channels {
    /// Adds a client to those of a channel; the channel's name, to be shared.
    pub(super) fn add(&self, name: &[u8], client: &Arc<Shared>) -> Arc<[u8]> {
        if let Some(mut found) = self.by_name.get_mut(name) {
            insert(&mut found, client);
            return Arc::clone(found.key());
        }
        let name: Arc<[u8]> = Arc::from(name);
        let mut entry = self.by_name.entry(Arc::clone(&name)).or_insert_with(|| {
            self.count.fetch_add(1, Relaxed);
            Vec::new()
        });
        insert(&mut entry, client);
        Arc::clone(entry.key())
    }

    pub(super) fn remove(&self, name: &[u8], id: u64) {
        let is_last = self.by_name.get_mut(name).is_some_and(|mut found| {
            take_out(&mut found, id);
            found.is_empty()
        });
        // Somebody else may have come meanwhile.
        if is_last
            && self
                .by_name
                .remove_if(name, |_, clients| clients.is_empty())
                .is_some()
        {
            self.count.fetch_sub(1, Relaxed);
        }
    }

    /// Shows the subscribers of a channel; how many there are.
    pub(super) fn with(&self, name: &[u8], mut show: impl FnMut(&[Arc<Shared>])) -> usize {
        if self.is_empty() {
            return 0;
        }
        self.by_name.get(name).map_or(0, |clients| {
            show(&clients);
            clients.len()
        })
    }

    pub(super) fn names(&self, is_wanted: impl Fn(&[u8]) -> bool) -> Vec<Arc<[u8]>> {
        self.by_name
            .iter()
            .filter(|entry| is_wanted(entry.key()))
            .map(|entry| Arc::clone(entry.key()))
            .collect()
    }

    pub(super) fn len(&self) -> usize {
        self.count.load(Relaxed)
    }

    pub(super) fn is_empty(&self) -> bool {
        self.len() == 0
    }
}

/// Patterns.
#[derive(Default)]
pub(super) struct Patterns {
    by_text: RwLock<HashMap<Arc<[u8]>, Subscribers>>,
    count: AtomicUsize,
}

impl Patterns {
    pub(super) fn add(&self, text: &[u8], client: &Arc<Shared>) -> Arc<[u8]> {
        let mut by_text = self.by_text.write();
        let text = match by_text.get_key_value(text) {
            Some((text, _)) => Arc::clone(text),
            None => Arc::from(text),
        };
        insert(by_text.entry(Arc::clone(&text)).or_default(), client);
        self.count.store(by_text.len(), Relaxed);
        text
    }

    pub(super) fn remove(&self, text: &[u8], id: u64) {
        let mut by_text = self.by_text.write();
        if let Some(clients) = by_text.get_mut(text) {
            take_out(clients, id);
            if clients.is_empty() {
                by_text.remove(text);
            }
        }
        self.count.store(by_text.len(), Relaxed);
    }

    pub(super) fn with_each(&self, mut show: impl FnMut(&[u8], &[Arc<Shared>])) {
        if self.is_empty() {
            return;
        }
        for (text, clients) in self.by_text.read().iter() {
            show(text, clients);
        }
    }

    pub(super) fn len(&self) -> usize {
        self.count.load(Relaxed)
    }

    pub(super) fn is_empty(&self) -> bool {
        self.len() == 0
    }
}
