//! Many units at once: units queue while a script holds some shards for long, until it is killed; clients
//! disconnect before their units ran; requests block on keys that units fill. The seed determines the data and
//! the locked shards; thread scheduling determines the order. Each unit increments one counter, which gives its
//! rank, and all results must equal those of a serial execution in that order. Units that got a BUSY reply must
//! have had no effect, and no waiter may miss an element.

use std::time::{Duration, Instant};

use super::*;
use crate::shard::QueuedJob;
use crate::shard::blocking::BlockedRequest;
use crate::shard::job::Ticket;
use crate::shard::job::command::{CommandJob, CommandJobOutcome};
use crate::shard::job::task;
use crate::shard::route;
use basalt_commands::client::shared::{Unblocked, WaitState};
use basalt_commands::command::context::{ClientView, ShardPlace};
use basalt_commands::command::host::scripts::ExecutionKind;

/// Timeout: only a unit or waiter that was lost takes longer.
const PATIENCE: Duration = Duration::from_secs(60);

const SPIN: &str = "EVAL redis.call('exists',KEYS[1])while(true)do--[[]]end 1";

const QUEUES: u64 = 3;

/// Counts of the simulated events.
#[derive(Debug, Default)]
pub(super) struct Crowds {
    units: usize,
    turned_away: usize,
    gone: usize,
    killed: usize,
    waited: usize,
    served: usize,
}

impl Crowds {
    /// Returns whether each event happened often enough to be significant.
    fn has_all(&self) -> bool {
        self.turned_away > 10
            && self.gone > 10
            && self.killed > 50
            && self.served > 50
            && self.waited > self.served
    }
}

struct Sent {
    lines: Vec<String>,
    /// The ticket of the reply; `None` if no connection awaits the reply.
    ticket: Option<Arc<Ticket>>,
}

/// A unit that ran: its rank in the serial order, its commands, and its reply if known.
type Ranked = (u64, Vec<String>, Option<Vec<u8>>);

/// Returns the unit of a job.
pub(super) fn unit_of(job: &Job) -> &UnitJob {
    match &job.work {
        Work::Unit(job) => job,
        _ => unreachable!("it was a unit"),
    }
}

/// Returns the number at the end of a reply.
fn number_in(reply: &[u8]) -> u64 {
    let text = String::from_utf8_lossy(reply).into_owned();
    let digits = text.trim_end().rsplit(|c: char| !c.is_ascii_digit()).next();
    digits
        .and_then(|digits| digits.parse().ok())
        .expect("a number")
}

impl World {
    fn wait_until(&self, what: &str, mut is_so: impl FnMut() -> bool) {
        let began = Instant::now();
        loop {
            for shard in 0..SHARDS {
                while self
                    .executor
                    .shards
                    .poll_worker(shard, Waker::noop())
                    .is_ready()
                {}
            }
            if is_so() {
                return;
            }
            assert!(began.elapsed() < PATIENCE, "never: {what}");
            std::thread::yield_now();
        }
    }

    pub(super) fn end_of(&self, ticket: &Ticket, what: &str) -> QueuedJob {
        let mut job = None;
        let mut cx = Context::from_waker(Waker::noop());
        self.wait_until(what, || {
            if let Poll::Ready(ended) = ticket.poll(&mut cx) {
                job = Some(ended);
            }
            job.is_some()
        });
        job.expect("it has ended")
    }

    pub(super) fn send_unit(&self, transaction: Transaction, plan: UnitPlan) -> Arc<Ticket> {
        let job = UnitJob {
            transaction,
            connection: self.connection.clone(),
            server: self.server,
            scripts: self.library,
            config: Arc::clone(&self.config),
            plan,
            out: Out::new(Protocol::Resp2),
            outcome: UnitOutcome::default(),
            duration_ns: 0,
            now: Some(self.now),
        };
        Job::send(Job::unit(job, self.executor), &Arc::default())
    }

