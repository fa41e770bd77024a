//! Both indexes compared with a set of the standard library and with each other; the ranking with maps.

use std::collections::{BTreeMap, BTreeSet};

use proptest::prelude::*;

use super::ranking::Ranking;
use super::*;
use crate::alloc::slabs::Mover;
use crate::base::hash::HashSeed;
use crate::structures::undo_log::UndoLog;

const SEED: HashSeed = HashSeed { k0: 3, k1: 5 };

impl OrderedItem for u32 {
    fn order(&self, other: &Self) -> Ordering {
        self.cmp(other)
    }

    /// Groups of items look alike, so that full comparisons matter too.
    fn is_surely_before(&self, other: &Self) -> bool {
        self / 5 < other / 5
    }
}

/// An operation on the index.
#[derive(Clone, Debug)]
enum Step {
    Insert(u32),
    Ascend(u32),
    Remove(u32),
    Replace(u32, u32),
    Take { rank: usize, limit: usize },
    Look(usize, usize),
}

fn steps(bound: u32) -> impl Strategy<Value = Vec<Step>> {
    let item = 0..bound;
    let rank = 0..bound as usize;
    let step = prop_oneof![
        4 => item.clone().prop_map(Step::Insert),
        2 => (1..80u32).prop_map(Step::Ascend),
        3 => item.clone().prop_map(Step::Remove),
        2 => (item.clone(), item).prop_map(|(old, new)| Step::Replace(old, new)),
        1 => (rank.clone(), 0..90usize).prop_map(|(rank, limit)| Step::Take { rank, limit }),
        1 => (rank.clone(), rank).prop_map(|(from, to)| Step::Look(from, to)),
    ];
    prop::collection::vec(step, 1..if cfg!(miri) { 30 } else { 400 })
}

fn take_all(index: &mut impl Ordered<u32>, rank: usize, limit: usize) -> Vec<u32> {
    let mut all = Vec::new();
    while all.len() < limit {
        let before = all.len();
        index.take_some(rank, limit - before, &mut all);
        if all.len() == before {
            break;
        }
    }
    all
}

fn compare(index: &impl Ordered<u32>, model: &BTreeSet<u32>, from: usize, to: usize) {
    let range = |from: usize, to: usize| {
        let wanted = to.saturating_sub(from);
        model.iter().copied().skip(from).take(wanted)
    };
    let ascending: Vec<u32> = index.items(from, to, Direction::Ascending).collect();
    assert!(ascending.iter().copied().eq(range(from, to)));
    let mut descending: Vec<u32> = index.items(from, to, Direction::Descending).collect();
    descending.reverse();
    assert_eq!(ascending, descending);
    let bound = from as u32;
    assert_eq!(
        index.rank_by(|item| *item < bound),
        model.range(..bound).count()
    );
    assert_eq!(index.get(from), model.iter().nth(from).copied());
}

