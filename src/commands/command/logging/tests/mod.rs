//! Every write command on data of all types: its log records are as expected, and have the same effect in an empty
//! engine, and in redis-server 7.0, as the command had here.

mod cases;
mod oracle;

use cases::{ITSELF, NEWER_KEYS, NEWER_SEED, NOTHING, SEED, SOMETHING};

use super::MAY_LEAVE_RECORDS;
use crate::command::declaration::{Command, Flags, Run};
use crate::command::registry::registry;
use crate::command::testing::{Appended, Terminal, state};
use basalt_core::base::text::split_arguments;
use basalt_core::resp::reply::Protocol;
use basalt_engine::note;

/// Rows that log nothing themselves: the commands that scripts call are logged, which is tested where transactions
/// and scripts run (`shard::unit`), and MIGRATE's keys are deleted by a task once they have arrived on the other
/// server (`shard::migration`). LFILL needs a random token (`lease::tests`). FENCE is in the log only
/// (`lock::tests`).
const TESTED_ELSEWHERE: &[&str] = &["eval", "evalsha", "fcall", "fence", "lfill", "migrate"];

const SHARD_COUNTS: [usize; 2] = [1, 4];

/// Splits a request into arguments, and fills in payloads and times.
fn arguments(cli: &mut Terminal, line: &str) -> Vec<Vec<u8>> {
    let (mut bytes, mut ranges) = (Vec::new(), Vec::new());
    split_arguments(line.as_bytes(), &mut bytes, |range| ranges.push(range)).expect("quotes");
    let all = ranges.into_iter().map(|range| bytes[range].to_vec());
    all.map(|argument| substituted(cli, argument)).collect()
}

fn substituted(cli: &mut Terminal, argument: Vec<u8>) -> Vec<u8> {
    let Ok(text) = std::str::from_utf8(&argument) else {
        return argument;
    };
    if let Some(key) = text.strip_prefix("@dump:") {
        let reply = cli.reply_bytes(&[&b"DUMP"[..], key.as_bytes()]);
        let start = reply
            .iter()
            .position(|byte| *byte == b'\n')
            .expect("a bulk")
            + 1;
        return reply[start..reply.len() - 2].to_vec();
    }
    if let Some((command, key)) = text
        .strip_prefix("@chunk:")
        .and_then(|rest| rest.split_once(':'))
    {
        let reply = cli.reply_bytes(&[command, key, "0"]);
        // The reply is an array of the next position and the chunk.
        let ends: Vec<usize> = (0..reply.len()).filter(|at| reply[*at] == b'\n').collect();
        return reply[ends[2] + 1..reply.len() - 2].to_vec();
    }
    match text.split_once("{+") {
        Some((before, after)) => {
            let (ms, after) = after.split_once('}').expect("a brace");
            let at_ms = cli.now_ms + ms.parse::<u64>().expect("milliseconds");
            format!("{before}{at_ms}{after}").into_bytes()
        }
        None => argument,
    }
}

/// Creates a server with data of all types; the log contains the commands that created the data.
fn seeded(shard_count: usize, with_newer: bool, now_ms: u64) -> Terminal {
    let mut cli = Terminal::with(shard_count, Protocol::Resp2);
    cli.now_ms = now_ms;
    cli.start_log();
    let newer = NEWER_SEED.iter().filter(|_| with_newer);
    for line in SEED.iter().chain(newer) {
        let reply = cli.run(line);
        assert!(!reply.starts_with("(error)"), "{line}: {reply}");
    }
    cli
}

/// Whether a case concerns features that redis-server 7.0 lacks.
fn is_newer(requests: &[(&str, &str)]) -> bool {
    let mut words = requests.iter().flat_map(|(line, _)| line.split(' '));
    words.any(|word| NEWER_KEYS.iter().any(|key| word.starts_with(key)))
}

fn commands(appended: &[Appended]) -> Vec<(usize, Vec<Vec<u8>>)> {
    let all = appended.iter().flat_map(|one| one.commands.iter().cloned());
    all.collect()
}

fn shown(records: &[Vec<Vec<u8>>]) -> String {
    let show = |record: &Vec<Vec<u8>>| String::from_utf8_lossy(&record.join(&b' ')).into_owned();
    records.iter().map(show).collect::<Vec<_>>().join(" | ")
}

