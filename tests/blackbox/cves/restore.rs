//! Payloads for RESTORE, and files, that were changed by whoever sends them, with a correct checksum.

use std::fs;

use basalt_core::base::checksum::crc64;

use super::{SHAPES, at_each_shape, is_well};
use crate::clustered;
use crate::dump::{dump, makers};
use crate::support::{Draw, Options, check, start_loaded};
use crate::wire::{Raw, Value};

/// Bytes behind a value in a payload: the version and the checksum.
const VERSION_BYTES: usize = 2;
const FOOTER_BYTES: usize = VERSION_BYTES + 8;

/// Changes of each value.
const CHANGES: usize = 50;

/// Returns a value with the version of `like` and a correct checksum.
fn sealed(value: &[u8], like: &[u8]) -> Vec<u8> {
    let version = &like[like.len() - FOOTER_BYTES..][..VERSION_BYTES];
    let mut payload = [value, version].concat();
    let checksum = crc64(&payload);
    payload.extend_from_slice(&checksum.to_le_bytes());
    payload
}

fn value_of(payload: &[u8]) -> &[u8] {
    &payload[..payload.len() - FOOTER_BYTES]
}

fn restore(client: &mut Raw, payload: &[u8]) -> String {
    let request: [&[u8]; 5] = [b"RESTORE", b"restored", b"0", payload, b"REPLACE"];
    client.command(&request).show()
}

/// Writes a number as the length of the form with eight bytes.
fn long(number: u64) -> Vec<u8> {
    [&[0x81][..], &number.to_be_bytes()].concat()
}

/// Reads and changes what was restored in each way that its type has, and removes it.
fn use_up(client: &mut Raw) {
    let kind = client.call("TYPE restored").text();
    let lines: &[&str] = match kind.as_str() {
        "string" => &[
            "GET restored",
            "APPEND restored x",
            "PFCOUNT restored",
            "BITCOUNT restored",
        ],
        "list" => &[
            "LRANGE restored 0 -1",
            "LPOP restored",
            "RPUSH restored x",
            "LINSERT restored BEFORE a b",
        ],
        "set" => &[
            "SMEMBERS restored",
            "SADD restored x 1",
            "SPOP restored",
            "SREM restored a 1",
        ],
        "zset" => &[
            "ZRANGE restored 0 -1 WITHSCORES",
            "ZADD restored 1 x",
            "ZPOPMIN restored",
            "ZRANK restored a",
        ],
        "hash" => &[
            "HGETALL restored",
            "HSET restored x y",
            "HDEL restored a f1",
            "HRANDFIELD restored 2",
        ],
        "stream" => &[
            "XRANGE restored - +",
            "XINFO STREAM restored FULL COUNT 0",
            "XPENDING restored g1 - + 100",
            "XAUTOCLAIM restored g1 other 0 0",
            "XADD restored * f v",
            "XGROUP DELCONSUMER restored g1 alice",
            "XGROUP DELCONSUMER restored g1 bob",
            "XTRIM restored MAXLEN 1",
        ],
        "CMSk-TYPE" => &[
            "CMS.INFO restored",
            "CMS.QUERY restored a",
            "CMS.INCRBY restored a 1",
        ],
        "TopK-TYPE" => &[
            "TOPK.LIST restored",
            "TOPK.INFO restored",
            "TOPK.ADD restored a b",
            "TOPK.QUERY restored a",
        ],
        "MBbloom--" => &[
            "BF.INFO restored",
            "BF.EXISTS restored a",
            "BF.MADD restored a b",
            "BF.CARD restored",
        ],
        "MBbloomCF" => &[
            "CF.INFO restored",
            "CF.EXISTS restored a",
            "CF.ADD restored b",
            "CF.DEL restored a",
        ],
        "TDIS-TYPE" => &[
            "TDIGEST.INFO restored",
            "TDIGEST.QUANTILE restored 0.5",
            "TDIGEST.ADD restored 1",
        ],
        _ => &[],
    };
    for line in lines.iter().chain(&[
        "DEBUG DIGEST-VALUE restored",
        "DUMP restored",
        "DEL restored",
    ]) {
        client.call(line);
    }
}

