//! Rewrites of the append-only file: a snapshot becomes the new base and replaces the files whose data it
//! contains. Commands after the snapshot's cut, the moment that it captures, go to a new file of commands.
//!
//! The cut leaves a marker in the log while all shards are locked: everything before it is in the snapshot. The
//! writer switches files at the marker. Normally the manifest lists the new file of commands at once, as in
//! redis-server, so a failed rewrite leaves one more file. If earlier writes may be lost, or the AOF is just
//! being turned on, the new file has a temporary name and is listed only together with the new base.

use std::io;
use std::ops::RangeInclusive;
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;
use std::time::{Duration, Instant};

use super::store::IncrFileState;
use super::{Aof, Inner, Phase};
use crate::persist::files::new_file::NewFile;
use crate::persist::snapshot::{BaseForm, Busy, Purpose, Running, Sink};
use crate::telemetry::clock;
use basalt_engine::record::Audience;

/// Number of consecutive failures after which automatic rewrites are delayed.
const FAILURES_FREE: u64 = 3;

/// Minimum and maximum delay of automatic rewrites after `FAILURES_FREE` failures.
const WAITS: RangeInclusive<Duration> = Duration::from_secs(60)..=Duration::from_secs(3600);

/// Initial and maximum delay before retrying a failed rewrite if writes are refused until a rewrite succeeds.
const WAITS_URGENT: RangeInclusive<Duration> = Duration::from_secs(1)..=Duration::from_secs(60);

/// Outcome of a request for a rewrite.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RewriteOutcome {
    /// The rewrite has begun.
    Started,
    /// The rewrite will run when the snapshot in progress is done.
    Scheduled,
    /// Another rewrite is already running.
    UnderWay,
    /// The rewrite could not begin; the reason is in the log.
    Failed,
}

/// Backoff of automatic rewrites that fail repeatedly, longer each time.
#[derive(Default)]
pub(super) struct RewriteBackoff {
    failures: u64,
    until: Option<Instant>,
    wait: Duration,
}

impl RewriteBackoff {
    fn note(&mut self, went_well: bool) {
        match went_well {
            true => *self = RewriteBackoff::default(),
            false => self.failures += 1,
        }
    }

    /// Returns whether an automatic rewrite still has to wait because of failures; starts the waiting period if
    /// it has not begun.
    fn holds_back(&mut self, now: Instant, is_urgent: bool) -> bool {
        if self.failures < FAILURES_FREE {
            return false;
        }
        if let Some(until) = self.until {
            let holds_back = now < until;
            self.until.take_if(|_| !holds_back);
            return holds_back;
        }
        let waits = if is_urgent { WAITS_URGENT } else { WAITS };
        self.wait = (self.wait * 2).clamp(*waits.start(), *waits.end());
        self.until = Some(now + self.wait);
        let (count, unit) = match self.wait.as_secs() {
            seconds @ 0..60 => (seconds, "seconds"),
            seconds => (seconds / 60, "minutes"),
        };
        tracing::warn!(
            "Background AOF rewrite has repeatedly failed and triggered the limit, will retry in {count} {unit}"
        );
        true
    }
}

impl Aof {
    /// Runs BGREWRITEAOF; the caller has no shard locked.
    pub fn rewrite(self: &Arc<Self>) -> RewriteOutcome {
        let mut inner = self.inner.lock();
        if inner.is_rewriting {
            return RewriteOutcome::UnderWay;
        }
        if let Err(error) = self.start_threads() {
            tracing::warn!("Can't rewrite append only file in background: {error}");
            return RewriteOutcome::Failed;
        }
        self.begin(&mut inner)
    }

    /// Schedules a rewrite for when no snapshot is running, or, if `is_on` is false, cancels a scheduled one.
    pub fn schedule(self: &Arc<Self>, is_on: bool) {
        if is_on && let Err(error) = self.start_threads() {
            tracing::warn!("Automatic AOF rewriting is disabled: {error}");
        }
        self.is_scheduled.store(is_on, Relaxed);
        self.figures().rewrite_scheduled.store(is_on, Relaxed);
    }

