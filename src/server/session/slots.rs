//! What follows when slots of a cluster change hands: from which map requests are decided, who waits in vain, and which
//! shard channels end. And what requests took, by their slots.

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

/// What MULTI takes as an array; it is counted with EXEC, as only that knows the slot.
const MULTI_BYTES: u64 = b"*1\r\n$5\r\nMULTI\r\n".len() as u64;

impl Session {
    /// Counts what a request took for the slot of its keys, if they are in one. The reply is still whole.
    ///
    /// Of a script that may use keys of any slot the reply alone counts, as in Redis and Valkey.
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
    /// Makes this server a node of a cluster with this map; before the first connection.
    pub fn join(&'static self, cluster: Box<dyn Cluster>, map: Arc<ClusterMap>) {
        self.slots.get_or_init(|| SlotMap::new(map));
        let cluster = self.cluster.get_or_init(|| cluster);
        self.pubsub
            .relay_to(Box::new(|channel, payload, is_sharded| {
                cluster.publish(channel, payload, is_sharded);
            }));
    }

    /// The bus is late: it looks at the other nodes before a request is decided.
    #[cold]
    pub(super) fn wake_cluster(&self) {
        if let Some(cluster) = self.cluster.get() {
            cluster.wake();
        }
    }

    /// The map by which requests are decided.
    ///
    /// # Panics
    ///
    /// If this server is not a node of a cluster.
    pub fn cluster_map(&self) -> Arc<ClusterMap> {
        let slots = self.slots.get().expect("this server has joined a cluster");
        Arc::clone(&slots.load().map)
    }

    /// Has requests decided by another map from here on. Called by one thread at a time; no shard may be in hand.
    ///
    /// What was admitted by the map before, and has not run yet, is decided again where it runs: each shard that had or
    /// has slots of this node is passed through behind the change, so that whatever runs there later knows of it. On
    /// that way those who wait for keys that have gone are sent after them. Subscriptions to shard channels whose slots
    /// another shard of the cluster has by now end.
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

    /// Begins anew to count what requests took, by their slots.
    pub fn forget_slot_usage(&self) {
        if self.slots.get().is_some() {
            self.pass_through_shards(|engine| engine.forget_slot_usage(|_| false));
        }
    }

    /// Does something with each shard, soon.
    fn pass_through_shards(&self, work: impl Fn(&mut Engine) + Clone + Send + 'static) {
        for shard in 0..self.shards.len() as u16 {
            let work = work.clone();
            self.shards.submit(Job::task(&[shard], move |engines, _| {
                engines.iter_mut().for_each(|engine| work(engine));
            }));
        }
    }
}

/// Whether any request may be decided otherwise by a map than by the one before.
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
