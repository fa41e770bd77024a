//! Numbers and sizes in arguments that overflow, and values that no command may create.

use super::at_each_shape;
use crate::support::{Options, Server, check, info_number};
use crate::wire::{Raw, Value};

const SMALLEST: &str = "-9223372036854775808";
const LARGEST: &str = "9223372036854775807";

/// Registers of a HyperLogLog, and the longest run of zero registers that one instruction of its sparse form has.
const ZEROS: &[u8] = b"\x7f\xff";

/// Bytes by which memory may differ for other reasons than a leak.
const SLACK_BYTES: f64 = 1_000_000.0;

/// SETRANGE computed the end of the string, and SORT the end of a LIMIT, beyond the greatest number.
#[test]
fn cve_2022_35977_offsets_of_setrange_and_sort_do_not_overflow() {
    at_each_shape(|server| {
        let mut client = server.raw();
        check(&mut client, "RPUSH list 3 1 2", "(integer) 3");
        for offset in [LARGEST, "9223372036854775800", "4611686018427387904"] {
            check(
                &mut client,
                &format!("SETRANGE text {offset} abc"),
                "(error) ERR string exceeds maximum allowed size (proto-max-bulk-len)",
            );
            for line in [
                format!("SORT list LIMIT {offset} {offset}"),
                format!("SORT_RO list LIMIT {offset} 1"),
            ] {
                check(&mut client, &line, "(empty array)");
            }
            let rest = format!("SORT list LIMIT 1 {offset}");
            check(&mut client, &rest, "1) \"2\"\n2) \"3\"");
            let all = format!("SORT list LIMIT {SMALLEST} {offset}");
            check(&mut client, &all, "1) \"1\"\n2) \"2\"\n3) \"3\"");
        }
        check(&mut client, "EXISTS text", "(integer) 0");
    });
}

/// Counts of random members overflowed when they were negated (22458) or doubled (25155).
#[test]
fn cve_2023_22458_and_25155_counts_of_random_members_do_not_overflow() {
    at_each_shape(|server| {
        let mut client = server.raw();
        check(&mut client, "HSET hash a 1 b 2", "(integer) 2");
        check(&mut client, "ZADD zset 1 a 2 b", "(integer) 2");
        check(&mut client, "SADD set a b", "(integer) 2");
        for count in [
            SMALLEST,
            "-9223372036854775807",
            "-4611686018427387905",
            "-4611686018427387904",
        ] {
            for line in [
                format!("HRANDFIELD hash {count} WITHVALUES"),
                format!("ZRANDMEMBER zset {count} WITHSCORES"),
            ] {
                let reply = client.call(&line).show();
                assert!(reply.starts_with("(error) ERR "), "{line}: {reply}");
            }
        }
        for count in [SMALLEST, "-9223372036854775807"] {
            for line in [
                format!("HRANDFIELD hash {count}"),
                format!("ZRANDMEMBER zset {count}"),
                format!("SRANDMEMBER set {count}"),
            ] {
                let reply = client.call(&line).show();
                assert!(reply.starts_with("(error) ERR "), "{line}: {reply}");
            }
        }
        for line in [
            "HRANDFIELD hash -3",
            "ZRANDMEMBER zset -3",
            "SRANDMEMBER set -3",
        ] {
            assert_eq!(client.call(line).items().len(), 3, "{line}");
        }
    });
}

/// MSETNX that names a key twice ended the server, which expected the second one to be missing still.
#[test]
fn cve_2023_28425_msetnx_may_name_a_key_twice() {
    at_each_shape(|server| {
        let mut client = server.raw();
        check(&mut client, "MSETNX {t}a 1 {t}a 2", "(integer) 1");
        check(&mut client, "GET {t}a", "\"2\"");
        check(&mut client, "MSETNX {t}b 1 {t}a 3 {t}b 4", "(integer) 0");
        check(&mut client, "EXISTS {t}b", "(integer) 0");
        // Keys of different shards.
        check(&mut client, "MSETNX c 1 d 2 c 3 e 4 d 5", "(integer) 1");
        check(&mut client, "MGET c d e", "1) \"3\"\n2) \"5\"\n3) \"4\"");
    });
}

