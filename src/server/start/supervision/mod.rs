//! Notifies the service manager of the server's state: `supervised`.
//!
//! systemd is notified over the socket named by `NOTIFY_SOCKET` when the server is serving (READY), what it is
//! doing (STATUS), when it stops (STOPPING), and that its threads make progress (WATCHDOG, see [`pulse`]). For
//! upstart the process stops itself once it serves. A dedicated thread checks once a second and reports changes.

mod manager;
mod pulse;
mod status;

use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;
use std::sync::mpsc::{self, RecvTimeoutError, Sender};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use parking_lot::Mutex;
use tokio::runtime::Handle;

use crate::state::Service;
use manager::Manager;
use pulse::Pulse;

/// Interval of the thread's checks.
const LOOK: Duration = Duration::from_secs(1);

/// Extra time requested for a startup or shutdown that is still making progress.
const EXTENSION: Duration = Duration::from_secs(30);

/// The link to the service manager; see the module.
pub(super) struct Supervision {
    manager: Manager,
    thread: Mutex<Option<(Sender<()>, JoinHandle<()>)>>,
}

impl Supervision {
    /// Finds the service manager configured by `supervised`. The returned text is a warning if the configured
    /// manager is missing.
    pub(super) fn find(
        config: &basalt_commands::config::Config,
    ) -> (Arc<Supervision>, Option<String>) {
        let (manager, warning) = Manager::find(config.supervised, &|name| std::env::var_os(name));
        let supervision = Supervision {
            manager,
            thread: Mutex::default(),
        };
        (Arc::new(supervision), warning)
    }

    /// Whether a service manager supervises the process, which then stays in the foreground.
    pub(super) fn is_there(&self) -> bool {
        !matches!(self.manager, Manager::None)
    }

    /// Starts notifying the service manager of the server's state and of the runtimes' progress.
    pub(super) fn begin(self: &Arc<Self>, service: &Arc<Service>, runtimes: &[Handle]) {
        if !matches!(self.manager, Manager::Systemd(_)) {
            return;
        }
        let (stop, stopped) = mpsc::channel();
        let (supervision, service) = (Arc::clone(self), Arc::clone(service));
        let pulse = Pulse::of(runtimes);
        let work = move || {
            let mut notifier = ManagerNotifier {
                said: String::new(),
                pulse,
                beat: Instant::now(),
            };
            let pause = notifier.pause(&supervision.manager);
            loop {
                notifier.tell(&supervision.manager, &service);
                match stopped.recv_timeout(pause) {
                    Err(RecvTimeoutError::Timeout) => {}
                    _ => return,
                }
            }
        };
        let thread = std::thread::Builder::new().name("basalt-supervised".to_owned());
        match thread.spawn(work) {
            Ok(thread) => *self.thread.lock() = Some((stop, thread)),
            Err(error) => tracing::warn!("The service manager is not notified: {error}"),
        }
    }

    /// Notifies the service manager that the server is serving.
    pub(super) fn ready(&self, service: &Service) {
        match &self.manager {
            Manager::None => {}
            Manager::Systemd(_) => {
                let status = status::text(service);
                let pid = std::process::id();
                self.manager
                    .notify(&format!("READY=1\nMAINPID={pid}\nSTATUS={status}"));
            }
            Manager::Upstart => manager::stop_self(),
        }
    }

    /// Notifies the service manager that the server is stopping, and ends the thread.
    pub(super) fn stopping(&self) {
        if let Some((stop, thread)) = self.thread.lock().take() {
            drop(stop);
            let _ = thread.join();
        }
        self.manager.notify("STOPPING=1\nSTATUS=Stopping");
    }
}

/// State of the notifying thread.
struct ManagerNotifier {
    said: String,
    pulse: Pulse,
    beat: Instant,
}

impl ManagerNotifier {
    /// Returns the thread's sleep time: at most half of the watchdog interval.
    fn pause(&self, manager: &Manager) -> Duration {
        let beat = manager.watchdog().unwrap_or(LOOK);
        LOOK.min(beat / 2)
    }

    fn tell(&mut self, manager: &Manager, service: &Service) {
        let mut lines = Vec::new();
        let status = status::text(service);
        let is_loading = service
            .telemetry
            .persistence
            .loading
            .is_loading
            .load(Relaxed);
        if is_loading {
            // Loading may take longer than startup is allowed to (TimeoutStartSec), and it is making progress.
            lines.push(format!("EXTEND_TIMEOUT_USEC={}", EXTENSION.as_micros()));
        }
        if status != self.said {
            lines.push(format!("STATUS={status}"));
            self.said = status;
        }
        if let Some(half) = manager.watchdog()
            && self.beat.elapsed() + self.pause(manager) / 2 >= half
        {
            self.beat = Instant::now();
            match self.pulse.stuck() {
                None => lines.push("WATCHDOG=1".to_owned()),
                Some(what) => tracing::error!(
                    "No keep-alive is sent to the watchdog of the service manager: {what}"
                ),
            }
        }
        if !lines.is_empty() {
            manager.notify(&lines.join("\n"));
        }
    }
}
