//! Listpacks compared with a vector of texts, with bytes that redis-server wrote, and tested on garbage.

use proptest::prelude::*;

use super::*;
use crate::structures::entry::Entry;
use crate::structures::splice::Splice;

/// `RPUSH l '' hello 0 127 128 -1 … 1.5 xxx… yyy… zzz…` as redis-server 7.0.15 dumps it, without the frame: every
/// encoding but the widest of bytes, at its borders.
const RECORDED_TEXTS: &[&str] = &[
    "",
    "hello",
    "0",
    "127",
    "128",
    "-1",
    "4095",
    "-4096",
    "4096",
    "-4097",
    "32767",
    "-32768",
    "32768",
    "-32769",
    "8388607",
    "-8388608",
    "8388608",
    "2147483647",
    "-2147483648",
    "2147483648",
    "9223372036854775807",
    "-9223372036854775808",
    "9223372036854775808",
    "007",
    "-0",
    "+1",
    "1.5",
];

fn recorded_bytes() -> Vec<u8> {
    let mut bytes = b"\xa5\x01\x00\x00\x1e\x00\x80\x01\x85hello\x06\x00\x01\x7f\x01\xc0\x80\x02\xdf\xff\
        \x02\xcf\xff\x02\xd0\x00\x02\xf1\x00\x10\x03\xf1\xff\xef\x03\xf1\xff\x7f\x03\xf1\x00\x80\x03\
        \xf2\x00\x80\x00\x04\xf2\xff\x7f\xff\x04\xf2\xff\xff\x7f\x04\xf2\x00\x00\x80\x04\xf3\x00\x00\x80\
        \x00\x05\xf3\xff\xff\xff\x7f\x05\xf3\x00\x00\x00\x80\x05\xf4\x00\x00\x00\x80\x00\x00\x00\x00\t\
        \xf4\xff\xff\xff\xff\xff\xff\xff\x7f\t\xf4\x00\x00\x00\x00\x00\x00\x00\x80\t\
        \x939223372036854775808\x14\x83007\x04\x82-0\x03\x82+1\x03\x831.5\x04"
        .to_vec();
    for (head, byte, count, back) in [
        (&b"\xbf"[..], b'x', 63, &b"\x40"[..]),
        (b"\xe0\x40", b'y', 64, b"\x42"),
        (b"\xe0\x82", b'z', 130, b"\x01\x84"),
    ] {
        bytes.extend_from_slice(head);
        bytes.resize(bytes.len() + count, byte);
        bytes.extend_from_slice(back);
    }
    bytes.push(0xFF);
    bytes
}

fn recorded_texts() -> Vec<Vec<u8>> {
    let short = RECORDED_TEXTS.iter().map(|text| text.as_bytes().to_vec());
    let long = [(b'x', 63), (b'y', 64), (b'z', 130)];
    short
        .chain(long.map(|(byte, count)| vec![byte; count]))
        .collect()
}

/// Checks all queries against the expected texts.
fn check(bytes: &[u8], model: &[Vec<u8>]) {
    let pack = Listpack::check(bytes).expect("a pack in every detail");
    assert_eq!(pack.len(), model.len());
    assert_eq!(pack.is_empty(), model.is_empty());
    assert!(pack.iter().map(Element::to_vec).eq(model.iter().cloned()));
    let backwards = pack.iter().rev().map(Element::to_vec);
    assert!(backwards.eq(model.iter().rev().cloned()));
    let places: Vec<At> = pack.places().map(|(at, _)| at).collect();
    assert!(places.is_sorted());
    assert_eq!(pack.first(), places.first().copied());
    assert_eq!(pack.last(), places.last().copied());
    for (index, &place) in places.iter().enumerate() {
        let element = pack.get(place);
        assert!(element.is(&model[index]));
        assert_eq!(element.len(), model[index].len());
        assert_eq!(element.is_empty(), model[index].is_empty());
        assert_eq!(element, Element::of(&model[index]));
        assert_eq!(element.integer(), number::parse_i64(&model[index]));
        assert_eq!(pack.next(place), places.get(index + 1).copied());
        let before = index.checked_sub(1).map(|before| places[before]);
        assert_eq!(pack.prev(place), before);
        assert_eq!(pack.nth(index as isize), Some(place));
        let from_end = index as isize - model.len() as isize;
        assert_eq!(pack.nth(from_end), Some(place));
    }
    for beyond in [model.len() as isize, isize::MAX, isize::MIN] {
        assert_eq!(pack.nth(beyond), None);
    }
    assert_eq!(pack.nth(-(model.len() as isize) - 1), None);
    let elements: usize = model.iter().map(|text| encoded_len(text)).sum();
    assert_eq!(bytes.len(), EMPTY.len() + elements);
}

