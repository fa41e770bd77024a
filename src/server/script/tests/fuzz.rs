//! A fuzzer: generates programs from a grammar of Lua with everything available in the sandbox, and mutates
//! scripts of other tests. Lua collects all garbage at every opportunity.
//!
//! `.ci/lua-asan` builds this with Lua's own code under AddressSanitizer, which finds memory faults; without
//! it, only faults that crash are found. `BASALT_FUZZ_SECONDS` sets how long it runs, `BASALT_FUZZ_SEED`
//! repeats a run, and `BASALT_FUZZ_CORPUS` is a folder with more scripts to mutate. The running program is kept
//! in `BASALT_FUZZ_LAST`.

use std::cell::Cell;
use std::time::{Duration, Instant};

use super::long::SAME;
use super::{Bench, known, on_large_stack};
use crate::script::vm;
use crate::sys::lua::attention;
use basalt_commands::command::declaration::ScriptVerb;
use basalt_commands::command::host::scripts as commands;
use basalt_core::base::random::Random;

/// Maximum number of host ticks of a program before it is killed. A tick comes after some hundred instructions
/// or some milliseconds.
const LOOKS_MAX: u32 = 60;

/// Source of random choices.
struct Draw(Random);

impl Draw {
    fn below(&mut self, bound: usize) -> usize {
        self.0.index(bound)
    }

    fn one_in(&mut self, count: usize) -> bool {
        self.below(count) == 0
    }

    fn of<'t>(&mut self, texts: &[&'t str]) -> &'t str {
        texts[self.below(texts.len())]
    }
}

const NAMES: &[&str] = &["a", "b", "c", "d", "e", "f", "t", "u"];

const NUMBERS: &[&str] = &[
    "0",
    "1",
    "2",
    "3",
    "7",
    "-1",
    "-2",
    "31",
    "32",
    "33",
    "64",
    "99",
    "127",
    "200",
    "255",
    "256",
    "1000",
    "7999",
    "8000",
    "65536",
    "2^24",
    "2^31",
    "2^31-1",
    "-2^31",
    "-2^31-1",
    "2^32",
    "2^53",
    "-2^63",
    "2^63",
    "1e308",
    "-1e308",
    "0/0",
    "1/0",
    "0.5",
    "-0.0",
    "1e-320",
    "0x7fffffff",
];

const TEXTS: &[&str] = &[
    "''",
    "'a'",
    "'abc'",
    "'a\\0b'",
    "'\\27Lua'",
    "'[[x]]'",
    "'=name\\0tail'",
    "'@file'",
    "'%d%s%q'",
    "'return 1'",
    "'return ...'",
    "'x = = 1'",
    "'local function f() return f end return f'",
    "[==[\nlong]==]",
    "'k'",
    "'v'",
    "'kv'",
    "'{\"a\":[1,2,{\"b\":null}]}'",
    "'[1,1e400,\"\\\\ud83d\\\\ude00\"]'",
    "'>i4c0!8sl'",
    "'c0'",
    "'%f[%w]%b()'",
    "'(.-)%1'",
    "'[^%]]-'",
    "'()(a*)'",
    "'#'",
    "'collect'",
    "'step'",
    "'count'",
    "'n'",
    "'\\255\\0\\1'",
    "'0x10'",
];

