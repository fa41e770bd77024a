//! Payloads recorded from redis-server 7.0.15, one for each of its types and encodings, compressed and not.

use super::{dump, restore};
use crate::command::testing::on_every_setup;

/// One line of the record.
pub(crate) struct Recorded {
    pub(crate) name: &'static str,
    /// As OBJECT ENCODING named it there.
    pub(crate) encoding: &'static str,
    /// As DEBUG DIGEST-VALUE answered there.
    pub(crate) digest: &'static str,
    pub(crate) payload: Vec<u8>,
}

/// All of them.
pub(crate) fn all() -> impl Iterator<Item = Recorded> {
    let lines = include_str!("../recorded.txt").lines();
    lines.filter(|line| !line.starts_with(';')).map(|line| {
        let mut words = line.split(' ');
        let mut word = || words.next().expect("four words");
        Recorded {
            name: word(),
            encoding: word(),
            digest: word(),
            payload: unescape(word()),
        }
    })
}

fn unescape(text: &str) -> Vec<u8> {
    let mut bytes = Vec::new();
    let mut rest = text.as_bytes();
    while let [first, tail @ ..] = rest {
        rest = tail;
        if *first == b'\\' {
            let digits = std::str::from_utf8(&tail[1..3]).expect("two digits");
            bytes.push(u8::from_str_radix(digits, 16).expect("two digits"));
            rest = &tail[3..];
        } else {
            bytes.push(*first);
        }
    }
    bytes
}

#[test]
fn what_redis_dumped_is_the_same_here_and_goes_back_as_the_same() {
    on_every_setup(|cli| {
        for Recorded {
            name,
            encoding,
            digest,
            payload,
        } in all()
        {
            assert_eq!(restore(cli, name, &payload, ""), "OK", "{name}");
            // From 7.2 on a list that fits one node is a listpack.
            let encoding = if name == "list:small" {
                "listpack"
            } else {
                encoding
            };
            assert_eq!(cli.encoding(name), encoding, "{name}");
            let ours = cli.run(&format!("DEBUG DIGEST-VALUE {name}"));
            assert_eq!(ours, format!("1) {digest}"), "{name}");
            let again = dump(cli, name);
            assert_eq!(restore(cli, name, &again, "replace"), "OK", "{name}");
            let ours = cli.run(&format!("DEBUG DIGEST-VALUE {name}"));
            assert_eq!(ours, format!("1) {digest}"), "{name}, there and back");
        }
    });
}
