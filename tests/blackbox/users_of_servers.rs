//! Servers that authenticate at other servers as users with only the rights that this takes: replicas at
//! their primary, with redis-server on either side too, and Redis's Sentinel at both.

use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

use crate::support::{self, Options, Oracle, Server, check, eventually, free_port, info_text};
use crate::wire::Raw;

/// The user who may do everything here, without a password; the default user may do nothing.
const ADMIN: [(&str, &str); 2] = [
    ("user", "default off"),
    ("user", "admin on nopass ~* &* +@all"),
];
/// Rights that a replica needs at its primary, according to Redis's documentation.
const REPLICA: (&str, &str) = ("user", "replica on >one +psync +replconf +ping");
/// Rights that Sentinel needs, according to the same documentation.
const SENTINEL: (&str, &str) = (
    "user",
    "sentinel on >two &* +multi +slaveof +ping +exec +subscribe +config|rewrite +role +publish +info +client|setname \
     +client|kill +script|kill",
);

fn options(directives: &[(&str, &str)]) -> Options {
    let all = ADMIN.iter().chain(directives);
    all.fold(Options::shards(4), |options, (name, value)| {
        options.with(name, value)
    })
}

fn ours(directives: &[(&str, &str)]) -> Option<Server> {
    Some(Server::start(&options(directives)))
}

fn theirs(directives: &[(&str, &str)]) -> Option<Server> {
    let all = ADMIN.iter().chain(directives);
    let owned: Vec<_> = all
        .map(|(name, value)| (name.to_string(), value.to_string()))
        .collect();
    Oracle::start_with(&owned).map(|oracle| oracle.0)
}

/// Opens a connection with all rights.
fn admin(server: &Server) -> Raw {
    let mut raw = server.raw();
    check(&mut raw, "AUTH admin x", "OK");
    raw
}

fn follows(replica: &mut Raw) -> bool {
    info_text(replica, "replication", "master_link_status").as_deref() == Some("up")
}

#[test]
fn replicas_sign_in_with_a_user_of_their_own_and_need_no_more_than_redis_says() {
    type Start = fn(&[(&str, &str)]) -> Option<Server>;
    let pairs: [(Start, Start); 3] = [(ours, ours), (ours, theirs), (theirs, ours)];
    for (start_primary, start_replica) in pairs {
        let Some(primary) = start_primary(&[REPLICA, ("repl-diskless-sync-delay", "0")]) else {
            return;
        };
        let Some(replica) = start_replica(&[
            ("replicaof", &format!("127.0.0.1 {}", primary.port)),
            ("masteruser", "replica"),
            ("masterauth", "wrong"),
        ]) else {
            return;
        };
        let (mut first, mut second) = (admin(&primary), admin(&replica));
        let denied = |first: &mut Raw, reason: &str| {
            eventually(&format!("a denial because of {reason}"), || {
                let log = first.call("ACL LOG").show();
                log.contains(&format!("\"{reason}\"")) && log.contains("\"replica\"")
            });
            check(first, "ACL LOG RESET", "OK");
        };
        denied(&mut first, "auth");
        assert!(!follows(&mut second));
        check(&mut second, "CONFIG SET masterauth one", "OK");
        eventually("the link with the right password", || follows(&mut second));
        let list = first.call("CLIENT LIST TYPE replica").show();
        assert!(list.contains("user=replica"), "{list}");
        check(&mut first, "SET k v", "OK");
        eventually("the write", || second.call("GET k").show() == "\"v\"");

        check(&mut first, "ACL LOG RESET", "OK");
        check(&mut first, "ACL SETUSER replica -psync", "OK");
        check(&mut first, "CLIENT KILL TYPE replica", "(integer) 1");
        denied(&mut first, "command");
        assert!(!follows(&mut second));
        check(&mut first, "SET k w", "OK");
        check(&mut first, "ACL SETUSER replica +psync", "OK");
        eventually("the link of before", || follows(&mut second));
        eventually("what was missed", || second.call("GET k").show() == "\"w\"");
    }
}

/// Returns the reply to the admin on a new connection, or `None` if Sentinel closes that before, as it does
/// with all clients of a server whose role it changes.
fn asked(server: &Server, line: &str) -> Option<String> {
    let mut raw = Raw::try_connect(server.port).ok()?;
    raw.send_unchecked(format!("AUTH admin x\r\n{line}\r\n").as_bytes());
    raw.try_read().ok()?;
    Some(raw.try_read().ok()?.show())
}

