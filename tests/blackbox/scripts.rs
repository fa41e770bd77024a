//! Scripts and functions over the wire: their replies, their effects as other clients see them, and which of
//! them the server keeps.

use crate::support::{self, Options, Oracle, Server, check};
use crate::wire::Raw;

#[test]
fn long_arguments_of_scripts_do_not_stay() {
    let server = Server::start(&Options::shards(1).threads(1));
    let mut raw = server.raw();
    let long = "x".repeat(6 << 20);
    for _ in 0..4 {
        let reply = raw.command(&["EVAL", "return #ARGV[1]", "0", &long]);
        assert_eq!(reply.integer(), 6 << 20);
    }
    let bytes = memory(&mut raw, "used_memory_vm_eval");
    assert!((1..1 << 20).contains(&bytes), "{bytes} bytes");
    check(&mut raw, "MULTI", "OK");
    for _ in 0..2 {
        let reply = raw.command(&["EVAL", "return #ARGV[1]", "0", &long]);
        assert_eq!(reply.text(), "QUEUED");
    }
    assert_eq!(raw.call("EXEC").items().len(), 2);
    support::eventually("scripts leave nothing long", || {
        memory(&mut raw, "used_memory_vm_eval") < 1 << 20
    });
}

#[test]
fn a_long_reply_within_a_script_does_not_stay() {
    let server = Server::start(&Options::shards(1).threads(1));
    let mut raw = server.raw();
    check(&mut raw, "EVAL 'return 1' 0", "(integer) 1");
    let before = memory(&mut raw, "used_memory");
    let long = "x".repeat(6 << 20);
    for _ in 0..2 {
        assert_eq!(raw.command(&["SET", "k", &long]).text(), "OK");
        let reply = raw.command(&["EVAL", "return #redis.call('get', KEYS[1])", "1", "k"]);
        assert_eq!(reply.integer(), 6 << 20);
        check(&mut raw, "DEL k", "(integer) 1");
        support::eventually("what was read is given back", || {
            memory(&mut raw, "used_memory") < before + (2 << 20)
        });
    }
}

fn memory(raw: &mut Raw, field: &str) -> u64 {
    let info = raw.call("INFO memory").text();
    let bytes = info
        .lines()
        .find_map(|line| line.strip_prefix(field)?.strip_prefix(':'));
    bytes
        .and_then(|bytes| bytes.parse().ok())
        .expect("it is told")
}

#[test]
fn functions_that_were_flushed_are_counted_by_no_thread() {
    let server = Server::start(&Options::shards(4).threads(4));
    let mut clients: Vec<Raw> = (0..16).map(|_| server.raw()).collect();
    for (at, raw) in clients.iter_mut().enumerate() {
        for number in 0..20 {
            let name = format!("f{at}_{number}");
            let code = format!(
                "#!lua name={name}\nredis.register_function('{name}', function() return 1 end)"
            );
            assert_eq!(raw.command(&["FUNCTION", "LOAD", &code]).text(), name);
        }
    }
    let raw = &mut clients[0];
    let bytes = memory(raw, "used_memory_vm_functions");
    assert!((320 * 100..320 * 1000).contains(&bytes), "{bytes} bytes");
    check(raw, "FUNCTION FLUSH ASYNC", "OK");
    assert_eq!(memory(raw, "used_memory_vm_functions"), 0);
}

#[test]
fn functions_are_counted_as_what_they_take_in_the_interpreter() {
    let server = Server::start(&Options::shards(1).threads(1));
    let mut raw = server.raw();
    // Forgetting all scripts has the interpreter collect its garbage.
    let live = |raw: &mut Raw| {
        check(raw, "EVAL 'return 1' 0", "(integer) 1");
        check(raw, "SCRIPT FLUSH", "OK");
        memory(raw, "used_memory_lua")
    };
    let before = live(&mut raw);
    for number in 0..2_000 {
        let name = format!("a_library_of_one_function_with_quite_a_long_name_{number}");
        let code = format!(
            "#!lua name={name}\nredis.register_function('{name}', function(keys, arguments)\n\
             return redis.call('GET', keys[1]) + {number}\nend)"
        );
        assert_eq!(raw.command(&["FUNCTION", "LOAD", &code]).text(), name);
    }
    let took = live(&mut raw) - before;
    let counted = memory(&mut raw, "used_memory_vm_functions");
    let differs = took.abs_diff(counted);
    assert!(differs < took / 16, "{counted} of {took} bytes");
}

