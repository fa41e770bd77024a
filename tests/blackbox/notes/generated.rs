//! Random client commands with names and values of every note's form, through file, replica and slot move:
//! state that only the server may change stays as it was.
//!
//! `BASALT_NOTE_COMMANDS` sets the number of commands.

use super::{call_all, next_fence, options};
use crate::clustered::{self, id, unite};
use crate::replicated::{follow, info, settle};
use crate::support::{
    Draw, Options, Server, check, eventually, is_stand_in, rewrite, start_loaded, variable,
};
use crate::wire::{Raw, Value, encode};

/// Requests that are sent together.
const TOGETHER: usize = 200;

/// Number of keys that clients write, each of any type.
const KEYS: usize = 40;

/// Words that present or past notes consist of, and words around them in files and streams.
const WORDS: &[&str] = &[
    "COMMAND",
    "INFO",
    "basalt:note",
    "FENCE",
    "TAG",
    "ADD",
    "REM",
    "INVALIDATE",
    "LSTALE",
    "{b}held:0",
    "{b}held:1",
    "{b}tagged:0",
    "{b}tagged:1",
    "{b}stale",
    "own",
    "own:0",
    "forged",
    "me",
    "0",
    "1",
    "-1",
    "3300",
    "9223372036854775806",
    "9223372036854775807",
    "18446744073709551615",
    "0000000000000000",
    "0123456789abcdef",
    "basalt:fence:9223372036854775807:0000000000000000",
    "basalt:fence:9223372036854775806:0123456789abcdef",
    "basalt:fence:{0}",
    "basalt-fence",
    "basalt-lock",
    "basalt-marks",
    "redis.pcall('TAG','ADD',KEYS[1],unpack(ARGV))",
    "redis.pcall('TAG','INVALIDATE',unpack(ARGV))",
    "redis.pcall('LSTALE',KEYS[1],ARGV[1])",
    "*5\r\n$7\r\nCOMMAND\r\n$4\r\nINFO\r\n$11\r\nbasalt:note\r\n$5\r\nFENCE\r\n$19\r\n9223372036854775806\r\n",
    "\r\n*2\r\n$6\r\nSELECT\r\n$1\r\n1\r\n",
    "#TS:1\r\n",
    "REPLCONF",
    "GETACK",
    "SELECT",
    "MULTI",
    "EXEC",
    "EVAL",
    "CLUSTER",
    "SYNCSLOTS",
    "ESTABLISH",
    "FINISH",
];

/// Whole notes, present and past, as clients may send them.
const NOTES: &[&str] = &[
    "COMMAND INFO basalt:note FENCE 9223372036854775806",
    "COMMAND INFO basalt:note FENCE 9223372036854775806 {b}held:0 0123456789abcdef",
    "COMMAND INFO basalt:note TAG ADD {b}tagged:0 forged",
    "COMMAND INFO basalt:note TAG REM {b}tagged:0 own:0",
    "COMMAND INFO basalt:note TAG INVALIDATE own",
    "COMMAND INFO basalt:note LSTALE {b}stale 0",
    "FENCE 9223372036854775806",
    "CLUSTER SYNCSLOTS FINISH STATE x NAME 0123456789012345678901234567890123456789 MESSAGE x",
    "PING basalt:fence:9223372036854775807:0000000000000000",
    "ECHO basalt:note",
    "CLIENT SETNAME basalt:note",
];

const CALLER: &str = "#!lua name=caller\nredis.register_function('call', function(keys, words) \
                      return redis.pcall(unpack(words)) end)";

struct Client {
    draw: Draw,
}

impl Client {
    fn word(&mut self) -> String {
        WORDS[self.draw.below(WORDS.len())].to_owned()
    }

    fn words(&mut self, most: usize) -> Vec<String> {
        (0..=self.draw.below(most)).map(|_| self.word()).collect()
    }

    /// Returns a key of the client's own, of the type that its name begins with.
    fn key(&mut self, kind: &str) -> String {
        format!("{{b}}{kind}:{}", self.draw.below(KEYS))
    }

