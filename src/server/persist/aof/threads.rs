//! The threads of the append-only file: one writes the records of the log, one syncs the file each second.

use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;
use std::time::{Duration, Instant};

use super::{Aof, Phase};
use crate::persist::aof::writer::{AofFlushError, AofWriter};
use crate::persist::oplog::{OpLogReader, Stretch};
use crate::telemetry::clock;
use basalt_commands::config::values::Appendfsync;

/// Maximum time that the writer thread waits for log records before it checks its state.
const PATIENCE: Duration = Duration::from_millis(500);

/// Pause after a failed write.
const RETRY_AFTER: Duration = Duration::from_secs(1);

/// Interval between syncs with `appendfsync everysec`.
const SYNC_EVERY: Duration = Duration::from_secs(1);

/// Interval of the sync thread's checks, such as whether a rewrite is due.
const TICK: Duration = Duration::from_millis(100);

/// A sync that takes longer than this is logged as late.
const SYNC_LATE: Duration = Duration::from_secs(2);

/// Maximum bytes of records kept in memory while they cannot be written. Beyond this, records are dropped and
/// only a rewrite makes the file complete again.
const HELD_BYTES_MAX: u64 = 256 << 20;

impl Aof {
    /// Starts the threads, unless they run.
    pub(super) fn start_threads(self: &Arc<Self>) -> std::io::Result<()> {
        let mut are_running = self.threads.lock();
        if *are_running {
            return Ok(());
        }
        let aof = Arc::clone(self);
        let thread = std::thread::Builder::new().name("basalt-aof-sync".to_owned());
        thread.spawn(move || aof.run_sync())?;
        *are_running = true;
        Ok(())
    }

    /// Starts the thread that writes the records of a reader; it ends with the reader.
    pub(super) fn start_writer(self: &Arc<Self>, reader: &Arc<OpLogReader>) -> std::io::Result<()> {
        let (aof, reader) = (Arc::clone(self), Arc::clone(reader));
        let thread = std::thread::Builder::new().name("basalt-aof".to_owned());
        thread.spawn(move || aof.run_writer(&reader))?;
        Ok(())
    }

    fn run_writer(&self, reader: &Arc<OpLogReader>) {
        let mut drives = false;
        while !reader.is_closed() {
            // While replies wait for syncs, this thread sequences the log itself, which saves a hop through
            // another thread.
            let waits = self.service.reply_holds.wait_for_disk();
            if std::mem::replace(&mut drives, waits) != waits {
                self.log.set_driver(waits.then_some(reader));
            }
            let taken = match drives {
                true => self.log.drive(reader, PATIENCE),
                false => reader.take(PATIENCE),
            };
            let has_more = taken.is_some();
            if let Some(stretch) = taken {
                let more = if drives { self.gather(reader) } else { None };
                let sleep_us = self.flush_sleep_us.load(Relaxed);
                if sleep_us > 0 {
                    std::thread::sleep(Duration::from_micros(sleep_us));
                }
                let now_s = clock::unix_ms() / 1000;
                let is_noted = self.service.config.load().aof_timestamp_enabled;
                let mut writer = self.writer.lock();
                for stretch in std::iter::once(stretch).chain(more) {
                    writer.push(stretch, is_noted.then_some(now_s));
                }
            }
            self.flush(reader);
            reader.set_held(self.writer.lock().queued_bytes());
            if has_more && self.log.is_crowded() {
                self.log.look_at_readers();
            }
            self.figures()
                .buffer_bytes
                .store(reader.behind_bytes(), Relaxed);
        }
        if drives {
            self.log.set_driver(None);
        }
    }

    /// Delays the sync so that it covers more clients, if worthwhile (`Gathering`); returns the records that
    /// arrived meanwhile.
    fn gather(&self, reader: &OpLogReader) -> Option<Stretch> {
        let mut gathering = *self.gathering.lock();
        let sleep = |time| {
            let began = Instant::now();
            self.log.lend(true);
            std::thread::sleep(time);
            self.log.lend(false);
            began.elapsed()
        };
        let is_put_off = gathering.gather(|| self.synced.waiting(), sleep);
        *self.gathering.lock() = gathering;
        is_put_off.then(|| self.log.drive(reader, Duration::ZERO))?
    }

    /// Writes the queued records, and syncs them if replies wait for that. Write commands that wait for the
    /// disk resume as the reader's backlog shrinks.
    fn flush(&self, reader: &OpLogReader) {
        let mut writer = self.writer.lock();
        if self.is_failing.load(Relaxed) && !self.may_try() {
            return self.bound(&mut writer);
        }
        let is_always = self.service.config.load().appendfsync == Appendfsync::Always;
        let flushed = writer.flush_telling(&mut |queued_bytes| {
            reader.set_held(queued_bytes);
            if self.log.is_crowded() {
                self.log.look_at_readers();
            }
        });
        if let Some(spent) = writer.take_sync_time() {
            self.figures().fsync.note(spent);
        }
        match flushed {
            Ok(()) if writer.is_held() => return self.bound(&mut writer),
            Ok(()) => {
                if self.is_failing.swap(false, Relaxed) {
                    self.note_recovery();
                }
            }
            Err(failure) => {
                self.fail(&mut writer, failure, is_always);
                return self.bound(&mut writer);
            }
        }
        let bytes = self.parts_bytes.load(Relaxed) + writer.file_bytes();
        self.figures().current_bytes.store(bytes, Relaxed);
        if is_always && !writer.is_held() && writer.written() > self.synced.passed() {
            self.sync_now(&mut writer);
        }
    }