/// Changes a value at random: bytes, lengths, its end.
fn changed(value: &[u8], draw: &mut Draw) -> Vec<u8> {
    let mut value = value.to_vec();
    for _ in 0..=draw.below(3) {
        // Lengths and counts are near the beginning.
        let within = if draw.below(2) == 0 {
            value.len()
        } else {
            value.len().min(40)
        };
        let at = 1 + draw.below(within.saturating_sub(1).max(1));
        let Some(byte) = value.get_mut(at) else {
            continue;
        };
        match draw.below(6) {
            0 => *byte = 0xff,
            1 => *byte = 0,
            2 => *byte ^= 1 << draw.below(8),
            3 => *byte = byte.wrapping_add(1),
            4 => value.truncate(at),
            _ => {
                value.splice(at..at + 1, long(draw.next() >> draw.below(64)));
            }
        }
    }
    value
}

/// A crafted payload made RESTORE write beyond what it had allocated. Which part of it was wrong is not told, so each
/// kind of value is changed.
#[test]
fn cve_2026_25243_changed_payloads_of_all_kinds_are_refused_or_harmless() {
    at_each_shape(|server| {
        let mut client = server.raw();
        for line in makers() {
            client.call(&line);
        }
        let listed = client.call("KEYS *");
        let mut keys: Vec<String> = listed.items().iter().map(Value::text).collect();
        keys.sort();
        let (mut refused, mut draw) = (0, Draw::new(25_243));
        for key in &keys {
            let payload = dump(&mut client, key);
            for _ in 0..CHANGES {
                let payload = sealed(&changed(value_of(&payload), &mut draw), &payload);
                match restore(&mut client, &payload).as_str() {
                    "OK" => use_up(&mut client),
                    reply => {
                        assert!(reply.starts_with("(error) "), "{key}: {reply}");
                        refused += 1;
                    }
                }
            }
            assert_eq!(restore(&mut client, &payload), "OK", "{key}");
            use_up(&mut client);
        }
        assert!(refused > keys.len(), "{refused} of {}", keys.len());
    });
}

/// Kinds of streams in payloads, and the version of a payload that may have them: a consumer has the time when it was
/// seen, and in the second kind another one when it was active.
const STREAM_KINDS: [(u8, u8); 2] = [(19, 10), (21, 11)];

/// A consumer: its name, the number of its pending entries as it is written, and their IDs.
type Consumer<'a> = (&'a str, &'a [u8], &'a [u64]);

/// A stream with two pending entries of one group, whose consumers are still to come.
struct Pending {
    head: Vec<u8>,
    time: [u8; 8],
    kind: (u8, u8),
}

impl Pending {
    fn of(payload: &[u8], kind: (u8, u8)) -> Pending {
        let value = value_of(payload);
        let at = value.windows(6).position(|part| part == b"\x05alice");
        let at = at.expect("the consumer");
        // The number of consumers stands before the first of them, which is the last part of the value.
        let mut head = value[..at - 1].to_vec();
        head[0] = kind.0;
        let time = value[at + 6..at + 14].try_into().expect("eight bytes");
        Pending { head, time, kind }
    }

    /// Returns a consumer with the number of its entries as it is told, and the entries.
    fn consumer(&self, (name, count, ids): Consumer<'_>) -> Vec<u8> {
        let mut bytes = vec![name.len() as u8];
        bytes.extend_from_slice(name.as_bytes());
        let times = if self.kind.0 == STREAM_KINDS[0].0 {
            1
        } else {
            2
        };
        bytes.extend(self.time.repeat(times));
        bytes.extend_from_slice(count);
        for id in ids {
            bytes.extend_from_slice(&id.to_be_bytes());
            bytes.extend_from_slice(&1_u64.to_be_bytes());
        }
        bytes
    }

