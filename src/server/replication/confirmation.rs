//! Confirmation of writes by replicas (`min-sync-replicas`): replies wait until enough replicas have acknowledged
//! what they reflect.
//!
//! ```text
//! a reply waits for a position of the log ─▶ a marker and REPLCONF GETACK in the log, one request at a time
//!    the marker arrives in the backlog    ─▶ the offset that replicas must acknowledge
//!    enough replicas acknowledge it       ─▶ the position before the marker is confirmed, and the replies are sent
//!    no confirmation for the timeout      ─▶ replies get NOREPLICAS, and writes are refused until there is one
//! ```
//!
//! While a request is under way, later replies wait for its end and then share the next one, as clients of one sync of
//! a disk do.

use std::sync::atomic::{
    AtomicBool, AtomicU64,
    Ordering::{Relaxed, SeqCst},
};
use std::sync::{Arc, Weak};
use std::task::{Context, Poll};

use parking_lot::Mutex;

use super::backlog::Backlog;
use crate::persist::oplog::{Gate, OpLog};
use crate::state::durability::Confirmation;
use crate::telemetry::clock;
use crate::telemetry::replication::ReplicationMetrics;
use basalt_commands::config::Config;
use basalt_commands::config::values::ClusterMode;
use basalt_engine::record::Audience;

/// Time for which a primary confirms nothing once one of its replicas has become a primary. That is most likely its
/// successor: Sentinel takes up to ten seconds to tell all servers, the nodes of a cluster take their time-out. Until
/// then a replica that has not been told would confirm writes that its next primary never gets.
fn aside_ms(config: &Config) -> u64 {
    const BY_SENTINEL_MS: u64 = 15_000;
    match config.cluster_enabled {
        ClusterMode::No => BY_SENTINEL_MS,
        _ => config.cluster_node_timeout.max(0).cast_unsigned(),
    }
}

/// A request for acknowledgements that enough replicas have yet to answer.
struct AcknowledgementRequest {
    /// Log position that the answers confirm.
    position: u64,
    /// The stream offset at that position; None until the stream has reached it.
    offset: Option<u64>,
    asked_ms: u64,
}

/// Which log positions replicas have confirmed; see the module.
pub struct Confirmations {
    this: Weak<Confirmations>,
    log: Arc<OpLog>,
    backlog: Arc<Backlog>,
    /// Number of replicas that must have a write before its reply is sent; 0: none.
    wanted: AtomicU64,
    /// Milliseconds that replies wait; 0 for no limit.
    timeout_ms: AtomicU64,
    /// Whether this server writes the stream.
    is_primary: AtomicBool,
    /// Number of replicas that follow the stream and have acknowledged some of it.
    in_sync: AtomicU64,
    /// Gate that confirmed positions pass.
    gate: Gate,
    /// Greatest position that a reply has waited for.
    awaited: AtomicU64,
    /// Unix milliseconds until which nothing is confirmed, see [`aside_ms`].
    aside_until_ms: AtomicU64,
    /// Positions up to this one that are not confirmed were not confirmed in time.
    overdue: AtomicU64,
    request: Mutex<Option<AcknowledgementRequest>>,
    /// Whether `request` is set, or about to be.
    is_asking: AtomicBool,
    /// Batches of replies that got errors because replicas were too late.
    refused: AtomicU64,
}

impl Confirmations {
    /// Creates the confirmations of a primary that wants none.
    pub fn new(log: &Arc<OpLog>, backlog: &Arc<Backlog>) -> Arc<Confirmations> {
        Arc::new_cyclic(|this| Confirmations {
            this: Weak::clone(this),
            log: Arc::clone(log),
            backlog: Arc::clone(backlog),
            wanted: AtomicU64::new(0),
            timeout_ms: AtomicU64::new(0),
            is_primary: AtomicBool::new(true),
            in_sync: AtomicU64::new(0),
            gate: Gate::default(),
            awaited: AtomicU64::new(0),
            aside_until_ms: AtomicU64::new(0),
            overdue: AtomicU64::new(0),
            request: Mutex::new(None),
            is_asking: AtomicBool::new(false),
            refused: AtomicU64::new(0),
        })
    }

