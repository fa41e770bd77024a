//! Tests of `events`.

use super::*;
use crate::client::shared::Shared;
use basalt_engine::effect::Event;

fn news(key: &str) -> Box<News> {
    Box::new(News {
        effects: smallvec::smallvec![Effect {
            stamp: 1,
            db: 0,
            key: key.as_bytes().into(),
            event: Event::DEL,
            elements: Vec::new(),
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
fn events_of_one_channel_reach_each_protocol_whole_and_in_order() {
    let (pubsub, two) = listening("gE", "nothing");
    pubsub.unsubscribe_all(&two, Topic::Pattern);
    let address = "127.0.0.1:2".to_owned();
    let three = Arc::new(Shared::new(2, address.clone(), address, 8, false, 0));
    three.resp.store(3, Relaxed);
    for client in [&two, &three] {
        pubsub.subscribe(client, Topic::Channel, b"__keyevent@0__:del");
    }
    let together = pubsub.together();
    let keys = ["a", "", "ccc", "d"];
    for key in keys {
        pubsub.append(news(key));
        pubsub.deliver();
    }
    let mut elsewhere = news("elsewhere");
    elsewhere.effects[0].db = 1;
    let last = pubsub.append(elsewhere);
    pubsub.append(news("e"));
    assert!(!two.has_mail(), "delivered at the end");
    drop(together);
    assert!(pubsub.has_delivered(last));
    for (client, first) in [(&two, '*'), (&three, '>')] {
        assert_eq!(client.mailbox().expect("it is told").pushes(), 5);
        let mail = client.take_mail().expect("five messages");
        let expected = keys.iter().chain([&"e"]).map(|key| {
            let (channel, bytes) = ("__keyevent@0__:del", key.len());
            format!("{first}3\r\n$7\r\nmessage\r\n$18\r\n{channel}\r\n${bytes}\r\n{key}\r\n")
        });
        let expected: String = expected.collect();
        assert_eq!(mail.as_slice(), Some(expected.as_bytes()));
    }
}

#[test]
fn who_hears_by_channel_and_by_pattern_gets_each_event_by_both_before_the_next() {
    let (pubsub, client) = listening("gE", "__key*");
    pubsub.subscribe(&client, Topic::Channel, b"__keyevent@0__:del");
    pubsub.append(news("a"));
    pubsub.append(news("b"));
    pubsub.deliver();
    let mail = client.take_mail().expect("four messages");
    let text = String::from_utf8_lossy(mail.as_slice().expect("no block")).into_owned();
    let kinds: Vec<_> = text
        .lines()
        .filter(|line| line.ends_with("message"))
        .collect();
    assert_eq!(kinds, ["message", "pmessage", "message", "pmessage"]);
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
                        // Simulates a thread that has a shard locked.
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
