//! Scripts as units: undeclared keys, scripts that run long or forever, transactions with scripts.

use std::collections::HashMap;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::SeqCst};
use std::time::{Duration, Instant};

use crate::support::{self, Draw, Options, Server, check, eventually};
use crate::wire::{Raw, Value, encode};

/// Runs a script with a line of words.
fn eval(raw: &mut Raw, script: &str, rest: &[&str]) -> Value {
    let mut words = vec!["EVAL", script];
    words.extend_from_slice(rest);
    raw.command(&words)
}

const ACCOUNTS: usize = 40;

/// Moves an amount between two accounts that it names nowhere but in its arguments.
const MOVE: &str = "
    local from, to, amount = 'account' .. ARGV[1], 'account' .. ARGV[2], tonumber(ARGV[3])
    local has = tonumber(redis.call('get', from) or '0')
    if has < amount then return 0 end
    redis.call('decrby', from, amount)
    redis.call('incrby', to, amount)
    redis.call('rpush', 'log' .. ARGV[1], ARGV[3])
    redis.call('ltrim', 'log' .. ARGV[1], -50, -1)
    return 1";

/// Moves an amount between two accounts that are declared as keys, in a transaction.
const MOVE_DECLARED: &str = "
    if tonumber(redis.call('get', KEYS[1]) or '0') < tonumber(ARGV[1]) then return 0 end
    redis.call('decrby', KEYS[1], ARGV[1])
    redis.call('incrby', KEYS[2], ARGV[1])
    return 1";

fn sum(raw: &mut Raw) -> i64 {
    let names: Vec<String> = (0..ACCOUNTS).map(|at| format!("account{at}")).collect();
    let reply = raw.call(&format!("MGET {}", names.join(" ")));
    let Value::Array(values) = reply else {
        panic!("an array: {reply:?}")
    };
    values
        .iter()
        .map(|value| value.text().parse::<i64>().expect("a number"))
        .sum()
}

/// Returns the duration of the stress.
fn stress_for() -> Duration {
    let seconds = std::env::var("BASALT_STRESS_SECONDS").ok();
    Duration::from_secs(seconds.and_then(|text| text.parse().ok()).unwrap_or(5))
}

#[test]
fn values_that_scripts_move_between_shards_are_never_lost_nor_doubled() {
    let server = Server::start(&Options::shards(16));
    let mut raw = server.raw();
    for at in 0..ACCOUNTS {
        check(&mut raw, &format!("SET account{at} 1000"), "OK");
    }
    let is_over = AtomicBool::new(false);
    let moved = AtomicU64::new(0);
    std::thread::scope(|scope| {
        for client in 0..50_u64 {
            let (server, is_over, moved) = (&server, &is_over, &moved);
            scope.spawn(move || {
                let mut raw = server.raw();
                let mut draw = Draw::new(client + 1);
                while !is_over.load(SeqCst) {
                    let (from, to) = (
                        draw.below(ACCOUNTS).to_string(),
                        draw.below(ACCOUNTS).to_string(),
                    );
                    let amount = draw.below(20).to_string();
                    let (a, b) = (format!("account{from}"), format!("account{to}"));
                    match draw.below(8) {
                        0 => {
                            raw.pipeline(&["MULTI", &format!("INCR seen{from}")]);
                            eval(&mut raw, MOVE_DECLARED, &["2", &a, &b, &amount]);
                            raw.call("EXEC");
                        }
                        1 => {
                            eval(&mut raw, MOVE_DECLARED, &["2", &a, &b, &amount]);
                        }
                        2 => assert_eq!(sum(&mut raw), 1000 * ACCOUNTS as i64),
                        _ => {
                            let reply = eval(&mut raw, MOVE, &["0", &from, &to, &amount]);
                            assert!(matches!(reply, Value::Integer(_)), "{reply:?}");
                            moved.fetch_add(1, SeqCst);
                        }
                    }
                }
            });
        }
        std::thread::sleep(stress_for());
        let began = Instant::now();
        while moved.load(SeqCst) < 100 && began.elapsed() < Duration::from_secs(60) {
            std::thread::sleep(Duration::from_millis(5));
        }
        is_over.store(true, SeqCst);
    });
    assert_eq!(sum(&mut raw), 1000 * ACCOUNTS as i64);
    assert!(moved.load(SeqCst) > 0, "nothing was done");
}

