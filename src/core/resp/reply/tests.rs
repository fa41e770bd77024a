//! Tests of every kind of reply in both protocols, of lengths known afterwards, blocks, and sending in pieces.

use proptest::prelude::*;
use redis_protocol::resp2::decode::decode as decode_resp2;
use redis_protocol::resp3::decode::complete::decode as decode_resp3;

use super::*;

/// Returns the unsent bytes, through the slices that a socket would get.
fn sent(out: &Out) -> Vec<u8> {
    let mut slices = Vec::with_capacity(64);
    out.io_slices(&mut slices);
    let bytes: Vec<u8> = slices
        .iter()
        .flat_map(|slice| slice.iter().copied())
        .collect();
    assert_eq!(bytes.len(), out.len_bytes());
    assert!(slices.iter().all(|slice| !slice.is_empty()));
    bytes
}

fn written(protocol: Protocol, write: impl FnOnce(&mut Out)) -> String {
    let mut out = Out::new(protocol);
    write(&mut out);
    String::from_utf8(sent(&out)).expect("text")
}

/// Checks a reply in RESP2 and in RESP3.
fn check(resp2: &str, resp3: &str, write: impl Fn(&mut Out)) {
    assert_eq!(written(Protocol::Resp2, &write), resp2);
    assert_eq!(written(Protocol::Resp3, &write), resp3);
}

fn check_both(expected: &str, write: impl Fn(&mut Out)) {
    check(expected, expected, write);
}

#[test]
fn single_values_are_written_as_redis_does() {
    check_both("+OK\r\n", Out::ok);
    check_both("+QUEUED\r\n", |out| out.simple("QUEUED"));
    check_both("-ERR no such key\r\n", |out| out.error("ERR no such key"));
    check_both("-ERR got 'a  b'\r\n", |out| {
        out.error("ERR got 'a\r\nb'\r\n")
    });
    check_both("$0\r\n\r\n", |out| out.bulk(b""));
    check_both("$3\r\nfoo\r\n", |out| out.bulk(b"foo"));
    check_both("$12\r\nabcdefghijkl\r\n", |out| out.bulk(b"abcdefghijkl"));
    check_both("$4\r\n-123\r\n", |out| out.bulk_integer(-123));
    check("$-1\r\n", "_\r\n", Out::null);
    check("*-1\r\n", "_\r\n", Out::null_array);
    check(":1\r\n", "#t\r\n", |out| out.boolean(true));
    check(":0\r\n", "#f\r\n", |out| out.boolean(false));
    check("$3\r\n1.5\r\n", ",1.5\r\n", |out| out.double(1.5));
    check("$1\r\n3\r\n", ",3\r\n", |out| out.double(3.0));
    check("$4\r\n-inf\r\n", ",-inf\r\n", |out| {
        out.double(f64::NEG_INFINITY)
    });
    check("$4\r\n1.50\r\n", ",1.50\r\n", |out| {
        out.double_text(b"1.50")
    });
    check("$3\r\n123\r\n", "(123\r\n", |out| out.big_number("123"));
    check("$2\r\nhi\r\n", "=6\r\ntxt:hi\r\n", |out| {
        out.verbatim("txt", "hi")
    });
}

#[test]
fn integers_of_every_length_are_written() {
    for value in [
        0,
        1,
        9,
        10,
        42,
        99,
        100,
        907,
        999,
        1000,
        9876,
        9999,
        10_000,
        -1,
        -10,
        i64::MAX,
        i64::MIN,
    ] {
        check_both(&format!(":{value}\r\n"), |out| out.integer(value));
    }
}

#[test]
fn aggregates_have_their_kind_and_count() {
    check_both("*0\r\n", |out| out.array(0));
    check_both("*1000\r\n", |out| out.array(1000));
    check("*4\r\n", "%2\r\n", |out| out.map(2));
    check("*20\r\n", "%10\r\n", |out| out.map(10));
    check("*3\r\n", "~3\r\n", |out| out.set(3));
    check("*3\r\n", ">3\r\n", |out| out.push(3));
    assert_eq!(written(Protocol::Resp3, |out| out.attribute(1)), "|1\r\n");
}

