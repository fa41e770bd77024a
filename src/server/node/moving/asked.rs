//! Slot imports requested by this node: CLUSTER MIGRATION IMPORT.
//!
//! This node sends `CLUSTER MIGRATESLOTS` to the owner of the slots, as a client would. The owner then starts a
//! regular migration, which begins here when the owner connects and names these slots.

use std::io;
use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;

use super::super::{Bus, links};
use super::job::{MigrationState, SlotMigration};
use super::{UNDER_WAY_MAX, fail, has_all, meet};
use crate::net::client::is_malformed;
use crate::telemetry::clock;
use basalt_commands::cluster::node_id::NodeId;
use basalt_commands::cluster::slot_set::SlotSet;
use basalt_commands::command::host::cluster::{SlotMove, SlotTask};
use basalt_core::base::lossless;
use basalt_core::resp::answer::Answer;
use basalt_engine::serial::commands;

/// Seconds during which an import is refused whose request was cancelled, if the source starts it after all.
const REFUSED_S: u64 = 60;

/// A requested import.
pub(super) struct ImportRequest {
    id: NodeId,
    slots: SlotSet,
    source: NodeId,
    target: NodeId,
    created_s: u64,
    outcome: Mutex<SlotImportStatus>,
}

/// Progress of a requested import.
enum SlotImportStatus {
    /// The import has not begun.
    Open,
    /// The migration has begun, and may be over.
    Begun(Arc<SlotMigration>),
    /// The request ended before the import began: the final state, the reason, and the Unix second.
    Over(MigrationState, String, u64),
}

impl ImportRequest {
    fn is_open(&self) -> bool {
        matches!(*self.outcome.lock(), SlotImportStatus::Open)
    }

    /// Ends the request, unless it has ended or the migration has begun.
    fn end(&self, state: MigrationState, why: impl Into<String>) -> bool {
        let mut outcome = self.outcome.lock();
        let is_open = matches!(*outcome, SlotImportStatus::Open);
        if is_open {
            *outcome = SlotImportStatus::Over(state, why.into(), clock::unix_ms() / 1000);
        }
        is_open
    }

    fn view(&self) -> SlotMove {
        let (state, message, updated_s) = match &*self.outcome.lock() {
            SlotImportStatus::Begun(job) => return job.view(),
            SlotImportStatus::Open => (MigrationState::Connecting, String::new(), self.created_s),
            SlotImportStatus::Over(state, why, second) => (*state, why.clone(), *second),
        };
        SlotMove {
            name: self.id,
            is_export: false,
            slots: self.slots.clone(),
            source: self.source,
            target: self.target,
            created_s: self.created_s,
            updated_s,
            acked_s: 0,
            state: state.word(),
            message,
            waiting_bytes: 0,
            paused_ms: 0,
        }
    }
}

/// Cancels an import on behalf of a user; returns whether the import was running.
fn cancel(job: &SlotMigration) -> bool {
    let is_under_way = job.end(MigrationState::Cancelled, "user request");
    if is_under_way && let Some(client) = &job.client {
        client.kill();
    }
    is_under_way
}

impl Bus {
    /// See [`Cluster::import_slots`](basalt_commands::command::host::cluster::Cluster::import_slots).
    pub(in super::super) fn ask_for(
        &'static self,
        source: NodeId,
        slots: SlotSet,
    ) -> Result<NodeId, String> {
        let under_way = self.moves.under_way();
        let mut imports = under_way.iter().filter(|job| !job.is_export());
        if let Some(job) = imports.find(|job| meet(&job.slots, &slots)) {
            let ranges = job.ranges();
            return Err(format!(
                "ERR overlapping import exists for slot range: {ranges}"
            ));
        }
        let mut all = self.moves.asked.lock();
        // An open request for the same slots may have been dropped or never received by the source: replace it.
        for open in all.iter().filter(|asked| meet(&asked.slots, &slots)) {
            open.end(MigrationState::Failed, "new import requested");
        }
        if all.iter().filter(|asked| asked.is_open()).count() >= UNDER_WAY_MAX {
            return Err("ERR Too many slot migrations are in progress".to_owned());
        }
        let kept = self
            .service
            .config
            .load()
            .cluster_slot_migration_log_max_len;
        all.truncate((kept as usize).max(UNDER_WAY_MAX));
        let asked = Arc::new(ImportRequest {
            id: NodeId::from_random(rand::random()),
            slots,
            source,
            target: self.map().me().id,
            created_s: clock::unix_ms() / 1000,
            outcome: Mutex::new(SlotImportStatus::Open),
        });
        all.push_front(Arc::clone(&asked));
        let id = asked.id;
        self.runtime.spawn(async move {
            let patience = Duration::from_secs(u64::from(self.service.config.load().repl_timeout));
            let said = tokio::time::timeout(patience, self.ask(&asked)).await;
            let said = said.unwrap_or_else(|_| Err("Timed out".to_owned()));
            if let Err(why) = said
                && asked.end(MigrationState::Failed, why.clone())
            {
                tracing::warn!(
                    "Import {} of slots from node {source} failed: {why}",
                    asked.id
                );
            }
        });
        Ok(id)
    }

