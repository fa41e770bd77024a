//! Tests of the remaining functions of Lua's own libraries, and of their limits.

use super::*;
use crate::script::{memory, vm};

#[test]
fn functions_of_luas_own_complain_as_luas_own() {
    let mut bench = Bench::new();
    for (script, expected) in [
        (
            "return load(1)",
            "bad argument #1 to 'load' (function expected, got number)",
        ),
        (
            "local x = load() return x",
            "bad argument #1 to 'load' (function expected, got no value)",
        ),
        (
            "return coroutine.resume(1)",
            "bad argument #1 to 'resume' (coroutine expected)",
        ),
        (
            "return coroutine.resume()",
            "bad argument #1 to 'resume' (coroutine expected)",
        ),
        (
            "local x = xpcall(1) return x",
            "bad argument #2 to 'xpcall' (value expected)",
        ),
        (
            "return string.gfind('abc')",
            "bad argument #2 to 'gfind' (string expected, got no value)",
        ),
        (
            "local x = table.insert({}, 1, 2, 3)",
            "wrong number of arguments to 'insert'",
        ),
        (
            "return table.insert({}, {}, 1)",
            "bad argument #2 to 'insert' (number expected, got table)",
        ),
    ] {
        bench.check_error(script, &format!("ERR user_script:1: {expected}"));
    }
    for (script, expected) in [
        (
            "return select(2, pcall(load))",
            "\"bad argument #1 to '?' (function expected, got no value)\"",
        ),
        (
            "return select(2, pcall(coroutine.resume, 1))",
            "\"bad argument #1 to '?' (coroutine expected)\"",
        ),
        (
            "local ok, e = pcall() return {tostring(ok), e}",
            "1) \"false\"\n2) \"attempt to call a boolean value\"",
        ),
        (
            "local ok, e = pcall(nil) return e",
            "\"attempt to call a nil value\"",
        ),
        (
            "local n = 0 local f = load(function() n = n + 1 return ({'return', ' 7'})[n] end) return f()",
            "(integer) 7",
        ),
        (
            "return select(2, load(function() return '\\27Lua' end))",
            "\"bytecode is not accepted\"",
        ),
        (
            "local c = coroutine.create(function(a) local b = coroutine.yield(a + 1) return b * 2 end) \
             local _, x = coroutine.resume(c, 1) local _, y = coroutine.resume(c, 5) return {x, y}",
            "1) (integer) 2\n2) (integer) 10",
        ),
        (
            "local function nest(n) if n == 0 then return 'bottom' end \
             local c = coroutine.create(function() return nest(n - 1) end) \
             local ok, v = coroutine.resume(c) return v end return nest(150)",
            "\"bottom\"",
        ),
        (
            "local c = coroutine.create(function() error({err = 'MY own'}) end) \
             local ok, e, more = coroutine.resume(c) return {tostring(ok), e.err, tostring(more)}",
            "1) \"false\"\n2) \"MY own\"\n3) \"nil\"",
        ),
        (
            "local c = coroutine.create(function() return false, 'x' end) \
             local a, b, d = coroutine.resume(c) return {tostring(a), tostring(b), d}",
            "1) \"true\"\n2) \"false\"\n3) \"x\"",
        ),
        (
            "local t = {} for w in string.gfind('a b c', '%a') do t[#t + 1] = w end return table.concat(t)",
            "\"abc\"",
        ),
    ] {
        bench.check(script, expected);
    }
}

#[test]
fn an_element_is_put_between_others_however_many_are_moved() {
    check_all(&[
        (
            "local t = {1, 2, 3} table.insert(t, 2, 9) table.insert(t, 8) return t",
            "1) (integer) 1\n2) (integer) 9\n3) (integer) 2\n4) (integer) 3\n5) (integer) 8",
        ),
        (
            "local t = {} for i = 1, 30000 do t[i] = i end \
             table.insert(t, 1, 0) table.insert(t, '2', 'x') table.insert(t, -2.5, 'y') \
             local sum = 0 for i = 4, 30003 do sum = sum + t[i] end \
             return {t[-2], tostring(t[-1]), tostring(t[1]), t[2], t[3], sum, t[30003]}",
            "1) \"y\"\n2) \"nil\"\n3) \"nil\"\n4) (integer) 0\n5) \"x\"\n6) (integer) 450015000\n7) (integer) 30000",
        ),
    ]);
}

#[test]
fn elements_that_are_moved_from_far_below_zero_hold_nobody_up() {
    for place in [
        "-2147483648",
        "'-2147483648'",
        "2147483648",
        "-1e6",
        "'-0x7fffffff'",
    ] {
        let mut bench = Bench::new();
        bench.host.ticks_left = Some(3);
        let reply = bench.eval(&format!(
            "local t = {{1}} while true do table.insert(t, {place}, 2) end"
        ));
        assert!(
            reply.starts_with("(error) ERR Script killed"),
            "{place}: {reply}"
        );
    }
}

/// Brackets with more signs between them than an `int` can count would make Lua read beyond the text
/// (CVE-2025-46819). An interpreter has no memory for that many signs: the compiler keeps them all in a buffer,
/// twice while the buffer grows.
#[test]
fn a_bracket_longer_than_the_memory_of_an_interpreter_does_not_compile() {
    let counted = 1usize << 30;
    assert!(memory::MEMORY_BYTES_MAX < counted / 2);
    let mut bench = Bench::new();
    bench.check(
        "local piece, first = ('='):rep(1048576), true \
         local f, why = load(function() if first then first = false return '[' end return piece end) \
         return {tostring(f), why}",
        "1) \"nil\"\n2) \"not enough memory\"",
    );
}

#[test]
fn a_flush_has_the_interpreter_drop_what_it_compiled() {
    let mut bench = Bench::new();
    let used = || vm::with(|vm| vm.lua.used_memory());
    bench.check("return 1", "(integer) 1");
    vm::with(|vm| vm.lua.gc_collect()).expect("it can");
    let before = used();
    for number in 0..100 {
        let script = format!("local t = {{{}}} return {number}", "'a', 1, ".repeat(200));
        bench.check(&script, &format!("(integer) {number}"));
    }
    assert!(used() > before + 100_000, "it keeps what it compiled");
    bench.library.flush();
    bench.check("return 1", "(integer) 1");
    assert!(used() < before + 20_000, "{} bytes of {before}", used());
}
