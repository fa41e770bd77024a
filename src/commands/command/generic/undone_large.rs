//! Tests of transactions on collections that are too large to be copied: a rolled back transaction leaves no trace of
//! its changes.
//!
//! Lists, sorted sets and streams are compared by their dumps, byte for byte; hashes and sets, which have no order,
//! by digest. What is charged to the shards equals what is allocated, before, during and after.

use super::undone::accounts;
use crate::command::testing::Terminal;
use basalt_core::base::random::Random;
use basalt_core::resp::reply::Protocol;

/// Commands in the notation of `undone.rs`; `$k` stands for the key of the type.
const LISTS: &[&str] = &[
    "RPUSH $k $v $v $v",
    "LPUSH $k $v",
    "LPUSH $k $h",
    "LPOP $k",
    "RPOP $k $n",
    "LPOP $k 900",
    "RPOP $k 2980",
    "LSET $k $n $v",
    "LSET $k -$n $h",
    "LSET $k 1500 $v",
    "LINSERT $k BEFORE element:$n $v",
    "LINSERT $k AFTER element:$n $h",
    "LREM $k 0 $v",
    "LREM $k -1 element:$n",
    "LREM $k 0 element:$n",
    "LTRIM $k 1 -2",
    "LTRIM $k 200 -300",
    "LTRIM $k 0 3",
    "LTRIM $k -4 -1",
    "LMOVE $k $k LEFT RIGHT",
    "LMOVE $k $k RIGHT RIGHT",
    "LMPOP 1 $k RIGHT COUNT 20",
    "LMOVEM $k $k LEFT LEFT COUNT 30 OBO",
    "LMOVEM $k $k RIGHT LEFT COUNT 30 BULK",
];

const HASHES: &[&str] = &[
    "HSET $k $f $v $f $v",
    "HSET $k $f $h",
    "HDEL $k $f $f $f",
    "HINCRBY $k number$n $n",
    "HINCRBYFLOAT $k number$n 0.5",
    "HSETNX $k $f $v",
    "HPEXPIRE $k $t FIELDS 2 $f $f",
    "HPEXPIRE $k 0 FIELDS 2 $f $f",
    "HPERSIST $k FIELDS 1 $f",
    "HGETALL $k",
];

const SETS: &[&str] = &[
    "SADD $k $f $v $n",
    "SREM $k $f $f $n",
    "SPOP $k",
    "SPOP $k 40",
    "SPOP $k 1490",
    "SMOVE $k $k $f",
    "SMOVE $k other $f",
    "SPEXPIRE $k $t MEMBERS 2 $f $n",
    "SPEXPIRE $k 0 MEMBERS 2 $f $f",
    "SPERSIST $k MEMBERS 1 $f",
];

const SORTED_SETS: &[&str] = &[
    "ZADD $k $s $f $s $f",
    "ZADD $k GT CH $s $f",
    "ZINCRBY $k $s $f",
    "ZREM $k $f $f",
    "ZMOVE $k other MIN COUNT 30",
    "ZMOVE other $k BYSCORE 2 (7 COUNT 40",
    "ZMOVEMEMBER $k other MEMBERS 2 $f $f",
    "ZPOPMIN $k $n",
    "ZPOPMAX $k",
    "ZREMRANGEBYRANK $k $n 80",
    "ZREMRANGEBYSCORE $k -3 2",
    "ZREMRANGEBYRANK $k 3 -4",
    "GEOADD $k $n $n $f",
    "ZMPOP 1 $k MAX COUNT 5",
];

const STREAMS: &[&str] = &[
    "XADD $k * $f $v",
    "XADD $k * name $v",
    "XADD $k MAXLEN ~ 900 * name $v",
    "XADD $k MAXLEN 700 * name $v",
    "XDEL $k $n-1 $n-2",
    "XTRIM $k MAXLEN $n",
    "XTRIM $k MINID $n",
    "XREADGROUP GROUP group c$n COUNT 5 STREAMS $k >",
    "XACK $k group $n-1 $n-2",
    "XGROUP CREATE $k group$n 0",
    "XGROUP DESTROY $k group$n",
    "XAUTOCLAIM $k group c 0 0 COUNT 5",
    "XSETID $k 9999999999999-0",
];

/// Commands for all types.
const ANY: &[&str] = &[
    "DEL $k",
    "RENAME $k other",
    "COPY $k other REPLACE",
    "COPY $k $k DB 1",
    "SET $k $v",
    "PEXPIRE $k $t",
    "PERSIST $k",
    "MOVE $k 2",
    "RENAME other $k",
    "FLUSHALL",
    "SWAPDB 0 1",
];

const FAMILIES: [(&str, &[&str]); 5] = [
    ("list", LISTS),
    ("hash", HASHES),
    ("set", SETS),
    ("zset", SORTED_SETS),
    ("stream", STREAMS),
];

fn draw(random: &mut Random, below: u64) -> u64 {
    random.next_u64() % below
}

fn fill(random: &mut Random, template: &str, family: &str) -> String {
    let mut parts = template.split('$');
    let mut line = parts.next().unwrap_or_default().to_owned();
    for part in parts {
        let (kind, rest) = part.split_at(1);
        line += &match kind {
            "k" => format!("{family}{}", draw(random, 2)),
            "v" => format!("value{}", draw(random, 9)),
            "h" => "huge".repeat(draw(random, 3_000) as usize),
            "f" => format!("field{}", draw(random, 1_800)),
            "n" => draw(random, 80).to_string(),
            "t" => (draw(random, 4_000) + 1).to_string(),
            "s" => format!("{}.5", draw(random, 20) as i64 - 10),
            _ => unreachable!("{template}"),
        };
        line += rest;
    }
    line
}

