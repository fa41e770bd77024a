//! Scripts and functions: small random programs of calls, conversions, libraries and errors.
//!
//! Values that differ between runs (addresses of tables) or between 7.0 and 7.2 (fractions as arguments of
//! commands) are not generated.

use super::Family;
use crate::support::Draw;

pub(super) const SCRIPTS: Family = (
    "scripts",
    &[
        (30, "EVAL {script} 1 {key} {value}*"),
        (4, "EVAL_RO {script} 1 {key} {value}*"),
        (2, "EVAL {script} {small} {key}*"),
        (3, "EVAL {flagged_script} 1 {key} {value}"),
        (2, "SCRIPT LOAD {script}"),
        (
            2,
            "SCRIPT EXISTS e0e1f9fabfc9d4800c877a703b823ac0578ff8db {junk}",
        ),
        (1, "SCRIPT FLUSH [SYNC|ASYNC|{junk}]"),
        (1, "SCRIPT ({junk}|KILL|EXISTS)"),
        (
            4,
            "(EVALSHA|EVALSHA_RO) (e0e1f9fabfc9d4800c877a703b823ac0578ff8db|\
             E0E1F9FABFC9D4800C877A703B823AC0578FF8DB|{junk}) {small} {key}*",
        ),
        (4, "FUNCTION LOAD [REPLACE] {library}"),
        (6, "(FCALL|FCALL_RO) (f|g|F|{junk}) {small} {key}* {value}"),
        (2, "FUNCTION LIST [LIBRARYNAME {pattern}] [WITHCODE]"),
        (1, "FUNCTION DELETE (lib|{junk})"),
        (1, "FUNCTION FLUSH [SYNC|{junk}]"),
        (
            1,
            "FUNCTION (STATS|KILL|{junk}|RESTORE {value} [{junk}|FLUSH])",
        ),
    ],
);

/// A word of this family.
pub(super) fn word(draw: &mut Draw, kind: &str) -> Option<Vec<u8>> {
    match kind {
        "script" => Some(script(draw).into_bytes()),
        "flagged_script" => {
            let flags = one(
                draw,
                &[
                    "",
                    " flags=no-writes",
                    " flags=allow-oom,no-cluster",
                    " flags=nosuch",
                    " flags=",
                    " name=x",
                    " flags=allow-cross-slot-keys",
                ],
            );
            let engine = one(draw, &["lua", "lua", "lua", "lua", "js", ""]);
            Some(format!("#!{engine}{flags}\n{}", script(draw)).into_bytes())
        }
        "library" => Some(library(draw).into_bytes()),
        _ => None,
    }
}

fn one<'a>(draw: &mut Draw, pool: &[&'a str]) -> &'a str {
    pool[draw.below(pool.len())]
}

/// Returns a library with one function, as the order of several is unspecified.
fn library(draw: &mut Draw) -> String {
    let head = one(
        draw,
        &[
            "#!lua name=lib\n",
            "#!lua name=lib\n",
            "#!lua name=lib\n",
            "#!lua NAME=lib\n",
            "#!lua name=l-b\n",
            "#!lua\n",
            "#!js name=lib\n",
            "",
        ],
    );
    let name = one(draw, &["'f'", "'f'", "'g'", "'bad-name'", "1"]);
    let body = script(draw);
    let flags = one(
        draw,
        &[
            "",
            ", flags={'no-writes'}",
            ", flags={'allow-oom'}, description='words'",
            ", flags={'nosuch'}",
            ", nosuch=1",
        ],
    );
    match draw.below(8) {
        0 => format!("{head}return 1"),
        1 => format!("{head}{body}"),
        2..5 => {
            format!("{head}redis.register_function({name}, function(KEYS, ARGV) {body}\nend)")
        }
        _ => format!(
            "{head}redis.register_function{{function_name={name}, callback=function(KEYS, ARGV) {body}\nend{flags}}}"
        ),
    }
}