#[test]
fn lengths_may_be_known_afterwards() {
    check("*1\r\n:7\r\n", "*1\r\n:7\r\n", |out| {
        let mark = out.later();
        out.integer(7);
        out.close_array(mark, 1);
    });
    check(
        "+OK\r\n*24\r\n*2\r\n+OK\r\n:8\r\n",
        "+OK\r\n%12\r\n~2\r\n+OK\r\n:8\r\n",
        |out| {
            out.ok();
            let map = out.later();
            let set = out.later();
            out.ok();
            out.close_set(set, 2);
            out.close_map(map, 12);
            out.integer(8);
        },
    );
    check("+OK\r\n*-1\r\n", "+OK\r\n_\r\n", |out| {
        out.ok();
        let mark = out.later();
        out.bulk_shared(Bytes::from(vec![b'x'; SHARED_LEN_MIN]));
        out.close_null_array(mark);
    });
}

#[test]
fn closing_a_long_aggregate_moves_the_blocks_in_it() {
    let block = Bytes::from(vec![b'x'; SHARED_LEN_MIN]);
    let mut out = Out::default();
    out.bulk_shared(block.clone());
    let mark = out.later();
    const BLOCKS: usize = if cfg!(miri) { 30 } else { 1000 };
    for _ in 0..BLOCKS {
        out.bulk_shared(block.clone());
    }
    out.close_array(mark, BLOCKS);
    out.ok();
    let mut expected = b"$16384\r\n".to_vec();
    expected.extend_from_slice(&block);
    expected.extend_from_slice(format!("\r\n*{BLOCKS}\r\n").as_bytes());
    for _ in 0..BLOCKS {
        expected.extend_from_slice(b"$16384\r\n");
        expected.extend_from_slice(&block);
        expected.extend_from_slice(b"\r\n");
    }
    expected.extend_from_slice(b"+OK\r\n");
    let mut slices = Vec::with_capacity(4096);
    out.io_slices(&mut slices);
    assert_eq!(
        slices
            .iter()
            .flat_map(|slice| slice.to_vec())
            .collect::<Vec<_>>(),
        expected
    );
}

#[test]
fn large_values_are_not_copied_and_small_ones_are() {
    let large = Bytes::from(vec![b'x'; SHARED_LEN_MIN]);
    let mut out = Out::default();
    out.bulk_shared(large.slice(1..));
    assert!(out.as_slice().is_some());
    out.bulk_shared(large.clone());
    assert!(out.as_slice().is_none());
    let mut slices = Vec::with_capacity(8);
    out.io_slices(&mut slices);
    assert!(slices.iter().any(|slice| slice.as_ptr() == large.as_ptr()));
}

#[test]
fn slices_stop_at_the_capacity_and_there_is_always_one() {
    let mut out = Out::default();
    for _ in 0..10 {
        out.bulk_shared(Bytes::from(vec![b'x'; SHARED_LEN_MIN]));
    }
    for capacity in [0, 1, 2, 3, 7, 8] {
        let mut slices = Vec::with_capacity(capacity);
        out.io_slices(&mut slices);
        assert!(!slices.is_empty() && slices.len() <= slices.capacity().max(1));
        assert!(slices.len() >= capacity.min(8));
    }
}

#[test]
fn errors_are_counted_until_the_output_is_cleared() {
    let mut out = Out::default();
    out.error("ERR a");
    let position = out.position();
    out.error("ERR b");
    assert_eq!(out.errors(), 2);
    out.truncate(position);
    assert_eq!(out.errors(), 1);
    out.clear();
    assert_eq!((out.errors(), out.is_empty()), (0, true));
}

#[test]
fn truncating_drops_replies_and_their_blocks() {
    let mut out = Out::default();
    out.ok();
    let position = out.position();
    out.bulk_shared(Bytes::from(vec![b'x'; SHARED_LEN_MIN]));
    out.integer(1);
    out.truncate(position);
    assert_eq!(sent(&out), b"+OK\r\n");
    assert_eq!(out.len_bytes(), 5);
}

#[test]
fn memory_of_unusual_replies_is_given_back() {
    let mut out = Out::default();
    out.bulk(&vec![b'x'; 10 * CAPACITY_KEPT_MAX]);
    assert!(out.memory_bytes() >= 10 * CAPACITY_KEPT_MAX);
    out.advance(out.len_bytes());
    assert!(out.memory_bytes() <= CAPACITY_KEPT_MAX);
}

/// Returns the strings in an array.
fn array_of(bytes: &[u8]) -> Vec<Vec<u8>> {
    fn number(rest: &mut &[u8], kind: u8) -> usize {
        let end = rest.iter().position(|byte| *byte == b'\r').expect("a line");
        assert_eq!(rest[0], kind);
        let number = std::str::from_utf8(&rest[1..end]).unwrap().parse().unwrap();
        *rest = &rest[end + 2..];
        number
    }
    let rest = &mut &bytes[..];
    let elements = (0..number(rest, b'*')).map(|_| {
        let len = number(rest, b'$');
        let element = rest[..len].to_vec();
        *rest = &rest[len + 2..];
        element
    });
    elements.collect()
}