/// Functions that programs call, with their usual number of arguments, which is varied.
const CALLS: &[(&str, usize)] = &[
    ("assert", 2),
    ("collectgarbage", 2),
    ("error", 2),
    ("getmetatable", 1),
    ("ipairs", 1),
    ("load", 2),
    ("loadstring", 2),
    ("next", 2),
    ("pairs", 1),
    ("pcall", 3),
    ("rawequal", 2),
    ("rawget", 2),
    ("rawset", 3),
    ("select", 3),
    ("setmetatable", 2),
    ("tonumber", 2),
    ("tostring", 1),
    ("type", 1),
    ("unpack", 3),
    ("xpcall", 2),
    ("coroutine.create", 1),
    ("coroutine.resume", 3),
    ("coroutine.running", 0),
    ("coroutine.status", 1),
    ("coroutine.wrap", 1),
    ("coroutine.yield", 2),
    ("string.byte", 3),
    ("string.char", 3),
    ("string.dump", 1),
    ("string.find", 4),
    ("string.format", 3),
    ("string.gmatch", 2),
    ("string.gsub", 4),
    ("string.len", 1),
    ("string.lower", 1),
    ("string.match", 3),
    ("string.rep", 2),
    ("string.reverse", 1),
    ("string.sub", 3),
    ("string.upper", 1),
    ("table.concat", 4),
    ("table.foreach", 2),
    ("table.foreachi", 2),
    ("table.getn", 1),
    ("table.insert", 3),
    ("table.maxn", 1),
    ("table.remove", 2),
    ("table.sort", 2),
    ("math.random", 2),
    ("math.fmod", 2),
    ("math.ldexp", 2),
    ("math.max", 3),
    ("math.floor", 1),
    ("cjson.encode", 1),
    ("cjson.decode", 1),
    ("cjson.encode_sparse_array", 3),
    ("cjson.encode_max_depth", 1),
    ("cjson.new", 0),
    ("cmsgpack.pack", 3),
    ("cmsgpack.unpack", 1),
    ("cmsgpack.unpack_one", 2),
    ("cmsgpack.unpack_limit", 3),
    ("struct.pack", 3),
    ("struct.unpack", 3),
    ("struct.size", 1),
    ("bit.tobit", 1),
    ("bit.tohex", 2),
    ("bit.lshift", 2),
    ("bit.bor", 3),
    ("redis.call", 3),
    ("redis.pcall", 3),
    ("redis.sha1hex", 1),
    ("redis.error_reply", 1),
    ("redis.status_reply", 1),
    ("redis.setresp", 1),
    ("redis.log", 2),
    ("redis.acl_check_cmd", 2),
    ("redis.set_repl", 1),
    ("os.clock", 0),
];

const EVENTS: &[&str] = &[
    "__index",
    "__newindex",
    "__call",
    "__concat",
    "__lt",
    "__le",
    "__eq",
    "__add",
    "__unm",
    "__len",
    "__mode",
    "__gc",
    "__tostring",
    "__metatable",
];

const OPERATORS: &[&str] = &[
    "+", "-", "*", "/", "%", "^", "..", "==", "~=", "<", "<=", ">", ">=", "and", "or",
];

/// Generator of programs.
struct Maker<'d> {
    draw: &'d mut Draw,
    text: String,
    /// Number of expressions and statements that the program may still get.
    left: usize,
}

