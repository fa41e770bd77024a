//! Changes of slot ownership in a cluster: the slot map that decides where requests run, redirection of clients
//! that wait for keys which have moved, and the end of subscriptions to shard channels that have moved. Also
//! counts resource usage by slot.

use std::sync::Arc;

use super::Session;
use super::accounting::Finished;
use super::batch::Request;
use super::turn::Turn;
use crate::script;
use crate::shard::blocking;
use crate::shard::job::Job;
use crate::state::Service;
use basalt_commands::client::connection::ReplyMode;
use basalt_commands::cluster::map::ClusterMap;
use basalt_commands::cluster::route;
use basalt_commands::command::client::request_bytes;
use basalt_commands::command::declaration::Run;
use basalt_commands::command::host::cluster::{Cluster, SlotMap};
use basalt_core::base::hash;
use basalt_engine::Engine;
use basalt_engine::slot_usage::Usage;

/// Bytes of the request MULTI; they are counted with EXEC, because the slot is known only then.
const MULTI_BYTES: u64 = b"*1\r\n$5\r\nMULTI\r\n".len() as u64;

impl Session {
    /// Counts a request's resource usage for the slot of its keys, if the keys are all in one slot. Call before
    /// any part of the reply is sent or removed.
    ///
    /// For a script that may use keys of any slot only the reply counts, as in Redis and Valkey.
    pub(super) fn count_slot(
        &self,
        turn: &mut Turn<'_>,
        request: Request<'_>,
        finished: &Finished,
    ) {
        let args = turn.batch.args(request.plan);
        let (slot, before_bytes) = match request.command.run {
            Run::Transaction(_) => (std::mem::take(&mut turn.transaction_slot), MULTI_BYTES),
            _ => (request.plan.slot, 0),
        };
        let is_of_slot = !matches!(request.command.run, Run::Script(_))
            || !script::may_cross_slots(request.command, &args, &self.service.scripts);
        let Some(slot) = slot.first().filter(|_| !slot.is_cross()) else {
            return;
        };
        let bytes_out = match self.connection.reply_mode {
            ReplyMode::On => turn.batch.out.len_since(finished.mark),
            _ => 0,
        };
        let bytes_out = bytes_out as u64;
        let usage = match is_of_slot {
            true => Usage {
                cpu_ns: finished.duration_ns,
                bytes_in: before_bytes + request_bytes(&args) as u64,
                bytes_out,
            },
            false => Usage {
                bytes_out,
                ..Usage::default()
            },
        };
        turn.count_slot(slot, usage);
    }
}

impl Service {
    /// Makes this server a cluster node with the given map; to be called before the first connection.
    pub fn join(&'static self, cluster: Box<dyn Cluster>, map: Arc<ClusterMap>) {
        self.slots.get_or_init(|| SlotMap::new(map));
        let cluster = self.cluster.get_or_init(|| cluster);
        self.pubsub
            .relay_to(Box::new(|channel, payload, is_sharded| {
                cluster.publish(channel, payload, is_sharded);
            }));
    }

    /// Wakes the cluster bus when it is late, so that it checks the other nodes before a request is decided.
    #[cold]
    pub(super) fn wake_cluster(&self) {
        if let Some(cluster) = self.cluster.get() {
            cluster.wake();
        }
    }

    /// Returns the slot map by which requests are decided.
    ///
    /// # Panics
    ///
    /// If this server is not a node of a cluster.
    pub fn cluster_map(&self) -> Arc<ClusterMap> {
        let slots = self.slots.get().expect("this server has joined a cluster");
        Arc::clone(&slots.load().map)
    }

    /// Makes `map` decide requests from here on. Called by one thread at a time; no shard may be locked.
    ///
    /// Requests admitted by the previous map that have not run yet are decided again where they run: a task
    /// passes through each shard after the change, so that every request that runs there later sees the new
    /// map. These tasks also redirect clients that wait for keys that have moved. Subscriptions to shard
    /// channels whose slots now belong to another shard of the cluster end.
    pub fn follow_map(&self, map: Arc<ClusterMap>) {
        let slots = self.slots.get().expect("this server has joined a cluster");
        let before = slots.load_full();
        slots.store(Arc::clone(&map));
        if !changes_routes(&before.map, &map) {
            return;
        }
        let mine = Arc::clone(&map);
        self.pass_through_shards(move |engine| {
            blocking::end_redirected(engine);
            engine.forget_slot_usage(|slot| mine.is_of_my_shard(slot));
        });
        self.pubsub
            .end_shard_channels(|channel| !route::serves_channel(&map, hash::slot(channel)));
    }

    /// Resets the resource usage by slot.
    pub fn forget_slot_usage(&self) {
        if self.slots.get().is_some() {
            self.pass_through_shards(|engine| engine.forget_slot_usage(|_| false));
        }
    }

    /// Submits a task with this work for each shard.
    fn pass_through_shards(&self, work: impl Fn(&mut Engine) + Clone + Send + 'static) {
        for shard in 0..self.shards.len() as u16 {
            let work = work.clone();
            self.shards.submit(Job::task(&[shard], move |engines, _| {
                engines.iter_mut().for_each(|engine| work(engine));
            }));
        }
    }
}

/// Returns whether any request may be decided differently by the new map.
fn changes_routes(before: &ClusterMap, after: &ClusterMap) -> bool {
    let owner = |map: &ClusterMap, slot: usize| {
        map.nodes
            .get(usize::from(map.owners[slot]))
            .map(|node| node.id)
    };
    before.is_up != after.is_up
        || before.me().primary_id != after.me().primary_id
        || before.migrating.keys().ne(after.migrating.keys())
        || before.importing.keys().ne(after.importing.keys())
        || (0..before.owners.len()).any(|slot| owner(before, slot) != owner(after, slot))
}
