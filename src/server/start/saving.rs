//! Snapshots requested by commands and by shutdown: SAVE, BGSAVE, SHUTDOWN, DEBUG RELOAD.
//!
//! Blocking work runs on the snapshot threads, never on threads that serve connections.

use std::fs::File;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed, Ordering::SeqCst};
use std::sync::mpsc;
use std::time::Duration;

use parking_lot::{Mutex, MutexGuard};
use tokio::sync::oneshot;

use super::handover::{self, Handover};
use super::rewriting;
use crate::persist::aof::Aof;
use crate::persist::load::progress::Progress;
use crate::persist::load::{Due, LoadError, Loader, Rules};
use crate::persist::rdb::fault::Fault;
use crate::persist::snapshot::saver::{BgsaveOutcome, Saver};
use crate::persist::snapshot::{Purpose, Running, Snapshots};
use crate::state::Service;
use crate::state::pause::Reason;
use crate::telemetry::clock;
use basalt_commands::client::under_way::UnderWay;
use basalt_commands::command::error::CommandError;
use basalt_commands::command::host::primary::{ReplicaFacts, ReplicaState};
use basalt_commands::command::host::{Awaited, Done, Exit, Reload, Told};
use basalt_commands::config::values::ShutdownOptions;

const IN_PROGRESS: &str = "ERR Background save already in progress";

/// A replica that was asked may lead at any time.
const HANDS_OVER: &str = "ERR A replica is taking over, so the shutdown can't be aborted any more.";

/// Interval of checks whether replicas have received everything.
const REPLICAS_LOOK: Duration = Duration::from_millis(20);

/// Time in which clients are redirected to the replica that has taken over, before their connections are closed.
const REDIRECTED_WITHIN: Duration = Duration::from_millis(250);

/// Interval of checks whether a cancelled save waits for a script that keeps shards locked.
const SCRIPTS_LOOK: Duration = Duration::from_millis(20);

/// Interval of checks whether a reload has reached loading.
const RELOAD_LOOK: Duration = Duration::from_millis(10);

/// Saving on request; see the module.
pub(super) struct SaveCoordinator {
    service: &'static Service,
    snapshots: Arc<Snapshots>,
    saver: Arc<Saver>,
    aof: Arc<Aof>,
    /// Locked by the thread that shuts the server down; released only if the shutdown fails.
    ending: Mutex<()>,
    /// Locked while all data are reloaded.
    reloading: Mutex<()>,
    /// Number of shutdowns that failed or were cancelled.
    failed_ends: AtomicU64,
    /// Whether the other nodes of the cluster are to be told that this one stops, so that a replica is elected at once.
    announces_end: AtomicBool,
    /// Whether a replica was asked to take over.
    hands_over: AtomicBool,
}

impl SaveCoordinator {
    pub(super) fn new(
        service: &'static Service,
        snapshots: Arc<Snapshots>,
        saver: Arc<Saver>,
        aof: Arc<Aof>,
    ) -> Arc<SaveCoordinator> {
        Arc::new(SaveCoordinator {
            service,
            snapshots,
            saver,
            aof,
            ending: Mutex::new(()),
            reloading: Mutex::new(()),
            failed_ends: AtomicU64::new(0),
            announces_end: AtomicBool::new(false),
            hands_over: AtomicBool::new(false),
        })
    }

    /// Starts scheduled saves that are due.
    pub(super) fn tick(&self) {
        self.saver.tick(clock::unix_ms() / 1_000);
    }

    fn refuse_if_saving(&self) -> Result<(), CommandError> {
        let is_rdb = |running: &Arc<Running>| !matches!(running.purpose, Purpose::AofBase(_));
        match self.snapshots.current().filter(is_rdb) {
            Some(_) => Err(IN_PROGRESS.into()),
            None => Ok(()),
        }
    }

    /// Saves in the foreground: SAVE.
    pub(super) fn save(self: &Arc<Self>) -> Result<Awaited, CommandError> {
        self.refuse_if_saving()?;
        Ok(self.on_thread("OK", |saving| {
            // The error was already logged.
            saving.saver.save(false).map_err(|_| "ERR".into())
        }))
    }

