//! An append-only file into the shards: a snapshot at its beginning, if it has one, then its commands.

use std::fmt;
use std::io::{self, Read};
use std::sync::Arc;
use std::thread::JoinHandle;

use crossbeam::channel::{self, Receiver, Sender};

use super::commands::{Failure, Meeting, Part, Runner, Work, only_shard};
use super::fault::AofFault;
use super::framing::{Broken, COMMAND_BYTES_MAX, Commands};
use super::progress::Progress;
use super::room::{Sample, Schedule};
use super::{Due, Loaded, Loader, Rules};
use crate::command::transaction::{Boundary, boundary};
use crate::persist::rdb;
use crate::resp::request::{NOTHING_BESIDE, Request, Span};
use crate::script::stack;
use crate::session::service::Service;

/// Commands of a window.
const WINDOW_COMMANDS: usize = 512;
/// Bytes of a window.
const WINDOW_BYTES: usize = 512 * 1024;

/// Parts of windows that wait for each thread.
const WAITING_PER_THREAD: usize = 4;

/// If one command in so many needs more than one shard, one thread runs them all: to wait for the others takes longer.
const SHARED_PARTS: usize = 8;

/// Why an append-only file was not loaded to its end, and how much of it was.
#[derive(Debug)]
pub struct AofError {
    /// Where it is broken.
    pub offset: u64,
    /// Up to here it is good, and loaded; behind it, nothing. Of files that are short or unfinished only: of others
    /// commands in front of the fault were run.
    pub valid: u64,
    /// What is wrong.
    pub fault: AofFault,
}

impl fmt::Display for AofError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} (at offset {})", self.fault, self.offset)
    }
}

impl std::error::Error for AofError {}

/// What an append-only file had.
#[derive(Debug, Default)]
pub struct AofLoaded {
    /// Commands of the file, but for those of the snapshot.
    pub commands: u64,
    /// Bytes of the file.
    pub bytes: u64,
    /// The snapshot at its beginning.
    pub snapshot: Option<Loaded>,
}

