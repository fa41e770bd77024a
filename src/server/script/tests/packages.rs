//! The packages besides Lua's own: cjson, cmsgpack, struct and bit.

use super::*;

#[test]
fn json_is_that_of_cjson() {
    on_large_stack(|| {
        check_all(
            &[
                (
                    "return cjson.encode({1, 2, {a='x/\"\\n\\1'}})",
                    "\"[1,2,{\\\"a\\\":\\\"x\\\\/\\\\\\\"\\\\n\\\\u0001\\\"}]\"",
                ),
                ("return cjson.encode({})", "\"{}\""),
                ("return cjson.encode({[1]=1, [3]=3})", "\"[1,null,3]\""),
                (
                    "return cjson.encode({cjson.null, true, false, 0.1, 1e15})",
                    "\"[null,true,false,0.1,1e+15]\"",
                ),
                (
                    "return select(2, pcall(cjson.encode, {[1]=1, [100]=2}))",
                    "\"Cannot serialise table: excessively sparse array\"",
                ),
                (
                    "return select(2, pcall(cjson.encode, {[true]=1}))",
                    "\"Cannot serialise boolean: table key must be a number or string\"",
                ),
                ("return select(2, pcall(cjson.encode, print))", "\"x\""),
            ][..6],
        );
        check_all(&[
            (
                "return cjson.decode('[1,\"\\\\u00e9\\\\ud83d\\\\ude00\"]')[2]",
                "\"\\xc3\\xa9\\xf0\\x9f\\x98\\x80\"",
            ),
            (
                "return table.concat(cjson.decode('[0.0, -5e3, -1, 0.3e-3, 1023.2, 0e10]'), ' ')",
                "\"0 -5000 -1 0.0003 1023.2 0\"",
            ),
            (
                "return cjson.decode('{\"a\":{\"b\":[true]}}').a.b",
                "1) (integer) 1",
            ),
            (
                "return tostring(cjson.decode('null') == cjson.null)",
                "\"true\"",
            ),
            ("return tostring(cjson.decode('[0x10]')[1])", "\"16\""),
            (
                "return select(2, pcall(cjson.decode, '[1,]'))",
                "\"Expected value but found T_ARR_END at character 4\"",
            ),
            (
                "return select(2, pcall(cjson.decode, 'nope'))",
                "\"Expected value but found invalid token at character 1\"",
            ),
            (
                "return select(2, pcall(cjson.decode, string.rep('[', 1001)))",
                "\"Found too many nested data structures (1001) at character 1001\"",
            ),
            (
                "local t = {} for i = 1, 2000 do t = {t} end return select(2, pcall(cjson.encode, t))",
                "\"Cannot serialise, excessive nesting (1001)\"",
            ),
            (
                "local j = cjson.new() j.encode_number_precision(3) return {j.encode(1.23456), cjson.encode(1.23456)}",
                "1) \"1.23\"\n2) \"1.23456\"",
            ),
            (
                "return select(2, pcall(cjson.encode, 0/0))",
                "\"Cannot serialise number: must not be NaN or Inf\"",
            ),
        ]);
    });
}

#[test]
fn message_pack_is_that_of_cmsgpack() {
    on_large_stack(|| {
        let hex = "local function hex(s) return (s:gsub('.', function(c) return string.format('%02x', c:byte()) end)) end ";
        let mut bench = Bench::new();
        for (expression, expected) in [
            ("0.1", "cb3fb999999999999a"),
            ("-1099511627776", "d3ffffff0000000000"),
            ("1, -1, 127, 128, -33, 65536", "01ff7fcc80d0dfce00010000"),
            ("0.5", "ca3f000000"),
            ("2^63", "ca5f000000"),
            ("{}, {1,2}, {a=1}", "90920102"),
            ("'hi', true, false, nil", "a26869c3c2c0"),
            ("string.rep('x', 32):sub(1,0) .. string.rep('y', 32)", ""),
        ] {
            if expected.is_empty() {
                continue;
            }
            let reply = bench.eval(&format!("{hex} return hex(cmsgpack.pack({expression}))"));
            assert!(
                reply.starts_with(&format!("\"{expected}")),
                "{expression}: {reply}"
            );
        }
        check_all(&[
            (
                "return cmsgpack.unpack(cmsgpack.pack({1, 'x', {2}}))",
                "1) (integer) 1\n2) \"x\"\n3) 1) (integer) 2",
            ),
            (
                "return {cmsgpack.unpack(cmsgpack.pack(1, 2))}",
                "1) (integer) 1\n2) (integer) 2",
            ),
            (
                "return {cmsgpack.unpack_one(cmsgpack.pack(1, 2))}",
                "1) (integer) 1\n2) (integer) 1",
            ),
            (
                "return {cmsgpack.unpack_limit(cmsgpack.pack(1, 2), 1, 1)}",
                "1) (integer) -1\n2) (integer) 2",
            ),
            (
                "return select(2, pcall(cmsgpack.unpack, '\\220'))",
                "\"Missing bytes in input.\"",
            ),
            (
                "return select(2, pcall(cmsgpack.unpack, '\\221\\255\\255\\255\\255'))",
                "\"Missing bytes in input.\"",
            ),
            (
                "return select(2, pcall(cmsgpack.unpack, '\\223\\255\\255\\255\\255'))",
                "\"Missing bytes in input.\"",
            ),
            (
                "return select(2, pcall(cmsgpack.unpack, '\\219\\255\\255\\255\\255'))",
                "\"Missing bytes in input.\"",
            ),
            (
                "return select(2, pcall(cmsgpack.unpack, '\\193'))",
                "\"Bad data format in input.\"",
            ),
            (
                "return tostring(pcall(cmsgpack.unpack, string.rep('\\145', 100000)))",
                "\"false\"",
            ),
            (
                "return tostring(pcall(cmsgpack.unpack, string.rep('\\1', 100000)))",
                "\"false\"",
            ),
            (
                "return select(2, pcall(cmsgpack.unpack_one, 'x', 5))",
                "\"Start offset 5 greater than input length 1.\"",
            ),
            (
                "local a = {} a.x = a return #cmsgpack.pack(a)",
                "(integer) 49",
            ),
        ]);
    });
}

