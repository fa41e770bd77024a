//! Locks in process: replies, memory and what remains afterwards. Waiting is tested over sockets, in
//! `tests/blackbox/waiting_locks.rs`, and histories of many owners in `tests/locks`.

use crate::command::testing::{Terminal, on_every_setup};
use basalt_core::base::random::Random;
use basalt_engine::Now;

const NOT_OWNER: &str = "(error) NOTOWNER The lock is not held by this owner";

/// Runs LOCK. Returns the fencing token and the hold count; None if another owner has the lock.
fn lock(cli: &mut Terminal, request: &str) -> Option<(u64, i64)> {
    let reply = cli.run(request);
    let number = |line: &str| line.rsplit(' ').next().and_then(|text| text.parse().ok());
    let mut lines = reply.lines();
    match reply.as_str() {
        "(nil)" => None,
        _ => {
            let fence = lines.next().and_then(number).expect("a fence");
            let holds = lines.next().and_then(number).expect("a count") as i64;
            Some((fence, holds))
        }
    }
}

#[test]
fn a_lock_is_one_owners_and_nests() {
    on_every_setup(|cli| {
        let (fence, holds) = lock(cli, "LOCK l me 1000").expect("it is free");
        assert_eq!((fence, holds), (1_700_000_000_000_000, 1));
        assert_eq!(lock(cli, "LOCK l other 1000"), None);
        assert_eq!(lock(cli, "LOCK l me 500"), Some((fence, 2)));
        assert_eq!(cli.ttl_ms("l"), 1_000, "the longer of both counts");
        assert_eq!(lock(cli, "LOCK l me 5000"), Some((fence, 3)));
        assert_eq!(cli.ttl_ms("l"), 5_000);
        cli.check_all(&[
            ("UNLOCK l other", NOT_OWNER),
            ("UNLOCK l me", "(integer) 2"),
            ("HGET l me", "\"2\""),
            ("UNLOCK l me", "(integer) 1"),
            ("UNLOCK l me", "(integer) 0"),
            ("EXISTS l", "(integer) 0"),
            ("UNLOCK l me", NOT_OWNER),
        ]);
        assert_eq!(lock(cli, "LOCK l other 1000"), Some((fence + 1, 1)));
    });
}

#[test]
fn a_lock_runs_out_and_is_extended() {
    on_every_setup(|cli| {
        let (first, _) = lock(cli, "LOCK l a 100").expect("it is free");
        cli.advance_ms(101);
        let (second, holds) = lock(cli, "LOCK l b 100").expect("its time is over");
        assert!(second > first && holds == 1);
        cli.check_all(&[
            ("UNLOCK l a", NOT_OWNER),
            ("LOCKEXTEND l a 100", NOT_OWNER),
            ("LOCKEXTEND l b 9000", "(integer) 1"),
        ]);
        assert_eq!(cli.ttl_ms("l"), 9_000);
        cli.check("LOCKEXTEND l b 10", "(integer) 1");
        assert_eq!(cli.ttl_ms("l"), 10);
        cli.check("LOCKEXTEND none b 10", NOT_OWNER);
        // If a plain command has removed the deadline, the lock stays for ever.
        cli.run("PERSIST l");
        lock(cli, "LOCK l b 10");
        assert_eq!(cli.ttl_ms("l"), -1);
    });
}

#[test]
fn who_has_a_lock_is_told() {
    on_every_setup(|cli| {
        cli.check("LOCKINFO l", "(nil)");
        lock(cli, "LOCK l me 1000");
        lock(cli, "LOCK l me 1000");
        let told = cli.run("LOCKINFO l").replace('\n', " ");
        for part in [
            "\"owner\"",
            "\"me\"",
            "\"holds\"",
            "(integer) 2",
            "(integer) 1700000000000000",
            "\"ttl\"",
            "(integer) 1000",
            "(integer) 0",
        ] {
            assert!(told.contains(part), "{part} in {told}");
        }
        cli.run("HSET l other 1");
        cli.check("LOCKINFO l", "(error) ERR The hash is not a lock");
    });
}

