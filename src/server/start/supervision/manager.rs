//! Detects the service manager and communicates with it.
//!
//! The name of systemd's socket is a path or, after an `@`, a name in the abstract namespace, which no crate
//! for this protocol supports.

use std::ffi::OsString;
use std::io;
use std::os::linux::net::SocketAddrExt;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::net::{SocketAddr, UnixDatagram};
use std::time::Duration;

use rustix::process::{Signal, getpid, kill_process};

use crate::telemetry::log;
use basalt_commands::config::values::Supervised;

/// The service manager, if any.
#[derive(Debug)]
pub(super) enum Manager {
    None,
    Systemd(Systemd),
    Upstart,
}

/// The connection to systemd.
#[derive(Debug)]
pub(super) struct Systemd {
    socket: UnixDatagram,
    address: SocketAddr,
    /// Interval of watchdog notifications: half of the time after which systemd kills the process.
    watchdog: Option<Duration>,
}

impl Manager {
    /// Finds the configured service manager through the environment. The returned text is a warning if the
    /// configured manager is missing.
    pub(super) fn find(
        wanted: Supervised,
        environment: &dyn Fn(&str) -> Option<OsString>,
    ) -> (Manager, Option<String>) {
        let is_upstart = environment("UPSTART_JOB").is_some();
        let socket = environment("NOTIFY_SOCKET");
        let missing = |directive: &str, variable: &str| {
            let text = format!(
                "supervised {directive}: the environment variable {variable} is not set, so no service manager is \
                 notified"
            );
            (Manager::None, Some(text))
        };
        match wanted {
            Supervised::Upstart | Supervised::Auto if is_upstart => (Manager::Upstart, None),
            Supervised::Systemd | Supervised::Auto if socket.is_some() => {
                let socket = socket.unwrap_or_default();
                match Systemd::open(&socket, watchdog(environment)) {
                    Ok(systemd) => (Manager::Systemd(systemd), None),
                    Err(error) => {
                        let text = format!(
                            "NOTIFY_SOCKET={}: {error}, so systemd is not notified",
                            socket.to_string_lossy()
                        );
                        (Manager::None, Some(text))
                    }
                }
            }
            Supervised::Upstart => missing("upstart", "UPSTART_JOB"),
            Supervised::Systemd => missing("systemd", "NOTIFY_SOCKET"),
            Supervised::Auto | Supervised::No => (Manager::None, None),
        }
    }

    /// Sends lines to systemd, if it supervises the process.
    pub(super) fn notify(&self, lines: &str) {
        if let Manager::Systemd(systemd) = self
            && let Err(error) = systemd
                .socket
                .send_to_addr(lines.as_bytes(), &systemd.address)
        {
            log::warn_seldom("notify", format_args!("Can't notify systemd: {error}"));
        }
    }

    /// Returns the interval of watchdog notifications, if systemd wants them.
    pub(super) fn watchdog(&self) -> Option<Duration> {
        match self {
            Manager::Systemd(systemd) => systemd.watchdog,
            _ => None,
        }
    }
}

impl Systemd {
    fn open(name: &OsString, watchdog: Option<Duration>) -> io::Result<Systemd> {
        let address = match name.as_bytes() {
            [b'@', name @ ..] => SocketAddr::from_abstract_name(name)?,
            [b'/', ..] => SocketAddr::from_pathname(name)?,
            _ => return Err(io::Error::other("neither a path nor an abstract socket")),
        };
        let socket = UnixDatagram::unbound()?;
        // A service manager that does not read must not block the server.
        socket.set_nonblocking(true)?;
        Ok(Systemd {
            socket,
            address,
            watchdog,
        })
    }
}

/// Returns half of systemd's watchdog timeout, unless the timeout is meant for another process.
fn watchdog(environment: &dyn Fn(&str) -> Option<OsString>) -> Option<Duration> {
    let number = |name| environment(name)?.to_str()?.parse::<u64>().ok();
    let is_ours = match environment("WATCHDOG_PID") {
        Some(_) => number("WATCHDOG_PID") == Some(u64::from(std::process::id())),
        None => true,
    };
    let us = number("WATCHDOG_USEC").filter(|us| is_ours && *us > 0)?;
    Some(Duration::from_micros((us / 2).max(1_000)))
}

/// Stops the process: upstart waits for that and then continues it (`expect stop`).
pub(super) fn stop_self() {
    let _ = kill_process(getpid(), Signal::STOP);
}

#[cfg(test)]
mod tests {
    use super::*;

    fn found(wanted: Supervised, variables: &[(&str, &str)]) -> (Manager, Option<String>) {
        let environment = |name: &str| {
            let found = variables.iter().find(|(known, _)| *known == name);
            found.map(|(_, value)| OsString::from(value))
        };
        Manager::find(wanted, &environment)
    }

    #[test]
    fn the_environment_says_who_supervises() {
        let systemd = [("NOTIFY_SOCKET", "@nobody-binds-this")];
        let upstart = [("UPSTART_JOB", "basalt")];
        for wanted in [Supervised::Systemd, Supervised::Auto] {
            assert!(matches!(
                found(wanted, &systemd),
                (Manager::Systemd(_), None)
            ));
        }
        for wanted in [Supervised::Upstart, Supervised::Auto] {
            assert!(matches!(found(wanted, &upstart), (Manager::Upstart, None)));
        }
        for (wanted, is_warned) in [
            (Supervised::Systemd, true),
            (Supervised::Upstart, true),
            (Supervised::Auto, false),
            (Supervised::No, false),
        ] {
            let (manager, warning) = found(wanted, &[]);
            assert!(matches!(manager, Manager::None));
            assert_eq!(warning.is_some(), is_warned);
        }
        let (manager, warning) = found(Supervised::Auto, &[("NOTIFY_SOCKET", "vsock:1:2")]);
        assert!(matches!(manager, Manager::None) && warning.is_some());
    }

    #[test]
    fn the_watchdog_wants_a_word_in_half_of_its_time() {
        let own = std::process::id().to_string();
        let of = |variables: &[(&str, &str)]| {
            let mut all = vec![("NOTIFY_SOCKET", "@nobody-binds-this")];
            all.extend(variables);
            found(Supervised::Systemd, &all).0.watchdog()
        };
        assert_eq!(of(&[]), None);
        let half = Some(Duration::from_secs(2));
        assert_eq!(of(&[("WATCHDOG_USEC", "4000000")]), half);
        assert_eq!(
            of(&[("WATCHDOG_USEC", "4000000"), ("WATCHDOG_PID", &own)]),
            half
        );
        assert_eq!(
            of(&[("WATCHDOG_USEC", "4000000"), ("WATCHDOG_PID", "1")]),
            None
        );
        for wrong in ["", "0", "soon"] {
            assert_eq!(of(&[("WATCHDOG_USEC", wrong)]), None);
        }
    }
}
