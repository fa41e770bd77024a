//! Entries compared with a plain model.

use super::words::WORDS_MAX;
use super::*;
use crate::base::random::Random;

/// Returns bytes with lengths around all limits: short and long, and size classes.
fn bytes(draw: &mut Random) -> Vec<u8> {
    let len = match draw.below(4) {
        0 => draw.below(8),
        1 => draw.below(60),
        2 => 250 + draw.below(10),
        _ => draw.below(3000),
    };
    (0..len).map(|_| draw.next_u64() as u8).collect()
}

fn deadline(draw: &mut Random) -> Option<u64> {
    (draw.below(2) == 0).then(|| draw.next_u64() >> 16)
}

#[derive(Clone, PartialEq, Debug)]
enum Held {
    Integer(i64),
    Bytes(Vec<u8>),
    Block(Vec<u8>),
    Object(String),
}

#[derive(Clone, Debug)]
struct Model {
    kind: u8,
    flags: u8,
    key: Vec<u8>,
    deadline: Option<u64>,
    value: Held,
    words: Vec<u32>,
}

fn check(entry: &Entry<String>, model: &Model) {
    let view = entry.view();
    assert_eq!(view.kind(), model.kind);
    assert_eq!(view.flags(), model.flags);
    assert_eq!(view.key(), model.key);
    assert_eq!(view.deadline(), model.deadline);
    assert_eq!(view.has_words(), !model.words.is_empty());
    assert!(view.words().eq(model.words.iter().copied()));
    let value = match view.value() {
        Value::Integer(value) => Held::Integer(value),
        Value::Bytes(value) => Held::Bytes(value.to_vec()),
        Value::Block(value) => Held::Block(value.to_vec()),
        Value::Object(value) => Held::Object(value.clone()),
    };
    assert_eq!(value, model.value);
}

#[test]
fn any_sequence_of_changes_leaves_what_a_plain_record_would_hold() {
    for seed in 0..if cfg!(miri) { 4 } else { 40 } {
        let mut draw = Random::new(seed);
        let mut model = Model {
            kind: 3,
            flags: 0,
            key: bytes(&mut draw),
            deadline: deadline(&mut draw),
            value: Held::Bytes(b"first".to_vec()),
            words: Vec::new(),
        };
        let mut entry = Entry::bytes(3, &model.key, b"first", model.deadline);
        for _ in 0..if cfg!(miri) { 50 } else { 400 } {
            change(&mut draw, &mut entry, &mut model);
            if draw.below(10) == 0 {
                model.key = bytes(&mut draw);
                entry = entry.with_key(&model.key);
            }
            if draw.below(50) == 0 {
                entry = build(&model);
            }
            check(&entry, &model);
        }
    }
}

fn build(model: &Model) -> Entry<String> {
    let Model {
        kind,
        flags,
        key,
        deadline,
        value,
        words,
    } = model.clone();
    let mut entry = match value {
        Held::Integer(value) => Entry::integer(kind, &key, value, deadline),
        Held::Bytes(value) => Entry::bytes(kind, &key, &value, deadline),
        Held::Block(value) => Entry::block(kind, &key, SharedBlock::new(&value), deadline),
        Held::Object(value) => Entry::object(kind, &key, Box::new(value), deadline),
    };
    entry.set_flag(flags, true);
    entry.set_words(words.into_iter());
    entry
}

