//! Scripts that exhaust resources: time, memory, stack.

use super::{Bench, on_large_stack};
use crate::script::host::Interrupted;

#[test]
fn hostile_patterns_can_be_interrupted_and_do_not_exhaust_the_stack() {
    on_large_stack(|| {
        for script in [
            "return string.find(string.rep('a', 30000), string.rep('a*', 30) .. 'b')",
            "return string.match(string.rep('a', 30000), string.rep('.-', 30) .. 'b')",
            "return (string.gsub(string.rep('(', 300000), '%b()', ''))",
            "for w in string.gmatch(string.rep('a', 30000), '.-.-.-.-b') do end",
        ] {
            let mut bench = Bench::new();
            bench.host.ticks_left = Some(3);
            let reply = bench.eval(script);
            assert!(reply.contains("killed by user"), "{script}: {reply}");
        }
        let mut bench = Bench::new();
        let reply =
            bench.eval("return string.match(string.rep('x', 1000000), string.rep('x?', 1000000))");
        assert!(reply.contains("pattern too complex"), "{reply}");
    });
}

#[test]
fn no_script_leaves_a_finalizer_behind() {
    let reply = Bench::new().eval("return type(rawget(_G, 'newproxy'))");
    assert!(reply.contains("nil"), "{reply}");
    let reply = Bench::new().eval("return newproxy(true)");
    assert!(
        reply.contains("nonexistent global variable 'newproxy'"),
        "{reply}"
    );
}

#[test]
fn patterns_find_the_same_in_either_way() {
    // Our functions search a long text, Lua's own a short one.
    let pad = "local pad = string.rep('-', 20000) ";
    let mut bench = Bench::new();
    for (call, expected) in [
        (
            "('key=value; other=x'):find('(%w+)=(%w+)')",
            "1|9|key|value",
        ),
        ("('  trim  '):match('^%s*(.-)%s*$')", "trim"),
        ("('a,b,,c'):gsub(',', ';')", "a;b;;c|3"),
        ("('hello world'):gsub('o', {o='0'})", "hell0 w0rld|2"),
        (
            "('hello world'):gsub('(l+)', function(c) return #c end)",
            "he2o wor1d|2",
        ),
        ("('abc'):gsub('', '-')", "-a-b-c-|4"),
        ("('abc'):gsub('%w', '%0%0', 2)", "aabbc|2"),
        ("('f(a(b)c)d'):match('%b()')", "(a(b)c)"),
        ("('THE (quick) fox'):find('%((%a+)%)')", "5|11|quick"),
        ("('x = 10'):match('()=()')", "3|4"),
        ("('aXb'):match('%u')", "X"),
        ("('a]b'):match('[]]')", "]"),
        ("('a-b'):match('[a%-]+')", "a-"),
        ("('abab'):match('(ab)%1')", "ab"),
        ("('THE END'):gsub('%f[%a]%a+', 'w')", "w w|2"),
        ("('2024-01-02'):match('(%d+)-(%d+)-(%d+)')", "2024|01|02"),
        ("('a.b'):find('.', 2, true)", "2|2"),
        ("('abc'):find('b', -2)", "2|2"),
        ("('abc'):match('x*')", ""),
        ("tostring(('abc'):match('^b'))", "nil"),
        (
            "pcall(function() return string.match('a', '%') end)",
            "false|user_script:1: malformed pattern (ends with '%')",
        ),
        (
            "pcall(function() return string.match('a', '[a') end)",
            "false|user_script:1: malformed pattern (missing ']')",
        ),
        (
            "pcall(function() return string.match('a', '(a') end)",
            "false|user_script:1: unfinished capture",
        ),
        (
            "pcall(function() return string.match('a', 'a)') end)",
            "false|user_script:1: invalid pattern capture",
        ),
        (
            "pcall(function() return string.gsub('a', 'a', function() return {} end) end)",
            "false|user_script:1: invalid replacement value (a table)",
        ),
    ] {
        let show = "local t = {PLACE} for i = 1, #t do t[i] = tostring(t[i]) end return table.concat(t, '|')";
        bench.check(&show.replace("PLACE", call), &format!("{expected:?}"));
        // Do the same with our functions, regardless of the pattern's weight.
        let forced = call
            .replace("string.match(", "slow.match(")
            .replace("string.gsub(", "slow.gsub(");
        let forced = match forced.strip_prefix("tostring(") {
            Some(rest) => format!("tostring({}", by_ours(rest)),
            None => by_ours(&forced),
        };
        let script = format!(
            "local slow = redis_patterns {}",
            show.replace("PLACE", &forced)
        );
        let reply = bench.eval_with_patterns(&script);
        assert_eq!(reply, format!("{expected:?}"), "{forced}");
    }
    bench.check(
        &format!("{pad} return ('x' .. pad):match('(%w+).-$')"),
        "\"x\"",
    );
}

