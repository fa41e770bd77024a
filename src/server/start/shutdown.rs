//! Decides when the server stops: on a client's request, or after a signal in the next background round. Until
//! that round, SHUTDOWN ABORT can cancel a signal's request.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::SeqCst};
use std::time::Duration;

use tokio::signal::unix::{Signal, SignalKind, signal};
use tokio::sync::watch;

use super::saving::SaveCoordinator;
use crate::state::Service;

/// Whether a signal requested a shutdown that no client has cancelled.
#[derive(Debug, Default)]
pub(super) struct Shutdown {
    is_scheduled: AtomicBool,
}

impl Shutdown {
    /// Cancels a shutdown requested by a signal. Returns whether there was one.
    pub(super) fn abort(&self) -> bool {
        let was_scheduled = self.is_scheduled.swap(false, SeqCst);
        if was_scheduled {
            tracing::warn!("Shutdown manually aborted.");
        }
        was_scheduled
    }

    /// Makes a requested shutdown irrevocable. Returns whether there was one.
    fn begin(&self) -> bool {
        self.is_scheduled.swap(false, SeqCst)
    }
}

/// The signals that request a shutdown. A signal that arrives before it is awaited is not lost.
pub(super) struct Signals {
    terminate: Signal,
    interrupt: Signal,
}

impl Signals {
    /// Starts listening in a runtime; from now on, none of the signals terminates the process directly.
    pub(super) fn listen() -> Signals {
        Signals {
            terminate: signal(SignalKind::terminate()).expect("SIGTERM can be listened for"),
            interrupt: signal(SignalKind::interrupt()).expect("SIGINT can be listened for"),
        }
    }
}

/// Completes when a client requested a shutdown, or when a background round finds that a signal requested it,
/// and the shutdown did not fail. `round` returns the time until the next round; `None` while the background is
/// paused.
pub(super) async fn run_until_shutdown(
    shutdown: &Shutdown,
    signals: Signals,
    round: impl Fn() -> Option<Duration>,
    saving: &Arc<SaveCoordinator>,
    service: &Service,
    mut stopped: watch::Receiver<bool>,
) {
    /// Polling interval while the background is paused.
    const PAUSED: Duration = Duration::from_millis(10);
    let Signals {
        mut terminate,
        mut interrupt,
    } = signals;
    let mut last = "SIGTERM";
    loop {
        let is_scheduled = || shutdown.is_scheduled.load(SeqCst);
        let pause = round();
        let mut is_due = false;
        tokio::select! {
            _ = terminate.recv() => {
                tracing::warn!("Received SIGTERM scheduling shutdown...");
                last = "SIGTERM";
                shutdown.is_scheduled.store(true, SeqCst);
            }
            _ = interrupt.recv() => {
                if is_scheduled() {
                    return insist(saving).await;
                }
                tracing::warn!("Received SIGINT scheduling shutdown...");
                last = "SIGINT";
                shutdown.is_scheduled.store(true, SeqCst);
            }
            _ = stopped.wait_for(|stopped| *stopped) => return,
            () = tokio::time::sleep(pause.unwrap_or(PAUSED)), if is_scheduled() => {
                is_due = round().is_some() && shutdown.begin();
            }
        }
        if !is_due {
            continue;
        }
        let config = service.config.load_full();
        let options = match last {
            "SIGINT" => config.shutdown_on_sigint,
            _ => config.shutdown_on_sigterm,
        };
        tokio::select! {
            can_end = saving.exit_soon(options) => {
                if can_end.unwrap_or(true) {
                    return;
                }
                tracing::warn!(
                    "{last} received but errors trying to shut down the server, check the logs for more information"
                );
            }
            _ = interrupt.recv() => return insist(saving).await,
            _ = stopped.wait_for(|stopped| *stopped) => return,
        }
    }
}

/// Shuts down without finishing the last save, and removes its incomplete file; for a second signal.
async fn insist(saving: &Arc<SaveCoordinator>) {
    tracing::warn!("You insist... exiting now.");
    let _ = saving.cancel().await;
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_begun_is_not_taken_back() {
        let shutdown = Shutdown::default();
        assert!(!shutdown.abort() && !shutdown.begin());
        shutdown.is_scheduled.store(true, SeqCst);
        assert!(shutdown.abort() && !shutdown.begin());
        shutdown.is_scheduled.store(true, SeqCst);
        assert!(shutdown.begin() && !shutdown.abort());
    }
}
