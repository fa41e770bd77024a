//! Tests of transactions over all families: a rolled back transaction leaves no trace, and a committed one has the
//! same effects as if rollback had never been possible.

use crate::command::declaration::Flags;
use crate::command::registry::registry;
use crate::command::testing::Terminal;
use basalt_core::alloc::account;
use basalt_core::base::random::Random;
use basalt_core::resp::reply::Protocol;
use basalt_engine::Now;

/// Commands to choose from at random. `$k` is a key, `$v` a value, `$f` a field or member, `$n` a small number, `$t`
/// milliseconds, `$s` a score, `$d` a database.
const TEMPLATES: &[&str] = &[
    "SET $k $v",
    "SET $k $n",
    "SET $k $v PX $t",
    "SET $k $v KEEPTTL",
    "SETEX $k 9 $v",
    "PSETEX $k $t $v",
    "SETNX $k $v",
    "LFILL $k $n $v",
    "LDROP $k $n",
    "GETSET $k $v",
    "GETDEL $k",
    "GETEX $k PX $t",
    "APPEND $k $v",
    "SETRANGE $k $n $v",
    "SETRANGE $k 20000 $v",
    "INCR $k",
    "INCRBYFLOAT $k 1.5",
    "DECRBY $k $n",
    "INCRBY $k $n",
    "DECR $k",
    "MSET $k $v $k $v",
    "MSETNX $k $v $k $v",
    "MSETEX 2 $k $v $k $v PX $t",
    "DELEX $k IFEQ $n",
    "DELIFEQ $k $n",
    "SETBIT $k $n 1",
    "BITFIELD $k SET u8 $n 7",
    "BITOP OR $k $k $k",
    "PFADD $k $f $f",
    "PFMERGE $k $k",
    "GET $k",
    "STRLEN $k",
    "DEL $k",
    "DEL $k $k",
    "UNLINK $k",
    "RENAME $k $k",
    "RENAMENX $k $k",
    "COPY $k $k REPLACE",
    "COPY $k $k DB $d REPLACE",
    "MOVE $k $d",
    "PEXPIRE $k $t",
    "PEXPIRE $k 0",
    "PERSIST $k",
    "EXPIREAT $k 1800000000 NX",
    "EXPIRE $k 9",
    "PEXPIREAT $k 1700000009000 GT",
    "TOUCH $k",
    "SORT $k ALPHA STORE $k",
    "SELECT $d",
    "FLUSHDB",
    "SWAPDB $d $d",
    "FLUSHALL",
    "LPUSH $k $v $v",
    "RPUSH $k $v $n",
    "RPUSH $k $v $v $v $v $v $v $v $v",
    "LPOP $k",
    "RPOP $k 3",
    "LSET $k 0 $v",
    "LINSERT $k BEFORE $v $v",
    "LTRIM $k 1 -2",
    "LREM $k 0 $v",
    "LMOVE $k $k LEFT RIGHT",
    "LMPOP 2 $k $k LEFT COUNT 2",
    "LMOVEM $k $k LEFT LEFT COUNT 3 OBO",
    "LMOVEM $k $k RIGHT LEFT COUNT 2 BULK",
    "LPUSHX $k $v",
    "RPUSHX $k $v",
    "RPOPLPUSH $k $k",
    "HSET $k $f $v",
    "HSET $k $f $v $f $n $f $v $f $v",
    "HDEL $k $f $f",
    "HINCRBY $k $f $n",
    "HSETNX $k $f $v",
    "HPEXPIRE $k $t FIELDS 2 $f $f",
    "HPERSIST $k FIELDS 1 $f",
    "HEXPIRE $k 9 FIELDS 1 $f",
    "HEXPIREAT $k 1700000009 FIELDS 1 $f",
    "HPEXPIREAT $k 1700000009000 FIELDS 1 $f",
    "HMSET $k $f $v",
    "HGETDEL $k FIELDS 2 $f $f",
    "HGETEX $k PX $t FIELDS 1 $f",
    "HSETEX $k PX $t FIELDS 1 $f $v",
    "HINCRBYFLOAT $k $f 0.5",
    "LOCK $k $f $t",
    "BLESS SET $k NO-EVICT",
    "BLESS CLEAR $k NO-EVICT",
    "LOCK $k $f 9",
    "LOCKEXTEND $k $f $t",
    "UNLOCK $k $f",
    "SET $k $v FENCE $k 1700000000000000",
    "INCREX $k BYINT $n UBOUND 9 SATURATE PX $t",
    "INCREX $k BYFLOAT 0.5 EX 9 ENX",
    "CL.THROTTLE $k 3 1 2",
    "ZPOPDUE $k COUNT 2",
    "BZPOPDUE $k $k 1",
    "ZMOVE $k $k MIN COUNT 2",
    "ZMOVE $k $k BYSCORE -inf 5",
    "BZMOVE $k $k MAX 1",
    "ZMOVEMEMBER $k $k NX MEMBERS 2 $f $f",
    "HGETALL $k",
    "SADD $k $n $n $n",
    "SADD $k $f $f $f $f $f",
    "SREM $k $f $n",
    "SPOP $k",
    "SPOP $k 2",
    "SMOVE $k $k $f",
    "SPEXPIRE $k $t MEMBERS 2 $f $n",
    "SEXPIRE $k 9 MEMBERS 1 $f",
    "SEXPIREAT $k 1700000009 MEMBERS 1 $n",
    "SPEXPIREAT $k 1700000009000 MEMBERS 1 $f",
    "SPERSIST $k MEMBERS 1 $f",
    "SUNIONSTORE $k $k $k",
    "SINTERSTORE $k $k $k",
    "SDIFFSTORE $k $k $k",
    "ZADD $k $s $f $s $f",
    "ZADD $k $s $f $s $f $s $f $s $f $s $f",
    "ZINCRBY $k $s $f",
    "ZREM $k $f",
    "ZPOPMIN $k 2",
    "ZPOPMAX $k",
    "ZMPOP 2 $k $k MAX COUNT 2",
    "ZREMRANGEBYLEX $k - (f5",
    "ZREMRANGEBYRANK $k 0 1",
    "ZREMRANGEBYSCORE $k -5 5",
    "ZUNIONSTORE $k 2 $k $k",
    "ZINTERSTORE $k 2 $k $k",
    "ZRANGESTORE $k $k 0 3",
    "ZDIFFSTORE $k 2 $k $k",
    "GEOADD $k $n $n $f",
    "GEOSEARCHSTORE $k $k FROMLONLAT 1 1 BYRADIUS 500 km",
    "GEORADIUS $k 1 1 500 km STORE $k",
    "GEORADIUSBYMEMBER $k $f 500 km STOREDIST $k",
    "XADD $k * $f $v",
    "XADD $k MAXLEN 3 * $f $v",
    "XADD $k IDMP $f $v * $f $v",
    "XADD $k IDMPAUTO $f * $f $v",
    "XADD $k NOMKSTREAM IDMP $f $f MAXLEN 0 * $f $v",
    "XCFGSET $k IDMP-MAXSIZE $n IDMP-DURATION 50",
    "XIDMPRECORD $k $f $v 1-1",
    "XTRIM $k MAXLEN 2",
    "XGROUP CREATE $k g$n 0 MKSTREAM",
    "XREADGROUP GROUP g$n c$n COUNT 2 STREAMS $k >",
    "XACK $k g$n 1-1",
    "XSETID $k 9999999999999-0",
    "XGROUP DESTROY $k g$n",
    "XGROUP CREATECONSUMER $k g$n c$n",
    "XGROUP DELCONSUMER $k g$n c$n",
    "XGROUP SETID $k g$n 0",
    "XCLAIM $k g$n c$n 0 1-1",
    "XACKDEL $k g$n IDS 1 1-1",
    "XDELEX $k DELREF IDS 1 1-1",
    "XAUTOCLAIM $k g$n c 0 0",
    "XNACK $k g$n SILENT IDS 2 1-1 2-1 FORCE",
    "XDEL $k 1-1",
    "XADD $k 1-1 $f $v",
    "BF.ADD $k $f",
    "BF.RESERVE $k 0.01 100",
    "BF.MADD $k $f $f",
    "BF.INSERT $k ITEMS $f",
    "CF.ADD $k $f",
    "CF.RESERVE $k 100",
    "CF.ADDNX $k $f",
    "CF.INSERT $k ITEMS $f $f",
    "CF.INSERTNX $k ITEMS $f",
    "CF.DEL $k $f",
    "CMS.INITBYDIM $k 20 3",
    "CMS.INITBYPROB $k 0.1 0.1",
    "CMS.MERGE $k 1 $k",
    "CMS.INCRBY $k $f $n",
    "TOPK.RESERVE $k 3",
    "TOPK.ADD $k $f",
    "TOPK.INCRBY $k $f $n",
    "TDIGEST.CREATE $k",
    "TDIGEST.ADD $k $s",
    "TDIGEST.MERGE $k 1 $k",
    "TDIGEST.RESET $k",
    "JSON.SET $k . '{\"a\":$n,\"b\":true,\"t\":\"$v\",\"l\":[1,$n,[2]],\"$f\":{}}'",
    "JSON.SET $k .$f '\"$v\"'",
    "JSON.SET $k .l[0] '{\"$f\":$s}'",
    "JSON.MSET $k . '{\"a\":$n}' $k . '[1,$s]'",
    "JSON.MERGE $k . '{\"$f\":{\"a\":$n},\"t\":null}'",
    "JSON.DEL $k .$f",
    "JSON.FORGET $k",
    "JSON.CLEAR $k .l",
    "JSON.TOGGLE $k .b",
    "JSON.NUMINCRBY $k ..a $s",
    "JSON.NUMMULTBY $k .a $n",
    "JSON.NUMPOWBY $k .a 2",
    "JSON.STRAPPEND $k .t '\"$v\"'",
    "JSON.ARRAPPEND $k .l $n '\"$v\"'",
    "JSON.ARRINSERT $k .l 0 $n '\"$v\"'",
    "JSON.ARRPOP $k .l 1",
    "JSON.ARRTRIM $k .l 0 $n",
];