#[test]
fn a_lock_made_by_plain_commands_is_one_and_gets_a_fence_once_it_is_taken_again() {
    on_every_setup(|cli| {
        cli.run("HINCRBY l uuid:1 1");
        cli.run("PEXPIRE l 30000");
        assert_eq!(lock(cli, "LOCK l other 1000"), None);
        assert!(cli.run("LOCKINFO l").contains("(integer) 0"), "no fence");
        let (fence, holds) = lock(cli, "LOCK l uuid:1 1000").expect("it is theirs");
        assert_eq!(holds, 2);
        cli.check(&format!("SET k v FENCE l {fence}"), "OK");
        // Another owner replaces the first without a gap: the fencing token is not valid for it.
        cli.run("HSET l other 1");
        cli.run("HDEL l uuid:1");
        cli.check(&format!("SET k v FENCE l {fence}"), "(nil)");
        let (next, holds) = lock(cli, "LOCK l other 1000").expect("it is theirs");
        assert!(next > fence && holds == 2);
        // UNLOCK leaves fields that LOCK does not create.
        cli.run("HSET l mode read");
        cli.check_all(&[
            ("UNLOCK l other", "(integer) 1"),
            ("UNLOCK l other", "(integer) 0"),
            ("HKEYS l", "1) \"mode\""),
        ]);
    });
}

#[test]
fn a_write_goes_through_with_the_fence_of_its_lock_alone() {
    on_every_setup(|cli| {
        let (fence, _) = lock(cli, "LOCK l a 100").expect("it is free");
        cli.check_all(&[
            (&format!("SET k 1 FENCE l {fence}"), "OK"),
            (&format!("SET k 2 FENCE l {}", fence - 1), "(nil)"),
            (&format!("SET k 2 fence l {} GET", fence + 1), "\"1\""),
            (&format!("SET k 2 NX FENCE l {fence}"), "(nil)"),
            (&format!("SET k 2 XX PX 50 FENCE l {fence}"), "OK"),
            (&format!("SET k 3 FENCE none {fence}"), "(nil)"),
            ("GET k", "\"2\""),
        ]);
        assert_eq!(cli.ttl_ms("k"), 50);
        cli.advance_ms(101);
        cli.check(&format!("SET k 3 FENCE l {fence}"), "(nil)");
        let (next, _) = lock(cli, "LOCK l a 100").expect("its time is over");
        cli.check(&format!("SET k 3 FENCE l {fence}"), "(nil)");
        cli.check(&format!("SET k 3 FENCE l {next}"), "OK");
        for (line, error) in [
            ("SET k v FENCE l", "ERR syntax error"),
            ("SET k v FENCE", "ERR syntax error"),
            ("SET k v FENCE l 1 FENCE l 1", "ERR syntax error"),
            (
                "SET k v FENCE l x",
                "ERR value is not an integer or out of range",
            ),
            (
                "SET k v FENCE k 1",
                "WRONGTYPE Operation against a key holding the wrong kind of value",
            ),
        ] {
            cli.check(line, &format!("(error) {error}"));
        }
        cli.check("GET k", "\"3\"");
    });
}