    /// Syncs the file for the replies that wait (`appendfsync always`). One sync covers everything written
    /// before it.
    fn sync_now(&self, writer: &mut AofWriter) {
        let Some((file, _, written)) = writer.file() else {
            return;
        };
        let began = Instant::now();
        self.log.lend(true);
        let synced = file.sync();
        self.log.lend(false);
        let spent = began.elapsed();
        self.figures().fsync.note(spent);
        match synced {
            Ok(()) => {
                // Count the delay of DEBUG AOF-FLUSH-SLEEP as part of the sync's duration.
                let slept = Duration::from_micros(self.flush_sleep_us.load(Relaxed));
                self.gathering
                    .lock()
                    .note(slept + spent, self.synced.waiting());
                self.synced.pass(written);
            }
            Err(error) if self.service.reply_holds.wait_for_disk() => {
                tracing::error!(
                    "Can't persist AOF for fsync error when the AOF fsync policy is 'always': {error}. Exiting..."
                );
                std::process::exit(1);
            }
            Err(error) => self.lose(writer, &error),
        }
    }

    fn may_try(&self) -> bool {
        let mut last = self.last_try.lock();
        let may = last.is_none_or(|last| last.elapsed() >= RETRY_AFTER);
        if may {
            *last = Some(Instant::now());
        }
        may
    }

    fn fail(&self, writer: &mut AofWriter, failure: AofFlushError, is_always: bool) {
        match failure {
            AofFlushError::Write(error) => {
                if !self.is_failing.swap(true, Relaxed) {
                    tracing::warn!("Error writing to the AOF file: {error}");
                }
                if is_always {
                    tracing::error!(
                        "Can't recover from AOF write error when the AOF fsync policy is 'always'. Exiting..."
                    );
                    std::process::exit(1);
                }
                *self.last_try.lock() = Some(Instant::now());
                self.note_failure(&error);
            }
            AofFlushError::Sync(error) => {
                tracing::warn!("Fail to fsync the AOF file: {error}");
                self.lose(writer, &error);
            }
        }
    }

    /// Drops the queue if it is too long. After that, later records are useless until a rewrite succeeds.
    fn bound(&self, writer: &mut AofWriter) {
        if writer.queued_bytes() > HELD_BYTES_MAX {
            tracing::warn!(
                "The AOF file could not be written for too long: pending data is dropped, and a rewrite will replace \
                 the file"
            );
            writer.forget();
            self.is_failing.store(false, Relaxed);
            self.is_scheduled.store(true, Relaxed);
        }
    }

    /// Syncs each second, with `appendfsync everysec`.
    fn run_sync(self: &Arc<Self>) {
        let mut synced = Instant::now();
        loop {
            std::thread::sleep(TICK);
            self.tick();
            self.log.publish(&self.service.telemetry.persistence.log);
            if synced.elapsed() < SYNC_EVERY {
                continue;
            }
            synced = Instant::now();
            // Wake all clients waiting for a sync, as some may have timed out.
            self.synced.open();
            let config = self.service.config.load();
            let is_rewriting = self.figures().rewrite_in_progress.load(Relaxed);
            let rests = config.no_appendfsync_on_rewrite && is_rewriting;
            if config.appendfsync == Appendfsync::Everysec && !rests {
                self.sync();
            }
        }
    }

    /// Syncs what is written, without blocking the writer.
    pub(super) fn sync(&self) {
        let (file, generation, written) = {
            let writer = self.writer.lock();
            match writer.file() {
                Some(file) if !writer.is_held() => file,
                _ => return,
            }
        };
        if written <= self.synced.passed() {
            return;
        }
        let figures = self.figures();
        let began = Instant::now();
        figures.pending_fsync.store(1, Relaxed);
        let synced = file.sync();
        figures.pending_fsync.store(0, Relaxed);
        let spent = began.elapsed();
        figures.fsync.note(spent);
        if spent > SYNC_LATE {
            figures.delayed_fsync.fetch_add(1, Relaxed);
            tracing::info!(
                "Asynchronous AOF fsync is taking too long (disk is busy?): {} ms. Writing the AOF buffer without \
                 waiting for fsync to complete, this may slow down the server.",
                spent.as_millis()
            );
        }
        match synced {
            Ok(()) => self.synced.pass(written),
            Err(error) => {
                tracing::warn!("Fail to fsync the AOF file: {error}");
                let mut writer = self.writer.lock();
                // If the writer has switched to another file meanwhile, it has already synced this one or
                // reported the failure.
                if writer.file().is_some_and(|(_, now, _)| now == generation) {
                    self.lose(&mut writer, &error);
                }
            }
        }
    }

    /// Writes and syncs everything appended so far, unless writes are failing.
    pub(super) fn settle(&self, reader: &Arc<OpLogReader>) {
        self.write_out(reader);
        self.sync();
    }

    /// Writes everything appended so far, unless writes are failing. Returns whether all is written.
    pub(super) fn write_out(&self, reader: &Arc<OpLogReader>) -> bool {
        const LOOKS: usize = 10_000;
        let tail = self.log.tail();
        for _ in 0..LOOKS {
            {
                let writer = self.writer.lock();
                if writer.written() >= tail {
                    return true;
                }
                if writer.is_held() || self.is_failing.load(Relaxed) {
                    break;
                }
            }
            reader.nudge();
            std::thread::sleep(Duration::from_millis(1));
        }
        false
    }

    /// Shuts down: writes and syncs everything. From now on, no client is sent a reply about data that is not
    /// on the disk.
    pub fn shut_down(&self) {
        let inner = self.inner.lock();
        if inner.phase == Phase::On
            && let Some(reader) = &inner.reader
        {
            self.policy.lock().is_ending = true;
            self.follow(&inner);
            tracing::info!("Calling fsync() on the AOF file.");
            self.settle(reader);
        }
    }
}
