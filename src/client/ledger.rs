//! What all clients take together, and the limit of that: `maxmemory-clients`.
//!
//! Whoever changes what a client takes (its own task at the end of a turn, or who writes into its queue) notes the
//! difference here; nothing changes in the usual turn, and then nothing is written that others read. Clients that may
//! not be evicted count as nothing. Which client goes is up to the registry, which knows them all.

use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering::Relaxed};

use super::registry::Shared;

/// The one of this process.
pub static LEDGER: Ledger = Ledger::new();

/// A limit below this would keep everybody out, the one who could raise it included.
const LIMIT_BYTES_MIN: usize = 128 * 1024;

/// See the module.
pub struct Ledger {
    total: AtomicUsize,
    /// 0: none.
    limit: AtomicUsize,
    is_over: Line,
    /// Clients closed to save memory, since the start.
    pub evicted: AtomicU64,
}

/// Apart from the sums, as every turn reads it and hardly anybody writes it.
#[repr(align(128))]
struct Line(AtomicBool);

impl Ledger {
    const fn new() -> Ledger {
        Ledger {
            total: AtomicUsize::new(0),
            limit: AtomicUsize::new(0),
            is_over: Line(AtomicBool::new(false)),
            evicted: AtomicU64::new(0),
        }
    }

    /// What clients that can be evicted take together.
    pub fn total_bytes(&self) -> usize {
        self.total.load(Relaxed)
    }

    /// Sets the limit; 0 for none.
    pub fn set_limit(&self, bytes: u64) {
        let limit = match usize::try_from(bytes).unwrap_or(usize::MAX) {
            0 => 0,
            bytes => bytes.max(LIMIT_BYTES_MIN),
        };
        self.limit.store(limit, Relaxed);
        self.look();
    }

    /// Whether clients take more than they may.
    #[inline]
    pub fn is_over(&self) -> bool {
        self.is_over.0.load(Relaxed)
    }

    /// Compares the sum with the limit.
    pub fn look(&self) -> bool {
        let limit = self.limit.load(Relaxed);
        let is_over = limit > 0 && self.total_bytes() >= limit;
        if self.is_over() != is_over {
            self.is_over.0.store(is_over, Relaxed);
        }
        is_over
    }

    /// Notes what a client takes now.
    #[inline]
    pub fn note(&self, client: &Shared) {
        let is_counted = !client.no_evict.load(Relaxed) && !client.is_killed();
        let bytes = if is_counted { client.memory_bytes() } else { 0 };
        if bytes != client.counted_bytes.load(Relaxed) {
            self.count(client, bytes);
        }
    }

    /// The client takes nothing any more.
    pub fn remove(&self, client: &Shared) {
        self.count(client, 0);
    }

    #[cold]
    fn count(&self, client: &Shared, bytes: usize) {
        let before = client.counted_bytes.swap(bytes, Relaxed);
        if bytes > before {
            self.total.fetch_add(bytes - before, Relaxed);
        } else {
            self.total.fetch_sub(before - bytes, Relaxed);
        }
        self.look();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::client::registry::Registry;
    use std::sync::Arc;

    fn client(registry: &Registry, bytes: usize) -> Arc<Shared> {
        let address = "127.0.0.1:1".to_owned();
        let shared = Shared::new(registry.next_id(), address.clone(), address, 8, false, 0);
        shared.buffer_bytes.store(bytes, Relaxed);
        let shared = Arc::new(shared);
        registry.add(Arc::clone(&shared));
        LEDGER.note(&shared);
        shared
    }

    #[test]
    fn the_largest_clients_go_until_the_rest_is_within_the_limit() {
        let registry = Registry::new();
        let sizes = [1 << 20, 5 << 20, 3 << 20, 4 << 20, 2 << 20];
        let clients: Vec<_> = sizes.map(|bytes| client(&registry, bytes)).into();
        clients[1].no_evict.store(true, Relaxed);
        LEDGER.note(&clients[1]);
        let counted = LEDGER.total_bytes();
        assert!((10 << 20..11 << 20).contains(&counted), "{counted}");
        registry.evict();
        assert_eq!(registry.count(), 5, "there is no limit yet");
        LEDGER.set_limit(7 << 20);
        assert!(LEDGER.is_over());
        registry.evict();
        let is_killed: Vec<bool> = clients.iter().map(|client| client.is_killed()).collect();
        assert_eq!(is_killed, [false, false, false, true, false]);
        assert!(!LEDGER.is_over() && registry.count() == 4);
        // It is on its way out, and does not count however its figures change.
        LEDGER.note(&clients[3]);
        clients[1].no_evict.store(false, Relaxed);
        LEDGER.note(&clients[1]);
        registry.evict();
        assert!(clients[1].is_killed() && !clients[2].is_killed());
        LEDGER.set_limit(1);
        registry.evict();
        assert!(
            registry.count() == 0,
            "the least limit is below what any of them takes"
        );
        LEDGER.set_limit(0);
        assert!(!LEDGER.is_over());
    }
}
