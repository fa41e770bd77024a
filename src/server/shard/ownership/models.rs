//! Models of the token for loom: every order of the atomic steps, within the stated bounds, and every stale value that
//! the memory orderings allow.
//!
//! Run by `cargo test --release --manifest-path tests/loom/Cargo.toml --target-dir target/loom`. Each model lets some
//! threads mark engines, directly or by message, and then requires that each mark is there once, that a thread's marks
//! are in its order, that all shards are free, and that all messages were finished. The engines are loom's cells, so
//! two threads in one engine, or one that does not see the other's changes, fail as data races; a lost wake fails as a
//! deadlock. The negative controls break one step each and require that some order fails.
//!
//! "Exhaustive" below means without a bound on preemptions; a number is that bound (most bugs that loom is known to
//! find need two).

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::sync::atomic::AtomicUsize;
use std::sync::atomic::Ordering::Relaxed;
use std::task::{Wake, Waker};

use loom::cell::UnsafeCell;
use loom::sync::{Condvar, Mutex};
use loom::thread;

use super::engines::HeldEngines;
use super::queued::QueuedMessage;
use super::sync::InjectedFault;
use super::tokens::{HeldTokens, Offloaded};
use super::{DRAIN_MESSAGES_MAX, ShardMessage, ShardSet, holds};

/// Thread number times ten, plus a number that increases within the thread.
type Mark = u8;

struct Marks(UnsafeCell<Vec<Mark>>);

// SAFETY: the models prove that one thread at a time uses it; loom fails them if not.
unsafe impl Send for Marks {}

impl Marks {
    fn put(&mut self, mark: Mark) {
        // SAFETY: watched by loom.
        self.0.with_mut(|marks| unsafe { (*marks).push(mark) });
    }

    fn read(&self) -> Vec<Mark> {
        // SAFETY: watched by loom.
        self.0.with(|marks| unsafe { (*marks).clone() })
    }
}

/// Slot in which an offloaded message waits for the thread that runs it.
struct Offload {
    waiting: Mutex<Option<Offloaded<Job>>>,
    changed: Condvar,
}

struct Job {
    shards: Vec<u16>,
    mark: Mark,
    finished: Arc<AtomicUsize>,
    /// Shard whose token the message tries to take during its run.
    more: Option<u16>,
    offloads_to: Option<Arc<Offload>>,
}

impl ShardMessage<Marks> for Job {
    fn shards(&self) -> &[u16] {
        &self.shards
    }

    fn run(&mut self, engines: &mut HeldEngines<'_, Marks>) {
        assert_eq!(engines.shards(), self.shards);
        engines.iter().for_each(|(_, marks)| marks.put(self.mark));
    }

    fn finish(queued: Box<QueuedMessage<Self>>) {
        assert!(!holds::is_open(), "finished with a token in hand");
        queued.finished.fetch_add(1, Relaxed);
    }

    fn is_extendable(&self) -> bool {
        self.more.is_some()
    }

    fn run_extendable(&mut self, tokens: &mut HeldTokens<'_, Marks, Self>) {
        if let Some(more) = self.more {
            let _ = tokens.try_extend(more, 1);
        }
        // Mark only the requested shards: whether the additional one could be taken depends on the other
        // threads.
        let shards = self.shards.clone();
        let all = tokens.engines();
        mark_some(all, &shards, self.mark);
    }

    fn is_offloaded(&self) -> bool {
        self.offloads_to.is_some()
    }

    fn offload(mut offloaded: Offloaded<Self>) {
        assert!(!holds::is_open(), "is offloaded with a token in hand");
        let offload = offloaded.message().offloads_to.clone();
        let offload = offload.expect("is offloaded from somewhere");
        *offload.waiting.lock().expect("no panic under it") = Some(offloaded);
        offload.changed.notify_one();
    }
}

fn mark_some(mut engines: HeldEngines<'_, Marks>, shards: &[u16], mark: Mark) {
    for &shard in shards {
        engines.get(shard).expect("in hand").put(mark);
    }
}