#[test]
fn a_write_leaves_its_tags_only_where_its_fence_lets_it_through() {
    on_every_setup(|cli| {
        let (fence, _) = lock(cli, "LOCK l a 100").expect("it is free");
        let late = fence - 1;
        cli.check_all(&[
            (&format!("SET k 1 FENCE l {fence} TAGS 2 x y"), "OK"),
            ("TAG COUNT x", "(integer) 1"),
            (&format!("SET k 2 FENCE l {late} TAGS 1 z"), "(nil)"),
            ("TAG COUNT z", "(integer) 0"),
            ("TAG COUNT y", "(integer) 1"),
            ("GET k", "\"1\""),
            (&format!("SET k 3 TAGS 1 z FENCE l {fence} EX 50"), "OK"),
            ("TAG OF k", "1) \"z\""),
            ("TTL k", "(integer) 50"),
            (&format!("SET new 1 TAGS 1 z FENCE l {late}"), "(nil)"),
            ("EXISTS new", "(integer) 0"),
            (
                &format!("SET k 4 FENCE l {fence} TAGS 1"),
                "(error) ERR syntax error",
            ),
            (
                &format!("SET k 4 TAGS 2 x FENCE l {fence}"),
                "(error) ERR syntax error",
            ),
            // Arguments of one option are not mistaken for the other option.
            (&format!("SET k 4 FENCE l {fence} TAGS 2 FENCE TAGS"), "OK"),
            ("TAG COUNT FENCE", "(integer) 1"),
            ("TAG OF k", "1) \"FENCE\"\n2) \"TAGS\""),
        ]);
        // A request with an outdated fencing token leaves the tags of the existing value alone.
        cli.advance_ms(200);
        cli.check(&format!("SET k 5 FENCE l {fence} TAGS 1 x"), "(nil)");
        cli.check("TAG COUNT FENCE", "(integer) 1");
    });
}

#[test]
fn the_lock_of_a_write_is_among_its_keys_and_words_that_read_the_same_are_not() {
    let mut cli = Terminal::new();
    for (line, keys) in [
        ("SET k v FENCE l 1", "1) \"k\"\n2) \"l\""),
        ("SET k FENCE EX 5", "1) \"k\""),
        ("SET k v IFEQ fence GET", "1) \"k\""),
        ("SET k v IFEQ fence FENCE l 1", "1) \"k\"\n2) \"l\""),
        ("SET k v PX 5 NX fence l 1", "1) \"k\"\n2) \"l\""),
    ] {
        cli.check(&format!("COMMAND GETKEYS {line}"), keys);
    }
}

#[test]
fn mistakes_are_named_and_change_nothing() {
    on_every_setup(|cli| {
        cli.run("SET string v");
        cli.run("HSET words me none");
        cli.run(&format!("HSET most me {}", i64::MAX));
        let dirty = cli.dirty();
        let time = "ERR invalid expire time in";
        let usage = ": usage is LOCK key owner ttl-ms [WAIT wait-ms]";
        let syntax = format!("ERR syntax error{usage}");
        for (line, error) in [
            (
                "LOCK l me",
                format!("ERR wrong number of arguments for 'lock' command{usage}").as_str(),
            ),
            ("LOCK l me 1 2", &syntax),
            ("LOCK l me 1 WAIT", &syntax),
            ("LOCK l me 1 WAITS 5", &syntax),
            ("LOCK l me 1 WAIT 5 6", &syntax),
            ("LOCK l me x", "ERR value is not an integer or out of range"),
            ("LOCK l me 0", &format!("{time} 'lock' command")),
            ("LOCK l me -5", &format!("{time} 'lock' command")),
            (
                "LOCK l me 9223372036854775807",
                &format!("{time} 'lock' command"),
            ),
            ("LOCK l \"\" 5", "ERR The owner of a lock must not be empty"),
            ("LOCK l me 5 WAIT -1", "ERR timeout is negative"),
            (
                "LOCK l me 5 WAIT x",
                "ERR timeout is not an integer or out of range",
            ),
            (
                "LOCK l me 5 WAIT 9223372036854775807",
                "ERR timeout is out of range",
            ),
            ("UNLOCK l \"\"", "ERR The owner of a lock must not be empty"),
            (
                "UNLOCK l",
                "ERR wrong number of arguments for 'unlock' command",
            ),
            ("LOCKEXTEND l me 0", &format!("{time} 'lockextend' command")),
            (
                "LOCKEXTEND l \"\" 5",
                "ERR The owner of a lock must not be empty",
            ),
            ("LOCK words me 5", "ERR hash value is not an integer"),
            ("UNLOCK words me", "ERR hash value is not an integer"),
            (
                "LOCK most me 5",
                "ERR increment or decrement would overflow",
            ),
        ] {
            cli.check(line, &format!("(error) {error}"));
        }
        let wrong = "(error) WRONGTYPE Operation against a key holding the wrong kind of value";
        for line in [
            "LOCK string me 5",
            "UNLOCK string me",
            "LOCKEXTEND string me 5",
            "LOCKINFO string",
        ] {
            cli.check(line, wrong);
        }
        assert_eq!(cli.dirty(), dirty);
        cli.check("EXISTS l", "(integer) 0");
    });
}