#[test]
fn threads_that_wait_give_back_what_they_compiled_of_what_was_flushed() {
    const LIBRARIES: usize = 1_000;
    const THREADS: usize = 3;
    let options = Options::shards(4).threads(THREADS);
    let server = Server::start(&options.with("runtime", "per-core"));
    // Each is served by a thread of its own.
    let mut clients: Vec<Raw> = (0..THREADS).map(|_| server.raw()).collect();
    let name = |number: usize| format!("f{number}");
    for raw in &mut clients {
        check(raw, "EVAL 'return 1' 0", "(integer) 1");
    }
    let before = memory(&mut clients[0], "used_memory");
    for (flush, bytes_each) in [("FUNCTION FLUSH", 500), ("SCRIPT FLUSH", 300)] {
        for number in 0..LIBRARIES {
            let name = name(number);
            let code = format!(
                "#!lua name={name}\nredis.register_function('{name}', function() return '{name}' end)"
            );
            for raw in &mut clients {
                if flush == "SCRIPT FLUSH" {
                    raw.call(&format!("EVAL \"return '{name}'\" 0"));
                    continue;
                }
                raw.command(&["FUNCTION", "LOAD", &code]);
                assert_eq!(raw.command(&["FCALL", &name, "0"]).text(), name);
            }
        }
        let raw = &mut clients[0];
        let full = memory(raw, "used_memory");
        let least = (LIBRARIES * THREADS * bytes_each) as u64;
        assert!(full > before + least, "{before} {full}");
        check(raw, flush, "OK");
        support::eventually("nothing is left of it", || {
            memory(raw, "used_memory") < before + least / 3
        });
    }
}

#[test]
fn a_transaction_is_refused_for_what_its_scripts_say_of_themselves() {
    let server = Server::start(&Options::shards(4));
    let (mut raw, mut other) = (server.raw(), server.raw());
    for (script, expected) in [
        (
            "#!lua\\nreturn 1",
            "(error) EXECABORT Transaction discarded because of: NOREPLICAS Not enough good replicas to write.",
        ),
        ("#!lua flags=no-writes\\nreturn 1", "1) (integer) 1"),
        ("return 1", "1) (integer) 1"),
    ] {
        check(&mut other, "CONFIG SET min-replicas-to-write 0", "OK");
        check(&mut raw, "MULTI", "OK");
        check(&mut raw, &format!("EVAL \"{script}\" 0"), "QUEUED");
        check(&mut other, "CONFIG SET min-replicas-to-write 1", "OK");
        check(&mut raw, "EXEC", expected);
    }
}

#[test]
fn evicted_scripts_are_counted_since_the_last_reset() {
    let server = Server::start(&Options::shards(4));
    let mut raw = server.raw();
    for number in 0..501 {
        raw.call(&format!("EVAL 'return {number}' 0"));
    }
    let evicted = |raw: &mut Raw| {
        let info = raw.call("INFO stats").text();
        info.lines()
            .find(|line| line.starts_with("evicted_scripts"))
            .map(str::to_owned)
    };
    assert_eq!(evicted(&mut raw).as_deref(), Some("evicted_scripts:1"));
    check(&mut raw, "CONFIG RESETSTAT", "OK");
    assert_eq!(evicted(&mut raw).as_deref(), Some("evicted_scripts:0"));
}