/// Names of keys on different shards: `count` of them, and all with their slots.
fn keys_of_other_slots(raw: &mut Raw, than: &str) -> Vec<String> {
    let mut slot = |key: &str| match raw.call(&format!("CLUSTER KEYSLOT {key}")) {
        Value::Integer(slot) => slot as u64,
        // Without that command, tags of one letter do.
        _ => u64::from(crc16(key.as_bytes()) & 16383),
    };
    let mine = slot(than) % 16;
    (0..1000)
        .map(|at| format!("other{at}"))
        .filter(|key| slot(key) % 16 != mine)
        .take(20)
        .collect()
}

fn crc16(bytes: &[u8]) -> u16 {
    bytes.iter().fold(0, |crc: u16, byte| {
        (0..8).fold(crc ^ (u16::from(*byte) << 8), |crc, _| match crc & 0x8000 {
            0 => crc << 1,
            _ => (crc << 1) ^ 0x1021,
        })
    })
}

fn endless_scripts_hold_nobody_up(threads: usize, scripts: usize) {
    let options = Options::shards(16)
        .threads(threads)
        .with("busy-reply-threshold", "200");
    let server = Server::start(&options);
    let mut raw = server.raw();
    let others = keys_of_other_slots(&mut raw, "held");
    let mut loops: Vec<Raw> = Vec::new();
    for number in 0..scripts {
        let mut raw = server.raw();
        let script = "redis.call('get', KEYS[1]) while true do end";
        // The first keeps a shard locked; the others lock none.
        match number {
            0 => raw.send(&encode(&["EVAL", script, "1", "held"])),
            _ => raw.send(&encode(&["EVAL", "while true do end", "0"])),
        }
        loops.push(raw);
    }
    // Data commands on other shards go on, also while requests are refused.
    let began = Instant::now();
    let mut turns = 0;
    while began.elapsed() < Duration::from_millis(1_500) || turns < 5 {
        for key in &others {
            check(&mut raw, &format!("SET {key} {turns}"), "OK");
            assert_eq!(raw.call(&format!("GET {key}")).text(), turns.to_string());
        }
        turns += 1;
    }
    eventually("the held shard answers that it is busy", || {
        let mut raw = server.raw();
        raw.call("GET held").text().starts_with("BUSY")
    });
    // Over several shards, with the held one among them, and without.
    let text = raw.call(&format!("MSET {} 1 held 2", others[0])).text();
    assert!(text.starts_with("BUSY"), "{text}");
    check(
        &mut raw,
        &format!("MSET {} 1 {} 2", others[0], others[1]),
        "OK",
    );
    let reply = eval(
        &mut raw,
        "return redis.call('incr', KEYS[1])",
        &["1", &others[0]],
    );
    assert_eq!(reply, Value::Integer(2));
    // On a busy machine one of them may begin only now.
    eventually("all of them run", || {
        let stats = raw.call("SCRIPT STATS");
        stats.items()[1].items().len() == scripts
    });
    check(&mut raw, "SCRIPT KILL", "OK");
    for raw in &mut loops {
        let text = raw.read().text();
        assert!(text.contains("killed by user"), "{text}");
    }
    eventually("nobody is busy", || raw.call("PING").text() == "PONG");
    assert!(raw.call("GET held").is_nil());
}

#[test]
fn with_one_thread_an_endless_script_holds_up_nobody_who_does_not_need_its_shard() {
    endless_scripts_hold_nobody_up(1, 1);
}

#[test]
fn as_many_endless_scripts_as_threads_hold_nobody_up() {
    endless_scripts_hold_nobody_up(2, 3);
}

#[test]
fn a_slow_script_is_run_again_elsewhere_and_is_seen_once() {
    let server = Server::start(&Options::shards(16).threads(1));
    let mut raw = server.raw();
    let script = "
        redis.call('incr', KEYS[1])
        redis.call('rpush', 'undeclared', 'x')
        redis.call('publish', 'channel', 'message')
        local x = 0
        for i = 1, 3000000 do x = x + i end
        redis.call('incr', KEYS[1])
        return redis.call('llen', 'undeclared')";
    for turn in 1..4 {
        assert_eq!(
            eval(&mut raw, script, &["1", "counter"]),
            Value::Integer(turn)
        );
        assert_eq!(raw.call("GET counter").text(), (2 * turn).to_string());
    }
}