impl Maker<'_> {
    fn put(&mut self, text: &str) {
        self.text.push_str(text);
        self.text.push(' ');
    }

    fn name(&mut self) {
        let name = self.draw.of(NAMES);
        self.put(name);
    }

    fn block(&mut self, depth: usize) {
        for _ in 0..1 + self.draw.below(4) {
            self.statement(depth);
        }
    }

    /// Adds a statement. Most statements are wrapped in `pcall`, so that the program continues after the first
    /// failure.
    fn statement(&mut self, depth: usize) {
        let is_caught = depth > 0 && !self.draw.one_in(4);
        if is_caught {
            self.put("pcall(function()");
        }
        self.plain_statement(depth);
        self.put(if is_caught { "end);" } else { ";" });
    }

    fn plain_statement(&mut self, depth: usize) {
        self.left = self.left.saturating_sub(1);
        let kinds = if depth == 0 || self.left == 0 { 4 } else { 14 };
        match self.draw.below(kinds) {
            0 => {
                let start = self.draw.of(&["local", "", "", "", ""]);
                self.put(start);
                self.name();
                self.put("=");
                self.value(depth);
            }
            1 => self.call(depth),
            2 => {
                self.put("pcall(");
                self.function(depth);
                self.put(")");
            }
            3 => {
                let table = self.draw.of(&["t", "u", "c"]);
                self.put(table);
                self.put("[");
                self.value(0);
                self.put("] =");
                self.value(depth);
            }
            4 => {
                self.put("if");
                self.value(depth - 1);
                self.put("then");
                self.block(depth - 1);
                self.put("else");
                self.block(depth - 1);
                self.put("end");
            }
            5 => {
                let count = self.draw.of(&["1", "3", "20", "300"]);
                let name = self.draw.of(NAMES);
                self.put(&format!("for {name} = 1, {count} do"));
                self.block(depth - 1);
                self.put("end");
            }
            6 => {
                let each = self.draw.of(&[
                    "pairs(t)",
                    "ipairs(u)",
                    "next, t",
                    "string.gmatch('a,b,c', '%w')",
                    "f",
                ]);
                self.put(&format!("for a, b in {each} do"));
                self.block(depth - 1);
                self.put("end");
            }
            7 => {
                self.put("while");
                self.value(1);
                self.put("do");
                self.block(depth - 1);
                if !self.draw.one_in(10) {
                    self.put("break");
                }
                self.put("end");
            }
            8 => self.load(depth),
            9 => self.coroutine(depth),
            10 => self.metatable(depth),
            11 => {
                // Possibly more parameters than Lua's stack can hold.
                let count = 1 + self.draw.below(60);
                let names: Vec<String> = (0..count).map(|at| format!("p{at}")).collect();
                self.put(&format!("local function f({}, ...)", names.join(", ")));
                self.block(depth - 1);
                self.put("return p0, ... end");
            }
            12 => {
                self.put("do");
                self.block(depth - 1);
                self.put("end");
            }
            _ => {
                self.put("local function r(...) if select('#', ...) > 50 then return ... end");
                self.put("return r(1, ...) end a = select('#', r(");
                self.value(depth - 1);
                self.put("))");
            }
        }
    }

    /// Adds a chunk whose reader runs, collects, recurses, yields or fails while it is compiled.
    fn load(&mut self, depth: usize) {
        let name = self.draw.of(&[
            "'=NAME\\0tail'",
            "'@n' .. #tostring({})",
            "'x' .. 1",
            "nil",
            "a",
        ]);
        let first = self
            .draw
            .of(&["nil", "''", "'return '", "'local a = '", "\"error('\"", "1"]);
        let then = self.draw.of(&[
            "'a.b.c()'",
            "'1 = = 2'",
            "'x'",
            "'[==['",
            "'{'",
            "nil",
            "'\\27Lua'",
            "tostring(n)",
        ]);
        self.put("do local n = 0 local f, why = load(function() n = n + 1");
        self.put("for i = 1, 30 do local s = 'NAME' .. i end");
        let act = self.draw.of(&[
            "collectgarbage()",
            "load(function() return nil end, '=NAME\\0x')",
            "pcall(coroutine.yield, n)",
            "if n > 1 then error('reader') end",
            "loadstring('return ' .. n)",
        ]);
        self.put(act);
        self.block(depth - 1);
        self.put(&format!(
            "if n == 1 then return {first} end if n < 5 then return {then} end end, {name})"
        ));
        self.put("collectgarbage() for i = 1, 30 do local s = 'NAME' .. i end a = tostring(why)");
        self.put("if f then b, c = pcall(f, 1) d = tostring(c) e = f end end");
    }

    fn coroutine(&mut self, depth: usize) {
        let made = self.draw.of(&["coroutine.wrap", "coroutine.create"]);
        self.put(&format!("do local co = {made}("));
        self.function(depth);
        self.put(")");
        for _ in 0..1 + self.draw.below(3) {
            let resumed = self.draw.of(&[
                "pcall(co, 1, {})",
                "pcall(coroutine.resume, co, 'x')",
                "c = co",
                "pcall(coroutine.wrap(function() return co() end))",
                "collectgarbage()",
            ]);
            self.put(resumed);
        }
        self.put("end");
    }

    fn metatable(&mut self, depth: usize) {
        self.put("t = setmetatable({1, 2, 3, k = 'v'}, {");
        for _ in 0..1 + self.draw.below(3) {
            let event = self.draw.of(EVENTS);
            self.put(&format!("{event} ="));
            match self.draw.below(4) {
                0 => self.put("t"),
                1 => self.put("'kv'"),
                2 => self.put("rawget"),
                _ => self.function(depth),
            }
            self.put(",");
        }
        self.put("})");
    }

    fn function(&mut self, depth: usize) {
        self.put("function(a, b, ...)");
        if depth > 0 {
            self.block(depth - 1);
        }
        self.put("return");
        self.value(depth.saturating_sub(1));
        self.put("end");
    }

    fn call(&mut self, depth: usize) {
        let (function, count) = CALLS[self.draw.below(CALLS.len())];
        let count = match self.draw.one_in(5) {
            true => self.draw.below(5),
            false => count,
        };
        match self.draw.one_in(8) {
            true => self.put(&format!("{function}(")),
            false => self.put(&format!(
                "pcall({function}{}",
                if count > 0 { "," } else { "" }
            )),
        }
        for at in 0..count {
            if at > 0 {
                self.put(",");
            }
            self.value(depth.saturating_sub(1));
        }
        self.put(")");
    }

    fn value(&mut self, depth: usize) {
        let kinds = if depth == 0 || self.left == 0 { 5 } else { 12 };
        self.left = self.left.saturating_sub(1);
        match self.draw.below(kinds) {
            0 | 1 => self.name(),
            2 => {
                let number = self.draw.of(NUMBERS);
                self.put(number);
            }
            3 => {
                let text = self.draw.of(TEXTS);
                self.put(text);
            }
            4 => {
                let other = self.draw.of(&[
                    "nil",
                    "true",
                    "false",
                    "{}",
                    "redis",
                    "KEYS",
                    "ARGV",
                    "_G",
                    "cjson.null",
                ]);
                self.put(other);
            }
            5 => {
                self.put("{");
                for _ in 0..self.draw.below(4) {
                    self.value(depth - 1);
                    self.put(",");
                }
                self.put("}");
            }
            6 => self.function(depth - 1),
            7 => {
                self.put("(");
                self.value(depth - 1);
                let operator = self.draw.of(OPERATORS);
                self.put(operator);
                self.value(depth - 1);
                self.put(")");
            }
            8 => {
                let count = self.draw.of(&["10", "100", "2000", "70000"]);
                let text = self.draw.of(TEXTS);
                self.put(&format!("string.rep({text}, {count})"));
            }
            9 => {
                self.put("(");
                self.call(depth - 1);
                self.put(")");
            }
            10 => {
                let before = self.draw.of(&["#", "-", "not "]);
                self.put(before);
                self.name();
            }
            _ => {
                self.name();
                self.put("[");
                self.value(depth - 1);
                self.put("]");
            }
        }
    }
}

