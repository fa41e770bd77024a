//! Long-running scripts as other clients see them: shown by SCRIPT STATS, and ended by SCRIPT KILL and
//! FUNCTION KILL as a whole or not at all.

use std::time::Duration;

use crate::support::{self, Options, Server, eventually};
use crate::wire::{Raw, Value};

fn words(words: &[&str]) -> Vec<u8> {
    let mut bytes = format!("*{}\r\n", words.len());
    for word in words {
        bytes += &format!("${}\r\n{word}\r\n", word.len());
    }
    bytes.into_bytes()
}

fn ask(raw: &mut Raw, given: &[&str]) -> Value {
    raw.send(&words(given));
    raw.read()
}

/// Returns the running scripts, each as alternating fields and values.
fn running(raw: &mut Raw) -> Vec<Vec<Value>> {
    let stats = raw.call("SCRIPT STATS");
    assert_eq!(stats.items()[0].text(), "running");
    let running = stats.items()[1].items().iter();
    running.map(|run| run.items().to_vec()).collect()
}

fn field<'v>(run: &'v [Value], name: &str) -> &'v Value {
    let mut fields = run.chunks_exact(2);
    let found = fields.find(|field| field[0].text() == name);
    &found.unwrap_or_else(|| panic!("no {name} in {run:?}"))[1]
}

#[test]
fn a_kill_that_is_answered_with_ok_leaves_nothing_of_a_script() {
    const ROUNDS: usize = 250;
    // As redis-server has one thread, its scripts are killed when they are past their time only.
    if support::is_stand_in() {
        return;
    }
    let server = Server::start(&Options::shards(4).threads(2));
    let (mut raw, mut killer) = (server.raw(), server.raw());
    let script = "for i = 1, tonumber(ARGV[1]) do end
        redis.call('set', 'one', ARGV[3])
        for i = 1, tonumber(ARGV[2]) do end
        redis.call('set', 'two', ARGV[3])
        return 'done'";
    // The number that makes it run beyond its slice and move to its own thread, under this machine's present
    // load; adjusted in each round.
    let mut spins = 1_000_000;
    let mut draw = support::Draw::new(14);
    let mut killed = 0;
    for round in 0..ROUNDS {
        let round = round.to_string();
        let (first, second) = (spins, spins / 30);
        ask(&mut raw, &["DEL", "one", "two"]);
        raw.send(&words(&[
            "EVAL",
            script,
            "0",
            &first.to_string(),
            &second.to_string(),
            &round,
        ]));
        // Kills from some moment on, until one is answered or the script is done.
        std::thread::sleep(Duration::from_micros(draw.below(20_000) as u64));
        let mut answers = (0..30).map(|_| killer.call("SCRIPT KILL").text());
        let found = answers.find(|answer| !answer.starts_with("NOTBUSY"));
        spins = match found {
            None => (spins + spins / 4).min(1_000_000_000),
            Some(_) => spins - spins / 32,
        };
        let is_killed = found.as_deref() == Some("OK");
        let reply = raw.read().text();
        let kept = ["one", "two"].map(|key| killer.call(&format!("GET {key}")).show());
        match reply.as_str() {
            "done" => {
                assert!(!is_killed, "round {round}: killed, and went on");
                let round = format!("\"{round}\"");
                assert_eq!(kept, [round.clone(), round]);
            }
            text => {
                assert!(text.contains("killed by user"), "{text}");
                assert_eq!(
                    kept,
                    ["(nil)", "(nil)"],
                    "round {round}: half of it is left"
                );
                killed += 1;
            }
        }
    }
    assert!(killed > 0, "none of {ROUNDS} was killed");
}

#[test]
fn a_kill_ends_all_that_may_be_ended_and_the_log_says_which() {
    if support::is_stand_in() {
        return;
    }
    let options = Options::shards(8)
        .threads(2)
        .with("busy-reply-threshold", "100");
    let server = Server::start(&options);
    let mut raw = server.raw();
    let endless = "redis.call('get', KEYS[1]) while true do end";
    let writer =
        "redis.call('set', KEYS[1], 1) while redis.call('get', KEYS[1]) do end return 'end'";
    let library =
        "#!lua name=lib\nredis.register_function('Forever', function() while true do end end)";
    assert_eq!(ask(&mut raw, &["FUNCTION", "LOAD", library]).text(), "lib");
    let mut scripts: Vec<(Raw, i64)> = Vec::new();
    for key in ["a", "b", "c"] {
        let mut script = server.raw();
        let id = script.call("CLIENT ID").integer();
        script.send(&words(&["EVAL", endless, "1", key]));
        scripts.push((script, id));
    }
    let mut function = server.raw();
    function.send(&words(&["FCALL", "Forever", "0"]));
    let mut wrote = server.raw();
    wrote.send(&words(&["EVAL", writer, "1", "d"]));
    eventually("all of them run", || {
        let all = running(&mut raw);
        let wrote = |run: &Vec<Value>| field(run, "state").text() == "wrote";
        all.len() == 5 && all.iter().filter(|run| wrote(run)).count() == 1
    });
    let all = running(&mut raw);
    for (_, id) in &scripts {
        let mut all = all.iter();
        let run = all.find(|run| field(run, "client-id").integer() == *id);
        let run = run.expect("each is shown");
        assert_eq!(field(run, "kind").text(), "script");
        assert_eq!(field(run, "name").text().len(), 40);
        assert_eq!(field(run, "shards").items().len(), 1);
        assert!(field(run, "duration-ms").integer() >= 0);
    }
    let is_function = |run: &&Vec<Value>| field(run, "kind").text() == "function";
    let shown = all.iter().find(is_function).expect("it is shown");
    assert_eq!(field(shown, "name").text(), "Forever");
    assert_eq!(raw.call("SCRIPT KILL").text(), "OK");
    for (script, id) in &mut scripts {
        let text = script.read().text();
        assert!(text.contains("killed by user"), "{text}");
        let line = format!("of client {id} after");
        assert!(server.log().contains(&line), "{}", server.log());
    }
    eventually("the others are left", || running(&mut raw).len() == 2);
    // The function can be killed, so it is named; then nothing can.
    assert!(raw.call("SCRIPT KILL").text().starts_with("BUSY"));
    assert_eq!(raw.call("FUNCTION KILL").text(), "OK");
    assert!(function.read().text().contains("killed by user"));
    eventually("the function is gone", || running(&mut raw).len() == 1);
    for line in ["SCRIPT KILL", "FUNCTION KILL"] {
        let text = raw.call(line).text();
        assert!(text.starts_with("UNKILLABLE"), "{text}");
    }
}

