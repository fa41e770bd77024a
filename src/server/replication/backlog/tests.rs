//! Tests of `backlog`.

use bytes::{BufMut, BytesMut};

use super::*;
use basalt_core::alloc::account::thread_bytes;

fn text(cursor: &Cursor) -> String {
    let pieces = cursor.peek(1 << 20).expect("the stream goes on");
    String::from_utf8(pieces.concat()).expect("text")
}

fn push(backlog: &Backlog, items: &[OpLogItem], position: u64) {
    backlog.push(&mut items.iter().cloned(), position);
}

fn bytes(text: &'static str) -> OpLogItem {
    OpLogItem::alone(Bytes::from_static(text.as_bytes()))
}

#[test]
fn what_it_takes_is_told_to_the_byte_however_pieces_share_blocks() {
    const BLOCKS: u64 = 300;
    let told = Arc::default();
    let backlog = Arc::new(Backlog::telling(&told));
    let mark = backlog.feed_from(Box::new(|_| ()));
    push(&backlog, &[OpLogItem::Mark(mark, 1)], 1);
    let mut cursor = backlog.cursor(1).expect("the end");
    let before = thread_bytes();
    let check = |what: &str| {
        // The list of pieces has no capacity yet if nothing was appended.
        assert_eq!(told.load(Relaxed), thread_bytes() - before, "{what}");
    };
    for number in 1..=BLOCKS {
        let mut block = BytesMut::with_capacity(10 << 10);
        let home = Home {
            block: NonZeroU64::new(number),
            bytes: (10 << 10) + 48,
        };
        for piece in 0..=number % 4 {
            block.put_slice(&[b'x'; 700]);
            let bytes = block.split().freeze();
            // Sometimes also add data in blocks of their own, like long arguments.
            let mut items = vec![OpLogItem::Bytes(bytes, home)];
            if (number + piece) % 3 == 0 {
                block.put_slice(b"for others");
                drop(block.split());
                items.push(OpLogItem::alone(Bytes::from(vec![b'y'; 5 << 10])));
            }
            backlog.push(&mut items.into_iter(), number + 1);
        }
        drop(block);
        check("it grows");
    }
    while backlog.end() >= cursor.next() {
        cursor.advance(900.min(cursor.behind_bytes()));
        check("it shrinks");
    }
    assert_eq!(backlog.figures().held_bytes, 0);
}

#[test]
fn nothing_is_left_of_what_was_kept_for_somebody_slow() {
    let beyond_bytes = Arc::default();
    let backlog = Arc::new(Backlog::telling(&beyond_bytes));
    backlog.set_size(1000);
    backlog.keep(true);
    let mut slow = backlog.cursor(1).expect("it is there");
    for _ in 0..100_000 {
        backlog.append(Bytes::from_static(b"x"));
    }
    assert!(beyond_bytes.load(Relaxed) > 1_000_000);
    slow.advance(100_000);
    let list_bytes = beyond_bytes.load(Relaxed);
    assert!(list_bytes < 200_000, "{list_bytes}");
}

#[test]
fn what_cursors_have_not_read_is_kept_and_beyond_that_the_size() {
    let backlog = Arc::new(Backlog::default());
    backlog.set_size(4);
    backlog.append(Bytes::from_static(b"lost"));
    assert_eq!((backlog.end(), backlog.figures().held_bytes), (4, 0));
    assert!(backlog.cursor(1).is_none() && backlog.cursor(5).is_none());
    backlog.keep(true);
    let mut cursor = backlog.cursor(5).expect("the end");
    assert!(backlog.cursor(6).is_none());
    for piece in ["abc", "def", "ghi"] {
        backlog.append(Bytes::from_static(piece.as_bytes()));
    }
    assert_eq!(text(&cursor), "abcdefghi");
    assert_eq!(cursor.peek(4).expect("there")[1], "d");
    cursor.advance(4);
    assert_eq!((cursor.next(), text(&cursor)), (9, "efghi".to_owned()));
    assert_eq!(backlog.figures().first, 8);
    assert!(backlog.cursor(7).is_none());
    cursor.advance(5);
    assert_eq!((text(&cursor).as_str(), cursor.behind_bytes()), ("", 0));
    assert_eq!(backlog.figures().held_bytes, 6);
    drop(cursor);
    backlog.reset(70);
    assert_eq!((backlog.end(), backlog.figures().first), (70, 71));
}

#[test]
fn what_is_behind_the_first_mark_is_kept_even_if_it_comes_along() {
    let backlog = Arc::new(Backlog::default());
    backlog.set_size(1);
    let cursor = Arc::new(Mutex::new(None));
    let (found, from) = (Arc::clone(&cursor), Arc::clone(&backlog));
    let mark = backlog.feed_from(Box::new(move |offset| {
        *found.lock() = from.cursor(offset + 1)
    }));
    let items = [
        bytes("x"),
        OpLogItem::Mark(mark, 10),
        bytes("one"),
        bytes("two"),
    ];
    push(&backlog, &items, 20);
    let cursor = cursor.lock().take().expect("all behind the mark is there");
    assert_eq!(text(&cursor), "onetwo");
    let until = backlog.feed_until(false, Box::new(|_| ()));
    let again = backlog.feed_from(Box::new(|_| ()));
    let items = [
        OpLogItem::Mark(until, 30),
        bytes("y"),
        OpLogItem::Mark(again, 40),
        bytes("z"),
    ];
    push(&backlog, &items, 40);
    let figures = backlog.figures();
    assert!(figures.is_active && figures.end == 7 && figures.held_bytes == 1);
}

#[test]
fn the_log_feeds_it_between_two_marks() {
    let backlog = Arc::new(Backlog::default());
    backlog.keep(true);
    backlog.set_size(100);
    let found = Arc::new(Mutex::new(Vec::new()));
    assert_eq!(backlog.offset_before(5), None);
    let at_mark = |name: &'static str| -> AtMark {
        let found = Arc::clone(&found);
        Box::new(move |offset| found.lock().push((name, offset)))
    };
    push(&backlog, &[bytes("before")], 10);
    let from = backlog.feed_from(at_mark("from"));
    let cut = backlog.expect_mark(at_mark("cut"));
    let until = backlog.feed_until(true, at_mark("until"));
    let items = [
        bytes("x"),
        OpLogItem::Mark(from, 20),
        bytes("one"),
        OpLogItem::Mark(cut, 30),
    ];
    push(&backlog, &items, 30);
    push(
        &backlog,
        &[bytes("two"), OpLogItem::Mark(until, 40), bytes("y")],
        50,
    );
    assert_eq!(*found.lock(), [("from", 0), ("cut", 3), ("until", 6)]);
    assert_eq!((backlog.taken.passed(), backlog.end()), (50, 6));
    let offsets = [5, 10, 11, 30, 50, 51].map(|position| backlog.offset_before(position));
    assert_eq!(offsets, [Some(0), Some(0), Some(3), Some(3), Some(6), None]);
    let cursor = backlog.cursor(1).expect("all is held");
    assert_eq!(text(&cursor), "onetwo");
    let mut cx = Context::from_waker(std::task::Waker::noop());
    let end = backlog.cursor(7).expect("the end");
    assert!(end.poll_readable(&mut cx).is_pending());
    backlog.reset(3);
    assert!(end.poll_readable(&mut cx).is_ready() && end.peek(10).is_none());
    assert!(cursor.peek(10).is_none());
}