/// Generates a program from the grammar. All names that the program uses exist.
fn made(draw: &mut Draw) -> String {
    let mut maker = Maker {
        draw,
        text: String::from(
            "local a, b, c, d, e, f, t, u = 1, 'b', {}, nil, 2.5, type, {1, 2, k = 3}, {'x', 'y'} ",
        ),
        left: 60,
    };
    maker.put("f = function(...) return ... end");
    maker.block(4);
    maker.put("return a, tostring(b)");
    maker.text
}

/// Splits a script into words, numbers, signs and spaces.
fn tokens(script: &str) -> Vec<&str> {
    let mut tokens = Vec::new();
    let mut start = 0;
    let is_word = |byte: u8| byte.is_ascii_alphanumeric() || byte == b'_' || byte >= 0x80;
    let bytes = script.as_bytes();
    for at in 1..=bytes.len() {
        let ends = at == bytes.len() || !(is_word(bytes[at - 1]) && is_word(bytes[at]));
        if ends && script.is_char_boundary(at) {
            tokens.push(&script[start..at]);
            start = at;
        }
    }
    tokens
}

/// Mutates a script of other tests in a few places.
fn mutated(draw: &mut Draw, corpus: &[String]) -> String {
    let script = &corpus[draw.below(corpus.len())];
    let other = &corpus[draw.below(corpus.len())];
    let (mut words, others) = (tokens(script), tokens(other));
    for word in &mut words {
        // Replace large numbers: with a full collection at every step, long loops take too long.
        if word.len() > 3 && word.bytes().all(|byte| byte.is_ascii_digit()) {
            *word = "300";
        }
    }
    for _ in 0..1 + draw.below(3) {
        if words.is_empty() {
            break;
        }
        let at = draw.below(words.len());
        match draw.below(7) {
            0 => drop(words.remove(at)),
            1 => words.insert(at, words[draw.below(words.len())]),
            2 => {
                let with = draw.below(words.len());
                words.swap(at, with);
            }
            3 => words[at] = draw.of(NUMBERS),
            4 => words[at] = CALLS[draw.below(CALLS.len())].0,
            5 => words[at] = draw.of(TEXTS),
            _ if !others.is_empty() => {
                let from = draw.below(others.len());
                let until = others.len().min(from + 1 + draw.below(12));
                words.splice(at..at, others[from..until].iter().copied());
            }
            _ => {}
        }
    }
    let mut text = words.concat();
    if draw.one_in(4) {
        text = format!(
            "collectgarbage() for i = 1, 3 do pcall(function(...) {text}\nend, KEYS, ARGV) end"
        );
    }
    text
}

