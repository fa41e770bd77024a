//! Access control lists: users may do exactly what redis-server lets them do, through every command path, and
//! changes take effect at once.

use std::collections::BTreeSet;
use std::path::Path;
use std::process::Stdio;

use crate::operating::Killed;
use crate::support::{self, Draw, Options, Oracle, Server, check, eventually, info_number};
use crate::wire::{Raw, Value};

pub(crate) fn start() -> Server {
    Server::start(&Options::shards(8).threads(2))
}

/// Opens a connection that is authenticated as a user.
pub(crate) fn signed_in(server: &Server, user: &str) -> Raw {
    let mut client = server.raw();
    check(&mut client, &format!("AUTH {user} any"), "OK");
    client
}

#[test]
fn what_a_user_may_do_changes_under_its_connections_at_once() {
    let server = start();
    let mut admin = server.raw();
    check(&mut admin, "ACL SETUSER alice on nopass +@all ~a:*", "OK");
    let mut alice = signed_in(&server, "alice");
    check(&mut alice, "SET a:1 1", "OK");
    check(
        &mut alice,
        "SET b:1 1",
        "(error) NOPERM No permissions to access a key",
    );
    // In a pipeline each command is looked at by itself.
    let replies = alice.pipeline(&["GET a:1", "GET b:1", "MGET a:1 b:1", "GET a:1"]);
    let errors: Vec<bool> = replies.iter().map(Value::is_error).collect();
    assert_eq!(errors, [false, true, true, false]);
    check(&mut admin, "ACL SETUSER alice ~b:*", "OK");
    check(&mut alice, "SET b:1 1", "OK");
    check(&mut admin, "ACL SETUSER alice -set", "OK");
    check(
        &mut alice,
        "SET b:1 1",
        "(error) NOPERM User alice has no permissions to run the 'set' command",
    );
    check(
        &mut admin,
        "ACL SETUSER alice allkeys allcommands allchannels",
        "OK",
    );
    check(&mut alice, "SET c:1 1", "OK");
    // Users who are off may stay connected, but cannot sign in any more.
    check(&mut admin, "ACL SETUSER alice off", "OK");
    check(&mut alice, "GET c:1", "\"1\"");
    let refused = "(error) WRONGPASS invalid username-password pair or user is disabled.";
    check(&mut server.raw(), "AUTH alice any", refused);
    check(&mut admin, "ACL DELUSER alice", "(integer) 1");
    assert!(alice.is_closed());
}

#[test]
fn transactions_and_scripts_are_looked_at_command_by_command() {
    let server = start();
    let mut admin = server.raw();
    check(
        &mut admin,
        "ACL SETUSER bob on nopass +@all -get ~k* &*",
        "OK",
    );
    let mut bob = signed_in(&server, "bob");
    check(&mut bob, "MULTI", "OK");
    check(
        &mut bob,
        "GET k",
        "(error) NOPERM User bob has no permissions to run the 'get' command",
    );
    check(
        &mut bob,
        "EXEC",
        "(error) EXECABORT Transaction discarded because of previous errors.",
    );
    // Queued commands are checked again.
    check(&mut bob, "MULTI", "OK");
    check(&mut bob, "SET k 1", "QUEUED");
    check(&mut bob, "INCR k", "QUEUED");
    check(&mut admin, "ACL SETUSER bob -incr", "OK");
    let reply = bob.call("EXEC");
    assert_eq!(reply.items()[0].show(), "OK");
    assert_eq!(
        reply.items()[1].show(),
        "(error) NOPERM ACLs rules changed between the moment the transaction was accumulated and the EXEC call. This \
         command is no longer allowed for the following reason: no permission to execute the command or subcommand"
    );
    check(&mut admin, "GET k", "\"1\"");
    let error = bob
        .call("EVAL \"return redis.call('get', KEYS[1])\" 1 k")
        .show();
    assert!(
        error.contains(
            "ACL failure in script: User bob has no permissions to run the 'get' command"
        ),
        "{error}"
    );
    let error = bob
        .call("EVAL \"return redis.pcall('set', 'other', 1)\" 0")
        .show();
    assert!(error.contains("No permissions to access a key"), "{error}");
    check(
        &mut bob,
        "EVAL \"return {redis.acl_check_cmd('set', 'k', 1), redis.acl_check_cmd('set', 'x', 1)}\" 0",
        "1) (integer) 1\n2) (nil)",
    );
    let denied = |name: &str, client: &mut Raw| info_number(client, "stats", name);
    assert_eq!(denied("acl_access_denied_cmd", &mut admin), 3.0);
    assert_eq!(denied("acl_access_denied_key", &mut admin), 1.0);
}

