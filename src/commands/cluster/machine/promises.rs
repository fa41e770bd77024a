//! Promises of this node: a vote, a new epoch, its ID. A node that forgot a promise in a crash could make a
//! contradictory one, so nodes.conf is written before other nodes learn of a promise.
//!
//! A call that makes a promise requests that nodes.conf is written, and its outputs are held back until
//! [`Machine::safe`]. Other work may go on meanwhile, however long the disk takes: until then the node sends and
//! serves with its previous state. Its pings and pongs contain that state, and changes of its role and its map wait
//! behind the promise, in order. Everything else is sent at once, and nodes.conf is written soon.

use std::sync::Arc;

use super::{LinkId, Machine};
use crate::cluster::assembly::Notice;
use crate::cluster::flags::NodeFlags;
use crate::cluster::node_id::NodeId;
use crate::cluster::output::Output;
use crate::cluster::packet::{Body, Extension, Packet};
use crate::cluster::slot_set::SlotSet;

/// The parts of a packet that depend on promises.
#[derive(Clone, Debug)]
pub(super) struct Claims {
    pub(super) sender: NodeId,
    pub(super) current_epoch: u64,
    pub(super) config_epoch: u64,
    pub(super) slots: SlotSet,
    pub(super) primary: Option<NodeId>,
    pub(super) flags: NodeFlags,
    notice: Option<Notice>,
}

impl Claims {
    fn put_into(&self, packet: &mut Packet) {
        if let Body::Ping(news) | Body::Pong(news) | Body::Meet(news) = &mut packet.body {
            news.extensions
                .retain_mut(|extension| match (extension, &self.notice) {
                    (Extension::Assembly(notice), Some(before)) => {
                        notice.clone_from(&Box::new(before.clone()));
                        true
                    }
                    (Extension::Assembly(_), None) => false,
                    _ => true,
                });
        }
        let header = &mut packet.header;
        header.sender = self.sender;
        header.current_epoch = self.current_epoch;
        header.config_epoch = self.config_epoch;
        header.slots = self.slots.clone();
        header.primary = self.primary;
        header.flags = self.flags;
        // Writes are paused, and the offset is final, only once the driver has been asked to pause: after the promise
        // is safe.
        header.is_paused = false;
    }
}

/// Promises that are not safely on disk yet, and the outputs that wait for them.
#[derive(Debug, Default)]
pub(super) struct Promises {
    /// Number of promises made.
    made: u64,
    /// Number of promises that are safely on disk.
    safe: u64,
    /// The claims before the first promise that is not safe; None if all promises are safe.
    before: Option<Claims>,
    held: Vec<Output>,
}

impl Promises {
    fn is_pending(&self) -> bool {
        self.safe < self.made
    }

    fn hold(&mut self, output: Output) {
        let is_map = matches!(output, Output::Publish);
        // One output that publishes the map is enough, as the map's content is determined when it is published.
        if !is_map || !self.held.iter().any(|held| matches!(held, Output::Publish)) {
            self.held.push(output);
        }
    }
}

impl Machine {
    /// Returns the current claims of this node.
    pub(super) fn claims(&self) -> Claims {
        let me = self.me();
        let primary = self.my_primary();
        let owner = self.nodes.get(primary.unwrap_or(self.me));
        Claims {
            sender: me.id,
            current_epoch: self.current_epoch,
            config_epoch: owner.config_epoch,
            slots: owner.slots.clone(),
            primary: primary.map(|primary| self.nodes.get(primary).id),
            flags: me.flags,
            notice: self.notice(),
        }
    }

    /// Passes the outputs of a call to the driver, or holds them back.
    pub(super) fn release(&mut self, is_promise: bool) {
        let outputs = std::mem::take(&mut self.outputs);
        if is_promise {
            self.promises.made += 1;
            self.ready.push(Output::Save(self.promises.made));
        }
        for output in outputs {
            match output {
                Output::Send(link, packet) if self.promises.is_pending() && !is_promise => {
                    self.send_as_before(link, packet);
                }
                Output::Send(..)
                | Output::Follow { .. }
                | Output::Lead
                | Output::Pause(_)
                | Output::Unpause
                | Output::FlushAll
                | Output::DeleteKeys(_)
                | Output::Publish
                    if self.promises.is_pending() =>
                {
                    self.promises.hold(output);
                }
                output => self.ready.push(output),
            }
        }
        if !self.promises.is_pending() {
            self.promises.before = Some(self.claims());
        }
    }

    /// Sends a packet with the claims from before the pending promises.
    fn send_as_before(&mut self, link: LinkId, mut packet: Arc<Packet>) {
        match packet.body {
            Body::Ping(_)
            | Body::Pong(_)
            | Body::Meet(_)
            | Body::Fail(_)
            | Body::Publish(_)
            | Body::PublishShard(_)
            | Body::ManualFailoverStart => {
                if let Some(before) = &self.promises.before {
                    before.put_into(Arc::make_mut(&mut packet));
                    self.ready.push(Output::Send(link, packet));
                }
            }
            // Other nodes request again, with their next ping, the slot owners that they need.
            Body::Update { .. } | Body::VoteRequest | Body::Vote | Body::Module => {}
        }
    }

    /// Returns the number of promises made. The current result of [`Machine::saved`] includes all of them.
    #[must_use]
    pub fn promised(&self) -> u64 {
        self.promises.made
    }

    /// Whether a promise is not safe yet.
    #[must_use]
    pub fn is_promising(&self) -> bool {
        self.promises.is_pending()
    }

    /// Reports that promises up to this number are safely on disk: they are sent to other nodes, unless a further
    /// promise was made since.
    pub fn safe(&mut self, promise: u64) {
        self.promises.safe = self.promises.safe.max(promise);
        if !self.promises.is_pending() {
            self.ready.append(&mut self.promises.held);
            self.promises.before = Some(self.claims());
        }
    }
}
