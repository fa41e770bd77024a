//! Signals that are sent to servers and mean nothing to this one.

#![expect(
    unsafe_code,
    reason = "the disposition of a signal is set by the C library"
)]

use std::io;

/// A terminal that closes, or logrotate (the log is opened anew for each line); signals that tools send to other
/// servers; a reader that has gone. By default each of them ends a process.
const IGNORED: [i32; 4] = [libc::SIGHUP, libc::SIGUSR1, libc::SIGUSR2, libc::SIGPIPE];

/// Ignores them from now on.
pub fn ignore() -> io::Result<()> {
    for signal in IGNORED {
        // SAFETY: no handler is installed, so nothing of this process runs when the signal comes.
        if unsafe { libc::signal(signal, libc::SIG_IGN) } == libc::SIG_ERR {
            return Err(io::Error::last_os_error());
        }
    }
    Ok(())
}