/// HINCRBYFLOAT stored what is no number, and the next command on that field ended the server.
#[test]
fn cve_2023_28856_hincrbyfloat_stores_numbers_only() {
    at_each_shape(|server| {
        let mut client = server.raw();
        check(&mut client, "HSET hash f 1.5", "(integer) 1");
        for increment in [
            "nan",
            "-nan",
            "inf",
            "-inf",
            "+Infinity",
            "1e5000",
            "0x",
            "",
        ] {
            let reply = client.command(&["HINCRBYFLOAT", "hash", "f", increment]);
            assert!(reply.is_error(), "{increment}: {}", reply.show());
            let reply = client.command(&["HINCRBYFLOAT", "hash", "new", increment]);
            assert!(reply.is_error(), "{increment}: {}", reply.show());
        }
        check(&mut client, "HGETALL hash", "1) \"f\"\n2) \"1.5\"");
        // The greatest numbers that are taken stay numbers.
        client.call("HINCRBYFLOAT hash f 1e308");
        for _ in 0..3 {
            let sum = client.call("HINCRBYFLOAT hash f 1.7e308");
            assert!(sum.is_error() || sum.text().parse::<f64>().is_ok());
        }
        assert!(!client.call("HGET hash f").is_error());
        check(&mut client, "HINCRBYFLOAT hash g 2.5", "\"2.5\"");
    });
}

/// Runs of registers that together are longer than a HyperLogLog were written beyond its end.
#[test]
fn cve_2025_32023_malformed_hyperloglogs_are_refused() {
    let head = [&b"HYLL\x01\0\0\0"[..], &[0; 7], &[0x80]].concat();
    let twice = [&head, ZEROS, ZEROS].concat();
    // The sum of the runs exceeds a signed number of 32 bits, and a value follows.
    let wrapped = [&head, &ZEROS.repeat(140_000)[..], b"\x83"].concat();
    let short = [&head, &b"\x7f\xf0"[..]].concat();
    let cut = [&head, &b"\x7f"[..]].concat();
    let behind = [&head, ZEROS, &b"\xff"[..]].concat();
    let dense = [&b"HYLL\0\0\0\0"[..], &[0; 7], &[0x80], &[7; 100]].concat();
    let good = [&head, ZEROS].concat();
    at_each_shape(|server| {
        let mut client = server.raw();
        for (at, payload) in [&twice, &wrapped, &short, &cut, &behind, &dense, &head]
            .into_iter()
            .enumerate()
        {
            for request in [
                &["PFCOUNT", "hll"][..],
                &["PFCOUNT", "hll", "other"],
                &["PFMERGE", "merged", "hll"],
                &["PFMERGE", "hll", "other"],
                &["PFDEBUG", "GETREG", "hll"],
                &["PFDEBUG", "TODENSE", "hll"],
            ] {
                client.command(&[&b"SET"[..], b"hll", payload]);
                let reply = client.command(request).show();
                let is_refused = reply.starts_with("(error) INVALIDOBJ")
                    || reply.starts_with("(error) WRONGTYPE");
                assert!(is_refused, "{at} {request:?}: {reply}");
            }
            // An element may be added or not, but what is there then is used without harm.
            client.command(&["PFADD", "hll", "a", "b", "c", "d"]);
            client.command(&["PFCOUNT", "hll"]);
        }
        client.command(&[&b"SET"[..], b"hll", &good]);
        check(&mut client, "PFCOUNT hll", "(integer) 0");
        check(&mut client, "PFADD hll a b c", "(integer) 1");
        check(&mut client, "PFCOUNT hll", "(integer) 3");
    });
}

/// Families of modules are missing here; whoever calls them is told so by name.
#[test]
fn cve_2024_51480_and_51737_and_2026_25588_time_series_and_search_are_refused_by_name() {
    at_each_shape(|server| {
        let mut client = server.raw();
        for (line, missing) in [
            ("TS.QUERYINDEX a=(b,c)", "time series"),
            ("TS.MGET FILTER a=(b,c)", "time series"),
            ("TS.MRANGE - + FILTER a=(b", "time series"),
            (
                "FT.SEARCH index query LIMIT 0 9223372036854775807",
                "search",
            ),
            (
                "FT.AGGREGATE index query LIMIT 0 9223372036854775807",
                "search",
            ),
            ("VADD set VALUES 1 1 a", "vector sets"),
            ("VSIM set VALUES 1 1 COUNT -1", "vector sets"),
        ] {
            let reply = client.call(line).show();
            let is_named = reply.starts_with("(error) ERR unknown command ")
                && reply.contains(&format!("basalt has no {missing}"));
            assert!(is_named, "{line}: {reply}");
        }
    });
}

