//! Streams in the formats of all versions, made from their description, and with inconsistent figures, groups and
//! pending entries.

use super::{dump, restore};
use crate::command::testing::{Terminal, on_every_setup};
use basalt_core::resp::reply::Protocol;
use basalt_core::structures::listpack::{self, ListpackMut};
use basalt_engine::serial::frame;

fn id(ms: u64, seq: u64) -> [u8; 16] {
    (u128::from(ms) << 64 | u128::from(seq)).to_be_bytes()
}

fn string(text: &[u8]) -> Vec<u8> {
    let mut bytes = vec![0x40 | (text.len() >> 8) as u8, text.len() as u8];
    bytes.extend_from_slice(text);
    bytes
}

/// Returns a node whose entries have the single field `f`; each consists of its flags, its distance from the master's
/// ID, and its value.
fn node(live: i64, deleted: i64, entries: &[(i64, i64, i64, &str)]) -> Vec<u8> {
    let mut bytes = listpack::EMPTY.to_vec();
    let mut pack = ListpackMut::new(&mut bytes);
    let number = |pack: &mut ListpackMut<'_, Vec<u8>>, number: i64| {
        pack.push_back(number.to_string().as_bytes());
    };
    number(&mut pack, live);
    number(&mut pack, deleted);
    number(&mut pack, 1);
    pack.push_back(b"f");
    number(&mut pack, 0);
    for (flags, ms, seq, value) in entries {
        number(&mut pack, *flags);
        number(&mut pack, *ms);
        number(&mut pack, *seq);
        pack.push_back(value.as_bytes());
        number(&mut pack, 4);
    }
    bytes
}

