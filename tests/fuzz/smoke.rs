//! The fuzzer's checks on the stable compiler, with fixed seeds: short, and the same on every run.

mod checks;

use basalt_core::base::random::Random;

const INPUTS: usize = if cfg!(miri) { 20 } else { 20_000 };

/// Calls `check` with bytes made of the `words`, which look like what the check is about.
fn smoke(seed: u64, words: &[&[u8]], mut check: impl FnMut(&[u8])) {
    let mut random = Random::new(seed);
    for _ in 0..INPUTS {
        let mut data = Vec::new();
        for _ in 0..random.below(24) {
            if random.below(8) == 0 {
                data.push(random.next_u64() as u8);
            } else {
                data.extend_from_slice(words[random.index(words.len())]);
            }
        }
        check(&data);
    }
}

const REQUEST: &[&[u8]] = &[
    b"*1\r\n",
    b"*2\r\n",
    b"*3\r\n$3\r\nSET\r\n",
    b"$1\r\na\r\n",
    b"$0\r\n\r\n",
    b"$12\r\nabcdefghijkl\r\n",
    b"$",
    b"*",
    b"1",
    b"0",
    b"-1",
    b"\r\n",
    b"\r",
    b"\n",
    b"PING\r\n",
    b"\"a b\" ",
    b"'",
    b"\\x41",
    b"\x00",
    b"*11\r\n",
    b"$16385\r\n",
];

#[test]
fn requests_do_not_depend_on_how_they_arrive() {
    smoke(1, REQUEST, |data| checks::request(data, checks::feed));
}

/// The canary: a parser that forgets the state of a connection must be caught.
#[test]
fn a_parser_without_memory_is_caught() {
    let outcome = std::panic::catch_unwind(|| {
        smoke(1, REQUEST, |data| {
            checks::request(data, |bytes, cuts, block_len_min, limits| {
                let last = cuts.last().copied().unwrap_or(0);
                checks::feed(&bytes[last..], &[], block_len_min, limits)
            });
        });
    });
    assert!(outcome.is_err());
}

/// The canary: a parser that loses what it gathers in blocks must be caught.
#[test]
fn a_parser_without_blocks_is_caught() {
    let outcome = std::panic::catch_unwind(|| {
        smoke(1, REQUEST, |data| {
            checks::request(data, |bytes, cuts, block_len_min, limits| {
                let mut outcome = checks::feed(bytes, cuts, block_len_min, limits);
                if block_len_min < 10 {
                    let long = |argument: &Vec<u8>| argument.len() >= 10;
                    outcome.0.retain(|command| !command.iter().any(long));
                }
                outcome
            });
        });
    });
    assert!(outcome.is_err());
}

#[test]
fn text_survives_quoting() {
    smoke(
        2,
        &[b"\"", b"'", b"\\", b"x41", b" ", b"a", b"\xff", b"\n"],
        checks::text,
    );
}

#[test]
fn numbers_are_read_and_printed_alike() {
    let words: &[&[u8]] = &[
        b"0",
        b"1",
        b"9",
        b"1234567890",
        b"-",
        b"+",
        b".",
        b"e",
        b"e-",
        b"0x",
        b"p",
        b"f",
        b"inf",
        b"nan",
        b"00000",
        b"99999999999999999999",
        b"300",
    ];
    smoke(3, words, checks::number);
}

#[test]
fn patterns_match_what_they_say() {
    smoke(
        4,
        &[
            b"*", b"?", b"[", b"]", b"^", b"-", b"\\", b"a", b"b", b"\x00", b"ab",
        ],
        checks::glob,
    );
}

#[test]
fn what_is_restored_can_be_dumped() {
    const LISTPACK: &[u8] = b"\x0f\0\0\0\x03\0\x81a\x02\x01\x01\x81b\x02\xff";
    const NUMBERS: &[u8] = b"\x02\0\0\0\x02\0\0\0\x01\0\x02\0";
    let words: &[&[u8]] = &[
        b"\x00",
        b"\x01",
        b"\x02",
        b"\x03",
        b"\x04",
        b"\x05",
        b"\x0a",
        b"\x0b",
        b"\x0c",
        b"\x0d",
        b"\x0e",
        b"\x0f",
        b"\x10",
        b"\x11",
        b"\x12",
        b"\x13",
        b"\x14",
        b"\x15",
        b"\x18",
        b"\x19",
        b"\x01a",
        b"\x01b",
        b"\x03abc",
        b"\xc0\x05",
        b"\xc1\x00\x05",
        b"\xc3\x04\x08\x00a\xc0\x00",
        b"\0\0\0\0\0\0\xf0\x3f",
        LISTPACK,
        NUMBERS,
    ];
    smoke(5, words, checks::restore);
    // Behind what their lengths say.
    for (form, body) in [
        (18, LISTPACK),
        (16, LISTPACK),
        (17, LISTPACK),
        (20, LISTPACK),
        (11, NUMBERS),
    ] {
        let mut data = vec![form];
        if form == 18 {
            data.extend_from_slice(&[1, 2]);
        }
        data.push(body.len() as u8);
        data.extend_from_slice(body);
        for at in 0..data.len() {
            for byte in 0..=u8::MAX {
                let mut tampered = data.clone();
                tampered[at] = byte;
                checks::restore(&tampered);
            }
        }
    }
}