#[test]
fn scripts_are_run_cached_and_forgotten() {
    support::at_each_shard_count(|server| {
        let mut raw = server.raw();
        check(&mut raw, "EVAL 'return 1' 0", "(integer) 1");
        check(
            &mut raw,
            "EVAL \"return {redis.call('set', KEYS[1], ARGV[1]), redis.call('get', KEYS[1])}\" 1 k v",
            "1) OK\n2) \"v\"",
        );
        check(
            &mut raw,
            "SCRIPT LOAD 'return ARGV[1]'",
            "\"098e0f0d1448c0a81dafe820f66d460eb09263da\"",
        );
        let sha1 = "098e0f0d1448c0a81dafe820f66d460eb09263da";
        check(&mut raw, &format!("EVALSHA {sha1} 0 x"), "\"x\"");
        check(
            &mut raw,
            &format!("SCRIPT EXISTS {sha1} x e0e1f9fabfc9d4800c877a703b823ac0578ff8db"),
            "1) (integer) 1\n2) (integer) 0\n3) (integer) 1",
        );
        let info = raw.call("INFO memory").text();
        assert!(info.contains("number_of_cached_scripts:3\r\n"), "{info}");
        check(&mut raw, "SCRIPT FLUSH", "OK");
        check(
            &mut raw,
            &format!("EVALSHA {sha1} 0 x"),
            "(error) NOSCRIPT No matching script. Please use EVAL.",
        );
        // A compiled script is known again once it is evaluated.
        check(&mut raw, "EVAL 'return ARGV[1]' 0 y", "\"y\"");
        check(&mut raw, &format!("EVALSHA {sha1} 0 x"), "\"x\"");
        check(
            &mut raw,
            "SCRIPT KILL",
            "(error) NOTBUSY No scripts in execution right now.",
        );
    });
}

#[test]
fn a_script_has_its_own_database_and_runs_in_a_transaction() {
    support::at_each_shard_count(|server| {
        let mut raw = server.raw();
        check(
            &mut raw,
            "EVAL \"redis.call('select', 3) return redis.call('set', 'x', 1)\" 0",
            "OK",
        );
        check(&mut raw, "GET x", "(nil)");
        check(&mut raw, "SELECT 3", "OK");
        check(&mut raw, "GET x", "\"1\"");
        check(&mut raw, "MULTI", "OK");
        check(&mut raw, "INCR x", "QUEUED");
        check(
            &mut raw,
            "EVAL \"return redis.call('incrby', KEYS[1], ARGV[1])\" 1 x 10",
            "QUEUED",
        );
        check(&mut raw, "EVAL \"return redis.call('nosuch')\" 0", "QUEUED");
        check(&mut raw, "GET x", "QUEUED");
        check(
            &mut raw,
            "EXEC",
            "1) (integer) 2\n2) (integer) 12\n3) (error) ERR Unknown Redis command called from script script: \
             206396248e12c6e742fd7296250433c8d7343b74, on @user_script:1.\n4) \"12\"",
        );
    });
}