#[test]
fn an_empty_pack_is_empty() {
    check(&EMPTY, &[]);
    assert_eq!(Listpack::new(&EMPTY).find(b"", 1), None);
}

#[test]
fn texts_become_the_bytes_that_redis_writes() {
    let mut bytes = EMPTY.to_vec();
    for text in recorded_texts() {
        ListpackMut::new(&mut bytes).push_back(&text);
    }
    assert_eq!(bytes, recorded_bytes());
    check(&bytes, &recorded_texts());
}

#[test]
fn long_texts_become_the_bytes_that_redis_writes() {
    // Sizes of 5005, 17005, 16383 and 16382: the back length takes two or three bytes.
    let mut expected = b"\x0c\xd6\x00\x00\x06\x00".to_vec();
    let mut bytes = EMPTY.to_vec();
    for (head, byte, count, back) in [
        (&b"\xf0\x88\x13\x00\x00"[..], b'q', 5000, &b"\x27\x8d"[..]),
        (b"\xf0\x68\x42\x00\x00", b'w', 17000, b"\x01\x84\xed"),
        (b"\xf0\xfa\x3f\x00\x00", b'e', 16378, b"\x00\xff\xff"),
        (b"\x01", b'-', 0, b"\x01"),
        (b"\xf0\xf9\x3f\x00\x00", b'r', 16377, b"\x7f\xfe"),
        (b"\x02", b'-', 0, b"\x01"),
    ] {
        expected.extend_from_slice(head);
        expected.resize(expected.len() + count, byte);
        expected.extend_from_slice(back);
        let text = match head {
            [number] => vec![b'0' + number],
            _ => vec![byte; count],
        };
        ListpackMut::new(&mut bytes).push_back(&text);
    }
    expected.push(0xFF);
    assert_eq!(bytes, expected);
    let pack = Listpack::check(&bytes).expect("a pack");
    assert_eq!(pack.iter().rev().count(), 6);
}

#[test]
fn a_number_kept_as_text_or_too_wide_is_still_found() {
    // Encodings that this server does not write but that are valid: 5 as 64 bits, and the text 12.
    let bytes = b"\x15\0\0\0\x02\0\xf4\x05\0\0\0\0\0\0\0\x09\x8212\x03\xff";
    let pack = Listpack::check(bytes).expect("a pack");
    assert_eq!(pack.find(b"5", 1), pack.first());
    assert_eq!(pack.find(b"12", 1), pack.last());
    assert_eq!(pack.iter().next_back().and_then(Element::integer), Some(12));
}

#[test]
fn finding_looks_only_at_every_step() {
    let mut bytes = EMPTY.to_vec();
    for text in ["a", "b", "b", "7", "7", "a"] {
        ListpackMut::new(&mut bytes).push_back(text.as_bytes());
    }
    let pack = Listpack::new(&bytes);
    let find = |text: &str, step| pack.find(text.as_bytes(), step);
    assert_eq!(find("b", 1), pack.nth(1));
    assert_eq!(find("b", 2), pack.nth(2));
    assert_eq!(find("7", 2), pack.nth(4));
    assert_eq!(find("7", 3), pack.nth(3));
    assert_eq!(find("a", 9), pack.nth(0));
    assert_eq!(find("a", 0), pack.nth(0));
    assert_eq!(find("a", usize::MAX), pack.nth(0));
    assert_eq!(find("07", 1), None);
}

#[test]
fn from_65535_elements_on_the_count_is_unknown_and_len_still_right() {
    // Miri would take an hour for so many elements of safe code.
    if cfg!(miri) {
        return;
    }
    let mut bytes = EMPTY.to_vec();
    let mut pack = ListpackMut::new(&mut bytes);
    pack.push_back_all((0..65_533).map(|_| Element::Integer(1)));
    pack.push_back(b"2");
    assert_eq!(pack.as_listpack().known_len(), Some(65_534));
    pack.push_front(b"0");
    assert_eq!(pack.as_listpack().known_len(), None);
    assert_eq!(pack.as_listpack().len(), 65_535);
    let last = pack.as_listpack().last();
    assert_eq!(pack.as_listpack().nth(65_534), last);
    assert_eq!(pack.as_listpack().nth(65_535), None);
    pack.remove_range(last.expect("there is one"), 1);
    assert_eq!(pack.as_listpack().len(), 65_534);
    assert!(Listpack::check(&bytes).is_some());

    const MANY: i64 = 200_000;
    let mut many = EMPTY.to_vec();
    ListpackMut::new(&mut many).push_back_all((0..MANY).map(Element::Integer));
    assert_eq!(
        Listpack::check(&many).map(Listpack::len),
        Some(MANY as usize)
    );
    ListpackMut::new(&mut many).clear();
    assert_eq!(many, EMPTY);
}

