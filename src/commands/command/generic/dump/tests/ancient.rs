//! Formats of servers before 7.0, made from their description: lists of strings, ziplists, zipmaps, scores as text.
//! And formats of servers after 7.0, none of which is available here for recording.

use super::{dump, restore};
use crate::command::testing::on_every_setup;
use basalt_core::structures::listpack::{self, ListpackMut};
use basalt_core::structures::ziplist::maker::ziplist;
use basalt_core::structures::zipmap::maker::zipmap;
use basalt_engine::serial::frame;

/// Writes a length, short enough for the two shortest forms.
fn length(length: usize, into: &mut Vec<u8>) {
    if length < 64 {
        into.push(length as u8);
    } else {
        into.extend_from_slice(&[0x40 | (length >> 8) as u8, length as u8]);
    }
}

fn string(text: &[u8], into: &mut Vec<u8>) {
    length(text.len(), into);
    into.extend_from_slice(text);
}

/// Returns a payload of a type byte, a count, and strings.
fn strings(form: u8, count: usize, texts: &[&[u8]]) -> Vec<u8> {
    let mut value = vec![form];
    length(count, &mut value);
    texts.iter().for_each(|text| string(text, &mut value));
    value
}

/// Returns a payload of a type byte and one string.
fn one_string(form: u8, text: &[u8]) -> Vec<u8> {
    let mut value = vec![form];
    string(text, &mut value);
    value
}

const LIST: &[&[u8]] = &[b"a", b"12", b"-5", b"", b"99999999999", b"300"];

const SCORED: &[&[u8]] = &[b"7", b"-inf", b"a", b"2.5", b"b", b"3", b"c", b"inf"];

const FIELDS: &[&[u8]] = &[b"f1", b"v1", b"2", b"-7", b"", b"e"];

/// The deadline of the first field that expires.
const EARLIEST_MS: u64 = 1_900_000_000_000;

/// Returns a hash with deadlines, given as numbers: 0 for none, otherwise 1 more than the distance to the earliest.
fn with_deadlines(form: u8, behind: &[u64]) -> Vec<u8> {
    let mut value = vec![form];
    if form == 24 {
        value.extend_from_slice(&EARLIEST_MS.to_le_bytes());
    }
    value.push(behind.len() as u8);
    for (pair, behind) in FIELDS.chunks(2).zip(behind) {
        match (form, *behind) {
            (24, _) | (_, 0) => value.push(*behind as u8),
            (_, behind) => {
                value.push(0x81);
                value.extend_from_slice(&(EARLIEST_MS + behind - 1).to_be_bytes());
            }
        }
        pair.iter().for_each(|text| string(text, &mut value));
    }
    value
}

/// Returns a hash with deadlines in a listpack.
fn packed_deadlines(form: u8, deadlines: &[&str]) -> Vec<u8> {
    let mut value = vec![form];
    if form == 25 {
        value.extend_from_slice(&EARLIEST_MS.to_le_bytes());
    }
    let triples: Vec<&[u8]> = FIELDS
        .chunks(2)
        .zip(deadlines)
        .flat_map(|(pair, deadline)| [pair[0], pair[1], deadline.as_bytes()])
        .collect();
    string(&pack(&triples), &mut value);
    value
}

/// Returns members with scores as text; scores of a single byte from 253 on are stored as that byte.
fn text_scores(members: &[(&[u8], &[u8])]) -> Vec<u8> {
    let mut value = vec![3, members.len() as u8];
    for (member, score) in members {
        string(member, &mut value);
        if score[0] < 253 {
            value.push(score.len() as u8);
        }
        value.extend_from_slice(score);
    }
    value
}

/// An intset of -1, 3 and 70000, stored with a width that only a larger number would need.
const INTSET: &[u8] = b"\x08\0\0\0\x03\0\0\0\
    \xff\xff\xff\xff\xff\xff\xff\xff\x03\0\0\0\0\0\0\0\x70\x11\x01\0\0\0\0\0";

