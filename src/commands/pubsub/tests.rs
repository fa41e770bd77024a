//! The registry of subscriptions, with clients that have no connection.

use super::outgoing::Outgoing;
use super::pending::PendingMessage;
use super::*;
use crate::client::connection::Connection;
use basalt_core::alloc::slabs::Mover;
use basalt_core::resp::reply::{Protocol, SHARED_LEN_MIN};
use std::sync::atomic::Ordering::Relaxed;

fn client(id: u64, protocol: u8) -> Arc<Shared> {
    let address = format!("127.0.0.1:{id}");
    let shared = Shared::new(id, address.clone(), address, 8, false, 0);
    shared.resp.store(protocol, Relaxed);
    Arc::new(shared)
}

fn mail(client: &Shared) -> String {
    let out = client.take_mail();
    let bytes = out.as_ref().and_then(|out| out.as_slice()).unwrap_or(b"");
    String::from_utf8_lossy(bytes).replace("\r\n", " ")
}

/// Publishes a message that reflects no position of the log.
fn publish(pubsub: &PubSub, channel: &[u8], payload: &[u8]) -> usize {
    pubsub.publish(
        false,
        channel,
        payload,
        &mut Posting::new(0, &mut Vec::new()),
    )
}

#[test]
fn a_message_reaches_channels_and_patterns_in_each_protocol() {
    let pubsub = PubSub::default();
    let (one, two) = (client(1, 2), client(2, 3));
    assert_eq!(publish(&pubsub, b"news", b"x"), 0);
    assert_eq!(pubsub.subscribe(&one, Topic::Channel, b"news"), 1);
    assert_eq!(pubsub.subscribe(&one, Topic::Channel, b"news"), 1);
    assert_eq!(pubsub.subscribe(&one, Topic::Pattern, b"n*"), 2);
    assert_eq!(pubsub.subscribe(&one, Topic::ShardChannel, b"news"), 1);
    assert_eq!(pubsub.subscribe(&two, Topic::Channel, b"news"), 1);
    assert_eq!(publish(&pubsub, b"news", b"x"), 3);
    assert_eq!(publish(&pubsub, b"other", b"x"), 0);
    assert_eq!(
        pubsub.publish(true, b"news", b"y", &mut Posting::new(0, &mut Vec::new())),
        1
    );
    assert_eq!(
        mail(&one),
        "*3 $7 message $4 news $1 x *4 $8 pmessage $2 n* $4 news $1 x *3 $8 smessage $4 news $1 y "
    );
    assert_eq!(mail(&two), ">3 $7 message $4 news $1 x ");
}

#[test]
fn a_held_message_goes_to_its_publisher_as_it_was_and_to_others_as_they_are() {
    let pubsub = PubSub::default();
    let (one, two, three) = (client(1, 3), client(2, 2), client(3, 2));
    for client in [&one, &two] {
        pubsub.subscribe(client, Topic::Channel, b"news");
    }
    pubsub.subscribe(&one, Topic::Pattern, b"n*");
    pubsub.subscribe(&one, Topic::Pattern, b"x*");
    let mut connection = Connection::new(Arc::clone(&one), true);
    connection.protocol = Protocol::Resp3;
    let held = PendingMessage::new(&connection, false, b"news", b"x");
    assert_eq!(pubsub.receivers_of(&held), 3);
    let nothing = PendingMessage::new(&connection, true, b"news", b"x");
    assert_eq!(pubsub.receivers_of(&nothing), 0);
    for (topic, name) in [(Topic::Channel, &b"news"[..]), (Topic::Pattern, b"n*")] {
        pubsub.unsubscribe(&one, topic, name);
    }
    one.resp.store(2, Relaxed);
    pubsub.subscribe(&one, Topic::ShardChannel, b"news");
    pubsub.unsubscribe(&two, Topic::Channel, b"news");
    pubsub.subscribe(&three, Topic::Pattern, b"news");
    assert_eq!(pubsub.receivers_of(&held), 3);
    one.see_log(7);
    let mut wakes = Vec::new();
    pubsub.send_pending(&held, &mut Posting::new(5, &mut wakes));
    pubsub.send_pending(&nothing, &mut Posting::new(9, &mut wakes));
    assert_eq!(
        mail(&one),
        ">3 $7 message $4 news $1 x >4 $8 pmessage $2 n* $4 news $1 x "
    );
    assert_eq!(mail(&two), "");
    assert_eq!(mail(&three), "*4 $8 pmessage $4 news $4 news $1 x ");
    let seen = [&one, &two, &three].map(|client| client.log_seen.load(Relaxed));
    assert_eq!(seen, [7, 0, 7], "as much of the log as the publisher knew");
    one.post(OutputBound::default(), |out| out.push(0));
    assert_eq!(mail(&one), "*0 ", "what it speaks now");
}