    /// Begins a rewrite, or schedules it if a snapshot is running.
    pub(super) fn begin(self: &Arc<Self>, inner: &mut Inner) -> RewriteOutcome {
        if self.snapshots.current().is_some() {
            self.schedule(true);
            return RewriteOutcome::Scheduled;
        }
        let prepared = self.prepare(inner);
        let (next, mark) = match prepared {
            Ok(prepared) => prepared,
            Err(error) => {
                tracing::warn!("Can't rewrite append only file in background: {error}");
                self.note_end(inner, false, 0);
                return RewriteOutcome::Failed;
            }
        };
        self.schedule(false);
        inner.is_rewriting = true;
        let figures = self.figures();
        let began_s = clock::unix_ms() / 1000;
        figures.rewrite_began_s.store(began_s, Relaxed);
        figures.rewrite_in_progress.store(true, Relaxed);
        let config = self.service.config.load();
        let form = match config.aof_use_rdb_preamble {
            true => BaseForm::Rdb,
            false => BaseForm::Commands,
        };
        let path = inner.store.as_ref().map(|store| store.temporary_base());
        let sink = BaseSink {
            aof: Arc::clone(self),
            file: NewFile::new(
                Arc::clone(&self.files),
                path.unwrap_or_default(),
                config.aof_rewrite_incremental_fsync,
            ),
            form,
            next: next.clone(),
            mark,
        };
        let (aof, follows) = (Arc::clone(self), next != IncrFileState::None);
        let starts = inner.phase == Phase::Waiting;
        let at_cut = move |_: &_| {
            if follows {
                if starts {
                    aof.service
                        .pubsub
                        .interest()
                        .set_listening(Audience::FILE, true);
                }
                aof.log.mark(Audience::FILE, mark);
            }
        };
        match self
            .snapshots
            .begin(Purpose::AofBase(form), Box::new(at_cut), Box::new(sink))
        {
            Ok(running) => {
                tracing::info!(
                    "Background append only file rewriting started by pid {}",
                    std::process::id()
                );
                inner.running = Some(running);
                RewriteOutcome::Started
            }
            Err(Busy(_)) => {
                // Another snapshot has begun in the meantime. Later records go to the file created for this
                // rewrite, as after a failed rewrite.
                self.schedule(true);
                self.abandon(inner, &next, mark);
                RewriteOutcome::Scheduled
            }
        }
    }

    /// Creates the file of commands for the records after the cut; returns its state and the number of the
    /// cut's marker.
    fn prepare(self: &Arc<Self>, inner: &mut Inner) -> io::Result<(IncrFileState, u64)> {
        let is_held = self.writer.lock().is_held();
        let next = match inner.phase {
            Phase::Off => IncrFileState::None,
            Phase::Waiting => IncrFileState::Temporary,
            Phase::On if is_held => IncrFileState::Temporary,
            Phase::On => IncrFileState::Listed,
        };
        if inner.store.is_none() {
            let config = self.service.config.load();
            let store = self.open_store(&config).map_err(|error| {
                error.report();
                io::Error::other("the manifest is not usable")
            })?;
            inner.store = Some(store);
        }
        let store = inner.store.as_mut().expect("opened above");
        let file = store.next_incr(&next)?;
        inner.last_mark += 1;
        let mark = inner.last_mark;
        if let Some(file) = file {
            self.writer.lock().expect_mark(mark, file);
        }
        Ok((next, mark))
    }

    /// Ends a rewrite that could not begin, before its cut.
    fn abandon(self: &Arc<Self>, inner: &mut Inner, next: &IncrFileState, mark: u64) {
        inner.is_rewriting = false;
        self.figures().rewrite_in_progress.store(false, Relaxed);
        self.figures().rewrite_began_s.store(0, Relaxed);
        match next {
            // Later records go to the file that the manifest lists last.
            IncrFileState::Listed => drop(self.log.mark(Audience::FILE, mark)),
            IncrFileState::Temporary => self.drop_temporary(inner),
            IncrFileState::None => {}
        }
    }

    /// Discards the temporary file of commands.
    fn drop_temporary(&self, inner: &mut Inner) {
        if let Some(store) = &inner.store {
            store.remove_temporary_incr();
        }
        let mut writer = self.writer.lock();
        if inner.phase == Phase::Waiting {
            self.service
                .pubsub
                .interest()
                .set_listening(Audience::FILE, false);
            writer.close();
        } else {
            writer.hold();
        }
    }

