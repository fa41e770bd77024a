//! The half of replication that sends the stream.
//!
//! ```text
//! pair      the two connections of a replica whose snapshot has its own
//! peer      state of a connected replica
//! sender    the task of one replica, which owns its connection
//! input     acknowledgements of a replica
//! retrying  backoff of replicas that cannot load their snapshot
//! syncing   the queue for snapshots, and when one begins
//! transfer  a snapshot in transit to several replicas
//! ```
//!
//! No command waits for a replica: the sequencer appends to the backlog and wakes the senders, each of which
//! sends as much as its socket takes. A replica that reads nothing is disconnected by its output limit or by
//! `repl-timeout`.

mod input;
mod pair;
mod peer;
mod retrying;
mod sender;
mod syncing;
mod transfer;

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::task::{Context, Waker};
use std::time::Duration;

use bytes::Bytes;
use parking_lot::Mutex;
use tokio::runtime::Handle;

use crate::net::connection::{self, DetachedConnection};
use crate::persist::files::Files;
use crate::persist::oplog::Gate;
use crate::persist::snapshot::{Snapshots, run_on_all};
use crate::replication::backlog::Cursor;
use crate::replication::stream::{ReplicationStream, Source};
use crate::state::Service;
use crate::telemetry::clock;
use basalt_commands::client::announced::Announced;
use basalt_commands::client::shared::{Peer as Kind, Shared};
use basalt_commands::command::host::primary::{
    self as ask, Acknowledged, Follow, ReplicaChannel, ReplicaFacts, ReplicaState, StreamFacts,
    Words,
};
use basalt_commands::config::Config;
use pair::Seat;
use peer::ConnectedReplica;
use retrying::ReplicaRetries;
use sender::ReplicaConnection;
use syncing::SyncQueue;

/// Assumed output limit of replicas if none is configured; write commands wait for a replica that is half of
/// this behind (`replica-slows-writers`).
const SLOW_BYTES: u64 = 256 << 20;

/// Interval of the periodic work.
const TICK: Duration = Duration::from_millis(100);

/// The sending half of replication: the connected replicas, and the queue for snapshots.
pub struct Primary {
    service: &'static Service,
    stream: Arc<ReplicationStream>,
    snapshots: Arc<Snapshots>,
    files: Arc<dyn Files>,
    runtime: Handle,
    /// Connected replicas by client id. Locked while the stream ends for lack of replicas, so that no replica
    /// connects meanwhile.
    peers: Mutex<BTreeMap<u64, Arc<ConnectedReplica>>>,
    syncing: SyncQueue,
    retrying: ReplicaRetries,
    /// Gate that opens when a replica acknowledges more than before, or connects.
    acknowledged: Gate,
    /// Log position before the last request for acknowledgements (GETACK): replies to it cover everything
    /// logged before.
    asked: AtomicU64,
    /// Log position after the last request for acknowledgements.
    asked_end: AtomicU64,
    pinged_ms: AtomicU64,
    /// Unix milliseconds when the last replica disconnected, or when this server started; moved forward when the stream
    /// is forgotten for lack of replicas.
    alone_since_ms: AtomicU64,
}

/// Reply to a replica that requests the stream.
enum Start {
    /// Partial synchronization: a status line, and a cursor of the stream.
    Partial(Bytes, Cursor),
    /// A full synchronization: the replica gets a snapshot first.
    Full,
    /// A line with the reason why the replica gets no stream now.
    Later(Bytes),
}

impl Primary {
    pub(super) fn new(
        service: &'static Service,
        stream: Arc<ReplicationStream>,
        snapshots: Arc<Snapshots>,
        files: Arc<dyn Files>,
        runtime: Handle,
    ) -> Arc<Primary> {
        let now_ms = clock::unix_ms();
        let primary = Primary {
            service,
            stream,
            snapshots,
            files,
            runtime,
            peers: Mutex::default(),
            syncing: SyncQueue::default(),
            retrying: ReplicaRetries::default(),
            acknowledged: Gate::default(),
            asked: AtomicU64::new(0),
            asked_end: AtomicU64::new(0),
            pinged_ms: AtomicU64::new(now_ms),
            alone_since_ms: AtomicU64::new(now_ms),
        };
        primary.configure(&service.config.load());
        Arc::new(primary)
    }

    /// Returns the snapshots of this server.
    pub fn snapshots(&self) -> &Snapshots {
        &self.snapshots
    }

