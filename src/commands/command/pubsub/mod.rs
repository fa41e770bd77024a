//! Publish and subscribe.
//!
//! ```text
//! mod      PUBLISH SPUBLISH, and PUBSUB with its subcommands
//! monitor  MONITOR
//! connect  SUBSCRIBE PSUBSCRIBE SSUBSCRIBE UNSUBSCRIBE PUNSUBSCRIBE SUNSUBSCRIBE
//! ```
//!
//! The state is in [`crate::pubsub::PubSub`]; messages are sent to subscribers separately from replies.

mod connect;
mod monitor;
#[cfg(test)]
mod tests;

use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;

pub(super) use connect::take_messages;

use super::context::{Outbox, SessionCx};
use super::declaration::{Channels, Command, CommandResult, Flags, Group, KeyFlags, KeySpec};
use super::{Args, Out};
use crate::client::shared::mailbox::Topic;
use crate::command::error::shown_name;
use crate::pubsub::pending::PendingMessage;
use basalt_engine::effect::{Follower, News, Publication};

pub(super) static TABLE: &[&Command] = &[
    &monitor::MONITOR,
    &connect::PSUBSCRIBE,
    &PUBLISH,
    &PUBSUB,
    &connect::PUNSUBSCRIBE,
    &SPUBLISH,
    &connect::SSUBSCRIBE,
    &connect::SUBSCRIBE,
    &connect::SUNSUBSCRIBE,
    &connect::UNSUBSCRIBE,
];

const GROUP: Group = Group::PubSub;
const FLAGS: Flags = Flags::PUBSUB.or(Flags::LOADING).or(Flags::STALE);
const PUBLISHING: Flags = FLAGS.or(Flags::FAST).or(Flags::MAY_REPLICATE);

/// `PUBLISH channel message`
static PUBLISH: Command = Command::new("publish", GROUP, 3)
    .channels(Channels::First)
    .flags(PUBLISHING)
    .doc(
        "2.0.0",
        "channel message",
        "Sends a message to the subscribers of a channel.",
    )
    .complexity("O(N+M), for N subscribers of the channel and M subscribed patterns.")
    .repeatable()
    .on_session(|cx, args, out| publish(cx, args, out, false));

/// `SPUBLISH shardchannel message`
static SPUBLISH: Command = Command::new("spublish", GROUP, 3)
    .channels(Channels::First)
    .names_keys(&[KeySpec::one(1, KeyFlags::NOT_KEY)])
    .flags(PUBLISHING)
    .doc(
        "7.0.0",
        "shardchannel message",
        "Sends a message to the subscribers of a shard channel.",
    )
    .complexity("O(N) for N subscribers of the shard channel.")
    .repeatable()
    .on_session(|cx, args, out| publish(cx, args, out, true));

fn publish(
    cx: &mut SessionCx<'_>,
    args: &Args<'_>,
    out: &mut Out,
    is_sharded: bool,
) -> CommandResult {
    let (channel, payload) = (args.get(1), args.get(2));
    let pubsub = cx.server.pubsub();
    let held = |client| Arc::new(PendingMessage::new(client, is_sharded, channel, payload));
    let receivers = match &mut cx.outbox {
        Outbox::Open(outgoing) if pubsub.has_delivered(cx.client.position) => {
            let log_seen = cx.client.shared.log_seen.load(Relaxed);
            pubsub.relay(is_sharded, channel, payload);
            pubsub.gather(is_sharded, channel, payload, log_seen, outgoing)
        }
        Outbox::Open(_) => {
            // Earlier messages of the connection are still being delivered: this one is queued after them.
            let message = held(cx.client);
            let receivers = pubsub.receivers_of(&message);
            let stamp = cx.client.stamp;
            let mut news = Box::<News>::default();
            news.publications.push(Publication { stamp, message });
            cx.client.position = pubsub.append(news);
            pubsub.deliver();
            receivers
        }
        Outbox::Pending(publications, _) => {
            let message = held(cx.client);
            let receivers = pubsub.receivers_of(&message);
            let stamp = cx.client.stamp;
            publications.push(Publication { stamp, message });
            receivers
        }
    };
    // In a cluster, replicas receive the message like all other nodes.
    if !pubsub.is_relaying() {
        cx.tell_replicas(args);
    }
    out.integer(receivers as i64);
    Ok(())
}

/// `PUBSUB subcommand`
static PUBSUB: Command = Command::new("pubsub", GROUP, -2)
    .doc(
        "2.8.0",
        "",
        "Groups the commands that inspect subscriptions.",
    )
    .complexity("Depends on subcommand.")
    .container(&[
        &CHANNELS,
        &HELP,
        &NUMPAT,
        &NUMSUB,
        &SHARDCHANNELS,
        &SHARDNUMSUB,
    ]);