#[test]
fn a_pack_says_when_it_is_full() {
    let pack = Listpack::new(&EMPTY);
    assert!(pack.fits(BYTES_MAX - 7));
    assert!(!pack.fits(BYTES_MAX - 6));
    assert!(!pack.fits(usize::MAX));
}

#[test]
fn changed_bytes_are_refused_wherever_they_break_the_format() {
    let good = recorded_bytes();
    for index in 0..good.len() {
        for changed in (0..=255).step_by(if cfg!(miri) { 85 } else { 1 }) {
            let mut bytes = good.clone();
            bytes[index] = changed;
            // Every listpack that is accepted can be walked both ways and has a correct count.
            if let Some(pack) = Listpack::check(&bytes) {
                assert_eq!(pack.iter().count(), pack.len());
                assert_eq!(pack.iter().rev().count(), pack.len());
            }
        }
        assert!(Listpack::check(&good[..index]).is_none());
    }
    let mut longer = good.clone();
    longer.push(0xFF);
    assert!(Listpack::check(&longer).is_none());
}

#[test]
fn each_part_of_the_format_is_checked() {
    for (bytes, why) in [
        (&b"\x07\0\0\0\0\0"[..], "no end"),
        (b"\x06\0\0\0\0\0\xff", "a wrong total"),
        (b"\x07\0\0\0\0\0\xfe", "another end"),
        (b"\x07\0\0\0\x01\0\xff", "a count too high"),
        (b"\x09\0\0\0\0\0\x05\x01\xff", "a count too low"),
        (b"\x09\0\0\0\x01\0\x05\x02\xff", "a wrong back length"),
        (b"\x08\0\0\0\x01\0\x05\xff", "no back length"),
        (b"\x09\0\0\0\x01\0\xf5\x01\xff", "an unknown encoding"),
        (b"\x09\0\0\0\x01\0\x85\x01\xff", "bytes beyond the end"),
        (b"\x09\0\0\0\x01\0\xff\x01\xff", "an end too early"),
        (
            b"\x0e\0\0\0\x01\0\xf0\xff\xff\xff\xff\0\x05\xff",
            "a length of 4 GiB",
        ),
    ] {
        assert!(Listpack::check(bytes).is_none(), "{why} was accepted");
    }
    assert!(Listpack::check(b"\x09\0\0\0\xff\xff\x05\x01\xff").is_some());
}

#[test]
#[should_panic(expected = "no element begins here")]
fn a_place_behind_the_last_element_is_a_bug() {
    let _ = Listpack::new(&EMPTY).get(At(6));
}

/// Generates texts at the limits of every encoding.
fn text() -> impl Strategy<Value = Vec<u8>> {
    let near = |power: u32| {
        (-2_i128..=2, any::<bool>()).prop_map(move |(offset, negative)| {
            let value = (1_i128 << power) + offset;
            if negative { -value } else { value }
                .to_string()
                .into_bytes()
        })
    };
    prop_oneof![
        4 => prop::collection::vec(any::<u8>(), 0..6),
        3 => any::<i16>().prop_map(|value| value.to_string().into_bytes()),
        3 => prop::sample::select(vec![0_u32, 7, 12, 15, 23, 31, 63]).prop_flat_map(near),
        2 => (60_usize..68, any::<u8>()).prop_map(|(len, byte)| vec![byte; len]),
        2 => (120_usize..132, any::<u8>()).prop_map(|(len, byte)| vec![byte; len]),
        1 => (4090_usize..4100, any::<u8>()).prop_map(|(len, byte)| vec![byte; len]),
        1 => (16370_usize..16390, any::<u8>()).prop_map(|(len, byte)| vec![byte; len]),
    ]
}

#[derive(Clone, Debug)]
enum Change {
    PushBack(Vec<u8>),
    PushFront(Vec<u8>),
    PushAll(Vec<Vec<u8>>),
    PushPack(Vec<Vec<u8>>),
    InsertBefore(usize, Vec<u8>),
    InsertAfter(usize, Vec<u8>),
    Replace(usize, Vec<u8>),
    Remove(usize),
    RemoveRange(usize, usize),
}

fn change() -> impl Strategy<Value = Change> {
    let index = any::<usize>;
    prop_oneof![
        text().prop_map(Change::PushBack),
        text().prop_map(Change::PushFront),
        prop::collection::vec(text(), 0..5).prop_map(Change::PushAll),
        prop::collection::vec(text(), 0..5).prop_map(Change::PushPack),
        (index(), text()).prop_map(|(index, text)| Change::InsertBefore(index, text)),
        (index(), text()).prop_map(|(index, text)| Change::InsertAfter(index, text)),
        (index(), text()).prop_map(|(index, text)| Change::Replace(index, text)),
        index().prop_map(Change::Remove),
        (index(), 0_usize..6).prop_map(|(index, count)| Change::RemoveRange(index, count)),
    ]
}

