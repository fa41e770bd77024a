//! Jobs queued at shards. A job owns all the data that it needs, and is returned with its reply.
//!
//! ```text
//! mod      a job: its route, its work, the action after a run, its ticket
//! command  one command, or one visit of a command that goes from shard to shard
//! aside    a command's value, built slice by slice before the command runs
//! unit     a transaction or a script
//! task     internal work of the server: to remove or serve a waiter, to drop watches, and other work
//! ```
//!
//! The thread that holds the shard runs the job; a client that disconnects meanwhile only loses the reply. After a run
//! ([`Next`]) the reply goes to the connection that awaits it, or the job is queued again, to restart or to run on a
//! separate thread.

mod aside;
pub mod command;
pub mod task;
pub mod unit;

use std::sync::Arc;
use std::task::{Context, Poll};

use atomic_waker::AtomicWaker;
use parking_lot::Mutex;

use self::command::CommandJob;
use self::task::Task;
use self::unit::UnitJob;
use super::ownership::engines::HeldEngines;
use super::ownership::queued::QueuedMessage;
use super::ownership::tokens::Offloaded;
use super::ownership::{self, ShardList, ShardSet};
use super::route::Router;
use super::{HeldShards, QueuedJob, execute};
use crate::script::offload::OffloadPool;
use crate::sys::crash;
use crate::telemetry::clock;
use basalt_commands::client::under_way::UnderWay;
use basalt_engine::{Deferred, Engine, Now};

/// Slot for a finished job, for the connection that awaits it.
#[derive(Default)]
pub struct Ticket {
    done: Mutex<Option<QueuedJob>>,
    waker: AtomicWaker,
}

impl Ticket {
    /// Returns the job once it has run.
    pub fn poll(&self, cx: &mut Context<'_>) -> Poll<QueuedJob> {
        self.waker.register(cx.waker());
        match self.done.lock().take() {
            Some(job) => Poll::Ready(job),
            None => Poll::Pending,
        }
    }
}

/// The environment in which jobs run.
#[derive(Clone, Copy)]
pub struct Executor {
    /// The shards.
    pub shards: &'static ShardSet<Engine, Job>,
    /// Threads for slow jobs.
    pub offload: &'static OffloadPool,
    /// Maps keys to shards.
    pub router: Router,
}

/// The action after a run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Next {
    /// The job is done and goes to the task that awaits it.
    Answer,
    /// The job was rolled back, and is queued again.
    Again,
    /// The job would take long and did nothing; it is queued again, to run on a separate thread.
    Offload,
}

/// The work of a job.
pub enum Work {
    /// A command.
    Command(Box<CommandJob>),
    /// A unit: a transaction or a script.
    Unit(Box<UnitJob>),
    /// Internal work, not requested by a client itself.
    Task(Task),
}

/// Queued work; see the module.
pub struct Job {
    /// The shards that the job needs, ascending.
    route: ShardList,
    /// The work.
    pub work: Work,
    next: Next,
    /// True if the job runs on a separate thread.
    pub is_offloaded: bool,
    ticket: Option<Arc<Ticket>>,
    /// The grace period in which the job began, until it has ended: tasks that wait for the period's end wait
    /// for this job.
    under_way: Option<Arc<UnderWay>>,
    /// The environment in which the job runs again; `None` for jobs that are never queued again.
    executor: Option<Executor>,
}

impl Job {
    fn new(route: ShardList, work: Work, executor: Option<Executor>) -> QueuedJob {
        QueuedMessage::new(Job {
            route,
            work,
            next: Next::Answer,
            is_offloaded: false,
            ticket: None,
            under_way: None,
            executor,
        })
    }

    /// Creates a job of a command over these shards.
    pub fn command(route: &[u16], job: CommandJob, executor: Executor) -> QueuedJob {
        Job::new(route.into(), Work::Command(Box::new(job)), Some(executor))
    }

    /// Creates a job of a unit, whose plan determines its shards and where it runs.
    pub fn unit(job: UnitJob, executor: Executor) -> QueuedJob {
        let (route, is_offloaded) = (job.plan.shards.clone(), job.plan.is_offloaded);
        let mut queued = Job::new(route, Work::Unit(Box::new(job)), Some(executor));
        queued.is_offloaded = is_offloaded;
        queued
    }

    /// Creates a job of a task over these shards.
    pub fn task(
        route: &[u16],
        work: impl FnMut(&mut [&mut Engine], Now) + Send + 'static,
    ) -> QueuedJob {
        Job::new(route.into(), Work::Task(Box::new(work)), None)
    }

    /// Attaches a ticket on which the end of a job is awaited.
    pub fn await_end(queued: &mut QueuedJob) -> Arc<Ticket> {
        let ticket = Arc::new(Ticket::default());
        queued.ticket = Some(Arc::clone(&ticket));
        ticket
    }

    /// Submits a job; returns the ticket on which its end is awaited.
    pub fn send(mut queued: QueuedJob, under_way: &Arc<UnderWay>) -> Arc<Ticket> {
        queued.under_way = Some(Arc::clone(under_way));
        let ticket = Job::await_end(&mut queued);
        Job::submit(queued);
        ticket
    }