/// `PUBSUB CHANNELS [pattern]`
static CHANNELS: Command = Command::sub("pubsub|channels", "channels", GROUP, -2)
    .flags(FLAGS)
    .doc(
        "2.8.0",
        "[pattern]",
        "Returns the channels with subscribers.",
    )
    .complexity(
        "O(N) for N channels with subscribers, if matching the pattern takes constant time.",
    )
    .repeatable()
    .on_session(|cx, args, out| names(cx, args, out, Topic::Channel));

/// `PUBSUB SHARDCHANNELS [pattern]`
static SHARDCHANNELS: Command = Command::sub("pubsub|shardchannels", "shardchannels", GROUP, -2)
    .flags(FLAGS)
    .doc(
        "7.0.0",
        "[pattern]",
        "Returns the shard channels with subscribers.",
    )
    .complexity(
        "O(N) for N shard channels with subscribers, if matching the pattern takes constant time.",
    )
    .repeatable()
    .on_session(|cx, args, out| names(cx, args, out, Topic::ShardChannel));

fn names(cx: &mut SessionCx<'_>, args: &Args<'_>, out: &mut Out, topic: Topic) -> CommandResult {
    if args.len() > 3 {
        return Err(unknown(args));
    }
    let pattern = (args.len() == 3).then(|| args.get(2));
    let names = cx.server.pubsub().names(topic, pattern);
    out.array(names.len());
    for name in names {
        out.bulk(&name);
    }
    Ok(())
}

fn unknown(args: &Args<'_>) -> super::error::CommandError {
    let name = shown_name(args.get(1));
    format!("ERR unknown subcommand or wrong number of arguments for '{name}'. Try PUBSUB HELP.")
        .into()
}

/// `PUBSUB NUMSUB [channel [channel ...]]`
static NUMSUB: Command = Command::sub("pubsub|numsub", "numsub", GROUP, -2)
    .flags(FLAGS)
    .doc(
        "2.8.0",
        "[channel [channel ...]]",
        "Returns the number of subscribers of channels, not counting patterns.",
    )
    .complexity("O(N) for N channels asked for.")
    .repeatable()
    .on_session(|cx, args, out| count(cx, args, out, Topic::Channel));

/// `PUBSUB SHARDNUMSUB [shardchannel [shardchannel ...]]`
static SHARDNUMSUB: Command = Command::sub("pubsub|shardnumsub", "shardnumsub", GROUP, -2)
    .flags(FLAGS)
    .doc(
        "7.0.0",
        "[shardchannel [shardchannel ...]]",
        "Returns the number of subscribers of shard channels.",
    )
    .complexity("O(N) for N shard channels asked for.")
    .repeatable()
    .on_session(|cx, args, out| count(cx, args, out, Topic::ShardChannel));

fn count(cx: &mut SessionCx<'_>, args: &Args<'_>, out: &mut Out, topic: Topic) -> CommandResult {
    // An array even in RESP3: Redis replies with an array of twice the length, not a map.
    out.array((args.len() - 2) * 2);
    for name in args.from(2) {
        out.bulk(name);
        out.integer(cx.server.pubsub().subscribers(topic, name) as i64);
    }
    Ok(())
}

/// `PUBSUB NUMPAT`
static NUMPAT: Command = Command::sub("pubsub|numpat", "numpat", GROUP, 2)
    .flags(FLAGS)
    .doc("2.8.0", "", "Returns the number of subscribed patterns.")
    .repeatable()
    .on_session(|cx, _, out| {
        out.integer(cx.server.pubsub().figures().patterns as i64);
        Ok(())
    });

/// `PUBSUB HELP`
static HELP: Command = Command::sub("pubsub|help", "help", GROUP, 2)
    .doc("6.2.0", "", "Explains the subcommands.")
    .on_help(HELP_LINES);

const HELP_LINES: &[&str] = &[
    "CHANNELS [<pattern>]",
    "    Return the channels with subscribers that match the pattern.",
    "NUMPAT",
    "    Return the number of subscribed patterns.",
    "NUMSUB [<channel> ...]",
    "    Return the number of subscribers of these channels, not counting patterns.",
    "SHARDCHANNELS [<pattern>]",
    "    Return the shard channels with subscribers that match the pattern.",
    "SHARDNUMSUB [<shardchannel> ...]",
    "    Return the number of subscribers of these shard channels.",
];
