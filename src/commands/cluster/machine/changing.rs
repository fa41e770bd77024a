//! Changes that clients request by CLUSTER commands. Error texts and their codes are those of Redis.

use super::node::NodeAddress;
use super::sending::PongTargets;
use super::{Level, Machine, Millis, NodeRef, draw};
use crate::cluster::change::{ClusterChange, Failover, SlotChange};
use crate::cluster::flags::NodeFlags;
use crate::cluster::node_id::NodeId;
use crate::cluster::output::Output;
use crate::cluster::settings::Local;
use crate::cluster::slot_set::SlotSet;
use basalt_core::base::hash::SLOTS;

type ChangeResult = Result<String, String>;

fn ok() -> ChangeResult {
    Ok("OK".to_owned())
}

fn refuse(text: impl Into<String>) -> ChangeResult {
    Err(format!("ERR {}", text.into()))
}

impl Machine {
    /// Changes the cluster. Returns the text of the reply to the client.
    ///
    /// # Errors
    ///
    /// The error is Redis's text of why the change is impossible; nothing has changed then.
    pub fn change(
        &mut self,
        change: ClusterChange,
        now: Millis,
        local: &dyn Local,
    ) -> ChangeResult {
        let answer = match change {
            ClusterChange::Meet {
                ip,
                port,
                bus_port,
                is_by_hand,
            } => self.meet(ip, port, bus_port, is_by_hand, now),
            ClusterChange::Forget(node) => self.forget_by_hand(node, now),
            ClusterChange::AddSlots(slots) => self.add_slots(&slots),
            ClusterChange::DelSlots(slots) => self.del_slots(&slots),
            ClusterChange::FlushSlots => self.flush_slots(local),
            ClusterChange::SetSlot { slot, to } => self.set_slot(slot, to, now, local),
            ClusterChange::TakeSlots { slots, from } => self.take_slots(&slots, from, now, local),
            ClusterChange::Replicate(node) => self.replicate_by_hand(node, local),
            ClusterChange::Failover(how) => self.fail_over(how, now, local),
            ClusterChange::Reset { is_hard } => self.reset(is_hard, local),
            ClusterChange::SaveConfig => {
                self.changed();
                ok()
            }
            ClusterChange::BumpEpoch => {
                let word = if self.bump_epoch() { "BUMPED" } else { "STILL" };
                Ok(format!("{word} {}", self.me().config_epoch))
            }
            ClusterChange::SetConfigEpoch(epoch) => self.set_config_epoch(epoch),
        };
        self.finish(now, Some(local));
        answer
    }

    /// Whether SETSLOT makes this node the owner of a slot that it imports, with a new epoch of its own.
    #[must_use]
    pub fn takes_epoch(&self, slot: u16, to: SlotChange) -> bool {
        let is_own = matches!(to, SlotChange::Node(id) if id == self.id());
        is_own && self.importing.contains_key(&slot) && !self.has_greatest_epoch()
    }

    /// Handles the end of loading at the start. A primary takes over slots that have keys here and no owner; keys of
    /// slots that another node owns are assumed to come from a slot migration that the restart interrupted.
    pub fn loaded(&mut self, now: Millis, local: &dyn Local) {
        if self.me().is_replica() || self.is_unassembled() {
            // A node with data is no part of a new cluster, and must not take slots that the new cluster gives out.
            return;
        }
        for slot in 0..SLOTS {
            let owner = self.nodes.owner(slot);
            let is_known = owner == Some(self.me) || self.importing.contains_key(&slot);
            if is_known || local.keys_in_slot(slot) == 0 {
                continue;
            }
            match owner {
                None => {
                    let text = format!(
                        "Slot {slot} has keys on this node but no owner: assigning it to this node"
                    );
                    self.log(Level::Notice, text);
                    self.assign(slot, Some(self.me));
                }
                Some(owner) => {
                    let text = format!(
                        "Slot {slot} has keys on this node but belongs to another node: marking it as importing"
                    );
                    self.log(Level::Notice, text);
                    self.importing.insert(slot, owner);
                }
            }
            self.changed();
            self.due.state = true;
        }
        self.finish(now, Some(local));
    }

    fn meet(
        &mut self,
        ip: String,
        port: u16,
        bus_port: u16,
        is_by_hand: bool,
        now: Millis,
    ) -> ChangeResult {
        let is_tls = self.settings.tls_cluster;
        let address = NodeAddress {
            ip,
            port: if is_tls { 0 } else { port },
            tls_port: if is_tls { port } else { 0 },
            bus_port,
        };
        self.shake_hands(address, NodeFlags::MEET, is_by_hand, now);
        ok()
    }