fn change(draw: &mut Random, entry: &mut Entry<String>, model: &mut Model) {
    match draw.below(13) {
        0 => {
            let value = bytes(draw);
            entry.set_bytes(&value);
            model.value = Held::Bytes(value);
        }
        1 => {
            let value = draw.next_u64() as i64;
            entry.set_integer(value);
            model.value = Held::Integer(value);
        }
        2 => {
            let value = bytes(draw);
            entry.set_block(SharedBlock::new(&value));
            model.value = Held::Block(value);
        }
        3 => {
            let value = draw.below(1000).to_string();
            entry.set_object(Box::new(value.clone()));
            model.value = Held::Object(value);
        }
        4 => {
            let len = draw.index(600);
            entry.resize_bytes(len);
            let mut value = match &model.value {
                Held::Bytes(value) => value.clone(),
                _ => Vec::new(),
            };
            value.resize(len, 0);
            model.value = Held::Bytes(value);
        }
        5 => {
            if let (Some(bytes), Held::Bytes(value)) = (entry.bytes_mut(), &mut model.value) {
                bytes.reverse();
                value.reverse();
            }
        }
        6 => {
            if let (Some(object), Held::Object(value)) = (entry.object_mut(), &mut model.value) {
                object.push('x');
                value.push('x');
            }
        }
        7 => {
            if let (Some(block), Held::Block(value)) = (entry.block_mut(), &mut model.value) {
                block.resize(77);
                value.resize(77, 0);
            }
        }
        8 => {
            model.deadline = deadline(draw);
            entry.set_deadline(model.deadline);
        }
        9 => {
            model.kind = draw.below(256) as u8;
            entry.set_kind(model.kind);
        }
        10 | 11 => {
            let count = [0, 0, 1, 2, 3, WORDS_MAX][draw.index(6)];
            model.words = (0..count).map(|_| draw.below(1 << 30) as u32).collect();
            entry.set_words(model.words.iter().copied());
        }
        _ => {
            let flag = 64 << draw.below(2);
            let on = draw.below(2) == 0;
            entry.set_flag(flag, on);
            model.flags = if on {
                model.flags | flag
            } else {
                model.flags & !flag
            };
        }
    }
}

#[test]
fn an_entry_takes_the_class_of_its_content_and_nothing_more() {
    let before = crate::alloc::account::thread_bytes();
    let entry: Entry<()> = Entry::bytes(0, &[b'k'; 16], &[b'v'; 12], None);
    assert_eq!(crate::alloc::account::thread_bytes() - before, 32);
    assert_eq!(entry.view().memory_bytes(), 32);
    let dated: Entry<()> = Entry::bytes(0, &[b'k'; 16], &[b'v'; 22], Some(1));
    assert_eq!(dated.view().memory_bytes(), 48);
    drop((entry, dated));
    assert_eq!(crate::alloc::account::thread_bytes(), before);
}

#[test]
fn a_value_of_the_same_class_is_written_in_place() {
    let mut entry: Entry<()> = Entry::bytes(0, b"key", &[1; 50], None);
    let address = entry.address;
    entry.set_bytes(&[2; 57]);
    assert_eq!(entry.address, address);
    entry.set_bytes(&[2; 58]);
    assert_eq!(entry.view().memory_bytes(), 80);
}

#[test]
fn objects_are_dropped_once_and_can_be_taken_out() {
    use std::sync::Arc;
    let counted = Arc::new(());
    let mut entry = Entry::object(0, b"key", Box::new(counted.clone()), None);
    assert_eq!(Arc::strong_count(&counted), 2);
    entry.set_object(Box::new(counted.clone()));
    assert_eq!(Arc::strong_count(&counted), 2);
    entry.set_integer(1);
    assert_eq!(Arc::strong_count(&counted), 1);
    entry.set_object(Box::new(counted.clone()));
    let object = entry.into_object().expect("it was just set");
    assert_eq!(Arc::strong_count(&counted), 2);
    drop(object);
    drop(Entry::object(0, b"key", Box::new(counted.clone()), Some(7)));
    assert_eq!(Arc::strong_count(&counted), 1);
    assert!(
        Entry::<()>::integer(0, b"key", 5, None)
            .into_object()
            .is_none()
    );
}

#[test]
fn a_deadline_beyond_the_field_is_kept_as_the_latest() {
    let entry: Entry<()> = Entry::integer(0, b"key", 5, Some(u64::MAX));
    assert_eq!(entry.view().deadline(), Some(DEADLINE_MAX));
}

#[cfg(not(feature = "system-allocator"))]
#[test]
fn a_block_that_is_replaced_is_no_longer_paid_for_though_others_hold_it() {
    use crate::alloc::account::charged_bytes;
    let before = charged_bytes();
    let mut entry: Entry<String> = Entry::block(1, b"key", SharedBlock::new(&[7; 20_000]), None);
    let shared = match entry.view().value() {
        Value::Block(block) => block.clone(),
        other => panic!("{other:?}"),
    };
    entry.set_bytes(b"short");
    let own = entry.view().memory_bytes() as i64;
    assert_eq!(charged_bytes() - before, own);
    drop(entry);
    assert_eq!(charged_bytes() - before, 0);
    assert_eq!(shared.len(), 20_000);
}
