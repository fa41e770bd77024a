//! Graceful failover (FAILOVER): a replica that has the whole stream becomes the primary, and this server
//! follows it.
//!
//! ```text
//! writes are paused ▸ a replica has the whole stream ▸ PSYNC … FAILOVER ▸ it is the primary, and sends the stream
//! ```

use std::future::poll_fn;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::task::Poll;
use std::time::Duration;

use parking_lot::Mutex;

use super::role::landed;
use super::{PrimaryFollower, Target};
use crate::state::pause::Reason;
use crate::telemetry::clock;
use basalt_commands::command::error::CommandError;
use basalt_commands::command::host::primary::{ReplicaFacts, ReplicaState};
use basalt_commands::command::host::replica::FailoverRequest;
use basalt_commands::pubsub::maintenance::HandoffTarget;

/// Progress of a failover.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum FailoverPhase {
    /// No failover is running.
    #[default]
    Nothing,
    /// Waiting for a replica to acknowledge the whole stream.
    Waits,
    /// The replica is being promoted.
    HandsOver,
}

/// Progress of a failover started on this server.
#[derive(Default)]
pub(super) struct FailoverState {
    phase: Mutex<FailoverPhase>,
    /// Number of the running failover: an aborted failover must not continue when the next one begins.
    number: AtomicU64,
}

impl FailoverState {
    /// Returns the state as reported by INFO.
    pub(super) fn name(&self) -> &'static str {
        match *self.phase.lock() {
            FailoverPhase::Nothing => "no-failover",
            FailoverPhase::Waits => "waiting-for-sync",
            FailoverPhase::HandsOver => "failover-in-progress",
        }
    }

    /// True if a failover is running.
    pub(super) fn is_on(&self) -> bool {
        *self.phase.lock() != FailoverPhase::Nothing
    }

    /// True if this failover is running, and no replica has the whole stream yet.
    fn waits(&self, number: u64) -> bool {
        *self.phase.lock() == FailoverPhase::Waits && self.number.load(Relaxed) == number
    }

    /// Enters the phase of the handover, if this failover is still running; returns whether it is.
    fn hand_over(&self, number: u64) -> bool {
        let mut phase = self.phase.lock();
        let waits = *phase == FailoverPhase::Waits && self.number.load(Relaxed) == number;
        if waits {
            *phase = FailoverPhase::HandsOver;
        }
        waits
    }

    /// True if a replica is being promoted.
    pub(super) fn hands_over(&self) -> bool {
        *self.phase.lock() == FailoverPhase::HandsOver
    }
}

fn is_at(replica: &ReplicaFacts, target: &Target) -> bool {
    replica.ip == target.host && replica.port == target.port
}

impl PrimaryFollower {
    /// Begins a failover.
    pub(super) fn begin_failover(
        &'static self,
        wanted: FailoverRequest,
    ) -> Result<(), CommandError> {
        if self.failover.is_on() {
            return Err("ERR FAILOVER already in progress.".into());
        }
        if self.state.lock().target.is_some() {
            return Err("ERR FAILOVER is not valid when server is a replica.".into());
        }
        let replicas = self.service.server().primary().replicas();
        if replicas.is_empty() {
            return Err("ERR FAILOVER requires connected replicas.".into());
        }
        if wanted.is_forced && (wanted.timeout_ms.is_none() || wanted.target.is_none()) {
            let text =
                "ERR FAILOVER with force option requires both a timeout and target HOST and IP.";
            return Err(text.into());
        }
        let target = wanted.target.map(|(host, port)| Target { host, port });
        if let Some(target) = &target {
            let Some(replica) = replicas.iter().find(|replica| is_at(replica, target)) else {
                return Err("ERR FAILOVER target HOST and PORT is not a replica.".into());
            };
            if replica.state != ReplicaState::Online {
                return Err("ERR FAILOVER target replica is not online.".into());
            }
        }
        match &target {
            Some(Target { host, port }) => tracing::info!("FAILOVER requested to {host}:{port}."),
            None => tracing::info!("FAILOVER requested."),
        }
        *self.failover.phase.lock() = FailoverPhase::Waits;
        let number = self.failover.number.fetch_add(1, Relaxed) + 1;
        let pubsub = &self.service.pubsub;
        pubsub.begin_failover(wanted.timeout_ms, clock::unix_ms());
        self.service
            .pause
            .start(Reason::Failover, u64::MAX, true, clock::unix_ms());
        let end_ms = wanted
            .timeout_ms
            .map(|timeout_ms| clock::unix_ms().saturating_add(timeout_ms));
        self.runtime.spawn(async move {
            let is_forced = wanted.is_forced;
            self.await_replica(number, target, end_ms, is_forced).await;
        });
        Ok(())
    }

