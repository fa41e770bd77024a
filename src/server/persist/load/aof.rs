//! Loads an append-only file into the shards: a leading snapshot, if there is one, then its commands.

use std::fmt;
use std::io::{self, Read};
use std::ops::Range;
use std::sync::Arc;
use std::thread::JoinHandle;

use crossbeam::channel::{self, Receiver, Sender};

use super::commands::{
    LoadTask, PlannedCommands, ReplayFailure, Runner, ThreadBarrier, only_shard, plan_boundary,
};
use super::fault::AofFault;
use super::framing::{CommandFileReader, CommandFramingError};
use super::progress::Progress;
use super::room::{SamplePoint, Schedule};
use super::{Due, Loaded, Loader, Rules};
use crate::persist::rdb;
use crate::script::stack;
use crate::session::batch::Plan;
use crate::state::Service;
use basalt_commands::command::transaction::{Boundary, boundary};
use basalt_core::resp::request::{NOTHING_BESIDE, Span};

/// Maximum parts of windows queued per thread. A window is a sequence of consecutive commands; each thread gets
/// the part with the commands of its shards.
const WAITING_PER_THREAD: usize = 4;

/// Minimum length of a run of single-shard commands that is spread over the threads: synchronizing the threads
/// takes about as long as running this number of commands on one thread.
const APART_MIN: usize = 96;

/// An error while loading an append-only file, and how much of it was loaded.
#[derive(Debug)]
pub struct AofError {
    /// Offset of the error.
    pub offset: u64,
    /// End of the valid and loaded part; nothing after it was run. Only meaningful if the file ends within a
    /// command or a transaction; for other errors, some commands before the error were run.
    pub valid: u64,
    /// The error itself.
    pub fault: AofFault,
}

impl fmt::Display for AofError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} (at offset {})", self.fault, self.offset)
    }
}

impl std::error::Error for AofError {}

/// Statistics of a loaded append-only file.
#[derive(Debug, Default)]
pub struct AofLoaded {
    /// Number of commands after the leading snapshot.
    pub commands: u64,
    /// Bytes of the file.
    pub bytes: u64,
    /// Statistics of the leading snapshot, if the file has one.
    pub snapshot: Option<Loaded>,
}

impl Loader {
    /// Loads an append-only file. The calling thread must have no shard locked, and be prepared for scripts
    /// (`script::stack`).
    pub fn aof(
        &self,
        from: &mut dyn Read,
        progress: &mut Progress<'_>,
    ) -> Result<AofLoaded, AofError> {
        let broken = |offset, fault| AofError {
            offset,
            valid: 0,
            fault,
        };
        let begun = begin(from).map_err(|error| broken(0, AofFault::Read(error)))?;
        let mut loaded = AofLoaded::default();
        let (begun, before) = match rdb::is_snapshot(&begun) {
            false => (begun, 0),
            true => {
                tracing::info!("Reading RDB base file on AOF loading...");
                // Load expired keys, too: later commands may give them another deadline.
                let rules = Rules {
                    due: Due::Loaded,
                    replaces: false,
                };
                let mut snapshot = self
                    .rdb(from, begun, rules, progress)
                    .map_err(|error| broken(error.offset, AofFault::Snapshot(error.fault)))?;
                let rest = std::mem::take(&mut snapshot.rest);
                let bytes = snapshot.bytes;
                loaded.snapshot = Some(snapshot);
                (rest, bytes)
            }
        };
        let mut commands = CommandFileReader::new(from, begun, before);
        let mut reading = AofLoadState {
            window: PlannedCommands::default(),
            valid: before,
            in_transaction: false,
            commands: 0,
            schedule: Schedule::new(before, progress.left_bytes(before)),
            runners: Runners::start(self),
        };
        let read = reading.read(&mut commands, progress);
        let (valid, offset) = (reading.valid, commands.offset());
        loaded.commands = reading.commands;
        loaded.bytes = valid;
        if let Err(failure) = reading.runners.end() {
            return Err(AofError {
                offset: failure.offset,
                valid: failure.offset,
                fault: failure.fault,
            });
        }
        progress.reached(offset);
        if let Err(AofFault::Unfinished) = read {
            tracing::warn!("Revert incomplete MULTI/EXEC transaction from AOF file");
        }
        match read {
            Ok(()) => Ok(loaded),
            Err(fault) => Err(AofError {
                offset,
                valid,
                fault,
            }),
        }
    }
}

/// Reads the first bytes of a file, enough to tell a snapshot from commands.
fn begin(from: &mut dyn Read) -> io::Result<Vec<u8>> {
    let mut begun = Vec::new();
    from.take(rdb::MAGIC_BYTES as u64).read_to_end(&mut begun)?;
    Ok(begun)
}

/// State of the reading thread.
struct AofLoadState {
    window: PlannedCommands,
    /// Offset after the last command that is not within a transaction.
    valid: u64,
    in_transaction: bool,
    commands: u64,
    schedule: Schedule,
    runners: Runners,
}