/// Runs logged records in an empty server.
fn replayed(records: &[(usize, Vec<Vec<u8>>)], shard_count: usize, now_ms: u64) -> Terminal {
    let mut cli = Terminal::with(shard_count, Protocol::Resp2);
    cli.now_ms = now_ms;
    for (db, request) in records {
        cli.connection.db = *db;
        let reply = cli.replay(request);
        let request = shown(std::slice::from_ref(request));
        assert!(!reply.starts_with("(error)"), "{request}: {reply}");
    }
    cli
}

#[test]
fn every_write_command_is_logged_as_wanted_and_the_log_brings_about_the_same() {
    const NOW_MS: u64 = 1_700_000_000_000;
    for shard_count in SHARD_COUNTS {
        for (name, requests) in cases::all() {
            let mut cli = seeded(shard_count, true, NOW_MS);
            let mut all = commands(&cli.logged());
            for (line, wanted) in *requests {
                let request = arguments(&mut cli, line);
                let wanted_records: Vec<Vec<Vec<u8>>> = match *wanted {
                    NOTHING | SOMETHING => Vec::new(),
                    ITSELF => vec![request.clone()],
                    text => text
                        .split(" | ")
                        .map(|one| arguments(&mut cli, one))
                        .collect(),
                };
                cli.logged();
                let reply = cli.run_args(&request);
                let appended = cli.logged();
                let records = commands(&appended);
                let texts: Vec<Vec<Vec<u8>>> =
                    records.iter().map(|(_, request)| request.clone()).collect();
                if *wanted == SOMETHING {
                    assert!(!texts.is_empty(), "{name}: {line}");
                } else {
                    let (found, wanted) = (shown(&texts), shown(&wanted_records));
                    assert_eq!(found, wanted, "{name}: {line} answered {reply}");
                }
                let is_atomic = appended.iter().any(|one| one.is_atomic);
                assert_eq!(is_atomic, texts.len() > 1, "{name}: {line}");
                assert!(appended.len() <= 1, "{name}: {line}");
                all.extend(records);
            }
            let mut copy = replayed(&all, shard_count, NOW_MS);
            assert_eq!(state(&mut copy), state(&mut cli), "{name}");
        }
    }
}

fn rows() -> Vec<&'static Command> {
    let all = registry().all().iter().copied();
    let rows: Vec<_> = all
        .filter(|row| !matches!(row.run, Run::Container(_)))
        .collect();
    assert!(rows.len() > 200);
    rows
}

/// A replica of version 7.0 does not know newer commands, so their records are older ones; except for data that 7.0
/// lacks: deadlines of fields and members, sketches and filters, and entries named by producers.
#[test]
fn commands_younger_than_7_0_are_logged_as_older_ones() {
    let is_younger = |since: &str| {
        let major = since.split('.').next().and_then(|text| text.parse().ok());
        // A command that only this server has counts as newer.
        let major: u32 = major.unwrap_or(u32::MAX);
        major > 7 || since.starts_with("7.2") || since.starts_with("7.4")
    };
    let younger: Vec<_> = rows()
        .into_iter()
        .filter(|row| is_younger(row.since))
        .collect();
    let mut themselves = Vec::new();
    for (name, requests) in cases::all() {
        const WITHOUT: [&str; 4] = ["hpersist", "spersist", "xcfgset", "xidmprecord"];
        let has_older_way = !name.contains('.') && !WITHOUT.contains(name);
        let is_found = younger.iter().any(|row| row.full_name == *name);
        if is_found && has_older_way && requests.iter().any(|(_, wanted)| *wanted == ITSELF) {
            themselves.push(*name);
        }
    }
    assert_eq!(themselves, [""; 0]);
}

#[test]
fn every_row_that_may_leave_records_has_a_case() {
    let rows = rows();
    let mut missing = Vec::new();
    for row in rows.iter().filter(|row| row.flags.any(MAY_LEAVE_RECORDS)) {
        let is_listed = cases::all().any(|(name, _)| *name == row.full_name);
        let is_elsewhere = TESTED_ELSEWHERE.contains(&row.full_name);
        if is_listed == is_elsewhere {
            missing.push(row.full_name);
        }
    }
    assert_eq!(missing, Vec::<&str>::new());
    for (name, _) in cases::all() {
        assert!(rows.iter().any(|row| row.full_name == *name), "{name}");
    }
}

