//! Units on many shards, simulated on one thread from a seed: random shards are locked by others; units start
//! with some of their shards, need others, cannot lock them, are interrupted, rolled back and run again,
//! directly or as messages. The results must equal those of the same commands run serially on a model server
//! without locks and rollbacks.
//!
//! `BASALT_SIMULATION_STEPS=800000` runs that many units instead of a few thousand, from seeds starting at
//! `BASALT_SIMULATION_SEED`.

mod crowd;

use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;
use std::task::{Context, Poll, Waker};

use self::crowd::unit_of;
use super::ExecutionUnit;
use super::context::{UnitContext, UnitOutcome};
use super::plan::UnitPlan;
use super::transaction::Transaction;
use crate::script::library::Library;
use crate::script::offload::OffloadPool;
use crate::shard::job::task::WaiterDispatcher;
use crate::shard::job::unit::UnitJob;
use crate::shard::job::{Executor, Job, Work};
use crate::shard::ownership::ShardGuard;
use crate::shard::route::Router;
use crate::shard::{HeldShards, Shards};
use basalt_commands::client::connection::Connection;
use basalt_commands::client::shared::Shared;
use basalt_commands::command::declaration::Command;
use basalt_commands::command::host::Server;
use basalt_commands::command::testing::{self, KeptLog, Terminal, state};
use basalt_commands::command::{Args, Out};
use basalt_commands::config::Config;
use basalt_core::base::random::Random;
use basalt_core::resp::reply::Protocol;
use basalt_engine::record::Audience;
use basalt_engine::{Engine, Now};

const SHARDS: u16 = 8;

const KEYS: u64 = 40;

/// A value too long for the compact encoding of small collections.
const LONG: &str = "this-is-a-member-or-a-value-that-is-too-long-to-lie-in-a-small-collection";

/// Appends many elements to one list.
const MANY: &str = "RPUSH big element:number:# element:number:# element:number:# element:number:# element:number:#";

/// Templates of commands, separated by semicolons; `$` stands for a key, `#` for a small number.
const TEMPLATES: &str = "\
    SET $ #; INCR $; APPEND $ x#; GET $; DEL $ $; MSET $ # $ #; MGET $ $ $; RENAME $ $; \
    COPY $ $ REPLACE; RPUSH $ # # #; LPOP $; LMOVE $ $ LEFT RIGHT; LRANGE $ 0 3; LTRIM $ 1 -1; \
    HSET $ f# #; HDEL $ f#; HGET $ f#; SADD $ # # #; SREM $ #; SMOVE $ $ #; SCARD $; \
    SUNIONSTORE $ $ $; ZADD $ # m#; ZINCRBY $ # m#; ZCARD $; EXPIRE $ 1000; PERSIST $; TTL $; \
    STRLEN $; TYPE $; DBSIZE; XADD $ * f #; XLEN $; SETBIT $ 90000 1; \
    MANY; MANY; MANY; \
    LTRIM big 1 -1; LREM big 1 element:number:#; LPOP big; LSET big 0 element:number:#; \
    LINSERT big AFTER element:number:# other; HSET bighash f# #-LONG f# 1 f# #-LONG; \
    HDEL bighash f# f#; HPEXPIRE bighash 1000# FIELDS 2 f# f#; HLEN bighash; HMGET bighash f# f#; \
    HPTTL bighash FIELDS 1 f#; SADD bigset #-LONG #-LONG #; SREM bigset #-LONG #; \
    SMOVE bigset $ #-LONG; ZADD bigzset # #-LONG # #-LONG; ZINCRBY bigzset # #-LONG; \
    ZREM bigzset #-LONG; ZPOPMIN bigzset; ZRANGE bigzset 0 -1; XADD bigstream * f #-LONG; \
    XADD bigstream MAXLEN ~ 20 * f #-LONG; XDEL bigstream 1-# 2-#; XTRIM bigstream MAXLEN 1#; \
    XREVRANGE bigstream + - COUNT 3; RENAME bigzset $; COPY bighash $ REPLACE; DEL bigset; \
    BF.RESERVE bigfilter 0.01 2000; BF.ADD bigfilter #";

type Guard = ShardGuard<'static, Engine, Job>;

struct World {
    templates: Vec<&'static str>,
    executor: Executor,
    connection: Connection,
    config: Arc<Config>,
    server: &'static dyn Server,
    library: &'static Library,
    now: Now,
    random: Random,
    log: Arc<KeptLog>,
    model: Terminal,
    counts: Counts,
}

