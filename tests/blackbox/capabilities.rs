//! Capabilities that clients declare (CLIENT CAPA), and filters by capability, compared with Valkey 9.

use crate::replicated::follow;
use crate::support::{Options, Oracle, Server, check, eventually};
use crate::wire::Raw;

/// Sends a request to a replica, with the port of its primary as `PORT`.
fn told(raw: &mut Raw, line: &str, port: u16) -> String {
    let reply = raw.call(line).show();
    reply.replace(&format!(":{port}"), ":PORT")
}

/// A client's requests to a replica, and the replies with the address of the primary.
const DIALOGUE: &[(&str, &str)] = &[
    ("GET k", "\"v\""),
    (
        "SET k w",
        "(error) READONLY You can't write against a read only replica.",
    ),
    ("CLIENT CAPA unheard of", "OK"),
    ("GET k", "\"v\""),
    (
        "CLIENT CAPA",
        "(error) ERR wrong number of arguments for 'client|capa' command",
    ),
    ("CLIENT CAPA else REDIRECT", "OK"),
    ("GET k", "(error) REDIRECT 127.0.0.1:PORT"),
    ("SET k w", "(error) REDIRECT 127.0.0.1:PORT"),
    ("DBSIZE", "(error) REDIRECT 127.0.0.1:PORT"),
    ("FLUSHALL", "(error) REDIRECT 127.0.0.1:PORT"),
    ("PING", "PONG"),
    ("EVAL \"return 1\" 0", "(integer) 1"),
    (
        "EVAL_RO \"return redis.call('get',KEYS[1])\" 1 k",
        "(error) REDIRECT 127.0.0.1:PORT",
    ),
    ("MULTI", "OK"),
    ("GET k", "(error) REDIRECT 127.0.0.1:PORT"),
    (
        "EXEC",
        "(error) EXECABORT Transaction discarded because of previous errors.",
    ),
    ("READONLY", "OK"),
    ("GET k", "\"v\""),
    ("DBSIZE", "(integer) 1"),
    ("SET k w", "(error) REDIRECT 127.0.0.1:PORT"),
    ("MULTI", "OK"),
    ("GET k", "QUEUED"),
    ("EXEC", "1) \"v\""),
    ("READWRITE", "OK"),
    ("GET k", "(error) REDIRECT 127.0.0.1:PORT"),
    ("READONLY", "OK"),
    ("RESET", "RESET"),
    ("GET k", "(error) REDIRECT 127.0.0.1:PORT"),
];

#[test]
fn a_client_that_takes_redirections_is_sent_to_the_primary() {
    let primary = Server::start(&Options::shards(2).with("repl-diskless-sync-delay", "0"));
    check(&mut primary.raw(), "SET k v", "OK");
    let replica = Server::start(&Options::shards(2));
    let dir = tempfile::tempdir().expect("a temporary folder");
    let valkey = Oracle::start_valkey(dir.path());
    let mut replicas = vec![&replica];
    replicas.extend(valkey.as_ref().map(|Oracle(server)| server));
    for replica in replicas {
        follow(replica, &primary);
        let mut raw = replica.raw();
        eventually("the key is there", || raw.call("GET k").show() == "\"v\"");
        for (line, answer) in DIALOGUE {
            assert_eq!(told(&mut raw, line, primary.port), *answer, "{line}");
        }
        // A primary serves such a client as any other.
        check(&mut raw, "REPLICAOF NO ONE", "OK");
        check(&mut raw, "SET k w", "OK");
        check(&mut raw, "GET k", "\"w\"");
    }
}

/// Filters, asked by a client named `asking` while `other` is connected, which takes redirections and is on database 3.
const FILTERS: &[&str] = &[
    "ID OTHER",
    "NOT-ID OTHER",
    "NOT-ID 998 999 OTHER NAME asking",
    "NAME other",
    "NOT-NAME other",
    "DB 3",
    "NOT-DB 3",
    "DB 16",
    "DB -1",
    "DB x",
    "CAPA r",
    "NOT-CAPA r",
    "CAPA x",
    "CAPA \"\"",
    "FLAGS N",
    "FLAGS x",
    "NOT-FLAGS x",
    "FLAGS Z",
    "TYPE normal",
    "NOT-TYPE normal",
    "NOT-TYPE pubsub",
    "USER default",
    "NOT-USER default",
    "NOT-USER none",
    "LIB-NAME lib",
    "NOT-LIB-NAME lib",
    "LIB-VER 1.2",
    "NOT-LIB-VER 1.2",
    "IP 127.0.0.1",
    "NOT-IP 127.0.0.1",
    "ADDR 127.0.0.1:1",
    "NOT-ADDR 127.0.0.1:1",
    "LADDR 127.0.0.1:1",
    "NOT-LADDR 127.0.0.1:1",
    "IDLE 0",
    "IDLE 100000",
    "IDLE x",
    "MAXAGE 0",
    "MAXAGE 100000",
    "MAXAGE x",
    "NOT-MAXAGE 1",
    "NOT-IDLE 1",
    "NOT-SKIPME yes",
    "SKIPME yes",
    "SKIPME x",
    "TYPE pubsub TYPE normal",
    "NOT-TYPE pubsub NAME other DB 3 CAPA r NOT-FLAGS b",
    "junk 1",
    "NAME",
];

/// Returns the matches of each filter: the names of the clients shown, or the error; then how many would be
/// closed.
fn found(server: &Server) -> Vec<String> {
    let mut asking = server.raw();
    check(&mut asking, "CLIENT SETNAME asking", "OK");
    let mut other = server.raw();
    for line in [
        "CLIENT SETNAME other",
        "CLIENT SETINFO LIB-NAME lib",
        "CLIENT SETINFO LIB-VER 1.2",
        "CLIENT CAPA redirect",
        "SELECT 3",
    ] {
        check(&mut other, line, "OK");
    }
    let id = other.call("CLIENT ID").integer().to_string();
    let mut all = Vec::new();
    for template in FILTERS {
        let filter = template.replace("OTHER", &id);
        let reply = asking.call(&format!("CLIENT LIST {filter}"));
        let shown = match reply.is_error() {
            true => reply.show(),
            false => {
                let body = reply.body();
                let names = body.lines().filter_map(|line| line.split(" name=").nth(1));
                let mut names: Vec<&str> =
                    names.filter_map(|rest| rest.split(' ').next()).collect();
                names.sort_unstable();
                names.join(" ")
            }
        };
        let killed = asking
            // If two names are given, the last one counts.
            .call(&format!("CLIENT KILL {filter} NAME nobody"))
            .show();
        all.push(format!("{template}: {shown}; {killed}"));
    }
    check(
        &mut asking,
        "CLIENT KILL NOT-NAME asking DB 3",
        "(integer) 1",
    );
    assert!(other.is_closed());
    all
}

#[test]
fn clients_are_found_by_what_a_line_says_of_them_and_by_what_it_does_not() {
    let server = Server::start(&Options::shards(2));
    let ours = found(&server);
    let dir = tempfile::tempdir().expect("a temporary folder");
    if let Some(Oracle(valkey)) = Oracle::start_valkey(dir.path()) {
        assert_eq!(ours, found(&valkey));
    }
}
