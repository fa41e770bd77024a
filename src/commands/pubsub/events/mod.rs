//! Events from shards for other connections: keyspace notifications, invalidations, and messages of transactions and
//! scripts, in a single order.
//!
//! A thread that changes shards appends its events to one sequence, while the shards are locked
//! ([`Follower::append`]), and delivers them once they are released, or, if shards are locked several times during a
//! batch of requests, at the end of the batch ([`PubSub::together`]). Delivering is a role that one thread has at a
//! time, for a limited number of records ([`Sequence::consume`]); no thread waits for another one to deliver. What
//! exceeds the limit is delivered by a separate task ([`PubSub::poll_rest`]). A connection's replies are sent when
//! all events that they reflect are delivered ([`PubSub::poll_delivered`]), as on a server with one thread.

use std::cell::Cell;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering::Relaxed};
use std::task::{Context, Poll, Waker};

use atomic_waker::AtomicWaker;
use parking_lot::Mutex;

use super::message::MessageBatch;
use super::sequence::{Consumer, Left, Sequence};
use super::{Posting, PubSub};
use crate::client::shared::mailbox::Topic;
use crate::config::values::EventClasses;
use basalt_engine::effect::{Effect, Follower, Interest, News};
use basalt_engine::tracking::{InvalidatedKey, Invalidations};

/// Every class of events, by its letter in `notify-keyspace-events`.
const CLASSES: &[u8] = b"g$lshzxetdnmoc";

/// The letters in `notify-keyspace-events` of the channels for changed elements of keys.
const OF_ELEMENTS: &[u8] = b"STIV";

/// Returns the bit that a class has in the configuration.
fn configured(class: u8) -> u32 {
    EventClasses::of(char::from(class)).map_or(0, |classes| classes.0)
}

/// The published classes of events, and the events being delivered.
#[derive(Default)]
pub(super) struct Events {
    classes: AtomicU32,
    /// Number of subscriptions that an event could match: patterns, and channels with names like those of events.
    listeners: Mutex<usize>,
    pub(super) interest: Arc<Interest>,
    sequence: Sequence<News>,
    /// Wakes the task that continues delivering after a thread has reached its limit.
    rest: AtomicWaker,
}

impl Events {
    /// Applies `notify-keyspace-events`.
    pub(super) fn set_classes(&self, classes: EventClasses) {
        let listeners = self.listeners.lock();
        self.classes.store(classes.0, Relaxed);
        self.publish_interest(*listeners);
    }

    /// Records that a subscription was added or removed.
    pub(super) fn note_subscription(&self, topic: Topic, name: &[u8], is_new: bool) {
        let is_of_event = |name: &[u8]| name.starts_with(b"__key") || name.starts_with(b"__subkey");
        let hears = topic == Topic::Pattern || topic == Topic::Channel && is_of_event(name);
        if hears {
            let mut listeners = self.listeners.lock();
            *listeners = match is_new {
                true => *listeners + 1,
                false => listeners.saturating_sub(1),
            };
            self.publish_interest(*listeners);
        }
    }

    /// Makes shards record events only while they may reach a subscriber.
    fn publish_interest(&self, listeners: usize) {
        let classes = self.classes.load(Relaxed);
        let goes_out = classes & (configured(b'K') | configured(b'E')) != 0;
        let wanted = CLASSES
            .iter()
            .filter(|class| listeners > 0 && goes_out && classes & configured(**class) != 0);
        self.interest
            .set(wanted.fold(0, |bits, class| bits | Interest::bit(*class)));
        // Elements (changed fields) are recorded for hashes only.
        let of_elements = OF_ELEMENTS.iter();
        let of_elements = of_elements.fold(0, |bits, letter| bits | configured(*letter));
        let is_wanted = classes & configured(b'h') != 0 && classes & of_elements != 0;
        self.interest.set_elements(listeners > 0 && is_wanted);
    }
}

thread_local! {
    /// When this thread delivers the events that it appends while shards are locked.
    static DELIVERY: Cell<Delivery> = const { Cell::new(Delivery::AtOnce) };
}