#[derive(Debug, Default)]
struct Counts {
    units: usize,
    messages: usize,
    missed: usize,
    interrupted: usize,
    bare: usize,
}

impl World {
    fn new(seed: u64) -> World {
        let model = Terminal::with(usize::from(SHARDS), Protocol::Resp2);
        let hash_seed = model.engines[0].seed();
        let log = Arc::<KeptLog>::default();
        let dispatcher = Arc::<WaiterDispatcher>::default();
        let engine = |shard: u16| {
            basalt_core::base::sizes::shrink();
            let mut engine = Engine::new(16, hash_seed, u64::from(shard) + 1);
            engine.shard = shard;
            engine.effects.set_log(Arc::clone(&log) as _);
            engine
                .effects
                .interest()
                .set_listening(Audience::FILE, true);
            engine.waiters.caller = Some(Arc::clone(&dispatcher) as _);
            engine
        };
        let shards = Arc::<Shards>::new(Shards::new((0..SHARDS).map(engine).collect()));
        dispatcher.reach(&shards);
        let address = String::from("127.0.0.1:1");
        let shared = Shared::new(1, address.clone(), address, 8, false, model.now_ms);
        World {
            templates: TEMPLATES.split("; ").collect(),
            executor: Executor {
                shards: Box::leak(Box::new(shards)),
                offload: Box::leak(Box::new(OffloadPool::default())),
                router: Router::new(hash_seed, SHARDS),
            },
            connection: Connection::new(Arc::new(shared), true),
            config: Arc::clone(&model.config),
            server: Box::leak(testing::no_server()),
            library: Box::leak(Box::new(Library::default())),
            now: Now {
                unix_ms: model.now_ms,
            },
            random: Random::new(seed),
            log,
            model,
            counts: Counts::default(),
        }
    }

    fn draw(&mut self, below: u64) -> u64 {
        self.random.below(below)
    }

    fn line(&mut self) -> String {
        let drawn = self.random.below(self.templates.len() as u64);
        let template = self.templates[drawn as usize].replace("MANY", MANY);
        template
            .split(' ')
            .map(|word| match word {
                "$" => format!("key{}", self.draw(KEYS)),
                word => word
                    .replace('#', &self.draw(9).to_string())
                    .replace("LONG", LONG),
            })
            .collect::<Vec<_>>()
            .join(" ")
    }

    /// Returns random shards, each with a probability of `1 / one_in`.
    fn some_shards(&mut self, one_in: u64) -> Vec<u16> {
        (0..SHARDS).filter(|_| self.draw(one_in) == 0).collect()
    }

    fn transaction(&self, lines: &[String]) -> Transaction {
        let mut transaction = Transaction::default();
        for line in lines {
            with_args(line, self.executor.router, |command, args| {
                transaction.push(command, args);
            });
        }
        transaction
    }

    /// Runs a unit directly, as a session does, repeatedly until it is done.
    fn at_once(&mut self, transaction: &Transaction, mut plan: UnitPlan) -> Vec<u8> {
        let shards = self.executor.shards;
        for round in 0.. {
            assert!(round < 50, "the unit gets done");
            let others: Vec<u16> = match plan.is_irrevocable {
                true => Vec::new(),
                false => self
                    .some_shards(4)
                    .into_iter()
                    .filter(|shard| !plan.shards.contains(shard))
                    .collect(),
            };
            let is_interrupted = !plan.is_irrevocable && self.draw(5) == 0;
            let held_by_others: Vec<_> = others
                .iter()
                .filter_map(|&shard| shards.try_take(shard))
                .collect();
            let mut guard = shards
                .try_take_all(&plan.shards)
                .expect("the others have others");
            let mut held = guard.tokens();
            let mut out = Out::new(Protocol::Resp2);
            let done = self.run(transaction, &mut held, &mut plan, is_interrupted, &mut out);
            drop(guard);
            drop(held_by_others);
            if done {
                return testing::wire(&out);
            }
        }
        unreachable!("it got done")
    }

