//! Rights that commands went beyond, and rules and key positions that crashed the server.

use super::at_each_shape;
use crate::acl::signed_in;
use crate::support::{Server, check};
use crate::wire::{Raw, Value};

const NO_KEY: &str = "(error) NOPERM No permissions to access a key";

/// Counts of keys that reach beyond the arguments, or overflow when they are added to a position.
const COUNTS: [&str; 6] = [
    "2147483647",
    "4294967295",
    "4611686018427387904",
    "9223372036854775807",
    "-1",
    "0",
];

/// Returns a connection of a user who may use keys that begin with `ok`, and creates one of another name.
fn limited(server: &Server, admin: &mut Raw) -> Raw {
    for line in [
        "DEL ok1 ok2 secret",
        "ACL SETUSER u reset on nopass +@all ~ok* %R~geo ~STREAMS ~STORE",
        "SET secret v",
        "RPUSH ok 3 1 2",
        "GEOADD geo 13.4 52.5 berlin",
    ] {
        assert!(!admin.call(line).is_error(), "{line}");
    }
    signed_in(server, "u")
}

/// SORT_RO did not name the key that it sorts, so no rule was asked.
#[test]
fn cve_2023_41053_sort_ro_reads_only_what_the_user_may_read() {
    at_each_shape(|server| {
        let mut admin = server.raw();
        let mut user = limited(server, &mut admin);
        check(&mut admin, "RPUSH secrets 2 1", "(integer) 2");
        for line in [
            "SORT_RO secrets",
            "SORT_RO secrets BY nosort",
            "SORT secrets",
            "EVAL_RO \"return redis.call('SORT_RO', 'secrets')\" 0",
        ] {
            let reply = user.call(line).show();
            assert!(
                reply.contains("NOPERM") || reply.contains("ACL failure"),
                "{line}: {reply}"
            );
        }
        for line in [
            "SORT_RO ok BY w_*",
            "SORT_RO ok GET secre*",
            "SORT ok GET secre*",
        ] {
            let reply = user.call(line).show();
            assert!(reply.starts_with("(error)"), "{line}: {reply}");
        }
        check(
            &mut admin,
            "ACL DRYRUN u SORT_RO secrets",
            "\"User u has no permissions to access the \'secrets\' key\"",
        );
        check(&mut user, "SORT_RO ok", "1) \"1\"\n2) \"2\"\n3) \"3\"");
    });
}

/// The rules were asked about another key than the one that the command uses: the first of several STORE, what stands
/// behind a consumer called STREAMS. GEORADIUS takes one STORE only here.
#[test]
fn redis_15478_sort_georadius_and_xread_use_the_keys_that_rules_were_asked_about() {
    at_each_shape(|server| {
        let mut admin = server.raw();
        let mut user = limited(server, &mut admin);
        let before = admin.call("DEBUG DIGEST").show();
        for line in [
            "GEORADIUS geo 13 52 900 km STORE ok1 STORE secret",
            "GEORADIUS geo 13 52 900 km STOREDIST ok1 STOREDIST secret",
            "GEORADIUS geo 13 52 900 km STORE ok1 STOREDIST secret",
            "GEORADIUS geo 13 52 900 km STOREDIST ok1 STORE secret",
            "GEORADIUS none 13 52 900 km STORE ok1 STORE secret",
            "GEORADIUSBYMEMBER geo berlin 900 km STORE ok1 STORE secret",
            "GEORADIUSBYMEMBER geo berlin 900 km STOREDIST ok1 STOREDIST secret",
            "SORT ok STORE ok1 STORE secret",
            "SORT ok STORE BY STORE secret",
            "SORT ok STORE GET STORE secret",
            "SORT ok STORE LIMIT STORE secret",
            "SORT ok STORE STORE STORE secret",
            "XREAD STREAMS secret 0",
            "XREAD COUNT 1 BLOCK 1 STREAMS secret 0",
            "XREADGROUP GROUP g STREAMS STREAMS secret >",
            "XREADGROUP GROUP STREAMS STREAMS STREAMS secret >",
            "XREADGROUP GROUP STREAMS ok1 STREAMS secret >",
            "XREADGROUP NOACK GROUP g STREAMS STREAMS secret >",
            "XREADGROUP COUNT 1 GROUP g STREAMS STREAMS secret >",
            "XREADGROUP GROUP g ok STREAMS ok1 secret > >",
        ] {
            let refused = user.call(line).show();
            assert!(refused.starts_with("(error)"), "{line}: {refused}");
            let reads_only_ok = refused.contains("NOGROUP") || refused.contains("WRONGTYPE");
            assert!(!reads_only_ok, "{line} reached the key: {refused}");
            // A transaction refuses it too, when it is queued or when it runs.
            user.call("MULTI");
            user.call(line);
            let reply = user.call("EXEC");
            let is_refused = match &reply {
                Value::Array(replies) => replies.iter().all(Value::is_error),
                reply => reply.is_error(),
            };
            assert!(is_refused, "{line}: {}", reply.show());
        }
        assert_eq!(admin.call("DEBUG DIGEST").show(), before);
        check(&mut user, "SORT ok STORE ok1 STORE ok2", "(integer) 3");
        check(&mut admin, "EXISTS ok1 ok2", "(integer) 1");
    });
}

