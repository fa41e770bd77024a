//! Tests of the token with real threads: each rule of the protocol by itself, then all at once under load.
//! Orders that threads rarely produce are left to the models (`models.rs`).

use std::sync::Arc;
use std::sync::atomic::Ordering::{AcqRel, Acquire, Relaxed, Release};
use std::sync::atomic::{AtomicBool, AtomicUsize};
use std::sync::mpsc;
use std::task::{Poll, Wake, Waker};
use std::thread;

use super::engines::HeldEngines;
use super::queued::QueuedMessage;
use super::sync::InjectedFault;
use super::tokens::Offloaded;
use super::{DRAIN_MESSAGES_MAX, ShardMessage, ShardSet, holds};
use basalt_core::base::random::Random;

/// An engine that records the work done on it.
#[derive(Default)]
struct Ledger {
    sum: u64,
    /// True while a thread works on this engine.
    busy: bool,
    notes: Vec<u64>,
    /// By thread, the last number of the thread's messages that had this shard as their first.
    last_of: Vec<u64>,
}

impl Ledger {
    fn work(&mut self, amount: u64) {
        assert!(!self.busy, "two at once in one engine");
        self.busy = true;
        self.sum += amount;
        std::hint::black_box(&mut *self);
        self.busy = false;
    }

    fn in_order(&mut self, thread: usize, number: u64) {
        if self.last_of.len() <= thread {
            self.last_of.resize(thread + 1, 0);
        }
        assert!(
            self.last_of[thread] < number,
            "thread {thread}: {number} came late"
        );
        self.last_of[thread] = number;
    }
}

fn ledgers(count: usize) -> Vec<Ledger> {
    (0..count).map(|_| Ledger::default()).collect()
}

