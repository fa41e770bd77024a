//! A node as a line of nodes.conf and of CLUSTER NODES.

use std::collections::BTreeMap;
use std::fmt::{self, Write};

use crate::cluster::Millis;
use crate::cluster::flags::NodeFlags;
use crate::cluster::node_id::NodeId;
use crate::cluster::slot_set::SlotSet;

/// The contents of a node's line.
pub(super) struct NodesConfLine<'n> {
    pub(super) id: NodeId,
    pub(super) ip: &'n str,
    pub(super) port: u16,
    pub(super) bus_port: u16,
    pub(super) hostname: &'n str,
    /// Fields that only nodes.conf contains; None in CLUSTER NODES.
    pub(super) kept: Option<FileOnlyFields<'n>>,
    pub(super) flags: NodeFlags,
    pub(super) primary: Option<NodeId>,
    pub(super) ping_sent: Millis,
    pub(super) pong_received: Millis,
    pub(super) config_epoch: u64,
    pub(super) is_linked: bool,
    pub(super) slots: &'n SlotSet,
    /// Slots being moved, only in the line of the node itself: whether the slot leaves this node, and the node on the
    /// other side.
    pub(super) open: BTreeMap<u16, (bool, NodeId)>,
}

/// Fields that only nodes.conf contains.
pub(super) struct FileOnlyFields<'n> {
    pub(super) tls_port: u16,
    pub(super) human_name: &'n str,
    pub(super) shard_id: Option<NodeId>,
}

impl fmt::Display for NodesConfLine<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (id, ip, port, bus) = (self.id, self.ip, self.port, self.bus_port);
        write!(f, "{id} {ip}:{port}@{bus}")?;
        if !self.hostname.is_empty() || self.kept.is_some() {
            write!(f, ",{}", self.hostname)?;
        }
        if let Some(kept) = &self.kept {
            write!(f, ",tls-port={}", kept.tls_port)?;
            if !kept.human_name.is_empty() {
                write!(f, ",nodename={}", kept.human_name)?;
            }
            if let Some(shard) = kept.shard_id {
                write!(f, ",shard-id={shard}")?;
            }
        }
        write!(f, " {} ", self.flags)?;
        match self.primary {
            Some(primary) => write!(f, "{primary}")?,
            None => f.write_char('-')?,
        }
        let (sent, received, epoch) = (self.ping_sent, self.pong_received, self.config_epoch);
        let link = if self.is_linked {
            "connected"
        } else {
            "disconnected"
        };
        write!(f, " {sent} {received} {epoch} {link}")?;
        for (first, last) in self.slots.ranges() {
            if first == last {
                write!(f, " {first}")?;
            } else {
                write!(f, " {first}-{last}")?;
            }
        }
        for (slot, (goes, other)) in &self.open {
            let arrow = if *goes { '>' } else { '<' };
            write!(f, " [{slot}-{arrow}-{other}]")?;
        }
        Ok(())
    }
}

/// Merges the slots that are being moved; a slot in both directions is shown as leaving.
pub(super) fn open(
    migrating: impl Iterator<Item = (u16, NodeId)>,
    importing: impl Iterator<Item = (u16, NodeId)>,
) -> BTreeMap<u16, (bool, NodeId)> {
    let coming = importing.map(|(slot, from)| (slot, (false, from)));
    let going = migrating.map(|(slot, to)| (slot, (true, to)));
    coming.chain(going).collect()
}