/// Returns a listpack as all servers write it.
fn pack(texts: &[&[u8]]) -> Vec<u8> {
    let mut bytes = listpack::EMPTY.to_vec();
    let mut pack = ListpackMut::new(&mut bytes);
    texts.iter().for_each(|text| pack.push_back(text));
    bytes
}

/// Returns a listpack of short texts in which numbers are stored as text, too.
fn text_pack(texts: &[&[u8]]) -> Vec<u8> {
    let mut bytes = vec![0; 6];
    for text in texts {
        bytes.push(0x80 | text.len() as u8);
        bytes.extend_from_slice(text);
        bytes.push(1 + text.len() as u8);
    }
    bytes.push(0xff);
    let total = bytes.len() as u32;
    bytes[..4].copy_from_slice(&total.to_le_bytes());
    bytes[4..6].copy_from_slice(&(texts.len() as u16).to_le_bytes());
    bytes
}

/// Returns the payloads, each with the commands that create the same value here.
pub(super) fn all() -> impl Iterator<Item = (&'static str, Vec<u8>)> {
    let list = "RPUSH k a 12 -5 \"\" 99999999999 300";
    let zset = "ZADD k 3 b 2.5 a inf c -inf 7";
    let hash = "HSET k f1 v1 2 -7 \"\" e";
    let pairs: Vec<(&[u8], &[u8])> = FIELDS.chunks(2).map(|pair| (pair[0], pair[1])).collect();
    let two_ziplists = [ziplist(&LIST[..2], true), ziplist(&LIST[2..], true)];
    let two_ziplists: Vec<&[u8]> = two_ziplists.iter().map(Vec::as_slice).collect();
    [
        (list, strings(1, LIST.len(), LIST)),
        (list, one_string(10, &ziplist(LIST, true))),
        (list, one_string(10, &ziplist(LIST, false))),
        (list, strings(14, 2, &two_ziplists)),
        ("SADD k a b 17", strings(2, 3, &[b"17", b"b", b"a"])),
        ("SADD k 3 -1 70000", one_string(11, INTSET)),
        ("SADD k a b 17", one_string(20, &pack(&[b"a", b"17", b"b"]))),
        (
            "SADD k a b 17",
            one_string(20, &text_pack(&[b"a", b"17", b"b"])),
        ),
        (zset, one_string(12, &ziplist(SCORED, true))),
        (zset, one_string(12, &ziplist(SCORED, false))),
        (zset, one_string(17, &pack(SCORED))),
        (hash, strings(4, FIELDS.len() / 2, FIELDS)),
        (hash, one_string(9, &zipmap(&pairs, 0))),
        (hash, one_string(9, &zipmap(&pairs, 3))),
        (hash, one_string(13, &ziplist(FIELDS, true))),
        (hash, one_string(16, &pack(FIELDS))),
    ]
    .into_iter()
}

#[test]
fn forms_of_other_ages_are_what_commands_make_here() {
    on_every_setup(|cli| {
        for (line, value) in all() {
            let about = || value.escape_ascii().to_string();
            cli.run("FLUSHALL");
            assert!(!cli.run(line).contains("error"), "{line}");
            let expected = cli.run("DEBUG DIGEST-VALUE k");
            let payload = frame::seal(value.clone(), 6);
            assert_eq!(restore(cli, "k", &payload, "replace"), "OK", "{}", about());
            assert_eq!(cli.run("DEBUG DIGEST-VALUE k"), expected, "{}", about());
            let again = dump(cli, "k");
            assert_eq!(restore(cli, "k", &again, "replace"), "OK", "{}", about());
            assert_eq!(cli.run("DEBUG DIGEST-VALUE k"), expected, "{}", about());
        }
    });
}

