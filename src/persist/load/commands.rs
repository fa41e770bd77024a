//! Commands of an append-only file, run as a connection of nobody's would run them, in windows that are looked up ahead.
//!
//! Several threads share the work where commands need one shard each: all of them read every window, and each runs the
//! commands of its own shards. At whatever needs more than that they wait for each other, and one of them runs it.

use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering::Relaxed};
use std::sync::{Arc, Barrier};
use std::task::{Context, Poll, Wake, Waker};
use std::thread::Thread;

use super::aof::AofFault;
use crate::client::connection::Connection;
use crate::client::registry::Shared;
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
    /// Their bytes, without anything between.
    pub(super) bytes: Vec<u8>,
    /// Where each begins in the file.
    pub(super) offsets: Vec<u64>,
    /// They have transactions among them, and stay together.
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
    /// One of them has failed: nothing more is run.
    has_failed: AtomicBool,
}

impl Meeting {
    /// Of so many threads.
    pub(super) fn new(count: usize) -> Meeting {
        Meeting {
            barrier: Barrier::new(count),
            db: AtomicUsize::new(0),
            has_failed: AtomicBool::new(false),
        }
    }

    pub(super) fn has_failed(&self) -> bool {
        self.has_failed.load(Relaxed)
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
        }
    }

    /// Runs this thread's part of a window. Each thread finds the same commands that can not be run; those in front of
    /// them are run.
    pub(super) fn run(&mut self, window: &Window) -> Result<(), Failure> {
        let result = self.run_window(window);
        if result.is_err() {
            self.meeting.has_failed.store(true, Relaxed);
        }
        self.batch.reset();
        result
    }

    fn run_window(&mut self, window: &Window) -> Result<(), Failure> {
        let at = |index: usize, fault| Failure {
            offset: window.offsets.get(index).copied().unwrap_or(0),
            fault,
        };
        let broken = self.plan(window).map_err(|fault| at(0, fault))?;
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
            let ran = self.run_apart(own).map_err(|fault| at(first, fault));
            result = result.and(ran);
            if together > 0 {
                let ran = self
                    .run_together(shared)
                    .map_err(|fault| at(first + apart, fault));
                result = result.and(ran);
            }
            first += apart + together;
        }
        match broken {
            Some((index, fault)) => result.and(Err(at(index, fault))),
            None => result,
        }
    }

    /// How many of the commands that come next each thread runs for its own shards, and how many behind them one thread runs
    /// for all. The same for each thread.
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
    fn run_apart(&mut self, plans: &[Plan]) -> Result<(), AofFault> {
        let (number, count) = (self.number, self.count);
        let is_own = |plan: &&Plan| match plan.route {
            Route::Shard(shard) => usize::from(shard) % count == number,
            _ => count == 1,
        };
        let mut own = plans.iter().filter(is_own).copied().peekable();
        while own.peek().is_some() {
            self.batch.plans.clear();
            self.batch.plans.extend(own.by_ref().take(FETCHED));
            self.run_plans()?;
        }
        Ok(())
    }

    /// Waits for all, has one run these commands, and waits for that one.
    fn run_together(&mut self, plans: &[Plan]) -> Result<(), AofFault> {
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

    /// Runs what is planned. After a failure nothing is, but the threads still meet.
    fn run_plans(&mut self) -> Result<(), AofFault> {
        if self.meeting.has_failed() {
            return Ok(());
        }
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
                Some(Step::AwaitLog | Step::Close | Step::Shutdown | Step::SleepUntil(_)) => {
                    return Err(AofFault::Waits);
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