#[test]
fn a_large_collection_that_a_script_changes_is_not_in_its_way() {
    support::at_each_shard_count(|server| {
        let mut raw = server.raw();
        let mut model: HashMap<String, i64> = HashMap::new();
        let fill = "for i = 1, 2000 do redis.call('rpush', KEYS[1], 'element number ' .. i) end
            return redis.call('llen', KEYS[1])";
        for name in ["one", "two"] {
            assert_eq!(eval(&mut raw, fill, &["1", name]), Value::Integer(2000));
            model.insert(name.to_owned(), 2000);
        }
        let shrink = "redis.call('ltrim', KEYS[1], 1, -1)
            redis.call('hset', 'undeclared', KEYS[1], 1)
            return redis.call('llen', KEYS[1])";
        for name in ["one", "two", "one"] {
            let left = model.get_mut(name).expect("filled");
            *left -= 1;
            assert_eq!(eval(&mut raw, shrink, &["1", name]), Value::Integer(*left));
        }
        assert_eq!(raw.call("HLEN undeclared").integer(), 2);
    });
}

#[test]
fn a_watched_key_is_watched_by_a_transaction_that_runs_again() {
    let server = Server::start(&Options::shards(16));
    let (mut raw, mut other) = (server.raw(), server.raw());
    let slow = "redis.call('incr', 'watched') for i = 1, 3000000 do end return redis.call('get', 'watched')";
    for (meddles, expected) in [(false, "OK 1"), (true, "(nil)")] {
        check(&mut other, "SET watched 0", "OK");
        check(&mut raw, "WATCH watched", "OK");
        check(&mut raw, "MULTI", "OK");
        raw.call("SET x 1");
        eval(&mut raw, slow, &["0"]);
        if meddles {
            check(&mut other, "SET watched 7", "OK");
        }
        let reply = match raw.call("EXEC") {
            Value::Array(items) => items.iter().map(Value::text).collect::<Vec<_>>().join(" "),
            reply if reply.is_nil() => "(nil)".to_owned(),
            reply => reply.show(),
        };
        assert_eq!(reply, expected);
    }
}

#[test]
fn what_a_script_misses_is_told_once_however_often_it_runs() {
    let server = Server::start(&Options::shards(16).with("notify-keyspace-events", "Emx"));
    let (mut raw, mut subscriber) = (server.raw(), server.raw());
    subscriber.call("PSUBSCRIBE *");
    check(&mut raw, "DEBUG SET-ACTIVE-EXPIRE 0", "OK");
    let slow = "redis.call('get', KEYS[1])
        redis.call('get', KEYS[2])
        for i = 1, 5000000 do end
        return 1";
    let reruns = |raw: &mut Raw| match support::is_stand_in() {
        true => String::new(),
        false => figure(raw, "stats", "script_reruns"),
    };
    let before = reruns(&mut raw);
    check(&mut raw, "SET over v PX 1", "OK");
    std::thread::sleep(Duration::from_millis(5));
    let reply = eval(&mut raw, slow, &["2", "never", "over"]);
    assert_eq!(reply, Value::Integer(1));
    if !support::is_stand_in() {
        assert_ne!(reruns(&mut raw), before, "it was undone");
    }
    // A key that expired in the run that was rolled back stays deleted.
    check(&mut raw, "PUBLISH end x", "(integer) 1");
    let mut heard = Vec::new();
    loop {
        let message = subscriber.read();
        let (channel, text) = (message.items()[2].text(), message.items()[3].text());
        if channel == "end" {
            break;
        }
        heard.push(format!("{} {text}", channel.replace("__keyevent@0__:", "")));
    }
    heard.sort();
    assert_eq!(heard, ["expired over", "keymiss never", "keymiss over"]);
}

/// Returns the value of a field of INFO, or of a figure in such a field.
fn figure(raw: &mut Raw, section: &str, name: &str) -> String {
    let (field, part) = name.split_once('.').unwrap_or((name, ""));
    let text = support::info_field(raw, section, field);
    let mut parts = text.split(',');
    let found = parts.find_map(|found| found.strip_prefix(&format!("{part}=")));
    found.unwrap_or(&text).to_owned()
}