#[test]
fn what_no_server_would_write_is_refused() {
    on_every_setup(|cli| {
        for (reason, value) in [
            ("no element", strings(1, 0, &[])),
            ("no element", one_string(10, &ziplist(&[], true))),
            ("no element", strings(14, 1, &[&ziplist(&[], true)])),
            ("no member", strings(2, 0, &[])),
            ("twice", strings(2, 2, &[b"a", b"a"])),
            ("twice", one_string(20, &pack(&[b"a", b"a"]))),
            ("twice", one_string(20, &text_pack(&[b"12", b"12"]))),
            ("no number", one_string(11, b"\x02\0\0\0\0\0\0\0")),
            (
                "descending",
                one_string(11, b"\x02\0\0\0\x02\0\0\0\x02\0\x01\0"),
            ),
            ("twice", text_scores(&[(b"a", b"1"), (b"a", b"2")])),
            ("NaN", text_scores(&[(b"a", b"\xfd")])),
            ("NaN", text_scores(&[(b"a", b"nan")])),
            ("NaN", b"\x05\x01\x01a\0\0\0\0\0\0\xf8\x7f".to_vec()),
            ("no member", one_string(17, &pack(&[]))),
            ("odd", one_string(17, &pack(&[b"a", b"1", b"b"]))),
            ("odd", one_string(12, &ziplist(&[b"a", b"1", b"b"], true))),
            ("order", one_string(17, &pack(&[b"a", b"2", b"b", b"1"]))),
            (
                "order",
                one_string(12, &ziplist(&[b"b", b"1", b"a", b"1"], true)),
            ),
            ("twice", one_string(17, &pack(&[b"a", b"1", b"a", b"2"]))),
            ("no score", one_string(17, &pack(&[b"a", b"x"]))),
            ("NaN", one_string(17, &pack(&[b"a", b"nan"]))),
            ("no field", strings(4, 0, &[])),
            ("no field", one_string(9, &zipmap(&[], 0))),
            ("a map of 255 fields with one", {
                let mut map = zipmap(&[(b"a", b"1")], 0);
                map[0] = 0xff;
                one_string(9, &map)
            }),
            ("no field", one_string(16, &pack(&[]))),
            ("twice", strings(4, 2, &[b"a", b"1", b"a", b"2"])),
            (
                "twice",
                one_string(9, &zipmap(&[(b"a", b"1"), (b"a", b"2")], 0)),
            ),
            (
                "twice",
                one_string(13, &ziplist(&[b"a", b"1", b"a", b"2"], true)),
            ),
            ("twice", one_string(16, &pack(&[b"a", b"1", b"a", b"2"]))),
            ("odd", one_string(16, &pack(&[b"a", b"1", b"b"]))),
            ("odd", one_string(23, &pack(&[b"a", b"1"]))),
            (
                "no deadline",
                packed_deadlines(25, &["1900000000000", "x", "0"]),
            ),
            ("no deadline", packed_deadlines(25, &["-1", "0", "0"])),
            ("order", packed_deadlines(25, &["0", "1900000000000", "0"])),
            (
                "order",
                packed_deadlines(23, &["1900000000001", "1900000000000", "0"]),
            ),
            ("far", packed_deadlines(23, &["300000000000000", "0", "0"])),
        ] {
            let payload = frame::seal(value.clone(), 10);
            assert_eq!(
                restore(cli, "k", &payload, ""),
                "(error) ERR Bad data format",
                "{reason}: {}",
                value.escape_ascii()
            );
        }
        cli.check("EXISTS k", "(integer) 0");
    });
}

