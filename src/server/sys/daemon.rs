//! A process that goes to the background: what it is started as forks, waits, and ends with what became of the other.
//!
//! ```text
//! first process   fork ─ waits ───────────────────────── exits 0
//! server          └ own session, starts, says its word ──┘ goes on without the terminal
//! ```
//!
//! Until the word is said the server may write to the terminal, so that errors of the start are seen there.

#![expect(unsafe_code, reason = "forking is sound while there is one thread")]

use std::io::{self, PipeReader, PipeWriter, Read, Write};
use std::os::fd::AsFd;
use std::time::Duration;

use rustix::fs::{Mode, OFlags};
use rustix::process::{Pid, WaitOptions};
use rustix::stdio;

use super::environment;

/// How often to look whether the allocator's threads have their names, by which they are told from others: on a machine
/// with much to do it may be long until they run for the first time.
const TRIES: usize = 5_000;
const PAUSE: Duration = Duration::from_millis(1);

/// Which of the two processes this one is.
#[derive(Debug)]
pub enum Side {
    /// The process that was started, which is to wait and to exit.
    First(First),
    /// The server, in a session of its own.
    Server(Word),
    /// The only process, as nothing was forked.
    Alone,
}

/// The first process, which waits for the word of the server.
#[derive(Debug)]
pub struct First {
    word: PipeReader,
    server: Pid,
}

/// The word that the server says once it serves.
#[derive(Debug)]
pub struct Word(PipeWriter);

/// Forks. The error says why that is not possible: the system refuses, or there is more than the calling thread beside
/// those of the allocator, which begins anew in the server (`tikv_jemalloc_ctl::background_thread`).
pub fn fork() -> io::Result<Side> {
    let is_alone = || environment::count_threads() == Some(1);
    for _ in 0..TRIES {
        if is_alone() {
            break;
        }
        std::thread::sleep(PAUSE);
    }
    if !is_alone() {
        return Err(io::Error::other("there are other threads already"));
    }
    let (reader, writer) = io::pipe()?;
    // SAFETY: the process has one thread, and those of the allocator, whose locks its own handlers of `fork` take; so
    // nothing in memory is half changed in the copy.
    match unsafe { libc::fork() } {
        -1 => Err(io::Error::last_os_error()),
        0 => {
            drop(reader);
            rustix::process::setsid()?;
            stdio::dup2_stdin(nowhere()?)?;
            Ok(Side::Server(Word(writer)))
        }
        server => Ok(Side::First(First {
            word: reader,
            server: Pid::from_raw(server).ok_or_else(io::Error::last_os_error)?,
        })),
    }
}

impl First {
    /// Waits until the server serves, or has ended; the exit code that is due.
    pub fn wait(mut self) -> i32 {
        if self.word.read_exact(&mut [0]).is_ok() {
            return 0;
        }
        // The server has ended: what it had to say is on the terminal.
        let ended = rustix::process::waitpid(Some(self.server), WaitOptions::empty());
        let code = ended
            .ok()
            .flatten()
            .and_then(|(_, status)| status.exit_status());
        code.filter(|code| *code != 0).unwrap_or(1)
    }
}

impl Word {
    /// Lets go of the terminal, and has the first process exit.
    pub fn say(mut self) {
        if let Ok(nowhere) = nowhere() {
            let _ = stdio::dup2_stdout(nowhere.as_fd());
            let _ = stdio::dup2_stderr(nowhere.as_fd());
        }
        // A first process that was killed meanwhile does not hear it, and nothing follows from that.
        let _ = self.0.write_all(&[1]);
    }
}

fn nowhere() -> io::Result<std::os::fd::OwnedFd> {
    Ok(rustix::fs::open("/dev/null", OFlags::RDWR, Mode::empty())?)
}
