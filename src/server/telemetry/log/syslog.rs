//! Syslog output: datagrams to the system log's socket, in the format of the C library's `syslog`.
//!
//! ```text
//! <133>Nov 21 12:43:08 redis[27871]: Ready to accept connections tcp
//!  facility * 8 + severity
//! ```

use std::io;
use std::os::unix::net::UnixDatagram;
use std::path::{Path, PathBuf};
use std::time::Duration;

use parking_lot::Mutex;

use basalt_commands::config::values::SyslogFacility;
use basalt_core::base::text::is_invisible;

/// Maximum time that a line waits for a syslog daemon that does not read, or for another thread that sends a
/// line.
const PATIENCE: Duration = Duration::from_millis(100);

/// Maximum bytes of a line; longer lines are truncated.
const LINE_BYTES_MAX: usize = 8 * 1024;

/// Syslog severities of our levels: debug, info, notice, warning.
const SEVERITIES: [u8; 4] = [7, 6, 5, 4];

/// The connection to syslog.
#[derive(Debug)]
pub(super) struct Syslog {
    path: PathBuf,
    ident: String,
    facility: u8,
    socket: Mutex<Option<UnixDatagram>>,
}

impl Syslog {
    pub(super) fn new(path: &Path, ident: &str, facility: SyslogFacility) -> Syslog {
        let facility = match facility {
            SyslogFacility::User => 1,
            SyslogFacility::Local0 => 16,
            SyslogFacility::Local1 => 17,
            SyslogFacility::Local2 => 18,
            SyslogFacility::Local3 => 19,
            SyslogFacility::Local4 => 20,
            SyslogFacility::Local5 => 21,
            SyslogFacility::Local6 => 22,
            SyslogFacility::Local7 => 23,
        };
        Syslog {
            path: path.to_owned(),
            ident: ident.to_owned(),
            facility,
            socket: Mutex::default(),
        }
    }

    /// Connects to syslog's socket now. If not called, the first line connects.
    pub(super) fn open(&self) -> io::Result<()> {
        let socket = self.connect()?;
        *self.socket.lock() = Some(socket);
        Ok(())
    }

    fn connect(&self) -> io::Result<UnixDatagram> {
        let socket = UnixDatagram::unbound()?;
        socket.set_write_timeout(Some(PATIENCE))?;
        socket.connect(&self.path)?;
        Ok(socket)
    }

    /// Sends a line; `rank` is its level, from 0 for debug to 3 for warning. The line is lost if syslog is
    /// down; later lines reach a restarted syslog.
    pub(super) fn send(&self, rank: u8, message: &str) {
        let severity = SEVERITIES[usize::from(rank).min(SEVERITIES.len() - 1)];
        let priority = self.facility * 8 + severity;
        let time = jiff::Zoned::now().strftime("%b %e %H:%M:%S");
        let (ident, pid) = (&self.ident, std::process::id());
        let mut line = format!("<{priority}>{time} {ident}[{pid}]: ");
        for letter in message.chars() {
            match letter.is_control() || is_invisible(letter) {
                true => line.extend(letter.escape_default()),
                false => line.push(letter),
            }
        }
        line.truncate(line.floor_char_boundary(LINE_BYTES_MAX));
        // A thread that died holding the lock must not delay the report of its death.
        let Some(mut socket) = self.socket.try_lock_for(PATIENCE) else {
            return;
        };
        let sent = match &*socket {
            Some(open) => open.send(line.as_bytes()),
            None => Err(io::ErrorKind::NotConnected.into()),
        };
        let is_gone = |error: &io::Error| error.kind() != io::ErrorKind::WouldBlock;
        if sent.as_ref().is_err_and(is_gone) {
            *socket = self.connect().ok();
            if let Some(open) = &*socket {
                let _ = open.send(line.as_bytes());
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn next(log: &UnixDatagram) -> String {
        let mut buffer = vec![0; 64 * 1024];
        let count = log.recv(&mut buffer).expect("a line");
        String::from_utf8_lossy(&buffer[..count]).into_owned()
    }

    #[test]
    fn a_line_says_how_weighty_it_is_and_who_speaks() {
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("log");
        let log = UnixDatagram::bind(&path).expect("a socket");
        let syslog = Syslog::new(&path, "cache", SyslogFacility::Local3);
        syslog.open().expect("it is there");
        let end = format!(" cache[{}]: ", std::process::id());
        for (rank, priority) in [(0, 159), (1, 158), (2, 157), (3, 156)] {
            syslog.send(rank, "a\nb");
            let line = next(&log);
            assert!(line.starts_with(&format!("<{priority}>")), "{line}");
            assert!(line.ends_with(&format!("{end}a\\nb")), "{line}");
        }
        let user = Syslog::new(&path, "cache", SyslogFacility::User);
        user.send(2, &"x".repeat(100_000));
        let line = next(&log);
        assert!(line.starts_with("<13>") && line.len() == LINE_BYTES_MAX);
    }

    #[test]
    fn a_log_that_comes_later_or_anew_gets_what_follows() {
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("log");
        let syslog = Syslog::new(&path, "cache", SyslogFacility::Local0);
        assert!(syslog.open().is_err());
        syslog.send(2, "nobody hears it");
        let log = UnixDatagram::bind(&path).expect("a socket");
        syslog.send(2, "first");
        assert!(next(&log).ends_with("first"));
        drop(log);
        std::fs::remove_file(&path).expect("it goes");
        let log = UnixDatagram::bind(&path).expect("a socket");
        syslog.send(2, "second");
        assert!(next(&log).ends_with("second"));
    }
}