/// Rewrites a call of `('text'):find(…)` as `slow.find('text', …)`, which calls our function.
fn by_ours(call: &str) -> String {
    if !call.starts_with("('") || call.contains(", true)") {
        return call.to_owned();
    }
    let (text, rest) = call[1..].split_once("'):").expect("a method");
    let (name, arguments) = rest.split_once('(').expect("arguments");
    format!("slow.{name}({text}', {arguments}")
}

#[test]
fn hostile_scripts_get_errors_and_the_server_lives() {
    on_large_stack(|| {
        let mut bench = Bench::new();
        for (script, expected) in [
            (
                "local function f() return 1 + f() end return f()",
                "stack overflow",
            ),
            ("return string.rep('x', 2^30)", "not enough memory"),
            (
                "local s = 'xxxxxxxx' while true do s = s .. s end",
                "not enough memory",
            ),
            (
                "local t = {} while true do t[#t + 1] = {} end",
                "not enough memory",
            ),
            (
                "local t = {} for i = 1, 9000 do t[i] = 1 end return #{unpack(t)}",
                "too many results to unpack",
            ),
            ("local t = {} t[1] = t return t", "*1"),
            ("return string.format('%99999d', 1)", "invalid format"),
            (
                "local function f() local ok, e = pcall(f) if not ok then error(e, 0) end end f()",
                "",
            ),
            (
                "local f f = function() return string.gsub('x', 'x', f) end return f()",
                "overflow",
            ),
            (
                "local s = string.rep('(', 300) .. '1' .. string.rep(')', 300) return loadstring('return ' .. s)()",
                "",
            ),
            (
                "return #cjson.encode(string.rep('\\1', 100000000))",
                "not enough memory",
            ),
        ] {
            let reply = bench.eval(script);
            if expected == "*1" {
                assert!(reply.ends_with("(error) ERR reached lua stack limit"));
            } else {
                assert!(
                    reply.contains(expected),
                    "{script}: {}",
                    &reply[..reply.len().min(300)]
                );
            }
            bench.check("return 'alive'", "\"alive\"");
        }
    });
}

#[test]
fn a_killed_script_ends_whatever_it_catches() {
    on_large_stack(|| {
        for script in [
            "while true do end",
            "while true do pcall(function() while true do end end) end",
            "local function f() while true do end end while true do xpcall(f, function(e) return e end) end",
            "while true do local c = coroutine.create(function() while true do end end) coroutine.resume(c) end",
            "local c = coroutine.wrap(function() while true do end end) while true do pcall(c) end",
            "local f = function() while 1 do redis.call('get', 'x') end end while 1 do pcall(f) end",
            "local t = setmetatable({}, {__index = function() while true do end end}) while true do pcall(function() return t.x end) end",
            "while true do pcall(table.sort, {3, 2, 1}, function() while true do end end) end",
            "while true do pcall(string.gsub, 'abc', '.', function() while true do end end) end",
        ] {
            let mut bench = Bench::new();
            bench.host.ticks_left = Some(3);
            let reply = bench.eval(script);
            assert!(reply.contains("killed by user"), "{script}: {reply}");
            assert_eq!(bench.last.interrupted, Some(Interrupted::Killed));
            bench.host.ticks_left = None;
            bench.check("return 1", "(integer) 1");
        }
    });
}

#[test]
fn a_unit_that_is_to_run_again_calls_nothing_more() {
    let mut bench = Bench::new();
    bench.host.calls_left = Some(2);
    bench.eval(
        "redis.call('set', 'a', 1) redis.call('set', 'b', 1) pcall(redis.call, 'set', 'c', 1)
         redis.call('set', 'd', 1) while true do pcall(redis.call, 'set', 'e', 1) end",
    );
    assert_eq!(bench.last.interrupted, Some(Interrupted::Again));
    assert_eq!(bench.host.strings.len(), 2);
    bench.host.calls_left = None;
    bench.check("return redis.call('get', 'a')", "\"1\"");
}
