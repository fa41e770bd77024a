//! Writes nodes.conf on a separate thread, so that a slow disk delays only callers that wait for the file.
//!
//! While the state machine is locked, a write is only requested: an immediate write if the machine has made a
//! promise to other nodes, which it withholds until the file has been synced, and otherwise one within a tenth
//! of a second, so that many changes are written together. The write saves the machine's state at its start, so
//! each write covers all earlier requests.
//!
//! Changes by a command that makes no promise are written to another file ([`NodesFile::keep`]) before the
//! command's reply, so that they survive a crash of the process; they survive a power cut after a tenth of a
//! second.
//!
//! **A file that cannot be written** silences the node: no packet is sent until it can be written again, which is
//! retried every second. To the other nodes it appears disconnected, so that one of its replicas takes over, and it
//! stops serving after a node timeout; the log has the reason. Redis ends the process.

use std::time::{Duration, Instant};

use parking_lot::{Condvar, Mutex};

use super::Bus;
use super::file::NodesFile;
use crate::script::stack;
use basalt_commands::config::values::system_text;

/// Maximum delay of writing a change for which no caller waits, so that several changes are written together.
const TOGETHER: Duration = Duration::from_millis(100);
/// Interval between retries of a failed write.
const TRY_AGAIN: Duration = Duration::from_secs(1);
/// Time for which a successful write proves that the file can be written.
const PROVEN_FOR: Duration = Duration::from_secs(1);
/// Maximum time that shutdown waits for the file to be written.
const LAST_WAIT: Duration = Duration::from_secs(5);

/// Coordinator between requests to write the cluster config file and the thread that writes it.
pub(super) struct NodesConfSaver {
    state: Mutex<NodesConfSaveState>,
    /// Signals that there may be something to write.
    asked: Condvar,
    /// Signals the end of an attempt.
    done: Condvar,
}

/// Sequence number of a request to write the file.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct SaveRequest(u64);

/// Work for the writing thread.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum NodesConfTask {
    /// Write and sync the file; with `is_forced`, even if it is up to date.
    Save { is_forced: bool },
    /// Only make changes survive a crash of the process ([`NodesFile::keep`]).
    Keep,
}

/// Required certainty that the file can be written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Proof {
    /// The last attempt did not fail.
    NoFailure,
    /// An attempt succeeded a moment ago.
    Recent,
    /// An attempt is made now.
    New,
}

struct NodesConfSaveState {
    asked: u64,
    /// The last request covered by an attempt to write, successful or not.
    tried: u64,
    /// The last request covered by the synced file.
    written: u64,
    /// The last request that survives a crash of the process.
    kept: u64,
    /// Whether a caller waits until its changes survive a crash of the process.
    is_keeping: bool,
    /// When to write, if requested.
    due: Option<Instant>,
    /// Whether the file must be written even if it is up to date.
    is_forced: bool,
    /// Error of the last attempt, if it failed.
    failure: Option<String>,
    /// When the file was last written successfully.
    proven: Option<Instant>,
}

impl Default for NodesConfSaver {
    fn default() -> Self {
        NodesConfSaver {
            state: Mutex::new(NodesConfSaveState {
                asked: 0,
                tried: 0,
                written: 0,
                kept: 0,
                is_keeping: false,
                due: None,
                is_forced: false,
                failure: None,
                proven: None,
            }),
            asked: Condvar::new(),
            done: Condvar::new(),
        }
    }
}

impl NodesConfSaver {
    fn ask(&self, within: Duration, is_forced: bool) -> SaveRequest {
        let mut state = self.state.lock();
        let at = Instant::now() + within;
        state.asked += 1;
        state.due = Some(state.due.map_or(at, |due| due.min(at)));
        state.is_forced |= is_forced;
        self.asked.notify_one();
        SaveRequest(state.asked)
    }

    /// Requests an immediate write.
    pub(super) fn ask_now(&self) -> SaveRequest {
        self.ask(Duration::ZERO, false)
    }

    /// Requests a write within [`TOGETHER`].
    pub(super) fn ask_soon(&self) -> SaveRequest {
        self.ask(TOGETHER, false)
    }

