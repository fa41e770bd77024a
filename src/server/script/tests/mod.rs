//! Scripts against a host that keeps strings in a map: the sandbox, conversions, libraries, hostile input.

use std::collections::HashMap;

use super::host::{Call, Host, Interrupted};
use super::library::Library;
use super::{Ended, run};
use basalt_commands::command::declaration::{Command, ScriptVerb};
use basalt_commands::command::host::Server;
use basalt_commands::command::testing::{no_server, render};
use basalt_commands::command::{Args, Out};
use basalt_commands::config::Config;
use basalt_core::resp::reply::Protocol;
use basalt_core::resp::request::Span;
use basalt_engine::evict::Full;

mod fuzz;
mod known;
mod long;
mod own;
mod packages;

/// A single-threaded test server.
struct Bench {
    library: Library,
    host: Map,
    protocol: Protocol,
    last: Ended,
}

struct Map {
    strings: HashMap<Vec<u8>, Vec<u8>>,
    config: Config,
    server: Box<dyn Server>,
    /// Number of ticks until the script is killed, if it is to be killed.
    ticks_left: Option<u32>,
    /// Number of calls until the unit is rolled back to run again, if it is to be.
    calls_left: Option<u32>,
    refused: Vec<String>,
    has_room: bool,
    replays: bool,
}

impl Host for Map {
    fn call(&mut self, call: &Call<'_>, out: &mut Out) -> Result<(), Interrupted> {
        if let Some(left) = &mut self.calls_left {
            *left = left.checked_sub(1).ok_or(Interrupted::Again)?;
        }
        let args = call.args();
        match call.command.full_name {
            "get" => match self.strings.get(args.get(1)) {
                Some(value) => out.bulk(value),
                None => out.null(),
            },
            "set" => {
                self.strings
                    .insert(args.get(1).to_vec(), args.get(2).to_vec());
                out.ok();
            }
            "del" => out.integer(self.strings.remove(args.get(1)).is_some().into()),
            "echo" => out.raw(args.get(1)),
            "mget" => {
                out.array(args.len() - 1);
                for key in args.from(1) {
                    out.bulk(key);
                }
            }
            _ => out.error("ERR not known here"),
        }
        Ok(())
    }

    fn tick(&mut self) -> Result<(), Interrupted> {
        match &mut self.ticks_left {
            None => Ok(()),
            Some(0) => Err(Interrupted::Killed),
            Some(left) => {
                *left -= 1;
                Ok(())
            }
        }
    }

    fn denial(&self, _: &Call<'_>, _: bool) -> Option<String> {
        None
    }

    fn make_room(&mut self) -> Result<(), Full> {
        match self.has_room {
            true => Ok(()),
            false => Err(Full::Memory),
        }
    }

    fn replays(&self) -> bool {
        self.replays
    }

    fn note_refused(&mut self, _: Option<&'static Command>, text: &[u8]) {
        self.refused
            .push(String::from_utf8_lossy(text).into_owned());
    }

    fn allow_cross_slot(&mut self) {}

    fn set_audience(&mut self, _: basalt_engine::record::Audience) {}

    fn server(&self) -> &dyn Server {
        &*self.server
    }

    fn config(&self) -> &Config {
        &self.config
    }

    fn db(&self) -> usize {
        0
    }
}

impl Bench {
    fn new() -> Bench {
        Bench {
            library: Library::default(),
            host: Map {
                strings: HashMap::new(),
                config: Config::default(),
                server: no_server(),
                ticks_left: None,
                calls_left: None,
                refused: Vec::new(),
                has_room: true,
                replays: false,
            },
            protocol: Protocol::Resp2,
            last: Ended::default(),
        }
    }

    fn request(&mut self, verb: ScriptVerb, arguments: &[&[u8]]) -> String {
        let out = self.answer(verb, arguments);
        render(out.as_slice().expect("small"))
    }

    fn answer(&mut self, verb: ScriptVerb, arguments: &[&[u8]]) -> Out {
        let (mut data, mut spans) = (b"eval".to_vec(), vec![Span::in_buffer(0, 4)]);
        for argument in arguments {
            spans.push(Span::in_buffer(data.len(), argument.len()));
            data.extend_from_slice(argument);
        }
        let args = Args::in_buffer(&data, &spans, &[]);
        let mut out = Out::new(self.protocol);
        self.last = run(verb, &args, &mut self.host, &self.library, &mut out);
        out
    }

    /// Runs a script with one key and two arguments.
    fn eval(&mut self, script: &str) -> String {
        let arguments: [&[u8]; 5] = [script.as_bytes(), b"1", b"key", b"one", b"two"];
        self.request(ScriptVerb::Eval, &arguments)
    }