impl Loader {
    /// Loads an append-only file. The calling thread must hold no shard, and be made for scripts (`script::stack`).
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
                // What has expired may have been given another time by the commands that follow.
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
        let mut commands = Commands::new(from, begun, before);
        let mut reading = Reading {
            window: Part::default(),
            is_ordered: false,
            valid: before,
            in_transaction: false,
            transaction_at: 0,
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

/// The first bytes, as many as it takes to see what they are.
fn begin(from: &mut dyn Read) -> io::Result<Vec<u8>> {
    let mut begun = Vec::new();
    from.take(rdb::MAGIC_BYTES as u64).read_to_end(&mut begun)?;
    Ok(begun)
}

/// The thread that reads.
struct Reading {
    window: Part,
    /// The window has transactions among its commands, which stay together.
    is_ordered: bool,
    /// Behind the last command that is not within a transaction.
    valid: u64,
    in_transaction: bool,
    /// Commands of the window in front of the last transaction.
    transaction_at: usize,
    commands: u64,
    schedule: Schedule,
    runners: Runners,
}

impl Reading {
    fn read(
        &mut self,
        commands: &mut Commands<'_>,
        progress: &mut Progress<'_>,
    ) -> Result<(), AofFault> {
        self.sample();
        let end = loop {
            let offset = commands.offset();
            let place = match commands.next() {
                Ok(Some(place)) => place,
                Ok(None) if self.in_transaction => break Err(AofFault::Unfinished),
                Ok(None) => break Ok(()),
                Err(Broken::Short) if self.in_transaction => break Err(AofFault::Unfinished),
                Err(Broken::Short) => break Err(AofFault::Short),
                Err(Broken::Format) => break Err(AofFault::Format),
                Err(Broken::Read(error)) => break Err(AofFault::Read(error)),
            };
            self.add(commands.bytes(place), commands.spans(), offset)?;
            if !self.in_transaction {
                self.valid = commands.offset();
            }
            if self.is_full() {
                progress.reached(self.valid);
                if progress.must_stop() || self.runners.is_over() {
                    return Err(AofFault::Stopped);
                }
                self.hand_on();
                self.sample();
            }
        };
        // What is complete is run, whatever comes behind it.
        if self.in_transaction {
            // It may be without an end because that is damaged: then what is behind is not to be cut off.
            if let Some(failure) = self.broken_in_transaction() {
                self.runners.fail(failure);
                return Err(AofFault::Stopped);
            }
            self.drop_transaction();
        }
        self.hand_on();
        end
    }

    /// Adds a command to the window.
    fn add(&mut self, command: &[u8], spans: &[Span], offset: u64) -> Result<(), AofFault> {
        let name = spans
            .first()
            .map(|name| name.bytes(command, &NOTHING_BESIDE));
        match name.and_then(boundary) {
            Some(Boundary::Begins) if !self.in_transaction => {
                if !self.is_ordered {
                    self.hand_on();
                }
                self.is_ordered = true;
                self.in_transaction = true;
                self.transaction_at = self.window.offsets.len();
            }
            Some(Boundary::Ends) => self.in_transaction = false,
            _ if self.is_ordered && !self.in_transaction => self.hand_on(),
            _ => {}
        }
        self.commands += 1;
        self.window.offsets.push(offset);
        let batch = &mut self.window.batch;
        let before = batch.input.len();
        if before + command.len() > COMMAND_BYTES_MAX {
            let offset = self.window.offsets[0];
            let fault = AofFault::Format;
            self.runners.fail(Failure { offset, fault });
            return Err(AofFault::Stopped);
        }
        batch.input.extend_from_slice(command);
        let at = |span: &Span| before + span.start().expect("an argument in the file");
        let requests = &mut batch.requests;
        requests.requests.push(Request {
            first: requests.spans.len() as u32,
            count: spans.len() as u32,
            end: batch.input.len() as u32,
        });
        let spans = spans.iter();
        requests
            .spans
            .extend(spans.map(|span| Span::in_buffer(at(span), span.len())));
        Ok(())
    }

    fn is_full(&self) -> bool {
        let Part { batch, offsets } = &self.window;
        let is_full = offsets.len() >= WINDOW_COMMANDS || batch.input.len() >= WINDOW_BYTES;
        is_full && !self.in_transaction
    }

    fn hand_on(&mut self) {
        let is_ordered = std::mem::take(&mut self.is_ordered);
        if !self.window.is_empty() && !self.runners.is_over() {
            self.runners.hand_on(&mut self.window, is_ordered);
        }
        self.window.clear();
        if self.window.batch.input.capacity() > 2 * WINDOW_BYTES {
            self.window = Part::default();
        }
    }

    /// Has keys counted, if it is time.
    fn sample(&mut self) {
        if let Some(sample) = self.schedule.due(self.valid) {
            self.runners.sample(sample);
        }
    }

    /// The first command that can not be run, if it is one of the last transaction.
    fn broken_in_transaction(&mut self) -> Option<Failure> {
        let broken = self.runners.plan(&mut self.window);
        // What stays of the window is planned when it is handed on.
        self.window.batch.plans.clear();
        broken.and_then(|(index, failure)| (index >= self.transaction_at).then_some(failure))
    }

    /// Takes the transaction that has no end out of the window again.
    fn drop_transaction(&mut self) {
        let count = self.transaction_at;
        let Part { batch, offsets } = &mut self.window;
        self.commands -= (offsets.len() - count) as u64;
        offsets.truncate(count);
        let requests = &mut batch.requests;
        if let Some(dropped) = requests.requests.get(count) {
            requests.spans.truncate(dropped.first as usize);
        }
        requests.requests.truncate(count);
        let end = requests.requests.last().map_or(0, |last| last.end);
        batch.input.truncate(end as usize);
        tracing::warn!("Revert incomplete MULTI/EXEC transaction from AOF file");
    }
}

/// The threads that run commands; with one of them, the one that reads.
struct Runners {
    service: &'static Service,
    meeting: Arc<Meeting>,
    own: Option<Box<Runner>>,
    queues: Vec<Sender<Work>>,
    threads: Vec<JoinHandle<Option<Failure>>>,
    /// Parts that were run come back, to be filled again.
    done: (Sender<Part>, Receiver<Part>),
    /// Nothing more is handed on, but what was is run.
    is_over: bool,
    failures: Vec<Failure>,
}

impl Runners {
    fn start(loader: &Loader) -> Runners {
        let service = loader.service;
        let count = loader.threads.min(service.shards.len());
        let mut runners = Runners {
            service,
            meeting: Arc::new(Meeting::new(count)),
            own: None,
            queues: Vec::new(),
            threads: Vec::new(),
            done: channel::bounded(count * WAITING_PER_THREAD),
            is_over: false,
            failures: Vec::new(),
        };
        if count < 2 || !runners.spawn(count) {
            // Those that were made end when they find nothing to do.
            runners.queues.clear();
            runners.threads.clear();
            runners.meeting = Arc::new(Meeting::new(1));
            let meeting = Arc::clone(&runners.meeting);
            runners.own = Some(Box::new(Runner::new(service, meeting, (0, 1))));
        }
        runners
    }

    /// Whether there are so many threads now.
    fn spawn(&mut self, count: usize) -> bool {
        for number in 0..count {
            let (sender, receiver) = channel::bounded::<Work>(WAITING_PER_THREAD);
            let (service, meeting) = (self.service, Arc::clone(&self.meeting));
            let done = self.done.0.clone();
            let made = stack::spawn(format!("basalt-load-{number}"), move || {
                let runner = Runner::new(service, meeting, (number, count));
                work(runner, &receiver, &done)
            });
            let Ok(thread) = made else { return false };
            self.queues.push(sender);
            self.threads.push(thread);
        }
        true
    }

    fn is_over(&self) -> bool {
        self.is_over || self.meeting.has_failed()
    }

    /// A command can not be run: those in front of it are, and none behind.
    fn fail(&mut self, failure: Failure) {
        self.is_over = true;
        self.failures.push(failure);
    }

    fn sample(&mut self, sample: Sample) {
        if let Some(runner) = &mut self.own {
            runner.sample(sample);
        }
        self.queues
            .iter()
            .for_each(|queue| send(queue, Work::Sample(sample)));
    }

    /// Has the commands of a window run, up to the first that can not be run. The window may be exchanged for another.
    fn hand_on(&mut self, window: &mut Part, is_ordered: bool) {
        let broken = self.plan(window);
        if let Some((index, _)) = &broken {
            window.batch.plans.truncate(*index);
        }
        match &mut self.own {
            Some(runner) => self.failures.extend(runner.run(window).err()),
            None => self.share(window, is_ordered),
        }
        if let Some((_, failure)) = broken {
            self.fail(failure);
        }
    }

    /// Plans a window; the first of its commands that can not be run, if there is one.
    fn plan(&self, window: &mut Part) -> Option<(usize, Failure)> {
        window.batch.plan(&self.service.router);
        let (index, fault) = window.broken()?;
        let offset = window.offsets[index];
        Some((index, Failure { offset, fault }))
    }

    /// Hands each thread the commands of its shards, and one of them those that need more.
    fn share(&mut self, window: &mut Part, is_ordered: bool) {
        let plans = std::mem::take(&mut window.batch.plans);
        let shared = plans.iter().filter(|plan| only_shard(plan).is_none());
        if is_ordered || shared.count() > plans.len() / SHARED_PARTS {
            window.batch.plans = plans;
            let free = self.free();
            return self.meet(std::mem::replace(window, free));
        }
        let mut parts: Vec<Part> = self.queues.iter().map(|_| self.free()).collect();
        for (index, plan) in plans.iter().enumerate() {
            if let Some(shard) = only_shard(plan) {
                let thread = usize::from(shard) % parts.len();
                parts[thread].adopt(window, index, plan);
                continue;
            }
            self.send(&mut parts);
            let mut part = self.free();
            part.adopt(window, index, plan);
            self.meet(part);
        }
        self.send(&mut parts);
    }

    fn send(&self, parts: &mut [Part]) {
        for (queue, part) in self.queues.iter().zip(parts) {
            if !part.is_empty() {
                send(queue, Work::Apart(std::mem::replace(part, self.free())));
            }
        }
    }

    fn meet(&self, part: Part) {
        let mut part = Some(part);
        for queue in &self.queues {
            send(queue, Work::Together(part.take()));
        }
    }

    /// A part without commands.
    fn free(&self) -> Part {
        self.done.1.try_recv().unwrap_or_default()
    }

    /// Waits until all is run; what failed first, if anything did.
    fn end(mut self) -> Result<(), Failure> {
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

/// A thread that has gone says why when it is asked.
fn send(queue: &Sender<Work>, work: Work) {
    let _ = queue.send(work);
}

/// What a thread does until nothing more comes; what failed first.
fn work(mut runner: Runner, queue: &Receiver<Work>, done: &Sender<Part>) -> Option<Failure> {
    let mut failure = None;
    while let Ok(work) = queue.recv() {
        let (ran, part) = match work {
            Work::Apart(mut part) => (runner.run(&mut part), Some(part)),
            Work::Together(mut part) => (runner.meet(part.as_mut()), part),
            Work::Sample(sample) => {
                runner.sample(sample);
                continue;
            }
        };
        failure = failure.or(ran.err());
        if let Some(mut part) = part
            && part.batch.input.capacity() <= 2 * WINDOW_BYTES
        {
            part.clear();
            let _ = done.try_send(part);
        }
    }
    runner.end();
    failure
}
