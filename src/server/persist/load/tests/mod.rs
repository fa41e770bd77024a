//! Loads snapshots and append-only files into shards, with several numbers of shards and threads. Checks that
//! all data is there afterwards, that errors are reported with their offset, and that no input causes a panic.

mod aof;
mod newer;
mod packed;

use std::collections::BTreeMap;
use std::sync::Arc;

use super::aof::{AofError, AofLoaded};
use super::progress::Progress;
use super::*;
use crate::persist::rdb::check;
use crate::persist::rdb::encode::{self, RdbEncodeOptions};
use crate::persist::rdb::opcode;
use crate::telemetry::Telemetry;
use basalt_commands::command::testing::NoServer;
use basalt_commands::command::testing::payloads;
use basalt_commands::config::Config;
use basalt_commands::config::values::LoadErrors;
use basalt_core::base::checksum;
use basalt_core::base::random::Random;
use basalt_core::structures::ziplist::maker::ziplist;
use basalt_core::structures::zipmap::maker::zipmap;
use basalt_engine::serial::Form;
use basalt_engine::serial::writer::Writer;
use basalt_engine::value::hash::HashRef;

const FAR_MS: u64 = 4_000_000_000_000;

pub(super) fn service(shards: usize) -> &'static Service {
    service_with(Config::default(), shards)
}

/// Returns a server that only counts commands that fail during loading (`propagation-error-behavior ignore`).
pub(super) fn lenient_service(shards: usize) -> &'static Service {
    let config = Config {
        aof_load_errors: LoadErrors::Continue,
        ..Config::default()
    };
    service_with(config, shards)
}

fn service_with(config: Config, shards: usize) -> &'static Service {
    let service = crate::start::build(Arc::new(config), shards, Telemetry::new(None, 2));
    let server = Arc::new(NoServer::default());
    assert!(service.server.set(server).is_ok(), "it is set once");
    Box::leak(Box::new(service))
}

/// Every key with its value, serialized without loss, and its deadline.
type State = BTreeMap<(usize, Vec<u8>), (Vec<u8>, Option<u64>)>;

/// Calls the closure with every entry of every shard.
fn each_entry(
    service: &Service,
    mut visit: impl FnMut(
        usize,
        basalt_core::structures::entry::EntryRef<'_, basalt_engine::value::Object>,
    ),
) {
    for shard in 0..service.shards.len() as u16 {
        let mut engine = service.shards.try_take(shard).expect("nobody has it");
        for db in 0..engine.database_count() {
            // Expired keys are included.
            let mut keyspace = engine.keyspace(db, Now { unix_ms: 0 }).untouched();
            let mut position = 0;
            loop {
                position = keyspace.scan_once(position, 1000, |entry| visit(db, entry));
                if position == 0 {
                    break;
                }
            }
        }
    }
}

fn state(service: &Service) -> State {
    let mut state = State::new();
    each_entry(service, |db, entry| {
        let mut writer = Writer::new(Form::Whole, false);
        basalt_engine::serial::write(entry, 0, &mut writer);
        let mut value = writer.bytes().to_vec();
        // Sort the bytes: large sets and hashes are serialized in the order of their hash tables, which differs
        // between servers.
        if matches!(value.first(), Some(2 | 4 | 24)) {
            value.sort_unstable();
        }
        let before = state.insert((db, entry.key().to_vec()), (value, entry.deadline()));
        assert!(before.is_none(), "each key once");
    });
    state
}

fn options(version: u16) -> RdbEncodeOptions {
    RdbEncodeOptions {
        version,
        compress: true,
        checksum: true,
    }
}

fn ended(mut file: Vec<u8>) -> Vec<u8> {
    let crc = checksum::update(checksum::crc64(&file), encode::END);
    encode::end(&mut file, Some(crc));
    file
}

/// Returns all data of a server as a snapshot.
fn saved(service: &Service, version: u16) -> Vec<u8> {
    let options = options(version);
    let mut file = Vec::new();
    encode::header(&mut file, &options, &encode::own_fields(0, 0, false));
    let mut last = usize::MAX;
    each_entry(service, |db, entry| {
        if db != last {
            last = db;
            encode::select_db(&mut file, db);
            encode::resize_db(&mut file, 1, 0);
        }
        encode::entry(&mut file, entry, None, 0, &options);
    });
    ended(file)
}