    /// Waits until a replica has the whole stream, and hands over to that replica.
    async fn await_replica(
        &'static self,
        number: u64,
        target: Option<Target>,
        end_ms: Option<u64>,
        is_forced: bool,
    ) {
        landed(self.service).await;
        let primary = self.service.server().primary();
        let looking = poll_fn(|cx| {
            // Register before the check, so that later acknowledgements wake this task.
            primary.wake_at_acknowledgement(cx.waker());
            self.look(number, target.as_ref())
        });
        let left_ms = end_ms.map(|end_ms| end_ms.saturating_sub(clock::unix_ms()));
        let patience = left_ms.map_or(Duration::MAX, Duration::from_millis);
        let chosen = match tokio::time::timeout(patience, looking).await {
            Ok(None) => return,
            Ok(Some(Target { host, port })) => {
                tracing::info!("Failover target is {host}:{port}. failing over");
                Target { host, port }
            }
            Err(_) => match target {
                Some(Target { host, port }) if is_forced => {
                    tracing::info!("Failover to {host}:{port} time out exceeded, failing over.");
                    Target { host, port }
                }
                _ if self.failover.waits(number) => {
                    return self.end_failover("Replica never caught up before timeout");
                }
                _ => return,
            },
        };
        if self.failover.hand_over(number) {
            self.go(Some(chosen), Box::new(drop));
        }
    }

    /// Completes with a replica that has the whole stream, or with `None` if the failover was aborted.
    fn look(&self, number: u64, target: Option<&Target>) -> Poll<Option<Target>> {
        if !self.failover.waits(number) {
            return Poll::Ready(None);
        }
        let primary = self.service.server().primary();
        primary.ask_for_acknowledgements(None);
        let end = primary.stream().offset;
        let mut replicas = primary.replicas().into_iter();
        let found = replicas.find(|replica| {
            replica.state == ReplicaState::Online
                && replica.offset >= end
                && target.is_none_or(|target| is_at(replica, target))
        });
        match found {
            Some(ReplicaFacts { ip, port, .. }) => Poll::Ready(Some(Target { host: ip, port })),
            None => Poll::Pending,
        }
    }

    /// Runs FAILOVER ABORT.
    pub(super) fn abort(&self) -> Result<(), CommandError> {
        match self.failover.is_on() {
            true => {
                self.end_failover("Failover manually aborted");
                Ok(())
            }
            false => Err("ERR No failover in progress.".into()),
        }
    }

    /// Ends the failover and makes this server the primary again.
    pub(super) fn end_failover(&self, why: &str) {
        tracing::warn!("Aborting in progress failover: {why}");
        if self.failover.hands_over() {
            self.go(None, Box::new(drop));
        }
        self.failover_is_over();
    }

    /// Completes the failover: the target is the primary.
    pub(super) fn handed_over(&self, target: &Target, certified_host: Option<String>) {
        self.tell_handoff(target, certified_host);
        self.failover_is_over();
    }

    /// Sends MOVING to clients: another server, with a certificate for this host name, is the primary in place of this
    /// one.
    pub(super) fn tell_handoff(&self, target: &Target, certified_host: Option<String>) {
        let config = self.service.config.load();
        // The port of the other kind is not known: servers that replace each other usually listen alike.
        let (port, tls_port) = match config.tls_replication {
            true => (config.port, target.port),
            false => (target.port, config.tls_port),
        };
        let target = HandoffTarget {
            host: target.host.clone(),
            certified_host,
            port,
            tls_port,
        };
        self.service.pubsub.hand_off(target, clock::unix_ms());
    }

    /// Ends the pause of writes: they run on this server, or are redirected to the new primary.
    fn failover_is_over(&self) {
        self.service.pubsub.end_failover(clock::unix_ms());
        *self.failover.phase.lock() = FailoverPhase::Nothing;
        self.service.end_pause(Reason::Failover);
    }

    /// Handles PSYNC … FAILOVER: the primary hands over to this server, which is promoted.
    pub(super) fn succeed(&self, id: &[u8]) -> Result<(), CommandError> {
        let id = String::from_utf8_lossy(id);
        tracing::info!("Failover request received for replid {id}.");
        if self.state.lock().target.is_none() {
            return Err("ERR PSYNC FAILOVER can't be sent to a master.".into());
        }
        if self.stream.facts().id != id {
            return Err("ERR PSYNC FAILOVER replid must match my replid.".into());
        }
        self.go(None, Box::new(drop));
        Ok(())
    }
}