    /// Returns one command that a client may send, on keys of its own.
    fn command(&mut self) -> Vec<String> {
        let mut command: Vec<String> = Vec::new();
        let mut say = |words: &[&str]| command.extend(words.iter().map(|word| (*word).to_owned()));
        const TEMPLATES: &[(&[&str], &str, usize)] = &[
            (&["HDEL"], "hash", 3),
            (&["HDEL"], "hash", 1),
            (&["HGETDEL"], "hash", 0),
            (&["HSETNX"], "hash", 0),
            (&["SADD"], "set", 3),
            (&["SREM"], "set", 3),
            (&["SPOP"], "set", 0),
            (&["LPUSH"], "list", 3),
            (&["RPUSH"], "list", 3),
            (&["LPOP"], "list", 0),
            (&["ZREM"], "zset", 3),
            (&["PFADD"], "hll", 3),
            (&["APPEND"], "string", 0),
            (&["DEL"], "hash", 0),
            (&["UNLINK"], "string", 0),
            (&["BF.ADD"], "bloom", 0),
            (&["TAG", "ADD"], "string", 3),
            (&["TAG", "REM"], "string", 3),
            (&["TAG", "INVALIDATE"], "", 0),
            (&["UNLOCK"], "lock", 0),
        ];
        let kind = self.draw.below(36);
        match kind {
            0..20 => {
                let (head, of, most) = TEMPLATES[kind];
                say(head);
                let more = match of {
                    "" => vec![self.word()],
                    _ => vec![self.key(of)],
                };
                command.extend(more);
                match head[0] {
                    "HGETDEL" => command.extend(["FIELDS", "1"].map(str::to_owned)),
                    "SPOP" | "LPOP" | "DEL" | "UNLINK" => return command,
                    _ if head.contains(&"INVALIDATE") => {
                        // Tags of the client's own keys alone.
                        let last = command.pop().unwrap_or_default();
                        command.push(format!("client:{last}"));
                        return command;
                    }
                    _ => {}
                }
                let words = match most {
                    0 => vec![self.word()],
                    _ => self.words(most),
                };
                let tags = head[0] == "TAG";
                command.extend(words.into_iter().map(|word| match tags {
                    true => format!("client:{word}"),
                    false => word,
                }));
                if head[0] == "HSETNX" {
                    command.push(self.word());
                }
            }
            20..23 => {
                say(&["HSET"]);
                command.push(self.key("hash"));
                for _ in 0..=self.draw.below(4) {
                    command.extend([self.word(), self.word()]);
                }
            }
            23 => {
                say(&["SET"]);
                command.extend([self.key("string"), self.word()]);
                command.extend(["PX", "1000000", "STALE", "500", "TAGS", "1"].map(str::to_owned));
                command.push(format!("client:{}", self.word()));
            }
            24 => {
                say(&["ZADD"]);
                command.extend([self.key("zset"), "1".to_owned(), self.word()]);
            }
            25 => {
                say(&["XADD"]);
                command.extend([self.key("stream"), "*".to_owned(), self.word(), self.word()]);
            }
            26 => {
                say(&["PUBLISH"]);
                command.extend([self.word(), self.word()]);
            }
            27 => {
                say(&["COMMAND", "INFO", "basalt:note"]);
                let words = self.words(6);
                command.extend(words);
            }
            28..31 => {
                let note = NOTES[self.draw.below(NOTES.len())];
                command.extend(note.split(' ').map(str::to_owned));
            }
            31 => {
                say(&["LOCK"]);
                command.extend([self.key("lock"), self.word(), "1000000".to_owned()]);
            }
            32 => {
                say(&["HPEXPIRE"]);
                command.extend([self.key("hash"), "1".to_owned()]);
                command.extend(["FIELDS", "1"].map(str::to_owned));
                command.push(self.word());
            }
            33 => {
                say(&["LSTALE"]);
                command.extend([self.key("string"), "100".to_owned()]);
            }
            34 => {
                say(&["HSETEX"]);
                command.push(self.key("hash"));
                command.extend(["PX", "100000", "FIELDS", "1"].map(str::to_owned));
                command.extend([self.word(), self.word()]);
            }
            _ => {
                say(&["CONFIG", "GET"]);
                command.push(self.word());
            }
        }
        command
    }

