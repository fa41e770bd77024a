//! Producer ids that streams remember, across files, replicas, restores and transactions.

use crate::replicated::{follow, settle};
use crate::support::{self, Options, Server, check, outlives_files};
use crate::wire::Raw;

/// Entries of three producers in a small and in a large stream; the answers, by producer.
fn produce(raw: &mut Raw) -> Vec<(String, String)> {
    for number in 0..3_000 {
        raw.call(&format!("XADD large {}-1 f v{number}", number + 1));
    }
    check(raw, "XGROUP CREATE large g 0", "OK");
    let lines = [
        "XADD small IDMP p one * f v",
        "XADD small IDMP p two MAXLEN 1 * f v",
        "XADD small IDMPAUTO q * f v g w",
        "XADD large IDMP p one * f v",
        "XADD large IDMPAUTO r * f v",
    ];
    let ids = lines.map(|line| (line.to_owned(), raw.call(line).show()));
    raw.call("XADD ruled * f v");
    check(raw, "XCFGSET ruled IDMP-DURATION 7000 IDMP-MAXSIZE 7", "OK");
    ids.to_vec()
}

/// An entry that is sent again is not added again.
fn check_known(raw: &mut Raw, ids: &[(String, String)]) {
    let lengths = ["XLEN small", "XLEN large"];
    let before = lengths.map(|line| raw.call(line).show());
    for (line, id) in ids {
        assert_eq!(raw.call(line).show(), *id, "{line}");
    }
    assert_eq!(lengths.map(|line| raw.call(line).show()), before);
    let ruled = raw.call("XINFO STREAM ruled").show();
    assert!(
        ruled.contains("(integer) 7000") && ruled.contains("(integer) 7\n"),
        "{ruled}"
    );
}

#[test]
fn what_producers_named_outlives_every_kind_of_file() {
    let options = Options::shards(4).with("stream-idmp-duration", "86400");
    outlives_files(&options, produce, |raw, ids| check_known(raw, ids));
}

#[test]
fn replicas_know_what_producers_named() {
    let options = Options::shards(4)
        .with("repl-diskless-sync-delay", "0")
        .with("stream-idmp-duration", "86400");
    let primary = Server::start(&options);
    let replica = Server::start(&Options::shards(1));
    follow(&replica, &primary);
    let mut raw = primary.raw();
    let ids = produce(&mut raw);
    // A replica that connects later gets them from a snapshot.
    let late = Server::start(&Options::shards(2));
    follow(&late, &primary);
    settle(&[&primary, &replica, &late]);
    for follower in [&replica, &late] {
        let mut raw = follower.raw();
        check(&mut raw, "REPLICAOF NO ONE", "OK");
        check_known(&mut raw, &ids);
    }
}

#[test]
fn copies_and_restored_values_know_what_producers_named() {
    support::at_each_shard_count(|server| {
        let mut raw = server.raw();
        let id = raw.call("XADD s IDMP p one * f v").show();
        check(&mut raw, "COPY s copy", "(integer) 1");
        let payload = raw.call("DUMP s");
        let restored = raw.command(&[b"RESTORE", &b"restored"[..], b"0", payload.bytes()]);
        assert!(!restored.is_error(), "{}", restored.show());
        for key in ["s", "copy", "restored"] {
            let again = raw.call(&format!("XADD {key} IDMP p one * f v")).show();
            assert_eq!(again, id, "{key}");
            check(&mut raw, &format!("XLEN {key}"), "(integer) 1");
        }
        // Entries that a script rolls back are not remembered.
        let script = "redis.call('XADD',KEYS[1],'IDMP','p','two','*','f','v') \
                      return redis.call('XADD',KEYS[1],'IDMP','p','two','*','f','v')";
        let ours = raw
            .command(&[&b"EVAL"[..], script.as_bytes(), b"1", b"s"])
            .show();
        check(&mut raw, "XLEN s", "(integer) 2");
        assert_eq!(raw.call("XADD s IDMP p two * f v").show(), ours);
        check(&mut raw, "MULTI", "OK");
        check(&mut raw, "XADD s IDMP p three * f v", "QUEUED");
        check(&mut raw, "XADD s IDMP p three * f v", "QUEUED");
        let both = raw.call("EXEC");
        assert_eq!(both.items()[0].show(), both.items()[1].show());
        check(&mut raw, "XLEN s", "(integer) 3");
    });
}