pub(super) fn draw(random: &mut Random, below: u64) -> u64 {
    random.next_u64() % below
}

fn fill(random: &mut Random, template: &str) -> String {
    let mut line = String::new();
    let mut parts = template.split('$');
    line.push_str(parts.next().unwrap_or_default());
    for part in parts {
        let (kind, rest) = part.split_at(1);
        line += &match kind {
            "k" => format!("key{}", draw(random, 24)),
            "v" if draw(random, 12) == 0 => "large".repeat(draw(random, 60) as usize + 1),
            "v" if draw(random, 40) == 0 => "huge".repeat(6_000),
            "v" => format!("value{}", draw(random, 9)),
            "f" => format!("field{}", draw(random, 30)),
            "n" => draw(random, 40).to_string(),
            "t" => (draw(random, 4_000) + 1).to_string(),
            "s" => format!("{}.5", draw(random, 20) as i64 - 10),
            "d" => draw(random, 3).to_string(),
            _ => unreachable!("{template}"),
        };
        line += rest;
    }
    line
}

pub(super) fn server(shard_count: usize) -> Terminal {
    let mut cli = Terminal::with(shard_count, Protocol::Resp3);
    // The thresholds are low so that they are crossed often.
    cli.configure(|config| {
        config.hash_max_listpack_entries = 8;
        config.set_max_listpack_entries = 8;
        config.set_max_intset_entries = 8;
        config.zset_max_listpack_entries = 8;
        config.list_max_listpack_size = 8;
    });
    cli
}