#[test]
fn events_are_those_of_the_plain_commands() {
    on_every_setup(|cli| {
        for (line, events) in [
            ("LOCK l me 1000", "h:hset l, g:expire l"),
            ("LOCK l me 500", "h:hincrby l"),
            ("LOCK l me 2000", "h:hincrby l, g:expire l"),
            ("LOCK l other 1000", ""),
            ("LOCKEXTEND l me 5000", "g:expire l"),
            ("UNLOCK l me", "h:hincrby l"),
            ("UNLOCK l other", ""),
            ("UNLOCK l me", "h:hincrby l"),
            ("UNLOCK l me", "g:del l"),
        ] {
            cli.run(line);
            assert_eq!(cli.events(), events, "{line}");
        }
    });
}

/// A command that deletes a lock's key deletes its fencing token, and one that creates a key does not create one.
#[test]
fn a_fence_goes_with_its_key() {
    for way in [
        "DEL l",
        "UNLINK l",
        "FLUSHDB",
        "FLUSHALL",
        "SET l v",
        "RENAME l elsewhere",
        "RENAME other l",
        "MOVE l 3",
        "PEXPIRE l -1",
        "HDEL l me",
        "SWAPDB 0 5",
        "COPY other l REPLACE",
        "SUNIONSTORE l none",
    ] {
        on_every_setup(|cli| {
            cli.run("HSET other x 1");
            let (fence, _) = lock(cli, "LOCK l me 60000").expect("it is free");
            cli.run(way);
            cli.check(
                &format!("SET k v FENCE l {fence}"),
                match way {
                    "SET l v" => {
                        "(error) WRONGTYPE Operation against a key holding the wrong kind of value"
                    }
                    _ => "(nil)",
                },
            );
            cli.run("DEL l");
            let (next, _) = lock(cli, "LOCK l me 60000").expect("it is free again");
            assert!(next > fence, "{way}");
        });
    }
    on_every_setup(|cli| {
        let (fence, _) = lock(cli, "LOCK l me 60000").expect("it is free");
        cli.run("SWAPDB 0 5");
        cli.run("SWAPDB 5 0");
        cli.check(&format!("SET k v FENCE l {fence}"), "OK");
        cli.run("COPY l copied");
        cli.check(&format!("SET k v FENCE copied {fence}"), "(nil)");
    });
}