/// Creates a server with two large collections of each type.
fn server(random: &mut Random, shard_count: usize) -> Terminal {
    let mut cli = Terminal::with(shard_count, Protocol::Resp3);
    let compress_depth = draw(random, 2) as i64;
    cli.configure(|config| config.list_compress_depth = compress_depth.try_into().unwrap());
    for copy in 0..2 {
        for part in 0..30 {
            let each = |word: &str| -> String {
                let parts =
                    (part * 50..part * 50 + 50).map(|at| word.replace('#', &at.to_string()));
                parts.collect::<Vec<_>>().join(" ")
            };
            cli.run(&format!("RPUSH list{copy} {}", each("element:# value#")));
            cli.run(&format!(
                "HSET hash{copy} {}",
                each("field# value-of-field#")
            ));
            cli.run(&format!("SADD set{copy} {}", each("field#")));
            cli.run(&format!("ZADD zset{copy} {}", each("#.25 field#")));
            for at in 0..30 {
                let id = format!("{part}-{}", at + 1);
                cli.run(&format!(
                    "XADD stream{copy} {id} name value-of-some-length-{at}"
                ));
            }
        }
        for at in 0..40 {
            let after_ms = 100 + draw(random, 3_000);
            cli.run(&format!(
                "HPEXPIRE hash{copy} {after_ms} FIELDS 1 field{}",
                at * 30
            ));
        }
        cli.run(&format!("XGROUP CREATE stream{copy} group 0"));
        cli.run(&format!(
            "XREADGROUP GROUP group c COUNT 20 STREAMS stream{copy} >"
        ));
    }
    cli
}

/// Returns the data, as text, and the bytes of each key according to MEMORY USAGE.
fn dataset(cli: &mut Terminal) -> (String, Vec<i64>) {
    let (mut text, mut bytes) = (String::new(), Vec::new());
    for (family, _) in FAMILIES {
        for key in [format!("{family}0"), format!("{family}1")] {
            text += &format!("\n{key} {} {} ", cli.encoding(&key), cli.ttl_ms(&key));
            text += &cli.run(&match family {
                "hash" | "set" => format!("DEBUG DIGEST-VALUE {key}"),
                _ => format!("DUMP {key}"),
            });
            if family == "hash" {
                let fields: Vec<String> = (0..40).map(|at| format!("field{}", at * 30)).collect();
                let fields = fields.join(" ");
                text += &cli.run(&format!("HPEXPIRETIME {key} FIELDS 40 {fields}"));
            }
            let usage = cli.run(&format!("MEMORY USAGE {key} SAMPLES 0"));
            bytes.push(usage.trim_start_matches("(integer) ").parse().unwrap_or(0));
        }
    }
    text += &cli.run("DEBUG DIGEST");
    (text, bytes)
}

/// Rolls back a transaction of some random commands, and compares the state with the one before.
fn undo_some(cli: &mut Terminal, random: &mut Random, what: &str) {
    cli.advance_ms(draw(random, 60));
    let now = basalt_engine::Now {
        unix_ms: cli.now_ms,
    };
    for engine in &mut cli.engines {
        while engine.expire_slice(now) {}
    }
    let (before, bytes_before) = dataset(cli);
    let lines: Vec<String> = (0..draw(random, 20) + 1)
        .map(|_| {
            let (family, templates) = FAMILIES[draw(random, 5) as usize];
            let templates = match draw(random, 16) {
                0 => ANY,
                _ => templates,
            };
            let template = templates[draw(random, templates.len() as u64) as usize];
            fill(random, template, family)
        })
        .collect();
    let engines = cli.engines.iter_mut();
    engines.for_each(basalt_engine::Engine::begin_attempt);
    for line in &lines {
        cli.run(line);
    }
    let engines = cli.engines.iter_mut();
    engines.for_each(basalt_engine::Engine::undo_attempt);
    let (after, bytes_after) = dataset(cli);
    let differs = before
        .lines()
        .zip(after.lines())
        .find(|(before, after)| before != after);
    if let Some((before, after)) = differs {
        panic!("{what}: {lines:#?}\n{before:.3000}\n{after:.3000}");
    }
    for (before, after) in bytes_before.iter().zip(&bytes_after) {
        // Tables, trees and the ends of lists may have reserved memory.
        assert!(
            (after - before).abs() < before / 3 + 16_384,
            "{what}: {lines:#?}\n{bytes_before:?}\n{bytes_after:?}"
        );
    }
}

#[test]
fn changes_of_large_collections_are_undone_to_the_byte() {
    // Allocations made once per process or thread happen now, before memory is measured.
    drop(server(&mut Random::new(0), 1));
    let seeds: u64 = if cfg!(debug_assertions) { 8 } else { 150 };
    for seed in 0..seeds {
        let mut random = Random::new(seed);
        let shard_count = if seed.is_multiple_of(2) { 1 } else { 4 };
        let mut cli = server(&mut random, shard_count);
        let what = format!("seed {seed}");
        undo_some(&mut cli, &mut random, &what);
        let unaccounted = accounts(&mut cli).1;
        for _ in 0..12 {
            undo_some(&mut cli, &mut random, &what);
            let drift = accounts(&mut cli).1 - unaccounted;
            assert_eq!(drift, 0, "{what}");
        }
        // Each collection counts its own bytes: when all are deleted, only the memory of databases is charged.
        let used = accounts(&mut cli).0;
        assert!(used > 500_000, "{what}: {used}");
        for (family, _) in FAMILIES {
            cli.run(&format!("DEL {family}0 {family}1"));
        }
        let left = accounts(&mut cli).0;
        assert!(
            (0..60_000 * shard_count as i64).contains(&left),
            "{what}: {left} of {used}"
        );
    }
}