    /// Finishes a rewrite when its snapshot has been written or has failed. Runs on a snapshot thread.
    fn end(self: &Arc<Self>, went_well: bool, base: &BaseSink) -> io::Result<()> {
        let mut inner = self.inner.lock();
        let began_s = self.figures().rewrite_began_s.load(Relaxed);
        let result = match went_well {
            true => self.put_in_place(&mut inner, base),
            false => Err(io::Error::other("the snapshot failed")),
        };
        if result.is_err() {
            if let Some(store) = &inner.store {
                store.remove_temporary_base();
            }
            if base.next == IncrFileState::Temporary {
                self.drop_temporary(&mut inner);
                // Retry the rewrite until the AOF is turned off.
                self.schedule(inner.phase != Phase::Off);
            } else if self.writer.lock().is_held() {
                self.schedule(true);
            }
        }
        match &result {
            Ok(()) => tracing::info!("Background AOF rewrite finished successfully"),
            Err(error) => tracing::warn!("Background AOF rewrite terminated with error: {error}"),
        }
        let spent_s = (clock::unix_ms() / 1000).saturating_sub(began_s);
        self.note_end(&mut inner, result.is_ok(), spent_s);
        // Wake the callers that wait for the AOF to be on: the rewrite is over.
        self.follow(&inner);
        result
    }

    fn note_end(&self, inner: &mut Inner, went_well: bool, spent_s: u64) {
        inner.is_rewriting = false;
        inner.running = None;
        inner.limiter.note(went_well);
        let figures = self.figures();
        figures.last_rewrite_ok.store(went_well, Relaxed);
        figures.last_rewrite_s.store(spent_s.cast_signed(), Relaxed);
        figures
            .rewrite_failures
            .store(inner.limiter.failures, Relaxed);
        figures.rewrites.fetch_add(u64::from(went_well), Relaxed);
        figures.rewrite_began_s.store(0, Relaxed);
        figures.rewrite_in_progress.store(false, Relaxed);
    }

    fn put_in_place(&self, inner: &mut Inner, base: &BaseSink) -> io::Result<()> {
        let next = &base.next;
        let turns_on = inner.phase == Phase::Waiting;
        let has_skipped = match next {
            IncrFileState::None => false,
            _ => self.reach_mark(inner, base.mark)?,
        };
        if *next == IncrFileState::Temporary {
            // The temporary file counts from now on, so sync its contents first.
            let mut writer = self.writer.lock();
            writer.release();
            writer.flush().map_err(|failure| failure.into_error())?;
            if let Some((file, _, written)) = writer.file() {
                file.sync()?;
                self.synced.pass(written);
            }
        }
        let store = inner.store.as_mut().expect("the rewrite began with one");
        store.finish_rewrite(base.form == BaseForm::Rdb, next)?;
        if turns_on {
            inner.phase = Phase::On;
        }
        let mut writer = self.writer.lock();
        if has_skipped {
            writer.release();
        }
        // If records were dropped because too many arrived, the file has a gap until the next rewrite succeeds.
        let is_whole = !writer.has_gap();
        drop(writer);
        if is_whole && (has_skipped || *next == IncrFileState::Temporary) {
            self.is_failing.store(false, Relaxed);
            self.note_recovery();
        }
        let bytes = self.measure(inner);
        self.figures().base_bytes.store(bytes, Relaxed);
        self.figures().current_bytes.store(bytes, Relaxed);
        self.delete_history(inner);
        Ok(())
    }

    /// Waits until the writer reaches the marker, or, if writing is impossible, makes the writer skip the
    /// records before the marker. Returns true if records were skipped: the writer is then on hold, as later
    /// records are valid only together with the new base.
    fn reach_mark(&self, inner: &Inner, mark: u64) -> io::Result<bool> {
        const PATIENCE: Duration = Duration::from_secs(120);
        let began = Instant::now();
        while began.elapsed() < PATIENCE {
            {
                let mut writer = self.writer.lock();
                if !writer.awaits_mark() {
                    return match writer.has_gap() {
                        true => Err(io::Error::other(
                            "writes after the start of the rewrite were dropped",
                        )),
                        false => Ok(false),
                    };
                }
                let is_stuck = writer.is_held() || self.is_failing.load(Relaxed);
                if is_stuck && writer.skip_to_mark(mark) {
                    return Ok(true);
                }
            }
            if let Some(reader) = &inner.reader {
                reader.nudge();
            }
            std::thread::sleep(Duration::from_millis(1));
        }
        Err(io::Error::new(
            io::ErrorKind::TimedOut,
            "the log did not reach the start of the rewrite",
        ))
    }

    /// Removes replaced files, unless tests want them kept.
    pub(super) fn delete_history(&self, inner: &mut Inner) {
        if self.service.config.load().aof_disable_auto_gc {
            return;
        }
        if let Some(store) = &mut inner.store
            && let Err(error) = store.delete_history()
        {
            tracing::warn!("Can't remove history files of the AOF: {error}");
        }
    }