    /// Returns the gate at which replies wait, for its relays.
    pub fn gate(&self) -> &Gate {
        &self.gate
    }

    /// Applies the configuration. Returns whether replies have to wait for confirmations.
    pub fn configure(&self, config: &Config) -> bool {
        self.timeout_ms.store(config.sync_replicas_timeout, Relaxed);
        let wanted = u64::from(config.min_sync_replicas);
        let before = self.wanted.load(Relaxed);
        if before == 0 && wanted > 0 {
            // Only later writes must be confirmed.
            self.gate.pass(self.log.tail());
        }
        self.wanted.store(wanted, SeqCst);
        if wanted == 0 {
            self.forget_request();
        }
        if wanted < before {
            self.gate.open();
        }
        wanted > 0
    }

    /// Copies the figures for INFO and the metrics.
    pub fn publish(&self, told: &ReplicationMetrics) {
        let (in_sync, refused) = (&self.in_sync, &self.refused);
        told.sync_replicas.store(in_sync.load(Relaxed), Relaxed);
        told.unconfirmed_replies
            .store(refused.load(Relaxed), Relaxed);
        told.is_confirmation_overdue
            .store(self.is_overdue(), Relaxed);
    }

    /// Returns whether replicas did not confirm a write in time, and have not confirmed it since.
    pub fn is_overdue(&self) -> bool {
        self.wanted.load(Relaxed) > 0 && self.overdue.load(SeqCst) > self.gate.passed()
    }

    /// Confirms nothing for some seconds, as a replica has become a primary.
    pub fn step_aside(&self, config: &Config) {
        if self.wanted.load(Relaxed) > 0 && self.is_primary.load(Relaxed) {
            let aside_ms = aside_ms(config);
            tracing::warn!(
                "One of the replicas is a primary now and may replace this server: no writes for {} seconds, unless \
                 min-sync-replicas is 0.",
                aside_ms.div_ceil(1_000)
            );
            self.aside_until_ms
                .store(clock::unix_ms() + aside_ms, SeqCst);
            self.give_up();
        }
    }

    fn is_aside(&self) -> bool {
        let until_ms = self.aside_until_ms.load(SeqCst);
        until_ms > 0 && clock::unix_ms() < until_ms
    }

    /// Whether writes must be refused, for lack of replicas that could confirm them.
    pub fn lacks_replicas(&self) -> bool {
        let wanted = self.wanted.load(Relaxed);
        wanted > 0
            && self.is_primary.load(Relaxed)
            && (self.in_sync.load(Relaxed) < wanted || self.is_overdue() || self.is_aside())
    }

    /// Ends the role of a primary: what was not confirmed never will be. All shards must be locked.
    pub(super) fn end(&self) {
        // In this order: see `verdict`.
        self.give_up();
        self.is_primary.store(false, SeqCst);
        self.gate.open();
        self.forget_request();
    }

    fn forget_request(&self) {
        *self.request.lock() = None;
        self.is_asking.store(false, SeqCst);
    }

    /// The data are those of the primary from here on: nothing is left that was not confirmed.
    pub(super) fn follow(&self) {
        self.gate.pass(self.overdue.load(SeqCst));
    }

    /// Begins the role of a primary: what the server got as a replica needs no confirmation. All shards must be locked.
    pub(super) fn begin(&self) {
        if !self.is_primary.swap(true, SeqCst) {
            self.aside_until_ms.store(0, SeqCst);
            self.gate.pass(self.log.tail());
        }
    }

    fn give_up(&self) {
        let tail = self.log.tail();
        if tail > self.gate.passed() {
            self.overdue.fetch_max(tail, SeqCst);
            // The next request covers all of it.
            self.awaited.fetch_max(tail, SeqCst);
        }
        self.gate.open();
    }

