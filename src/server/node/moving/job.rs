//! A slot migration, from or to this node, and its progress.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};

use parking_lot::Mutex;

use crate::telemetry::clock;
use crate::telemetry::slot_moves::{Moved, SlotMoves};
use basalt_commands::client::shared::Shared;
use basalt_commands::cluster::node_id::NodeId;
use basalt_commands::cluster::slot_set::SlotSet;
use basalt_commands::command::host::cluster::SlotMove;

/// State of a migration.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in super::super) enum MigrationState {
    // States of exports.
    Queued,
    Connecting,
    Introducing,
    Established,
    Walking,
    Following,
    Paused,
    // States of imports.
    AwaitingAck,
    ReceivingKeys,
    AwaitingPaused,
    AskingForSlots,
    // States of both.
    Granted,
    Done,
    Failed,
    Cancelled,
}

impl MigrationState {
    /// Returns Valkey's name of the state.
    pub(in super::super) fn word(self) -> &'static str {
        match self {
            MigrationState::Queued => "waiting-to-snapshot",
            MigrationState::Connecting => "connecting",
            MigrationState::Introducing => "reading-establish-response",
            MigrationState::Established => "waiting-to-snapshot",
            MigrationState::Walking => "snapshotting",
            MigrationState::Following => "replicating",
            MigrationState::Paused => "failover-paused",
            MigrationState::AwaitingAck => "waiting-for-ack",
            MigrationState::ReceivingKeys => "receiving-snapshot",
            MigrationState::AwaitingPaused => "waiting-for-paused",
            MigrationState::AskingForSlots => "failover-requested",
            MigrationState::Granted => "failover-granted",
            MigrationState::Done => "success",
            MigrationState::Failed => "failed",
            MigrationState::Cancelled => "cancelled",
        }
    }

    pub(in super::super) fn is_over(self) -> bool {
        matches!(
            self,
            MigrationState::Done | MigrationState::Failed | MigrationState::Cancelled
        )
    }
}

struct MigrationProgress {
    state: MigrationState,
    message: String,
    /// When writes were paused for the handover, and (`paused_ms`) for how long, in milliseconds.
    paused_at_ms: Option<u64>,
    paused_ms: u64,
    updated_s: u64,
    acked_ms: u64,
}

/// Returns the arguments of `CLUSTER SYNCSLOTS ESTABLISH …`.
pub(super) fn establish(source: NodeId, name: NodeId, slots: &SlotSet) -> Vec<Vec<u8>> {
    let words = ["CLUSTER", "SYNCSLOTS", "ESTABLISH", "SOURCE"];
    let mut words: Vec<Vec<u8>> = words.map(|word| word.as_bytes().to_vec()).into();
    words.push(source.as_bytes().to_vec());
    words.push(b"NAME".to_vec());
    words.push(name.as_bytes().to_vec());
    words.push(b"SLOTSRANGE".to_vec());
    for (first, last) in slots.ranges() {
        words.push(first.to_string().into_bytes());
        words.push(last.to_string().into_bytes());
    }
    words
}

/// Returns the arguments of `CLUSTER SYNCSLOTS FINISH …`.
pub(super) fn finish(name: NodeId, has_come: bool) -> Vec<Vec<u8>> {
    let state = if has_come { "SUCCESS" } else { "FAILED" };
    let words = ["CLUSTER", "SYNCSLOTS", "FINISH", "STATE", state, "NAME"];
    let mut words: Vec<Vec<u8>> = words.map(|word| word.as_bytes().to_vec()).into();
    words.push(name.as_bytes().to_vec());
    words.extend([b"MESSAGE".to_vec(), Vec::new()]);
    words
}

/// One slot migration, from or to this node.
pub(in super::super) struct SlotMigration {
    pub(in super::super) name: NodeId,
    pub(in super::super) slots: SlotSet,
    pub(in super::super) source: NodeId,
    pub(in super::super) target: NodeId,
    /// Connection of an import; `None` for an export.
    pub(in super::super) client: Option<Arc<Shared>>,
    /// Number of times that databases of this server had been emptied when the import began.
    pub(in super::super) emptied: u64,
    /// Bytes of changes still to be sent.
    pub(in super::super) waiting_bytes: AtomicU64,
    /// Bytes of memory kept for sending, `waiting_bytes` included.
    pub(in super::super) buffer_bytes: AtomicU64,
    /// Counters of all migrations in this direction.
    pub(in super::super) figures: &'static Moved,
    /// Bytes of the import's connection that are counted already.
    received: AtomicU64,
    /// Time when the peer was first contacted.
    began_ms: AtomicU64,
    is_cancelled: AtomicBool,
    created_s: u64,
    progress: Mutex<MigrationProgress>,
}

impl SlotMigration {
    /// Creates a migration that begins now.
    pub(in super::super) fn new(
        name: NodeId,
        slots: SlotSet,
        source: NodeId,
        target: NodeId,
        client: Option<(Arc<Shared>, u64)>,
        figures: &'static SlotMoves,
    ) -> Arc<SlotMigration> {
        let (client, emptied) = client.unzip();
        let now_ms = clock::unix_ms();
        let (state, figures) = match client {
            None => (MigrationState::Queued, &figures.exports),
            Some(_) => (MigrationState::AwaitingAck, &figures.imports),
        };
        let received = client
            .as_ref()
            .map_or(0, |client: &Arc<Shared>| client.bytes_in.get());
        Arc::new(SlotMigration {
            name,
            slots,
            source,
            target,
            client,
            emptied: emptied.unwrap_or(0),
            waiting_bytes: AtomicU64::new(0),
            buffer_bytes: AtomicU64::new(0),
            figures,
            received: AtomicU64::new(received),
            began_ms: AtomicU64::new(now_ms),
            is_cancelled: AtomicBool::new(false),
            created_s: now_ms / 1000,
            progress: Mutex::new(MigrationProgress {
                state,
                message: String::new(),
                paused_at_ms: None,
                paused_ms: 0,
                updated_s: now_ms / 1000,
                acked_ms: now_ms,
            }),
        })
    }

