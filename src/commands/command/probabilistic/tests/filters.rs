//! Tests of BF.* and CF.*.

use super::{fact, integers, truth, truths};
use crate::command::testing::{Terminal, on_every_setup};
use basalt_core::resp::reply::Protocol;

#[test]
fn a_bloom_filter_knows_what_was_added() {
    on_every_setup(|cli| {
        let (yes, no) = (truth(cli, true), truth(cli, false));
        cli.check("BF.ADD f item", yes);
        cli.check("BF.ADD f item", no);
        cli.check("BF.EXISTS f item", yes);
        cli.check("BF.EXISTS f other", no);
        cli.check("BF.EXISTS none item", no);
        cli.check(
            "BF.MADD f item2 item3 item2",
            &truths(cli, &[true, true, false]),
        );
        cli.check(
            "BF.MEXISTS f item2 item3 item4",
            &truths(cli, &[true, true, false]),
        );
        cli.check("BF.MEXISTS none a b", &truths(cli, &[false, false]));
        cli.check("BF.CARD f", "(integer) 3");
        cli.check("BF.CARD none", "(integer) 0");
        cli.check("BF.INSERT f ITEMS a item", &truths(cli, &[true, false]));
        cli.check(
            "BF.INSERT g CAPACITY 7 ERROR 0.1 EXPANSION 4 ITEMS a",
            &truths(cli, &[true]),
        );
        cli.check(
            "BF.INFO g EXPANSION",
            &match cli.connection.protocol {
                Protocol::Resp2 => String::from("1) (integer) 4"),
                Protocol::Resp3 => String::from("1# Expansion rate => (integer) 4"),
            },
        );
        cli.check("TYPE f", "MBbloom--");
        cli.check("OBJECT ENCODING f", "\"raw\"");
        cli.check("COPY f h", "(integer) 1");
        cli.check("BF.EXISTS h item3", yes);
        cli.check("DEL f", "(integer) 1");
    });
}

#[test]
fn facts_of_a_bloom_filter_are_those_of_redis() {
    on_every_setup(|cli| {
        cli.check("BF.ADD f item", truth(cli, true));
        for (name, value) in [
            ("Capacity", "(integer) 100"),
            ("Size", "(integer) 240"),
            ("Number of filters", "(integer) 1"),
            ("Number of items inserted", "(integer) 1"),
            ("Expansion rate", "(integer) 2"),
        ] {
            assert_eq!(fact(cli, "BF.INFO f", name), value);
        }
        cli.check("BF.RESERVE n 0.01 3 NONSCALING", "OK");
        assert_eq!(fact(cli, "BF.INFO n", "Expansion rate"), "(nil)");
        cli.check("BF.RESERVE zero 0.01 3 EXPANSION 0", "OK");
        assert_eq!(fact(cli, "BF.INFO zero", "Expansion rate"), "(nil)");
        cli.check("BF.INFO f nosuch", "(error) Invalid information value");
        cli.check("BF.INFO none", "(error) ERR not found");
        cli.configure(|config| {
            config.bf_initial_size = 7;
            config.bf_expansion_factor = 0;
        });
        cli.check("BF.ADD small item", truth(cli, true));
        assert_eq!(fact(cli, "BF.INFO small", "Capacity"), "(integer) 7");
        assert_eq!(fact(cli, "BF.INFO small", "Expansion rate"), "(nil)");
    });
}

#[test]
fn a_full_bloom_filter_that_does_not_grow_says_so() {
    on_every_setup(|cli| {
        cli.check(
            "BF.INSERT f CAPACITY 3 NONSCALING ITEMS a b c",
            &truths(cli, &[true, true, true]),
        );
        let expected = format!(
            "{}\n4) (error) ERR non scaling filter is full",
            truths(cli, &[false, false, false])
        );
        cli.check("BF.INSERT f ITEMS a b c d d", &expected);
        cli.check("BF.ADD f d", "(error) ERR non scaling filter is full");
        cli.check("BF.CARD f", "(integer) 3");
    });
}

