//! What queues at a shard: work that owns all it needs, and comes back with its reply.
//!
//! ```text
//! mod      a job: its route, what it is, what follows a run, who awaits it
//! command  one command, or one visit of a command that goes from shard to shard
//! unit     a transaction or a script
//! task     what the server asks of shards: to forget or serve a waiter, to forget watched keys, and any other work
//! ```
//!
//! The thread that holds the shard runs the job; a client that disconnects meanwhile loses only the reply. A run says
//! what follows ([`Next`]): the reply goes to the connection that awaits it, or the job queues again, to run anew or on
//! a thread of its own.

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
use super::ownership::{self, ShardList, Shards};
use super::route::Router;
use super::{HeldShards, QueuedJob, execute};
use crate::script::offload::OffloadPool;
use crate::sys::crash;
use crate::telemetry::clock;
use basalt_commands::client::under_way::UnderWay;
use basalt_engine::{Deferred, Engine, Now};

/// Where a finished job is put for the connection that awaits it.
#[derive(Default)]
pub struct Ticket {
    done: Mutex<Option<QueuedJob>>,
    waker: AtomicWaker,
}

impl Ticket {
    /// Ready with the job once it ran.
    pub fn poll(&self, cx: &mut Context<'_>) -> Poll<QueuedJob> {
        self.waker.register(cx.waker());
        match self.done.lock().take() {
            Some(job) => Poll::Ready(job),
            None => Poll::Pending,
        }
    }
}

/// Where jobs run.
#[derive(Clone, Copy)]
pub struct Executor {
    /// The shards.
    pub shards: &'static Shards<Engine, Job>,
    /// Threads for what takes long.
    pub offload: &'static OffloadPool,
    /// The owner of each key.
    pub router: Router,
}

/// What follows a run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Next {
    /// The task that awaits the job gets it.
    Answer,
    /// The job was rolled back, and queues again.
    Again,
    /// The job takes long, did nothing, and queues again, to run on a thread of its own.
    Offload,
}

/// What a job is about.
pub enum Work {
    /// A command.
    Command(Box<CommandJob>),
    /// A unit.
    Unit(Box<UnitJob>),
    /// Something that no client asked for by itself.
    Task(Task),
}

/// See the module.
pub struct Job {
    /// The shards that it needs, ascending.
    route: ShardList,
    /// What it is about.
    pub work: Work,
    next: Next,
    /// The job runs on a thread of its own.
    pub is_offloaded: bool,
    ticket: Option<Arc<Ticket>>,
    /// The period in which it began, until it has ended.
    under_way: Option<Arc<UnderWay>>,
    /// None for what never queues twice.
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

    /// A command over these shards.
    pub fn command(route: &[u16], job: CommandJob, executor: Executor) -> QueuedJob {
        Job::new(route.into(), Work::Command(Box::new(job)), Some(executor))
    }

    /// A unit, which says by itself which shards it needs, and where it runs.
    pub fn unit(job: UnitJob, executor: Executor) -> QueuedJob {
        let (route, is_offloaded) = (job.plan.shards.clone(), job.plan.is_offloaded);
        let mut queued = Job::new(route, Work::Unit(Box::new(job)), Some(executor));
        queued.is_offloaded = is_offloaded;
        queued
    }

    /// A task over these shards.
    pub fn task(
        route: &[u16],
        work: impl FnMut(&mut [&mut Engine], Now) + Send + 'static,
    ) -> QueuedJob {
        Job::new(route.into(), Work::Task(Box::new(work)), None)
    }

    /// Has the end of a job awaited.
    pub fn await_end(queued: &mut QueuedJob) -> Arc<Ticket> {
        let ticket = Arc::new(Ticket::default());
        queued.ticket = Some(Arc::clone(&ticket));
        ticket
    }

    /// Sends a job that queues to run; the ticket on which its end is awaited.
    pub fn send(mut queued: QueuedJob, under_way: &Arc<UnderWay>) -> Arc<Ticket> {
        queued.under_way = Some(Arc::clone(under_way));
        let ticket = Job::await_end(&mut queued);
        Job::submit(queued);
        ticket
    }

    fn submit(mut queued: QueuedJob) {
        queued.next = Next::Answer;
        let Some(executor) = queued.executor else {
            unreachable!("only commands and units are sent by themselves")
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
            if let Work::Command(job) = &mut queued.work {
                job.prepare(router.seed());
            }
            shards.submit(queued);
        };
        offload.run(prepare, false);
    }

    /// Brings a job back that ran elsewhere than with shards in hand, or not at all.
    pub fn answer(mut queued: QueuedJob) {
        let _ended = queued.under_way.take();
        if let Some(ticket) = queued.ticket.take() {
            *ticket.done.lock() = Some(queued);
            ticket.waker.wake();
        }
    }

    /// Answers that a script is busy, for a unit that holds the shards for long; false if the job has to wait instead,
    /// as no client awaits its reply.
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
            unreachable!("only units extend what they hold")
        };
        let Some(Executor { router, .. }) = self.executor else {
            unreachable!("units are made with one")
        };
        let served = crash::serve(job.connection.id());
        self.next = job.run(held, router, self.is_offloaded);
        crash::serve(served);
        if self.next == Next::Again {
            self.route.clone_from(&job.plan.shards);
            self.is_offloaded = job.plan.is_offloaded;
        }
    }

    /// Runs on a thread of its own.
    fn run_offloaded(&mut self, held: &mut HeldShards<'_>) {
        match &self.work {
            Work::Unit(_) => self.run_unit(held),
            _ => ownership::Message::run(self, &mut held.engines()),
        }
    }
}

thread_local! {
    /// What engines left to be done, for when this thread has no shard in hand any more.
    static DEFERRED: std::cell::RefCell<Deferred> = std::cell::RefCell::default();
}

impl ownership::Message<Engine> for Job {
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
            Work::Unit(_) => unreachable!("units extend what they hold"),
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