#[test]
fn what_loads_scripts_may_be_called_by_scripts_where_that_is_allowed() {
    let server = Server::start(&Options::shards(4));
    let mut raw = server.raw();
    check(&mut raw, "DEBUG SET-DISABLE-DENY-SCRIPTS 1", "OK");
    // Texts and errors are those of redis-server 7.0.
    for (line, expected) in [
        (
            "EVAL \"return redis.call('script', 'load', 'return 1')\" 0",
            "\"e0e1f9fabfc9d4800c877a703b823ac0578ff8db\"",
        ),
        (
            "EVALSHA e0e1f9fabfc9d4800c877a703b823ac0578ff8db 0",
            "(integer) 1",
        ),
        (
            "EVAL \"return redis.pcall('script', 'load', 'return (')\" 0",
            "(error) ERR Error compiling script (new function): user_script:1: unexpected symbol near '<eof>'",
        ),
        (
            "EVAL \"return redis.call('function', 'load', ARGV[1])\" 0 \
             \"#!lua name=one\\nredis.register_function('f1', function() return 5 end)\"",
            "\"one\"",
        ),
        ("FCALL f1 0", "(integer) 5"),
        (
            "FUNCTION LOAD \"#!lua name=two\\nredis.register_function('f2', function(k, a) return \
             redis.call('function', 'load', a[1]) end)\"",
            "\"two\"",
        ),
        (
            "FCALL f2 0 \"#!lua name=three\\nredis.register_function('f3', function() return 7 end)\"",
            "\"three\"",
        ),
        ("FCALL f3 0", "(integer) 7"),
        (
            "EVAL \"return redis.pcall('function', 'load', ARGV[1])\" 0 \
             \"#!lua name=three\\nredis.register_function('f4', function() return 7 end)\"",
            "(error) ERR Library 'three' already exists",
        ),
        (
            "EVAL \"return redis.pcall('function', 'load', ARGV[1])\" 0 \
             \"#!lua name=bad\\nredis.call('get', 'x')\"",
            "(error) ERR Error registering functions: ERR user_function:2: Script attempted to access nonexistent \
             global variable 'call'",
        ),
    ] {
        check(&mut raw, line, expected);
    }
    if support::is_stand_in() {
        // redis-server ends itself at the next request.
        return;
    }
    check(
        &mut raw,
        "EVAL \"return {redis.call('script', 'flush'), redis.call('script', 'load', 'return 1')}\" 0",
        "1) OK\n2) \"e0e1f9fabfc9d4800c877a703b823ac0578ff8db\"",
    );
    check(&mut raw, "FCALL f3 0", "(integer) 7");
}

#[test]
fn a_script_never_waits_for_streams() {
    let server = Server::start(&Options::shards(4));
    let mut raw = server.raw();
    check(
        &mut raw,
        "EVAL \"return redis.pcall('XREAD', 'block', 0, 'streams', 's', 0)\" 0",
        "(nil)",
    );
    check(&mut raw, "XGROUP CREATE s g $ MKSTREAM", "OK");
    check(
        &mut raw,
        "EVAL \"return redis.pcall('xreadgroup', 'group', 'g', 'c', 'BLOCK', 0, 'streams', 's', '>')\" 0",
        "(nil)",
    );
}

#[test]
fn messages_of_scripts_count_their_receivers() {
    let server = Server::start(&Options::shards(4));
    let (mut raw, mut subscriber) = (server.raw(), server.raw());
    subscriber.call("SUBSCRIBE c");
    check(
        &mut raw,
        "EVAL \"return {redis.call('publish', 'c', 'one'), redis.call('publish', 'd', 'two')}\" 0",
        "1) (integer) 1\n2) (integer) 0",
    );
    let message = subscriber.read();
    assert_eq!(message.items()[2].text(), "one");
}

#[test]
fn functions_are_loaded_called_listed_and_restored() {
    support::at_each_shard_count(|server| {
        let mut raw = server.raw();
        let code = "#!lua name=lib\\nredis.register_function{function_name='f', callback=function(keys, args) \
                    return redis.call('get', keys[1]) end, flags={'no-writes'}, description='reads'}";
        check(&mut raw, &format!("FUNCTION LOAD \"{code}\""), "\"lib\"");
        check(&mut raw, "SET k v", "OK");
        check(&mut raw, "FCALL f 1 k", "\"v\"");
        check(&mut raw, "FCALL_RO F 1 k", "\"v\"");
        check(
            &mut raw,
            "FUNCTION LIST",
            "1) 1) \"library_name\"\n   2) \"lib\"\n   3) \"engine\"\n   4) \"LUA\"\n   5) \"functions\"\n   \
             6) 1) 1) \"name\"\n         2) \"f\"\n         3) \"description\"\n         4) \"reads\"\n         \
             5) \"flags\"\n         6) 1) no-writes",
        );
        let payload = raw.call("FUNCTION DUMP");
        check(&mut raw, "FUNCTION FLUSH", "OK");
        check(&mut raw, "FCALL f 1 k", "(error) ERR Function not found");
        let reply = raw.command(&[b"FUNCTION".as_slice(), b"RESTORE", payload.bytes()]);
        assert_eq!(reply.show(), "OK");
        check(&mut raw, "FCALL f 1 k", "\"v\"");
        check(&mut raw, "FUNCTION DELETE lib", "OK");
        check(
            &mut raw,
            "FUNCTION STATS",
            "1) \"running_script\"\n2) (nil)\n3) \"engines\"\n4) 1) \"LUA\"\n   2) 1) \"libraries_count\"\n      \
             2) (integer) 0\n      3) \"functions_count\"\n      4) (integer) 0",
        );
    });
}

