//! Entries of streams that are pending but gone, and lists of IDs longer than an array of fixed length.

use super::at_each_shape;
use crate::support::check;
use crate::wire::Value;

/// More IDs than any array on the stack.
const IDS: usize = 1_500;

/// XAUTOCLAIM wrote the IDs of deleted entries beyond an array of COUNT elements (31144), or of a length that
/// overflowed (35951).
#[test]
fn cve_2022_31144_and_35951_xautoclaim_counts_deleted_entries_too() {
    at_each_shape(|server| {
        let mut client = server.raw();
        for entry in 1..=200 {
            client.call(&format!("XADD s {entry}-1 f v"));
        }
        check(&mut client, "XGROUP CREATE s g 0", "OK");
        client.call("XREADGROUP GROUP g alice STREAMS s >");
        for entry in (1..=200).filter(|entry| entry % 10 != 0) {
            check(&mut client, &format!("XDEL s {entry}-1"), "(integer) 1");
        }
        for count in [
            "9223372036854775807",
            "4611686018427387904",
            "1152921504606846976",
            "0",
            "-1",
        ] {
            check(
                &mut client,
                &format!("XAUTOCLAIM s g bob 0 0-0 COUNT {count}"),
                "(error) ERR COUNT must be > 0",
            );
        }
        let (mut claimed, mut deleted, mut cursor) = (0, 0, "0-0".to_owned());
        loop {
            let reply = client.call(&format!("XAUTOCLAIM s g bob 0 {cursor} COUNT 1"));
            let [next, entries, gone] = reply.items() else {
                panic!("{}", reply.show());
            };
            claimed += entries.items().len();
            deleted += gone.items().len();
            cursor = next.text();
            if cursor == "0-0" {
                break;
            }
        }
        assert_eq!((claimed, deleted), (20, 180));
        let summary = client.call("XPENDING s g");
        assert_eq!(summary.items()[0], Value::Integer(20));
        // A count that is great but taken holds no memory for entries that are not there.
        let all = client.call("XAUTOCLAIM s g alice 0 0-0 COUNT 100000000");
        assert_eq!(all.items()[1].items().len(), 20);
    });
}

/// XACKDEL wrote more IDs than its array on the stack had room for.
#[test]
fn cve_2025_62507_commands_take_many_ids() {
    let ids: Vec<String> = (1..=IDS).map(|entry| format!("{entry}-1")).collect();
    let ids = ids.join(" ");
    at_each_shape(|server| {
        let mut client = server.raw();
        let fill = |client: &mut crate::wire::Raw| {
            client.call("DEL s");
            let lines: Vec<String> = (1..=IDS).map(|id| format!("XADD s {id}-1 f v")).collect();
            client.pipeline(&lines.iter().map(String::as_str).collect::<Vec<_>>());
            check(client, "XGROUP CREATE s g 0", "OK");
            client.call("XREADGROUP GROUP g alice STREAMS s >");
        };
        for line in [
            format!("XACKDEL s g IDS {IDS} {ids}"),
            format!("XACKDEL s g DELREF IDS {IDS} {ids}"),
            format!("XACKDEL s g ACKED IDS {IDS} {ids}"),
            format!("XDELEX s DELREF IDS {IDS} {ids}"),
        ] {
            fill(&mut client);
            let reply = client.call(&line);
            let ones = reply
                .items()
                .iter()
                .filter(|one| **one == Value::Integer(1));
            assert_eq!(ones.count(), IDS, "{line:.30}");
            check(&mut client, "XLEN s", "(integer) 0");
            assert_eq!(client.call("XPENDING s g").items()[0], Value::Integer(0));
        }
        for line in [
            format!("XCLAIM s g bob 0 {ids} JUSTID"),
            format!("XACK s g {ids}"),
            format!("XDEL s {ids}"),
        ] {
            fill(&mut client);
            assert!(!client.call(&line).is_error(), "{line:.30}");
        }
        for count in ["2147483648", "4294967297", "9223372036854775807", "-1", "0"] {
            let reply = client.call(&format!("XACKDEL s g IDS {count} 1-1"));
            assert!(reply.is_error(), "{count}: {}", reply.show());
        }
    });
}