    /// Asks the owner of the slots to migrate them here.
    async fn ask(&self, asked: &ImportRequest) -> Result<(), String> {
        let lost = |error: io::Error| match is_malformed(&error) {
            true => error.to_string(),
            false => "Connection lost to source".to_owned(),
        };
        // The caller limits the time of the whole request.
        let timeout = &|| Duration::MAX;
        let config = self.service.config.load_full();
        let map = self.map();
        let Some(node) = map.find(asked.source.as_bytes()) else {
            return Err("The source node is no longer known.".to_owned());
        };
        let port = node.client_port(config.tls_cluster);
        let opened = links::open(self, &node.ip, port).await;
        let mut client = opened.map_err(|_| "Unable to connect to source node")?;
        let mut out = Vec::new();
        let signs_in = config.sign_in(|words| commands::command(&mut out, words));
        let answers = 1 + usize::from(signs_in.is_some());
        commands::command(
            &mut out,
            &words(asked).iter().map(Vec::as_slice).collect::<Vec<_>>(),
        );
        client.send(&out, timeout).await.map_err(lost)?;
        for _ in 0..answers {
            let answer = client.read_reply(timeout).await.map_err(lost)?;
            if let Answer::Error(text) = answer {
                let text = lossless::text_of(&text);
                return Err(format!("Source node replied with error: {text}"));
            }
        }
        Ok(())
    }

    /// Returns all migrations by their CLUSTER MIGRATION ids, the latest first: requested imports by their ids,
    /// all other migrations by their names.
    pub(in super::super) fn slot_tasks(&self) -> Vec<SlotTask> {
        let map = self.map();
        let asked = self.moves.asked.lock();
        let mut jobs = self.moves.views();
        let mut tasks = Vec::new();
        for one in asked.iter() {
            if !has_all(&map, one.source, &one.slots) {
                one.end(
                    MigrationState::Failed,
                    "Slots are no longer owned by the source node",
                );
            }
            let of = one.view();
            jobs.retain(|job| job.name != of.name);
            tasks.push(SlotTask { id: one.id, of });
        }
        tasks.extend(jobs.into_iter().map(|of| SlotTask { id: of.name, of }));
        tasks.sort_by_key(|task| std::cmp::Reverse(task.of.created_s));
        tasks
    }

    /// See [`Cluster::cancel_tasks`](basalt_commands::command::host::cluster::Cluster::cancel_tasks).
    pub(in super::super) fn cancel_tasks(&self, id: Option<&[u8]>) -> usize {
        let is_meant = |name: NodeId| id.is_none_or(|id| name.as_bytes() == id);
        let mut cancelled = 0;
        for asked in self
            .moves
            .asked
            .lock()
            .iter()
            .filter(|asked| is_meant(asked.id))
        {
            let job = match &*asked.outcome.lock() {
                SlotImportStatus::Begun(job) => Some(Arc::clone(job)),
                _ => None,
            };
            cancelled += usize::from(match job {
                Some(job) => cancel(&job),
                None => asked.end(MigrationState::Cancelled, "user request"),
            });
        }
        for job in self
            .moves
            .under_way()
            .iter()
            .filter(|job| is_meant(job.name))
        {
            cancelled += usize::from(match job.is_export() {
                true => job.cancel(),
                false => cancel(job),
            });
        }
        cancelled
    }
}

impl super::Moves {
    /// Associates a beginning import with the request for it, if there is one.
    pub(super) fn note_begun(&self, job: &Arc<SlotMigration>) {
        let all = self.asked.lock();
        let is_it =
            |asked: &&Arc<ImportRequest>| asked.source == job.source && asked.slots == job.slots;
        let Some(asked) = all.iter().find(is_it) else {
            return;
        };
        let mut outcome = asked.outcome.lock();
        match &*outcome {
            SlotImportStatus::Open => *outcome = SlotImportStatus::Begun(Arc::clone(job)),
            // The source had already received the request before it was cancelled. After `REFUSED_S`, its
            // migration may have another cause and is accepted.
            SlotImportStatus::Over(MigrationState::Cancelled, _, second)
                if (clock::unix_ms() / 1000).saturating_sub(*second) < REFUSED_S =>
            {
                fail(job, "user request");
            }
            _ => {}
        }
    }
}

/// Returns the words of `CLUSTER MIGRATESLOTS …`.
fn words(asked: &ImportRequest) -> Vec<Vec<u8>> {
    let words = ["CLUSTER", "MIGRATESLOTS", "SLOTSRANGE"];
    let mut words: Vec<Vec<u8>> = words.map(|word| word.as_bytes().to_vec()).into();
    for (first, last) in asked.slots.ranges() {
        words.push(first.to_string().into_bytes());
        words.push(last.to_string().into_bytes());
    }
    words.push(b"NODE".to_vec());
    words.push(asked.target.as_bytes().to_vec());
    words
}
