//! One link to a primary, from connecting to its end.
//!
//! ```text
//! connect ▸ introduce ▸ ask ─┬─ +CONTINUE ──────────────────────────────────────────┬─▸ apply the stream, acknowledge
//!                            ├─ +FULLRESYNC ▸ replace all data (`renewal`) ──────────┤
//!                            └─ a second connection (`channel`) ▸ replace all data ──┘
//!                               the stream is read ahead meanwhile
//! ```
//!
//! It can be stopped at any moment, and stops between two turns of applying commands: so exactly the commands
//! that were run are part of this server's stream.

use std::future::poll_fn;
use std::io;
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;
use std::task::Poll;
use std::time::Duration;

use tokio::sync::watch;
use tokio::time::{Instant, MissedTickBehavior, interval_at};

use super::apply::{Applier, StreamApplyError};
use super::channel;
use super::coming::{AnnouncedSnapshot, SnapshotPosition};
use super::handshake::{self, HandshakeRefusal, PsyncPosition, PsyncReply};
use super::wire::Wire;
use super::{PrimaryFollower, Target};
use crate::net::client::request;
use crate::state::Service;
use crate::telemetry::clock;
use basalt_commands::client::shared::{Peer, Shared};
use basalt_commands::command::host::primary::Words;
use basalt_commands::command::host::replica::LinkState;
use basalt_commands::config::Config;

/// Interval between acknowledgements to the primary.
const ACKNOWLEDGE_EVERY: Duration = Duration::from_secs(1);

/// Maximum bytes of the stream received while a pause delays it.
const HELD_BYTES_MAX: usize = 64 << 20;

/// Interval between checks whether a pause is over.
const LOOK_AGAIN: Duration = Duration::from_millis(10);

/// Reason why a link ended.
#[derive(Debug, thiserror::Error)]
pub(super) enum ReplicaLinkError {
    /// The link was stopped.
    #[error("stopped")]
    Stopped,
    /// The primary cannot be reached.
    #[error("Error condition on socket for SYNC: {0}")]
    Unreachable(io::Error),
    /// The primary replied, but provides no stream.
    #[error("{0}")]
    Refused(#[from] HandshakeRefusal),
    /// The second connection, for the snapshot, failed.
    #[error("Can't open the second connection to the master for the snapshot: {0}")]
    Channel(HandshakeRefusal),
    /// The snapshot did not arrive, or not completely.
    #[error("I/O error trying to sync with MASTER: {0}")]
    Transfer(io::Error),
    /// The primary reported an error instead of a snapshot.
    #[error("MASTER aborted replication with an error: {0}")]
    Aborted(String),
    /// Something other than a snapshot arrived.
    #[error(
        "Bad protocol from MASTER, the first byte is not '$' (we received '{0}'), are you sure the host and port are right?"
    )]
    NoSnapshot(String),
    /// The snapshot cannot be loaded.
    #[error("Failed trying to load the MASTER synchronization DB from {0}, check server logs.")]
    Unloadable(String),
    /// The connection of the stream broke.
    #[error("Connection with master lost: {0}")]
    Lost(io::Error),
    /// No data arrived for too long.
    #[error("MASTER timeout: no data nor PING received...")]
    Silent,
    /// The link was closed by CLIENT KILL.
    #[error("Connection with master lost: killed by CLIENT KILL")]
    Killed,
    /// The stream is invalid.
    #[error("{0}")]
    Broken(#[from] StreamApplyError),
}

/// One link to a primary, from connecting to its end.
pub(super) struct UpstreamLink<'l> {
    pub(super) follower: &'static PrimaryFollower,
    pub(super) target: &'l Target,
    pub(super) stopped: watch::Receiver<bool>,
    /// Whether the other server is to become the primary (PSYNC … FAILOVER).
    pub(super) hands_over: bool,
    /// Whether the snapshot may come through a second connection, if so configured.
    pub(super) takes_channel: bool,
}

/// Result of the link's steps before the data is changed.
struct PreparedSync {
    /// The connection of the stream.
    wire: Wire,
    /// The second connection, for the snapshot, if one is used.
    rdb: Option<Wire>,
    coming: Option<AnnouncedSnapshot>,
}

