//! The judges of transactions, with histories that are made up: each anomaly is found by its name, and nothing else.

use std::collections::HashMap;

use crate::edn::{self, Edn};
use crate::history::{Element, Form, Key, NEVER, Op, Outcome, Txn};
use crate::list_append::{Anomalies, judge};
use crate::survivors::judge_survivors;

const X: Key = 1;
const Y: Key = 2;

/// A transaction of its own process, with an outcome.
fn txn(process: u64, (began, ended): (u64, u64), outcome: Outcome, ops: Vec<Op>) -> Txn {
    Txn {
        process,
        form: Form::Multi,
        began,
        ended,
        outcome,
        ops,
        follows: false,
    }
}

/// Transactions that are all answered, and all under way at once.
fn at_once(all: Vec<Vec<Op>>) -> Vec<Txn> {
    let numbered = all.into_iter().zip(0..);
    numbered
        .map(|(ops, process)| txn(process, (0, 100), Outcome::Ok, ops))
        .collect()
}

/// Transactions that are all answered, one after the other.
fn in_turn(all: Vec<Vec<Op>>) -> Vec<Txn> {
    let numbered = all.into_iter().zip(0..);
    numbered
        .map(|(ops, at)| txn(at, (10 * at, 10 * at + 5), Outcome::Ok, ops))
        .collect()
}

fn append(key: Key, element: Element) -> Op {
    Op::Append(key, element)
}

fn read(key: Key, list: &[Element]) -> Op {
    Op::Read(key, Some(list.to_vec()))
}

fn names(anomalies: &Anomalies) -> Vec<&'static str> {
    anomalies.found.keys().copied().collect()
}

#[track_caller]
fn shows(history: &[Txn], expected: &[&str]) {
    let anomalies = judge(history);
    assert_eq!(names(&anomalies), expected, "{anomalies:#?}");
}

#[test]
fn a_serial_history_shows_nothing() {
    shows(&[], &[]);
    shows(
        &in_turn(vec![
            vec![append(X, 1), append(Y, 2)],
            vec![read(X, &[1]), append(X, 3), read(X, &[1, 3])],
            vec![read(Y, &[2]), read(X, &[1, 3])],
        ]),
        &[],
    );
    // The order of beginnings is not that of the transactions.
    shows(
        &at_once(vec![
            vec![read(X, &[1, 2]), read(Y, &[3])],
            vec![append(X, 2), append(Y, 3)],
            vec![append(X, 1), read(Y, &[])],
        ]),
        &[],
    );
}

#[test]
fn writes_in_two_orders_are_g0() {
    let mut history = at_once(vec![
        vec![append(X, 1), append(Y, 2)],
        vec![append(X, 3), append(Y, 4)],
    ]);
    history.push(txn(2, (101, 110), Outcome::Ok, vec![read(X, &[1, 3])]));
    history.push(txn(3, (101, 110), Outcome::Ok, vec![read(Y, &[4, 2])]));
    shows(&history, &["G0"]);
}

#[test]
fn reads_of_refused_and_of_half_transactions_are_g1() {
    let refused = txn(0, (0, 5), Outcome::Fail, vec![append(X, 1)]);
    let reader = txn(1, (10, 15), Outcome::Ok, vec![read(X, &[1])]);
    shows(&[refused, reader], &["G1a"]);
    let halves = vec![vec![append(X, 1), append(X, 2)], vec![read(X, &[1])]];
    shows(&at_once(halves), &["G1b"]);
}

#[test]
fn information_that_flows_in_a_circle_is_g1c() {
    let each_sees_the_other = vec![
        vec![append(X, 1), read(Y, &[2])],
        vec![append(Y, 2), read(X, &[1])],
    ];
    shows(&at_once(each_sees_the_other), &["G1c"]);
}

#[test]
fn a_read_of_half_a_transaction_is_g_single() {
    let half = vec![
        vec![append(X, 1), append(Y, 2)],
        vec![read(X, &[1]), read(Y, &[])],
        vec![read(Y, &[2])],
    ];
    shows(&at_once(half), &["G-single"]);
}

