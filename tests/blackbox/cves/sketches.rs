//! Sketches with sizes that overflow, and chunks of filters that were changed by a client.

use super::at_each_shape;
use crate::support::{check, info_number};
use crate::wire::{Raw, Value, encode};

/// Bytes by which memory may differ for other reasons than a leak.
const SLACK_BYTES: f64 = 1_000_000.0;

/// Bytes of a header that are changed, and the memory that all of the changed filters may take one after another.
const HEADER_BYTES: usize = 120;
const PEAK_BYTES: f64 = 400_000_000.0;

/// A table of counters whose size overflows was allocated too small.
#[test]
fn cve_2024_55656_dimensions_of_sketches_do_not_overflow() {
    at_each_shape(|server| {
        let mut client = server.raw();
        let before = info_number(&mut client, "memory", "used_memory");
        for line in [
            "CMS.INITBYDIM sketch 4294967295 4294967295",
            "CMS.INITBYDIM sketch 4294967296 4294967296",
            "CMS.INITBYDIM sketch 2147483648 2",
            "CMS.INITBYDIM sketch 2305843009213693953 8",
            "CMS.INITBYDIM sketch 9223372036854775807 9223372036854775807",
            "CMS.INITBYDIM sketch 18446744073709551615 2",
            "CMS.INITBYPROB sketch 1e-300 1e-300",
            "TOPK.RESERVE sketch 4294967295 4294967295 4294967295 0.9",
            "TOPK.RESERVE sketch 1 2147483648 2147483648 0.9",
            "CF.RESERVE sketch 9223372036854775807 BUCKETSIZE 255",
            "CF.RESERVE sketch 18446744073709551615",
            "BF.RESERVE sketch 0.000000001 9223372036854775807",
            "BF.RESERVE sketch 0.01 18446744073709551615",
            "TDIGEST.CREATE sketch COMPRESSION 9223372036854775807",
        ] {
            let reply = client.call(line);
            assert!(reply.is_error(), "{line}: {}", reply.show());
        }
        check(&mut client, "EXISTS sketch", "(integer) 0");
        let held = info_number(&mut client, "memory", "used_memory") - before;
        assert!(held < SLACK_BYTES, "{held}");
    });
}

/// CF.RESERVE with arguments that do not fit each other ended the server.
#[test]
fn cve_2024_25116_arguments_of_cuckoo_filters_are_checked() {
    at_each_shape(|server| {
        let mut client = server.raw();
        for arguments in [
            "0",
            "1 BUCKETSIZE 255",
            "64 BUCKETSIZE 0",
            "64 BUCKETSIZE 256",
            "64 BUCKETSIZE 65536",
            "64 MAXITERATIONS 0",
            "64 MAXITERATIONS 65536",
            "64 EXPANSION -1",
            "64 EXPANSION 32769",
            "64 EXPANSION 65536",
            "-1",
            "9223372036854775807",
            "9223372036854775808",
        ] {
            let reply = client.call(&format!("CF.RESERVE filter {arguments}"));
            assert!(reply.is_error(), "{arguments}: {}", reply.show());
        }
        check(&mut client, "EXISTS filter", "(integer) 0");
        for arguments in ["64 EXPANSION 32768", "512 BUCKETSIZE 255 EXPANSION 0"] {
            check(&mut client, &format!("CF.RESERVE filter {arguments}"), "OK");
            for element in 0..300 {
                client.call(&format!("CF.ADD filter {element}"));
            }
            check(&mut client, "DEL filter", "(integer) 1");
        }
    });
}

/// Returns what SCANDUMP tells of a filter: the header, and the data.
fn chunks(client: &mut Raw, family: &str, key: &str) -> Vec<(i64, Vec<u8>)> {
    let (mut chunks, mut at) = (Vec::new(), 0);
    loop {
        let reply = client.call(&format!("{family}.SCANDUMP {key} {at}"));
        let [next, data] = reply.items() else {
            panic!("{}", reply.show());
        };
        at = next.integer();
        if at == 0 {
            return chunks;
        }
        chunks.push((at, data.bytes().to_vec()));
    }
}

/// Returns a request that loads a chunk.
fn load(family: &str, at: i64, data: &[u8]) -> Vec<u8> {
    let (command, at) = (format!("{family}.LOADCHUNK"), at.to_string());
    encode::<&[u8]>(&[command.as_bytes(), b"loaded", at.as_bytes(), data])
}

/// Sends requests at once, and returns their replies.
fn all(client: &mut Raw, requests: &[Vec<u8>]) -> Vec<Value> {
    client.send(&requests.concat());
    requests.iter().map(|_| client.read()).collect()
}

/// CF.LOADCHUNK believed the header's sizes, and wrote chunks beyond the filter.
#[test]
fn cve_2024_25115_chunks_of_filters_fit_their_header() {
    at_each_shape(|server| {
        let mut client = server.raw();
        check(&mut client, "CF.RESERVE cuckoo 64", "OK");
        check(&mut client, "BF.RESERVE bloom 0.01 50", "OK");
        client.call("CF.INSERT cuckoo ITEMS a b c");
        client.call("BF.MADD bloom a b c");
        for (family, key) in [("CF", "cuckoo"), ("BF", "bloom")] {
            let chunks = chunks(&mut client, family, key);
            let ((first, header), data) = chunks.split_first().expect("a header");
            let mut refused = 0;
            for at in 0..header.len().min(HEADER_BYTES) {
                for byte in [0, 0xff, header[at] ^ 0x80, header[at].wrapping_add(1)] {
                    let mut changed = header.clone();
                    changed[at] = byte;
                    let mut requests = vec![load(family, *first, &changed)];
                    for (at, data) in data {
                        requests.push(load(family, *at, data));
                        requests.push(load(family, *at, &data.repeat(2)));
                        requests.push(load(family, at + 1, data));
                    }
                    for command in ["ADD", "EXISTS", "DEL"] {
                        requests.push(encode(&[&format!("{family}.{command}"), "loaded", "x"]));
                    }
                    requests.push(encode(&[&format!("{family}.SCANDUMP"), "loaded", "0"]));
                    requests.push(encode(&[&format!("{family}.INFO"), "loaded"]));
                    requests.push(encode(&["DEL", "loaded"]));
                    refused += usize::from(all(&mut client, &requests)[0].is_error());
                }
            }
            assert!(refused > 10, "{family}: {refused}");
            for at in [i64::MAX, i64::MIN, -1, 0, 2, 1 << 33] {
                let mut requests = vec![load(family, *first, header), load(family, at, b"")];
                requests.extend(data.iter().map(|(_, data)| load(family, at, data)));
                requests.push(encode(&[&format!("{family}.EXISTS"), "loaded", "a"]));
                requests.push(encode(&["DEL", "loaded"]));
                all(&mut client, &requests);
            }
            // The chunks as they were make the same filter.
            for (at, data) in &chunks {
                let reply = all(&mut client, &[load(family, *at, data)]);
                assert_eq!(reply[0].show(), "OK");
            }
            check(
                &mut client,
                &format!("{family}.EXISTS loaded a"),
                "(integer) 1",
            );
            check(&mut client, "DEL loaded", "(integer) 1");
        }
        let peak = info_number(&mut client, "memory", "used_memory_peak");
        assert!(peak < PEAK_BYTES, "{peak}");
    });
}