impl UpstreamLink<'_> {
    /// Runs the link; returns whether the stream was established, and why the link ended.
    pub(super) async fn run(mut self) -> (bool, ReplicaLinkError) {
        let mut stopped = self.stopped.clone();
        let prepared = tokio::select! {
            biased;
            _ = stopped.wait_for(|stopped| *stopped) => return (false, ReplicaLinkError::Stopped),
            prepared = self.prepare() => prepared,
        };
        let PreparedSync {
            mut wire,
            rdb,
            coming,
        } = match prepared {
            Ok(prepared) => prepared,
            Err(end) => return (false, end),
        };
        let renewed = match (coming, rdb) {
            (None, _) => Ok(()),
            (Some(coming), None) => self.renew(&mut wire, coming, stopped).await,
            (Some(coming), Some(mut rdb)) => {
                self.renew_from_second_channel(&mut rdb, &mut wire, coming)
                    .await
            }
        };
        if let Err(end) = renewed {
            return (false, end);
        }
        let end = self.apply(wire).await;
        (true, end)
    }

    pub(super) fn config(&self) -> Arc<Config> {
        self.follower.service.config.load_full()
    }

    /// Connects, and does everything up to the stream, or up to a snapshot that was written to a file. The
    /// future may be dropped at any moment.
    async fn prepare(&mut self) -> Result<PreparedSync, ReplicaLinkError> {
        let (follower, config) = (self.follower, self.config());
        let timeout = &move || follower.timeout();
        let Target { host, port } = self.target;
        tracing::info!("Connecting to MASTER {host}:{port}");
        follower.set_state(LinkState::Connecting);
        let from = config.bind_source_addr.parse().ok();
        let tls = match config.tls_replication {
            true => follower.service.tls.current(),
            false => None,
        };
        tracing::info!("MASTER <-> REPLICA sync started");
        let mut wire = Wire::open(host, *port, from, tls, timeout)
            .await
            .map_err(ReplicaLinkError::Unreachable)?;
        follower.set_state(LinkState::Handshake);
        let cluster = follower.service.cluster.get();
        let node = cluster.map(|cluster| cluster.map().me().id);
        let takes_channel = self.takes_channel;
        handshake::introduce(&mut wire.client, &config, node, takes_channel, timeout).await?;
        follower.awake().await;
        let position = follower.position();
        let answer = handshake::ask(
            &mut wire.client,
            position.as_ref(),
            self.hands_over,
            timeout,
        )
        .await;
        if self.hands_over {
            match &answer {
                Ok(_) => follower.handed_over(self.target, wire.certified_host()),
                Err(HandshakeRefusal::Denied(_)) => {
                    follower.end_failover("Failover target rejected psync request");
                }
                Err(_) => {}
            }
        }
        let answer = answer?;
        let (mut rdb, mut coming) = (None, None);
        match self.check(answer, position.as_ref())? {
            PsyncReply::Full { id, offset } => {
                tracing::info!("Full resync from master: {id}:{offset}");
                let db = None;
                let at = SnapshotPosition { id, offset, db };
                let begun = self.receive(&mut wire, at, timeout, &config);
                coming = Some(begun.await?);
            }
            PsyncReply::Channel(words, client) => {
                let opened = channel::open(&mut wire, self.target, words, client, &config, timeout);
                let opened = opened.await.map_err(ReplicaLinkError::Channel)?;
                let at = opened.position;
                tracing::info!(
                    "Full resync from master over a second connection: {}:{}",
                    at.id,
                    at.offset
                );
                let from = rdb.insert(opened.wire);
                let begun = self.receive(from, at, timeout, &config);
                // Also read the stream ahead: it may break while the snapshot is written to a file.
                coming = Some(tokio::select! {
                    begun = begun => begun?,
                    error = channel::read_ahead(follower, &mut wire) => return Err(ReplicaLinkError::Lost(error)),
                });
            }
            _ => {}
        }
        Ok(PreparedSync { wire, rdb, coming })
    }

    /// Replaces all data by the snapshot from the second connection, while the stream is read ahead. The future
    /// must not be dropped midway.
    async fn renew_from_second_channel(
        &self,
        rdb: &mut Wire,
        main: &mut Wire,
        coming: AnnouncedSnapshot,
    ) -> Result<(), ReplicaLinkError> {
        let (halt, halted) = watch::channel(false);
        let mut stopped = self.stopped.clone();
        let mut renewing = std::pin::pin!(self.renew(rdb, coming, halted));
        let mut reading = std::pin::pin!(channel::read_ahead(self.follower, main));
        let (mut lost, mut is_stopped) = (None, false);
        loop {
            tokio::select! {
                biased;
                renewed = &mut renewing => return match (renewed, lost) {
                    (Err(_), Some(error)) => Err(ReplicaLinkError::Lost(error)),
                    (renewed, _) => renewed,
                },
                _ = stopped.wait_for(|stopped| *stopped), if !is_stopped => {
                    is_stopped = true;
                    let _ = halt.send(true);
                }
                error = &mut reading, if lost.is_none() => {
                    lost = Some(error);
                    let _ = halt.send(true);
                }
            }
        }
    }

    /// Checks the primary's reply to PSYNC and applies it to the stream of this server.
    fn check(
        &self,
        answer: PsyncReply,
        position: Option<&PsyncPosition>,
    ) -> Result<PsyncReply, ReplicaLinkError> {
        match answer {
            PsyncReply::Full { .. } => Ok(answer),
            PsyncReply::Channel(words, _) => {
                let config = self.config();
                let was_offered = match words {
                    Words::Valkey => config.dual_channel_replication_enabled,
                    Words::Redis => config.repl_rdb_channel,
                };
                match was_offered && self.takes_channel {
                    true => Ok(answer),
                    false => {
                        let text = "the master requests a second connection, which was not offered";
                        Err(HandshakeRefusal::Nonsense(text.to_owned()).into())
                    }
                }
            }
            PsyncReply::Continue { id } => {
                let Some(position) = position else {
                    let text = "the master continues a stream that was not requested";
                    return Err(HandshakeRefusal::Nonsense(text.to_owned()).into());
                };
                tracing::info!("Successful partial resynchronization with master.");
                if let Some(new) = id.as_deref().filter(|new| *new != position.id) {
                    tracing::info!("Master replication ID changed to {new}");
                    self.follower.continue_as(new);
                }
                Ok(PsyncReply::Continue { id })
            }
            // Without offsets nothing can resume after a disconnect, so the next link starts over.
            PsyncReply::Old => Ok(PsyncReply::Full {
                id: crate::replication::history::random_id(),
                offset: 0,
            }),
        }
    }

    /// Applies the stream until it ends.
    async fn apply(&mut self, mut wire: Wire) -> ReplicaLinkError {
        let follower = self.follower;
        let service = follower.service;
        let (peer, local) = wire.addresses();
        let (peer, local) = (peer.to_string(), local.to_string());
        let shared = Arc::new(Shared::new(
            service.clients.next_id(),
            peer,
            local,
            wire.fd(),
            false,
            clock::unix_ms(),
        ));
        shared.set_peer(Peer::Primary);
        shared.no_evict.store(true, Relaxed);
        service.clients.add(Arc::clone(&shared));
        let mut applier = Applier::new(service, Arc::clone(&shared), follower.db());
        follower.connected();
        let end = self.stream(&mut wire, &mut applier, &shared).await;
        if follower.is_to_lead() {
            // Redis and Valkey ignore what follows the offset.
            let offset = follower.stream.backlog.end().to_string();
            let words: [&[u8]; 5] = [b"REPLCONF", b"ACK", offset.as_bytes(), b"PROMOTED", b"1"];
            wire.send_soon(&request(&words));
        }
        follower.set_db(applier.db());
        follower.waiting_bytes.store(0, Relaxed);
        applier.end();
        service.clients.remove(shared.id);
        end
    }

    async fn stream(
        &mut self,
        wire: &mut Wire,
        applier: &mut Applier,
        shared: &Shared,
    ) -> ReplicaLinkError {
        let (follower, service) = (self.follower, self.follower.service);
        let mut stopped = self.stopped.clone();
        let mut ticks = interval_at(Instant::now() + ACKNOWLEDGE_EVERY, ACKNOWLEDGE_EVERY);
        ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
        let mut heard = Instant::now();
        let (mut synced, mut is_asked) = (Synced::default(), false);
        self.acknowledge(wire, shared, &mut synced);
        loop {
            let mut is_held;
            loop {
                follower.awake().await;
                if *stopped.borrow() {
                    return ReplicaLinkError::Stopped;
                }
                is_held = service.pause.holds_stream(clock::unix_ms());
                if is_held {
                    break;
                }
                let applied = {
                    let _turn = follower.stream.at_rest().await;
                    match applier.turn().await {
                        Ok(applied) => {
                            let is_more = applied.is_more;
                            follower.stream.append(applied.bytes);
                            follower.set_db(applier.db());
                            is_more
                        }
                        Err(fault) => {
                            follower.forget_position();
                            return fault.into();
                        }
                    }
                };
                if !applied {
                    break;
                }
                tokio::task::yield_now().await;
            }
            let waiting_bytes = applier.waiting_bytes();
            follower.waiting_bytes.store(waiting_bytes as u64, Relaxed);
            let takes_more = !is_held || waiting_bytes < HELD_BYTES_MAX;
            if !takes_more {
                heard = Instant::now();
            }
            let position = shared.log_position.load(Relaxed);
            is_asked |= follower.take_question();
            if is_asked && !service.must_sync(position) {
                is_asked = false;
                self.acknowledge(wire, shared, &mut synced);
            }
            tokio::select! {
                biased;
                _ = stopped.wait_for(|stopped| *stopped) => return ReplicaLinkError::Stopped,
                () = killed(shared) => return ReplicaLinkError::Killed,
                read = wire.read_into(applier.input()), if takes_more => match read {
                    Ok(count) => {
                        heard = Instant::now();
                        shared.bytes_in.add(count as u64);
                        follower.note_input(count);
                        follower.note_ahead(wire.kept_bytes());
                    }
                    Err(error) => return ReplicaLinkError::Lost(error),
                },
                () = tokio::time::sleep(LOOK_AGAIN), if is_held => {}
                () = on_disk(service, position), if is_asked => {}
                _ = ticks.tick() => {
                    if heard.elapsed() > follower.timeout() {
                        return ReplicaLinkError::Silent;
                    }
                    self.acknowledge(wire, shared, &mut synced);
                }
            }
        }
    }

    /// Sends the primary the applied offset and, with an append-only file, the offset that is synced to disk.
    fn acknowledge(&self, wire: &mut Wire, shared: &Shared, synced: &mut Synced) {
        let applied = self.follower.stream.backlog.end();
        let position = shared.log_position.load(Relaxed);
        let is_synced = |position| self.follower.aof.is_synced(position, None);
        let on_disk = synced.look(applied, position, is_synced);
        // Under `appendfsync always` the acknowledged offset is the synced one: a failed sync can lose the rest.
        let applied = match self.follower.service.must_sync(position) {
            true => on_disk.unwrap_or(0),
            false => applied,
        };
        let (applied, on_disk) = (applied.to_string(), on_disk.map(|at| at.to_string()));
        let mut words: Vec<&[u8]> = vec![b"REPLCONF", b"ACK", applied.as_bytes()];
        if let Some(on_disk) = &on_disk {
            words.extend([&b"FACK"[..], on_disk.as_bytes()]);
        }
        wire.send_soon(&request(&words));
    }
}