fn packed(texts: &[Vec<u8>]) -> Vec<u8> {
    let mut bytes = EMPTY.to_vec();
    for text in texts {
        ListpackMut::new(&mut bytes).push_back(text);
    }
    bytes
}

fn apply<B: Splice>(pack: &mut ListpackMut<'_, B>, model: &mut Vec<Vec<u8>>, change: Change) {
    let spot = |index: usize, model: &[Vec<u8>]| index.checked_rem(model.len());
    let place = |pack: &ListpackMut<'_, B>, index: usize| {
        let place = pack.as_listpack().nth(index as isize);
        place.expect("within the model")
    };
    match change {
        Change::PushBack(text) => {
            pack.push_back(&text);
            model.push(text);
        }
        Change::PushFront(text) => {
            pack.push_front(&text);
            model.insert(0, text);
        }
        Change::PushAll(texts) => {
            pack.push_back_all(texts.iter().map(|text| Element::of(text)));
            model.extend(texts);
        }
        Change::PushPack(texts) => {
            pack.push_back_pack(Listpack::new(&packed(&texts)));
            model.extend(texts);
        }
        Change::InsertBefore(index, text) => {
            let Some(index) = spot(index, model) else {
                return;
            };
            let at = pack.insert_before(place(pack, index), &text);
            assert!(pack.as_listpack().get(at).is(&text));
            model.insert(index, text);
        }
        Change::InsertAfter(index, text) => {
            let Some(index) = spot(index, model) else {
                return;
            };
            let at = pack.insert_after(place(pack, index), &text);
            assert!(pack.as_listpack().get(at).is(&text));
            model.insert(index + 1, text);
        }
        Change::Replace(index, text) => {
            let Some(index) = spot(index, model) else {
                return;
            };
            let at = pack.replace(place(pack, index), &text);
            assert!(pack.as_listpack().get(at).is(&text));
            model[index] = text;
        }
        Change::Remove(index) => {
            let Some(index) = spot(index, model) else {
                return;
            };
            let next = pack.remove(place(pack, index));
            model.remove(index);
            assert_eq!(next, pack.as_listpack().nth(index as isize));
        }
        Change::RemoveRange(index, count) => {
            let Some(index) = spot(index, model) else {
                return;
            };
            let next = pack.remove_range(place(pack, index), count);
            model.drain(index..(index + count).min(model.len()));
            assert_eq!(next, pack.as_listpack().nth(index as isize));
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(if cfg!(miri) { 2 } else { 128 }))]

    #[test]
    fn any_sequence_of_changes_leaves_what_a_vector_would_hold(
        changes in prop::collection::vec(change(), 0..if cfg!(miri) { 10 } else { 40 }),
        wanted in prop::collection::vec(text(), 3),
        step in 1_usize..4,
    ) {
        let mut bytes = EMPTY.to_vec();
        let mut entry = Entry::<()>::bytes(1, b"key", &EMPTY, None);
        let (mut model, mut entry_model) = (Vec::new(), Vec::new());
        for change in changes {
            apply(&mut ListpackMut::new(&mut entry), &mut entry_model, change.clone());
            apply(&mut ListpackMut::new(&mut bytes), &mut model, change);
            check(&bytes, &model);
            prop_assert_eq!(Splice::bytes(&entry), &bytes[..]);
        }
        let pack = Listpack::new(&bytes);
        for text in wanted.iter().chain(&model) {
            let index = model.iter().step_by(step).position(|other| other == text);
            let expected = index.and_then(|index| pack.nth((index * step) as isize));
            prop_assert_eq!(pack.find(text, step), expected);
        }
    }

    #[test]
    fn a_text_comes_back_as_it_was(text in text()) {
        let element = Element::of(&text);
        prop_assert_eq!(element.to_vec(), text.clone());
        prop_assert_eq!(element.len(), text.len());
        prop_assert_eq!(element.encoded_len(), encoded_len(&text));
    }

    #[test]
    fn garbage_is_refused_or_can_be_walked(
        body in prop::collection::vec(any::<u8>(), 0..60),
        count in 0_u16..4,
    ) {
        let mut bytes = vec![(body.len() + 7) as u8, 0, 0, 0];
        bytes.extend_from_slice(&count.to_le_bytes());
        bytes.extend_from_slice(&body);
        bytes.push(0xFF);
        if let Some(pack) = Listpack::check(&bytes) {
            prop_assert_eq!(pack.iter().rev().count(), usize::from(count));
        }
        prop_assert!(Listpack::check(&body).is_none_or(|pack| pack.iter().count() == pack.len()));
    }
}