    /// Applies the configuration, without blocking.
    pub fn configure(&self, config: &Config) {
        let holds = self.stream.confirmations.configure(config);
        self.service.reply_holds.set_replicas(holds);
        let backlog = &self.stream.backlog;
        backlog.set_size(config.repl_backlog_size);
        let limit = config.client_output_buffer_limit.replica;
        let limits = [limit.hard_bytes, limit.soft_bytes].into_iter();
        let least = limits.filter(|bytes| *bytes > 0).min();
        // Slow down writers long before the replica would be disconnected.
        let most = least.unwrap_or(SLOW_BYTES) / 2;
        let was_on = backlog.holds_back();
        backlog.hold_back_at(match config.replica_slows_writers {
            true => most.max(1),
            false => 0,
        });
        if was_on && !config.replica_slows_writers {
            self.stream.look_at_readers();
        }
    }

    /// Starts the periodic work.
    pub(super) fn start(self: &Arc<Self>) {
        let primary = Arc::clone(self);
        self.runtime.spawn(async move {
            loop {
                tokio::time::sleep(TICK).await;
                primary.tick();
            }
        });
    }

    fn config(&self) -> Arc<Config> {
        self.service.config.load_full()
    }

    /// Serves the connection of a replica to its end.
    pub async fn serve(self: Arc<Self>, mut handed: DetachedConnection) {
        let Some(follow) = handed.batch.follow.take() else {
            return connection::leave(&mut handed.session);
        };
        // Wait for pending role changes: in a graceful failover, the old primary requests the stream before
        // this server has become the primary.
        self.stream.settled().await;
        let shared = Arc::clone(&handed.session.connection.shared);
        shared.set_peer(Kind::Replica);
        let seat = self.seat(&shared.announced(), &follow);
        let peer = Arc::new(ConnectedReplica::new(
            &shared,
            follow.resume.is_none(),
            seat,
        ));
        tracing::info!("Replica {} asks for synchronization", peer.name());
        self.peers.lock().insert(shared.id, Arc::clone(&peer));
        let mut link =
            ReplicaConnection::new(Arc::clone(&self), handed, Arc::clone(&peer), &follow);
        match link.run().await {
            Some(why) => tracing::warn!("{why}"),
            None => tracing::info!("Connection with replica {} lost.", peer.name()),
        }
        self.remove(&peer);
        connection::leave(&mut link.session);
    }

    /// Returns the role of a connection if it is one of a replica's two connections.
    fn seat(&self, announced: &Announced, follow: &Follow) -> Option<Seat> {
        if follow.awaits_rdb_channel {
            return Some(Seat::first(ReplicaChannel::Main(Words::Redis)));
        }
        let known = match announced.is_rdb_channel {
            true => announced.main_client,
            false => announced.rdb_client,
        };
        if let Some(client) = known {
            let first = self.peers.lock().get(&client).cloned();
            return first.and_then(|first| first.seat.as_ref()?.second());
        }
        // A replica that resumes at an offset does not use Valkey's protocol.
        let is_dual = self.config().dual_channel_replication_enabled && follow.resume.is_none();
        (announced.is_rdb_channel && is_dual)
            .then(|| Seat::first(ReplicaChannel::Rdb(Words::Valkey)))
    }

    fn remove(&self, peer: &ConnectedReplica) {
        if let Some(seat) = &peer.seat {
            seat.leave();
        }
        let mut peers = self.peers.lock();
        peers.remove(&peer.shared.id);
        if peers.is_empty() {
            self.alone_since_ms.store(clock::unix_ms(), Relaxed);
        }
        drop(peers);
        if self.stream.backlog.holds_back() {
            self.stream.look_at_readers();
        }
        self.count_good();
        self.note_acknowledged();
    }

    /// Wakes all who wait for acknowledgements: a replica acknowledged more, connected or disconnected.
    fn note_acknowledged(&self) {
        let offset = |peer: &ConnectedReplica| peer.is_in_sync().then(|| peer.acknowledged());
        let offsets = self.each_peer(offset).into_iter().flatten().collect();
        self.stream.confirmations.note_acknowledged(offsets);
        let figures = &self.service.telemetry.replication;
        self.stream.confirmations.publish(figures);
        self.acknowledged.open();
    }