/// Returns all data, as text.
fn dataset(cli: &mut Terminal) -> String {
    let mut text = String::new();
    let db_before = cli.connection.db;
    for db in 0..3 {
        cli.run(&format!("SELECT {db}"));
        for index in 0..24 {
            let key = format!("key{index}");
            let data_type = cli.run(&format!("TYPE {key}"));
            if data_type == "none" {
                continue;
            }
            text += &format!("\n{db} {key} {data_type} {}", cli.encoding(&key));
            text += &format!(" {}", cli.ttl_ms(&key));
            text += &cli.run(&format!("DEBUG DIGEST-VALUE {key}"));
            match data_type.as_str() {
                "string" => text += &cli.run(&format!("GET {key}")),
                "hash" => {
                    let fields: Vec<String> = (0..30).map(|at| format!("field{at}")).collect();
                    let fields = fields.join(" ");
                    text += &cli.run(&format!("HPEXPIRETIME {key} FIELDS 30 {fields}"));
                }
                "stream" => text += &cli.run(&format!("XINFO STREAM {key} FULL")),
                _ => {}
            }
        }
    }
    cli.connection.db = db_before;
    // After the lookups above, which have deleted expired entries.
    text + &cli.run("DEBUG DIGEST")
}

/// Frees deferred memory, discards effects, and returns the bytes that are charged to the shards, and the bytes of
/// this thread that are charged to no account.
pub(super) fn accounts(cli: &mut Terminal) -> (i64, i64) {
    basalt_engine::undo::drop_room();
    crate::command::json::drop_kept_paths();
    for engine in &mut cli.engines {
        drop(engine.effects.take());
        drop(std::mem::take(&mut engine.deferred));
        let mut doomed = engine.take_doomed();
        while doomed.free_some(64) {}
        engine.settle(&mut doomed);
        drop(doomed);
        drop(std::mem::take(&mut engine.deferred));
    }
    let used = cli.engines.iter().map(|engine| engine.used_bytes()).sum();
    (used, account::thread_bytes() - used)
}

