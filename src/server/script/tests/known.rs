//! Known faults of Lua 5.1 and of Redis's scripting, each tested with its published reproduction.

use super::Bench;
use basalt_commands::command::declaration::ScriptVerb;

/// The fault, a script that tries it, and a part of the expected reply.
pub(super) const CASES: &[(&str, &str, &str)] = &[
    // CVE-2014-5461: a vararg function with many parameters that is called with few arguments writes beyond the
    // stack.
    (
        "CVE-2014-5461",
        "local names = {} for i = 1, 199 do names[i] = 'p' .. i end
         local f = loadstring('return function(' .. table.concat(names, ', ') .. ', ...) return ... end')()
         local function deep(n) if n == 0 then return select('#', f()) end local x, y, z = deep(n - 1) return x end
         for n = 1, 180 do assert(coroutine.wrap(function() return deep(n) end)() == 0) end return 'fine'",
        "\"fine\"",
    ),
    // CVE-2021-43519: nested coroutines exhaust the C stack.
    (
        "CVE-2021-43519",
        "local function f() return coroutine.wrap(f)() end local ok, text = pcall(f)
         return tostring(ok) .. tostring(text):match('C stack overflow')",
        "\"falseC stack overflow\"",
    ),
    (
        "CVE-2021-43519",
        "local n = 0 local function f() n = n + 1 return string.gsub('a', '.', f) end
         local ok, text = pcall(f) return {tostring(ok), n < 300, tostring(text):match('overflow')}",
        "1) \"false\"\n2) (integer) 1\n3) \"overflow\"",
    ),
    // Lua 5.1.5, bug 1: the compiler calls a reader again after its end.
    (
        "lua.org 5.1.5: a reader is called again after its end",
        "local calls = 0
         local f = load(function() calls = calls + 1 if calls > 1 then return 'return 1' end end)
         return {calls, tostring(f and f())}",
        "1) (integer) 1\n2) \"nil\"",
    ),
    // Lua 5.1's pattern matching recurses for each character.
    (
        "lua.org: patterns exhaust the stack of C",
        "local ok, text = pcall(string.match, string.rep('x', 400000), string.rep('x?', 400000))
         return tostring(ok) .. text",
        "falsepattern too complex",
    ),
    (
        "lua.org: an invalid order function has sort read outside",
        "local t = {} for i = 1, 200 do t[i] = i end
         local ok, text = pcall(table.sort, t, function() return true end)
         return tostring(ok) .. text",
        "falseinvalid order function for sorting",
    ),
    (
        "lua.org: too many levels of syntax",
        "local f, text = loadstring(string.rep('(', 1000) .. '1' .. string.rep(')', 1000))
         return tostring(f) .. text:match('too many syntax levels')",
        "\"niltoo many syntax levels\"",
    ),
    // CVE-2015-4335: compiled code is run.
    (
        "CVE-2015-4335",
        "local code = string.dump(function() return 1 end)
         local first, why = loadstring(code) local second, also = load(function() local piece = code code = nil return piece end)
         return {tostring(first), why, tostring(second), also}",
        "1) \"nil\"\n2) \"bytecode is not accepted\"\n3) \"nil\"\n4) \"bytecode is not accepted\"",
    ),
    (
        "CVE-2015-4335",
        "local n = 0 local f, why = load(function() n = n + 1 return n == 1 and '' or n == 2 and '\\27Lua' or nil end)
         return type(f) .. n",
        "\"function1\"",
    ),
    // CVE-2015-8080 and CVE-2020-14147: a size in a format overflows.
    (
        "CVE-2015-8080",
        "local ok, text = pcall(struct.pack, '>I2147483648', '10') return tostring(ok) .. text",
        "falseintegral size overflow",
    ),
    (
        "CVE-2020-14147",
        "local log = {} for _, format in ipairs({'i4294967299', 'c99999999999', '!2147483648', 'I2147483647'}) do
           log[#log + 1] = tostring(pcall(struct.pack, format, '10')) .. tostring(pcall(struct.unpack, format, '10'))
         end return table.concat(log)",
        "\"falsefalsefalsefalsefalsefalsefalsefalse\"",
    ),
    // CVE-2018-11219: the sum of position and size overflows.
    (
        "CVE-2018-11219",
        "local log = {}
         for _, at in ipairs({2, 2^31, 2^31 - 1, 2^32, -1, -2^31, 2^53, 2^63}) do
           log[#log + 1] = tostring(pcall(struct.unpack, 'c2147483647', 'abc', at))
           log[#log + 1] = tostring(pcall(struct.unpack, 'lc0', 'abc', at))
         end return table.concat(log):gsub('false', '')",
        "\"\"",
    ),
    // CVE-2018-11218: many, or nested, values need more stack than there is.
    (
        "CVE-2018-11218",
        "local ok, text = pcall(cmsgpack.unpack, string.rep('\\1', 1000000)) return tostring(ok) .. text",
        "falsestack overflow",
    ),
    (
        "CVE-2018-11218",
        "local ok, text = pcall(cmsgpack.unpack, string.rep('\\145', 1000000)) return tostring(ok) .. text",
        "falsestack overflow",
    ),
    (
        "CVE-2018-11218",
        "local t = {} t.t = t return #cmsgpack.pack(t) < 100 and 'cut'",
        "\"cut\"",
    ),
    // CVE-2021-32626: deep nesting exhausts the Lua stack.
    (
        "CVE-2021-32626",
        "local t = {} for i = 1, 100000 do t = {t} end return t",
        "reached lua stack limit",
    ),
    (
        "CVE-2021-32626",
        "local ok, text = pcall(cjson.decode, string.rep('[', 100000)) return tostring(ok) .. text",
        "falseFound too many nested data structures (1001)",
    ),
    (
        "CVE-2021-32626",
        "local t = {} for i = 1, 100000 do t = {t} end local ok, text = pcall(cjson.encode, t) return tostring(ok) .. text",
        "falseCannot serialise, excessive nesting (1001)",
    ),
    // CVE-2022-0543: the library that loads C code is accessible.
    (
        "CVE-2022-0543",
        "local found = {}
         for _, name in ipairs({'package', 'io', 'debug', 'require', 'module', 'dofile', 'loadfile', 'print', 'newproxy',
           'getfenv', 'setfenv', 'gcinfo2'}) do if rawget(_G, name) ~= nil then found[#found + 1] = name end end
         for name in pairs(os) do found[#found + 1] = name end return found",
        "1) \"clock\"",
    ),
    // CVE-2022-24735 and CVE-2025-46818: code shared by all scripts is replaced, to be run by the next one.
    (
        "CVE-2022-24735",
        "local tries = {
           function() redis.call = nil end, function() string.format = nil end, function() _G.x = 1 end, function() x = 1 end,
           function() rawset(_G, 'x', 1) end, function() setmetatable(_G, {}) end, function() rawset(redis, 'call', 1) end,
           function() getmetatable(_G).__index = nil end, function() cjson.encode = nil end,
           function() table.insert(string, 1) end, function() rawset(getmetatable(_G).__index, 'x', 1) end,
           function() math.pi = 3 end, function() setmetatable(redis, nil) end, function() bit.band = nil end,
           function() table.sort(redis) redis[1] = 1 end, function() os.clock = nil end}
         local got = 0 for _, try in ipairs(tries) do if pcall(try) then got = got + 1 end end
         return {got, type(redis.call), type(string.format), type(rawget(_G, 'x')), type(cjson.encode)}",
        "1) (integer) 0\n2) \"function\"\n3) \"function\"\n4) \"nil\"\n5) \"function\"",
    ),
    (
        "CVE-2025-46818",
        "local log = {}
         local of = getmetatable('')
         log[1] = tostring(pcall(function() of.__index = function() return 1 end end))
         log[2] = tostring(pcall(rawset, of, '__index', {}))
         log[3] = tostring(pcall(setmetatable, of, {}))
         log[4] = tostring(pcall(setmetatable, '', {})) .. tostring(pcall(setmetatable, 1, {})) .. tostring(pcall(setmetatable, nil, {}))
         log[5] = tostring(pcall(function() of.__index.len = nil end))
         log[6] = tostring(getmetatable(1)) .. tostring(getmetatable(nil)) .. tostring(getmetatable(type))
         log[7] = ('x'):upper() return table.concat(log, ' ')",
        "\"false false false falsefalsefalse false nilnilnil X\"",
    ),
    // CVE-2022-24834: texts that grow while they are written overflow their length.
    (
        "CVE-2022-24834",
        "local ok, text = pcall(cjson.encode, string.rep('\\1', 60000000)) return tostring(ok) .. text",
        "not enough memory",
    ),
    (
        "CVE-2022-24834",
        "local s = string.rep('x', 50000000) local t = {} for i = 1, 6 do t[i] = s end
         local ok, text = pcall(cmsgpack.pack, t) return tostring(ok) .. text",
        "not enough memory",
    ),
    // CVE-2024-31449: the smallest integer has no negation.
    (
        "CVE-2024-31449",
        "return {bit.tohex(65535, -2147483648), bit.tohex(65535, 2147483647), bit.tohex(65535, -2^31 - 1), bit.tohex(1, 2^32)}",
        "1) \"0000FFFF\"\n2) \"0000ffff\"",
    ),
    // CVE-2024-46981: finalizers of a script run while the interpreter is closed, or in the next script.
    (
        "CVE-2024-46981",
        "local ran = 0 do local t = setmetatable({}, {__gc = function() ran = ran + 1 end}) end
         collectgarbage() collectgarbage() return {ran, type(rawget(_G, 'newproxy'))}",
        "1) (integer) 0\n2) \"nil\"",
    ),
    // CVE-2025-46817: a range of elements overflows.
    (
        "CVE-2025-46817",
        "local got = 0
         for _, range in ipairs({{0, 2147483647}, {-2147483648, 0}, {-2147483648, 2147483647}, {1, 2^32}, {-2^63, 2^63},
           {2147483647, -2147483648}, {'-2147483648', '2147483647'}, {0/0, 1}, {1, 0/0}, {1, 1/0}}) do
           local ok, n = pcall(function() return select('#', unpack({1, 2, 3}, range[1], range[2])) end)
           if ok and n > 3 then got = got + 1 end
         end return got",
        "(integer) 0",
    ),
    // CVE-2025-46819: signs between long brackets are counted in an `int`.
    (
        "CVE-2025-46819",
        "local f = loadstring('return [' .. string.rep('=', 70000) .. '[x]' .. string.rep('=', 70000) .. ']')
         local _, text = loadstring('return [' .. string.rep('=', 100000)) return {f(), type(text)}",
        "1) \"x\"\n2) \"string\"",
    ),
    // CVE-2025-49844: the name of a chunk is collected while the chunk is compiled.
    (
        "CVE-2025-49844",
        "local odd = 0
         for round = 1, 50 do
           local n = 0
           local f, why = load(function() n = n + 1 if n == 1 then return nil end collectgarbage() collectgarbage()
             for i = 1, 300 do local s = 'NAM' .. string.char(65 + i % 26) end return n == 2 and 'error(1' or nil end, '=NAME\\0tail')
           if why and not why:find('NAME', 1, true) then odd = odd + 1 end
         end return odd",
        "(integer) 0",
    ),
    // CVE-2025-67733: an error created by a script contains a line end, followed by more replies.
    (
        "CVE-2025-67733",
        "return {err = 'ERR a\\r\\n+injected\\r\\n'}",
        "(error) ERR a",
    ),
    (
        "CVE-2025-67733",
        "return redis.error_reply('ERR a\\0b\\r\\n+injected')",
        "(error) ERR a",
    ),
    (
        "CVE-2025-67733",
        "return {ok = 'a\\r\\n+injected'}",
        "a  +injected",
    ),
];

#[test]
fn faults_of_others_are_none_here() {
    super::on_large_stack(|| {
        let mut wrong = Vec::new();
        for (fault, script, expected) in CASES {
            let mut bench = Bench::new();
            let reply = bench.eval(script);
            if !reply.contains(expected) {
                wrong.push((fault, script, reply));
            }
            bench.check("return 'alive'", "\"alive\"");
        }
        assert!(wrong.is_empty(), "{wrong:#?}");
    });
}

#[test]
fn what_a_script_answers_is_one_reply() {
    for script in [
        "return {err = 'ERR a\\r\\n+injected\\r\\n'}",
        "return {err = 'ERR a\\n+injected'}",
        "return redis.error_reply('ERR a\\0b\\r\\n+injected')",
        "return redis.error_reply('a\\r+injected')",
        "return redis.status_reply('a\\r\\n+injected')",
        "return {ok = 'a\\r\\n:1'}",
        "error('a\\r\\n:1')",
        "error({err = 'a\\r\\n:1'})",
        "return {double = 1, big_number = '1\\r\\n:1'}",
        "return {big_number = '1\\r\\n:1'}",
        "return {verbatim_string = {format = '\\r\\n:', string = 'x'}}",
        "return redis.pcall('no\\r\\n:1such')",
        "local a\\r = 1",
    ] {
        for protocol in [
            basalt_core::resp::reply::Protocol::Resp2,
            basalt_core::resp::reply::Protocol::Resp3,
        ] {
            let mut bench = Bench::new();
            bench.protocol = protocol;
            let reply = bench.request(ScriptVerb::Eval, &[script.as_bytes(), b"0"]);
            assert_eq!(reply.lines().count(), 1, "{script}: {reply}");
        }
    }
}

/// CVE-2022-24736: texts that are not valid scripts must only cause errors.
#[test]
fn what_is_no_script_is_refused() {
    for script in [
        &b"\x1bLua\x51\0\x01\x04\x08\x04\x08\0"[..],
        b"#!lua",
        b"#!lua\n\x1bLua",
        b"return '\0",
        b"return [==[",
        b"return [====",
        b"--[==[",
        b"return 0x",
        b"return 1e",
        b"return '\\999'",
        b"goto x",
        b"local function",
        b"local t = {...} = 1",
        b"\0",
    ] {
        let reply = Bench::new().request(ScriptVerb::Eval, &[script, b"0"]);
        assert!(reply.starts_with("(error) ERR"), "{script:?}: {reply}");
    }
}

/// Addresses end with the same digit, as allocations are aligned.
#[test]
fn no_script_learns_where_things_lie() {
    let script = "local digits, seen, count = {}, {}, 0
         for i = 1, 200 do
           local t = {} seen[i] = t
           local name = tostring(t)
           assert(name == tostring(t) and name:match('^table: 0x%x+$'), name)
           local digit = name:sub(-1)
           if not digits[digit] then digits[digit] = true count = count + 1 end
         end
         local own = setmetatable({}, {__tostring = function() return 'table: 0x10' end})
         return {count > 8 and 1 or count, tostring(own), tostring(type):match('^function: 0x%x+$') and 'f',
           tostring(coroutine.create(function() end)):match('^thread: 0x') and 't', tostring(nil), tostring(true),
           tostring(12), tostring(cjson.null), tostring(seen[1]) ~= tostring(seen[2]) and 'differ'}";
    let expected = "1) (integer) 1\n2) \"table: 0x10\"\n3) \"f\"\n4) \"t\"\n5) \"nil\"\n6) \"true\"\n7) \"12\"\n\
         8) \"userdata: (nil)\"\n9) \"differ\"";
    let mut bench = Bench::new();
    bench.check(script, expected);
    for script in ["error({})", "error(type)", "pcall(tostring)", "tostring()"] {
        let reply = bench.eval(script);
        assert!(
            !reply.contains("0x55") && !reply.contains("0x7f"),
            "{reply}"
        );
    }
}
