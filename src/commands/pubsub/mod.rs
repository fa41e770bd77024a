//! Subscriptions to channels and to invalidations, and the delivery of messages to all subscribers.
//!
//! A registry of channels, patterns and shard channels, each with its subscribers. A publisher writes a message into
//! the queues of the subscribers ([`Shared::post`]) and then wakes those whose tasks have not been woken yet. A
//! publisher has the channel locked while it writes; unsubscribing takes that lock too, so that no message follows
//! the confirmation. Functions that publish must never be called with a shard locked. This module knows no command
//! and no socket.

mod channels;
mod events;
pub mod maintenance;
mod message;
pub mod monitor;
pub mod outgoing;
pub mod pending;
mod relocate;
pub mod sequence;
mod tracking;

use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, OnceLock};
use std::task::Waker;

use crate::client::shared::Shared;
use crate::client::shared::mailbox::{OutputBound, Topic, subscription_bytes};
use crate::config::Config;
use crate::config::values::OutputLimit;
use basalt_core::base::glob::{self, Case};
use basalt_core::base::maps;
use basalt_core::resp::reply::Out;
use basalt_engine::effect::Interest;
use channels::{ChannelTable, Patterns};
use events::Events;
use maintenance::{Maintenance, MaintenanceFigures};
use message::{EncodedMessage, MessageBatch};
use monitor::Monitors;
use tracking::Caches;

/// All subscriptions, see the module.
#[derive(Default)]
pub struct PubSub {
    channels: ChannelTable,
    shard_channels: ChannelTable,
    patterns: Patterns,
    bounds: SharedOutputLimits,
    events: Events,
    monitors: Monitors,
    caches: Caches,
    /// The clients with maintenance notifications, and the maintenance under way.
    maintenance: Maintenance,
    /// Forwards messages that clients publish here to the other nodes of a cluster.
    relay: OnceLock<Relay>,
}

/// Callback with the channel and the payload of a message, and whether the channel is a shard channel. No shard is
/// locked.
pub type Relay = Box<dyn Fn(&[u8], &[u8], bool) + Send + Sync>;

/// The context of posted data: the log position that the data reflect, and the tasks to be woken once no lock is
/// taken and no shard is locked.
pub struct Posting<'w> {
    log_seen: u64,
    wakes: &'w mut Vec<Waker>,
}

impl<'w> Posting<'w> {
    /// Creates a context for data that reflect the log before a position.
    pub fn new(log_seen: u64, wakes: &'w mut Vec<Waker>) -> Posting<'w> {
        Posting { log_seen, wakes }
    }

    /// Posts something to a client. Like a reply that reflects the same log position, it is sent only once that
    /// position is on disk, if the configuration requires this.
    fn post(&mut self, client: &Shared, bound: OutputBound, write: impl FnOnce(&mut Out)) {
        self.post_several(client, bound, 1, write);
    }

    /// Posts `count` pushes to a client, like [`Posting::post`].
    fn post_several(
        &mut self,
        client: &Shared,
        bound: OutputBound,
        count: usize,
        write: impl FnOnce(&mut Out),
    ) {
        client.see_log(self.log_seen);
        self.wakes.extend(client.post_several(bound, count, write));
    }
}

/// Figures for INFO and the metrics.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Figures {
    /// Number of channels with subscribers.
    pub channels: usize,
    /// Number of patterns with subscribers.
    pub patterns: usize,
    /// Shard channels with subscribers.
    pub shard_channels: usize,
    /// Number of connections that use client-side caching.
    pub tracking_clients: usize,
    /// Number of prefixes that connections track in broadcast mode.
    pub tracking_prefixes: usize,
    /// Number of keys that tracking connections have read.
    pub tracked_keys: u64,
    /// Sum of the numbers of readers of these keys.
    pub tracked_items: u64,
    /// Bytes of the tables of tracked keys.
    pub tracked_bytes: u64,
    /// Maintenance notifications.
    pub maintenance: MaintenanceFigures,
}

