//! Changes of slot ownership, and the epochs that decide whose claim is newer.

use std::cmp::Ordering;

use super::{Level, Machine, Millis, NodeRef, SlotSet};
use crate::cluster::flags::NodeFlags;
use crate::cluster::output::Output;
use crate::cluster::packet::{Body, Header};
use crate::cluster::settings::Local;

impl Machine {
    /// Sets or removes a slot's owner, and forgets whether the previous owner had stopped claiming the slot.
    pub(super) fn assign(&mut self, slot: u16, owner: Option<NodeRef>) {
        self.unclaimed.remove(slot);
        self.nodes.assign(slot, owner);
        if owner != Some(self.me) && self.migrating.remove(&slot).is_some() {
            self.due.map = true;
        }
    }

    /// Removes the owner of all of a node's slots.
    pub(super) fn take_all_slots(&mut self, node: NodeRef) {
        for slot in self.nodes.get(node).slots.clone().iter() {
            self.assign(slot, None);
        }
    }

    fn is_unclaimed(&self, slot: u16) -> bool {
        self.nodes.owner(slot).is_none() || self.unclaimed.contains(slot)
    }

    /// Returns a slot's owner if its claim has a later epoch than this one.
    pub(super) fn is_claimed_after(&self, slot: u16, epoch: u64) -> Option<NodeRef> {
        let owner = self
            .nodes
            .owner(slot)
            .filter(|_| !self.is_unclaimed(slot))?;
        (self.nodes.get(owner).config_epoch > epoch).then_some(owner)
    }

    /// Notifies a node, which claims a slot with too old an epoch, of the slot's owner.
    pub(super) fn tell_newer_claim(&mut self, sender: NodeRef, header: &Header, local: &dyn Local) {
        let owners = header
            .slots
            .iter()
            .filter(|slot| self.nodes.owner(*slot) != Some(sender));
        let newer = owners
            .filter_map(|slot| self.is_claimed_after(slot, header.config_epoch))
            .next();
        if let Some(owner) = newer {
            let owner = self.nodes.get(owner);
            let claimed = owner
                .slots
                .iter()
                .filter(|slot| !self.unclaimed.contains(*slot));
            let update = Body::Update {
                node: owner.id,
                config_epoch: owner.config_epoch,
                slots: claimed.collect(),
            };
            self.send_to(sender, update, local);
        }
    }

    /// Handles a primary's claim of slots in an epoch: slots that no other node claims in a later epoch are assigned
    /// to that primary. A node that loses its last slot this way becomes its replica.
    pub(super) fn claim(
        &mut self,
        claimant: NodeRef,
        epoch: u64,
        claimed: &SlotSet,
        local: &dyn Local,
    ) {
        if claimant == self.me {
            return;
        }
        let mine = self.nodes.primary_of(self.me);
        let mut lost = SlotSet::default();
        let mut taken_from_mine: u16 = 0;
        for slot in self.nodes.get(claimant).slots.clone().iter() {
            // The slot keeps its owner for now: clients can still be redirected to that node, until the new owner
            // claims the slot.
            if claimed.contains(slot) {
                self.unclaimed.remove(slot);
            } else {
                self.unclaimed.insert(slot);
            }
        }
        for slot in claimed.iter() {
            let owner = self.nodes.owner(slot);
            let is_settled = owner == Some(claimant) || self.importing.contains_key(&slot);
            let is_older = owner.is_none_or(|owner| self.nodes.get(owner).config_epoch < epoch);
            if is_settled || !(is_older || self.is_unclaimed(slot)) {
                continue;
            }
            if owner == Some(self.me) && local.keys_in_slot(slot) > 0 {
                lost.insert(slot);
            }
            if owner.is_some() && owner == mine {
                taken_from_mine += 1;
            }
            self.assign(slot, Some(claimant));
            self.changed();
            self.due.state = true;
        }
        let is_left_without = mine.is_some_and(|mine| self.nodes.get(mine).slot_count == 0);
        let is_whole_shard = claimed.len() == taken_from_mine;
        if taken_from_mine > 0
            && is_left_without
            && (self.settings.allow_replica_migration || is_whole_shard)
        {
            self.log_new_primary(claimant);
            return self.replicate(claimant);
        }
        if let Some(grand) = self.grand_primary() {
            let title = self.nodes.get(grand).title();
            let text = format!(
                "I'm a sub-replica! Reconfiguring myself as a replica of grandmaster {title}"
            );
            self.log(Level::Notice, text);
            return self.replicate(grand);
        }
        if !lost.is_empty() {
            self.outputs.push(Output::DeleteKeys(lost));
        }
    }

    pub(super) fn log_new_primary(&mut self, primary: NodeRef) {
        let title = self.nodes.get(primary).title();
        let text =
            format!("Configuration change detected. Reconfiguring myself as a replica of {title}");
        self.log(Level::Notice, text);
    }