#[test]
fn write_skew_is_g2() {
    let skew = vec![
        vec![read(X, &[]), append(Y, 1)],
        vec![read(Y, &[]), append(X, 2)],
        vec![read(X, &[2]), read(Y, &[1])],
    ];
    shows(&at_once(skew), &["G2"]);
}

#[test]
fn what_real_time_alone_forbids_has_its_own_names() {
    let stale = vec![vec![append(X, 1)], vec![read(X, &[])], vec![read(X, &[1])]];
    shows(&in_turn(stale), &["G-single-realtime"]);
    let from_the_future = vec![vec![read(X, &[1])], vec![append(X, 1)]];
    shows(&in_turn(from_the_future), &["G1c-realtime"]);
    let turned_round = vec![
        vec![append(X, 1)],
        vec![append(X, 2)],
        vec![read(X, &[2, 1])],
    ];
    shows(&in_turn(turned_round), &["G0-realtime"]);
    // Two readers see two independent writes in different orders, which no edge between data contradicts but both
    // reads of what is missing.
    let fork = vec![
        vec![append(X, 1)],
        vec![append(Y, 2)],
        vec![read(X, &[1]), read(Y, &[])],
        vec![read(X, &[]), read(Y, &[2])],
    ];
    shows(&at_once(fork), &["G2"]);
}

#[test]
fn commands_of_a_pipeline_keep_their_order() {
    let mut history = at_once(vec![
        vec![append(X, 1)],
        vec![read(X, &[])],
        vec![read(X, &[1])],
    ]);
    shows(&history, &[]);
    (history[1].process, history[1].follows) = (0, true);
    shows(&history, &["G-single-realtime"]);
}

#[test]
fn lists_that_no_appends_make_are_found() {
    let orders = vec![
        vec![append(X, 1)],
        vec![append(X, 2)],
        vec![read(X, &[1, 2])],
    ];
    let with = |list: &[Element]| {
        let mut all = orders.clone();
        all.push(vec![read(X, list)]);
        names(&judge(&at_once(all)))
    };
    assert!(with(&[1]).is_empty());
    assert!(with(&[2]).contains(&"incompatible-order"));
    assert!(with(&[1, 2, 9]).contains(&"phantom"));
    assert!(with(&[1, 2, 1]).contains(&"duplicate-elements"));
    let forgotten = vec![vec![append(X, 1)], vec![append(X, 2)], vec![read(X, &[1])]];
    shows(&in_turn(forgotten), &["lost-append"]);
    let own = vec![vec![append(X, 1), read(X, &[])], vec![read(X, &[1])]];
    assert!(names(&judge(&at_once(own))).contains(&"internal"));
}

#[test]
fn an_unknown_outcome_may_be_either() {
    let unknown = txn(0, (0, NEVER), Outcome::Info, vec![append(X, 1)]);
    let seen = txn(1, (10, 15), Outcome::Ok, vec![read(X, &[1])]);
    let not_seen = txn(1, (10, 15), Outcome::Ok, vec![read(X, &[])]);
    let seen_later = txn(2, (20, 25), Outcome::Ok, vec![read(X, &[1])]);
    shows(&[unknown.clone(), seen.clone()], &[]);
    shows(&[unknown.clone(), not_seen.clone()], &[]);
    shows(&[unknown.clone(), not_seen, seen_later], &[]);
    let gone = txn(2, (20, 25), Outcome::Ok, vec![read(X, &[])]);
    shows(&[unknown, seen, gone], &["G-single-realtime"]);
}

