//! SUBSCRIBE, UNSUBSCRIBE and their variants: each name is confirmed by a push of its own.

use std::sync::Arc;

use super::GROUP;
use crate::client::shared::mailbox::{Mailbox, Topic};
use crate::cluster::route;
use crate::command::context::SessionCx;
use crate::command::declaration::{Channels, Command, CommandResult, Flags, KeyFlags, KeySpec};
use crate::command::{Args, Out};
use basalt_core::base::hash;

const FLAGS: Flags = super::FLAGS.or(Flags::NOSCRIPT).or(Flags::SUBSCRIBER);

const SHARD_CHANNELS: &[KeySpec] = &[KeySpec::range(1, -1, 1, KeyFlags::NOT_KEY)];

/// `SUBSCRIBE channel [channel ...]`
pub(super) static SUBSCRIBE: Command = Command::new("subscribe", GROUP, -2)
    .channels(Channels::All)
    .flags(FLAGS)
    .doc(
        "2.0.0",
        "channel [channel ...]",
        "Subscribes the connection to channels.",
    )
    .complexity("O(N) for N channels.")
    .on_session(|cx, args, out| subscribe(cx, args, out, Topic::Channel, b"subscribe"));

/// `PSUBSCRIBE pattern [pattern ...]`
pub(super) static PSUBSCRIBE: Command = Command::new("psubscribe", GROUP, -2)
    .channels(Channels::Patterns)
    .flags(FLAGS)
    .doc(
        "2.0.0",
        "pattern [pattern ...]",
        "Subscribes the connection to all channels that match patterns.",
    )
    .complexity("O(N) for N patterns.")
    .on_session(|cx, args, out| subscribe(cx, args, out, Topic::Pattern, b"psubscribe"));

/// `SSUBSCRIBE shardchannel [shardchannel ...]`
pub(super) static SSUBSCRIBE: Command = Command::new("ssubscribe", GROUP, -2)
    .channels(Channels::All)
    .names_keys(SHARD_CHANNELS)
    .flags(FLAGS)
    .doc(
        "7.0.0",
        "shardchannel [shardchannel ...]",
        "Subscribes the connection to shard channels.",
    )
    .complexity("O(N) for N shard channels.")
    .on_session(|cx, args, out| subscribe(cx, args, out, Topic::ShardChannel, b"ssubscribe"));

fn subscribe(
    cx: &mut SessionCx<'_>,
    args: &Args<'_>,
    out: &mut Out,
    topic: Topic,
    word: &[u8],
) -> CommandResult {
    // In a transaction Redis permits SUBSCRIBE and PSUBSCRIBE, for the sake of old clients.
    if topic == Topic::ShardChannel && cx.outbox.is_of_transaction() {
        return Err("ERR SSUBSCRIBE isn't allowed for a DENY BLOCKING client".into());
    }
    for name in args.from(1) {
        let count = cx.server.pubsub().subscribe(&cx.client.shared, topic, name);
        confirm(out, word, Some(name), count);
    }
    if topic == Topic::ShardChannel {
        leave_moved(cx, args, out);
    }
    Ok(())
}

/// Ends subscriptions to shard channels whose slot moved to another node since the request was admitted: the code
/// that ends such subscriptions may have run before these subscriptions were made.
fn leave_moved(cx: &SessionCx<'_>, args: &Args<'_>, out: &mut Out) {
    let Some(map) = cx.server.cluster().map(|cluster| cluster.map()) else {
        return;
    };
    let (pubsub, client) = (cx.server.pubsub(), &cx.client.shared);
    let moved = args.from(1);
    for name in moved.filter(|name| !route::serves_channel(&map, hash::slot(name))) {
        let is_subscribed = |mailbox: &Mailbox| {
            mailbox.subscribed.lock()[Topic::ShardChannel as usize].contains(name)
        };
        if client.mailbox().is_some_and(is_subscribed) {
            let count = pubsub.unsubscribe(client, Topic::ShardChannel, name);
            confirm(out, b"sunsubscribe", Some(name), count);
        }
    }
}

/// `UNSUBSCRIBE [channel [channel ...]]`
pub(super) static UNSUBSCRIBE: Command = Command::new("unsubscribe", GROUP, -1)
    .flags(FLAGS)
    .doc(
        "2.0.0",
        "[channel [channel ...]]",
        "Unsubscribes the connection from channels, or from all of them.",
    )
    .complexity("O(N) for N channels.")
    .on_session(|cx, args, out| unsubscribe(cx, args, out, Topic::Channel, b"unsubscribe"));

/// `PUNSUBSCRIBE [pattern [pattern ...]]`
pub(super) static PUNSUBSCRIBE: Command = Command::new("punsubscribe", GROUP, -1)
    .flags(FLAGS)
    .doc(
        "2.0.0",
        "[pattern [pattern ...]]",
        "Unsubscribes the connection from patterns, or from all of them.",
    )
    .complexity("O(N) for N patterns.")
    .on_session(|cx, args, out| unsubscribe(cx, args, out, Topic::Pattern, b"punsubscribe"));

/// `SUNSUBSCRIBE [shardchannel [shardchannel ...]]`
pub(super) static SUNSUBSCRIBE: Command = Command::new("sunsubscribe", GROUP, -1)
    .names_keys(SHARD_CHANNELS)
    .flags(FLAGS)
    .doc(
        "7.0.0",
        "[shardchannel [shardchannel ...]]",
        "Unsubscribes the connection from shard channels, or from all of them.",
    )
    .complexity("O(N) for N shard channels.")
    .on_session(|cx, args, out| unsubscribe(cx, args, out, Topic::ShardChannel, b"sunsubscribe"));

fn unsubscribe(
    cx: &mut SessionCx<'_>,
    args: &Args<'_>,
    out: &mut Out,
    topic: Topic,
    word: &[u8],
) -> CommandResult {
    let (pubsub, client) = (cx.server.pubsub(), &cx.client.shared);
    let ended: Vec<(Option<Arc<[u8]>>, usize)> = if args.len() > 1 {
        args.from(1)
            .map(|name| {
                let count = pubsub.unsubscribe(client, topic, name);
                (Some(Arc::from(name)), count)
            })
            .collect()
    } else {
        let ended = pubsub.unsubscribe_all(client, topic);
        let ended: Vec<_> = ended
            .into_iter()
            .map(|(name, count)| (Some(name), count))
            .collect();
        match ended.is_empty() {
            true => {
                let mailbox = client.mailbox();
                let count = mailbox.map_or(0, |mailbox| match topic {
                    Topic::ShardChannel => mailbox.count(topic),
                    _ => mailbox.count(Topic::Channel) + mailbox.count(Topic::Pattern),
                });
                vec![(None, count)]
            }
            false => ended,
        }
    };
    take_messages(cx, out);
    for (name, count) in ended {
        confirm(out, word, name.as_deref(), count);
    }
    Ok(())
}

/// Takes the messages that arrived before a subscription ended, so that they precede its confirmation: a RESP2 client
/// without subscriptions takes everything that it receives for a reply.
pub(in crate::command) fn take_messages(cx: &SessionCx<'_>, out: &mut Out) {
    if !cx.outbox.is_of_transaction()
        && let Some(mut mail) = cx.client.shared.take_mail()
    {
        out.append(&mut mail);
    }
}

fn confirm(out: &mut Out, word: &[u8], name: Option<&[u8]>, count: usize) {
    out.push(3);
    out.bulk(word);
    match name {
        Some(name) => out.bulk(name),
        None => out.null(),
    }
    out.integer(count as i64);
}
