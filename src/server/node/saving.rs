//! The file is written by a thread of its own, so that a slow disk delays only what waits for it.
//!
//! Under the machine's lock it is only asked for: at once where the machine has made a promise, which it keeps back
//! until the file has it, and otherwise within a tenth of a second, so that many changes are written together. What is
//! written is what the machine says when the writing begins, so each write has all that was asked for before.
//!
//! What a command has changed without a promise is kept beside the file before the command is answered, so that it
//! outlives the process; it is safe from a power cut within the tenth of a second.
//!
//! **A file that can not be written** silences the node: no packet leaves until it can be written again, which is tried
//! each second. To the other nodes it is as if it were cut off, so that one of its replicas takes its place, and it
//! serves no longer after a node timeout; the log says why. Redis ends the process.

use std::time::{Duration, Instant};

use parking_lot::{Condvar, Mutex};

use super::Bus;
use super::file::NodesFile;
use crate::script::stack;
use basalt_commands::config::values::system_text;

/// How long a change that nothing waits for may wait for others that are written with it.
const TOGETHER: Duration = Duration::from_millis(100);
/// How often a file that could not be written is tried again.
const TRY_AGAIN: Duration = Duration::from_secs(1);
/// How long it counts that the file could be written.
const PROVEN_FOR: Duration = Duration::from_secs(1);
/// How long the end of the process waits for the file.
const LAST_WAIT: Duration = Duration::from_secs(5);

/// See the module.
pub(super) struct Saver {
    state: Mutex<State>,
    /// There may be something to write.
    asked: Condvar,
    /// An attempt is over.
    done: Condvar,
}

/// The place of a request to write the file: those up to it have been made.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct SaveRequest(u64);

/// Work for the thread that writes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Work {
    /// To be made safe; even if the file has all already where `is_forced`.
    Save { is_forced: bool },
    /// To outlive the process.
    Keep,
}

/// How sure it is to be that the file can be written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Proof {
    /// The last attempt did not fail.
    NoFailure,
    /// One that was done a moment ago.
    Recent,
    /// One that is made now.
    New,
}

struct State {
    asked: u64,
    /// The last request that an attempt has covered.
    tried: u64,
    /// The last request that the file has.
    written: u64,
    /// The last request that outlives the process.
    kept: u64,
    /// Somebody waits for what is asked for to outlive the process.
    is_keeping: bool,
    /// When to write, if that is asked for.
    due: Option<Instant>,
    /// The file is to be written even if it has all already.
    is_forced: bool,
    /// Why the last attempt failed, if it did.
    failure: Option<String>,
    /// When the file was last written.
    proven: Option<Instant>,
}

impl Default for Saver {
    fn default() -> Self {
        Saver {
            state: Mutex::new(State {
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

impl Saver {
    fn ask(&self, within: Duration, is_forced: bool) -> SaveRequest {
        let mut state = self.state.lock();
        let at = Instant::now() + within;
        state.asked += 1;
        state.due = Some(state.due.map_or(at, |due| due.min(at)));
        state.is_forced |= is_forced;
        self.asked.notify_one();
        SaveRequest(state.asked)
    }

    /// Asks for the file at once.
    pub(super) fn ask_now(&self) -> SaveRequest {
        self.ask(Duration::ZERO, false)
    }

    /// Asks for the file before long.
    pub(super) fn ask_soon(&self) -> SaveRequest {
        self.ask(TOGETHER, false)
    }

    /// Asks for the file before long, and for what outlives the process at once.
    fn ask_kept(&self) -> SaveRequest {
        let request = self.ask_soon();
        self.state.lock().is_keeping = true;
        self.asked.notify_one();
        request
    }

    /// The last request so far.
    pub(super) fn last(&self) -> SaveRequest {
        SaveRequest(self.state.lock().asked)
    }

    /// Waits until the file has what was asked for; the text says why it could not be written.
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

    /// Waits until what was asked for by now outlives the process; the text says why it does not.
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

    /// Looks whether the file can be written, by writing it if there is less proof than is wanted; the text says why
    /// not.
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

    /// Waits until something is to be written.
    fn until_due(&self) -> Work {
        let mut state = self.state.lock();
        loop {
            let due = state.due;
            match due {
                Some(at) if at <= Instant::now() => {
                    (state.due, state.is_keeping) = (None, false);
                    let is_forced = std::mem::take(&mut state.is_forced);
                    return Work::Save { is_forced };
                }
                _ if std::mem::take(&mut state.is_keeping) => return Work::Keep,
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
    /// Writes the file whenever that is asked for, on a thread of its own.
    pub(super) fn keep_saved(&'static self, mut file: NodesFile) -> Result<(), String> {
        // It carries out what follows from a promise that is safe.
        let started = stack::spawn("basalt-nodes".to_owned(), move || {
            loop {
                match self.saver.until_due() {
                    Work::Save { is_forced } => self.save(&mut file, is_forced),
                    Work::Keep => self.keep(&mut file),
                }
                self.carry_out();
            }
        });
        let failed =
            |error| format!("Can't start the thread that writes the cluster config file: {error}");
        started.map(drop).map_err(failed)
    }

    /// Makes what the machine says now safe on disk, with no lock in hand, and lets out what has waited for it; what
    /// concerns the rest of the server is to be carried out then. While that fails nothing leaves this node.
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
                    tracing::warn!("The cluster config file is written again: this node speaks");
                }
                core.machine.safe(promised);
                self.drain(&mut core);
            }
            Err(why) => {
                if core.unsaved.is_none() {
                    tracing::warn!(
                        "Can't update the cluster config file: {why}. This node is silent until it can be written, and \
                         the other nodes take it for failed"
                    );
                }
                core.unsaved = Some(why.clone());
            }
        }
        drop(core);
        self.saver.note(request, &result);
    }

    /// Has what the machine says now outlive the process. Where that fails it is tried as [`Bus::save`], which says
    /// why.
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

    /// Has the file say what the machine does before the process ends.
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
        let saver = Saver::default();
        let first = saver.ask_soon();
        let second = saver.ask_now();
        assert_eq!(saver.until_due(), Work::Save { is_forced: false });
        assert_eq!(saver.last(), second);
        saver.note(second, &Ok(()));
        assert_eq!(saver.wait(first), Ok(()));
        assert_eq!(saver.wait(second), Ok(()));
        assert_eq!(saver.state.lock().due, None, "nothing is left to write");
        assert_eq!(saver.prove(Proof::Recent), Ok(()));
    }

    #[test]
    fn a_failure_is_told_to_those_that_wait_and_tried_again() {
        let saver = Saver::default();
        let request = saver.ask_now();
        assert_eq!(saver.until_due(), Work::Save { is_forced: false });
        let why = Err("No space left on device".to_owned());
        assert_eq!(saver.prove(Proof::NoFailure), Ok(()));
        saver.note(request, &why);
        assert_eq!(saver.wait(request), why);
        let again = Work::Save { is_forced: true };
        assert_eq!(saver.until_due(), again, "even if nothing has changed");
        saver.note(request, &Ok(()));
        assert_eq!(saver.wait(request), Ok(()));
    }

    #[test]
    fn what_is_kept_is_waited_for_without_the_disk() {
        let saver = Saver::default();
        std::thread::scope(|threads| {
            let waiting = threads.spawn(|| saver.wait_kept());
            assert_eq!(saver.until_due(), Work::Keep);
            saver.note_kept(saver.last());
            assert_eq!(waiting.join().expect("it ends"), Ok(()));
        });
        assert_eq!(saver.until_due(), Work::Save { is_forced: false });
    }
}
