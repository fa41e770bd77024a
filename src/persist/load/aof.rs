//! An append-only file into the shards: a snapshot at its beginning, if it has one, then its commands.

use std::fmt;
use std::io::{self, Read};
use std::sync::Arc;
use std::thread::JoinHandle;

use crossbeam::channel::{self, Sender};

use super::commands::{Failure, Meeting, Runner, Window};
use super::fault::AofFault;
use super::framing::{Broken, Commands, name};
use super::progress::Progress;
use super::{Due, Loaded, Loader, Rules};
use crate::command::transaction::{Boundary, boundary};
use crate::persist::rdb;
use crate::script::stack;
use crate::session::service::Service;

/// Commands of a window.
const WINDOW_COMMANDS: usize = 512;
/// Bytes of a window.
const WINDOW_BYTES: usize = 512 * 1024;

/// Windows that wait for each thread.
const WAITING_PER_THREAD: usize = 4;

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
        let runners = Runners::start(self);
        let mut reading = Reading {
            window: Window::default(),
            valid: before,
            in_transaction: false,
            transaction_at: (0, 0),
            commands: 0,
            runners,
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
    window: Window,
    /// Behind the last command that is not within a transaction.
    valid: u64,
    in_transaction: bool,
    /// Where the last transaction begins in the window, in bytes and in commands.
    transaction_at: (usize, usize),
    commands: u64,
    runners: Runners,
}

impl Reading {
    fn read(
        &mut self,
        commands: &mut Commands<'_>,
        progress: &mut Progress<'_>,
    ) -> Result<(), AofFault> {
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
            self.add(commands.bytes(place), offset);
            if !self.in_transaction {
                self.valid = commands.offset();
            }
            if self.is_full() {
                progress.reached(self.valid);
                if progress.must_stop() || self.runners.is_over() {
                    return Err(AofFault::Stopped);
                }
                self.hand_on();
            }
        };
        // What is complete is run, whatever comes behind it.
        if self.in_transaction {
            self.drop_transaction();
        }
        self.hand_on();
        end
    }

    /// Adds a command to the window.
    fn add(&mut self, command: &[u8], offset: u64) {
        match boundary(name(command)) {
            Some(Boundary::Begins) if !self.in_transaction => {
                if !self.window.is_ordered {
                    self.hand_on();
                }
                self.window.is_ordered = true;
                self.in_transaction = true;
                let Window { bytes, offsets, .. } = &self.window;
                self.transaction_at = (bytes.len(), offsets.len());
            }
            Some(Boundary::Ends) => self.in_transaction = false,
            _ if self.window.is_ordered && !self.in_transaction => self.hand_on(),
            _ => {}
        }
        self.commands += 1;
        self.window.bytes.extend_from_slice(command);
        self.window.offsets.push(offset);
    }

    fn is_full(&self) -> bool {
        let Window { bytes, offsets, .. } = &self.window;
        !self.in_transaction && (offsets.len() >= WINDOW_COMMANDS || bytes.len() >= WINDOW_BYTES)
    }

    fn hand_on(&mut self) {
        let window = std::mem::take(&mut self.window);
        if !window.offsets.is_empty() {
            self.runners.hand_on(window);
        }
    }

    /// Takes the transaction that has no end out of the window again.
    fn drop_transaction(&mut self) {
        let (bytes, count) = self.transaction_at;
        self.commands -= (self.window.offsets.len() - count) as u64;
        self.window.offsets.truncate(count);
        self.window.bytes.truncate(bytes);
        tracing::warn!("Revert incomplete MULTI/EXEC transaction from AOF file");
    }
}

/// The threads that run commands; with one of them, the one that reads.
struct Runners {
    meeting: Arc<Meeting>,
    own: Option<Box<Runner>>,
    queues: Vec<Sender<Arc<Window>>>,
    threads: Vec<JoinHandle<Result<(), Failure>>>,
    result: Result<(), Failure>,
}

impl Runners {
    fn start(loader: &Loader) -> Runners {
        let service = loader.service;
        let count = loader.threads.min(service.shards.len());
        let mut runners = Runners {
            meeting: Arc::new(Meeting::new(count)),
            own: None,
            queues: Vec::new(),
            threads: Vec::new(),
            result: Ok(()),
        };
        if count < 2 || !runners.spawn(service, count) {
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
    fn spawn(&mut self, service: &'static Service, count: usize) -> bool {
        for number in 0..count {
            let (sender, receiver) = channel::bounded::<Arc<Window>>(WAITING_PER_THREAD);
            let meeting = Arc::clone(&self.meeting);
            let made = stack::spawn(format!("basalt-load-{number}"), move || {
                let mut runner = Runner::new(service, meeting, (number, count));
                let mut result = Ok(());
                while let Ok(window) = receiver.recv() {
                    let ran = runner.run(&window);
                    result = result.and(ran);
                    if runner.is_over() {
                        break;
                    }
                }
                result
            });
            let Ok(thread) = made else { return false };
            self.queues.push(sender);
            self.threads.push(thread);
        }
        true
    }

    fn is_over(&self) -> bool {
        self.meeting.is_over()
    }

    fn hand_on(&mut self, window: Window) {
        match &mut self.own {
            Some(runner) if self.result.is_ok() => self.result = runner.run(&window),
            Some(_) => {}
            None => {
                let window = Arc::new(window);
                for queue in &self.queues {
                    // A thread that has gone says why when it is asked.
                    let _ = queue.send(Arc::clone(&window));
                }
            }
        }
    }

    /// Waits until all is run; what failed first, if anything did.
    fn end(self) -> Result<(), Failure> {
        drop(self.queues);
        let mut failures: Vec<Failure> = self.result.err().into_iter().collect();
        for thread in self.threads {
            if let Ok(Err(failure)) = thread.join() {
                failures.push(failure);
            }
        }
        match failures.into_iter().min_by_key(|failure| failure.offset) {
            Some(failure) => Err(failure),
            None => Ok(()),
        }
    }
}
