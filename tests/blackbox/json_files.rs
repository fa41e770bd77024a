//! Documents in the forms of RedisJSON's versions, in DUMP payloads and snapshots that were made by hand.

use std::path::Path;

use basalt_core::base::checksum::crc64;

use crate::support::{Options, Server, check, info_field, start_loaded};
use crate::wire::Raw;

/// `ReJSON-RL` without a version: nine letters of six bits, and ten bits.
const REJSON: u64 = 0x45e2_5238_df91_2c00;

/// A value of a module, with its type byte.
fn module_value(number: u64, body: &[u8]) -> Vec<u8> {
    [&[7, 0x81][..], &number.to_be_bytes(), body, &[0]].concat()
}

fn string(text: &[u8]) -> Vec<u8> {
    [&[5, text.len() as u8], text].concat()
}

/// Values in all versions, and the text of each.
fn documents() -> Vec<(Vec<u8>, &'static str)> {
    let tree = [
        &[2, 0x20, 2, 1, 2, 0x40, 0x80][..],
        &string(b"a"),
        &[2, 0x40, 0x40, 2, 2, 2, 8, 1, 7, 2, 4, 4],
        &2.5f64.to_le_bytes(),
    ]
    .concat();
    // Kinds above 0x3f take two bytes as lengths do.
    let cbor = [0xa1, 0x61, b'a', 0x82, 7, 0xd8, 64, 0x42, 1, 255];
    let text = string(br#"{"a":[7,2.5]}"#);
    vec![
        (module_value(REJSON, &tree), r#"{"a":[7,2.5]}"#),
        (
            module_value(REJSON | 2, &[&text[..], &[2, 0]].concat()),
            r#"{"a":[7,2.5]}"#,
        ),
        (module_value(REJSON | 3, &text), r#"{"a":[7,2.5]}"#),
        (
            module_value(REJSON | 4, &string(&cbor)),
            r#"{"a":[7,[1,255]]}"#,
        ),
    ]
}

fn restore(raw: &mut Raw, key: &str, value: &[u8]) -> String {
    let mut payload = [value, &10u16.to_le_bytes()].concat();
    payload.extend_from_slice(&crc64(&payload).to_le_bytes());
    let arguments: [&[u8]; 5] = [b"RESTORE", key.as_bytes(), b"0", &payload, b"REPLACE"];
    raw.command(&arguments).show()
}

#[test]
fn documents_of_all_versions_are_restored_and_dumped_in_the_one_that_all_read() {
    let server = Server::start(&Options::shards(4));
    let mut raw = server.raw();
    for (value, text) in documents() {
        assert_eq!(restore(&mut raw, "doc", &value), "OK", "{text}");
        assert_eq!(raw.command(&["JSON.GET", "doc"]).text(), text);
        let dumped = raw.command(&["DUMP", "doc"]);
        assert!(
            dumped
                .bytes()
                .starts_with(&[&[7, 0x81][..], &(REJSON | 3).to_be_bytes(), &[5]].concat()),
            "{}",
            dumped.show()
        );
        let arguments: [&[u8]; 4] = [b"RESTORE", b"copy", b"0", dumped.bytes()];
        assert_eq!(raw.command(&arguments).show(), "OK");
        assert_eq!(raw.command(&["JSON.GET", "copy"]).text(), text);
        check(&mut raw, "DEL copy", "(integer) 1");
        // Every cut, and every changed byte, is another document or an error.
        for cut in 1..value.len() - 1 {
            let reply = restore(&mut raw, "cut", &value[..cut]);
            assert!(
                reply.contains("Bad data format"),
                "{text} cut at {cut}: {reply}"
            );
        }
        for at in 1..value.len() {
            let mut changed = value.clone();
            changed[at] ^= 0x55;
            restore(&mut raw, "changed", &changed);
        }
    }
    // Four billion elements are claimed, and none is there.
    let claimed = [&[2, 0x40, 0x40, 2, 0x80][..], &[0xff; 4]].concat();
    let reply = restore(&mut raw, "claimed", &module_value(REJSON, &claimed));
    assert!(reply.contains("Bad data format"), "{reply}");
    check(&mut raw, "PING", "PONG");
}

fn save(dir: &Path, values: &[(&str, Vec<u8>)]) {
    let mut file = b"REDIS0011".to_vec();
    for (key, value) in values {
        file.push(value[0]);
        file.push(key.len() as u8);
        file.extend_from_slice(key.as_bytes());
        file.extend_from_slice(&value[1..]);
    }
    file.push(0xff);
    file.extend_from_slice(&crc64(&file).to_le_bytes());
    std::fs::write(dir.join("dump.rdb"), file).expect("a file in a temporary folder");
}

#[test]
fn a_snapshot_with_documents_and_values_of_another_module_is_loaded_without_the_others() {
    let dir = tempfile::tempdir().expect("a temporary folder");
    let mut values = vec![("text", vec![0, 1, b'v'])];
    let names = ["v0", "v2", "v3", "v4"];
    values.extend(
        names
            .into_iter()
            .zip(documents().into_iter().map(|(value, _)| value)),
    );
    // A time series: nobody knows its form here.
    let series = module_value(
        0x4c48_fd40_c1b7_8000 | 8,
        &[&string(b"x")[..], &[2, 5, 1, 9]].concat(),
    );
    values.push(("series", series));
    save(dir.path(), &values);
    let options = Options::shards(4).with("dir", &dir.path().display().to_string());
    let server = start_loaded(&options.with("rdb-skip-unknown-modules", "yes"));
    let mut raw = server.raw();
    check(&mut raw, "DBSIZE", "(integer) 5");
    for (name, (_, text)) in names.into_iter().zip(documents()) {
        assert_eq!(raw.command(&["JSON.GET", name]).text(), text, "{name}");
    }
    let skipped = info_field(
        &mut raw,
        "persistence",
        "rdb_last_load_module_values_skipped",
    );
    assert_eq!(skipped, "1");
    let log = server.log();
    assert!(
        log.contains("'series' holds a value of the module"),
        "{log}"
    );
}
