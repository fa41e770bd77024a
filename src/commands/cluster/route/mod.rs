//! Whether this node serves a request, by the slot of its keys; if not, the redirection or error.
//!
//! The decision is a pure function of the cluster map and the request. Whether the keys exist only matters for slots
//! that are being moved: for such a request the first verdict is to look the keys up ([`Verdict::NeedsKeyCheck`]),
//! and the second verdict depends on which of them exist.

use super::map::ClusterMap;
use basalt_core::base::hash::SLOTS;
use basalt_core::bit_set;

/// The slot of a request's keys, or that there are none or several.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SlotOf(u16);

impl Default for SlotOf {
    fn default() -> Self {
        SlotOf::NONE
    }
}

impl SlotOf {
    /// The value for a request without keys.
    pub const NONE: SlotOf = SlotOf(u16::MAX);

    /// Set in addition to the slot of the first key if another key has another slot.
    const CROSS: u16 = 0x8000;

    /// Returns the value for keys of a single slot.
    #[inline]
    #[must_use]
    pub const fn of(slot: u16) -> SlotOf {
        debug_assert!(slot < SLOTS);
        SlotOf(slot)
    }

    /// Whether the request has no keys.
    #[inline]
    #[must_use]
    pub const fn is_none(self) -> bool {
        self.0 == SlotOf::NONE.0
    }

    /// Whether the keys are in several slots.
    #[must_use]
    pub const fn is_cross(self) -> bool {
        !self.is_none() && self.0 & SlotOf::CROSS != 0
    }

    /// Returns the slot of the first key; None without keys.
    #[must_use]
    pub const fn first(self) -> Option<u16> {
        match self.is_none() {
            true => None,
            false => Some(self.0 & !SlotOf::CROSS),
        }
    }

    /// Returns the slot as an index into a table; out of range unless all keys are in one slot.
    #[inline]
    #[must_use]
    pub const fn index(self) -> usize {
        self.0 as usize
    }

    /// Combines the slots of these keys and of others.
    #[inline]
    #[must_use]
    pub const fn with(self, other: SlotOf) -> SlotOf {
        if self.is_none() || self.0 == other.0 {
            return other;
        }
        if other.is_none() {
            return self;
        }
        SlotOf(self.0 | SlotOf::CROSS)
    }
}

bit_set! {
    /// Properties of a request: its connection's state, and what its command does.
    #[derive(Debug, Default)]
    pub struct RoutingFlags(pub u8) {
        /// The client has sent READONLY.
        READS_HERE;
        /// The request follows an ASK redirection.
        ASKS;
        /// ASKING was sent: the next request is to be treated as with `ASKS`.
        WILL_ASK;
        /// The connection uses TLS, so that redirections contain TLS ports.
        TLS;
        /// The request may change data.
        WRITES;
        /// Names are channels, not keys.
        CHANNEL;
        /// The request moves keys from this server to another one (MIGRATE).
        MOVES;
        /// The client follows a replica's redirection to its primary, even without a cluster: CLIENT CAPA redirect.
        TAKES_REDIRECTS;
    }
}

/// Which requests are served while the cluster is down.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct DownPolicy {
    /// `cluster-allow-reads-when-down`.
    pub reads: bool,
    /// `cluster-allow-pubsubshard-when-down`.
    pub channels: bool,
}

/// Counts of a request's keys that exist on this node and that are missing.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Presence {
    /// Keys that do not exist here.
    pub missing: usize,
    /// Keys that exist here.
    pub existing: usize,
    /// Whether the request names several different keys.
    pub is_several: bool,
}

/// The decision whether a request runs on this node.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// The request runs on this node.
    Serve,
    /// The decision depends on which of the keys exist here.
    NeedsKeyCheck,
    /// The request does not run on this node.
    Refuse(Refusal),
}

/// The reason why a request does not run here.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Refusal {
    /// The keys are in several slots.
    CrossSlot,
    /// Some keys exist here and some do not, as their slot is being moved.
    TryAgain,
    /// The cluster is down.
    Down,
    /// The cluster is down, and only reads are served.
    DownForWrites,
    /// No node owns the slot.
    Unbound,
    /// Another node owns the slot: the slot and the node's index in the map.
    Moved(u16, u16),
    /// The keys, if they exist, are on the node that the slot is being moved to, though this node still owns the slot:
    /// the slot and that node's index in the map.
    Ask(u16, u16),
}