fn counters(cli: &Terminal) -> Vec<u64> {
    let of = |engine: &basalt_engine::Engine| {
        let published = engine.published();
        let keys: u64 = published.dbs.iter().map(|db| db.keys.get()).sum();
        let volatile: u64 = published.dbs.iter().map(|db| db.volatile_keys.get()).sum();
        let fields: u64 = published
            .dbs
            .iter()
            .map(|db| db.field_volatile_keys.get())
            .sum();
        let all = published.all_counts();
        [
            keys,
            volatile,
            fields,
            published.dirty.get(),
            all.hits,
            all.misses,
            all.expired,
            published.lazyfreed.get(),
            engine.effects.dirty(),
        ]
    };
    cli.engines.iter().flat_map(of).collect()
}

pub(super) fn script(random: &mut Random) -> Vec<String> {
    let count = draw(random, 12) + 1;
    let mut lines = Vec::new();
    for _ in 0..count {
        let mut template = TEMPLATES[draw(random, TEMPLATES.len() as u64) as usize];
        // Whole databases are flushed seldom, or there would never be many keys.
        if template.starts_with("FLUSH") && draw(random, 8) != 0 {
            template = "SADD $k $f $f $f";
        }
        lines.push(fill(random, template));
    }
    lines
}

/// Advances the fencing tokens of both servers to the same: a token that was issued and rolled back is never issued
/// again.
fn level_fences(undone: &Terminal, plain: &Terminal) {
    let last = undone.engines[0].fence_source.last();
    let now = Now {
        unix_ms: plain.now_ms,
    };
    let raised = plain.engines[0].fence_source.raise(last, now);
    raised.expect("it was drawn just now");
}

