//! What follows when slots of a cluster change hands: from which map requests are decided, who waits in vain, and which
//! shard channels end.

use std::sync::Arc;

use super::service::Service;
use crate::base::hash;
use crate::cluster::map::ClusterMap;
use crate::cluster::route;
use crate::command::host::cluster::{Cluster, SlotMap};
use crate::shard::blocking;
use crate::shard::job::Job;

impl Service {
    /// Makes this server a node of a cluster, whose map is known; before the first connection.
    pub fn join(&'static self, cluster: Box<dyn Cluster>) {
        let cluster = self.cluster.get_or_init(|| cluster);
        self.follow_map(cluster.map());
        self.pubsub
            .relay_to(Box::new(|channel, payload, is_sharded| {
                cluster.publish(channel, payload, is_sharded);
            }));
    }

    /// Has requests decided by another map from here on, which [`Cluster::map`] answers already. Called by one thread
    /// at a time; no shard may be in hand.
    ///
    /// What was admitted by the map before, and has not run yet, is decided again where it runs: each shard that had or
    /// has slots of this node is passed through behind the change, so that whatever runs there later knows of it. On
    /// that way those who wait for keys that have gone are sent after them. Subscriptions to shard channels whose slots
    /// another shard of the cluster has by now end.
    pub fn follow_map(&self, map: Arc<ClusterMap>) {
        let Some(slots) = self.slots.get() else {
            self.slots.get_or_init(|| SlotMap::new(map));
            return;
        };
        let before = slots.load_full();
        slots.store(Arc::clone(&map));
        if !changes_routes(&before.map, &map) {
            return;
        }
        for shard in 0..self.shards.len() as u16 {
            self.shards.submit(Job::task(&[shard], |engines, _| {
                for engine in engines {
                    blocking::end_redirected(engine);
                }
            }));
        }
        self.pubsub
            .end_shard_channels(|channel| !route::serves_channel(&map, hash::slot(channel)));
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
