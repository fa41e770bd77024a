//! Tests of `waiting`.

use super::*;

struct Numbered(u64);

impl Waiter for Numbered {
    fn id(&self) -> u64 {
        self.0
    }

    fn is_waiting(&self) -> bool {
        true
    }

    fn into_any(self: Arc<Self>) -> Arc<dyn Any + Send + Sync> {
        self
    }
}

fn waiting(id: u64) -> Waiting {
    Waiting {
        waiter: Arc::new(Numbered(id)),
        interest: WaitCondition {
            data_type: DataType::List,
            when_gone: false,
            when_loaded: false,
            in_turn: false,
        },
    }
}

#[test]
fn a_key_becomes_ready_once_and_only_when_somebody_waits_for_it() {
    let mut waiters = Waiters::default();
    waiters.key_changed(0, b"a");
    assert!(!waiters.has_ready(), "nobody waits");
    waiters.add(0, b"a", waiting(1));
    waiters.add(1, b"b", waiting(1));
    waiters.key_changed(0, b"b");
    assert!(!waiters.has_ready(), "another database");
    waiters.key_changed(1, b"b");
    waiters.key_changed(0, b"a");
    waiters.key_changed(1, b"b");
    let ready: Vec<Place> = waiters.take_ready();
    assert_eq!(ready, [(1, b"b"[..].into()), (0, b"a"[..].into())]);
    assert!(!waiters.has_ready());
    waiters.database_changed(1);
    assert_eq!(waiters.take_ready().len(), 1);
}

#[test]
fn how_many_keys_somebody_waits_for_is_published() {
    let published = Arc::new(Published::new(1));
    let mut waiters = Waiters::published_in(Arc::clone(&published), HashSeed { k0: 1, k1: 2 });
    let shown = || {
        (
            published.waited_keys.get(),
            published.waited_keys_when_gone.get(),
        )
    };
    let mut anxious = waiting(3);
    anxious.interest.when_gone = true;
    waiters.add(0, b"a", waiting(1));
    waiters.add(0, b"a", anxious.clone());
    assert_eq!(shown(), (1, 1));
    waiters.add(0, b"b", anxious.clone());
    waiters.add(0, b"b", anxious);
    assert_eq!(shown(), (2, 2));
    waiters.remove(0, b"a", 3);
    assert_eq!(shown(), (2, 1));
    waiters.remove(0, b"b", 3);
    waiters.remove(0, b"b", 3);
    waiters.remove(0, b"a", 1);
    assert_eq!(shown(), (0, 0));
}

#[test]
fn waiters_stand_in_the_order_in_which_they_came_and_once() {
    let mut waiters = Waiters::default();
    for id in [1, 3, 1, 4] {
        waiters.add(0, b"k", waiting(id));
    }
    let place: Place = (0, b"k"[..].into());
    let order = |waiters: &Waiters| -> Vec<u64> {
        let mut behind = None;
        let next = || {
            behind = Some(waiters.next(&place, behind)?.waiter.id());
            behind
        };
        std::iter::from_fn(next).collect()
    };
    assert_eq!(order(&waiters), [1, 3, 4]);
    assert!(waiters.remove(0, b"k", 1) && !waiters.remove(0, b"k", 1));
    assert_eq!(order(&waiters), [3, 4]);
    assert!(waiters.remove(0, b"k", 3) && waiters.remove(0, b"k", 4));
    assert!(waiters.is_empty());
}

#[test]
fn those_who_wait_in_turn_are_told_from_the_others() {
    let mut waiters = Waiters::default();
    let place: Place = (0, b"k"[..].into());
    let mut patient = waiting(1);
    patient.interest.in_turn = true;
    waiters.add(0, b"k", patient);
    assert!(waiters.are_all_in_turn(&place));
    waiters.add(0, b"k", waiting(2));
    assert!(!waiters.are_all_in_turn(&place));
    let shown = |waiters: &Waiters| {
        let key = b"k";
        (
            waiters.waiting_in_turn(0, key),
            waiters.is_awaited_in_turn(0, key),
        )
    };
    assert_eq!(shown(&waiters), (1, true));
    waiters.remove(0, b"k", 1);
    assert_eq!(shown(&waiters), (0, false));
    assert!(!waiters.is_awaited_in_turn(0, b"other"));
}

#[test]
fn a_million_wait_for_one_key_and_leave_in_any_order() {
    const COUNT: u64 = 1_000_000;
    let mut waiters = Waiters::default();
    let one: Arc<dyn Waiter> = Arc::new(Numbered(0));
    let interest = waiting(0).interest;
    for id in 0..COUNT {
        let waiter: Arc<dyn Waiter> = match id {
            0 => Arc::clone(&one),
            _ => Arc::new(Numbered(id)),
        };
        waiters.add(0, b"k", Waiting { waiter, interest });
    }
    // A step that has neither 2 nor 5 as a factor visits each number once.
    for step in 0..COUNT {
        assert!(waiters.remove(0, b"k", step * 7_919 % COUNT));
    }
    assert!(waiters.is_empty());
}