    /// Runs a script that can call our pattern functions through the global `redis_patterns`.
    fn eval_with_patterns(&mut self, script: &str) -> String {
        super::vm::with(|vm| vm.show_patterns());
        self.eval(script)
    }

    #[track_caller]
    fn check(&mut self, script: &str, expected: &str) {
        assert_eq!(self.eval(script), expected, "{script}");
    }

    /// Checks an error, including the position appended to it.
    #[track_caller]
    fn check_error(&mut self, script: &str, expected: &str) {
        let sha = super::sha::hex(&super::sha::sha1(script.as_bytes()));
        let sha = std::str::from_utf8(&sha).expect("digits");
        let reply = self.eval(script);
        let expected = format!("(error) {expected} script: {sha}, on @user_script:1.");
        assert_eq!(reply, expected, "{script}");
    }
}

#[track_caller]
fn check_all(dialogue: &[(&str, &str)]) {
    let mut bench = Bench::new();
    for (script, expected) in dialogue {
        bench.check(script, expected);
    }
}

/// Runs a test on a stack as large as that of the server's threads.
fn on_large_stack(test: impl FnOnce() + Send + 'static) {
    let running = super::stack::spawn("deep".to_owned(), test).expect("a thread");
    if let Err(panic) = running.join() {
        std::panic::resume_unwind(panic);
    }
}

#[test]
fn values_become_replies() {
    check_all(&[
        ("return 100.9", "(integer) 100"),
        ("return -1.5", "(integer) -1"),
        ("return 'text'", "\"text\""),
        ("return true", "(integer) 1"),
        ("return false", "(nil)"),
        ("return nil", "(nil)"),
        ("return", "(nil)"),
        ("return {ok='fine'}", "fine"),
        ("return {err='ERR bad'}", "(error) ERR bad"),
        (
            "return {1, 2, {'x'}, nil, 4}",
            "1) (integer) 1\n2) (integer) 2\n3) 1) \"x\"",
        ),
        ("return {}", "(empty array)"),
        ("return {a=1}", "(empty array)"),
        (
            "return {KEYS[1], ARGV[1], ARGV[2], #KEYS, #ARGV}",
            "1) \"key\"\n2) \"one\"\n3) \"two\"\n4) (integer) 1\n5) (integer) 2",
        ),
        ("return {double=3.5}", "\"3.5\""),
        ("return {map={a=1}}", "1) \"a\"\n2) (integer) 1"),
        ("return {set={a=true}}", "1) \"a\""),
        ("return {big_number='12\\r\\n3'}", "\"12  3\""),
        (
            "return {verbatim_string={format='txt', string='hi'}}",
            "\"hi\"",
        ),
        ("return 2^63", "(integer) -9223372036854775808"),
        ("return 0/0", "(integer) -9223372036854775808"),
        ("return function() end", "(nil)"),
        (
            "return setmetatable({}, {__index=function() error('no') end})",
            "(empty array)",
        ),
    ]);
    let mut bench = Bench::new();
    bench.protocol = Protocol::Resp3;
    for (script, expected) in [
        ("return {double=3.5}", "(double) 3.5"),
        ("return {map={a=1}}", "1# \"a\" => (integer) 1"),
        ("return {set={a=true}}", "1~ \"a\""),
        ("return {big_number='123'}", "123"),
        ("return {verbatim_string={format='txt', string='hi'}}", "hi"),
        ("return true", "(integer) 1"),
        ("redis.setresp(3) return true", "(true)"),
        ("redis.setresp(3) return false", "(false)"),
        ("return false", "(nil)"),
    ] {
        bench.check(script, expected);
    }
}

