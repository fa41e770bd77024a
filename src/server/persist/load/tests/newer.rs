//! Snapshots with data that Redis 8 and Valkey 9 write and this server does not: encodings of values, and other
//! records.

use super::*;

/// Returns a snapshot that consists of its first nine bytes (`magic`) and these parts.
fn file_of(magic: &[u8; 9], parts: &[&[u8]]) -> Vec<u8> {
    let mut file = magic.to_vec();
    parts.iter().for_each(|part| file.extend_from_slice(part));
    ended(file)
}

/// The fields of a hash, with their values and deadlines.
type Fields = BTreeMap<Vec<u8>, (Vec<u8>, Option<u64>)>;

/// Returns the fields of all hashes, with deadlines, by key.
fn hashes(service: &Service) -> BTreeMap<Vec<u8>, Fields> {
    let mut found = BTreeMap::new();
    each_entry(service, |_, entry| {
        let mut fields = BTreeMap::new();
        HashRef::of(entry, 0).expect("a hash").for_each(|field| {
            let value = (field.value.to_vec(), field.deadline);
            fields.insert(field.name.to_vec(), value);
        });
        found.insert(entry.key().to_vec(), fields);
    });
    found
}

fn strings(bytes: &[&[u8]]) -> Vec<u8> {
    let string = |text: &&[u8]| [&[text.len() as u8], *text].concat();
    bytes.iter().flat_map(string).collect()
}

/// Returns a listpack of short elements: numbers below 128, and texts.
fn pack(elements: &[&[u8]]) -> Vec<u8> {
    let mut bytes = basalt_core::structures::listpack::EMPTY.to_vec();
    let mut pack = basalt_core::structures::listpack::ListpackMut::new(&mut bytes);
    elements.iter().for_each(|element| pack.push_back(element));
    [&[bytes.len() as u8], &bytes[..]].concat()
}

fn user(age: &str) -> BTreeMap<Vec<u8>, (Vec<u8>, Option<u64>)> {
    let field = |name: &str, value: &str| (name.into(), (value.into(), None));
    [
        field("age", age),
        field("name", "ada"),
        field("email", "a@b"),
    ]
    .into()
}

#[test]
fn hashes_of_redis_8_10_have_their_fields_from_templates() {
    let names = strings(&[b"age", b"name", b"email"]);
    let template = [&[opcode::TEMPLATE, 5, 3][..], &names].concat();
    let own_pack = [
        &[29, 1, b'a', 3][..],
        &names,
        &pack(&[b"36", b"ada", b"a@b"]),
    ]
    .concat();
    let pack_ref = [&[30, 1, b'b'][..], &pack(&[b"5", b"37", b"ada", b"a@b"])].concat();
    let pairs = strings(&[b"age", b"38", b"name", b"ada", b"email", b"a@b"]);
    let own_array = [&[31, 1, b'c', 3][..], &pairs].concat();
    let array_ref = [&[32, 1, b'd', 5][..], &strings(&[b"39", b"ada", b"a@b"])].concat();
    let parts: [&[u8]; 5] = [&template, &own_pack, &pack_ref, &own_array, &array_ref];
    let file = file_of(b"REDIS0016", &parts);
    for shards in [1, 4] {
        let service = service(shards);
        assert_eq!(load(service, &file).expect("all forms are known").keys, 4);
        let found = hashes(service);
        for (key, age) in [(b"a", "36"), (b"b", "37"), (b"c", "38"), (b"d", "39")] {
            assert_eq!(found[&key[..]], user(age));
        }
    }
    let mut report = Vec::new();
    assert!(check::check(&mut &file[..], Now::default(), &mut report).expect("a report"));

    // Errors: a reference to a missing template, a reference with another number of fields, two templates with
    // the same number.
    let error = |parts: &[&[u8]]| {
        let file = file_of(b"REDIS0016", parts);
        load(service(2), &file).expect_err("broken").fault
    };
    assert!(matches!(error(&[&pack_ref]), Fault::Value { .. }));
    assert!(matches!(error(&[&array_ref]), Fault::Form(_)));
    assert!(matches!(error(&[&template, &template]), Fault::Form(_)));
    for values in [
        &[&b"5"[..], b"1", b"2"][..],
        &[b"5", b"1", b"2", b"3", b"4"],
        &[b"x"],
    ] {
        let other = [&[30, 1, b'b'][..], &pack(values)].concat();
        assert!(matches!(error(&[&template, &other]), Fault::Value { .. }));
    }
    // A template that claims more field names than the file has must not allocate memory for them.
    let liar = [opcode::TEMPLATE, 5, 0x80, 0xff, 0xff, 0xff, 0xff];
    assert!(matches!(
        load(service(2), &[b"REDIS0016", &liar[..]].concat())
            .expect_err("short")
            .fault,
        Fault::Short
    ));
}