/// Each fails in its own way, with the line of the error.
const FAILING: &[&str] = &[
    "return string.gsub('rep', '%w+', string)",
    "local x = string.gsub('rep', '%w+', string) return x",
    "return string.rep()",
    "return string.rep({}, 2)",
    "return ('x'):rep({})",
    "return string.rep('')",
    "return unpack({}, 0, 2147483647)",
    "local x = unpack({}, -2147483648, 2147483647) return x",
    "return {pcall(unpack, {}, -1, '2147483647')}",
    "return {unpack({1, 2, 3}, 2), unpack({1, 2}, '1', '2'), unpack({1}, 5, 1), unpack({}, {})}",
    "return string.find('a', '[a')",
    "return string.find('a', '(a')",
    "return string.find('a', 'b', 'x')",
    "return string.match('a', '%f')",
    "return string.gmatch('a')",
    "return string.gsub('a', 'a', '%2')",
    "return string.gsub('abc', 'b', function(x) error('in') end)",
    "return string.gsub('abc', 'b', function(x)\n return redis.call('nosuch') end)",
    "local s = ('x'):rep(20000)\nreturn s:find('x*[x')",
    "local s = ('x'):rep(20000)\nreturn string.gsub(s, 'x*', '%9')",
    "local t = {g = string.gsub} return t.g('x')",
    "return (function() return string.gsub end)()('x')",
    "return table.insert({}, 1, 2, 3)",
    "return table.insert(nil, 1)",
    "return table.insert(redis, 1)",
    "return table.concat({1, {}, 3})",
    "return table.sort({3, 1, 'x'})",
    "return rawset({}, nil, 1)",
    "return rawset(string, 'x', 1)",
    "return setmetatable(1, {})",
    "return setmetatable(_G, {})",
    "local x = setmetatable(_G, {})",
    "return setmetatable(setmetatable({}, {__metatable = 1}), {})",
    "return loadstring()",
    "return loadstring('error(\"x\")')()",
    "return collectgarbage('x')",
    "local function f() return string.rep() end return f()",
    "local function f()\n return string.rep()\nend\nlocal x = f()\nreturn x",
    "local ok, e = pcall(string.rep) return {tostring(ok), tostring(e)}",
    "local ok, e = pcall(function()\n\n return string.rep() end)\n\nreturn e",
    "local ok, e = xpcall(function() return string.rep() end, function(m) return 'H' .. m end) return e",
    "local co = coroutine.wrap(function() return string.rep() end) return co()",
    "local t = setmetatable({}, {__index = function(t, k) return string.rep() end}) return t.foo",
    "error('x', 2)",
    "error({err = 'MY own'})",
    "error(12.5)",
    "return error('x')",
    "assert(false)",
    "return assert(nil, 'msg')",
    "local function f() error('deep', 2) end\nf()",
    "return redis.call('get', {})",
    "return redis.call('get')",
    "return redis.pcall('get')",
    "local e = redis.pcall('get') error(e)",
    "local ok, e = pcall(redis.call, 'get') error(e)",
    "local ok, e = pcall(function() local ok2, e2 = pcall(redis.call, 'nosuch') error(e2) end) return e",
    "redis.call('set', 'k', 'x')\nreturn redis.call('lpush', 'k', 'x')",
    "return redis.error_reply({})",
    "return redis.sha1hex()",
    "return redis.log(1)",
    "return cjson.decode('[1,2')",
    "return cjson.encode(1/0)",
    "return cmsgpack.unpack({})",
    "return cmsgpack.unpack('\\217')",
    "return struct.pack('i')",
    "return struct.unpack('i', 'x')",
    "return bit.band('x')",
    "return math.random(2, 1)",
    "return ARGV[1] + 1",
    "return nosuch()",
    "return nosuch",
    "x = 1",
    "local t = nil\nreturn t.x",
    "return {} < {}",
    "return 1 +",
];