#[test]
fn arguments_of_bloom_commands_are_checked_and_change_nothing() {
    on_every_setup(|cli| {
        for (line, error) in [
            ("BF.RESERVE f x 100", "ERR bad error rate"),
            ("BF.RESERVE f nan 100", "ERR bad error rate"),
            (
                "BF.RESERVE f 0 100",
                "ERR error rate must be in the range (0.000000, 1.000000)",
            ),
            (
                "BF.RESERVE f 1 100",
                "ERR error rate must be in the range (0.000000, 1.000000)",
            ),
            ("BF.RESERVE f 0.01 x", "ERR bad capacity"),
            (
                "BF.RESERVE f 0.01 0",
                "ERR capacity must be in the range [1, 1073741824]",
            ),
            (
                "BF.RESERVE f 0.01 1073741825",
                "ERR capacity must be in the range [1, 1073741824]",
            ),
            ("BF.RESERVE f 0.01 10 EXPANSION", "ERR no expansion"),
            ("BF.RESERVE f 0.01 10 EXPANSION x", "ERR bad expansion"),
            (
                "BF.RESERVE f 0.01 10 EXPANSION -1",
                "ERR expansion must be in the range [0, 32768]",
            ),
            (
                "BF.RESERVE f 0.01 10 NONSCALING EXPANSION 2",
                "Nonscaling filters cannot expand",
            ),
            ("BF.RESERVE f 0.01 10 NOSUCH", "ERR syntax error"),
            (
                "BF.RESERVE f 0.01 10 1 2 3 4",
                "ERR wrong number of arguments for 'bf.reserve' command",
            ),
            (
                "BF.RESERVE f 1e-300 1000000000",
                "ERR Insufficient memory to create filter",
            ),
            ("BF.INSERT f NOCREATE ITEMS a", "ERR not found"),
            ("BF.INSERT f CAPACITY 0 ITEMS a", "Bad capacity"),
            ("BF.INSERT f CAPACITY 0.3 ITEMS a", "Bad capacity"),
            ("BF.INSERT f ERROR 2 ITEMS a", "Bad error rate"),
            ("BF.INSERT f EXPANSION -1 ITEMS a", "Bad expansion"),
            ("BF.INSERT f NOSUCH ITEMS a", "Unknown argument received"),
            (
                "BF.INSERT f CAPACITY 10 ITEMS",
                "ERR wrong number of arguments for 'bf.insert' command",
            ),
            (
                "BF.INSERT f NOCREATE CAPACITY",
                "ERR wrong number of arguments for 'bf.insert' command",
            ),
            (
                "BF.INSERT f ERROR 1e-300 CAPACITY 1000000000 ITEMS a",
                "ERR Insufficient memory to create filter",
            ),
            (
                "BF.ADD f",
                "ERR wrong number of arguments for 'bf.add' command",
            ),
            ("BF.SCANDUMP f 0", "ERR not found"),
            (
                "BF.LOADCHUNK f x data",
                "ERR Second argument must be numeric",
            ),
            ("BF.LOADCHUNK f 1 data", "ERR received bad data"),
            ("BF.LOADCHUNK f 2 data", "ERR not found"),
        ] {
            cli.check(line, &format!("(error) {error}"));
            cli.check("EXISTS f", "(integer) 0");
        }
        cli.check("BF.RESERVE f 0.9 10", "OK");
        cli.check("BF.RESERVE f 0.01 10", "(error) ERR item exists");
        cli.check("BF.SCANDUMP f x", "(error) Second argument must be numeric");
        assert_eq!(cli.events(), "d:bf.reserve f");
    });
}

/// Dumps a filter and loads it under another name.
fn dump_and_load(cli: &mut Terminal, family: &str, from: &str, to: &str) -> usize {
    let mut cursor = 0;
    let mut chunks = 0;
    loop {
        let scandump = format!("{family}.SCANDUMP");
        let reply = cli.reply_bytes(&[
            scandump.as_bytes(),
            from.as_bytes(),
            cursor.to_string().as_bytes(),
        ]);
        // *2 :next $len bytes
        let text = &reply[b"*2\r\n:".len()..];
        let end = text.iter().position(|byte| *byte == b'\r').expect("a line");
        cursor = std::str::from_utf8(&text[..end])
            .expect("digits")
            .parse::<i64>()
            .expect("a number");
        if cursor == 0 {
            return chunks;
        }
        let rest = &text[end + 2..];
        let start = rest
            .iter()
            .position(|byte| *byte == b'\n')
            .expect("a length")
            + 1;
        let data = &rest[start..rest.len() - 2];
        let loadchunk = format!("{family}.LOADCHUNK");
        let arguments = [
            loadchunk.as_bytes(),
            to.as_bytes(),
            cursor.to_string().as_bytes(),
            data,
        ]
        .map(<[u8]>::to_vec);
        assert_eq!(cli.run_args(&arguments), "OK");
        chunks += 1;
    }
}

