//! Runs the commands of an append-only file, as if they came from a connection without a client. Their keys are
//! prefetched in chunks.
//!
//! Several threads share the work where commands need one shard each: each thread runs the commands of its own
//! shards. At commands that need more than one shard, all threads wait for each other, and one thread runs the
//! commands.

use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering::Relaxed};
use std::sync::{Arc, Barrier};
use std::task::{Context, Poll, Wake, Waker};
use std::thread::Thread;

use super::fault::AofFault;
use super::framing::COMMAND_BYTES_MAX;
use super::room::{CapacityEstimator, SamplePoint};
use crate::session::batch::{Batch, Plan, Route};
use crate::session::{Session, Step};
use crate::shard::QueuedJob;
use crate::shard::job::Ticket;
use crate::state::Service;
use crate::telemetry::clock;
use basalt_commands::client::connection::Connection;
use basalt_commands::client::shared::Shared;
use basalt_commands::command::declaration::Flags;
use basalt_commands::command::transaction::{Boundary, boundary};
use basalt_commands::config::Config;
use basalt_core::resp::reply::Protocol;
use basalt_core::resp::request::{Frame, Span};
use basalt_engine::effect::Follower;

/// Number of commands whose keys are prefetched together.
const FETCHED: usize = 128;

/// Number of commands that fill a window.
const WINDOW_COMMANDS: usize = 512;
/// Number of bytes that fill a window.
const WINDOW_BYTES: usize = 512 * 1024;

/// Commands of a file in order, parsed, each with its plan (its command and shards).
#[derive(Default)]
pub(super) struct PlannedCommands {
    pub(super) batch: Batch,
    /// Offset of each command in the file.
    pub(super) offsets: Vec<u64>,
}

impl PlannedCommands {
    pub(super) fn len(&self) -> usize {
        self.offsets.len()
    }

    pub(super) fn is_empty(&self) -> bool {
        self.offsets.is_empty()
    }

    /// True if the part has enough commands or bytes to be distributed to the threads.
    pub(super) fn is_full(&self) -> bool {
        self.len() >= WINDOW_COMMANDS || self.batch.input.len() >= WINDOW_BYTES
    }

    /// True if the part has capacity for the command.
    pub(super) fn has_room_for(&self, command: &[u8]) -> bool {
        self.batch.input.len() + command.len() <= COMMAND_BYTES_MAX
    }

    /// Removes all commands, and frees the memory of long ones.
    pub(super) fn empty(&mut self) {
        if self.batch.input.capacity() > 2 * WINDOW_BYTES {
            *self = PlannedCommands::default();
        }
        self.batch.reset();
        self.offsets.clear();
    }

    /// Adds a command that begins at `offset` in the file and has no plan yet.
    pub(super) fn push(&mut self, command: &[u8], spans: &[Span], offset: u64) {
        let batch = &mut self.batch;
        let before = batch.input.len();
        batch.input.extend_from_slice(command);
        let requests = &mut batch.requests;
        requests.requests.push(Frame {
            first: requests.spans.len() as u32,
            count: spans.len() as u32,
            end: batch.input.len() as u32,
        });
        let at = |span: &Span| before + span.start().expect("an argument in the file");
        let spans = spans.iter();
        requests
            .spans
            .extend(spans.map(|span| Span::in_buffer(at(span), span.len())));
        self.offsets.push(offset);
    }

    /// Adds the `index`th command of another part.
    pub(super) fn adopt(&mut self, from: &PlannedCommands, index: usize, plan: &Plan) {
        self.batch.adopt(&from.batch, plan);
        self.offsets.push(from.offsets[index]);
    }

    /// Returns the index of the first command that cannot be run, and the error; `None` if all can be run.
    pub(super) fn broken(&self) -> Option<(usize, ReplayFailure)> {
        let mut plans = self.batch.plans.iter().enumerate();
        plans.find_map(|(index, plan)| {
            let name = || self.batch.args(plan).get(0).to_vec();
            let fault = match (plan.command, plan.route) {
                (None, _) => AofFault::Unknown(name()),
                (_, Route::Refused) => AofFault::Arguments(name()),
                _ => return None,
            };
            let offset = self.offsets[index];
            Some((index, ReplayFailure { offset, fault }))
        })
    }
}

/// Work for the threads, queued to all threads in the same order.
pub(super) enum LoadTask {
    /// Commands of a thread's own shards.
    Apart(PlannedCommands),
    /// All threads wait for each other. The one thread that gets `Some` runs the commands.
    Together(Option<PlannedCommands>),
    /// A position in the file at which keys are counted.
    Sample(SamplePoint),
}

/// A command that cannot be run, and its offset in the file.
#[derive(Debug)]
pub(super) struct ReplayFailure {
    pub(super) offset: u64,
    pub(super) fault: AofFault,
}

/// Synchronization of the threads at commands that need more than one shard.
pub(super) struct ThreadBarrier {
    barrier: Barrier,
    /// Database that was selected after the last commands that one thread ran while the others waited.
    db: AtomicUsize,
    /// Whether a command failed: no further commands are run, but the threads still synchronize so that none
    /// waits for ever.
    has_failed: AtomicBool,
}

