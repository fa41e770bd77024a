//! Tests of `node`.

use super::*;

type Pair = (&'static [u8], &'static [u8]);

fn add(node: &mut Node, id: StreamId, pairs: &[Pair]) {
    let part = |at: usize| {
        if at.is_multiple_of(2) {
            pairs[at / 2].0
        } else {
            pairs[at / 2].1
        }
    };
    node.append(StreamId::new(5, 5), id, pairs.len(), &part);
}

fn sample() -> Node {
    let pairs: &[Pair] = &[(b"name", b"Sara"), (b"7", b"-12")];
    let part = |at: usize| {
        if at.is_multiple_of(2) {
            pairs[at / 2].0
        } else {
            pairs[at / 2].1
        }
    };
    let mut node = Node::new(2, &part);
    add(&mut node, StreamId::new(5, 5), pairs);
    add(&mut node, StreamId::new(6, 0), &[(b"other", b"")]);
    add(
        &mut node,
        StreamId::new(6, 1),
        &[(b"name", b"Ali"), (b"7", b"x")],
    );
    node
}

fn show(node: &Node, is_reverse: bool) -> String {
    let mut text = String::new();
    for item in node.items(StreamId::new(5, 5), is_reverse) {
        let id = item.id.text();
        text += &String::from_utf8_lossy(id.as_bytes());
        for (name, value) in item.fields() {
            let read = |element: Element<'_>| String::from_utf8(element.to_vec()).expect("text");
            text += &format!(" {}={}", read(name), read(value));
        }
        text += if item.is_deleted() {
            " (deleted)\n"
        } else {
            "\n"
        };
    }
    text
}

#[test]
fn entries_are_read_in_both_directions() {
    let node = sample();
    let forwards = "5-5 name=Sara 7=-12\n6-0 other=\n6-1 name=Ali 7=x\n";
    assert_eq!(show(&node, false), forwards);
    let backwards: Vec<&str> = forwards.lines().rev().collect();
    assert_eq!(show(&node, true).trim_end(), backwards.join("\n"));
    assert_eq!(node.counts(), (3, 0));
}

#[test]
fn deleted_entries_stay_with_a_flag() {
    let mut node = sample();
    let marks: Vec<EntryFlags> = node
        .items(StreamId::new(5, 5), false)
        .skip(1)
        .map(|item| item.mark())
        .collect();
    node.delete(&marks);
    assert_eq!(node.counts(), (1, 2));
    assert_eq!(
        show(&node, false),
        "5-5 name=Sara 7=-12\n6-0 other= (deleted)\n6-1 name=Ali 7=x (deleted)\n"
    );
    assert!(Node::check(node.bytes, StreamId::new(5, 5)).is_some());
}

#[test]
fn counts_may_take_more_room() {
    let mut node = sample();
    for seq in 2..300 {
        add(
            &mut node,
            StreamId::new(6, seq),
            &[(b"name", b"x"), (b"7", b"1")],
        );
    }
    assert_eq!(node.counts(), (301, 0));
    let marks: Vec<EntryFlags> = node
        .items(StreamId::new(5, 5), false)
        .take(200)
        .map(|item| item.mark())
        .collect();
    node.delete(&marks);
    assert_eq!(node.counts(), (101, 200));
    assert!(Node::check(node.bytes, StreamId::new(5, 5)).is_some());
}

#[test]
fn wrong_nodes_are_refused() {
    let good = sample();
    let master = StreamId::new(5, 5);
    assert!(Node::check(good.bytes.clone(), master).is_some());
    assert!(Node::check(good.bytes.clone(), StreamId::new(u64::MAX, 5)).is_none());
    assert!(Node::check(Vec::new(), master).is_none());
    assert!(Node::check(EMPTY.to_vec(), master).is_none());
    let mut counted = good.clone();
    counted.add_to_counts(1, 0);
    assert!(Node::check(counted.bytes, master).is_none());
    let mut twice = good.clone();
    add(&mut twice, StreamId::new(6, 1), &[(b"a", b"b")]);
    assert!(Node::check(twice.bytes, master).is_none());
    for count in 0..good.pack().len() {
        let mut cut = good.clone();
        let left = good.pack().len() - count;
        ListpackMut::new(&mut cut.bytes).remove_range(cut_at(&good, left), count);
        let is_whole = count == 0;
        assert_eq!(
            Node::check(cut.bytes, master).is_some(),
            is_whole,
            "{count}"
        );
    }
}

fn cut_at(node: &Node, index: usize) -> At {
    let pack = node.pack();
    pack.nth(index as isize)
        .or_else(|| pack.last())
        .expect("not empty")
}

/// Reading comes to an end, whatever the bytes are.
#[test]
fn any_bytes_can_be_read() {
    let good = sample();
    let master = StreamId::new(5, 5);
    for at in 6..good.bytes.len() - 1 {
        for value in 0..=255 {
            let mut bytes = good.bytes.clone();
            bytes[at] = value;
            if Listpack::check(&bytes).is_none() {
                continue;
            }
            let node = Node { bytes };
            for is_reverse in [false, true] {
                for item in node.items(master, is_reverse).take(1000) {
                    item.fields().take(1000).for_each(drop);
                }
            }
            let _ = Node::check(node.bytes, master);
        }
    }
}
