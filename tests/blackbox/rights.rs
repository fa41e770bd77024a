//! Rights to read, to write and to use databases, for commands that Redis lacks or checks in another way.
//! `tests/differential/rights.rs` tries all commands at random.

use crate::acl::{signed_in, start};
use crate::support::check;

const NO_KEY: &str = "(error) NOPERM No permissions to access a key";

#[test]
fn sketches_are_read_by_readers_and_written_by_writers() {
    let server = start();
    let mut admin = server.raw();
    let made = [
        "BF.ADD bf a",
        "CF.ADD cf a",
        "CMS.INITBYDIM cms 50 3",
        "CMS.INITBYDIM wcms 50 3",
        "TOPK.RESERVE topk 3",
        "TDIGEST.CREATE td",
        "TDIGEST.ADD td 1 2",
        "JSON.SET js $ [1]",
        "ACL SETUSER reader on nopass +@all %R~*",
        "ACL SETUSER writer on nopass +@all %W~*",
    ];
    for line in made {
        assert!(!admin.call(line).is_error(), "{line}");
    }
    let (mut reader, mut writer) = (signed_in(&server, "reader"), signed_in(&server, "writer"));
    // Writes whose replies reveal nothing of the value are for writers, the others for users who may do both.
    for (line, writes_only) in [
        ("BF.RESERVE bfn 0.01 100", true),
        ("BF.ADD bf b", false),
        ("BF.MADD bf b c", false),
        ("BF.INSERT bf ITEMS d", false),
        ("CF.RESERVE cfn 100", true),
        ("CF.ADD cf b", true),
        ("CF.ADDNX cf b", false),
        ("CF.INSERT cf ITEMS b", true),
        ("CF.DEL cf a", false),
        ("CMS.INITBYDIM cmsn 50 3", true),
        ("CMS.INCRBY cms a 1", false),
        ("CMS.MERGE wcms 1 cms", false),
        ("TOPK.RESERVE topkn 3", true),
        ("TOPK.ADD topk a", false),
        ("TOPK.INCRBY topk a 1", false),
        ("TDIGEST.CREATE tdn", true),
        ("TDIGEST.ADD td 3", true),
        ("TDIGEST.MERGE td 1 td", false),
        ("TDIGEST.RESET td", true),
        ("JSON.SET js $[0] 2", true),
        ("JSON.MSET js $[0] 3", true),
        ("JSON.DEL js $[1]", true),
        ("JSON.NUMINCRBY js $[0] 3", false),
        ("JSON.ARRPOP js", false),
    ] {
        check(&mut reader, line, NO_KEY);
        let told = writer.call(line).show();
        assert_eq!(told != NO_KEY, writes_only, "{line}: {told}");
        assert!(
            !told.starts_with("(error)") || !writes_only,
            "{line}: {told}"
        );
    }
    for line in [
        "BF.EXISTS bf a",
        "BF.CARD bf",
        "BF.INFO bf",
        "BF.SCANDUMP bf 0",
        "CF.COUNT cf a",
        "CF.SCANDUMP cf 0",
        "CMS.QUERY cms a",
        "CMS.INFO cms",
        "TOPK.LIST topk",
        "TOPK.QUERY topk a",
        "TDIGEST.QUANTILE td 0.5",
        "TDIGEST.MIN td",
        "JSON.GET js",
        "JSON.TYPE js $[0]",
        "JSON.DEBUG MEMORY js",
        "DEBUG DIGEST-VALUE bf",
    ] {
        check(&mut writer, line, NO_KEY);
        let told = reader.call(line);
        assert!(!told.is_error(), "{line}: {}", told.show());
    }
}

#[test]
fn what_compares_a_value_with_a_word_reads_it() {
    let server = start();
    let mut admin = server.raw();
    check(&mut admin, "ACL SETUSER writer on nopass +@all %W~*", "OK");
    check(&mut admin, "ACL SETUSER both on nopass +@all %RW~*", "OK");
    check(&mut admin, "SET k secret", "OK");
    let digest = admin.call("DIGEST k").text();
    let (mut writer, mut both) = (signed_in(&server, "writer"), signed_in(&server, "both"));
    for word in ["IFEQ", "IFNE", "IFDEQ", "IFDNE"] {
        let operand = match word.contains('D') {
            true => &digest,
            false => "secret",
        };
        for line in [
            format!("SET k secret {word} {operand}"),
            format!("SET k secret PX 100000 {} {operand}", word.to_lowercase()),
            format!("DELEX k {word} {operand}"),
        ] {
            check(&mut writer, &line, NO_KEY);
            let told = both.call(&line);
            assert!(!told.is_error(), "{line}: {}", told.show());
        }
        check(&mut admin, "SET k secret", "OK");
    }
    check(&mut writer, "DELIFEQ k secret", NO_KEY);
    check(&mut writer, "SET k secret GET", NO_KEY);
    check(&mut writer, "SET k secret XX EX 100", "OK");
    check(&mut writer, "DELEX k", "(integer) 1");
}

#[test]
fn commands_that_name_no_key_need_the_database_that_they_go_over() {
    const DENIED: &str = "(error) NOPERM No permissions to access database";
    let server = start();
    let mut admin = server.raw();
    check(&mut admin, "SET k v TAGS 1 t", "OK");
    check(
        &mut admin,
        "ACL SETUSER dora on nopass +@all ~* &* db=1",
        "OK",
    );
    let mut dora = signed_in(&server, "dora");
    for line in [
        "TAG INVALIDATE t",
        "TAG KEYS t 0",
        "TAG COUNT t",
        "KEYS *",
        "SCAN 0",
        "RANDOMKEY",
        "DBSIZE",
        "FLUSHDB",
        // These name keys of all databases.
        "MEMORY BIGKEYS",
        "HOTKEYS TOP",
        "FLUSHALL",
    ] {
        check(&mut dora, line, DENIED);
    }
    // A channel is in no database.
    check(&mut dora, "SPUBLISH c m", "(integer) 0");
    check(&mut dora, "SELECT 1", "OK");
    check(&mut dora, "TAG INVALIDATE t", "(integer) 0");
    check(&mut dora, "TAG COUNT t", "(integer) 0");
    check(&mut dora, "HOTKEYS TOP", DENIED);
    check(&mut admin, "GET k", "\"v\"");
}