fn corpus() -> Vec<String> {
    let known = known::CASES.iter().map(|(_, script, _)| script);
    let mut scripts: Vec<String> = SAME
        .iter()
        .chain(known)
        .map(|script| (*script).to_owned())
        .collect();
    if let Some(folder) = std::env::var_os("BASALT_FUZZ_CORPUS") {
        let files = std::fs::read_dir(folder).expect("a folder");
        let texts = files.filter_map(|file| std::fs::read_to_string(file.ok()?.path()).ok());
        scripts.extend(texts);
    }
    scripts
}

fn number_of(variable: &str) -> Option<u64> {
    std::env::var(variable).ok()?.parse().ok()
}

thread_local! {
    /// Whether one of our callbacks panicked. That would end a server, but here a script's `pcall` may have
    /// caught it.
    static HAS_PANICKED: Cell<bool> = const { Cell::new(false) };
}

#[test]
fn programs_that_nobody_wrote_leave_the_interpreter_whole() {
    let seconds = number_of("BASALT_FUZZ_SECONDS").unwrap_or(1);
    let seed = number_of("BASALT_FUZZ_SEED");
    let seed = seed.unwrap_or_else(|| basalt_core::base::random::Random::from_system().next_u64());
    let kept = std::env::var_os("BASALT_FUZZ_LAST");
    eprintln!("BASALT_FUZZ_SEED={seed}, for {seconds} s");
    let corpus = corpus();
    attention::install().expect("a handler");
    let told_before = std::panic::take_hook();
    std::panic::set_hook(Box::new(move |panic| {
        HAS_PANICKED.set(true);
        told_before(panic);
    }));
    on_large_stack(move || {
        std::thread::spawn(|| {
            loop {
                std::thread::sleep(Duration::from_millis(2));
                attention::look();
            }
        });
        let until = Instant::now() + Duration::from_secs(seconds);
        let mut told = Instant::now();
        let (mut bench, mut programs, mut failed) = (Bench::new(), 0_u64, 0_u64);
        while Instant::now() < until {
            let own_seed = seed.wrapping_add(programs.wrapping_mul(0x5851_f42d_4c95_7f2d));
            let mut draw = Draw(Random::new(own_seed));
            let program = match draw.one_in(3) {
                true => mutated(&mut draw, &corpus),
                false => made(&mut draw),
            };
            if let Some(path) = &kept {
                let text = format!("-- BASALT_FUZZ_SEED={seed}, program {programs}\n{program}\n");
                std::fs::write(path, text).expect("the file can be written");
            }
            bench.host.ticks_left = Some(LOOKS_MAX);
            // Remove other programs' leftovers, which each collection would have to traverse.
            commands::Scripts::flush(&bench.library);
            let collects = !draw.one_in(4);
            vm::with(|vm| vm.collect_always(collects));
            let arguments: [&[u8]; 4] = [program.as_bytes(), b"1", b"key", b"value"];
            bench.answer(ScriptVerb::Eval, &arguments);
            assert!(!HAS_PANICKED.get(), "program {programs}: {program}");
            failed += u64::from(bench.last.failed);
            programs += 1;
            if told.elapsed() > Duration::from_secs(60) {
                told = Instant::now();
                eprintln!("{programs} programs, {failed} of them failed");
            }
        }
        eprintln!("{programs} programs, {failed} of them failed");
        bench.host.ticks_left = None;
        bench.check("return 'alive'", "\"alive\"");
    });
}
