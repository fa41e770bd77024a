//! The half of replication that follows a primary.
//!
//! ```text
//! wire       the socket, and received data not taken yet
//! handshake  identity, and the requested position of the stream
//! channel    a second connection for the snapshot
//! framing    the extent of a snapshot in the received bytes
//! full_sync  a snapshot to a file, into shards, or aside
//! renewal    replacing all data, and by which way
//! apply      runs the primary's commands in order, and counts how much of the stream is run
//! link       one link from connecting to its end
//! failover   graceful failover (FAILOVER)
//! role       changes with the role, made atomically for all shards
//! ```
//!
//! One task ([`PrimaryFollower::conduct`]) makes all changes of the role, one after the other, and runs one link at a
//! time. A broken link is reestablished at once if the stream had been established, and otherwise after a second.

mod apply;
mod channel;
mod coming;
mod failover;
mod framing;
mod full_sync;
mod handshake;
mod link;
mod renewal;
mod role;
mod wire;

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};
use std::time::Duration;

use parking_lot::Mutex;
use tokio::runtime::Handle;
use tokio::sync::{mpsc, oneshot, watch};

use crate::persist::aof::Aof;
use crate::persist::snapshot::run_on_all;
use crate::replication::stream::{ReplicationStream, Source};
use crate::state::Service;
use crate::telemetry::clock;
use basalt_commands::client::shared::{Peer, Unblocked};
use basalt_commands::command::error::CommandError;
use basalt_commands::command::host::replica as ask;
use basalt_commands::command::host::replica::{FailoverRequest, LinkState, Upstream};
use basalt_commands::command::host::{Awaited, Done, Told};
use basalt_core::structures::wheel::TICK_MS;
use failover::FailoverState;
use handshake::PsyncPosition;
use link::{ReplicaLinkError, UpstreamLink};
use role::{landed, on_all};

/// Delay until the next attempt, if there was no stream.
const TRY_AGAIN: Duration = Duration::from_secs(1);

/// Address of a primary.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Target {
    host: String,
    port: u16,
}

/// A change of the role.
struct RoleChange {
    target: Option<Target>,
    done: Done,
}

/// Progress of a snapshot.
#[derive(Clone, Copy, Debug, Default)]
struct SnapshotProgress {
    /// Length of the snapshot, if known.
    length: Option<u64>,
    received: u64,
}

struct FollowerState {
    /// The primary to follow.
    target: Option<Target>,
    link: LinkState,
    transfer: SnapshotProgress,
    /// Unix second when the stream last broke off; 0 if it never did.
    down_since_s: u64,
}

/// The following half of replication: the primary to follow, and the link to it.
pub struct PrimaryFollower {
    service: &'static Service,
    stream: Arc<ReplicationStream>,
    aof: Arc<Aof>,
    state: Mutex<FollowerState>,
    /// When data last arrived, in Unix milliseconds.
    heard_ms: AtomicU64,
    /// Bytes of the stream that wait for the snapshot to be loaded, and their maximum so far.
    ahead_bytes: AtomicU64,
    ahead_peak_bytes: AtomicU64,
    /// Whether the data corresponds exactly to the end of the stream, so that the stream can be resumed there.
    is_resumable: AtomicBool,
    /// Whether the primary has requested an acknowledgement (GETACK).
    is_asked: AtomicBool,
    /// Bytes of the stream received but not run yet.
    waiting_bytes: AtomicU64,
    failover: FailoverState,
    runtime: Handle,
    orders: mpsc::UnboundedSender<RoleChange>,
}

