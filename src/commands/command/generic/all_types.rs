//! Commands on keys of any type, tested with every data type in every size: their effects must not depend on either.

use crate::command::testing::{Terminal, on_every_setup};
use basalt_engine::Engine;

/// A value of one type.
struct Sample {
    /// The reply of TYPE.
    data_type: &'static str,
    /// The reply of OBJECT ENCODING.
    encoding: &'static str,
    /// Lines that create the value; `$` is the key, and a line that begins with a number is run that many times, `#`
    /// being the iteration.
    make: &'static [&'static str],
    /// Line that returns the content of the value.
    read: &'static str,
}

const SAMPLES: &[Sample] = &[
    Sample {
        data_type: "string",
        encoding: "int",
        make: &["SET $ 12"],
        read: "GET $",
    },
    Sample {
        data_type: "string",
        encoding: "embstr",
        make: &["SET $ text"],
        read: "GET $",
    },
    Sample {
        data_type: "string",
        encoding: "raw",
        make: &["SETRANGE $ 40000 end"],
        read: "GET $",
    },
    Sample {
        data_type: "string",
        encoding: "raw",
        make: &["300 PFADD $ member#"],
        read: "GET $",
    },
    Sample {
        data_type: "list",
        encoding: "listpack",
        make: &["RPUSH $ a 1 b"],
        read: "LRANGE $ 0 -1",
    },
    Sample {
        data_type: "list",
        encoding: "quicklist",
        make: &["600 RPUSH $ element:number:#"],
        read: "LRANGE $ 0 -1",
    },
    Sample {
        data_type: "set",
        encoding: "intset",
        make: &["SADD $ 1 2 3"],
        read: "SMEMBERS $",
    },
    Sample {
        data_type: "set",
        encoding: "listpack",
        make: &["SADD $ 1 2 three"],
        read: "SMEMBERS $",
    },
    Sample {
        data_type: "set",
        encoding: "hashtable",
        make: &["600 SADD $ member#"],
        read: "SMEMBERS $",
    },
    Sample {
        data_type: "zset",
        encoding: "listpack",
        make: &["ZADD $ 1 a 2 b -inf c"],
        read: "ZRANGE $ 0 -1 WITHSCORES",
    },
    Sample {
        data_type: "zset",
        encoding: "skiplist",
        make: &["600 ZADD $ #.5 member#"],
        read: "ZRANGE $ 0 -1 WITHSCORES",
    },
    Sample {
        data_type: "hash",
        encoding: "listpack",
        make: &["HSET $ a 1 b 2"],
        read: "HGETALL $",
    },
    Sample {
        data_type: "hash",
        encoding: "listpackex",
        make: &["HSET $ a 1 b 2", "HEXPIRE $ 5000 FIELDS 1 a"],
        read: "HGETALL $",
    },
    Sample {
        data_type: "hash",
        encoding: "hashtable",
        make: &["600 HSET $ field# value#"],
        read: "HGETALL $",
    },
    Sample {
        data_type: "hash",
        encoding: "hashtable",
        make: &[
            "600 HSET $ field# value#",
            "HEXPIRE $ 5000 FIELDS 2 field1 field2",
        ],
        read: "HGETALL $",
    },
    Sample {
        data_type: "stream",
        encoding: "stream",
        make: &["XADD $ 1-1 f v", "XGROUP CREATE $ g 0"],
        read: "XRANGE $ - +",
    },
    Sample {
        data_type: "stream",
        encoding: "stream",
        make: &["600 XADD $ *-# f v# g w", "XGROUP CREATE $ g 0"],
        read: "XRANGE $ - +",
    },
    Sample {
        data_type: "MBbloom--",
        encoding: "raw",
        make: &["300 BF.ADD $ item#"],
        read: "BF.INFO $",
    },
    Sample {
        data_type: "MBbloomCF",
        encoding: "raw",
        make: &["300 CF.ADD $ item#"],
        read: "CF.INFO $",
    },
    Sample {
        data_type: "CMSk-TYPE",
        encoding: "raw",
        make: &["CMS.INITBYDIM $ 200 5", "CMS.INCRBY $ a 3"],
        read: "CMS.QUERY $ a b",
    },
    Sample {
        data_type: "TopK-TYPE",
        encoding: "raw",
        make: &["TOPK.RESERVE $ 5", "TOPK.ADD $ a b c"],
        read: "TOPK.LIST $",
    },
    Sample {
        data_type: "TDIS-TYPE",
        encoding: "raw",
        make: &["TDIGEST.CREATE $", "300 TDIGEST.ADD $ #"],
        read: "TDIGEST.QUANTILE $ 0.1 0.5 0.9",
    },
    Sample {
        data_type: "ReJSON-RL",
        encoding: "raw",
        make: &["JSON.SET $ . {}", "JSON.SET $ .a [1,true]"],
        read: "JSON.GET $",
    },
    Sample {
        data_type: "ReJSON-RL",
        encoding: "raw",
        make: &["JSON.SET $ . []", "2000 JSON.ARRAPPEND $ . 12345# 1"],
        read: "JSON.GET $",
    },
];