#[test]
fn a_long_history_is_judged_and_one_stale_read_in_it_is_found() {
    const LENGTH: u64 = 100_000;
    const PER_KEY: u64 = 20;
    let ops = |at: u64| {
        let (key, first) = (at / PER_KEY, at / PER_KEY * PER_KEY);
        let before: Vec<Element> = (first..at).collect();
        vec![
            append(key, at),
            append(LENGTH + key, at),
            read(key, &[before, vec![at]].concat()),
        ]
    };
    let mut history = in_turn((0..LENGTH).map(ops).collect());
    assert!(judge(&history).is_empty());
    // It begins when ten more had been appended.
    let at = LENGTH / 2;
    let stale = vec![read(at / PER_KEY, &[at, at + 1, at + 2])];
    let time = (10 * (at + 12) + 6, 10 * (at + 12) + 8);
    history.push(txn(LENGTH, time, Outcome::Ok, stale));
    shows(&history, &["G-single-realtime"]);
}

// Data that survive a fault ------------------------------------------------------------------------------------------

fn survivors(lists: &[(Key, &[Element])], kept_until: u64) -> (usize, Vec<&'static str>) {
    let history = in_turn(vec![
        vec![append(X, 1)],
        vec![append(X, 2), append(Y, 3)],
        vec![append(Y, 4)],
    ]);
    let lists = lists.iter().map(|(key, list)| (*key, list.to_vec()));
    let survival = judge_survivors(&history, &HashMap::from_iter(lists), kept_until);
    assert_eq!(survival.answered, 3);
    (survival.lost, names(&survival.anomalies))
}

#[test]
fn a_fault_may_take_the_end_and_nothing_else() {
    assert_eq!(survivors(&[(X, &[1, 2]), (Y, &[3, 4])], 100), (0, vec![]));
    assert_eq!(survivors(&[(X, &[1, 2]), (Y, &[3])], 20), (1, vec![]));
    assert_eq!(
        survivors(&[(X, &[1, 2]), (Y, &[3])], 30),
        (1, vec!["lost-append"])
    );
    assert_eq!(survivors(&[], 0), (3, vec![]));
    assert_eq!(survivors(&[(X, &[1]), (Y, &[3])], 0), (1, vec!["torn"]));
    assert_eq!(survivors(&[(X, &[1]), (Y, &[4])], 0), (1, vec!["hole"]));
    assert_eq!(survivors(&[(X, &[1, 9])], 0), (2, vec!["phantom"]));
}

// EDN ----------------------------------------------------------------------------------------------------------------

#[test]
fn a_history_in_the_form_of_elle_is_read() {
    let text = "
        ; two processes
        {:index 0, :type :invoke, :process 0, :time 10, :f :txn, :value [[:append 1 7] [:r 2 nil]]}
        {:index 1 :type :invoke :process 1 :time 11 :f :txn :value [[:r 1 nil]]}
        {:index 2, :type :ok, :process 0, :time 20, :f :txn, :value [[:append 1 7] [:r 2 []]]}
        {:index 3, :type :info, :process 1, :time 30, :f :txn, :value [[:r 1 nil]]}";
    let first = txn(0, (10, 20), Outcome::Ok, vec![append(X, 7), read(Y, &[])]);
    let second = txn(1, (11, NEVER), Outcome::Info, vec![Op::Read(X, None)]);
    assert_eq!(edn::read(text), Some(vec![first, second]));
    assert_eq!(
        edn::read("{:index 0, :type :ok, :process 0, :time 1, :value []}"),
        None
    );
    assert_eq!(edn::read("{:index 0, :type"), None);
    assert_eq!(edn::parse("[nil :a -1] true"), {
        let items = vec![Edn::Nil, Edn::Keyword("a".to_owned()), Edn::Integer(-1)];
        Some(vec![Edn::Vector(items), Edn::Boolean(true)])
    });
}

#[test]
fn commands_of_a_pipeline_are_processes_of_their_own_in_edn() {
    let mut history = at_once(vec![
        vec![append(X, 1)],
        vec![read(X, &[1])],
        vec![read(X, &[1])],
    ]);
    for at in [1, 2] {
        (history[at].process, history[at].follows) = (0, true);
        history[at].form = Form::Bare;
    }
    let text = edn::write(&history);
    assert!(text.contains(":process 2000000"), "{text}");
    assert_eq!(edn::read(&text), Some(history));
}