#[test]
fn who_waits_is_looked_at_again_when_it_is_served() {
    let server = start();
    let mut admin = server.raw();
    check(
        &mut admin,
        "ACL SETUSER carol on nopass +@all allkeys",
        "OK",
    );
    let mut carol = signed_in(&server, "carol");
    carol.send(b"BLPOP list 0\r\n");
    eventually("carol waits", || {
        info_number(&mut admin, "clients", "blocked_clients") == 1.0
    });
    check(&mut admin, "ACL SETUSER carol resetkeys", "OK");
    check(&mut admin, "RPUSH list element", "(integer) 1");
    assert_eq!(
        carol.read().show(),
        "(error) NOPERM No permissions to access a key"
    );
    check(&mut admin, "LLEN list", "(integer) 1");
    check(&mut carol, "PING", "PONG");
}

#[test]
fn users_are_kept_by_a_file_and_by_config_rewrite() {
    let dir = tempfile::tempdir().expect("a temporary folder");
    let file = dir.path().join("users.acl");
    std::fs::write(
        &file,
        "user default on nopass ~* &* +@all\nuser dan on >secret ~d* +get\n",
    )
    .expect("written");
    let options = Options::shards(8)
        .with("dir", &dir.path().display().to_string())
        .with("aclfile", "users.acl");
    let server = Server::start(&options);
    let mut client = server.raw();
    check(&mut client, "AUTH dan secret", "OK");
    check(&mut client, "GET d1", "(nil)");
    check(&mut client, "AUTH default any", "OK");
    check(
        &mut client,
        "ACL SETUSER eve on #2bb80d537b1da3e38bd30361aa855686bde0eacd7162fef6a25fe97bf527a25b +ping",
        "OK",
    );
    check(&mut client, "ACL SAVE", "OK");
    let text = std::fs::read_to_string(&file).expect("read");
    assert!(
        text.contains(
            "user eve on sanitize-payload #2bb80d537b1da3e38bd30361aa855686bde0eacd7162fef6a25fe97bf527a25b"
        ),
        "{text}"
    );
    check(&mut client, "ACL DELUSER eve", "(integer) 1");
    check(&mut client, "ACL LOAD", "OK");
    check(&mut client, "AUTH eve secret", "OK");
    std::fs::write(&file, "user broken +nosuch\nnonsense\n").expect("written");
    check(&mut client, "AUTH default any", "OK");
    let error = client.call("ACL LOAD").show();
    assert!(
        error.contains("no change to the previously active ACL rules was performed"),
        "{error}"
    );
    check(&mut client, "AUTH eve secret", "OK");
}

#[test]
fn connections_of_users_that_a_loaded_file_still_has_stay() {
    let folder = tempfile::tempdir().expect("a folder");
    let file = folder.path().join("users.acl");
    let write = |text: &str| std::fs::write(&file, text).expect("written");
    let kept =
        "user kept on >pw ~* +@all\nuser reads on >pw ~* &* +@all\nuser hears on >pw &* +@all\n";
    write(&format!("{kept}user gone on >pw ~* +@all\n"));
    let dir = folder.path().display().to_string();
    let options = Options::shards(4).with("dir", &dir);
    let server = Server::start(&options.with("aclfile", "users.acl"));
    let login = |name: &str| {
        let mut client = server.raw();
        check(&mut client, &format!("AUTH {name} pw"), "OK");
        client
    };
    let (mut kept, mut reads, mut gone) = (login("kept"), login("reads"), login("gone"));
    let (mut hears, mut hears_news) = (login("hears"), login("hears"));
    hears.call("SUBSCRIBE secrets");
    hears_news.call("SUBSCRIBE news");
    write(
        "user kept on >pw ~* +@all\nuser reads on >pw ~* +@read\nuser hears on >pw &news +@all\n",
    );
    check(&mut kept, "ACL LOAD", "OK");
    check(&mut kept, "SET k 1", "OK");
    check(&mut reads, "GET k", "\"1\"");
    assert!(reads.call("SET k 2").show().contains("NOPERM"));
    assert!(gone.is_closed(), "its user is gone");
    assert!(hears.is_closed(), "it may not hear that channel any more");
    assert_eq!(hears_news.call("PING").words(), "pong ");
    // The one that loads the file can be gone itself, and gets its reply.
    write("user default on nopass ~* &* +@all\n");
    check(&mut kept, "ACL LOAD", "OK");
    assert!(kept.is_closed());
}

