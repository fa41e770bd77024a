//! Long inputs are processed by our functions: the results are those of Lua's own.

use super::Bench;

/// Scripts that return a list of true values only, if our functions agree with Lua's own.
pub(super) const SAME: &[&str] = &[
    "local n = 300000 local s = ('aBc1'):rep(n)
     return {s:upper() == ('ABC1'):rep(n), s:lower() == ('abc1'):rep(n), #s:upper() == 4 * n}",
    "local n = 300000 local s = ('abc'):rep(n) return {s:reverse() == ('cba'):rep(n), s:reverse():reverse() == s}",
    "return {#('ab'):rep('300000') == 600000, ('ab'):rep(-1) == '', (''):rep(1e9) == '', ('ab'):rep(300000.9) == ('ab'):rep(300000),
       select(2, pcall(string.rep, 'x', 2^30)) == 'not enough memory'}",
    "local s = ('x'):rep(300000) local quoted = ('\\0\\r\\n\"\\\\'):rep(60000)
     return {('%s|%d|%5.1f|%%|%c|%x'):format(s, 7, 1.25, 65, 255) == s .. '|7|  1.2|%|A|ff',
       s:format() == s, (s .. '%5s|%-5s|%.2s'):format('a', 'b', 'cde') == s .. '    a|b    |cd',
       ('%q'):format(s) == '\"' .. s .. '\"', loadstring('return ' .. ('%q'):format(quoted))() == quoted,
       ('%s%s'):format(s, 'a\\0b') == s .. 'a', (s .. '%i'):format('12') == s .. '12'}",
    "local s = ('x'):rep(300000)
     local function why(...) local _, text = pcall(function(...) return (string.format(...)) end, ...) return text:match('[^:]*$') end
     return {why(s .. '%d') == why('%d'), why(s .. '%y', 1) == why('%y', 1), why(s .. '%123d', 1) == why('%123d', 1),
       why(s .. '%', 1) == why('%', 1), why(s .. '%d', 'x') == \" bad argument #2 to 'format' (number expected, got string)\",
       why(s .. '%d') == \" bad argument #2 to 'format' (no value)\", why(s .. '%s', {}):find('string expected, got table') ~= nil}",
    "local t, s = {}, '' for i = 1, 30000 do t[i] = i end
     for i = 1, 30000, 3000 do s = s .. table.concat(t, ',', i, i + 2999) .. (i < 27001 and ',' or '') end
     local long = ('-'):rep(20000) local joined = table.concat(t, long, 1, 10)
     return {table.concat(t, ',') == s, table.concat(t, 1):sub(1, 5) == '11213', #joined == 11 + 9 * 20000,
       table.concat(t, ',', 2, 29999) == s:sub(3, -7), table.concat(t, ',', '5', '20004') == table.concat(t, ',', 5, 20004),
       joined:sub(1, 2) == '1-', not pcall(table.concat, t, long, 1, 10000), joined:sub(-3) == '-10'}",
    "local t = {} for i = 1, 30000 do t[i] = i end t[20000] = {}
     local ok, text = pcall(table.concat, t, ',')
     return {not ok, text:find(\"invalid value (table) at index 20000 in table for 'concat'\", 1, true) ~= nil}",
    "local t, ok = {}, true for i = 1, 30000 do t[i] = (i * 7919) % 30011 end table.sort(t)
     for i = 2, 30000 do ok = ok and t[i - 1] <= t[i] end
     local s = ('x'):rep(100000) local u = {s .. 'c', s .. 'a', s, s .. 'b'} for i = 5, 30 do u[i] = s end table.sort(u)
     t[5] = {} local failed, text = pcall(table.sort, t)
     return {ok, u[30] == s .. 'c', u[1] == s, not failed, text:find('attempt to compare') ~= nil}",
    "local t = {} for i = 1, 30000 do t[i] = i end
     local first, none, past = table.remove(t, 1), table.remove(t, 0), table.remove(t, 30001)
     local last, fake = table.remove(t), {} for i = 0, 20 do fake[2 ^ i] = i end
     return {first == 1, none == nil, past == nil, last == 30000, #t == 29998, t[1] == 2, t[29998] == 29999,
       table.remove(t, '2') == 3, t[2] == 4, select('#', table.remove(t, 0)) == 0}",
    "local t = {} for i = 1, 300000 do t[i] = i end t[2 ^ 40 + 0.5] = 1 t.x = 1
     return {table.maxn(t) == 2 ^ 40 + 0.5, table.maxn({}) == 0, not pcall(table.maxn, 1)}",
    "local s = ('ab.-'):rep(500000) .. 'x.-y' local function at(...) return table.concat({string.find(...)}, ' ') end
     return {at(s, 'x.-y', 1, true) == '2000001 2000004', at(s, 'x', 1) == '2000001 2000001', at(s, 'y.', 1, true) == '',
       at(s, '', 10, true) == '10 9', at(s, 'ab', 3) == '5 6', at(s, 'ab', -8, true) == '1999997 1999998',
       at(s, 'x.-y', -3, true) == '', at(s, 'x%.%-y', 1) == '2000001 2000004', at(s, 'b\\0', 1) == ''}",
    "local s = ('a,b;'):rep(500000)
     local one, count = s:gsub(',', ';') local two = s:gsub('[,;]', {[','] = '-', [';'] = '+'})
     local three = s:gsub('(%w)', '%1%1', 3) local big, n = ('x'):rep(2000):gsub('x', ('y'):rep(2000))
     return {one == ('a;b;'):rep(500000), count == 500000, two == ('a-b+'):rep(500000), three:sub(1, 8) == 'aa,bb;aa',
       #big == 4000000, n == 2000, not pcall(string.gsub, ('x'):rep(100000), 'x', ('y'):rep(100000))}",
    "local body = ('a = 1 '):rep(10000) local f = loadstring('local a ' .. body .. 'return a')
     local _, named = loadstring(body .. 'a = = 1', '@name') local _, own = loadstring(body .. 'a = = 1')
     local _, odd = loadstring(body .. 'a = = 1', 'x\\0y') local binary = loadstring('\\27' .. body)
     return {f() == 1, named == \"name:1: unexpected symbol near '='\", own:sub(1, 16) == '[string \"a = 1 a',
       odd == \"[string \\\"x\\\"]:1: unexpected symbol near '='\", binary == nil, not pcall(loadstring, body, {}),
       select('#', loadstring(body .. '=')) == 2, loadstring(body .. '\\0') == nil}",
    "local t = {} for i = 1, 100000 do t[i] = {} end local weak = setmetatable({{}}, {__mode = 'v'})
     local before = collectgarbage('count')
     local answers = {collectgarbage() == 0, weak[1] == nil, collectgarbage('step') == true, collectgarbage('count') > 1000}
     t = nil answers[5] = collectgarbage('collect') == 0 answers[6] = collectgarbage('count') < before / 2
     return answers",
    "local t = {} for i = 1, 7000 do t[i] = i end local function many() return unpack(t) end
     return {select('#', pcall(unpack, t)) == 7001, select('#', xpcall(many, many)) == 7001,
       select('#', coroutine.resume(coroutine.create(many))) == 7001, select('#', coroutine.wrap(many)()) == 7000,
       not pcall(xpcall), not pcall(xpcall, many)}",
    "local log = {} local function note(...) log[#log + 1] = table.concat({...}, ' ') end
     local co co = coroutine.create(function(a, b) note(a, b) note(coroutine.yield(1, 2))
       note(select(2, coroutine.resume(co))) note(coroutine.status(co)) error('oops', 0) end)
     note(select(2, coroutine.resume(co, 'x', 'y'))) note(tostring(coroutine.resume(co, 'z')))
     note(select(2, coroutine.resume(co))) note(select(2, pcall(coroutine.resume, 1)):match('coroutine expected'))
     local f = coroutine.wrap(function() error('twice', 0) end)
     note(select(2, pcall(f)):match('twice')) note(select(2, pcall(f)):match('cannot resume dead coroutine'))
     local outer outer = coroutine.wrap(function() local inner = coroutine.wrap(function() outer() end) inner() end)
     note(select(2, pcall(outer)):match('cannot resume normal coroutine'))
     local own own = coroutine.wrap(function() own() end) note(select(2, pcall(own)):match('cannot resume running coroutine'))
     local all = table.concat(log, '|')
     return {all == 'x y|1 2|z|cannot resume running coroutine|running|false|cannot resume dead coroutine|coroutine expected|'
       .. 'twice|cannot resume dead coroutine|cannot resume normal coroutine|cannot resume running coroutine' or all}",
];

#[test]
fn what_is_done_for_long_texts_and_tables_is_what_lua_does() {
    let is_same = |reply: &str| reply.lines().all(|line| line.ends_with(") (integer) 1"));
    let replies = SAME
        .iter()
        .map(|script| (script, Bench::new().eval(script)));
    let others: Vec<_> = replies.filter(|(_, reply)| !is_same(reply)).collect();
    assert!(others.is_empty(), "{others:#?}");
}