/// The count of held locks is that of the locks still in the state in which LOCK left them, whatever commands ran in
/// between.
#[test]
fn a_lock_is_not_held_any_more_once_something_else_is_written_into_its_key() {
    let held = |cli: &Terminal| -> u64 {
        let engines = cli.engines.iter();
        let dbs = engines.flat_map(|engine| &engine.published().dbs);
        dbs.map(|db| db.held_keys.get()).sum()
    };
    for (lines, is_held) in [
        ("LOCK l me 60000; LOCKEXTEND l me 90000; UNLOCK l me", true),
        ("HINCRBY l me 5", true),
        ("SWAPDB 0 1", true),
        ("MULTI; HSET l f v; LPUSH l x; EXEC", false),
        ("HSET l f v", false),
        ("HSET l f v; LOCK l me 60000", false),
        ("HSET l f v; UNLOCK l me", false),
        ("HSET l f v; HDEL l f; LOCK l me 90000", true),
        ("HSET l me v", false),
        ("HPEXPIRE l 1000 FIELDS 1 me", false),
        ("TAG ADD l tag", false),
        ("PERSIST l", false),
        ("PERSIST l; PEXPIRE l 5000", false),
        ("PERSIST l; LOCKEXTEND l me 5000", true),
        ("HSET l other 1; HDEL l me", false),
        ("HSET l other 1; HDEL l me; LOCK l other 5", true),
        ("RENAME l other", false),
        ("SET l v", false),
        ("FLUSHALL", false),
    ] {
        on_every_setup(|cli| {
            lock(cli, "LOCK l me 60000");
            assert_eq!(held(cli), 1);
            for line in lines.split("; ") {
                cli.run(line);
            }
            assert_eq!(held(cli), u64::from(is_held), "{lines}");
        });
    }
}

/// The memory of fencing tokens is charged to the shard, and freed.
#[test]
fn memory_is_charged_to_the_byte_with_locks_that_come_and_go() {
    let mut cli = Terminal::new();
    let mut random = Random::new(7);
    cli.run("SET first v");
    let used = |cli: &Terminal| cli.engines[0].used_bytes();
    let mut before = None;
    for _ in 0..3 {
        for number in 0..500 {
            lock(&mut cli, &format!("LOCK lock:{number} me 60000"));
        }
        for _ in 0..2_000 {
            let number = random.next_u64() % 500;
            match random.next_u64() % 4 {
                0 => cli.run(&format!("UNLOCK lock:{number} me")),
                1 => cli.run(&format!("DEL lock:{number}")),
                2 => cli.run(&format!("SET lock:{number} v")),
                _ => cli.run(&format!("LOCK lock:{number} me 60000")),
            };
        }
        for number in 0..500 {
            cli.run(&format!("DEL lock:{number}"));
        }
        // The memory of timer wheels is freed when the time of their items has come.
        cli.advance_ms(120_000);
        let now = Now {
            unix_ms: cli.now_ms,
        };
        while cli.engines[0].expire_slice(now) {}
        let now = used(&cli);
        // The memory that tables keep does not grow after the first round.
        assert!(
            before.is_none_or(|before: i64| now <= before),
            "{before:?}, {now}"
        );
        before = Some(now);
    }
}

/// A model of a dozen lines compared with random requests of several owners on a few locks, with a clock.
#[test]
fn random_requests_are_answered_as_by_a_model() {
    #[derive(Clone)]
    struct Held {
        owner: String,
        holds: i64,
        at_ms: u64,
        fence: u64,
    }
    for seed in 0..30 {
        let mut cli = Terminal::with(1 << (seed % 3), basalt_core::resp::reply::Protocol::Resp2);
        let mut random = Random::new(seed);
        let mut model: Vec<Option<Held>> = vec![None; 3];
        let mut last = 0;
        for step in 0..400 {
            let mut draw = |below: u64| random.next_u64() % below;
            let (number, owner) = (draw(3) as usize, format!("o{}", draw(3)));
            let ttl = draw(40) + 1;
            cli.advance_ms(draw(12));
            let now_ms = cli.now_ms;
            let held = &mut model[number];
            held.take_if(|held| held.at_ms < now_ms);
            let is_owner = held.as_ref().is_some_and(|held| held.owner == owner);
            let what = format!("seed {seed}, step {step}");
            match draw(4) {
                0 | 1 => {
                    let got = lock(&mut cli, &format!("LOCK l{number} {owner} {ttl}"));
                    match held {
                        Some(held) if is_owner => {
                            held.holds += 1;
                            held.at_ms = held.at_ms.max(now_ms + ttl);
                            assert_eq!(got, Some((held.fence, held.holds)), "{what}");
                        }
                        Some(_) => assert_eq!(got, None, "{what}"),
                        None => {
                            let (fence, holds) = got.unwrap_or_else(|| panic!("free: {what}"));
                            assert!(fence > last && holds == 1, "{what}");
                            last = fence;
                            let at_ms = now_ms + ttl;
                            *held = Some(Held {
                                owner,
                                holds,
                                at_ms,
                                fence,
                            });
                        }
                    }
                }
                2 => {
                    let expected = match held.as_mut().filter(|_| is_owner) {
                        Some(held) => {
                            held.holds -= 1;
                            format!("(integer) {}", held.holds)
                        }
                        None => NOT_OWNER.to_owned(),
                    };
                    cli.check(&format!("UNLOCK l{number} {owner}"), &expected);
                    held.take_if(|held| held.holds == 0);
                }
                _ => {
                    let expected = match held.as_mut().filter(|_| is_owner) {
                        Some(held) => {
                            held.at_ms = now_ms + ttl;
                            "(integer) 1"
                        }
                        None => NOT_OWNER,
                    };
                    cli.check(&format!("LOCKEXTEND l{number} {owner} {ttl}"), expected);
                }
            }
        }
    }
}