/// Returns a snapshot of raw values, one key each. Each value consists of the bytes before the type, and the
/// type with the value's bytes.
pub(super) fn made(values: &[(&[u8], &[u8])], version: u16) -> Vec<u8> {
    let mut file = format!("REDIS{version:04}").into_bytes();
    for (number, (front, value)) in values.iter().enumerate() {
        file.extend_from_slice(front);
        file.push(value[0]);
        let key = format!("key{number}");
        file.push(key.len() as u8);
        file.extend_from_slice(key.as_bytes());
        file.extend_from_slice(&value[1..]);
    }
    ended(file)
}

const KEEP: Rules = Rules {
    due: Due::Loaded,
    replaces: false,
};

pub(super) fn load_with(
    service: &'static Service,
    file: &[u8],
    rules: Rules,
    threads: usize,
) -> Result<Loaded, LoadError> {
    let go_on = || false;
    let mut progress = Progress::begin(service, file.len() as u64, &go_on);
    let loader = Loader::new(service).with_threads(threads);
    loader.rdb(&mut &file[..], Vec::new(), rules, &mut progress)
}

fn load(service: &'static Service, file: &[u8]) -> Result<Loaded, LoadError> {
    load_with(service, file, KEEP, 1)
}

pub(super) fn replay(
    service: &'static Service,
    file: &[u8],
    threads: usize,
) -> Result<AofLoaded, AofError> {
    let go_on = || false;
    let mut progress = Progress::begin(service, file.len() as u64, &go_on);
    let loader = Loader::new(service).with_threads(threads);
    loader.aof(&mut &file[..], &mut progress)
}

/// Encodes a line as a command of an append-only file.
pub(super) fn command(line: &str) -> Vec<u8> {
    let words: Vec<&str> = line.split(' ').collect();
    let mut bytes = format!("*{}\r\n", words.len()).into_bytes();
    for word in words {
        bytes.extend_from_slice(format!("${}\r\n{word}\r\n", word.len()).as_bytes());
    }
    bytes
}

fn commands(lines: &[&str]) -> Vec<u8> {
    lines.iter().flat_map(|line| command(line)).collect()
}

/// Returns the values dumped by redis-server 7.0.15, of all its types and encodings.
fn recorded_values() -> Vec<Vec<u8>> {
    let values = payloads::all().map(|one| one.payload[..one.payload.len() - 10].to_vec());
    values.collect()
}

fn string(text: &[u8]) -> Vec<u8> {
    let mut writer = Writer::new(Form::Oldest, false);
    writer.string(text);
    writer.bytes().to_vec()
}

/// Returns values in forms of old servers, and of servers after 7.0.
fn other_values() -> Vec<Vec<u8>> {
    let strings = |head: &[u8], texts: &[&[u8]]| {
        let mut value = head.to_vec();
        texts.iter().for_each(|text| value.extend(string(text)));
        value
    };
    let pairs: &[&[u8]] = &[b"f1", b"v1", b"f2", b"v2"];
    let deadline = FAR_MS.to_le_bytes();
    let mut with_deadlines = [&[24][..], &deadline, &[2, 1]].concat();
    with_deadlines.extend([string(b"f1"), string(b"v1"), vec![0]].concat());
    with_deadlines.extend([string(b"f2"), string(b"v2")].concat());
    vec![
        strings(&[1, 3], &[b"a", b"12", b"c"]),
        strings(&[2, 2], &[b"a", b"b"]),
        [&[3, 2, 1, b'a', 3][..], b"1.5", &[1, b'b', 254]].concat(),
        strings(&[4, 2], pairs),
        strings(&[9], &[&zipmap(&[(b"f1", b"v1"), (b"f2", b"v2")], 0)]),
        strings(&[10], &[&ziplist(&[b"a", b"12"], true)]),
        strings(&[12], &[&ziplist(&[b"a", b"1", b"b", b"2"], true)]),
        strings(&[13], &[&ziplist(pairs, true)]),
        strings(
            &[14, 2],
            &[&ziplist(&[b"a"], true), &ziplist(&[b"b", b"7"], true)],
        ),
        with_deadlines,
    ]
}