#[test]
fn what_nobody_is_subscribed_to_is_forgotten() {
    let pubsub = PubSub::default();
    let clients: Vec<_> = (1..=100).map(|id| client(id, 2)).collect();
    for client in clients.iter().rev() {
        for name in ["a", "b"] {
            pubsub.subscribe(client, Topic::Channel, name.as_bytes());
            pubsub.subscribe(client, Topic::ShardChannel, name.as_bytes());
        }
        pubsub.subscribe(client, Topic::Pattern, b"*");
    }
    assert_eq!(pubsub.subscribers(Topic::Channel, b"a"), 100);
    assert_eq!(pubsub.names(Topic::Channel, Some(b"[b]")).len(), 1);
    assert_eq!(
        pubsub.figures(),
        Figures {
            channels: 2,
            patterns: 1,
            shard_channels: 2,
            ..Figures::default()
        }
    );
    assert_eq!(pubsub.unsubscribe(&clients[0], Topic::Channel, b"a"), 2);
    assert_eq!(pubsub.unsubscribe(&clients[0], Topic::Channel, b"a"), 2);
    assert_eq!(pubsub.subscribers(Topic::Channel, b"a"), 99);
    let ended = pubsub.unsubscribe_all(&clients[1], Topic::Channel);
    assert_eq!(
        ended.iter().map(|(_, left)| *left).collect::<Vec<_>>(),
        [2, 1]
    );
    for client in &clients {
        pubsub.forget(client);
        assert_eq!(client.subscriptions(), 0);
    }
    assert_eq!(pubsub.figures(), Figures::default());
    assert_eq!(publish(&pubsub, b"a", b"x"), 0);
}

#[test]
fn a_large_message_is_shared_by_its_receivers() {
    let pubsub = PubSub::default();
    let clients: Vec<_> = (1..=3).map(|id| client(id, 2)).collect();
    for client in &clients {
        pubsub.subscribe(client, Topic::Channel, b"c");
    }
    let payload = vec![b'x'; 1 << 20];
    publish(&pubsub, b"c", &payload);
    for client in &clients {
        let out = client.take_mail().expect("the message");
        assert!(out.as_slice().is_none(), "it is no copy");
        assert_eq!(out.len_bytes(), payload.len() + 36);
    }
}

#[test]
fn names_that_are_moved_are_those_that_clients_know() {
    let pubsub = PubSub::default();
    let (one, two) = (client(1, 2), client(2, 2));
    for client in [&one, &two] {
        for topic in Topic::ALL {
            pubsub.subscribe(client, topic, b"news");
        }
    }
    pubsub.subscribe(&one, Topic::Channel, b"other");
    let places = |names: &[(Topic, Arc<[u8]>)]| -> Vec<usize> {
        names.iter().map(|(_, name)| name.as_ptr().addr()).collect()
    };
    let before = pubsub.all_names();
    assert_eq!(before.len(), 4);
    // A client that has ended a subscription is not given it back.
    pubsub.unsubscribe(&two, Topic::Channel, b"news");
    let mut mover = Mover::of_everything();
    pubsub.relocate(&before, &mut mover);
    assert_eq!(mover.moved, 4);
    let after = places(&pubsub.all_names());
    assert!(places(&before).iter().all(|place| !after.contains(place)));
    // Nothing refers to the old names any more.
    assert!(before.iter().all(|(_, name)| Arc::strong_count(name) == 1));
    assert_eq!(publish(&pubsub, b"news", b"x"), 3);
    assert_eq!(
        pubsub.publish(true, b"news", b"x", &mut Posting::new(0, &mut Vec::new())),
        2
    );
    for client in [&one, &two] {
        pubsub.forget(client);
        assert_eq!(client.subscriptions(), 0);
    }
    let figures = pubsub.figures();
    assert_eq!(
        (figures.channels, figures.patterns, figures.shard_channels),
        (0, 0, 0)
    );
}