    pub(in super::super) fn state(&self) -> MigrationState {
        self.progress.lock().state
    }

    /// True if the slots are migrated away from this node.
    pub(in super::super) fn is_export(&self) -> bool {
        self.client.is_none()
    }

    /// Advances to another state; returns false and does nothing if the migration is in none of the states
    /// `from`.
    pub(in super::super) fn advance(&self, from: &[MigrationState], to: MigrationState) -> bool {
        let mut progress = self.progress.lock();
        if progress.state == to {
            return true;
        }
        let may = from.contains(&progress.state);
        if may {
            self.put(&mut progress, to, String::new());
        }
        may
    }

    /// Ends the migration. Returns false if it had already ended.
    pub(in super::super) fn end(&self, state: MigrationState, message: impl Into<String>) -> bool {
        let mut progress = self.progress.lock();
        let is_first = !progress.state.is_over();
        if is_first {
            self.put(&mut progress, state, message.into());
            self.count_end(state);
        }
        is_first
    }

    fn count_end(&self, state: MigrationState) {
        self.count_received();
        let counter = match state {
            MigrationState::Done => &self.figures.finished,
            MigrationState::Cancelled => &self.figures.cancelled,
            _ => &self.figures.failed,
        };
        counter.fetch_add(1, Relaxed);
        if state == MigrationState::Done {
            let took_ms = clock::unix_ms().saturating_sub(self.began_ms.load(Relaxed));
            self.figures.last_ms.store(took_ms, Relaxed);
        }
    }

    /// Notes that the peer is about to be contacted.
    pub(in super::super) fn begin(&self) {
        self.began_ms.store(clock::unix_ms(), Relaxed);
        self.advance(&[MigrationState::Queued], MigrationState::Connecting);
    }

    /// Counts the bytes received over the connection since the last call; returns whether there were any.
    pub(in super::super) fn count_received(&self) -> bool {
        let Some(client) = &self.client else {
            return false;
        };
        let bytes = client.bytes_in.get();
        let more = bytes.saturating_sub(self.received.swap(bytes, Relaxed));
        self.figures.bytes.fetch_add(more, Relaxed);
        more > 0
    }

    fn put(&self, progress: &mut MigrationProgress, state: MigrationState, message: String) {
        let (before, word) = (progress.state.word(), state.word());
        progress.state = state;
        let now_ms = clock::unix_ms();
        progress.updated_s = now_ms / 1000;
        if state == MigrationState::Paused {
            progress.paused_at_ms = Some(now_ms);
        } else if state.is_over()
            && let Some(since_ms) = progress.paused_at_ms
        {
            progress.paused_ms = now_ms.saturating_sub(since_ms);
        }
        let slots = self.ranges();
        let name = self.name;
        match message.is_empty() {
            true => tracing::info!("Slot migration {name} (slots {slots}): {before} -> {word}"),
            false => tracing::warn!("Slot migration {name} (slots {slots}) {word}: {message}"),
        }
        progress.message = message;
    }

    /// Formats the slots as ranges.
    pub(in super::super) fn ranges(&self) -> String {
        let ranges = self.slots.ranges();
        let texts: Vec<String> = ranges
            .map(|(first, last)| format!("{first}-{last}"))
            .collect();
        texts.join(" ")
    }

    /// Returns the arguments of `CLUSTER SYNCSLOTS ESTABLISH …` for this migration.
    pub(in super::super) fn words(&self) -> Vec<Vec<u8>> {
        establish(self.source, self.name, &self.slots)
    }

    /// Notes that the peer has sent something.
    pub(in super::super) fn note_heard(&self) {
        self.progress.lock().acked_ms = clock::unix_ms();
    }

    /// Returns the milliseconds since the peer last sent something.
    pub(in super::super) fn silent_ms(&self) -> u64 {
        clock::unix_ms().saturating_sub(self.progress.lock().acked_ms)
    }

    /// Requests the end of the migration; returns whether this was the first request.
    pub(in super::super) fn cancel(&self) -> bool {
        !self.is_cancelled.swap(true, Relaxed)
    }

    pub(in super::super) fn is_cancelled(&self) -> bool {
        self.is_cancelled.load(Relaxed)
    }

    /// Returns the entry for CLUSTER GETSLOTMIGRATIONS.
    pub(in super::super) fn view(&self) -> SlotMove {
        let progress = self.progress.lock();
        SlotMove {
            name: self.name,
            is_export: self.is_export(),
            slots: self.slots.clone(),
            source: self.source,
            target: self.target,
            created_s: self.created_s,
            updated_s: progress.updated_s,
            acked_s: progress.acked_ms / 1000,
            state: progress.state.word(),
            message: progress.message.clone(),
            waiting_bytes: self.waiting_bytes.load(Relaxed),
            paused_ms: progress.paused_ms,
        }
    }
}