    fn forget_by_hand(&mut self, id: NodeId, now: Millis) -> ChangeResult {
        let Some(node) = self.nodes.find(&id) else {
            // Another node may have announced already that it forgot this node.
            let is_forgotten = self.forgotten.get(&id).is_some_and(|until| *until > now);
            return if is_forgotten {
                ok()
            } else {
                refuse(format!("Unknown node {id}"))
            };
        };
        if node == self.me {
            return refuse("I tried hard but I can't forget myself...");
        }
        if self.my_primary() == Some(node) {
            return refuse("Can't forget my master!");
        }
        self.forgotten.insert(id, now + self.settings.forgotten_for);
        self.give_up_plan_with(&id);
        self.forget(node);
        ok()
    }

    fn add_slots(&mut self, slots: &SlotSet) -> ChangeResult {
        if let Some(slot) = slots.iter().find(|slot| self.nodes.owner(*slot).is_some()) {
            return refuse(format!("Slot {slot} is already busy"));
        }
        for slot in slots.iter() {
            self.importing.remove(&slot);
            self.assign(slot, Some(self.me));
        }
        self.slots_changed()
    }

    fn slots_changed(&mut self) -> ChangeResult {
        self.changed();
        self.due.state = true;
        ok()
    }

    fn del_slots(&mut self, slots: &SlotSet) -> ChangeResult {
        if let Some(slot) = slots.iter().find(|slot| self.nodes.owner(*slot).is_none()) {
            return refuse(format!("Slot {slot} is already unassigned"));
        }
        for slot in slots.iter() {
            self.assign(slot, None);
        }
        self.slots_changed()
    }

    fn flush_slots(&mut self, local: &dyn Local) -> ChangeResult {
        if local.has_keys() {
            return refuse("DB must be empty to perform CLUSTER FLUSHSLOTS.");
        }
        self.take_all_slots(self.me);
        self.slots_changed()
    }

    fn set_slot(
        &mut self,
        slot: u16,
        to: SlotChange,
        now: Millis,
        local: &dyn Local,
    ) -> ChangeResult {
        if self.me().is_replica() {
            return refuse("Please use SETSLOT only with masters.");
        }
        let owner = self.nodes.owner(slot);
        let is_mine = owner == Some(self.me);
        match to {
            SlotChange::Migrating(_) if !is_mine => {
                return refuse(format!("I'm not the owner of hash slot {slot}"));
            }
            SlotChange::Migrating(id) => {
                let node = self.target(id, "I don't know about node")?;
                self.migrating.insert(slot, node);
            }
            SlotChange::Importing(_) if is_mine => {
                return refuse(format!("I'm already the owner of hash slot {slot}"));
            }
            SlotChange::Importing(id) => {
                let node = self.target(id, "I don't know about node")?;
                self.importing.insert(slot, node);
            }
            SlotChange::Stable => {
                self.importing.remove(&slot);
                self.migrating.remove(&slot);
            }
            SlotChange::Node(id) => {
                let node = self.target(id, "Unknown node")?;
                return self.give_slot(slot, node, now, local);
            }
        }
        self.slots_changed()
    }

    /// Finds a primary by its ID; `unknown` is the error if there is no such node.
    fn target(&self, id: NodeId, unknown: &str) -> Result<NodeRef, String> {
        let Some(node) = self.nodes.find(&id) else {
            return Err(format!("ERR {unknown} {id}"));
        };
        match self.nodes.get(node).is_replica() {
            true => Err("ERR Target node is not a master".to_owned()),
            false => Ok(node),
        }
    }

    fn give_slot(
        &mut self,
        slot: u16,
        node: NodeRef,
        now: Millis,
        local: &dyn Local,
    ) -> ChangeResult {
        let was_mine = self.nodes.owner(slot) == Some(self.me);
        let keys = local.keys_in_slot(slot);
        if was_mine && node != self.me && keys > 0 {
            return refuse(format!(
                "Can't assign hashslot {slot} to a different node while I still hold keys for this hash slot."
            ));
        }
        if keys == 0 {
            self.migrating.remove(&slot);
        }
        self.assign(slot, Some(node));
        let is_left_without = was_mine && node != self.me && self.me().slot_count == 0;
        if is_left_without && self.settings.allow_replica_migration {
            self.log_new_primary(node);
            self.replicate(node);
        }
        if node == self.me && self.importing.remove(&slot).is_some() {
            // A slot that was moved by hand is claimed with a new epoch, so that all nodes accept it.
            if self.bump_epoch() {
                self.log(
                    Level::Notice,
                    format!("configEpoch updated after importing slot {slot}"),
                );
            }
            self.broadcast_pong(PongTargets::All, now, local);
        }
        self.slots_changed()
    }