#[test]
fn every_type_in_every_form_is_loaded_and_saved_again_in_every_version() {
    let values = [recorded_values(), other_values()].concat();
    let parts: Vec<(&[u8], &[u8])> = values.iter().map(|value| (&[][..], &value[..])).collect();
    let first = service(4);
    let loaded = load(first, &made(&parts, 9)).expect("all forms are known");
    assert_eq!(loaded.keys, values.len() as u64);
    // Types of values that only this server has.
    let more = [
        "BF.RESERVE bloom 0.01 20",
        "BF.MADD bloom a b c",
        "CF.RESERVE cuckoo 64",
        "CF.ADD cuckoo a",
        "CMS.INITBYDIM counts 20 3",
        "TOPK.RESERVE top 3 8 3 0.9",
        "TDIGEST.CREATE digest",
        "TDIGEST.ADD digest 1 2 3",
        "SELECT 5",
        "SET other 1 PXAT 4000000000000",
        "SADD small a b c",
        "HSET h f v",
    ];
    replay(first, &commands(&more), 1).expect("commands");
    let expected = state(first);
    for (version, shards, threads) in [(10, 1, 1), (11, 2, 2), (12, 4, 3), (80, 2, 2)] {
        let file = saved(first, version);
        let second = service(shards);
        let loaded = load_with(second, &file, KEEP, threads).expect("our own");
        assert_eq!(loaded.version, version);
        assert_eq!(loaded.keys, expected.len() as u64);
        assert_eq!(loaded.fields["redis-ver"], "7.4.0");
        let found = state(second);
        // RDB version 10 does not record when stream consumers were last active.
        let is_kept = |value: &[u8]| version > 10 || value[0] != 21;
        for (key, (value, deadline)) in &expected {
            let (there, at_ms) = &found[key];
            assert!(
                !is_kept(value) || there == value,
                "{key:?} in version {version}"
            );
            assert_eq!(at_ms, deadline);
        }
    }
}

#[test]
fn opcodes_are_known_and_what_is_due_is_left_out_or_not() {
    let due = [&[opcode::DEADLINE_S][..], &1_000_i32.to_le_bytes()].concat();
    let later = [&[opcode::DEADLINE_MS][..], &FAR_MS.to_le_bytes()].concat();
    let value: &[u8] = &[0, 1, b'v'];
    let module = [
        &[opcode::MODULE_AUX, 7, 2, 1][..],
        &[5, 1, b'x', 4],
        &[0; 8],
        &[0],
    ]
    .concat();
    let slot = [opcode::SLOT_INFO, 1, 2, 3];
    let idle = [&[opcode::IDLE, 9][..], &slot].concat();
    let parts: &[(&[u8], &[u8])] = &[
        (&due, value),
        (&later, value),
        (&[opcode::FREQUENCY, 200, opcode::SELECT_DB, 3], value),
        (&idle, value),
        (&module, value),
        (
            &[opcode::AUX, 1, b'x', 1, b'y', opcode::RESIZE_DB, 4, 1],
            value,
        ),
    ];
    let file = made(parts, 12);
    for (due, keys, expired) in [(Due::LeftOut, 5, 1), (Due::Loaded, 6, 0), (Due::Told, 6, 1)] {
        let rules = Rules { due, ..KEEP };
        let service = service(2);
        let loaded = load_with(service, &file, rules, 2).expect("all opcodes are known");
        assert_eq!((loaded.keys, loaded.expired), (keys, expired));
        let state = state(service);
        assert_eq!(state[&(0, b"key1".to_vec())].1, Some(FAR_MS));
        assert_eq!(state[&(3, b"key5".to_vec())].1, None);
        assert_eq!(state.contains_key(&(0, b"key0".to_vec())), keys == 6);
        let figures = &service.telemetry.persistence.loading;
        assert_eq!(figures.loaded_bytes.load(Relaxed), file.len() as u64);
        assert!(!figures.is_loading.load(Relaxed));
    }
}

#[test]
fn room_is_made_for_no_more_keys_than_a_file_can_have() {
    let used = |keys: u64| {
        let mut front = Vec::new();
        encode::resize_db(&mut front, keys, 0);
        let service = service(2);
        let file = made(&[(&front, &[0, 1, b'v'])], 12);
        assert_eq!(load(service, &file).expect("it is whole").keys, 1);
        let of_shards = service.all_published.iter();
        of_shards.map(|one| one.used_bytes()).sum::<i64>()
    };
    let honest = used(1);
    for lie in [1_000_000_000, u64::from(u32::MAX), u64::MAX] {
        assert!(used(lie) <= honest + 4096, "{} and {honest}", used(lie));
    }
}