/// Shared state of a model's threads.
struct Setup {
    offload: Arc<Offload>,
    shards: ShardSet<Marks, Job>,
    submitted: AtomicUsize,
    finished: Arc<AtomicUsize>,
}

impl Setup {
    fn send(&self, mut job: Job, shards: &[u16], mark: Mark) {
        self.submitted.fetch_add(1, Relaxed);
        (job.shards, job.mark) = (shards.to_vec(), mark);
        self.shards.submit(QueuedMessage::new(job));
    }

    fn job(&self) -> Job {
        Job {
            shards: Vec::new(),
            mark: 0,
            finished: Arc::clone(&self.finished),
            more: None,
            offloads_to: None,
        }
    }

    fn submit(&self, shards: &[u16], mark: Mark) {
        self.send(self.job(), shards, mark);
    }

    /// Submits a message that tries for one more shard.
    fn submit_extending(&self, shards: &[u16], more: u16, mark: Mark) {
        let more = Some(more);
        self.send(Job { more, ..self.job() }, shards, mark);
    }

    /// Submits a message that is offloaded, to be run by [`Setup::run_offloaded`].
    fn submit_offloaded(&self, shards: &[u16], mark: Mark) {
        let mut job = self.job();
        job.offloads_to = Some(Arc::clone(&self.offload));
        self.send(job, shards, mark);
    }

    /// Waits for an offloaded message and runs it, servicing the queues of its shards meanwhile.
    fn run_offloaded(&self) {
        let mut waiting = self.offload.waiting.lock().expect("no panic under it");
        let offloaded = loop {
            match waiting.take() {
                Some(offloaded) => break offloaded,
                None => waiting = self.offload.changed.wait(waiting).expect("no panic"),
            }
        };
        drop(waiting);
        self.shards.resume(offloaded, |job, tokens| {
            tokens.turn_away(false, |_| false);
            mark_some(tokens.engines(), &job.shards, job.mark);
            tokens.turn_away(true, |_| false);
        });
    }

    /// Takes one shard and tries for another; marks those held.
    fn work_extending(&self, shard: u16, more: u16, mark: Mark) {
        let Some(mut guard) = self.shards.try_take_all(&[shard]) else {
            return self.submit(&[shard], mark);
        };
        let mut tokens = guard.tokens();
        let _ = tokens.try_extend(more, 1);
        mark_some(tokens.engines(), &[shard], mark);
    }

    /// Marks one shard as a session would: directly if the shard is free, otherwise by a message.
    fn work(&self, shard: u16, mark: Mark) {
        match self.shards.try_take(shard) {
            Some(mut held) => held.put(mark),
            None => self.submit(&[shard], mark),
        }
    }

    /// Marks several shards as a session would: directly if all are free, otherwise by a message.
    fn work_all(&self, shards: &[u16], mark: Mark) {
        match self.shards.try_take_all(shards) {
            Some(mut held) => held.engines().iter().for_each(|(_, marks)| marks.put(mark)),
            None => self.submit(shards, mark),
        }
    }

    /// Sleeps until the worker of `shard` has had a round, as an executor would: polls only when woken.
    fn worker_round(&self, shard: u16) {
        let bell = Arc::new(Bell {
            rung: Mutex::new(false),
            changed: Condvar::new(),
        });
        let waker = Waker::from(Arc::clone(&bell));
        while self.shards.poll_worker(shard, &waker).is_pending() {
            let mut rung = bell.rung.lock().expect("no panic under it");
            while !*rung {
                rung = bell.changed.wait(rung).expect("no panic under it");
            }
            *rung = false;
        }
    }

    /// Acts as all shards' workers until no worker has a token.
    fn settle(&self) {
        let count = self.shards.len() as u16;
        while (0..count).any(|s| self.shards.poll_worker(s, Waker::noop()).is_ready()) {}
    }
}

/// A waker on which a thread can wait.
struct Bell {
    rung: Mutex<bool>,
    changed: Condvar,
}

impl Wake for Bell {
    fn wake(self: Arc<Self>) {
        *self.rung.lock().expect("no panic under it") = true;
        self.changed.notify_one();
    }
}