fn script(draw: &mut Draw) -> String {
    let value = |draw: &mut Draw| literal(draw, 2);
    match draw.below(16) {
        0 => "return 1".to_owned(),
        1 | 2 => format!("return redis.{}", call(draw)),
        3 => format!("local a = redis.{} return {{type(a), a}}", call(draw)),
        4 => {
            let arguments = arguments(draw);
            format!(
                "local ok, e = pcall(redis.call, {arguments}) return {{tostring(ok), type(e), e}}"
            )
        }
        5 => format!("return {}", value(draw)),
        6 => format!(
            "local ok, e = pcall(cjson.encode, {}) return {{tostring(ok), e}}",
            value(draw)
        ),
        7 => format!(
            "local ok, e = pcall(cjson.decode, [==[{}]==]) return {{tostring(ok), tostring(type(e)), type(e) ~= 'userdata' and e}}",
            json(draw, 2)
        ),
        8 => format!("return cmsgpack.pack({}, {})", value(draw), value(draw)),
        9 => {
            let bytes: String = (0..draw.below(8))
                .map(|_| format!("\\{}", draw.below(256)))
                .collect();
            let name = one(draw, &["unpack", "unpack_one", "unpack"]);
            format!(
                "local t = {{pcall(cmsgpack.{name}, '{bytes}')}} t[1] = tostring(t[1]) for i = 2, 9 do if t[i] ~= t[i] or t[i] == nil then t[i] = 'none' end end return t"
            )
        }
        10 => {
            let format = packing(draw);
            format!(
                "local t = {{pcall(struct.pack, '{format}', {}, {}, {})}} t[1] = tostring(t[1]) if t[1] == 'false' then t[2] = t[2]:gsub('to .-%(', '(') end return t",
                number(draw),
                number(draw),
                text(draw)
            )
        }
        11 => {
            let format = packing(draw);
            format!(
                "local t = {{pcall(struct.unpack, '{format}', 'abc\\0\\1\\2defghijklm\\0', {})}} for i = 1, #t do t[i] = tostring(t[i]) end if t[1] == 'false' then t[2] = t[2]:gsub('to .-%(', '(') end return t",
                draw.below(5)
            )
        }
        12 => {
            let name = one(
                draw,
                &[
                    "band", "bor", "bxor", "lshift", "rshift", "arshift", "rol", "ror", "tohex",
                ],
            );
            format!("return bit.{name}({}, {})", number(draw), draw.below(70))
        }
        13 => wrong(draw).to_owned(),
        14 => format!(
            "math.randomseed({}) return {{tostring(math.random()), math.random({}), math.random(-5, {})}}",
            draw.below(1000),
            draw.below(100),
            draw.below(10)
        ),
        _ => format!(
            "redis.setresp({}) local a = redis.{} return a",
            one(draw, &["2", "3", "3", "4"]),
            call(draw)
        ),
    }
}

/// Returns a script that is wrong, or nearly.
fn wrong(draw: &mut Draw) -> &'static str {
    const SCRIPTS: &[&str] = &[
        "return nosuch",
        "nosuch = 1",
        "error('text')",
        "error({err='CODE text'})",
        "error()",
        "return redis.call()",
        "return redis.call({})",
        "return redis.call(nil)",
        "return redis.pcall('nosuch')",
        "return {err='CODE text'}",
        "return {err='one'}",
        "return {ok='a b'}",
        "return redis.error_reply('CODE text')",
        "return redis.error_reply('one')",
        "return redis.error_reply('-one')",
        "return redis.status_reply('text')",
        "return redis.status_reply(1, 2)",
        "return redis.sha1hex(ARGV[1] or 'x')",
        "return redis.sha1hex()",
        "return +",
        "local a = nil; return a.b",
        "return #KEYS + #ARGV",
        "return {KEYS[1], ARGV[1], ARGV[2]}",
        "return tostring(0.1 + 0.2)",
        "return tostring(1e15) .. tostring(-0) .. tostring(2^53)",
        "return {1.9, -1.9, 3.0, 2^31}",
        "return {1, nil, 3}",
        "return {false, true, 0}",
        "return setmetatable({}, {})",
        "redis.log(redis.LOG_DEBUG, 'x')",
        "redis.log('x')",
        "redis.log(9, 'x')",
        "redis.setresp('x')",
        "redis.set_repl(17)",
        "return redis.replicate_commands()",
        "string.rep('x', -1)",
        "return string.format('%5.1f|%s|%d|%x', 1.25, 'a', 3, 255)",
        "return ('abc'):rep(3):gsub('b', 'X')",
        "return ('key=value'):match('(%w+)=(%w+)')",
        "return table.concat({1, 2, 'x'}, ',')",
        "return pcall(error, 'x', 2) and 1 or 0",
        "return select('#', 1, nil, nil)",
        "return next({}) == nil",
        "return redis.call('select', 1)",
        "return redis.call('multi')",
        "local t = {} for i = 1, 20 do t[i] = i end return t",
        "return tonumber('0x10') + tonumber('10', 2)",
        "return unpack({1, 2, 3})",
        "return math.floor(-1.5) .. math.max(1, 2)",
        "return redis.call('set', KEYS[1], ARGV[1], 'nosuch')",
        "if redis.call('get', KEYS[1]) == ARGV[1] then return redis.call('del', KEYS[1]) else return 0 end",
        "return xpcall(error, function(e) return type(e) end) and 1",
        "return coroutine.resume(coroutine.create(function() error('x') end)) and 1 or 0",
    ];
    SCRIPTS[draw.below(SCRIPTS.len())]
}

fn call(draw: &mut Draw) -> String {
    let name = one(draw, &["call", "pcall"]);
    format!("{name}({})", arguments(draw))
}