/// Decides on a request, before looking up its keys (no `presence`), or after that.
#[must_use]
pub fn decide(
    map: &ClusterMap,
    slot: SlotOf,
    routing: RoutingFlags,
    down_policy: DownPolicy,
    presence: Option<Presence>,
) -> Verdict {
    let Some(number) = slot.first() else {
        return Verdict::Serve;
    };
    let owner = map.owners[usize::from(number)];
    let is_channel = routing.any(RoutingFlags::CHANNEL);
    if map.owner(number).is_none() {
        return Verdict::Refuse(Refusal::Unbound);
    }
    if slot.is_cross() {
        return Verdict::Refuse(Refusal::CrossSlot);
    }
    if let Some(refusal) = refusal_while_down(map, routing, down_policy) {
        return Verdict::Refuse(refusal);
    }
    let target = map
        .migrating
        .get(&number)
        .filter(|_| owner == map.myself)
        .copied();
    let is_importing = target.is_none() && map.importing.contains_key(&number);
    if (target.is_some() || is_importing) && routing.any(RoutingFlags::MOVES) {
        return Verdict::Serve;
    }
    if let Some(target) = target
        && !is_channel
    {
        return match presence {
            None => Verdict::NeedsKeyCheck,
            Some(Presence { missing: 0, .. }) => Verdict::Serve,
            Some(Presence { existing: 0, .. }) => Verdict::Refuse(Refusal::Ask(number, target)),
            Some(_) => Verdict::Refuse(Refusal::TryAgain),
        };
    }
    if is_importing && routing.any(RoutingFlags::ASKS) {
        return match presence {
            _ if is_channel => Verdict::Serve,
            None => Verdict::NeedsKeyCheck,
            Some(found) if found.is_several && found.missing > 0 => {
                Verdict::Refuse(Refusal::TryAgain)
            }
            Some(_) => Verdict::Serve,
        };
    }
    if owner == map.myself || reads_of_primary(map, owner, routing) {
        return Verdict::Serve;
    }
    Verdict::Refuse(Refusal::Moved(number, owner))
}

fn refusal_while_down(
    map: &ClusterMap,
    routing: RoutingFlags,
    down_policy: DownPolicy,
) -> Option<Refusal> {
    if map.is_up {
        return None;
    }
    if routing.any(RoutingFlags::CHANNEL) {
        return (!down_policy.channels).then_some(Refusal::Down);
    }
    if !down_policy.reads {
        return Some(Refusal::Down);
    }
    routing
        .any(RoutingFlags::WRITES)
        .then_some(Refusal::DownForWrites)
}

/// Whether this node is a replica of a slot's owner and may serve a request for the slot.
fn reads_of_primary(map: &ClusterMap, owner: u16, routing: RoutingFlags) -> bool {
    routing.any(RoutingFlags::READS_HERE.or(RoutingFlags::CHANNEL))
        && !routing.any(RoutingFlags::WRITES)
        && map.me().primary == Some(owner)
}

/// Whether a shard channel of a slot is served by this node: the slot is owned by this node or by its primary, or is
/// being moved to this node.
#[must_use]
pub fn serves_channel(map: &ClusterMap, slot: u16) -> bool {
    let owner = map.owners[usize::from(slot)];
    owner == map.myself || map.me().primary == Some(owner) || map.importing.contains_key(&slot)
}

/// Returns the error if a client must not continue to wait for a key: it may wait if this node owns or imports the
/// slot, or replicates its owner.
#[must_use]
pub fn while_waiting(map: &ClusterMap, slot: u16, routing: RoutingFlags) -> Option<Refusal> {
    if !map.is_up {
        return Some(Refusal::Down);
    }
    let owner = map.owners[usize::from(slot)];
    if owner == map.myself
        || map.importing.contains_key(&slot)
        || reads_of_primary(map, owner, routing)
    {
        return None;
    }
    Some(match map.owner(slot) {
        None => Refusal::Unbound,
        Some(_) => Refusal::Moved(slot, owner),
    })
}

#[cfg(test)]
mod tests;
