//! Handling of signals that end the program, because the terminal must be restored first. A closed terminal
//! also ends it, with or without a signal; otherwise the thread that reads keys would wait forever.

use std::io::{self, IsTerminal};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::time::Duration;

use tokio::signal::unix::{SignalKind, signal};

/// Interval of checks whether the terminal still exists.
const LOOKS_EVERY: Duration = Duration::from_secs(1);

/// Time for the program to end by itself: it may be stuck reading keys.
const PATIENCE: Duration = Duration::from_secs(2);

/// Returns a flag that becomes true on a signal that ends the program; from now on none of them terminates the
/// program directly.
pub(super) fn listen() -> io::Result<Arc<AtomicBool>> {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()?;
    let guard = runtime.enter();
    let mut terminate = signal(SignalKind::terminate())?;
    let mut hang_up = signal(SignalKind::hangup())?;
    let mut interrupt = signal(SignalKind::interrupt())?;
    let mut quit = signal(SignalKind::quit())?;
    drop(guard);
    let is_over = Arc::new(AtomicBool::new(false));
    let told = Arc::clone(&is_over);
    let wait = move || {
        runtime.block_on(async {
            while io::stdout().is_terminal() {
                tokio::select! {
                    _ = terminate.recv() => break,
                    _ = hang_up.recv() => break,
                    _ = interrupt.recv() => break,
                    _ = quit.recv() => break,
                    () = tokio::time::sleep(LOOKS_EVERY) => {}
                }
            }
        });
        told.store(true, Relaxed);
        std::thread::sleep(PATIENCE);
        ratatui::restore();
        std::process::exit(1);
    };
    std::thread::Builder::new()
        .name("signals".to_owned())
        .spawn(wait)?;
    Ok(is_over)
}
