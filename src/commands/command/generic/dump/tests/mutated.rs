//! Tests of corrupted payloads: each is refused, or is a value on which every command works.
//!
//! `MUTATIONS=20000 MUTATED_SEED=7` makes a longer run with another seed.

use super::ancient;
use super::sketches::MAKERS;
use super::{dump, restore};
use crate::command::testing::Terminal;
use crate::command::testing::payloads;
use basalt_core::base::random::Random;
use basalt_engine::serial::frame;

/// Number of corrupted payloads made from each valid one, unless set in the environment.
const MUTATIONS: u64 = 400;

/// Commands that read every part of a value of a type, then commands that change it; `k` is the key.
const COMMANDS: &[(&str, &[&str])] = &[
    (
        "string",
        &[
            "GET k",
            "STRLEN k",
            "GETRANGE k 0 -1",
            "BITCOUNT k",
            "APPEND k x",
        ],
    ),
    (
        "list",
        &[
            "LRANGE k 0 -1",
            "LRANGE k -2 -1",
            "LINDEX k -1",
            "LPOS k a RANK -1 COUNT 0",
            "LINSERT k BEFORE a b",
            "LSET k 0 x",
            "RPUSH k y",
            "LPOP k",
            "LREM k -1 y",
            "LTRIM k 1 -2",
        ],
    ),
    (
        "set",
        &[
            "SMEMBERS k",
            "SCARD k",
            "SISMEMBER k a",
            "SMISMEMBER k a 17",
            "SSCAN k 0",
            "SINTER k k",
            "SUNION k k",
            "SRANDMEMBER k -5",
            "SADD k 1 x",
            "SREM k 1",
            "SPOP k",
        ],
    ),
    (
        "zset",
        &[
            "ZRANGE k 0 -1 WITHSCORES",
            "ZRANGE k +inf -inf BYSCORE REV LIMIT 1 2",
            "ZRANGEBYLEX k - +",
            "ZSCORE k a",
            "ZMSCORE k a 7",
            "ZRANK k a",
            "ZREVRANK k 7 WITHSCORE",
            "ZCOUNT k -inf 3",
            "ZRANDMEMBER k -5 WITHSCORES",
            "ZSCAN k 0",
            "ZUNION 2 k k WITHSCORES",
            "ZINCRBY k 1.5 a",
            "ZADD k 5 x",
            "ZREM k x",
            "ZREMRANGEBYSCORE k 1 2",
            "ZPOPMAX k",
        ],
    ),
    (
        "hash",
        &[
            "HGETALL k",
            "HKEYS k",
            "HVALS k",
            "HLEN k",
            "HMGET k f1 2 zz",
            "HSTRLEN k f1",
            "HEXISTS k f1",
            "HRANDFIELD k -5 WITHVALUES",
            "HSCAN k 0",
            "HPEXPIRETIME k FIELDS 2 f1 2",
            "HSET k f1 x new y",
            "HPEXPIRE k 100000 FIELDS 1 new",
            "HPERSIST k FIELDS 2 f1 new",
            "HINCRBY k n 1",
            "HDEL k new",
        ],
    ),
    (
        "MBbloom--",
        &[
            "BF.INFO k",
            "BF.CARD k",
            "BF.MEXISTS k a b z",
            "BF.SCANDUMP k 0",
            "BF.SCANDUMP k 1",
            "BF.MADD k 1 2 3 4 5 6 7 8 9",
        ],
    ),
    (
        "MBbloomCF",
        &[
            "CF.INFO k",
            "CF.COUNT k a",
            "CF.MEXISTS k a b z",
            "CF.SCANDUMP k 0",
            "CF.SCANDUMP k 1",
            "CF.ADD k x",
            "CF.DEL k a",
            "CF.DEL k b",
        ],
    ),
    (
        "CMSk-TYPE",
        &["CMS.INFO k", "CMS.QUERY k a b", "CMS.INCRBY k a 5"],
    ),
    (
        "TopK-TYPE",
        &[
            "TOPK.INFO k",
            "TOPK.LIST k WITHCOUNT",
            "TOPK.QUERY k a z",
            "TOPK.COUNT k a",
            "TOPK.ADD k x y z a b",
            "TOPK.INCRBY k a 100",
        ],
    ),
    (
        "TDIS-TYPE",
        &[
            "TDIGEST.INFO k",
            "TDIGEST.QUANTILE k 0 0.5 1",
            "TDIGEST.CDF k 0 3 1000",
            "TDIGEST.RANK k 3",
            "TDIGEST.BYRANK k 0 3 100",
            "TDIGEST.TRIMMED_MEAN k 0.1 0.9",
            "TDIGEST.MIN k",
            "TDIGEST.ADD k 7 8 9",
            "TDIGEST.QUANTILE k 0.3",
        ],
    ),
    (
        "ReJSON-RL",
        &[
            "JSON.GET k",
            "JSON.RESP k",
            "JSON.NUMINCRBY k ..* 1",
            "JSON.ARRAPPEND k ..* 1",
            "JSON.DEL k .a",
            "JSON.SET k . 1",
        ],
    ),
    (
        "stream",
        &[
            "XRANGE k - +",
            "XREVRANGE k + -",
            "XLEN k",
            "XREAD COUNT 2 STREAMS k 0",
            "XINFO STREAM k",
            "XINFO STREAM k FULL",
            "XINFO GROUPS k",
            "XINFO CONSUMERS k g1",
            "XPENDING k g1",
            "XPENDING k g1 - + 10",
            "XGROUP CREATECONSUMER k g1 new",
            "XREADGROUP GROUP g1 alice COUNT 1 STREAMS k >",
            "XREADGROUP GROUP g1 alice STREAMS k 0",
            "XAUTOCLAIM k g1 bob 0 0 COUNT 2",
            "XCLAIM k g1 carol 0 10-1 10-3",
            "XACK k g1 10-1",
            "XDEL k 10-2 1000-1",
            "XADD k * f v",
            "XSETID k 99999999999999-1",
            "XTRIM k MAXLEN 1",
            "XGROUP DESTROY k g1",
        ],
    ),
];

