//! Checks that a quicklist does the same as a vector of vectors, with every limit, and keeps its invariants after
//! each step.

use std::ops::ControlFlow;

use proptest::prelude::*;

use super::node::QuicklistNode;
use super::*;

fn limits(fill: i32, compress_depth: u32) -> QuicklistLimits {
    QuicklistLimits {
        fill,
        compress_depth,
        plain_bytes_min: u32::MAX,
    }
}

impl Quicklist {
    /// Checks the invariants of the module.
    fn check_invariants(&self) {
        let sum: usize = self.nodes.iter().map(QuicklistNode::count).sum();
        assert_eq!(
            sum, self.count,
            "the nodes hold as many elements as the list"
        );
        let (count, depth) = (self.nodes.len(), self.limits.compress_depth as usize);
        for (at, node) in self.nodes.iter().enumerate() {
            assert!(node.count() > 0, "no node is empty");
            if let Some(element) = node.as_plain() {
                assert!(
                    self.limits.is_plain(element.len()),
                    "only large elements are alone"
                );
                continue;
            }
            node.with_pack(|pack| {
                assert_eq!(pack.bytes().len(), node.len_bytes());
                assert_eq!(pack.len(), node.count());
                assert!(
                    Listpack::check(pack.bytes()).is_some(),
                    "a pack in every detail"
                );
            });
            assert!(
                node.count() == 1 || self.limits.allow(node.len_bytes(), node.count()),
                "a node is within the limits"
            );
            let is_inner = depth > 0 && at >= depth && at + depth < count;
            assert!(
                is_inner || !node.is_compressed(),
                "the ends are not compressed"
            );
            if is_inner && !node.is_compressed() {
                let mut twin = node.duplicate();
                twin.compress();
                assert!(
                    !twin.is_compressed(),
                    "an inner node is compressed if it is worth it"
                );
            }
            if at > 0 && at + 1 < count && !node.is_compressed() {
                let len = node.len_bytes();
                assert!(
                    node.memory_bytes() <= crate::alloc::account::size_class(len + len / 4),
                    "only the ends have room: {} for {len}",
                    node.memory_bytes()
                );
            }
        }
    }

    /// Returns the contents of its nodes, and which of them are plain.
    fn unpacked_nodes(&self) -> Vec<(bool, Vec<u8>)> {
        self.nodes()
            .map(|node| match node {
                QuicklistNodeView::Packed(bytes) => (false, bytes.into_owned()),
                QuicklistNodeView::Plain(bytes) => (true, bytes.to_vec()),
            })
            .collect()
    }

    fn to_vecs(&self) -> Vec<Vec<u8>> {
        let mut all = Vec::new();
        let _: ControlFlow<()> = self.walk(End::Front, 0, |element| {
            all.push(element.to_vec());
            ControlFlow::Continue(())
        });
        all
    }
}

#[derive(Clone, Debug)]
enum Change {
    Push(End, Vec<u8>),
    PushMany(End, Vec<u8>, usize),
    Pop(End),
    PopMany(End, usize),
    Insert(usize, Vec<u8>),
    Set(usize, Vec<u8>),
    RemoveRange(usize, usize),
    RemoveEqual(Vec<u8>, End, usize),
    Duplicate,
}

fn element() -> impl Strategy<Value = Vec<u8>> {
    prop_oneof![
        4 => (0..30_i64).prop_map(|number| number.to_string().into_bytes()),
        1 => any::<i64>().prop_map(|number| number.to_string().into_bytes()),
        4 => prop::sample::select(vec!["", "a", "b", "some text", "sixteen bytes ok"])
            .prop_map(|text| text.as_bytes().to_vec()),
        2 => prop::collection::vec(any::<u8>(), 0..200),
        1 => (1000..6000_usize, any::<u8>()).prop_map(|(len, byte)| vec![byte; len]),
        1 => (8100..9000_usize).prop_map(|len| vec![b'x'; len]),
    ]
}