impl Sample {
    fn make(&self, cli: &mut Terminal, key: &str) {
        for line in self.make {
            let line = line.replace('$', key);
            let (times, line) = match line.split_once(' ') {
                Some((times, rest)) if times.parse::<usize>().is_ok() => {
                    (times.parse().expect("asked"), rest.to_owned())
                }
                _ => (1, line),
            };
            for turn in 1..=times {
                let line = line.replace('#', &turn.to_string()).replace("*-", "7-");
                let reply = cli.run(&line);
                assert!(!reply.starts_with("(error)"), "{line}: {reply}");
            }
        }
        cli.check(&format!("TYPE {key}"), self.data_type);
    }

    /// Returns the content of a value, sorted.
    fn read(&self, cli: &mut Terminal, key: &str) -> Vec<String> {
        let reply = cli.run(&self.read.replace('$', key));
        assert!(!reply.starts_with("(error)"), "{}: {reply}", self.read);
        // The numbers of elements are meaningless if those have no order.
        let text = |line: &str| match line.split_once([')', '~', '#']) {
            Some((_, text)) => text.to_owned(),
            None => line.to_owned(),
        };
        let mut lines: Vec<String> = reply.lines().map(text).collect();
        if matches!(self.data_type, "set" | "hash") {
            lines.sort_unstable();
        }
        lines
    }
}

fn used(cli: &Terminal) -> i64 {
    cli.engines.iter().map(Engine::used_bytes).sum()
}

/// Creates enough keys, some with a deadline, that tables and wheels have most of the memory that they will need.
fn fill(cli: &mut Terminal) {
    for number in 0..60 {
        cli.run(&format!("SET other{number} 1 EX {}", 100 + number));
        cli.run(&format!("PERSIST other{number}"));
    }
}

/// Bytes that wheels, tables of keys, and the process-wide pool of table directories may keep. Far less than any
/// large value.
const KEPT_BYTES_MAX: i64 = 6_000;

#[track_caller]
fn assert_even(cli: &Terminal, before: i64, what: &str) {
    let lost = used(cli) - before;
    assert!(lost.abs() <= KEPT_BYTES_MAX, "{lost} bytes lost: {what}");
}

