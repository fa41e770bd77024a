//! Signals that are sent to servers but have no meaning for this server.

#![expect(
    unsafe_code,
    reason = "the disposition of a signal is set by the C library"
)]

use std::io;

/// Ignored signals: sent by a closing terminal, by logrotate (not needed, as the log is opened for each line),
/// by tools written for other servers, or after a write to a closed pipe. By default, each of them terminates a
/// process.
const IGNORED: [i32; 4] = [libc::SIGHUP, libc::SIGUSR1, libc::SIGUSR2, libc::SIGPIPE];

/// Makes the process ignore the signals in `IGNORED`.
pub fn ignore() -> io::Result<()> {
    for signal in IGNORED {
        // SAFETY: no handler is installed, so nothing of this process runs when the signal comes.
        if unsafe { libc::signal(signal, libc::SIG_IGN) } == libc::SIG_ERR {
            return Err(io::Error::last_os_error());
        }
    }
    Ok(())
}