#[test]
fn replies_become_values() {
    let echo = |reply: &str| format!("local r = redis.call('echo', '{reply}')");
    let mut bench = Bench::new();
    for (reply, expression, expected) in [
        (":7\\r\\n", "{type(r), r}", "1) \"number\"\n2) (integer) 7"),
        ("$2\\r\\nhi\\r\\n", "r", "\"hi\""),
        ("$-1\\r\\n", "tostring(r)", "\"false\""),
        ("*-1\\r\\n", "tostring(r)", "\"false\""),
        ("+OK\\r\\n", "r.ok", "\"OK\""),
        (
            "*2\\r\\n:1\\r\\n$1\\r\\na\\r\\n",
            "r",
            "1) (integer) 1\n2) \"a\"",
        ),
        ("_\\r\\n", "tostring(r)", "\"nil\""),
        ("#t\\r\\n", "tostring(r)", "\"true\""),
        (",3.5\\r\\n", "tostring(r.double)", "\"3.5\""),
        ("(123\\r\\n", "r.big_number", "\"123\""),
        (
            "=6\\r\\ntxt:hi\\r\\n",
            "{r.verbatim_string.format, r.verbatim_string.string}",
            "1) \"txt\"\n2) \"hi\"",
        ),
        ("%1\\r\\n+a\\r\\n:1\\r\\n", "type(r.map)", "\"table\""),
        ("~1\\r\\n$1\\r\\nx\\r\\n", "tostring(r.set.x)", "\"true\""),
        ("|1\\r\\n+a\\r\\n+b\\r\\n:5\\r\\n", "r", "(integer) 5"),
    ] {
        bench.check(&format!("{} return {expression}", echo(reply)), expected);
    }
    bench.check(
        "local r = redis.pcall('echo', '-WRONGTYPE not that\\r\\n') return {r.err, tostring(r.ignore_error_stats_update)}",
        "1) \"WRONGTYPE not that\"\n2) \"true\"",
    );
    bench.check_error(
        "redis.call('echo', '-WRONGTYPE not that\\r\\n')",
        "WRONGTYPE not that",
    );
    assert!(bench.last.is_counted);
}

#[test]
fn calls_are_admitted_before_they_are_run() {
    let mut bench = Bench::new();
    for (script, error) in [
        (
            "redis.call('nosuch')",
            "ERR Unknown Redis command called from script",
        ),
        (
            "return redis.call('get')",
            "ERR Wrong number of args calling Redis command from script",
        ),
        (
            "redis.call('config')",
            "ERR Wrong number of args calling Redis command from script",
        ),
        (
            "redis.call('config', 'nosuch')",
            "ERR Unknown Redis command called from script",
        ),
        (
            "redis.call('multi')",
            "ERR This Redis command is not allowed from script",
        ),
        (
            "redis.call('eval', 'return 1', 0)",
            "ERR This Redis command is not allowed from script",
        ),
    ] {
        bench.check_error(script, error);
        assert!(bench.last.is_counted, "{script}");
    }
    assert_eq!(bench.host.refused.len(), 6);
    bench.check_error(
        "redis.call()",
        "ERR Please specify at least one argument for this redis lib call",
    );
    bench.check_error(
        "redis.call('get', {})",
        "ERR Lua redis lib command arguments must be strings or integers",
    );
    let arguments: [&[u8]; 2] = [b"return redis.pcall('set', 'a', 1).err", b"0"];
    let reply = bench.request(ScriptVerb::EvalRo, &arguments);
    assert_eq!(
        reply,
        "\"ERR Write commands are not allowed from read-only scripts.\""
    );
}

#[test]
fn numbers_become_arguments_without_loss() {
    check_all(&[(
        "return redis.call('mget', 1, 1.5, 9007199254740991, 1e20, -0.25)",
        "1) \"1\"\n2) \"1.5\"\n3) \"9007199254740991\"\n4) \"1e+20\"\n5) \"-0.25\"",
    )]);
}

#[test]
fn what_a_script_may_not_touch_stays_as_it_is() {
    let mut bench = Bench::new();
    let readonly = "ERR user_script:1: Attempt to modify a readonly table";
    for script in [
        "a = 10",
        "redis = 1",
        "_G = {}",
        "redis.call = 1",
        "cjson.encode = nil",
        "string.len = nil",
        "getmetatable(_G).__index = {}",
        "getmetatable('').__index = {}",
        "getmetatable('').__index.len = 1",
        "_G.string.x = 1",
        "KEYS = nil",
    ] {
        bench.check_error(script, readonly);
    }
    for script in [
        "setmetatable(_G, {})",
        "rawset(_G, 'a', 1)",
        "table.insert(redis, 1)",
    ] {
        bench.check_error(script, "ERR Attempt to modify a readonly table");
    }
    for name in [
        "a", "print", "dofile", "loadfile", "require", "io", "debug", "module",
    ] {
        bench.check_error(
            &format!("return {name}"),
            &format!(
                "ERR user_script:1: Script attempted to access nonexistent global variable '{name}'"
            ),
        );
    }
    bench.check_error(
        "return _G['a\\0b']",
        "ERR user_script:1: Script attempted to access nonexistent global variable 'a'",
    );
    for (script, expected) in [
        ("return tostring(getmetatable(redis))", "\"false\""),
        ("return tostring(rawget(_G, 'a'))", "\"nil\""),
        ("return type(rawget(_G, 'redis'))", "\"table\""),
        (
            "local n = 0 for k in pairs(bit) do n = n + 1 end return n",
            "(integer) 12",
        ),
        (
            "redis.call('GET', 'k') redis.pcall('NOPE') return redis.acl_check_cmd('GET', 'k')",
            "(integer) 1",
        ),
        (
            "redis.call('GET', 'k') return tostring((pcall(redis.acl_check_cmd, 'NOPE')))",
            "\"false\"",
        ),
        ("return tostring(rawget(_G, 'setfenv'))", "\"nil\""),
        ("return tostring(rawget(_G, 'getfenv'))", "\"nil\""),
        (
            "return tostring(loadstring(string.dump(function() return 1 end)))",
            "\"nil\"",
        ),
        ("return loadstring('return 7')()", "(integer) 7"),
        (
            "local a = {} setmetatable(a, {__index={x=1}}) return a.x",
            "(integer) 1",
        ),
        ("local t = {} rawset(t, 'a', 5) return t.a", "(integer) 5"),
    ] {
        bench.check(script, expected);
    }
}

