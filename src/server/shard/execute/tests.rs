//! Tests of the records that a thread appends to the log while it has a shard locked, their grouping, and the
//! log positions that clients see.

use std::sync::Arc;

use super::*;
use crate::shard::permit::Permit;
use crate::shard::route::Router;
use basalt_commands::client::shared::Shared;
use basalt_commands::cluster::flags::NodeFlags;
use basalt_commands::cluster::route::{RoutingFlags, SlotOf};
use basalt_commands::cluster::testing::{OTHER, THIRD, map};
use basalt_commands::command::context::ShardPlace;
use basalt_commands::command::host::cluster::SlotMap;
use basalt_commands::command::testing::{self, KeptLog};
use basalt_commands::config::Config;
use basalt_core::base::hash::{self, HashSeed};
use basalt_core::resp::reply::Protocol;
use basalt_engine::evict::Policy;
use basalt_engine::evict::budget::Budget;
use basalt_engine::record::Audience;

const SEED: HashSeed = HashSeed { k0: 5, k1: 6 };

/// One shard with a log, and a client's context.
struct World {
    engine: Engine,
    config: Arc<Config>,
    log: Arc<KeptLog>,
    shared: Arc<Shared>,
    now: Now,
}

impl World {
    fn new() -> World {
        basalt_core::base::sizes::shrink();
        let mut engine = Engine::new(4, SEED, 7);
        let log = Arc::<KeptLog>::default();
        engine.effects.set_log(Arc::clone(&log) as _);
        engine
            .effects
            .interest()
            .set_listening(Audience::FILE, true);
        let now = Now {
            unix_ms: 1_700_000_000_000,
        };
        let address = String::from("127.0.0.1:1");
        let shared = Shared::new(1, address.clone(), address, 8, false, now.unix_ms);
        World {
            engine,
            config: Arc::default(),
            log,
            shared: Arc::new(shared),
            now,
        }
    }

    /// Runs a command; returns its client's view and the outcome.
    fn run(&mut self, line: &str) -> (ClientView, ExecutionOutcome) {
        let (client, outcome, _) = self.run_admitted(line, None);
        (client, outcome)
    }

    /// Does the same as [`World::run`] with a command that was admitted in a cluster, and also returns its
    /// reply.
    fn run_admitted(
        &mut self,
        line: &str,
        permit: Option<Permit>,
    ) -> (ClientView, ExecutionOutcome, String) {
        let context = ExecutionContext {
            now: self.now,
            config: &self.config,
            place: ShardPlace { index: 0, count: 1 },
            blocker: Some(&self.shared),
            may_offload: false,
            permit: permit.as_ref(),
        };
        let (mut client, mut outcome) = (ClientView::default(), ExecutionOutcome::Refused);
        let mut out = Out::new(Protocol::Resp2);
        let engines = Engines::One(&mut self.engine);
        let router = Router::new(SEED, 1);
        let route = |at: usize, name: &[u8]| router.routed(at, name);
        testing::with_request(line, route, |command, args| {
            outcome = run(command, engines, &mut client, context, args, &mut out);
        });
        let reply = out.as_slice().unwrap_or_default();
        let reply = String::from_utf8_lossy(reply).into_owned();
        (client, outcome, reply)
    }
}

#[test]
fn what_was_admitted_is_decided_again_if_its_slot_has_moved_or_is_on_the_move() {
    let mut world = World::new();
    world.run("SET foo 1");
    let slot = SlotOf::of(hash::slot(b"foo"));
    let mut ours = map();
    // This node owns the slot of `foo`.
    (ours.myself, ours.nodes[usize::from(THIRD)].flags) =
        (THIRD, NodeFlags::PRIMARY.or(NodeFlags::MYSELF));
    let slots: &'static SlotMap = Box::leak(Box::new(SlotMap::new(Arc::new(ours.clone()))));
    let permit = |version| {
        Some(Permit {
            map: slots,
            version,
            slot,
            routing: RoutingFlags::default(),
        })
    };
    let admitted = slots.version();
    let mut ask = |line: &str, version| world.run_admitted(line, permit(version)).2;
    assert_eq!(ask("GET foo", admitted), "$1\r\n1\r\n");
    ours.migrating.insert(hash::slot(b"foo"), OTHER);
    slots.store(Arc::new(ours.clone()));
    assert_eq!(ask("GET foo", admitted), "$1\r\n1\r\n", "the key is here");
    assert_eq!(ask("DEL foo", 0), ":1\r\n");
    let to_other = format!("{} 10.0.0.1:7001\r\n", hash::slot(b"foo"));
    assert_eq!(ask("GET foo", admitted), format!("-ASK {to_other}"));
    ours.owners[usize::from(hash::slot(b"foo"))] = OTHER;
    slots.store(Arc::new(ours));
    assert_eq!(ask("SET foo 2", admitted), format!("-MOVED {to_other}"));
    let (_, outcome, _) = world.run_admitted("SET foo 2", permit(admitted));
    assert!(matches!(outcome, ExecutionOutcome::Refused));
}