/// When a thread delivers the events that it has appended.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Delivery {
    /// Each time shards are released.
    AtOnce,
    /// At the end of a batch, in which nothing has been appended so far.
    Together,
    /// At the end of a batch, in which something has been appended already.
    Owed,
}

/// A batch of a thread: when it is dropped, everything is delivered that was appended while shards were locked.
pub struct DeliveryBatch<'p>(&'p PubSub);

impl Drop for DeliveryBatch<'_> {
    fn drop(&mut self) {
        if DELIVERY.replace(Delivery::AtOnce) == Delivery::Owed {
            self.0.deliver();
        }
    }
}

impl Follower for PubSub {
    fn append(&self, news: Box<News>) -> u64 {
        self.events.sequence.append(news, || {
            self.consume();
        })
    }

    fn deliver(&self) {
        match DELIVERY.get() {
            Delivery::AtOnce => self.deliver_now(),
            Delivery::Together | Delivery::Owed => DELIVERY.set(Delivery::Owed),
        }
    }
}

impl PubSub {
    /// Begins a batch of this thread: everything that it appends while shards are locked is delivered at the end of
    /// the batch.
    pub fn together(&self) -> DeliveryBatch<'_> {
        DELIVERY.set(Delivery::Together);
        DeliveryBatch(self)
    }

    /// Delivers pending events, up to a limit, and leaves the rest to the task. The caller must have no shard locked.
    pub fn deliver_now(&self) {
        if self.consume() == Left::Some {
            self.events.rest.wake();
        }
    }

    /// Delivers pending events, up to a limit.
    fn consume(&self) -> Left {
        let mut wakes = Vec::new();
        let publisher = Publisher {
            pubsub: self,
            posting: Posting::new(0, &mut wakes),
            run: MessageBatch::default(),
            run_of: None,
        };
        let left = self.events.sequence.consume(publisher);
        wakes.into_iter().for_each(Waker::wake);
        left
    }

    /// Whether everything before a position is delivered.
    #[inline]
    pub fn has_delivered(&self, position: u64) -> bool {
        self.events.sequence.has_passed(position)
    }

    /// Becomes ready when everything before a position is delivered. The caller must have no shard locked.
    pub fn poll_delivered(&self, position: u64, cx: &mut Context<'_>) -> Poll<()> {
        self.deliver_now();
        self.events.sequence.poll_passed(position, cx)
    }

    /// Delivers a part of what other threads have left at their limits, and becomes ready when that is done; only for
    /// the task that does this.
    pub fn poll_rest(&self, cx: &mut Context<'_>) -> Poll<()> {
        self.events.rest.register(cx.waker());
        match self.consume() {
            Left::Some => Poll::Ready(()),
            Left::Nothing => Poll::Pending,
        }
    }

    /// Whether so many events are pending that commands should wait before they add more.
    #[inline]
    pub fn is_crowded(&self) -> bool {
        self.events.sequence.is_crowded()
    }
}

/// Publishes records one after the other. Consecutive events for one channel are combined into a run.
struct Publisher<'p> {
    pubsub: &'p PubSub,
    posting: Posting<'p>,
    run: MessageBatch,
    /// The database and name of the run's events.
    run_of: Option<(usize, &'static str)>,
}

impl Consumer<News> for Publisher<'_> {
    fn take(&mut self, news: Box<News>) {
        self.posting.log_seen = self.posting.log_seen.max(news.log_seen);
        let Invalidations { keys, written, all } = &news.invalidations;
        if !news.invalidations.is_empty() {
            self.complete();
            self.pubsub.tell_wide(written, *all, &mut self.posting);
        }
        let (mut keys, mut effects) = (keys.as_slice(), news.effects.as_slice());
        for said in &news.publications {
            let count = keys.partition_point(|invalidated| invalidated.stamp <= said.stamp);
            self.send_invalidations(keys.split_off(..count).unwrap_or_default());
            let count = effects.partition_point(|effect| effect.stamp <= said.stamp);
            self.publish_events(effects.split_off(..count).unwrap_or_default());
            if let Some(message) = said.message.downcast_ref() {
                self.complete();
                self.pubsub.send_pending(message, &mut self.posting);
            }
        }
        self.send_invalidations(keys);
        self.publish_events(effects);
    }

    fn complete(&mut self) {
        if self.run.len() > 0 {
            self.pubsub.post_run(&self.run, &mut self.posting);
            self.run.clear();
        }
    }
}