fn run(index: &mut impl Ordered<u32>, given: &BTreeSet<u32>, steps: &[Step]) -> BTreeSet<u32> {
    let mut model = BTreeSet::new();
    for item in given {
        index.insert(*item);
        model.insert(*item);
    }
    index.check_invariants();
    for step in steps {
        match *step {
            Step::Insert(item) => {
                if model.insert(item) {
                    index.insert(item);
                }
            }
            Step::Ascend(count) => {
                for _ in 0..count {
                    let next = model.last().map_or(0, |last| last + 1);
                    model.insert(next);
                    index.insert(next);
                }
            }
            Step::Remove(item) => assert_eq!(index.remove(item), model.remove(&item)),
            Step::Replace(old, new) => {
                if model.contains(&old) && (old == new || !model.contains(&new)) {
                    index.replace(old, new);
                    model.remove(&old);
                    model.insert(new);
                }
            }
            Step::Take { rank, limit } => {
                let wanted: Vec<u32> = model.iter().copied().skip(rank).take(limit).collect();
                assert_eq!(take_all(index, rank, limit), wanted);
                wanted.iter().for_each(|item| {
                    model.remove(item);
                });
            }
            Step::Look(from, to) => compare(index, &model, from, to),
        }
        assert_eq!(index.len(), model.len());
    }
    index.check_invariants();
    compare(index, &model, 0, model.len());
    model
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(if cfg!(miri) { 2 } else { 96 }))]

    #[test]
    fn both_indexes_hold_what_a_set_would(
        given in prop::collection::btree_set(0..2000u32, 0..if cfg!(miri) { 80 } else { 1500 }),
        steps in steps(2000),
    ) {
        let mut tree = Tree::new();
        let model = run(&mut tree, &given, &steps);
        let mut list = SkipList::new(7);
        prop_assert_eq!(&model, &run(&mut list, &given, &steps));
        let tree = tree.items(0, model.len(), Direction::Ascending);
        prop_assert!(tree.eq(list.items(0, model.len(), Direction::Ascending)));
    }

    #[test]
    fn a_ranking_holds_what_two_maps_would(
        is_tree in any::<bool>(),
        steps in prop::collection::vec((0..5u8, 0..400u16, 0..12i8), 1..if cfg!(miri) { 80 } else { 600 }),
    ) {
        let form = if is_tree { OrderedIndexType::Tree } else { OrderedIndexType::Skip };
        ranking_follows_model(form, &steps);
    }

    #[test]
    fn a_ranking_whose_changes_are_undone_is_what_it_was(
        is_tree in any::<bool>(),
        before in prop::collection::vec(
            (0..5u8, 0..400u16, 0..12i8), 1..if cfg!(miri) { 60 } else { 400 }
        ),
        edits in prop::collection::vec(
            prop::collection::vec(
                (0..5u8, 0..400u16, 0..12i8), 0..if cfg!(miri) { 20 } else { 100 }
            ),
            0..if cfg!(miri) { 3 } else { 6 }
        ),
    ) {
        let mut ranking = Ranking::new(if is_tree { OrderedIndexType::Tree } else { OrderedIndexType::Skip }, SEED);
        let mut model = BTreeMap::new();
        ranking_steps(&mut ranking, &mut model, &before);
        let (mut changes, mut changed) = (UndoLog::default(), model.clone());
        for steps in edits {
            ranking.keep_changes(changes);
            ranking_steps(&mut ranking, &mut changed, &steps);
            changes = ranking.take_changes().unwrap_or_default();
        }
        ranking.undo(&changes);
        ranking.check_invariants();
        let range = ranking.range(0, ranking.len(), Direction::Ascending);
        let bits = |(member, score): (Vec<u8>, f64)| (member, score.to_bits());
        let order: Vec<_> = range.map(|(member, score)| bits((member.to_vec(), score))).collect();
        let expected: Vec<_> = model_order(&model).into_iter().map(bits).collect();
        prop_assert_eq!(order, expected);
    }
}

/// Returns the members ordered by score as numbers, then by name.
fn model_order(model: &BTreeMap<Vec<u8>, f64>) -> Vec<(Vec<u8>, f64)> {
    let mut order: Vec<_> = model.iter().map(|(m, s)| (m.clone(), *s)).collect();
    order.sort_by(|one, two| one.1.partial_cmp(&two.1).unwrap().then(one.0.cmp(&two.0)));
    order
}

fn ranking_follows_model(form: OrderedIndexType, steps: &[(u8, u16, i8)]) {
    let mut ranking = Ranking::new(form, SEED);
    let mut model: BTreeMap<Vec<u8>, f64> = BTreeMap::new();
    ranking_steps(&mut ranking, &mut model, steps);
    ranking.check_invariants();
    let order = model_order(&model);
    let walk = |ranking: &Ranking, direction| -> Vec<(Vec<u8>, f64)> {
        let range = ranking.range(0, ranking.len(), direction);
        range
            .map(|(member, score)| (member.to_vec(), score))
            .collect()
    };
    assert_eq!(walk(&ranking, Direction::Ascending), order);
    let below = order.iter().filter(|(_, score)| *score < 1.0).count();
    assert_eq!(ranking.rank_by_score(|score| score < 1.0), below);
    assert_eq!(ranking.rank_by(|score, _| score < 1.0), below);
    let copy = ranking.duplicate();
    copy.check_invariants();
    drop(ranking);
    assert_eq!(walk(&copy, Direction::Ascending), order);
    let mut scanned = BTreeMap::new();
    assert_eq!(
        copy.scan(0, usize::MAX, |member, score| {
            scanned.insert(member.to_vec(), score);
        }),
        0
    );
    assert_eq!(scanned, model);
}

