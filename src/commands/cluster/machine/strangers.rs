//! Nodes that a cluster which assembles itself does not accept.
//!
//! Nodes meet whatever answers at the addresses of `cluster-seeds`. Two clusters that meet become one in Redis,
//! where the later epoch of each slot decides whose data are deleted. Here a node with slots or a primary is
//! accepted only if it belongs to the same cluster. A new node also accepts those of an assembled cluster, to join
//! it, once it has heard the primaries of most slots: a single node may be left over from a cluster that is gone. A
//! node that is not accepted gets no answer, so that it does not learn of this node's slots either. Known nodes,
//! those that known nodes report, and those that an operator names (CLUSTER MEET) are not concerned.

use super::node::NodeAddress;
use super::{Level, Link, Machine, Millis, NodeRef};
use crate::cluster::assembly::{Notice, NoticeStage, Stage, Unfit};
use crate::cluster::flags::NodeFlags;
use crate::cluster::packet::{Body, Extension, Packet, PingBody};
use basalt_core::base::hash::SLOTS;

/// Maximum number of nodes whose refusals are remembered.
const REFUSED_MAX: usize = 16;

/// Maximum number of primaries that are remembered before they are accepted.
const OFFERS_MAX: usize = 1_024;

/// The objection to a node that brings slots or a primary, and tells nothing about an assembly.
const WITHOUT_NOTICE: &str =
    "it has slots or a primary in another cluster, which cluster-size has not assembled";

/// Milliseconds for which a refusal is shown, and for which a primary that was heard counts.
const REFUSAL_VALID: Millis = 15_000;

/// A primary of an assembled cluster, as heard by a new node.
pub(super) struct Offer {
    digest: u128,
    slots: u16,
    at: Millis,
}

impl Machine {
    /// Whether a greeting of an unknown node is refused. The handshake with it ends then.
    pub(super) fn refuses(&mut self, link: &Link, packet: &Packet, now: Millis) -> bool {
        let (Body::Ping(news) | Body::Pong(news) | Body::Meet(news)) = &packet.body else {
            return false;
        };
        if !self.is_of_assembly() {
            return false;
        }
        let node = link.node.filter(|_| !link.is_inbound);
        self.note_offer(packet, news, now);
        let why = self.objection_to(packet, news);
        let Some(why) = why.filter(|_| !self.is_met_by_hand(node)) else {
            return false;
        };
        let ip = match &*packet.header.ip {
            "" => &link.peer_ip,
            announced => announced,
        };
        let address = NodeAddress::of_wire(ip, packet.header.ports, self.settings.tls_cluster);
        let address = format!("{ip}:{}", address.port.max(address.tls_port));
        self.log_seldom(
            "cluster-stranger",
            Level::Warning,
            format!(
                "The node {} at {address} is not accepted: {why}",
                packet.header.sender
            ),
        );
        self.note_refusal(address, why, now);
        // A link from the other node stays open without an answer, so that it does not open another one at once.
        if let Some(node) = node.filter(|node| self.nodes.get(*node).is(NodeFlags::HANDSHAKE)) {
            self.forget(node);
        }
        true
    }

    fn is_met_by_hand(&self, node: Option<NodeRef>) -> bool {
        node.is_some_and(|node| self.nodes.get(node).is_met_by_hand)
    }

    fn note_refusal(&mut self, address: String, why: &str, now: Millis) {
        let refused = &mut self.assembly.refused;
        if refused.len() >= REFUSED_MAX && !refused.contains_key(&address) {
            let oldest = refused.iter().min_by_key(|(_, (_, at))| *at);
            if let Some(oldest) = oldest.map(|(oldest, _)| oldest.clone()) {
                refused.remove(&oldest);
            }
        }
        // A node that tells its notice only to some says more with it.
        match refused.get_mut(&address) {
            Some((_, at)) if why == WITHOUT_NOTICE => *at = now,
            _ => drop(refused.insert(address, (why.to_owned(), now))),
        }
    }

    /// Returns the reason why an unknown node is not accepted.
    fn objection_to(&self, packet: &Packet, news: &PingBody) -> Option<&'static str> {
        let header = &packet.header;
        let brings_state = !header.slots.is_empty() || header.primary.is_some();
        let notice = notice_in(&news.extensions);
        let other = "it belongs to another cluster";
        match (notice.map(|notice| &notice.stage), self.own_digest()) {
            (Some(NoticeStage::Assembled(theirs)), Some(own)) => (*theirs != own).then_some(other),
            (Some(NoticeStage::Assembled(theirs)), None) => (!self.is_offered(*theirs)).then_some(
                "it belongs to an assembled cluster whose other primaries are not there, or are down",
            ),
            (Some(NoticeStage::Waiting { unfit, .. }), _)
                if unfit.is_some_and(|unfit| unfit != Unfit::IsJoining) => {
                Some("it is not new: it has data, slots of another cluster, or an ID that another node has too")
            }
            (Some(NoticeStage::Agreed(plan)), Some(own)) if plan.digest() != own => {
                brings_state.then_some(other)
            }
            (Some(_), _) => None,
            (None, _) => brings_state.then_some(WITHOUT_NOTICE),
        }
    }

    /// Records a primary of an assembled cluster that is up.
    fn note_offer(&mut self, packet: &Packet, news: &PingBody, now: Millis) {
        let header = &packet.header;
        let stage = notice_in(&news.extensions).map(|notice| &notice.stage);
        let offers = &mut self.assembly.offers;
        if let Some(NoticeStage::Assembled(digest)) = stage
            && header.is_up
            && header.primary.is_none()
            && offers.len() < OFFERS_MAX
        {
            let offer = Offer {
                digest: *digest,
                slots: header.slots.len(),
                at: now,
            };
            offers.insert(header.sender, offer);
        }
    }

    /// Whether the primaries of most slots of an assembled cluster were heard, so that it is there.
    fn is_offered(&self, digest: u128) -> bool {
        let offers = self.assembly.offers.values();
        let of_it = offers.filter(|offer| offer.digest == digest);
        of_it.map(|offer| u32::from(offer.slots)).sum::<u32>() > u32::from(SLOTS) / 2
    }

    /// Forgets refusals and offers that are not repeated.
    pub(super) fn forget_refusals(&mut self, now: Millis) {
        let is_valid = |at: Millis| now.saturating_sub(at) < REFUSAL_VALID;
        self.assembly.refused.retain(|_, (_, at)| is_valid(*at));
        self.assembly.offers.retain(|_, offer| is_valid(offer.at));
    }

    /// Returns the digest of the plan that this node has agreed to, or by which its cluster was assembled.
    fn own_digest(&self) -> Option<u128> {
        match &self.assembly.record.stage {
            Stage::Waiting => None,
            Stage::Agreed(plan) => Some(plan.digest()),
            Stage::Assembled(digest) => Some(*digest),
        }
    }
}

/// Returns the notice among the extensions of a greeting.
pub(super) fn notice_in(extensions: &[Extension]) -> Option<&Notice> {
    extensions.iter().find_map(|extension| match extension {
        Extension::Assembly(notice) => Some(&**notice),
        _ => None,
    })
}
