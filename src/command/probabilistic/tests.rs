//! From the documentation of Redis 8 and the tests of its modules: there is no reference here to record from.

use crate::command::testing::{Terminal, on_every_setup};
use crate::resp::reply::Protocol;

/// A truth value in the protocol of the connection.
fn truth(cli: &Terminal, value: bool) -> &'static str {
    match (cli.connection.protocol, value) {
        (Protocol::Resp2, true) => "(integer) 1",
        (Protocol::Resp2, false) => "(integer) 0",
        (Protocol::Resp3, true) => "(true)",
        (Protocol::Resp3, false) => "(false)",
    }
}

/// An array of truth values.
fn truths(cli: &Terminal, values: &[bool]) -> String {
    let values = values.iter().enumerate();
    let lines: Vec<String> = values
        .map(|(at, value)| format!("{}) {}", at + 1, truth(cli, *value)))
        .collect();
    lines.join("\n")
}

/// A double: a string in RESP2.
fn double(cli: &Terminal, text: &str) -> String {
    match cli.connection.protocol {
        Protocol::Resp2 => format!("\"{text}\""),
        Protocol::Resp3 => format!("(double) {text}"),
    }
}

fn doubles(cli: &Terminal, texts: &[&str]) -> String {
    let width = texts.len().to_string().len();
    let lines: Vec<String> = texts
        .iter()
        .enumerate()
        .map(|(at, text)| format!("{:>width$}) {}", at + 1, double(cli, text)))
        .collect();
    lines.join("\n")
}

fn integers(numbers: &[i64]) -> String {
    let width = numbers.len().to_string().len();
    let lines: Vec<String> = numbers
        .iter()
        .enumerate()
        .map(|(at, number)| format!("{:>width$}) (integer) {number}", at + 1))
        .collect();
    lines.join("\n")
}

/// One fact out of the reply of an INFO command.
fn fact(cli: &mut Terminal, line: &str, name: &str) -> String {
    let reply = cli.run(line);
    let mut lines = reply.lines();
    let line = lines
        .by_ref()
        .find(|line| line.contains(&format!(" {name}")))
        .unwrap_or_else(|| panic!("no {name} in {reply}"));
    match line.split_once(" => ") {
        Some((_, value)) => value.to_owned(),
        None => {
            let value = lines.next().expect("a value behind each name");
            value.split_once(") ").expect("a number").1.to_owned()
        }
    }
}

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
        // The two buckets of an element may be the same one, so two or four times.
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
fn a_count_min_sketch_counts() {
    on_every_setup(|cli| {
        cli.check("CMS.INITBYPROB s 0.001 0.01", "OK");
        cli.check("CMS.INCRBY s a 5", "1) (integer) 5");
        cli.check("CMS.INCRBY s a 2 b 3", &integers(&[7, 3]));
        cli.check("CMS.QUERY s a b c", &integers(&[7, 3, 0]));
        assert_eq!(fact(cli, "CMS.INFO s", "width"), "(integer) 2000");
        assert_eq!(fact(cli, "CMS.INFO s", "depth"), "(integer) 7");
        assert_eq!(fact(cli, "CMS.INFO s", "count"), "(integer) 10");
        cli.check("TYPE s", "CMSk-TYPE");
        cli.check("OBJECT ENCODING s", "\"raw\"");
        cli.check("CMS.INITBYDIM d 10 2", "OK");
        cli.check("CMS.INCRBY d a 4294967294", "1) (integer) 4294967294");
        cli.check(
            "CMS.INCRBY d a 1 b 1",
            "1) (error) CMS: INCRBY overflow\n2) (integer) 1",
        );
        cli.check("COPY d e", "(integer) 1");
        cli.check("CMS.QUERY e b", "1) (integer) 1");
    });
}