fn arguments(draw: &mut Draw) -> String {
    let form = one(
        draw,
        &[
            "'get', K",
            "'set', K, A",
            "'del', K",
            "'incr', K",
            "'incrby', K, N",
            "'append', K, A",
            "'lpush', K, A, N",
            "'lrange', K, 0, -1",
            "'lpop', K",
            "'hset', K, A, N",
            "'hgetall', K",
            "'hget', K, A",
            "'sadd', K, A",
            "'scard', K",
            "'zadd', K, N, A",
            "'zrange', K, 0, -1, 'withscores'",
            "'zscore', K, A",
            "'type', K",
            "'exists', K, K",
            "'strlen', K",
            "'mget', K, K, 'nosuch'",
            "'ping'",
            "'echo', A",
            "'nosuch', K",
            "'get'",
            "'set', K",
            "'object', 'nosuch', K",
            "'config', 'nosuch'",
            "'subscribe', K",
            "'auth', A",
            "'expire', K, 100000",
            "'persist', K",
            "'setrange', K, 2, A",
            "'getrange', K, 0, N",
        ],
    );
    let mut whole = String::new();
    for letter in form.chars() {
        match letter {
            'K' => whole.push_str(one(
                draw,
                &["KEYS[1] or 'a'", "'a'", "'b'", "'{t}e'", "'c'"],
            )),
            'A' => whole.push_str(&match draw.below(4) {
                0 => "ARGV[1] or 'x'".to_owned(),
                1 => draw.below(100).to_string(),
                _ => text(draw),
            }),
            'N' => whole.push_str(&(draw.below(40) as i64 - 10).to_string()),
            other => whole.push(other),
        }
    }
    whole
}

fn number(draw: &mut Draw) -> String {
    match draw.below(4) {
        0 => (draw.below(300) as i64 - 100).to_string(),
        1 => one(
            draw,
            &[
                "0.5", "-0.5", "1e10", "2^31", "-2^31", "2^40", "1.25", "255",
            ],
        )
        .to_owned(),
        _ => draw.below(70_000).to_string(),
    }
}

fn text(draw: &mut Draw) -> String {
    one(
        draw,
        &[
            "'text'",
            "''",
            "'a b'",
            "'1'",
            "'\\0\\r\\n'",
            "'\"/\\\\'",
            "'1.5'",
            "'longer than the others'",
        ],
    )
    .to_owned()
}

/// Returns a value, with at most one key in each map: the order of several is unspecified.
fn literal(draw: &mut Draw, depth: usize) -> String {
    match draw.below(if depth == 0 { 5 } else { 9 }) {
        0 => number(draw),
        1 => text(draw),
        2 => "true".to_owned(),
        3 => one(draw, &["false", "nil"]).to_owned(),
        4 => one(draw, &["1/0", "cjson.null", "{}", "-1", "2^53"]).to_owned(),
        5 | 6 => {
            let elements: Vec<String> = (0..draw.below(4))
                .map(|_| literal(draw, depth - 1))
                .collect();
            format!("{{{}}}", elements.join(", "))
        }
        7 => {
            let key = one(draw, &["ok", "err", "a", "map", "set", "double", "b"]);
            format!("{{{key}={}}}", literal(draw, depth - 1))
        }
        _ => format!("{{[{}]={}}}", draw.below(20), literal(draw, depth - 1)),
    }
}

fn json(draw: &mut Draw, depth: usize) -> String {
    match draw.below(if depth == 0 { 6 } else { 9 }) {
        0 => (draw.below(3000) as i64 - 1000).to_string(),
        1 => one(
            draw,
            &[
                "1.5", "-0.25e2", "1e3", "01", "+1", "0x1f", "nan", "inf", "-", ".",
            ],
        )
        .to_owned(),
        2 => one(
            draw,
            &[
                "\"text\"",
                "\"\"",
                "\"\\u00e9\"",
                "\"\\ud83d\\ude00\"",
                "\"\\n\\/\"",
                "\"\\x\"",
                "\"open",
            ],
        )
        .to_owned(),
        3 => one(draw, &["true", "false", "null", "nul", "tru", "True", ""]).to_owned(),
        4 => one(
            draw,
            &["{", "}", "[", "]", ",", ":", "[1 2]", "{1:2}", "{\"a\" 1}"],
        )
        .to_owned(),
        5 => " 7 ".to_owned(),
        6 | 7 => {
            let elements: Vec<String> = (0..draw.below(4)).map(|_| json(draw, depth - 1)).collect();
            format!("[{}]", elements.join(","))
        }
        _ => format!("{{\"a\":{}}}", json(draw, depth - 1)),
    }
}

fn packing(draw: &mut Draw) -> String {
    let format: String = (0..1 + draw.below(4))
        .map(|_| {
            one(
                draw,
                &[
                    "b", "B", "h", "H", "i", "I", "i3", "I8", "l", "L", "T", "x", ">", "<", "!",
                    "!4", " ", "s", "c2", "c0", "f", "d", "i16", "q", "!3", "i33",
                ],
            )
        })
        .collect();
    // Which length a huge float is, C does not define.
    match format.contains(['d', 'f']) {
        true => format.replace("c0", ""),
        false => format,
    }
}