/// Queued commands kept the rights that the user had when they were queued.
#[test]
fn redis_15673_exec_asks_again_for_keys_commands_channels_and_databases() {
    at_each_shape(|server| {
        let mut admin = server.raw();
        for (taken, refused) in [
            ("resetkeys ~other", 3),
            ("-set -get -mget", 3),
            ("resetchannels", 1),
            ("%R~k1 %R~k2 resetkeys %R~k1 %R~k2", 1),
            ("resetdbs db=5", 3),
        ] {
            check(&mut admin, "MSET k1 old k2 old", "OK");
            let rules = "ACL SETUSER u reset on nopass +@all ~k* &c*";
            check(&mut admin, rules, "OK");
            let mut user = signed_in(server, "u");
            let lines = ["SET k1 new", "GET k2", "MGET k1 k2", "PUBLISH channel x"];
            check(&mut user, "MULTI", "OK");
            for line in lines {
                check(&mut user, line, "QUEUED");
            }
            check(&mut admin, &format!("ACL SETUSER u {taken}"), "OK");
            let reply = user.call("EXEC");
            let denied = match &reply {
                Value::Array(replies) => replies
                    .iter()
                    .filter(|reply| reply.show().contains("NOPERM"))
                    .count(),
                other => panic!("{taken}: {}", other.show()),
            };
            assert!(denied >= refused, "{taken}: {}", reply.show());
            let is_kept = taken != "resetchannels";
            let expected = if is_kept { "\"old\"" } else { "\"new\"" };
            check(&mut admin, "GET k1", expected);
        }
        // A user who is gone runs nothing.
        let rules = "ACL SETUSER u reset on nopass +@all ~k* &c*";
        check(&mut admin, rules, "OK");
        let mut user = signed_in(server, "u");
        check(&mut user, "MULTI", "OK");
        check(&mut user, "SET k1 gone", "QUEUED");
        check(&mut admin, "SET k1 old", "OK");
        check(&mut admin, "ACL DELUSER u", "(integer) 1");
        user.send_unchecked(b"EXEC\r\n");
        assert!(user.is_closed());
        check(&mut admin, "GET k1", "\"old\"");
    });
}

