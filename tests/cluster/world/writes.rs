//! Clients of a [`World`]: their writes, and which of these were lost.

use std::collections::BTreeSet;

use super::World;

impl World {
    /// Writes to each server that takes writes for the slots of a shard, and waits for the replicas.
    pub(crate) fn write_everywhere(&mut self) {
        for at in 0..self.servers.len() {
            if self.is_down(at) || self.servers[at].stopped_until > self.now {
                continue;
            }
            // Commands use the published map, which waits for the promises to be saved.
            let Some(map) = self.servers[at].published.clone() else {
                continue;
            };
            let me = map.me();
            if !map.is_up || !me.is_primary() || me.slots.is_empty() {
                continue;
            }
            self.next_write += 1;
            let write = self.next_write;
            self.servers[at].writes.push(write);
            let replicas: Vec<usize> = (0..self.servers.len())
                .filter(|other| self.servers[*other].follows == Some(at))
                .collect();
            let all_can = replicas.iter().all(|replica| {
                self.can_reach(*replica, at) && self.servers[*replica].stopped_until <= self.now
            });
            // Acknowledged by all that the shard has: down ones among them would not be.
            let shard = map.me().shard_id;
            let siblings = map
                .nodes
                .iter()
                .filter(|node| node.shard_id == shard)
                .count()
                - 1;
            if all_can && replicas.len() == siblings {
                for replica in replicas {
                    let writes = self.servers[at].writes.clone();
                    self.servers[replica].writes = writes;
                }
                self.acknowledged.insert(write);
            }
        }
    }

    /// Returns the acknowledged writes that no primary has.
    pub(crate) fn lost(&self) -> Vec<u64> {
        let mut there = BTreeSet::new();
        for at in 0..self.servers.len() {
            if self.servers[at].machine.is_some() && self.machine(at).own_view().is_primary() {
                there.extend(self.servers[at].writes.iter().copied());
            }
        }
        self.acknowledged.difference(&there).copied().collect()
    }
}
