//! Commands of an append-only file, run as a connection without a client would run them, in windows that are looked up
//! ahead.
//!
//! Several threads share the work where commands need one shard each: all of them read every window, and each runs the
//! commands of its own shards. At whatever needs more than that they wait for each other, and one of them runs it.

use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering::Relaxed};
use std::sync::{Arc, Barrier};
use std::task::{Context, Poll, Wake, Waker};
use std::thread::Thread;

use super::fault::AofFault;
use crate::client::connection::Connection;
use crate::client::shared::Shared;
use crate::command::declaration::Flags;
use crate::config::Config;
use crate::engine::effect::Follower;
use crate::resp::reply::Protocol;
use crate::resp::request::Limits;
use crate::session::batch::{Batch, Plan, Route};
use crate::session::prefetch::prefetch;
use crate::session::service::Service;
use crate::session::{Session, Step};
use crate::shard::QueuedJob;
use crate::shard::job::Ticket;
use crate::telemetry::clock;

/// Commands that are fetched together.
const FETCHED: usize = 128;

/// If one command in so many needs more than one shard, one thread runs them all: to wait for the others takes longer.
const SHARED_PARTS: usize = 8;

/// Commands one after the other.
#[derive(Debug, Default)]
pub(super) struct Window {
    /// Bytes of the commands, without anything between.
    pub(super) bytes: Vec<u8>,
    /// Where each begins in the file.
    pub(super) offsets: Vec<u64>,
    /// The commands have transactions among them, and stay together.
    pub(super) is_ordered: bool,
}

/// A command that can not be run, and where it begins in the file.
#[derive(Debug)]
pub(super) struct Failure {
    pub(super) offset: u64,
    pub(super) fault: AofFault,
}

/// Where the threads wait for each other.
pub(super) struct Meeting {
    barrier: Barrier,
    /// The database that the last command which all waited for has left selected.
    db: AtomicUsize,
    /// One of them has failed: nothing more is run, but the threads still meet.
    has_failed: AtomicBool,
    /// All of them have come to the same command that can not be run, or one has failed: nothing more need be read.
    is_over: AtomicBool,
}

impl Meeting {
    /// Of so many threads.
    pub(super) fn new(count: usize) -> Meeting {
        Meeting {
            barrier: Barrier::new(count),
            db: AtomicUsize::new(0),
            has_failed: AtomicBool::new(false),
            is_over: AtomicBool::new(false),
        }
    }

    /// Whether what follows is not run any more.
    pub(super) fn is_over(&self) -> bool {
        self.is_over.load(Relaxed)
    }
}

/// One of the threads.
pub(super) struct Runner {
    service: &'static Service,
    session: Session,
    batch: Batch,
    config: Arc<Config>,
    meeting: Arc<Meeting>,
    number: usize,
    count: usize,
    is_over: bool,
}

impl Runner {
    /// The `number`th of `count`.
    pub(super) fn new(
        service: &'static Service,
        meeting: Arc<Meeting>,
        (number, count): (usize, usize),
    ) -> Runner {
        const NOWHERE: &str = "aof";
        let shared = Shared::new(
            u64::MAX - number as u64,
            NOWHERE.to_owned(),
            NOWHERE.to_owned(),
            -1,
            false,
            clock::unix_ms(),
        );
        let connection = Connection::new(Arc::new(shared), true);
        Runner {
            service,
            session: Session::replaying(connection, service),
            batch: Batch::default(),
            config: service.config.load_full(),
            meeting,
            number,
            count,
            is_over: false,
        }
    }

    /// Runs this thread's part of a window. Each thread finds the same commands that can not be run, and is over then,
    /// behind those in front of them.
    pub(super) fn run(&mut self, window: &Window) -> Result<(), Failure> {
        let result = self.run_window(window);
        if result.is_err() {
            self.meeting.is_over.store(true, Relaxed);
        }
        self.batch.reset();
        result
    }

    /// Whether it is at a command that no thread can run, and none comes behind.
    pub(super) fn is_over(&self) -> bool {
        self.is_over
    }

    fn run_window(&mut self, window: &Window) -> Result<(), Failure> {
        let at = |index: usize, fault| Failure {
            offset: window.offsets.get(index).copied().unwrap_or(0),
            fault,
        };
        let planned = self.plan(window);
        self.is_over = !matches!(planned, Ok(None));
        let broken = planned.map_err(|fault| at(0, fault))?;
        let mut plans = std::mem::take(&mut self.batch.plans);
        if let Some((index, _)) = &broken {
            plans.truncate(*index);
        }
        // A failure does not end this early: the other threads wait at every meeting.
        let mut result = Ok(());
        let mut first = 0;
        while first < plans.len() {
            let (apart, together) = self.split(window, &plans[first..]);
            let (own, shared) = plans[first..first + apart + together].split_at(apart);
            let ran = self.run_apart(own);
            result = result.and(ran.map_err(|(index, fault)| at(first + index, fault)));
            if together > 0 {
                first += apart;
                let ran = self.run_together(shared);
                result = result.and(ran.map_err(|(index, fault)| at(first + index, fault)));
                first -= apart;
            }
            first += apart + together;
        }
        match broken {
            Some((index, fault)) => result.and(Err(at(index, fault))),
            None => result,
        }
    }

