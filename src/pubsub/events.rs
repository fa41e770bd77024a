//! What shards tell others: keyspace notifications, invalidations, and messages of transactions and scripts, in one
//! order.
//!
//! Whoever changes shards appends what others want to hear of it to one sequence, while the shards are in hand
//! ([`Follower::append`]), and delivers it once they are let go. Delivering is a role that one thread has at a time,
//! for a bounded number of records ([`Sequence::consume`]); no thread waits for another one's turn. What is left at the
//! bound is for a task of its own ([`PubSub::poll_rest`]). A connection's replies leave when all is delivered that they
//! know of ([`PubSub::poll_delivered`]), as on a server with one thread.

use std::sync::Arc;
use std::sync::atomic::{AtomicU16, Ordering::Relaxed};
use std::task::{Context, Poll, Waker};

use atomic_waker::AtomicWaker;
use parking_lot::Mutex;

use super::sequence::{Left, Sequence};
use super::{Posting, PubSub};
use crate::client::mailbox::Topic;
use crate::config::values::EventClasses;
use crate::engine::effect::{Effect, Follower, Interest, News};
use crate::engine::tracking::Lapses;

/// Every class of events, by letter.
const CLASSES: &[u8] = b"g$lshzxetdnm";

/// The bit of a class in the configuration.
fn configured(class: u8) -> u16 {
    EventClasses::of(char::from(class)).map_or(0, |classes| classes.0)
}

/// Which events are published, and those that are on their way.
#[derive(Default)]
pub(super) struct Events {
    classes: AtomicU16,
    /// Subscriptions that an event could reach: patterns, and channels named as those of events are.
    listeners: Mutex<usize>,
    pub(super) interest: Arc<Interest>,
    sequence: Sequence<News>,
    /// Wakes the task that goes on where a thread has reached its bound.
    rest: AtomicWaker,
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
    fn append(&self, news: Box<News>) -> u64 {
        self.events.sequence.append(news, || {
            self.consume();
        })
    }

    fn deliver(&self) {
        if self.consume() == Left::Some {
            self.events.rest.wake();
        }
    }
}

impl PubSub {
    /// Delivers what is due, up to a bound.
    fn consume(&self) -> Left {
        let mut wakes = Vec::new();
        let left = self
            .events
            .sequence
            .consume(|news| self.publish_news(&news, &mut wakes));
        wakes.into_iter().for_each(Waker::wake);
        left
    }

    /// Whether all before a position is delivered.
    #[inline]
    pub fn has_delivered(&self, position: u64) -> bool {
        self.events.sequence.has_passed(position)
    }

    /// Ready when all before a position is delivered. For those who hold no shard.
    pub fn poll_delivered(&self, position: u64, cx: &mut Context<'_>) -> Poll<()> {
        self.deliver();
        self.events.sequence.poll_passed(position, cx)
    }

    /// For the task that delivers what others have left at their bounds: ready when it has done a part of that.
    pub fn poll_rest(&self, cx: &mut Context<'_>) -> Poll<()> {
        self.events.rest.register(cx.waker());
        match self.consume() {
            Left::Some => Poll::Ready(()),
            Left::Nothing => Poll::Pending,
        }
    }

    /// Whether so much is on its way that commands should wait before they add to it.
    #[inline]
    pub fn is_crowded(&self) -> bool {
        self.events.sequence.is_crowded()
    }

    /// Publishes what happened and what is void by it, with the messages between.
    fn publish_news(&self, news: &News, wakes: &mut Vec<Waker>) {
        let posting = &mut Posting::new(news.log_seen, wakes);
        let Lapses { keys, written, all } = &news.lapses;
        self.tell_wide(written, *all, posting);
        let (mut keys, mut effects) = (keys.as_slice(), news.effects.as_slice());
        for said in &news.spoken {
            let count = keys.partition_point(|lapsed| lapsed.stamp <= said.stamp);
            self.tell_lapsed(keys.split_off(..count).unwrap_or_default(), posting);
            let count = effects.partition_point(|effect| effect.stamp <= said.stamp);
            self.publish_events(effects.split_off(..count).unwrap_or_default(), posting);
            if let Some(message) = said.message.downcast_ref() {
                self.send_pending(message, posting);
            }
        }
        self.tell_lapsed(keys, posting);
        self.publish_events(effects, posting);
    }