/// Starts a server with a configuration file, and connects a client.
pub(crate) fn with_file(file: &Path) -> (Killed, Raw) {
    let port = support::free_port();
    let mut command = support::command();
    command.arg(file).args(["--port", &port.to_string()]);
    command.args(["--metrics-port", "0", "--save", ""]);
    command.arg("--dir").arg(file.parent().expect("a folder"));
    let server = Killed(command.stdout(Stdio::null()).spawn().expect("a server"));
    eventually("it listens", || support::is_listening(port));
    (server, Raw::connect(port))
}

#[test]
fn names_and_rules_with_quotes_come_back_from_a_rewritten_configuration() {
    if support::is_stand_in() {
        return;
    }
    let dir = tempfile::tempdir().expect("a temporary folder");
    let file = dir.path().join("basalt.conf");
    std::fs::write(&file, "user dan on >secret ~d* +get\n").expect("written");
    let (server, mut client) = with_file(&file);
    let names: [&[u8]; 7] = [b"", b"\"", b"it's", b"a\\x41\"b", b"#x", b"(y", b"\xff\x01"];
    for name in names {
        let rules: [&[u8]; 7] = [
            b"on",
            b">p\"w",
            b"~a\"b",
            b"~c\\n'",
            b"&\xfe\"",
            b"+get",
            b"(~\"q\" +set)",
        ];
        let request = [&[b"ACL" as &[u8], b"SETUSER", name] as &[&[u8]], &rules].concat();
        assert_eq!(client.command(&request).show(), "OK");
    }
    let before = client.call("ACL LIST").show();
    check(&mut client, "CONFIG REWRITE", "OK");
    drop(server);
    let (_server, mut client) = with_file(&file);
    assert_eq!(client.call("ACL LIST").show(), before);
}

/// Removes the name of the user from an error of redis-server 7.0 and from this server's.
fn without_user(text: &str) -> String {
    match text.split_once(" has no permissions ") {
        Some((_, rest)) => format!("has no permissions {rest}"),
        None => text.to_owned(),
    }
}

const KEYS: &[&str] = &["a:1", "a:2", "b:1", "b", "", "abc", "a:[x]"];

fn draw_rule(draw: &mut Draw, commands: &[String], categories: &[String]) -> String {
    let sign = ["+", "-"][draw.below(2)];
    match draw.below(12) {
        0 => format!("{sign}@{}", categories[draw.below(categories.len())]),
        1..=3 => format!("{sign}{}", commands[draw.below(commands.len())]),
        4 => ["~a:*", "~*", "~b", "~a?1", "~a:[12]", "~"][draw.below(6)].to_owned(),
        5 => ["%R~a:*", "%W~b*", "%RW~*", "%R~*", "%wr~a*"][draw.below(5)].to_owned(),
        6 => ["&a:*", "&*", "&b", "resetchannels"][draw.below(4)].to_owned(),
        7 => [
            "resetkeys",
            "allkeys",
            "allcommands",
            "nocommands",
            "+@all",
            "-@all",
        ][draw.below(6)]
        .to_owned(),
        8 => format!(
            "+{}|{}",
            commands[draw.below(commands.len())],
            KEYS[draw.below(KEYS.len())]
        ),
        9 => format!(
            "({}{} {})",
            sign,
            commands[draw.below(commands.len())],
            ["~a:*", "%R~*", "&a:*", "+@read", "allkeys"][draw.below(5)]
        ),
        10 => ["on", "off", "nopass", "reset", "clearselectors"][draw.below(5)].to_owned(),
        _ => "+@all".to_owned(),
    }
}