    /// Takes the offsets that replicas in sync have acknowledged, in any order.
    pub fn note_acknowledged(&self, mut offsets: Vec<u64>) {
        self.in_sync.store(offsets.len() as u64, Relaxed);
        let Some(last) = self.wanted.load(SeqCst).checked_sub(1) else {
            return;
        };
        if offsets.len() as u64 <= last || self.is_aside() {
            return;
        }
        // The offset that as many replicas as are wanted have reached.
        offsets.sort_unstable_by(|a, b| b.cmp(a));
        let reached = offsets[last as usize];
        let mut request = self.request.lock();
        let is_answered = |request: &mut AcknowledgementRequest| {
            request.offset.is_some_and(|offset| offset <= reached)
        };
        let Some(answered) = request.take_if(is_answered) else {
            return;
        };
        drop(request);
        let was_overdue = self.is_overdue();
        self.gate.pass(answered.position);
        if was_overdue && !self.is_overdue() {
            tracing::info!("Replicas confirm writes again.");
        }
        self.is_asking.store(false, SeqCst);
        // Replies that came meanwhile share the next request.
        if self.awaited.load(SeqCst) > answered.position {
            self.ask();
        }
    }

    /// Ends waits that have taken too long; called ten times a second.
    pub fn tick(&self) {
        let timeout_ms = self.timeout_ms.load(Relaxed);
        let now_ms = clock::unix_ms();
        let is_late = |request: &AcknowledgementRequest| {
            timeout_ms > 0 && now_ms.saturating_sub(request.asked_ms) >= timeout_ms
        };
        if self.request.lock().as_ref().is_some_and(is_late) && !self.is_overdue() {
            tracing::warn!(
                "No confirmation by {} replicas within {timeout_ms} ms: writes are refused until there is one.",
                self.wanted.load(Relaxed)
            );
            self.give_up();
        }
        // The stream had no source when the last reply asked.
        if self.awaited.load(SeqCst) > self.gate.passed() {
            self.ask();
        }
    }

    /// Asks replicas to acknowledge everything logged so far, unless a request is under way.
    fn ask(&self) {
        if !self.is_primary.load(SeqCst) || self.is_asking.swap(true, SeqCst) {
            return;
        }
        let position = self.log.tail();
        *self.request.lock() = Some(AcknowledgementRequest {
            position,
            offset: None,
            asked_ms: clock::unix_ms(),
        });
        let this = Weak::clone(&self.this);
        let number = self.backlog.expect_mark(Box::new(move |offset| {
            if let Some(this) = this.upgrade() {
                this.note_offset(position, offset);
            }
        }));
        self.log.mark_within(Audience::REPLICAS, number);
        let question: [&[u8]; 3] = [b"REPLCONF", b"GETACK", b"*"];
        self.log.tell(Audience::REPLICAS, &question);
        self.log.hand_out();
    }

    fn note_offset(&self, position: u64, offset: u64) {
        let mut request = self.request.lock();
        if let Some(request) = &mut *request
            && request.position == position
        {
            request.offset = Some(offset);
        }
    }

    /// Returns whether a reply that reflects the log up to `position` may be sent; None if that is not known yet.
    fn verdict(&self, position: u64) -> Option<bool> {
        // Read the role first: at its end, `overdue` is stored before the role.
        let is_primary = self.is_primary.load(SeqCst);
        let (passed, overdue) = (self.gate.passed(), self.overdue.load(SeqCst));
        if passed >= position || self.wanted.load(SeqCst) == 0 {
            return Some(true);
        }
        match is_primary {
            true => (overdue > passed || self.is_aside()).then_some(false),
            // Later data come from the primary.
            false => Some(position > overdue),
        }
    }
}

/// The confirmations as connections see them.
impl Confirmation for Confirmations {
    fn must_wait(&self, position: u64) -> bool {
        self.verdict(position) != Some(true)
    }

    fn poll_confirmed(&self, position: u64, cx: &mut Context<'_>) -> Poll<bool> {
        if self.verdict(position).is_none() {
            self.awaited.fetch_max(position, SeqCst);
            self.ask();
            let waits = self
                .gate
                .poll_until(position, cx, || self.verdict(position).is_some());
            if waits.is_pending() {
                return Poll::Pending;
            }
        }
        let is_confirmed = self.verdict(position).unwrap_or(false);
        if !is_confirmed {
            self.refused.fetch_add(1, Relaxed);
        }
        Poll::Ready(is_confirmed)
    }

    fn confirmed(&self) -> u64 {
        self.gate.passed()
    }
}