/// The parts of a stream payload that a test may make wrong: entries 5-1, 5-2 (deleted) and 6-0, and a group whose
/// consumer alice owns 5-1.
struct Parts {
    form: u8,
    master: [u8; 16],
    node: Vec<u8>,
    length: u8,
    last: [u8; 2],
    added: u8,
    pending: Vec<[u8; 16]>,
    consumers: Vec<(&'static str, Vec<[u8; 16]>)>,
    groups: Vec<&'static str>,
}

const SAME_FIELDS: i64 = 2;
const DELETED: i64 = 3;

impl Default for Parts {
    fn default() -> Parts {
        Parts {
            form: 19,
            master: id(5, 1),
            node: node(
                2,
                1,
                &[
                    (SAME_FIELDS, 0, 0, "v"),
                    (DELETED, 0, 1, "w"),
                    (SAME_FIELDS, 1, -1, "x"),
                ],
            ),
            length: 2,
            last: [6, 0],
            added: 3,
            pending: vec![id(5, 1)],
            consumers: vec![("alice", vec![id(5, 1)]), ("bob", vec![])],
            groups: vec!["g1"],
        }
    }
}

const SEEN_MS: u64 = 1_700_000_000_000;

impl Parts {
    fn value(&self) -> Vec<u8> {
        let mut value = vec![self.form, 1];
        value.extend(string(&self.master));
        value.extend(string(&self.node));
        value.push(self.length);
        value.extend(self.last);
        if self.form > 15 {
            // The first ID, the greatest deleted ID, and the number of added entries.
            value.extend([5, 1, 5, 2, self.added]);
        }
        value.push(self.groups.len() as u8);
        for name in &self.groups {
            value.extend(string(name.as_bytes()));
            value.extend([5, 1]);
            if self.form > 15 {
                value.push(1);
            }
            value.push(self.pending.len() as u8);
            for id in &self.pending {
                value.extend(id);
                value.extend(SEEN_MS.to_le_bytes());
                value.push(7);
            }
            value.push(self.consumers.len() as u8);
            for (name, owned) in &self.consumers {
                value.extend(string(name.as_bytes()));
                value.extend(SEEN_MS.to_le_bytes());
                if self.form == 21 {
                    value.extend(u64::MAX.to_le_bytes());
                }
                value.push(owned.len() as u8);
                value.extend(owned.iter().flatten());
            }
        }
        value
    }
}

fn try_restore(cli: &mut Terminal, parts: &Parts) -> String {
    restore(cli, "k", &frame::seal(parts.value(), 9), "replace")
}

#[test]
fn streams_of_all_ages_are_read() {
    on_every_setup(|cli| {
        for form in [15, 19, 21] {
            let parts = Parts {
                form,
                ..Parts::default()
            };
            assert_eq!(try_restore(cli, &parts), "OK", "{form}");
            let mut answers = Vec::new();
            for _ in 0..2 {
                cli.check(
                    "XRANGE k - +",
                    "1) 1) \"5-1\"\n   2) 1) \"f\"\n      2) \"v\"\n\
                     2) 1) \"6-0\"\n   2) 1) \"f\"\n      2) \"x\"",
                );
                cli.check("XLEN k", "(integer) 2");
                cli.check(
                    "XPENDING k g1",
                    "1) (integer) 1\n2) \"5-1\"\n3) \"5-1\"\n4) 1) 1) \"alice\"\n      2) \"1\"",
                );
                answers.push(cli.run("XINFO STREAM k FULL"));
                cli.check("DEBUG REENCODE", "OK");
            }
            assert_eq!(answers[0], answers[1], "{form}");
            let again = dump(cli, "k");
            assert_eq!((again[0], again[again.len() - 10]), (19, 10));
            assert_eq!(restore(cli, "k", &again, "replace"), "OK");
            cli.check("XADD k 7-1 f y", "\"7-1\"");
            let next = first_unread(cli);
            cli.check("XREADGROUP GROUP g1 bob COUNT 1 STREAMS k >", &next);
        }
    });
}

/// Returns the reply of XREADGROUP for 6-0, in either protocol.
fn first_unread(cli: &Terminal) -> String {
    match cli.connection.protocol {
        Protocol::Resp2 => {
            "1) 1) \"k\"\n   2) 1) 1) \"6-0\"\n         2) 1) \"f\"\n            2) \"x\""
        }
        Protocol::Resp3 => "1# \"k\" => \n   1) 1) \"6-0\"\n      2) 1) \"f\"\n         2) \"x\"",
    }
    .into()
}

#[test]
fn a_stream_whose_parts_do_not_fit_is_refused() {
    let whole = Parts::default;
    let three = |live, deleted, entries: &[(i64, i64, i64, &str)]| Parts {
        node: node(live, deleted, entries),
        ..Parts::default()
    };
    let good = [
        (SAME_FIELDS, 0, 0, "v"),
        (DELETED, 0, 1, "w"),
        (SAME_FIELDS, 1, -1, "x"),
    ];
    let cases = [
        (
            "an entry behind the last",
            Parts {
                last: [5, 3],
                ..whole()
            },
        ),
        ("live count", three(3, 0, &good)),
        ("deleted count", three(2, 0, &good)),
        ("order", three(2, 1, &[good[2], good[1], good[0]])),
        (
            "before the master",
            three(3, 0, &[(SAME_FIELDS, -1, 0, "v"), good[0], good[2]]),
        ),
        ("nothing but deleted", {
            let node = node(0, 1, &[(DELETED, 0, 0, "v")]);
            Parts {
                node,
                length: 0,
                ..whole()
            }
        }),
        (
            "pending twice",
            Parts {
                pending: vec![id(5, 1), id(5, 1)],
                ..whole()
            },
        ),
        (
            "pending for nobody",
            Parts {
                pending: vec![id(5, 1), id(6, 0)],
                ..whole()
            },
        ),
        (
            "owned but not pending",
            Parts {
                pending: vec![],
                ..whole()
            },
        ),
        (
            "two owners",
            Parts {
                consumers: vec![("alice", vec![id(5, 1)]), ("bob", vec![id(5, 1)])],
                ..whole()
            },
        ),
        (
            "two of a name",
            Parts {
                consumers: vec![("alice", vec![id(5, 1)]), ("alice", vec![])],
                ..whole()
            },
        ),
        (
            "two groups of a name",
            Parts {
                groups: vec!["g1", "g1"],
                ..whole()
            },
        ),
    ];
    on_every_setup(|cli| {
        assert_eq!(try_restore(cli, &whole()), "OK");
        for (reason, parts) in &cases {
            assert_eq!(
                try_restore(cli, parts),
                "(error) ERR Bad data format",
                "{reason}"
            );
        }
    });
}

/// Recorded from a server: entries 1-1 and 2-1, but a stored count of three.
const COUNTED_OTHERWISE: &[u8] = b"\x13\x01\x10\0\0\0\0\0\0\0\x01\0\0\0\0\0\0\0\x01\x28\x28\0\0\0\x0f\0\x02\x01\0\x01\x01\x01\x81a\
    \x02\0\x01\x02\x01\0\x01\0\x01\x81b\x02\x04\x01\x02\x01\x01\x01\0\x01\x81b\x02\x04\x01\xff\x03\x02\x01\x01\x01\0\0\x02\0\
    \x0a\0\xae\xa1\xa1\xe9\x57\x8f\xf5\xea";

#[test]
fn a_stream_keeps_the_length_that_it_came_with() {
    on_every_setup(|cli| {
        for _ in 0..2 {
            assert_eq!(restore(cli, "k", COUNTED_OTHERWISE, "replace"), "OK");
            cli.check("XLEN k", "(integer) 3");
            cli.check("XDEL k 1-1", "(integer) 1");
            cli.check("XLEN k", "(integer) 2");
            cli.check("XTRIM k MAXLEN 1", "(integer) 1");
            cli.check("XRANGE k - +", "(empty array)");
            cli.check("XLEN k", "(integer) 1");
            cli.check("XADD k 3-1 f y", "\"3-1\"");
            cli.check("XADD k 4-1 f y", "\"4-1\"");
            cli.check("XLEN k", "(integer) 3");
            cli.check("XTRIM k MAXLEN 0", "(integer) 2");
            cli.check("DEBUG REENCODE", "OK");
            cli.check("XLEN k", "(integer) 1");
        }
        // A stored count of zero, but one entry.
        let parts = Parts {
            length: 0,
            added: 1,
            ..Parts::default()
        };
        assert_eq!(try_restore(cli, &parts), "OK");
        cli.check("XDEL k 5-1 6-0", "(integer) 2");
        cli.check("XLEN k", "(integer) 0");
    });
}