/// Compares users with random rules, and their rights to random requests, with redis-server.
#[test]
fn random_users_may_do_what_they_may_with_redis_server() {
    let Some(oracle) = Oracle::start() else {
        return;
    };
    let cases = std::env::var("BASALT_ACL_CASES").ok();
    let cases: usize = cases.and_then(|count| count.parse().ok()).unwrap_or(2_000);
    let server = start();
    let (mut ours, mut theirs) = (server.raw(), oracle.0.raw());
    let names = |client: &mut Raw, line: &str| -> BTreeSet<String> {
        let reply = client.call(line);
        reply.items().iter().map(Value::body).collect()
    };
    let categories: Vec<String> = names(&mut theirs, "ACL CAT").into_iter().collect();
    let (mut known, mut common) = (BTreeSet::new(), BTreeSet::new());
    for category in &categories {
        let line = format!("ACL CAT {category}");
        known.extend(names(&mut theirs, &line));
        common.extend(names(&mut ours, &line));
    }
    // Later versions have more of them, and DEBUG's are arguments to it. WAIT is in @blocking since Redis 7.2.
    let commands: Vec<String> = known
        .intersection(&common)
        .filter(|name| !name.starts_with("debug") && !name.contains("sentinel") && *name != "wait")
        .cloned()
        .collect();
    assert!(commands.len() > 300, "{}", commands.len());
    for category in &categories {
        let line = format!("ACL CAT {category}");
        let of = |names: BTreeSet<String>| -> BTreeSet<String> {
            names
                .into_iter()
                .filter(|name| commands.contains(name))
                .collect()
        };
        assert_eq!(
            of(names(&mut ours, &line)),
            of(names(&mut theirs, &line)),
            "{category}"
        );
    }
    let mut draw = Draw::new(11);
    for case in 0..cases {
        let user = format!("user{}", case % 50);
        let mut words = vec!["ACL".to_owned(), "SETUSER".to_owned(), user.clone()];
        for _ in 0..1 + draw.below(6) {
            words.push(draw_rule(&mut draw, &commands, &categories));
        }
        let (one, other) = (ours.command(&words).show(), theirs.command(&words).show());
        assert_eq!(one, other, "case {case}: {words:?}");
        let get = ["ACL", "GETUSER", &user];
        let (one, other) = (ours.command(&get), theirs.command(&get));
        // The keys that 7.0 describes otherwise: rules about commands, which it makes up anew.
        let rest = |value: &Value| -> Vec<String> {
            let items = value.items();
            let fields = items
                .chunks_exact(2)
                .filter(|pair| pair[0].body() == "keys");
            fields.map(|pair| pair[1].show()).collect()
        };
        if !one.is_nil() {
            assert_eq!(rest(&one), rest(&other), "case {case}: {words:?}");
        }
        for _ in 0..5 {
            let name = &commands[draw.below(commands.len())];
            let mut words: Vec<String> = ["ACL", "DRYRUN", &user].map(str::to_owned).to_vec();
            words.extend(name.split('|').map(str::to_owned));
            for _ in 0..draw.below(5) {
                let word = match draw.below(8) {
                    0 => "1",
                    1 => "2",
                    2 => "GET",
                    3 => "STORE",
                    _ => KEYS[draw.below(KEYS.len())],
                };
                words.push(word.to_owned());
            }
            let (one, other) = (ours.command(&words).show(), theirs.command(&words).show());
            if other.starts_with("(error) ERR wrong number")
                || one.starts_with("(error) ERR wrong number")
            {
                // Some commands take more since.
                continue;
            }
            let stores = words.windows(2).any(|pair| pair == ["STORE", "STORE"]);
            if name == "sort" && stores {
                // If two option words follow each other, redis-server takes the second to be the option again,
                // whatever it stands for, so that a user may store under a name that is forbidden to the
                // user.
                continue;
            }
            if name == "pfmerge" && words.len() == 5 {
                // Without sources redis-server finds none of its keys, and lets any user create one.
                continue;
            }
            assert_eq!(
                without_user(&one),
                without_user(&other),
                "case {case}: {words:?}"
            );
        }
    }
}

/// SORT is checked by the key that it stores under, which has the name of an option here.
#[test]
fn sort_stores_under_no_name_that_the_user_may_not_use() {
    let server = start();
    let mut client = server.raw();
    check(&mut client, "RPUSH b 2 1", "(integer) 2");
    check(
        &mut client,
        "ACL SETUSER u on nopass +@all ~b ~DESC ~STORE2",
        "OK",
    );
    check(&mut client, "AUTH u x", "OK");
    let refused = "(error) NOPERM No permissions to access a key";
    check(&mut client, "SORT b STORE STORE DESC", refused);
    check(
        &mut client,
        "SORT b STORE STORE STORE STORE2",
        "(integer) 2",
    );
    check(&mut client, "SORT b STORE DESC DESC", "(integer) 2");
    check(&mut client, "AUTH default x", "OK");
    check(&mut client, "EXISTS STORE", "(integer) 0");
}