    /// Returns how the replica continues: with a partial synchronization, a full one, or later.
    fn resume(&self, peer: &ConnectedReplica, follow: &Follow) -> Start {
        let figures = &self.service.telemetry.replication;
        let name = peer.name();
        let granted = follow
            .resume
            .as_ref()
            .and_then(|(id, offset)| self.granted(&name, id, *offset));
        let Some(cursor) = granted else {
            let knows_id = |(id, _): &(Vec<u8>, i64)| id.as_slice() != b"?";
            if follow.resume.as_ref().is_some_and(knows_id) {
                figures.partial_syncs_refused.fetch_add(1, Relaxed);
            }
            if let Some(refusal) = self.retrying.refusal(peer) {
                return Start::Later(Bytes::from(refusal));
            }
            self.count_full_sync();
            return Start::Full;
        };
        figures.partial_syncs.fetch_add(1, Relaxed);
        tracing::info!(
            "Partial resynchronization request from {name} accepted. Sending {} bytes of backlog starting from offset {}.",
            cursor.behind_bytes(),
            cursor.next()
        );
        let text = match peer.announced.changes_ids {
            true => format!("+CONTINUE {}\r\n", self.stream.facts().id),
            false => "+CONTINUE\r\n".to_owned(),
        };
        Start::Partial(Bytes::from(text), cursor)
    }

    /// Counts a full synchronization.
    fn count_full_sync(&self) {
        let figures = &self.service.telemetry.replication;
        figures.full_syncs.fetch_add(1, Relaxed);
    }

    fn granted(&self, name: &str, id: &[u8], offset: i64) -> Option<Cursor> {
        let wanted = String::from_utf8_lossy(id);
        let next = u64::try_from(offset).ok().filter(|next| *next > 0);
        let facts = self.stream.facts();
        if !next.is_some_and(|next| self.stream.covers(&wanted, next)) {
            match (&*wanted, facts.id == wanted) {
                ("?", _) => tracing::info!("Full resync requested by replica {name}"),
                (_, true) => {
                    tracing::info!("Replica {name} requested an impossible offset: {offset}")
                }
                _ => tracing::info!(
                    "Partial resynchronization not accepted: Replication ID mismatch (Replica asked for '{wanted}', my \
                     replication IDs are '{}' and '{}')",
                    facts.id,
                    facts.previous.map_or_else(|| "0".repeat(40), |(id, _)| id)
                ),
            }
            return None;
        }
        let cursor = next.and_then(|next| self.stream.backlog.cursor(next));
        if cursor.is_none() {
            tracing::info!(
                "Unable to partial resync with replica {name} for lack of backlog (Replica request was: {offset})."
            );
        }
        cursor
    }

    /// Notes that a replica receives the stream from now on.
    fn note_online(&self, peer: &ConnectedReplica) {
        tracing::info!("Synchronization with replica {} succeeded", peer.name());
        self.count_good();
        self.note_acknowledged();
    }

    fn each_peer<R>(&self, of: impl Fn(&ConnectedReplica) -> R) -> Vec<R> {
        self.peers.lock().values().map(|peer| of(peer)).collect()
    }

    /// Counts the replicas that satisfy `min-replicas-max-lag`, for `min-replicas-to-write`.
    pub fn count_good(&self) {
        let lag_max_ms = u64::from(self.service.config.load().min_replicas_max_lag) * 1_000;
        let is_good = |peer: &ConnectedReplica| peer.is_online() && peer.silent_ms() <= lag_max_ms;
        let good = self.each_peer(is_good).into_iter().filter(|good| *good);
        let figures = &self.service.telemetry.replication;
        figures.good_replicas.store(good.count() as u64, Relaxed);
    }

    /// Does the periodic work.
    fn tick(self: &Arc<Self>) {
        let config = self.config();
        self.configure(&config);
        self.begin_if_due();
        self.count_good();
        self.stream.confirmations.tick();
        let figures = &self.service.telemetry.replication;
        self.stream.confirmations.publish(figures);
        let now_ms = clock::unix_ms();
        let has_passed = |since: &AtomicU64, seconds: u64| {
            now_ms.saturating_sub(since.load(Relaxed)) >= seconds.saturating_mul(1_000)
        };
        if self.stream.source() != Source::Log {
            return;
        }
        if !self.peers.lock().is_empty() {
            let is_due = has_passed(&self.pinged_ms, u64::from(config.repl_ping_replica_period));
            if is_due && !self.service.pause.sleeps(now_ms) {
                self.pinged_ms.store(now_ms, Relaxed);
                self.stream.tell(&[b"PING"]);
            }
        } else if config.repl_backlog_ttl > 0
            && has_passed(&self.alone_since_ms, config.repl_backlog_ttl)
            && !self.syncing.is_busy()
        {
            // Restart the time, so that this is not repeated before it is done.
            self.alone_since_ms.store(now_ms, Relaxed);
            let primary = Arc::clone(self);
            self.snapshots.run(move || primary.forget_stream());
        }
    }