type Body = fn(&Setup);

#[derive(Clone, Copy)]
struct Model {
    /// Final marks expected in each shard; one entry per shard.
    expected: &'static [&'static [Mark]],
    drain_max: usize,
    /// Bound on preemptions; `None` for an exhaustive search.
    preemptions: Option<usize>,
    fault: InjectedFault,
    /// Shards whose tokens the first thread takes before the others start, and releases after its body.
    held: &'static [u16],
    threads: &'static [Body],
    /// The body of the first thread.
    main: Body,
}

const MODEL: Model = Model {
    expected: &[],
    drain_max: DRAIN_MESSAGES_MAX,
    preemptions: None,
    fault: InjectedFault::None,
    held: &[],
    threads: &[],
    main: |_| {},
};

impl Model {
    /// Returns the model with a bound on preemptions.
    const fn within(self, preemptions: usize) -> Model {
        Model {
            preemptions: Some(preemptions),
            ..self
        }
    }

    /// Returns the model with the bound that a holder runs only one queued message, and the worker runs the
    /// rest.
    const fn running_one(self) -> Model {
        Model {
            drain_max: 1,
            ..self
        }
    }
}

/// Explores a model.
fn explore(model: Model) {
    let executions = Arc::new(AtomicUsize::new(0));
    let counted = Arc::clone(&executions);
    let mut builder = loom::model::Builder::new();
    builder.preemption_bound = model.preemptions;
    builder.max_branches = 10_000;
    builder.check(move || {
        counted.fetch_add(1, Relaxed);
        let engines = model
            .expected
            .iter()
            .map(|_| Marks(UnsafeCell::new(Vec::new())));
        let setup = Arc::new(Setup {
            offload: Arc::new(Offload {
                waiting: Mutex::new(None),
                changed: Condvar::new(),
            }),
            shards: ShardSet::with(engines.collect(), model.drain_max, model.fault),
            submitted: AtomicUsize::new(0),
            finished: Arc::new(AtomicUsize::new(0)),
        });
        let held = (!model.held.is_empty()).then(|| {
            setup
                .shards
                .try_take_all(model.held)
                .expect("nobody else is there")
        });
        let threads: Vec<_> = model
            .threads
            .iter()
            .map(|&body| {
                let setup = Arc::clone(&setup);
                thread::spawn(move || body(&setup))
            })
            .collect();
        (model.main)(&setup);
        drop(held);
        for thread in threads {
            thread.join().expect("a thread of the model is well");
        }
        setup.settle();
        for (shard, &expected) in model.expected.iter().enumerate() {
            let held = setup
                .shards
                .try_take(shard as u16)
                .expect("no shard is left held");
            let marks = held.read();
            drop(held);
            for one in 0..10 {
                let of_one = marks.iter().filter(|&&mark| mark / 10 == one);
                assert!(of_one.is_sorted(), "shard {shard}, thread {one}: {marks:?}");
            }
            let mut sorted = marks;
            sorted.sort_unstable();
            assert_eq!(sorted, expected, "shard {shard}: lost or doubled");
        }
        assert_eq!(setup.finished.load(Relaxed), setup.submitted.load(Relaxed));
    });
    eprintln!("{} executions", executions.load(Relaxed));
}

/// Runs a negative control: the model without one step must fail, in the expected way.
fn must_fail(fault: InjectedFault, model: Model, how: &str) {
    let model = Model { fault, ..model };
    let explored = catch_unwind(AssertUnwindSafe(|| explore(model)));
    let panic = explored.expect_err("no order showed the fault");
    let text = panic.downcast_ref::<String>().map(String::as_str);
    let text = text
        .or_else(|| panic.downcast_ref::<&str>().copied())
        .unwrap_or("no text");
    assert!(text.contains(how), "{fault:?} failed otherwise: {text}");
}

const TAKE_AND_RELEASE: Model = Model {
    expected: &[&[10, 20]],
    threads: &[|setup| setup.work(0, 10)],
    main: |setup| setup.work(0, 20),
    ..MODEL
};

