//! The memory of all clients together, and its limit: `maxmemory-clients`.
//!
//! A change of a client's memory is reported here, by its own task at the end of a batch or by the thread that writes
//! into its mailbox; in the usual batch little changes, and then nothing is written that other threads read. Clients
//! that may not be evicted count as 0 (`Shared::note_memory`). The registry chooses the client to evict.
//!
//! A client's reported memory is one atomic number in the client, which in the end marks the client as removed:
//! reports of a client's memory during or after its removal change nothing. So the sum is that of the existing
//! clients, however they end.

use std::sync::atomic::{
    AtomicBool, AtomicI64, AtomicU64, AtomicUsize,
    Ordering::{Relaxed, SeqCst},
};

/// The only instance in this process.
pub static CLIENT_MEMORY: ClientMemory = ClientMemory::new();

/// Number of connections that have yet to authenticate, if a password is needed.
pub static UNAUTHENTICATED: AtomicUsize = AtomicUsize::new(0);

/// Minimum limit: a lower one would keep out all clients, including the one that could raise it.
const LIMIT_BYTES_MIN: usize = 128 * 1024;

/// Bytes by which a client's memory may differ from the reported value: small messages come and go, and for each
/// change all threads would write to the same sum.
const UNNOTED_BYTES_MAX: usize = 1024;

/// Marks a removed client, in place of its bytes.
const REMOVED: usize = usize::MAX;

/// The memory of all clients, see the module.
pub struct ClientMemory {
    /// Sum of the reported bytes. Differences arrive in any order, so the sum may be too low, and even negative, for
    /// a moment.
    total: AtomicI64,
    /// Limit in bytes; 0: none.
    limit: AtomicUsize,
    is_over: Line,
    /// Number of clients closed to save memory, since the start.
    pub evicted: AtomicU64,
}

/// Reported memory of one client, see the module.
#[derive(Default)]
pub struct CountedBytes(AtomicUsize);

impl CountedBytes {
    /// Creates a count of 0.
    pub const fn new() -> CountedBytes {
        CountedBytes(AtomicUsize::new(0))
    }

    /// Returns the reported bytes.
    pub fn bytes(&self) -> usize {
        match self.0.load(Relaxed) {
            REMOVED => 0,
            bytes => bytes,
        }
    }
}

/// A flag on a cache line of its own, as the flag is read in every batch and rarely written.
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

    /// Returns the bytes of all clients that can be evicted.
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
        self.update_over_limit();
    }

    /// Whether the clients' memory exceeds the limit.
    #[inline]
    pub fn is_over(&self) -> bool {
        self.is_over.0.load(Relaxed)
    }

    /// Compares the sum with the limit; returns whether it is exceeded.
    pub fn update_over_limit(&self) -> bool {
        loop {
            let limit = self.limit.load(SeqCst);
            let is_over = limit > 0 && self.total_bytes() >= limit;
            if self.is_over.0.load(SeqCst) == is_over {
                return is_over;
            }
            // The sum may change between the comparison and this store, and the thread that changes it may compare
            // before the store: so compare again.
            self.is_over.0.store(is_over, SeqCst);
        }
    }

    /// Reports a client's current memory.
    #[inline]
    pub fn note(&self, counted: &CountedBytes, bytes: usize) {
        let before = counted.0.load(Relaxed);
        if bytes.abs_diff(before) > UNNOTED_BYTES_MAX || (bytes == 0) != (before == 0) {
            self.count(counted, bytes);
        }
    }

    /// Removes a client's memory for good, even if a thread reports other bytes of it from now on.
    pub fn remove(&self, counted: &CountedBytes) {
        let before = counted.0.swap(REMOVED, Relaxed);
        if before != REMOVED {
            self.total.fetch_sub(before as i64, SeqCst);
            self.update_over_limit();
        }
    }

    #[cold]
    fn count(&self, counted: &CountedBytes, bytes: usize) {
        let noted = counted.0.fetch_update(Relaxed, Relaxed, |before| {
            (before != REMOVED).then_some(bytes)
        });
        if let Ok(before) = noted {
            self.total.fetch_add(bytes as i64 - before as i64, SeqCst);
            self.update_over_limit();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_client_that_was_removed_counts_for_nothing_whoever_notes_it_later() {
        let all = ClientMemory::new();
        let counted = CountedBytes::new();
        all.note(&counted, 1000);
        assert_eq!((all.total_bytes(), counted.bytes()), (1000, 1000));
        all.remove(&counted);
        // Reported by a publisher that found the client before, or by the client's own task at the end of a batch.
        all.note(&counted, 1 << 20);
        assert_eq!((all.total_bytes(), counted.bytes()), (0, 0));
    }

    #[test]
    fn what_a_small_message_takes_is_neither_noted_nor_lost() {
        let all = ClientMemory::new();
        let counted = CountedBytes::new();
        all.note(&counted, 100);
        let noted = [1124, 1125, 2149, 101, 100, 0].map(|bytes| {
            all.note(&counted, bytes);
            all.total_bytes()
        });
        assert_eq!(noted, [100, 1125, 1125, 1125, 100, 0]);
        all.note(&counted, 5);
        all.remove(&counted);
        assert_eq!(all.total_bytes(), 0);
    }

    #[test]
    fn notes_and_removals_that_meet_leave_nothing_and_exceed_no_limit() {
        let rounds = if cfg!(miri) { 3 } else { 300 };
        let all = ClientMemory::new();
        all.set_limit(1 << 40);
        for round in 0..rounds {
            let counted = CountedBytes::new();
            std::thread::scope(|scope| {
                for step in 1..4_usize {
                    let (all, counted) = (&all, &counted);
                    scope.spawn(move || {
                        for bytes in 0..50 {
                            all.note(counted, 1024 + bytes * step * 1_000);
                            // A negative sum would count as huge.
                            assert!(!all.is_over());
                        }
                        if step == 2 {
                            all.remove(counted);
                        }
                    });
                }
            });
            assert_eq!(all.total.load(SeqCst), 0, "round {round}");
        }
    }
}