fn end() -> impl Strategy<Value = End> {
    prop::sample::select(vec![End::Front, End::Back])
}

fn change() -> impl Strategy<Value = Change> {
    prop_oneof![
        6 => (end(), element()).prop_map(|(end, element)| Change::Push(end, element)),
        2 => (end(), element(), 0..200_usize)
            .prop_map(|(end, element, count)| Change::PushMany(end, element, count)),
        4 => end().prop_map(Change::Pop),
        1 => (end(), 0..100_usize).prop_map(|(end, count)| Change::PopMany(end, count)),
        5 => (any::<usize>(), element()).prop_map(|(index, element)| Change::Insert(index, element)),
        5 => (any::<usize>(), element()).prop_map(|(index, element)| Change::Set(index, element)),
        2 => (any::<usize>(), any::<usize>())
            .prop_map(|(first, count)| Change::RemoveRange(first, count)),
        2 => (any::<usize>(), 0..20_usize)
            .prop_map(|(first, count)| Change::RemoveRange(first, count)),
        2 => (element(), end(), prop::sample::select(vec![1, 2, 10, usize::MAX]))
            .prop_map(|(element, end, count)| Change::RemoveEqual(element, end, count)),
        1 => Just(Change::Duplicate),
    ]
}

fn apply(list: &mut Quicklist, model: &mut Vec<Vec<u8>>, change: Change) {
    match change {
        Change::Push(end, element) => {
            list.push(end, &element);
            let at = if end == End::Front { 0 } else { model.len() };
            model.insert(at, element);
        }
        Change::PushMany(end, element, count) => {
            for number in 0..count {
                let mut element = element.clone();
                element.push(number as u8);
                apply(list, model, Change::Push(end, element));
            }
        }
        Change::Pop(end) => {
            let popped = list.pop(end, |element| element.to_vec());
            let expected = match end {
                End::Front if !model.is_empty() => Some(model.remove(0)),
                _ => model.pop(),
            };
            assert_eq!(popped, expected);
        }
        Change::PopMany(end, count) => {
            for _ in 0..count {
                apply(list, model, Change::Pop(end));
            }
        }
        Change::Insert(index, element) => {
            let index = index % (model.len() + 1);
            list.insert(index, &element);
            model.insert(index, element);
        }
        Change::Set(index, element) => {
            let index = index % (model.len() + 1);
            assert_eq!(list.set(index, &element), index < model.len());
            if let Some(old) = model.get_mut(index) {
                *old = element;
            }
        }
        Change::RemoveRange(first, count) => {
            let first = first % (model.len() + 1);
            let count = count % (model.len() - first + 2);
            list.remove_range(first, count);
            model.drain(first..(first + count).min(model.len()));
        }
        Change::RemoveEqual(element, end, count_max) => {
            let removed = list.remove_equal(&element, end, count_max);
            let mut left = count_max;
            let mut keep = |candidate: &Vec<u8>| {
                let goes = *candidate == element && left > 0;
                left -= usize::from(goes);
                !goes
            };
            let before = model.len();
            if end == End::Front {
                model.retain(&mut keep);
            } else {
                model.reverse();
                model.retain(&mut keep);
                model.reverse();
            }
            assert_eq!(removed, before - model.len());
        }
        Change::Duplicate => *list = list.duplicate(),
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(if cfg!(miri) { 2 } else { 100 }))]

    #[test]
    fn a_list_is_what_a_vector_would_be(
        fill in prop::sample::select(vec![-5, -2, -1, -1, 0, 1, 2, 5, 128, 100_000]),
        compress_depth in 0..4_u32,
        plain_bytes_min in prop::sample::select(vec![u32::MAX, u32::MAX, 100, 5, 1]),
        changes in prop::collection::vec(change(), 1..if cfg!(miri) { 10 } else { 60 }),
    ) {
        let limits = QuicklistLimits { fill, compress_depth, plain_bytes_min };
        let mut list = Quicklist::new(limits);
        let mut model: Vec<Vec<u8>> = Vec::new();
        for change in changes {
            apply(&mut list, &mut model, change);
            prop_assert_eq!(list.len(), model.len());
            list.check_invariants();
            prop_assert_eq!(&list.to_vecs(), &model);
        }
        let mut backwards = Vec::new();
        let _: ControlFlow<()> = list.walk(End::Back, model.len() / 3, |element| {
            backwards.push(element.to_vec());
            ControlFlow::Continue(())
        });
        let expected: Vec<_> = model.iter().rev().skip(model.len() / 3).cloned().collect();
        prop_assert_eq!(backwards, expected);
        for (index, element) in model.iter().enumerate() {
            let got = list.get(index, |element| element.to_vec());
            prop_assert_eq!(got.as_ref(), Some(element));
        }
        prop_assert_eq!(list.get(model.len(), |element| element.to_vec()), None);
    }

    #[test]
    fn what_is_undone_leaves_the_nodes_as_they_were(
        fill in prop::sample::select(vec![-5, -2, -1, -1, 0, 1, 2, 5, 128, 100_000]),
        compress_depth in 0..4_u32,
        plain_bytes_min in prop::sample::select(vec![u32::MAX, u32::MAX, 100, 5, 1]),
        before in prop::collection::vec(change(), 1..if cfg!(miri) { 6 } else { 30 }),
        edits in prop::collection::vec(
            prop::collection::vec(change(), 0..8), 0..if cfg!(miri) { 3 } else { 8 }
        ),
    ) {
        let limits = QuicklistLimits { fill, compress_depth, plain_bytes_min };
        let mut list = Quicklist::new(limits);
        let mut model: Vec<Vec<u8>> = Vec::new();
        for change in before {
            apply(&mut list, &mut model, change);
        }
        let mut changes = crate::structures::undo_log::UndoLog::default();
        let (nodes, mut changed) = (list.unpacked_nodes(), model.clone());
        for edit in edits {
            list.keep_changes(changes);
            for change in edit {
                // A copy records nothing.
                if !matches!(change, Change::Duplicate) {
                    apply(&mut list, &mut changed, change);
                }
            }
            changes = list.take_changes().unwrap_or_default();
            list.check_invariants();
        }
        prop_assert_eq!(&list.to_vecs(), &changed);
        list.undo(&changes);
        prop_assert!(!list.keeps_changes());
        list.check_invariants();
        prop_assert_eq!(list.to_vecs(), model);
        prop_assert_eq!(list.unpacked_nodes(), nodes);
    }

    #[test]
    fn what_was_at_the_cut_is_shown_whatever_changes(
        fill in prop::sample::select(vec![-1, 0, 1, 2, 5, 5, 128]),
        compress_depth in 0..3_u32,
        plain_bytes_min in prop::sample::select(vec![u32::MAX, u32::MAX, 100, 5]),
        before in prop::collection::vec(change(), 1..if cfg!(miri) { 6 } else { 30 }),
        steps in prop::collection::vec((change(), 0..8_u8), 0..if cfg!(miri) { 8 } else { 60 }),
        ends_early in any::<bool>(),
    ) {
        let limits = QuicklistLimits { fill, compress_depth, plain_bytes_min };
        let mut list = Quicklist::new(limits);
        let mut model: Vec<Vec<u8>> = Vec::new();
        for change in before {
            apply(&mut list, &mut model, change);
        }
        let (expected, counted) = (list.unpacked_nodes(), list.len());
        let (mut shown, mut elements) = (Vec::new(), 0);
        let mut show = |list: &mut Quicklist, bytes_max| {
            list.show_cut(bytes_max, &mut |node, count| {
                elements += count;
                shown.push(match node {
                    QuicklistNodeView::Packed(bytes) => (false, bytes.to_vec()),
                    QuicklistNodeView::Plain(bytes) => (true, bytes.to_vec()),
                });
            })
        };
        list.begin_cut();
        let count = steps.len();
        for (number, (change, step)) in steps.into_iter().enumerate() {
            if matches!(change, Change::Duplicate) {
                let mut undone = model.clone();
                list.keep_changes(crate::structures::undo_log::UndoLog::default());
                apply(&mut list, &mut undone, Change::PushMany(End::Back, b"more".to_vec(), 9));
                apply(&mut list, &mut undone, Change::RemoveRange(3, 7));
                let changes = list.take_changes().expect("it kept them");
                list.undo(&changes);
            } else {
                apply(&mut list, &mut model, change);
            }
            list.check_invariants();
            prop_assert_eq!(list.len(), model.len());
            if step == 0 {
                show(&mut list, 1);
            }
            if ends_early && number == count / 2 {
                while list.forget_cut(1) {
                    list.push(End::Front, b"meanwhile");
                    model.insert(0, b"meanwhile".to_vec());
                }
            }
        }
        prop_assert_eq!(&list.to_vecs(), &model);
        if ends_early && count > 0 {
            prop_assert!(!list.is_cut());
        } else {
            while show(&mut list, 100) {}
            prop_assert!(!list.is_cut());
            prop_assert_eq!(shown, expected);
            prop_assert_eq!(elements, counted);
        }
        prop_assert_eq!(&list.to_vecs(), &model);
    }

    #[test]
    fn packs_from_elsewhere_are_taken_as_they_are(
        packs in prop::collection::vec(prop::collection::vec(element(), 0..50), 0..8),
        compress_depth in 0..3_u32,
    ) {
        let mut list = Quicklist::new(limits(-2, compress_depth));
        let mut model = Vec::new();
        for elements in packs {
            let mut bytes = crate::structures::listpack::EMPTY.to_vec();
            let mut pack = crate::structures::listpack::ListpackMut::new(&mut bytes);
            for element in &elements {
                pack.push_back(element);
            }
            list.append_listpack(Listpack::new(&bytes));
            model.extend(elements);
        }
        prop_assert_eq!(list.to_vecs(), model);
    }
}