#[test]
fn what_was_undone_is_not_counted() {
    let server = Server::start(&Options::shards(16));
    let mut raw = server.raw();
    check(&mut raw, "MSET there 1 text x", "OK");
    check(&mut raw, "CONFIG RESETSTAT", "OK");
    let script = "
        redis.call('get', 'missing')
        redis.call('get', 'there')
        redis.pcall('set', 'only')
        redis.pcall('incr', 'text')
        if ARGV[1] == 'writes' then redis.call('set', 'there', '2') end
        for i = 1, 5000 do redis.call('strlen', 'there') end
        local n = 0
        for i = 1, 5000000 do n = n + i end
        return redis.status_reply('done')";
    for (mode, sets) in [("reads", "0"), ("writes", "1")] {
        check(&mut raw, "CONFIG RESETSTAT", "OK");
        let reruns: u64 = figure(&mut raw, "stats", "script_reruns")
            .parse()
            .expect("a number");
        assert_eq!(eval(&mut raw, script, &["0", mode]).show(), "done");
        let reruns_now: u64 = figure(&mut raw, "stats", "script_reruns")
            .parse()
            .expect("a number");
        // A script that is known to be slow has its own thread from the beginning.
        assert!(mode == "writes" || reruns_now > reruns, "it was undone");
        for (section, name, expected) in [
            ("stats", "keyspace_hits", "5001"),
            ("stats", "keyspace_misses", "1"),
            ("commandstats", "cmdstat_get.calls", "2"),
            ("commandstats", "cmdstat_strlen.calls", "5000"),
            ("commandstats", "cmdstat_set.rejected_calls", "1"),
            ("commandstats", "cmdstat_set.calls", sets),
            ("commandstats", "cmdstat_incr.failed_calls", "1"),
            ("commandstats", "cmdstat_eval.calls", "1"),
            ("errorstats", "errorstat_ERR.count", "2"),
        ] {
            assert_eq!(figure(&mut raw, section, name), expected, "{mode}: {name}");
        }
    }
    // The same in a transaction, whose own commands count once, too.
    let slow = "for i = 1, 5000000 do end return redis.call('get', 'there')";
    check(&mut raw, "CONFIG RESETSTAT", "OK");
    raw.pipeline(&["MULTI", "STRLEN missing", "STRLEN there"]);
    eval(&mut raw, slow, &["0"]);
    assert_eq!(raw.call("EXEC").items().len(), 3);
    for (section, name, expected) in [
        ("commandstats", "cmdstat_strlen.calls", "2"),
        ("commandstats", "cmdstat_get.calls", "1"),
        ("stats", "keyspace_hits", "2"),
        ("stats", "keyspace_misses", "1"),
    ] {
        assert_eq!(figure(&mut raw, section, name), expected, "{name}");
    }
}

#[test]
fn commands_of_the_connection_do_not_make_a_transaction_with_scripts_take_all_shards() {
    let server = Server::start(&Options::shards(16));
    let mut raw = server.raw();
    let mut run = |lines: &[&str], script_at: usize| {
        let before: Vec<u64> = ["one", "several", "all"]
            .iter()
            .map(|extent| {
                let name = match *extent {
                    "one" => "transactions_on_one_shard",
                    "several" => "transactions_on_several_shards",
                    _ => "transactions_on_all_shards",
                };
                figure(&mut raw, "stats", name).parse().expect("a number")
            })
            .collect();
        check(&mut raw, "MULTI", "OK");
        for (at, line) in lines.iter().enumerate() {
            if at == script_at {
                eval(
                    &mut raw,
                    "return redis.call('incr', KEYS[1])",
                    &["1", "{t}a"],
                );
            }
            check(&mut raw, line, "QUEUED");
        }
        if script_at == lines.len() {
            eval(
                &mut raw,
                "return redis.call('incr', KEYS[1])",
                &["1", "{t}a"],
            );
        }
        let reply = raw.call("EXEC");
        assert_eq!(reply.items().len(), lines.len() + 1, "{lines:?}: {reply:?}");
        let after: Vec<u64> = [
            "transactions_on_one_shard",
            "transactions_on_several_shards",
            "transactions_on_all_shards",
        ]
        .iter()
        .map(|name| figure(&mut raw, "stats", name).parse().expect("a number"))
        .collect();
        let extent = after
            .iter()
            .zip(&before)
            .position(|(after, before)| after > before);
        ["one", "several", "all"][extent.expect("it was counted")]
    };
    for (lines, script_at, expected) in [
        (&["INCR {t}b"][..], 1, "one"),
        (
            &["PING", "SELECT 1", "SET {t}b 1", "SELECT 0", "CLIENT ID"][..],
            2,
            "one",
        ),
        (&["CLIENT SETNAME me", "SET {t}b 1"][..], 0, "one"),
        (
            &["SET {t}b 1", "CONFIG SET maxclients 9000", "PUBLISH c m"][..],
            1,
            "one",
        ),
        (
            &["PUBLISH c m", "SCRIPT EXISTS x", "MSET {t}b 1 {u}c 2"][..],
            1,
            "several",
        ),
        (
            &["CLIENT SETNAME me", "CLIENT NO-TOUCH ON", "LATENCY HELP"][..],
            3,
            "one",
        ),
        // The first command's effect on the others could not be rolled back if the script needed more.
        (&["CONFIG SET maxclients 9000"][..], 1, "all"),
        (&["DBSIZE"][..], 1, "all"),
    ] {
        assert_eq!(run(lines, script_at), expected, "{lines:?}");
    }
    assert_eq!(raw.call("CLIENT GETNAME").text(), "me");
    assert_eq!(figure(&mut raw, "stats", "script_runs_on_one_shard"), "0");
    eval(
        &mut raw,
        "return redis.call('incr', KEYS[1])",
        &["1", "{t}a"],
    );
    assert_eq!(figure(&mut raw, "stats", "script_runs_on_one_shard"), "1");
    raw.pipeline(&["MULTI", "SET {t}b 1", "EXEC"]);
    let plain: u64 = figure(&mut raw, "stats", "transactions_on_one_shard")
        .parse()
        .expect("a number");
    assert!(plain > 0);
}