#[test]
fn what_is_wrong_is_said_with_its_place() {
    let value: &[u8] = &[0, 1, b'v'];
    let good = made(&[(&[], value)], 10);
    let fault = |file: &[u8]| load(service(2), file).expect_err("broken");
    let twice = {
        let record: &[u8] = &[0, 1, b'k', 1, b'v'];
        ended([b"REDIS0010", record, record].concat())
    };
    let error = fault(&twice);
    assert!(matches!(error.fault, Fault::Twice { .. }), "{error}");
    assert_eq!(error.offset, 14);
    let rules = Rules {
        replaces: true,
        ..KEEP
    };
    assert!(load_with(service(2), &twice, rules, 1).is_ok());
    let mut bad = good.clone();
    let last = bad.len() - 1;
    bad[last] ^= 1;
    assert!(matches!(fault(&bad).fault, Fault::Checksum { .. }));
    bad[last - 7..].fill(0);
    assert!(load(service(2), &bad).is_ok(), "saved without a checksum");
    assert!(matches!(fault(b"VALKEY079").fault, Fault::Valkey(79)));
    assert!(matches!(fault(b"VALKEY082").fault, Fault::Valkey(82)));
    assert!(matches!(fault(b"REDIS0017").fault, Fault::Version(17)));
    assert!(matches!(fault(b"REDIS0000").fault, Fault::Version(0)));
    assert!(matches!(fault(b"*3\r\n$3\r\nS").fault, Fault::Signature(_)));
    assert!(matches!(fault(b"REDIS").fault, Fault::Short));
    let select = made(&[(&[opcode::SELECT_DB, 16], value)], 10);
    assert!(matches!(fault(&select).fault, Fault::Database(16)));
    let opcode = made(&[(&[], &[99, 0])], 10);
    assert!(matches!(fault(&opcode).fault, Fault::Opcode(99)));
    let module = made(&[(&[], &[6, 0])], 10);
    let error = fault(&module).fault;
    assert!(
        matches!(&error, Fault::Foreign { key, .. } if key == b"key0"),
        "{error}"
    );
    let module = made(&[(&[], &[7, 9, 0])], 10);
    assert!(matches!(fault(&module).fault, Fault::Module { .. }));
    let function = [b"REDIS0010", &[opcode::FUNCTION, 1, b'x'][..]].concat();
    assert!(matches!(fault(&ended(function)).fault, Fault::Function(_)));
    let function = [b"REDIS0010", &[opcode::FUNCTION_PRE_GA, 1, b'x'][..]].concat();
    assert!(matches!(fault(&ended(function)).fault, Fault::Function(_)));
    // A claimed length must not allocate memory before the bytes arrive.
    for head in [
        &[
            0, 1, b'k', 0x81, 0x7f, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff,
        ][..],
        &[0, 1, b'k', 0x80, 0xff, 0xff, 0xff, 0xff],
        &[
            2, 1, b'k', 0x81, 0x7f, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff,
        ],
    ] {
        let file = [b"REDIS0010", head].concat();
        assert!(matches!(fault(&file).fault, Fault::Short));
    }
}

#[test]
fn collections_without_elements_are_passed() {
    let empty: &[&[u8]] = &[&[1, 0], &[2, 0], &[3, 0], &[4, 0], &[5, 0], &[14, 0]];
    let parts: Vec<(&[u8], &[u8])> = empty.iter().map(|value| (&[][..], *value)).collect();
    let service = service(2);
    let loaded = load(service, &made(&parts, 10)).expect("nothing is broken");
    assert_eq!((loaded.keys, loaded.empty), (0, 6));
    assert!(state(service).is_empty());
}

#[test]
fn a_library_of_functions_is_loaded_and_compressed_ones_too() {
    let code = format!(
        "#!lua name=lib\n-- {}\nredis.register_function('f', function() return 7 end)",
        "again and again ".repeat(50)
    );
    let mut file = Vec::new();
    encode::header(&mut file, &options(10), &[]);
    encode::function(&mut file, code.as_bytes(), &options(10));
    assert!(file.len() < code.len(), "it is compressed");
    let file = ended(file);
    let service = service(1);
    load(service, &file).expect("a library");
    assert_eq!(service.scripts.functions.counts(), (1, 1));
    assert!(load(service, &file).is_err(), "it is there already");
}

#[test]
fn what_stands_behind_the_end_is_handed_back() {
    let mut file = made(&[(&[], &[0, 1, b'v'])], 10);
    let bytes = file.len() as u64;
    file.extend_from_slice(b"more");
    let loaded = load(service(1), &file).expect("a snapshot");
    assert_eq!(
        (loaded.rest.as_slice(), loaded.bytes),
        (&b"more"[..], bytes)
    );
}

