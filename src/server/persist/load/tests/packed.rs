//! Compressed snapshots: they load as plain ones do, followed by commands too, and damaged ones are refused.

use super::*;
use crate::persist::rdb::packed::{Codec, pack};

const CODECS: [Codec; 2] = [Codec::Lz4, Codec::Zstd];

/// Returns a snapshot of every kind of value, and of enough keys for several blocks of a frame.
fn snapshot() -> Vec<u8> {
    let values: Vec<Vec<u8>> = [recorded_values(), other_values()].concat();
    let mut parts: Vec<(&[u8], &[u8])> = values.iter().map(|value| (&[][..], &value[..])).collect();
    let mut random = Random::new(7);
    let strings: Vec<Vec<u8>> = (0..6_000)
        .map(|_| {
            let text = random.next_u64().to_string().repeat(8);
            [&[0][..], &string(text.as_bytes())].concat()
        })
        .collect();
    parts.extend(strings.iter().map(|value| (&[][..], &value[..])));
    made(&parts, 12)
}

#[test]
fn compressed_snapshots_load_as_plain_ones_do() {
    let file = snapshot();
    let plain = service(2);
    let expected = load(plain, &file).expect("a snapshot");
    let state_of_plain = state(plain);
    for (codec, has_checksums) in CODECS.map(|codec| [(codec, true), (codec, false)]).concat() {
        let packed = pack(codec, has_checksums, &file).expect("packed");
        assert!(packed.len() < file.len(), "{codec:?}");
        for threads in [1, 3] {
            let other = service(4);
            let loaded = load_with(other, &packed, KEEP, threads).expect("a snapshot");
            assert_eq!(loaded.keys, expected.keys);
            assert_eq!(loaded.bytes, packed.len() as u64);
            assert!(loaded.rest.is_empty());
            assert!(state(other) == state_of_plain, "{codec:?}");
        }
        let mut report = Vec::new();
        let now = Now { unix_ms: 0 };
        let is_good = check::check(&mut &packed[..], now, &mut report).expect("written");
        assert!(is_good, "{}", String::from_utf8_lossy(&report));
    }
}

#[test]
fn commands_may_follow_the_frame() {
    let lines = commands(&["SET tail 1", "APPEND tail 2"]);
    for codec in CODECS {
        let mut file = pack(codec, true, &made(&[(&[], &[0, 1, b'v'])], 10)).expect("packed");
        let frame = file.len() as u64;
        let loaded = replay(service(1), &file, 1).expect("a base alone");
        assert_eq!((loaded.commands, loaded.bytes), (0, frame));
        file.extend_from_slice(&lines);
        let service = service(1);
        let loaded = replay(service, &file, 1).expect("a base and commands");
        assert_eq!(
            (loaded.commands, loaded.bytes),
            (2, frame + lines.len() as u64)
        );
        assert_eq!(state(service).len(), 2);
        // An unfinished command is cut where it begins in the file.
        let len = file.len() as u64;
        let error = replay(super::service(1), &[&file[..], b"*2\r\n$3"].concat(), 1);
        assert_eq!(error.expect_err("unfinished").valid, len);
    }
}

#[test]
fn damaged_and_truncated_frames_are_refused() {
    let value = [&[0, 30][..], &[b'v'; 30]].concat();
    let file = made(&[(&[], &value), (&[], &[0, 1, b'w'])], 10);
    for codec in CODECS {
        let packed = pack(codec, true, &file).expect("packed");
        let good = service(1);
        load(good, &packed).expect("a good one");
        let expected = state(good);
        for len in 0..packed.len() {
            let fault = load(service(1), &packed[..len])
                .expect_err("truncated")
                .fault;
            let is_said = match fault {
                Fault::Short => true,
                Fault::Form(_) | Fault::Signature(_) => len < 16,
                _ => false,
            };
            assert!(is_said, "{codec:?} {len}: {fault}");
        }
        for at in 0..packed.len() * 8 {
            let mut bad = packed.clone();
            bad[at / 8] ^= 1 << (at % 8);
            // Some bits do not matter: those of sizes that nothing depends on, and padding.
            let other = service(1);
            if load(other, &bad).is_ok() {
                assert!(state(other) == expected, "{codec:?} bit {at}");
            }
        }
        let trailing = pack(codec, true, &[&file[..], b"x"].concat()).expect("packed");
        assert!(
            load(service(1), &trailing).is_err(),
            "more within the frame"
        );
        for (at, byte) in [
            (3, 0),
            (3, 2),
            (4, 0),
            (4, 3),
            (5, 1),
            (6, 0),
            (6, 2),
            (6, 9),
        ] {
            let mut unknown = packed.clone();
            unknown[at] = byte;
            let fault = load(service(1), &unknown).expect_err("unknown").fault;
            assert!(matches!(fault, Fault::Form(_)), "{codec:?} {at} {byte}");
        }
    }
}

#[test]
fn values_that_are_far_longer_than_their_compressed_bytes_are_refused() {
    let zeros = vec![0; 24 << 20];
    let head = [0, 1, b'k', 0x81, 0, 0, 0, 0x10, 0, 0, 0, 0];
    let bomb = [&b"REDIS0010"[..], &head, &zeros].concat();
    let packed = pack(Codec::Zstd, false, &bomb).expect("packed");
    assert!(packed.len() < 16 << 10);
    let fault = load(service(1), &packed).expect_err("a bomb").fault;
    assert!(
        matches!(fault, Fault::Form(why) if why.contains("longer")),
        "{fault}"
    );
    // A window that needs 128 MiB is not allocated.
    let wide = [0x28, 0xb5, 0x2f, 0xfd, 0x00, 17 << 3, 1, 0, 0];
    let packed = [&b"VCS\x01\x02\x00\x01"[..], &wide].concat();
    let fault = load(service(1), &packed).expect_err("a wide window").fault;
    assert!(matches!(fault, Fault::Form(_)), "{fault}");
}