    /// Requests a write within [`TOGETHER`], and that changes survive a crash of the process at once.
    fn ask_kept(&self) -> SaveRequest {
        let request = self.ask_soon();
        self.state.lock().is_keeping = true;
        self.asked.notify_one();
        request
    }

    /// Returns the last request so far.
    pub(super) fn last(&self) -> SaveRequest {
        SaveRequest(self.state.lock().asked)
    }

    /// Waits until the file covers a request; the error says why it could not be written.
    pub(super) fn wait(&self, request: SaveRequest) -> Result<(), String> {
        let mut state = self.state.lock();
        while state.tried < request.0 {
            self.done.wait(&mut state);
        }
        match &state.failure {
            Some(why) if state.written < request.0 => Err(why.clone()),
            _ => Ok(()),
        }
    }

    /// Waits until everything requested so far survives a crash of the process; the error says why it does not.
    pub(super) fn wait_kept(&self) -> Result<(), String> {
        let request = self.ask_kept();
        let mut state = self.state.lock();
        while state.kept.max(state.tried) < request.0 {
            self.done.wait(&mut state);
        }
        match &state.failure {
            Some(why) if state.kept.max(state.written) < request.0 => Err(why.clone()),
            _ => Ok(()),
        }
    }

    /// Checks whether the file can be written, and writes it if the existing proof is weaker than `wanted`. The
    /// error says why writing failed.
    pub(super) fn prove(&self, wanted: Proof) -> Result<(), String> {
        let is_proven = {
            let state = self.state.lock();
            let is_recent = |at: Instant| at.elapsed() < PROVEN_FOR;
            let is_enough = match wanted {
                Proof::NoFailure => true,
                Proof::Recent => state.proven.is_some_and(is_recent),
                Proof::New => false,
            };
            is_enough && state.failure.is_none()
        };
        if is_proven {
            return Ok(());
        }
        self.wait(self.ask(Duration::ZERO, true))
    }

    /// Waits until work is due, and returns it.
    fn wait_for_task(&self) -> NodesConfTask {
        let mut state = self.state.lock();
        loop {
            let due = state.due;
            match due {
                Some(at) if at <= Instant::now() => {
                    (state.due, state.is_keeping) = (None, false);
                    let is_forced = std::mem::take(&mut state.is_forced);
                    return NodesConfTask::Save { is_forced };
                }
                _ if std::mem::take(&mut state.is_keeping) => return NodesConfTask::Keep,
                None => self.asked.wait(&mut state),
                Some(at) => drop(self.asked.wait_until(&mut state, at)),
            }
        }
    }

    fn note_kept(&self, request: SaveRequest) {
        let mut state = self.state.lock();
        state.kept = state.kept.max(request.0);
        self.done.notify_all();
    }

    fn note(&self, request: SaveRequest, result: &Result<(), String>) {
        let mut state = self.state.lock();
        state.tried = state.tried.max(request.0);
        match result {
            Ok(()) => {
                state.written = state.written.max(request.0);
                state.proven = Some(Instant::now());
                state.failure = None;
            }
            Err(why) => {
                state.failure = Some(why.clone());
                let again = Instant::now() + TRY_AGAIN;
                state.due = Some(state.due.map_or(again, |due| due.min(again)));
                state.is_forced = true;
            }
        }
        self.done.notify_all();
    }
}

impl Bus {
    /// Starts the thread that writes the file on request.
    pub(super) fn keep_saved(&'static self, mut file: NodesFile) -> Result<(), String> {
        // This thread also carries out the effects of saved promises, which may lock shards.
        let started = stack::spawn("basalt-nodes".to_owned(), move || {
            loop {
                match self.saver.wait_for_task() {
                    NodesConfTask::Save { is_forced } => self.save(&mut file, is_forced),
                    NodesConfTask::Keep => self.keep(&mut file),
                }
                self.carry_out();
            }
        });
        let failed =
            |error| format!("Can't start the thread that writes the cluster config file: {error}");
        started.map(drop).map_err(failed)
    }