    /// Starts a background save: BGSAVE.
    pub(super) fn in_background(&self, may_wait: bool) -> Result<Option<Awaited>, CommandError> {
        self.refuse_if_saving()?;
        match self.saver.in_background(may_wait) {
            Ok(BgsaveOutcome::Runs(running)) => Ok(Some(Awaited {
                begin: Arc::new(move |done| running.when_cut(move || done(Ok(String::new())))),
                told: Told::Text("Background saving started"),
            })),
            Ok(BgsaveOutcome::Scheduled) => Ok(None),
            Err(_) if self.saver.running().is_some() => Err(IN_PROGRESS.into()),
            Err(_) => Err(
                "ERR Another child process is active (AOF?): can't BGSAVE right now. Use BGSAVE SCHEDULE in order \
                 to schedule a BGSAVE whenever possible."
                    .into(),
            ),
        }
    }

    /// Schedules a save: BGSAVE in a transaction.
    pub(super) fn schedule(&self) -> Result<(), CommandError> {
        self.refuse_if_saving()?;
        self.saver.schedule();
        Ok(())
    }

    /// Saves after FLUSHALL. The reply must wait until the empty data set is saved; `None` if there is nothing
    /// to wait for.
    pub(super) fn save_emptied(self: &Arc<Self>) -> Option<Awaited> {
        let must_save = self.saver.note_flushes();
        if must_save && self.snapshots.current().is_some() && self.saver.running().is_none() {
            // Do not wait for a running snapshot of another purpose, which may take long.
            self.saver.schedule();
            return None;
        }
        must_save.then(|| {
            self.on_thread("OK", |saving| {
                // Ignore the error, which was logged: the data is deleted in any case.
                let _ = saving.saver.save(false);
                Ok(())
            })
        })
    }

    /// Shuts the server down: SHUTDOWN.
    pub(super) fn shut_down(self: &Arc<Self>, exit: Exit) -> Awaited {
        let work = move |saving: &SaveCoordinator| {
            let failed = "ERR Errors trying to SHUTDOWN. Check logs.";
            saving.exit(exit).map_err(|()| failed.into())
        };
        Awaited {
            told: Told::Nothing,
            ..self.on_thread("", work)
        }
    }

    /// Saves and reloads all data: DEBUG RELOAD.
    pub(super) fn reload(self: &Arc<Self>, reload: Reload) -> Awaited {
        self.on_thread("OK", move |saving| {
            let _one_at_a_time = saving.reloading.lock();
            // Pause all clients: a write would be lost, and a read would see only part of the data.
            saving.hold_back(Reason::Reload, false);
            let let_in = saving.service.await_under_way();
            let reloaded = let_in.and_then(|()| saving.do_reload(reload));
            saving.service.end_pause(Reason::Reload);
            reloaded
        })
    }

    /// Rewrites the append-only file: BGREWRITEAOF.
    pub(super) fn rewrite_aof(
        &self,
        aof: &Arc<Aof>,
        may_begin: bool,
    ) -> Result<Option<Awaited>, CommandError> {
        rewriting::rewrite(aof, &self.snapshots, may_begin)
    }

    /// Reloads the append-only file: DEBUG LOADAOF.
    pub(super) fn load_aof(self: &Arc<Self>, aof: &Arc<Aof>) -> Awaited {
        let aof = Arc::clone(aof);
        self.on_thread("OK", move |saving| {
            // One load at a time: clients are served again when a load ends.
            let _one_at_a_time = saving.reloading.lock();
            rewriting::load_again(saving.service, &aof)
        })
    }

    /// Runs work on a thread that may block.
    fn on_thread(
        self: &Arc<Self>,
        text: &'static str,
        work: impl Fn(&SaveCoordinator) -> Result<(), CommandError> + Clone + Send + Sync + 'static,
    ) -> Awaited {
        let saving = Arc::clone(self);
        let begin = move |done: Done| {
            let (saving, work) = (Arc::clone(&saving), work.clone());
            let saver = Arc::clone(&saving.saver);
            saver.run(move || done(work(&saving).map(|()| String::new())));
        };
        Awaited {
            begin: Arc::new(begin),
            told: Told::Text(text),
        }
    }