#[test]
fn what_scripts_fail_with_is_what_they_fail_with_on_redis_server() {
    let Some(Oracle(oracle)) = Oracle::start() else {
        return;
    };
    let server = Server::start(&Options::shards(4));
    let (mut ours, mut theirs) = (server.raw(), oracle.raw());
    for script in FAILING {
        let words = ["EVAL", script, "0", "argument"];
        assert_eq!(
            ours.command(&words).show(),
            theirs.command(&words).show(),
            "{script}"
        );
    }
}

#[test]
fn a_set_of_which_little_is_left_is_small_wherever_it_was_drawn_from() {
    support::at_each_shard_count(|server| {
        let mut raw = server.raw();
        let draw = "return redis.call('spop', KEYS[1], ARGV[1])";
        let fails = "redis.call('spop', KEYS[1], ARGV[1]) return redis.call('nosuch')";
        for (prefix, encoding) in [("", "intset"), ("m", "listpack")] {
            for words in [
                &["SPOP", "k", "590"][..],
                &["EVAL", draw, "1", "k", "590"],
                &["EVAL", fails, "1", "k", "590"],
            ] {
                raw.call("DEL k");
                let members: Vec<String> = (0..600).map(|at| format!("{prefix}{at}")).collect();
                raw.call(&format!("SADD k {}", members.join(" ")));
                check(&mut raw, "OBJECT ENCODING k", "\"hashtable\"");
                check(&mut raw, "EXPIRE k 1000", "(integer) 1");
                raw.command(words);
                let shown = format!("\"{encoding}\"");
                check(&mut raw, "OBJECT ENCODING k", &shown);
                check(&mut raw, "SCARD k", "(integer) 10");
                assert!(raw.call("TTL k").integer() > 0, "it keeps its deadline");
            }
        }
    });
}

/// A reader that is asked again, collects all garbage, and makes strings of the length of the chunk's name: the
/// compiler must not have lost that name (the kind of CVE-2025-49844).
const LOST_NAMES: &str = "
    local lost = 0
    for round = 1, 400 do
      local step, kept = 0, {}
      local chunk = load(function()
        step = step + 1
        if step == 1 then return nil end
        if step > 2 then return nil end
        collectgarbage() collectgarbage()
        for number = 1, 300 do kept[number] = string.format('=%04d', number) end
        return 'local nothing = nil; return nothing.field'
      end, '=NAME\\0tail')
      local ok, why = pcall(chunk)
      if not ok and not string.find(why, '^NAME:1:') then lost = lost + 1 end
    end
    return lost";

#[test]
fn the_name_of_a_chunk_is_kept_while_a_reader_collects_garbage() {
    if support::is_stand_in() {
        return;
    }
    let server = Server::start(&Options::shards(4));
    let mut client = server.raw();
    let reply = client.command(&["EVAL", LOST_NAMES, "0"]);
    assert_eq!(reply.show(), "(integer) 0");
    let library =
        format!("#!lua name=lost\nredis.register_function('lost', function() {LOST_NAMES} end)");
    assert_eq!(
        client.command(&["FUNCTION", "LOAD", &library]).show(),
        "\"lost\""
    );
    check(&mut client, "FCALL lost 0", "(integer) 0");
}