    fn publish_events(&self, effects: &[Effect], posting: &mut Posting<'_>) {
        for effect in effects {
            self.publish_event(effect, posting);
        }
    }

    fn publish_event(&self, effect: &Effect, posting: &mut Posting<'_>) {
        let classes = self.events.classes.load(Relaxed);
        if classes & configured(effect.event.class) == 0 {
            return;
        }
        let name = effect.event.name.as_bytes();
        let mut channel = Vec::with_capacity(effect.key.len() + name.len() + 32);
        /// Class, first word of the channel, what it is about, payload.
        type Kind<'e> = (u8, &'e [u8], &'e [u8], &'e [u8]);
        let kinds: [Kind<'_>; 2] = [
            (b'K', b"keyspace", &effect.key, name),
            (b'E', b"keyevent", name, &effect.key),
        ];
        for (kind, word, about, payload) in kinds {
            if classes & configured(kind) != 0 {
                channel.clear();
                let mut db = itoa::Buffer::new();
                let db = db.format(effect.db).as_bytes();
                for part in [b"__", word, b"@", db, b"__:", about] {
                    channel.extend_from_slice(part);
                }
                self.publish(&channel, payload, posting);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::client::registry::Shared;
    use crate::engine::effect::Event;

    fn news(key: &str) -> Box<News> {
        Box::new(News {
            effects: vec![Effect {
                stamp: 1,
                db: 0,
                key: key.as_bytes().into(),
                event: Event::DEL,
            }],
            ..News::default()
        })
    }

    fn publish(pubsub: &PubSub, key: &str) {
        let position = pubsub.append(news(key));
        pubsub.deliver();
        assert!(pubsub.has_delivered(position));
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
            publish(&pubsub, "k");
            assert_eq!(heard(&client), expected, "{classes}");
        }
    }

    #[test]
    fn who_hears_of_a_change_knows_as_much_of_the_log() {
        let (pubsub, client) = listening("gE", "*");
        pubsub.append(Box::new(News {
            log_seen: 11,
            ..*news("k")
        }));
        pubsub.append(news("older"));
        pubsub.deliver();
        assert_eq!(heard(&client).len(), 2);
        assert_eq!(client.log_seen.load(Relaxed), 11);
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
    fn what_many_threads_append_is_heard_in_the_order_in_which_it_was_appended() {
        const THREADS: usize = 4;
        const EACH: usize = 50;
        let (pubsub, client) = listening("gE", "*");
        let appended = Mutex::new(Vec::new());
        std::thread::scope(|scope| {
            for thread in 0..THREADS {
                let (pubsub, appended) = (&pubsub, &appended);
                scope.spawn(move || {
                    for number in 0..EACH {
                        {
                            // As if a shard were in hand.
                            let mut appended = appended.lock();
                            let key = format!("{thread}:{number}");
                            pubsub.append(news(&key));
                            appended.push(format!("__keyevent@0__:del {key}"));
                        }
                        pubsub.deliver();
                    }
                });
            }
        });
        while pubsub.consume() == Left::Some {}
        assert!(heard(&client) == *appended.lock(), "another order");
    }

    #[test]
    fn who_reaches_the_bound_leaves_the_rest_to_the_task() {
        use std::sync::atomic::AtomicUsize;
        use std::task::Wake;
        #[derive(Default)]
        struct Woken(AtomicUsize);
        impl Wake for Woken {
            fn wake(self: Arc<Self>) {
                self.0.fetch_add(1, Relaxed);
            }
        }
        let (pubsub, client) = listening("gE", "*");
        let woken = Arc::new(Woken::default());
        let waker = Waker::from(Arc::clone(&woken));
        let mut cx = Context::from_waker(&waker);
        assert!(pubsub.poll_rest(&mut cx).is_pending());
        let last = (0..200).map(|number| pubsub.append(news(&number.to_string())));
        let last = last.last().expect("many");
        pubsub.deliver();
        assert!(!pubsub.has_delivered(last));
        assert_eq!(woken.0.load(Relaxed), 1);
        while pubsub.poll_rest(&mut cx).is_ready() {}
        assert!(pubsub.has_delivered(last));
        assert_eq!(heard(&client).len(), 200);
    }
}