#[test]
fn bad_rules_and_names_change_nothing_and_are_refused_as_by_redis_server() {
    let server = start();
    let mut ours = server.raw();
    let mut theirs = Oracle::start().map(|oracle| (oracle.0.raw(), oracle));
    let long = "x".repeat(1 << 20);
    for rules in [
        vec!["+nosuch"],
        vec!["+@nosuch"],
        vec!["-nosuch|sub"],
        vec!["+config|nosuch"],
        vec!["+config|get|x"],
        vec!["+get|"],
        vec!["+"],
        vec!["-"],
        vec!["+@"],
        vec!["~*", "~a"],
        vec!["&*", "&a"],
        vec!["~a b"],
        vec!["%~a"],
        vec!["%RR~a"],
        vec!["%X~a"],
        vec!["#abc"],
        vec!["#zz8c6976e5b5410415bde908bd4dee15dfb167a9c873fc4bb8a81f6f2ab448a9"],
        vec!["!abc"],
        vec!["<nosuch"],
        vec!["(", "+get"],
        vec!["(+get", "(+set)"],
        vec![")"],
        vec!["nonsense"],
        vec!["ON", "nonsense"],
    ] {
        let mut words = vec!["ACL", "SETUSER", "someone"];
        words.extend(&rules);
        let reply = ours.command(&words).show();
        assert!(reply.starts_with("(error) ERR "), "{rules:?}: {reply}");
        if let Some((theirs, _)) = &mut theirs {
            assert_eq!(reply, theirs.command(&words).show(), "{rules:?}");
        }
        check(&mut ours, "ACL GETUSER someone", "(nil)");
    }
    for name in ["a b", "a\0b", "a\nb"] {
        let reply = ours.command(&["ACL", "SETUSER", name]).show();
        assert_eq!(
            reply,
            "(error) ERR Usernames can't contain spaces or null characters"
        );
    }
    assert_eq!(
        ours.command(&["ACL", "SETUSER", &long, "on", "nopass"])
            .show(),
        "OK"
    );
    assert_eq!(ours.command(&["AUTH", &long, "x"]).show(), "OK");
    check(&mut ours, "AUTH default x", "OK");
    assert_eq!(
        ours.command(&["ACL", "DELUSER", &long]).show(),
        "(integer) 1"
    );
    for user in 0..5_000 {
        check(
            &mut ours,
            &format!("ACL SETUSER user{user} on ~{user}:*"),
            "OK",
        );
    }
    assert_eq!(ours.call("ACL USERS").items().len(), 5_001);
}

#[test]
fn a_start_with_users_that_are_wrong_fails_and_says_why() {
    if support::is_stand_in() {
        return;
    }
    let dir = tempfile::tempdir().expect("a temporary folder");
    let file = dir.path().join("users.acl");
    std::fs::write(&file, "user grace on +nosuch\n").expect("written");
    let file = file.to_str().expect("a plain path");
    for (arguments, why) in [
        (
            vec!["--aclfile", "/nosuch/users.acl"],
            "opening file '/nosuch/users.acl'",
        ),
        (
            vec!["--aclfile", file],
            "Unknown command or category name in ACL",
        ),
        (
            vec!["--aclfile", file, "--user", "hal", "on"],
            "but not both",
        ),
        (
            vec!["--user", "hal", "on", "+nosuch"],
            "Unknown command or category name in ACL",
        ),
        (
            vec!["--user", "hal", "on", "--user", "hal", "off"],
            "Duplicate user",
        ),
    ] {
        let output = support::command()
            .args(["--port", "0", "--metrics-port", "0"])
            .args(&arguments)
            .output()
            .expect("the server");
        let text = [output.stdout, output.stderr].concat();
        let text = String::from_utf8_lossy(&text);
        assert!(!output.status.success(), "{arguments:?} starts");
        assert!(text.contains(why), "{arguments:?}: {text}");
    }
}