impl ThreadBarrier {
    /// Creates a barrier for `count` threads.
    pub(super) fn new(count: usize) -> ThreadBarrier {
        ThreadBarrier {
            barrier: Barrier::new(count),
            db: AtomicUsize::new(0),
            has_failed: AtomicBool::new(false),
        }
    }

    /// True if no further commands are to be run.
    pub(super) fn has_failed(&self) -> bool {
        self.has_failed.load(Relaxed)
    }
}

/// The state of one thread that runs commands.
pub(super) struct Runner {
    service: &'static Service,
    session: Session,
    config: Arc<Config>,
    barrier: Arc<ThreadBarrier>,
    counted: CapacityEstimator,
}

impl Runner {
    /// Creates the `number`th of `count` runners.
    pub(super) fn new(
        service: &'static Service,
        barrier: Arc<ThreadBarrier>,
        number: usize,
        count: usize,
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
            config: service.config.load_full(),
            barrier,
            counted: CapacityEstimator::new(service, number, count),
        }
    }

    /// Counts the keys of this thread's shards.
    pub(super) fn sample(&mut self, sample: SamplePoint) {
        self.counted.sample(sample);
    }

    /// Finishes after the last work.
    pub(super) fn end(self) {
        self.counted.end();
    }

    /// Waits for all other threads. Then runs the commands of `part`, or, if `None`, waits until the thread
    /// that has the commands has run them.
    pub(super) fn meet(&mut self, part: Option<&mut PlannedCommands>) -> Result<(), ReplayFailure> {
        let barrier = Arc::clone(&self.barrier);
        barrier.barrier.wait();
        let result = match part {
            Some(part) => {
                let ran = self.run(part);
                barrier.db.store(self.session.connection.db, Relaxed);
                ran
            }
            None => Ok(()),
        };
        barrier.barrier.wait();
        self.session.connection.db = barrier.db.load(Relaxed);
        result
    }

    /// Runs commands, a chunk at a time. After a failure on any thread no more are run.
    pub(super) fn run(&mut self, part: &mut PlannedCommands) -> Result<(), ReplayFailure> {
        let plans = std::mem::take(&mut part.batch.plans);
        let mut first = 0;
        for some in plans.chunks(FETCHED) {
            if self.barrier.has_failed() {
                break;
            }
            part.batch.plans.clear();
            part.batch.plans.extend_from_slice(some);
            if let Err((passed, fault)) = self.run_planned(&mut part.batch) {
                self.barrier.has_failed.store(true, Relaxed);
                let last = some.len() - 1;
                let at = first + part.batch.next.saturating_sub(passed).min(last);
                let offset = part.offsets[at];
                return Err(ReplayFailure { offset, fault });
            }
            first += some.len();
        }
        Ok(())
    }

    /// Runs a batch of commands with plans. On an error, also returns how many commands the batch has passed
    /// since the one that failed.
    fn run_planned(&mut self, batch: &mut Batch) -> Result<(), (usize, AofFault)> {
        batch.rewind();
        let Runner {
            service,
            session,
            config,
            ..
        } = self;
        batch.out.set_protocol(Protocol::Resp2);
        loop {
            let mut step = Some(session.run(batch, config, clock::now()));
            while let Some(Step::Wait(ticket)) = step {
                let mut job = wait(&ticket);
                step = session.resume(batch, &mut job, config, clock::now());
            }
            batch.out.clear();
            if let Some(failed) = batch.failed.take() {
                return Err((1, AofFault::Failed(failed)));
            }
            match step {
                Some(Step::Done) => return Ok(()),
                None | Some(Step::Flush | Step::Yield | Step::Wait(_)) => {}
                Some(Step::Deliver) => service.pubsub.deliver(),
                Some(Step::Configured) => *config = service.config.load_full(),
                // The batch has not passed the command that would wait.
                Some(Step::AwaitLog | Step::SleepUntil(_)) => return Err((0, AofFault::Waits)),
                Some(Step::Close | Step::Follow | Step::Shutdown) => {
                    return Err((1, AofFault::Waits));
                }
            }
        }
    }
}

/// Returns the shard of a command that needs exactly one shard and no other state; otherwise `None`.
pub(super) fn only_shard(plan: &Plan) -> Option<u16> {
    let is_plain = |flags: Flags| !flags.any(Flags::TRANSACTIONAL.or(Flags::BLOCKING));
    match plan.route {
        Route::Shard(shard) if plan.command.is_some_and(|command| is_plain(command.flags)) => {
            Some(shard)
        }
        _ => None,
    }
}

/// Returns how a command begins or ends a transaction, or `None`.
pub(super) fn plan_boundary(plan: &Plan) -> Option<Boundary> {
    let command = plan.command.filter(|_| plan.route == Route::Session)?;
    boundary(command.name.as_bytes())
}

/// A waker that unparks a thread waiting for a job.
struct Unpark(Thread);

impl Wake for Unpark {
    fn wake(self: Arc<Self>) {
        self.0.unpark();
    }
}

/// Blocks until a queued job is done, and returns it. The caller must have no shard locked.
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