    /// Ends the stream for lack of replicas. Later writes belong to another stream.
    fn forget_stream(self: &Arc<Self>) {
        let primary = Arc::clone(self);
        run_on_all(self.service, move |_, _| {
            let peers = primary.peers.lock();
            if !peers.is_empty() || primary.stream.source() != Source::Log {
                return;
            }
            tracing::info!(
                "Replication backlog freed after {} seconds without connected replicas.",
                primary.service.config.load().repl_backlog_ttl
            );
            primary
                .stream
                .feed_until_here(Source::Nobody, Box::new(|_| ()));
            primary.stream.renew();
        });
    }
}

impl ask::HostPrimary for Primary {
    fn stream(&self) -> StreamFacts {
        // Callers that compare offsets expect earlier writes to be included.
        self.stream.catch_up();
        self.stream.facts()
    }

    fn goes_on(&self, client: &Arc<Shared>, id: &[u8], offset: i64) -> bool {
        // A role change is pending, so it is not known yet which server will write the stream.
        if !self.stream.is_settled() {
            return true;
        }
        let name = ConnectedReplica::new(client, false, None).name();
        let goes_on = self.granted(&name, id, offset).is_some();
        if !goes_on && id != b"?" {
            let figures = &self.service.telemetry.replication;
            figures.partial_syncs_refused.fetch_add(1, Relaxed);
        }
        goes_on
    }

    fn awaited(&self) -> usize {
        let seats = self.each_peer(|peer| peer.seat.as_ref().is_some_and(Seat::awaits_main));
        seats.into_iter().filter(|awaits| *awaits).count()
    }

    fn replicas(&self) -> Vec<ReplicaFacts> {
        let mut replicas = self.each_peer(ConnectedReplica::facts);
        // Redis counts a replica once, Valkey each of its connections.
        replicas.retain(|replica| replica.channel != Some(ReplicaChannel::Rdb(Words::Redis)));
        replicas
    }

    fn acknowledged(&self, position: u64, waiter: Option<&Arc<Shared>>) -> Acknowledged {
        let backlog = &self.stream.backlog;
        if let Some(waiter) = waiter {
            let waker = waiter.nudging();
            let mut cx = Context::from_waker(&waker);
            let _ = self.acknowledged.poll_next(&mut cx, || false);
            let _ = backlog.poll_taken(position, &mut cx);
        }
        let offset = match position {
            0 => Some(0),
            _ => backlog.offset_before(position),
        };
        let Some(offset) = offset else {
            return Acknowledged::default();
        };
        let mut found = Acknowledged::default();
        for peer in self.peers.lock().values() {
            // A replica that loads its snapshot has acknowledged nothing yet, and has nothing.
            if peer.is_in_sync() {
                found.received += u64::from(peer.acknowledged() >= offset);
                found.synced += u64::from(peer.synced() >= offset);
            }
        }
        found
    }

    fn wake_at_acknowledgement(&self, waker: &Waker) {
        let mut cx = Context::from_waker(waker);
        let _ = self.acknowledged.poll_next(&mut cx, || false);
    }

    fn lacks_replicas(&self, config: &Config) -> bool {
        let good = &self.service.telemetry.replication.good_replicas;
        let wanted = u64::from(config.min_replicas_to_write);
        let has_enough = config.min_replicas_max_lag == 0 || good.load(Relaxed) >= wanted;
        self.stream.source() != Source::Link
            && (!has_enough || self.stream.confirmations.lacks_replicas())
    }

    fn ask_for_acknowledgements(&self, written: Option<u64>) {
        let before = self.stream.log_tail();
        let is_asked = match written {
            Some(position) => position <= self.asked.load(Relaxed),
            None => before == self.asked_end.load(Relaxed),
        };
        if !is_asked && self.stream.source() == Source::Log && !self.peers.lock().is_empty() {
            // As in Redis, the target offset is that before the request.
            self.stream.catch_up();
            let end = self.stream.tell(&[b"REPLCONF", b"GETACK", b"*"]);
            self.asked.fetch_max(before, Relaxed);
            self.asked_end.fetch_max(end, Relaxed);
        }
    }

    fn replicate(&self, arguments: &[&[u8]]) -> u64 {
        match self.stream.source() {
            Source::Log => self.stream.tell(arguments),
            Source::Nobody | Source::Link => 0,
        }
    }

    fn lagging(&self) -> Vec<ReplicaFacts> {
        // Include writes just made, even if the sequencer has not processed them yet.
        self.stream.catch_up();
        let end = self.stream.backlog.end();
        let mut replicas = self.each_peer(ConnectedReplica::facts);
        replicas.retain(|replica| replica.state == ReplicaState::Online && replica.offset < end);
        replicas
    }

    fn change_id(&self) {
        self.stream.renew();
    }
}