#[test]
fn elements_of_16_bytes_take_little_more_than_18() {
    const ELEMENTS: u32 = if cfg!(miri) { 300 } else { 100_000 };
    let before = crate::alloc::account::thread_bytes();
    for end in [End::Front, End::Back] {
        let mut list = Quicklist::new(limits(-2, 0));
        for number in 0..ELEMENTS {
            list.push(end, format!("element:{number:08}").as_bytes());
        }
        let bytes = crate::alloc::account::thread_bytes() - before;
        let each = bytes as f64 / f64::from(ELEMENTS);
        // A few elements leave much of the last node empty.
        assert!(cfg!(miri) || each < 18.4, "{each} bytes each");
    }
}

#[test]
fn an_element_in_the_middle_splits_a_full_node_and_neighbours_join_again() {
    let mut list = Quicklist::new(limits(4, 0));
    for number in 0..12 {
        list.push(End::Back, number.to_string().as_bytes());
    }
    assert_eq!(list.nodes.len(), 3);
    list.insert(6, b"x");
    list.check_invariants();
    assert_eq!(list.nodes.len(), 4);
    list.remove_range(4, 3);
    list.check_invariants();
    assert_eq!(list.nodes.len(), 3);
    let texts: Vec<String> = list
        .to_vecs()
        .into_iter()
        .map(|bytes| String::from_utf8(bytes).expect("text"))
        .collect();
    assert_eq!(texts.join(" "), "0 1 2 3 6 7 8 9 10 11");
}