impl PrimaryFollower {
    /// Creates the follower of a server without a primary. The follower is leaked, because its links may live
    /// as long as the process.
    pub fn new(
        service: &'static Service,
        stream: Arc<ReplicationStream>,
        aof: Arc<Aof>,
        runtime: &Handle,
    ) -> &'static PrimaryFollower {
        let (orders, coming) = mpsc::unbounded_channel();
        let follower: &'static PrimaryFollower = Box::leak(Box::new(PrimaryFollower {
            service,
            stream,
            aof,
            state: Mutex::new(FollowerState {
                target: None,
                link: LinkState::Connect,
                transfer: SnapshotProgress::default(),
                down_since_s: 0,
            }),
            heard_ms: AtomicU64::new(0),
            ahead_bytes: AtomicU64::new(0),
            ahead_peak_bytes: AtomicU64::new(0),
            is_resumable: AtomicBool::new(false),
            is_asked: AtomicBool::new(false),
            waiting_bytes: AtomicU64::new(0),
            failover: FailoverState::default(),
            runtime: runtime.clone(),
            orders,
        }));
        runtime.spawn(follower.conduct(coming));
        follower
    }

    /// Makes the server start as a replica (`replicaof`): clients cannot write from now on. No client is connected
    /// yet.
    pub fn begin(&self) {
        let config = self.service.config.load();
        if let Some((host, port)) = config.replicaof.clone() {
            self.begin_with(host, port);
        }
    }

    /// Does the same as [`PrimaryFollower::begin`], with a primary that is not from the configuration.
    pub fn begin_with(&self, host: String, port: u16) {
        self.aim(Some(Target { host, port }));
        self.stream.confirmations.end();
        self.service.pause.rest.set_follows(true);
    }

    /// Restores the stream position stored in the snapshot loaded at startup: this server continues that
    /// stream, as a replica or as the primary. Blocks, so threads that serve connections must not call it.
    pub fn restored(&self, fields: &BTreeMap<&'static str, String>) {
        let number = |name| fields.get(name).and_then(|text| text.parse::<u64>().ok());
        let (Some(id), Some(offset)) = (fields.get("repl-id"), number("repl-offset")) else {
            return;
        };
        if !handshake::is_id(id) {
            return;
        }
        self.stream.adopt(id, offset);
        if self.state.lock().target.is_some() {
            let databases = u64::from(self.service.config.load().databases);
            let db = number("repl-stream-db").filter(|db| *db < databases);
            self.set_db(db.unwrap_or(0) as usize);
            self.is_resumable.store(true, Relaxed);
            return;
        }
        self.stream.branch();
        if let Err(error) = self.stream.start() {
            tracing::error!("Can't start the replication log thread: {error}");
            return;
        }
        let stream = Arc::clone(&self.stream);
        run_on_all(self.service, move |_, _| {
            stream.feed_from_here(Box::new(|_| ()));
        });
        self.delete_due();
    }

    /// Deletes keys that expired before the server started, so that their deletions are in the stream before a
    /// replica requests it: the stream's offset then decides whether that replica can resume.
    fn delete_due(&self) {
        // An entry that was already expired when it was armed fires only at the timer wheel's next tick.
        std::thread::sleep(Duration::from_millis(2 * TICK_MS));
        let is_more = Arc::new(AtomicBool::new(true));
        while is_more.swap(false, Relaxed) {
            let is_more = Arc::clone(&is_more);
            run_on_all(self.service, move |engines, now| {
                for engine in engines {
                    is_more.fetch_or(engine.expire_slice(now), Relaxed);
                }
            });
        }
        self.stream.catch_up();
    }

    /// Starts the first link, after the data has been loaded at startup.
    pub fn loaded(&self) {
        let target = self.state.lock().target.clone();
        if target.is_some() {
            self.order(target, Box::new(drop));
        }
    }

    /// Returns the applied offset of the followed stream; `None` on a primary.
    pub fn applied(&self) -> Option<u64> {
        self.state.lock().target.as_ref()?;
        Some(match self.is_resumable.load(Relaxed) {
            true => self.stream.facts().offset,
            false => 0,
        })
    }

    /// Returns whether the link to the primary is up, and the milliseconds since data last arrived or, if it is
    /// down, since it went down; `None` on a primary. A link that was never up counts as infinitely old.
    pub fn silence(&self) -> Option<(bool, u64)> {
        let state = self.state.lock();
        state.target.as_ref()?;
        let is_up = state.link == LinkState::Connected;
        let since_ms = match is_up {
            true => self.heard_ms.load(Relaxed),
            false => state.down_since_s * 1000,
        };
        Some((is_up, clock::unix_ms().saturating_sub(since_ms)))
    }

    /// Sends MOVING to clients if REPLICAOF is about to make this server, a primary, a replica. In a cluster the bus
    /// notifies them.
    fn tell_demotion(&self, target: &Target) {
        let was_primary = self.state.lock().target.is_none();
        let is_handing_off = self.service.pubsub.is_handing_off(clock::unix_ms());
        if self.service.cluster.get().is_none() && (was_primary || is_handing_off) {
            self.tell_handoff(target, None);
        }
    }

    fn order(&self, target: Option<Target>, done: Done) {
        let order = RoleChange { target, done };
        self.stream.begin_change();
        // Sending cannot fail: the task lives as long as the process.
        let _ = self.orders.send(order);
    }

    /// Changes the role. The new primary is visible at once, even to CONFIG REWRITE.
    fn go(&self, target: Option<Target>, done: Done) {
        self.service.change_config(|config| {
            config.replicaof = target.clone().map(|target| (target.host, target.port));
        });
        self.aim(target.clone());
        self.order(target, done);
    }

    /// Sets the primary to follow. Clients cannot write from now on; after a promotion they can write only when
    /// the role has changed.
    fn aim(&self, target: Option<Target>) {
        let mut state = self.state.lock();
        if target.is_some() {
            self.figures().is_replica.store(true, Relaxed);
        }
        state.target = target;
        state.link = LinkState::Connect;
        self.figures().is_link_up.store(false, Relaxed);
    }

    /// Whether this server is to be a primary: its last link ends.
    fn is_to_lead(&self) -> bool {
        self.state.lock().target.is_none()
    }

    /// Returns how long a primary may be silent (`repl-timeout`).
    fn timeout(&self) -> Duration {
        Duration::from_secs(u64::from(self.service.config.load().repl_timeout))
    }

    /// Waits while the server sleeps (DEBUG SLEEP).
    async fn awake(&self) {
        const LOOK_AGAIN: Duration = Duration::from_millis(10);
        while self.service.pause.sleeps(clock::unix_ms()) {
            tokio::time::sleep(LOOK_AGAIN).await;
        }
    }

    fn figures(&self) -> &'static crate::telemetry::replication::ReplicationMetrics {
        &self.service.telemetry.replication
    }

    /// Makes the requested changes of the role, and maintains the link.
    async fn conduct(&'static self, mut orders: mpsc::UnboundedReceiver<RoleChange>) {
        let mut target = None;
        loop {
            let order = match &target {
                None => orders.recv().await,
                Some(target) => Some(self.follow_until(target, &mut orders).await),
            };
            let Some(order) = order else { return };
            match (&target, &order.target) {
                (None, Some(_)) => self.become_replica().await,
                (Some(_), None) => self.become_primary().await,
                _ => {}
            }
            target = order.target;
            self.stream.end_change();
            (order.done)(Ok(String::new()));
        }
    }

    /// Maintains the link to a primary until another role change is requested.
    async fn follow_until(
        &'static self,
        target: &Target,
        orders: &mut mpsc::UnboundedReceiver<RoleChange>,
    ) -> RoleChange {
        let mut takes_channel = true;
        loop {
            let (stop, stopped) = watch::channel(false);
            let link = UpstreamLink {
                follower: self,
                target,
                stopped,
                hands_over: self.failover.hands_over(),
                takes_channel,
            };
            let mut running = std::pin::pin!(link.run());
            let (was_up, end) = tokio::select! {
                biased;
                Some(order) = orders.recv() => {
                    let _ = stop.send(true);
                    // Wait for the link, which stops between two turns, so that no command is half done.
                    running.await;
                    self.disconnected();
                    return order;
                }
                ended = &mut running => ended,
            };
            self.disconnected();
            tracing::warn!("{end}");
            // If the second connection failed, do without it next time: the network may not allow it.
            takes_channel = !matches!(end, ReplicaLinkError::Channel(_));
            let pause = match was_up && !matches!(end, ReplicaLinkError::Broken(_)) {
                true => {
                    tracing::info!("Reconnecting to MASTER {}:{}", target.host, target.port);
                    Duration::ZERO
                }
                false => TRY_AGAIN,
            };
            tokio::select! {
                biased;
                Some(order) = orders.recv() => return order,
                () = tokio::time::sleep(pause) => {}
            }
        }
    }

    /// Turns a primary into a replica: only the primary's commands are appended to the stream from now on.
    async fn become_replica(&'static self) {
        self.unblock_all();
        landed(self.service).await;
        if let Err(error) = self.stream.start() {
            tracing::error!("Can't start the replication log thread: {error}");
            return;
        }
        let (say, reached) = oneshot::channel();
        let mut say = Some(say);
        let stream = Arc::clone(&self.stream);
        let was_fed = self.stream.facts().is_kept;
        on_all(self.service, move |_, _| {
            let say = say.take();
            stream.feed_until_here(
                Source::Link,
                Box::new(move |offset| {
                    if let Some(say) = say {
                        let _ = say.send(offset);
                    }
                }),
            );
            self.service.pause.rest.set_follows(true);
        })
        .await;
        let _ = reached.await;
        self.service.server().follow_role();
        self.is_resumable.fetch_or(was_fed, Relaxed);
        self.stream.backlog.keep(true);
    }

    /// Turns a replica into a primary: from here on, the log feeds the stream, which gets a new id.
    async fn become_primary(&'static self) {
        self.stream.branch();
        let stream = Arc::clone(&self.stream);
        on_all(self.service, move |engines, _| {
            stream.feed_from_here(Box::new(|_| ()));
            self.service.pause.rest.set_follows(false);
            engines
                .iter_mut()
                .for_each(|engine| engine.decide_deadlines());
        })
        .await;
        self.is_resumable.store(true, Relaxed);
        self.service.clients.kill_all(Peer::Replica);
        self.service.pubsub.end_handoff();
        self.figures().is_replica.store(false, Relaxed);
        self.service.server().follow_role();
        let facts = self.stream.facts();
        if let Some((previous, end)) = &facts.previous {
            tracing::warn!(
                "Setting secondary replication ID to {previous}, valid up to offset: {end}. New replication ID is {}",
                facts.id
            );
        }
        tracing::info!("MASTER MODE enabled (user request)");
    }

    /// Ends all waits of clients: on a replica only its primary may change the data they wait for.
    fn unblock_all(&self) {
        for client in self.service.clients.all() {
            client.unblock(Unblocked::RoleChanged);
        }
    }

    fn set_state(&self, link: LinkState) {
        self.state.lock().link = link;
    }

    fn begin_transfer(&self) {
        let mut state = self.state.lock();
        state.link = LinkState::Sync;
        state.transfer = SnapshotProgress::default();
        self.ahead_peak_bytes.store(0, Relaxed);
    }

    fn note_length(&self, length: Option<u64>) {
        self.state.lock().transfer.length = length;
    }

    /// Records how many bytes of the snapshot have arrived.
    fn note_received(&self, bytes: u64) {
        let before = std::mem::replace(&mut self.state.lock().transfer.received, bytes);
        self.note_input(bytes.saturating_sub(before) as usize);
    }

    fn note_input(&self, bytes: usize) {
        self.heard_ms.store(clock::unix_ms(), Relaxed);
        self.figures().input_bytes.fetch_add(bytes as u64, Relaxed);
    }

    /// Ends the stream of this server, for its own replicas too, as its data is about to be removed.
    fn detach(&self) {
        self.is_resumable.store(false, Relaxed);
        self.service.clients.kill_all(Peer::Replica);
    }

    /// Notes that the data now correspond to a stream up to an offset.
    fn adopt(&self, id: &str, offset: u64, db: Option<usize>) {
        self.stream.adopt(id, offset);
        self.set_db(db.unwrap_or(0));
        self.is_resumable.store(true, Relaxed);
    }

    /// Continues the stream under another id.
    fn continue_as(&self, id: &str) {
        self.stream.continue_as(id);
        // Disconnect this server's replicas: they learn the new id when they reconnect.
        self.service.clients.kill_all(Peer::Replica);
    }

    fn connected(&self) {
        self.stream.confirmations.follow();
        self.set_state(LinkState::Connected);
        self.heard_ms.store(clock::unix_ms(), Relaxed);
        self.figures().is_link_up.store(true, Relaxed);
        tracing::info!("MASTER <-> REPLICA sync: applying the replication stream from here on");
    }

    fn disconnected(&self) {
        let mut state = self.state.lock();
        if state.link == LinkState::Connected {
            state.down_since_s = clock::unix_ms() / 1000;
        }
        state.link = LinkState::Connect;
        self.ahead_bytes.store(0, Relaxed);
        self.figures().is_link_up.store(false, Relaxed);
    }

    /// Records how many bytes of the stream were read ahead and are not applied yet.
    fn note_ahead(&self, bytes: usize) {
        let before = self.ahead_bytes.swap(bytes as u64, Relaxed);
        self.ahead_peak_bytes.fetch_max(bytes as u64, Relaxed);
        if before > 0 && bytes == 0 {
            tracing::info!("The buffered replication stream has been applied");
        }
    }

    /// Returns how many bytes of the stream may wait for the snapshot to be loaded.
    fn ahead_max(&self) -> u64 {
        let config = self.service.config.load();
        let limits = [
            config.replica_full_sync_buffer_limit,
            config.client_output_buffer_limit.replica.hard_bytes,
        ];
        let limit = limits.into_iter().find(|bytes| *bytes > 0);
        limit.unwrap_or(u64::MAX)
    }

    /// Returns the position at which the stream can be resumed; `None` if it cannot.
    fn position(&self) -> Option<PsyncPosition> {
        let facts = self.stream.facts();
        self.is_resumable.load(Relaxed).then(|| PsyncPosition {
            id: facts.id,
            next: facts.offset + 1,
        })
    }

    /// Makes the stream not resumable, because the exact offset of the commands run is unknown.
    fn forget_position(&self) {
        self.is_resumable.store(false, Relaxed);
    }

    fn db(&self) -> usize {
        self.stream.db()
    }

    fn set_db(&self, db: usize) {
        self.stream.set_db(db);
    }

    /// Returns whether the primary has requested an acknowledgement since the last call.
    fn take_question(&self) -> bool {
        self.is_asked.swap(false, Relaxed)
    }

    /// Returns the INFO lines of a replica, apart from its primary's address.
    fn info(&self, state: &FollowerState) -> Vec<(&'static str, String)> {
        let config = self.service.config.load();
        let now_ms = clock::unix_ms();
        let since_s = |ms: u64| now_ms.saturating_sub(ms) / 1000;
        let is_up = state.link == LinkState::Connected;
        let heard_s = since_s(self.heard_ms.load(Relaxed));
        let is_transfer = state.link == LinkState::Sync;
        let offset = match self.is_resumable.load(Relaxed) {
            true => self.stream.facts().offset,
            false => 1,
        };
        let read_offset = offset + self.waiting_bytes.load(Relaxed);
        let mut lines = vec![
            (
                "master_link_status",
                if is_up { "up" } else { "down" }.to_owned(),
            ),
            (
                "master_last_io_seconds_ago",
                match is_up {
                    true => heard_s.to_string(),
                    false => "-1".to_owned(),
                },
            ),
            ("master_sync_in_progress", u8::from(is_transfer).to_string()),
            ("slave_read_repl_offset", read_offset.to_string()),
            ("slave_repl_offset", offset.to_string()),
        ];
        let (ahead, peak) = (&self.ahead_bytes, &self.ahead_peak_bytes);
        let (ahead, peak) = (ahead.load(Relaxed), peak.load(Relaxed));
        if config.dual_channel_replication_enabled {
            lines.push(("replicas_repl_buffer_size", ahead.to_string()));
            lines.push(("replicas_repl_buffer_peak", peak.to_string()));
        }
        if config.repl_rdb_channel {
            lines.push(("replica_full_sync_buffer_size", ahead.to_string()));
            lines.push(("replica_full_sync_buffer_peak", peak.to_string()));
        }
        if is_transfer {
            let SnapshotProgress { length, received } = state.transfer;
            let total = length.unwrap_or(0);
            let percent = match total {
                0 => 0.0,
                total => 100.0 * received as f64 / total as f64,
            };
            let left = total.cast_signed() - received.cast_signed();
            lines.extend([
                ("master_sync_total_bytes", total.to_string()),
                ("master_sync_read_bytes", received.to_string()),
                ("master_sync_left_bytes", left.to_string()),
                ("master_sync_perc", format!("{percent:.2}")),
                ("master_sync_last_io_seconds_ago", heard_s.to_string()),
            ]);
        }
        if !is_up {
            let down_s = match state.down_since_s {
                0 => "-1".to_owned(),
                since_s => (now_ms / 1000).saturating_sub(since_s).to_string(),
            };
            lines.push(("master_link_down_since_seconds", down_s));
        }
        lines.extend([
            ("slave_priority", config.replica_priority.to_string()),
            (
                "slave_read_only",
                u8::from(config.replica_read_only).to_string(),
            ),
            (
                "replica_announced",
                u8::from(config.replica_announced).to_string(),
            ),
        ]);
        lines
    }
}