#[test]
fn files_of_many_stretches_are_loaded_on_any_number_of_threads() {
    let first = service(8);
    let value = "x".repeat(300);
    let lines: Vec<u8> = (0..10_000)
        .flat_map(|number| command(&format!("SET key:{number} {value}{number}")))
        .collect();
    replay(first, &lines, 1).expect("commands");
    let mut options = options(10);
    options.compress = false;
    let mut file = Vec::new();
    encode::header(&mut file, &options, &[]);
    each_entry(first, |_, entry| {
        encode::entry(&mut file, entry, None, 0, &options);
    });
    let file = ended(file);
    assert!(file.len() > 3 << 20, "several stretches");
    let expected = state(first);
    for threads in [1, 2, 5] {
        let second = service(4);
        load_with(second, &file, KEEP, threads).expect("our own");
        assert!(state(second) == expected, "{threads} threads");
        let used: i64 = second
            .all_published
            .iter()
            .map(|one| one.used_bytes())
            .sum();
        assert!(used > 3 << 20, "the shards pay for it: {used}");
        let third = service(4);
        replay(third, &lines, threads).expect("commands");
        assert!(state(third) == expected, "commands on {threads} threads");
    }
    // An error in the middle is reported, whichever thread decodes it.
    let mut broken = file.clone();
    let middle = broken.len() / 2;
    broken[middle..middle + 400].fill(0x81);
    assert!(load_with(service(4), &broken, KEEP, 3).is_err());
}

/// Returns the snapshots to be damaged: with values of all types and encodings, plain and compressed.
fn corpus() -> Vec<Vec<u8>> {
    let values = [recorded_values(), other_values()].concat();
    let later = [&[opcode::DEADLINE_MS][..], &FAR_MS.to_le_bytes()].concat();
    let mut files: Vec<Vec<u8>> = Vec::new();
    for group in values.chunks(7) {
        let parts: Vec<(&[u8], &[u8])> =
            group.iter().map(|value| (&later[..], &value[..])).collect();
        files.push(made(&parts, 11));
    }
    let first = service(1);
    load(first, &files[0]).expect("a good file");
    files.push(saved(first, 12));
    files
}

/// Checks a file as `check-rdb` does. Returns whether the file is valid, and must not panic.
fn is_good(file: &[u8]) -> bool {
    let mut told = Vec::new();
    let now = Now { unix_ms: 1 };
    let good = check::check(&mut &file[..], now, &mut told).expect("a vector takes all");
    let told = String::from_utf8_lossy(&told);
    assert_eq!(good, told.contains("RDB looks OK"), "{told}");
    assert_eq!(good, !told.contains("RDB ERROR DETECTED"), "{told}");
    good
}

#[test]
fn every_cut_of_a_snapshot_is_refused() {
    const CUTS: usize = 300;
    let mut random = Random::new(7);
    for file in corpus() {
        assert!(is_good(&file));
        for cut in 0..CUTS.min(file.len()) {
            let len = match file.len() {
                len if len <= CUTS => cut,
                len => random.next_u64() as usize % len,
            };
            // A file without its last bytes, the checksum, is invalid, too.
            assert!(!is_good(&file[..len]), "cut at {len}");
        }
    }
}

#[test]
fn flipped_bits_are_refused_or_make_other_values() {
    const FLIPS: usize = 400;
    let mut random = Random::new(11);
    let (mut good, mut bad) = (0, 0);
    for file in corpus() {
        for _ in 0..FLIPS {
            let mut broken = file.clone();
            for _ in 0..1 + random.next_u64() % 3 {
                let at = random.next_u64() as usize % broken.len();
                broken[at] ^= 1 << (random.next_u64() % 8);
            }
            assert!(
                !is_good(&broken) || broken == file,
                "the checksum covers all"
            );
            // A stored checksum of 0 disables the check, so that the values themselves are checked.
            let end = broken.len() - 8;
            broken[end..].fill(0);
            match is_good(&broken) {
                true => good += 1,
                false => bad += 1,
            }
        }
    }
    assert!(good > 0 && bad > good, "{good} good, {bad} bad");
}

#[test]
fn broken_files_that_are_loaded_leave_a_server_that_answers() {
    let mut random = Random::new(13);
    let files = corpus();
    for round in 0..60 {
        let mut broken = files[round % files.len()].clone();
        let at = random.next_u64() as usize % broken.len();
        broken[at] ^= 1 << (random.next_u64() % 8);
        let end = broken.len() - 8;
        broken[end..].fill(0);
        let service = service(2);
        let result = load_with(service, &broken, KEEP, 1 + round % 2);
        if let Ok(loaded) = result {
            assert_eq!(state(service).len() as u64, loaded.keys);
        }
        each_entry(service, |_, entry| {
            // All loaded values can be read.
            let _ = HashRef::of(entry, 0).map(|hash| hash.len());
        });
    }
}