#[test]
fn failed_attempts_to_sign_in_are_counted_and_noted() {
    if support::is_stand_in() {
        return;
    }
    let server = start();
    let mut client = server.raw();
    for _ in 0..20 {
        assert!(client.call("AUTH nobody wrong").is_error());
    }
    assert_eq!(
        info_number(&mut client, "stats", "acl_access_denied_auth"),
        20.0
    );
    let log = client.call("ACL LOG").show();
    assert!(
        log.contains("(integer) 20") && log.contains("nobody"),
        "{log}"
    );
}

#[test]
fn many_failed_attempts_keep_nobody_with_the_right_password_waiting() {
    if support::is_stand_in() {
        return;
    }
    let server = start();
    let mut client = server.raw();
    check(&mut client, "ACL SETUSER frank on >right +@all", "OK");
    // Four connections try one password after the other; a fifth one knows it.
    let mut guessing: Vec<Raw> = (0..4).map(|_| server.raw()).collect();
    for client in &mut guessing {
        client.send(&b"AUTH frank wrong\r\n".repeat(100));
    }
    eventually("many have failed", || {
        info_number(&mut client, "stats", "acl_access_denied_auth") >= 33.0
    });
    check(&mut server.raw(), "AUTH frank right", "OK");
    let failed = info_number(&mut client, "stats", "acl_access_denied_auth");
    assert!(
        failed < 400.0,
        "{failed} of 400 attempts were answered already"
    );
    let refused = "(error) WRONGPASS invalid username-password pair or user is disabled.";
    for client in &mut guessing {
        assert_eq!(client.read().show(), refused);
    }
}