#[test]
fn count_min_sketches_on_any_shards_are_merged() {
    on_every_setup(|cli| {
        for key in ["a", "b", "c", "sum"] {
            cli.check(&format!("CMS.INITBYDIM {key} 1000 5"), "OK");
        }
        cli.check("CMS.INITBYDIM small 10 5", "OK");
        cli.check("CMS.INCRBY a x 1 y 10", &integers(&[1, 10]));
        cli.check("CMS.INCRBY b x 2 z 20", &integers(&[2, 20]));
        cli.check("CMS.INCRBY c x 4", "1) (integer) 4");
        cli.check("CMS.INCRBY sum x 100", "1) (integer) 100");
        cli.check("CMS.MERGE sum 3 a b c", "OK");
        cli.check("CMS.QUERY sum x y z", &integers(&[7, 10, 20]));
        cli.check("CMS.MERGE sum 3 a b c WEIGHTS 1 2 3", "OK");
        cli.check("CMS.QUERY sum x y z", &integers(&[17, 10, 40]));
        assert_eq!(fact(cli, "CMS.INFO sum", "count"), "(integer) 67");
        cli.check("CMS.MERGE sum 2 sum a WEIGHTS 2 -1", "OK");
        cli.check("CMS.QUERY sum x y z", &integers(&[33, 10, 80]));
        cli.events();
        for (line, error) in [
            ("CMS.MERGE sum x a", "CMS: invalid numkeys"),
            ("CMS.MERGE sum 0 a", "CMS: Number of keys must be positive"),
            ("CMS.MERGE sum -1 a", "CMS: Number of keys must be positive"),
            ("CMS.MERGE sum 2 a", "CMS: wrong number of keys"),
            ("CMS.MERGE sum 1 a b", "CMS: wrong number of keys"),
            (
                "CMS.MERGE sum 9223372036854775807 a b",
                "CMS: wrong number of keys",
            ),
            (
                "CMS.MERGE sum 2 a b WEIGHTS 1",
                "CMS: wrong number of keys/weights",
            ),
            (
                "CMS.MERGE sum 2 a b WEIGHTS 1 2 3",
                "CMS: wrong number of keys/weights",
            ),
            (
                "CMS.MERGE sum 2 a b WEIGHTS 1 x",
                "CMS: invalid weight value",
            ),
            ("CMS.MERGE sum 2 a none", "CMS: key does not exist"),
            ("CMS.MERGE none 1 a", "CMS: key does not exist"),
            ("CMS.MERGE sum 2 a small", "CMS: width/depth is not equal"),
            ("CMS.MERGE sum 1 a WEIGHTS -1", "CMS: MERGE overflow"),
            (
                "CMS.MERGE sum 1 a WEIGHTS 9223372036854775807",
                "CMS: MERGE overflow",
            ),
            (
                "CMS.MERGE sum 1 a WEIGHTS 4294967295",
                "CMS: MERGE overflow",
            ),
        ] {
            cli.check(line, &format!("(error) {error}"));
            cli.check("CMS.QUERY sum x y z", &integers(&[33, 10, 80]));
        }
        assert_eq!(cli.events(), "");
    });
}

#[test]
fn arguments_of_count_min_commands_are_checked_and_change_nothing() {
    on_every_setup(|cli| {
        for (line, error) in [
            ("CMS.INITBYDIM s x 5", "CMS: invalid width"),
            ("CMS.INITBYDIM s 0 5", "CMS: invalid width"),
            ("CMS.INITBYDIM s 5 -1", "CMS: invalid depth"),
            ("CMS.INITBYDIM s 5 x", "CMS: invalid depth"),
            (
                "CMS.INITBYDIM s 9223372036854775807 2",
                "CMS: invalid init arguments",
            ),
            (
                "CMS.INITBYDIM s 4294967296 4294967295",
                "CMS: invalid init arguments",
            ),
            (
                "CMS.INITBYDIM s 4294967296 1000",
                "CMS: Insufficient memory to create the key",
            ),
            (
                "CMS.INITBYPROB s x 0.1",
                "CMS: invalid overestimation value",
            ),
            (
                "CMS.INITBYPROB s 1 0.1",
                "CMS: invalid overestimation value",
            ),
            ("CMS.INITBYPROB s 0.1 0", "CMS: invalid prob value"),
            ("CMS.INITBYPROB s 0.1 1e-300", "CMS: invalid init arguments"),
            ("CMS.INITBYPROB s 1e-300 0.1", "CMS: invalid init arguments"),
            ("CMS.INCRBY s a 1", "CMS: key does not exist"),
            (
                "CMS.INCRBY s a 1 b",
                "ERR wrong number of arguments for 'cms.incrby' command",
            ),
            ("CMS.QUERY s a", "CMS: key does not exist"),
            ("CMS.INFO s", "CMS: key does not exist"),
        ] {
            cli.check(line, &format!("(error) {error}"));
            cli.check("EXISTS s", "(integer) 0");
        }
        cli.check("CMS.INITBYDIM s 10 2", "OK");
        cli.check("CMS.INITBYDIM s 10 2", "(error) CMS: key already exists");
        cli.check("CMS.INCRBY s a 1 b x", "(error) CMS: Cannot parse number");
        cli.check(
            "CMS.INCRBY s a 1 b -1",
            "(error) CMS: Number cannot be negative",
        );
        cli.check("CMS.QUERY s a", "1) (integer) 0");
        assert_eq!(cli.events(), "d:cms.init s");
    });
}