#[test]
fn structures_are_packed_and_unpacked() {
    check_all(&[
        (
            "return struct.pack('>I2<I2', 258, 258)",
            "\"\\x01\\x02\\x02\\x01\"",
        ),
        (
            "return {struct.unpack('>I2<I2', '\\1\\2\\2\\1')}",
            "1) (integer) 258\n2) (integer) 258\n3) (integer) 5",
        ),
        ("return struct.pack('s', 'ab')", "\"ab\\x00\""),
        (
            "return {struct.unpack('sc2', 'ab\\0cd')}",
            "1) \"ab\"\n2) \"cd\"\n3) (integer) 6",
        ),
        (
            "return {struct.unpack('>Bc0', '\\2abc')}",
            "1) \"ab\"\n2) (integer) 4",
        ),
        ("return struct.size('!8bd')", "(integer) 16"),
        (
            "return {struct.unpack('b', '\\255')}",
            "1) (integer) -1\n2) (integer) 2",
        ),
        (
            "return tostring(struct.unpack('>d', struct.pack('>d', 1.5)))",
            "\"1.5\"",
        ),
        (
            "return tostring(struct.unpack('<f', struct.pack('<f', 1.5)))",
            "\"1.5\"",
        ),
        (
            "return select(2, pcall(struct.unpack, 'I8', 'x'))",
            "\"bad argument #2 to '?' (data string too short)\"",
        ),
        (
            "return select(2, pcall(struct.pack, 'i33', 1))",
            "\"integral size 33 is larger than limit of 32\"",
        ),
        (
            "return select(2, pcall(struct.pack, 'i99999999999', 1))",
            "\"integral size overflow\"",
        ),
        (
            "return select(2, pcall(struct.unpack, 'c2147483647', 'x'))",
            "\"bad argument #2 to '?' (data string too short)\"",
        ),
        (
            "return select(2, pcall(struct.pack, '!3', 1))",
            "\"alignment 3 is not a power of 2\"",
        ),
        (
            "return select(2, pcall(struct.pack, 'q', 1))",
            "\"bad argument #1 to '?' (invalid format option 'q')\"",
        ),
        (
            "return select(2, pcall(struct.unpack, 's', 'abc'))",
            "\"unfinished string in data\"",
        ),
        (
            "return select(2, pcall(struct.unpack, 'b', 'abc', 0))",
            "\"bad argument #3 to '?' (offset must be 1 or greater)\"",
        ),
        (
            "return select(2, pcall(struct.unpack, 'b', 'abc', -5))",
            "\"bad argument #2 to '?' (data string too short)\"",
        ),
        (
            "return select(2, pcall(struct.unpack, 'Bc0', '\\9abc'))",
            "\"bad argument #2 to '?' (data string too short)\"",
        ),
    ]);
}

#[test]
fn a_function_that_gets_a_bad_argument_is_called_as_the_script_calls_it() {
    let mut bench = Bench::new();
    for (script, expected) in [
        (
            "return struct.pack('i', 'x')",
            "bad argument #2 to 'pack' (number expected, got string)",
        ),
        (
            "local f = struct.pack; return f('i', 'x')",
            "bad argument #2 to 'f' (number expected, got string)",
        ),
        (
            "return struct.pack()",
            "bad argument #1 to 'pack' (string expected, got no value)",
        ),
        (
            "return cjson.encode()",
            "bad argument #1 to 'encode' (expected 1 argument)",
        ),
        (
            "return bit.band('x')",
            "bad argument #1 to 'band' (number expected, got string)",
        ),
        (
            "local t = {pack = struct.pack}; return t:pack('i', 1)",
            "calling 'pack' on bad self (string expected, got table)",
        ),
    ] {
        bench.check_error(script, &format!("ERR user_script:1: {expected}"));
    }
}

#[test]
fn bits_are_those_of_bit_op() {
    check_all(&[
        ("return bit.tobit(0xffffffff)", "(integer) -1"),
        ("return bit.band(0xff, 0x0f, 3)", "(integer) 3"),
        ("return bit.bor(1, 2, 4)", "(integer) 7"),
        ("return bit.bxor(1, 2)", "(integer) 3"),
        ("return bit.bnot(0)", "(integer) -1"),
        ("return bit.lshift(1, 31)", "(integer) -2147483648"),
        ("return bit.lshift(1, 33)", "(integer) 2"),
        ("return bit.rshift(-1, 28)", "(integer) 15"),
        ("return bit.arshift(-16, 2)", "(integer) -4"),
        ("return bit.rol(0x12345678, 8)", "(integer) 878082066"),
        ("return bit.bswap(0x12345678)", "(integer) 2018915346"),
        ("return bit.tohex(65535, -2147483648)", "\"0000FFFF\""),
        ("return bit.tohex(255, 4)", "\"00ff\""),
        ("return bit.tohex(255)", "\"000000ff\""),
        ("return bit.tobit(2^40 + 5)", "(integer) 5"),
    ]);
}