impl PubSub {
    /// Applies the configuration.
    pub fn configure(&self, config: &Config) {
        self.bounds.set(config);
        self.maintenance.configure(config);
        self.caches.tracked.bound_bytes(config.tracked_bytes_max());
        self.events.set_classes(config.notify_keyspace_events);
        let (expired, evicted) = (config.lazyfree_lazy_expire, config.lazyfree_lazy_eviction);
        self.events.interest.set_unlinking(expired, evicted);
    }

    /// Forwards messages that clients publish here to the other nodes of a cluster, from now on.
    pub fn relay_to(&self, relay: Relay) {
        self.relay.get_or_init(|| relay);
    }

    /// Whether messages are forwarded to other nodes.
    pub fn is_relaying(&self) -> bool {
        self.relay.get().is_some()
    }

    /// Forwards a client's message to the other nodes, if there are any.
    #[inline]
    pub fn relay(&self, is_sharded: bool, channel: &[u8], payload: &[u8]) {
        if let Some(relay) = self.relay.get() {
            relay(channel, payload, is_sharded);
        }
    }

    /// Returns which events shards must record.
    pub fn interest(&self) -> Arc<Interest> {
        Arc::clone(&self.events.interest)
    }

    /// Whether replicas, or the backlog kept for them, read the log.
    #[inline]
    pub fn is_replicating(&self) -> bool {
        self.events.interest.is_replicating()
    }

    /// Whether commands are logged.
    #[inline]
    pub fn is_logging(&self) -> bool {
        self.events.interest.is_logging()
    }

    /// Subscribes a client; returns its number of subscriptions, as the confirmation counts them.
    pub fn subscribe(&self, client: &Arc<Shared>, topic: Topic, name: &[u8]) -> usize {
        let mailbox = client.mailbox_or_new();
        {
            let mut subscribed = mailbox.subscribed.lock();
            let names = &mut subscribed[topic as usize];
            if !names.contains(name) {
                let name = match topic {
                    Topic::Channel => self.channels.add(name, client),
                    Topic::ShardChannel => self.shard_channels.add(name, client),
                    Topic::Pattern => self.patterns.add(name, client),
                };
                self.events.note_subscription(topic, &name, true);
                client.hold(subscription_bytes(&name));
                names.insert(name);
                mailbox.set_count(topic, names.len());
            }
        }
        counted(client, topic)
    }

    /// Ends a subscription. Returns the client's remaining number of subscriptions.
    pub fn unsubscribe(&self, client: &Arc<Shared>, topic: Topic, name: &[u8]) -> usize {
        if let Some(mailbox) = client.mailbox() {
            let mut subscribed = mailbox.subscribed.lock();
            let names = &mut subscribed[topic as usize];
            if names.remove(name) {
                client.release(subscription_bytes(name));
                maps::shrink_set(names);
                mailbox.set_count(topic, names.len());
                self.remove(client, topic, name);
            }
        }
        counted(client, topic)
    }

    /// Ends all subscriptions of a kind. Returns their names, each with the number of subscriptions remaining after
    /// it.
    pub fn unsubscribe_all(&self, client: &Arc<Shared>, topic: Topic) -> Vec<(Arc<[u8]>, usize)> {
        let Some(mailbox) = client.mailbox() else {
            return Vec::new();
        };
        let names = std::mem::take(&mut mailbox.subscribed.lock()[topic as usize]);
        let mut left = names.len();
        let ended = names.into_iter().map(|name| {
            left -= 1;
            client.release(subscription_bytes(&name));
            mailbox.set_count(topic, left);
            self.remove(client, topic, &name);
            (name, counted(client, topic))
        });
        ended.collect()
    }

    /// Ends all subscriptions to shard channels for which `is_over` is true; each subscriber is notified. No shard
    /// may be locked.
    pub fn end_shard_channels(&self, is_over: impl Fn(&[u8]) -> bool) {
        if self.shard_channels.is_empty() {
            return;
        }
        let mut wakes = Vec::new();
        for name in self.shard_channels.names(is_over) {
            let mut subscribers = Vec::new();
            self.shard_channels
                .with(&name, |clients| subscribers.extend_from_slice(clients));
            for client in subscribers {
                self.end_shard_channel(&client, &name, &mut wakes);
            }
        }
        wakes.into_iter().for_each(Waker::wake);
    }

