//! Subscriptions as seen by one connection; messages between connections are black-box tests.

use crate::command::testing::{Terminal, on_every_setup};
use basalt_core::resp::reply::Protocol;

#[test]
fn confirmations_count_channels_and_patterns_together_and_shard_channels_apart() {
    let mut cli = Terminal::new();
    for (line, word, name, count) in [
        ("SUBSCRIBE a", "subscribe", "\"a\"", 1),
        ("SUBSCRIBE a", "subscribe", "\"a\"", 1),
        ("PSUBSCRIBE a*", "psubscribe", "\"a*\"", 2),
        ("SSUBSCRIBE s", "ssubscribe", "\"s\"", 1),
        ("SUBSCRIBE b", "subscribe", "\"b\"", 3),
        ("UNSUBSCRIBE nope", "unsubscribe", "\"nope\"", 3),
        ("UNSUBSCRIBE a", "unsubscribe", "\"a\"", 2),
        ("PUNSUBSCRIBE", "punsubscribe", "\"a*\"", 1),
        ("PUNSUBSCRIBE", "punsubscribe", "(nil)", 1),
        ("SUNSUBSCRIBE", "sunsubscribe", "\"s\"", 0),
        ("SUNSUBSCRIBE", "sunsubscribe", "(nil)", 0),
        ("UNSUBSCRIBE", "unsubscribe", "\"b\"", 0),
    ] {
        let expected = format!("1) \"{word}\"\n2) {name}\n3) (integer) {count}");
        cli.check(line, &expected);
    }
}

#[test]
fn several_names_are_confirmed_one_by_one() {
    let mut cli = Terminal::with(1, Protocol::Resp3);
    let reply = cli.reply_bytes(&["SUBSCRIBE", "a", "b"]);
    let expected =
        ">3\r\n$9\r\nsubscribe\r\n$1\r\na\r\n:1\r\n>3\r\n$9\r\nsubscribe\r\n$1\r\nb\r\n:2\r\n";
    assert_eq!(String::from_utf8_lossy(&reply), expected);
}

#[test]
fn pubsub_tells_of_subscriptions() {
    on_every_setup(|cli| {
        cli.check_all(&[
            ("PUBSUB CHANNELS", "(empty array)"),
            ("PUBLISH a x", "(integer) 0"),
            ("SPUBLISH a x", "(integer) 0"),
        ]);
        cli.reply_bytes(&["SUBSCRIBE", "news"]);
        cli.reply_bytes(&["PSUBSCRIBE", "n*", "*"]);
        cli.reply_bytes(&["SSUBSCRIBE", "shard"]);
        cli.check_all(&[
            ("PUBSUB CHANNELS", "1) \"news\""),
            ("PUBSUB CHANNELS n*", "1) \"news\""),
            ("PUBSUB CHANNELS x*", "(empty array)"),
            ("PUBSUB SHARDCHANNELS", "1) \"shard\""),
            ("PUBSUB NUMPAT", "(integer) 2"),
            ("PUBSUB NUMSUB", "(empty array)"),
            (
                "PUBSUB NUMSUB news shard",
                "1) \"news\"\n2) (integer) 1\n3) \"shard\"\n4) (integer) 0",
            ),
            (
                "PUBSUB SHARDNUMSUB news shard",
                "1) \"news\"\n2) (integer) 0\n3) \"shard\"\n4) (integer) 1",
            ),
            ("PUBLISH news x", "(integer) 3"),
            ("PUBLISH shard x", "(integer) 1"),
            ("SPUBLISH shard x", "(integer) 1"),
            (
                "PUBSUB CHANNELS a b",
                "(error) ERR unknown subcommand or wrong number of arguments for 'CHANNELS'. Try PUBSUB HELP.",
            ),
        ]);
        assert_eq!(
            cli.connection.shared.mailbox().map(|mail| mail.pushes()),
            Some(5)
        );
    });
}

#[test]
fn ping_answers_subscribers_of_resp2_in_the_shape_of_a_message() {
    let mut cli = Terminal::new();
    cli.reply_bytes(&["SUBSCRIBE", "a"]);
    cli.check("PING", "1) \"pong\"\n2) \"\"");
    cli.check("PING x", "1) \"pong\"\n2) \"x\"");
    cli.connection.protocol = Protocol::Resp3;
    cli.check("PING", "PONG");
    cli.connection.protocol = Protocol::Resp2;
    cli.reply_bytes(&["UNSUBSCRIBE"]);
    cli.check("PING x", "\"x\"");
}

#[test]
fn messages_stand_before_the_end_of_the_subscription_that_they_came_by() {
    let mut cli = Terminal::new();
    cli.reply_bytes(&["SUBSCRIBE", "a"]);
    cli.check("PUBLISH a x", "(integer) 1");
    let reply = cli.reply_bytes(&["UNSUBSCRIBE", "a"]);
    let expected = "*3\r\n$7\r\nmessage\r\n$1\r\na\r\n$1\r\nx\r\n*3\r\n$11\r\nunsubscribe\r\n$1\r\na\r\n:0\r\n";
    assert_eq!(String::from_utf8_lossy(&reply), expected);
    assert!(!cli.connection.shared.has_mail());
}

#[test]
fn reset_ends_all_subscriptions() {
    let mut cli = Terminal::new();
    cli.reply_bytes(&["SUBSCRIBE", "a"]);
    cli.reply_bytes(&["PSUBSCRIBE", "a"]);
    cli.reply_bytes(&["SSUBSCRIBE", "a"]);
    cli.check("RESET", "RESET");
    cli.check("PUBSUB CHANNELS", "(empty array)");
    cli.check("PUBSUB SHARDCHANNELS", "(empty array)");
    cli.check("PUBSUB NUMPAT", "(integer) 0");
    cli.check("PING", "PONG");
}