/// Work that keeps a script running forever, in steps of some tenths of a second that execute next to no
/// instructions.
const SLOW_STEPS: [&str; 16] = [
    "while true do pcall(string.rep, 'x', 2^28) end",
    "local a = string.rep('x', 2^24) local b = a .. 'y' while true do b = b < a .. 'z' and a .. 'y' or a .. 'y' end",
    "local a = string.rep(' ', 2^25) .. '1' while true do local n = a + 1 end",
    "local t = {} for i = 1, 1000000 do t[i] = i % 1000 end while true do pcall(table.sort, t) end",
    "local t = {} for i = 1, 1000000 do t[i] = 'x' end while true do table.concat(t, ',') end",
    "local a = string.rep('a', 2^23) while true do string.gsub(a, '.', '%0') end",
    "local a = string.rep('a', 2^20) .. 'c' while true do string.find(a, string.rep('a', 2^16) .. 'b', 1, true) end",
    "local t = {} for i = 1, 300000 do t[i] = i end while true do cjson.encode(t) cmsgpack.pack(t) end",
    "local s = cmsgpack.pack({string.rep('x', 2^24)}) while true do struct.unpack('c' .. #s, struct.pack('c0', s)) cmsgpack.unpack(s) end",
    "local f = function(...) return string.rep(...) end while true do pcall(coroutine.wrap(f), 'x', 2^24) end",
    "local f = coroutine.wrap(function() while true do string.rep('x', 2^24) coroutine.yield() end end)
        while true do pcall(f) end",
    "local t = {} for i = 1, 300000 do t[i] = {} end while true do collectgarbage() end",
    "local a = string.rep('a = 1 ', 2^20) while true do loadstring(a) end",
    "local a = string.rep('x', 2^24) while true do pcall(string.format, '%s%q', a, a) a:upper() redis.sha1hex(a) end",
    "local t = {} for i = 1, 1000000 do t[i] = i end while true do t[#t + 1] = table.remove(t, 1) table.maxn(t) end",
    "local a = string.rep('a', 2^22) while true do string.find(a, string.rep('[a]', 100) .. 'b') end",
];

#[test]
fn what_takes_long_in_few_instructions_is_busy_and_can_be_killed() {
    if support::is_stand_in() {
        return;
    }
    let options = Options::shards(4)
        .threads(2)
        .with("busy-reply-threshold", "50");
    let server = Server::start(&options);
    for steps in SLOW_STEPS {
        let (mut script, mut other) = (server.raw(), server.raw());
        let text = format!("redis.call('get', KEYS[1]) {steps}");
        script.send(&words(&["EVAL", &text, "1", "key"]));
        // A request that arrives before the script, or before the script is overdue, gets its usual reply.
        eventually(steps, || other.call("GET key").show().contains("BUSY"));
        assert_eq!(other.call("SCRIPT KILL").text(), "OK", "{steps}");
        let reply = script.read().text();
        assert!(reply.contains("killed by user"), "{steps}: {reply}");
        eventually(steps, || running(&mut other).is_empty());
        assert_eq!(other.call("GET key").show(), "(nil)");
    }
}

#[test]
fn a_transaction_that_takes_long_is_shown_and_busy_and_can_not_be_killed() {
    if support::is_stand_in() {
        return;
    }
    let options = Options::shards(4)
        .threads(2)
        .with("busy-reply-threshold", "50");
    let server = Server::start(&options);
    let (mut raw, mut other) = (server.raw(), server.raw());
    let fill = "for i = 1, 40000 do redis.call('rpush', KEYS[1], (i * 7919) % 40009) end return 1";
    assert_eq!(ask(&mut raw, &["EVAL", fill, "1", "list"]).integer(), 1);
    let id = raw.call("CLIENT ID").integer();
    raw.call("MULTI");
    const STEPS: usize = 200;
    for _ in 0..STEPS {
        raw.call("SORT list ALPHA LIMIT 0 1");
    }
    raw.send(b"EXEC\r\n");
    eventually("others hear that it is busy", || {
        other.call("STRLEN list").text().starts_with("BUSY")
    });
    let all = running(&mut other);
    let [run] = all.as_slice() else {
        panic!("one runs: {all:?}");
    };
    assert_eq!(field(run, "kind").text(), "transaction");
    assert_eq!(field(run, "name").text(), "exec");
    assert_eq!(field(run, "client-id").integer(), id);
    assert_eq!(field(run, "shards").items().len(), 1);
    for line in ["SCRIPT KILL", "FUNCTION KILL"] {
        let text = other.call(line).text();
        assert!(text.starts_with("UNKILLABLE"), "{text}");
    }
    assert_eq!(raw.read().items().len(), STEPS);
    assert!(other.call("SCRIPT KILL").text().starts_with("NOTBUSY"));
}