#[test]
fn a_submitter_and_a_releasing_holder_exhaustive() {
    explore(TAKE_AND_RELEASE);
}

const TWO_BY_TWO: Model = Model {
    expected: &[&[10, 11, 20, 21]],
    threads: &[|setup| {
        setup.work(0, 10);
        setup.work(0, 11);
    }],
    main: |setup| {
        setup.work(0, 20);
        setup.work(0, 21);
    },
    ..MODEL
};

#[test]
fn two_threads_with_two_commands_each_exhaustive() {
    explore(TWO_BY_TWO);
}

#[test]
fn two_threads_with_two_commands_each_and_a_bound_of_one_exhaustive() {
    explore(TWO_BY_TWO.running_one());
}

const THREE: Model = Model {
    expected: &[&[10, 20, 30, 31]],
    threads: &[|setup| setup.work(0, 10), |setup| setup.work(0, 20)],
    main: |setup| {
        setup.work(0, 30);
        setup.work(0, 31);
    },
    ..MODEL
};

#[test]
fn three_threads_on_one_shard_6() {
    explore(THREE.within(6));
}

#[test]
fn three_threads_on_one_shard_and_a_bound_of_one_6() {
    explore(THREE.running_one().within(6));
}

/// The holder runs one message and hands the token over with the other still queued.
const WORKER: Model = Model {
    expected: &[&[10, 11]],
    drain_max: 1,
    held: &[0],
    threads: &[|setup| setup.worker_round(0)],
    main: |setup| {
        setup.submit(&[0], 10);
        setup.submit(&[0], 11);
    },
    ..MODEL
};

#[test]
fn a_sleeping_worker_is_woken_for_a_handed_over_token_exhaustive() {
    explore(WORKER);
}

#[test]
fn a_worker_past_its_own_bound_gets_another_round_exhaustive() {
    explore(Model {
        expected: &[&[10, 11, 12]],
        threads: &[|setup| {
            setup.worker_round(0);
            setup.worker_round(0);
        }],
        main: |setup| {
            setup.submit(&[0], 10);
            setup.submit(&[0], 11);
            setup.submit(&[0], 12);
        },
        ..WORKER
    });
}

#[test]
fn a_worker_and_a_new_command_exhaustive() {
    explore(Model {
        expected: &[&[10, 11, 20]],
        threads: &[|setup| setup.worker_round(0), |setup| setup.work(0, 20)],
        ..WORKER
    });
}

#[test]
fn a_worker_that_carries_a_traveller_6() {
    explore(Model {
        preemptions: Some(6),
        expected: &[&[10, 11, 12], &[11, 20]],
        // The worker always has a second round, because the thread that runs the travelling message has then
        // reached its bound.
        threads: &[
            |setup| {
                setup.worker_round(0);
                setup.worker_round(0);
            },
            |setup| setup.work(1, 20),
        ],
        main: |setup| {
            setup.submit(&[0], 10);
            setup.submit(&[0, 1], 11);
            setup.submit(&[0], 12);
        },
        ..WORKER
    });
}

/// A message travels up over two shards while another thread goes down.
const CROSSING: Model = Model {
    expected: &[&[10, 20], &[10, 21]],
    threads: &[|setup| setup.submit(&[0, 1], 10)],
    main: |setup| {
        setup.work(1, 21);
        setup.work(0, 20);
    },
    ..MODEL
};

#[test]
fn a_traveller_up_and_single_commands_down_exhaustive() {
    explore(CROSSING);
}

#[test]
fn a_traveller_up_and_single_commands_down_and_a_bound_of_one_exhaustive() {
    explore(CROSSING.running_one());
}

#[test]
fn a_traveller_and_a_single_command_each_exhaustive() {
    explore(Model {
        expected: &[&[10, 11, 21], &[10, 20, 21]],
        threads: &[|setup| {
            setup.work_all(&[0, 1], 10);
            setup.work(0, 11);
        }],
        main: |setup| {
            setup.work(1, 20);
            setup.submit(&[0, 1], 21);
        },
        ..MODEL
    });
}