/// A note transfers the lock's fencing token to another server, where later ones are all larger.
#[test]
fn the_log_tells_a_fence_by_a_note_that_is_taken_over_within_bounds() {
    on_every_setup(|cli| {
        cli.start_log();
        let (fence, _) = lock(cli, "LOCK l me 60000").expect("it is free");
        let records: Vec<Vec<Vec<u8>>> = cli
            .logged()
            .into_iter()
            .flat_map(|one| one.commands)
            .map(|(_, request)| request)
            .collect();
        let note = records.last().expect("three records");
        let text = String::from_utf8_lossy(&note.join(&b' ')).into_owned();
        let beginning = format!("COMMAND INFO basalt:note FENCE {fence} l ");
        assert!(text.starts_with(&beginning), "{text}");

        let mut other = Terminal::new();
        other.start_log();
        other.now_ms = cli.now_ms;
        for record in &records {
            let reply = other.replay(record);
            assert!(!reply.starts_with("(error)"), "{reply}");
        }
        other.check(&format!("SET k v FENCE l {fence}"), "OK");
        let logged = other.logged();
        let again = logged.iter().flat_map(|one| &one.commands);
        assert!(again.into_iter().any(|(_, request)| request == note));
        let (next, _) = lock(&mut other, "LOCK m me 60000").expect("it is free");
        assert!(next > fence);

        // Tokens may be a day ahead at most, and no token is a number that a client sees as negative.
        let day = fence + 86_400_000_000;
        let words = |number: u64| format!("COMMAND INFO basalt:note FENCE {number}");
        for (number, taken) in [
            (day - 1_000_000, true),
            (day * 2, false),
            (i64::MAX as u64, false),
        ] {
            let note = words(number);
            let note: Vec<&str> = note.split(' ').collect();
            assert_eq!(
                !other.replay(&note).starts_with("(error)"),
                taken,
                "{number}"
            );
        }
        for broken in [
            "FENCE x",
            "FENCE 5 l",
            "FENCE 5 l 12",
            "FENCE -1",
            "FENCE 5 l 0123456789abcdef x",
        ] {
            let note = format!("COMMAND INFO basalt:note {broken}");
            let note: Vec<&str> = note.split(' ').collect();
            assert!(other.replay(&note).starts_with("(error)"), "{broken}");
        }
        let (last, _) = lock(&mut other, "LOCK n me 60000").expect("it is free");
        assert!(last >= day - 1_000_000 && last < day);
        // Clients cannot call FENCE, and a note that a client sends is a request of COMMAND INFO.
        other.check("FENCE 5", "(error) ERR unknown command 'FENCE'");
        other.check(&words(5), "1) (nil)\n2) (nil)\n3) (nil)");
    });
}