/// A client could cause a note to be logged otherwise.
#[test]
fn nothing_of_the_name_that_notes_have_is_logged() {
    let head: Vec<String> = note::HEAD[..2]
        .iter()
        .map(|word| String::from_utf8_lossy(word).to_lowercase())
        .collect();
    let holders: Vec<&str> = rows()
        .iter()
        .filter(|row| row.flags.has(Flags::HOLDS_NOTES))
        .map(|row| row.full_name)
        .collect();
    assert_eq!(holders, [head.join("|")]);
    let named = registry().find(head[0].as_bytes()).expect("it is there");
    for row in [named].iter().chain(named.children()) {
        assert!(!row.flags.any(MAY_LEAVE_RECORDS), "{}", row.full_name);
    }
}

#[test]
fn rows_that_visit_shard_after_shard_change_nothing() {
    for row in rows() {
        if matches!(row.run, Run::EachShard(..) | Run::Cursor(..)) {
            assert!(!row.flags.any(MAY_LEAVE_RECORDS), "{}", row.full_name);
        }
    }
}

/// Returns the log of a dialogue as text, from one or several shards, with atomic groups in brackets.
fn log_of(cli: &mut Terminal) -> String {
    let mut text = String::new();
    for appended in cli.logged() {
        let records: Vec<Vec<Vec<u8>>> = appended
            .commands
            .into_iter()
            .map(|(_, request)| request)
            .collect();
        let shown = shown(&records);
        let separator = if text.is_empty() { "" } else { ", " };
        text += separator;
        text += &match appended.is_atomic {
            true => format!("[{shown}]"),
            false => shown,
        };
    }
    text
}

fn with_log(shard_count: usize) -> Terminal {
    let mut cli = Terminal::with(shard_count, Protocol::Resp2);
    cli.start_log();
    cli
}

#[test]
fn what_expired_goes_before_the_command_that_came_across_it() {
    for shard_count in SHARD_COUNTS {
        let mut cli = with_log(shard_count);
        cli.run("MSET a 1 b 2 c 3");
        cli.run("PEXPIRE a 10");
        cli.run("PEXPIRE b 10");
        cli.advance_ms(11);
        cli.logged();
        cli.check("APPEND a x", "(integer) 1");
        assert_eq!(log_of(&mut cli), "[DEL a | APPEND a x]");
        cli.check("DEL c b", "(integer) 1");
        assert_eq!(log_of(&mut cli), "[DEL b | DEL c b]");
        cli.run("SET d 1 PX 10");
        cli.advance_ms(11);
        cli.logged();
        cli.check("SETRANGE d 0 \"\"", "(integer) 0");
        assert_eq!(log_of(&mut cli), "DEL d", "it changed nothing itself");
        cli.check("GET d", "(nil)");
        assert_eq!(log_of(&mut cli), "");
    }
}

#[test]
fn what_expired_is_unlinked_if_the_configuration_says_so() {
    let mut cli = with_log(1);
    cli.engines[0].effects.interest().set_unlinking(true, false);
    cli.run("SET a 1 PX 10");
    cli.advance_ms(11);
    cli.logged();
    cli.check("GET a", "(nil)");
    assert_eq!(log_of(&mut cli), "UNLINK a");
    cli.configure(|config| config.lazyfree_lazy_expire = true);
    cli.configure(|config| config.lazyfree_lazy_server_del = true);
    cli.configure(|config| config.lazyfree_lazy_user_del = true);
    cli.run("MSET a 1 b 2");
    cli.run("SADD s 1");
    cli.logged();
    cli.run("EXPIRE a -1");
    cli.run("GETDEL b");
    cli.run("SPOP s 2");
    assert_eq!(log_of(&mut cli), "UNLINK a, UNLINK b, UNLINK s");
}

