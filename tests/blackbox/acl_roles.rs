//! Roles of ACL users: what they allow, when changes take effect, and how files keep them. The cases are those that
//! Valkey 9.2 documents.

use std::fs;

use crate::acl::with_file;
use crate::support::{Options, Server, check, eventually, start_loaded};
use crate::wire::Raw;

const NOT_THERE: &str = "The role does not exist";

fn start() -> Server {
    Server::start(&Options::shards(4))
}

fn run(raw: &mut Raw, lines: &[&str]) {
    for line in lines {
        check(raw, line, "OK");
    }
}

/// Whether a user may run a command.
fn may(raw: &mut Raw, user: &str, line: &str) -> bool {
    let reply = raw.call(&format!("ACL DRYRUN {user} {line}")).show();
    assert!(reply == "OK" || reply.contains("no permissions"), "{reply}");
    reply == "OK"
}

/// Returns a field of ACL GETROLE or GETUSER.
fn field(raw: &mut Raw, line: &str, name: &str) -> String {
    let reply = raw.call(line);
    let items = reply.items();
    let found = items.chunks(2).find(|pair| pair[0].text() == name);
    found.map_or_else(String::new, |pair| pair[1].show())
}

#[test]
fn permissions_of_roles_add_to_those_of_the_user() {
    let server = start();
    let mut raw = server.raw();
    check(&mut raw, "ACL ROLES", "(empty array)");
    run(
        &mut raw,
        &[
            "ACL SETROLE get ~a:* +get",
            "ACL SETROLE b +set ~b:* (+del ~c:*)",
            "ACL SETUSER multi on >p role=get,b,get +strlen ~own",
        ],
    );
    check(&mut raw, "ACL ROLES", "1) \"b\"\n2) \"get\"");
    for (line, expected) in [
        ("GET a:1", true),
        ("SET b:1 v", true),
        ("DEL c:1", true),
        ("STRLEN own", true),
        ("GET b:1", false),
        ("SET c:1 v", false),
        ("STRLEN a:1", false),
        ("GET own", false),
    ] {
        assert_eq!(may(&mut raw, "multi", line), expected, "{line}");
    }
    assert_eq!(
        field(&mut raw, "ACL GETUSER multi", "roles"),
        "1) \"get\"\n2) \"b\""
    );
    assert_eq!(field(&mut raw, "ACL GETROLE b", "users"), "1) \"multi\"");
    assert_eq!(
        field(&mut raw, "ACL GETROLE b", "commands"),
        "\"-@all +set\""
    );
    assert_eq!(field(&mut raw, "ACL GETROLE b", "keys"), "\"~b:*\"");
    check(&mut raw, "ACL GETROLE none", "(nil)");
    let listed = raw.call("ACL LIST");
    let listed: Vec<String> = listed.items().iter().map(|item| item.text()).collect();
    assert!(
        listed[0].starts_with("role b ~b:* resetchannels -@all +set ("),
        "{listed:?}"
    );
    assert!(listed[1].starts_with("role get ~a:* "), "{listed:?}");
    assert!(listed[3].contains(" role=get,b "), "{listed:?}");
    // Changes count at once, through every path of commands.
    let mut multi = server.raw();
    check(&mut multi, "AUTH multi p", "OK");
    check(&mut multi, "SET b:1 v", "OK");
    run(&mut raw, &["ACL SETROLE b -set +append"]);
    let denied = multi.call("SET b:1 v").show();
    assert!(denied.starts_with("(error) NOPERM"), "{denied}");
    check(&mut multi, "APPEND b:1 w", "(integer) 2");
    run(&mut raw, &["ACL SETUSER multi role=get"]);
    assert!(multi.call("APPEND b:1 w").is_error());
    check(&mut multi, "GET a:1", "(nil)");
    run(&mut raw, &["ACL SETUSER multi resetroles"]);
    assert!(multi.call("GET a:1").is_error());
    assert_eq!(field(&mut raw, "ACL GETUSER multi", "roles"), "");
    // A role that allows everything makes the checks unnecessary, and its end brings them back.
    run(
        &mut raw,
        &["ACL SETROLE all allkeys allcommands allchannels"],
    );
    run(&mut raw, &["ACL SETUSER multi role=all"]);
    check(&mut multi, "MSET x 1 y 2", "OK");
    run(&mut raw, &["ACL SETROLE all -mset"]);
    assert!(multi.call("MSET x 1 y 2").is_error());
    check(&mut raw, "ACL DELROLE get none", "(integer) 1");
    check(
        &mut raw,
        "ACL DELROLE b all",
        "(error) ERR Role 'all' is assigned to one or more users",
    );
    check(&mut raw, "ACL ROLES", "1) \"all\"\n2) \"b\"");
    check(&mut raw, "ACL DELUSER multi", "(integer) 1");
    check(&mut raw, "ACL DELROLE b all", "(integer) 2");
}

