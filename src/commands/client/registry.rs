//! All connections, for CLIENT LIST, CLIENT KILL and the metrics.

use std::collections::VecDeque;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering::Relaxed};
use std::sync::{Arc, Weak};

use dashmap::DashMap;
use parking_lot::Mutex;

use super::memory::{CLIENT_MEMORY, UNAUTHENTICATED};
use super::shared::{Peer, Shared};

/// All connections, see the module.
#[derive(Default)]
pub struct Registry {
    clients: DashMap<u64, Arc<Shared>>,
    next_id: AtomicU64,
    /// Connections accepted since the start.
    pub accepted: AtomicU64,
    /// Connections refused because of `maxclients`.
    pub rejected: AtomicU64,
    /// Connections closed because a request or a transaction exceeded `client-query-buffer-limit`.
    pub overfed: AtomicU64,
    count: AtomicUsize,
    evicting: Mutex<()>,
    /// Connections that had to authenticate when they arrived, in the order of arrival; most of them have
    /// authenticated since.
    unauthenticated: Mutex<VecDeque<Weak<Shared>>>,
    /// Connections closed because their clients did not authenticate.
    pub unauthenticated_closed: AtomicU64,
}

/// The list is cleaned when it has this many more elements than there are unauthenticated connections.
const SIGNED_IN_MAX: usize = 1024;

impl Registry {
    /// Creates an empty registry.
    pub fn new() -> Registry {
        Registry::default()
    }

    /// Returns the ID for the next connection.
    pub fn next_id(&self) -> u64 {
        self.next_id.fetch_add(1, Relaxed) + 1
    }

    /// Adds a new connection.
    pub fn add(&self, client: Arc<Shared>) {
        self.count.fetch_add(1, Relaxed);
        client.note_memory();
        if client.is_unauthenticated() {
            let mut waiting = self.unauthenticated.lock();
            if waiting.len() > UNAUTHENTICATED.load(Relaxed) * 2 + SIGNED_IN_MAX {
                waiting.retain(|client| {
                    let client = client.upgrade();
                    client.is_some_and(|client| client.is_unauthenticated())
                });
            }
            waiting.push_back(Arc::downgrade(&client));
        }
        self.clients.insert(client.id, client);
    }

    /// Returns the number of unauthenticated connections.
    pub fn unauthenticated(&self) -> usize {
        UNAUTHENTICATED.load(Relaxed)
    }

    /// Closes the connection that has been unauthenticated for the longest. Returns false if there is none. A new
    /// connection is at least as likely to have a password.
    #[cold]
    pub fn close_unauthenticated(&self) -> bool {
        loop {
            let Some(first) = self.unauthenticated.lock().pop_front() else {
                return false;
            };
            if let Some(client) = first.upgrade()
                && client.is_unauthenticated()
                && !client.is_killed()
            {
                self.kill(&client);
                self.unauthenticated_closed.fetch_add(1, Relaxed);
                return true;
            }
        }
    }

    /// Closes all connections with this kind of peer.
    pub fn kill_all(&self, peer: Peer) {
        for client in self.all() {
            if client.peer() == peer {
                self.kill(&client);
            }
        }
    }

    /// Removes a connection that has ended.
    pub fn remove(&self, id: u64) {
        if let Some((_, client)) = self.clients.remove(&id) {
            self.count.fetch_sub(1, Relaxed);
            CLIENT_MEMORY.remove(&client.counted);
            client.set_unauthenticated(false);
        }
    }

    /// Closes the largest clients until the others take less than `maxmemory-clients`.
    #[cold]
    pub fn evict(&self) {
        let _one_at_a_time = self.evicting.lock();
        if !CLIENT_MEMORY.update_over_limit() {
            return;
        }
        // The memory of each client is read only once, as it keeps changing.
        let clients = self.all().into_iter();
        let mut clients: Vec<_> = clients
            .map(|client| (client.counted.bytes(), client))
            .filter(|(bytes, _)| *bytes > 0)
            .collect();
        clients.sort_by_key(|(bytes, _)| std::cmp::Reverse(*bytes));
        for (_, client) in clients {
            if !CLIENT_MEMORY.update_over_limit() {
                return;
            }
            self.kill(&client);
            CLIENT_MEMORY.evicted.fetch_add(1, Relaxed);
        }
    }

    /// Closes a connection. When this returns, lookups do not find it any more, though its task may end a moment
    /// later.
    pub fn kill(&self, client: &Shared) {
        client.kill();
        self.remove(client.id);
    }

    /// Returns the number of connections.
    pub fn count(&self) -> usize {
        self.count.load(Relaxed)
    }

    /// Finds a connection by ID.
    pub fn get(&self, id: u64) -> Option<Arc<Shared>> {
        self.clients.get(&id).map(|client| Arc::clone(&client))
    }

    /// Returns all connections, ordered by ID.
    pub fn all(&self) -> Vec<Arc<Shared>> {
        let mut all: Vec<_> = self
            .clients
            .iter()
            .map(|client| Arc::clone(&client))
            .collect();
        all.sort_by_key(|client| client.id);
        all
    }

    /// Makes all waiting connections check again.
    pub fn nudge_all(&self) {
        self.all().iter().for_each(|client| client.nudge());
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn client(registry: &Registry, bytes: usize) -> Arc<Shared> {
        let address = "127.0.0.1:1".to_owned();
        let shared = Shared::new(registry.next_id(), address.clone(), address, 8, false, 0);
        shared.buffer_bytes.store(bytes, Relaxed);
        let shared = Arc::new(shared);
        registry.add(Arc::clone(&shared));
        shared.note_memory();
        shared
    }

    #[test]
    fn the_largest_clients_go_until_the_rest_is_within_the_limit() {
        let registry = Registry::new();
        let sizes = [1 << 20, 5 << 20, 3 << 20, 4 << 20, 2 << 20];
        let clients: Vec<_> = sizes.map(|bytes| client(&registry, bytes)).into();
        clients[1].no_evict.store(true, Relaxed);
        clients[1].note_memory();
        let counted = CLIENT_MEMORY.total_bytes();
        assert!((10 << 20..11 << 20).contains(&counted), "{counted}");
        registry.evict();
        assert_eq!(registry.count(), 5, "there is no limit yet");
        CLIENT_MEMORY.set_limit(7 << 20);
        assert!(CLIENT_MEMORY.is_over());
        registry.evict();
        let is_killed: Vec<bool> = clients.iter().map(|client| client.is_killed()).collect();
        assert_eq!(is_killed, [false, false, false, true, false]);
        assert!(!CLIENT_MEMORY.is_over() && registry.count() == 4);
        // The client is being closed, and does not count however its memory changes.
        clients[3].note_memory();
        clients[1].no_evict.store(false, Relaxed);
        clients[1].note_memory();
        registry.evict();
        assert!(clients[1].is_killed() && !clients[2].is_killed());
        CLIENT_MEMORY.set_limit(1);
        registry.evict();
        assert!(
            registry.count() == 0,
            "the least limit is below what any of them takes"
        );
        CLIENT_MEMORY.set_limit(0);
        assert!(!CLIENT_MEMORY.is_over());
    }
}