#[test]
fn fields_that_lapsed_are_deleted_one_by_one() {
    for count in [3, 600] {
        let mut cli = with_log(1);
        let names: Vec<String> = (0..count).map(|number| format!("f{number}")).collect();
        let pairs: Vec<String> = names.iter().map(|name| format!("{name} v")).collect();
        cli.run(&format!("HSET h {} left v", pairs.join(" ")));
        let names = names.join(" ");
        cli.run(&format!("HPEXPIRE h 10 FIELDS {count} {names}"));
        cli.run("HPEXPIRE h 20 FIELDS 1 left");
        let mut all = commands(&cli.logged());
        let now_ms = cli.now_ms;
        cli.advance_ms(11);
        cli.check("HGET h left", "\"v\"");
        let gone = commands(&cli.logged());
        assert!(
            gone.iter()
                .all(|(_, request)| request[0] == b"HDEL" && request.len() == 3)
        );
        let is_small = count == 3;
        assert_eq!(
            gone.len() == count,
            is_small,
            "a lookup deletes some of a large hash"
        );
        all.extend(gone);
        cli.advance_ms(10);
        cli.check("HGET h left", "(nil)");
        let gone = commands(&cli.logged());
        let is_deleted = gone.last().is_some_and(|(_, last)| last[0] == b"DEL");
        assert_eq!(
            is_deleted, !is_small,
            "what is left of a large one goes with the key"
        );
        all.extend(gone);
        // After a replay no expired deadline is left.
        let mut copy = replayed(&all, 1, now_ms);
        assert_eq!(state(&mut copy), "");
    }
}

#[test]
fn a_command_over_shards_is_one_record_behind_what_expired_in_any_of_them() {
    let mut cli = with_log(4);
    for number in 0..20 {
        cli.run(&format!("SET k{number} v PX 10"));
    }
    cli.advance_ms(11);
    cli.logged();
    let keys: Vec<String> = (0..20).map(|number| format!("k{number}")).collect();
    let pairs: Vec<String> = keys.iter().map(|key| format!("{key} v")).collect();
    let mset = format!("MSET {}", pairs.join(" "));
    cli.check(&mset, "OK");
    let appended = cli.logged();
    assert_eq!(appended.len(), 1);
    let records: Vec<_> = appended[0]
        .commands
        .iter()
        .map(|(_, request)| request)
        .collect();
    assert!(appended[0].is_atomic);
    assert_eq!(records.len(), 21);
    for (record, key) in records.iter().zip(&keys) {
        assert_eq!(**record, [b"DEL".to_vec(), key.clone().into_bytes()]);
    }
    assert_eq!(shown(&[records[20].clone()]), mset);
}

#[test]
fn long_arguments_are_logged_whole() {
    let value = "x".repeat(100_000);
    let mut cli = with_log(4);
    cli.run_args(&["SET", "k", &value, "EX", "100"]);
    cli.run_args(&["GETSET", "k", &value]);
    cli.run_args(&["MSET", "k", &value, "l", &value]);
    let now_ms = cli.now_ms;
    let records = commands(&cli.logged());
    assert_eq!(records.len(), 3);
    let mut copy = replayed(&records, 1, now_ms);
    assert_eq!(state(&mut copy), state(&mut cli));
}

#[test]
fn what_is_undone_leaves_nothing() {
    let mut cli = with_log(1);
    cli.run("SET a 1");
    cli.run("SET b 1 PX 10");
    cli.advance_ms(11);
    cli.logged();
    let engine = &mut cli.engines[0];
    let key = basalt_engine::Key::new(b"b", engine.seed());
    let now = basalt_engine::Now {
        unix_ms: cli.now_ms,
    };
    // The change was made outside of the transaction, so it stays.
    assert!(engine.keyspace(0, now).find_read(&key).is_none());
    engine.begin_attempt();
    let log = |cli: &Terminal| cli.engines[0].effects.records().len();
    assert_eq!(log(&cli), 1);
    cli.stop_appending(true);
    cli.run("SET a 2");
    cli.run("INCRBYFLOAT a 1.5");
    assert_eq!(log(&cli), 3);
    cli.engines[0].undo_attempt();
    assert_eq!(log(&cli), 1);
    cli.stop_appending(false);
    cli.check("GET a", "\"1\"");
    assert_eq!(log_of(&mut cli), "DEL b");
}

#[test]
fn nothing_is_recorded_while_nobody_listens() {
    let mut cli = seeded(4, true, 1_700_000_000_000);
    cli.logged();
    cli.stop_listening();
    for (_, requests) in cases::all() {
        for (line, _) in *requests {
            let request = arguments(&mut cli, line);
            cli.run_args(&request);
            let records = |engine: &basalt_engine::Engine| engine.effects.records().len();
            assert_eq!(cli.engines.iter().map(records).sum::<usize>(), 0, "{line}");
        }
    }
    assert_eq!(cli.logged(), []);
}