#[test]
fn the_most_frequent_elements_are_listed() {
    on_every_setup(|cli| {
        cli.check("TOPK.RESERVE t 2 50 5 0.9", "OK");
        cli.check("TOPK.INCRBY t foo 30 bar 5", "1) (nil)\n2) (nil)");
        cli.check("TOPK.ADD t foo baz", "1) (nil)\n2) (nil)");
        cli.check("TOPK.INCRBY t 42 9", "1) \"bar\"");
        cli.check(
            "TOPK.QUERY t foo bar 42",
            &truths(cli, &[true, false, true]),
        );
        cli.check("TOPK.COUNT t foo 42 none", &integers(&[31, 9, 0]));
        cli.check("TOPK.LIST t", "1) \"foo\"\n2) \"42\"");
        cli.check(
            "TOPK.LIST t withcount",
            "1) \"foo\"\n2) (integer) 31\n3) \"42\"\n4) (integer) 9",
        );
        assert_eq!(fact(cli, "TOPK.INFO t", "k"), "(integer) 2");
        assert_eq!(fact(cli, "TOPK.INFO t", "width"), "(integer) 50");
        assert_eq!(fact(cli, "TOPK.INFO t", "depth"), "(integer) 5");
        assert_eq!(fact(cli, "TOPK.INFO t", "decay"), double(cli, "0.9"));
        cli.check("TOPK.RESERVE d 10", "OK");
        assert_eq!(fact(cli, "TOPK.INFO d", "width"), "(integer) 8");
        cli.check("TOPK.LIST d", "(empty array)");
        cli.check("TYPE t", "TopK-TYPE");
        cli.check("OBJECT ENCODING t", "\"raw\"");
        cli.check("COPY t copy", "(integer) 1");
        cli.check("TOPK.LIST copy", "1) \"foo\"\n2) \"42\"");
    });
}

#[test]
fn arguments_of_top_k_commands_are_checked_and_change_nothing() {
    on_every_setup(|cli| {
        let decay = "TopK: invalid decay value. must be '<= 1' & '> 0'";
        let increment = "TopK: increment must be an integer greater or equal to 0 and smaller or equal to 100,000";
        for (line, error) in [
            ("TOPK.RESERVE t x", "TopK: invalid k"),
            ("TOPK.RESERVE t 0", "TopK: invalid k"),
            ("TOPK.RESERVE t 4294967296", "TopK: invalid k"),
            (
                "TOPK.RESERVE t 4294967295",
                "ERR Insufficient memory to create topk data structure",
            ),
            ("TOPK.RESERVE t 5 x 5 0.9", "TopK: invalid width"),
            ("TOPK.RESERVE t 5 5 0 0.9", "TopK: invalid depth"),
            ("TOPK.RESERVE t 5 5 100000 0.9", "TopK: invalid depth"),
            ("TOPK.RESERVE t 5 5 5 0", decay),
            ("TOPK.RESERVE t 5 5 5 1.1", decay),
            ("TOPK.RESERVE t 5 5 5 x", decay),
            (
                "TOPK.RESERVE t 5 4294967295 5 0.9",
                "ERR Insufficient memory to create topk data structure",
            ),
            (
                "TOPK.RESERVE t 5 5",
                "ERR wrong number of arguments for 'topk.reserve' command",
            ),
            ("TOPK.ADD t a", "TopK: key does not exist"),
            ("TOPK.INCRBY t a x", "TopK: key does not exist"),
            (
                "TOPK.INCRBY t a 1 b",
                "ERR wrong number of arguments for 'topk.incrby' command",
            ),
            ("TOPK.QUERY t a", "TopK: key does not exist"),
            ("TOPK.COUNT t a", "TopK: key does not exist"),
            ("TOPK.LIST t", "TopK: key does not exist"),
            ("TOPK.LIST t NOSUCH", "WITHCOUNT keyword expected"),
            ("TOPK.INFO t", "TopK: key does not exist"),
        ] {
            cli.check(line, &format!("(error) {error}"));
            cli.check("EXISTS t", "(integer) 0");
        }
        cli.check("TOPK.RESERVE t 3", "OK");
        cli.check("TOPK.RESERVE t 3", "(error) TopK: key already exists");
        for wrong in ["x", "-1", "100001"] {
            cli.check(
                &format!("TOPK.INCRBY t a 1 b {wrong}"),
                &format!("(error) {increment}"),
            );
        }
        cli.check("TOPK.LIST t", "(empty array)");
        assert_eq!(cli.events(), "d:topk.reserve t");
    });
}

