//! When the server stops: a client says so, at once, or a signal, with the next round of the background, until when SHUTDOWN
//! ABORT takes it back.

use std::sync::atomic::{AtomicBool, Ordering::SeqCst};
use std::time::Duration;

use tokio::signal::unix::{SignalKind, signal};
use tokio::sync::watch;

/// Whether a signal asked for the end, and nobody took that back.
#[derive(Debug, Default)]
pub(super) struct Shutdown {
    is_scheduled: AtomicBool,
}

impl Shutdown {
    /// Takes back what a signal asked for; whether there was something to take back.
    pub(super) fn abort(&self) -> bool {
        let was_scheduled = self.is_scheduled.swap(false, SeqCst);
        if was_scheduled {
            tracing::warn!("Shutdown manually aborted.");
        }
        was_scheduled
    }

    /// From now on there is no way back, if anybody asked for the end.
    fn begin(&self) -> bool {
        self.is_scheduled.swap(false, SeqCst)
    }
}

/// Ends when a client asked for the end, or a round of the background found that a signal did. `round` says how long it is to
/// the next round; none while the background is paused.
pub(super) async fn until_stopped(
    shutdown: &Shutdown,
    round: impl Fn() -> Option<Duration>,
    stop: watch::Sender<bool>,
    mut stopped: watch::Receiver<bool>,
) {
    /// How long it is to the next look at a background that is paused.
    const PAUSED: Duration = Duration::from_millis(10);
    let mut terminate = signal(SignalKind::terminate()).expect("SIGTERM can be listened for");
    let mut interrupt = signal(SignalKind::interrupt()).expect("SIGINT can be listened for");
    loop {
        let is_scheduled = || shutdown.is_scheduled.load(SeqCst);
        let pause = round();
        tokio::select! {
            _ = terminate.recv() => {
                tracing::warn!("Received SIGTERM scheduling shutdown...");
                shutdown.is_scheduled.store(true, SeqCst);
            }
            _ = interrupt.recv() => {
                if is_scheduled() {
                    tracing::warn!("You insist... exiting now.");
                    break;
                }
                tracing::warn!("Received SIGINT scheduling shutdown...");
                shutdown.is_scheduled.store(true, SeqCst);
            }
            _ = stopped.wait_for(|stopped| *stopped) => {
                tracing::warn!("User requested shutdown...");
                break;
            }
            () = tokio::time::sleep(pause.unwrap_or(PAUSED)), if is_scheduled() => {
                if round().is_some() && shutdown.begin() {
                    tracing::warn!("User requested shutdown...");
                    break;
                }
            }
        }
    }
    let _ = stop.send(true);
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