    /// Prepares a shutdown requested by a signal; resolves to whether the server can stop.
    pub(super) fn exit_soon(self: &Arc<Self>, options: ShutdownOptions) -> oneshot::Receiver<bool> {
        let saves = match options {
            _ if options.has(ShutdownOptions::SAVE) => Some(true),
            _ if options.has(ShutdownOptions::NOSAVE) => Some(false),
            _ => None,
        };
        let exit = Exit {
            saves,
            is_forced: options.has(ShutdownOptions::FORCE),
            is_now: options.has(ShutdownOptions::NOW),
            is_safe: options.has(ShutdownOptions::SAFE),
            fails_over: options.has(ShutdownOptions::FAILOVER),
        };
        let (done, ready) = oneshot::channel();
        let saving = Arc::clone(self);
        self.saver.run(move || {
            let _ = done.send(saving.exit(exit).is_ok());
        });
        ready
    }

    /// Cancels any save in progress, because the server stops without another save; resolves when it has ended.
    pub(super) fn cancel(self: &Arc<Self>) -> oneshot::Receiver<()> {
        let (done, ready) = oneshot::channel();
        let saving = Arc::clone(self);
        self.saver.run(move || {
            saving.cancel_and_wait(false);
            let _ = done.send(());
        });
        ready
    }

    /// Cancels any save in progress and waits until it has ended. If the save waits for shards that an endless
    /// script keeps locked, it is abandoned, unless another save follows (`is_saved_then`).
    fn cancel_and_wait(&self, is_saved_then: bool) {
        if let Some(running) = self.snapshots.current() {
            if running.purpose == Purpose::BackgroundSave {
                tracing::warn!("There is a child saving an .rdb. Killing it!");
            }
            running.cancel();
            while !running.wait_for(SCRIPTS_LOOK) && (is_saved_then || !self.is_script_busy()) {}
        }
    }

    fn is_script_busy(&self) -> bool {
        self.service.scripts.running.is_busy()
    }

    /// True if the other nodes are to be told that this one stops.
    pub(super) fn announces_end(&self) -> bool {
        self.announces_end.load(SeqCst)
    }

    /// Pauses writes, and waits until those that were admitted have taken effect, for `shutdown-timeout` at most.
    fn stop_writes(&self) {
        self.hold_back(Reason::Ending, true);
        let timeout_s = u64::from(self.service.config.load().shutdown_timeout);
        let (done, over) = mpsc::channel();
        UnderWay::when_over(&self.service.under_way, move || drop(done));
        let _: Result<(), _> = over.recv_timeout(Duration::from_secs(timeout_s));
    }

    /// Waits, with writers paused, until replicas have received everything, or until `shutdown-timeout` has passed.
    /// Returns false if the shutdown was cancelled meanwhile.
    fn await_replicas(&self) -> bool {
        let primary = self.service.server().primary();
        let waits_until_ms = &self.service.telemetry.replication.ends_at_ms;
        let timeout_s = u64::from(self.service.config.load().shutdown_timeout);
        if timeout_s == 0 || primary.lagging().is_empty() {
            return true;
        }
        self.hold_back(Reason::Ending, true);
        let until_ms = clock::unix_ms() + timeout_s * 1_000;
        tracing::info!("Waiting for replicas before shutting down.");
        waits_until_ms.store(until_ms, SeqCst);
        let mut lagging = primary.lagging();
        while !lagging.is_empty() && clock::unix_ms() < until_ms && waits_until_ms.load(SeqCst) != 0
        {
            primary.ask_for_acknowledgements(None);
            std::thread::sleep(REPLICAS_LOOK);
            lagging = primary.lagging();
        }
        let was_aborted = waits_until_ms.swap(0, SeqCst) == 0;
        for replica in &lagging {
            tracing::info!(
                "Lagging replica {}:{} reported offset {} behind master, lag={}, state={}.",
                replica.ip,
                replica.port,
                primary.stream().offset.saturating_sub(replica.offset),
                replica.lag_s,
                replica.state.name()
            );
        }
        let all = primary.replicas().len();
        let synced = all.saturating_sub(lagging.len());
        tracing::info!("{synced} of {all} replicas are in sync when shutting down.");
        !was_aborted
    }

