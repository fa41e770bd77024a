//! The fuzzer's checks on the stable compiler, with fixed seeds: short, and the same on every run.

mod checks;

use basalt::base::random::Random;

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
            checks::request(data, |bytes, cuts, limits| {
                let last = cuts.last().copied().unwrap_or(0);
                checks::feed(&bytes[last..], &[], limits)
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