    /// How many of the commands that come next each thread runs for its own shards, and how many behind them one thread
    /// runs for all. The same for each thread.
    fn split(&self, window: &Window, plans: &[Plan]) -> (usize, usize) {
        if self.count == 1 {
            return (plans.len(), 0);
        }
        let is_shared = |plan: &&Plan| !is_apart(plan);
        let shared = plans.iter().filter(is_shared).count();
        if window.is_ordered || shared > plans.len() / SHARED_PARTS {
            return (0, plans.len());
        }
        match plans.iter().position(|plan| !is_apart(plan)) {
            Some(at) => (at, 1),
            None => (plans.len(), 0),
        }
    }

    /// Parses and plans a window; the first command that can not be run, if there is one.
    fn plan(&mut self, window: &Window) -> Result<Option<(usize, AofFault)>, AofFault> {
        let limits = Limits {
            bulk_len_max: u64::MAX,
            query_bytes_max: u64::MAX,
            inline_len_max: 64,
            authenticated: true,
        };
        let batch = &mut self.batch;
        batch.input.extend_from_slice(&window.bytes);
        let count = window.offsets.len();
        let (input, requests) = batch.parsing();
        let parsed = self.session.parser.parse(input, &limits, count, requests);
        if parsed.ok() != Some(window.bytes.len()) || batch.requests.requests.len() != count {
            return Err(AofFault::Format);
        }
        batch.plan(&self.service.router);
        let broken = batch.plans.iter().enumerate().find_map(|(index, plan)| {
            let name = || batch.args(plan).get(0).to_vec();
            match (plan.command, plan.route) {
                (None, _) => Some((index, AofFault::Unknown(name()))),
                (_, Route::Refused) => Some((index, AofFault::Arguments(name()))),
                _ => None,
            }
        });
        Ok(broken)
    }

    /// Runs those commands that are this thread's.
    fn run_apart(&mut self, plans: &[Plan]) -> Result<(), (usize, AofFault)> {
        let (number, count) = (self.number, self.count);
        let is_own = |(_, plan): &(usize, &Plan)| match plan.route {
            Route::Shard(shard) => usize::from(shard) % count == number,
            _ => count == 1,
        };
        let mut own = plans.iter().enumerate().filter(is_own).peekable();
        let mut places = Vec::with_capacity(FETCHED);
        while own.peek().is_some() {
            places.clear();
            self.batch.plans.clear();
            for (place, plan) in own.by_ref().take(FETCHED) {
                places.push(place);
                self.batch.plans.push(*plan);
            }
            self.run_plans()
                .map_err(|(at, fault)| (places[at], fault))?;
        }
        Ok(())
    }

    /// Waits for all, has one run these commands, and waits for that one.
    fn run_together(&mut self, plans: &[Plan]) -> Result<(), (usize, AofFault)> {
        let meeting = Arc::clone(&self.meeting);
        meeting.barrier.wait();
        let mut result = Ok(());
        if self.number == 0 {
            self.batch.plans.clear();
            self.batch.plans.extend_from_slice(plans);
            result = self.run_plans();
            meeting.db.store(self.session.connection.db, Relaxed);
        }
        meeting.barrier.wait();
        self.session.connection.db = meeting.db.load(Relaxed);
        result
    }

    /// Runs what is planned; the place of the command that can not be run among these. After a failure nothing is, but
    /// the threads still meet.
    fn run_plans(&mut self) -> Result<(), (usize, AofFault)> {
        if self.meeting.has_failed.load(Relaxed) {
            return Ok(());
        }
        self.run_planned().map_err(|(passed, fault)| {
            self.meeting.has_failed.store(true, Relaxed);
            let last = self.batch.plans.len().saturating_sub(1);
            (self.batch.next.saturating_sub(passed).min(last), fault)
        })
    }

    /// The error comes with how many commands were passed since the one that failed.
    fn run_planned(&mut self) -> Result<(), (usize, AofFault)> {
        self.batch.next = 0;
        let Runner {
            service,
            session,
            batch,
            config,
            ..
        } = self;
        batch.out.set_protocol(Protocol::Resp2);
        prefetch(batch, service, session.connection.db);
        loop {
            let mut step = Some(session.run(batch, config, clock::now()));
            while let Some(Step::Wait(ticket)) = step {
                let mut job = wait(&ticket);
                step = session.resume(batch, &mut job, config, clock::now());
            }
            batch.out.clear();
            match step {
                Some(Step::Done) => return Ok(()),
                None | Some(Step::Flush | Step::Yield | Step::Wait(_)) => {}
                Some(Step::Deliver) => service.pubsub.deliver(),
                Some(Step::Configured) => *config = service.config.load_full(),
                // The next one is the one that waits.
                Some(Step::AwaitLog | Step::SleepUntil(_)) => return Err((0, AofFault::Waits)),
                Some(Step::Close | Step::Follow | Step::Shutdown) => {
                    return Err((1, AofFault::Waits));
                }
            }
        }
    }
}

/// Whether a command needs nothing but its shard.
fn is_apart(plan: &Plan) -> bool {
    let is_plain = |flags: Flags| !flags.any(Flags::TRANSACTIONAL.or(Flags::BLOCKING));
    matches!(plan.route, Route::Shard(_))
        && plan.command.is_some_and(|command| is_plain(command.flags))
}

/// Wakes a thread that waits for a job.
struct Unpark(Thread);

impl Wake for Unpark {
    fn wake(self: Arc<Self>) {
        self.0.unpark();
    }
}

/// Waits for a job that had to queue. No shard is in hand.
fn wait(ticket: &Ticket) -> QueuedJob {
    let waker = Waker::from(Arc::new(Unpark(std::thread::current())));
    let mut cx = Context::from_waker(&waker);
    loop {
        match ticket.poll(&mut cx) {
            Poll::Ready(job) => return job,
            Poll::Pending => std::thread::park(),
        }
    }
}