    /// True while a rewrite runs.
    pub fn is_rewriting(&self) -> bool {
        self.figures().rewrite_in_progress.load(Relaxed)
    }

    /// True while the first rewrite after turning the AOF on runs. Until it succeeds, no appended record
    /// counts.
    pub fn is_rewriting_first(&self) -> bool {
        let inner = self.inner.lock();
        inner.phase == Phase::Waiting && inner.is_rewriting
    }

    /// Returns the snapshot of the running rewrite, if any.
    pub fn running(&self) -> Option<Arc<Running>> {
        self.inner.lock().running.clone()
    }

    /// Checks whether a rewrite is due; waits for a disk only if one is. Called a few times per second, on a thread
    /// that may block.
    pub fn tick(self: &Arc<Self>) {
        let persistence = &self.service.telemetry.persistence;
        if persistence.loading.is_loading.load(Relaxed) {
            return;
        }
        let is_scheduled = self.is_scheduled.load(Relaxed);
        let growth = self.growth();
        if !is_scheduled && growth.is_none() {
            return;
        }
        let mut inner = self.inner.lock();
        if inner.is_rewriting || self.snapshots.current().is_some() {
            return;
        }
        let is_urgent = self.writer.lock().is_held();
        if inner.limiter.holds_back(Instant::now(), is_urgent) {
            return;
        }
        if let Some(growth) = growth.filter(|_| !is_scheduled) {
            tracing::info!("Starting automatic rewriting of AOF on {growth}% growth");
        }
        self.begin(&mut inner);
    }

    /// Returns by how many percent the files have grown since the last rewrite, if that exceeds
    /// `auto-aof-rewrite-percentage`.
    fn growth(&self) -> Option<u64> {
        let (config, figures) = (self.service.config.load(), self.figures());
        let (now, base) = (
            figures.current_bytes.load(Relaxed),
            figures.base_bytes.load(Relaxed),
        );
        let percent = u64::from(config.auto_aof_rewrite_percentage);
        let is_on = figures.enabled.load(Relaxed)
            && percent > 0
            && !figures.rewrite_in_progress.load(Relaxed);
        if !is_on || now <= config.auto_aof_rewrite_min_size || self.snapshots.current().is_some() {
            return None;
        }
        let growth = now.saturating_sub(base).saturating_mul(100) / base.max(1);
        (growth >= percent).then_some(growth)
    }

    /// Cancels a running rewrite because the AOF is being turned off.
    pub(super) fn cancel_rewrite(&self, inner: &Inner) {
        if let Some(running) = &inner.running {
            tracing::info!("Killing AOF child: the rewrite in progress is cancelled");
            running.cancel();
        }
    }
}

/// Sink for the base of a rewrite.
struct BaseSink {
    aof: Arc<Aof>,
    file: NewFile,
    form: BaseForm,
    next: IncrFileState,
    mark: u64,
}

impl Sink for BaseSink {
    fn write(&mut self, chunk: Vec<u8>) -> io::Result<()> {
        self.file.write(&chunk)
    }

    fn finish(mut self: Box<Self>, ok: bool) -> io::Result<()> {
        let synced = match ok {
            true => self.file.sync(),
            false => Ok(()),
        };
        let ended = self.aof.end(ok && synced.is_ok(), &self);
        match ok {
            true => synced.and(ended),
            // Return no error: the caller already knows why the snapshot failed.
            false => Ok(()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rewrites_that_fail_again_and_again_wait_once_one_would_begin_by_itself() {
        let began = Instant::now();
        let after = |seconds| began + Duration::from_secs(seconds);
        let mut limiter = RewriteBackoff::default();
        for _ in 0..FAILURES_FREE {
            assert!(!limiter.holds_back(began, false));
            limiter.note(false);
        }
        // The waiting period begins when a rewrite is next attempted, however long ago the failures were.
        assert!(limiter.holds_back(after(500), false));
        assert!(limiter.holds_back(after(559), false));
        assert!(!limiter.holds_back(after(560), false));
        limiter.note(false);
        assert!(limiter.holds_back(after(561), false), "twice as long");
        assert!(limiter.holds_back(after(680), false));
        assert!(!limiter.holds_back(after(681), false));
        limiter.note(true);
        assert!(!limiter.holds_back(after(682), false));
        for _ in 0..FAILURES_FREE {
            limiter.note(false);
        }
        // While writes are refused, a rewrite is retried soon.
        assert!(limiter.holds_back(after(700), true));
        assert!(!limiter.holds_back(after(701), true));
    }
}