    /// Cancels a shutdown that is waiting for replicas.
    pub(super) fn abort_end(&self) -> Result<(), CommandError> {
        if self.hands_over.load(SeqCst) {
            return Err(HANDS_OVER.into());
        }
        let waits_until_ms = &self.service.telemetry.replication.ends_at_ms;
        if waits_until_ms.swap(0, SeqCst) == 0 {
            return Err("ERR No shutdown in progress.".into());
        }
        tracing::warn!("Shutdown manually aborted.");
        Ok(())
    }

    /// Does everything required before the server may stop. If another thread is already doing so, waits and
    /// returns that thread's result.
    fn exit(&self, exit: Exit) -> Result<(), ()> {
        let failed_before = self.failed_ends.load(SeqCst);
        let ending = self.ending.lock();
        if self.failed_ends.load(SeqCst) != failed_before {
            return Err(());
        }
        tracing::warn!("User requested shutdown...");
        let result = match exit.is_safe && !exit.is_forced && handover::serves_slots(self.service) {
            true => self.refuse_exit(
                "This primary serves slots of the cluster, which may go down without it: can't exit",
            ),
            false => self.prepare_exit(exit),
        };
        match result {
            // Keep the lock, so that no other thread shuts down again.
            Ok(()) => std::mem::forget(ending),
            Err(()) => drop(self.failed_ends.fetch_add(1, SeqCst)),
        }
        result
    }

    /// Sends FAILING_OVER to clients if there is a replica that may take over. Returns whether there is.
    fn tell_failover(&self) -> bool {
        let replicas = self.service.server().primary().replicas();
        let is_online = |replica: &ReplicaFacts| replica.state == ReplicaState::Online;
        let is_primary = self.service.server().replica().upstream().is_none();
        let may_take_over = is_primary && replicas.iter().any(is_online);
        if may_take_over {
            let timeout_s = u64::from(self.service.config.load().shutdown_timeout);
            let ms = (timeout_s > 0).then_some(timeout_s * 1_000);
            self.service.pubsub.begin_failover(ms, clock::unix_ms());
        }
        may_take_over
    }

    /// Logs why the server cannot stop, and lets writes go on.
    fn refuse_exit(&self, why: &str) -> Result<(), ()> {
        tracing::warn!("{why}");
        tracing::warn!(
            "Errors trying to shut down the server. Check the logs for more information."
        );
        self.let_on();
        Err(())
    }

    /// Hands this node's slots over, with writes paused. Returns true if the shutdown must go on whatever fails: a
    /// replica that was asked has all data and may lead at any time, so this server must accept no more writes.
    fn hand_over(&self) -> bool {
        self.hands_over.store(true, SeqCst);
        let outcome = handover::hand_over(self.service);
        self.hands_over
            .store(outcome != Handover::Impossible, SeqCst);
        self.announces_end.store(outcome != Handover::Done, SeqCst);
        if outcome == Handover::Done {
            // Clients whose writes waited are redirected.
            self.let_on();
            std::thread::sleep(REDIRECTED_WITHIN);
        }
        outcome == Handover::Pending
    }

    /// Announces a failover to clients if a replica may take over, and does everything required; if that fails,
    /// announces that the failover is over.
    fn prepare_exit(&self, exit: Exit) -> Result<(), ()> {
        let is_told = !exit.is_now && self.tell_failover();
        let result = self.try_to_prepare(exit);
        if result.is_err() {
            self.hands_over.store(false, SeqCst);
        }
        if is_told && result.is_err() {
            self.service.pubsub.end_failover(clock::unix_ms());
        }
        result
    }