#[test]
fn deadlines_of_fields_travel_in_the_forms_of_later_servers() {
    on_every_setup(|cli| {
        for value in [
            with_deadlines(24, &[5, 0, 1]),
            with_deadlines(22, &[5, 0, 1]),
            packed_deadlines(25, &["1900000000000", "1900000000004", "0"]),
            packed_deadlines(23, &["1900000000000", "1900000000004", "0"]),
        ] {
            let about = value.escape_ascii().to_string();
            let payload = frame::seal(value, 12);
            assert_eq!(restore(cli, "k", &payload, "replace"), "OK", "{about}");
            assert_eq!(cli.encoding("k"), "listpackex", "{about}");
            let seen = cli.run("HPEXPIRETIME k FIELDS 3 f1 2 \"\"");
            for entries_max in [512, 0] {
                cli.configure(|config| config.hash_max_listpack_entries = entries_max);
                let again = dump(cli, "k");
                assert_eq!(
                    frame::open(&again).map(|(value, _)| value.len()),
                    Some(again.len() - 10)
                );
                assert_eq!(
                    again[again.len() - 10],
                    12,
                    "only servers from 7.4 on know them"
                );
                assert_eq!(restore(cli, "k", &again, "replace"), "OK", "{about}");
                assert_eq!(
                    cli.run("HPEXPIRETIME k FIELDS 3 f1 2 \"\""),
                    seen,
                    "{about}"
                );
                cli.check("HMGET k f1 2 \"\"", "1) \"v1\"\n2) \"-7\"\n3) \"e\"");
            }
            assert_eq!(cli.encoding("k"), "hashtable", "{about}");
            let large = dump(cli, "k");
            cli.configure(|config| config.hash_max_listpack_entries = 512);
            assert_eq!(restore(cli, "k", &large, "replace"), "OK", "{about}");
            assert_eq!(cli.encoding("k"), "listpackex", "{about}");
            assert_eq!(
                cli.run("HPEXPIRETIME k FIELDS 3 f1 2 \"\""),
                seen,
                "{about}"
            );
        }
    });
}

#[test]
fn a_hash_whose_fields_lost_their_deadlines_is_one_that_all_servers_know() {
    on_every_setup(|cli| {
        for entries_max in [512, 0] {
            cli.configure(|config| config.hash_max_listpack_entries = entries_max);
            cli.run("DEL k");
            cli.check("HSET k a 1 b 2 c 3", "(integer) 3");
            cli.check(
                "HPEXPIRE k 1000 FIELDS 2 a b",
                "1) (integer) 1\n2) (integer) 1",
            );
            let later = dump(cli, "k");
            assert_eq!(later[later.len() - 10], 12);
            cli.check("HPERSIST k FIELDS 1 a", "1) (integer) 1");
            cli.check("HDEL k b", "(integer) 1");
            let payload = dump(cli, "k");
            assert_eq!(
                payload[payload.len() - 10],
                10,
                "{}",
                payload.escape_ascii()
            );
            assert_eq!(restore(cli, "k", &payload, "replace"), "OK");
            cli.check("HMGET k a b c", "1) \"1\"\n2) (nil)\n3) \"3\"");
            // Expired fields are not included.
            assert_eq!(restore(cli, "k", &later, "replace"), "OK");
            cli.advance_ms(1000);
            let payload = dump(cli, "k");
            assert_eq!(
                payload[payload.len() - 10],
                10,
                "{}",
                payload.escape_ascii()
            );
            assert_eq!(restore(cli, "k", &payload, "replace"), "OK");
            let expected = cli_pairs(cli, "c", "3");
            cli.check("HGETALL k", &expected);
        }
    });
}

/// Returns one pair as HGETALL shows it in either protocol.
fn cli_pairs(cli: &crate::command::testing::Terminal, field: &str, value: &str) -> String {
    match cli.connection.protocol {
        basalt_core::resp::reply::Protocol::Resp2 => format!("1) \"{field}\"\n2) \"{value}\""),
        basalt_core::resp::reply::Protocol::Resp3 => format!("1# \"{field}\" => \"{value}\""),
    }
}

#[test]
fn fields_that_came_with_a_deadline_are_deleted_when_it_is_over() {
    for entries_max in [512, 0] {
        on_every_setup(|cli| {
            cli.configure(|config| config.hash_max_listpack_entries = entries_max);
            let value = packed_deadlines(25, &["1900000000000", "1900000000004", "0"]);
            let payload = frame::seal(value, 12);
            assert_eq!(restore(cli, "k", &payload, ""), "OK");
            let now = basalt_engine::Now {
                unix_ms: EARLIEST_MS + 100_000,
            };
            for engine in &mut cli.engines {
                while engine.expire_slice(now) {}
            }
            // The clock of commands is still before the deadlines.
            cli.check("HLEN k", "(integer) 1");
            cli.now_ms = now.unix_ms;
            assert_eq!(restore(cli, "late", &payload, ""), "OK");
            cli.check("HMGET late f1 2 \"\"", "1) (nil)\n2) (nil)\n3) \"e\"");
        });
    }
}
