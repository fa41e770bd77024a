//! Each request gets one reply, whatever happens to it, and a refused request has had no effect.

use super::{Hold, SHARDS, eval, figure, must_reply, reply_while, tag, turns_of_ms};
use std::time::Duration;

use crate::support::{Options, Server, check};
use crate::wire::{Raw, Value, encode};

/// Replies until the one to an ECHO of this mark, which is sent now.
fn replies_before_mark(raw: &mut Raw, mark: &str) -> Vec<Value> {
    raw.send(&encode(&["ECHO", mark]));
    let mut replies = Vec::new();
    loop {
        let reply = must_reply(raw, &format!("ECHO {mark}"));
        if reply == Value::Bulk(mark.as_bytes().to_vec()) {
            return replies;
        }
        replies.push(reply);
        assert!(replies.len() < 10_000, "no end of replies");
    }
}

/// Returns a script that increments its declared key and reads an undeclared one.
fn straying_to(key: &str) -> String {
    format!("redis.call('incr', KEYS[1]) redis.call('get', '{key}') return 'done'")
}

/// Clients send requests that need, but do not declare, a shard which a function keeps locked beyond the
/// threshold: each begins, is rolled back, and waits. `request` ends with the one to be checked.
fn is_turned_away_once(count: usize, request: &[u8], before: &[&str], counter: &str, held: &str) {
    /// Greatest number of polls until a request is refused.
    const LOOKS: usize = 500;
    let options = Options::shards(SHARDS)
        .threads(4)
        .with("busy-reply-threshold", "900");
    let server = Server::start(&options);
    let mut first = server.raw();
    let turns = turns_of_ms(&mut first, 150).to_string();
    let hold = Hold::begin(&server, held);
    // Requests after this one queue for the shard that it names, and run in the queue.
    let spin = "for i = 1, tonumber(ARGV[1]) do end return 1";
    first.send(&encode(&["EVAL", spin, "1", counter, &turns]));
    std::thread::sleep(Duration::from_millis(30));
    let mut clients: Vec<Raw> = (0..count).map(|_| server.raw()).collect();
    clients.iter_mut().for_each(|raw| raw.send(request));
    let mut looks = 0..LOOKS;
    let mut replies: Vec<Vec<String>> = Vec::new();
    for raw in &mut clients {
        // The first reply, and all others by the end of the hold.
        let first = reply_while(raw, || looks.next().is_some());
        replies.push(first.iter().map(Value::show).collect());
    }
    let unanswered = replies.iter().filter(|replies| replies.is_empty()).count();
    // Whatever is sent again and again is by now.
    std::thread::sleep(Duration::from_millis(100));
    hold.end();
    // On a slow machine the earlier work may still run, and be overdue: an ECHO would be refused.
    must_reply(&mut first, "what was ahead");
    for (replies, raw) in replies.iter_mut().zip(&mut clients) {
        replies.extend(replies_before_mark(raw, "mark").iter().map(Value::show));
        let text: Vec<&str> = replies.iter().take(4).map(String::as_str).collect();
        let expected = before.len() + 1;
        assert_eq!(
            replies.len(),
            expected,
            "replies to {expected} requests, of which the first are {text:?}"
        );
        for (reply, expected) in replies.iter().zip(before) {
            // On a slow machine the function may be past its time before.
            assert!(reply == expected || reply.contains("BUSY"), "{reply}");
        }
        assert!(replies[before.len()].contains("BUSY"), "{text:?}");
    }
    assert_eq!(
        unanswered, 0,
        "clients were answered only when the function had ended"
    );
    let exists = format!("EXISTS {counter}");
    check(&mut server.raw(), &exists, "(integer) 0");
}

/// Number of clients, and the shards of the scripts' keys and of the locked keys, in either order: a message
/// without shards yet queues for the locked one first, or arrives there with the other shard locked.
const WAYS: [(usize, usize, usize); 3] = [(3, 2, 1), (1, 1, 2), (3, 1, 2)];