#[test]
fn a_long_reply_is_never_in_one_piece_and_its_length_may_be_known_afterwards() {
    let element = vec![b'x'; 700];
    let mut out = Out::default();
    out.ok();
    let outer = out.later();
    let mark = out.later();
    for _ in 0..1000 {
        out.bulk(&element);
    }
    out.bulk_shared(Bytes::from(vec![b'y'; SHARED_LEN_MIN]));
    assert!(out.bytes.capacity() < 3 * PIECE_LEN);
    assert_eq!(out.since(out.position()), b"");
    out.close_array(mark, 1001);
    out.close_array(outer, 1);
    assert_eq!(out.len_bytes(), whole_of(&out).len());
    let whole = whole_of(&out);
    let whole = whole
        .strip_prefix(b"+OK\r\n*1\r\n")
        .expect("the rest of it");
    let elements = array_of(whole);
    assert_eq!(elements.len(), 1001);
    assert!(elements[..1000].iter().all(|found| *found == element));
    assert!(elements[1000].iter().all(|byte| *byte == b'y'));
}

#[test]
fn a_long_reply_can_be_dropped_after_some_of_what_was_before_it_is_sent() {
    for sent_len in [0, 3, 5] {
        let mut out = Out::default();
        out.ok();
        out.bulk_shared(Bytes::from(vec![b'y'; SHARED_LEN_MIN]));
        out.advance(sent_len);
        let position = out.position();
        let expected = whole_of(&out);
        for _ in 0..1000 {
            out.bulk(&[b'x'; 700]);
        }
        assert!(out.len_since(position) > 700_000);
        out.truncate(position);
        assert_eq!(out.len_since(position), 0);
        assert!(whole_of(&out) == expected);
        out.ok();
        out.advance(out.len_bytes());
        assert!(out.memory_bytes() < 2 * CAPACITY_KEPT_MAX);
    }
}

#[test]
fn no_more_is_handed_out_at_once_than_was_asked_for() {
    let mut out = Out::default();
    for _ in 0..3 {
        out.bulk_shared(Bytes::from(vec![b'x'; SHARED_LEN_MIN]));
    }
    for bytes_max in [
        1,
        100,
        SHARED_LEN_MIN,
        SHARED_LEN_MIN + 9,
        2 * SHARED_LEN_MIN,
    ] {
        let mut slices = Vec::with_capacity(64);
        out.io_slices_within(bytes_max, &mut slices);
        let bytes: Vec<u8> = slices.iter().flat_map(|slice| slice.to_vec()).collect();
        assert!(bytes == whole_of(&out)[..bytes_max]);
    }
}

#[derive(Clone, Debug)]
enum Write {
    Integer(i64),
    Bulk(usize),
    Null,
    Double(f64),
    Map(Vec<i64>),
    Later(Vec<usize>),
}

fn writes() -> impl Strategy<Value = Vec<Write>> {
    let len = || prop_oneof![8 => 0..200_usize, 2 => SHARED_LEN_MIN - 2..SHARED_LEN_MIN + 2, 1 => PIECE_LEN / 2..PIECE_LEN];
    let write = prop_oneof![
        any::<i64>().prop_map(Write::Integer),
        len().prop_map(Write::Bulk),
        Just(Write::Null),
        any::<i32>().prop_map(|value| Write::Double(f64::from(value) / 8.0)),
        prop::collection::vec(any::<i64>(), 0..4).prop_map(Write::Map),
        prop::collection::vec(len(), 0..14).prop_map(Write::Later),
    ];
    prop::collection::vec(write, 0..12)
}

fn bytes_of_len(len: usize) -> Bytes {
    let mut bytes = b"abcdefghijklmnopqrstuvwxyz".repeat(len / 26 + 1);
    bytes.truncate(len);
    bytes.into()
}