#[test]
fn wrong_names_and_rules_change_nothing() {
    let server = start();
    let mut raw = server.raw();
    run(
        &mut raw,
        &["ACL SETROLE role +get ~*", "ACL SETUSER user role=role"],
    );
    for word in [
        "on",
        "off",
        "reset",
        "nopass",
        "resetpass",
        ">p",
        "<p",
        "role=role",
        "resetroles",
        "ROLE=x",
        "#0000000000000000000000000000000000000000000000000000000000000000",
        "what",
    ] {
        check(
            &mut raw,
            &format!("ACL SETROLE role +set {word}"),
            &format!("(error) ERR Error in ACL SETROLE modifier '{word}': Syntax error"),
        );
    }
    for (line, error) in [
        (
            "ACL SETROLE role (+set",
            "Unmatched parenthesis in acl selector starting at '(+set'.",
        ),
        (
            "ACL SETROLE role +nothing",
            "Error in ACL SETROLE modifier '+nothing': Unknown command or category name in ACL",
        ),
        ("ACL SETROLE \"\" +get", "Role names can't be empty"),
        ("ACL SETROLE a,b +get", "Role names can't contain commas"),
        (
            "ACL SETROLE 'a\"b' +get",
            "Role names can't contain quotes or backslashes",
        ),
        (
            "ACL SETROLE \"a b\" +get",
            "Role names can only contain printable ASCII characters other than spaces",
        ),
        (
            "ACL SETROLE \"\\xc3\" +get",
            "Role names can only contain printable ASCII characters other than spaces",
        ),
    ] {
        check(&mut raw, line, &format!("(error) ERR {error}"));
    }
    for (rule, error) in [
        ("role=", "Syntax error"),
        ("role=role,", "Syntax error"),
        ("role=,role", "Syntax error"),
        ("role=role,,role", "Syntax error"),
        ("role=role,none", NOT_THERE),
        ("role=Role", NOT_THERE),
    ] {
        check(
            &mut raw,
            &format!("ACL SETUSER user +del {rule}"),
            &format!("(error) ERR Error in ACL SETUSER modifier '{rule}': {error}"),
        );
    }
    assert_eq!(field(&mut raw, "ACL GETUSER user", "roles"), "1) \"role\"");
    check(&mut raw, "ACL ROLES", "1) \"role\"");
    assert!(may(&mut raw, "user", "GET k") && !may(&mut raw, "user", "SET k v"));
    for (line, name) in [
        ("ACL SETROLE", "acl|setrole"),
        ("ACL GETROLE", "acl|getrole"),
        ("ACL DELROLE", "acl|delrole"),
        ("ACL ROLES x", "acl|roles"),
    ] {
        let expected = format!("(error) ERR wrong number of arguments for '{name}' command");
        check(&mut raw, line, &expected);
    }
}

#[test]
fn who_loses_channels_by_a_role_is_disconnected() {
    let server = start();
    let mut raw = server.raw();
    for (change, is_user) in [
        ("ACL SETROLE news resetchannels &alerts:*", false),
        ("ACL SETUSER reader resetroles", true),
    ] {
        run(
            &mut raw,
            &[
                "ACL SETROLE news resetchannels +subscribe &news:*",
                "ACL SETUSER reader on >p resetchannels role=news",
            ],
        );
        let mut reader = server.raw();
        check(&mut reader, "AUTH reader p", "OK");
        assert!(!reader.call("SUBSCRIBE news:sports").is_error());
        run(&mut raw, &[change]);
        eventually("it is closed", || {
            let clients = raw.call("CLIENT LIST").text();
            !clients.contains("user=reader")
        });
        assert!(is_user || field(&mut raw, "ACL GETROLE news", "channels") == "\"&alerts:*\"");
    }
}

#[test]
fn files_keep_roles() {
    let dir = tempfile::tempdir().expect("a temporary folder");
    let file = dir.path().join("users.acl");
    // A user may stand before its role.
    fs::write(
        &file,
        "user alice on nopass resetchannels role=reader -@all\nrole reader ~a:* +get (~b:* +set)\n",
    )
    .expect("written");
    let options = Options::shards(2)
        .with("dir", &dir.path().display().to_string())
        .with("aclfile", &file.display().to_string());
    let server = start_loaded(&options);
    let mut raw = server.raw();
    assert!(may(&mut raw, "alice", "GET a:1") && may(&mut raw, "alice", "SET b:1 v"));
    let listed = raw.call("ACL LIST").show();
    check(&mut raw, "ACL SAVE", "OK");
    check(&mut raw, "ACL LOAD", "OK");
    assert_eq!(raw.call("ACL LIST").show(), listed);
    let saved = fs::read_to_string(&file).expect("saved");
    assert!(saved.starts_with("role reader ~a:* "), "{saved}");
    for (line, expected) in [
        ("role", "requires a role name"),
        ("role x\nrole x", "Duplicate role 'x' found on line 5"),
        ("role x on", "Syntax error"),
        ("role a,b +get", "can't contain commas"),
        ("user bob role=none", NOT_THERE),
    ] {
        fs::write(&file, format!("{saved}{line}\n")).expect("written");
        let reply = raw.call("ACL LOAD").show();
        assert!(reply.starts_with("(error)"), "{line}: {reply}");
        assert!(reply.contains(expected), "{line}: {reply}");
        assert_eq!(raw.call("ACL LIST").show(), listed);
    }
    drop((raw, server));
    // In the configuration file.
    let conf = dir.path().join("basalt.conf");
    let text = "role reader ~a:* +get\nuser alice on nopass role=reader\n";
    fs::write(&conf, text).expect("written");
    let (server, mut raw) = with_file(&conf);
    assert!(may(&mut raw, "alice", "GET a:1"));
    run(&mut raw, &["ACL SETROLE writer ~w +set", "CONFIG REWRITE"]);
    let text = fs::read_to_string(&conf).expect("rewritten");
    assert!(
        text.contains("role reader ~a:* ") && text.contains("role writer ~w "),
        "{text}"
    );
    assert!(
        text.contains("user alice on nopass sanitize-payload role=reader "),
        "{text}"
    );
    drop((raw, server));
    let (_server, mut raw) = with_file(&conf);
    check(&mut raw, "ACL ROLES", "1) \"reader\"\n2) \"writer\"");
}