#[test]
fn errors_are_caught_as_in_redis() {
    check_all(&[
        (
            "local ok, e = pcall(redis.call, 'nosuch') return {tostring(ok), e}",
            "1) \"false\"\n2) \"ERR Unknown Redis command called from script\"",
        ),
        (
            "local ok, e = pcall(error, {err='X y'}) return e",
            "\"X y\"",
        ),
        ("local ok, e = pcall(error, 'plain') return e", "\"plain\""),
        ("local ok, e = pcall(error) return tostring(e)", "\"nil\""),
        ("return select('#', pcall(function() end))", "(integer) 1"),
        (
            "return {pcall(function() return 1, nil, 3 end)}",
            "1) (integer) 1\n2) (integer) 1",
        ),
        (
            "local ok, e = xpcall(function() redis.call('nosuch') end, function(e) return e.err .. '!' end) return e",
            "\"ERR Unknown Redis command called from script!\"",
        ),
        (
            "local c = coroutine.create(function() redis.call('nosuch') end) local ok, e = coroutine.resume(c) return e.err",
            "\"ERR Unknown Redis command called from script\"",
        ),
        (
            "local ok, e = pcall(cjson.decode, '[1') return e",
            "\"Expected comma or array end but found T_END at character 3\"",
        ),
        ("return redis.error_reply('My Err')", "(error) My Err"),
        ("return redis.error_reply('-My Err')", "(error) My Err"),
        ("return redis.error_reply('OOPS')", "(error) ERR OOPS"),
        ("return redis.status_reply('fine')", "fine"),
        (
            "return redis.error_reply()",
            "(error) ERR wrong number or type of arguments",
        ),
        (
            "return redis.sha1hex('')",
            "\"da39a3ee5e6b4b0d3255bfef95601890afd80709\"",
        ),
        (
            "return {redis.LOG_WARNING, redis.REPL_ALL, tostring(redis.replicate_commands())}",
            "1) (integer) 3\n2) (integer) 3\n3) \"true\"",
        ),
        ("return redis.REDIS_VERSION", "\"7.4.0\""),
        ("return server.SERVER_NAME", "\"basalt\""),
        ("return server.SERVER_VERSION", "\"0.1.0\""),
        ("return redis.SERVER_VERSION_NUM", "(integer) 256"),
    ]);
    let mut bench = Bench::new();
    bench.check_error("error('plain')", "ERR user_script:1: plain");
    bench.check_error("error({err='MY own'})", "MY own");
    bench.check_error(
        "return nil + 1",
        "ERR user_script:1: attempt to perform arithmetic on a nil value",
    );
    bench.check_error("redis.sha1hex()", "ERR wrong number of arguments");
    bench.check_error("redis.setresp(4)", "ERR RESP version must be 2 or 3.");
    bench.check_error(
        "redis.set_repl(99)",
        "ERR Invalid replication flags. Use REPL_AOF, REPL_REPLICA, REPL_ALL or REPL_NONE.",
    );
    bench.check_error("redis.log(9, 'x')", "ERR Invalid debug level.");
    bench.check_error(
        "return cjson.decode('{')",
        "ERR user_script:1: Expected object key string but found T_END at character 2",
    );
    assert_eq!(
        bench.eval("return +"),
        "(error) ERR Error compiling script (new function): user_script:1: unexpected symbol near '+'"
    );
}