    /// Syncs the current state of the machine to disk, without holding a lock, and releases promises that waited
    /// for it; their effects on the rest of the server are still to be carried out. While this fails no packet is
    /// sent.
    pub(super) fn save(&'static self, file: &mut NodesFile, is_forced: bool) {
        let (saved, promised, request) = {
            let core = self.core.lock();
            let machine = &core.machine;
            (machine.saved(), machine.promised(), self.saver.last())
        };
        let result = file.save(&saved, is_forced);
        let result = result.map_err(|error| system_text(&error));
        let mut core = self.core.lock();
        match &result {
            Ok(()) => {
                if core.unsaved.take().is_some() {
                    tracing::warn!(
                        "The cluster config file can be written again: this node takes part in the cluster \
                                    again"
                    );
                }
                core.machine.safe(promised);
                self.drain(&mut core);
            }
            Err(why) => {
                if core.unsaved.is_none() {
                    tracing::warn!(
                        "Can't update the cluster config file: {why}. Until it can be written, this node sends \
                         nothing and the other nodes consider it failed"
                    );
                }
                core.unsaved = Some(why.clone());
            }
        }
        drop(core);
        self.saver.note(request, &result);
    }

    /// Makes the current state of the machine survive a crash of the process. If that fails it falls back to
    /// [`Bus::save`], which reports the error.
    fn keep(&'static self, file: &mut NodesFile) {
        let (saved, request) = {
            let core = self.core.lock();
            (core.machine.saved(), self.saver.last())
        };
        match file.keep(&saved) {
            Ok(()) => self.saver.note_kept(request),
            Err(_) => self.save(file, false),
        }
    }

    /// Saves the state of the machine before the process ends.
    pub(super) fn save_at_end(&self) {
        let mut state = self.saver.state.lock();
        let asked = state.asked;
        if state.written == asked {
            return;
        }
        state.due = Some(Instant::now());
        self.saver.asked.notify_one();
        let until = Instant::now() + LAST_WAIT;
        while state.tried < asked && !self.saver.done.wait_until(&mut state, until).timed_out() {}
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn requests_are_written_together_and_those_that_wait_hear_of_it() {
        let saver = NodesConfSaver::default();
        let first = saver.ask_soon();
        let second = saver.ask_now();
        assert_eq!(
            saver.wait_for_task(),
            NodesConfTask::Save { is_forced: false }
        );
        assert_eq!(saver.last(), second);
        saver.note(second, &Ok(()));
        assert_eq!(saver.wait(first), Ok(()));
        assert_eq!(saver.wait(second), Ok(()));
        assert_eq!(saver.state.lock().due, None, "nothing is left to write");
        assert_eq!(saver.prove(Proof::Recent), Ok(()));
    }

    #[test]
    fn a_failure_is_told_to_those_that_wait_and_tried_again() {
        let saver = NodesConfSaver::default();
        let request = saver.ask_now();
        assert_eq!(
            saver.wait_for_task(),
            NodesConfTask::Save { is_forced: false }
        );
        let why = Err("No space left on device".to_owned());
        assert_eq!(saver.prove(Proof::NoFailure), Ok(()));
        saver.note(request, &why);
        assert_eq!(saver.wait(request), why);
        let again = NodesConfTask::Save { is_forced: true };
        assert_eq!(saver.wait_for_task(), again, "even if nothing has changed");
        saver.note(request, &Ok(()));
        assert_eq!(saver.wait(request), Ok(()));
    }

    #[test]
    fn what_is_kept_is_waited_for_without_the_disk() {
        let saver = NodesConfSaver::default();
        std::thread::scope(|threads| {
            let waiting = threads.spawn(|| saver.wait_kept());
            assert_eq!(saver.wait_for_task(), NodesConfTask::Keep);
            saver.note_kept(saver.last());
            assert_eq!(waiting.join().expect("it ends"), Ok(()));
        });
        assert_eq!(
            saver.wait_for_task(),
            NodesConfTask::Save { is_forced: false }
        );
    }
}