#[test]
fn two_travellers_and_a_single_command_exhaustive() {
    explore(Model {
        expected: &[&[10, 20], &[10, 20, 30]],
        threads: &[
            |setup| setup.submit(&[0, 1], 10),
            |setup| setup.submit(&[0, 1], 20),
        ],
        main: |setup| setup.work(1, 30),
        ..MODEL
    });
}

/// The travelling message must queue at both shards, so its token crosses to the thread that releases them.
const QUEUED_TRAVELLER: Model = Model {
    expected: &[&[10, 20, 30], &[20, 31]],
    held: &[0, 1],
    threads: &[|setup| setup.work(0, 10), |setup| setup.submit(&[0, 1], 20)],
    main: |setup| {
        setup.submit(&[0], 30);
        setup.submit(&[1], 31);
    },
    ..MODEL
};

#[test]
fn a_traveller_through_two_held_shards_5() {
    explore(QUEUED_TRAVELLER.within(5));
}

#[test]
fn a_traveller_through_two_held_shards_and_a_bound_of_one_5() {
    explore(QUEUED_TRAVELLER.running_one().within(5));
}

const THREE_SHARDS: Model = Model {
    preemptions: Some(5),
    expected: &[&[10, 30], &[10, 20], &[10, 20, 31]],
    threads: &[
        |setup| setup.submit(&[0, 1, 2], 10),
        |setup| setup.submit(&[1, 2], 20),
    ],
    main: |setup| {
        setup.work(2, 31);
        setup.work(0, 30);
    },
    ..MODEL
};

#[test]
fn travellers_over_three_shards_and_single_commands_down_5() {
    explore(THREE_SHARDS);
}

#[test]
fn travellers_over_three_shards_and_a_bound_of_one_5() {
    explore(THREE_SHARDS.running_one());
}

#[test]
fn all_or_none_against_a_traveller_and_a_single_command_exhaustive() {
    explore(Model {
        expected: &[&[10, 20], &[10, 20, 30]],
        threads: &[
            |setup| setup.work_all(&[0, 1], 10),
            |setup| setup.submit(&[0, 1], 20),
        ],
        main: |setup| setup.work(1, 30),
        ..MODEL
    });
}

#[test]
fn two_that_want_all_or_none_exhaustive() {
    explore(Model {
        expected: &[&[10, 20], &[10, 20]],
        threads: &[|setup| setup.work_all(&[0, 1], 10)],
        main: |setup| setup.work_all(&[0, 1], 20),
        ..MODEL
    });
}

/// Each thread holds a shard and tries for the other's.
const EXTENDING: Model = Model {
    expected: &[&[10], &[20]],
    threads: &[|setup| setup.work_extending(0, 1, 10)],
    main: |setup| setup.work_extending(1, 0, 20),
    ..MODEL
};

#[test]
fn two_that_try_for_each_others_shard_exhaustive() {
    explore(EXTENDING);
}

#[test]
fn a_message_that_tries_for_a_shard_below_and_a_traveller_up_5() {
    explore(Model {
        preemptions: Some(5),
        expected: &[&[10], &[10, 20, 30]],
        threads: &[|setup| setup.submit(&[0, 1], 10), |setup| setup.work(1, 20)],
        main: |setup| setup.submit_extending(&[1], 0, 30),
        ..MODEL
    });
}

/// A message is offloaded; others arrive meanwhile, one of them with a token.
const OFFLOADED: Model = Model {
    expected: &[&[20], &[10, 20, 30]],
    preemptions: Some(4),
    threads: &[
        |setup| setup.run_offloaded(),
        |setup| setup.submit(&[0, 1], 20),
    ],
    main: |setup| {
        setup.submit_offloaded(&[1], 10);
        setup.work(1, 30);
    },
    ..MODEL
};

#[test]
fn a_message_that_is_offloaded_and_others_that_come_meanwhile_4() {
    explore(OFFLOADED);
}