/// Asks until the answer is there and has this in it.
fn eventually_has(server: &Server, line: &str, part: &str) {
    eventually(&format!("{part} in the answer to {line}"), || {
        asked(server, line).is_some_and(|answer| answer.contains(part))
    });
}

/// A Sentinel that ends with the test, and shows its log where that fails.
struct Sentinel {
    child: Child,
    port: u16,
    log: PathBuf,
}

impl Sentinel {
    /// Returns `None` where redis-server, which is Sentinel under another name, is not installed.
    fn start(folder: &Path, primary: &Server) -> Option<Sentinel> {
        let port = free_port();
        let file = folder.join("sentinel.conf");
        // Above the second that Sentinel lets pass between two connects: a new primary whose first connect has to wait
        // for that would else be taken to be down, and the failover be reversed.
        let text = format!(
            "port {port}\nbind 127.0.0.1\ndir {}\nsentinel monitor m 127.0.0.1 {} 1\n\
             sentinel down-after-milliseconds m 4000\nsentinel failover-timeout m 60000\n\
             sentinel auth-user m sentinel\nsentinel auth-pass m two\n",
            folder.display(),
            primary.port
        );
        std::fs::write(&file, text).expect("it is written");
        let log = folder.join("sentinel.log");
        let child = Command::new("redis-server")
            .arg(&file)
            .arg("--sentinel")
            .stdin(Stdio::null())
            .stdout(std::fs::File::create(&log).expect("a log file"))
            .spawn();
        match child {
            Ok(child) => Some(Sentinel { child, port, log }),
            Err(_) => {
                let required =
                    std::env::var("BASALT_REQUIRE_ORACLE").is_ok_and(|value| value == "1");
                assert!(
                    !required,
                    "BASALT_REQUIRE_ORACLE=1, but there is no redis-server"
                );
                support::skipped("no redis-server");
                None
            }
        }
    }

    /// Returns Sentinel's value of a field about the primary.
    fn says(&self, name: &str) -> Option<String> {
        let mut raw = Raw::try_connect(self.port).ok()?;
        let reply = raw.call("SENTINEL MASTER m");
        let mut fields = reply.items().chunks_exact(2);
        let found = fields.find(|field| field[0].body() == name);
        found.map(|field| field[1].body())
    }
}

impl Drop for Sentinel {
    fn drop(&mut self) {
        if std::thread::panicking() {
            let log = std::fs::read_to_string(&self.log).unwrap_or_default();
            eprintln!("--- log of Sentinel\n{log}");
        }
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

#[test]
fn sentinel_fails_over_and_takes_back_what_was_gone_with_a_user_of_its_own() {
    let signs_in = [
        REPLICA,
        SENTINEL,
        ("masteruser", "replica"),
        ("masterauth", "one"),
        ("repl-diskless-sync-delay", "0"),
    ];
    let port = free_port();
    let primary = Server::start(&options(&signs_in).port(port));
    let following = format!("127.0.0.1 {port}");
    let replica = Server::start(&options(&signs_in).with("replicaof", &following));
    let (link, is_up) = ("INFO replication", "master_link_status:up");
    eventually_has(&replica, link, is_up);
    let folder = tempfile::tempdir().expect("a folder");
    let Some(sentinel) = Sentinel::start(folder.path(), &primary) else {
        return;
    };
    eventually("a primary with a replica", || {
        let said = ["flags", "num-slaves"].map(|name| sentinel.says(name));
        said == [Some("master".to_owned()), Some("1".to_owned())]
    });
    eventually_has(&primary, "SET k v", "OK");
    eventually_has(&replica, "GET k", "\"v\"");
    drop(primary);
    eventually_has(&replica, "ROLE", "\"master\"");
    eventually_has(&replica, "SET k w", "OK");
    // Sentinel learns that the promotion has come about from INFO a second later. A primary that is back before then
    // could still win: Sentinel gives the failover up after a while.
    eventually("the new primary in Sentinel's view", || {
        sentinel.says("port") == Some(replica.port.to_string())
    });
    // The server that comes back is a primary until Sentinel makes it follow the new one.
    let returned = Server::start(&options(&signs_in).port(port));
    eventually_has(&returned, link, is_up);
    eventually_has(&returned, "GET k", "\"w\"");
    // None of them was refused anything.
    eventually_has(&returned, "ACL LOG", "(empty array)");
    eventually_has(&replica, "ACL LOG", "(empty array)");
}
