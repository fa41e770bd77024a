//! Strings through the `redis` crate, as applications use them; the transcripts have the exact replies of
//! each option.

use redis::{Commands, ExistenceCheck, SetExpiry, SetOptions};

use crate::support;

#[test]
fn a_client_library_gets_back_what_it_sets() {
    support::at_each_shard_count(|server| {
        let mut client = server.client();
        let _: () = client.set("text", "value").expect("SET");
        let text: Option<String> = client.get("text").expect("GET");
        assert_eq!(text.as_deref(), Some("value"));
        let none: Option<String> = client.get("none").expect("GET");
        assert_eq!(none, None);
        let bytes: Vec<u8> = (0..=255).collect();
        let _: () = client.set("bytes", &bytes).expect("SET");
        assert_eq!(client.get::<_, Vec<u8>>("bytes").expect("GET"), bytes);
        let count: i64 = client.incr("count", 41).expect("INCRBY");
        assert_eq!(count, 41);
        assert_eq!(client.decr::<_, _, i64>("count", 1).expect("DECRBY"), 40);
        let half: f64 = client.incr("half", 0.5).expect("INCRBYFLOAT");
        assert!((half - 0.5).abs() < 1e-12);
        assert_eq!(
            client.append::<_, _, usize>("text", "!").expect("APPEND"),
            6
        );
        assert_eq!(client.strlen::<_, usize>("text").expect("STRLEN"), 6);
        assert_eq!(
            client
                .getrange::<_, String>("text", 1, 3)
                .expect("GETRANGE"),
            "alu"
        );
        assert_eq!(
            client
                .setrange::<_, _, usize>("text", 8, "x")
                .expect("SETRANGE"),
            9
        );
        assert_eq!(
            client.get::<_, Vec<u8>>("text").expect("GET"),
            b"value!\0\0x"
        );
        assert_eq!(client.get_del::<_, String>("bytes2").ok(), None);
    });
}

#[test]
fn a_lock_is_taken_once() {
    support::at_each_shard_count(|server| {
        let mut client = server.client();
        let options = SetOptions::default()
            .conditional_set(ExistenceCheck::NX)
            .with_expiration(SetExpiry::EX(100));
        let first: Option<String> = client
            .set_options("lock", "me", options.clone())
            .expect("SET NX");
        assert_eq!(first.as_deref(), Some("OK"));
        let second: Option<String> = client.set_options("lock", "you", options).expect("SET NX");
        assert_eq!(second, None);
        let left: i64 = client.ttl("lock").expect("TTL");
        assert!((90..=100).contains(&left), "{left}");
    });
}

#[test]
fn many_keys_at_once_lie_on_all_shards() {
    support::at_each_shard_count(|server| {
        let mut client = server.client();
        let pairs: Vec<(String, String)> = (0..500)
            .map(|index| (format!("many:{index}"), index.to_string()))
            .collect();
        let _: () = client.mset(&pairs).expect("MSET");
        let keys: Vec<&String> = pairs.iter().map(|(key, _)| key).collect();
        let values: Vec<String> = client.mget(&keys).expect("MGET");
        assert!(
            values
                .iter()
                .enumerate()
                .all(|(index, value)| *value == index.to_string())
        );
        let set: bool = client
            .mset_nx(&[("many:3", "x"), ("fresh", "y")])
            .expect("MSETNX");
        assert!(!set);
        assert!(!client.exists::<_, bool>("fresh").expect("EXISTS"));
        let set: bool = client
            .mset_nx(&[("fresh:1", "x"), ("fresh:2", "y")])
            .expect("MSETNX");
        assert!(set);
        assert_eq!(client.del::<_, usize>(&keys).expect("DEL"), 500);
    });
}

#[test]
fn a_pipeline_of_a_client_library_keeps_its_order() {
    support::at_each_shard_count(|server| {
        let mut client = server.client();
        let mut pipeline = redis::pipe();
        for index in 0..1000 {
            pipeline
                .cmd("SET")
                .arg(format!("pipe:{}", index % 10))
                .arg(index)
                .ignore();
            pipeline.cmd("GET").arg(format!("pipe:{}", index % 10));
        }
        let values: Vec<i64> = pipeline.query(&mut client).expect("a pipeline");
        assert_eq!(values, (0..1000).collect::<Vec<i64>>());
    });
}