    /// Sends a request that blocks on all queues; returns the waiter, or the reply if there was an element.
    fn wait_for_queues(&mut self, number: u64) -> Result<Arc<BlockedRequest>, Vec<u8>> {
        let address = String::from("127.0.0.1:1");
        let shared = Shared::new(2 + number, address.clone(), address, 8, false, 0);
        let connection = Connection::new(Arc::new(shared), true);
        let mut ticket = None;
        with_args(
            "BZPOPMIN queue0 queue1 queue2 0",
            self.executor.router,
            |command, args| {
                let route = route::shards_of(args.keys());
                let place = ShardPlace {
                    index: route[0],
                    count: SHARDS,
                };
                let (view, out) = (ClientView::of(&connection), Out::new(Protocol::Resp2));
                let job = CommandJob::new(command, args, view, place, &self.config, out);
                let job = job.with_blocker(Some(&connection.shared));
                ticket = Some(Job::send(
                    Job::command(&route, job, self.executor),
                    &Arc::default(),
                ));
            },
        );
        let mut job = self.end_of(&ticket.expect("it was sent"), "a request waits");
        let Work::Command(job) = &mut job.work else {
            unreachable!("it was a command")
        };
        match std::mem::replace(&mut job.ended, CommandJobOutcome::Refused) {
            CommandJobOutcome::Blocked(waiter) => Ok(waiter),
            _ => Err(testing::wire(&job.out)),
        }
    }

    /// Starts an endless script that holds the shard of a key.
    fn spin(&mut self) -> Arc<Ticket> {
        let line = format!("{SPIN} key{}", self.draw(KEYS));
        let (mut transaction, mut route) = (Transaction::default(), Vec::new());
        with_args(&line, self.executor.router, |command, args| {
            transaction = Transaction::lone(command, args);
            route.extend(args.keys().iter().map(|key| key.shard));
        });
        let plan = UnitPlan::with(route).offloaded_if(true);
        self.send_unit(transaction, plan)
    }

    fn send(&mut self, is_gone: bool) -> Sent {
        let count = self.draw(4) + 1;
        let mut lines: Vec<String> = (0..count).map(|_| self.line()).collect();
        // Exclude DBSIZE: elements that a waiter took remain in the model for a while.
        lines.retain(|line| line != "DBSIZE");
        if self.draw(2) == 0 {
            let (queue, member) = (self.draw(QUEUES), self.random.next_u64());
            lines.push(format!("ZADD queue{queue} 1 member{member}"));
        }
        lines.push("INCR order".to_owned());
        let mut plan = UnitPlan::with(self.some_shards(3));
        if plan.shards.is_empty() {
            plan.shards.push(0);
        }
        let ticket = self.send_unit(self.transaction(&lines), plan);
        Sent {
            lines,
            ticket: (!is_gone).then_some(ticket),
        }
    }

    /// Returns the units that ran, in the order of their ranks. At most one of the units has no connection that
    /// awaits its reply.
    fn ranked(&mut self, sent: Vec<Sent>, crowds: &mut Crowds) -> Vec<Ranked> {
        let (mut ranked, mut unknown): (Vec<Ranked>, _) = (Vec::new(), None);
        for Sent { lines, ticket } in sent {
            let Some(ticket) = ticket else {
                unknown = Some(lines);
                continue;
            };
            let job = self.end_of(&ticket, "a unit has its reply");
            let job = unit_of(&job);
            self.connection.stamp = self.connection.stamp.max(job.connection.stamp);
            let reply = testing::wire(&job.out);
            if job.outcome.was_turned_away {
                crowds.turned_away += 1;
                assert!(
                    reply.starts_with(b"-EXECABORT") && reply.ends_with(b"SHUTDOWN NOSAVE.\r\n")
                );
                continue;
            }
            ranked.push((number_in(&reply), lines, Some(reply)));
        }
        let order = vec!["INCR order".to_owned()];
        let ticket = self.send_unit(self.transaction(&order), UnitPlan::with(0..SHARDS));
        let job = self.end_of(&ticket, "the last unit has its reply");
        let reply = testing::wire(&unit_of(&job).out);
        let last = number_in(&reply);
        ranked.push((last, order, Some(reply)));
        ranked.sort_by_key(|(rank, ..)| *rank);
        // The unit without a connection has the missing rank, unless it got a BUSY reply.
        let before = number_in(&self.model.reply_bytes(&["INCRBY", "order", "0"]));
        let missing: Vec<u64> = (before + 1..=last)
            .filter(|rank| ranked.iter().all(|(other, ..)| other != rank))
            .collect();
        match (&missing[..], unknown) {
            ([], _) => {}
            ([rank], Some(lines)) => {
                crowds.gone += 1;
                ranked.push((*rank, lines, None));
                ranked.sort_by_key(|(rank, ..)| *rank);
            }
            other => panic!("units ran twice, or without having been sent: {other:?}"),
        }
        ranked
    }

