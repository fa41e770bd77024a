//! Reloads certificates, keys and CAs when their files change.

use std::time::Duration;

use tokio::runtime::Handle;

use crate::state::Service;

/// Interval at which the task wakes to see whether the TLS files are due for a check.
const ROUND: Duration = Duration::from_secs(1);

/// Starts a task that checks the TLS files every few seconds, for as long as the process lives.
pub(super) fn begin(service: &'static Service, runtime: &Handle) {
    runtime.spawn(async move {
        let mut waited_s = 0;
        loop {
            tokio::time::sleep(ROUND).await;
            waited_s += 1;
            let every_s = service.config.load().tls_auto_reload_interval;
            if every_s == 0 || waited_s < every_s || service.tls.current().is_none() {
                continue;
            }
            waited_s = 0;
            // Reading files may block on a disk.
            let looked = tokio::task::spawn_blocking(|| look(service));
            let _ = looked.await;
        }
    });
}

fn look(service: &Service) {
    // Load the configuration once, because CONFIG SET may change the file names meanwhile.
    match service.tls.follow_files(&service.config.load()) {
        None => {}
        Some(Ok(())) => tracing::info!("The changed TLS files have been loaded"),
        Some(Err(why)) => {
            tracing::warn!(
                "The changed TLS files can't be loaded, the previous ones stay in use: {why}"
            );
        }
    }
}