type Runs = Box<dyn FnMut(&mut HeldEngines<'_, Ledger>) + Send>;
type Finishes = Box<dyn FnOnce() + Send>;

/// A message whose work the test defines.
struct Job {
    shards: Vec<u16>,
    runs: Runs,
    finishes: Option<Finishes>,
    /// The channel to which it is offloaded, if it is slow.
    offloads_to: Option<mpsc::Sender<Offloaded<Job>>>,
}

impl ShardMessage<Ledger> for Job {
    fn shards(&self) -> &[u16] {
        &self.shards
    }

    fn run(&mut self, engines: &mut HeldEngines<'_, Ledger>) {
        assert_eq!(engines.shards(), self.shards);
        (self.runs)(engines);
    }

    fn finish(queued: Box<QueuedMessage<Self>>) {
        assert!(!holds::is_open(), "finished with a token in hand");
        if let Some(finishes) = queued.into_message().finishes {
            finishes();
        }
    }

    fn is_offloaded(&self) -> bool {
        self.offloads_to.is_some()
    }

    fn offload(mut offloaded: Offloaded<Self>) {
        let to = offloaded.message().offloads_to.clone();
        let _ = to.expect("it is offloaded").send(offloaded);
    }
}

fn job(
    shards: &[u16],
    runs: impl FnMut(&mut HeldEngines<'_, Ledger>) + Send + 'static,
) -> Box<QueuedMessage<Job>> {
    QueuedMessage::new(Job {
        shards: shards.to_vec(),
        runs: Box::new(runs),
        finishes: None,
        offloads_to: None,
    })
}

fn note(shards: &[u16], number: u64) -> Box<QueuedMessage<Job>> {
    job(shards, move |engines| {
        engines
            .iter()
            .for_each(|(_, ledger)| ledger.notes.push(number))
    })
}

fn finishing(
    mut queued: Box<QueuedMessage<Job>>,
    then: impl FnOnce() + Send + 'static,
) -> Box<QueuedMessage<Job>> {
    queued.finishes = Some(Box::new(then));
    queued
}

type TestShards = ShardSet<Ledger, Job>;

fn notes(shards: &TestShards, shard: u16) -> Vec<u64> {
    shards.try_take(shard).expect("free").notes.clone()
}

fn poll_worker(shards: &TestShards, shard: u16) -> Poll<usize> {
    shards
        .poll_worker(shard, Waker::noop())
        .map(|round| round.messages)
}

#[test]
fn a_token_is_taken_once_and_free_again_after_the_guard() {
    let shards = TestShards::new(ledgers(2));
    let mut held = shards.try_take(1).expect("free");
    assert_eq!(held.shard(), 1);
    held.work(3);
    assert!(shards.try_take(1).is_none());
    assert!(shards.take_spinning(1, 3).is_none());
    assert!(shards.try_take(0).is_some());
    drop(held);
    assert_eq!(shards.try_take(1).expect("free").sum, 3);
    let counters = shards.counters(1);
    assert_eq!((counters.takes, counters.takes_found_held), (2, 2));
}

#[test]
fn a_message_for_a_free_shard_runs_at_once_and_for_a_held_one_at_the_release() {
    let shards = TestShards::new(ledgers(1));
    shards.submit(note(&[0], 1));
    let held = shards.try_take(0).expect("free");
    assert_eq!(held.notes, [1]);
    shards.submit(note(&[0], 2));
    shards.submit(note(&[0], 3));
    assert_eq!(held.notes, [1]);
    drop(held);
    assert_eq!(notes(&shards, 0), [1, 2, 3]);
    assert_eq!(shards.counters(0).queued, 2);
}

#[test]
fn finish_comes_after_the_last_token_of_the_thread_in_the_order_of_the_runs() {
    let shards = Arc::new(TestShards::new(ledgers(3)));
    let (told, finished) = mpsc::channel();
    let outer = shards.try_take(2).expect("free");
    let inner = shards.try_take(0).expect("free");
    for number in 0..3 {
        let told = told.clone();
        let queued = finishing(note(&[0], number), move || {
            told.send(number).expect("the test listens")
        });
        shards.submit(queued);
    }
    drop(inner);
    let told_by_free = told.clone();
    shards.submit(finishing(note(&[1], 3), move || {
        told_by_free.send(3).expect("the test listens")
    }));
    assert!(finished.try_recv().is_err(), "shard 2 is still in hand");
    drop(outer);
    assert_eq!(finished.try_iter().collect::<Vec<_>>(), [0, 1, 2, 3]);
}

#[test]
fn a_finish_may_submit_and_a_long_chain_of_them_does_not_grow_the_stack() {
    fn step(shards: &Arc<TestShards>, left: u64) -> Box<QueuedMessage<Job>> {
        let again = Arc::clone(shards);
        finishing(note(&[0, 1], left), move || {
            if left > 0 {
                again.submit(step(&again, left - 1));
            }
        })
    }
    let shards = Arc::new(TestShards::new(ledgers(2)));
    let length = scaled(100_000);
    shards.submit(step(&shards, length));
    assert_eq!(notes(&shards, 1).len() as u64, length + 1);
}

#[test]
fn past_the_bound_the_worker_gets_the_rest_in_order_round_by_round() {
    let shards = TestShards::new(ledgers(1));
    let bound = DRAIN_MESSAGES_MAX as u64;
    assert_eq!(poll_worker(&shards, 0), Poll::Pending);
    let held = shards.try_take(0).expect("free");
    for number in 0..bound * 2 + 5 {
        shards.submit(note(&[0], number));
    }
    drop(held);
    assert!(shards.try_take(0).is_none(), "the worker has it");
    shards.submit(note(&[0], bound * 2 + 5));
    assert_eq!(poll_worker(&shards, 0), Poll::Ready(64));
    assert!(shards.try_take(0).is_none(), "the worker still has it");
    assert_eq!(poll_worker(&shards, 0), Poll::Ready(6));
    assert_eq!(poll_worker(&shards, 0), Poll::Pending);
    assert_eq!(notes(&shards, 0), (0..=bound * 2 + 5).collect::<Vec<_>>());
    assert_eq!(shards.counters(0).worker_handovers, 2);
}

#[test]
fn a_handed_over_token_wakes_the_worker_once_it_sleeps() {
    struct Bell(AtomicUsize);
    impl Wake for Bell {
        fn wake(self: Arc<Self>) {
            self.0.fetch_add(1, Relaxed);
        }
    }
    let shards = TestShards::with(ledgers(1), 1, InjectedFault::None);
    let bell = Arc::new(Bell(AtomicUsize::new(0)));
    assert!(
        shards
            .poll_worker(0, &Waker::from(Arc::clone(&bell)))
            .is_pending()
    );
    let held = shards.try_take(0).expect("free");
    shards.submit(note(&[0], 1));
    shards.submit(note(&[0], 2));
    assert_eq!(bell.0.load(Relaxed), 0);
    drop(held);
    assert_eq!(bell.0.load(Relaxed), 1);
    assert_eq!(poll_worker(&shards, 0), Poll::Ready(1));
    assert_eq!(notes(&shards, 0), [1, 2]);
}

#[test]
fn a_message_over_free_shards_runs_at_once_with_all_of_them() {
    let shards = TestShards::new(ledgers(4));
    shards.submit(note(&[0, 2, 3], 7));
    assert_eq!(
        (0..4).map(|s| notes(&shards, s).len()).collect::<Vec<_>>(),
        [1, 0, 1, 1]
    );
    let counters = shards.counters(0);
    assert_eq!(
        (
            counters.multi_shard_runs,
            counters.handed_over,
            counters.queued
        ),
        (1, 1, 0)
    );
}

#[test]
fn a_message_travels_with_its_tokens_and_the_last_holder_runs_it() {
    let shards = TestShards::new(ledgers(3));
    let one = shards.try_take(1).expect("free");
    let two = shards.try_take(2).expect("free");
    shards.submit(note(&[0, 1, 2], 1));
    assert!(shards.try_take(0).is_none(), "it has shard 0 with it");
    shards.submit(note(&[0], 2)); // waits behind the traveller
    shards.submit(note(&[1], 3)); // so does this
    drop(one);
    assert!(shards.try_take(1).is_none(), "it has shard 1 with it");
    drop(two);
    assert_eq!(notes(&shards, 0), [1, 2]);
    assert_eq!(notes(&shards, 1), [1, 3]);
    assert_eq!(notes(&shards, 2), [1]);
    assert_eq!(
        shards.counters(0).handed_over + shards.counters(1).handed_over,
        2
    );
}

#[test]
fn what_queued_behind_a_traveller_keeps_its_place_before_newer_messages() {
    let shards = TestShards::new(ledgers(2));
    let zero = shards.try_take(0).expect("free");
    let one = shards.try_take(1).expect("free");
    shards.submit(note(&[0, 1], 1));
    shards.submit(note(&[0], 2));
    shards.submit(note(&[0], 3));
    drop(zero); // 1 leaves for shard 1 with the token; 2 and 3 become the backlog
    shards.submit(note(&[0], 4));
    drop(one);
    assert_eq!(notes(&shards, 0), [1, 2, 3, 4]);
}

#[test]
fn many_travellers_that_set_each_other_free_do_not_grow_the_stack() {
    let count = if cfg!(miri) { 32 } else { 1024 };
    let shards = TestShards::new(ledgers(count.into()));
    let last = shards.try_take(count - 1).expect("free");
    // Each message waits for the shard of the next message: releasing the last shard sets all in motion, one
    // after the other.
    for shard in (0..count - 1).rev() {
        shards.submit(note(&[shard, shard + 1], shard.into()));
    }
    drop(last);
    for round in 0.. {
        let done = (0..count).all(|s| poll_worker(&shards, s).is_pending());
        if done {
            break;
        }
        assert!(round < count, "the workers make no progress");
    }
    assert_eq!(notes(&shards, 0), [0]);
    for shard in 1..count - 1 {
        assert_eq!(notes(&shards, shard), [shard.into(), u64::from(shard) - 1]);
    }
}

#[test]
fn all_or_none_lets_go_of_everything_and_runs_what_came_in() {
    let shards = Arc::new(TestShards::new(ledgers(4)));
    let three = shards.try_take(3).expect("free");
    assert!(shards.try_take_all(&[0, 1, 3]).is_none());
    assert!(shards.seems_free(0) && shards.seems_free(1));
    drop(three);
    let mut all = shards.try_take_all(&[0, 1, 3]).expect("free");
    assert_eq!(all.shards(), [0, 1, 3]);
    let mut engines = all.engines();
    assert_eq!((engines.len(), engines.shards()), (3, &[0, 1, 3][..]));
    assert!(engines.get(2).is_none());
    engines.get(1).expect("in hand").work(1);
    engines.first().work(10);
    assert_eq!(
        engines.iter().map(|(_, ledger)| ledger.sum).sum::<u64>(),
        11
    );
    shards.submit(note(&[1, 2], 5));
    assert_eq!(notes(&shards, 2).len(), 0);
    drop(all);
    assert_eq!((notes(&shards, 1), notes(&shards, 2)), (vec![5], vec![5]));
}

/// Submits a message that holds these shards for long; returns the channel where it arrives with its tokens.
fn submit_offloaded(shards: &TestShards, route: &[u16]) -> mpsc::Receiver<Offloaded<Job>> {
    let (sender, arrived) = mpsc::channel();
    let mut queued = note(route, 0);
    queued.offloads_to = Some(sender);
    shards.submit(queued);
    arrived
}

#[test]
fn where_a_shard_is_held_for_long_messages_wait_in_turn_and_without_other_tokens() {
    let shards = TestShards::new(ledgers(4));
    let held = shards.try_take(2).expect("free");
    shards.submit(note(&[1, 2, 3], 1)); // waits there with the token of 1
    assert!(!shards.seems_free(1));
    let arrived = submit_offloaded(&shards, &[2]);
    shards.submit(note(&[1, 2], 2)); // waits for 1, with no token
    drop(held); // 1 runs, then the long one is offloaded, and 2 meets it
    let long = arrived.recv().expect("its shard is free");
    assert!((0..4).all(|shard| shards.seems_free(shard) == (shard != 2)));
    for number in 3..6 {
        shards.submit(note(&[0, 2, 3], number));
        assert!((0..4).all(|shard| shards.seems_free(shard) == (shard != 2)));
    }
    shards.resume(long, |_, _| ());
    assert_eq!(notes(&shards, 2), [1, 2, 3, 4, 5]);
}

#[test]
fn who_stands_behind_a_message_that_is_offloaded_waits_without_other_tokens() {
    let shards = TestShards::new(ledgers(3));
    let held = shards.try_take(2).expect("free");
    let arrived = submit_offloaded(&shards, &[2]);
    shards.submit(note(&[1, 2], 1)); // waits behind it with the token of 1
    drop(held);
    let long = arrived.recv().expect("its shard is free");
    assert!(
        shards.seems_free(1),
        "it keeps others from 1 for as long as 2 is held"
    );
    shards.resume(long, |_, _| ());
    assert_eq!(notes(&shards, 2), [1]);
}

#[test]
fn a_message_that_misses_its_other_shards_starts_over_and_insists_in_the_end() {
    let shards = TestShards::new(ledgers(3));
    let insisting = |number| {
        let mut queued = note(&[0, 2], number);
        queued.misses = u8::MAX;
        shards.submit(queued);
    };
    let offloaded = || submit_offloaded(&shards, &[2]).recv().expect("free");
    let long = offloaded();
    shards.submit(note(&[0, 2], 1));
    let low = shards.try_take(0).expect("it waits without tokens");
    shards.resume(long, |_, _| ()); // its turn: shard 0 is held, so it queues there
    assert!(shards.seems_free(2));
    drop(low);
    assert_eq!((notes(&shards, 0), notes(&shards, 2)), (vec![1], vec![1]));
    insisting(2);
    let long = offloaded();
    insisting(3);
    assert!(!shards.seems_free(0), "it waits with its token");
    shards.resume(long, |_, _| ());
    assert_eq!(
        (notes(&shards, 0), notes(&shards, 2)),
        (vec![1, 2, 3], vec![1, 2, 3])
    );
}

#[test]
fn what_engines_leave_to_be_done_is_done_when_the_thread_has_no_token() {
    thread_local!(static LOG: std::cell::RefCell<Vec<&'static str>> = Default::default());
    struct Leaving(&'static [u16]);
    impl ShardMessage<Vec<&'static str>> for Leaving {
        fn shards(&self) -> &[u16] {
            self.0
        }
        fn run(&mut self, engines: &mut HeldEngines<'_, Vec<&'static str>>) {
            engines
                .iter()
                .for_each(|(_, engine)| engine.push("message"));
        }
        fn finish(_: Box<QueuedMessage<Self>>) {
            LOG.with_borrow_mut(|log| log.push("finish"));
        }
        fn collect(engine: &mut Vec<&'static str>) -> bool {
            let has_some = !engine.is_empty();
            LOG.with_borrow_mut(|log| log.append(engine));
            has_some
        }
        fn settle() {
            assert!(!holds::is_open(), "settled with a token in hand");
            LOG.with_borrow_mut(|log| log.push("settled"));
        }
    }
    let shards = ShardSet::<Vec<&'static str>, Leaving>::new(vec![Vec::new(); 2]);
    let mut one = shards.try_take(1).expect("free");
    shards.submit(QueuedMessage::new(Leaving(&[0, 1])));
    one.push("guard");
    drop(one);
    LOG.with_borrow_mut(|log| {
        let expected = ["guard", "message", "message", "settled", "finish"];
        assert_eq!(std::mem::take(log), expected);
    });
    let mut all = shards.try_take_all(&[0, 1]).expect("free");
    all.engines().first().push("several");
    let other = shards.try_take(1);
    assert!(other.is_none());
    drop(all);
    LOG.with_borrow_mut(|log| assert_eq!(std::mem::take(log), ["several", "settled"]));
}

#[test]
fn wrong_shards_are_refused_before_any_token_is_taken() {
    let shards = TestShards::new(ledgers(2));
    for wrong in [&[][..], &[1, 0], &[1, 1], &[0, 2]] {
        let submits = || shards.submit(note(wrong, 1));
        assert!(std::panic::catch_unwind(std::panic::AssertUnwindSafe(submits)).is_err());
        if wrong.is_empty() {
            continue; // more may be tried for
        }
        let takes = || drop(shards.try_take_all(wrong));
        assert!(std::panic::catch_unwind(std::panic::AssertUnwindSafe(takes)).is_err());
    }
    assert!(shards.try_take_all(&[0, 1]).is_some());
}

#[test]
fn what_is_still_queued_when_the_set_goes_is_dropped_once() {
    let live = Arc::new(());
    let shards = TestShards::with(ledgers(3), 0, InjectedFault::None);
    let queue = |route: &[u16]| {
        let live = Arc::clone(&live);
        shards.submit(job(route, move |_| {
            let _ = &live;
        }));
    };
    let held = shards.try_take(1).expect("free");
    queue(&[0, 1]);
    queue(&[0]);
    queue(&[1, 2]);
    queue(&[1]);
    drop(held); // a bound of none: all of it goes to the worker, which never looks
    queue(&[1]);
    assert_eq!(Arc::strong_count(&live), 6);
    drop(shards);
    assert_eq!(Arc::strong_count(&live), 1);
}

#[test]
fn messages_can_be_recycled() {
    let (sender, back) = mpsc::channel::<Box<QueuedMessage<Again>>>();
    struct Again(mpsc::Sender<Box<QueuedMessage<Again>>>, [u16; 2]);
    impl ShardMessage<Ledger> for Again {
        fn shards(&self) -> &[u16] {
            &self.1
        }
        fn run(&mut self, engines: &mut HeldEngines<'_, Ledger>) {
            engines.iter().for_each(|(_, ledger)| ledger.work(1));
        }
        fn finish(queued: Box<QueuedMessage<Self>>) {
            let home = queued.0.clone();
            home.send(queued).expect("the test listens");
        }
    }
    let shards = ShardSet::<Ledger, Again>::new(ledgers(3));
    let mut queued = QueuedMessage::new(Again(sender, [0, 1]));
    for round in 0..10 {
        queued.1 = if round % 2 == 0 { [0, 1] } else { [1, 2] };
        shards.submit(queued);
        queued = back.recv().expect("comes back");
    }
    assert_eq!(shards.try_take(1).expect("free").sum, 10);
}

#[test]
fn a_panic_under_a_token_ends_the_process() {
    const CHILD: &str = "BASALT_TEST_PANICS_UNDER_A_TOKEN";
    match std::env::var(CHILD).as_deref() {
        Ok("guard") => {
            let shards = TestShards::new(ledgers(1));
            let _held = shards.try_take(0);
            panic!("as asked");
        }
        Ok(_) => TestShards::new(ledgers(1)).submit(job(&[0], |_| panic!("as asked"))),
        Err(_) => {}
    }
    if cfg!(miri) {
        return; // no processes there
    }
    let name = thread::current()
        .name()
        .expect("tests have names")
        .to_owned();
    for case in ["guard", "message"] {
        let child = std::process::Command::new(std::env::current_exe().expect("known"))
            .args([&name, "--exact", "--test-threads=1"])
            .env(CHILD, case)
            .output()
            .expect("runs");
        let status = std::os::unix::process::ExitStatusExt::signal(&child.status);
        assert_eq!(status, Some(6), "{case}: SIGABRT, not {:?}", child.status);
    }
}

/// One thread that acts as the worker of every shard, and sleeps when none has work.
struct Workers {
    stop: Arc<AtomicBool>,
    thread: thread::JoinHandle<()>,
}

impl Workers {
    fn start(shards: &Arc<TestShards>) -> Workers {
        struct Unpark(thread::Thread);
        impl Wake for Unpark {
            fn wake(self: Arc<Self>) {
                self.0.unpark();
            }
        }
        let stop = Arc::new(AtomicBool::new(false));
        let (shards, stopped) = (Arc::clone(shards), Arc::clone(&stop));
        let thread = thread::spawn(move || {
            let waker = Waker::from(Arc::new(Unpark(thread::current())));
            let count = u16::try_from(shards.len()).expect("few");
            loop {
                let ready = (0..count)
                    .filter(|&s| shards.poll_worker(s, &waker).is_ready())
                    .count();
                if ready == 0 {
                    if stopped.load(Acquire) {
                        return;
                    }
                    thread::park();
                }
            }
        });
        Workers { stop, thread }
    }

    fn stop(self) {
        self.stop.store(true, Release);
        self.thread.thread().unpark();
        self.thread.join().expect("the workers are well");
    }
}

/// Returns a random subset of the shards, ascending.
fn route_of(random: &mut Random, shards: u64, count_max: u64) -> Vec<u16> {
    let count = 1 + random.below(count_max);
    let mut route: Vec<u16> = (0..count).map(|_| random.below(shards) as u16).collect();
    route.sort_unstable();
    route.dedup();
    route
}

/// Uses all entry points at once. Each operation adds one to every shard that it names; submitted messages
/// carry a number that proves their order.
fn stress(threads: usize, shard_count: u64, drain_max: usize, operations: u64, seed: u64) {
    let operations = scaled(operations);
    let shards = Arc::new(TestShards::with(
        ledgers(shard_count as usize),
        drain_max,
        InjectedFault::None,
    ));
    let workers = Workers::start(&shards);
    let finished = Arc::new(AtomicUsize::new(0));
    let pushers: Vec<_> = (0..threads)
        .map(|thread| {
            let (shards, finished) = (Arc::clone(&shards), Arc::clone(&finished));
            thread::spawn(move || {
                let mut random = Random::new(seed * 1000 + thread as u64 + 1);
                let (mut added, mut submitted) = (vec![0; shard_count as usize], 0);
                for number in 1..=operations {
                    let many = route_of(&mut random, shard_count, 5);
                    let one = many[0];
                    let way = random.below(6);
                    if way < 2 {
                        let spins = if way == 0 { 0 } else { 4 };
                        if let Some(mut held) = shards.take_spinning(one, spins) {
                            // All messages that this thread queued at this shard before have run by now.
                            held.in_order(thread, number);
                            held.work(1);
                            added[one as usize] += 1;
                        }
                    } else if way == 2 {
                        if let Some(mut held) = shards.try_take_all(&many) {
                            held.engines().iter().for_each(|(_, ledger)| ledger.work(1));
                            many.iter().for_each(|&shard| added[shard as usize] += 1);
                        }
                    } else {
                        let route = if way == 3 { &many[..] } else { &many[..1] };
                        route.iter().for_each(|&shard| added[shard as usize] += 1);
                        let queued = job(route, move |engines| {
                            engines.first().in_order(thread, number);
                            engines.iter().for_each(|(_, ledger)| ledger.work(1));
                        });
                        let finished = Arc::clone(&finished);
                        submitted += 1;
                        shards.submit(finishing(queued, move || {
                            finished.fetch_add(1, AcqRel);
                        }));
                    }
                }
                (added, submitted)
            })
        })
        .collect();
    let mut expected = vec![0; shard_count as usize];
    let mut submitted = 0;
    for pusher in pushers {
        let (added, by_this) = pusher.join().expect("a pusher is well");
        submitted += by_this;
        expected
            .iter_mut()
            .zip(added)
            .for_each(|(sum, added)| *sum += added);
    }
    while finished.load(Acquire) < submitted {
        thread::yield_now();
    }
    workers.stop();
    assert_eq!(finished.load(Acquire), submitted);
    for (shard, expected) in expected.into_iter().enumerate() {
        let held = shards
            .try_take(shard as u16)
            .expect("no shard is left held");
        assert_eq!(held.sum, expected, "shard {shard}, seed {seed}");
    }
}

/// Returns fewer operations under Miri, where each is slow.
fn scaled(operations: u64) -> u64 {
    if cfg!(miri) {
        operations / 100
    } else {
        operations
    }
}

#[test]
fn nothing_is_lost_doubled_or_reordered_on_one_hot_shard() {
    for (seed, threads) in (0..).zip([2, 4, 8]) {
        stress(threads, 1, DRAIN_MESSAGES_MAX, 20_000, seed);
    }
}

#[test]
fn nothing_is_lost_doubled_or_reordered_on_a_few_shards() {
    for (seed, (threads, shards)) in (10..).zip([(2, 2), (8, 2), (4, 8), (8, 8)]) {
        stress(threads, shards, DRAIN_MESSAGES_MAX, 10_000, seed);
    }
}

#[test]
fn nothing_is_lost_doubled_or_reordered_on_many_shards() {
    for (seed, threads) in (20..).zip([2, 8]) {
        stress(threads, 64, DRAIN_MESSAGES_MAX, 20_000, seed);
    }
}

#[test]
fn nothing_is_lost_doubled_or_reordered_when_the_workers_do_most() {
    for (seed, (shards, bound)) in (30..).zip([(1, 1), (1, 2), (3, 1), (8, 1), (8, 3)]) {
        stress(4, shards, bound, 3_000, seed);
    }
}