impl ask::Replica for PrimaryFollower {
    fn upstream(&self) -> Option<Upstream> {
        let state = self.state.lock();
        let Target { host, port } = state.target.clone()?;
        let offset = match state.link {
            LinkState::Connected => self.stream.facts().offset.cast_signed(),
            _ => -1,
        };
        Some(Upstream {
            host,
            port,
            state: state.link,
            offset,
            info: self.info(&state),
        })
    }

    fn follow(&'static self, target: Option<(String, u16)>) -> Result<Awaited, CommandError> {
        if self.failover.is_on() {
            return Err("ERR REPLICAOF not allowed while failing over.".into());
        }
        let target = target.map(|(host, port)| Target { host, port });
        if target.is_some() && self.state.lock().target == target {
            tracing::info!(
                "REPLICAOF would result into synchronization with the master we are already connected with. No operation performed."
            );
            return Ok(Awaited {
                begin: Arc::new(|done| done(Ok(String::new()))),
                told: Told::Text("OK Already connected to specified master"),
            });
        }
        if let Some(Target { host, port }) = &target {
            tracing::info!("REPLICAOF {host}:{port} enabled");
        }
        Ok(Awaited {
            begin: Arc::new(move |done| {
                if let Some(target) = &target {
                    self.tell_demotion(target);
                }
                self.go(target.clone(), done);
            }),
            told: Told::Text("OK"),
        })
    }

    fn refuses_replicas(&self) -> Option<CommandError> {
        let state = self.state.lock();
        let is_down = state.target.is_some() && state.link != LinkState::Connected;
        is_down.then(|| "NOMASTERLINK Can't SYNC while not connected with my master".into())
    }

    fn acknowledge(&self) {
        self.is_asked.store(true, Relaxed);
    }

    fn fail_over(&'static self, failover: FailoverRequest) -> Result<(), CommandError> {
        self.begin_failover(failover)
    }

    fn abort_failover(&self) -> Result<(), CommandError> {
        self.abort()
    }

    fn failover_state(&self) -> &'static str {
        self.failover.name()
    }

    fn take_over(&self, id: &[u8]) -> Result<(), CommandError> {
        self.succeed(id)
    }
}