    /// Returns the primary of this node's primary, if the latter has become a replica itself.
    fn grand_primary(&self) -> Option<NodeRef> {
        let primary = self.my_primary()?;
        self.nodes
            .get(primary)
            .primary
            .filter(|grand| *grand != self.me)
    }

    /// Makes this node a replica of a primary; this node must have no slots.
    pub(super) fn replicate(&mut self, primary: NodeRef) {
        let me = self.nodes.get_mut(self.me);
        if me.is_primary() {
            me.demote();
            self.migrating.clear();
            self.importing.clear();
        }
        self.nodes.follow(self.me, Some(primary));
        let shard_id = self.nodes.get(primary).shard_id;
        self.nodes.get_mut(self.me).shard_id = shard_id;
        self.follow_primary(primary);
        self.end_manual_failover();
        self.changed();
        self.due.state = true;
    }

    /// Makes the server replicate from a primary at the primary's current address.
    pub(super) fn follow_primary(&mut self, primary: NodeRef) {
        let address = &self.nodes.get(primary).address;
        if address.ip.is_empty() {
            return;
        }
        let port = match self.settings.tls_replication {
            true => address.tls_port,
            false => address.port,
        };
        let ip = address.ip.clone();
        self.is_following = true;
        self.outputs.push(Output::Follow { ip, port });
    }

    /// Handles the promotion of a node that was known as a replica.
    pub(super) fn set_primary(&mut self, node: NodeRef) {
        if self.nodes.get(node).is_primary() {
            return;
        }
        let had_primary = self.nodes.get(node).primary.is_some();
        self.nodes.follow(node, None);
        let is_other = node != self.me;
        let promoted = self.nodes.get_mut(node);
        promoted.flags.clear(NodeFlags::REPLICA);
        promoted.flags.set(NodeFlags::PRIMARY);
        if had_primary && is_other {
            promoted.flags.set(NodeFlags::MIGRATE_TO);
        }
        self.changed();
        self.due.state = true;
    }

    /// Whether this node has the greatest epoch.
    pub(super) fn has_greatest_epoch(&self) -> bool {
        let epochs = self.nodes.iter().map(|(_, node)| node.config_epoch);
        let greatest = epochs.max().unwrap_or(0).max(self.current_epoch);
        let own = self.me().config_epoch;
        own != 0 && own == greatest
    }

    /// Gives this node an epoch greater than all others, without asking other nodes. Returns whether it did not have
    /// the greatest epoch before.
    pub(super) fn bump_epoch(&mut self) -> bool {
        if self.has_greatest_epoch() {
            return false;
        }
        self.take_next_epoch();
        true
    }

    pub(super) fn take_next_epoch(&mut self) {
        self.current_epoch = self.current_epoch.saturating_add(1);
        let epoch = self.current_epoch;
        self.nodes.get_mut(self.me).config_epoch = epoch;
        self.changed_for_good();
        self.log(Level::Notice, format!("New configEpoch set to {epoch}"));
    }

    /// Resolves a collision with another primary that has the same epoch: one of the two takes a later epoch.
    ///
    /// In Redis the primary with the smaller ID does so. But two primaries of one shard claim the same slots, and the
    /// later epoch decides whose data are kept: there the primary with the greater replication offset acts first. The
    /// other one waits for that, but in the end falls back to the rule of IDs, as its peer may be a server that knows
    /// no other rule. Such a server acts at once if it has the smaller ID; so a node that acts against the rule of
    /// IDs skips an epoch, and has the later epoch even if both act.
    pub(super) fn settle_collision(
        &mut self,
        other: NodeRef,
        header: &Header,
        now: Millis,
        local: &dyn Local,
    ) {
        let (me, node) = (self.me(), self.nodes.get(other));
        let collide = !self.is_unassembled()
            && me.is_primary()
            && node.is_primary()
            && header.config_epoch == me.config_epoch
            && node.config_epoch == me.config_epoch;
        if !collide {
            self.nodes.get_mut(other).collides_since = None;
            return;
        }
        let is_next_by_name = me.id < node.id;
        let by_data = match me.shard_id == node.shard_id {
            true => local.offset().cmp(&header.offset),
            false => Ordering::Equal,
        };
        let timeout = self.settings.node_timeout;
        let since = *self.nodes.get_mut(other).collides_since.get_or_insert(now);
        let goes = match by_data {
            Ordering::Equal => is_next_by_name,
            Ordering::Greater => true,
            Ordering::Less => is_next_by_name && now.saturating_sub(since) > timeout,
        };
        if !goes {
            return;
        }
        if !is_next_by_name {
            self.current_epoch = self.current_epoch.saturating_add(1);
        }
        self.take_next_epoch();
        let node = self.nodes.get_mut(other);
        node.collides_since = None;
        let title = node.title();
        self.log(
            Level::Verbose,
            format!("configEpoch collision with node {title}"),
        );
    }
}