#[test]
fn snapshots_are_good_or_not_in_whatever_pieces_they_come() {
    const FAR: &[u8] = b"\xfc\x00\x00\x00\x00\x00\x01\x00\x00";
    let words: &[&[u8]] = &[
        b"\x00\x01a\x01v",
        b"\x00\x01b\xc0\x07",
        b"\x01\x01l\x02\x01a\x01b",
        b"\x02\x01s\x01\x01a",
        b"\x05\x01z\x01\x01a\0\0\0\0\0\0\xf0\x3f",
        b"\x10\x01h\x0f\x0f\0\0\0\x02\0\x81a\x02\x81v\x02\xff",
        b"\x07\x01m",
        b"\xfa\x01n\x01v",
        b"\xfb\x01\x00",
        b"\xfd\x01\x00\x00\x00",
        FAR,
        b"\xfe\x03",
        b"\xf8\x05",
        b"\xf9\x05",
        b"\xf5\x01x",
        b"\xf7\x01\x02\x01\x00",
        b"\xf4\x01\x02\x03",
        b"\xff\0\0\0\0\0\0\0\0",
        b"\x81",
        b"\x80\x00\x00\x00\x02",
        b"\xc3\x04\x05\x00a\x20\x00",
        b"\x13",
        b"\x15",
    ];
    smoke(6, words, checks::snapshot);
}

#[test]
fn rules_of_users_are_read_as_they_are_written() {
    let words: &[&[u8]] = &[
        b"on",
        b"off",
        b"nopass",
        b"reset",
        b"+",
        b"-",
        b"@",
        b"all",
        b"read",
        b"get",
        b"config",
        b"|",
        b"set",
        b"~",
        b"%",
        b"R",
        b"W",
        b"&",
        b"*",
        b"key:",
        b"(",
        b")",
        b" ",
        b" ",
        b" ",
        b" +get ",
        b" -@all ",
        b" ~* ",
        b"<",
        b">",
        b"#",
        b"select|0",
        b"clearselectors",
        b"allkeys",
        b"[",
        b"?",
        b"\0",
    ];
    smoke(7, words, checks::rules);
}

#[test]
fn packets_of_the_bus_do_not_depend_on_how_they_arrive() {
    const NAME: &[u8] = b"0123456789abcdef0123456789abcdef01234567";
    let words: &[&[u8]] = &[
        NAME,
        b"\0\0\0\0",
        b"\0\0\0\x10\0\0\0\0name\0\0\0\0",
        b"\0\0\0\x10\0\x01\0\0a b\0\0\0\0\0",
        b"\0\0\0\x38\0\x02\0\0",
        b"\0\0\0\x30\0\x03\0\0",
        b"\0\0\0\x08\0\x04\0\0",
        b"\0\0\0\x0c",
        b"\0\0\0\0\0\0\0\x01",
        b"\xff\xff\xff\xff",
        b"127.0.0.1\0",
        &[0; 46],
        &[0; 1024],
        b"RCmb",
        b"RCmb\0\0\x08\xd0\0\x01",
        b"RCmb\xff\0\x08\xd0\0\x01\0\0\0\x04",
        b"RCmb\0\0\0\x10\0\x01",
    ];
    smoke(8, words, checks::bus);
}

#[test]
fn paths_find_what_they_locate() {
    let words: &[&[u8]] = &[
        b"$",
        b"@",
        b".",
        b"..",
        b"*",
        b"[",
        b"]",
        b"[?",
        b"(",
        b")",
        b"a",
        b"b",
        b"'a'",
        b"\"b\"",
        b"0",
        b"-1",
        b":",
        b",",
        b" == ",
        b"!",
        b" && ",
        b" || ",
        b" < ",
        b" =~ ",
        b" in ",
        b"1",
        b"2.5",
        b"null",
        b"{",
        b"}",
        b" + ",
        b" * ",
        b"~",
        b".length()",
        b"keys(",
        b".append(",
        b"\\",
        b"\xc3\xa9",
        b"$.a",
        b"$..",
        b"[?@.a",
        b"[0,1]",
        b"[::2]",
        b"$[?@.b == 'ab']",
        b"[*]",
        b" sizeof ",
    ];
    smoke(9, words, checks::json_path);
}

#[test]
fn documents_come_back_from_their_text() {
    let words: &[&[u8]] = &[
        b"{\"a\":",
        b"[",
        b"]",
        b"}",
        b",",
        b"\"a\"",
        b"\"\\u00e9\\n\"",
        b"1.50",
        b"-12345678901",
        b"18446744073709551615",
        b"1e300",
        b"null",
        b"true",
        b" ",
        b"{}",
        b"[1,2]",
        b"\"b\":",
    ];
    smoke(10, words, checks::json);
}
