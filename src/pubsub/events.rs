//! Keyspace notifications: what happened to keys, as messages.
//!
//! Shards number what they hand out ([`Batch::turns`]), and whoever lets a shard go brings it here, so batches of one
//! shard may come in any order. They are published in the shard's order: a batch whose turn has not come is put aside,
//! for whoever publishes the one before it. A command over several shards is one batch, which waits for its turn in all
//! of them. What a transaction or a script publishes between its changes takes its place among them.

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{
    AtomicU16, AtomicUsize,
    Ordering::{Acquire, Relaxed, Release},
};
use std::task::Waker;

use parking_lot::{Condvar, Mutex};

use super::PubSub;
use crate::client::mailbox::Topic;
use crate::config::values::EventClasses;
use crate::engine::effect::{Batch, Effect, Follower, Interest, IsOut};
use crate::engine::tracking::Lapses;

/// So many events may be put aside; whoever brings more waits until there are fewer.
const ASIDE_MAX: usize = 100_000;

/// Every class of events, by letter.
const CLASSES: &[u8] = b"g$lshzxetdnm";

/// The bit of a class in the configuration.
fn configured(class: u8) -> u16 {
    EventClasses::of(char::from(class)).map_or(0, |classes| classes.0)
}

/// Which events are published, and those whose turn has not come.
#[derive(Default)]
pub(super) struct Events {
    classes: AtomicU16,
    /// Subscriptions that an event could reach: patterns, and channels named as those of events are.
    listeners: Mutex<usize>,
    pub(super) interest: Arc<Interest>,
    turns: Mutex<Turns>,
    /// A batch has been published for which somebody may wait.
    published: Condvar,
    /// Events put aside.
    aside: AtomicUsize,
}

#[derive(Default)]
struct Turns {
    /// The number of the batch that is published next, by shard.
    next: HashMap<u16, u64>,
    /// Batches whose turn has not come.
    aside: HashMap<u64, Batch>,
    /// The same by each of their turns.
    by_turn: HashMap<(u16, u64), u64>,
    /// How many were put aside so far.
    count: u64,
}

impl Turns {
    fn is_due(&self, batch: &Batch) -> bool {
        let is_next =
            |(shard, number): &(u16, u64)| self.next.get(shard).copied().unwrap_or(0) == *number;
        batch.turns.iter().all(is_next)
    }

    fn put_aside(&mut self, batch: Batch) {
        self.count += 1;
        for turn in &batch.turns {
            self.by_turn.insert(*turn, self.count);
        }
        self.aside.insert(self.count, batch);
    }

    /// A batch was published: those that waited for it alone are due.
    fn pass(&mut self, passed: &Batch, due: &mut Vec<Batch>) {
        for (shard, number) in &passed.turns {
            self.next.insert(*shard, number + 1);
        }
        for (shard, number) in &passed.turns {
            let Some(&id) = self.by_turn.get(&(*shard, number + 1)) else {
                continue;
            };
            let is_due = self.aside.get(&id).is_some_and(|batch| self.is_due(batch));
            if is_due && let Some(batch) = self.aside.remove(&id) {
                for turn in &batch.turns {
                    self.by_turn.remove(turn);
                }
                due.push(batch);
            }
        }
    }
}

impl Events {
    /// Takes over `notify-keyspace-events`.
    pub(super) fn set_classes(&self, classes: EventClasses) {
        let listeners = self.listeners.lock();
        self.classes.store(classes.0, Relaxed);
        self.publish_interest(*listeners);
    }

    /// A subscription came or went.
    pub(super) fn note_subscription(&self, topic: Topic, name: &[u8], is_new: bool) {
        let hears =
            topic == Topic::Pattern || topic == Topic::Channel && name.starts_with(b"__key");
        if hears {
            let mut listeners = self.listeners.lock();
            *listeners = match is_new {
                true => *listeners + 1,
                false => listeners.saturating_sub(1),
            };
            self.publish_interest(*listeners);
        }
    }

    /// Sleeps until something is so that whoever publishes brings about before it takes the lock of the turns.
    #[cold]
    fn wait_until(&self, is_so: impl Fn() -> bool) {
        let mut turns = self.turns.lock();
        while !is_so() {
            self.published.wait(&mut turns);
        }
    }

    /// Shards record events only while they may reach somebody.
    fn publish_interest(&self, listeners: usize) {
        let classes = self.classes.load(Relaxed);
        let goes_out = classes & (configured(b'K') | configured(b'E')) != 0;
        let wanted = CLASSES
            .iter()
            .filter(|class| listeners > 0 && goes_out && classes & configured(**class) != 0);
        self.interest
            .set(wanted.fold(0, |bits, class| bits | Interest::bit(*class)));
    }
}