/// The length of a reply that is known only at its end was put into a buffer that had no room for it.
#[test]
fn cve_2025_49112_lengths_that_are_known_late_are_where_they_belong() {
    at_each_shape(|server| {
        let mut client = server.raw();
        check(&mut client, "MSET k1 v k2 v k3 v", "OK");
        for bytes in (0..300)
            .map(|step| 16_384 - 200 + step)
            .chain([32_768, 65_536, 65_537])
        {
            let text = "x".repeat(bytes);
            let echo = format!("ECHO {text}");
            let lines = [
                &echo,
                "KEYS k*",
                "SCAN 0 COUNT 100",
                "CONFIG GET save*",
                "ECHO end",
            ];
            let replies = client.pipeline(&lines);
            assert_eq!(replies[0].bytes().len(), bytes);
            assert_eq!(replies[1].items().len(), 3, "{bytes}");
            assert_eq!(replies[2].items()[1].items().len(), 3, "{bytes}");
            assert_eq!(replies[3].items().len(), 2, "{bytes}");
            assert_eq!(replies[4].bytes(), b"end", "{bytes}");
        }
    });
}

/// Buffers that grow and shrink were taken for larger than they are.
#[test]
fn cve_2023_41056_buffers_that_change_their_size_hold_what_is_put_into_them() {
    at_each_shape(|server| {
        let (mut writer, mut reader) = (server.raw(), server.raw());
        for round in 0..60_usize {
            let bytes = [31_900, 32_768, 33_000, 64, 131_073, 16_384][round % 6] + round * 7;
            let text = "abcdefg".repeat(bytes / 7 + 1)[..bytes].to_owned();
            // In pieces, so that the buffer grows step by step.
            let request = crate::wire::encode(&["SET", "grown", &text]);
            request.chunks(20_000).for_each(|piece| writer.send(piece));
            assert_eq!(writer.read().show(), "OK");
            check(
                &mut writer,
                "APPEND grown tail",
                &format!("(integer) {}", bytes + 4),
            );
            let found = reader.call("GET grown");
            assert_eq!(found.text(), format!("{text}tail"));
            writer.command(&["CLIENT", "LIST"]);
        }
    });
}

/// The report of a crash could itself crash (3647), and the Windows port loaded a library from the current folder
/// (3734). Here a report is written by the server's own code, and there is no Windows port.
#[test]
fn cve_2022_3647_a_crash_is_reported_and_the_process_ends() {
    if crate::support::is_stand_in() {
        return;
    }
    for (shards, threads) in super::SHAPES {
        let options = Options::shards(shards).threads(threads);
        let mut server = Server::start(&options.with("enable-debug-command", "yes"));
        let mut client = server.raw();
        client.send(b"DEBUG SEGFAULT\r\n");
        assert!(client.is_closed());
        server.wait_for_exit();
        let log = server.log();
        assert!(
            log.contains("BUG REPORT START") && log.contains("BUG REPORT END"),
            "{log}"
        );
    }
}

/// The checker of append-only files copied its argument into a buffer of fixed length.
#[test]
fn cve_2025_27151_checkers_take_paths_of_any_length() {
    if crate::support::is_stand_in() {
        return;
    }
    let long = format!("/tmp/{}", "x/".repeat(30_000));
    for program in ["check-aof", "check-rdb"] {
        let output = crate::support::command()
            .args([program, &long])
            .output()
            .expect("it runs");
        assert!(
            output.status.code().is_some_and(|code| code != 0),
            "{program}: {output:?}"
        );
    }
}

/// Memory of an iterator was lost whenever the first entry of a stream was removed.
#[test]
fn cve_2022_33105_removing_the_first_entry_of_a_stream_leaks_nothing() {
    at_each_shape(|server| {
        let mut client = server.raw();
        let round = |client: &mut Raw| {
            let lines = [
                "XADD s * f v",
                "XADD s * f v",
                "XTRIM s MAXLEN 1",
                "XADD s 1-1 f v",
            ];
            for _ in 0..50 {
                let many: Vec<&str> = lines.iter().copied().cycle().take(100).collect();
                let replies = client.pipeline(&many);
                let mut ids = replies.iter().rev();
                let last = ids.find(|reply| matches!(reply, Value::Bulk(_)));
                let last = last.expect("an entry").text();
                client.call(&format!("XDEL s {last}"));
            }
            client.call("DEL s");
        };
        round(&mut client);
        let before = info_number(&mut client, "memory", "used_memory");
        (0..3).for_each(|_| round(&mut client));
        let leaked = info_number(&mut client, "memory", "used_memory") - before;
        assert!(leaked < SLACK_BYTES, "{leaked}");
    });
}