fn write_all(out: &mut Out, writes: &[Write]) {
    for write in writes {
        match write {
            Write::Integer(value) => out.integer(*value),
            Write::Bulk(len) if *len < PIECE_LEN / 2 => out.bulk_shared(bytes_of_len(*len)),
            Write::Bulk(len) => out.bulk(&bytes_of_len(*len)),
            Write::Null => out.null(),
            Write::Double(value) => out.double(*value),
            Write::Map(values) => {
                out.map(values.len());
                for (key, value) in values.iter().enumerate() {
                    out.integer(key as i64);
                    out.integer(*value);
                }
            }
            Write::Later(lens) => {
                let mark = out.later();
                for len in lens {
                    let inner = out.later();
                    match *len < PIECE_LEN / 2 {
                        true => out.bulk_shared(bytes_of_len(*len)),
                        false => out.bulk(&bytes_of_len(*len)),
                    }
                    out.close_array(inner, 1);
                }
                out.close_array(mark, lens.len());
            }
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(if cfg!(miri) { 4 } else { 256 }))]

    #[test]
    fn a_client_reads_as_many_replies_as_were_written(writes in writes()) {
        for protocol in [Protocol::Resp2, Protocol::Resp3] {
            let mut out = Out::new(protocol);
            write_all(&mut out, &writes);
            let bytes = sent(&out);
            let mut rest = &bytes[..];
            let mut replies = 0;
            while !rest.is_empty() {
                let len = match protocol {
                    Protocol::Resp2 => decode_resp2(rest).unwrap().unwrap().1,
                    Protocol::Resp3 => decode_resp3(rest).unwrap().unwrap().1,
                };
                rest = &rest[len..];
                replies += 1;
            }
            prop_assert_eq!(replies, writes.len());
        }
    }

    #[test]
    fn sending_in_pieces_sends_the_same_bytes(writes in writes(), pieces in prop::collection::vec(1..9000_usize, 1..8)) {
        let mut out = Out::default();
        write_all(&mut out, &writes);
        let expected = sent(&out);
        let mut received = Vec::new();
        for piece in pieces.into_iter().cycle() {
            if out.is_empty() {
                break;
            }
            let rest = sent(&out);
            let piece = piece.min(rest.len());
            received.extend_from_slice(&rest[..piece]);
            out.advance(piece);
        }
        prop_assert_eq!(received, expected);
        prop_assert_eq!(out.position().bytes, 0);
    }

    #[test]
    fn appending_puts_one_output_behind_the_other(first in writes(), second in writes()) {
        let (mut out, mut other, mut both) = (Out::default(), Out::default(), Out::default());
        write_all(&mut out, &first);
        write_all(&mut other, &second);
        write_all(&mut both, &first);
        write_all(&mut both, &second);
        out.append(&mut other);
        prop_assert!(other.is_empty());
        prop_assert_eq!(sent(&out), sent(&both));
    }
}

#[test]
fn gathered_strings_are_the_elements_of_an_array_in_their_order() {
    for (count, len) in [(0, 0), (3, 5), (2_000, 100), (3, 70_000)] {
        let mut bulks = Bulks::default();
        let mut whole = Out::default();
        whole.array(count);
        for index in 0..count {
            let string = vec![b'a' + (index % 26) as u8; len];
            bulks.push(&string);
            whole.bulk(&string);
        }
        let mut out = Out::default();
        out.array(count);
        assert_eq!(out.len_bytes() + bulks.len_bytes(), whole.len_bytes());
        out.bulks(bulks);
        assert!(whole_of(&out) == whole_of(&whole));
    }
}

/// Returns all unsent bytes, however many pieces there are.
fn whole_of(out: &Out) -> Vec<u8> {
    let mut slices = Vec::with_capacity(10_000);
    out.io_slices(&mut slices);
    slices.iter().flat_map(|slice| slice.to_vec()).collect()
}

#[test]
fn places_are_filled_in_any_order_with_numbers_and_replies_of_any_length() {
    let long = Bytes::from(vec![b'z'; SHARED_LEN_MIN]);
    // Without and with pieces that are sealed meanwhile.
    for filler in [0, 3 * PIECE_LEN] {
        let mut out = Out::new(Protocol::Resp3);
        out.array(6);
        let first = out.later();
        out.bulk_shared(long.clone());
        let second = out.later();
        out.bulk(&vec![b'f'; filler]);
        let third = out.later();
        out.bulk_shared(long.clone());
        let mut error = Out::new(Protocol::Resp3);
        error.error("ERR no");
        let mut null = Out::new(Protocol::Resp3);
        null.null();
        out.fill(vec![
            (second, Filling::Reply(error)),
            (third, Filling::Integer(12_345)),
            (first, Filling::Reply(null)),
        ]);
        let mut expected = Out::new(Protocol::Resp3);
        expected.array(6);
        expected.null();
        expected.bulk_shared(long.clone());
        expected.error("ERR no");
        expected.bulk(&vec![b'f'; filler]);
        expected.integer(12_345);
        expected.bulk_shared(long.clone());
        assert!(sent(&out) == sent(&expected), "{filler}");
        assert_eq!(out.errors(), 1);
    }
}
