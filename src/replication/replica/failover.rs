//! FAILOVER: a replica that has everything takes this primary's place, and this server follows it.
//!
//! ```text
//! writes are held back ▸ a replica has all of the stream ▸ PSYNC … FAILOVER ▸ it is the primary, and sends the stream
//! ```

use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::time::Duration;

use parking_lot::Mutex;

use super::role::landed;
use super::{Follower, Target};
use crate::command::error::CommandError;
use crate::command::replication::primary::{ReplicaFacts, ReplicaState};
use crate::command::replication::replica::Failover;
use crate::session::pause::Reason;
use crate::telemetry::clock;

/// How often it is looked whether a replica has everything.
const LOOK_EVERY: Duration = Duration::from_millis(20);

/// How far a failover is.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum Phase {
    /// None is under way.
    #[default]
    Nothing,
    /// No replica has everything yet.
    Waits,
    /// The replica is told.
    HandsOver,
}

/// See the module.
#[derive(Default)]
pub(super) struct FailoverState {
    phase: Mutex<Phase>,
    /// Of the failover under way: one that was aborted does not go on when the next one begins.
    number: AtomicU64,
}

impl FailoverState {
    /// As INFO says.
    pub(super) fn name(&self) -> &'static str {
        match *self.phase.lock() {
            Phase::Nothing => "no-failover",
            Phase::Waits => "waiting-for-sync",
            Phase::HandsOver => "failover-in-progress",
        }
    }

    /// Whether one is under way.
    pub(super) fn is_on(&self) -> bool {
        *self.phase.lock() != Phase::Nothing
    }

    /// Whether the primary to be is to be told.
    pub(super) fn hands_over(&self) -> bool {
        *self.phase.lock() == Phase::HandsOver
    }
}

fn is_at(replica: &ReplicaFacts, target: &Target) -> bool {
    replica.ip == target.host && replica.port == target.port
}

impl Follower {
    /// FAILOVER.
    pub(super) fn begin_failover(&'static self, wanted: Failover) -> Result<(), CommandError> {
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
        *self.failover.phase.lock() = Phase::Waits;
        let number = self.failover.number.fetch_add(1, Relaxed) + 1;
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

    /// Waits until a replica has everything, and hands over to it.
    async fn await_replica(
        &'static self,
        number: u64,
        target: Option<Target>,
        end_ms: Option<u64>,
        is_forced: bool,
    ) {
        landed(self.service).await;
        loop {
            tokio::time::sleep(LOOK_EVERY).await;
            let primary = self.service.server().primary();
            primary.ask_for_acknowledgements();
            let end = primary.stream().offset;
            let mut replicas = primary.replicas().into_iter();
            let found = replicas.find(|replica| {
                replica.state == ReplicaState::Online
                    && replica.offset >= end
                    && target.as_ref().is_none_or(|target| is_at(replica, target))
            });
            let mut phase = self.failover.phase.lock();
            if *phase != Phase::Waits || self.failover.number.load(Relaxed) != number {
                return;
            }
            let chosen = match (found, &target) {
                (Some(replica), _) => {
                    let (host, port) = (replica.ip, replica.port);
                    tracing::info!("Failover target is {host}:{port}. failing over");
                    Target { host, port }
                }
                (None, target) if end_ms.is_some_and(|end_ms| end_ms <= clock::unix_ms()) => {
                    match target {
                        Some(target) if is_forced => {
                            let Target { host, port } = target;
                            tracing::info!(
                                "Failover to {host}:{port} time out exceeded, failing over."
                            );
                            target.clone()
                        }
                        _ => {
                            drop(phase);
                            self.end_failover("Replica never caught up before timeout");
                            return;
                        }
                    }
                }
                _ => continue,
            };
            *phase = Phase::HandsOver;
            drop(phase);
            self.go(Some(chosen), Box::new(drop));
            return;
        }
    }

    /// FAILOVER ABORT.
    pub(super) fn abort(&self) -> Result<(), CommandError> {
        match self.failover.is_on() {
            true => {
                self.end_failover("Failover manually aborted");
                Ok(())
            }
            false => Err("ERR No failover in progress.".into()),
        }
    }

    /// Goes back to being the primary.
    pub(super) fn end_failover(&self, why: &str) {
        tracing::warn!("Aborting in progress failover: {why}");
        if self.failover.hands_over() {
            self.go(None, Box::new(drop));
        }
        self.failover_is_over();
    }

    /// Writes go on: here, or to the new primary.
    pub(super) fn failover_is_over(&self) {
        *self.failover.phase.lock() = Phase::Nothing;
        self.service.end_pause(Reason::Failover);
    }

    /// PSYNC … FAILOVER: the primary gives its place to this server.
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
