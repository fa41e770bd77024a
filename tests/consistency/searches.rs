//! The judge of single keys, with histories that are made up.

use crate::history::NEVER;
use crate::linear::{Event, Object, Verdict, search};
use crate::objects::{Answer, Ask, Call, Leased, Lock, Text, event};

/// A millisecond.
const MS: u64 = 1_000_000;

fn done(began: u64, ended: u64, ask: Ask, answer: Answer) -> Event<Call> {
    let ended = if answer == Answer::Unknown {
        NEVER
    } else {
        ended * MS
    };
    event(began * MS, ended, ask, answer)
}

fn set(value: &str) -> Ask {
    Ask::Set(value.to_owned())
}

fn text(value: &str) -> Answer {
    Answer::Text(value.to_owned())
}

fn holds<O: Object<Call = Call> + Default>(history: &[Event<Call>]) -> bool {
    search(history, O::default()) == Verdict::Linearizable
}

#[test]
fn reads_follow_real_time() {
    let write = |value, began, ended| done(began, ended, set(value), Answer::Done);
    let read = |value, began, ended| done(began, ended, Ask::Get, text(value));
    assert!(holds::<Text>(&[write("a", 0, 1), read("a", 2, 3)]));
    assert!(holds::<Text>(&[
        write("a", 0, 9),
        read("a", 2, 3),
        read("a", 4, 5)
    ]));
    // Stale, from nowhere, and back again.
    assert!(!holds::<Text>(&[
        write("a", 0, 1),
        write("b", 2, 3),
        read("a", 4, 5)
    ]));
    assert!(!holds::<Text>(&[write("a", 0, 1), read("c", 2, 3)]));
    let back = [
        write("a", 0, 1),
        write("b", 2, 9),
        read("b", 3, 4),
        read("a", 5, 6),
    ];
    assert!(!holds::<Text>(&back));
}

#[test]
fn commands_answer_from_the_state_before_them() {
    let number = Answer::Number;
    let if_eq = |value: &str, wanted: &str| Ask::SetIfEq(value.to_owned(), wanted.to_owned());
    let good = [
        done(0, 1, Ask::Incr, number(1)),
        done(2, 3, Ask::Append("x".to_owned()), number(2)),
        done(4, 5, Ask::Incr, Answer::NotAnInteger),
        done(6, 7, if_eq("5", "1x"), Answer::Done),
        done(8, 9, if_eq("6", "1x"), Answer::Nil),
        done(10, 11, Ask::Incr, number(6)),
        done(12, 13, Ask::Del, number(1)),
        done(14, 15, Ask::Get, Answer::Nil),
    ];
    assert!(holds::<Text>(&good));
    let mut twice = good.to_vec();
    twice[5].call.1 = number(7);
    assert_eq!(search(&twice, Text::default()), Verdict::Broken(5));
    let both_first = [
        done(0, 5, Ask::Incr, number(1)),
        done(0, 5, Ask::Incr, number(1)),
    ];
    assert!(!holds::<Text>(&both_first));
}

#[test]
fn what_was_not_answered_may_have_happened_or_not() {
    let unknown = done(0, 0, set("a"), Answer::Unknown);
    let read = |answer: Answer, began| done(began, began + 1, Ask::Get, answer);
    let nil = || read(Answer::Nil, 2);
    assert!(holds::<Text>(&[unknown.clone(), nil()]));
    assert!(holds::<Text>(&[
        unknown.clone(),
        nil(),
        read(text("a"), 100)
    ]));
    assert!(!holds::<Text>(&[
        unknown.clone(),
        read(text("a"), 2),
        read(Answer::Nil, 4)
    ]));
    // Its server was dead before the read.
    let settled = Event {
        ended: 5 * MS,
        ..unknown
    };
    assert!(holds::<Text>(&[settled.clone(), read(text("a"), 100)]));
    assert!(!holds::<Text>(&[
        settled,
        nil(),
        read(Answer::Nil, 50),
        read(text("a"), 100)
    ]));
}

#[test]
fn a_key_ends_at_its_time() {
    let start = [
        done(0, 1, set("a"), Answer::Done),
        done(10, 12, Ask::PExpire(500), Answer::Number(1)),
    ];
    let with = |answer: Answer, began| {
        let read = done(began, began + 1, Ask::Get, answer);
        holds::<Text>(&[&start[..], &[read]].concat())
    };
    assert!(with(text("a"), 20));
    assert!(!with(Answer::Nil, 200));
    assert!(with(Answer::Nil, 510));
    assert!(with(text("a"), 510));
    assert!(!with(text("a"), 1_000));
    assert!(with(Answer::Nil, 1_000));
}

#[test]
fn fences_grow_with_each_owner() {
    let lock = |owner: &str, at, answer| done(at, at + 1, Ask::Lock(owner.to_owned()), answer);
    let unlock = |owner: &str, at, answer| done(at, at + 1, Ask::Unlock(owner.to_owned()), answer);
    let (held, number) = (Answer::Held, Answer::Number);
    let good = vec![
        lock("a", 0, held(5, 1)),
        lock("a", 2, held(5, 2)),
        lock("b", 4, Answer::Nil),
        unlock("b", 6, Answer::NotTheOwner),
        unlock("a", 8, number(1)),
        unlock("a", 10, number(0)),
        lock("b", 12, held(6, 1)),
    ];
    assert!(holds::<Lock>(&good));
    let with_last = |answer| {
        let mut history = good.clone();
        history[6].call.1 = answer;
        holds::<Lock>(&history)
    };
    assert!(!with_last(held(5, 1)));
    assert!(!with_last(held(4, 1)));
    assert!(!with_last(Answer::Nil));
    // A fence that nobody was told lies between.
    let mut unknown = vec![lock("a", 0, held(5, 1)), unlock("a", 2, number(0))];
    unknown.push(lock("a", 4, Answer::Unknown));
    assert!(holds::<Lock>(
        &[&unknown[..], &[lock("a", 6, held(7, 2))]].concat()
    ));
    assert!(!holds::<Lock>(
        &[&unknown[..], &[lock("a", 6, held(5, 2))]].concat()
    ));
}

#[test]
fn a_value_is_filled_under_the_lease_in_force() {
    let fill = |token, at, answer| {
        let ask = Ask::LFill(token, "v".to_owned());
        done(at, at + 1, ask, Answer::Number(answer))
    };
    let start = [
        done(0, 1, Ask::LGet, Answer::Miss(3)),
        done(2, 3, Ask::LGet, Answer::Busy),
    ];
    let with = |rest: &[Event<Call>]| holds::<Leased>(&[&start[..], rest].concat());
    assert!(with(&[fill(3, 4, 1), done(6, 7, Ask::LGet, text("v"))]));
    assert!(with(&[fill(2, 4, 0)]));
    assert!(!with(&[fill(2, 4, 1)]));
    assert!(!with(&[done(4, 5, Ask::LGet, Answer::Miss(4))]));
    let deleted = done(4, 5, Ask::Del, Answer::Number(0));
    assert!(with(&[deleted.clone(), fill(3, 6, 0)]));
    assert!(!with(&[deleted, fill(3, 6, 1)]));
}
