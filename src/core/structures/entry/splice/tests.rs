//! Splicing the value of an entry compared with splicing a vector.

use proptest::prelude::*;

use super::*;

type Bytes = Entry<String>;

/// Generates bytes with lengths around both important limits: lengths stored separately, and size classes.
fn piece() -> impl Strategy<Value = Vec<u8>> {
    prop_oneof![
        3 => prop::collection::vec(any::<u8>(), 0..12),
        2 => prop::collection::vec(any::<u8>(), 0..120),
        1 => prop::collection::vec(any::<u8>(), 200..900),
    ]
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(if cfg!(miri) { 2 } else { 256 }))]

    #[test]
    fn a_spliced_entry_holds_what_a_spliced_vector_does(
        key in prop_oneof![
            prop::collection::vec(any::<u8>(), 0..40),
            prop::collection::vec(any::<u8>(), 250..260),
        ],
        deadline in prop::option::of(0_u64..1 << 48),
        start in piece(),
        changes in prop::collection::vec((any::<usize>(), any::<usize>(), piece()), 0..if cfg!(miri) { 8 } else { 40 }),
    ) {
        let mut entry = Bytes::bytes(7, &key, &start, deadline);
        let mut model = start;
        for (at, removed, inserted) in changes {
            let at = at % (model.len() + 1);
            let removed = removed % (model.len() - at + 1);
            let room = Splice::splice(&mut entry, at, removed, inserted.len());
            room.copy_from_slice(&inserted);
            model.splice(at..at + removed, inserted);
            prop_assert_eq!(Splice::bytes(&entry), &model[..]);
            prop_assert_eq!(entry.view().key(), &key[..]);
            prop_assert_eq!(entry.view().kind(), 7);
            prop_assert_eq!(entry.view().deadline(), deadline);
            let fresh = Bytes::bytes(7, &key, &model, deadline);
            prop_assert_eq!(entry.view().memory_bytes(), fresh.view().memory_bytes());
        }
    }
}

#[test]
fn growing_within_the_size_class_does_not_reallocate() {
    let mut entry = Bytes::bytes(0, b"key", &[1; 300], None);
    let class = entry.view().memory_bytes();
    let address = entry.address;
    // What remains for the value: the class less a header of 4 bytes, the key, and a long length.
    let most = class - 4 - 3 - 4;
    while Splice::bytes(&entry).len() < most {
        Splice::splice(&mut entry, 0, 0, 1)[0] = 2;
        assert_eq!(entry.address, address);
    }
    Splice::splice(&mut entry, 0, 0, 1)[0] = 2;
    assert!(entry.view().memory_bytes() > class);
}

#[test]
fn an_entry_that_is_not_bytes_has_none() {
    let mut entry = Bytes::integer(0, b"key", 5, None);
    assert!(Splice::bytes(&entry).is_empty());
    assert!(Splice::bytes_mut(&mut entry).is_empty());
}

#[test]
#[should_panic(expected = "the removed bytes are there")]
fn removing_more_than_there_is_is_refused() {
    Splice::splice(&mut Bytes::bytes(0, b"key", b"abc", None), 1, 3, 0);
}