    fn run(
        &mut self,
        transaction: &Transaction,
        held: &mut HeldShards<'_>,
        plan: &mut UnitPlan,
        is_interrupted: bool,
        out: &mut Out,
    ) -> bool {
        let router = self.executor.router;
        let mut unit = match plan.is_irrevocable {
            true => ExecutionUnit::offloaded(held, router, plan, &self.library.running),
            false => ExecutionUnit::inline(held, router),
        };
        // Stop the unit's clock, so that only the seed determines the outcome, not the speed of the thread.
        unit.let_no_time_pass();
        if is_interrupted {
            unit.stop_after(self.random.below(4));
        }
        let mut unit_connection = self.connection.clone();
        let cx = UnitContext {
            connection: &mut unit_connection,
            server: self.server,
            scripts: self.library,
            config: &self.config,
            config_override: None,
            now: self.now,
            shard_count: SHARDS,
            permit: None,
        };
        let reruns_before = plan.reruns;
        let done = transaction.run(unit, cx, out, plan);
        self.connection.stamp = self.connection.stamp.max(unit_connection.stamp);
        self.counts.missed += usize::from(plan.reruns > reruns_before);
        self.counts.interrupted += usize::from(done.is_none() && is_interrupted);
        self.counts.bare += usize::from(done.is_some() && plan.is_irrevocable);
        if !plan.is_irrevocable {
            // The simulation has no other threads to offload to.
            plan.is_offloaded = false;
        }
        done.is_some()
    }

    /// Runs a unit once with the shards of its plan; returns whether the unit is done, and its reply.
    fn once(&mut self, transaction: &Transaction, plan: &mut UnitPlan) -> (bool, Vec<u8>) {
        let shards = self.executor.shards;
        let mut guard = shards.try_take_all(&plan.shards).expect("free");
        let mut out = Out::new(Protocol::Resp2);
        let done = self.run(transaction, &mut guard.tokens(), plan, false, &mut out);
        (done, testing::wire(&out))
    }

    /// Locks random shards, as if other threads had locked them.
    fn hold_some(&mut self) -> Vec<Guard> {
        let (shards, wanted) = (self.executor.shards, self.some_shards(2));
        let guards = wanted.iter().filter_map(|&shard| shards.try_take(shard));
        guards.collect()
    }

    /// Releases the shards locked by `World::hold_some`, one after the other.
    fn let_go(&mut self, mut held: Vec<Guard>) {
        while !held.is_empty() {
            let at = self.draw(held.len() as u64) as usize;
            drop(held.swap_remove(at));
        }
    }

    /// Sends a unit as a message while random shards are locked.
    fn by_message(&mut self, transaction: Transaction, plan: UnitPlan) -> Vec<u8> {
        let held = self.hold_some();
        let ticket = self.send_unit(transaction, plan);
        self.let_go(held);
        let job = self.end_of(&ticket, "a unit has its reply");
        let stamp = &mut self.connection.stamp;
        *stamp = unit_of(&job).connection.stamp.max(*stamp);
        testing::wire(&unit_of(&job).out)
    }

    /// Returns the model's reply to these commands in a transaction.
    fn expected(&mut self, lines: &[String]) -> String {
        let mut expected = format!("*{}\r\n", lines.len()).into_bytes();
        for line in lines {
            let words: Vec<&str> = line.split(' ').collect();
            expected.extend(self.model.reply_bytes(&words));
        }
        expected.escape_ascii().to_string()
    }

    fn play(&mut self, units: usize) {
        for _ in 0..units {
            let count = self.draw(6) + 1;
            let lines: Vec<String> = (0..count).map(|_| self.line()).collect();
            let transaction = self.transaction(&lines);
            let mut plan = UnitPlan::with(self.some_shards(3));
            let is_message = !plan.shards.is_empty() && self.draw(3) == 0;
            plan.is_offloaded = false;
            let mine = match is_message {
                true => self.by_message(transaction, plan),
                false => self.at_once(&transaction, plan),
            };
            self.counts.units += 1;
            self.counts.messages += usize::from(is_message);
            let expected = self.expected(&lines);
            assert_eq!(
                mine.escape_ascii().to_string(),
                expected,
                "unit {}: {lines:#?}",
                self.counts.units
            );
        }
        self.compare_data();
    }

    fn compare_data(&mut self) {
        let transaction = self.transaction(&["DEBUG DIGEST".to_owned()]);
        let mine = self.at_once(&transaction, UnitPlan::with(0..SHARDS));
        let theirs = self.model.reply_bytes(&["DEBUG", "DIGEST"]);
        assert_eq!(mine[4..], theirs, "the data");
        self.check_log();
    }

