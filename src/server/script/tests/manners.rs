//! Plain scripts, which run directly on the globals and whose KEYS and ARGV tables are reused, get the same
//! results as all other scripts.

use super::Bench;
use basalt_commands::command::declaration::ScriptVerb;
use basalt_core::base::random::Random;

/// Scripts that return the contents of KEYS and ARGV as a text, in several ways.
const WAYS: [&str; 4] = [
    // Only reads KEYS and ARGV.
    "local s = '' for i = 1, #KEYS do s = s .. KEYS[i] .. ' ' end s = s .. '/' \
     for i = 1, #ARGV do s = s .. ' ' .. ARGV[i] end \
     return s .. (KEYS[2] and '' or '.') .. tostring(ARGV[20])",
    // Passes its lists on, and modifies them.
    "local k, a = KEYS, ARGV local s = '' for i = 1, #k do s = s .. k[i] .. ' ' end s = s .. '/' \
     for i = 1, #a do s = s .. ' ' .. a[i] end k[5] = 'x' a.n = 3 setmetatable(a, {__index = k}) \
     return s .. (k[2] and '' or '.') .. tostring(rawget(a, 20))",
    // Uses the protected globals.
    "local k, a = _G.KEYS, _G.ARGV local s = '' for i = 1, #k do s = s .. k[i] .. ' ' end s = s .. '/' \
     for i = 1, #a do s = s .. ' ' .. a[i] end k[5] = 'x' a.n = 3 \
     return s .. (k[2] and '' or '.') .. tostring(a[20])",
    // Compiles more code.
    "return loadstring(\"local s = '' for i = 1, #KEYS do s = s .. KEYS[i] .. ' ' end s = s .. '/' \
     for i = 1, #ARGV do s = s .. ' ' .. ARGV[i] end \
     return s .. (KEYS[2] and '' or '.') .. tostring(ARGV[20])\")()",
];

#[test]
fn every_script_finds_its_own_lists_whatever_ran_before() {
    let mut bench = Bench::new();
    let names: Vec<String> = (0..40).map(|at| format!("n{at}")).collect();
    let long = "y".repeat(3000);
    let mut random = Random::new(7);
    let mut draw = |below| random.index(below);
    for _ in 0..400 {
        let (way, key_count, argument_count) = (draw(4), draw(4), draw(6) * draw(6));
        let count = key_count.to_string();
        let mut texts: Vec<&str> = names[..key_count + argument_count]
            .iter()
            .map(String::as_str)
            .collect();
        if let Some(last) = texts.last_mut()
            && draw(8) == 0
        {
            *last = &long;
        }
        let (keys, arguments) = texts.split_at(key_count);
        let mut expected = String::new();
        keys.iter().for_each(|key| expected += &format!("{key} "));
        expected.push('/');
        arguments
            .iter()
            .for_each(|argument| expected += &format!(" {argument}"));
        expected += if key_count > 1 { "" } else { "." };
        expected += arguments.get(19).unwrap_or(&"nil");
        let mut request: Vec<&[u8]> = vec![WAYS[way].as_bytes(), count.as_bytes()];
        request.extend(texts.iter().map(|text| text.as_bytes()));
        let reply = bench.request(ScriptVerb::Eval, &request);
        assert_eq!(reply, format!("\"{expected}\""), "way {way}");
    }
}

#[test]
fn what_one_script_does_to_its_surroundings_no_other_one_sees() {
    let mut bench = Bench::new();
    let look =
        "return {type(redis.call), type(string.len), tostring(KEYS.x), tostring(ARGV[3]), #ARGV}";
    let expected = "1) \"function\"\n2) \"function\"\n3) \"nil\"\n4) \"nil\"\n5) (integer) 2";
    for script in [
        "KEYS.x = 1 ARGV[3] = 'more' return 1",
        "local r = redis return pcall(function() r.call = nil end) and 1 or 1",
        "return pcall(rawset, redis, 'call', 1) and 1 or 1",
        "return pcall(rawset, string, 'len', 1) and 1 or 1",
        "return pcall(table.insert, KEYS, 'x') and 1 or 1",
        "return pcall(setmetatable, redis, {}) and 1 or 1",
        "local k = KEYS k[2] = 'x' table.insert(ARGV, 'more') return 1",
        "return pcall(function() string.len = 1 end) and 1 or 1",
        "for name, value in pairs(string) do pcall(rawset, string, name, 1) end return 1",
        "setmetatable(ARGV, {__index = function() return 'got' end}) return 1",
    ] {
        assert_eq!(bench.eval(look), expected, "before {script}");
        assert_eq!(bench.eval(script), "(integer) 1", "{script}");
        assert_eq!(bench.eval(look), expected, "{script}");
    }
}