impl Publisher<'_> {
    fn send_invalidations(&mut self, invalidated: &[InvalidatedKey]) {
        if !invalidated.is_empty() {
            self.complete();
            self.pubsub
                .send_invalidations(invalidated, &mut self.posting);
        }
    }

    fn publish_events(&mut self, effects: &[Effect]) {
        let classes = self.pubsub.events.classes.load(Relaxed);
        for effect in effects {
            if classes & configured(effect.event.class) == 0 {
                continue;
            }
            if !effect.elements.is_empty() {
                self.complete();
                self.publish_elements(effect, classes);
                continue;
            }
            if classes & configured(b'K') != 0 {
                self.publish_by_key(effect);
            }
            if classes & configured(b'E') != 0 {
                self.publish_by_name(effect);
            }
        }
    }

    /// Publishes the changed elements, to each of the requested kinds of channels. Channels whose names would be
    /// ambiguous are left out, as Redis documents.
    fn publish_elements(&mut self, effect: &Effect, classes: u32) {
        let mut db = itoa::Buffer::new();
        let db = db.format(effect.db).as_bytes();
        let (key, event) = (&*effect.key, effect.event.name.as_bytes());
        let wants = |letter: u8| classes & configured(letter) != 0;
        let mut listed = Vec::new();
        for element in &effect.elements {
            let separator: &[u8] = if listed.is_empty() { b"" } else { b"," };
            listed.extend_from_slice(separator);
            push_with_length(element, &mut listed);
        }
        let mut publish = |channel: &[&[u8]], payload: &[u8]| {
            self.pubsub
                .publish(false, &channel.concat(), payload, &mut self.posting);
        };
        if wants(b'S') {
            let payload = [event, b"|", &listed].concat();
            publish(&[b"__subkeyspace@", db, b"__:", key], &payload);
        }
        if wants(b'T') {
            let mut payload = Vec::new();
            push_with_length(key, &mut payload);
            payload.push(b'|');
            payload.extend_from_slice(&listed);
            publish(&[b"__subkeyevent@", db, b"__:", event], &payload);
        }
        if wants(b'I') && !key.contains(&b'\n') {
            for element in &effect.elements {
                let channel = [&b"__subkeyspaceitem@"[..], db, b"__:", key, b"\n", element];
                publish(&channel, event);
            }
        }
        if wants(b'V') {
            let channel = [&b"__subkeyspaceevent@"[..], db, b"__:", event, b"|", key];
            publish(&channel, &listed);
        }
    }

    fn publish_by_key(&mut self, effect: &Effect) {
        self.complete();
        let mut db = itoa::Buffer::new();
        let db = db.format(effect.db).as_bytes();
        let channel = [b"__keyspace@", db, b"__:", &effect.key].concat();
        let payload = effect.event.name.as_bytes();
        self.pubsub
            .publish(false, &channel, payload, &mut self.posting);
    }

    fn publish_by_name(&mut self, effect: &Effect) {
        if self.pubsub.has_nobody(false) {
            return;
        }
        let name = effect.event.name;
        if self.run_of != Some((effect.db, name)) {
            self.complete();
            let mut db = itoa::Buffer::new();
            let db = db.format(effect.db).as_bytes();
            self.run
                .begin(false, &[b"__keyevent@", db, b"__:", name.as_bytes()]);
            self.run_of = Some((effect.db, name));
        }
        if !self.run.has_room(&effect.key) {
            self.complete();
        }
        match self.run.has_room(&effect.key) {
            true => self.run.push(&effect.key),
            false => {
                let channel = self.run.channel();
                self.pubsub
                    .publish(false, channel, &effect.key, &mut self.posting);
            }
        }
    }
}

/// Appends bytes preceded by their length and a colon.
fn push_with_length(bytes: &[u8], to: &mut Vec<u8>) {
    let mut length = itoa::Buffer::new();
    to.extend_from_slice(length.format(bytes.len()).as_bytes());
    to.push(b':');
    to.extend_from_slice(bytes);
}

#[cfg(test)]
mod tests;