    fn submit(mut queued: QueuedJob) {
        queued.next = Next::Answer;
        let Some(executor) = queued.executor else {
            unreachable!("only jobs of commands and units submit themselves")
        };
        let Executor {
            shards,
            offload,
            router,
        } = executor;
        let must_prepare = matches!(&queued.work, Work::Command(job) if job.must_prepare());
        if !queued.is_offloaded || !must_prepare {
            return shards.submit(queued);
        }
        let prepare = move || {
            let parts: &mut Job = &mut queued;
            if let Work::Command(job) = &mut parts.work
                && job.prepare(shards, &parts.route, router.seed())
            {
                queued.is_offloaded = false;
            }
            shards.submit(queued);
        };
        offload.run(prepare, false);
    }

    /// Delivers a job to its ticket, even one that ran without shards or did not run at all.
    pub fn answer(mut queued: QueuedJob) {
        let _ended = queued.under_way.take();
        let left = match &mut queued.work {
            Work::Command(job) => job.aside.take(),
            Work::Unit(_) | Work::Task(_) => None,
        };
        if let (Some(mut built), Some(executor)) = (left, queued.executor) {
            // The command was turned away.
            let give_up = move |engines: &mut [&mut Engine], _: Now| built.value.give_up(engines);
            executor.shards.submit(Job::task(&queued.route, give_up));
        }
        if let Some(ticket) = queued.ticket.take() {
            *ticket.done.lock() = Some(queued);
            ticket.waker.wake();
        }
    }

    /// Makes BUSY the reply of a job that waits for shards which a long-running unit keeps locked. Returns
    /// false if the job must wait instead, because it is replayed, internal, or awaited by no client.
    pub(super) fn turn_away(&mut self, text: &'static str) -> bool {
        let insists = match &self.work {
            Work::Command(job) => job.client.origin.replays(),
            Work::Unit(job) => job.connection.origin.replays(),
            Work::Task(_) => true,
        };
        if insists || self.ticket.is_none() {
            return false;
        }
        self.next = Next::Answer;
        match &mut self.work {
            Work::Command(job) => job.turn_away(text),
            Work::Unit(job) => job.turn_away(text),
            Work::Task(_) => return false,
        }
        true
    }

    fn run_unit(&mut self, held: &mut HeldShards<'_>) {
        let Work::Unit(job) = &mut self.work else {
            unreachable!("only units take more shards while they run")
        };
        let Some(Executor { router, .. }) = self.executor else {
            unreachable!("a job of a unit has an executor")
        };
        let served = crash::serve(job.connection.id());
        self.next = job.run(held, router, self.is_offloaded);
        crash::serve(served);
        if self.next == Next::Again {
            self.route.clone_from(&job.plan.shards);
            self.is_offloaded = job.plan.is_offloaded;
        }
    }

    /// Runs the job on a separate thread, with its shards locked.
    fn run_offloaded(&mut self, held: &mut HeldShards<'_>) {
        match &self.work {
            Work::Unit(_) => self.run_unit(held),
            _ => ownership::ShardMessage::run(self, &mut held.engines()),
        }
    }
}

thread_local! {
    /// Deferred work of engines, which this thread does after it has released all its shards.
    static DEFERRED: std::cell::RefCell<Deferred> = std::cell::RefCell::default();
}

impl ownership::ShardMessage<Engine> for Job {
    fn shards(&self) -> &[u16] {
        &self.route
    }

    fn run(&mut self, engines: &mut HeldEngines<'_, Engine>) {
        match &mut self.work {
            Work::Command(job) => {
                let served = crash::serve(job.client.id);
                self.next = job.run(engines, !self.is_offloaded);
                crash::serve(served);
            }
            Work::Task(task) => {
                let (now, mut engines) = (clock::now(), engines.all());
                task(&mut engines, now);
                execute::end_of_change(&mut engines, now, true);
            }
            Work::Unit(_) => unreachable!("units are run by run_extendable"),
        }
    }

    fn finish(mut queued: QueuedJob) {
        match queued.next {
            Next::Answer => return Job::answer(queued),
            Next::Again => {}
            Next::Offload => queued.is_offloaded = true,
        }
        Job::submit(queued);
    }

    fn collect(engine: &mut Engine) -> bool {
        if engine.deferred.is_empty() {
            return false;
        }
        DEFERRED.with_borrow_mut(|deferred| deferred.append(&mut engine.deferred));
        true
    }

    fn settle() {
        let mut deferred = DEFERRED.take();
        deferred.settle();
    }

    fn is_extendable(&self) -> bool {
        matches!(self.work, Work::Unit(_))
    }

    fn run_extendable(&mut self, held: &mut HeldShards<'_>) {
        self.run_unit(held);
    }

    fn is_offloaded(&self) -> bool {
        self.is_offloaded
    }

    fn offload(mut offloaded: Offloaded<Self>) {
        let job = offloaded.message();
        let Some(Executor {
            shards, offload, ..
        }) = job.executor
        else {
            unreachable!("tasks are not offloaded")
        };
        let holds_shards = !job.route.is_empty();
        let run = move || shards.resume(offloaded, |job, held| job.run_offloaded(held));
        offload.run(run, holds_shards);
    }
}