#[test]
fn a_t_digest_knows_ranks_and_quantiles() {
    on_every_setup(|cli| {
        cli.check("TDIGEST.CREATE t COMPRESSION 1000", "OK");
        cli.check("TDIGEST.ADD t 1 2 2 3 3 3 4 4 4 4 5 5 5 5 5", "OK");
        cli.check(
            "TDIGEST.RANK t 0 1 2 3 4 5 6",
            &integers(&[-1, 0, 2, 4, 8, 12, 15]),
        );
        cli.check(
            "TDIGEST.REVRANK t 0 1 2 3 4 5 6",
            &integers(&[15, 14, 13, 10, 7, 2, -1]),
        );
        cli.check(
            "TDIGEST.BYRANK t 15 14 13 12 11 10 9 8 7 6 5 4 3 2 1 0",
            &doubles(
                cli,
                &[
                    "inf", "5", "5", "5", "5", "5", "4", "4", "4", "4", "3", "3", "3", "2", "2",
                    "1",
                ],
            ),
        );
        cli.check(
            "TDIGEST.BYREVRANK t 0 1 2 3 4 5 6 7 8 9 10 11 12 13 14 15",
            &doubles(
                cli,
                &[
                    "5", "5", "5", "5", "5", "4", "4", "4", "4", "3", "3", "3", "2", "2", "1",
                    "-inf",
                ],
            ),
        );
        cli.check("TDIGEST.MIN t", &double(cli, "1"));
        cli.check("TDIGEST.MAX t", &double(cli, "5"));
        cli.check(
            "TDIGEST.QUANTILE t 0 0.5 1",
            &doubles(cli, &["1", "4", "5"]),
        );
        cli.check(
            "TDIGEST.CDF t 0 5 9",
            &doubles(cli, &["0", "0.8333333333333334", "1"]),
        );
        cli.check("TYPE t", "TDIS-TYPE");
        cli.check("OBJECT ENCODING t", "\"raw\"");

        cli.check("TDIGEST.CREATE s", "OK");
        cli.check("TDIGEST.ADD s 10 20 30 40 50 60", "OK");
        cli.check(
            "TDIGEST.RANK s 0 10 20 30 40 50 60 70",
            &integers(&[-1, 0, 1, 2, 3, 4, 5, 6]),
        );
        cli.check("TDIGEST.TRIMMED_MEAN s 0 1", &double(cli, "35"));
        cli.check("TDIGEST.RESET s", "OK");
        cli.check("TDIGEST.RANK s 1", "1) (integer) -2");
        cli.check("TDIGEST.REVRANK s 1", "1) (integer) -2");
        cli.check("TDIGEST.BYRANK s 1", &doubles(cli, &["nan"]));
        cli.check("TDIGEST.MIN s", &double(cli, "nan"));
        cli.check("TDIGEST.MAX s", &double(cli, "nan"));
        cli.check("TDIGEST.QUANTILE s 0.5", &doubles(cli, &["nan"]));
        cli.check("TDIGEST.CDF s 0.5", &doubles(cli, &["nan"]));
        cli.check("TDIGEST.TRIMMED_MEAN s 0.1 0.9", &double(cli, "nan"));
    });
}