#[test]
fn a_copy_is_equal_and_goes_its_own_way() {
    on_every_setup(|cli| {
        fill(cli);
        for sample in SAMPLES {
            let before = used(cli);
            sample.make(cli, "k");
            let encoding = cli.encoding("k");
            if !sample.data_type.contains("-TYPE") && !sample.data_type.starts_with("MB") {
                assert_eq!(encoding, sample.encoding, "{}", sample.make[0]);
            }
            let content = sample.read(cli, "k");
            cli.check("COPY k c", "(integer) 1");
            assert_eq!(sample.read(cli, "c"), content);
            assert_eq!(cli.encoding("c"), encoding);
            cli.check("TYPE c", sample.data_type);
            cli.check("COPY k c", "(integer) 0");
            cli.check("DEL k", "(integer) 1");
            assert_eq!(sample.read(cli, "c"), content);
            cli.check("COPY c k DB 1", "(integer) 1");
            cli.check("UNLINK c", "(integer) 1");
            cli.check("SELECT 1", "OK");
            assert_eq!(sample.read(cli, "k"), content);
            cli.check("MOVE k 0", "(integer) 1");
            cli.check("SELECT 0", "OK");
            assert_eq!(sample.read(cli, "k"), content);
            cli.check("MOVE k 1", "(integer) 1");
            cli.check("EXISTS k", "(integer) 0");
            cli.check("SELECT 1", "OK");
            cli.check("FLUSHDB", "OK");
            cli.check("SELECT 0", "OK");
            for engine in &mut cli.engines {
                let mut doomed = engine.take_doomed();
                while doomed.free_some(64) {}
                engine.settle(&mut doomed);
            }
            assert_even(cli, before, sample.make[0]);
        }
    });
}

#[test]
fn a_new_name_keeps_value_and_deadline() {
    on_every_setup(|cli| {
        fill(cli);
        for sample in SAMPLES {
            let before = used(cli);
            sample.make(cli, "k");
            let content = sample.read(cli, "k");
            cli.check("EXPIRE k 100", "(integer) 1");
            cli.check("RENAME k r", "OK");
            cli.check("EXISTS k", "(integer) 0");
            assert_eq!(sample.read(cli, "r"), content);
            cli.check("TTL r", "(integer) 100");
            cli.check("PERSIST r", "(integer) 1");
            cli.check("TTL r", "(integer) -1");
            cli.check("SET taken 1", "OK");
            cli.check("RENAMENX r taken", "(integer) 0");
            cli.check("COPY taken r", "(integer) 0");
            cli.check("COPY r taken REPLACE", "(integer) 1");
            assert_eq!(sample.read(cli, "taken"), content);
            cli.check("RENAME r taken", "OK");
            assert_eq!(sample.read(cli, "taken"), content);
            cli.check("RENAMENX taken k", "(integer) 1");
            assert_eq!(sample.read(cli, "k"), content);
            cli.check("SET k 1", "OK");
            cli.check("TYPE k", "string");
            cli.check("DEL k", "(integer) 1");
            assert_even(cli, before, sample.make[0]);
        }
    });
}

#[test]
fn keys_of_all_types_expire_and_are_deleted() {
    on_every_setup(|cli| {
        fill(cli);
        for sample in SAMPLES {
            let before = used(cli);
            for end in ["DEL k", "UNLINK k", "GETDEL k", "EXPIRE k -1", "SET k 1"] {
                sample.make(cli, "k");
                cli.check("EXISTS k k", "(integer) 2");
                cli.check("TOUCH k", "(integer) 1");
                cli.run(end);
                cli.run("DEL k");
                cli.check("TYPE k", "none");
                assert_eq!(cli.encoding("k"), "none");
            }
            sample.make(cli, "k");
            cli.check("PEXPIRE k 10", "(integer) 1");
            cli.check("PTTL k", "(integer) 10");
            cli.advance_ms(11);
            cli.check("EXISTS k", "(integer) 0");
            assert_even(cli, before, sample.make[0]);
        }
    });
}