    /// Ends a client's subscription to a shard channel, and notifies the client.
    fn end_shard_channel(&self, client: &Shared, name: &[u8], wakes: &mut Vec<Waker>) {
        let Some(mailbox) = client.mailbox() else {
            return;
        };
        let left = {
            let mut subscribed = mailbox.subscribed.lock();
            let names = &mut subscribed[Topic::ShardChannel as usize];
            if !names.remove(name) {
                return;
            }
            mailbox.set_count(Topic::ShardChannel, names.len());
            self.remove(client, Topic::ShardChannel, name);
            names.len()
        };
        Posting::new(0, wakes).post(client, self.bounds.pubsub(), |out| {
            out.push(3);
            out.bulk(b"sunsubscribe");
            out.bulk(name);
            out.integer(left as i64);
        });
    }

    /// Removes all subscriptions, tracking and notifications of a client that is gone, or is reset.
    pub fn forget(&self, client: &Arc<Shared>) {
        self.maintenance.stop(client);
        if client.mailbox().is_some() {
            for topic in Topic::ALL {
                self.unsubscribe_all(client, topic);
            }
            self.remove_monitor(client);
            self.stop_tracking(client);
        }
    }

    fn remove(&self, client: &Shared, topic: Topic, name: &[u8]) {
        self.events.note_subscription(topic, name, false);
        match topic {
            Topic::Channel => self.channels.remove(name, client.id),
            Topic::ShardChannel => self.shard_channels.remove(name, client.id),
            Topic::Pattern => self.patterns.remove(name, client.id),
        }
    }

    /// Sends a message to all subscribers of its channel, or shard channel; returns the number of subscriptions.
    pub fn publish(
        &self,
        is_sharded: bool,
        channel: &[u8],
        payload: &[u8],
        posting: &mut Posting<'_>,
    ) -> usize {
        if self.has_nobody(is_sharded) {
            return 0;
        }
        let message = EncodedMessage::new(is_sharded, channel, payload);
        self.post_to_all(&message, is_sharded, None, posting)
    }

    /// Whether there are no subscriptions that could match a message to a channel (or to a shard channel).
    fn has_nobody(&self, is_sharded: bool) -> bool {
        match is_sharded {
            true => self.shard_channels.is_empty(),
            false => self.channels.is_empty() && self.patterns.is_empty(),
        }
    }

    /// Queues a message for all its subscribers, except one client. Returns the number of subscriptions.
    fn post_to_all(
        &self,
        message: &EncodedMessage<'_>,
        is_sharded: bool,
        but: Option<u64>,
        posting: &mut Posting<'_>,
    ) -> usize {
        let bound = self.bounds.pubsub();
        let mut receivers = 0;
        let mut post_to = |clients: &[Arc<Shared>], write: &dyn Fn(&mut Out)| {
            for client in clients {
                if but != Some(client.id) {
                    receivers += 1;
                    posting.post(client, bound, write);
                }
            }
        };
        self.channels(is_sharded)
            .with(message.channel(), |clients| {
                post_to(clients, &|out| message.write(out));
            });
        if !is_sharded {
            self.patterns.with_each(|pattern, clients| {
                if glob::matches(pattern, message.channel(), Case::Sensitive) {
                    post_to(clients, &|out| message.write_matched(pattern, out));
                }
            });
        }
        receivers
    }

    /// Queues a run of messages for all subscribers to its channel.
    fn post_run(&self, run: &MessageBatch, posting: &mut Posting<'_>) {
        let is_sharded = run.is_sharded();
        if !is_sharded && !self.patterns.is_empty() {
            // A client that subscribed to the channel and to matching patterns gets each message once per
            // subscription, before the next message.
            for payload in run.payloads() {
                self.publish(is_sharded, run.channel(), payload, posting);
            }
            return;
        }
        let bound = self.bounds.pubsub();
        self.channels(is_sharded).with(run.channel(), |clients| {
            for client in clients {
                posting.post_several(client, bound, run.len(), |out| run.write(out));
            }
        });
    }