fn undone_and_committed(seed: u64, rounds: usize) {
    let mut random = Random::new(seed);
    let shard_count = if seed.is_multiple_of(2) { 1 } else { 4 };
    let (mut cli, mut plain) = (server(shard_count), server(shard_count));
    for round in 0..rounds {
        let passed = draw(&mut random, 300);
        cli.advance_ms(passed);
        plain.advance_ms(passed);
        let now = (cli.now_ms, cli.connection.db);
        // Expired entries are deleted first, so that they are not deleted in the middle of the comparison.
        for engine in cli.engines.iter_mut().chain(&mut plain.engines) {
            while engine.expire_slice(basalt_engine::Now { unix_ms: now.0 }) {}
        }
        let before = dataset(&mut cli);
        let counted = counters(&cli);
        let lines = script(&mut random);
        let unaccounted = accounts(&mut cli).1;
        cli.engines
            .iter_mut()
            .for_each(basalt_engine::Engine::begin_attempt);
        for line in &lines {
            cli.run(line);
        }
        cli.engines
            .iter_mut()
            .for_each(basalt_engine::Engine::undo_attempt);
        cli.connection.db = now.1;
        level_fences(&cli, &plain);
        assert_eq!(
            counters(&cli),
            counted,
            "seed {seed} round {round}: {lines:#?}"
        );
        let after = accounts(&mut cli).1;
        assert_eq!(
            after, unaccounted,
            "seed {seed} round {round}: bytes: {lines:#?}"
        );
        assert_eq!(
            dataset(&mut cli),
            before,
            "seed {seed} round {round}: {lines:#?}"
        );

        let lines = script(&mut random);
        let theirs = accounts(&mut plain).0;
        let unaccounted = accounts(&mut cli).1 - theirs;
        cli.engines
            .iter_mut()
            .for_each(basalt_engine::Engine::begin_attempt);
        for line in &lines {
            let mine = cli.run(line);
            let theirs = plain.run(line);
            // The two servers choose different members.
            if !line.starts_with("SPOP") {
                assert_eq!(mine, theirs, "seed {seed} round {round}: {line}");
            }
        }
        cli.engines
            .iter_mut()
            .for_each(basalt_engine::Engine::commit_attempt);
        let theirs = accounts(&mut plain).0;
        let after = accounts(&mut cli).1 - theirs;
        assert_eq!(
            after, unaccounted,
            "seed {seed} round {round}: bytes: {lines:#?}"
        );
        if lines.iter().any(|line| line.starts_with("SPOP")) {
            // The states differ now: start again.
            return;
        }
        assert_eq!(
            dataset(&mut cli),
            dataset(&mut plain),
            "seed {seed} round {round}: {lines:#?}"
        );
    }
}

/// Rows that write keys and are not chosen at random: they wait, contact other servers, read what a server has
/// dumped, need what a connection has registered, occur in the log only, or leave names and memory for names
/// (`tag::tests`).
const NOT_DRAWN: &[&str] = &[
    "blmove",
    "blmovem",
    "blmpop",
    "blpop",
    "brpop",
    "brpoplpush",
    "bzmpop",
    "bzpopmax",
    "bzpopmin",
    "migrate",
    "pfdebug",
    "restore",
    "restore-asking",
    "bf.loadchunk",
    "cf.loadchunk",
    "himport|set",
    "fence",
    "lstale",
    "tag|add",
    "tag|rem",
];

#[test]
fn every_row_that_writes_keys_is_drawn() {
    let rows = registry().all().iter();
    let writes = rows.filter(|row| row.flags.any(Flags::WRITE) && !row.keys.is_empty());
    let is_drawn = |name: &str| {
        TEMPLATES.iter().any(|template| {
            let line = template.to_lowercase().replacen("xgroup ", "xgroup|", 1);
            let line = line.replacen("bless ", "bless|", 1);
            line.split(' ').next() == Some(name)
        })
    };
    let missing: Vec<&str> = writes
        .map(|row| row.full_name)
        .filter(|name| is_drawn(name) == NOT_DRAWN.contains(name))
        .collect();
    assert_eq!(missing, [""; 0]);
}

#[test]
fn an_undone_attempt_leaves_no_trace_and_a_committed_one_is_as_if_there_were_none() {
    // Allocations made once per process or thread happen now, before memory is measured.
    let (mut cli, mut random) = (server(1), Random::new(0));
    for template in TEMPLATES.iter().chain(TEMPLATES) {
        cli.run(&fill(&mut random, template));
    }
    drop(cli);
    let seeds: u64 = if cfg!(debug_assertions) { 60 } else { 600 };
    for seed in 0..seeds {
        undone_and_committed(seed, 60);
    }
}

#[test]
fn what_an_undone_attempt_brought_about_is_told_to_nobody() {
    let mut cli = Terminal::new();
    cli.run("SET a 1");
    cli.effects();
    cli.engines[0].begin_attempt();
    cli.run("INCR a");
    cli.run("DEL a");
    cli.run("RPUSH b x");
    cli.engines[0].undo_attempt();
    assert_eq!(cli.events(), "");
    cli.check_all(&[("GET a", "\"1\""), ("EXISTS b", "(integer) 0")]);
    cli.engines[0].begin_attempt();
    cli.run("INCR a");
    cli.engines[0].commit_attempt();
    assert_eq!(cli.events(), "$:incrby a");
    cli.check("GET a", "\"2\"");
}
