//! Bit operations across shards: BITOP over many keys at once; the transcripts cover the rest.

use redis::Commands;

use crate::support;

#[test]
fn bitop_sees_keys_of_every_shard_at_one_moment() {
    support::at_each_shard_count(|server| {
        let mut client = server.client();
        let mut union = vec![0_u8; 40];
        let mut command = redis::cmd("BITOP");
        command.arg("OR").arg("bits:union");
        for index in 0..40_usize {
            let mut value = vec![0_u8; index + 1];
            value[index] = 1 << (index % 8);
            union[index] = value[index];
            let _: () = client.set(format!("bits:{index}"), &value).expect("SET");
            command.arg(format!("bits:{index}"));
        }
        let length: usize = command.query(&mut client).expect("BITOP");
        assert_eq!(length, 40);
        assert_eq!(client.get::<_, Vec<u8>>("bits:union").expect("GET"), union);
        let count: usize = redis::cmd("BITCOUNT")
            .arg("bits:union")
            .query(&mut client)
            .expect("BITCOUNT");
        assert_eq!(count, 40);
    });
}

#[test]
fn a_bitmap_counts_what_was_set() {
    support::at_each_shard_count(|server| {
        let mut raw = server.raw();
        let lines: Vec<String> = (0..2000)
            .map(|index| format!("SETBIT visits {} 1", index * 37 % 20_000))
            .collect();
        let lines: Vec<&str> = lines.iter().map(String::as_str).collect();
        for reply in raw.pipeline(&lines) {
            assert_eq!(reply.integer(), 0);
        }
        support::check(&mut raw, "BITCOUNT visits", "(integer) 2000");
        support::check(&mut raw, "BITPOS visits 1", "(integer) 0");
        support::check(&mut raw, "GETBIT visits 37", "(integer) 1");
        support::check(&mut raw, "GETBIT visits 38", "(integer) 0");
    });
}