    /// Checks that replaying the log gives the same data, and that each unit is logged once, and contiguously.
    fn check_log(&mut self) {
        let mut copy = Terminal::with(1, Protocol::Resp2);
        let mut several = 0;
        for appended in self.log.take() {
            assert_eq!(appended.is_atomic, appended.commands.len() > 1);
            several += usize::from(appended.is_atomic);
            for (db, request) in appended.commands {
                copy.connection.db = db;
                let reply = copy.reply_bytes(&request);
                assert!(!reply.starts_with(b"-"), "{}", reply.escape_ascii());
            }
        }
        assert!(several > 100, "{several}");
        let mine = state(&mut copy);
        assert_eq!(mine, state(&mut self.model), "what was logged");
    }
}

/// Calls `run` with a request whose keys are routed.
fn with_args(line: &str, router: Router, run: impl FnOnce(&'static Command, &Args<'_>)) {
    testing::with_request(line, |at, name| router.routed(at, name), run);
}

/// Returns a number from an environment variable.
fn told(name: &str) -> Option<u64> {
    std::env::var(name).ok()?.parse().ok()
}

/// Units per seed, if the environment sets the total.
const UNITS_A_SEED: usize = 20_000;

#[test]
fn units_that_are_undone_and_run_again_are_as_if_they_ran_once() {
    let (seeds, units) = match told("BASALT_SIMULATION_STEPS") {
        Some(steps) => (steps.div_ceil(UNITS_A_SEED as u64), UNITS_A_SEED),
        None => (3, 1_000),
    };
    let first = told("BASALT_SIMULATION_SEED").unwrap_or(0);
    let mut all = Counts::default();
    for seed in first..first + seeds {
        let mut world = World::new(seed);
        world.counts = all;
        world.play(units);
        all = world.counts;
    }
    assert!(
        all.messages > 500 && all.missed > 500 && all.interrupted > 300 && all.bare > 20,
        "everything happened: {all:?}"
    );
    eprintln!("{seeds} seeds from {first}: {all:?}");
}

#[test]
fn a_unit_that_misses_a_shard_says_which() {
    let mut world = World::new(1);
    let transaction = world.transaction(&["SET key1 1".to_owned(), "SET key2 2".to_owned()]);
    let (one, two) = (
        world.executor.router.route(b"key1").1,
        world.executor.router.route(b"key2").1,
    );
    assert_ne!(one, two, "on different shards");
    let shards = world.executor.shards;
    let mut plan = UnitPlan::default();
    let held = shards.try_take(two).expect("free");
    assert_eq!(world.once(&transaction, &mut plan), (false, vec![]));
    drop(held);
    let mut both = [one, two];
    both.sort_unstable();
    assert_eq!((&plan.shards[..], plan.reruns), (&both[..], 1));
    let mut held = shards.try_take(one).expect("let go");
    let key = basalt_engine::Key::new(b"key1", held.seed());
    assert!(
        held.keyspace(0, world.now).find_write(&key).is_none(),
        "undone"
    );
}

#[test]
fn only_what_cannot_be_undone_before_a_script_makes_a_unit_take_all_shards() {
    let world = World::new(1);
    let script = "EVAL return(1) 1 key1";
    let own = world.executor.router.route(b"key1").1;
    for (lines, is_irrevocable) in [
        (&[script][..], false),
        (&["PING", "SELECT 1", script, "PUBLISH c m"], false),
        (
            &[script, "CLIENT SETNAME me", "CONFIG SET maxclients 9"],
            false,
        ),
        (
            &["CLIENT SETNAME me", "HELLO 3", "CLIENT NO-TOUCH ON", script],
            false,
        ),
        (&["CONFIG SET maxclients 9", script], true),
        (&[script, "SUBSCRIBE c", script], true),
    ] {
        let lines: Vec<String> = lines.iter().map(|line| (*line).to_owned()).collect();
        let plan = world.transaction(&lines).plan(SHARDS);
        assert_eq!(plan.is_irrevocable, is_irrevocable, "{lines:?}");
        if !is_irrevocable {
            assert_eq!(plan.shards[..], [own], "{lines:?}");
        }
    }
}

#[test]
fn what_a_connection_says_of_itself_is_undone_with_the_unit() {
    let mut world = World::new(1);
    let lines = [
        "CLIENT SETNAME me",
        "CLIENT SETINFO lib-name mine",
        "CLIENT NO-EVICT ON",
        "CLIENT NO-TOUCH ON",
        "SET key1 1",
    ];
    let transaction = world.transaction(&lines.map(str::to_owned));
    let shards = world.executor.shards;
    let shared = Arc::clone(&world.connection.shared);
    shared.set_labels(|labels| labels.name = b"before".to_vec());
    let said = || {
        let labels = shared.labels();
        let switches = (shared.no_evict.load(Relaxed), shared.no_touch.load(Relaxed));
        (labels.name, labels.lib_name, switches)
    };
    let held = shards.try_take(world.executor.router.route(b"key1").1);
    let mut plan = UnitPlan::default();
    let (done, _) = world.once(&transaction, &mut plan);
    assert!(!done, "somebody has the shard");
    assert_eq!(said(), (b"before".to_vec(), vec![], (false, false)));
    drop(held);
    let (done, _) = world.once(&transaction, &mut plan);
    assert!(done, "nobody has it any more");
    assert_eq!(said(), (b"me".to_vec(), b"mine".to_vec(), (true, true)));
}