/// Waits until replies that depend on a position of the log need not wait for the disk.
async fn on_disk(service: &Service, position: u64) {
    if let Some(durability) = service.durability.get() {
        poll_fn(|cx| durability.poll_synced(position, cx)).await;
    }
}

/// The part of the stream known to be on the disk.
#[derive(Debug, Default)]
struct Synced {
    /// Offset up to which everything is on the disk.
    offset: Option<u64>,
    /// An offset that is not known to be on the disk yet, and the log position after everything applied before
    /// it.
    pending: Option<(u64, u64)>,
}

impl Synced {
    /// Returns the offset up to which everything is on the disk; `None` if unknown, or if no append-only file
    /// is used.
    fn look(
        &mut self,
        applied: u64,
        position: u64,
        is_synced: impl Fn(u64) -> Option<bool>,
    ) -> Option<u64> {
        let (offset, position) = *self.pending.get_or_insert((applied, position));
        match is_synced(position) {
            Some(true) => {
                self.offset = Some(offset);
                self.pending = None;
            }
            Some(false) => {}
            None => *self = Synced::default(),
        }
        self.offset
    }
}

/// Completes when the link is killed (CLIENT KILL).
async fn killed(shared: &Shared) {
    std::future::poll_fn(|cx| {
        shared.waker.register(cx.waker());
        match shared.is_killed() {
            true => Poll::Ready(()),
            false => Poll::Pending,
        }
    })
    .await;
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_offset_is_on_the_disk_when_the_log_before_it_is() {
        let mut synced = Synced::default();
        let until = |end: u64| move |position: u64| Some(position <= end);
        assert_eq!(synced.look(10, 5, until(4)), None);
        // Data applied meanwhile is only considered from the next check on.
        assert_eq!(synced.look(20, 9, until(5)), Some(10));
        assert_eq!(synced.look(20, 9, until(8)), Some(10));
        assert_eq!(synced.look(30, 12, until(9)), Some(20));
        assert_eq!(synced.look(30, 12, |_| None), None);
    }
}
