//! Messages of transactions and scripts: published when their PUBLISH runs, delivered when the shards are released.
//!
//! Between these moments, a later command of the transaction may make the connection subscribe, unsubscribe, or
//! change its protocol. So the pushes to the connection itself are determined when PUBLISH runs. All other clients
//! get the message if they are subscribed when it is delivered: they may subscribe and unsubscribe meanwhile, and no
//! message may follow the confirmation that a subscription has ended.

use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;

use super::message::EncodedMessage;
use super::{Posting, PubSub};
use crate::client::connection::Connection;
use crate::client::shared::Shared;
use crate::client::shared::mailbox::Topic;
use basalt_core::base::glob::{self, Case};
use basalt_core::resp::reply::Protocol;

/// A message that is not delivered yet, see the module.
pub struct PendingMessage {
    channel: Box<[u8]>,
    payload: Box<[u8]>,
    is_sharded: bool,
    publisher: Arc<Shared>,
    own: Own,
}

/// The pushes to the publisher itself.
struct Own {
    protocol: Protocol,
    by_name: bool,
    /// The client's patterns that match the channel.
    patterns: Vec<Arc<[u8]>>,
}

impl Own {
    fn of(client: &Connection, is_sharded: bool, channel: &[u8]) -> Own {
        let mut own = Own {
            protocol: client.protocol,
            by_name: false,
            patterns: Vec::new(),
        };
        let mailbox = client.shared.mailbox();
        if let Some(mailbox) = mailbox.filter(|mailbox| mailbox.subscriptions() > 0) {
            // Only the connection itself takes this lock.
            let subscribed = mailbox.subscribed.lock();
            let topic = match is_sharded {
                true => Topic::ShardChannel,
                false => Topic::Channel,
            };
            own.by_name = subscribed[topic as usize].contains(channel);
            if !is_sharded {
                let patterns = subscribed[Topic::Pattern as usize].iter();
                let matching =
                    patterns.filter(|text| glob::matches(text, channel, Case::Sensitive));
                own.patterns.extend(matching.cloned());
            }
        }
        own
    }

    fn count(&self) -> usize {
        usize::from(self.by_name) + self.patterns.len()
    }
}

impl PendingMessage {
    /// Creates a message that a connection publishes now.
    pub fn new(
        client: &Connection,
        is_sharded: bool,
        channel: &[u8],
        payload: &[u8],
    ) -> PendingMessage {
        PendingMessage {
            channel: channel.into(),
            payload: payload.into(),
            is_sharded,
            publisher: Arc::clone(&client.shared),
            own: Own::of(client, is_sharded, channel),
        }
    }
}

impl PubSub {
    /// Sends a pending message. The caller must have no shard locked.
    pub(super) fn send_pending(&self, held: &PendingMessage, posting: &mut Posting<'_>) {
        let PendingMessage {
            channel,
            payload,
            is_sharded,
            publisher,
            own,
        } = held;
        self.relay(*is_sharded, channel, payload);
        if own.count() == 0 && self.has_nobody(*is_sharded) {
            return;
        }
        let message = EncodedMessage::new(*is_sharded, channel, payload);
        // The log position that the publisher reflects, which may be beyond the effects delivered with this message.
        let log_seen = posting.log_seen.max(publisher.log_seen.load(Relaxed));
        let posting = &mut Posting::new(log_seen, posting.wakes);
        let bound = self.bounds.pubsub();
        if own.by_name {
            posting.post(publisher, bound, |out| {
                out.set_protocol(own.protocol);
                message.write(out);
            });
        }
        for pattern in &own.patterns {
            posting.post(publisher, bound, |out| {
                out.set_protocol(own.protocol);
                message.write_matched(pattern, out);
            });
        }
        self.post_to_all(&message, *is_sharded, Some(publisher.id), posting);
    }

    /// Returns the number of receivers that a message would have if it were sent now.
    pub fn receivers_of(&self, held: &PendingMessage) -> usize {
        let is_other = |client: &Arc<Shared>| client.id != held.publisher.id;
        let count =
            |clients: &[Arc<Shared>]| clients.iter().filter(|client| is_other(client)).count();
        let mut receivers = held.own.count();
        let channels = self.channels(held.is_sharded);
        channels.with(&held.channel, |clients| receivers += count(clients));
        if !held.is_sharded {
            self.patterns.with_each(|pattern, clients| {
                if glob::matches(pattern, &held.channel, Case::Sensitive) {
                    receivers += count(clients);
                }
            });
        }
        receivers
    }
}
