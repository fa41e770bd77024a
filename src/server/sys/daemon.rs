//! Daemonizing: the started process forks, waits, and exits with the outcome of the server.
//!
//! ```text
//! first process   fork ─ waits ───────────────────────── exits 0
//! server          └ own session, starts, notifies ───────┘ goes on without the terminal
//! ```
//!
//! Until it notifies the first process, the server may write to the terminal, so that startup errors are visible
//! there.

#![expect(unsafe_code, reason = "forking is sound while there is one thread")]

use std::io::{self, PipeReader, PipeWriter, Read, Write};
use std::os::fd::AsFd;
use std::time::Duration;

use rustix::fs::{Mode, OFlags};
use rustix::process::{Pid, WaitOptions};
use rustix::stdio;

use super::environment;

/// Attempts to wait until the allocator's threads have their names, which distinguish them from other threads,
/// and (`PAUSE`) the pause between attempts: on a busy machine it may take long until these threads run for the
/// first time.
const TRIES: usize = 5_000;
const PAUSE: Duration = Duration::from_millis(1);

/// The process in which a call of `fork` returns.
#[derive(Debug)]
pub enum Side {
    /// The process that was started, which must wait and exit.
    First(First),
    /// The server, in its own session.
    Server(DaemonNotifier),
    /// The only process, because nothing was forked.
    Alone,
}

/// The first process, which waits for the server's notification.
#[derive(Debug)]
pub struct First {
    word: PipeReader,
    server: Pid,
}

/// The server's end of the notification channel.
#[derive(Debug)]
pub struct DaemonNotifier(PipeWriter);

/// Forks. Errors if the system refuses, or if there are other threads than the calling one and the allocator's,
/// which must be restarted in the server (`tikv_jemalloc_ctl::background_thread`).
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
    // SAFETY: the process has one thread besides the allocator's threads, and the allocator's `fork` handlers
    // acquire its locks; so nothing in memory is half changed in the copy.
    match unsafe { libc::fork() } {
        -1 => Err(io::Error::last_os_error()),
        0 => {
            drop(reader);
            rustix::process::setsid()?;
            stdio::dup2_stdin(nowhere()?)?;
            Ok(Side::Server(DaemonNotifier(writer)))
        }
        server => Ok(Side::First(First {
            word: reader,
            server: Pid::from_raw(server).ok_or_else(io::Error::last_os_error)?,
        })),
    }
}

impl First {
    /// Waits until the server is serving or has ended. Returns the exit code.
    pub fn wait(mut self) -> i32 {
        if self.word.read_exact(&mut [0]).is_ok() {
            return 0;
        }
        // The server has ended: its messages are on the terminal.
        let ended = rustix::process::waitpid(Some(self.server), WaitOptions::empty());
        let code = ended
            .ok()
            .flatten()
            .and_then(|(_, status)| status.exit_status());
        code.filter(|code| *code != 0).unwrap_or(1)
    }
}

impl DaemonNotifier {
    /// Detaches from the terminal, and makes the first process exit.
    pub fn say(mut self) {
        if let Ok(nowhere) = nowhere() {
            let _ = stdio::dup2_stdout(nowhere.as_fd());
            let _ = stdio::dup2_stderr(nowhere.as_fd());
        }
        // If the first process was killed meanwhile, the notification is lost without consequences.
        let _ = self.0.write_all(&[1]);
    }
}

fn nowhere() -> io::Result<std::os::fd::OwnedFd> {
    Ok(rustix::fs::open("/dev/null", OFlags::RDWR, Mode::empty())?)
}