#[test]
fn a_seed_gives_the_same_numbers_each_time() {
    let mut bench = Bench::new();
    let script = "math.randomseed(10) return tostring(math.random()) .. ' ' .. math.random(100) .. ' ' .. math.random(5, 9)";
    let first = bench.eval(script);
    assert_eq!(bench.eval(script), first);
    bench.check(
        "math.randomseed(0) return tostring(math.random())",
        "\"0.17082803611217\"",
    );
    bench.check(
        "return select(2, pcall(math.random, 0))",
        "\"bad argument #1 to '?' (interval is empty)\"",
    );
}

#[test]
fn without_memory_a_script_can_only_finish_what_it_began() {
    let mut bench = Bench::new();
    bench.host.has_room = false;
    let oom = "OOM command not allowed when used memory > 'maxmemory'.";
    bench.check_error("redis.call('set', 'a', 1)", oom);
    bench.check(
        "redis.call('del', 'a') return redis.call('set', 'a', 1)",
        "OK",
    );
    bench.check(
        "#!lua flags=allow-oom\nreturn redis.call('set', 'a', 1)",
        "OK",
    );
    bench.check(
        "#!lua flags=no-writes\nreturn redis.call('get', 'a')",
        "\"1\"",
    );
    bench.check(
        "#!lua\nreturn 1",
        "(error) OOM command not allowed when used memory > 'maxmemory'.",
    );
    // Replayed commands are not checked again: they were admitted when they first ran.
    bench.host.replays = true;
    bench.check("return redis.call('set', 'a', 1)", "OK");
    bench.check("#!lua\nreturn 1", "(integer) 1");
}

#[test]
fn without_enough_replicas_a_script_may_read_and_not_write() {
    let mut bench = Bench::new();
    bench.check("return redis.call('set', 'a', 1)", "OK");
    bench.host.config.min_replicas_to_write = 1;
    let lacks = "NOREPLICAS Not enough good replicas to write.";
    bench.check_error("redis.call('set', 'a', 2)", lacks);
    bench.check("return redis.call('get', 'a')", "\"1\"");
    bench.host.replays = true;
    bench.check("return redis.call('set', 'a', 1)", "OK");
    bench.host.replays = false;
    bench.check("#!lua\nreturn 1", &format!("(error) {lacks}"));
    bench.check(
        "#!lua flags=no-writes\nreturn redis.call('get', 'a')",
        "\"1\"",
    );
    bench.host.config.min_replicas_max_lag = 0;
    bench.check("return redis.call('set', 'a', 2)", "OK");
}

#[test]
fn numbers_of_keys_are_checked() {
    let mut bench = Bench::new();
    for (count, expected) in [
        ("x", "(error) ERR value is not an integer or out of range"),
        ("-1", "(error) ERR Number of keys can't be negative"),
        (
            "2",
            "(error) ERR Number of keys can't be greater than number of args",
        ),
        ("1", "\"k\""),
    ] {
        let arguments: [&[u8]; 3] = [b"return KEYS[1]", count.as_bytes(), b"k"];
        assert_eq!(bench.request(ScriptVerb::Eval, &arguments), expected);
    }
    let no_script = "(error) NOSCRIPT No matching script. Please use EVAL.";
    assert_eq!(
        bench.request(ScriptVerb::EvalSha, &[b"short", b"0"]),
        no_script
    );
    assert_eq!(
        bench.request(ScriptVerb::EvalSha, &[&[b'a'; 40], b"0"]),
        no_script
    );
    let sha = super::sha::hex(&super::sha::sha1(b"return KEYS[1]"));
    assert_eq!(
        bench.request(ScriptVerb::EvalSha, &[&sha, b"1", b"k"]),
        "\"k\""
    );
    assert_eq!(
        bench.request(ScriptVerb::Fcall, &[b"f", b"0"]),
        "(error) ERR Function not found"
    );
}

#[test]
fn flags_bind_a_script() {
    let mut bench = Bench::new();
    bench.check(
        "#!lua flags=no-writes\nreturn redis.pcall('set', 'a', 1).err",
        "\"ERR Write commands are not allowed from read-only scripts.\"",
    );
    bench.check("#!lua\nreturn redis.call('set', 'a', 1)", "OK");
    let arguments: [&[u8]; 2] = [b"#!lua\nreturn 1", b"0"];
    assert_eq!(
        bench.request(ScriptVerb::EvalRo, &arguments),
        "(error) ERR Can not execute a script with write flag using *_ro command."
    );
    bench.check("#!lua\nerror('x')\n", &{
        let sha = super::sha::hex(&super::sha::sha1(b"#!lua\nerror('x')\n"));
        format!(
            "(error) ERR user_script:2: x script: {}, on @user_script:2.",
            String::from_utf8_lossy(&sha)
        )
    });
}

mod hostile;
mod libraries;
mod manners;
