//! The LOADING state: when the server enters and leaves this state, and the progress that INFO and the log
//! report.

use std::sync::atomic::Ordering::Relaxed;
use std::time::Duration;

use crate::state::Service;
use crate::telemetry::clock;
use crate::telemetry::persistence::LoadingFigures;
use crate::telemetry::progress::Meter;

/// Guard that marks the server as loading: clients get LOADING, nothing expires and nothing is evicted. Covers
/// one or several files, one after the other.
pub struct Progress<'p> {
    is_aside: bool,
    service: &'static Service,
    figures: &'static LoadingFigures,
    stop: &'p dyn Fn() -> bool,
    /// Total bytes of the files loaded before the current one.
    before: u64,
    keys: u64,
    meter: Meter,
}

impl<'p> Progress<'p> {
    /// Enters the loading state. `total_bytes` is the number of bytes to load, 0 if unknown. `stop` is polled
    /// regularly.
    pub fn begin(
        service: &'static Service,
        total_bytes: u64,
        stop: &'p dyn Fn() -> bool,
    ) -> Progress<'p> {
        let progress = Progress::prepare(service, total_bytes, stop, false);
        service.pause.rest.set_loading(true);
        progress.figures.set_loading(true);
        progress
    }

    /// Enters the loading state for data that will replace all existing data at the end. Clients are served
    /// meanwhile if `is_served`.
    pub fn begin_aside(
        service: &'static Service,
        total_bytes: u64,
        stop: &'p dyn Fn() -> bool,
        is_served: bool,
    ) -> Progress<'p> {
        let progress = Progress::prepare(service, total_bytes, stop, true);
        let figures = progress.figures;
        match is_served {
            true => figures.is_aside.store(true, Relaxed),
            false => figures.set_loading(true),
        }
        progress
    }

    /// Returns the total number of bytes to load; 0 if unknown.
    pub fn total_bytes(&self) -> u64 {
        self.figures.total_bytes.load(Relaxed)
    }

    /// Returns the bytes left in this file after `offset`, and in the files after it; 0 if unknown.
    pub(super) fn left_bytes(&self, offset: u64) -> u64 {
        self.total_bytes().saturating_sub(self.before + offset)
    }

    fn prepare(
        service: &'static Service,
        total_bytes: u64,
        stop: &'p dyn Fn() -> bool,
        is_aside: bool,
    ) -> Progress<'p> {
        let figures = &service.telemetry.persistence.loading;
        figures.began_s.store(clock::unix_ms() / 1000, Relaxed);
        figures.total_bytes.store(total_bytes, Relaxed);
        figures.loaded_bytes.store(0, Relaxed);
        figures.snapshot_used_memory.store(0, Relaxed);
        Progress {
            is_aside,
            service,
            figures,
            stop,
            before: 0,
            keys: 0,
            meter: Meter::in_log("Loading", total_bytes),
        }
    }

    /// Leaves the server in the loading state for good, because the data is incomplete and the process is about
    /// to exit. Until then no client is served, and no thread saves the data.
    pub fn never_ends(self) {
        std::mem::forget(self);
    }

    /// Records the progress within the current file.
    pub fn reached(&mut self, offset: u64) {
        let loaded = self.before + offset;
        self.figures.loaded_bytes.store(loaded, Relaxed);
        let keys = self.keys;
        self.meter
            .reached_with(loaded, &format_args!(", {keys} keys so far"));
    }

    /// Starts the next file, after all bytes loaded so far.
    pub fn next_file(&mut self) {
        self.before = self.figures.loaded_bytes.load(Relaxed);
    }

    /// Counts keys of a snapshot that were loaded.
    pub(super) fn note_keys(&mut self, keys: usize) {
        self.keys += keys as u64;
    }

    /// True if the server is about to stop.
    pub fn must_stop(&self) -> bool {
        (self.stop)()
    }

    /// Sleeps as `key-load-delay` demands: that number of microseconds per key or command or, if negative, one
    /// microsecond per that number of keys or commands. The setting may change during the sleep. Returns false
    /// if loading must stop.
    pub(super) fn delay(&self, count: usize) -> bool {
        const SLICE_US: u64 = 20_000;
        let count = count as u64;
        let delay_us = || match i64::from(self.service.config.load().key_load_delay) {
            us @ 0.. => count.saturating_mul(us.unsigned_abs()),
            parts => count / parts.unsigned_abs(),
        };
        let mut slept_us = 0;
        loop {
            if self.must_stop() {
                return false;
            }
            let left_us = delay_us().saturating_sub(slept_us);
            if left_us == 0 {
                return true;
            }
            let slice_us = left_us.min(SLICE_US);
            std::thread::sleep(Duration::from_micros(slice_us));
            slept_us += slice_us;
        }
    }
}

impl Drop for Progress<'_> {
    fn drop(&mut self) {
        self.figures.set_loading(false);
        self.figures.is_aside.store(false, Relaxed);
        if !self.is_aside {
            self.service.pause.rest.set_loading(false);
        }
    }
}