impl World {
    /// Returns the log records of a transaction or a single script.
    fn logged(&mut self, lines: &[&str]) -> String {
        self.log.take();
        let lines: Vec<String> = lines.iter().map(|line| (*line).to_owned()).collect();
        let transaction = match &lines[..] {
            [line] if line.starts_with("EVAL") => {
                let mut lone = None;
                with_args(line, self.executor.router, |command, args| {
                    lone = Some(Transaction::lone(command, args));
                });
                lone.expect("a script")
            }
            lines => self.transaction(lines),
        };
        let reply = self.at_once(&transaction, UnitPlan::default());
        assert!(!reply.starts_with(b"-"), "{}", reply.escape_ascii());
        self.log.texts().join(", ")
    }
}

#[test]
fn a_unit_leaves_its_records_together_and_in_order() {
    let mut world = World::new(5);
    for (lines, wanted) in [
        (&["SET key1 1"][..], "SET key1 1"),
        (
            &["SET key1 1", "GET key1", "SET key2 2"],
            "[SET key1 1 | SET key2 2]",
        ),
        (&["GET key1", "DEL none"], ""),
        (
            &["SELECT 3", "SET key1 1 EX 100", "SELECT 0", "INCR key2"],
            "[3> SET key1 1 PXAT 1700000100000 | INCR key2]",
        ),
        (
            &[
                "SET key1 1",
                "EVAL redis.call('incrbyfloat',KEYS[1],'0.5') 1 key1",
                "SET key2 2",
            ],
            "[SET key1 1 | SET key1 1.5 KEEPTTL | SET key2 2]",
        ),
    ] {
        assert_eq!(world.logged(lines), wanted, "{lines:?}");
    }
}

#[test]
fn a_script_leaves_what_it_did_to_whom_it_says() {
    let mut world = World::new(6);
    let cases = [
        ("EVAL redis.call('get',KEYS[1]) 1 key1", ""),
        ("EVAL redis.call('set',KEYS[1],'1') 1 key1", "set key1 1"),
        (
            "EVAL redis.call('set',KEYS[1],'1');redis.call('set','key9','2') 1 key1",
            "[set key1 1 | set key9 2]",
        ),
        (
            "EVAL redis.call('select',4);redis.call('set',KEYS[1],'1') 1 key1",
            "4> set key1 1",
        ),
        (
            "EVAL redis.set_repl(redis.REPL_NONE);redis.call('set',KEYS[1],'1') 1 key1",
            "",
        ),
        (
            "EVAL redis.set_repl(redis.REPL_AOF);redis.call('set',KEYS[1],'1');\
             redis.set_repl(redis.REPL_ALL);redis.call('incr',KEYS[1]);\
             redis.set_repl(redis.REPL_REPLICA);redis.call('incr',KEYS[1]) 1 key1",
            "[set key1 1 to 1 | incr key1 | incr key1 to 2]",
        ),
        ("EVAL redis.call('incr',KEYS[1]) 1 key1", "incr key1"),
    ];
    for (script, wanted) in cases.iter().cycle().take(20 * cases.len()) {
        assert_eq!(world.logged(&[script]), *wanted, "{script}");
    }
    assert!(
        world.counts.missed + world.counts.interrupted > 0,
        "some ran twice"
    );
}

#[test]
fn messages_of_a_unit_go_to_replicas_in_their_places() {
    let mut world = World::new(7);
    let lines = &["SET key1 1", "PUBLISH c m", "SET key2 2", "SPUBLISH s m"][..];
    let (first, last) = ("SET key1 1", "SET key2 2");
    assert_eq!(world.logged(lines), format!("[{first} | {last}]"));
    world
        .server
        .pubsub()
        .interest()
        .set_listening(Audience::REPLICAS, true);
    assert_eq!(
        world.logged(lines),
        format!("[{first} | PUBLISH c m to 2 | {last} | SPUBLISH s m to 2]")
    );
}