impl AofLoadState {
    fn read(
        &mut self,
        commands: &mut CommandFileReader<'_>,
        progress: &mut Progress<'_>,
    ) -> Result<(), AofFault> {
        self.sample();
        let end = loop {
            let offset = commands.offset();
            let place = match commands.next() {
                Ok(Some(place)) => place,
                Ok(None) if self.in_transaction => break Err(AofFault::Unfinished),
                Ok(None) => break Ok(()),
                Err(CommandFramingError::Short) if self.in_transaction => {
                    break Err(AofFault::Unfinished);
                }
                Err(CommandFramingError::Short) => break Err(AofFault::Short),
                Err(CommandFramingError::Format) => break Err(AofFault::Format),
                Err(CommandFramingError::Read(error)) => break Err(AofFault::Read(error)),
            };
            let command = commands.bytes(place);
            if !self.window.has_room_for(command) {
                self.hand_on(offset, progress)?;
            }
            self.add(command, commands.spans(), offset);
            if !self.in_transaction {
                self.valid = commands.offset();
            }
            if self.window.is_full() {
                self.hand_on(commands.offset(), progress)?;
            }
        };
        // Run the complete commands even if an error follows. The commands of an unfinished transaction are
        // queued as by MULTI and never run, but errors in them are found.
        self.hand_on(commands.offset(), progress)?;
        end
    }

    /// Adds a command to the current window.
    fn add(&mut self, command: &[u8], spans: &[Span], offset: u64) {
        let name = spans
            .first()
            .map(|name| name.bytes(command, &NOTHING_BESIDE));
        match name.and_then(boundary) {
            Some(Boundary::Begins) => self.in_transaction = true,
            Some(Boundary::Ends) => self.in_transaction = false,
            None => {}
        }
        self.commands += 1;
        self.window.push(command, spans, offset);
    }

    /// Passes the commands of the window, all of which precede `offset`, to the threads, and checks whether
    /// loading must stop.
    fn hand_on(&mut self, offset: u64, progress: &mut Progress<'_>) -> Result<(), AofFault> {
        if !progress.delay(self.window.len()) || self.runners.is_over() {
            return Err(AofFault::Stopped);
        }
        self.runners.hand_on(&mut self.window);
        self.window.empty();
        progress.reached(offset);
        self.sample();
        Ok(())
    }

    /// Makes the threads count their keys, if the schedule demands it at this position.
    fn sample(&mut self) {
        if let Some(sample) = self.schedule.due(self.valid) {
            self.runners.sample(sample);
        }
    }
}

/// The threads that run commands; with a single one, the reading thread itself.
struct Runners {
    service: &'static Service,
    barrier: Arc<ThreadBarrier>,
    own: Option<Box<Runner>>,
    queues: Vec<Sender<LoadTask>>,
    threads: Vec<JoinHandle<Option<ReplayFailure>>>,
    /// Channel for finished parts, whose memory is reused.
    done: (Sender<PlannedCommands>, Receiver<PlannedCommands>),
    /// Whether the last window ended within a transaction.
    in_transaction: bool,
    /// Whether no more work may be queued, because a command cannot be run.
    is_over: bool,
    failures: Vec<ReplayFailure>,
}

impl Runners {
    fn start(loader: &Loader) -> Runners {
        let service = loader.service;
        let count = loader.threads.min(service.shards.len());
        let mut runners = Runners {
            service,
            barrier: Arc::new(ThreadBarrier::new(count)),
            own: None,
            queues: Vec::new(),
            threads: Vec::new(),
            done: channel::bounded(count * WAITING_PER_THREAD),
            in_transaction: false,
            is_over: false,
            failures: Vec::new(),
        };
        if count < 2 || !runners.spawn(count) {
            // Dropping the queues ends the threads already started.
            runners.queues.clear();
            runners.threads.clear();
            runners.barrier = Arc::new(ThreadBarrier::new(1));
            let barrier = Arc::clone(&runners.barrier);
            runners.own = Some(Box::new(Runner::new(service, barrier, 0, 1)));
        }
        runners
    }

    /// Starts the threads; returns false if not all could be started.
    fn spawn(&mut self, count: usize) -> bool {
        for number in 0..count {
            let (sender, receiver) = channel::bounded::<LoadTask>(WAITING_PER_THREAD);
            let (service, barrier) = (self.service, Arc::clone(&self.barrier));
            let done = self.done.0.clone();
            let made = stack::spawn(format!("basalt-load-{number}"), move || {
                let runner = Runner::new(service, barrier, number, count);
                work(runner, &receiver, &done)
            });
            let Ok(thread) = made else { return false };
            self.queues.push(sender);
            self.threads.push(thread);
        }
        true
    }

    fn is_over(&self) -> bool {
        self.is_over || self.barrier.has_failed()
    }

    fn sample(&mut self, sample: SamplePoint) {
        if let Some(runner) = &mut self.own {
            runner.sample(sample);
        }
        self.queues
            .iter()
            .for_each(|queue| send(queue, LoadTask::Sample(sample)));
    }

