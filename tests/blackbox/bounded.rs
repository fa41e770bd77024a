//! Memory that a client's requests occupy in the server: queued transactions, and replies.

use crate::support::{self, Options, Oracle, Server, check, eventually, info_number};
use crate::wire::{Raw, Value};

const REFUSED: &str = "(error) OOM command not allowed when used memory > 'maxmemory'.";
const ABORTED: &str = "(error) EXECABORT Transaction discarded because of previous errors.";
const TOO_LONG: &str = "(error) ERR reply is longer than proto-max-reply-len";

/// Queues `count` values of 10 MB in a transaction and runs it; returns the replies.
fn transaction(client: &mut Raw, count: usize) -> Vec<String> {
    let value = "x".repeat(10_000_000);
    let mut answers = vec![client.call("MULTI").show()];
    for key in 0..count {
        answers.push(
            client
                .command(&["SET", &format!("key:{key}"), &value])
                .show(),
        );
    }
    answers.push(client.call("EXEC").show());
    answers
}

#[test]
fn a_transaction_is_refused_when_what_it_queues_has_no_room() {
    let limit = |client: &mut Raw| {
        check(client, "CONFIG SET maxmemory-policy noeviction", "OK");
        check(client, "CONFIG SET maxmemory-clients 0", "OK");
        check(client, "CONFIG SET maxmemory 67108864", "OK");
    };
    let server = Server::start(&Options::shards(8));
    let mut client = server.raw();
    limit(&mut client);
    let answers = transaction(&mut client, 60);
    assert_eq!(answers.last().map(String::as_str), Some(ABORTED));
    let queued = answers.iter().filter(|answer| *answer == "QUEUED").count();
    assert!((5..=7).contains(&queued), "{queued} were queued");
    assert!(
        answers[queued + 1..61]
            .iter()
            .all(|answer| answer == REFUSED)
    );
    check(&mut client, "DBSIZE", "(integer) 0");
    if let Some(oracle) = Oracle::start() {
        let mut theirs = oracle.0.raw();
        limit(&mut theirs);
        let theirs = transaction(&mut theirs, 60);
        assert_eq!(theirs.last(), answers.last());
        assert_eq!(theirs[60], answers[60]);
    }
    // A transaction within the limit runs.
    let answers = transaction(&mut client, 3);
    assert_eq!(answers[1..4], ["QUEUED", "QUEUED", "QUEUED"]);
    check(&mut client, "DBSIZE", "(integer) 3");
}

#[test]
fn texts_of_scripts_and_libraries_have_one_bound() {
    let server = Server::start(&Options::shards(8));
    let mut client = server.raw();
    check(&mut client, "CONFIG SET maxmemory 128mb", "OK");
    let bound = 8.0 * 1024.0 * 1024.0;
    let comment = "x".repeat(500_000);
    let taken = |client: &mut Raw| info_number(client, "memory", "used_memory_scripts");
    for number in 0..100 {
        let script = format!("return {number} -- {comment}");
        let answer = client.command(&["EVAL", &script, "0"]);
        assert_eq!(answer.integer(), number);
    }
    let evaluated = taken(&mut client);
    assert!(
        (bound * 0.8..bound * 1.1).contains(&evaluated),
        "{evaluated}"
    );
    let mut loaded = 0;
    let refused = loop {
        let library = format!(
            "#!lua name=l{loaded}\nredis.register_function('f{loaded}', function() return {loaded} end) -- {comment}"
        );
        match client.command(&["FUNCTION", "LOAD", &library]).show() {
            answer if answer == format!("\"l{loaded}\"") => loaded += 1,
            answer => break answer,
        }
        assert!(loaded < 100, "no library was refused");
    };
    assert_eq!(refused, REFUSED);
    assert!((14..=17).contains(&loaded), "{loaded} libraries");
    // Scripts of EVAL have given way, and run all the same.
    assert!(taken(&mut client) < bound * 1.3, "{}", taken(&mut client));
    let script = format!("return 7 -- {comment}");
    assert_eq!(client.command(&["SCRIPT", "LOAD", &script]).show(), REFUSED);
    assert_eq!(client.command(&["EVAL", &script, "0"]).integer(), 7);
    // A highly compressible payload is not admitted because of its short length.
    let dump = client.call("FUNCTION DUMP");
    check(&mut client, "FUNCTION FLUSH", "OK");
    check(&mut client, "CONFIG SET maxmemory 32mb", "OK");
    let restored = client.command(&[&b"FUNCTION"[..], b"RESTORE", dump.bytes()]);
    assert_eq!(restored.show(), REFUSED);
    check(&mut client, "CONFIG SET maxmemory 128mb", "OK");
    let restored = client.command(&[&b"FUNCTION"[..], b"RESTORE", dump.bytes()]);
    assert_eq!(restored.show(), "OK");
    assert_eq!(client.call("FCALL f3 0").integer(), 3);
    check(&mut client, "SET key value", "OK");
}

#[test]
fn what_is_queued_is_told_and_counted() {
    if support::is_stand_in() {
        return;
    }
    let server = Server::start(&Options::shards(8));
    let (mut client, mut other) = (server.raw(), server.raw());
    check(&mut client, "CLIENT SETNAME queueing", "OK");
    check(&mut client, "MULTI", "OK");
    let value = "x".repeat(1_000_000);
    for key in 0..20 {
        let answer = client.command(&["SET", &format!("key:{key}"), &value]);
        assert_eq!(answer.show(), "QUEUED");
    }
    let normal = info_number(&mut other, "memory", "mem_clients_normal");
    assert!((20e6..22e6).contains(&normal), "{normal}");
    // The buffer of the last request goes, and the request counts, a moment after its reply.
    eventually("what is queued is told", || {
        let list = other.call("CLIENT LIST").body();
        let line = list.lines().find(|line| line.contains("name=queueing"));
        let line = line.expect("it is there");
        let field = |name: &str| -> f64 {
            let text = line.split(' ').find_map(|word| word.strip_prefix(name));
            text.expect(name).parse().expect("a number")
        };
        (20e6..22e6).contains(&field("multi-mem=")) && (20e6..22e6).contains(&field("tot-mem="))
    });
    // The client with the most memory is disconnected.
    check(&mut other, "CONFIG SET maxmemory-clients 10mb", "OK");
    assert!(client.is_closed());
    check(&mut other, "DBSIZE", "(integer) 0");
}