#[test]
fn messages_of_one_channel_are_posted_together_and_are_not_told_from_single_ones() {
    let pubsub = PubSub::default();
    let (one, two, three) = (client(1, 2), client(2, 3), client(3, 2));
    let mut outgoing = Outgoing::default();
    outgoing.more_follow = true;
    let mut gather = |is_sharded: bool, channel: &[u8], payload: &[u8], log_seen: u64| {
        let receivers = pubsub.gather(is_sharded, channel, payload, log_seen, &mut outgoing);
        (receivers, outgoing.has_messages())
    };
    assert_eq!(gather(false, b"news", b"x", 1), (0, false), "to nobody");
    pubsub.subscribe(&one, Topic::Channel, b"news");
    pubsub.subscribe(&two, Topic::Channel, b"news");
    pubsub.subscribe(&one, Topic::ShardChannel, b"news");
    assert_eq!(gather(false, b"news", b"x", 2), (2, true));
    assert_eq!(gather(false, b"news", b"", 3), (2, true));
    assert!(!one.has_mail(), "they are on their way");
    assert_eq!(one.log_seen.load(Relaxed), 0);
    // A message to another channel is posted after the gathered ones.
    assert_eq!(gather(true, b"news", b"z", 4), (1, true));
    assert_eq!(one.log_seen.load(Relaxed), 3);
    // A message without receivers also causes gathered messages to be posted.
    assert_eq!(gather(false, b"olds", b"y", 5), (0, false));
    assert_eq!(
        mail(&one),
        "*3 $7 message $4 news $1 x *3 $7 message $4 news $0  *3 $8 smessage $4 news $1 z "
    );
    assert_eq!(
        mail(&two),
        ">3 $7 message $4 news $1 x >3 $7 message $4 news $0  "
    );
    // A client that also matches by a pattern gets each message by both before the next one.
    assert_eq!(gather(false, b"news", b"a", 6), (2, true));
    assert_eq!(gather(false, b"news", b"b", 6), (2, true));
    pubsub.subscribe(&one, Topic::Pattern, b"n*");
    assert_eq!(gather(false, b"news", b"c", 6), (3, false));
    let both = |payload: &str| {
        format!("*3 $7 message $4 news $1 {payload} *4 $8 pmessage $2 n* $4 news $1 {payload} ")
    };
    assert_eq!(mail(&one), ["a", "b", "c"].map(both).concat());
    pubsub.unsubscribe(&one, Topic::Pattern, b"n*");
    // Nothing is gathered for a client that is gone, and the number of gathered bytes is limited.
    assert_eq!(gather(false, b"news", b"d", 6), (2, true));
    pubsub.forget(&two);
    pubsub.subscribe(&three, Topic::Channel, b"many");
    let long = vec![b'x'; 10_000];
    let lengths: Vec<usize> = (0..8)
        .map(|_| {
            gather(false, b"many", &long, 7);
            three.mailbox().map_or(0, |mailbox| mailbox.pushes())
        })
        .collect();
    assert_eq!(lengths, [0, 0, 0, 3, 3, 3, 6, 6]);
    let shared = vec![b'x'; SHARED_LEN_MIN];
    assert_eq!(gather(false, b"many", &shared, 7), (1, false));
    assert_eq!(three.mailbox().map_or(0, |mailbox| mailbox.pushes()), 9);
    assert_eq!(mail(&one), "*3 $7 message $4 news $1 d ");
    assert!(!mail(&two).contains("$1 d"));
}

#[test]
fn a_message_that_no_other_follows_is_posted_at_once() {
    let pubsub = PubSub::default();
    let one = client(1, 2);
    pubsub.subscribe(&one, Topic::Channel, b"news");
    let mut outgoing = Outgoing::default();
    for more_follow in [false, true, false] {
        outgoing.more_follow = more_follow;
        assert_eq!(pubsub.gather(false, b"news", b"x", 1, &mut outgoing), 1);
        assert_eq!(outgoing.has_messages(), more_follow);
    }
    assert_eq!(mail(&one), "*3 $7 message $4 news $1 x ".repeat(3));
}

#[test]
fn what_is_posted_at_once_is_bounded_for_all_subscribers_together() {
    let pubsub = PubSub::default();
    let clients: Vec<_> = (1..=2_000).map(|id| client(id, 2)).collect();
    for client in &clients {
        pubsub.subscribe(client, Topic::Channel, b"news");
    }
    let mut outgoing = Outgoing::default();
    outgoing.more_follow = true;
    let pushes: Vec<usize> = (0..6)
        .map(|_| {
            pubsub.gather(false, b"news", &[b'x'; 1_500], 1, &mut outgoing);
            clients[0].mailbox().map_or(0, |mailbox| mailbox.pushes())
        })
        .collect();
    assert_eq!(pushes, [0, 0, 2, 2, 4, 4]);
}

#[test]
fn names_of_any_length_are_published_to() {
    for length in [100, SHARED_LEN_MIN, 65_600, 200_000] {
        let pubsub = PubSub::default();
        let (one, two) = (client(1, 2), client(2, 3));
        let name = vec![b'n'; length];
        for client in [&one, &two] {
            pubsub.subscribe(client, Topic::Channel, &name);
            pubsub.subscribe(client, Topic::ShardChannel, &name);
        }
        let mut outgoing = Outgoing::default();
        for (is_sharded, more_follow) in
            [(false, true), (false, false), (true, true), (true, false)]
        {
            outgoing.more_follow = more_follow;
            let receivers = pubsub.gather(is_sharded, &name, b"x", 1, &mut outgoing);
            assert_eq!(receivers, 2);
        }
        for client in [&one, &two] {
            let bytes = client.take_mail().map_or(0, |mail| mail.len_bytes());
            assert!(bytes > 4 * length, "{bytes} for {length}");
        }
    }
}