#[test]
fn filters_are_dumped_and_loaded() {
    on_every_setup(|cli| {
        cli.check("BF.RESERVE bf 0.01 10", "OK");
        cli.check("CF.RESERVE cf 32 EXPANSION 2", "OK");
        for number in 0..200 {
            cli.run(&format!("BF.ADD bf {number}"));
            cli.run(&format!("CF.ADD cf {number}"));
        }
        assert!(dump_and_load(cli, "BF", "bf", "bf2") >= 5);
        assert!(dump_and_load(cli, "CF", "cf", "cf2") >= 3);
        for number in 0..200 {
            cli.check(&format!("BF.EXISTS bf2 {number}"), truth(cli, true));
            cli.check(&format!("CF.EXISTS cf2 {number}"), truth(cli, true));
        }
        for (info, first, second) in [("BF.INFO", "bf", "bf2"), ("CF.INFO", "cf", "cf2")] {
            let first = cli.run(&format!("{info} {first}"));
            assert_eq!(first, cli.run(&format!("{info} {second}")));
        }
        cli.check("CF.LOADCHUNK cf 1 data", "(error) ERR item exists");
        cli.check("CF.LOADCHUNK none 1 data", "(error) Invalid header");
        let zeros = "x".repeat(38);
        cli.check(
            &format!("CF.LOADCHUNK none 1 {zeros}"),
            "(error) Couldn't create filter!",
        );
        cli.check("CF.LOADCHUNK none 2 data", "(error) ERR not found");
        cli.check("CF.LOADCHUNK cf 0 data", "(error) Invalid position");
        cli.check("CF.LOADCHUNK cf 2 data", "(error) Couldn't load chunk!");
        cli.check("CF.LOADCHUNK cf -5 data", "(error) Couldn't load chunk!");
        cli.check(
            "CF.LOADCHUNK cf 99999999 data",
            "(error) Couldn't load chunk!",
        );
        cli.check("BF.LOADCHUNK bf 2 data", "(error) ERR received bad data");
        cli.check(
            "BF.LOADCHUNK bf 99999999 data",
            "(error) ERR received bad data",
        );
        cli.check("CF.SCANDUMP cf -1", "(error) Invalid position");
        cli.check("CF.RESERVE empty 10", "OK");
        cli.check("CF.SCANDUMP empty 0", "1) (integer) 0\n2) (nil)");
        cli.check("CF.SCANDUMP cf 99999999", "1) (integer) 0\n2) (nil)");
        cli.check("BF.SCANDUMP bf 99999999", "1) (integer) 0\n2) \"\"");
        cli.check("BF.SCANDUMP bf -1", "1) (integer) 0\n2) \"\"");
    });
}

#[test]
fn a_cuckoo_filter_forgets_what_is_removed() {
    on_every_setup(|cli| {
        let (yes, no) = (truth(cli, true), truth(cli, false));
        cli.check("CF.RESERVE a 9 EXPANSION 0", "OK");
        cli.check("CF.ADD a 3", yes);
        cli.check("CF.ADD a 4", yes);
        cli.check("CF.ADDNX a 4", no);
        cli.check("CF.ADDNX a 9", yes);
        cli.check("CF.INSERT a ITEMS 4 5", &truths(cli, &[true, true]));
        cli.check("CF.INSERTNX a ITEMS 4 6", &integers(&[0, 1]));
        cli.check("CF.DEL a 3", yes);
        cli.check("CF.DEL a 3", no);
        cli.check("CF.EXISTS a 3", no);
        cli.check("CF.MEXISTS a 4 3", &truths(cli, &[true, false]));
        cli.check("CF.COUNT a 3", "(integer) 0");
        cli.check("CF.COUNT a 4", "(integer) 2");
        for (name, value) in [
            ("Size", "(integer) 64"),
            ("Number of buckets", "(integer) 4"),
            ("Number of filters", "(integer) 1"),
            ("Number of items inserted", "(integer) 5"),
            ("Number of items deleted", "(integer) 1"),
            ("Bucket size", "(integer) 2"),
            ("Expansion rate", "(integer) 0"),
            ("Max iterations", "(integer) 20"),
        ] {
            assert_eq!(fact(cli, "CF.INFO a", name), value);
        }
        cli.check("CF.EXISTS none a", no);
        cli.check("CF.COUNT none a", "(integer) 0");
        cli.check("TYPE a", "MBbloomCF");
        cli.check("OBJECT ENCODING a", "\"raw\"");
        cli.check("CF.ADD made item", yes);
        assert_eq!(
            fact(cli, "CF.INFO made", "Number of buckets"),
            "(integer) 512"
        );
    });
}