#[test]
fn scripts_that_write_nothing_run_while_writes_are_paused() {
    let server = Server::start(&Options::shards(4));
    let (mut raw, mut other) = (server.raw(), server.raw());
    check(&mut raw, "SET x y", "OK");
    let library = "#!lua name=l
        redis.register_function{function_name='reads', callback=function() return 'f' end, flags={'no-writes'}}
        redis.register_function{function_name='writes', callback=function() return 'f' end}";
    raw.command(&["FUNCTION", "LOAD", library]);
    let reads = "#!lua flags=no-writes\nreturn redis.call('get', 'x')";
    let sha = raw.command(&["SCRIPT", "LOAD", reads]).text();
    let plain_sha = raw.command(&["SCRIPT", "LOAD", "return 1"]).text();
    let free: &[&[&str]] = &[
        &["EVAL", reads, "0"],
        &["EVAL_RO", "return redis.call('get', 'x')", "0"],
        &["EVALSHA", &sha, "0"],
        &["EVALSHA_RO", &plain_sha, "0"],
        &["FCALL", "reads", "0"],
        &["FCALL_RO", "reads", "0"],
    ];
    let held: &[&[&str]] = &[
        &["EVAL", "return 1", "0"],
        &["EVAL", "#!lua\nreturn 1", "0"],
        &["EVALSHA", &plain_sha, "0"],
        &["FCALL", "writes", "0"],
        // The effects of these are unknown.
        &["EVALSHA", "0000000000000000000000000000000000000000", "0"],
        &["FCALL", "unknown", "0"],
    ];
    check(&mut other, "CLIENT PAUSE 60000 WRITE", "OK");
    for words in free {
        assert!(!raw.command(words).is_nil(), "{words:?}");
    }
    check(&mut raw, "MULTI", "OK");
    for words in free {
        assert_eq!(raw.command(words).show(), "QUEUED");
    }
    assert_eq!(raw.call("EXEC").items().len(), free.len());
    for words in held {
        let mut waits = server.raw();
        waits.send(&encode(words));
        let mut queues = server.raw();
        check(&mut queues, "MULTI", "OK");
        assert_eq!(queues.command(words).show(), "QUEUED");
        queues.send(b"EXEC\r\n");
        eventually("both wait", || {
            figure(&mut other, "clients", "blocked_clients") == "2"
        });
        check(&mut other, "CLIENT UNPAUSE", "OK");
        waits.read();
        assert_eq!(queues.read().items().len(), 1);
        check(&mut other, "CLIENT PAUSE 60000 WRITE", "OK");
    }
    check(&mut other, "CLIENT UNPAUSE", "OK");
}

#[test]
fn every_kind_of_thread_has_room_for_scripts_that_go_deep() {
    let deep = "
        local function dive(left)
            local answer
            if left > 0 then
                string.gsub('x', 'x', function() answer = dive(left - 1) end)
                return answer
            end
            local nest = {}
            for i = 1, 990 do nest = {nest} end
            local text = cjson.encode(nest)
            cjson.decode(text)
            return #text
        end
        if ARGV[1] == 'slow' then for i = 1, 5000000 do end end
        return dive(150)";
    for options in [
        Options::shards(4).threads(1),
        Options::shards(4).threads(2),
        Options::shards(4).threads(2).with("runtime", "per-core"),
    ] {
        let server = Server::start(&options);
        // Several clients of one shard: some scripts are run by the thread that releases it, or by its
        // worker.
        std::thread::scope(|scope| {
            for _ in 0..4 {
                scope.spawn(|| {
                    let mut raw = server.raw();
                    for mode in ["fast", "slow", "fast"] {
                        assert_eq!(eval(&mut raw, deep, &["1", "key", mode]).integer(), 1982);
                    }
                });
            }
        });
    }
}