    fn try_to_prepare(&self, mut exit: Exit) -> Result<(), ()> {
        // An earlier shutdown that failed may have set it.
        self.announces_end.store(false, SeqCst);
        let hands_over = exit.fails_over && handover::serves_slots(self.service);
        if hands_over {
            self.stop_writes();
        }
        if !exit.is_now && !self.await_replicas() {
            self.let_on();
            return Err(());
        }
        if hands_over {
            exit.is_forced |= self.hand_over();
        }
        if self.aof.is_rewriting_first() && !self.is_held_up(exit) {
            if !exit.is_forced {
                return self.refuse_exit("Writing initial AOF, can't exit");
            }
            tracing::warn!("Writing initial AOF, but FORCE or ABORT was given. Exiting anyway.");
        }
        let config = self.service.config.load_full();
        let wants_save = exit.saves.unwrap_or(!config.save.is_empty());
        let whole = wants_save.then(|| self.await_whole()).flatten();
        self.cancel_and_wait(whole.is_some());
        if whole.is_some() {
            tracing::info!("Saving the final RDB snapshot before exiting.");
            // Pause writes first, because the snapshot must contain all acknowledged writes.
            self.hold_back(Reason::Ending, true);
            if self.saver.save(true).is_err() {
                if !exit.is_forced {
                    return self.refuse_exit("Error trying to save the DB, can't exit.");
                }
                tracing::warn!(
                    "Error trying to save the DB, but --force was given, exiting anyway."
                );
            }
        }
        Ok(())
    }

    /// Waits until all data are loaded, and prevents reloading from then on; `None` if a reload from disk is in
    /// progress.
    fn await_whole(&self) -> Option<MutexGuard<'_, ()>> {
        let is_loading = &self.service.telemetry.persistence.loading.is_loading;
        loop {
            let whole = self.reloading.try_lock_for(RELOAD_LOOK);
            if is_loading.load(Relaxed) {
                // Pause writes, because they would not be saved anywhere.
                self.hold_back(Reason::Ending, true);
                return None;
            }
            if whole.is_some() {
                return whole;
            }
        }
    }

    /// Whether a shutdown without a save would have to wait for a running save that waits for shards which a
    /// script keeps locked.
    fn is_held_up(&self, exit: Exit) -> bool {
        exit.saves == Some(false) && self.is_script_busy()
    }

    fn do_reload(&self, reload: Reload) -> Result<(), CommandError> {
        if !reload.skips_save {
            self.saver
                .save(false)
                .map_err(|_| CommandError::from("ERR"))?;
        }
        self.load(reload).map_err(|error| {
            tracing::warn!("Error trying to load the RDB dump: {error}");
            CommandError::from("ERR Error trying to load the RDB dump, check server logs.")
        })?;
        rewriting::forget_dirty(self.service);
        tracing::warn!("DB reloaded by DEBUG RELOAD");
        Ok(())
    }

    fn load(&self, reload: Reload) -> Result<(), LoadError> {
        let path = self.saver.path();
        let opened = File::open(path).and_then(|file| Ok((file.metadata()?.len(), file)));
        let (bytes, mut file) = opened.map_err(|error| LoadError {
            offset: 0,
            fault: Fault::Read(error),
        })?;
        // The loading state from here on keeps other threads from saving the current data.
        let mut progress = Progress::begin(self.service, bytes, &|| false);
        if !reload.skips_flush {
            rewriting::flush_all(self.service);
        }
        let rules = Rules {
            due: match self.service.pause.rest.follows() {
                true => Due::Loaded,
                false => Due::LeftOut,
            },
            replaces: reload.merges,
        };
        Loader::new(self.service).rdb(&mut file, Vec::new(), rules, &mut progress)?;
        Ok(())
    }

    /// Pauses clients, or only their writes.
    fn hold_back(&self, reason: Reason, writes_only: bool) {
        let now_ms = clock::unix_ms();
        let pause = &self.service.pause;
        pause.start(reason, u64::MAX, writes_only, now_ms);
    }

    fn let_on(&self) {
        self.service.end_pause(Reason::Ending);
    }
}