#[test]
fn permissions_may_be_for_some_databases_only_as_with_valkey() {
    let server = start();
    let mut admin = server.raw();
    let set = |admin: &mut Raw, rules: &str, expected: &str| {
        check(admin, &format!("ACL SETUSER dora {rules}"), expected);
    };
    set(&mut admin, "on nopass +@all ~* &* db=3,1,3", "OK");
    let line = admin.call("ACL LIST").show();
    assert!(
        line.contains("user dora on nopass sanitize-payload ~* &* db=1,3 +@all"),
        "{line}"
    );
    let shown = admin.call("ACL GETUSER dora").show();
    assert!(
        shown.contains("\"databases\"") && shown.contains("\"db=1,3\""),
        "{shown}"
    );
    let mut dora = signed_in(&server, "dora");
    const DENIED: &str = "(error) NOPERM No permissions to access database";
    let in_any = [
        "PING",
        "INFO server",
        "PUBLISH a b",
        "SCRIPT FLUSH",
        "UNWATCH",
        "SWAPDB 1 3",
    ];
    let in_one = [
        "GET k",
        "MSET a 1 b 2",
        "DBSIZE",
        "KEYS *",
        "SCAN 0",
        "RANDOMKEY",
        "FLUSHDB",
        "WATCH x",
        "EVAL \"return 1\" 0",
        "MEMORY USAGE x",
        "SORT k",
        "XREAD STREAMS s 0",
        "BLPOP q 0.01",
    ];
    for request in in_any {
        assert!(!dora.call(request).is_error(), "{request}");
    }
    for request in in_one
        .iter()
        .chain(&["FLUSHALL", "SELECT 0", "SELECT 2", "SWAPDB 0 1"])
    {
        check(&mut dora, request, DENIED);
    }
    check(&mut dora, "SELECT 99", DENIED);
    check(&mut dora, "SELECT 1", "OK");
    for request in in_one {
        assert!(!dora.call(request).is_error(), "{request}");
    }
    check(&mut dora, "SET k v", "OK");
    for request in [
        "MOVE k 2",
        "COPY k l DB 0",
        "COPY k l REPLACE DB 2",
        "COPY k l DB 3 DB 2",
        "COPY k l DB 3 REPLACE DB 2 DB 1",
        "FLUSHALL",
    ] {
        check(&mut dora, request, DENIED);
    }
    check(&mut dora, "COPY k l DB 3", "(integer) 1");
    check(&mut dora, "MOVE k 3", "(integer) 1");
    // Queued commands are checked in the database in which they are going to run.
    check(&mut dora, "MULTI", "OK");
    check(&mut dora, "SELECT 3", "QUEUED");
    check(&mut dora, "GET k", "QUEUED");
    check(&mut dora, "SELECT 2", DENIED);
    assert!(dora.call("EXEC").is_error());
    check(&mut dora, "MULTI", "OK");
    check(&mut dora, "SELECT 3", "QUEUED");
    check(&mut dora, "GET k", "QUEUED");
    set(&mut admin, "db=1", "OK");
    let replies = dora.call("EXEC").show();
    assert!(
        replies.contains("no permission to access the database"),
        "{replies}"
    );
    check(
        &mut dora,
        "EVAL \"return redis.pcall('select', 2)\" 0",
        "(error) ERR ACL failure in script: No permissions to access database",
    );
    // A waiting client is looked at again when it is served.
    check(&mut dora, "SELECT 1", "OK");
    dora.send(b"BLPOP q 0\r\n");
    eventually("it waits", || {
        info_number(&mut admin, "clients", "blocked_clients") == 1.0
    });
    set(&mut admin, "db=7", "OK");
    check(&mut admin, "SELECT 1", "OK");
    check(&mut admin, "RPUSH q 1", "(integer) 1");
    assert!(dora.read().show().contains("NOPERM"));
    check(&mut admin, "SELECT 0", "OK");
    // Each selector has databases of its own.
    set(
        &mut admin,
        "reset on nopass resetdbs db=0 +@all ~* (+get ~x db=2)",
        "OK",
    );
    let mut dora = signed_in(&server, "dora");
    check(
        &mut dora,
        "SELECT 2",
        "(error) NOPERM User dora has no permissions to run the 'select' command",
    );
    check(&mut admin, "ACL DRYRUN dora GET x", "OK");
    check(
        &mut admin,
        "ACL DRYRUN dora COPY a b DB 4",
        "\"User dora has no permissions to access database 4\"",
    );
    check(&mut admin, "SELECT 2", "OK");
    check(&mut admin, "ACL DRYRUN dora GET x", "OK");
    check(
        &mut admin,
        "ACL DRYRUN dora SET x 1",
        "\"User dora has no permissions to run the 'set' command\"",
    );
    check(&mut admin, "SELECT 0", "OK");
    let log = admin.call("ACL LOG").show();
    assert!(log.contains("\"database\""), "{log}");
    assert!(info_number(&mut admin, "stats", "acl_access_denied_db") > 10.0);
    for (rule, why) in [
        ("db=", "Syntax error"),
        ("db=a", "Syntax error"),
        ("db=1,", "Syntax error"),
        ("db=1,,2", "Syntax error"),
        ("db=+1", "Syntax error"),
        ("db=-1", "The provided database ID is out of range"),
        (
            "db=99999999999999999999",
            "The provided database ID is out of range",
        ),
    ] {
        let expected = format!("(error) ERR Error in ACL SETUSER modifier '{rule}': {why}");
        set(&mut admin, rule, &expected);
    }
    set(&mut admin, "DB=01", "OK");
    set(&mut admin, "alldbs", "OK");
    check(&mut dora, "DBSIZE", "(integer) 0");
    set(&mut admin, "resetdbs", "OK");
    check(&mut dora, "DBSIZE", DENIED);
    let line = admin.call("ACL LIST").show();
    assert!(
        line.contains("resetchannels resetdbs +@all (~x resetchannels db=2 -@all +get)"),
        "{line}"
    );
}

#[test]
fn a_hundred_thousand_users_do_not_slow_down_one_of_them() {
    if support::is_stand_in() {
        return;
    }
    const USERS: usize = 100_000;
    let server = start();
    let mut admin = server.raw();
    for batch in 0..USERS / 1_000 {
        let users =
            (0..1_000).map(|at| format!("ACL SETUSER u{} on >p ~k:* +get\r\n", batch * 1_000 + at));
        admin.send(users.collect::<String>().as_bytes());
        for _ in 0..1_000 {
            assert_eq!(admin.read().show(), "OK");
        }
    }
    let Value::Array(users) = admin.call("ACL USERS") else {
        panic!("no users");
    };
    assert_eq!(users.len(), USERS + 1);
    let mut client = server.raw();
    check(&mut client, "AUTH u99999 p", "OK");
    check(&mut client, "GET k:1", "(nil)");
    check(&mut admin, "ACL DELUSER u99999 u0", "(integer) 2");
    assert!(client.is_closed());
    assert_eq!(
        admin.call("ACL LIST").show().matches("user ").count(),
        USERS - 1
    );
}