impl Follower for PubSub {
    fn follow(&self, mut batch: Batch) {
        let mut wakes = Vec::new();
        if batch.turns.is_empty() {
            self.publish_batch(&batch, &mut wakes);
            return wake_all(wakes);
        }
        let events = &self.events;
        if !batch.lapses.is_empty() && !events.turns.lock().is_due(&batch) {
            // Whoever caches does not wait for the turns of others, nor do messages go before.
            self.tell_lapses(&std::mem::take(&mut batch.lapses), &mut wakes);
        }
        let mut due = Vec::new();
        {
            let mut turns = events.turns.lock();
            if turns.is_due(&batch) {
                due.push(batch);
            } else {
                events.aside.fetch_add(batch.effects.len(), Relaxed);
                turns.put_aside(batch);
            }
        }
        if due.is_empty() {
            wake_all(wakes);
            // Whoever publishes will get to it. If that takes long, commands must not run ahead of it without end.
            if events.aside.load(Relaxed) > ASIDE_MAX {
                events.wait_until(|| events.aside.load(Relaxed) <= ASIDE_MAX);
            }
            return;
        }
        let mut is_first = true;
        while let Some(batch) = due.pop() {
            self.publish_batch(&batch, &mut wakes);
            if !std::mem::take(&mut is_first) {
                events.aside.fetch_sub(batch.effects.len(), Relaxed);
            }
            events.turns.lock().pass(&batch, &mut due);
            events.published.notify_all();
        }
        wake_all(wakes);
    }
}

fn wake_all(wakes: Vec<Waker>) {
    wakes.into_iter().for_each(Waker::wake);
}

impl PubSub {
    /// Returns when the messages of a batch are out, for those who brought it here and hold no shard: whoever has the turn
    /// before has let its shards go, and tells of what it did now, so that this is over as soon as it has run.
    pub fn await_turn(&self, is_out: &IsOut) {
        if !is_out.load(Acquire) {
            self.events.wait_until(|| is_out.load(Acquire));
        }
    }

    /// Publishes what happened and what is void by it, with the messages between.
    fn publish_batch(&self, batch: &Batch, wakes: &mut Vec<Waker>) {
        let Lapses { keys, written, all } = &batch.lapses;
        self.tell_wide(written, *all, wakes);
        let (mut keys, mut effects) = (keys.as_slice(), batch.effects.as_slice());
        for said in &batch.spoken {
            let count = keys.partition_point(|lapsed| lapsed.stamp <= said.stamp);
            self.tell_lapsed(keys.split_off(..count).unwrap_or_default(), wakes);
            let count = effects.partition_point(|effect| effect.stamp <= said.stamp);
            self.publish_events(effects.split_off(..count).unwrap_or_default(), wakes);
            if let Some(message) = said.message.downcast_ref() {
                self.send_held(message, wakes);
            }
        }
        self.tell_lapsed(keys, wakes);
        self.publish_events(effects, wakes);
        if let Some(is_out) = &batch.is_out {
            is_out.store(true, Release);
        }
    }

    fn publish_events(&self, effects: &[Effect], wakes: &mut Vec<Waker>) {
        for effect in effects {
            self.publish_event(effect, wakes);
        }
    }