    /// Takes over slots from another node, which has paused writes to these slots, with a new epoch of this node's
    /// own.
    fn take_slots(
        &mut self,
        slots: &SlotSet,
        from: NodeId,
        now: Millis,
        local: &dyn Local,
    ) -> ChangeResult {
        let source = self.nodes.find(&from).filter(|node| *node != self.me);
        let has_all = source.is_some() && slots.iter().all(|slot| self.nodes.owner(slot) == source);
        if self.me().is_replica() || !has_all {
            return refuse("Target node does not agree about current slot ownership");
        }
        for slot in slots.iter() {
            self.importing.remove(&slot);
            self.assign(slot, Some(self.me));
        }
        self.take_next_epoch();
        let answer = self.slots_changed();
        self.broadcast_pong(PongTargets::All, now, local);
        answer
    }

    fn replicate_by_hand(&mut self, id: NodeId, local: &dyn Local) -> ChangeResult {
        let Some(node) = self.nodes.find(&id) else {
            return refuse(format!("Unknown node {id}"));
        };
        if node == self.me {
            return refuse("Can't replicate myself");
        }
        if self.nodes.get(node).is_replica() {
            return refuse("I can only replicate a master, not a replica.");
        }
        if self.me().is_primary() && (self.me().slot_count > 0 || local.has_keys()) {
            return refuse("To set a master the node must be empty and without assigned slots.");
        }
        self.replicate(node);
        ok()
    }

    fn fail_over(&mut self, how: Failover, now: Millis, local: &dyn Local) -> ChangeResult {
        if self.me().is_primary() {
            return refuse("You should send CLUSTER FAILOVER to a replica");
        }
        let Some(primary) = self.my_primary() else {
            return refuse("I'm a replica but my master is unknown to me");
        };
        let node = self.nodes.get(primary);
        let is_linked = self.is_linked(node);
        if how == Failover::Agreed && (node.is(NodeFlags::FAILED) || !is_linked) {
            return refuse("Master is down or failed, please use CLUSTER FAILOVER FORCE");
        }
        match how {
            Failover::Takeover => {
                self.log(Level::Notice, "Taking over the master (user request).");
                self.end_manual_failover();
                self.bump_epoch();
                self.take_primarys_place(now, local);
            }
            Failover::Force => {
                self.log(Level::Notice, "Forced failover user request accepted.");
                self.begin_manual_failover(false, now, local);
            }
            Failover::Handover => {
                self.log(Level::Notice, "Forced failover primary request accepted.");
                self.begin_manual_failover(false, now, local);
            }
            Failover::Agreed => {
                self.log(Level::Notice, "Manual failover user request accepted.");
                self.begin_manual_failover(true, now, local);
            }
        }
        ok()
    }

    fn reset(&mut self, is_hard: bool, local: &dyn Local) -> ChangeResult {
        if self.me().is_primary() && local.has_keys() {
            return refuse("CLUSTER RESET can't be called with master nodes containing keys");
        }
        if self.me().is_replica() {
            self.set_primary(self.me);
            self.is_following = false;
            self.outputs.push(Output::Lead);
            self.outputs.push(Output::FlushAll);
        }
        self.migrating.clear();
        self.importing.clear();
        self.end_manual_failover();
        self.take_all_slots(self.me);
        for node in self.nodes.refs() {
            if node != self.me {
                self.forget(node);
            }
        }
        self.forgotten.clear();
        self.reset_assembly(is_hard);
        if is_hard {
            self.current_epoch = 0;
            self.last_vote_epoch = 0;
            let (id, shard_id) = (draw(&mut self.random), draw(&mut self.random));
            self.nodes.rename(self.me, id);
            let me = self.nodes.get_mut(self.me);
            me.config_epoch = 0;
            me.shard_id = shard_id;
            self.changed_for_good();
            self.log(Level::Notice, "configEpoch set to 0 via CLUSTER RESET HARD");
            self.log(Level::Notice, format!("Node hard reset, now I'm {id}"));
        }
        self.slots_changed()
    }

    fn set_config_epoch(&mut self, epoch: u64) -> ChangeResult {
        if self.nodes.len() > 1 {
            return refuse(
                "The user can assign a config epoch only when the node does not know any other node.",
            );
        }
        if self.me().config_epoch != 0 {
            return refuse("Node config epoch is already non-zero");
        }
        self.nodes.get_mut(self.me).config_epoch = epoch;
        self.current_epoch = self.current_epoch.max(epoch);
        self.changed_for_good();
        self.log(
            Level::Notice,
            format!("configEpoch set to {epoch} via CLUSTER SET-CONFIG-EPOCH"),
        );
        self.slots_changed()
    }
}