    /// Returns the names of the channels, or shard channels, that match a pattern.
    pub fn names(&self, topic: Topic, pattern: Option<&[u8]>) -> Vec<Arc<[u8]>> {
        let is_wanted = |name: &[u8]| {
            pattern.is_none_or(|pattern| glob::matches(pattern, name, Case::Sensitive))
        };
        self.channels(topic == Topic::ShardChannel).names(is_wanted)
    }

    /// Returns the number of clients subscribed to a channel, or shard channel.
    pub fn subscribers(&self, topic: Topic, name: &[u8]) -> usize {
        self.channels(topic == Topic::ShardChannel)
            .with(name, |_| {})
    }

    fn channels(&self, is_sharded: bool) -> &ChannelTable {
        match is_sharded {
            true => &self.shard_channels,
            false => &self.channels,
        }
    }

    /// Returns the current figures.
    pub fn figures(&self) -> Figures {
        Figures {
            channels: self.channels.len(),
            patterns: self.patterns.len(),
            shard_channels: self.shard_channels.len(),
            tracking_clients: self.caches.client_count(),
            tracking_prefixes: self.caches.prefix_count(),
            tracked_keys: self.caches.tracked.keys(),
            tracked_items: self.caches.tracked.items(),
            tracked_bytes: self.caches.tracked.bytes(),
            maintenance: self.maintenance.figures(),
        }
    }

    /// Returns the limits of a client's queue of pushes.
    pub fn bound_of(&self, client: &Shared) -> OutputBound {
        match client.subscriptions() {
            0 => self.bounds.normal(),
            _ => self.bounds.pubsub(),
        }
    }
}

/// Returns the number for a confirmation: channels and patterns are counted together, shard channels separately.
fn counted(client: &Shared, topic: Topic) -> usize {
    client.mailbox().map_or(0, |mailbox| match topic {
        Topic::ShardChannel => mailbox.count(topic),
        Topic::Channel | Topic::Pattern => {
            mailbox.count(Topic::Channel) + mailbox.count(Topic::Pattern)
        }
    })
}

/// `client-output-buffer-limit` for clients that other threads write to, readable by all threads.
#[derive(Default)]
struct SharedOutputLimits {
    normal: AtomicOutputLimit,
    pubsub: AtomicOutputLimit,
}

#[derive(Default)]
struct AtomicOutputLimit([AtomicU64; 3]);

impl AtomicOutputLimit {
    fn set(&self, limit: OutputLimit) {
        self.0[0].store(limit.hard_bytes, Relaxed);
        self.0[1].store(limit.soft_bytes, Relaxed);
        self.0[2].store(limit.soft_seconds.saturating_mul(1_000), Relaxed);
    }

    fn get(&self) -> OutputBound {
        let [hard_bytes, soft_bytes, soft_ms] = &self.0;
        OutputBound {
            hard_bytes: hard_bytes.load(Relaxed),
            soft_bytes: soft_bytes.load(Relaxed),
            soft_ms: soft_ms.load(Relaxed),
        }
    }
}

impl SharedOutputLimits {
    /// Sets the limits. Ordinary clients get pushes too (MONITOR, invalidations); if they have no limit, as by
    /// default, the limit of subscribers applies, because data that other threads write for a client must be limited.
    fn set(&self, config: &Config) {
        let limits = config.client_output_buffer_limit;
        let normal = match limits.normal.hard_bytes {
            0 => limits.pubsub,
            _ => limits.normal,
        };
        self.normal.set(normal);
        self.pubsub.set(limits.pubsub);
    }

    fn normal(&self) -> OutputBound {
        self.normal.get()
    }

    fn pubsub(&self) -> OutputBound {
        self.pubsub.get()
    }
}

#[cfg(test)]
mod tests;