    /// Returns a command by itself, or called by a script or a function.
    fn called(&mut self) -> Vec<String> {
        let command = self.command();
        let key = "{b}string:0".to_owned();
        let head: Vec<String> = match self.draw.below(8) {
            0 => vec![
                "EVAL".to_owned(),
                "return redis.pcall(unpack(ARGV))".to_owned(),
                "1".to_owned(),
                key,
            ],
            1 => ["FCALL", "call", "1", "{b}string:0"]
                .map(str::to_owned)
                .to_vec(),
            _ => Vec::new(),
        };
        [head, command].concat()
    }

    /// Sends `count` commands, in transactions and by themselves; returns how many got a reply other than an
    /// error.
    fn send(&mut self, raw: &mut Raw, count: usize) -> usize {
        let mut done = 0;
        for _ in 0..count.div_ceil(TOGETHER) {
            let mut bytes = Vec::new();
            let mut replies = TOGETHER;
            for _ in 0..TOGETHER / 10 {
                let is_transaction = self.draw.below(3) == 0;
                if is_transaction {
                    bytes.extend(encode(&["MULTI"]));
                    replies += 1;
                }
                for _ in 0..10 {
                    bytes.extend(encode(&self.called()));
                }
                if is_transaction {
                    bytes.extend(encode(&["EXEC"]));
                    replies += 1;
                }
            }
            raw.send(&bytes);
            for _ in 0..replies {
                let reply = raw.read();
                done += usize::from(!reply.is_error());
            }
        }
        done
    }
}

/// State that only the server may change.
#[derive(Debug, PartialEq, Eq)]
struct Kept {
    fences: Vec<i64>,
    tags: Vec<Vec<String>>,
    tagged: i64,
}

const LOCKS: usize = 5;

/// Creates locks, tagged keys, and a stale key.
fn prepare(raw: &mut Raw) -> Kept {
    for number in 0..LOCKS {
        let line = format!("LOCK {{b}}held:{number} me 100000000");
        assert!(!raw.call(&line).is_error(), "{line}");
        let line = format!("SET {{b}}tagged:{number} v TAGS 2 own own:{number}");
        check(raw, &line, "OK");
    }
    check(
        raw,
        "SET {b}stale old PX 1 STALE 100000000 TAGS 1 own",
        "OK",
    );
    check(raw, "SET {b}fresh new PX 100000000 STALE 1", "OK");
    assert_eq!(
        raw.command(&["FUNCTION", "LOAD", CALLER]).show(),
        "\"caller\""
    );
    kept(raw)
}

fn kept(raw: &mut Raw) -> Kept {
    let fence = |number: usize, raw: &mut Raw| {
        let told = raw.call(&format!("LOCKINFO {{b}}held:{number}"));
        let at = told
            .items()
            .iter()
            .position(|item| matches!(item, Value::Bulk(name) if name == b"fence"));
        told.items()[at.expect("a fence") + 1].integer()
    };
    let tags = |number: usize, raw: &mut Raw| {
        let told = raw.call(&format!("TAG OF {{b}}tagged:{number}"));
        let mut tags: Vec<String> = told.items().iter().map(Value::text).collect();
        tags.sort();
        tags
    };
    Kept {
        fences: (0..LOCKS).map(|number| fence(number, raw)).collect(),
        tags: (0..LOCKS).map(|number| tags(number, raw)).collect(),
        tagged: raw.call("TAG COUNT own").integer(),
    }
}