#[test]
fn who_is_served_logs_the_plain_command_behind_the_one_that_served_him() {
    let mut world = World::new();
    let (client, outcome) = world.run("BLPOP l other 0");
    assert!(matches!(outcome, ExecutionOutcome::Blocked(_)));
    assert_eq!((client.log_position, world.log.texts()), (0, vec![]));
    let (pusher, _) = world.run("RPUSH l a b");
    assert_eq!(world.log.texts(), ["RPUSH l a b", "LPOP l"]);
    assert_eq!((pusher.log_position, pusher.log_seen), (1, 2));
    let ExecutionOutcome::Blocked(waiter) = outcome else {
        unreachable!("looked at")
    };
    let served = waiter.take_reply().expect("served");
    assert_eq!((served.client.log_position, served.client.log_seen), (2, 2));
}

#[test]
fn a_reader_knows_how_far_what_it_saw_was_logged() {
    let mut world = World::new();
    let (reader, _) = world.run("GET k");
    assert_eq!((reader.log_position, reader.log_seen), (0, 0));
    let (writer, _) = world.run("SET k v");
    assert_eq!((writer.log_position, writer.log_seen), (1, 1));
    let (reader, _) = world.run("GET k");
    assert_eq!((reader.log_position, reader.log_seen), (0, 1));
    let (idle, _) = world.run("SETNX k w");
    assert_eq!((idle.log_position, idle.log_seen), (0, 1));
    assert_eq!(world.log.texts(), ["SET k v"]);
}

#[test]
fn what_expired_goes_with_the_command_that_came_across_it_unless_that_may_come_across_any_key() {
    let mut world = World::new();
    let set = |world: &mut World| {
        world.run("SET a 1 PX 10");
        world.run("SET b 1 PX 10");
        world.now.unix_ms += 11;
        world.log.texts();
    };
    set(&mut world);
    world.run("MGET a b");
    assert_eq!(world.log.texts(), ["[DEL a | DEL b]"]);
    set(&mut world);
    world.run("MSET a 2 b 2");
    assert_eq!(world.log.texts(), ["[DEL a | DEL b | MSET a 2 b 2]"]);
    set(&mut world);
    while world.engine.expire_slice(world.now) {}
    serve_waiters(&mut world.engine, world.now);
    let appended = world.log.texts();
    assert_eq!(appended.len(), 1);
    assert!(!appended[0].starts_with('[') && appended[0].matches("DEL").count() == 2);
}

#[test]
fn what_is_evicted_goes_by_itself() {
    let mut world = World::new();
    let budget = Arc::new(Budget::of(Box::new([Arc::clone(world.engine.published())])));
    world.engine.set_budget(Arc::clone(&budget));
    let value = "x".repeat(1000);
    budget.configure(64 * 1024, Policy::AllkeysRandom, false);
    let mut sets = 0;
    let mut deletions = 0;
    for number in 0..300 {
        let line = format!("SET k{number} {value}");
        world.run(&line);
        for appended in world.log.texts() {
            assert!(!appended.starts_with('['), "{appended}");
            if appended == line {
                sets += 1;
            } else {
                let all: Vec<&str> = appended.split(" | ").collect();
                assert!(all.iter().all(|one| one.starts_with("DEL k")), "{appended}");
                deletions += all.len();
            }
        }
    }
    assert!(sets > 200 && deletions > 100, "{sets} {deletions}");
    let counts = world.engine.published().counts(0);
    assert_eq!(counts.evicted, deletions as u64);
}