#[test]
fn reading_a_t_digest_is_no_change() {
    on_every_setup(|cli| {
        cli.check("TDIGEST.CREATE t", "OK");
        for number in 0..50 {
            cli.run(&format!("TDIGEST.ADD t {number}"));
        }
        cli.events();
        assert_eq!(
            fact(cli, "TDIGEST.INFO t", "Unmerged nodes"),
            "(integer) 50"
        );
        cli.run("TDIGEST.QUANTILE t 0.5");
        assert_eq!(fact(cli, "TDIGEST.INFO t", "Unmerged nodes"), "(integer) 0");
        assert_eq!(fact(cli, "TDIGEST.INFO t", "Observations"), "(integer) 50");
        assert_eq!(fact(cli, "TDIGEST.INFO t", "Compression"), "(integer) 100");
        assert_eq!(fact(cli, "TDIGEST.INFO t", "Capacity"), "(integer) 610");
        assert_eq!(cli.events(), "");
    });
}

#[test]
fn t_digests_on_any_shards_are_merged() {
    on_every_setup(|cli| {
        cli.check("TDIGEST.CREATE a COMPRESSION 100", "OK");
        cli.check("TDIGEST.CREATE b COMPRESSION 200", "OK");
        cli.check("TDIGEST.ADD a 1 2 3", "OK");
        cli.check("TDIGEST.ADD b 10 20", "OK");
        let observations = |cli: &mut Terminal, key: &str| {
            fact(cli, &format!("TDIGEST.INFO {key}"), "Observations")
        };
        let compression = |cli: &mut Terminal, key: &str| {
            fact(cli, &format!("TDIGEST.INFO {key}"), "Compression")
        };
        cli.check("TDIGEST.MERGE sum 2 a b", "OK");
        assert_eq!(observations(cli, "sum"), "(integer) 5");
        assert_eq!(compression(cli, "sum"), "(integer) 200");
        cli.check("TDIGEST.MAX sum", &double(cli, "20"));
        cli.check("TDIGEST.MERGE sum 1 a", "OK");
        assert_eq!(observations(cli, "sum"), "(integer) 8");
        cli.check("TDIGEST.MERGE sum 2 sum sum COMPRESSION 50", "OK");
        assert_eq!(observations(cli, "sum"), "(integer) 24");
        assert_eq!(compression(cli, "sum"), "(integer) 50");
        cli.check("TDIGEST.MERGE sum 1 b OVERRIDE", "OK");
        assert_eq!(observations(cli, "sum"), "(integer) 2");
        assert_eq!(compression(cli, "sum"), "(integer) 200");
        cli.check("TDIGEST.MERGE sum 1 a COMPRESSION 300 OVERRIDE", "OK");
        assert_eq!(compression(cli, "sum"), "(integer) 300");
        assert_eq!(observations(cli, "sum"), "(integer) 3");
        cli.events();
        for (line, error) in [
            (
                "TDIGEST.MERGE sum x a",
                "ERR T-Digest: error parsing numkeys",
            ),
            (
                "TDIGEST.MERGE sum 0 a",
                "ERR T-Digest: numkeys needs to be a positive integer",
            ),
            (
                "TDIGEST.MERGE sum -1 a",
                "ERR T-Digest: numkeys needs to be a positive integer",
            ),
            (
                "TDIGEST.MERGE sum 2 a",
                "ERR wrong number of arguments for 'tdigest.merge' command",
            ),
            (
                "TDIGEST.MERGE sum 9223372036854775807 a",
                "ERR wrong number of arguments for 'tdigest.merge' command",
            ),
            (
                "TDIGEST.MERGE sum 1 a COMPRESSION",
                "ERR wrong number of arguments for 'tdigest.merge' command",
            ),
            (
                "TDIGEST.MERGE sum 1 a COMPRESSION x",
                "ERR T-Digest: error parsing compression parameter",
            ),
            (
                "TDIGEST.MERGE sum 1 a COMPRESSION 0",
                "ERR T-Digest: compression parameter needs to be a positive integer",
            ),
            (
                "TDIGEST.MERGE sum 1 a nosuch",
                "ERR T-Digest: wrong keyword",
            ),
            (
                "TDIGEST.MERGE sum 2 a none",
                "ERR T-Digest: key does not exist",
            ),
            (
                "TDIGEST.MERGE none 1 none",
                "ERR T-Digest: key does not exist",
            ),
        ] {
            cli.check(line, &format!("(error) {error}"));
        }
        assert_eq!(observations(cli, "sum"), "(integer) 3");
        assert_eq!(cli.events(), "");
    });
}