fn ranking_steps(
    ranking: &mut Ranking,
    model: &mut BTreeMap<Vec<u8>, f64>,
    steps: &[(u8, u16, i8)],
) {
    for (action, number, score) in steps {
        let member = format!("member:{number}").into_bytes();
        let score = match score {
            0 => f64::NEG_INFINITY,
            1 => -0.0,
            2 => 0.0,
            3 => f64::INFINITY,
            score => f64::from(*score) / 4.0,
        };
        let hash = ranking.hash(&member);
        let found = ranking.find(hash, &member);
        assert_eq!(found.is_some(), model.contains_key(&member));
        match (action, found) {
            (0, Some(place)) => {
                assert_eq!(Some(ranking.remove(place)), model.remove(&member));
            }
            (1, Some(place)) => {
                let order = model_order(model);
                let rank = order.iter().position(|(other, _)| *other == member);
                assert_eq!(Some(ranking.rank(place)), rank);
            }
            (2, _) => {
                let order = model_order(model);
                let from = usize::from(*number) % (order.len() + 1);
                let mut gone = Vec::new();
                ranking.remove_range(from, 3, |member, score| gone.push((member.to_vec(), score)));
                let wanted: Vec<_> = order.into_iter().skip(from).take(3).collect();
                assert_eq!(gone, wanted);
                wanted.iter().for_each(|(member, _)| {
                    model.remove(member);
                });
            }
            (_, Some(place)) => {
                ranking.set_score(place, score);
                assert_eq!(ranking.score_at(place).to_bits(), score.to_bits());
                model.insert(member, score);
            }
            (_, None) => {
                ranking.insert_new(hash, &member, score);
                model.insert(member, score);
            }
        }
    }
}

#[test]
fn ascending_insertions_leave_nodes_full() {
    let mut tree = Tree::new();
    const ITEMS: u32 = if cfg!(miri) { 150 } else { 10_000 };
    for item in 0..ITEMS {
        tree.insert(item);
    }
    tree.check_invariants();
    // One call removes the rest of one leaf.
    let mut leaves = 0;
    while !tree.is_empty() {
        tree.take_some(0, usize::MAX, &mut Vec::new());
        leaves += 1;
    }
    assert!(leaves <= ITEMS / 28 + 1);
}

#[test]
fn a_large_ranking_is_freed_in_slices() {
    let (members, slice) = if cfg!(miri) { (160, 30) } else { (5000, 500) };
    for form in [OrderedIndexType::Tree, OrderedIndexType::Skip] {
        let mut ranking = Ranking::new(form, SEED);
        for number in 0..members {
            let member = format!("{number}").into_bytes();
            ranking.insert_new(ranking.hash(&member), &member, f64::from(number % 17));
        }
        ranking.check_invariants();
        let mut slices = 0;
        while ranking.free_some(slice) {
            slices += 1;
            assert!(slices < 5000);
        }
        assert!(slices > 3);
        ranking.check_invariants();
        assert!(ranking.is_empty());
    }
}

#[test]
fn a_skip_list_that_became_short_is_laid_out_anew() {
    let mut list = SkipList::new(1);
    for item in 0..if cfg!(miri) { 130 } else { 20_000u32 } {
        list.insert(item.wrapping_mul(2_654_435_761));
    }
    list.check_invariants();
    while list.len() > 100 {
        let mut taken = Vec::new();
        list.take_some(50, if cfg!(miri) { 50 } else { 1000 }, &mut taken);
    }
    list.check_invariants();
    list.insert(5);
    list.check_invariants();
}

#[test]
fn a_member_of_sixteen_bytes_takes_at_most_eighty() {
    const MEMBERS: u64 = if cfg!(miri) { 100 } else { 100_000 };
    let before = crate::alloc::account::thread_bytes();
    let mut ranking = Ranking::new(OrderedIndexType::Tree, SEED);
    for number in 0..MEMBERS {
        let member = format!("member:{number:09}").into_bytes();
        let hash = ranking.hash(&member);
        ranking.insert_new(hash, &member, (hash >> 11) as f64);
    }
    let bytes = crate::alloc::account::thread_bytes() - before;
    let each = bytes as f64 / MEMBERS as f64;
    // Miri runs without the counting allocator, so nothing is counted there. A few members do not amortize the
    // overhead.
    assert!(cfg!(miri) || each <= 80.0, "{each:.1} bytes each");
}