#[test]
fn a_full_cuckoo_filter_says_so() {
    on_every_setup(|cli| {
        // The two buckets of an element may be identical, so the filter is full after two or four additions.
        let fill = |cli: &mut Terminal, key: &str, full: &str| {
            let line = format!("CF.ADD {key} same");
            let mut times = 0;
            while cli.run(&line) != format!("(error) {full}") {
                times += 1;
                assert!(times < 10);
            }
            times
        };
        cli.check("CF.RESERVE f 4 EXPANSION 0", "OK");
        let times = fill(cli, "f", "Filter is full");
        assert!(times == 2 || times == 4);
        let full = match cli.connection.protocol {
            Protocol::Resp2 => "1) (integer) -1",
            Protocol::Resp3 => "1) (false)",
        };
        cli.check("CF.INSERT f ITEMS same", full);
        cli.check("CF.INSERTNX f ITEMS same", "1) (integer) 0");
        cli.configure(|config| config.cf_max_expansions = 2);
        cli.check("CF.RESERVE g 4", "OK");
        assert_eq!(fill(cli, "g", "Maximum expansions reached"), times + 1);
        cli.configure(|config| config.cf_max_expansions = 1);
        cli.check("CF.ADD h a", "(error) Maximum expansions reached");
        cli.check("CF.INSERT h NOCREATE ITEMS a", "(error) ERR not found");
        cli.check("EXISTS h", "(integer) 0");
    });
}

#[test]
fn arguments_of_cuckoo_commands_are_checked_and_change_nothing() {
    on_every_setup(|cli| {
        for (line, error) in [
            ("CF.RESERVE f x", "Bad capacity"),
            (
                "CF.RESERVE f 1",
                "Capacity must be in the range [2 * BUCKETSIZE, 1073741824]",
            ),
            (
                "CF.RESERVE f -1",
                "Capacity must be in the range [2 * BUCKETSIZE, 1073741824]",
            ),
            (
                "CF.RESERVE f 1073741825",
                "Capacity must be in the range [2 * BUCKETSIZE, 1073741824]",
            ),
            (
                "CF.RESERVE f 10 BUCKETSIZE",
                "ERR wrong number of arguments for 'cf.reserve' command",
            ),
            ("CF.RESERVE f 10 BUCKETSIZE x", "Couldn't parse BUCKETSIZE"),
            (
                "CF.RESERVE f 10 BUCKETSIZE 256",
                "BUCKETSIZE: value must be in the range [1, 255]",
            ),
            (
                "CF.RESERVE f 10 MAXITERATIONS x",
                "Couldn't parse MAXITERATIONS",
            ),
            (
                "CF.RESERVE f 10 MAXITERATIONS 0",
                "MAXITERATIONS: value must be in the range [1, 65535]",
            ),
            ("CF.RESERVE f 10 EXPANSION x", "Couldn't parse EXPANSION"),
            (
                "CF.RESERVE f 10 EXPANSION 32769",
                "EXPANSION: value must be in the range [0, 32768]",
            ),
            ("CF.RESERVE f 10 NOSUCH 1", "ERR syntax error"),
            ("CF.INSERT f NOCREATE ITEMS a", "ERR not found"),
            ("CF.INSERT f CAPACITY x ITEMS a", "Bad capacity"),
            (
                "CF.INSERT f CAPACITY 3 ITEMS a",
                "Capacity must be in the range [cf-bucket-size * 2, 1073741824]",
            ),
            ("CF.INSERT f NOSUCH ITEMS a", "Unknown argument received"),
            (
                "CF.INSERT f CAPACITY 10 ITEMS",
                "ERR wrong number of arguments for 'cf.insert' command",
            ),
            (
                "CF.INSERTNX f NOCREATE CAPACITY",
                "ERR wrong number of arguments for 'cf.insertnx' command",
            ),
            ("CF.DEL f a", "Not found"),
            ("CF.INFO f", "ERR not found"),
            ("CF.SCANDUMP f 0", "ERR not found"),
        ] {
            cli.check(line, &format!("(error) {error}"));
            cli.check("EXISTS f", "(integer) 0");
        }
        assert_eq!(cli.events(), "");
    });
}

#[test]
fn filters_are_described_as_the_module_describes_them() {
    on_every_setup(|cli| {
        cli.run("BF.ADD b x");
        cli.check(
            "BF.DEBUG b",
            "1) \"size:1\"\n\
             2) \"bytes:144 bits:1152 hashes:8 hashwidth:64 capacity:100 size:1 ratio:0.005\"",
        );
        cli.check("CF.RESERVE c 64", "OK");
        cli.run("CF.ADD c x");
        cli.check(
            "CF.DEBUG c",
            "\"bktsize:2 buckets:32 items:1 deletes:0 filters:1 max_iterations:20 expansion:1\"",
        );
        cli.check("BF.DEBUG none", "(error) ERR not found");
        cli.check("CF.DEBUG none", "(error) ERR not found");
    });
}