#[test]
fn a_script_that_was_undone_and_turned_away_has_one_reply_and_did_nothing() {
    for (count, named, held) in WAYS {
        let (counter, held) = (
            format!("{}counter", tag(named)),
            format!("{}held", tag(held)),
        );
        let script = straying_to(&held);
        let request = encode(&["EVAL", &script, "1", &counter]);
        is_turned_away_once(count, &request, &[], &counter, &held);
    }
}

#[test]
fn a_transaction_that_was_undone_and_turned_away_has_one_reply_and_did_nothing() {
    for (count, named, held) in WAYS {
        let (counter, held) = (
            format!("{}counter", tag(named)),
            format!("{}held", tag(held)),
        );
        let script = straying_to(&held);
        let mut request = encode(&["MULTI"]);
        request.extend(encode(&["INCR", &counter]));
        request.extend(encode(&["EVAL", &script, "1", &counter]));
        request.extend(encode(&["EXEC"]));
        is_turned_away_once(
            count,
            &request,
            &["OK", "QUEUED", "QUEUED"],
            &counter,
            &held,
        );
    }
}

/// Returns a script that runs commands which scripts may call only where a test has allowed it.
fn denied_by_default(server: &Server) -> Raw {
    let mut raw = server.raw();
    check(&mut raw, "DEBUG SET-DISABLE-DENY-SCRIPTS 1", "OK");
    raw
}

const LOADS_SCRIPT: &str = "return redis.call('script', 'load', ARGV[1])";
const LOADS_FUNCTION: &str = "return redis.call('function', 'load', ARGV[1])";

#[test]
fn a_script_that_loads_a_script_ends_no_server() {
    let server = Server::start(&Options::shards(SHARDS).threads(2));
    let mut raw = denied_by_default(&server);
    let sha = eval(&mut raw, LOADS_SCRIPT, &["0", "return 'loaded'"]).text();
    check(&mut raw, &format!("EVALSHA {sha} 0"), "\"loaded\"");
    check(&mut server.raw(), "PING", "PONG");
}

#[test]
fn a_script_that_loads_functions_ends_no_server() {
    let server = Server::start(&Options::shards(SHARDS).threads(2));
    let mut raw = denied_by_default(&server);
    let library = "#!lua name=inner
        redis.register_function('inner', function() return 'called' end)";
    let reply = eval(&mut raw, LOADS_FUNCTION, &["0", library]);
    assert_eq!(reply.show(), "\"inner\"");
    check(&mut raw, "FCALL inner 0", "\"called\"");
    check(&mut server.raw(), "PING", "PONG");
}

#[test]
fn scripts_in_a_transaction_may_load_where_that_is_allowed() {
    let server = Server::start(&Options::shards(SHARDS).threads(2));
    let mut raw = denied_by_default(&server);
    check(&mut raw, "MULTI", "OK");
    eval(&mut raw, "return 1", &["0"]);
    eval(&mut raw, LOADS_SCRIPT, &["0", "return 'second'"]);
    let reply = raw.call("EXEC");
    let sha = reply.items()[1].text();
    check(&mut raw, &format!("EVALSHA {sha} 0"), "\"second\"");
}

#[test]
fn a_client_that_goes_while_its_request_is_queued_takes_nothing_later() {
    let server = Server::start(&Options::shards(SHARDS).threads(4));
    let (mut busy, mut raw) = (server.raw(), server.raw());
    let turns = turns_of_ms(&mut busy, 200).to_string();
    let spin = "for i = 1, tonumber(ARGV[1]) do end return 1";
    busy.send(&encode(&["EVAL", spin, "1", "list", &turns]));
    std::thread::sleep(Duration::from_millis(40));
    let mut gone = server.raw();
    gone.send(&encode(&["BLPOP", "list", "0"]));
    std::thread::sleep(Duration::from_millis(40));
    drop(gone);
    must_reply(&mut busy, "the script");
    crate::support::eventually("its connection ends", || {
        figure(&mut raw, "clients", "connected_clients") == 2
    });
    check(&mut raw, "RPUSH list element", "(integer) 1");
    check(&mut raw, "LLEN list", "(integer) 1");
}