    /// Queues the commands of a window for the threads, up to the first command that cannot be run. `window`
    /// may be replaced by another, empty part.
    fn hand_on(&mut self, window: &mut PlannedCommands) {
        window.batch.plan_sent_on(&self.service.router);
        let broken = window.broken();
        if let Some((index, _)) = &broken {
            window.batch.plans.truncate(*index);
        }
        match &mut self.own {
            Some(runner) => self.failures.extend(runner.run(window).err()),
            None => self.share(window),
        }
        if let Some((_, failure)) = broken {
            // The commands before the invalid command are run, and none after it.
            self.is_over = true;
            self.failures.push(failure);
        }
    }

    /// Distributes a window: each thread gets the commands of its shards, and one thread gets the commands that
    /// need more than one shard.
    fn share(&mut self, window: &mut PlannedCommands) {
        let plans = std::mem::take(&mut window.batch.plans);
        let together = self.together(&plans);
        if together.first() == Some(&(0..plans.len())) {
            window.batch.plans = plans;
            let free = self.free();
            return self.meet(std::mem::replace(window, free));
        }
        let mut at = 0;
        for indices in together {
            self.apart(window, &plans, at..indices.start);
            at = indices.end;
            let mut part = self.free();
            for index in indices {
                part.adopt(window, index, &plans[index]);
            }
            self.meet(part);
        }
        self.apart(window, &plans, at..plans.len());
    }

    /// Returns the ranges of a window's commands that one thread runs while the others wait: commands that need
    /// more than one shard, transactions, and the single-shard commands between them if fewer than
    /// `APART_MIN`.
    fn together(&mut self, plans: &[Plan]) -> Vec<Range<usize>> {
        let mut all: Vec<Range<usize>> = Vec::new();
        for (index, plan) in plans.iter().enumerate() {
            match plan_boundary(plan) {
                Some(Boundary::Begins) => self.in_transaction = true,
                Some(Boundary::Ends) => self.in_transaction = false,
                None => {}
            }
            if !self.in_transaction && only_shard(plan).is_some() {
                continue;
            }
            match all.last_mut() {
                Some(last) if index - last.end < APART_MIN => last.end = index + 1,
                None if index < APART_MIN => all.push(0..index + 1),
                _ => all.push(index..index + 1),
            }
        }
        if let Some(last) = all.last_mut()
            && plans.len() - last.end < APART_MIN
        {
            last.end = plans.len();
        }
        all
    }

    /// Queues the single-shard commands at `indices`, each for the thread of its shard.
    fn apart(&self, window: &PlannedCommands, plans: &[Plan], indices: Range<usize>) {
        if indices.is_empty() {
            return;
        }
        let mut parts: Vec<PlannedCommands> = self.queues.iter().map(|_| self.free()).collect();
        for index in indices {
            let plan = &plans[index];
            let shard = only_shard(plan).expect("the others are run together");
            let thread = usize::from(shard) % parts.len();
            parts[thread].adopt(window, index, plan);
        }
        for (queue, part) in self.queues.iter().zip(parts) {
            if !part.is_empty() {
                send(queue, LoadTask::Apart(part));
            }
        }
    }

    fn meet(&self, part: PlannedCommands) {
        let mut part = Some(part);
        for queue in &self.queues {
            send(queue, LoadTask::Together(part.take()));
        }
    }

    /// Returns an empty part, reusing a finished one if possible.
    fn free(&self) -> PlannedCommands {
        self.done.1.try_recv().unwrap_or_default()
    }

    /// Waits until everything was run; returns the first failure, if any.
    fn end(mut self) -> Result<(), ReplayFailure> {
        drop(self.queues);
        if let Some(runner) = self.own {
            runner.end();
        }
        for thread in self.threads {
            self.failures.extend(thread.join().ok().flatten());
        }
        let first = self
            .failures
            .into_iter()
            .min_by_key(|failure| failure.offset);
        first.map_or(Ok(()), Err)
    }
}

/// The error of a thread that has ended is returned when it is joined.
fn send(queue: &Sender<LoadTask>, work: LoadTask) {
    let _ = queue.send(work);
}

/// Runs the work of a thread until the queue is closed; returns the first failure.
fn work(
    mut runner: Runner,
    queue: &Receiver<LoadTask>,
    done: &Sender<PlannedCommands>,
) -> Option<ReplayFailure> {
    let mut failure = None;
    while let Ok(work) = queue.recv() {
        let (ran, part) = match work {
            LoadTask::Apart(mut part) => (runner.run(&mut part), Some(part)),
            LoadTask::Together(mut part) => (runner.meet(part.as_mut()), part),
            LoadTask::Sample(sample) => {
                runner.sample(sample);
                continue;
            }
        };
        failure = failure.or(ran.err());
        if let Some(mut part) = part {
            part.empty();
            let _ = done.try_send(part);
        }
    }
    runner.end();
    failure
}