#[test]
fn arguments_of_t_digest_commands_are_checked_and_change_nothing() {
    on_every_setup(|cli| {
        for (line, error) in [
            (
                "TDIGEST.CREATE t COMPRESSION x",
                "ERR T-Digest: error parsing compression parameter",
            ),
            (
                "TDIGEST.CREATE t COMPRESSION 0",
                "ERR T-Digest: compression parameter needs to be a positive integer",
            ),
            (
                "TDIGEST.CREATE t COMPRESSION 9223372036854775807",
                "ERR T-Digest: allocation failed",
            ),
            ("TDIGEST.CREATE t nosuch 100", "ERR T-Digest: wrong keyword"),
            (
                "TDIGEST.CREATE t COMPRESSION",
                "ERR wrong number of arguments for 'tdigest.create' command",
            ),
            ("TDIGEST.ADD t 1", "ERR T-Digest: key does not exist"),
            ("TDIGEST.RESET t", "ERR T-Digest: key does not exist"),
            ("TDIGEST.MIN t", "ERR T-Digest: key does not exist"),
            ("TDIGEST.MAX t", "ERR T-Digest: key does not exist"),
            ("TDIGEST.QUANTILE t x", "ERR T-Digest: key does not exist"),
            ("TDIGEST.INFO t", "ERR T-Digest: key does not exist"),
        ] {
            cli.check(line, &format!("(error) {error}"));
            cli.check("EXISTS t", "(integer) 0");
        }
        cli.check("TDIGEST.CREATE t", "OK");
        cli.check(
            "TDIGEST.CREATE t",
            "(error) ERR T-Digest: key already exists",
        );
        for (line, error) in [
            (
                "TDIGEST.ADD t 1 x",
                "ERR T-Digest: error parsing val parameter",
            ),
            (
                "TDIGEST.ADD t 1 nan",
                "ERR T-Digest: error parsing val parameter",
            ),
            (
                "TDIGEST.ADD t 1 inf",
                "ERR T-Digest: val parameter needs to be a finite number",
            ),
            (
                "TDIGEST.ADD t 1 -inf",
                "ERR T-Digest: val parameter needs to be a finite number",
            ),
            (
                "TDIGEST.QUANTILE t x",
                "ERR T-Digest: error parsing quantile",
            ),
            (
                "TDIGEST.QUANTILE t 0.5 1.1",
                "ERR T-Digest: quantile should be in [0,1]",
            ),
            ("TDIGEST.CDF t x", "ERR T-Digest: error parsing cdf"),
            ("TDIGEST.RANK t 1 x", "ERR T-Digest: error parsing value"),
            ("TDIGEST.REVRANK t nan", "ERR T-Digest: error parsing value"),
            ("TDIGEST.BYRANK t 0.5", "ERR T-Digest: error parsing rank"),
            (
                "TDIGEST.BYREVRANK t -1",
                "ERR T-Digest: rank needs to be non negative",
            ),
            (
                "TDIGEST.TRIMMED_MEAN t x 1",
                "ERR T-Digest: error parsing low_cut_percentile",
            ),
            (
                "TDIGEST.TRIMMED_MEAN t 0 x",
                "ERR T-Digest: error parsing high_cut_percentile",
            ),
            (
                "TDIGEST.TRIMMED_MEAN t 0 2",
                "ERR T-Digest: low_cut_percentile and high_cut_percentile should be in [0,1]",
            ),
            (
                "TDIGEST.TRIMMED_MEAN t 0.5 0.5",
                "ERR T-Digest: low_cut_percentile should be lower than high_cut_percentile",
            ),
        ] {
            cli.check(line, &format!("(error) {error}"));
        }
        assert_eq!(fact(cli, "TDIGEST.INFO t", "Observations"), "(integer) 0");
        assert_eq!(cli.events(), "d:tdigest.create t");
    });
}

const WRONG_TYPE: &str =
    "(error) WRONGTYPE Operation against a key holding the wrong kind of value";

