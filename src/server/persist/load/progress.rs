//! LOADING: for how long the server answers it, how far loading is, and what INFO and the log say of that.

use std::sync::atomic::Ordering::Relaxed;
use std::time::Duration;

use crate::state::Service;
use crate::telemetry::clock;
use crate::telemetry::persistence::LoadingFigures;
use crate::telemetry::progress::Meter;

/// While it lives the server is loading: clients hear LOADING, nothing expires and nothing is evicted. It may be over
/// several files, one after the other.
pub struct Progress<'p> {
    is_aside: bool,
    service: &'static Service,
    figures: &'static LoadingFigures,
    stop: &'p dyn Fn() -> bool,
    /// Bytes of the files before the one that is read.
    before: u64,
    keys: u64,
    meter: Meter,
}

impl<'p> Progress<'p> {
    /// Begins, with so many bytes to be loaded in all; 0 if that is not known. `stop` is asked now and then.
    pub fn begin(
        service: &'static Service,
        total_bytes: u64,
        stop: &'p dyn Fn() -> bool,
    ) -> Progress<'p> {
        let progress = Progress::prepare(service, total_bytes, stop, false);
        service.pause.rest.set_loading(true);
        progress.figures.is_loading.store(true, Relaxed);
        progress
    }

    /// Begins to load data that take the place of all others in the end. Clients are served meanwhile if they are
    /// `served`.
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
            false => figures.is_loading.store(true, Relaxed),
        }
        progress
    }

    /// Bytes to be loaded in all; 0 if that is not known.
    pub fn total_bytes(&self) -> u64 {
        self.figures.total_bytes.load(Relaxed)
    }

    /// Bytes that follow in this file behind `offset`, and in those behind it; 0 if that is not known.
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

    /// The data are not all there, and the server is about to end: until it has, no client is served what there is, and
    /// no thread saves it.
    pub fn never_ends(self) {
        std::mem::forget(self);
    }

    /// The file that is read now has been read so far.
    pub fn reached(&mut self, offset: u64) {
        let loaded = self.before + offset;
        self.figures.loaded_bytes.store(loaded, Relaxed);
        let keys = self.keys;
        self.meter
            .reached_with(loaded, &format_args!(", {keys} keys so far"));
    }

    /// The next file begins, behind so many bytes.
    pub fn next_file(&mut self) {
        self.before = self.figures.loaded_bytes.load(Relaxed);
    }

    /// Counts keys that were read.
    pub(super) fn note_keys(&mut self, keys: usize) {
        self.keys += keys as u64;
    }

    /// Whether the server is about to stop.
    pub fn must_stop(&self) -> bool {
        (self.stop)()
    }

    /// Sleeps for what was read as `key-load-delay` says, which may be changed meanwhile: microseconds for each key or
    /// command or, if it is negative, that many of them a microsecond. Whether loading goes on.
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
        self.figures.is_loading.store(false, Relaxed);
        self.figures.is_aside.store(false, Relaxed);
        if !self.is_aside {
            self.service.pause.rest.set_loading(false);
        }
    }
}