/// Rules that end too early ended the server, or its memory was read beyond their end.
#[test]
fn cve_2024_31227_and_51741_malformed_rules_and_selectors_change_nothing() {
    at_each_shape(|server| {
        let mut admin = server.raw();
        for rules in [
            &["%"][..],
            &["%~"],
            &["%~a"],
            &["(%~x)"],
            &["(%)"],
            &["(%R~x"],
            &["("],
            &["(", "("],
            &["(~a (~b))"],
            &["(+@all ~* (+get))"],
            &["(+get", "(+set", ")"],
            &["(+get|"],
            &["(+get|)"],
            &[")"],
            &["%RWX~a"],
            &["%RR~a"],
            &["clearselectors", ")"],
            &["()", "(%"],
            &["(%W", "~a"],
        ] {
            let mut words = vec!["ACL", "SETUSER", "v", "on", "nopass"];
            words.extend(rules);
            let reply = admin.command(&words);
            assert!(reply.is_error(), "{rules:?}: {}", reply.show());
            check(&mut admin, "ACL GETUSER v", "(nil)");
        }
        // An accepted rule can be shown, saved and used: rights without a pattern have an empty one.
        for rules in [&["%R"][..], &["(%RW)"], &["()"], &["(%R~a +get)", "(%W~b)"]] {
            let mut words = vec!["ACL", "SETUSER", "v", "reset", "on", "nopass", "+@all"];
            words.extend(rules);
            check(&mut admin, "DEL secret", "(integer) 0");
            assert_eq!(admin.command(&words).show(), "OK");
            assert!(!admin.call("ACL GETUSER v").is_error());
            assert!(!admin.call("ACL LIST").is_error());
            check(&mut signed_in(server, "v"), "GET secret", NO_KEY);
        }
    });
}

/// Positions of keys were computed from a count that a client sent: beyond the arguments (36824), also of requests that
/// have too few of them (#14847).
#[test]
fn cve_2023_36824_and_redis_14847_keys_are_looked_for_among_the_arguments_only() {
    at_each_shape(|server| {
        let mut admin = server.raw();
        let mut user = limited(server, &mut admin);
        let mut commands: Vec<String> = admin
            .call("COMMAND LIST")
            .items()
            .iter()
            .map(Value::text)
            .collect();
        commands.sort();
        let mut lines = Vec::new();
        for command in &commands {
            let name = command.replace('|', " ");
            for behind in ["", "a", "ok a b c d"] {
                lines.push(format!("COMMAND GETKEYS {name} {behind}"));
                lines.push(format!("ACL DRYRUN u {name} {behind}"));
            }
            for count in COUNTS {
                lines.push(format!("COMMAND GETKEYS {name} {count} ok a b"));
                lines.push(format!("COMMAND GETKEYSANDFLAGS {name} ok {count} ok a"));
                lines.push(format!("ACL DRYRUN u {name} ok {count} ok"));
            }
        }
        for some in lines.chunks(1_000) {
            let some: Vec<&str> = some.iter().map(String::as_str).collect();
            assert_eq!(admin.pipeline(&some).len(), some.len());
        }
        for line in [
            "EVAL",
            "EVAL script",
            "EVALSHA",
            "EVAL_RO script",
            "EVALSHA_RO hash",
            "FCALL f",
            "FCALL_RO f",
            "ZUNION",
            "ZINTER 1",
            "SINTERCARD 1",
            "LMPOP 1",
            "BLMPOP 0 1",
            "ZMPOP 1",
            "BZMPOP 0 1",
        ] {
            let reply = user.call(line).show();
            let expected = "(error) ERR wrong number of arguments for";
            assert!(reply.starts_with(expected), "{line}: {reply}");
        }
        for count in COUNTS {
            for line in [
                format!("EVAL \"return redis.call('GET', 'secret')\" {count} ok"),
                format!("ZUNIONSTORE ok1 {count} secret"),
                format!("SINTERCARD {count} secret"),
                format!("LMPOP {count} secret LEFT"),
                format!("ZDIFF {count} secret"),
            ] {
                let reply = user.call(&line);
                assert!(reply.is_error(), "{line}: {}", reply.show());
            }
        }
    });
}