#[test]
fn a_ranking_of_which_everything_moves_is_what_it_was() {
    let (count, each) = if cfg!(miri) { (90, 30) } else { (20_000, 100) };
    for form in [OrderedIndexType::Tree, OrderedIndexType::Skip] {
        let mut ranking = Ranking::new(form, SEED);
        let mut model = BTreeMap::new();
        for number in 0..count {
            let member = format!("member:{number}").into_bytes();
            let score = f64::from(number * 7919 % count / 3);
            ranking.insert_new(ranking.hash(&member), &member, score);
            model.insert(member, score);
        }
        let mut mover = Mover::of_everything();
        let (mut position, mut slices) = (0, 0);
        loop {
            position = ranking.relocate_some(position, each, &mut mover);
            slices += 1;
            // Other operations may happen between two slices.
            let member = format!("member:{}", slices * 31 % count).into_bytes();
            if let Some(place) = ranking.find(ranking.hash(&member), &member) {
                if slices % 2 == 0 {
                    ranking.remove(place);
                    model.remove(&member);
                } else {
                    ranking.set_score(place, -1.0);
                    model.insert(member, -1.0);
                }
            }
            if slices % 16 == 1 {
                ranking.check_invariants();
            }
            if position == 0 {
                break;
            }
        }
        ranking.check_invariants();
        assert!(slices > count / 100 && slices > 2);
        assert!(mover.moved >= count as u64 * 9 / 10, "{}", mover.moved);
        let order: Vec<(Vec<u8>, f64)> = ranking
            .range(0, ranking.len(), Direction::Ascending)
            .map(|(member, score)| (member.to_vec(), score))
            .collect();
        assert_eq!(order, model_order(&model));
    }
}

#[test]
fn an_index_made_of_ascending_items_is_one_as_any_other() {
    let counts: &[u32] = match cfg!(miri) {
        true => &[0, 1, 28, 29, 300],
        false => &[0, 1, 28, 29, 56, 57, 700, 701, 17_500, 17_501, 60_000],
    };
    for &count in counts {
        let items: Vec<u32> = (0..count).map(|number| 2 * number + 1).collect();
        for form in [OrderedIndexType::Tree, OrderedIndexType::Skip] {
            let mut index = Index::of_ascending(form, 7, &items);
            index.check_invariants();
            assert_eq!(index.len(), items.len());
            assert!(
                index
                    .items(0, items.len(), Direction::Ascending)
                    .eq(items.iter().copied())
            );
            for number in 0..count.min(2_000) {
                index.insert(number * 2);
                assert!(index.remove(2 * (count - 1 - number) + 1));
            }
            index.check_invariants();
        }
    }
}

#[test]
fn a_ranking_of_members_that_come_twice_is_none() {
    let made = |members: &[(&str, f64)]| {
        let members = members
            .iter()
            .map(|(member, score)| (member.as_bytes(), *score));
        Ranking::of_ascending(OrderedIndexType::Tree, SEED, members)
    };
    let ranking = made(&[("b", -1.0), ("a", 0.0), ("c", -0.0), ("d", 2.0)]).expect("four members");
    ranking.check_invariants();
    assert_eq!((ranking.len(), ranking.score(b"c")), (4, Some(-0.0)));
    assert!(made(&[("a", 1.0), ("a", 2.0)]).is_none());
    assert!(made(&[("a", f64::NAN)]).is_none());
}

#[cfg(not(any(miri, feature = "system-allocator")))]
#[test]
fn members_and_nodes_leave_sparse_slabs() {
    const MEMBERS: usize = 40_000;
    let mut kept = Ranking::new(OrderedIndexType::Tree, SEED);
    let mut other = Ranking::new(OrderedIndexType::Tree, SEED);
    for number in 0..MEMBERS {
        for ranking in [&mut kept, &mut other] {
            let member = format!("member:{number:030}").into_bytes();
            ranking.insert_new(ranking.hash(&member), &member, number as f64);
        }
    }
    drop(other);
    let mut mover = Mover::new(10).expect("jemalloc can be asked");
    let mut position = 0;
    loop {
        position = kept.relocate_some(position, 128, &mut mover);
        if position == 0 {
            break;
        }
    }
    kept.check_invariants();
    assert_eq!(kept.len(), MEMBERS);
    // The number to move depends on what else the allocator serves meanwhile.
    assert!(mover.moved > 1_000, "{}", mover.moved);
}