#[test]
fn large_elements_stand_alone_and_small_ones_join_when_they_go() {
    let mut list = Quicklist::new(limits(-2, 0));
    list.push(End::Back, b"a");
    list.push(End::Back, &[b'x'; 10_000]);
    list.push(End::Back, b"b");
    assert_eq!(list.nodes.len(), 3);
    assert!(list.single_listpack().is_none());
    assert!(list.set(1, b"small"));
    list.check_invariants();
    assert_eq!(list.single_listpack().map(Listpack::len), Some(3));
}

#[test]
fn inner_nodes_are_compressed_and_the_ends_are_not() {
    let mut list = Quicklist::new(limits(-1, 2));
    for number in 0..if cfg!(miri) { 500 } else { 3000 } {
        list.push(
            End::Back,
            format!("the same text, and a number: {number}").as_bytes(),
        );
    }
    let compressed = list
        .nodes
        .iter()
        .filter(|node| node.is_compressed())
        .count();
    assert_eq!(compressed, list.nodes.len() - 4);
    while list.pop(End::Front, |_| ()).is_some() {
        list.pop(End::Back, |_| ());
        if !cfg!(miri) || list.len().is_multiple_of(50) {
            list.check_invariants();
        }
    }
}

#[test]
fn a_list_is_freed_in_parts() {
    let mut list = Quicklist::new(limits(100, 0));
    for number in 0..1000 {
        list.push(End::Back, number.to_string().as_bytes());
    }
    let mut steps = 1;
    while list.free_some(150) {
        steps += 1;
    }
    assert_eq!(steps, 5);
    assert!(!list.free_some(150));
}