    /// Checks that waiters received the new elements, each element once, and that all other waiters still wait
    /// because their queues are empty.
    fn settle_waiters(&mut self, waiters: &[Arc<BlockedRequest>], crowds: &mut Crowds) {
        let mut elements = 0;
        for queue in 0..QUEUES {
            let reply = self.model.reply_bytes(&["ZCARD", &format!("queue{queue}")]);
            elements += number_in(&reply) as usize;
        }
        let is_served = |waiter: &&Arc<BlockedRequest>| waiter.state() == WaitState::Served;
        self.wait_until("who waits is served", || {
            waiters.iter().filter(is_served).count() == elements.min(waiters.len())
        });
        crowds.waited += waiters.len();
        for waiter in waiters {
            if let Some(served) = waiter.take_reply() {
                crowds.served += 1;
                self.take_from_model(&testing::wire(&served.out));
            }
            let shared = waiter.connection();
            shared.unblock(Unblocked::TimedOut);
            shared.end();
            for shard in waiter.shards() {
                self.executor.shards.submit(task::forget(waiter, shard));
            }
        }
        self.wait_until("they leave the queues", || {
            let shards = self.executor.shards;
            let is_left = |shard| {
                let engine = shards.try_take(shard);
                engine.is_some_and(|engine| engine.waiters.is_empty())
            };
            (0..SHARDS).all(is_left) && (0..SHARDS).all(|shard| shards.seems_free(shard))
        });
    }

    /// Removes from the model an element that a waiter received, and checks that the model had it.
    fn take_from_model(&mut self, reply: &[u8]) {
        let text = String::from_utf8_lossy(reply).into_owned();
        let lines: Vec<&str> = text.lines().collect();
        let reply = self.model.reply_bytes(&["ZREM", lines[2], lines[4]]);
        assert_eq!(reply, b":1\r\n", "{text}");
    }

    fn crowd(&mut self, crowds: &mut Crowds) {
        let mut config = (*self.config).clone();
        config.busy_reply_threshold = self.draw(2) as i64;
        self.config = Arc::new(config);
        let line = "DEL queue0 queue1 queue2".to_owned();
        let (emptied, mut waiters) = (self.transaction(&[line]), Vec::new());
        self.at_once(&emptied, UnitPlan::with(0..SHARDS));
        self.model
            .reply_bytes(&["DEL", "queue0", "queue1", "queue2"]);
        for number in 0..self.draw(4) {
            match self.wait_for_queues(number) {
                Ok(waiter) => waiters.push(waiter),
                Err(reply) => self.take_from_model(&reply),
            }
        }
        let spinning = (self.draw(3) == 0).then(|| self.spin());
        let held = self.hold_some();
        let count = self.draw(5) + 2;
        let gone = self.draw(2 * count);
        let sent: Vec<Sent> = (0..count).map(|number| self.send(number == gone)).collect();
        self.let_go(held);
        if let Some(ticket) = spinning {
            // Sleep, so that some waiting clients may get the BUSY error.
            std::thread::sleep(Duration::from_millis(self.draw(6)));
            let running = &self.library.running;
            self.wait_until("it is killed", || {
                running.kill(ExecutionKind::Script).is_ok()
            });
            let job = self.end_of(&ticket, "the script ends");
            let reply = testing::wire(&unit_of(&job).out);
            assert!(
                reply.starts_with(b"-ERR Script killed"),
                "{}",
                reply.escape_ascii()
            );
            crowds.killed += 1;
        }
        crowds.units += sent.len();
        for (rank, lines, reply) in self.ranked(sent, crowds) {
            let expected = self.expected(&lines);
            if let Some(reply) = reply {
                let reply = reply.escape_ascii().to_string();
                assert_eq!(reply, expected, "{rank}: {lines:#?}");
            }
        }
        self.settle_waiters(&waiters, crowds);
    }
}

#[test]
fn units_of_many_that_meet_are_as_if_they_ran_one_after_the_other() {
    let rounds = told("BASALT_SIMULATION_STEPS").map_or(300, |steps| steps / 4);
    let seed = told("BASALT_SIMULATION_SEED").unwrap_or(0);
    let mut world = World::new(seed);
    let mut crowds = Crowds::default();
    // Thread scheduling determines how often each event happens, so add rounds while some event is too rare.
    for round in 0..10 * rounds {
        if round >= rounds && crowds.has_all() {
            break;
        }
        world.crowd(&mut crowds);
    }
    world.compare_data();
    eprintln!("seed {seed}: {crowds:?}");
    assert!(crowds.has_all(), "everything happened: {crowds:?}");
}
