//! What all clients take together, and the limit of that: `maxmemory-clients`.
//!
//! A change of what a client takes is noted here, by its own task at the end of a turn or by the thread that writes
//! into its mailbox; in the usual turn little changes, and then nothing is written that other threads read. Clients
//! that may not be evicted count as nothing (`Shared::note_memory`). Which client goes is up to the registry.
//!
//! What is known of a client is one word of the client, which says at last that it was removed: threads that note what
//! it takes while another one removes it, or after that, change nothing. So the sum is that of the clients there are,
//! however they end.

use std::sync::atomic::{
    AtomicBool, AtomicI64, AtomicU64, AtomicUsize,
    Ordering::{Relaxed, SeqCst},
};

/// The one of this process.
pub static CLIENT_MEMORY: ClientMemory = ClientMemory::new();

/// Connections whose clients have yet to sign in, where a password is needed.
pub static UNAUTHENTICATED: AtomicUsize = AtomicUsize::new(0);

/// A limit below this would keep everybody out, the one who could raise it included.
const LIMIT_BYTES_MIN: usize = 128 * 1024;

/// Bytes by which a client may take more or less than what is counted of it: small messages come and go, and for each
/// of them all threads would write to the one sum.
const UNNOTED_BYTES_MAX: usize = 1024;

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

/// What is counted of one client; see the module.
#[derive(Default)]
pub struct CountedBytes(AtomicUsize);

impl CountedBytes {
    /// Nothing is counted yet.
    pub const fn new() -> CountedBytes {
        CountedBytes(AtomicUsize::new(0))
    }

    /// The bytes that are counted.
    pub fn bytes(&self) -> usize {
        match self.0.load(Relaxed) {
            REMOVED => 0,
            bytes => bytes,
        }
    }
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

    /// Notes what a client takes now.
    #[inline]
    pub fn note(&self, counted: &CountedBytes, bytes: usize) {
        let before = counted.0.load(Relaxed);
        if bytes.abs_diff(before) > UNNOTED_BYTES_MAX || (bytes == 0) != (before == 0) {
            self.count(counted, bytes);
        }
    }

    /// The client counts for nothing any more, even if a thread notes other bytes of it from now on.
    pub fn remove(&self, counted: &CountedBytes) {
        let before = counted.0.swap(REMOVED, Relaxed);
        if before != REMOVED {
            self.total.fetch_sub(before as i64, SeqCst);
            self.look();
        }
    }

    #[cold]
    fn count(&self, counted: &CountedBytes, bytes: usize) {
        let noted = counted.0.fetch_update(Relaxed, Relaxed, |before| {
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

    #[test]
    fn a_client_that_was_removed_counts_for_nothing_whoever_notes_it_later() {
        let all = ClientMemory::new();
        let counted = CountedBytes::new();
        all.note(&counted, 1000);
        assert_eq!((all.total_bytes(), counted.bytes()), (1000, 1000));
        all.remove(&counted);
        // A publisher that found it before, or its own task at the end of a turn.
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
                            // Less than nothing would be more than anything.
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