#[test]
fn hashes_of_valkey_9_keep_the_deadlines_of_their_fields() {
    let far = FAR_MS.to_le_bytes();
    let none = (-1_i64).to_le_bytes();
    let value = [
        &[22, 1, b'h', 2][..],
        &strings(&[b"a", b"1"]),
        &far,
        &strings(&[b"b", b"2"]),
        &none,
    ]
    .concat();
    for magic in [b"VALKEY080", b"VALKEY081"] {
        let service = service(2);
        let file = file_of(magic, &[&value]);
        assert_eq!(load(service, &file).expect("it is known").keys, 1);
        let found = &hashes(service)[&b"h"[..]];
        assert_eq!(found[&b"a"[..]], (b"1".to_vec(), Some(FAR_MS)));
        assert_eq!(found[&b"b"[..]], (b"2".to_vec(), None));
    }
    // The same type number has another meaning in a snapshot of Redis.
    assert!(load(service(2), &file_of(b"REDIS0012", &[&value])).is_err());
    let early = [&value[..value.len() - 8], &(-2_i64).to_le_bytes()].concat();
    let error = load(service(2), &file_of(b"VALKEY080", &[&early])).expect_err("before all time");
    assert!(matches!(error.fault, Fault::Value { .. }), "{error}");
}

#[test]
fn streams_of_redis_8_load_with_what_they_remember_of_producers() {
    let source = service(1);
    let stream = [15, 1, b's', 0, 0, 0, 0, 0];
    assert_eq!(
        load(source, &file_of(b"REDIS0010", &[&stream]))
            .expect("a stream of Redis 5")
            .keys,
        1
    );
    let written = |service| {
        let mut writer = Writer::new(Form::Whole, false);
        each_entry(service, |_, entry| {
            basalt_engine::serial::write(entry, 0, &mut writer);
        });
        writer.bytes().to_vec()
    };
    // Type, nodes, counters and zero groups; then for how many seconds producers' ids are remembered and how
    // many ids are kept, the producers with their ids and the entries of these ids, and the numbers of ids
    // received and of duplicates.
    let old = written(source);
    assert_eq!(old[0], 21);
    let one = [1, 1, b'p', 2, 1, b'i', 3, 4, 2, b'i', b'j', 5, 6, 9, 1];
    let more_than_asked = [1, 1, b'p', 2, 1, b'i', 3, 4, 1, b'j', 5, 6, 9, 1];
    let twice = [1, 1, b'p', 2, 1, b'i', 3, 4, 1, b'i', 5, 6, 9, 1];
    for (form, rules, producers, loads) in [
        (26, [0x40, 100, 0x40, 100], &[0, 0, 0][..], true),
        (27, [0x40, 100, 0x40, 100], &[0, 0, 0], true),
        (26, [0x40, 100, 0x40, 7], &one, true),
        (27, [0x40, 9, 0x40, 100], &one, true),
        (26, [0x40, 9, 0x40, 1], &more_than_asked, false),
        (26, [0x40, 9, 0x40, 9], &twice, false),
        (26, [0x40, 0, 0x40, 9], &one, false),
    ] {
        let rest = [&old[1..], &rules, producers].concat();
        let value = [&[form, 1, b's'][..], &rest].concat();
        let service = service(2);
        let loaded = load(service, &file_of(b"REDIS0014", &[&value]));
        if !loads {
            let error = loaded.expect_err("no stream can be so").to_string();
            assert!(error.contains("'s'"), "{error}");
            continue;
        }
        assert_eq!(loaded.expect("a stream of Redis 8").keys, 1);
        let again = written(service);
        match producers[0] {
            0 => assert_eq!(again, old),
            _ => {
                let written_rules = rules
                    .map(|byte| byte)
                    .into_iter()
                    .filter(|byte| *byte != 0x40);
                let short: Vec<u8> = written_rules
                    .flat_map(|rule| match rule {
                        0..64 => vec![rule],
                        _ => vec![0x40, rule],
                    })
                    .collect();
                assert_eq!(again[0], 26);
                assert!(
                    again.ends_with(&[&short[..], producers].concat()),
                    "{again:?}"
                );
            }
        }
    }
}