#[test]
fn a_message_that_is_offloaded_with_two_shards_3() {
    explore(Model {
        preemptions: Some(3),
        expected: &[&[10, 30], &[10, 20]],
        threads: &[|setup| setup.run_offloaded(), |setup| setup.work(1, 20)],
        main: |setup| {
            setup.submit_offloaded(&[0, 1], 10);
            setup.work(0, 30);
        },
        ..MODEL
    });
}

/// A message is offloaded, and another that needs its shard and more gives up the token that it has.
const HELD_FOR_LONG: Model = Model {
    expected: &[&[20, 30], &[10, 20]],
    preemptions: Some(3),
    threads: &[
        |setup| setup.run_offloaded(),
        |setup| setup.submit(&[0, 1], 20),
    ],
    main: |setup| {
        setup.submit_offloaded(&[1], 10);
        setup.work(0, 30);
    },
    ..MODEL
};

#[test]
fn a_traveller_that_meets_a_shard_held_for_long_3() {
    explore(HELD_FOR_LONG);
}

#[test]
fn two_travellers_that_meet_a_shard_held_for_long_2() {
    explore(Model {
        preemptions: Some(2),
        expected: &[&[20, 30], &[10, 20, 30]],
        threads: &[
            |setup| setup.run_offloaded(),
            |setup| setup.submit(&[0, 1], 20),
        ],
        main: |setup| {
            setup.submit_offloaded(&[1], 10);
            setup.submit(&[0, 1], 30);
        },
        ..MODEL
    });
}

// Negative controls.

#[test]
fn tokens_that_are_given_up_and_not_let_go_are_noticed() {
    must_fail(InjectedFault::ForgetsLoose, HELD_FOR_LONG, "");
}

#[test]
fn a_shard_taken_on_the_way_and_not_let_go_is_noticed() {
    must_fail(InjectedFault::ForgetsExtension, EXTENDING, "is left held");
}

#[test]
fn a_queue_that_is_lost_while_it_is_looked_after_is_noticed() {
    must_fail(
        InjectedFault::DropsKept,
        OFFLOADED.within(3),
        "lost or doubled",
    );
}

#[test]
fn a_release_after_an_offload_that_is_relaxed_is_noticed() {
    must_fail(
        InjectedFault::ReleasesRelaxed,
        OFFLOADED.within(3),
        "Concurrent",
    );
}

#[test]
fn a_release_that_forgets_what_is_pending_is_noticed() {
    must_fail(
        InjectedFault::ForgetsPending,
        TAKE_AND_RELEASE,
        "is left held",
    );
}

#[test]
fn a_take_in_two_steps_is_noticed() {
    must_fail(
        InjectedFault::TakesInTwoSteps,
        TAKE_AND_RELEASE,
        "Concurrent",
    );
}

#[test]
fn a_relaxed_release_is_noticed() {
    must_fail(
        InjectedFault::ReleasesRelaxed,
        TAKE_AND_RELEASE,
        "Concurrent",
    );
}

#[test]
fn a_relaxed_push_is_noticed() {
    must_fail(InjectedFault::PushesRelaxed, TAKE_AND_RELEASE, "Concurrent");
}

#[test]
fn a_list_run_newest_first_is_noticed() {
    must_fail(InjectedFault::RunsNewestFirst, TWO_BY_TWO, "thread 1");
}

#[test]
fn a_dropped_backlog_is_noticed() {
    must_fail(
        InjectedFault::DropsBacklog,
        QUEUED_TRAVELLER.within(6),
        "is left held",
    );
}

#[test]
fn a_traveller_that_leaves_its_token_behind_is_noticed() {
    must_fail(InjectedFault::ForgetsTokens, CROSSING, "queued messages");
}

#[test]
fn a_dropped_wake_of_the_worker_is_noticed() {
    must_fail(InjectedFault::DropsWorkerWake, WORKER, "deadlock");
}

#[test]
fn a_worker_that_registers_too_late_is_noticed() {
    must_fail(InjectedFault::RegistersTooLate, WORKER, "deadlock");
}

#[test]
fn a_handed_over_token_without_release_is_noticed() {
    must_fail(InjectedFault::HandsOverRelaxed, WORKER, "Concurrent");
}