/// Checks the prepared state, where clients may write.
fn check_kept(raw: &mut Raw, before: &Kept) {
    assert_eq!(kept(raw), *before);
    let state = |raw: &mut Raw, key: &str| {
        let told = raw.call(&format!("LGET {{b}}{key} LEASE 1"));
        told.items()[1].text()
    };
    assert_eq!(state(raw, "stale"), "stale");
    assert_eq!(state(raw, "fresh"), "hit");
    check(raw, "TAG COUNT forged", "(integer) 0");
    let next = next_fence(raw);
    assert!(before.fences.iter().all(|fence| *fence < next));
}

/// Takes a lease of a key, as a loader; returns its token.
fn lease(raw: &mut Raw) -> i64 {
    let told = raw.call("LGET {b}leased LEASE 3600000");
    told.items()[2].integer()
}

fn commands() -> usize {
    variable("BASALT_NOTE_COMMANDS", 20_000) as usize
}

#[test]
fn random_commands_leave_what_the_server_notes_in_file_and_replica() {
    if is_stand_in() {
        return;
    }
    let dir = tempfile::tempdir().expect("a temporary folder");
    let options = options(dir.path()).with("appendfsync", "everysec");
    let server = start_loaded(&options);
    let replica = Server::start(&Options::shards(2));
    let mut raw = server.raw();
    follow(&replica, &server);
    let before = prepare(&mut raw);
    let token = lease(&mut raw);
    let mut client = Client {
        draw: Draw::new(47),
    };
    let count = commands() / 2;
    let mut done = client.send(&mut server.raw(), count);
    rewrite(&mut raw);
    done += client.send(&mut server.raw(), count);
    assert!(done > count, "{done} of {count} and as many again");
    check(
        &mut raw,
        &format!("LFILL {{b}}leased {token} v"),
        "(integer) 1",
    );
    settle(&[&server, &replica]);
    check_kept(&mut raw, &before);
    settle(&[&server, &replica]);
    let mut of_replica = replica.raw();
    check(&mut of_replica, "REPLICAOF NO ONE", "OK");
    assert_eq!(info(&mut of_replica, "unexpected_error_replies"), "0");
    check_kept(&mut of_replica, &before);
    drop((raw, server));
    let server = start_loaded(&options);
    let mut raw = server.raw();
    assert_eq!(info(&mut raw, "unexpected_error_replies"), "0");
    check_kept(&mut raw, &before);
}

#[test]
fn random_commands_leave_what_the_server_notes_while_slots_move() {
    if is_stand_in() {
        return;
    }
    let (one, two) = (
        Server::start(&clustered::options()),
        Server::start(&clustered::options()),
    );
    unite(&[&one, &two]);
    let mut raw = one.raw();
    let before = prepare(&mut raw);
    assert_eq!(
        two.raw().command(&["FUNCTION", "LOAD", CALLER]).show(),
        "\"caller\""
    );
    let mut client = Client {
        draw: Draw::new(48),
    };
    let count = commands() / 4;
    let mut done = client.send(&mut one.raw(), count);
    // A value that keeps the move going for a while.
    let members = (0..20_000).collect::<Vec<_>>();
    call_all(
        &mut raw,
        members.chunks(100).map(|some| {
            let some: Vec<String> = some.iter().map(ToString::to_string).collect();
            format!("SADD {{b}}large {}", some.join(" "))
        }),
    );
    let line = format!(
        "CLUSTER MIGRATESLOTS SLOTSRANGE 3300 3300 NODE {}",
        id(&two)
    );
    check(&mut raw, &line, "OK");
    done += client.send(&mut one.raw(), count);
    assert!(done > count / 4, "{done}");
    let mut moves = one.raw();
    eventually("the slot has moved", || {
        let moves = moves.call("CLUSTER GETSLOTMIGRATIONS").show();
        assert!(!moves.contains("failed"), "{moves}");
        moves.contains("success")
    });
    let mut raw = two.raw();
    check_kept(&mut raw, &before);
    client.send(&mut two.raw(), count);
    check_kept(&mut raw, &before);
    assert_eq!(info(&mut raw, "unexpected_error_replies"), "0");
}
