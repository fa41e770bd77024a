//! The interface to a buffer of bytes that grows and shrinks anywhere. Packed structures are written against this
//! interface, so that they may be stored in a vector or inside an entry. Knows nothing of the meaning of the bytes.

/// Bytes in which a part can be replaced by one of another length.
pub trait Splice {
    /// Returns all bytes.
    fn bytes(&self) -> &[u8];

    /// Returns all bytes, for overwriting.
    fn bytes_mut(&mut self) -> &mut [u8];

    /// Removes `removed` bytes at `at`, inserts `inserted` bytes there, and returns the inserted ones. Their contents
    /// are unspecified; the caller must write them all.
    ///
    /// # Panics
    /// Panics if fewer than `removed` bytes follow `at`.
    fn splice(&mut self, at: usize, removed: usize, inserted: usize) -> &mut [u8];
}

impl Splice for Vec<u8> {
    #[inline]
    fn bytes(&self) -> &[u8] {
        self
    }

    #[inline]
    fn bytes_mut(&mut self) -> &mut [u8] {
        self
    }

    fn splice(&mut self, at: usize, removed: usize, inserted: usize) -> &mut [u8] {
        let len = self.len();
        let tail = at..len;
        assert!(removed <= tail.len(), "the removed bytes are there");
        if inserted > removed {
            // `resize` at least doubles the capacity, so that many small insertions stay cheap.
            self.resize(len + (inserted - removed), 0);
        }
        if inserted != removed {
            self.copy_within(at + removed..len, at + inserted);
        }
        self.truncate(len - removed + inserted);
        &mut self[at..at + inserted]
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(if cfg!(miri) { 4 } else { 256 }))]

        #[test]
        fn a_vector_spliced_holds_what_the_std_splice_gives(
            start in prop::collection::vec(any::<u8>(), 0..600),
            changes in prop::collection::vec(
                (any::<usize>(), any::<usize>(), prop::collection::vec(any::<u8>(), 0..300)),
                0..20,
            ),
        ) {
            let (mut ours, mut model) = (start.clone(), start);
            for (at, removed, inserted) in changes {
                let at = at % (model.len() + 1);
                let removed = removed % (model.len() - at + 1);
                Splice::splice(&mut ours, at, removed, inserted.len()).copy_from_slice(&inserted);
                model.splice(at..at + removed, inserted);
                prop_assert_eq!(&ours, &model);
                prop_assert_eq!(Splice::bytes(&ours), &model[..]);
            }
        }
    }

    #[test]
    #[should_panic(expected = "the removed bytes are there")]
    fn removing_more_than_there_is_is_refused() {
        Splice::splice(&mut vec![1, 2, 3], 2, 2, 0);
    }
}
