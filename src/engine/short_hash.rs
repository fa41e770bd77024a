//! Short hashes: the half of a key's hash by which its table finds it, for indexes that have to remember many keys.
//!
//! ```text
//! hash    63 ······ 48 | 47 ······ 16 | 15 ······ 0
//! short   31 ······ 16 |   left out   | 15 ······ 0
//! ```
//!
//! A table uses the highest bits of a hash, which select the segment, and the lowest, which are stored with each
//! entry. A table of more than 2^16 segments, which is some twenty million keys in one shard, is searched at each of
//! the few positions that a short hash may mean. Two keys may share a short hash, so the key that is found has to be
//! compared.

/// The bits of a hash that a short hash keeps.
pub(super) const KNOWN: u64 = !0 << TOP | LOW;
const TOP: u32 = 48;
const LOW: u64 = 0xffff;
const LOW_BITS: u32 = 16;

const _: () = assert!(
    u32::BITS == KNOWN.count_ones(),
    "a word has the bits that are kept"
);

/// Returns the short hash (32 bits) of a hash.
pub(super) fn shorten(hash: u64) -> u32 {
    (hash >> TOP << LOW_BITS | hash & LOW) as u32
}

/// Expands a short hash: returns the bits that it keeps at their positions in the hash; the others are zero.
pub(super) fn known(short: u32) -> u64 {
    let short = u64::from(short);
    short >> LOW_BITS << TOP | short & LOW
}

/// Returns hashes that share the known bits, one for each position in a table that uses `depth` of the highest
/// bits.
pub(super) fn places(known: u64, depth: u32) -> impl Iterator<Item = u64> {
    let missing = depth.saturating_sub(u64::BITS - TOP);
    (0..1 << missing).map(move |rest: u64| known | rest << (TOP - missing))
}

/// True if a hash is one of those that `place` stands for, which [`places`] returned for a table of this depth.
pub(super) fn is_at(hash: u64, place: u64, depth: u32) -> bool {
    let named = u64::MAX.unbounded_shl(u64::BITS - depth);
    (hash ^ place) & (KNOWN | named) == 0
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_short_hash_is_looked_for_wherever_a_table_may_have_it() {
        let hash = 0xabcd_1234_5678_9abc;
        let known = known(shorten(hash));
        assert_eq!(known, 0xabcd_0000_0000_9abc);
        for depth in [0, 1, 16, 17, 20, 26] {
            let top = |hash: u64| hash.checked_shr(64 - depth).unwrap_or(0);
            let places: Vec<u64> = places(known, depth).collect();
            assert_eq!(places.len(), 1 << depth.saturating_sub(16));
            assert!(places.iter().all(|at| at & KNOWN == known));
            let right = places.iter().filter(|&&at| top(at) == top(hash));
            assert_eq!(
                right.count(),
                1,
                "one place of depth {depth} is the right one"
            );
            let meant = places.iter().filter(|&&at| is_at(hash, at, depth));
            assert_eq!(meant.count(), 1, "and is known to be");
            // Bits that neither the table nor the short hash uses make no difference, all others do.
            let at = places.iter().find(|&&at| is_at(hash, at, depth));
            let at = *at.expect("there is one");
            for bit in 0..64 {
                let is_free = (16..48.min(64 - depth)).contains(&bit);
                assert_eq!(is_at(hash ^ 1 << bit, at, depth), is_free, "{bit}");
            }
        }
    }
}