#[test]
fn a_reply_has_a_bound_and_what_comes_behind_it_is_answered() {
    const KEYS: usize = 7_000;
    if support::is_stand_in() {
        return;
    }
    let server = Server::start(&Options::shards(8).threads(2));
    let mut client = server.raw();
    let value = "x".repeat(10_000_000);
    client.command(&["SET", "large", &value]);
    client.command(&["SET", "small", &"y".repeat(10_000)]);
    let before = server.resident_bytes();
    let many = |key: &str, count: usize| {
        let mut words = vec!["MGET"];
        words.extend(std::iter::repeat_n(key, count));
        words
            .iter()
            .map(|word| (*word).to_owned())
            .collect::<Vec<_>>()
    };
    assert_eq!(client.command(&many("large", KEYS)).show(), TOO_LONG);
    assert_eq!(client.command(&many("small", 200_000)).show(), TOO_LONG);
    check(&mut client, "PING", "PONG");
    let reply = client.command(&many("large", 3));
    assert!(matches!(reply, Value::Array(items) if items.len() == 3));
    // In a transaction, whose reply is one.
    check(&mut client, "MULTI", "OK");
    for _ in 0..150 {
        check(&mut client, "GET large", "QUEUED");
    }
    check(&mut client, "INCR counter", "QUEUED");
    check(&mut client, "EXEC", TOO_LONG);
    check(&mut client, "GET counter", "\"1\"");
    // In a script, which receives the error.
    let script = format!(
        "local keys = {{}} for i = 1, {KEYS} do keys[i] = KEYS[1] end \
         local reply = redis.pcall('MGET', unpack(keys)) return reply.err or #reply"
    );
    let reply = client.command(&["EVAL", &script, "1", "large"]);
    assert_eq!(
        reply.show(),
        "\"ERR reply is longer than proto-max-reply-len\""
    );
    let grown = server.resident_bytes().saturating_sub(before);
    assert!(grown < 2_300_000_000, "{grown}");
    check(&mut client, "CONFIG SET proto-max-reply-len 1mb", "OK");
    check(&mut client, "GET large", TOO_LONG);
    let reply = client.pipeline(&["GET small", "GET large", "GET small"]);
    let lens: Vec<usize> = reply.iter().map(|reply| reply.body().len()).collect();
    assert_eq!((lens[0], lens[2]), (10_000, 10_000));
    assert!(reply[1].is_error());
}

#[test]
fn a_script_takes_as_much_as_all_clients_may() {
    if support::is_stand_in() {
        return;
    }
    let server = Server::start(&Options::shards(8).threads(2));
    let mut client = server.raw();
    let script = "EVAL \"local t = {} for i = 1, 60 do t[i] = string.rep('x', 1000000 + i) end return #t\" 0";
    check(&mut client, script, "(integer) 60");
    check(&mut client, "CONFIG SET maxmemory-clients 40mb", "OK");
    let error = client.call(script).show();
    assert!(error.contains("not enough memory"), "{error}");
    check(&mut client, "CONFIG SET maxmemory-clients 0", "OK");
    check(&mut client, script, "(integer) 60");
}

/// A value that is being built is charged to no shard yet, so at most two are built at a time while memory is limited.
#[test]
fn values_that_are_built_at_the_same_time_exceed_the_limit_by_a_few_at_most() {
    const CLIENTS: usize = 30;
    const MEMBERS: usize = 50_000;
    let server = Server::start(&Options::shards(4).threads(4));
    let mut client = server.raw();
    for first in (0..MEMBERS).step_by(1_000) {
        let members: Vec<String> = (first..first + 1_000)
            .map(|member| format!("{member} member:{member}"))
            .collect();
        client.call(&format!("ZADD z {}", members.join(" ")));
    }
    let value = client.call("MEMORY USAGE z").integer() as f64;
    let used = info_number(&mut client, "memory", "used_memory");
    let limit = (used + 1.5 * value) as u64;
    check(&mut client, "CONFIG SET maxmemory-policy noeviction", "OK");
    check(&mut client, &format!("CONFIG SET maxmemory {limit}"), "OK");
    check(&mut client, "CONFIG RESETSTAT", "OK");
    let mut others: Vec<Raw> = (0..CLIENTS).map(|_| server.raw()).collect();
    for (number, other) in others.iter_mut().enumerate() {
        let line = match number % 2 {
            0 => format!("COPY z copy:{number}\r\n"),
            _ => format!("ZUNIONSTORE union:{number} 1 z\r\n"),
        };
        other.send(line.as_bytes());
    }
    let replies: Vec<String> = others.iter_mut().map(|other| other.read().show()).collect();
    let refused = replies.iter().filter(|reply| *reply == REFUSED).count();
    assert!((CLIENTS - 4..CLIENTS).contains(&refused), "{replies:?}");
    let peak = info_number(&mut client, "memory", "used_memory_peak");
    assert!(
        peak < limit as f64 + 5.0 * value,
        "{peak} of {limit}, values of {value}"
    );
}