#[test]
fn scan_finds_keys_by_any_type() {
    on_every_setup(|cli| {
        for (number, sample) in SAMPLES.iter().enumerate() {
            sample.make(cli, &format!("k{number}"));
        }
        for sample in SAMPLES {
            let count = SAMPLES
                .iter()
                .filter(|other| other.data_type == sample.data_type)
                .count();
            let line = format!("SCAN 0 COUNT 1000 TYPE {}", sample.data_type);
            let reply = cli.run(&line);
            assert_eq!(reply.matches("\"k").count(), count, "{line}: {reply}");
        }
        cli.check("SCAN 0 COUNT 1000 TYPE none", "1) \"0\"\n2) (empty array)");
        cli.check("DBSIZE", &format!("(integer) {}", SAMPLES.len()));
    });
}

#[test]
fn memory_usage_tells_what_a_value_takes() {
    let mut cli = Terminal::new();
    fill(&mut cli);
    for sample in SAMPLES {
        let before = used(&cli);
        sample.make(&mut cli, "k");
        let taken = used(&cli) - before;
        let reply = cli.run("MEMORY USAGE k");
        let told: i64 = reply
            .trim_start_matches("(integer) ")
            .parse()
            .expect("a number");
        // A deadline of an element makes the wheel of deadlines grow, which is charged to no key.
        let most = if taken > 2 * KEPT_BYTES_MAX {
            taken / 10
        } else {
            KEPT_BYTES_MAX
        };
        assert!(
            told > 20 && (told - taken).abs() <= most,
            "{}: {told} for {taken}",
            sample.make[0]
        );
        cli.run("DEL k");
    }
}

/// One reading and one writing command of each type; the key is `$`.
const OF_TYPES: &[(&str, &[&str])] = &[
    ("string", &["GET $", "APPEND $ x", "INCR $", "SETBIT $ 1 1"]),
    (
        "list",
        &["LRANGE $ 0 -1", "RPUSH $ x", "LPOP $", "LSET $ 0 x"],
    ),
    ("set", &["SMEMBERS $", "SADD $ x", "SPOP $", "SUNION $"]),
    (
        "zset",
        &["ZRANGE $ 0 -1", "ZADD $ 1 x", "ZPOPMIN $", "ZINCRBY $ 1 x"],
    ),
    (
        "hash",
        &["HGETALL $", "HSET $ f x", "HDEL $ f", "HINCRBY $ f 1"],
    ),
    (
        "stream",
        &["XRANGE $ - +", "XADD $ * f v", "XLEN $", "XTRIM $ MAXLEN 0"],
    ),
    ("MBbloom--", &["BF.ADD $ x", "BF.EXISTS $ x"]),
    ("MBbloomCF", &["CF.ADD $ x"]),
    ("CMSk-TYPE", &["CMS.INCRBY $ x 1"]),
    ("TopK-TYPE", &["TOPK.ADD $ x"]),
    ("TDIS-TYPE", &["TDIGEST.ADD $ 1"]),
    (
        "ReJSON-RL",
        &[
            "JSON.GET $",
            "JSON.SET $ . 1",
            "JSON.DEL $",
            "JSON.ARRPOP $",
        ],
    ),
];

#[test]
fn a_value_of_another_type_is_refused_and_stays() {
    on_every_setup(|cli| {
        for sample in SAMPLES {
            sample.make(cli, "k");
            let content = sample.read(cli, "k");
            cli.events();
            for (data_type, lines) in OF_TYPES {
                if *data_type == sample.data_type {
                    continue;
                }
                for line in *lines {
                    let line = line.replace('$', "k");
                    let reply = cli.run(&line);
                    // Some of the probabilistic commands treat a value of another type as a missing sketch.
                    let is_refused = reply.starts_with("(error) WRONGTYPE")
                        || line.contains('.') && reply.starts_with("(error)")
                        || line == "BF.EXISTS k x";
                    assert!(is_refused, "{line} on a {}: {reply}", sample.data_type);
                }
            }
            assert_eq!(cli.events(), "", "{}", sample.data_type);
            assert_eq!(sample.read(cli, "k"), content);
            cli.run("DEL k");
        }
    });
}