#[cfg(not(any(miri, feature = "system-allocator")))]
#[test]
fn nodes_that_are_moved_hold_what_they_held() {
    let mut kept = Quicklist::new(limits(5, 0));
    let mut other = Quicklist::new(limits(5, 0));
    for number in 0..20_000 {
        for list in [&mut kept, &mut other] {
            list.push(End::Back, format!("element {number:0100}").as_bytes());
        }
    }
    // Make the copy first: it would otherwise fill the free slots that the other list leaves.
    let before = kept.duplicate();
    drop(other);
    let mut mover = Mover::new(10).expect("jemalloc can be asked");
    let mut first = 0;
    loop {
        first = kept.relocate_nodes(first, 64, &mut mover);
        if first == 0 {
            break;
        }
    }
    kept.check_invariants();
    // The number to move depends on what else the allocator serves meanwhile.
    assert!(mover.moved > 0);
    let nodes = |list: &Quicklist| -> Vec<Vec<u8>> {
        let mut all = Vec::new();
        for node in &list.nodes {
            node.with_pack(|pack| all.push(pack.bytes().to_vec()));
        }
        all
    };
    assert_eq!(nodes(&kept), nodes(&before));
}

#[test]
fn what_is_kept_for_a_cut_grows_with_what_changes() {
    let count = if cfg!(miri) { 2_000 } else { 50_000 };
    let mut list = Quicklist::new(limits(-2, 0));
    for number in 0..count {
        list.push(End::Back, format!("element {number}").as_bytes());
    }
    let expected = list.unpacked_nodes();
    let bytes = || crate::alloc::account::thread_bytes();
    let charged = crate::alloc::account::charged_bytes;
    let before = (bytes(), charged());
    list.begin_cut();
    for _ in 0..300 {
        list.set(count / 2, b"element x")
            .then_some(())
            .expect("there");
        list.push(End::Back, b"more");
        list.pop(End::Back, |_| {});
        list.push(End::Front, b"more");
        list.pop(End::Front, |_| {});
    }
    let kept = bytes() - before.0;
    assert!(kept < 5 * 8192, "copies of three nodes: {kept} bytes");
    // Removed nodes are not copied.
    list.remove_range(count / 3, count / 3);
    let kept = bytes() - before.0;
    assert!(kept < 14 * 8192, "copies of some more nodes: {kept} bytes");
    let mut shown = Vec::new();
    while list.show_cut(10_000, &mut |node, _| {
        let QuicklistNodeView::Packed(bytes) = node else {
            return;
        };
        shown.push((false, bytes.to_vec()));
    }) {}
    assert_eq!(shown, expected);
    drop(shown);
    // All that was allocated apart is freed, and the list is charged for exactly what it has.
    drop(list);
    let row: i64 = charged() - before.1;
    assert!(row < 0, "{row}");
}