#[test]
fn tampered_payloads_are_refused_or_are_values() {
    let mut cli = Terminal::new();
    let wholes: Vec<Vec<u8>> = payloads::all()
        .map(|recorded| recorded.payload)
        .chain(made(&mut cli))
        .chain(ancient::all().map(|(_, value)| frame::seal(value, 10)))
        .filter_map(|payload| frame::open(&payload).map(|(value, _)| value.to_vec()))
        .collect();
    let given = |name: &str| std::env::var(name).ok()?.parse::<u64>().ok();
    let mut random = Random::new(given("MUTATED_SEED").unwrap_or(20));
    let mutations = given("MUTATIONS").unwrap_or(MUTATIONS) as usize;
    let (mut tried, mut accepted) = (0, 0);
    for whole in &wholes {
        for _ in 0..mutations {
            let other = &wholes[random.index(wholes.len())];
            let value = tampered(whole, other, &mut random);
            tried += 1;
            accepted += usize::from(is_sound(&mut cli, &value));
        }
    }
    assert!(tried >= wholes.len() * mutations);
    // The test would be meaningless if accepted or refused payloads were rare.
    assert!(accepted * 100 > tried, "{accepted} of {tried} accepted");
    assert!(accepted * 2 < tried, "{accepted} of {tried} accepted");
}

/// Returns dumped values of types that only this server has.
fn made(cli: &mut Terminal) -> Vec<Vec<u8>> {
    let mut payloads = Vec::new();
    for (key, lines) in MAKERS {
        lines.iter().for_each(|line| drop(cli.run(line)));
        payloads.push(dump(cli, key));
    }
    cli.run("HSET small a 1 b 2 c 3");
    cli.run("HPEXPIRE small 10000 FIELDS 2 a b");
    cli.configure(|config| config.hash_max_listpack_entries = 0);
    cli.run("HSET large a 1 b 2 c 3");
    cli.run("HPEXPIRE large 10000 FIELDS 2 a b");
    cli.configure(|config| config.hash_max_listpack_entries = 512);
    payloads.extend(["small", "large"].map(|key| dump(cli, key)));
    payloads
}

/// Whether a value is accepted; if it is, asserts that every command works on it, and that it is dumped and restored
/// to the same value.
fn is_sound(cli: &mut Terminal, value: &[u8]) -> bool {
    let about = || value.escape_ascii().to_string();
    let payload = frame::seal(value.to_vec(), 10);
    match restore(cli, "k", &payload, "replace").as_str() {
        "OK" => {}
        "(error) ERR Bad data format" => return false,
        other => panic!("{other} for {}", about()),
    }
    let digest = cli.run("DEBUG DIGEST-VALUE k");
    let again = dump(cli, "k");
    assert_eq!(restore(cli, "k", &again, "replace"), "OK", "{}", about());
    assert_eq!(cli.run("DEBUG DIGEST-VALUE k"), digest, "{}", about());
    let kind = cli.run("TYPE k");
    let (_, lines) = COMMANDS
        .iter()
        .find(|(name, _)| *name == kind)
        .unwrap_or_else(|| panic!("no commands for {kind}"));
    for line in *lines {
        cli.run(line);
    }
    cli.run("DEL k");
    true
}

/// Returns a value with one to three random changes.
fn tampered(whole: &[u8], other: &[u8], random: &mut Random) -> Vec<u8> {
    let mut value = whole.to_vec();
    for _ in 0..1 + random.index(3) {
        if value.is_empty() {
            value.push(random.next_u64() as u8);
        }
        let at = random.index(value.len());
        let end = (at + 1 + random.index(8)).min(value.len());
        match random.index(9) {
            0 => value[at] = random.next_u64() as u8,
            1 => value[at] ^= 1 << random.index(8),
            2 => value[at] = value[at].wrapping_add(1),
            3 => value[at] = [0, 0xff, 0x7f, 0x80, 0xfe, 0xc3, 0x40, 0x81][random.index(8)],
            4 => value.truncate(at),
            5 => drop(value.drain(at..end)),
            6 => {
                let copy = value[at..end].to_vec();
                value.splice(at..at, copy);
            }
            7 => {
                let from = random.index(other.len());
                let to = (from + 1 + random.index(24)).min(other.len());
                value.splice(at..end, other[from..to].iter().copied());
            }
            _ => value.insert(at, random.next_u64() as u8),
        }
    }
    value
}