#[test]
fn a_client_that_was_killed_while_its_request_is_queued_begins_no_other() {
    let server = Server::start(&Options::shards(SHARDS).threads(4));
    let (mut busy, mut raw) = (server.raw(), server.raw());
    let turns = turns_of_ms(&mut busy, 300).to_string();
    let spin = "for i = 1, tonumber(ARGV[1]) do end return 1";
    let (held, other) = (format!("{}held", tag(1)), format!("{}other", tag(2)));
    busy.send(&encode(&["EVAL", spin, "1", &held, &turns]));
    std::thread::sleep(Duration::from_millis(40));
    let mut killed = server.raw();
    let id = killed.call("CLIENT ID").show().replace("(integer) ", "");
    let mut requests = encode(&["INCR", &held]);
    requests.extend(encode(&["INCR", &other]));
    killed.send(&requests);
    std::thread::sleep(Duration::from_millis(40));
    check(&mut raw, &format!("CLIENT KILL ID {id}"), "(integer) 1");
    let before = raw.call(&format!("GET {other}")).show();
    must_reply(&mut busy, "the script");
    crate::support::eventually("its connection ends", || {
        figure(&mut raw, "clients", "connected_clients") == 2
    });
    check(&mut raw, &format!("GET {other}"), &before);
}

#[test]
fn a_request_whose_wait_ends_while_a_script_is_busy_has_one_reply() {
    let options = Options::shards(SHARDS).threads(4);
    let server = Server::start(&options.with("busy-reply-threshold", "50"));
    let (mut waits, mut raw) = (server.raw(), server.raw());
    waits.send(&encode(&["WAIT", "1", "500"]));
    let hold = Hold::begin(&server, "held");
    crate::support::eventually("the function is busy", || {
        raw.call("PING").show().contains("BUSY")
    });
    std::thread::sleep(Duration::from_millis(600));
    hold.end();
    let replies = replies_before_mark(&mut waits, "behind it");
    assert_eq!(replies, [Value::Integer(0)]);
}

#[test]
fn no_pause_keeps_a_request_that_waits_from_its_reply() {
    let server = Server::start(&Options::shards(SHARDS).threads(4));
    let (mut served, mut late, mut raw) = (server.raw(), server.raw(), server.raw());
    served.send(&encode(&["BLPOP", "list", "0"]));
    late.send(&encode(&["BLPOP", "other", "0.3"]));
    crate::support::eventually("both wait", || {
        figure(&mut raw, "clients", "blocked_clients") == 2
    });
    let mut requests = encode(&["RPUSH", "list", "element"]);
    // Longer than any client here waits for a reply.
    requests.extend(encode(&["CLIENT", "PAUSE", "60000", "ALL"]));
    raw.send(&requests);
    let reply = must_reply(&mut served, "what was pushed before the pause");
    assert_eq!(reply.items()[1].text(), "element");
    assert!(must_reply(&mut late, "the end of its time").is_nil());
}

#[test]
fn what_a_script_publishes_comes_before_the_end_of_a_subscription() {
    let server = Server::start(&Options::shards(SHARDS).threads(4));
    let mut raw = server.raw3();
    for round in 0..50 {
        let mut requests = encode(&["SUBSCRIBE", "channel"]);
        let publish = "return redis.call('publish', 'channel', 'message')";
        requests.extend(encode(&["EVAL", publish, "0"]));
        requests.extend(encode(&["UNSUBSCRIBE", "channel"]));
        requests.extend(encode(&["ECHO", "end"]));
        raw.send(&requests);
        let replies: Vec<String> = (0..5)
            .map(|_| must_reply(&mut raw, "a reply or push").show())
            .collect();
        let at = |word: &str| replies.iter().position(|reply| reply.contains(word));
        assert!(
            at("\"message\"") < at("unsubscribe"),
            "round {round}: {replies:?}"
        );
        assert!(replies[4].contains("end"), "round {round}: {replies:?}");
    }
}