#[test]
fn a_key_of_another_type_is_left_alone() {
    on_every_setup(|cli| {
        cli.check("SET k v", "OK");
        cli.put_other_type("list");
        for line in [
            "BF.RESERVE k 0.01 10",
            "BF.ADD k a",
            "BF.MADD list a b",
            "BF.INSERT k ITEMS a",
            "BF.CARD k",
            "BF.INFO list",
            "BF.SCANDUMP k 0",
            "BF.LOADCHUNK k 1 data",
            "CF.RESERVE k 10",
            "CF.ADD list a",
            "CF.ADDNX k a",
            "CF.INSERT k ITEMS a",
            "CF.INSERTNX k ITEMS a",
            "CF.DEL k a",
            "CF.INFO k",
            "CF.SCANDUMP k 0",
            "CF.LOADCHUNK list 1 data",
            "CMS.INCRBY k a 1",
            "CMS.QUERY k a",
            "CMS.INFO list",
            "CMS.MERGE k 1 k",
            "TOPK.ADD k a",
            "TOPK.INCRBY k a 1",
            "TOPK.QUERY k a",
            "TOPK.COUNT k a",
            "TOPK.LIST k",
            "TOPK.INFO list",
            "TDIGEST.CREATE k",
            "TDIGEST.ADD k 1",
            "TDIGEST.RESET k",
            "TDIGEST.MERGE k 1 k",
            "TDIGEST.MERGE new 1 k",
            "TDIGEST.MIN k",
            "TDIGEST.MAX k",
            "TDIGEST.QUANTILE k 0.5",
            "TDIGEST.CDF k 0.5",
            "TDIGEST.RANK k 1",
            "TDIGEST.REVRANK list 1",
            "TDIGEST.BYRANK k 1",
            "TDIGEST.BYREVRANK k 1",
            "TDIGEST.TRIMMED_MEAN k 0 1",
            "TDIGEST.INFO k",
        ] {
            cli.check(line, WRONG_TYPE);
        }
        for (line, reply) in [
            ("BF.EXISTS k a", truth(cli, false)),
            ("CF.EXISTS list a", truth(cli, false)),
            ("CF.COUNT k a", "(integer) 0"),
            ("CMS.INITBYDIM k 1 1", "(error) CMS: key already exists"),
            ("TOPK.RESERVE list 1", "(error) TopK: key already exists"),
            ("GET k", "\"v\""),
            ("EXISTS new", "(integer) 0"),
        ] {
            cli.check(line, reply);
        }
        cli.check("BF.ADD f a", truth(cli, true));
        for line in [
            "GET f",
            "APPEND f x",
            "CF.ADD f a",
            "PFADD f a",
            "TDIGEST.ADD f 1",
        ] {
            cli.check(line, WRONG_TYPE);
        }
        cli.check("SET f v", "OK");
        cli.check("GET f", "\"v\"");
    });
}

/// What a shard pays for a key is what MEMORY USAGE says, and all of it comes back.
#[test]
fn memory_is_counted_to_the_byte() {
    let mut cli = Terminal::new();
    for line in [
        "BF.ADD w a",
        "CF.ADD w a",
        "CMS.INITBYDIM w 1000 5",
        "TOPK.RESERVE w 5",
        "TDIGEST.CREATE w",
        "DEL w",
    ] {
        cli.run(line);
        cli.run("DEL w");
    }
    let used = |cli: &Terminal| cli.engines[0].board().used_bytes();
    for (make, grow) in [
        ("BF.RESERVE k 0.01 10", "BF.ADD k {}"),
        ("CF.RESERVE k 16", "CF.ADD k {}"),
        ("CMS.INITBYDIM k 1000 5", "CMS.INCRBY k {} 1"),
        (
            "TOPK.RESERVE k 50",
            "TOPK.INCRBY k a-name-that-is-long-{} 9",
        ),
        ("TDIGEST.CREATE k", "TDIGEST.ADD k {}"),
    ] {
        let before = used(&cli);
        cli.check(make, "OK");
        for number in 0..700 {
            cli.run(&grow.replace("{}", &number.to_string()));
        }
        let taken = used(&cli) - before;
        let reply = cli.run("MEMORY USAGE k");
        let said: i64 = reply
            .trim_start_matches("(integer) ")
            .parse()
            .expect("a number");
        assert!(
            (said - taken).abs() <= 200 + taken / 50,
            "{make}: {said} said, {taken} taken"
        );
        cli.check("DEL k", "(integer) 1");
        assert_eq!(used(&cli), before, "{make}");
    }
}
