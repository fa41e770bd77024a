//! What all clients take together, and the limit of that: `maxmemory-clients`.
//!
//! Whoever changes what a client takes (its own task at the end of a turn, or who writes into its queue) notes the
//! difference here; nothing changes in the usual turn, and then nothing is written that others read. Clients that may
//! not be evicted count as nothing. Which client goes is up to the registry, which knows them all.
//!
//! What is known of a client is one word of the client, which says at last that it was removed: threads that note what
//! it takes while another one removes it, or after that, change nothing. So the sum is that of the clients there are,
//! however they end.

use std::sync::atomic::{
    AtomicBool, AtomicI64, AtomicU64, AtomicUsize,
    Ordering::{Relaxed, SeqCst},
};

use super::registry::{Peer, Shared};

/// The one of this process.
pub static CLIENT_MEMORY: ClientMemory = ClientMemory::new();

/// A limit below this would keep everybody out, the one who could raise it included.
const LIMIT_BYTES_MIN: usize = 128 * 1024;

/// In place of the bytes of a client that was removed.
const REMOVED: usize = usize::MAX;

/// See the module.
pub struct ClientMemory {
    /// Differences arrive in any order, so that this may be too little, and less than nothing, for a moment.
    total: AtomicI64,
    /// 0: none.
    limit: AtomicUsize,
    is_over: Line,
    /// Clients closed to save memory, since the start.
    pub evicted: AtomicU64,
}

/// Apart from the sums, as every turn reads it and hardly anybody writes it.
#[repr(align(128))]
struct Line(AtomicBool);

impl ClientMemory {
    const fn new() -> ClientMemory {
        ClientMemory {
            total: AtomicI64::new(0),
            limit: AtomicUsize::new(0),
            is_over: Line(AtomicBool::new(false)),
            evicted: AtomicU64::new(0),
        }
    }

    /// What clients that can be evicted take together.
    pub fn total_bytes(&self) -> usize {
        usize::try_from(self.total.load(SeqCst)).unwrap_or(0)
    }

    /// Sets the limit; 0 for none.
    pub fn set_limit(&self, bytes: u64) {
        let limit = match usize::try_from(bytes).unwrap_or(usize::MAX) {
            0 => 0,
            bytes => bytes.max(LIMIT_BYTES_MIN),
        };
        self.limit.store(limit, SeqCst);
        self.look();
    }

    /// Whether clients take more than they may.
    #[inline]
    pub fn is_over(&self) -> bool {
        self.is_over.0.load(Relaxed)
    }

    /// Compares the sum with the limit.
    pub fn look(&self) -> bool {
        loop {
            let limit = self.limit.load(SeqCst);
            let is_over = limit > 0 && self.total_bytes() >= limit;
            if self.is_over.0.load(SeqCst) == is_over {
                return is_over;
            }
            // The sum may change between the look and this, and its changer look before this: so there is another look.
            self.is_over.0.store(is_over, SeqCst);
        }
    }

    /// What is known of a client.
    pub(super) fn bytes_of(client: &Shared) -> usize {
        match client.counted_bytes.load(Relaxed) {
            REMOVED => 0,
            bytes => bytes,
        }
    }

    /// Notes what a client takes now.
    #[inline]
    pub fn note(&self, client: &Shared) {
        let is_counted =
            !client.no_evict.load(Relaxed) && !client.is_killed() && client.peer() == Peer::Client;
        let bytes = if is_counted { client.memory_bytes() } else { 0 };
        if bytes != client.counted_bytes.load(Relaxed) {
            self.count(client, bytes);
        }
    }

    /// The client takes nothing any more, whoever notes something else from now on.
    pub fn remove(&self, client: &Shared) {
        let before = client.counted_bytes.swap(REMOVED, Relaxed);
        if before != REMOVED {
            self.total.fetch_sub(before as i64, SeqCst);
            self.look();
        }
    }

    #[cold]
    fn count(&self, client: &Shared, bytes: usize) {
        let counted = &client.counted_bytes;
        let noted = counted.fetch_update(Relaxed, Relaxed, |before| {
            (before != REMOVED).then_some(bytes)
        });
        if let Ok(before) = noted {
            self.total.fetch_add(bytes as i64 - before as i64, SeqCst);
            self.look();
        }
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
        CLIENT_MEMORY.note(&shared);
        shared
    }

    #[test]
    fn the_largest_clients_go_until_the_rest_is_within_the_limit() {
        let registry = Registry::new();
        let sizes = [1 << 20, 5 << 20, 3 << 20, 4 << 20, 2 << 20];
        let clients: Vec<_> = sizes.map(|bytes| client(&registry, bytes)).into();
        clients[1].no_evict.store(true, Relaxed);
        CLIENT_MEMORY.note(&clients[1]);
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
        // It is on its way out, and does not count however its figures change.
        CLIENT_MEMORY.note(&clients[3]);
        clients[1].no_evict.store(false, Relaxed);
        CLIENT_MEMORY.note(&clients[1]);
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

    fn alone(number: u64) -> Shared {
        let address = "127.0.0.1:1".to_owned();
        Shared::new(number, address.clone(), address, 8, false, 0)
    }

    #[test]
    fn a_client_that_was_removed_counts_for_nothing_whoever_notes_it_later() {
        let ledger = ClientMemory::new();
        let client = alone(1);
        ledger.note(&client);
        assert!(
            ledger.total_bytes() > 0 && ClientMemory::bytes_of(&client) == ledger.total_bytes()
        );
        ledger.remove(&client);
        // A publisher that found it before, or its own task at the end of a turn.
        client.output_bytes.store(1 << 20, Relaxed);
        ledger.note(&client);
        assert_eq!(
            (ledger.total_bytes(), ClientMemory::bytes_of(&client)),
            (0, 0)
        );
    }

    #[test]
    fn notes_and_removals_that_meet_leave_nothing_and_exceed_no_limit() {
        let rounds = if cfg!(miri) { 3 } else { 300 };
        let ledger = ClientMemory::new();
        ledger.set_limit(1 << 40);
        for round in 0..rounds {
            let client = alone(round);
            std::thread::scope(|scope| {
                for step in 1..4_usize {
                    let (ledger, client) = (&ledger, &client);
                    scope.spawn(move || {
                        for bytes in 0..50 {
                            client.output_bytes.store(bytes * step * 1_000, Relaxed);
                            ledger.note(client);
                            // Less than nothing would be more than anything.
                            assert!(!ledger.is_over());
                        }
                        if step == 2 {
                            ledger.remove(client);
                        }
                    });
                }
            });
            assert_eq!(ledger.total.load(SeqCst), 0, "round {round}");
        }
    }
}