    fn publish_event(&self, effect: &Effect, wakes: &mut Vec<Waker>) {
        let classes = self.events.classes.load(Relaxed);
        if classes & configured(effect.event.class) == 0 {
            return;
        }
        let name = effect.event.name.as_bytes();
        let mut channel = Vec::with_capacity(effect.key.len() + name.len() + 32);
        for (kind, word, about, payload) in [
            (b'K', "keyspace", &*effect.key, name),
            (b'E', "keyevent", name, &*effect.key),
        ] {
            if classes & configured(kind) != 0 {
                channel.clear();
                channel.extend_from_slice(format!("__{word}@{}__:", effect.db).as_bytes());
                channel.extend_from_slice(about);
                self.publish(&channel, payload, wakes);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::base::random::Random;
    use crate::client::registry::Shared;
    use crate::engine::effect::Event;

    fn batch(turns: &[(u16, u64)], key: String) -> Batch {
        Batch {
            turns: turns.to_vec(),
            effects: vec![Effect {
                stamp: 1,
                db: 0,
                key: key.into_bytes().into(),
                event: Event::DEL,
            }],
            ..Batch::default()
        }
    }

    fn listening(classes: &str, pattern: &str) -> (PubSub, Arc<Shared>) {
        let pubsub = PubSub::default();
        let classes = EventClasses::parse(classes).expect("letters");
        pubsub.events.set_classes(classes);
        let address = "127.0.0.1:1".to_owned();
        let client = Arc::new(Shared::new(1, address.clone(), address, 8, false, 0));
        pubsub.subscribe(&client, Topic::Pattern, pattern.as_bytes());
        (pubsub, client)
    }

    fn heard(client: &Shared) -> Vec<String> {
        let mail = client.take_mail();
        let bytes = mail.as_ref().and_then(|mail| mail.as_slice());
        let text = String::from_utf8_lossy(bytes.unwrap_or(b"")).into_owned();
        let lines: Vec<&str> = text.lines().collect();
        // *4 $8 pmessage $n pattern $n channel $n payload
        let pushes = lines.chunks(9);
        pushes
            .map(|push| format!("{} {}", push[6], push[8]))
            .collect()
    }

    #[test]
    fn an_event_is_published_by_key_and_by_name_as_configured() {
        for (classes, expected) in [
            ("AKE", vec!["__keyspace@0__:k del", "__keyevent@0__:del k"]),
            ("gK", vec!["__keyspace@0__:k del"]),
            ("gE", vec!["__keyevent@0__:del k"]),
            ("sKE", vec![]),
            ("A", vec![]),
        ] {
            let (pubsub, client) = listening(classes, "*");
            pubsub.follow(batch(&[(0, 0)], "k".into()));
            assert_eq!(heard(&client), expected, "{classes}");
        }
    }

    #[test]
    fn shards_record_only_what_somebody_may_hear() {
        let (pubsub, client) = listening("gxE", "*");
        let interest = Arc::clone(&pubsub.events.interest);
        assert!(interest.wants(b'g') && interest.wants(b'x') && !interest.wants(b'$'));
        pubsub.subscribe(&client, Topic::Channel, b"news");
        pubsub.unsubscribe(&client, Topic::Pattern, b"*");
        assert!(!interest.wants(b'g'), "nobody listens");
        pubsub.subscribe(&client, Topic::Channel, b"__keyevent@0__:del");
        assert!(interest.wants(b'g'));
        pubsub
            .events
            .set_classes(EventClasses::parse("$").expect("letters"));
        assert!(!interest.wants(b'$'), "neither by key nor by name");
        pubsub
            .events
            .set_classes(EventClasses::parse("$nmdK").expect("letters"));
        assert!(
            [b'$', b'n', b'm', b'd']
                .iter()
                .all(|class| interest.wants(*class))
        );
        assert!(!interest.wants(b'g'));
        pubsub.forget(&client);
        assert!(!interest.wants(b'$'));
    }

    #[test]
    fn events_are_published_in_the_order_of_their_shards() {
        let mut random = Random::new(7);
        for _ in 0..200 {
            let (pubsub, client) = listening("AE", "*");
            let mut next = [0; 3];
            let mut batches = Vec::new();
            let mut expected: Vec<Vec<String>> = vec![Vec::new(); 3];
            for number in 0..40 {
                let first = random.next_u64() as usize % 3;
                let is_wide = random.next_u64().is_multiple_of(4);
                let shards = if is_wide {
                    vec![first, (first + 1) % 3]
                } else {
                    vec![first]
                };
                let mut turns = Vec::new();
                for shard in shards {
                    turns.push((shard as u16, next[shard]));
                    next[shard] += 1;
                    expected[shard].push(format!("__keyevent@0__:del {number}"));
                }
                batches.push(batch(&turns, number.to_string()));
            }
            while !batches.is_empty() {
                let at = random.next_u64() as usize % batches.len().min(8);
                pubsub.follow(batches.remove(at));
            }
            let heard = heard(&client);
            assert_eq!(heard.len(), 40);
            for expected in expected {
                let places: Vec<_> = expected
                    .iter()
                    .map(|event| heard.iter().position(|heard| heard == event))
                    .collect();
                assert!(places.is_sorted() && places.iter().all(Option::is_some));
            }
            assert!(pubsub.events.turns.lock().by_turn.is_empty());
        }
    }

    #[test]
    fn who_awaits_a_turn_goes_on_when_the_one_before_is_out() {
        use std::sync::atomic::AtomicBool;
        for _ in 0..200 {
            let (pubsub, client) = listening("AE", "*");
            let is_out: IsOut = Arc::default();
            let mut second = batch(&[(0, 1)], "second".into());
            second.is_out = Some(Arc::clone(&is_out));
            let is_there = AtomicBool::new(false);
            std::thread::scope(|scope| {
                scope.spawn(|| {
                    pubsub.follow(second);
                    is_there.store(true, Release);
                    pubsub.await_turn(&is_out);
                    assert_eq!(heard(&client).len(), 2);
                });
                while !is_there.load(Acquire) {
                    std::thread::yield_now();
                }
                pubsub.follow(batch(&[(0, 0)], "first".into()));
            });
        }
    }
}
