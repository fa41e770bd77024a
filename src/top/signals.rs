//! Signals that end a program: a terminal that has been taken has to be given back first.

use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};

use tokio::signal::unix::{SignalKind, signal};

/// What becomes true when one of them comes; none of them ends the program from now on.
pub(super) fn listen() -> io::Result<Arc<AtomicBool>> {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_io()
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
            tokio::select! {
                _ = terminate.recv() => {}
                _ = hang_up.recv() => {}
                _ = interrupt.recv() => {}
                _ = quit.recv() => {}
            }
        });
        told.store(true, Relaxed);
    };
    std::thread::Builder::new()
        .name("signals".to_owned())
        .spawn(wait)?;
    Ok(is_over)
}