    fn payload(&self, consumers: &[Consumer<'_>]) -> Vec<u8> {
        let mut value = self.head.clone();
        value.push(consumers.len() as u8);
        for consumer in consumers {
            value.extend(self.consumer(*consumer));
        }
        let like = [&[self.kind.1, 0][..], &[0; 8]].concat();
        sealed(&value, &like)
    }
}

/// Two consumers had one pending entry, which was freed with each of them.
#[test]
fn cve_2026_66373_and_63639_each_pending_entry_has_one_consumer() {
    let (many, overflowing) = (long(1 << 40), long(u64::MAX / 16 + 2));
    let wrong: [(&str, &[Consumer<'_>]); 8] = [
        (
            "one of two",
            &[("alice", &[2], &[1, 2]), ("carol", &[1], &[1])],
        ),
        (
            "both",
            &[("alice", &[2], &[1, 2]), ("carol", &[2], &[1, 2])],
        ),
        ("twice the same", &[("alice", &[2], &[1, 1])]),
        ("one that is not pending", &[("alice", &[3], &[1, 2, 9])]),
        ("one is nobody's", &[("alice", &[1], &[1])]),
        (
            "a name twice",
            &[("alice", &[1], &[1]), ("alice", &[1], &[2])],
        ),
        ("more than follow", &[("alice", &many, &[1, 2])]),
        ("an overflow", &[("alice", &overflowing, &[1, 2])]),
    ];
    at_each_shape(|server| {
        let mut client = server.raw();
        for line in [
            "XADD s 1-1 f v",
            "XADD s 2-1 f v",
            "XGROUP CREATE s g1 0",
            "XREADGROUP GROUP g1 alice STREAMS s >",
        ] {
            assert!(!client.call(line).is_error(), "{line}");
        }
        let payload = dump(&mut client, "s");
        for kind in STREAM_KINDS {
            let pending = Pending::of(&payload, kind);
            for (what, consumers) in wrong {
                let reply = restore(&mut client, &pending.payload(consumers));
                assert_eq!(reply, "(error) ERR Bad data format", "{what} {kind:?}");
                check(&mut client, "EXISTS restored", "(integer) 0");
            }
            // The same with one consumer for each is taken, and both may go.
            let good = pending.payload(&[("alice", &[1], &[1]), ("carol", &[1], &[2])]);
            assert_eq!(restore(&mut client, &good), "OK", "{kind:?}");
            for name in ["alice", "carol"] {
                let line = format!("XGROUP DELCONSUMER restored g1 {name}");
                check(&mut client, &line, "(integer) 1");
            }
            let left = client.call("XPENDING restored g1");
            assert_eq!(left.items()[0], Value::Integer(0));
            check(&mut client, "DEL restored", "(integer) 1");
        }
    });
}

/// Returns the number of a module's type in payloads: nine letters of six bits, and a version of ten.
fn module(name: &str, version: u64) -> u64 {
    let letters = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_";
    let number = name.bytes().fold(0, |number, byte| {
        let at = letters.iter().position(|letter| *letter == byte);
        number << 6 | at.expect("a letter") as u64
    });
    number << 10 | version
}

/// Values of modules were believed: sizes that do not fit what follows (RedisTimeSeries 25588, RedisBloom 25589 and
/// 62356), and a failed check ended the server (valkey-bloom, 21864).
#[test]
fn cve_2026_25588_25589_62356_and_21864_values_of_modules_are_refused() {
    at_each_shape(|server| {
        let mut client = server.raw();
        check(&mut client, "SET like v", "OK");
        let like = dump(&mut client, "like");
        for (name, version) in [
            ("CMSk-TYPE", 0),
            ("TopK-TYPE", 0),
            ("MBbloom--", 4),
            ("MBbloomCF", 4),
            ("TDIS-TYPE", 0),
            ("TSDB-TYPE", 8),
            ("bloomfltr", 1),
            ("vectorset", 1),
        ] {
            for numbers in [
                &[1_u64 << 32, 1 << 32, 0][..],
                &[u64::MAX, 2, 0],
                &[10, 10, 0],
                &[],
            ] {
                let mut value = vec![7];
                value.extend(long(module(name, version)));
                for number in numbers {
                    // An unsigned number, and at the end a string.
                    value.push(2);
                    value.extend(long(*number));
                }
                value.extend_from_slice(b"\x05\x04abcd\0");
                let reply = restore(&mut client, &sealed(&value, &like));
                assert_eq!(reply, "(error) ERR Bad data format", "{name} {numbers:?}");
            }
        }
        check(&mut client, "EXISTS restored", "(integer) 0");
    });
}

/// The server's own sketches, with each byte of their parameters changed: dimensions, capacities, counts, heaps.
#[test]
fn cve_2026_25589_and_62356_changed_sketches_are_refused_or_harmless() {
    at_each_shape(|server| {
        let mut client = server.raw();
        for line in [
            "CMS.INITBYDIM cms 20 3",
            "CMS.INCRBY cms a 3 b 4",
            "TOPK.RESERVE topk 3 8 3 0.9",
            "TOPK.ADD topk a b c d a a",
            "BF.RESERVE bloom 0.01 50",
            "BF.MADD bloom a b c",
            "CF.RESERVE cuckoo 64",
            "CF.ADD cuckoo a",
            "TDIGEST.CREATE digest",
            "TDIGEST.ADD digest 1 2 3 4",
        ] {
            let reply = client.call(line);
            assert!(!reply.is_error(), "{line}: {}", reply.show());
        }
        for key in ["cms", "topk", "bloom", "cuckoo", "digest"] {
            let payload = dump(&mut client, key);
            let value = value_of(&payload);
            let mut refused = 0;
            for at in 1..value.len().min(110) {
                for byte in [0, 0xff, value[at] ^ 0x80, value[at].wrapping_add(1)] {
                    let mut changed = value.to_vec();
                    changed[at] = byte;
                    match restore(&mut client, &sealed(&changed, &payload)).as_str() {
                        "OK" => use_up(&mut client),
                        _ => refused += 1,
                    }
                }
            }
            assert!(refused > 10, "{key}: {refused}");
        }
    });
}

/// The number of a slot in a snapshot was the index of an array.
#[test]
fn redis_8_8_2_slot_numbers_of_a_snapshot_may_be_anything() {
    let mut file = b"REDIS0012".to_vec();
    for slot in [
        0,
        16_383,
        16_384,
        65_535,
        1 << 31,
        u64::from(u32::MAX),
        u64::MAX,
    ] {
        file.push(0xf4);
        for number in [slot, 1 << 40, u64::MAX] {
            file.extend(long(number));
        }
    }
    file.extend_from_slice(b"\0\x01k\x01v\xff");
    file.extend_from_slice(&[0; 8]);
    for in_cluster in [false, true] {
        for (shards, threads) in SHAPES {
            let dir = tempfile::tempdir().expect("a folder");
            fs::write(dir.path().join("dump.rdb"), &file).expect("it is written");
            let options = match in_cluster {
                true => clustered::options(),
                false => Options::shards(shards).threads(threads),
            };
            let server = start_loaded(&options.with("dir", &dir.path().display().to_string()));
            check(&mut server.raw(), "DBSIZE", "(integer) 1");
            is_well(&server);
        }
    }
}

/// A score that is no number, in the packed form, which no command can make.
#[test]
fn valkey_3921_scores_of_a_payload_are_numbers() {
    at_each_shape(|server| {
        let mut client = server.raw();
        check(&mut client, "ZADD z 1.5 a", "(integer) 1");
        let payload = dump(&mut client, "z");
        let at = value_of(&payload)
            .windows(3)
            .position(|part| part == b"1.5");
        let mut value = value_of(&payload).to_vec();
        value[at.expect("the score")..][..3].copy_from_slice(b"nan");
        let reply = restore(&mut client, &sealed(&value, &payload));
        assert_eq!(reply, "(error) ERR Bad data format");
    });
}