#[test]
fn values_of_unknown_modules_are_left_out_when_asked() {
    let key = |name: u8| [0, 1, name, 1, b'v'];
    // The number says name and version: nine letters of six bits, and ten bits.
    let number = (0..9).fold(0u64, |number, letter| number << 6 | letter) << 10 | 7;
    let module = [
        &[7, 3, b'm', b'o', b'd', 0x81][..],
        &number.to_be_bytes(),
        &[
            2, 5, 1, 9, 3, 0, 0, 0, 0, 4, 0, 0, 0, 0, 0, 0, 0, 0, 5, 2, b'x', b'y', 0,
        ],
    ]
    .concat();
    let deadline = [&[opcode::DEADLINE_MS][..], &[0xff; 7], &[0x7f]].concat();
    let parts: [&[u8]; 5] = [&key(b'a'), &deadline, &module, &module, &key(b'b')];
    let file = file_of(b"REDIS0012", &parts);
    let error = load(service(2), &file)
        .expect_err("it is unknown")
        .to_string();
    assert!(
        error.contains("'mod'") && error.contains("'ABCDEFGHI' (version 7)"),
        "{error}"
    );
    let skipping = service_with(
        Config {
            rdb_skip_unknown_modules: true,
            ..Config::default()
        },
        2,
    );
    let loaded = load(skipping, &file).expect("the module is left out");
    assert_eq!((loaded.keys, loaded.of_modules), (2, 2));
    let mut deadlines = Vec::new();
    each_entry(skipping, |_, entry| deadlines.push(entry.deadline()));
    assert_eq!(deadlines, [None, None], "the deadline was the module's");
    // A value without an end is an error all the same.
    let torn = file_of(b"REDIS0012", &[&module[..14], &[6]]);
    assert!(load(skipping, &torn).is_err());
}

#[test]
fn what_does_not_exist_here_is_refused_by_its_type_and_key() {
    let refused = |magic: &[u8; 9], part: &[u8]| {
        let error = load(service(2), &file_of(magic, &[part])).expect_err("foreign");
        error.to_string()
    };
    for (part, words) in [
        (&[28, 3, b'a', b'r', b'r', 0][..], "array"),
        (&[33, 3, b'a', b'r', b'r', 0], "GCRA"),
        (&[6, 3, b'a', b'r', b'r', 0], "module"),
        // The name of a module type unknown here.
        (&[7, 3, b'a', b'r', b'r', 9, 0], "module"),
    ] {
        let error = refused(b"REDIS0014", part);
        assert!(error.contains(words) && error.contains("'arr'"), "{error}");
    }
    let metadata = [opcode::KEY_METADATA, 1, 0, 0, 0, 0, 0];
    assert!(refused(b"REDIS0013", &metadata).contains("module"));
    // Slots migrating to a Valkey server: the migration's name, and ranges.
    let name = [&[40][..], &[b'7'; 40]].concat();
    let coming = |first: [u8; 2], last: [u8; 2]| {
        [&[opcode::KEY_METADATA], &name[..], &[1], &first, &last].concat()
    };
    let (one, last) = ([0x40, 1], [0x7F, 0xFF]);
    let key = [0, 1, b'k', 1, b'v'];
    let file = file_of(b"VALKEY080", &[&coming(one, last), &key]);
    assert!(load(service(2), &file).is_ok());
    assert!(refused(b"VALKEY080", &coming(last, one)).contains("slot migration"));
    // Metadata without any content has no effect.
    let empty = [&[opcode::KEY_METADATA, 0][..], &[0, 1, b'k', 1, b'v']].concat();
    let service = service(2);
    assert!(load(service, &file_of(b"REDIS0013", &[&empty])).is_ok());
}
